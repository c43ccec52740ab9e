//! Records a run: from the threads' stamps alone, or from stamps and the kernel's account together.

use std::sync::atomic::Ordering;

use takt_linux::{Class, clock};
use takt_log::Sink;
use takt_model::{Span, TaskId, Time};
use takt_trace::merge::{ManagedMerge, Merge, Stamped, Watched};

use crate::kernel::{Kernel, Outcome};
use crate::lanes::{Lane, Role, Shared};
use crate::manager::{ManagedAccount, ManagedSummary, Passes};
use crate::record::{LaneTask, Plain, Recorder};

/// Takes stamps and kernel events, and passes on the merged events.
pub(crate) enum Account<'a, S> {
    Stamps(Recorder<'a, Plain<'a, S>>),
    Both {
        recorder: Box<Recorder<'a, Merge>>,
        kernel: Box<Kernel>,
        sink: &'a mut S,
    },
    /// The managers' lanes begin at `first`.
    Managed {
        account: Box<ManagedAccount<'a, &'a mut S>>,
        first: usize,
    },
    ManagedBoth {
        account: Box<ManagedAccount<'a, ManagedMerge>>,
        first: usize,
        kernel: Box<Kernel>,
        sink: &'a mut S,
    },
}

/// The outcome of recording.
pub(crate) struct AccountSummary {
    /// Records that found a full ring.
    pub(crate) lost: u64,
    pub(crate) last: Time,
    /// Comparison of the stamps with the kernel's account, by lane.
    pub(crate) stamped: Vec<Stamped>,
    pub(crate) kernel: Option<Outcome>,
    /// The decisions of managers.
    pub(crate) passes: Vec<Passes>,
}

impl<'a, S: Sink> Account<'a, S> {
    /// `lane_tasks` stands in the order of the lanes; `kernel` watches their threads already.
    pub(crate) fn new(
        sink: &'a mut S,
        stream: u32,
        cpus: &'a [u32],
        lanes: &[Lane],
        lane_tasks: Vec<LaneTask<'a>>,
        kernel: Option<Kernel>,
    ) -> Self {
        match kernel {
            None => Account::Stamps(Recorder::new(Plain { sink, stream }, cpus, lanes, lane_tasks)),
            Some(kernel) => {
                let budget = |lane: &Lane| match lane.class {
                    Class::Deadline(reserved) => Some(reserved.runtime),
                    _ => None,
                };
                let merged = Merge::of_tasks(stream, lanes.iter().map(budget));
                let recorder = Box::new(Recorder::new(merged, cpus, lanes, lane_tasks));
                Account::Both { recorder, kernel: Box::new(kernel), sink }
            }
        }
    }

    /// `lanes` are those of a run under managers, whose own lanes begin at `first`.
    /// `kernel` watches all their threads already.
    pub(crate) fn managed(
        sink: &'a mut S,
        stream: u32,
        shared: &'a Shared,
        first: usize,
        kernel: Option<Kernel>,
    ) -> Self {
        let lanes = &shared.lanes;
        let managers = lanes.iter().filter(|lane| matches!(lane.role, Role::Manager(_))).count();
        let Some(kernel) = kernel else {
            let account = Box::new(ManagedAccount::new(sink, stream, shared, managers));
            return Account::Managed { account, first };
        };
        let merge = ManagedMerge::new(stream, lanes.iter().map(|lane| tasks_of(lane, lanes)));
        let account = Box::new(ManagedAccount::new(merge, stream, shared, managers));
        Account::ManagedBoth { account, first, kernel: Box::new(kernel), sink }
    }

    /// The p99 of a manager's decision and of its lateness so far.
    pub(crate) fn costs(&self) -> Option<(Span, Span)> {
        if let Account::Managed { account, .. } = self { account.costs() } else { None }
    }

