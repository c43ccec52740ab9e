//! `takt gen` and `takt study` from outside: what they write, refuse, and that they always write the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn takt(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).current_dir(folder).output().expect("takt starts")
}

fn printed(folder: &Path, arguments: &[&str]) -> String {
    let ran = takt(folder, arguments);
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

#[test]
fn gen_writes_valid_systems_for_all_options() {
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
        ("--grain 1ms --tasks 200 --utilization 0.1", 2, "set 0: its tasks exceed utilization 0.1 with a wcet of 1ms"),
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

/// All files of a study but its journal. The journal's order depends on the order of finished
/// chunks.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let kept = entries.filter(|path| name(path) != "journal");
    kept.map(|path| (name(&path), fs::read(&path).expect("a file"))).collect()
}

const STUDY: &str =
    "study --cpus 1,2 --tasks 6 --utilization 0.4..0.8 --step 0.2 --sets 600 --strategy edf,dm --per-set --seed 3";

fn study(folder: &Path, out: &str, more: &str) -> String {
    let words = STUDY.split(' ').chain(["-o", out]).chain(more.split_whitespace());
    printed(folder, &words.collect::<Vec<_>>())
}

#[test]
fn a_study_is_the_same_for_any_number_of_threads_and_wherever_it_was_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let answer = study(folder, "one", "--threads 1");
    let whole = files(&folder.join("one"));
    let wanted = "results.csv results.parquet sets.csv sets.parquet weighted.csv compare.csv index.html study.toml";
    for wanted in wanted.split(' ') {
        assert!(whole.contains_key(wanted), "no {wanted}: {:?}", whole.keys());
    }
    assert!(whole.contains_key("acceptance-2-cpus-6-tasks.svg"));
    assert_eq!(study(folder, "three", "--threads 3").replace("three/", "one/"), answer);
    assert_eq!(files(&folder.join("three")), whole);
    let journal = fs::read(folder.join("three/journal")).expect("a journal");
    for share in [0, 1, 35, 99, 100] {
        fs::create_dir_all(folder.join("cut")).expect("a folder");
        fs::write(folder.join("cut/study.toml"), &whole["study.toml"]).expect("a file");
        fs::write(folder.join("cut/journal"), &journal[..journal.len() * share / 100]).expect("a file");
        study(folder, "cut", "");
        assert_eq!(files(&folder.join("cut")), whole, "cut at {share} %");
        fs::remove_dir_all(folder.join("cut")).expect("a folder");
    }
}

#[test]
fn a_study_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    study(folder, "whole", "--sets 4000");
    let mut child = Command::new(env!("CARGO_BIN_EXE_takt"))
        .args(STUDY.split(' ').chain(["--sets", "4000", "-o", "killed"]))
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("takt starts");
    // Killed after its first chunk, or done before that was seen: both end alike.
    let written = || fs::metadata(folder.join("killed/journal")).is_ok_and(|journal| journal.len() > 0);
    while !written() && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    study(folder, "killed", "--sets 4000");
    assert_eq!(files(&folder.join("killed")), files(&folder.join("whole")));
    // Another study does not mix with it.
    let other = takt(folder, &["study", "-o", "killed"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("holds another study"));
    printed(folder, &["study", "--sets", "10", "-o", "killed", "--restart"]);
}

/// The sets of a study are those of `takt gen`, and its verdicts those of `takt check`.
#[test]
fn a_study_says_of_a_set_what_check_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let options = ["--deadlines", "0.8..1", "--seed", "4"];
    for (cpus, load, total) in [("1", "0.8", "0.8"), ("4", "0.45", "1.8")] {
        let words =
            ["study", "--cpus", cpus, "--tasks", "8", "--utilization", load, "--sets", "6", "--per-set", "-o", cpus];
        printed(folder, &words.iter().chain(&options).copied().collect::<Vec<_>>());
        let sets = fs::read_to_string(folder.join(cpus).join("sets.csv")).expect("a table");
        let mut lines = sets.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().expect("a head");
        for row in lines {
            let words =
                ["gen", "--cpus", cpus, "--tasks", "8", "--utilization", total, "--set", row[3], "-o", "set.toml"];
            printed(folder, &words.iter().chain(&options).copied().collect::<Vec<_>>());
            for (name, verdict) in head.iter().zip(&row).skip(5) {
                let name = name.trim_start_matches("edf/");
                if name == "any" {
                    continue;
                }
                let ran = takt(folder, &["check", "set.toml", "--test", name, "--json"]);
                let json: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
                let own = json["tests"].as_array().and_then(|tests| tests.iter().find(|test| test["test"] == name));
                let said = match own.and_then(|test| test["verdict"].as_str()) {
                    Some("yes") => "1",
                    Some("no") => "-1",
                    _ => "0",
                };
                assert_eq!(said, *verdict, "{cpus} CPUs, set {}: {name}\n{json}", row[3]);
            }
        }
    }
}

#[test]
fn every_set_of_utilization_1_is_schedulable_under_edf() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = "study --utilization 1..1 --tasks 2,20 --sets 400 --strategy edf --tests qpa --per-set -o out";
    printed(folder.path(), &options.split(' ').collect::<Vec<_>>());
    let results = fs::read_to_string(folder.path().join("out/results.csv")).expect("a table");
    let rows: Vec<&str> = results.lines().skip(1).filter(|row| row.contains(",qpa,")).collect();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.contains(",400,400,0,1,")), "{results}");
}

