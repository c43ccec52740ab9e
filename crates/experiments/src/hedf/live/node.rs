//! The thread of a live node: its client, its server, and its queue before the kernel.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::Epoch;
use takt_linux::clock::{pause, realtime_ns};
use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_linux::net::End;
use takt_linux::outgoing::Outgoing;
use takt_linux::sched::{Class, ClassGuard};
use takt_linux::seqpacket::Poll;
use takt_model::{Bytes, Span, Time};
use takt_net::{Packet, PacketQueue};

use super::super::cluster::{Client, MESSAGE, Planned};
use super::super::setups::NODES;
use super::wire::{Kind, LENGTH, Wire};
use super::{PORTS, PRIORITIES, Run};
use crate::failure::Failure;

/// Threads of nodes sleep between packets, so other threads of their CPUs go on.
const PRIORITY: u8 = 10;
const BUFFER: usize = 4 << 20;
/// A socket with the smallest buffer reports room when it holds less than this.
const UNSENT_MAX: u64 = 2_304;
/// The longest sleep, so that a stop is seen.
const SLEEP_MAX: Span = Span::from_ms(20);
/// Datagrams that are received before the thread looks at its clock.
const BATCH: usize = 32;
/// Other traffic: the payload of a packet, and how long a sender waits for room.
const BULK: (usize, Span) = (1_472, Span::from_ms(5));
const REQUEST: usize = 0;
const REPLY: usize = 1;

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ClientRecord {
    pub(in super::super) client: usize,
    pub(in super::super) number: u64,
    pub(in super::super) server: usize,
    /// Relative to its creation.
    pub(in super::super) deadline: Span,
    pub(in super::super) created: Time,
    /// From its creation to the answer; `None`: there was none.
    pub(in super::super) round_trip: Option<Span>,
    /// From its creation to its server, if there was an answer.
    pub(in super::super) one_way: Option<Span>,
    /// How long the devices held it and its answer. `None`: a stamp is missing.
    pub(in super::super) held: Option<Span>,
}

impl ClientRecord {
    pub(in super::super) fn in_time(&self) -> bool {
        self.round_trip.is_some_and(|round_trip| round_trip <= self.deadline)
    }
}

pub(super) struct NodeReport {
    pub(super) messages: Vec<ClientRecord>,
    /// How long the device held answers of this node, by client and number of the request.
    pub(super) held: Vec<((usize, u64), Span)>,
    pub(super) blocked: u64,
    pub(super) late: Span,
    pub(super) lost: u64,
    pub(super) dropped: u64,
}

/// A message that waits or was sent, beside its packet in the queue.
#[derive(Clone, Copy)]
struct Outgoer {
    to: usize,
    wire: Wire,
    /// The place of its request in `messages`, or of the answer in `held`.
    place: usize,
}

pub(super) struct Node<'a> {
    number: usize,
    run: &'a Run<'a>,
    epoch: Epoch,
    /// No frame is due from here on, and the end.
    ends: [Time; 2],
    client: Client,
    sockets: Vec<Datagrams>,
    /// The first socket as a sender, if this node has a queue.
    narrow: Option<(Outgoing, PacketQueue)>,
    /// By node. Answers, too, go to the port of requests.
    peers: Vec<Destination>,
    /// By tag of a packet.
    out: Vec<Outgoer>,
    /// By socket and number of the datagram: its place in `out`, and when it was sent.
    sent: [Vec<(usize, u64)>; 2],
    /// Places of messages by number at this client; numbers of its own messages are missing.
    places: Vec<Option<usize>>,
    /// Requests in the queue.
    own: usize,
    /// The next frame is due and waits for them.
    waited: bool,
    report: NodeReport,
}

