//! The cluster of [HEDF IV-A] and [HEDF IV-B]: nodes at one switch, each with a client and a server
//! of its benchmark, packet by packet through the machines of takt-net.
//!
//! - Every period a client sends a frame of messages. Their number goes round robin from half a
//!   burst to a whole one, their receivers go round robin over all nodes. Messages to the own node
//!   need no network and are left out.
//! - A server answers each message at once, with a message of the same size and deadline.
//! - A node's egress leads to the switch. The switch has an output port to each node, in order of
//!   arrival.
//! - At one instant ports come before egresses, and clients come first of all. The lower node goes
//!   first.

use takt_model::draw::Purpose;
use takt_model::{Bytes, Draw, Rate, Span, Time};
use takt_net::{
    ClassSpec, Egress, EgressDecision, EgressEvent, EgressSpec, Packet, Port, PortDecision, PortEvent, PortSpec,
    TokenBucket,
};

use super::setups::NODES;
use crate::failure::Failure;

/// 400 bytes of a message, headers of TCP with its timestamps, IP and Ethernet.
pub(super) const MESSAGE: u64 = 466;
/// The links are of Gigabit Ethernet.
pub(super) const LINK: u64 = 1_000_000_000;
/// Messages of one client that are streams of their own under EDF: so many can wait in any order.
pub(super) const STREAMS: u64 = 1_024;
/// The class of requests; replies have the last class.
const REQUESTS: usize = 0;

#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// The classes of each egress: requests and replies together in one, or one for each.
    pub(super) classes: Vec<ClassSpec>,
    pub(super) period: Span,
    pub(super) burst: u64,
    /// D: deadlines are uniform in [D, 2 D] from the message's creation.
    pub(super) deadline: Span,
    /// The longest time that a message and its answer spend in the hosts; it is uniform from
    /// `hosts.0` to `hosts.1`.
    pub(super) hosts: (Span, Span),
    /// Waiting for tokens ends at multiples of this on the node's clock, as timers of the kernel
    /// did.
    pub(super) tick: Option<Span>,
    /// Whether a client sends a frame only after the one before has left the node.
    pub(super) blocks: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ClusterRun {
    pub(super) messages: Vec<Message>,
    /// When the first node's requests started on its link.
    pub(super) starts: Vec<Time>,
    /// Frames that waited for the one before.
    pub(super) blocked: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) client: usize,
    pub(super) server: usize,
    pub(super) created: Time,
    /// Relative to its creation.
    pub(super) deadline: Span,
    /// From its creation to the answer's arrival; `None` if it was dropped.
    pub(super) round_trip: Option<Span>,
    /// How long it and its answer waited until their buckets last opened for their classes.
    pub(super) tokens: Span,
    /// When the packet came to the egress in which it is.
    since: Time,
}

impl Message {
    pub(super) fn in_time(&self) -> bool {
        self.round_trip.is_some_and(|round_trip| round_trip <= self.deadline)
    }
}

impl Cluster {
    pub(super) fn size(&self, client: usize, frame: u64) -> u64 {
        let least = self.burst / 2;
        least + (frame + client as u64) % (self.burst - least + 1)
    }

    pub(super) fn receiver(client: usize, number: u64) -> usize {
        (client + (number % NODES as u64) as usize) % NODES
    }

    /// Simulates the frames of [0, `duration`), until every message has its answer.
    pub(super) fn run(&self, seed: u64, duration: Span) -> Result<ClusterRun, Failure> {
        let mut world = World::new(self, seed, duration)?;
        while let Some((now, what)) = world.next() {
            world.now = now;
            match what {
                WorldEvent::Frame(node) => world.frame(node),
                WorldEvent::Port(node) => world.port(node, PortEvent::Wake),
                WorldEvent::Egress(node) => world.egress(node, EgressEvent::Wake),
            }
        }
        Ok(world.ran)
    }
}

