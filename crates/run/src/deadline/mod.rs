//! Components under SCHED_DEADLINE: the thread of each component is a constant-bandwidth server of the kernel.
//!
//! Runtime is the budget; deadline and period are the server's period. The kernel admits the reservations, orders
//! them by deadline and ends budgets. A task outside of components has a reservation of its own, as in a run under
//! `edf`. A thread reads its reservation back before it runs.
//!
//! | file | holds |
//! |---|---|
//! | this | the contract and the mapping; pure, but for [`Kernel::look`] |
//! | `account.rs` | the events of servers, from the kernel's account of their threads |

use std::sync::Arc;

use takt_linux::machine::{self, Limits};
use takt_linux::sched::RUNTIME_MIN_NS;
use takt_linux::{Class, Reservation};
use takt_model::plan::{Order, PlanError};
use takt_model::{Component, ComponentId, CpuSet, NodeId, NodeSpec, Plan, ServerRule, Span, System, Task};

use crate::contract::{Contract, ONE_CPU, Obstacle, ServerBackEnd};
use crate::error::RunError;
use crate::mapping::{self, MappedTask, Mapping};
use crate::{Margin, Prepared, RunOptions};

pub(crate) mod account;

use account::{ServerAccount, Terms};

/// The properties of this kernel that decide how exactly it keeps budgets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// The period of its ticks, if it tells.
    tick: Option<Span>,
    /// Whether a timer of its own ends each budget.
    is_exact: bool,
    /// Bandwidth of each CPU that its server for ordinary threads has, in 2^-20.
    fair: u64,
}

impl Kernel {
    pub(crate) fn look() -> Kernel {
        let machine = takt_linux::machine();
        let bandwidth = |(runtime, period)| Reservation { runtime, deadline: period, period }.bandwidth();
        Kernel {
            tick: machine.tick,
            is_exact: machine::ends_budgets_by_timer() == Some(true),
            fair: machine.fair_server_assumed().map_or(0, bandwidth),
        }
    }

    /// How much a thread may use beyond its budget at a time.
    fn grain(&self) -> Option<Span> {
        if self.is_exact { Some(Span::ZERO) } else { self.tick }
    }
}

/// The usual remedy.
const MANAGER: &str = "use --backend manager";

/// The contract of SCHED_DEADLINE for the node.
pub(crate) fn contract(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    (limits, kernel, there): (&Limits, &Kernel, usize),
) -> Result<Contract, RunError> {
    let spec = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?;
    let mut cannot = Vec::new();
    if options.best_effort {
        let why = "best effort runs no thread under SCHED_DEADLINE, and only SCHED_DEADLINE keeps the budgets";
        cannot.push(Obstacle::new("--best-effort", why, "leave it out, or use --backend manager"));
    }
    cannot.extend(obstacles_of_node(system, node, spec)?);
    let components = || components(system, node);
    for (id, component) in components() {
        cannot.extend(obstacles_of_component(system, id, component, limits, kernel)?);
    }
    for (_, task) in system.tasks_of(node).filter(|(_, task)| task.component.is_none()) {
        if let Err(error) = mapping::reservation(task, options.margin, limits) {
            cannot.push(Obstacle::new("a task beside the components", error.to_string(), MANAGER));
        }
    }
    if cannot.is_empty() {
        let mapping = map(system, node, options, limits, there)?;
        cannot.extend(admission(&mapping, spec, limits, kernel));
        if let Some(obstacle) = takt_linux::cpuset::obstacle().filter(|_| !mapping.domains.is_empty()) {
            let why = format!(
                "SCHED_DEADLINE needs a scheduling domain for them, and the machine cannot be divided: \
                 {obstacle}"
            );
            cannot.push(Obstacle::new(format!("the CPUs of node \"{}\"", spec.name), why, MANAGER));
        }
    }
    let mut enforces: Vec<String> = components().map(|(_, component)| enforced(component, kernel)).collect();
    enforces.extend(beside(system, node, options, limits));
    Ok(Contract { back_end: ServerBackEnd::Deadline, enforces, cannot })
}

