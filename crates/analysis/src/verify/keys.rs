//! Levels with jobs ordered by keys (deadlines or laxities), on one CPU or in a server, preemptive
//! or not.
//!
//! A job has a *key*. While a job of the level with a key up to X is pending, the CPU runs only
//! such jobs, more important levels, or a piece of other work that blocks once. By deadline the key
//! is a + D + shift. By laxity the key is a + D less the remaining WCET, compared at releases and
//! completions at least. Such keys never fall, and the comparison takes the smallest. So a job that
//! goes before a job with deadline X had a_k + D_k - C_k <= X at its release. If started jobs of
//! the level are not preempted, laxities are constant until the start, and one job with a larger
//! key may have started. At most C - 1 of this job is left if time is whole ns and only independent
//! jobs take time, else C.
//!
//! **Groups.** Let J be a job of a group with key X, and 0 the last instant up to its release such
//! that before 0 no job of precedence is pending. From 0 until J completes, the work done is at
//! most
//!
//! ```text
//! W(X, t) = sum over more important k of ceil((t + J_k) / T_k) C_k
//!         + sum over k of the level with e_k <= X of
//!               min(ceil((t + J_k) / T_k), floor((X - e_k + s_k) / T_k) + 1) C_k
//!         + B(X) + the work that had started
//! ```
//!
//! by t. Here e_k is the least key of a first job, and s_k the wander of its arrivals. If W(X, t)
//! <= sbf(t), J is done by t. It is in time if t <= X + σ, σ the least D - (key - a) of the group.
//! W grows with X, so a point t shows all X' from t - σ to X, if started jobs are counted for keys
//! above t - σ. W grows only at e_k + m T_k - s_k and e_k, and between these a larger X has more
//! time. So these are the keys to look at. Let all releases within H of the level and the more
//! important levels, with all blocking, be done within H. Then J was released before H: X < H + max
//! (key - a). So points from there down to the least key of the group show it.

use super::{Claim, Keys, Part, Work, fits};
use takt_model::plan::Order;
use takt_model::{PlanLevel, TaskId};

/// ceil((x + more) / t) C.
pub(super) fn releases(x: u128, more: u128, t: u128, c: u128) -> Option<u128> {
    x.checked_add(more)?.div_ceil(t).checked_mul(c)
}

impl Part {
    /// Work within w before a level, besides jobs: ticks and interrupts. With laxities also the
    /// switches of comparisons: at each release, each point of the grid, and the end of late jobs.
    pub(super) fn overhead_before_level(&self, level: u32, w: u128) -> Option<u128> {
        let mut sum =
            self.overheads().try_fold(0u128, |sum, (c, t, late)| sum.checked_add(releases(w, late, t, c)?))?;
        let switch = self.costs.map_or(0, |costs| u128::from(costs.switch.as_ns()));
        let laxity = |level: u32| {
            let spec = self.levels[level as usize];
            let several = self.tasks.iter().filter(|task| task.level == level).count() > 1;
            spec.order == Order::Laxity && spec.preemptive && several
        };
        if switch > 0 && (0..=level).any(laxity) {
            let ends = 1 + u128::from(!self.levels.iter().all(PlanLevel::continues));
            for task in &self.tasks {
                sum = sum.checked_add(releases(w, task.spread(), task.t.into(), ends * switch)?)?;
            }
            if let Some(grid) = self.grid {
                sum = sum.checked_add(releases(w, 0, grid.into(), switch)?)?;
            }
        }
        Some(sum)
    }
}

/// The keys of a task, from its arrival: as a job that goes before others, and as the job under
/// test.
struct Key<'a> {
    task: &'a Work,
    c: u128,
    /// e, of its release.
    first: i128,
    /// The key of a job that has not started.
    start: i128,
    /// θ.
    own: i128,
}

/// Tasks of one level, among all that may go before them.
pub(crate) struct Group<'a> {
    part: &'a Part,
    name: &'a str,
    level: u32,
    keys: Vec<Key<'a>>,
    /// The task, if it is one.
    alone: Option<TaskId>,
    preemptive: bool,
    /// Whether all of a job may be left when another arrives just after its start.
    dense: bool,
    /// The least key, and the largest after the arrival.
    least: i128,
    most: i128,
    /// σ.
    pub(crate) sigma: i128,
}