    /// Waits for at most `timeout`, and emits the certain events; the run ends at `end`.
    pub(crate) fn look(&mut self, timeout: Span, lanes: &[Lane], end: Time) {
        match self {
            Account::Stamps(recorder) => {
                clock::pause(timeout);
                recorder.drain(lanes, end);
            }
            Account::Managed { account, first } => {
                clock::pause(timeout);
                account.drain(lanes.iter().skip(*first));
            }
            Account::ManagedBoth { account, first, kernel, sink } => {
                let seen = kernel.look(timeout, account.out());
                let decided = account.drain(lanes.iter().skip(*first));
                let merge = account.out();
                merge.until(decided.min(end));
                merge.advance(seen, end, *sink);
            }
            Account::Both { recorder, kernel, sink } => {
                let until = kernel.look(timeout, recorder.out());
                recorder.drain(lanes, end);
                recorder.out().advance(until, end, *sink);
            }
        }
    }

    /// Ends the account after all threads have ended; the run ended at `end`.
    pub(crate) fn finish(self, lanes: &[Lane], end: Time) -> AccountSummary {
        match self {
            Account::Stamps(recorder) => {
                let (lost, last, _) = recorder.finish(lanes, end);
                AccountSummary { lost, last, stamped: Vec::new(), kernel: None, passes: Vec::new() }
            }
            Account::Managed { account, first } => {
                let (managed, _) = account.finish(lanes.iter().skip(first), end);
                managed_summary(managed, &lanes[..first.min(lanes.len())])
            }
            Account::ManagedBoth { account, first, kernel, sink } => {
                let (managed, mut merge) = account.finish(lanes.iter().skip(first), end);
                let outcome = kernel.finish(end, &mut merge);
                let merged = merge.finish(end.max(managed.last), sink);
                let mut summary = managed_summary(managed, &lanes[..first.min(lanes.len())]);
                summary.kernel = Some(Outcome { missing: merged.missing, switches: merged.switches, ..outcome });
                summary.last = summary.last.max(merged.last);
                summary
            }
            Account::Both { recorder, kernel, sink } => {
                let (lost, last, mut merged) = recorder.finish(lanes, end);
                let outcome = kernel.finish(end, &mut merged);
                let merge = merged.finish(end.max(last), sink);
                let kernel = Some(Outcome { missing: merge.missing, switches: merge.switches, ..outcome });
                let (last, stamped) = (last.max(merge.last), merge.stamped);
                AccountSummary { lost, last, stamped, kernel, passes: Vec::new() }
            }
        }
    }
}

/// The completed jobs of a run under managers go to the lanes of the tasks.
fn managed_summary(managed: ManagedSummary, tasks: &[Lane]) -> AccountSummary {
    let ManagedSummary { lost, last, passes, completed } = managed;
    for lane in tasks {
        lane.completed.store(completed.get(&lane.task).copied().unwrap_or(0), Ordering::Release);
    }
    AccountSummary { lost, last, stamped: Vec::new(), kernel: None, passes }
}

/// The tasks whose jobs the thread of a lane carries out.
fn tasks_of(lane: &Lane, lanes: &[Lane]) -> Vec<TaskId> {
    match &lane.role {
        Role::Table | Role::Foreign(_) | Role::Served | Role::IdleDetector(_) | Role::Look(_) | Role::Sender(_) => {
            Vec::new()
        }
        Role::Own | Role::Managed(_) => vec![lane.task],
        Role::Manager(manager) => {
            let slots = manager.lanes.iter().filter_map(|lane| lanes.get(*lane));
            slots.filter(|lane| matches!(lane.role, Role::Table)).map(|lane| lane.task).collect()
        }
    }
}

/// The running threads of these lanes.
pub(crate) fn watched(lanes: &[Lane]) -> Vec<Watched> {
    let id = |lane: &Lane| u32::try_from(lane.tid.load(Ordering::Acquire)).ok().filter(|id| *id > 0);
    let reserved = |lane: &Lane| matches!(lane.class, Class::Deadline(_));
    let watched = |(index, lane)| Some(Watched { id: id(lane)?, lane: index, reserved: reserved(lane) });
    lanes.iter().enumerate().filter_map(watched).collect()
}
