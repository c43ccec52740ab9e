//! One consumer: what it has seen of what it waits for, and the events of its jobs until they run.

use std::sync::atomic::{AtomicBool, AtomicU64 as Figure, Ordering};
use std::sync::{Arc, Weak};

use takt_model::{Span, Time};

use super::channel::{Change, Inner, can_keep, checked};
use super::error::{ConnectError, SubscribeError};
use super::fanout::Wakes;
use super::filter::{Correlator, Head};
use super::quality::{Asked, Keep, Quality};
use crate::bits::ones;
use crate::sync::{AtomicU64, PiMutex};
use crate::{Dispatcher, Handle, Job, PushError, StartError};

/// The type of the event that stands for a [`Filter::Timeout`](super::Filter::Timeout) or a [`Filter::Silence`](super::Filter::Silence); no supplier has it.
pub const TIMEOUT: u32 = u32::MAX;
/// The type of the event that a peer of this [node](super::Node) is lost: it has been silent for too long, or has ended, or began anew. Its source is the peer's place
/// in its level, its number the level's among the node's, both from zero; its payload is the peer's number (8 bytes, big-endian).
/// Of a peer behind another carrier ([`Inlet`](super::Inlet)) the source is what the carrier says.
pub const PEER_LOST: u32 = u32::MAX - 1;
/// The type of the event that a peer of this node is there, for the first time or again. Source and payload as for [`PEER_LOST`].
pub const PEER_FOUND: u32 = u32::MAX - 2;
/// The first type that suppliers cannot have.
pub(super) const RESERVED: u32 = PEER_FOUND;

/// What is known of an event that is a time.
const fn of_time(due: Time) -> Head {
    Head { kind: TIMEOUT, source: 0, number: 0, sent: due, due: Time::MAX, expires: Time::MAX }
}

/// Room for jobs of one subscription: bits of a set.
pub(super) const SLOTS_MAX: u32 = 64;
/// Beyond the backlog, for suppliers that are about to learn that it is full.
pub(super) const SPARE: u32 = 8;

/// An event as a handler is given it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// What is known of it.
    pub head: Head,
    /// What its supplier said.
    pub payload: &'a [u8],
    /// Which [`Filter::One`](super::Filter::One), `Silence` or `Timeout` of the filter it is for, counted as they are written.
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

    /// Bytes that it takes.
    pub(super) const fn bytes(payload_max: usize) -> usize {
        payload_max.saturating_add(size_of::<Stored>())
    }

    /// Takes an event's place. A payload that is too long is cut: the channel has refused it before.
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
    leaves: u64,
    events: &'a [Stored],
}

impl Delivery<'_> {
    /// The events, in the order of the filter's parts.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        self.stored().map(|(leaf, stored)| Event { head: stored.head, payload: stored.payload(), leaf })
    }

    fn stored(&self) -> impl Iterator<Item = (usize, &Stored)> {
        ones(self.leaves).filter_map(|leaf| Some((leaf as usize, self.events.get(leaf as usize)?)))
    }

    /// The first of them: the only one of a filter for single events.
    #[must_use]
    pub fn first(&self) -> Event<'_> {
        self.events().next().unwrap_or(Event { head: of_time(Time::ZERO), payload: &[], leaf: 0 })
    }

    /// The earliest deadline of the events, as their suppliers and this consumer have it; [`Time::MAX`] where there is none. That of the job is [`Job::time_left`]'s.
    #[must_use]
    pub fn due(&self) -> Time {
        self.stored().map(|(_, stored)| stored.head.due).min().unwrap_or(Time::MAX)
    }
}

/// What became of the sets of events that a subscription waited for.
///
/// `complete` = handled + expired + rejected + omitted + replaced + what waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Times that its filter was complete.
    pub complete: u64,
    /// Of these, those that its handler was called for.
    pub handled: u64,
    /// Of those handled, those whose handler returned after a deadline of their events ([`Terms::deadline`](super::Terms::deadline), [`Quality::deadline`]).
    pub late: u64,
    /// Whose time to live was over when its job ran.
    pub expired: u64,
    /// That the operation was not pushed for: its backlog was full, its least distance was not over, or it had stopped.
    pub rejected: u64,
    /// Whose job was omitted or dropped.
    pub omitted: u64,
    /// Whose place a newer one took ([`Keep::Latest`]).
    pub replaced: u64,
    /// Events that came while it was suspended.
    pub suspended: u64,
}