/// The messages of a client, in order. They depend on the seed alone.
#[derive(Clone, Debug)]
pub(super) struct Client {
    node: usize,
    /// The start of its clock's periods and ticks.
    offset: Span,
    frame: u64,
    /// The number of messages so far, with those to its own node.
    created: u64,
    draw: Draw,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Planned {
    pub(super) number: u64,
    pub(super) server: usize,
    /// Relative to its creation.
    pub(super) deadline: Span,
    /// The time that it and its answer spend in the hosts.
    pub(super) hosts: Span,
}

impl Planned {
    /// Under EDF each message is a stream of its own.
    pub(super) fn stream(client: usize, number: u64) -> u32 {
        (client as u64 * STREAMS + number % STREAMS) as u32
    }
}

impl Client {
    pub(super) fn new(cluster: &Cluster, seed: u64, node: usize) -> Client {
        let draw = Draw::new(seed, &format!("node-{node}"));
        let offset = draw.uniform(Purpose::Distance, 0, Span::ZERO, cluster.period);
        Client { node, offset, frame: 0, created: 0, draw }
    }

    pub(super) fn due(&self, cluster: &Cluster) -> Option<Time> {
        let after = cluster.period.checked_mul(self.frame)?.checked_add(self.offset)?;
        Time::ZERO.checked_add(after)
    }

