//! The messages of a node on their way to the kernel.
//!
//! With an order or a late rule of `link`, messages wait here. The kernel sends the packets of a
//! class first in, first out. So sockets get the smallest send buffer, and messages wait until
//! there is room. Then the queues of the simulator's egress ([`takt_net::PeerQueues`]) choose one,
//! and drop late ones. A message waits longer while the kernel looks for the address of its peer
//! ([`Line`]); those to other peers go on.
//!
//! The table thread puts messages in, and sends at once what has room. The sender thread waits for
//! room and sends the others. Nothing here allocates after construction.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_linux::datagram::Sent;
use takt_linux::eventfd::EventFd;
use takt_linux::seqpacket::Poll;
use takt_linux::{Epoch, clock, process};
use takt_log::JobKey;
use takt_model::{Bytes, Late, Span, TaskId, Time};
use takt_net::{LateRule, MessageBody, MessageHead, Order, Packet, PeerQueues, QueueSpec};

use super::NodeError;
use super::line::{Line, LineSpec, TransmittedMessage};
use super::plan::NodePlan;
use crate::seal::Sealer;

/// Messages to a peer that wait at most.
const LETTERS_MAX: usize = 1024;
/// Bytes that they take at most, of all peers; 16 messages to each peer have room in any case.
const BYTES_MAX: usize = 16 << 20;
/// Messages that the sender thread sends before the table thread has its turn.
const BURST: usize = 16;
/// The wait for room if a socket ends each wait at once.
const LOOK_AGAIN: Span = Span::from_us(100);
/// The longest wait for room before all is looked at.
const TURN: Span = Span::from_ms(20);
/// Bytes of a socket's send buffer, if messages do not wait here.
const BUFFER: usize = 1 << 20;
/// SO_PRIORITY of replies: their class of `takt net apply`.
const REPLY_PRIORITY: u32 = 5;

/// See the module's documentation.
pub(crate) struct NodeOutbox {
    state: Mutex<State>,
    /// Wakes the sender thread: messages wait, or wait for another socket.
    bell: EventFd,
    /// Messages wait for room. Otherwise the kernel gets them as jobs leave them.
    waits: bool,
    /// The bell, and the sockets that may have to be watched.
    watched: usize,
}

/// The state of both threads.
pub(crate) struct State {
    /// Messages, and replies where the link has a bucket for them. The former go first.
    classes: Vec<Class>,
    letters: Letters,
    /// By lane: the numbers of its class and of its peer.
    ways: Vec<(usize, usize)>,
    sealer: Option<Sealer>,
    is_closed: bool,
}

/// Messages of one SO_PRIORITY.
struct Class {
    queues: PeerQueues,
    line: Line,
}

/// The datagrams of the messages in the queues.
struct Letters {
    all: Vec<Letter>,
    /// Places that are free.
    free: Vec<usize>,
    /// Messages that have left, of which the table thread has not told yet.
    departures: VecDeque<Departure>,
}

/// A message. It is sealed when it leaves, because receivers refuse a datagram after 1024 later
/// seals.
struct Letter {
    body: MessageBody,
    datagram: Vec<u8>,
}

/// A message that has left the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Time,
    pub(crate) job: JobKey,
    pub(crate) number: u64,
    pub(crate) fate: Fate,
}

/// The end of a message here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The kernel took it.
    Sent,
    /// The kernel refused it.
    Refused,
    /// There was no place for it here, or for its bytes in the datagram.
    Unplaced,
    /// The late rule dropped it.
    Late,
}

struct OutboxSpec {
    /// The order and the late rule; `None`: messages do not wait.
    rules: Option<(Order, LateRule)>,
    /// By lane: where datagrams go, their longest, and whether they have the class of replies.
    lanes: Vec<(SocketAddr, usize, bool)>,
    from: SocketAddr,
    /// SO_PRIORITY of messages that are no replies.
    priority: u32,
}

/// The key and the head of this process. `None`: the node has no key, since it has no messages.
///
/// `random` draws the salt. Processes with one key and one salt would use a nonce twice.
pub(super) fn sealer(plan: &NodePlan, random: impl FnOnce() -> Option<[u8; 16]>) -> Result<Option<Sealer>, NodeError> {
    let Some(key) = plan.network.key.clone() else { return Ok(None) };
    let head = MessageHead {
        from: plan.node.0 as u16,
        salt: random().ok_or(NodeError::Random)?,
        counter: 0,
        boot: clock::realtime_ns(),
        run: plan.network.start,
        system: plan.digest,
    };
    Ok(Some(Sealer::new(key, head)))
}

