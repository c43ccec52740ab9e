//! `rta`: response-time analysis of fixed priorities on one CPU.
//!
//! N. C. Audsley, A. Burns, M. Richardson, K. Tindell, A. J. Wellings: Applying New Scheduling Theory
//! to Static Priority Pre-emptive Scheduling, SEJ 8(5), 1993; with release jitter and several jobs in a
//! busy window as in K. Tindell, A. Burns, A. J. Wellings: An Extendible Approach for Analysing Fixed
//! Priority Hard Real-Time Tasks, RTS 6, 1994:
//!
//! ```text
//! w_i(q) = (q + 1) C_i + B_i + sum over j in hep(i) of ceil((w_i(q) + J_j) / T_j) C_j
//! R_i = max over q of w_i(q) - q T_i + J_i, for q = 0, 1, .. while w_i(q) > (q + 1) T_i - J_i
//! ```
//!
//! | paper | here |
//! |---|---|
//! | C, T, D, J, B | `c`, `t`, `d`, `j`, `b` of [`FpTask`], ns |
//! | hp(i) | tasks of more important levels |
//! | hep(i) | hp(i) and the other tasks of the same level |
//!
//! Tasks of one level run first come, first served. Each is charged as if the others were more
//! important. Until job q of task i completes, the CPU only runs jobs of hep(i) released in the
//! busy window and q + 1 jobs of i, in any order. So the least w above bounds its completion. This
//! is safe, and exact if the level holds one task.
//!
//! [`schedulable`] decides alone, without allocation; [`Analysis`] bounds every response time.

mod fast;

pub use fast::{exact_only, schedulable};

use std::cmp::Ordering;

use crate::exact::{FRACTION_BITS, ONE, compare_sum};

/// Terms (one ceiling each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 100_000_000;

/// A task under fixed priorities; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FpTask {
    /// C: worst-case execution time, at least 1.
    pub c: u64,
    /// T: minimum inter-arrival time, at least 1.
    pub t: u64,
    /// D: deadline relative to the nominal arrival.
    pub d: u64,
    /// J: a job is released up to this after its nominal arrival.
    pub j: u64,
    /// B: the longest section of less important work that can delay it.
    pub b: u64,
    /// Its level; 0 is the most important. Tasks of one level run in the order of their release.
    pub level: u32,
}

/// Bounds of one task's response time, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// R: from the nominal arrival, J included.
    pub from_arrival: u64,
    /// From its own release, as for the successor of a chain.
    pub from_release: u64,
}

/// One analysis with its remaining work limit.
#[derive(Clone, Debug)]
pub struct Analysis {
    terms_left: u64,
}

impl Default for Analysis {
    /// With [`TERMS_MAX`].
    fn default() -> Self {
        Analysis { terms_left: TERMS_MAX }
    }
}

impl Analysis {
    /// With so many terms to evaluate.
    pub(crate) const fn within(terms_left: u64) -> Analysis {
        Analysis { terms_left }
    }

    /// How many terms are left.
    pub(crate) const fn terms_left(&self) -> u64 {
        self.terms_left
    }

    /// Whether too little of the work limit is left for one more round over `tasks`.
    pub(crate) fn is_exhausted(&self, tasks: &[FpTask]) -> bool {
        self.terms_left <= tasks.len() as u64
    }

    /// Bounds the response time of `tasks[i]`. Independent of its own deadline; D is not read.
    ///
    /// `None`: the level and the more important levels are overloaded, the bound exceeds `u64`, or
    /// the work limit is reached.
    pub fn response(&mut self, tasks: &[FpTask], i: usize) -> Option<Response> {
        let this = tasks.get(i)?;
        if self.is_exhausted(tasks) {
            return None;
        }
        let hep = || tasks.iter().enumerate().filter(|(k, task)| *k != i && task.level <= this.level).map(|(_, t)| t);
        let mut load = 0u128;
        let mut count = 1u64;
        for task in hep().chain([this]) {
            load = load.checked_add((u128::from(task.c) << FRACTION_BITS) / u128::from(task.t))?;
            count += 1;
        }
        // Rounded down: above one here is above one.
        if load > ONE {
            return None;
        }
        // Under the full load what comes once is never caught up with: the window would be followed to the limit.
        let more = || this.b > 0 || hep().chain([this]).any(|task| task.j > 0);
        let loads = || hep().chain([this]).map(|task| (task.c, task.t));
        if load + u128::from(count) > ONE && more() && compare_sum(loads(), 1) == Some(Ordering::Equal) {
            self.terms_left = 0;
            return None;
        }
        let (mut from_arrival, mut from_release) = (0u64, 0u64);
        let mut w = this.b;
        for q in 0u64.. {
            let own = this.c.checked_mul(q + 1)?.checked_add(this.b)?;
            w = w.checked_add(this.c)?;
            loop {
                self.terms_left = self.terms_left.checked_sub(count)?;
                let mut next = own;
                for other in hep() {
                    let arrivals = w.checked_add(other.j)?.div_ceil(other.t);
                    next = next.checked_add(arrivals.checked_mul(other.c)?)?;
                }
                if next <= w {
                    break;
                }
                w = next;
            }
            // Job q arrived, nominally, no earlier than q T - J after the start of the window.
            let arrival = i128::from(q) * i128::from(this.t) - i128::from(this.j);
            from_arrival = from_arrival.max(u64::try_from(i128::from(w) - arrival).ok()?);
            from_release = from_release.max(u64::try_from(i128::from(w) - arrival.max(0)).ok()?);
            if i128::from(w) <= arrival + i128::from(this.t) {
                break;
            }
        }
        Some(Response { from_arrival, from_release })
    }
}

#[cfg(test)]
mod tests;