impl<'a> Node<'a> {
    /// On a thread of its own, which enters the node's namespace.
    pub(super) fn open(
        nodes: &[End],
        number: usize,
        end: &End,
        run: &'a Run<'a>,
        (epoch, last, over): (Epoch, Time, Time),
    ) -> Result<Node<'a>, Failure> {
        end.enter().map_err(Failure::trouble)?;
        let bind = |class: usize| {
            let at = SocketAddr::from((end.address(), PORTS[class]));
            let socket = Datagrams::bind(at, PRIORITIES[class], BUFFER, Span::from_ms(1)).map_err(Failure::trouble)?;
            if run.queue.is_none() {
                socket.stamp_transmissions().map_err(Failure::trouble)?;
            }
            Ok(socket)
        };
        let sockets = if run.queue.is_some() { vec![bind(REQUEST)?] } else { vec![bind(REQUEST)?, bind(REPLY)?] };
        let narrow = run.queue.map(|queue| {
            let socket = sockets[0].as_fd().try_clone_to_owned().map_err(Failure::trouble)?;
            let outgoing = Outgoing::new(socket).map_err(Failure::trouble)?;
            outgoing.narrow().map_err(Failure::trouble)?;
            Ok((outgoing, PacketQueue::new(queue).map_err(Failure::trouble)?))
        });
        let peers = nodes.iter().map(|node| SocketAddr::from((node.address(), PORTS[0])).into()).collect();
        Ok(Node {
            number,
            run,
            epoch,
            ends: [last, over],
            client: Client::new(run.cluster, run.seed, number),
            narrow: narrow.transpose()?,
            sockets,
            peers,
            out: Vec::new(),
            sent: Default::default(),
            places: Vec::new(),
            own: 0,
            waited: false,
            report: NodeReport {
                messages: Vec::new(),
                held: Vec::new(),
                blocked: 0,
                late: Span::ZERO,
                lost: 0,
                dropped: 0,
            },
        })
    }

    pub(super) fn run(mut self, stop: &AtomicBool) -> NodeReport {
        // If the kernel refuses it, frames come late, and the report shows it.
        let _class = ClassGuard::enter(&Class::Fifo { priority: PRIORITY }).ok();
        let mut poll = Poll::default();
        while self.epoch.now() < self.ends[1] && !stop.load(Ordering::Relaxed) {
            self.receive();
            self.frames();
            let is_full = self.send_waiting();
            self.stamps();
            poll.clear();
            for (at, socket) in self.sockets.iter().enumerate() {
                poll.add(socket.as_fd(), true, is_full && at == 0);
            }
            let due = self.due().filter(|_| self.may_send_frame()).unwrap_or(self.ends[1]);
            poll.wait(Some(due.saturating_since(self.epoch.now()).min(SLEEP_MAX)));
        }
        self.stamps();
        self.report.lost += self.sockets.iter().filter_map(Datagrams::dropped).map(u64::from).sum::<u64>();
        self.report
    }

    fn due(&self) -> Option<Time> {
        let due = self.client.due(self.run.cluster)?;
        let due = Time::ZERO.saturating_add(self.run.slow(due.saturating_since(Time::ZERO)));
        (due < self.ends[0]).then_some(due)
    }

    fn may_send_frame(&self) -> bool {
        !self.run.cluster.blocks || self.own == 0
    }

    fn frames(&mut self) {
        let Some(due) = self.due() else { return };
        if !self.may_send_frame() {
            self.waited |= self.epoch.now() >= due;
            return;
        }
        let created = self.epoch.now();
        if created < due || created == Time::ZERO {
            return;
        }
        if std::mem::take(&mut self.waited) {
            self.report.blocked += 1;
        } else {
            self.report.late = self.report.late.max(created.saturating_since(due));
        }
        for planned in self.client.next_frame(self.run.cluster) {
            self.request(planned, created);
        }
    }

    fn request(&mut self, planned: Planned, created: Time) {
        let Planned { number, server, deadline, .. } = planned;
        let deadline = self.run.slow(deadline);
        let place = self.report.messages.len();
        self.report.messages.push(ClientRecord {
            client: self.number,
            number,
            server,
            deadline,
            created,
            round_trip: None,
            one_way: None,
            held: None,
        });
        self.places.resize(number as usize + 1, None);
        self.places[number as usize] = Some(place);
        let deadline = created.saturating_add(deadline);
        let wire = Wire { kind: Kind::Request, client: self.number as u16, number, deadline, came: Time::ZERO };
        self.own += usize::from(self.narrow.is_some());
        self.enter(Outgoer { to: server, wire, place });
    }

    fn enter(&mut self, outgoer: Outgoer) {
        let tag = self.out.len();
        self.out.push(outgoer);
        let Some((_, queue)) = &mut self.narrow else {
            let class = if outgoer.wire.kind == Kind::Reply { REPLY } else { REQUEST };
            let at = realtime_ns();
            let bytes = outgoer.wire.to_bytes();
            match self.sockets[class].send([&bytes, &[]], &self.peers[outgoer.to], Span::ZERO) {
                Sent::Yes => self.sent[class].push((tag, at)),
                Sent::Full | Sent::Refused => self.report.lost += 1,
            }
            return;
        };
        let Wire { client, number, deadline, .. } = outgoer.wire;
        let stream = Planned::stream(usize::from(client), number);
        let packet = Packet { stream, bytes: Bytes::new(MESSAGE), deadline, tag: tag as u64 };
        if queue.push(self.epoch.now(), packet).is_err() {
            self.report.lost += 1;
            self.own -= usize::from(outgoer.wire.kind == Kind::Request);
        }
    }

    /// Sends from the queue as much as the kernel may hold. Whether more waits.
    fn send_waiting(&mut self) -> bool {
        let Some((outgoing, queue)) = &mut self.narrow else { return false };
        while outgoing.unsent() < UNSENT_MAX {
            let (out, own, dropped) = (&self.out, &mut self.own, &mut self.report.dropped);
            let is_request = |packet: &Packet| {
                out.get(packet.tag as usize).is_some_and(|outgoer| outgoer.wire.kind == Kind::Request)
            };
            let next = queue.pop(self.epoch.now(), |packet| {
                *dropped += 1;
                *own -= usize::from(is_request(&packet));
            });
            let Some(next) = next else { return false };
            *own -= usize::from(is_request(&next.packet));
            let Some(outgoer) = out.get(next.packet.tag as usize) else { continue };
            let bytes = outgoer.wire.to_bytes();
            // The buffer has room: the kernel waits for memory at most.
            let sent = self.sockets[0].send([&bytes, &[]], &self.peers[outgoer.to], Span::from_ms(1));
            self.report.lost += u64::from(sent != Sent::Yes);
        }
        !queue.is_empty()
    }

    fn receive(&mut self) {
        let mut bytes = [0; LENGTH + 1];
        for _ in 0..BATCH {
            let Ok(Some((length, _))) = self.sockets[0].receive_now(&mut bytes) else { return };
            let came = self.epoch.now();
            let Some(wire) = bytes.get(..length).and_then(Wire::parse) else { continue };
            match wire.kind {
                Kind::Request if usize::from(wire.client) < NODES => {
                    let to = usize::from(wire.client);
                    let place = self.report.held.len();
                    self.enter(Outgoer { to, wire: Wire { kind: Kind::Reply, came, ..wire }, place });
                }
                Kind::Request => {}
                Kind::Reply => {
                    let place = usize::try_from(wire.number).ok().and_then(|at| *self.places.get(at)?);
                    if let Some(message) = place.and_then(|place| self.report.messages.get_mut(place)) {
                        message.round_trip.get_or_insert(came.saturating_since(message.created));
                        message.one_way.get_or_insert(wire.came.saturating_since(message.created));
                    }
                }
            }
        }
    }

    fn stamps(&mut self) {
        if self.narrow.is_some() {
            return;
        }
        for (class, socket) in self.sockets.iter().enumerate() {
            while let Some(left) = socket.transmitted() {
                let Some((tag, at)) = self.sent[class].get(left.number as usize).copied() else { continue };
                let Some(outgoer) = self.out.get(tag) else { continue };
                let held = Span::from_ns(left.at.saturating_sub(at));
                if outgoer.wire.kind == Kind::Reply {
                    self.report.held.push(((outgoer.to, outgoer.wire.number), held));
                } else if let Some(message) = self.report.messages.get_mut(outgoer.place) {
                    message.held = Some(held);
                }
            }
        }
    }
}

/// Sends other traffic from the first node to the second as fast as the first's device takes it.
/// Returns the number of packets.
pub(super) fn background(nodes: [&End; 2], epoch: Epoch, end: Time, stop: &AtomicBool) -> u64 {
    let open = |node: &End| {
        node.enter().ok()?;
        Datagrams::bind(SocketAddr::from((node.address(), PORTS[2])), 0, 1 << 16, Span::from_ms(1)).ok()
    };
    // The sink takes no packet in: the kernel drops what does not fit into its buffer.
    let Some(_sink) = open(nodes[1]) else { return 0 };
    let Some(socket) = open(nodes[0]) else { return 0 };
    let to = Destination::from(SocketAddr::from((nodes[1].address(), PORTS[2])));
    let bytes = [0; BULK.0];
    let mut count = 0;
    while epoch.now() == Time::ZERO && !stop.load(Ordering::Relaxed) {
        pause(Span::from_ms(1));
    }
    while epoch.now() < end && !stop.load(Ordering::Relaxed) {
        match socket.send([&bytes, &[]], &to, BULK.1) {
            Sent::Yes => count += 1,
            Sent::Full => {}
            Sent::Refused => pause(Span::from_ms(1)),
        }
    }
    count
}
