//! The packets that the kernel still holds, and whether another message may go there. Pure.
//!
//! Datagrams and segments of streams wait in the same queue, so both count. Bytes count as the
//! memory of their packets. The kernel holds packets to an address that does not answer (ARP) for
//! seconds. So bytes of a socket that stand still count no more until they change.

use std::collections::VecDeque;

use takt_linux::outgoing::Transport;
use takt_model::{Rate, Span, Time};

/// A socket whose bytes do not become fewer for so long waits for something else than the line. With
/// a rate it is at least four times the time of `unsent` bytes.
pub(super) const STUCK: Span = Span::from_ms(20);
/// Half of the smallest send buffer, in the kernel's count: a datagram socket with more reports an
/// event when there is room. A stream reports none when a segment leaves.
const HALF_BUFFER: u64 = 2304;
/// Bytes of a packet in the kernel's count, at least.
const PACKET: u64 = 768;
/// The most bytes of a stream in a segment on an Ethernet.
const SEGMENT: u64 = 1448;

/// Whether a message may go to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendReadiness {
    Free,
    /// An event of the moving socket will tell when there is room.
    Busy,
    /// No event will tell.
    Unclear,
}

/// A socket that has or had packets in the kernel.
struct InKernel {
    number: u32,
    transport: Transport,
    /// Its bytes there at the last look.
    seen: u64,
    /// When they last became fewer, or more were sent.
    since: Time,
    /// Bytes that wait for something else than the line.
    stuck: u64,
    /// The frames of the packets that may be there.
    frames: VecDeque<u64>,
}

impl InKernel {
    /// Bytes that wait for the line.
    fn moving(&self) -> u64 {
        self.seen - self.stuck
    }

    fn look(&mut self, unsent: u64, now: Time, patience: Span) {
        if unsent < self.seen {
            self.since = now;
        }
        self.seen = unsent;
        self.stuck = self.stuck.min(unsent);
        let left = self.frames.len().saturating_sub(usize::try_from(unsent / PACKET).unwrap_or(usize::MAX));
        self.frames.drain(..left);
        // The memory of a segment is larger than its frame.
        while self.transport == Transport::Stream && self.frames.iter().sum::<u64>() > unsent {
            self.frames.pop_front();
        }
        if now.saturating_since(self.since) >= patience {
            self.stuck = unsent;
        }
    }
}

/// The line that all sockets share.
pub(super) struct Line {
    /// While that many bytes wait, no message goes to the kernel.
    unsent: u64,
    rate: Option<Rate>,
    sockets: Vec<InKernel>,
}

impl Line {
    pub(super) fn new(unsent: u64, rate: Option<Rate>) -> Line {
        Line { unsent, rate, sockets: Vec::new() }
    }

    /// Looks at what the kernel still holds: `unsent` has the bytes of a socket.
    pub(super) fn look(&mut self, now: Time, unsent: impl Fn(u32) -> u64) -> SendReadiness {
        let patience = self.rate.map_or(STUCK, |rate| STUCK.max(time_on_line(4 * self.unsent, rate)));
        let (mut sum, mut moving) = (0, 0);
        // A datagram socket reports room when less than half of its buffer is used.
        let mut reports = false;
        self.sockets.retain_mut(|socket| {
            socket.look(unsent(socket.number), now, patience);
            sum += socket.moving();
            moving += usize::from(socket.moving() > 0);
            let is_stream = socket.transport == Transport::Stream;
            reports |= !is_stream && socket.stuck == 0 && socket.seen >= HALF_BUFFER;
            socket.seen > 0
        });
        if sum < self.unsent {
            SendReadiness::Free
        } else if reports && moving == 1 {
            SendReadiness::Busy
        } else {
            SendReadiness::Unclear
        }
    }

    /// The sockets whose bytes wait for the line.
    pub(super) fn moving(&self) -> impl Iterator<Item = u32> + '_ {
        self.sockets.iter().filter(|socket| socket.moving() > 0).map(|socket| socket.number)
    }

    /// The kernel took a datagram, or so many bytes of a stream.
    pub(super) fn sent(&mut self, number: u32, transport: Transport, bytes: u64, now: Time) {
        let frames = frames(transport, bytes);
        match self.sockets.iter_mut().find(|socket| socket.number == number) {
            Some(socket) => {
                socket.since = now;
                socket.frames.extend(frames);
            }
            None => {
                let frames = frames.collect();
                self.sockets.push(InKernel { number, transport, seen: 0, since: now, stuck: 0, frames });
            }
        }
    }

    /// A socket is no more.
    pub(super) fn forget(&mut self, number: u32) {
        self.sockets.retain(|socket| socket.number != number);
    }

    /// When a datagram would have left that goes to the kernel now, behind all that wait for the line there.
    /// Without a rate: now.
    pub(super) fn leaves(&self, now: Time, bytes: u64) -> Time {
        let moving = self.sockets.iter().filter(|socket| socket.moving() > 0);
        let before: u64 = moving.flat_map(|socket| &socket.frames).sum();
        self.rate.map_or(now, |rate| now.saturating_add(time_on_line(before + frame(bytes), rate)))
    }
}

