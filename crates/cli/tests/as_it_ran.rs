//! Verbs on a run under takt's dispatcher: rejected jobs, the end, the tasks' CPUs, and the system.
//!
//! Nothing here asserts when something was done.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use takt_linux::process::KillOnDrop;

/// `short` is blocked by `long` where jobs of a level run to completion; as the file says, it
/// preempts `long` and has time enough.
const BLOCKED: &str = r#"
takt = 1
name = "blocked"
[[node]]
name = "n"
strategy = "mlf"
[[task]]
name = "short"
period = "5ms"
wcet = "1ms"
[[task]]
name = "long"
period = "100ms"
wcet = "20ms"
criticality = "low"
"#;

/// Three plans, one of them an own strategy, each with another place for "low".
const MODES: &str = r#"
takt = 1
name = "modes"
[[node]]
name = "n"
strategy = "muf"
[[mode]]
node = "n"
at = "40ms"
strategy = "turned"
[[mode]]
node = "n"
at = "80ms"
strategy = "mlf"
[[strategy]]
name = "turned"
level = [
    { tasks = ["low"], discipline = "fifo" },
    { tasks = ["mid"], discipline = "deadline" },
    { tasks = "rest", discipline = "deadline" },
]
[[task]]
name = "high"
period = "20ms"
wcet = "1ms"
[[task]]
name = "mid"
period = "20ms"
wcet = "1ms"
[[task]]
name = "low"
period = "20ms"
wcet = "1ms"
criticality = "low"
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(system: &str) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        fs::write(folder.path().join("s.toml"), system).unwrap();
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
        command.args(arguments).current_dir(self.path());
        command
    }

    fn takt(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A live run with its answer; `None` where it may not be.
    fn run(&self, arguments: &[&str]) -> Option<(Output, Value)> {
        answered(self.takt(&[&["run", "s.toml", "--json", "-o", "run.takt"], arguments].concat()))
    }
}

fn answered(out: Output) -> Option<(Output, Value)> {
    let told = said(&out);
    if out.status.code() == Some(3) && told.contains("setcap") {
        println!("skipped: {told}");
        return None;
    }
    let answer = serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {told}"));
    Some((out, answer))
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn a_rejected_job_is_told_and_fails_a_run_that_must_not_miss() {
    // Far more than the CPU can do, and none of it is late before the end.
    let flood = BLOCKED
        .replace("period = \"5ms\"\nwcet = \"1ms\"", "period = \"50us\"\nwcet = \"100us\"\ndeadline = \"60s\"")
        .replace("wcet = \"20ms\"", "wcet = \"1us\"");
    let folder = Folder::with(&flood);
    let Some((out, answer)) = folder.run(&["--for", "200ms", "--force", "--fail-on-miss"]) else { return };
    let task = &answer["tasks"][0];
    let of = |key: &str| task[key].as_u64().unwrap();
    assert_eq!((of("released"), of("missed")), (4000, 0), "{task:#}");
    assert!(of("rejected") > 0, "{task:#}");
    assert_eq!(of("released"), of("completed") + of("cancelled") + of("rejected") + of("unfinished"), "{task:#}");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let stats = folder.takt(&["stats", "run.takt", "--fail-on-miss"]);
    let text = String::from_utf8_lossy(&stats.stdout).into_owned();
    let closing = format!("over 200ms, no deadline missed, {} jobs rejected", of("rejected"));
    assert!(text.contains(&closing), "{text}");
    assert_eq!(stats.status.code(), Some(1));
}

#[test]
fn the_system_that_ran_is_checked_simulated_and_reported() {
    let folder = Folder::with(BLOCKED);
    let Some((_, answer)) = folder.run(&["--for", "300ms"]) else { return };
    // Jobs that run at the end are left out.
    assert_eq!(answer["duration_ns"], 300_000_000, "{answer:#}");
    let simulated = |input: &str| {
        let out = folder.takt(&["sim", input, "--for", "300ms", "--json"]);
        let answer: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", said(&out)));
        (answer["tasks"][0]["released"].clone(), answer["tasks"][0]["missed"].as_u64().unwrap())
    };
    // The run followed the file, so all verbs agree.
    assert_eq!(simulated("s.toml"), (60.into(), 0));
    assert_eq!(simulated("run.takt"), (60.into(), 0));
    assert_eq!(answer["tasks"][0]["released"], 60);
    for input in ["s.toml", "run.takt"] {
        let check = folder.takt(&["check", input]);
        assert_eq!(check.status.code(), Some(0), "{input}: {}", String::from_utf8_lossy(&check.stdout));
    }
    let report = folder.takt(&["report", "s.toml", "run.takt", "-o", "page.html", "--json"]);
    assert!(!said(&report).contains("went by strategy"), "{}", said(&report));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["schedulable"], true, "{report:#}");
    // The file may say that jobs run to completion, and then all verbs say that "short" waits.
    let sized = folder.takt(&["size", "s.toml", "--run-to-completion", "-o", "completion.toml"]);
    assert_eq!(sized.status.code(), Some(1), "{}", said(&sized));
    let text = fs::read_to_string(folder.path().join("completion.toml")).unwrap();
    assert!(text.contains("strategy = \"mlf, run to completion\"") && text.contains("preemptive = false"), "{text}");
    assert!(simulated("completion.toml").1 > 0, "short waits for long");
    assert_eq!(folder.takt(&["check", "completion.toml"]).status.code(), Some(1));
}

