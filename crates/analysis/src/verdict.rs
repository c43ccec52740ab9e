//! What a test can say.

use serde::{Serialize, Serializer};
use takt_model::{Span, TaskId};

/// What one test says about one scope, with its evidence.
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
        /// What failed, and by how much.
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

/// An upper bound of a task's response time (completion minus nominal arrival).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The task.
    pub task: TaskId,
    /// No job of it responds later.
    pub wcrt: Span,
}

/// Yes, no, or "this test cannot tell".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[must_use]
pub enum Answer {
    /// Schedulable.
    Yes,
    /// Not schedulable.
    No,
    /// Undecided.
    Unknown,
}

impl Answer {
    /// As the JSON contract spells a test's verdict.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Unknown => "unknown",
        }
    }

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

/// Serialises as `"yes"`, `"no"`, `"unknown"`.
impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
