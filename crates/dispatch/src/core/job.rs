//! The values that pass between the core of a CPU, its threads and other cores.

use takt_model::Time;

use crate::error::PushError;

/// The place of an operation: its CPU and its slot there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) slot: u32,
}

/// A job that a level's thread must run to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Upcall {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) arrival: Time,
    pub(crate) release: Time,
    pub(crate) deadline: Time,
}

/// The result of an upcall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The handler returned.
    Completed,
    /// The handler panicked.
    Failed,
}

/// An ended job with followers on other CPUs. Call [`Core::follow`](super::Core::follow) for each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) completed: bool,
    pub(crate) origin: Time,
}

/// Why a job was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejected {
    /// The backlog is full.
    Full,
    /// The least distance from the arrival before is not over until this time.
    TooEarly(Time),
    /// There is no such operation, or a timer or other jobs release it.
    NotYours,
    /// The operation takes no part in the current mode.
    Absent,
}

impl Rejected {
    /// The error for the program that pushed at `now`.
    pub(crate) fn into_error(self, now: Time) -> PushError {
        match self {
            Rejected::Full => PushError::Full,
            Rejected::TooEarly(earliest) => PushError::TooEarly { wait: earliest.saturating_since(now) },
            Rejected::NotYours => PushError::NotPushed,
            Rejected::Absent => PushError::Absent,
        }
    }
}
