//! `tardiness-da`: response times of global EDF with deadlines equal to periods, deadlines missed or not.
//!
//! U. Devi, J. Anderson: Tardiness Bounds under Global EDF Scheduling on a Multiprocessor, RTS 38,
//! 2008, Theorem 2 (U. Devi's dissertation, 2006, Corollary 4.11). For U <= m, C_i <= T_i, and
//! Lambda = ceil(U) - 1
//!
//! tardiness of k <= C_k + x,   x = (the Lambda largest C - the least C) / (m - the Lambda - 1 largest U)
//!
//! Terms round up. This is the theorem as published; its proof is not repeated here, other than that of
//! [`tardiness_cva`](super::tardiness_cva), which is mostly, not always, tighter.

use super::TIME_MAX;
use super::tardiness_cva::{Tardiness, busy};
use crate::exact::FRACTION_BITS;
use crate::verdict::Stop;

/// Bounds the response times on `m` CPUs: pairs of (C, T) in ns, D = T.
pub fn analyse(tasks: &[(u64, u64)], m: u32) -> Tardiness {
    if let Some(task) = tasks.iter().position(|(c, t)| *t == 0 || *t > TIME_MAX || *c > TIME_MAX) {
        return Tardiness::Unfit { task };
    }
    let lambda = match busy(tasks.iter().copied(), m) {
        Ok(cpus) => (cpus as usize).saturating_sub(1),
        Err(tardiness) => return tardiness,
    };
    if tasks.len() <= m as usize {
        return Tardiness::Bounded(tasks.iter().map(|(c, _)| *c).collect());
    }
    let mut costs: Vec<u64> = tasks.iter().map(|(c, _)| *c).collect();
    costs.sort_unstable_by(|a, b| b.cmp(a));
    // Rounded up, in 2^-64: at most Lambda - 1 <= m - 2 of values up to one.
    let share = |(c, t): &(u64, u64)| (u128::from(*c) << FRACTION_BITS).div_ceil(u128::from(*t));
    let mut shares: Vec<u128> = tasks.iter().map(share).collect();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    let most: u128 = costs.iter().take(lambda).map(|c| u128::from(*c)).sum();
    let excess = most.saturating_sub(u128::from(costs.last().copied().unwrap_or(0)));
    let used: u128 = shares.iter().take(lambda.saturating_sub(1)).sum();
    // m - used in 2^-32, rounded down.
    let Some(left) = (u128::from(m) << FRACTION_BITS).checked_sub(used).map(|left| left >> 32).filter(|left| *left > 0)
    else {
        return Tardiness::Undecided(Stop::Time);
    };
    let Some(scaled) = excess.checked_mul(1 << 32) else { return Tardiness::Undecided(Stop::Time) };
    let x = scaled.div_ceil(left);
    let response = |(c, t): &(u64, u64)| u64::try_from(u128::from(*t) + u128::from(*c) + x).ok();
    tasks
        .iter()
        .map(response)
        .collect::<Option<Vec<u64>>>()
        .map_or(Tardiness::Undecided(Stop::Time), Tardiness::Bounded)
}
