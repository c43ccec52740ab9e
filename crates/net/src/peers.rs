//! The packets of a node for several peers, of which some may be out of reach.
//!
//! Each peer has a [`PacketQueue`] of its own. A peer out of reach fills no other queue. The
//! next packet is chosen among the first ones of the peers within reach:
//!
//! - Packets in time go before demoted ones.
//! - `Edf`: the first packet with the earliest deadline; of equal ones the one that came first.
//! - `Fifo`, and demoted packets: the one that came first.

use takt_model::Time;

use crate::packet::{DropReason, Packet};
use crate::queue::{PacketQueue, QueueError, QueueSpec, Queued, Turn};

/// The queues, by peer. See the module's text.
#[derive(Clone, Debug)]
pub struct PeerQueues {
    queues: Vec<PacketQueue>,
}

impl PeerQueues {
    /// Empty queues, each with this specification. `spec.streams` counts the streams of all peers.
    ///
    /// # Errors
    /// If a limit is out of range.
    pub fn new(spec: QueueSpec, peers: usize) -> Result<PeerQueues, QueueError> {
        let queues = (0..peers).map(|_| PacketQueue::new(spec)).collect::<Result<_, _>>()?;
        Ok(PeerQueues { queues })
    }

    /// Makes room for so many waiting packets of each peer, so that nothing is allocated later for
    /// them.
    pub fn reserve(&mut self, packets: usize) {
        self.queues.iter_mut().for_each(|queue| queue.reserve(packets));
    }

