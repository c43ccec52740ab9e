//! The broker: it sends the messages of many programs in the order of their deadlines, through
//! the programs' own sockets.
//!
//! Programs are clients of [`takt_dispatch::deadline`]. The order is that of
//! [`takt_net::Outbox`]. A message goes to the kernel only while less than [`BrokerSpec::unsent`]
//! bytes of former packets still wait there: of datagrams, and of streams. So the kernel's queues
//! hold about one packet, and a message that comes later with an earlier deadline overtakes all
//! others.
//!
//! The kernel holds packets to an address that does not answer (ARP) for seconds. So bytes of a
//! socket that stand still count no more until they change. A socket without room for its message
//! delays no other.
//!
//! One thread does all. It trusts no client. A malformed request ends the connection of its client,
//! and its messages. A socket has at most [`WAITING_MAX`] messages here, so all requests are read at
//! once.

mod line;
mod spec;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};

use takt_dispatch::deadline::wire::{Answer, BrokerCounts, HEAD, MESSAGE_MAX, Request, VERSION, WAITING_MAX};
use takt_linux::clock::monotonic_ns;
use takt_linux::datagram::Destination;
use takt_linux::outgoing::{Outcome, Outgoing, OutgoingError, Transport};
use takt_linux::seqpacket::{Connection, Listener, Poll, Received, Sent};
use takt_model::{Bytes, Span, Time};
use takt_net::{Outbox, Packet, QueueSpec};

use line::{Line, STUCK, SendReadiness};
pub use spec::{BrokerError, BrokerSpec, BrokerStats};

/// Requests that are read from a client before others have their turn.
const CHUNK: usize = 32;
/// Messages that are sent before new requests are read.
const BURST: usize = 8;
/// The most bytes of a stream that go at once.
const STREAM_TURN: usize = 2896;
/// The time to look again where the kernel reports no event: less than half of a send buffer waits.
const LOOK_AGAIN: Span = Span::from_us(50);
/// The time between looks at whether to stop.
const TURN: Span = Span::from_ms(100);
/// How long messages of clients that have gone may take, and all messages at the end.
const LINGER: Span = Span::from_s(1);
/// Messages of a socket that end before its client is told, unless none wait.
const TELL_AFTER: usize = 8;
/// EMFILE: the errno of a descriptor that could not be received.
const NO_DESCRIPTOR: i32 = 24;
/// ENOTSOCK: the errno of a descriptor that cannot send.
const NO_SOCKET: i32 = 88;

struct Client {
    connection: Connection,
    is_welcome: bool,
    /// Its sockets: the client's number, and that in the outbox.
    members: Vec<(u32, u32)>,
    /// Answers for which there was no room. Until they are sent no request is read.
    answers: VecDeque<Answer>,
    /// It has counts to be told.
    is_dirty: bool,
}

impl Client {
    fn send_answer(&mut self, answer: Answer) {
        self.answers.push_back(answer);
        self.flush();
    }

    /// Sends answers. Whether all are sent.
    fn flush(&mut self) -> bool {
        while let Some(answer) = self.answers.front() {
            if self.connection.send([&answer.write(), &[]], None) == Sent::Full {
                return false;
            }
            self.answers.pop_front();
        }
        true
    }
}

struct Member {
    outgoing: Outgoing,
    /// `None`: the client has gone.
    client: Option<usize>,
    /// The client's number.
    name: u32,
    counts: BrokerCounts,
    waiting: usize,
    /// Messages that have ended since the client was told.
    untold: usize,
    is_blocked: bool,
    /// It leaves when no message of it waits, or at this time.
    leaves: Option<u64>,
}

struct Message {
    bytes: Vec<u8>,
    done: usize,
    to: Option<Destination>,
}

/// A place of the poll set.
#[derive(Clone, Copy)]
enum Place {
    Listener,
    Client(usize),
    /// A datagram socket with packets in the kernel, which tells when there is room.
    Line,
    Blocked(u32),
}

/// A broker that listens.
pub struct Broker {
    spec: BrokerSpec,
    listener: Listener,
    outbox: Outbox,
    clients: Vec<Option<Client>>,
    members: Vec<Option<Member>>,
    messages: Vec<Message>,
    free: Vec<u32>,
    line: Line,
    stats: BrokerStats,
    poll: Poll,
    places: Vec<Place>,
    /// No client is accepted before this time, in ns of CLOCK_MONOTONIC: there was no descriptor.
    accepts_at: u64,
    /// It reads no more requests.
    ends: bool,
}

