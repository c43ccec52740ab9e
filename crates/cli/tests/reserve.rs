//! `takt reserve` on this kernel: reservations, their return at every kind of end, and refusals. If
//! this machine cannot, each test says so and passes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::clock::pause;
use takt_linux::group::Place;
use takt_linux::net::Cable;
use takt_linux::process::KillOnDrop;
use takt_linux::sched::Class;
use takt_linux::tracing::class_of;
use takt_model::Span;

use crate::command::{alone, cable, ended, eventually, eventually_or, piped, ran, said, signal};

mod command;

fn takt(arguments: &[&str]) -> Command {
    piped(&["reserve"], arguments)
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    ran(takt(arguments))
}

/// Whether this machine would reserve so little; the reason on the screen where not.
fn can_reserve() -> bool {
    let (status, _, stderr) = run(&["--runtime", "5ms", "--period", "100ms", "--dry-run", "--", "true"]);
    if status != Some(0) {
        println!("skipped: {stderr}");
    }
    status == Some(0)
}

fn alone_to_reserve() -> Option<MutexGuard<'static, ()>> {
    Some(alone()).filter(|_| can_reserve())
}

struct Victim(KillOnDrop);

impl Victim {
    /// Sleeps nearly always, and for longer than all waits of a test. (An ended thread keeps its
    /// class, as if it were never given back.)
    fn sleeper() -> Victim {
        Victim(KillOnDrop(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()))
    }

    fn id(&self) -> u32 {
        self.0.0.id()
    }

    fn class(&self) -> Class {
        class_of(self.id()).unwrap()
    }
}

fn is_reserved(class: Class) -> bool {
    let wanted = [5, 100, 50].map(Span::from_ms);
    matches!(class, Class::Deadline(of) if [of.runtime, of.period, of.deadline] == wanted)
}

/// A takt that holds a reservation for the victim.
fn holding(victim: &Victim) -> Child {
    let id = victim.id().to_string();
    let child = takt(&["--runtime", "5ms", "--deadline", "50ms", "--period", "100ms", "--pid", &id]).spawn().unwrap();
    eventually("reserved", || is_reserved(victim.class()));
    child
}

/// The booked bandwidth of SCHED_DEADLINE, once settled. `None`: the kernel does not tell.
fn booked() -> Option<u64> {
    let mut last = takt_linux::machine::booked()?;
    for _ in 0..40 {
        pause(Span::from_ms(120));
        let now = takt_linux::machine::booked()?;
        if now == last {
            break;
        }
        last = now;
    }
    Some(last)
}

#[test]
fn a_thread_has_its_class_again_after_every_end_of_takt_and_nothing_stays_booked() {
    let Some(_alone) = alone_to_reserve() else { return };
    let victim = Victim::sleeper();
    let before = booked();
    for end in ["-TERM", "-INT", "-HUP", "-USR1", "-KILL"] {
        let mut child = holding(&victim);
        // Asleep for longer than its period: what is demoted then would lose its bandwidth, were it not reduced before.
        pause(Span::from_ms(250));
        signal(&child, end);
        let status = ended(&mut child, end);
        assert_eq!(status.success(), end != "-KILL", "{end}: {status}");
        eventually_or(
            || victim.class() == Class::Other,
            || format!("given back after {end}: it has {:?}, takt said {:?}", victim.class(), said(&mut child)),
        );
    }
    // Other tests of this machine may reserve meanwhile; what this one would have lost is five times 5 %.
    let after = booked();
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after < before + 5 * ((1 << 20) / 20), "{before} were booked, now {after}");
    }
}

#[test]
fn a_command_begins_reserved_and_its_children_do_not() {
    let Some(_alone) = alone_to_reserve() else { return };
    let script = "grep ^policy /proc/$$/sched; sh -c 'grep ^policy /proc/$$/sched; exit 0'; exit 3";
    let (status, stdout, stderr) = run(&["--runtime", "5ms", "--period", "100ms", "--", "sh", "-c", script]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("the command ended with status 3"), "{stderr}");
    let policies: Vec<&str> = stdout.lines().filter(|line| line.starts_with("policy")).collect();
    match policies[..] {
        [first, second] => assert!(first.ends_with(" 6") && second.ends_with(" 0"), "{stdout}"),
        _ => println!("skipped: this kernel has no /proc/PID/sched ({stdout})"),
    }
    assert!(stdout.contains("has ended"), "{stdout}");
}

