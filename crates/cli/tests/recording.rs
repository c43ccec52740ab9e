//! A killed recording leaves a readable log and no instance. The guardian removes the instance, or
//! the next start of the command. Also tests the size limit of logs. Without access to tracefs each
//! test says so and passes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_linux::process::KillOnDrop;
use takt_linux::tracing::{Guard, Options, Recorder, instances};
use takt_model::Bytes;

fn takt() -> Command {
    Command::new(env!("CARGO_BIN_EXE_takt"))
}

/// An instance like that of a dead recorder: no process ever has this number.
fn left_behind(number: u32) -> Option<(String, PathBuf)> {
    let name = format!("takt-{}-1-{number}", u32::MAX);
    let made = instances().map_err(|error| error.to_string()).and_then(|instances| {
        let folder = instances.join(&name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    });
    match made {
        Ok(folder) => Some((name, folder)),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

#[test]
fn the_command_is_a_guardian() {
    let options = Options {
        guard: Guard::Program(env!("CARGO_BIN_EXE_takt").into()),
        buffer: Some(Bytes::new(1 << 20)),
        ..Options::default()
    };
    match Recorder::start(&options) {
        Ok(recorder) => drop(recorder),
        Err(error) => return println!("skipped: {error}"),
    }
    let Some((name, folder)) = left_behind(1) else { return };
    let mut command = takt();
    command.args(["--takt-trace-guardian", &name]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guardian = command.spawn().unwrap();
    let mut ready = [0; 5];
    guardian.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready");
    drop(guardian.stdin.take());
    assert!(guardian.wait().unwrap().success());
    assert!(!folder.exists());
}

#[test]
fn the_next_start_removes_what_is_left() {
    let Some((name, folder)) = left_behind(2) else { return };
    // Without a mounted tracefs only a start that records looks there.
    let mounted =
        fs::read_to_string("/proc/mounts").unwrap().lines().any(|line| line.split(' ').nth(2) == Some("tracefs"));
    let start: &[&str] = if mounted { &["schema"] } else { &["observe", "--for", "1ms"] };
    let output = takt().args(start).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Another takt may be quicker. Then this one is silent, and may end before the removal.
    assert!((0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !folder.exists()
    }));
    println!("{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Ends the threads that look at this when dropped, also by a failed test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Without a log and a terminal, `takt top` shows what this machine does. It does not read standard input.
#[test]
fn top_without_a_terminal_looks_at_the_machine() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        let wakes = || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        std::thread::Builder::new().name("wakes-often".to_owned()).spawn_scoped(scope, wakes).unwrap();
        for arguments in [&["top", "--once"][..], &["top"]] {
            let mut command = takt();
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut top = command.spawn().unwrap();
            // It may end before it reads, and does not read.
            let _ = top.stdin.take().unwrap().write_all(b"no log");
            let ran = top.wait_with_output().unwrap();
            let (shown, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            if ran.status.code() == Some(3) {
                println!("skipped: {said}");
                break;
            }
            assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {said}");
            assert!(shown.starts_with("takt top: at ") && shown.contains("wakes-often"), "{arguments:?}: {shown}");
        }
    });
}

/// takt attaches to a process while its threads end and start.
#[test]
fn a_process_whose_threads_come_and_go_is_recorded() {
    const AT_A_TIME: usize = 100;
    let over = AtomicBool::new(false);
    let own = std::process::id().to_string();
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        for k in 0..AT_A_TIME {
            let over = &over;
            scope.spawn(move || {
                for generation in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    // Lives of 2 to 40 ms.
                    let sleeps = 1 + (k + generation) % 20;
                    let live = move || (0..sleeps).for_each(|_| std::thread::sleep(Duration::from_millis(2)));
                    let name = format!("wk-{k}");
                    std::thread::Builder::new().name(name).spawn_scoped(scope, live).unwrap().join().unwrap();
                }
            });
        }
        // Which threads end while takt attaches is a matter of chance: several times.
        for _ in 0..5 {
            let ran = takt().args(["observe", "--pid", &own, "--for", "100ms", "--json"]).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            if ran.status.code() == Some(3) {
                println!("skipped: {said}");
                break;
            }
            assert_eq!(ran.status.code(), Some(0), "{said}");
            let stats: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
            let tasks = stats["tasks"].as_array().expect("tasks");
            let seen = tasks.iter().filter(|task| task["task"].as_str().is_some_and(|name| name.starts_with("wk-")));
            assert!(seen.count() > 0, "{said}");
        }
    });
}

