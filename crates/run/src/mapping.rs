//! Maps each task to a scheduling class, a priority and CPUs. Pure, except for one look at the
//! machine in [`prepare`].
//!
//! | strategy | class |
//! |---|---|
//! | levels of discipline `fifo` (fp, rm, dm, fifo, own ones) | SCHED_FIFO, one priority per level |
//! | one level of discipline `deadline` (edf) | SCHED_DEADLINE |
//! | such a level above `fifo` ones | both: the kernel puts SCHED_DEADLINE above SCHED_FIFO |
//!
//! Other Systems run under takt's own dispatcher if it can express them. The rest is refused by
//! name. Best effort accepts any strategy, because it enforces none.

use std::collections::BTreeMap;
use takt_linux::machine::Limits;
use takt_linux::sched::{FIFO_PRIORITY_MAX, RUNTIME_MIN_NS};
use takt_linux::{Class, Reservation};
use takt_model::plan::{Order, PlanTask};
use takt_model::{Arrival, CpuSet, Exec, NodeId, NodeSpec, Placement, Plan, PlanLevel, Preemption, Span, System, Task};

use crate::demand::refuse_overload;
pub(crate) use crate::demand::{allowed_percent, intervals, load_ppm, refuse_working_sets};
use crate::error::RunError;
pub(crate) use crate::mapped::{MappedTask, Mapping, list};
use crate::{Margin, RunOptions};

pub(crate) fn too_few(spec: &NodeSpec, there: usize) -> RunError {
    let remedy = "run it on a larger machine".to_owned();
    RunError::Cpus { node: spec.name.clone(), wanted: spec.cpus, there, remedy }
}

/// If the machine has CPUs enough, and only this process may not use them, the remedy is another.
pub(crate) fn confined(error: RunError) -> RunError {
    match error {
        RunError::Cpus { node, wanted, there, .. } if takt_linux::machine().cpus_online.len() >= wanted as usize => {
            RunError::Cpus { node, wanted, there, remedy: takt_linux::sched::unconfined() }
        }
        error => error,
    }
}

/// The node to run, if the options are valid.
pub(crate) fn choose(system: &System, options: &RunOptions) -> Result<NodeId, RunError> {
    let node = choose_node(system, options.node)?;
    if options.duration.is_zero() || options.duration > Span::FILE_MAX {
        return Err(RunError::Duration { duration: options.duration });
    }
    if !(1..=FIFO_PRIORITY_MAX).contains(&options.top_priority) {
        return Err(RunError::TopPriority(options.top_priority));
    }
    Ok(node)
}

fn choose_node(system: &System, chosen: Option<NodeId>) -> Result<NodeId, RunError> {
    match (chosen, system.nodes.as_slice()) {
        (Some(node), nodes) if node.index() < nodes.len() => Ok(node),
        (Some(node), _) => Err(RunError::NoNode(node.0)),
        (None, [_]) => Ok(NodeId(0)),
        (None, nodes) => {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            Err(RunError::WhichNode { nodes: names.join(", ") })
        }
    }
}

/// The whole mapping; `there` counts the CPUs of this process.
pub(crate) fn map(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
    there: usize,
) -> Result<Mapping, RunError> {
    let spec = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?;
    refuse_parts(system, node, spec)?;
    if !options.best_effort {
        refuse_dispatching(system, node, spec)?;
    }
    let plan = Plan::resolve(system, node, &system.strategy(spec.strategy))?;
    if plan.tasks.is_empty() {
        return Err(RunError::NoTasks { node: spec.name.clone() });
    }
    if spec.cpus as usize > there {
        return Err(too_few(spec, there));
    }
    if !options.best_effort {
        refuse_levels(&plan)?;
    }
    let mut tasks = Vec::with_capacity(plan.tasks.len());
    for placed in &plan.tasks {
        let Some(task) = system.tasks.get(placed.task.index()) else { continue };
        has_values(task)?;
        let class = if options.best_effort { Class::Other } else { class_of(&plan, placed, task, options, limits)? };
        // Under SCHED_DEADLINE a yield would sleep until the reservation's next period.
        let is_fifo = matches!(class, Class::Fifo { .. });
        tasks.push(MappedTask {
            id: placed.task,
            class,
            cpus: cpus_of(spec, task)?,
            domain: None,
            yields: is_fifo && plan.tasks.iter().filter(|other| other.level == placed.level).count() > 1,
        });
    }
    let mut mapping = Mapping { tasks, ..Mapping::default() };
    mapping.note_priority(options.top_priority);
    if options.best_effort {
        mapping.notes.push(not_enforced(system, node, &plan));
    } else {
        if !options.force {
            refuse_overload(system, &mapping.tasks, limits)?;
        }
        divide(system, spec, there, &mut mapping)?;
    }
    Ok(mapping)
}

pub(crate) fn unsupported(part: &'static str, name: &str, why: &str) -> RunError {
    RunError::Unsupported { part, name: name.to_owned(), why: why.to_owned() }
}

