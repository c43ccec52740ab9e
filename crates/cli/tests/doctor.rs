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
fn what_was_saved_is_judged_as_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.txt");
    let file = file.to_str().unwrap();
    let here = takt(&["doctor", "--json", "--save", file]);
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
fn what_is_no_snapshot_is_told_with_its_place() {
    let said = takt(&["doctor", "--from", "examples/quickstart.toml"]);
    assert_eq!(said.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&said.stderr).starts_with("examples/quickstart.toml: this is no snapshot of a machine")
    );
    assert_eq!(takt(&["doctor", "--from", "missing.txt"]).status.code(), Some(4));
    assert_eq!(takt(&["doctor", "--explain", "nothing"]).status.code(), Some(2));
}

/// Every finding has a section in the manual, where the command points.
#[test]
fn every_finding_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/verbs/doctor.md")).unwrap();
    let answer: Value =
        serde_json::from_slice(&takt(&["doctor", "--from", "examples/machines/laptop.txt", "--json"]).stdout).unwrap();
    for finding in answer["findings"].as_array().unwrap() {
        let name = finding["name"].as_str().unwrap();
        assert!(
            page.lines().any(|line| line == format!("### {name}")),
            "docs/verbs/doctor.md has no section \"### {name}\""
        );
    }
}
