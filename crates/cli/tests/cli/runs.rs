//! Simulations and runs, and reports of them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::folder::{CROWDED, Folder, GOOD};

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

/// The first run with a miss can be repeated: its command writes its log.
#[test]
fn the_first_of_many_runs_that_misses_is_named() {
    let folder = Folder::new();
    let task = "takt = 1\n[[task]]\nname = \"t\"\nperiod = \"20ms\"\ndeadline = \"9ms\"\nwcet = \"9ms\"\n\
                exec = { uniform = [\"1ms\", \"10ms\"] }\n";
    fs::write(folder.path("some.toml"), task).expect("a file");
    let runs = ["sim", "some.toml", "--for", "20ms", "--seed", "3", "--runs", "50"];
    let first = folder.takt(&[&runs[..], &["--json"]].concat()).json()["first_missed"].clone();
    let seed = first["seed"].as_u64().expect("some run misses");
    let command = format!("takt sim some.toml --for 20ms --seed {seed} -o missed.takt");
    assert_eq!(first["command"].as_str(), Some(command.as_str()));
    assert!(folder.takt(&runs).text().ends_with(&format!("the first run with a miss: {command}\n")));
    for at in 3..=seed {
        let one = folder.takt(&["sim", "some.toml", "--for", "20ms", "--seed", &at.to_string(), "--json"]).json();
        assert_eq!(one["tasks"][0]["missed"], u64::from(at == seed), "{at}");
    }
    assert_eq!(folder.takt(&["sim", "good.toml", "--runs", "2", "--json"]).json()["first_missed"], Value::Null);
}

/// A short run of servers proves nothing and says so. The default run is long enough for the periods of the servers.
#[test]
fn a_run_lasts_two_hyperperiods_of_servers_or_warns() {
    let folder = Folder::new();
    let servers = "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"rm\"\n\
                   [[component]]\nname = \"a\"\nserver = \"ptps\"\nperiod = \"5ms\"\nbudget = \"1ms\"\n\
                   [[component]]\nname = \"b\"\nserver = \"ptps\"\nperiod = \"11ms\"\nbudget = \"3ms\"\n\
                   [[task]]\nname = \"t\"\ncomponent = \"b\"\nperiod = \"10ms\"\nwcet = \"2ms\"\ndeadline = \"9ms\"\n";
    fs::write(folder.path("servers.toml"), servers).expect("a file");
    let last = |arguments: &[&str]| folder.takt(arguments).text().lines().last().map(str::to_owned);
    assert_eq!(last(&["sim", "servers.toml"]).as_deref(), Some("over 220ms, 4 deadlines missed"));
    let short = "over 20ms, no deadline missed; that proves nothing by itself: takt check proves";
    assert_eq!(last(&["sim", "servers.toml", "--for", "20ms"]).as_deref(), Some(short));
}

/// An instance whose message is lost never ends, so that no job of it is late.
#[test]
fn messages_that_never_arrive_are_told_and_fail() {
    let folder = Folder::new();
    let store = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/store.toml")).expect("a file");
    fs::write(folder.path("lost.toml"), store.replace("[[network]]\n", "[[network]]\nloss = 1.0\n")).expect("a file");
    let sim = ["sim", "lost.toml", "--for", "1s", "-o", "lost.takt"];
    let ran = folder.takt(&sim);
    // Messages of time synchronisation are lost, too. They do not count.
    let last = Some("over 1s, no deadline missed, 150 messages dropped or lost");
    assert_eq!((ran.status, ran.text().lines().last()), (0, last));
    assert_eq!(folder.takt(&[&sim[..], &["--fail-on-miss"]].concat()).status, 1);
    let read = folder.takt(&["stats", "lost.takt", "--fail-on-miss"]);
    assert_eq!((read.status, read.text().lines().last()), (1, last));
    let runs = folder.takt(&["sim", "lost.toml", "--for", "1s", "--runs", "2", "--fail-on-miss", "--json"]);
    assert_eq!((runs.status, &runs.json()["first_missed"]), (1, &Value::Null));
}

