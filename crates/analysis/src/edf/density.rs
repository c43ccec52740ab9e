//! `density`: the density bound for EDF on one CPU.
//!
//! J. W. S. Liu: Real-Time Systems, Prentice Hall 2000, Theorem 6.2: schedulable if
//! sum C_i / min(D_i, T_i) <= 1. For D >= T it is Liu and Layland's exact bound U <= 1 (JACM 1973, Theorem 7).
//!
//! Exact rationals; where they do not fit 128 bits and the sum is within 2^-64 per task of 1, "unknown".

use std::cmp::Ordering;

use crate::exact::compare_sum;
use crate::verdict::Answer;

/// "Yes" where the bound holds; "no" where U > 1; otherwise "unknown". Triples of (C, D, T) in ns, D and T not zero.
pub fn schedulable(tasks: &[(u64, u64, u64)]) -> Answer {
    let dense = compare_sum(tasks.iter().map(|&(c, d, t)| (c, d.min(t))), 1);
    if matches!(dense, Some(Ordering::Less | Ordering::Equal)) {
        return Answer::Yes;
    }
    match compare_sum(tasks.iter().map(|&(c, _, t)| (c, t)), 1) {
        Some(Ordering::Greater) => Answer::No,
        _ => Answer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cpu_is_enough() {
        assert_eq!(schedulable(&[(1, 3, 3), (2, 9, 3)]), Answer::Yes);
        assert_eq!(schedulable(&[(1, 2, 3), (2, 3, 3)]), Answer::Unknown);
        assert_eq!(schedulable(&[(2, 3, 3), (2, 3, 3)]), Answer::No);
    }
}
