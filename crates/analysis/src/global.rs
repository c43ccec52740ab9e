//! Several CPUs that every task may use: global EDF and global fixed priorities, preemptive.
//!
//! Each test has a module. A test takes a slice of [`Sporadic`] tasks and returns a [`Load`]. Only
//! [`Load::Met`] is a proof. All but the tardiness bounds need C <= D - J and D <= T.
//!
//! # Time is discrete
//! Jobs are released, preempted and completed at whole nanoseconds, in takt's simulator as in these
//! tests. A job that misses therefore lacks at least a whole unit of execution. It waited for D - J -
//! C + 1 units or more; in dense time, for "more than D - J - C". This is the `+ 1` of Bertogna
//! and Cirinei's formulas.
//!
//! # Ties
//! Equal deadlines, and tasks of one priority level, count against the task under analysis: the verdicts hold for every
//! rule that breaks ties.
//!
//! # Jitter
//! A job arrives, and up to J later it is released; D counts from the arrival. While deadlines are kept, a job of task
//! i executes somewhere in [arrival, arrival + D_i), and arrivals are at least T_i apart: all that the bounds of
//! interference use. The task under analysis has only D_k - J_k from its release to its deadline: that is the length
//! of its *window* here, where the papers, without jitter, write D_k.
//!
//! # The first miss
//! A test may assume for every job that no earlier deadline was missed. If no job misses under this
//! assumption, there is no first miss, hence no miss. The same holds for response bounds and slack
//! that were computed under it.

pub mod bak;
pub mod bar;
pub mod bcl;
pub mod bcl_iterative;
pub mod da_lc;
pub mod exact;
pub mod ff_dbf;
pub mod gfb;
pub mod rta_global;
pub mod rta_lc;
mod slack;
pub mod tardiness_cva;
pub mod tardiness_da;

#[cfg(test)]
mod tests;

use crate::recip::{DIVIDEND_MAX, Recip};
use crate::verdict::TermBudget;

/// The longest time, in ns, that the tests of this module take (36 years).
pub const TIME_MAX: u64 = DIVIDEND_MAX / 4;

/// A sporadic task; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sporadic {
    /// C: worst-case execution time; 0 counts as 1.
    pub c: u64,
    /// D: deadline relative to the nominal arrival.
    pub d: u64,
    /// T: the least distance of nominal arrivals, at least 1.
    pub t: u64,
    /// J: a job is released up to this after its nominal arrival.
    pub j: u64,
    /// Its level under fixed priorities; 0 is the most important. EDF does not read it.
    pub level: u32,
}

/// Which jobs are more important.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Those with the earlier absolute deadline.
    Edf,
    /// Those of the more important level.
    Fp,
}

/// The result of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Load {
    /// Every deadline is kept.
    Met,
    /// Not proven: others may keep the CPUs from a job of this task for too long.
    Exceeded(Excess),
    /// Not proven: this task's own execution does not fit between release and deadline.
    TooLong {
        /// Index of the task.
        task: usize,
    },
    /// This task is outside what the test covers: its deadline exceeds its period, its period is zero, or a time
    /// exceeds [`TIME_MAX`].
    Unfit {
        /// Index of the task.
        task: usize,
    },
    /// Not proven: the test needs a utilisation that is below m by more than it is here.
    Full,
    /// Not proven: a limit was reached first.
    Undecided(Limit),
}

/// The reason for an open question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Limit {
    /// So many terms were evaluated: one work, or demand, of one task each.
    #[error("the work limit of {0} terms was reached")]
    Terms(u64),
    /// So many rounds over all tasks.
    #[error("the limit of {0} rounds over all tasks was reached")]
    Rounds(u32),
    /// An interval, or a sum, would exceed [`TIME_MAX`].
    #[error("an interval that it would have to look at is too long (36 years)")]
    Time,
    /// The test needs two CPUs at least.
    #[error("the test needs two CPUs at least")]
    Cpus,
}

/// Terms that an analysis may still evaluate. A term is one work, or demand, of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    most: u64,
    left: u64,
}

impl Terms {
    /// So many, all left.
    pub(crate) const fn new(most: u64) -> Terms {
        Terms { most, left: most }
    }

