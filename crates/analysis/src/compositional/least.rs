//! The least budget for a given period: exact as a fraction, or in multiples of a quantum.
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
//! **Fixed priorities**, some D > T. Bisection over multiples of the quantum. A larger budget is
//! never worse, since sbf grows with Θ at every t.
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
use crate::verdict::Answer;

/// Step points that the tasks of one component may have together before bisection takes over.
pub const POINTS_MAX: usize = 1 << 20;
/// Rounds of EDF's search.
const ROUNDS_MAX: usize = 100_000;

/// A time as a fraction: `units` / `of`, in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exact {
    /// Numerator.
    pub units: u64,
    /// Denominator, above zero.
    pub of: u64,
}

impl Exact {
    /// `None` if it does not fit.
    fn new(numerator: u128, denominator: u128) -> Option<Exact> {
        let (mut a, mut b) = (numerator, denominator);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Some(Exact { units: u64::try_from(numerator / a).ok()?, of: u64::try_from(denominator / a).ok()? })
    }

    /// The least multiple of `quantum` that is no less. `None` if it does not fit.
    #[must_use]
    pub fn up_to(self, quantum: u64) -> Option<u64> {
        let quanta = u128::from(self.units).div_ceil(u128::from(self.of) * u128::from(quantum));
        u64::try_from(quanta * u128::from(quantum)).ok()
    }

    fn max(self, other: Exact) -> Exact {
        if self.less_than(other) { other } else { self }
    }

    /// Whether this is less than the other.
    #[must_use]
    pub fn less_than(self, other: Exact) -> bool {
        u128::from(self.units) * u128::from(other.of) < u128::from(other.units) * u128::from(self.of)
    }
}

/// The least budget of a server of this period that gives `work` in every interval of length t.
/// `None` if even the whole CPU would not.
#[must_use]
pub fn for_point(guarantee: Guarantee, period: u64, t: u64, work: u64) -> Option<Exact> {
    let (p, f) = guarantee.start.form();
    let late = i128::from(t) - i128::from(guarantee.delay);
    let by_period = in_form((p, f), period, late, work);
    let Some(wait) = guarantee.wait else { return by_period };
    // Budgets that start by `wait` come Π - Θ - wait earlier, as long as that is not negative; then
    // they come by Π.
    match (in_form((p - 1, f - 1), period, late - i128::from(wait), work), by_period) {
        (Some(one), Some(other)) => Some(if one.less_than(other) { one } else { other }),
        (one, other) => one.or(other),
    }
}

