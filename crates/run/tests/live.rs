//! Runs on the real kernel. Each takes less than two seconds; where a privilege is missing it says so and passes.
//!
//! Nothing here asserts a wall-clock time: what is asserted holds however slow the machine is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use takt_linux::cpuset::{Recovery, recover};
use takt_linux::sched;
use takt_log::{Event, JobKey};
use takt_model::{Arrival, Builtin, Bytes, CpuSet, Exec, Placement, Span, System, Task, TaskId, Time};
use takt_run::{RunError, RunOptions, RunSummary, prepare, run};

mod common;
use common::{Events, alone, check, ms, or_skipped};

/// A run, or `None` and the reason on the screen.
fn try_run(system: &System, options: &RunOptions) -> Option<(RunSummary, Events)> {
    let mut events = Events::new();
    let ran = run(system, options, &mut events);
    let summary = or_skipped(ran, |error| matches!(error, RunError::Privilege { .. } | RunError::Cpus { .. }))?;
    println!("{summary:#?}");
    Some((summary, events))
}

fn task(name: &str, period_ms: u64, wcet_us: u64) -> Task {
    Task::periodic(name, ms(period_ms), Span::from_us(wcet_us))
}
fn on(name: &str, cpu: u32, period_ms: u64, wcet_us: u64) -> Task {
    Task { cpus: Some(CpuSet::range(cpu, cpu + 1)), ..task(name, period_ms, wcet_us) }
}

fn released(events: &Events, task: u32) -> usize {
    events.iter().filter(|(_, _, event)| matches!(event, Event::Release { job, .. } if job.task.0 == task)).count()
}

#[test]
fn rate_monotonic_tasks_run_under_sched_fifo() {
    let _alone = alone();
    let slow = Task { wss: Bytes::new(64 * 1024), ..task("slow", 20, 2000) };
    let system = System::local(1, Builtin::Rm, vec![slow, task("fast", 5, 300)]);
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(300))) else { return };
    check(&system, &summary, &events);
    assert_eq!((summary.end, summary.interrupted), (Time::from_ns(300_000_000), None));
    assert_eq!((released(&events, 0), released(&events, 1)), (15, 60), "as many as the periods say");
    assert_eq!(summary.tasks[0].class, "SCHED_FIFO priority 47");
    assert_eq!(summary.tasks[1].class, "SCHED_FIFO priority 48");
}

#[test]
fn best_effort_needs_no_privilege_and_draws_as_a_simulation_does() {
    let _alone = alone();
    let exec = Exec::Uniform { min: Span::from_us(100), max: Span::from_us(900) };
    let sporadic = Task { arrival: Arrival::Sporadic, jitter: ms(1), exec, ..task("s", 10, 1000) };
    let system = System::local(1, Builtin::Fifo, vec![sporadic.clone()]);
    let options = RunOptions { best_effort: true, seed: 7, ..RunOptions::new(ms(200)) };
    let (summary, events) = try_run(&system, &options).unwrap();
    check(&system, &summary, &events);
    assert_eq!(summary.tasks[0].class, "SCHED_OTHER");
    assert!(summary.notes.iter().any(|note| note.starts_with("best effort")));
    let draw = takt_model::draw::Draw::new(7, "s");
    let drawn: Vec<Time> = takt_model::draw::Arrivals::new(&sporadic, draw)
        .take_while(|next| next.release < Time::from_ns(200_000_000))
        .map(|next| next.arrival)
        .collect();
    let arrivals: Vec<Time> = events
        .iter()
        .filter_map(|(_, _, event)| if let Event::Release { arrival, .. } = event { Some(*arrival) } else { None })
        .collect();
    assert_eq!(arrivals, drawn);
}

#[test]
fn a_backlog_keeps_its_nominal_arrivals_and_no_job_is_skipped() {
    let _alone = alone();
    let greedy = Task { exec: Exec::Uniform { min: ms(30), max: ms(30) }, ..task("greedy", 10, 1000) };
    let system = System::local(1, Builtin::Rm, vec![greedy]);
    let refused = run(&system, &RunOptions::new(ms(100)), &mut Events::new()).unwrap_err();
    assert!(matches!(refused, RunError::Overload { used: 300, .. }), "{refused}");
    let options = RunOptions { best_effort: true, ..RunOptions::new(ms(100)) };
    let (summary, events) = try_run(&system, &options).unwrap();
    check(&system, &summary, &events);
    assert_eq!(released(&events, 0), 10, "all are released, however few were run");
    assert!(summary.tasks[0].completed <= 3);
}

