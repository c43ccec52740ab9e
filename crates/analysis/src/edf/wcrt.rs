//! `edf-wcrt`: worst-case response times of EDF on one CPU, exact.
//!
//! M. Spuri: Analysis of Deadline Scheduled Real-Time Systems, INRIA RR-2772, 1996, Section 4. The
//! longest response of task i with a job at a, all others released at 0 and as densely as they may:
//!
//! ```text
//! L_i(a) = least L with sum over j, D_j <= a + D_i, of min(ceil(L / T_j), 1 + floor((a + D_i - D_j) / T_j)) C_j = L
//! R_i    = max over a of max(C_i, L_i(a) - a), for the a >= 0 in the longest busy period with a + D_i = k T_j + D_j
//! ```
//!
//! with jitter as there, and blocking, ticks and wandering arrivals as in [`super::qpa`]. Few a are
//! looked at: [`crate::window`] shows which.
//!
//! | paper | here |
//! |---|---|
//! | C, T, D, J | `c`, `t`, `d`, `j` of [`EdfTask`], ns |
//! | a + D_i | X of [`crate::window`] |
//!
//! "Exact" is meant for sporadic tasks without jitter, wander and blocking, and up to ties: jobs
//! with equal deadlines count as if the others went first. With ties the other way, the same
//! response occurs if all others arrive 1 ns earlier: the true supremum is at most 1 ns less.

use crate::edf::qpa::Tick;
use crate::fp::levels::{self, Level, LevelTask, Levels, Order, Overhead};

/// A task under EDF; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EdfTask {
    /// C: worst-case execution time, at least 1.
    pub c: u64,
    /// T: minimum inter-arrival time, at least 1.
    pub t: u64,
    /// D: from the arrival to the deadline.
    pub d: u64,
    /// J: a job is released up to this after its arrival.
    pub j: u64,
    /// How far arrivals wander after their places on the period's grid (a chain's successor).
    pub burst: u64,
    /// B: the longest section of a job with a later deadline that can delay it.
    pub b: u64,
}

/// Buffers for analyses, each with a work limit of [`levels::TERMS_MAX`].
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    levels: levels::Analysis,
    tasks: Vec<LevelTask>,
    bounds: Vec<Option<levels::Response>>,
}

impl Analysis {
    /// Bounds every response time from the arrival, in ns and in the order of `tasks`: `None` where
    /// U > 1, past the work limit, or past nine years.
    pub fn responses(&mut self, tasks: &[EdfTask], tick: Option<Tick>) -> impl ExactSizeIterator<Item = Option<u64>> {
        self.tasks.clear();
        self.tasks.extend(tasks.iter().map(|task| {
            let EdfTask { c, t, d, j, burst, b } = *task;
            LevelTask { c, wcet: c, t, d, j, release_delay: burst, b, shift: 0, level: 0 }
        }));
        let overhead = tick.map(|tick| Overhead { c: tick.c, t: tick.t, release_delay: 0, level: 0 });
        let levels = &[Level { order: Order::Deadline, preemptive: true }];
        self.levels.renew();
        self.levels.responses(&Levels { levels, tasks: &self.tasks, overheads: overhead.as_slice() }, &mut self.bounds);
        self.bounds.iter().map(|bound| bound.map(|bound| bound.from_arrival))
    }
}

#[cfg(test)]
mod tests;
