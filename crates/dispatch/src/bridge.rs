//! A bridge between tasks of tokio and operations of a dispatcher, behind the feature `tokio`.
//!
//! Any task may call [`Handle::push`](crate::Handle::push) and
//! [`Supplier::push`](crate::event::Supplier::push) directly. They wait only for locks with
//! priority inheritance, for moments. There is one exception: a
//! [`Patient`](crate::event::Sending::Patient) level between nodes waits for the network, so tasks
//! should not push events for such a level.
//!
//! This module adds the way back. Waking a task runs code of a runtime, with its locks and
//! allocations, which must not happen on a real-time thread. So an operation's handler only leaves
//! its answer in a slot, and an ordinary thread of the bridge wakes the task.
//!
//! ```no_run
//! use takt_model::{Builtin, Span};
//! use takt_dispatch::bridge::Requests;
//! use takt_dispatch::{Dispatcher, Limits, Operation, Operations};
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let ms = Span::from_ms;
//! let operations = Operations::new("plant").with(Operation::sporadic("valve", ms(2)).wcet(ms(1)).backlog(8));
//! let plan = operations.compute(&Builtin::Edf.strategy(), &Limits::default())?;
//! let valve: Requests<u32, bool> = Requests::new("valve", 8);
//! let dispatching = Dispatcher::new(plan).on_requests(&valve, |percent, _job| percent <= 100)?.start()?;
//! let _bridge = valve.connect(&dispatching)?;
//! // By any task, on any runtime thread.
//! let opened = valve.ask(40).await?;
//! assert!(opened);
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use takt_linux::{Class, ClassGuard, Epoch, PiMutex, sched};
use takt_model::Span;
use thiserror::Error;
use tokio::sync::oneshot::{self, Sender};

use crate::gate::STACK_BYTES;
use crate::sync::{self, Futex, wake};
use crate::{BACKLOG_MAX, Dispatcher, Dispatching, Handle, IDLE_MAX, Job, PushError, StartError};

/// How often the bridge checks for omitted jobs while questions are open.
const LOOK: Span = Span::from_ms(10);
/// Slots beyond the backlog, for answers that have not reached their task.
const SPARE: u32 = 8;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The operation was not pushed.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Too many questions are open for the requests. If the operation's backlog is full, the error
    /// is [`AskError::Push`].
    #[error(
        "all places for open requests are taken (the backlog of Requests::new, and {SPARE} more), whatever the \
         operation's backlog"
    )]
    Full,
    /// The job was omitted, shed or dropped, its handler panicked, or the dispatcher stopped.
    #[error("the job did not come to its end")]
    Omitted,
    /// The requests are not connected to a dispatcher.
    #[error("the requests are not connected to a dispatcher, or not any more")]
    NotConnected,
}

/// Why requests were not connected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// They are connected already.
    #[error("the requests to \"{0}\" are connected already")]
    Twice(String),
    /// The plan has no such operation.
    #[error("the dispatcher has no operation \"{0}\"")]
    Unknown(String),
    /// The operation is not released by pushes.
    #[error("operation \"{0}\" is released by a timer or by the end of others; requests need a sporadic operation")]
    NotPushed(String),
    /// The backlog of the requests is above the limit.
    #[error(
        "the requests to \"{operation}\" are for a backlog of {backlog}; {BACKLOG_MAX} is the greatest (Requests::new)"
    )]
    Backlog {
        /// The operation's name.
        operation: String,
        /// The backlog of the requests.
        backlog: u32,
    },
    /// The thread could not start.
    #[error("the bridge's thread could not be started: {0}")]
    Thread(String),
}

/// The state of a question. A slot belongs to its job until the job has left its handler.
enum Slot<Q, A> {
    Free,
    /// The question waits for its job, whose number is known after the push.
    Waiting(Option<u64>, Q, Sender<A>),
    Runs(u64, Sender<A>),
    /// The job runs, but its answer is not wanted: it was dropped at its deadline, or the requests
    /// were disconnected.
    Abandoned,
    /// The handler has returned an answer, or panicked.
    Done(Option<A>, Option<Sender<A>>),
}

/// Requests while they are connected.
struct Link<Q, A> {
    handle: Handle,
    slots: Vec<PiMutex<Slot<Q, A>>>,
    /// A futex of the bridge's thread.
    word: Futex,
    stopped: AtomicBool,
}

