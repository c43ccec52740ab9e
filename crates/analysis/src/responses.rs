//! Responses in a unit of one CPU, by the test of its levels.

use takt_model::PlanLevel;
use takt_model::plan::Order;

use crate::carried::ChainBounds;
use crate::fp::levels::{Analysis, Level, LevelTask, Levels, Order as LevelOrder, Overhead, Response, Worst};
use crate::scope::{Ordinary, Unit, UnitTask};

/// Bounds the responses of a unit of one CPU, in the order of its tasks. `None`: no bound exists, a
/// task of the same level has no bounded release, or such a task may be demoted. The late jobs of a
/// demoted task wait below all levels, and its later jobs come in a burst.
pub(crate) fn responses(unit: &Unit, analysis: &mut Analysis, carried: &ChainBounds) -> Vec<Option<Response>> {
    if unit.uncovered_sections().is_some() {
        return vec![None; unit.tasks.len()];
    }
    let tasks: Vec<Option<LevelTask>> = unit.tasks.iter().map(|task| level_task(unit, task, carried)).collect();
    // Levels at or below an unknown release have no bound.
    let unknown = unit.tasks.iter().zip(&tasks).filter(|(_, known)| known.is_none()).map(|(task, _)| task.level).min();
    let known: Vec<LevelTask> =
        tasks.into_iter().flatten().filter(|task| unknown.is_none_or(|level| task.level < level)).collect();
    let levels: Vec<Level> =
        unit.levels.iter().map(|level| Level { order: order(level.order), preemptive: level.preemptive }).collect();
    let overheads = overheads(unit, &known);
    let mut bounds = Vec::new();
    analysis.responses(&Levels { levels: &levels, tasks: &known, overheads: &overheads }, &mut bounds);
    let mut bounds = bounds.into_iter();
    let mut all: Vec<Option<Response>> = unit
        .tasks
        .iter()
        .map(|task| if unknown.is_none_or(|level| task.level < level) { bounds.next().flatten() } else { None })
        .collect();
    let demotes = |task: &UnitTask| unit.levels[task.level as usize].demotes;
    let late =
        |response: &Option<Response>, task: &UnitTask| response.is_none_or(|response| response.from_arrival > task.d);
    let demoted = unit.tasks.iter().zip(&all).filter(|(task, response)| demotes(task) && late(response, task));
    if let Some(from) = demoted.map(|(task, _)| task.level).min() {
        for (response, _) in all.iter_mut().zip(&unit.tasks).filter(|(_, task)| task.level >= from) {
            *response = None;
        }
    }
    all
}

/// The window in which task `i` of the unit responds last, with what takes CPU time besides jobs;
/// counts are per task of the unit.
pub(crate) fn worst(unit: &Unit, i: usize, carried: &ChainBounds) -> Option<(Worst, Vec<Overhead>)> {
    let level = unit.tasks.get(i)?.level;
    let before: Vec<usize> = (0..unit.tasks.len()).filter(|k| unit.tasks[*k].level <= level).collect();
    let tasks: Vec<LevelTask> =
        before.iter().map(|k| level_task(unit, &unit.tasks[*k], carried)).collect::<Option<_>>()?;
    let levels: Vec<Level> =
        unit.levels.iter().map(|level| Level { order: order(level.order), preemptive: level.preemptive }).collect();
    let overheads = overheads(unit, &tasks);
    let set = Levels { levels: &levels, tasks: &tasks, overheads: &overheads };
    let mut worst = Analysis::default().worst(&set, before.iter().position(|k| *k == i)?)?;
    let mut jobs = vec![0; unit.tasks.len()];
    for (k, count) in before.iter().zip(&worst.jobs) {
        jobs[*k] = *count;
    }
    worst.jobs = jobs;
    Some((worst, overheads))
}

fn order(order: Order) -> LevelOrder {
    match order {
        Order::Fifo => LevelOrder::Fifo,
        Order::Deadline => LevelOrder::Deadline,
        Order::Laxity => LevelOrder::Laxity,
    }
}

fn level_task(unit: &Unit, task: &UnitTask, carried: &ChainBounds) -> Option<LevelTask> {
    Some(LevelTask {
        c: unit.charged(task)?,
        wcet: task.c,
        t: task.t,
        d: task.d,
        shift: task.shift,
        j: task.j,
        release_delay: carried.release(task.id)?,
        b: task.b,
        level: task.level,
    })
}

/// CPU time besides jobs: ticks, interrupts, ordinary threads, and the switches of a preemptive laxity level. There
/// laxities are compared at any release, at each point of the quantum's grid and at a late job's end. A
/// comparison can take the CPU from a job and give it to a job other than the released one.
/// [`Unit::charged`] does not count this resumption.
fn overheads(unit: &Unit, tasks: &[LevelTask]) -> Vec<Overhead> {
    let mut overheads: Vec<Overhead> =
        unit.overheads().map(|tick| Overhead { c: tick.c, t: tick.t, release_delay: 0, level: 0 }).collect();
    if let Some(Ordinary::Above { amount, period }) = unit.ordinary {
        overheads.push(Overhead { c: amount, t: period, release_delay: period.saturating_sub(amount), level: 0 });
    }
    let switch = unit.costs.map_or(0, |costs| costs.switch.as_ns());
    let contended = |(level, here): (&PlanLevel, u32)| level.order == Order::Laxity && level.preemptive && here > 1;
    let first = unit.levels.iter().zip(unit.tasks_by_level()).position(contended);
    let Some(level) = first.filter(|_| switch > 0).map(|level| level as u32) else { return overheads };
    let ends = 1 + usize::from(!unit.levels.iter().all(PlanLevel::continues));
    for task in tasks {
        let release_delay = task.release_delay.saturating_add(task.j);
        overheads.extend(std::iter::repeat_n(Overhead { c: switch, t: task.t, release_delay, level }, ends));
    }
    overheads.extend(unit.laxity_quantum.map(|t| Overhead { c: switch, t, release_delay: 0, level }));
    overheads
}
