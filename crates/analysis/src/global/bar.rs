//! `bar`: Baruah's test for global EDF, with limited carry-in.
//!
//! S. Baruah: Techniques for Multiprocessor Global Schedulability Analysis, RTSS 2007, Theorem 2. For every task k and
//! every A >= 0, with X = A + D_k:
//!
//! sum over i of I1_i + the m - 1 largest I2_i - I1_i < m (X - C_k + 1)
//!
//! ```text
//! I1_i = min(dbf_i(X), X - C_k + 1),      I1_k = min(dbf_k(X) - C_k, A)
//! I2_i = min(dbf'_i(X), X - C_k + 1),     I2_k = min(dbf'_k(X) - C_k, A)
//! dbf_i(X) = max(0, (floor((X - D_i) / T_i) + 1) C_i),   dbf'_i(X) = floor(X / T_i) C_i + min(C_i, X mod T_i)
//! ```
//!
//! A reaches back from the release of a missing job to the last instant with an idle CPU before.
//! All pending jobs were running then, fewer than m of them.
//!
//! | paper | here |
//! |---|---|
//! | A_k + D_k | `x`, at least L_k = D_k - J_k; A is x - L_k |
//! | dbf' | `Slot::due` |
//! | dbf | `due_fresh`: deadlines up to x + J_i, for a job may have arrived J_i before it was released; at most dbf' |
//!
//! # Departures
//! - **The paper cuts off at A + D_k - C_k and accepts equality.** This is unsound. Take two jobs
//!   with C = 8, D = 10, T = 20 and one with C = 4 on two CPUs. They give 12 <= 12 at A = 0 (and
//!   less at other A), but the third completes at 12. A missing job waits for one unit more with m
//!   others running: hence the + 1, in discrete time, and "less than". (A published implementation
//!   takes the larger cut-off and "at most m (A + D_k - C_k)": sound, and less sharp.)
//! - **The paper tests where some dbf steps**, though carry-in and the cut-off grow between. This
//!   module covers every x without a look at each. Both sides grow with x. If the left at x is f,
//!   all y < x with f < m (y - C_k + 1) hold too. The next x to look at is floor(f / m) + C_k - 1:
//!   Zhang and Burns' way through the processor demand, for m CPUs.
//!
//! # Horizon
//! dbf_i(X) with jitter is at most U_i (X + J_i + T_i - D_i), and carry-in adds at most C_i. So a failure needs
//! X (m - U) <= sum U_i (T_i + J_i - D_i) + the m - 1 largest C + (m - 1) C_k.

use super::{Excess, Limit, Load, STACK_MAX, Slot, Sporadic, TIME_MAX, Terms, prepared};
use crate::recip::mul_high;

/// Terms (one task at one point) evaluated by the test at most.
pub const TERMS_MAX: u64 = 100_000_000;

