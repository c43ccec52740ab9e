//! Replays schedules: schedules that end in a miss, and schedules that repeat.
//!
//! At each instant the m CPUs run the pending jobs that go first: by level, then by release or by
//! deadline plus shift, then by arrival, then in the order of the file. Jobs of one task go in
//! order. On one CPU a job that has run for some of a section keeps the CPU up to the section's
//! end. A job that is released just as a section would begin goes first. Legal arrivals: a periodic
//! task arrives every period from its offset. A sporadic task arrives at any time from its offset
//! on, no closer than its period. Jobs are released as they arrive (jitter is at most its bound)
//! and take their WCET.
//!
//! **`repeats`.** Tasks are strictly periodic, and each has arrived by an instant F. After a cycle
//! divisible by all periods the same jobs arrive as after F. If as much of each job is left as at
//! F, the schedule goes on as from F. Then no missed deadline up to the cycle's end means no missed
//! deadline ever. It is the worst case. On any number of CPUs, preemptively, with each job's place
//! in the order fixed at its arrival, no job completes later if some take less (R. Ha, J. W. S.
//! Liu, ICDCS 1994). On several CPUs deadlines are at most periods, so that jobs of one task do not
//! wait for each other.

use std::collections::VecDeque;

use super::{Claim, Part, SporadicArrival, Work, free, whole_part};
use takt_model::plan::Order;
use takt_model::{Arrival, CpuSet, System};

/// Jobs that are replayed before the certificate is turned away, of all its parts.
pub const JOBS_MAX: usize = 200_000;
/// Instants times tasks that are looked at, of all parts.
const TERMS_MAX: usize = 20_000_000;

/// Replays a witness; gives its scope.
pub(super) fn replay(
    system: &System,
    node: &str,
    cpus: &CpuSet,
    task: &str,
    arrivals: &[SporadicArrival],
) -> Result<String, String> {
    let (scope, missed) = first_miss(system, node, cpus, arrivals)?;
    match missed {
        Some(missed) if missed == task => Ok(scope),
        Some(missed) => Err(format!("\"{missed}\" is the first to miss, not \"{task}\"")),
        None => Err(format!("{scope}: no deadline is missed")),
    }
}

/// The scope, and the task that is the first to miss a deadline: of several at one instant the first in the file.
///
/// # Errors
/// Why this cannot be replayed, or is no legal behaviour.
pub fn first_miss(
    system: &System,
    node: &str,
    cpus: &CpuSet,
    arrivals: &[SporadicArrival],
) -> Result<(String, Option<String>), String> {
    let node = system.node_by_name(node).ok_or_else(|| format!("there is no node \"{node}\""))?;
    let spec = &system.nodes[node.index()];
    let around = |task: &takt_model::Task| task.node == node && task.component.is_some();
    if system.modes.iter().any(|mode| mode.node == node)
        || system.components.iter().any(|component| component.node == node)
        || system.tasks.iter().any(around)
        || system.flows.iter().any(|flow| flow.path.contains(&node))
        || spec.receive.is_some()
        || spec.send.is_some()
    {
        return Err(format!("node \"{}\" holds more than tasks under one strategy", spec.name));
    }
    if system.cancels(node) || !spec.costs.as_ref().is_none_or(free) {
        return Err(format!("node \"{}\" may cancel jobs, or has costs", spec.name));
    }
    let part = whole_part(system, None, node, None, cpus, &vec![0; system.tasks.len()])?;
    let jobs = jobs(system, &part, arrivals)?;
    let (missed, _) = run(&part, jobs, &[])?;
    Ok((part.scope.clone(), missed.map(|i| part.tasks[i].name.clone())))
}

/// No deadline is missed, and the schedule is the same from `from` and a cycle later on.
pub(super) fn repeats(part: &Part, from: u64, cycle: u64) -> Claim {
    let end = from.checked_add(cycle).ok_or("the cycle exceeds 64 bits")?;
    let costs = !part.costs.as_ref().is_none_or(free);
    let mut coming = Vec::with_capacity(part.tasks.len());
    for task in &part.tasks {
        let plain = task.j == 0 && task.b == 0 && !task.chained && (part.m == 1 || task.d <= task.t);
        let offset = task.every.filter(|offset| plain && !costs && !part.cancel && *offset <= from);
        let offset = offset.filter(|_| cycle.is_multiple_of(task.t)).ok_or_else(|| {
            format!(
                "{}: \"{}\" does not arrive and run the same way in every cycle of {cycle} ns",
                part.scope, task.name
            )
        })?;
        coming.push(PendingArrivals::Every { next: Some(offset), period: task.t });
    }
    let (missed, states) = run(part, coming, &[from, end])?;
    if let Some(i) = missed {
        return Err(format!("{}: \"{}\" misses a deadline", part.scope, part.tasks[i].name));
    }
    match states.as_slice() {
        [a, b] if a == b && cycle > 0 => Ok(()),
        _ => Err(format!("{}: not the same is left at {from} ns and {cycle} ns later", part.scope)),
    }
}

/// How many jobs of each task are pending, and what is left of the first.
type State = Vec<(usize, u64)>;

/// Arrivals to come of each task.
enum PendingArrivals {
    Every { next: Option<u64>, period: u64 },
    Listed(VecDeque<u64>),
}

impl PendingArrivals {
    fn next(&self) -> Option<u64> {
        match self {
            PendingArrivals::Every { next, .. } => *next,
            PendingArrivals::Listed(list) => list.front().copied(),
        }
    }

    fn take(&mut self) {
        match self {
            PendingArrivals::Every { next, period } => *next = next.and_then(|next| next.checked_add(*period)),
            PendingArrivals::Listed(list) => {
                list.pop_front();
            }
        }
    }
}

