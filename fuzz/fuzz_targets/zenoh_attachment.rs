//! Arbitrary bytes as the attachment and the payload of a sample: nothing panics, and what is read
//! is written back to the same bytes. The gateway's own code, without Zenoh.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/zenoh/src/header.rs"]
mod header;

fuzz_target!(|bytes: &[u8]| {
    let (attachment, payload) = bytes.split_at(bytes.len().min(header::ATTACHMENT));
    let mut room = Vec::new();
    if let Ok((event, route)) = header::read(attachment, payload, &mut room) {
        assert!(route < header::ROUTES_MAX);
        assert_eq!(header::write(&event, route as u16), attachment);
    }
    // One that is cut anywhere else is none.
    if let Some((_, shorter)) = attachment.split_last() {
        assert!(header::read(shorter, payload, &mut room).is_err());
    }
});
