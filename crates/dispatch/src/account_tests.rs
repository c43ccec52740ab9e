//! Both accounts of a virtual machine. The test rehearses a plan and sometimes gives the CPU to
//! other threads. From its knowledge of who has the CPU the test writes the kernel's account.

use proptest::prelude::*;
use takt_log::causes::Cause;
use takt_log::{CancelCause, Event, JobKey, Parent};
use takt_model::{Builtin, Span};
use takt_trace::merge::{Merge, RunEvent, RunEventKind as Kind, RunEventSink as _, SwitchOutReason, Worker};
use takt_trace::{Comm, Thread};

use super::*;
use crate::{Limits, Operation, Operations, PlanMode};

const NS: fn(u64) -> Time = Time::from_ns;

type Events = Vec<(Time, Event)>;

struct Log(Events);

/// Events of jobs only. Delays by other threads are stored apart.
impl Sink for Log {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        assert!(self.0.last().is_none_or(|(last, _)| *last <= now), "in the order of time");
        if !matches!(event, Event::Occupy { .. }) {
            self.0.push((now, *event));
        }
    }
}

/// The merged log of both accounts, and its causes of lateness.
struct Evidence {
    merged: Merge,
    causes: Causes,
}

struct Evident {
    late: BTreeMap<TaskId, Late>,
    missing: u64,
}

impl Evidence {
    fn new(plan: &Plan, lanes: Vec<Worker>) -> Evidence {
        Evidence { merged: Merge::of_workers(plan.node.0, lanes), causes: causes(plan, false) }
    }

    fn advance(&mut self, until: Time, log: &mut Log) {
        self.merged.until(until);
        self.merged.advance(until, Time::MAX, &mut (log, &mut self.causes));
    }

    fn event(&mut self, at: Time, event: &Event) {
        self.merged.event(0, at, event);
    }

    fn run_event(&mut self, seen: RunEvent) {
        self.merged.run_event(seen);
    }

    /// Late tasks alone.
    fn finish(mut self, end: Time, log: &mut Log) -> Evident {
        let missing = self.merged.finish(end, &mut (log, &mut self.causes)).missing;
        let late = self.causes.finish(end).unwrap();
        Evident { late: late.into_iter().filter(|(_, late)| late.jobs > 0).collect(), missing }
    }
}

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn thread(pid: u32, comm: &str) -> Thread {
    Thread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(0) }
}

fn plan(operations: &[(u64, u64, bool)], strategy: Builtin) -> Plan {
    let mut set = Operations::new("plant");
    for (at, (period, wcet, critical)) in operations.iter().enumerate() {
        let operation = Operation::periodic(&format!("o{at}"), us(*period)).wcet(us(*wcet)).backlog(64);
        set = set.with(if *critical { operation } else { operation.noncritical() });
    }
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let system = set.to_system(&strategy.strategy()).unwrap();
    Plan::compute_regardless(&system, takt_model::NodeId(0), &limits).unwrap().0.with_backlog(64)
}

/// A run of a plan on one CPU. Other threads take the CPU at given times (before holes), for given
/// spans.
struct Play {
    /// The dispatcher's own account.
    told: Events,
    seen: Vec<RunEvent>,
    /// The expected log.
    truth: Events,
    /// When other threads preempted the plan's thread, from and to.
    holes: Vec<(Time, Time)>,
    end: Time,
}

