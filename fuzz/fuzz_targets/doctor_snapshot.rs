//! Arbitrary text as a machine described by `takt doctor --save`. Neither reading nor judging
//! panics. A description that is read stays the same when written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_linux::doctor::{Snapshot, findings};

fuzz_target!(|text: &str| {
    let Ok(machine) = Snapshot::parse(text) else { return };
    let findings = findings(&machine);
    assert!(!findings.is_empty());
    let again = Snapshot::parse(&machine.to_string()).expect("what was written can be read");
    assert_eq!(again, machine);
});
