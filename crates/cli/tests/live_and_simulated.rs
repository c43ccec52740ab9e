//! The same system simulated and run: the same jobs arrive at the same nominal instants, and the
//! log of the live run holds what every log must.
//!
//! Best effort, so no privilege is needed; nothing here asserts when something was done.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use takt_log::{Event, JobKey, Reader};
use takt_model::{System, TaskId, Time};

/// Half a second is two hyperperiods of most examples.
const DURATION: &str = "500ms";
const END: Time = Time::from_ns(500_000_000);

fn log_of(verb: &[&str], file: &Path, folder: &Path) -> Vec<(Time, Event)> {
    let log = folder.join("log.takt");
    let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
    let output =
        command.args(verb).args(["--for", DURATION, "--seed", "5", "-o"]).arg(&log).arg(file).output().unwrap();
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    let reader = Reader::new(std::io::Cursor::new(std::fs::read(&log).unwrap())).unwrap();
    reader.map(|record| record.map(|record| (record.time, record.event)).unwrap()).collect()
}

/// Nominal arrivals of the tasks that follow no other, in the order of their jobs.
fn arrivals(system: &System, events: &[(Time, Event)]) -> BTreeMap<TaskId, Vec<Time>> {
    let mut arrivals: BTreeMap<TaskId, Vec<Time>> = BTreeMap::new();
    for (_, event) in events {
        if let Event::Release { job, arrival, parent: None } = *event {
            assert!(system.tasks[job.task.index()].after.is_empty());
            let of_task = arrivals.entry(job.task).or_default();
            assert_eq!(of_task.len() as u64, job.number, "numbers run without a gap");
            of_task.push(arrival);
        }
    }
    arrivals
}

/// Released = completed + unfinished, in the order of time; misses at their deadlines.
fn hold_together(system: &System, events: &[(Time, Event)]) {
    assert!(events.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in the order of time");
    let mut jobs: BTreeMap<JobKey, (Time, Time, Option<Time>)> = BTreeMap::new();
    let mut missed: BTreeMap<JobKey, Time> = BTreeMap::new();
    for (at, event) in events {
        match *event {
            Event::Release { job, arrival, .. } => {
                assert!(arrival <= *at && arrival <= END);
                assert!(jobs.insert(job, (arrival, *at, None)).is_none());
            }
            Event::Start { job, .. } => assert!(jobs[&job].1 <= *at),
            Event::Complete { job, .. } => assert!(jobs.get_mut(&job).unwrap().2.replace(*at).is_none()),
            Event::Miss { job } => assert!(missed.insert(job, *at).is_none()),
            _ => {}
        }
    }
    for (job, (arrival, released, completed)) in jobs {
        let deadline = arrival + system.tasks[job.task.index()].deadline;
        let is_late = completed.map_or(deadline <= END, |at| at > deadline);
        // If the thread was released later, the stream does not go back.
        let stamp = is_late.then_some(deadline.max(released));
        assert_eq!(missed.remove(&job), stamp, "{job:?}, deadline {deadline}, completed {completed:?}");
    }
    assert!(missed.is_empty());
}

#[test]
fn a_live_run_releases_the_jobs_that_a_simulation_does() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let system = takt_model::file::parse(&text, "example").unwrap();
        let tried = Command::new(env!("CARGO_BIN_EXE_takt"))
            .args(["run", "--best-effort", "--for", "1ms"])
            .arg(&file)
            .output()
            .unwrap();
        if !tried.status.success() {
            println!("skipped: {}: {}", file.display(), String::from_utf8_lossy(&tried.stderr));
            assert!(matches!(tried.status.code(), Some(2 | 3)), "several nodes, what is not run yet, or too few CPUs");
            continue;
        }
        let live = log_of(&["run", "--best-effort"], &file, folder.path());
        let simulated = log_of(&["sim"], &file, folder.path());
        assert_eq!(arrivals(&system, &live), arrivals(&system, &simulated), "{}", file.display());
        hold_together(&system, &live);
        compared += 1;
    }
    assert!(compared > 0);
}