/// The last jobs are released while the task's first one waits, and nothing is released after them.
#[test]
fn a_backlog_is_worked_off_after_the_last_release() {
    let _alone = alone();
    let first = Task { priority: Some(1), ..task("first", 1600, 820_000) };
    let behind = Task { priority: Some(2), ..task("behind", 800, 30_000) };
    let system = System::local(1, Builtin::Fp, vec![first, behind]);
    let options = RunOptions::new(ms(1600));
    let Some((summary, events)) = try_run(&system, &options) else { return };
    let of = |wanted: fn(&Event) -> Option<JobKey>| {
        events.iter().filter(move |(_, _, event)| wanted(event).is_some_and(|job| job.task.0 == 1))
    };
    let started = of(|event| if let Event::Start { job, .. } = event { Some(*job) } else { None }).count();
    let completed = of(|event| if let Event::Complete { job, .. } = event { Some(*job) } else { None });
    let last = completed.map(|(_, at, _)| *at).max();
    // A machine that pauses may leave it no time.
    let in_time = last.is_some_and(|last| last.saturating_add(ms(500)) < summary.end);
    assert!(started == 2 || !in_time, "{started} of 2 jobs started, the last completion at {last:?}");
}

#[test]
fn chains_hand_on_from_thread_to_thread() {
    let _alone = alone();
    let after =
        |name: &str, after: Vec<u32>| Task { after: after.into_iter().map(TaskId).collect(), ..task(name, 10, 200) };
    let tasks = vec![task("a", 10, 200), task("b", 10, 400), after("join", vec![0, 1]), after("end", vec![2])];
    let system = System::local(1, Builtin::Dm, tasks);
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(200))) else { return };
    check(&system, &summary, &events);
    let mut completed: BTreeMap<JobKey, Time> = BTreeMap::new();
    for (_, at, event) in &events {
        match *event {
            Event::Complete { job, .. } => drop(completed.insert(job, *at)),
            Event::Release { job, arrival, parent } if job.task.0 >= 2 => {
                let before: &[u32] = if job.task.0 == 2 { &[0, 1] } else { &[2] };
                let last = before.iter().map(|task| completed[&JobKey { task: TaskId(*task), ..job }]).max();
                assert_eq!((Some(*at), Some(arrival)), (last, last), "released when the last predecessor completed");
                let parent = parent.unwrap();
                assert_eq!(parent.hop, job.task.0 - 1);
                assert_eq!(parent.origin.as_ns(), job.number * 10_000_000);
            }
            _ => {}
        }
    }
    assert_eq!(released(&events, 3) as u64, summary.tasks[2].completed, "each completion is handed on, once");
}

#[test]
fn edf_runs_under_sched_deadline_on_the_whole_machine() {
    let _alone = alone();
    let cpus = sched::affinity().len() as u32;
    let system = System::local(cpus, Builtin::Edf, vec![task("a", 20, 3000), task("b", 40, 8000)]);
    let before = bandwidth();
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(400))) else { return };
    check(&system, &summary, &events);
    assert_eq!(summary.tasks[0].class, "SCHED_DEADLINE runtime 3.2ms, deadline 20ms, period 20ms");
    // The margin covers waking and stamping, yet a busy hypervisor lets any job use more CPU time:
    // it must only be told.
    let overruns: u64 = summary.tasks.iter().map(|task| task.overruns.expect("counted under SCHED_DEADLINE")).sum();
    assert_eq!(summary.notes.iter().any(|note| note.contains("throttles")), overruns > 0, "{:?}", summary.notes);
    comes_back(&before);
}

#[test]
fn edf_on_the_cpus_that_taskset_leaves_gets_a_domain_of_them() {
    let _alone = alone();
    let before = (cpusets(), bandwidth());
    let all = sched::affinity();
    let (Some(last), true) = (all.last().copied(), all.len() > 1) else { return println!("skipped: one CPU") };
    let bound = std::thread::spawn(move || {
        sched::set_affinity(&[last]).unwrap();
        let system = System::local(1, Builtin::Edf, vec![task("a", 20, 2000)]);
        (run(&system, &RunOptions::new(ms(200)), &mut Events::new()), takt_linux::cpuset::obstacle())
    });
    match bound.join().unwrap() {
        (Ok(summary), _) => assert!(summary.tasks[0].class.starts_with("SCHED_DEADLINE"), "{summary:?}"),
        (Err(error), Some(obstacle)) => println!("skipped: {error}: {obstacle}"),
        (Err(error @ RunError::Privilege { .. }), None) => println!("skipped: {error}"),
        (Err(error), None) => panic!("{error}"),
    }
    assert_eq!(cpusets(), before.0);
    comes_back(&before.1);
}

