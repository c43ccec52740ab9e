//! The options of a dispatcher.

use takt_model::Span;

/// How a dispatcher runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Run under SCHED_OTHER, without privilege and without any guarantee. Default: no, and a
    /// missing privilege is an error.
    pub best_effort: bool,
    /// Timers release no job at or after this. Default: none.
    pub duration: Option<Span>,
    /// The seed for jitter and distances of a plan from a System file. Default 0.
    pub seed: u64,
    /// Whether timers draw the arrivals of sporadic operations. Default: no, the program pushes
    /// them.
    pub draws_sporadic: bool,
    /// Whether the plan's modes begin at their times. Default: no, the program switches
    /// ([`Dispatching::switch`](super::Dispatching::switch)).
    pub timed_modes: bool,
    /// Facts that each CPU keeps between two calls of [`Dispatching::drain`](super::Dispatching::drain); further facts are
    /// lost and counted. Limited to 2 to 2^24. Default 65,536.
    pub records: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            best_effort: false,
            duration: None,
            seed: 0,
            draws_sporadic: false,
            timed_modes: false,
            records: 1 << 16,
        }
    }
}
