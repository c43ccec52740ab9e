//! The prober's way to its servers: one UDP socket, or a TCP connection to each.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use takt_dispatch::deadline::{Counts, DeadlineSender, DeadlineSocket, Route, SendError};
use takt_linux::arrival::ArrivalClock;
use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::datagram::{Datagrams, Destination, GroupSending, Sent};
use takt_linux::marking::{self, set_tos};
use takt_linux::outgoing::{Outgoing, Transport};
use takt_linux::seqpacket::Poll;
use takt_model::{Span, Time};
use takt_net::probe::{Frames, HEAD, Head, MESSAGE_MAX, ProbeMessage, ServerCounts};

use super::{GroupSpec, ProbeError, ProbeSpec, SERVERS_MAX, number_of};

/// The longest single wait for a message.
const WAIT: Span = Span::from_ms(5);
/// How long a send waits for room.
const ROOM: Span = Span::from_ms(100);
/// The time between two attempts to reach a server, and the number of attempts.
const RETRY: Span = Span::from_ms(100);
const ATTEMPTS_MAX: u32 = 20;
/// How often all servers of a group are asked at least, so that none is left out.
const ATTEMPTS_OF_GROUP: u32 = 3;
/// How long a connection may take.
const CONNECT: Span = Span::from_s(5);
/// How long a connection may take no byte.
const STALL: Span = Span::from_s(5);
/// Between two tries to send through a broker that has no room.
const ROOM_WAIT: Span = Span::from_us(200);
/// How often a stop is looked for while connections are made.
const LOOK: Duration = Duration::from_millis(20);
/// How long a broker has to take the sockets.
const BROKER: Span = Span::from_s(1);

enum Carrier {
    Udp(Datagrams, Vec<Destination>),
    Tcp(Vec<TcpStream>),
}

/// The way to the servers. Its end closes the run at them.
pub(super) struct Path<'a> {
    carrier: Carrier,
    run: u64,
    servers: Vec<SocketAddr>,
    /// The group of the servers: each message goes there once.
    group: Option<Destination>,
    /// With a broker: the UDP socket, or each connection.
    deadlines: Vec<DeadlineSocket>,
    /// The kernel stamps what comes.
    pub(super) kernel_stamps: bool,
    /// Connections that take no more messages.
    ended: Vec<AtomicBool>,
    /// No send waits after this time.
    until: AtomicU64,
    patience: Span,
    stop: &'a (dyn Fn() -> bool + Sync),
}

/// A server's answer to the start of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Welcome {
    pub(super) clock_port: u16,
    pub(super) sink_port: u16,
    pub(super) kernel_stamps: bool,
}

/// When a message came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arrival {
    /// To this program.
    pub(super) received: Time,
    /// To the kernel, or later.
    pub(super) stamped: Option<Time>,
}

impl Drop for Path<'_> {
    /// A stream ends by itself.
    fn drop(&mut self) {
        let Carrier::Udp(socket, to) = &self.carrier else { return };
        let close = Head { run: self.run, length: HEAD as u32, message: ProbeMessage::Close }.write();
        // Members of a group that did not become servers of this run end it, too.
        let group = self.group.as_ref().filter(|_| to.is_empty());
        for to in to.iter().chain(group) {
            let _ = socket.send([&close, &[]], to, ROOM);
        }
    }
}

impl<'a> Path<'a> {
    /// Opens sockets and connects, until `stop`. `run` is the number of the run.
    pub(super) fn open(
        spec: &ProbeSpec,
        run: u64,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Path<'a>, ProbeError> {
        let any = |server: &SocketAddr| match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let mut kernel_stamps = false;
        let group = spec.group.as_ref().and(spec.servers.first()).copied();
        // The servers of a group are known when they have answered.
        let servers = if group.is_some() { Vec::new() } else { spec.servers.clone() };
        let carrier = match (spec.transport, spec.servers.first()) {
            (Transport::Datagram, Some(first)) => {
                let socket = Datagrams::bind(any(first), spec.priority, 4 << 20, WAIT)?;
                set_tos(&socket, spec.tos)?;
                if let Some(group) = &spec.group {
                    socket.set_group_sending(group.sending()?)?;
                }
                kernel_stamps = socket.stamp().is_ok();
                Carrier::Udp(socket, servers.iter().map(|server| (*server).into()).collect())
            }
            _ => Carrier::Tcp(connect(spec, stop)?),
        };
        let ended = servers.iter().map(|_| AtomicBool::new(false)).collect();
        let (until, patience, group) = (AtomicU64::new(u64::MAX), spec.patience, group.map(Destination::from));
        Ok(Path { carrier, run, servers, group, deadlines: Vec::new(), kernel_stamps, ended, until, patience, stop })
    }

