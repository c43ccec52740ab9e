//! The table that a dispatcher follows: level, discipline, SCHED_FIFO priority and static subpriority of each operation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use takt_linux::sched::FIFO_PRIORITY_MAX;
use takt_model::file::validate;
use takt_model::plan::{Order, PlanError};
use takt_model::strategy::Discipline;
use takt_model::{
    Arrival, Builtin, Late, Level, NodeId, NodeSpec, Placement, Preemption, Span, Strategy, StrategyId, StrategyRef,
    System, Task, TaskId, Time, plan,
};

use super::anomaly::{Anomalies, Anomaly};
use super::bounds;
use super::error::ReleaseError;
use super::mode::{Rate, Rates, at_rates};
use super::operation::Overrun;

/// What a plan may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// SCHED_FIFO priorities, the larger the more important to the kernel; within 1 to 98. The default, 1 to 48, stays below
    /// the interrupt threads of a PREEMPT_RT kernel (50).
    pub priorities: RangeInclusive<u8>,
    /// What critical operations may need of each CPU, in parts per million of it. Default: all.
    pub critical_utilization_ppm: u32,
    /// What noncritical operations may need of each CPU, in parts per million of it. Default: `None`, any overload.
    pub noncritical_utilization_ppm: Option<u32>,
    /// What all operations may need of each CPU together, in parts per million of it. Default: `None`, any overload.
    pub total_utilization_ppm: Option<u32>,
    /// Threads that serve a level on each CPU, 1 to [`THREADS_MAX`]: more than one lets the level go on while one of its jobs sleeps. What is proven of the plan, and
    /// simulated, then holds for handlers that never sleep: while one does, another job of its level may start before it ends. A preemptive level has one thread
    /// for each job that nests.
    pub threads: u32,
    /// Whether jobs of a level preempt each other where the strategy says so (`preemptive`, which System files say by default).
    /// Such a level takes as many priorities as its jobs nest. Default: false, within a level each job runs to completion
    /// [KOKYU II-B].
    pub preemptive: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            priorities: 1..=48,
            critical_utilization_ppm: 1_000_000,
            noncritical_utilization_ppm: None,
            total_utilization_ppm: None,
            threads: 1,
            preemptive: false,
        }
    }
}

/// Who runs when. Equal where the System and the limits are equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What was planned: the System, with every level of the node run to completion unless [`Limits::preemptive`].
    pub system: System,
    /// The node that was planned.
    pub node: NodeId,
    /// The name of the node's strategy in [`Plan::system`].
    pub strategy: String,
    /// Whether noncritical jobs that can no longer be in time are omitted at their first dispatch.
    pub cancel: bool,
    /// The levels, the most important first.
    pub levels: Vec<PlanLevelRow>,
    /// Per task of the node, in file order (its slot).
    pub rows: Vec<Row>,
    /// What the node's modes change, in order of time.
    pub modes: Vec<PlanMode>,
    /// SCHED_FIFO priority of the thread of each CPU that waits for releases; more important than all levels.
    pub timer_priority: u8,
    /// SCHED_FIFO priority of late jobs where a level demotes them; less important than all levels.
    pub demoted_priority: Option<u8>,
    /// How many jobs nest among these: that priority and those above it are theirs. One where jobs run to completion.
    pub demoted_nesting: u32,
}

/// A level: a queue, and threads of one priority, on each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanLevelRow {
    /// SCHED_FIFO priority of its threads. Where jobs nest the least important of them.
    pub priority: u8,
    /// How many of its jobs are in progress on one CPU at most, each preempted by the next: so many priorities it has, this one
    /// and those above it. One where jobs run to completion.
    pub nesting: u32,
    /// Whether its jobs preempt each other.
    pub preemptive: bool,
    /// The order in which its jobs start.
    pub discipline: Order,
    /// What becomes of late jobs of operations that do not say so themselves.
    pub late: Late,
    /// Whether importance breaks ties of the discipline, before the nominal arrival does.
    pub importance_ties: bool,
    /// Threads on each CPU.
    pub threads: u32,
}

