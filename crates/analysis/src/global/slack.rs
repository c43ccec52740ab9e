//! The rounds that [`bcl_iterative`](super::bcl_iterative), [`rta_global`](super::rta_global) and [`rta_lc`](super::rta_lc)
//! share: what is proven of one task sharpens what is said of others.
//!
//! Slack may be used before all tasks are proven: up to the first miss, every job that reaches the instant S_i before its
//! deadline has completed by then, by induction over those instants.

use super::{Bounds, Excess, Load, Rule, Slot, Sporadic, prepared};

/// Rounds over all tasks before a test gives up. Slack grows by at least 1 ns a round, mostly by far more.
pub const ROUNDS_MAX: u32 = 10_000;

/// What is known of one task.
pub(super) enum Found {
    /// Its jobs complete this much before their deadlines.
    Slack(u64),
    /// Nothing.
    Over,
    /// A limit was reached.
    Limit,
}

/// A test of one task under what is known of the others.
pub(super) trait Step {
    /// What is known of task k.
    fn slack(&mut self, slots: &[Slot], k: usize) -> Found;

    /// Why nothing is.
    fn excess(&mut self, slots: &[Slot], k: usize) -> Excess;
}

/// Raises the slack of each task until nothing changes, or, `hurried`, until all are proven. Marks those that are.
#[inline]
pub(super) fn raise(slots: &mut [Slot], hurried: bool, proven: &mut [bool], step: &mut impl Step) -> Load {
    let mut all = false;
    for _ in 0..ROUNDS_MAX {
        let (mut over, mut grew) = (None, false);
        for k in 0..slots.len() {
            match step.slack(slots, k) {
                Found::Slack(slack) => {
                    if let Some(done) = proven.get_mut(k) {
                        *done = true;
                    }
                    if slack > slots[k].slack {
                        slots[k].slack = slack;
                        grew = true;
                    }
                }
                // What was proven before stays so.
                _ if proven.get(k) == Some(&true) => {}
                Found::Over => over = over.or(Some(k)),
                Found::Limit => return Load::Undecided,
            }
        }
        all = over.is_none();
        match over {
            None if hurried || !grew => return Load::Met,
            Some(k) if !grew => return Load::Exceeded(step.excess(slots, k)),
            _ => {}
        }
    }
    if all { Load::Met } else { Load::Undecided }
}

/// The verdict with the bounds that the slack makes.
pub(super) fn analyse(tasks: &[Sporadic], m: u32, rule: Rule, mut step: impl Step) -> Bounds {
    let mut responses = vec![None; tasks.len()];
    let load = prepared(tasks, m, |slots| {
        let mut proven = vec![false; slots.len()];
        let load = raise(slots, false, &mut proven, &mut step);
        responses = reported(slots, rule, &proven);
        load
    });
    if load.is_met() && tasks.len() <= m as usize {
        responses = tasks.iter().map(|task| Some(task.j + task.c)).collect();
    }
    Bounds { load, responses }
}

/// Which responses are proven, from which tasks are: see [`Bounds::responses`].
fn reported(slots: &[Slot], rule: Rule, proven: &[bool]) -> Vec<Option<u64>> {
    let failed = slots.iter().zip(proven).filter(|(_, proven)| !**proven).map(|(slot, _)| slot.level).min();
    let shown = |slot: &Slot| failed.is_none_or(|level| rule == Rule::Fp && slot.level < level);
    slots.iter().map(|slot| shown(slot).then(|| slot.d - slot.slack)).collect()
}

/// The least wait, in units, that these works cannot fill on `m` CPUs, each task one at a time: the least y >= 1 with
/// sum of min(W_i, y) < m y.
///
/// For any q < m of the works, the sum is at most q y + the others; so y is the least over q of floor(others / (m - q))
/// + 1, with the q largest set apart: there the bound is met.
pub(super) fn wait(works: &mut [u64], m: u32) -> u64 {
    works.sort_unstable_by(|a, b| b.cmp(a));
    let mut rest: u128 = works.iter().map(|work| u128::from(*work)).sum();
    let mut least = rest / u128::from(m);
    for (largest, cpus) in works.iter().zip((1..m).rev()) {
        rest -= u128::from(*largest);
        least = least.min(rest / u128::from(cpus));
    }
    // The average of fewer than 2^32 works below 2^62 times m: it fits where the window does.
    u64::try_from(least).unwrap_or(u64::MAX - 1) + 1
}
