//! A node of a system with flows: the parts of its tasks in the traffic, its lanes and its peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use takt_model::flows::{self, Lowered, Role, hop_deadlines};
use takt_model::{FlowId, Late, MessageArrivals, NodeId, Plan, Span, System, TableTask, TaskId, file};
use takt_net::MESSAGE_MIN;

use super::NodeError;
use crate::seal::Key;

/// The most bytes of a datagram over UDP.
const DATAGRAM_MAX: u64 = 65_507;

/// The addresses of nodes, their key, and the start of the run.
#[derive(Clone, Debug)]
pub struct NodeNetwork {
    /// Where this node receives messages.
    pub listen: Option<SocketAddr>,
    /// The addresses of other nodes, by name.
    pub peers: Vec<(String, SocketAddr)>,
    /// The key that all nodes share.
    pub key: Option<Key>,
    /// The start of the run on all nodes, in nanoseconds of CLOCK_REALTIME since 1970.
    pub start: u64,
    /// SO_PRIORITY of messages.
    pub priority: u32,
    /// The differences of clocks are measured at this port of the own address and of the peers'.
    /// `None`: all nodes trust CLOCK_REALTIME.
    pub clocks: Option<u16>,
}

/// Without a chosen start, nodes begin at multiples of this.
const START_GRID_S: u64 = 10;
/// From now to such a start, at least.
const START_LEAD_S: u64 = 2;
/// From now to the start of a node that nobody else waits for.
const START_ALONE_NS: u64 = 1_000_000_000;

impl NodeNetwork {
    /// The default start of a node: the next multiple of ten seconds, at least two seconds ahead. So nodes that are
    /// started within some seconds begin together. `is_alone`: nobody else waits for the node, which starts in a
    /// second.
    #[must_use]
    pub fn next_start(is_alone: bool) -> u64 {
        let now = takt_linux::clock::realtime_ns();
        if is_alone {
            return now + START_ALONE_NS;
        }
        let earliest = now / 1_000_000_000 + START_LEAD_S;
        (earliest / START_GRID_S + 1) * START_GRID_S * 1_000_000_000
    }
}

/// The part of a task in the traffic of messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Part {
    /// None.
    #[default]
    Task,
    Receive,
    Send,
    /// The synchronisation of clocks.
    Sync,
    Hop {
        /// 0 is the first node.
        hop: u32,
        /// The deadline of the hop before, relative to the flow's arrival.
        before: Span,
        /// That of this hop, relative to the deadline before.
        share: Span,
        /// Whether the strategy drops its late jobs.
        drops: bool,
        /// The lane by which its messages leave; `None` on the last hop.
        lane: Option<u32>,
    },
}

impl Part {
    /// The lane by which messages of its jobs leave.
    pub(crate) fn lane(&self) -> Option<u32> {
        match self {
            Part::Hop { lane, .. } => *lane,
            _ => None,
        }
    }
}

/// A way by which messages leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lane {
    pub(crate) to: SocketAddr,
    /// Sending jobs from one message to the next.
    pub(crate) apart: u64,
    /// Bytes of a datagram.
    pub(crate) bytes: usize,
    /// The relative deadline of the next hop.
    pub(crate) allowance: Span,
    /// Its messages are replies, and the link has a bucket for replies.
    pub(crate) is_reply: bool,
}

/// The effect of messages that another node's task leaves for this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) from: NodeId,
    /// The slot of the job that they release.
    pub(crate) slot: u32,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    /// The System of the file, without the tasks of its flows.
    pub(crate) original: Arc<System>,
    pub(crate) node: NodeId,
    /// By slot of the node.
    pub(crate) parts: Vec<Part>,
    /// The tasks, by slot.
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) receive: Option<TableTask>,
    pub(crate) send: Option<TableTask>,
    pub(crate) lanes: Vec<Lane>,
    /// By task of another node.
    pub(crate) entries: BTreeMap<TaskId, Entry>,
    /// Whether messages leave by their deadlines; else in the order in which jobs leave them.
    pub(crate) edf: bool,
    /// The rule for messages that could leave only after their deadline.
    pub(crate) late: Late,
    pub(crate) digest: u64,
    /// Bytes of the longest datagram that may come.
    pub(crate) longest: usize,
    pub(crate) network: NodeNetwork,
}

