//! Experiments of papers in virtual time. They need nothing of the machine, and give the same bytes each time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use takt_model::Span;

use crate::reproduced::{column, reproduce, takt};

mod reproduced;

/// An experiment in virtual time with its page, which needs nothing of the machine.
fn simulate(name: &str, more: &[&str]) -> (Value, Vec<u8>) {
    let (answer, folder) = reproduce(name, more).expect("it needs nothing of the machine");
    let page = fs::read(folder.path().join("out/index.html")).expect("a page");
    assert!(!String::from_utf8_lossy(&page).contains("sudo"), "{name}: a simulation needs no root");
    (answer, page)
}

#[test]
fn experiments_are_listed_and_others_refused() {
    let list = takt(&["reproduce", "--list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let all = list["experiments"].as_array().expect("experiments");
    assert!(all.iter().all(|one| ["paper", "shows", "what", "needs"].iter().all(|key| one[key].is_string())));
    let text = takt(&["reproduce", "--list"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(all.iter().all(|one| text.contains(one["name"].as_str().expect("a name"))), "{text}");
    for (arguments, says) in [
        (&["reproduce"][..], "<NAME>"),
        (&["reproduce", "sdd-table9"], "invalid value"),
        (&["reproduce", "sdd-table1", "--for", "0s"], "is zero"),
        (&["reproduce", "sdd-table1", "--repeat", "0"], "--repeat"),
        (&["reproduce", "kokyu", "--repeat", "2"], "--repeat: kokyu measures each thing once; leave it out"),
        (&["reproduce", "csa-fig7", "--repeat", "2"], "--repeat: csa-fig7 measures each thing once; leave it out"),
        (&["reproduce", "csa-tables", "--repeat", "2"], "--repeat: csa-tables measures each thing once; leave it out"),
        (
            &["reproduce", "csa-tables", "--live"],
            "--live: csa-tables has one form; leave it out, or choose one of csa-fig4",
        ),
        (&["reproduce", "hedf-fig6", "--live", "--for", "61s"], "hedf-fig6 measures for 60s at the most"),
        (&["reproduce", "kokyu", "--for", "601s"], "--for 601s: kokyu measures for 600s at the most"),
    ] {
        let ran = takt(arguments);
        let complaint = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(2) && complaint.contains(says), "{arguments:?}: {complaint}");
    }
}

/// Simulated experiments give the same bytes each time.
#[test]
fn servers_lend_and_reclaim_as_the_paper_says() {
    let mut pages = Vec::new();
    for name in ["csa-fig4", "csa-fig6", "csa-fig7", "csa-tables", "csa-open", "csa-fig5", "csa-fig5"] {
        let (answer, page) = simulate(name, &["--short", "--for", "20s"]);
        let claims = answer["claims"].as_array().expect("claims");
        let undecided = |claim: &Value| claim["holds"].is_null() && claim["name"] == "much_overhead_gains_more";
        let as_expected = |claim: &Value| match claim["name"].as_str() {
            // Miss ratios of the paper's own tasks, which are not public. Ours differ.
            Some("crps_misses_nothing_with_much_overhead" | "crps_misses_far_less_with_little_overhead") => {
                claim["holds"] != true
            }
            _ => claim["holds"] == true || undecided(claim),
        };
        assert!(claims.iter().all(as_expected), "{name}: {claims:?}");
        pages.push(page);
    }
    assert_eq!(pages[5], pages[6], "csa-fig5");
    let (answer, _) = simulate("csa-fig5", &["--short", "--for", "1s"]);
    assert!(answer["claims"][0]["holds"].is_null(), "a second decides nothing: {answer}");
}

/// Experiments in virtual time give the same bytes each time, and a short run refutes nothing.
#[test]
fn messages_are_scheduled_as_the_paper_says() {
    for name in ["hedf-ki", "hedf-fig4", "hedf-fig5", "hedf-fig6"] {
        let (answer, page) = simulate(name, &["--short"]);
        let claims = answer["claims"].as_array().expect("claims");
        assert!(claims.len() >= 3 && claims.iter().all(|claim| claim["holds"] != false), "{name}: {claims:?}");
        assert_eq!(page, simulate(name, &["--short"]).1, "{name}");
    }
    // The systems of the paper are files that other verbs read.
    let (_, folder) = reproduce("hedf-ki", &["--short", "--for", "1s"]).expect("it needs nothing of the machine");
    for file in ["one-hop.toml", "one-hop-delayed.toml", "two-hops-delayed.toml", "requests-sized.toml"] {
        let file = folder.path().join("out").join(file);
        let checked = takt(&["check", file.to_str().expect("a path")]);
        assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn messages_pass_several_switches_within_their_bounds() {
    let run = || simulate("hedf-switches", &["--for", "20s"]);
    let ((answer, first), (_, second)) = (run(), run());
    assert_eq!(first, second);
    let claims: Vec<_> = answer["claims"].as_array().expect("claims").iter().collect();
    assert_eq!((&claims[0]["name"], &claims[0]["holds"]), (&"bounds_hold".into(), &true.into()), "{claims:?}");
    let table = &answer["tables"][0];
    for control in ["whole links", "shares"] {
        let of = |what: &str| column(table, &format!("{what}, {control}"), "simulated");
        let longer = |values: Vec<Option<f64>>| values.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(longer(of("bound")) && longer(of("longest")), "each switch adds to the delays: {table}");
    }
}

#[test]
fn three_ways_to_learn_of_messages_stand_beside_each_other() {
    let run = || simulate("hedf-predictability", &["--short", "--for", "1s"]);
    let ((answer, first), (_, second)) = (run(), run());
    assert_eq!(first, second);
    let claims = answer["claims"].as_array().expect("claims");
    assert!(claims.len() == 9 && claims.iter().all(|claim| claim["holds"].is_null()), "a second decides nothing");
    let table = &answer["tables"][8];
    let [own, interrupt] = ["partial-EDF", "interrupt"].map(|kind| column(table, kind, "simulated"));
    assert_eq!((table["title"].as_str(), own.len()), (Some("From the arrival of a message to its job"), 7));
    // A message waits half a period of the receiving task on average, or for its interrupt.
    assert!(own.iter().all(|ms| ms.is_some_and(|ms| ms > 2.0)), "{own:?}");
    assert!(interrupt.iter().all(|ms| ms.is_some_and(|ms| ms < 0.5)), "{interrupt:?}");
}

/// The tables of simulated experiments have the same bytes on every machine. `SNAPSHOTS=overwrite` writes their CRC-32
/// in tests/reproduced/tables.txt anew.
#[test]
fn tables_are_the_same_on_every_machine() {
    let list = takt(&["reproduce", "--list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let mut sums = String::new();
    for one in list["experiments"].as_array().expect("experiments") {
        let [name, needs] = ["name", "needs"].map(|key| one[key].as_str().expect("a text"));
        if !needs.starts_with("nothing: ") {
            continue;
        }
        let (answer, folder) = reproduce(name, &["--short"]).expect("it needs nothing of the machine");
        let files = answer["files"].as_array().expect("files").iter().filter_map(Value::as_str);
        for file in files.filter(|file| file.ends_with(".csv")) {
            let bytes = fs::read(folder.path().join("out").join(file)).expect("a table");
            sums += &format!("{:08x} {name} {file}\n", crc32fast::hash(&bytes));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reproduced/tables.txt");
    snapbox::Assert::new().action_env("SNAPSHOTS").eq(sums, snapbox::Data::read_from(&path, None));
}

#[test]
fn a_signal_ends_a_simulation_however_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
    command.args(["reproduce", "kokyu", "--for", "10min", "--json", "--out"]).arg(&out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("takt starts");
    // Signals are caught once the folder is there.
    while !out.exists() && child.try_wait().expect("a child").is_none() {
        takt_linux::clock::pause(Span::from_ms(5));
    }
    takt_linux::process::terminate(&mut child);
    let ran = child.wait_with_output().expect("takt ends");
    assert_eq!(ran.status.code(), Some(1), "{}", String::from_utf8_lossy(&ran.stderr));
    let answer: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!((&answer["interrupted"], &answer["holds"]), (&Value::from("SIGTERM"), &Value::Null));
}