/// An operation's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The task of [`Plan::system`].
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The model CPU that it runs on.
    pub cpu: u32,
    /// Index of its level.
    pub level: u32,
    /// The order of its level.
    pub order: Order,
    /// The SCHED_FIFO priority of its level.
    pub priority: u8,
    /// Its static place among all operations of its level, 0 the most important: by importance where the level breaks ties
    /// so, then by the order of operations.
    pub subpriority: u32,
    /// Constant that its level adds to its absolute deadlines (discipline `gel`), in nanoseconds; zero elsewhere.
    pub shift_ns: i64,
    /// How many of its jobs may wait or run at once. A System does not say: as many as may be where all keep their deadlines, 1024 at
    /// most.
    pub backlog: u32,
    /// How many may be there at once where all keep their deadlines.
    pub(super) backlog_needed: u32,
    /// What becomes of its late jobs.
    pub late: Late,
    /// What becomes of jobs that execute for longer than its wcet; nothing where that is not watched, as of a System, which does not say.
    pub overrun: Option<Overrun>,
    /// Its period or least distance; of a follower that of its source.
    pub period: Span,
    /// Whether it releases jobs.
    pub takes_part: bool,
    /// Whether events release it rather than the ends of what it comes after ([`Plan::released_by_events`]).
    pub by_events: bool,
}

/// What the node obeys from one of its modes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanMode {
    /// What the program calls it; of a System's mode nothing.
    pub name: Option<String>,
    /// From when; nothing where only the program switches to it.
    pub at: Option<Time>,
    /// The name of the strategy in [`Plan::system`].
    pub strategy: String,
    /// As [`Plan::levels`].
    pub levels: Vec<PlanLevelRow>,
    /// As [`Plan::rows`].
    pub rows: Vec<Row>,
}

impl Plan {
    /// The same, with so many threads, 1 to [`THREADS_MAX`] (the nearest of which holds otherwise), on each CPU for one level of one of the plans (0 is that of the start, k
    /// that of the k-th mode): as many of its jobs are in progress at once, and the kernel takes them one after the other. A preemptive level is left, and one that the plan does not have.
    /// What [`Limits::threads`] says of proofs holds here, too.
    #[must_use]
    pub fn with_threads(mut self, plan: usize, level: usize, threads: u32) -> Plan {
        let levels = match plan {
            0 => Some(&mut self.levels),
            mode => self.modes.get_mut(mode - 1).map(|mode| &mut mode.levels),
        };
        if let Some(level) = levels.and_then(|levels| levels.get_mut(level)).filter(|level| !level.preemptive) {
            level.threads = threads.clamp(1, THREADS_MAX);
        }
        self
    }

    /// The same, with so many jobs of each operation that may wait or run at once: 1 to [`BACKLOG_MAX`], the nearest of which holds otherwise. Fewer than the plan had for
    /// a critical operation may reject jobs of it that would be in time: that is not looked at here.
    #[must_use]
    pub fn with_backlog(mut self, backlog: u32) -> Plan {
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        self.each_rows_mut().flatten().for_each(|row| row.backlog = backlog);
        self
    }

    /// The same, where an operation that comes after others is released by events: its predecessors' handlers push them when all else is done
    /// ([`event`](crate::event)), and it subscribes to them, or the program pushes it itself. What is proven and simulated of the plan
    /// is what it was: that it comes after them. No least distance holds, for they end when they do; its backlog bounds it. An event
    /// that is never pushed releases nothing; and one that is pushed early in a handler releases it before that has ended.
    ///
    /// ```
    /// # use takt_model::{Builtin, Span};
    /// # use takt_dispatch::{Limits, Operation, Operations};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let proxy = Operation::periodic("radar", Span::from_ms(100)).wcet(Span::from_ms(1));
    /// let operations = Operations::new("flight")
    ///     .with(proxy)
    ///     .with(Operation::after("weapons", ["radar"]).wcet(Span::from_ms(3)).deadline(Span::from_ms(90)));
    /// let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?.released_by_events("weapons")?;
    /// assert!(plan.rows[1].by_events && !plan.rows[0].by_events);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such operation, or it comes after none.
    pub fn released_by_events(mut self, operation: &str) -> Result<Plan, ReleaseError> {
        let task = self.rows.iter().find(|row| row.name == operation).map(|row| row.task);
        let task = task.ok_or_else(|| ReleaseError::Unknown(operation.to_owned()))?;
        if self.system.tasks.get(task.index()).is_none_or(|task| task.after.is_empty()) {
            return Err(ReleaseError::ComesAfterNone(operation.to_owned()));
        }
        for row in self.each_rows_mut().flatten().filter(|row| row.task == task) {
            row.by_events = true;
        }
        Ok(self)
    }

