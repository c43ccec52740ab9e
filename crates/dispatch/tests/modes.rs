//! Modes of a program, with other operations, rates and strategies: in virtual time on random sets,
//! and on threads of this kernel. Arrivals are checked against a rule for single operations. Starts
//! are checked against the order of all waiting jobs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use takt_dispatch::{
    Adaptive, Anomaly, Arrives, Counts, Dispatcher, Limits, OperatingMode, Operation, Operations, Options, Plan,
    PushError, Row, StartError,
};
use takt_linux::clock;
use takt_log::{CancelCause, Event, NullSink};
use takt_model::plan::Order;
use takt_model::{
    Builtin, Criticality, Discipline, Filter, Late, Lateness, Level, Span, Split, Strategy as Scheduling, TaskId, Time,
};

type Events = Vec<(u32, Time, Event)>;

#[path = "common/arrivals.rs"]
mod arrivals;
use arrivals::expected;

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn compute(operations: &Operations) -> Plan {
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let system = operations.compute(&Builtin::Rm.strategy(), &limits);
    system.unwrap_or_else(|anomalies| panic!("{anomalies}"))
}

fn rows(plan: &Plan, at: usize) -> &[Row] {
    at.checked_sub(1).map_or(&plan.rows, |mode| &plan.modes[mode].rows)
}

fn switches(events: &Events) -> Vec<(Time, usize)> {
    let mode = |(_, at, event): &(u32, Time, Event)| match event {
        Event::ModeChange { mode } => Some((*at, *mode as usize)),
        _ => None,
    };
    events.iter().filter_map(mode).collect()
}

/// Arrivals by operation, with jobs numbered in turn.
fn arrivals(events: &Events) -> BTreeMap<TaskId, Vec<u64>> {
    let mut arrivals: BTreeMap<TaskId, Vec<u64>> = BTreeMap::new();
    for (_, _, event) in events {
        if let Event::Release { job, arrival, .. } = event {
            let before = arrivals.entry(job.task).or_default();
            assert_eq!(job.number, before.len() as u64, "each job once, in turn");
            before.push(arrival.as_ns());
        }
    }
    arrivals
}

/// Arrivals of an operation's jobs, without the rejected ones.
fn admitted(events: &Events, task: TaskId) -> Vec<u64> {
    let mut arrivals = BTreeMap::new();
    for (_, _, event) in events {
        match *event {
            Event::Release { job, arrival, .. } if job.task == task => {
                arrivals.insert(job.number, arrival.as_ns());
            }
            Event::Cancel { job, cause: CancelCause::Rejected } if job.task == task => {
                arrivals.remove(&job.number);
            }
            _ => {}
        }
    }
    arrivals.into_values().collect()
}

/// All timer arrivals follow the switches in the log.
fn arrives(operations: &Operations, plan: &Plan, events: &Events, end: Time) {
    let (switches, told) = (switches(events), arrivals(events));
    for (at, operation) in operations.operations.iter().enumerate() {
        let Arrives::Periodic { offset, .. } = operation.arrival else { continue };
        let period = |row: &Row| row.takes_part.then_some(row.period);
        let periods: Vec<_> = (0..=plan.modes.len()).map(|k| period(&rows(plan, k)[at])).collect();
        let wanted = expected(&periods, offset, &switches, end);
        let told = told.get(&TaskId(at as u32)).cloned().unwrap_or_default();
        assert_eq!(told, wanted, "\"{}\" with {periods:?}, switches {switches:?}", operation.name);
    }
}

#[derive(Clone, Copy)]
struct Waiting {
    number: u64,
    arrival: Time,
    release: Time,
}