fn play(plan: &Plan, duration: Span, holes: &[(u64, u64)]) -> Play {
    let mut log = Log(Vec::new());
    plan.rehearse(duration, 7, &mut log).unwrap();
    let level = |job: JobKey| plan.rows.iter().find(|row| row.task == job.task).unwrap().level as usize;
    let deadline = |job: JobKey| plan.system.tasks[job.task.index()].deadline;
    let warp = |at: Time| {
        let before = holes.iter().filter(|(hole, _)| NS(*hole) < at);
        at.saturating_add(before.fold(Span::ZERO, |sum, (_, length)| sum.saturating_add(Span::from_ns(*length))))
    };
    let end = warp(NS(duration.as_ns()));
    let mut play = Play { told: Vec::new(), seen: Vec::new(), truth: Vec::new(), holes: Vec::new(), end };
    let (mut on, mut open) = (None::<JobKey>, Vec::new());
    let mut left: Vec<(u64, u64)> = holes.to_vec();
    left.reverse();
    let see = |play: &mut Play, at: Time, what: Kind| play.seen.push(RunEvent { at, what });
    let last = (NS(duration.as_ns() + 1), None);
    for (at, event) in log.0.iter().map(|(at, event)| (*at, Some(*event))).chain([last]) {
        while let Some((hole, length)) = left.pop_if(|(hole, _)| NS(*hole) < at) {
            // Events at the hole's own time are before it.
            let from = warp(NS(hole));
            let to = from.saturating_add(Span::from_ns(length));
            if let Some(job) = on {
                let lane = level(job);
                see(&mut play, from, Kind::SwitchOut { lane, cpu: 0, why: SwitchOutReason::Taken });
                see(&mut play, from, Kind::OtherIn { cpu: 0, thread: thread(9, "pauser") });
                see(&mut play, to, Kind::SwitchIn { lane, cpu: 0 });
                play.truth.extend([(from, Event::Preempt { job, cpu: 0 }), (to, Event::Resume { job, cpu: 0 })]);
                play.holes.push((from, to));
            }
        }
        let Some(event) = event else { break };
        let at = warp(at);
        let told = match event {
            Event::Release { job, arrival, parent } => {
                let arrival = warp(arrival);
                open.push((job, arrival));
                Event::Release { job, arrival, parent }
            }
            Event::Miss { .. } => continue,
            other => other,
        };
        match told {
            Event::Start { job, .. } => {
                if let Some(before) = on.replace(job) {
                    see(&mut play, at, Kind::SwitchOut { lane: level(before), cpu: 0, why: SwitchOutReason::Taken });
                }
                see(&mut play, at, Kind::SwitchIn { lane: level(job), cpu: 0 });
            }
            Event::Resume { job, .. } => {
                on = Some(job);
                see(&mut play, at, Kind::SwitchIn { lane: level(job), cpu: 0 });
            }
            Event::Complete { job, .. } => {
                on = None;
                open.retain(|(other, _)| *other != job);
                see(&mut play, at, Kind::SwitchOut { lane: level(job), cpu: 0, why: SwitchOutReason::Asleep });
                see(&mut play, at, Kind::OtherIn { cpu: 0, thread: thread(0, "swapper/0") });
            }
            _ => {}
        }
        play.told.push((at, told));
        play.truth.push((at, told));
    }
    // Deadlines that pass while a job waits or runs.
    let released = play.told.clone();
    for (_, event) in &released {
        let Event::Release { job, arrival, .. } = *event else { continue };
        let due = arrival.saturating_add(deadline(job));
        let ends = |event: &Event| match event {
            Event::Complete { job: done, .. } | Event::Cancel { job: done, .. } => *done == job,
            _ => false,
        };
        let over = released.iter().find(|(_, event)| ends(event));
        // At the end itself, too, as in the statistics.
        if over.map_or(end >= due, |(at, _)| *at > due) {
            for log in [&mut play.told, &mut play.truth] {
                let at = log.partition_point(|(at, _)| *at <= due);
                log.insert(at, (due, Event::Miss { job }));
            }
        }
    }
    play
}

