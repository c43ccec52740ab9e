//! Imports of rt-app workloads: the shipped examples as golden files, and what is refused.
//!
//! `UPDATE=1 cargo test -p takt-model --test rtapp` rewrites the golden files; read what it wrote.

use std::path::Path;

use takt_model::Exec;
use takt_model::file::{parse, validate, write};
use takt_model::import::rtapp::import;

fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/rtapp").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file exists");
    assert_eq!(found, expected, "{name} differs; UPDATE=1 rewrites it");
}

#[test]
fn the_examples_become_these_systems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rt-app");
    let mut names: Vec<String> = std::fs::read_dir(folder.clone())
        .expect("the examples exist")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".json"))
        .collect();
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let json = std::fs::read_to_string(folder.join(&name)).expect("the example can be read");
        let imported = import(&json, &name).unwrap_or_else(|errors| panic!("{errors}"));
        validate(&imported.system).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let text = write(&imported.system);
        assert_eq!(parse(&text, "again.toml").as_ref(), Ok(&imported.system));
        let warnings: String = imported.warnings.iter().map(|warning| format!("# {warning}\n")).collect();
        golden(&name.replace(".json", ".toml"), &format!("{warnings}\n{text}"));
    }
}

/// A DEADLINE thread that works for `work` us at a timer of `timer` us, with 1 ms every 10 ms
/// reserved. Returns the warning about it, and the period, deadline, wcet and exec of the task in
/// us (exec 0 is wcet).
fn reserved(work: u32, timer: u32) -> ([u64; 4], String) {
    let json = format!(
        r#"{{ "tasks": {{ "t": {{
            "policy": "SCHED_DEADLINE", "dl-runtime": 1000, "dl-deadline": 8000, "dl-period": 10000,
            "run": {work}, "timer": {{ "ref": "unique", "period": {timer}, "mode": "absolute" }} }} }} }}"#
    );
    let imported = import(&json, "t.json").unwrap_or_else(|errors| panic!("{errors}"));
    let task = &imported.system.tasks[0];
    let exec = match &task.exec {
        Exec::Pmf(pmf) => pmf.iter().map(|(value, _)| value.as_ns()).max().unwrap_or(0),
        _ => 0,
    };
    let about = imported.warnings.into_iter().filter_map(|warning| Some(warning.split_once("tasks.t: ")?.1.to_owned()));
    (
        [task.period.as_ns(), task.deadline.as_ns(), task.wcet.as_ns(), exec].map(|ns| ns / 1000),
        about.collect::<Vec<_>>().join("; "),
    )
}

#[test]
fn a_timer_of_another_period_than_the_reservation_never_takes_more_than_is_reserved() {
    assert_eq!(reserved(700, 10_000), ([10_000, 8_000, 1_000, 700], String::new()));
    let (task, warning) = reserved(1_000, 1_000);
    assert_eq!(task, [10_000, 8_000, 1_000, 0], "throttled ever again: the reservation, not ten times as much");
    assert_eq!(
        warning,
        "is released every 1ms, and its reservation holds 1ms every 10ms, less than its jobs of up to 1ms want; \
         the kernel throttles it, so the import is a task that always uses its whole reservation; its own releases \
         are left out"
    );
    let (task, warning) = reserved(100, 1_000);
    assert_eq!(task, [1_000, 8_000, 100, 0]);
    assert!(
        warning.ends_with(
            "the task's wcet is the work of one job, 100us, and what the reservation holds beyond is left out"
        ),
        "{warning}"
    );
    let (task, warning) = reserved(700, 20_000);
    assert_eq!(task, [20_000, 8_000, 1_000, 700]);
    assert!(warning.ends_with("the task's period is 20ms, so less is reserved for it"), "{warning}");
    let (task, warning) = reserved(2_500, 40_000);
    assert_eq!(task, [40_000, 28_000, 2_500, 0], "three reservations, the last one due at 20 ms + 8 ms");
    assert!(warning.contains("takes several of these, and the kernel throttles it in between"), "{warning}");
    assert_eq!(reserved(2_500, 20_000).0, [10_000, 8_000, 1_000, 0], "2.5 ms of 2 ms reserved");
}

const BAD: &str = include_str!("files/rtapp/errors.txt");

#[test]
fn input_that_rt_app_crashes_on_or_ignores_is_refused() {
    let mut again = String::new();
    let (head, cases) = BAD.split_once("--- ").expect("the file of cases has cases");
    again.push_str(head);
    let mut same = true;
    for case in cases.split("\n--- ") {
        let (title, rest) = case.split_once('\n').expect("a case has a title line");
        let (json, expected) = rest.split_once("=>").expect("a case has errors");
        let found = match import(json.trim_end_matches('\n'), "load.json") {
            Ok(_) => "(no error)".to_owned(),
            Err(errors) => errors.to_string(),
        };
        same &= found == expected.trim();
        again.push_str(&format!("--- {title}\n{}\n=>\n{found}\n\n", json.trim_end_matches('\n')));
    }
    golden("errors.txt", &format!("{}\n", again.trim_end()));
    assert!(same || std::env::var_os("UPDATE").is_some());
}

/// Phases and threads that share a name are all imported: later ones get a number that is still
/// free.
#[test]
fn names_that_stand_again_get_a_number() {
    let phase = |name: &str, run: u32| {
        format!(r#""{name}": {{ "run": {run}, "timer": {{ "ref": "t", "period": 10000, "mode": "absolute" }} }}"#)
    };
    let phases = [phase("light", 100), phase("light_2", 200), phase("light", 300)].join(", ");
    let json = format!(
        r#"{{ "tasks": {{ "a": {{ "phases": {{ {phases} }} }}, "a": {{ "run": 400, "sleep": 600 }} }},
            "global": {{ "logdir": "./", "log_basename": "x", "gnuplot": true }} }}"#
    );
    let imported = import(&json, "t.json").unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<&str> = imported.system.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["a", "a_2"]);
    let Exec::Pmf(pmf) = &imported.system.tasks[0].exec else { panic!("{:?}", imported.system.tasks[0]) };
    assert_eq!(pmf.len(), 3, "all phases count: {pmf:?}");
    let has = |part: &str| imported.warnings.iter().filter(|warning| warning.contains(part)).count();
    assert_eq!(has("both are imported, this one as \"light_3\""), 1, "{:?}", imported.warnings);
    assert_eq!(has("both are imported, this one as \"a_2\""), 1, "{:?}", imported.warnings);
    assert_eq!(has("no part of a system (logdir, log_basename, gnuplot)"), 1, "{:?}", imported.warnings);
}

/// A workload of which nothing can be imported is an error, with the reason for each thread.
#[test]
fn a_workload_without_a_task_is_refused() {
    let json = r#"{ "tasks": { "a": { "suspend": "a", "run": 100 }, "b": { "sleep": 5 } } }"#;
    let errors = import(json, "t.json").expect_err("no task comes of it").to_string();
    for part in ["tasks: no thread could be imported", "tasks.a: is released by other threads", "tasks.b: has no run"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}