    /// The System as its jobs are released here: what events release comes after nothing.
    pub(super) fn as_released(&self) -> Cow<'_, System> {
        if !self.rows.iter().any(|row| row.by_events) {
            return Cow::Borrowed(&self.system);
        }
        let mut system = self.system.clone();
        for row in self.rows.iter().filter(|row| row.by_events) {
            if let Some(task) = system.tasks.get_mut(row.task.index()) {
                (task.after, task.arrival) = (Vec::new(), Arrival::Sporadic);
            }
        }
        Cow::Owned(system)
    }

    /// The same, whose predecessors' ends release what events do: in virtual time nobody pushes.
    pub(super) fn released_by_ends(&self) -> Cow<'_, Plan> {
        if !self.rows.iter().any(|row| row.by_events) {
            return Cow::Borrowed(self);
        }
        let mut plan = self.clone();
        plan.each_rows_mut().flatten().for_each(|row| row.by_events = false);
        Cow::Owned(plan)
    }

    /// The rows of the plan of the start, and of those of its modes in turn.
    pub(super) fn each_rows(&self) -> impl Iterator<Item = &Vec<Row>> {
        std::iter::once(&self.rows).chain(self.modes.iter().map(|mode| &mode.rows))
    }

    /// The same, to be changed.
    pub(super) fn each_rows_mut(&mut self) -> impl Iterator<Item = &mut Vec<Row>> {
        std::iter::once(&mut self.rows).chain(self.modes.iter_mut().map(|mode| &mut mode.rows))
    }

    /// The levels of the plan of the start, and of those of its modes in turn.
    pub(super) fn each_levels(&self) -> impl Iterator<Item = &Vec<PlanLevelRow>> {
        std::iter::once(&self.levels).chain(self.modes.iter().map(|mode| &mode.levels))
    }

    /// The tasks of its operations.
    pub fn tasks(&self) -> Vec<&Task> {
        self.rows.iter().filter_map(|row| self.system.tasks.get(row.task.index())).collect()
    }

    /// Whether the program releases the jobs of an operation, by a push.
    pub(crate) fn is_pushed(&self, row: &Row) -> bool {
        let task = self.system.tasks.get(row.task.index());
        row.by_events || task.is_some_and(|task| task.arrival == Arrival::Sporadic && task.after.is_empty())
    }

    /// The rows of one of the plans: 0 is that of the start, k that of the k-th mode.
    pub(super) fn rows_in(&self, plan: usize) -> Option<&[Row]> {
        match plan.checked_sub(1) {
            None => Some(&self.rows),
            Some(mode) => Some(&self.modes.get(mode)?.rows),
        }
    }

    /// Whether jobs of a level preempt each other by a plan (0: that of the start, k: that of the k-th mode).
    pub(super) fn preempts(&self, plan: usize, level: u32) -> bool {
        let levels = match plan.checked_sub(1) {
            None => Some(&self.levels),
            Some(mode) => self.modes.get(mode).map(|mode| &mode.levels),
        };
        levels.and_then(|levels| levels.get(level as usize)).is_some_and(|level| level.preemptive)
    }

    /// Modes that only the program switches to.
    pub(super) fn name_modes(&mut self, names: impl Iterator<Item = String>) {
        for (mode, name) in self.modes.iter_mut().zip(names) {
            (mode.name, mode.at) = (Some(name), None);
        }
    }

    /// Whether the plans differ in who takes part, or in rates.
    pub(super) fn varies(&self) -> bool {
        let parts = |rows: &[Row]| rows.iter().map(|row| (row.period, row.takes_part)).collect::<Vec<_>>();
        let first = parts(&self.rows);
        self.each_rows().any(|rows| rows.iter().any(|row| !row.takes_part) || parts(rows) != first)
    }

    /// The levels of all plans, each for the rates that hold in it.
    pub(super) fn resolved(&self) -> Result<Vec<plan::Plan>, PlanError> {
        let Some(spec) = self.system.nodes.get(self.node.index()) else { return Ok(Vec::new()) };
        let strategies = strategies(&self.system, self.node, spec);
        let rates = |plan| {
            let rows = self.rows_in(plan)?;
            Some(rows.iter().map(|row| Rate { period: row.period, takes_part: row.takes_part }).collect())
        };
        let resolve = |(plan, (_, strategy)): (usize, (Option<Time>, StrategyRef))| {
            let rates: Option<Vec<Rate>> = if self.varies() { rates(plan) } else { None };
            let strategy = self.system.strategy(strategy);
            match rates {
                Some(rates) => plan::Plan::resolve(&at_rates(&self.system, Some(&rates)), self.node, &strategy),
                None => plan::Plan::resolve(&self.system, self.node, &strategy),
            }
        };
        strategies.into_iter().enumerate().map(resolve).collect()
    }

    /// The plan of one node of a System. Each level of the node's strategy and of its modes' strategies runs to completion, unless
    /// [`Limits::preemptive`].
    ///
    /// # Errors
    /// All that is wrong. Where the System breaks rules of System files, that alone is told.
    pub fn compute(system: &System, node: NodeId, limits: &Limits) -> Result<Plan, Anomalies> {
        if let Err(errors) = validate(system) {
            return Err(Anomalies(errors.iter().map(|error| Anomaly::System(error.to_string())).collect()));
        }
        match judge(system, node, limits) {
            (Some(plan), anomalies) if anomalies.is_empty() => Ok(plan),
            (_, anomalies) => Err(Anomalies(anomalies)),
        }
    }

    /// The same, to watch deadlines being missed: what says only that they can be ([`Anomaly::is_lateness`]) is told beside the plan.
    ///
    /// # Errors
    /// All else that is wrong.
    pub fn compute_regardless(
        system: &System,
        node: NodeId,
        limits: &Limits,
    ) -> Result<(Plan, Vec<Anomaly>), Anomalies> {
        if let Err(errors) = validate(system) {
            return Err(Anomalies(errors.iter().map(|error| Anomaly::System(error.to_string())).collect()));
        }
        match judge(system, node, limits) {
            (Some(plan), lateness) => Ok((plan, lateness)),
            (None, anomalies) => Err(Anomalies(anomalies)),
        }
    }
}

