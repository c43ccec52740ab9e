//! Loads of experiments: threads that each do one thing for a while, in a scheduling class of their
//! own.
//!
//! The function [`together`] starts all threads at one instant and ends them at another. Each
//! thread sets its own class and gives it back. All of them check the clock while they work. So no
//! thread outlives the end by more than the period of its reservation. Times count from the common
//! start.
//!
//! ```no_run
//! use takt_linux::{Class, Reservation};
//! use takt_model::Span;
//! use takt_run::load::{Member, Place, greedy, together};
//!
//! let ms = Span::from_ms;
//! let reserved = Class::Deadline(Reservation { runtime: ms(10), deadline: ms(40), period: ms(40) });
//! let members = vec![Member::new("greedy", reserved, greedy)];
//! let ended = together(members, &Place::Anywhere, Span::from_s(1), &mut |_now| true)?;
//! println!("{:?}", ended.values);
//! # Ok::<(), takt_run::RunError>(())
//! ```

mod bodies;
mod busy;
mod player;
mod served;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::ScopedJoinHandle;

use takt_dispatch::gate::{GO_ABORT, GO_RUN, GO_WAIT, READY_MAX, STACK_BYTES, STACK_TOUCHED, wait_for_go};
use takt_linux::cpuset::recover;
use takt_linux::cpuset::{CpusetError, Partitions};
use takt_linux::{Class, ClassGuard, Epoch, SchedError, clock, futex, memory, sched};
use takt_model::{Bytes, Span, Time};

use crate::error::RunError;
use crate::work::{Work, Worked};

pub use bodies::{CpuUse, Finished, greedy, periodic};
pub use busy::Busy;
pub use player::{FrameSequence, ShowTimes, player};
pub use served::{Driver, Line, Reader, driver, reader};

/// A thread that will run.
pub struct Member<'a, T> {
    name: String,
    class: Class,
    body: Body<'a, T>,
}

type Body<'a, T> = Box<dyn FnOnce(&mut LoadContext) -> T + Send + 'a>;

impl<'a, T> Member<'a, T> {
    /// A thread of this name (the kernel keeps 15 bytes of the name) and class that runs `body`.
    #[must_use]
    pub fn new(name: &str, class: Class, body: impl FnOnce(&mut LoadContext) -> T + Send + 'a) -> Self {
        Member { name: name.to_owned(), class, body: Box::new(body) }
    }
}

/// The CPUs on which threads may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// On all CPUs of this process.
    Anywhere,
    /// This CPU (the kernel's number). Threads under SCHED_DEADLINE get a scheduling domain of this
    /// CPU, which needs a cpuset. The cpuset affects the whole machine while it lasts, and is
    /// undone on every way out.
    Cpu(u32),
}

/// The environment of a body.
pub struct LoadContext {
    epoch: Epoch,
    end: Arc<AtomicU64>,
    work: Work,
}

impl LoadContext {
    /// Time since the common start.
    #[must_use]
    pub fn now(&self) -> Time {
        self.epoch.now()
    }

    /// The end of the experiment; it may still move to an earlier time.
    #[must_use]
    pub fn end(&self) -> Time {
        Time::from_ns(self.end.load(Ordering::Acquire))
    }

    /// Whether the end has come.
    #[must_use]
    pub fn over(&self) -> bool {
        self.now() >= self.end()
    }

    /// Uses `demand` of CPU time; `false` if the end came first.
    pub fn work(&mut self, demand: Span) -> bool {
        let until = clock::thread_cpu().saturating_add(demand);
        let end = &self.end;
        self.work.until(until, self.epoch, || Time::from_ns(end.load(Ordering::Acquire))) == Worked::Done
    }

    /// Sleeps until `time`. If the end comes first, sleeps until the end and returns `false`.
    pub fn sleep_until(&self, time: Time) -> bool {
        loop {
            let end = self.end();
            // Sleep in parts, because the end may move to an earlier time.
            let part = self.now().saturating_add(NAP).min(time).min(end);
            while !self.epoch.sleep_until(part) {}
            if part == time || part >= end {
                return part == time && time < end;
            }
        }
    }
}