impl Broker {
    /// Starts to listen.
    ///
    /// # Errors
    /// The path, a limit out of range, or a priority that this process may not set.
    pub fn bind(spec: BrokerSpec) -> Result<Broker, BrokerError> {
        let packets_max = spec.sockets.saturating_mul(WAITING_MAX);
        let queue = QueueSpec { order: spec.order, late: spec.late, packets_max, streams: spec.sockets };
        let outbox = Outbox::new(queue)?;
        if let Some(priority) = spec.priority {
            spec::may_set(priority).map_err(|cause| BrokerError::Priority { priority, cause })?;
        }
        let refused = |cause| BrokerError::Listen { path: spec.path.clone(), cause };
        let listener = Listener::bind_private(&spec.path).map_err(refused)?;
        let line = Line::new(spec.unsent, spec.rate);
        Ok(Broker {
            spec,
            line,
            listener,
            outbox,
            clients: Vec::new(),
            members: Vec::new(),
            messages: Vec::new(),
            free: Vec::new(),
            stats: BrokerStats::default(),
            poll: Poll::default(),
            places: Vec::new(),
            accepts_at: 0,
            ends: false,
        })
    }

    /// Its counters so far.
    #[must_use]
    pub fn stats(&self) -> BrokerStats {
        self.stats
    }

    /// Serves until `stop` says so; it is asked at least ten times a second, with what was done.
    /// Then it reads the requests that clients have sent, and takes no more. It sends what waits, and tells
    /// the clients, for a second at most. To be called once.
    pub fn serve(&mut self, stop: &mut dyn FnMut(&BrokerStats) -> bool) -> BrokerStats {
        let mut end = None;
        let mut look_at = 0;
        loop {
            let now = monotonic_ns();
            if now >= look_at && end.is_none() {
                look_at = now.saturating_add(TURN.as_ns());
                if stop(&self.stats) {
                    let until = now.saturating_add(LINGER.as_ns());
                    end = Some(until);
                    self.end_requests(until);
                }
                self.remove_leavers(now);
            }
            if end.is_some_and(|end| now >= end || self.outbox.is_empty() && self.all_are_told()) {
                self.remove_leavers(u64::MAX);
                self.answer_all();
                return self.stats;
            }
            self.wait();
            self.take_turns();
            self.send_some();
            self.answer_all();
        }
    }

    /// Reads the requests that clients have sent, and takes no more. Each socket leaves when its
    /// messages are sent: so its client learns that it sends by itself from now on.
    fn end_requests(&mut self, until: u64) {
        self.ends = true;
        for number in 0..self.clients.len() {
            let Some(Some(client)) = self.clients.get(number) else { continue };
            client.connection.stop_receiving();
            self.read(number, usize::MAX);
        }
        for number in 0..self.members.len() as u32 {
            if let Some(Some(member)) = self.members.get_mut(number as usize) {
                member.leaves = Some(until);
            }
            self.remove_if_done(number);
        }
    }

    /// Whether no client has an answer to come.
    fn all_are_told(&self) -> bool {
        self.clients.iter().flatten().all(|client| client.answers.is_empty())
    }

    /// Waits for something to do.
    fn wait(&mut self) {
        let room = self.room();
        self.poll.clear();
        self.places.clear();
        if !self.ends && monotonic_ns() >= self.accepts_at {
            self.poll.add(self.listener.as_fd(), true, false);
            self.places.push(Place::Listener);
        }
        for (number, client) in self.clients.iter().enumerate() {
            let Some(client) = client.as_ref() else { continue };
            let reads = client.answers.is_empty();
            // At the end all has been read.
            if !self.ends || !reads {
                self.poll.add(client.connection.as_fd(), reads, !reads);
                self.places.push(Place::Client(number));
            }
        }
        for (number, member) in (0..).zip(&self.members) {
            if let Some(member) = member.as_ref().filter(|member| member.is_blocked) {
                self.poll.add(member.outgoing.as_fd(), false, true);
                self.places.push(Place::Blocked(number));
            }
        }
        let wait = match room {
            _ if !self.outbox.has_next() => TURN,
            SendReadiness::Free => Span::ZERO,
            SendReadiness::Unclear => LOOK_AGAIN,
            SendReadiness::Busy => {
                for number in self.line.moving() {
                    if let Some(Some(member)) = self.members.get(number as usize) {
                        self.poll.add(member.outgoing.as_fd(), false, true);
                        self.places.push(Place::Line);
                    }
                }
                STUCK
            }
        };
        self.poll.wait(Some(wait));
    }

