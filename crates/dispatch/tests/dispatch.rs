//! The dispatcher on the real kernel. Each test takes less than a second. Without the needed
//! privilege it says so and passes.
//!
//! No test asserts a wall-clock time, so all of them hold on slow machines.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use live::{alone, ms, started, work};
use takt_dispatch::{
    Adaptive, Counts, Dispatcher, Dispatching, Handle, Job, Limits, Operation, Operations, Options, Plan, PushError,
    StartError, StopError, Stopped,
};
use takt_linux::{Class, Epoch, clock, sched};
use takt_log::{CancelCause, Event, JobKey, NullSink};
use takt_model::system::Mode;
use takt_model::{Builtin, Late, NodeId, Span, Strategy, StrategyRef, TaskId, Time};

#[path = "dispatch/ends.rs"]
mod ends;
#[path = "common/live.rs"]
mod live;
#[path = "dispatch/starts.rs"]
mod starts;

type Events = Vec<(u32, Time, Event)>;

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn dispatcher(operations: &Operations, strategy: Strategy) -> Dispatcher {
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    Dispatcher::new(operations.compute(&strategy, &limits).unwrap_or_else(|anomalies| panic!("{anomalies}")))
}

/// The plan of rm, with a mode under another strategy.
fn rm_and(other: Builtin, operations: &Operations) -> Plan {
    let mut system = operations.to_system(&Builtin::Rm.strategy()).unwrap();
    let at = Time::ZERO + Span::from_s(100);
    system.modes.push(Mode { node: NodeId(0), at, strategy: StrategyRef::Builtin(other) });
    Plan::compute(&system, NodeId(0), &Limits::default()).unwrap()
}

/// Runs until `enough` or 20 s, drains the log, and checks the invariants of every run.
fn run(mut dispatching: Dispatching, enough: impl Fn(&Dispatching) -> bool) -> (Stopped, Events) {
    let mut events = Events::new();
    let epoch = Epoch::now_is_zero();
    while !enough(&dispatching) && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(2));
        dispatching.drain(&mut events);
    }
    let stopped = dispatching.stop(&mut events).unwrap();
    check(&stopped, &events);
    (stopped, events)
}

/// Until every operation has completed this many jobs.
fn each(completed: u64) -> impl Fn(&Dispatching) -> bool {
    move |dispatching| dispatching.counts().iter().all(|(_, counts)| counts.completed >= completed)
}

fn count(stopped: &Stopped, name: &str) -> Counts {
    stopped.counts.iter().find(|(other, _)| other == name).map(|(_, counts)| *counts).unwrap()
}

/// Checks the order of events, and that numbers have no gaps. Every job is released once and ended
/// at most once. The log agrees with the counts.
fn check(stopped: &Stopped, events: &Events) {
    assert_eq!((stopped.lost, stopped.refused), (0, 0));
    assert!(events.windows(2).all(|pair| pair[0].1 <= pair[1].1), "in the order of time");
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    let mut open: BTreeMap<JobKey, bool> = BTreeMap::new();
    let mut said: BTreeMap<u32, Counts> = BTreeMap::new();
    for (_, at, event) in events {
        match event {
            Event::Release { job, .. } => {
                let next = next.entry(job.task.0).or_default();
                assert_eq!(job.number, *next, "{event:?} at {at}");
                *next += 1;
                said.entry(job.task.0).or_default().released += 1;
                open.insert(*job, false);
            }
            Event::Start { job, .. } => assert_eq!(open.insert(*job, true), Some(false), "{event:?} at {at}"),
            Event::Preempt { job, .. } | Event::Resume { job, .. } => {
                assert_eq!(open.get(job), Some(&true), "{event:?} at {at}")
            }
            Event::Complete { job, .. } => {
                assert_eq!(open.remove(job), Some(true), "{event:?} at {at}");
                said.entry(job.task.0).or_default().completed += 1;
            }
            Event::Cancel { job, cause } => {
                let was = open.remove(job);
                let said = said.entry(job.task.0).or_default();
                let may_have_started = matches!(cause, CancelCause::Late | CancelCause::Failed);
                assert!(was == Some(false) || was == Some(true) && may_have_started, "{event:?} at {at}: {was:?}");
                match cause {
                    CancelCause::Rejected => said.rejected += 1,
                    CancelCause::Failed => said.failed += 1,
                    CancelCause::Late => said.dropped += 1,
                    CancelCause::Omitted | CancelCause::Shed => said.cancelled += 1,
                }
            }
            _ => {}
        }
    }
    for (index, (name, counts)) in stopped.counts.iter().enumerate() {
        let never = counts.cancelled + counts.rejected + counts.dropped + counts.failed;
        assert!((counts.late + never..=counts.late + counts.released - counts.completed).contains(&counts.unmet));
        let said = Counts {
            late: counts.late,
            unmet: counts.unmet,
            overran: counts.overran,
            ..said.get(&(index as u32)).copied().unwrap_or_default()
        };
        assert_eq!(said, *counts, "{name}");
        // Jobs left open by the log, or without an end of their own, are unfinished.
        let open = open.keys().filter(|job| job.task.0 == index as u32).count() as u64;
        assert_eq!(counts.unfinished(), open + counts.dropped + counts.failed, "{name}");
    }
}