impl NodeOutbox {
    /// Opens the outbox of a node. `None` if it sends no messages.
    pub(crate) fn open(plan: &NodePlan) -> Result<Option<NodeOutbox>, NodeError> {
        let Some(from) = plan.network.listen.filter(|_| !plan.lanes.is_empty()) else { return Ok(None) };
        let order = if plan.edf { Order::Edf } else { Order::Fifo };
        let spec = OutboxSpec {
            rules: (plan.edf || plan.late != Late::Continue).then_some((order, plan.late.into())),
            lanes: plan.lanes.iter().map(|lane| (lane.to, lane.bytes, lane.is_reply)).collect(),
            from,
            priority: plan.network.priority,
        };
        NodeOutbox::with(&spec, sealer(plan, process::random)?).map(Some)
    }

    fn with(spec: &OutboxSpec, sealer: Option<Sealer>) -> Result<NodeOutbox, NodeError> {
        let OutboxSpec { rules, lanes, from, priority } = spec;
        let refused = |error: &dyn std::fmt::Display| NodeError::Socket(error.to_string());
        let mut addresses: Vec<SocketAddr> = Vec::new();
        let mut number_of = |to: SocketAddr| {
            addresses.iter().position(|other| *other == to).unwrap_or_else(|| {
                addresses.push(to);
                addresses.len() - 1
            })
        };
        let ways: Vec<(usize, usize)> =
            lanes.iter().map(|(to, _, is_reply)| (usize::from(*is_reply), number_of(*to))).collect();
        let has_replies = lanes.iter().any(|(_, _, is_reply)| *is_reply);
        let priorities = [Some(*priority), has_replies.then_some(REPLY_PRIORITY)];
        let count = addresses.len();
        let longest = lanes.iter().map(|(_, bytes, _)| *bytes).max().unwrap_or(1).max(1);
        let room = (BYTES_MAX / longest / count.max(1)).clamp(16, LETTERS_MAX);
        let (order, late) = rules.unwrap_or((Order::Fifo, LateRule::Send));
        let spec = QueueSpec { order, late, packets_max: room, streams: lanes.len() };
        let little = rules.map(|_| longest);
        let class = |priority: u32| -> Result<Class, NodeError> {
            let mut queues = PeerQueues::new(spec, count).map_err(|error| refused(&error))?;
            if rules.is_some() {
                queues.reserve(room);
            }
            let line = LineSpec { from: *from, priority, buffer: BUFFER, little };
            Ok(Class { queues, line: Line::open(&line, addresses.iter().copied())? })
        };
        let classes = priorities.into_iter().flatten().map(class).collect::<Result<Vec<Class>, NodeError>>()?;
        let all = if rules.is_some() { room * count * classes.len() } else { 0 };
        let zero = Time::ZERO;
        let body = MessageBody { task: TaskId(0), job: 0, message: 0, due: zero, origin: zero, zero, payload: 0 };
        let letter = |_| Letter { body, datagram: Vec::with_capacity(longest) };
        Ok(NodeOutbox {
            watched: 1 + classes.len() * (1 + count),
            state: Mutex::new(State {
                classes,
                letters: Letters {
                    all: (0..all).map(letter).collect(),
                    free: (0..all).collect(),
                    departures: VecDeque::with_capacity(2 * all),
                },
                ways,
                sealer,
                is_closed: false,
            }),
            bell: EventFd::new().map_err(|error| refused(&error))?,
            waits: rules.is_some(),
        })
    }

    /// Whether messages wait for room, so that there is work for the sender thread.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// The state. Nobody sends while the caller has it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends at most so many messages while there is room. The sender thread sends the others.
    pub(crate) fn flush(&self, epoch: Epoch, most: usize) {
        let mut state = self.state();
        state.send(epoch, most);
        let is_empty = state.is_empty();
        drop(state);
        if !is_empty {
            self.bell.raise();
        }
    }

