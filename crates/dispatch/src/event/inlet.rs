//! The way into a channel for a gateway to other middleware.
//!
//! An ordinary thread of the gateway brings events of other processes. They go only to this
//! process's consumers, whose handlers run on their own threads.

use std::sync::Arc;

use takt_linux::Epoch;
use takt_model::Time;

use super::consumers::Pushed;
use super::delivery::{PEER_FOUND, PEER_LOST};
use super::error::EventError;
use super::filter::Head;
use super::peer::{ArrivalTimes, PresenceChange};
use super::state::Inner;

/// Offers events from elsewhere to the consumers of a channel. They go neither to peers of the
/// channel's node nor to outlets.
pub struct Inlet {
    inner: Arc<Inner>,
    /// The inlet has its own clock, because each connection of the channel may have another one.
    clock: Epoch,
}

impl Inlet {
    pub(super) fn new(inner: Arc<Inner>) -> Inlet {
        Inlet { inner, clock: Epoch::now_is_zero() }
    }

    /// The time for [`Inlet::offer`].
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The number of the channel's present connection, if it is connected. Each connection has
    /// another number.
    #[must_use]
    pub fn connection(&self) -> Option<u64> {
        self.inner.live().map(|live| live.consumers.number)
    }

    /// Offers an event that had the times `left` at `at`, by [`Inlet::now`]. Read `at` before you
    /// compute `left`, so that a pause in between does not extend the event's life.
    ///
    /// # Errors
    /// Its payload is too long, its type is one of the channel's own, or the channel is not
    /// connected.
    pub fn offer(
        &self,
        kind: u32,
        source: u32,
        number: u64,
        left: &ArrivalTimes,
        at: Time,
        payload: &[u8],
    ) -> Result<Pushed, EventError> {
        self.inner.takes(kind, payload)?;
        let live = self.inner.live().ok_or(EventError::NotConnected)?;
        let now = live.consumers.now();
        let then = now.saturating_sub(self.clock.now().saturating_since(at));
        Ok(live.consumers.offer(&left.head(kind, source, number, then), payload, now))
    }

    /// Tells subscribers of [`PEER_FOUND`] or [`PEER_LOST`] that a node came or went. The event has
    /// this source and the number 0.
    ///
    /// # Errors
    /// The channel is not connected.
    pub fn report_presence(&self, change: PresenceChange, node: u64, source: u32) -> Result<Pushed, EventError> {
        let live = self.inner.live().ok_or(EventError::NotConnected)?;
        let kind = if change == PresenceChange::Found { PEER_FOUND } else { PEER_LOST };
        let head = Head { kind, source, number: 0, sent: live.consumers.now(), due: Time::MAX, expires: Time::MAX };
        let payload = node.to_be_bytes();
        Ok(live.consumers.offer(&head, payload.get(..self.inner.payload_max().min(8)).unwrap_or_default(), head.sent))
    }
}