/// No job starts before a waiting job of its CPU that goes first by the current plan, and no job
/// starts that the plan drops. Demoted waiting jobs come below all levels, ordered by their former
/// level and order.
fn starts_in_order(operations: &Operations, plan: &Plan, events: &Events) {
    let mut holds = 0;
    // By operation: released jobs that have not started, and whether one has started and not ended.
    let mut waiting: BTreeMap<u32, Vec<Waiting>> = BTreeMap::new();
    let mut running: BTreeMap<u32, u64> = BTreeMap::new();
    // When a job was omitted. Its replacement is chosen without the next job of the same operation,
    // as by the policy kernel.
    let mut omitted: BTreeMap<u32, Time> = BTreeMap::new();
    for (_, at, event) in events {
        match *event {
            Event::ModeChange { mode } => holds = mode as usize,
            Event::Release { job, arrival, .. } => {
                waiting.entry(job.task.0).or_default().push(Waiting { number: job.number, arrival, release: *at });
            }
            Event::Cancel { job, cause } => {
                waiting.entry(job.task.0).or_default().retain(|one| one.number != job.number);
                if cause == CancelCause::Omitted {
                    omitted.insert(job.task.0, *at);
                }
                // The job was dropped while it ran.
                if cause == CancelCause::Late && running.get(&job.task.0) == Some(&job.number) {
                    running.remove(&job.task.0);
                }
            }
            Event::Complete { job, .. } => assert_eq!(running.remove(&job.task.0), Some(job.number)),
            Event::Start { job, cpu } => {
                let rank = |task: u32, one: &Waiting| {
                    let (row, operation) = (&rows(plan, holds)[task as usize], &operations.operations[task as usize]);
                    let deadline = one.arrival + operation.deadline.unwrap();
                    let key = match row.order {
                        Order::Fifo => one.release.as_ns() as i64,
                        Order::Deadline => deadline.as_ns() as i64 + row.shift_ns,
                        Order::Laxity => deadline.as_ns() as i64 - operation.wcet.as_ns() as i64,
                    };
                    let levels = holds.checked_sub(1).map_or(&plan.levels, |mode| &plan.modes[mode].levels);
                    let ties = levels[row.level as usize].importance_ties;
                    let importance = if ties { operation.importance } else { 0 };
                    let late = deadline <= *at;
                    assert!(!late || row.late != Late::Drop || task != job.task.0, "{job:?} starts late at {at}");
                    let demoted = late && row.late == Late::Demote;
                    (demoted, row.level, key, u32::MAX - importance, one.arrival, task)
                };
                let first = waiting[&job.task.0][0];
                assert_eq!(first.number, job.number, "jobs of an operation start in turn");
                let started = rank(job.task.0, &first);
                for (task, others) in waiting.iter().filter(|(task, _)| **task != job.task.0) {
                    let here = operations.operations[*task as usize].cpu == cpu && !running.contains_key(task);
                    if let Some(other) = others.first().filter(|_| here && omitted.get(task) != Some(at)) {
                        assert!(
                            rank(*task, other) > started,
                            "{job:?} starts at {at} before {task} under plan {holds}"
                        );
                    }
                }
                waiting.get_mut(&job.task.0).unwrap().remove(0);
                running.insert(job.task.0, job.number);
            }
            _ => {}
        }
    }
}

fn whole(counts: &[(String, Counts)], events: &Events) {
    for ((name, counts), task) in counts.iter().zip(0..) {
        let of = |wanted: fn(&Event) -> bool| {
            let mine = |event: &Event| match event {
                Event::Release { job, .. } | Event::Complete { job, .. } | Event::Cancel { job, .. } => {
                    job.task.0 == task
                }
                _ => false,
            };
            events.iter().filter(|(_, _, event)| mine(event) && wanted(event)).count() as u64
        };
        let causes = |wanted: &[CancelCause]| -> u64 {
            let mine = |event: &Event| match event {
                Event::Cancel { job, cause } => job.task.0 == task && wanted.contains(cause),
                _ => false,
            };
            events.iter().filter(|(_, _, event)| mine(event)).count() as u64
        };
        let told = Counts {
            released: of(|event| matches!(event, Event::Release { .. })),
            completed: of(|event| matches!(event, Event::Complete { .. })),
            late: counts.late,
            cancelled: causes(&[CancelCause::Omitted, CancelCause::Shed]),
            rejected: causes(&[CancelCause::Rejected]),
            dropped: causes(&[CancelCause::Late]),
            failed: causes(&[CancelCause::Failed]),
            unmet: counts.unmet,
            overran: counts.overran,
        };
        assert_eq!(told, *counts, "{name}");
    }
}