    /// The servers. Those of a group are known after [`Path::gather`].
    pub(super) fn servers(&self) -> &[SocketAddr] {
        &self.servers
    }

    /// Whether each message goes to all servers.
    pub(super) fn is_group(&self) -> bool {
        self.group.is_some()
    }

    /// Sends do not wait after this time.
    pub(super) fn wait_until(&self, at: Time) {
        self.until.store(at.as_ns(), Ordering::Relaxed);
    }

    /// Whether the connection to a server takes no more messages.
    pub(super) fn has_ended(&self, server: usize) -> bool {
        self.ended.get(server).is_some_and(|ended| ended.load(Ordering::Relaxed))
    }

    /// Whether no connection takes messages.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ended.iter().all(|ended| ended.load(Ordering::Relaxed))
    }

    fn end(&self, server: usize) {
        if let Some(ended) = self.ended.get(server) {
            ended.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the sockets to a broker.
    pub(super) fn join(&mut self, broker: &FilePath, deadline: Span) -> Result<(), ProbeError> {
        let sender = DeadlineSender::open(broker)?;
        self.deadlines = match &self.carrier {
            Carrier::Udp(socket, _) => vec![sender.socket(socket, deadline)?],
            Carrier::Tcp(streams) => {
                streams.iter().map(|stream| sender.socket(stream, deadline)).collect::<Result<_, _>>()?
            }
        };
        let until = Time::from_ns(monotonic_ns()).saturating_add(BROKER);
        while self.deadlines.iter().any(|socket| socket.route() != Route::Broker) {
            if (self.stop)() {
                return Err(ProbeError::Stopped);
            }
            if Time::from_ns(monotonic_ns()) >= until {
                return Err(ProbeError::NoBroker(broker.to_owned()));
            }
            pause(Span::from_ms(5));
        }
        Ok(())
    }

    /// The broker's counts; `None` without a broker.
    pub(super) fn broker(&self) -> Option<Counts> {
        let sum = |sum: Counts, socket: &DeadlineSocket| {
            let counts = socket.counts();
            Counts {
                queued: sum.queued + counts.queued,
                plain: sum.plain + counts.plain,
                sent: sum.sent + counts.sent,
                late: sum.late + counts.late,
                refused: sum.refused + counts.refused,
                lost: sum.lost + counts.lost,
            }
        };
        (!self.deadlines.is_empty()).then(|| self.deadlines.iter().fold(Counts::default(), sum))
    }

    /// Sends a message of `size` bytes to a server; `buffer` has [`MESSAGE_MAX`] bytes. Whether it was taken
    /// whole. `deadline` counts from now, and only a broker regards it.
    pub(super) fn send(
        &self,
        server: usize,
        message: ProbeMessage,
        size: u32,
        deadline: Span,
        buffer: &mut [u8],
    ) -> bool {
        !self.has_ended(server) && self.send_to(Some(server), message, size, deadline, buffer)
    }

    /// The same to all servers of the group at once.
    pub(super) fn send_to_group(&self, message: ProbeMessage, size: u32, deadline: Span, buffer: &mut [u8]) -> bool {
        self.send_to(None, message, size, deadline, buffer)
    }

    /// `None`: to the group.
    fn send_to(
        &self,
        server: Option<usize>,
        message: ProbeMessage,
        size: u32,
        deadline: Span,
        buffer: &mut [u8],
    ) -> bool {
        let head = Head { run: self.run, length: size, message }.write();
        let Some(bytes) = buffer.get_mut(..size as usize) else { return false };
        if let Some(place) = bytes.first_chunk_mut() {
            *place = head;
        }
        let (socket, to) = match &self.carrier {
            Carrier::Udp(socket, to) => (socket, to),
            Carrier::Tcp(streams) => return server.is_some_and(|at| self.send_stream(at, streams, bytes, deadline)),
        };
        let to = server.map_or(self.group.as_ref(), |server| to.get(server));
        let Some(to) = to else { return false };
        let Some(brokered) = self.deadlines.first() else { return socket.send([bytes, &[]], to, ROOM) == Sent::Yes };
        brokered.set_deadline(deadline);
        let mut since = None;
        loop {
            match brokered.try_send(bytes, Some(to.address())) {
                Err(SendError::WouldBlock) if !self.gives_up(&mut since) => pause(ROOM_WAIT),
                sent => return sent.is_ok(),
            }
        }
    }

    /// Sends by a connection.
    fn send_stream(&self, server: usize, streams: &[TcpStream], bytes: &[u8], deadline: Span) -> bool {
        match self.deadlines.get(server) {
            Some(socket) => {
                socket.set_deadline(deadline);
                let mut rest = bytes;
                let mut since = None;
                while !rest.is_empty() {
                    match socket.try_send(rest, None) {
                        Ok(sent) => {
                            rest = rest.get(sent.bytes..).unwrap_or_default();
                            since = None;
                        }
                        Err(SendError::WouldBlock) if !self.gives_up(&mut since) => pause(ROOM_WAIT),
                        Err(_) => {
                            self.end(server);
                            return false;
                        }
                    }
                }
                true
            }
            None => streams.get(server).is_some_and(|stream| self.write(server, stream, bytes)),
        }
    }

    /// Opens the run at the servers of the group. All that answer take part, in the order of their addresses.
    pub(super) fn gather(&mut self, group: &GroupSpec) -> Result<Vec<Welcome>, ProbeError> {
        let mut found: Vec<(SocketAddr, Welcome)> = Vec::new();
        let (mut bytes, mut buffer) = (vec![0; MESSAGE_MAX + 1], vec![0; HEAD]);
        for attempt in 1..=ATTEMPTS_MAX {
            self.send_to_group(ProbeMessage::Open, HEAD as u32, Span::from_s(1), &mut buffer);
            let until = Time::from_ns(monotonic_ns()).saturating_add(RETRY);
            while Time::from_ns(monotonic_ns()) < until {
                if (self.stop)() {
                    return Err(ProbeError::Stopped);
                }
                let Carrier::Udp(socket, _) = &self.carrier else { break };
                let Some((length, from, _)) = socket.await_stamped(&mut bytes) else { continue };
                let head = bytes.get(..length).and_then(Head::of_datagram).filter(|head| head.run == self.run);
                match head.map(|head| head.message) {
                    Some(ProbeMessage::Welcome { clock_port, sink_port, kernel_stamps })
                        if found.len() < SERVERS_MAX && found.iter().all(|(server, _)| *server != from) =>
                    {
                        found.push((from, Welcome { clock_port, sink_port, kernel_stamps }));
                    }
                    Some(ProbeMessage::Full) => return Err(ProbeError::Full(from)),
                    _ => {}
                }
            }
            if attempt >= ATTEMPTS_OF_GROUP && found.len() >= group.members as usize {
                break;
            }
        }
        if let Some(to) = self.group.as_ref().filter(|_| found.len() < group.members as usize) {
            let (found, wanted, ttl) = (found.len(), group.members, group.ttl);
            return Err(ProbeError::NoMembers { group: to.address(), found, wanted, ttl });
        }
        found.sort_unstable_by_key(|(server, _)| *server);
        self.servers = found.iter().map(|(server, _)| *server).collect();
        self.ended = found.iter().map(|_| AtomicBool::new(false)).collect();
        if let Carrier::Udp(_, to) = &mut self.carrier {
            *to = self.servers.iter().map(|server| (*server).into()).collect();
        }
        Ok(found.into_iter().map(|(_, welcome)| welcome).collect())
    }

    /// Whether a stream or a broker that has taken nothing since then is given up.
    fn gives_up(&self, since: &mut Option<Time>) -> bool {
        let now = Time::from_ns(monotonic_ns());
        let stalled = now.saturating_since(*since.get_or_insert(now));
        let is_late = now.as_ns() >= self.until.load(Ordering::Relaxed);
        is_late || stalled >= STALL || (stalled >= self.patience && (self.stop)())
    }

    /// Writes all of `rest`. A message that was cut ends its stream.
    fn write(&self, server: usize, mut stream: &TcpStream, mut rest: &[u8]) -> bool {
        let mut since = None;
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(taken) if taken > 0 => {
                    rest = rest.get(taken..).unwrap_or_default();
                    since = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.gives_up(&mut since) => {}
                _ => {
                    self.end(server);
                    return false;
                }
            }
        }
        true
    }

    /// Opens the run at all servers.
    pub(super) fn greet(&self, inbox: &mut Inbox) -> Result<Vec<Welcome>, ProbeError> {
        let answers = self.exchange(inbox, ProbeMessage::Open, self.stop, |message| match message {
            ProbeMessage::Welcome { clock_port, sink_port, kernel_stamps } => {
                Some(Some(Welcome { clock_port, sink_port, kernel_stamps }))
            }
            ProbeMessage::Full => Some(None),
            _ => None,
        });
        if let Some((_, server)) = answers.iter().zip(&self.servers).find(|(answer, _)| **answer == Some(None)) {
            return Err(ProbeError::Full(*server));
        }
        let welcomes: Vec<Option<Welcome>> = answers.into_iter().map(Option::flatten).collect();
        if (self.stop)() {
            return Err(ProbeError::Stopped);
        }
        let silent = welcomes.iter().zip(&self.servers).find(|(welcome, _)| welcome.is_none());
        match silent {
            Some((_, server)) => Err(ProbeError::NoAnswer(*server)),
            None => Ok(welcomes.into_iter().flatten().collect()),
        }
    }

    /// Asks the servers for their counts; `None` for a silent server.
    pub(super) fn ask(&self, inbox: &mut Inbox) -> Vec<Option<ServerCounts>> {
        self.wait_until(Time::from_ns(monotonic_ns()).saturating_add(Span::from_s(2)));
        self.exchange(inbox, ProbeMessage::Ask, &|| false, |message| match message {
            ProbeMessage::Report(counts) => Some(counts),
            _ => None,
        })
    }

    /// Asks each server until it has answered, with limited patience, or until `stop`.
    fn exchange<T: Copy>(
        &self,
        inbox: &mut Inbox,
        question: ProbeMessage,
        stop: &dyn Fn() -> bool,
        read: impl Fn(ProbeMessage) -> Option<T>,
    ) -> Vec<Option<T>> {
        let mut answers = vec![None; self.servers.len()];
        let mut buffer = vec![0; HEAD];
        for attempt in 0..ATTEMPTS_MAX {
            let is_silent = |server: &usize| answers[*server].is_none() && !inbox.has_ended(*server);
            let silent: Vec<usize> = (0..answers.len()).filter(is_silent).collect();
            if silent.is_empty() || stop() {
                break;
            }
            for server in silent {
                // A stream loses nothing.
                if attempt == 0 || matches!(self.carrier, Carrier::Udp(..)) {
                    self.send(server, question, HEAD as u32, Span::from_s(1), &mut buffer);
                }
            }
            let until = Time::from_ns(monotonic_ns()).saturating_add(RETRY);
            while answers.iter().any(Option::is_none)
                && !inbox.have_all_ended()
                && Time::from_ns(monotonic_ns()) < until
                && !stop()
            {
                inbox.receive(self, &mut |server, message, _| {
                    if let (Some(answer), Some(value)) = (answers.get_mut(server), read(message)) {
                        *answer = Some(value);
                    }
                });
            }
        }
        answers
    }
}

