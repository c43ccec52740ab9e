//! The prober's way to its servers: one UDP socket, or a TCP connection to each.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path as FilePath;
use std::time::Duration;

use takt_dispatch::deadline::{Counts, DeadlineSender, DeadlineSocket, Route};
use takt_linux::arrival::ArrivalClock;
use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_linux::outgoing::{Outgoing, Transport};
use takt_linux::seqpacket::Poll;
use takt_model::{Span, Time};
use takt_net::probe::{Frames, HEAD, Head, MESSAGE_MAX, ProbeMessage, ServerCounts};

use super::{ProbeError, ProbeSpec};

/// The longest single wait for a message.
const WAIT: Span = Span::from_ms(5);
/// How long a send waits for room.
const ROOM: Span = Span::from_ms(100);
/// The time between two attempts to reach a server, and the number of attempts.
const RETRY: Span = Span::from_ms(100);
const ATTEMPTS_MAX: u32 = 20;
/// How long a broker has to take the sockets.
const BROKER: Span = Span::from_s(1);

enum Carrier {
    Udp(Datagrams, Vec<Destination>),
    Tcp(Vec<TcpStream>),
}

/// The way to the servers.
pub(super) struct Path {
    carrier: Carrier,
    run: u64,
    servers: Vec<SocketAddr>,
    /// With a broker: the UDP socket, or each connection.
    deadlines: Vec<DeadlineSocket>,
    /// The kernel stamps what comes.
    pub(super) kernel_stamps: bool,
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
pub(super) struct Came {
    /// To this program.
    pub(super) received: Time,
    /// To the kernel, or later.
    pub(super) stamped: Option<Time>,
}

impl Path {
    /// Opens sockets and connects. `run` is the number of the run.
    pub(super) fn open(spec: &ProbeSpec, run: u64) -> Result<Path, ProbeError> {
        let any = |server: &SocketAddr| match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let mut kernel_stamps = false;
        let carrier = match (spec.transport, spec.servers.first()) {
            (Transport::Datagram, Some(first)) => {
                let socket = Datagrams::bind(any(first), spec.priority, 4 << 20, WAIT)?;
                kernel_stamps = socket.stamp().is_ok();
                Carrier::Udp(socket, spec.servers.iter().map(|server| (*server).into()).collect())
            }
            _ => Carrier::Tcp(spec.servers.iter().map(|server| connect(*server, spec)).collect::<Result<_, _>>()?),
        };
        Ok(Path { carrier, run, servers: spec.servers.clone(), deadlines: Vec::new(), kernel_stamps })
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

    /// Sends a message of `size` bytes; `buffer` has [`MESSAGE_MAX`] bytes. Whether it was taken
    /// whole. `deadline` counts from now, and only a broker regards it.
    pub(super) fn send(
        &self,
        server: usize,
        message: ProbeMessage,
        size: u32,
        deadline: Span,
        buffer: &mut [u8],
    ) -> bool {
        let head = Head { run: self.run, length: size, message }.write();
        let (Some(bytes), Some(address)) = (buffer.get_mut(..size as usize), self.servers.get(server)) else {
            return false;
        };
        if let Some(place) = bytes.first_chunk_mut() {
            *place = head;
        }
        let with_deadlines = self.deadlines.get(if self.deadlines.len() == 1 { 0 } else { server });
        match (&self.carrier, with_deadlines) {
            (Carrier::Udp(..), Some(socket)) => {
                socket.set_deadline(deadline);
                socket.send_to(bytes, *address).is_ok()
            }
            (Carrier::Udp(socket, to), None) => {
                to.get(server).is_some_and(|to| socket.send([bytes, &[]], to, ROOM) == Sent::Yes)
            }
            (Carrier::Tcp(_), Some(socket)) => {
                socket.set_deadline(deadline);
                let mut rest = &*bytes;
                while !rest.is_empty() {
                    match socket.send(rest) {
                        Ok(sent) => rest = rest.get(sent.bytes..).unwrap_or_default(),
                        Err(_) => return false,
                    }
                }
                true
            }
            (Carrier::Tcp(streams), None) => {
                streams.get(server).is_some_and(|mut stream| stream.write_all(bytes).is_ok())
            }
        }
    }

    /// Opens the run at all servers.
    pub(super) fn greet(&self, inbox: &mut Inbox) -> Result<Vec<Welcome>, ProbeError> {
        let welcomes = self.exchange(inbox, ProbeMessage::Open, |message| match message {
            ProbeMessage::Welcome { clock_port, sink_port, kernel_stamps } => {
                Some(Welcome { clock_port, sink_port, kernel_stamps })
            }
            _ => None,
        });
        let silent = welcomes.iter().zip(&self.servers).find(|(welcome, _)| welcome.is_none());
        match silent {
            Some((_, server)) => Err(ProbeError::NoAnswer(*server)),
            None => Ok(welcomes.into_iter().flatten().collect()),
        }
    }

    /// Asks the servers for their counts; `None` for a silent server.
    pub(super) fn ask(&self, inbox: &mut Inbox) -> Vec<Option<ServerCounts>> {
        self.exchange(inbox, ProbeMessage::Ask, |message| match message {
            ProbeMessage::Report(counts) => Some(counts),
            _ => None,
        })
    }

    /// Asks each server until it has answered, with limited patience.
    fn exchange<T: Copy>(
        &self,
        inbox: &mut Inbox,
        question: ProbeMessage,
        read: impl Fn(ProbeMessage) -> Option<T>,
    ) -> Vec<Option<T>> {
        let mut answers = vec![None; self.servers.len()];
        let mut buffer = vec![0; HEAD];
        for attempt in 0..ATTEMPTS_MAX {
            let silent: Vec<usize> = (0..answers.len()).filter(|server| answers[*server].is_none()).collect();
            if silent.is_empty() {
                break;
            }
            for server in silent {
                // A stream loses nothing.
                if attempt == 0 || matches!(self.carrier, Carrier::Udp(..)) {
                    self.send(server, question, HEAD as u32, Span::from_s(1), &mut buffer);
                }
            }
            let until = Time::from_ns(monotonic_ns()).saturating_add(RETRY);
            while answers.iter().any(Option::is_none) && Time::from_ns(monotonic_ns()) < until {
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

fn connect(server: SocketAddr, spec: &ProbeSpec) -> Result<TcpStream, ProbeError> {
    let refused = |cause| ProbeError::Connect { server, cause };
    let stream = TcpStream::connect_timeout(&server, Duration::from_secs(5)).map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    stream.set_read_timeout(Some(Duration::from_nanos(WAIT.as_ns()))).map_err(refused)?;
    // A server that reads nothing does not hold the prober for ever.
    stream.set_write_timeout(Some(Duration::from_secs(5))).map_err(refused)?;
    let outgoing = Outgoing::new(stream.as_fd().try_clone_to_owned().map_err(refused)?)?;
    outgoing.set_priority(spec.priority)?;
    Ok(stream)
}

/// Reads what comes from the servers.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    frames: Vec<Frames>,
    /// Streams that have ended.
    ended: Vec<bool>,
    /// Datagrams that are no message of this run.
    pub(super) foreign: u64,
}

impl Inbox {
    pub(super) fn new(servers: usize) -> Inbox {
        let bytes = vec![0; MESSAGE_MAX + 1];
        Inbox { bytes, frames: vec![Frames::default(); servers], ended: vec![false; servers], foreign: 0 }
    }

    /// Waits for at most 5 ms. Calls `on` for each message, with the index of its server.
    pub(super) fn receive(&mut self, path: &Path, on: &mut dyn FnMut(usize, ProbeMessage, Came)) {
        match &path.carrier {
            Carrier::Udp(socket, _) => self.datagram(path, socket, on),
            Carrier::Tcp(streams) => self.streams(path, streams, on),
        }
    }

    fn datagram(&mut self, path: &Path, socket: &Datagrams, on: &mut dyn FnMut(usize, ProbeMessage, Came)) {
        let arrivals = ArrivalClock::start();
        let Some((length, from, stamp)) = socket.await_stamped(&mut self.bytes) else { return };
        let received = Time::from_ns(monotonic_ns());
        let stamped = stamp.map(|_| arrivals.arrival(stamp).to.min(received));
        let is_from = |server: &SocketAddr| (server.ip(), server.port()) == (from.ip(), from.port());
        let server = path.servers.iter().position(is_from);
        match (server, self.bytes.get(..length).and_then(Head::of_datagram)) {
            (Some(server), Some(head)) if head.run == path.run => on(server, head.message, Came { received, stamped }),
            _ => self.foreign += 1,
        }
    }

    fn streams(&mut self, path: &Path, streams: &[TcpStream], on: &mut dyn FnMut(usize, ProbeMessage, Came)) {
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
                Ok(0) => {
                    self.ended[*server] = true;
                    continue;
                }
                Ok(length) => length,
                Err(_) => continue,
            };
            let came = Came { received: Time::from_ns(monotonic_ns()), stamped: None };
            let (bytes, foreign) = (self.bytes.get(..length).unwrap_or_default(), &mut self.foreign);
            let is_whole = self.frames[*server].feed(bytes, &mut |head| match head.run == path.run {
                true => on(*server, head.message, came),
                false => *foreign += 1,
            });
            if is_whole.is_err() {
                self.foreign += 1;
                self.ended[*server] = true;
            }
        }
    }
}
