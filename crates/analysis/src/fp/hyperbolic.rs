//! `hyperbolic`: the hyperbolic bound for rate-monotonic priorities on one CPU.
//!
//! E. Bini, G. C. Buttazzo, G. M. Buttazzo: Rate Monotonic Analysis: The Hyperbolic Bound, IEEE TC
//! 52(7), 2003, Theorem 1: schedulable if prod (U_i + 1) <= 2, with U_i = C_i / T_i, deadlines equal to periods.
//!
//! Decided exactly while numerator and denominator fit 128 bits. Past that each factor and product
//! is rounded up to 2^-62. A "yes" then stays a proof, and a product within about n 2^-61 of 2 is
//! rejected.

use takt_model::gcd;

use crate::verdict::Answer;

/// Fractional bits of the products.
const BITS: u32 = 62;

/// "Yes" where the bound holds; otherwise "unknown". Pairs of (C, T) in ns, T not zero.
pub fn schedulable(tasks: &[(u64, u64)]) -> Answer {
    let fits = match product_rounded_up(tasks) {
        Some(product) if product <= 2 << BITS => true,
        // The rounding adds less than 2^-60 per factor: far above, nothing needs to be exact.
        Some(product) if product <= (2 << BITS) + 8 * (tasks.len() as u128 + 1) => exact(tasks) == Some(true),
        _ => false,
    };
    if fits { Answer::Yes } else { Answer::Unknown }
}

/// The product in parts per million, rounded up; `None` past 4. No more than 2,000,000 where the
/// product is accepted.
pub(crate) fn product_ppm(tasks: &[(u64, u64)]) -> Option<u64> {
    let ppm = (product_rounded_up(tasks)? * 1_000_000).div_ceil(1 << BITS) as u64;
    Some(if schedulable(tasks) == Answer::Yes { ppm.min(2_000_000) } else { ppm })
}

/// prod (U_i + 1), rounded up; `None` once it exceeds 4.
fn product_rounded_up(tasks: &[(u64, u64)]) -> Option<u128> {
    tasks.iter().try_fold(1u128 << BITS, |product, &(c, t)| {
        if c > t {
            return None;
        }
        let factor = (1 << BITS) + (u128::from(c) << BITS).div_ceil(u128::from(t));
        let product = product.checked_mul(factor)?.div_ceil(1 << BITS);
        (product <= 4 << BITS).then_some(product)
    })
}

/// prod (C_i + T_i) <= 2 prod T_i in integers; `None` where they do not fit.
fn exact(tasks: &[(u64, u64)]) -> Option<bool> {
    let (mut numerator, mut denominator) = (1u128, 1u128);
    for &(c, t) in tasks {
        let (mut sum, mut t) = (u128::from(c) + u128::from(t), u128::from(t));
        for (a, b) in [(&mut sum, &mut denominator), (&mut numerator, &mut t)] {
            let shared = gcd_wide(*a, *b);
            *a /= shared;
            *b /= shared;
        }
        let shared = gcd_wide(sum, t);
        numerator = numerator.checked_mul(sum / shared)?;
        denominator = denominator.checked_mul(t / shared)?;
    }
    Some(numerator <= denominator.checked_mul(2)?)
}

fn gcd_wide(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        if let (Ok(a), Ok(b)) = (u64::try_from(a), u64::try_from(b)) {
            return u128::from(gcd(a, b));
        }
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_exactly_two_is_accepted() {
        assert_eq!(schedulable(&[(1, 3), (1, 2)]), Answer::Yes, "4/3 * 3/2");
        assert_eq!(schedulable(&[(1, 7), (1, 6), (1, 2)]), Answer::Yes, "8/7 * 7/6 * 3/2");
        assert_eq!(schedulable(&[(1_000_000_001, 3_000_000_000), (1, 2)]), Answer::Unknown);
        assert_eq!(schedulable(&[(5, 5)]), Answer::Yes);
        assert_eq!(schedulable(&[]), Answer::Yes);
        assert_eq!(product_ppm(&[(1, 3), (1, 2)]), Some(2_000_000));
        assert_eq!(product_ppm(&[(1_000_000_001, 3_000_000_000), (1, 2)]), Some(2_000_001));
    }

    #[test]
    fn large_sets_do_not_overflow() {
        let hour = 3_600_000_000_000;
        assert_eq!(schedulable(&vec![(hour / 150_000, hour); 100_000]), Answer::Yes);
        assert_eq!(schedulable(&vec![(hour, hour); 100_000]), Answer::Unknown);
        assert_eq!(schedulable(&[(u64::MAX / 2, u64::MAX / 2 + 1); 3]), Answer::Unknown);
    }
}
