//! From threads to a System.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Notes;
use super::cycle::{self, Cycle, Piece};
use super::read::NO_TASK;
use super::workload::{Action, Class, Thread, Workload};
use crate::cpus::CpuSet;
use crate::strategy::{Builtin, Discipline, Filter, Level, Split, Strategy};
use crate::system::{Arrival, Clock, Exec, NodeId, NodeSpec, StrategyId, StrategyRef, System, Task};
use crate::time::Span;
use crate::units::{Bytes, Probability};

/// The System of a workload; what is approximated is noted.
pub(super) fn convert(workload: &Workload, file_name: &str, notes: &mut Notes) -> System {
    let mut tasks: Vec<(Class, Task)> = Vec::new();
    relative_timers(workload, notes);
    shared_timers(workload, notes);
    for thread in workload.threads.iter().filter(|thread| thread.instances > 0) {
        if let Some(task) = task(thread, notes) {
            let many = thread.instances > 1;
            for k in 0..thread.instances {
                let name = if many { format!("{}-{k}", thread.name) } else { thread.name.clone() };
                tasks.push((thread.sched.class, Task { name, ..task.clone() }));
            }
        }
    }
    let first = workload.threads.first().map_or(0, |thread| thread.at);
    let (strategy, own) = strategy(&tasks, first, notes);
    let cpus =
        workload.threads.iter().filter_map(|thread| thread.cpus).fold(CpuSet::EMPTY, |all, cpus| all.union(&cpus));
    let cpus = cpus.iter().last().map_or(1, |highest| highest + 1);
    notes.warn(
        first,
        "tasks",
        format_args!(
            "rt-app uses all CPUs of the machine, and the file does not say how many; cpus = {cpus} is a guess, \
             correct it"
        ),
    );
    let stem = file_name.rsplit(['/', '\\']).next().unwrap_or(file_name);
    let stem = stem.strip_suffix(".json").unwrap_or(stem);
    let name = if stem.is_empty() || stem.chars().any(char::is_control) { "rt-app" } else { stem };
    System {
        name: name.to_owned(),
        nodes: vec![NodeSpec::new("local", cpus, strategy)],
        strategies: own,
        modes: Vec::new(),
        switches: Vec::new(),
        components: Vec::new(),
        tasks: tasks.into_iter().map(|(_, task)| task).collect(),
        flows: Vec::new(),
        ports: Vec::new(),
        networks: Vec::new(),
        clock: Clock::default(),
        notes: Vec::new(),
    }
}

