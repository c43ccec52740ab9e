//! `gfb`: Goossens, Funk and Baruah's bound for global EDF on m CPUs.
//!
//! J. Goossens, S. Funk, S. Baruah: Priority-Driven Scheduling of Periodic Task Systems on
//! Multiprocessors, RTS 25, 2003, Theorem 5: schedulable if U <= m - (m - 1) U_max, deadlines equal to periods.
//! With densities delta_i = C_i / min(D_i, T_i) in place of U_i for any deadlines: M. Bertogna, M. Cirinei,
//! G. Lipari: Improved Schedulability Analysis of EDF on Multiprocessor Platforms, ECRTS 2005, Theorem 4.
//!
//! Decided as sum delta_i + (m - 1) delta_max <= m in exact rationals. If they do not fit 128 bits
//! and the sum is within 2^-64 per task of m, the answer is "unknown". No more tasks than CPUs,
//! each with C <= min(D, T), is a "yes" of its own: every job starts at its release.

use std::cmp::Ordering;

use crate::exact::compare_sum;
use crate::verdict::Answer;

/// "Yes" where the bound holds; otherwise "unknown". Pairs of (C, min(D, T)) in ns, the second not zero.
pub fn schedulable(tasks: &[(u64, u64)], m: u32) -> Answer {
    if tasks.len() <= m as usize && tasks.iter().all(|(c, window)| c <= window) {
        return Answer::Yes;
    }
    let Some(&densest) = tasks.iter().max_by(|a, b| compare(**a, **b)) else { return Answer::Yes };
    if m == 0 {
        return Answer::Unknown;
    }
    let more = std::iter::repeat_n(densest, m as usize - 1);
    match compare_sum(tasks.iter().copied().chain(more), u64::from(m)) {
        Some(Ordering::Less | Ordering::Equal) => Answer::Yes,
        _ => Answer::Unknown,
    }
}

/// Compares two fractions.
fn compare(a: (u64, u64), b: (u64, u64)) -> Ordering {
    (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_met_exactly() {
        // m = 2: sum <= 2 - max. Three halves: 1.5 <= 1.5.
        assert_eq!(schedulable(&[(1, 2), (1, 2), (1, 2)], 2), Answer::Yes);
        assert_eq!(schedulable(&[(500_000_001, 1_000_000_000), (1, 2), (1, 2)], 2), Answer::Unknown);
        // Dhall's effect: a long task beside many short ones.
        assert_eq!(schedulable(&[(1, 10), (1, 10), (10, 11)], 2), Answer::Unknown);
    }

    #[test]
    fn a_cpu_for_each_task_is_enough() {
        assert_eq!(schedulable(&[(9, 10), (10, 10)], 2), Answer::Yes);
        assert_eq!(schedulable(&[(9, 10), (11, 10)], 2), Answer::Unknown);
        assert_eq!(schedulable(&[], 4), Answer::Yes);
    }
}
