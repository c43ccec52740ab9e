//! The output of `size`, and notes of verbs about a file.

use std::fs;
use std::path::Path;

use super::folder::{COMPONENT, Folder};

#[test]
fn size_writes_a_proven_file_and_keeps_its_comments() {
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
    // A simulation takes the same values, and says so.
    let (open, closed) = (["sim", file, "--json"], ["sim", "sized.toml", "--json"]);
    let [open, closed] = [open, closed].map(|arguments| folder.takt(&arguments));
    assert_eq!((open.status, open.json(), closed.stderr.as_str()), (0, closed.json(), ""));
    let told = "takt: \"auto\" stands for what takt size chooses: \"flight\" 7.2ms in each 20ms, ";
    assert!(open.stderr.starts_with(told) && open.stderr.lines().count() == 1, "{}", open.stderr);
    // A pipe carries the file and nothing else; what is sized stays as it is.
    let piped = folder.takt(&["size", "sized.toml", "-o", "-"]);
    assert_eq!((piped.status, piped.stdout), (0, sized.into_bytes()));
    assert_eq!(folder.takt(&["size", file, "-o", "-", "--json"]).status, 2);
}

/// The file cannot say that a change contradicts what `"auto"` stands for. A log of such a run would be refused.
#[test]
fn a_change_that_contradicts_a_chosen_period_is_refused() {
    let folder = Folder::new();
    let server = "takt = 1\n[[component]]\nname = \"c\"\nserver = \"ptps\"\n";
    let tasks = "[[task]]\nname = \"t\"\ncomponent = \"c\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n\
                 [[task]]\nname = \"u\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n";
    let change = "[[mode]]\nat = \"20ms\"\ncomponent = \"c\"\nbudget = \"30ms\"\n";
    fs::write(folder.path("auto.toml"), format!("{server}{tasks}{change}")).expect("a file");
    let refused = "with the values that \"auto\" stands for, from 20ms on budget 30ms exceeds period 10ms";
    for verb in ["sim", "run"] {
        let ran = folder.takt(&[verb, "auto.toml", "--for", "100ms"]);
        assert!(ran.status == 2 && ran.stderr.contains(refused), "{verb}: {}", ran.stderr);
    }
}

/// Its server has a budget, and the log tells of it.
#[test]
fn a_component_without_tasks_is_simulated() {
    let folder = Folder::new();
    let text = "takt = 1\n[[component]]\nname = \"c\"\nserver = \"polling\"\nperiod = \"4ms\"\nbudget = \"1ms\"\n";
    fs::write(folder.path("bare.toml"), text).expect("a file");
    assert_eq!(folder.takt(&["check", "bare.toml"]).status, 0);
    let ran = folder.takt(&["sim", "bare.toml", "--for", "20ms", "--json"]);
    assert_eq!((ran.status, &ran.json()["servers"][0]["replenishments"]), (0, &5.into()), "{}", ran.stderr);
    let ran = folder.takt(&["run", "bare.toml"]);
    assert!(ran.status == 2 && ran.stderr.contains("has no tasks"), "{}", ran.stderr);
}

/// On a kernel short periods are not free, and `run` says what the choice rests on.
#[test]
fn a_run_warns_of_periods_that_were_chosen_as_if_switches_were_free() {
    let folder = Folder::new();
    let server = "takt = 1\n[[component]]\nname = \"short\"\nserver = \"polling\"\nstrategy = \"rm\"\n";
    let task = "[[task]]\nname = \"t\"\ncomponent = \"short\"\nperiod = \"20ms\"\nwcet = \"1ms\"\n";
    let text = format!("{server}{task}");
    fs::write(folder.path("short.toml"), text).expect("a file");
    let warning =
        "warning: component \"short\": no switch costs anything here, so its period is chosen as if short ones";
    let ran = folder.takt(&["run", "short.toml", "--best-effort", "--no-trace", "--for", "20ms"]);
    assert!(ran.status == 0 && ran.stderr.contains(warning), "{}", ran.stderr);
    // In virtual time they are free.
    let ran = folder.takt(&["sim", "short.toml"]);
    assert!(ran.status == 0 && !ran.stderr.contains("warning"), "{}", ran.stderr);
}

#[test]
fn a_file_that_is_not_proven_is_written_with_a_warning() {
    let folder = Folder::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/switched.toml");
    let example = example.to_str().expect("a name");
    let ran = folder.takt(&["size", example, "--network-delay", "20ms", "-o", "wide.toml"]);
    let warning = "takt: warning: the written file is not proven schedulable: takt check says why\n";
    assert_eq!((ran.status, ran.stderr.as_str()), (1, warning));
    assert_eq!(folder.takt(&["check", "wide.toml"]).status, 1);
}