impl<'a> Group<'a> {
    pub(crate) fn new(part: &'a Part, names: &'a [String]) -> Result<Group<'a>, String> {
        let group = names.iter().map(|name| part.find(name)).collect::<Result<Vec<_>, _>>()?;
        let (name, first) = names.first().zip(group.first()).ok_or("a group of no tasks")?;
        let level = first.level;
        let spec = part.levels[level as usize];
        let here = || part.tasks.iter().filter(|task| task.level == level);
        let (by_laxity, preemptive) = (spec.order == Order::Laxity, spec.preemptive);
        let known = match spec.order {
            Order::Deadline => true,
            Order::Laxity => here().all(|task| task.release_delay == 0 && task.c <= task.t),
            Order::Fifo => false,
        };
        let alone = Some(first.id).filter(|_| group.len() == 1);
        let served = part.supply.is_some() && (by_laxity || !preemptive);
        let together = by_laxity && preemptive && alone.is_none();
        if !known || served || together || group.iter().any(|task| task.level != level) {
            return Err(format!("{}: the jobs of \"{name}\" do not go by keys there", part.scope));
        }
        let mut keys = Vec::with_capacity(part.tasks.len());
        for task in here() {
            let (d, c, shift) = (i128::from(task.d), i128::from(task.c), i128::from(task.shift));
            let start = if by_laxity { d - c } else { d + shift };
            let own = if by_laxity && preemptive { d } else { start };
            let first = if alone == Some(task.id) { own } else { start } - i128::from(task.j);
            keys.push(Key { task, c: part.charged(task), first, start, own });
        }
        let in_group = || keys.iter().filter(|key| group.iter().any(|task| task.id == key.task.id));
        let least = in_group().map(|key| key.own - i128::from(key.task.j)).min().unwrap_or(0);
        let most = in_group().map(|key| key.own).max().unwrap_or(0);
        let sigma = in_group().map(|key| i128::from(key.task.d) - key.own).min().unwrap_or(0);
        let chained = part.tasks.iter().any(|task| task.chained && task.level <= level);
        let dense = part.supply.is_some() || part.overheads().next().is_some() || chained;
        Ok(Group { part, name, level, keys, alone, preemptive, dense, least, most, sigma })
    }

    /// Work that had started with a key above x.
    fn started(&self, x: i128) -> u128 {
        if self.preemptive {
            return 0;
        }
        let others = self.keys.iter().filter(|key| key.start > x && self.alone != Some(key.task.id));
        let rest = others.map(|key| key.c - u128::from(!self.dense && key.c == u128::from(key.task.c)));
        rest.max().unwrap_or(0)
    }

    /// Work within w before the level.
    fn above(&self, w: u128) -> Option<u128> {
        let mut sum = self.part.overhead_before_level(self.level, w)?;
        for other in self.part.tasks.iter().filter(|other| other.level < self.level) {
            sum = sum.checked_add(releases(w, other.spread(), other.t.into(), self.part.charged(other))?)?;
        }
        Some(sum)
    }

    /// All that is released within w, and can be in the way.
    pub(crate) fn busy(&self, w: u128) -> Option<u128> {
        let blocking = self.keys.iter().map(|key| u128::from(key.task.b)).max().unwrap_or(0);
        let mut sum = self.above(w)?.checked_add(blocking)?.checked_add(self.started(i128::MIN))?;
        for key in &self.keys {
            sum = sum.checked_add(releases(w, key.task.spread(), key.task.t.into(), key.c)?)?;
        }
        Some(sum)
    }

    /// How many jobs of k have keys up to x after the first, for e <= x.
    fn steps(key: &Key, x: i128) -> i128 {
        (x - key.first + i128::from(key.task.release_delay)) / i128::from(key.task.t)
    }

    /// W(x, t), with what had started with keys above `low`.
    pub(crate) fn work(&self, x: i128, low: i128, t: u128) -> Option<u128> {
        let mut sum = self.above(t)?.checked_add(self.started(low))?;
        let mut blocking = 0u64;
        for key in self.keys.iter().filter(|key| key.first <= x) {
            let released = t.checked_add(key.task.spread())?.div_ceil(key.task.t.into());
            let count = (Self::steps(key, x).unsigned_abs() + 1).min(released);
            sum = sum.checked_add(count.checked_mul(key.c)?)?;
            blocking = blocking.max(key.task.b);
        }
        sum.checked_add(blocking.into())
    }

    /// No key of the group is larger in a window of this length.
    pub(crate) fn largest(&self, horizon: u64) -> i128 {
        i128::from(horizon) + self.most - 1
    }

    /// The largest key up to x at which W grows, as long as there are keys of the group.
    pub(crate) fn last(&self, x: i128) -> Option<i128> {
        let of = |key: &Key| {
            let steps = Self::steps(key, x) * i128::from(key.task.t);
            (key.first + steps - i128::from(key.task.release_delay)).max(key.first)
        };
        self.keys.iter().filter(|key| key.first <= x).map(of).max().filter(|last| *last >= self.least)
    }
}

pub(super) fn check(part: &Part, claim: &Keys) -> Claim {
    let group = Group::new(part, &claim.tasks)?;
    // A window of no length holds no release: it shows nothing.
    if claim.horizon_ns == 0 || claim.points_ns.contains(&0) {
        return Err(format!("{}: a horizon or point of 0 ns", part.scope));
    }
    let horizon = u128::from(claim.horizon_ns);
    if fits(group.busy(horizon))? > part.given(horizon) {
        return Err(format!("{}: jobs released within {horizon} ns are not all done by then", part.scope));
    }
    let mut open = group.largest(claim.horizon_ns);
    for point in &claim.points_ns {
        let Some(x) = group.last(open) else { break };
        let (low, t) = (i128::from(*point) - group.sigma, u128::from(*point));
        let work = fits(group.work(x, low, t))?;
        if low > x || work > part.given(t) {
            return Err(format!("{}: {work} ns go before a job of \"{}\" within {t} ns", part.scope, group.name));
        }
        open = low - 1;
    }
    match group.last(open) {
        Some(x) => Err(format!("{}: jobs of \"{}\" with key {x} ns are not covered", part.scope, group.name)),
        None => Ok(()),
    }
}
