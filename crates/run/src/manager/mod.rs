//! Components on a stock kernel: a budget manager on each CPU.
//!
//! The manager is a SCHED_FIFO thread above the threads of all tasks. It runs the simulator's own machine of
//! servers ([`takt_policy::Machine`]) on absolute timers. At each decision it frees the thread of the
//! chosen job and freezes the former one ([`takt_linux::freeze`]). So a job exceeds its budgets by
//! no more than the lateness of the manager's timer.
//!
//! CPUs that share tasks or components have one manager, on the lowest of them. It alone has their machine, so no
//! lock protects a decision. It binds the thread of a chosen job to the CPU of the decision. On other CPUs than its
//! own it freezes threads by the same signal, with which the kernel interrupts the CPU.
//!
//! | file | holds |
//! |---|---|
//! | [`budgets`](crate::budgets) | its decisions, and what it shares with the threads of its tasks |
//! | `live.rs` | the real threads, and the manager's loop |
//! | `helpers.rs` | who tells the manager that existing threads want the CPU or no longer do |
//! | `record.rs`, `account.rs` | from the manager to the log |

use std::sync::Arc;
use std::sync::atomic::Ordering;

use takt_linux::freeze::Lease;
use takt_linux::machine::Limits;
use takt_linux::sched::FIFO_PRIORITY_MAX;
use takt_linux::{Class, Epoch};
use takt_log::stats::{Histogram, Summary};
use takt_model::{Component, ComponentId, CpuSet, NodeId, ServerRule, Span, System, Task, TaskId};
use takt_policy::CpuPart;

use crate::budgets::foreign::IdleDetector;
use crate::budgets::seat::{IdleDetectorSlot, Manager, Seat};
use crate::contract::{Contract, Obstacle, PLACE_THEM, ServerBackEnd};
use crate::error::RunError;
use crate::foreign as threads_of;
use crate::lanes::{Lane, Role, Shared};
use crate::mapping::{self, MappedTask, Mapping};
use crate::node::{NodeLive, NodePlan, Part};
use crate::{ManagerSummary, Prepared, RunOptions};

pub(crate) mod account;
pub(crate) mod helpers;
pub(crate) mod live;
pub(crate) mod record;

pub(crate) use account::{ManagedAccount, ManagedSummary, Passes};
pub(crate) use live::{COMPONENTS_MAX, GRAIN, LEASE, TASKS_MAX};

/// The parts of a node with components, and the class of their managers.
#[derive(Clone, Debug)]
pub(crate) struct Managed {
    pub(crate) parts: Arc<Vec<CpuPart>>,
    pub(crate) class: Class,
    /// The greatest priority: that of the managers.
    pub(crate) top: u8,
    /// The plan of a node with flows.
    pub(crate) node: Option<Arc<NodePlan>>,
}

/// Whether managers run this node.
pub(crate) fn has_components(system: &System, node: NodeId) -> bool {
    system.components.iter().any(|component| component.node == node)
}

/// The contract of budget managers for the node.
pub(crate) fn contract(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    has_flows: bool,
) -> Result<Contract, RunError> {
    let spec = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?;
    let parts = CpuPart::of_node(system, node)?;
    let mut cannot = chains_across(system, node, &parts);
    cannot.extend(obstacles_of_foreign(system, node, options, &parts));
    if let Some(shared) = parts.iter().find(|part| part.is_shared() && has_flows) {
        let cpus = mapping::list(&shared.cpu_set());
        let why = format!("CPUs {cpus} share tasks or components, and a table thread serves one CPU");
        cannot.push(Obstacle::new(format!("node \"{}\"", spec.name), why, PLACE_THEM));
    }
    let kinds = (has_components(system, node), threads_of::is_in(system, node));
    let enforces = vec![enforced(&parts, options, kinds)];
    Ok(Contract { back_end: ServerBackEnd::Manager, enforces, cannot })
}

fn enforced(parts: &[CpuPart], options: &RunOptions, (has_components, has_foreign): (bool, bool)) -> String {
    if options.best_effort {
        return "best effort: the budget managers and all threads run under SCHED_OTHER, so that decisions come late"
            .to_owned();
    }
    let cpus: CpuSet = parts.iter().map(CpuPart::first_cpu).collect();
    let (thread, duty) = if has_components {
        ("budget manager", "runs the servers")
    } else {
        ("table thread", "receives and sends messages and lets jobs run by the strategy of the node")
    };
    let together = |part: &CpuPart| {
        let all = mapping::list(&part.cpu_set());
        format!("; the one on CPU {} schedules CPUs {all}, which share tasks or components", part.first_cpu())
    };
    let together: String = parts.iter().filter(|part| part.is_shared()).map(together).collect();
    format!(
        "a {thread} on each of CPUs {} {duty}, under {}; it frees the chosen thread, and freezes the \
         others{together}",
        mapping::list(&cpus),
        class(options, top_priority(options, has_foreign)).describe()
    )
}

