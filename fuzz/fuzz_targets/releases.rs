//! Arbitrary text as a file of releases. Nothing panics. Releases are in order, and the inferred
//! system can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_model::{Span, file};
use takt_trace::infer::{Inferred, SystemOptions, parse_releases};

fuzz_target!(|text: &str| {
    let Ok(releases) = parse_releases(text) else { return };
    assert!(releases.is_sorted_by_key(|(at, _)| *at));
    let options = SystemOptions { wcet: Some(Span::from_ms(1)), ..SystemOptions::default() };
    let written = Inferred::of_releases(vec![("a".to_owned(), releases)]).system(&options);
    if let Ok(system) = file::parse(&written.text, "inferred.toml") {
        assert_eq!(system, written.system);
    }
});
