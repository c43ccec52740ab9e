//! The quick ways of [`Admission`](super::Admission): the data kept for each CPU, and the tests of
//! one more task.

use std::collections::BTreeMap;

use takt_model::{Builtin, CpuSet, NodeId, Placement, Preemption, StrategyRef, System, Task};

use super::DecidedBy;
use crate::edf::qpa::{self, Demand, EdfTask, Tick};
use crate::exact::ONE;
use crate::scope::{merge_overheads, overheads};

/// A node and one of its CPUs.
pub(super) type Place = (NodeId, u32);

/// The data kept for the quick ways.
#[derive(Clone, Debug, Default)]
pub(super) struct Quick {
    /// Per node whether they are for it.
    nodes: Vec<bool>,
    units: BTreeMap<Place, Unit>,
}

/// One CPU.
#[derive(Clone, Debug)]
enum Unit {
    Edf(Edf),
    Fixed(Fixed),
}

#[derive(Clone, Debug, Default)]
struct Edf {
    tasks: Vec<EdfTask>,
    ids: Vec<String>,
    /// C / min(D, T) in 2^-64, each rounded up.
    density: u128,
    /// How many have blocking.
    blocked: usize,
}

#[derive(Clone, Debug, Default)]
struct Fixed {
    /// The most important first.
    tasks: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    name: String,
    c: u64,
    t: u64,
    d: u64,
    b: u64,
    /// No response is shorter: the last fixed point that was found.
    from: u64,
}

impl Quick {
    pub(super) fn new(system: &System) -> Quick {
        let mut quick = Quick { nodes: vec![false; system.nodes.len()], units: BTreeMap::new() };
        for node in 0..system.nodes.len() {
            quick.renew(system, NodeId(node as u32));
        }
        quick
    }

    /// Looks at a node again.
    pub(super) fn renew(&mut self, system: &System, node: NodeId) {
        self.units.retain(|(of, _), _| *of != node);
        self.nodes[node.index()] = is_quick(system, node);
        if self.nodes[node.index()] {
            for (_, task) in system.tasks_of(node) {
                let place = place(system, task).expect("a quick node binds its tasks");
                self.insert(system, place, task);
            }
        }
    }

    /// Whether the quick ways are for a node.
    pub(super) fn covers(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|quick| *quick)
    }

    /// The CPU on which the quick ways judge a task, if they do.
    pub(super) fn place(&self, system: &System, task: &Task) -> Option<Place> {
        if self.covers(task.node) && plain(system, task) { place(system, task) } else { None }
    }

    /// Yes for all of a CPU from the place `first` on; `None`: it cannot tell.
    pub(super) fn decide(&mut self, system: &System, place: Place, first: usize) -> Option<DecidedBy> {
        let tick = tick(system, place.0);
        match self.units.get_mut(&place)? {
            Unit::Edf(edf) => edf.decide(tick),
            Unit::Fixed(fixed) => fixed.decide(first, tick),
        }
    }

    /// The response of a task, where fixed priorities of their own give one.
    pub(super) fn response(&self, system: &System, task: &Task) -> Option<u64> {
        // `check` counts ticks and interrupts apart.
        if !self.covers(task.node) || overheads(system.nodes[task.node.index()].costs).count() > 1 {
            return None;
        }
        let Some(Unit::Fixed(fixed)) = self.units.get(&place(system, task)?) else { return None };
        let at = fixed.tasks.iter().position(|entry| entry.name == task.name)?;
        fixed.exactly(at, tick(system, task.node))
    }

    /// Puts a task into its unit; gives its place there.
    pub(super) fn insert(&mut self, system: &System, place: Place, task: &Task) -> usize {
        let c = charged(system, task);
        let (t, d, b) = (task.period.as_ns(), task.deadline.as_ns(), task.blocking.as_ns());
        let key = key(system, task);
        let unit = self.units.entry(place).or_insert_with(|| match key {
            None => Unit::Edf(Edf::default()),
            Some(_) => Unit::Fixed(Fixed::default()),
        });
        match unit {
            Unit::Edf(edf) => {
                edf.tasks.push(EdfTask { c, t, d, burst: 0, b });
                edf.ids.push(task.name.clone());
                edf.density += share(c, d.min(t));
                edf.blocked += usize::from(b > 0);
                edf.tasks.len() - 1
            }
            Unit::Fixed(fixed) => {
                let key = key.unwrap_or(0);
                let at = fixed.tasks.partition_point(|other| other.key <= key);
                fixed.tasks.insert(at, Entry { key, name: task.name.clone(), c, t, d, b, from: 0 });
                // Those on its level wait for it as well.
                fixed.tasks.partition_point(|other| other.key < key)
            }
        }
    }

    /// Takes a task out of its unit.
    pub(super) fn take_out(&mut self, system: &System, task: &Task) {
        let Some(place) = place(system, task) else { return };
        match self.units.get_mut(&place) {
            Some(Unit::Edf(edf)) => {
                let Some(at) = edf.ids.iter().rposition(|name| *name == task.name) else { return };
                edf.ids.swap_remove(at);
                let gone = edf.tasks.swap_remove(at);
                edf.blocked -= usize::from(gone.b > 0);
                edf.density -= share(gone.c, gone.d.min(gone.t));
            }
            Some(Unit::Fixed(fixed)) => {
                let Some(at) = fixed.tasks.iter().position(|entry| entry.name == task.name) else { return };
                let key = fixed.tasks.remove(at).key;
                // Fixed points of the less important tasks may have fallen.
                fixed.tasks.iter_mut().filter(|entry| entry.key >= key).for_each(|entry| entry.from = 0);
            }
            None => {}
        }
    }
}

