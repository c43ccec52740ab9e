//! Events that the kernel's account adds to a run: preemptions, migrations, blocks. If the kernel
//! cannot be recorded, each test says so and passes.
//!
//! No test asserts a duration. All assertions follow from the schedule itself: which job ran while
//! another was open.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use takt_dispatch::{Cause, Dispatcher, Dispatching, Limits, Operation, Operations, Options, StartError};
use takt_linux::net::{Cable, End, burden};
use takt_linux::{Class, Epoch, SchedError, clock, sched};
use takt_log::{Definitions, Event, JobKey, Kind};
use takt_model::{Builtin, Criticality, Exec, NodeId, Span, System, Task, Time, file};
use takt_run::node::{NodeError, NodeNetwork};
use takt_run::{RunError, RunOptions, RunSummary, Trace, TraceError, prepare_node, run};

mod common;
use common::{Events, alone, check, ms, or_skipped, whole};

fn task(name: &str, period_ms: u64, wcet_ms: u64) -> Task {
    Task::periodic(name, ms(period_ms), ms(wcet_ms))
}

/// A run with the kernel's account that is sound, or `None` and the reason on the screen.
fn witnessed(system: &System, options: RunOptions) -> Option<(RunSummary, Events)> {
    let (summary, events) = recorded(system, options)?;
    check(system, &summary, &events);
    Some((summary, events))
}

/// The same of any run.
fn recorded(system: &System, options: RunOptions) -> Option<(RunSummary, Events)> {
    let mut events = Events::new();
    let summary = summary_of(run(system, &RunOptions { trace: Trace::Always, ..options }, &mut events))?;
    Some((summary, events))
}

/// The result of a recorded run, or `None` and the reason on the screen why there is none.
fn summary_of(ran: Result<RunSummary, RunError>) -> Option<RunSummary> {
    use RunError::{Cpus, Privilege};
    let summary = or_skipped(ran, |error| {
        matches!(error, Privilege { .. } | Cpus { .. } | RunError::Trace(TraceError::Recorder(_)))
    })?;
    println!("{summary:#?}");
    assert!(summary.recorded.is_some_and(|recorded| recorded.events > 0));
    Some(summary)
}

/// The dispatcher with the kernel's account, or `None`.
fn recording(dispatcher: Dispatcher) -> Option<Dispatcher> {
    or_skipped(takt_run::recorded(dispatcher, false), |error| matches!(error, TraceError::Recorder(_)))
}

fn started(dispatcher: Dispatcher) -> Option<Dispatching> {
    or_skipped(dispatcher.start(), |error| matches!(error, StartError::Privilege { .. }))
}

/// How often something happened to each job.
fn count(events: &Events, what: impl Fn(&Event) -> Option<JobKey>) -> BTreeMap<JobKey, u64> {
    let mut counts = BTreeMap::new();
    for job in events.iter().filter_map(|(_, _, event)| what(event)) {
        *counts.entry(job).or_default() += 1;
    }
    counts
}

fn preempted(event: &Event) -> Option<JobKey> {
    if let Event::Preempt { job, .. } = event { Some(*job) } else { None }
}

fn blocked(event: &Event) -> Option<JobKey> {
    if let Event::Block { job, .. } = event { Some(*job) } else { None }
}

/// Start and completion of each job that has both.
fn spans(events: &Events) -> BTreeMap<JobKey, (Time, Time)> {
    let (mut starts, mut spans) = (BTreeMap::new(), BTreeMap::new());
    for (_, at, event) in events {
        match *event {
            Event::Start { job, .. } => drop(starts.insert(job, *at)),
            Event::Complete { job, .. } => drop(spans.insert(job, (starts[&job], *at))),
            _ => {}
        }
    }
    spans
}

