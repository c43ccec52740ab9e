//! Any bytes as a certificate: never a panic, never more work than its length allows, and never a
//! yes for a system that misses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_analysis::verify::verify;
use takt_model::file::parse;

/// Systems without any true yes, each for another reason. They differ from the seeds in one number
/// only.
const BAD: [&str; 3] = [include_str!("bad.toml"), include_str!("bad-levels.toml"), include_str!("bad-component.toml")];

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The certificate names its system.
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text)
        && let Some(system) = value["system"].as_str().and_then(|system| parse(system, "fuzz.toml").ok())
        && system.tasks.len() <= 64
    {
        let _ = verify(&system, text);
    }
    // Every claim about this system is false. The form gets the system's text, so that its claims
    // are checked.
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(text) else { return };
    if !value.is_object() {
        return;
    }
    for bad in BAD {
        let bad = parse(bad, "bad.toml").expect("the bad system is one");
        value["system"] = takt_model::file::write(&bad).into();
        if let Ok(accepted) = verify(&bad, &value.to_string()) {
            assert!(!accepted.schedulable, "{text}");
        }
    }
});
