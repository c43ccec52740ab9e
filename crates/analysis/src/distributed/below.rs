//! EDF below a time table on one CPU: demand against the supply that the table leaves.
//!
//! Table jobs (receiving, sending, the scheduler's tick) come before every EDF job. In u time units after an instant
//! without pending table work they take at most
//!
//! rbf(u) = sum over the table of ceil((u + L) / T) C
//!
//! Two releases can be closer than a multiple of T by up to L ([`TableJob::late`]). If a timer is
//! late by up to L, a job released in [s, s + u) has its multiple of T in (s - L, s + u). *Ordinary
//! threads* take up to Q anywhere in each period P. They count as a table job (Q, P) with L = P -
//! Q. Proof: let the window begin s before the end of a period, and k = ceil((u - Q) / P). If s >=
//! Q, this period takes at most Q, and ceil((u - s) / P) <= k periods begin in the window, each
//! with at most Q. If s < Q, this period takes at most s, and at most k + 1 periods begin in the
//! window. The first k of these take Q each. The last begins at s + k P and takes at most the rest
//! of the window, u - s - k P <= Q - s. Together at most (k + 1) Q = ceil((u + P - Q) / P) Q.
//!
//! EDF jobs demand, of what is released and due within t,
//!
//! h(t) = sum over i with D_i <= t of (floor((t - D_i + Y_i) / T_i) + 1) C_i
//!
//! D_i is the least time from a release to its deadline. Deadlines come T_i apart and wander by up
//! to Y_i ([`Job::release_delay`]). To this add the blocking β(t). It is a section of a job with a later
//! deadline, given per task (`blocked`, of tasks with D_i <= t). If started jobs run to their end,
//! it is the longest job that can be due later than t ([`Job::span`]).
//!
//! **Theorem.** If for every t > 0 with h(t) > 0 there is u <= t with h(t) + β(t) + rbf(u) <= u, no
//! EDF job misses its deadline. *Proof.* Let a job miss its deadline t2. Let t0 < t2 be the last
//! instant at which neither table work nor a job due by t2 is pending (released before, not
//! completed). Let t = t2 - t0. From t0 to t2 the CPU runs table jobs and jobs due by t2, all
//! released at or after t0. It also runs one section begun before t0, and ordinary threads. Up to
//! t0 + u there is at most rbf(u) + h(t) + β(t) <= u of this work, and the CPU has run for u. So
//! all of h(t) is done by t0 + u <= t2, the missing job too. Contradiction.
//!
//! The least such u is a fixed point. [`EdfBelowTable::analyse`] goes downwards through the deadlines as
//! QPA does, from t to the fixed point F(t). This is sound: h(t') <= h(t) and F(t') <= F(t) <= t'
//! for all t' in between (while β(t) is the same).
//!
//! **Horizon.** The first violation lies at or below each of
//! - L, the least L > 0 with L = sum of ceil((L + Y_i) / T_i) C_i + rbf(L) + max β: a violation at
//!   t > L gives a violation at t - L. Let v = u - L. We have h(t) + β + rbf(u) > u and h(t) - h(t -
//!   L) <= sum of ceil((L + Y_i) / T_i) C_i. Also rbf(u) <= rbf(L) + rbf(v), since only the first
//!   of two parts of a window is longer by lateness. Together h(t - L) + rbf(v) > v (and the same
//!   with [`EdfBelowTable::omitted_demand`] on both sides);
//! - (sum of U_i max(0, T_i + Y_i - D_i) + sum of table C (1 + L / T) + max β) / (1 - U), from the condition at u = t.

use std::cmp::Ordering;

use crate::exact::{FRACTION_BITS, compare_sum, sum_rounded_up};

/// Terms (one task's demand each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 20_000_000;

/// A table job, more important than all EDF jobs; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableJob {
    /// C: longest execution, at least 1.
    pub c: u64,
    /// T: distance of releases but for lateness, at least 1.
    pub t: u64,
    /// L: by how much two releases can be closer than a multiple of T.
    pub late: u64,
}

