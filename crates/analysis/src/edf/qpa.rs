//! `qpa`: quick processor-demand analysis of EDF on one CPU.
//!
//! F. Zhang, A. Burns: Schedulability Analysis for Real-Time Systems with EDF Scheduling, IEEE TC 58(9),
//! 2009. A set is schedulable if U <= 1 and h(t) <= t for all t below a horizon L, with
//!
//! h(t) = sum over i of max(0, floor((t + T_i - D_i) / T_i)) C_i  (Eq. 2)
//!
//! Theorems 4 and 5 test it downwards: from t to h(t) where h(t) < t, else to the next deadline below.
//!
//! Extended to what a System can say, each term an upper bound, so that "yes" stays a proof:
//! - Release jitter J: deadlines D - J after the release, for the caller to subtract.
//! - `burst`: releases that wander by up to J, with deadlines that count from the release itself (a
//!   chain's successor). They give floor((t - D + J) / T) + 1 jobs for t >= D.
//! - Blocking: b(t) = max { B_i : D_i <= t }, once per busy period (S. Baruah: Resource Sharing in EDF-Scheduled
//!   Systems: A Closer Look, RTSS 2006, Eq. 3, for blocking that is given per blocked task).
//! - Ticks: floor(t / P) + 1 of them.
//!
//! | paper | here |
//! |---|---|
//! | C, D, T | `c`, `d`, `t` of [`EdfTask`], ns |
//! | h(t) | [`demand`], with blocking and ticks |
//! | L_a (Eq. 4) | U-based horizon: (sum max(0, T_i - D_i + J_i) U_i + B + tick) / (1 - U), rounded up |
//! | L_b (Eq. 5) | the synchronous busy period, which also bounds sets with U = 1 |
//! | - | max D + lcm T, for sets with U = 1 whose busy period never ends (blocking, wandering releases, ticks) |

mod fast;

pub use fast::schedulable;

use std::cmp::Ordering;

use crate::exact::{FRACTION_BITS, compare_sum, sum_rounded_up};
use crate::verdict::{Answer, Stop, spend, stopped};

/// Terms (one task's demand each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 100_000_000;

/// A task under EDF; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EdfTask {
    /// C: worst-case execution time, at least 1.
    pub c: u64,
    /// T: minimum inter-arrival time, at least 1.
    pub t: u64,
    /// D: deadline after the release; any.
    pub d: u64,
    /// How far releases wander while the deadline counts from the release (0 for most tasks).
    pub burst: u64,
    /// B: the longest section of a job with a later deadline that can delay it.
    pub b: u64,
}

/// Periodic overhead, such as the scheduler's tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// Time stolen by each.
    pub c: u64,
    /// Distance, at least 1.
    pub t: u64,
}

/// The result of the analysis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// h(t) <= t everywhere.
    Met {
        /// How far t had to be looked at.
        horizon: u64,
    },
    /// More work than time in some interval.
    Exceeded {
        /// The length of the interval.
        t: u64,
        /// h(t).
        demand: u64,
    },
    /// More work than time in the long run: U > 1.
    Overload,
    /// Something left it open.
    Undecided(Stop),
}

/// Jobs of one task with release and deadline in an interval of length t.
pub(crate) fn jobs(task: &EdfTask, t: u64) -> Option<u64> {
    if t < task.d { Some(0) } else { ((t - task.d).checked_add(task.burst)? / task.t).checked_add(1) }
}

/// h(t), with blocking and ticks; `None` where it exceeds `u64`.
#[must_use]
pub fn demand(tasks: &[EdfTask], tick: Option<Tick>, t: u64) -> Option<u64> {
    let (mut sum, mut blocking) = (0u64, 0u64);
    for task in tasks {
        sum = sum.checked_add(jobs(task, t)?.checked_mul(task.c)?)?;
        if task.d <= t {
            blocking = blocking.max(task.b);
        }
    }
    let stolen = match tick {
        Some(tick) => (t / tick.t).checked_add(1)?.checked_mul(tick.c)?,
        None => 0,
    };
    sum.checked_add(blocking)?.checked_add(stolen)
}

