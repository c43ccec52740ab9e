//! Arbitrary bytes as a request to the broker, as its answer, and as a message about clocks. Nothing
//! panics. What is read is written back to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_dispatch::deadline::wire::{ANSWER, Answer, HEAD, Request};
use takt_net::SyncMessage;

fuzz_target!(|bytes: &[u8]| {
    if let Some(request) = Request::read(bytes) {
        let mut back = request.head().to_vec();
        if let Request::Send { bytes, .. } = request {
            back.extend_from_slice(bytes);
        }
        assert_eq!(back.get(HEAD..), bytes.get(HEAD..));
        assert_eq!(Request::read(&back), Some(request));
    }
    if let Some(message) = SyncMessage::read(bytes) {
        assert_eq!(message.write(), bytes);
    }
    if let Some(answer) = bytes.get(..ANSWER).and_then(Answer::read) {
        assert_eq!(Answer::read(&answer.write()), Some(answer));
    }
});