#[test]
fn a_study_leaves_out_sets_that_cannot_keep_to_their_utilization_and_counts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = "study --tasks 4 --utilization 0.9..0.9 --sets 200 --periods uniform --range 3ns..9ns --grain 1ns \
                   --tests qpa --per-set --json -o out";
    let json: Value =
        serde_json::from_str(&printed(folder.path(), &options.split_whitespace().collect::<Vec<_>>())).expect("JSON");
    let refused = json["refused"].as_u64().expect("a number");
    assert!((1..200).contains(&refused), "{json}");
    assert_eq!(json["series"][0]["sets"], 200 - refused);
    let sets = fs::read_to_string(folder.path().join("out/sets.csv")).expect("a table");
    assert_eq!(sets.lines().count() as u64 - 1, 200 - refused);
}

#[test]
fn a_study_takes_its_options_from_a_file_and_says_where_that_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let text =
        "# a sweep\nsets = 20\ncpus = [1, 2]\nutilization = \"0.5..0.6\"\nlimits = [\"0..0.9\"]\nper-set = true\n";
    fs::write(folder.join("sweep.toml"), text).expect("a file");
    let json: Value =
        serde_json::from_str(&printed(folder, &["study", "sweep.toml", "--sets", "30", "-o", "out", "--json"]))
            .expect("JSON");
    assert_eq!((&json["points"], &json["sets"]), (&6.into(), &180.into()), "{json}");
    assert!(json["findings"].as_array().is_some_and(Vec::is_empty) && json["series"][0]["weighted"].is_f64());
    assert!(folder.join("out/sets.parquet").exists());
    // The study wrote such a file.
    printed(folder, &["study", "out/study.toml", "-o", "again", "--per-set"]);
    assert_eq!(files(&folder.join("again")), files(&folder.join("out")));
    for (text, wanted) in [
        ("sets = 20\nsats = 3\n", "bad.toml:2:1: unknown key \"sats\""),
        ("sets = 20\ncpus = \"x\"\n", "bad.toml:2:8: invalid value 'x' for '--cpus <N,...>'"),
        ("sets = 20\n\ntests = [\"gfb\", \"nosuch\"]\n", "bad.toml:3:9: "),
        ("output = \"x\"\n", "bad.toml:1:1: \"output\" belongs on the command line"),
        ("sets = \n", "bad.toml:1:"),
        ("[sets]\n", "is a text, a number, a flag or a list"),
    ] {
        fs::write(folder.join("bad.toml"), text).expect("a file");
        let ran = takt(folder, &["study", "bad.toml", "-o", "bad"]);
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.code() == Some(2) && error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn a_study_refuses_what_makes_no_sense() {
    let folder = tempfile::tempdir().expect("a folder");
    for (options, wanted) in [
        ("--cpus 0", "0 is no number from 1 on"),
        ("--cpus 2,2", "has 2 twice"),
        ("--tests gfb", "--tests gfb: this test does not apply to the chosen strategies and numbers of CPUs"),
        ("--tests rm/qpa", "--tests qpa: this test does not apply"),
        ("--strategy fifo", "fifo is none of edf, rm, dm"),
        ("--utilization 1..0.5", "has the larger end first"),
        ("--utilization 0.0000001", "at most six decimals"),
        ("--cpus 8 --tasks 4 --utilization 0.9", "8 CPUs, 4 tasks, 0.9 per CPU: utilization 7.2"),
        ("--sets 1000000000", "study parts of it"),
        ("--range 1ns..2ns", "no multiple of the grain"),
    ] {
        let words: Vec<&str> = ["study", "-o", "out"].into_iter().chain(options.split(' ')).collect();
        let ran = takt(folder.path(), &words);
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.code() == Some(2) && error.contains(wanted), "{options}: {error}");
        assert!(!folder.path().join("out/journal").exists());
    }
}

/// Reads the files with another reader of Parquet. Skipped if TAKT_PYTHON has no pyarrow (CI has).
#[test]
fn parquet_files_hold_what_the_csv_files_hold() {
    const SCRIPT: &str = "import csv, sys\nimport pyarrow.parquet as p\nfor name in sys.argv[1:]:\n    \
        rows = [[str(v) for v in row.values()] for row in p.read_table(name + '.parquet').to_pylist()]\n    \
        other = list(csv.reader(open(name + '.csv')))[1:]\n    \
        assert len(rows) == len(other) > 0, name\n    \
        same = lambda a, b: a == b or float(a) == float(b)\n    \
        assert all(same(a, b) for x, y in zip(rows, other) for a, b in zip(x, y, strict=True)), name\n";
    let python = std::env::var("TAKT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let ready =
        Command::new(&python).args(["-c", "import pyarrow.parquet"]).output().is_ok_and(|ran| ran.status.success());
    if !ready {
        assert!(std::env::var_os("TAKT_DEMAND_PARQUET").is_none(), "{python} has no pyarrow");
        println!("skipped: {python} has no pyarrow");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    study(folder.path(), "out", "--sets 300");
    let ran = Command::new(python)
        .args(["-c", SCRIPT, "results", "sets", "weighted", "compare"])
        .current_dir(folder.path().join("out"))
        .output()
        .expect("python starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
