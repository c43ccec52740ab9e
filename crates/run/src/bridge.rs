//! Between tasks of tokio and operations of a dispatcher, behind the feature `tokio`.
//!
//! [`Handle::push`](crate::dispatch::Handle::push) and [`Supplier::push`](crate::event::Supplier::push) may be called by any task as they are: they never wait for anything but a lock with priority
//! inheritance, for moments. What is missing is the way back: to wake a task is to run code of a runtime, with its locks and allocations, which has no place on a real-time thread. Here an
//! operation's handler only leaves what it has to say in a slot, and an ordinary thread of the bridge wakes the task.
//!
//! ```no_run
//! use takt_model::{Builtin, Span};
//! use takt_run::bridge::Requests;
//! use takt_run::dispatch::{Dispatcher, Limits, Operation, Operations};
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let ms = Span::from_ms;
//! let operations = Operations::new("plant").with(Operation::sporadic("valve", ms(2)).wcet(ms(1)).backlog(8));
//! let plan = operations.compute(&Builtin::Edf.strategy(), &Limits::default())?;
//! let valve: Requests<u32, bool> = Requests::new("valve", 8);
//! let dispatching = Dispatcher::new(plan).on("valve", valve.handler(|percent, _job| percent <= 100))?.start()?;
//! let _bridge = valve.connect(&dispatching)?;
//! // By any task, on any runtime thread.
//! let opened = valve.ask(40).await?;
//! assert!(opened);
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use takt_linux::{Epoch, PiMutex, futex};
use takt_model::Span;
use thiserror::Error;
use tokio::sync::oneshot::{self, Sender};

use crate::dispatch::{Dispatching, Handle, IDLE_MAX, Job, PushError, rouse};
use crate::start::STACK_BYTES;

/// How often the bridge looks for jobs that were omitted, while any is awaited.
const LOOK: Span = Span::from_ms(10);
/// Beyond the backlog: for what was answered and not taken to its task yet.
const SPARE: u32 = 8;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The operation was not pushed.
    #[error(transparent)]
    Push(#[from] PushError),
    /// As many questions are open as there is room for.
    #[error("as many questions are open as there is room for")]
    Full,
    /// The job was omitted, shed or dropped, its handler panicked, or the dispatcher stopped.
    #[error("the job did not come to its end")]
    Omitted,
    /// No dispatcher is there to ask.
    #[error("the requests are not connected to a dispatcher, or not any more")]
    NotConnected,
}

/// Why requests were not connected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// They have been before.
    #[error("the requests to \"{0}\" are connected already")]
    Twice(String),
    /// No such operation.
    #[error("the dispatcher has no operation \"{0}\"")]
    Unknown(String),
    /// No thread could be had.
    #[error("the bridge's thread could not be started: {0}")]
    Thread(String),
}

/// Where a question is.
enum Slot<Q, A> {
    Free,
    /// It waits for its job, whose number is known once that was pushed.
    Asked(Option<u64>, Q, Sender<A>),
    Runs(u64, Sender<A>),
    Answered(A, Sender<A>),
}

struct Inner<Q, A> {
    operation: String,
    slots: Vec<PiMutex<Slot<Q, A>>>,
    handle: PiMutex<Option<Handle>>,
    /// A futex of the bridge's thread.
    word: AtomicU32,
    stopped: AtomicBool,
    omitted: AtomicU64,
}

/// Questions to an operation, and its answers. A copy is the same one.
pub struct Requests<Q, A> {
    inner: Arc<Inner<Q, A>>,
}

