//! The network between nodes: the machines of takt-net and the packets under way in them.
//!
//! A message with a written delay passes a link. A message whose delay is `"auto"` passes the egress
//! of its sender, the ports on its route, and a link without delay. Each machine has one entry of the
//! calendar: first the egresses, then the ports, then the links. So at one instant all packets that
//! leave an egress have come to a port before the port serves its line.
//!
//! Every draw is keyed by the seed, the sending task, the port and the number of the instance. So a
//! new flow changes no other flow's draws. Every machine holds at most [`crate::MESSAGES_MAX`]
//! packets, and so the packets under way are bounded.

use takt_log::DropCause;
use takt_model::{Bytes, Draw, Span, Time, draw::Purpose};
use takt_net::{
    DropReason, Egress, EgressDecision, EgressEvent, Link, LinkDecision, LinkEvent, Packet, Port, PortDecision,
    PortEvent,
};
use takt_policy::Times;

use crate::clock::NodeClock;
use crate::messages::Message;

/// The route of messages from one node to another.
pub(crate) struct Route {
    /// The receiving node.
    pub(crate) to: u32,
    /// Index of the sender's egress; `None`: the delay is written.
    pub(crate) egress: Option<u32>,
    /// Ports in a row: the index of each, and there the index of this pair of nodes.
    pub(crate) ports: Vec<(u32, u32)>,
    /// Index of the link, which comes last.
    pub(crate) link: u32,
    /// Least and most delay of the link.
    pub(crate) delay: (Span, Span),
}

/// The properties of a lane's messages that machines need.
pub(crate) struct LaneProperties {
    /// Index of their route.
    pub(crate) route: u32,
    /// Their place in the sender's egress; `None`: their delay is written, and they go straight to the link.
    pub(crate) queue: Option<Queue>,
    /// Draws of their processing, by port of the route.
    pub(crate) draws: Vec<Draw>,
}

/// The place of a lane's packets in an egress.
pub(crate) struct Queue {
    pub(crate) class: usize,
    pub(crate) stream: u32,
    pub(crate) bytes: Bytes,
    /// From the deadline of the sending job to that of the job which the message releases. `None`: the message has no
    /// deadline.
    pub(crate) allowance: Option<Span>,
}

/// A message under way.
struct MessageInTransit {
    message: Message,
    lane: u32,
    /// How many ports of its route it has reached.
    ports_passed: usize,
}

/// An event of a message in the network.
pub(crate) enum Outcome {
    /// It is in the buffer of this node.
    Arrive(u32),
    /// Its first bit leaves on the link of its node; its size.
    Transmit(Bytes),
    /// A machine has dropped it.
    Drop(DropCause),
}

/// The values that a machine may change at an instant, besides its own state.
pub(crate) struct Effects<'a> {
    /// The instant, in true time.
    pub(crate) at: Time,
    /// The next wake-up of each machine and node.
    pub(crate) calendar: &'a mut Times,
    /// The events of messages at this instant, in order.
    pub(crate) out: &'a mut Vec<(Outcome, Message)>,
}

/// The machines, and the packets in them.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) egresses: Vec<Egress>,
    pub(crate) ports: Vec<Port>,
    pub(crate) links: Vec<Link>,
    pub(crate) routes: Vec<Route>,
    pub(crate) lanes: Vec<LaneProperties>,
    /// By tag of the packet.
    in_transit: Vec<MessageInTransit>,
    free_tags: Vec<u64>,
    egress_decisions: Vec<EgressDecision>,
    port_decisions: Vec<PortDecision>,
    link_decisions: Vec<LinkDecision>,
}

impl Network {
    /// The number of its machines. They have the first entries of the calendar.
    pub(crate) fn machine_count(&self) -> usize {
        self.egresses.len() + self.ports.len() + self.links.len()
    }

    /// Sets the first wake-ups. Only egresses have any, for their background traffic.
    pub(crate) fn set_first_wakeups(&self, calendar: &mut Times) {
        for (entry, egress) in self.egresses.iter().enumerate() {
            calendar.set(entry as u32, egress.next_wakeup().unwrap_or(Time::MAX));
        }
    }

    /// The sending task of a node with this clock gives a message to its lane.
    pub(crate) fn send(&mut self, lane: u32, message: Message, clock: NodeClock, turn: &mut Effects<'_>) {
        let tag = self.free_tags.pop().unwrap_or(self.in_transit.len() as u64);
        let transit = MessageInTransit { message, lane, ports_passed: 0 };
        match self.in_transit.get_mut(tag as usize) {
            Some(place) => *place = transit,
            None => self.in_transit.push(transit),
        }
        let LaneProperties { route, queue, .. } = &self.lanes[lane as usize];
        let egress = self.routes[*route as usize].egress;
        let (Some(queue), Some(egress)) = (queue, egress) else {
            let packet = Packet { stream: 0, bytes: Bytes::new(0), deadline: Time::MAX, tag };
            return self.pass_on(packet, turn);
        };
        let due = queue.allowance.map(|allowance| message.deadline.saturating_add(allowance));
        let deadline = due.map_or(Time::MAX, |due| clock.true_of(due));
        let packet = Packet { stream: queue.stream, bytes: queue.bytes, deadline, tag };
        let event = EgressEvent::Arrive { class: queue.class, packet };
        self.egress(egress, event, turn);
    }

