//! The channel: who subscribes, who supplies, and the thread for which time is an event.

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
use super::peer::{News, Turn};
use super::quality::{Keep, Quality, Terms};
use crate::gate::{GRACE, READY_MAX, STACK_BYTES, STACK_TOUCHED};
use crate::sync::{self, Word, rouse};
use crate::{Dispatching, Handle, IDLE_MAX, Plan, StartError};

/// What a channel has room for.
///
/// A subscription takes room for the groups of events of 64 jobs. That and the history may take [`ROOM_BYTES_MAX`] together, with some 90 bytes of each event's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The longest payload in bytes, [`PAYLOAD_MAX`] at most. Default 256.
    pub payload_max: usize,
    /// The most events that one filter waits for at once, [`LEAVES_MAX`](super::LEAVES_MAX) at most. Default 8.
    pub events_max: usize,
    /// How many events the channel remembers. Default none.
    pub history: usize,
}

/// The longest payload that a channel can have, in bytes. A datagram takes a little less ([`wire::PAYLOAD_MAX`](super::wire::PAYLOAD_MAX)).
pub const PAYLOAD_MAX: usize = 1 << 16;
/// Bytes of events that a channel's [`Options`] may ask for at most, and the queues of a [`Node`], and the buffers of a socket.
pub const ROOM_BYTES_MAX: usize = 64 << 20;

impl Default for Options {
    fn default() -> Self {
        Options { payload_max: 256, events_max: 8, history: 0 }
    }
}

impl Options {
    /// Whether a channel can have room for that: otherwise it is refused when an operation subscribes, or the channel is connected.
    ///
    /// # Errors
    /// Which of them is too much.
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

/// What happened to a subscription, for observers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is new.
    Subscribed,
    /// Events pass it by.
    Suspended,
    /// It waits again.
    Resumed,
    /// It waits for something else, or with another quality of service.
    Reconnected,
    /// It is one no more.
    Unsubscribed,
}

/// What a push came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pushed {
    /// The event's number.
    pub number: u64,
    /// Consumers whose operation was pushed, or will be: for these events, or for a group that they complete.
    pub taken: usize,
    /// Consumers that wait for more.
    pub kept: usize,
    /// Consumers whose operation was not pushed, for want of room or time: their subscriptions count it.
    pub rejected: usize,
    /// Peers of other nodes that it was sent to, or waits in a queue for, and outlets that have it.
    pub sent: usize,
    /// Peers and outlets that it should have gone to and did not: see [`Connected::traffic`] and [`Outlet::passed`].
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

/// An observer of a channel, to be taken away again. Dropped, it stays.
pub struct Observing {
    inner: Weak<Inner>,
    observer: Observer,
}

impl Observing {
    /// The observer is told of no change that is made after this. A call of it that another thread has begun may go on.
    pub fn end(self) {
        let Some(inner) = self.inner.upgrade() else { return };
        let mut observers = inner.observers.lock();
        let at = observers.iter().position(|other| Arc::ptr_eq(other, &self.observer));
        // What it holds is dropped without the lock, by whoever has it last.
        let _own = at.map(|at| observers.remove(at));
        drop(observers);
    }
}

pub(super) struct Inner {
    options: Options,
    inboxes: PiMutex<Vec<Arc<Inbox>>>,
    /// Of those that are dropped nothing is left.
    outlets: PiMutex<Vec<Weak<Out>>>,
    live: PiMutex<Option<Arc<Live>>>,
    /// Held while threads start and end, which pushes need not wait for.
    connecting: PiMutex<()>,
    /// How often it was connected.
    connections: AtomicU64,
    /// Which dispatcher it was connected to last.
    dispatching: AtomicU64,
    history: Arc<PiMutex<History>>,
    observers: PiMutex<Vec<Observer>>,
}

/// A channel that is connected.
pub(super) struct Live {
    /// Which connection of its channel it is, and to which dispatcher.
    number: u64,
    dispatching: u64,
    history: Option<Arc<PiMutex<History>>>,
    lanes: Vec<Lane>,
    outlets: Vec<Arc<Out>>,
    consumers: Vec<(Arc<Inbox>, Handle)>,
    order: Order,
    /// The kernel's numbers of the plan's CPUs.
    cpus: Vec<u32>,
    clock: Epoch,
    /// A futex of the thread of timeouts.
    timer: Word,
    /// Until when it sleeps, in ns.
    until: sync::AtomicU64,
    /// A futex, zero until its threads may begin.
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

    /// Offers an event to all consumers, in the [order](Order) of the plan in force. `now` is about the present time.
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

