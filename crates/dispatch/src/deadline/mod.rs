//! Messages with deadlines on ordinary UDP and TCP sockets.
//!
//! A broker (`takt net broker`) takes the messages of all programs of a machine and gives them to
//! the kernel in the order of their deadlines [HEDF II-C]. It does so as late as possible: while a
//! packet is on its way to the line, the others still wait in the broker.
//!
//! Without a broker, messages go straight to the kernel, in the order in which they are sent. Each
//! send says which of both happened ([`Route`]). When a broker comes (again), the sockets join it.
//!
//! - A socket stays the program's own: it receives, and is watched by poll, as before. Only room for
//!   the next message is told by another descriptor ([`DeadlineSocket::room`]).
//! - A stream's bytes are neither lost nor doubled when the broker dies, since the kernel tells how
//!   many of them it has taken. Datagrams that waited in a broker that was killed are lost, and
//!   counted.
//! - A socket with deadlines must be written by [`DeadlineSocket`] alone. Close it last.
//! - The child of fork(2) must not use its parent's senders.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use std::path::Path;
//! use takt_dispatch::deadline::{DEFAULT_PATH, DeadlineSender, Route};
//! use takt_model::Span;
//!
//! let sender = DeadlineSender::open(Path::new(DEFAULT_PATH))?;
//! let udp = UdpSocket::bind("0.0.0.0:0")?;
//! udp.connect("10.0.0.7:4000")?;
//! let socket = sender.socket(&udp, Span::from_ms(2))?;
//! let sent = socket.send(b"sample")?;
//! if sent.route == Route::Plain {
//!     eprintln!("no broker: the message was sent without its deadline");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod room;
pub mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use takt_linux::PiMutex;
use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::datagram::Destination;
use takt_linux::eventfd::EventFd;
use takt_linux::outgoing::{Outcome, Outgoing, OutgoingError, SavedOptions, Transport};
use takt_linux::seqpacket::{Connection, Poll, Received, Sent as Passed};
use takt_model::{Span, Time};
use thiserror::Error;

use self::room::{RoomDescriptor, Wait};
use self::wire::{ANSWER, Answer, BrokerCounts, MESSAGE_MAX, Request, VERSION};

/// Where a broker listens, unless it is told another path.
pub const DEFAULT_PATH: &str = "/run/takt-broker";
/// The time between two attempts to find a broker.
const RETRY: Span = Span::from_ms(100);
/// How long a new socket, and one that leaves, waits for the broker's answer.
const PATIENCE: Span = Span::from_s(1);
/// The most bytes of a stream that wait in the broker.
const STREAM_MAX: usize = 1 << 20;

/// How a message left the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Through the broker, which goes by its deadline.
    Broker,
    /// Straight to the kernel, without regard to its deadline.
    Plain,
}

/// The result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Bytes that were taken: of a datagram all, of a stream perhaps fewer.
    pub bytes: usize,
    /// How they left.
    pub route: Route,
}

/// Why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no room, and the socket does not wait (O_NONBLOCK). [`DeadlineSocket::room`] tells when there is.
    #[error("there is no room for the message; send it again later")]
    WouldBlock,
    /// The message is too long.
    #[error("a message of {0} bytes is too long; at most {MESSAGE_MAX}")]
    TooLong(usize),
    /// The kernel refused it.
    #[error("the kernel refused the message: {}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

/// The counts of a socket since it got its deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Messages given to a broker.
    pub queued: u64,
    /// Messages given straight to the kernel.
    pub plain: u64,
    /// Messages that a broker gave to the kernel. Brokers report with some delay.
    pub sent: u64,
    /// Messages that a broker dropped because they were late.
    pub late: u64,
    /// Messages that the kernel refused to a broker.
    pub refused: u64,
    /// Datagrams that waited in a broker that ended without sending them.
    pub lost: u64,
}

/// The sender of a program. Cloning gives another handle to it.
#[derive(Clone)]
pub struct DeadlineSender {
    shared: Arc<Shared>,
    _watch: Arc<Watch>,
}

struct Shared {
    state: PiMutex<State>,
    /// Raised when the watching thread has something new to look at.
    changed: EventFd,
    ends: AtomicBool,
}