/// The largest deadline of the synchronous pattern that lies below `t`.
pub(crate) fn deadline_below(tasks: &[EdfTask], t: u64) -> Option<u64> {
    tasks
        .iter()
        .filter(|task| task.d < t)
        .map(|task| {
            // Deadlines: D, and D + k T - J after the burst.
            let k = (u128::from(t - 1 - task.d) + u128::from(task.burst)) / u128::from(task.t);
            let last = (u128::from(task.d) + k * u128::from(task.t)).saturating_sub(u128::from(task.burst));
            (last as u64).max(task.d)
        })
        .max()
}

/// The result if the load alone decides, without a look at deadlines.
pub(crate) fn decided_by_load(tasks: &[EdfTask], tick: Option<Tick>) -> Option<Demand> {
    if tasks.is_empty() {
        return Some(Demand::Met { horizon: 0 });
    }
    let loads = tasks.iter().map(|task| (task.c, task.t)).chain(tick.map(|tick| (tick.c, tick.t)));
    match compare_sum(loads, 1) {
        Some(Ordering::Greater) => Some(Demand::Overload),
        None => Some(Demand::Undecided(Stop::Load)),
        _ => None,
    }
}

/// Whether EDF keeps all deadlines.
pub fn analyse(tasks: &[EdfTask], tick: Option<Tick>) -> Demand {
    analyse_within(tasks, tick, &mut { TERMS_MAX })
}

/// The same from what is left of a limit.
pub(crate) fn analyse_within(tasks: &[EdfTask], tick: Option<Tick>, terms_left: &mut u64) -> Demand {
    if let Some(decided) = decided_by_load(tasks, tick) {
        return decided;
    }
    let horizon = match horizon(tasks, tick, terms_left) {
        Ok(horizon) => horizon,
        Err(stop) => return Demand::Undecided(stop),
    };
    match scan(tasks, tick, 0, 0, horizon.saturating_add(1), terms_left) {
        Some(None) => Demand::Met { horizon },
        Some(Some((t, demand))) => Demand::Exceeded { t, demand },
        None => Demand::Undecided(stopped(*terms_left)),
    }
}

/// The largest t in [from, until) with h(t) + `more` > t, and that sum; outer `None` where a limit is reached.
pub(crate) fn scan(
    tasks: &[EdfTask],
    tick: Option<Tick>,
    more: u64,
    from: u64,
    until: u64,
    terms_left: &mut u64,
) -> Option<Option<(u64, u64)>> {
    let count = tasks.len() as u64 + 1;
    let mut below = until;
    loop {
        spend(terms_left, 2 * count)?;
        let Some(t) = deadline_below(tasks, below).filter(|t| *t >= from) else { return Some(None) };
        let h = demand(tasks, tick, t)?.checked_add(more)?;
        if h > t {
            return Some(Some((t, h)));
        }
        // h(t') <= h(t) <= t' for all t' in [h(t), t]; below, only deadlines matter.
        below = if h < t { h + 1 } else { t };
    }
}

/// The deadline in [from, until) with the least time to spare, and by when what is due there is
/// done; `None` where there is no deadline or a limit is reached. `done` must not fall where t
/// grows.
///
/// If d = done(t) <= t, with s the least spare so far: every t' in [d + s, t] has t' - done(t') >= t' - d >= s.
pub(crate) fn tightest(
    tasks: &[EdfTask],
    from: u64,
    until: u64,
    terms_left: &mut u64,
    done: impl Fn(u64) -> Option<u64>,
) -> Option<(u64, u64)> {
    let mut least: Option<(u64, u64)> = None;
    let mut below = until;
    while let Some(t) = deadline_below(tasks, below).filter(|t| *t >= from) {
        *terms_left = terms_left.checked_sub(2 * tasks.len() as u64 + 1)?;
        let end = done(t)?;
        let Some(spare) = t.checked_sub(end) else { return Some((t, end)) };
        if least.is_none_or(|(t, end)| spare < t - end) {
            least = Some((t, end));
        }
        let kept = least.map_or(0, |(t, end)| t - end);
        below = end.saturating_add(kept).min(t);
    }
    least
}

