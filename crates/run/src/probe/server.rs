//! The far side of a prober: counts, replies and tells its times.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use takt_linux::arrival::{Arrival, ArrivalClock};
use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::datagram::{Datagrams, Sent};
use takt_linux::marking::set_tos;
use takt_linux::outgoing::Outgoing;
use takt_linux::seqpacket::Poll;
use takt_model::{Span, Time};
use takt_net::probe::{Arrivals, Arrived, Frames, HEAD, Head, MESSAGE_MAX, ProbeMessage, ServerCounts};

use super::{ECN, GROUPS_MAX, ProbeError, number_of};
use crate::time_sync::{TimeSync, TimeSyncSpec};

/// How often is looked whether it shall stop.
const LOOK: Span = Span::from_ms(20);
/// The most runs by UDP at one time, and the most TCP connections.
const RUNS_MAX: usize = 32;
/// How long a connection beyond the limit has to ask, so that it is told.
const REFUSAL: Span = Span::from_s(1);
/// After this time without a message, a run may be replaced.
const IDLE: Span = Span::from_s(10);

/// A clock, given CLOCK_MONOTONIC.
pub type ProbeClock = Arc<dyn Fn(Time) -> Time + Send + Sync>;

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeServerSpec {
    /// Address and port, for UDP and TCP.
    pub listen: SocketAddr,
    /// SO_PRIORITY of its replies.
    pub priority: u32,
    /// The TOS byte of its replies.
    pub tos: u8,
    /// Groups (multicast) whose messages it takes, too, by UDP. It then listens at a wildcard address.
    pub groups: Vec<IpAddr>,
    /// The device through which these come; `None`: the kernel chooses by its routes.
    pub group_device: Option<String>,
}

impl ProbeServerSpec {
    /// At this address, for messages to it alone.
    #[must_use]
    pub fn new(listen: SocketAddr) -> ProbeServerSpec {
        ProbeServerSpec { listen, priority: 5, tos: 0, groups: Vec::new(), group_device: None }
    }

    fn check(&self) -> Result<(), ProbeError> {
        let value = |text: String| Err(ProbeError::Value(text));
        let listen = self.listen.ip();
        if listen.is_multicast() {
            return value(format!("{listen} is a group (multicast), and no address to listen at; give it by --group"));
        }
        if self.groups.is_empty() && self.group_device.is_some() {
            return value("--mc-rx-if is for groups (multicast); leave it out, or give --group".to_owned());
        }
        if self.groups.len() > GROUPS_MAX {
            return value(format!("{} groups; a server takes {GROUPS_MAX} at most", self.groups.len()));
        }
        if let Some(other) = self.groups.iter().find(|group| !group.is_multicast()) {
            return value(format!(
                "{other} is no group (multicast): groups are 224.0.0.0 to 239.255.255.255, and ff00:: and above"
            ));
        }
        if let Some(group) = self.groups.iter().find(|group| group.is_ipv4() != listen.is_ipv4()) {
            let any = if group.is_ipv4() { "0.0.0.0" } else { "[::]" };
            let port = self.listen.port();
            return value(format!(
                "messages to group {group} do not come to {listen}: one is IPv4, the other IPv6; give --listen \
                 {any}:{port}"
            ));
        }
        match self.groups.first() {
            Some(group) if !listen.is_unspecified() => value(format!(
                "messages to group {group} do not come to a socket at {listen}; leave out --listen, or give a \
                 wildcard: 0.0.0.0 or [::]"
            )),
            _ => Ok(()),
        }
    }
}

/// Counts of a server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProbeServerStats {
    /// Runs that were opened.
    pub runs: u64,
    /// Messages of runs, warm-up and duplicates included.
    pub received: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Replies that the kernel took.
    pub replies: u64,
    /// Replies that it did not take.
    pub unsent: u64,
    /// Malformed datagrams, and connections that ended because of malformed bytes.
    pub malformed: u64,
    /// Messages of runs that were not opened from their address.
    pub foreign: u64,
    /// Runs that were refused because there were too many.
    pub refused: u64,
    /// Requests about its clock that were answered.
    pub clock_requests: u64,
}

#[derive(Default)]
struct Shared {
    values: [AtomicU64; 8],
    connections: AtomicUsize,
}

