//! `da-lc`: deadline analysis of global fixed priorities with limited carry-in.
//!
//! R. I. Davis, A. Burns: Improved Priority Assignment for Global Fixed Priority Pre-emptive
//! Scheduling in Multiprocessor Real-Time Systems, RTS 47, 2011, Section 4: the interference of
//! [`rta_lc`](super::rta_lc) at R_k = D_k, with D_i for R_i. For every k
//!
//! sum over i of min(W_i^NC(D_k), D_k - C_k + 1) + the m - 1 largest differences to carry-in < m (D_k - C_k + 1)
//!
//! Depends on the set of more important tasks alone, not on their order: what Audsley's priority assignment needs.
//!
//! Each work is at most that of [`bcl`](super::bcl), so this test accepts all sets that `bcl`
//! accepts. `rta-lc` accepts all sets that `da-lc` accepts.

use super::rta_lc::Limited;
use super::{Load, Sporadic, Terms, prepared};

pub use super::bcl::TERMS_MAX;

/// Whether every deadline is kept on `m` CPUs; O(n^2).
pub fn schedulable(tasks: &[Sporadic], m: u32) -> Load {
    within(tasks, m, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
pub(crate) fn within(tasks: &[Sporadic], m: u32, terms: &mut Terms) -> Load {
    prepared(tasks, m, |slots| {
        let mut limited = Limited::new(m, *terms);
        for k in 0..slots.len() {
            if let Err(limit) = terms.spend(slots.len()) {
                return Load::Undecided(limit);
            }
            if let Some(excess) = limited.over(slots, k) {
                return Load::Exceeded(excess);
            }
        }
        Load::Met
    })
}
