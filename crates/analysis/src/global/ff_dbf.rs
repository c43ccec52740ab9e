//! `ff-dbf`: forced-forward demand, for global EDF.
//!
//! S. Baruah, V. Bonifaci, A. Marchetti-Spaccamela, S. Stiller: Improved Multiprocessor Global
//! Schedulability Analysis, RTS 46(1), 2010, Theorem 5. Schedulable if some sigma >= max C_i / D_i
//! has, for all t >= 0,
//!
//! sum over i of ff-dbf_i(t, sigma) <= (m - (m - 1) sigma) t
//!
//! ```text
//! ff-dbf_i = q C_i + C_i                         where r >= D_i;   q = floor(t / T_i), r = t mod T_i
//!          = q C_i + max(0, C_i - (D_i - r) sigma)   else
//! ```
//!
//! **Why.** Start from the deadline of a missing job and go back to its release. Then repeat: if a
//! pending job with no later deadline has executed less than sigma of each unit since its release,
//! go back to that job's release. In each step this job waits for more than 1 - sigma of the time,
//! and all m CPUs run. Together they do more than m - (m - 1) sigma per unit. At the end every
//! pending job has executed at least sigma of each unit since its release.
//!
//! | paper | here |
//! |---|---|
//! | D_i | `window`: D_i - J_i, for that counts from the release; T_i and the deadlines' distance stay |
//! | sigma | `sigma` / 2^32, chosen, so not rounded |
//! | ff-dbf | rounded up to whole ns |
//!
//! # All t, one sigma
//! - t is a whole number: it lies between a deadline and a release.
//! - ff-dbf grows with t, so if the left at t is f, all s < t with f <= (m - (m - 1) sigma) s hold
//!   too. The next t is the largest below.
//! - ff-dbf_i <= U_i (t + T_i - D_i), as sigma >= U_i: no t above sum U_i (T_i - D_i) / (m - (m - 1) sigma - U) fails.
//! - At one t the difference of both sides is convex in sigma. If it is positive, no sigma up to
//!   the root of its tangent will do. If it grows, no larger sigma will do. So the search starts
//!   from max C_i / D_i and misses no sigma but for rounding.
//!
//! Every set that `gfb` accepts is accepted (sigma = delta_max: ff-dbf_i <= delta_i t). `gfb` runs
//! first, since it does not round.

use super::{Excess, Limit, Load, STACK_MAX, Slot, Sporadic, TIME_MAX, Terms, gfb, prepared};
use crate::recip::mul_high;
use crate::verdict::Answer;

/// Terms (one task at one point and sigma) evaluated by the test at most.
pub const TERMS_MAX: u64 = 50_000_000;

const SIGMA_BITS: u32 = 32;
/// sigma = 1.
const UNIT: u64 = 1 << SIGMA_BITS;

