//! A line that sends one packet after the other. Packets sent without a pause end at whole
//! nanoseconds, rounded up from their exact ends: rounding does not add up over a busy period.

use takt_model::{Bytes, Rate, Time};

/// Bytes to bit-nanoseconds per second.
pub(crate) const SCALE: u64 = 8_000_000_000;

/// How long `work` takes at `rate`, in ns, rounded up; at most `u64::MAX`. And what the rounding
/// leaves over, below the rate. `rate` is above zero.
#[inline]
fn divide(work: u128, rate: u64) -> (u64, u64) {
    let rate = rate.max(1);
    if let Ok(work) = u64::try_from(work) {
        let whole = work / rate;
        let rest = work % rate;
        return if rest == 0 { (whole, 0) } else { (whole + 1, rate - rest) };
    }
    let rate = u128::from(rate);
    let ns = work.div_ceil(rate);
    match u64::try_from(ns) {
        Ok(short) => (short, (ns * rate - work) as u64),
        Err(_) => (u64::MAX, 0),
    }
}

/// `bytes` in bit-nanoseconds per second.
#[inline]
pub(crate) fn work(bytes: u64) -> u128 {
    u128::from(bytes) * u128::from(SCALE)
}

/// The time that this work takes at `rate`, in ns, rounded up.
#[inline]
pub(crate) fn time(work: u128, rate: u64) -> u64 {
    divide(work, rate).0
}

/// The state of a line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    rate: u64,
    /// End of the last packet, rounded up.
    free_at: Time,
    /// How far `free_at` is after the exact end, times the rate.
    credit: u64,
}

impl Line {
    pub(crate) fn new(rate: Rate) -> Self {
        Line { rate: rate.as_bps(), free_at: Time::ZERO, credit: 0 }
    }

    #[inline]
    pub(crate) fn free_at(&self) -> Time {
        self.free_at
    }

    /// Starts a packet at `at`, not before the line is free. The packet has waited since `since`.
    /// Returns its end.
    #[inline]
    pub(crate) fn start(&mut self, at: Time, since: Time, bytes: Bytes) -> Time {
        let work = work(bytes.get());
        let credit = if at == self.free_at && since < at { u128::from(self.credit) } else { 0 };
        let (ns, credit) = match work.checked_sub(credit) {
            Some(work) => divide(work, self.rate),
            // A packet shorter than the rounding before it. The rest of the credit stays.
            None => (0, (credit - work) as u64),
        };
        self.free_at = Time::from_ns(at.as_ns().saturating_add(ns));
        self.credit = credit;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn extremes_saturate() {
        assert_eq!(divide(u128::from(u64::MAX) * u128::from(SCALE), 1), (u64::MAX, 0));
        assert_eq!(divide(7, 2), (4, 1));
        assert_eq!(divide(u128::from(u64::MAX) + 1, u64::MAX), (2, u64::MAX - 1));
        assert_eq!(time(work(100), 8_000_000), 100_000);
    }

    #[test]
    fn a_packet_shorter_than_the_rounding_before_it_keeps_the_rest() {
        let mut line = Line::new(Rate::from_bps(16_000_000_000));
        let start = Time::from_ns(5);
        let ends: Vec<u64> = [1, 0, 1, 1, 1]
            .iter()
            .scan(start, |at, bytes| {
                let since = if *at == start { start } else { Time::ZERO };
                *at = line.start(*at, since, Bytes::new(*bytes));
                Some(at.as_ns() - 5)
            })
            .collect();
        assert_eq!(ends, [1, 1, 1, 2, 2]);
    }

    proptest! {
        /// n packets without a pause end within a nanosecond of the exact time of all their bytes.
        #[test]
        fn rounding_does_not_add_up(
            rate in 1u64..20_000_000_000,
            sizes in proptest::collection::vec(0u64..100_000, 1..40),
        ) {
            let mut line = Line::new(Rate::from_bps(rate));
            let (mut at, mut bytes) = (Time::from_ns(5), 0);
            for (i, size) in sizes.iter().enumerate() {
                let since = if i == 0 { at } else { Time::ZERO };
                at = line.start(at, since, Bytes::new(*size));
                bytes += size;
                prop_assert_eq!(at.as_ns() - 5, work(bytes).div_ceil(u128::from(rate)) as u64);
            }
        }
    }
}