/// `takt observe` into a log, once that can be read; `None` where nobody may record.
fn recording(log: &Path, arguments: &[&str]) -> Option<KillOnDrop> {
    let mut command = takt();
    command.args(["observe", "--for", "60s", "-o"]).arg(log).args(arguments).stdout(Stdio::null());
    let mut recorder = KillOnDrop(command.stderr(Stdio::piped()).spawn().unwrap());
    while fs::read(log).map_or(true, |bytes| bytes == OLD) {
        if let Some(status) = recorder.0.try_wait().unwrap() {
            let mut said = String::new();
            recorder.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(status.code(), Some(3), "{said}");
            println!("skipped: {said}");
            return None;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Some(recorder)
}

fn statistics(log: &Path) -> serde_json::Value {
    let output = takt().args(["stats", "--json"]).arg(log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The old content of a replaced log.
const OLD: &[u8] = b"what was there before";

#[test]
fn a_recorder_killed_at_any_instant_leaves_a_log_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("a.takt");
    for old in [None, Some(OLD)] {
        for delay_ms in [0, 1, 10, 100, 600] {
            let _ = fs::remove_file(&log);
            if let Some(old) = old {
                fs::write(&log, old).unwrap();
            }
            let Some(recorder) = recording(&log, &[]) else { return };
            std::thread::sleep(Duration::from_millis(delay_ms));
            drop(recorder);
            let found = statistics(&log);
            println!(
                "killed {delay_ms} ms later: {} bytes, {} tasks",
                fs::metadata(&log).unwrap().len(),
                found["tasks"]
            );
        }
        // Before there is a log there is what was there.
        for delay_us in (0..60_000).step_by(3_000) {
            let _ = fs::remove_file(&log);
            if let Some(old) = old {
                fs::write(&log, old).unwrap();
            }
            let mut command = takt();
            command.args(["observe", "--for", "60s", "-o"]).arg(&log).stdout(Stdio::null()).stderr(Stdio::null());
            let recorder = KillOnDrop(command.spawn().unwrap());
            std::thread::sleep(Duration::from_micros(delay_us));
            drop(recorder);
            if fs::read(&log).ok().as_deref() != old {
                statistics(&log);
            }
        }
    }
}

#[test]
fn all_recorded_events_are_in_the_log_when_no_event_follows() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("a.takt");
    let mut shell = Command::new("sh");
    shell.args(["-c", "while read line; do sleep 0; done"]).stdin(Stdio::piped());
    let mut shell = KillOnDrop(shell.spawn().unwrap());
    let id = shell.0.id();
    let Some(recorder) = recording(&log, &["--tid", &id.to_string()]) else { return };
    let completed = |log| {
        let found = statistics(log);
        let tasks = found["tasks"].as_array().unwrap().iter();
        let own = tasks.filter(|task| task["task"].as_str().unwrap().ends_with(&format!("-{id}")));
        own.map(|task| task["completed"].as_u64().unwrap()).sum::<u64>()
    };
    // It may not have begun when its log does.
    let mut input = shell.0.stdin.take().unwrap();
    for _ in 0..20 {
        (0..3).for_each(|_| input.write_all(b"line\n").unwrap());
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(100));
            if completed(&log) > 0 {
                return drop(recorder);
            }
        }
    }
    panic!("nothing of thread {id} came into the log");
}

#[test]
fn a_log_takes_no_more_than_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("a.takt");
    let busy = "for i in $(seq 2000); do sleep 0; done";
    let observe = |limit: &str| {
        let mut command = takt();
        command.args(["observe", "--json", "--for", "10min", "--limit", limit, "-o"]).arg(&log);
        command.args(["--", "sh", "-c", busy]).output().unwrap()
    };
    let small = observe("64KiB");
    let said = String::from_utf8_lossy(&small.stderr);
    if small.status.code() == Some(3) {
        return println!("skipped: {said}");
    }
    assert!(small.status.success() && said.contains("the log reached --limit after"), "{said}");
    let answer: serde_json::Value = serde_json::from_slice(&small.stdout).unwrap();
    assert_eq!(answer["observed"]["limit_reached"], true);
    let bytes = fs::metadata(&log).unwrap().len();
    assert!((60 << 10..=64 << 10).contains(&bytes), "{bytes} bytes");
    // The statistics match the log.
    let found = statistics(&log);
    assert_eq!(found["tasks"], answer["tasks"]);
    assert_eq!(found["duration_ns"], answer["duration_ns"]);

    let large = observe("1GiB");
    let answer: serde_json::Value = serde_json::from_slice(&large.stdout).unwrap();
    assert_eq!(
        (&answer["observed"]["limit_reached"], &answer["observed"]["command_status"]),
        (&false.into(), &0.into())
    );

    let none = observe("1KiB");
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("give 64KiB or more"));
}

#[test]
fn a_thread_that_is_not_there_is_told() {
    let output = takt().args(["observe", "--for", "100ms", "--tid", "4294967295"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("there is no thread 4294967295"), "{said}");
}
