//! `takt admit`: adds tasks and components to a proven system, or removes them, and keeps it proven.
//!
//! [`Admission`] holds a system that is proven. What it accepts is what [`check`](crate::check()) would prove from scratch, always: a quick
//! way only ever says yes, and only where one of `check`'s tests would; where none of them can tell, `check` itself decides.
//!
//! | on one CPU | quick way | cost, n tasks there |
//! |---|---|---|
//! | `edf` | densities add up to at most 1, kept as a sum in 2^-64, each rounded up | O(1) |
//! | `edf` | [`crate::edf::qpa`] | O(n) a point, some points |
//! | `rm`, `dm`, `fp` | Bini and Baruah's upper bound of each response, from sums over what is more important, for the new task and those less important | O(n) additions |
//! | `rm`, `dm`, `fp` | where the bound does not suffice, the fixed point, from the last one that was found (adding work only raises it) | O(n) a round |
//!
//! Tasks of one level count against each other, whatever the order of their releases: safe, and where it does not suffice `check` decides.
//!
//! Quick ways are for nodes of one CPU, or whose tasks are all bound to single CPUs, under `edf`, `rm`, `dm` or `fp`, without components, modes, flows, chains, jitter, release latency and
//! cancellation. On others each change is a `check` of the whole system; so is a component.
//!
//! A change is atomic: all its tasks and components, on all nodes, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::{Builtin, Component, ComponentId, CpuSet, NodeId, Placement, Span, StrategyRef, System, Task, TaskId};

use crate::check::decide;
use crate::edf::qpa::{self, Demand, EdfTask, Tick};
use crate::exact::ONE;
use crate::report::CheckReport;
use crate::scope::{thefts, together};
use crate::verdict::Answer;

/// How a change was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Nothing had to be decided.
    Nothing,
    /// The sum of densities.
    Density,
    /// Upper bounds of responses.
    Bounds,
    /// Fixed points, for those tasks whose bounds did not suffice.
    FixedPoints,
    /// Processor demand.
    Demand,
    /// `check` from scratch.
    Check,
}

impl By {
    /// As the JSON contract spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            By::Nothing => "nothing",
            By::Density => "density",
            By::Bounds => "bounds",
            By::FixedPoints => "fixed-points",
            By::Demand => "demand",
            By::Check => "check",
        }
    }
}

/// Why nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The change makes no sense in this system.
    #[error("{0}")]
    Invalid(String),
    /// With the change the system is not proven.
    #[error("not admitted: {0}; the system is as it was")]
    NotProven(String),
}

/// A proven system that changes.
#[derive(Clone, Debug)]
pub struct Admission {
    system: System,
    /// The same without tasks, to look at one of them alone.
    shell: System,
    names: BTreeSet<String>,
    /// Per node whether the quick ways are for it.
    quick: Vec<bool>,
    units: BTreeMap<(NodeId, u32), Unit>,
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

impl Admission {
    /// Takes a system.
    ///
    /// # Errors
    /// Where `check` does not prove it.
    pub fn new(system: System) -> Result<Admission, Refusal> {
        if decide(&system) != Answer::Yes {
            return Err(Refusal::NotProven(why(&system)));
        }
        Ok(Admission::of_proven(system))
    }

    fn of_proven(system: System) -> Admission {
        let names = system.tasks.iter().map(|task| task.name.clone()).collect();
        let shell = System { tasks: Vec::new(), strategies: Vec::new(), ..system.clone() };
        let quick = (0..system.nodes.len()).map(|index| is_quick(&system, NodeId(index as u32))).collect();
        let mut admission = Admission { system, shell, names, quick, units: BTreeMap::new() };
        for i in 0..admission.system.tasks.len() {
            let task = admission.system.tasks[i].clone();
            if admission.quick[task.node.index()] {
                let place = admission.place(&task).expect("a quick node binds its tasks");
                admission.insert(place, &task);
            }
        }
        admission
    }

