//! The broker: it sends the messages of many programs in the order of their deadlines, through
//! the programs' own sockets.
//!
//! Programs are clients of [`takt_dispatch::deadline`]. The order is that of
//! [`takt_net::Outbox`]. A message goes to the kernel only while less than [`BrokerSpec::unsent`]
//! bytes of former datagrams still wait there. So the kernel's queues hold about one packet, and a
//! message that comes later with an earlier deadline overtakes all others.
//!
//! One thread does all. It trusts no client. A malformed request ends the connection of its client.
//! The broker stops reading a client with many waiting messages until some have left.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use takt_dispatch::deadline::wire::{Answer, BrokerCounts, HEAD, MESSAGE_MAX, Request, VERSION};
use takt_linux::clock::monotonic_ns;
use takt_linux::datagram::Destination;
use takt_linux::outgoing::{Outcome, Outgoing, Transport};
use takt_linux::seqpacket::{Connection, Listener, Poll, Received, Sent};
use takt_model::{Bytes, Rate, Span, Time};
use takt_net::{LateRule, Order, Outbox, Packet, QueueError, QueueSpec};
use thiserror::Error;

/// A client is not read while it has that many messages here.
const CLIENT_MAX: usize = 1024;
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
/// ENOBUFS: the errno of a message for which there is no place here.
const NO_PLACE: i32 = 105;

/// A broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerSpec {
    /// Where it listens.
    pub path: PathBuf,
    /// The order in which messages leave.
    pub order: Order,
    /// The rule for late datagrams. Bytes of streams are always sent.
    pub late: LateRule,
    /// The rate of the line, or of its class. With a rate, a datagram is late if it would finish
    /// after its deadline. Without a rate, it is late when its deadline has passed.
    pub rate: Option<Rate>,
    /// The SO_PRIORITY that sockets get; `None`: they keep theirs.
    pub priority: Option<u32>,
    /// The most sockets at once.
    pub sockets: usize,
    /// The most messages that wait.
    pub messages: usize,
    /// While that many bytes of datagrams wait in the kernel, no other message goes there. The
    /// kernel counts their memory: 768 bytes and more each.
    pub unsent: u64,
}

impl BrokerSpec {
    /// A broker in the order of deadlines, that drops late datagrams.
    #[must_use]
    pub fn new(path: &Path) -> BrokerSpec {
        BrokerSpec {
            path: path.to_owned(),
            order: Order::Edf,
            late: LateRule::Drop,
            rate: None,
            priority: None,
            sockets: 1024,
            messages: 65_536,
            unsent: 2304,
        }
    }
}

/// Why there is no broker.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The socket file.
    #[error("no broker can listen at {path}: {cause}{}", hint(.cause))]
    Listen {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A limit.
    #[error("the broker's limits: {0}")]
    Limit(#[from] QueueError),
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "; another broker listens there: stop it, or give another path",
        io::ErrorKind::PermissionDenied => "; run as root, or give a path in a folder that you may write",
        io::ErrorKind::NotFound => "; its folder does not exist: make it, or give another path",
        _ => "",
    }
}

/// Counters of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BrokerStats {
    /// Clients that came.
    pub clients: u64,
    /// Clients whose connection was ended because of a request that makes no sense.
    pub malformed: u64,
    /// Sockets that came.
    pub sockets: u64,
    /// Messages that the kernel took.
    pub sent: u64,
    /// Bytes sent, with those of stream messages that the kernel took in part.
    pub bytes: u64,
    /// Datagrams dropped because they were late.
    pub late: u64,
    /// Messages that the kernel refused, that found no place, or whose client had gone.
    pub refused: u64,
    /// The most messages that waited at once.
    pub waiting_max: usize,
}

struct Client {
    connection: Connection,
    is_welcome: bool,
    /// Its sockets: the client's number, and that in the outbox.
    members: Vec<(u32, u32)>,
    waiting: usize,
    /// It has counts to be told.
    is_dirty: bool,
}

struct Member {
    outgoing: Outgoing,
    /// `None`: the client has gone.
    client: Option<usize>,
    /// The client's number.
    name: u32,
    counts: BrokerCounts,
    waiting: usize,
    is_dirty: bool,
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
    /// A datagram socket with packets in the kernel.
    Line,
    Blocked(u32),
}

/// Whether a message may go to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Free,
    /// An event will tell when there is room.
    Busy,
    /// No event will tell.
    Unclear,
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
    /// Datagram sockets that have or had packets in the kernel.
    in_kernel: Vec<u32>,
    /// Bytes of the last datagram's frame.
    last_frame: u64,
    /// A datagram that found no room.
    held: Option<Packet>,
    stats: BrokerStats,
    poll: Poll,
    places: Vec<Place>,
}

