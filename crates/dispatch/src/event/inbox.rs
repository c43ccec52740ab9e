//! One consumer: its partial groups, and the events of its jobs until they run.

use std::sync::atomic::{AtomicBool, AtomicU64 as Figure, Ordering};

use takt_model::{Span, Time};

use super::delivery::{Delivery, Stored, of_time};
use super::error::{ConnectError, SubscribeError};
use super::fanout::Wakes;
use super::filter::{Correlator, Head};
use super::limits::{SLOTS_MAX, SPARE};
use super::quality::{Demands, Keep, Quality};
use crate::bits::ones;
use crate::sync::{AtomicU64, PiMutex};
use crate::{Handle, Job, PushError};

/// The outcomes of a subscription's sets of events.
///
/// `complete` = handled + expired + rejected + omitted + replaced + waiting sets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// How often the filter was complete.
    pub complete: u64,
    /// Sets that the handler was called for.
    pub handled: u64,
    /// Handled sets whose handler returned after a deadline of their events
    /// ([`Terms::deadline`](super::Terms::deadline), [`Quality::deadline`]).
    pub late: u64,
    /// Sets that had expired when their job ran.
    pub expired: u64,
    /// Sets that pushed no job: the backlog was full, the least distance was not over, or the
    /// operation had stopped.
    pub rejected: u64,
    /// Sets whose job was omitted or dropped.
    pub omitted: u64,
    /// Sets that a newer set replaced ([`Keep::Latest`]).
    pub replaced: u64,
    /// Events that came while the subscription was suspended.
    pub suspended: u64,
}

/// Counters that handlers change, and threads that find a job gone.
#[derive(Default, Debug)]
struct Tally {
    handled: Figure,
    late: Figure,
    expired: Figure,
    omitted: Figure,
    misplaced: Figure,
}

/// Counters that suppliers change, under the lock.
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
    demands: Demands,
    /// By leaf.
    kept: Vec<Stored>,
    suspended: bool,
    /// The operation's backlog in the plan of the last dispatcher.
    backlog: u32,
    /// The dispatcher that the filter waits with, and the last time read of its clock.
    dispatching: u64,
    last: Time,
    /// A set that came before the least distance was over, and its events by leaf.
    early: Option<Early>,
    early_events: Vec<Stored>,
}

/// A set that waits until its operation may be pushed.
#[derive(Clone, Copy)]
struct Early {
    leaves: u64,
    until: Time,
    /// The dispatcher whose clock gives the time.
    dispatching: u64,
}

impl State {
    fn next_time(&self) -> Option<Time> {
        let time = if self.suspended { None } else { self.correlator.next_time() };
        self.early.map(|early| early.until).into_iter().chain(time).min()
    }

    /// The time, which never goes back. The caller may have read its clock before it waited for the
    /// lock.
    fn now(&mut self, looked: Time) -> Time {
        self.last = self.last.max(looked);
        self.last
    }

    /// The time by the clock of the current dispatcher.
    fn now_by(&mut self, now_of: impl FnOnce(u64) -> Option<Time>) -> Time {
        let now = now_of(self.dispatching);
        self.now(now.unwrap_or(Time::ZERO))
    }

    /// Puts off the complete set until a later time. It replaces an earlier set that waits.
    fn put_off(&mut self, early: Early, last: Last<'_>) {
        Set { leaves: early.leaves, kept: &self.kept, last }.copy(&mut self.early_events);
        self.early = Some(early);
    }
}

/// The last event, if it alone completes the set. Such an event has not been stored.
type Last<'a> = Option<(&'a Head, &'a [u8])>;

/// The events that completed a filter.
#[derive(Clone, Copy)]
struct Set<'a> {
    leaves: u64,
    /// By leaf.
    kept: &'a [Stored],
    last: Last<'a>,
}

impl Set<'_> {
    /// Stores the set in a slot.
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
    /// The [`key`] of the job whose events the slot holds: zero while the job is unknown, [`RUNS`]
    /// once its handler has them.
    job: AtomicU64,
    events: PiMutex<(u64, Vec<Stored>)>,
}

const RUNS: u64 = u64::MAX;

/// Bits of a key for the job's number. The higher bits tell the operation.
const JOB_BITS: u32 = 48;

/// The key of a job: neither zero nor [`RUNS`]. Jobs of other operations and of later dispatchers
/// repeat numbers, but not keys.
const fn key(operation: u64, number: u64) -> u64 {
    operation << JOB_BITS | (number + 1) & ((1 << JOB_BITS) - 1)
}

/// Whether a waiting job can no longer run: it precedes the oldest job, or belongs to another
/// dispatcher.
const fn is_gone(job: u64, oldest: u64) -> bool {
    job < oldest || job >> JOB_BITS != oldest >> JOB_BITS
}

