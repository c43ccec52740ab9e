//! A relay in user space that holds each datagram for a while: a delay emulator. Datagrams keep
//! their order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::Epoch;
use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_linux::net::End;
use takt_linux::sched::{Class, ClassGuard};
use takt_linux::seqpacket::Poll;
use takt_model::draw::Purpose;
use takt_model::{Draw, Span, Time};

use crate::failure::Failure;

/// The relay sleeps between datagrams, so it may precede the nodes.
const PRIORITY: u8 = 90;
const BUFFER: usize = 1 << 20;
const DATAGRAM: usize = 2_048;
/// Datagrams that it holds at most.
const HELD_MAX: usize = 1_024;
/// The longest sleep, so that a stop is seen.
const SLEEP_MAX: Span = Span::from_ms(20);

/// For how long datagrams are held.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    least: Span,
    most: Span,
    kind: DelayKind,
}

#[derive(Clone, Debug)]
enum DelayKind {
    /// Uniform.
    Drawn(Draw),
    /// From `least` to `most` and back, by a step for each datagram.
    Shifting { step: Span },
}

impl Delay {
    pub(super) fn drawn((least, most): (Span, Span), seed: u64) -> Delay {
        Delay { least, most, kind: DelayKind::Drawn(Draw::new(seed, "relay")) }
    }

    pub(super) fn shifting((most, step): (Span, Span)) -> Delay {
        Delay { least: Span::ZERO, most, kind: DelayKind::Shifting { step } }
    }

    /// By how much delays of neighbours differ, if they shift.
    pub(super) fn step(&self) -> Option<Span> {
        match self.kind {
            DelayKind::Drawn(_) => None,
            DelayKind::Shifting { step } => Some(step),
        }
    }

    /// Of the datagram with this number.
    pub(super) fn of(&self, number: u64) -> Span {
        match &self.kind {
            DelayKind::Drawn(draw) => draw.uniform(Purpose::Delay, number, self.least, self.most),
            DelayKind::Shifting { step } => {
                let range = self.most.saturating_sub(self.least).as_ns();
                let steps = (range / step.as_ns().max(1)).max(1);
                let at = number % (2 * steps);
                let at = if at > steps { 2 * steps - at } else { at };
                self.least.saturating_add(step.checked_mul(at).unwrap_or(Span::ZERO))
            }
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Relayed {
    pub(super) passed: u64,
    /// The shortest and the longest time between receiving and sending.
    pub(super) least: Span,
    pub(super) most: Span,
    /// How much later than drawn a datagram was sent: at most, and in the mean.
    pub(super) late: Span,
    pub(super) late_mean: Span,
    pub(super) lost: u64,
    pub(super) refused: u64,
}

pub(super) struct Relay {
    socket: Datagrams,
    to: Destination,
    delay: Delay,
}

impl Relay {
    pub(super) fn open(end: &End, at: SocketAddr, to: SocketAddr, delay: Delay) -> Result<Relay, Failure> {
        let bind = || Datagrams::bind(at, 0, BUFFER, Span::from_ms(1)).map_err(Failure::trouble);
        Ok(Relay { socket: super::at(end, bind)?, to: to.into(), delay })
    }

    pub(super) fn run(self, stop: &AtomicBool) -> Relayed {
        // If the kernel refuses it, the error of the relay shows it.
        let _class = ClassGuard::enter(&Class::Fifo { priority: PRIORITY }).ok();
        let epoch = Epoch::now_is_zero();
        let mut held: VecDeque<Delayed> = VecDeque::with_capacity(HELD_MAX);
        let (mut done, mut number, mut errors) = (Relayed { least: Span::MAX, ..Relayed::default() }, 0, 0_u64);
        let mut last = Time::ZERO;
        let mut poll = Poll::default();
        while !stop.load(Ordering::Relaxed) {
            let mut bytes = [0; DATAGRAM];
            while let Ok(Some((length, _))) = self.socket.receive_now(&mut bytes) {
                let came = epoch.now();
                // Datagrams keep their order.
                last = came.saturating_add(self.delay.of(number)).max(last);
                number += 1;
                if held.len() == HELD_MAX {
                    done.lost += 1;
                } else {
                    held.push_back(Delayed { came, due: last, bytes: bytes[..length].to_vec() });
                }
            }
            while held.front().is_some_and(|first| first.due <= epoch.now()) {
                let Some(first) = held.pop_front() else { break };
                let at = epoch.now();
                let sent = self.socket.send([&first.bytes, &[]], &self.to, Span::ZERO);
                done.refused += u64::from(sent != Sent::Yes);
                let (time, late) = (at.saturating_since(first.came), at.saturating_since(first.due));
                (done.least, done.most) = (done.least.min(time), done.most.max(time));
                (done.passed, done.late) = (done.passed + 1, done.late.max(late));
                errors = errors.saturating_add(late.as_ns());
            }
            poll.clear();
            poll.add(self.socket.as_fd(), true, false);
            let due = held.front().map_or(SLEEP_MAX, |first| first.due.saturating_since(epoch.now()));
            poll.wait(Some(due.min(SLEEP_MAX)));
        }
        done.lost += u64::from(self.socket.dropped().unwrap_or(0));
        done.late_mean = Span::from_ns(errors / done.passed.max(1));
        done.least = done.least.min(done.most);
        done
    }
}

struct Delayed {
    came: Time,
    due: Time,
    bytes: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_stay_in_their_interval() {
        let ms = Span::from_ms;
        let drawn = Delay::drawn((ms(5), ms(15)), 1);
        let all: Vec<Span> = (0..1_000).map(|number| drawn.of(number)).collect();
        assert!(all.iter().all(|delay| (ms(5)..=ms(15)).contains(delay)));
        assert!(all.iter().any(|delay| *delay < ms(6)) && all.iter().any(|delay| *delay > ms(14)));
        let shifting = Delay::shifting((ms(3), ms(1)));
        let all: Vec<u64> = (0..8).map(|number| shifting.of(number).as_ns() / 1_000_000).collect();
        assert_eq!(all, [0, 1, 2, 3, 2, 1, 0, 1]);
    }
}
