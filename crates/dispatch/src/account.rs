//! The log of a dispatcher: its own account alone, or merged with the kernel's.

use std::collections::BTreeMap;

use takt_linux::Epoch;
use takt_linux::thread::Tid;
use takt_linux::tracing::RecorderError;
use takt_log::causes::{Causes, Importance, Late, Rules, TaskRule};
use takt_log::{Definitions, KindSet, Sink};
use takt_model::plan::Order;
use takt_model::{TaskId, Time};

use super::fact_log::Merger;
use super::plan::Plan;

/// A thread of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanThread {
    /// The kernel's number of it.
    pub tid: Tid,
    /// Its model CPU.
    pub cpu: u32,
    /// Whether it runs jobs. The others keep time.
    pub works: bool,
}

/// How many events the kernel's account of a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Events that were read.
    pub events: u64,
    /// Events that the kernel lost because its buffers were full. The log has a `Lost` at each
    /// place.
    pub lost: u64,
    /// Switches that the kernel must have made and did not record. The log has a `Lost` at each
    /// place.
    pub missing: u64,
}

/// How the kernel's account ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelEnd {
    /// Its events.
    pub recorded: Recorded,
    /// Why it could not be read to the end.
    pub failed: Option<RecorderError>,
    /// The time of the last event.
    pub last: Time,
    /// Why jobs were late, by task.
    pub late: Option<BTreeMap<TaskId, Late>>,
}

/// Tells a sink what the dispatcher itself knows, and returns a time. While the dispatcher runs,
/// all events before that time have been told. At the end it is the time of the last event.
pub type OwnAccount<'a> = dyn FnMut(&mut dyn Sink) -> Time + 'a;

/// The kernel's account of a dispatcher's threads, which makes one log of both accounts. The crate
/// `takt-run` has one that records through tracefs.
pub trait KernelAccount: Send + Sync {
    /// Which kinds of event the log of both accounts has.
    fn kinds(&self) -> KindSet;

    /// Records these threads from now on. Model CPU i is the i-th of `cpus`. `ordinary` threads
    /// have no real-time priorities.
    ///
    /// # Errors
    /// The kernel cannot be recorded.
    fn watch(&mut self, plan: &Plan, threads: &[PlanThread], cpus: &[u32], ordinary: bool)
    -> Result<(), RecorderError>;

    /// Sets time zero.
    fn begin(&mut self, epoch: Epoch);

    /// Reads both accounts and tells `sink` what is certain by now.
    fn drain(&mut self, own: &mut OwnAccount<'_>, sink: &mut dyn Sink);

    /// Reads the rest of both accounts and tells it. All threads are through, or stuck, and the run
    /// ended at `end`.
    fn finish(self: Box<Self>, end: Time, own: &mut OwnAccount<'_>, sink: &mut dyn Sink) -> KernelEnd;
}

/// The accounts of a dispatcher that runs.
pub(super) struct Account {
    merger: Merger,
    kernel: Option<Box<dyn KernelAccount>>,
}

/// How both accounts ended.
pub(super) struct AccountsEnd {
    /// Facts that found a full buffer.
    pub(super) lost: u64,
    /// The time of the last event.
    pub(super) last: Time,
    pub(super) kernel: Option<KernelEnd>,
}

impl Account {
    pub(super) fn new(merger: Merger, kernel: Option<Box<dyn KernelAccount>>) -> Account {
        Account { merger, kernel }
    }

    /// Records the kernel's account of these threads on these CPUs, where there is one.
    pub(super) fn watch(
        &mut self,
        plan: &Plan,
        threads: &[PlanThread],
        cpus: &[u32],
        ordinary: bool,
    ) -> Result<(), RecorderError> {
        self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.watch(plan, threads, cpus, ordinary))
    }

    /// Sets time zero.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        if let Some(kernel) = &mut self.kernel {
            kernel.begin(epoch);
        }
    }

    /// Tells what is certain by now. The dispatcher tells nothing of a CPU from before its `floor`.
    pub(super) fn drain(&mut self, floor: impl Fn(usize) -> Time, mut sink: &mut (impl Sink + ?Sized)) {
        match &mut self.kernel {
            None => drop(self.merger.drain(floor, sink)),
            Some(kernel) => kernel.drain(&mut |own| self.merger.drain(&floor, own), &mut sink),
        }
    }

    /// Tells the rest. All threads are through, or stuck, and the run ended at `end`.
    pub(super) fn finish(self, end: Time, mut sink: &mut (impl Sink + ?Sized)) -> AccountsEnd {
        let Account { merger, kernel } = self;
        let Some(kernel) = kernel else {
            let (lost, last) = merger.finish(end, sink);
            return AccountsEnd { lost, last, kernel: None };
        };
        let (mut merger, mut lost, mut last) = (Some(merger), 0, Time::ZERO);
        let mut own = |both: &mut dyn Sink| {
            if let Some(merger) = merger.take() {
                (lost, last) = merger.finish(end, both);
            }
            last
        };
        let kernel = kernel.finish(end, &mut own, &mut sink);
        AccountsEnd { lost, last: last.max(kernel.last), kernel: Some(kernel) }
    }
}

/// Finds out from both accounts why jobs of a plan were late. `ordinary` threads have no real-time
/// priorities.
#[must_use]
pub fn causes(plan: &Plan, ordinary: bool) -> Causes {
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
        let (cpu, wcet, jitter, after) = (Some(row.cpu), Some(task.wcet), task.jitter, task.after.clone());
        tasks.insert(row.task, TaskRule { cpu, wcet, jitter, after, servers: Vec::new(), importances });
    }
    Causes::new(Rules::live(tasks, ordinary), &Definitions::of(&plan.system))
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
