//! Fixed priorities under a supply: response times.
//!
//! I. Shin, I. Lee, RTSS 2003, Theorem 4.2, and \[CSA Lemma 1\] with t over (0, p_i]. (ERRATA: t =
//! 0 would make every set schedulable.) Task i meets its deadline iff sbf(t) >= rbf_i(t) for some 0
//! < t <= D_i. The least such t bounds the response. As sbf(t) >= x iff t >= t_Γ(x), it is the
//! least fixed point of t = t_Γ(rbf_i(t)). So this is [`rta`](crate::fp::rta) with t_Γ around its
//! right side. It covers the same: release jitter, blocking, levels that tasks share, any
//! deadlines.
//!
//! **Why it is safe.** Take the level-i busy window that holds a job of i, from its start s on. All
//! supply since s went to the work that rbf counts. This supply is at least sbf of the time since
//! s, for any s. For [`Supply::aligned`] s is a release and so a start of the server's period.
//!
//! **Without iteration.** Let W = t_Γ(B + sum C) over hep(i) and i. If W + J <= T of each of these
//! tasks, then every ceiling of the right side is one for all 0 < t <= W. So W is the least fixed
//! point. Job 1 of i arrives no earlier than T_i - J_i >= W, so the window holds job 0 alone.
//! The supply must obey sbf(t) <= (Θ / Π) t. Then sum C <= (Θ / Π) W, and W <= T. So the load
//! sum C / T is at most Θ / Π, and less if the supply lags.
//!
//! **Why it is exact** for distinct levels without jitter and blocking. One pattern of PRM and EDP
//! supply gives sbf(t) for every t at once, and all tasks may be released at its start.

use std::cmp::Ordering;

use super::Supply;
use crate::exact::{FRACTION_BITS, ONE, compare_sum};
use crate::fp::rta::{FpTask, Response};
use crate::verdict::Answer;

/// Terms (one ceiling each) that one analysis may evaluate before it gives up.
pub const TERMS_MAX: u64 = 10_000_000;

/// Whether all tasks meet their deadlines D, from their nominal arrivals.
///
/// A no is a proof if the supply may be as bad as its model allows and the tasks have distinct
/// levels, no jitter and no blocking. "Unknown" means that the work limit was reached.
pub fn schedulable(tasks: &[FpTask], supply: &Supply) -> Answer {
    let mut terms_left = TERMS_MAX;
    let mut answer = Answer::Yes;
    for (i, known) in at_once(tasks, supply).into_iter().enumerate() {
        let one = match known.or_else(|| response(tasks, i, supply, &mut terms_left)) {
            Some(response) if response.from_arrival <= tasks[i].d => Answer::Yes,
            None if terms_left == 0 => Answer::Unknown,
            _ => Answer::No,
        };
        answer = answer.and(one);
        if answer == Answer::No {
            break;
        }
    }
    answer
}

/// The work of tasks, each once; and the least of their T - J.
#[derive(Clone, Copy)]
struct WorkOnce {
    work: u64,
    min_distance: u64,
}

impl WorkOnce {
    const NONE: WorkOnce = WorkOnce { work: 0, min_distance: u64::MAX };

    fn and(self, task: &FpTask) -> Option<WorkOnce> {
        let (work, min_distance) = (self.work.checked_add(task.c)?, task.t.checked_sub(task.j)?);
        Some(WorkOnce { work, min_distance: self.min_distance.min(min_distance) })
    }

    /// The length of the busy window with this blocking. `None`: it may hold a second job of a task.
    fn window(self, blocking: u64, supply: &Supply) -> Option<u64> {
        let window = supply.time_for(self.work.checked_add(blocking)?)?;
        (window <= self.min_distance && !supply.leads()).then_some(window)
    }
}

/// Bounds of tasks that need no iteration (see above); `None` for the others. They equal those of
/// [`response`].
pub(crate) fn at_once(tasks: &[FpTask], supply: &Supply) -> Vec<Option<Response>> {
    let mut found = vec![None; tasks.len()];
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_unstable_by_key(|i| tasks[*i].level);
    let mut once = WorkOnce::NONE;
    for level in order.chunk_by(|a, b| tasks[*a].level == tasks[*b].level) {
        let Some(with_level) = level.iter().try_fold(once, |once, i| once.and(&tasks[*i])) else { break };
        once = with_level;
        for &i in level {
            // W + J <= T fits.
            let bound = |window| Response { from_arrival: window + tasks[i].j, from_release: window };
            found[i] = once.window(tasks[i].b, supply).map(bound);
        }
    }
    found
}

/// Bounds the response time of `tasks[i]`; D is not read.
///
/// `None` if no bound exists, since its level and those above it need more than Θ / Π; if the bound
/// exceeds `u64`; or if the limit is reached. In the last case `terms_left` is zero.
pub fn response(tasks: &[FpTask], i: usize, supply: &Supply, terms_left: &mut u64) -> Option<Response> {
    let (mut from_arrival, mut from_release) = (0u64, 0u64);
    windows(tasks, i, supply, terms_left, |_, w, arrival| {
        from_arrival = from_arrival.max(u64::try_from(i128::from(w) - arrival).ok()?);
        from_release = from_release.max(u64::try_from(i128::from(w) - arrival.max(0)).ok()?);
        Some(())
    })?;
    Some(Response { from_arrival, from_release })
}

/// Calls `see` with each job q of the busy window, the end of its window, and its earliest nominal
/// arrival.
pub(crate) fn windows(
    tasks: &[FpTask],
    i: usize,
    supply: &Supply,
    terms_left: &mut u64,
    mut see: impl FnMut(u64, u64, i128) -> Option<()>,
) -> Option<()> {
    let this = tasks.get(i)?;
    let hep = || tasks.iter().enumerate().filter(|(k, task)| *k != i && task.level <= this.level).map(|(_, t)| t);
    let missing = (supply.period() - supply.budget(), supply.period());
    let mut load = 0u128;
    let mut count = 0u64;
    let loads = || hep().chain([this]).map(|task| (task.c, task.t)).chain([missing]);
    for (c, t) in loads() {
        load = load.checked_add((u128::from(c) << FRACTION_BITS) / u128::from(t))?;
        count += 1;
    }
    // The sum is rounded down by less than `count`. Busy windows under the full load need not end.
    // If the supply lags, they do not end.
    let limit = if supply.lags() { Ordering::Less } else { Ordering::Equal };
    if load > ONE || (load + u128::from(count) > ONE && compare_sum(loads(), 1).is_none_or(|sum| sum > limit)) {
        return None;
    }
    let mut w = 0u64;
    for q in 0u64.. {
        let own = this.c.checked_mul(q + 1)?.checked_add(this.b)?;
        loop {
            let Some(left) = terms_left.checked_sub(count) else {
                *terms_left = 0;
                return None;
            };
            *terms_left = left;
            let mut work = own;
            for other in hep() {
                // At least one release: the window is not empty.
                let arrivals = w.max(1).checked_add(other.j)?.div_ceil(other.t);
                work = work.checked_add(arrivals.checked_mul(other.c)?)?;
            }
            let next = supply.time_for(work)?;
            if next <= w {
                break;
            }
            w = next;
        }
        // Job q arrived, nominally, no earlier than q T - J after the start of the window.
        let arrival = i128::from(q) * i128::from(this.t) - i128::from(this.j);
        see(q, w, arrival)?;
        if i128::from(w) <= arrival + i128::from(this.t) {
            break;
        }
    }
    Some(())
}
