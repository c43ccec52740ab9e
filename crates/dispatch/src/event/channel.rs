//! The channel: subscriptions, suppliers, and the thread that handles timeouts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;

use takt_linux::memory::{Locked, prefault_stack};
use takt_linux::{Class, ClassGuard, Epoch, PiMutex, clock, sched};
use takt_model::{Span, Time};

use super::carrier::{Inlet, Out, Outlet};
use super::error::{ConnectError, EventError, OptionsError, SubscribeError};
use super::fanout::{Order, Target, Wakes};
use super::filter::{Head, LEAVES_MAX, Pattern};
use super::history::{self, History};
use super::inbox::{Event, Inbox, Offered, RESERVED, SLOTS_MAX, SPARE, Stored, Subscription};
use super::lane::Lane;
use super::node::{Full, Node, Traffic};
use super::peer::{PendingChanges, PresenceChange};
use super::quality::{Keep, Quality, Terms};
use crate::gate::{GRACE, READY_MAX, STACK_BYTES, STACK_TOUCHED};
use crate::sync::{self, Word, rouse};
use crate::{Dispatching, Handle, IDLE_MAX, Plan, StartError};

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

/// The longest payload of a channel in bytes. A datagram holds a little less
/// ([`wire::PAYLOAD_MAX`](super::wire::PAYLOAD_MAX)).
pub const PAYLOAD_MAX: usize = 1 << 16;
/// The most bytes that a channel's [`Options`] may ask for. The same limit holds for the queues of
/// a [`Node`], and for the buffers of a socket.
pub const ROOM_BYTES_MAX: usize = 64 << 20;

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

/// The result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pushed {
    /// The event's number.
    pub number: u64,
    /// Consumers whose operation was or will be pushed, for this event or for its group.
    pub taken: usize,
    /// Consumers that keep the event and wait for more.
    pub kept: usize,
    /// Consumers whose operation was not pushed for lack of room or time. Their subscriptions count
    /// these.
    pub rejected: usize,
    /// Peers of other nodes that get the event now or from a queue, and outlets that took the
    /// event.
    pub sent: usize,
    /// Peers and outlets that the event did not reach: see [`Connected::traffic`] and
    /// [`Outlet::passed`].
    pub unsent: usize,
}

impl Pushed {
    fn count(&mut self, offered: Offered) {
        match offered {
            Offered::Passed => {}
            Offered::Kept => self.kept += 1,
            Offered::Taken => self.taken += 1,
            Offered::Rejected => self.rejected += 1,
        }
    }
}

type Observer = Arc<dyn Fn(&str, Change) + Send + Sync>;