    /// Whether a message may go to the kernel.
    fn room(&mut self) -> SendReadiness {
        let members = &self.members;
        self.line.look(now(), |number| match members.get(number as usize) {
            Some(Some(member)) => member.outgoing.unsent(),
            _ => 0,
        })
    }

    fn take_turns(&mut self) {
        let places = std::mem::take(&mut self.places);
        for (at, place) in places.iter().enumerate() {
            if !self.poll.is_ready(at) {
                continue;
            }
            match *place {
                Place::Line => {}
                Place::Listener => self.accept(),
                Place::Client(number) => self.read(number, CHUNK),
                Place::Blocked(number) => {
                    if let Some(Some(member)) = self.members.get_mut(number as usize) {
                        member.is_blocked = false;
                    }
                    self.outbox.unblock(now(), number);
                }
            }
        }
        self.places = places;
    }

    fn accept(&mut self) {
        loop {
            let connection = match self.listener.accept() {
                Ok(Some(connection)) => connection,
                Ok(None) => return,
                Err(_) => {
                    self.accepts_at = monotonic_ns().saturating_add(TURN.as_ns());
                    return;
                }
            };
            let client = Client {
                connection,
                is_welcome: false,
                members: Vec::new(),
                answers: VecDeque::new(),
                is_dirty: false,
            };
            self.stats.clients += 1;
            match self.clients.iter_mut().find(|client| client.is_none()) {
                Some(free) => *free = Some(client),
                None => self.clients.push(Some(client)),
            }
        }
    }

    /// Reads so many requests of a client.
    fn read(&mut self, number: usize, requests_max: usize) {
        let mut bytes = [0; HEAD + MESSAGE_MAX];
        for _ in 0..requests_max {
            let Some(Some(client)) = self.clients.get_mut(number) else { return };
            // At the end all is read.
            if !client.flush() && !self.ends {
                return;
            }
            match client.connection.receive(&mut bytes) {
                Received::Nothing => return,
                Received::Closed if self.ends => return,
                Received::Closed => return self.forget(number, LINGER),
                Received::Message(length, descriptor) => {
                    let request = bytes.get(..length).and_then(Request::read);
                    if request.and_then(|request| self.serve_request(number, request, descriptor)).is_none() {
                        self.stats.malformed += 1;
                        return self.forget(number, Span::ZERO);
                    }
                }
            }
        }
    }

    /// `None`: the request makes no sense.
    fn serve_request(&mut self, number: usize, request: Request<'_>, descriptor: Option<OwnedFd>) -> Option<()> {
        let client = self.clients.get_mut(number)?.as_mut()?;
        match request {
            Request::Hello { version } => {
                // A client of another version hears of this one, and leaves.
                client.is_welcome = version == VERSION;
                client.send_answer(Answer::Welcome { version: VERSION });
                Some(())
            }
            _ if !client.is_welcome => None,
            Request::Join { socket } => self.join(number, socket, descriptor),
            Request::Send { socket, deadline, to, bytes } => self.take(number, socket, deadline, to, bytes),
            Request::Leave { socket } => {
                let member = self.member_of(number, socket)?;
                let leaver = self.members.get_mut(member as usize)?.as_mut()?;
                leaver.leaves = Some(u64::MAX);
                self.remove_if_done(member);
                Some(())
            }
        }
    }

    fn member_of(&self, client: usize, socket: u32) -> Option<u32> {
        let client = self.clients.get(client)?.as_ref()?;
        client.members.iter().find(|(name, _)| *name == socket).map(|(_, member)| *member)
    }

