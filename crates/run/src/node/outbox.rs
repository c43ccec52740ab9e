//! The messages of a node on their way to the kernel, if `link` gives them an order or a late rule.
//!
//! The kernel sends the packets of a class first in, first out. So the socket gets the smallest send
//! buffer, and messages wait here until it has room. Then the queue of the simulator's egress
//! ([`takt_net::PacketQueue`]) chooses one, and drops late ones.
//!
//! The table thread puts messages in, and sends at once what has room. The sender thread waits for
//! room and sends the others. Nothing here allocates after construction.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_linux::clock::{self, realtime_ns};
use takt_linux::datagram::{Datagrams, Destination, Sent, Transmitted};
use takt_linux::{Epoch, futex, process};
use takt_log::JobKey;
use takt_model::{Bytes, Late, Span, TaskId, Time};
use takt_net::{LateRule, MessageBody, MessageHead, Order, Packet, PacketQueue, QueueError, QueueSpec};

use super::NodeError;
use super::plan::NodePlan;
use super::seal::Sealer;

/// Messages that wait at most.
const LETTERS_MAX: usize = 1024;
/// Bytes that they take at most; 16 have room in any case.
const BYTES_MAX: usize = 16 << 20;
/// Messages that the sender thread sends before the table thread has its turn.
const BURST: usize = 16;
/// Stamps that wait for the table thread at most.
const STAMPS_MAX: usize = 1024;
/// The wait for room if the socket ends each wait at once.
const LOOK_AGAIN: Span = Span::from_us(100);
/// The longest wait for room before the end of the run is looked at.
const TURN: Span = Span::from_ms(20);

/// See the module's documentation.
pub(crate) struct NodeOutbox {
    state: Mutex<State>,
    /// Counts times at which messages had to wait; a futex.
    word: AtomicU32,
    /// By lane.
    destinations: Vec<Destination>,
}

/// The state of both threads.
pub(crate) struct State {
    queue: PacketQueue,
    letters: Letters,
    /// Stamps of packets that have left, read by the sender thread.
    stamps: VecDeque<Transmitted>,
    sealer: Option<Sealer>,
    is_closed: bool,
}

/// The datagrams of the messages in the queue.
struct Letters {
    all: Vec<Letter>,
    /// Places that are free.
    free: Vec<usize>,
    /// Messages that have left, of which the table thread has not told yet.
    departures: VecDeque<Departure>,
}

/// A message. It is sealed when it leaves, because receivers refuse a datagram after 1024 later seals.
struct Letter {
    body: MessageBody,
    lane: usize,
    datagram: Vec<u8>,
}

/// A message that has left the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Time,
    pub(crate) job: JobKey,
    pub(crate) number: u64,
    pub(crate) bytes: u32,
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

/// The key and the head of this process. `None`: the node has no key, since it has no messages.
pub(crate) fn sealer(plan: &NodePlan) -> Option<Sealer> {
    let head = MessageHead {
        from: plan.node.0 as u16,
        salt: process::random().unwrap_or_default(),
        counter: 0,
        boot: realtime_ns(),
        run: plan.network.start,
        system: plan.digest,
    };
    Some(Sealer::new(plan.network.key.clone()?, head))
}

impl NodeOutbox {
    /// The outbox of a node. `None` if its link has neither an order nor a late rule.
    pub(crate) fn new(plan: &NodePlan) -> Result<Option<NodeOutbox>, NodeError> {
        if plan.lanes.is_empty() || (!plan.edf && plan.late == Late::Continue) {
            return Ok(None);
        }
        let order = if plan.edf { Order::Edf } else { Order::Fifo };
        let lanes = plan.lanes.iter().map(|lane| (lane.to.into(), lane.bytes)).collect();
        NodeOutbox::with(order, plan.late.into(), lanes, sealer(plan))
            .map(Some)
            .map_err(|error| NodeError::Socket(error.to_string()))
    }

    /// `lanes`: where datagrams go, and their longest.
    fn with(
        order: Order,
        late: LateRule,
        lanes: Vec<(Destination, usize)>,
        sealer: Option<Sealer>,
    ) -> Result<NodeOutbox, QueueError> {
        let longest = lanes.iter().map(|(_, bytes)| *bytes).max().unwrap_or(1);
        let room = (BYTES_MAX / longest.max(1)).clamp(16, LETTERS_MAX);
        let mut queue = PacketQueue::new(QueueSpec { order, late, packets_max: room, streams: lanes.len() })?;
        queue.reserve(room);
        let zero = Time::ZERO;
        let body = MessageBody { task: TaskId(0), job: 0, message: 0, due: zero, origin: zero, zero, payload: 0 };
        let letter = |_| Letter { body, lane: 0, datagram: Vec::with_capacity(longest) };
        let letters = Letters {
            all: (0..room).map(letter).collect(),
            free: (0..room).collect(),
            departures: VecDeque::with_capacity(2 * room),
        };
        Ok(NodeOutbox {
            state: Mutex::new(State {
                queue,
                letters,
                stamps: VecDeque::with_capacity(STAMPS_MAX),
                sealer,
                is_closed: false,
            }),
            word: AtomicU32::new(0),
            destinations: lanes.into_iter().map(|(to, _)| to).collect(),
        })
    }