/// The CPU that a task is bound to.
fn place(system: &System, task: &Task) -> Option<Place> {
    let all = CpuSet::first(system.nodes.get(task.node.index())?.cpus);
    let cpus = task.cpus.map_or(all, |cpus| cpus.intersection(&all));
    if cpus.len() == 1 { Some((task.node, cpus.lowest()?)) } else { None }
}

/// Ticks and interrupts, as one.
fn tick(system: &System, node: NodeId) -> Option<Tick> {
    overheads(system.nodes[node.index()].costs).reduce(merge_overheads)
}

/// C with the costs of switches and release. It saturates on overflow; no test accepts the
/// saturated value.
fn charged(system: &System, task: &Task) -> u64 {
    let costs = system.nodes[task.node.index()].costs;
    costs.map_or(task.wcet.as_ns(), |costs| {
        let more = costs.switch.as_ns().saturating_mul(2).saturating_add(costs.release.as_ns());
        task.wcet.as_ns().saturating_add(more)
    })
}

/// C / window in 2^-64, rounded up; 4 stands for all that is more, so that sums fit.
fn share(c: u64, window: u64) -> u128 {
    (u128::from(c) << 64).div_ceil(u128::from(window.max(1))).min(4 * ONE)
}

/// Whether the quick ways cover a task. With offsets, fixed priorities may be proven by their
/// schedule where no response is bounded in time, and then more tasks need that test again.
fn plain(system: &System, task: &Task) -> bool {
    let by_deadline = system.nodes[task.node.index()].strategy == StrategyRef::Builtin(Builtin::Edf);
    let anywhere = task.preemption == Preemption::Anywhere;
    let alone = task.after.is_empty() && task.component.is_none() && anywhere;
    alone && task.jitter.is_zero() && (by_deadline || task.offset.is_zero())
}

/// The sort key of a task, the most important first; `None` under EDF.
fn key(system: &System, task: &Task) -> Option<u64> {
    match system.nodes[task.node.index()].strategy {
        StrategyRef::Builtin(Builtin::Rm) => Some(task.period.as_ns()),
        StrategyRef::Builtin(Builtin::Dm) => Some(task.deadline.as_ns()),
        StrategyRef::Builtin(Builtin::Fp) => Some(task.priority.map_or(u64::MAX, u64::from)),
        _ => None,
    }
}

fn is_quick(system: &System, node: NodeId) -> bool {
    let spec = &system.nodes[node.index()];
    let known = matches!(spec.strategy, StrategyRef::Builtin(Builtin::Edf | Builtin::Rm | Builtin::Dm | Builtin::Fp));
    // Timers that are late are jitter of every task.
    let clear = !system.cancels(node)
        && spec.costs.is_none_or(|costs| costs.latency.is_zero() && costs.ordinary.is_zero())
        && spec.receive.is_none()
        && spec.send.is_none()
        && system.modes.iter().all(|mode| mode.node != node)
        && system.components.iter().all(|component| component.node != node)
        && system.flows.iter().all(|flow| !flow.path.contains(&node));
    // A partition is sought anew with each task that is not bound.
    let bound = |task: &Task| {
        let all = CpuSet::first(spec.cpus);
        let within = task.cpus.map_or(all, |cpus| cpus.intersection(&all)).len() == 1;
        within && (spec.placement == Placement::Global || spec.cpus == 1 || task.cpus.is_some())
    };
    let prioritised = |task: &Task| spec.strategy != StrategyRef::Builtin(Builtin::Fp) || task.priority.is_some();
    known && clear && system.tasks_of(node).all(|(_, task)| plain(system, task) && bound(task) && prioritised(task))
}

impl Edf {
    /// Yes by the cheapest way; `None`: it cannot tell.
    fn decide(&self, tick: Option<Tick>) -> Option<DecidedBy> {
        if self.density <= ONE && self.blocked == 0 && tick.is_none() {
            return Some(DecidedBy::Density);
        }
        matches!(qpa::analyse(&self.tasks, tick), Demand::Met { .. }).then_some(DecidedBy::Demand)
    }
}