fn unenforceable(part: &'static str, name: &str, why: &str) -> RunError {
    RunError::Unenforceable { part, name: name.to_owned(), why: why.to_owned() }
}

/// Refuses parts of a node that no back end of this crate runs.
fn refuse_parts(system: &System, node: NodeId, spec: &NodeSpec) -> Result<(), RunError> {
    refuse_sections(system, node)?;
    refuse_flows(system, node, spec)
}

pub(crate) fn refuse_sections(system: &System, node: NodeId) -> Result<(), RunError> {
    let kept = system.tasks_of(node).find(|(_, task)| task.preemption != Preemption::Anywhere);
    if let Some((_, task)) = kept {
        let why = "the kernel preempts its threads anywhere; remove final-section and sections, or simulate";
        return Err(unsupported("sections of task", &task.name, why));
    }
    Ok(())
}

/// Refuses flows where nobody said how their messages go.
pub(crate) fn refuse_flows(system: &System, node: NodeId, spec: &NodeSpec) -> Result<(), RunError> {
    if let Some(flow) = system.flows.iter().find(|flow| flow.path.contains(&node)) {
        return Err(unsupported("flow", &flow.name, "it passes between nodes; prepare the node with prepare_node"));
    }
    if spec.receive.is_some() || spec.send.is_some() {
        return Err(unsupported("node", &spec.name, "its receive and send tasks belong to flows"));
    }
    Ok(())
}

/// Refuses parts of a node, besides its strategy, that need a dispatcher.
fn refuse_dispatching(system: &System, node: NodeId, spec: &NodeSpec) -> Result<(), RunError> {
    if has_modes(system, node) {
        return Err(unenforceable("mode of node", &spec.name, "the kernel cannot switch the strategy"));
    }
    if system.cancels(node) {
        return Err(unenforceable("node", &spec.name, "cancel = true wants takt's own dispatcher"));
    }
    Ok(())
}

fn has_modes(system: &System, node: NodeId) -> bool {
    system.modes.iter().any(|mode| mode.node == node)
}

/// A note for the log and the screen about properties that SCHED_OTHER does not enforce.
fn not_enforced(system: &System, node: NodeId, plan: &Plan) -> String {
    let mut note = format!(
        "best effort: all threads run under SCHED_OTHER, which guarantees nothing; strategy \"{}\" is not enforced",
        plan.name
    );
    if has_modes(system, node) {
        note.push_str(", nor are its modes");
    }
    if system.cancels(node) {
        note.push_str("; no job is cancelled");
    }
    if !plan.levels.iter().all(PlanLevel::continues) {
        note.push_str("; late jobs go on");
    }
    note
}

/// Refuses levels that the kernel's classes cannot express.
fn refuse_levels(plan: &Plan) -> Result<(), RunError> {
    let refuse = |why: &str| Err(unenforceable("strategy", &plan.name, why));
    for (i, level) in plan.levels.iter().enumerate() {
        match level.order {
            Order::Laxity => return refuse("the kernel has no discipline \"laxity\""),
            Order::Deadline if i > 0 => {
                return refuse("the kernel puts SCHED_DEADLINE above all else, so a deadline level comes first");
            }
            Order::Deadline if !level.preemptive => {
                return refuse("SCHED_DEADLINE is always preemptive");
            }
            Order::Deadline | Order::Fifo => {}
        }
        if level.drops {
            return refuse("late = \"drop\" wants takt's own dispatcher");
        }
        if level.demotes {
            return refuse("late = \"demote\" wants takt's own dispatcher");
        }
        if level.importance_ties {
            return refuse("the kernel breaks ties by wake-up, not by importance");
        }
    }
    if plan.tasks.iter().any(|task| task.shift_ns != 0) {
        return refuse("the kernel has no discipline \"gel\"");
    }
    Ok(())
}

pub(crate) fn has_values(task: &Task) -> Result<(), RunError> {
    let exec = if let Exec::Trace(trace) = &task.exec { Some(trace) } else { None };
    let arrival = if let Arrival::Trace(trace) = &task.arrival { Some(trace) } else { None };
    match exec.into_iter().chain(arrival).find(|trace| trace.values.is_empty()) {
        Some(trace) => Err(RunError::NoTrace { task: task.name.clone(), path: trace.path.clone() }),
        None => Ok(()),
    }
}

fn class_of(
    plan: &Plan,
    placed: &PlanTask,
    task: &Task,
    options: &RunOptions,
    limits: &Limits,
) -> Result<Class, RunError> {
    let first_is_deadline = plan.levels.first().is_some_and(|level| level.order == Order::Deadline);
    let level = placed.level as usize;
    if first_is_deadline && level == 0 {
        return Ok(Class::Deadline(reservation(task, options.margin, limits)?));
    }
    let skipped = usize::from(first_is_deadline);
    let levels = plan.levels.len() - skipped;
    match fifo_priority(levels, level - skipped, options.top_priority) {
        Some(priority) => Ok(Class::Fifo { priority }),
        None => Err(RunError::Levels { strategy: plan.name.clone(), levels, most: FIFO_PRIORITY_MAX }),
    }
}

