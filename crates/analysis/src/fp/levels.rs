//! Response times of levels on one CPU, whatever the order within a level.
//!
//! A more important level always preempts, so a task's response depends on its own level and those
//! above, and above on nothing but how much is released. Within the level ([`crate::window`] has
//! the common argument):
//!
//! | order | key | counts against a job of i that arrives at a |
//! |---|---|---|
//! | first come, first served | release | jobs of the level released up to its release, those at the same instant included |
//! | by deadline (plus shift) | a + D + shift | jobs with keys up to its own |
//! | by laxity, preemptive | a + D - remaining C | jobs of k with a_k + D_k - C_k <= a + D_i |
//! | by laxity, once started to the end | a + D - C | jobs with keys up to its own, until it starts |
//! | any | - | all that is released before it completes |
//!
//! The last row is the classical analysis ([`super::rta`]); it bounds every order that keeps the
//! CPU for the level's jobs.
//!
//! **Laxity, compared at releases and completions only.** Let the key of a pending job be its
//! deadline minus its remaining WCET. The key never falls, and rises while the job runs. J is a job
//! of i with deadline x; its key stays up to x until J completes. Let 0 be the last instant up to
//! its release before which no job with a key up to x is pending. Keys do not fall, so such a job
//! is released at 0, and a comparison takes place. From 0 to J's completion some job with a key up
//! to x is pending at every comparison. The chosen job has the smallest key, thus a key up to x. It
//! was released at or after 0, with a key of a_k + D_k - C_k <= x. (Between comparisons its key may
//! exceed x, but the job is the same.) So W of [`crate::window`] with e_k = D_k - C_k and theta_i =
//! D_i bounds the response, at whatever further instants laxities are compared. Jobs of a task go
//! in order. An earlier job with a larger key cannot delay a later job with a key up to x, because
//! deadlines of a task lie T_k >= C_k apart. If they do not (successors of chains, C_k > T_k), the
//! last row is used.
//!
//! **Once started to the end.** Keys of jobs that have not started are constant. A job of the level
//! with a larger key, released before the window, may have started. At most one has, since from 0
//! on a job of precedence, or a more important level, is pending. The rest of the started job is at
//! most C - 1 ns under three conditions: time is whole nanoseconds, only jobs take CPU time, and no
//! task follows others. (A predecessor of zero execution releases its successor in the instant of
//! the start.) Otherwise the rest is at most C (dense time: C is the supremum). By deadline: L.
//! George, N. Rivierre, M. Spuri: Preemptive and Non-Preemptive Real-Time Uni-Processor Scheduling,
//! INRIA RR-2966, 1996, Section 4.
//!
//! Blocking B adds to the window once: the task's own, or that of a task of its level with jobs that go before.

use std::cmp::Ordering;

use crate::exact::compare_sum;
use crate::recip::Recip;
use crate::verdict::{Stop, spend};
use crate::window::{ALWAYS, AnalysedTask, Slot, Window};

/// Terms (one task's jobs each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 100_000_000;

/// The order within a level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// By release.
    Fifo,
    /// By absolute deadline plus shift.
    Deadline,
    /// By deadline minus remaining WCET, compared at releases and completions at least.
    Laxity,
    /// Not known: any.
    Any,
}

/// How a level treats its jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Who goes first.
    pub order: Order,
    /// Whether a job may take the CPU from one of the same level that has started. More important levels always may.
    pub preemptive: bool,
}

/// A task of some level; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LevelTask {
    /// C: worst-case execution time with all that its jobs cost, at least 1.
    pub c: u64,
    /// The WCET by which laxity is counted, at most C.
    pub wcet: u64,
    /// T: minimum inter-arrival time, at least 1.
    pub t: u64,
    /// D: deadline after the arrival.
    pub d: u64,
    /// Added to the deadline for the order alone.
    pub shift: i64,
    /// J: a job is released up to this after its arrival.
    pub j: u64,
    /// How far arrivals wander after their places on the period's grid (a chain's successor); deadlines follow.
    pub release_delay: u64,
    /// B: the longest section of less important work that can delay it.
    pub b: u64,
    /// Its level; 0 is the most important.
    pub level: u32,
}

/// Work that comes before tasks, such as the scheduler's tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overhead {
    /// Time stolen by each, at least 1.
    pub c: u64,
    /// Distance, at least 1.
    pub t: u64,
    /// How far they wander.
    pub release_delay: u64,
    /// It delays this level and those below.
    pub level: u32,
}

/// Bounds of one task's response time, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// From the arrival, from which its deadline counts.
    pub from_arrival: u64,
    /// From the arrival's place on the period's grid: from its source's arrival for a chain's successor.
    pub from_source: u64,
}

