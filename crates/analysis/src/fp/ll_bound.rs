//! `ll-bound`: Liu and Layland's utilisation bound for rate-monotonic priorities on one CPU.
//!
//! C. L. Liu, J. W. Layland: Scheduling Algorithms for Multiprogramming in a Hard-Real-Time
//! Environment, JACM 20(1), 1973, Theorem 5. Schedulable if U <= n (2^(1/n) - 1), with U = sum C_i
//! / T_i and deadlines equal to periods.
//!
//! Decided as (1 + U/n)^n <= 2, so that no root is taken. U is rounded up to 2^-64 per task and
//! each product to 2^-62. For n >= 2 the bound is irrational and U rational, so equality does not
//! occur. Only a U closer to the bound than the rounding (about n 2^-61) is rejected. n = 1 is
//! decided exactly.

use std::cmp::Ordering;

use crate::exact::{FRACTION_BITS, compare_sum, sum_rounded_up};
use crate::verdict::Answer;

/// Fractional bits of the powers.
const BITS: u32 = 62;

/// "Yes" where U, rounded up, keeps the bound; otherwise "unknown". Pairs of (C, T) in ns, T not zero.
pub fn schedulable(tasks: &[(u64, u64)]) -> Answer {
    let n = tasks.len() as u128;
    if n <= 1 {
        let fits = matches!(compare_sum(tasks.iter().copied(), 1), Some(Ordering::Less | Ordering::Equal));
        return if fits { Answer::Yes } else { Answer::Unknown };
    }
    let Some(load) = sum_rounded_up(tasks.iter().copied()) else { return Answer::Unknown };
    if load > 1 << FRACTION_BITS {
        return Answer::Unknown;
    }
    let base = (1u128 << BITS) + load.div_ceil(n).div_ceil(1 << (FRACTION_BITS - BITS));
    match power_rounded_up(base, n) {
        Some(power) if power <= 2 << BITS => Answer::Yes,
        _ => Answer::Unknown,
    }
}

/// n (2^(1/n) - 1) in parts per million, rounded down: a figure to show, found by bisection.
pub(crate) fn bound_ppm(n: usize) -> u64 {
    let (mut low, mut high) = (0u64, 1_000_000u64);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let load = ((u128::from(middle) << BITS) / 1_000_000).div_ceil(n.max(1) as u128);
        let fits = power_rounded_up((1 << BITS) + load, n.max(1) as u128).is_some_and(|power| power <= 2 << BITS);
        if fits { low = middle } else { high = middle - 1 }
    }
    low
}

/// base^n by squaring, each product rounded up; `None` once it exceeds 4.
fn power_rounded_up(mut base: u128, mut n: u128) -> Option<u128> {
    let multiply = |a: u128, b: u128| {
        let product = a.checked_mul(b)?.div_ceil(1 << BITS);
        (product < 1 << (BITS + 1) || product <= 4 << BITS).then_some(product)
    };
    let mut power = 1u128 << BITS;
    loop {
        if n & 1 == 1 {
            power = multiply(power, base)?;
        }
        n >>= 1;
        if n == 0 {
            return Some(power);
        }
        // A base past 2 here would be used at least once more.
        base = multiply(base, base)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_published_bounds() {
        let published = [1_000_000, 828_427, 779_763, 756_828, 743_491];
        for (i, ppm) in published.into_iter().enumerate() {
            assert_eq!(bound_ppm(i + 1), ppm, "n = {}", i + 1);
        }
        assert_eq!(bound_ppm(1_000_000) / 10, 69_314, "ln 2");
    }

    #[test]
    fn the_bound_is_sharp_to_the_nanosecond() {
        // n = 2: U = 0.828427124746190097603...
        let t = 1_000_000_000_000_000;
        assert_eq!(schedulable(&[(414_213_562_373_095, t), (414_213_562_373_095, t)]), Answer::Yes);
        assert_eq!(schedulable(&[(414_213_562_373_095, t), (414_213_562_373_096, t)]), Answer::Unknown);
        assert_eq!(schedulable(&[(7, 7)]), Answer::Yes);
        assert_eq!(schedulable(&[]), Answer::Yes);
    }

    #[test]
    fn large_sets_do_not_overflow() {
        let hour = 3_600_000_000_000;
        assert_eq!(schedulable(&vec![(hour / 150_000, hour); 100_000]), Answer::Yes);
        assert_eq!(schedulable(&vec![(hour / 140_000, hour); 100_000]), Answer::Unknown);
        assert_eq!(schedulable(&vec![(hour, 1); 100_000]), Answer::Unknown);
    }
}