#[test]
fn a_less_important_job_is_preempted_once_by_each_job_that_comes_in_between() {
    let _alone = alone();
    let system = System::local(1, Builtin::Rm, vec![task("fast", 10, 1), task("slow", 100, 45)]);
    let Some((summary, events)) = witnessed(&system, RunOptions::new(ms(1000))) else { return };
    if !whole(&summary) {
        return;
    }
    let (spans, preemptions) = (spans(&events), count(&events, preempted));
    let mut total = 0;
    for (slow, (started, completed)) in spans.iter().filter(|(job, _)| job.task.0 == 1) {
        // Fast jobs whose thread slept before: each took the CPU, for the CPU is one. Late ones follow each other.
        let came = spans.iter().filter(|(job, (start, _))| {
            let before = job.number.checked_sub(1).map(|number| JobKey { number, ..**job });
            let slept = before.is_none_or(|before| spans.get(&before).is_none_or(|(_, done)| *done < arrival(job)));
            job.task.0 == 0 && start > started && start < completed && slept
        });
        let (came, preemptions) = (came.count() as u64, preemptions.get(slow).copied().unwrap_or(0));
        assert!(preemptions >= came, "{slow:?}: {preemptions} preemptions, {came} jobs came in between");
        total += came;
    }
    // 45 ms of work take more than four periods of the fast task.
    let done = spans.keys().filter(|job| job.task.0 == 1).count() as u64;
    println!("{done} jobs of the slow task, {total} of the fast one in between");
    assert!(done == 0 || total > 0);
    // Nothing takes the CPU from the most important task but what is not takt's.
    let of_fast: u64 = preemptions.iter().filter(|(job, _)| job.task.0 == 0).map(|(_, count)| count).sum();
    println!("{of_fast} preemptions of the fast task");
    let running = events.iter().scan(None, |running, (_, _, event)| {
        match *event {
            Event::Start { job, .. } | Event::Resume { job, .. } => *running = Some(job),
            Event::Preempt { .. } | Event::Block { .. } | Event::Complete { .. } => *running = None,
            _ => {}
        }
        Some((*running, *event))
    });
    // The slow task was not running when the fast one began; `check` asserts this for each CPU.
    assert!(running.filter(|(_, event)| matches!(event, Event::Start { .. })).count() > 0);
}

/// Nominal arrivals of the fast task.
fn arrival(job: &JobKey) -> Time {
    Time::from_ns(job.number * 10_000_000)
}

#[test]
fn under_global_edf_jobs_move_between_cpus_and_the_log_says_where() {
    let _alone = alone();
    let cpus = sched::affinity().len() as u32;
    if cpus < 2 {
        return println!("skipped: one CPU");
    }
    // All CPUs are taken every 20 ms, at once; the first that is free again takes the long job.
    let mut tasks: Vec<Task> = (0..cpus).map(|i| task(&format!("short{i}"), 20, 3 + u64::from(i % 2) * 3)).collect();
    tasks.push(task("long", 200, 60));
    let system = System::local(cpus, Builtin::Edf, tasks);
    let Some((summary, events)) = witnessed(&system, RunOptions::new(ms(1000))) else { return };
    if !whole(&summary) {
        return;
    }
    let preemptions: u64 = count(&events, preempted).values().sum();
    let migrations = events.iter().filter(|(_, _, event)| matches!(event, Event::Migrate { .. })).count();
    println!("{preemptions} preemptions, {migrations} migrations");
    let done = spans(&events).keys().filter(|job| job.task.0 == cpus).count();
    assert!(done == 0 || preemptions > 0, "the long job cannot have kept its CPU");
}