/// After an overrun a timer in rt-app's default mode starts anew from where it is.
fn relative_timers(workload: &Workload, notes: &mut Notes) {
    let events = workload.threads.iter().flat_map(|thread| &thread.phases).flat_map(|phase| &phase.events);
    let mut relative = events.filter(|event| matches!(event.action, Action::Timer { absolute: false, .. }));
    if let Some(event) = relative.next() {
        let others = match relative.count() {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        let message = format_args!(
            "a timer that is not \"absolute\" restarts after an overrun{others}; takt keeps the grid of its period"
        );
        notes.warn(event.at, &event.path, message);
    }
}

/// Threads that share a timer wait for it in turns.
fn shared_timers(workload: &Workload, notes: &mut Notes) {
    let mut users: BTreeMap<&str, u64> = BTreeMap::new();
    let mut places = Vec::new();
    for thread in &workload.threads {
        let mut own: Vec<&str> = Vec::new();
        for event in thread.phases.iter().flat_map(|phase| &phase.events) {
            if let Action::Timer { name, .. } = &event.action
                && !name.starts_with("unique")
                && !own.contains(&name.as_str())
            {
                own.push(name);
                places.push((name.as_str(), event));
                *users.entry(name).or_default() += u64::from(thread.instances);
            }
        }
    }
    for (name, event) in places {
        if users.get(name).is_some_and(|users| *users > 1) {
            let message = format_args!(
                "the timer \"{name}\" is shared by several threads, each of which shifts it for the others; \
                 every task gets its own"
            );
            notes.warn(event.at, &event.path, message);
        }
    }
}

fn task(thread: &Thread, notes: &mut Notes) -> Option<Task> {
    let cycle = cycle::of(thread);
    let (at, path) = (thread.at, thread.path.as_str());
    if cycle.pieces.is_empty() {
        notes.warn(at, path, format_args!("has no run or runtime event, {NO_TASK}"));
        return None;
    }
    if cycle.never_waits && cycle.blocks {
        notes.warn(at, path, format_args!("is released by other threads alone, which has no counterpart, {NO_TASK}"));
        return None;
    }
    let shape = shape(&cycle);
    approximations(thread, &cycle, &shape, notes);
    let mut wcet = shape.work_max;
    let mut deadline = shape.distance_min;
    let mut exec = shape.exec;
    let mut period = shape.distance_min;
    let mut arrival = shape.arrival;
    if let Some((runtime, relative, reserved)) = thread.sched.reservation {
        (wcet, deadline) = (runtime, relative);
        let served = reservation_effect(&cycle, shape.work_max, period, runtime, reserved);
        if let Some(message) = warning(&served, shape.work_max, period, runtime, reserved) {
            notes.warn(at, path, message);
        }
        match served {
            ReservationEffect::Throughout | ReservationEffect::Overloaded => {
                (period, exec, arrival) = (reserved, Exec::Wcet, Arrival::Periodic);
            }
            ReservationEffect::Own | ReservationEffect::Rarely => {
                if exec == Exec::Wcet && shape.work_max != runtime {
                    exec = Exec::Pmf(vec![(Span::from_ns(shape.work_max), Probability::ONE)]);
                }
            }
            ReservationEffect::Often => wcet = shape.work_max,
            ReservationEffect::InParts => {
                wcet = shape.work_max;
                // The last of the reservations that a job takes decides.
                deadline = relative.saturating_add((wcet.div_ceil(runtime.max(1)) - 1).saturating_mul(reserved));
            }
        }
    }
    let offset = thread.delay_ns.checked_add(cycle.first).map(Span::from_ns).filter(|offset| *offset <= Span::FILE_MAX);
    let too_long = [wcet, deadline, period].iter().any(|ns| Span::from_ns(*ns) > Span::FILE_MAX);
    let (Some(offset), false) = (offset, too_long) else {
        notes.error(at, path, format_args!("its loops take longer than takt's longest duration, {}", Span::FILE_MAX));
        return None;
    };
    let events = thread.phases.iter().flat_map(|phase| &phase.events);
    let wss = events.filter_map(|event| if let Action::Mem(bytes) = event.action { Some(bytes) } else { None });
    Some(Task {
        node: NodeId(0),
        cpus: thread.cpus,
        deadline: Span::from_ns(deadline),
        offset,
        exec,
        arrival,
        priority: (thread.sched.class == Class::Fifo).then(|| 100 - thread.sched.priority),
        wss: Bytes::new(wss.max().unwrap_or(0)),
        ..Task::periodic(&thread.name, Span::from_ns(period), Span::from_ns(wcet))
    })
}

/// The effect of a SCHED_DEADLINE reservation on a thread's releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReservationEffect {
    /// It never waits: the reservation alone decides when it runs on.
    Throughout,
    /// It comes as often as its reservation.
    Own,
    /// It comes more seldom than its reservation, and a job fits into one.
    Rarely,
    /// It comes more seldom than its reservation, and a job takes several.
    InParts,
    /// It comes more often than its reservation, which holds enough for several jobs.
    Often,
    /// It needs more than the reservation gives in the long run, so it runs whenever the
    /// reservation allows it.
    Overloaded,
}

