//! An output port of a switch: store and forward, with traffic of others.
//!
//! A packet is there when its last bit has arrived. It is processed for at most the latency; packets
//! are processed in the order in which they came. Then it waits for the line, which interrupts no
//! packet.
//!
//! - `fifo`: the line serves all packets in order. The others' go before simultaneous ones.
//! - any other order: the others' packets go first. Then the earliest deadline counts, and packets
//!   between the same two nodes keep their order. The system file's `order = "any"` also allows
//!   milder orders for flows.
//!
//! The traffic of others is bounded by (σ, ρ) and comes as whole packets, as early as its pattern
//! allows. It takes no place in the queue. The port computes it when a packet of a flow asks, so
//! traffic of others alone wakes nobody.

use std::collections::VecDeque;

use takt_model::{Bytes, Rate, Span, Time};
use thiserror::Error;

use crate::line::{Line, time, work};
use crate::packet::{DropReason, Packet};
use crate::queue::{LateRule, Order, PacketQueue, QueueError, QueueSpec, Queued};

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// Rate of its line.
    pub rate: Rate,
    /// The longest processing of a packet.
    pub latency: Span,
    /// Traffic of others.
    pub cross: Option<CrossSpec>,
    /// Whether it serves in the order of arrival.
    pub fifo: bool,
    /// The most packets of flows that wait.
    pub packets_max: usize,
    /// Number of pairs of nodes whose packets come here.
    pub pairs: usize,
}

/// Traffic of others at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrossSpec {
    /// σ.
    pub burst: Bytes,
    /// ρ.
    pub rate: Rate,
    /// Size of a packet.
    pub packet: Bytes,
    /// When it begins.
    pub offset: Span,
    /// When packets come.
    pub pattern: CrossPattern,
}

/// When packets of others come, within their bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrossPattern {
    /// σ at once, then evenly at rate ρ.
    Steady,
    /// σ at once, again and again, as soon as ρ allows.
    Bursts,
}

impl PortSpec {
    /// The largest frame of the others: of Ethernet, preamble and gap included.
    pub const CROSS_FRAME: u64 = 1_538;
    /// Packets that wait by default.
    pub const PACKETS_MAX: usize = 10_000;

    /// The port of a System. Others send frames of [`PortSpec::CROSS_FRAME`], or of their burst where that is less.
    #[must_use]
    pub fn of(port: &takt_model::Port, pairs: usize, pattern: CrossPattern, offset: Span) -> Self {
        let cross = port.cross.filter(|cross| cross.burst.get() > 0).map(|cross| CrossSpec {
            burst: cross.burst,
            rate: cross.rate,
            packet: cross.burst.min(Bytes::new(PortSpec::CROSS_FRAME)),
            offset,
            pattern,
        });
        let packets_max = PortSpec::PACKETS_MAX;
        PortSpec { rate: port.rate, latency: port.latency, cross, fifo: port.fifo, packets_max, pairs }
    }
}

/// Why a port cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PortError {
    /// Rate zero.
    #[error("the rate of the port is zero; give it at least 1bit")]
    NoRate,
    /// The others fill it.
    #[error("the port's rate of {rate} is not above that of the cross traffic, {cross}; lead traffic elsewhere")]
    Full {
        /// Rate of the line.
        rate: Rate,
        /// Rate of the others.
        cross: Rate,
    },
    /// Cross traffic that cannot send.
    #[error(
        "the port's cross traffic has packets of {packet}, a burst of {burst} and a rate of {rate}; all must be above \
         zero, and a packet at most the burst"
    )]
    Cross {
        /// Size of a packet.
        packet: Bytes,
        /// σ.
        burst: Bytes,
        /// ρ.
        rate: Rate,
    },
    /// Its queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// An event of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortEvent {
    /// The last bit of a packet has arrived.
    Arrive {
        /// The packet.
        packet: Packet,
        /// Index of its sender and receiver as a pair.
        pair: u32,
        /// 64 drawn bits for its processing: 0 for none, all ones for the whole latency.
        latency_draw: u64,
    },
    /// The time of [`Port::next_wakeup`] has come.
    Wake,
}

/// A decision of a port.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortDecision {
    /// The last bit of the packet has left.
    Leave(Packet),
    /// The packet is dropped.
    Drop(Packet, DropReason),
}

/// The packets of others, in order.
#[derive(Clone, Debug)]
struct Cross {
    spec: CrossSpec,
    /// Packets of a burst.
    at_once: u64,
    /// Number of the next, from 0.
    number: u64,
    next: Time,
}

impl Cross {
    fn new(spec: CrossSpec) -> Result<Self, PortError> {
        let CrossSpec { burst, rate, packet, offset, .. } = spec;
        if packet.get() == 0 || packet > burst || rate.as_bps() == 0 {
            return Err(PortError::Cross { packet, burst, rate });
        }
        let at_once = burst.get() / packet.get();
        Ok(Cross { spec, at_once, number: 0, next: Time::ZERO.saturating_add(offset) })
    }

    fn advance(&mut self) {
        self.number += 1;
        let packet = u128::from(self.spec.packet.get());
        // The bytes that ρ alone has brought when the packet comes.
        let bytes = match self.spec.pattern {
            CrossPattern::Steady => {
                ((u128::from(self.number) + 1) * packet).saturating_sub(u128::from(self.spec.burst.get()))
            }
            CrossPattern::Bursts => u128::from(self.number / self.at_once.max(1) * self.at_once) * packet,
        };
        let after = time(bytes.saturating_mul(work(1)), self.spec.rate.as_bps());
        let from = Time::ZERO.saturating_add(self.spec.offset);
        self.next = from.saturating_add(Span::from_ns(after));
    }
}