/// What is appended to the name of a strategy whose levels were preemptive.
pub const TO_COMPLETION: &str = ", run to completion";

/// The same strategy with jobs that no other of their level preempts. It has another name, unless it was one already.
pub(super) fn run_to_completion(strategy: &Strategy) -> Strategy {
    let own = strategy.levels.iter().all(|level| !level.preemptive) && Builtin::by_name(&strategy.name).is_none();
    let name = if own { strategy.name.clone() } else { format!("{}{TO_COMPLETION}", strategy.name) };
    let levels = strategy.levels.iter().map(|level| Level { preemptive: false, ..level.clone() });
    Strategy { name, levels: levels.collect() }
}

/// The System whose jobs run to completion within their levels, as a plan has them without [`Limits::preemptive`]: each node
/// and mode whose strategy lets jobs of a level preempt each other has another one. Strategies in which that never happens stay.
#[must_use]
pub fn to_completion(system: &System) -> System {
    let mut planned = system.clone();
    let completing = |planned: &mut System, reference: StrategyRef| {
        let strategy = system.strategy(reference);
        let nests = |level: &Level| level.preemptive && level.discipline != Discipline::Fifo;
        if strategy.levels.iter().any(nests) { enter(planned, run_to_completion(&strategy)) } else { reference }
    };
    for at in 0..planned.nodes.len() {
        let chosen = planned.nodes.get(at).map(|node| node.strategy);
        let chosen = chosen.map(|reference| completing(&mut planned, reference));
        if let Some((node, strategy)) = planned.nodes.get_mut(at).zip(chosen) {
            node.strategy = strategy;
        }
    }
    for at in 0..planned.modes.len() {
        let chosen = planned.modes.get(at).map(|mode| mode.strategy);
        let chosen = chosen.map(|reference| completing(&mut planned, reference));
        if let Some((mode, strategy)) = planned.modes.get_mut(at).zip(chosen) {
            mode.strategy = strategy;
        }
    }
    planned
}

/// The same strategy under a name that no built-in one has.
pub(super) fn own(strategy: Strategy) -> Strategy {
    match Builtin::by_name(&strategy.name) {
        Some(builtin) => Strategy { name: format!("{}, preemptive", builtin.name()), ..strategy },
        None => strategy,
    }
}

/// The name that a strategy had before, for texts.
fn plain(strategy: &Strategy) -> &str {
    let name = strategy.name.strip_suffix(TO_COMPLETION).unwrap_or(&strategy.name);
    name.strip_suffix(", preemptive").unwrap_or(name)
}

/// A strategy of the node, from when on it holds, and its levels for the node's tasks.
pub(super) struct Scheme {
    /// Of its plan: 0 of the node's strategy, k of its k-th mode.
    number: usize,
    /// `None`: from the start.
    at: Option<Time>,
    reference: StrategyRef,
    strategy: Strategy,
    pub(super) plan: plan::Plan,
    /// By task; none where they are the System's.
    rates: Vec<Rate>,
}

impl Scheme {
    pub(super) fn name(&self) -> &str {
        plain(&self.strategy)
    }
    fn demotes(&self) -> bool {
        self.plan.levels.iter().any(|level| level.demotes)
    }
}