/// One analysis: its buffers, and what is left of its work limit.
#[derive(Clone, Debug)]
pub struct Analysis {
    window: Window,
    order: Vec<u32>,
    terms_max: u64,
    terms_left: u64,
    /// The level in which the limit was reached.
    stopped_at: Option<u32>,
}

impl Default for Analysis {
    /// With [`TERMS_MAX`].
    fn default() -> Self {
        Analysis::within(TERMS_MAX)
    }
}

/// A set of tasks under levels.
#[derive(Clone, Copy, Debug)]
pub struct Levels<'a> {
    /// The most important first.
    pub levels: &'a [Level],
    /// In any order.
    pub tasks: &'a [LevelTask],
    /// Comes before tasks.
    pub overheads: &'a [Overhead],
}

/// By what a level is analysed.
#[derive(Clone, Copy, Debug)]
struct Keys {
    level: Level,
    /// Added to all keys, so that they are above zero.
    base: i128,
}

impl Keys {
    fn new(set: &Levels, tasks: &[u32]) -> Option<Keys> {
        let here = || tasks.iter().filter_map(|i| set.tasks.get(*i as usize));
        let given = *set.levels.get(here().next()?.level as usize)?;
        let order = match given.order {
            // A level of one task is served in the order of arrival under any order.
            _ if tasks.len() == 1 => Order::Fifo,
            Order::Laxity if here().any(|task| task.release_delay > 0 || task.wcet > task.t) => Order::Any,
            order => order,
        };
        // First come, first served takes the CPU from nobody.
        let preemptive = given.preemptive || matches!(order, Order::Fifo | Order::Any);
        let mut keys = Keys { level: Level { order, preemptive }, base: 0 };
        let least = |task: &LevelTask| keys.relative(task, true).min(keys.relative(task, false)) - i128::from(task.j);
        keys.base = 1 - here().map(least).min()?;
        Some(keys)
    }

    /// From the arrival to the key: of a job that goes before another (`others`), or of the
    /// analysed job while it is pending.
    fn relative(&self, task: &LevelTask, others: bool) -> i128 {
        let remaining = if others || !self.level.preemptive { i128::from(task.wcet) } else { 0 };
        self.base
            + match self.level.order {
                Order::Fifo | Order::Any => 0,
                Order::Deadline => i128::from(task.d) + i128::from(task.shift),
                Order::Laxity => i128::from(task.d) - remaining,
            }
    }

    fn key(&self, task: &LevelTask, others: bool) -> Option<u64> {
        u64::try_from(self.relative(task, others)).ok().filter(|key| *key < ALWAYS)
    }

    /// How a task weighs on one of `level`, perhaps on itself (`own`).
    fn slot(&self, task: &LevelTask, level: u32, own: bool, bunched: bool) -> Option<Slot> {
        let release_delay = task.release_delay.checked_add(task.j).filter(|release_delay| *release_delay < ALWAYS)?;
        let always = Slot { c: task.c, period: Recip::new(task.t), release_delay, first: 0, burst: ALWAYS };
        if task.level < level {
            return Some(always);
        }
        let (first, burst) = match self.level.order {
            Order::Fifo | Order::Any if own => (1, if bunched { release_delay } else { 0 }),
            Order::Any => (0, ALWAYS),
            Order::Fifo => (1, release_delay),
            Order::Deadline | Order::Laxity => (self.key(task, !own)? - task.j, task.release_delay),
        };
        Some(Slot { first, burst, ..always })
    }

    fn own(&self, this: &LevelTask) -> Option<AnalysedTask> {
        let theta = self.key(this, false)?;
        Some(AnalysedTask { c: this.c, first: theta - this.j, theta, reach: theta })
    }
}

/// One job of each task and overhead of the levels up to `level`, and the least distance between two of its releases.
///
/// If the sum of these jobs and of the longest blocking is at most that distance, it is the busy window. Then no
/// iteration is needed.
#[derive(Default)]
struct WorkOnce {
    /// The sum of C. `None` above 64 bits.
    work: Option<u64>,
    /// The longest blocking of the last level.
    blocking: u64,
    /// The least T - J - wander. `None` if one is negative.
    min_distance: Option<u64>,
    level: Option<u32>,
}

impl WorkOnce {
    /// Windows up to this are known to fit the numbers of [`Window`].
    const LONGEST: u64 = 1 << 54;

