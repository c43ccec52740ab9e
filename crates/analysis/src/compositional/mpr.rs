//! `mpr`: components that run on several CPUs at once, under global EDF or global fixed priorities.
//!
//! The resource is I. Shin, A. Easwaran, I. Lee: Hierarchical Scheduling Framework for Virtual
//! Clustering of Multiprocessors, ECRTS 2008 (in full: A. Easwaran, I. Shin, I. Lee: Optimal
//! Virtual Cluster-Based Multiprocessor Scheduling, RTS 43, 2009): Θ in every period Π, on at most
//! m' CPUs at once ([`Mpr`]).
//!
//! | paper | here |
//! |---|---|
//! | Π, Θ, m' | those of [`Mpr`] |
//! | A_k + D_k | `x`, at least L_k = D_k - J_k, the time of a job from its release to its deadline |
//! | sbf | [`Mpr::sbf`] |
//! | Ī, Î of a task | the work without and with carry-in of [`bar`](crate::global::bar), cut off at x - C_k + 1 |
//!
//! # The supply
//! The server is m' tasks (Π, Θ_j, Π) on the level above, with Σ Θ_j = Θ, released together:
//! Section 5 of the later paper ([`takt_model::Component::shares`]). Each is one virtual CPU, so at
//! most m' run at once. If all of them meet their deadlines, each [k Π, (k + 1) Π) gives Θ, and an
//! interval of length t at least sbf(t). All of their budgets are used up, busy or idle (`ptps`).
//!
//! # The condition
//! Time is whole nanoseconds. Let a job of task k be released at r and miss at r + L_k, as the
//! first job that misses. Let s(t) be the number of CPUs given at t. Jobs with a later deadline
//! (EDF) or of a less important level delay nothing, so let only the others exist. In each unit in
//! which the job does not run, all s(t) CPUs run others. The job runs in fewer than C_k units. Take
//! C_k - 1 units of [t0, r + L_k) that contain these. In the other x - C_k + 1 units the given CPUs
//! ran others for at least
//!
//! room(x) = sbf(x) - m' (C_k - 1),
//!
//! if all given CPUs ran others in [t0, r) too. No task ran for more than x - C_k + 1 in these
//! units, since it runs one job at a time. So the miss is impossible if
//!
//! Σ over i ≠ k of min(W_i(x), x - C_k + 1) < room(x)   (*)
//!
//! Of task k itself only earlier jobs count, in [t0, r): at most x - L_k. There are two choices of
//! t0.
//!
//! - **t0 = the deadline - L_k**, at or after r. Every task may bring work in. Only x = L_k
//!   decides.
//! - **t0 = the last instant up to r before which a CPU was given and left idle.** Fewer jobs were
//!   pending there than CPUs were given, so at most m' - 1 tasks bring work in.
//!
//! For the second t0, EDF and fixed priorities differ.
//!
//! - EDF: r is any distance after t0. So (*) must hold for every x >= L_k up to a horizon (Theorem
//!   1 of the paper, after S. Baruah, RTSS 2007).
//! - Fixed priorities: t0 is defined without the jobs of k, so none of these runs in [t0, r). If
//!   (*) holds for one x, the job is complete at t0 + x <= r + x. So the least x bounds the
//!   response (after N. Guan et al., RTSS 2009). The unit before t0 may belong to an earlier job of
//!   k. Tasks of k's own level wait behind that job with all of their work, so all of them may
//!   bring work in.
//!
//! EDF accepts task k by either condition. Both assume only that nothing has missed before.
//!
//! # Departures from the paper
//! - Theorem 1 asks for Σ + m' C_k <= sbf, without a cut-off for discrete time. (*) is sharper by
//!   up to m' - 1, and proven above. The paper cuts off Î at A_k + D_k - C_k and accepts equality.
//!   This is unsound even on dedicated CPUs (see [`bar`](crate::global::bar)).
//! - The paper tests the points where demand steps. Here every x is covered. If the left side at x
//!   is f, (*) holds for all y < x with room(y) > f. The next x to test is the last with sbf(x) <=
//!   f + m' (C_k - 1).
//! - The supply assumes that the periods of the m' servers coincide. Otherwise the supply is
//!   another one (N. Khalilzad, M. Behnam, T. Nolte: Exact and Approximate Supply Bound Function
//!   for Multiprocessor Periodic Resource Model: Unsynchronized Servers, SIGBED Review 10, 2013).
//! - Fixed priorities are not in the paper.
//!
//! # Horizon
//! sbf(x) >= (Θ / Π) x - 2 Θ (m' Π - Θ) / (m' Π). The left side is at most Σ U_i (x + T_i + J_i -
//! D_i) + the m' - 1 largest C. So (*) fails only at
//!
//! x (Θ / Π - U) <= Σ U_i (T_i + J_i - D_i) + m' (C_k - 1) + B + 2 Θ (m' Π - Θ) / (m' Π),
//!
//! where B is the sum of the m' - 1 largest C.