/// The thread that reads the broker's answers and looks for a new broker.
struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.changed.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct State {
    path: PathBuf,
    broker: Option<Arc<Connection>>,
    is_welcome: bool,
    retry_at: u64,
    members: BTreeMap<u32, Member>,
    /// The number of the next socket. None is given twice, so that no answer concerns another socket.
    next: u32,
    /// Sockets that the watching thread polls. The kernel keeps these open until that poll ends.
    polled: Vec<u32>,
}

struct Member {
    outgoing: Arc<Outgoing>,
    former: SavedOptions,
    deadline: Span,
    stage: Stage,
    /// The program wants its socket back.
    leaves: bool,
    /// Counts before the present broker.
    before: Counts,
    /// Messages given to the present broker.
    queued: u64,
    reported: BrokerCounts,
    /// Of a stream.
    pending: Pending,
    /// If the program has asked for it.
    room: Option<RoomDescriptor>,
}

/// A member's stage with the present broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has not joined: there is no broker, or bytes must leave first.
    Outside,
    /// It has asked to join.
    Joining,
    /// Its messages go through the broker.
    Inside,
    /// The broker takes no more of its messages.
    Leaving,
    /// The broker refused it, or has let go of it. It does not join this broker again.
    Left,
}

/// Bytes of a stream that were given to the broker, until the kernel is known to have them.
#[derive(Default)]
struct Pending {
    bytes: VecDeque<u8>,
    /// What [`Outgoing::taken`] was when the socket joined.
    base: u64,
    /// Bytes since then that are not in `bytes` any more.
    gone: u64,
}

impl Pending {
    /// The kernel has taken that many bytes since the socket joined.
    fn advance(&mut self, taken: u64) {
        let done = usize::try_from(taken.saturating_sub(self.gone)).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.drain(..done);
        self.gone += done as u64;
    }
}

impl Member {
    /// Messages that are with the broker, as far as it has reported.
    fn waiting(&self) -> u64 {
        let BrokerCounts { sent, late, refused, .. } = self.reported;
        self.queued.saturating_sub(sent + late + refused)
    }

    /// Whether the broker has nothing of it.
    fn is_apart(&self) -> bool {
        matches!(self.stage, Stage::Outside | Stage::Left)
    }

    /// Whether it is to ask a broker to take it.
    fn wants_to_join(&self) -> bool {
        self.stage == Stage::Outside && !self.leaves && self.pending.bytes.is_empty()
    }

    /// Whether the watching thread must look at it again soon.
    fn is_pressing(&self) -> bool {
        self.is_apart() && !self.pending.bytes.is_empty() || self.leaves && self.stage == Stage::Inside
    }

    fn counts(&self) -> Counts {
        let BrokerCounts { sent, late, refused, .. } = self.reported;
        Counts {
            queued: self.before.queued + self.queued,
            sent: self.before.sent + sent,
            late: self.before.late + late,
            refused: self.before.refused + refused,
            ..self.before
        }
    }

    /// The broker is gone: what it reported is final. A stream's bytes that the kernel has not
    /// taken stay in `pending`.
    fn lose_broker(&mut self) {
        let was_inside = matches!(self.stage, Stage::Inside | Stage::Leaving);
        self.before = self.counts();
        if was_inside && self.outgoing.transport() == Transport::Datagram {
            self.before.lost += self.waiting();
        }
        if was_inside && let Some(taken) = self.outgoing.taken() {
            self.pending.advance(taken.saturating_sub(self.pending.base));
        }
        (self.queued, self.reported, self.stage) = (0, BrokerCounts::default(), Stage::Outside);
        self.note_room(None);
    }

    /// Gives the kernel bytes that a broker left. Whether none are left.
    fn flush(&mut self) -> Result<bool, SendError> {
        while !self.pending.bytes.is_empty() {
            let (first, _) = self.pending.bytes.as_slices();
            match self.outgoing.send(first, None) {
                Outcome::Taken(bytes) => drop(self.pending.bytes.drain(..bytes)),
                Outcome::Full => return Ok(false),
                Outcome::Refused(errno) => {
                    self.pending.bytes.clear();
                    return Err(SendError::Refused(errno));
                }
            }
        }
        Ok(true)
    }
}

