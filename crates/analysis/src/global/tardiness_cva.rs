//! `tardiness-cva`: response times of global EDF and its relatives (`gel`, so G-FL too), deadlines
//! missed or not, by compliant vectors.
//!
//! J. Erickson, U. Devi, S. Baruah: Improved Tardiness Bounds for Global EDF, ECRTS 2010; J.
//! Erickson, J. Anderson, B. Ward: Fair Lateness Scheduling: Reducing Maximum Lateness in
//! G-EDF-like Scheduling, RTS 50, 2014, Theorem 1 and Section 4. Jobs run in the order of their
//! *priority points*, arrival + Y_i; EDF has Y_i = D_i. For U <= m and C_i <= T_i
//!
//! ```text
//! R_k <= Y_k + x_k + C_k,   x_k = max(0, (s - C_k) / m),   s = G + S
//! G = the ceil(U) - 1 largest max(0, x_i U_i + C_i - S_i),  S = sum of S_i,  S_i = C_i max(0, 1 - Y_i / T_i)
//! ```
//!
//! | paper | here |
//! |---|---|
//! | Y_i, relative priority point | `y`, D_i + the shift of `gel` |
//! | s with s = G(x(s)) + S | the least whole number of ns with s >= G + S, terms rounded up |
//!
//! **Proof.** Let J of task k, with priority point y, be the first job in the order of priority
//! points that takes longer. Let W be the work left at y of jobs with points up to y; Y >= 0, so
//! they are all released. If W <= m x_k + C_k, J is in time, in one of two ways. Either m CPUs work
//! on these jobs until y + x_k, and at most C_k is left. Or fewer than m tasks are pending from
//! some instant before, so no pending task waits. J then follows its predecessor, and the
//! predecessor completed T_k >= C_k earlier than J may. Let t be the last instant up to y before
//! which fewer than ceil(U) CPUs worked on such jobs. A task without pending job at t brings at
//! most U_i (y - t) + S_i from there. Let a task have a pending job at t, running since p after its
//! release, with e left. The job ends by Y_i + x_i + C_i, so p <= Y_i + x_i + C_i - e, and the task
//! brings at most e + U_i (y - t + p - Y_i) <= U_i (y - t) + x_i U_i + C_i. There are at most
//! ceil(U) - 1 of these, and the CPUs did at least U (y - t): W <= G + S <= m x_k + C_k.
//!
//! The same constant added to all Y changes no schedule, so both Y and Y - min(Y) are evaluated,
//! and the lesser bound counts.

use std::cmp::Ordering;

use super::TIME_MAX;
use crate::exact::{FRACTION_BITS, compare_sum};
use crate::verdict::Stop;

/// Rounds of the fixed point before the test gives up; each brings it closer by a factor of 1 - 1 / m at least.
pub const ROUNDS_MAX: u32 = 20_000;

/// A task under a GEL scheduler; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gel {
    /// C: worst-case execution time.
    pub c: u64,
    /// T: the least distance of arrivals.
    pub t: u64,
    /// Y: the priority point, after the arrival.
    pub y: i64,
}

/// Bounds of the responses, whether or not deadlines are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Tardiness {
    /// Per task, the longest time from arrival to completion.
    Bounded(Vec<u64>),
    /// U > m, or a task with C > T: nothing is bounded.
    Overload,
    /// A task outside what the test covers: its period is zero, or a time exceeds [`TIME_MAX`].
    Unfit {
        /// Index of the task.
        task: usize,
    },
    /// Something left it open.
    Undecided(Stop),
}

/// Bounds the response times on `m` CPUs.
pub fn analyse(tasks: &[Gel], m: u32) -> Tardiness {
    let unfit = |task: &Gel| task.t == 0 || task.t > TIME_MAX || task.c > TIME_MAX || task.y.unsigned_abs() > TIME_MAX;
    if let Some(task) = tasks.iter().position(unfit) {
        return Tardiness::Unfit { task };
    }
    let cpus = match busy(tasks.iter().map(|task| (task.c, task.t)), m) {
        Ok(cpus) => cpus,
        Err(tardiness) => return tardiness,
    };
    if tasks.len() <= m as usize {
        return Tardiness::Bounded(tasks.iter().map(|task| task.c).collect());
    }
    let first = tasks.iter().map(|task| task.y).min().unwrap_or(0);
    let mut least: Option<Vec<u64>> = None;
    for moved in [first, 0] {
        if first < moved {
            continue;
        }
        let bounds = match compliant(tasks, moved, cpus, m) {
            Ok(bounds) => bounds,
            Err(stop) => return Tardiness::Undecided(stop),
        };
        least = Some(match least {
            None => bounds,
            Some(least) => least.iter().zip(bounds).map(|(a, b)| b.min(*a)).collect(),
        });
    }
    least.map_or(Tardiness::Undecided(Stop::Terms), Tardiness::Bounded)
}

/// ceil(U), at most m, or why there is none. Pairs of (C, T).
pub(super) fn busy(shares: impl Iterator<Item = (u64, u64)> + Clone, m: u32) -> Result<u32, Tardiness> {
    if shares.clone().any(|(c, t)| c > t) {
        return Err(Tardiness::Overload);
    }
    let low: u128 = shares.clone().map(|(c, t)| (u128::from(c) << FRACTION_BITS) / u128::from(t)).sum();
    let whole = u32::try_from(low >> FRACTION_BITS).map_err(|_| Tardiness::Overload)?;
    // Rounded down by less than one: U is `whole`, or above it, and perhaps above the next.
    for cpus in whole..=whole.saturating_add(1) {
        match compare_sum(shares.clone(), u64::from(cpus)) {
            Some(Ordering::Greater) => {}
            Some(_) if cpus <= m => return Ok(cpus),
            Some(_) => return Err(Tardiness::Overload),
            None => return Err(Tardiness::Undecided(Stop::Load)),
        }
    }
    Err(Tardiness::Overload)
}

/// The bounds with Y - `moved` for Y.
fn compliant(tasks: &[Gel], moved: i64, cpus: u32, m: u32) -> Result<Vec<u64>, Stop> {
    // |Y| and |moved| are far below 2^62.
    let point = |task: &Gel| (task.y - moved).unsigned_abs();
    // C max(0, T - Y) / T.
    let early = |task: &Gel| (u128::from(task.c) * u128::from(task.t.saturating_sub(point(task))), u128::from(task.t));
    let sum: u128 = tasks.iter().map(early).map(|(dividend, t)| dividend.div_ceil(t)).sum();
    let x = |task: &Gel, s: u128| s.saturating_sub(u128::from(task.c)).div_ceil(u128::from(m));
    let mut carried = Vec::with_capacity(tasks.len());
    let mut s = 0u128;
    for _ in 0..ROUNDS_MAX {
        carried.clear();
        for task in tasks {
            let delayed = x(task, s).checked_mul(u128::from(task.c)).ok_or(Stop::Time)?.div_ceil(u128::from(task.t));
            let (dividend, t) = early(task);
            carried.push((delayed + u128::from(task.c)).saturating_sub(dividend / t));
        }
        carried.sort_unstable_by(|a, b| b.cmp(a));
        let next = sum + carried.iter().take((cpus as usize).saturating_sub(1)).sum::<u128>();
        if next <= s {
            let response = |task: &Gel| u64::try_from(u128::from(point(task)) + x(task, s) + u128::from(task.c)).ok();
            return tasks.iter().map(response).collect::<Option<_>>().ok_or(Stop::Time);
        }
        s = next;
    }
    Err(Stop::Terms)
}
