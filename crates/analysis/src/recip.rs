//! Exact division by an invariant divisor: one multiplication and a correction instead of a division.

/// The largest dividend that [`Recip::div`] takes.
pub(crate) const DIVIDEND_MAX: u64 = 1 << 62;

/// A divisor with floor((2^64 - 1) / divisor).
///
/// For x < 2^62: x/t - x*inv/2^64 < x * (1 + 1/t) / 2^64 < 1, so the estimate is the quotient or one less.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recip {
    pub(crate) divisor: u64,
    pub(crate) inverse: u64,
}

impl Recip {
    /// For a divisor that is not zero.
    #[inline]
    pub(crate) fn new(divisor: u64) -> Self {
        Recip { divisor, inverse: u64::MAX / divisor }
    }

    /// floor(x / divisor), for x up to [`DIVIDEND_MAX`].
    #[inline]
    pub(crate) fn div(&self, x: u64) -> u64 {
        debug_assert!(x <= DIVIDEND_MAX, "{x} is too large for a reciprocal");
        let estimate = mul_high(x, self.inverse);
        let rest = x.wrapping_sub(estimate.wrapping_mul(self.divisor));
        estimate.wrapping_add(u64::from(rest >= self.divisor))
    }
}

/// The upper half of the product.
#[inline]
pub(crate) fn mul_high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_divides_exactly() {
        let divisors = [1, 2, 3, 5, 7, 10, 999_983, 1 << 20, (1 << 20) + 1, 1 << 40, (1 << 40) - 1, 1 << 61, 1 << 62];
        for divisor in divisors {
            let recip = Recip::new(divisor);
            for k in [0, 1, 2, 3, 1000, DIVIDEND_MAX / divisor / 2, DIVIDEND_MAX / divisor] {
                for delta in [-1i64, 0, 1] {
                    let x = divisor.saturating_mul(k).saturating_add_signed(delta).min(DIVIDEND_MAX);
                    assert_eq!(recip.div(x), x / divisor, "{x} / {divisor}");
                }
            }
        }
    }
}
