//! The dispatcher's threads on the real kernel: CPUs and priorities, the order of starts within a
//! level, late waiting jobs, and no burst after an overrun. Without the needed privilege a test
//! says so and passes.
//!
//! No test asserts a wall-clock time.

#[path = "common/live.rs"]
mod live;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use live::{alone, ms, started, work};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, Plan, StopError, Stopped};
use takt_linux::{Class, Epoch, clock, process, sched};
use takt_log::{CancelCause, Event};
use takt_model::system::Mode;
use takt_model::{Builtin, Late, NodeId, Span, StrategyRef, Time};

type Events = Vec<(u32, Time, Event)>;

fn limits() -> Limits {
    Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() }
}

/// Also for sets with deadlines that can be missed.
fn plan(operations: &Operations, strategy: Builtin) -> Plan {
    let system = operations.to_system(&strategy.strategy()).unwrap_or_else(|anomalies| panic!("{anomalies}"));
    Plan::compute_regardless(&system, NodeId(0), &limits()).unwrap_or_else(|anomalies| panic!("{anomalies}")).0
}

/// Waits for `enough`, for at most 20 s.
fn wait(dispatching: &Dispatching, enough: impl Fn(&Dispatching) -> bool) {
    let epoch = Epoch::now_is_zero();
    while !enough(dispatching) && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(2));
    }
}

fn stop(dispatching: Dispatching) -> (Stopped, Events) {
    let mut events = Events::new();
    let stopped = dispatching.stop(&mut events).unwrap();
    assert_eq!((stopped.lost, stopped.refused), (0, 0));
    (stopped, events)
}

/// A handler's thread: its operation, CPUs and class.
type Received = Arc<Mutex<Vec<(&'static str, Vec<u32>, Class)>>>;

#[test]
fn threads_have_the_cpu_and_the_priority_of_the_plan_that_holds() {
    let _alone = alone();
    let all = sched::affinity();
    let cpus = all.len().min(2) as u32;
    let set = Operations::new("pinned")
        .cpus(cpus)
        .with(Operation::periodic("fast", ms(5)).wcet(ms(1)).noncritical())
        .with(Operation::periodic("slow", ms(10)).wcet(ms(1)))
        .with(Operation::periodic("elsewhere", ms(5)).wcet(ms(1)).on_cpu(cpus - 1));
    let mut system = set.to_system(&Builtin::Rm.strategy()).unwrap();
    let at = Time::ZERO + Span::from_s(100);
    system.modes.push(Mode { node: NodeId(0), at, strategy: StrategyRef::Builtin(Builtin::Muf) });
    let plan = Plan::compute(&system, NodeId(0), &limits()).unwrap_or_else(|anomalies| panic!("{anomalies}"));
    let seen = Received::default();
    let mut dispatcher = Dispatcher::new(plan.clone());
    for name in ["fast", "slow", "elsewhere"] {
        let seen = seen.clone();
        let look = move |_: &takt_dispatch::Job<'_>| {
            seen.lock().unwrap().push((name, sched::affinity(), sched::current()));
        };
        dispatcher = dispatcher.on(name, look).unwrap();
    }
    let Some(dispatching) = started(dispatcher) else { return };
    let timers = timers();
    let all_ran =
        |least: u64| move |running: &Dispatching| running.counts().iter().all(|(_, it)| it.completed >= least);
    wait(&dispatching, all_ran(2));
    let before = std::mem::take(&mut *seen.lock().unwrap());
    let switched = dispatching.switch(1).unwrap();
    assert!(switched.locked > Span::ZERO && switched.refused == 0, "{switched:?}");
    // Jobs that had started may have read the class before the switch.
    let since = dispatching.counts().iter().map(|(_, it)| it.completed).max().unwrap();
    wait(&dispatching, all_ran(since + 2));
    let after: BTreeMap<&str, (Vec<u32>, Class)> =
        seen.lock().unwrap().drain(..).map(|(name, cpus, class)| (name, (cpus, class))).collect();
    let again = dispatching.switch(0).unwrap();
    assert!(switched.moved.max(again.moved) <= 3, "of each operation one job at most");
    let (stopped, events) = stop(dispatching);
    assert_eq!((stopped.switched, stopped.locked), (2, switched.locked.max(again.locked)));
    let wanted = |rows: &[takt_dispatch::Row], levels: &[takt_dispatch::PlanLevelRow], name: &str| {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        (vec![all[row.cpu as usize]], Class::Fifo { priority: levels[row.level as usize].priority })
    };
    assert!(before.len() >= 6);
    for (name, cpus, class) in before {
        assert_eq!((cpus, class), wanted(&plan.rows, &plan.levels, name), "{name} under rm");
    }
    for (name, found) in after {
        assert_eq!(found, wanted(&plan.modes[0].rows, &plan.modes[0].levels, name), "{name} under muf");
    }
    let swapped =
        |name| wanted(&plan.rows, &plan.levels, name) != wanted(&plan.modes[0].rows, &plan.modes[0].levels, name);
    assert!(swapped("fast"), "the plans differ");
    assert_eq!(timers, vec![plan.timer_priority; cpus as usize], "timers are above all levels");
    assert!(events.iter().any(|(_, _, event)| matches!(event, Event::ModeChange { mode: 1 })));
}