/// Bytes on an Ethernet of a UDP datagram over IPv4: the headers, the frame check sequence, preamble
/// and gap.
fn frame(payload: u64) -> u64 {
    payload + 66
}

/// The same of each packet: a datagram is one, and a stream has segments. The header of TCP is 24 bytes longer.
fn frames(transport: Transport, payload: u64) -> impl Iterator<Item = u64> {
    let (packets, most) = match transport {
        Transport::Datagram => (1, payload),
        Transport::Stream => (payload.div_ceil(SEGMENT), SEGMENT),
    };
    let more = if transport == Transport::Stream { 24 } else { 0 };
    (0..packets).map(move |before| frame(more + most.min(payload - before * most)))
}

fn time_on_line(bytes: u64, rate: Rate) -> Span {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.as_bps().max(1));
    Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_stand_still_count_no_more_until_they_change() {
        let mut line = Line::new(2304, None);
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        line.sent(1, Transport::Datagram, 400, at(0));
        assert_eq!(line.look(at(0), |_| 2304), SendReadiness::Busy);
        assert_eq!(line.look(at(19), |_| 2304), SendReadiness::Busy);
        // They wait for an answer.
        assert_eq!(line.look(at(20), |_| 2304), SendReadiness::Free);
        line.sent(2, Transport::Datagram, 400, at(21));
        let bytes = |number| if number == 1 { 2304 } else { 4608 };
        assert_eq!((line.look(at(21), bytes), line.moving().collect::<Vec<_>>()), (SendReadiness::Busy, vec![2]));
        assert_eq!(line.look(at(22), |_| 2304), SendReadiness::Busy, "those of the other socket alone");
        // More of the first one: all of them count that came since.
        line.sent(1, Transport::Datagram, 400, at(23));
        let bytes = |number| if number == 1 { 3072 } else { 768 };
        assert_eq!((line.look(at(24), bytes), line.moving().count()), (SendReadiness::Free, 2));
        // At last the kernel drops them.
        assert_eq!((line.look(at(3000), |_| 0), line.moving().count()), (SendReadiness::Free, 0));
    }

    #[test]
    fn a_datagram_leaves_behind_all_that_wait_for_the_line() {
        let mut line = Line::new(2304, Some(Rate::from_bps(8_000)));
        let (at, leaves) = (Time::ZERO, |line: &Line| line.leaves(Time::ZERO, 434).as_ns() / 1_000_000);
        assert_eq!(leaves(&line), 500);
        // Two small ones of one socket, and one of another.
        for (number, unsent) in [(1, 768), (1, 1536), (2, 1536)] {
            line.sent(number, Transport::Datagram, 434, at);
            line.look(at, |of| if of == 1 { unsent } else { 768 });
        }
        assert_eq!(leaves(&line), 2000);
        // The first has left, then all.
        line.look(at, |_| 768);
        assert_eq!(leaves(&line), 1500);
        line.look(at, |_| 0);
        assert_eq!(leaves(&line), 500);
    }

    #[test]
    fn a_slow_line_has_more_time() {
        let rate = Rate::from_bps(8_000);
        let mut line = Line::new(2304, Some(rate));
        line.sent(1, Transport::Datagram, 434, Time::ZERO);
        let ns = 4 * 2_304_000_000;
        assert_eq!(line.look(Time::from_ns(ns - 1), |_| 2304), SendReadiness::Busy);
        // 500 bytes on the line, and 500 before them.
        assert_eq!(line.leaves(Time::ZERO, 434), Time::from_ns(1_000_000_000));
        assert_eq!(line.look(Time::from_ns(ns), |_| 2304), SendReadiness::Free);
        assert_eq!(line.leaves(Time::ZERO, 434), Time::from_ns(500_000_000));
    }

    #[test]
    fn segments_of_a_stream_wait_for_the_line_as_datagrams_do() {
        let mut line = Line::new(2304, Some(Rate::from_bps(8_000)));
        let leaves = |line: &Line| line.leaves(Time::ZERO, 434).as_ns() / 1_000_000;
        // Two segments, with 1538 bytes on the line each.
        line.sent(1, Transport::Stream, 2896, Time::ZERO);
        assert_eq!(line.look(Time::ZERO, |_| 4816), SendReadiness::Unclear, "no event tells when there is room");
        assert_eq!(leaves(&line), 3076 + 500);
        // One has left.
        assert_eq!(line.look(Time::ZERO, |_| 2408), SendReadiness::Unclear);
        assert_eq!(leaves(&line), 1538 + 500);
        line.sent(2, Transport::Datagram, 434, Time::ZERO);
        let both = |number| if number == 1 { 2408 } else { 2304 };
        assert_eq!(line.look(Time::ZERO, both), SendReadiness::Unclear, "either may be the next to leave");
        assert_eq!(line.look(Time::ZERO, |_| 0), SendReadiness::Free);
        assert_eq!((leaves(&line), line.moving().count()), (500, 0));
    }
}