#[derive(Clone, Debug)]
struct DrawnOperation {
    /// In 100 us.
    period: u64,
    offset: u64,
    /// In 10 us.
    wcet: u64,
    /// In tenths of the period. Above ten, several jobs are in time at once.
    deadline: u64,
    importance: u32,
    priority: u32,
    critical: bool,
    cpu: u32,
    backlog: u32,
    /// Whether it follows the operation before it.
    follows: bool,
    late: Option<Late>,
    cancel: Option<bool>,
}

#[derive(Clone, Debug)]
struct Drawn {
    operations: Vec<DrawnOperation>,
    strategy: Scheduling,
    /// By mode: strategy, absent operations (bits), periods (zero: the set's).
    modes: Vec<(Scheduling, u32, Vec<u64>)>,
    absent: u32,
    cancel: bool,
    /// The time in units of 10 us, and the plan.
    switches: Vec<(u64, usize)>,
}

fn late() -> impl Strategy<Value = Late> {
    prop_oneof![3 => Just(Late::Continue), 1 => Just(Late::Drop), 2 => Just(Late::Demote)]
}

/// A built-in strategy, or one with other disciplines and rules for late jobs.
fn scheduling() -> impl Strategy<Value = Scheduling> {
    let gel = prop::collection::vec(-5_000i64..5_000, 6).prop_map(|points| {
        let named = points.into_iter().enumerate();
        Discipline::Gel { shift: named.map(|(at, us)| (format!("o{at}"), Lateness::from_ns(us * 1_000))).collect() }
    });
    let discipline =
        prop_oneof![Just(Discipline::Fifo), Just(Discipline::Deadline), Just(Discipline::Laxity), gel.boxed()].boxed();
    let split = prop::sample::select(vec![Split::None, Split::None, Split::Period, Split::Deadline, Split::Importance]);
    let level = (discipline, split, late(), any::<bool>()).prop_map(|(discipline, split, late, importance_ties)| {
        let critical = Filter::Where { criticality: Some(Criticality::High), importance: None, priority: None };
        Level { split, late, importance_ties, ..Level::new(critical, discipline) }
    });
    let own = prop::collection::vec(level, 1..3).prop_map(|mut levels| {
        levels.last_mut().unwrap().filter = Filter::Rest;
        Scheduling { name: "drawn".to_owned(), levels }
    });
    prop_oneof![prop::sample::select(Builtin::ALL.to_vec()).prop_map(Builtin::strategy), own.boxed()]
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let times = (5u64..60, 0u64..30, 5u64..150, prop_oneof![3 => Just(8u64), 1 => 2u64..30]);
    let places = (0u32..3, 1u32..4, prop::bool::weighted(0.2), 0u32..2, 1u32..4, prop::bool::weighted(0.2));
    let rules = (prop::option::weighted(0.3, late()), prop::option::weighted(0.3, any::<bool>()));
    let operation = (times, places, rules).prop_map(|(times, places, (late, cancel))| {
        let (period, offset, wcet, deadline) = times;
        let (importance, priority, critical, cpu, backlog, follows) = places;
        let cancel = cancel.filter(|_| !critical);
        DrawnOperation {
            period,
            offset,
            wcet,
            deadline,
            importance,
            priority,
            critical,
            cpu,
            backlog,
            follows,
            late,
            cancel,
        }
    });
    let operations = prop::collection::vec(operation, 1..6);
    let modes = prop::collection::vec((scheduling(), any::<u32>(), prop::collection::vec(0u64..60, 6)), 1..4);
    let switches = prop::collection::vec((0u64..1500, 0usize..4), 0..12);
    (operations, scheduling(), modes, any::<u32>(), any::<bool>(), switches).prop_map(
        |(operations, strategy, modes, absent, cancel, switches)| Drawn {
            operations,
            strategy,
            modes,
            absent,
            cancel,
            switches,
        },
    )
}