/// Whether every deadline is kept by global EDF on `m` CPUs, two at least. Does not allocate for up to 32 tasks.
/// Pseudo-polynomial.
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32) -> Load {
    within(tasks, m, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
#[inline]
pub(crate) fn within(tasks: &[Sporadic], m: u32, terms: &mut Terms) -> Load {
    prepared(tasks, m, |slots| {
        if m < 2 {
            return Load::Undecided(Limit::Cpus);
        }
        match dense(slots, m) {
            true => Load::Met,
            false => search(slots, m, &mut None, terms),
        }
    })
}

/// The sigma with which the test holds, times 2^32; `None` where none is found.
pub(crate) fn sigma(tasks: &[Sporadic], m: u32) -> Option<u64> {
    let mut found = None;
    let load = prepared(tasks, m, |slots| search(slots, m, &mut found, &mut Terms::new(TERMS_MAX)));
    found.filter(|_| load.is_met())
}

/// `gfb` with the densities C / (D - J).
#[inline]
fn dense(slots: &[Slot], m: u32) -> bool {
    let mut stack = [(0, 0); STACK_MAX];
    let heap: Vec<(u64, u64)>;
    let pairs = if slots.len() <= STACK_MAX {
        for (pair, slot) in stack.iter_mut().zip(slots) {
            *pair = (slot.c, slot.window);
        }
        &stack[..slots.len()]
    } else {
        heap = slots.iter().map(|slot| (slot.c, slot.window)).collect();
        &heap
    };
    gfb::schedulable(pairs, m) == Answer::Yes
}

/// `held`: the sigma that the yes rests on.
fn search(slots: &[Slot], m: u32, held: &mut Option<u64>, terms: &mut Terms) -> Load {
    let (mut load, mut early) = (0u128, 0u128);
    let mut sigma = 0u64;
    for slot in slots {
        // 2^64 C / T, rounded up: see `bar`.
        let share = u128::from(slot.c) * u128::from(slot.period.inverse) + u128::from(slot.c) + 1;
        load += share;
        early += u128::from(mul_high(slot.t() - slot.window, u64::try_from(share).unwrap_or(u64::MAX))) + 2;
        let density = (u128::from(slot.c) << SIGMA_BITS).div_ceil(u128::from(slot.window));
        sigma = sigma.max(u64::try_from(density).unwrap_or(u64::MAX));
    }
    loop {
        // (m - (m - 1) sigma) 2^32.
        if sigma > UNIT {
            return Load::Full;
        }
        let rate = u128::from(m) * u128::from(UNIT) - u128::from(m - 1) * u128::from(sigma);
        // rate - U in 2^-22, rounded down.
        let idle = (rate << 32).saturating_sub(load) >> 42;
        if idle == 0 {
            return Load::Full;
        }
        let horizon = (early << 22) / idle + 1;
        let Some(mut t) = u64::try_from(horizon).ok().filter(|t| *t <= TIME_MAX) else {
            return Load::Undecided(Limit::Time);
        };
        // Down from the horizon to the first t that fails.
        let failed = loop {
            let demand = demand(slots, t, sigma);
            if let Err(limit) = terms.spend(slots.len()) {
                return Load::Undecided(limit);
            }
            if demand == 0 {
                break None;
            }
            if demand << SIGMA_BITS > rate * u128::from(t) {
                break Some(demand);
            }
            // The largest t whose right side is below; the present one's is not.
            let below = (demand << SIGMA_BITS).div_ceil(rate) - 1;
            t = u64::try_from(below).unwrap_or(t).min(t - 1);
        };
        let Some(work) = failed else {
            *held = Some(sigma);
            return Load::Met;
        };
        let room = (rate * u128::from(t)) >> SIGMA_BITS;
        match raised(slots, m, t, sigma) {
            Some(next) => sigma = next,
            None => return Load::Exceeded(Excess { task: None, window: t, work, room }),
        }
    }
}

/// sum ff-dbf, each rounded up.
#[inline]
fn demand(slots: &[Slot], t: u64, sigma: u64) -> u128 {
    slots.iter().map(|slot| u128::from(forced(slot, t, sigma).0)).sum()
}

/// (ff-dbf rounded up, by how much it falls per unit of sigma).
#[inline]
fn forced(slot: &Slot, t: u64, sigma: u64) -> (u64, u64) {
    let q = slot.period.div(t);
    let ahead = slot.window.saturating_sub(t - q * slot.t());
    let done = (u128::from(ahead) * u128::from(sigma)) >> SIGMA_BITS;
    let rest = u64::try_from(done).map_or(0, |done| slot.c.saturating_sub(done));
    (q * slot.c + rest, if rest > 0 { ahead } else { 0 })
}

/// The least sigma above this one that may satisfy t; `None` if there is none. `sigma` fails at t.
fn raised(slots: &[Slot], m: u32, t: u64, mut sigma: u64) -> Option<u64> {
    loop {
        let (mut work, mut falls) = (0u128, 0u128);
        for slot in slots {
            let (rest, falling) = forced(slot, t, sigma);
            work += u128::from(rest);
            falls += u128::from(falling);
        }
        let rate = u128::from(m) * u128::from(UNIT) - u128::from(m - 1) * u128::from(sigma);
        let Some(above) = (work << SIGMA_BITS).checked_sub(rate * u128::from(t)).filter(|above| *above > 0) else {
            return Some(sigma);
        };
        let slope = falls.checked_sub(u128::from(m - 1) * u128::from(t)).filter(|slope| *slope > 0)?;
        sigma = sigma.checked_add(u64::try_from(above.div_ceil(slope)).ok()?).filter(|sigma| *sigma <= UNIT)?;
    }
}