#[test]
fn an_overrun_is_seen() {
    let _alone = alone();
    let cpus = sched::affinity().len() as u32;
    let liar = Task { exec: Exec::Uniform { min: ms(12), max: ms(12) }, ..task("liar", 50, 2000) };
    let system = System::local(cpus, Builtin::Edf, vec![liar]);
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(400))) else { return };
    check(&system, &summary, &events);
    // Each completed job took 12 ms of 2.2 ms; the one that the end cut short may have too.
    let (overruns, completed) = (summary.tasks[0].overruns.unwrap(), summary.tasks[0].completed);
    assert!(overruns == completed || overruns == completed + 1, "{overruns} of {completed}");
    let said = format!("throttles such a job until the reservation's next period: \"liar\" {overruns} job");
    assert!(summary.notes.iter().any(|note| note.contains(&said)), "{said}: {:?}", summary.notes);
}

#[test]
fn an_overrun_of_a_job_that_never_completes_is_seen() {
    let _alone = alone();
    let cpus = sched::affinity().len() as u32;
    let endless = Task { exec: Exec::Uniform { min: ms(900), max: ms(900) }, ..task("endless", 50, 1000) };
    let system = System::local(cpus, Builtin::Edf, vec![endless]);
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(300))) else { return };
    check(&system, &summary, &events);
    assert_eq!((summary.tasks[0].completed, summary.tasks[0].overruns), (0, Some(1)));
    assert_eq!(released(&events, 0), 6);
}

#[test]
fn a_run_that_admission_refuses_leaves_no_reservation() {
    let _alone = alone();
    let cpus = sched::affinity().len() as u32;
    let tasks = (0..=cpus).map(|i| task(&format!("t{i}"), 20, 18_000)).collect();
    let before = bandwidth();
    let mut events = Events::new();
    match run(&System::local(cpus, Builtin::Edf, tasks), &RunOptions::new(ms(100)), &mut events) {
        Err(error @ RunError::Refused { .. }) => {
            assert!(error.to_string().contains("admission control"), "{error}");
            assert_eq!(error.exit_code(), 3);
        }
        Err(error @ RunError::Privilege { .. }) => println!("skipped: {error}"),
        other => panic!("{other:?}"),
    }
    assert!(events.is_empty());
    comes_back(&before);
}

#[test]
fn partitions_come_and_go() {
    let _alone = alone();
    let before = (cpusets(), bandwidth());
    let system = partitioned();
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(300))) else { return };
    check(&system, &summary, &events);
    assert_eq!(cpusets(), before.0, "cpusets and load balancing are as before");
    comes_back(&before.1);
    if summary.notes.iter().any(|note| note.starts_with("global SCHED_DEADLINE")) {
        println!("skipped: {:?}", summary.notes);
        return;
    }
    for (_, _, event) in &events {
        if let Event::Start { job, cpu } | Event::Complete { job, cpu } = *event {
            assert_eq!(cpu, job.task.0, "each task keeps to its partition");
        }
    }
}

#[test]
fn a_panicking_sink_leaves_nothing_behind() {
    let _alone = alone();
    struct Faulty;
    impl takt_log::Sink for Faulty {
        fn event(&mut self, _: u32, _: Time, _: &Event) {
            panic!("a fault of the sink");
        }
    }
    let before = (cpusets(), bandwidth());
    let prepared = prepare(&partitioned(), &RunOptions::new(ms(300)));
    let Some(prepared) = or_skipped(prepared, |_| true) else { return };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| prepared.run(&mut Faulty, &mut |_| {})));
    match outcome {
        Err(_) => {
            // The kernel removes a thread some time after it was joined.
            let mut looks = 0;
            while threads() > 0 && looks < 6000 {
                looks += 1;
                takt_linux::clock::pause(ms(10));
            }
            assert_eq!(threads(), 0, "the tasks' threads are gone");
        }
        Ok(Err(error @ RunError::Privilege { .. })) => println!("skipped: {error}"),
        Ok(other) => panic!("{other:?}"),
    }
    assert_eq!(cpusets(), before.0);
    comes_back(&before.1);
}