fn merged(plan: &Plan, play: &Play, looks: u64) -> (Events, Evident) {
    let levels = plan.rows.iter().map(|row| row.level).max().unwrap() as usize + 1;
    let mut evidence = Evidence::new(plan, vec![Worker { cpu: 0, works: true }; levels]);
    let mut log = Log(Vec::new());
    let (mut told, mut seen) = (play.told.iter().peekable(), play.seen.iter().peekable());
    for look in 1..=looks {
        let until = NS(play.end.as_ns() / looks * look);
        while let Some((at, event)) = told.next_if(|(at, _)| *at < until) {
            evidence.event(*at, event);
        }
        while let Some(one) = seen.next_if(|seen| seen.at < until) {
            evidence.run_event(*one);
        }
        evidence.advance(until, &mut log);
    }
    told.for_each(|(at, event)| evidence.event(*at, event));
    seen.for_each(|one| evidence.run_event(*one));
    let evident = evidence.finish(play.end, &mut log);
    (log.0, evident)
}

/// In the order of time, and within one time in any order.
fn sorted(events: &Events) -> Vec<(Time, String)> {
    let mut lines: Vec<_> = events.iter().map(|(at, event)| (*at, format!("{event:?}"))).collect();
    lines.sort();
    lines
}

/// The number of late jobs of each task, and how long other threads had the CPU in their busy
/// periods. Found without an account of turns.
fn reference(plan: &Plan, play: &Play) -> BTreeMap<TaskId, (u64, Span)> {
    let level = |job: &JobKey| plan.rows.iter().find(|row| row.task == job.task).unwrap().level;
    let mut jobs: BTreeMap<JobKey, (Time, Time, bool)> = BTreeMap::new();
    for (at, event) in &play.told {
        match event {
            Event::Release { job, arrival, .. } => drop(jobs.insert(*job, (*arrival, play.end, false))),
            Event::Complete { job, .. } => jobs.get_mut(job).unwrap().1 = *at,
            Event::Miss { job } => jobs.get_mut(job).unwrap().2 = true,
            _ => {}
        }
    }
    let mut found: BTreeMap<TaskId, (u64, Span)> = BTreeMap::new();
    for (job, (arrival, end, _)) in jobs.iter().filter(|(_, (_, _, missed))| *missed) {
        // Back from its arrival, while some job of its level or a more important level exists.
        let mut since = *arrival;
        loop {
            let there = |(other, (arrival, end, _)): (&JobKey, &(Time, Time, bool))| {
                (level(other) <= level(job) && *arrival < since && *end > since && *end > *arrival).then_some(*arrival)
            };
            let Some(earlier) = jobs.iter().filter_map(there).min() else { break };
            since = earlier;
        }
        let overlap = |(from, to): &(Time, Time)| (*to).min(*end).saturating_since((*from).max(since));
        let others = play.holes.iter().map(overlap).fold(Span::ZERO, Span::saturating_add);
        let sum = found.entry(job.task).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(others));
    }
    found
}

