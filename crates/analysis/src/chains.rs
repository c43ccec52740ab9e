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

use takt_model::{Arrival, System, TaskId, chain_name};

use crate::apply::responses_of_several;
use crate::carried::{ChainBounds, topological};
use crate::components;
use crate::fp::levels::Analysis;
use crate::memo::Memo;
use crate::responses::responses;
use crate::scope::{Ordinary, Unit, UnitTask};
use crate::verdict::Answer;

/// Rounds over all units before the iteration gives up.
const ROUNDS_MAX: u32 = 1_000;
/// The same where bounds of several CPUs are followed; then their deadlines count.
const ROUNDS_OF_SEVERAL_MAX: u32 = 32;

impl ChainBounds {
    /// The least fixed point over all units of a node.
    pub(crate) fn holistic(system: &System, units: &[Unit]) -> ChainBounds {
        ChainBounds::holistic_by(system, units, None)
    }

    /// The same, from what is known of units that did not change.
    pub(crate) fn holistic_by(system: &System, units: &[Unit], mut memo: Option<&mut Memo>) -> ChainBounds {
        let served = units.iter().any(|unit| unit.served.is_some());
        if !served && system.tasks.iter().all(|task| task.after.is_empty()) {
            return ChainBounds::by_deadlines(system);
        }
        let several = units.iter().any(|unit| unit.m > 1) && system.tasks.iter().any(|task| !task.after.is_empty());
        let mut find = |by_deadlines: bool| {
            let followed = several.then(|| ChainBounds::iterate(system, units, (by_deadlines, true), None)).flatten();
            followed.or_else(|| ChainBounds::iterate(system, units, (by_deadlines, false), memo.as_deref_mut()))
        };
        let carried = find(false).unwrap_or_else(|| ChainBounds::nothing(system));
        let unbounded = |unit: &Unit| unit.m == 1 && unit.by_deadline();
        let mut tasks = units.iter().filter(|unit| unbounded(unit)).flat_map(|unit| &unit.tasks);
        if tasks.any(|task| carried.end[task.id.index()].is_none()) {
            return find(true).unwrap_or_else(|| ChainBounds::nothing(system));
        }
        carried
    }

    /// No release of a successor is bounded.
    fn nothing(system: &System) -> ChainBounds {
        let mut carried = ChainBounds::by_deadlines(system);
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
    ) -> Option<ChainBounds> {
        let mut carried = ChainBounds { by_deadlines, by_responses, ..ChainBounds::by_deadlines(system) };
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
            let bounds = served.supply.as_ref().ok().map(|supply| components::responses(unit, self, supply));
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
        if unit.has_cbs || matches!(unit.ordinary, Some(Ordinary::Share { .. })) {
            return false;
        }
        unit.m == 1 && !(self.by_deadlines && unit.by_deadline())
    }
}

/// By task: whether its verdict rests on a release bound that was derived from unproven deadlines.
/// `answers` are the answers of the units.
///
/// A unit without response-time analysis carries its tasks' deadlines along the chains. If the unit
/// is not proven, these deadlines may be missed. Then the releases of the successors have no bound,
/// nor has any job that the successors delay.
pub(crate) fn unproven(system: &System, units: &[Unit], answers: &[Answer], carried: &ChainBounds) -> Vec<bool> {
    let mut late = vec![false; system.tasks.len()];
    let mut unfounded = vec![false; system.tasks.len()];
    loop {
        let mut changed = false;
        for (unit, answer) in units.iter().zip(answers) {
            let is_delayed = |task: &&UnitTask| system.tasks[task.id.index()].after.iter().any(|id| late[id.index()]);
            // The most important level at which a release may come later than assumed.
            let from = unit.tasks.iter().filter(is_delayed).map(|task| task.level).min();
            for task in &unit.tasks {
                let served = carried.analyses(unit);
                let rests = from.is_some_and(|from| !served || task.level >= from);
                changed |= rests && !std::mem::replace(&mut unfounded[task.id.index()], true);
                // A bound within a component also rests on the budgets of the servers around it.
                let kept = !rests && (served && unit.served.is_none() || *answer == Answer::Yes);
                changed |= !kept && !std::mem::replace(&mut late[task.id.index()], true);
            }
        }
        if !changed {
            return unfounded;
        }
    }
}

/// The end-to-end bounds of the chains that end in one of these units: (name, bound from the earliest source's nominal
/// arrival), `None` where there is none.
pub(crate) fn end_to_end(system: &System, units: &[Unit], carried: &ChainBounds) -> Vec<(String, Option<u64>)> {
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
