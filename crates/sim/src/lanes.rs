//! The lanes of all messages of a System at their senders, and the messages of each node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use takt_model::flows::{self, Lowered, Role, hop_deadlines};
use takt_model::{Draw, FlowId, Late, MessageArrivals, NodeId, Plan, Span, TableTask, Task, TaskId, Time};
use takt_policy::{CyclicSpec, Interrupts, PartialEdf, PartialEdfSpec};

use crate::clock::NodeClock;
use crate::difference::{Measured, Reading, Steps};
use crate::messages::{MessageEffect, Messages, NodeMessages, SenderLane, TaskRole};
use crate::network::Network;
use crate::routes::Routes;
use crate::traffic::Traffic;
use crate::{MESSAGES_MAX, SimError};

/// The lanes of all messages.
pub(crate) struct Lanes<'a> {
    lowered: &'a Lowered,
    seed: u64,
    routes: Routes<'a>,
    /// By node: its lanes, and for each the least distance of its messages in sending jobs.
    lanes: Vec<(Vec<SenderLane>, Vec<u64>)>,
    /// The lane of a task's messages, by task and receiver.
    lane_of: BTreeMap<(TaskId, NodeId), u32>,
    /// Slots, by task.
    slots: Vec<u32>,
    /// The pairs of nodes that exchange the times of their clocks.
    neighbours: BTreeSet<(NodeId, NodeId)>,
}

impl<'a> Lanes<'a> {
    pub(crate) fn new(lowered: &'a Lowered, seed: u64, traffic: &Traffic) -> Result<Self, SimError> {
        let system = &lowered.system;
        let mut counts = vec![0; system.nodes.len()];
        let slot = |task: &Task| {
            let count: &mut u32 = &mut counts[task.node.index()];
            *count += 1;
            *count - 1
        };
        let slots = system.tasks.iter().map(slot).collect();
        let lanes = vec![(Vec::new(), Vec::new()); system.nodes.len()];
        let routes = Routes::new(system, seed);
        let neighbours = system.clock.sync.map(|_| flows::neighbours(system)).unwrap_or_default();
        let mut built = Lanes { lowered, seed, routes, lanes, lane_of: BTreeMap::new(), slots, neighbours };
        for (i, flow) in system.flows.iter().enumerate() {
            let allowances = hop_deadlines(flow, system.clock);
            for (hop, (from, to)) in flow.legs().enumerate() {
                let id = |hop: usize| lowered.task_of(FlowId(i as u32), hop as u32);
                let (Some(task), Some(after)) = (id(hop), id(hop + 1)) else { continue };
                let route = built.routes.route(from, to)?;
                let period = system.nodes[from.index()].send.map_or(1, |send| send.period.as_ns().max(1));
                let effect = MessageEffect::Job { slot: built.slots[after.index()] };
                let name = &system.tasks[task.index()].name;
                let allowance = allowances.get(hop + 1).copied().unwrap_or_default();
                let reply = flow.reply && hop + 2 == allowances.len();
                let network_lane = built.routes.lane(route, name, flow.size, Some(allowance), reply);
                let ends = traffic.ends(i, hop).cloned().map(Rc::new);
                let lane = SenderLane { network_lane, effect, draw: Draw::new(seed, name), ends };
                built.add_lane(task, from, to, lane, flow.send_gap.as_ns().div_ceil(period));
            }
        }
        built.add_sync_lanes()?;
        Ok(built)
    }

    /// Adds the lanes of time synchronisation: for the requests to each neighbour, and for the answers if a network
    /// leads back.
    fn add_sync_lanes(&mut self) -> Result<(), SimError> {
        let (lowered, seed) = (self.lowered, self.seed);
        let system = &lowered.system;
        let (mut syncs, mut receivers) = (BTreeMap::new(), BTreeMap::new());
        for (id, task) in system.tasks.iter().enumerate().skip(lowered.first) {
            let id = TaskId(id as u32);
            match lowered.role(id) {
                Some(Role::Sync) => syncs.insert(task.node, id),
                Some(Role::Receive | Role::Interrupt) => receivers.insert(task.node, id),
                _ => None,
            };
        }
        // Draws are keyed by names, so nodes that come before these change no draws.
        let named = |task: TaskId, to: NodeId| {
            format!("{} to {}", system.tasks[task.index()].name, system.nodes[to.index()].name)
        };
        for (from, to) in self.neighbours.clone() {
            let (Some(task), Some(route)) = (syncs.get(&from), self.routes.known_route(from, to)?) else { continue };
            let answer = match (receivers.get(&to), self.routes.known_route(to, from)?) {
                (Some(receive), Some(back)) => {
                    let name = named(*receive, from);
                    let (network_lane, draw) = (self.routes.sync_lane(back, &name), Draw::new(seed, &name));
                    let lane = SenderLane { network_lane, effect: MessageEffect::Answered, draw, ends: None };
                    Some(self.add_lane(*receive, to, from, lane, 1))
                }
                _ => None,
            };
            let name = named(*task, to);
            let (network_lane, draw) = (self.routes.sync_lane(route, &name), Draw::new(seed, &name));
            let effect = MessageEffect::Answer { lane: answer };
            self.add_lane(*task, from, to, SenderLane { network_lane, effect, draw, ends: None }, 1);
        }
        Ok(())
    }