    /// Tells each consumer what it does not know of a peer that is there, or of none; one that has no room keeps that to know.
    pub(super) fn tell(
        &self,
        news: &mut [News],
        there: Option<u64>,
        event: impl Fn(Turn, u64) -> (Head, [u8; 8]),
        payload_max: usize,
    ) {
        let (mut next, mut wakes) = (Time::MAX, Wakes::default());
        for target in self.order() {
            let Target::Consumer(at) = *target else { continue };
            let Some(((inbox, handle), news)) = self.consumers.get(at).zip(news.get_mut(at)) else { continue };
            while let Some((turn, node)) = news.next(there) {
                let (head, payload) = event(turn, node);
                let payload = payload.get(..payload_max.min(8)).unwrap_or_default();
                let (offered, due) = inbox.offer(&head, payload, handle, head.sent, &mut wakes);
                next = due.map_or(next, |due| due.min(next));
                if offered == Offered::Rejected {
                    break;
                }
                news.told(turn, node);
            }
        }
        self.wake(next, &mut wakes);
    }

    /// Who is served first, by the plan in force.
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
                    // Those so far are more important.
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

    /// The thread of timeouts first, where it is to look before it would: who is woken then may take this thread's CPU.
    fn wake(&self, next: Time, wakes: &mut Wakes<'_>) {
        if next.as_ns() < self.until.load(Ordering::Acquire) {
            self.rouse();
        }
        wakes.wake(&self.cpus);
    }

    /// The same, and to other nodes.
    fn push(&self, head: &Head, payload: &[u8]) -> Pushed {
        let mut pushed = self.serve(head, payload, head.sent, true);
        for outlet in self.outlets.iter().filter(|outlet| outlet.wants(head)) {
            let kept = outlet.push(head, payload, self);
            pushed.sent += usize::from(kept);
            pushed.unsent += usize::from(!kept);
        }
        pushed
    }

