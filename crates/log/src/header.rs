//! The header of a log: how it was made.

use takt_model::named;

use crate::kind::KindSet;

/// The first record of a log. It names neither a host nor a date: the same System and seed give the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The canonical System (TOML); empty where there is none (a recording of an unknown system).
    pub system: String,
    /// The seed of all randomness, where there is any.
    pub seed: Option<u64>,
    /// The back end that made the log.
    pub back_end: BackEnd,
    /// Which kinds of event it records.
    pub kinds: KindSet,
    /// Deviations of the back end from the System, one sentence each. No host name, no date.
    pub notes: Vec<String>,
}

impl Header {
    /// A header without notes.
    #[must_use]
    pub fn new(system: String, seed: Option<u64>, back_end: BackEnd, kinds: KindSet) -> Self {
        Header { system, seed, back_end, kinds, notes: Vec::new() }
    }
}

named! {
    /// What makes logs.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    #[non_exhaustive]
    pub enum BackEnd {
        /// The simulator.
        Sim = 0 => "sim",
        /// Real threads under the scheduling class that the System asks for.
        Run = 1 => "run",
        /// Real threads under SCHED_OTHER.
        RunBestEffort = 2 => "run-best-effort",
        /// A recording of a running kernel or of its traces.
        Observe = 3 => "observe",
    }
}

impl BackEnd {
    /// Whether its times are a real clock's, so that releases come after their nominal arrivals by a
    /// latency worth measuring.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !matches!(self, BackEnd::Sim)
    }
}
