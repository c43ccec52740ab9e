//! `bak`: Baker's test for global EDF, by the load of busy intervals.
//!
//! T. P. Baker: Multiprocessor EDF and Deadline Monotonic Schedulability Analysis, RTSS 2003,
//! Theorem 12; An Analysis of EDF Schedulability on a Multiprocessor, TPDS 16(8), 2005. For every
//! task k, with lambda = C_k / D_k:
//!
//! sum over i of min(1, beta_i) <= m (1 - lambda) + lambda
//!
//! ```text
//! beta_i = U_i (1 + (T_i - D_i) / D_k)                              where U_i <= lambda
//! beta_i = U_i (1 + (T_i - D_i) / D_k) + (C_i - lambda T_i) / D_k   where U_i > lambda
//! ```
//!
//! Here times the window L_k = D_k - J_k, with jitter:
//!
//! sum over i of min(L_k, C_i (L_k + T_i - D_i) / T_i + lambda J_i + max(0, C_i - lambda T_i)) <= m L_k - (m - 1) C_k
//!
//! **Why jitter adds lambda J_i.** If a job of k misses at t, the CPUs did more than m (1 - lambda) +
//! lambda per unit in [t - L_k, t). Widen this window to the largest [t - y, t) with the
//! property. Let a job of i have arrived p before the window. For m >= 2 the job has executed at
//! least lambda of each unit since its release; otherwise the CPUs did more before the window as
//! well. So the job has executed max(0, p - J_i) lambda, and brings in at most C_i - lambda max(0,
//! p - J_i). With n more jobs, p + y >= n T_i + D_i. The sum of both is at most C_i (y + T_i - D_i)
//! / T_i + lambda J_i + max(0, p (U_i - lambda)), and p <= T_i. Divided by y >= L_k every term
//! shrinks with y, or stays.
//!
//! | paper | here |
//! |---|---|
//! | D_k of the window | L_k = D_k - J_k, `window` |
//! | lambda | C_k / L_k |
//!
//! Both sides are compared as integers of ns with a known error, and where that does not tell, as exact fractions.

use std::cmp::Ordering;

use super::{Excess, Limit, Load, Slot, Sporadic, Terms, prepared};
use crate::exact::compare_sum;
use crate::recip::{Recip, mul_high};

pub use super::bcl::TERMS_MAX;

/// Whether every deadline is kept by global EDF on `m` CPUs, two at least. Does not allocate for up to 32 tasks, but
/// where both sides agree to a few ns. O(n^2).
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32) -> Load {
    within(tasks, m, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
#[inline]
pub(crate) fn within(tasks: &[Sporadic], m: u32, terms: &mut Terms) -> Load {
    prepared(tasks, m, |slots| {
        if m < 2 {
            return Load::Undecided(Limit::Cpus);
        }
        // |estimate - term| of one task: see `estimate`.
        let longest = slots.iter().map(|slot| slot.t()).max().unwrap_or(0);
        let most = slots.iter().map(|slot| slot.c).max().unwrap_or(0);
        let error = 4 + 4 * u128::from(mul_high(longest, most));
        for k in 0..slots.len() {
            if let Err(limit) = terms.spend(slots.len()) {
                return Load::Undecided(limit);
            }
            let (window, c) = (slots[k].window, slots[k].c);
            let room = u128::from(window) * u128::from(m) - u128::from(c) * u128::from(m - 1);
            let work = estimate(slots, k);
            let error = error * slots.len() as u128;
            if work + error <= room {
                continue;
            }
            if work > room + error || !fits_exactly(slots, k, room) {
                return Load::Exceeded(Excess { task: Some(k), window, work, room });
            }
        }
        Load::Met
    })
}

/// The left side, in ns.
///
/// With i = floor((2^64 - 1) / T): 0 <= x C / T - x C i / 2^64 <= x C / 2^64, and each product is
/// rounded down by less than one. Times here are at most 2 max(T) (L_k + T_i - D_i) and max(T), so
/// a term is off by less than 4 + 4 max(T) max(C) / 2^64.
#[inline]
fn estimate(slots: &[Slot], k: usize) -> u128 {
    let window = slots[k].window;
    let lambda = share(slots[k].c, &Recip::new(window));
    slots.iter().map(|slot| u128::from(term(slot, window, lambda))).sum()
}

/// The share of one task in the left side, in ns.
#[inline]
fn term(slot: &Slot, window: u64, lambda: u64) -> u64 {
    let level = mul_high(window + (slot.t() - slot.d), share(slot.c, &slot.period));
    let carried = slot.c.saturating_sub(mul_high(slot.t(), lambda));
    window.min(level + carried + mul_high(slot.j, lambda))
}

/// The left side by task, to a few ns, and the right one.
pub(crate) fn sides(slots: &[Slot], k: usize, m: u32) -> (Vec<u64>, u128) {
    let (window, c) = (slots[k].window, slots[k].c);
    let lambda = share(c, &Recip::new(window));
    let room = u128::from(window) * u128::from(m) - u128::from(c) * u128::from(m - 1);
    (slots.iter().map(|slot| term(slot, window, lambda)).collect(), room)
}

/// C / T in 2^-64, rounded down, for C <= T.
#[inline]
fn share(c: u64, period: &Recip) -> u64 {
    c * period.inverse
}

/// Whether the left side is at most `room`, in exact fractions; false where they do not fit 128 bits.
#[cold]
fn fits_exactly(slots: &[Slot], k: usize, room: u128) -> bool {
    let (window, c) = (slots[k].window, u128::from(slots[k].c));
    let length = u128::from(window);
    let (mut whole, mut parts) = (0u128, Vec::with_capacity(2 * slots.len()));
    for slot in slots {
        let t = u128::from(slot.t());
        let level = u128::from(slot.c) * (length + t - u128::from(slot.d));
        let carried = c * u128::from(slot.j) + (u128::from(slot.c) * length).saturating_sub(c * t);
        let units = level / t + carried / length;
        let (level, carried) = (level % t, carried % length);
        if units >= length || (units + 1 == length && level * length + carried * t >= t * length) {
            whole += length;
        } else {
            whole += units;
            // Remainders of divisors that are u64.
            parts.extend([(level as u64, slot.t()), (carried as u64, window)]);
        }
    }
    let Some(left) = room.checked_sub(whole) else { return false };
    if left >= parts.len() as u128 {
        return true;
    }
    matches!(compare_sum(parts.into_iter(), left as u64), Some(Ordering::Less | Ordering::Equal))
}
