//! Components under `takt run` on this kernel: the log in every consumer, and a process that is killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use takt_model::Span;

const TAKT: &str = env!("CARGO_BIN_EXE_takt");

const DOMAINS: &str = r#"
takt = 1
name = "domains"
[[node]]
name = "n1"
strategy = "rm"
[[component]]
name = "high"
server = "wcps"
strategy = "rm"
period = "20ms"
budget = "6ms"
[[task]]
name = "h"
component = "high"
period = "20ms"
offset = "4ms"
wcet = "2ms"
[[component]]
name = "low"
server = "deferrable"
strategy = "edf"
period = "40ms"
budget = "12ms"
[[task]]
name = "l"
component = "low"
period = "40ms"
wcet = "8ms"
"#;

fn takt(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ran = Command::new(TAKT).args(arguments).current_dir(folder).output().expect("takt starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code().unwrap_or(-1), text(&ran.stdout), text(&ran.stderr))
}

/// How this user may run: with the privilege, or without a guarantee.
fn options(folder: &Path) -> &'static [&'static str] {
    let (status, _, why) = takt(folder, &["run", "domains.toml", "--for", "20ms"]);
    if status == 0 {
        return &[];
    }
    println!("best effort: {why}");
    &["--best-effort"]
}

#[test]
fn the_log_of_a_live_hierarchy_is_read_by_every_verb() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("domains.toml"), DOMAINS).expect("a file");
    let options = options(folder);
    let run = [&["run", "domains.toml", "--for", "200ms", "-o", "live.takt"], options].concat();
    let (status, out, error) = takt(folder, &run);
    assert_eq!(status, 0, "{error}");
    let charged = out.contains("check charges this with costs");
    assert!(out.contains("manager of cpu") && charged == options.is_empty(), "{out}");
    let (status, out, error) = takt(folder, &[&run[..], &["--json"]].concat());
    assert_eq!(status, 0, "{error}");
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let manager = &answer["managers"][0];
    assert!(manager["decisions"].as_u64() > Some(0) && manager["cost_ns"]["p99"].is_u64(), "{manager}");
    assert_eq!(answer["servers"].as_array().map(Vec::len), Some(2), "{out}");
    assert_eq!(takt(folder, &["sim", "domains.toml", "--for", "200ms", "-o", "sim.takt"]).0, 0);
    for verb in [
        &["stats", "live.takt"][..],
        &["chart", "live.takt"],
        &["report", "live.takt", "-o", "live.html"],
        &["export", "live.takt", "--format", "perfetto", "-o", "live.pftrace"],
    ] {
        let (status, _, error) = takt(folder, verb);
        assert_eq!(status, 0, "{verb:?}: {error}");
    }
    let (status, out, _) = takt(folder, &["stats", "live.takt"]);
    assert!(status == 0 && out.contains("wcps") && out.contains("deferrable"), "{out}");
    // What was measured is charged: a file with these costs is checked with them.
    let charged = DOMAINS.replace(
        "strategy = \"rm\"\n[[component]]\nname = \"high\"",
        "strategy = \"rm\"\ncosts = { release = \"60us\", switch = \"60us\", latency = \"100us\" }\n\
         [[component]]\nname = \"high\"",
    );
    assert_ne!(charged, DOMAINS);
    fs::write(folder.join("charged.toml"), charged).expect("a file");
    let (status, out, error) = takt(folder, &["check", "charged.toml"]);
    assert!(status <= 1, "{out}{error}");
}

/// Ended where a test ends early.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether any process has the folder as its working directory: the run, its threads or its guardian.
fn anyone_in(folder: &Path) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let here = |path: std::path::PathBuf| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder);
    processes.flatten().any(|process| here(process.path()))
}

#[test]
fn a_killed_run_leaves_nothing_at_any_instant() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a path");
    fs::write(folder.join("domains.toml"), DOMAINS).expect("a file");
    let options = options(&folder);
    // 12 instants, and 200 in make soak.
    let count = std::env::var("TAKT_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(12u64).min(200);
    for at in 0..count {
        // From before the threads start to the middle of a run.
        let delay_ms = at * 7919 % 400;
        let arguments = [&["run", "domains.toml", "--for", "5s", "-o", "killed.takt"], options].concat();
        let mut command = Command::new(TAKT);
        command.args(&arguments).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = Ended(command.spawn().expect("takt starts"));
        takt_linux::clock::pause(Span::from_ms(delay_ms));
        run.0.kill().expect("our child, not yet waited for");
        let _ = run.0.wait();
        let mut looks = 0;
        while anyone_in(&folder) && looks < 1000 {
            looks += 1;
            takt_linux::clock::pause(Span::from_ms(10));
        }
        assert!(!anyone_in(&folder), "after a kill {delay_ms} ms later");
    }
    let (status, _, error) = takt(&folder, &[&["run", "domains.toml", "--for", "100ms"], options].concat());
    assert_eq!(status, 0, "{error}");
}
