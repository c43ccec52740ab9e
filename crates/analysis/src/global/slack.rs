//! The rounds that [`bcl_iterative`](super::bcl_iterative), [`rta_global`](super::rta_global) and [`rta_lc`](super::rta_lc)
//! share: what is proven of one task sharpens what is said of others.
//!
//! Slack may be used before all tasks are proven: up to the first miss, every job that reaches the instant S_i before its
//! deadline has completed by then, by induction over those instants.

use super::{Bounds, Excess, Limit, Load, Rule, Slot, Sporadic, prepared};

/// Rounds over all tasks before a test gives up. Slack grows by at least 1 ns a round, mostly by far more.
pub const ROUNDS_MAX: u32 = 10_000;

/// What is known of one task.
pub(super) enum Found {
    /// Its jobs complete this much before their deadlines.
    Slack(u64),
    /// Nothing.
    Over,
    /// A limit was reached.
    Limit(Limit),
}

/// A test of one task under what is known of the others.
pub(super) trait Step {
    /// What is known of task k.
    fn slack(&mut self, slots: &[Slot], k: usize) -> Found;

    /// Why nothing is.
    fn excess(&mut self, slots: &[Slot], k: usize) -> Excess;
}

/// The works that may delay a task, and what is left of the limit on looking at them.
pub(super) struct Works {
    pub(super) m: u32,
    pub(super) list: Vec<u64>,
    /// Terms (one work each) that one analysis may evaluate, and those that are left.
    terms: u64,
    terms_left: u64,
    /// By task: no response is shorter.
    least: Vec<u64>,
}

impl Works {
    /// None yet, on `m` CPUs, and so many terms (one work each) to evaluate.
    pub(super) const fn new(m: u32, terms: u64) -> Works {
        Works { m, list: Vec::new(), terms, terms_left: terms, least: Vec::new() }
    }

    /// All terms are left.
    pub(super) fn renew(&mut self) {
        self.terms_left = self.terms;
    }
}

/// A test by the works that may delay a task within a length: the response is the least fixed point of its execution and
/// what it waits for them, where works grow with the length.
pub(super) trait Collect {
    /// Those of the last length.
    fn works(&mut self) -> &mut Works;

    /// Takes note of the task that is looked at next.
    fn begin(&mut self, _slots: &[Slot], _k: usize) {}

    /// Lists the works that may delay task k within `length` of its release.
    fn collect(&mut self, slots: &[Slot], k: usize, length: u64);
}

impl<C: Collect> Step for C {
    #[inline]
    fn slack(&mut self, slots: &[Slot], k: usize) -> Found {
        let task = &slots[k];
        self.begin(slots, k);
        let mut response = self.works().least.get(k).map_or(task.c, |least| task.c.max(*least));
        loop {
            let works = self.works();
            let Some(left) = works.terms_left.checked_sub(slots.len() as u64) else {
                return Found::Limit(Limit::Terms(works.terms));
            };
            works.terms_left = left;
            self.collect(slots, k, response);
            let works = self.works();
            let next = (task.c - 1).saturating_add(wait(&mut works.list, works.m));
            if next <= response {
                return Found::Slack(task.window - response);
            }
            if next > task.window {
                return Found::Over;
            }
            response = next;
        }
    }

    fn excess(&mut self, slots: &[Slot], k: usize) -> Excess {
        let task = &slots[k];
        self.begin(slots, k);
        self.collect(slots, k, task.window);
        let most = task.window - task.c + 1;
        let works = self.works();
        let work = works.list.iter().map(|work| u128::from(*work.min(&most))).sum();
        Excess { task: Some(k), window: task.window, work, room: u128::from(most) * u128::from(works.m) }
    }
}

/// Rounds of slack from above: nearly all that fail are found out in these, where slack from 0 takes far more.
const LOWERED: u32 = 4;