    fn add(&mut self, set: &Levels, tasks: &[u32]) {
        let Some(level) = tasks.first().map(|i| set.tasks[*i as usize].level) else { return };
        let here = || tasks.iter().map(|i| &set.tasks[*i as usize]);
        let new =
            |overhead: &&Overhead| overhead.level <= level && self.level.is_none_or(|before| overhead.level > before);
        let overheads: Vec<(u64, u64, u64)> =
            set.overheads.iter().filter(new).map(|overhead| (overhead.c, overhead.t, overhead.release_delay)).collect();
        let (mut work, mut min_distance) =
            if self.level.is_some() { (self.work, self.min_distance) } else { (Some(0), Some(u64::MAX)) };
        for (c, t, release_delay) in
            here().map(|task| (task.c, task.t, task.release_delay.saturating_add(task.j))).chain(overheads)
        {
            work = work.and_then(|work| work.checked_add(c));
            min_distance = min_distance.and_then(|min_distance| Some(min_distance.min(t.checked_sub(release_delay)?)));
        }
        let blocking = here().map(|task| task.b).max().unwrap_or(0);
        *self = WorkOnce { work, blocking, min_distance, level: Some(level) };
    }

    /// The busy window of the last level, where it holds one job of each.
    fn window(&self) -> Option<u64> {
        let window = self.work?.checked_add(self.blocking)?;
        (window <= self.min_distance?.min(Self::LONGEST)).then_some(window)
    }
}

impl LevelTask {
    fn respond(&self, from_arrival: u64) -> Option<Response> {
        Some(Response { from_arrival, from_source: from_arrival.checked_add(self.release_delay)? })
    }
}

impl Analysis {
    /// With so many terms to evaluate.
    #[must_use]
    pub fn within(terms: u64) -> Analysis {
        Analysis { window: Window::default(), order: Vec::new(), terms_max: terms, terms_left: terms, stopped_at: None }
    }

    /// With how many terms it started, and how many are left.
    pub(crate) const fn terms(&self) -> (u64, u64) {
        (self.terms_max, self.terms_left)
    }