pub(super) struct Inbox {
    pub(super) operation: String,
    pub(super) events_max: usize,
    /// The most jobs that may wait or run: the backlog of the plan used to subscribe.
    room: u32,
    state: PiMutex<State>,
    slots: Vec<Slot>,
    /// Free slots, by bit.
    free: AtomicU64,
    tally: Tally,
    has_handler: AtomicBool,
}

/// The effect of an event on a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offered {
    /// No effect.
    Passed,
    /// The event is kept as part of a set.
    Kept,
    /// The set is complete, and the operation was pushed or will be.
    Taken,
    /// The set is complete, but the operation was not pushed.
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
            demands: Demands::of(quality),
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

    /// A handler of its events was made.
    pub(super) fn will_be_handled(&self) {
        self.has_handler.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_handler(&self) -> bool {
        self.has_handler.load(Ordering::Relaxed)
    }

    /// Checks the operation's backlog in a dispatcher's plan.
    pub(super) fn suits(&self, backlog: u32) -> Result<(), ConnectError> {
        if backlog > self.room {
            return Err(ConnectError::Backlog { operation: self.operation.clone(), backlog, room: self.room });
        }
        let keep = self.state.lock().demands.keep;
        can_keep(&self.operation, keep, backlog).map_err(ConnectError::Plan)
    }

    /// The operation's backlog under the last dispatcher.
    pub(super) fn backlog(&self) -> u32 {
        self.state.lock().backlog
    }

    /// Ignores events, and forgets partial groups.
    pub(super) fn suspend(&self) {
        self.state.lock().suspended = true;
    }

    /// Waits again. `now_of` gives the time by a dispatcher's clock; another dispatcher may replace
    /// it meanwhile.
    pub(super) fn resume(&self, now_of: impl FnOnce(u64) -> Option<Time>) {
        let mut state = self.state.lock();
        let now = state.now_by(now_of);
        state.suspended = false;
        state.correlator.restart(now);
    }

    /// Waits for other events from now on, or with other demands. `now_of` as for
    /// [`Inbox::resume`].
    pub(super) fn reconnect(&self, quality: &Quality, now_of: impl FnOnce(u64) -> Option<Time>) {
        let mut correlator = Correlator::new(&quality.filter, Time::ZERO);
        let mut state = self.state.lock();
        correlator.restart(state.now_by(now_of));
        state.demands = Demands::of(quality);
        std::mem::swap(&mut state.correlator, &mut correlator);
        drop(state);
        // The old filter is freed after the lock is released.
        drop(correlator);
    }

    /// Begins to wait under a dispatcher. Jobs of a former dispatcher are omitted.
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

    /// When the next timeout may be due.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.state.lock().next_time()
    }

    /// Handles timeouts that are due.
    pub(super) fn pass_time<'a>(&self, handle: &'a Handle, now: Time, wakes: &mut Wakes<'a>) {
        let mut state = self.state.lock();
        if state.dispatching != handle.dispatching() {
            // The times are those of another dispatcher.
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
            // A timeout does not expire.
            let head = Head { expires: Time::MAX, ..state.demands.of_event(&of_time(due)) };
            keep(state, taken.leaves, &head, &[]);
            if taken.complete {
                let leaves = state.correlator.collect_due(due, now);
                let _ = self.complete(leaves, None, state, handle, now, wakes);
            }
        }
    }

    /// Offers an event, after due timeouts. Also returns the time of the next timeout, if there is
    /// one.
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
            // The event was pushed under another dispatcher, whose times count from another zero.
            return (Offered::Passed, None);
        }
        let now = state.now(now);
        self.catch_up(&mut state, handle, now, wakes);
        if state.suspended {
            state.offers.suspended += 1;
            return (Offered::Passed, None);
        }
        let head = &state.demands.of_event(head);
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

    /// Handles a complete filter, with the kept events, or with the last event alone.
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
        let latest = state.demands.keep == Keep::Latest;
        if let Some(early) = state.early {
            // The set came before the least distance was over. If all sets are kept, this set is
            // rejected, because it cannot pass or replace a waiting one.
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

    /// Pushes a set that was put off. The current rule applies, which may have changed since.
    fn push_early<'a>(&self, early: Early, state: &mut State, handle: &'a Handle, now: Time, wakes: &mut Wakes<'a>) {
        state.early = None;
        let latest = state.demands.keep == Keep::Latest;
        let set = Set { leaves: early.leaves, kept: &state.early_events, last: None };
        match self.push(set, latest, handle, wakes) {
            Ok(replaced) => state.offers.replaced += u64::from(replaced),
            // Another push came first, or another mode has a longer distance.
            Err(PushError::TooEarly { wait }) => {
                let until = now.saturating_add(wait.max(Span::from_ns(1)));
                state.early = Some(Early { until, ..early });
            }
            Err(_) => state.offers.rejected += 1,
        }
    }

    /// Stores a set in a slot for the job that is pushed. If `latest` and a job waits, the set
    /// replaces that job's events. Returns whether it replaced one.
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

    /// Replaces the events of the newest waiting job. Returns whether there was such a job. Events
    /// that a handler has are not replaced, and nothing waits for the handler.
    fn replace(&self, set: Set<'_>, handle: &Handle) -> bool {
        let oldest = key(handle.operation(), handle.oldest().unwrap_or_default());
        self.forget(|job| is_gone(job, oldest));
        let waits = |slot: &Slot| Some(slot.job.load(Ordering::Acquire)).filter(|job| *job != 0 && *job != RUNS);
        let newest = self.taken().filter_map(|(at, slot)| Some((waits(slot)?, at))).max();
        let Some((job, slot)) = newest.and_then(|(job, at)| Some((job, self.slots.get(at)?))) else { return false };
        // A running handler holds this lock.
        let Some(mut events) = slot.events.try_lock() else { return false };
        // A thread that takes the job now waits for the lock and gets the new events. Events must
        // not move to another slot, because that thread could miss them.
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

    /// Slots that are in use.
    fn taken(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let taken = ones(!self.free.load(Ordering::Acquire));
        // Bits past the last slot are always set.
        taken.map_while(|at| Some((at as usize, self.slots.get(at as usize)?)))
    }

    fn release(&self, at: usize) {
        if let Some(slot) = self.slots.get(at) {
            slot.job.store(0, Ordering::Release);
            self.free.fetch_or(1 << at, Ordering::AcqRel);
        }
    }

    /// Counts waiting events as omitted if their job is gone.
    fn forget(&self, is_gone: impl Fn(u64) -> bool) {
        for (at, slot) in self.taken() {
            let job = slot.job.load(Ordering::Acquire);
            if job != 0 && job != RUNS && is_gone(job) {
                self.omit(at, slot, job);
            }
        }
    }

    /// Counts the waiting events of this job as omitted.
    #[cold]
    fn omit(&self, at: usize, slot: &Slot, job: u64) {
        // The thread that writes the zero releases the slot.
        if slot.job.compare_exchange(job, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            count(&self.tally.omitted);
            self.free.fetch_or(1 << at, Ordering::AcqRel);
        }
    }

    /// Calls the handler with the events of its job.
    pub(super) fn handle(&self, job: &Job<'_>, handler: &mut impl FnMut(&Delivery<'_>, &Job<'_>)) {
        let own = key(job.operation(), job.number());
        let mut found = None;
        for (at, slot) in self.taken() {
            let waits = slot.job.load(Ordering::Acquire);
            if waits == own && found.is_none() {
                let is_mine = slot.job.compare_exchange(own, RUNS, Ordering::AcqRel, Ordering::Acquire).is_ok();
                found = is_mine.then_some((at, slot));
            } else if waits != 0 && waits >> JOB_BITS == own >> JOB_BITS && waits < own {
                // The slot's events belong to the same operation under another dispatcher.
                self.omit(at, slot, waits);
            }
        }
        let Some((at, slot)) = found else { return self.find_none(job) };
        // From here on the slot belongs to this job, even if the handler panics.
        let _release = Release { inbox: self, at };
        let events = slot.events.lock();
        let delivery = Delivery { leaves: events.0, events: &events.1 };
        // Most events do not expire, and then the clock is not read.
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

    /// No events wait for this job: another caller pushed it, or its operation has not subscribed.
    #[cold]
    fn find_none(&self, job: &Job<'_>) {
        if job.name() != self.operation {
            count(&self.tally.misplaced);
        }
    }

    /// Jobs of other operations that ran this subscription's handler.
    pub(super) fn misplaced(&self) -> u64 {
        self.tally.misplaced.load(Ordering::Acquire)
    }

    pub(super) fn counts(&self) -> Counts {
        let load = |tally: &Figure| tally.load(Ordering::Acquire);
        let Tally { handled, late, expired, omitted, .. } = &self.tally;
        // The order of the loads ensures late <= handled <= complete.
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

/// Checks that the backlog has room for what `keep` demands.
pub(super) fn can_keep(operation: &str, keep: Keep, backlog: u32) -> Result<(), SubscribeError> {
    if keep == Keep::Latest && backlog < 2 {
        return Err(SubscribeError::Alone(operation.to_owned()));
    }
    Ok(())
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

#[cfg(test)]
#[path = "inbox_model.rs"]
mod model;
