//! Chains: when a successor is released, and when its chain ends.
//!
//! A successor's job k is released when job k of each predecessor has completed: some time between the latest source's
//! nominal arrival and the largest end-to-end response of its predecessors. That wander is its release jitter, and
//! depends on other responses, which depend on it: K. Tindell, J. Clark: Holistic Schedulability Analysis for Distributed
//! Hard Real-Time Systems, Microprocessing and Microprogramming 40, 1994: iterate from zero to the least fixed point.
//!
//! Where a unit has no response-time analysis (EDF, several CPUs), a task responds within its deadline as long as
//! no deadline has been missed; a test that proves under this assumption that none is missed first proves it.

use takt_model::{Arrival, Late, System, TaskId, chain_name};

use crate::rta::{self, FpTask};
use crate::scope::{Unit, UnitTask};
use crate::verdict::Answer;

/// Rounds over all units before the iteration gives up.
const ROUNDS_MAX: u32 = 1_000;

/// What is known of when jobs are released and complete, in ns after their source's nominal arrival; by task.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    /// The latest release of a successor; 0 for a source. `None`: no bound.
    release: Vec<Option<u64>>,
    /// The latest completion.
    end: Vec<Option<u64>>,
}

impl Carried {
    /// The latest release after the source's nominal arrival.
    pub(crate) fn release(&self, task: TaskId) -> Option<u64> {
        self.release[task.index()]
    }

    /// As long as every task keeps its deadline: deadlines add up along chains.
    pub(crate) fn by_deadlines(system: &System) -> Carried {
        let count = system.tasks.len();
        let mut carried = Carried { release: vec![Some(0); count], end: vec![None; count] };
        for id in topological(system) {
            let task = &system.tasks[id.index()];
            carried.release[id.index()] = carried.latest(&task.after);
            carried.end[id.index()] =
                carried.release[id.index()].and_then(|release| release.checked_add(task.deadline.as_ns()));
        }
        carried
    }

    /// The least fixed point over all units of a node.
    pub(crate) fn holistic(system: &System, units: &[Unit]) -> Carried {
        let mut carried = Carried::by_deadlines(system);
        if system.tasks.iter().all(|task| task.after.is_empty()) {
            return carried;
        }
        let order = topological(system);
        carried.release.fill(Some(0));
        // One work limit for the whole iteration: past it there are no bounds, and that settles.
        let mut analysis = rta::Analysis::default();
        for _ in 0..ROUNDS_MAX {
            for unit in units {
                carried.complete(unit, &mut analysis);
            }
            let mut settled = true;
            for id in &order {
                let release = carried.latest(&system.tasks[id.index()].after);
                settled &= release == carried.release[id.index()];
                carried.release[id.index()] = release;
            }
            if settled {
                return carried;
            }
        }
        for (release, task) in carried.release.iter_mut().zip(&system.tasks) {
            *release = if task.after.is_empty() { Some(0) } else { None };
        }
        carried.end.fill(None);
        carried
    }

    /// Bounds the completions of one unit's tasks under the releases known so far.
    fn complete(&mut self, unit: &Unit, analysis: &mut rta::Analysis) {
        let analysed = fp_tasks(unit, self);
        let served = unit.served_levels();
        for (i, task) in unit.tasks.iter().enumerate() {
            let release = self.release[task.id.index()];
            self.end[task.id.index()] = if unit.m == 1 && task.level < served {
                response(unit, analysis, &analysed, i).map(|response| response.from_arrival)
            } else {
                release.and_then(|release| release.checked_add(task.d))
            };
        }
    }

    /// The latest completion among these; 0 for none.
    fn latest(&self, tasks: &[TaskId]) -> Option<u64> {
        tasks.iter().map(|task| self.end[task.index()]).try_fold(0, |latest, end| Some(latest.max(end?)))
    }
}

/// A unit's tasks for rta, in its order, then the tick; `None` where the release of a chain's successor is unbounded.
pub(crate) fn fp_tasks(unit: &Unit, carried: &Carried) -> Vec<Option<FpTask>> {
    let mut tasks: Vec<Option<FpTask>> = unit
        .tasks
        .iter()
        .map(|task| {
            let j = carried.release(task.id)?.checked_add(task.j)?;
            // Level 0 is the tick's.
            Some(FpTask { c: unit.charged(task)?, t: task.t, d: task.d, j, b: task.b, level: task.level + 1 })
        })
        .collect();
    tasks.extend(unit.tick().map(|tick| Some(FpTask { c: tick.c, t: tick.t, d: tick.t, ..FpTask::default() })));
    tasks
}

