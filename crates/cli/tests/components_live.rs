//! Components under `takt run` on this kernel: the log in every consumer, and a process that is killed.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use takt_linux::process::{Identity, KillOnDrop};
use takt_model::Span;

use crate::command::{TAKT, each_miss_has_a_cause, eventually, read_by_every_verb, succeeds, takt};
use crate::instants::{Instants, kills};

mod command;
#[path = "command/instants.rs"]
mod instants;

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
    let (out, _) = succeeds(folder, &run);
    let charged = out.contains("check charges this with costs");
    assert!(out.contains("manager of cpu") && charged == options.is_empty(), "{out}");
    let (out, _) = succeeds(folder, &[&run[..], &["--json"]].concat());
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let manager = &answer["managers"][0];
    assert!(manager["decisions"].as_u64() > Some(0) && manager["cost_ns"]["p99"].is_u64(), "{manager}");
    assert_eq!(answer["servers"].as_array().map(Vec::len), Some(2), "{out}");
    succeeds(folder, &["sim", "domains.toml", "--for", "200ms", "-o", "sim.takt"]);
    read_by_every_verb(folder);
    let (out, _) = succeeds(folder, &["stats", "live.takt"]);
    assert!(out.contains("wcps") && out.contains("deferrable"), "{out}");
    // A file with the measured costs: `check` charges them.
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

/// A run prints its costs. The file gets them, and is sized, checked and run again. No job is then late by load: each
/// late one has a cause with a name.
#[test]
fn components_that_pass_check_with_measured_costs_are_not_late_by_their_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("domains.toml"), DOMAINS).expect("a file");
    if !options(folder).is_empty() {
        return println!("skipped: without the privilege no costs are printed");
    }
    for _ in 0..10 {
        let (out, _) = succeeds(folder, &["run", "domains.toml", "--for", "200ms"]);
        let costs = out.lines().find_map(|line| line.strip_prefix("check charges this with ")).expect("costs");
        let head = "strategy = \"rm\"\n[[component]]\nname = \"high\"";
        // Five times as long, so that a slow machine's costs fit in as well.
        let times = [("20ms", "100ms"), ("40ms", "200ms"), ("\"2ms", "\"10ms"), ("\"8ms", "\"40ms")];
        let longer = times.iter().fold(DOMAINS.to_owned(), |text, (from, to)| text.replace(from, to));
        let charged = longer
            .replace(head, &format!("{costs}\n{head}"))
            .replace("budget = \"6ms\"", "budget = \"auto\"")
            .replace("budget = \"12ms\"", "budget = \"auto\"")
            .replace("offset = \"4ms\"\n", "");
        fs::write(folder.join("charged.toml"), &charged).expect("a file");
        let (status, sized, error) = takt(folder, &["size", "charged.toml", "-o", "sized.toml"]);
        if status == 1 {
            println!("decisions cost too much on this machine now: {costs}: {sized}");
            continue;
        }
        assert_eq!(status, 0, "{charged}: {sized}{error}");
        let (status, checked, error) = takt(folder, &["check", "sized.toml"]);
        assert_eq!(status, 0, "{sized}: {checked}{error}");
        let (out, _) = succeeds(folder, &["run", "sized.toml", "--for", "2s", "--json"]);
        let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        let tasks = answer["tasks"].as_array().expect("tasks");
        assert!(tasks.len() == 2 && tasks.iter().all(|task| task["completed"].as_u64() > Some(0)), "{out}");
        if answer["recorded"].is_null() {
            return println!("skipped: the kernel is not recorded, so the causes of late jobs are unknown");
        }
        return each_miss_has_a_cause(&answer, &format!("{costs}: {sized}{out}"));
    }
    println!("skipped: decisions cost too much on this machine now");
}

/// Whether this process is a guardian of the run: it gets `--takt-..-guardian` and the name of a thing of its owner,
/// `PREFIX-PID-START-NUMBER`.
fn guards(process: &Path, run: Identity) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let arguments: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let [_, what, name, ..] = &arguments[..] else { return false };
    what.ends_with("-guardian") && name.contains(&format!("-{}-{}-", run.pid, run.start))
}

fn any_process(is_so: impl Fn(&Path) -> bool) -> bool {
    fs::read_dir("/proc").expect("/proc").flatten().any(|process| is_so(&process.path()))
}

