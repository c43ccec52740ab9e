//! The content of files after a failure.

use std::fs;
use std::process::Command;

use super::folder::{CommandResult, Folder, TAKT};

#[test]
fn a_refused_verb_leaves_the_file_that_it_would_replace() {
    let folder = Folder::new();
    let before = fs::read(folder.path("good.takt")).expect("a log");
    for output in ["good.takt", "new.takt"] {
        let run = ["run", "shared.toml", "--backend", "sched-ext"];
        for (verb, status) in [(&["sim", "linkless.toml"][..], 2), (&run, 3)] {
            assert_eq!(folder.takt(&[verb, &["-o", output]].concat()).status, status, "{verb:?}");
        }
    }
    assert_eq!(fs::read(folder.path("good.takt")).expect("a log"), before);
    assert!(!folder.path("new.takt").exists());
    // A shorter log leaves nothing of the longer one.
    assert_eq!(folder.takt(&["sim", "good.toml", "--for", "10ms", "-o", "good.takt"]).status, 0);
    assert!(fs::read(folder.path("good.takt")).expect("a log").len() < before.len());
    assert_eq!(folder.takt(&["stats", "good.takt"]).stderr, "");
}

#[test]
fn a_full_disk_is_told_and_a_deaf_terminal_is_no_bug() {
    let folder = Folder::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has /dev/full");
    for arguments in [
        &["check", "good.toml"][..],
        &["sim", "good.toml", "-o", "-"],
        &["chart", "good.takt"],
        &["export", "good.takt", "--format", "perfetto"],
        &["--help"],
    ] {
        let output = Command::new(TAKT).args(arguments).current_dir(folder.0.path()).stdout(full()).output();
        let ran = CommandResult::of(output.expect("takt ends"));
        assert_eq!(ran.status, 4, "{arguments:?}");
        assert!(ran.stderr.starts_with("takt: cannot write standard output: No space left"), "{}", ran.stderr);
    }
    for (arguments, status) in [(&["check", "missing.toml"][..], 2), (&["import", "bad.json"], 2), (&["frobnicate"], 2)]
    {
        let output = Command::new(TAKT).args(arguments).current_dir(folder.0.path()).stderr(full()).output();
        assert_eq!(output.expect("takt ends").status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn a_limit_of_file_size_is_told_like_a_full_disk() {
    let folder = Folder::new();
    let limited = format!("ulimit -f 1; exec '{TAKT}' sim good.toml --for 60s -o limited.takt");
    let output = Command::new("sh").args(["-c", &limited]).current_dir(folder.0.path()).output();
    let ran = CommandResult::of(output.expect("sh runs"));
    assert_eq!(ran.status, 4, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("takt: cannot write limited.takt: File too large"), "{}", ran.stderr);
}

#[test]
fn a_run_that_is_killed_leaves_a_log_of_what_it_did() {
    let folder = Folder::new();
    let mut run = folder.spawn(&["run", "good.toml", "--best-effort", "--for", "60s", "-o", "killed.takt"]);
    // It would take minutes until the events of 100 jobs a second fill a block.
    let completed = |folder: &Folder| {
        let stats = folder.takt(&["stats", "killed.takt", "--json"]);
        if stats.status == 0 { stats.json()["tasks"][0]["completed"].as_u64().unwrap_or(0) } else { 0 }
    };
    while completed(&folder) == 0 && run.try_wait().expect("a child").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    run.kill().expect("a child");
    assert_eq!(run.wait().expect("a child").code(), None, "it was killed, not through");
    assert!(completed(&folder) > 0);
    assert!(folder.takt(&["stats", "killed.takt"]).stderr.contains("no end is recorded"));
}

#[test]
fn a_damaged_log_says_so_and_gives_what_it_has() {
    let folder = Folder::new();
    let whole = fs::read(folder.path("good.takt")).expect("a log");
    let cut = folder.takt_with(&["stats", "-"], &whole[..whole.len() - 5]);
    assert_eq!(cut.status, 0);
    assert!(cut.stderr.starts_with("takt: warning: standard input: "), "{}", cut.stderr);
    let mut other = whole.clone();
    for byte in &mut other[8..] {
        *byte ^= 0x5a;
    }
    let ran = folder.takt_with(&["stats", "-"], &other);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
}