    /// Adds a lane from a task of node `from` to node `to`, and returns its index there. `spacing`: the least distance
    /// of two of its messages, in sending jobs.
    fn add_lane(&mut self, task: TaskId, from: NodeId, to: NodeId, lane: SenderLane, spacing: u64) -> u32 {
        let (lanes, spacings) = &mut self.lanes[from.index()];
        let index = lanes.len() as u32;
        lanes.push(lane);
        spacings.push(spacing);
        self.lane_of.insert((task, to), index);
        index
    }

    /// The frame of a cyclic node; `None` for others.
    pub(crate) fn frame(&self, node: NodeId, tasks: &[TaskId]) -> Option<CyclicSpec> {
        let (system, spec) = (&self.lowered.system, &self.lowered.system.nodes[node.index()]);
        if spec.arrivals != MessageArrivals::Cyclic {
            return None;
        }
        let slot_of = |role: Role| tasks.iter().position(|id| self.lowered.role(*id) == Some(role));
        let (receive, send) = (spec.receive?, spec.send?);
        Some(CyclicSpec {
            frame: receive.period,
            receive: (slot_of(Role::Receive)? as u32, receive.wcet),
            send: (slot_of(Role::Send)? as u32, send.wcet),
            needs: tasks.iter().map(|id| system.tasks[id.index()].wcet.saturating_add(spec.start_cost())).collect(),
        })
    }

    /// The messages of a node.
    pub(crate) fn messages(
        &mut self,
        node: NodeId,
        tasks: &[TaskId],
        clocks: &Rc<[NodeClock]>,
    ) -> Result<NodeMessages, SimError> {
        let spec = &self.lowered.system.nodes[node.index()];
        let reading = self.reading(node)?;
        let dropping = if let Reading::Measured(_) = reading { self.dropping(node) } else { BTreeSet::new() };
        let roles: Vec<TaskRole> = tasks.iter().map(|id| self.role_of(node, *id, &dropping)).collect();
        let (lanes, apart) = std::mem::take(&mut self.lanes[node.index()]);
        let most = |task: Option<TableTask>| {
            task.and_then(|task| task.cost.map(|cost| task.wcet.as_ns() / cost.as_ns().max(1)))
        };
        let rules = PartialEdfSpec {
            receive_most: most(spec.receive),
            send_most: most(spec.send),
            apart,
            messages_max: MESSAGES_MAX,
        };
        Ok(NodeMessages {
            node: node.0,
            latest_arrival: vec![Time::ZERO; roles.len()],
            messages: match roles.iter().position(|role| matches!(role, TaskRole::Interrupt)) {
                Some(slot) => Messages::Interrupts(Interrupts::new(MESSAGES_MAX), slot as u32),
                None => Messages::Table(PartialEdf::new(rules)),
            },
            roles,
            lanes,
            clocks: Rc::clone(clocks),
            steps: Steps::new(&spec.clock_steps),
            reading,
            created: 0,
            jobs: VecDeque::new(),
            outbox: Vec::new(),
        })
    }

    /// How a node reads times of other nodes. If all clocks begin at once and none steps, it knows them.
    fn reading(&self, node: NodeId) -> Result<Reading, SimError> {
        let clock = self.lowered.system.clock;
        if !self.lowered.system.has_unknown_clocks() {
            return Ok(Reading::Drawn(clock.error));
        }
        if clock.sync.is_none() {
            return Ok(Reading::Trusting);
        }
        let peers = self.neighbours.range((node, NodeId(0))..=(node, NodeId(u32::MAX))).map(|(_, peer)| peer.0);
        Ok(Reading::Measured(Measured::new(peers.collect(), clock.drift_ppm)?))
    }

    /// The tasks whose late jobs the node's first strategy drops.
    fn dropping(&self, node: NodeId) -> BTreeSet<TaskId> {
        let system = &self.lowered.system;
        let plan = Plan::resolve(system, node, &system.strategy(system.nodes[node.index()].strategy)).ok();
        let tasks = plan.iter().flat_map(|plan| &plan.tasks);
        tasks.filter(|task| task.late == Late::Drop).map(|task| task.task).collect()
    }

    fn role_of(&self, node: NodeId, id: TaskId, dropping: &BTreeSet<TaskId>) -> TaskRole {
        let (system, spec) = (&self.lowered.system, &self.lowered.system.nodes[node.index()]);
        match self.lowered.role(id) {
            Some(Role::Receive) => spec.receive.map_or(TaskRole::Local, TaskRole::Receive),
            Some(Role::Send) => spec.send.map_or(TaskRole::Local, TaskRole::Send),
            Some(Role::Interrupt) => TaskRole::Interrupt,
            Some(Role::Sync) => TaskRole::Sync(
                self.lane_of.range((id, NodeId(0))..=(id, NodeId(u32::MAX))).map(|(_, lane)| *lane).collect(),
            ),
            Some(Role::Hop { flow, hop }) => {
                let of = &system.flows[flow.index()];
                let to = of.hops().nth(hop as usize + 1);
                let shares = hop_deadlines(of, system.clock);
                TaskRole::Hop {
                    hop,
                    before: shares.iter().copied().take(hop as usize).fold(Span::ZERO, Span::saturating_add),
                    share: shares.get(hop as usize).copied().unwrap_or_default(),
                    drops: dropping.contains(&id),
                    lane: to.and_then(|to| self.lane_of.get(&(id, to)).copied()),
                }
            }
            None => TaskRole::Local,
        }
    }

    /// The machines between the nodes.
    pub(crate) fn network(self) -> Result<Network, SimError> {
        self.routes.build()
    }
}