/// Existing threads have two priorities below that of the managers, and their idle detector has one
/// more. Below them are frozen threads.
fn top_priority(options: &RunOptions, has_foreign: bool) -> u8 {
    options.top_priority.max(if has_foreign { 5 } else { 3 })
}

/// Obstacles of managers to components of existing threads.
fn obstacles_of_foreign(system: &System, node: NodeId, options: &RunOptions, parts: &[CpuPart]) -> Vec<Obstacle> {
    let mut cannot = Vec::new();
    for (id, component) in threads_of::components(system, node) {
        let part = format!("component \"{}\"", component.name);
        if let Some(shared) = parts.iter().find(|part| part.is_shared() && part.components.contains(&id)) {
            let cpus = mapping::list(&shared.cpu_set());
            let why =
                format!("its existing threads need a CPU of their own, and CPUs {cpus} share tasks or components");
            cannot.push(Obstacle::new(&part, why, PLACE_THEM));
        }
        if options.best_effort {
            let why = "its existing threads need priorities, and --best-effort gives none";
            cannot.push(Obstacle::new(&part, why, "leave --best-effort out"));
        }
        if !hard(system, id) {
            let why = "a server of its rule goes on when its budget is used up, and nobody knows how much existing \
                       threads want";
            cannot.push(Obstacle::new(
                &part,
                why,
                "server = \"cbs-hard\", \"deferrable\" or another rule with a limit",
            ));
        }
    }
    cannot
}

fn class(options: &RunOptions, priority: u8) -> Class {
    if options.best_effort { Class::Other } else { Class::Fifo { priority } }
}

/// Maps a node with components or flows: a manager for each CPU, and the threads of its tasks one priority below. Its
/// contract has no obstacle.
pub(crate) fn prepare(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
    flows: Option<NodePlan>,
) -> Result<Prepared, RunError> {
    let parts = CpuPart::of_node(system, node)?;
    let top = top_priority(options, threads_of::is_in(system, node));
    let mut tasks = Vec::new();
    for (slot, (id, task)) in (0..).zip(system.tasks_of(node)) {
        mapping::has_values(task)?;
        let part = parts.iter().find(|part| part.slots.contains(&slot));
        let cpus = part.map(CpuPart::cpu_set).unwrap_or_default();
        let is_table = flows.as_ref().is_some_and(|plan| plan.is_table(slot));
        let class = match system.threads_of(task).is_some() {
            true => Class::RoundRobin { priority: top - 2 },
            false => class(options, if is_table { top } else { top - 1 }),
        };
        tasks.push(MappedTask { id, class, cpus, domain: None, yields: false });
    }
    debug_assert!(top <= FIFO_PRIORITY_MAX);
    let mut mapping = Mapping { tasks, ..Mapping::default() };
    if !options.best_effort && !options.force {
        refuse_overload(system, node, &parts, limits)?;
    }
    mapping.note_margin(options.margin);
    mapping.notes.extend(threads_of::notes(system, node));
    mapping::refuse_working_sets(system, &mapping.tasks, takt_linux::memory::available())?;
    if flows.as_ref().is_some_and(|plan| plan.parts.contains(&Part::Sync) && plan.network.clocks.is_none()) {
        mapping.notes.push(
            "clock.sync: its jobs do busy work, and send no messages; --clocks PORT lets them measure clocks"
                .to_owned(),
        );
    }
    let managed = Some(Managed { parts: Arc::new(parts), class: class(options, top), top, node: flows.map(Arc::new) });
    let system = Arc::new(system.clone());
    let back_end = has_components(&system, node).then_some(ServerBackEnd::Manager);
    let (dispatched, adaptive, served) = (None, None, None);
    Ok(Prepared { system, options: *options, node, mapping, dispatched, adaptive, managed, served, back_end })
}