/// Of these, what handlers count, and whoever finds that a job is gone.
#[derive(Default, Debug)]
struct Tally {
    handled: Figure,
    late: Figure,
    expired: Figure,
    omitted: Figure,
    misplaced: Figure,
}

/// And what who offers events counts, under the lock.
#[derive(Clone, Copy, Default, Debug)]
struct Offers {
    complete: u64,
    rejected: u64,
    replaced: u64,
    suspended: u64,
}

fn count(tally: &Figure) {
    tally.fetch_add(1, Ordering::Release);
}

struct State {
    offers: Offers,
    correlator: Correlator,
    asked: Asked,
    /// By leaf.
    kept: Vec<Stored>,
    suspended: bool,
    /// Its operation's in the plan of the last dispatcher.
    backlog: u32,
    /// Whose operation it waits for, and the time of that dispatcher that was looked at last.
    dispatching: u64,
    last: Time,
    /// A set that came too early, and its events by leaf.
    early: Option<Early>,
    early_events: Vec<Stored>,
}

/// A set that waits until its operation may be pushed.
#[derive(Clone, Copy)]
struct Early {
    leaves: u64,
    until: Time,
    /// By whose clock.
    dispatching: u64,
}

impl State {
    fn next_time(&self) -> Option<Time> {
        let time = if self.suspended { None } else { self.correlator.next_time() };
        self.early.map(|early| early.until).into_iter().chain(time).min()
    }

    /// The time, which does not go back: whoever looked at the clock may have waited for the lock since.
    fn now(&mut self, looked: Time) -> Time {
        self.last = self.last.max(looked);
        self.last
    }

    /// The set that is complete now waits until then, in the place of one that does.
    fn put_off(&mut self, early: Early, last: Last<'_>) {
        Set { leaves: early.leaves, kept: &self.kept, last }.copy(&mut self.early_events);
        self.early = Some(early);
    }
}

/// An event that just came and is all that its set has: it was not kept before.
type Last<'a> = Option<(&'a Head, &'a [u8])>;

/// What completed a filter.
#[derive(Clone, Copy)]
struct Set<'a> {
    leaves: u64,
    /// By leaf.
    kept: &'a [Stored],
    last: Last<'a>,
}

impl Set<'_> {
    /// The same, into a slot.
    fn put(&self, events: &mut (u64, Vec<Stored>)) {
        events.0 = self.leaves;
        self.copy(&mut events.1);
    }

    /// Copies the events, by leaf.
    fn copy(&self, to: &mut [Stored]) {
        for leaf in ones(self.leaves) {
            let Some((to, kept)) = to.get_mut(leaf as usize).zip(self.kept.get(leaf as usize)) else { return };
            let (head, payload) = self.last.unwrap_or_else(|| (&kept.head, kept.payload()));
            to.set(head, payload);
        }
    }
}

struct Slot {
    /// The [`key`] of the job whose events it has; zero while that is not known, [`RUNS`] once its handler has them.
    job: AtomicU64,
    events: PiMutex<(u64, Vec<Stored>)>,
}

const RUNS: u64 = u64::MAX;

/// Bits of a key that tell the job; those above tell its operation.
const JOB_BITS: u32 = 48;

/// A job: neither zero nor [`RUNS`]. Those of other operations, and of a later dispatcher, have the same numbers, and other keys.
const fn key(operation: u64, number: u64) -> u64 {
    operation << JOB_BITS | (number + 1) & ((1 << JOB_BITS) - 1)
}

/// Whether a job that waits in a slot can no longer be handled: it is before this one, or another dispatcher's.
const fn is_gone(job: u64, oldest: u64) -> bool {
    job < oldest || job >> JOB_BITS != oldest >> JOB_BITS
}

pub(super) struct Inbox {
    pub(super) operation: String,
    pub(super) events_max: usize,
    /// The most jobs that may wait or run: the backlog in the plan that it subscribed with.
    room: u32,
    state: PiMutex<State>,
    slots: Vec<Slot>,
    /// Slots without a job, by bit.
    free: AtomicU64,
    tally: Tally,
    has_handler: AtomicBool,
}

/// What an event was for a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offered {
    /// Nothing.
    Passed,
    /// Part of what it waits for.
    Kept,
    /// The last part: its operation was pushed.
    Taken,
    /// The last part, but the operation was not pushed.
    Rejected,
}

