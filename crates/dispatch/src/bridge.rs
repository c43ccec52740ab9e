//! Between tasks of tokio and operations of a dispatcher, behind the feature `tokio`.
//!
//! [`Handle::push`](crate::Handle::push) and [`Supplier::push`](crate::event::Supplier::push) may be called by any task as they are: they never wait for anything but a lock with priority
//! inheritance, for moments (and, where a level between nodes is [`Patient`](crate::event::Sending::Patient), for the network: tasks should not push what such a level sends). What is missing is the way back: to wake a task is to run code of a runtime, with its locks and allocations, which has no place on a real-time thread. Here an
//! operation's handler only leaves what it has to say in a slot, and an ordinary thread of the bridge wakes the task.
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
use crate::sync::{self, Word, rouse};
use crate::{BACKLOG_MAX, Dispatcher, Dispatching, Handle, IDLE_MAX, Job, PushError, StartError};

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
    /// As many questions are open as the requests have room for. That the operation has none is [`AskError::Push`].
    #[error(
        "as many questions are open as the requests have room for (the backlog of Requests::new, and {SPARE} more), whatever room the operation has"
    )]
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
    /// Nobody can ask it: there is no push.
    #[error("operation \"{0}\" is released by a timer or by the end of others; one that is asked is to be sporadic")]
    NotPushed(String),
    /// Room for more questions than a backlog can have.
    #[error(
        "the requests to \"{operation}\" are for a backlog of {backlog}; {BACKLOG_MAX} is the greatest (Requests::new)"
    )]
    Backlog {
        /// Of which operation.
        operation: String,
        /// For what they are.
        backlog: u32,
    },
    /// No thread could be had.
    #[error("the bridge's thread could not be started: {0}")]
    Thread(String),
}

/// Where a question is. A slot is its job's until that has left its handler.
enum Slot<Q, A> {
    Free,
    /// It waits for its job, whose number is known once that was pushed.
    Asked(Option<u64>, Q, Sender<A>),
    Runs(u64, Sender<A>),
    /// It runs for nobody: it was dropped at its deadline, or the requests were disconnected.
    Abandoned,
    /// The handler has left: with an answer, or by a panic.
    Done(Option<A>, Option<Sender<A>>),
}

/// Requests while they are connected.
struct Link<Q, A> {
    handle: Handle,
    slots: Vec<PiMutex<Slot<Q, A>>>,
    /// A futex of the bridge's thread.
    word: Word,
    stopped: AtomicBool,
}

