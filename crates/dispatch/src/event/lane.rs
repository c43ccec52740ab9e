//! A level between nodes while it is connected: its sockets, its peers, and its threads for sending
//! and receiving.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_linux::{PiMutex, clock, thread};
use takt_model::{Span, Time};

use super::consumers::Consumers;
use super::delivery::{PEER_FOUND, PEER_LOST, Stored};
use super::filter::{Head, Pattern, until};
use super::node::{Clock, Full, Node, NodeError, Peer, Sending, Traffic, same};
use super::peer::{ArrivalTimes, HOPS_MAX, Origins, PendingChanges, Presence, PresenceChange, Receipt};
use super::waiting::Waiting;
use super::wire::{Body, Datagram, HEAD};
use crate::IDLE_MAX;
use crate::sync::{self, Futex, wake};

/// The most datagrams read in a row before the thread checks for silent peers.
const BURST_MAX: usize = 1024;
/// The longest sleep of a thread before it checks whether the channel is disconnected.
const LOOK_MAX: Span = Span::from_ms(50);

/// A peer and its presence.
struct Row {
    at: Destination,
    presence: PiMutex<Presence>,
    /// The changes that each consumer has still to hear. Only the receiving thread uses them.
    pending: PiMutex<Vec<PendingChanges>>,
}

impl Row {
    fn new(at: SocketAddr, lost_after: Span, consumers: usize) -> Row {
        let presence = PiMutex::new(Presence::new(lost_after));
        Row { at: at.into(), presence, pending: PiMutex::new(vec![PendingChanges::default(); consumers]) }
    }

    /// The node at this address, if it is present.
    fn there(&self) -> Option<u64> {
        let presence = self.presence.lock();
        presence.node().filter(|_| presence.is_there())
    }
}

#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    full: AtomicU64,
    refused: AtomicU64,
    stale: AtomicU64,
    late: AtomicU64,
    unsynchronized: AtomicU64,
    skewed: AtomicU64,
    forwarded: AtomicU64,
    duplicates: AtomicU64,
    old: AtomicU64,
    loops: AtomicU64,
    strangers: AtomicU64,
    malformed: AtomicU64,
}

fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::Relaxed);
}

/// The numbers of peers with and without the event.
#[derive(Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) sent: usize,
    pub(super) dropped: usize,
}

pub(super) struct Lane {
    name: String,
    /// Its index among the node's levels.
    place: u64,
    pub(super) level: usize,
    /// The kernel's number of the CPU.
    pub(super) cpu: Option<u32>,
    sends: Vec<Pattern>,
    sending: Sending,
    node: u64,
    incarnation: u64,
    clock: Clock,
    clock_number: u64,
    beat: Span,
    forwards: bool,
    payload_max: usize,
    socket: Datagrams,
    peers: Vec<Row>,
    /// The number of the next event.
    next: AtomicU64,
    origins: PiMutex<Origins>,
    outbox: Option<Outbox>,
    tally: Tally,
}

/// Events that wait for the sending thread.
struct Outbox {
    waiting: PiMutex<Waiting>,
    word: Futex,
    full: Full,
}

