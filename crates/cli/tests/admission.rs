//! `takt check --linux` against the kernel: the same tasks, asked of both, around the limits.
//!
//! The threads ask for SCHED_DEADLINE, sleep, and give it back; none of them does any work. Without
//! the privilege the test says so and passes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use takt_linux::{Class, ClassGuard, Machine, Reservation, SchedError, machine, sched};
use takt_model::{Builtin, CpuSet, Exec, Placement, Span, System, Task};

use crate::command::alone;

mod command;

/// In units of 2^-20 CPUs: with this period the kernel's fixed point is exact, 16 ns of runtime a unit.
const PERIOD: Span = Span::from_ns(1 << 24);
fn units(name: &str, units: u64) -> Task {
    Task::periodic(name, PERIOD, Span::from_ns(units << 4))
}
fn task(name: &str, runtime_ns: u64, deadline_ns: u64, period_ns: u64) -> Task {
    let deadline = Span::from_ns(deadline_ns);
    Task { deadline, ..Task::periodic(name, Span::from_ns(period_ns), Span::from_ns(runtime_ns)) }
}

fn takt(arguments: &[&str], system: &System, folder: &Path) -> Output {
    let file = folder.join("s.toml");
    std::fs::write(&file, takt_model::file::write(system)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).arg(&file).output().unwrap()
}

/// The answer of `takt check --linux` for each task, and the available bandwidth, in millionths.
fn said(system: &System, folder: &Path, margin: &[&str]) -> (BTreeMap<String, bool>, u64) {
    let output = takt(&[&["check", "--json", "--linux"], margin].concat(), system, folder);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let linux: Vec<&Value> =
        report["tests"].as_array().unwrap().iter().filter(|test| test["test"] == "linux").collect();
    let tasks = linux.iter().flat_map(|test| test["tasks"].as_array().unwrap());
    let verdicts = tasks.map(|task| (task["task"].as_str().unwrap().to_owned(), task["verdict"] == "yes")).collect();
    (verdicts, linux[0]["figures"]["available_ppm"].as_u64().unwrap_or(u64::MAX))
}

/// The kernel's answers. Tasks ask in file order, each on its own thread. A thread keeps its
/// reservation until all have asked.
fn asked(system: &System) -> BTreeMap<String, Result<(), SchedError>> {
    let cpus = sched::affinity();
    let mut answers = BTreeMap::new();
    std::thread::scope(|scope| {
        let mut open = Vec::new();
        for task in &system.tasks {
            let (answer, answered) = mpsc::channel();
            let (keep, until) = mpsc::channel::<()>();
            let cpus = &cpus;
            scope.spawn(move || {
                if let Some(own) = task.cpus {
                    let own: Vec<u32> = own.iter().filter_map(|cpu| cpus.get(cpu as usize).copied()).collect();
                    sched::set_affinity(&own).unwrap();
                }
                let (runtime, deadline, period) = (task.wcet, task.deadline, task.period);
                let entered = ClassGuard::enter(&Class::Deadline(Reservation { runtime, deadline, period }));
                answer.send(entered.as_ref().map(drop).map_err(Clone::clone)).unwrap();
                // Until `keep` is dropped.
                let _ = until.recv();
            });
            answers.insert(task.name.clone(), answered.recv().unwrap());
            open.push(keep);
        }
    });
    answers
}

/// This machine and how many CPUs it has; `None`, and it says why, where SCHED_DEADLINE is not for this process.
fn whole_machine() -> Option<(Machine, u32)> {
    let here = machine();
    if here.cpus != here.cpus_online {
        println!("skipped: this process may not use all CPUs, and SCHED_DEADLINE takes no part of a domain");
        return None;
    }
    let cpus = u32::try_from(here.cpus.len()).unwrap();
    Some((here, cpus))
}

/// The runtime asked for is the wcet.
const BARE: [&str; 2] = ["--margin", "0ns"];
/// Other programs' reservations come and go.
const TRIES_MAX: u32 = 10;

