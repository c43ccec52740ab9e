//! Sealed exchanges: the messages about clocks are encrypted and authenticated as those of flows, with the key
//! that all nodes of a run share, and none counts twice.
//!
//! - The kind in the head tells both apart: a message of a flow is none about clocks, and the other way round.
//! - The salt is another one than that of the node's messages of flows, and so are the nonces.
//! - Nothing here allocates after construction.

use takt_linux::{clock, process};
use takt_net::{DatagramKind, MessageHead, ReplayGuard, SYNC_SEALED, SyncMessage};

use crate::seal::{Key, SealRefusal, Sealer, accept};

/// What seals the exchanges of a node.
#[derive(Clone, Debug)]
pub struct SyncSealSpec {
    /// The key that all nodes share.
    pub key: Key,
    /// The number of this node in the system, below `nodes`.
    pub node: u16,
    /// The numbers of the peers, in the order of [`TimeSyncSpec::peers`](super::TimeSyncSpec::peers).
    pub peers: Vec<u16>,
    /// The nodes of the system. A message of one with this number or a greater one is malformed.
    pub nodes: usize,
    /// The common start of the run, in nanoseconds since 1970.
    pub run: u64,
    /// A digest of the system, which is the same on all nodes.
    pub system: u64,
}

/// Datagrams of the exchanges that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SyncDrops {
    /// No sealed message of this version, or one of an unknown node.
    pub malformed: u64,
    /// Of another system or of another run, or the answer of a node that was not asked. Without a key also those that
    /// are malformed.
    pub foreign: u64,
    /// Nobody with the key made it.
    pub forged: u64,
    /// It came again, or is too far behind the newest one of its sender, or is an own one that came back.
    pub replayed: u64,
    /// Of a process of its sender that a later one has replaced.
    pub former: u64,
}

/// See the module's documentation.
pub(super) struct SyncSeal {
    sealer: Sealer,
    spec: SyncSealSpec,
    /// By node.
    guards: Vec<ReplayGuard>,
}

impl SyncSeal {
    /// `None`: the kernel gives no random numbers.
    pub(super) fn new(spec: SyncSealSpec) -> Option<SyncSeal> {
        let head = MessageHead {
            from: spec.node,
            salt: process::random()?,
            counter: 0,
            boot: clock::realtime_ns(),
            run: spec.run,
            system: spec.system,
        };
        let guards = vec![ReplayGuard::default(); spec.nodes];
        Some(SyncSeal { sealer: Sealer::new(spec.key.clone(), head), spec, guards })
    }

    /// The sealed datagram of a message that leaves now.
    pub(super) fn seal(&mut self, message: &SyncMessage) -> Option<[u8; SYNC_SEALED]> {
        self.sealer.seal_sync(message)
    }

    /// The place of a node among the peers.
    pub(super) fn place(&self, node: u16) -> Option<usize> {
        self.spec.peers.iter().position(|peer| *peer == node)
    }

    /// The sender of a datagram and its message. The bytes change. `None`: it is dropped and counted.
    pub(super) fn open(&mut self, datagram: &mut [u8], drops: &mut SyncDrops) -> Option<(u16, SyncMessage)> {
        let count = match self.read(datagram) {
            Ok(found) => return Some(found),
            Err(SealRefusal::Malformed) => &mut drops.malformed,
            Err(SealRefusal::Foreign) => &mut drops.foreign,
            Err(SealRefusal::Forged) => &mut drops.forged,
            Err(SealRefusal::Replayed) => &mut drops.replayed,
            Err(SealRefusal::Former) => &mut drops.former,
        };
        *count += 1;
        None
    }

    fn read(&mut self, datagram: &mut [u8]) -> Result<(u16, SyncMessage), SealRefusal> {
        let SyncSeal { spec, guards, .. } = self;
        let head = MessageHead::read_as(DatagramKind::Clock, datagram).ok_or(SealRefusal::Malformed)?;
        let message = accept(&head, (spec.run, spec.system), guards, || {
            let message = spec.key.open_sync(&head, datagram).ok_or(SealRefusal::Forged)?;
            if head.from == spec.node { Err(SealRefusal::Replayed) } else { Ok(message) }
        })?;
        Ok((head.from, message))
    }
}

#[cfg(test)]
mod tests {
    use takt_model::Time;
    use takt_net::SyncRequest;

    use super::*;

    /// Node `node` of three in the run with this start.
    fn seal(digit: &str, node: u16, run: u64) -> SyncSeal {
        let key = digit.repeat(64).parse().unwrap();
        SyncSeal::new(SyncSealSpec { key, node, peers: vec![1, 0], nodes: 3, run, system: 6 }).unwrap()
    }

    fn message(secret: u64) -> SyncMessage {
        SyncMessage::Request(SyncRequest { secret, sent: Time::from_ns(9) })
    }

    #[test]
    fn each_reason_to_drop_a_datagram_has_its_count() {
        let (mut own, mut drops) = (seal("a", 2, 5), SyncDrops::default());
        let mut peer = seal("a", 0, 5);
        let sent = peer.seal(&message(1)).unwrap();
        assert_eq!(own.open(&mut sent.to_vec(), &mut drops), Some((0, message(1))));
        assert_eq!((own.place(0), own.place(1), own.place(2)), (Some(1), Some(0), None));
        assert_eq!(drops, SyncDrops::default());
        // A changed copy comes first: it must not use up the counter of the true one.
        let later = peer.seal(&message(2)).unwrap();
        let mut changed = later;
        changed[SYNC_SEALED - 1] ^= 1;
        // Another process of the node, which began later.
        let (mut restarted, mut last) = (seal("a", 0, 5), peer.seal(&message(3)).unwrap());
        let restarted = restarted.seal(&message(4)).unwrap();
        let refused: [(&[u8], SyncDrops); 9] = [
            (&sent, SyncDrops { replayed: 1, ..SyncDrops::default() }),
            (&changed, SyncDrops { forged: 1, ..SyncDrops::default() }),
            (&seal("b", 1, 5).seal(&message(1)).unwrap(), SyncDrops { forged: 1, ..SyncDrops::default() }),
            (&seal("a", 1, 4).seal(&message(1)).unwrap(), SyncDrops { foreign: 1, ..SyncDrops::default() }),
            (&seal("a", 3, 5).seal(&message(1)).unwrap(), SyncDrops { malformed: 1, ..SyncDrops::default() }),
            (&sent[..SYNC_SEALED - 1], SyncDrops { malformed: 1, ..SyncDrops::default() }),
            (&message(1).write(), SyncDrops { malformed: 1, ..SyncDrops::default() }),
            (&[], SyncDrops { malformed: 1, ..SyncDrops::default() }),
            // An own message that comes back.
            (&own.seal(&message(1)).unwrap(), SyncDrops { replayed: 1, ..SyncDrops::default() }),
        ];
        for (datagram, wanted) in refused {
            let mut drops = SyncDrops::default();
            assert_eq!(own.open(&mut datagram.to_vec(), &mut drops), None);
            assert_eq!(drops, wanted);
        }
        assert_eq!(own.open(&mut later.to_vec(), &mut drops), Some((0, message(2))));
        assert_eq!(own.open(&mut restarted.to_vec(), &mut drops), Some((0, message(4))));
        assert_eq!(own.open(&mut last, &mut drops), None);
        assert_eq!(drops, SyncDrops { former: 1, ..SyncDrops::default() });
    }
}