/// A socket whose messages have deadlines. Dropping it does what [`DeadlineSocket::leave`] does.
pub struct DeadlineSocket {
    shared: Arc<Shared>,
    /// The watching thread lives as long as the last socket.
    _watch: Arc<Watch>,
    number: u32,
    /// The descriptor of [`DeadlineSocket::room`], if the program has asked for it.
    room: OnceLock<Arc<EventFd>>,
}

impl DeadlineSender {
    /// A sender for the broker at `path`. There may be none yet.
    ///
    /// # Errors
    /// No thread or descriptor can be had.
    pub fn open(path: &Path) -> io::Result<DeadlineSender> {
        let (path, members) = (path.to_owned(), BTreeMap::new());
        let state = State { path, broker: None, is_welcome: false, retry_at: 0, members, next: 0, polled: Vec::new() };
        let shared =
            Arc::new(Shared { state: PiMutex::new(state), changed: EventFd::new()?, ends: AtomicBool::new(false) });
        shared.state.lock().look_for_broker();
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("takt-deadline".into()).spawn(move || watched.watch())?;
        let watch = Arc::new(Watch { shared: Arc::clone(&shared), thread: Some(thread) });
        Ok(DeadlineSender { shared, _watch: watch })
    }

    /// Whether there is a broker.
    #[must_use]
    pub fn route(&self) -> Route {
        if self.shared.state.lock().is_welcome { Route::Broker } else { Route::Plain }
    }

    /// Gives the messages of a UDP socket or a connected TCP socket deadlines: `deadline` after
    /// their send. Waits for the broker's answer.
    ///
    /// The socket's send buffer is made as small as the kernel allows, until it leaves.
    ///
    /// # Errors
    /// The descriptor is no such socket, or has no room among the open files.
    pub fn socket(&self, descriptor: &impl AsFd, deadline: Span) -> Result<DeadlineSocket, OutgoingError> {
        let refused = |cause| OutgoingError::Refused { what: "another descriptor", cause };
        let outgoing = Outgoing::new(descriptor.as_fd().try_clone_to_owned().map_err(refused)?)?;
        let former = outgoing.narrow()?;
        let member = Member {
            outgoing: Arc::new(outgoing),
            former,
            deadline,
            stage: Stage::Outside,
            leaves: false,
            before: Counts::default(),
            queued: 0,
            reported: BrokerCounts::default(),
            pending: Pending::default(),
            room: None,
        };
        let mut state = self.shared.state.lock();
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.members.insert(number, member);
        state.join_all();
        drop(state);
        self.shared.changed.raise();
        self.shared.wait_while(number, |member| member.stage == Stage::Joining);
        let (shared, watch) = (Arc::clone(&self.shared), Arc::clone(&self._watch));
        Ok(DeadlineSocket { shared, _watch: watch, number, room: OnceLock::new() })
    }
}

impl Shared {
    /// Reads answers until the last handle is gone.
    fn watch(&self) {
        let mut poll = Poll::default();
        while !self.ends.load(Ordering::Acquire) {
            let (broker, is_pressing, blocked) = {
                let mut state = self.state.lock();
                // A full connection may have kept a socket from asking.
                let waits_to_ask = state.is_welcome && state.members.values().any(Member::wants_to_join);
                let is_pressing = waits_to_ask || state.members.values().any(Member::is_pressing);
                let blocked = state.members.iter().filter_map(|(number, member)| Some((*number, member.polls_for()?)));
                let blocked: Vec<(u32, Wait)> = blocked.collect();
                state.polled = blocked.iter().map(|(number, _)| *number).collect();
                (state.broker.clone(), is_pressing, blocked)
            };
            poll.clear();
            poll.add(self.changed.as_fd(), true, false);
            if let Some(broker) = &broker {
                poll.add(broker.as_fd(), true, false);
            }
            let places: Vec<usize> = blocked.iter().map(|(_, wait)| poll.add(wait.descriptor(), false, true)).collect();
            // It looks for a broker while there is none, and sends bytes that a former one left.
            let wait = if is_pressing { Some(Span::from_ms(1)) } else { broker.is_none().then_some(RETRY) };
            poll.wait(wait);
            self.changed.lower();
            let ready = blocked.iter().zip(&places).filter(|(_, place)| poll.is_ready(**place));
            let ready: Vec<u32> = ready.map(|((number, _), _)| *number).collect();
            // A socket that has left is closed by its program alone.
            drop(blocked);
            if !ready.is_empty() {
                // A socket can be ready and still have no room, where the device's queue is full.
                pause(Span::from_us(50));
            }
            let mut state = self.state.lock();
            state.polled.clear();
            state.read_answers();
            for member in state.members.values_mut().filter(|member| member.is_apart()) {
                let _ = member.flush();
            }
            for number in ready {
                if let Some(member) = state.members.get_mut(&number) {
                    member.note_room(None);
                }
            }
            state.release();
            state.look_for_broker();
        }
    }

