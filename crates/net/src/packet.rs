//! A packet, and why one is dropped.

use std::fmt;

use takt_model::{Bytes, Time};

/// A packet on its way. Machines copy it and change nothing in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Packets of one stream keep their order in a queue. A dense index, from 0.
    pub stream: u32,
    /// Its size on the wire.
    pub bytes: Bytes,
    /// Its deadline, on the clock that the queue goes by.
    pub deadline: Time,
    /// The caller's name for it.
    pub tag: u64,
}

impl Packet {
    /// The stream of packets from a background source.
    pub const BACKGROUND: u32 = u32::MAX;

    /// A packet of a background source.
    pub(crate) const fn background(bytes: Bytes) -> Self {
        Packet { stream: Packet::BACKGROUND, bytes, deadline: Time::MAX, tag: 0 }
    }

    /// Whether it comes from a background source.
    #[must_use]
    pub const fn is_background(&self) -> bool {
        self.stream == Packet::BACKGROUND
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The queue was full when the packet came.
    Overflow,
    /// The deadline had passed when the packet could start, and the late rule drops such packets.
    Late,
    /// The packet is larger than its class allows.
    TooLarge,
    /// The class, stream or pair of nodes is unknown to the machine.
    Unknown,
    /// The link lost it.
    Lost,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DropReason::Overflow => "overflow",
            DropReason::Late => "late",
            DropReason::TooLarge => "too large",
            DropReason::Unknown => "unknown",
            DropReason::Lost => "lost",
        })
    }
}