proptest! {
    #[test]
    fn the_kernel_tells_who_had_the_cpu_and_why_jobs_were_late(
        operations in prop::collection::vec((300_u64..3_000, 20_u64..600, any::<bool>()), 1..6),
        strategy in prop::sample::select(vec![Builtin::Rm, Builtin::Edf, Builtin::Mlf, Builtin::Muf, Builtin::RmsMlf]),
        holes in prop::collection::btree_map(1_u64..20_000_000, 1_000_u64..2_000_000, 0..6),
        looks in 1_u64..9,
    ) {
        let plan = plan(&operations, strategy);
        let holes: Vec<(u64, u64)> = holes.into_iter().collect();
        let play = play(&plan, Span::from_ms(20), &holes);
        let (log, evident) = merged(&plan, &play, looks);
        prop_assert_eq!(sorted(&log), sorted(&play.truth));
        prop_assert_eq!(evident.missing, 0);
        let reference = reference(&plan, &play);
        prop_assert_eq!(reference.keys().collect::<Vec<_>>(), evident.late.keys().collect::<Vec<_>>());
        for (task, late) in &evident.late {
            let (jobs, others) = reference[task];
            prop_assert_eq!((late.jobs, late.disturbance.of(Cause::Others)), (jobs, others), "{:?}", task);
            for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Others) {
                prop_assert_eq!(late.disturbance.of(cause), Span::ZERO, "{:?} {:?}", task, cause);
            }
            prop_assert_eq!(late.by_load + late.mainly(Cause::Others), late.jobs);
            prop_assert!(others > Span::ZERO || late.by_load == late.jobs);
        }
    }

    #[test]
    fn a_job_that_is_late_without_disturbances_is_late_by_load(
        operations in prop::collection::vec((300_u64..3_000, 20_u64..600, any::<bool>()), 1..6),
        strategy in prop::sample::select(vec![Builtin::Rm, Builtin::Edf, Builtin::Mlf, Builtin::Muf, Builtin::RmsMlf]),
    ) {
        let plan = plan(&operations, strategy);
        // Jobs that have not ended have no known delay before them.
        let late = |holes: &[(u64, u64)]| {
            let mut play = play(&plan, Span::from_ms(20), holes);
            let ended = |(_, event): &(Time, Event)| match event {
                Event::Complete { job, .. } => Some(*job),
                _ => None,
            };
            let ended: Vec<JobKey> = play.told.iter().filter_map(ended).collect();
            play.told.retain(|(_, event)| !matches!(event, Event::Miss { job } if !ended.contains(job)));
            merged(&plan, &play, 3).1.late
        };
        let before = late(&[]);
        // One nanosecond, while the first job runs: in microseconds nothing else changes.
        for (task, late) in late(&[(1, 1)]) {
            let load = before.get(&task).map_or(0, |late| late.jobs);
            prop_assert_eq!((late.by_load, late.mainly(Cause::Others)), (load, late.jobs - load), "{:?}", task);
        }
    }
}

/// A plan of one critical task (period 10 ms, WCET 2 ms, deadline 10 ms), with its worker (lane 0)
/// and its timer (lane 1).
fn log_and_evidence(events: &[(u64, Event)], seen: &[(u64, Kind)]) -> (Vec<String>, Evident) {
    let plan = plan(&[(10_000, 2_000, true)], Builtin::Rm);
    let lanes = vec![Worker { cpu: 0, works: true }, Worker { cpu: 0, works: false }];
    let mut evidence = Evidence::new(&plan, lanes);
    let mut log = Log(Vec::new());
    for (at, event) in events {
        evidence.event(NS(*at * 1000), event);
    }
    for (at, what) in seen {
        evidence.run_event(RunEvent { at: NS(*at * 1000), what: *what });
    }
    let evident = evidence.finish(NS(30_000_000), &mut log);
    let line = |(at, event): &(Time, Event)| format!("{} {event:?}", at.as_ns() / 1000);
    (log.0.iter().map(line).map(|line| line.replace("JobKey { task: TaskId(0), number: 0 }", "J")).collect(), evident)
}

const J: JobKey = JobKey { task: TaskId(0), number: 0 };

fn job(release: u64, start: u64, complete: u64) -> Vec<(u64, Event)> {
    let mut events = vec![
        (release, Event::Release { job: J, arrival: Time::ZERO, parent: None }),
        (start, Event::Start { job: J, cpu: 0 }),
        (10_000, Event::Miss { job: J }),
        (complete, Event::Complete { job: J, cpu: 0 }),
    ];
    events.sort_by_key(|(at, _)| *at);
    events
}