use super::Mpr;
// Under EDF, if m' - 1 tasks bring work in, `bar` computes the left side of (*).
use crate::global::bar::{largest, work as demand};
use crate::global::{Bounds, Excess, Limit, Load, Slot, Sporadic, TIME_MAX, Terms, with_slack};

/// Terms (one task at one point) that the test may evaluate before it gives up.
pub const TERMS_MAX: u64 = 20_000_000;

/// Whether every deadline is kept by global EDF under this supply.
pub fn edf(tasks: &[Sporadic], supply: &Mpr) -> Load {
    edf_within(tasks, supply, &mut Terms::new(TERMS_MAX))
}

/// The same, which takes the terms that it evaluates from `terms`.
pub(crate) fn edf_within(tasks: &[Sporadic], supply: &Mpr, terms: &mut Terms) -> Load {
    let slots = match ready(tasks) {
        Ok(slots) => slots,
        Err(load) => return load,
    };
    let mut scratch = vec![0; slots.len()];
    let horizon = Horizon::new(&slots, supply);
    for (k, slot) in slots.iter().enumerate() {
        let window = slot.window;
        if let Err(limit) = terms.spend(slots.len()) {
            return Load::Undecided(limit);
        }
        let Some(alone) = room(&slots, k, window, supply) else { return Load::Undecided(Limit::Time) };
        let wait = window - slot.c + 1;
        let others = slots.iter().enumerate().filter(|(i, _)| *i != k);
        let work: u128 = others.map(|(_, other)| u128::from(other.workload_due(window).min(wait))).sum();
        if i128::try_from(work).is_ok_and(|work| work < alone) {
            continue;
        }
        let mut x = match horizon.as_ref().map(|horizon| horizon.of(slot.c)) {
            Some(Some(x)) => x.max(window),
            Some(None) => return Load::Undecided(Limit::Time),
            None => return Load::Full,
        };
        loop {
            if let Err(limit) = terms.spend(slots.len()) {
                return Load::Undecided(limit);
            }
            let work = demand(&slots, k, supply.cpus(), x, &mut scratch);
            let Some(room) = room(&slots, k, x, supply) else { return Load::Undecided(Limit::Time) };
            if !i128::try_from(work).is_ok_and(|work| work < room) {
                let room = u128::try_from(room).unwrap_or(0);
                return Load::Exceeded(Excess { task: Some(k), window: x, work, room });
            }
            let idle = u128::from(supply.cpus()) * u128::from(slot.c - 1);
            let Some(next) = u64::try_from(work + idle + 1).ok().and_then(|more| supply.time_for(more)) else {
                return Load::Undecided(Limit::Time);
            };
            // sbf(next) is above what x needs. So the last point that is not covered is before
            // `next`, and before x, since sbf(x) is above it too.
            if next <= window {
                break;
            }
            x = next - 1;
        }
    }
    Load::Met
}

/// Bounds the responses under global fixed priorities, by the levels in the tasks, and says whether
/// every deadline is kept under this supply.
pub fn fp(tasks: &[Sporadic], supply: &Mpr) -> Bounds {
    fp_within(tasks, supply, &mut Terms::new(TERMS_MAX))
}

/// The same, which takes the terms that it evaluates from `terms`.
pub(crate) fn fp_within(tasks: &[Sporadic], supply: &Mpr, terms: &mut Terms) -> Bounds {
    let mut responses = vec![None; tasks.len()];
    let mut slots = match ready(tasks) {
        Ok(slots) => slots,
        Err(load) => return Bounds { load, responses },
    };
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|k| slots[*k].level);
    let mut scratch = Vec::with_capacity(tasks.len());
    let mut load = Load::Met;
    for k in order {
        match response(&slots, k, supply, &mut scratch, terms) {
            Ok(length) => {
                let bound = length + slots[k].j;
                slots[k].slack = slots[k].d - bound;
                responses[k] = Some(bound);
            }
            Err(found) => {
                load = found;
                break;
            }
        }
    }
    // A task that failed may delay others of its level.
    if !load.is_met() {
        let failed =
            responses.iter().zip(&slots).filter(|(bound, _)| bound.is_none()).map(|(_, slot)| slot.level).min();
        for (bound, slot) in responses.iter_mut().zip(&slots) {
            if failed.is_some_and(|level| slot.level >= level) {
                *bound = None;
            }
        }
    }
    Bounds { load, responses }
}

