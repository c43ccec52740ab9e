//! The channel: subscriptions, connections and suppliers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use takt_linux::memory::Locked;
use takt_linux::{Epoch, PiMutex, clock};
use takt_model::{Span, Time};

use super::consumers::{Consumers, Pushed};
use super::delivery::Event;
use super::error::{ConnectError, EventError, SubscribeError};
use super::fanout::Order;
use super::filter::{Head, Pattern};
use super::history::{self, History};
use super::inbox::Inbox;
use super::inlet::Inlet;
use super::lane::Lane;
use super::limits::{SLOTS_MAX, SPARE};
use super::live::{Live, threads};
use super::node::{Full, Node, Traffic};
use super::outlet::Outlet;
use super::quality::{Quality, Terms};
use super::state::{Change, Inner, Observer, Observing, Options};
use super::subscription::{Subscription, checked};
use crate::gate::GRACE;
use crate::sync::{self, Futex, wake};
use crate::{Dispatching, Handle, Plan};

/// A channel. Clones share the same channel. See the [module](crate::event) for an example.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

impl Channel {
    /// A channel without subscriptions.
    #[must_use]
    pub fn new(options: Options) -> Channel {
        // Invalid options are refused later, by calls that return errors.
        let (room, payload_max) = if options.check().is_ok() { (options.history, options.payload_max) } else { (0, 0) };
        let history = Arc::new(PiMutex::new(History::new(room, payload_max)));
        Channel {
            inner: Arc::new(Inner {
                options,
                inboxes: PiMutex::new(Vec::new()),
                outlets: PiMutex::new(Vec::new()),
                live: PiMutex::new(None),
                connecting: PiMutex::new(()),
                connections: AtomicU64::new(0),
                dispatching: AtomicU64::new(u64::MAX),
                history,
                observers: PiMutex::new(Vec::new()),
            }),
        }
    }

    /// Subscribes a sporadic operation of a plan to events, by a [`Quality`], a
    /// [`Filter`](super::Filter) or a [`Pattern`]. Call it before the channel is connected.
    ///
    /// # Errors
    /// The operation cannot consume events, or not with this quality; or the channel's options are
    /// invalid.
    pub fn subscribe(
        &self,
        plan: &Plan,
        operation: &str,
        quality: impl Into<Quality>,
    ) -> Result<Subscription, SubscribeError> {
        let quality = quality.into();
        let backlog = backlog_of(plan, operation)?;
        let options = &self.inner.options;
        options.check()?;
        checked(operation, &quality, backlog, options.events_max)?;
        let inbox = Arc::new(Inbox::new(operation, &quality, backlog, options.payload_max, options.events_max));
        let connecting = self.inner.connecting.lock();
        if self.inner.live.lock().is_some() {
            return Err(SubscribeError::Connected);
        }
        let mut inboxes = self.inner.inboxes.lock();
        if inboxes.iter().any(|other| other.operation == operation) {
            return Err(SubscribeError::Twice(operation.to_owned()));
        }
        inboxes.push(inbox.clone());
        drop(inboxes);
        drop(connecting);
        self.inner.changed(operation, Change::Subscribed);
        Ok(Subscription { inbox, channel: Arc::downgrade(&self.inner) })
    }

    /// Ends a subscription, so that its operation may subscribe again. A subscription without a
    /// handler makes [`Channel::connect`] fail; this removes it. Call it while the channel is not
    /// connected. Dropping a [`Subscription`] does not end it.
    ///
    /// # Errors
    /// The channel is connected, or the subscription is not one of this channel.
    pub fn unsubscribe(&self, subscription: &Subscription) -> Result<(), SubscribeError> {
        let connecting = self.inner.connecting.lock();
        if self.inner.live.lock().is_some() {
            return Err(SubscribeError::Connected);
        }
        let mut inboxes = self.inner.inboxes.lock();
        let at = inboxes.iter().position(|inbox| Arc::ptr_eq(inbox, &subscription.inbox));
        let at = at.ok_or_else(|| SubscribeError::Gone(subscription.operation().to_owned()))?;
        inboxes.remove(at);
        drop(inboxes);
        drop(connecting);
        self.inner.changed(subscription.operation(), Change::Unsubscribed);
        Ok(())
    }

    /// Delivers events to a dispatcher's operations until the returned value is dropped.
    ///
    /// # Errors
    /// The channel's options are invalid; the dispatcher's plan lacks a subscribed operation or has
    /// a different one; or the timeout thread was refused.
    pub fn connect(&self, dispatching: &Dispatching) -> Result<Connected, ConnectError> {
        self.start(dispatching, |_| Ok(Vec::new()))
    }

