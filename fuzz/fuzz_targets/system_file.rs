//! Any bytes as a System file: never a panic, and what is read can be written, read again and resolved.

#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_model::file::{Document, parse, validate, write};
use takt_model::{NodeId, Plan};

fuzz_target!(|bytes: &[u8]| {
    let Ok(original) = std::str::from_utf8(bytes) else { return };
    let Ok(system) = parse(original, "fuzz.toml") else { return };
    validate(&system).expect("what a file says passes the checks of Systems built by hand");
    let text = write(&system);
    assert_eq!(parse(&text, "again.toml").as_ref(), Ok(&system), "{text}");
    let document = Document::parse(original, "fuzz.toml").expect("it was read before");
    assert_eq!(document.text(), original);
    let _ = system.hyperperiod();
    let _ = system.default_duration();
    for (i, node) in system.nodes.iter().enumerate() {
        let _ = Plan::resolve(&system, NodeId(i as u32), &system.strategy(node.strategy));
    }
    for mode in &system.modes {
        let _ = Plan::resolve(&system, mode.node, &system.strategy(mode.strategy));
    }
});