#[test]
fn each_cause_has_its_name() {
    let other = |pid, name| Kind::OtherIn { cpu: 0, thread: thread(pid, name) };
    let (worker, timer) = (Kind::SwitchIn { lane: 0, cpu: 0 }, Kind::SwitchIn { lane: 1, cpu: 0 });
    let left = |lane, why| Kind::SwitchOut { lane, cpu: 0, why };
    let seen = [
        // The CPU is idle until 1 ms, the timer runs until 2 ms, and its thread until the job
        // starts at 3 ms. Another thread runs from 4 to 5 ms. The job's thread sleeps from 6 to 7
        // ms.
        (0, left(1, SwitchOutReason::Asleep)),
        (0, other(0, "swapper/0")),
        (1_000, timer),
        (2_000, left(1, SwitchOutReason::Asleep)),
        (2_000, worker),
        (4_000, left(0, SwitchOutReason::Taken)),
        (4_000, other(7, "make")),
        (5_000, worker),
        (6_000, left(0, SwitchOutReason::Asleep)),
        (6_000, other(0, "swapper/0")),
        (7_000, Kind::Woken { lane: 0 }),
        (7_000, worker),
        (12_000, left(0, SwitchOutReason::Asleep)),
        (12_000, other(0, "swapper/0")),
    ];
    let (log, evident) = log_and_evidence(&job(1_500, 3_000, 12_000), &seen);
    assert_eq!(
        log,
        [
            "1500 Release { job: J, arrival: Time(0), parent: None }",
            "3000 Start { job: J, cpu: 0 }",
            "4000 Preempt { job: J, cpu: 0 }",
            "5000 Resume { job: J, cpu: 0 }",
            "6000 Block { job: J, cpu: 0 }",
            "7000 Wake { job: J }",
            "7000 Resume { job: J, cpu: 0 }",
            "10000 Miss { job: J }",
            "12000 Complete { job: J, cpu: 0 }",
        ]
    );
    let late = &evident.late[&TaskId(0)];
    let lasted = Cause::ALL.map(|cause| (cause.name(), late.disturbance.of(cause).as_ns() / 1000));
    let lasted: Vec<_> = lasted.into_iter().filter(|(_, us)| *us > 0).collect();
    let expected =
        [("others", 1_000), ("idle", 1_000), ("dispatcher", 2_000), ("own overrun", 5_000), ("blocked", 1_000)];
    assert_eq!((lasted.as_slice(), evident.missing), (&expected[..], 0));
    assert_eq!((late.jobs, late.by_load, late.mainly(Cause::OwnOverrun)), (1, 0, 1));
    assert_eq!(late.others, [("make".to_owned(), us(1_000))]);
}

#[test]
fn lost_kernel_events_make_the_cause_unknown() {
    let left = |lane, why| Kind::SwitchOut { lane, cpu: 0, why };
    // The switch to the job's thread is missing, and events are lost from 4 to 6 ms.
    let seen = [
        (3_500, left(0, SwitchOutReason::Taken)),
        (3_500, Kind::OtherIn { cpu: 0, thread: thread(7, "make") }),
        (3_800, Kind::SwitchIn { lane: 0, cpu: 0 }),
        (4_000, Kind::LossBegins { count: 3 }),
        (6_000, Kind::LossEnds),
        (12_000, left(0, SwitchOutReason::Asleep)),
    ];
    let (log, evident) = log_and_evidence(&job(0, 3_000, 11_000), &seen);
    let expected = [
        "3500 Preempt { job: J, cpu: 0 }",
        "3800 Resume { job: J, cpu: 0 }",
        "4000 Lost { count: 3 }",
        "4000 Gap { job: J }",
    ];
    assert_eq!(log[2..6], expected, "{log:?}");
    assert_eq!(evident.missing, 0, "all that is missing is known to be lost, or was before anything was heard");
    let late = &evident.late[&TaskId(0)];
    assert_eq!(late.disturbance.of(Cause::Unknown), us(3_000 + 7_000), "before the job began, and from the loss on");
    assert_eq!(late.mainly(Cause::Unknown), 1);
}

#[test]
fn a_job_that_is_dropped_or_never_ends_is_late_too() {
    let mut events = job(0, 0, 10_000);
    events.pop();
    events.push((10_000, Event::Cancel { job: J, cause: CancelCause::Late }));
    let seen = [
        (0, Kind::SwitchIn { lane: 0, cpu: 0 }),
        (1_000, Kind::SwitchOut { lane: 0, cpu: 0, why: SwitchOutReason::Taken }),
        (1_000, Kind::OtherIn { cpu: 0, thread: thread(7, "make") }),
    ];
    let (_, evident) = log_and_evidence(&events, &seen);
    let late = &evident.late[&TaskId(0)];
    assert_eq!((late.jobs, late.mainly(Cause::Others), late.disturbance.of(Cause::Others)), (1, 1, us(9_000)));
    events.pop();
    let (_, evident) = log_and_evidence(&events, &seen);
    let late = &evident.late[&TaskId(0)];
    assert_eq!((late.jobs, late.mainly(Cause::Others), late.disturbance.of(Cause::Others)), (1, 1, us(29_000)));
}

