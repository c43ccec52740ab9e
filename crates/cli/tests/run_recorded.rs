//! `takt run` with the kernel's account. `takt observe` of the same run agrees, and a kill leaves
//! nothing behind. If the kernel cannot be recorded, each test says so and passes. No test asserts
//! a duration, but for the manual's error of the median.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jobs::{Job, jobs};

mod jobs;

const TAKT: &str = env!("CARGO_BIN_EXE_takt");

fn takt(arguments: &[&str]) -> Output {
    Command::new(TAKT).args(arguments).output().expect("takt starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// On one CPU, a fast task preempts a slow task several times.
const SYSTEM: &str = r#"takt = 1
node = [{ name = "n", strategy = "rm" }]
task = [
    { name = "fast", period = "10ms", wcet = "1ms" },
    { name = "slow", period = "100ms", wcet = "35ms" },
]
"#;

#[test]
fn a_run_and_what_is_observed_of_it_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("s.toml"), SYSTEM).unwrap();
    let tried = takt(&["run", "--trace", &path("s.toml"), "--for", "50ms"]);
    if tried.status.code() == Some(3) {
        return println!("skipped: {}", said(&tried));
    }
    let run = [TAKT, "run", "--trace", &path("s.toml"), "--for", "1500ms", "-o", &path("run.takt")];
    let observed = takt(&[&["observe", "-o", &path("seen.takt"), "--"][..], &run].concat());
    assert!(observed.status.success(), "{}", said(&observed));
    let whole = |log: &str| jobs(Path::new(&path(log))).filter(|jobs| jobs.values().flatten().all(|job| !job.gap));
    let both = whole("run.takt").zip(whole("seen.takt"));
    let Some((ran, seen)) = both else { return println!("skipped: the kernel lost events, or kept some to itself") };
    let (mut compared, mut preemptions, mut distances) = (0, 0, Vec::new());
    let mut zero = None;
    for (task, ran) in &ran {
        let (_, seen) = seen.iter().find(|(name, _)| name.starts_with(&format!("takt {task}-"))).expect("a thread");
        // Arrivals are exact in both; the logs' zeros differ by the same for all tasks.
        let by_arrival: BTreeMap<u64, Job> = seen.iter().map(|job| (job.arrival, *job)).collect();
        let shift = zero.or(jobs::shift(ran, &by_arrival)).expect("jobs were seen");
        zero = Some(shift);
        for (k, job) in ran.iter().enumerate() {
            let next = ran.get(k + 1).map(|next| next.arrival + shift);
            let (Some(start), Some(done)) = (job.start, job.done) else { continue };
            // Jobs that follow each other without a call in between are one to the kernel.
            let Some(seen) = by_arrival.get(&(job.arrival + shift)) else { continue };
            if next.is_some_and(|next| !by_arrival.contains_key(&next)) {
                continue;
            }
            let (Some(seen_start), Some(seen_done)) = (seen.start, seen.done) else { continue };
            compared += 1;
            preemptions += job.preemptions;
            assert!(done + shift <= seen_done, "{task} {k}: its thread goes to sleep after it has stamped");
            assert!(
                seen.preemptions >= job.preemptions,
                "{task} {k}: {job:?} {seen:?}: the same switches, those after the stamp besides"
            );
            distances.push((start + shift).abs_diff(seen_start));
        }
    }
    distances.sort_unstable();
    println!("{compared} jobs, {preemptions} preemptions, starts apart: {:?} ns", distances.get(compared / 2));
    assert!(compared > 20 && preemptions > 0, "{compared} jobs were compared, {preemptions} preemptions");
    // Both took the time of the same switch, one right after the other.
    assert!(distances[compared / 2] < 20_000, "{distances:?}");
}

fn instances(pid: u32) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(takt_linux::tracing::instances().ok()?).ok()?;
    let of = |name: &str| name.starts_with(&format!("takt-{pid}-"));
    Some(
        entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(of))
            .map(|entry| entry.path())
            .collect(),
    )
}

#[test]
fn a_killed_run_leaves_no_instance() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("s.toml"), SYSTEM).unwrap();
    for delay_ms in [0, 30, 120] {
        let mut command = Command::new(TAKT);
        command.args(["run", "--trace", "--best-effort", &path("s.toml"), "--for", "20s"]).stderr(Stdio::piped());
        let mut run = command.stdout(Stdio::null()).spawn().unwrap();
        loop {
            if run.try_wait().unwrap().is_some() {
                let output = run.wait_with_output().unwrap();
                assert_eq!(output.status.code(), Some(3), "{}", said(&output));
                return println!("skipped: {}", said(&output));
            }
            match instances(run.id()) {
                Some(found) if found.is_empty() => {}
                Some(_) => break,
                None => {
                    run.kill().unwrap();
                    run.wait().unwrap();
                    return println!("skipped: nobody may look into tracefs here");
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        run.kill().unwrap();
        run.wait().unwrap();
        // Its guardian waits for it to be gone altogether.
        while instances(run.id()).is_some_and(|found| !found.is_empty()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn the_answer_says_what_the_kernel_said_of_the_stamps() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("s.toml"), SYSTEM).unwrap();
    // A machine that pauses through a run leaves hardly a job that starts and ends on its own.
    let keys = ["start_ns", "complete_ns", "release_latency_ns"];
    let mut tries = 0;
    let answer = loop {
        let run = takt(&["run", "--trace", "--best-effort", &path("s.toml"), "--for", "300ms", "--json"]);
        if run.status.code() == Some(3) {
            return println!("skipped: {}", said(&run));
        }
        let answer: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
        assert!(answer["recorded"]["events"].as_u64().unwrap() > 0, "{answer}");
        tries += 1;
        if tries == 10 || keys.iter().all(|key| answer["threads"][0]["stamps"][key].is_object()) {
            break answer;
        }
    };
    let stamps = &answer["threads"][0]["stamps"];
    assert_eq!(stamps["contradicted"], 0);
    for key in keys {
        assert!(stamps[key]["p50"].is_u64(), "{key}: {stamps}");
    }
    let whole = answer["recorded"]["missing"] == 0 && answer["recorded"]["lost"] == 0;
    assert!(!whole || (answer["tasks"][1]["preemptions"].is_u64() && answer["cpus"][0]["busy_ns"].is_u64()));
    let without = takt(&["run", "--trace", "--no-trace", &path("s.toml")]);
    assert_eq!(without.status.code(), Some(2), "one or the other");
}
