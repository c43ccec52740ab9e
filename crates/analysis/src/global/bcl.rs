//! `bcl`: Bertogna, Cirinei and Lipari's test for global EDF and global fixed priorities.
//!
//! M. Bertogna, M. Cirinei, G. Lipari: Improved Schedulability Analysis of EDF on Multiprocessor
//! Platforms, ECRTS 2005, Theorem 7 (EDF); New Schedulability Tests for Real-Time Task Sets
//! Scheduled by Deadline Monotonic on Multiprocessors, OPODIS 2005 (fixed priorities); both in the
//! integer form of: Schedulability Analysis of Global Scheduling Algorithms on Multiprocessor
//! Platforms, TPDS 20(4), 2009, Theorems 5 and 8. For every task k
//!
//! sum over i != k of min(W_i, D_k - C_k + 1) < m (D_k - C_k + 1)
//!
//! ```text
//! EDF, all that is due in the window:
//!     W_i = N_i C_i + min(C_i, max(0, D_k - N_i T_i)),        N_i = floor((D_k - D_i) / T_i) + 1
//! fixed priorities, i more important:
//!     W_i = N_i C_i + min(C_i, D_k + D_i - C_i - N_i T_i),    N_i = floor((D_k + D_i - C_i) / T_i)
//! ```
//!
//! | paper | here |
//! |---|---|
//! | D_k as the length of the window | `window` = D_k - J_k |
//! | W_i of EDF | `Slot::due`: N_i and the last term in one, for D_i <= T_i |
//! | W_i of FP | `Slot::any` |
//!
//! The form of 2005 is sum min(W_i, D_k - C_k) < m (D_k - C_k), or equality with some 0 < W_i <=
//! D_k - C_k. It accepts less. If it holds, fewer than m of the W_i exceed D_k - C_k. Each of them
//! adds 1 to the left side, and the right side gains m.

use super::{Excess, Load, Rule, Sporadic, Terms, interference, prepared};

/// Terms (one work each) evaluated by one analysis at most: enough for 10^4 tasks.
pub const TERMS_MAX: u64 = 100_000_000;

/// Whether every deadline is kept on `m` CPUs. Does not allocate for up to 32 tasks; O(n^2).
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32, rule: Rule) -> Load {
    within(tasks, m, rule, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
#[inline]
pub(crate) fn within(tasks: &[Sporadic], m: u32, rule: Rule, terms: &mut Terms) -> Load {
    prepared(tasks, m, |slots| {
        for task in 0..slots.len() {
            if let Err(limit) = terms.spend(slots.len()) {
                return Load::Undecided(limit);
            }
            let (work, room) = interference(slots, task, m, rule);
            if work >= room {
                return Load::Exceeded(Excess { task: Some(task), window: slots[task].window, work, room });
            }
        }
        Load::Met
    })
}