    /// The sender thread: waits for room, and sends what waits for it. `end` says when the run
    /// ends.
    pub(crate) fn serve(&self, epoch: Epoch, end: impl Fn() -> Time) {
        let mut poll = Poll::with_room(self.watched);
        while epoch.now() < end() {
            self.bell.lower();
            poll.clear();
            let bell = poll.add(self.bell.as_fd(), true, false);
            let turn = if self.state().watch(&mut poll) { TURN } else { Span::MAX };
            poll.wait(Some(turn.min(end().saturating_since(epoch.now()))));
            let mut state = self.state();
            let (read, sent) = state.send(epoch, BURST);
            drop(state);
            if read + sent == 0 && !poll.is_ready(bell) {
                clock::pause(LOOK_AGAIN);
            } else {
                // The table thread has the same priority, and goes first.
                std::thread::yield_now();
            }
        }
    }
}

impl State {
    /// A message for a lane. `datagram` has what it carries, and is not sealed. `false` if there is
    /// no place.
    pub(crate) fn push(
        &mut self,
        now: Time,
        body: MessageBody,
        (lane, deadline): (usize, Time),
        datagram: &[u8],
    ) -> bool {
        let State { classes, letters, ways, .. } = self;
        let Some((at, (class, peer))) = letters.free.last().copied().zip(ways.get(lane).copied()) else { return false };
        let Some(Class { queues, .. }) = classes.get_mut(class) else { return false };
        let bytes = Bytes::new(datagram.len() as u64);
        let packet = Packet { stream: lane as u32, bytes, deadline, tag: at as u64 };
        let Some(letter) = letters.all.get_mut(at).filter(|_| queues.push(now, peer, packet).is_ok()) else {
            return false;
        };
        letter.body = body;
        letter.datagram.clear();
        letter.datagram.extend_from_slice(datagram);
        letters.free.pop();
        true
    }

    /// Seals a message and gives it to the kernel at once.
    pub(crate) fn send_now(&mut self, body: &MessageBody, lane: usize, datagram: &mut [u8]) -> Fate {
        let Some((class, peer)) = self.ways.get(lane).copied() else { return Fate::Unplaced };
        let Some(Class { line, .. }) = self.classes.get_mut(class) else { return Fate::Unplaced };
        post(line, self.sealer.as_mut(), (peer, body), datagram)
    }

    /// The next message that has left, in the order in which they left.
    pub(crate) fn departed(&mut self) -> Option<Departure> {
        self.letters.departures.pop_front()
    }

    /// Reads the stamps of packets that have left.
    pub(crate) fn look(&mut self) {
        for class in &mut self.classes {
            class.line.look();
        }
    }

    /// The next packet that has left.
    pub(crate) fn left(&mut self) -> Option<TransmittedMessage> {
        self.classes.iter_mut().find_map(|class| class.line.left())
    }

    /// Ends the sending. Returns how many messages still wait.
    pub(crate) fn close(&mut self) -> usize {
        self.is_closed = true;
        self.classes.iter().map(|class| class.queues.len()).sum()
    }

    fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.queues.is_empty())
    }

    /// Adds the sockets that messages wait for. `false`: no message waits.
    fn watch(&self, poll: &mut Poll) -> bool {
        for Class { queues, line } in self.classes.iter().filter(|class| !class.queues.is_empty()) {
            line.watch(poll, queues.waiting().any(|peer| !line.keeps(peer)));
        }
        !self.is_empty()
    }

    /// Sends at most so many messages while there is room. Returns how many stamps came, and how
    /// many messages left.
    fn send(&mut self, epoch: Epoch, most: usize) -> (usize, usize) {
        let State { classes, letters, sealer, is_closed, .. } = self;
        let read: usize = classes.iter_mut().map(|class| class.line.look()).sum();
        let (before, mut sent) = (letters.departures.len(), 0);
        for Class { queues, line } in classes {
            while sent < most && !*is_closed && !queues.is_empty() && line.has_room() {
                let now = epoch.now();
                let next = queues.pop(now, |peer| !line.keeps(peer), |late| letters.leave(late.tag, Fate::Late, now));
                let Some((peer, next)) = next else { break };
                let tag = next.packet.tag;
                let fate = letters.all.get_mut(tag as usize).map_or(Fate::Unplaced, |letter| {
                    post(line, sealer.as_mut(), (peer, &letter.body), &mut letter.datagram)
                });
                letters.leave(tag, fate, epoch.now());
                sent += 1;
            }
        }
        (read, letters.departures.len() - before)
    }
}