/// The longest sleep of a thread before it checks for the end.
const NAP: Span = Span::from_ms(200);
/// From the last thread's readiness to the start, so that all are asleep when it comes.
const LEAD: Span = Span::from_ms(50);
/// Interval between two calls of `more`.
const LOOK: Span = Span::from_ms(10);

/// The outcome.
#[derive(Debug)]
pub struct LoadResults<T> {
    /// The bodies' results, in order.
    pub values: Vec<T>,
    /// The end: the duration, or earlier if `more` said so.
    pub end: Time,
}

/// Runs the members from one instant until `duration` is over, or until `more` returns false.
/// `more` is called a hundred times a second with the present time.
///
/// # Errors
/// The kernel's refusal: a class, a CPU, a cpuset. Nothing has run then, and nothing stays changed.
pub fn together<T: Send>(
    members: Vec<Member<'_, T>>,
    place: &Place,
    duration: Span,
    more: &mut dyn FnMut(Time) -> bool,
) -> Result<LoadResults<T>, RunError> {
    let nothing = |_: Option<&Partitions>| Ok::<(), std::convert::Infallible>(());
    match together_beside(members, place, nothing, duration, &mut |now, ()| more(now)) {
        Ok(ended) => ended,
        Err(never) => match never {},
    }
}

/// As [`together`], beside a guest that runs in the meantime. `beside` makes the guest once the
/// CPUs are divided, if they are; the guest may move threads into group 0. The guest is dropped
/// after the members have ended and before the CPUs are united again.
///
/// # Errors
/// The outer error is from `beside`, the inner one as from [`together`].
pub fn together_beside<T: Send, G, E>(
    members: Vec<Member<'_, T>>,
    place: &Place,
    beside: impl FnOnce(Option<&Partitions>) -> Result<G, E>,
    duration: Span,
    more: &mut dyn FnMut(Time, &G) -> bool,
) -> Result<Result<LoadResults<T>, RunError>, E> {
    let divided = recover().map_err(RunError::from).and_then(|_| divide(&members, place));
    let partitions = match divided {
        Ok(partitions) => partitions,
        Err(error) => return Ok(Err(error)),
    };
    let guest = beside(partitions.as_ref())?;
    let result = run_members(members, place, partitions.as_ref(), duration, &mut |now| more(now, &guest));
    drop(guest);
    let restored = partitions.map_or(Ok(()), Partitions::restore);
    Ok(result.and_then(|ended| restored.map(|()| ended).map_err(RunError::from)))
}

fn divide<T>(members: &[Member<'_, T>], place: &Place) -> Result<Option<Partitions>, RunError> {
    let period = |member: &Member<'_, T>| match member.class {
        Class::Deadline(reserved) => Some(reserved.period),
        _ => None,
    };
    match (place, members.iter().filter_map(period).max()) {
        (Place::Cpu(cpu), Some(settle)) => Ok(Some(Partitions::create(&[vec![*cpu]], settle)?)),
        (Place::Anywhere, _) | (_, None) => Ok(None),
    }
}

/// The obstacle to giving SCHED_DEADLINE threads a CPU of their own on this machine, if any.
#[must_use]
pub fn obstacle() -> Option<CpusetError> {
    takt_linux::cpuset::obstacle()
}

/// State that the threads share before the start.
struct StartGate {
    go: std::sync::atomic::AtomicU32,
    epoch: std::sync::OnceLock<Epoch>,
    end: Arc<AtomicU64>,
}

impl StartGate {
    fn open(&self, go: u32) {
        self.go.store(go, Ordering::Release);
        futex::wake_all(&self.go);
    }
}

/// Ends the threads when dropped, because the scope waits for them on every way out.
struct AbortOnDrop<'a>(&'a StartGate);

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        if self.0.go.load(Ordering::Acquire) == GO_WAIT {
            self.0.open(GO_ABORT);
        }
        self.0.end.store(0, Ordering::Release);
    }
}