impl Drawn {
    /// Whether an operation follows the one before it, on any CPU. The first never does.
    fn follows(&self, at: usize) -> bool {
        at > 0 && self.operations[at].follows
    }
    /// The source of its chain.
    fn source(&self, at: usize) -> usize {
        (0..=at).rev().find(|at| !self.follows(*at)).unwrap()
    }
    /// Absent operations: whole chains, and never all.
    fn absent(&self, bits: u32) -> Vec<String> {
        let absent = |at: &usize| bits >> self.source(*at) & 3 == 3 && self.source(*at) > 0;
        (0..self.operations.len()).filter(absent).map(|at| format!("o{at}")).collect()
    }
    /// A strategy without the points of absent operations.
    fn of_those(&self, strategy: &Scheduling) -> Scheduling {
        let mut strategy = strategy.clone();
        for level in &mut strategy.levels {
            if let Discipline::Gel { shift } = &mut level.discipline {
                shift.retain(|name, _| name[1..].parse().is_ok_and(|at: usize| at < self.operations.len()));
            }
        }
        strategy
    }
    fn set(&self) -> Operations {
        let mut set = Operations::new("drawn").cpus(2).cancel(self.cancel);
        for (at, drawn) in self.operations.iter().enumerate() {
            let (name, period) = (format!("o{at}"), drawn.period * 100);
            let operation = if self.follows(at) {
                Operation::after(&name, [format!("o{}", at - 1)])
            } else {
                Operation::periodic(&name, us(period)).offset(us(drawn.offset * 100))
            };
            let deadline = period * drawn.deadline / 10;
            let operation = operation.wcet(us((drawn.wcet * 10).min(deadline))).deadline(us(deadline));
            let operation = operation.importance(drawn.importance).priority(drawn.priority);
            let operation = operation.on_cpu(drawn.cpu).backlog(drawn.backlog);
            let operation = Operation { late: drawn.late, cancel: drawn.cancel, ..operation };
            set.add(if drawn.critical { operation } else { operation.noncritical() });
        }
        for name in self.absent(self.absent) {
            set = set.at_first_without(&name);
        }
        for (at, (strategy, absent, periods)) in self.modes.iter().enumerate() {
            let mut mode = OperatingMode::new(&format!("m{at}"), self.of_those(strategy));
            for name in self.absent(*absent) {
                mode = mode.without(&name);
            }
            for (at, period) in periods.iter().enumerate().filter(|(at, _)| *at < self.operations.len()) {
                if *period >= 5 && !self.follows(at) {
                    mode = mode.every(&format!("o{at}"), us(period * 100));
                }
            }
            set = set.mode(mode);
        }
        set
    }
}

proptest! {
    #[test]
    fn every_switch_leaves_all_jobs_in_turn_and_in_order(drawn in drawn(), seed in 0u64..9) {
        let set = drawn.set();
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        // Sets whose deadlines can be missed are of interest too.
        let plan = match set.compute(&drawn.of_those(&drawn.strategy), &limits) {
            Ok(plan) => plan,
            Err(anomalies) => {
                prop_assert!(anomalies.iter().all(Anomaly::is_lateness), "{}", anomalies);
                return Ok(());
            }
        };
        let mut at = 0;
        let switches: Vec<(Time, usize)> = drawn.switches.iter()
            .map(|(after, plan)| { at += after; (Time::ZERO + us(at * 10), *plan) })
            .filter(|(_, to)| *to <= plan.modes.len())
            .collect();
        let (mut events, duration) = (Events::new(), us(60_000));
        let counts = plan.rehearse_switched(&switches, duration, seed, &mut events).unwrap();
        arrives(&set, &plan, &events, Time::ZERO + duration);
        starts_in_order(&set, &plan, &events);
        whole(&counts, &events);
        let modes = plan.modes.iter().map(|mode| mode.name.as_deref().unwrap());
        for (plan_at, name) in (0..).zip(["the start"].into_iter().chain(modes)) {
            let steady = plan.steady(plan_at).unwrap();
            prop_assert!(takt_model::file::validate(&steady).is_ok(), "{name}: {steady:?}");
            prop_assert_eq!(steady.tasks.len(), rows(&plan, plan_at).iter().filter(|row| row.takes_part).count());
        }
    }
}