impl Inbox {
    pub(super) fn new(
        operation: &str,
        quality: &Quality,
        backlog: u32,
        payload_max: usize,
        events_max: usize,
    ) -> Inbox {
        let room = || vec![Stored::room(payload_max); events_max];
        let slots = (backlog + SPARE).min(SLOTS_MAX);
        let slot = || Slot { job: AtomicU64::new(0), events: PiMutex::new((0, room())) };
        let state = State {
            offers: Offers::default(),
            correlator: Correlator::new(&quality.filter, Time::ZERO),
            asked: Asked::of(quality),
            kept: room(),
            suspended: false,
            backlog,
            dispatching: u64::MAX,
            last: Time::ZERO,
            early: None,
            early_events: room(),
        };
        Inbox {
            operation: operation.to_owned(),
            events_max,
            room: backlog,
            state: PiMutex::new(state),
            slots: (0..slots).map(|_| slot()).collect(),
            free: AtomicU64::new(u64::MAX >> (64 - slots)),
            tally: Tally::default(),
            has_handler: AtomicBool::new(false),
        }
    }

    pub(super) fn has_handler(&self) -> bool {
        self.has_handler.load(Ordering::Relaxed)
    }

    /// Whether its operation may have this backlog in a dispatcher's plan.
    pub(super) fn suits(&self, backlog: u32) -> Result<(), ConnectError> {
        if backlog > self.room {
            return Err(ConnectError::Backlog { operation: self.operation.clone(), backlog, room: self.room });
        }
        let keep = self.state.lock().asked.keep;
        can_keep(&self.operation, keep, backlog).map_err(ConnectError::Plan)
    }

    /// Begins to wait, for a dispatcher that may be another one than before: that one's jobs were omitted.
    pub(super) fn begin(&self, handle: &Handle, backlog: u32, now: Time) {
        let mut state = self.state.lock();
        (state.dispatching, state.backlog, state.last) = (handle.dispatching(), backlog, now);
        state.correlator.restart(now);
        if state.early.is_some_and(|early| early.dispatching != handle.dispatching()) {
            state.early = None;
            count(&self.tally.omitted);
        }
        let oldest = handle.oldest().unwrap_or_default();
        self.forget(|job| is_gone(job, key(handle.operation(), oldest)));
    }

