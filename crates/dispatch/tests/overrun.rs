//! Handlers that execute for longer than their operation's wcet, on the real kernel. The program
//! learns of it while they run.
//!
//! No test asserts a wall-clock time. A handler continues until the expected event has happened, or
//! for five seconds.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_dispatch::{Counts, Dispatcher, Dispatching, Limits, Operation, Operations, Options, Overrun, StartError};
use takt_linux::{Epoch, clock};
use takt_log::NullSink;
use takt_model::{Builtin, Span, Time};

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

fn dispatcher(operations: &Operations, best_effort: bool) -> Dispatcher {
    let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default()).unwrap();
    Dispatcher::new(plan).with(Options { best_effort, ..Options::default() })
}

/// One level, in which jobs preempt each other.
fn preemptive(operations: &Operations) -> Dispatcher {
    let limits = Limits { preemptive: true, ..Limits::default() };
    Dispatcher::new(operations.compute(&Builtin::Edf.strategy(), &limits).unwrap())
}

fn counts(dispatching: &Dispatching, name: &str) -> Counts {
    dispatching.counts().into_iter().find(|(other, _)| other == name).unwrap().1
}

/// Works until a condition holds. Returns whether it held within five seconds.
fn work_until(is_so: impl Fn() -> bool) -> bool {
    let clock = Epoch::now_is_zero();
    while !is_so() {
        if clock.now() > Time::ZERO + Span::from_s(5) {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

#[test]
fn the_program_hears_of_an_overrun_while_the_job_runs_and_a_job_may_be_stopped_by_it() {
    for (overrun, failed) in [(Overrun::Continue, 0), (Overrun::Stop, 1)] {
        let long = Operation::sporadic("long", ms(20)).wcet(ms(2)).deadline(ms(20)).overrun(overrun);
        let operations = Operations::new("set").with(long).with(Operation::after("next", ["long"]).wcet(ms(1)));
        let (heard, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let handler = {
            let (heard, seen) = (heard.clone(), seen.clone());
            move |job: &takt_dispatch::Job<'_>| {
                let heard = work_until(|| heard.load(Ordering::Acquire));
                let all = heard && job.has_overrun() && job.must_stop() == (overrun == Overrun::Stop);
                seen.fetch_add(if all { 1 } else { 100 }, Ordering::AcqRel);
            }
        };
        let dispatcher = dispatcher(&operations, true).on("long", handler).unwrap().on("next", |_| ()).unwrap();
        let dispatching = dispatcher.start().unwrap();
        let overruns = dispatching.overruns();
        let descriptor = overruns.descriptor().unwrap().as_raw_fd();
        assert!(descriptor >= 0 && overruns.next(Span::ZERO).is_none());
        dispatching.operation("long").unwrap().push().unwrap();
        let overran = overruns.next(Span::from_s(5)).expect("told while the job runs");
        assert_eq!((overran.operation.as_str(), overran.job, seen.load(Ordering::Acquire)), ("long", 0, 0));
        assert!(overran.at >= Time::ZERO + ms(2));
        heard.store(true, Ordering::Release);
        let over = |of: Counts| of.completed + of.failed + of.cancelled == 1;
        assert!(work_until(|| over(counts(&dispatching, "long")) && over(counts(&dispatching, "next"))));
        let (long, next) = (counts(&dispatching, "long"), counts(&dispatching, "next"));
        assert_eq!(seen.load(Ordering::Acquire), 1);
        assert_eq!((long.overran, long.failed, long.completed), (1, failed, 1 - failed));
        assert_eq!((next.cancelled, next.overran), (failed, 0), "what follows a job that was stopped is shed");
        assert_eq!((overruns.lost(), overruns.next(Span::ZERO)), (0, None));
        dispatching.stop(&mut NullSink).unwrap();
    }
}

/// Also if another job preempts it, because only the CPU time of its thread counts.
#[test]
fn a_job_that_takes_longer_than_its_wcet_without_executing_has_no_overrun() {
    let long = Operation::sporadic("long", ms(400)).wcet(ms(200)).deadline(ms(400)).overrun(Overrun::Stop);
    let dispatcher = dispatcher(&Operations::new("set").with(long), true);
    let dispatching = dispatcher.on("long", |_| clock::pause(ms(250))).unwrap().start().unwrap();
    dispatching.operation("long").unwrap().push().unwrap();
    assert_eq!(dispatching.overruns().next(ms(300)), None);
    assert!(work_until(|| counts(&dispatching, "long").completed == 1));
    assert_eq!(counts(&dispatching, "long").overran, 0);
    dispatching.stop(&mut NullSink).unwrap();
}

/// At the priority of demoted jobs it gives way to less important levels. Another thread takes the
/// next job of its own level.
#[test]
fn a_demoted_job_gives_way_to_all_levels() {
    gives_way(|operations| dispatcher(operations, false));
}

/// It also gives way to waiting jobs of its level. Until its demotion it goes first there.
#[test]
fn a_demoted_job_gives_way_where_jobs_of_a_level_preempt_each_other() {
    gives_way(preemptive);
}

fn gives_way(dispatcher: impl Fn(&Operations) -> Dispatcher) {
    let sporadic = |name, distance, wcet| Operation::sporadic(name, distance).wcet(wcet).deadline(distance);
    let operations = Operations::new("set")
        .with(sporadic("long", ms(50), ms(2)).overrun(Overrun::Demote))
        .with(sporadic("same", ms(50), ms(1)))
        .with(sporadic("less", ms(400), ms(1)));
    let ran = Arc::new(AtomicU64::new(0));
    let handler = |bit: u64| {
        let ran = ran.clone();
        move |_: &takt_dispatch::Job<'_>| {
            ran.fetch_or(bit, Ordering::AcqRel);
        }
    };
    let seen = Arc::new(AtomicU64::new(0));
    let long = {
        let (ran, seen) = (ran.clone(), seen.clone());
        move |_: &takt_dispatch::Job<'_>| {
            let clock = Epoch::now_is_zero();
            while ran.load(Ordering::Acquire) != 3 && clock.now() < Time::ZERO + Span::from_s(3) {
                std::hint::spin_loop();
            }
            seen.store(ran.load(Ordering::Acquire), Ordering::Release);
        }
    };
    let dispatcher = dispatcher(&operations).on("long", long).unwrap();
    let dispatcher = dispatcher.on("same", handler(1)).unwrap().on("less", handler(2)).unwrap();
    let plan = dispatcher.plan().clone();
    let least = plan.levels.iter().map(|level| level.priority).min().unwrap();
    assert_eq!(plan.demoted_priority.map(u32::from), Some(u32::from(least) - plan.demoted_nesting));
    let dispatching = match dispatcher.start() {
        Ok(dispatching) => dispatching,
        Err(error @ StartError::Privilege { .. }) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let push = |name: &str| dispatching.operation(name).unwrap().push().unwrap();
    push("long");
    push("same");
    push("less");
    assert!(dispatching.overruns().next(Span::from_s(5)).is_some());
    let done = |name| counts(&dispatching, name).completed == 1;
    let clock = Epoch::now_is_zero();
    while !done("long") && clock.now() < Time::ZERO + Span::from_s(5) {
        takt_linux::clock::pause(ms(1));
    }
    assert_eq!(seen.load(Ordering::Acquire), 3, "both ran while the long job did");
    let stopped = dispatching.stop(&mut NullSink).unwrap();
    assert_eq!((stopped.refused, stopped.counts[0].1.overran, stopped.counts[0].1.completed), (0, 1, 1));
}

#[test]
fn a_plan_without_a_priority_for_demoted_jobs_is_refused() {
    let long = Operation::sporadic("long", ms(50)).wcet(ms(2)).overrun(Overrun::Demote);
    let limits = Limits { priorities: 1..=2, ..Limits::default() };
    let refused = Operations::new("set").with(long).compute(&Builtin::Rm.strategy(), &limits);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("demoted"), "{said}");
}
