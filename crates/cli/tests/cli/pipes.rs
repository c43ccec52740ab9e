//! Standard input and output.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use super::folder::{CommandResult, Folder, GOOD};

#[test]
fn pipes_join_verbs() {
    let folder = Folder::new();
    let log = folder.takt(&["sim", "good.toml", "--for", "1s", "-o", "-"]);
    assert_eq!(log.stdout, fs::read(folder.path("good.takt")).expect("a log"), "a pipe gets what a file gets");
    let direct = folder.takt(&["sim", "good.toml", "--for", "1s", "--json"]).json();
    let mut counted = folder.takt_with(&["stats", "-", "--json"], &log.stdout).json();
    for task in counted["tasks"].as_array_mut().expect("tasks") {
        // Only `stats` fills this in.
        let late = task.as_object_mut().and_then(|task| task.remove("late")).expect("why jobs were late");
        assert_eq!(late["jobs"], task["missed"]);
    }
    assert_eq!(counted, direct);
    assert_eq!(folder.takt_with(&["diff", "good.takt", "-"], &log.stdout).status, 0);
    assert_eq!(folder.takt_with(&["check", "-", "--json"], GOOD.as_bytes()).json()["schedulable"], true);
    assert!(folder.takt_with(&["check", "-"], b"takt = 2").stderr.contains("standard input:1:"));
    assert!(folder.takt_with(&["report", "-", "-o", "-"], &log.stdout).text().starts_with("<!DOCTYPE html>"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = Folder::new();
    for arguments in [
        &["sim", "good.toml", "--for", "200s", "-o", "-"][..],
        &["export", "good.takt", "--format", "csv"],
        &["schema"],
        &["check", "--list"],
        &["help"],
    ] {
        let mut child = folder.spawn(arguments);
        let mut byte = [0];
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut byte).expect("something comes");
        drop(stdout);
        let ran = CommandResult::of(child.wait_with_output().expect("takt ends"));
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "takt {}", arguments.join(" "));
    }
}

/// An endless log is told interval by interval: the first report comes while the log is being written.
#[test]
fn a_log_is_reported_while_it_is_written() {
    use std::io::{BufRead as _, BufReader};
    let folder = Folder::new();
    fs::write(folder.0.path().join("a.toml"), "takt = 1\n[[task]]\nname = \"a\"\nperiod = \"1ms\"\nwcet = \"100us\"\n")
        .unwrap();
    assert_eq!(folder.takt(&["sim", "a.toml", "--for", "100s", "-o", "a.takt"]).status, 0);
    let log = fs::read(folder.0.path().join("a.takt")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
    let command = command.args(["stats", "--every", "2s", "--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut stats = command.spawn().unwrap();
    let mut input = stats.stdin.take().unwrap();
    let mut lines = BufReader::new(stats.stdout.take().unwrap()).lines();
    // Half of the log, and no more for now: its reports do not wait for the rest.
    input.write_all(&log[..log.len() / 2]).unwrap();
    input.flush().unwrap();
    let mut report = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    // A pipe holds all of them, so that neither side waits for the other.
    for interval in 0..20u64 {
        let report = report();
        assert_eq!(
            (&report["from_ns"], &report["tasks"][0]["released"]),
            (&(interval * 2_000_000_000).into(), &2000.into())
        );
        assert_eq!(report["cpus"][0]["utilization"], 0.1);
    }
    // A reader that leaves is no error.
    drop(lines);
    let _ = input.write_all(&log[log.len() / 2..]);
    drop(input);
    assert_eq!(stats.wait().unwrap().code(), Some(0));
}

/// A terminal gets 200 rows of a long table, the important ones among them. A pipe gets all rows.
#[test]
fn a_terminal_gets_the_rows_that_matter() {
    if Command::new("script").arg("--version").output().is_err() {
        return println!("skipped: this machine has no script(1), which makes a terminal");
    }
    let folder = Folder::new();
    let mut system = "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"rm\"\n".to_owned();
    for i in 0..250 {
        system += &format!("[[task]]\nname = \"t{i}\"\nperiod = \"100ms\"\nwcet = \"300us\"\n");
    }
    system += "[[task]]\nname = \"tardy\"\nperiod = \"200ms\"\ndeadline = \"50ms\"\nwcet = \"1ms\"\n";
    fs::write(folder.path("long.toml"), system).unwrap();
    assert_eq!(folder.takt(&["sim", "long.toml", "--for", "1s", "-o", "long.takt"]).status, 0);
    let terminal = |arguments: &str| {
        let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_takt"));
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", &command, "/dev/null"]).current_dir(folder.0.path());
        let ran = script.env("COLUMNS", "1000").stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&ran.stdout).replace('\r', "")
    };
    let rows =
        |text: &str| text.lines().filter(|line| line.starts_with('t')).filter(|line| line.contains("ms")).count();
    for (arguments, option) in [
        ("check long.toml", "--all, "),
        ("sim long.toml --for 1s", ""),
        ("sim long.toml --for 1s --runs 2", ""),
        ("stats long.takt", "--all, "),
        ("stats long.takt --every 1s", "--all, "),
        ("report long.toml long.takt -o long.html", ""),
        ("infer long.takt", ""),
    ] {
        let shown = terminal(arguments);
        let left_out = format!("{option}a pipe, a file or --json gets all of them");
        assert!(shown.contains("... and ") && shown.contains(&left_out), "{arguments}: {shown}");
        assert!(shown.contains("\ntardy ") || arguments.starts_with("infer"), "{arguments}: {shown}");
        let piped = folder.takt(&arguments.split(' ').collect::<Vec<_>>()).text();
        assert!(rows(&shown) < rows(&piped) && !piped.contains("... and "), "{arguments}: {shown}");
    }
    for arguments in ["check long.toml --all", "stats long.takt --all"] {
        let shown = terminal(arguments);
        assert!(shown.contains("\nt249 ") && !shown.contains("... and "), "{arguments}: {shown}");
    }
}