/// The plan, and what says that deadlines can be missed; without a plan all that is wrong. The System's indices must be good, and its chains without a circle.
pub(super) fn judge(system: &System, node: NodeId, limits: &Limits) -> (Option<Plan>, Vec<Anomaly>) {
    judge_rates(system, node, limits, &Rates::default())
}

/// The same where the plans of modes have other rates, or fewer tasks. Of these the System has one node.
pub(super) fn judge_rates(
    system: &System,
    node: NodeId,
    limits: &Limits,
    rates: &Rates,
) -> (Option<Plan>, Vec<Anomaly>) {
    let Some(spec) = system.nodes.get(node.index()) else { return (None, vec![Anomaly::NoNode(node.0)]) };
    let mut anomalies = unserved(system, node, spec);
    anomalies.extend(wrong_limits(limits));
    let mut schemes = Vec::new();
    let mut varied = Vec::new();
    for (k, (at, reference)) in strategies(system, node, spec).into_iter().enumerate() {
        let strategy = system.strategy(reference);
        let strategy = if limits.preemptive { strategy } else { run_to_completion(&strategy) };
        let wrong = misfits(system, node, &strategy);
        anomalies.extend(wrong.into_iter().filter(|one| !anomalies.contains(one)).collect::<Vec<_>>());
        varied.push(rates.system(system, k));
        if let Some(plan) = varied.last().and_then(|system| plan::Plan::resolve(system, node, &strategy).ok()) {
            schemes.push(Scheme {
                number: k,
                at,
                reference,
                strategy,
                plan,
                rates: rates.plans.get(k).cloned().unwrap_or_default(),
            });
        }
    }
    anomalies.extend(too_few(system, &schemes, limits).map(|(plan, one)| rates.wrong_in(plan, one)));
    let placed: Vec<Vec<bounds::Placed>> = varied
        .iter()
        .enumerate()
        .map(|(k, system)| {
            let part = |id: TaskId| {
                rates.plans.get(k).and_then(|rates| rates.get(id.index())).is_none_or(|rate| rate.takes_part)
            };
            let tasks = system.tasks_of(node).filter(|(id, _)| part(*id));
            tasks.filter_map(|(id, task)| Some((id, task, cpu_of(spec, task)?))).collect()
        })
        .collect();
    // What is wrong in several plans alike is said once.
    let mut say = |plan: usize, wrong: Vec<Anomaly>| {
        let new: Vec<Anomaly> = wrong.into_iter().filter(|one| !anomalies.contains(one)).collect();
        anomalies.extend(new.into_iter().map(|one| rates.wrong_in(plan, one)));
    };
    for (k, placed) in placed.iter().enumerate().filter(|(k, _)| *k == 0 || !rates.plans.is_empty()) {
        say(k, bounds::utilization(placed, limits));
        say(k, bounds::above_deadline(placed));
    }
    for scheme in &schemes {
        if let Some((system, placed)) = varied.get(scheme.number).zip(placed.get(scheme.number)) {
            say(scheme.number, bounds::blocking(system, placed, scheme));
        }
    }
    if !anomalies.iter().all(Anomaly::is_lateness) {
        return (None, anomalies);
    }
    (table(system, node, limits, &schemes), anomalies)
}

/// The node's strategy and those of its modes in order of time.
fn strategies(system: &System, node: NodeId, spec: &NodeSpec) -> Vec<(Option<Time>, StrategyRef)> {
    let mut modes: Vec<(Option<Time>, StrategyRef)> =
        system.modes.iter().filter(|mode| mode.node == node).map(|mode| (Some(mode.at), mode.strategy)).collect();
    modes.sort_by_key(|(at, _)| *at);
    modes.insert(0, (None, spec.strategy));
    modes
}

/// What a dispatcher of one node's operations does not serve.
fn unserved(system: &System, node: NodeId, spec: &NodeSpec) -> Vec<Anomaly> {
    let unsupported = |part, name: &str, why| Anomaly::Unsupported { part, name: name.to_owned(), why };
    let mut anomalies = Vec::new();
    for component in system.components.iter().filter(|component| component.node == node) {
        anomalies.push(unsupported("component", &component.name, "it has no servers; take its tasks out of it"));
    }
    for flow in system.flows.iter().filter(|flow| flow.path.contains(&node)) {
        anomalies.push(unsupported("flow", &flow.name, "it dispatches tasks and chains of one node; remove it"));
    }
    if spec.receive.is_some() || spec.send.is_some() {
        let why = "its receive and send tasks belong to flows; remove them";
        anomalies.push(unsupported("node", &spec.name, why));
    }
    let mut tasks = system.tasks_of(node).peekable();
    if tasks.peek().is_none() {
        anomalies.push(Anomaly::Empty { of: format!("node \"{}\"", spec.name) });
    }
    for (_, task) in tasks {
        if task.preemption != Preemption::Anywhere {
            let why = "the kernel preempts it for more important levels anywhere; remove final-section and sections";
            anomalies.push(unsupported("sections of task", &task.name, why));
        }
        if cpu_of(spec, task).is_none() {
            anomalies.push(Anomaly::Unplaced { operation: task.name.clone(), node: spec.name.clone() });
        }
    }
    anomalies
}