impl Lane {
    /// Opens the level's socket in the network namespace of the calling thread. `cpus` holds the
    /// kernel's numbers of the plan's CPUs.
    pub(super) fn open(
        node: &Node,
        place: usize,
        cpus: &[u32],
        payload_max: usize,
        consumers: usize,
    ) -> Result<Lane, NodeError> {
        let level = node.levels.get(place).ok_or(NodeError::Nobody)?;
        let wait = node.beat.min(LOOK_MAX);
        let socket = Datagrams::bind(level.at, level.so_priority, level.buffer, wait)
            .map_err(|cause| NodeError::Bind { name: level.name.clone(), cause })?;
        let peer = |at: &SocketAddr| Row::new(*at, node.lost_after, consumers);
        let outbox = |room: usize, full: Full| Outbox {
            waiting: PiMutex::new(Waiting::new(room, payload_max)),
            word: Futex::new(0),
            full,
        };
        Ok(Lane {
            name: level.name.clone(),
            place: place as u64,
            level: level.level,
            cpu: level.cpu.and_then(|cpu| cpus.get(cpu as usize).copied()),
            sends: level.sends.clone(),
            sending: level.sending,
            node: node.id,
            incarnation: clock::realtime_ns(),
            clock: node.clock,
            clock_number: node.clock.number(),
            beat: node.beat,
            forwards: node.forwards,
            payload_max,
            socket,
            peers: level.peers.iter().map(peer).collect(),
            next: AtomicU64::new(0),
            origins: PiMutex::new(Origins::new(node.nodes_max, node.lost_after)),
            outbox: match level.sending {
                Sending::Queued { room, full } => Some(outbox(room, full)),
                Sending::Direct | Sending::Patient(_) => None,
            },
            tally: Tally::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn queues(&self) -> bool {
        self.outbox.is_some()
    }

    /// Whether a push may wait for the network.
    pub(super) fn may_block(&self) -> bool {
        self.sending.may_block()
    }

    /// Whether an event pushed here goes to the peers.
    pub(super) fn wants(&self, head: &Head) -> bool {
        self.sends.iter().any(|pattern| pattern.has(head))
    }

    /// Sends an event pushed here, or queues it for the sending thread.
    pub(super) fn push(&self, consumers: &Consumers, head: &Head, payload: &[u8]) -> Outcome {
        let Some(outbox) = &self.outbox else {
            return self.send(consumers, self.next.fetch_add(1, Ordering::AcqRel), head, payload);
        };
        let kept = {
            let mut waiting = outbox.waiting.lock();
            // Under the lock, so that the queue keeps the order of the numbers.
            waiting.push(outbox.full, self.next.fetch_add(1, Ordering::AcqRel), head, payload)
        };
        if !kept {
            self.tally.full.fetch_add(self.peers.len() as u64, Ordering::Relaxed);
        }
        wake(&outbox.word);
        let refused = !kept && outbox.full == Full::Newest;
        let peers = self.peers.len();
        if refused { Outcome { sent: 0, dropped: peers } } else { Outcome { sent: peers, dropped: 0 } }
    }

    /// Sends an event of this node to all peers now.
    fn send(&self, consumers: &Consumers, sequence: u64, head: &Head, payload: &[u8]) -> Outcome {
        // The clock is read before the remaining time, so that a pause in between shortens that
        // time.
        let sent = self.clock.now();
        let now = consumers.now();
        let remaining = until(head.expires, now);
        let body = Body::Event { kind: head.kind, source: head.source, number: head.number, payload };
        let datagram = Datagram { sent, ..self.datagram(sequence, remaining, until(head.due, now), body) };
        let wait = match self.sending {
            Sending::Direct => Span::ZERO,
            Sending::Patient(span) => span.min(remaining),
            Sending::Queued { .. } => remaining,
        };
        let give_up = now.saturating_add(wait);
        let sent = self.peers.iter().filter(|row| self.send_to(consumers, &row.at, &datagram, give_up)).count();
        Outcome { sent, dropped: self.peers.len() - sent }
    }

    fn datagram<'a>(&self, sequence: u64, remaining: Span, due: Span, body: Body<'a>) -> Datagram<'a> {
        let (node, incarnation, clock) = (self.node, self.incarnation, self.clock_number);
        Datagram { hops: 0, node, incarnation, sequence, clock, sent: self.clock.now(), remaining, due, body }
    }

    /// Sends an event, and waits until `until` for room. The wait is in steps, so that a
    /// disconnected channel is noticed. Returns whether the event was sent.
    fn send_to(&self, consumers: &Consumers, at: &Destination, datagram: &Datagram<'_>, until: Time) -> bool {
        loop {
            // The time spent waiting counts against the event.
            let now = datagram.after(Span::from_ns(self.clock.now().saturating_sub(datagram.sent)));
            if now.remaining == Span::ZERO {
                count(&self.tally.stale);
                return false;
            }
            let step = until.saturating_since(consumers.now()).min(LOOK_MAX);
            match self.transmit(at, &now, step) {
                Sent::Yes => {
                    count(&self.tally.sent);
                    return true;
                }
                Sent::Full if step > Span::ZERO && !consumers.is_stopped() => {}
                Sent::Full => {
                    count(&self.tally.full);
                    return false;
                }
                Sent::Refused => {
                    count(&self.tally.refused);
                    return false;
                }
            }
        }
    }

    fn transmit(&self, at: &Destination, datagram: &Datagram<'_>, wait: Span) -> Sent {
        let (head, length) = datagram.head();
        self.socket.send([head.get(..length).unwrap_or_default(), datagram.payload()], at, wait)
    }

    /// The body of the sending thread.
    pub(super) fn empty(&self, consumers: &Consumers) {
        let Some(outbox) = &self.outbox else { return };
        let mut row = (0, Stored::room(self.payload_max));
        loop {
            let seen = outbox.word.load(Ordering::Acquire);
            if consumers.is_stopped() {
                return;
            }
            if outbox.waiting.lock().pop(&mut row) {
                let (sequence, event) = &row;
                self.send(consumers, *sequence, &event.head, event.payload());
            } else {
                sync::wait(&outbox.word, seen, consumers.clock, consumers.now().saturating_add(IDLE_MAX));
            }
        }
    }

    /// Wakes the sending thread.
    pub(super) fn wake(&self) {
        if let Some(outbox) = &self.outbox {
            wake(&outbox.word);
        }
    }

    /// The body of the receiving thread. It also sends the beats to the peers.
    pub(super) fn listen(&self, consumers: &Consumers) {
        // One byte more than the longest datagram, so that longer ones are recognised.
        let mut bytes = vec![0; HEAD + self.payload_max + 1];
        let mut beat = consumers.now();
        let mut came = false;
        while !consumers.is_stopped() {
            let now = consumers.now();
            if now >= beat {
                // Handlers run at this thread's priority. Yield, so that the handler of the last
                // event runs first.
                if std::mem::take(&mut came) {
                    thread::yield_now();
                    continue;
                }
                self.send_to_peers(Body::Beat);
                // Read waiting datagrams first. A peer is not silent if this thread only lacked the
                // CPU.
                for _ in 0..BURST_MAX {
                    let Ok(Some((length, from))) = self.socket.receive_now(&mut bytes) else { break };
                    self.take(consumers, bytes.get(..length).unwrap_or_default(), from);
                }
                for (at, row) in self.peers.iter().enumerate() {
                    let change = row.presence.lock().pass(now);
                    self.report_changes(consumers, at, row, [change]);
                    // Consumers that lacked room before are told now.
                    self.report_presence_of(consumers, at, row);
                }
                // Counted from now, so that a pause causes no burst of beats.
                beat = now.saturating_add(self.beat);
            }
            let received = self.socket.receive(&mut bytes);
            came = matches!(received, Ok(Some(_)));
            match received {
                Ok(Some((length, from))) => self.take(consumers, bytes.get(..length).unwrap_or_default(), from),
                Ok(None) => {}
                // Pause, so that a persistent error does not become a busy loop.
                Err(_) => clock::pause(LOOK_MAX),
            }
        }
        self.send_to_peers(Body::Bye);
    }

    /// Tells all peers that this node is present or ends.
    fn send_to_peers(&self, body: Body<'_>) {
        // Events that wait here have not been sent.
        let waiting = self.outbox.as_ref().and_then(|outbox| outbox.waiting.lock().oldest());
        let next = waiting.unwrap_or_else(|| self.next.load(Ordering::Acquire));
        let datagram = self.datagram(next, Span::MAX, Span::MAX, body);
        for row in &self.peers {
            // If there is no room, the next beat serves as well.
            let _ = self.transmit(&row.at, &datagram, Span::ZERO);
        }
    }

    /// Tells subscribers about the changes of a peer.
    fn report_changes<const N: usize>(
        &self,
        consumers: &Consumers,
        at: usize,
        row: &Row,
        changes: [Option<(PresenceChange, u64)>; N],
    ) {
        if changes.iter().all(Option::is_none) {
            return;
        }
        for (change, node) in changes.into_iter().flatten() {
            let (head, payload) = self.event_of(consumers, at, change, node);
            consumers.remember(&head, payload.get(..self.payload_max.min(8)).unwrap_or_default());
            if change == PresenceChange::Lost {
                row.pending.lock().iter_mut().for_each(|pending| pending.lost(node));
            }
        }
        self.report_presence_of(consumers, at, row);
    }

    /// Tells each consumer its pending changes of a peer, in order. A consumer without room gets the rest
    /// with the next beat.
    fn report_presence_of(&self, consumers: &Consumers, at: usize, row: &Row) {
        let there = row.there();
        consumers.report_presence(
            &mut row.pending.lock(),
            there,
            |change, node| self.event_of(consumers, at, change, node),
            self.payload_max,
        );
    }

    fn event_of(&self, consumers: &Consumers, at: usize, change: PresenceChange, node: u64) -> (Head, [u8; 8]) {
        let kind = if change == PresenceChange::Found { PEER_FOUND } else { PEER_LOST };
        let (sent, due, expires) = (consumers.now(), Time::MAX, Time::MAX);
        (Head { kind, source: at as u32, number: self.place, sent, due, expires }, node.to_be_bytes())
    }

    /// Handles a datagram.
    fn take(&self, consumers: &Consumers, bytes: &[u8], from: SocketAddr) {
        let Some((at, peer)) = self.peers.iter().enumerate().find(|(_, row)| same(row.at.address(), from)) else {
            return count(&self.tally.strangers);
        };
        let datagram = match Datagram::read(bytes) {
            Ok(datagram) if datagram.payload().len() <= self.payload_max => datagram,
            _ => return count(&self.tally.malformed),
        };
        if datagram.node == self.node || datagram.hops > HOPS_MAX {
            return count(&self.tally.loops);
        }
        let now = consumers.now();
        // A forwarded datagram says nothing about the forwarder's run.
        if datagram.hops == 0 {
            let ends = datagram.body == Body::Bye;
            let changes = peer.presence.lock().hear(datagram.node, datagram.incarnation, ends, now);
            self.report_changes(consumers, at, peer, changes);
        }
        let mut origins = self.origins.lock();
        let stream = origins.of(datagram.node, datagram.incarnation, datagram.sequence, now);
        let Body::Event { kind, source, number, payload } = datagram.body else {
            if let Some(stream) = stream {
                stream.expect(datagram.sequence);
            }
            return;
        };
        let seen = stream.map_or(Receipt::Old, |stream| stream.receive(datagram.sequence));
        drop(origins);
        match seen {
            Receipt::New => {}
            Receipt::Duplicate => return count(&self.tally.duplicates),
            Receipt::Old => return count(&self.tally.old),
        }
        let own = self.clock.now();
        let left = ArrivalTimes::of(&datagram, self.clock_number, own);
        if left.skewed {
            count(&self.tally.skewed);
        }
        if left.transit.is_none() {
            count(&self.tally.unsynchronized);
        }
        if left.remaining == Span::ZERO {
            return count(&self.tally.late);
        }
        consumers.offer(&left.head(kind, source, number, now), payload, now);
        if self.forwards {
            self.forward(consumers, &Datagram { remaining: left.remaining, due: left.due, ..datagram }, own, from);
        }
    }

    /// Forwards a datagram to the other peers.
    fn forward(&self, consumers: &Consumers, datagram: &Datagram<'_>, came: u64, from: SocketAddr) {
        // The next node would drop it.
        if datagram.hops >= HOPS_MAX {
            return;
        }
        // `sent` is its arrival time, so the time spent here counts against the event.
        let datagram = Datagram { hops: datagram.hops + 1, clock: self.clock_number, sent: came, ..*datagram };
        let others = self.peers.iter().filter(|row| !same(row.at.address(), from));
        if others.filter(|row| self.send_to(consumers, &row.at, &datagram, Time::ZERO)).count() > 0 {
            count(&self.tally.forwarded);
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        let load = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        let tally = &self.tally;
        let sums = self.origins.lock().sums();
        let peer = |row: &Row| {
            let presence = *row.presence.lock();
            Peer { at: row.at.address(), node: presence.node(), is_there: presence.is_there() }
        };
        Traffic {
            name: self.name.clone(),
            at: self.socket.address().ok(),
            sent: load(&tally.sent),
            full: load(&tally.full),
            refused: load(&tally.refused),
            stale: load(&tally.stale),
            events: sums.received,
            late: load(&tally.late),
            unsynchronized: load(&tally.unsynchronized),
            skewed: load(&tally.skewed),
            forwarded: load(&tally.forwarded),
            lost: sums.lost,
            duplicates: load(&tally.duplicates),
            old: load(&tally.old),
            loops: load(&tally.loops),
            strangers: load(&tally.strangers),
            malformed: load(&tally.malformed),
            overflowed: self.socket.dropped(),
            peers: self.peers.iter().map(peer).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Level;
    use super::*;

    #[test]
    fn each_level_has_a_socket_with_the_priority_that_it_says() {
        let any = || SocketAddr::from(([127, 0, 0, 1], 0));
        let node = Node::new(1)
            .with(Level::new("urgent", any()).peer(any()))
            .with(Level::new("rest", any()).peer(any()).so_priority(0));
        let open = |place| Lane::open(&node, place, &[0], 64, 0).unwrap();
        let [urgent, rest] = [open(0), open(1)];
        assert_eq!([&urgent, &rest].map(|lane| lane.socket.priority().unwrap()), [6, 0]);
        assert_ne!(urgent.socket.address().unwrap(), rest.socket.address().unwrap());
    }
}