    /// The state. Nobody sends while the caller has it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends at most so many messages while the socket has room. The sender thread sends the others.
    pub(crate) fn flush(&self, socket: &Datagrams, epoch: Epoch, most: usize) {
        let mut state = self.state();
        state.send(&self.destinations, socket, epoch, most);
        if !state.queue.is_empty() {
            self.word.fetch_add(1, Ordering::AcqRel);
            futex::wake_all(&self.word);
        }
    }

    /// The sender thread: waits for room, and sends what waits for it. `end` says when the run ends.
    pub(crate) fn serve(&self, socket: &Datagrams, epoch: Epoch, end: impl Fn() -> Time) {
        while epoch.now() < end() {
            let seen = self.word.load(Ordering::Acquire);
            if self.state().queue.is_empty() {
                futex::wait(&self.word, seen, epoch, end());
                continue;
            }
            socket.await_room(TURN.min(end().saturating_since(epoch.now())));
            let mut state = self.state();
            // Stamps that wait in the socket would end the next wait at once.
            let read = state.read_stamps(socket);
            if read == 0 && !socket.has_room() {
                drop(state);
                clock::pause(LOOK_AGAIN);
            } else {
                state.send(&self.destinations, socket, epoch, BURST);
                drop(state);
                // The table thread has the same priority, and goes first.
                std::thread::yield_now();
            }
        }
    }
}

impl State {
    /// A message for a lane. `datagram` has what it carries, and is not sealed. `false` if there is no place.
    pub(crate) fn push(
        &mut self,
        now: Time,
        body: MessageBody,
        (lane, deadline): (usize, Time),
        datagram: &[u8],
    ) -> bool {
        let Some(at) = self.letters.free.last().copied() else { return false };
        let bytes = Bytes::new(datagram.len() as u64);
        let packet = Packet { stream: lane as u32, bytes, deadline, tag: at as u64 };
        let Some(letter) = self.letters.all.get_mut(at).filter(|_| self.queue.push(now, packet).is_ok()) else {
            return false;
        };
        (letter.body, letter.lane) = (body, lane);
        letter.datagram.clear();
        letter.datagram.extend_from_slice(datagram);
        self.letters.free.pop();
        true
    }

    /// The next message that has left, in the order in which they left.
    pub(crate) fn departed(&mut self) -> Option<Departure> {
        self.letters.departures.pop_front()
    }

    /// The next stamp of a packet that has left.
    pub(crate) fn stamp(&mut self, socket: &Datagrams) -> Option<Transmitted> {
        self.stamps.pop_front().or_else(|| socket.transmitted())
    }

    /// Keeps the stamps that wait in the socket. If there are too many, the first ones are lost.
    fn read_stamps(&mut self, socket: &Datagrams) -> usize {
        let mut read = 0;
        for stamp in std::iter::from_fn(|| socket.transmitted()).take(STAMPS_MAX) {
            if self.stamps.len() == STAMPS_MAX {
                self.stamps.pop_front();
            }
            self.stamps.push_back(stamp);
            read += 1;
        }
        read
    }

    /// Ends the sending. Returns how many messages still wait.
    pub(crate) fn close(&mut self) -> usize {
        self.is_closed = true;
        self.queue.len()
    }

    fn send(&mut self, destinations: &[Destination], socket: &Datagrams, epoch: Epoch, most: usize) {
        let State { queue, letters, sealer, is_closed, .. } = self;
        for _ in 0..most {
            if *is_closed || queue.is_empty() || !socket.has_room() {
                return;
            }
            let now = epoch.now();
            let next = queue.pop(now, |late| letters.leave(late.tag, Fate::Late, now));
            let Some(tag) = next.map(|next| next.packet.tag) else { continue };
            let mut send = |letter: &mut Letter| {
                let to = destinations.get(letter.lane)?;
                let sealed = sealer.as_mut()?.seal(&letter.body, &mut letter.datagram);
                sealed.then(|| socket.send([&letter.datagram, &[]], to, Span::ZERO))
            };
            let fate = match letters.all.get_mut(tag as usize).and_then(&mut send) {
                Some(Sent::Yes) => Fate::Sent,
                Some(_) => Fate::Refused,
                None => Fate::Unplaced,
            };
            letters.leave(tag, fate, epoch.now());
        }
    }
}

