//! Sums and products of fractions compared exactly, or with the side of rounding in the name.

use std::cmp::Ordering;

use takt_model::gcd;

/// Fractional bits of the fixed-point numbers here.
pub(crate) const FRACTION_BITS: u32 = 64;
/// One in that form.
pub(crate) const ONE: u128 = 1 << FRACTION_BITS;

/// Compares the sum of `(numerator, denominator)` with `limit`, exactly. Numerators up to 2^63.
///
/// `None` where the sum is closer to the limit than 2^-64 per term and the common denominator
/// exceeds 128 bits: then nothing is decided.
///
/// Denominators must not be zero.
pub(crate) fn compare_sum(terms: impl Iterator<Item = (u64, u64)> + Clone, limit: u64) -> Option<Ordering> {
    let target = u128::from(limit) << FRACTION_BITS;
    let (mut low, mut count) = (0u128, 0u128);
    for (numerator, denominator) in terms.clone() {
        let scaled = u128::from(numerator) << FRACTION_BITS;
        let Some(sum) = low.checked_add(scaled / u128::from(denominator)) else { return Some(Ordering::Greater) };
        low = sum;
        count += 1;
    }
    if low > target {
        return Some(Ordering::Greater);
    }
    if low.saturating_add(count) < target {
        return Some(Ordering::Less);
    }
    // Too close for fixed point: over the common denominator.
    let (sum, common) = over_common(terms)?;
    Some(sum.cmp(&common.checked_mul(u128::from(limit))?))
}

/// The sum as a fraction over the common denominator; `None` where that exceeds 128 bits.
fn over_common(terms: impl Iterator<Item = (u64, u64)> + Clone) -> Option<(u128, u128)> {
    let mut common = 1u128;
    for (_, denominator) in terms.clone() {
        let shared = gcd((common % u128::from(denominator)) as u64, denominator);
        common = common.checked_mul(u128::from(denominator / shared))?;
    }
    let mut sum = 0u128;
    for (numerator, denominator) in terms {
        sum = sum.checked_add(u128::from(numerator).checked_mul(common / u128::from(denominator))?)?;
    }
    Some((sum, common))
}

/// The time in ns until the terms, with a sum above `limit`, need 1 ns more than `limit` gives: 1 /
/// (sum - limit), rounded up. It is exact if the common denominator fits 128 bits, else an upper bound.
/// `None` above 64 bits, or if the sum does not exceed the limit.
pub(crate) fn excess_time(terms: impl Iterator<Item = (u64, u64)> + Clone, limit: u64) -> Option<u64> {
    let exact = || {
        let (sum, common) = over_common(terms.clone())?;
        Some((sum.checked_sub(common.checked_mul(u128::from(limit))?)?, common))
    };
    let rounded = || {
        let scaled = |(numerator, denominator)| (u128::from(numerator) << FRACTION_BITS) / u128::from(denominator);
        let low = terms.clone().map(scaled).try_fold(0u128, u128::checked_add)?;
        Some((low.checked_sub(u128::from(limit) << FRACTION_BITS)?, ONE))
    };
    let (excess, of) = exact().or_else(rounded).filter(|(excess, _)| *excess > 0)?;
    u64::try_from(of.div_ceil(excess)).ok()
}

/// The sum in units of 2^-[`FRACTION_BITS`], rounded up; `None` on overflow.
pub(crate) fn sum_rounded_up(terms: impl Iterator<Item = (u64, u64)>) -> Option<u128> {
    terms
        .map(|(numerator, denominator)| (u128::from(numerator) << FRACTION_BITS).div_ceil(u128::from(denominator)))
        .try_fold(0u128, u128::checked_add)
}

/// The sum in parts per million, rounded to the nearest. For display only; no verdict may depend on it.
pub(crate) fn sum_ppm(terms: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
    let sum = sum_rounded_up(terms)?;
    let whole = (sum >> FRACTION_BITS).checked_mul(1_000_000)?;
    let rest = ((sum & (ONE - 1)) * 1_000_000 + ONE / 2) >> FRACTION_BITS;
    u64::try_from(whole.checked_add(rest)?).ok()
}

/// Parts per million as "82.8427 %".
pub(crate) fn percent(ppm: u64) -> String {
    let (whole, rest) = (ppm / 10_000, ppm % 10_000);
    if rest == 0 { format!("{whole} %") } else { format!("{whole}.{} %", format!("{rest:04}").trim_end_matches('0')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_meet_their_limit_exactly() {
        let thirds = [(1, 3), (1, 3), (1, 3)];
        assert_eq!(compare_sum(thirds.into_iter(), 1), Some(Ordering::Equal));
        let over = [(1, 3), (1, 3), (1_000_000_000_000_001, 3_000_000_000_000_000)];
        assert_eq!(compare_sum(over.into_iter(), 1), Some(Ordering::Greater));
        let under = [(1, 3), (1, 3), (999_999_999_999_999, 3_000_000_000_000_000)];
        assert_eq!(compare_sum(under.into_iter(), 1), Some(Ordering::Less));
        assert_eq!(compare_sum([].into_iter(), 0), Some(Ordering::Equal));
    }

    #[test]
    fn nothing_overflows() {
        let hour = 3_600_000_000_000u64;
        let many = (0..100_000u64).map(move |i| (hour / 100_000 - 1, hour + i));
        assert_eq!(compare_sum(many, 1), Some(Ordering::Less));
        let heavy = (0..100_000u64).map(move |i| (u64::MAX / 2, 1 + i % 2));
        assert_eq!(compare_sum(heavy, 1), Some(Ordering::Greater));
    }

    #[test]
    fn an_undecidable_comparison_is_none() {
        // Denominators without common factors whose product exceeds 128 bits, and a sum within 2^-64 of 1.
        let primes = [9_223_372_036_854_775_783u64, 9_223_372_036_854_775_643, 9_223_372_036_854_775_549];
        let close = [(primes[0] - 2, primes[0]), (1, primes[1]), (1, primes[2])];
        assert_eq!(compare_sum(close.into_iter(), 1), None);
    }

    #[test]
    fn the_excess_is_told_as_the_time_in_which_it_adds_up_to_one() {
        let hour = 3_600_000_000_000;
        assert_eq!(excess_time([(1, 1), (1, hour)].into_iter(), 1), Some(hour));
        assert_eq!(excess_time([(1, 3), (2, 3), (1, 7)].into_iter(), 1), Some(7));
        assert_eq!(excess_time([(3, 4), (3, 4)].into_iter(), 1), Some(2));
        assert_eq!(excess_time([(1, 2), (1, 2)].into_iter(), 1), None);
        // No common denominator in 128 bits: from above.
        let primes = [9_223_372_036_854_775_783u64, 9_223_372_036_854_775_643, 9_223_372_036_854_775_549];
        let terms = primes.iter().map(|prime| (prime / 2, *prime));
        assert_eq!(excess_time(terms, 1), Some(3));
    }

    #[test]
    fn parts_per_million_round_to_the_nearest() {
        assert_eq!(sum_ppm([(1, 2), (1, 4)].into_iter()), Some(750_000));
        assert_eq!(sum_ppm([(1, 3)].into_iter()), Some(333_333));
    }
}
