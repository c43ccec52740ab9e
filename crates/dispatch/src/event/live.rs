//! A channel while it is connected: events go to consumers, other nodes and outlets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use takt_linux::memory::prefault_stack;
use takt_linux::{Class, ClassGuard, Epoch, PiMutex, sched};
use takt_model::Time;

use super::carrier::Out;
use super::fanout::{Order, Target, Wakes};
use super::filter::Head;
use super::history::History;
use super::inbox::{Inbox, Offered};
use super::lane::Lane;
use super::peer::{PendingChanges, PresenceChange};
use crate::gate::{READY_MAX, STACK_BYTES, STACK_TOUCHED};
use crate::sync::{self, Word, rouse};
use crate::{Dispatching, Handle, IDLE_MAX, StartError};

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

/// The state of a channel while it is connected.
pub(super) struct Live {
    /// The number of this connection, and its dispatcher.
    pub(super) number: u64,
    pub(super) dispatching: u64,
    pub(super) history: Option<Arc<PiMutex<History>>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) outlets: Vec<Arc<Out>>,
    pub(super) consumers: Vec<(Arc<Inbox>, Handle)>,
    pub(super) order: Order,
    /// The kernel's numbers for the plan's CPUs.
    pub(super) cpus: Vec<u32>,
    pub(super) clock: Epoch,
    /// A futex of the timeout thread.
    pub(super) timer: Word,
    /// When the timeout thread wakes by itself, in ns.
    pub(super) until: sync::AtomicU64,
    /// A futex that is zero until the threads may start.
    pub(super) gate: Word,
    pub(super) stopped: AtomicBool,
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
    pub(super) fn push(&self, head: &Head, payload: &[u8]) -> Pushed {
        let mut pushed = self.serve(head, payload, head.sent, true);
        for outlet in self.outlets.iter().filter(|outlet| outlet.wants(head)) {
            let kept = outlet.push(head, payload, self);
            pushed.sent += usize::from(kept);
            pushed.unsent += usize::from(!kept);
        }
        pushed
    }

    /// Ends the threads.
    pub(super) fn stop(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.stopped.store(true, Ordering::Release);
        rouse(&self.gate);
        self.rouse();
        self.lanes.iter().for_each(Lane::rouse);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
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

    pub(super) fn rouse(&self) {
        rouse(&self.timer);
    }
}

/// Starts all threads of a channel. If one fails, none remains.
pub(super) fn threads(live: &Arc<Live>, dispatching: &Dispatching) -> Result<Vec<JoinHandle<()>>, StartError> {
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
