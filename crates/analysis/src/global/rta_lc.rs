//! `rta-lc`: response-time analysis of global fixed priorities with limited carry-in.
//!
//! N. Guan, M. Stigge, W. Yi, G. Yu: New Response Time Bounds for Fixed Priority Multiprocessor Scheduling, RTSS 2009,
//! Theorem 2 and Eq. 5-12; name and comparison: R. I. Davis, A. Burns: Improved Priority Assignment for Global Fixed
//! Priority Pre-emptive Scheduling in Multiprocessor Real-Time Systems, RTS 47, 2011. The least fixed point of
//!
//! R_k = C_k + floor(Omega_k(R_k) / m)
//! Omega_k(x) = sum over i of min(W_i^NC(x), x - C_k + 1) + the m - 1 largest min(W_i^CI, ..) - min(W_i^NC, ..)
//!
//! W^NC(x) = floor(x / T) C + min(C, x mod T)
//! W^CI(x) = max(W^NC(x), C - 1 + W^NC(max(0, x - (T - R) - (C - 1))))
//!
//! **Why m - 1.** Take a job of k. In some units before its release a CPU ran no task more
//! important than k. Suppose the job is released right after the last of these units: its wait only
//! grows. In that unit, every pending job of a more important task was running, fewer than m of
//! them. Only these jobs bring work in, with a unit done.
//!
//! | paper | here |
//! |---|---|
//! | W^NC | `Slot::workload_nc`, with x + J for x |
//! | W^CI | max of `Slot::workload_nc` and `Slot::workload_ci`: equal to Eq. 6 for J = 0 |
//! | R_i | D - S, from the arrival |
//!
//! **Tasks of one level.** An earlier job of k may run in the unit before. A peer's job released
//! after it then waits with all of its work. So peers count with
//! [`rta_global`](super::rta_global)'s W, whatever m.
//!
//! Each work is at most that of `rta-global`, so every set that `rta-global` accepts is accepted.

use super::slack::{self, Collect, Step, Works};
use super::{Bounds, Excess, Load, Rule, Slot, Sporadic, Terms, prepared};

pub use super::rta_global::TERMS_MAX;

/// Whether every deadline is kept on `m` CPUs: stops as soon as that is certain.
pub fn schedulable(tasks: &[Sporadic], m: u32) -> Load {
    prepared(tasks, m, |slots| slack::raise(slots, true, &mut [], &mut Limited::new(m, Terms::new(TERMS_MAX))))
}

/// The same verdict, with bounds of the response times: iterates until no slack grows.
#[must_use]
pub fn analyse(tasks: &[Sporadic], m: u32) -> Bounds {
    analyse_within(tasks, m, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
pub(crate) fn analyse_within(tasks: &[Sporadic], m: u32, terms: &mut Terms) -> Bounds {
    let mut step = Limited::new(m, *terms);
    let bounds = slack::analyse(tasks, m, Rule::Fp, &mut step);
    *terms = step.works.terms;
    bounds
}

/// The most that may delay a task.
pub(super) struct Limited {
    works: Works,
    /// (gain by carry-in as far as it counts, index in `works`, work with carry-in), of more
    /// important tasks.
    more: Vec<(u64, usize, u64)>,
}

impl Limited {
    pub(super) const fn new(m: u32, terms: Terms) -> Limited {
        Limited { works: Works::new(m, terms), more: Vec::new() }
    }

    /// Whether the works within the whole window of task k suffice for a miss.
    pub(super) fn over(&mut self, slots: &[Slot], k: usize) -> Option<Excess> {
        let excess = self.excess(slots, k);
        (excess.work >= excess.room).then_some(excess)
    }
}

impl Collect for Limited {
    fn works(&mut self) -> &mut Works {
        &mut self.works
    }

    /// Carry-in counts where it adds most. Fix a choice of tasks that bring work in. Once the wait
    /// is too long for their works, it stays too long. The choice made here is the worst at this
    /// length. So no solution lies below the next length.
    #[inline]
    fn collect(&mut self, slots: &[Slot], k: usize, length: u64) {
        let task = &slots[k];
        let most = length - task.c + 1;
        self.works.list.clear();
        self.more.clear();
        for (i, other) in slots.iter().enumerate() {
            if i == k || other.level > task.level {
                continue;
            }
            if other.level == task.level {
                self.works.list.push(other.workload(length));
                continue;
            }
            let fresh = other.workload_nc(length);
            let carried = other.workload_ci(length).max(fresh);
            self.more.push((carried.min(most) - fresh.min(most), self.works.list.len(), carried));
            self.works.list.push(fresh);
        }
        let bring = (self.works.m as usize - 1).min(self.more.len());
        if bring > 0 && bring < self.more.len() {
            self.more.select_nth_unstable_by(bring - 1, |a, b| b.cmp(a));
        }
        for (_, i, carried) in &self.more[..bring] {
            self.works.list[*i] = *carried;
        }
    }
}

/// The works that may delay task k within `length`, by task.
pub(crate) fn works(slots: &[Slot], k: usize, m: u32, length: u64) -> Vec<u64> {
    let mut limited = Limited::new(m, Terms::new(0));
    limited.collect(slots, k, length);
    let mut found = limited.works.list.iter();
    let concerns = |i: usize| i != k && slots[i].level <= slots[k].level;
    (0..slots.len()).map(|i| if concerns(i) { found.next().copied().unwrap_or(0) } else { 0 }).collect()
}
