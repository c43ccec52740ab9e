//! How the clock of a node differs from those of others, for its table thread. Pure.

use std::sync::atomic::{AtomicI64, Ordering};

use takt_model::Lateness;
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
    /// Upper bound. The log tells it.
    pub(crate) high: i64,
}

impl Difference {
    /// All times later by so much.
    pub(crate) fn later(self, by: i64) -> Difference {
        let [low, middle, high] = [self.low, self.middle, self.high].map(|at| at.saturating_add(by));
        Difference { low, middle, high }
    }
}

/// A difference that one thread writes and another reads. Each of its numbers is right by itself,
/// whatever is written meanwhile.
pub(crate) struct KnownDifference {
    low: AtomicI64,
    middle: AtomicI64,
    high: AtomicI64,
}

impl Default for KnownDifference {
    fn default() -> KnownDifference {
        let [low, middle, high] = [UNKNOWN; 3].map(AtomicI64::new);
        KnownDifference { low, middle, high }
    }
}

impl KnownDifference {
    pub(crate) fn get(&self) -> Option<Difference> {
        let [low, middle, high] = [&self.low, &self.middle, &self.high].map(|value| value.load(Ordering::Acquire));
        let is_known = [low, middle, high].iter().all(|value| *value != UNKNOWN);
        is_known.then_some(Difference { low: low.min(middle), middle, high: high.max(middle) })
    }

    pub(crate) fn set(&self, offset: Option<OffsetInterval>) {
        let [low, middle, high] = offset.map_or([UNKNOWN; 3], |offset| [offset.low, offset.middle, offset.high]);
        self.low.store(low, Ordering::Release);
        self.middle.store(middle, Ordering::Release);
        self.high.store(high, Ordering::Release);
    }
}

/// All differences with which messages of one node were read.
pub(crate) struct UsedDifferences {
    low: AtomicI64,
    high: AtomicI64,
}

impl Default for UsedDifferences {
    fn default() -> UsedDifferences {
        UsedDifferences { low: AtomicI64::new(i64::MAX), high: AtomicI64::new(i64::MIN) }
    }
}

impl UsedDifferences {
    pub(crate) fn add(&self, difference: Difference) {
        self.low.fetch_min(difference.low, Ordering::AcqRel);
        self.high.fetch_max(difference.high, Ordering::AcqRel);
    }

    /// The least and the greatest. `None`: no message was read.
    pub(crate) fn get(&self) -> Option<(Lateness, Lateness)> {
        let [low, high] = [&self.low, &self.high].map(|value| value.load(Ordering::Acquire));
        (low <= high).then_some((Lateness::from_ns(low), Lateness::from_ns(high)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gets_all_differences_that_were_used() {
        let used = UsedDifferences::default();
        assert_eq!(used.get(), None);
        used.add(Difference { low: -7, middle: -5, high: -4 }.later(10));
        used.add(Difference { low: 1, middle: 1, high: 9 });
        assert_eq!(used.get(), Some((Lateness::from_ns(1), Lateness::from_ns(9))));
    }

    #[test]
    fn a_difference_is_known_with_all_its_numbers() {
        let known = KnownDifference::default();
        known.set(Some(OffsetInterval { low: -7, middle: -5, high: -4 }));
        assert_eq!(known.get(), Some(Difference { low: -7, middle: -5, high: -4 }));
        known.set(None);
        assert_eq!(known.get(), None);
    }
}
