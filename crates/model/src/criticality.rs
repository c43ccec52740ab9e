//! How much a task matters.

use std::fmt;

/// How much a task matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Criticality {
    /// Never cancelled.
    #[default]
    High,
    /// May be cancelled where the node says so.
    Low,
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Criticality::High => "high",
            Criticality::Low => "low",
        })
    }
}
