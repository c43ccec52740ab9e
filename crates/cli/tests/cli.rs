//! The command from outside: exit statuses, where things are printed, pipes, and bad input of every kind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const TAKT: &str = env!("CARGO_BIN_EXE_takt");

const GOOD: &str = r#"
takt = 1
name = "good"
[[node]]
name = "local"
strategy = "rm"
[[task]]
name = "a"
period = "10ms"
wcet = "2ms"
exec = { uniform = ["1ms", "2ms"] }
[[task]]
name = "b"
after = ["a"]
wcet = "3ms"
"#;
const LATE: &str = r#"
takt = 1
name = "late"
[[task]]
name = "a"
period = "10ms"
deadline = "5ms"
wcet = "6ms"
"#;
const COMPONENT: &str = r#"
takt = 1
[[component]]
name = "dom1"
server = "ptps"
period = "10ms"
budget = "3ms"
[[task]]
name = "a"
component = "dom1"
period = "100ms"
wcet = "1ms"
"#;
const FLOW: &str = r#"
takt = 1
[[node]]
name = "n1"
[[node]]
name = "n2"
[[flow]]
name = "put"
path = ["n1", "n2"]
period = "10ms"
wcet = "1ms"
size = "400B"
"#;
const CROWDED: &str = r#"
takt = 1
[[node]]
name = "board"
cpus = 2
placement = "partitioned"
[[task]]
name = "a"
period = "10ms"
wcet = "6ms"
[[task]]
name = "b"
period = "10ms"
wcet = "6ms"
[[task]]
name = "c"
period = "10ms"
wcet = "6ms"
"#;
const TWO_NODES: &str = r#"
takt = 1
[[node]]
name = "n1"
[[node]]
name = "n2"
[[task]]
name = "a"
node = "n1"
period = "10ms"
wcet = "1ms"
[[task]]
name = "b"
node = "n2"
period = "20ms"
wcet = "1ms"
"#;

/// A folder with the systems above and a log.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a temporary folder"));
        let systems = [
            ("good", GOOD),
            ("late", LATE),
            ("component", COMPONENT),
            ("flow", FLOW),
            ("crowded", CROWDED),
            ("nodes", TWO_NODES),
            (
                "table",
                &GOOD.replace("\"rm\"", "\"mine\"").replace(
                    "[[node]]",
                    "[[strategy]]\nname = \"mine\"\nlevel = [{ discipline = \"table\" }]\n[[node]]",
                ),
            ),
            ("laxity", &GOOD.replace("\"rm\"", "\"mlf\"")),
            ("priorities", &GOOD.replace("\"rm\"", "\"fp\"")),
            ("traced", &GOOD.replace("{ uniform = [\"1ms\", \"2ms\"] }", "{ trace = \"times.csv\" }")),
            ("broken", "takt = \n"),
            ("empty", ""),
            ("unitless", &GOOD.replace("\"10ms\"", "10")),
        ];
        for (name, text) in systems {
            fs::write(folder.path(&format!("{name}.toml")), text).expect("a file");
        }
        fs::write(folder.path("bytes.toml"), [0xff, 0xfe, 0x00]).expect("a file");
        fs::write(folder.path("bad.json"), "{ \"tasks\": { \"a\": { \"rum\": 1 } } }").expect("a file");
        assert_eq!(folder.takt(&["sim", "good.toml", "--for", "1s", "-o", "good.takt"]).status, 0);
        assert_eq!(folder.takt(&["sim", "late.toml", "-o", "late.takt"]).status, 0);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        Command::new(TAKT)
            .args(arguments)
            .current_dir(self.0.path())
            .env("NO_COLOR", "1")
            .env_remove("COLUMNS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("takt starts")
    }

    fn takt(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.spawn(arguments).wait_with_output().expect("takt ends"))
    }

    fn takt_with(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = self.spawn(arguments);
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let ran = Ran::of(child.wait_with_output().expect("takt ends"));
        writer.join().expect("the writer ends");
        ran
    }
}

struct Ran {
    status: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines = stderr.lines().filter(|line| !line.starts_with("takt: note:"));
        let stderr = lines.map(|line| format!("{line}\n")).collect();
        Ran { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
    }

    fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.stderr))
    }
}

