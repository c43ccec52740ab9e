//! The rounds that [`bcl_iterative`](super::bcl_iterative), [`rta_global`](super::rta_global) and
//! [`rta_lc`](super::rta_lc) share: a proven slack of one task sharpens the bounds of others.
//!
//! Slack may be used before all tasks are proven. Up to the first miss, every job has completed by
//! S_i before its deadline, by induction over these instants.

use super::{Bounds, Excess, Limit, Load, Rule, Slot, Sporadic, Terms, prepared};

/// Rounds over all tasks before a test gives up. Slack grows by at least 1 ns a round, mostly by far more.
pub const ROUNDS_MAX: u32 = 10_000;

pub(super) enum SlackResult {
    /// Its jobs complete this much before their deadlines.
    Slack(u64),
    /// Nothing.
    Over,
    Limit(Limit),
}

/// A test of one task under what is known of the others.
pub(super) trait Step {
    fn slack(&mut self, slots: &[Slot], k: usize) -> SlackResult;

    /// Why nothing is.
    fn excess(&mut self, slots: &[Slot], k: usize) -> Excess;
}

/// The works that may delay a task, and what is left of the limit on looking at them.
pub(super) struct Works {
    pub(super) m: u32,
    pub(super) list: Vec<u64>,
    /// How far works of the list grow with the length, unit by unit; may be left out.
    pub(super) ramps: Vec<u64>,
    /// Terms that the analysis may still evaluate, one work each.
    pub(super) terms: Terms,
    /// By task: no response is shorter.
    least: Vec<u64>,
}

impl Works {
    /// None yet, on `m` CPUs, and so many terms (one work each) to evaluate.
    pub(super) const fn new(m: u32, terms: Terms) -> Works {
        Works { m, list: Vec::new(), ramps: Vec::new(), terms, least: Vec::new() }
    }

    /// Lists a work that grows, up to a limit of its own.
    #[inline]
    pub(super) fn push(&mut self, (work, ramp): (u64, u64), most: u64) {
        self.list.push(work.min(most));
        let ramp = ramp.min(most.saturating_sub(work));
        if ramp > 0 {
            self.ramps.push(ramp);
        }
    }
}