fn run_members<T: Send>(
    members: Vec<Member<'_, T>>,
    place: &Place,
    partitions: Option<&Partitions>,
    duration: Span,
    more: &mut dyn FnMut(Time) -> bool,
) -> Result<LoadResults<T>, RunError> {
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let end = Arc::new(AtomicU64::new(duration.as_ns()));
    let gate = StartGate { go: GO_WAIT.into(), epoch: std::sync::OnceLock::new(), end: Arc::clone(&end) };
    std::thread::scope(|scope| {
        let abort = AbortOnDrop(&gate);
        let (send, ready) = mpsc::channel();
        let mut handles: Vec<ScopedJoinHandle<'_, Option<T>>> = Vec::new();
        for (index, member) in members.into_iter().enumerate() {
            let (send, gate) = (send.clone(), &gate);
            let name = member.name.clone();
            let run = move || run_member(member, place, partitions, gate, &|result| drop(send.send((index, result))));
            let thread = std::thread::Builder::new().name(name.replace('\0', " ")).stack_size(STACK_BYTES);
            let spawned = thread.spawn_scoped(scope, run);
            handles.push(spawned.map_err(|error| RunError::Spawn { task: name, cause: error.to_string() })?);
        }
        drop(send);
        let name = |index: usize| names.get(index).cloned().unwrap_or_default();
        for _ in 0..handles.len() {
            match ready.recv_timeout(READY_MAX) {
                Ok((_, Ok(()))) => {}
                Ok((index, Err(cause))) => return Err(RunError::refused(&name(index), cause)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(RunError::Stuck { task: name(0), grace: Span::from_s(READY_MAX.as_secs()) });
                }
            }
        }
        // Without the privilege to lock memory, page faults may delay threads.
        let _locked = memory::lock();
        let epoch = Epoch::in_future(LEAD);
        let _ = gate.epoch.set(epoch);
        gate.open(GO_RUN);
        while epoch.now().as_ns() < end.load(Ordering::Acquire) && !handles.iter().all(ScopedJoinHandle::is_finished) {
            clock::pause(LOOK);
            if !more(epoch.now()) {
                end.fetch_min(epoch.now().as_ns(), Ordering::AcqRel);
            }
        }
        let at = Time::from_ns(end.load(Ordering::Acquire)).min(epoch.now());
        drop(abort);
        let mut values = Vec::with_capacity(handles.len());
        for (index, handle) in handles.into_iter().enumerate() {
            match handle.join() {
                Ok(Some(value)) => values.push(value),
                _ => return Err(RunError::Panicked { task: name(index) }),
            }
        }
        Ok(LoadResults { values, end: at })
    })
}

/// Runs a member on its thread; `None` if the run was aborted before its start.
fn run_member<T>(
    member: Member<'_, T>,
    place: &Place,
    partitions: Option<&Partitions>,
    gate: &StartGate,
    ready: &dyn Fn(Result<(), SchedError>),
) -> Option<T> {
    let mut work = Work::new(Bytes::default())?;
    let entered = enter(&member.class, place, partitions, &mut work);
    let guard = match entered {
        Ok(guard) => guard,
        Err(error) => {
            ready(Err(error));
            return None;
        }
    };
    ready(Ok(()));
    let epoch = wait_for_go(&gate.go, &gate.epoch)?;
    let mut context = LoadContext { epoch, end: Arc::clone(&gate.end), work };
    let _ = context.sleep_until(Time::ZERO);
    let value = (member.body)(&mut context);
    drop(guard);
    Some(value)
}

fn enter(
    class: &Class,
    place: &Place,
    partitions: Option<&Partitions>,
    work: &mut Work,
) -> Result<ClassGuard, SchedError> {
    match (place, partitions) {
        (_, Some(partitions)) => partitions
            .join(0)
            .map_err(|error| SchedError::Other { class: "a scheduling domain".to_owned(), cause: error.to_string() })?,
        (Place::Cpu(cpu), None) => sched::set_affinity(&[*cpu])?,
        (Place::Anywhere, None) => {}
    }
    memory::prefault_stack::<STACK_TOUCHED>();
    work.calibrate();
    ClassGuard::enter_in_domain(class)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
