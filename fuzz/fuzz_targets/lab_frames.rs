//! Reads arbitrary bytes as the frames of a guest. Nothing panics. The frames do not depend on how
//! the bytes are divided. Each frame is written to its own bytes. All other bytes are counted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_lab::frames::{Decoder, Results};

fuzz_target!(|bytes: &[u8]| {
    let read = |size: usize| {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for part in bytes.chunks(size) {
            decoder.push(part, &mut |frame| frames.push(frame));
        }
        (frames, decoder.lost())
    };
    let (frames, lost) = read(bytes.len().max(1));
    assert_eq!(read(1 + bytes.len() % 61), (frames.clone(), lost));
    let kept: usize = frames.iter().map(|frame| frame.encode().len()).sum();
    assert_eq!(kept as u64 + lost, bytes.len() as u64);
    let mut results = Results::of(2);
    for frame in frames {
        results.on_frame(frame);
    }
});
