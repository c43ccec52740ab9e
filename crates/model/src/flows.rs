//! The jobs of flows and of table tasks, as tasks of their nodes: the form in which they are
//! simulated and logged.
//!
//! A file has flows, and nodes with a receiving and a sending task. [`lower`] adds a task for each
//! of these, behind the tasks of the file:
//!
//! | name | jobs |
//! |---|---|
//! | `FLOW/0`, `FLOW/1`, ... | one per instance of the flow and hop; hop 0 is the first node |
//! | `NODE/receive`, `NODE/send` | the table tasks, above all other levels of the node |
//! | `NODE/interrupt` | one per message that arrives at or leaves a node that messages interrupt |
//! | `NODE/sync` | time synchronisation, on nodes that flows connect to others |
//!
//! The deadline of a hop counts from the arrival of the flow: it is the sum of the relative
//! deadlines of the hops up to this one. So the response of the last hop is the end-to-end response.

use std::collections::BTreeSet;

use crate::drift::Drift;
use crate::strategy::{Discipline, Filter, Level, Strategy};
use crate::system::{
    Clock, Flow, FlowId, MessageArrivals, NodeId, Placement, StrategyId, StrategyRef, System, TableTask, Task, TaskId,
};
use crate::time::Span;
use crate::units::Bytes;

/// The role of a task that [`lower`] adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The receiving task of its node.
    Receive,
    /// The sending task of its node.
    Send,
    /// The interrupts of a node by messages.
    Interrupt,
    /// The synchronisation job of its node.
    Sync,
    /// The jobs of a flow on one of its hops.
    Hop {
        /// The flow.
        flow: FlowId,
        /// 0 is the first node.
        hop: u32,
    },
}

/// A System with the tasks of its flows and tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lowered {
    /// The System. The tasks of the file come first.
    pub system: System,
    /// How many tasks the file has.
    pub first: usize,
    /// The roles of the tasks from `first` on.
    pub roles: Vec<Role>,
    /// The place of each flow's first hop in `roles`.
    hops_from: Vec<usize>,
}

impl Lowered {
    /// The role of a task; `None` for a task of the file.
    #[must_use]
    pub fn role(&self, id: TaskId) -> Option<Role> {
        self.roles.get(id.index().checked_sub(self.first)?).copied()
    }

    /// The task of a flow's hop.
    #[must_use]
    pub fn task_of(&self, flow: FlowId, hop: u32) -> Option<TaskId> {
        let at = self.hops_from.get(flow.index())? + hop as usize;
        let found = self.roles.get(at).is_some_and(|role| *role == Role::Hop { flow, hop });
        found.then(|| TaskId((self.first + at) as u32))
    }
}

/// Adds the tasks of flows and tables. `None` for a System that has neither.
#[must_use]
pub fn lower(system: &System) -> Option<Lowered> {
    let connected = connected(system);
    let has_table = |id: &NodeId| {
        let node = &system.nodes[id.index()];
        let interrupts = matches!(node.arrivals, MessageArrivals::Interrupt { .. }) && connected.contains(id);
        node.receive.is_some() || node.send.is_some() || interrupts
    };
    let tables: Vec<NodeId> = (0..system.nodes.len() as u32).map(NodeId).filter(has_table).collect();
    if system.flows.is_empty() && tables.is_empty() {
        return None;
    }
    let first = system.tasks.len();
    let mut lowered = Lowered { system: system.clone(), first, roles: Vec::new(), hops_from: Vec::new() };
    let mut names: BTreeSet<String> = system.tasks.iter().map(|task| task.name.clone()).collect();
    for (i, flow) in system.flows.iter().enumerate() {
        let mut deadline = Span::ZERO;
        lowered.hops_from.push(lowered.roles.len());
        for ((hop, node), share) in flow.hops().enumerate().zip(hop_deadlines(flow, system.clock)) {
            deadline = deadline.saturating_add(share);
            let wcet = if hop == 0 { flow.wcet } else { flow.hop_wcet };
            let task = Task { deadline, ..Task::periodic(&format!("{}/{hop}", flow.name), flow.period, wcet) };
            add(&mut lowered, &mut names, node, task, Role::Hop { flow: FlowId(i as u32), hop: hop as u32 });
        }
    }
    for node in &tables {
        let spec = &system.nodes[node.index()];
        let table =
            |task: TableTask, name: &str| Task::periodic(&format!("{}/{name}", spec.name), task.period, task.wcet);
        let mut on_table = Vec::new();
        if let Some(task) = spec.receive {
            on_table.push(add(&mut lowered, &mut names, *node, table(task, "receive"), Role::Receive));
        }
        if let Some(task) = spec.send {
            // The sending slot of a cyclic node ends its frame.
            let slot = task.period.saturating_sub(task.wcet);
            let offset = if spec.arrivals == MessageArrivals::Cyclic { slot } else { Span::ZERO };
            let task = Task { offset, ..table(task, "send") };
            on_table.push(add(&mut lowered, &mut names, *node, task, Role::Send));
        }
        if let MessageArrivals::Interrupt { cost } = spec.arrivals {
            let task = Task::periodic(&format!("{}/interrupt", spec.name), shortest_flow_period(system, *node), cost);
            on_table.push(add(&mut lowered, &mut names, *node, task, Role::Interrupt));
        }
        add_table_level(&mut lowered.system, *node, &on_table);
    }
    if let Some(sync) = system.clock.sync {
        for node in connected {
            let name = format!("{}/sync", system.nodes[node.index()].name);
            add(&mut lowered, &mut names, node, Task::periodic(&name, sync.period, sync.wcet), Role::Sync);
        }
    }
    Some(lowered)
}