/// Bounds task `i` of a unit; `None` where it or a task as important has no bounded release, where such a task may be
/// demoted (its late jobs then wait below all levels, and those after them come in a burst), or where no bound exists.
pub(crate) fn response(
    unit: &Unit,
    analysis: &mut rta::Analysis,
    tasks: &[Option<FpTask>],
    i: usize,
) -> Option<rta::Response> {
    let level = unit.tasks[i].level;
    let demotes = |task: &UnitTask| unit.levels[task.level as usize].late == Late::Demote;
    for (k, task) in unit.tasks.iter().enumerate().filter(|(_, task)| task.level <= level && demotes(task)) {
        let bound = undemoted(analysis, tasks, k)?.to_deadline(task)?;
        if bound > task.d {
            return None;
        }
    }
    undemoted(analysis, tasks, i)
}

impl rta::Response {
    /// The bound that the deadline is held against: it counts from the own release for a chain's successor.
    pub(crate) fn to_deadline(self, task: &UnitTask) -> Option<u64> {
        if task.chained { self.from_release.checked_add(task.j) } else { Some(self.from_arrival) }
    }
}

/// By task: whether what the tests say of it rests on a release that was bounded by deadlines that nobody has proven.
/// `answers` are those of the units.
///
/// A unit without response-time analysis carries its tasks' deadlines along the chains. Where it is not proven, they
/// may be missed, and so the releases of the successors, and all that those delay, have no bound.
pub(crate) fn unproven(system: &System, units: &[Unit], answers: &[Answer]) -> Vec<bool> {
    let mut late = vec![false; system.tasks.len()];
    let mut shaky = vec![false; system.tasks.len()];
    loop {
        let mut changed = false;
        for (unit, answer) in units.iter().zip(answers) {
            let wanders = |task: &&UnitTask| system.tasks[task.id.index()].after.iter().any(|id| late[id.index()]);
            // The most important level at which a release may come later than assumed.
            let from = unit.tasks.iter().filter(wanders).map(|task| task.level).min();
            let levels = unit.served_levels();
            for task in &unit.tasks {
                let served = unit.m == 1 && task.level < levels;
                let rests = from.is_some_and(|from| !served || task.level >= from);
                changed |= rests && !std::mem::replace(&mut shaky[task.id.index()], true);
                let kept = !rests && (served || *answer == Answer::Yes);
                changed |= !kept && !std::mem::replace(&mut late[task.id.index()], true);
            }
        }
        if !changed {
            return shaky;
        }
    }
}

/// Bounds task `i` provided that no task is ever demoted.
fn undemoted(analysis: &mut rta::Analysis, tasks: &[Option<FpTask>], i: usize) -> Option<rta::Response> {
    let level = tasks[i]?.level;
    let mut before = 0;
    let mut hep = Vec::with_capacity(tasks.len());
    for (k, task) in tasks.iter().enumerate() {
        match task {
            Some(task) if task.level <= level => hep.push(*task),
            // Where its own level is not known, it may be as important.
            None => return None,
            Some(_) => continue,
        }
        if k < i {
            before += 1;
        }
    }
    analysis.response(&hep, before)
}

/// Sources first; tasks on a cycle (which no valid System has) are left out.
fn topological(system: &System) -> Vec<TaskId> {
    let mut order = Vec::with_capacity(system.tasks.len());
    let mut waiting: Vec<usize> = system.tasks.iter().map(|task| task.after.len()).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); system.tasks.len()];
    for (i, task) in system.tasks.iter().enumerate() {
        for before in &task.after {
            followers[before.index()].push(i);
        }
    }
    let mut ready: Vec<usize> = (0..system.tasks.len()).filter(|i| waiting[*i] == 0).collect();
    while let Some(i) = ready.pop() {
        order.push(TaskId(i as u32));
        for follower in &followers[i] {
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                ready.push(*follower);
            }
        }
    }
    order
}

/// The end-to-end bounds of the chains that end in one of these units: (name, bound from the earliest source's nominal
/// arrival), `None` where there is none.
pub(crate) fn end_to_end(system: &System, units: &[Unit], carried: &Carried) -> Vec<(String, Option<u64>)> {
    let here = |id: TaskId| units.iter().any(|unit| unit.tasks.iter().any(|task| task.id == id));
    system
        .chain_sinks()
        .filter(|sink| here(*sink))
        .map(|sink| {
            let bound = source_spread(system, sink).and_then(|spread| carried.end[sink.index()]?.checked_add(spread));
            (chain_name(system, sink), bound)
        })
        .collect()
}

/// How much later than the earliest source's nominal arrival the latest one's can be: 0 for one source, the
/// difference of offsets for periodic ones, unbounded otherwise.
fn source_spread(system: &System, sink: TaskId) -> Option<u64> {
    let mut sources = Vec::new();
    let mut seen = vec![false; system.tasks.len()];
    let mut pending = vec![sink];
    while let Some(id) = pending.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        let task = &system.tasks[id.index()];
        if task.after.is_empty() {
            sources.push(task);
        }
        pending.extend(&task.after);
    }
    if sources.len() <= 1 {
        return Some(0);
    }
    if sources.iter().any(|task| task.arrival != Arrival::Periodic) {
        return None;
    }
    let offsets = sources.iter().map(|task| task.offset.as_ns());
    Some(offsets.clone().max()? - offsets.min()?)
}
