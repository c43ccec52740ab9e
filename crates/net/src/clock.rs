//! A node's clock against true time: it is ahead by an offset, and drifts.
//!
//! `local(t) = offset + floor(t (1 + drift))`, in integers. A true instant has one local time. A
//! timer for local time l fires at `true_of(l)`, the least true time t with `local(t) >= l`: never
//! early by its own clock. Both directions are monotone except at a step.
//!
//! Only differences between clocks matter. So the offset is never negative: the slowest clock of a
//! system begins at 0.

use takt_model::{Lateness, Span, Time};
use thiserror::Error;

/// 1 in parts per billion.
const BILLION: i64 = 1_000_000_000;

/// Why a clock cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ClockError {
    /// It would stand still, or run at twice the speed.
    #[error("a drift of {0} parts per billion is out of range; give -{most} to {most}", most = Clock::DRIFT_PPB_MAX)]
    Drift(i32),
    /// A step to before the start of its time.
    #[error("the clock shows {shows} and cannot step by {by}: that is before its zero; start it with a larger offset")]
    Step {
        /// Its time.
        shows: Time,
        /// The step.
        by: Lateness,
    },
}

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// A true instant, and what the clock shows then.
    from: (Time, Time),
    /// How much it gains, in parts per billion.
    drift_ppb: i32,
}

impl Clock {
    /// The largest drift: half the speed.
    pub const DRIFT_PPB_MAX: i32 = 500_000_000;

    /// A clock that shows `offset` at true time 0 and gains `drift_ppb`.
    ///
    /// # Errors
    /// If the drift is above [`Clock::DRIFT_PPB_MAX`].
    pub fn new(offset: Span, drift_ppb: i32) -> Result<Self, ClockError> {
        if drift_ppb.unsigned_abs() > Self::DRIFT_PPB_MAX.unsigned_abs() {
            return Err(ClockError::Drift(drift_ppb));
        }
        Ok(Clock { from: (Time::ZERO, Time::ZERO.saturating_add(offset)), drift_ppb })
    }

    /// Its rate, in parts per billion of true time.
    fn rate(&self) -> u128 {
        // At least half a billion.
        (BILLION + i64::from(self.drift_ppb)).unsigned_abs().into()
    }

    /// Its time at true time `at`; at most [`Time::MAX`].
    #[must_use]
    pub fn local(&self, at: Time) -> Time {
        if self.drift_ppb == 0 {
            return self.from.1.saturating_add(at.saturating_since(self.from.0));
        }
        let gone = u128::from(at.saturating_since(self.from.0).as_ns()) * self.rate() / BILLION as u128;
        self.from.1.saturating_add(span(gone))
    }

    /// The first true time at which it shows at least `local`; at most [`Time::MAX`].
    #[must_use]
    pub fn true_of(&self, local: Time) -> Time {
        let gone = local.saturating_since(self.from.1);
        if self.drift_ppb == 0 {
            return self.from.0.saturating_add(gone);
        }
        self.from.0.saturating_add(span((u128::from(gone.as_ns()) * BILLION as u128).div_ceil(self.rate())))
    }

    /// Steps by `by` at true time `at`. Afterwards it knows no time before `at`: earlier instants count
    /// as `at`.
    ///
    /// # Errors
    /// If it would show less than zero.
    pub fn step(&mut self, at: Time, by: Lateness) -> Result<(), ClockError> {
        let shows = self.local(at);
        let ns = shows.as_ns().checked_add_signed(by.as_ns()).ok_or(ClockError::Step { shows, by })?;
        self.from = (at, Time::from_ns(ns));
        Ok(())
    }
}

fn span(ns: u128) -> Span {
    u64::try_from(ns).map_or(Span::MAX, Span::from_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clocks_gain_lose_and_step() {
        let fast = Clock::new(Span::from_ns(100), 250_000_000).unwrap();
        assert_eq!([0, 1, 4, 5].map(|at| fast.local(Time::from_ns(at)).as_ns()), [100, 101, 105, 106]);
        assert_eq!([0, 100, 105, 106].map(|local| fast.true_of(Time::from_ns(local)).as_ns()), [0, 0, 4, 5]);
        let mut slow = Clock::new(Span::from_ns(100), -500_000_000).unwrap();
        assert_eq!([0, 1, 2, 9].map(|at| slow.local(Time::from_ns(at)).as_ns()), [100, 100, 101, 104]);
        slow.step(Time::from_ns(10), Lateness::from_ns(-50)).unwrap();
        assert_eq!([10, 12].map(|at| slow.local(Time::from_ns(at)).as_ns()), [55, 56]);
        let error = slow.step(Time::from_ns(10), Lateness::from_ns(-56)).unwrap_err().to_string();
        assert!(error.contains("larger offset"), "{error}");
        let error = Clock::new(Span::ZERO, -500_000_001).unwrap_err().to_string();
        assert!(error.contains("-500000000 to 500000000"), "{error}");
        assert_eq!((fast.local(Time::MAX), slow.true_of(Time::MAX)), (Time::MAX, Time::MAX));
    }

    proptest! {
        /// `true_of` is the first instant at which the clock shows that much.
        #[test]
        fn both_directions_fit(
            offset in 0u64..1_000_000_000_000,
            drift in -500_000_000i32..=500_000_000,
            at in 0u64..1_000_000_000_000_000,
            step in -1_000_000i64..1_000_000,
        ) {
            let mut clock = Clock::new(Span::from_ns(offset + 1_000_000), drift).unwrap();
            let start = Time::from_ns(at / 2);
            clock.step(start, Lateness::from_ns(step)).unwrap();
            for (one, next) in (0..3).map(|i| (start.as_ns() + at + i, start.as_ns() + at + i + 1)) {
                let local = clock.local(Time::from_ns(one));
                prop_assert!(local <= clock.local(Time::from_ns(next)));
                let first = clock.true_of(local);
                prop_assert!(clock.local(first) >= local && first <= Time::from_ns(one));
                if let Some(before) = first.as_ns().checked_sub(1).filter(|before| *before >= start.as_ns()) {
                    prop_assert!(clock.local(Time::from_ns(before)) < local);
                }
            }
        }
    }
}
