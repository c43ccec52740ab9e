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

/// The terms that the tests of a unit may evaluate together: a share of [`NODE_TERMS_MAX`].
#[derive(Clone, Debug)]
pub(crate) struct TermBudget {
    total: u64,
    left: Cell<u64>,
    /// Terms reserved for later tests.
    reserved: Cell<u64>,
}

impl TermBudget {
    /// The share of `m` of a node's `cpus` CPUs.
    pub(crate) fn of(m: u32, cpus: u32) -> TermBudget {
        TermBudget::new(NODE_TERMS_MAX / u64::from(cpus.max(m).max(1)) * u64::from(m))
    }

    pub(crate) const fn new(total: u64) -> TermBudget {
        TermBudget { total, left: Cell::new(total), reserved: Cell::new(0) }
    }

    /// Starts anew with all terms.
    pub(crate) fn renew(&self) {
        self.left.set(self.total);
        self.reserved.set(0);
    }

    /// Runs a test that may evaluate `most` terms, or as many as are left. It is given a counter to [`spend`] from.
    pub(crate) fn run<T>(&self, most: u64, test: impl FnOnce(&mut u64) -> T) -> T {
        let granted = most.min(self.left.get().saturating_sub(self.reserved.get()));
        let mut left = granted;
        let found = test(&mut left);
        self.left.set(self.left.get() - granted.saturating_sub(left));
        found
    }

    /// How many terms were evaluated.
    pub(crate) fn spent(&self) -> u64 {
        self.total - self.left.get()
    }

    /// Sets whether the next tests decide. Tests that only add bounds to a decided verdict get a tenth of all terms at
    /// most.
    pub(crate) fn decide(&self, decides: bool) {
        self.reserved.set(if decides { 0 } else { self.left.get().saturating_sub(self.total / 10) });
    }
}

/// Budgets are equal if their totals are, since the tests of a unit start with all terms.
impl PartialEq for TermBudget {
    fn eq(&self, other: &TermBudget) -> bool {
        self.total == other.total
    }
}

/// Takes `count` terms from a work limit. If fewer are left, sets it to zero. Then [`stopped`] tells why an analysis
/// gave up.
#[inline]
pub(crate) fn spend(left: &mut u64, count: u64) -> Option<()> {
    let rest = left.checked_sub(count);
    *left = rest.unwrap_or(0);
    rest.map(|_| ())
}

/// Why an analysis gave up, by what is left of the limit that it [`spend`]s from.
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