struct Inner<Q, A> {
    operation: String,
    backlog: u32,
    link: PiMutex<Option<Arc<Link<Q, A>>>>,
    /// Disconnected links that a handler may still hold. They are kept here, so that a handler is
    /// never the last holder and frees nothing on its thread. There are at most as many as
    /// dispatchers whose handler has not returned, plus one.
    former: PiMutex<Vec<Arc<Link<Q, A>>>>,
    omitted: AtomicU64,
    misplaced: AtomicU64,
}

/// Questions to an operation and their answers. Clones share them.
pub struct Requests<Q, A> {
    inner: Arc<Inner<Q, A>>,
}

impl<Q, A> Clone for Requests<Q, A> {
    fn clone(&self) -> Self {
        Requests { inner: self.inner.clone() }
    }
}

impl<Q, A> Inner<Q, A> {
    /// Counts a job of another operation. A job of another dispatcher has no question either, but
    /// does not count.
    #[cold]
    fn count_misplaced(&self, job: &Job<'_>) {
        if job.name() != self.operation {
            self.misplaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps this link, if any, while a handler holds it. Drops former links that no handler holds.
    fn part_from(&self, link: Option<Arc<Link<Q, A>>>) {
        let over: Vec<_> = {
            let mut former = self.former.lock();
            former.extend(link);
            // A link that no thread holds now cannot be obtained again.
            former.extract_if(.., |link| Arc::strong_count(link) == 1).collect()
        };
        // Outside the lock, because dropped questions and answers run the program's code.
        drop(over);
    }
}

impl<Q: Send + 'static, A: Send + 'static> Requests<Q, A> {
    /// Requests to a sporadic operation with this backlog, at most 65,536. No other caller may push
    /// the operation. With a backlog below the operation's, questions fail with [`AskError::Full`]
    /// while the operation has room. With a larger one, they fail with [`PushError::Full`].
    #[must_use]
    pub fn new(operation: &str, backlog: u32) -> Self {
        let operation = operation.to_owned();
        let (link, former) = (PiMutex::new(None), PiMutex::new(Vec::new()));
        let inner =
            Inner { operation, backlog, link, former, omitted: AtomicU64::new(0), misplaced: AtomicU64::new(0) };
        Requests { inner: Arc::new(inner) }
    }

    /// Makes a handler for the operation that calls yours with the question of each job. It
    /// allocates and frees nothing, and wakes no task. Questions and answers are moved, so your
    /// handler drops the question. If you give it to another operation, yours is never called, and
    /// [`Requests::misplaced`] counts the jobs. [`Dispatcher::on_requests`] avoids this error.
    pub fn handler(
        &self,
        mut answer: impl FnMut(Q, &Job<'_>) -> A + Send + 'static,
    ) -> impl FnMut(&Job<'_>) + Send + 'static {
        let inner = self.inner.clone();
        move |job| {
            let link = inner.link.lock().clone();
            // Jobs of other dispatchers and operations repeat numbers.
            let Some(link) = link.filter(|link| link.handle.operation() == job.operation()) else {
                return inner.count_misplaced(job);
            };
            let Some((slot, question)) = link.take(job.number()) else { return };
            let mut leaving = HandlerGuard { link: &link, slot, answer: None };
            leaving.answer = Some(answer(question, job));
        }
    }

    /// Sends questions to this dispatcher until the returned value is dropped.
    ///
    /// # Errors
    /// The dispatcher has no such operation, or one that is not sporadic; the requests' backlog is
    /// too large; or the thread could not start.
    pub fn connect(&self, dispatching: &Dispatching) -> Result<Bridge, BridgeError> {
        let operation = || self.inner.operation.clone();
        self.inner.part_from(None);
        let mut place = self.inner.link.lock();
        if place.is_some() {
            return Err(BridgeError::Twice(operation()));
        }
        let handle = dispatching.operation(&self.inner.operation).ok_or_else(|| BridgeError::Unknown(operation()))?;
        let plan = dispatching.plan();
        if plan.rows.iter().any(|row| row.name == self.inner.operation && !plan.is_pushed(row)) {
            return Err(BridgeError::NotPushed(operation()));
        }
        let backlog = self.inner.backlog;
        if backlog > BACKLOG_MAX {
            return Err(BridgeError::Backlog { operation: operation(), backlog });
        }
        let slots = backlog.saturating_add(SPARE);
        let link = Arc::new(Link {
            handle,
            slots: (0..slots).map(|_| PiMutex::new(Slot::Free)).collect(),
            word: Futex::new(0),
            stopped: AtomicBool::new(false),
        });
        let (inner, own) = (self.inner.clone(), link.clone());
        let thread = std::thread::Builder::new().name("takt bridge".to_owned()).stack_size(STACK_BYTES);
        let carry = move || own.carry(&inner.omitted);
        let thread = thread.spawn(carry).map_err(|error| BridgeError::Thread(error.to_string()))?;
        *place = Some(link.clone());
        let inner = self.inner.clone();
        let stop = move || {
            link.stopped.store(true, Ordering::Release);
            wake(&link.word);
        };
        let forget = move || {
            let link = inner.link.lock().take();
            inner.part_from(link);
        };
        Ok(Bridge { stop: Some(Box::new(stop)), thread: Some(thread), forget: Some(Box::new(forget)) })
    }

    /// Pushes the operation with a question and waits for its answer. If the future is dropped, the
    /// job still runs, and its answer is dropped.
    ///
    /// # Errors
    /// The operation was not pushed, or its job did not complete.
    pub async fn ask(&self, question: Q) -> Result<A, AskError> {
        let (sender, receiver) = oneshot::channel();
        let link = self.inner.link.lock().clone();
        let link = link.filter(|link| !link.stopped.load(Ordering::Acquire)).ok_or(AskError::NotConnected)?;
        link.ask(question, sender)?;
        // The bridge may not look at this slot any more.
        if link.stopped.load(Ordering::Acquire) {
            link.finish(&self.inner.omitted);
        }
        drop(link);
        receiver.await.map_err(|_| AskError::Omitted)
    }

    /// Questions given up because their job did not complete.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.inner.omitted.load(Ordering::Relaxed)
    }

    /// Jobs of other operations that ran the requests' handler. The program attached the handler to
    /// the wrong operation. Questions to the right operation are then given up.
    #[must_use]
    pub fn misplaced(&self) -> u64 {
        self.inner.misplaced.load(Ordering::Relaxed)
    }
}

impl Dispatcher {
    /// Sets the handler of these requests' operation. It is called with the question of each job,
    /// and runs as one set by [`Dispatcher::on`] does.
    ///
    /// # Errors
    /// The plan has no such operation, or the operation has a handler already.
    pub fn on_requests<Q: Send + 'static, A: Send + 'static>(
        self,
        requests: &Requests<Q, A>,
        answer: impl FnMut(Q, &Job<'_>) -> A + Send + 'static,
    ) -> Result<Dispatcher, StartError> {
        self.on(&requests.inner.operation, requests.handler(answer))
    }
}

impl<Q, A> Link<Q, A> {
    fn ask(&self, question: Q, sender: Sender<A>) -> Result<(), AskError> {
        let mut asked = Some((question, sender));
        let put = |slot: &&PiMutex<Slot<Q, A>>| {
            let mut slot = slot.lock();
            let free = matches!(*slot, Slot::Free);
            if let Some((question, sender)) = asked.take_if(|_| free) {
                *slot = Slot::Waiting(None, question, sender);
            }
            free
        };
        let slot = self.slots.iter().find(put).ok_or(AskError::Full)?;
        let named = |job: u64, _| {
            if let Slot::Waiting(number, ..) = &mut *slot.lock() {
                *number = Some(job);
            }
        };
        if let Err(error) = self.handle.push_with(named) {
            exchange(slot, |state| matches!(state, Slot::Waiting(None, ..)));
            return Err(error.into());
        }
        // So that the thread checks whether the job was omitted.
        wake(&self.word);
        Ok(())
    }

    /// Takes the question of a job that runs now.
    fn take(&self, job: u64) -> Option<(&PiMutex<Slot<Q, A>>, Q)> {
        self.slots.iter().find_map(|slot| {
            let mut state = slot.lock();
            if !matches!(*state, Slot::Waiting(Some(number), ..) if number == job) {
                return None;
            }
            let Slot::Waiting(_, question, sender) = std::mem::replace(&mut *state, Slot::Free) else { return None };
            *state = Slot::Runs(job, sender);
            Some((slot, question))
        })
    }

    /// The body of the bridge's thread.
    fn carry(&self, omitted: &AtomicU64) {
        // A thread starts in the class of its creator, which may be a real-time class. Leaving that
        // class for good needs no privilege.
        if sched::current() != Class::Other {
            let _ = ClassGuard::enter(&Class::Other).map(std::mem::forget);
        }
        let clock = Epoch::now_is_zero();
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if self.stopped.load(Ordering::Acquire) {
                return self.finish(omitted);
            }
            // Read before the slots. Jobs that end later are seen in the next pass.
            let oldest = self.handle.oldest().unwrap_or(u64::MAX);
            let over = self.handle.is_stopping();
            self.deliver(omitted);
            self.give_up(omitted, |job| over || job.is_some_and(|job| job < oldest), |job| job < oldest);
            let waits = self.slots.iter().any(|slot| !matches!(*slot.lock(), Slot::Free));
            sync::wait(&self.word, seen, clock, clock.now().saturating_add(if waits { LOOK } else { IDLE_MAX }));
        }
    }

    /// Sends answers to their tasks and frees the slots.
    fn deliver(&self, omitted: &AtomicU64) {
        for slot in &self.slots {
            match exchange(slot, |state| matches!(state, Slot::Done(..))) {
                // If the task no longer waits, the answer is dropped.
                Slot::Done(Some(answer), Some(sender)) => drop(sender.send(answer)),
                Slot::Done(None, Some(_)) => {
                    omitted.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }

    /// Gives up questions whose job will not run, or whose answer is not wanted.
    fn give_up(&self, omitted: &AtomicU64, waits: impl Fn(Option<u64>) -> bool, runs: impl Fn(u64) -> bool) {
        for slot in &self.slots {
            let given_up = {
                let mut state = slot.lock();
                match &*state {
                    Slot::Waiting(job, ..) if waits(*job) => std::mem::replace(&mut *state, Slot::Free),
                    Slot::Runs(job, _) if runs(*job) => std::mem::replace(&mut *state, Slot::Abandoned),
                    _ => continue,
                }
            };
            // Before the task wakes, because the task may read the count.
            omitted.fetch_add(1, Ordering::Relaxed);
            drop(given_up);
        }
    }

    /// Gives up all questions. The slots are not used after this.
    fn finish(&self, omitted: &AtomicU64) {
        self.deliver(omitted);
        self.give_up(omitted, |_| true, |_| true);
        // Deliver answers given meanwhile.
        self.deliver(omitted);
    }
}

/// Frees a slot in the state `such` and returns its content, to be dropped outside the lock.
fn exchange<Q, A>(slot: &PiMutex<Slot<Q, A>>, such: impl FnOnce(&Slot<Q, A>) -> bool) -> Slot<Q, A> {
    let mut state = slot.lock();
    if such(&state) { std::mem::replace(&mut *state, Slot::Free) } else { Slot::Free }
}

/// A running handler. When it returns or panics, its slot goes back to the bridge.
struct HandlerGuard<'a, Q, A> {
    link: &'a Link<Q, A>,
    slot: &'a PiMutex<Slot<Q, A>>,
    answer: Option<A>,
}

impl<Q, A> Drop for HandlerGuard<'_, Q, A> {
    fn drop(&mut self) {
        let answer = self.answer.take();
        {
            let mut state = self.slot.lock();
            let before = std::mem::replace(&mut *state, Slot::Free);
            let sender = if let Slot::Runs(_, sender) = before { Some(sender) } else { None };
            *state = Slot::Done(answer, sender);
        }
        wake(&self.link.word);
    }
}

/// A connection of requests to a dispatcher. Questions are answered while it exists. A handler may
/// still run when it is dropped. Its answer is dropped by the next [`Requests::connect`], by the
/// end of the next bridge, or with the requests after the dispatcher has stopped. Until then its
/// handler holds the requests too.
#[must_use = "the requests are disconnected when this is dropped"]
pub struct Bridge {
    stop: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
    forget: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(forget) = self.forget.take() {
            forget();
        }
    }
}
