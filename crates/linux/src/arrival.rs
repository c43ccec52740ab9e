//! Arrivals of datagrams on CLOCK_MONOTONIC. The kernel stamps them on CLOCK_REALTIME, which may
//! step and be slewed.

use takt_model::Time;

use crate::clock::{monotonic_ns, realtime_ns};

/// A stamp counts if it is at most this much older than the wait, and CLOCK_REALTIME was changed by less.
const AGE_MAX: i64 = 1_000_000_000;
/// Reads of the clocks, of which the narrowest counts.
const READS_MAX: u32 = 3;
/// Reads that take no longer than this are narrow enough (nanoseconds).
const NARROW: u64 = 200;

/// Two times between which a datagram arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Not before.
    pub from: Time,
    /// Not after.
    pub to: Time,
}

/// How the clocks stood when a wait began. With it, an arrival after that is known even if
/// CLOCK_REALTIME was changed meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalClock {
    start: Reading,
}

impl ArrivalClock {
    /// A wait begins now.
    #[must_use]
    pub fn start() -> ArrivalClock {
        ArrivalClock { start: Reading::take() }
    }

    /// When a datagram arrived that was received just now. Without a stamp of the kernel, and with
    /// an older one than the clocks can place, that is now.
    #[must_use]
    pub fn arrival(&self, stamp: Option<u64>) -> Arrival {
        Reading::take().arrival(&self.start, stamp)
    }

    /// When a datagram was stamped just now. `None`: the clocks cannot place the stamp.
    #[must_use]
    pub fn placed(&self, stamp: u64) -> Option<Arrival> {
        Reading::take().placed(&self.start, stamp)
    }
}

/// CLOCK_REALTIME, read between two readings of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: u64,
    realtime: u64,
    after: u64,
}

impl Reading {
    fn take() -> Reading {
        let read = || Reading { before: monotonic_ns(), realtime: realtime_ns(), after: monotonic_ns() };
        let mut best = read();
        for _ in 1..READS_MAX {
            if best.after - best.before <= NARROW {
                break;
            }
            let next = read();
            if next.after - next.before < best.after - best.before {
                best = next;
            }
        }
        best
    }

    /// CLOCK_REALTIME is at least and at most so far ahead of CLOCK_MONOTONIC.
    fn ahead(&self) -> [i64; 2] {
        [self.after, self.before].map(|at| self.realtime.cast_signed().saturating_sub(at.cast_signed()))
    }

    fn arrival(&self, start: &Reading, stamp: Option<u64>) -> Arrival {
        let now = Time::from_ns(self.after);
        self.placed(start, stamp.unwrap_or(self.realtime)).unwrap_or(Arrival { from: now, to: now })
    }

    fn placed(&self, start: &Reading, stamp: u64) -> Option<Arrival> {
        let age = self.realtime.cast_signed().saturating_sub(stamp.cast_signed());
        // What CLOCK_REALTIME gained on CLOCK_MONOTONIC since the wait began, at most and at least.
        let ([low, high], [low_before, high_before]) = (self.ahead(), start.ahead());
        let (gained, lost) = (high.saturating_sub(low_before).max(0), low.saturating_sub(high_before).min(0));
        let waited = self.after.saturating_sub(start.before).cast_signed();
        if !(0..AGE_MAX.saturating_add(waited)).contains(&age) || gained >= AGE_MAX || lost <= -AGE_MAX {
            return None;
        }
        let [least, most] = [age.saturating_sub(gained).max(0), age.saturating_sub(lost)];
        let back = |from: u64, by: i64| Time::from_ns(from.saturating_sub(by.unsigned_abs()));
        Some(Arrival { from: back(self.before, most), to: back(self.after, least) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_lies_within_its_times() {
        // CLOCK_REALTIME is 1000 ahead. The arrival is at 500 and read at 700 to 710.
        let reading = Reading { before: 700, realtime: 1_705, after: 710 };
        let start = Reading { before: 90, realtime: 1_095, after: 100 };
        let arrival = |start: &Reading, stamp| reading.arrival(start, stamp);
        let within = |arrival: Arrival, at: u64| arrival.from.as_ns() <= at && at <= arrival.to.as_ns();
        assert!(within(arrival(&start, Some(1_500)), 500));
        // The clock was set forward by 300 after the stamp, or before it.
        let forward = Reading { realtime: 2_005, ..reading };
        assert!(within(forward.arrival(&start, Some(1_500)), 500) && within(forward.arrival(&start, Some(1_800)), 500));
        // It was set back by 100.
        let back = Reading { realtime: 1_605, ..reading };
        assert!(within(back.arrival(&start, Some(1_500)), 500) && within(back.arrival(&start, Some(1_400)), 500));
        // No stamp, a stamp in the future, and a step beyond all bounds: now.
        let now = Arrival { from: Time::from_ns(710), to: Time::from_ns(710) };
        assert_eq!([arrival(&start, None).to, arrival(&start, Some(1_900)).to], [now.to; 2]);
        assert_eq!(arrival(&Reading { before: 3_000_000_000, after: 3_000_000_000, ..start }, Some(1_500)), now);
        // The wait took an hour, and the arrival is as old. An arrival long before the wait is not placed.
        let hour = 3_600_000_000_000;
        let later = Reading { before: 700 + hour, realtime: 1_705 + hour, after: 710 + hour };
        assert!(within(later.arrival(&start, Some(1_500)), 500));
        assert_eq!(
            later.placed(&Reading { before: 690 + hour, realtime: 1_695 + hour, after: 700 + hour }, 1_500),
            None
        );
    }

    #[test]
    fn arrivals_of_this_instant_are_now() {
        let clock = ArrivalClock::start();
        let before = monotonic_ns();
        let stamp = realtime_ns();
        let between = monotonic_ns();
        let arrival = clock.arrival(Some(stamp));
        assert!(arrival.from.as_ns() <= between && before <= arrival.to.as_ns(), "{arrival:?} {before} {between}");
    }
}
