//! What is told of a dispatcher that runs: its own account alone, or made one with the kernel's of its threads.

use std::collections::BTreeMap;

use takt_linux::Epoch;
use takt_linux::thread::Tid;
use takt_log::Sink;
use takt_model::{Span, TaskId, Time};

use super::evidence::{Evidence, Watched};
use super::late::Late;
use super::plan::Plan;
use super::told::Merger;
use crate::kernel::{self, Kernel, Outcome, TraceError};

/// Takes what there is to take, and tells it.
pub(super) struct Account {
    merger: Merger,
    seen: Option<Box<(Kernel, Evidence)>>,
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
        threads: Vec<(Tid, Watched)>,
        cpus: &[u32],
        ordinary: bool,
    ) -> Result<(), TraceError> {
        let (tids, lanes): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        let ids = tids.iter().zip(0..).filter_map(|(tid, lane)| Some((u32::try_from(tid.get()).ok()?, lane)));
        kernel.watch(ids.map(|(id, lane)| kernel::Watched { id, lane, reserved: false }).collect(), cpus)?;
        let evidence = Evidence::new(plan, lanes);
        let evidence = if ordinary { evidence.of_ordinary_threads() } else { evidence };
        self.seen = Some(Box::new((kernel, evidence)));
        Ok(())
    }

    /// When time zero is.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        if let Some(seen) = &mut self.seen {
            seen.0.begin(epoch);
        }
    }

    /// Tells what is certain by now; `floor` says of each CPU since when the dispatcher tells nothing older.
    pub(super) fn drain(&mut self, floor: impl Fn(usize) -> Time, sink: &mut (impl Sink + ?Sized)) {
        match self.seen.as_deref_mut() {
            None => drop(self.merger.drain(floor, sink)),
            Some((kernel, evidence)) => {
                let seen = kernel.look(Span::ZERO, evidence);
                let told = self.merger.drain(floor, evidence);
                evidence.advance(seen.min(told), sink);
            }
        }
    }

    /// All threads are through, or stuck; the end came at `end`.
    pub(super) fn finish(self, end: Time, sink: &mut (impl Sink + ?Sized)) -> Told {
        let Some(seen) = self.seen else {
            let (lost, last) = self.merger.finish(end, sink);
            return Told { lost, last, kernel: None, late: None };
        };
        let (kernel, mut evidence) = *seen;
        let (lost, last) = self.merger.finish(end, &mut evidence);
        let outcome = kernel.finish(&mut evidence);
        let evident = evidence.finish(end.max(last), sink);
        let kernel = Some(Outcome { missing: evident.missing, ..outcome });
        Told { lost, last: last.max(evident.last), kernel, late: Some(evident.late) }
    }
}