#[test]
fn a_plan_that_may_use_more_than_the_kernel_leaves_is_warned_of() {
    let _alone = alone();
    let left = takt_linux::machine::Limits::read().rt_percent();
    for (wcet_us, name) in [(990_000, "much"), (10_000, "little")] {
        // This operation needs pushes, and none come here.
        let whole = Operation::sporadic("whole", Span::from_s(1)).wcet(Span::from_us(wcet_us));
        let built = Dispatcher::new(plan(&Operations::new(name).with(whole), Builtin::Rm)).on("whole", |_| ()).unwrap();
        let Some(dispatching) = started(built) else { return };
        let told = dispatching.warnings().to_vec();
        stop(dispatching);
        if left >= 99 {
            // A control group may still set a limit.
            continue;
        }
        match name {
            "much" => assert!(told.len() == 1 && told[0].contains("may use 99.0 % of it"), "{told:?}"),
            _ => assert!(told.is_empty() || left < 1 || told[0].contains("control group"), "{told:?}"),
        }
    }
}

/// The switching thread has lost its privilege meanwhile.
#[test]
fn a_priority_that_the_kernel_refuses_is_told_and_jobs_go_on_at_the_former_one() {
    let _alone = alone();
    if process::rtprio_limit() > 0 {
        return println!("skipped: this user may raise priorities up to {} without privilege", process::rtprio_limit());
    }
    let set = Operations::new("refused")
        .with(Operation::periodic("fast", ms(5)).wcet(ms(1)).noncritical())
        .with(Operation::sporadic("slow", ms(10)).wcet(ms(1)));
    let mut system = set.to_system(&Builtin::Rm.strategy()).unwrap();
    let at = Time::ZERO + Span::from_s(100);
    // Under this plan the slow operation is above the fast one.
    system.modes.push(Mode { node: NodeId(0), at, strategy: StrategyRef::Builtin(Builtin::Muf) });
    let plan = Plan::compute(&system, NodeId(0), &limits()).unwrap_or_else(|anomalies| panic!("{anomalies}"));
    let (seen, goes_on) = (Arc::<Mutex<Vec<Class>>>::default(), Arc::new(AtomicBool::new(false)));
    let (fast, slow, returns) = (seen.clone(), seen.clone(), goes_on.clone());
    let dispatcher =
        Dispatcher::new(plan).on("fast", move |_| fast.lock().unwrap().push(sched::current())).and_then(|dispatcher| {
            dispatcher.on("slow", move |_| {
                slow.lock().unwrap().push(sched::current());
                while !returns.load(Ordering::Acquire) {
                    clock::pause(ms(1));
                }
                slow.lock().unwrap().push(sched::current());
            })
        });
    let Some(dispatching) = started(dispatcher.unwrap()) else { return };
    let completed = |running: &Dispatching, at: usize| running.counts()[at].1.completed;
    let slow = dispatching.operation("slow").unwrap();
    slow.push().unwrap();
    let both = |seen: &[Class]| seen.iter().any(|class| *class != seen[0]);
    wait(&dispatching, |_| both(&seen.lock().unwrap()));
    assert!(both(&seen.lock().unwrap()), "two levels run, of two priorities");
    // A job of the slow operation is in progress, so its thread must be raised.
    let bare = || {
        caps::drop(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_NICE).unwrap();
        dispatching.switch(1).unwrap()
    };
    let refused = std::thread::scope(|scope| scope.spawn(bare).join().unwrap()).refused;
    assert_eq!((refused, dispatching.holds()), (1, 1), "the plan holds all the same");
    goes_on.store(true, Ordering::Release);
    let before = completed(&dispatching, 0);
    wait(&dispatching, |running| completed(running, 0) > before + 1 && completed(running, 1) == 1);
    assert!(completed(&dispatching, 0) > before + 1 && completed(&dispatching, 1) == 1, "all goes on");
    assert_eq!(dispatching.switch(0).unwrap().refused, 0, "who may do it does it again");
    let stopped = dispatching.stop(&mut Events::new()).unwrap();
    assert_eq!((stopped.refused, stopped.switched), (1, 2));
    assert!(seen.lock().unwrap().iter().all(|class| matches!(class, Class::Fifo { .. })), "never another class");
}