/// The shortest period of the flows that visit a node.
fn shortest_flow_period(system: &System, node: NodeId) -> Span {
    let visits = system.flows.iter().filter(|flow| flow.path.contains(&node));
    visits.map(|flow| flow.period).min().unwrap_or(Span::FILE_MAX)
}

/// Adds a task of a node and returns its name. On a node with several clusters it runs in the first.
fn add(lowered: &mut Lowered, names: &mut BTreeSet<String>, node: NodeId, mut task: Task, role: Role) -> String {
    while !names.insert(task.name.clone()) {
        task.name.push('\'');
    }
    task.node = node;
    let spec = &lowered.system.nodes[node.index()];
    task.cpus = spec.clusters().first().copied().filter(|_| spec.placement != Placement::Global);
    let name = task.name.clone();
    lowered.system.tasks.push(task);
    lowered.roles.push(role);
    name
}

/// Adds a level of these tasks above all levels of each strategy that the node ever has. The jobs of this level do not
/// preempt each other.
fn add_table_level(system: &mut System, node: NodeId, names: &[String]) {
    let above = |system: &mut System, reference: StrategyRef| {
        let Strategy { name, levels } = system.strategy(reference);
        let table = Level { preemptive: false, ..Level::new(Filter::Named(names.to_vec()), Discipline::Fifo) };
        system.strategies.push(Strategy { name, levels: std::iter::once(table).chain(levels).collect() });
        StrategyRef::Own(StrategyId(system.strategies.len() as u32 - 1))
    };
    system.nodes[node.index()].strategy = above(system, system.nodes[node.index()].strategy);
    for at in 0..system.modes.len() {
        if system.modes[at].node == node {
            system.modes[at].strategy = above(system, system.modes[at].strategy);
        }
    }
}

/// The nodes that flows connect to others, in their order.
fn connected(system: &System) -> BTreeSet<NodeId> {
    neighbours(system).into_iter().map(|(from, _)| from).collect()
}

/// A sealed message of `clock.sync` on an Ethernet's wire: 144 bytes in UDP, and 66 of headers, preamble and gap.
pub const SYNC_FRAME: Bytes = Bytes::new(210);

/// The pairs of nodes that flows connect, each in both directions.
#[must_use]
pub fn neighbours(system: &System) -> BTreeSet<(NodeId, NodeId)> {
    system.flows.iter().flat_map(Flow::legs).flat_map(|(from, to)| [(from, to), (to, from)]).collect()
}