#[test]
fn operations_run_at_their_levels() {
    let _alone = alone();
    let operations = Operations::new("levels")
        .with(Operation::periodic("control", ms(10)).wcet(ms(1)))
        .with(Operation::periodic("route", ms(20)).wcet(ms(2)).noncritical());
    let classes: Arc<Mutex<BTreeMap<String, Class>>> = Arc::default();
    let seen = |name: &'static str| {
        let classes = classes.clone();
        move |job: &Job<'_>| {
            assert_eq!(job.name(), name);
            assert!(job.deadline() > job.arrival());
            classes.lock().unwrap().insert(name.to_owned(), sched::current());
            work(us(300));
        }
    };
    let built = dispatcher(&operations, Builtin::Muf.strategy());
    let built = built.on("control", seen("control")).unwrap().on("route", seen("route")).unwrap();
    let Some(dispatching) = started(built) else { return };
    let (stopped, _) = run(dispatching, each(3));
    assert!(count(&stopped, "control").completed > 2 && count(&stopped, "route").completed > 2, "{stopped:?}");
    let classes = classes.lock().unwrap();
    assert_eq!(classes["control"], Class::Fifo { priority: 47 });
    assert_eq!(classes["route"], Class::Fifo { priority: 46 });
}

/// Each handler pushes the next, more urgent operation, and continues once that job is over.
#[test]
fn within_a_preemptive_level_jobs_nest() {
    let _alone = alone();
    let sporadic = |name, s| Operation::sporadic(name, us(1)).wcet(ms(1)).deadline(Span::from_s(s));
    let names = ["long", "middle", "short"];
    let operations =
        names.iter().zip([1000, 100, 10]).fold(Operations::new("nests"), |set, (name, s)| set.with(sporadic(*name, s)));
    let limits = Limits { critical_utilization_ppm: u32::MAX, preemptive: true, ..Limits::default() };
    for strategy in [Builtin::Edf, Builtin::Mlf] {
        let plan = operations.compute(&strategy.strategy(), &limits).unwrap_or_else(|anomalies| panic!("{anomalies}"));
        assert_eq!((plan.levels[0].priority, plan.levels[0].nesting), (45, 3));
        let seen: Arc<Mutex<Vec<(usize, Class)>>> = Arc::default();
        let handles: Arc<OnceLock<Vec<Handle>>> = Arc::default();
        let mut built = Dispatcher::new(plan);
        for (at, name) in names.iter().enumerate() {
            let (seen, handles) = (seen.clone(), handles.clone());
            built = built
                .on(name, move |_| {
                    if let Some(next) = handles.get().and_then(|handles| handles.get(at + 1)) {
                        next.push().unwrap();
                    }
                    seen.lock().unwrap().push((at, sched::current()));
                })
                .unwrap();
        }
        let Some(dispatching) = started(built) else { return };
        let all = names.map(|name| dispatching.operation(name).unwrap());
        assert!(handles.set(all.to_vec()).is_ok());
        all[0].push().unwrap();
        let (stopped, events) = run(dispatching, each(1));
        assert_eq!(count(&stopped, "short").completed, 1);
        let fifo = |priority| Class::Fifo { priority };
        assert_eq!(*seen.lock().unwrap(), [(2, fifo(47)), (1, fifo(46)), (0, fifo(45))]);
        let preempted = events.iter().filter(|(_, _, event)| matches!(event, Event::Preempt { .. })).count();
        let resumed = events.iter().filter(|(_, _, event)| matches!(event, Event::Resume { .. })).count();
        assert_eq!((preempted, resumed), (2, 2), "{events:?}");
    }
}

