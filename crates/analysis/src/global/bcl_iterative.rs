//! `bcl-iterative`: [`bcl`](super::bcl) with slack fed back.
//!
//! M. Bertogna, M. Cirinei, G. Lipari: Schedulability Analysis of Global Scheduling Algorithms on Multiprocessor Platforms,
//! TPDS 20(4), 2009, Theorems 6 and 9, algorithm of Figure 5. A task that surely completes S_i before its deadline
//! carries less work into the windows of others:
//!
//! S_k = D_k - C_k - floor(sum over i != k of min(W_i(S_i), D_k - C_k + 1) / m)
//!
//! EDF: W_i = floor(D_k / T_i) C_i + min(C_i, max(0, D_k mod T_i - S_i)). FP: as in `bcl` with D_i - S_i for D_i.
//! From S = 0, until all S_k >= 0 were found or nothing grows. The first round is `bcl` (floor(x / m) <= w - 1 where and
//! only where x < m w), so all that `bcl` accepts is accepted.
//!
//! Slack may be used before all tasks are proven: up to the first miss, every job that reaches the instant S_i before its
//! deadline has completed by then, by induction over those instants.

use super::{Bounds, Excess, Load, Rule, Slot, Sporadic, interference, prepared, reported};

/// Rounds over all tasks before the test gives up. Slack grows by at least 1 ns a round, mostly by far more.
pub const ROUNDS_MAX: u32 = 10_000;

/// Whether every deadline is kept on `m` CPUs: stops as soon as that is certain. Does not allocate for up to 32 tasks.
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32, rule: Rule) -> Load {
    prepared(tasks, m, |slots| iterate(slots, m, rule, true, &mut []))
}

/// The same verdict, with bounds of the response times: iterates until no slack grows.
#[must_use]
pub fn analyse(tasks: &[Sporadic], m: u32, rule: Rule) -> Bounds {
    let mut responses = vec![None; tasks.len()];
    let mut load = prepared(tasks, m, |slots| {
        let mut proven = vec![false; slots.len()];
        let load = iterate(slots, m, rule, false, &mut proven);
        responses = reported(slots, rule, &proven);
        load
    });
    if load.is_met() && tasks.len() <= m as usize {
        responses = tasks.iter().map(|task| Some(task.j + task.c)).collect();
    }
    if load.is_met() && responses.iter().any(Option::is_none) {
        load = Load::Undecided;
    }
    Bounds { load, responses }
}

/// Raises the slack of each task until nothing changes (or, `hurried`, until all are proven).
fn iterate(slots: &mut [Slot], m: u32, rule: Rule, hurried: bool, proven: &mut [bool]) -> Load {
    let mut first = None;
    for _ in 0..ROUNDS_MAX {
        first = None;
        let mut grew = false;
        for k in 0..slots.len() {
            let (work, room) = interference(slots, k, m, rule);
            let task = &mut slots[k];
            if work >= room {
                first.get_or_insert(Excess { task: k, window: task.window, work, room });
                continue;
            }
            if let Some(done) = proven.get_mut(k) {
                *done = true;
            }
            let wait = divided(work, m);
            let slack = task.window - task.c - wait;
            if slack > task.slack {
                task.slack = slack;
                grew = true;
            }
        }
        match first {
            None if hurried || !grew => return Load::Met,
            Some(excess) if !grew => return Load::Exceeded(excess),
            _ => {}
        }
    }
    if first.is_none() { Load::Met } else { Load::Undecided }
}

/// floor(work / m), where it is known to fit.
#[inline]
pub(super) fn divided(work: u128, m: u32) -> u64 {
    match u64::try_from(work) {
        Ok(work) => work / u64::from(m),
        Err(_) => u64::try_from(work / u128::from(m)).expect("an average of capped terms"),
    }
}