#[test]
fn the_kernel_admits_what_check_says() {
    let _alone = alone();
    let Some((here, cpus)) = whole_machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let edf = |tasks: Vec<Task>| System::local(cpus, Builtin::Edf, tasks);

    // How much room there is, in units, by the kernel's own figures.
    let ratio = |part: u64, whole: u64| (part << 20) / whole.max(1);
    let limit = here.limits;
    let Ok(runtime) = u64::try_from(limit.rt_runtime_us) else {
        return println!("skipped: admission control is off (sched_rt_runtime_us = -1)");
    };
    let server = here.fair_server_assumed().map_or(0, |(runtime, period)| ratio(runtime.as_ns(), period.as_ns()));
    let room = u64::from(cpus) * (ratio(runtime, limit.rt_period_us) - server);
    let (_, ppm) = said(&edf(vec![units("a", 1000)]), folder.path(), &BARE);
    assert!(
        ppm.abs_diff((room * 1_000_000) >> 20) <= 1,
        "check knows of {ppm} millionths, the kernel has {room} units"
    );

    let share = room / u64::from(cpus);
    let most = |last: u64| -> Vec<Task> {
        let mut tasks: Vec<Task> = (1..cpus).map(|i| units(&format!("full-{i}"), share)).collect();
        tasks.push(units("last", last));
        tasks
    };
    let rest = room - share * u64::from(cpus - 1);
    let (min, max) = (limit.dl_period_min.as_ns(), limit.dl_period_max.as_ns());
    let mut sets = vec![
        ("all of the room, to the last unit", edf(most(rest))),
        ("one unit too much", edf(most(rest + 1))),
        ("one unit too much, of a later task", edf([most(rest), vec![units("more", 64)]].concat())),
        ("what a refused task leaves", edf(vec![units("a", share), units("b", room), units("c", 1000)])),
        ("the least runtime", edf(vec![task("least", 1024, 1_000_000, 1_000_000)])),
        ("less than the least", edf(vec![task("less", 1023, 1_000_000, 1_000_000)])),
        ("the shortest period", edf(vec![task("short", 2000, min, min), task("shorter", 2000, min - 1, min - 1)])),
        ("the longest period", edf(vec![task("long", 2000, 9000, max), task("longer", 2000, 9000, max + 1)])),
        ("deadline and period", edf(vec![task("d", 2000, 5000, 100_000), task("later", 2000, 100_001, 100_000)])),
        ("runtime and deadline", edf(vec![task("r", 5000, 5000, 200_000), task("hopeless", 5001, 5000, 200_000)])),
    ];
    if cpus > 1 {
        let bound = Task { cpus: Some(CpuSet::first(1)), ..units("bound", 1000) };
        sets.push(("an affinity", edf(vec![bound, units("free", 1000)])));
    }
    assert!(sets.iter().all(|(_, system)| system.nodes[0].placement == Placement::Global));

    for (what, system) in sets {
        let (expected, _) = said(&system, folder.path(), &BARE);
        assert_eq!(expected.len(), system.tasks.len());
        let mut tries = 0;
        loop {
            let answers = asked(&system);
            if let Some(Err(error @ SchedError::Privilege { .. })) = answers.values().find(|answer| answer.is_err()) {
                return println!("skipped: {error}");
            }
            let told: BTreeMap<String, bool> = answers.iter().map(|(name, is)| (name.clone(), is.is_ok())).collect();
            if told == expected {
                println!("{what}: {told:?}");
                break;
            }
            tries += 1;
            assert!(tries < TRIES_MAX, "{what}: check says {expected:?}, the kernel {answers:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn run_is_admitted_where_check_says_so() {
    let _alone = alone();
    let Some((here, cpus)) = whole_machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Reserved in thousandths of the machine, 5 % more than the wcets; the jobs themselves take next to nothing.
    let filled = |thousandths: u64| {
        let each = |i| Task {
            exec: Exec::Uniform { min: Span::from_us(100), max: Span::from_us(100) },
            ..task(&format!("t{i}"), thousandths * 40_000, 40_000_000, 40_000_000)
        };
        System::local(cpus, Builtin::Edf, (0..cpus).map(each).collect())
    };
    let mut answers = Vec::new();
    // 84 % and the margin are 88.2 % of each CPU, 88 % are 92.4 %: 90 % is what a stock kernel has.
    for thousandths in [840, 880] {
        let system = filled(thousandths);
        let (said, _) = said(&system, folder.path(), &[]);
        let expected = said.values().all(|admitted| *admitted);
        let mut tries = 0;
        loop {
            let output = takt(&["run", "--for", "100ms", "-o", "/dev/null"], &system, folder.path());
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            if told.contains("CAP_SYS_NICE") || told.contains("CAP_IPC_LOCK") || told.contains("rt_runtime_us = 0") {
                return println!("skipped: {told}");
            }
            let admitted = match output.status.code() {
                Some(0) => true,
                Some(3) if told.contains("admission control") => false,
                other => panic!("{other:?}: {told}"),
            };
            if admitted == expected {
                break;
            }
            tries += 1;
            assert!(tries < TRIES_MAX, "{thousandths} thousandths: check says {expected}, run: {told}");
            std::thread::sleep(Duration::from_millis(200));
        }
        answers.push(expected);
    }
    let limits = here.limits;
    if (limits.rt_runtime_us, limits.rt_period_us) == (950_000, 1_000_000) && here.fair_server_assumed().is_some() {
        assert_eq!(answers, [true, false], "a stock kernel");
    }
}
