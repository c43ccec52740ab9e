//! Arbitrary bytes as a datagram of a flow, or of the exchange of clocks. Nothing panics. A head, body or
//! message that is read is written back to the same bytes. No datagram is of both kinds. No counter counts
//! twice.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use takt_net::{DatagramKind, MESSAGE_BODY, MESSAGE_HEAD, MessageBody, MessageHead, ReplayGuard, SyncMessage};

fuzz_target!(|bytes: &[u8]| {
    if let Some(head) = MessageHead::read(bytes) {
        assert_eq!(&head.write()[..], &bytes[..MESSAGE_HEAD]);
    }
    if let Some(head) = MessageHead::read_as(DatagramKind::Clock, bytes) {
        assert_eq!(&head.write_as(DatagramKind::Clock)[..], &bytes[..MESSAGE_HEAD]);
        assert!(MessageHead::read(bytes).is_none());
    }
    if let Some(message) = SyncMessage::read(bytes) {
        assert_eq!(&message.write()[..], bytes);
    }
    if let Some(body) = MessageBody::read(bytes) {
        // A payload stays as it is.
        let mut back = bytes.to_vec();
        back[..MESSAGE_BODY].fill(0);
        body.write(&mut back);
        assert_eq!(back, bytes);
    }
    // Chunks of nine bytes as the process and the counter of a datagram.
    let (mut guard, mut came) = (ReplayGuard::default(), BTreeSet::new());
    for chunk in bytes.chunks_exact(9) {
        let number = u64::from_le_bytes(chunk[1..].try_into().expect("eight"));
        let counter = if chunk[0] & 1 == 0 { number >> 52 } else { number };
        let boot = u64::from(chunk[0] >> 6);
        if guard.accept(boot, [chunk[0] >> 7; 16], counter).is_ok() {
            assert!(came.insert((boot, counter)), "{boot} {counter} counts twice");
        }
    }
});
