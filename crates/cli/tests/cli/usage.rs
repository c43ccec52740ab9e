//! Bad usage and bad input of every kind; exit statuses; JSON.

use serde_json::json;

use super::folder::Folder;

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
        (&["chart", "good.takt", "--json"], 2, "--json and the chart both want standard output; give -o FILE"),
        (&["export", "good.takt", "--format", "csv", "--json"], 2, "--json and the export both want standard output"),
        (&["man", "--json"], 2, "both want standard output; give --out DIR"),
        (&["chart", "good.takt", "--from", "100s"], 2, "nothing to draw from 100s on: good.takt ends at "),
        (&["report", "good.toml", "good.takt", "--seed", "3"], 2, "good.takt is a simulation already"),
        (&["import", "bytes.toml"], 2, "it should be a JSON file"),
        (&["sim", "good.toml", "--for", "0s"], 2, "--for is zero"),
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
        (&["chart", "good.takt", "--width", "800"], 2, "--width is for pictures: add --format svg, png or pdf"),
        (
            &["chart", "good.takt", "-o", "x.png", "--width", "0"],
            2,
            "a picture is 240 (WIDTH_MIN) to 8192 (WIDTH_MAX) wide",
        ),
        (
            &["chart", "good.takt", "-o", "x.pdf", "--width", "12cm"],
            2,
            "'12cm' for '--width <N>': is no whole number; give pixels of a png, CSS pixels of an svg, points of a pdf",
        ),
        (
            &["chart", "good.takt", "-o", "x.pdf", "--width", "8193"],
            2,
            "a picture is 240 (WIDTH_MIN) to 8192 (WIDTH_MAX)",
        ),
        (
            &["chart", "good.takt", "-o", "x.jpg"],
            2,
            "a chart is text, SVG, PNG or PDF, not jpg; name it .svg, .png or .pdf",
        ),
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
        (&["check", "idle.toml"], 2, "idle.toml has no tasks, so there is nothing to schedule"),
        (&["sim", "idle.toml"], 2, "idle.toml has no tasks"),
        (&["run", "idle.toml"], 2, "idle.toml has no tasks"),
        (&["size", "idle.toml"], 2, "idle.toml has no tasks"),
        (&["report", "idle.toml"], 2, "idle.toml has no tasks"),
        (&["import", "idle.json"], 2, "tasks: no thread could be imported"),
        (
            &["check", "sparse"],
            4,
            "sparse is longer than 256MiB, the most that takt reads into memory of such a file (TEXT_MAX)",
        ),
        (&["import", "sparse"], 4, "(TEXT_MAX)"),
        (&["stats", "sparse"], 2, "this is not a takt log"),
        (
            &["observe", "sparse"],
            4,
            "sparse is longer than 4GiB, the most that takt reads into memory of such a file (TRACE_MAX)",
        ),
        (&["check", "bytes.toml"], 2, "is not text: byte 0 is no UTF-8"),
        (&["check", "unitless.toml"], 2, "unitless.toml:9:10: period 10 of task \"a\" has no unit"),
        (&["sim", "priorities.toml"], 2, "has no priority"),
        (&["admit", "good.toml", "--add", "good.takt"], 2, "is a log, and this verb wants a system file"),
        (&["stats", "good.toml"], 2, "this is not a takt log"),
        (&["stats", "empty.toml"], 2, "this is not a takt log"),
        (&["infer", "good.toml"], 2, "this is not a takt log"),
        (&["infer", "--releases", "good.toml"], 2, "good.toml:3: "),
        (&["infer", "--releases", "bad.json"], 2, "bad.json has no release; a line is RELEASE or"),
        (&["study", "-o", "good.toml"], 2, "good.toml is a file; give a folder as --output"),
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
        // Unsupported by this version.
        (
            &["run", "shared.toml", "--backend", "sched-ext"],
            3,
            "CPUs 0-1 share tasks or components, and each server has a CPU of its own here; use --backend manager, or",
        ),
        (&["run", "laxity.toml"], 3, "takt's own dispatcher cannot run it either:"),
        (&["sim", "linkless.toml"], 2, "flow \"put\" goes from \"n1\" to \"n2\", and nothing says how long that takes"),
        // names that nothing has
        (&["check", "missing.toml"], 2, "cannot read missing.toml: No such file"),
        (&["check", "good.toml/x"], 2, "cannot read good.toml/x: Not a directory"),
        (&["stats", "missing.takt"], 2, "cannot read missing.takt: No such file"),
        (&["sim", "traced.toml"], 2, "times.csv"),
        (&["verify", "good.toml", "missing"], 2, "takt verify SYSTEM CERTIFICATE expects a system file, and"),
        (&["verify", "good.toml", "good.toml"], 2, "is no certificate"),
        // input and output
        (&["check", "."], 2, "cannot read .: it is a folder"),
        (&["stats", "."], 2, "cannot read .: it is a folder"),
        (&["infer", "--releases", "."], 2, "cannot read .: it is a folder"),
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
    // Arguments of verify in the wrong order: what helps comes first, and no line of the certificate is blamed.
    assert_eq!(folder.takt(&["check", "good.toml", "--certificate", "good.proof"]).status, 0);
    let swapped = folder.takt(&["verify", "good.proof", "good.toml"]);
    let says = "takt: good.proof: this is a certificate, and no system file; \"takt verify SYSTEM CERTIFICATE\" takes";
    assert!(swapped.status == 2 && swapped.stderr.starts_with(says), "{}", swapped.stderr);
    assert_eq!(swapped.stderr.lines().count(), 2, "{}", swapped.stderr);
}