/// The relative deadlines of a flow's hops: those of the file, else even shares of its deadline. The
/// shares leave room for the errors of `clock`, so that the last hop is due in time.
#[must_use]
pub fn hop_deadlines(flow: &Flow, clock: Clock) -> Vec<Span> {
    let hops = flow.hops().count() as u64;
    if flow.hop_deadlines.len() as u64 == hops {
        return flow.hop_deadlines.clone();
    }
    let room = room(flow.deadline.as_ns(), hops, clock.error.as_ns(), Drift(clock.drift_ppm));
    let (share, rest) = (room / hops.max(1), room % hops.max(1));
    (1..=hops).map(|hop| Span::from_ns(share + if hop == hops { rest } else { 0 })).collect()
}

/// The largest sum of the deadlines of `hops` hops with which the last hop is due `deadline` ns
/// after the arrival, under all errors of clocks. Zero if there is none.
///
/// The last deadline is at most `(sum of D_h)↑ + (m - 1) (ε↑ + skew)` after the arrival, and a
/// nanosecond a hop for rounding. `skew` is the skew of D, since no job in time is released later
/// than D. The documentation of `takt_analysis::distributed` has the proof.
#[must_use]
pub fn room(deadline: u64, hops: u64, error: u64, drift: Drift) -> u64 {
    let errors = |each: u64| deadline.saturating_sub(each.saturating_mul(hops.saturating_sub(1)));
    if drift.0 == 0 {
        return errors(error);
    }
    let (Some(error), Some(skew)) = (drift.most(error), drift.skew(deadline)) else { return 0 };
    let shared = errors(error.saturating_add(skew)).saturating_sub(deadline - drift.least(deadline));
    drift.within(shared.saturating_sub(hops.saturating_mul(3)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{NodeSpec, TableTask};
    use crate::{Builtin, Plan};

    fn system() -> System {
        let ms = Span::from_ms;
        let mut system = System::local(1, Builtin::Edf, vec![Task::periodic("a", ms(10), ms(1))]);
        system.nodes.push(NodeSpec::new("far", 1, StrategyRef::Builtin(Builtin::Edf)));
        for node in &mut system.nodes {
            node.receive = Some(TableTask { period: ms(5), wcet: ms(1), cost: None });
            node.send = node.receive;
        }
        system.flows.push(Flow {
            name: "put".to_owned(),
            path: vec![NodeId(0), NodeId(1)],
            reply: true,
            period: ms(20),
            wcet: ms(2),
            deadline: ms(100),
            send_gap: ms(20),
            hop_wcet: ms(3),
            size: crate::Bytes::default(),
            hop_deadlines: Vec::new(),
        });
        system
    }

    #[test]
    fn hops_and_tables_become_tasks_behind_those_of_the_file() {
        let lowered = lower(&system()).expect("there is a flow");
        let names: Vec<&str> = lowered.system.tasks.iter().map(|task| task.name.as_str()).collect();
        let all = ["a", "put/0", "put/1", "put/2", "local/receive", "local/send", "far/receive", "far/send"];
        assert_eq!(names, all);
        let deadlines: Vec<u64> = lowered.system.tasks[1..4].iter().map(|task| task.deadline.as_ns()).collect();
        assert_eq!(deadlines, [33_333_333, 66_666_666, 100_000_000]);
        assert_eq!(lowered.task_of(FlowId(0), 2), Some(TaskId(3)));
        assert_eq!((lowered.role(TaskId(0)), lowered.role(TaskId(5))), (None, Some(Role::Send)));
        assert_eq!(lower(&System::local(1, Builtin::Edf, Vec::new())), None);
    }

    #[test]
    fn the_table_stands_above_all_levels() {
        let lowered = lower(&system()).expect("there is a flow");
        let (node, system) = (NodeId(0), &lowered.system);
        let plan = Plan::resolve(system, node, &system.strategy(system.nodes[0].strategy)).expect("a plan");
        let levels: Vec<u32> = plan.tasks.iter().map(|task| task.level).collect();
        assert_eq!((plan.name.as_str(), levels), ("edf", vec![1, 1, 1, 0, 0]));
    }

    #[test]
    fn a_name_that_is_taken_is_marked() {
        let mut system = system();
        system.tasks[0].name = "put/0".to_owned();
        let lowered = lower(&system).expect("there is a flow");
        assert_eq!(lowered.system.tasks[1].name, "put/0'");
    }
}