#[test]
fn a_throttled_reservation_blocks_and_is_not_preempted() {
    let _alone = alone();
    let cpus = sched::affinity().len() as u32;
    let liar = Task { exec: Exec::Uniform { min: ms(18), max: ms(18) }, ..task("liar", 50, 2) };
    let system = System::local(cpus, Builtin::Edf, vec![liar]);
    let Some((summary, events)) = witnessed(&system, RunOptions::new(ms(1000))) else { return };
    if !whole(&summary) {
        return;
    }
    let (blocks, preemptions) = (count(&events, blocked), count(&events, preempted));
    println!("blocks {blocks:?}, preemptions {preemptions:?}");
    // 18 ms out of budgets of 2.2 ms, that are enforced at ticks.
    for job in spans(&events).keys() {
        assert!(blocks.get(job).is_some_and(|blocks| *blocks >= 1), "{job:?} held its CPU beyond its budget");
    }
}

#[test]
fn best_effort_is_witnessed_too() {
    let _alone = alone();
    let tasks = vec![task("a", 20, 8), task("b", 30, 12)];
    let system = System::local(1, Builtin::Fifo, tasks);
    let options = RunOptions { best_effort: true, ..RunOptions::new(ms(600)) };
    let Some((_, events)) = witnessed(&system, options) else { return };
    println!("{:?} preemptions", count(&events, preempted));
}

#[test]
fn a_run_with_trace_never_records_nothing() {
    let _alone = alone();
    let system = System::local(1, Builtin::Fifo, vec![task("a", 20, 1)]);
    let mut events = Events::new();
    let options = RunOptions { best_effort: true, trace: Trace::Never, ..RunOptions::new(ms(100)) };
    let summary = run(&system, &options, &mut events).unwrap();
    check(&system, &summary, &events);
    assert!(summary.recorded.is_none() && count(&events, preempted).is_empty());
}

/// A thread that takes the first CPU from all others for 5 ms every 27 ms, a dozen times.
fn disturber(cpu: u32) -> JoinHandle<Result<(), SchedError>> {
    let disturb = move || {
        let _class = sched::ClassGuard::enter(&Class::Fifo { priority: 90 })?;
        sched::set_affinity(&[cpu])?;
        let epoch = Epoch::now_is_zero();
        for round in 0..12 {
            let begin = Time::ZERO + ms(27 * round);
            while !epoch.sleep_until(begin) {}
            while epoch.now() < begin + ms(5) {
                std::hint::spin_loop();
            }
        }
        Ok(())
    };
    std::thread::Builder::new().name("disturber".to_owned()).spawn(disturb).unwrap()
}

/// Waits for the disturbing thread. False, with a message, if this process may not use so important
/// a priority.
fn has_disturbed(disturbs: JoinHandle<Result<(), SchedError>>) -> bool {
    match disturbs.join().unwrap() {
        Ok(()) => true,
        Err(refused @ SchedError::Privilege { .. }) => {
            println!("skipped: {refused}");
            false
        }
        Err(refused) => panic!("{refused}"),
    }
}

#[test]
fn under_the_dispatcher_the_kernel_tells_why_jobs_were_late() {
    let _alone = alone();
    let video = Task { criticality: Criticality::Low, ..task("video", 40, 8) };
    // Alone, "control" takes 4 ms and "video" 12 ms at most: nothing is late by the load of the plan.
    let tasks = vec![Task { deadline: ms(6), ..task("control", 20, 4) }, video];
    let system = System::local(1, Builtin::Muf, tasks);
    let cpu = sched::affinity()[0];
    for attempt in 0.. {
        let disturbs = disturber(cpu);
        let ran = recorded(&system, RunOptions::new(ms(400)));
        if !has_disturbed(disturbs) {
            return;
        }
        let Some((summary, events)) = ran else { return };
        let (mut others, mut by_load) = (0, 0);
        for (task, id) in summary.tasks.iter().zip(0..) {
            let late = task.late.as_ref().expect("the kernel was recorded");
            let missed = |(_, _, event): &&(u32, Time, Event)| matches!(event, Event::Miss { job } if job.task.0 == id);
            assert_eq!(late.jobs, events.iter().filter(missed).count() as u64, "{}", task.name);
            by_load += late.by_load;
            assert_eq!(Cause::ALL.map(|cause| late.mainly(cause)).iter().sum::<u64>(), late.jobs);
            others +=
                late.mainly(Cause::Others) * u64::from(late.others[..].iter().any(|(name, _)| name == "disturber"));
        }
        let preempted = count(&events, preempted).len();
        // A machine that pauses has other causes. If its host does not tell, a job seems to have worked meanwhile.
        if others > 0 && preempted > 0 && by_load == 0 {
            break;
        }
        assert!(attempt < 10, "nothing was disturbed, or {by_load} jobs were late by load: {summary:#?}");
    }
}

