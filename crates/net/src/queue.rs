//! The packet queue of a node.
//!
//! - `Fifo`: what comes first leaves first.
//! - `Edf`: streams are ordered by the deadline of their first packet; equal ones by its arrival.
//!   A stream's packets leave in the order in which they came, also where a later one has the
//!   earlier deadline: [HEDF Eq. 2] needs that order, and an updated time table can break it.
//!
//! A packet is late if its deadline has passed when it could start. The late rule sends it, drops
//! it, or demotes it. Demoted packets leave first in, first out, and only while no packet in time
//! waits. So a packet in time overtakes the demoted ones of its stream.
//!
//! A full queue refuses the packet that comes. Push and pop take O(log streams).

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use takt_model::{Late, Time};
use thiserror::Error;

use crate::packet::{DropReason, Packet};

/// The most packets and streams of a queue.
pub const PACKETS_MAX: usize = 1 << 30;

const NONE: u32 = u32::MAX;

/// The order in which packets leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// Earliest deadline first.
    Edf,
}

/// The rule for a packet whose deadline has passed when it could start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateRule {
    /// It is sent in its turn.
    Send,
    /// It is dropped.
    Drop,
    /// It is sent after all that are in time.
    Demote,
}

impl From<Late> for LateRule {
    /// The rule of a link (`late` of a System's link).
    fn from(late: Late) -> LateRule {
        match late {
            Late::Continue => LateRule::Send,
            Late::Drop => LateRule::Drop,
            Late::Demote => LateRule::Demote,
        }
    }
}

/// A queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSpec {
    /// The order in which packets leave.
    pub order: Order,
    /// The rule for late packets.
    pub late: LateRule,
    /// The most packets that wait.
    pub packets_max: usize,
    /// Number of streams. Only EDF order asks for it.
    pub streams: usize,
}

/// Why a queue cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum QueueError {
    /// No place, or too many.
    #[error("packets_max {0} of the packet queue is out of range; give 1 to {PACKETS_MAX}")]
    PacketsMax(usize),
    /// Too many streams.
    #[error("{0} streams are too many for a packet queue; at most {PACKETS_MAX}")]
    Streams(usize),
}

/// Counts of a queue since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounts {
    /// Packets that came, refused ones included.
    pub arrived: u64,
    /// Packets that left to be sent.
    pub sent: u64,
    /// Packets dropped because they were late.
    pub late: u64,
    /// Packets demoted because they were late.
    pub demoted: u64,
    /// Packets refused because the queue was full.
    pub overflow: u64,
    /// The most packets that waited at once.
    pub waiting_max: usize,
}

/// A packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The packet.
    pub packet: Packet,
    /// When it came.
    pub since: Time,
}

/// When a packet leaves among the first ones of other queues: the least turn first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn {
    is_demoted: bool,
    /// Zero where packets leave in order of arrival.
    deadline: Time,
    since: Time,
}

/// A place for a packet under EDF.
#[derive(Clone, Copy, Debug)]
struct Slot {
    queued: Queued,
    stream: u32,
    /// The next of the stream, or the next free place.
    next: u32,
    number: u64,
}

/// The first packet of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Head {
    deadline: Time,
    /// Number of the packet, in order of arrival.
    number: u64,
    slot: u32,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct PacketQueue {
    spec: QueueSpec,
    counts: QueueCounts,
    /// All under FIFO.
    row: VecDeque<Queued>,
    demoted: VecDeque<Queued>,
    /// Those in time, under EDF.
    slots: Vec<Slot>,
    free: u32,
    in_time: usize,
    heads: BinaryHeap<Reverse<Head>>,
    /// The last packet of each stream.
    last: Vec<u32>,
}

