//! Limits of channels.

/// The longest payload of a channel in bytes. A datagram holds a little less
/// ([`wire::PAYLOAD_MAX`](super::wire::PAYLOAD_MAX)).
pub const PAYLOAD_MAX: usize = 1 << 16;
/// The most bytes that a channel's [`Options`](super::Options) may ask for. The same limit holds for the queues of
/// a [`Node`](super::Node), and for the buffers of a socket.
pub const ROOM_BYTES_MAX: usize = 64 << 20;
/// Slots for jobs of one subscription: the bits of a set.
pub(super) const SLOTS_MAX: u32 = 64;
/// Slots beyond the backlog, for suppliers that have not yet learned that the backlog is full.
pub(super) const SPARE: u32 = 8;
