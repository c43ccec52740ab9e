//! Spans of clocks that drift, in true time, rounded to the safe side.
//!
//! A clock's rate lies in [1 - ρ, 1 + ρ] of true time, where ρ = `drift_ppm` / 10^6. A span of x on
//! the clock takes between x / (1 + ρ) and x / (1 - ρ) of true time.

const MILLION: u128 = 1_000_000;

/// How much every clock drifts at most, in parts per million, below a million.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drift(pub u32);

impl Drift {
    /// The least true time of `x` on a clock, rounded down.
    #[must_use]
    pub fn least(self, x: u64) -> u64 {
        // At most x.
        (u128::from(x) * MILLION / (MILLION + u128::from(self.0))) as u64
    }

    /// The most true time of `x` on a clock, rounded up. `None` above `u64`, or if the drift is not below a million.
    #[must_use]
    pub fn most(self, x: u64) -> Option<u64> {
        let slowest = MILLION.checked_sub(u128::from(self.0)).filter(|slowest| *slowest > 0)?;
        u64::try_from((u128::from(x) * MILLION).div_ceil(slowest)).ok()
    }

    /// The longest span of a clock that takes at most `x` of true time, rounded down.
    #[must_use]
    pub fn within(self, x: u64) -> u64 {
        // At most x.
        (u128::from(x) * MILLION.saturating_sub(u128::from(self.0)) / MILLION) as u64
    }

    /// The most by which two clocks disagree after `x` of true time, in true time: 2 ρ x / (1 - ρ), rounded up. `None`
    /// as for [`Drift::most`].
    #[must_use]
    pub fn skew(self, x: u64) -> Option<u64> {
        let slowest = MILLION.checked_sub(u128::from(self.0)).filter(|slowest| *slowest > 0)?;
        u64::try_from((u128::from(x) * 2 * u128::from(self.0)).div_ceil(slowest)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_round_to_the_safe_side() {
        assert_eq!((Drift(0).least(7), Drift(0).most(7), Drift(0).skew(7)), (7, Some(7), Some(0)));
        let drift = Drift(50);
        assert_eq!((drift.least(1_000_000), drift.most(1_000_000)), (999_950, Some(1_000_051)));
        assert_eq!(drift.skew(1_000_000), Some(101));
        assert!((0..1_000).all(|x| drift.most(drift.within(x * 977)) <= Some(x * 977)));
        assert_eq!(
            (drift.least(u64::MAX) < u64::MAX, drift.most(u64::MAX), Drift(1_000_000).most(1)),
            (true, None, None)
        );
    }
}
