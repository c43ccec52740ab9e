//! The slot of a task: its next job, and the rules of the plan in force.
//!
//! [`Dispatcher`](crate::Dispatcher) assigns the CPUs of a node. [`Levels`](crate::Levels) serves the
//! threads of one CPU. Both keep their jobs in these slots. So the order of jobs, cancellation, late
//! rules and the effect of a switch of plans are each defined once.

use takt_model::plan::{Order, PlanTask};
use takt_model::{Late, PlanLevel, Span, System, Task, Time};

use crate::rank::{Phase, Rank, ordered};

/// A job that is its task's next to run. Tasks are called by *slot*: their position among the node's
/// tasks, in file order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The task's slot.
    pub slot: u32,
    /// When it was released.
    pub release: Time,
    /// Its nominal arrival.
    pub arrival: Time,
    /// Its absolute deadline.
    pub deadline: Time,
}

/// See the module's documentation. It leaves eight bytes of a cache line to its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) release: Time,
    pub(crate) arrival: Time,
    pub(crate) deadline: Time,
    pub(crate) wcet: Span,
    /// Added to the deadline in the order of the level.
    shift_ns: i64,
    pub(crate) level: u32,
    /// Zero if the level does not break ties by importance.
    pub(crate) importance: u32,
    pub(crate) order: Order,
    pub(crate) late: Late,
    /// Whether jobs of the level preempt each other.
    pub(crate) preemptive: bool,
    cancellable: bool,
    /// Whether the job stands below all levels.
    pub(crate) demoted: bool,
    /// Whether the caller has reported that the deadline passed.
    pub(crate) passed: bool,
}

impl Slot {
    /// A slot without a job, before any plan is in force.
    pub(crate) fn new(wcet: Span, cancellable: bool) -> Slot {
        Slot {
            release: Time::ZERO,
            arrival: Time::ZERO,
            deadline: Time::ZERO,
            wcet,
            shift_ns: 0,
            level: 0,
            importance: 0,
            order: Order::Fifo,
            late: Late::Continue,
            preemptive: true,
            cancellable,
            demoted: false,
            passed: false,
        }
    }

    pub(crate) fn of_task(system: &System, task: &Task) -> Slot {
        Slot::new(task.wcet, system.may_cancel(task))
    }

    /// Applies the rules of a plan for its task.
    pub(crate) fn adopt(&mut self, placed: &PlanTask, level: &PlanLevel, importance: u32) {
        (self.level, self.shift_ns, self.late) = (placed.level, placed.shift_ns, placed.late);
        (self.order, self.preemptive) = (level.order, level.preemptive);
        self.importance = if level.importance_ties { importance } else { 0 };
    }

    /// Takes a job that is ready at `now`. Returns false if the job is late and its rule drops late
    /// jobs.
    #[inline(always)]
    pub(crate) fn accept(&mut self, job: &Job, now: Time) -> bool {
        (self.release, self.arrival, self.deadline) = (job.release, job.arrival, job.deadline);
        let late = self.late != Late::Continue && job.deadline <= now;
        (self.demoted, self.passed) = (late && self.late == Late::Demote, false);
        !(late && self.late == Late::Drop)
    }

    /// What the late rule changes for a job whose deadline passes. A started job of a level that is not preemptive
    /// keeps its level.
    pub(crate) fn late_effect(&self, started: bool) -> Late {
        let stays = self.demoted || (started && !self.preemptive);
        if self.late == Late::Demote && stays { Late::Continue } else { self.late }
    }

    /// Applies the late rule to a job whose deadline has passed, and returns what changes. The caller drops the job.
    pub(crate) fn expire(&mut self, started: bool) -> Late {
        let effect = self.late_effect(started);
        self.demoted |= effect == Late::Demote;
        effect
    }

    /// Applies the late rule to a job that another plan rules from `now` on. Returns false if the
    /// job is dropped.
    pub(crate) fn keep_in_switch(&mut self, started: bool, now: Time) -> bool {
        let late = self.deadline <= now;
        self.demoted = late && self.late == Late::Demote && (self.demoted || self.preemptive || !started);
        !(late && self.late == Late::Drop)
    }

    /// Whether a job that has not started is noncritical and cannot meet its deadline.
    #[inline(always)]
    pub(crate) fn is_hopeless(&self, now: Time) -> bool {
        self.cancellable && self.wcet > self.deadline.saturating_since(now)
    }

    /// Orders the job among others of its level. `remaining` gives its WCET minus the CPU time that
    /// it has received.
    #[inline(always)]
    pub(crate) fn key(&self, remaining: impl FnOnce() -> Span) -> u64 {
        let deadline_ns = self.deadline.as_ns() as i64;
        ordered(match self.order {
            Order::Fifo => self.release.as_ns() as i64,
            Order::Deadline => deadline_ns.saturating_add(self.shift_ns),
            Order::Laxity => deadline_ns.saturating_sub(remaining().as_ns() as i64),
        })
    }

    /// The rank of the job with this key in this slot. `below` is how many levels lower it stands
    /// than its own.
    #[inline(always)]
    pub(crate) fn rank(&self, below: u32, phase: Phase, key: u64, slot: u32) -> Rank {
        Rank::new(self.level + below, phase, key, self.importance, self.arrival.as_ns(), slot)
    }
}