/// Whether a node has a part in flows.
#[must_use]
pub fn has_flows(system: &System, node: NodeId) -> bool {
    let spec = system.nodes.get(node.index());
    let tables = spec.is_some_and(|spec| spec.receive.is_some() || spec.send.is_some());
    tables || system.flows.iter().any(|flow| flow.path.contains(&node))
}

impl NodePlan {
    /// The plan of a node, and the System with the tasks of its flows.
    pub(crate) fn new(system: &System, node: NodeId, network: &NodeNetwork) -> Result<(NodePlan, System), NodeError> {
        let spec = system.nodes.get(node.index()).ok_or(NodeError::NoNode)?;
        let name = || spec.name.clone();
        let lowered =
            flows::lower(system).filter(|_| has_flows(system, node)).ok_or(NodeError::NoFlows { node: name() })?;
        if let MessageArrivals::Interrupt { .. } | MessageArrivals::Cyclic = spec.arrivals {
            return Err(NodeError::Arrivals { node: name() });
        }
        if let Some((peer, _)) =
            network.peers.iter().find(|(peer, _)| system.nodes.iter().all(|node| node.name != *peer))
        {
            return Err(NodeError::UnknownPeer { peer: peer.clone() });
        }
        let tasks: Vec<TaskId> = lowered.system.tasks_of(node).map(|(id, _)| id).collect();
        let text = file::write(system);
        let mut plan = NodePlan {
            original: Arc::new(system.clone()),
            node,
            parts: Vec::new(),
            tasks,
            receive: spec.receive,
            send: spec.send,
            lanes: Vec::new(),
            entries: BTreeMap::new(),
            edf: spec.link.is_some_and(|link| link.edf),
            late: spec.link.map_or(Late::Continue, |link| link.late),
            digest: digest(text.as_bytes()),
            longest: MESSAGE_MIN,
            network: network.clone(),
        };
        let mut lane_of = BTreeMap::new();
        for flow in 0..system.flows.len() {
            plan.add_flow(&lowered, flow, &mut lane_of)?;
        }
        let sockets = !plan.lanes.is_empty() || !plan.entries.is_empty();
        if sockets && network.listen.is_none() {
            return Err(NodeError::NoAddress { node: name() });
        }
        if sockets && network.key.is_none() {
            return Err(NodeError::NoKey);
        }
        let peers = plan.peers();
        let unknown = plan.entries.values().find(|entry| network.clocks.is_some() && !peers.contains(&entry.from));
        if let Some(from) = unknown.and_then(|entry| system.nodes.get(entry.from.index())) {
            return Err(NodeError::NoClock { peer: from.name.clone() });
        }
        if let (Some(listen), Some(lane)) = (
            network.listen,
            plan.lanes.iter().find(|lane| network.listen.is_some_and(|listen| listen.is_ipv4() != lane.to.is_ipv4())),
        ) {
            return Err(NodeError::Family { listen, peer: lane.to });
        }
        let dropping = plan.dropping(&lowered);
        plan.parts = plan.tasks.iter().map(|id| plan.part(&lowered, *id, &lane_of, &dropping)).collect();
        Ok((plan, lowered.system))
    }

    fn add_flow(&mut self, lowered: &Lowered, at: usize, lane_of: &mut BTreeMap<TaskId, u32>) -> Result<(), NodeError> {
        let system = self.original.clone();
        let Some(flow) = system.flows.get(at) else { return Ok(()) };
        let name_of = |id: NodeId| system.nodes.get(id.index()).map_or_else(String::new, |node| node.name.clone());
        let allowances = hop_deadlines(flow, system.clock);
        if flow.size.get() > DATAGRAM_MAX {
            return Err(NodeError::Size { flow: flow.name.clone(), most: DATAGRAM_MAX });
        }
        let bytes = usize::try_from(flow.size.get()).unwrap_or(usize::MAX).max(MESSAGE_MIN);
        let link = system.nodes.get(self.node.index()).and_then(|node| node.link);
        let has_replies = flow.reply && link.is_some_and(|link| link.replies.is_some());
        for (hop, (from, to)) in flow.legs().enumerate() {
            let id = |hop: usize| lowered.task_of(FlowId(at as u32), hop as u32);
            let (Some(task), Some(after)) = (id(hop), id(hop + 1)) else { continue };
            if from == self.node {
                let send = self.send.ok_or_else(|| NodeError::NoTable { node: name_of(from), task: "send" })?;
                let peer = self.network.peers.iter().find(|(peer, _)| *peer == name_of(to));
                let to = peer.ok_or_else(|| NodeError::NoPeer { peer: name_of(to), flow: flow.name.clone() })?.1;
                lane_of.insert(task, self.lanes.len() as u32);
                self.lanes.push(Lane {
                    to,
                    apart: flow.send_gap.as_ns().div_ceil(send.period.as_ns().max(1)),
                    bytes,
                    allowance: allowances.get(hop + 1).copied().unwrap_or_default(),
                    is_reply: has_replies && hop + 1 == flow.path.len(),
                });
            }
            if to == self.node {
                self.receive.ok_or_else(|| NodeError::NoTable { node: name_of(to), task: "receive" })?;
                let Some(slot) = self.tasks.iter().position(|id| *id == after) else { continue };
                self.entries.insert(task, Entry { from, slot: slot as u32 });
                self.longest = self.longest.max(bytes);
            }
        }
        Ok(())
    }

