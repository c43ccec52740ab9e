//! Verdicts of tests.

use std::cell::Cell;

use serde::Serialize;
use takt_model::{Span, TaskId, named};

/// The verdict of one test about one scope, with its evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Every deadline is met, always.
    Schedulable {
        /// Upper bounds of response times, where the test computes them; otherwise empty.
        bounds: Vec<Bound>,
    },
    /// The test cannot tell: its condition is only sufficient, or a limit was reached.
    NotProven {
        /// The condition that failed, and by how much.
        why: String,
    },
    /// Some legal behaviour misses a deadline.
    Infeasible {
        /// One such behaviour.
        witness: String,
    },
    /// The test says nothing about such a system.
    NotApplicable {
        /// The condition that does not hold, and where.
        precondition: String,
    },
}

impl Verdict {
    /// The verdict without its evidence.
    pub const fn answer(&self) -> Answer {
        match self {
            Verdict::Schedulable { .. } => Answer::Yes,
            Verdict::Infeasible { .. } => Answer::No,
            Verdict::NotProven { .. } | Verdict::NotApplicable { .. } => Answer::Unknown,
        }
    }

    /// The reason behind it; empty for [`Verdict::Schedulable`].
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Verdict::Schedulable { .. } => "",
            Verdict::NotProven { why } => why,
            Verdict::Infeasible { witness } => witness,
            Verdict::NotApplicable { precondition } => precondition,
        }
    }
}

/// The reason for an open question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stop {
    /// The work limit.
    #[error("the work limit was reached")]
    Terms,
    /// Times above 64-bit nanoseconds.
    #[error("times exceed 64-bit nanoseconds")]
    Time,
    /// A load whose sum cannot be told from what there is.
    #[error("the load is too close to a whole number of CPUs to be told from it in 128 bits")]
    Load,
    /// A server that gives exactly what the tasks need in the long run.
    #[error("the server gives exactly what the tasks need")]
    Full,
}

/// Terms that the tests of one node may evaluate together. Each CPU has the same share, whether tasks use it or not.
/// So the answer for a unit depends on its tasks and on the size of its node, and on nothing else.
pub(crate) const NODE_TERMS_MAX: u64 = 2_000_000_000;

/// A unit's share of [`NODE_TERMS_MAX`], from which all of its tests spend.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    whole: u64,
    left: Cell<u64>,
    /// Terms kept for later tests.
    kept: Cell<u64>,
}

impl Share {
    /// The share of `m` CPUs of so many.
    pub(crate) fn of(m: u32, cpus: u32) -> Share {
        Share::new(NODE_TERMS_MAX / u64::from(cpus.max(m).max(1)) * u64::from(m))
    }

    pub(crate) const fn new(whole: u64) -> Share {
        Share { whole, left: Cell::new(whole), kept: Cell::new(0) }
    }

    /// Starts anew with the whole share.
    pub(crate) fn renew(&self) {
        self.left.set(self.whole);
        self.kept.set(0);
    }

    /// Runs a test that may evaluate `most` terms, or as many as are left. It is given a counter to [`spend`] from.
    pub(crate) fn run<T>(&self, most: u64, test: impl FnOnce(&mut u64) -> T) -> T {
        let granted = most.min(self.left.get().saturating_sub(self.kept.get()));
        let mut left = granted;
        let found = test(&mut left);
        self.left.set(self.left.get() - granted.saturating_sub(left));
        found
    }

    /// How many terms were evaluated.
    pub(crate) fn spent(&self) -> u64 {
        self.whole - self.left.get()
    }

    /// Whether the next tests decide, or only add bounds to what is decided. Those get a tenth of the share at most.
    pub(crate) fn decide(&self, decides: bool) {
        self.kept.set(if decides { 0 } else { self.left.get().saturating_sub(self.whole / 10) });
    }
}

/// Shares are equal if they were granted the same number of terms: tests of a unit start with all of them.
impl PartialEq for Share {
    fn eq(&self, other: &Share) -> bool {
        self.whole == other.whole
    }
}

/// Takes terms from a work limit; where fewer are left, none are, which tells why an analysis gave up.
#[inline]
pub(crate) fn spend(left: &mut u64, count: u64) -> Option<()> {
    let rest = left.checked_sub(count);
    *left = rest.unwrap_or(0);
    rest.map(|_| ())
}

/// Why an analysis gave up that [`spend`]s from a limit.
pub(crate) const fn stopped(terms_left: u64) -> Stop {
    if terms_left == 0 { Stop::Terms } else { Stop::Time }
}

/// An upper bound of a task's response time (completion minus nominal arrival).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The task.
    pub task: TaskId,
    /// No job of it responds later.
    pub wcrt: Span,
}

named! {
    /// Yes, no, or "this test cannot tell". Serialises as `"yes"`, `"no"`, `"unknown"`.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "lowercase")]
    #[must_use]
    pub enum Answer {
        /// Schedulable.
        Yes => "yes",
        /// Not schedulable.
        No => "no",
        /// Undecided.
        Unknown => "unknown",
    }
}

impl Answer {
    /// As the JSON contract spells `schedulable`: true, false, or null.
    #[must_use]
    pub const fn known(self) -> Option<bool> {
        match self {
            Answer::Yes => Some(true),
            Answer::No => Some(false),
            Answer::Unknown => None,
        }
    }

    /// The answer for a whole whose parts have these answers: one no is a no, all yes is a yes.
    pub const fn and(self, other: Answer) -> Answer {
        match (self, other) {
            (Answer::No, _) | (_, Answer::No) => Answer::No,
            (Answer::Yes, Answer::Yes) => Answer::Yes,
            _ => Answer::Unknown,
        }
    }
}