    pub(super) fn next_frame(&mut self, cluster: &Cluster) -> Vec<Planned> {
        let numbers = self.created..self.created + cluster.size(self.node, self.frame);
        (self.frame, self.created) = (self.frame + 1, numbers.end);
        let of = |number: u64| {
            let (server, d) = (Cluster::receiver(self.node, number), cluster.deadline);
            let (least, most) = cluster.hosts;
            Planned {
                number,
                server,
                deadline: self.draw.uniform(Purpose::Error, number, d, d.saturating_add(d)),
                hosts: self.draw.uniform(Purpose::Delay, number, least, most),
            }
        };
        numbers.map(of).filter(|planned| planned.server != self.node).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum WorldEvent {
    Frame(usize),
    Port(usize),
    Egress(usize),
}

struct Node {
    egress: Egress,
    port: Port,
    /// When the egress wants to be woken.
    wake: Option<Time>,
    sending: bool,
    /// By class.
    gates: Vec<Gate>,
    client: Client,
    /// When the next frame is due; `None` after the last.
    due: Option<Time>,
    /// Requests in the egress.
    queued_requests: usize,
}

/// The bucket of a class, and when it opens.
struct Gate {
    /// A copy of the bucket in the egress.
    bucket: Option<TokenBucket>,
    opened: Time,
}

impl Gate {
    fn new(class: &ClassSpec) -> Result<Gate, Failure> {
        let bucket = class.bucket.map(|bucket| TokenBucket::new(bucket, class.packet_max)).transpose();
        Ok(Gate { bucket: bucket.map_err(Failure::trouble)?, opened: Time::ZERO })
    }
}

struct World<'a> {
    cluster: &'a Cluster,
    nodes: Vec<Node>,
    now: Time,
    end: Time,
    ran: ClusterRun,
    egress_decisions: Vec<EgressDecision>,
    port_decisions: Vec<PortDecision>,
}

impl<'a> World<'a> {
    fn new(cluster: &'a Cluster, seed: u64, duration: Span) -> Result<World<'a>, Failure> {
        let node = |i: usize| {
            let client = Client::new(cluster, seed, i);
            let (rate, packets_max) = (Rate::from_bps(LINK), PortSpec::PACKETS_MAX * NODES);
            let port = PortSpec { rate, latency: Span::ZERO, cross: None, fifo: true, packets_max, pairs: 1 };
            Ok(Node {
                egress: Egress::new(EgressSpec { rate, classes: cluster.classes.clone() }).map_err(Failure::trouble)?,
                port: Port::new(port).map_err(Failure::trouble)?,
                wake: None,
                sending: false,
                gates: cluster.classes.iter().map(Gate::new).collect::<Result<_, _>>()?,
                due: client.due(cluster),
                client,
                queued_requests: 0,
            })
        };
        Ok(World {
            cluster,
            nodes: (0..NODES).map(node).collect::<Result<_, Failure>>()?,
            now: Time::ZERO,
            end: Time::ZERO.saturating_add(duration),
            ran: ClusterRun::default(),
            egress_decisions: Vec::new(),
            port_decisions: Vec::new(),
        })
    }

    fn next(&self) -> Option<(Time, WorldEvent)> {
        let mut next: Option<(Time, WorldEvent)> = None;
        let mut offer = |at: Option<Time>, what: WorldEvent| {
            if let Some(at) = at.filter(|at| next.is_none_or(|(first, _)| *at < first)) {
                next = Some((at, what));
            }
        };
        for (i, node) in self.nodes.iter().enumerate() {
            let waits = self.cluster.blocks && node.queued_requests > 0;
            offer(node.due.filter(|_| !waits), WorldEvent::Frame(i));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            offer(node.port.next_wakeup(), WorldEvent::Port(i));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            offer(node.wake, WorldEvent::Egress(i));
        }
        next.map(|(at, what)| (at.max(self.now), what))
    }

    fn frame(&mut self, client: usize) {
        let cluster = self.cluster;
        self.ran.blocked += u64::from(self.nodes[client].due.is_some_and(|due| due < self.now));
        for planned in self.nodes[client].client.next_frame(cluster) {
            self.nodes[client].queued_requests += 1;
            let packet = Packet {
                stream: Planned::stream(client, planned.number),
                bytes: Bytes::new(MESSAGE),
                deadline: self.now.saturating_add(planned.deadline),
                tag: self.ran.messages.len() as u64 * 2,
            };
            self.ran.messages.push(Message {
                client,
                server: planned.server,
                created: self.now,
                deadline: planned.deadline,
                // The time in the hosts is known from the start, and added at the end.
                round_trip: Some(planned.hosts),
                tokens: Span::ZERO,
                since: self.now,
            });
            self.enter(client, REQUESTS, packet);
        }
        let node = &mut self.nodes[client];
        node.due = node.client.due(cluster).filter(|due| *due < self.end);
    }

    fn enter(&mut self, node: usize, class: usize, packet: Packet) {
        self.ran.messages[(packet.tag / 2) as usize].since = self.now;
        self.egress(node, EgressEvent::Arrive { class, packet });
    }

    fn egress(&mut self, at: usize, event: EgressEvent) {
        let mut decisions = std::mem::take(&mut self.egress_decisions);
        self.nodes[at].egress.on_event(self.now, event, &mut decisions);
        for decision in decisions.drain(..) {
            match decision {
                EgressDecision::Start { class, packet, end } => self.start(at, class, packet, end),
                EgressDecision::End { packet, .. } => {
                    self.nodes[at].sending = false;
                    self.leave_egress(at, packet);
                    let message = self.ran.messages[(packet.tag / 2) as usize];
                    let to = if is_reply(&packet) { message.client } else { message.server };
                    self.port(to, PortEvent::Arrive { packet, pair: 0, latency_draw: 0 });
                }
                EgressDecision::Drop { packet, .. } => {
                    self.leave_egress(at, packet);
                    self.ran.messages[(packet.tag / 2) as usize].round_trip = None;
                }
            }
        }
        self.egress_decisions = decisions;
        self.nodes[at].wake = self.wake_of(at);
    }

    /// When an egress is woken. A timer for tokens ends at a tick.
    fn wake_of(&self, at: usize) -> Option<Time> {
        let node = &self.nodes[at];
        let wake = node.egress.next_wakeup()?;
        Some(if node.sending || wake <= self.now { wake } else { self.timer(at, wake) })
    }

    /// When a timer of a node ends that is set to `wake`.
    fn timer(&self, at: usize, wake: Time) -> Time {
        let Some(tick) = self.cluster.tick else { return wake };
        let first = Time::ZERO.saturating_add(self.nodes[at].client.offset);
        let ticks = wake.saturating_since(first).as_ns().div_ceil(tick.as_ns().max(1));
        first.saturating_add(tick.checked_mul(ticks).unwrap_or(Span::MAX))
    }

    fn start(&mut self, at: usize, class: usize, packet: Packet, end: Time) {
        self.nodes[at].sending = true;
        let gate = &mut self.nodes[at].gates[class];
        let message = &mut self.ran.messages[(packet.tag / 2) as usize];
        message.tokens = message.tokens.saturating_add(gate.opened.min(self.now).saturating_since(message.since));
        let ready = gate.bucket.as_mut().map(|bucket| {
            bucket.charge(self.now, packet.bytes);
            bucket.ready_at(self.now)
        });
        if let Some(ready) = ready.filter(|ready| *ready > end) {
            self.nodes[at].gates[class].opened = self.timer(at, ready);
        }
        if at == 0 && !is_reply(&packet) {
            self.ran.starts.push(self.now);
        }
    }

    /// A packet leaves the egress of a node.
    fn leave_egress(&mut self, at: usize, packet: Packet) {
        let node = &mut self.nodes[at];
        node.queued_requests -= usize::from(!is_reply(&packet));
    }

    fn port(&mut self, at: usize, event: PortEvent) {
        let mut decisions = std::mem::take(&mut self.port_decisions);
        self.nodes[at].port.on_event(self.now, event, &mut decisions);
        for decision in decisions.drain(..) {
            match decision {
                PortDecision::Leave(packet) if is_reply(&packet) => {
                    let message = &mut self.ran.messages[(packet.tag / 2) as usize];
                    let network = self.now.saturating_since(message.created);
                    message.round_trip = message.round_trip.map(|hosts| hosts.saturating_add(network));
                }
                PortDecision::Leave(packet) => {
                    let class = self.cluster.classes.len() - 1;
                    self.enter(at, class, Packet { tag: packet.tag + 1, ..packet });
                }
                PortDecision::Drop(packet, _) => self.ran.messages[(packet.tag / 2) as usize].round_trip = None,
            }
        }
        self.port_decisions = decisions;
    }
}

fn is_reply(packet: &Packet) -> bool {
    packet.tag % 2 == 1
}

#[cfg(test)]
mod tests {
    use takt_net::BucketSpec;

