//! Events as they are stored, and as a handler sees them.

use takt_model::Time;

use super::filter::Head;
use crate::bits::ones;

/// The type of the event for a [`Filter::Timeout`](super::Filter::Timeout) or a
/// [`Filter::Silence`](super::Filter::Silence). Suppliers cannot use it.
pub const TIMEOUT: u32 = u32::MAX;
/// The type of the event for a lost peer of this [node](super::Node): the peer was silent for too
/// long, ended, or restarted. The event's source is the peer's index in its level. Its number is
/// the level's index in the node. Both count from zero. The payload is the peer's node number (8
/// bytes, big-endian). For a peer behind another carrier ([`Inlet`](super::Inlet)) the carrier sets
/// the source.
pub const PEER_LOST: u32 = u32::MAX - 1;
/// The type of the event for a peer of this node that has appeared or returned. Source and payload
/// are those of [`PEER_LOST`].
pub const PEER_FOUND: u32 = u32::MAX - 2;
/// The lowest type that suppliers cannot use.
pub(super) const RESERVED: u32 = PEER_FOUND;

/// The head of an event for a timeout.
pub(super) const fn of_time(due: Time) -> Head {
    Head { kind: TIMEOUT, source: 0, number: 0, sent: due, due: Time::MAX, expires: Time::MAX }
}

/// An event as its handler sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// The event without its payload.
    pub head: Head,
    /// The payload.
    pub payload: &'a [u8],
    /// The index of the [`Filter::One`](super::Filter::One), `Silence` or `Timeout` that took the
    /// event, in the order in which the filter lists them.
    pub leaf: usize,
}

/// An event and room for its payload.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) head: Head,
    length: usize,
    data: Box<[u8]>,
}

impl Stored {
    pub(super) fn room(payload_max: usize) -> Stored {
        Stored { head: of_time(Time::ZERO), length: 0, data: vec![0; payload_max].into_boxed_slice() }
    }

    /// The bytes that one takes.
    pub(super) const fn bytes(payload_max: usize) -> usize {
        payload_max.saturating_add(size_of::<Stored>())
    }

    /// Stores an event. The payload is cut to the room; the channel has refused longer payloads
    /// before.
    pub(super) fn set(&mut self, head: &Head, payload: &[u8]) {
        self.head = *head;
        self.length = payload.len().min(self.data.len());
        if let Some((to, from)) = self.data.get_mut(..self.length).zip(payload.get(..self.length)) {
            to.copy_from_slice(from);
        }
    }

    pub(super) fn payload(&self) -> &[u8] {
        self.data.get(..self.length).unwrap_or_default()
    }
}

/// The events of one job: the newest for each part of the filter that took part.
pub struct Delivery<'a> {
    pub(super) leaves: u64,
    pub(super) events: &'a [Stored],
}

impl Delivery<'_> {
    /// The events, in the order of the filter's parts.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        self.stored().map(|(leaf, stored)| Event { head: stored.head, payload: stored.payload(), leaf })
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = (usize, &Stored)> {
        ones(self.leaves).filter_map(|leaf| Some((leaf as usize, self.events.get(leaf as usize)?)))
    }

    /// The first event. A filter for single events has no other.
    #[must_use]
    pub fn first(&self) -> Event<'_> {
        self.events().next().unwrap_or(Event { head: of_time(Time::ZERO), payload: &[], leaf: 0 })
    }

    /// The earliest deadline of the events, by supplier and consumer; [`Time::MAX`] if there is
    /// none. [`Job::time_left`](crate::Job::time_left) gives the job's own deadline.
    #[must_use]
    pub fn due(&self) -> Time {
        self.stored().map(|(_, stored)| stored.head.due).min().unwrap_or(Time::MAX)
    }
}