    /// Connects as [`Channel::connect`] does, and shares events with other nodes. The sockets open
    /// in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of [`Channel::connect`]; or the node is invalid, or its sockets or threads were
    /// refused.
    pub fn connect_as(&self, node: &Node, dispatching: &Dispatching) -> Result<Connected, ConnectError> {
        let (payload_max, cpus) = (self.inner.options.payload_max, dispatching.cpus());
        if let Some(wrong) = node.wrong(dispatching.plan().levels.len(), cpus.len() as u32, payload_max) {
            return Err(wrong.into());
        }
        let open = |place, consumers| Lane::open(node, place, cpus, payload_max, consumers).map_err(ConnectError::Node);
        self.start(dispatching, |consumers| (0..node.levels.len()).map(|place| open(place, consumers)).collect())
    }

    fn start(
        &self,
        dispatching: &Dispatching,
        lanes: impl FnOnce(usize) -> Result<Vec<Lane>, ConnectError>,
    ) -> Result<Connected, ConnectError> {
        let _connecting = self.inner.connecting.lock();
        if self.inner.live.lock().is_some() {
            return Err(ConnectError::Twice);
        }
        self.inner.options.check()?;
        let consumer = |inbox: &Arc<Inbox>| {
            let operation = || inbox.operation.clone();
            let handle = dispatching.operation(&inbox.operation).ok_or_else(|| ConnectError::Unknown(operation()))?;
            if !inbox.has_handler() {
                return Err(ConnectError::NoHandler(operation()));
            }
            // The dispatcher's plan may differ from the plan used to subscribe.
            let backlog = backlog_of(dispatching.plan(), &inbox.operation).map_err(ConnectError::Plan)?;
            inbox.suits(backlog)?;
            Ok(((inbox.clone(), handle), backlog))
        };
        let inboxes = self.inner.inboxes.lock().clone();
        let consumers: Vec<((Arc<Inbox>, Handle), u32)> = inboxes.iter().map(consumer).collect::<Result<_, _>>()?;
        let (consumers, backlogs): (Vec<(Arc<Inbox>, Handle)>, Vec<u32>) = consumers.into_iter().unzip();
        let lanes = lanes(consumers.len())?;
        let outlets = self.inner.outlets.lock().iter().filter_map(Weak::upgrade).collect();
        let clock = dispatching.epoch();
        let names: Vec<&str> = consumers.iter().map(|(inbox, _)| inbox.operation.as_str()).collect();
        let between = lanes.iter().map(|lane| (lane.may_block(), lane.level));
        let consumers = Consumers {
            number: self.inner.connections.fetch_add(1, Ordering::Relaxed),
            dispatching: dispatching.number(),
            history: (self.inner.options.history > 0).then(|| self.inner.history.clone()),
            order: Order::of(dispatching.plan(), &names, between),
            all: consumers,
            cpus: dispatching.cpus().to_vec(),
            clock,
            timer: Futex::new(0),
            until: sync::AtomicU64::new(u64::MAX),
            stopped: AtomicBool::new(false),
        };
        let live = Arc::new(Live { consumers, lanes, outlets, gate: Futex::new(0) });
        let mut threads = threads(&live, dispatching)?;
        // This also locks memory allocated since the dispatcher locked its own: buffers and stacks.
        let locked = dispatching.lock_memory().inspect_err(|_| live.stop(&mut threads))?;
        // No step after this fails, so a refused connection changes nothing.
        let now = clock.now();
        for ((inbox, handle), backlog) in live.consumers.all.iter().zip(backlogs) {
            inbox.begin(handle, backlog, now);
        }
        if self.inner.dispatching.swap(live.consumers.dispatching, Ordering::Relaxed) != live.consumers.dispatching {
            // Times of this connection count from another zero.
            self.inner.history.lock().begin(clock);
        }
        *self.inner.live.lock() = Some(live.clone());
        wake(&live.gate);
        Ok(Connected { inner: self.inner.clone(), live, threads, _locked: locked })
    }

    /// Makes a queue for events pushed here that match one of these patterns. A thread of the
    /// program takes them elsewhere. Call it before the channel is connected. `room` is limited to
    /// 1 to 65,536 events.
    ///
    /// # Errors
    /// The channel is connected, or its options are invalid.
    pub fn outlet(&self, sends: &[Pattern], room: usize, full: Full) -> Result<Outlet, ConnectError> {
        let _connecting = self.inner.connecting.lock();
        if self.inner.live.lock().is_some() {
            return Err(ConnectError::Twice);
        }
        self.inner.options.check()?;
        let outlet = Outlet::new(sends, room, full, self.payload_max());
        let mut outlets = self.inner.outlets.lock();
        outlets.retain(|outlet| outlet.strong_count() > 0);
        outlets.push(outlet.shared());
        Ok(outlet)
    }