    /// The system as it is, which is proven.
    #[must_use]
    pub fn system(&self) -> &System {
        &self.system
    }

    /// What `check` says of it, bounds and all.
    #[must_use]
    pub fn report(&self) -> CheckReport {
        crate::check(&self.system, &crate::CheckOptions::default())
    }

    /// Adds tasks; they stand after all others, in this order. All of them or none.
    ///
    /// # Errors
    /// Why nothing was added.
    pub fn add(&mut self, tasks: &[Task]) -> Result<By, Refusal> {
        if !tasks.iter().all(|task| self.takes_quickly(task)) {
            return self.replace(|system| {
                system.tasks.extend(tasks.iter().cloned());
                Ok(())
            });
        }
        let mut by = By::Nothing;
        let mut units = BTreeSet::new();
        let before = self.system.tasks.len();
        let mut refused = None;
        for task in tasks {
            if let Err(refusal) = self.valid(task) {
                refused = Some(refusal);
                break;
            }
            let place = self.place(task).expect("it is taken quickly");
            let at = self.insert(place, task);
            self.names.insert(task.name.clone());
            self.system.tasks.push(task.clone());
            units.insert((place, at));
        }
        // The least of what changed in each unit decides for the rest, too.
        let mut firsts: BTreeMap<(NodeId, u32), usize> = BTreeMap::new();
        for (place, at) in units {
            let first = firsts.entry(place).or_insert(at);
            *first = (*first).min(at);
        }
        if refused.is_none() {
            for (place, at) in firsts {
                let tick = self.tick(place.0);
                let found = match self.units.get_mut(&place) {
                    Some(Unit::Edf(edf)) => edf.decide(tick),
                    Some(Unit::Fixed(fixed)) => fixed.decide(at, tick),
                    None => None,
                };
                match found {
                    Some(found) => by = if by == By::Nothing { found } else { by.max(found) },
                    None if decide(&self.system) == Answer::Yes => {
                        by = By::Check;
                        break;
                    }
                    None => {
                        refused = Some(Refusal::NotProven(why(&self.system)));
                        break;
                    }
                }
            }
        }
        let Some(refusal) = refused else { return Ok(by) };
        for task in self.system.tasks.split_off(before) {
            self.names.remove(&task.name);
            self.take_out(&task);
        }
        Err(refusal)
    }

    /// Removes the task of that name.
    ///
    /// # Errors
    /// Where there is none, another task follows it, or the rest would not be proven (jobs that are not preempted, several CPUs).
    pub fn remove(&mut self, name: &str) -> Result<By, Refusal> {
        let found = self.system.tasks.iter().position(|task| task.name == name);
        let at = found.ok_or_else(|| Refusal::Invalid(format!("there is no task \"{name}\"")))?;
        let id = TaskId(at as u32);
        if let Some(task) = self.system.tasks.iter().find(|task| task.after.contains(&id)) {
            return Err(Refusal::Invalid(format!("\"{}\" comes after \"{name}\"", task.name)));
        }
        let node = self.system.tasks[at].node;
        if !self.quick[node.index()] {
            return self.replace(|system| {
                take_task(system, at);
                Ok(())
            });
        }
        let task = take_task(&mut self.system, at);
        self.names.remove(name);
        self.take_out(&task);
        // Less work, and the same order: what was proven stays so.
        Ok(By::Nothing)
    }

    /// Adds a component with the tasks that stand in it (their `component` is set here). All or nothing.
    ///
    /// # Errors
    /// Why nothing was added.
    pub fn add_component(&mut self, component: Component, tasks: &[Task]) -> Result<By, Refusal> {
        self.replace(|system| {
            let id = ComponentId(system.components.len() as u32);
            system.components.push(component);
            system.tasks.extend(tasks.iter().map(|task| Task { component: Some(id), ..task.clone() }));
            Ok(())
        })
    }