/// Chains that do not stay on one CPU: their links would be parts of several managers.
fn chains_across(system: &System, node: NodeId, parts: &[CpuPart]) -> Vec<Obstacle> {
    let ids: Vec<TaskId> = system.tasks_of(node).map(|(id, _)| id).collect();
    let part_of = |id: TaskId| {
        let slot = ids.iter().position(|other| *other == id)?;
        parts.iter().position(|part| part.slots.contains(&(slot as u32)))
    };
    let crosses = |id: TaskId, task: &Task| task.after.iter().any(|before| part_of(*before) != part_of(id));
    let across = system.tasks_of(node).filter(|(id, task)| crosses(*id, task));
    let why = "it follows a task on another CPU, which has a budget manager of its own";
    across
        .map(|(_, task)| Obstacle::new(format!("task \"{}\"", task.name), why, "place the chain on one CPU"))
        .collect()
}

/// Checks that the threads of each cluster use at most the share of real-time threads. On a
/// partitioned node each CPU is a cluster. A component uses no more than the budgets of its servers
/// there, however much its tasks want. A lender's budget may go to others.
pub(crate) fn refuse_overload(
    system: &System,
    node: NodeId,
    parts: &[CpuPart],
    limits: &Limits,
) -> Result<(), RunError> {
    let clusters = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?.clusters();
    let allowed = mapping::allowed_percent(limits);
    let intervals = mapping::intervals(system);
    let load = |id: TaskId| {
        let (task, interval) = (system.tasks.get(id.index()), intervals.get(id.index()));
        task.zip(interval).map_or(0, |(task, interval)| mapping::load_ppm(task, *interval))
    };
    let of_node: Vec<(TaskId, &Task)> = system.tasks_of(node).collect();
    for part in parts {
        let tasks = || part.slots.iter().filter_map(|slot| of_node.get(*slot as usize).copied());
        let of = |id: ComponentId| {
            let inside = tasks().filter(|(_, task)| task.component.is_some_and(|inner| root(system, inner) == id));
            inside.fold(0u64, |sum, (id, _)| sum.saturating_add(load(id)))
        };
        let own = part.cpu_set();
        for cpus in clusters.iter().filter(|cpus| cpus.is_subset(&own)) {
            let is_here = |task: &Task| task.component.is_none() && task.cpus.is_none_or(|own| own.is_subset(cpus));
            let beside = tasks().filter(|(_, task)| is_here(task));
            let beside = beside.fold(0u64, |sum, (id, _)| sum.saturating_add(load(id)));
            let (mut bounded, mut all) = (beside, beside);
            for id in part.components.iter().copied().filter(|id| root_is(system, *id)) {
                let (most, wanted) = used_ppm(system, id, cpus, of(id));
                (bounded, all) = (bounded.saturating_add(most), all.saturating_add(wanted));
            }
            let (used, count) = (bounded.min(all), u64::from(cpus.len()).max(1));
            if used > allowed * 10_000 * count {
                let (cpus, used) = (mapping::list(cpus), used.div_ceil(10_000 * count));
                return Err(RunError::Overload { cpus, used, allowed });
            }
        }
    }
    Ok(())
}

/// The outermost component around this one.
fn root(system: &System, id: ComponentId) -> ComponentId {
    system.around(id).last().unwrap_or(id)
}

fn root_is(system: &System, id: ComponentId) -> bool {
    root(system, id) == id
}

/// All rules that a server has in time.
fn rules(system: &System, id: ComponentId) -> impl Iterator<Item = ServerRule> + '_ {
    let first = system.components.get(id.index()).map(|component| component.server);
    let later = system.switches.iter().filter(move |switch| switch.component == id);
    first.into_iter().chain(later.filter_map(|switch| switch.server))
}

/// Whether a component's server has a limit under all of its rules.
pub(crate) fn hard(system: &System, id: ComponentId) -> bool {
    rules(system, id).all(|rule| !matches!(rule, ServerRule::Cbs | ServerRule::Grub))
}

fn lends(system: &System, id: ComponentId) -> bool {
    rules(system, id).any(|rule| matches!(rule, ServerRule::Wcps | ServerRule::Crps))
}

/// How much of these CPUs the tasks of a component may use, and how much they want there, in parts
/// per million of a CPU. `load` is that of all its tasks.
fn used_ppm(system: &System, id: ComponentId, cpus: &CpuSet, load: u64) -> (u64, u64) {
    let Some(component) = system.components.get(id.index()) else { return (0, 0) };
    let shares = shares_ppm(system, id, component, cpus);
    let share: u64 = shares.iter().sum();
    match (shares.len() as u64, hard(system, id)) {
        (0, _) => (0, 0),
        // Work beyond the budgets goes wherever a CPU is free.
        (here, false) => {
            let even = load.saturating_mul(here).div_ceil(u64::from(component.cpus.max(1)));
            (even, even)
        }
        (_, true) => (if lends(system, id) { share } else { load.min(share) }, load),
    }
}