/// A test by the works that may delay a task within a length. Works grow with the length. The
/// response is the least fixed point of execution plus waiting time.
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
    fn slack(&mut self, slots: &[Slot], k: usize) -> SlackResult {
        let task = &slots[k];
        self.begin(slots, k);
        let mut response = self.works().least.get(k).map_or(task.c, |least| task.c.max(*least));
        loop {
            if let Err(limit) = self.works().terms.spend(slots.len()) {
                return SlackResult::Limit(limit);
            }
            self.collect(slots, k, response);
            let Some(more) = self.works().more(response - task.c + 1) else {
                return SlackResult::Slack(task.window - response);
            };
            if more > task.window - response {
                return SlackResult::Over;
            }
            response += more;
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

/// Raises the slack of each task until nothing changes; if `until_proven`, only until all are proven. Marks the proven
/// tasks.
#[inline]
pub(super) fn raise(slots: &mut [Slot], until_proven: bool, proven: &mut [bool], step: &mut impl Step) -> Load {
    let mut all = false;
    for _ in 0..ROUNDS_MAX {
        let (mut over, mut grew) = (None, false);
        for k in 0..slots.len() {
            match step.slack(slots, k) {
                SlackResult::Slack(slack) => {
                    if let Some(done) = proven.get_mut(k) {
                        *done = true;
                    }
                    if slack > slots[k].slack {
                        slots[k].slack = slack;
                        grew = true;
                    }
                }
                // An earlier proof stays valid.
                _ if proven.get(k) == Some(&true) => {}
                SlackResult::Over => over = over.or(Some(k)),
                SlackResult::Limit(limit) => return Load::Undecided(limit),
            }
        }
        all = over.is_none();
        match over {
            None if until_proven || !grew => return Load::Met,
            Some(k) if !grew => return Load::Exceeded(step.excess(slots, k)),
            _ => {}
        }
    }
    if all { Load::Met } else { Load::Undecided(Limit::Rounds(ROUNDS_MAX)) }
}

/// Rounds of slack from above before the first from 0. Nearly all tasks that fail, fail in these.
const ROUNDS_FROM_ABOVE: u32 = 3;

/// Steps of one task in such a round before the next task.
const STEPS_MAX: u32 = 2;

/// The verdict of [`raise`] with `until_proven`, in fewer steps.
///
/// Slack is also lowered from its largest possible value. [`raise`] never passes the result,
/// because more slack of others never gives less slack of one's own. So a task that fails here is
/// never proven. No round finds a shorter response, so fixed points may be sought from these
/// responses on.
///
/// From 0, those not yet proven come first, for their slack is all that is new. The order is of no
/// matter: slack grows with slack, so each reaches the same end.
pub(super) fn decide(slots: &mut [Slot], step: &mut impl Collect) -> Load {
    let mut most = slots.to_vec();
    for slot in &mut most {
        slot.slack = slot.window - slot.c;
    }
    step.works().least = slots.iter().map(|slot| slot.c).collect();
    // The rounds from above may use as many terms as those from 0.
    let mut terms = step.works().terms;
    let mut lowering = true;
    for _ in 0..ROUNDS_FROM_ABOVE {
        if lowering {
            match lower_slack(&mut most, step, &mut terms) {
                Ok(lowered) => lowering = lowered,
                Err(excess) => return Load::Exceeded(excess),
            }
        }
    }
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
                    SlackResult::Slack(slack) => {
                        grew |= !again || slack > slots[k].slack;
                        slots[k].slack = slots[k].slack.max(slack);
                        proven[k] = true;
                        left -= usize::from(!again);
                        if left == 0 {
                            return Load::Met;
                        }
                    }
                    // An earlier proof stays valid.
                    SlackResult::Over if again => {}
                    SlackResult::Over => over = over.or(Some(k)),
                    SlackResult::Limit(limit) => return Load::Undecided(limit),
                }
            }
        }
        if !grew && let Some(k) = over {
            return Load::Exceeded(step.excess(slots, k));
        }
        if lowering {
            match lower_slack(&mut most, step, &mut terms) {
                Ok(lowered) => lowering = lowered,
                Err(excess) => return Load::Exceeded(excess),
            }
        }
    }
    Load::Undecided(Limit::Rounds(ROUNDS_MAX))
}

/// Lowers the slack of each task once, from above. Returns whether any became less.
///
/// # Errors
/// A task that fails.
fn lower_slack(most: &mut [Slot], step: &mut impl Collect, terms: &mut Terms) -> Result<bool, Excess> {
    let mut lowered = false;
    // Those with the longest windows, which mostly come last, are found out first.
    for k in (0..most.len()).rev() {
        step.begin(most, k);
        for _ in 0..STEPS_MAX {
            if terms.spend(most.len()).is_err() {
                return Ok(false);
            }
            let response = most[k].window - most[k].slack;
            step.collect(most, k, response);
            let Some(more) = step.works().more(response - most[k].c + 1) else { break };
            if more > most[k].slack {
                return Err(step.excess(most, k));
            }
            most[k].slack -= more;
            step.works().least[k] = response + more;
            lowered = true;
        }
    }
    Ok(lowered)
}

