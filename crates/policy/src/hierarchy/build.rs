//! Makes the hierarchy of a node from its System.

use takt_model::plan::PlanError;
use takt_model::{Auto, ComponentId, NodeId, Plan, ServerRule, StrategyRef, System, Task, TaskId, Time};

use super::{Choice, Hierarchy, Node, Pick, Place, Scope};
use crate::dispatcher::{Dispatcher, PolicyError, strategies};
use crate::server::{Server, share};

impl Hierarchy {
    /// The hierarchy of a node; slots are its tasks in file order, those in components too.
    ///
    /// # Errors
    /// As [`Dispatcher::new`]; a component without period or budget; more than one CPU.
    pub fn new(system: &System, node: NodeId) -> Result<Self, PolicyError> {
        let spec = &system.nodes[node.index()];
        let on_node = |id: &ComponentId| system.components[id.index()].node == node;
        let mut components: Vec<ComponentId> =
            (0..system.components.len() as u32).map(ComponentId).filter(on_node).collect();
        components.sort_by_key(|id| depth(system, *id));
        let name = |id: ComponentId| system.components[id.index()].name.clone();
        if let Some(wide) = components.iter().find(|id| spec.cpus > 1 || system.components[id.index()].cpus > 1) {
            return Err(PolicyError::SeveralCpus { component: name(*wide) });
        }
        let mut hierarchy = Hierarchy {
            scopes: Vec::new(),
            servers: Vec::new(),
            inside_out: (0..components.len()).rev().collect(),
            homes: vec![(0, 0); system.tasks_of(node).count()],
            choice: Choice::default(),
            granted: None,
            scratch: Vec::new(),
            changes: Vec::new(),
            paid_until: Time::ZERO,
            events: Vec::new(),
            laxity_quantum: spec.laxity_quantum,
        };
        let served = with_servers(system, &components)?;
        let around = std::iter::once(None).chain(components.iter().copied().map(Some));
        for (index, component) in around.enumerate() {
            let of_scope = match component {
                None => strategies(system, node),
                Some(id) => vec![system.components[id.index()].strategy],
            };
            let scope = scope(system, &served, node, component, &components, &of_scope)?;
            for (local, slot) in scope.slots.iter().enumerate() {
                hierarchy.homes[*slot as usize] = (index, local as u32);
            }
            hierarchy.scopes.push(scope);
        }
        let tasks = &served.tasks[system.tasks.len()..];
        for (index, (id, task)) in components.iter().zip(tasks).enumerate() {
            let component = &system.components[id.index()];
            let outer = component.parent.and_then(|parent| components.iter().position(|other| *other == parent));
            hierarchy.servers.push(Node {
                component: *id,
                account: Server::new(component.server, task.period, task.wcet),
                outer: outer.map_or(0, |outer| outer + 1),
                inner: index + 1,
                eligible: false,
                paying: None,
                runs: false,
            });
        }
        Ok(hierarchy)
    }
}

/// The scope of a component, or of the node. `served` has the servers as tasks.
fn scope(
    system: &System,
    served: &System,
    node: NodeId,
    component: Option<ComponentId>,
    components: &[ComponentId],
    strategies: &[StrategyRef],
) -> Result<Scope, PolicyError> {
    let own = system.tasks.len();
    let inside = || served.tasks_of(node).filter(|(_, task)| task.component == component);
    let plans: Vec<Plan> = strategies
        .iter()
        .map(|strategy| Plan::of_tasks(inside(), &served.strategy(*strategy)))
        .collect::<Result<_, _>>()
        .map_err(|error| plan_error(error, own))?;
    let slots = system.tasks_of(node).zip(0..).filter(|((_, task), _)| task.component == component);
    let (tasks, slots): (Vec<TaskId>, Vec<u32>) = slots.map(|((id, _), slot)| (id, slot)).unzip();
    let servers: Vec<usize> = inside().filter_map(|(id, _)| id.index().checked_sub(own)).collect();
    let places = plans.iter().map(|plan| places(plan, own)).collect();
    let of_tasks =
        |plan: Plan| Plan { tasks: plan.tasks.into_iter().filter(|task| task.task.index() < own).collect(), ..plan };
    let of_server = |at: usize| &system.components[components[at].index()];
    let is_grub = |id: TaskId| id.index().checked_sub(own).is_some_and(|at| of_server(at).server == ServerRule::Grub);
    let fixed = inside().filter(|(id, _)| !is_grub(*id)).map(|(_, task)| share(task.wcet, task.period));
    Ok(Scope {
        dispatcher: Dispatcher::of_scope(system, node, &tasks, plans.into_iter().map(of_tasks).collect()),
        jobs: vec![0; tasks.len()],
        slots,
        quantum: servers.iter().filter_map(|at| of_server(*at).quantum).max(),
        servers,
        places,
        plan: 0,
        pick: Pick::default(),
        stale: false,
        wants: false,
        fixed_share: fixed.fold(0, u64::saturating_add),
    })
}

/// How many components are around this one.
fn depth(system: &System, id: ComponentId) -> usize {
    let outer = |id: &ComponentId| system.components[id.index()].parent;
    std::iter::successors(outer(&id), outer).take(system.components.len()).count()
}

/// The system with a task for each server behind its own tasks: of its budget and period, where its component stands.
fn with_servers(system: &System, components: &[ComponentId]) -> Result<System, PolicyError> {
    let mut served = system.clone();
    for id in components {
        let component = &system.components[id.index()];
        let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) else {
            return Err(PolicyError::NotSized { component: component.name.clone() });
        };
        let mut task = Task::periodic(&component.name, period, budget);
        (task.node, task.component, task.priority) = (component.node, component.parent, component.priority);
        served.tasks.push(task);
    }
    Ok(served)
}

/// The places of the servers in a plan: its tasks from the `own`-th on.
fn places(plan: &Plan, own: usize) -> Vec<Place> {
    let servers = plan.tasks.iter().filter(|task| task.task.index() >= own);
    servers
        .map(|task| {
            let level = &plan.levels[task.level as usize];
            Place { level: task.level, order: level.order, preemptive: level.preemptive, shift_ns: task.shift_ns }
        })
        .collect()
}

/// Says of a server without priority what it is.
fn plan_error(error: PlanError, own: usize) -> PolicyError {
    match error {
        PlanError::NoPriority { strategy, task, id } if id.index() >= own => {
            PolicyError::NoServerPriority { strategy, component: task }
        }
        other => PolicyError::Plan(other),
    }
}