/// The causes of lateness for each operation of this plan: by load, and mainly by other threads.
fn late_of(plan: &Plan, events: &[(u64, Event)], seen: &[(u64, Kind)], end: u64) -> BTreeMap<TaskId, (u64, u64, u64)> {
    let mut evidence = Evidence::new(plan, vec![Worker { cpu: 0, works: true }; 4]);
    for (at, event) in events {
        evidence.event(NS(*at * 1000), event);
    }
    for (at, what) in seen {
        evidence.run_event(RunEvent { at: NS(*at * 1000), what: *what });
    }
    let late = evidence.finish(NS(end * 1000), &mut Log(Vec::new())).late;
    late.into_iter().map(|(task, late)| (task, (late.jobs, late.by_load, late.mainly(Cause::Others)))).collect()
}

fn release(task: u32, number: u64, arrival: u64, origin: Option<u64>) -> Event {
    let parent = origin.map(|origin| Parent { hop: 1, origin: NS(origin * 1000) });
    Event::Release { job: JobKey { task: TaskId(task), number }, arrival: NS(arrival * 1000), parent }
}

/// Both accounts of a job on the thread of its level.
fn runs(
    told: &mut Vec<(u64, Event)>,
    seen: &mut Vec<(u64, Kind)>,
    lane: usize,
    task: u32,
    number: u64,
    from: u64,
    to: u64,
) {
    let job = JobKey { task: TaskId(task), number };
    seen.extend([
        (from, Kind::SwitchIn { lane, cpu: 0 }),
        (to, Kind::SwitchOut { lane, cpu: 0, why: SwitchOutReason::Asleep }),
    ]);
    seen.push((to, Kind::OtherIn { cpu: 0, thread: thread(0, "swapper/0") }));
    told.extend([(from, Event::Start { job, cpu: 0 }), (to, Event::Complete { job, cpu: 0 })]);
}

#[test]
fn followers_that_a_disturbance_brings_together_are_no_load() {
    let ms = |ms: u64| us(ms * 1000);
    let set = Operations::new("chain")
        .with(Operation::periodic("p", ms(10)).wcet(ms(1)).deadline(ms(2)))
        .with(Operation::after("f", ["p"]).wcet(ms(4)).deadline(ms(6)))
        .with(Operation::periodic("g", ms(40)).wcet(ms(2)).deadline(ms(8)).offset(ms(21)));
    let system = set.to_system(&Builtin::Dm.strategy()).unwrap();
    let (plan, _) = Plan::compute_regardless(&system, takt_model::NodeId(0), &Limits::default()).unwrap();
    assert_eq!(plan.rows.iter().map(|row| row.level).collect::<Vec<_>>(), [0, 1, 2]);
    // Other threads have the CPU from 0 to 20 ms. Then three jobs of the chain catch up, and "g",
    // which arrives at 21 ms, ends at 36 ms.
    let mut seen = vec![(0, Kind::OtherIn { cpu: 0, thread: thread(9, "other") })];
    let mut told: Vec<(u64, Event)> = (0..3).map(|k| (20_000, release(0, k, k * 10_000, None))).collect();
    for k in 0..3 {
        runs(&mut told, &mut seen, 0, 0, k, 20_000 + k * 1_000, 21_000 + k * 1_000);
        told.push((21_000 + k * 1_000, release(1, k, 21_000 + k * 1_000, Some(k * 10_000))));
    }
    told.push((21_000, release(2, 0, 21_000, None)));
    runs(&mut told, &mut seen, 1, 1, 0, 23_000, 27_000);
    runs(&mut told, &mut seen, 1, 1, 1, 27_000, 31_000);
    runs(&mut told, &mut seen, 1, 1, 2, 31_000, 35_000);
    runs(&mut told, &mut seen, 2, 2, 0, 35_000, 37_000);
    told.push((29_000, Event::Miss { job: JobKey { task: TaskId(2), number: 0 } }));
    told.sort_by_key(|(at, event)| {
        (*at, u8::from(!matches!(event, Event::Complete { .. })), matches!(event, Event::Start { .. }))
    });
    assert_eq!(late_of(&plan, &told, &seen, 40_000)[&TaskId(2)], (1, 0, 1));
}