/// EDF jobs of one kind; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// C: longest execution, at least 1.
    pub c: u64,
    /// T: least distance of deadlines but for their wandering, at least 1.
    pub t: u64,
    /// D: least time from a release to its deadline, at least 1.
    pub d: u64,
    /// Y: by how much two deadlines can be closer than a multiple of T.
    pub release_delay: u64,
    /// The longest section of a job due later that can delay it.
    pub blocked: u64,
    /// Most time from a release to its deadline.
    pub span: u64,
}

/// The table and the EDF jobs of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct EdfBelowTable<'a> {
    /// EDF jobs.
    pub jobs: &'a [Job],
    /// The table jobs, more important than the EDF jobs.
    pub table: &'a [TableJob],
    /// Whether a more urgent EDF job interrupts a running one; the table always does.
    pub preemptive: bool,
    /// Blocking of every job in addition to its own, in ns.
    pub extra_blocking: u64,
    /// Demand that is left out of every interval, in ns. The least value that fits tells how far a system is from it.
    pub omitted_demand: u64,
}

impl<'a> EdfBelowTable<'a> {
    /// The jobs and the table as they are.
    pub(super) const fn new(jobs: &'a [Job], table: &'a [TableJob], preemptive: bool) -> Self {
        EdfBelowTable { jobs, table, preemptive, extra_blocking: 0, omitted_demand: 0 }
    }
}

/// The result of the analysis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supply {
    /// Every deadline is met.
    Met {
        /// How far t had to be looked at.
        horizon: u64,
    },
    /// The demand of some interval may not be served in it.
    Exceeded {
        /// The length of the interval.
        t: u64,
        /// h(t) + β(t).
        demand: u64,
    },
    /// More work than time in the long run.
    Overload,
    /// A limit was reached: of the terms, or of 64-bit times.
    Undecided,
}

/// The longest time from a table job's release to its completion, under any order within the table.
/// It is the table's busy period, lateness included. `None`: there is no such period within the
/// limits.
#[must_use]
pub fn table_response(table: &[TableJob]) -> Option<u64> {
    let mut terms_left = TERMS_MAX / 10;
    if compare_sum(table.iter().map(|job| (job.c, job.t)), 1)? == Ordering::Greater {
        return None;
    }
    let mut length = table.iter().try_fold(0u64, |sum, job| sum.checked_add(job.c))?;
    loop {
        terms_left = terms_left.checked_sub(table.len() as u64 + 1)?;
        let next = rbf(table, length)?;
        if next <= length {
            return Some(length);
        }
        length = next;
    }
}

/// Most time of the table in u time units that begin without pending table work.
fn rbf(table: &[TableJob], u: u64) -> Option<u64> {
    table
        .iter()
        .try_fold(0u64, |sum, job| sum.checked_add(u.checked_add(job.late)?.div_ceil(job.t).checked_mul(job.c)?))
}

