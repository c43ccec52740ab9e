//! The table that a dispatcher follows: level, discipline, SCHED_FIFO priority and static
//! subpriority of each operation.

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

/// Limits of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The SCHED_FIFO priorities to use, within 1 to 98; a larger number is more important to the
    /// kernel. The default, 1 to 48, stays below the interrupt threads of a PREEMPT_RT kernel (50).
    pub priorities: RangeInclusive<u8>,
    /// The most of each CPU that critical operations may need, in parts per million. Default: all.
    pub critical_utilization_ppm: u32,
    /// The most of each CPU that noncritical operations may need, in parts per million. Default:
    /// `None`, any overload.
    pub noncritical_utilization_ppm: Option<u32>,
    /// The most of each CPU that all operations may need together, in parts per million. Default:
    /// `None`, any overload.
    pub total_utilization_ppm: Option<u32>,
    /// Threads for a level on each CPU, 1 to [`THREADS_MAX`]. With more than one, the level
    /// continues while one of its jobs sleeps. Proofs and simulations of the plan then hold only
    /// for handlers that never sleep, because another job of the level may start meanwhile. A
    /// preemptive level has one thread for each job that nests.
    pub threads: u32,
    /// Whether jobs of a level preempt each other if the strategy says so (`preemptive`, the
    /// default of System files). Such a level takes as many priorities as its jobs nest. Default:
    /// false, within a level each job runs to completion [KOKYU II-B].
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

/// The order of execution. Equal Systems and limits give equal plans.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The planned System. Every level of the node runs to completion unless [`Limits::preemptive`]
    /// is set.
    pub system: System,
    /// The planned node.
    pub node: NodeId,
    /// The name of the node's strategy in [`Plan::system`].
    pub strategy: String,
    /// Whether noncritical jobs that can no longer be in time are omitted at their first dispatch.
    pub cancel: bool,
    /// The levels, the most important first.
    pub levels: Vec<PlanLevelRow>,
    /// One row for each task of the node, in file order (its slot).
    pub rows: Vec<Row>,
    /// The plans of the node's modes, in order of time.
    pub modes: Vec<PlanMode>,
    /// SCHED_FIFO priority of each CPU's timer thread, above all levels.
    pub timer_priority: u8,
    /// SCHED_FIFO priority of demoted late jobs, below all levels; `None` if no level demotes.
    pub demoted_priority: Option<u8>,
    /// How many demoted jobs nest. They use that priority and the next ones above it. One if jobs
    /// run to completion.
    pub demoted_nesting: u32,
}

/// A level: a queue, and threads of one priority, on each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanLevelRow {
    /// SCHED_FIFO priority of its threads. If jobs nest, the least important one.
    pub priority: u8,
    /// The most jobs in progress on one CPU, each preempted by the next. The level has as many
    /// priorities: this one and the next ones above it. One if jobs run to completion.
    pub nesting: u32,
    /// Whether its jobs preempt each other.
    pub preemptive: bool,
    /// The order in which its jobs start.
    pub discipline: Order,
    /// The rule for late jobs of operations without their own rule.
    pub late: Late,
    /// Whether importance breaks ties of the discipline, before the nominal arrival does.
    pub importance_ties: bool,
    /// Threads on each CPU.
    pub threads: u32,
}

/// The place of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The task of [`Plan::system`].
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The model CPU on which it runs.
    pub cpu: u32,
    /// Index of its level.
    pub level: u32,
    /// The order of its level.
    pub order: Order,
    /// The SCHED_FIFO priority of its level.
    pub priority: u8,
    /// Its static place among all operations of its level, 0 the most important. The order is by
    /// importance if the level breaks ties so, then by the order of operations.
    pub subpriority: u32,
    /// A constant that its level adds to its absolute deadlines (discipline `gel`), in nanoseconds;
    /// zero elsewhere.
    pub shift_ns: i64,
    /// The most jobs that may wait or run at once. For a System, the most that can exist while all
    /// jobs keep their deadlines, at most 1024.
    pub backlog: u32,
    /// The most jobs that can exist at once while all keep their deadlines.
    pub(super) backlog_needed: u32,
    /// The rule for its late jobs.
    pub late: Late,
    /// The rule for overruns of its wcet; `None` if they are not watched. A System does not state
    /// this rule.
    pub overrun: Option<Overrun>,
    /// Its period or least distance; for a follower, that of its source.
    pub period: Span,
    /// Whether it releases jobs.
    pub takes_part: bool,
    /// Whether events release it instead of its predecessors' ends ([`Plan::released_by_events`]).
    pub by_events: bool,
}

/// The node's plan from one of its modes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanMode {
    /// The program's name of the mode; `None` for a System's mode.
    pub name: Option<String>,
    /// The time of the mode; `None` if only the program switches to it.
    pub at: Option<Time>,
    /// The name of the strategy in [`Plan::system`].
    pub strategy: String,
    /// As [`Plan::levels`].
    pub levels: Vec<PlanLevelRow>,
    /// As [`Plan::rows`].
    pub rows: Vec<Row>,
}