/// The first violation, if any, lies at or below this.
///
/// # Errors
/// Why no horizon can be had.
pub(crate) fn horizon(tasks: &[EdfTask], tick: Option<Tick>, terms_left: &mut u64) -> Result<u64, Stop> {
    // At most a tenth of the work for the busy period: the other horizons often suffice.
    let spared = *terms_left - *terms_left / 10;
    let mut terms = *terms_left / 10;
    let busy = busy_period(tasks, tick, &mut terms);
    *terms_left = spared + terms;
    let found = [horizon_by_load(tasks, tick), busy, horizon_by_cycle(tasks, tick)];
    found.into_iter().flatten().min().ok_or(stopped(terms))
}

/// max D + lcm T: from max D on, h(t + lcm T) - h(t) = U lcm T <= lcm T, so a violation beyond has one before it.
fn horizon_by_cycle(tasks: &[EdfTask], tick: Option<Tick>) -> Option<u64> {
    let longest = tasks.iter().map(|task| task.d).max()?;
    let mut cycle = 1u64;
    for t in tasks.iter().map(|task| task.t).chain(tick.map(|tick| tick.t)) {
        cycle = cycle.checked_mul(t / takt_model::gcd(cycle, t))?;
    }
    longest.checked_add(cycle)
}

/// L_a, rounded up; `None` for U = 1 (rounded up) or where it does not fit.
fn horizon_by_load(tasks: &[EdfTask], tick: Option<Tick>) -> Option<u64> {
    let loads = tasks.iter().map(|task| (task.c, task.t)).chain(tick.map(|tick| (tick.c, tick.t)));
    let load = sum_rounded_up(loads)?;
    // To 2^-32, so that the products fit.
    const BITS: u32 = 32;
    let idle = (1u128 << BITS).checked_sub((load >> (FRACTION_BITS - BITS)) + 1).filter(|idle| *idle > 0)?;
    let mut sum = u128::from(tasks.iter().map(|task| task.b).max()?) + u128::from(tick.map_or(0, |tick| tick.c));
    for task in tasks {
        let carried = (u128::from(task.t) + u128::from(task.burst)).saturating_sub(u128::from(task.d));
        sum = sum.checked_add(carried.checked_mul(u128::from(task.c))?.div_ceil(u128::from(task.t)))?;
    }
    u64::try_from((sum.checked_mul(1 << BITS)?).div_ceil(idle)).ok()
}

/// L_b: the length of the synchronous busy period, with every burst, the longest blocking and the ticks.
fn busy_period(tasks: &[EdfTask], tick: Option<Tick>, terms_left: &mut u64) -> Option<u64> {
    let blocking = tasks.iter().map(|task| task.b).max()?;
    let mut length = tasks.iter().try_fold(blocking, |sum, task| sum.checked_add(task.c))?;
    loop {
        spend(terms_left, tasks.len() as u64 + 1)?;
        let mut next = blocking;
        for task in tasks {
            let arrivals = length.checked_add(task.burst)?.div_ceil(task.t);
            next = next.checked_add(arrivals.checked_mul(task.c)?)?;
        }
        if let Some(tick) = tick {
            next = next.checked_add(length.div_ceil(tick.t).checked_mul(tick.c)?)?;
        }
        if next <= length {
            return Some(length);
        }
        length = next;
    }
}

impl Demand {
    /// Whether h(t) <= t everywhere; an error where this is open.
    pub(crate) const fn met(self) -> Result<bool, Stop> {
        match self {
            Demand::Met { .. } => Ok(true),
            Demand::Exceeded { .. } | Demand::Overload => Ok(false),
            Demand::Undecided(stop) => Err(stop),
        }
    }

    /// The answer, where a demand above the time is a proof of a miss.
    pub const fn answer(self) -> Answer {
        match self {
            Demand::Met { .. } => Answer::Yes,
            Demand::Exceeded { .. } | Demand::Overload => Answer::No,
            Demand::Undecided(_) => Answer::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