/// An operation waits for two sources on two CPUs. It always gets job k of both, also after a
/// switch.
#[test]
fn an_operation_with_two_predecessors_gets_jobs_of_equal_number() {
    let set = Operations::new("join")
        .cpus(2)
        .with(Operation::periodic("left", us(1_000)).offset(us(300)).wcet(us(100)).backlog(9))
        .with(Operation::periodic("right", us(1_000)).offset(us(300)).wcet(us(250)).on_cpu(1).backlog(9))
        .with(Operation::after("join", ["left", "right"]).wcet(us(50)).on_cpu(1).backlog(9))
        .mode(OperatingMode::new("away", Builtin::Edf.strategy()).without("left").without("right").without("join"))
        .mode(OperatingMode::new("fast", Builtin::Edf.strategy()).every("left", us(400)).every("right", us(400)));
    let anomalies = set.compute(&Builtin::Rm.strategy(), &Limits::default()).unwrap_err();
    assert!(anomalies.to_string().starts_with("mode \"away\" has no operation"), "{anomalies}");
    let set = set.with(Operation::periodic("other", us(900)).wcet(us(50)));
    let plan = compute(&set);
    for seed in 0..200u64 {
        let mut at = 0;
        let switch = |step: u64| {
            at += (seed * 7919 + step * 104_729) % 1_700;
            (Time::ZERO + us(at), ((seed + step * step) % 3) as usize)
        };
        let switches: Vec<_> = (0..30).map(switch).collect();
        let mut events = Events::new();
        plan.rehearse_switched(&switches, us(40_000), seed, &mut events).unwrap();
        let told = arrivals(&events);
        assert_eq!(told[&TaskId(0)], told[&TaskId(1)], "{switches:?}");
        for (_, _, event) in &events {
            if let Event::Release { job, parent: Some(parent), .. } = event {
                assert_eq!(parent.origin.as_ns(), told[&TaskId(0)][job.number as usize], "{switches:?}");
            }
        }
    }
    let mut apart = set;
    apart.operations[1] = apart.operations[1].clone().offset(us(500));
    let anomalies = apart.compute(&Builtin::Rm.strategy(), &Limits::default()).unwrap_err();
    assert!(
        anomalies
            .to_string()
            .starts_with("operation \"join\" waits for \"left\" and \"right\", which have different offsets"),
        "{anomalies}"
    );
}

#[test]
fn a_mode_alone_is_a_system_whatever_its_strategies_name() {
    let named = |names: &[&str]| Filter::Named(names.iter().map(|name| (*name).to_owned()).collect());
    let shift = [("gear".to_owned(), takt_model::Lateness::from_ns(-5))].into();
    let strategy = takt_model::Strategy {
        name: "named".to_owned(),
        levels: vec![
            Level::new(named(&["gear"]), Discipline::Fifo),
            Level::new(named(&["control", "route"]), Discipline::Deadline),
            Level::new(Filter::Rest, Discipline::Gel { shift }),
        ],
    };
    let set = Operations { modes: Vec::new(), ..flight() }
        .mode(OperatingMode::new("landing", strategy).without("route").without("display").every("control", us(2_000)));
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = set.compute(&Builtin::Dm.strategy(), &limits).unwrap_or_else(|wrong| panic!("{wrong}"));
    for (at, names) in [(0, vec!["control", "route", "display", "alarm"]), (1, vec!["control", "gear", "alarm"])] {
        let steady = plan.steady(at).unwrap();
        takt_model::file::validate(&steady).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(steady.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(), names);
        // An operation that a switch moves has no phase for a proof.
        let phased = |task: &&takt_model::Task| task.arrival == takt_model::Arrival::Periodic && task.after.is_empty();
        assert_eq!(steady.tasks.iter().filter(phased).count(), 0);
    }
    assert_eq!(plan.steady(1).unwrap().tasks[0].period, us(2_000));
    assert!(plan.steady(2).is_none());
}

