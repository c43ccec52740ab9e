//! The checker of certificates shares nothing with the tests whose work it checks.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of the checker: what a reviewer can hold in mind.
const LINES_MAX: usize = 1_500;

fn sources() -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folder = fs::read_dir(src.join("verify")).expect("the checker has a folder");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("an entry").path()).collect();
    files.push(src.join("verify.rs"));
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).expect("a source"))).collect()
}

/// References of a file of the checker to other modules. `depth`: its depth below the crate's root.
fn leaks(text: &str, depth: usize) -> Vec<String> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let outside = |line: &&str| {
        line.contains("crate::")
            || line.contains("takt_analysis")
            || line.contains("include!")
            || line.contains("#[path")
            || {
                // The parent of verify.rs is the crate; that of a file in verify/ is the checker.
                let ups = line.split("super::").count() - 1;
                ups > 0 && (depth < 2 || line.contains("super::super::"))
            }
    };
    code.filter(outside).map(str::to_owned).collect()
}

#[test]
fn the_checker_uses_nothing_of_the_tests() {
    let sources = sources();
    assert!(sources.len() >= 5, "{}", sources.len());
    for (path, text) in &sources {
        let depth = if path.ends_with("src/verify.rs") { 1 } else { 2 };
        let leaks = leaks(text, depth);
        assert!(leaks.is_empty(), "{}: {leaks:?}", path.display());
    }
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines: usize = sources.iter().map(|(_, text)| text.lines().filter(code).count()).sum();
    assert!(lines <= LINES_MAX, "{lines} lines");
}

#[test]
fn a_leak_is_found() {
    for text in ["use crate::edf::qpa;", "let x = super::super::exact::ONE;", "use takt_analysis::check;"] {
        assert_eq!(leaks(text, 2).len(), 1, "{text}");
    }
    assert_eq!(leaks("use super::exact;", 1).len(), 1);
    assert!(leaks("use super::Part; // crate::edf", 2).is_empty());
}