/// The one CPU that a task may use.
fn cpu_of(spec: &NodeSpec, task: &Task) -> Option<u32> {
    match task.cpus {
        Some(cpus) if cpus.len() == 1 => cpus.lowest(),
        None if spec.cpus == 1 => Some(0),
        _ => None,
    }
}

fn wrong_limits(limits: &Limits) -> impl Iterator<Item = Anomaly> {
    let (least, most) = (*limits.priorities.start(), *limits.priorities.end());
    let threads = (!(1..=THREADS_MAX).contains(&limits.threads)).then(|| {
        let (right, given) = (format!("a level has 1 to {THREADS_MAX} on each CPU"), limits.threads.to_string());
        Anomaly::Value { of: "the limits".to_owned(), key: "threads", given, right }
    });
    let priorities = (least == 0 || most > FIFO_PRIORITY_MAX).then_some(Anomaly::Priorities { least, most });
    threads.into_iter().chain(priorities)
}

/// What keeps tasks of the node out of the levels of a strategy.
pub(super) fn misfits(system: &System, node: NodeId, strategy: &Strategy) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    for (id, task) in system.tasks_of(node) {
        let strategy_name = plain(strategy).to_owned();
        let operation = task.name.clone();
        let anomaly = match plan::Plan::of_tasks(std::iter::once((id, task)), strategy) {
            Ok(_) => continue,
            Err(PlanError::NoLevel { .. }) => Anomaly::NoLevel { strategy: strategy_name, operation },
            Err(PlanError::NoPriority { .. }) => Anomaly::NoPriority { strategy: strategy_name, operation },
            Err(PlanError::Table { .. }) => Anomaly::Table { strategy: strategy_name },
        };
        if !anomalies.contains(&anomaly) {
            anomalies.push(anomaly);
        }
    }
    anomalies
}

/// How many of each level's jobs nest, by scheme; that of demoted jobs last.
fn nestings(system: &System, schemes: &[Scheme]) -> Vec<Vec<u32>> {
    let plans: Vec<plan::Plan> = schemes.iter().map(|scheme| scheme.plan.clone()).collect();
    takt_policy::nesting(system, &plans)
}

/// The priorities of a scheme's levels, of what [`nestings`] says.
fn of_levels(nesting: &[u32]) -> usize {
    nesting.iter().rev().skip(1).map(|depth| *depth as usize).sum()
}

/// How many priorities the schemes need together: one for timers, one a level or as many as its jobs nest, and those of what is demoted. With the number of the plan that needs
/// most; levels of operations that take no part count, for what they released before.
fn too_few(system: &System, schemes: &[Scheme], limits: &Limits) -> Option<(usize, Anomaly)> {
    let nestings = nestings(system, schemes);
    let most = schemes.iter().zip(&nestings);
    let (largest, nesting) = most.max_by_key(|(one, nesting)| (of_levels(nesting), std::cmp::Reverse(one.at)))?;
    let demoted =
        if schemes.iter().any(Scheme::demotes) { nesting.last().map_or(1, |depth| *depth as usize) } else { 0 };
    let levels = of_levels(nesting);
    let (needed, there) = (1 + levels + demoted, limits.priorities.len());
    let strategy = largest.name().to_owned();
    let nests = schemes.iter().flat_map(|scheme| &scheme.plan.levels).any(|level| level.preemptive);
    let anomaly = Anomaly::TooFewPriorities { strategy, levels, demoted, nests, needed, there };
    (needed > there).then_some((largest.number, anomaly))
}

/// No level has more threads on a CPU.
pub const THREADS_MAX: u32 = 256;

/// No longer backlog is made for an operation that names none: each job that may wait has its place from the start.
const BACKLOG_OWN: u32 = 1024;

/// No operation has room for more jobs.
pub const BACKLOG_MAX: u32 = 65_536;