/// The least x at which (*) holds, which is at most L_k.
fn response(slots: &[Slot], k: usize, supply: &Mpr, scratch: &mut Vec<u64>, terms: &mut Terms) -> Result<u64, Load> {
    let task = &slots[k];
    let own = u128::from(supply.cpus()) * u128::from(task.c - 1);
    let time_for = |work: u128| u64::try_from(own + work + 1).ok().and_then(|more| supply.time_for(more));
    let mut x = time_for(0).ok_or(Load::Undecided(Limit::Time))?;
    loop {
        terms.spend(slots.len()).map_err(Load::Undecided)?;
        if x > task.window {
            // The excess at the deadline.
            let work = limited(slots, k, task.window, supply.cpus(), scratch);
            let room = room(slots, k, task.window, supply).and_then(|room| u128::try_from(room).ok()).unwrap_or(0);
            return Err(Load::Exceeded(Excess { task: Some(k), window: task.window, work, room }));
        }
        let next = time_for(limited(slots, k, x, supply.cpus(), scratch)).ok_or(Load::Undecided(Limit::Time))?;
        if next <= x {
            return Ok(x);
        }
        x = next;
    }
}

/// The left side of (*) under fixed priorities, if m' - 1 tasks bring work in. Tasks of the same
/// level count in full.
fn limited(slots: &[Slot], k: usize, x: u64, cpus: u32, scratch: &mut Vec<u64>) -> u128 {
    let task = &slots[k];
    let wait = (x + 1).saturating_sub(task.c);
    scratch.clear();
    let mut sum = 0u128;
    for (i, other) in slots.iter().enumerate() {
        if i == k || other.level > task.level {
            continue;
        }
        if other.level == task.level {
            sum += u128::from(other.workload(x).min(wait));
            continue;
        }
        let fresh = other.workload_nc(x);
        let all = fresh.max(other.workload_ci(x)).min(wait);
        let fresh = fresh.min(wait);
        sum += u128::from(fresh);
        scratch.push(all - fresh);
    }
    sum + largest(scratch, cpus as usize - 1)
}

/// sbf(x) - m' (C_k - 1).
fn room(slots: &[Slot], k: usize, x: u64, supply: &Mpr) -> Option<i128> {
    let idle = i128::from(supply.cpus()) * i128::from(slots[k].c - 1);
    Some(i128::from(supply.sbf(x)?) - idle)
}

/// The tasks with their slack, if the test covers them.
fn ready(tasks: &[Sporadic]) -> Result<Vec<Slot>, Load> {
    for (task, given) in tasks.iter().enumerate() {
        if given.t == 0 || given.t > TIME_MAX || given.d > given.t {
            return Err(Load::Unfit { task });
        }
        if given.j > given.d || given.c.max(1) > given.d - given.j {
            return Err(Load::TooLong { task });
        }
    }
    with_slack(tasks, &vec![0; tasks.len()]).ok_or(Load::Undecided(Limit::Time))
}

/// The part of the horizon that does not depend on k.
struct Horizon {
    /// All but m' (C_k - 1), rounded up.
    fixed: u128,
    cpus: u128,
    /// Θ / Π - U in units of 2^-40, rounded down.
    idle: u128,
}

impl Horizon {
    /// `None` if U is not below Θ / Π by at least the precision of `idle`.
    fn new(slots: &[Slot], supply: &Mpr) -> Option<Horizon> {
        let (budget, period) = (u128::from(supply.budget()), u128::from(supply.period()));
        let cpus = u128::from(supply.cpus());
        let (mut load, mut fixed) = (0u128, 0u128);
        for slot in slots {
            // C <= T: at most 2^64.
            let share = (u128::from(slot.c) << 64) / u128::from(slot.t()) + 1;
            load += share;
            let early = u128::from(slot.t() - slot.d + slot.j);
            fixed += (share.checked_mul(early)? >> 64) + 1;
        }
        let mut longest: Vec<u64> = slots.iter().map(|slot| slot.c).collect();
        fixed += largest(&mut longest, supply.cpus() as usize - 1);
        // Θ <= m' Π: at most 2 Θ (1 - Θ / (m' Π)) rounded up.
        fixed += (2 * budget).checked_mul(cpus * period - budget)? / (cpus * period) + 1;
        let idle = ((budget << 64) / period).checked_sub(load)? >> 24;
        (idle > 0).then_some(Horizon { fixed, cpus, idle })
    }

    /// The horizon of a task with this C. `None` if it exceeds the range of the test.
    fn of(&self, c: u64) -> Option<u64> {
        let numerator = self.fixed.checked_add(self.cpus.checked_mul(u128::from(c - 1))?)?;
        let x = numerator.checked_mul(1 << 40)? / self.idle + 1;
        u64::try_from(x).ok().filter(|x| *x <= TIME_MAX)
    }
}

#[cfg(test)]
#[path = "mpr_tests.rs"]
mod tests;