/// Terms that the fixed points of one change may evaluate before `check` decides.
const TERMS_MAX: u64 = 100_000_000;

impl Fixed {
    /// Yes for all from `first` on, the least important last; `None`: it cannot tell.
    fn decide(&mut self, first: usize, tick: Option<Tick>) -> Option<DecidedBy> {
        let mut by = DecidedBy::Bounds;
        let mut terms_left = TERMS_MAX;
        // Over what is more important: sum U rounded up, and sum C (1 - U) rounded up.
        let (mut load, mut slack) = (0u128, 0u128);
        let count = |c: u64, t: u64, load: &mut u128, slack: &mut u128| {
            let share = share(c, t);
            *load += share;
            // C (1 - U): with U rounded up less what rounding may have added.
            let free = (ONE + 1).saturating_sub(share).min(ONE);
            *slack += ((u128::from(c) * (free >> 1)) >> 63) + 2;
        };
        if let Some(tick) = tick {
            count(tick.c, tick.t, &mut load, &mut slack);
        }
        let mut i = 0;
        while i < self.tasks.len() {
            let key = self.tasks[i].key;
            let level = i..i + self.tasks[i..].iter().take_while(|entry| entry.key == key).count();
            // Peers count against each other.
            let (before_load, before_slack) = (load, slack);
            for entry in &self.tasks[level.clone()] {
                if entry.c > entry.t {
                    return None;
                }
                count(entry.c, entry.t, &mut load, &mut slack);
            }
            if level.end > first {
                let blocking = self.tasks[level.clone()].iter().map(|entry| entry.b).max().unwrap_or(0);
                for k in level.clone() {
                    let entry = &self.tasks[k];
                    let limit = entry.d.min(entry.t);
                    let alone = level.len() == 1;
                    // On a shared level the own part counts twice. This is safe.
                    let (load, slack) = if alone { (before_load, before_slack) } else { (load, slack) };
                    let need = u128::from(entry.c) + u128::from(blocking) + slack;
                    let room = ONE.saturating_sub(load) >> 32;
                    let enough = need < 1 << 64 && (need << 32) <= (room * u128::from(limit >> 6)) << 6;
                    if !enough {
                        by = DecidedBy::FixedPoints;
                        self.fixed_point(k, level.end, blocking, limit, tick, &mut terms_left)?;
                    }
                }
            }
            i = level.end;
        }
        Some(by)
    }

    /// Finds the fixed point of task k among all before `end`; `None` where it passes `limit` or the terms are spent.
    fn fixed_point(
        &mut self,
        k: usize,
        end: usize,
        blocking: u64,
        limit: u64,
        tick: Option<Tick>,
        terms_left: &mut u64,
    ) -> Option<()> {
        let own = self.tasks[k].c.checked_add(blocking)?;
        let mut w = self.tasks[k].from.max(own);
        loop {
            if w > limit {
                return None;
            }
            *terms_left = terms_left.checked_sub(end as u64)?;
            let mut next = own.checked_add(tick.map_or(0, |tick| w.div_ceil(tick.t).saturating_mul(tick.c)))?;
            for (j, other) in self.tasks[..end].iter().enumerate() {
                if j != k {
                    next = next.checked_add(w.div_ceil(other.t).checked_mul(other.c)?)?;
                }
            }
            if next <= w {
                self.tasks[k].from = w;
                return Some(());
            }
            w = next;
        }
    }

    /// The response of task k, if its level holds it alone: first of its jobs where D <= T, else
    /// all of the busy window.
    fn exactly(&self, k: usize, tick: Option<Tick>) -> Option<u64> {
        let this = &self.tasks[k];
        let alone = self.tasks.iter().filter(|entry| entry.key == this.key).count() == 1;
        if !alone {
            return None;
        }
        let before = &self.tasks[..k];
        let (mut w, mut longest) = (this.b, 0);
        let mut terms_left = TERMS_MAX;
        for q in 0u64.. {
            let own = this.c.checked_mul(q + 1)?.checked_add(this.b)?;
            w = w.checked_add(this.c)?.max(own);
            loop {
                terms_left = terms_left.checked_sub(before.len() as u64 + 1)?;
                let mut next = own.checked_add(tick.map_or(0, |tick| w.div_ceil(tick.t).saturating_mul(tick.c)))?;
                for other in before {
                    next = next.checked_add(w.div_ceil(other.t).checked_mul(other.c)?)?;
                }
                if next <= w {
                    break;
                }
                w = next;
            }
            let arrival = q.checked_mul(this.t)?;
            longest = longest.max(w.saturating_sub(arrival));
            if w <= arrival.checked_add(this.t)? {
                return Some(longest);
            }
        }
        None
    }
}
