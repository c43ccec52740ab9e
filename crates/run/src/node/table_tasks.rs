//! The jobs of the receiving and of the sending task: what the table thread does with the socket.
//!
//! Nothing here allocates after construction, and no call waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_linux::Epoch;
use takt_linux::clock::{monotonic_ns, realtime_ns};
use takt_linux::datagram::Chunk;
use takt_log::{DropCause, Event};
use takt_model::{NodeId, Span, Time};
use takt_net::{MESSAGE_BODY, MESSAGE_HEAD, MessageBody, MessageHead, ReplayGuard};

use super::difference::Difference;
use super::messages::{Message, NodeMessages, incoming};
use super::outbox::{Departure, Fate, NodeOutbox};
use super::{NodeLive, Part, lateness};
use crate::seal::{SealRefusal, accept};

/// Datagrams that one system call receives at most. The clock is read after each.
pub const CHUNK: usize = 8;
/// Messages that wait at a node at most, each way.
pub const ROOM: usize = 4096;
/// Packets that have left, of which a table job tells at most.
const STAMPS: usize = 64;
/// Events of the log wait at most so long for arrivals that are still in the socket.
const HELD_MAX: Span = Span::from_s(1);
/// On one machine the common start is the same time of CLOCK_MONOTONIC but for this.
const ZERO_ERROR: Span = Span::from_ms(100);

/// The table thread's side of a node.
pub(crate) struct TableTasks {
    live: Arc<NodeLive>,
    messages: NodeMessages,
    /// The slots of the node, by those of its messages.
    slots: Vec<u32>,
    /// The slots of the messages, by those of the node.
    places: Vec<Option<u32>>,
    /// By lane: the node's slot of the jobs that leave its messages.
    from: Vec<u32>,
    /// The bytes of a message.
    payload: Vec<u8>,
    chunk: Chunk,
    /// By lane: room for a datagram.
    lanes: Vec<Vec<u8>>,
    sending: Vec<Message>,
    /// Messages that came after the start of the receiving job.
    next: Vec<(Time, Message)>,
    /// By node.
    guards: Vec<ReplayGuard>,
    /// Its messages wait in the outbox.
    departs: bool,
    /// All messages that arrived before this have been told.
    written_until: Time,
}

/// A table job that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableJob {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) start: Time,
    pub(crate) end: Time,
}

impl TableTasks {
    /// The post of a CPU with these slots of the node.
    pub(crate) fn new(live: &Arc<NodeLive>, slots: &[u32]) -> TableTasks {
        let plan = &live.plan;
        let place = |slot: u32| slots.iter().position(|of_node| *of_node == slot).map(|at| at as u32);
        let leaves = |lane: u32| (0..).zip(&plan.parts).find(|(_, part)| part.lane() == Some(lane));
        let mut messages = NodeMessages::new(plan, slots, ROOM);
        messages.tell_handlers(slots.iter().map(|slot| live.payloads.input(*slot).cloned()).collect());
        TableTasks {
            messages,
            slots: slots.to_vec(),
            places: (0..plan.parts.len() as u32).map(place).collect(),
            from: (0..plan.lanes.len() as u32).map(|lane| leaves(lane).map_or(u32::MAX, |(slot, _)| slot)).collect(),
            payload: Vec::with_capacity(plan.longest_sent()),
            chunk: Chunk::new(CHUNK, plan.longest + 1),
            lanes: plan.lanes.iter().map(|lane| vec![0; lane.bytes]).collect(),
            sending: Vec::with_capacity(plan.lanes.len()),
            next: Vec::with_capacity(CHUNK),
            guards: vec![ReplayGuard::default(); plan.original.nodes.len()],
            departs: live.sends_later(slots),
            written_until: Time::ZERO,
            live: live.clone(),
        }
    }

    pub(crate) fn messages(&mut self) -> &mut NodeMessages {
        &mut self.messages
    }

    /// The number of a later hop, whose jobs messages release.
    pub(crate) fn later_hop(&self, slot: u32) -> Option<u32> {
        self.messages.later_hop(slot)
    }