/// The verdict with the bounds that the slack makes.
pub(super) fn analyse(tasks: &[Sporadic], m: u32, rule: Rule, step: &mut impl Step) -> Bounds {
    let mut responses = vec![None; tasks.len()];
    let load = prepared(tasks, m, |slots| {
        let mut proven = vec![false; slots.len()];
        let load = raise(slots, false, &mut proven, step);
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

/// Works that are set apart on the stack.
const APART: usize = 8;

impl Works {
    /// How much longer than `wait` units a wait has to be that these works cannot fill on the CPUs,
    /// each task one at a time; `None` where they cannot even fill `wait`. Never so much that a
    /// length before it were such a wait, for works as they grow.
    ///
    /// Works W fill y units unless sum of min(W_i, y) < m y. For any q < m of the works the sum is
    /// at most q y + the other works, with equality for the q largest and some q. Let A_q be the
    /// sum without the q largest. The works do not fill y units if and only if A_q < (m - q) y for
    /// some q.
    ///
    /// With the length, works grow: let `grow` of them grow by one a unit for `ramp` units at
    /// least. At y + x the works without any q are at least A_q + max(0, grow - q) min(x, ramp).
    /// The function finds the least x with this sum below (m - q) (y + x). The left side first
    /// grows by s = max(0, grow - q) a unit. The first candidate is floor((A_q - (m - q) y) / (m -
    /// q - s)) + 1. If it exceeds the ramp, the least x is floor((A_q + s ramp - (m - q) y) / (m -
    /// q)) + 1.
    pub(super) fn more(&mut self, wait: u64) -> Option<u64> {
        let total = self.list.iter().try_fold(0u64, |sum, work| sum.checked_add(*work));
        let Some(total) = total else { return self.more_wide(wait) };
        let mut top = [0u64; APART];
        let apart = (self.m as usize - 1).min(self.list.len());
        let largest = if apart <= APART {
            for &work in &self.list {
                let mut work = work;
                for place in &mut top[..apart] {
                    (*place, work) = (work.max(*place), work.min(*place));
                }
            }
            &top[..apart]
        } else {
            descend(&mut self.list, apart);
            &self.list[..apart]
        };
        let m = u64::from(self.m);
        // `rest`: A_q, from q = 0 on.
        let (mut rest, mut least) = (total, u64::MAX);
        for cpus in (m - apart as u64..=m).rev() {
            let short = rest.checked_sub(cpus.saturating_mul(wait))?;
            least = least.min(short / cpus + 1);
            if let Some(work) = largest.get((m - cpus) as usize) {
                rest -= work;
            }
        }
        let ramps = self.ramps.iter().filter(|ramp| **ramp > least);
        let (grow, ramp) = ramps.fold((0u64, u64::MAX), |(grow, least), ramp| (grow + 1, least.min(*ramp)));
        if grow == 0 {
            return Some(least);
        }
        (rest, least) = (total, u64::MAX);
        for cpus in (m - apart as u64..=m).rev() {
            let (short, slope) = (rest - cpus * wait, grow.saturating_sub(m - cpus));
            let within = cpus.checked_sub(slope).filter(|rate| *rate > 0).map(|rate| short / rate + 1);
            let more = match within {
                Some(more) if more <= ramp => more,
                // No growth where it does not fit: less is safe.
                _ => slope.checked_mul(ramp).and_then(|grown| short.checked_add(grown)).unwrap_or(short) / cpus + 1,
            };
            least = least.min(more);
            if let Some(work) = largest.get((m - cpus) as usize) {
                rest -= work;
            }
        }
        Some(least)
    }

    /// The same for sums beyond 64 bits, and works that do not grow.
    #[cold]
    fn more_wide(&mut self, wait: u64) -> Option<u64> {
        let apart = (self.m as usize - 1).min(self.list.len());
        descend(&mut self.list, apart);
        let mut rest: u128 = self.list.iter().map(|work| u128::from(*work)).sum();
        let mut least = u64::MAX;
        for (q, cpus) in (0..=apart).zip((1..=self.m).rev()) {
            let short = rest.checked_sub(u128::from(cpus) * u128::from(wait))?;
            least = least.min(u64::try_from(short / u128::from(cpus)).map_or(u64::MAX, |more| more.saturating_add(1)));
            rest -= self.list.get(q).map_or(0, |work| u128::from(*work));
        }
        Some(least)
    }
}

/// Brings the `count` largest to the front, the largest first.
fn descend(works: &mut [u64], count: usize) {
    if count > 0 && count < works.len() {
        works.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
    }
    works[..count].sort_unstable_by(|a, b| b.cmp(a));
}