/// The largest share of a CPU of each server that a component has on these CPUs, in parts per
/// million, rounded up.
fn shares_ppm(system: &System, id: ComponentId, component: &Component, cpus: &CpuSet) -> Vec<u64> {
    let switches = || system.switches.iter().filter(|switch| switch.component == id);
    let budgets = || component.budget.given().into_iter().chain(switches().filter_map(|switch| switch.budget));
    let periods = component.period.given().into_iter().chain(switches().filter_map(|switch| switch.period));
    let mut most = vec![0; component.cpus as usize];
    // Any budget of it with any period of it. How they are divided depends on both.
    for (period, budget) in periods.flat_map(|period| budgets().map(move |budget| (period, budget))) {
        for (most, share) in most.iter_mut().zip(component.shares(period, budget)) {
            let ppm = (u128::from(share.as_ns()) * 1_000_000).div_ceil(u128::from(period.as_ns()).max(1));
            *most = u64::try_from(ppm).unwrap_or(u64::MAX).min(1_000_000).max(*most);
        }
    }
    // On a global node servers name no CPUs.
    let is_here = |number: usize| component.server_cpus.get(number).is_none_or(|cpu| cpus.contains(*cpu));
    most.into_iter().enumerate().filter(|(number, _)| is_here(*number)).map(|(_, most)| most).collect()
}

impl Managed {
    /// Seats for the lanes of the tasks, and a lane for each manager behind them.
    /// `cpus` are the kernel's numbers.
    pub(crate) fn add_to(
        &self,
        lanes: &mut Vec<Lane>,
        (node, cpus): (NodeId, &[u32]),
        records: usize,
        live: Option<&Arc<NodeLive>>,
    ) {
        let first = lanes.len();
        let with_kernel = |cpu: u32| (cpu, cpus.get(cpu as usize).copied().unwrap_or(cpu));
        let mut helpers = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            let lease = Arc::new(Lease::default());
            let of_part: Vec<usize> = part.slots.iter().map(|slot| *slot as usize).collect();
            for (slot, lane) in part.slots.iter().zip(&of_part) {
                let is_table = live.is_some_and(|live| live.plan.is_table(*slot));
                if let Some(lane) = lanes.get_mut(*lane).filter(|lane| !matches!(lane.role, Role::Foreign(_))) {
                    let seat = || Role::Managed(Seat::new(first + at, lease.clone()));
                    lane.role = if is_table { Role::Table } else { seat() };
                }
            }
            let helper = |class, role| Lane { role, ..Lane::new(TaskId(u32::MAX), class, false, 1) };
            let live = live.filter(|live| live.plan.has_table(&part.slots)).cloned();
            let has_foreign =
                of_part.iter().filter_map(|lane| lanes.get(*lane)).any(|lane| matches!(lane.role, Role::Foreign(_)));
            let idle_detector = has_foreign.then(|| first + self.parts.len() + helpers.len());
            if has_foreign {
                let manager = first + at;
                let watch = IdleDetectorSlot { manager, idle_detector: IdleDetector::default() };
                helpers.push(helper(Class::Fifo { priority: self.top - 3 }, Role::IdleDetector(watch)));
                helpers.push(helper(self.class, Role::Look(manager)));
            }
            if live.as_ref().is_some_and(|live| live.sends_later(&part.slots)) {
                helpers.push(helper(self.class, Role::Sender(first + at)));
            }
            let mut lane = Lane::new(TaskId(u32::MAX), self.class, false, records);
            let manager = Manager {
                node,
                cpu: part.first_cpu(),
                cpus: part.cpus.iter().copied().map(with_kernel).collect(),
                unbound: 0.into(),
                lanes: of_part,
                lease,
                preemptions: 0.into(),
                posted: Default::default(),
                live,
                idle_detector,
            };
            lane.role = Role::Manager(Box::new(manager));
            lanes.push(lane);
        }
        lanes.extend(helpers);
    }

    /// The threads beside the managers, in the order of their lanes, with their names in messages.
    pub(crate) fn helpers(&self, lanes: &[Lane]) -> Vec<(MappedTask, String)> {
        let helper = |lane: &Lane| {
            let (manager, what) = lane.role.helper()?;
            let Role::Manager(manager) = &lanes.get(manager)?.role else { return None };
            let cpus = [manager.cpu].into_iter().collect();
            let mapped = MappedTask { id: TaskId(u32::MAX), class: lane.class, cpus, domain: None, yields: false };
            Some((mapped, format!("{what} {}", manager.cpu)))
        };
        lanes.iter().filter_map(helper).collect()
    }

    /// The name of a manager's thread in messages.
    pub(crate) fn name(part: &CpuPart) -> String {
        format!("budget manager {}", part.first_cpu())
    }

    pub(crate) fn mapped(&self, part: &CpuPart) -> MappedTask {
        let cpus = [part.first_cpu()].into_iter().collect();
        MappedTask { id: TaskId(u32::MAX), class: self.class, cpus, domain: None, yields: false }
    }
}

