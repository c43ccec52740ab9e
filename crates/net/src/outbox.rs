//! The waiting messages of many sockets that share a line, and which one is sent next.
//!
//! A message is a [`Packet`]; its stream is its socket. Two kinds of sockets:
//!
//! - Datagrams: every message waits in the [`PacketQueue`], and its late rule holds for them.
//! - Byte streams (TCP): only the first message of a socket waits in the queue, the others behind
//!   it. Bytes of a stream are never dropped and never overtake each other.
//!
//! A socket that takes nothing is blocked, and delays no other socket. Datagrams that came before
//! it has room may then leave after later ones of their socket.
//!
//! The caller sends what [`Outbox::next`] returns, and reports the result.

use std::collections::VecDeque;

use takt_model::{Bytes, Time};

use crate::packet::{DropReason, Packet};
use crate::queue::{LateRule, PacketQueue, QueueCounts, QueueError, QueueSpec};

/// The waiting messages. See the module's text.
#[derive(Clone, Debug)]
pub struct Outbox {
    queue: PacketQueue,
    spec: QueueSpec,
    sockets: Vec<Socket>,
    /// Numbers that no socket has.
    free: Vec<u32>,
    /// Messages behind.
    behind: usize,
}

#[derive(Clone, Debug, Default)]
struct Socket {
    /// `false` once it has left. Its number is free when its last message has left the queue.
    is_open: bool,
    is_stream: bool,
    /// It takes nothing.
    is_blocked: bool,
    /// Messages in the queue, and with the caller.
    out: usize,
    /// A byte stream's messages behind the first. All messages of a blocked socket, but for datagrams
    /// whose turn in the queue has not come.
    behind: VecDeque<Packet>,
}

impl Outbox {
    /// No sockets, no messages. `spec.streams` is the most sockets at once.
    ///
    /// # Errors
    /// If a limit is out of range.
    pub fn new(spec: QueueSpec) -> Result<Self, QueueError> {
        let queue = PacketQueue::new(spec)?;
        Ok(Outbox { queue, spec, sockets: Vec::new(), free: Vec::new(), behind: 0 })
    }

