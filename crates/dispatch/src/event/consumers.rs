//! The consumers of a channel while it is connected, and the thread that handles timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::{Epoch, PiMutex};
use takt_model::Time;

use super::fanout::{Order, Target, Wakes};
use super::filter::Head;
use super::history::History;
use super::inbox::{Inbox, Offered};
use super::peer::{PendingChanges, PresenceChange};
use crate::sync::{self, Futex, wake};
use crate::{Handle, IDLE_MAX};

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
    /// Peers and outlets that the event did not reach: see [`Connected::traffic`](super::Connected::traffic) and
    /// [`Outlet::passed`](super::Outlet::passed).
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

/// The consumers of a channel while it is connected.
pub(super) struct Consumers {
    /// The number of this connection, and its dispatcher.
    pub(super) number: u64,
    pub(super) dispatching: u64,
    pub(super) history: Option<Arc<PiMutex<History>>>,
    pub(super) all: Vec<(Arc<Inbox>, Handle)>,
    pub(super) order: Order,
    /// The kernel's numbers for the plan's CPUs.
    pub(super) cpus: Vec<u32>,
    pub(super) clock: Epoch,
    /// A futex of the timeout thread.
    pub(super) timer: Futex,
    /// When the timeout thread wakes by itself, in ns.
    pub(super) until: sync::AtomicU64,
    pub(super) stopped: AtomicBool,
}

impl Consumers {
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Offers an event to all consumers, in the [order](Order) of the current plan. `now` is about
    /// the present time.
    pub(super) fn offer(&self, head: &Head, payload: &[u8], now: Time) -> Pushed {
        self.serve(head, payload, now, |_| false, |_, _| {})
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
    pub(super) fn report_presence(
        &self,
        pending: &mut [PendingChanges],
        there: Option<u64>,
        event: impl Fn(PresenceChange, u64) -> (Head, [u8; 8]),
        payload_max: usize,
    ) {
        let (mut next, mut wakes) = (Time::MAX, Wakes::default());
        for target in self.order() {
            let Target::Consumer(at) = *target else { continue };
            let Some(((inbox, handle), pending)) = self.all.get(at).zip(pending.get_mut(at)) else { continue };
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
        self.order.under(self.all.first().map_or(0, |(_, handle)| handle.holds()))
    }

    /// Offers an event to all consumers, and `send`s it on each level between nodes that `wants` it.
    #[inline]
    pub(super) fn serve(
        &self,
        head: &Head,
        payload: &[u8],
        now: Time,
        wants: impl Fn(usize) -> bool,
        mut send: impl FnMut(usize, &mut Pushed),
    ) -> Pushed {
        self.remember(head, payload);
        let mut pushed = Pushed { number: head.number, ..Pushed::default() };
        let (mut next, mut wakes) = (Time::MAX, Wakes::default());
        for target in self.order() {
            match *target {
                Target::Consumer(at) => {
                    let Some((inbox, handle)) = self.all.get(at) else { continue };
                    let (offered, due) = inbox.offer(head, payload, handle, now, &mut wakes);
                    pushed.count(offered);
                    next = due.map_or(next, |due| due.min(next));
                }
                Target::Direct(at) | Target::Patient(at) if wants(at) => {
                    // Wake the consumers so far, because they are more important.
                    self.wake(next, &mut wakes);
                    send(at, &mut pushed);
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
            self.wake_timer();
        }
        wakes.wake(&self.cpus);
    }

    /// The body of the timeout thread.
    pub(super) fn keep_time(&self) {
        loop {
            let seen = self.timer.load(Ordering::Acquire);
            if self.is_stopped() {
                return;
            }
            // A thread that adds an earlier time during this pass sees the MAX and wakes this
            // thread.
            self.until.store(u64::MAX, Ordering::SeqCst);
            let now = self.now();
            for (inbox, handle) in &self.all {
                let mut wakes = Wakes::default();
                inbox.pass_time(handle, now, &mut wakes);
                wakes.wake(&self.cpus);
            }
            let next = self.all.iter().filter_map(|(inbox, _)| inbox.next_time()).min().unwrap_or(Time::MAX);
            let until = next.min(now.saturating_add(IDLE_MAX));
            self.until.store(until.as_ns(), Ordering::Release);
            sync::wait(&self.timer, seen, self.clock, until);
        }
    }

    pub(super) fn wake_timer(&self) {
        wake(&self.timer);
    }
}