/// The kernel's priority of level `level` of `levels` (0 is the most important). Priorities are
/// consecutive. The most important one is `top`, or as much greater as is needed for the least
/// important to be 1.
fn fifo_priority(levels: usize, level: usize, top: u8) -> Option<u8> {
    let top = usize::from(top).max(levels);
    if top > usize::from(FIFO_PRIORITY_MAX) || level >= levels {
        return None;
    }
    u8::try_from(top - level).ok()
}

pub(crate) fn reservation(task: &Task, margin: Margin, limits: &Limits) -> Result<Reservation, RunError> {
    let refuse = |why: String| Err(RunError::Deadline { task: task.name.clone(), why });
    let (deadline, period) = (task.deadline, task.period);
    if deadline > period {
        return refuse(format!(
            "its deadline {deadline} exceeds its period {period}, and the kernel wants deadline <= period"
        ));
    }
    if task.wcet > deadline {
        return refuse(format!(
            "its wcet {} exceeds its deadline {deadline}, and the kernel wants runtime <= deadline",
            task.wcet
        ));
    }
    if period < limits.dl_period_min || period > limits.dl_period_max {
        let (min, max) = (limits.dl_period_min, limits.dl_period_max);
        return refuse(format!("its period is {period}, and the kernel takes {min} to {max}"));
    }
    let share = u128::from(task.wcet.as_ns()) * u128::from(margin.percent) / 100;
    let share = Span::from_ns(u64::try_from(share).unwrap_or(u64::MAX));
    let runtime = task.wcet.saturating_add(share.max(margin.least)).max(Span::from_ns(RUNTIME_MIN_NS)).min(deadline);
    if runtime.as_ns() < RUNTIME_MIN_NS {
        return refuse(format!("its deadline {deadline} is shorter than the least runtime, {RUNTIME_MIN_NS}ns"));
    }
    Ok(Reservation { runtime, deadline, period })
}

/// The model CPUs of a task: its own, within its cluster.
pub(crate) fn cpus_of(spec: &NodeSpec, task: &Task) -> Result<CpuSet, RunError> {
    let all = CpuSet::first(spec.cpus);
    let own = task.cpus.map_or(all, |cpus| cpus.intersection(&all));
    let placement = match spec.placement {
        Placement::Global => return Ok(own),
        Placement::Partitioned => "partitioned",
        Placement::Clustered { .. } => "clustered",
    };
    if spec.clusters().iter().any(|cluster| own.is_subset(cluster)) {
        Ok(own)
    } else {
        Err(RunError::Unplaced { task: task.name.clone(), placement })
    }
}

/// SCHED_DEADLINE refuses an affinity smaller than its scheduling domain. So tasks with different
/// CPUs need disjoint domains.
pub(crate) fn divide(system: &System, spec: &NodeSpec, there: usize, mapping: &mut Mapping) -> Result<(), RunError> {
    let in_deadline = |task: &MappedTask| matches!(task.class, Class::Deadline(_));
    let mut groups: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for task in mapping.tasks.iter().filter(|task| in_deadline(task)) {
        let Some(first) = task.cpus.lowest() else { continue };
        // The CPUs of one cluster stay together, even if a task's own set is smaller.
        groups.insert(first, task.cpus);
    }
    let groups: Vec<CpuSet> = groups.into_values().collect();
    for task in mapping.tasks.iter().filter(|task| in_deadline(task)) {
        let overlaps = groups.iter().any(|group| *group != task.cpus && !group.intersection(&task.cpus).is_empty());
        if overlaps {
            let name = system.tasks.get(task.id.index()).map_or("", |task| task.name.as_str());
            return Err(RunError::Deadline {
                task: name.to_owned(),
                why: format!(
                    "its cpus {} overlap another task's, and the kernel wants equal or disjoint sets",
                    list(&task.cpus)
                ),
            });
        }
    }
    let whole = CpuSet::first(u32::try_from(there).unwrap_or(u32::MAX));
    if groups.is_empty() || groups == [whole] {
        return Ok(());
    }
    for task in &mut mapping.tasks {
        task.domain = groups.iter().position(|group| task.cpus.is_subset(group));
        if task.domain.is_none() && groups.iter().any(|group| !group.intersection(&task.cpus).is_empty()) {
            let name = system.tasks.get(task.id.index()).map_or("", |task| task.name.as_str());
            let why = format!(
                "its cpus {} reach into several SCHED_DEADLINE domains of node \"{}\"",
                list(&task.cpus),
                spec.name
            );
            return Err(RunError::Deadline { task: name.to_owned(), why });
        }
    }
    mapping.domains = groups;
    Ok(())
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