/// Looks at each task with the most slack that the others can have, which [`raise`] never passes: more slack of others never gives
/// less of one's own. So a task that fails even so is never proven, and the responses that are found are the shortest that any
/// round finds; fixed points may be sought from there on.
pub(super) fn lower(slots: &mut [Slot], step: &mut impl Collect) -> Option<Excess> {
    for slot in slots.iter_mut() {
        slot.slack = slot.d - slot.c;
    }
    for _ in 0..LOWERED {
        let mut fell = false;
        for k in 0..slots.len() {
            match step.slack(slots, k) {
                Found::Slack(slack) if slack < slots[k].slack => (slots[k].slack, fell) = (slack, true),
                Found::Slack(_) | Found::Limit(_) => {}
                Found::Over => return Some(step.excess(slots, k)),
            }
        }
        if !fell {
            break;
        }
    }
    step.works().least = slots.iter().map(|slot| slot.window.saturating_sub(slot.slack)).collect();
    slots.iter_mut().for_each(|slot| slot.slack = 0);
    None
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
                Found::Limit(limit) => return Load::Undecided(limit),
            }
        }
        all = over.is_none();
        match over {
            None if hurried || !grew => return Load::Met,
            Some(k) if !grew => return Load::Exceeded(step.excess(slots, k)),
            _ => {}
        }
    }
    if all { Load::Met } else { Load::Undecided(Limit::Rounds(ROUNDS_MAX)) }
}

/// The verdict of a hurried [`raise`], with fewer looks: those not yet proven come first, for their slack is all that is new. The
/// order is of no matter: slack grows with slack, so each reaches the same end.
pub(super) fn prove(slots: &mut [Slot], step: &mut impl Step) -> Load {
    let mut proven = vec![false; slots.len()];
    let mut left = slots.len();
    for _ in 0..ROUNDS_MAX {
        let (mut grew, mut over) = (false, None);
        for again in [false, true] {
            // With nothing newly proven, more slack of the others may help.
            if again && grew {
                break;
            }
            for k in 0..slots.len() {
                if proven[k] != again {
                    continue;
                }
                match step.slack(slots, k) {
                    Found::Slack(slack) => {
                        grew |= !again || slack > slots[k].slack;
                        slots[k].slack = slots[k].slack.max(slack);
                        proven[k] = true;
                        left -= usize::from(!again);
                        if left == 0 {
                            return Load::Met;
                        }
                    }
                    // What was proven before stays so.
                    Found::Over if again => {}
                    Found::Over => over = over.or(Some(k)),
                    Found::Limit(limit) => return Load::Undecided(limit),
                }
            }
        }
        if !grew {
            return over.map_or(Load::Undecided(Limit::Rounds(ROUNDS_MAX)), |k| Load::Exceeded(step.excess(slots, k)));
        }
    }
    Load::Undecided(Limit::Rounds(ROUNDS_MAX))
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
    let apart = m as usize - 1;
    if apart > 0 && works.len() > 2 * apart.max(16) {
        works.select_nth_unstable_by(apart - 1, |a, b| b.cmp(a));
        works[..apart].sort_unstable_by(|a, b| b.cmp(a));
    } else {
        works.sort_unstable_by(|a, b| b.cmp(a));
    }
    if let Some(mut rest) = works.iter().try_fold(0u64, |sum, work| sum.checked_add(*work)) {
        let mut least = rest / u64::from(m);
        for (largest, cpus) in works.iter().zip((1..m).rev()) {
            rest -= largest;
            least = least.min(rest / u64::from(cpus));
        }
        return least.saturating_add(1);
    }
    let mut rest: u128 = works.iter().map(|work| u128::from(*work)).sum();
    let mut least = rest / u128::from(m);
    for (largest, cpus) in works.iter().zip((1..m).rev()) {
        rest -= u128::from(*largest);
        least = least.min(rest / u128::from(cpus));
    }
    // The average of fewer than 2^32 works below 2^62 times m: it fits where the window does.
    u64::try_from(least).unwrap_or(u64::MAX - 1) + 1
}