#[test]
fn shares_go_by_bytes_by_messages_or_evenly_and_net_apply_takes_them() {
    let folder = Folder::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/switched.toml");
    let example = example.to_str().expect("a name");
    // What n0 sends of all: 150 of 310 kB/s, and 250 of 650 messages/s.
    for (by, part) in [("bytes", 15.0 / 31.0), ("messages", 5.0 / 13.0), ("fair", 1.0 / 3.0)] {
        let size = ["size", example, "--network-delay", "4ms", "--weigh", by, "-o", "sized.toml", "--json"];
        let ran = folder.takt(&size);
        assert_eq!(ran.status, 0, "{by}: {}", ran.stderr);
        let json = ran.json();
        let share = &json["shares"][0];
        let weight = share["weight"].as_f64().expect("a number");
        assert!(share["node"] == "n0" && (weight - part).abs() < 1e-5, "{by}: {share}");
        let ran = folder.takt(&["net", "apply", "sized.toml", "--node", "n0", "--device", "lo", "--dry-run", "--json"]);
        assert_eq!(ran.status, 0, "{by}: {}", ran.stderr);
        let plan = ran.json();
        let [set, wanted] = [&plan["classes"][0], share].map(|of| of["rate_bps"].as_u64().expect("a number"));
        // The kernel counts whole bytes.
        assert!(set.abs_diff(wanted) <= 8, "{by}: {plan}");
    }
}

/// `sim` refuses no file: servers of which nothing is proven get the share of what they serve.
#[test]
fn unsized_servers_are_simulated_with_the_share_of_their_tasks() {
    let folder = Folder::new();
    let server = |name: &str, rule: &str| format!("[[component]]\nname = \"{name}\"\nserver = \"{rule}\"\n");
    let task = "[[task]]\nname = \"t\"\ncomponent = \"soft\"\nperiod = \"20ms\"\nwcet = \"5ms\"\n";
    let text = format!("takt = 1\n{}{}{task}", server("soft", "grub"), server("empty", "ptps"));
    fs::write(folder.path("open.toml"), text).expect("a file");
    assert_eq!(folder.takt(&["size", "open.toml"]).status, 1);
    let ran = folder.takt(&["sim", "open.toml", "--json"]);
    assert_eq!((ran.status, &ran.json()["tasks"][0]["released"]), (0, &2.into()));
    let told = "takt: \"soft\" gets 2.5ms in each 10ms, its utilization\n";
    let empty = "takt: \"empty\" gets 1us in each 1ms, its utilization\n";
    assert!(ran.stderr.contains(told) && ran.stderr.contains(empty), "{}", ran.stderr);
    // What has values is not proven either, and the rest gets its share.
    let text = fs::read_to_string(folder.path("open.toml")).expect("the file");
    let given = text.replacen("\"grub\"\n", "\"grub\"\nperiod = \"10ms\"\nbudget = \"5ms\"\n", 1);
    fs::write(folder.path("open.toml"), given).expect("a file");
    let ran = folder.takt(&["sim", "open.toml"]);
    assert!(ran.status == 0 && ran.stderr.contains(empty) && !ran.stderr.contains("\"soft\" is"), "{}", ran.stderr);
}

/// A file with values beyond its bounds gets the verdict of its bounds. Each verb with a verdict
/// says so.
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
    let text = nothing.text();
    assert!(nothing.status == 0 && text.contains("schedulable\n\nThere is nothing to size"), "{text}");
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
    assert!(ran.status == 0 && ran.stderr.contains("its execution times depend on each other"), "{}", ran.stderr);
    for (more, status, says) in [
        (&["--probability", "1.5"][..], 2, "is not between 0 and 1"),
        (&["--probability", "0"], 2, "is no share above 0"),
        (&[], 2, "--probability"),
        (&["--probability", "0.9", "--quantum", "6ms"], 2, "does not fit into a period"),
        (&["--probability", "0.9", "--quantum", "1us"], 4, "coarser granularity"),
        (&["--probability", "0.9", "-o", "b.toml"], 2, "\"a\" has none"),
        (&["--probability", "0.9", "--log", "a.toml"], 2, "a.toml"),
    ] {
        let ran = size(more);
        assert!(ran.status == status && ran.stderr.contains(says), "{more:?}: {} {}", ran.status, ran.stderr);
    }
    let asked = "size a.toml --reserve a --period 11ms --deadline 20ms --probability 0.5";
    let ran = folder.takt(&asked.split(' ').collect::<Vec<_>>());
    assert!(ran.status == 1 && ran.stderr.contains("take a shorter period"), "{} {}", ran.status, ran.stderr);
    // Costs are charged to jobs and budgets.
    let costly = |more: &str| {
        format!(
            "{}{more}",
            task("").replacen(
                "[[task]]",
                "[[node]]\nname = \"n\"\nstrategy = \"edf\"\ncosts = \
             { switch = \"10us\", release = \"5us\" }\n[[task]]",
                1
            )
        )
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
