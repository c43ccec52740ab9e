//! EDF under a supply: demand against sbf.
//!
//! I. Shin, I. Lee, RTSS 2003, Theorem 4.1: schedulable iff dbf(t) <= sbf(t) for all t > 0. dbf is
//! that of [`qpa`](crate::edf::qpa), with its blocking and bursts. The test goes downwards from a
//! horizon, like QPA by F. Zhang and A. Burns. If dbf(t) <= sbf(t), it goes on at t' = t_Γ(dbf(t))
//! <= t, the first instant with that much supply. This skips nothing: for every t'' in \[t', t\],
//! dbf(t'') <= dbf(t) <= sbf(t') <= sbf(t''). If t' = t, it goes to the next deadline below.
//!
//! **Two horizons**, of which the shorter is taken. Here U is the tasks' utilisation, B the longest
//! blocking, α = Θ / Π, and β the blackout.
//! - By load: dbf(t) <= U t + K + B with K = sum U_i max(0, T_i + burst_i - D_i), and sbf(t) >= α
//!   (t - β). So a violation has t < (K + B + α β) / (α - U). This needs U < α.
//! - The busy period: the least L with sbf(L) >= B + sum ceil((t + burst_i) / T_i) C_i. Let a
//!   deadline be missed at t2. Let t1 be the last instant before t2 at which no job with a deadline
//!   until t2 waits. Throughout (t1, t2) such work waits. So the releases since t1 exceed the
//!   supply, which is at least sbf. Hence t2 - t1 <= L, and dbf exceeds sbf at t2 - t1.

use std::cmp::Ordering;

use super::Supply;
use crate::edf::qpa::{Demand, EdfTask, deadline_below, demand};
use crate::exact::{FRACTION_BITS, compare_sum, sum_rounded_up};
use crate::verdict::{Answer, Stop, spend, stopped};

/// Terms (one task's demand each) that one analysis may evaluate before it gives up.
pub const TERMS_MAX: u64 = crate::edf::qpa::TERMS_MAX;

/// Whether all tasks meet their deadlines. A no is a proof for a supply that may be as bad as its
/// model allows, without blocking.
pub fn schedulable(tasks: &[EdfTask], supply: &Supply) -> Answer {
    analyse(tasks, supply).answer()
}

/// Holds demand against supply. [`Demand::Overload`] means U > Θ / Π.
pub fn analyse(tasks: &[EdfTask], supply: &Supply) -> Demand {
    analyse_within(tasks, supply, &mut { TERMS_MAX })
}

/// The same, which takes its terms from `terms_left`.
pub(crate) fn analyse_within(tasks: &[EdfTask], supply: &Supply, terms_left: &mut u64) -> Demand {
    let Some(shortest) = tasks.iter().map(|task| task.d).min() else { return Demand::Met { horizon: 0 } };
    let missing = (supply.period() - supply.budget(), supply.period());
    match compare_sum(tasks.iter().map(|task| (task.c, task.t)).chain([missing]), 1) {
        Some(Ordering::Greater) => return Demand::Overload,
        // U = Θ / Π: neither horizon exists.
        Some(Ordering::Equal) if supply.lags() => return Demand::Undecided(Stop::Full),
        None => return Demand::Undecided(Stop::Load),
        _ => {}
    }
    // The busy period gets a tenth of the terms.
    let kept = *terms_left - *terms_left / 10;
    let mut busy = *terms_left / 10;
    let found = (by_load(tasks, supply), busy_period(tasks, supply, &mut busy));
    *terms_left = kept + busy;
    let horizon = match found {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => match a.or(b) {
            Some(horizon) => horizon,
            None => return Demand::Undecided(stopped(busy)),
        },
    };
    let count = 2 * (tasks.len() as u64 + 1);
    let mut below = horizon.saturating_add(1);
    loop {
        let Some(t) = deadline_below(tasks, below) else { return Demand::Met { horizon } };
        let spent = spend(terms_left, count);
        let Some(h) = spent.and_then(|()| demand(tasks, None, t)) else {
            return Demand::Undecided(stopped(*terms_left));
        };
        let enough = match supply.time_for(h) {
            Some(enough) if enough <= t => enough,
            _ => return Demand::Exceeded { t, demand: h },
        };
        if enough < shortest {
            return Demand::Met { horizon };
        }
        below = if enough < t { enough + 1 } else { t };
    }
}

/// The horizon by load, rounded up. `None` if U = α (rounded up), or if it does not fit.
fn by_load(tasks: &[EdfTask], supply: &Supply) -> Option<u64> {
    const BITS: u32 = 32;
    let load = sum_rounded_up(tasks.iter().map(|task| (task.c, task.t)))?.div_ceil(1 << (FRACTION_BITS - BITS));
    let (period, budget) = (u128::from(supply.period()), u128::from(supply.budget()));
    // Π (α - U), in 2^-32.
    let spare = (budget << BITS).checked_sub(load.checked_mul(period)?).filter(|spare| *spare > 0)?;
    let mut sum = u128::from(tasks.iter().map(|task| task.b).max()?);
    for task in tasks {
        let carried = (u128::from(task.t) + u128::from(task.burst)).saturating_sub(u128::from(task.d));
        sum = sum.checked_add(carried.checked_mul(u128::from(task.c))?.div_ceil(u128::from(task.t)))?;
    }
    let late = sum.checked_mul(period)?.checked_add(budget.checked_mul(u128::from(supply.blackout()))?)?;
    u64::try_from(late.checked_mul(1 << BITS)?.div_ceil(spare)).ok()
}

/// The busy period under the least supply. `None` if it does not end within these terms.
fn busy_period(tasks: &[EdfTask], supply: &Supply, terms_left: &mut u64) -> Option<u64> {
    let count = tasks.len() as u64 + 1;
    let blocking = tasks.iter().map(|task| task.b).max()?;
    let mut length = 1u64;
    loop {
        spend(terms_left, count)?;
        let mut work = blocking;
        for task in tasks {
            let arrivals = length.checked_add(task.burst)?.div_ceil(task.t);
            work = work.checked_add(arrivals.checked_mul(task.c)?)?;
        }
        let next = supply.time_for(work)?;
        if next <= length {
            return Some(length);
        }
        length = next;
    }
}
