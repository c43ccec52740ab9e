//! Facts that follow from a System.

use super::{
    Clock, ComponentId, Criticality, Mode, Network, NetworkId, NodeId, NodeSpec, StrategyRef, System, Task, TaskId,
};
use crate::Threads;
use crate::strategy::{Builtin, Strategy};
use crate::time::Span;

impl System {
    /// A system of one node "local" with these tasks.
    #[must_use]
    pub fn local(cpus: u32, strategy: Builtin, tasks: Vec<Task>) -> Self {
        System {
            name: "system".to_owned(),
            nodes: vec![NodeSpec::new("local", cpus, StrategyRef::Builtin(strategy))],
            strategies: Vec::new(),
            modes: Vec::new(),
            switches: Vec::new(),
            components: Vec::new(),
            tasks,
            flows: Vec::new(),
            ports: Vec::new(),
            networks: Vec::new(),
            clock: Clock::default(),
            notes: Vec::new(),
        }
    }

    /// How late a job of the task may be released: its jitter, and where a timer releases it, the latency of its node.
    ///
    /// # Panics
    /// If the System has no such task.
    #[must_use]
    pub fn release_jitter(&self, id: TaskId) -> Span {
        let task = &self.tasks[id.index()];
        let costs = self.nodes.get(task.node.index()).and_then(|node| node.costs);
        let latency = costs.filter(|_| task.after.is_empty()).map_or(Span::ZERO, |costs| costs.latency);
        task.jitter.saturating_add(latency)
    }

    /// Whether jobs of a task of this System may be omitted: it is of low criticality, and the task
    /// says so, or its node where it does not.
    #[must_use]
    pub fn may_cancel(&self, task: &Task) -> bool {
        let of_node = || self.nodes.get(task.node.index()).is_some_and(|node| node.cancel);
        task.criticality == Criticality::Low && task.cancel.unwrap_or_else(of_node)
    }

