//! The period and budget of the least bandwidth Θ / Π, in multiples of a quantum: \[CSA Algorithm
//! 1\], and EDF.
//!
//! The search tries every period from one quantum on, with its least budget, up to a cap. The cap
//! shrinks as the search finds better bandwidths κ. Of equal bandwidths the one of the largest
//! period wins, which means fewer switches. The paper's `<` would keep the smallest.
//!
//! **The cap.** Let α = Θ / Π. In its worst interval of length t a server of Π and Θ gives at most
//! α (t - Π (1 - α)), and exactly this where a budget ends. So if the server must meet a demand W
//! at t, Π <= (α t - W) / (α (1 - α)). The right side is (t - W / α) / (1 - α). It grows with α as
//! long as it is not negative. So every server with α <= κ < 1 has
//!
//! Π <= (κ t - W) / (κ (1 - κ)).
//!
//! - Fixed priorities (\[CSA Theorem 1\]): each task must meet some step point t. So the cap is the
//!   least over the tasks of the largest over their points. The premise of the theorem does not
//!   hold for the first κ. Only this upper bound is used, and it holds for any κ.
//! - EDF: every t with demand must be met. So the cap is the least over all t. Any few of them give
//!   a cap, and the first deadlines are taken. (The paper's p_n is no cap for EDF: {(3, 1), (4, 1),
//!   (5, 1)} has its best at (6, 5).)
//!
//! **While κ = 1** the formula divides by zero.
//! - Fixed priorities, D <= T: let Dmax be the longest deadline. Up to t = Dmax <= Π a server gives
//!   max(0, t - 2 (Π - Θ)), which depends on Π - Θ alone. So (Dmax, Dmax - (Π - Θ)) does as well
//!   with less bandwidth, and no larger Π is needed. If the quantum does not divide Dmax, the cap
//!   is Dmax rounded up.
//! - EDF, and fixed priorities with D > T: take a server with Π - Θ = b. A server with the same b
//!   and a larger period has fewer gaps of b, so it serves no less. So if any server below the full
//!   CPU serves, a server with b = one quantum and a period that is large enough does. The search
//!   doubles the period until one does. Then κ < 1. If t - 2 b is not enough, no server below the
//!   full CPU serves.
//!
//! Polled servers give less than PRM, so the cap holds for them. A supply that is noticed later
//! gives less too. The cap does not hold for aligned servers. Their periods divide every task's
//! period, and the search tries them all.
//!
//! **Costs of a server** may depend on its period ([`Search::charge`]). They enlarge the budget and
//! not the supply. The cap holds, since the supply has less bandwidth than κ.

use super::least::{Points, by_points, demand_points, points};
use super::{Guarantee, Limit, Start, Supply, Workload, edf};
use crate::edf::qpa::Demand;
use crate::exact::{FRACTION_BITS, sum_rounded_up};
use crate::verdict::Answer;

/// Periods that one search may try.
pub const PERIODS_MAX: u64 = 4_000_000;
/// Deadlines from which the cap of EDF is taken.
const DEADLINES_MAX: usize = 256;
/// Points at which servers failed, kept to reject the next server quickly.
const FAILED_POINTS_MAX: usize = 16;
/// Doublings of the period while only the full CPU is known to serve.
const DOUBLINGS_MAX: u32 = 20;

/// A server's period and budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Π.
    pub period: u64,
    /// Θ.
    pub budget: u64,
}

/// The inputs of a search.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// What the server must serve.
    pub workload: Workload<'a>,
    /// Periods and budgets are multiples of this, at least 1.
    pub quantum: u64,
    /// What the server guarantees.
    pub guarantee: Guarantee,
    /// If this is not zero, all releases fall on its multiples. Servers whose period divides it
    /// guarantee [`Start::Aligned`] without delay.
    pub aligned: u64,
    /// The loss of each budget for a server of this period. `None`: unknown.
    pub charge: &'a dyn Fn(u64) -> Option<u64>,
}

impl std::fmt::Debug for Search<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Search { workload, quantum, guarantee, aligned, .. } = self;
        write!(f, "Search {{ {workload:?}, quantum {quantum}, {guarantee:?}, aligned {aligned} }}")
    }
}

/// The server of the least bandwidth. Of equal ones, that of the largest period. `Ok(None)`: even
/// the full CPU is not enough.
///
/// If only the full CPU serves, every period would do. The result then has the longest deadline,
/// rounded up to a quantum, as its period.
///
/// # Errors
/// A limit was reached.
pub fn best(search: &Search) -> Result<Option<Interface>, Limit> {
    Finder::new(search)?.find()
}

struct Finder<'a> {
    search: &'a Search<'a>,
    /// The points (t, W) of each task, for fixed priorities with D <= T.
    points: Option<Vec<Points>>,
    /// The first deadlines t and the demand W there, for EDF.
    deadlines: Points,
    /// The last deadlines at which a supply failed, for EDF.
    failed_points: Points,
    /// The task of `points` that failed last. It is tried first.
    failed: usize,
    /// For each task of `points` the point that was met last. It is tried first.
    met: Vec<usize>,
    best: Option<Interface>,
    /// The longest relative deadline.
    longest: u64,
    /// Utilisation in units of 2^-64, at most the true one.
    load: u128,
}