    /// Runs a test with as many terms as are left in a unit's budget, at most `most`.
    pub(crate) fn run_with<T>(budget: &TermBudget, most: u64, test: impl FnOnce(&mut Terms) -> T) -> T {
        budget.run(most, |left| {
            let mut terms = Terms::new(*left);
            let found = test(&mut terms);
            *left = terms.left;
            found
        })
    }

    /// Those that are left.
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Takes as many.
    ///
    /// # Errors
    /// The limit, where fewer are left; then none are.
    #[inline]
    pub(crate) fn spend(&mut self, count: usize) -> Result<(), Limit> {
        let left = self.left.checked_sub(count as u64);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(Limit::Terms(self.most))
    }
}

/// The evidence of [`Load::Exceeded`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excess {
    /// Index of the task, where the test looks at one after the other.
    pub task: Option<usize>,
    /// The interval that was looked at, in ns.
    pub window: u64,
    /// Execution of the tasks in the window, as far as it counts, in ns.
    pub work: u128,
    /// The limit, in ns. The execution must stay below; some tests allow equality.
    pub room: u128,
}

impl Load {
    /// Whether it is a proof.
    #[must_use]
    pub const fn is_met(self) -> bool {
        matches!(self, Load::Met)
    }
}

/// A verdict with bounds of the response times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Whether all deadlines are kept.
    pub load: Load,
    /// Per task, the longest time from nominal arrival to completion. `None` where it is not proven: under EDF unless
    /// all tasks are, under fixed priorities unless all of its level and of the more important ones are.
    pub responses: Vec<Option<u64>>,
}

/// Tasks that fit the buffer on the stack.
const STACK_MAX: usize = 32;

/// A task as the tests use it: with C >= 1, its window and a reciprocal of T. Times are in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) c: u64,
    pub(crate) d: u64,
    pub(crate) j: u64,
    /// D - J: from the latest release to the deadline.
    pub(crate) window: u64,
    pub(crate) period: Recip,
    pub(crate) level: u32,
    /// Proven: every job completes this much before its deadline.
    pub(crate) slack: u64,
}

impl Slot {
    /// `None` where the task is outside what the tests cover.
    #[inline]
    fn new(task: &Sporadic) -> Option<Slot> {
        let fits = task.t <= TIME_MAX && task.t > 0 && task.d <= task.t;
        fits.then(|| Slot {
            c: task.c.max(1),
            d: task.d,
            j: task.j,
            window: task.d.saturating_sub(task.j),
            period: Recip::new(task.t),
            level: task.level,
            slack: 0,
        })
    }

    /// T.
    #[inline]
    pub(crate) fn t(&self) -> u64 {
        self.period.divisor
    }

    /// The most execution within `length` of jobs that are due within it, carry-in included (EDF).
    /// Deadlines lie at the end and every T before. With q = floor(L / T), r = L mod T: q C +
    /// min(C, max(0, r - S)).
    ///
    /// The first job that is due after the start, at r, executes in [r - D, r - S): at most r - S
    /// of the job inside. If r >= D, all of the job lies inside, and r - S >= D - S >= C.
    #[inline]
    pub(crate) fn workload_due(&self, length: u64) -> u64 {
        let q = self.period.div(length);
        let r = length - q * self.period.divisor;
        q * self.c + self.c.min(r.saturating_sub(self.slack))
    }

    /// The most execution of its jobs within `length`, with any deadlines. The first job starts with
    /// the interval and completes just in time (D - S after its arrival). The next jobs run as soon
    /// as they arrive. With x = L + D - S - C: floor(x / T) C + min(C, x mod T).
    #[inline]
    pub(crate) fn workload(&self, length: u64) -> u64 {
        let x = length + (self.d - self.slack - self.c);
        let n = self.period.div(x);
        n * self.c + self.c.min(x - n * self.period.divisor)
    }

    /// [`Slot::workload`], and for how many more units of length it grows by one unit each.
    #[inline]
    pub(crate) fn workload_and_ramp(&self, length: u64) -> (u64, u64) {
        // Below 2^62, as C <= D - S and all are below 2^60: nothing wraps.
        let x = length.wrapping_add(self.d.wrapping_sub(self.slack).wrapping_sub(self.c));
        let n = self.period.div(x);
        let r = x.wrapping_sub(n.wrapping_mul(self.period.divisor));
        let last = self.c.min(r);
        (n.wrapping_mul(self.c).wrapping_add(last), self.c.wrapping_sub(last))
    }

