//! How the servers' clocks differed during a run: intervals by time, from the time-difference table.

use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::clock::monotonic_ns;
use takt_model::{Span, Time};
use takt_net::OffsetInterval;

use crate::time_sync::TimeSync;

/// The most intervals that are kept of all servers.
const KEPT_MAX: u64 = 1 << 20;

/// The interval of one server's clock between two instants, which are close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interval {
    from: Time,
    to: Time,
    restarts: u64,
    offset: Option<OffsetInterval>,
}

/// The intervals of one server by time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Offsets {
    known: Vec<Interval>,
    drift_ppm: u32,
}

impl Offsets {
    pub(super) fn last(&self) -> Option<OffsetInterval> {
        self.known.last()?.offset
    }

    /// An interval that holds own clock - server's clock at all instants from `since` to `at`. It is
    /// the intersection of the aged intervals before and after `at`. `None`: unknown, also if a clock
    /// stepped between them.
    pub(super) fn within(&self, since: Time, at: Time) -> Option<(i64, i64)> {
        let later = self.known.partition_point(|known| known.to < at);
        let after = self.known.get(later);
        let before = later.checked_sub(1).and_then(|place| self.known.get(place));
        if let (Some(before), Some(after)) = (before, after)
            && before.restarts != after.restarts
        {
            return None;
        }
        let aged = |known: &Interval| {
            let offset = known.offset?;
            let away = at.saturating_since(known.from).max(known.to.saturating_since(at));
            let away = away.saturating_add(at.saturating_since(since));
            let drift = u128::from(self.drift_ppm);
            let age = (u128::from(away.as_ns()) * 2 * drift).div_ceil(1_000_000_u128.saturating_sub(drift).max(1));
            let age = i64::try_from(age).ok()?;
            Some((offset.low.checked_sub(age)?, offset.high.checked_add(age)?))
        };
        let (low, high) = match (before.and_then(aged), after.and_then(aged)) {
            (Some(one), Some(other)) => (one.0.max(other.0), one.1.min(other.1)),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return None,
        };
        (low <= high).then_some((low, high))
    }
}

/// Exchanges until `end`, in a run of that length.
pub(super) fn follow(sync: &mut TimeSync, servers: usize, drift_ppm: u32, run: Span, end: &AtomicBool) -> Vec<Offsets> {
    let every = run.as_ns() / (KEPT_MAX / servers.max(1) as u64).max(1);
    let step = Span::from_ns(every).max(Span::from_ms(2));
    let mut offsets = vec![Offsets { known: Vec::new(), drift_ppm }; servers];
    let now = || Time::from_ns(monotonic_ns());
    while !end.load(Ordering::Acquire) {
        sync.run_until(now().saturating_add(step));
        let from = now();
        let peers = sync.peers();
        let to = now();
        for (offsets, peer) in offsets.iter_mut().zip(peers) {
            offsets.known.push(Interval { from, to, restarts: peer.restarts, offset: peer.offset });
        }
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(at: u64, restarts: u64, ends: Option<(i64, i64)>) -> Interval {
        let offset = ends.map(|(low, high)| OffsetInterval { low, high, middle: low });
        Interval { from: Time::from_ns(at), to: Time::from_ns(at + 10), restarts, offset }
    }

    #[test]
    fn intervals_age_and_overlap() {
        // 2 * 500 ppm / (1 - 500 ppm), rounded up: 1001 ns in a millisecond.
        let offsets = Offsets {
            known: vec![known(0, 0, Some((-100, 100))), known(2_000_000, 0, Some((50, 3_000)))],
            drift_ppm: 500,
        };
        let at = |ns| offsets.within(Time::from_ns(ns), Time::from_ns(ns));
        assert_eq!(at(2_000_010), Some((50 - 1, 100 + 2_002)));
        assert_eq!(at(1_000_000), Some((50 - 1_001, 100 + 1_001)));
        // After the last one, that alone.
        assert_eq!(at(3_000_000), Some((50 - 1_001, 3_000 + 1_001)));
        assert_eq!(at(5), Some((-101, 101)));
        // A millisecond earlier the clocks may have differed by a drift more.
        let since = offsets.within(Time::from_ns(2_000_000), Time::from_ns(3_000_000));
        assert_eq!(since, Some((50 - 2_002, 3_000 + 2_002)));
        assert_eq!(Offsets::default().within(Time::ZERO, Time::ZERO), None);
    }

    #[test]
    fn a_step_between_two_intervals_leaves_nothing_known() {
        let mut offsets =
            Offsets { known: vec![known(0, 0, Some((0, 10))), known(100, 1, Some((0, 10)))], drift_ppm: 0 };
        assert_eq!(offsets.within(Time::from_ns(50), Time::from_ns(50)), None);
        assert_eq!(offsets.within(Time::from_ns(200), Time::from_ns(200)), Some((0, 10)));
        offsets.known = vec![known(0, 0, Some((0, 10))), known(100, 0, Some((11, 20)))];
        assert_eq!(offsets.within(Time::from_ns(50), Time::from_ns(50)), None, "they contradict each other");
        offsets.known = vec![known(0, 0, None), known(100, 0, Some((11, 20)))];
        assert_eq!(offsets.within(Time::from_ns(50), Time::from_ns(50)), Some((11, 20)));
    }
}
