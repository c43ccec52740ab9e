//! The way out of a channel for a gateway to other middleware, in place of datagrams.
//!
//! A push copies an event into a bounded queue ([`Outlet`]), as for
//! [`Sending::Queued`](super::Sending::Queued). An ordinary thread of the gateway takes the event
//! from the queue. [`Inlet`](super::Inlet) is the way in.
//!
//! ```
//! use takt_model::Span;
//! use takt_dispatch::event::{Channel, Full, Options, Pattern};
//!
//! let channel = Channel::new(Options::default());
//! let outlet = channel.outlet(&[Pattern::kind(1)], 16, Full::Newest)?;
//! let mut leaving = outlet.leaving();
//! // The channel is not connected: nothing comes.
//! assert!(!outlet.next(&mut leaving, Span::ZERO));
//! assert_eq!(outlet.passed().pushed, 0);
//! # Ok::<(), takt_dispatch::event::ConnectError>(())
//! ```

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use takt_linux::eventfd::EventFd;
use takt_linux::{Epoch, PiMutex};
use takt_model::{Span, Time};

use super::delivery::Stored;
use super::filter::{Head, Pattern, until};
use super::node::{Full, ROOM_MAX};
use super::waiting::Waiting;
use crate::sync::{self, Futex, wake};

/// The part of an outlet that pushes use.
pub(super) struct OutletQueue {
    sends: Vec<Pattern>,
    waiting: PiMutex<Waiting>,
    /// A futex of the thread that takes events.
    word: Futex,
    /// A descriptor for the program's own loop, if the program asked for one. It is raised while
    /// events wait.
    signal: OnceLock<EventFd>,
    full: Full,
    closed: AtomicBool,
    /// The clock for times of waiting events. The channel may be connected to another dispatcher,
    /// with another clock, before they are taken.
    clock: Epoch,
    payload_max: usize,
    pushed: AtomicU64,
    dropped: AtomicU64,
}

impl OutletQueue {
    pub(super) fn wants(&self, head: &Head) -> bool {
        self.sends.iter().any(|pattern| pattern.has(head)) && !self.closed.load(Ordering::Acquire)
    }

    /// Adds an event to the queue. Its times are those of `clock`. Returns false if the event itself
    /// was dropped.
    pub(super) fn push(&self, head: &Head, payload: &[u8], clock: Epoch) -> bool {
        // The clock is read before the remaining time, so that a pause in between shortens that
        // time.
        let here = self.clock.now();
        let now = clock.now();
        let moved = |time: Time| here.saturating_add(until(time, now));
        let head = Head { sent: here, due: moved(head.due), expires: moved(head.expires), ..*head };
        let number = self.pushed.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        let is_first = waiting.is_empty();
        let kept = waiting.push(self.full, number, &head, payload);
        drop(waiting);
        if !kept {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        wake(&self.word);
        // If the event has been taken by now, the descriptor is readable once in vain. It is never
        // unreadable while an event waits.
        if is_first && let Some(signal) = self.signal.get() {
            signal.raise();
        }
        kept || self.full == Full::Oldest
    }
}

/// A queue of events that leave the channel. After the outlet is dropped, pushes skip it.
pub struct Outlet {
    out: Arc<OutletQueue>,
}

/// Counters of an outlet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutletCounts {
    /// Events that a push offered to the outlet.
    pub pushed: u64,
    /// Events among these that were dropped because the queue was full.
    pub full: u64,
}

/// Room for an event that leaves.
pub struct OutletEvent {
    row: (u64, Stored),
    clock: Epoch,
}

impl OutletEvent {
    /// The event's head. Its times are those of the outlet's clock.
    #[must_use]
    pub fn head(&self) -> Head {
        self.row.1.head
    }

    /// The event's payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.row.1.payload()
    }

    /// Remaining time to live; [`Span::MAX`] if the event does not expire.
    #[must_use]
    pub fn remaining(&self) -> Span {
        until(self.row.1.head.expires, self.clock.now())
    }

    /// Time until the deadline; [`Span::MAX`] if the event has none.
    #[must_use]
    pub fn due(&self) -> Span {
        until(self.row.1.head.due, self.clock.now())
    }
}

impl Outlet {
    pub(super) fn new(sends: &[Pattern], room: usize, full: Full, payload_max: usize) -> Outlet {
        let out = OutletQueue {
            sends: sends.to_vec(),
            waiting: PiMutex::new(Waiting::new(room.clamp(1, ROOM_MAX), payload_max)),
            word: Futex::new(0),
            signal: OnceLock::new(),
            full,
            closed: AtomicBool::new(false),
            clock: Epoch::now_is_zero(),
            payload_max,
            pushed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        Outlet { out: Arc::new(out) }
    }

    pub(super) fn shared(&self) -> Weak<OutletQueue> {
        Arc::downgrade(&self.out)
    }

    /// Room for one event.
    #[must_use]
    pub fn leaving(&self) -> OutletEvent {
        OutletEvent { row: (0, Stored::room(self.out.payload_max)), clock: self.out.clock }
    }

    /// Takes the oldest waiting event, or waits up to `wait` for one. Returns whether it took an
    /// event. Expired events are taken like others.
    pub fn next(&self, into: &mut OutletEvent, wait: Span) -> bool {
        let out = &self.out;
        let give_up = out.clock.now().saturating_add(wait);
        into.clock = out.clock;
        loop {
            let seen = out.word.load(Ordering::Acquire);
            let mut waiting = out.waiting.lock();
            let was_there = waiting.pop(&mut into.row);
            // Under the lock, so that a later push raises the descriptor again.
            if waiting.is_empty()
                && let Some(signal) = out.signal.get()
            {
                signal.lower();
            }
            drop(waiting);
            if was_there {
                return true;
            }
            if out.closed.load(Ordering::Acquire) || out.clock.now() >= give_up {
                return false;
            }
            sync::wait(&out.word, seen, out.clock, give_up);
        }
    }

    /// A descriptor for a loop of `poll` or `epoll`. It is readable while an event waits, until
    /// [`Outlet::next`] has taken the last event. It may be readable once in vain. After the first
    /// call, a push into an empty queue makes one more system call, which does not wait. The outlet
    /// closes the descriptor.
    ///
    /// # Errors
    /// The process has reached its limit of descriptors.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let out = &self.out;
        let waiting = out.waiting.lock();
        let signal = match out.signal.get() {
            Some(signal) => signal,
            None => {
                let new = EventFd::new()?;
                out.signal.get_or_init(|| new)
            }
        };
        if !waiting.is_empty() {
            signal.raise();
        }
        Ok(signal.as_fd())
    }

    /// Stops taking events from pushes, and ends waiting in [`Outlet::next`]. Events in the queue
    /// can still be taken.
    pub fn close(&self) {
        self.out.closed.store(true, Ordering::Release);
        wake(&self.out.word);
    }

    /// The outlet's counters.
    #[must_use]
    pub fn passed(&self) -> OutletCounts {
        let load = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        OutletCounts { pushed: load(&self.out.pushed), full: load(&self.out.dropped) }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.close();
    }
}