/// The same for a supply that waits p Π - f Θ.
fn in_form((p, f): (i128, i128), period: u64, t: i128, work: u64) -> Option<Exact> {
    let (pi, work) = (i128::from(period), i128::from(work));
    if work == 0 {
        return Exact::new(0, 1);
    }
    // The first y with (y + 1 + p) Π > t, and from there the crossing: a few steps.
    let mut y = (t.div_euclid(pi) - p).max(1);
    while y * ((y + 1 + p) * pi - t) < (1 + f) * work {
        y += 1;
    }
    let falling = Exact::new(work as u128, y as u128)?;
    let lacking = u128::try_from((y + p) * pi - t + work).unwrap_or(0);
    let growing = match y + f {
        // The time to the budget is too short, whatever the budget.
        0 if lacking > 0 => return None,
        0 => falling,
        parts => Exact::new(lacking, parts as u128)?,
    };
    let least = falling.max(growing);
    (u128::from(least.units) <= u128::from(period) * u128::from(least.of)).then_some(least)
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
pub(crate) fn by_points(points: &[Points], guarantee: Guarantee, period: u64) -> Option<Exact> {
    let mut least = Exact { units: 0, of: 1 };
    for own in points {
        let mut best: Option<Exact> = None;
        for (t, work) in own {
            if let Some(one) = for_point(guarantee, period, *t, *work)
                && best.is_none_or(|best| one.less_than(best))
            {
                best = Some(one);
                if !least.less_than(one) {
                    break;
                }
            }
        }
        least = least.max(best?);
    }
    Some(least)
}

impl Workload<'_> {
    /// The least budget of a server of this period: exact. `Ok(None)` where even the whole CPU is
    /// not enough.
    ///
    /// In whole units of time for fixed priorities where some deadline exceeds its period.
    ///
    /// # Errors
    /// A limit was reached, or a fraction does not fit.
    pub fn least_budget(&self, guarantee: Guarantee, period: u64) -> Result<Option<Exact>, Limit> {
        match self {
            Workload::Fp(tasks) => match points(tasks) {
                Some(points) => Ok(by_points(&points, guarantee, period)),
                None => Ok(bisect(tasks, guarantee, period, 1)?.map(|units| Exact { units, of: 1 })),
            },
            Workload::Edf(tasks) => by_demand(tasks, guarantee, period, None),
        }
    }

    /// The least budget in multiples of `quantum`.
    ///
    /// # Errors
    /// As [`least_budget`](Workload::least_budget).
    pub fn least_quanta(&self, guarantee: Guarantee, period: u64, quantum: u64) -> Result<Option<u64>, Limit> {
        let fits = |budget: Exact| budget.up_to(quantum).filter(|budget| *budget <= period);
        match self {
            Workload::Fp(tasks) => match points(tasks) {
                Some(points) => Ok(by_points(&points, guarantee, period).and_then(fits)),
                None => bisect(tasks, guarantee, period, quantum),
            },
            Workload::Edf(tasks) => Ok(by_demand(tasks, guarantee, period, Some(quantum))?.and_then(fits)),
        }
    }

    /// Whether Θ / Π is the tasks' utilisation: then busy periods need not end, and no horizon may
    /// be known.
    pub(crate) fn is_load(&self, period: u64, budget: u64) -> bool {
        let missing = (period - budget, period);
        let compared = match self {
            Workload::Fp(tasks) => compare_sum(tasks.iter().map(|task| (task.c, task.t)).chain([missing]), 1),
            Workload::Edf(tasks) => compare_sum(tasks.iter().map(|task| (task.c, task.t)).chain([missing]), 1),
        };
        compared == Some(Ordering::Equal)
    }

    /// Whether all deadlines are met under a supply.
    pub fn meets(&self, supply: &Supply) -> Answer {
        match self {
            Workload::Fp(tasks) => fp::schedulable(tasks, supply),
            Workload::Edf(tasks) => edf::schedulable(tasks, supply),
        }
    }
}

/// The least multiple of the quantum with which [`fp::schedulable`] says yes.
fn bisect(tasks: &[FpTask], guarantee: Guarantee, period: u64, quantum: u64) -> Result<Option<u64>, Limit> {
    let meets = |quanta: u64| {
        let supply = guarantee.supply(period, quanta * quantum);
        match supply.map_or(Answer::No, |supply| fp::schedulable(tasks, &supply)) {
            // Where Θ / Π is the load, busy windows need not end: taken as not enough.
            Answer::Unknown if Workload::Fp(tasks).is_load(period, quanta * quantum) => Ok(false),
            Answer::Unknown => Err(Limit),
            answer => Ok(answer == Answer::Yes),
        }
    };
    if tasks.is_empty() {
        return Ok(Some(0));
    }
    // The sum of loads gives a lower bound. At or below it, fixed points may not end.
    let load = sum_rounded_up(tasks.iter().map(|task| (task.c, task.t))).ok_or(Limit)?;
    let least = (load.checked_mul(u128::from(period)).ok_or(Limit)? >> FRACTION_BITS) / u128::from(quantum);
    let (mut low, mut high) = (u64::try_from(least).map_err(|_| Limit)?, period / quantum);
    if low > high || high == 0 || !meets(high)? {
        return Ok(None);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if middle > 0 && meets(middle)? { high = middle } else { low = middle + 1 }
    }
    Ok(Some(high * quantum))
}

