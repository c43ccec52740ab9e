//! The world: nodes and the network between them, in one calendar.
//!
//! A node sends messages, the machines of the network deliver each of them after a delay, and the
//! receiver buffers it. Nothing else connects nodes. The calendar has one entry per machine and per
//! node, so that an event costs O(log n). At one instant machines come before nodes, and the lower
//! index goes first. So a receiving job finds the messages of the instant of its start, unless a
//! node sends them just then.
//!
//! Messages come before the ends of jobs, because an end reads no message: only starts and interrupts
//! do. So the network is done with an instant before nodes step, and each node steps once. The order
//! shows at one place: an interrupt by an arrival goes before that of a job that ends just then.
//!
//! The machines run in true time. A node runs by its own clock, which begins at zero, at an instant
//! within the offset, and goes at a constant rate within the drift. Steps of the clock change only the times that its
//! messages carry.

use std::rc::Rc;

use takt_log::{Event, Sink};
use takt_model::{Draw, FlowId, NodeId, Span, Time, flows::Lowered};
use takt_policy::Times;

use crate::clock::{At, NodeClock, TrueTime};
use crate::lanes::Lanes;
use crate::messages::Message;
use crate::network::{Effects, Outcome};
use crate::traffic::Traffic;
use crate::{AnyNode, SimError, SimOptions, SimSummary, by_node};

/// Simulates a system with flows or table tasks.
pub(crate) fn simulate<S: Sink>(
    mut lowered: Lowered,
    options: &SimOptions,
    traffic: &Traffic,
    sink: &mut S,
) -> Result<SimSummary, SimError> {
    for flow in 0..lowered.system.flows.len() {
        if let Some(first) = lowered.task_of(FlowId(flow as u32), 0) {
            lowered.system.tasks[first.index()].offset = traffic.offset(flow);
        }
    }
    let (lowered, system) = (&lowered, &lowered.system);
    let end = Time::ZERO + options.duration;
    let clocks: Rc<[NodeClock]> =
        (system.nodes.iter()).map(|node| NodeClock::draw(system.clock, Draw::new(options.seed, &node.name))).collect();
    let mut lanes = Lanes::new(lowered, options.seed, traffic)?;
    let tasks = by_node(system);
    let mut nodes = Vec::with_capacity(system.nodes.len());
    for id in (0..system.nodes.len() as u32).map(NodeId) {
        let until = clocks[id.index()].local(end);
        let of = &tasks[id.index()];
        let mut node = match lanes.frame(id, of) {
            Some(spec) => AnyNode::cyclic(system, id, of, spec, options.seed, until, sink.wants_misses()),
            None => AnyNode::new(system, id, of, options.seed, until, sink.wants_misses())?,
        };
        let messages = lanes.messages(id, of, &clocks)?;
        node.connect(messages);
        nodes.push(node);
    }
    let mut network = lanes.network()?;
    let first = network.machine_count();
    let mut calendar = Times::never(first + nodes.len());
    network.set_first_wakeups(&mut calendar);
    let only = options.node.map(|node| node.0);
    let next = |node: &AnyNode<'_>, clock: NodeClock| node.next_instant().map_or(Time::MAX, |at| clock.true_of(at));
    for (i, node) in nodes.iter().enumerate() {
        calendar.set((first + i) as u32, next(node, clocks[i]));
    }
    let (mut sent, mut out) = (Vec::new(), Vec::new());
    loop {
        let (at, entry) = calendar.earliest();
        if at > end {
            break;
        }
        let mut turn = Effects { at, calendar: &mut calendar, out: &mut out };
        if let Some(i) = (entry as usize).checked_sub(first) {
            let (node, clock) = (&mut nodes[i], clocks[i]);
            if let Some(now) = node.next_instant() {
                let mut sink = TrueTime { sink: &mut *sink, clock, not_before: at, only };
                node.advance(now.saturating_add(Span::from_ns(1)), &mut sink)?;
            }
            if let Some(messages) = node.messages() {
                sent.append(&mut messages.outbox);
            }
            for (lane, message) in sent.drain(..) {
                network.send(lane, message, clock, &mut turn);
            }
            calendar.set(entry, next(node, clock));
        } else {
            network.wake(entry, &mut turn);
        }
        for (outcome, message) in out.drain(..) {
            let receiver = if let Outcome::Arrive(to) = outcome { Some(to as usize) } else { None };
            carry_out(outcome, message, at, (&mut nodes, &clocks, only), sink);
            if let Some(to) = receiver {
                // It may interrupt the node now. The node's clock may have shown this instant before.
                calendar.set((first + to) as u32, next(&nodes[to], clocks[to]).max(at));
            }
        }
    }
    for (node, clock) in nodes.iter_mut().zip(clocks.iter()).filter(|(_, clock)| clock.has_started(end)) {
        node.finish(&mut TrueTime { sink: &mut *sink, clock: *clock, not_before: end, only });
    }
    let wanted = nodes.iter().enumerate().filter(|(i, _)| only.is_none_or(|only| only as usize == *i));
    Ok(SimSummary { end, released: wanted.map(|(_, node)| node.released()).sum() })
}

/// Hands an event of the network to the receiver and to the log.
fn carry_out<S: Sink>(
    outcome: Outcome,
    message: Message,
    at: Time,
    (nodes, clocks, only): (&mut [AnyNode<'_>], &[NodeClock], Option<u32>),
    sink: &mut S,
) {
    let mut sink = At { sink, at, only };
    let from = message.from;
    match outcome {
        Outcome::Arrive(to) => {
            nodes[to as usize].deliver(message, clocks[to as usize].local(at), &mut sink);
        }
        Outcome::Transmit(bytes) => {
            let bytes = u32::try_from(bytes.get()).unwrap_or(u32::MAX);
            sink.event(from, at, &Event::Transmit { message: message.number, bytes });
        }
        Outcome::Drop(cause) => {
            sink.event(from, at, &Event::Drop { job: message.job, message: message.number, cause });
        }
    }
}