    /// When time itself may be what it waits for.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.state.lock().next_time()
    }

    /// Sees to what has come by time.
    pub(super) fn pass_time<'a>(&self, handle: &'a Handle, now: Time, wakes: &mut Wakes<'a>) {
        let mut state = self.state.lock();
        if state.dispatching != handle.dispatching() {
            // As for an event: that time is another dispatcher's.
            return;
        }
        let now = state.now(now);
        self.catch_up(&mut state, handle, now, wakes);
    }

    #[inline]
    fn catch_up<'a>(&self, state: &mut State, handle: &'a Handle, now: Time, wakes: &mut Wakes<'a>) {
        if state.early.is_some() || state.correlator.is_due(now) {
            self.catch_up_due(state, handle, now, wakes);
        }
    }

    #[inline(never)]
    fn catch_up_due<'a>(&self, state: &mut State, handle: &'a Handle, now: Time, wakes: &mut Wakes<'a>) {
        loop {
            let Some(due) = state.next_time().filter(|due| *due <= now) else {
                if state.correlator.expire(now) {
                    continue;
                }
                return;
            };
            if let Some(early) = state.early.filter(|early| early.until == due) {
                self.push_early(early, state, handle, now, wakes);
                continue;
            }
            let taken = state.correlator.pass_time(due);
            // A time is of use as long as it is waited with.
            let head = Head { expires: Time::MAX, ..state.asked.of_event(&of_time(due)) };
            keep(state, taken.leaves, &head, &[]);
            if taken.complete {
                let leaves = state.correlator.collect_due(due, now);
                let _ = self.complete(leaves, None, state, handle, now, wakes);
            }
        }
    }

    /// An event; what has come by time before it is seen to first. Also when time itself may be what it waits for then.
    pub(super) fn offer<'a>(
        &self,
        head: &Head,
        payload: &[u8],
        handle: &'a Handle,
        now: Time,
        wakes: &mut Wakes<'a>,
    ) -> (Offered, Option<Time>) {
        let mut state = self.state.lock();
        if state.dispatching != handle.dispatching() {
            // Pushed before the channel was connected to another dispatcher, whose times are from another zero.
            return (Offered::Passed, None);
        }
        let now = state.now(now);
        self.catch_up(&mut state, handle, now, wakes);
        if state.suspended {
            state.offers.suspended += 1;
            return (Offered::Passed, None);
        }
        let head = &state.asked.of_event(head);
        let taken = state.correlator.event(head, now);
        let leaves = if taken.complete { state.correlator.collect(now) } else { 0 };
        let alone = taken.complete && leaves & !taken.leaves == 0;
        if !alone {
            keep(&mut state, taken.leaves, head, payload);
        }
        let offered = if taken.complete {
            self.complete(leaves, alone.then_some((head, payload)), &mut state, handle, now, wakes)
        } else if taken.leaves == 0 {
            Offered::Passed
        } else {
            Offered::Kept
        };
        (offered, state.next_time())
    }

    /// The filter is complete, with what is kept, or with the last event alone.
    fn complete<'a>(
        &self,
        leaves: u64,
        last: Last<'_>,
        state: &mut State,
        handle: &'a Handle,
        now: Time,
        wakes: &mut Wakes<'a>,
    ) -> Offered {
        state.offers.complete += 1;
        let latest = state.asked.keep == Keep::Latest;
        if let Some(early) = state.early {
            // Its time has not come. Where all are kept now it is this one that comes too early: none goes before it, or takes its place.
            if !latest {
                state.offers.rejected += 1;
                return Offered::Rejected;
            }
            state.offers.replaced += 1;
            state.put_off(Early { leaves, ..early }, last);
            return Offered::Taken;
        }
        match self.push(Set { leaves, kept: &state.kept, last }, latest, handle, wakes) {
            Ok(replaced) => {
                state.offers.replaced += u64::from(replaced);
                Offered::Taken
            }
            Err(PushError::TooEarly { wait }) if latest => {
                let until = now.saturating_add(wait);
                state.put_off(Early { leaves, until, dispatching: handle.dispatching() }, last);
                Offered::Taken
            }
            Err(_) => {
                state.offers.rejected += 1;
                Offered::Rejected
            }
        }
    }

    /// The time of a set has come that was put off: it goes by the rule that holds now, which may be another than the one that put it off.
    fn push_early<'a>(&self, early: Early, state: &mut State, handle: &'a Handle, now: Time, wakes: &mut Wakes<'a>) {
        state.early = None;
        let latest = state.asked.keep == Keep::Latest;
        let set = Set { leaves: early.leaves, kept: &state.early_events, last: None };
        match self.push(set, latest, handle, wakes) {
            Ok(replaced) => state.offers.replaced += u64::from(replaced),
            // Another push came before it, or another mode has greater distances.
            Err(PushError::TooEarly { wait }) => {
                let until = now.saturating_add(wait.max(Span::from_ns(1)));
                state.early = Some(Early { until, ..early });
            }
            Err(_) => state.offers.rejected += 1,
        }
    }

    /// A set waits in a slot for the job that is pushed; or, where the `latest` is kept and one waits, for that one's. Whether it took the place of one.
    fn push<'a>(
        &self,
        set: Set<'_>,
        latest: bool,
        handle: &'a Handle,
        wakes: &mut Wakes<'a>,
    ) -> Result<bool, PushError> {
        if latest && self.replace(set, handle) {
            return Ok(true);
        }
        let (at, slot) = self.take_slot(handle).ok_or(PushError::Full)?;
        set.put(&mut slot.events.lock());
        let named = |number: u64, oldest: u64| {
            slot.job.store(key(handle.operation(), number), Ordering::Release);
            self.forget(|job| is_gone(job, key(handle.operation(), oldest)));
        };
        let pushed = wakes.push(handle, named);
        if pushed.is_err() {
            self.release(at);
        }
        pushed.map(|_| false)
    }

    /// Gives the newest job that waits these events in the place of its own; whether there was one. What its handler has already it keeps, and nobody waits for that.
    fn replace(&self, set: Set<'_>, handle: &Handle) -> bool {
        let oldest = key(handle.operation(), handle.oldest().unwrap_or_default());
        self.forget(|job| is_gone(job, oldest));
        let waits = |slot: &Slot| Some(slot.job.load(Ordering::Acquire)).filter(|job| *job != 0 && *job != RUNS);
        let newest = self.taken().filter_map(|(at, slot)| Some((waits(slot)?, at))).max();
        let Some((job, slot)) = newest.and_then(|(job, at)| Some((job, self.slots.get(at)?))) else { return false };
        // A handler has the lock for as long as it runs.
        let Some(mut events) = slot.events.try_lock() else { return false };
        // Whoever takes the job from now on waits for the lock, and finds the new ones: a slot that moved could be missed.
        if slot.job.load(Ordering::Acquire) != job {
            return false;
        }
        set.put(&mut events);
        true
    }

    fn take_slot(&self, handle: &Handle) -> Option<(usize, &Slot)> {
        let take = || {
            let take = |free: u64| (free != 0).then(|| free & (free - 1));
            let free = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
            let at = free.trailing_zeros() as usize;
            Some((at, self.slots.get(at)?))
        };
        take().or_else(|| {
            let oldest = key(handle.operation(), handle.oldest().unwrap_or_default());
            self.forget(|job| is_gone(job, oldest));
            take()
        })
    }

    /// Slots that are not free.
    fn taken(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let taken = ones(!self.free.load(Ordering::Acquire));
        // Those past the last slot are no slots.
        taken.map_while(|at| Some((at as usize, self.slots.get(at as usize)?)))
    }

    fn release(&self, at: usize) {
        if let Some(slot) = self.slots.get(at) {
            slot.job.store(0, Ordering::Release);
            self.free.fetch_or(1 << at, Ordering::AcqRel);
        }
    }

    /// Jobs whose keys are of those are gone: where events of theirs still wait, they were omitted.
    fn forget(&self, is_gone: impl Fn(u64) -> bool) {
        for (at, slot) in self.taken() {
            let job = slot.job.load(Ordering::Acquire);
            if job != 0 && job != RUNS && is_gone(job) {
                self.omit(at, slot, job);
            }
        }
    }

    /// The events that wait in a slot for this job will not be handled.
    #[cold]
    fn omit(&self, at: usize, slot: &Slot, job: u64) {
        // Whoever puts the zero there releases it.
        if slot.job.compare_exchange(job, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            count(&self.tally.omitted);
            self.free.fetch_or(1 << at, Ordering::AcqRel);
        }
    }

    /// Calls the handler with the events of its job.
    fn handle(&self, job: &Job<'_>, handler: &mut impl FnMut(&Delivery<'_>, &Job<'_>)) {
        let own = key(job.operation(), job.number());
        let mut found = None;
        for (at, slot) in self.taken() {
            let waits = slot.job.load(Ordering::Acquire);
            if waits == own && found.is_none() {
                let is_mine = slot.job.compare_exchange(own, RUNS, Ordering::AcqRel, Ordering::Acquire).is_ok();
                found = is_mine.then_some((at, slot));
            } else if waits != 0 && waits >> JOB_BITS == own >> JOB_BITS && waits < own {
                // Its operation's: another dispatcher may have taken its place.
                self.omit(at, slot, waits);
            }
        }
        let Some((at, slot)) = found else { return self.find_none(job) };
        // From here on it is this job's alone, a panic of the handler included.
        let _release = Release { inbox: self, at };
        let events = slot.events.lock();
        let delivery = Delivery { leaves: events.0, events: &events.1 };
        // Most events have no end: then nobody asks for the time.
        let is_over = |time: Time| time < Time::MAX && time < job.now();
        if delivery.stored().any(|(_, stored)| is_over(stored.head.expires)) {
            count(&self.tally.expired);
            return;
        }
        count(&self.tally.handled);
        handler(&delivery, job);
        if is_over(delivery.due()) {
            count(&self.tally.late);
        }
    }

    /// No events wait for a job: it was pushed by somebody else, or its operation is not the one that subscribed.
    #[cold]
    fn find_none(&self, job: &Job<'_>) {
        if job.name() != self.operation {
            count(&self.tally.misplaced);
        }
    }

    fn counts(&self) -> Counts {
        let load = |tally: &Figure| tally.load(Ordering::Acquire);
        let Tally { handled, late, expired, omitted, .. } = &self.tally;
        // In this order: no more are handled than were complete, and no more were late than are handled.
        let late = load(late);
        let (handled, expired, omitted) = (load(handled), load(expired), load(omitted));
        let Offers { complete, rejected, replaced, suspended } = self.state.lock().offers;
        Counts { complete, handled, late, expired, rejected, omitted, replaced, suspended }
    }
}