/// EDF's search, over fractions or (`quantum`) over multiples of a quantum.
fn by_demand(
    tasks: &[EdfTask],
    guarantee: Guarantee,
    period: u64,
    quantum: Option<u64>,
) -> Result<Option<Exact>, Limit> {
    let round = |budget: Exact| match quantum {
        Some(quantum) => budget.up_to(quantum).map(|units| Exact { units, of: 1 }).ok_or(Limit),
        None => Ok(budget),
    };
    if tasks.is_empty() {
        return Ok(Some(Exact { units: 0, of: 1 }));
    }
    let Some(mut budget) = first_guess(tasks, guarantee, period)? else { return Ok(None) };
    for _ in 0..ROUNDS_MAX {
        budget = round(budget)?;
        if u128::from(budget.units) > u128::from(period) * u128::from(budget.of) {
            return Ok(None);
        }
        // Scales time so that the budget is whole.
        let scale = budget.of;
        let scaled: Vec<EdfTask>;
        let (tasks, finer, wide) = if scale == 1 {
            (tasks, guarantee, period)
        } else {
            scaled = tasks.iter().map(|task| scaled_up(task, scale)).collect::<Option<_>>().ok_or(Limit)?;
            let delay = guarantee.delay.checked_mul(scale).ok_or(Limit)?;
            let wait = guarantee.wait.map(|wait| wait.saturating_mul(scale));
            (scaled.as_slice(), Guarantee { delay, wait, ..guarantee }, period.checked_mul(scale).ok_or(Limit)?)
        };
        let Some(supply) = finer.supply(wide, budget.units) else { return Ok(None) };
        let more = match edf::analyse(tasks, &supply) {
            Demand::Met { .. } => return Ok(Some(budget)),
            Demand::Exceeded { t, demand } => for_point(finer, wide, t, demand),
            Demand::Overload if utilisation(tasks).is_none() => return Err(Limit),
            Demand::Overload => utilisation(tasks).and_then(|(c, t)| {
                // Π U, which is more than the budget.
                Exact::new(u128::from(c) * u128::from(wide), u128::from(t))
            }),
            // U = Θ / Π: no horizon, and more than this is needed unless deadlines are far longer
            // than periods.
            Demand::Undecided(_) if quantum.is_some() && Workload::Edf(tasks).is_load(wide, budget.units) => {
                Some(Exact { units: budget.units.saturating_add(1), of: 1 })
            }
            Demand::Undecided(_) => return Err(Limit),
        };
        let Some(more) = more else { return Ok(None) };
        budget = Exact::new(u128::from(more.units), u128::from(more.of) * u128::from(scale)).ok_or(Limit)?;
    }
    Err(Limit)
}

/// The sum of C / T as a fraction; `None` where it does not fit.
fn utilisation(tasks: &[EdfTask]) -> Option<(u64, u64)> {
    let add = |sum: Exact, task: &EdfTask| {
        let (n, d) = (u128::from(sum.units), u128::from(sum.of));
        let (c, t) = (u128::from(task.c), u128::from(task.t));
        Exact::new(n.checked_mul(t)?.checked_add(c.checked_mul(d)?)?, d.checked_mul(t)?)
    };
    let sum = tasks.iter().try_fold(Exact { units: 0, of: 1 }, add)?;
    Some((sum.units, sum.of))
}

/// A lower bound to start with: the largest budget that any of the first deadlines needs.
/// `Ok(None)`: no budget is enough.
fn first_guess(tasks: &[EdfTask], guarantee: Guarantee, period: u64) -> Result<Option<Exact>, Limit> {
    let mut guess = Exact { units: 0, of: 1 };
    for (t, work) in demand_points(tasks, 4 * tasks.len() + 16) {
        let Some(one) = for_point(guarantee, period, t, work) else { return Ok(None) };
        guess = guess.max(one);
    }
    Ok(Some(guess))
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

fn scaled_up(task: &EdfTask, by: u64) -> Option<EdfTask> {
    Some(EdfTask {
        c: task.c.checked_mul(by)?,
        t: task.t.checked_mul(by)?,
        d: task.d.checked_mul(by)?,
        burst: task.burst.checked_mul(by)?,
        b: task.b.checked_mul(by)?,
    })
}