/// Facts of four seconds: some for each job and each period of a server.
pub(crate) fn records(system: &System, node: NodeId, managed: &Managed) -> usize {
    let tasks = system.tasks_of(node).map(|(_, task)| (task.period, 12));
    let servers = system.components.iter().filter(|component| component.node == node).map(|component| {
        let period = component.period.given().unwrap_or(Span::from_ms(1));
        (component.quantum.map_or(period, |quantum| quantum.min(period)), 8)
    });
    let each = |(period, facts): (Span, u64)| (4_000_000_000 / period.max(GRAIN).as_ns()).saturating_mul(facts);
    let all = tasks.chain(servers).map(each).fold(0, u64::saturating_add) / managed.parts.len().max(1) as u64;
    usize::try_from(all).unwrap_or(usize::MAX).clamp(8192, 262_144)
}

/// The CPU whose manager has ended before the run, or shows no life.
pub(crate) fn silent(shared: &Shared, epoch: Epoch) -> Option<u32> {
    shared.lanes.iter().find_map(|lane| {
        let Role::Manager(manager) = &lane.role else { return None };
        // In this order: a manager that ends with the run is not silent.
        let ended = lane.done.load(Ordering::Acquire);
        let is_silent = if ended { epoch.now() < shared.end() } else { manager.lease.is_over() };
        is_silent.then_some(manager.cpu)
    })
}

/// A note if the kernel did not bind threads where they were to run, after the managers have ended.
pub(crate) fn note_of_unbound(lanes: &[Lane]) -> Option<String> {
    let of = |lane: &Lane| match &lane.role {
        Role::Manager(manager) => manager.unbound.load(Ordering::Acquire),
        _ => 0,
    };
    let count: u64 = lanes.iter().map(of).sum();
    (count > 0).then(|| {
        format!(
            "{count} times the kernel refused to bind a thread to the CPU that the plan gave its job: these jobs ran \
             on another CPU than the log says, and CPUs may have had two jobs at a time"
        )
    })
}

/// How each manager did, after it has ended.
pub(crate) fn summaries(lanes: &[Lane], passes: &[Passes], lasted: Span) -> Vec<ManagerSummary> {
    let managers = (0..).zip(lanes).filter_map(|(at, lane)| match &lane.role {
        Role::Manager(manager) => Some((at, lane, manager)),
        _ => None,
    });
    let used = |lane: &Lane| Span::from_ns(lane.used_ns.load(Ordering::Acquire));
    let summary = |of: &Histogram| -> Option<Summary<u64>> { of.summary() };
    managers
        .zip(passes)
        .map(|((at, lane, manager), passes)| {
            let helps = |lane: &&Lane| lane.role.helper().is_some_and(|(manager, _)| manager == at);
            let helpers = lanes.iter().filter(helps).map(used);
            let used = helpers.fold(used(lane), Span::saturating_add);
            let ppm = u128::from(used.as_ns()) * 1_000_000 / u128::from(lasted.as_ns().max(1));
            ManagerSummary {
                cpu: manager.cpu,
                cpus: manager.cpus.iter().map(|(cpu, _)| *cpu).collect(),
                class: lane.class.describe(),
                decisions: passes.cost.count(),
                preemptions: manager.preemptions.load(Ordering::Acquire),
                cost: summary(&passes.cost),
                late: summary(&passes.late),
                late_replenishments: summary(&passes.replenished),
                used,
                share_ppm: u64::try_from(ppm).unwrap_or(u64::MAX),
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod greedy;
/// Tests with real managers run one at a time: one of them makes every manager of its process fail.
#[cfg(test)]
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
#[cfg(test)]
mod tests;
