//! Makes the virtual clusters of a node from its System.

use takt_model::plan::Order;
use takt_model::{ComponentId, CpuSet, NodeId, ServerRule, System, Task, Time};

use super::choose::Choice;
use super::{ClusterServer, Group, Scope, VirtualClusters};
use crate::error::PolicyError;
use crate::hierarchy::build::{EVENTS_MAX, Parts, ServerTasks, change_times, depth, terms};
use crate::hierarchy::{Place, ScopeOrder, lends_to};
use crate::pool::Pool;
use crate::server::{Server, Terms};
use crate::times::Times;

impl VirtualClusters {
    /// As [`crate::Hierarchy::new`], for a node of several CPUs.
    ///
    /// # Errors
    /// As there; a task or a server without the placement that the node needs.
    pub(crate) fn new(system: &System, node: NodeId) -> Result<Self, PolicyError> {
        let spec = &system.nodes[node.index()];
        let clusters = spec.clusters();
        let on_node = |id: &ComponentId| system.components[id.index()].node == node;
        let mut components: Vec<ComponentId> =
            (0..system.components.len() as u32).map(ComponentId).filter(on_node).collect();
        components.sort_by_key(|id| depth(system, *id));
        let mut made = VirtualClusters {
            scopes: Vec::new(),
            roots: clusters.len(),
            homes: vec![(0, 0); system.tasks_of(node).count()],
            servers: Vec::new(),
            groups: Vec::new(),
            cpus: vec![None; spec.cpus as usize],
            choice: Choice::default(),
            changes_at: Times::never(0),
            to_update: (0..components.len()).collect(),
            paying: Vec::new(),
            varying: Vec::new(),
            with_quantum: Vec::new(),
            by_laxity: Vec::new(),
            with_sections: Vec::new(),
            paid_until: Time::ZERO,
            events: Vec::new(),
            laxity_quantum: spec.laxity_quantum,
            switches: Vec::new(),
        };
        let mut bound = Vec::new();
        for (group, id) in components.iter().enumerate() {
            made.add(system, (group, *id), &clusters, &mut bound)?;
        }
        made.switches.sort_by_key(|(at, _, term)| std::cmp::Reverse((*at, *term)));
        let of_server = |(server, cpus): (&ClusterServer, &Option<CpuSet>)| (made.groups[server.group].id, *cpus);
        let ids: Vec<_> = made.servers.iter().zip(&bound).map(of_server).collect();
        let with_terms = ids.into_iter().zip(&made.servers).map(|((id, cpus), server)| (id, &server.terms[..], cpus));
        let served = ServerTasks::new(system, node, with_terms);
        let inside = made.inside(system, &served, &components, &clusters)?;
        let around = clusters.iter().map(|_| None).chain(components.iter().copied().map(Some));
        for (index, component) in around.enumerate() {
            let of_scope = match component {
                None => system.strategies_of(node),
                Some(id) => vec![system.components[id.index()].strategy],
            };
            let parts = Parts::new(system, &served, &inside[index], &of_scope)?;
            made.parts_of_scope(index, &parts);
            let own = clusters.get(index).map_or(Vec::new(), |cpus| cpus.iter().collect());
            let cpus = component.map_or(own.len(), |id| system.components[id.index()].cpus as usize);
            let depth = component.map_or(0, |id| depth(system, id) + 1);
            let lends = |terms: &Terms| lends_to(terms.rule).is_some();
            let lends = parts.servers.iter().any(|server| made.servers[*server].terms.iter().any(lends));
            made.scopes.push(scope(system, node, parts, (own, cpus, depth), lends));
        }
        made.reserve();
        made.changes_at = Times::never(made.servers.len());
        // All servers are brought to the beginning.
        (0..made.servers.len() as u32).for_each(|server| made.changes_at.set(server, Time::ZERO));
        let scopes =
            |of: fn(&Scope) -> bool| (0..).zip(&made.scopes).filter(|(_, at)| of(at)).map(|(at, _)| at).collect();
        (made.varying, made.with_quantum, made.by_laxity, made.with_sections) = (
            scopes(|scope| scope.ranks_vary),
            scopes(|scope| scope.quantum.is_some()),
            scopes(Scope::goes_by_laxity),
            scopes(|scope| scope.pool.has_sections()),
        );
        Ok(made)
    }

    /// Makes room, so that nothing is allocated later.
    fn reserve(&mut self) {
        let (servers, groups, cpus) = (self.servers.len(), self.groups.len(), self.cpus.len());
        let sizes: Vec<(usize, usize)> = self.scopes.iter().map(|scope| (scope.cpus, scope.entry_count())).collect();
        self.choice = Choice::new(&sizes, cpus);
        // A component is touched and its scope soiled at most once between two updates.
        self.to_update.reserve(2 * groups);
        self.paying.reserve(groups + servers + cpus);
        self.events.reserve(EVENTS_MAX * groups);
        let is_sporadic = |terms: &Terms| terms.rule == ServerRule::Sporadic;
        for server in self.servers.iter_mut().filter(|server| server.terms.iter().any(is_sporadic)) {
            server.account.reserve_returns();
        }
    }