impl Plan {
    /// Sets the number of threads of a level of one of the plans (0: of the start, k: of the k-th
    /// mode) on each CPU, limited to 1 to [`THREADS_MAX`]. Then as many of its jobs are in progress
    /// at once, and the kernel runs them one after the other. Preemptive levels and unknown levels
    /// stay unchanged. The remark on proofs at [`Limits::threads`] holds here too.
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

    /// Sets the most jobs of each operation that may wait or run at once, limited to 1 to
    /// [`BACKLOG_MAX`]. A smaller backlog than before may reject a critical operation's jobs that
    /// would be in time. This is not checked here.
    #[must_use]
    pub fn with_backlog(mut self, backlog: u32) -> Plan {
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        self.each_rows_mut().flatten().for_each(|row| row.backlog = backlog);
        self
    }

    /// Lets events release an operation that comes after others. Its predecessors' handlers push
    /// the events when all else is done ([`event`](crate::event)), and the operation subscribes to
    /// them. Or the program pushes the operation itself.
    ///
    /// Proofs and simulations of the plan keep the order of predecessors. No least distance holds,
    /// because the operation arrives when its predecessors end. The backlog bounds it. An event
    /// that is never pushed releases nothing. An event pushed early in a handler releases the
    /// operation before that handler has returned.
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
    /// There is no such operation, or it has no predecessors.
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

    /// The System with releases as they are here: operations released by events have no
    /// predecessors.
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

    /// The plan with releases by predecessors' ends instead of events, because in virtual time no
    /// handler pushes.
    pub(super) fn released_by_ends(&self) -> Cow<'_, Plan> {
        if !self.rows.iter().any(|row| row.by_events) {
            return Cow::Borrowed(self);
        }
        let mut plan = self.clone();
        plan.each_rows_mut().flatten().for_each(|row| row.by_events = false);
        Cow::Owned(plan)
    }

    /// The rows of the start's plan, and of the modes' plans in turn.
    pub(super) fn each_rows(&self) -> impl Iterator<Item = &Vec<Row>> {
        std::iter::once(&self.rows).chain(self.modes.iter().map(|mode| &mode.rows))
    }

    /// As [`Plan::each_rows`], mutable.
    pub(super) fn each_rows_mut(&mut self) -> impl Iterator<Item = &mut Vec<Row>> {
        std::iter::once(&mut self.rows).chain(self.modes.iter_mut().map(|mode| &mut mode.rows))
    }

    /// The levels of the start's plan, and of the modes' plans in turn.
    pub(super) fn each_levels(&self) -> impl Iterator<Item = &Vec<PlanLevelRow>> {
        std::iter::once(&self.levels).chain(self.modes.iter().map(|mode| &mode.levels))
    }

    /// The tasks of its operations.
    pub fn tasks(&self) -> Vec<&Task> {
        self.rows.iter().filter_map(|row| self.system.tasks.get(row.task.index())).collect()
    }

    /// Whether the program pushes the jobs of an operation.
    pub(crate) fn is_pushed(&self, row: &Row) -> bool {
        let task = self.system.tasks.get(row.task.index());
        row.by_events || task.is_some_and(|task| task.arrival == Arrival::Sporadic && task.after.is_empty())
    }

    /// The rows of one of the plans: 0 of the start, k of the k-th mode.
    pub(super) fn rows_in(&self, plan: usize) -> Option<&[Row]> {
        match plan.checked_sub(1) {
            None => Some(&self.rows),
            Some(mode) => Some(&self.modes.get(mode)?.rows),
        }
    }

    /// Whether jobs of a level preempt each other under a plan (0: of the start, k: of the k-th
    /// mode).
    pub(super) fn preempts(&self, plan: usize, level: u32) -> bool {
        let levels = match plan.checked_sub(1) {
            None => Some(&self.levels),
            Some(mode) => self.modes.get(mode).map(|mode| &mode.levels),
        };
        levels.and_then(|levels| levels.get(level as usize)).is_some_and(|level| level.preemptive)
    }

    /// Names the modes, which only the program switches to.
    pub(super) fn name_modes(&mut self, names: impl Iterator<Item = String>) {
        for (mode, name) in self.modes.iter_mut().zip(names) {
            (mode.name, mode.at) = (Some(name), None);
        }
    }

    /// Whether the plans differ in participation or rates.
    pub(super) fn varies(&self) -> bool {
        let parts = |rows: &[Row]| rows.iter().map(|row| (row.period, row.takes_part)).collect::<Vec<_>>();
        let first = parts(&self.rows);
        self.each_rows().any(|rows| rows.iter().any(|row| !row.takes_part) || parts(rows) != first)
    }

    /// The levels of all plans, each for its own rates.
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

    /// The plan of one node of a System. Each level of the node's strategy and of its modes'
    /// strategies runs to completion, unless [`Limits::preemptive`] is set.
    ///
    /// # Errors
    /// All faults. If the System breaks rules of System files, only these are reported.
    pub fn compute(system: &System, node: NodeId, limits: &Limits) -> Result<Plan, Anomalies> {
        if let Err(errors) = validate(system) {
            return Err(Anomalies(errors.iter().map(|error| Anomaly::System(error.to_string())).collect()));
        }
        match judge(system, node, limits) {
            (Some(plan), anomalies) if anomalies.is_empty() => Ok(plan),
            (_, anomalies) => Err(Anomalies(anomalies)),
        }
    }

    /// As [`Plan::compute`], to watch deadlines being missed. Anomalies that only say so
    /// ([`Anomaly::is_lateness`]) come with the plan.
    ///
    /// # Errors
    /// All other faults.
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