    /// Waits until a member's stage has changed, at most for [`PATIENCE`].
    fn wait_while(&self, number: u32, is_so: impl Fn(&Member) -> bool) {
        let until = monotonic_ns().saturating_add(PATIENCE.as_ns());
        let still = || self.state.lock().members.get(&number).is_some_and(&is_so);
        while still() && monotonic_ns() < until {
            pause(Span::from_us(200));
        }
    }
}

impl State {
    /// Connects to a broker, if there is none and it is time to try.
    fn look_for_broker(&mut self) {
        let now = monotonic_ns();
        if self.broker.is_none() && now >= self.retry_at {
            self.retry_at = now.saturating_add(RETRY.as_ns());
            let Ok(broker) = Connection::connect(&self.path) else { return };
            if broker.send([&Request::Hello { version: VERSION }.head(), &[]], None) != Passed::Yes {
                return;
            }
            self.broker = Some(Arc::new(broker));
        }
        self.join_all();
    }

    /// Asks the broker to take the sockets that are outside.
    fn join_all(&mut self) {
        let Some(broker) = self.broker.clone().filter(|_| self.is_welcome) else { return };
        for (number, member) in self.members.iter_mut().filter(|(_, member)| member.wants_to_join()) {
            let head = Request::Join { socket: *number }.head();
            member.stage = match broker.send([&head, &[]], Some(member.outgoing.as_fd())) {
                Passed::Yes => Stage::Joining,
                Passed::Refused(_) => Stage::Left,
                Passed::Full | Passed::Closed => Stage::Outside,
            };
        }
    }

    /// Gives sockets back to the program that wants them, once the broker has nothing of them and the
    /// watching thread does not hold them. Until then they keep their numbers.
    fn release(&mut self) {
        self.members.retain(|number, member| {
            if !member.leaves {
                return true;
            }
            if member.stage == Stage::Inside
                && let Some(broker) = &self.broker
                && broker.send([&Request::Leave { socket: *number }.head(), &[]], None) == Passed::Yes
            {
                member.stage = Stage::Leaving;
                member.note_answer();
            }
            let is_held = !member.is_apart() || !member.pending.bytes.is_empty();
            let stays = is_held || self.polled.contains(number);
            if !stays {
                member.outgoing.restore(member.former);
                member.note_room(None);
            }
            stays
        });
    }

    /// The broker takes no more requests: it ends, or has ended.
    fn end_requests(&mut self) {
        for member in self.members.values_mut().filter(|member| member.stage == Stage::Inside) {
            member.stage = Stage::Leaving;
            member.note_answer();
        }
        // They tell which of both.
        self.read_answers();
    }

    fn lose_broker(&mut self) {
        (self.broker, self.is_welcome) = (None, false);
        self.retry_at = monotonic_ns().saturating_add(RETRY.as_ns());
        for member in self.members.values_mut() {
            member.lose_broker();
            // Send now what the kernel accepts. The watching thread sends the rest.
            let _ = member.flush();
        }
    }

    fn read_answers(&mut self) {
        let mut bytes = [0; ANSWER];
        while let Some(broker) = &self.broker {
            match broker.receive(&mut bytes) {
                Received::Nothing => return,
                Received::Message(length, _) => match bytes.get(..length).and_then(Answer::read) {
                    Some(answer) => self.take(answer),
                    None => self.lose_broker(),
                },
                Received::Closed => self.lose_broker(),
            }
        }
    }

