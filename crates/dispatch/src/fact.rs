//! What a CPU of a dispatcher tells of its jobs, under its lock: facts, of which [told](super::told) makes a log.

use takt_log::CancelCause;
use takt_model::Time;

/// A fact for the log.
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
    /// Another plan holds; the most important seat for which a job waits then.
    Mode {
        plan: u32,
        next: u32,
    },
    /// A thread of this seat found nothing to do; the most important seat for which a job waits, [`LEVELS_MAX`](super::core::LEVELS_MAX) where none does.
    Idle {
        seat: u32,
        next: u32,
    },
    /// A started job has another seat from now on. `next` as of [`Fact::Idle`]; nothing where more such facts follow at once.
    Seat {
        seat: u32,
        next: Option<u32>,
    },
}

/// A fact, when it was so, and of which job; that of a mode is of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) at: Time,
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) fact: Fact,
}

/// Who is told all that happens.
pub(crate) trait Tell {
    fn tell(&mut self, told: Told);
}