impl EdfBelowTable<'_> {
    /// h(t).
    fn h(&self, t: u64) -> Option<u64> {
        self.jobs.iter().filter(|job| job.d <= t).try_fold(0u64, |sum, job| {
            let count = ((t - job.d).checked_add(job.release_delay)? / job.t).checked_add(1)?;
            sum.checked_add(count.checked_mul(job.c)?)
        })
    }

    /// β(t).
    pub(crate) fn blocking(&self, t: u64) -> Option<u64> {
        let section = self.jobs.iter().filter(|job| job.d <= t).map(|job| job.blocked).max().unwrap_or(0);
        let whole = self.jobs.iter().filter(|job| !self.preemptive && job.span > t).map(|job| job.c).max().unwrap_or(0);
        section.checked_add(whole)?.checked_add(self.extra_blocking)
    }

    /// The largest β.
    fn blocking_max(&self) -> Option<u64> {
        let section = self.jobs.iter().map(|job| job.blocked).max().unwrap_or(0);
        let whole = self.jobs.iter().filter(|_| !self.preemptive).map(|job| job.c).max().unwrap_or(0);
        section.checked_add(whole)?.checked_add(self.extra_blocking)
    }

    /// The longest busy period in ns: under any order that keeps the CPU busy, each job is done that long after its
    /// release. `None` if it is not below `limit`, or not found within the limits.
    ///
    /// Releases in u time units have their deadlines in less than u + span - D, so there are at most ceil((u +
    /// span - D + Y) / T) of them.
    pub(crate) fn busy_period_of_releases(&self, limit: u64) -> Option<u64> {
        let wander = |job: &Job| job.span.saturating_sub(job.d).checked_add(job.release_delay);
        let mut terms_left = TERMS_MAX;
        self.least_length(0, limit, wander, &mut terms_left)
    }

    fn loads(&self) -> impl Iterator<Item = (u64, u64)> + Clone {
        self.jobs.iter().map(|job| (job.c, job.t)).chain(self.table.iter().map(|job| (job.c, job.t)))
    }

    /// Whether EDF keeps all deadlines.
    #[must_use]
    pub fn analyse(&self) -> Supply {
        match compare_sum(self.loads(), 1) {
            Some(Ordering::Greater) => return Supply::Overload,
            None => return Supply::Undecided,
            _ if self.jobs.is_empty() => return Supply::Met { horizon: 0 },
            _ => {}
        }
        let mut terms_left = TERMS_MAX;
        let Some(horizon) = self.horizon(&mut terms_left) else { return Supply::Undecided };
        self.scan(horizon, &mut terms_left).unwrap_or(Supply::Undecided)
    }

    /// Downwards through the deadlines up to the horizon.
    fn scan(&self, horizon: u64, terms_left: &mut u64) -> Option<Supply> {
        let mut below = horizon.checked_add(1)?;
        loop {
            *terms_left = terms_left.checked_sub(3 * self.jobs.len() as u64)?;
            let Some(t) = self.deadline_below(below) else { return Some(Supply::Met { horizon }) };
            let demand = self.h(t)?.checked_add(self.blocking(t)?)?.saturating_sub(self.omitted_demand);
            // F(t), or the proof that it exceeds t.
            let mut u = demand;
            loop {
                if u > t {
                    return Some(Supply::Exceeded { t, demand });
                }
                *terms_left = terms_left.checked_sub(self.table.len() as u64 + 1)?;
                let next = demand.checked_add(rbf(self.table, u)?)?;
                if next <= u {
                    break;
                }
                u = next;
            }
            // Between the last span up to t and t the blocking by whole jobs is the same.
            let same = self.jobs.iter().map(|job| job.span).filter(|span| !self.preemptive && *span <= t).max();
            below = u.max(same.unwrap_or(0)).min(t);
        }
    }

    /// F(t): when the work that is due within t is done at the latest. The search stops above 2 t, so a larger result
    /// is a lower bound.
    pub(crate) fn done(&self, t: u64, terms_left: &mut u64) -> Option<u64> {
        let demand = self.h(t)?.checked_add(self.blocking(t)?)?.saturating_sub(self.omitted_demand);
        let mut u = demand;
        loop {
            *terms_left = terms_left.checked_sub(self.table.len() as u64 + 1)?;
            let next = demand.checked_add(rbf(self.table, u)?)?;
            if next <= u || u > t.saturating_mul(2) {
                return Some(u);
            }
            u = next;
        }
    }

    /// The deadline t with the least t - F(t), and F(t). Looks at all deadlines up to the horizon, and at the first
    /// deadline of each task.
    pub(crate) fn tightest(&self) -> Option<(u64, u64)> {
        let mut terms_left = TERMS_MAX;
        let horizon = self.horizon(&mut terms_left)?.max(self.jobs.iter().map(|job| job.d).max()?);
        let (mut below, mut least) = (horizon.checked_add(1)?, None);
        while let Some(t) = self.deadline_below(below) {
            terms_left = terms_left.checked_sub(3 * self.jobs.len() as u64)?;
            let done = self.done(t, &mut terms_left)?;
            if least.is_none_or(|(other, end): (u64, u64)| {
                i128::from(t) - i128::from(done) < i128::from(other) - i128::from(end)
            }) {
                least = Some((t, done));
            }
            below = t;
        }
        least
    }

    fn deadline_below(&self, t: u64) -> Option<u64> {
        let before = |job: &Job| {
            let k = (u128::from(t - 1 - job.d) + u128::from(job.release_delay)) / u128::from(job.t);
            let last = (u128::from(job.d) + k * u128::from(job.t)).saturating_sub(u128::from(job.release_delay));
            // At most t - 1.
            (last as u64).max(job.d)
        };
        self.jobs.iter().filter(|job| job.d < t).map(before).max()
    }

    fn horizon(&self, terms_left: &mut u64) -> Option<u64> {
        // The other bounds often suffice.
        let delay = |job: &Job| Some(job.release_delay);
        let busy = self.blocking_max().and_then(|more| self.least_length(more, u64::MAX, delay, terms_left));
        [self.horizon_by_load(), busy, self.horizon_by_cycle()].into_iter().flatten().min()
    }

    /// max D + lcm T: from max D on h and rbf grow by no more than lcm T every lcm T, so a
    /// violation beyond has one before it.
    fn horizon_by_cycle(&self) -> Option<u64> {
        let mut cycle = 1u64;
        for (_, t) in self.loads() {
            cycle = cycle.checked_mul(t / takt_model::gcd(cycle, t))?;
        }
        let spans = self.jobs.iter().map(|job| job.d.max(if self.preemptive { 0 } else { job.span }));
        spans.max()?.checked_add(cycle)
    }

    fn horizon_by_load(&self) -> Option<u64> {
        // To 2^-32, so that the products fit.
        const BITS: u32 = 32;
        let load = sum_rounded_up(self.loads())?;
        let idle = (1u128 << BITS).checked_sub((load >> (FRACTION_BITS - BITS)) + 1).filter(|idle| *idle > 0)?;
        let mut sum = u128::from(self.blocking_max()?);
        for job in self.table {
            let late = u128::from(job.late).checked_mul(u128::from(job.c))?.div_ceil(u128::from(job.t));
            sum = sum.checked_add(u128::from(job.c))?.checked_add(late)?;
        }
        for job in self.jobs {
            let carried = (u128::from(job.t) + u128::from(job.release_delay)).saturating_sub(u128::from(job.d));
            sum = sum.checked_add(carried.checked_mul(u128::from(job.c))?.div_ceil(u128::from(job.t)))?;
        }
        u64::try_from((sum.checked_mul(1 << BITS)?).div_ceil(idle)).ok()
    }

    /// The least length in which the CPU does `more` and all work that can come in it. A task can have as many jobs in
    /// it as in a time that is longer by its `wander`. `None` if the length is not below `limit`, or a tenth of the
    /// terms does not suffice.
    fn least_length(
        &self,
        more: u64,
        limit: u64,
        wander: impl Fn(&Job) -> Option<u64>,
        terms_left: &mut u64,
    ) -> Option<u64> {
        let terms = (self.jobs.len() + self.table.len()) as u64 + 1;
        let mut rounds = *terms_left / 10 / terms;
        let mut length = self.loads().try_fold(more, |sum, (c, _)| sum.checked_add(c))?;
        while length < limit {
            rounds = rounds.checked_sub(1)?;
            *terms_left -= terms;
            let next = self.jobs.iter().try_fold(more.checked_add(rbf(self.table, length)?)?, |sum, job| {
                sum.checked_add(length.checked_add(wander(job)?)?.div_ceil(job.t).checked_mul(job.c)?)
            })?;
            if next <= length {
                return Some(length);
            }
            length = next;
        }
        None
    }

    /// The most by which every job could be blocked in addition and still be in time, in ns. `None` if some job may be
    /// late, or there are no jobs.
    #[must_use]
    pub fn margin(&self) -> Option<u64> {
        let fits = |more: u64| {
            let Some(extra_blocking) = self.extra_blocking.checked_add(more) else { return false };
            matches!(EdfBelowTable { extra_blocking, ..*self }.analyse(), Supply::Met { .. })
        };
        let mut most = self.jobs.iter().map(|job| job.d).min()?;
        let mut least = 0;
        if !fits(0) {
            return None;
        }
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if fits(middle) { least = middle } else { most = middle - 1 }
        }
        Some(least)
    }
}