    fn part(
        &self,
        lowered: &Lowered,
        id: TaskId,
        lane_of: &BTreeMap<TaskId, u32>,
        dropping: &BTreeSet<TaskId>,
    ) -> Part {
        match lowered.role(id) {
            Some(Role::Receive) => Part::Receive,
            Some(Role::Send) => Part::Send,
            Some(Role::Hop { flow, hop }) => {
                let of = self.original.flows.get(flow.index());
                let shares = of.map(|flow| hop_deadlines(flow, self.original.clock)).unwrap_or_default();
                let before = shares.iter().take(hop as usize).copied().fold(Span::ZERO, Span::saturating_add);
                let share = shares.get(hop as usize).copied().unwrap_or_default();
                Part::Hop { hop, before, share, drops: dropping.contains(&id), lane: lane_of.get(&id).copied() }
            }
            Some(Role::Sync) => Part::Sync,
            Some(Role::Interrupt) | None => Part::Task,
        }
    }

    /// The tasks whose late jobs the node's first strategy drops.
    fn dropping(&self, lowered: &Lowered) -> BTreeSet<TaskId> {
        let strategy = lowered.system.nodes.get(self.node.index()).map(|node| lowered.system.strategy(node.strategy));
        let plan = strategy.and_then(|strategy| Plan::resolve(&lowered.system, self.node, &strategy).ok());
        let tasks = plan.iter().flat_map(|plan| &plan.tasks);
        tasks.filter(|task| task.late == Late::Drop).map(|task| task.task).collect()
    }

    /// Messages that a receiving job takes at most.
    pub(crate) fn receive_most(&self) -> Option<u64> {
        most(self.receive)
    }

    /// Messages that a sending job takes at most.
    pub(crate) fn send_most(&self) -> Option<u64> {
        most(self.send)
    }

    pub(crate) fn peers(&self) -> Vec<NodeId> {
        let nodes = || self.original.nodes.iter().zip(0_u32..);
        let node = |peer: &str| nodes().find(|(node, _)| node.name == peer).map(|(_, id)| NodeId(id));
        self.network.peers.iter().filter_map(|(peer, _)| node(peer)).collect()
    }

    /// Whether the table thread itself carries out the jobs of a slot.
    pub(crate) fn is_table(&self, slot: u32) -> bool {
        matches!(self.parts.get(slot as usize), Some(Part::Receive | Part::Send))
    }

    /// Bytes of the longest datagram that it sends.
    pub(crate) fn longest_sent(&self) -> usize {
        self.lanes.iter().map(|lane| lane.bytes).max().unwrap_or(0)
    }

    /// Whether the sending task is among these slots.
    pub(crate) fn sends(&self, slots: &[u32]) -> bool {
        slots.iter().any(|slot| self.parts.get(*slot as usize) == Some(&Part::Send))
    }

    /// Whether these slots have a part in flows.
    pub(crate) fn has_table(&self, slots: &[u32]) -> bool {
        slots
            .iter()
            .any(|slot| matches!(self.parts.get(*slot as usize), Some(Part::Receive | Part::Send | Part::Hop { .. })))
    }
}

fn most(task: Option<TableTask>) -> Option<u64> {
    task.and_then(|task| task.cost.map(|cost| task.wcet.as_ns() / cost.as_ns().max(1)))
}

/// A digest of bytes (FNV-1a): nodes with different files do not talk to each other.
fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
