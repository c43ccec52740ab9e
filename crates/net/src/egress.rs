//! The egress of a node: classes of packets, each with its queue and token bucket, on one line.
//!
//! The line sends one packet at a time and interrupts none. A free line goes to the first class
//! with a packet and without negative tokens in its bucket [HEDF II-C]. A class without a
//! bucket is limited by the line only. Buckets borrow nothing from each other: bandwidth that a
//! bucket does not give stays unused.
//!
//! A background source is backlogged while it is busy. Its packets come after those that wait in
//! the queue of its class.

use takt_model::{Bytes, Rate, Span, Time};
use thiserror::Error;

use crate::bucket::{BucketError, BucketSpec, TokenBucket};
use crate::line::Line;
use crate::packet::{DropReason, Packet};
use crate::queue::{LateRule, Order, PacketQueue, QueueCounts, QueueError, QueueSpec};

/// The egress of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressSpec {
    /// Rate of the line.
    pub rate: Rate,
    /// Its classes, the most important first: real-time, replies, background.
    pub classes: Vec<ClassSpec>,
}

/// A class of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassSpec {
    /// Its queue.
    pub queue: QueueSpec,
    /// Its bucket; none: the line alone limits it.
    pub bucket: Option<BucketSpec>,
    /// The largest packet; larger ones are dropped.
    pub packet_max: Bytes,
    /// A source that always has a packet while it is busy.
    pub background: Option<Background>,
}

impl ClassSpec {
    /// Packets a queue holds by default.
    pub const PACKETS_MAX: usize = 10_000;

    /// A class in EDF order without a bucket, for that many streams.
    #[must_use]
    pub const fn edf(streams: usize) -> Self {
        let queue = QueueSpec { order: Order::Edf, late: LateRule::Send, packets_max: ClassSpec::PACKETS_MAX, streams };
        ClassSpec { queue, bucket: None, packet_max: Bytes::new(u64::MAX), background: None }
    }

    /// A class in order of arrival without a bucket.
    #[must_use]
    pub const fn fifo() -> Self {
        let edf = ClassSpec::edf(0);
        ClassSpec { queue: QueueSpec { order: Order::Fifo, ..edf.queue }, ..edf }
    }
}

/// A source of packets, backlogged for the first part of each period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Background {
    /// Size of its packets, above zero.
    pub bytes: Bytes,
    /// Its period, above zero.
    pub period: Span,
    /// How long it is backlogged in each period.
    pub busy: Span,
}

impl Background {
    /// A source that is always backlogged.
    #[must_use]
    pub const fn always(bytes: Bytes) -> Self {
        Background { bytes, period: Span::from_s(1), busy: Span::from_s(1) }
    }

    /// When it has a packet: `now`, or the start of its next busy time.
    fn ready_at(&self, now: Time) -> Option<Time> {
        let into = now.as_ns().checked_rem(self.period.as_ns())?;
        if into < self.busy.as_ns() {
            return Some(now);
        }
        let start = now.checked_add(Span::from_ns(self.period.as_ns() - into));
        start.filter(|_| !self.busy.is_zero())
    }
}

/// Why an egress cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EgressError {
    /// Rate zero.
    #[error("the rate of the link is zero; give it at least 1bit")]
    NoRate,
    /// No class.
    #[error("the link has no class of packets; give it at least one")]
    NoClass,
    /// A queue.
    #[error("class {class} of the link: {error}")]
    Queue {
        /// Which.
        class: usize,
        /// Why.
        error: QueueError,
    },
    /// A bucket.
    #[error("class {class} of the link: {error}")]
    Bucket {
        /// Which.
        class: usize,
        /// Why.
        error: BucketError,
    },
    /// A background source.
    #[error(
        "class {class} of the link: its background source has packets of {bytes} and a period of {period}; both must \
         be above zero, and a packet at most {packet_max}"
    )]
    Background {
        /// Which.
        class: usize,
        /// Size of its packets.
        bytes: Bytes,
        /// Its period.
        period: Span,
        /// The largest packet of the class.
        packet_max: Bytes,
    },
}

/// An event of an egress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressEvent {
    /// A packet comes.
    Arrive {
        /// Index of its class.
        class: usize,
        /// The packet.
        packet: Packet,
    },
    /// The time of [`Egress::next_wakeup`] has come.
    Wake,
}

/// A decision of an egress.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressDecision {
    /// The first bit of a packet goes out.
    Start {
        /// Index of its class.
        class: usize,
        /// The packet.
        packet: Packet,
        /// When the last bit will have left.
        end: Time,
    },
    /// The last bit of a packet has left.
    End {
        /// Index of its class.
        class: usize,
        /// The packet.
        packet: Packet,
    },
    /// A packet is dropped.
    Drop {
        /// Index of its class.
        class: usize,
        /// The packet.
        packet: Packet,
        /// Why.
        why: DropReason,
    },
}

#[derive(Clone, Debug)]
struct Class {
    queue: PacketQueue,
    bucket: Option<TokenBucket>,
    packet_max: Bytes,
    background: Option<Background>,
}