fn flight() -> Operations {
    Operations::new("flight")
        .with(Operation::periodic("control", us(4_000)).wcet(us(200)).deadline(us(2_000)))
        .with(Operation::periodic("route", us(10_000)).wcet(us(1_000)).deadline(us(8_000)).noncritical())
        .with(Operation::after("display", ["route"]).wcet(us(300)).deadline(us(8_000)).noncritical())
        .with(Operation::periodic("gear", us(5_000)).wcet(us(200)).deadline(us(4_000)).offset(us(1_000)))
        .with(Operation::sporadic("alarm", us(3_000)).wcet(us(100)).deadline(us(2_000)))
        .at_first_without("gear")
        .mode(
            OperatingMode::new("landing", Builtin::Muf.strategy())
                .without("route")
                .without("display")
                .every("control", us(2_000))
                .every("alarm", us(7_000)),
        )
        .mode(OperatingMode::new("taxi", Builtin::RmsMlf.strategy()).without("alarm").every("control", us(9_000)))
}

#[test]
fn operations_come_and_go_on_threads_too() {
    // This thread switches and pushes between pauses. If it hardly gets a CPU, it has more time.
    let mut seen = (0, 0, 0);
    for duration_ms in [600, 2_400, 9_600] {
        let Some((absent, switches, alarms)) = come_and_go(Span::from_ms(duration_ms)) else { return };
        seen = (absent, switches, alarms);
        if absent > 0 && switches > 5 && alarms > 5 {
            return;
        }
    }
    panic!("absent, switches, alarms: {seen:?}");
}