    /// Bounds the response time of every task, in the order of `set.tasks`. Until the limit of the
    /// work is reached the most important are bounded first.
    ///
    /// A task has no bound where its level and those above it are overloaded, where the bound
    /// exceeds 2^58 ns (nine years), or past the limit. For first come, first served and for
    /// preemptive deadlines the bound of sporadic tasks without jitter, wander or blocking is exact
    /// up to the order of jobs that tie.
    pub fn responses(&mut self, set: &Levels, bounds: &mut Vec<Option<Response>>) {
        bounds.clear();
        bounds.resize(set.tasks.len(), None);
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..set.tasks.len() as u32);
        // Within a level the longest deadline first: the keys at which it responds latest are
        // likely ones for the others.
        order.sort_unstable_by_key(|i| {
            let task = &set.tasks[*i as usize];
            (task.level, u64::MAX - task.d)
        });
        let mut once = WorkOnce::default();
        for level in order.chunk_by(|a, b| set.tasks[*a as usize].level == set.tasks[*b as usize].level) {
            once.add(set, level);
            let _ = self.level(set, level, once.window(), bounds);
            if self.terms_left == 0 && self.stopped_at.is_none() {
                self.stopped_at = level.first().map(|i| set.tasks[*i as usize].level);
            }
        }
        self.order = order;
    }

    /// Bounds the tasks of one level as far as the work limit reaches. `once` is its busy window,
    /// where that holds one job of each task.
    fn level(&mut self, set: &Levels, tasks: &[u32], once: Option<u64>, bounds: &mut [Option<Response>]) -> Option<()> {
        let keys = Keys::new(set, tasks)?;
        if let Some(window) = once {
            for i in tasks {
                let task = &set.tasks[*i as usize];
                bounds[*i as usize] = window.checked_add(task.j).and_then(|bound| task.respond(bound));
            }
            // The window is all that counts, whatever the order; the other orders may show less.
            if matches!(keys.level.order, Order::Fifo | Order::Any) {
                return Some(());
            }
        }
        // By deadline one window serves all.
        let shared = keys.level.order == Order::Deadline && keys.level.preemptive;
        if shared {
            self.prepare(set, None, tasks, &keys, false)?;
        }
        for i in tasks {
            let i = *i as usize;
            let found = match keys.level {
                Level { order: Order::Fifo | Order::Any, .. } => self.by_release(set, i, tasks, &keys),
                Level { preemptive: true, .. } => {
                    if !shared {
                        self.prepare(set, Some(i), tasks, &keys, false)?;
                    }
                    let own = keys.own(&set.tasks[i])?;
                    self.window.response(own, &mut self.terms_left).and_then(|bound| set.tasks[i].respond(bound))
                }
                Level { preemptive: false, .. } => self.once_started(set, i, tasks, &keys),
            };
            bounds[i] = found.or(bounds[i]);
        }
        Some(())
    }

    fn by_release(&mut self, set: &Levels, i: usize, tasks: &[u32], keys: &Keys) -> Option<Response> {
        let this = &set.tasks[i];
        let release_delay = this.release_delay.checked_add(this.j)?;
        // The job with place r - J - w on the grid, of all jobs released up to r. Its predecessors
        // lie T apart.
        self.prepare(set, Some(i), tasks, keys, false)?;
        let own = AnalysedTask { c: this.c, first: 1, theta: 1, reach: release_delay.checked_add(1)? };
        let from_source = self.window.response(own, &mut self.terms_left)?.checked_add(release_delay)?;
        if this.release_delay == 0 {
            return Some(Response { from_arrival: from_source, from_source });
        }
        // One that arrived at r - J: its own earlier ones may have wandered.
        self.prepare(set, Some(i), tasks, keys, true)?;
        let own = AnalysedTask { reach: 1, ..own };
        let from_arrival = self.window.response(own, &mut self.terms_left)?.checked_add(this.j)?;
        Some(Response { from_arrival: from_arrival.min(from_source), from_source })
    }

    fn once_started(&mut self, set: &Levels, i: usize, tasks: &[u32], keys: &Keys) -> Option<Response> {
        let any = Keys { level: Level { order: Order::Any, preemptive: true }, base: 1 };
        let any = self.by_release(set, i, tasks, &any);
        self.prepare(set, Some(i), tasks, keys, false)?;
        let bound = self.window.response_once_started(keys.own(&set.tasks[i])?, &mut self.terms_left);
        match (any, bound.and_then(|bound| set.tasks[i].respond(bound))) {
            (Some(a), Some(b)) => Some(Response {
                from_arrival: a.from_arrival.min(b.from_arrival),
                from_source: a.from_source.min(b.from_source),
            }),
            (a, b) => a.or(b),
        }
    }

    /// Fills the window for task `own` of the level of `tasks`; `bunched`: its own earlier jobs may
    /// have been released late under first come, first served.
    fn prepare(&mut self, set: &Levels, own: Option<usize>, tasks: &[u32], keys: &Keys, bunched: bool) -> Option<()> {
        let level = set.tasks.get(*tasks.first()? as usize)?.level;
        spend(&mut self.terms_left, set.tasks.len() as u64)?;
        // A successor can be released within an instant in which another job has just started.
        let whole =
            !set.overheads.is_empty() || set.tasks.iter().any(|task| task.level <= level && task.release_delay > 0);
        let Window { slots, blocking, started, .. } = &mut self.window;
        slots.clear();
        blocking.clear();
        started.clear();
        for overhead in set.overheads.iter().filter(|overhead| overhead.level <= level) {
            slots.push(Slot {
                c: overhead.c,
                period: Recip::new(overhead.t),
                release_delay: overhead.release_delay,
                first: 0,
                burst: ALWAYS,
            });
        }
        for (k, task) in set.tasks.iter().enumerate().filter(|(_, task)| task.level <= level) {
            let is_own = own == Some(k);
            let slot = keys.slot(task, level, is_own, bunched)?;
            slots.push(slot);
            if task.level < level {
                continue;
            }
            let first = slot.first;
            if task.b > 0 {
                blocking.push((first, task.b));
            }
            if !keys.level.preemptive && !is_own {
                let rest = if whole { task.c } else { task.c - 1 };
                let rest = if task.c == task.wcet { rest } else { task.c };
                started.push((keys.key(task, true)?, rest));
            }
        }
        // Rounded down, by less than twice all C: above one here is above one.
        let (mut load, mut error, mut more) = (0u64, 0u64, !blocking.is_empty());
        for slot in slots.iter() {
            let share = u128::from(slot.c) * u128::from(slot.period.inverse);
            load = load.checked_add(u64::try_from(share).ok()?)?;
            error = error.checked_add(slot.c.checked_mul(2)?)?;
            more |= slot.release_delay > 0;
        }
        // Under the full load what comes once is never caught up with.
        let full = || compare_sum(slots.iter().map(|slot| (slot.c, slot.period.divisor)), 1);
        if more && load.checked_add(error).is_none() && full() == Some(Ordering::Equal) {
            return None;
        }
        self.window.prepare(&mut self.terms_left)
    }

    /// Starts anew with all terms.
    pub fn renew(&mut self) {
        (self.terms_left, self.stopped_at) = (self.terms_max, None);
    }

    /// Why a task of this level that is not overloaded has no bound.
    pub(crate) fn stop(&self, level: u32) -> Stop {
        if self.stopped_at.is_some_and(|at| at <= level) { Stop::Terms } else { Stop::Time }
    }
}

mod worst;
pub use worst::Worst;

#[cfg(test)]
mod tests;
