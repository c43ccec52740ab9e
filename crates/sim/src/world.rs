//! The world: nodes and the links between them, in one calendar.
//!
//! A node sends messages, a link delivers each of them after a delay, and the receiver buffers it.
//! Nothing else connects nodes. The calendar has one entry per link and per node, so that an event
//! costs O(log n). At one instant links come before nodes, and the lower index goes first. So a
//! receiving job finds the messages of the instant of its start, unless a node sends them just then.
//!
//! A link keeps the order of its messages, and no delay exceeds the most that the network states.
//! Each delay is drawn by the seed, the sending task and the number of the instance. So a new flow
//! changes no other flow's draws. A node with flows runs by its own clock, which starts at zero and
//! goes at a constant rate within the drift.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use takt_log::{Event, Sink};
use takt_model::flows::{self, Lowered, Role, hop_deadlines};
use takt_model::{
    Auto, Draw, FlowId, Network, NodeId, Probability, Span, System, TableTask, TaskId, Time, draw::Purpose,
};
use takt_policy::{PartialEdf, PartialEdfSpec};

use crate::clock::{NodeClock, TrueTime};
use crate::station::{LaneWire, Message, Part, Station, Then};
use crate::times::Times;
use crate::{AnyNode, MESSAGES_MAX, SimError, SimOptions, SimSummary};

/// A link from one node to another.
struct Link {
    to: u32,
    min: Span,
    max: Span,
    loss: Probability,
    /// Messages under way and the instants at which they arrive.
    way: VecDeque<(Time, Message)>,
}

impl Link {
    /// Sends a message at `now`. False when it is lost, or too many are under way.
    fn send(&mut self, message: Message, now: Time) -> bool {
        let billionths = u128::from(Probability::ONE.billionths());
        let drawn = (u128::from(message.draw.bits(Purpose::Loss, message.instance)) * billionths) >> 64;
        if drawn < u128::from(self.loss.billionths()) || self.way.len() >= MESSAGES_MAX {
            return false;
        }
        let delay = message.draw.uniform(Purpose::Delay, message.instance, self.min, self.max);
        let last = self.way.back().map_or(Time::ZERO, |(at, _)| *at);
        self.way.push_back((now.saturating_add(delay).max(last), message));
        true
    }

    /// The next message that has arrived by `now`.
    fn take_due(&mut self, now: Time) -> Option<Message> {
        self.way.front().filter(|(due, _)| *due <= now)?;
        self.way.pop_front().map(|(_, message)| message)
    }

    fn next(&self) -> Time {
        self.way.front().map_or(Time::MAX, |(at, _)| *at)
    }
}

/// Simulates a system with flows or table tasks.
pub(crate) fn simulate<S: Sink>(lowered: &Lowered, options: &SimOptions, sink: &mut S) -> Result<SimSummary, SimError> {
    let system = &lowered.system;
    let end = Time::ZERO + options.duration;
    let clocks: Rc<[NodeClock]> = (system.nodes.iter())
        .map(|node| NodeClock::draw(system.clock.drift_ppm, Draw::new(options.seed, &node.name)))
        .collect();
    let mut wires = Wires::new(lowered, options.seed)?;
    let mut nodes = Vec::with_capacity(system.nodes.len());
    for id in (0..system.nodes.len() as u32).map(NodeId) {
        let until = clocks[id.index()].local(end);
        let mut node = AnyNode::new(system, id, options.seed, until, sink.wants_misses())?;
        let station = wires.station(lowered, id, &clocks);
        node.connect(station);
        nodes.push(node);
    }
    let mut links = wires.links;
    let mut calendar = Times::never(links.len() + nodes.len());
    let first = links.len();
    let only = options.node.map(|node| node.0);
    let next = |node: &AnyNode<'_>, clock: NodeClock| node.next_instant().map_or(Time::MAX, |at| clock.true_of(at));
    for (i, node) in nodes.iter().enumerate() {
        calendar.set((first + i) as u32, next(node, clocks[i]));
    }
    let mut sent = Vec::new();
    loop {
        let (at, entry) = calendar.earliest();
        if at > end {
            break;
        }
        if let Some(link) = links.get_mut(entry as usize) {
            while let Some(message) = link.take_due(at) {
                let clock = clocks[link.to as usize];
                let mut sink = TrueTime { sink: &mut *sink, clock, only };
                if let Some(station) = nodes[link.to as usize].station() {
                    station.arrive(message, clock.local(at), &mut sink);
                }
            }
            calendar.set(entry, link.next());
            continue;
        }
        let i = entry as usize - first;
        let (node, clock) = (&mut nodes[i], clocks[i]);
        let Some(now) = node.next_instant() else {
            calendar.set(entry, Time::MAX);
            continue;
        };
        let mut sink = TrueTime { sink: &mut *sink, clock, only };
        node.advance(now.saturating_add(Span::from_ns(1)), &mut sink)?;
        if let Some(station) = node.station() {
            sent.append(&mut station.outbox);
        }
        for (to, message) in sent.drain(..) {
            let link = &mut links[to as usize];
            if link.send(message, at) {
                calendar.set(to, link.next());
            } else {
                sink.event(i as u32, now, &Event::Drop { job: message.job, message: message.number });
            }
        }
        calendar.set(entry, next(node, clock));
    }
    for (node, clock) in nodes.iter_mut().zip(clocks.iter()) {
        node.finish(&mut TrueTime { sink: &mut *sink, clock: *clock, only });
    }
    let wanted = nodes.iter().enumerate().filter(|(i, _)| only.is_none_or(|only| only as usize == *i));
    Ok(SimSummary { end, released: wanted.map(|(_, node)| node.released()).sum() })
}