    /// Packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queues.iter().map(PacketQueue::len).sum()
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(PacketQueue::is_empty)
    }

    /// The peers for which packets wait.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty()).map(|(peer, _)| peer)
    }

    /// A packet for a peer comes.
    ///
    /// # Errors
    /// Why it was refused: the queue of the peer is full, or there is no such peer or stream.
    pub fn push(&mut self, now: Time, peer: usize, packet: Packet) -> Result<(), DropReason> {
        self.queues.get_mut(peer).ok_or(DropReason::Unknown)?.push(now, packet)
    }

    /// Takes out the next packet for a peer `within_reach`, with the number of the peer. Late ones
    /// that the rule drops go to `dropped`, whoever their peer is.
    pub fn pop(
        &mut self,
        now: Time,
        within_reach: impl Fn(usize) -> bool,
        mut dropped: impl FnMut(Packet),
    ) -> Option<(usize, Queued)> {
        let mut first: Option<(Turn, usize)> = None;
        for (peer, queue) in self.queues.iter_mut().enumerate() {
            let Some(turn) = queue.turn(now, &mut dropped) else { continue };
            if within_reach(peer) && first.is_none_or(|(other, _)| turn < other) {
                first = Some((turn, peer));
            }
        }
        let (_, peer) = first?;
        Some((peer, self.queues.get_mut(peer)?.pop(now, dropped)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::Bytes;

    use super::*;
    use crate::queue::{LateRule, Order};

    const PEERS: usize = 3;
    /// Of each peer.
    const STREAMS: u32 = 2;

    fn peer_of(packet: &Packet) -> usize {
        (packet.stream / STREAMS) as usize
    }

    /// The same by looking at every packet.
    struct Reference {
        spec: QueueSpec,
        waiting: Vec<(Packet, bool)>,
    }

    impl Reference {
        /// The first packet, without a look at its deadline. `None` for `peer`: of any within
        /// reach.
        fn next(&self, demoted: bool, of: impl Fn(usize) -> bool) -> Option<usize> {
            let mine = |at: &usize| self.waiting[*at].1 == demoted && of(peer_of(&self.waiting[*at].0));
            let all = (0..self.waiting.len()).filter(mine);
            if demoted || self.spec.order == Order::Fifo {
                return all.min();
            }
            let stream = |at: usize| self.waiting[at].0.stream;
            let is_head = |at: &usize| !(0..*at).any(|other| mine(&other) && stream(other) == stream(*at));
            all.filter(is_head).min_by_key(|at| (self.waiting[*at].0.deadline, *at))
        }

        fn pop(&mut self, now: Time, reach: &[bool], dropped: &mut Vec<u64>) -> Option<u64> {
            // First each peer's late packets are dropped or demoted.
            for peer in 0..PEERS {
                while let Some(at) = self.next(false, |of| of == peer) {
                    if self.spec.late == LateRule::Send || self.waiting[at].0.deadline >= now {
                        break;
                    }
                    let (packet, _) = self.waiting.remove(at);
                    match self.spec.late {
                        LateRule::Drop => dropped.push(packet.tag),
                        _ => self.waiting.push((packet, true)),
                    }
                }
            }
            let within = |peer: usize| reach[peer];
            if let Some(at) = self.next(false, within) {
                return Some(self.waiting.remove(at).0.tag);
            }
            // Each peer offers its first demoted packet. The earliest arrival wins. Tags count up.
            let first = (0..PEERS).filter(|peer| reach[*peer]).filter_map(|peer| self.next(true, |of| of == peer));
            let at = first.min_by_key(|at| self.waiting[*at].0.tag)?;
            Some(self.waiting.remove(at).0.tag)
        }
    }

    proptest! {
        #[test]
        fn the_queues_are_a_list(
            edf: bool,
            late in 0usize..3,
            packets_max in 1usize..10,
            steps in proptest::collection::vec((0u8..6, 0u32..STREAMS * PEERS as u32, 0u64..30), 0..200),
        ) {
            let order = if edf { Order::Edf } else { Order::Fifo };
            let late = [LateRule::Send, LateRule::Drop, LateRule::Demote][late];
            let streams = PEERS * STREAMS as usize;
            let spec = QueueSpec { order, late, packets_max, streams };
            let mut queues = PeerQueues::new(spec, PEERS).unwrap();
            let (mut list, mut reach) = (Reference { spec, waiting: Vec::new() }, [true; PEERS]);
            let mut now = 0;
            for (tag, (what, stream, x)) in (0..).zip(steps) {
                // No two packets come at one instant.
                now += 1;
                let (at, peer) = (Time::from_ns(now), (stream / STREAMS) as usize);
                match what {
                    0..=1 => {
                        let deadline = Time::from_ns(now + x);
                        let packet = Packet { stream, bytes: Bytes::new(1), deadline, tag };
                        let is_same = |(other, _): &&(Packet, bool)| peer_of(other) == peer;
                        let room = list.waiting.iter().filter(is_same).count() < packets_max;
                        prop_assert_eq!(queues.push(at, peer, packet).is_ok(), room);
                        if room {
                            list.waiting.push((packet, false));
                        }
                    }
                    2..=3 => {
                        let (mut dropped, mut expected) = (Vec::new(), Vec::new());
                        let popped = queues.pop(at, |peer| reach[peer], |packet| dropped.push(packet.tag));
                        prop_assert!(popped.is_none_or(|(peer, next)| peer == peer_of(&next.packet)));
                        prop_assert_eq!(
                            popped.map(|(_, next)| next.packet.tag),
                            list.pop(at, &reach, &mut expected)
                        );
                        prop_assert_eq!(dropped, expected);
                    }
                    4 => reach[peer] = !reach[peer],
                    _ => now += x,
                }
                prop_assert_eq!(queues.len(), list.waiting.len());
                prop_assert_eq!(queues.is_empty(), list.waiting.is_empty());
                let waiting: Vec<usize> =
                    (0..PEERS).filter(|peer| list.waiting.iter().any(|(other, _)| peer_of(other) == *peer)).collect();
                prop_assert_eq!(queues.waiting().collect::<Vec<_>>(), waiting);
            }
        }
    }

    #[test]
    fn there_is_no_other_peer() {
        let spec = QueueSpec { order: Order::Fifo, late: LateRule::Send, packets_max: 1, streams: 1 };
        let mut queues = PeerQueues::new(spec, 1).unwrap();
        let packet = Packet { stream: 0, bytes: Bytes::new(1), deadline: Time::MAX, tag: 0 };
        assert_eq!(queues.push(Time::ZERO, 1, packet), Err(DropReason::Unknown));
        assert_eq!(PeerQueues::new(QueueSpec { packets_max: 0, ..spec }, 1).unwrap_err(), QueueError::PacketsMax(0));
    }
}
