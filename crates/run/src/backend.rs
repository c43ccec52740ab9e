//! The choice of a back end that keeps the budgets of components.
//!
//! | back end | budgets are kept by | file |
//! |---|---|---|
//! | `manager` | a thread above the tasks of each CPU, which freezes and frees them | `manager/` |
//! | `deadline` | the kernel: one SCHED_DEADLINE thread for each component | `deadline/` |
//! | `sched-ext` | a BPF program as the kernel's scheduler | `served/` |

use takt_linux::ceiling::ceilings;
use takt_linux::machine::Limits;
use takt_linux::sched_ext;
use takt_model::{NodeId, System};
use takt_policy::Clusters;

use crate::contract::{Contract, Obstacle, ServerBackEnd};
use crate::error::RunError;
use crate::node::NodePlan;
use crate::{Prepared, RunOptions, deadline, foreign, manager, mapping, served};

/// The contracts of the back ends for a node with components, in the order of [`ServerBackEnd::ALL`].
///
/// # Errors
/// The node is wrong, or no back end runs it: sections, flows, too few CPUs.
pub fn contracts(system: &System, node: NodeId, options: &RunOptions) -> Result<Vec<Contract>, RunError> {
    let there = takt_linux::sched::affinity().len();
    let system = &*foreign::lowered(system, node).map_err(related)?;
    check_node(system, node, there, false)?;
    let limits = Limits::read();
    ServerBackEnd::ALL.iter().map(|back_end| contract(*back_end, system, node, options, (&limits, there))).collect()
}

fn contract(
    back_end: ServerBackEnd,
    system: &System,
    node: NodeId,
    options: &RunOptions,
    (limits, there): (&Limits, usize),
) -> Result<Contract, RunError> {
    match back_end {
        ServerBackEnd::Manager => manager::contract(system, node, options, false),
        ServerBackEnd::Deadline => {
            deadline::contract(system, node, options, (limits, &deadline::Kernel::look(), there))
        }
        ServerBackEnd::SchedExt => {
            let lacks = sched_ext::lacks(foreign::is_in(system, node));
            served::contract(system, node, options, (&lacks, &ceilings()))
        }
    }
}

fn related(related: foreign::UnsupportedRelation) -> RunError {
    mapping::unsupported("task", &related.task, &format!("{}; {}", related.why, related.remedy))
}

/// Refuses a node that no back end runs.
fn check_node(system: &System, node: NodeId, there: usize, has_flows: bool) -> Result<(), RunError> {
    let spec = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?;
    mapping::refuse_sections(system, node)?;
    if !has_flows {
        mapping::refuse_flows(system, node, spec)?;
    }
    if system.tasks_of(node).next().is_none() {
        return Err(RunError::NoTasks { node: spec.name.clone() });
    }
    if spec.cpus as usize > there {
        return Err(mapping::too_few(spec, there));
    }
    Clusters::new(system, node)?;
    Ok(())
}

/// Chooses a back end for a node with components, and maps the node to it.
pub(crate) fn prepare(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
    there: usize,
) -> Result<Prepared, RunError> {
    let system = &*foreign::lowered(system, node).map_err(related)?;
    check_node(system, node, there, false)?;
    let mut refusals = Vec::new();
    for back_end in ServerBackEnd::ALL.into_iter().filter(|one| options.back_end.is_none_or(|asked| asked == *one)) {
        let contract = contract(back_end, system, node, options, (limits, there))?;
        if contract.cannot.is_empty() {
            let mut prepared = match back_end {
                ServerBackEnd::Manager => manager::prepare(system, node, options, limits, None)?,
                ServerBackEnd::Deadline => deadline::prepare(system, node, options, limits, there)?,
                ServerBackEnd::SchedExt => served::prepare(system, node, options, limits)?,
            };
            let chosen = chosen(back_end, options, &refusals);
            prepared.mapping.notes.splice(0..0, chosen.into_iter().chain(contract.enforces));
            return Ok(prepared);
        }
        refusals.push(contract);
    }
    Err(refusal(system, node, &refusals))
}

/// Maps a node with flows to table threads, which are managers. Other back ends send no messages.
pub(crate) fn prepare_with_flows(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    plan: NodePlan,
) -> Result<Prepared, RunError> {
    check_node(system, node, takt_linux::sched::affinity().len(), true)?;
    if let Some((_, component)) = foreign::components(system, node).next() {
        let why = "existing threads (threads) do not stand on a node with flows; give them a node of their own";
        return Err(mapping::unsupported("component", &component.name, why));
    }
    if let Some(asked) = options.back_end {
        if !manager::has_components(system, node) {
            return Err(RunError::NoComponents { back_end: asked.name(), node: name(system, node) });
        }
        if asked != ServerBackEnd::Manager {
            let why = "only the manager receives and sends messages";
            let cannot = vec![Obstacle::new("flows", why, "use --backend manager")];
            return Err(refusal(system, node, &[Contract { back_end: asked, enforces: Vec::new(), cannot }]));
        }
    }
    let contract = manager::contract(system, node, options, true)?;
    if !contract.cannot.is_empty() {
        return Err(refusal(system, node, &[contract]));
    }
    let mut prepared = manager::prepare(system, node, options, &Limits::read(), Some(plan))?;
    prepared.mapping.notes.splice(0..0, contract.enforces);
    Ok(prepared)
}

fn name(system: &System, node: NodeId) -> String {
    system.nodes.get(node.index()).map_or_else(String::new, |spec| spec.name.clone())
}

fn refusal(system: &System, node: NodeId, refusals: &[Contract]) -> RunError {
    let name = name(system, node);
    RunError::BackEnd { refusals: refused(&name, refusals), node: name }
}

/// Which back end was chosen, and why; `None` if the caller chose it.
fn chosen(back_end: ServerBackEnd, options: &RunOptions, refusals: &[Contract]) -> Option<String> {
    if options.back_end.is_some() {
        return None;
    }
    let why: Vec<String> = refusals
        .iter()
        .filter_map(|refusal| Some(format!("{} cannot run it ({})", refusal.back_end.name(), refusal.cannot.first()?)))
        .collect();
    let why = if why.is_empty() { "it is the first that enforces all of the node".to_owned() } else { why.join("; ") };
    Some(format!("back end \"{}\" was chosen: {why}", back_end.name()))
}

/// The refusals, a line for each obstacle.
fn refused(node: &str, refusals: &[Contract]) -> String {
    let lines = |contract: &Contract| {
        let name = contract.back_end.name();
        contract.cannot.iter().map(|obstacle| format!("\n  {name}: {obstacle}")).collect::<String>()
    };
    let all: String = refusals.iter().map(lines).collect();
    match refusals {
        [one] => format!("back end \"{}\" cannot run node \"{node}\", so nothing runs:{all}", one.back_end.name()),
        _ => format!("no back end can run the components of node \"{node}\", so nothing runs:{all}"),
    }
}