/// The ways of all messages.
struct Wires {
    links: Vec<Link>,
    /// The link of a pair of nodes.
    pairs: BTreeMap<(NodeId, NodeId), u32>,
    /// By node: its lanes, and how many sending jobs apart their messages leave.
    lanes: Vec<(Vec<LaneWire>, Vec<u64>)>,
    /// The lane of a task's messages, by task and receiver.
    lane_of: BTreeMap<(TaskId, NodeId), u32>,
    /// Slots, by task.
    slots: Vec<u32>,
}

impl Wires {
    fn new(lowered: &Lowered, seed: u64) -> Result<Self, SimError> {
        let system = &lowered.system;
        let mut counts = vec![0; system.nodes.len()];
        let slot = |task: &takt_model::Task| {
            let count: &mut u32 = &mut counts[task.node.index()];
            *count += 1;
            *count - 1
        };
        let slots = system.tasks.iter().map(slot).collect();
        let lanes = vec![(Vec::new(), Vec::new()); system.nodes.len()];
        let mut wires = Wires { links: Vec::new(), pairs: BTreeMap::new(), lanes, lane_of: BTreeMap::new(), slots };
        for (i, flow) in system.flows.iter().enumerate() {
            for (hop, (from, to)) in flow.hops().zip(flow.hops().skip(1)).enumerate() {
                let id = |hop: usize| lowered.task_of(FlowId(i as u32), hop as u32);
                let (Some(task), Some(after)) = (id(hop), id(hop + 1)) else { continue };
                let link = wires.link(system, from, to)?.ok_or_else(|| SimError::NoNetwork {
                    flow: flow.name.clone(),
                    from: system.nodes[from.index()].name.clone(),
                    to: system.nodes[to.index()].name.clone(),
                })?;
                let period = system.nodes[from.index()].send.map_or(1, |send| send.period.as_ns().max(1));
                let then = Then::Job { slot: wires.slots[after.index()] };
                let draw = Draw::new(seed, &system.tasks[task.index()].name);
                wires.lane(task, from, to, LaneWire { link, then, draw }, flow.send_gap.as_ns().div_ceil(period));
            }
        }
        wires.synchronise(lowered, seed)?;
        Ok(wires)
    }

    /// Requests of each synchronisation job, and the answers to them, where networks go both ways.
    fn synchronise(&mut self, lowered: &Lowered, seed: u64) -> Result<(), SimError> {
        let system = &lowered.system;
        let (mut syncs, mut receivers) = (BTreeMap::new(), BTreeMap::new());
        for (id, task) in system.tasks.iter().enumerate().skip(lowered.first) {
            let id = TaskId(id as u32);
            match lowered.role(id) {
                Some(Role::Sync) => syncs.insert(task.node, id),
                Some(Role::Receive) => receivers.insert(task.node, id),
                _ => None,
            };
        }
        if system.clock.sync.is_none() {
            return Ok(());
        }
        for (from, to) in flows::neighbours(system) {
            let (Some(task), Some(link)) = (syncs.get(&from), self.link(system, from, to)?) else { continue };
            let answer = match (receivers.get(&to), self.link(system, to, from)?) {
                (Some(receive), Some(back)) => {
                    let draw = Draw::new(seed, &format!("{} to {}", system.tasks[receive.index()].name, from.0));
                    let wire = LaneWire { link: back, then: Then::Nothing, draw };
                    Some(self.lane(*receive, to, from, wire, 1))
                }
                _ => None,
            };
            let draw = Draw::new(seed, &format!("{} to {}", system.tasks[task.index()].name, to.0));
            self.lane(*task, from, to, LaneWire { link, then: Then::Answer { lane: answer }, draw }, 1);
        }
        Ok(())
    }