    /// Wakes the machine with this entry of the calendar.
    pub(crate) fn wake(&mut self, entry: u32, turn: &mut Effects<'_>) {
        let (egresses, ports) = (self.egresses.len() as u32, self.ports.len() as u32);
        match entry.checked_sub(egresses) {
            None => self.egress(entry, EgressEvent::Wake, turn),
            Some(port) if port < ports => self.port(port, PortEvent::Wake, turn),
            Some(link) => self.link(link - ports, LinkEvent::Wake, turn),
        }
    }

    fn egress(&mut self, index: u32, event: EgressEvent, turn: &mut Effects<'_>) {
        let mut decisions = std::mem::take(&mut self.egress_decisions);
        let egress = &mut self.egresses[index as usize];
        egress.on_event(turn.at, event, &mut decisions);
        turn.calendar.set(index, egress.next_wakeup().unwrap_or(Time::MAX));
        for decision in decisions.drain(..) {
            match decision {
                EgressDecision::Start { packet, .. } if !packet.is_background() => {
                    let message = self.in_transit[packet.tag as usize].message;
                    turn.out.push((Outcome::Transmit(packet.bytes), message));
                }
                EgressDecision::End { packet, .. } if !packet.is_background() => {
                    self.pass_on(packet, turn);
                }
                EgressDecision::Drop { packet, why, .. } => self.drop_packet(packet, why, turn),
                EgressDecision::Start { .. } | EgressDecision::End { .. } => {}
            }
        }
        self.egress_decisions = decisions;
    }

    /// Gives a packet to the next machine on its route, after its last bit has left the machine before.
    fn pass_on(&mut self, packet: Packet, turn: &mut Effects<'_>) {
        let transit = &mut self.in_transit[packet.tag as usize];
        let lane = &self.lanes[transit.lane as usize];
        let route = &self.routes[lane.route as usize];
        let (message, number) = (transit.message, transit.message.instance);
        if let Some((port, pair)) = route.ports.get(transit.ports_passed).copied() {
            let latency_draw = message.bits(lane.draws[transit.ports_passed], Purpose::Processing);
            transit.ports_passed += 1;
            let event = PortEvent::Arrive { packet, pair, latency_draw };
            return self.port(port, event, turn);
        }
        let event = LinkEvent::Send {
            packet,
            number,
            delay: message.delay(route.delay),
            loss_draw: message.draw.bits(Purpose::Loss, number),
        };
        self.link(route.link, event, turn);
    }

    fn port(&mut self, index: u32, event: PortEvent, turn: &mut Effects<'_>) {
        let mut decisions = std::mem::take(&mut self.port_decisions);
        let port = &mut self.ports[index as usize];
        port.on_event(turn.at, event, &mut decisions);
        turn.calendar.set(self.egresses.len() as u32 + index, port.next_wakeup().unwrap_or(Time::MAX));
        for decision in decisions.drain(..) {
            match decision {
                PortDecision::Leave(packet) => self.pass_on(packet, turn),
                PortDecision::Drop(packet, why) => self.drop_packet(packet, why, turn),
            }
        }
        self.port_decisions = decisions;
    }

    fn link(&mut self, index: u32, event: LinkEvent, turn: &mut Effects<'_>) {
        let mut decisions = std::mem::take(&mut self.link_decisions);
        let link = &mut self.links[index as usize];
        link.on_event(turn.at, event, &mut decisions);
        let before = self.egresses.len() + self.ports.len();
        turn.calendar.set(before as u32 + index, link.next_wakeup().unwrap_or(Time::MAX));
        for decision in decisions.drain(..) {
            match decision {
                LinkDecision::Deliver(packet) => {
                    let (route, message) = self.take_out(packet);
                    turn.out.push((Outcome::Arrive(self.routes[route as usize].to), message));
                }
                LinkDecision::Drop(packet, why) => self.drop_packet(packet, why, turn),
            }
        }
        self.link_decisions = decisions;
    }

    fn drop_packet(&mut self, packet: Packet, why: DropReason, turn: &mut Effects<'_>) {
        let (_, message) = self.take_out(packet);
        let cause = match why {
            DropReason::Overflow => DropCause::Full,
            DropReason::Late => DropCause::Late,
            DropReason::Lost => DropCause::Lost,
            DropReason::TooLarge | DropReason::Unknown => DropCause::Unknown,
        };
        turn.out.push((Outcome::Drop(cause), message));
    }

    /// Removes a message that is no longer under way. Returns its route and the message.
    fn take_out(&mut self, packet: Packet) -> (u32, Message) {
        self.free_tags.push(packet.tag);
        let transit = &self.in_transit[packet.tag as usize];
        (self.lanes[transit.lane as usize].route, transit.message)
    }
}
