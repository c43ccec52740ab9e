//! Chains: when a successor is released, and when its chain ends.
//!
//! Job k of a successor is released when job k of each predecessor has completed. This instant lies
//! between the latest source's nominal arrival and the largest end-to-end response of its
//! predecessors. This range is the successor's release jitter. It depends on other responses, and
//! they depend on it. The iteration starts at zero and ends at the least fixed point. Source: K.
//! Tindell, J. Clark: Holistic Schedulability Analysis for Distributed Hard Real-Time Systems,
//! Microprocessing and Microprogramming 40, 1994.
//!
//! **Assumed deadlines.** Some units have no response-time analysis, or it finds no bound. There a
//! task counts with its deadline, as long as no deadline has been missed. A test under this
//! assumption shows that no deadline is the first to be missed, so none is.
//!
//! **Several CPUs.** `rta-lc` (fixed priorities) and `rta-global` (EDF) bound responses as long as
//! no deadline has been missed. Each deadline, each bound of a response and each bound of a release
//! is proven from earlier instants. So none is the first to be exceeded.

use takt_model::plan::Order;
use takt_model::{Arrival, PlanLevel, System, TaskId, chain_name};

use crate::apply::responses_of_several;
use crate::compositional;
use crate::fp::levels::{Analysis, Level, LevelTask, Levels, Order as LevelOrder, Response, Theft, Worst};
use crate::memo::{Memo, Question, UnitKey};
use crate::scope::{Ordinary, Unit, UnitTask};
use crate::verdict::Answer;

/// Rounds over all units before the iteration gives up.
const ROUNDS_MAX: u32 = 1_000;
/// The same where bounds of several CPUs are followed; then their deadlines count.
const ROUNDS_OF_SEVERAL_MAX: u32 = 32;

/// Bounds of releases and completions by task, in ns after the source's nominal arrival.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    /// The latest release of a successor; 0 for a source. `None`: no bound.
    release: Vec<Option<u64>>,
    /// The latest completion.
    end: Vec<Option<u64>>,
    /// Whether units under EDF count with their deadlines.
    by_deadlines: bool,
    /// Whether units of several CPUs count with bounds of their responses.
    by_responses: bool,
    /// Whether completions were looked for.
    ends: bool,
}

impl Carried {
    /// The releases alone, if no task follows another. All tests but `edp` look at nothing else.
    pub(crate) fn releases(system: &System) -> Option<Carried> {
        let count = system.tasks.len();
        let apart = system.tasks.iter().all(|task| task.after.is_empty());
        let (release, end) = (vec![Some(0); count], vec![None; count]);
        apart.then_some(Carried { release, end, by_deadlines: false, by_responses: false, ends: false })
    }