    fn lane(&mut self, task: TaskId, from: NodeId, to: NodeId, wire: LaneWire, apart: u64) -> u32 {
        let (lanes, distances) = &mut self.lanes[from.index()];
        let lane = lanes.len() as u32;
        lanes.push(wire);
        distances.push(apart);
        self.lane_of.insert((task, to), lane);
        lane
    }

    /// The link between two nodes; `None` without a network.
    fn link(&mut self, system: &System, from: NodeId, to: NodeId) -> Result<Option<u32>, SimError> {
        if let Some(link) = self.pairs.get(&(from, to)) {
            return Ok(Some(*link));
        }
        let Some((min, max, loss)) = between(system, from, to)? else { return Ok(None) };
        let link = self.links.len() as u32;
        self.links.push(Link { to: to.0, min, max, loss, way: VecDeque::new() });
        self.pairs.insert((from, to), link);
        Ok(Some(link))
    }

    /// The messages of a node.
    fn station(&mut self, lowered: &Lowered, node: NodeId, clocks: &Rc<[NodeClock]>) -> Station {
        let (system, spec) = (&lowered.system, &lowered.system.nodes[node.index()]);
        let parts: Vec<Part> = system.tasks_of(node).map(|(id, _)| self.part(lowered, node, id)).collect();
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
        Station {
            node: node.0,
            latest: vec![Time::ZERO; parts.len()],
            parts,
            lanes,
            messages: PartialEdf::new(rules),
            clocks: Rc::clone(clocks),
            error: system.clock.error,
            left: 0,
            jobs: VecDeque::new(),
            outbox: Vec::new(),
        }
    }

    fn part(&self, lowered: &Lowered, node: NodeId, id: TaskId) -> Part {
        let (system, spec) = (&lowered.system, &lowered.system.nodes[node.index()]);
        match lowered.role(id) {
            Some(Role::Receive) => spec.receive.map_or(Part::Task, Part::Receive),
            Some(Role::Send) => spec.send.map_or(Part::Task, Part::Send),
            Some(Role::Sync) => Part::Sync(
                self.lane_of.range((id, NodeId(0))..=(id, NodeId(u32::MAX))).map(|(_, lane)| *lane).collect(),
            ),
            Some(Role::Hop { flow, hop }) => {
                let of = &system.flows[flow.index()];
                let to = of.hops().nth(hop as usize + 1);
                let before = hop_deadlines(of, system.clock).into_iter().take(hop as usize);
                Part::Hop {
                    hop,
                    before: before.fold(Span::ZERO, Span::saturating_add),
                    lane: to.and_then(|to| self.lane_of.get(&(id, to)).copied()),
                }
            }
            None => Part::Task,
        }
    }
}

/// Least and most delay between two nodes, and the chance of a loss. Networks that name both nodes
/// come first, then those with one name, then the nameless one. Several count with their widest values.
fn between(system: &System, from: NodeId, to: NodeId) -> Result<Option<(Span, Span, Probability)>, SimError> {
    let fits =
        |network: &&Network| network.from.is_none_or(|node| node == from) && network.to.is_none_or(|node| node == to);
    let named = |network: &Network| u8::from(network.from.is_some()) + u8::from(network.to.is_some());
    let most = system.networks.iter().filter(fits).map(named).max();
    let mut hull: Option<(Span, Span, Probability)> = None;
    for network in system.networks.iter().filter(fits).filter(|network| Some(named(network)) == most) {
        let Auto::Value((min, max)) = network.delay else {
            return Err(SimError::AutoDelay {
                from: system.nodes[from.index()].name.clone(),
                to: system.nodes[to.index()].name.clone(),
            });
        };
        let (least, longest, loss) = hull.unwrap_or((min, max, network.loss));
        hull = Some((least.min(min), longest.max(max), loss.max(network.loss)));
    }
    Ok(hull)
}
