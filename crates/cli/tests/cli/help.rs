//! Help texts and the manual page.

use std::fs;
use std::path::Path;

use super::folder::Folder;

/// `SNAPSHOTS=overwrite` writes the texts of tests/help anew.
#[test]
fn help_says_what_it_said() {
    let folder = Folder::new();
    let verbs = "check verify admit size gen study sim run observe reproduce reserve net lab doctor stats top diff \
                 infer chart report export import schema completions man";
    let assert = snapbox::Assert::new().action_env("SNAPSHOTS");
    let help_is = |words: &[&str], name: &str| {
        let ran = folder.takt(&[words, &["--help"]].concat());
        assert_eq!(ran.status, 0, "{name}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{name}.txt"));
        assert.eq(ran.text(), snapbox::Data::read_from(&path, None));
    };
    help_is(&[], "takt");
    for (above, below) in [
        ("", verbs),
        ("net ", "apply show remove doctor broker clock probe"),
        ("lab ", "fetch run repeat"),
        ("net probe ", "serve ping-pong under-load throughput playback"),
    ] {
        for verb in below.split(' ') {
            let line = format!("{above}{verb}");
            help_is(&line.split(' ').collect::<Vec<_>>(), &line.replace(' ', "-"));
        }
    }
}

#[test]
fn the_manual_page_names_statuses_and_keys() {
    let folder = Folder::new();
    let page = folder.takt(&["man"]).text();
    for part in [".SH \"EXIT STATUS\"", "4  an I/O error", ".SH \"JSON\"", ".SS \"sim, run, stats\"", "\"response_ns\""]
    {
        assert!(page.contains(part), "no {part}");
    }
    assert_eq!(folder.takt(&["man", "--out", "man"]).status, 0);
    assert_eq!(fs::read_to_string(folder.path("man/takt.1")).expect("a page"), page);
    assert!(fs::read_to_string(folder.path("man/takt-sim.1")).expect("a page").contains("takt\\-sim"));
    let action = fs::read_to_string(folder.path("man/takt-net-apply.1")).expect("a page of an action");
    assert!(action.contains("takt\\-net\\-apply"));
    let mode = fs::read_to_string(folder.path("man/takt-net-probe-serve.1")).expect("a page of a mode");
    assert!(mode.contains("takt\\-net\\-probe\\-serve"));
}