impl Broker {
    /// Starts to listen.
    ///
    /// # Errors
    /// The path, or a limit out of range.
    pub fn bind(spec: BrokerSpec) -> Result<Broker, BrokerError> {
        let queue = QueueSpec { order: spec.order, late: spec.late, packets_max: spec.messages, streams: spec.sockets };
        let outbox = Outbox::new(queue)?;
        let refused = |cause| BrokerError::Listen { path: spec.path.clone(), cause };
        let listener = Listener::bind(&spec.path).map_err(refused)?;
        Ok(Broker {
            spec,
            listener,
            outbox,
            clients: Vec::new(),
            members: Vec::new(),
            messages: Vec::new(),
            free: Vec::new(),
            in_kernel: Vec::new(),
            last_frame: 0,
            held: None,
            stats: BrokerStats::default(),
            poll: Poll::default(),
            places: Vec::new(),
        })
    }

    /// Its counters so far.
    #[must_use]
    pub fn stats(&self) -> BrokerStats {
        self.stats
    }

    /// Serves until `stop` says so; it is asked at least ten times a second, with what was done.
    /// Then it reads no more requests and sends what waits, for a second at most.
    pub fn serve(&mut self, stop: &mut dyn FnMut(&BrokerStats) -> bool) -> BrokerStats {
        let mut end = None;
        let mut look_at = 0;
        loop {
            let now = monotonic_ns();
            if now >= look_at && end.is_none() {
                look_at = now.saturating_add(TURN.as_ns());
                if stop(&self.stats) {
                    end = Some(now.saturating_add(LINGER.as_ns()));
                }
                self.remove_leavers(now);
            }
            if end.is_some_and(|end| now >= end || self.outbox.is_empty() && self.held.is_none()) {
                self.answer_all();
                return self.stats;
            }
            self.wait(end.is_some());
            self.take_turns();
            self.send_some();
            self.answer_all();
        }
    }

    /// Waits for something to do.
    fn wait(&mut self, ends: bool) {
        let line = self.line();
        self.poll.clear();
        self.places.clear();
        if !ends {
            self.poll.add(self.listener.as_fd(), true, false);
            self.places.push(Place::Listener);
            for (number, client) in self.clients.iter().enumerate() {
                if let Some(client) = client.as_ref().filter(|client| client.waiting < CLIENT_MAX) {
                    self.poll.add(client.connection.as_fd(), true, false);
                    self.places.push(Place::Client(number));
                }
            }
        }
        for (number, member) in (0..).zip(&self.members) {
            if let Some(member) = member.as_ref().filter(|member| member.is_blocked) {
                self.poll.add(member.outgoing.as_fd(), false, true);
                self.places.push(Place::Blocked(number));
            }
        }
        let has_next = self.held.is_some() || self.outbox.has_next();
        let wait = match line {
            _ if !has_next => TURN,
            Line::Free => Span::ZERO,
            Line::Unclear => LOOK_AGAIN,
            Line::Busy => {
                for number in &self.in_kernel {
                    if let Some(Some(member)) = self.members.get(*number as usize) {
                        self.poll.add(member.outgoing.as_fd(), false, true);
                        self.places.push(Place::Line);
                    }
                }
                TURN
            }
        };
        self.poll.wait(Some(wait));
    }

    /// Looks at what the kernel still holds.
    fn line(&mut self) -> Line {
        let members = &self.members;
        let unsent = |number: u32| match members.get(number as usize) {
            Some(Some(member)) => member.outgoing.unsent(),
            _ => 0,
        };
        let mut sum = 0;
        // A socket reports room when less than half of its buffer is used.
        let mut reports = false;
        self.in_kernel.retain(|number| {
            let unsent = unsent(*number);
            sum += unsent;
            reports |= unsent >= HALF_BUFFER;
            unsent > 0
        });
        // A held datagram found no room, so it waits until nothing is left.
        let is_free = if self.held.is_some() { sum == 0 } else { sum < self.spec.unsent };
        if is_free {
            Line::Free
        } else if reports && self.in_kernel.len() == 1 {
            Line::Busy
        } else {
            Line::Unclear
        }
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
                Place::Client(number) => self.read(number),
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
        while let Ok(Some(connection)) = self.listener.accept() {
            let client = Client { connection, is_welcome: false, members: Vec::new(), waiting: 0, is_dirty: false };
            self.stats.clients += 1;
            match self.clients.iter_mut().find(|client| client.is_none()) {
                Some(free) => *free = Some(client),
                None => self.clients.push(Some(client)),
            }
        }
    }