impl Letters {
    fn leave(&mut self, tag: u64, fate: Fate, at: Time) {
        let Some(letter) = self.all.get(tag as usize) else { return };
        let bytes = u32::try_from(letter.datagram.len()).unwrap_or(u32::MAX);
        let job = JobKey { task: letter.body.task, number: letter.body.job };
        self.departures.push_back(Departure { at, job, number: letter.body.message, bytes, fate });
        self.free.push(tag as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::super::seal::Key;
    use super::*;
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
    const SECOND: Span = Span::from_s(1);

    /// Sends two batches and a late message through a slow class. Each deadline is earlier than the one before. Returns
    /// the order of arrivals, the departures of the first batch at once, and later departures.
    fn sent(order: Order) -> Option<(Vec<u8>, Vec<Departure>, Vec<Departure>)> {
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
            let rule = Rule { of: "priority:6".parse().unwrap(), role: Role::RealTime };
            let _applied = match tc::apply(&device, &plan, &[rule], false) {
                Ok(applied) => applied,
                Err(error) => return Err(error.to_string()),
            };
            let at = SocketAddr::from((cable.left().address(), 0));
            let socket = Datagrams::bind(at, 6, 1 << 16, Span::from_ms(1)).unwrap();
            // The kernel learns the neighbour's address.
            assert_eq!(socket.send([&[99; 9], &[]], &to.into(), SECOND), Sent::Yes);
            assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 9);
            socket.hold_little(372).unwrap();
            // As the socket of a node. Its stamps end each wait until they are read.
            socket.stamp_transmissions().unwrap();
            let lanes = (0..=2 * BATCH).map(|_| (Destination::from(to), 372)).collect();
            let outbox = NodeOutbox::with(order, LateRule::Drop, lanes, Some(own_sealer())).unwrap();
            let (epoch, over) = (Epoch::now_is_zero(), AtomicBool::new(false));
            let push = |number: u64, deadline: Time| {
                assert!(outbox.state().push(epoch.now(), body(number), (number as usize, deadline), &[0; 372]));
            };
            let departed = || std::iter::from_fn(|| outbox.state().departed()).collect::<Vec<_>>();
            let start = epoch.now().saturating_add(Span::from_s(60));
            let in_turn = |number: u64| push(number, Time::from_ns(start.as_ns() - number * 1_000_000));
            (0..BATCH).for_each(in_turn);
            outbox.flush(&socket, epoch, usize::MAX);
            let first = departed();
            (BATCH..2 * BATCH).for_each(in_turn);
            push(2 * BATCH, epoch.now());
            std::thread::scope(|scope| {
                let (outbox, socket, over) = (&outbox, &socket, &over);
                let last = epoch.now().saturating_add(Span::from_s(60));
                let end = move || if over.load(Ordering::Acquire) { Time::ZERO } else { last };
                scope.spawn(move || outbox.serve(socket, epoch, end));
                outbox.flush(socket, epoch, usize::MAX);
                let mut bytes = [0; 1000];
                let mut arrive = || {
                    let length = receiver.recv(&mut bytes).unwrap();
                    let head = MessageHead::read(&bytes[..length]).unwrap();
                    (key().open(&head, &mut bytes[..length]).unwrap().message as u8, head.counter)
                };
                let arrivals: Vec<(u8, u64)> = (0..2 * BATCH).map(|_| arrive()).collect();
                assert!(arrivals.iter().map(|(_, counter)| *counter).eq(1..=2 * BATCH), "sealed as they leave");
                let arrived = arrivals.iter().map(|(number, _)| *number).collect();
                over.store(true, Ordering::Release);
                outbox.word.fetch_add(1, Ordering::AcqRel);
                futex::wake_all(&outbox.word);
                assert_eq!(outbox.state().close(), 0);
                let stamps = std::iter::from_fn(|| outbox.state().stamp(socket)).map(|stamp| u64::from(stamp.number));
                assert!(stamps.eq(0..2 * BATCH), "each stamp is kept, though two threads read them");
                Ok((arrived, first, departed()))
            })
        };
        let sent = std::thread::scope(|scope| scope.spawn(send).join().unwrap());
        sent.inspect_err(|error| println!("skipped: {error}")).ok()
    }

    #[test]
    fn what_is_due_first_leaves_first_and_what_is_late_never() {
        let Some((arrived, first, then)) = sent(Order::Edf) else { return };
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
        assert!(sent.iter().all(|left| left.bytes == 372 && left.job.task == TaskId(7)));
    }

    #[test]
    fn a_late_rule_alone_keeps_the_order() {
        let Some((arrived, first, then)) = sent(Order::Fifo) else { return };
        assert_eq!(arrived, (0..2 * BATCH as u8).collect::<Vec<_>>());
        assert_eq!(first.iter().chain(&then).filter(|left| left.fate == Fate::Late).count(), 1);
    }

    #[test]
    fn what_finds_no_place_is_refused() {
        let to: SocketAddr = ([127, 0, 0, 1], 9).into();
        let outbox = NodeOutbox::with(Order::Edf, LateRule::Send, vec![(to.into(), 10 << 20)], None).unwrap();
        let push = |number| outbox.state().push(Time::ZERO, body(number), (0, Time::MAX), b"x");
        assert!((0..16).all(push) && !push(16));
        assert_eq!(outbox.state().close(), 16);
    }
}
