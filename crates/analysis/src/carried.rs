//! Bounds of releases and completions, which chains carry from task to task.

use takt_model::{System, TaskId};

use crate::question::{Question, UnitKey};
use crate::scope::{Unit, UnitTask, ns};
use crate::server::ServerSupply;

/// Bounds of releases and completions by task, in ns after the source's nominal arrival.
#[derive(Clone, Debug)]
pub(crate) struct ChainBounds {
    /// The latest release of a successor; 0 for a source. `None`: no bound.
    pub(crate) release: Vec<Option<u64>>,
    /// The latest completion.
    pub(crate) end: Vec<Option<u64>>,
    /// Whether the deadlines of units under EDF count as their completions.
    pub(crate) by_deadlines: bool,
    /// Whether the bounds of responses of units of several CPUs count as their completions.
    pub(crate) by_responses: bool,
    /// Whether completions were sought. If not, `end` is empty of bounds.
    pub(crate) ends: bool,
}

impl ChainBounds {
    /// The releases without completions; `None` if some task follows another. All tests but `edp` need no more.
    pub(crate) fn releases(system: &System) -> Option<ChainBounds> {
        let count = system.tasks.len();
        let apart = system.tasks.iter().all(|task| task.after.is_empty());
        let (release, end) = (vec![Some(0); count], vec![None; count]);
        apart.then_some(ChainBounds { release, end, by_deadlines: false, by_responses: false, ends: false })
    }

    /// Known latest releases of successors, in ns. The releases of other tasks do not wander.
    pub(crate) fn known(system: &System, release_delays: impl Iterator<Item = (TaskId, u64)>) -> ChainBounds {
        let mut carried = ChainBounds::by_deadlines(system);
        carried.release.fill(Some(0));
        for (task, release_delay) in release_delays {
            if let Some(release) = carried.release.get_mut(task.index()) {
                *release = Some(release_delay);
            }
        }
        carried
    }

    /// The latest release after the source's nominal arrival.
    pub(crate) fn release(&self, task: TaskId) -> Option<u64> {
        self.release[task.index()]
    }

    /// The latest completion after the source's nominal arrival.
    pub(crate) fn end(&self, task: TaskId) -> Option<u64> {
        self.end[task.index()]
    }

    /// Everything that the tests look at in a unit. Completions count only if `ends`.
    pub(crate) fn key(&self, unit: &Unit, strategy: &str, ends: bool) -> UnitKey {
        let of = |task: TaskId| (self.release(task), self.end(task).filter(|_| ends));
        let times = unit.tasks.iter().map(|task| of(task.id)).collect();
        UnitKey::new(unit, strategy, times, self.by_deadlines)
    }

    /// The question that the tests answer for a unit.
    pub(crate) fn question(&self, unit: &Unit, strategy: &str) -> Question {
        let name = if self.ends { unit.scope.clone() } else { format!("{} by releases", unit.scope) };
        let server = unit.served.as_ref().and_then(ServerSupply::server);
        let server_end = server.and_then(|server| self.end(server));
        Question { name, key: self.key(unit, strategy, true), server_end }
    }

    /// The bounds if every task keeps its deadline: deadlines add up along chains.
    pub(crate) fn by_deadlines(system: &System) -> ChainBounds {
        let count = system.tasks.len();
        let (release, end) = (vec![Some(0); count], vec![None; count]);
        let mut carried = ChainBounds { release, end, by_deadlines: true, by_responses: false, ends: true };
        for id in topological(system) {
            let task = &system.tasks[id.index()];
            carried.release[id.index()] = carried.latest(&task.after);
            carried.end[id.index()] =
                carried.release[id.index()].and_then(|release| release.checked_add(task.deadline.as_ns()));
        }
        carried
    }

    /// The latest completion among these; 0 for none.
    pub(crate) fn latest(&self, tasks: &[TaskId]) -> Option<u64> {
        tasks.iter().map(|task| self.end[task.index()]).try_fold(0, |latest, end| Some(latest.max(end?)))
    }
}

/// [`min_distance`] of a task whose deadline is no longer.
///
/// # Errors
/// The deadline is longer, or the distance is not known.
pub(crate) fn constrained_distance(task: &UnitTask, carried: &ChainBounds) -> Result<u64, String> {
    let t = min_distance(task, carried)?;
    if task.d <= t {
        return Ok(t);
    }
    let (name, d, period) = (&task.name, ns(task.d), ns(task.t));
    let needs = "needs deadlines that are not longer than the distance of releases";
    Err(match task.t - t {
        0 => format!("{needs}: that of \"{name}\" is {d}, its period {period}"),
        release_delay => format!(
            "{needs}: \"{name}\" may be released {} apart, as its predecessors complete up to {} late in its \
             period of {period}; its deadline is {d}",
            ns(t),
            ns(release_delay)
        ),
    })
}

/// The least distance of a task's arrivals, in ns. A successor of a chain arrives when it is released. Two of its
/// arrivals can be closer than its period by as much as its release wanders.
///
/// # Errors
/// The release wanders by a period or more, or has no bound.
pub(crate) fn min_distance(task: &UnitTask, carried: &ChainBounds) -> Result<u64, String> {
    let release_delay = carried.release(task.id);
    let release_delay =
        release_delay.ok_or_else(|| format!("no bound is known for the releases of \"{}\"", task.name))?;
    task.t.checked_sub(release_delay).filter(|t| *t > 0).ok_or_else(|| {
        let (name, release_delay, period) = (&task.name, ns(release_delay), ns(task.t));
        format!(
            "needs releases that wander by less than the period: \"{name}\" may be released up to {release_delay} \
             late, for so long may its predecessors take; its period is {period}"
        )
    })
}

/// The tasks in topological order, sources first. Tasks on a cycle, which no valid System has, are left out.
pub(crate) fn topological(system: &System) -> Vec<TaskId> {
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