    fn join(&mut self, number: usize, socket: u32, descriptor: Option<OwnedFd>) -> Option<()> {
        if self.member_of(number, socket).is_some() {
            return None;
        }
        let joined = self.admit(descriptor);
        let client = self.clients.get_mut(number)?.as_mut()?;
        let (member, outgoing) = match joined {
            Ok(joined) => joined,
            Err(errno) => {
                client.send_answer(Answer::Refused { socket, errno });
                return Some(());
            }
        };
        let joined = Member {
            outgoing,
            client: Some(number),
            name: socket,
            counts: BrokerCounts::default(),
            waiting: 0,
            untold: 0,
            is_blocked: false,
            leaves: None,
        };
        let place = member as usize;
        if place >= self.members.len() {
            self.members.resize_with(place + 1, || None);
        }
        *self.members.get_mut(place)? = Some(joined);
        client.members.push((socket, member));
        self.stats.sockets += 1;
        client.send_answer(Answer::Joined { socket });
        Some(())
    }

    /// Takes a socket into the outbox, or says with which errno it is refused.
    fn admit(&mut self, descriptor: Option<OwnedFd>) -> Result<(u32, Outgoing), i32> {
        let outgoing = Outgoing::new(descriptor.ok_or(NO_DESCRIPTOR)?).map_err(|_| NO_SOCKET)?;
        if let Some(priority) = self.spec.priority {
            outgoing.set_priority(priority).map_err(|error| match error {
                OutgoingError::Refused { cause, .. } => cause.raw_os_error().unwrap_or(0),
                _ => NO_SOCKET,
            })?;
        }
        let is_stream = outgoing.transport() == Transport::Stream;
        Ok((self.outbox.join(is_stream).ok_or(0)?, outgoing))
    }

    fn take(
        &mut self,
        number: usize,
        socket: u32,
        deadline: Time,
        to: Option<std::net::SocketAddr>,
        bytes: &[u8],
    ) -> Option<()> {
        let stream = self.member_of(number, socket)?;
        let waiting = self.members.get(stream as usize)?.as_ref()?.waiting;
        if waiting >= WAITING_MAX {
            return None;
        }
        let tag = self.keep(bytes, to);
        let packet = Packet { stream, bytes: Bytes::new(bytes.len() as u64), deadline, tag: u64::from(tag) };
        if self.outbox.push(now(), packet).is_err() {
            self.free.push(tag);
            return None;
        }
        self.members.get_mut(stream as usize)?.as_mut()?.waiting += 1;
        self.stats.waiting_max = self.stats.waiting_max.max(self.outbox.len());
        Some(())
    }

    /// A place for a message.
    fn keep(&mut self, bytes: &[u8], to: Option<std::net::SocketAddr>) -> u32 {
        let to = to.map(Destination::from);
        if let Some(tag) = self.free.pop()
            && let Some(message) = self.messages.get_mut(tag as usize)
        {
            message.bytes.clear();
            message.bytes.extend_from_slice(bytes);
            (message.done, message.to) = (0, to);
            return tag;
        }
        self.messages.push(Message { bytes: bytes.to_vec(), done: 0, to });
        // Fewer than the packets of a queue.
        (self.messages.len() - 1) as u32
    }

    fn send_some(&mut self) {
        for _ in 0..BURST {
            if self.room() != SendReadiness::Free || !self.send_one() {
                return;
            }
        }
    }

    /// Whether there was a message.
    fn send_one(&mut self) -> bool {
        let now = now();
        let mut dropped = Vec::new();
        let line = &self.line;
        let leaves = |packet: &Packet| line.leaves(now, packet.bytes.get());
        let next = self.outbox.next(leaves, |packet| dropped.push(packet));
        for packet in dropped {
            self.end(packet, Fate::Late);
        }
        let Some(packet) = next else { return false };
        let message = self.messages.get_mut(packet.tag as usize);
        let member = self.members.get_mut(packet.stream as usize).and_then(Option::as_mut);
        let (Some(message), Some(member)) = (message, member) else {
            self.outbox.sent(now, packet);
            self.end(packet, Fate::Refused(0));
            return true;
        };
        let transport = member.outgoing.transport();
        let is_stream = transport == Transport::Stream;
        let left = message.bytes.get(message.done..).unwrap_or_default();
        let turn = if is_stream { left.get(..STREAM_TURN).unwrap_or(left) } else { left };
        match member.outgoing.send(turn, message.to.as_ref()) {
            Outcome::Taken(bytes) => {
                message.done += bytes;
                self.stats.bytes += bytes as u64;
                if is_stream {
                    member.counts.bytes += bytes as u64;
                }
                self.line.sent(packet.stream, transport, bytes as u64, now);
                let left = message.bytes.len().saturating_sub(message.done);
                if is_stream && left > 0 {
                    self.outbox.partly(now, packet, Bytes::new(left as u64));
                } else {
                    self.outbox.sent(now, packet);
                    self.end(packet, Fate::Sent);
                }
            }
            Outcome::Full => {
                member.is_blocked = true;
                self.outbox.blocked(packet);
            }
            Outcome::Refused(errno) => {
                self.outbox.sent(now, packet);
                self.end(packet, Fate::Refused(errno));
            }
        }
        true
    }