    fn take(&mut self, answer: Answer) {
        let (socket, stage) = match answer {
            Answer::Welcome { version } if version == VERSION => {
                self.is_welcome = true;
                return self.join_all();
            }
            Answer::Welcome { .. } => return self.lose_broker(),
            Answer::Joined { socket } => (socket, Stage::Inside),
            Answer::Refused { socket, .. } => (socket, Stage::Left),
            Answer::Counts { socket, counts, has_left } => {
                let Some(member) = self.members.get_mut(&socket) else { return };
                member.reported = counts;
                member.pending.advance(counts.bytes);
                member.note_answer();
                if has_left {
                    member.lose_broker();
                    let _ = member.flush();
                    member.stage = Stage::Left;
                }
                return;
            }
        };
        let Some(member) = self.members.get_mut(&socket) else { return };
        if member.stage == Stage::Joining {
            member.stage = stage;
            let base = member.outgoing.taken().unwrap_or(0);
            member.pending = Pending { base, ..Pending::default() };
            member.note_room(None);
        }
    }
}

impl DeadlineSocket {
    /// Sets the deadline of the messages that are sent from now on, relative to their send.
    pub fn set_deadline(&self, deadline: Span) {
        self.with(|member| member.deadline = deadline);
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.with(|member| member.counts()).unwrap_or_default()
    }

    /// How the next message will leave.
    #[must_use]
    pub fn route(&self) -> Route {
        if self.with(|member| member.stage == Stage::Inside) == Some(true) { Route::Broker } else { Route::Plain }
    }

    /// Gives the socket back to the program: it sends as before, and has its former options. Waits
    /// until its messages have left, for a second at most. Nothing is sent here any more after that.
    ///
    /// Returns the bytes of a stream that still wait then, because its peer takes none; 0: none do.
    /// They go on to leave while this sender lives. Until then the program must not send on the
    /// socket: call this again. Datagrams that still wait go on to leave as well.
    #[must_use]
    pub fn leave(&self) -> usize {
        {
            let mut state = self.shared.state.lock();
            if let Some(member) = state.members.get_mut(&self.number) {
                member.leaves = true;
            }
            state.release();
        }
        self.shared.changed.raise();
        self.shared.wait_while(self.number, |_| true);
        self.with(|member| member.pending.bytes.len()).unwrap_or(0)
    }

    /// A descriptor for poll(2) or epoll(7) with POLLIN, for a program that does not wait for room.
    ///
    /// It is readable until a send answers [`SendError::WouldBlock`]. It becomes readable again when there is
    /// room for that message, with a broker and without one. POLLOUT of the socket itself tells nothing of the
    /// room in the broker. Do not read from the descriptor. Each call answers the same one, which is closed
    /// when this is dropped.
    ///
    /// A send may still answer `WouldBlock`, if another thread takes the room first. Then poll again.
    ///
    /// # Errors
    /// At the first call: the process has as many descriptors as it may.
    pub fn room(&self) -> io::Result<BorrowedFd<'_>> {
        let event = match self.room.get() {
            Some(event) => event,
            None => {
                let event = Arc::new(EventFd::new()?);
                // Two threads get the same one.
                self.room.get_or_init(|| event)
            }
        };
        let noted = self.with(|member| {
            member.room.get_or_insert_with(|| RoomDescriptor::new(Arc::clone(event)));
        });
        if noted.is_none() {
            // It has left: a send is refused at once.
            event.raise();
        }
        Ok(event.as_fd())
    }

    /// `None`: it has left.
    fn with<R>(&self, body: impl FnOnce(&mut Member) -> R) -> Option<R> {
        self.shared.state.lock().members.get_mut(&self.number).map(body)
    }

    /// Sends a message to the connected peer. Waits for room, unless the socket has O_NONBLOCK.
    ///
    /// # Errors
    /// There is no room, the message is too long, or the kernel's refusal. A refusal of a message
    /// that went to a broker is only counted.
    pub fn send(&self, bytes: &[u8]) -> Result<Sent, SendError> {
        self.send_by(bytes, None, false)
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    /// As [`DeadlineSocket::send`].
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> Result<Sent, SendError> {
        self.send_by(bytes, Some(to), false)
    }

    /// Sends without waiting for room, as a socket with O_NONBLOCK does.
    ///
    /// # Errors
    /// As [`DeadlineSocket::send`].
    pub fn try_send(&self, bytes: &[u8], to: Option<SocketAddr>) -> Result<Sent, SendError> {
        self.send_by(bytes, to, true)
    }

    fn send_by(&self, bytes: &[u8], to: Option<SocketAddr>, never_waits: bool) -> Result<Sent, SendError> {
        let mut bytes = bytes;
        if bytes.len() > MESSAGE_MAX {
            if self.with(|member| member.outgoing.transport()) != Some(Transport::Stream) {
                return Err(SendError::TooLong(bytes.len()));
            }
            bytes = bytes.get(..MESSAGE_MAX).unwrap_or(bytes);
        }
        loop {
            let wait = match self.shared.state.lock().send(self.number, bytes, to)? {
                Ok(sent) => return Ok(sent),
                Err(wait) => wait,
            };
            if self.room.get().is_some() && !wait.is_for_answer() {
                // The watching thread polls for the room.
                self.shared.changed.raise();
            }
            if never_waits || self.with(|member| member.outgoing.is_nonblocking()) == Some(true) {
                return Err(SendError::WouldBlock);
            }
            let mut poll = Poll::default();
            poll.add(wait.descriptor(), wait.is_for_answer(), !wait.is_for_answer());
            // The watching thread may read the answer first.
            poll.wait(Some(Span::from_ms(1)));
            if poll.is_ready(0) && !wait.is_for_answer() {
                pause(Span::from_us(50));
            }
        }
    }
}