    /// Removes a component with the tasks in it.
    ///
    /// # Errors
    /// Where there is none, another stands in it, or the rest would not be proven.
    pub fn remove_component(&mut self, name: &str) -> Result<By, Refusal> {
        self.replace(|system| {
            let found = system.components.iter().position(|component| component.name == name);
            let at = found.ok_or_else(|| Refusal::Invalid(format!("there is no component \"{name}\"")))?;
            let id = ComponentId(at as u32);
            if let Some(inner) = system.components.iter().find(|component| component.parent == Some(id)) {
                return Err(Refusal::Invalid(format!("component \"{}\" stands in \"{name}\"", inner.name)));
            }
            for i in
                (0..system.tasks.len()).rev().filter(|i| system.tasks[*i].component == Some(id)).collect::<Vec<_>>()
            {
                take_task(system, i);
            }
            system.components.remove(at);
            let shift = |id: &mut ComponentId| id.0 -= u32::from(id.index() > at);
            system.tasks.iter_mut().filter_map(|task| task.component.as_mut()).for_each(shift);
            system.components.iter_mut().filter_map(|component| component.parent.as_mut()).for_each(shift);
            Ok(())
        })
    }

    /// Any change, decided from scratch.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn replace(&mut self, change: impl FnOnce(&mut System) -> Result<(), Refusal>) -> Result<By, Refusal> {
        let mut system = self.system.clone();
        change(&mut system)?;
        takt_model::file::validate(&system)
            .map_err(|errors| Refusal::Invalid(errors.to_string().trim_end().to_owned()))?;
        if decide(&system) != Answer::Yes {
            return Err(Refusal::NotProven(why(&system)));
        }
        *self = Admission::of_proven(system);
        Ok(By::Check)
    }

    fn takes_quickly(&self, task: &Task) -> bool {
        self.quick.get(task.node.index()).is_some_and(|quick| *quick)
            && plain(&self.system, task)
            && self.place(task).is_some()
    }

    /// Whether a task could stand in the file.
    fn valid(&mut self, task: &Task) -> Result<(), Refusal> {
        if self.names.contains(&task.name) {
            return Err(Refusal::Invalid(format!("there is a task \"{}\" already", task.name)));
        }
        self.shell.tasks.push(task.clone());
        let found = takt_model::file::validate(&self.shell);
        self.shell.tasks.clear();
        found.map_err(|errors| Refusal::Invalid(errors.to_string().trim_end().to_owned()))
    }

    /// The CPU that a task is bound to.
    fn place(&self, task: &Task) -> Option<(NodeId, u32)> {
        let all = CpuSet::first(self.system.nodes.get(task.node.index())?.cpus);
        let cpus = task.cpus.map_or(all, |cpus| cpus.intersection(&all));
        if cpus.len() == 1 { Some((task.node, cpus.lowest()?)) } else { None }
    }

    /// Ticks and interrupts, as one.
    fn tick(&self, node: NodeId) -> Option<Tick> {
        thefts(self.system.nodes[node.index()].costs).reduce(together)
    }

    /// C with what its switches and release cost; saturated where it does not fit, which no test accepts.
    fn charged(&self, task: &Task) -> u64 {
        let costs = self.system.nodes[task.node.index()].costs;
        costs.map_or(task.wcet.as_ns(), |costs| {
            let more = costs.switch.as_ns().saturating_mul(2).saturating_add(costs.release.as_ns());
            task.wcet.as_ns().saturating_add(more)
        })
    }