#[test]
fn a_more_important_level_preempts_and_within_a_level_nobody_does() {
    let _alone = alone();
    let operations = Operations::new("preemption")
        .with(Operation::periodic("fast", ms(2)).wcet(us(300)))
        .with(Operation::periodic("slow", ms(40)).wcet(ms(16)).noncritical())
        .with(Operation::periodic("other", ms(40)).wcet(ms(2)).deadline(ms(30)).noncritical());
    let built = dispatcher(&operations, Builtin::Muf.strategy())
        .on("fast", |_| work(us(100)))
        .and_then(|built| built.on("slow", |_| work(ms(12))))
        .and_then(|built| built.on("other", |_| work(ms(1))));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let (stopped, events) = run(dispatching, |dispatching| dispatching.counts()[1].1.completed >= 3);
    assert!(count(&stopped, "slow").completed >= 3);
    let preempted = |task| {
        events.iter().filter(|(_, _, event)| matches!(event, Event::Preempt { job, .. } if job.task.0 == task)).count()
    };
    assert!(preempted(1) > 0, "the long one loses its CPU to the fast one");
    assert_eq!(preempted(0), 0);
    // Between start and end of a job of the noncritical level, no other job of the level starts.
    let mut running = None;
    for (_, at, event) in events.iter() {
        match event {
            Event::Start { job, .. } if job.task.0 > 0 => assert_eq!(running.replace(*job), None, "{at}"),
            Event::Complete { job, .. } if job.task.0 > 0 => assert_eq!(running.take(), Some(*job), "{at}"),
            _ => {}
        }
    }
}

#[test]
fn chains_cross_cpus_and_what_waits_for_several_comes_last() {
    let _alone = alone();
    if sched::affinity().len() < 2 {
        println!("skipped: one CPU");
        return;
    }
    let operations = Operations::new("chain")
        .cpus(2)
        .with(Operation::periodic("left", ms(5)).wcet(us(200)))
        .with(Operation::periodic("right", ms(5)).wcet(us(200)).on_cpu(1))
        .with(Operation::after("both", ["left", "right"]).wcet(us(200)))
        .with(Operation::after("last", ["both"]).wcet(us(200)).on_cpu(1));
    let mut built = dispatcher(&operations, Builtin::Edf.strategy());
    let done: Arc<[AtomicU64; 4]> = Arc::default();
    for (index, name) in ["left", "right", "both", "last"].into_iter().enumerate() {
        let done = done.clone();
        let handler = move |job: &Job<'_>| {
            let number = job.number();
            let before: &[usize] = match index {
                2 => &[0, 1],
                3 => &[2],
                _ => &[],
            };
            for before in before {
                assert!(done[*before].load(Ordering::SeqCst) > number, "a predecessor has not ended");
            }
            done[index].store(number + 1, Ordering::SeqCst);
        };
        built = built.on(name, handler).unwrap();
    }
    let Some(dispatching) = started(built) else { return };
    let (stopped, events) = run(dispatching, |dispatching| dispatching.counts()[3].1.completed >= 10);
    assert!(stopped.counts.iter().all(|(_, counts)| counts.failed == 0), "{stopped:?}");
    let (both, last) = (count(&stopped, "both"), count(&stopped, "last"));
    assert!(last.completed >= 10 && both.completed >= last.completed);
    let hops = events.iter().filter_map(|(_, _, event)| match event {
        Event::Release { job, parent: Some(parent), .. } => Some((job.task.0, parent.hop)),
        _ => None,
    });
    assert!(hops.into_iter().all(|(task, hop)| hop == task - 1), "both is hop 1, last is hop 2");
}