#[test]
fn a_task_that_modes_move_is_told_with_each_of_its_places() {
    let folder = Folder::with(MODES);
    let Some((out, answer)) = folder.run(&["--for", "160ms", "--priority", "2"]) else { return };
    let class = |task: usize| answer["threads"][task]["class"].as_str().unwrap();
    assert_eq!(class(2), "SCHED_FIFO priority 1 level 1; turned: 3 level 0; mlf: 1 level 0");
    assert_eq!(class(0), "SCHED_FIFO priority 2 level 0; turned: 1 level 2; mlf: 1 level 0");
    assert!(
        said(&out).contains("more SCHED_FIFO priorities than 1 to 2: the most important level has 4"),
        "{}",
        said(&out)
    );
    let released: Vec<u64> = (0..3).map(|task| answer["tasks"][task]["released"].as_u64().unwrap()).collect();
    assert_eq!(released, [8, 8, 8]);
}

/// Whether the process has a handler for the signal TERM, whose number is 15.
fn catches_term(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok()).is_some_and(|caught| caught >> 14 & 1 == 1)
}

#[test]
fn a_signal_ends_a_dispatched_run_in_order() {
    let folder = Folder::with(MODES);
    let mut command = folder.command(&["run", "s.toml", "--json", "-o", "run.takt", "--for", "20s"]);
    let mut running = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    // The log exists before the run begins, which catches the signal. Without privilege the run ends by itself.
    for _ in 0..6000 {
        let has_log = fs::metadata(folder.path().join("run.takt")).is_ok_and(|log| log.len() > 0);
        if has_log && catches_term(running.0.id()) || running.0.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let id = running.0.id().to_string();
    if running.0.try_wait().unwrap().is_none() {
        // Background commands of a shell may ignore Ctrl-C.
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    std::io::Read::read_to_end(&mut running.0.stdout.take().unwrap(), &mut stdout).unwrap();
    std::io::Read::read_to_end(&mut running.0.stderr.take().unwrap(), &mut stderr).unwrap();
    let status = running.0.wait().unwrap();
    let Some((out, answer)) = answered(Output { status, stdout, stderr }) else { return };
    assert!(out.status.success() && answer["interrupted"] == true, "{}", said(&out));
    assert!(answer["duration_ns"].as_u64().unwrap() < 20_000_000_000, "{answer:#}");
    let stats: Value = serde_json::from_slice(&folder.takt(&["stats", "run.takt", "--json"]).stdout).unwrap();
    assert_eq!((&stats["tasks"], &stats["lost_events"]), (&answer["tasks"], &0.into()), "the log is whole");
}

#[test]
fn a_node_that_nothing_could_run_is_bad_input() {
    let nothing = "takt = 1\nname = \"none\"\n[[node]]\nname = \"n\"\nstrategy = \"mlf\"\n[[mode]]\nnode \
         = \"n\"\nat = \"1ms\"\nstrategy = \"edf\"\n";
    let folder = Folder::with(nothing);
    let out = folder.takt(&["run", "s.toml", "--for", "10ms"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(said(&out).contains("has no tasks, so there is nothing to schedule"), "{}", said(&out));
}

#[test]
fn a_margin_without_a_reservation_is_told() {
    let folder = Folder::with(MODES);
    let Some((out, _)) = folder.run(&["--for", "20ms", "--margin", "5ms"]) else { return };
    assert!(said(&out).contains("--margin has no effect"), "{}", said(&out));
}

#[test]
fn infer_warns_that_it_replaces_an_own_strategy_by_edf() {
    let own = "\n[[strategy]]\nname = \"mine\"\nlevel = [{ tasks = \"rest\", discipline = \"laxity\" }]\n";
    let folder = Folder::with(&(BLOCKED.replace("\"mlf\"", "\"mine\"") + own));
    let Some(_) = folder.run(&["--for", "300ms"]) else { return };
    let out = folder.takt(&["infer", "run.takt", "-o", "inferred.toml"]);
    assert!(said(&out).contains("went by strategy \"mine\", and edf is written"), "{}", said(&out));
    let out = folder.takt(&["infer", "run.takt", "-o", "inferred.toml", "--strategy", "mlf"]);
    assert!(!said(&out).contains("went by strategy"), "{}", said(&out));
}