    /// A message is no more. Those of a socket that has left were counted then.
    fn end(&mut self, packet: Packet, fate: Fate) {
        // Tags are places of messages.
        self.free.push(packet.tag as u32);
        let Some(Some(member)) = self.members.get_mut(packet.stream as usize) else { return };
        let (of_all, of_member) = match fate {
            Fate::Sent => (&mut self.stats.sent, &mut member.counts.sent),
            Fate::Late => (&mut self.stats.late, &mut member.counts.late),
            Fate::Refused(errno) => {
                member.counts.errno = errno;
                (&mut self.stats.refused, &mut member.counts.refused)
            }
        };
        (*of_all, *of_member) = (*of_all + 1, *of_member + 1);
        member.waiting -= 1;
        member.untold += 1;
        if let Some(client) = member.client.and_then(|client| self.clients.get_mut(client)?.as_mut()) {
            client.is_dirty = true;
        }
        self.remove_if_done(packet.stream);
    }

    /// Removes a member that leaves and has no message here.
    fn remove_if_done(&mut self, number: u32) {
        let is_done = |member: &Member| member.leaves.is_some() && member.waiting == 0;
        if self.members.get(number as usize).and_then(Option::as_ref).is_some_and(is_done) {
            self.remove(number);
        }
    }

    /// Removes a member with its messages.
    fn remove(&mut self, number: u32) {
        let Some(member) = self.members.get_mut(number as usize).and_then(Option::take) else { return };
        self.stats.refused += member.waiting as u64;
        let free = &mut self.free;
        self.outbox.leave(number, |packet| free.push(packet.tag as u32));
        self.line.forget(number);
        let Some(client) = member.client.and_then(|client| self.clients.get_mut(client)?.as_mut()) else { return };
        client.members.retain(|(_, other)| *other != number);
        client.send_answer(Answer::Counts { socket: member.name, counts: member.counts, has_left: true });
    }

    /// A client is no more. Its messages are sent, if that takes no longer than `linger`. Zero: the
    /// program lives, and sends the bytes of its streams itself as soon as its connection has ended.
    fn forget(&mut self, number: usize, linger: Span) {
        let Some(client) = self.clients.get_mut(number).and_then(Option::take) else { return };
        let until = monotonic_ns().saturating_add(linger.as_ns());
        for (_, member) in &client.members {
            if let Some(Some(leaver)) = self.members.get_mut(*member as usize) {
                (leaver.client, leaver.leaves) = (None, Some(until));
            }
            self.remove_if_done(*member);
        }
        if linger.is_zero() {
            self.remove_leavers(until);
        }
        drop(client);
    }

    /// Removes the members whose time is over.
    fn remove_leavers(&mut self, now: u64) {
        let is_over = |member: &Member| member.leaves.is_some_and(|until| now >= until);
        for number in 0..self.members.len() as u32 {
            if self.members.get(number as usize).and_then(Option::as_ref).is_some_and(is_over) {
                self.remove(number);
            }
        }
    }

    /// Tells clients what became of their messages: when all of a socket are done, or some.
    fn answer_all(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            if !client.flush() || !client.is_dirty {
                continue;
            }
            client.is_dirty = false;
            for (name, member) in &client.members {
                let Some(Some(member)) = self.members.get_mut(*member as usize) else { continue };
                if member.untold >= TELL_AFTER || member.untold > 0 && member.waiting == 0 {
                    let answer = Answer::Counts { socket: *name, counts: member.counts, has_left: false };
                    if client.connection.send([&answer.write(), &[]], None) != Sent::Full {
                        member.untold = 0;
                    }
                }
                client.is_dirty |= member.untold > 0;
            }
        }
    }
}

/// The end of a message.
#[derive(Clone, Copy)]
enum Fate {
    Sent,
    Late,
    Refused(i32),
}

fn now() -> Time {
    Time::from_ns(monotonic_ns())
}
