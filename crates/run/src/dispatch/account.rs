//! What is told of a dispatcher that runs: its own account alone, or made one with the kernel's of its threads.

use std::collections::BTreeMap;

use takt_linux::Epoch;
use takt_linux::thread::Tid;
use takt_log::causes::{Causes, Importance, Late, Rules, TaskRule};
use takt_log::{Definitions, Sink};
use takt_model::plan::Order;
use takt_model::{Span, TaskId, Time};
use takt_trace::merge::{Merge, Watched, Worker};

use super::plan::Plan;
use super::told::Merger;
use crate::kernel::{Kernel, Outcome, TraceError};

/// Takes what there is to take, and tells it.
pub(super) struct Account {
    merger: Merger,
    seen: Option<Box<Watching>>,
}

/// The kernel is recorded, too.
struct Watching {
    kernel: Kernel,
    merged: Merge,
    causes: Causes,
}

/// What came of it.
pub(super) struct Told {
    /// Facts that found a full buffer.
    pub(super) lost: u64,
    /// The last event's time.
    pub(super) last: Time,
    pub(super) kernel: Option<Outcome>,
    /// By task, of those that had late jobs; nothing where the kernel was not recorded.
    pub(super) late: Option<BTreeMap<TaskId, Late>>,
}

impl Account {
    pub(super) fn new(merger: Merger) -> Account {
        Account { merger, seen: None }
    }

    /// The kernel is recorded, too, of these threads on these CPUs; whether they are `ordinary`, without real-time priorities.
    pub(super) fn watch(
        &mut self,
        mut kernel: Kernel,
        plan: &Plan,
        threads: Vec<(Tid, Worker)>,
        cpus: &[u32],
        ordinary: bool,
    ) -> Result<(), TraceError> {
        let (tids, lanes): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        let ids = tids.iter().zip(0..).filter_map(|(tid, lane)| Some((u32::try_from(tid.get()).ok()?, lane)));
        kernel.watch(ids.map(|(id, lane)| Watched { id, lane, reserved: false }).collect(), cpus)?;
        let merged = merged(plan, lanes);
        self.seen = Some(Box::new(Watching { kernel, merged, causes: causes(plan, ordinary) }));
        Ok(())
    }

    /// When time zero is.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        if let Some(seen) = &mut self.seen {
            seen.kernel.begin(epoch);
        }
    }

    /// Tells what is certain by now; `floor` says of each CPU since when the dispatcher tells nothing older.
    pub(super) fn drain(&mut self, floor: impl Fn(usize) -> Time, sink: &mut (impl Sink + ?Sized)) {
        match self.seen.as_deref_mut() {
            None => drop(self.merger.drain(floor, sink)),
            Some(Watching { kernel, merged, causes }) => {
                let seen = kernel.look(Span::ZERO, merged);
                let told = self.merger.drain(floor, merged);
                merged.until(told);
                merged.advance(seen, Time::MAX, &mut (&mut *sink, causes));
            }
        }
    }

    /// All threads are through, or stuck; the end came at `end`.
    pub(super) fn finish(self, end: Time, sink: &mut (impl Sink + ?Sized)) -> Told {
        let Some(seen) = self.seen else {
            let (lost, last) = self.merger.finish(end, sink);
            return Told { lost, last, kernel: None, late: None };
        };
        let Watching { kernel, mut merged, mut causes } = *seen;
        let (lost, last) = self.merger.finish(end, &mut merged);
        let outcome = kernel.finish(&mut merged);
        let end = end.max(last);
        let told = merged.finish(end, &mut (&mut *sink, &mut causes));
        let kernel = Some(Outcome { missing: told.missing, ..outcome });
        Told { lost, last: last.max(told.last), kernel, late: causes.finish(end) }
    }
}

/// Makes one log of what a plan's dispatcher tells and what the kernel sees of these threads.
pub(super) fn merged(plan: &Plan, lanes: Vec<Worker>) -> Merge {
    Merge::of_workers(plan.node.0, lanes)
}

/// Finds out why jobs of a plan were late; whether its threads are `ordinary`, without real-time priorities.
pub(crate) fn causes(plan: &Plan, ordinary: bool) -> Causes {
    let mut tasks = BTreeMap::new();
    for (at, row) in plan.rows.iter().enumerate() {
        let Some(task) = plan.system.tasks.get(row.task.index()) else { continue };
        let importance = |k: usize| {
            let row = plan.rows_in(k)?.get(at)?;
            let nests = plan.preempts(k, row.level) && row.order != Order::Fifo;
            let demotes = row.late == takt_model::Late::Demote;
            Some(Importance {
                level: row.level,
                shift_ns: nests.then_some(row.shift_ns),
                by_laxity: nests && row.order == Order::Laxity,
                demotes,
            })
        };
        let importances = (0..=plan.modes.len()).filter_map(importance).collect();
        let (cpu, wcet, jitter) = (Some(row.cpu), Some(task.wcet), task.jitter);
        tasks.insert(row.task, TaskRule { cpu, wcet, jitter, importances });
    }
    Causes::new(Rules::live(tasks, ordinary), &Definitions::of(&plan.system))
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