struct Inner<Q, A> {
    operation: String,
    backlog: u32,
    link: PiMutex<Option<Arc<Link<Q, A>>>>,
    /// Links that were disconnected and that a handler may have still: so that it is never the last one that does, which would free them on its thread.
    /// No more than there are dispatchers whose handler has not returned, and one.
    former: PiMutex<Vec<Arc<Link<Q, A>>>>,
    omitted: AtomicU64,
    misplaced: AtomicU64,
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

impl<Q, A> Inner<Q, A> {
    /// A job that nobody asked: of a dispatcher that the requests are not connected to, or of an operation that is not theirs.
    #[cold]
    fn is_no_asked(&self, job: &Job<'_>) {
        if job.name() != self.operation {
            self.misplaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps this link, if any, as long as a handler has it, and drops former ones that none has any more.
    fn part_from(&self, link: Option<Arc<Link<Q, A>>>) {
        let over: Vec<_> = {
            let mut former = self.former.lock();
            former.extend(link);
            // Nobody gets hold of it any more who has not by now.
            former.extract_if(.., |link| Arc::strong_count(link) == 1).collect()
        };
        // Without the lock, for there may be questions and answers in it.
        drop(over);
    }
}

impl<Q: Send + 'static, A: Send + 'static> Requests<Q, A> {
    /// To a sporadic operation with this backlog (65,536 at most), which nobody else pushes. It is not compared with the operation's: for less than that has, questions are [`AskError::Full`] while the
    /// operation has room; for more, they are [`PushError::Full`].
    #[must_use]
    pub fn new(operation: &str, backlog: u32) -> Self {
        let operation = operation.to_owned();
        let (link, former) = (PiMutex::new(None), PiMutex::new(Vec::new()));
        let inner =
            Inner { operation, backlog, link, former, omitted: AtomicU64::new(0), misplaced: AtomicU64::new(0) };
        Requests { inner: Arc::new(inner) }
    }

    /// The handler to give to the operation: it calls yours with the question of each job. It allocates and frees nothing, and wakes no task; what yours is given and gives is moved, so that it is yours that drops a question.
    /// Given to another operation it calls yours for none of its jobs, and they are counted ([`Requests::misplaced`]). [`Dispatcher::on_requests`] cannot be wrong about that.
    pub fn handler(
        &self,
        mut answer: impl FnMut(Q, &Job<'_>) -> A + Send + 'static,
    ) -> impl FnMut(&Job<'_>) + Send + 'static {
        let inner = self.inner.clone();
        move |job| {
            let link = inner.link.lock().clone();
            // Jobs of another dispatcher, and of another operation, have the same numbers.
            let Some(link) = link.filter(|link| link.handle.operation() == job.operation()) else {
                return inner.is_no_asked(job);
            };
            let Some((slot, question)) = link.take(job.number()) else { return };
            let mut leaving = Leaving { link: &link, slot, answer: None };
            leaving.answer = Some(answer(question, job));
        }
    }

    /// Questions are asked of this dispatcher from now on, until the value that is returned is dropped.
    ///
    /// # Errors
    /// It has no such operation, or one that is not sporadic; the requests are for too great a backlog; or no thread could be had.
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
            word: Word::new(0),
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
            rouse(&link.word);
        };
        let forget = move || {
            let link = inner.link.lock().take();
            inner.part_from(link);
        };
        Ok(Bridge { stop: Some(Box::new(stop)), thread: Some(thread), forget: Some(Box::new(forget)) })
    }

    /// Pushes the operation with a question, and waits for its answer. Dropped before that, the job runs all the same, and its answer is for nobody.
    ///
    /// # Errors
    /// The operation was not pushed, or its job did not come to its end.
    pub async fn ask(&self, question: Q) -> Result<A, AskError> {
        let (sender, receiver) = oneshot::channel();
        let link = self.inner.link.lock().clone();
        let link = link.filter(|link| !link.stopped.load(Ordering::Acquire)).ok_or(AskError::NotConnected)?;
        link.ask(question, sender)?;
        // Nobody may look at it any more.
        if link.stopped.load(Ordering::Acquire) {
            link.finish(&self.inner.omitted);
        }
        drop(link);
        receiver.await.map_err(|_| AskError::Omitted)
    }

    /// Questions that were given up because their job did not come to its end.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.inner.omitted.load(Ordering::Relaxed)
    }

    /// Jobs of other operations that their handler was called for: a defect of the program, which has given it to the wrong one. Questions to the right operation are given up then.
    #[must_use]
    pub fn misplaced(&self) -> u64 {
        self.inner.misplaced.load(Ordering::Relaxed)
    }
}

impl Dispatcher {
    /// The code of the operation that these requests go to, called with the question of each job. It runs as one given by [`Dispatcher::on`] does.
    ///
    /// # Errors
    /// The plan has no such operation, or it has code already.
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
                *slot = Slot::Asked(None, question, sender);
            }
            free
        };
        let slot = self.slots.iter().find(put).ok_or(AskError::Full)?;
        let named = |job: u64, _| {
            if let Slot::Asked(number, ..) = &mut *slot.lock() {
                *number = Some(job);
            }
        };
        if let Err(error) = self.handle.push_with(named) {
            exchange(slot, |state| matches!(state, Slot::Asked(None, ..)));
            return Err(error.into());
        }
        // So that it looks whether the job was omitted.
        rouse(&self.word);
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

