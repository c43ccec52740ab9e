//! Checks a machine for causes of missed deadlines, from the files in which the kernel describes
//! itself.
//!
//! [`look`] reads this machine into a [`Snapshot`], which holds texts only. [`findings`] is a pure
//! function from those texts to judgements. So tests and colleagues can judge machines that they do
//! not have. Nothing here changes the machine.
//!
//! ```
//! use takt_linux::doctor::{Snapshot, State, findings};
//!
//! let mut machine = Snapshot::default();
//! machine.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 8388604 0 -2\n");
//! let all = findings(&machine);
//! let swap = all.iter().find(|finding| finding.name == "swap").unwrap();
//! assert_eq!(swap.state, State::Warning);
//! assert_eq!(swap.found, "swap on /dev/sda2, 0 KiB of 8388604 KiB used");
//! ```

mod distribution;
mod facts;
mod judge;
mod look;
pub mod probe;
mod snapshot;

pub use distribution::Distribution;
pub use judge::{CATALOGUE, Entry, PROBED, findings, measured};
pub use look::look;
pub use snapshot::{Snapshot, SnapshotError};

/// Severity of a finding, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// It causes missed deadlines or refused work.
    Problem,
    /// It takes time from real-time work, or may do so.
    Warning,
    /// The kernel does not reveal the state; `found` gives the reason.
    Unknown,
    /// It does no harm.
    Ok,
    /// This machine lacks it, which does no harm.
    Absent,
}

impl State {
    /// The name in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Problem => "problem",
            State::Warning => "warning",
            State::Unknown => "unknown",
            State::Ok => "ok",
            State::Absent => "not available",
        }
    }

    /// Whether `takt doctor` answers no because of this state.
    #[must_use]
    pub const fn spoils(self) -> bool {
        matches!(self, State::Problem | State::Warning | State::Unknown)
    }
}

/// One judgement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its name, as in [`CATALOGUE`].
    pub name: &'static str,
    /// The severity.
    pub state: State,
    /// The observed state, in one line.
    pub found: String,
    /// Evidence: pairs of a place, such as a path, and its content.
    pub evidence: Vec<(String, String)>,
    /// The cost: a bound, or the reason why there is none. Empty if there is no cost.
    pub cost: String,
    /// Remedies: commands and boot parameters, one each. Empty if nothing needs mending.
    pub mend: Vec<String>,
    /// Further reading.
    pub links: &'static [&'static str],
}

impl Finding {
    pub(crate) fn new(state: State, found: impl Into<String>) -> Finding {
        Finding {
            name: "",
            state,
            found: found.into(),
            evidence: Vec::new(),
            cost: String::new(),
            mend: Vec::new(),
            links: &[],
        }
    }

    pub(crate) fn seen(mut self, place: impl Into<String>, value: impl Into<String>) -> Finding {
        self.evidence.push((place.into(), value.into()));
        self
    }

    /// Adds the contents of these paths as evidence. A missing path adds nothing.
    fn shown(mut self, machine: &Snapshot, paths: &[&str]) -> Finding {
        for path in paths {
            if let Some(text) = machine.line(path) {
                self = self.seen(*path, text);
            } else if let Some(reason) = machine.refused(path) {
                self = self.seen(*path, reason);
            }
        }
        self
    }

    pub(crate) fn costs(mut self, cost: impl Into<String>) -> Finding {
        self.cost = cost.into();
        self
    }

    pub(crate) fn mend(mut self, how: impl Into<String>) -> Finding {
        self.mend.push(how.into());
        self
    }

    fn link(mut self, links: &'static [&'static str]) -> Finding {
        self.links = links;
        self
    }
}
