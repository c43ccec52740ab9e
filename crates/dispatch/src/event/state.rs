//! The state that the parts of a channel share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use takt_linux::PiMutex;
use takt_model::Time;

use super::delivery::{RESERVED, Stored};
use super::error::{EventError, OptionsError};
use super::filter::LEAVES_MAX;
use super::history::History;
use super::inbox::Inbox;
use super::limits::{PAYLOAD_MAX, ROOM_BYTES_MAX, SLOTS_MAX};
use super::live::Live;
use super::outlet::OutletQueue;

/// Sizes of a channel.
///
/// A subscription reserves room for the events of 64 jobs. The subscriptions and the history may
/// take [`ROOM_BYTES_MAX`] together. Each event takes some 90 bytes besides its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The longest payload in bytes, [`PAYLOAD_MAX`] at most. Default 256.
    pub payload_max: usize,
    /// The most events that one filter waits for at once, [`LEAVES_MAX`](super::LEAVES_MAX) at
    /// most. Default 8.
    pub events_max: usize,
    /// How many events the channel remembers. Default none.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { payload_max: 256, events_max: 8, history: 0 }
    }
}

impl Options {
    /// Checks the limits. A channel with invalid options refuses subscriptions and connections.
    ///
    /// # Errors
    /// An option is above its limit.
    pub fn check(&self) -> Result<(), OptionsError> {
        let Options { payload_max, events_max, history } = *self;
        if payload_max > PAYLOAD_MAX {
            return Err(OptionsError::Payload(payload_max));
        }
        if events_max > LEAVES_MAX {
            return Err(OptionsError::Events(events_max));
        }
        let events = events_max.saturating_mul(SLOTS_MAX as usize).saturating_add(history);
        if events.saturating_mul(Stored::bytes(payload_max)) > ROOM_BYTES_MAX {
            return Err(OptionsError::Room { payload_max, events_max, history });
        }
        Ok(())
    }
}

/// A change of a subscription, for observers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// An operation subscribed.
    Subscribed,
    /// The subscription is suspended: it ignores events.
    Suspended,
    /// The subscription is active again.
    Resumed,
    /// The subscription has another filter or quality of service.
    Reconnected,
    /// The subscription ended.
    Unsubscribed,
}

pub(super) type Observer = Arc<dyn Fn(&str, Change) + Send + Sync>;

/// A handle that removes an observer from its channel. Dropping the handle leaves the observer in
/// place.
pub struct Observing {
    pub(super) inner: Weak<Inner>,
    pub(super) observer: Observer,
}

impl Observing {
    /// Removes the observer. It gets no later changes. A call in progress on another thread
    /// continues.
    pub fn end(self) {
        let Some(inner) = self.inner.upgrade() else { return };
        let mut observers = inner.observers.lock();
        let at = observers.iter().position(|other| Arc::ptr_eq(other, &self.observer));
        // The observer's captured values are dropped after the lock is released.
        let _own = at.map(|at| observers.remove(at));
        drop(observers);
    }
}

/// The state that the parts of a channel share.
pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) inboxes: PiMutex<Vec<Arc<Inbox>>>,
    /// Weak references, so that dropped outlets disappear.
    pub(super) outlets: PiMutex<Vec<Weak<OutletQueue>>>,
    pub(super) live: PiMutex<Option<Arc<Live>>>,
    /// Serialises connecting and disconnecting. Pushes do not take this lock.
    pub(super) connecting: PiMutex<()>,
    /// The number of connections so far.
    pub(super) connections: AtomicU64,
    /// The dispatcher of the last connection.
    pub(super) dispatching: AtomicU64,
    pub(super) history: Arc<PiMutex<History>>,
    pub(super) observers: PiMutex<Vec<Observer>>,
}

impl Inner {
    /// The channel's state while it is connected.
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.lock().clone().filter(|live| !live.is_stopped())
    }

    pub(super) fn payload_max(&self) -> usize {
        self.options.payload_max
    }

    /// Checks an event's type and length.
    pub(super) fn takes(&self, kind: u32, payload: &[u8]) -> Result<(), EventError> {
        let most = self.options.payload_max;
        if payload.len() > most {
            return Err(EventError::TooLong { length: payload.len(), most });
        }
        if kind >= RESERVED { Err(EventError::Reserved(kind)) } else { Ok(()) }
    }

    /// The time, if the channel is connected to this dispatcher.
    pub(super) fn now_of(&self, dispatching: u64) -> Option<Time> {
        self.live
            .lock()
            .as_ref()
            .filter(|live| live.consumers.dispatching == dispatching)
            .map(|live| live.consumers.now())
    }

    pub(super) fn changed(&self, operation: &str, change: Change) {
        let live = self.live.lock().clone();
        if let Some(live) = live {
            live.consumers.wake_timer();
        }
        // An observer may itself add or remove observers.
        let observers = self.observers.lock().clone();
        for observer in observers {
            observer(operation, change);
        }
    }
}
