//! Reads arbitrary bytes as a message of a prober, as a stream of messages, and as a playback file.
//! Nothing panics. A message that was read is written to the same bytes. The messages of a stream do
//! not depend on how its bytes are divided.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_net::probe::{Frames, HEAD, Head, playback};

fuzz_target!(|bytes: &[u8]| {
    if let Some(head) = Head::read(bytes) {
        assert_eq!(Some(&head.write()[..]), bytes.get(..HEAD));
        assert_eq!(Head::of_datagram(bytes).is_some(), head.length as usize == bytes.len());
    }
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    let end = Frames::default().feed(bytes, &mut |head| whole.push(head));
    let mut frames = Frames::default();
    let mut ended = Ok(());
    for part in bytes.chunks(1 + bytes.len() % 61) {
        ended = frames.feed(part, &mut |head| cut.push(head));
        if ended.is_err() {
            break;
        }
    }
    assert_eq!((whole, end), (cut, ended));
    if let Some(Ok(sends)) = std::str::from_utf8(bytes).ok().map(playback) {
        assert!(!sends.is_empty() && sends.is_sorted_by_key(|(at, _)| *at));
    }
});