#[test]
fn at_a_node_with_flows_the_kernel_tells_why_hops_were_late() {
    let _alone = alone();
    let text = r#"
takt = 1
name = "hops"
[[node]]
name = "n0"
send = { period = "10ms", wcet = "500us" }
[[node]]
name = "n1"
receive = { period = "10ms", wcet = "500us" }
[[flow]]
name = "f"
path = ["n0", "n1"]
period = "20ms"
send-gap = "10ms"
wcet = "4ms"
deadline = "60ms"
hop-deadlines = ["6ms", "54ms"]
size = "200B"
[[network]]
delay = ["0us", "5ms"]
"#;
    let system = file::parse(text, "hops").unwrap_or_else(|errors| panic!("{errors}"));
    let hop = Definitions::of(&system).tasks.iter().position(|task| task.name == "f/0").unwrap();
    // The kernel chooses the port: nobody sends to it.
    let listen = ([127, 0, 0, 1], 0).into();
    let cpu = sched::affinity()[0];
    let mut lead = ms(300);
    for attempt in 0.. {
        let start = clock::realtime_ns() + lead.as_ns();
        // Nobody is the other node.
        let peers = vec![("n1".to_owned(), ([127, 0, 0, 1], 9).into())];
        let key = "7".repeat(64).parse().ok();
        let network = NodeNetwork { listen: Some(listen), peers, key, start, priority: 0, clocks: None };
        let options = RunOptions { node: Some(NodeId(0)), trace: Trace::Always, ..RunOptions::new(ms(400)) };
        let disturbs = std::thread::spawn(move || {
            clock::pause(Span::from_ns(start.saturating_sub(clock::realtime_ns())));
            disturber(cpu).join().unwrap()
        });
        let mut events = Events::new();
        let run = |events: &mut Events| prepare_node(&system, &options, &network)?.open()?.run(events, &mut |_| {});
        let ran = run(&mut events);
        if !has_disturbed(disturbs) {
            return;
        }
        if let Err(RunError::Node(NodeError::Over)) = ran {
            // A slow machine gets more time.
            assert!(attempt < 10, "nodes cannot be started in time");
            lead = lead.saturating_add(lead);
            continue;
        }
        let Some(summary) = summary_of(ran) else { return };
        let task = summary.tasks.iter().find(|task| task.name == "f/0").expect("the hop");
        let late = task.late.as_ref().expect("the kernel was recorded");
        let is_missed = |job: &JobKey| job.task.index() == hop;
        let missed = |(_, _, event): &&(u32, Time, Event)| matches!(event, Event::Miss { job } if is_missed(job));
        let all_told = (late.jobs, late.by_load) == (events.iter().filter(missed).count() as u64, 0);
        if all_told && late.mainly(Cause::Others) > 0 && late.others.iter().any(|(name, _)| name == "disturber") {
            break;
        }
        // A machine that pauses has other causes.
        assert!(attempt < 10, "{late:?}");
    }
}