/// A handle that removes an observer from its channel. Dropping the handle leaves the observer in
/// place.
pub struct Observing {
    inner: Weak<Inner>,
    observer: Observer,
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

pub(super) struct Inner {
    options: Options,
    inboxes: PiMutex<Vec<Arc<Inbox>>>,
    /// Weak references, so that dropped outlets disappear.
    outlets: PiMutex<Vec<Weak<Out>>>,
    live: PiMutex<Option<Arc<Live>>>,
    /// Serialises connecting and disconnecting. Pushes do not take this lock.
    connecting: PiMutex<()>,
    /// The number of connections so far.
    connections: AtomicU64,
    /// The dispatcher of the last connection.
    dispatching: AtomicU64,
    history: Arc<PiMutex<History>>,
    observers: PiMutex<Vec<Observer>>,
}

/// The state of a channel while it is connected.
pub(super) struct Live {
    /// The number of this connection, and its dispatcher.
    number: u64,
    dispatching: u64,
    history: Option<Arc<PiMutex<History>>>,
    lanes: Vec<Lane>,
    outlets: Vec<Arc<Out>>,
    consumers: Vec<(Arc<Inbox>, Handle)>,
    order: Order,
    /// The kernel's numbers for the plan's CPUs.
    cpus: Vec<u32>,
    clock: Epoch,
    /// A futex of the timeout thread.
    timer: Word,
    /// When the timeout thread wakes by itself, in ns.
    until: sync::AtomicU64,
    /// A futex that is zero until the threads may start.
    gate: Word,
    stopped: AtomicBool,
}

impl Live {
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> Epoch {
        self.clock
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Offers an event to all consumers, in the [order](Order) of the current plan. `now` is about
    /// the present time.
    pub(super) fn offer(&self, head: &Head, payload: &[u8], now: Time) -> Pushed {
        self.serve(head, payload, now, false)
    }

    /// Adds an event to the history.
    #[inline]
    pub(super) fn remember(&self, head: &Head, payload: &[u8]) {
        if let Some(history) = &self.history {
            history.lock().remember(head, payload);
        }
    }

    /// Tells each consumer its pending changes of a peer. `there` is the node that is present, if any. A
    /// consumer without room keeps the rest for the next call.
    pub(super) fn tell(
        &self,
        pending: &mut [PendingChanges],
        there: Option<u64>,
        event: impl Fn(PresenceChange, u64) -> (Head, [u8; 8]),
        payload_max: usize,
    ) {
        let (mut next, mut wakes) = (Time::MAX, Wakes::default());
        for target in self.order() {
            let Target::Consumer(at) = *target else { continue };
            let Some(((inbox, handle), pending)) = self.consumers.get(at).zip(pending.get_mut(at)) else { continue };
            while let Some((change, node)) = pending.next(there) {
                let (head, payload) = event(change, node);
                let payload = payload.get(..payload_max.min(8)).unwrap_or_default();
                let (offered, due) = inbox.offer(&head, payload, handle, head.sent, &mut wakes);
                next = due.map_or(next, |due| due.min(next));
                if offered == Offered::Rejected {
                    break;
                }
                pending.delivered(change, node);
            }
        }
        self.wake(next, &mut wakes);
    }

    /// The order of targets under the current plan.
    fn order(&self) -> &[Target] {
        self.order.under(self.consumers.first().map_or(0, |(_, handle)| handle.holds()))
    }

    fn serve(&self, head: &Head, payload: &[u8], now: Time, leaves: bool) -> Pushed {
        self.remember(head, payload);
        let mut pushed = Pushed { number: head.number, ..Pushed::default() };
        let (mut next, mut wakes) = (Time::MAX, Wakes::default());
        for target in self.order() {
            match *target {
                Target::Consumer(at) => {
                    let Some((inbox, handle)) = self.consumers.get(at) else { continue };
                    let (offered, due) = inbox.offer(head, payload, handle, now, &mut wakes);
                    pushed.count(offered);
                    next = due.map_or(next, |due| due.min(next));
                }
                Target::Direct(at) | Target::Patient(at) if leaves => {
                    let Some(lane) = self.lanes.get(at).filter(|lane| lane.wants(head)) else { continue };
                    // Wake the consumers so far, because they are more important.
                    self.wake(next, &mut wakes);
                    let outcome = lane.push(self, head, payload);
                    pushed.sent += outcome.sent;
                    pushed.unsent += outcome.dropped;
                }
                Target::Direct(_) | Target::Patient(_) => {}
            }
        }
        self.wake(next, &mut wakes);
        pushed
    }

    /// Wakes the timeout thread first, if it sleeps beyond `next`. A consumer woken before it could
    /// take this thread's CPU.
    fn wake(&self, next: Time, wakes: &mut Wakes<'_>) {
        if next.as_ns() < self.until.load(Ordering::Acquire) {
            self.rouse();
        }
        wakes.wake(&self.cpus);
    }

    /// Offers an event to consumers, other nodes and outlets.
    fn push(&self, head: &Head, payload: &[u8]) -> Pushed {
        let mut pushed = self.serve(head, payload, head.sent, true);
        for outlet in self.outlets.iter().filter(|outlet| outlet.wants(head)) {
            let kept = outlet.push(head, payload, self);
            pushed.sent += usize::from(kept);
            pushed.unsent += usize::from(!kept);
        }
        pushed
    }

    /// Ends the threads.
    fn stop(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.stopped.store(true, Ordering::Release);
        rouse(&self.gate);
        self.rouse();
        self.lanes.iter().for_each(Lane::rouse);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// The body of the timeout thread.
    fn keep_time(&self) {
        loop {
            let seen = self.timer.load(Ordering::Acquire);
            if self.is_stopped() {
                return;
            }
            // A thread that adds an earlier time during this pass sees the MAX and wakes this
            // thread.
            self.until.store(u64::MAX, Ordering::SeqCst);
            let now = self.now();
            for (inbox, handle) in &self.consumers {
                let mut wakes = Wakes::default();
                inbox.pass_time(handle, now, &mut wakes);
                wakes.wake(&self.cpus);
            }
            let next = self.consumers.iter().filter_map(|(inbox, _)| inbox.next_time()).min().unwrap_or(Time::MAX);
            let until = next.min(now.saturating_add(IDLE_MAX));
            self.until.store(until.as_ns(), Ordering::Release);
            sync::wait(&self.timer, seen, self.clock, until);
        }
    }

    fn rouse(&self) {
        rouse(&self.timer);
    }
}

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
        let live = Arc::new(Live {
            order: Order::of(dispatching.plan(), &names, &lanes),
            cpus: dispatching.cpus().to_vec(),
            number: self.inner.connections.fetch_add(1, Ordering::Relaxed),
            dispatching: dispatching.number(),
            history: (self.inner.options.history > 0).then(|| self.inner.history.clone()),
            lanes,
            outlets,
            consumers,
            clock,
            timer: Word::new(0),
            until: sync::AtomicU64::new(u64::MAX),
            gate: Word::new(0),
            stopped: AtomicBool::new(false),
        });
        let mut threads = threads(&live, dispatching)?;
        // This also locks memory allocated since the dispatcher locked its own: buffers and stacks.
        let locked = dispatching.lock_memory().inspect_err(|_| live.stop(&mut threads))?;
        // No step after this fails, so a refused connection changes nothing.
        let now = clock.now();
        for ((inbox, handle), backlog) in live.consumers.iter().zip(backlogs) {
            inbox.begin(handle, backlog, now);
        }
        if self.inner.dispatching.swap(live.dispatching, Ordering::Relaxed) != live.dispatching {
            // Times of this connection count from another zero.
            self.inner.history.lock().begin(clock);
        }
        *self.inner.live.lock() = Some(live.clone());
        rouse(&live.gate);
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

/// Checks a quality of service for an operation with this backlog.
pub(super) fn checked(
    operation: &str,
    quality: &Quality,
    backlog: u32,
    events_max: usize,
) -> Result<(), SubscribeError> {
    let wanted = quality.filter.leaves();
    if let Some(wrong) = quality.filter.wrong() {
        return Err(SubscribeError::Filter { operation: operation.to_owned(), wrong });
    }
    if wanted > events_max {
        return Err(SubscribeError::Room { operation: operation.to_owned(), wanted, there: events_max });
    }
    can_keep(operation, quality.keep, backlog)
}

/// Checks that the backlog has room for what `keep` demands.
pub(super) fn can_keep(operation: &str, keep: Keep, backlog: u32) -> Result<(), SubscribeError> {
    if keep == Keep::Latest && backlog < 2 {
        return Err(SubscribeError::Alone(operation.to_owned()));
    }
    Ok(())
}

/// Starts all threads of a channel. If one fails, none remains.
fn threads(live: &Arc<Live>, dispatching: &Dispatching) -> Result<Vec<JoinHandle<()>>, StartError> {
    type Body = fn(&Live, usize);
    let mut wanted: Vec<(String, Class, Option<u32>, Body, usize)> = Vec::new();
    wanted.push(("takt events".to_owned(), dispatching.timer_class(), None, |live, _| live.keep_time(), 0));
    for (at, lane) in live.lanes.iter().enumerate() {
        let class = dispatching.level_class(lane.level);
        let listen: Body = |live, at| live.lanes.get(at).into_iter().for_each(|lane| lane.listen(live));
        wanted.push((format!("takt from {}", lane.name()), class, lane.cpu, listen, at));
        if lane.queues() {
            let empty: Body = |live, at| live.lanes.get(at).into_iter().for_each(|lane| lane.empty(live));
            wanted.push((format!("takt to {}", lane.name()), class, lane.cpu, empty, at));
        }
    }
    let mut threads = Vec::new();
    for (name, class, cpu, body, at) in wanted {
        let own = live.clone();
        let body = move || {
            while own.gate.load(Ordering::Acquire) == 0 {
                sync::wait(&own.gate, 0, own.clock, own.now().saturating_add(IDLE_MAX));
            }
            body(&own, at);
        };
        match thread(name, class, cpu, body) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                live.stop(&mut threads);
                return Err(error);
            }
        }
    }
    Ok(threads)
}

/// Starts one thread.
fn thread(
    name: String,
    class: Class,
    cpu: Option<u32>,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let (send, ready) = mpsc::channel();
    let pinned = move || cpu.map_or(Ok(()), |cpu| sched::set_affinity(&[cpu]));
    let entered = move || {
        prefault_stack::<STACK_TOUCHED>();
        pinned().and_then(|()| ClassGuard::enter(&class))
    };
    let body = move || match entered() {
        Ok(_class) => {
            let _ = send.send(Ok(()));
            body();
        }
        Err(error) => drop(send.send(Err(error))),
    };
    let spawned = std::thread::Builder::new().name(name.clone()).stack_size(STACK_BYTES).spawn(body);
    let thread = spawned.map_err(|error| StartError::Spawn { thread: name.clone(), cause: error.to_string() })?;
    match ready.recv_timeout(READY_MAX) {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(cause)) => Err(StartError::of(name, cause)),
        Err(_) => Err(StartError::Spawn { thread: name, cause: "it did not come up".to_owned() }),
    }
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
        self.live.lock().as_ref().filter(|live| live.dispatching == dispatching).map(|live| live.now())
    }

    pub(super) fn changed(&self, operation: &str, change: Change) {
        let live = self.live.lock().clone();
        if let Some(live) = live {
            live.rouse();
        }
        // An observer may itself add or remove observers.
        let observers = self.observers.lock().clone();
        for observer in observers {
            observer(operation, change);
        }
    }
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
        let now = live.now();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (due, expires) = (now.saturating_add(terms.deadline), now.saturating_add(terms.ttl));
        let head = Head { kind, source: self.source, number, sent: now, due, expires };
        Ok(live.push(&head, payload))
    }
}

#[cfg(test)]
#[path = "channel_model.rs"]
mod model;