    /// Until when all arrivals and departures have been told, given that it is `now`.
    pub(crate) fn written_until(&self, now: Time) -> Time {
        if self.live.plan.receive.is_some() || self.departs { self.written_until } else { now }
    }

    /// Carries out a job of a table task.
    pub(crate) fn run(
        &mut self,
        (slot, number): (u32, u64),
        planned: Time,
        epoch: Epoch,
        tell: &mut impl FnMut(Time, Event),
    ) -> TableJob {
        let start = epoch.now();
        let live = self.live.clone();
        let counts = &live.counts;
        let (late, longest) = match self.messages.part(slot) {
            Part::Receive => {
                self.receive(start, epoch, tell);
                (&counts.receive_late_ns, &counts.receive_longest_ns)
            }
            _ => {
                self.send(number, epoch, tell);
                (&counts.send_late_ns, &counts.send_longest_ns)
            }
        };
        let end = epoch.now();
        late.fetch_max(lateness(start, planned), Ordering::Relaxed);
        longest.fetch_max(lateness(end, start), Ordering::Relaxed);
        TableJob { slot, number, start, end }
    }

    /// Takes the messages that had arrived at `start`, as far as the budget goes.
    fn receive(&mut self, start: Time, epoch: Epoch, tell: &mut impl FnMut(Time, Event)) {
        self.transmitted(epoch, tell);
        let live = self.live.clone();
        let most = live.plan.receive_most().map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let budget = live.plan.receive.map_or(Span::ZERO, |task| task.wcet);
        let until = start.saturating_add(budget);
        // Messages that an earlier job read too early.
        let (mut read, mut exhausted) = (self.next.len(), false);
        for (at, message) in self.next.drain(..) {
            self.messages.arrive(message, at, tell);
        }
        if let Some(socket) = &live.socket {
            loop {
                let room = most.saturating_sub(read).min(self.chunk.room());
                if room == 0 || epoch.now() >= until {
                    exhausted = socket.has_datagram();
                    live.counts.exhausted.fetch_add(exhausted.into(), Ordering::Relaxed);
                    break;
                }
                let came = socket.receive_chunk(&mut self.chunk, room);
                read += came;
                self.take_chunk(start, epoch, tell);
                // The next job takes later messages.
                if came < room || !self.next.is_empty() {
                    break;
                }
            }
        }
        self.messages.start_receiving();
        // Messages in the socket may be older than `start` if the budget is spent.
        let certain = if exhausted { start.as_ns().saturating_sub(HELD_MAX.as_ns()) } else { start.as_ns() };
        self.written_until = self.written_until.max(Time::from_ns(certain));
    }

    /// Tells which messages have left the outbox, and which packets have left the device.
    fn transmitted(&mut self, epoch: Epoch, tell: &mut impl FnMut(Time, Event)) {
        let live = self.live.clone();
        let Some(mut outbox) = live.outbox.as_ref().map(NodeOutbox::state) else { return };
        while let Some(departure) = outbox.departed() {
            self.departed(departure, tell);
        }
        outbox.look();
        let (now, realtime) = (monotonic_ns(), realtime_ns());
        for left in std::iter::from_fn(|| outbox.left()).take(STAMPS) {
            let at = local(left.at, (now, realtime), epoch).max(self.written_until);
            tell(at, Event::Transmit { message: left.message, bytes: left.bytes });
        }
    }