#[test]
fn bad_usage_and_bad_input_have_their_status_and_say_what_to_do() {
    let folder = Folder::new();
    let cases: &[(&[&str], i32, &str)] = &[
        // usage
        (&["frobnicate"], 2, "unrecognized subcommand 'frobnicate'"),
        (&["check"], 2, "<FILE>"),
        (&["sim", "good.toml", "--for", "10"], 2, "has no unit; write a duration such as \"10ms\""),
        (&["sim", "good.toml", "--for", "-1s"], 2, "is negative"),
        (&["sim", "good.toml", "--seed", "-1"], 2, "invalid value '-1' for '--seed"),
        (&["sim", "good.toml", "--runs", "-1"], 2, "invalid value '-1' for '--runs"),
        (&["diff", "good.takt", "good.takt", "--tolerance", "-1us"], 2, "is negative"),
        (&["chart", "good.takt", "--json"], 2, "chart has no answer in JSON"),
        (&["export", "good.takt", "--format", "csv", "--json"], 2, "export has no answer in JSON"),
        (&["completions", "bash", "--json"], 2, "completions has no answer in JSON"),
        (&["man", "--json"], 2, "man has no answer in JSON"),
        (&["chart", "good.takt", "--from", "100s"], 2, "nothing to draw from 100s on: good.takt ends at "),
        (&["report", "good.toml", "good.takt", "--seed", "3"], 2, "good.takt is a simulation already"),
        (&["import", "bytes.toml"], 2, "it should be a JSON file"),
        (&["sim", "good.toml", "--for", "0s"], 2, "--for 0ns is no time"),
        (&["sim", "good.toml", "--runs", "0"], 2, "0 is not in 1.."),
        (&["sim", "good.toml", "--runs", "2", "-o", "x.takt"], 2, "a log holds one run"),
        (&["sim", "good.toml", "--node", "n9"], 2, "no node is called \"n9\"; the system has \"local\""),
        (&["sim", "good.toml", "-o", "-", "--json"], 2, "both want standard output"),
        (&["check", "good.toml", "--test", "magic"], 2, "invalid value 'magic'"),
        (&["check", "good.toml", "--linux=cpus=zero"], 2, "\"cpus=zero\" has no whole number"),
        (&["check", "good.toml", "--linux=cpus=0"], 2, "is no possible number of CPUs"),
        (&["check", "good.toml", "--linux=speed=1"], 2, "is no key of a machine"),
        (&["check", "good.toml", "--linux=fair-server=maybe"], 2, "none of on, starved and off"),
        (&["chart", "good.takt", "--from", "2s", "--to", "1s"], 2, "--to must be later"),
        (&["chart", "good.takt", "--by", "cpu"], 2, "add --format svg"),
        (&["chart", "good.takt", "--node", "n9"], 2, "no node is called \"n9\""),
        (&["chart", "good.takt", "-o", "x.png"], 2, "a chart is text or SVG, not png"),
        (&["chart", "good.takt", "--to", "0s"], 2, "--to must be later"),
        (&["sim", "good.toml", "--seed", "x"], 2, "is no whole number from 0 to 18446744073709551615"),
        (&["sim", "good.toml", "--for", "99999999999999999999s"], 2, "is too long; the longest duration is 100000000s"),
        (&["sim", "good.toml", "-o", "./good.toml"], 2, "./good.toml is to be read and would be overwritten"),
        (&["chart", "good.takt", "-o", "good.takt"], 2, "good.takt is to be read and would be overwritten"),
        (&["import", "bad.json", "-o", "bad.json"], 2, "bad.json is to be read and would be overwritten"),
        (&["diff", "-", "-"], 2, "only one of the two logs"),
        (&["report", "-", "-"], 2, "only one of system and log"),
        (&["report", "good.takt", "late.takt"], 2, "give one system file and one log"),
        (&["report", "good.toml", "late.takt", "-o", "x.html"], 2, "is a log of other tasks"),
        // files
        (&["check", "broken.toml"], 2, "broken.toml:1:"),
        (&["check", "empty.toml"], 2, "the file is empty"),
        (&["check", "bytes.toml"], 2, "is not text: byte 0 is no UTF-8"),
        (&["check", "unitless.toml"], 2, "unitless.toml:9:10: period 10 of task \"a\" has no unit"),
        (&["sim", "priorities.toml"], 2, "has no priority"),
        (&["sim", "good.takt"], 2, "is a log, and this verb wants a system file"),
        (&["stats", "good.toml"], 2, "this is not a takt log"),
        (&["stats", "empty.toml"], 2, "this is not a takt log"),
        (&["infer", "good.toml"], 2, "this is not a takt log"),
        (&["infer", "--releases", "good.toml"], 2, "good.toml:3: "),
        (&["infer", "good.takt", "--task", "c"], 2, "no task called \"c\" released a job; there are \"a\", \"b\""),
        (&["infer", "good.takt", "-o", "good.takt"], 2, "would be overwritten"),
        (&["infer", "good.takt", "--wcet", "1ms"], 2, "--output"),
        (&["chart", "bytes.toml"], 2, "this is not a takt log"),
        (&["diff", "good.takt", "good.toml"], 2, "this is not a takt log"),
        (&["export", "good.toml", "--format", "csv"], 2, "this is not a takt log"),
        (&["import", "bad.json"], 2, "bad.json:1:"),
        (&["import", "good.toml"], 2, "good.toml:"),
        (&["import", "good.takt"], 2, "good.takt is a log, and this verb wants a JSON file"),
        (&["check", "bad.json"], 2, "\"takt import\" turns an rt-app workload into a system file"),
        // what this version cannot
        (&["sim", "component.toml"], 3, "component \"dom1\" cannot be simulated"),
        (&["run", "component.toml", "--best-effort"], 3, "component \"dom1\" cannot be run"),
        (&["run", "laxity.toml"], 3, "strategy \"mlf\" cannot be run under the kernel's scheduling classes"),
        (&["sim", "flow.toml"], 3, "flow \"put\" cannot be simulated"),
        (&["sim", "table.toml"], 3, "discipline \"table\""),
        // input and output
        (&["check", "missing.toml"], 4, "cannot read missing.toml: No such file"),
        (&["stats", "missing.takt"], 4, "cannot read missing.takt: No such file"),
        (&["check", "."], 4, "cannot read .: it is a folder"),
        (&["sim", "traced.toml"], 4, "times.csv"),
        (&["sim", "good.toml", "-o", "missing/x.takt"], 4, "; its folder does not exist"),
        (&["sim", "good.toml", "-o", "."], 4, "cannot write .: Is a directory"),
        (&["man", "--out", "good.toml/man"], 4, "cannot write good.toml/man"),
    ];
    let mut wrong = Vec::new();
    for (arguments, status, says) in cases {
        let ran = folder.takt(arguments);
        if ran.status != *status
            || !ran.stderr.contains(says)
            || ran.stderr.contains("panicked")
            || !ran.stdout.is_empty()
        {
            wrong.push(format!("takt {}: {} {}{}", arguments.join(" "), ran.status, ran.stderr, ran.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_answer_is_the_exit_status() {
    let folder = Folder::new();
    let cases: &[(&[&str], i32)] = &[
        (&["check", "good.toml"], 0),
        (&["check", "late.toml"], 1),
        (&["check", "crowded.toml"], 1),
        (&["sim", "late.toml"], 0),
        (&["sim", "late.toml", "--fail-on-miss"], 1),
        (&["sim", "good.toml", "--fail-on-miss"], 0),
        (&["sim", "late.toml", "--runs", "3", "--fail-on-miss"], 1),
        (&["sim", "crowded.toml"], 1),
        (&["stats", "late.takt", "--fail-on-miss"], 1),
        (&["infer", "good.takt", "--period-of", "a"], 0),
        (&["stats", "good.takt", "--fail-on-miss"], 0),
        (&["diff", "good.takt", "good.takt"], 0),
        (&["diff", "good.takt", "late.takt"], 1),
        (&["chart", "late.takt", "--first-miss"], 0),
        (&["chart", "good.takt", "--first-miss"], 1),
        (&["report", "crowded.toml", "-o", "crowded.html"], 0),
        (&["report", "component.toml", "-o", "component.html"], 0),
        (&["report", "good.takt", "-o", "good.html"], 0),
        (&["run", "late.toml", "--best-effort", "--for", "50ms", "--fail-on-miss"], 1),
        (&["run", "laxity.toml", "--best-effort", "--for", "50ms"], 0),
        (&["schema"], 0),
        (&["--version"], 0),
        (&["help", "run"], 0),
    ];
    let mut wrong = Vec::new();
    for (arguments, status) in cases {
        let ran = folder.takt(arguments);
        if ran.status != *status || ran.stderr.contains("panicked") {
            wrong.push(format!("takt {}: {} {}", arguments.join(" "), ran.status, ran.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn json_stands_alone_on_standard_output_and_keeps_its_keys() {
    let folder = Folder::new();
    let check = folder.takt(&["check", "good.toml", "--json"]).json();
    assert_eq!((&check["system"], &check["schedulable"]), (&"good".into(), &true.into()));
    assert_eq!(folder.takt(&["--json", "check", "late.toml"]).json()["schedulable"], false);
    for key in ["test", "scope", "verdict", "why", "tasks", "figures"] {
        assert!(check["tests"][0].get(key).is_some(), "{key}");
    }
    assert!(folder.takt(&["check", "--list", "--json"]).json()["tests"][0]["test"].is_string());
    let sim = folder.takt(&["sim", "good.toml", "--json"]).json();
    assert_eq!(sim["duration_ns"], 20_000_000);
    for key in
        ["task", "node", "released", "completed", "missed", "cancelled", "unfinished", "response_ns", "laxity_ns"]
    {
        assert!(sim["tasks"][0].get(key).is_some(), "{key}");
    }
    for key in ["min", "mean", "p50", "p99", "max"] {
        assert!(sim["tasks"][0]["response_ns"][key].is_u64(), "{key}");
    }
    assert!(sim["tasks"][0]["preemptions"].is_u64() && sim["tasks"][0]["migrations"].is_u64());
    assert_eq!(sim["chains"][0]["chain"], "a -> b");
    assert!(sim["cpus"][0]["busy_ns"].is_u64());
    let run = folder.takt(&["run", "good.toml", "--best-effort", "--no-trace", "--for", "100ms", "--json"]).json();
    assert!(run["recorded"].is_null() && run["threads"][0]["stamps"].is_null());
    assert!(run["tasks"][0]["release_latency_ns"]["p99"].is_u64() && run["tasks"][0]["preemptions"].is_null());
    assert_eq!((&run["best_effort"], &run["tasks"][0]["released"]), (&true.into(), &10.into()));
    let runs = folder.takt(&["sim", "good.toml", "--runs", "5", "--json"]).json();
    assert_eq!((&runs["runs"], &runs["confidence"][0]["task"]), (&5.into(), &"a".into()));
    assert_eq!(folder.takt(&["diff", "good.takt", "good.takt", "--json"]).json()["same"], true);
    let report = folder.takt(&["report", "good.takt", "-o", "x.html", "--json"]).json();
    assert!(report["tasks"][0]["bound_ns"].as_u64() >= report["tasks"][0]["simulated"]["max_ns"].as_u64());
    let schema = folder.takt(&["schema"]).json();
    assert!(schema["properties"]["task"].is_object());
}

#[test]
fn pipes_join_verbs() {
    let folder = Folder::new();
    let log = folder.takt(&["sim", "good.toml", "--for", "1s", "-o", "-"]);
    assert_eq!(log.stdout, fs::read(folder.path("good.takt")).expect("a log"), "a pipe gets what a file gets");
    let direct = folder.takt(&["sim", "good.toml", "--for", "1s", "--json"]).json();
    assert_eq!(folder.takt_with(&["stats", "-", "--json"], &log.stdout).json(), direct);
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
        let ran = Ran::of(child.wait_with_output().expect("takt ends"));
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "takt {}", arguments.join(" "));
    }
}

#[test]
fn a_refused_verb_leaves_the_file_that_it_would_replace() {
    let folder = Folder::new();
    let before = fs::read(folder.path("good.takt")).expect("a log");
    for output in ["good.takt", "new.takt"] {
        for verb in
            [&["sim", "table.toml"][..], &["run", "component.toml", "--best-effort"], &["sim", "component.toml"]]
        {
            assert_eq!(folder.takt(&[verb, &["-o", output]].concat()).status, 3, "{verb:?}");
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
        let ran = Ran::of(output.expect("takt ends"));
        assert_eq!(ran.status, 4, "{arguments:?}");
        assert!(ran.stderr.starts_with("takt: cannot write standard output: No space left"), "{}", ran.stderr);
    }
    for (arguments, status) in [(&["check", "missing.toml"][..], 4), (&["import", "bad.json"], 2), (&["frobnicate"], 2)]
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
    let ran = Ran::of(output.expect("sh runs"));
    assert_eq!(ran.status, 4, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("takt: cannot write limited.takt: File too large"), "{}", ran.stderr);
}

#[test]
fn replications_do_not_depend_on_threads_and_start_with_the_seed() {
    let folder = Folder::new();
    let merged = |arguments: &[&str]| folder.takt(arguments).text();
    let first = merged(&["sim", "good.toml", "--runs", "40", "--seed", "7", "--json"]);
    for _ in 0..3 {
        assert_eq!(merged(&["sim", "good.toml", "--runs", "40", "--seed", "7", "--json"]), first);
    }
    assert_ne!(merged(&["sim", "good.toml", "--runs", "40", "--seed", "8", "--json"]), first);
    let one = folder.takt(&["sim", "good.toml", "--seed", "7", "--json"]).json();
    let two = folder.takt(&["sim", "good.toml", "--seed", "8", "--json"]).json();
    let both = folder.takt(&["sim", "good.toml", "--runs", "2", "--seed", "7", "--json"]).json();
    let max = |value: &Value| value["tasks"][0]["response_ns"]["max"].as_u64().expect("a number");
    assert_eq!(max(&both), max(&one).max(max(&two)));
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
fn what_is_about_one_node_of_several_leaves_the_others_out() {
    let folder = Folder::new();
    let seen = |arguments: &[&str]| {
        let answer = folder.takt(arguments).json();
        let names = |list: &str, key: &str| {
            let list = answer[list].as_array().expect("a list").iter();
            list.map(|entry| entry[key].as_str().expect("a name").to_owned()).collect::<Vec<_>>().join(" ")
        };
        [names("tasks", "task"), names("cpus", "node")]
    };
    assert_eq!(seen(&["sim", "nodes.toml", "--json"]), ["a b", "n1 n2"]);
    assert_eq!(seen(&["sim", "nodes.toml", "--node", "n2", "--json"]), ["b", "n2"]);
    assert_eq!(seen(&["sim", "nodes.toml", "--node", "n2", "--runs", "2", "--json"]), ["b", "n2"]);
    assert_eq!(seen(&["sim", "nodes.toml", "--node", "n1", "-o", "sim.takt", "--json"]), ["a", "n1"]);
    assert_eq!(seen(&["stats", "sim.takt", "--json"]), ["a", "n1"]);
    let run = ["run", "nodes.toml", "--node", "n2", "--best-effort", "--for", "50ms", "-o", "run.takt", "--json"];
    assert_eq!(seen(&run), ["b", "n2"]);
    assert_eq!(seen(&["stats", "run.takt", "--json"]), ["b", "n2"]);
}

#[test]
fn a_file_that_exceeds_its_own_wcet_is_no_bug_of_takt() {
    let folder = Folder::new();
    fs::write(folder.path("over.toml"), GOOD.replace("\"2ms\"]", "\"9ms\"]")).expect("a file");
    assert_eq!(folder.takt(&["sim", "over.toml", "-o", "over.takt"]).status, 0);
    let output = folder.spawn(&["report", "over.toml", "over.takt"]).wait_with_output().expect("takt ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Simulated above bound") && said.contains("longer than their wcet"), "{said}");
    assert!(!said.contains("please report this"), "{said}");
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

#[test]
fn every_example_is_checked_and_simulated() {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in fs::read_dir(examples).expect("examples").map(|entry| entry.expect("an entry").path()) {
        if entry.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        seen += 1;
        let file = entry.to_str().expect("a name");
        assert!(folder.takt(&["check", file]).status <= 1, "{file}");
        let ran = folder.takt(&["sim", file]);
        let refused =
            ["tour.toml", "partitions.toml", "store.toml", "switched.toml"].iter().any(|name| file.ends_with(name));
        let wanted = if refused { 3 } else { 0 };
        assert_eq!(ran.status, wanted, "{file}: {}", ran.stderr);
    }
    assert!(seen >= 6, "{seen} examples");
}

#[test]
fn every_imported_example_is_checked_simulated_and_run() {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rt-app");
    let mut seen = 0;
    for entry in fs::read_dir(examples).expect("examples").map(|entry| entry.expect("an entry").path()) {
        seen += 1;
        let file = entry.to_str().expect("a name");
        let done = |arguments: &[&str]| folder.takt(arguments);
        assert_eq!(done(&["import", file, "-o", "imported.toml"]).status, 0, "{file}");
        assert!(done(&["check", "imported.toml"]).status <= 1, "{file}");
        for verb in [&["sim", "imported.toml"][..], &["run", "imported.toml", "--best-effort", "--for", "50ms"]] {
            let ran = done(verb);
            // Best effort takes any strategy, but no more CPUs than there are.
            let small = ran.status == 3 && ran.stderr.contains("run it on a larger machine");
            assert!(ran.status == 0 || small, "{file} {verb:?}: {} {}", ran.status, ran.stderr);
        }
    }
    assert!(seen >= 4, "{seen} examples");
}

#[test]
fn the_tour_shows_every_key() {
    let folder = Folder::new();
    let schema = folder.takt(&["schema"]).json();
    let tour = include_str!("../../../examples/tour.toml");
    let mut keys = Vec::new();
    keys_of(&schema, &mut keys);
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() > 50, "{keys:?}");
    let lines = || tour.lines().map(|line| line.split(" # ").next().unwrap_or_default());
    let shown = |key: &String| {
        let spellings = [format!("{key} ="), format!("[[{key}]]")];
        lines().any(|line| spellings.iter().any(|spelling| line.contains(spelling)))
    };
    keys.retain(|key| !shown(key));
    assert!(keys.is_empty(), "examples/tour.toml lacks {keys:?}");
}

/// The names of all properties in a schema.
fn keys_of(schema: &Value, keys: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            for (name, value) in map {
                if let ("properties", Some(properties)) = (name.as_str(), value.as_object()) {
                    keys.extend(properties.keys().cloned());
                }
                keys_of(value, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys_of(value, keys)),
        _ => {}
    }
}

#[test]
fn what_is_sized_is_written_with_its_comments_and_proven() {
    let folder = Folder::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/partitions.toml");
    let text = fs::read_to_string(&example).expect("the example");
    let file = example.to_str().expect("a name");
    assert_eq!(folder.takt(&["check", file]).status, 1);
    let ran = folder.takt(&["size", file, "-o", "sized.toml", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let json = ran.json();
    assert_eq!(json["schedulable"], true);
    let flight = &json["components"][0];
    assert_eq!((&flight["component"], &flight["period_ns"]), (&"flight".into(), &20_000_000.into()));
    let bandwidth = |i: usize| json["components"][i]["bandwidth"].as_f64().expect("a number");
    let load = |i: usize| json["components"][i]["workload_utilization"].as_f64().expect("a number");
    assert!((0..3).all(|i| bandwidth(i) >= load(i) && bandwidth(i) <= 1.0), "{json}");
    let sized = fs::read_to_string(folder.path("sized.toml")).expect("the file");
    let unlike: Vec<(&str, &str)> = text.lines().zip(sized.lines()).filter(|(a, b)| a != b).collect();
    assert_eq!(text.lines().count(), sized.lines().count());
    assert!(unlike.len() == 4 && unlike.iter().all(|(before, _)| before.contains("\"auto\"")), "{unlike:?}");
    assert_eq!(folder.takt(&["check", "sized.toml"]).status, 0);
    // A pipe carries the file and nothing else; what is sized stays as it is.
    let piped = folder.takt(&["size", "sized.toml", "-o", "-"]);
    assert_eq!((piped.status, piped.stdout), (0, sized.into_bytes()));
    assert_eq!(folder.takt(&["size", file, "-o", "-", "--json"]).status, 2);
}

/// A file that says more than its bounds gets the verdict of its bounds, and is told so by each verb that gives one.
#[test]
fn verdicts_say_what_the_file_has_against_them() {
    let folder = Folder::new();
    let task =
        |name: &str, more: &str| format!("[[task]]\nname = \"{name}\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n{more}\n");
    let long = "exec = { uniform = [\"1ms\", \"11ms\"] }";
    fs::write(folder.path("plain.toml"), format!("takt = 1\n{}", task("a", ""))).expect("a file");
    fs::write(folder.path("long.toml"), format!("takt = 1\n{}", task("b", long))).expect("a file");
    let why = "task \"b\" executes for up to 11ms; the verdicts assume its wcet 1ms";
    for arguments in [&["admit", "plain.toml", "--add", "long.toml", "--json"][..], &["size", "long.toml", "--json"]] {
        let ran = folder.takt(arguments);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        assert_eq!(ran.json()["warnings"], serde_json::json!([why]), "{arguments:?}");
    }
}

#[test]
fn sizing_binds_tasks_and_says_what_is_too_much() {
    let folder = Folder::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/multicore-partitioned.toml");
    let ran = folder.takt(&["size", example.to_str().expect("a name"), "-o", "bound.toml", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["partition"].as_array().map(Vec::len), Some(3));
    assert!(fs::read_to_string(folder.path("bound.toml")).expect("the file").contains("cpus = ["));
    let full = COMPONENT.replace("\"3ms\"", "\"auto\"").replace("\"1ms\"", "\"99ms\"").replace("\"100ms\"", "\"90ms\"");
    fs::write(folder.path("full.toml"), full).expect("a file");
    let ran = folder.takt(&["size", "full.toml"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("component \"dom1\": not even a whole CPU"), "{}", ran.stderr);
    let nothing = folder.takt(&["size", "good.toml"]);
    assert!(nothing.status == 0 && nothing.text().contains("Nothing is to be sized"), "{}", nothing.text());
}

#[test]
fn a_reservation_is_sized_from_the_file_or_a_log() {
    let folder = Folder::new();
    let task = |more: &str| format!("takt = 1\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nwcet = \"9ms\"\n{more}\n");
    let random = r#"arrival = { pmf = [["10ms", 0.5], ["20ms", 0.5]] }
exec = { pmf = [["1ms", 0.7], ["4ms", 0.25], ["9ms", 0.05]] }"#;
    fs::write(folder.path("a.toml"), task(random)).expect("a file");
    let size = |more: &[&str]| {
        let fixed = ["size", "a.toml", "--reserve", "a", "--period", "5ms", "--deadline", "20ms", "--json"];
        folder.takt(&[&fixed[..], more].concat())
    };
    let ran = size(&["--probability", "0.99", "--pending", "3"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let file = ran.json()["reservations"][0].clone();
    assert!(file["in_time"]["low"].as_f64() >= Some(0.99) && file["lost"]["high"].as_f64() <= Some(0.01), "{file}");
    assert!(file["fast_bound"].as_f64() <= file["in_time"]["high"].as_f64());
    assert_eq!((&file["pending"], &file["independence"]["exec"]), (&3.into(), &serde_json::Value::Null));
    // The same from what a simulation shows, nearly.
    assert_eq!(folder.takt(&["sim", "a.toml", "--for", "100s", "-o", "a.takt"]).status, 0);
    let ran = size(&["--probability", "0.99", "--pending", "3", "--log", "a.takt"]);
    assert!(ran.status == 0 && ran.stderr.is_empty(), "{}", ran.stderr);
    let log = ran.json()["reservations"][0].clone();
    let budget = |of: &serde_json::Value| of["budget_ns"].as_f64().expect("a number");
    assert!((budget(&file) / budget(&log) - 1.0).abs() < 0.1, "{file} {log}");
    assert_eq!(log["independence"]["exec"]["doubtful"], false);
    // Long jobs that follow long jobs are told of.
    let phases: String = (0..2000).map(|i| if i / 50 % 2 == 0 { "1ms\n" } else { "4ms\n" }).collect();
    fs::write(folder.path("phases.csv"), phases).expect("a file");
    fs::write(folder.path("a.toml"), task("exec = { trace = \"phases.csv\" }")).expect("a file");
    let ran = size(&["--probability", "0.9"]);
    assert!(ran.status == 0 && ran.stderr.contains("its execution times depend on one another"), "{}", ran.stderr);
    for (more, status, says) in [
        (&["--probability", "1.5"][..], 2, "is not between 0 and 1"),
        (&["--probability", "0"], 2, "is no share above 0"),
        (&[], 2, "--probability"),
        (&["--probability", "0.9", "--quantum", "6ms"], 2, "does not fit into a period"),
        (&["--probability", "0.9", "--quantum", "1us"], 4, "coarser granularity"),
        (&["--probability", "0.9", "-o", "b.toml"], 2, "stands in none"),
        (&["--probability", "0.9", "--log", "a.toml"], 2, "a.toml"),
    ] {
        let ran = size(more);
        assert!(ran.status == status && ran.stderr.contains(says), "{more:?}: {} {}", ran.status, ran.stderr);
    }
    let ran = folder.takt(&[
        "size",
        "a.toml",
        "--reserve",
        "a",
        "--period",
        "11ms",
        "--deadline",
        "20ms",
        "--probability",
        "0.5",
    ]);
    assert!(ran.status == 1 && ran.stderr.contains("take a shorter period"), "{} {}", ran.status, ran.stderr);
    // Costs are charged to jobs and budgets.
    let costly = |more: &str| {
        format!("{}{more}", task("").replacen("[[task]]", "[[node]]\nname = \"n\"\nstrategy = \"edf\"\ncosts = { switch = \"10us\", release = \"5us\" }\n[[task]]", 1))
    };
    let other = "[[task]]\nname = \"b\"\nperiod = \"5ms\"\nwcet = \"1ms\"\n";
    fs::write(folder.path("a.toml"), costly(other)).expect("a file");
    let ran = size(&["--probability", "1"]);
    let costs = ran.json()["reservations"][0].clone();
    // The end of its budget, and three releases of "b".
    assert_eq!((&costs["loss_ns"], &costs["job_costs_ns"]), (&40_000.into(), &25_000.into()), "{costs}");
    assert_eq!(costs["budget_ns"], 4_600_000);
    let text = folder.takt(&["size", "a.toml", "--reserve", "a", "--period", "5ms", "--probability", "1"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("charged: 25us for each job, 40us of each budget"), "{text}");
    fs::write(folder.path("a.toml"), costly(&format!("{other}final-section = \"500us\"\n"))).expect("a file");
    let ran = size(&["--probability", "1"]);
    assert!(ran.status == 3 && ran.stderr.contains("\"b\" has sections"), "{} {}", ran.status, ran.stderr);
    let ran = folder.takt(&["size", "a.toml", "--reserve", "c", "--period", "5ms", "--probability", "0.5"]);
    assert!(ran.status == 2 && ran.stderr.contains("no task is called \"c\""), "{}", ran.stderr);
}

/// `SNAPSHOTS=overwrite` writes the texts of tests/help anew.
#[test]
fn help_says_what_it_said() {
    let folder = Folder::new();
    let verbs = [
        "check",
        "verify",
        "admit",
        "size",
        "gen",
        "study",
        "sim",
        "run",
        "observe",
        "reproduce",
        "reserve",
        "doctor",
        "stats",
        "top",
        "diff",
        "infer",
        "chart",
        "report",
        "export",
        "import",
        "schema",
        "completions",
        "man",
    ];
    let assert = snapbox::Assert::new().action_env("SNAPSHOTS");
    for verb in verbs {
        let ran = folder.takt(&[verb, "--help"]);
        assert_eq!(ran.status, 0, "{verb}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{verb}.txt"));
        assert.eq(ran.text(), snapbox::Data::read_from(&path, None));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help/takt.txt");
    assert.eq(folder.takt(&["--help"]).text(), snapbox::Data::read_from(&path, None));
}

#[test]
fn a_report_calls_a_simulated_log_a_simulation_and_says_how_to_get_it_again() {
    let folder = Folder::new();
    assert_eq!(folder.takt(&["sim", "good.toml", "--for", "1s", "--seed", "7", "-o", "a log.takt"]).status, 0);
    let report = folder.takt(&["report", "good.toml", "a log.takt", "-o", "x.html"]);
    assert!(report.text().contains("simulated max") && !report.text().contains("measured"), "{}", report.text());
    let json = folder.takt(&["report", "good.toml", "a log.takt", "-o", "x.html", "--json"]).json();
    assert_eq!(json["back_end"], "sim");
    assert!(json["tasks"][0]["measured"].is_null() && json["tasks"][0]["simulated"]["released"] == 100, "{json}");
    let page = fs::read_to_string(folder.path("x.html")).expect("the page");
    let commands = "takt check good.toml\n\
                    takt sim good.toml --for 1s --seed 7 -o &#39;a log.takt&#39;\n\
                    takt report good.toml &#39;a log.takt&#39; -o x.html";
    assert!(page.contains(commands), "{}", page.split("reproduce\">").last().unwrap_or_default());
    assert_eq!(folder.takt(&["report", "component.toml", "-o", "part.html"]).status, 0);
    let part = fs::read_to_string(folder.path("part.html")).expect("the page");
    assert!(
        part.contains("No simulation: component &quot;dom1&quot; cannot be simulated") && !part.contains("takt sim")
    );
    let late = folder.spawn(&["report", "late.toml", "-o", "late.html"]).wait_with_output().expect("takt ends");
    let notes = String::from_utf8_lossy(&late.stderr);
    assert!(notes.contains("takt: note: Deadlines missed (simulated): \"a\" 2 of 2."), "{notes}");
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
}

#[test]
fn a_name_in_an_error_does_not_command_the_terminal() {
    let folder = Folder::new();
    let system = "takt = 1\n[[task]]\nname = \"\\u001b[31mred\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n";
    let ran = folder.takt_with(&["check", "-"], system.as_bytes());
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("control character") && !ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
    let split = "takt = 1\n[[task]]\nname = \"two\\nlines\"\nperiod = 10\nwcet = \"1ms\"\n";
    let ran = folder.takt_with(&["check", "-"], split.as_bytes());
    let subjects = ran.stderr.lines().map(|line| line.starts_with("standard input:"));
    assert!(ran.stderr.contains("\"two\\nlines\"") && subjects.into_iter().all(|told| told), "{:?}", ran.stderr);
    let named = folder.takt(&["check", "no\nsuch"]);
    assert_eq!(named.stderr, "takt: cannot read no\\nsuch: No such file or directory (os error 2)\n");
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
    let command = command.args(["stats", "--every", "1s", "--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut stats = command.spawn().unwrap();
    let mut input = stats.stdin.take().unwrap();
    let mut lines = BufReader::new(stats.stdout.take().unwrap()).lines();
    // Half of the log, and no more for now: its reports do not wait for the rest.
    input.write_all(&log[..log.len() / 2]).unwrap();
    input.flush().unwrap();
    let mut report = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    for second in 0..40u64 {
        let report = report();
        assert_eq!(
            (&report["from_ns"], &report["tasks"][0]["released"]),
            (&(second * 1_000_000_000).into(), &1000.into())
        );
        assert_eq!(report["cpus"][0]["utilization"], 0.1);
    }
    // A reader that leaves is no error.
    drop(lines);
    let _ = input.write_all(&log[log.len() / 2..]);
    drop(input);
    assert_eq!(stats.wait().unwrap().code(), Some(0));
}
