//! Facts about a CPU's jobs, recorded under its lock. The module [fact_log](super::fact_log) makes a log of
//! them.

use takt_log::CancelCause;
use takt_model::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    Release {
        arrival: Time,
        origin: Time,
    },
    Start {
        seat: u32,
    },
    Complete,
    Cancel(CancelCause),
    /// A switch of plans, and the most important seat with a waiting job after it.
    Mode {
        plan: u32,
        next: u32,
    },
    /// A thread of this seat found nothing to do. `next` is the most important seat with a waiting
    /// job, or [`LEVELS_MAX`](super::core::LEVELS_MAX).
    Idle {
        seat: u32,
        next: u32,
    },
    /// A started job moves to another seat. `next` is as in [`Fact::Idle`]; `None` if more such
    /// facts follow at once.
    Seat {
        seat: u32,
        next: Option<u32>,
    },
}

/// A fact with its time and its job. A mode's fact has no job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimedFact {
    pub(crate) at: Time,
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) fact: Fact,
}

pub(crate) trait FactSink {
    fn record(&mut self, fact: TimedFact);
}
