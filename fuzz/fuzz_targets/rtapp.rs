//! Any text as an rt-app workload: never a panic, and what is imported is a valid System file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_model::file::{parse, write};
use takt_model::import::rtapp::import;

fuzz_target!(|text: &str| {
    let Ok(imported) = import(text, "fuzz.json") else { return };
    if imported.system.tasks.len() > 1000 {
        return;
    }
    let written = write(&imported.system);
    assert_eq!(parse(&written, "imported.toml").as_ref(), Ok(&imported.system), "{written}");
});
