//! `takt gen` and `takt study` from outside: what they write, refuse, and that they always write the same.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn takt(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).current_dir(folder).output().expect("takt starts")
}

/// What a command prints, which has to end well.
fn printed(folder: &Path, arguments: &[&str]) -> String {
    let ran = takt(folder, arguments);
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

#[test]
fn what_gen_writes_is_a_system_whatever_the_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for options in [
        "--tasks 1 --utilization 1",
        "--tasks 40 --utilization 7.9 --cpus 8 --strategy mlf",
        "--method uunifast-discard --deadlines 0..2 --periods uniform",
        "--method cfs --limits 0.01..0.5 --tasks 30 --utilization 3 --cpus 4 --partitioned",
        "--periods divisors --hyperperiod 60ms --range 1ms..60ms --strategy fp",
        "--periods harmonic --strategy rms+mlf --grain 1ns",
        "--periods automotive --grain 500us",
        "--profile automotive --cpus 3 --rpm 9000",
        "--profile arinc --partitions 9",
    ] {
        let options: Vec<&str> = ["gen", "-o", "set.toml"].into_iter().chain(options.split(' ')).collect();
        printed(folder, &options);
        let ran = takt(folder, &["check", "set.toml"]);
        // Budgets of "auto" are for size.
        let size = options.contains(&"arinc") && ran.status.code() == Some(2);
        assert!(matches!(ran.status.code(), Some(0 | 1)) || size, "{options:?}: {ran:?}");
    }
}

#[test]
fn gen_is_the_same_by_seed_and_number_and_counts_what_it_wrote() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let json: Value = serde_json::from_str(&printed(
        folder,
        &["gen", "--seed", "5", "--count", "3", "--set", "7", "-o", "sets", "--json"],
    ))
    .expect("JSON");
    assert_eq!(
        (&json["seed"], &json["utilization_asked"], json["sets"].as_array().map(Vec::len)),
        (&5.into(), &0.7.into(), Some(3))
    );
    assert_eq!((&json["sets"][1]["set"], &json["sets"][1]["file"]), (&8.into(), &"sets/set-8.toml".into()));
    let alone = printed(folder, &["gen", "--seed", "5", "--set", "8"]);
    assert_eq!(fs::read_to_string(folder.join("sets/set-8.toml")).expect("a file"), alone);
    assert_ne!(printed(folder, &["gen", "--seed", "6", "--set", "8"]), alone);
}

#[test]
fn gen_refuses_what_it_cannot_make_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    for (options, status, wanted) in [
        ("--utilization 20", 2, "takt: utilization 20: it must be above 0 and at most 10 here"),
        ("--utilization nan", 2, "utilization NaN"),
        ("--utilization -1", 2, "utilization -1"),
        ("--tasks 0", 2, "0 tasks: a set has 1 to 10000"),
        ("--limits 0..0.5,0..1", 2, "2 limits for 10 tasks"),
        ("--limits 0.5..x", 2, "is no range of numbers like 0.5..1"),
        ("--range 1s..1ms", 2, "the shorter one first"),
        ("--grain 5s", 2, "no multiple of the grain 5s"),
        ("--cpus 0 --utilization 1", 2, "0 CPUs: a node has 1 to"),
        ("--count 2", 2, "give -o FOLDER"),
        ("--json", 2, "give -o FILE"),
        ("--profile arinc --cpus 2", 2, "not with this --profile"),
        ("--profile automotive --strategy edf", 2, "not with this --profile"),
        ("--profile automotive --utilization 0.000001", 2, "too little for a single runnable"),
        ("--method uunifast-discard --tasks 40 --utilization 39.9", 2, "randfixedsum and cfs discard none"),
        ("-o /nowhere/set.toml", 4, "its folder does not exist"),
    ] {
        let arguments: Vec<&str> = std::iter::once("gen").chain(options.split(' ')).collect();
        let ran = takt(folder.path(), &arguments);
        let text = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(status), "{options}: {text}");
        assert!(text.contains(wanted), "{options}: {text}");
        assert!(ran.stdout.is_empty());
    }
}
