//! Arbitrary text as a journal of settings to restore. Nothing panics. A journal that is read stays
//! the same when written and read again. No cut adds settings. Only groups of takt's own form are
//! named.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_linux::hold::Journal;

fuzz_target!(|text: &str| {
    let Ok(lines) = Journal::lines(text, None) else { return };
    let again = format!("takt-reserve 1\nboot b\n{}\n", lines.join("\n"));
    if lines.is_empty() {
        return;
    }
    assert_eq!(Journal::lines(&again, Some("b")).as_deref(), Ok(&lines[..]));
    assert_eq!(Journal::lines(&again, Some("another")), Ok(Vec::new()));
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "group" {
            assert!(words[5].starts_with("takt-") && !words[5].contains('/'), "{line}");
            assert!(words[6].starts_with('/') && !words[6].split('/').any(|part| part == ".."), "{line}");
        }
    }
    let cut = &again[..again.len() - 2];
    assert!(Journal::lines(cut, Some("b")).is_ok_and(|fewer| fewer.len() == lines.len() - 1));
});