/// The plan of a node with which nothing is wrong.
fn table(system: &System, node: NodeId, limits: &Limits, schemes: &[Scheme]) -> Option<Plan> {
    let mut planned = system.clone();
    let mut modes = Vec::new();
    let nestings = nestings(system, schemes);
    for (scheme, nesting) in schemes.iter().zip(&nestings) {
        let obeyed = if limits.preemptive { scheme.reference } else { enter(&mut planned, scheme.strategy.clone()) };
        match scheme.at {
            None => planned.nodes.get_mut(node.index())?.strategy = obeyed,
            Some(at) => planned.modes.iter_mut().find(|mode| mode.node == node && mode.at == at)?.strategy = obeyed,
        }
        let (levels, rows) = rows(system, node, limits, scheme, nesting)?;
        let strategy = planned.strategy_name(obeyed).to_owned();
        modes.push(PlanMode { name: None, at: scheme.at, strategy, levels, rows });
    }
    let needed = needed_backlogs(system, schemes);
    for row in modes.iter_mut().flat_map(|mode| &mut mode.rows) {
        row.backlog_needed = needed.get(row.task.index()).copied().unwrap_or(1);
        row.backlog = BACKLOG_OWN.min(row.backlog_needed);
    }
    let spec = planned.nodes.get_mut(node.index())?;
    let cancel = spec.cancel;
    if spec.cpus > 1 {
        // The same, for each task is bound to one CPU; so said, each CPU is proven alone.
        spec.placement = Placement::Partitioned;
    }
    let most = u32::try_from(nestings.iter().map(|nesting| of_levels(nesting)).max()?).ok()?;
    let demoted_nesting = nestings.first()?.last().copied()?;
    let demotes = schemes.iter().any(Scheme::demotes);
    let demoted_priority = if demotes { Some(priority(limits, most + demoted_nesting - 1)?) } else { None };
    let PlanMode { strategy, levels, rows, .. } = modes.remove(0);
    let timer_priority = *limits.priorities.end();
    Some(Plan {
        system: planned,
        node,
        strategy,
        cancel,
        levels,
        rows,
        modes,
        timer_priority,
        demoted_priority,
        demoted_nesting,
    })
}

/// Of each task, as many jobs as may be there at once in any of the plans where all keep their deadlines.
fn needed_backlogs(system: &System, schemes: &[Scheme]) -> Vec<u32> {
    let mut needed = vec![1; system.tasks.len()];
    for scheme in schemes {
        let of_plan = bounds::backlogs(system, |task| Some(scheme.rates.get(task.index())?.period));
        for (most, own) in needed.iter_mut().zip(of_plan) {
            *most = own.max(*most);
        }
    }
    needed
}

/// A strategy of the System that is equal to this one; where there is none it is added, under a name that is free.
pub(super) fn enter(system: &mut System, mut strategy: Strategy) -> StrategyRef {
    let name = strategy.name.clone();
    let mut count = 1;
    let at = loop {
        match system.strategies.iter().position(|other| other.name == strategy.name) {
            Some(at) if system.strategies.get(at) == Some(&strategy) => break at,
            Some(_) => {
                count += 1;
                strategy.name = format!("{name} {count}");
            }
            None => {
                system.strategies.push(strategy);
                break system.strategies.len() - 1;
            }
        }
    };
    StrategyRef::Own(StrategyId(u32::try_from(at).unwrap_or(u32::MAX)))
}

/// The priority that has so many between it and that of the timers.
fn priority(limits: &Limits, above: u32) -> Option<u8> {
    let below = u8::try_from(above.checked_add(1)?).ok()?;
    limits.priorities.end().checked_sub(below).filter(|priority| limits.priorities.contains(priority))
}