    /// Messages that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len() + self.behind
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Outbox::next`] may have a message: not only blocked sockets have some.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The counts of its queue. A byte stream's message counts each time that it waits for its turn.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.queue.counts()
    }

    /// A socket comes, and gets a number. `None`: there are as many as there may be.
    pub fn join(&mut self, is_stream: bool) -> Option<u32> {
        let socket = Socket { is_open: true, is_stream, ..Socket::default() };
        if let Some(number) = self.free.pop() {
            *self.sockets.get_mut(number as usize)? = socket;
            return Some(number);
        }
        let number = u32::try_from(self.sockets.len()).ok().filter(|_| self.sockets.len() < self.spec.streams)?;
        self.sockets.push(socket);
        Some(number)
    }

    /// A socket leaves. Its messages go to `dropped`: at once, or when their turn comes.
    pub fn leave(&mut self, number: u32, mut dropped: impl FnMut(Packet)) {
        let Some(socket) = self.sockets.get_mut(number as usize).filter(|socket| socket.is_open) else { return };
        socket.is_open = false;
        self.behind -= socket.behind.len();
        socket.behind.drain(..).for_each(&mut dropped);
        if socket.out == 0 {
            self.free.push(number);
        }
    }

    /// A message comes.
    ///
    /// # Errors
    /// Why it was refused: all places are taken, or there is no such socket.
    pub fn push(&mut self, now: Time, message: Packet) -> Result<(), DropReason> {
        let is_full = self.len() >= self.spec.packets_max;
        let open = |socket: &&mut Socket| socket.is_open;
        let socket = self.sockets.get_mut(message.stream as usize).filter(open).ok_or(DropReason::Unknown)?;
        if is_full {
            return Err(DropReason::Overflow);
        }
        let is_behind = if socket.out > 0 { socket.is_stream } else { socket.is_blocked };
        if is_behind {
            socket.behind.push_back(message);
            self.behind += 1;
            return Ok(());
        }
        socket.out += 1;
        self.queue.push(now, message)
    }

    /// Removes the message to send next. The caller reports the result with [`Outbox::sent`],
    /// [`Outbox::partly`] or [`Outbox::blocked`]. A datagram is late if its deadline is before
    /// `leaves`, the time at which it would have left. Late ones that the rule drops go to
    /// `dropped`, and so do messages of sockets that are gone.
    pub fn next(&mut self, leaves: impl Fn(&Packet) -> Time, mut dropped: impl FnMut(Packet)) -> Option<Packet> {
        loop {
            let (sockets, free, late) = (&mut self.sockets, &mut self.free, self.spec.late);
            let rule = |packet: &Packet| match sockets.get(packet.stream as usize) {
                Some(socket) if socket.is_stream || !socket.is_open => LateRule::Send,
                _ if packet.deadline >= leaves(packet) => LateRule::Send,
                _ => late,
            };
            let mut late = Vec::new();
            // The rule looks at the time.
            let next = self.queue.pop_by(Time::MAX, rule, |packet| late.push(packet));
            for packet in late {
                release(sockets, free, packet.stream);
                dropped(packet);
            }
            let packet = next?.packet;
            match sockets.get_mut(packet.stream as usize).filter(|socket| socket.is_open) {
                Some(socket) if socket.is_blocked => {
                    socket.out -= 1;
                    socket.behind.push_back(packet);
                    self.behind += 1;
                }
                Some(_) => return Some(packet),
                None => {
                    release(sockets, free, packet.stream);
                    dropped(packet);
                }
            }
        }
    }

    /// The message was sent, or lost.
    pub fn sent(&mut self, now: Time, message: Packet) {
        release(&mut self.sockets, &mut self.free, message.stream);
        self.advance(now, message.stream);
    }

    /// All but `left` bytes of a byte stream's message were sent. The rest is the first of its
    /// stream.
    pub fn partly(&mut self, now: Time, message: Packet, left: Bytes) {
        self.again(Packet { bytes: left, ..message });
        self.advance(now, message.stream);
    }

    /// A socket took nothing of its message: it waits for [`Outbox::unblock`].
    pub fn blocked(&mut self, message: Packet) {
        self.again(message);
        if let Some(socket) = self.sockets.get_mut(message.stream as usize) {
            socket.is_blocked = socket.is_open;
        }
    }

    /// A socket has room again.
    pub fn unblock(&mut self, now: Time, number: u32) {
        let Some(socket) = self.sockets.get_mut(number as usize) else { return };
        socket.is_blocked = false;
        let turns = if socket.is_stream { 1 } else { socket.behind.len() };
        for _ in 0..turns {
            self.advance(now, number);
        }
    }

    /// Puts a message before the others of its stream.
    fn again(&mut self, message: Packet) {
        release(&mut self.sockets, &mut self.free, message.stream);
        if let Some(socket) = self.sockets.get_mut(message.stream as usize).filter(|socket| socket.is_open) {
            socket.behind.push_front(message);
            self.behind += 1;
        }
    }

    /// Moves the first message behind into the queue. Of a byte stream, one is there at most.
    fn advance(&mut self, now: Time, number: u32) {
        let Some(socket) = self.sockets.get_mut(number as usize) else { return };
        if socket.is_stream && socket.out > 0 || socket.is_blocked {
            return;
        }
        if let Some(first) = socket.behind.pop_front() {
            self.behind -= 1;
            socket.out += 1;
            // There is a place: it has just been one of those that wait.
            let pushed = self.queue.push(now, first);
            debug_assert_eq!(pushed, Ok(()), "a message that waited has a place");
        }
    }
}

/// A message of a socket has left the queue.
fn release(sockets: &mut [Socket], free: &mut Vec<u32>, number: u32) {
    let Some(socket) = sockets.get_mut(number as usize) else { return };
    socket.out -= 1;
    if socket.out == 0 && !socket.is_open {
        free.push(number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::Order;

    /// The same by looking at every message.
    #[derive(Default)]
    struct Reference {
        /// Messages in order of arrival; a message that came back keeps its place in its stream.
        waiting: Vec<Packet>,
        /// The order in which messages last came to wait for their turn, by tag.
        turn: Vec<(u64, u64)>,
        turns: u64,
        streams: Vec<u32>,
        blocked: Vec<u32>,
        /// Datagrams of blocked sockets, but for those whose turn has not come.
        aside: Vec<Packet>,
    }

    impl Reference {
        /// Gives the first message of each byte stream its turn, unless it has one.
        fn take_turns(&mut self) {
            let mut seen = Vec::new();
            for at in 0..self.waiting.len() {
                let packet = self.waiting[at];
                let is_stream = self.streams.contains(&packet.stream);
                let waits = is_stream && (seen.contains(&packet.stream) || self.blocked.contains(&packet.stream));
                seen.push(packet.stream);
                if !waits && !self.turn.iter().any(|(tag, _)| *tag == packet.tag) {
                    self.turns += 1;
                    self.turn.push((packet.tag, self.turns));
                }
            }
        }

        fn next(&mut self, now: Time, dropped: &mut Vec<u64>) -> Option<Packet> {
            loop {
                let head = |at: &usize| !self.waiting[..*at].iter().any(|p| p.stream == self.waiting[*at].stream);
                let turn = |at: usize| self.turn.iter().find(|(tag, _)| *tag == self.waiting[at].tag).map(|t| t.1);
                let heads = (0..self.waiting.len()).filter(head).filter(|at| turn(*at).is_some());
                let at = heads.min_by_key(|at| (self.waiting[*at].deadline, turn(*at)))?;
                let packet = self.waiting.remove(at);
                self.turn.retain(|(tag, _)| *tag != packet.tag);
                if !self.streams.contains(&packet.stream) && packet.deadline < now {
                    dropped.push(packet.tag);
                } else if self.blocked.contains(&packet.stream) {
                    self.aside.push(packet);
                } else {
                    return Some(packet);
                }
            }
        }
    }

    fn outbox() -> Outbox {
        Outbox::new(QueueSpec { order: Order::Edf, late: LateRule::Drop, packets_max: 30, streams: 4 }).unwrap()
    }

    proptest! {
        #[test]
        fn the_outbox_is_a_list(steps in proptest::collection::vec((0u8..9, 0u32..4, 0u64..30), 0..200)) {
            let (mut outbox, mut list) = (outbox(), Reference { streams: vec![2, 3], ..Reference::default() });
            for number in 0..4 {
                prop_assert_eq!(outbox.join(number >= 2), Some(number));
            }
            prop_assert_eq!(outbox.join(false), None);
            let mut now = 0;
            for (tag, (what, stream, x)) in (0..).zip(steps) {
                let at = Time::from_ns(now);
                match what {
                    0..=3 => {
                        let packet = Packet { stream, bytes: Bytes::new(9), deadline: Time::from_ns(now + x), tag };
                        let room = list.waiting.len() + list.aside.len() < 30;
                        prop_assert_eq!(outbox.push(at, packet).is_ok(), room);
                        let is_aside = list.blocked.contains(&stream) && !list.streams.contains(&stream);
                        if room && is_aside && !list.waiting.iter().any(|p| p.stream == stream) {
                            list.aside.push(packet);
                        } else if room {
                            list.waiting.push(packet);
                        }
                    }
                    4..=6 => {
                        let (mut dropped, mut expected) = (Vec::new(), Vec::new());
                        let next = outbox.next(|_| at, |packet| dropped.push(packet.tag));
                        prop_assert_eq!(next, list.next(at, &mut expected));
                        prop_assert_eq!(dropped, expected);
                        let Some(packet) = next else { continue };
                        let is_stream = list.streams.contains(&packet.stream);
                        let first = list.waiting.iter().position(|p| p.stream == packet.stream);
                        let first = first.unwrap_or(list.waiting.len());
                        if what == 5 && is_stream && packet.bytes.get() > 1 {
                            let left = Bytes::new(packet.bytes.get() - 1);
                            outbox.partly(at, packet, left);
                            list.waiting.insert(first, Packet { bytes: left, ..packet });
                        } else if what == 6 {
                            outbox.blocked(packet);
                            match is_stream {
                                true => list.waiting.insert(first, packet),
                                false => list.aside.insert(0, packet),
                            }
                            list.blocked.push(packet.stream);
                        } else {
                            outbox.sent(at, packet);
                        }
                    }
                    7 => {
                        outbox.unblock(at, stream);
                        list.blocked.retain(|blocked| *blocked != stream);
                        let back = list.aside.extract_if(.., |packet| packet.stream == stream);
                        list.waiting.extend(back);
                    }
                    _ => now += x,
                }
                list.take_turns();
                prop_assert_eq!(outbox.len(), list.waiting.len() + list.aside.len());
            }
        }
    }

    #[test]
    fn a_socket_that_leaves_takes_its_messages_along() {
        let mut outbox = outbox();
        let (datagrams, stream) = (outbox.join(false).unwrap(), outbox.join(true).unwrap());
        let packet = |stream, tag| Packet { stream, bytes: Bytes::new(1), deadline: Time::from_ns(9), tag };
        for tag in 0..3 {
            outbox.push(Time::ZERO, packet(datagrams, tag)).unwrap();
            outbox.push(Time::ZERO, packet(stream, 10 + tag)).unwrap();
        }
        let mut dropped = Vec::new();
        outbox.leave(datagrams, |packet| dropped.push(packet.tag));
        outbox.leave(stream, |packet| dropped.push(packet.tag));
        assert_eq!(outbox.push(Time::ZERO, packet(stream, 9)), Err(DropReason::Unknown));
        // Its number is taken while one of its messages is in the queue.
        assert_eq!((outbox.join(false), outbox.join(false), outbox.join(false)), (Some(2), Some(3), None));
        assert_eq!(outbox.next(|_| Time::ZERO, |packet| dropped.push(packet.tag)), None);
        dropped.sort_unstable();
        assert_eq!(dropped, [0, 1, 2, 10, 11, 12]);
        assert!(outbox.is_empty());
        assert!(outbox.join(false).is_some());
    }

    #[test]
    fn a_message_with_the_caller_keeps_its_sockets_number() {
        let mut outbox = outbox();
        let stream = outbox.join(true).unwrap();
        let packet = Packet { stream, bytes: Bytes::new(2), deadline: Time::MAX, tag: 1 };
        outbox.push(Time::ZERO, packet).unwrap();
        let with_caller = outbox.next(|_| Time::ZERO, |_| {}).unwrap();
        outbox.leave(stream, |_| {});
        assert_ne!(outbox.join(true), Some(stream));
        outbox.partly(Time::ZERO, with_caller, Bytes::new(1));
        assert!(outbox.is_empty());
        assert_eq!(outbox.join(true), Some(stream));
    }
}
