//! Handlers and their jobs.

use std::sync::atomic::Ordering;

use takt_linux::Epoch;
use takt_model::{Span, Time};

use super::cpu_state::Running;
use crate::core::Upcall;

/// The code of an operation, called for each job.
pub(crate) type Handler = Box<dyn FnMut(&Job<'_>) + Send>;

/// The job that a handler is called for.
pub struct Job<'a> {
    pub(super) operation: &'a Running,
    pub(super) upcall: Upcall,
    pub(super) epoch: Epoch,
}

impl Job<'_> {
    /// The operation's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.operation.name
    }

    /// The operation's number, unique in this process: the same as
    /// [`Handle::operation`](super::Handle).
    pub(crate) fn operation(&self) -> u64 {
        self.operation.number
    }

    /// Zero for the operation's first job. Rejected and cancelled jobs have numbers too.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.upcall.number
    }

    /// Its nominal arrival, from the dispatcher's start: the time of the timer, of the push, or of
    /// the last predecessor's end.
    #[must_use]
    pub fn arrival(&self) -> Time {
        self.upcall.arrival
    }

    /// The absolute deadline.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.upcall.deadline
    }

    /// The time since the dispatcher's start.
    #[must_use]
    pub fn now(&self) -> Time {
        self.epoch.now()
    }

    /// A time of its dispatcher as a time of CLOCK_MONOTONIC, which all dispatchers share.
    pub(crate) fn monotonic(&self, time: Time) -> Time {
        self.epoch.monotonic(time)
    }

    /// The time left before the deadline; zero after it.
    #[must_use]
    pub fn time_left(&self) -> Span {
        self.deadline().saturating_since(self.now())
    }

    /// Whether it has executed for longer than its operation's wcet, where that is watched
    /// ([`Operation::overrun`](crate::Operation::overrun)).
    #[must_use]
    pub fn has_overrun(&self) -> bool {
        self.operation.overran_before.load(Ordering::Acquire) > self.number()
    }

    /// Whether the handler must return: the job was dropped at its deadline, has overrun a wcet
    /// that stops it, or the dispatcher stops. A long handler checks this now and then.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        self.operation.stop_before.load(Ordering::Acquire) > self.number()
    }

    /// Whether its deadline has passed.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.now() > self.deadline()
    }
}
