//! The machines of a network: packet queues, token buckets, links, switch ports and clocks.
//!
//! Each machine takes `now` and an event, and appends decisions to a list. It says when it must be
//! called next. It does no I/O, reads no clock and draws no randomness: random bits come in as
//! values. A packet is a value that one machine decides to pass on and the caller gives to the next.
//!
//! Arrivals only queue. `Wake` alone starts and ends things. So the caller delivers all arrivals of
//! an instant and then wakes the machine: simultaneous packets go in the order of the queue.
//!
//! ```
//! use takt_model::{Bytes, Rate, Time};
//! use takt_net::{ClassSpec, Egress, EgressDecision, EgressEvent, EgressSpec, Packet};
//!
//! let spec = EgressSpec { rate: Rate::from_bps(8_000_000), classes: vec![ClassSpec::edf(2)] };
//! let mut egress = Egress::new(spec)?;
//! let mut decisions = Vec::new();
//! let packet = |stream, deadline_us: u64| {
//!     let deadline = Time::from_ns(deadline_us * 1_000);
//!     Packet { stream, bytes: Bytes::new(100), deadline, tag: 0 }
//! };
//! for (stream, deadline_us) in [(0, 900), (1, 300)] {
//!     let event = EgressEvent::Arrive { class: 0, packet: packet(stream, deadline_us) };
//!     egress.on_event(Time::ZERO, event, &mut decisions);
//! }
//! egress.on_event(Time::ZERO, EgressEvent::Wake, &mut decisions);
//! let end = Time::from_ns(100_000);
//! assert_eq!(decisions, [EgressDecision::Start { class: 0, packet: packet(1, 300), end }]);
//! assert_eq!(egress.next_wakeup(), Some(end));
//! # Ok::<(), takt_net::EgressError>(())
//! ```

mod bucket;
mod clock;
mod delays;
mod egress;
mod line;
mod link;
mod message_wire;
mod outbox;
mod packet;
mod peers;
mod port;
pub mod probe;
mod queue;
mod replay;
pub mod source;
mod sync_wire;
mod time_table;

pub use bucket::{BucketError, BucketSpec, TokenBucket};
pub use clock::{Clock, ClockError};
pub use delays::{Delays, DelaysError};
pub use egress::{Background, ClassSpec, Egress, EgressDecision, EgressError, EgressEvent, EgressSpec};
pub use link::{DelayChoice, Link, LinkDecision, LinkError, LinkEvent, LinkSpec};
pub use message_wire::{
    BODY as MESSAGE_BODY, DatagramKind, HEAD as MESSAGE_HEAD, LENGTH_MIN as MESSAGE_MIN, MessageBody, MessageHead,
    SYNC_SEALED, TAG as MESSAGE_TAG,
};
pub use outbox::Outbox;
pub use packet::{DropReason, Packet};
pub use peers::PeerQueues;
pub use port::{CrossPattern, CrossSpec, Port, PortDecision, PortError, PortEvent, PortSpec};
pub use queue::{LateRule, Order, PACKETS_MAX, PacketQueue, QueueCounts, QueueError, QueueSpec, Queued};
pub use replay::{ReplayGuard, ReplayRefusal, WINDOW as REPLAY_WINDOW};
pub use sync_wire::{LENGTH as SYNC_LENGTH, SyncClaim, SyncMessage, SyncRequest};
pub use time_table::{
    Claim, ClaimedOffset, Exchange, OffsetInterval, Refusal, TimeTable, TimeTableDecision, TimeTableError,
    TimeTableEvent, TimeTableSpec,
};
