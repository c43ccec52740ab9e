//! Arbitrary bytes as a request for live admission, and as its answer. Nothing panics. A message
//! that is read has the same bytes when it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_model::admission::{Answer, Request};

fuzz_target!(|bytes: &[u8]| {
    if let Some(request) = Request::read(bytes) {
        assert_eq!(request.write().as_deref(), Some(bytes));
    }
    if let Some(answer) = Answer::read(bytes) {
        assert_eq!(answer.write(), bytes);
    }
});
