//! The executor of a node: the kernel's classes, takt's dispatcher, a back end for components, or table
//! threads for flows.

use std::sync::Arc;

use takt_linux::Class;
use takt_linux::machine::Limits;
use takt_model::{NodeId, StrategyRef, System};

use crate::demand::{refuse_overload, refuse_working_sets};
use crate::error::RunError;
use crate::mapping::{self, MappedTask, Mapping, choose, confined, has_values, too_few};
use crate::node::{NodeNetwork, NodePlan};
use crate::{Prepared, RunOptions, backend, levels, manager};

/// Maps one node's tasks to scheduling classes.
///
/// # Errors
/// All errors known before a thread starts: unsupported parts, a bad choice of node, too few CPUs,
/// an overload. [`Prepared::run`] reports a missing privilege.
pub fn prepare(system: &System, options: &RunOptions) -> Result<Prepared, RunError> {
    let node = choose(system, options)?;
    let there = takt_linux::sched::affinity().len();
    let limits = Limits::read();
    if manager::has_components(system, node) {
        return backend::prepare(system, node, options, &limits, there).map_err(confined);
    }
    if let Some(back_end) = options.back_end {
        let node = system.nodes.get(node.index()).map_or_else(String::new, |spec| spec.name.clone());
        return Err(RunError::NoComponents { back_end: back_end.name(), node });
    }
    let mut mapping = match mapping::map(system, node, options, &limits, there) {
        Err(why @ RunError::Unenforceable { .. }) => {
            let compute = |limits: &_| takt_dispatch::Plan::compute_regardless(system, node, limits);
            let undispatchable = |anomalies: takt_dispatch::Anomalies| RunError::Undispatchable {
                why: why.to_string(),
                anomalies: anomalies.to_string(),
                input: anomalies.are_input(),
            };
            let (plan, notes) = levels::plan(options, compute).map_err(undispatchable)?;
            return under_dispatcher(system, node, options, &limits, plan, notes);
        }
        mapped => mapped.map_err(confined)?,
    };
    mapping.note_margin(options.margin);
    refuse_working_sets(system, &mapping.tasks, takt_linux::memory::available())?;
    let obstacle = takt_linux::cpuset::obstacle();
    match obstacle {
        Some(obstacle) if !mapping.domains.is_empty() => mapping.go_global(there, &obstacle.to_string()),
        // In a cpuset of their own the CPUs may well be a domain.
        None if there < takt_linux::machine().cpus_online.len() => mapping.confine(there),
        _ => {}
    }
    let system = Arc::new(system.clone());
    let (dispatched, adaptive, managed, served, back_end) = (None, None, None, None, None);
    Ok(Prepared { system, options: *options, node, mapping, dispatched, adaptive, managed, served, back_end })
}

/// The same under takt's own dispatcher, with a controller between the node's strategy and `guard`.
/// `law` makes the controller of the plan, whose mode 1 is the guard
/// ([`takt_dispatch::Plan::compute_adaptive`]).
///
/// # Errors
/// As of [`prepare`]. Also an error: a node with modes, best effort, or a controller that does not
/// fit the plan.
pub fn prepare_adaptive(
    system: &System,
    guard: StrategyRef,
    options: &RunOptions,
    law: impl FnOnce(&takt_dispatch::Plan) -> takt_dispatch::Adaptive,
) -> Result<Prepared, RunError> {
    let node = choose(system, options)?;
    if options.best_effort {
        return Err(RunError::Adaptive("best effort enforces no strategy, so there is none to choose".to_owned()));
    }
    let compute = |limits: &_| takt_dispatch::Plan::compute_adaptive(system, node, guard, limits);
    let unplanned = |anomalies: takt_dispatch::Anomalies| match anomalies.are_input() {
        true => RunError::Adaptive(anomalies.to_string()),
        false => RunError::Unplanned { anomalies: anomalies.to_string() },
    };
    let (plan, mut notes) = levels::plan(options, compute).map_err(unplanned)?;
    let law = law(&plan);
    if let Some(wrong) = law.wrong(&plan) {
        return Err(RunError::Adaptive(wrong));
    }
    notes.extend(takt_dispatch::notes_of_guard(&law, &plan, system.strategy_name(guard)));
    let prepared = under_dispatcher(system, node, options, &Limits::read(), plan, notes)?;
    Ok(Prepared { adaptive: Some(law), ..prepared })
}

/// Maps a node of a system with flows: a table thread on each CPU, above the threads of all jobs.
///
/// # Errors
/// As [`prepare`], and what is missing for messages between nodes.
pub fn prepare_node(system: &System, options: &RunOptions, network: &NodeNetwork) -> Result<Prepared, RunError> {
    let node = choose(system, options)?;
    let (plan, lowered) = NodePlan::new(system, node, network)?;
    backend::prepare_with_flows(&lowered, node, options, plan).map_err(confined)
}

/// Maps parts that the kernel's classes cannot express to takt's own dispatcher.
fn under_dispatcher(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
    plan: takt_dispatch::Plan,
    notes: Vec<String>,
) -> Result<Prepared, RunError> {
    let there = takt_linux::sched::affinity().len();
    if let Some(spec) = system.nodes.get(node.index()).filter(|spec| spec.cpus as usize > there) {
        return Err(confined(too_few(spec, there)));
    }
    let task = |row: &takt_dispatch::Row| MappedTask {
        id: row.task,
        class: Class::Fifo { priority: row.priority },
        cpus: [row.cpu].into_iter().collect(),
        domain: None,
        yields: false,
    };
    let tasks = plan.rows.iter().map(task).collect();
    let mut mapping = Mapping { tasks, notes, ..Mapping::default() };
    mapping.note_margin(options.margin);
    for task in mapping.tasks.iter().filter_map(|task| system.tasks.get(task.id.index())) {
        has_values(task)?;
    }
    if !options.force {
        refuse_overload(system, &mapping.tasks, limits)?;
    }
    refuse_working_sets(system, &mapping.tasks, takt_linux::memory::available())?;
    let system = Arc::new(plan.system.clone());
    let dispatched = Some(Box::new(plan));
    let (adaptive, managed, served, back_end) = (None, None, None, None);
    Ok(Prepared { system, options: *options, node, mapping, dispatched, adaptive, managed, served, back_end })
}
