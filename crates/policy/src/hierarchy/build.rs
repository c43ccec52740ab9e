//! Makes the hierarchy of a node from its System.

use takt_model::plan::{Order, PlanError, PlanTask};
use takt_model::{Auto, ComponentId, CpuSet, NodeId, Plan, ServerRule, Span, StrategyRef, System, Task, TaskId, Time};

pub(crate) use super::Place;
use super::order::ScopeOrder;
use super::{Choice, Hierarchy, Pick, Scope, ServerState, lends_to};
use crate::dispatcher::Dispatcher;
use crate::error::PolicyError;
use crate::server::{Server, Terms, share};
use crate::times::Times;

impl Hierarchy {
    /// The hierarchy of a node, which uses its first CPU alone. Slots are the node's tasks in file order, also those
    /// in components.
    ///
    /// # Errors
    /// As [`Dispatcher::new`]; a component without period or budget.
    pub fn new(system: &System, node: NodeId) -> Result<Self, PolicyError> {
        Hierarchy::grown(system, node, &[])
    }

    /// The same, with the servers of these components first, in this order, and all others behind them. No
    /// component of `before` stands in one that is not.
    pub(crate) fn grown(system: &System, node: NodeId, before: &[ComponentId]) -> Result<Self, PolicyError> {
        let spec = &system.nodes[node.index()];
        let is_new = |id: &ComponentId| system.components[id.index()].node == node && !before.contains(id);
        let mut components: Vec<ComponentId> =
            (0..system.components.len() as u32).map(ComponentId).filter(is_new).collect();
        components.sort_by_key(|id| depth(system, *id));
        components.splice(0..0, before.iter().copied());
        let mut hierarchy = Hierarchy {
            scopes: Vec::new(),
            servers: Vec::new(),
            homes: vec![(0, 0); system.tasks_of(node).count()],
            choice: Choice::default(),
            changes_at: Times::never(components.len()),
            to_update: (0..components.len()).collect(),
            varying: Vec::new(),
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
        let served =
            ServerTasks::new(system, node, terms.iter().zip(&components).map(|(terms, id)| (*id, &terms[..], None)));
        // The node itself is before the first component.
        let mut scope_of = vec![0; system.components.len()];
        components.iter().zip(1..).for_each(|(id, scope)| scope_of[id.index()] = scope);
        let inside = served.by_scope(components.len() + 1, |task| task.component.map_or(0, |id| scope_of[id.index()]));
        let around = std::iter::once(None).chain(components.iter().copied().map(Some));
        for (index, component) in around.enumerate() {
            let of_scope = match component {
                None => system.strategies_of(node),
                Some(id) => vec![system.components[id.index()].strategy],
            };
            let parts = Parts::new(system, &served, &inside[index], &of_scope)?;
            for (local, slot) in parts.slots.iter().enumerate() {
                hierarchy.homes[*slot as usize] = (index, local as u32);
            }
            let lends = |terms: &Terms| lends_to(terms.rule).is_some();
            let lends = parts.servers.iter().any(|server| terms[*server].iter().any(lends));
            hierarchy.scopes.push(scope(system, node, parts, lends));
        }
        for (index, (id, terms)) in components.iter().zip(terms).enumerate() {
            let component = &system.components[id.index()];
            let asked = change_times(system, *id);
            hierarchy.switches.extend(asked.into_iter().zip(1..).map(|(at, term)| (at, index, term)));
            hierarchy.servers.push(ServerState {
                component: *id,
                account: Server::new(terms[0], Time::ZERO),
                terms,
                term: 0,
                next_term: 0,
                outer: component.parent.map_or(0, |parent| scope_of[parent.index()]),
                position: 0,
                is_touched: true,
                eligible: false,
                entry_state: None,
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
        hierarchy.varying = scopes(|scope| scope.ranks_vary);
        for scope in &hierarchy.scopes {
            scope.servers.iter().enumerate().for_each(|(at, server)| hierarchy.servers[*server].position = at);
        }
        // All servers are brought to the beginning.
        (0..components.len()).for_each(|server| hierarchy.changes_at.set(server as u32, Time::ZERO));
        hierarchy.reserve();
        Ok(hierarchy)
    }

    /// Makes room, so that nothing is allocated later.
    fn reserve(&mut self) {
        let (servers, scopes, decisions) = (self.servers.len(), self.scopes.len(), self.decisions_max());
        // A server is touched and its scope marked dirty at most once between two updates.
        self.to_update.reserve(2 * servers);
        self.paying.reserve(2 * servers);
        self.picked.reserve(scopes);
        self.choice.payers.reserve(servers);
        self.choice.picks.reserve(scopes);
        self.scratch.reserve(decisions);
        self.changes.reserve(CHANGES_MAX);
        self.events.reserve(EVENTS_MAX * servers);
        let is_sporadic = |terms: &Terms| terms.rule == ServerRule::Sporadic;
        for server in self.servers.iter_mut().filter(|server| server.terms.iter().any(is_sporadic)) {
            server.account.reserve_returns();
        }
    }
}

/// Changes of a server in one update: a return of each part of a sporadic budget, new terms, idleness.
const CHANGES_MAX: usize = crate::server::RETURNS_MAX + 4;
/// Events of a server at one instant, most often. The list grows for more.
pub(crate) const EVENTS_MAX: usize = 16;

/// The scope of a component, or of the node.
fn scope(system: &System, node: NodeId, parts: Parts, lends: bool) -> Scope {
    let Parts { tasks, slots, servers, plans, places, quantum, task_share } = parts;
    let dispatcher = Dispatcher::of_scope(system, node, &tasks, plans);
    let varies = |place: &Place| !place.preemptive || place.order == Order::Laxity;
    let ranks_vary = places.iter().flatten().flatten().any(varies) || dispatcher.ranks_vary();
    let count = servers.len();
    Scope {
        dispatcher,
        jobs: vec![0; tasks.len()],
        slots,
        quantum,
        servers,
        places,
        plan: 0,
        pick: Pick::default(),
        stale: false,
        wants: false,
        active_share: u128::from(task_share),
        order: ScopeOrder::new(count, lends),
        ranks_vary,
        busy_servers: 0,
        head: None,
        is_head_old: true,
        is_dirty: true,
    }
}

/// A scope's tasks and servers, under each of its plans.
pub(crate) struct Parts {
    pub(crate) tasks: Vec<TaskId>,
    /// The node's slots of these.
    pub(crate) slots: Vec<u32>,
    pub(crate) servers: Vec<usize>,
    /// The plans, of its own tasks.
    pub(crate) plans: Vec<Plan>,
    /// By plan, by position in `servers`, and by the server's terms.
    pub(crate) places: Vec<Vec<Vec<Place>>>,
    /// The longest of its servers.
    pub(crate) quantum: Option<Span>,
    /// Bandwidth of its own tasks, in 2^-32.
    pub(crate) task_share: u64,
}

impl Parts {
    /// `inside`: the scope's tasks, and those of its servers behind them.
    pub(crate) fn new(
        system: &System,
        served: &ServerTasks,
        inside: &[TaskId],
        strategies: &[StrategyRef],
    ) -> Result<Parts, PolicyError> {
        let own = system.tasks.len();
        let all = || inside.iter().map(|id| (*id, &served.system.tasks[id.index()]));
        let plans: Vec<Plan> = strategies
            .iter()
            .map(|strategy| Plan::of_tasks(all(), &served.system.strategy(*strategy)))
            .collect::<Result<_, _>>()
            .map_err(|error| plan_error(error, own))?;
        let (tasks, behind) = inside.split_at(inside.partition_point(|id| id.index() < own));
        let mut servers: Vec<usize> = behind.iter().map(|id| served.servers[id.index() - own]).collect();
        servers.dedup();
        let places = |plan: &Plan| -> Vec<Vec<Place>> {
            let of_servers = &plan.tasks[tasks.len()..];
            let same = |a: &PlanTask, b: &PlanTask| {
                served.servers[a.task.index() - own] == served.servers[b.task.index() - own]
            };
            of_servers.chunk_by(same).map(|tasks| tasks.iter().map(|task| place(plan, task)).collect()).collect()
        };
        let places = plans.iter().map(places).collect();
        let of_tasks = |plan: Plan| Plan { tasks: plan.tasks[..tasks.len()].to_vec(), ..plan };
        let shares = tasks.iter().map(|id| &system.tasks[id.index()]).map(|task| share(task.wcet, task.period));
        let quantum_of = |server: &usize| system.components[served.components[*server].index()].quantum;
        Ok(Parts {
            task_share: shares.fold(0, u64::saturating_add),
            slots: tasks.iter().map(|id| served.slots[id.index()]).collect(),
            tasks: tasks.to_vec(),
            quantum: servers.iter().filter_map(quantum_of).max(),
            plans: plans.into_iter().map(of_tasks).collect(),
            places,
            servers,
        })
    }
}

/// How many components are around this one.
pub(crate) fn depth(system: &System, id: ComponentId) -> usize {
    system.around(id).skip(1).count()
}

/// A system with tasks for its servers.
pub(crate) struct ServerTasks {
    /// Behind its own tasks, a task for each terms of each server: of its budget and period, where its
    /// component stands.
    pub(crate) system: System,
    /// The node's slots, by task of the system.
    slots: Vec<u32>,
    /// The servers of the tasks behind.
    servers: Vec<usize>,
    components: Vec<ComponentId>,
    node: NodeId,
}

impl ServerTasks {
    /// `servers`: the component of each, its terms, and the CPUs that it is bound to.
    pub(crate) fn new<'a>(
        system: &System,
        node: NodeId,
        servers: impl Iterator<Item = (ComponentId, &'a [Terms], Option<CpuSet>)>,
    ) -> ServerTasks {
        let mut slots = vec![0; system.tasks.len()];
        system.tasks_of(node).zip(0..).for_each(|((id, _), slot)| slots[id.index()] = slot);
        let mut served =
            ServerTasks { system: system.clone(), slots, servers: Vec::new(), components: Vec::new(), node };
        for (server, (id, terms, cpus)) in servers.enumerate() {
            let component = &system.components[id.index()];
            served.components.push(id);
            for terms in terms {
                let mut task = Task::periodic(&component.name, terms.period, terms.budget);
                (task.node, task.component, task.priority) = (component.node, component.parent, component.priority);
                task.cpus = cpus;
                served.system.tasks.push(task);
                served.servers.push(server);
            }
        }
        served
    }

    /// The node's tasks, and those of servers behind them, by their scope.
    pub(crate) fn by_scope(&self, scopes: usize, scope_of: impl Fn(&Task) -> usize) -> Vec<Vec<TaskId>> {
        let mut inside = vec![Vec::new(); scopes];
        self.system.tasks_of(self.node).for_each(|(id, task)| inside[scope_of(task)].push(id));
        inside
    }
}

/// When the terms of a component's server change.
pub(crate) fn change_times(system: &System, id: ComponentId) -> Vec<Time> {
    let asked = system.switches.iter().filter(|switch| switch.component == id).map(|switch| switch.at);
    let mut asked: Vec<Time> = asked.collect();
    asked.sort_unstable();
    asked
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
fn place(plan: &Plan, task: &PlanTask) -> Place {
    let level = &plan.levels[task.level as usize];
    Place { level: task.level, order: level.order, preemptive: level.preemptive, shift_ns: task.shift_ns }
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