/// Returns how often the alarm was absent, the number of switches, and of alarms.
fn come_and_go(duration: Span) -> Option<(usize, usize, usize)> {
    let set = flight();
    let plan = compute(&set);
    let (landing, taxi) = (plan.mode("landing").unwrap(), plan.mode("taxi").unwrap());
    assert_eq!((landing, taxi, plan.mode("start")), (1, 2, None));
    let mut dispatcher = Dispatcher::new(plan.clone()).with(Options { duration: Some(duration), ..Options::default() });
    for operation in &set.operations {
        let work = Span::from_ns(operation.wcet.as_ns() / 4);
        let handler = move |job: &takt_dispatch::Job<'_>| {
            let until = job.now() + work;
            while job.now() < until {}
        };
        dispatcher = dispatcher.on(&operation.name, handler).unwrap();
    }
    let mut dispatching = match dispatcher.start() {
        Ok(dispatching) => dispatching,
        Err(StartError::Privilege { missing }) => {
            println!("skipped: {missing}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let alarm = dispatching.operation("alarm").unwrap();
    let (mut events, mut absent, mut round) = (Events::new(), 0, 0);
    let order = [landing, taxi, 0, taxi, landing, landing, 0];
    while !dispatching.is_over() {
        round += 1;
        if round % 9 == 0 {
            assert!(dispatching.switch(order[round / 9 % order.len()]).is_some());
        }
        if round % 50 == 0 {
            // Twice before any timer can look.
            dispatching.switch(taxi).unwrap();
            dispatching.switch(landing).unwrap();
        }
        match alarm.push() {
            Err(PushError::Absent) => absent += 1,
            Ok(_) | Err(PushError::TooEarly { .. } | PushError::Full | PushError::Stopped) => {}
            Err(error) => panic!("{error}"),
        }
        clock::pause(us(700));
        dispatching.drain(&mut events);
    }
    assert_eq!(dispatching.switch(3), None);
    let stopped = dispatching.stop(&mut events).unwrap();
    assert_eq!((stopped.lost, stopped.refused), (0, 0));
    arrives(&set, &plan, &events, Time::ZERO + duration);
    whole(&stopped.counts, &events);
    // Pushed jobs keep the least distance of the mode in which they arrive. Pushes without room do
    // not count.
    let (switches, alarms) = (switches(&events), admitted(&events, TaskId(4)));
    for pair in alarms.windows(2) {
        let holds = switches.iter().rev().find(|(at, _)| at.as_ns() <= pair[1]).map_or(0, |(_, plan)| *plan);
        assert!(pair[1] - pair[0] >= rows(&plan, holds)[4].period.as_ns(), "{pair:?} under plan {holds}");
        assert!(rows(&plan, holds)[4].takes_part);
    }
    Some((absent, switches.len(), alarms.len()))
}

#[test]
fn errors_of_modes_are_reported() {
    let rm = || Builtin::Rm.strategy();
    let set = flight()
        .at_first_without("nobody")
        .mode(OperatingMode::new("landing", rm()))
        .mode(OperatingMode::new("torn", rm()).without("display").every("display", us(9)).every("none", us(5)))
        .mode(
            OperatingMode::new("", rm())
                .without("control")
                .without("route")
                .without("display")
                .without("gear")
                .without("alarm"),
        );
    let anomalies = set.compute(&rm(), &Limits::default()).unwrap_err();
    assert_eq!(
        anomalies.to_string(),
        "\
the start speaks of operation \"nobody\", which does not exist; add it, or correct the name
a second mode is called \"landing\"; give each its own name
mode \"torn\" leaves out \"display\" and not \"route\", of the same chain; a chain takes part as a whole or not at all
mode \"torn\" gives a period to operation \"display\", which comes after others; give the period to those
mode \"torn\" speaks of operation \"none\", which does not exist; add it, or correct the name
the name of a mode is empty; give it one
mode \"\" has no operation to dispatch; add at least one"
    );
    let set = flight().mode(OperatingMode::new("fast", rm()).every("control", us(150)).every("gear", Span::ZERO));
    let anomalies = set.compute(&rm(), &Limits::default()).unwrap_err();
    assert_eq!(
        anomalies.to_string(),
        "in mode \"fast\": period 0ns of operation \"gear\" is out of range; it must be above zero"
    );
    let set = flight().mode(OperatingMode::new("fast", rm()).without("gear").every("control", us(150)));
    let anomalies = set.compute(&rm(), &Limits::default()).unwrap_err();
    assert!(
        anomalies
            .to_string()
            .starts_with("in mode \"fast\": critical operations need 136.6667 % of CPU 0, and may have 100 %;"),
        "{anomalies}"
    );
    assert!(anomalies.iter().all(Anomaly::is_lateness));
    let dispatcher = Dispatcher::new(compute(&flight())).adaptive(Adaptive::between(0, 1));
    let refused = ["control", "route", "display", "gear", "alarm"]
        .into_iter()
        .try_fold(dispatcher, |dispatcher, name| dispatcher.on(name, |_| ()))
        .and_then(Dispatcher::start);
    match refused {
        Err(StartError::Adaptive(why)) => assert!(why.contains("differ in rates"), "{why}"),
        other => panic!("{:?}", other.map(|dispatching| dispatching.stop(&mut NullSink))),
    }
}

#[test]
fn a_plan_with_modes_reads_well() {
    assert_eq!(
        compute(&flight()).to_string(),
        "\
strategy rm, run to completion; SCHED_FIFO: timers 48
level  discipline  priority  subpriority  operation  period   wcet  deadline  criticality
    0  fifo              47            0  alarm       >=3ms  100us       2ms  high
    1  fifo              46            0  control       4ms  200us       2ms  high
    3  fifo              44            0  route        10ms    1ms       8ms  low
    3  fifo              44            1  display      10ms  300us       8ms  low
without gear
mode landing: strategy muf, run to completion
level  discipline  priority  subpriority  operation  period   wcet  deadline  criticality
    0  laxity            47            0  control       2ms  200us       2ms  high
    0  laxity            47            1  gear          5ms  200us       4ms  high
    0  laxity            47            2  alarm       >=7ms  100us       2ms  high
without route, display
mode taxi: strategy rms+mlf, run to completion
level  discipline  priority  subpriority  operation  period   wcet  deadline  criticality
    1  fifo              46            0  gear          5ms  200us       4ms  high
    2  fifo              45            0  control       9ms  200us       2ms  high
    3  laxity            44            0  route        10ms    1ms       8ms  low
    3  laxity            44            1  display      10ms  300us       8ms  low
without alarm
"
    );
}
