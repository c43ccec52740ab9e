//! Makes the hierarchy of a node from its System.

use takt_model::plan::{Order, PlanError, PlanTask};
use takt_model::{Auto, ComponentId, NodeId, Plan, StrategyRef, System, Task, TaskId, Time};

pub(crate) use super::Place;
use super::{Choice, Hierarchy, Node, Pick, Scope};
use crate::dispatcher::Dispatcher;
use crate::error::PolicyError;
use crate::server::{Server, Terms, share};

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
        if spec.cpus > 1 {
            let part = format!("node \"{}\"", spec.name);
            return Err(PolicyError::OnSeveralCpus { part, why: "VirtualClusters decides for such a node" });
        }
        let mut hierarchy = Hierarchy {
            scopes: Vec::new(),
            servers: Vec::new(),
            homes: vec![(0, 0); system.tasks_of(node).count()],
            choice: Choice::default(),
            changes_at: vec![Time::ZERO; components.len()],
            paying: Vec::new(),
            picked: Vec::new(),
            with_quantum: Vec::new(),
            by_laxity: Vec::new(),
            with_sections: Vec::new(),
            granted: None,
            scratch: Vec::new(),
            changes: Vec::new(),
            paid_until: Time::ZERO,
            events: Vec::new(),
            laxity_quantum: spec.laxity_quantum,
            switches: Vec::new(),
        };
        let terms: Vec<Vec<Terms>> = components.iter().map(|id| terms(system, *id)).collect::<Result<_, _>>()?;
        let served = with_servers(system, &components, &terms);
        let around = std::iter::once(None).chain(components.iter().copied().map(Some));
        for (index, component) in around.enumerate() {
            let of_scope = match component {
                None => system.strategies_of(node),
                Some(id) => vec![system.components[id.index()].strategy],
            };
            let scope = scope(system, &served, node, component, &of_scope)?;
            for (local, slot) in scope.slots.iter().enumerate() {
                hierarchy.homes[*slot as usize] = (index, local as u32);
            }
            hierarchy.scopes.push(scope);
        }
        for (index, (id, terms)) in components.iter().zip(terms).enumerate() {
            let component = &system.components[id.index()];
            let outer = component.parent.and_then(|parent| components.iter().position(|other| *other == parent));
            let asked = system.switches.iter().filter(|switch| switch.component == *id).map(|switch| switch.at);
            let mut asked: Vec<Time> = asked.collect();
            asked.sort_unstable();
            hierarchy.switches.extend(asked.into_iter().zip(1..).map(|(at, term)| (at, index, term)));
            hierarchy.servers.push(Node {
                component: *id,
                account: Server::new(terms[0], Time::ZERO),
                terms,
                term: 0,
                next_term: 0,
                outer: outer.map_or(0, |outer| outer + 1),
                is_touched: true,
                eligible: false,
                paying: None,
                runs: false,
            });
        }
        hierarchy.switches.sort_by_key(|(at, _, term)| std::cmp::Reverse((*at, *term)));
        let scopes = |of: fn(&Scope) -> bool| {
            (0..).zip(&hierarchy.scopes).filter(|(_, scope)| of(scope)).map(|(at, _)| at).collect()
        };
        (hierarchy.with_quantum, hierarchy.by_laxity, hierarchy.with_sections) = (
            scopes(|scope| scope.quantum.is_some()),
            scopes(Scope::goes_by_laxity),
            scopes(|scope| scope.dispatcher.has_sections()),
        );
        (0..hierarchy.scopes.len()).for_each(|scope| hierarchy.share_out(scope));
        Ok(hierarchy)
    }
}