fn reservation_effect(cycle: &Cycle, work_max: u64, period: u64, runtime: u64, reserved: u64) -> ReservationEffect {
    let sum = |of: fn(&Piece) -> u64| {
        cycle
            .pieces
            .iter()
            .fold(0u128, |sum, piece| sum.saturating_add(u128::from(of(piece)).saturating_mul(piece.count.into())))
    };
    let wanted = sum(|piece| piece.work).saturating_mul(reserved.into());
    let given = sum(|piece| piece.distance).saturating_mul(runtime.into());
    match period.cmp(&reserved) {
        _ if cycle.never_waits => ReservationEffect::Throughout,
        Ordering::Equal => ReservationEffect::Own,
        _ if wanted > given => ReservationEffect::Overloaded,
        Ordering::Less => ReservationEffect::Often,
        Ordering::Greater if work_max > runtime => ReservationEffect::InParts,
        Ordering::Greater => ReservationEffect::Rarely,
    }
}

/// How the imported task differs from the thread under its reservation.
fn warning(served: &ReservationEffect, work_max: u64, period: u64, runtime: u64, reserved: u64) -> Option<String> {
    let [work, period, runtime, reserved] = [work_max, period, runtime, reserved].map(Span::from_ns);
    let comes = format!("is released every {period}, and its reservation holds {runtime} every {reserved}");
    Some(match served {
        ReservationEffect::Throughout => return None,
        ReservationEffect::Own if work > runtime => format!(
            "works for up to {work}, more than its dl-runtime {runtime}; the kernel would throttle it, takt \
             lets the job overrun its wcet"
        ),
        ReservationEffect::Own => return None,
        ReservationEffect::Rarely => format!("{comes}; the task's period is {period}, so less is reserved for it"),
        ReservationEffect::InParts => format!(
            "{comes}; a job of up to {work} takes several of these, and the kernel throttles it in between: \
             takt does not, and gives it the deadline of the last"
        ),
        ReservationEffect::Often => format!(
            "{comes}; the task's wcet is the work of one job, {work}, and what the reservation holds beyond is left out"
        ),
        ReservationEffect::Overloaded => format!(
            "{comes}, less than its jobs of up to {work} want; the kernel throttles it, so the import is a task that \
             always uses its whole reservation; its own releases are left out"
        ),
    })
}

/// A cycle as takt can say it.
struct Shape {
    work_max: u64,
    distance_min: u64,
    exec: Exec,
    arrival: Arrival,
    /// Whether the probabilities are no exact billionths.
    rounded: bool,
}

fn shape(cycle: &Cycle) -> Shape {
    let (exec, exec_rounded) = distribution(&cycle.pieces, |piece| piece.work);
    let (arrival, arrival_rounded) = distribution(&cycle.pieces, |piece| piece.distance);
    Shape {
        work_max: cycle.pieces.iter().map(|piece| piece.work).max().unwrap_or(0),
        distance_min: cycle.pieces.iter().map(|piece| piece.distance).min().unwrap_or(0),
        exec: exec.map_or(Exec::Wcet, Exec::Pmf),
        arrival: arrival.map_or(Arrival::Periodic, Arrival::Pmf),
        rounded: exec_rounded || arrival_rounded,
    }
}

/// How often each value comes, in billionths; `None` where there is one value. Remainders go to the first values.
fn distribution(pieces: &[Piece], value: impl Fn(&Piece) -> u64) -> (Option<Vec<(Span, Probability)>>, bool) {
    let mut counts: BTreeMap<u64, u128> = BTreeMap::new();
    for piece in pieces {
        *counts.entry(value(piece)).or_default() += u128::from(piece.count);
    }
    if counts.len() < 2 {
        return (None, false);
    }
    let one = u128::from(Probability::ONE.billionths());
    let total: u128 = counts.values().sum();
    let floors: Vec<u128> = counts.values().map(|count| count * one / total).collect();
    let mut left = one - floors.iter().sum::<u128>();
    let rounded = left > 0 || floors.contains(&0);
    let mass = counts.keys().zip(floors).map(|(ns, floor)| {
        let extra = left.min(1);
        left -= extra;
        let billionths = u32::try_from(floor + extra).unwrap_or(0);
        (Span::from_ns(*ns), Probability::from_billionths(billionths).unwrap_or_default())
    });
    (Some(mass.collect()), rounded)
}