/// The counts of [`Shared::values`].
#[derive(Clone, Copy)]
enum Count {
    Runs,
    Received,
    Bytes,
    Replies,
    Unsent,
    Malformed,
    Foreign,
    Refused,
}

impl Shared {
    fn add(&self, count: Count, by: u64) {
        if let Some(value) = self.values.get(count as usize) {
            value.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn stats(&self, clock_requests: u64) -> ProbeServerStats {
        let [runs, received, bytes, replies, unsent, malformed, foreign, refused] =
            self.values.each_ref().map(|value| value.load(Ordering::Relaxed));
        let [runs, received, bytes, replies] = [runs, received, bytes, replies];
        ProbeServerStats { runs, received, bytes, replies, unsent, malformed, foreign, refused, clock_requests }
    }
}

/// A server that is bound.
pub struct ProbeServer {
    udp: Datagrams,
    tcp: TcpListener,
    sync: TimeSync,
    /// Takes background load. Nobody reads it: the kernel drops what does not fit.
    sink: Datagrams,
    priority: u32,
    tos: u8,
    has_groups: bool,
    kernel_stamps: bool,
    clock: ProbeClock,
    welcome: [u16; 2],
}

impl ProbeServer {
    /// Opens the sockets.
    ///
    /// # Errors
    /// An address that cannot be used.
    pub fn bind(spec: &ProbeServerSpec) -> Result<ProbeServer, ProbeError> {
        Self::with_clock(spec, Arc::new(|time| time))
    }

    /// The same with another clock, for tests. `clock` computes it from CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// As [`ProbeServer::bind`].
    pub fn with_clock(spec: &ProbeServerSpec, clock: ProbeClock) -> Result<ProbeServer, ProbeError> {
        spec.check()?;
        let device = number_of(spec.group_device.as_deref())?;
        let udp = Datagrams::bind(spec.listen, spec.priority, 4 << 20, LOOK)?;
        set_tos(&udp, spec.tos)?;
        for group in &spec.groups {
            udp.join(*group, device).map_err(|cause| ProbeError::Join { group: *group, cause })?;
        }
        let kernel_stamps = udp.stamp().is_ok();
        // Without it, replies of a machine with several addresses come from one that the kernel chooses.
        let _ = udp.answer_as_asked();
        let address = udp.address()?;
        let refused = |cause| ProbeError::Listen { at: address, cause };
        let tcp = TcpListener::bind(address).map_err(refused)?;
        tcp.set_nonblocking(true).map_err(refused)?;
        // Of TCP the kernel takes no ECN.
        set_tos(&tcp, spec.tos & !ECN)?;
        let any = SocketAddr::new(spec.listen.ip(), 0);
        let (period, priority) = (Span::from_s(1), spec.priority);
        let (tos, has_groups) = (spec.tos, !spec.groups.is_empty());
        let sync = TimeSyncSpec { listen: any, peers: Vec::new(), period, drift_ppm: 0, priority, sources: None };
        let of_sync = Arc::clone(&clock);
        let sync = TimeSync::with_clock(&sync, Box::new(move |time| of_sync(time)))?;
        let sink = Datagrams::bind(any, 0, 1, LOOK)?;
        let welcome = [sync.address()?.port(), sink.address()?.port()];
        Ok(ProbeServer { udp, tcp, sync, sink, priority, tos, has_groups, kernel_stamps, clock, welcome })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.udp.address()
    }

    /// Whether the kernel stamps its datagrams.
    #[must_use]
    pub fn has_kernel_stamps(&self) -> bool {
        self.kernel_stamps
    }

    /// Serves until `stop` says so.
    pub fn serve(self, stop: &(dyn Fn() -> bool + Sync)) -> ProbeServerStats {
        let ProbeServer { udp, tcp, mut sync, sink, priority, tos, has_groups, kernel_stamps, clock, welcome } = self;
        let shared = Shared::default();
        let welcome =
            |kernel_stamps| ProbeMessage::Welcome { clock_port: welcome[0], sink_port: welcome[1], kernel_stamps };
        let by_tcp = Side { shared: &shared, clock: &clock, welcome: welcome(false), has_groups };
        let clock_requests = std::thread::scope(|scope| {
            let clocks = scope.spawn(|| {
                while !stop() {
                    sync.run_until(Time::from_ns(monotonic_ns()).saturating_add(LOOK));
                }
                sync.served()
            });
            scope.spawn(|| accept(scope, &tcp, (priority, tos), by_tcp, stop));
            Side { welcome: welcome(kernel_stamps), ..by_tcp }.datagrams(&udp, stop);
            clocks.join().unwrap_or(0)
        });
        drop(sink);
        shared.stats(clock_requests)
    }
}

/// Takes connections.
fn accept<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    listener: &'scope TcpListener,
    marks: (u32, u8),
    side: Side<'scope>,
    stop: &'scope (dyn Fn() -> bool + Sync),
) {
    while !stop() {
        let mut poll = Poll::default();
        poll.add(listener.as_fd(), true, false);
        poll.wait(Some(LOOK));
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without a free descriptor the next poll ends at once.
                    if error.kind() != ErrorKind::WouldBlock {
                        pause(LOOK);
                    }
                    break;
                }
            };
            let connections = side.shared.connections.load(Ordering::Relaxed);
            if connections >= RUNS_MAX {
                side.shared.add(Count::Refused, 1);
            }
            // Twice the limit: half of them are only told that there is no place.
            if connections >= 2 * RUNS_MAX {
                continue;
            }
            let side = if connections < RUNS_MAX { side } else { Side { welcome: ProbeMessage::Full, ..side } };
            side.shared.connections.fetch_add(1, Ordering::Relaxed);
            let serve = move || {
                let _ = side.stream(stream, marks, stop);
                side.shared.connections.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("takt-probe".to_owned()).spawn_scoped(scope, serve).is_err() {
                side.shared.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// The messages of a run that came.
#[derive(Default)]
struct Run {
    arrivals: Arrivals,
    bytes: u64,
    first: Option<Time>,
    last: Time,
}

impl Run {
    fn report(&self) -> ServerCounts {
        ServerCounts {
            received: self.arrivals.received,
            bytes: self.bytes,
            duplicates: self.arrivals.duplicates,
            reordered: self.arrivals.reordered,
            span: self.first.map_or(Span::ZERO, |first| self.last.saturating_since(first)),
        }
    }
}

/// How a message of one transport is answered.
#[derive(Clone, Copy)]
struct Side<'a> {
    shared: &'a Shared,
    clock: &'a ProbeClock,
    welcome: ProbeMessage,
    has_groups: bool,
}

impl Side<'_> {
    /// The answer to a message of a run, if any.
    fn answer(&self, run: &mut Run, head: Head, arrival: Arrival) -> Option<ProbeMessage> {
        match head.message {
            ProbeMessage::Open => Some(self.welcome),
            ProbeMessage::Ask => Some(ProbeMessage::Report(run.report())),
            ProbeMessage::Data { number, sent, wants_reply, is_warm_up } => {
                self.shared.add(Count::Received, 1);
                self.shared.add(Count::Bytes, head.length.into());
                if !is_warm_up {
                    match run.arrivals.take(number) {
                        Arrived::Duplicate | Arrived::Beyond => return None,
                        Arrived::InOrder | Arrived::Reordered => run.bytes += u64::from(head.length),
                    }
                    run.first.get_or_insert(arrival.to);
                    run.last = run.last.max(arrival.to);
                }
                let [received_from, received_to] = [arrival.from, arrival.to].map(|time| (self.clock)(time));
                let answered = (self.clock)(Time::from_ns(monotonic_ns()));
                let reply = ProbeMessage::Reply { number, sent, received_from, received_to, answered };
                wants_reply.then_some(reply)
            }
            // The transports end the run.
            ProbeMessage::Close => None,
            ProbeMessage::Welcome { .. }
            | ProbeMessage::Reply { .. }
            | ProbeMessage::Report(_)
            | ProbeMessage::Full => {
                self.shared.add(Count::Foreign, 1);
                None
            }
        }
    }

    fn answered(&self, message: ProbeMessage, is_sent: bool) {
        if matches!(message, ProbeMessage::Reply { .. }) {
            self.shared.add(if is_sent { Count::Replies } else { Count::Unsent }, 1);
        }
    }

    fn datagrams(&self, socket: &Datagrams, stop: &dyn Fn() -> bool) {
        // Runs with the time of their last message.
        let mut runs: BTreeMap<(SocketAddr, u64), (Run, Time)> = BTreeMap::new();
        let (mut bytes, padding) = (vec![0; MESSAGE_MAX + 1], vec![0; MESSAGE_MAX]);
        let mut looked = Time::ZERO;
        loop {
            let arrivals = ArrivalClock::start();
            let came = socket.await_asked(&mut bytes);
            let now = Time::from_ns(monotonic_ns());
            // A flood does not keep it from stopping.
            if (came.is_none() || now.saturating_since(looked) > LOOK) && stop() {
                return;
            }
            looked = if now.saturating_since(looked) > LOOK { now } else { looked };
            let Some((length, asker, stamp)) = came else { continue };
            let Some(head) = bytes.get(..length).and_then(Head::of_datagram) else {
                self.shared.add(Count::Malformed, 1);
                continue;
            };
            let mut key = (asker.address(), head.run);
            if self.has_groups && !runs.contains_key(&key) {
                // Messages to a group may leave the prober's machine by another address than messages to a server.
                let of_run = |(address, run): &&(SocketAddr, u64)| *run == key.1 && address.port() == key.0.port();
                key = runs.keys().find(of_run).copied().unwrap_or(key);
            }
            if head.message == ProbeMessage::Open && !runs.contains_key(&key) {
                if runs.len() >= RUNS_MAX {
                    runs.retain(|_, (_, last)| now.saturating_since(*last) < IDLE);
                }
                if runs.len() >= RUNS_MAX {
                    self.shared.add(Count::Refused, 1);
                    let full = Head { message: ProbeMessage::Full, length: HEAD as u32, ..head };
                    let _ = socket.send([&full.write(), &[]], &asker, Span::ZERO);
                    continue;
                }
                self.shared.add(Count::Runs, 1);
                runs.insert(key, (Run::default(), now));
            }
            let Some((run, last)) = runs.get_mut(&key) else {
                self.shared.add(Count::Foreign, 1);
                continue;
            };
            *last = now;
            if head.message == ProbeMessage::Close {
                runs.remove(&key);
                continue;
            }
            let Some(message) = self.answer(run, head, arrivals.arrival(stamp)) else { continue };
            let rest = padding.get(..length - HEAD).unwrap_or_default();
            let sent = socket.send([&Head { message, ..head }.write(), rest], &asker, Span::ZERO);
            self.answered(message, sent == Sent::Yes);
        }
    }

    fn stream(
        &self,
        mut stream: TcpStream,
        (priority, tos): (u32, u8),
        stop: &dyn Fn() -> bool,
    ) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_nanos(LOOK.as_ns())))?;
        stream.set_write_timeout(Some(Duration::from_nanos(Span::from_s(1).as_ns())))?;
        let outgoing = Outgoing::new(stream.as_fd().try_clone_to_owned()?).map_err(std::io::Error::other)?;
        let _ = outgoing.set_priority(priority);
        let _ = set_tos(&stream, tos & !ECN);
        let is_full = self.welcome == ProbeMessage::Full;
        let began = Time::from_ns(monotonic_ns());
        let (mut opened, mut run, mut frames) = (None, Run::default(), Frames::default());
        let (mut bytes, mut answer, mut heads) = (vec![0; 1 << 16], Vec::new(), Vec::new());
        while !stop() {
            if is_full && Time::from_ns(monotonic_ns()).saturating_since(began) >= REFUSAL {
                return Ok(());
            }
            let length = match stream.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let now = Time::from_ns(monotonic_ns());
            let arrival = Arrival { from: now, to: now };
            let is_whole = frames.feed(bytes.get(..length).unwrap_or_default(), &mut |head| heads.push(head));
            for head in heads.drain(..) {
                if head.message == ProbeMessage::Open && opened.is_none() {
                    self.shared.add(Count::Runs, u64::from(!is_full));
                    opened = Some(head.run);
                }
                if opened != Some(head.run) {
                    self.shared.add(Count::Foreign, 1);
                    continue;
                }
                let Some(message) = self.answer(&mut run, head, arrival) else { continue };
                answer.clear();
                answer.extend(Head { message, ..head }.write());
                answer.resize(head.length as usize, 0);
                let sent = stream.write_all(&answer);
                self.answered(message, sent.is_ok());
                sent?;
                if is_full {
                    return Ok(());
                }
            }
            if is_whole.is_err() {
                self.shared.add(Count::Malformed, 1);
                return Ok(());
            }
        }
        Ok(())
    }
}