#[test]
fn signals_reach_the_command_and_takt_stays_as_long_as_it() {
    let Some(_alone) = alone_to_reserve() else { return };
    let script = "trap 'echo got it' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child =
        takt(&["--runtime", "5ms", "--period", "100ms", "--for", "30s", "--", "sh", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    signal(&child, "-TERM");
    assert_eq!(lines.next().unwrap().unwrap(), "got it");
    assert!(child.try_wait().unwrap().is_none(), "it goes on, and so does takt");
    // A signal that cannot be ignored, to the command's own number.
    let command = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    let commands = command.split_ascii_whitespace().filter_map(|id| id.parse::<i32>().ok());
    let shell = commands
        .filter(|id| *id > 1)
        .find(|id| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "sh"));
    match shell {
        Some(shell) => assert!(Command::new("kill").args(["-KILL", &shell.to_string()]).status().unwrap().success()),
        None => println!("skipped: no list of children; --for ends it"),
    }
    assert_eq!(ended(&mut child, "the end of its command").code(), Some(if shell.is_some() { 1 } else { 0 }));
}

#[test]
fn a_thread_that_changes_its_class_keeps_the_new_class() {
    let Some(_alone) = alone_to_reserve() else { return };
    let victim = Victim::sleeper();
    let mut child = holding(&victim);
    let id = victim.id().to_string();
    let Ok(changed) = Command::new("chrt").args(["-b", "-p", "0", &id]).status() else {
        signal(&child, "-TERM");
        ended(&mut child, "-TERM");
        return println!("skipped: there is no chrt");
    };
    assert!(changed.success());
    signal(&child, "-TERM");
    let status = ended(&mut child, "-TERM");
    let said = said(&mut child);
    assert!(status.success(), "{said}");
    assert!(said.contains("another program has given"), "{said}");
    let policy = takt_linux::tracing::threads().into_iter().find(|thread| thread.id == victim.id()).unwrap().policy;
    assert_eq!(policy, 3, "SCHED_BATCH, as it was set");
}

#[test]
fn a_dry_run_changes_nothing_and_json_has_its_keys() {
    let Some(_alone) = alone_to_reserve() else { return };
    let victim = Victim::sleeper();
    let id = victim.id().to_string();
    let asked = ["--json", "--runtime", "5ms", "--period", "100ms", "--pid", &id];
    let (status, stdout, _) = run(&[&asked[..], &["--dry-run"]].concat());
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, victim.class()), (Some(0), Class::Other));
    assert_eq!((&json["dry_run"], &json["threads"][0]["id"]), (&true.into(), &victim.id().into()));
    assert_eq!(json["reservation"]["runtime_ns"], 5_000_000);
    // Booked bandwidth is visible even without debugfs, and nothing is mounted.
    if takt_linux::machine::room().is_some() {
        assert!(json["room"]["booked"].is_number(), "{stdout}");
    }

    let (status, stdout, stderr) = run(&[&asked[..], &["--for", "200ms"]].concat());
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, victim.class()), (Some(0), Class::Other), "{stderr}");
    assert_eq!((&json["over"], &json["threads"][0]["after"]), (&"for".into(), &"restored".into()));
    assert!(json["held_ns"].as_u64().unwrap() >= 200_000_000);
}

/// Runs these commands in a new mount namespace, then `takt reserve --dry-run`, and returns the room that takt tells.
/// `None`: the commands fail. The reason is on the screen.
fn room_after(mounts: &str, id: &str) -> Option<serde_json::Value> {
    let mut command = Command::new("unshare");
    let script = format!("{{ {mounts}; }} || exit 77; exec \"$0\" \"$@\"");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, env!("CARGO_BIN_EXE_takt")]);
    command.args(["reserve", "--json", "--runtime", "5ms", "--period", "100ms", "--pid", id, "--dry-run"]);
    let ran = match command.stdin(Stdio::null()).output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: no unshare(1): {error}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    // unshare itself ends with 1 where it may not.
    if matches!(ran.status.code(), Some(1 | 77)) {
        println!("skipped: debugfs cannot be mounted and unmounted in a namespace: {said}");
        return None;
    }
    assert!(ran.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    Some(json["room"].clone())
}