fn components(system: &System, node: NodeId) -> impl Iterator<Item = (ComponentId, &Component)> {
    (0..).map(ComponentId).zip(&system.components).filter(move |(_, component)| component.node == node)
}

fn obstacles_of_node(system: &System, node: NodeId, spec: &NodeSpec) -> Result<Vec<Obstacle>, PlanError> {
    let mut cannot = Vec::new();
    let name = format!("node \"{}\"", spec.name);
    let strategy = system.strategy(spec.strategy);
    let by_deadline = |plan: Plan| {
        let [level] = plan.levels.as_slice() else { return false };
        let plain = level.order == Order::Deadline && level.preemptive && !level.importance_ties;
        plain && plan.tasks.iter().all(|task| task.shift_ns == 0)
    };
    if !Plan::of_tasks(system.tasks_of(node), &strategy).is_ok_and(by_deadline) {
        let why = format!("SCHED_DEADLINE orders servers by deadline, and strategy \"{}\" does not", strategy.name);
        cannot.push(Obstacle::new(&name, why, "use --backend manager, or strategy = \"edf\" for the node"));
    }
    if system.modes.iter().any(|mode| mode.node == node) {
        cannot.push(Obstacle::new(&name, "the kernel does not switch strategies and servers", MANAGER));
    }
    if system.cancels(node) {
        cannot.push(Obstacle::new(&name, "the kernel cancels no job (cancel = true)", MANAGER));
    }
    for (id, task) in system.tasks_of(node) {
        let scope = task.component.and_then(|component| system.components.get(component.index()));
        let strategy = system.strategy(scope.map_or(spec.strategy, |component| component.strategy));
        let local = Plan::of_tasks([(id, task)].into_iter(), &strategy)?;
        if local.levels.iter().any(|level| level.drops || level.demotes) {
            let part = format!("task \"{}\"", task.name);
            cannot.push(Obstacle::new(part, "the kernel neither drops nor demotes late jobs", MANAGER));
        }
    }
    Ok(cannot)
}

/// The difference between this rule and the kernel's server; `None` if there is none.
fn obstacle_of_rule(rule: ServerRule) -> Option<&'static str> {
    Some(match rule {
        ServerRule::CbsHard => return None,
        ServerRule::Cbs => {
            "a cbs server goes on with a later deadline when its budget is used up, and the kernel's server waits"
        }
        ServerRule::Grub => {
            "a grub server goes on with a later deadline and reclaims the bandwidth of idle servers; the kernel's \
             reclaiming (SCHED_FLAG_RECLAIM) waits, and gives away bandwidth that nobody reserved, too"
        }
        ServerRule::Ptps => "a ptps server holds its CPU while it is idle, and the kernel's server gives it away",
        ServerRule::Wcps | ServerRule::Crps => {
            "the server lends its budget while it is idle, and the kernel's server lends nothing"
        }
        ServerRule::Polling => {
            "a polling server has a new budget at each multiple of the period only, and gives it up when idle; the \
             kernel's server has a new budget whenever work comes late enough, and keeps it"
        }
        ServerRule::Deferrable => {
            "a deferrable server has a new budget at each multiple of the period; the kernel's server has one a \
             period after work came"
        }
        ServerRule::Sporadic => {
            "a sporadic server gets each part of its budget back a period after its use; the kernel's server gets \
             all of it back at its deadline"
        }
    })
}