    /// An entry for events that other carriers than datagrams bring.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        Inlet::new(self.inner.clone())
    }

    /// The sizes of the channel.
    #[must_use]
    pub fn options(&self) -> Options {
        self.inner.options
    }

    pub(super) fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    /// A supplier that pushes events under this source number.
    #[must_use]
    pub fn supplier(&self, source: u32) -> Supplier {
        Supplier { inner: self.inner.clone(), source, next: AtomicU64::new(0) }
    }

    /// Calls `observer` for every change of a subscription, on the thread that makes the change. It
    /// ends with the channel or by [`Observing::end`].
    pub fn observe(&self, observer: impl Fn(&str, Change) + Send + Sync + 'static) -> Observing {
        let observer: Observer = Arc::new(observer);
        self.inner.observers.lock().push(observer.clone());
        Observing { inner: Arc::downgrade(&self.inner), observer }
    }

    /// Shows the remembered events that match the pattern and have not expired, oldest first, as of
    /// the call. The events are copied under the lock into memory allocated before, and suppliers
    /// wait for that. Do not call this from handlers.
    pub fn history(&self, pattern: Pattern, show: impl FnMut(&Event<'_>)) {
        history::show(&self.inner.history, self.payload_max(), pattern, show);
    }
}

/// The backlog of an operation that can consume events under this plan.
fn backlog_of(plan: &Plan, operation: &str) -> Result<u32, SubscribeError> {
    let row = plan.rows.iter().find(|row| row.name == operation);
    let row = row.ok_or_else(|| SubscribeError::Unknown(operation.to_owned()))?;
    if !plan.is_pushed(row) {
        return Err(SubscribeError::NotPushed(operation.to_owned()));
    }
    let (backlog, most) = (row.backlog, SLOTS_MAX - SPARE);
    if backlog > most {
        return Err(SubscribeError::Backlog { operation: operation.to_owned(), backlog, most });
    }
    Ok(backlog)
}

/// How often a disconnecting thread checks for pushes in progress.
const LEAVE_LOOK: Span = Span::from_us(100);

/// A connection. Events are delivered as long as it exists. Dropping it waits for pushes in
/// progress, for at most 5 s.
#[must_use = "the channel is disconnected when this is dropped"]
pub struct Connected {
    inner: Arc<Inner>,
    live: Arc<Live>,
    threads: Vec<JoinHandle<()>>,
    _locked: Option<Locked>,
}

impl Connected {
    /// Events sent to and received from other nodes, by level.
    #[must_use]
    pub fn traffic(&self) -> Vec<Traffic> {
        self.live.lanes.iter().map(Lane::traffic).collect()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // The next connection must find no thread of this one at work. The threads joined here
        // never take this lock, because pushes and the connection's own threads call no code that
        // takes it.
        let _connecting = self.inner.connecting.lock();
        *self.inner.live.lock() = None;
        self.live.stop(&mut self.threads);
        // The last user of this state frees sockets and buffers. Wait for pushes in progress, so
        // that this is not done on a real-time thread.
        let epoch = Epoch::now_is_zero();
        while Arc::strong_count(&self.live) > 1 && epoch.now() < Time::ZERO.saturating_add(GRACE) {
            clock::pause(LEAVE_LOOK);
        }
    }
}

/// Pushes events of one source, from any thread, also from handlers.
pub struct Supplier {
    inner: Arc<Inner>,
    source: u32,
    next: AtomicU64,
}

impl Supplier {
    /// Pushes an event without expiry and without a deadline of its own.
    ///
    /// # Errors
    /// As [`Supplier::push_on`].
    pub fn push(&self, kind: u32, payload: &[u8]) -> Result<Pushed, EventError> {
        self.push_on(kind, payload, Terms::default())
    }

    /// Pushes an event with this time to live.
    ///
    /// # Errors
    /// As [`Supplier::push_on`].
    pub fn push_for(&self, kind: u32, payload: &[u8], ttl: Span) -> Result<Pushed, EventError> {
        self.push_on(kind, payload, Terms { ttl, ..Terms::default() })
    }

    /// Pushes an event on these terms. Consumers get it in order of importance, and so do the nodes
    /// that want it ([`Level::sends`](super::Level::sends)). The level's
    /// [`Sending`](super::Sending) decides whether the push may wait for the network. All consumers
    /// of equal importance have the event before any of them is woken.
    ///
    /// # Errors
    /// The payload is too long, the type is one of the channel's own, or the channel is not
    /// connected.
    pub fn push_on(&self, kind: u32, payload: &[u8], terms: Terms) -> Result<Pushed, EventError> {
        self.inner.takes(kind, payload)?;
        let live = self.inner.live().ok_or(EventError::NotConnected)?;
        let now = live.consumers.now();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (due, expires) = (now.saturating_add(terms.deadline), now.saturating_add(terms.ttl));
        let head = Head { kind, source: self.source, number, sent: now, due, expires };
        Ok(live.push(&head, payload))
    }
}

#[cfg(test)]
#[path = "channel_model.rs"]
mod model;
