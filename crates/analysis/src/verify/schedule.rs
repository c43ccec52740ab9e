//! Schedules that end in a miss, replayed.
//!
//! At each instant the m CPUs run the pending jobs that go first: by level, then by release or by deadline plus shift, then by arrival, then in the
//! order of the file; jobs of one task in order. Legal: a periodic task arrives every period from its offset, a sporadic one at any time from its offset on, no closer than its period;
//! jobs are released as they arrive (jitter is at most its bound) and take their WCET.

use std::collections::VecDeque;

use super::{Arrived, Part, Work, whole_part};
use takt_model::plan::Order;
use takt_model::{Arrival, CpuSet, System};

/// Jobs that are replayed before the witness is turned away.
pub const JOBS_MAX: usize = 200_000;
/// Instants times tasks that are looked at.
const TERMS_MAX: usize = 20_000_000;

/// Replays a witness; gives its scope.
pub(super) fn replay(
    system: &System,
    node: &str,
    cpus: &CpuSet,
    task: &str,
    arrivals: &[Arrived],
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
    arrivals: &[Arrived],
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
    let free = |costs: takt_model::Costs| {
        [costs.switch, costs.migrate, costs.release, costs.tick, costs.interrupt].iter().all(|cost| cost.is_zero())
    };
    if spec.cancel || !spec.costs.is_none_or(free) {
        return Err(format!("node \"{}\" may cancel jobs, or has costs", spec.name));
    }
    let part = whole_part(system, None, node, cpus, &vec![0; system.tasks.len()])?;
    let jobs = jobs(system, &part, arrivals)?;
    let missed = run(&part, jobs)?;
    Ok((part.scope.clone(), missed.map(|i| part.tasks[i].name.clone())))
}

/// Arrivals to come of each task.
enum Coming {
    Every { next: Option<u64>, period: u64 },
    Listed(VecDeque<u64>),
}

impl Coming {
    fn next(&self) -> Option<u64> {
        match self {
            Coming::Every { next, .. } => *next,
            Coming::Listed(list) => list.front().copied(),
        }
    }

    fn take(&mut self) {
        match self {
            Coming::Every { next, period } => *next = next.and_then(|next| next.checked_add(*period)),
            Coming::Listed(list) => {
                list.pop_front();
            }
        }
    }
}

fn jobs(system: &System, part: &Part, arrivals: &[Arrived]) -> Result<Vec<Coming>, String> {
    let mut coming = Vec::with_capacity(part.tasks.len());
    for work in &part.tasks {
        let task = &system.tasks[work.id.index()];
        if work.chained {
            return Err(format!("\"{}\" is released by others", work.name));
        }
        let offset = task.offset.as_ns();
        coming.push(match task.arrival {
            Arrival::Periodic => Coming::Every { next: Some(offset), period: work.t },
            Arrival::Sporadic => {
                let own: VecDeque<u64> =
                    arrivals.iter().filter(|arrived| arrived.task == work.name).map(|arrived| arrived.at_ns).collect();
                let apart = |(a, b): (&u64, &u64)| b.checked_sub(*a).is_some_and(|gap| gap >= work.t);
                if own.front().is_some_and(|first| *first < offset) || !own.iter().zip(own.iter().skip(1)).all(apart) {
                    return Err(format!("\"{}\" cannot arrive then", work.name));
                }
                Coming::Listed(own)
            }
            _ => return Err(format!("\"{}\" has arrivals of its own", work.name)),
        });
    }
    let known = |arrived: &Arrived| {
        system.task_by_name(&arrived.task).is_some_and(|id| {
            system.tasks[id.index()].arrival == Arrival::Sporadic && part.tasks.iter().any(|task| task.id == id)
        })
    };
    match arrivals.iter().find(|arrived| !known(arrived)) {
        Some(arrived) => Err(format!("{}: \"{}\" is no sporadic task there", part.scope, arrived.task)),
        None => Ok(coming),
    }
}

/// The first task that misses.
fn run(part: &Part, mut coming: Vec<Coming>) -> Result<Option<usize>, String> {
    let alone = |level: u32| part.tasks.iter().filter(|task| task.level == level).count() == 1;
    for task in &part.tasks {
        let level = part.levels[task.level as usize];
        let order = level.order == Order::Fifo || (level.order == Order::Deadline && level.preemptive);
        if !alone(task.level) && (!order || level.importance_ties) {
            return Err(format!("{}: the level of \"{}\" cannot be replayed", part.scope, task.name));
        }
    }
    let key = |task: &Work, arrival: u64| match part.levels[task.level as usize].order {
        Order::Deadline => i128::from(arrival) + i128::from(task.d) + i128::from(task.shift),
        _ => i128::from(arrival),
    };
    // Per task: arrivals of its pending jobs, and what is left of the first.
    let mut pending: Vec<VecDeque<u64>> = part.tasks.iter().map(|_| VecDeque::new()).collect();
    let mut left: Vec<u64> = part.tasks.iter().map(|task| task.c).collect();
    let (mut now, mut count) = (0u64, 0);
    for _ in 0..TERMS_MAX / part.tasks.len().max(1) {
        for (i, coming) in coming.iter_mut().enumerate() {
            while coming.next() == Some(now) {
                pending[i].push_back(now);
                coming.take();
                count += 1;
            }
        }
        if count > JOBS_MAX {
            return Err(format!("no deadline is missed within {JOBS_MAX} jobs"));
        }
        let mut ready: Vec<(u32, i128, u64, usize)> = pending
            .iter()
            .enumerate()
            .filter_map(|(i, jobs)| jobs.front().map(|at| (part.tasks[i].level, key(&part.tasks[i], *at), *at, i)))
            .collect();
        ready.sort_unstable();
        ready.truncate(part.m as usize);
        let due = |i: usize| pending[i].front().and_then(|at| at.checked_add(part.tasks[i].d));
        let next = coming.iter().filter_map(Coming::next);
        let done = ready.iter().map(|(_, _, _, i)| now.saturating_add(left[*i]));
        let deadlines = (0..pending.len()).filter_map(due);
        let Some(then) = next.chain(done).chain(deadlines).filter(|then| *then > now).min() else { return Ok(None) };
        for (_, _, _, i) in &ready {
            left[*i] -= (then - now).min(left[*i]);
            if left[*i] == 0 {
                pending[*i].pop_front();
                left[*i] = part.tasks[*i].c;
            }
        }
        now = then;
        if let Some(i) = (0..pending.len())
            .find(|i| pending[*i].front().and_then(|at| at.checked_add(part.tasks[*i].d)).is_some_and(|due| due <= now))
        {
            return Ok(Some(i));
        }
    }
    Err("no deadline is missed within as many instants as are replayed".to_owned())
}