impl GroupSpec {
    fn sending(&self) -> Result<GroupSending, ProbeError> {
        Ok(GroupSending { device: number_of(self.device.as_deref())?, ttl: self.ttl, loops: self.loops })
    }
}

/// Connects to all servers at the same time. After a stop, the threads end by their time limit.
fn connect(spec: &ProbeSpec, stop: &dyn Fn() -> bool) -> Result<Vec<TcpStream>, ProbeError> {
    let (done, results) = channel();
    for (place, server) in spec.servers.iter().copied().enumerate() {
        let done = done.clone();
        let tos = spec.tos;
        let connect = move || drop(done.send((place, marking::connect(server, Some(tos), CONNECT))));
        std::thread::Builder::new().name("takt-connect".to_owned()).spawn(connect)?;
    }
    drop(done);
    let mut streams: Vec<Option<TcpStream>> = spec.servers.iter().map(|_| None).collect();
    loop {
        match results.recv_timeout(LOOK) {
            Ok((place, stream)) => {
                if let (Some(to), Some(server)) = (streams.get_mut(place), spec.servers.get(place)) {
                    *to = Some(prepared(*server, stream, spec.priority)?);
                }
            }
            Err(RecvTimeoutError::Timeout) if stop() => return Err(ProbeError::Stopped),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(streams.into_iter().flatten().collect()),
        }
    }
}