    /// The bridge's thread, for its whole life.
    fn carry(&self, omitted: &AtomicU64) {
        // A thread begins in the class of who starts it, which may be a real-time one; to leave that, and for good, takes no privilege.
        if sched::current() != Class::Other {
            let _ = ClassGuard::enter(&Class::Other).map(std::mem::forget);
        }
        let clock = Epoch::now_is_zero();
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if self.stopped.load(Ordering::Acquire) {
                return self.finish(omitted);
            }
            // Before the slots: what ends after this is looked at the next time.
            let oldest = self.handle.oldest().unwrap_or(u64::MAX);
            let over = self.handle.is_stopping();
            self.deliver(omitted);
            self.give_up(omitted, |job| over || job.is_some_and(|job| job < oldest), |job| job < oldest);
            let waits = self.slots.iter().any(|slot| !matches!(*slot.lock(), Slot::Free));
            sync::wait(&self.word, seen, clock, clock.now().saturating_add(if waits { LOOK } else { IDLE_MAX }));
        }
    }

    /// Takes answers to their tasks, and frees the slots.
    fn deliver(&self, omitted: &AtomicU64) {
        for slot in &self.slots {
            match exchange(slot, |state| matches!(state, Slot::Done(..))) {
                // Of a task that does not wait any more, it is dropped.
                Slot::Done(Some(answer), Some(sender)) => drop(sender.send(answer)),
                Slot::Done(None, Some(_)) => {
                    omitted.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }

    /// Tells the tasks whose job will not run, or runs for nobody any more.
    fn give_up(&self, omitted: &AtomicU64, waits: impl Fn(Option<u64>) -> bool, runs: impl Fn(u64) -> bool) {
        for slot in &self.slots {
            let given_up = {
                let mut state = slot.lock();
                match &*state {
                    Slot::Asked(job, ..) if waits(*job) => std::mem::replace(&mut *state, Slot::Free),
                    Slot::Runs(job, _) if runs(*job) => std::mem::replace(&mut *state, Slot::Abandoned),
                    _ => continue,
                }
            };
            // Before the task is woken, which may look at it.
            omitted.fetch_add(1, Ordering::Relaxed);
            drop(given_up);
        }
    }

    /// Nobody looks at the slots after this.
    fn finish(&self, omitted: &AtomicU64) {
        self.deliver(omitted);
        self.give_up(omitted, |_| true, |_| true);
        // What was answered in between.
        self.deliver(omitted);
    }
}

/// Frees a slot in such a state, and gives what was in it: to be dropped without its lock.
fn exchange<Q, A>(slot: &PiMutex<Slot<Q, A>>, such: impl FnOnce(&Slot<Q, A>) -> bool) -> Slot<Q, A> {
    let mut state = slot.lock();
    if such(&state) { std::mem::replace(&mut *state, Slot::Free) } else { Slot::Free }
}

/// A handler that runs: when it leaves, by a panic too, its slot is the bridge's again.
struct Leaving<'a, Q, A> {
    link: &'a Link<Q, A>,
    slot: &'a PiMutex<Slot<Q, A>>,
    answer: Option<A>,
}

impl<Q, A> Drop for Leaving<'_, Q, A> {
    fn drop(&mut self) {
        let answer = self.answer.take();
        {
            let mut state = self.slot.lock();
            let before = std::mem::replace(&mut *state, Slot::Free);
            let sender = if let Slot::Runs(_, sender) = before { Some(sender) } else { None };
            *state = Slot::Done(answer, sender);
        }
        rouse(&self.link.word);
    }
}

/// Questions are asked and answered while this is there. An answer of a handler that still ran when it was dropped is dropped by the next [`Requests::connect`], the next bridge's end, or with the requests
/// once the dispatcher has stopped: until then its handler has them, too.
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
