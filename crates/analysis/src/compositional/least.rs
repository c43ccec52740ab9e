//! The least budget for a given period, in whole units of time.
//!
//! **One point.** Let t and W > 0 be given. Let the supply wait λ = p Π - f Θ, with p = f = 1 for
//! PRM, p = 1 and f = 0 for polled, and p = f = 0 for aligned supply. Then sbf(t) = min over y >= 0
//! of y Θ + max(0, t - (y + 1 + p) Π + (1 + f) Θ). The true y = floor((t - λ) / Π) attains this
//! value. A larger y adds Θ without need, and a smaller y counts gaps as supply. So sbf(t) >= W iff
//! for every y
//!
//! Θ >= min(W / y, ((y + 1 + p) Π - t + W) / (y + 1 + f)).
//!
//! The first term falls with y. The second grows, unless it asks for Θ >= Π anyway. They cross at
//! the least y >= 1 with y ((y + 1 + p) Π - t) >= (1 + f) W. The least budget is the larger of two
//! values: the first term at this y, and the second term at y - 1. (Shin and Lee, RTSS 2003,
//! Theorem 4.3, have the real-valued root of this, from a linear bound of sbf.)
//!
//! **Fixed priorities**, D <= T. For each task take the least budget over the step points t of
//! rbf_i in (0, D_i]. The result is the largest of these. It is exact by \[CSA Lemma 1\].
//!
//! **EDF**, any deadlines. A budget that fails does so at a point with more demand than supply. The
//! least budget for that point is a lower bound of the result, so the search continues from it.
//! Each round meets a point that no later round meets again. The first budget that passes is the
//! least.
//!
//! **Fixed priorities**, some D > T. Bisection. A larger budget is never worse, since sbf grows
//! with Θ at every t.
//!
//! **Budgets that come early.** Let a budget start at most s after its period, and so come by Θ + s
//! (EDP). Then the supply is that of PRM, Π - Θ - s earlier. In the form above, p and f are one
//! less, and s is more delay. If Θ + s > Π, it is PRM itself. The least budget for a point is the
//! smaller of both: below Π - s the first form needs less, above it the second.
//!
//! A budget of exactly the load, Θ / Π = U, counts as not enough if busy windows do not end, since
//! nothing can be shown then. With PRM and all D <= T it never is enough, unless Θ = Π.

use std::cmp::Ordering;

use super::{Guarantee, Limit, Supply, Workload, edf, fp};
use crate::edf::qpa::{Demand, EdfTask};
use crate::exact::{FRACTION_BITS, compare_sum, sum_rounded_up};
use crate::fp::rta::FpTask;
use crate::verdict::{Answer, Stop};

/// Step points that the tasks of one component may have together before bisection takes over.
const POINTS_MAX: usize = 1 << 20;
/// Rounds of EDF's search.
const ROUNDS_MAX: usize = 100_000;