/// Whether every deadline is kept by global EDF on `m` CPUs. Does not allocate for up to 32 tasks.
/// Pseudo-polynomial where U < m; where it is not, [`Load::Full`].
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32) -> Load {
    within(tasks, m, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
#[inline]
pub(crate) fn within(tasks: &[Sporadic], m: u32, terms: &mut Terms) -> Load {
    prepared(tasks, m, |slots| {
        let mut stack = [0u64; STACK_MAX];
        let mut heap = Vec::new();
        let more = if slots.len() <= STACK_MAX {
            &mut stack[..slots.len()]
        } else {
            heap.resize(slots.len(), 0);
            &mut heap[..]
        };
        let Some(horizon) = Horizon::new(slots, m, more) else { return Load::Full };
        // Most sets that fail do so where no CPU was idle just before the release.
        for (k, slot) in slots.iter().enumerate() {
            if let Err(excess) = holds(slots, k, m, slot.window, more) {
                return Load::Exceeded(excess);
            }
        }
        for k in 0..slots.len() {
            let Some(mut x) = horizon.of(slots[k].c) else { return Load::Undecided(Limit::Time) };
            while x > slots[k].window {
                match holds(slots, k, m, x, more) {
                    Ok(next) => x = next,
                    Err(excess) => return Load::Exceeded(excess),
                }
                if let Err(limit) = terms.spend(slots.len()) {
                    return Load::Undecided(limit);
                }
            }
        }
        Load::Met
    })
}

/// Whether a job of k that is due `x` after the last idle instant is in time; the next x to look at, or why not.
#[inline]
fn holds(slots: &[Slot], k: usize, m: u32, x: u64, more: &mut [u64]) -> Result<u64, Excess> {
    let wait = x - slots[k].c + 1;
    let (work, room) = (work(slots, k, m, x, more), u128::from(wait) * u128::from(m));
    if work >= room {
        return Err(Excess { task: Some(k), window: x, work, room });
    }
    // work < m wait, so this is below x.
    let filled = match u64::try_from(work) {
        Ok(work) => work / u64::from(m),
        Err(_) => u64::try_from(work / u128::from(m)).unwrap_or(wait - 1),
    };
    Ok(filled + slots[k].c - 1)
}

/// The left side: what may run beside a job of k within the `x` before its deadline. `more` is scratch.
#[inline]
pub(crate) fn work(slots: &[Slot], k: usize, m: u32, x: u64, more: &mut [u64]) -> u128 {
    let wait = x - slots[k].c + 1;
    let mut sum = 0u128;
    for (i, (slot, more)) in slots.iter().zip(more.iter_mut()).enumerate() {
        let (fresh, due) = slot.both(x);
        let (fresh, due) = if i == k {
            let before = x - slot.window;
            (fresh.saturating_sub(slot.c).min(before), due.saturating_sub(slot.c).min(before))
        } else {
            (fresh.min(wait), due.min(wait))
        };
        sum += u128::from(fresh);
        *more = due - fresh;
    }
    sum + largest(more, m as usize - 1)
}

impl Slot {
    /// Most execution within `x` of the jobs due there: first without carry-in, then with carry-in.
    #[inline]
    fn both(&self, x: u64) -> (u64, u64) {
        let q = self.period.div(x);
        let r = x - q * self.period.divisor;
        let due = q * self.c + self.c.min(r);
        // Deadlines are D <= T after the start at the earliest, then every T.
        let fresh = if self.j == 0 { (q + u64::from(r >= self.d)) * self.c } else { due_fresh(self, x).min(due) };
        (fresh, due)
    }
}

/// The sum of the `count` largest.
#[inline]
pub(crate) fn largest(values: &mut [u64], count: usize) -> u128 {
    if count == 0 {
        return 0;
    }
    if count < FEW {
        // The largest so far, the least of them first.
        let mut top = [0u64; FEW];
        let top = &mut top[..count];
        for &value in values.iter() {
            let mut value = value;
            for place in top.iter_mut().rev() {
                let larger = value.max(*place);
                value = value.min(*place);
                *place = larger;
            }
        }
        return top.iter().map(|value| u128::from(*value)).sum();
    }
    if count < values.len() {
        values.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
    }
    values.iter().take(count).map(|value| u128::from(*value)).sum()
}

/// Below this many, the largest are kept one by one.
const FEW: usize = 9;

/// The most that jobs which are released and due within `x` execute.
#[inline]
fn due_fresh(slot: &Slot, x: u64) -> u64 {
    let length = x + slot.j;
    if length < slot.d { 0 } else { (slot.period.div(length - slot.d) + 1) * slot.c }
}

/// The part of the horizon that does not depend on k.
struct Horizon {
    /// sum U_i (T_i + J_i - D_i) + the m - 1 largest C, rounded up.
    fixed: u128,
    /// m - 1.
    others: u128,
    /// m - U in 2^-22, rounded down.
    idle: u128,
}

impl Horizon {
    fn new(slots: &[Slot], m: u32, scratch: &mut [u64]) -> Option<Horizon> {
        let (mut load, mut fixed) = (0u128, 0u128);
        for (slot, c) in slots.iter().zip(scratch.iter_mut()) {
            // 2^64 C / T <= C i + C (1 + 1 / T) for i = floor((2^64 - 1) / T).
            let share = u128::from(slot.c) * u128::from(slot.period.inverse) + u128::from(slot.c) + 1;
            load += share;
            let early = slot.t() - slot.d + slot.j;
            // If the share does not fit, U is 1 to within 2^-64 of it.
            fixed += u128::from(mul_high(early, u64::try_from(share).unwrap_or(u64::MAX))) + 2;
            *c = slot.c;
        }
        let idle = (u128::from(m) << 64).checked_sub(load)? >> 42;
        fixed += largest(scratch, m as usize - 1);
        (idle > 0).then_some(Horizon { fixed, others: u128::from(m - 1), idle })
    }

    /// For a task with this C; `None` where it exceeds what the test takes.
    fn of(&self, c: u64) -> Option<u64> {
        let numerator = self.fixed.checked_add(self.others.checked_mul(u128::from(c))?)?;
        let x = numerator.checked_mul(1 << 22)? / self.idle + 1;
        u64::try_from(x).ok().filter(|x| *x <= TIME_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::exact::{Reachability, Ties, sporadic};
    use super::super::tests::small;
    use super::super::{Rule, prepared};
    use super::*;
    use takt_model::generate::Random;

    /// The condition at one x, cut off `more` units above X - C_k; at most `more` times m - 1 above.
    fn holds(slots: &[Slot], k: usize, m: u32, x: u64, more: u64) -> bool {
        let (task, mut sum, mut extra) = (&slots[k], 0, Vec::new());
        for (i, slot) in slots.iter().enumerate() {
            let (fresh, due) = (due_fresh(slot, x), slot.workload_due(x));
            let cut = if i == k { x - task.window } else { x - task.c + more };
            let own = if i == k { task.c } else { 0 };
            let (fresh, due) = ((fresh.min(due) - own).min(cut), (due - own).min(cut));
            sum += fresh;
            extra.push(due - fresh);
        }
        extra.sort_unstable();
        sum += extra.iter().rev().take(m as usize - 1).sum::<u64>();
        sum <= u64::from(m) * (x - task.c + more) - more
    }

    /// The condition at every x up to a length that is beyond every horizon here.
    fn at_all(tasks: &[Sporadic], m: u32, more: u64) -> bool {
        let all = |slots: &mut [Slot]| {
            let each = |k: usize| (slots[k].window..400).all(|x| holds(slots, k, m, x, more));
            if (0..slots.len()).all(each) { Load::Met } else { Load::Full }
        };
        prepared(tasks, m, all).is_met()
    }

    #[test]
    fn the_printed_cut_off_accepts_what_misses() {
        let long = Sporadic { c: 8, d: 10, t: 20, ..Sporadic::default() };
        let tasks = [long, long, Sporadic { c: 4, ..long }];
        assert!(at_all(&tasks, 2, 0), "as printed");
        assert!(!schedulable(&tasks, 2).is_met());
        assert!(matches!(sporadic(&tasks, 2, Rule::Edf, Ties::Any, 1_000_000), Reachability::Miss { .. }));
    }

    #[test]
    fn the_way_down_covers_every_point() {
        let mut random = Random::new(5);
        for _ in 0..5_000 {
            let (tasks, m) = small(&mut random, true);
            let found = schedulable(&tasks, m);
            // Up to 400 is far enough for utilisations that are not close to m.
            if found != Load::Full {
                assert_eq!(found.is_met(), at_all(&tasks, m, 1), "{m} CPUs, {tasks:?}");
            }
        }
    }
}
