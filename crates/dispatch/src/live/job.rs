//! Operations, their handlers and their jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use takt_linux::Epoch;
use takt_model::{Span, Task, Time};

use crate::core::{Place, Upcall};
use crate::plan::Overrun;
use crate::sync::{AtomicU64, PiMutex};

/// The code of an operation, called for each job.
pub(crate) type Handler = Box<dyn FnMut(&Job<'_>) + Send>;

/// An operation as the threads see it.
pub(crate) struct Running {
    /// By plan; `None` for a plan in which it takes no part.
    pub(crate) tasks: Vec<Option<Arc<Task>>>,
    pub(crate) name: String,
    /// Unique among the operations of this process.
    pub(crate) number: u64,
    pub(crate) followers: Vec<Place>,
    pub(crate) handler: PiMutex<Handler>,
    /// The message of its handler's first panic.
    pub(crate) panic: PiMutex<Option<String>>,
    /// Jobs before this number were dropped and must stop.
    pub(crate) stop_before: AtomicU64,
    /// The rule for overruns and the wcet, if these are watched.
    pub(crate) watched: Option<(Overrun, Span)>,
    /// The number of overruns, and the number after the last such job.
    pub(crate) overran: AtomicU64,
    pub(crate) overran_before: AtomicU64,
}

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