/// Whether a process is left of the run: one that works in its folder, or a guardian. A guardian works in `/`.
fn is_left(folder: &Path, run: Identity) -> bool {
    let is_here = |path: &Path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder);
    any_process(|path| is_here(path) || guards(path, run))
}

#[test]
fn a_killed_run_leaves_nothing_at_any_instant() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a path");
    fs::write(folder.join("domains.toml"), DOMAINS).expect("a file");
    let options = options(&folder);
    // Only a run that records the kernel has a guardian.
    let (out, _) = succeeds(&folder, &[&["run", "domains.toml", "--for", "20ms", "--json"], options].concat());
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let is_recorded = !answer["recorded"].is_null();
    if !is_recorded {
        println!("without a recording no guardian is there to be left");
    }
    // 12 instants, and 200 in make soak.
    let mut instants = Instants::new();
    for (at, signal) in kills(12).enumerate() {
        // From before the threads start to the middle of a run.
        let delay = instants.below_ms(400);
        let arguments = [&["run", "domains.toml", "--for", "5s", "-o", "killed.takt"], options].concat();
        let mut command = Command::new(TAKT);
        command.args(&arguments).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = KillOnDrop(command.spawn().expect("takt starts"));
        let id = Identity::of(run.0.id()).expect("our child, not yet waited for");
        if is_recorded && at == 0 {
            // So the look after a kill can see one.
            eventually("the run has a guardian", || any_process(|path| guards(path, id)));
        }
        takt_linux::clock::pause(delay);
        takt_linux::process::signal(&mut run.0, signal);
        let _ = run.0.wait();
        eventually(&format!("nothing is left of a kill {delay} later"), || !is_left(&folder, id));
    }
    succeeds(&folder, &[&["run", "domains.toml", "--for", "100ms"], options].concat());
}

const BASE: &str = r#"
takt = 1
name = "base"
[[node]]
name = "n1"
strategy = "edf"
[[component]]
name = "own"
server = "ptps"
strategy = "edf"
period = "20ms"
budget = "6ms"
[[task]]
name = "control"
component = "own"
period = "200ms"
wcet = "2ms"
"#;

fn component(name: &str, budget_ms: u32) -> String {
    format!(
        "takt = 1\n[[component]]\nname = \"{name}\"\nserver = \"ptps\"\nperiod = \"20ms\"\n\
         budget = \"{budget_ms}ms\"\n[[task]]\nname = \"task of {name}\"\ncomponent = \"{name}\"\n\
         period = \"200ms\"\nwcet = \"2ms\"\n"
    )
}

/// A run that listens at `takt.sock`, for so long at most.
fn listening(folder: &Path, time: &str) -> KillOnDrop {
    let (status, ..) = takt(folder, &["run", "base.toml", "--for", "20ms"]);
    let options: &[&str] = if status == 0 { &[] } else { &["--best-effort"] };
    let arguments = [&["run", "base.toml", "--for", time, "--admit", "takt.sock", "-o", "base.takt"], options].concat();
    let mut command = Command::new(TAKT);
    command.args(&arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = KillOnDrop(command.spawn().expect("takt starts"));
    let begun = || takt(folder, &["admit", "--live", "takt.sock", "--remove", "nobody"]);
    let mut answer = begun();
    while answer.0 == 3 {
        if let Some(status) = run.0.try_wait().expect("our child") {
            let mut why = String::new();
            let _ = run.0.stderr.take().map(|mut from| from.read_to_string(&mut why));
            panic!("the run ended before it listened: {status}: {why}");
        }
        takt_linux::clock::pause(Span::from_ms(10));
        answer = begun();
    }
    assert!(answer.0 == 2 && answer.2.contains("no component \"nobody\""), "{answer:?}");
    run
}

fn locked_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")?.strip_suffix("kB"));
    locked.and_then(|kib| kib.trim().parse().ok()).unwrap_or(0)
}