impl State {
    /// Sends a message, or says what it must wait for.
    fn send(&mut self, number: u32, bytes: &[u8], to: Option<SocketAddr>) -> Result<Result<Sent, Wait>, SendError> {
        let sent = self.give(number, bytes, to)?;
        if let Some(member) = self.members.get_mut(&number) {
            member.note_room(sent.as_ref().err().map(|wait| (wait.clone(), bytes.len())));
        }
        Ok(sent)
    }

    fn give(&mut self, number: u32, bytes: &[u8], to: Option<SocketAddr>) -> Result<Result<Sent, Wait>, SendError> {
        let mut has_read = false;
        loop {
            let Some(member) = self.members.get_mut(&number) else {
                return Err(SendError::Refused(NO_SOCKET));
            };
            let is_stream = member.outgoing.transport() == Transport::Stream;
            let is_full = member.is_full(bytes.len());
            let uses_broker = is_full || member.stage == Stage::Inside;
            let Some(broker) = self.broker.clone().filter(|_| uses_broker) else {
                return member.send_plain(bytes, to);
            };
            if is_full {
                if has_read {
                    return Ok(Err(Wait::Answer(broker)));
                }
                self.read_answers();
                has_read = true;
                continue;
            }
            let deadline = Time::from_ns(monotonic_ns().saturating_add(member.deadline.as_ns()));
            let head = Request::Send { socket: number, deadline, to, bytes }.head();
            match broker.send([&head, bytes], None) {
                Passed::Yes => {
                    member.queued += 1;
                    if is_stream {
                        member.pending.bytes.extend(bytes);
                    }
                    return Ok(Ok(Sent { bytes: bytes.len(), route: Route::Broker }));
                }
                Passed::Full => return Ok(Err(Wait::Room(broker))),
                Passed::Refused(errno) => return Err(SendError::Refused(errno)),
                Passed::Closed => self.end_requests(),
            }
        }
    }
}

/// EBADF.
const NO_SOCKET: i32 = 9;

impl Member {
    fn send_plain(&mut self, bytes: &[u8], to: Option<SocketAddr>) -> Result<Result<Sent, Wait>, SendError> {
        let to = to.map(Destination::from);
        if !self.flush()? {
            return Ok(Err(Wait::Socket(Arc::clone(&self.outgoing))));
        }
        match self.outgoing.send(bytes, to.as_ref()) {
            Outcome::Taken(bytes) => {
                self.before.plain += 1;
                Ok(Ok(Sent { bytes, route: Route::Plain }))
            }
            Outcome::Full => Ok(Err(Wait::Socket(Arc::clone(&self.outgoing)))),
            Outcome::Refused(errno) => Err(SendError::Refused(errno)),
        }
    }
}

impl Drop for DeadlineSocket {
    fn drop(&mut self) {
        let _ = self.leave();
        // The broker may still have messages of it. The descriptor is closed now, as promised.
        self.with(|member| member.room = None);
    }
}