/// The least budget of a server of this period that gives `work` in every interval of length t.
/// `None` if even the whole CPU would not.
fn for_point(guarantee: Guarantee, period: u64, t: u64, work: u64) -> Option<u64> {
    let (p, f) = guarantee.start.form();
    let late = i128::from(t) - i128::from(guarantee.delay);
    let by_period = in_form((p, f), period, late, work);
    let Some(wait) = guarantee.wait else { return by_period };
    // Budgets that start by `wait` come Π - Θ - wait earlier, as long as that is not negative; then
    // they come by Π.
    match (in_form((p - 1, f - 1), period, late - i128::from(wait), work), by_period) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The same for a supply that waits p Π - f Θ.
fn in_form((p, f): (i128, i128), period: u64, t: i128, work: u64) -> Option<u64> {
    let (pi, work) = (i128::from(period), i128::from(work));
    if work == 0 {
        return Some(0);
    }
    // The first y with (y + 1 + p) Π > t, and from there the crossing: a few steps.
    let mut y = (t.div_euclid(pi) - p).max(1);
    while y * ((y + 1 + p) * pi - t) < (1 + f) * work {
        y += 1;
    }
    let falling = (work as u128).div_ceil(y as u128);
    let lacking = u128::try_from((y + p) * pi - t + work).unwrap_or(0);
    let growing = match y + f {
        // The time to the budget is too short, whatever the budget.
        0 if lacking > 0 => return None,
        0 => 0,
        parts => lacking.div_ceil(parts as u128),
    };
    u64::try_from(falling.max(growing)).ok().filter(|least| *least <= period)
}

/// The step points of one task: (t, rbf(t)).
pub(crate) type Points = Vec<(u64, u64)>;

/// The step points of every task. `None` if a task's deadline exceeds its period, or if there are
/// too many points.
///
/// Empty for a task that no supply serves in time.
pub(crate) fn points(tasks: &[FpTask]) -> Option<Vec<Points>> {
    let mut total = 0usize;
    let mut all = Vec::with_capacity(tasks.len());
    for (i, task) in tasks.iter().enumerate() {
        if task.d > task.t {
            return None;
        }
        let end = task.d.saturating_sub(task.j);
        let hep = || tasks.iter().enumerate().filter(|(k, other)| *k != i && other.level <= task.level).map(|(_, o)| o);
        let mut steps = vec![end];
        for other in hep() {
            // ceil((t + J) / T) steps after t = k T - J.
            let first = other.j / other.t + 1;
            let last = end.checked_add(other.j)? / other.t;
            total = total.checked_add(usize::try_from((last + 1).saturating_sub(first)).ok()?)?;
            if total > POINTS_MAX {
                return None;
            }
            steps.extend((first..=last).map(|k| k * other.t - other.j));
        }
        steps.sort_unstable();
        steps.dedup();
        let mut own = Vec::with_capacity(steps.len());
        for t in steps.into_iter().filter(|t| *t > 0) {
            let mut work = task.c.checked_add(task.b)?;
            for other in hep() {
                work = work.checked_add(t.checked_add(other.j)?.div_ceil(other.t).checked_mul(other.c)?)?;
            }
            if work <= t {
                own.push((t, work));
            }
        }
        all.push(own);
    }
    Some(all)
}

/// The least budget by step points.
pub(crate) fn by_points(points: &[Points], guarantee: Guarantee, period: u64) -> Option<u64> {
    let mut least = 0;
    for own in points {
        let mut best: Option<u64> = None;
        for (t, work) in own {
            if let Some(one) = for_point(guarantee, period, *t, *work)
                && best.is_none_or(|best| one < best)
            {
                best = Some(one);
                if one <= least {
                    break;
                }
            }
        }
        least = least.max(best?);
    }
    Some(least)
}

impl Workload<'_> {
    /// The least budget of a server of this period. `Ok(None)` where even the whole CPU is not enough.
    ///
    /// # Errors
    /// A limit was reached.
    pub fn least_budget(&self, guarantee: Guarantee, period: u64) -> Result<Option<u64>, Limit> {
        match self {
            Workload::Fp(tasks) => match points(tasks) {
                Some(points) => Ok(by_points(&points, guarantee, period)),
                None => bisect(tasks, guarantee, period),
            },
            Workload::Edf(tasks) => by_demand(tasks, guarantee, period),
        }
    }

    /// Whether Θ / Π is the tasks' utilisation: then busy periods need not end, and no horizon may
    /// be known.
    pub(crate) fn is_load(&self, period: u64, budget: u64) -> bool {
        let missing = (period - budget, period);
        compare_sum(self.loads().into_iter().chain([missing]), 1) == Some(Ordering::Equal)
    }

    /// C and T of each task.
    pub(crate) fn loads(&self) -> Vec<(u64, u64)> {
        match self {
            Workload::Fp(tasks) => tasks.iter().map(|task| (task.c, task.t)).collect(),
            Workload::Edf(tasks) => tasks.iter().map(|task| (task.c, task.t)).collect(),
        }
    }

    /// Whether all deadlines are met under a supply.
    pub fn meets(&self, supply: &Supply) -> Answer {
        match self {
            Workload::Fp(tasks) => fp::schedulable(tasks, supply),
            Workload::Edf(tasks) => edf::schedulable(tasks, supply),
        }
    }

    /// Whether a server with this supply is enough.
    pub(crate) fn enough(&self, supply: &Supply) -> Result<bool, Limit> {
        let met = match self {
            Workload::Fp(tasks) => match fp::schedulable(tasks, supply) {
                Answer::Unknown => Err(Stop::Terms),
                answer => Ok(answer == Answer::Yes),
            },
            Workload::Edf(tasks) => edf::analyse(tasks, supply).met(),
        };
        self.decided(met, supply)
    }

    /// The same, from what an analysis found. If Θ / Π is the load, busy windows need not end: taken as not enough.
    pub(crate) fn decided(&self, met: Result<bool, Stop>, supply: &Supply) -> Result<bool, Limit> {
        match met {
            Err(_) if self.is_load(supply.period(), supply.budget()) => Ok(false),
            met => met.map_err(Limit::Analysis),
        }
    }
}

