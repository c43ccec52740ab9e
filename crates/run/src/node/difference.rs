//! How the clock of a node differs from those of others, for its table thread. Pure.

use std::sync::atomic::{AtomicI64, Ordering};

use takt_net::OffsetInterval;

/// A difference of clocks that is not known.
const UNKNOWN: i64 = i64::MIN;

/// A measured difference of clocks in nanoseconds: this node's - another node's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Difference {
    /// Lower bound. It gives the earliest deadline, so admission of messages uses it.
    pub(crate) low: i64,
    /// Likely value. The order of deadlines uses it.
    pub(crate) middle: i64,
}

impl Difference {
    /// Both times later by so much.
    pub(crate) fn later(self, by: i64) -> Difference {
        Difference { low: self.low.saturating_add(by), middle: self.middle.saturating_add(by) }
    }
}

/// A difference that one thread writes and another reads. Each of its numbers is right by itself,
/// whatever is written meanwhile.
pub(crate) struct KnownDifference {
    low: AtomicI64,
    middle: AtomicI64,
}

impl Default for KnownDifference {
    fn default() -> KnownDifference {
        KnownDifference { low: AtomicI64::new(UNKNOWN), middle: AtomicI64::new(UNKNOWN) }
    }
}

impl KnownDifference {
    pub(crate) fn get(&self) -> Option<Difference> {
        let [low, middle] = [&self.low, &self.middle].map(|value| value.load(Ordering::Acquire));
        (low != UNKNOWN && middle != UNKNOWN).then_some(Difference { low: low.min(middle), middle })
    }

    pub(crate) fn set(&self, offset: Option<OffsetInterval>) {
        let (low, middle) = offset.map_or((UNKNOWN, UNKNOWN), |offset| (offset.low, offset.middle));
        self.low.store(low, Ordering::Release);
        self.middle.store(middle, Ordering::Release);
    }
}