/// The scope of a component, or of the node.
fn scope(
    system: &System,
    served: &Served,
    node: NodeId,
    component: Option<ComponentId>,
    strategies: &[StrategyRef],
) -> Result<Scope, PolicyError> {
    let own = system.tasks.len();
    let inside = || served.system.tasks_of(node).filter(|(_, task)| task.component == component);
    let plans: Vec<Plan> = strategies
        .iter()
        .map(|strategy| Plan::of_tasks(inside(), &served.system.strategy(*strategy)))
        .collect::<Result<_, _>>()
        .map_err(|error| plan_error(error, own))?;
    let slots = system.tasks_of(node).zip(0..).filter(|((_, task), _)| task.component == component);
    let (tasks, slots): (Vec<TaskId>, Vec<u32>) = slots.map(|((id, _), slot)| (id, slot)).unzip();
    let server_of = |id: TaskId| id.index().checked_sub(own).map(|at| served.servers[at]);
    let mut servers: Vec<usize> = inside().filter_map(|(id, _)| server_of(id)).collect();
    servers.dedup();
    let places = plans.iter().map(|plan| {
        let of = |server: usize| plan.tasks.iter().filter(move |task| server_of(task.task) == Some(server));
        servers.iter().map(|server| of(*server).map(|task| place(plan, task)).collect()).collect()
    });
    let places: Vec<Vec<Vec<Place>>> = places.collect();
    let of_tasks =
        |plan: Plan| Plan { tasks: plan.tasks.into_iter().filter(|task| task.task.index() < own).collect(), ..plan };
    let quantum_of = |server: &usize| system.components[served.components[*server].index()].quantum;
    let shares = tasks.iter().map(|id| &system.tasks[id.index()]).map(|task| share(task.wcet, task.period));
    let task_share = shares.fold(0, u64::saturating_add);
    let plans = plans.into_iter().map(of_tasks).collect();
    let dispatcher = Dispatcher::of_scope(system, node, &tasks, plans);
    let varies = |place: &Place| !place.preemptive || place.order == Order::Laxity;
    let ranks_vary = places.iter().flatten().flatten().any(varies) || dispatcher.ranks_vary();
    Ok(Scope {
        dispatcher,
        jobs: vec![0; tasks.len()],
        slots,
        quantum: servers.iter().filter_map(quantum_of).max(),
        servers,
        places,
        plan: 0,
        pick: Pick::default(),
        stale: false,
        wants: false,
        task_share,
        active_share: task_share,
        eligible: 0,
        order: Vec::new(),
        is_unordered: true,
        ranks_vary,
        head: None,
        is_head_old: true,
        is_dirty: true,
    })
}

/// How many components are around this one.
pub(crate) fn depth(system: &System, id: ComponentId) -> usize {
    let outer = |id: &ComponentId| system.components[id.index()].parent;
    std::iter::successors(outer(&id), outer).take(system.components.len()).count()
}

/// A system with tasks for its servers.
struct Served {
    /// Behind its own tasks, a task for each terms of each server: of its budget and period, where its
    /// component stands.
    system: System,
    /// The servers of these tasks.
    servers: Vec<usize>,
    /// The components of the servers.
    components: Vec<ComponentId>,
}

fn with_servers(system: &System, components: &[ComponentId], terms: &[Vec<Terms>]) -> Served {
    let mut served = Served { system: system.clone(), servers: Vec::new(), components: components.to_vec() };
    for (server, (id, terms)) in components.iter().zip(terms).enumerate() {
        let component = &system.components[id.index()];
        for terms in terms {
            let mut task = Task::periodic(&component.name, terms.period, terms.budget);
            (task.node, task.component, task.priority) = (component.node, component.parent, component.priority);
            served.system.tasks.push(task);
            served.servers.push(server);
        }
    }
    served
}

/// The terms of a component's server, in the order of time.
pub(crate) fn terms(system: &System, id: ComponentId) -> Result<Vec<Terms>, PolicyError> {
    let component = &system.components[id.index()];
    let mut switches: Vec<_> = system.switches.iter().filter(|switch| switch.component == id).collect();
    switches.sort_by_key(|switch| switch.at);
    let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) else {
        return Err(PolicyError::NotSized { component: component.name.clone() });
    };
    let mut now = Terms { rule: component.server, period, budget };
    let mut terms = vec![now];
    for switch in switches {
        let rule = switch.server.unwrap_or(now.rule);
        now = Terms { rule, period: switch.period.unwrap_or(now.period), budget: switch.budget.unwrap_or(now.budget) };
        terms.push(now);
    }
    Ok(terms)
}

/// The place of a server's task in a plan.
pub(crate) fn place(plan: &Plan, task: &PlanTask) -> Place {
    let level = &plan.levels[task.level as usize];
    Place { level: task.level, order: level.order, preemptive: level.preemptive, shift_ns: task.shift_ns }
}

/// Says of a server without priority what it is.
pub(crate) fn plan_error(error: PlanError, own: usize) -> PolicyError {
    match error {
        PlanError::NoPriority { strategy, task, id } if id.index() >= own => {
            PolicyError::NoServerPriority { strategy, component: task }
        }
        other => PolicyError::Plan(other),
    }
}