    /// Ends its threads.
    fn stop(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.stopped.store(true, Ordering::Release);
        rouse(&self.gate);
        self.rouse();
        self.lanes.iter().for_each(Lane::rouse);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// The thread of timeouts, for its whole life.
    fn keep_time(&self) {
        loop {
            let seen = self.timer.load(Ordering::Acquire);
            if self.is_stopped() {
                return;
            }
            // Whoever brings a due time into being meanwhile wakes it.
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

/// A channel; a copy is the same one. See the [module](crate::event) for an example.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

impl Channel {
    /// Without subscriptions.
    #[must_use]
    pub fn new(options: Options) -> Channel {
        // What is too much is refused later, by calls that can say so.
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

    /// A sporadic operation of a plan waits for what the quality of service says: a [`Filter`](super::Filter), a [`Pattern`] or more. To be called before the channel is connected.
    ///
    /// # Errors
    /// The operation cannot consume, or not so; or the channel's options are too much.
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

    /// An operation waits for nothing any more, and may subscribe anew; also one that no handler was made for, which is in the way of [`Channel::connect`]. To be called while the channel is not
    /// connected. Dropping a subscription does not do it.
    ///
    /// # Errors
    /// The channel is connected, or the subscription is none of this channel's, or not any more.
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

    /// Delivers from now on to the operations of a dispatcher, until the value that is returned is dropped.
    ///
    /// # Errors
    /// The channel's options are too much; the dispatcher does not have the operations, or has them as others than they subscribed as; or the thread of timeouts was refused.
    pub fn connect(&self, dispatching: &Dispatching) -> Result<Connected, ConnectError> {
        self.start(dispatching, |_| Ok(Vec::new()))
    }

    /// The same, and shares events with other nodes. Its sockets are opened in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Channel::connect`]; the node is wrong, or its sockets or threads were refused.
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
            // It may have another plan than the operation subscribed with.
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
        // Also what came since the dispatcher locked its own: buffers, stacks.
        let locked = dispatching.lock_memory().inspect_err(|_| live.stop(&mut threads))?;
        // From here on nothing is refused: a connection that does not come to be leaves no trace.
        let now = clock.now();
        for ((inbox, handle), backlog) in live.consumers.iter().zip(backlogs) {
            inbox.begin(handle, backlog, now);
        }
        if self.inner.dispatching.swap(live.dispatching, Ordering::Relaxed) != live.dispatching {
            // Its times are from another zero.
            self.inner.history.lock().begin(clock);
        }
        *self.inner.live.lock() = Some(live.clone());
        rouse(&live.gate);
        Ok(Connected { inner: self.inner.clone(), live, threads, _locked: locked })
    }

    /// Where events that match one of these patterns, and are pushed here, wait for a thread that takes them elsewhere. To be called before the channel is
    /// connected. `room` is for 1 to 65,536 events, whatever else is asked for.
    ///
    /// # Errors
    /// The channel is connected, or its options are too much.
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

    /// Where events of others are brought that came in another way than by datagrams.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        Inlet::new(self.inner.clone())
    }

    /// What it has room for.
    #[must_use]
    pub fn options(&self) -> Options {
        self.inner.options
    }

    pub(super) fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    /// Who pushes events, under this number.
    #[must_use]
    pub fn supplier(&self, source: u32) -> Supplier {
        Supplier { inner: self.inner.clone(), source, next: AtomicU64::new(0) }
    }

    /// Tells `observer` of every change of a subscription, on the thread that makes it: as long as the channel is there, or until [`Observing::end`].
    pub fn observe(&self, observer: impl Fn(&str, Change) + Send + Sync + 'static) -> Observing {
        let observer: Observer = Arc::new(observer);
        self.inner.observers.lock().push(observer.clone());
        Observing { inner: Arc::downgrade(&self.inner), observer }
    }

    /// Shows the events that the channel remembers, of those that are meant and not expired, the oldest first: as they were when it was called. They are copied for that, while suppliers wait, into room that is made
    /// before: not for handlers.
    pub fn history(&self, pattern: Pattern, show: impl FnMut(&Event<'_>)) {
        history::show(&self.inner.history, self.payload_max(), pattern, show);
    }
}

/// The backlog of an operation that can consume by a plan.
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

/// Whether an operation with this backlog can ask for that.
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

/// Whether an operation with this backlog has room for what is to be kept.
pub(super) fn can_keep(operation: &str, keep: Keep, backlog: u32) -> Result<(), SubscribeError> {
    if keep == Keep::Latest && backlog < 2 {
        return Err(SubscribeError::Alone(operation.to_owned()));
    }
    Ok(())
}

/// Starts all threads of a channel, or none.
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

/// Starts one.
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
    /// The channel while it is connected.
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.lock().clone().filter(|live| !live.is_stopped())
    }

    pub(super) fn payload_max(&self) -> usize {
        self.options.payload_max
    }

    /// Whether an event can be one of this channel.
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
        // An observer may change something, too.
        let observers = self.observers.lock().clone();
        for observer in observers {
            observer(operation, change);
        }
    }
}

/// How often one that is disconnected looks whether pushes are under way.
const LEAVE_LOOK: Span = Span::from_us(100);

/// A channel delivers while it has this. Dropped, it waits for pushes that are under way, for 5 s at most.
#[must_use = "the channel is disconnected when this is dropped"]
pub struct Connected {
    inner: Arc<Inner>,
    live: Arc<Live>,
    threads: Vec<JoinHandle<()>>,
    _locked: Option<Locked>,
}

impl Connected {
    /// What was sent to other nodes and what came from them, by level.
    #[must_use]
    pub fn traffic(&self) -> Vec<Traffic> {
        self.live.lanes.iter().map(Lane::traffic).collect()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // Whoever connects it next is to find nothing of this connection at work. No thread that is waited for here takes it: pushes and this connection's own threads call nobody who might.
        let _connecting = self.inner.connecting.lock();
        *self.inner.live.lock() = None;
        self.live.stop(&mut self.threads);
        // Pushes that are under way: whoever is last frees sockets and buffers, and that is to be no real-time thread.
        let epoch = Epoch::now_is_zero();
        while Arc::strong_count(&self.live) > 1 && epoch.now() < Time::ZERO.saturating_add(GRACE) {
            clock::pause(LEAVE_LOOK);
        }
    }
}

/// Pushes events of one source; from any thread, also from within handlers.
pub struct Supplier {
    inner: Arc<Inner>,
    source: u32,
    next: AtomicU64,
}

impl Supplier {
    /// Pushes an event that does not expire, and has no deadline of its own.
    ///
    /// # Errors
    /// As [`Supplier::push_on`].
    pub fn push(&self, kind: u32, payload: &[u8]) -> Result<Pushed, EventError> {
        self.push_on(kind, payload, Terms::default())
    }

    /// Pushes an event that is of no use after `ttl`.
    ///
    /// # Errors
    /// As [`Supplier::push_on`].
    pub fn push_for(&self, kind: u32, payload: &[u8], ttl: Span) -> Result<Pushed, EventError> {
        self.push_on(kind, payload, Terms { ttl, ..Terms::default() })
    }

    /// Pushes an event on these terms. It is offered to all consumers and sent to the other nodes that are to have it ([`Level::sends`](super::Level::sends)), the
    /// more important first; whether that may wait is for the level to say ([`Sending`](super::Sending)). No consumer is woken before those that are as important have it.
    ///
    /// # Errors
    /// The payload is too long, the type is one of the channel's own, or the channel is not connected.
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