/// The server has its old budget until its period ends. A decision before would count on the new one.
#[test]
fn a_mode_that_its_server_does_not_obey_yet_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let slow = "[[component]]\nname = \"slow\"\nserver = \"deferrable\"\nperiod = \"100s\"\nbudget = \"1s\"\n\
        [[mode]]\nat = \"1ms\"\ncomponent = \"slow\"\nbudget = \"2s\"\n";
    fs::write(folder.join("base.toml"), format!("{BASE}{slow}")).expect("a file");
    let _run = listening(folder, "60s");
    takt_linux::clock::pause(Span::from_ms(500));
    let (status, out, error) = takt(folder, &["admit", "--live", "takt.sock", "--change", "own", "--budget", "5ms"]);
    assert!(status == 1 && out.contains("component \"slow\" still changes"), "{out}{error}");
}

#[test]
fn components_join_and_leave_a_run_by_its_socket() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("base.toml"), BASE).expect("a file");
    // The task's memory is locked as it joins.
    fs::write(folder.join("camera.toml"), component("camera", 4) + "wss = \"16MiB\"\n").expect("a file");
    fs::write(folder.join("vast.toml"), component("vast", 1) + "wss = \"9000000GiB\"\n").expect("a file");
    fs::write(folder.join("radar.toml"), component("radar", 3)).expect("a file");
    fs::write(folder.join("huge.toml"), component("huge", 19)).expect("a file");
    fs::write(folder.join("wrong.toml"), "[[component]]\nname = 3\n").expect("a file");
    fs::write(folder.join("grid.toml"), component("grid", 1).replacen("budget", "quantum = \"1ms\"\nbudget", 1))
        .expect("a file");
    let admit = |more: &[&str]| takt(folder, &[&["admit", "--live", "takt.sock"], more].concat());
    let (status, _, error) = admit(&["--add", "camera.toml"]);
    assert!(status == 3 && error.contains("--admit"), "{error}");
    // The client refuses these by itself: nobody listens yet.
    for zero in [["--budget", "0ms"], ["--period", "0ms"]] {
        let (status, _, error) = admit(&[&["--change", "own"][..], &zero].concat());
        assert!(status == 2 && error.contains(zero[0]) && error.contains("--remove"), "{error}");
    }
    let (status, out, error) = admit(&["--remove", "own", "--json", "-o", "-"]);
    assert!(status == 2 && out.is_empty() && error.contains("standard output"), "{out}{error}");
    let enforced = takt(folder, &["run", "base.toml", "--for", "20ms"]).0 == 0;
    let mut run = listening(folder, "60s");
    let mode = fs::metadata(folder.join("takt.sock")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Clients that send nothing, or what is no request, harm nobody.
    let silent = takt_linux::seqpacket::Connection::connect(&folder.join("takt.sock")).expect("a connection");
    let wrong = takt_linux::seqpacket::Connection::connect(&folder.join("takt.sock")).expect("a connection");
    wrong.send([&[9, 9, 9], &[]], None);
    let gone = takt_linux::seqpacket::Connection::connect(&folder.join("takt.sock")).expect("a connection");
    gone.send([&[1, 3, b'x'], &[]], None);
    drop(gone);
    // A refusal changes nothing.
    let (status, out, error) = admit(&["--add", "huge.toml"]);
    assert!(status == 1 && out.contains("not admitted"), "{out}{error}");
    let (status, out, error) = admit(&["--add", "huge.toml", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(status == 1 && answer["admitted"] == false && answer["at_ns"].is_null(), "{out}{error}");
    let (status, out, error) = admit(&["--add", "huge.toml", "-o", "-"]);
    assert!(status == 1 && out.is_empty() && error.contains("not admitted"), "{out}{error}");
    let (status, out, error) = admit(&["--add", "vast.toml"]);
    assert!(status == 1 && out.contains("lower wss"), "{out}{error}");
    let (status, _, error) = admit(&["--add", "wrong.toml"]);
    assert!(status == 2 && error.contains("nothing was changed"), "{error}");
    let (status, _, error) = admit(&["--add", "grid.toml"]);
    assert!(status == 3 && error.contains("quantum"), "{error}");
    // What decisions cost is charged. A machine may be too busy at the start to admit anything.
    let mut looks = 0;
    while admit(&["--change", "own", "--budget", "7ms"]).0 == 1 {
        looks += 1;
        if looks > 100 {
            return println!("skipped: decisions cost too much on this machine now");
        }
        takt_linux::clock::pause(Span::from_ms(50));
    }
    let locked = locked_kib(run.0.id());
    // Two clients at once: each has its answer.
    let both: Vec<_> = std::thread::scope(|scope| {
        let ask = |file: &'static str| scope.spawn(move || admit(&["--add", file]));
        [ask("camera.toml"), ask("radar.toml")].map(|thread| thread.join().expect("no panic")).into()
    });
    for (status, out, error) in &both {
        assert!(*status <= 1 && out.contains("admitted"), "{out}{error}");
    }
    if let Some((_, out, _)) = both.iter().find(|(status, ..)| *status == 1) {
        println!("{out}");
        return println!("skipped: decisions cost too much on this machine now");
    }
    if enforced && locked > 0 {
        let now = locked_kib(run.0.id());
        assert!(now > locked + 8 * 1024, "{locked} KiB were locked before, and {now} KiB are now");
    }
    let (status, _, error) = admit(&["--add", "camera.toml"]);
    assert!(status == 2 && error.contains("camera"), "{error}");
    let (status, out, error) = admit(&["--change", "camera", "--budget", "5ms", "--json", "-o", "now.toml"]);
    if status == 1 {
        return println!("skipped: decisions cost too much on this machine now");
    }
    assert_eq!(status, 0, "{error}");
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(answer["since_ns"].as_u64() >= answer["at_ns"].as_u64(), "{answer}");
    let now = fs::read_to_string(folder.join("now.toml")).expect("the running system");
    assert!(now.contains("5ms") && now.contains("radar"), "{now}");
    assert_eq!(takt(folder, &["check", "now.toml"]).0, 0);
    let (status, _, error) = admit(&["--change", "camera"]);
    assert!(status == 2 && error.contains("--budget"), "{error}");
    let (status, out, error) = admit(&["--remove", "camera"]);
    assert!(status == 0 && out.contains("removed camera"), "{out}{error}");
    let (status, out, error) = admit(&["--change", "own", "--rule", "polling", "-o", "now.toml"]);
    assert!(status <= 1, "{out}{error}");
    let rule = if status == 0 { "polling" } else { "ptps" };
    if status == 0 {
        let now = fs::read_to_string(folder.join("now.toml")).expect("the running system");
        let own = now.split("[[component]]").find(|part| part.contains("name = \"own\"")).expect("the component");
        assert!(own.contains("server = \"polling\""), "{now}");
    } else {
        println!("skipped: another rule, for decisions cost too much on this machine now: {out}");
    }
    drop(silent);
    let stop = Command::new("kill").arg(run.0.id().to_string()).status().expect("kill starts");
    assert!(stop.success() && run.0.wait().expect("it ends").success());
    assert!(!folder.join("takt.sock").exists());
    let (out, _) = succeeds(folder, &["stats", "base.takt"]);
    for name in ["camera", "radar", "task of camera", "task of radar"] {
        assert!(out.contains(name), "{out}");
    }
    let (out, _) = succeeds(folder, &["stats", "base.takt", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let servers = answer["servers"].as_array().expect("servers");
    let own = servers.iter().find(|server| server["server"] == "own").expect("the server");
    assert_eq!(own["rule"], rule, "{out}");
    for verb in [&["chart", "base.takt"][..], &["report", "base.takt", "-o", "base.html"]] {
        succeeds(folder, verb);
    }
}

#[test]
fn a_run_that_is_killed_during_a_join_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a path");
    fs::write(folder.join("base.toml"), BASE).expect("a file");
    fs::write(folder.join("camera.toml"), component("camera", 4)).expect("a file");
    for delay_ms in [0, 5, 15, 30] {
        let mut run = listening(&folder, "60s");
        let mut client = Command::new(TAKT);
        client.args(["admit", "--live", "takt.sock", "--add", "camera.toml"]).current_dir(&folder);
        let mut client = KillOnDrop(client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("takt starts"));
        takt_linux::clock::pause(Span::from_ms(delay_ms));
        let id = Identity::of(run.0.id()).expect("our child, not yet waited for");
        run.0.kill().expect("our child, not yet waited for");
        let _ = run.0.wait();
        let asked = client.0.wait().expect("it ends").code();
        assert!(matches!(asked, Some(0 | 1 | 3 | 4)), "{asked:?}");
        eventually(&format!("nothing is left of a kill {delay_ms} ms later"), || !is_left(&folder, id));
    }
}