#[test]
fn without_privilege_the_refusal_names_it() {
    let _alone = alone();
    // A thread without CAP_SYS_NICE, as an ordinary user has it: refusals are per thread, so a
    // child process is not needed.
    let system = System::local(1, Builtin::Rm, vec![task("a", 10, 100)]);
    let machine = takt_linux::machine();
    if machine.cap_sys_nice || takt_linux::process::rtprio_limit() > 0 {
        return println!("skipped: this process has the privilege");
    }
    let error = run(&system, &RunOptions::new(ms(50)), &mut Events::new()).unwrap_err();
    assert!(matches!(error, RunError::Privilege { .. }), "{error}");
    assert_eq!(error.exit_code(), 3);
}

/// Runs in a child process of the tests below, which kill it; does nothing otherwise.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match run(&partitioned(), &RunOptions::new(Span::from_s(10)), &mut Events::new()) {
        Ok(summary) => println!("interrupted by {:?} at {}", summary.interrupted, summary.end),
        Err(error) => println!("refused: {error}"),
    }
}
const CHILD: &str = "TAKT_TEST_CHILD";

fn partitioned() -> System {
    let mut system = System::local(2, Builtin::Edf, vec![on("a", 0, 20, 2000), on("b", 1, 20, 2000)]);
    system.nodes[0].placement = Placement::Partitioned;
    system
}