    fn read(&mut self, number: usize) {
        let mut bytes = [0; HEAD + MESSAGE_MAX];
        for _ in 0..CHUNK {
            let Some(Some(client)) = self.clients.get(number) else { return };
            if client.waiting >= CLIENT_MAX {
                return;
            }
            match client.connection.receive(&mut bytes) {
                Received::Nothing => return,
                Received::Closed => return self.forget(number),
                Received::Message(length, descriptor) => {
                    let request = bytes.get(..length).and_then(Request::read);
                    if request.and_then(|request| self.serve_request(number, request, descriptor)).is_none() {
                        self.stats.malformed += 1;
                        return self.forget(number);
                    }
                }
            }
        }
    }

    /// `None`: the request makes no sense.
    fn serve_request(
        &mut self,
        number: usize,
        request: Request<'_>,
        descriptor: Option<std::os::fd::OwnedFd>,
    ) -> Option<()> {
        let client = self.clients.get_mut(number)?.as_mut()?;
        match request {
            Request::Hello { version } => {
                // A client of another version hears of this one, and leaves.
                client.is_welcome = version == VERSION;
                let _ = client.connection.send([&Answer::Welcome { version: VERSION }.write(), &[]], None);
                Some(())
            }
            _ if !client.is_welcome => None,
            Request::Join { socket } => self.join(number, socket, descriptor?),
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

    fn join(&mut self, number: usize, socket: u32, descriptor: std::os::fd::OwnedFd) -> Option<()> {
        if self.member_of(number, socket).is_some() {
            return None;
        }
        let outgoing = Outgoing::new(descriptor).ok()?;
        let refused = self.spec.priority.is_some_and(|priority| outgoing.set_priority(priority).is_err());
        let is_stream = outgoing.transport() == Transport::Stream;
        let member = if refused { None } else { self.outbox.join(is_stream) };
        let client = self.clients.get_mut(number)?.as_mut()?;
        let Some(member) = member else {
            let answer = Answer::Refused { socket, errno: 0 };
            let _ = client.connection.send([&answer.write(), &[]], None);
            return Some(());
        };
        let joined = Member {
            outgoing,
            client: Some(number),
            name: socket,
            counts: BrokerCounts::default(),
            waiting: 0,
            is_dirty: false,
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
        // A client that does not read its answers does not learn that the socket has joined.
        let _ = client.connection.send([&Answer::Joined { socket }.write(), &[]], None);
        Some(())
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
        let tag = self.keep(bytes, to);
        let packet = Packet { stream, bytes: Bytes::new(bytes.len() as u64), deadline, tag: u64::from(tag) };
        let is_taken = self.outbox.push(now(), packet).is_ok();
        let member = self.members.get_mut(stream as usize)?.as_mut()?;
        let client = self.clients.get_mut(number)?.as_mut()?;
        if is_taken {
            member.waiting += 1;
            client.waiting += 1;
            self.stats.waiting_max = self.stats.waiting_max.max(self.outbox.len());
        } else {
            (member.counts.refused, member.counts.errno) = (member.counts.refused + 1, NO_PLACE);
            (member.is_dirty, client.is_dirty) = (true, true);
            self.stats.refused += 1;
            self.free.push(tag);
        }
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
            if self.line() != Line::Free || !self.send_one() {
                return;
            }
        }
    }

    /// Whether there was a message.
    fn send_one(&mut self) -> bool {
        let now = now();
        let mut dropped = Vec::new();
        let held = self.held.take();
        let (rate, before) = (self.spec.rate, if self.in_kernel.is_empty() { 0 } else { self.last_frame });
        let leaves = |packet: &Packet| match rate {
            Some(rate) => now.saturating_add(time_on_line(before + frame(packet.bytes.get()), rate)),
            None => now,
        };
        let next = held.or_else(|| self.outbox.next(leaves, |packet| dropped.push(packet)));
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
        let is_stream = member.outgoing.transport() == Transport::Stream;
        let left = message.bytes.get(message.done..).unwrap_or_default();
        let turn = if is_stream { left.get(..STREAM_TURN).unwrap_or(left) } else { left };
        match member.outgoing.send(turn, message.to.as_ref()) {
            Outcome::Taken(bytes) => {
                message.done += bytes;
                self.stats.bytes += bytes as u64;
                if is_stream {
                    member.counts.bytes += bytes as u64;
                } else {
                    self.last_frame = frame(bytes as u64);
                    if !self.in_kernel.contains(&packet.stream) {
                        self.in_kernel.push(packet.stream);
                    }
                }
                let left = message.bytes.len().saturating_sub(message.done);
                if is_stream && left > 0 {
                    self.outbox.partly(now, packet, Bytes::new(left as u64));
                } else {
                    self.outbox.sent(now, packet);
                    self.end(packet, Fate::Sent);
                }
            }
            Outcome::Full if is_stream => {
                member.is_blocked = true;
                self.outbox.blocked(packet);
            }
            Outcome::Full => self.held = Some(packet),
            Outcome::Refused(errno) => {
                self.outbox.sent(now, packet);
                self.end(packet, Fate::Refused(errno));
            }
        }
        true
    }

    /// A message is no more.
    fn end(&mut self, packet: Packet, fate: Fate) {
        // Tags are places of messages.
        self.free.push(packet.tag as u32);
        match fate {
            Fate::Sent => self.stats.sent += 1,
            Fate::Late => self.stats.late += 1,
            Fate::Refused(_) => self.stats.refused += 1,
        }
        let Some(Some(member)) = self.members.get_mut(packet.stream as usize) else { return };
        match fate {
            Fate::Sent => member.counts.sent += 1,
            Fate::Late => member.counts.late += 1,
            Fate::Refused(errno) => {
                (member.counts.refused, member.counts.errno) = (member.counts.refused + 1, errno);
            }
        }
        member.waiting -= 1;
        member.is_dirty = true;
        if let Some(client) = member.client.and_then(|client| self.clients.get_mut(client)?.as_mut()) {
            client.waiting -= 1;
            client.is_dirty = true;
        }
        self.remove_if_done(packet.stream);
    }

    /// Removes a member that leaves and has no message here.
    fn remove_if_done(&mut self, number: u32) {
        let Some(place) = self.members.get_mut(number as usize) else { return };
        let Some(member) = place.take_if(|member| member.leaves.is_some() && member.waiting == 0) else { return };
        self.outbox.leave(number, |_| {});
        self.in_kernel.retain(|other| *other != number);
        let Some(client) = member.client.and_then(|client| self.clients.get_mut(client)?.as_mut()) else { return };
        client.members.retain(|(_, other)| *other != number);
        let answer = Answer::Counts { socket: member.name, counts: member.counts, has_left: true };
        let _ = client.connection.send([&answer.write(), &[]], None);
    }

    /// A client has gone. Its messages are sent, if that takes no longer than [`LINGER`].
    fn forget(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number).and_then(Option::take) else { return };
        let until = monotonic_ns().saturating_add(LINGER.as_ns());
        for (_, member) in client.members {
            if let Some(Some(leaver)) = self.members.get_mut(member as usize) {
                (leaver.client, leaver.leaves) = (None, Some(until));
            }
            self.remove_if_done(member);
        }
    }

    /// Removes the members whose time is over.
    fn remove_leavers(&mut self, now: u64) {
        for number in 0..self.members.len() as u32 {
            let over = |member: &Member| member.leaves.is_some_and(|until| now >= until);
            let is_over = self.members.get(number as usize).and_then(Option::as_ref).is_some_and(over);
            if !is_over {
                continue;
            }
            if self.held.is_some_and(|held| held.stream == number)
                && let Some(held) = self.held.take()
            {
                self.outbox.sent(crate::broker::now(), held);
                self.end(held, Fate::Refused(0));
            }
            let mut dropped = Vec::new();
            self.outbox.leave(number, |packet| dropped.push(packet));
            if let Some(place) = self.members.get_mut(number as usize) {
                *place = None;
            }
            self.in_kernel.retain(|other| *other != number);
            for packet in dropped {
                self.end(packet, Fate::Refused(0));
            }
        }
    }

    /// Tells clients what became of their messages: when all are done, or many.
    fn answer_all(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            if !client.is_dirty || client.waiting % 64 != 0 {
                continue;
            }
            client.is_dirty = false;
            for (name, member) in &client.members {
                let Some(Some(member)) = self.members.get_mut(*member as usize) else { continue };
                if member.is_dirty {
                    let answer = Answer::Counts { socket: *name, counts: member.counts, has_left: false };
                    let passed = client.connection.send([&answer.write(), &[]], None);
                    member.is_dirty = passed == Sent::Full;
                    client.is_dirty |= member.is_dirty;
                }
            }
        }
    }
}

/// Half of the smallest send buffer, in the kernel's count: a socket with more reports an event
/// when there is room.
const HALF_BUFFER: u64 = 2304;

/// The end of a message.
#[derive(Clone, Copy)]
enum Fate {
    Sent,
    Late,
    Refused(i32),
}

/// Bytes on an Ethernet of a UDP datagram over IPv4: the headers, the frame check sequence, preamble
/// and gap.
fn frame(payload: u64) -> u64 {
    payload + 66
}

fn time_on_line(bytes: u64, rate: Rate) -> Span {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.as_bps().max(1));
    Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
}

fn now() -> Time {
    Time::from_ns(monotonic_ns())
}