#[test]
fn an_answer_about_one_node_omits_the_other_nodes() {
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
fn a_placement_that_is_not_proven_is_simulated_and_warned_of() {
    let folder = Folder::new();
    let muf = CROWDED.replace("cpus = 2", "cpus = 2\nstrategy = \"muf\"");
    fs::write(folder.path("muf.toml"), &muf).expect("a file");
    let ran = folder.takt(&["sim", "muf.toml", "--for", "100ms", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let two_of_them =
        ran.stderr.contains("warning: the placement of node \"board\" is not proven: cpus [0]: rta at 120 %");
    assert!(two_of_them, "{}", ran.stderr);
    let common = "strategy \"muf\" goes by criticality, and all tasks of node \"board\" are critical";
    assert!(ran.stderr.contains(common), "{}", ran.stderr);
    assert!(ran.json()["cpus"].as_array().is_some_and(|cpus| cpus.iter().all(|cpu| cpu["busy_ns"] != 0)));
    // Nobody is sent to a placement that takt's own dispatcher sends back.
    let ran = folder.takt(&["check", "muf.toml"]);
    assert!(!ran.text().contains("global placement"), "{}", ran.text());
    assert!(ran.text().contains(&format!("warning: {common}")), "{}", ran.text());
    let mixed = muf.replacen("wcet", "criticality = \"low\"\nwcet", 1);
    fs::write(folder.path("mixed.toml"), mixed).expect("a file");
    assert!(!folder.takt(&["check", "mixed.toml"]).text().contains("goes by criticality"));
    // The file states the criticality of all tasks.
    let stated = muf.replace("wcet", "criticality = \"high\"\nwcet");
    fs::write(folder.path("stated.toml"), &stated).expect("a file");
    assert!(!folder.takt(&["check", "stated.toml"]).text().contains("goes by criticality"));
    fs::write(folder.path("partly.toml"), stated.replacen("criticality = \"high\"\n", "", 1)).expect("a file");
    assert!(folder.takt(&["check", "partly.toml"]).text().contains("goes by criticality"));
    // The same within a component.
    let server = "[[component]]\nname = \"c\"\nserver = \"ptps\"\nperiod = \"5ms\"\nbudget = \"2ms\"\n";
    let task =
        |name: &str| format!("[[task]]\nname = \"{name}\"\ncomponent = \"c\"\nperiod = \"50ms\"\nwcet = \"1ms\"\n");
    let within = format!("takt = 1\n{server}strategy = \"muf\"\n{}{}", task("a"), task("b"));
    fs::write(folder.path("within.toml"), within).expect("a file");
    let said = folder.takt(&["check", "within.toml"]).text();
    assert!(said.contains("strategy \"muf\" goes by criticality, and all tasks of component \"c\""), "{said}");
    // Under edf the kernel does place globally.
    assert!(folder.takt(&["check", "crowded.toml"]).text().contains("or global placement"));
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
    let open = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/partitions.toml");
    // What is "auto" is simulated as `sim` does.
    let open = open.to_str().expect("a name");
    let json = folder.takt(&["report", open, "--for", "1s", "-o", "part.html", "--json"]).json();
    let sim = folder.takt(&["sim", open, "--for", "1s", "--json"]).json();
    assert!(sim["tasks"][0]["response_ns"]["max"].as_u64() > Some(0), "{sim}");
    assert_eq!(json["tasks"][0]["simulated"]["max_ns"], sim["tasks"][0]["response_ns"]["max"], "{json}");
    let part = fs::read_to_string(folder.path("part.html")).expect("the page");
    let chosen =
        "Simulation: &quot;auto&quot; stands for what takt size chooses: &quot;flight&quot; 7.2ms in each 20ms, ";
    assert!(part.contains(chosen) && part.contains("takt sim"));
    let late = folder.spawn(&["report", "late.toml", "-o", "late.html"]).wait_with_output().expect("takt ends");
    let notes = String::from_utf8_lossy(&late.stderr);
    assert!(notes.contains("takt: note: Deadlines missed (simulated): \"a\" 2 of 2."), "{notes}");
    // Why they were late, and the worst job: of a simulation as of its log, as `stats` tells.
    assert_eq!(folder.takt(&["report", "late.toml", "late.takt", "-o", "log.html"]).status, 0);
    for page in ["late.html", "log.html"] {
        let page = fs::read_to_string(folder.path(page)).expect("the page");
        let late = page.split("<h2 id=\"late\">Why jobs were late</h2>").nth(1).expect("the causes");
        assert!(
            late.contains("<td class=\"n late\">2</td>") && late.contains("The worst job of &quot;a&quot;"),
            "{late}"
        );
    }
    assert!(!page.contains("Why jobs were late"), "a simulation in which no job is late");
}

/// Hops and table tasks are tasks to every reader of a log.
#[test]
fn a_log_of_flows_is_read_by_every_verb() {
    let folder = Folder::new();
    let store = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/store.toml");
    assert_eq!(folder.takt(&["sim", store, "--for", "1s", "--seed", "3", "-o", "store.takt"]).status, 0);
    for verb in [
        &["stats", "store.takt"][..],
        &["chart", "store.takt", "-o", "store.svg"],
        &["export", "store.takt", "--format", "csv", "-o", "store.csv"],
        &["export", "store.takt", "--format", "perfetto", "-o", "store.pftrace"],
        &["diff", "store.takt", "store.takt"],
        &["infer", "store.takt"],
        &["sim", "store.takt", "--for", "1s"],
    ] {
        let told = folder.takt(verb);
        assert_eq!(told.status, 0, "{verb:?}: {}", told.stderr);
    }
    let json = folder.takt(&["report", store, "store.takt", "-o", "store.html", "--json"]).json();
    let of = |list: &str, key: &str, name: &str| {
        let lines = json[list].as_array().expect("lines");
        lines.iter().find(|line| line[key] == name).unwrap_or_else(|| panic!("{name}: {json}")).clone()
    };
    for line in [of("tasks", "task", "put/3"), of("chains", "chain", "get")] {
        let (bound, seen) = (line["bound_ns"].as_u64(), line["simulated"]["max_ns"].as_u64());
        assert!(seen > Some(0) && seen <= bound, "{line}");
        assert_eq!(line["simulated"]["bound_slack_ns"].as_u64(), bound.zip(seen).map(|(bound, seen)| bound - seen));
    }
}

#[test]
fn a_search_for_the_worst_prints_the_command_that_repeats_it() {
    let folder = Folder::new();
    let store = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/store.toml");
    let search = ["sim", store, "--for", "100ms", "--seed", "3", "--delays", "worst", "--runs", "70", "--json"];
    let found = folder.takt(&search);
    assert_eq!(found.status, 0, "{}", found.stderr);
    assert_eq!(folder.takt(&search).text(), found.text(), "the same on any number of threads");
    let found = found.json();
    assert!(found["simulations"].as_u64().is_some_and(|runs| runs > 45 && runs <= 70), "{found}");
    for (flow, log) in [(0, "put.takt"), (1, "get.takt")] {
        let case = &found["flows"][flow];
        let command = case["command"].as_str().expect("a command");
        // As a shell would split it: no word of it has a blank.
        let words: Vec<&str> = command.split(' ').skip(1).map(|word| word.trim_matches('\'')).collect();
        assert_eq!(folder.takt(&words).status, 0, "{command}");
        let seen = folder.takt(&["stats", log, "--json"]).json();
        assert_eq!(seen["chains"][flow]["response_ns"]["max"], case["response_ns"], "{command}");
        assert!(case["response_ns"].as_u64() <= case["bound_ns"].as_u64() && case["bound_ns"] != Value::Null, "{case}");
        // The page of such a log repeats the choice.
        assert_eq!(folder.takt(&["report", log, "-o", "page.html"]).status, 0);
        let page = fs::read_to_string(folder.path("page.html")).expect("the page");
        assert!(page.contains(" --delays "), "{command}");
    }
    for (arguments, why) in [
        (&["sim", "good.toml", "--delays", "worst"][..], "--delays worst is about [[flow]]s"),
        (&["sim", store, "--delays", "worst", "-o", "x.takt"], "writes no log"),
        (&["sim", store, "--delays", "worst", "--node", "n1"], "leave out --node"),
        (&["sim", store, "--delays", "pot@3ms"], "\"pot@3ms\" names no flow of the system"),
    ] {
        let told = folder.takt(arguments);
        assert!(told.status == 2 && told.stderr.contains(why), "{arguments:?}: {}", told.stderr);
    }
}