#[test]
fn a_demoted_job_is_late_for_what_was_before_it_was_demoted() {
    let mut plan = plan(&[(100_000, 4_000, true), (100_000, 4_000, true), (10_000, 5_000, true)], Builtin::Edf);
    plan.rows.iter_mut().for_each(|row| row.late = takt_model::Late::Demote);
    // Other threads have the CPU until 11 ms. All jobs arrive then, and the late one goes last.
    let mut seen = vec![(0, Kind::OtherIn { cpu: 0, thread: thread(9, "other") })];
    let late = JobKey { task: TaskId(2), number: 0 };
    let mut told: Vec<(u64, Event)> = (0..3).map(|task| (11_000, release(task, 0, 0, None))).collect();
    told.push((11_000, Event::Miss { job: late }));
    runs(&mut told, &mut seen, 0, 0, 0, 11_000, 15_000);
    runs(&mut told, &mut seen, 0, 1, 0, 15_000, 19_000);
    runs(&mut told, &mut seen, 1, 2, 0, 19_000, 24_000);
    assert_eq!(late_of(&plan, &told, &seen, 30_000), [(TaskId(2), (1, 0, 1))].into());
}

/// Two operations. The plan of the start demotes the first one at its deadline. The plan of a mode
/// puts it first.
fn demoted_at_first() -> Plan {
    let mut plan = plan(&[(10_000, 5_000, true), (22_000, 20_000, true)], Builtin::Edf);
    let mut mode = PlanMode {
        name: Some("later".to_owned()),
        at: None,
        strategy: "later".to_owned(),
        levels: plan.levels.clone(),
        rows: plan.rows.clone(),
    };
    plan.rows[0].late = takt_model::Late::Demote;
    mode.rows[1].level = 1;
    plan.modes.push(mode);
    plan
}

#[test]
fn a_switch_to_a_plan_that_demotes_nobody_brings_demoted_jobs_back() {
    // Other threads have the CPU until 11 ms. The second operation is late in any case, because the
    // first goes before it again.
    let mut seen = vec![(0, Kind::OtherIn { cpu: 0, thread: thread(9, "other") })];
    let job = |task| JobKey { task: TaskId(task), number: 0 };
    let mut told: Vec<(u64, Event)> = (0..2).map(|task| (0, release(task, 0, 0, None))).collect();
    told.extend([(10_000, Event::Miss { job: job(0) }), (11_000, Event::ModeChange { mode: 1 })]);
    runs(&mut told, &mut seen, 0, 0, 0, 11_000, 16_000);
    runs(&mut told, &mut seen, 1, 1, 0, 16_000, 36_000);
    told.push((22_000, Event::Miss { job: job(1) }));
    told.sort_by_key(|(at, _)| *at);
    let late = late_of(&demoted_at_first(), &told, &seen, 40_000);
    assert_eq!(late, [(TaskId(0), (1, 0, 1)), (TaskId(1), (1, 1, 0))].into());
}