#[test]
fn booked_bandwidth_is_read_without_a_mounted_debugfs() {
    let Some(_alone) = alone_to_reserve() else { return };
    let victim = Victim::sleeper();
    let id = victim.id().to_string();
    let is_mounted = "grep -q '^[^ ]* [^ ]* debugfs ' /proc/mounts";
    let mounted = format!("{is_mounted} || mount -t debugfs none /sys/kernel/debug");
    // The loop removes all mounts at this place, and the mounts below them.
    let unmounted = format!("while umount -R /sys/kernel/debug 2>&-; do :; done; ! {is_mounted}");
    let Some((seen, own)) = room_after(&mounted, &id).zip(room_after(&unmounted, &id)) else { return };
    if !seen["booked"].is_number() {
        return println!("skipped: this kernel does not tell what is booked: {seen}");
    }
    assert!(own["booked"].is_number() && own["limit"] == seen["limit"], "{own} {seen}");
}

#[test]
fn refusals_say_what_and_what_to_do() {
    let _alone = alone();
    let refused = |arguments: &[&str]| {
        let (status, stdout, stderr) = run(arguments);
        assert_eq!(stdout, "");
        (status.unwrap(), stderr.trim_end().to_owned())
    };
    let own = std::process::id().to_string();
    let on = |runtime, period| refused(&["--runtime", runtime, "--period", period, "--pid", &own]);
    assert_eq!(
        on("50ms", "40ms"),
        (
            2,
            "takt: a runtime of 50ms does not fit into a deadline of 40ms: the kernel wants runtime <= deadline \
             <= period"
                .to_owned()
        )
    );
    assert_eq!(
        on("1us", "40ms"),
        (2, "takt: a runtime of 1us is too short: the kernel takes 1.024us or more".to_owned())
    );
    let gone = refused(&["--runtime", "1ms", "--period", "40ms", "--pid", "4294967295"]);
    assert_eq!(gone, (2, "takt: there is no thread 4294967295; \"ps -eL\" lists all threads (column LWP)".to_owned()));
    let endless = refused(&["--runtime", "1ms", "--period", "40ms", "--for", "0s", "--pid", &own]);
    assert_eq!(endless, (2, "takt: --for is zero; give a duration like 10s".to_owned()));
    let (status, nobody) = refused(&["--runtime", "1ms", "--period", "40ms"]);
    assert!(status == 2 && nobody.contains("--pid <PID>|--irq <NAME>|COMMAND"), "{nobody}");
    if can_reserve() {
        let missing = refused(&["--runtime", "1ms", "--period", "40ms", "--", "/no/such/program"]);
        assert_eq!(missing.0, 2);
        assert!(missing.1.contains("cannot start /no/such/program: No such file or directory"), "{}", missing.1);
    }
}

