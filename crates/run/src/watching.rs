//! Merges the kernel's account of a dispatcher's threads with the dispatcher's own log.

use takt_dispatch::{Dispatcher, KINDS, KernelAccount, KernelEnd, OwnAccount, Plan, PlanThread, Recorded, causes};
use takt_linux::Epoch;
use takt_linux::tracing::{Guard, RecorderError};
use takt_log::causes::Causes;
use takt_log::{Kind, KindSet, Sink};
use takt_model::{Span, Time};
use takt_trace::merge::{Merge, Watched, Worker};

use crate::TraceError;
use crate::kernel::{Kernel, buffer};

/// Kinds of events that both accounts contain.
pub(crate) const RECORDED_KINDS: KindSet =
    KINDS.with(Kind::Block).with(Kind::Wake).with(Kind::Occupy).with(Kind::Steal);
/// Kernel events of one job: wake-ups and switches of the timer's thread, of the job's own thread,
/// and of the preempted threads.
pub(crate) const EVENTS_PER_JOB: u64 = 10;

/// A dispatcher that also records the kernel's account of its threads, through a trace instance of its
/// own. The instance is removed at the stop. It takes root.
///
/// Preemptions in the log are then the kernel's, with blocks and wake-ups, and
/// [`Stopped::late`](takt_dispatch::Stopped::late) says why jobs were late. Each job pays some
/// microseconds for it. Call [`Dispatching::drain`](takt_dispatch::Dispatching::drain) some times a
/// second: the kernel has room for what the jobs of at most four seconds make.
///
/// `guardian` says whether the program has called [`takt_linux::guardian::guardian`] first of all. Then a
/// child process removes the instance when the program is killed. Otherwise the next recording does.
///
/// # Errors
/// The kernel cannot be recorded. Nothing of the machine has changed then. The dispatcher is gone, with
/// its handlers.
pub fn recorded(dispatcher: Dispatcher, guardian: bool) -> Result<Dispatcher, TraceError> {
    let guard = if guardian { Guard::ThisProgram } else { Guard::NextStart };
    let kernel = Kernel::open(buffer(&dispatcher.plan().tasks(), EVENTS_PER_JOB), guard)?;
    Ok(dispatcher.watched_by(Box::new(Watching::new(kernel))))
}

/// The kernel's account, and the log merged from both.
pub(crate) struct Watching {
    kernel: Kernel,
    merged: Merge,
    causes: Option<Causes>,
}

impl Watching {
    pub(crate) fn new(kernel: Kernel) -> Watching {
        Watching { kernel, merged: Merge::of_workers(0, Vec::new()), causes: None }
    }
}

impl KernelAccount for Watching {
    fn kinds(&self) -> KindSet {
        RECORDED_KINDS
    }

    fn watch(
        &mut self,
        plan: &Plan,
        threads: &[PlanThread],
        cpus: &[u32],
        ordinary: bool,
    ) -> Result<(), RecorderError> {
        let lanes = threads.iter().map(|thread| Worker { cpu: thread.cpu, works: thread.works });
        let ids =
            threads.iter().zip(0..).filter_map(|(thread, lane)| Some((u32::try_from(thread.tid.get()).ok()?, lane)));
        self.kernel.watch(ids.map(|(id, lane)| Watched { id, lane, reserved: false }).collect(), cpus)?;
        self.merged = Merge::of_workers(plan.node.0, lanes);
        self.causes = Some(causes(plan, ordinary));
        Ok(())
    }

    fn begin(&mut self, epoch: Epoch) {
        self.kernel.begin(epoch);
    }

    fn drain(&mut self, own: &mut OwnAccount<'_>, mut sink: &mut dyn Sink) {
        let seen = self.kernel.look(Span::ZERO, &mut self.merged);
        let told = own(&mut self.merged);
        self.merged.until(told);
        match &mut self.causes {
            Some(causes) => self.merged.advance(seen, Time::MAX, &mut (&mut sink, causes)),
            None => self.merged.advance(seen, Time::MAX, &mut sink),
        }
    }

    fn finish(self: Box<Self>, end: Time, own: &mut OwnAccount<'_>, mut sink: &mut dyn Sink) -> KernelEnd {
        let Watching { kernel, mut merged, causes } = *self;
        let last = own(&mut merged);
        let outcome = kernel.finish(end, &mut merged);
        let end = end.max(last);
        let mut causes = causes;
        let told = match &mut causes {
            Some(causes) => merged.finish(end, &mut (&mut sink, causes)),
            None => merged.finish(end, &mut sink),
        };
        let recorded = Recorded { missing: told.missing, ..outcome.recorded() };
        let late = causes.and_then(|causes| causes.finish(end));
        KernelEnd { recorded, failed: outcome.failed, last: told.last, late }
    }
}