/// The real-time priorities of this process's timer threads.
fn timers() -> Vec<u8> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let timers = tasks.filter(|task| read(task.join("comm")).starts_with("takt timer"));
    // proc(5): the 40th field is rt_priority. The name, in brackets, may contain blanks.
    let priority = |task: std::path::PathBuf| {
        let stat = read(task.join("stat"));
        stat.rsplit(')').next().unwrap().split_whitespace().nth(37).unwrap().parse().unwrap()
    };
    timers.map(priority).collect()
}

/// Jobs of a level that wait while another job runs. Returns the names in the order of their
/// starts. Deadlines are seconds apart, so that no pause between two pushes changes their order.
fn order_of(strategy: Builtin) -> Option<Vec<&'static str>> {
    let s = Span::from_s;
    let sporadic =
        |name: &str, deadline, wcet| Operation::sporadic(name, ms(1)).deadline(s(deadline)).wcet(s(wcet)).backlog(1);
    let set = Operations::new("order")
        .with(sporadic("holds", 900, 1))
        .with(sporadic("late-long", 800, 500))
        .with(sporadic("early", 400, 1))
        .with(sporadic("middle", 500, 50))
        .with(sporadic("last", 900, 1));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut dispatcher = Dispatcher::new(plan(&set, strategy));
    for name in ["late-long", "early", "middle", "last"] {
        let order = order.clone();
        dispatcher = dispatcher.on(name, move |_| order.lock().unwrap().push(name)).unwrap();
    }
    let (runs, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (began, open) = (runs.clone(), go.clone());
    let dispatcher = dispatcher.on("holds", move |_| {
        began.store(true, Ordering::Release);
        while !open.load(Ordering::Acquire) {
            clock::pause(ms(1));
        }
    });
    let dispatching = started(dispatcher.unwrap())?;
    let push = |name| dispatching.operation(name).unwrap().push().unwrap();
    push("holds");
    wait(&dispatching, |_| runs.load(Ordering::Acquire));
    for name in ["last", "late-long", "middle", "early"] {
        push(name);
    }
    go.store(true, Ordering::Release);
    wait(&dispatching, |running| running.counts().iter().all(|(_, counts)| counts.completed == 1));
    stop(dispatching);
    Some(std::mem::take(&mut *order.lock().unwrap()))
}

#[test]
fn jobs_of_a_level_start_in_the_order_of_its_discipline() {
    let _alone = alone();
    for (strategy, wanted) in [
        (Builtin::Fifo, ["last", "late-long", "middle", "early"]),
        (Builtin::Edf, ["early", "middle", "late-long", "last"]),
        // Laxities of 899, 300, 450 and 399 s.
        (Builtin::Mlf, ["late-long", "early", "middle", "last"]),
    ] {
        let Some(order) = order_of(strategy) else { return };
        assert_eq!(order, wanted, "{}", strategy.name());
    }
}

