//! Computes the plan of a node, or says all that speaks against it.

use std::collections::BTreeMap;

use takt_linux::sched::FIFO_PRIORITY_MAX;
use takt_model::file::validate;
use takt_model::plan::PlanError;
use takt_model::{NodeId, NodeSpec, Placement, Preemption, Strategy, StrategyRef, System, Task, TaskId, Time, plan};

use super::anomaly::{Anomalies, Anomaly};
use super::bounds;
use super::completion::{enter, plain, run_to_completion};
use super::plan::{Limits, Plan, PlanLevelRow, PlanMode, Row, THREADS_MAX};
use super::rate::{Rate, Rates, at_rates};

/// The longest default backlog. Each waiting job has its place from the start.
const BACKLOG_OWN: u32 = 1024;

impl Plan {
    /// The levels of all plans, each for its own rates.
    pub(super) fn resolved(&self) -> Result<Vec<plan::Plan>, PlanError> {
        let rates = |plan| {
            let rows = self.rows_in(plan)?;
            Some(rows.iter().map(|row| Rate { period: row.period, takes_part: row.takes_part }).collect())
        };
        let resolve = |(plan, strategy): (usize, StrategyRef)| {
            let rates: Option<Vec<Rate>> = if self.varies() { rates(plan) } else { None };
            let strategy = self.system.strategy(strategy);
            match rates {
                Some(rates) => plan::Plan::resolve(&at_rates(&self.system, Some(&rates)), self.node, &strategy),
                None => plan::Plan::resolve(&self.system, self.node, &strategy),
            }
        };
        self.system.strategies_of(self.node).into_iter().enumerate().map(resolve).collect()
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

/// A strategy of the node, its start, and its levels for the node's tasks.
struct Scheme {
    /// The number of its plan: 0 for the node's strategy, k for its k-th mode.
    number: usize,
    /// `None`: from the start.
    at: Option<Time>,
    reference: StrategyRef,
    strategy: Strategy,
    plan: plan::Plan,
    /// By task; empty if they are the System's.
    rates: Vec<Rate>,
}

impl Scheme {
    fn name(&self) -> &str {
        plain(&self.strategy)
    }

    fn demotes(&self) -> bool {
        self.plan.levels.iter().any(|level| level.demotes)
    }
}

/// The plan and the reports of deadlines that can be missed; without a plan, all faults. The
/// System's indices must be valid, and its chains free of circles.
fn judge(system: &System, node: NodeId, limits: &Limits) -> (Option<Plan>, Vec<Anomaly>) {
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
    let starts = std::iter::once(None).chain(system.modes_of(node).into_iter().map(|mode| Some(mode.at)));
    for (k, (at, reference)) in starts.zip(system.strategies_of(node)).enumerate() {
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
            say(scheme.number, bounds::blocking(system, placed, &scheme.plan, scheme.name()));
        }
    }
    if !anomalies.iter().all(Anomaly::is_lateness) {
        return (None, anomalies);
    }
    (table(system, node, limits, &schemes), anomalies)
}

/// The parts of one node's System that a dispatcher does not support.
fn unserved(system: &System, node: NodeId, spec: &NodeSpec) -> Vec<Anomaly> {
    let unsupported = |part, name: &str, why| Anomaly::Unsupported { part, name: name.to_owned(), why };
    let mut anomalies = Vec::new();
    for component in system.components.iter().filter(|component| component.node == node) {
        anomalies.push(unsupported("component", &component.name, "it has no servers; take its tasks out of it"));
    }
    for flow in system.flows.iter().filter(|flow| flow.path.contains(&node)) {
        anomalies.push(unsupported("flow", &flow.name, "it dispatches tasks and chains of one node; remove the flow"));
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

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