#[test]
fn a_program_is_told_why_its_jobs_were_late() {
    let _alone = alone();
    let operations = Operations::new("plant")
        .with(Operation::periodic("control", ms(20)).wcet(ms(4)).deadline(ms(6)))
        .with(Operation::periodic("video", ms(40)).wcet(ms(8)).noncritical());
    let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap();
    for attempt in 0.. {
        let options = Options { duration: Some(ms(400)), ..Options::default() };
        let dispatcher = Dispatcher::new(plan.clone()).with(options);
        let Some(mut dispatcher) = recording(dispatcher) else { return };
        for (name, work) in [("control", ms(3)), ("video", ms(7))] {
            let handler = move |job: &takt_dispatch::Job<'_>| {
                let until = job.now() + work;
                while job.now() < until {
                    std::hint::spin_loop();
                }
            };
            dispatcher = dispatcher.on(name, handler).unwrap();
        }
        assert!(dispatcher.kinds().contains(Kind::Block));
        let Some(mut dispatching) = started(dispatcher) else { return };
        let disturbs = disturber(sched::affinity()[0]);
        let mut events = Events::new();
        while !dispatching.is_over() {
            clock::pause(ms(5));
            dispatching.drain(&mut events);
        }
        let stopped = dispatching.stop(&mut events).unwrap();
        if !has_disturbed(disturbs) {
            return;
        }
        assert!(stopped.recorded.is_some_and(|recorded| recorded.events > 0) && stopped.unrecorded.is_none());
        let late = stopped.late.expect("recorded");
        let missed = |(_, _, event): &&(u32, Time, Event)| matches!(event, Event::Miss { .. });
        let misses = events.iter().filter(missed).count() as u64;
        assert_eq!(late.iter().map(|late| late.jobs).sum::<u64>(), misses);
        let by_load = late.iter().map(|late| late.by_load).sum::<u64>();
        assert!(events.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let told = late[0].others.iter().any(|(name, _)| name == "disturber");
        if by_load == 0 && told && late[0].mainly(Cause::Others) > 0 {
            break;
        }
        // A machine that pauses has other causes.
        assert!(attempt < 10, "{late:?}");
    }
}

/// A job sends packets over a cable. Each arrives at once, in a softirq on the job's CPU, which delays the job.
/// So a job that needs less than its WCET is late. The same job without packets exceeds its WCET.
#[test]
fn the_time_of_softirqs_is_not_that_of_the_job_that_they_interrupt() {
    let _alone = alone();
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let open = |end: &End, port: u16| end.run(|| UdpSocket::bind((end.address(), port)).unwrap()).unwrap();
    let (receives, sends) = (open(cable.right(), 7000), open(cable.left(), 0));
    if let Err(refused) = burden(&receives) {
        return println!("skipped: packets cannot be given work: {refused}");
    }
    sends.connect((cable.right().address(), 7000)).unwrap();
    let sends = Arc::new(sends);
    let busy = Operation::sporadic("busy", ms(1000)).wcet(ms(18)).deadline(ms(20));
    let plan = Operations::new("sends").with(busy).compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap();
    for (cause, socket) in [(Cause::Interrupts, Some(sends)), (Cause::OwnOverrun, None)] {
        for attempt in 0.. {
            let socket = socket.clone();
            let handler = move |job: &takt_dispatch::Job<'_>| {
                // After its deadline, whatever the speed of this machine. A log keeps 8192 turns of a CPU for a job.
                let (until, mut packets) = (job.now() + ms(22), 2000);
                while job.now() < until {
                    match &socket {
                        Some(socket) if packets > 0 => {
                            let _ = socket.send(b"packet");
                            packets -= 1;
                        }
                        _ => std::hint::spin_loop(),
                    }
                }
            };
            let dispatcher = match takt_run::recorded(Dispatcher::new(plan.clone()), false) {
                Ok(dispatcher) => dispatcher.on("busy", handler).unwrap(),
                Err(error @ TraceError::Recorder(_)) => return println!("skipped: {error}"),
                Err(error) => panic!("{error}"),
            };
            let mut dispatching = match dispatcher.start() {
                Ok(dispatching) => dispatching,
                Err(error @ StartError::Privilege { .. }) => return println!("skipped: {error}"),
                Err(error) => panic!("{error}"),
            };
            let mut events = Events::new();
            dispatching.operation("busy").unwrap().push().unwrap();
            let patience = Epoch::now_is_zero();
            while dispatching.counts()[0].1.completed == 0 && patience.now() < Time::ZERO + Span::from_s(20) {
                clock::pause(ms(5));
                dispatching.drain(&mut events);
            }
            let stopped = dispatching.stop(&mut events).unwrap();
            let late = &stopped.late.expect("recorded")[0];
            assert_eq!((stopped.counts[0].1.completed, late.jobs), (1, 1), "{late:?}");
            if (late.by_load, late.mainly(cause)) == (0, 1) {
                break;
            }
            // A machine that pauses has other causes.
            assert!(attempt < 10, "not {cause:?}: {late:?}");
        }
    }
}

