//! Overruns: jobs that execute for longer than their operation's wcet. The timer thread of their
//! CPU finds and reports each overrun when it happens.
//!
//! The execution time is the CPU time of the handler's thread, so preemption does not count. The
//! timer thread checks when the rest of the wcet would be over without preemption. If the job was
//! preempted, the thread checks again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use takt_linux::eventfd::EventFd;
use takt_linux::{Epoch, PiMutex, clock};
use takt_model::{Span, Time};

use super::Shared;
use super::cpu_state::{CpuState, LockedState};
use super::watch::Watch;
use crate::core::{End, Upcall};
use crate::plan::Overrun;
use crate::sync::{self, Futex, wake};

/// How many overruns are kept until the program takes them.
const WAITING_MAX: usize = 256;

impl LockedState {
    /// Starts to watch a job. The calling thread is the worker that begins it.
    pub(super) fn watch(&mut self, worker: usize, upcall: Upcall, (overrun, wcet): (Overrun, Span), now: Time) {
        let watch = Watch::new(upcall.slot, upcall.number, (overrun, wcet), clock::thread_cpu(), now);
        let look = watch.look;
        if let Some(place) = self.watches.get_mut(worker) {
            *place = Some(watch);
            self.timer_due |= look < self.timer_until;
        }
    }

    /// Ends the watch of a job that has returned. A job that was told to stop is not complete.
    pub(super) fn unwatch(&mut self, worker: usize, end: End) -> End {
        match self.watches.get_mut(worker).and_then(Option::take) {
            Some(watch) if watch.is_told() && watch.overrun == Overrun::Stop => End::Failed,
            _ => end,
        }
    }

    /// When the timer thread must check the watched jobs.
    pub(super) fn next_look(&self) -> Option<Time> {
        self.watches.iter().flatten().map(|watch| watch.look).min().filter(|look| *look < Time::MAX)
    }

    /// Moves a worker to the level of demoted jobs until its job ends. An idle worker takes its
    /// place.
    fn demote(&mut self, worker: usize) {
        let (spare, demoted) = (self.spare(), self.spare().saturating_sub(1));
        let Some(this) = self.workers.get_mut(worker).filter(|this| this.role < demoted) else { return };
        let level = std::mem::replace(&mut this.role, demoted);
        let idle = |worker: &&mut super::cpu_state::Worker| {
            worker.slot.is_none() && (worker.role == spare || worker.role == demoted)
        };
        // A spare worker first.
        let workers = &mut self.workers;
        let free = workers.iter_mut().filter(idle).max_by_key(|worker| worker.role);
        if let Some(free) = free {
            free.role = level;
        }
    }
}

impl Shared {
    /// Checks the watched jobs of a CPU that are due. Reports each overrun and does what its
    /// operation says.
    pub(super) fn look_for_overruns(&self, cpu: u32, cpu_state: &CpuState, held: &mut LockedState, now: Time) {
        if held.next_look().is_none_or(|look| look > now) {
            return;
        }
        let mut demoted = false;
        for worker in 0..held.watches.len() {
            let tid = held.workers.get(worker).and_then(|worker| worker.tid);
            let Some((watch, tid)) = held.watches.get_mut(worker).and_then(Option::as_mut).zip(tid) else { continue };
            if watch.look > now || !watch.is_over(clock::cpu_of(tid), now) {
                continue;
            }
            let Watch { slot, number, overrun, .. } = *watch;
            let Some(operation) = cpu_state.operations.get(slot as usize) else { continue };
            operation.overran.fetch_add(1, Ordering::Relaxed);
            operation.overran_before.fetch_max(number.saturating_add(1), Ordering::AcqRel);
            match overrun {
                Overrun::Continue => {}
                Overrun::Stop => {
                    operation.stop_before.fetch_max(number.saturating_add(1), Ordering::AcqRel);
                }
                // Ordinary threads have no priorities.
                Overrun::Demote if self.priorities.is_empty() => {}
                // Its thread follows when the lock is left.
                Overrun::Demote if held.core.nests() => held.core.demote(slot),
                Overrun::Demote => {
                    held.demote(worker);
                    demoted = true;
                }
            }
            self.overruns.report(Report { cpu, slot, number, at: now });
        }
        if demoted {
            let _ = self.set_priorities(held);
            // A sleeping thread may serve another level now.
            cpu_state.wake_all();
        }
    }
}

#[derive(Clone, Copy)]
struct Report {
    cpu: u32,
    slot: u32,
    number: u64,
    at: Time,
}

/// The overruns that the program has not taken yet.
pub(crate) struct Reports {
    waiting: PiMutex<VecDeque<Report>>,
    word: Futex,
    signal: OnceLock<EventFd>,
    lost: AtomicU64,
}

impl Reports {
    pub(crate) fn new() -> Reports {
        let waiting = PiMutex::new(VecDeque::with_capacity(WAITING_MAX));
        Reports { waiting, word: Futex::new(0), signal: OnceLock::new(), lost: AtomicU64::new(0) }
    }

    fn report(&self, report: Report) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            drop(waiting);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push_back(report);
        drop(waiting);
        wake(&self.word);
        if let Some(signal) = self.signal.get() {
            signal.raise();
        }
    }
}

/// A job that executed for longer than its operation's wcet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overran {
    /// Its operation.
    pub operation: String,
    /// Its number.
    pub job: u64,
    /// When that was found, since the dispatcher's start: while the job ran.
    pub at: Time,
}

/// Receives the overruns of a dispatcher as they happen, on any thread but those of handlers.
#[derive(Clone)]
pub struct Overruns {
    pub(crate) shared: Arc<Shared>,
}

impl Overruns {
    /// Takes the oldest overrun, or waits up to `wait` for one. At most 256 overruns are kept.
    #[must_use]
    pub fn next(&self, wait: Span) -> Option<Overran> {
        let reports = &self.shared.overruns;
        let clock = Epoch::now_is_zero();
        let give_up = Time::ZERO.saturating_add(wait);
        loop {
            let seen = reports.word.load(Ordering::Acquire);
            let mut waiting = reports.waiting.lock();
            let report = waiting.pop_front();
            if waiting.is_empty()
                && let Some(signal) = reports.signal.get()
            {
                signal.lower();
            }
            drop(waiting);
            if let Some(report) = report {
                let cpu_state = self.shared.cpu_states.get(report.cpu as usize)?;
                let operation = cpu_state.operations.get(report.slot as usize)?.name.clone();
                return Some(Overran { operation, job: report.number, at: report.at });
            }
            if clock.now() >= give_up {
                return None;
            }
            sync::wait(&reports.word, seen, clock, give_up);
        }
    }

    /// A descriptor for a loop of `poll` or `epoll`: readable while an overrun waits, until
    /// [`Overruns::next`] has taken the last one. It is closed with the last of these and their
    /// dispatcher.
    ///
    /// # Errors
    /// The process has as many descriptors as it may.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let reports = &self.shared.overruns;
        let waiting = reports.waiting.lock();
        let signal = match reports.signal.get() {
            Some(signal) => signal,
            None => {
                let new = EventFd::new()?;
                reports.signal.get_or_init(|| new)
            }
        };
        if !waiting.is_empty() {
            signal.raise();
        }
        Ok(signal.as_fd())
    }

    /// How many overruns were not kept, because the program took none. Counts include them
    /// ([`Counts::overran`](super::super::Counts::overran)).
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.overruns.lost.load(Ordering::Relaxed)
    }
}