/// A verb that only writes files names them, and `top` has the numbers of `stats`.
#[test]
fn pictures_scripts_and_tables_have_an_answer_in_json() {
    let folder = Folder::new();
    let answer = |arguments: &[&str]| folder.takt(&[arguments, &["--json"]].concat()).json();
    for (arguments, file) in [
        (&["chart", "good.takt", "-o", "x.svg"][..], "x.svg"),
        (&["export", "good.takt", "--format", "csv", "-o", "x.csv"], "x.csv"),
        (&["schema", "-o", "x.json"], "x.json"),
    ] {
        assert_eq!(answer(arguments), json!({ "files": [file] }));
        assert!(folder.path(file).exists(), "{file}");
    }
    let pages = answer(&["man", "--out", "man"]);
    let pages = pages["files"].as_array().expect("pages");
    assert!(["man/takt.1", "man/takt-net-probe.1"].iter().all(|page| pages.contains(&json!(page))), "{pages:?}");
    let bash = json!({ "shell": "bash", "script": folder.takt(&["completions", "bash"]).text() });
    assert_eq!(answer(&["completions", "bash"]), bash);
    let (top, stats) = (answer(&["top", "good.takt", "--filter", "B"]), answer(&["stats", "good.takt"]));
    assert_eq!(top["tasks"].as_array().map(Vec::len), Some(1), "{top}");
    assert_eq!(top["tasks"][0]["response_ns"], stats["tasks"][1]["response_ns"]);
}

/// A process that is bound to a part of the machine is told how to get the rest.
#[test]
fn a_bound_process_is_told_how_to_get_the_other_cpus() {
    let folder = Folder::new();
    let online = takt_linux::machine().cpus_online.len();
    let own = takt_linux::sched::affinity();
    if online < 2 {
        println!("skipped: one CPU");
        return;
    }
    for strategy in ["edf", "rm", "muf"] {
        let node = format!("node = [{{ name = \"n\", cpus = {online}, strategy = \"{strategy}\" }}]\n");
        let task = "task = [{ name = \"a\", period = \"1s\", wcet = \"1ms\" }]\n";
        std::fs::write(folder.path("own.toml"), format!("takt = 1\n{node}{task}")).unwrap();
        let output = std::process::Command::new("taskset")
            .args(["-c", &own[0].to_string(), env!("CARGO_BIN_EXE_takt"), "run", "own.toml", "--for", "1ms"])
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{strategy}: {said}");
        assert!(said.contains("this process may use 1; start takt without taskset"), "{strategy}: {said}");
    }
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
        (&["sim", "crowded.toml"], 0),
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
        (&["run", "component.toml", "--best-effort", "--for", "50ms"], 0),
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
