//! Arbitrary text as a state file of a shared network device. Nothing panics. A state that is read
//! stays the same when written and read again. No cut file is obeyed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_linux::tc::rewritten_state;

fuzz_target!(|text: &str| {
    let Ok(written) = rewritten_state(text) else { return };
    assert_eq!(rewritten_state(&written).as_deref(), Ok(written.as_str()));
    assert!(rewritten_state(&written[..written.len() - 2]).is_err());
});