    /// A message is with the kernel, or lost.
    fn departed(&self, departure: Departure, tell: &mut impl FnMut(Time, Event)) {
        let Departure { at, job, number, fate } = departure;
        let counts = &self.live.counts;
        let (count, cause) = match fate {
            Fate::Sent => {
                counts.sent.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Fate::Refused | Fate::Unplaced => (&counts.unsent, DropCause::Full),
            Fate::Late => (&counts.late, DropCause::Late),
        };
        count.fetch_add(1, Ordering::Relaxed);
        tell(at.max(self.written_until), Event::Drop { job, message: number, cause });
    }

    /// Tells the last arrivals of the run.
    pub(crate) fn finish(&mut self, end: Time, epoch: Epoch, tell: &mut impl FnMut(Time, Event)) {
        let live = self.live.clone();
        if let Some(outbox) = &live.outbox {
            let waiting = outbox.state().close();
            live.counts.unsent.fetch_add(waiting as u64, Ordering::Relaxed);
        }
        self.transmitted(epoch, tell);
        for (at, message) in self.next.drain(..) {
            self.messages.arrive(message, at, tell);
        }
        if let Some(socket) = &live.socket {
            // A flood must not keep the run from ending.
            for _ in 0..ROOM / CHUNK {
                if socket.receive_chunk(&mut self.chunk, CHUNK) == 0 {
                    break;
                }
                self.take_chunk(end, epoch, tell);
                self.next.clear();
            }
            live.counts.overflowed.store(socket.dropped().unwrap_or(0).into(), Ordering::Relaxed);
        }
        for (slot, of_node) in (0..).zip(&self.slots) {
            if let Some(most) = live.taken.get(*of_node as usize) {
                most.fetch_max(self.messages.most_taken(slot), Ordering::Relaxed);
            }
        }
    }

    /// Opens the datagrams of the last call. Messages that arrived after `start` wait.
    fn take_chunk(&mut self, start: Time, epoch: Epoch, tell: &mut impl FnMut(Time, Event)) {
        let TableTasks { live, messages, chunk, next, guards, written_until, places, .. } = self;
        let counts = &live.counts;
        let (now, realtime) = (monotonic_ns(), realtime_ns());
        for datagram in chunk.datagrams() {
            let message = match open(live, guards, (datagram.bytes, places), epoch) {
                Ok(message) => message,
                Err(refusal) => {
                    if let Some(count) = refusal.of(live) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    continue;
                }
            };
            counts.arrived.fetch_add(1, Ordering::Relaxed);
            let at = local(datagram.stamp.unwrap_or(realtime), (now, realtime), epoch).max(*written_until);
            if at <= start {
                messages.arrive(message, at, tell);
            } else {
                next.push((at, message));
            }
        }
    }

    /// Sends the messages that are ready, as far as the budget goes.
    fn send(&mut self, number: u64, epoch: Epoch, tell: &mut impl FnMut(Time, Event)) {
        let has_receiver = self.live.plan.receive.is_some();
        if !has_receiver || self.departs {
            let now = epoch.now();
            self.transmitted(epoch, tell);
            if !has_receiver {
                self.written_until = self.written_until.max(now);
            }
        }
        let live = self.live.clone();
        let Some(outbox) = &live.outbox else { return };
        self.sending.clear();
        self.sending.extend(self.messages.start_sending(number));
        for at in 0..self.sending.len() {
            let Some(message) = self.sending.get(at).copied() else { continue };
            let (job, number, lane) = (message.job, message.number, message.place as usize);
            let Some(body) = self.write(&message, epoch) else { continue };
            let (Some(datagram), Some(of)) = (self.lanes.get_mut(lane), live.plan.lanes.get(lane)) else { continue };
            let deadline = message.due.saturating_add(of.allowance);
            let now = epoch.now();
            let fate = if outbox.waits() {
                let has_place = outbox.state().push(now, body, (lane, deadline), datagram);
                (!has_place).then_some(Fate::Unplaced)
            } else {
                Some(outbox.state().send_now(&body, lane, datagram))
            };
            if fate.is_none_or(|fate| fate == Fate::Sent) {
                tell(now, Event::Send { job, message: number });
            }
            if let Some(fate) = fate {
                self.departed(Departure { at: now, job, number, fate }, tell);
            }
        }
        if outbox.waits() {
            outbox.flush(epoch, self.sending.len());
        }
    }

    /// Writes what a message carries into the room of its lane.
    fn write(&mut self, message: &Message, epoch: Epoch) -> Option<MessageBody> {
        let TableTasks { live, lanes, from, payload, .. } = self;
        let at = message.place as usize;
        payload.clear();
        if let Some(ring) = from.get(at).and_then(|slot| live.payloads.output(*slot)) {
            ring.read(message.job.number, payload);
        }
        let room = lanes.get_mut(at)?.get_mut(MESSAGE_HEAD + MESSAGE_BODY..)?;
        room.fill(0);
        if let Some(room) = room.get_mut(..payload.len()) {
            room.copy_from_slice(payload);
        }
        Some(MessageBody {
            task: message.job.task,
            job: message.job.number,
            message: message.number,
            due: message.due,
            origin: message.origin,
            zero: epoch.monotonic(Time::ZERO),
            payload: payload.len() as u16,
        })
    }
}

/// A stamp on CLOCK_REALTIME as a time of the run. `now` is read from CLOCK_MONOTONIC and
/// CLOCK_REALTIME.
fn local(stamp: u64, (now, realtime): (u64, u64), epoch: Epoch) -> Time {
    let age = realtime.saturating_sub(stamp);
    // An unlikely age is that of a clock that was set.
    let age = if age < 1_000_000_000 { age } else { 0 };
    epoch.at(Time::from_ns(now.saturating_sub(age)))
}

/// Why a datagram is no message for this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Sealed(SealRefusal),
    /// It is not known how the clock of its sender differs.
    Untimed(NodeId),
}