    /// W^NC: the most execution of its jobs within `length`, without carry-in. With x = L + J: floor(x
    /// / T) C + min(C, x mod T). The first job may have arrived J earlier.
    #[inline]
    pub(crate) fn workload_nc(&self, length: u64) -> u64 {
        self.periodic_workload(length + self.j)
    }

    /// W^CI: the most execution of its jobs within `length`, if a job carries work in and executed in the unit before.
    ///
    /// R = D - S bounds the job's response. Let u be the distance from the start to R after the
    /// job's arrival. The job brings in at most min(C - 1, u), and the next arrives T - R + u after
    /// the start. If u grows by 1, the execution of the next jobs shrinks by at most 1, so u = C -
    /// 1 is the worst.
    ///
    /// Without jitter the larger of this and W^NC is the W^CI of Guan et al. (RTSS 2009).
    #[inline]
    pub(crate) fn workload_ci(&self, length: u64) -> u64 {
        let rest = self.c.saturating_sub(1);
        let next = self.t() - (self.d - self.slack) + rest;
        rest + self.periodic_workload(length.saturating_sub(next))
    }

    /// Execution within `length` of jobs that arrive every T from the start on and run at once.
    #[inline]
    fn periodic_workload(&self, length: u64) -> u64 {
        let q = self.period.div(length);
        q * self.c + self.c.min(length - q * self.period.divisor)
    }

    /// Whether its jobs can delay those of a task on `level`.
    #[inline]
    pub(crate) fn interferes(&self, rule: Rule, level: u32) -> bool {
        rule == Rule::Edf || self.level <= level
    }
}

/// The tasks as [`Slot`]s with a proven slack each. `None` if a task is not covered, or needs more than its window.
pub(crate) fn with_slack(tasks: &[Sporadic], slack: &[u64]) -> Option<Vec<Slot>> {
    let each = |(task, slack): (&Sporadic, &u64)| {
        let slot = Slot::new(task).filter(|slot| slot.c <= slot.window && task.j <= task.d)?;
        Some(Slot { slack: (*slack).min(slot.d - slot.c), ..slot })
    };
    tasks.iter().zip(slack).map(each).collect()
}

/// Calls `work` with the tasks as [`Slot`]s, on the stack if they fit. Simple cases are decided without it.
#[inline]
pub(crate) fn prepared(tasks: &[Sporadic], m: u32, work: impl FnOnce(&mut [Slot]) -> Load) -> Load {
    let mut stack = [Slot::default(); STACK_MAX];
    let mut heap = Vec::new();
    let slots = if tasks.len() <= STACK_MAX {
        &mut stack[..tasks.len()]
    } else {
        heap.resize(tasks.len(), Slot::default());
        &mut heap[..]
    };
    for (task, (slot, given)) in slots.iter_mut().zip(tasks).enumerate() {
        match Slot::new(given) {
            Some(ready) if ready.c > ready.window || given.j > given.d => return Load::TooLong { task },
            Some(ready) => *slot = ready,
            None => return Load::Unfit { task },
        }
    }
    // Each job has a CPU from its release on.
    if tasks.len() <= m as usize {
        return Load::Met;
    }
    if m == 0 { Load::TooLong { task: 0 } } else { work(slots) }
}

/// The interference on task k in its window, and the least interference that makes it miss.
///
/// Bertogna and Cirinei: a miss needs window - C + 1 units with m others running. Each task counts
/// with at most this many units, for its jobs run one at a time. So the interference is the sum of min(W_i,
/// window - C_k + 1), and a miss needs m (window - C_k + 1).
#[inline]
pub(crate) fn interference(slots: &[Slot], k: usize, m: u32, rule: Rule) -> (u128, u128) {
    let task = &slots[k];
    let wait = task.window - task.c + 1;
    let mut sum = 0u128;
    for (i, other) in slots.iter().enumerate() {
        if i == k || !other.interferes(rule, task.level) {
            continue;
        }
        let most = match rule {
            Rule::Edf => other.workload_due(task.window),
            Rule::Fp => other.workload(task.window),
        };
        sum += u128::from(most.min(wait));
    }
    (sum, u128::from(wait) * u128::from(m))
}