impl Class {
    fn new(class: usize, spec: &ClassSpec) -> Result<Self, EgressError> {
        let queue = PacketQueue::new(spec.queue).map_err(|error| EgressError::Queue { class, error })?;
        let bucket = spec.bucket.map(|bucket| TokenBucket::new(bucket, spec.packet_max)).transpose();
        let bucket = bucket.map_err(|error| EgressError::Bucket { class, error })?;
        if let Some(Background { bytes, period, .. }) = spec.background
            && (bytes.get() == 0 || bytes > spec.packet_max || period.is_zero())
        {
            return Err(EgressError::Background { class, bytes, period, packet_max: spec.packet_max });
        }
        Ok(Class { queue, bucket, packet_max: spec.packet_max, background: spec.background })
    }

    /// When it could start a packet on a free line.
    #[inline]
    fn ready_at(&self, now: Time) -> Option<Time> {
        let has = if self.queue.is_empty() { self.background?.ready_at(now)? } else { now };
        Some(self.bucket.as_ref().map_or(has, |bucket| bucket.ready_at(now).max(has)))
    }
}

/// The egress.
#[derive(Clone, Debug)]
pub struct Egress {
    line: Line,
    classes: Vec<Class>,
    /// The packet on the line, its class and its end.
    sending: Option<(usize, Packet, Time)>,
    wakeup: Option<Time>,
}

impl Egress {
    /// An egress whose background sources start at once.
    ///
    /// # Errors
    /// If a rate is zero, a bucket is smaller than its largest packet, or another value is out of range.
    pub fn new(spec: EgressSpec) -> Result<Self, EgressError> {
        if spec.rate.as_bps() == 0 {
            return Err(EgressError::NoRate);
        }
        if spec.classes.is_empty() {
            return Err(EgressError::NoClass);
        }
        let classes = spec.classes.iter().enumerate().map(|(i, class)| Class::new(i, class));
        let classes = classes.collect::<Result<_, _>>()?;
        let mut egress = Egress { line: Line::new(spec.rate), classes, sending: None, wakeup: None };
        egress.plan(Time::ZERO);
        Ok(egress)
    }

    /// When it wants to be woken: at the end of a packet, or when one could start.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.wakeup
    }

    /// Packets that wait, in all classes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.classes.iter().map(|class| class.queue.len()).sum()
    }

    /// The counts of a class's queue.
    #[must_use]
    pub fn counts(&self, class: usize) -> Option<QueueCounts> {
        Some(self.classes.get(class)?.queue.counts())
    }

    /// Takes an event.
    #[inline]
    pub fn on_event(&mut self, now: Time, event: EgressEvent, decisions: &mut Vec<EgressDecision>) {
        match event {
            EgressEvent::Arrive { class, packet } => {
                if let Err(why) = self.arrive(now, class, packet) {
                    decisions.push(EgressDecision::Drop { class, packet, why });
                }
            }
            EgressEvent::Wake => self.wake(now, decisions),
        }
    }

    fn arrive(&mut self, now: Time, class: usize, packet: Packet) -> Result<(), DropReason> {
        let class = self.classes.get_mut(class).ok_or(DropReason::Unknown)?;
        if packet.bytes > class.packet_max {
            return Err(DropReason::TooLarge);
        }
        class.queue.push(now, packet)?;
        if self.sending.is_none() {
            self.wakeup = self.wakeup.into_iter().chain(class.ready_at(now)).min();
        }
        Ok(())
    }

    fn wake(&mut self, now: Time, decisions: &mut Vec<EgressDecision>) {
        if let Some((class, packet, end)) = self.sending {
            if end > now {
                return;
            }
            decisions.push(EgressDecision::End { class, packet });
            self.sending = None;
        }
        let next = (0..self.classes.len()).find_map(|class| Some((class, self.next_of(now, class, decisions)?)));
        let Some((class, (packet, since))) = next else { return self.plan(now) };
        let end = self.line.start(now, since, packet.bytes);
        decisions.push(EgressDecision::Start { class, packet, end });
        self.sending = Some((class, packet, end));
        self.wakeup = Some(end);
    }

    /// Removes the packet that the class may start now. Returns it with its arrival time.
    #[inline]
    fn next_of(&mut self, now: Time, class: usize, decisions: &mut Vec<EgressDecision>) -> Option<(Packet, Time)> {
        let of = self.classes.get_mut(class)?;
        if of.bucket.as_ref().is_some_and(|bucket| bucket.ready_at(now) > now) {
            return None;
        }
        let drop = |packet| decisions.push(EgressDecision::Drop { class, packet, why: DropReason::Late });
        let next = match of.queue.pop(now, drop) {
            Some(next) => (next.packet, next.since),
            None => {
                let source = of.background.filter(|source| source.ready_at(now) == Some(now))?;
                (Packet::background(source.bytes), Time::ZERO)
            }
        };
        if let Some(bucket) = &mut of.bucket {
            bucket.charge(now, next.0.bytes);
        }
        Some(next)
    }

    /// Sets the next wake-up of a free line.
    fn plan(&mut self, now: Time) {
        self.wakeup = self.classes.iter().filter_map(|class| class.ready_at(now)).min();
    }
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