impl From<SealRefusal> for Refusal {
    fn from(refusal: SealRefusal) -> Refusal {
        Refusal::Sealed(refusal)
    }
}

impl Refusal {
    fn of(self, live: &NodeLive) -> Option<&AtomicU64> {
        let counts = &live.counts;
        Some(match self {
            Refusal::Sealed(SealRefusal::Malformed) => &counts.malformed,
            Refusal::Sealed(SealRefusal::Foreign) => &counts.foreign,
            Refusal::Sealed(SealRefusal::Forged) => &counts.forged,
            Refusal::Sealed(SealRefusal::Replayed) => &counts.replayed,
            Refusal::Sealed(SealRefusal::Former) => &counts.former,
            Refusal::Untimed(node) => return live.untimed.get(node.index()),
        })
    }
}

/// The message of a datagram. `places` leads from the node's slots to those of its messages.
fn open(
    live: &NodeLive,
    guards: &mut [ReplayGuard],
    (datagram, places): (&mut [u8], &[Option<u32>]),
    epoch: Epoch,
) -> Result<Message, Refusal> {
    let plan = &live.plan;
    if datagram.len() > plan.longest {
        return Err(SealRefusal::Malformed.into());
    }
    let head = MessageHead::read(datagram).ok_or(SealRefusal::Malformed)?;
    let body = accept(&head, (plan.network.start, plan.digest), guards, || {
        let key = plan.network.key.as_ref().ok_or(SealRefusal::Foreign)?;
        key.open(&head, datagram).ok_or(SealRefusal::Forged)
    })?;
    let from = NodeId(u32::from(head.from));
    let zeros = body.zero.as_ns().wrapping_sub(epoch.monotonic(Time::ZERO).as_ns()).cast_signed();
    let shift = match live.difference(from) {
        Some(difference) => {
            let difference = difference.later(zeros);
            live.used_difference(from, difference);
            difference
        }
        // All nodes count from one instant of CLOCK_REALTIME.
        None if plan.network.clocks.is_none() => {
            if zeros.unsigned_abs() > ZERO_ERROR.as_ns() {
                live.other_clocks.store(true, Ordering::Relaxed);
            } else {
                // One machine has one CLOCK_MONOTONIC.
                live.used_difference(from, Difference { low: zeros, middle: zeros, high: zeros });
            }
            Difference::default()
        }
        None => return Err(Refusal::Untimed(from)),
    };
    let message = incoming(plan, from, &body, shift).ok_or(SealRefusal::Malformed)?;
    let place = places.get(message.place as usize).copied().flatten().ok_or(SealRefusal::Malformed)?;
    let payload = datagram.get(MESSAGE_HEAD + MESSAGE_BODY..).and_then(|rest| rest.get(..usize::from(body.payload)));
    if let Some((ring, payload)) = live.payloads.input(message.place).zip(payload) {
        ring.write(message.job.number, payload);
    }
    Ok(Message { place, ..message })
}