/// The suffix for the name of a strategy whose levels were preemptive.
pub const TO_COMPLETION: &str = ", run to completion";

/// The strategy with levels that run to completion. Its name changes, unless the strategy was
/// already so.
pub(super) fn run_to_completion(strategy: &Strategy) -> Strategy {
    let own = strategy.levels.iter().all(|level| !level.preemptive) && Builtin::by_name(&strategy.name).is_none();
    let name = if own { strategy.name.clone() } else { format!("{}{TO_COMPLETION}", strategy.name) };
    let levels = strategy.levels.iter().map(|level| Level { preemptive: false, ..level.clone() });
    Strategy { name, levels: levels.collect() }
}

/// The System whose jobs run to completion within their levels, as in a plan without
/// [`Limits::preemptive`]. Nodes and modes with preemptive levels get another strategy. Other
/// strategies stay.
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

/// The strategy under a name other than those of the built-in ones.
pub(super) fn own(strategy: Strategy) -> Strategy {
    match Builtin::by_name(&strategy.name) {
        Some(builtin) => Strategy { name: format!("{}, preemptive", builtin.name()), ..strategy },
        None => strategy,
    }
}

/// The name of a strategy without that suffix, for texts.
fn plain(strategy: &Strategy) -> &str {
    let name = strategy.name.strip_suffix(TO_COMPLETION).unwrap_or(&strategy.name);
    name.strip_suffix(", preemptive").unwrap_or(name)
}

/// A strategy of the node, its start, and its levels for the node's tasks.
pub(super) struct Scheme {
    /// The number of its plan: 0 for the node's strategy, k for its k-th mode.
    number: usize,
    /// `None`: from the start.
    at: Option<Time>,
    reference: StrategyRef,
    strategy: Strategy,
    pub(super) plan: plan::Plan,
    /// By task; empty if they are the System's.
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

/// The plan and the reports of deadlines that can be missed; without a plan, all faults. The
/// System's indices must be valid, and its chains free of circles.
pub(super) fn judge(system: &System, node: NodeId, limits: &Limits) -> (Option<Plan>, Vec<Anomaly>) {
    judge_rates(system, node, limits, &Rates::default())
}

/// As [`judge`], if the plans of modes have other rates or fewer tasks. Such a System has one node.
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
    // A fault of several plans is reported once.
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

/// The parts of one node's System that a dispatcher does not support.
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

/// The faults that keep tasks of the node out of the levels of a strategy.
pub(super) fn misfits(system: &System, node: NodeId, strategy: &Strategy) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    for (id, task) in system.tasks_of(node) {
        let strategy_name = plain(strategy).to_owned();
        let operation = task.name.clone();
        let anomaly = match plan::Plan::of_tasks(std::iter::once((id, task)), strategy) {
            Ok(_) => continue,
            Err(PlanError::NoLevel { .. }) => Anomaly::NoLevel { strategy: strategy_name, operation },
            Err(PlanError::NoPriority { .. }) => Anomaly::NoPriority { strategy: strategy_name, operation },
        };
        if !anomalies.contains(&anomaly) {
            anomalies.push(anomaly);
        }
    }
    anomalies
}

/// How many jobs of each level nest, by scheme; those of demoted jobs last.
fn nestings(system: &System, schemes: &[Scheme]) -> Vec<Vec<u32>> {
    let plans: Vec<plan::Plan> = schemes.iter().map(|scheme| scheme.plan.clone()).collect();
    takt_policy::nesting(system, &plans)
}

/// The number of priorities of a scheme's levels, from [`nestings`].
fn of_levels(nesting: &[u32]) -> usize {
    nesting.iter().rev().skip(1).map(|depth| *depth as usize).sum()
}

/// Whether the schemes need too many priorities: a priority for timers, for each level as many as
/// its jobs nest, and those of demoted jobs. Returns also the number of the plan with the greatest
/// need. Levels of absent operations count, because of earlier releases.
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

/// The most threads of a level on a CPU.
pub const THREADS_MAX: u32 = 256;

/// The longest default backlog. Each waiting job has its place from the start.
const BACKLOG_OWN: u32 = 1024;

/// The longest backlog.
pub const BACKLOG_MAX: u32 = 65_536;

/// The plan of a node without faults.
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
        // Each task is bound to one CPU. With this placement, each CPU is proven alone.
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

/// For each task, the most jobs that can exist at once in any of the plans while all keep their
/// deadlines.
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

/// Finds a strategy of the System that is equal to this one. Otherwise adds this one under a free
/// name.
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

/// The priority with this many priorities between it and the timers' priority.
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

/// A table for people: one operation for each line, by level and subpriority. A table for each mode
/// follows.
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

/// The columns of the table, and whether they are right-aligned.
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
