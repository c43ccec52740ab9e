//! The decoder finds the frames that a slow, obvious search finds, however the bytes are divided.

use proptest::prelude::*;
use takt_lab::frames::{Decoder, Encoder, Frame, Kind, PAYLOAD_MAX, Results};

fn decode<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, u64) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for part in parts {
        decoder.push(part, &mut |frame| found.push(frame));
    }
    (found, decoder.lost())
}

/// At each place, tries whether some frame has exactly these bytes.
fn reference(bytes: &[u8]) -> Vec<Frame> {
    const KINDS: [Kind; 6] = [Kind::Begin, Kind::Stdout, Kind::Stderr, Kind::Log, Kind::End, Kind::Finished];
    let (mut found, mut at) = (Vec::new(), 0);
    while at + 20 <= bytes.len() {
        let word = |from: usize| u32::from_le_bytes(bytes[at + from..at + from + 4].try_into().unwrap());
        let length = word(12) as usize;
        let frame = KINDS.get(usize::from(bytes[at + 10])).filter(|_| length <= PAYLOAD_MAX).and_then(|&kind| {
            let payload = bytes.get(at + 20..at + 20 + length)?.to_vec();
            let experiment = u16::from_le_bytes([bytes[at + 8], bytes[at + 9]]);
            Some(Frame { number: word(4), experiment, kind, payload })
        });
        match frame.filter(|frame| bytes[at..].starts_with(&frame.encode())) {
            Some(frame) => {
                at += 20 + length;
                found.push(frame);
            }
            None => at += 1,
        }
    }
    found
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Begin),
        Just(Kind::Stdout),
        Just(Kind::Stderr),
        Just(Kind::Log),
        Just(Kind::End),
        Just(Kind::Finished)
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let payload = prop::collection::vec(prop_oneof![Just(b'T'), any::<u8>()], 0..40);
    (any::<u32>(), any::<u16>(), kind(), payload).prop_map(|(number, experiment, kind, payload)| Frame {
        number,
        experiment,
        kind,
        payload,
    })
}

/// Frames with noise between them.
fn noisy() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop_oneof![
        Just(Vec::new()),
        Just(b"TkLF".to_vec()),
        Just(b"TkL".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec((frame(), noise), 0..6)
        .prop_map(|parts| parts.into_iter().flat_map(|(frame, noise)| [frame.encode(), noise].concat()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
    ))]

    #[test]
    fn intact_frames_come_back_and_nothing_is_lost(frames in prop::collection::vec(frame(), 0..8), cut in 1_usize..64) {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        prop_assert_eq!(decode(bytes.chunks(cut)), (frames, 0));
    }

    /// The decoder may still wait for the rest of a frame that noise seems to begin. Bytes that no
    /// frame begins with end that.
    #[test]
    fn noise_and_changed_bytes_hide_no_other_frame(
        mut bytes in noisy(), cut in 1_usize..64, at in any::<prop::sample::Index>(), flip in any::<u8>()
    ) {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        bytes.extend([0; 2 * PAYLOAD_MAX]);
        let (found, lost) = decode(bytes.chunks(cut));
        let kept: usize = found.iter().map(|frame| frame.encode().len()).sum();
        prop_assert_eq!(kept as u64 + lost, bytes.len() as u64);
        prop_assert_eq!(found, reference(&bytes));
    }
}

#[test]
fn results_are_put_together_and_gaps_are_counted() {
    let mut encoder = Encoder::default();
    let long: Vec<u8> = (0..10_000_u32).map(|byte| byte as u8).collect();
    let mut bytes = Vec::new();
    bytes.extend(encoder.encode(0, Kind::Begin, &[]));
    bytes.extend(encoder.encode(0, Kind::Stdout, &long));
    bytes.extend(encoder.encode(0, Kind::Log, &[]));
    bytes.extend(encoder.encode(0, Kind::End, &3_i32.to_le_bytes()));
    let lost = encoder.encode(1, Kind::Begin, &[]);
    bytes.extend(encoder.encode(1, Kind::End, &0_i32.to_le_bytes()));
    bytes.extend(encoder.encode(7, Kind::Begin, &[]));
    bytes.extend(encoder.encode(0, Kind::Finished, &[]));
    assert!(!lost.is_empty());
    let mut results = Results::of(2);
    Decoder::default().push(&bytes, &mut |frame| results.on_frame(frame));
    assert_eq!(results.experiments[0].stdout, long);
    assert_eq!(results.experiments[0].log.as_deref(), Some(&[][..]));
    assert_eq!(results.experiments[0].status, Some(3));
    assert_eq!((results.experiments[1].status, results.experiments[1].log.as_ref()), (Some(0), None));
    assert_eq!((results.begun, results.finished, results.missing), (1, true, 2));
}