fn obstacles_of_component(
    system: &System,
    id: ComponentId,
    component: &Component,
    limits: &Limits,
    kernel: &Kernel,
) -> Result<Vec<Obstacle>, RunError> {
    let mut cannot = Vec::new();
    let name = format!("component \"{}\"", component.name);
    let mut add = |why: String, remedy: &str| cannot.push(Obstacle::new(&name, why, remedy));
    if let Some(why) = obstacle_of_rule(component.server) {
        add(why.to_owned(), "use --backend manager, or server = \"cbs-hard\"");
    }
    let inner = system.components.iter().filter(|inner| inner.parent == Some(id)).count();
    let tasks = system.tasks.iter().filter(|task| task.component == Some(id)).count();
    if inner > 0 || component.parent.is_some() {
        add("the kernel's servers do not nest".to_owned(), MANAGER);
    } else if tasks != 1 {
        let why = format!("a reservation of the kernel holds one thread, and the component has {tasks} tasks");
        add(why, "use --backend manager, or give each task a component of its own");
    }
    if component.threads.is_some() {
        let why = "it would reserve for one existing thread, and the component has all of a group".to_owned();
        add(why, "use --backend manager, or \"takt reserve --pid\" for one thread");
    }
    if component.cpus > 1 {
        let why = "a thread uses one CPU at a time, and the component has servers on several".to_owned();
        add(why, ONE_CPU);
    }
    if component.quantum.is_some() {
        add("the kernel decides at any time, not at multiples of a quantum".to_owned(), MANAGER);
    }
    if system.switches.iter().any(|switch| switch.component == id) {
        add("the kernel does not change servers at instants of the file ([[mode]])".to_owned(), MANAGER);
    }
    let Some(Terms { budget, period, .. }) = terms(id, component) else { return Ok(cannot) };
    let (min, max) = (limits.dl_period_min, limits.dl_period_max);
    if period < min || period > max {
        add(format!("its period is {period}, and the kernel takes {min} to {max}"), MANAGER);
    }
    if budget.as_ns() < RUNTIME_MIN_NS {
        add(format!("its budget is {budget}, and the kernel's least is {RUNTIME_MIN_NS}ns"), MANAGER);
    } else if let Some(grain) = kernel.grain().filter(|grain| budget < *grain) {
        let why = format!("its budget is {budget}, and the kernel ends budgets at ticks of {grain} (HRTICK_DL is off)");
        add(why, "use --backend manager, or write HRTICK_DL into debugfs' sched/features");
    }
    Ok(cannot)
}

/// The kernel's guarantee for a component.
fn enforced(component: &Component, kernel: &Kernel) -> String {
    let (budget, period) = (component.budget.given().unwrap_or_default(), component.period.given().unwrap_or_default());
    let grain = match kernel.grain() {
        Some(Span::ZERO) => "a timer ends each budget".to_owned(),
        Some(tick) => format!(
            "the kernel ends budgets at ticks, so it may have up to {tick} more at a time, which its next budgets pay \
             back"
        ),
        None => "the kernel ends budgets at ticks and does not tell their period; the next budgets pay for more".into(),
    };
    format!("SCHED_DEADLINE gives component \"{}\" {budget} in each {period}: {grain}", component.name)
}

/// The limit of tasks beside the components, which the file does not have.
fn beside(system: &System, node: NodeId, options: &RunOptions, limits: &Limits) -> Option<String> {
    let outside = system.tasks_of(node).filter(|(_, task)| task.component.is_none());
    let limit = |(_, task): (_, &Task)| {
        let reserved = mapping::reservation(task, options.margin, limits).ok()?;
        Some(format!("\"{}\" {} in each {}", task.name, reserved.runtime, reserved.period))
    };
    let limits: Vec<String> = outside.filter_map(limit).collect();
    let text = "SCHED_DEADLINE limits the tasks beside the components, too, to their wcet and --margin";
    (!limits.is_empty()).then(|| format!("{text}: {}", limits.join(", ")))
}

fn terms(id: ComponentId, component: &Component) -> Option<Terms> {
    Some(Terms { server: id.0, budget: component.budget.given()?, period: component.period.given()? })
}