/// Seals a message and gives it to the kernel.
fn post(
    line: &mut Line,
    sealer: Option<&mut Sealer>,
    (peer, body): (usize, &MessageBody),
    datagram: &mut [u8],
) -> Fate {
    if !sealer.is_some_and(|sealer| sealer.seal(body, datagram)) {
        return Fate::Unplaced;
    }
    match line.send(peer, body.message, datagram) {
        Sent::Yes => Fate::Sent,
        Sent::Full | Sent::Refused => Fate::Refused,
    }
}

impl Letters {
    fn leave(&mut self, tag: u64, fate: Fate, at: Time) {
        let Some(letter) = self.all.get(tag as usize) else { return };
        let job = JobKey { task: letter.body.task, number: letter.body.job };
        self.departures.push_back(Departure { at, job, number: letter.body.message, fate });
        self.free.push(tag as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::seal::Key;
    use takt_linux::net::Cable;
    use takt_linux::tc::{self, Device, Plan, Role, Rule};
    use takt_model::{Bucket, Link, Rate};

    fn key() -> Key {
        "5a".repeat(32).parse().unwrap()
    }

    fn own_sealer() -> Sealer {
        Sealer::new(key(), MessageHead { from: 0, salt: [1; 16], counter: 0, boot: 2, run: 3, system: 4 })
    }

    fn body(number: u64) -> MessageBody {
        let zero = Time::ZERO;
        MessageBody { task: TaskId(7), job: number, message: number, due: zero, origin: zero, zero, payload: 0 }
    }

    const BATCH: u64 = 10;
    /// Sends two batches and a late message through a slow class. Each deadline is earlier than the
    /// one before. Returns the order of arrivals, the departures of the first batch at once, and
    /// later departures.
    fn sent(order: Order, replies: bool) -> Option<(Vec<u8>, Vec<Departure>, Vec<Departure>)> {
        let cable = Cable::lay(false).inspect_err(|error| println!("skipped: {error}")).ok()?;
        let receiver = std::thread::scope(|scope| {
            let bind = || {
                cable.right().enter().unwrap();
                UdpSocket::bind((cable.right().address(), 7000)).unwrap()
            };
            scope.spawn(bind).join().unwrap()
        });
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let to = SocketAddr::from((cable.right().address(), 7000));
        let send = || {
            cable.left().enter().unwrap();
            let device = Device::find(cable.left().device()).unwrap().unwrap();
            // A datagram takes some 30 ms.
            let bucket = Bucket { rate: Rate::from_bps(100_000), burst: Bytes::new(400) };
            let link = Link { bucket: Some(bucket), ..Link::at(Rate::from_bps(10_000_000)) };
            let plan = Plan::new(&link, &device).unwrap();
            let priority = if replies { "priority:5" } else { "priority:6" };
            let rule = Rule { of: priority.parse().unwrap(), role: Role::RealTime };
            let _applied = match tc::apply(&device, &plan, &[rule], false) {
                Ok(applied) => applied,
                Err(error) => return Err(error.to_string()),
            };
            let from = SocketAddr::from((cable.left().address(), 0));
            // The kernel learns the neighbour's address.
            assert_eq!(UdpSocket::bind(from).unwrap().send_to(&[99; 9], to).unwrap(), 9);
            assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 9);
            let lanes = (0..=2 * BATCH).map(|_| (to, 372, replies)).collect();
            let spec = OutboxSpec { rules: Some((order, LateRule::Drop)), lanes, from, priority: 6 };
            let outbox = NodeOutbox::with(&spec, Some(own_sealer())).unwrap();
            let (epoch, over) = (Epoch::now_is_zero(), AtomicBool::new(false));
            let push = |number: u64, deadline: Time| {
                assert!(outbox.state().push(epoch.now(), body(number), (number as usize, deadline), &[0; 372]));
            };
            let departed = || std::iter::from_fn(|| outbox.state().departed()).collect::<Vec<_>>();
            let start = epoch.now().saturating_add(Span::from_s(60));
            let in_turn = |number: u64| push(number, Time::from_ns(start.as_ns() - number * 1_000_000));
            (0..BATCH).for_each(in_turn);
            outbox.flush(epoch, usize::MAX);
            let first = departed();
            (BATCH..2 * BATCH).for_each(in_turn);
            push(2 * BATCH, epoch.now());
            std::thread::scope(|scope| {
                let (outbox, over) = (&outbox, &over);
                let last = epoch.now().saturating_add(Span::from_s(60));
                let end = move || if over.load(Ordering::Acquire) { Time::ZERO } else { last };
                scope.spawn(move || outbox.serve(epoch, end));
                outbox.flush(epoch, usize::MAX);
                let mut bytes = [0; 1000];
                let mut arrive = || {
                    let length = receiver.recv(&mut bytes).unwrap();
                    let head = MessageHead::read(&bytes[..length]).unwrap();
                    (key().open(&head, &mut bytes[..length]).unwrap().message as u8, head.counter)
                };
                let arrivals: Vec<(u8, u64)> = (0..2 * BATCH).map(|_| arrive()).collect();
                assert!(arrivals.iter().map(|(_, counter)| *counter).eq(1..=2 * BATCH), "sealed as they leave");
                let arrived: Vec<u8> = arrivals.iter().map(|(number, _)| *number).collect();
                over.store(true, Ordering::Release);
                outbox.bell.raise();
                assert_eq!(outbox.state().close(), 0);
                outbox.state().look();
                let left = std::iter::from_fn(|| outbox.state().left()).map(|left| (left.message as u8, left.bytes));
                let wanted = arrived.iter().map(|number| (*number, 372));
                assert!(left.eq(wanted), "each stamp is kept, though two threads read them");
                Ok((arrived, first, departed()))
            })
        };
        let sent = std::thread::scope(|scope| scope.spawn(send).join().unwrap());
        sent.inspect_err(|error| println!("skipped: {error}")).ok()
    }

    #[test]
    fn messages_leave_by_deadline_and_late_ones_are_dropped() {
        for replies in [false, true] {
            messages_leave_by_deadline(replies);
        }
    }

    fn messages_leave_by_deadline(replies: bool) {
        let Some((arrived, first, then)) = sent(Order::Edf, replies) else { return };
        let numbers = |departures: &[Departure]| departures.iter().map(|left| left.number as u8).collect::<Vec<_>>();
        let taken = first.len() as u8;
        assert!((1..BATCH as u8).contains(&taken), "the kernel took {taken} of {BATCH} at once");
        let [one, two] = [BATCH as u8, 2 * BATCH as u8];
        let wanted: Vec<u8> = (one - taken..one).rev().chain((one..two).rev()).chain((0..one - taken).rev()).collect();
        assert_eq!(arrived, wanted);
        assert_eq!(numbers(&first), wanted[..first.len()]);
        let late: Vec<u8> = numbers(&then.iter().filter(|left| left.fate == Fate::Late).copied().collect::<Vec<_>>());
        assert_eq!(late, [two]);
        let sent: Vec<Departure> = then.into_iter().filter(|left| left.fate == Fate::Sent).collect();
        assert_eq!(numbers(&sent), wanted[first.len()..]);
        assert!(sent.iter().all(|left| left.job.task == TaskId(7)));
    }

    #[test]
    fn a_late_rule_alone_keeps_the_order() {
        let Some((arrived, first, then)) = sent(Order::Fifo, false) else { return };
        assert_eq!(arrived, (0..2 * BATCH as u8).collect::<Vec<_>>());
        assert_eq!(first.iter().chain(&then).filter(|left| left.fate == Fate::Late).count(), 1);
    }

    /// Messages in turns to a peer without a machine and to a present peer. Returns how
    /// many of the former wait when all of the latter have arrived, and how many have left.
    fn without_a_neighbour(rules: Option<(Order, LateRule)>) -> Option<(usize, usize)> {
        const COUNT: u64 = 40;
        let cable = Cable::lay(false).inspect_err(|error| println!("skipped: {error}")).ok()?;
        let receiver = std::thread::scope(|scope| {
            let bind = || {
                cable.right().enter().unwrap();
                UdpSocket::bind((cable.right().address(), 7000)).unwrap()
            };
            scope.spawn(bind).join().unwrap()
        });
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let send = || {
            cable.left().enter().unwrap();
            // Large messages: few fill a socket, whatever its buffer.
            let (from, bytes) =
                (SocketAddr::from((cable.left().address(), 0)), if rules.is_some() { 1000 } else { 60_000 });
            let peers = [cable.nobody(), cable.right().address()];
            let lanes = peers.map(|peer| (SocketAddr::from((peer, 7000)), bytes, false)).to_vec();
            let outbox = NodeOutbox::with(&OutboxSpec { rules, lanes, from, priority: 0 }, Some(own_sealer())).unwrap();
            let (epoch, over) = (Epoch::now_is_zero(), AtomicBool::new(false));
            let due = epoch.now().saturating_add(Span::from_s(3600));
            std::thread::scope(|scope| {
                let (outbox, over) = (&outbox, &over);
                let end = move || if over.load(Ordering::Acquire) { Time::ZERO } else { due };
                scope.spawn(move || outbox.serve(epoch, end));
                let (mut datagram, mut came) = (vec![0; bytes], vec![0; bytes + 1]);
                for number in 0..COUNT {
                    for lane in 0..2 {
                        let due = Time::from_ns(due.as_ns() + lane as u64);
                        let message = 2 * number + lane as u64;
                        if rules.is_some() {
                            assert!(outbox.state().push(epoch.now(), body(message), (lane, due), &datagram));
                            outbox.flush(epoch, 2);
                        } else {
                            // To nobody the kernel may refuse some.
                            let fate = outbox.state().send_now(&body(message), lane, &mut datagram);
                            assert!(lane == 0 || fate == Fate::Sent, "{message}");
                        }
                    }
                    let length = receiver.recv(&mut came).unwrap();
                    let head = MessageHead::read(&came[..length]).unwrap();
                    assert_eq!(key().open(&head, &mut came[..length]).unwrap().message, 2 * number + 1);
                }
                let mut state = outbox.state();
                let departures = std::iter::from_fn(|| state.departed()).filter(|left| left.number % 2 == 0).count();
                let waiting = state.close();
                drop(state);
                over.store(true, Ordering::Release);
                outbox.bell.raise();
                (waiting, departures)
            })
        };
        Some(std::thread::scope(|scope| scope.spawn(send).join().unwrap()))
    }

    #[test]
    fn a_peer_without_a_neighbour_delays_no_other() {
        for order in [Order::Edf, Order::Fifo] {
            for late in [LateRule::Send, LateRule::Drop] {
                let Some((waiting, departures)) = without_a_neighbour(Some((order, late))) else { return };
                // The kernel takes three seconds for each.
                assert!(waiting > 0, "{order:?} {late:?}");
                assert_eq!(waiting + departures, 40);
            }
        }
        without_a_neighbour(None);
    }

    #[test]
    fn replies_leave_after_other_messages() {
        let receiver = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let to = receiver.local_addr().unwrap();
        let (rules, lanes) = (Some((Order::Edf, LateRule::Send)), vec![(to, 372, true), (to, 372, false)]);
        let spec = OutboxSpec { rules, lanes, from: ([127, 0, 0, 1], 0).into(), priority: 6 };
        let outbox = NodeOutbox::with(&spec, Some(own_sealer())).unwrap();
        let epoch = Epoch::now_is_zero();
        for lane in [0_u8, 1] {
            let deadline = Time::from_ns(1 + u64::from(lane));
            assert!(outbox.state().push(epoch.now(), body(lane.into()), (lane.into(), deadline), &[0; 372]));
        }
        outbox.flush(epoch, 2);
        let mut bytes = [0; 400];
        let mut arrive = || {
            let length = receiver.recv(&mut bytes).unwrap();
            let head = MessageHead::read(&bytes[..length]).unwrap();
            key().open(&head, &mut bytes[..length]).unwrap().message
        };
        assert_eq!([arrive(), arrive()], [1, 0]);
    }

    #[test]
    fn a_full_outbox_refuses_messages() {
        let to: SocketAddr = ([127, 0, 0, 1], 9).into();
        let lanes = vec![(to, 10 << 20, false), (SocketAddr::from(([127, 0, 0, 1], 10)), 1, false)];
        let rules = Some((Order::Edf, LateRule::Send));
        let spec = OutboxSpec { rules, lanes, from: ([127, 0, 0, 1], 0).into(), priority: 0 };
        let outbox = NodeOutbox::with(&spec, None).unwrap();
        let push = |number, lane| outbox.state().push(Time::ZERO, body(number), (lane, Time::MAX), b"x");
        assert!((0..16).all(|number| push(number, 0)) && !push(16, 0));
        assert!((0..16).all(|number| push(number, 1)) && !push(16, 1), "each peer has places of its own");
        assert_eq!(outbox.state().close(), 32);
    }
}