impl<'a> Finder<'a> {
    fn new(search: &'a Search<'a>) -> Result<Finder<'a>, Limit> {
        let (points, deadlines, longest) = match search.workload {
            Workload::Fp(tasks) => (points(tasks), Points::new(), tasks.iter().map(|task| task.d).max()),
            Workload::Edf(tasks) => (None, demand_points(tasks, DEADLINES_MAX), tasks.iter().map(|task| task.d).max()),
        };
        let load = sum_rounded_up(search.workload.loads().into_iter());
        let count = points.as_ref().map_or(0, Vec::len);
        let longest = longest.unwrap_or(0);
        let load = load.ok_or(Limit::TIME)?.saturating_sub(1 << 20);
        Ok(Finder {
            search,
            points,
            deadlines,
            failed_points: Points::new(),
            failed: 0,
            met: vec![0; count],
            best: None,
            longest,
            load,
        })
    }

    fn find(mut self) -> Result<Option<Interface>, Limit> {
        let quantum = self.search.quantum.max(1);
        let round_up = |t: u64| t.div_ceil(quantum).max(1).checked_mul(quantum).ok_or(Limit::TIME);
        let top = round_up(self.longest)?;
        // First a few likely periods, among them the longest deadline, for a low κ at the start.
        let mut seed = top;
        while seed > quantum {
            self.try_period(seed)?;
            seed = (seed / 2).div_ceil(quantum) * quantum;
            if seed == quantum || seed < top / 64 {
                break;
            }
        }
        if self.points.is_none() && self.best.is_none_or(|best| best.budget == best.period) {
            self.find_below_full(top, quantum)?;
        }
        let mut tried = 0;
        let mut period = quantum;
        while period <= self.cap(top) {
            tried += 1;
            if tried > PERIODS_MAX {
                return Err(Limit::Periods);
            }
            self.try_period(period)?;
            period = period.checked_add(quantum).ok_or(Limit::TIME)?;
        }
        for divisor in aligned_periods(self.search.aligned, quantum).into_iter().filter(|divisor| *divisor >= period) {
            self.try_period(divisor)?;
        }
        Ok(self.best)
    }

    /// The largest period that is worth a try. No larger one, unless aligned, does with the best bandwidth so far.
    fn cap(&self, top: u64) -> u64 {
        let Some(Interface { period, budget }) = self.best.filter(|best| best.budget < best.period) else { return top };
        // κ = a / b: b (a t - b W) / (a (b - a)).
        let (a, b) = (i128::from(budget), i128::from(period));
        let at = |&(t, work): &(u64, u64)| {
            let spare = (a * i128::from(t)).checked_sub(b * i128::from(work))?;
            // Divided in two steps, each rounded towards the larger cap.
            let cap = spare.checked_mul(b).map(|product| product / (a * (b - a)));
            u64::try_from(cap.unwrap_or(i128::MAX).max(0)).ok()
        };
        match &self.points {
            Some(points) => {
                let over_tasks = points.iter().map(|own| own.iter().map(|point| at(point).unwrap_or(u64::MAX)).max());
                over_tasks.map(|most| most.unwrap_or(0)).min().unwrap_or(top)
            }
            None => {
                let first = self.deadlines.iter().map(|point| at(point).unwrap_or(u64::MAX)).min();
                // Fixed priorities with D > T: their first job is due at D.
                first.or_else(|| self.cap_by_first_jobs(&at)).unwrap_or(top)
            }
        }
    }

    /// The cap of fixed priorities with D > T. Each task's first job must meet some point (t, W)
    /// with t <= D and W >= C. The cap of such a point is at most that of (D, C).
    fn cap_by_first_jobs(&self, at: &dyn Fn(&(u64, u64)) -> Option<u64>) -> Option<u64> {
        let Workload::Fp(tasks) = self.search.workload else { return None };
        tasks.iter().map(|task| at(&(task.d, task.c)).unwrap_or(u64::MAX)).min()
    }

    /// Doubles the period until a server below the full CPU serves, if none has so far.
    fn find_below_full(&mut self, top: u64, quantum: u64) -> Result<(), Limit> {
        let Some(gaps) = quantum.checked_mul(2) else { return Ok(()) };
        let possible = match self.search.guarantee.start {
            Start::Anywhere => {
                self.search.workload.meets(&Supply::DEDICATED.delayed(gaps.saturating_add(self.search.guarantee.delay)))
            }
            // The wait grows with the period: past the longest deadline nothing serves.
            Start::Polled | Start::Aligned => Answer::No,
        };
        if possible == Answer::No {
            return Ok(());
        }
        let mut full = self.best;
        let mut period = top;
        for _ in 0..DOUBLINGS_MAX {
            period = period.checked_mul(2).ok_or(Limit::TIME)?;
            self.try_period(period)?;
            if self.best.is_some_and(|best| best.budget < best.period) {
                return Ok(());
            }
            full = full.or(self.best);
        }
        self.best = full;
        Ok(())
    }

    fn guarantee(&self, period: u64) -> Guarantee {
        if self.search.aligned > 0 && self.search.aligned.is_multiple_of(period) {
            Guarantee { start: Start::Aligned, delay: 0, wait: None }
        } else {
            self.search.guarantee
        }
    }

    /// Keeps the least budget of one period if it is better than the best so far.
    fn try_period(&mut self, period: u64) -> Result<(), Limit> {
        let quantum = self.search.quantum.max(1);
        let charge = (self.search.charge)(period).ok_or(Limit::Costs)?;
        // The budget at the best bandwidth so far. A larger one would be no better.
        let most = match self.best {
            Some(best) => {
                let most = u128::from(best.budget) * u128::from(period) / u128::from(best.period);
                (most as u64).min(period) / quantum * quantum
            }
            None => period / quantum * quantum,
        };
        let guarantee = self.guarantee(period);
        let Some(supply) = most.checked_sub(charge).and_then(|budget| guarantee.supply(period, budget)) else {
            return Ok(());
        };
        // A server with less than the load serves nothing.
        if (u128::from(supply.budget()) << FRACTION_BITS) / u128::from(period) < self.load || !self.meets(&supply)? {
            return Ok(());
        }
        let budget = match &self.points {
            Some(points) => {
                let least = by_points(points, guarantee, period).ok_or(Limit::TIME)?;
                round_up_to(least.checked_add(charge).ok_or(Limit::TIME)?, quantum)?
            }
            None => self.least(guarantee, period, charge, most)?,
        };
        let better = |best: Interface| {
            let (new, old) =
                (u128::from(budget) * u128::from(best.period), u128::from(best.budget) * u128::from(period));
            new < old || (new == old && period > best.period)
        };
        if self.best.is_none_or(better) {
            self.best = Some(Interface { period, budget });
        }
        Ok(())
    }

    /// The least budget up to `most`, which is enough, by bisection.
    fn least(&mut self, guarantee: Guarantee, period: u64, charge: u64, most: u64) -> Result<u64, Limit> {
        let quantum = self.search.quantum.max(1);
        let (mut low, mut high) = (1, most / quantum);
        while low < high {
            let middle = low + (high - low) / 2;
            let supply = (middle * quantum).checked_sub(charge).and_then(|budget| guarantee.supply(period, budget));
            let enough = match supply {
                Some(supply) if (u128::from(supply.budget()) << FRACTION_BITS) / u128::from(period) >= self.load => {
                    self.meets(&supply)?
                }
                _ => false,
            };
            if enough { high = middle } else { low = middle + 1 }
        }
        Ok(high * quantum)
    }

    fn meets(&mut self, supply: &Supply) -> Result<bool, Limit> {
        let Some(points) = &self.points else { return self.meets_demand(supply) };
        let count = points.len();
        for step in 0..count {
            // The task that failed last comes first, and of each the point that was met last.
            let i = (self.failed + step) % count;
            let own = &points[i];
            let is_met = |&(t, work): &(u64, u64)| supply.sbf(t) >= work;
            if own.get(self.met[i]).is_some_and(is_met) {
                continue;
            }
            match own.iter().position(is_met) {
                Some(at) => self.met[i] = at,
                None => {
                    self.failed = i;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn meets_demand(&mut self, supply: &Supply) -> Result<bool, Limit> {
        if self.failed_points.iter().any(|(t, work)| supply.sbf(*t) < *work) {
            return Ok(false);
        }
        let workload = self.search.workload;
        let Workload::Edf(tasks) = workload else { return workload.enough(supply) };
        let demand = edf::analyse(tasks, supply);
        if let Demand::Exceeded { t, demand } = demand {
            if self.failed_points.len() == FAILED_POINTS_MAX {
                self.failed_points.remove(0);
            }
            self.failed_points.push((t, demand));
        }
        workload.decided(demand.met(), supply)
    }
}

fn round_up_to(t: u64, quantum: u64) -> Result<u64, Limit> {
    t.div_ceil(quantum).checked_mul(quantum).ok_or(Limit::TIME)
}

/// The multiples of the quantum that divide `gcd`.
pub(crate) fn aligned_periods(gcd: u64, quantum: u64) -> Vec<u64> {
    if gcd == 0 || !gcd.is_multiple_of(quantum) {
        return Vec::new();
    }
    // The divisors of n = gcd / quantum, by trial division up to its root. If the root is too large
    // to try, the large divisors gcd / k are still found.
    let n = gcd / quantum;
    let mut divisors: Vec<u64> = Vec::new();
    for k in (1..=1_000_000).take_while(|k| k * k <= n).filter(|k| n.is_multiple_of(*k)) {
        divisors.push(quantum * k);
        divisors.push(quantum * (n / k));
    }
    divisors.sort_unstable();
    divisors.dedup();
    divisors
}