/// The kernel throttles real-time threads that have used 95 % of a second, and gives the CPU to
/// ordinary threads (`sched_rt_runtime_us`, or the server for ordinary threads).
#[test]
fn throttling_causes_a_warning_and_is_not_load() {
    let _alone = alone();
    let limits = takt_linux::machine::Limits::read();
    if !(1..=950_000).contains(&limits.rt_runtime_us) || limits.rt_period_us != 1_000_000 {
        let (runtime, period) = (limits.rt_runtime_us, limits.rt_period_us);
        return println!("skipped: real-time threads have {runtime} of {period} us here");
    }
    // Whenever the kernel's periods begin, 1.9 s have 950 ms of one in them.
    let whole = Operation::sporadic("whole", ms(2020)).wcet(ms(2010)).deadline(ms(2020)).noncritical();
    let plan = Operations::new("throttled").with(whole).compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap();
    let cpu = sched::affinity()[0];
    for attempt in 0.. {
        let (away, over) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
        let waited = away.clone();
        let handler = move |job: &takt_dispatch::Job<'_>| {
            let (began, until) = (job.now(), clock::thread_cpu().saturating_add(ms(2000)));
            while clock::thread_cpu() < until {
                std::hint::spin_loop();
            }
            let without = job.now().saturating_since(began).saturating_sub(ms(2000));
            waited.store(without.as_ns(), Ordering::Release);
        };
        let Some(dispatcher) = recording(Dispatcher::new(plan.clone())) else { return };
        let Some(mut dispatching) = started(dispatcher.on("whole", handler).unwrap()) else { return };
        let told = dispatching.warnings().to_vec();
        assert!(told.iter().any(|warning| warning.contains("may use 99.5 % of it")), "{told:?}");
        let mut events = Events::new();
        std::thread::scope(|scope| {
            // An ordinary thread that waits for the same CPU.
            scope.spawn(|| {
                let _ = sched::set_affinity(&[cpu]);
                while !over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            dispatching.operation("whole").unwrap().push().unwrap();
            let patience = Epoch::now_is_zero();
            while dispatching.counts()[0].1.completed == 0 && patience.now() < Time::ZERO + Span::from_s(20) {
                clock::pause(ms(5));
                dispatching.drain(&mut events);
            }
            over.store(true, Ordering::Release);
        });
        let stopped = dispatching.stop(&mut events).unwrap();
        let late = &stopped.late.expect("recorded")[0];
        let away = Span::from_ns(away.load(Ordering::Acquire));
        println!("{away} without the CPU, {late:?}");
        if away < ms(20) {
            return println!("skipped: this kernel leaves real-time threads more than it says");
        }
        assert_eq!((stopped.counts[0].1.completed, late.jobs, late.by_load), (1, 1, 0), "{late:?}");
        // A CPU on which nobody else may run is idle meanwhile.
        if [Cause::Others, Cause::Idle, Cause::Throttled].map(|cause| late.mainly(cause)).iter().sum::<u64>() == 1 {
            break;
        }
        // A machine that pauses has other causes.
        assert!(attempt < 3, "{late:?}");
    }
}