#[test]
fn late_jobs_that_wait_are_dropped_or_go_below_all_levels() {
    let _alone = alone();
    let sporadic =
        |name: &str, deadline| Operation::sporadic(name, ms(1)).deadline(ms(deadline)).wcet(ms(1)).backlog(1);
    let set = Operations::new("late")
        .with(sporadic("holds", 2000))
        .with(sporadic("dropped", 20).late(Late::Drop))
        .with(Operation::after("shed", ["dropped"]).deadline(ms(20)).wcet(ms(1)))
        .with(sporadic("demoted", 20).late(Late::Demote))
        .with(sporadic("in time", 3000));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (runs, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut dispatcher = Dispatcher::new(plan(&set, Builtin::Edf));
    let demoted_priority = dispatcher.plan().demoted_priority;
    for name in ["dropped", "shed", "demoted", "in time"] {
        let ran = ran.clone();
        let tell = move |_: &takt_dispatch::Job<'_>| {
            ran.lock().unwrap().push((name, sched::current()));
        };
        dispatcher = dispatcher.on(name, tell).unwrap();
    }
    let (began, open) = (runs.clone(), go.clone());
    let dispatcher = dispatcher.on("holds", move |_| {
        began.store(true, Ordering::Release);
        while !open.load(Ordering::Acquire) {
            // It mostly keeps the CPU from the demoted job, but lets the timer run.
            work(ms(1));
        }
    });
    let Some(dispatching) = started(dispatcher.unwrap()) else { return };
    let push = |name| dispatching.operation(name).unwrap().push().unwrap();
    push("holds");
    wait(&dispatching, |_| runs.load(Ordering::Acquire));
    // In this order, so that both are late once the second one is dropped.
    push("demoted");
    push("dropped");
    wait(&dispatching, |running| running.counts().iter().any(|(name, it)| name == "dropped" && it.dropped == 1));
    push("in time");
    go.store(true, Ordering::Release);
    wait(&dispatching, |running| {
        running.counts().iter().all(|(name, it)| name == "dropped" || name == "shed" || it.completed == 1)
    });
    let (stopped, events) = stop(dispatching);
    let ran = std::mem::take(&mut *ran.lock().unwrap());
    let names: Vec<&str> = ran.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["in time", "demoted"], "whose deadline has passed goes last, or not at all");
    assert_eq!(Some(ran[1].1), demoted_priority.map(|priority| Class::Fifo { priority }));
    let counts = |wanted: &str| stopped.counts.iter().find(|(name, _)| name == wanted).unwrap().1;
    assert_eq!((counts("dropped").dropped, counts("dropped").completed), (1, 0));
    assert_eq!((counts("shed").cancelled, counts("shed").released), (1, 1), "what follows is shed once");
    let of = |cause| {
        events.iter().filter(|(_, _, event)| matches!(event, Event::Cancel { cause: it, .. } if *it == cause)).count()
    };
    assert_eq!((of(CancelCause::Late), of(CancelCause::Shed)), (1, 1));
}

#[test]
fn no_burst_follows_an_overrun() {
    let _alone = alone();
    let set = Operations::new("overrun").with(Operation::periodic("o", ms(10)).wcet(ms(1)));
    let overran = AtomicBool::new(false);
    let dispatcher = Dispatcher::new(plan(&set, Builtin::Rm)).on("o", move |job| {
        // The third job takes three periods and a half, or the next one where a pause kept that from its start.
        if job.number() >= 2 && !overran.swap(true, Ordering::AcqRel) {
            while job.now() < job.arrival() + ms(35) {
                clock::pause(ms(1));
            }
        }
    });
    let Some(dispatching) = started(dispatcher.unwrap()) else { return };
    wait(&dispatching, |running| running.counts()[0].1.completed >= 8);
    let (stopped, events) = stop(dispatching);
    assert!(stopped.counts[0].1.rejected >= 3, "{stopped:?}");
    // No job starts that arrived while another one waited or ran.
    let mut arrivals = BTreeMap::new();
    let mut open = None;
    for (_, at, event) in &events {
        match *event {
            Event::Release { job, arrival, .. } => {
                arrivals.insert(job.number, arrival);
                open = open.or(Some(job.number));
            }
            Event::Start { job, .. } => {
                assert_eq!(open, Some(job.number), "job {} starts at {at} though it came too early", job.number);
            }
            Event::Complete { job, .. } | Event::Cancel { job, .. } => open = open.filter(|open| *open != job.number),
            _ => {}
        }
    }
    // And no drift: all on the grid.
    assert!(arrivals.values().all(|arrival| arrival.as_ns() % 10_000_000 == 0));
}

#[test]
fn the_one_that_does_not_return_is_named_though_others_ran_when_it_was_stopped() {
    let _alone = alone();
    let set = Operations::new("stuck")
        .with(Operation::sporadic("returns", ms(1)).wcet(ms(1)))
        .with(Operation::sporadic("stuck", ms(1000)).wcet(ms(1)));
    let (runs, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (began, held) = (runs.clone(), go.clone());
    let built = Dispatcher::new(plan(&set, Builtin::Rm))
        .on("returns", |job| {
            while !job.must_stop() {
                clock::pause(ms(1));
            }
        })
        .and_then(|built| {
            built.on("stuck", move |_| {
                began.store(true, Ordering::Release);
                while !held.load(Ordering::Acquire) {
                    clock::pause(ms(2));
                }
            })
        });
    let Some(dispatching) = started(built.unwrap()) else { return };
    dispatching.operation("stuck").unwrap().push().unwrap();
    wait(&dispatching, |_| runs.load(Ordering::Acquire));
    dispatching.operation("returns").unwrap().push().unwrap();
    clock::pause(ms(20));
    let error = dispatching.stop(&mut Events::new()).unwrap_err();
    go.store(true, Ordering::Release);
    let StopError::Stuck { operation, stopped, .. } = error else { panic!("{error}") };
    assert_eq!(operation, "stuck");
    assert_eq!(stopped.counts[0].1.completed, 0, "what a stop ended is not complete");
}
