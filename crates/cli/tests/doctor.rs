//! `takt doctor`: machines that we do not have, judged from their texts; and this one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli stands two folders deep").to_owned()
}

fn takt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).current_dir(root()).output().expect("the command starts")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// `SNAPSHOTS=overwrite` writes the texts of tests/doctor anew.
#[test]
fn machines_are_judged_as_they_were() {
    let assert = snapbox::Assert::new().action_env("SNAPSHOTS");
    for name in ["laptop", "controller", "server", "container"] {
        let file = format!("examples/machines/{name}.txt");
        let short = takt(&["doctor", "--from", &file]);
        let all = takt(&["doctor", "--from", &file, "--all"]);
        assert_eq!(short.status.code(), Some(1), "{name}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/doctor/{name}.txt"));
        assert.eq(text(&short) + "\n" + &text(&all), snapbox::Data::read_from(&path, None));
    }
}

#[test]
fn a_saved_snapshot_gets_the_same_judgement_as_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.txt");
    let file = file.to_str().unwrap();
    let here = takt(&["doctor", "--quick", "--json", "--save", file]);
    let there = takt(&["doctor", "--json", "--from", file]);
    assert_eq!(text(&here), text(&there));
    assert_eq!(here.status.code(), there.status.code());
    let answer: Value = serde_json::from_slice(&here.stdout).unwrap();
    let names: Vec<&str> = answer["findings"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"preemption") && names.contains(&"fair-server"));
    let spoilt = answer["findings"].as_array().unwrap().iter().any(|finding| finding["state"] == "problem");
    assert!(!spoilt || answer["spoils"] == true);
}

#[test]
fn an_invalid_snapshot_is_refused_with_its_line_number() {
    let said = takt(&["doctor", "--from", "examples/quickstart.toml"]);
    assert_eq!(said.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&said.stderr).starts_with("examples/quickstart.toml: this is no snapshot of a machine")
    );
    assert_eq!(takt(&["doctor", "--from", "missing.txt"]).status.code(), Some(2));
    assert_eq!(takt(&["doctor", "--explain", "nothing"]).status.code(), Some(2));
}

const SYSTEM: &str = r#"# mine
takt = 1
[[node]]
name = "here"
# what I measured by hand
costs = { interrupt = "1us" } # all of it
strategy = "dm"

[[task]]
name = "a"
period = "1s"
wcet = "100ms"
"#;

/// Measured, written, charged by `check` and by `sim`.
#[test]
fn measured_costs_go_into_the_file_and_are_charged() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (before, after) = (path("before.toml"), path("after.toml"));
    std::fs::write(&before, SYSTEM).unwrap();
    let measure = |extra: &[&str]| takt(&[&["doctor", "--for", "300ms", "--charge", "p50"], extra].concat());
    // A machine that pauses through the whole probe leaves no cost to measure.
    let keys = ["switch_ns", "release_ns", "latency_ns"];
    let mut tries = 0;
    let answer = loop {
        let _ = std::fs::remove_file(&after);
        let ran = measure(&[&before, "-o", &after, "--json"]);
        if ran.status.code() == Some(3) {
            println!("skipped: {}", String::from_utf8_lossy(&ran.stderr));
            assert!(!Path::new(&after).exists());
            return;
        }
        let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
        tries += 1;
        if tries == 20 || keys.iter().all(|key| answer["probe"]["costs"][key].is_u64()) {
            break answer;
        }
    };
    let costs = answer["probe"]["costs"].as_object().unwrap();
    for key in keys {
        assert!(costs[key].as_u64().unwrap() > 0, "{key}");
    }
    let text = std::fs::read_to_string(&after).unwrap();
    let head =
        "# mine\ntakt = 1\n[[node]]\nname = \"here\"\n# what I measured by hand\n# takt doctor: the median of the";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("costs = { interrupt = \"1us\", ") && text.contains(" # all of it\nstrategy"), "{text}");
    assert_eq!(std::fs::read_to_string(&before).unwrap(), SYSTEM, "what is read stays");
    // Charged by the analysis and by the simulation.
    let told = |verb: &[&str], file: &str| -> Value {
        serde_json::from_slice(&takt(&[verb, &[file, "--json"]].concat()).stdout).unwrap()
    };
    let bound = |file: &str| {
        let report = told(&["check"], file);
        let tests = report["tests"].as_array().unwrap();
        tests.iter().find_map(|test| test["tasks"][0]["wcrt_ns"].as_u64()).expect("rta bounds it")
    };
    let of = |key: &str| costs[key].as_u64().unwrap();
    assert!(bound(&after) >= bound(&before) + of("switch_ns") + of("release_ns"));
    let seen = |file: &str| told(&["sim", "--for", "10s"], file)["tasks"][0]["response_ns"]["max"].as_u64().unwrap();
    assert!(seen(&after) > seen(&before) && seen(&after) <= bound(&after));
    // Once more, in place: what it wrote is replaced.
    let lines = |text: &str| text.matches("# takt doctor: the m").count();
    let mut tries = 0;
    let again = loop {
        assert!(measure(&["-o", &after]).status.code().is_some_and(|status| status < 2));
        let again = std::fs::read_to_string(&after).unwrap();
        tries += 1;
        if tries == 20 || lines(&again) == 2 {
            break again;
        }
    };
    assert_eq!((lines(&text), lines(&again)), (2, 2), "{again}");
    // A file that is not there is made.
    let new = path("new.toml");
    assert!(measure(&["-o", &new]).status.code().is_some_and(|status| status < 2));
    let task = "\n[[task]]\nname = \"t\"\nperiod = \"1s\"\nwcet = \"1ms\"\n";
    std::fs::write(&new, std::fs::read_to_string(&new).unwrap() + task).unwrap();
    assert!(takt(&["check", &new]).status.success());
}

#[test]
fn invalid_probe_arguments_are_refused_before_the_probe() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    let file = file.to_str().unwrap();
    for arguments in [
        &["--quick", "-o", file][..],
        &["--from", "examples/machines/laptop.txt", "-o", file],
        &["--for", "0s"],
        &["--json", "-o", "-"],
        &["examples/quickstart.toml"],
        &["--wss", "3"],
        &["-o", file, "--node", "n", "--for", "soon"],
    ] {
        let ran = takt(&[&["doctor"], arguments].concat());
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        assert!(!Path::new(file).exists());
    }
}

/// Every finding has a section in the manual, where the command points.
#[test]
fn every_finding_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/reference/verbs/doctor.md")).unwrap();
    let answer: Value =
        serde_json::from_slice(&takt(&["doctor", "--from", "examples/machines/laptop.txt", "--json"]).stdout).unwrap();
    for finding in answer["findings"].as_array().unwrap() {
        let name = finding["name"].as_str().unwrap();
        assert!(
            page.lines().any(|line| line == format!("### {name}")),
            "docs/reference/verbs/doctor.md has no section \"### {name}\""
        );
    }
}