fn keep(state: &mut State, leaves: u64, head: &Head, payload: &[u8]) {
    for leaf in ones(leaves) {
        if let Some(kept) = state.kept.get_mut(leaf as usize) {
            kept.set(head, payload);
        }
    }
}

struct Release<'a> {
    inbox: &'a Inbox,
    at: usize,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.inbox.release(self.at);
    }
}

impl Dispatcher {
    /// The code of the operation that has subscribed, called with the events of each job. It runs as one given by [`Dispatcher::on`] does.
    ///
    /// # Errors
    /// The plan has no such operation, or it has code already.
    pub fn on_events(
        self,
        subscription: &Subscription,
        handler: impl FnMut(&Delivery<'_>, &Job<'_>) + Send + 'static,
    ) -> Result<Dispatcher, StartError> {
        self.on(subscription.operation(), subscription.handler(handler))
    }
}

/// An operation's subscription; a copy is the same one. Dropped, its operation goes on waiting: [`Channel::unsubscribe`](super::Channel::unsubscribe) ends it.
#[derive(Clone)]
pub struct Subscription {
    pub(super) inbox: Arc<Inbox>,
    pub(super) channel: Weak<Inner>,
}

impl Subscription {
    /// The handler to give to the operation ([`Dispatcher::on`](crate::Dispatcher::on)): it calls yours with the events of each job. Given to another operation it calls yours
    /// for none of its jobs, and they are counted ([`Subscription::misplaced`]). [`Dispatcher::on_events`](crate::Dispatcher::on_events) cannot be wrong about that.
    pub fn handler(
        &self,
        mut handler: impl FnMut(&Delivery<'_>, &Job<'_>) + Send + 'static,
    ) -> impl FnMut(&Job<'_>) + Send + 'static {
        let inbox = self.inbox.clone();
        inbox.has_handler.store(true, Ordering::Relaxed);
        move |job| inbox.handle(job, &mut handler)
    }

    /// Whose it is.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.inbox.operation
    }