fn prepared(server: SocketAddr, stream: io::Result<TcpStream>, priority: u32) -> Result<TcpStream, ProbeError> {
    let refused = |cause| ProbeError::Connect { server, cause };
    let stream = stream.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    stream.set_read_timeout(Some(Duration::from_nanos(WAIT.as_ns()))).map_err(refused)?;
    // A server that reads nothing does not hold the prober for ever.
    stream.set_write_timeout(Some(Duration::from_nanos(ROOM.as_ns()))).map_err(refused)?;
    let outgoing = Outgoing::new(stream.as_fd().try_clone_to_owned().map_err(refused)?)?;
    outgoing.set_priority(priority)?;
    Ok(stream)
}

/// Reads what comes from the servers.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    frames: Vec<Frames>,
    ended: Vec<bool>,
    /// Datagrams that are no message of this run.
    pub(super) foreign: u64,
}

impl Inbox {
    pub(super) fn new(servers: usize) -> Inbox {
        let bytes = vec![0; MESSAGE_MAX + 1];
        Inbox { bytes, frames: vec![Frames::default(); servers], ended: vec![false; servers], foreign: 0 }
    }

    /// Whether nothing more comes from a server.
    fn has_ended(&self, server: usize) -> bool {
        self.ended.get(server).is_some_and(|ended| *ended)
    }