impl<Q, A> Clone for Requests<Q, A> {
    fn clone(&self) -> Self {
        Requests { inner: self.inner.clone() }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Requests<Q, A> {
    /// To a sporadic operation with this backlog, which nobody else pushes.
    #[must_use]
    pub fn new(operation: &str, backlog: u32) -> Self {
        let inner = Inner {
            operation: operation.to_owned(),
            slots: (0..backlog.saturating_add(SPARE)).map(|_| PiMutex::new(Slot::Free)).collect(),
            handle: PiMutex::new(None),
            word: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            omitted: AtomicU64::new(0),
        };
        Requests { inner: Arc::new(inner) }
    }

    /// The handler to give to the operation: it calls yours with the question of each job. It allocates nothing and wakes no task; what yours is given and gives is moved.
    pub fn handler(
        &self,
        mut answer: impl FnMut(Q, &Job<'_>) -> A + Send + 'static,
    ) -> impl FnMut(&Job<'_>) + Send + 'static {
        let inner = self.inner.clone();
        move |job| {
            let Some((slot, question)) = inner.take(job.number()) else { return };
            let given = answer(question, job);
            inner.give(slot, given);
        }
    }

    /// Questions are asked of this dispatcher from now on, until the value that is returned is dropped.
    ///
    /// # Errors
    /// It has no such operation, or no thread could be had.
    pub fn connect(&self, dispatching: &Dispatching) -> Result<Bridge, BridgeError> {
        let operation = || self.inner.operation.clone();
        let mut slot = self.inner.handle.lock();
        if slot.is_some() {
            return Err(BridgeError::Twice(operation()));
        }
        let handle = dispatching.operation(&self.inner.operation).ok_or_else(|| BridgeError::Unknown(operation()))?;
        self.inner.stopped.store(false, Ordering::Release);
        let (inner, own) = (self.inner.clone(), handle.clone());
        let thread = std::thread::Builder::new().name("takt bridge".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || inner.carry(&own)).map_err(|error| BridgeError::Thread(error.to_string()))?;
        *slot = Some(handle);
        let inner = self.inner.clone();
        let end = move || {
            *inner.handle.lock() = None;
            inner.stopped.store(true, Ordering::Release);
            rouse(&inner.word);
        };
        Ok(Bridge { end: Some(Box::new(end)), thread: Some(thread) })
    }

    /// Pushes the operation with a question, and waits for its answer. Dropped before that, the job runs all the same, and its answer is for nobody.
    ///
    /// # Errors
    /// The operation was not pushed, or its job did not come to its end.
    pub async fn ask(&self, question: Q) -> Result<A, AskError> {
        let (sender, receiver) = oneshot::channel();
        self.inner.ask(question, sender)?;
        receiver.await.map_err(|_| AskError::Omitted)
    }

    /// Questions that were given up because their job did not come to its end.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.inner.omitted.load(Ordering::Relaxed)
    }
}

impl<Q, A> Inner<Q, A> {
    fn ask(&self, question: Q, sender: Sender<A>) -> Result<(), AskError> {
        let handle = self.handle.lock().clone().ok_or(AskError::NotConnected)?;
        let mut asked = Some((question, sender));
        let put = |slot: &&PiMutex<Slot<Q, A>>| {
            let mut slot = slot.lock();
            if !matches!(*slot, Slot::Free) {
                return false;
            }
            if let Some((question, sender)) = asked.take() {
                *slot = Slot::Asked(None, question, sender);
            }
            true
        };
        let slot = self.slots.iter().find(put).ok_or(AskError::Full)?;
        let named = |job: u64, _| {
            if let Slot::Asked(number, ..) = &mut *slot.lock() {
                *number = Some(job);
            }
        };
        if let Err(error) = handle.push_with(named) {
            let mut state = slot.lock();
            if matches!(*state, Slot::Asked(None, ..)) {
                *state = Slot::Free;
            }
            return Err(error.into());
        }
        // So that it looks whether the job was omitted.
        rouse(&self.word);
        if self.stopped.load(Ordering::Acquire) {
            self.give_up(|_| true);
        }
        Ok(())
    }

    /// The question of a job, which runs now.
    fn take(&self, job: u64) -> Option<(&PiMutex<Slot<Q, A>>, Q)> {
        self.slots.iter().find_map(|slot| {
            let mut state = slot.lock();
            if !matches!(*state, Slot::Asked(Some(number), ..) if number == job) {
                return None;
            }
            let Slot::Asked(_, question, sender) = std::mem::replace(&mut *state, Slot::Free) else { return None };
            *state = Slot::Runs(job, sender);
            Some((slot, question))
        })
    }

    fn give(&self, slot: &PiMutex<Slot<Q, A>>, answer: A) {
        {
            let mut state = slot.lock();
            if let Slot::Runs(_, sender) = std::mem::replace(&mut *state, Slot::Free) {
                *state = Slot::Answered(answer, sender);
            }
        }
        rouse(&self.word);
    }

    /// The bridge's thread, for its whole life.
    fn carry(&self, handle: &Handle) {
        let clock = Epoch::now_is_zero();
        loop {
            let seen = self.word.load(Ordering::Acquire);
            let stopped = self.stopped.load(Ordering::Acquire);
            // Before the slots: what ends after this is looked at the next time.
            let oldest = handle.oldest().unwrap_or(u64::MAX);
            for slot in &self.slots {
                let taken = {
                    let mut state = slot.lock();
                    match *state {
                        Slot::Answered(..) => std::mem::replace(&mut *state, Slot::Free),
                        _ => Slot::Free,
                    }
                };
                if let Slot::Answered(answer, sender) = taken {
                    // A task that does not wait any more.
                    let _ = sender.send(answer);
                }
            }
            self.give_up(|number| number.is_some_and(|number| number < oldest));
            if stopped {
                return self.give_up(|_| true);
            }
            let waits = self.slots.iter().any(|slot| !matches!(*slot.lock(), Slot::Free));
            futex::wait(&self.word, seen, clock, clock.now().saturating_add(if waits { LOOK } else { IDLE_MAX }));
        }
    }

    /// Frees the slots whose job is gone: their tasks are told.
    fn give_up(&self, gone: impl Fn(Option<u64>) -> bool) {
        for slot in &self.slots {
            let given_up = {
                let mut state = slot.lock();
                match &*state {
                    Slot::Asked(number, ..) if gone(*number) => std::mem::replace(&mut *state, Slot::Free),
                    Slot::Runs(number, _) if gone(Some(*number)) => std::mem::replace(&mut *state, Slot::Free),
                    _ => Slot::Free,
                }
            };
            if !matches!(given_up, Slot::Free) {
                self.omitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Questions are asked and answered while this is there. To be dropped before its dispatcher.
#[must_use = "the requests are disconnected when this is dropped"]
pub struct Bridge {
    end: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