#[test]
fn a_kernel_thread_that_takes_packets_in_is_reserved_for_by_its_device() {
    let _alone = alone();
    let Some(cable) = cable(true).filter(|_| can_reserve()) else { return };
    let driver = cable.right().driver().unwrap();
    // As interrupt threads have.
    let usual = Class::Fifo { priority: 50 };
    cable.right().schedule_driver(&usual, &[]).unwrap();
    let asked =
        ["--json", "--runtime", "5ms", "--deadline", "50ms", "--period", "100ms", "--irq", cable.right().device()];
    let (status, stdout, stderr) = run(&[&asked[..], &["--for", "200ms"]].concat());
    assert_eq!((status, class_of(driver)), (Some(0), Some(usual)), "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let thread = &json["threads"][0];
    assert_eq!((&thread["id"], &thread["after"]), (&driver.into(), &"restored".into()));
    assert_eq!((&thread["class"], &json["threads"][1]), (&"SCHED_FIFO priority 50".into(), &serde_json::Value::Null));
    for end in ["-TERM", "-KILL"] {
        let mut child = takt(&asked).spawn().unwrap();
        eventually("reserved", || class_of(driver).is_some_and(is_reserved));
        signal(&child, end);
        ended(&mut child, end);
        eventually_or(
            || class_of(driver) == Some(usual),
            || format!("given back after {end}: it has {:?}, takt said {:?}", class_of(driver), said(&mut child)),
        );
    }
}

#[test]
fn an_interrupt_without_a_thread_is_refused_with_a_reason() {
    let refused = |name: &str| {
        let (status, stdout, stderr) = run(&["--runtime", "1ms", "--period", "40ms", "--dry-run", "--irq", name]);
        assert_eq!(stdout, "");
        (status.unwrap(), stderr)
    };
    let (status, nobody) = refused("no such interrupt");
    assert!(status == 2 && nobody.contains("/proc/interrupts lists interrupts"), "{nobody}");
    let (status, softirq) = refused("NET_RX");
    assert!(status == 3 && softirq.contains("is a softirq"), "{softirq}");
    let threads = takt_linux::tracing::threads();
    let has_thread = |number: u32| threads.iter().any(|thread| thread.name.starts_with(&format!("irq/{number}-")));
    match takt_linux::tracing::interrupts().into_iter().find(|interrupt| !has_thread(interrupt.number)) {
        Some(interrupt) => {
            let (status, without) = refused(&interrupt.number.to_string());
            assert!(status == 3 && without.contains("has no thread") && without.contains("PREEMPT_RT"), "{without}");
        }
        None => println!("skipped: all interrupts of this machine have threads"),
    }
}

fn group_of(id: u32) -> Option<PathBuf> {
    Place::of(id).ok().map(|place| place.folder)
}

/// Whether this machine has groups to make, for this user; the reason on the screen where not.
fn can_limit() -> bool {
    let (status, _, stderr) = run(&["--budget", "cgroup", "--runtime", "5ms", "--period", "100ms", "--", "true"]);
    if status != Some(0) {
        println!("skipped: {stderr}");
    }
    status == Some(0)
}

const LIMIT: [&str; 6] = ["--budget", "cgroup", "--runtime", "5ms", "--period", "100ms"];

#[test]
fn a_thread_is_in_its_group_again_after_every_end_of_takt_and_no_group_stays() {
    let _alone = alone();
    if !can_limit() {
        return;
    }
    let victim = Victim::sleeper();
    // On one CPU, where SCHED_DEADLINE does not take it.
    let _ = Command::new("taskset").args(["-p", "1", &victim.id().to_string()]).stdout(Stdio::null()).status();
    let home = group_of(victim.id()).unwrap();
    for end in ["-TERM", "-INT", "-KILL"] {
        let mut child = takt(&[&LIMIT[..], &["--pid", &victim.id().to_string()]].concat()).spawn().unwrap();
        eventually("limited", || group_of(victim.id()) != Some(home.clone()));
        let group = group_of(victim.id()).unwrap();
        assert_eq!(group.parent(), Some(home.as_path()));
        signal(&child, end);
        let status = ended(&mut child, end);
        assert_eq!(status.success(), end != "-KILL", "{end}: {status}");
        eventually_or(
            || group_of(victim.id()) == Some(home.clone()) && !group.exists(),
            || {
                format!(
                    "moved back after {end}: it is in {:?}, takt said {:?}",
                    group_of(victim.id()),
                    said(&mut child)
                )
            },
        );
    }
}

#[test]
fn a_command_is_limited_with_its_children_and_what_of_it_stays_is_moved_back() {
    let _alone = alone();
    if !can_limit() {
        return;
    }
    let home = group_of(std::process::id()).unwrap();
    let script = "sleep 8 <&- >&- 2>&- & end=$(($(date +%s%N) + 700000000)); while [ $(date +%s%N) -lt $end ]; \
         do :; done; echo $!; cat /proc/self/cgroup";
    let (status, stdout, stderr) = run(&[&["--json"], &LIMIT[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(status, Some(0), "{stderr}");
    let (said, json) = stdout.split_once("\n{").unwrap();
    let json: serde_json::Value = serde_json::from_str(&format!("{{{json}")).unwrap();
    let (sleeper, groups) = said.split_once('\n').unwrap();
    assert!(groups.contains("/takt-"), "a child of the command: {groups}");
    assert_eq!(group_of(sleeper.parse().unwrap()), Some(home.clone()), "it outlived the command");
    let left =
        fs::read_dir(&home).unwrap().flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("takt-"));
    println!("{} groups of others", left.count());
    assert_eq!((&json["reservation"]["budget"], &json["leaked"]), (&"cgroup".into(), &serde_json::Value::Null));
    let throttled = &json["threads"][0]["throttled"];
    // It wants a whole CPU and may have a twentieth.
    assert!(
        throttled["throttled"].as_u64().unwrap() >= 2 && throttled["periods"].as_u64().unwrap() >= 3,
        "{throttled}"
    );
}

#[test]
fn options_without_a_counterpart_in_control_groups_are_refused() {
    let own = std::process::id().to_string();
    for option in [&["--reclaim"][..], &["--all-cpus"], &["--deadline", "40ms"]] {
        let (status, stdout, stderr) = run(&[&LIMIT[..], option, &["--pid", &own]].concat());
        assert_eq!((status, stdout.as_str()), (Some(2), ""));
        assert!(stderr.contains("is for SCHED_DEADLINE, and a control group has no counterpart"), "{stderr}");
    }
}

/// Not a test: a program that works 2 to 3 ms every 20 ms and drops late periods, or works all the
/// time. For 40 s at most.
#[test]
fn player() {
    let Some(role) = std::env::var_os(PLAYER) else { return };
    if role == "busy" {
        let epoch = takt_linux::Epoch::now_is_zero();
        while epoch.now() < takt_model::Time::ZERO.saturating_add(Span::from_s(40)) {}
        return;
    }
    println!("thread {}", takt_linux::thread::Tid::current().get());
    let epoch = takt_linux::Epoch::now_is_zero();
    let mut arrival = takt_model::Time::ZERO;
    let ended = takt_model::Time::ZERO.saturating_add(Span::from_s(40));
    for job in 0u64.. {
        arrival = arrival.saturating_add(PERIOD);
        while epoch.now() > arrival.saturating_add(PERIOD) {
            arrival = arrival.saturating_add(PERIOD);
        }
        if arrival > ended {
            return;
        }
        while !epoch.sleep_until(arrival) {}
        // The finalizer of SplitMix64: nothing of one is seen in the next.
        let mixed = (job.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let work = Span::from_us(2000 + (mixed ^ mixed >> 31) % 1000);
        let until = takt_linux::clock::thread_cpu().saturating_add(work);
        while takt_linux::clock::thread_cpu() < until {}
    }
}

const PLAYER: &str = "TAKT_TEST_PLAYER";
const PERIOD: Span = Span::from_ms(20);

struct Player {
    process: KillOnDrop,
    thread: String,
}

impl Player {
    fn start() -> Player {
        let mut process = KillOnDrop(helper("player").stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let thread = lines.find_map(|line| Some(line.split_once("thread ")?.1.to_owned())).unwrap();
        Player { process, thread }
    }
}

/// This program again, as [`player`].
fn helper(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["player", "--exact", "--nocapture", "--test-threads=1"]).env(PLAYER, role);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Ordinary work that leaves nobody a CPU for himself.
fn load() -> Vec<KillOnDrop> {
    let count = 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..count).map(|_| KillOnDrop(helper("busy").spawn().unwrap())).collect()
}

#[test]
fn auto_finds_the_period_and_a_disturbed_thread_misses_no_more_than_before() {
    let Some(_alone) = alone_to_reserve() else { return };
    let player = Player::start();
    let id: u32 = player.thread.parse().unwrap();
    let _load = load();
    for attempt in 1.. {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
        command.args("--json reserve --auto --probability 0.9 --observe 3s --for 2s --pid".split(' '));
        let output = command.arg(&player.thread).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A machine that pauses for long hides a period; not each time.
        if attempt < 5 && said.contains("is not periodic") {
            assert_eq!((output.status.code(), class_of(id)), (Some(1), Some(Class::Other)), "{said}");
            continue;
        }
        let refused = ["it takes", "usually up to"].iter().any(|why| said.contains(why));
        if output.status.code() == Some(3) || (output.status.code() == Some(1) && refused) {
            assert_eq!(class_of(id), Some(Class::Other), "nothing is applied where nothing is known");
            return println!("skipped: {said}");
        }
        assert!(output.status.success(), "{said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["sized"]["period_ns"], PERIOD.as_ns());
        assert!(json["sized"]["in_time"].as_f64().unwrap() >= 0.9);
        let runtime = json["reservation"]["runtime_ns"].as_u64().unwrap();
        assert!(runtime >= 2_000_000 && runtime <= json["reservation"]["period_ns"].as_u64().unwrap());
        let share = |of: &serde_json::Value| of["missed"].as_f64().unwrap() / of["jobs"].as_f64().unwrap().max(1.0);
        println!("{:#}\n{:#}", json["before"], json["after"]);
        assert_eq!((&json["threads"][0]["after"], class_of(id)), (&"restored".into(), Some(Class::Other)));
        let jobs = json["after"]["jobs"].as_u64().unwrap();
        // A machine that pauses for long has few jobs; not each time.
        if attempt < 5 && jobs <= 20 {
            continue;
        }
        assert!(jobs > 20, "{json:#}");
        // A machine that pauses more in one half than in the other says nothing.
        if share(&json["after"]) <= share(&json["before"]) {
            break;
        }
        assert!(attempt < 5, "{:#}\n{:#}", json["before"], json["after"]);
    }
    drop(player.process);
}

#[test]
fn auto_limits_by_a_control_group_what_sched_deadline_cannot_take() {
    let _alone = alone();
    if !can_reserve() || !can_limit() {
        return;
    }
    if takt_linux::sched::affinity().len() < 2 {
        return println!("skipped: of one CPU no thread is excluded from others");
    }
    let player = Player::start();
    let id: u32 = player.thread.parse().unwrap();
    let pinned = Command::new("taskset").args(["-pc", "0", &player.thread]).stdout(Stdio::null()).status().unwrap();
    assert!(pinned.success());
    let before = group_of(id).unwrap();
    let auto = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
        command.args(["--json", "reserve", "--auto", "--probability", "0.9", "--observe", "2s", "--for", "2s"]);
        command.args(more).arg("--pid").arg(&player.thread).stdin(Stdio::null()).output().unwrap()
    };
    for attempt in 1.. {
        let output = auto(&[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((class_of(id), group_of(id).as_ref()), (Some(Class::Other), Some(&before)), "{said}");
        if output.status.code() == Some(1) && attempt < 5 {
            // A machine that pauses for long hides a period; not each time.
            println!("once more: {said}");
            continue;
        }
        assert!(output.status.success(), "{said}");
        assert!(said.contains("so a control group limits it instead (--budget deadline refuses that)"), "{said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let (wish, sized) = (&json["reservation"], &json["sized"]);
        assert_eq!((&wish["budget"], &wish["deadline_ns"]), (&"cgroup".into(), &serde_json::Value::Null));
        assert_eq!(sized["period_ns"], PERIOD.as_ns());
        assert!(json["notes"][0].as_str().unwrap().contains("may use CPUs 0 only"), "{}", json["notes"]);
        assert_eq!(json["threads"][0]["after"], "restored");
        assert!(json["threads"][0]["throttled"]["periods"].as_u64().unwrap() > 10, "{json:#}");
        assert!(json["after"]["jobs"].as_u64().unwrap() > 20);
        break;
    }
    for attempt in 1.. {
        let output = auto(&["--budget", "deadline", "--dry-run"]);
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(1) && attempt < 5 {
            continue;
        }
        assert!(output.status.code() == Some(3) && said.contains("--budget cgroup"), "{said}");
        break;
    }
    drop(player.process);
}

fn send(cable: &Cable, over: &AtomicBool) {
    cable.left().enter().unwrap();
    // So that packets are in time beside other work.
    let _class = takt_linux::ClassGuard::enter(&Class::Fifo { priority: 51 });
    let socket = UdpSocket::bind((cable.left().address(), 0)).unwrap();
    let epoch = takt_linux::Epoch::now_is_zero();
    let mut next = takt_model::Time::ZERO;
    while !over.load(Ordering::Relaxed) {
        next = next.saturating_add(Span::from_ms(10));
        while !epoch.sleep_until(next) {}
        // Nobody listens: what that answers is of no concern.
        let _ = socket.send_to(b"packet", (cable.right().address(), 7000));
    }
}

#[test]
fn auto_sizes_for_a_kernel_thread_that_takes_packets_in() {
    let _alone = alone();
    let Some(cable) = cable(true).filter(|_| can_reserve()) else { return };
    let driver = cable.right().driver().unwrap();
    // Beside other work it would be late as an ordinary one.
    let usual = Class::Fifo { priority: 50 };
    cable.right().schedule_driver(&usual, &[]).unwrap();
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| send(&cable, &over));
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
        command.args("--json reserve --auto --probability 0.9 --observe 3s --for 2s --irq".split(' '));
        let output = command.arg(cable.right().device()).stdin(Stdio::null()).output();
        over.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(class_of(driver), Some(usual), "{said}");
    if matches!(output.status.code(), Some(1 | 3)) {
        return println!("skipped: {said}");
    }
    assert!(output.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let period = json["sized"]["period_ns"].as_u64().unwrap();
    assert!(period.abs_diff(10_000_000) < 100_000, "{period}");
    assert_eq!((&json["threads"][0]["id"], &json["threads"][0]["after"]), (&driver.into(), &"restored".into()));
    println!("{:#}\n{:#}", json["before"], json["after"]);
}

#[test]
fn auto_applies_nothing_where_it_knows_nothing() {
    let Some(_alone) = alone_to_reserve() else { return };
    let victim = Victim::sleeper();
    let id = victim.id().to_string();
    let (status, stdout, stderr) = run(&["--auto", "--observe", "300ms", "--pid", &id]);
    assert_eq!((stdout.as_str(), victim.class()), ("", Class::Other));
    if status == Some(3) {
        return println!("skipped: {stderr}");
    }
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("did not release a job in") && stderr.contains("it slept"), "{stderr}");
}