    /// Adds the servers of a component, and the CPUs that each of them is bound to.
    fn add(
        &mut self,
        system: &System,
        (group, id): (usize, ComponentId),
        clusters: &[CpuSet],
        bound: &mut Vec<Option<CpuSet>>,
    ) -> Result<(), PolicyError> {
        let component = &system.components[id.index()];
        let first = self.servers.len();
        let shares: Vec<Vec<Terms>> = terms(system, id)?.into_iter().map(|terms| shares(system, id, terms)).collect();
        for number in 0..component.cpus.max(1) as usize {
            let terms: Vec<Terms> = shares.iter().map(|shares| shares[number]).collect();
            let cpus = component.server_cpus.get(number).map(|cpu| clusters.iter().find(|set| set.contains(*cpu)));
            if clusters.len() > 1 && component.parent.is_none() && cpus.flatten().is_none() {
                let node = system.nodes[component.node.index()].name.clone();
                return Err(PolicyError::ServerNotPlaced { component: component.name.clone(), node });
            }
            bound.push(cpus.flatten().copied());
            self.servers.push(ClusterServer {
                group,
                account: Server::new(terms[0], Time::ZERO),
                terms,
                term: 0,
                next_term: 0,
                outer: 0,
                position: 0,
                eligible: false,
                entry_state: None,
                root: None,
                via: None,
                holds: false,
            });
        }
        self.switches.extend(change_times(system, id).into_iter().zip(1..).map(|(at, term)| (at, group, term)));
        self.groups.push(Group {
            id,
            servers: (first..self.servers.len()).collect(),
            demand: 0,
            is_busy: false,
            is_touched: true,
            payers: 0,
            paying: None,
        });
        Ok(())
    }

    /// The tasks in each scope.
    fn inside(
        &self,
        system: &System,
        served: &ServerTasks,
        components: &[ComponentId],
        clusters: &[CpuSet],
    ) -> Result<Vec<Vec<takt_model::TaskId>>, PolicyError> {
        let mut scope_of = vec![0; system.components.len()];
        components.iter().zip(self.roots..).for_each(|(id, scope)| scope_of[id.index()] = scope);
        let all = clusters.iter().fold(CpuSet::EMPTY, |all, cluster| all.union(cluster));
        let root = |task: &Task| {
            let cpus = task.cpus.unwrap_or(all);
            clusters.iter().position(|cluster| cpus.is_subset(cluster))
        };
        let loose = |task: &&Task| task.component.is_none() && root(task).is_none();
        let own = self.groups.first().map(|group| system.components[group.id.index()].node);
        if let Some(task) = system.tasks.iter().filter(|task| Some(task.node) == own).find(loose) {
            let (task, node) = (task.name.clone(), system.nodes[task.node.index()].name.clone());
            return Err(PolicyError::NotPlaced { task, node });
        }
        let scope = |task: &Task| task.component.map_or_else(|| root(task).unwrap_or(0), |id| scope_of[id.index()]);
        Ok(served.by_scope(self.roots + components.len(), scope))
    }

    /// Notes where the tasks and servers of a scope are.
    fn parts_of_scope(&mut self, scope: usize, parts: &Parts) {
        for (local, slot) in parts.slots.iter().enumerate() {
            self.homes[*slot as usize] = (scope, local as u32);
        }
        for (at, server) in parts.servers.iter().enumerate() {
            (self.servers[*server].outer, self.servers[*server].position) = (scope, at);
        }
    }
}

fn scope(
    system: &System,
    node: NodeId,
    parts: Parts,
    (own, cpus, depth): (Vec<u32>, usize, usize),
    lends: bool,
) -> Scope {
    let Parts { tasks, slots, servers, plans, places, quantum, task_share } = parts;
    let pool = Pool::new(system, node, &tasks, plans);
    let varies = |place: &Place| !place.preemptive || place.order == Order::Laxity;
    let ranks_vary = places.iter().flatten().flatten().any(varies) || pool.ranks_vary();
    let count = tasks.len() + servers.len();
    Scope {
        pool,
        slots,
        servers,
        places,
        plan: 0,
        own,
        cpus,
        depth,
        quantum,
        picks: Vec::with_capacity(if quantum.is_some() { cpus } else { 0 }),
        stale: false,
        order: ScopeOrder::new(count, lends),
        entry_states: vec![None; tasks.len()],
        ranks_vary,
        jobs: 0,
        busy_servers: 0,
        is_dirty: true,
        active_share: u128::from(task_share),
    }
}

/// The terms of a component's servers, one for each of its CPUs, as `check` takes them.
fn shares(system: &System, id: ComponentId, Terms { rule, period, budget }: Terms) -> Vec<Terms> {
    let shares = system.components[id.index()].shares(period, budget);
    shares.into_iter().map(|budget| Terms { rule, period, budget }).collect()
}