impl PacketQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// If a limit is out of range.
    pub fn new(spec: QueueSpec) -> Result<Self, QueueError> {
        if spec.packets_max == 0 || spec.packets_max > PACKETS_MAX {
            return Err(QueueError::PacketsMax(spec.packets_max));
        }
        if spec.streams > PACKETS_MAX {
            return Err(QueueError::Streams(spec.streams));
        }
        let streams = if spec.order == Order::Edf { spec.streams } else { 0 };
        Ok(PacketQueue {
            spec,
            counts: QueueCounts::default(),
            row: VecDeque::new(),
            demoted: VecDeque::new(),
            slots: Vec::new(),
            free: NONE,
            in_time: 0,
            heads: BinaryHeap::new(),
            last: vec![NONE; streams],
        })
    }

    /// Makes room for so many waiting packets, so that nothing is allocated later for them.
    pub fn reserve(&mut self, packets: usize) {
        match self.spec.order {
            Order::Fifo => self.row.reserve(packets),
            Order::Edf => {
                self.slots.reserve(packets);
                self.heads.reserve(packets.min(self.last.len()));
            }
        }
        if self.spec.late == LateRule::Demote {
            self.demoted.reserve(packets);
        }
    }

    /// Packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.in_time + self.row.len() + self.demoted.len()
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its counts since the start.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.counts
    }

    /// A packet comes.
    ///
    /// # Errors
    /// Why it was refused: the queue is full, or has no such stream.
    #[inline]
    pub fn push(&mut self, now: Time, packet: Packet) -> Result<(), DropReason> {
        self.push_in(packet.stream, Queued { packet, since: now })
    }

    /// The same, in the order of `stream` instead of its own.
    #[inline]
    pub(crate) fn push_in(&mut self, stream: u32, queued: Queued) -> Result<(), DropReason> {
        self.counts.arrived += 1;
        let waiting = self.len();
        if waiting >= self.spec.packets_max {
            self.counts.overflow += 1;
            return Err(DropReason::Overflow);
        }
        match self.spec.order {
            Order::Fifo => self.row.push_back(queued),
            Order::Edf => self.append(stream, queued)?,
        }
        self.counts.waiting_max = self.counts.waiting_max.max(waiting + 1);
        Ok(())
    }

    /// Puts a packet behind those of its stream.
    #[inline]
    fn append(&mut self, stream: u32, queued: Queued) -> Result<(), DropReason> {
        let last = self.last.get_mut(stream as usize).ok_or(DropReason::Unknown)?;
        let number = self.counts.arrived;
        let slot = Slot { queued, stream, next: NONE, number };
        let at = self.free;
        let at = if let Some(place) = self.slots.get_mut(at as usize) {
            self.free = place.next;
            *place = slot;
            at
        } else {
            self.slots.push(slot);
            // Below PACKETS_MAX.
            (self.slots.len() - 1) as u32
        };
        let before = std::mem::replace(last, at);
        self.in_time += 1;
        match self.slots.get_mut(before as usize) {
            Some(before) => before.next = at,
            None => self.heads.push(Reverse(Head { deadline: queued.packet.deadline, number, slot: at })),
        }
        Ok(())
    }

    /// Takes out the next packet to send. Late ones that the rule drops go to `dropped`.
    #[inline]
    pub fn pop(&mut self, now: Time, dropped: impl FnMut(Packet)) -> Option<Queued> {
        let late = self.spec.late;
        self.pop_by(now, |_| late, dropped)
    }

    /// The same, with a late rule for each packet.
    #[inline]
    pub(crate) fn pop_by(
        &mut self,
        now: Time,
        rule: impl Fn(&Packet) -> LateRule,
        mut dropped: impl FnMut(Packet),
    ) -> Option<Queued> {
        let next = loop {
            let Some(first) = self.pop_first() else { break self.demoted.pop_front() };
            let late = first.packet.deadline < now;
            match rule(&first.packet) {
                LateRule::Drop if late => {
                    self.counts.late += 1;
                    dropped(first.packet);
                }
                LateRule::Demote if late => {
                    self.counts.demoted += 1;
                    self.demoted.push_back(first);
                }
                _ => break Some(first),
            }
        };
        self.counts.sent += u64::from(next.is_some());
        next
    }

    /// The turn of the packet that [`PacketQueue::pop`] would take out. It drops and demotes those before it.
    pub(crate) fn turn(&mut self, now: Time, mut dropped: impl FnMut(Packet)) -> Option<Turn> {
        while let Some(first) = self.first() {
            if self.spec.late == LateRule::Send || first.packet.deadline >= now {
                let deadline = if self.spec.order == Order::Edf { first.packet.deadline } else { Time::ZERO };
                return Some(Turn { is_demoted: false, deadline, since: first.since });
            }
            self.pop_first();
            if self.spec.late == LateRule::Drop {
                self.counts.late += 1;
                dropped(first.packet);
            } else {
                self.counts.demoted += 1;
                self.demoted.push_back(first);
            }
        }
        let first = self.demoted.front()?;
        Some(Turn { is_demoted: true, deadline: Time::ZERO, since: first.since })
    }

    /// The first packet that is not demoted.
    fn first(&self) -> Option<Queued> {
        match self.spec.order {
            Order::Fifo => self.row.front().copied(),
            Order::Edf => Some(self.slots.get(self.heads.peek()?.0.slot as usize)?.queued),
        }
    }

    /// Takes it out.
    #[inline]
    fn pop_first(&mut self) -> Option<Queued> {
        match self.spec.order {
            Order::Fifo => self.row.pop_front(),
            Order::Edf => self.pop_head(),
        }
    }

    /// Takes out the first packet of the stream whose turn it is.
    #[inline]
    fn pop_head(&mut self) -> Option<Queued> {
        let mut first = self.heads.peek_mut()?;
        let at = first.0.slot;
        let slot = *self.slots.get(at as usize)?;
        match self.slots.get(slot.next as usize) {
            Some(next) => {
                *first = Reverse(Head { deadline: next.queued.packet.deadline, number: next.number, slot: slot.next });
                drop(first);
            }
            None => {
                PeekMut::pop(first);
                if let Some(last) = self.last.get_mut(slot.stream as usize) {
                    *last = NONE;
                }
            }
        }
        if let Some(place) = self.slots.get_mut(at as usize) {
            place.next = self.free;
        }
        self.free = at;
        self.in_time -= 1;
        Some(slot.queued)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::Bytes;

    use super::*;

    fn packet(stream: u32, deadline: u64, tag: u64) -> Packet {
        Packet { stream, bytes: Bytes::new(1), deadline: Time::from_ns(deadline), tag }
    }

    fn queue(order: Order, late: LateRule, packets_max: usize) -> PacketQueue {
        PacketQueue::new(QueueSpec { order, late, packets_max, streams: 4 }).unwrap()
    }

    /// Tags in the order in which they leave at `now`, dropped ones in brackets.
    fn leaves(queue: &mut PacketQueue, now: u64) -> String {
        let mut out = Vec::new();
        loop {
            let next = queue.pop(Time::from_ns(now), |packet| out.push(format!("[{}]", packet.tag)));
            let Some(next) = next else { return out.join(" ") };
            out.push(next.packet.tag.to_string());
        }
    }

    #[test]
    fn streams_keep_their_order_and_ties_go_by_arrival() {
        let mut edf = queue(Order::Edf, LateRule::Send, 9);
        // Packet 2 waits for packet 1 of its stream. Packets 3 and 4 have the same deadline.
        for (stream, deadline, tag) in [(0, 50, 1), (0, 10, 2), (1, 40, 3), (2, 40, 4), (1, 45, 5)] {
            edf.push(Time::ZERO, packet(stream, deadline, tag)).unwrap();
        }
        assert_eq!(leaves(&mut edf, 0), "3 4 5 1 2");
        let mut fifo = queue(Order::Fifo, LateRule::Send, 9);
        (1..=3).for_each(|tag| fifo.push(Time::ZERO, packet(0, 9 - tag, tag)).unwrap());
        assert_eq!(leaves(&mut fifo, 0), "1 2 3");
    }

    #[test]
    fn late_packets_go_by_the_rule() {
        for (order, late, expected) in [
            (Order::Fifo, LateRule::Send, "1 2 3 4"),
            (Order::Fifo, LateRule::Drop, "[1] 2 [3] 4"),
            (Order::Fifo, LateRule::Demote, "2 4 1 3"),
            (Order::Edf, LateRule::Send, "3 1 2 4"),
            (Order::Edf, LateRule::Drop, "[3] [1] 2 4"),
            (Order::Edf, LateRule::Demote, "2 4 3 1"),
        ] {
            let mut queue = queue(order, late, 9);
            // At 20 the first and the third are late. The deadline 20 itself is in time.
            for (stream, deadline, tag) in [(0, 19, 1), (1, 20, 2), (2, 5, 3), (0, 30, 4)] {
                queue.push(Time::ZERO, packet(stream, deadline, tag)).unwrap();
            }
            assert_eq!(leaves(&mut queue, 20), expected, "{order:?} {late:?}");
            let counts = queue.counts();
            assert_eq!(counts.arrived, counts.sent + counts.late, "{order:?} {late:?}");
        }
    }

    #[test]
    fn a_full_queue_refuses_the_newcomer_and_counts_it() {
        let mut edf = queue(Order::Edf, LateRule::Send, 2);
        for (tag, expected) in [(1, Ok(())), (2, Ok(())), (3, Err(DropReason::Overflow))] {
            assert_eq!(edf.push(Time::ZERO, packet(0, 1, tag)), expected);
        }
        assert_eq!((edf.len(), edf.counts().overflow, edf.counts().waiting_max), (2, 1, 2));
        assert_eq!(leaves(&mut edf, 0), "1 2");
        assert_eq!(edf.push(Time::ZERO, packet(4, 1, 1)), Err(DropReason::Unknown));
        let spec = QueueSpec { order: Order::Fifo, late: LateRule::Send, packets_max: 0, streams: 0 };
        assert_eq!(PacketQueue::new(spec).unwrap_err(), QueueError::PacketsMax(0));
    }

    /// The same by looking at every packet.
    struct Reference {
        spec: QueueSpec,
        waiting: Vec<(Packet, bool)>,
    }

    impl Reference {
        fn next(&self, demoted: bool) -> Option<usize> {
            let mine = |at: &usize| self.waiting[*at].1 == demoted;
            let all = (0..self.waiting.len()).filter(mine);
            if demoted || self.spec.order == Order::Fifo {
                return all.min();
            }
            let stream = |at: usize| self.waiting[at].0.stream;
            let is_head = |at: &usize| !(0..*at).any(|other| mine(&other) && stream(other) == stream(*at));
            all.filter(is_head).min_by_key(|at| (self.waiting[*at].0.deadline, *at))
        }

        fn pop(&mut self, now: Time, dropped: &mut Vec<u64>) -> Option<u64> {
            while let Some(at) = self.next(false) {
                let (packet, _) = self.waiting.remove(at);
                match self.spec.late {
                    LateRule::Drop if packet.deadline < now => dropped.push(packet.tag),
                    LateRule::Demote if packet.deadline < now => self.waiting.push((packet, true)),
                    _ => return Some(packet.tag),
                }
            }
            self.next(true).map(|at| self.waiting.remove(at).0.tag)
        }
    }

    proptest! {
        #[test]
        fn the_queue_is_a_list(
            edf: bool,
            late in 0usize..3,
            packets_max in 1usize..20,
            steps in proptest::collection::vec((0u8..5, 0u32..4, 0u64..30), 0..200),
        ) {
            let order = if edf { Order::Edf } else { Order::Fifo };
            let late = [LateRule::Send, LateRule::Drop, LateRule::Demote][late];
            let spec = QueueSpec { order, late, packets_max, streams: 4 };
            let (mut queue, mut list) = (PacketQueue::new(spec).unwrap(), Reference { spec, waiting: Vec::new() });
            let mut now = 0;
            for (tag, (what, stream, x)) in (0..).zip(steps) {
                let at = Time::from_ns(now);
                match what {
                    0..=1 => {
                        let packet = packet(stream, now + x, tag);
                        let room = list.waiting.len() < packets_max;
                        prop_assert_eq!(queue.push(at, packet).is_ok(), room);
                        if room {
                            list.waiting.push((packet, false));
                        }
                    }
                    2..=3 => {
                        let (mut dropped, mut expected) = (Vec::new(), Vec::new());
                        let popped = queue.pop(at, |packet| dropped.push(packet.tag)).map(|next| next.packet.tag);
                        prop_assert_eq!(popped, list.pop(at, &mut expected));
                        prop_assert_eq!(dropped, expected);
                    }
                    _ => now += x,
                }
                prop_assert_eq!(queue.len(), list.waiting.len());
            }
        }
    }
}