    /// From known wanders of successors. Tasks that are not named do not wander.
    pub(crate) fn known(system: &System, wanders: impl Iterator<Item = (TaskId, u64)>) -> Carried {
        let mut carried = Carried::by_deadlines(system);
        carried.release.fill(Some(0));
        for (task, wander) in wanders {
            if let Some(release) = carried.release.get_mut(task.index()) {
                *release = Some(wander);
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

    /// All that the tests look at in a unit; `ends`: completions are known already.
    fn key(&self, unit: &Unit, strategy: &str, ends: bool) -> UnitKey {
        let of = |task: TaskId| (self.release(task), self.end(task).filter(|_| ends));
        let times = unit.tasks.iter().map(|task| of(task.id)).collect();
        UnitKey::new(unit, strategy, times, self.by_deadlines)
    }

    /// The question that the tests answer for a unit.
    pub(crate) fn question(&self, unit: &Unit, strategy: &str) -> Question {
        let name = if self.ends { unit.scope.clone() } else { format!("{} by releases", unit.scope) };
        let server = unit.served.as_ref().and_then(compositional::Served::server);
        Question { name, key: self.key(unit, strategy, true), early: server.and_then(|server| self.end(server)) }
    }

    /// As long as every task keeps its deadline: deadlines add up along chains.
    pub(crate) fn by_deadlines(system: &System) -> Carried {
        let count = system.tasks.len();
        let (release, end) = (vec![Some(0); count], vec![None; count]);
        let mut carried = Carried { release, end, by_deadlines: true, by_responses: false, ends: true };
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
        Carried::holistic_by(system, units, None)
    }

    /// The same, from what is known of units that did not change.
    pub(crate) fn holistic_by(system: &System, units: &[Unit], mut memo: Option<&mut Memo>) -> Carried {
        let served = units.iter().any(|unit| unit.served.is_some());
        if !served && system.tasks.iter().all(|task| task.after.is_empty()) {
            return Carried::by_deadlines(system);
        }
        let several = units.iter().any(|unit| unit.m > 1) && system.tasks.iter().any(|task| !task.after.is_empty());
        let mut find = |by_deadlines: bool| {
            let followed = several.then(|| Carried::iterate(system, units, (by_deadlines, true), None)).flatten();
            followed.or_else(|| Carried::iterate(system, units, (by_deadlines, false), memo.as_deref_mut()))
        };
        let carried = find(false).unwrap_or_else(|| Carried::nothing(system));
        let unbounded = |unit: &Unit| unit.m == 1 && unit.by_deadline();
        let mut tasks = units.iter().filter(|unit| unbounded(unit)).flat_map(|unit| &unit.tasks);
        if tasks.any(|task| carried.end[task.id.index()].is_none()) {
            return find(true).unwrap_or_else(|| Carried::nothing(system));
        }
        carried
    }

    /// No release of a successor is bounded.
    fn nothing(system: &System) -> Carried {
        let mut carried = Carried::by_deadlines(system);
        for (release, task) in carried.release.iter_mut().zip(&system.tasks) {
            *release = if task.after.is_empty() { Some(0) } else { None };
        }
        carried.end.fill(None);
        carried
    }

    /// `None` where it does not settle.
    fn iterate(
        system: &System,
        units: &[Unit],
        (by_deadlines, by_responses): (bool, bool),
        memo: Option<&mut Memo>,
    ) -> Option<Carried> {
        let mut carried = Carried { by_deadlines, by_responses, ..Carried::by_deadlines(system) };
        let order = topological(system);
        carried.release.fill(Some(0));
        // Without successors units stand apart, and one round is enough.
        let apart = system.tasks.iter().all(|task| task.after.is_empty());
        let mut memo = memo.filter(|_| apart);
        // Otherwise the whole iteration has one work limit. Past it there are no bounds, and the iteration settles.
        let mut analysis = Analysis::default();
        for _ in 0..if by_responses { ROUNDS_OF_SEVERAL_MAX } else { ROUNDS_MAX } {
            for unit in units {
                if apart {
                    analysis.renew();
                }
                let Some(memo) = &mut memo else {
                    carried.complete(unit, &mut analysis);
                    continue;
                };
                let key = carried.key(unit, "", false);
                let ends = memo.ends(&unit.scope, key, || {
                    carried.complete(unit, &mut analysis);
                    unit.tasks.iter().map(|task| carried.end(task.id)).collect()
                });
                for (task, end) in unit.tasks.iter().zip(ends) {
                    carried.end[task.id.index()] = end;
                }
            }
            let mut settled = true;
            for id in &order {
                let release = carried.latest(&system.tasks[id.index()].after);
                settled &= release == carried.release[id.index()];
                carried.release[id.index()] = release;
            }
            if settled {
                return Some(carried);
            }
        }
        None
    }

    /// Bounds the completions of one unit's tasks under the releases known so far.
    fn complete(&mut self, unit: &Unit, analysis: &mut Analysis) {
        if let Some(served) = &unit.served {
            let analysed = self.analyses(unit);
            let bounds = served.supply.as_ref().ok().map(|supply| compositional::responses(unit, self, supply));
            let wide = served.given().is_ok();
            for (i, task) in unit.tasks.iter().enumerate() {
                let kept = self.release[task.id.index()].and_then(|release| release.checked_add(task.d));
                let analysed = |bounds: &Vec<_>| if analysed { bounds[i] } else { kept };
                self.end[task.id.index()] = bounds.as_ref().map_or(kept.filter(|_| wide), analysed);
            }
            return;
        }
        if self.analyses(unit) {
            for (task, response) in unit.tasks.iter().zip(responses(unit, analysis, self)) {
                self.end[task.id.index()] = response.map(|response| response.from_source);
            }
            return;
        }
        let bounds = if self.by_responses { responses_of_several(unit, self) } else { None };
        for (i, task) in unit.tasks.iter().enumerate() {
            let bound = bounds.as_ref().and_then(|bounds| bounds[i]);
            let within = bound.map_or(task.d, |bound| bound.min(task.d));
            let release = self.release[task.id.index()];
            self.end[task.id.index()] = release.and_then(|release| release.checked_add(within));
        }
    }

    /// Whether the responses of a unit are analysed, not assumed to keep deadlines.
    fn analyses(&self, unit: &Unit) -> bool {
        if let Some(served) = &unit.served {
            return served.supply.is_ok() && !unit.by_deadline();
        }
        if unit.fluid || matches!(unit.ordinary, Some(Ordinary::Share { .. })) {
            return false;
        }
        unit.m == 1 && !(self.by_deadlines && unit.by_deadline())
    }

    /// The latest completion among these; 0 for none.
    fn latest(&self, tasks: &[TaskId]) -> Option<u64> {
        tasks.iter().map(|task| self.end[task.index()]).try_fold(0, |latest, end| Some(latest.max(end?)))
    }
}

/// Bounds the responses of a unit of one CPU, in the order of its tasks. `None`: no bound exists, a
/// task of the same level has no bounded release, or such a task may be demoted. The late jobs of a
/// demoted task wait below all levels, and its later jobs come in a burst.
pub(crate) fn responses(unit: &Unit, analysis: &mut Analysis, carried: &Carried) -> Vec<Option<Response>> {
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
    let thefts = thefts(unit, &known);
    let mut bounds = Vec::new();
    analysis.responses(&Levels { levels: &levels, tasks: &known, thefts: &thefts }, &mut bounds);
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
pub(crate) fn worst(unit: &Unit, i: usize, carried: &Carried) -> Option<(Worst, Vec<Theft>)> {
    let level = unit.tasks.get(i)?.level;
    let before: Vec<usize> = (0..unit.tasks.len()).filter(|k| unit.tasks[*k].level <= level).collect();
    let tasks: Vec<LevelTask> =
        before.iter().map(|k| level_task(unit, &unit.tasks[*k], carried)).collect::<Option<_>>()?;
    let levels: Vec<Level> =
        unit.levels.iter().map(|level| Level { order: order(level.order), preemptive: level.preemptive }).collect();
    let thefts = thefts(unit, &tasks);
    let set = Levels { levels: &levels, tasks: &tasks, thefts: &thefts };
    let mut worst = Analysis::default().worst(&set, before.iter().position(|k| *k == i)?)?;
    let mut jobs = vec![0; unit.tasks.len()];
    for (k, count) in before.iter().zip(&worst.jobs) {
        jobs[*k] = *count;
    }
    worst.jobs = jobs;
    Some((worst, thefts))
}

fn order(order: Order) -> LevelOrder {
    match order {
        Order::Fifo => LevelOrder::Fifo,
        Order::Deadline => LevelOrder::Deadline,
        Order::Laxity => LevelOrder::Laxity,
    }
}

fn level_task(unit: &Unit, task: &UnitTask, carried: &Carried) -> Option<LevelTask> {
    Some(LevelTask {
        c: unit.charged(task)?,
        wcet: task.c,
        t: task.t,
        d: task.d,
        shift: task.shift,
        j: task.j,
        wander: carried.release(task.id)?,
        b: task.b,
        level: task.level,
    })
}

/// CPU time besides jobs: the tick, and the switches of a preemptive laxity level. There laxities
/// are compared at any release, at each point of the quantum's grid and at a late job's end. A
/// comparison can take the CPU from a job and give it to a job other than the released one.
/// [`Unit::charged`] does not count this resumption.
fn thefts(unit: &Unit, tasks: &[LevelTask]) -> Vec<Theft> {
    let mut thefts: Vec<Theft> =
        unit.thefts().map(|theft| Theft { c: theft.c, t: theft.t, wander: 0, level: 0 }).collect();
    if let Some(Ordinary::Above { amount, period }) = unit.ordinary {
        thefts.push(Theft { c: amount, t: period, wander: period.saturating_sub(amount), level: 0 });
    }
    let switch = unit.costs.map_or(0, |costs| costs.switch.as_ns());
    let contended = |(level, here): (&PlanLevel, u32)| level.order == Order::Laxity && level.preemptive && here > 1;
    let first = unit.levels.iter().zip(unit.tasks_by_level()).position(contended);
    let Some(level) = first.filter(|_| switch > 0).map(|level| level as u32) else { return thefts };
    let ends = 1 + usize::from(!unit.levels.iter().all(PlanLevel::continues));
    for task in tasks {
        let wander = task.wander.saturating_add(task.j);
        thefts.extend(std::iter::repeat_n(Theft { c: switch, t: task.t, wander, level }, ends));
    }
    thefts.extend(unit.laxity_quantum.map(|t| Theft { c: switch, t, wander: 0, level }));
    thefts
}

/// By task: whether its verdict rests on a release bound that was derived from unproven deadlines.
/// `answers` are the answers of the units.
///
/// A unit without response-time analysis carries its tasks' deadlines along the chains. If the unit
/// is not proven, these deadlines may be missed. Then the releases of the successors have no bound,
/// nor has any job that the successors delay.
pub(crate) fn unproven(system: &System, units: &[Unit], answers: &[Answer], carried: &Carried) -> Vec<bool> {
    let mut late = vec![false; system.tasks.len()];
    let mut shaky = vec![false; system.tasks.len()];
    loop {
        let mut changed = false;
        for (unit, answer) in units.iter().zip(answers) {
            let wanders = |task: &&UnitTask| system.tasks[task.id.index()].after.iter().any(|id| late[id.index()]);
            // The most important level at which a release may come later than assumed.
            let from = unit.tasks.iter().filter(wanders).map(|task| task.level).min();
            for task in &unit.tasks {
                let served = carried.analyses(unit);
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