fn approximations(thread: &Thread, cycle: &Cycle, shape: &Shape, notes: &mut Notes) {
    let (at, path) = (thread.at, thread.path.as_str());
    let period = Span::from_ns(shape.distance_min);
    if cycle.never_waits {
        let work = Span::from_ns(shape.work_max);
        let message = match thread.sched.reservation {
            Some(_) => "works without ever waiting; it becomes a task that uses its whole reservation".to_owned(),
            None => {
                format!("works without ever waiting; it becomes a task of period and wcet {work}, which fills a CPU")
            }
        };
        notes.warn(at, path, message);
    }
    if cycle.sleeps {
        let message = format_args!(
            "sleeps for a relative time, which is not periodic; run + sleep = {period} becomes the period, the \
             least distance of its jobs"
        );
        notes.warn(at, path, message);
    }
    if cycle.suspends {
        let message = "sleeps in the middle of a job; the job's parts become one, so its demand is right and \
             its shape is not";
        notes.warn(at, path, message);
    }
    if matches!(shape.exec, Exec::Pmf(_)) || matches!(shape.arrival, Arrival::Pmf(_)) {
        let rounded = if shape.rounded { ", the frequencies rounded to billionths" } else { "" };
        let message = format_args!(
            "does different things in turn; its works and distances become probabilities, and their order is \
             lost{rounded}"
        );
        notes.warn(at, path, message);
    }
    if let Some(phase) = cycle.endless.and_then(|last| thread.phases.get(last)) {
        notes.warn(at, &phase.path, "never ends, so it alone is imported; the parts before and after it are left out");
    } else if let Some(times) = thread.loops {
        let rounds = if times == 1 { "round" } else { "rounds" };
        notes.warn(at, path, format_args!("ends after {times} {rounds}; takt's tasks go on for ever"));
    }
    if cycle.blocks {
        notes.warn(at, path, "waits for other threads within its jobs, which is not in its period and wcet");
    }
    let events = thread.phases.iter().flat_map(|phase| &phase.events);
    let yields = events.filter(|event| event.action == Action::Yield);
    if let (Some(event), None) = (yields.into_iter().next(), thread.sched.reservation) {
        notes.warn(event.at, &event.path, "yielding has no counterpart outside SCHED_DEADLINE");
    }
}

/// One level per scheduling class in use, or a named strategy where that says the same.
fn strategy(tasks: &[(Class, Task)], at: usize, notes: &mut Notes) -> (StrategyRef, Vec<Strategy>) {
    let mut classes: Vec<Class> = tasks.iter().map(|(class, _)| *class).collect();
    classes.sort_unstable();
    classes.dedup();
    for (class, name) in [(Class::Other, "SCHED_OTHER"), (Class::Idle, "SCHED_IDLE")] {
        if classes.contains(&class) {
            let message = format_args!(
                "{name} shares a CPU fairly, which takt does not model; its tasks are ordered by deadline"
            );
            notes.warn(at, "tasks", message);
        }
    }
    match classes.as_slice() {
        [] | [Class::Deadline | Class::Other | Class::Idle] => return (StrategyRef::Builtin(Builtin::Edf), Vec::new()),
        [Class::Fifo] => return (StrategyRef::Builtin(Builtin::Fp), Vec::new()),
        _ => {}
    }
    let mut levels: Vec<Level> = Vec::new();
    for class in &classes {
        let names = tasks.iter().filter(|(of, _)| of == class).map(|(_, task)| task.name.clone());
        let filter = if Some(class) == classes.last() { Filter::Rest } else { Filter::Named(names.collect()) };
        levels.push(match class {
            Class::Fifo => Level { split: Split::Priority, ..Level::new(filter, Discipline::Fifo) },
            _ => Level::new(filter, Discipline::Deadline),
        });
    }
    (StrategyRef::Own(StrategyId(0)), vec![Strategy { name: "linux".to_owned(), levels }])
}
