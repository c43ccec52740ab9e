//! A link from one node to another, after the last bit has left: delay and loss.
//!
//! Packets arrive in the order in which they were sent. [HEDF Eq. 2] supposes so within a flow, and
//! the system file lets no switch change the order between two nodes. So a packet
//! arrives at the later of its own time and the arrival before it. It is never later than by its
//! largest delay. A lost packet delays no other one.

use std::collections::VecDeque;

use takt_model::{Probability, Span, Time};
use thiserror::Error;

use crate::delays::{Delays, DelaysError, happens};
use crate::packet::{DropReason, Packet};

/// A link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkSpec {
    /// Delays of packets.
    pub delays: Delays,
    /// The probability that a packet is lost.
    pub loss: Probability,
    /// The most packets under way.
    pub packets_max: usize,
}

/// Why a link cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LinkError {
    /// Its delays.
    #[error(transparent)]
    Delays(#[from] DelaysError),
    /// No room.
    #[error("packets_max of the link is zero; give at least 1")]
    PacketsMax,
}

/// An event of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The last bit of a packet leaves the sender.
    Send {
        /// The packet.
        packet: Packet,
        /// Its number on the link, for traces of delays.
        number: u64,
        /// Its delay.
        delay: DelayChoice,
        /// 64 drawn bits that decide whether it is lost.
        loss_draw: u64,
    },
    /// The time of [`Link::next_wakeup`] has come.
    Wake,
}

/// The choice of a packet's delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayChoice {
    /// From the delays of the link, by 64 drawn bits.
    Drawn(u64),
    /// This delay, by an adversary. It may be outside the delays of the link.
    Exactly(Span),
}

/// A decision of a link.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkDecision {
    /// The packet is in the receiver's buffer.
    Deliver(Packet),
    /// The packet is lost, or too many are under way.
    Drop(Packet, DropReason),
}

/// The packets under way on a link.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    under_way: VecDeque<(Time, Packet)>,
    last: Time,
}

impl Link {
    /// An empty link.
    ///
    /// # Errors
    /// If its delays are not right, or it has no room.
    pub fn new(spec: LinkSpec) -> Result<Self, LinkError> {
        spec.delays.check()?;
        if spec.packets_max == 0 {
            return Err(LinkError::PacketsMax);
        }
        Ok(Link { spec, under_way: VecDeque::new(), last: Time::ZERO })
    }

    /// When it wants to be woken: at the next arrival.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.under_way.front().map(|(arrival, _)| *arrival)
    }

    /// Takes an event.
    pub fn on_event(&mut self, now: Time, event: LinkEvent, decisions: &mut Vec<LinkDecision>) {
        match event {
            LinkEvent::Send { packet, number, delay, loss_draw } => {
                if happens(self.spec.loss, loss_draw) {
                    decisions.push(LinkDecision::Drop(packet, DropReason::Lost));
                } else if self.under_way.len() >= self.spec.packets_max {
                    decisions.push(LinkDecision::Drop(packet, DropReason::Overflow));
                } else {
                    let delay = match delay {
                        DelayChoice::Drawn(draw) => self.spec.delays.choose(draw, number),
                        DelayChoice::Exactly(delay) => delay,
                    };
                    self.last = self.last.max(now.saturating_add(delay));
                    self.under_way.push_back((self.last, packet));
                }
            }
            LinkEvent::Wake => {
                while let Some((_, packet)) = self.under_way.front().filter(|(arrival, _)| *arrival <= now) {
                    decisions.push(LinkDecision::Deliver(*packet));
                    self.under_way.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::Bytes;

    use super::*;

    fn packet(tag: u64) -> Packet {
        Packet { stream: 0, bytes: Bytes::new(1), deadline: Time::MAX, tag }
    }

    #[test]
    fn bad_links_say_what_to_do() {
        let delays = Delays::Uniform { min: Span::from_ns(2), max: Span::from_ns(1) };
        let bad = LinkSpec { delays, loss: Probability::NONE, packets_max: 1 };
        assert!(matches!(Link::new(bad.clone()), Err(LinkError::Delays(_))));
        let delays = Delays::Uniform { min: Span::ZERO, max: Span::ZERO };
        assert_eq!(Link::new(LinkSpec { delays, packets_max: 0, ..bad }).unwrap_err(), LinkError::PacketsMax);
    }

    proptest! {
        /// Packets keep their order and their interval of delay. None is lost without a word.
        #[test]
        fn packets_keep_their_order_and_their_interval(
            steps in proptest::collection::vec((0u64..50, any::<u64>(), any::<u64>()), 0..60),
            least in 0u64..40,
            width in 0u64..100,
            loss in 0u32..500_000_000,
        ) {
            let (min, max) = (Span::from_ns(least), Span::from_ns(least + width));
            let loss = Probability::from_billionths(loss).unwrap();
            let spec = LinkSpec { delays: Delays::Uniform { min, max }, loss, packets_max: 5 };
            let mut link = Link::new(spec).unwrap();
            let (mut now, mut sent, mut last, mut gone) = (Time::ZERO, Vec::new(), None, 0);
            let mut decisions = Vec::new();
            let mut deliver = |link: &mut Link, until: Time, sent: &[Time]| -> Result<usize, TestCaseError> {
                let mut delivered = 0;
                while let Some(at) = link.next_wakeup().filter(|at| *at <= until) {
                    let mut decisions = Vec::new();
                    link.on_event(at, LinkEvent::Wake, &mut decisions);
                    for decision in decisions {
                        let LinkDecision::Deliver(packet) = decision else { panic!("{decision:?}") };
                        let delay = at - sent[packet.tag as usize];
                        prop_assert!(min <= delay && delay <= max);
                        prop_assert!(last < Some(packet.tag));
                        last = Some(packet.tag);
                        delivered += 1;
                    }
                }
                Ok(delivered)
            };
            for (number, (pause, delay_draw, loss_draw)) in (0..).zip(steps) {
                now = now.saturating_add(Span::from_ns(pause));
                gone += deliver(&mut link, now, &sent)?;
                let delay = DelayChoice::Drawn(delay_draw);
                let event = LinkEvent::Send { packet: packet(number), number, delay, loss_draw };
                link.on_event(now, event, &mut decisions);
                sent.push(now);
            }
            gone += deliver(&mut link, Time::MAX, &sent)?;
            prop_assert_eq!(gone + decisions.len(), sent.len());
        }
    }
}