#[test]
fn a_switch_to_a_plan_that_demotes_explains_what_is_late_already() {
    let mut plan = demoted_at_first();
    std::mem::swap(&mut plan.rows, &mut plan.modes[0].rows);
    // The second operation has the CPU until 20 ms. For that alone the first, more important
    // operation is late. Jobs after its demotion do not count.
    let mut seen = Vec::new();
    let job = |task| JobKey { task: TaskId(task), number: 0 };
    let mut told: Vec<(u64, Event)> = vec![(0, release(1, 0, 0, None)), (1_000, release(0, 0, 1_000, None))];
    told.extend([(11_000, Event::Miss { job: job(0) }), (12_000, Event::ModeChange { mode: 1 })]);
    runs(&mut told, &mut seen, 1, 1, 0, 0, 20_000);
    seen.push((20_000, Kind::OtherIn { cpu: 0, thread: thread(9, "other") }));
    runs(&mut told, &mut seen, 0, 0, 0, 50_000, 55_000);
    told.sort_by_key(|(at, _)| *at);
    assert_eq!(late_of(&plan, &told, &seen, 60_000), [(TaskId(0), (1, 0, 0))].into(), "not mainly for the others");
}

#[test]
fn the_holder_of_the_cpu_before_the_first_switch_is_known() {
    let (worker, out) =
        (Kind::SwitchIn { lane: 0, cpu: 0 }, Kind::SwitchOut { lane: 0, cpu: 0, why: SwitchOutReason::Asleep });
    let other = |name: &str, pid, prio| Thread { prio: Some(prio), ..thread(pid, name) };
    for (first, last, others) in [
        // The CPU was idle, and then a more important thread had it; or an ordinary thread, which
        // does not delay.
        (other("swapper/0", 0, 120), other("irq/24", 7, 49), 11_000),
        (other("swapper/0", 0, 120), other("make", 8, 120), 0),
        // Another thread had the CPU for a moment, and then none did; or a different one.
        (other("kworker", 9, 120), other("swapper/0", 0, 120), 0),
        (other("irq/24", 7, 49), other("make", 8, 120), 11_000),
        (other("make", 8, 120), other("irq/24", 7, 49), 11_000),
    ] {
        let seen = [
            (0, Kind::OtherIn { cpu: 0, thread: first }),
            (11_000, Kind::OtherOut { cpu: 0, thread: last }),
            (11_000, worker),
            (13_000, out),
        ];
        let (_, evident) = log_and_evidence(&job(9_000, 11_000, 13_000), &seen);
        let disturbance = evident.late[&TaskId(0)].disturbance;
        assert_eq!(disturbance.of(Cause::Others), us(others), "{first:?} {last:?}");
        assert_eq!(disturbance.of(Cause::Idle), us(11_000 - others));
    }
}

#[test]
fn a_job_whose_end_was_lost_ends_at_the_next_arrival() {
    let number = |number| JobKey { number, ..J };
    // The end of the first job was lost. The second job arrives on the same thread.
    let events = vec![
        (0, Event::Release { job: J, arrival: Time::ZERO, parent: None }),
        (0, Event::Start { job: J, cpu: 0 }),
        (10_000, Event::Release { job: number(1), arrival: NS(10_000_000), parent: None }),
        (10_000, Event::Start { job: number(1), cpu: 0 }),
        (20_000, Event::Miss { job: number(1) }),
        (21_000, Event::Complete { job: number(1), cpu: 0 }),
    ];
    let (worker, out) =
        (Kind::SwitchIn { lane: 0, cpu: 0 }, Kind::SwitchOut { lane: 0, cpu: 0, why: SwitchOutReason::Taken });
    let make = Kind::OtherIn { cpu: 0, thread: thread(8, "make") };
    let (log, evident) = log_and_evidence(&events, &[(0, worker), (11_000, out), (11_000, make), (20_000, worker)]);
    let preempted = "11000 Preempt { job: JobKey { task: TaskId(0), number: 1 }, cpu: 0 }".to_owned();
    assert!(log.contains(&preempted), "{log:?}");
    let late = &evident.late[&TaskId(0)];
    assert_eq!((late.jobs, late.by_load, late.mainly(Cause::Others)), (1, 0, 1));
    assert_eq!(late.disturbance.of(Cause::Others), us(9_000), "of its own busy period");
}