    use super::*;

    fn cluster() -> Cluster {
        Cluster {
            classes: vec![ClassSpec::fifo()],
            period: Span::from_ms(10),
            burst: 2,
            deadline: Span::from_ms(1),
            hosts: (Span::ZERO, Span::ZERO),
            tick: None,
            blocks: false,
        }
    }

    #[test]
    fn messages_in_an_empty_network_take_four_lines() {
        let ran = cluster().run(1, Span::from_s(1)).map_err(|failure| failure.message).unwrap();
        let least = ran.messages.iter().filter_map(|message| message.round_trip).min().unwrap();
        // 466 B at 1 Gbit/s are 3.728 us.
        assert_eq!(least, Span::from_ns(4 * 3_728));
        assert!(ran.messages.iter().all(|message| message.in_time() && message.server != message.client));
        // 100 frames of 1 or 2 messages from each node; one in eight stays.
        assert_eq!(ran.messages.len(), 8 * (150 - 19));
    }

    #[test]
    fn tokens_are_waited_for_exactly_or_until_a_tick() {
        // A message costs 1.864 ms, and two may go at once.
        let bucket = BucketSpec { rate: Rate::from_bps(2_000_000), burst: Bytes::new(MESSAGE) };
        let class = ClassSpec { bucket: Some(bucket), packet_max: Bytes::new(MESSAGE), ..ClassSpec::fifo() };
        let shared = Cluster { classes: vec![class, ClassSpec::fifo()], burst: 3, ..cluster() };
        let waits = |tick: Option<Span>| {
            let ran = Cluster { tick, ..shared.clone() }.run(1, Span::from_s(1));
            let messages = ran.map_err(|failure| failure.message).unwrap().messages;
            messages.iter().map(|message| message.tokens.as_ns()).max().unwrap()
        };
        let exact = waits(None);
        assert!((1_850_000..=1_870_000).contains(&exact), "{exact}");
        assert!((1_900_000..=2_000_000).contains(&waits(Some(Span::from_ms(1)))));
    }

    #[test]
    fn late_messages_are_dropped_and_frames_wait() {
        let mut class = ClassSpec::edf(STREAMS as usize * NODES);
        class.queue.late = takt_net::LateRule::Drop;
        let full = Cluster {
            classes: vec![class],
            period: Span::from_us(50),
            burst: 40,
            deadline: Span::from_us(50),
            blocks: true,
            ..cluster()
        };
        let ran = full.run(1, Span::from_ms(5)).map_err(|failure| failure.message).unwrap();
        assert!(ran.blocked > 0 && ran.messages.iter().any(|message| message.round_trip.is_none()));
        assert!(ran.messages.iter().any(Message::in_time));
    }
}