/// A packet that is processed or waits in order.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ready: Time,
    pair: u32,
    packet: Packet,
}

/// The port.
#[derive(Clone, Debug)]
pub struct Port {
    line: Line,
    latency: Span,
    fifo: bool,
    packets_max: usize,
    pairs: u32,
    cross: Option<Cross>,
    row: VecDeque<Waiting>,
    /// Packets that wait for the line, where the order is not that of arrival.
    queue: PacketQueue,
    sending: Option<(Packet, Time)>,
    wakeup: Option<Time>,
    dropped: u64,
    waiting_max: usize,
}

impl Port {
    /// An empty port.
    ///
    /// # Errors
    /// If a rate is zero, the others fill the line, or another value is out of range.
    pub fn new(spec: PortSpec) -> Result<Self, PortError> {
        if spec.rate.as_bps() == 0 {
            return Err(PortError::NoRate);
        }
        if let Some(cross) = spec.cross.filter(|cross| cross.rate >= spec.rate) {
            return Err(PortError::Full { rate: spec.rate, cross: cross.rate });
        }
        let queue = QueueSpec {
            order: Order::Edf,
            late: LateRule::Send,
            packets_max: spec.packets_max,
            streams: if spec.fifo { 0 } else { spec.pairs },
        };
        Ok(Port {
            line: Line::new(spec.rate),
            latency: spec.latency,
            fifo: spec.fifo,
            packets_max: spec.packets_max,
            pairs: u32::try_from(spec.pairs).unwrap_or(u32::MAX),
            cross: spec.cross.map(Cross::new).transpose()?,
            row: VecDeque::new(),
            queue: PacketQueue::new(queue)?,
            sending: None,
            wakeup: None,
            dropped: 0,
            waiting_max: 0,
        })
    }

    /// When it wants to be woken: at the end of a packet, or when one could start.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.wakeup
    }

    /// Packets of flows that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.row.len() + self.queue.len()
    }

    /// The most packets of flows that waited at once.
    #[must_use]
    pub fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    /// Packets dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes an event.
    #[inline]
    pub fn on_event(&mut self, now: Time, event: PortEvent, decisions: &mut Vec<PortDecision>) {
        match event {
            PortEvent::Arrive { packet, pair, latency_draw } => {
                if let Err(why) = self.arrive(now, packet, pair, latency_draw) {
                    self.dropped += 1;
                    decisions.push(PortDecision::Drop(packet, why));
                }
            }
            PortEvent::Wake => self.wake(now, decisions),
        }
    }

    fn arrive(&mut self, now: Time, packet: Packet, pair: u32, draw: u64) -> Result<(), DropReason> {
        if pair >= self.pairs {
            return Err(DropReason::Unknown);
        }
        if self.waiting() >= self.packets_max {
            return Err(DropReason::Overflow);
        }
        let width = u128::from(self.latency.as_ns()) + 1;
        let processing = Span::from_ns(((u128::from(draw) * width) >> 64) as u64);
        let ready = now.saturating_add(processing).max(self.row.back().map_or(Time::ZERO, |last| last.ready));
        self.row.push_back(Waiting { ready, pair, packet });
        self.waiting_max = self.waiting_max.max(self.waiting());
        if self.sending.is_none() {
            self.wakeup = self.candidate();
        }
        Ok(())
    }

    fn wake(&mut self, now: Time, decisions: &mut Vec<PortDecision>) {
        loop {
            if let Some((packet, end)) = self.sending {
                if end > now {
                    self.wakeup = Some(end);
                    return;
                }
                decisions.push(PortDecision::Leave(packet));
                self.sending = None;
            }
            let start = self.candidate();
            let Some((packet, since, at)) = start.filter(|at| *at <= now).and_then(|at| self.take(at)) else {
                self.wakeup = start;
                return;
            };
            self.sending = Some((packet, self.line.start(at, since, packet.bytes)));
        }
    }

    /// When the next packet of a flow can start. Serves all packets of others that go before it.
    fn candidate(&mut self) -> Option<Time> {
        let free = self.line.free_at();
        let ready = if self.queue.is_empty() { self.row.front()?.ready } else { free };
        let mut start = free.max(ready);
        let Some(cross) = &mut self.cross else { return Some(start) };
        loop {
            let before = if self.fifo { ready } else { start };
            if cross.next > before || cross.next == Time::MAX {
                return Some(start);
            }
            let at = self.line.free_at().max(cross.next);
            start = self.line.start(at, cross.next, cross.spec.packet).max(ready);
            cross.advance();
        }
    }

    /// Takes out the packet that starts at `at`, and when it was ready.
    fn take(&mut self, at: Time) -> Option<(Packet, Time, Time)> {
        if self.fifo {
            return self.row.pop_front().map(|first| (first.packet, first.ready, at));
        }
        while let Some(first) = self.row.front().filter(|first| first.ready <= at).copied() {
            self.row.pop_front();
            // The pair is known, and there is room: the row and the queue share the limit.
            let _ = self.queue.push_in(first.pair, Queued { packet: first.packet, since: first.ready });
        }
        self.queue.pop(at, |_| {}).map(|next| (next.packet, next.since, at))
    }
}

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