#[test]
fn pushes_are_refused_truthfully_and_a_backlog_is_bounded() {
    let _alone = alone();
    let operations = Operations::new("pushes")
        .with(Operation::sporadic("alarm", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(ms(50)).backlog(3))
        .with(Operation::sporadic("rare", Span::from_s(100)).wcet(us(100)))
        .with(Operation::after("echo", ["alarm"]).wcet(Span::from_ns(1)).deadline(ms(50)).backlog(3).noncritical());
    let go = Arc::new(AtomicU64::new(0));
    let held = go.clone();
    let built = dispatcher(&operations, Builtin::Edf.strategy())
        .on("alarm", move |job| {
            // The first job sleeps, so that the others wait.
            let epoch = Epoch::now_is_zero();
            while held.load(Ordering::SeqCst) == 0 && !job.must_stop() {
                let _ = epoch.sleep_until(epoch.now() + us(500));
            }
        })
        .and_then(|built| built.on("rare", |_| ()))
        .and_then(|built| built.on("echo", |_| ()));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let (alarm, rare) = (dispatching.operation("alarm").unwrap(), dispatching.operation("rare").unwrap());
    assert!(dispatching.operation("nobody").is_none());
    assert_eq!(dispatching.operation("echo").unwrap().push(), Err(PushError::NotPushed));
    let pushed: Vec<_> = (0..200).map(|_| alarm.push()).collect();
    assert_eq!(pushed[..4], [Ok(0), Ok(1), Ok(2), Err(PushError::Full)]);
    assert!(pushed[3..].iter().all(|pushed| *pushed == Err(PushError::Full)));
    assert_eq!(rare.push(), Ok(0));
    // A push that is too early is no job, and does not delay the next one.
    let waits: Vec<Span> = (0..3)
        .map(|_| match rare.push() {
            Err(PushError::TooEarly { wait }) => wait,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(waits[0] > Span::from_s(50) && waits.windows(2).all(|pair| pair[1] <= pair[0]), "{waits:?}");
    go.store(1, Ordering::SeqCst);
    let (stopped, _) = run(dispatching, |dispatching| dispatching.counts()[2].1.completed >= 3);
    let (alarms, rares, echoes) = (count(&stopped, "alarm"), count(&stopped, "rare"), count(&stopped, "echo"));
    assert_eq!((alarms.released, alarms.completed, alarms.rejected), (200, 3, 197));
    assert_eq!((rares.released, rares.completed, rares.rejected), (1, 1, 0));
    // All followers of rejected jobs are shed, and no others.
    assert_eq!((echoes.completed, echoes.cancelled), (3, 197));
    assert_eq!(alarm.push(), Err(PushError::Stopped));
}

#[test]
fn a_deadline_is_seen_to_though_who_pushed_lost_its_cpu() {
    let _alone = alone();
    let long = Operation::sporadic("long", us(1)).wcet(us(1)).deadline(ms(20)).late(Late::Drop).noncritical();
    let operations = Operations::new("late").with(long);
    let told = Arc::new(AtomicU64::new(0));
    let telling = told.clone();
    let built = dispatcher(&operations, Builtin::Edf.strategy()).on("long", move |job| {
        // Preempts its pusher for much longer than its deadline, unless it is stopped.
        let until = clock::thread_cpu().saturating_add(ms(400));
        while !job.must_stop() && clock::thread_cpu() < until {
            std::hint::spin_loop();
        }
        telling.store(1 + u64::from(job.must_stop()), Ordering::SeqCst);
    });
    let Some(dispatching) = started(built.unwrap()) else { return };
    let long = dispatching.operation("long").unwrap();
    let cpu = sched::affinity()[0];
    // At ordinary priority.
    let pusher = std::thread::spawn(move || {
        sched::set_affinity(&[cpu]).unwrap();
        long.push()
    });
    let enough = |_: &Dispatching| told.load(Ordering::SeqCst) > 0;
    let (stopped, _) = run(dispatching, enough);
    assert_eq!((pusher.join().unwrap(), told.load(Ordering::SeqCst)), (Ok(0), 2), "told to stop");
    assert_eq!(count(&stopped, "long").dropped, 1);
}

#[test]
fn noncritical_work_that_is_hopeless_is_omitted_and_its_chain_shed_once() {
    let _alone = alone();
    let operations = Operations::new("overload")
        .cancel(true)
        .with(Operation::periodic("control", ms(10)).wcet(ms(4)))
        .with(Operation::periodic("leg1", ms(10)).wcet(ms(4)).noncritical())
        .with(Operation::after("leg2", ["leg1"]).wcet(ms(4)).noncritical())
        .with(Operation::after("leg3", ["leg2"]).wcet(ms(4)).noncritical());
    let mut built = dispatcher(&operations, Builtin::RmsMlf.strategy());
    for name in ["control", "leg1", "leg2", "leg3"] {
        built = built.on(name, |_| work(us(3900))).unwrap();
    }
    let Some(dispatching) = started(built) else { return };
    let enough = |dispatching: &Dispatching| {
        let counts = dispatching.counts();
        counts.iter().any(|(_, counts)| counts.cancelled > 0) && dispatching.now() > Time::ZERO + ms(300)
    };
    let (stopped, events) = run(dispatching, enough);
    let legs: Vec<Counts> = ["leg1", "leg2", "leg3"].map(|name| count(&stopped, name)).to_vec();
    assert!(legs.iter().any(|leg| leg.cancelled > 0), "{legs:?}");
    assert_eq!(count(&stopped, "control").cancelled, 0);
    for (follower, released) in (2..).zip(legs[1..].iter().map(|leg| leg.released)) {
        follows(&events, follower, follower - 1, released);
    }
}

/// Job k follows job k. It is shed if its predecessor did not complete. Otherwise it is released
/// once all earlier jobs of the predecessor have ended.
fn follows(events: &Events, follower: u32, predecessor: u32, released: u64) {
    let mut ends: BTreeMap<JobKey, Option<CancelCause>> = BTreeMap::new();
    for (_, _, event) in events {
        match *event {
            Event::Complete { job, .. } => drop(ends.insert(job, None)),
            Event::Cancel { job, cause } => drop(ends.insert(job, Some(cause))),
            _ => {}
        }
    }
    let of = |task: u32, number| ends.get(&JobKey { task: TaskId(task), number });
    let ended = (0..).take_while(|number| of(predecessor, *number).is_some()).count() as u64;
    assert_eq!(released, ended, "{follower} after {predecessor}");
    for number in 0..released {
        let lost = of(predecessor, number).is_some_and(Option::is_some);
        assert_eq!(of(follower, number) == Some(&Some(CancelCause::Shed)), lost, "{follower}: {number}");
    }
}

#[test]
fn a_controller_brings_the_guard_when_a_critical_job_is_in_danger_and_calm_after_it() {
    let _alone = alone();
    let operations = Operations::new("adaptive")
        .with(Operation::periodic("critical", ms(80)).wcet(ms(4)))
        .with(Operation::periodic("quick", ms(10)).wcet(ms(2)).noncritical());
    let plan = rm_and(Builtin::RmsMlf, &operations);
    let law = Adaptive { window: ms(20), dwell: 1, dwell_max: 2, ..Adaptive::between(0, 1) };
    let misfit = Dispatcher::new(plan.clone()).adaptive(Adaptive::between(1, 1)).start().err().unwrap();
    assert!(misfit.to_string().contains("plans 1 and 1 are to be the node's strategy at the start (0)"), "{misfit}");
    let unknown = Dispatcher::new(plan.clone()).adaptive(law.clone().response("nobody", ms(1))).start().err().unwrap();
    assert!(unknown.to_string().contains("no operation \"nobody\""), "{unknown}");
    // Every third job takes longer than its time until danger: 80 - 79 ms, less the margin.
    let built = Dispatcher::new(plan)
        .adaptive(law.response("critical", ms(79)))
        .on("critical", |job| work(if job.number() % 3 == 0 { us(3000) } else { us(50) }))
        .and_then(|built| built.on("quick", |_| work(us(500))));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let (stopped, events) = run(dispatching, |dispatching| dispatching.counts()[0].1.completed >= 7);
    assert!(count(&stopped, "critical").completed >= 7);
    let modes: Vec<_> = events.iter().filter(|(_, _, event)| matches!(event, Event::ModeChange { .. })).collect();
    // To the guard by the first job, back, and to the guard again.
    assert!(modes.len() >= 3, "{modes:?}");
    let ended = events.iter().position(|(_, _, event)| matches!(event, Event::Complete { job, .. } if job.task.0 == 0));
    let mode = events.iter().position(|(_, _, event)| matches!(event, Event::ModeChange { .. }));
    assert!(mode < ended, "before the first job is complete");
}

#[test]
fn a_critical_job_that_the_program_pushes_brings_the_guard_while_it_runs() {
    let _alone = alone();
    let critical = Operation::sporadic("critical", ms(900)).wcet(ms(4));
    let plan = rm_and(Builtin::RmsMlf, &Operations::new("pushed").with(critical));
    // In danger 0.5 ms after its arrival; the timer wakes by itself after a second.
    let law = Adaptive::between(0, 1).response("critical", ms(899));
    let built = Dispatcher::new(plan).adaptive(law).on("critical", |_| work(ms(20)));
    let Some(dispatching) = started(built.unwrap()) else { return };
    assert_eq!(dispatching.operation("critical").unwrap().push(), Ok(0));
    let (_, events) = run(dispatching, each(1));
    let place = |of: fn(&Event) -> bool| events.iter().position(|(_, _, event)| of(event));
    let guard = place(|event| matches!(event, Event::ModeChange { mode: 1 }));
    let ended = place(|event| matches!(event, Event::Complete { .. }));
    assert!(guard.is_some() && guard < ended, "{events:?}");
}

#[test]
fn a_switch_loses_nothing_and_goes_by_the_new_plan() {
    let _alone = alone();
    let operations = Operations::new("modes")
        .with(Operation::periodic("critical", ms(20)).wcet(ms(4)))
        .with(Operation::periodic("quick", ms(4)).wcet(ms(2)).noncritical())
        .with(Operation::periodic("middle", ms(10)).wcet(ms(3)).noncritical());
    let plan = rm_and(Builtin::Muf, &operations);
    let mut built = Dispatcher::new(plan);
    let classes: Arc<Mutex<Vec<(String, Class)>>> = Arc::default();
    for (name, span) in [("critical", us(3500)), ("quick", us(1500)), ("middle", us(2500))] {
        let classes = classes.clone();
        built = built
            .on(name, move |_| {
                work(span);
                // Read at the job's end, after a possible switch.
                classes.lock().unwrap().push((name.to_owned(), sched::current()));
            })
            .unwrap();
    }
    let Some(mut dispatching) = started(built) else { return };
    assert_eq!(dispatching.switch(2), None);
    let mut events = Events::new();
    for round in 0..40 {
        clock::pause(ms(7));
        let switched = dispatching.switch(1 - round % 2).unwrap();
        assert!(switched.moved <= 3);
        dispatching.drain(&mut events);
    }
    dispatching.switch(1).unwrap();
    let before = dispatching.counts()[0].1.completed;
    classes.lock().unwrap().clear();
    let epoch = Epoch::now_is_zero();
    while dispatching.counts()[0].1.completed < before + 3 && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(5));
        dispatching.drain(&mut events);
    }
    let stopped = dispatching.stop(&mut events).unwrap();
    check(&stopped, &events);
    let switches = events.iter().filter(|(_, _, event)| matches!(event, Event::ModeChange { .. })).count();
    assert!(switches >= 40, "{switches}");
    // By urgency now: critical above all others.
    let last = classes.lock().unwrap().iter().rev().find(|(name, _)| name == "critical").cloned().unwrap();
    assert_eq!(last.1, Class::Fifo { priority: 47 });
    assert!(count(&stopped, "critical").completed >= before + 3);
}

#[test]
fn nothing_is_lost_where_many_push_at_once() {
    let _alone = alone();
    let operations = Operations::new("many")
        .with(Operation::sporadic("a", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(ms(100)).backlog(8))
        .with(
            Operation::sporadic("b", Span::from_ns(1))
                .wcet(Span::from_ns(1))
                .deadline(ms(100))
                .backlog(8)
                .noncritical(),
        );
    let ran = Arc::new(AtomicU64::new(0));
    let mut built = dispatcher(&operations, Builtin::Muf.strategy());
    for name in ["a", "b"] {
        let ran = ran.clone();
        built = built
            .on(name, move |_| {
                ran.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
    }
    let Some(mut dispatching) = started(built) else { return };
    let handles = ["a", "b"].map(|name| dispatching.operation(name).unwrap());
    let mut events = Events::new();
    let queued = std::thread::scope(|scope| {
        let pushers: Vec<_> = (0..4)
            .map(|pusher| {
                let handle = handles[pusher % 2].clone();
                scope.spawn(move || (0..2000).filter(|_| handle.push().is_ok()).count() as u64)
            })
            .collect();
        while pushers.iter().any(|pusher| !pusher.is_finished()) {
            clock::pause(ms(1));
            dispatching.drain(&mut events);
        }
        pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum::<u64>()
    });
    let epoch = Epoch::now_is_zero();
    while ran.load(Ordering::SeqCst) < queued && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(2));
        dispatching.drain(&mut events);
    }
    let stopped = dispatching.stop(&mut events).unwrap();
    check(&stopped, &events);
    assert_eq!(ran.load(Ordering::SeqCst), queued);
    let all = stopped.counts.iter().fold((0, 0, 0), |sum, (_, counts)| {
        (sum.0 + counts.released, sum.1 + counts.completed, sum.2 + counts.rejected)
    });
    assert_eq!(all, (8000, queued, 8000 - queued));
}

/// With two threads, a level has two jobs in progress at once while they wait. With one thread, its
/// jobs run one after the other.
#[test]
fn each_level_has_the_threads_that_the_plan_says() {
    let _alone = alone();
    let names = ["critical 1", "critical 2", "rest 1", "rest 2"];
    let sporadic = |name: &str| Operation::sporadic(name, ms(1)).wcet(us(1)).deadline(Span::from_s(1));
    let set = Operations::new("pools")
        .with(sporadic(names[0]))
        .with(sporadic(names[1]))
        .with(sporadic(names[2]).noncritical())
        .with(sporadic(names[3]).noncritical());
    let plan = set.compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap().with_threads(0, 1, 2);
    assert_eq!(plan.levels.iter().map(|level| level.threads).collect::<Vec<_>>(), [1, 2]);
    let inside = Arc::new([const { AtomicU64::new(0) }; 2]);
    let most = Arc::new([const { AtomicU64::new(0) }; 2]);
    let pushes = Arc::new(AtomicU64::new(0));
    let mut built = Dispatcher::new(plan);
    for (at, name) in names.iter().enumerate() {
        let (inside, most, pushed) = (inside.clone(), most.clone(), pushes.clone());
        let handler = move |job: &takt_dispatch::Job<'_>| {
            let now = 1 + inside[at / 2].fetch_add(1, Ordering::SeqCst);
            most[at / 2].fetch_max(now, Ordering::SeqCst);
            // Waits for the other job of its level: for long where it must come, else for a while after its push.
            let epoch = Epoch::now_is_zero();
            let patience = || if at / 2 == 1 || pushed.load(Ordering::SeqCst) < 4 { Span::from_s(20) } else { ms(100) };
            while most[at / 2].load(Ordering::SeqCst) < 2 && epoch.now() < Time::ZERO + patience() && !job.must_stop() {
                let _ = epoch.sleep_until(epoch.now() + us(500));
            }
            inside[at / 2].fetch_sub(1, Ordering::SeqCst);
        };
        built = built.on(name, handler).unwrap();
    }
    let Some(dispatching) = started(built) else { return };
    for name in names {
        dispatching.operation(name).unwrap().push().unwrap();
        pushes.fetch_add(1, Ordering::SeqCst);
    }
    let (stopped, _) = run(dispatching, |dispatching| dispatching.counts().iter().all(|(_, of)| of.completed == 1));
    assert!(names.iter().all(|name| count(&stopped, name).completed == 1));
    assert_eq!([0, 1].map(|level: usize| most[level].load(Ordering::SeqCst)), [1, 2]);
}