fn jobs(system: &System, part: &Part, arrivals: &[SporadicArrival]) -> Result<Vec<PendingArrivals>, String> {
    let mut coming = Vec::with_capacity(part.tasks.len());
    for work in &part.tasks {
        let task = &system.tasks[work.id.index()];
        if work.chained {
            return Err(format!("\"{}\" is released by others", work.name));
        }
        let offset = task.offset.as_ns();
        coming.push(match task.arrival {
            Arrival::Periodic => PendingArrivals::Every { next: Some(offset), period: work.t },
            Arrival::Sporadic => {
                let own: VecDeque<u64> =
                    arrivals.iter().filter(|arrived| arrived.task == work.name).map(|arrived| arrived.at_ns).collect();
                let apart = |(a, b): (&u64, &u64)| b.checked_sub(*a).is_some_and(|gap| gap >= work.t);
                if own.front().is_some_and(|first| *first < offset) || !own.iter().zip(own.iter().skip(1)).all(apart) {
                    return Err(format!("\"{}\" cannot arrive then", work.name));
                }
                PendingArrivals::Listed(own)
            }
            _ => return Err(format!("\"{}\" has arrivals of its own", work.name)),
        });
    }
    let known = |arrived: &SporadicArrival| {
        system.task_by_name(&arrived.task).is_some_and(|id| {
            system.tasks[id.index()].arrival == Arrival::Sporadic && part.tasks.iter().any(|task| task.id == id)
        })
    };
    match arrivals.iter().find(|arrived| !known(arrived)) {
        Some(arrived) => Err(format!("{}: \"{}\" is no sporadic task there", part.scope, arrived.task)),
        None => Ok(coming),
    }
}

/// The first task that misses, and the work left at these instants, before the arrivals there. The
/// last instant is the end.
fn run(part: &Part, mut coming: Vec<PendingArrivals>, stops: &[u64]) -> Result<(Option<usize>, Vec<State>), String> {
    let alone = |level: u32| part.tasks.iter().filter(|task| task.level == level).count() == 1;
    for task in &part.tasks {
        let level = part.levels[task.level as usize];
        let order = level.order == Order::Fifo || (level.order == Order::Deadline && level.preemptive);
        let sections = !task.sections.is_empty() && (part.m > 1 || !stops.is_empty());
        if sections || !alone(task.level) && (!order || level.importance_ties) {
            return Err(format!("{}: the jobs of \"{}\" cannot be replayed", part.scope, task.name));
        }
    }
    let key = |task: &Work, arrival: u64| match part.levels[task.level as usize].order {
        Order::Deadline => i128::from(arrival) + i128::from(task.d) + i128::from(task.shift),
        _ => i128::from(arrival),
    };
    let due = |pending: &[VecDeque<u64>], i: usize| pending[i].front().and_then(|at| at.checked_add(part.tasks[i].d));
    // Per task: arrivals of its pending jobs, and what is left of the first.
    let mut pending: Vec<VecDeque<u64>> = part.tasks.iter().map(|_| VecDeque::new()).collect();
    let mut left: Vec<u64> = part.tasks.iter().map(|task| task.c).collect();
    let (mut now, mut count) = (0u64, 0);
    let mut states: Vec<State> = Vec::new();
    let jobs_max = JOBS_MAX / part.replays.max(1);
    for _ in 0..TERMS_MAX / part.replays.max(1) / part.tasks.len().max(1) {
        while stops.get(states.len()) == Some(&now) {
            states.push(pending.iter().map(VecDeque::len).zip(left.iter().copied()).collect());
        }
        if !stops.is_empty() && states.len() == stops.len() {
            return Ok((None, states));
        }
        for (i, coming) in coming.iter_mut().enumerate() {
            while coming.next() == Some(now) {
                pending[i].push_back(now);
                coming.take();
                count += 1;
            }
        }
        if count > jobs_max {
            return Err(format!("more than the {jobs_max} jobs that are replayed"));
        }
        let mut ready: Vec<(u32, i128, u64, usize)> = pending
            .iter()
            .enumerate()
            .filter_map(|(i, jobs)| jobs.front().map(|at| (part.tasks[i].level, key(&part.tasks[i], *at), *at, i)))
            .collect();
        // One CPU: first the job within a section.
        let done = |i: usize| part.tasks[i].c - left[i];
        let kept = |i: usize| part.tasks[i].sections.iter().any(|(from, to)| *from < done(i) && done(i) < *to);
        ready.sort_unstable_by_key(|entry| (!kept(entry.3), *entry));
        ready.truncate(part.m as usize);
        let next = coming.iter().filter_map(PendingArrivals::next);
        // Ends of sections and of jobs.
        let ends = ready.iter().flat_map(|(_, _, _, i)| {
            let (task, done) = (&part.tasks[*i], done(*i));
            let ends = task.sections.iter().map(|(_, to)| *to).chain([task.c]);
            ends.filter_map(move |to| to.checked_sub(done)?.checked_add(now))
        });
        let deadlines = (0..pending.len()).filter_map(|i| due(&pending, i));
        let stop = stops.get(states.len()).copied();
        let then = next.chain(ends).chain(deadlines).chain(stop).filter(|then| *then > now).min();
        let Some(then) = then else { return Ok((None, states)) };
        for (_, _, _, i) in &ready {
            left[*i] -= (then - now).min(left[*i]);
            if left[*i] == 0 {
                pending[*i].pop_front();
                left[*i] = part.tasks[*i].c;
            }
        }
        now = then;
        if let Some(i) = (0..pending.len()).find(|i| due(&pending, *i).is_some_and(|due| due <= now)) {
            return Ok((Some(i), states));
        }
    }
    Err("more instants than are replayed".to_owned())
}
