//! One operation: its jobs, their outcomes, and its releases.

use std::collections::VecDeque;

use takt_model::{Arrival, Span, Task, Time};
use takt_policy::Link;

/// A job of a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instance {
    pub(super) number: u64,
    /// Its nominal arrival.
    pub(super) arrival: Time,
    pub(super) release: Time,
    pub(super) deadline: Time,
    /// The earliest nominal arrival of the source jobs of its chain; its own arrival if it follows
    /// none.
    pub(super) origin: Time,
}

/// The job in an operation's slot. The slot has the times of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Current {
    pub(super) number: u64,
    /// As [`Instance::origin`].
    pub(super) origin: Time,
}

/// The outcomes of an operation's jobs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Jobs released: completed + cancelled + rejected + unfinished.
    pub released: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Completed jobs that ended after their deadline.
    pub late: u64,
    /// Jobs omitted, or shed with a predecessor.
    pub cancelled: u64,
    /// Jobs not queued, because too many jobs of the operation waited or ran, or waited for a
    /// predecessor.
    pub rejected: u64,
    /// Jobs dropped at their deadline; counted as unfinished.
    pub dropped: u64,
    /// Jobs whose code panicked, or that were told to stop at an overrun; counted as unfinished.
    pub failed: u64,
    /// Deadlines not met so far: `late`, `cancelled`, `rejected`, `dropped` and `failed` together,
    /// and the jobs that wait or run past their deadlines. In terms of
    /// docs/reference/statistics.md: missed, cancelled and rejected.
    pub unmet: u64,
    /// Jobs that have executed for longer than the wcet, if overruns are watched. Their end does
    /// not matter.
    pub overran: u64,
}

impl Counts {
    /// Jobs that wait or run, and jobs dropped or failed.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.released.saturating_sub(self.completed + self.cancelled + self.rejected)
    }
}

/// The cause of an operation's releases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Timer,
    /// The program.
    Push,
    /// The ends of the predecessors' jobs.
    Jobs,
}

/// The data that each job of an operation touches: two cache lines. With many operations in turn,
/// cache misses are the cost.
#[repr(align(64))]
pub(super) struct Operation {
    /// The job in its slot of `levels`.
    pub(super) current: Option<Current>,
    pub(super) deadline: Span,
    /// The least distance of pushed jobs, by the current plan.
    pub(super) distance: Span,
    pub(super) last_arrival: Option<Time>,
    /// The number of the next job, and so the number of jobs so far.
    pub(super) next: u64,
    pub(super) completed: u64,
    pub(super) late: u64,
    /// Jobs that wait for the slot.
    pub(super) waits: u32,
    pub(super) backlog_max: u32,
    pub(super) after: After,
    /// Whether it takes part in the current plan.
    pub(super) takes_part: bool,
    /// Whether it has followers on this CPU, and on other CPUs.
    pub(super) followed: bool,
    pub(super) followed_elsewhere: bool,
    pub(super) rest: Box<Rest>,
}

/// The data that few jobs of an operation touch.
pub(super) struct Rest {
    /// The least distance and the participation, by plan.
    pub(super) distances: Vec<(Span, bool)>,
    pub(super) waiting: VecDeque<Instance>,
    /// The chain state of an operation that comes after others.
    pub(super) link: Option<Link>,
    /// Its followers on this CPU, by slot.
    pub(super) followers: Vec<u32>,
    pub(super) cancelled: u64,
    pub(super) rejected: u64,
    pub(super) dropped: u64,
    pub(super) failed: u64,
}

/// The least distance under a plan, and whether the operation takes part in the plan.
pub(super) fn distance(distances: &[(Span, bool)], plan: usize) -> (Span, bool) {
    distances.get(plan).copied().unwrap_or((Span::ZERO, true))
}

impl Operation {
    /// An operation without jobs. `distances` gives the least distance and the participation by
    /// plan, `followers` the slots of its followers on this CPU, and `backlog_max` the most jobs at
    /// once. A predecessor may be `ahead` jobs in front of another one.
    pub(super) fn new(
        task: &Task,
        distances: Vec<(Span, bool)>,
        plan: usize,
        followers: Vec<u32>,
        followed_elsewhere: bool,
        backlog_max: u32,
        ahead: usize,
    ) -> Operation {
        let (least, takes_part) = distance(&distances, plan);
        let predecessors = task.after.len() as u32;
        Operation {
            current: None,
            deadline: task.deadline,
            distance: least,
            last_arrival: None,
            next: 0,
            completed: 0,
            late: 0,
            waits: 0,
            backlog_max,
            after: match predecessors {
                0 if task.arrival == Arrival::Sporadic => After::Push,
                0 => After::Timer,
                _ => After::Jobs,
            },
            takes_part,
            followed: !followers.is_empty(),
            followed_elsewhere,
            rest: Box::new(Rest {
                distances,
                waiting: VecDeque::with_capacity(backlog_max as usize),
                link: (predecessors > 0).then(|| Link::bounded(predecessors, ahead)),
                followers,
                cancelled: 0,
                rejected: 0,
                dropped: 0,
                failed: 0,
            }),
        }
    }

    /// The number of the arriving job.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Jobs that wait or run.
    #[inline]
    pub(super) fn present(&self) -> u32 {
        self.waits + u32::from(self.current.is_some())
    }

    /// The outcomes until `now`. `deadline` is that of the current job, if there is one.
    pub(super) fn counts(&self, deadline: Option<Time>, now: Time) -> Counts {
        let Rest { cancelled, rejected, dropped, failed, .. } = *self.rest;
        let Operation { next: released, completed, late, .. } = *self;
        let deadlines = deadline.into_iter().chain(self.rest.waiting.iter().map(|job| job.deadline));
        let overdue = deadlines.filter(|deadline| *deadline < now).count() as u64;
        let unmet = late + cancelled + rejected + dropped + failed + overdue;
        Counts { released, completed, late, cancelled, rejected, dropped, failed, unmet, overran: 0 }
    }
}