/// Whether the kernel will admit all reservations. A domain has its CPUs' limits less the servers for ordinary threads.
fn admission(mapping: &Mapping, spec: &NodeSpec, limits: &Limits, kernel: &Kernel) -> Option<Obstacle> {
    let each = Reservation {
        runtime: Span::from_us(10_000 * mapping::allowed_percent(limits)),
        deadline: Span::from_s(1),
        period: Span::from_s(1),
    };
    let left = each.bandwidth().saturating_sub(kernel.fair);
    spec.clusters().into_iter().find_map(|cluster| {
        let inside = mapping.tasks.iter().filter(|task| task.cpus.is_subset(&cluster));
        let bandwidth = |task: &MappedTask| match task.class {
            Class::Deadline(reserved) => reserved.bandwidth(),
            _ => 0,
        };
        let wanted: u64 = inside.map(bandwidth).sum();
        let percent = |bandwidth: u64| (bandwidth * 100).div_ceil(1 << takt_linux::sched::BW_SHIFT);
        (wanted > left * u64::from(cluster.len())).then(|| {
            let why = format!(
                "the reservations want {} % of a CPU, and the kernel admits {} % on each, which leaves the rest to \
                 ordinary threads",
                percent(wanted),
                percent(left)
            );
            let part = format!("CPUs {} of node \"{}\"", mapping::list(&cluster), spec.name);
            Obstacle::new(part, why, "lower the budgets, or use --backend manager")
        })
    })
}

/// A reservation for each thread, and the domains that they need.
fn map(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
    there: usize,
) -> Result<Mapping, RunError> {
    let spec = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?;
    let mut tasks = Vec::new();
    for (id, task) in system.tasks_of(node) {
        mapping::has_values(task)?;
        let of = task.component.and_then(|id| Some((id, system.components.get(id.index())?)));
        let (reserved, cpus) = match of.and_then(|(id, component)| Some((terms(id, component)?, component))) {
            Some((Terms { budget, period, .. }, component)) => {
                (Reservation { runtime: budget, deadline: period, period }, cpus_of(spec, component))
            }
            None => (mapping::reservation(task, options.margin, limits)?, mapping::cpus_of(spec, task)?),
        };
        tasks.push(MappedTask { id, class: Class::Deadline(reserved), cpus, domain: None, yields: false });
    }
    let mut mapping = Mapping { tasks, is_strict: true, ..Mapping::default() };
    mapping::divide(system, spec, there, &mut mapping)?;
    if takt_linux::cpuset::obstacle().is_none() && there < takt_linux::machine().cpus_online.len() {
        mapping.confine(there);
    }
    Ok(mapping)
}

/// The cluster of a component's server.
fn cpus_of(spec: &NodeSpec, component: &Component) -> CpuSet {
    let first = component.server_cpus.first().copied().unwrap_or(0);
    spec.clusters().into_iter().find(|cluster| cluster.contains(first)).unwrap_or_else(|| CpuSet::first(spec.cpus))
}

/// Maps the node to SCHED_DEADLINE. Its contract has no obstacle.
pub(crate) fn prepare(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
    there: usize,
) -> Result<Prepared, RunError> {
    let mut mapping = map(system, node, options, limits, there)?;
    if system.tasks_of(node).all(|(_, task)| task.component.is_some()) && options.margin != Margin::default() {
        mapping.notes.push("--margin has no effect: the budgets of the components are the reservations".to_owned());
    }
    mapping::refuse_working_sets(system, &mapping.tasks, takt_linux::memory::available())?;
    let system = Arc::new(system.clone());
    let (dispatched, adaptive, managed, served) = (None, None, None, None);
    let back_end = Some(ServerBackEnd::Deadline);
    Ok(Prepared { system, options: *options, node, mapping, dispatched, adaptive, managed, served, back_end })
}

/// An account of the node's servers.
pub(crate) fn account(system: &System, node: NodeId) -> ServerAccount {
    let (ids, terms): (Vec<ComponentId>, Vec<Terms>) =
        components(system, node).filter_map(|(id, component)| Some((id, terms(id, component)?))).unzip();
    let place = |task: &Task| task.component.and_then(|id| ids.iter().position(|other| *other == id));
    let of_tasks = system.tasks.iter().map(|task| place(task).filter(|_| task.node == node)).collect();
    ServerAccount::new(&terms, of_tasks, Margin::default().least)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