    /// What became of what it waited for.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inbox.counts()
    }

    /// Jobs of other operations that its handler was called for: a defect of the program, which has given it to the wrong one. They were given no events, and those that wait for the
    /// right operation's jobs are omitted ([`Counts::omitted`]).
    #[must_use]
    pub fn misplaced(&self) -> u64 {
        self.inbox.tally.misplaced.load(Ordering::Acquire)
    }

    /// Events pass it by until it is resumed; what it has of a group is forgotten then. What is complete stays.
    pub fn suspend(&self) {
        self.inbox.state.lock().suspended = true;
        self.tell(Change::Suspended);
    }

    /// It waits again, from now on.
    pub fn resume(&self) {
        let mut state = self.inbox.state.lock();
        let now = self.now(&mut state);
        state.suspended = false;
        state.correlator.restart(now);
        drop(state);
        self.tell(Change::Resumed);
    }

    /// It has another quality of service from now on; what waits for its handler stays, as the former had it. Its level and deadline are its operation's: to change these, too, switch to a mode
    /// that has others.
    ///
    /// # Errors
    /// The filter is wrong, or waits for more events than there is room for; or there is no room to keep the latest.
    pub fn reconnect(&self, quality: impl Into<Quality>) -> Result<(), SubscribeError> {
        let (inbox, quality) = (&self.inbox, quality.into());
        let backlog = inbox.state.lock().backlog;
        checked(&inbox.operation, &quality, backlog, inbox.events_max)?;
        let mut correlator = Correlator::new(&quality.filter, Time::ZERO);
        let mut state = inbox.state.lock();
        correlator.restart(self.now(&mut state));
        state.asked = Asked::of(&quality);
        std::mem::swap(&mut state.correlator, &mut correlator);
        drop(state);
        // The old one is freed without the lock.
        drop(correlator);
        self.tell(Change::Reconnected);
        Ok(())
    }

    /// By the clock of the dispatcher that the state knows: another one may take its place meanwhile.
    fn now(&self, state: &mut State) -> Time {
        let now = self.channel.upgrade().and_then(|channel| channel.now_of(state.dispatching));
        state.now(now.unwrap_or(Time::ZERO))
    }

    fn tell(&self, change: Change) {
        if let Some(channel) = self.channel.upgrade() {
            channel.changed(&self.inbox.operation, change);
        }
    }
}

#[cfg(test)]
#[path = "inbox_model.rs"]
mod model;