/// Levels and rows of one scheme.
fn rows(
    system: &System,
    node: NodeId,
    limits: &Limits,
    scheme: &Scheme,
    nesting: &[u32],
) -> Option<(Vec<PlanLevelRow>, Vec<Row>)> {
    let spec = system.nodes.get(node.index())?;
    let resolved = &scheme.plan;
    let mut levels = Vec::with_capacity(resolved.levels.len());
    let mut above = 0;
    for (level, nesting) in resolved.levels.iter().zip(nesting) {
        above += nesting;
        levels.push(PlanLevelRow {
            priority: priority(limits, above - 1)?,
            nesting: *nesting,
            preemptive: level.preemptive,
            discipline: level.order,
            late: level.late,
            importance_ties: level.importance_ties,
            threads: if level.preemptive { 1 } else { limits.threads },
        });
    }
    let mut rows = Vec::with_capacity(resolved.tasks.len());
    let mut places: Vec<(u32, u32, usize)> = Vec::with_capacity(resolved.tasks.len());
    for placed in &resolved.tasks {
        let task = system.tasks.get(placed.task.index())?;
        let level = levels.get(placed.level as usize)?;
        let importance = if level.importance_ties { task.importance } else { 0 };
        let rate = scheme.rates.get(placed.task.index());
        places.push((placed.level, u32::MAX - importance, rows.len()));
        rows.push(Row {
            task: placed.task,
            name: task.name.clone(),
            cpu: cpu_of(spec, task)?,
            level: placed.level,
            order: level.discipline,
            priority: level.priority,
            subpriority: 0,
            shift_ns: placed.shift_ns,
            late: placed.late,
            overrun: None,
            backlog: 1,
            backlog_needed: 1,
            period: rate.map_or(task.period, |rate| rate.period),
            takes_part: rate.is_none_or(|rate| rate.takes_part),
            by_events: false,
        });
    }
    places.sort_unstable();
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    for (level, _, slot) in places {
        let place = next.entry(level).or_default();
        rows.get_mut(slot)?.subpriority = *place;
        *place += 1;
    }
    Some((levels, rows))
}

/// A table for people: one operation a line, by level and subpriority; below it one for each mode.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strategy {}; SCHED_FIFO: timers {}", self.strategy, self.timer_priority)?;
        if let Some(demoted) = self.demoted_priority {
            write!(f, ", demoted jobs {}", priorities_of(demoted, self.demoted_nesting))?;
        }
        f.write_str("\n")?;
        self.show(f, &self.rows, &self.levels)?;
        for mode in &self.modes {
            match (&mode.name, mode.at) {
                (Some(name), _) => writeln!(f, "mode {name}: strategy {}", mode.strategy)?,
                (None, at) => writeln!(f, "from {} on strategy {}", at.unwrap_or(Time::ZERO), mode.strategy)?,
            }
            self.show(f, &mode.rows, &mode.levels)?;
        }
        Ok(())
    }
}

/// The priorities of jobs that nest.
fn priorities_of(least: u8, nesting: u32) -> String {
    if nesting > 1 { format!("{least}-{}", u32::from(least) + nesting - 1) } else { least.to_string() }
}

/// Columns of the table, and whether they are set to the right.
const COLUMNS: [(&str, bool); 10] = [
    ("cpu", true),
    ("level", true),
    ("discipline", false),
    ("priority", true),
    ("subpriority", true),
    ("operation", false),
    ("period", true),
    ("wcet", true),
    ("deadline", true),
    ("criticality", false),
];

impl Plan {
    fn show(&self, f: &mut fmt::Formatter<'_>, rows: &[Row], levels: &[PlanLevelRow]) -> fmt::Result {
        let mut sorted: Vec<&Row> = rows.iter().filter(|row| row.takes_part).collect();
        sorted.sort_by_key(|row| (row.level, row.subpriority));
        let lines: Vec<[String; 10]> = sorted.into_iter().filter_map(|row| self.cells(row, levels)).collect();
        let several = self.system.nodes.get(self.node.index()).is_some_and(|node| node.cpus > 1);
        // One CPU needs no column.
        let head = COLUMNS.map(|(name, _)| name.to_owned());
        let all = || std::iter::once(&head).chain(&lines);
        let mut widths = [0; 10];
        for line in all() {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for line in all() {
            let mut text = String::new();
            let cells = line.iter().zip(widths).zip(COLUMNS).skip(usize::from(!several));
            for ((cell, width), (_, right)) in cells {
                let padded = if right { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
                text.push_str(&padded);
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        let absent: Vec<&str> = rows.iter().filter(|row| !row.takes_part).map(|row| row.name.as_str()).collect();
        if !absent.is_empty() {
            writeln!(f, "without {}", absent.join(", "))?;
        }
        Ok(())
    }

    fn cells(&self, row: &Row, levels: &[PlanLevelRow]) -> Option<[String; 10]> {
        let task = self.system.tasks.get(row.task.index())?;
        let discipline = match row.order {
            Order::Fifo => "fifo",
            Order::Deadline => "deadline",
            Order::Laxity => "laxity",
        };
        let sporadic = if task.arrival == Arrival::Sporadic { ">=" } else { "" };
        Some([
            row.cpu.to_string(),
            row.level.to_string(),
            discipline.to_owned(),
            priorities_of(row.priority, levels.get(row.level as usize).map_or(1, |level| level.nesting)),
            row.subpriority.to_string(),
            row.name.clone(),
            format!("{sporadic}{}", row.period),
            task.wcet.to_string(),
            task.deadline.to_string(),
            task.criticality.to_string(),
        ])
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