    /// Whether a node may omit jobs of low criticality: its own setting, or a task's, allows it.
    #[must_use]
    pub fn cancels(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|node| node.cancel)
            || self.tasks_of(node).any(|(_, task)| task.cancel == Some(true))
    }

    /// The modes of a node in order of time. The k-th, from 1, starts the node's plan k.
    #[must_use]
    pub fn modes_of(&self, node: NodeId) -> Vec<&Mode> {
        let mut modes: Vec<&Mode> = self.modes.iter().filter(|mode| mode.node == node).collect();
        modes.sort_by_key(|mode| mode.at);
        modes
    }

    /// The strategies of a node's plans: its own, then those of its modes in order of time. Empty if
    /// there is no such node.
    #[must_use]
    pub fn strategies_of(&self, node: NodeId) -> Vec<StrategyRef> {
        let own = self.nodes.get(node.index()).map(|node| node.strategy);
        own.into_iter().chain(self.modes_of(node).into_iter().map(|mode| mode.strategy)).collect()
    }

    /// The tasks of a node in file order.
    pub fn tasks_of(&self, node: NodeId) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks
            .iter()
            .enumerate()
            .filter(move |(_, task)| task.node == node)
            .map(|(i, task)| (TaskId(i as u32), task))
    }

    /// A component and those around it, the innermost first.
    pub fn around(&self, id: ComponentId) -> impl Iterator<Item = ComponentId> {
        let outer = |id: &ComponentId| self.components.get(id.index())?.parent;
        std::iter::successors(Some(id), outer).take(self.components.len())
    }

    /// The existing threads that do a task's work, if it stands in a component of such threads.
    #[must_use]
    pub fn threads_of(&self, task: &Task) -> Option<&Threads> {
        self.components.get(task.component?.index())?.threads.as_ref()
    }

    /// The networks that carry messages between two nodes: the network naming both nodes, else all
    /// networks naming one of them, else the network without nodes.
    #[must_use]
    pub fn networks_between(&self, from: NodeId, to: NodeId) -> Vec<NetworkId> {
        let fits = |network: &Network| {
            network.from.is_none_or(|node| node == from) && network.to.is_none_or(|node| node == to)
        };
        let named = |network: &Network| u8::from(network.from.is_some()) + u8::from(network.to.is_some());
        let most = self.networks.iter().filter(|network| fits(network)).map(named).max();
        let all = self.networks.iter().enumerate();
        let chosen = all.filter(|(_, network)| fits(network) && Some(named(network)) == most);
        chosen.map(|(i, _)| NetworkId(i as u32)).collect()
    }

    /// The node of that name.
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(|i| NodeId(i as u32))
    }

    /// The task of that name.
    #[must_use]
    pub fn task_by_name(&self, name: &str) -> Option<TaskId> {
        self.tasks.iter().position(|task| task.name == name).map(|i| TaskId(i as u32))
    }

    /// The strategy behind a reference: a named one is built, an own one cloned.
    #[must_use]
    pub fn strategy(&self, reference: StrategyRef) -> Strategy {
        match reference {
            StrategyRef::Builtin(builtin) => builtin.strategy(),
            StrategyRef::Own(id) => self.strategies[id.index()].clone(),
        }
    }

    /// The name of a strategy as the file writes it.
    #[must_use]
    pub fn strategy_name(&self, reference: StrategyRef) -> &str {
        match reference {
            StrategyRef::Builtin(builtin) => builtin.name(),
            StrategyRef::Own(id) => &self.strategies[id.index()].name,
        }
    }

    /// The least common multiple of all periods: of tasks, flows, servers, table tasks and time synchronisation. `None`
    /// where it exceeds `u64` or there is no period.
    #[must_use]
    pub fn hyperperiod(&self) -> Option<Span> {
        let servers = self.components.iter().filter_map(|component| component.period.given());
        let changed = self.switches.iter().filter_map(|switch| switch.period);
        let tables = self.nodes.iter().flat_map(|node| [node.receive, node.send]).chain([self.clock.sync]).flatten();
        let periods = (self.tasks.iter().map(|task| task.period))
            .chain(self.flows.iter().map(|flow| flow.period))
            .chain(servers)
            .chain(changed)
            .chain(tables.map(|table| table.period));
        let mut lcm: Option<u64> = None;
        for period in periods.map(Span::as_ns) {
            let so_far = lcm.unwrap_or(1);
            lcm = Some(so_far.checked_mul(period / gcd(so_far, period).max(1))?);
        }
        lcm.map(Span::from_ns)
    }

    /// Whether the clocks of nodes differ by more than drift and a known error, because they begin apart or step. Then
    /// a simulated node knows no more of other clocks than its exchanges tell.
    #[must_use]
    pub fn has_unknown_clocks(&self) -> bool {
        !self.clock.offset.is_zero() || self.nodes.iter().any(|node| !node.clock_steps.is_empty())
    }

    /// How long `sim` and `run` go where nothing is said: two hyperperiods, at most 10 s.
    #[must_use]
    pub fn default_duration(&self) -> Span {
        let most = Span::from_s(10);
        self.hyperperiod().and_then(|h| h.checked_mul(2)).map_or(most, |two| two.min(most))
    }

    /// Tasks that end a chain: they come after others and nothing comes after them.
    pub fn chain_sinks(&self) -> impl Iterator<Item = TaskId> {
        let inner: std::collections::BTreeSet<TaskId> =
            self.tasks.iter().flat_map(|task| task.after.iter().copied()).collect();
        self.tasks
            .iter()
            .enumerate()
            .map(|(i, task)| (TaskId(i as u32), task))
            .filter(move |(id, task)| !task.after.is_empty() && !inner.contains(id))
            .map(|(id, _)| id)
    }
}

/// The greatest common divisor; `gcd(a, 0) = a`.
#[must_use]
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
