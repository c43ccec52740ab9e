//! `rta-global`: response-time analysis of global EDF and global fixed priorities.
//!
//! M. Bertogna, M. Cirinei: Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor Platforms, RTSS 2007,
//! Theorems 5 (work-conserving), 6 (EDF) and 7 (fixed priorities), with the slack iteration of Section 5. The least
//! fixed point of
//!
//! R_k = C_k + floor(sum over i != k of min(W_i(R_k), I_i, R_k - C_k + 1) / m)
//!
//! W_i(L) = N C_i + min(C_i, x - N T_i), x = L + D_i - C_i - S_i, N = floor(x / T_i)
//! I_i = floor(D_k / T_i) C_i + min(C_i, max(0, D_k mod T_i - S_i))   (EDF: what is due within D_k; FP: absent, and i >= k)
//!
//! S_i = D_i - R_i is fed back until nothing changes. `R` here counts from the release, J_k besides.
//!
//! At R_k = D_k the terms are at most those of [`bcl_iterative`], and slack grows with slack: all
//! that it accepts is accepted.
//!
//! **Steps.** With the works at the present R as constants, the least wait that they cannot fill on m CPUs is known in
//! closed form, and no solution lies below, for works grow with R. Stepping there avoids the iteration's crawl, which
//! advances by 1 ns a round where exactly m works are cut off by R_k - C_k + 1. Works that are known to grow by one a unit for
//! a while carry the step further, as far as is certain: see `Works::more`.

use super::slack::{self, Collect, Works};
use super::{Bounds, Load, Rule, Slot, Sporadic, bcl_iterative, prepared};

/// Terms (one work each) that one analysis may evaluate before it gives up.
pub const TERMS_MAX: u64 = 20_000_000;

/// Whether every deadline is kept on `m` CPUs: stops as soon as that is certain.
///
/// Under EDF [`bcl_iterative`] is asked first, for all that it accepts is accepted; then slack is brought down from above
/// as it does.
pub fn schedulable(tasks: &[Sporadic], m: u32, rule: Rule) -> Load {
    if rule == Rule::Fp {
        return prepared(tasks, m, |slots| slack::raise(slots, true, &mut [], &mut Responses::new(m, rule)));
    }
    if bcl_iterative::schedulable(tasks, m, rule).is_met() {
        return Load::Met;
    }
    prepared(tasks, m, |slots| slack::decide(slots, &mut Responses::new(m, rule)))
}

/// The same verdict, with bounds of the response times: iterates until no slack grows.
#[must_use]
pub fn analyse(tasks: &[Sporadic], m: u32, rule: Rule) -> Bounds {
    slack::analyse(tasks, m, rule, Responses::new(m, rule))
}

struct Responses {
    rule: Rule,
    works: Works,
    /// Under EDF, by task: what of it is due within the window of the one that is looked at.
    due: Vec<u64>,
}

impl Responses {
    fn new(m: u32, rule: Rule) -> Responses {
        Responses { rule, works: Works::new(m, TERMS_MAX), due: Vec::new() }
    }
}

impl Collect for Responses {
    fn works(&mut self) -> &mut Works {
        &mut self.works
    }

    #[inline]
    fn begin(&mut self, slots: &[Slot], k: usize) {
        if self.rule == Rule::Edf {
            self.due.clear();
            self.due.extend(slots.iter().map(|other| other.due(slots[k].window)));
            self.due[k] = 0;
        }
    }

    #[inline]
    fn collect(&mut self, slots: &[Slot], k: usize, length: u64) {
        let level = slots[k].level;
        self.works.list.clear();
        self.works.ramps.clear();
        if self.rule == Rule::Edf {
            // The task itself is due never.
            for (other, due) in slots.iter().zip(&self.due) {
                self.works.push(other.any_and_ramp(length), *due);
            }
            return;
        }
        for (i, other) in slots.iter().enumerate() {
            if i != k && other.level <= level {
                self.works.push(other.any_and_ramp(length), u64::MAX);
            }
        }
    }
}