    /// Whether nothing more comes at all.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }

    /// Waits for at most 5 ms. Calls `on` for each message, with the index of its server.
    pub(super) fn receive(&mut self, path: &Path, on: &mut dyn FnMut(usize, ProbeMessage, Arrival)) {
        match &path.carrier {
            Carrier::Udp(socket, _) => self.datagram(path, socket, on),
            Carrier::Tcp(streams) => self.streams(path, streams, on),
        }
    }

    fn datagram(&mut self, path: &Path, socket: &Datagrams, on: &mut dyn FnMut(usize, ProbeMessage, Arrival)) {
        let arrivals = ArrivalClock::start();
        let Some((length, from, stamp)) = socket.await_stamped(&mut self.bytes) else { return };
        let received = Time::from_ns(monotonic_ns());
        let stamped = stamp.map(|_| arrivals.arrival(stamp).to.min(received));
        let is_from = |server: &SocketAddr| (server.ip(), server.port()) == (from.ip(), from.port());
        let server = path.servers.iter().position(is_from);
        match (server, self.bytes.get(..length).and_then(Head::of_datagram)) {
            (Some(server), Some(head)) if head.run == path.run => {
                on(server, head.message, Arrival { received, stamped })
            }
            _ => self.foreign += 1,
        }
    }

    fn streams(&mut self, path: &Path, streams: &[TcpStream], on: &mut dyn FnMut(usize, ProbeMessage, Arrival)) {
        let mut poll = Poll::default();
        let open: Vec<usize> = (0..streams.len()).filter(|server| !self.ended[*server]).collect();
        if open.is_empty() {
            return pause(WAIT);
        }
        if open.len() > 1 {
            for server in &open {
                poll.add(streams[*server].as_fd(), true, false);
            }
            poll.wait(Some(WAIT));
        }
        for (place, server) in open.iter().enumerate() {
            if open.len() > 1 && !poll.is_ready(place) {
                continue;
            }
            let mut stream = &streams[*server];
            let length = match stream.read(&mut self.bytes) {
                Ok(length) if length > 0 => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                _ => {
                    self.ended[*server] = true;
                    path.end(*server);
                    continue;
                }
            };
            let came = Arrival { received: Time::from_ns(monotonic_ns()), stamped: None };
            let (bytes, foreign) = (self.bytes.get(..length).unwrap_or_default(), &mut self.foreign);
            let is_whole = self.frames[*server].feed(bytes, &mut |head| match head.run == path.run {
                true => on(*server, head.message, came),
                false => *foreign += 1,
            });
            if is_whole.is_err() {
                self.foreign += 1;
                self.ended[*server] = true;
                path.end(*server);
            }
        }
    }
}