    /// Puts a task into its unit; gives its place there.
    fn insert(&mut self, place: (NodeId, u32), task: &Task) -> usize {
        let c = self.charged(task);
        let (t, d, b) = (task.period.as_ns(), task.deadline.as_ns(), task.blocking.as_ns());
        let key = key(&self.system, task);
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

    fn take_out(&mut self, task: &Task) {
        let Some(place) = self.place(task) else { return };
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
                // Fixed points of those that waited for it may have fallen.
                fixed.tasks.iter_mut().filter(|entry| entry.key >= key).for_each(|entry| entry.from = 0);
            }
            None => {}
        }
    }

    /// The bound of a task's response, where fixed priorities of their own give one quickly: the same as `check`'s.
    #[must_use]
    pub fn response(&self, name: &str) -> Option<Span> {
        let task = self.system.tasks.iter().find(|task| task.name == name)?;
        // `check` counts ticks and interrupts apart.
        if !self.quick[task.node.index()] || thefts(self.system.nodes[task.node.index()].costs).count() > 1 {
            return None;
        }
        let Some(Unit::Fixed(fixed)) = self.units.get(&self.place(task)?) else { return None };
        let at = fixed.tasks.iter().position(|entry| entry.name == name)?;
        fixed.exactly(at, self.tick(task.node)).map(Span::from_ns)
    }
}

impl PartialOrd for By {
    fn partial_cmp(&self, other: &By) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By cost.
impl Ord for By {
    fn cmp(&self, other: &By) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

/// C / window in 2^-64, rounded up; 4 stands for all that is more, so that sums fit.
fn share(c: u64, window: u64) -> u128 {
    (u128::from(c) << 64).div_ceil(u128::from(window.max(1))).min(4 * ONE)
}

/// What `check` says against a system.
fn why(system: &System) -> String {
    let report = crate::check(system, &crate::CheckOptions { verdict_only: true, ..crate::CheckOptions::default() });
    let tests = report.tests.iter().filter(|test| test.verdict.answer() != Answer::Yes);
    let worst = tests.min_by_key(|test| test.verdict.answer() != Answer::No);
    worst.map_or_else(
        || "not proven".to_owned(),
        |test| format!("{} in {}: {}", test.test.name(), test.scope, test.verdict.why()),
    )
}

/// Removes a task; others keep their predecessors.
fn take_task(system: &mut System, at: usize) -> Task {
    let task = system.tasks.remove(at);
    for id in system.tasks.iter_mut().flat_map(|task| &mut task.after) {
        id.0 -= u32::from(id.index() > at);
    }
    task
}

/// A task that the quick ways know.
/// Whether the quick ways cover a task. With offsets, fixed priorities may be proven by their schedule where no response is bounded in time, and
/// then more tasks need that test again.
fn plain(system: &System, task: &Task) -> bool {
    let by_deadline = system.nodes[task.node.index()].strategy == StrategyRef::Builtin(Builtin::Edf);
    task.after.is_empty() && task.component.is_none() && task.jitter.is_zero() && (by_deadline || task.offset.is_zero())
}

/// What orders a task among others, the most important first; `None` under EDF.
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
    let clear = !spec.cancel
        && spec.costs.is_none_or(|costs| costs.latency.is_zero())
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
    fn decide(&self, tick: Option<Tick>) -> Option<By> {
        if self.density <= ONE && self.blocked == 0 && tick.is_none() {
            return Some(By::Density);
        }
        matches!(qpa::analyse(&self.tasks, tick), Demand::Met { .. }).then_some(By::Demand)
    }
}

/// Terms that the fixed points of one change may evaluate before `check` decides.
const TERMS_MAX: u64 = 100_000_000;

impl Fixed {
    /// Yes for all from `first` on, the least important last; `None`: it cannot tell.
    fn decide(&mut self, first: usize, tick: Option<Tick>) -> Option<By> {
        let mut by = By::Bounds;
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
                    // Of a shared level the own part counts twice, which is safe.
                    let (load, slack) = if alone { (before_load, before_slack) } else { (load, slack) };
                    let need = u128::from(entry.c) + u128::from(blocking) + slack;
                    let room = ONE.saturating_sub(load) >> 32;
                    let enough = need < 1 << 64 && (need << 32) <= (room * u128::from(limit >> 6)) << 6;
                    if !enough {
                        by = By::FixedPoints;
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

    /// The response of task k, if its level holds it alone: first of its jobs where D <= T, else all of the busy window.
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

#[cfg(test)]
mod tests;