/// What a server of this period gives at least if its share is the sum of these loads. Rounded down, so it may not be
/// enough.
fn by_load(loads: impl Iterator<Item = (u64, u64)>, period: u64) -> Result<u64, Limit> {
    let load = sum_rounded_up(loads).ok_or(Limit::TIME)?;
    u64::try_from(load.checked_mul(u128::from(period)).ok_or(Limit::TIME)? >> FRACTION_BITS).map_err(|_| Limit::TIME)
}

/// The least budget with which [`fp::schedulable`] says yes.
fn bisect(tasks: &[FpTask], guarantee: Guarantee, period: u64) -> Result<Option<u64>, Limit> {
    let meets =
        |budget: u64| guarantee.supply(period, budget).map_or(Ok(false), |supply| Workload::Fp(tasks).enough(&supply));
    if tasks.is_empty() {
        return Ok(Some(0));
    }
    // At or below the load, fixed points may not end.
    let (mut low, mut high) = (by_load(tasks.iter().map(|task| (task.c, task.t)), period)?, period);
    if low > high || high == 0 || !meets(high)? {
        return Ok(None);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if middle > 0 && meets(middle)? { high = middle } else { low = middle + 1 }
    }
    Ok(Some(high))
}

/// EDF's search.
fn by_demand(tasks: &[EdfTask], guarantee: Guarantee, period: u64) -> Result<Option<u64>, Limit> {
    if tasks.is_empty() {
        return Ok(Some(0));
    }
    // A lower bound to start with: the largest budget that any of the first deadlines needs.
    let mut first = demand_points(tasks, 4 * tasks.len() + 16).into_iter();
    let larger = |most: u64, (t, work)| Some(for_point(guarantee, period, t, work)?.max(most));
    let mut budget = first.try_fold(0, larger);
    for _ in 0..ROUNDS_MAX {
        let Some(tried) = budget.filter(|budget| *budget <= period) else { return Ok(None) };
        let Some(supply) = guarantee.supply(period, tried) else { return Ok(None) };
        budget = match edf::analyse(tasks, &supply) {
            Demand::Met { .. } => return Ok(Some(tried)),
            Demand::Exceeded { t, demand } => for_point(guarantee, period, t, demand),
            Demand::Overload => Some(by_load(tasks.iter().map(|task| (task.c, task.t)), period)?.max(tried + 1)),
            // U = Θ / Π: no horizon, and more than this is needed unless deadlines are far longer
            // than periods.
            Demand::Undecided(_) if Workload::Edf(tasks).is_load(period, tried) => tried.checked_add(1),
            Demand::Undecided(stop) => return Err(Limit::Analysis(stop)),
        };
    }
    Err(Limit::Rounds(ROUNDS_MAX))
}

/// The first deadlines of the synchronous pattern with the demand until each.
pub(crate) fn demand_points(tasks: &[EdfTask], count: usize) -> Points {
    let mut points = Points::new();
    let next = |task: &EdfTask, after: u64| {
        // Deadlines: D, and D + k T - burst.
        if after < task.d {
            return Some(task.d);
        }
        let k = (after - task.d).checked_add(task.burst)? / task.t + 1;
        task.d.checked_add(k.checked_mul(task.t)?)?.checked_sub(task.burst)
    };
    let mut t = 0;
    while points.len() < count {
        let Some(deadline) = tasks.iter().filter_map(|task| next(task, t)).min() else { break };
        let Some(work) = crate::edf::qpa::demand(tasks, None, deadline) else { break };
        points.push((deadline, work));
        t = deadline;
    }
    points
}