/// A child that runs partitioned tasks, once its cpusets are there; `None` and the reason where it cannot.
fn start_child() -> Option<std::process::Child> {
    let mut child = spawn_child();
    let balance = Path::new("/sys/fs/cgroup/cpuset/cpuset.sched_load_balance");
    loop {
        if child.try_wait().unwrap().is_some() {
            println!("skipped: {}", said(&mut child));
            return None;
        }
        if fs::read_to_string(balance).is_ok_and(|value| value.trim() == "0") && !cpusets()?.1.is_empty() {
            return Some(child);
        }
        if !balance.exists() {
            child.kill().unwrap();
            child.wait().unwrap();
            println!("skipped: no cgroup-v1 cpusets here");
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn spawn_child() -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

fn said(child: &mut std::process::Child) -> String {
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        std::io::Read::read_to_string(&mut out, &mut text).unwrap();
    }
    text
}

#[test]
fn the_next_start_repairs_what_a_kill_9_left() {
    let _alone = alone();
    let before = (cpusets(), bandwidth());
    let Some(mut child) = start_child() else { return };
    let in_use = recover().unwrap();
    assert_eq!(in_use, Recovery::InUse { pid: child.id() }, "a running takt is not repaired");
    let second = run(&partitioned(), &RunOptions::new(ms(50)), &mut Events::new()).unwrap_err();
    assert!(second.to_string().contains(&format!("another takt (process {})", child.id())), "{second}");
    assert_eq!(second.exit_code(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(cpusets(), before.0, "a kill -9 leaves them");
    let repaired = recover().unwrap();
    assert!(matches!(repaired, Recovery::Repaired { pid, .. } if pid == child.id()), "{repaired:?}");
    assert_eq!(cpusets(), before.0);
    comes_back(&before.1);
    assert_eq!(recover().unwrap(), Recovery::Nothing);
}

#[test]
fn a_kill_at_any_instant_is_repaired() {
    let _alone = alone();
    let before = cpusets();
    for delay_ms in 0..16 {
        let mut child = spawn_child();
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let recovered = recover().unwrap();
        assert!(matches!(recovered, Recovery::Nothing | Recovery::Repaired { .. }), "{recovered:?}");
        assert_eq!(cpusets(), before, "killed after {delay_ms} ms: {recovered:?}");
    }
}

#[test]
fn a_signal_ends_a_run_in_order_and_a_second_one_does_no_harm() {
    let _alone = alone();
    let before = (cpusets(), bandwidth());
    for (first, second, number) in
        [("-TERM", "-INT", 2), ("-QUIT", "-QUIT", 3), ("-USR1", "-ALRM", 14), ("-XCPU", "-RTMIN", 34)]
    {
        let Some(mut child) = start_child() else { return };
        for signal in [first, second] {
            let pid = child.id().to_string();
            assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
        }
        let status = child.wait().unwrap();
        let said = said(&mut child);
        let is_over = said.contains("interrupted by Some(");
        if !is_over {
            recover().unwrap();
        }
        assert!(is_over, "{first} {second}: {status}: {said}");
        // The second one may come after the run, and then it ends the process, as ever.
        assert!(status.success() || status.signal() == Some(number), "{first} {second}: {status}");
        assert_eq!(cpusets(), before.0, "{first} {second}");
    }
    assert_eq!(cpusets(), before.0);
    comes_back(&before.1);
}

/// Threads of this process that run a task.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("takt ")).count()
}

/// Root load balancing and takt's cpusets.
fn cpusets() -> Option<(String, Vec<String>)> {
    let root = Path::new("/sys/fs/cgroup/cpuset");
    let balance = fs::read_to_string(root.join("cpuset.sched_load_balance")).ok()?;
    let entries = fs::read_dir(root).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Some((balance, entries.filter(|name| name.starts_with("takt-")).collect()))
}

/// Until the bandwidth of ended threads is booked no more. A timer takes it back at most a period after an exit, which
/// may wait for a budget. A sleep on each CPU ends after the timers that were due before. Periods here are up to 50 ms.
fn await_bandwidth() {
    let on_each_cpu = || {
        takt_linux::clock::pause(ms(110));
        for cpu in sched::affinity() {
            sched::set_affinity(&[cpu]).unwrap();
            takt_linux::clock::pause(Span::from_us(50));
        }
    };
    std::thread::spawn(on_each_cpu).join().unwrap();
}

/// No bandwidth has leaked. The kernel may be late with the exit of a thread.
fn comes_back(before: &Option<Vec<String>>) {
    let is_back = (0..50).any(|_| bandwidth() == *before);
    assert!(is_back, "bandwidth leaked: {:?}, and {before:?} before", bandwidth());
}

/// Reserved bandwidth per CPU, where debugfs is mounted or a private mount can be had.
fn bandwidth() -> Option<Vec<String>> {
    let script = "mount -t debugfs none /mnt 2>/dev/null && cat /mnt/sched/debug";
    let read = || std::process::Command::new("unshare").args(["-m", "sh", "-c", script]).output().ok();
    let lines = |text: &str| {
        text.lines().filter(|line| line.contains("total_bw")).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    await_bandwidth();
    // Two equal readings mean that it has settled.
    let mut last = lines(&String::from_utf8_lossy(&read()?.stdout));
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = lines(&String::from_utf8_lossy(&read()?.stdout));
        if now == last {
            break;
        }
        last = now;
    }
    (!last.is_empty()).then_some(last)
}

#[test]
fn every_job_is_released_even_in_a_burst_that_no_buffer_holds() {
    let _alone = alone();
    let period = Span::from_us(10);
    let endless = Task { exec: Exec::Uniform { min: ms(9000), max: ms(9000) }, ..task("endless", 1, 1) };
    let endless = Task { period, deadline: period, offset: Span::from_ns(5001), ..endless };
    let late = Task { offset: ms(2000), ..task("late", 10, 100) };
    let system = System::local(1, Builtin::Fifo, vec![endless, late]);
    let options = RunOptions { best_effort: true, ..RunOptions::new(ms(1000)) };
    let (summary, events) = try_run(&system, &options).unwrap();
    assert_eq!(released(&events, 0), 100_000, "ceil((1 s - 5001 ns) / 10 us)");
    assert_eq!(released(&events, 1), 0, "its offset lies beyond the duration");
    assert_eq!((summary.lost, summary.tasks[0].completed), (0, 0));
    let missed = events.iter().filter(|(_, _, event)| matches!(event, Event::Miss { .. })).count();
    assert_eq!(missed, 99_999, "all but the last, whose deadline lies beyond the end");
}

#[test]
fn working_sets_that_would_exhaust_the_memory_are_refused_before_anything_is_touched() {
    let _alone = alone();
    let vast = |name: &str| Task { wss: Bytes::new(u64::MAX / 2 + 1), ..task(name, 10, 100) };
    let system = System::local(1, Builtin::Rm, vec![vast("a"), vast("b")]);
    let options = RunOptions { best_effort: true, ..RunOptions::new(ms(50)) };
    let error = prepare(&system, &options).unwrap_err();
    assert!(matches!(error, RunError::WorkingSets { bytes: u64::MAX, .. }), "{error}");
    assert_eq!(error.exit_code(), 3);
}
