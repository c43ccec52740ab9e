//! The command, run by tests, and other things that several programs of tests need.
#![allow(dead_code, reason = "each program of tests uses its part")]

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_model::Span;

pub(crate) const TAKT: &str = env!("CARGO_BIN_EXE_takt");

/// Runs the command in a folder. Returns its exit status, standard output and standard error.
pub(crate) fn takt(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ran = Command::new(TAKT).args(arguments).current_dir(folder).output().expect("takt starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code().unwrap_or(-1), text(&ran.stdout), text(&ran.stderr))
}

/// Runs the command in a folder, with success. Returns standard output and standard error.
pub(crate) fn succeeds(folder: &Path, arguments: &[&str]) -> (String, String) {
    let (status, out, error) = takt(folder, arguments);
    assert_eq!(status, 0, "{arguments:?}: {out}{error}");
    (out, error)
}

/// The same. `None`, with the reason on the screen: this machine or user cannot.
pub(crate) fn unless_refused(folder: &Path, arguments: &[&str]) -> Option<(String, String)> {
    let (status, out, error) = takt(folder, arguments);
    if status == 3 {
        println!("skipped: {arguments:?}: {error}");
        return None;
    }
    assert_eq!(status, 0, "{arguments:?}: {out}{error}");
    Some((out, error))
}

/// Each verb that reads logs takes `live.takt`.
pub(crate) fn read_by_every_verb(folder: &Path) {
    for verb in [
        &["stats", "live.takt"][..],
        &["chart", "live.takt"],
        &["report", "live.takt", "-o", "live.html"],
        &["export", "live.takt", "--format", "perfetto", "-o", "live.pftrace"],
    ] {
        succeeds(folder, verb);
    }
}

/// Each miss of a recorded run has one cause with a name, and no job is late by load. `run` is the run's JSON. If
/// records of the kernel are missing, a cause may be unknown, and the screen says so.
pub(crate) fn each_miss_has_a_cause(run: &Value, told: &str) {
    let recorded = &run["recorded"];
    let gaps = recorded["missing"].as_u64().expect("a recording") + recorded["lost"].as_u64().expect("a recording");
    for task in run["tasks"].as_array().expect("tasks") {
        let (late, missed) = (&task["late"], task["missed"].as_u64());
        let causes = late["mainly"].as_object().unwrap_or_else(|| panic!("no causes of late jobs: {told}"));
        let explained: u64 = causes.values().filter_map(Value::as_u64).sum();
        assert!(missed.is_some() && late["jobs"].as_u64() >= missed, "a miss without a cause: {told}");
        assert!(late["by_load"] == 0 && late["jobs"] == explained, "{told}");
        let unknown = causes["unknown"].as_u64().expect("a number");
        if gaps > 0 && unknown > 0 {
            println!("skipped: the causes of {unknown} of {missed:?} misses, for {gaps} records are missing");
        } else {
            assert_eq!(unknown, 0, "{told}");
        }
        if missed > Some(0) {
            println!("{}: {missed:?} missed, by main cause: {}", task["task"], late["mainly"]);
        }
    }
}

/// A verb of the command with pipes, not started yet.
pub(crate) fn piped(verb: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(TAKT);
    command.args(verb).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end. Returns its exit status, standard output and standard error.
pub(crate) fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

pub(crate) fn signal(child: &Child, name: &str) {
    let pid = i32::try_from(child.id()).unwrap();
    assert!(pid > 1);
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Waits for a takt that was told to end. One that ignores its signal fails the test and is killed.
pub(crate) fn ended(child: &mut Child, told: &str) -> ExitStatus {
    for _ in 0..1500 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        pause(Span::from_ms(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("takt did not end within 30 s of {told}; it said {:?}", said(child));
}

/// What an ended child wrote to standard error.
pub(crate) fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut text);
    }
    text
}

/// A network of the test's own: [`Cable::lay`]. `None`, with the reason on the screen, where there is none.
pub(crate) fn cable(is_threaded: bool) -> Option<Cable> {
    Cable::lay(is_threaded).inspect_err(|error| println!("skipped: {error}")).ok()
}

/// One test of a program at a time: the machine has few CPUs, and one bandwidth for reservations.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bounded, for something that another process does.
pub(crate) fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    eventually_or(is_so, || what.to_owned());
}

/// The same; `what` is asked for when it is too late.
pub(crate) fn eventually_or(mut is_so: impl FnMut() -> bool, what: impl FnOnce() -> String) {
    for _ in 0..1500 {
        if is_so() {
            return;
        }
        pause(Span::from_ms(20));
    }
    panic!("{}: not within 30 s", what());
}
