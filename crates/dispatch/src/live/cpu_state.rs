//! A CPU as the threads of a dispatcher share it: the state under its lock, and the wake-ups after
//! it.

use std::sync::atomic::Ordering;

use takt_linux::Epoch;
use takt_linux::thread::Tid;
use takt_model::Time;
use takt_policy::DeadlineEffect;

use super::Shared;
use super::job::Running;
use super::watch::Watch;
use crate::bits::{LevelSet, ones};
use crate::core::{Core, Counts};
use crate::fact_log::FactWriter;
use crate::sync::{AtomicU64, Futex, PiGuard, PiMutex, wake};

pub(crate) struct CpuState {
    pub(crate) held: PiMutex<LockedState>,
    /// Held while a thread notifies other CPUs of ended jobs, and taken before any CPU's lock. So
    /// they learn of the ends in order. A waiting thread lends its priority to an interrupted one.
    pub(crate) courier: PiMutex<()>,
    /// By seat, and for spare threads: a futex, changed when one of its threads is woken.
    pub(crate) signals: Vec<Futex>,
    /// The timer thread's futex.
    pub(crate) timer: Futex,
    /// Levels with announced wake-ups. The announcing thread may have lost its CPU before the
    /// wake-up. Then the next thread that leaves the lock does it.
    pub(crate) pending: [AtomicU64; 2],
    pub(crate) operations: Vec<Running>,
}

/// The state under a CPU's lock.
pub(crate) struct LockedState {
    pub(crate) core: Core<FactWriter>,
    /// Sleeping threads, by role.
    pub(super) idle: Vec<u32>,
    pub(super) workers: Vec<Worker>,
    /// By worker: the watched execution of its job.
    pub(super) watches: Vec<Option<Watch>>,
    pub(super) timer: Option<Tid>,
    /// By plan and seat: the number of threads wanted.
    threads: Vec<Vec<u32>>,
    pub(super) changes: Vec<(u32, DeadlineEffect)>,
    /// The time of the stop. After it nothing is released, started or counted.
    pub(super) stopping: Option<Time>,
    pub(super) last: Time,
    /// When the timer thread wakes up by itself.
    pub(super) timer_until: Time,
    /// Whether the timer thread must look before that. The thread that set this may have lost its
    /// CPU before the wake-up. Then the next thread that leaves the lock does it.
    pub(super) timer_due: bool,
}

/// A worker thread, for switches of plans.
#[derive(Clone, Copy)]
pub(super) struct Worker {
    /// The seat that it serves. A spare thread has the number past the last seat.
    pub(super) role: u32,
    pub(super) tid: Option<Tid>,
    /// Its present SCHED_FIFO priority.
    pub(super) priority: Option<u8>,
    /// The slot and number of its job.
    pub(super) slot: Option<u32>,
    pub(super) number: u64,
}

impl LockedState {
    /// With `workers` threads. Each level gets as many as the first plan wants; the others are
    /// spare. A switch of plans can leave started jobs at any level, which needs its threads
    /// besides.
    pub(crate) fn new(core: Core<FactWriter>, threads: Vec<Vec<u32>>, workers: usize) -> LockedState {
        let levels = core.seat_count() as u32;
        let first = threads.first().map_or(&[][..], Vec::as_slice);
        let roles = (0..levels).zip(first).flat_map(|(level, threads)| std::iter::repeat_n(level, *threads as usize));
        let roles = roles.chain(std::iter::repeat(levels)).take(workers);
        LockedState {
            idle: vec![0; levels as usize + 1],
            workers: roles.map(|role| Worker { role, tid: None, priority: None, slot: None, number: 0 }).collect(),
            watches: (0..workers).map(|_| None).collect(),
            timer: None,
            threads,
            changes: Vec::with_capacity(core.slot_count()),
            core,
            stopping: None,
            last: Time::ZERO,
            timer_until: Time::MAX,
            timer_due: false,
        }
    }

    /// Whether releases, starts and counts have stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Its threads, once they have started, and whether each runs jobs.
    pub(crate) fn tids(&self) -> impl Iterator<Item = (Tid, bool)> + '_ {
        let workers = self.workers.iter().filter_map(|worker| Some((worker.tid?, true)));
        self.timer.map(|tid| (tid, false)).into_iter().chain(workers)
    }

    /// The level of a worker, for its start.
    pub(crate) fn role(&self, worker: usize) -> Option<u32> {
        self.workers.get(worker).map(|worker| worker.role)
    }

    pub(super) fn spare(&self) -> u32 {
        self.idle.len() as u32 - 1
    }

    fn serving(&self, level: u32) -> usize {
        self.workers.iter().filter(|worker| worker.role == level).count()
    }

    /// The number of threads for a level under the current plan.
    fn wanted(&self, level: u32) -> usize {
        let levels = self.threads.get(self.core.plan());
        levels.and_then(|levels| levels.get(level as usize)).map_or(1, |threads| *threads as usize)
    }

    /// A worker has no job now. If its level has enough other threads, the worker moves to a level
    /// without enough threads, or becomes spare. Returns its former level if that changed.
    pub(super) fn free(&mut self, worker: usize) -> Option<u32> {
        let this = self.workers.get_mut(worker)?;
        this.slot = None;
        let role = this.role;
        if role != self.spare() && self.serving(role) <= self.wanted(role) {
            return None;
        }
        let lacking = (0..self.spare()).find(|level| self.serving(*level) < self.wanted(*level));
        let new = lacking.unwrap_or(self.spare());
        self.workers.get_mut(worker)?.role = new;
        (new != role).then_some(role)
    }

    /// Gives a running worker the seat of its job, and moves as few of the others as needed to fill
    /// the seats. Returns whether one of the others changed its role.
    pub(super) fn assign_roles(&mut self) -> bool {
        let spare = self.spare();
        for (worker, watch) in self.workers.iter_mut().zip(&self.watches) {
            let Some(slot) = worker.slot else { continue };
            let nests = self.core.nests();
            let is_demoted = !nests && watch.as_ref().is_some_and(Watch::is_demoted);
            // If jobs nest, a dropped job gives its seat to another thread.
            let is_over = nests && self.core.current(slot) != Some(worker.number);
            worker.role = match self.core.seat(slot) {
                _ if is_demoted => spare.saturating_sub(1),
                Some(seat) if !is_over => seat,
                _ => spare,
            };
        }
        let mut changed = false;
        for at in 0..self.workers.len() {
            let Some(worker) = self.workers.get(at).filter(|worker| worker.slot.is_none()) else { continue };
            let role = worker.role;
            if role != spare
                && self.serving(role) > self.wanted(role)
                && let Some(worker) = self.workers.get_mut(at)
            {
                (worker.role, changed) = (spare, true);
            }
        }
        for seat in 0..spare {
            while self.serving(seat) < self.wanted(seat) {
                let free = self.workers.iter_mut().find(|worker| worker.role == spare && worker.slot.is_none());
                let Some(free) = free else { return changed };
                (free.role, changed) = (seat, true);
            }
        }
        changed
    }

    /// The time, which never goes back for holders of the lock.
    pub(super) fn now(&mut self, epoch: Epoch) -> Time {
        self.last = self.last.max(epoch.now());
        self.core.advance(self.last);
        self.last
    }

    /// The outcomes of an operation's jobs, so far or until the stop.
    pub(crate) fn counts(&mut self, slot: u32, epoch: Epoch) -> Option<Counts> {
        let now = self.stopping.unwrap_or_else(|| self.now(epoch));
        self.core.counts(slot, now)
    }

    /// Whether a thread of a level sleeps or is about to.
    fn sleeps(&self, level: u32) -> bool {
        self.idle.get(level as usize).is_some_and(|idle| *idle > 0)
    }

    /// Takes the levels to wake, and whether to wake the timer thread.
    pub(super) fn wakes(&mut self) -> Wakes {
        let woken = self.core.take_woken();
        let queued = self.core.take_queued();
        if (queued || !woken.is_empty()) && !self.timer_due {
            let instants = [self.core.next_deadline(), self.core.next_danger(), self.core.next_comparison()];
            let next = instants.into_iter().flatten().min();
            self.timer_due = next.is_some_and(|next| next < self.timer_until);
        }
        Wakes { levels: woken.filter(|level| self.sleeps(level)), timer: self.timer_due }
    }
}

/// Threads to wake after the lock is free.
#[must_use]
#[derive(Clone, Copy)]
pub(super) struct Wakes {
    pub(super) levels: LevelSet,
    pub(super) timer: bool,
}

/// Deferred wake-ups of a push, on one CPU. They are announced: if the pushing thread loses its CPU
/// first, the next thread that leaves the lock does them.
#[must_use]
pub(crate) struct DeferredWakeups {
    pub(crate) cpu: u32,
    pub(super) wakes: Wakes,
    pub(super) ended: bool,
}

impl DeferredWakeups {
    /// Merges the wake-ups of the same CPU.
    pub(crate) fn and(self, other: DeferredWakeups) -> DeferredWakeups {
        let levels = self.wakes.levels.union(other.wakes.levels);
        let timer = self.wakes.timer || other.wakes.timer;
        DeferredWakeups { wakes: Wakes { levels, timer }, ended: self.ended || other.ended, ..self }
    }
}

impl CpuState {
    /// Wakes every sleeping thread of this CPU.
    pub(super) fn wake_all(&self) {
        self.signals.iter().chain([&self.timer]).for_each(wake);
    }

    /// Asks all running handlers to return.
    pub(super) fn stop_handlers(&self) {
        for operation in &self.operations {
            operation.stop_before.store(u64::MAX, Ordering::Release);
        }
    }

    /// Call this under the lock, before [`CpuState::wake`] without it. Only this function withdraws
    /// announcements, once no job waits at the level or no thread of it sleeps. The waking thread
    /// cannot do it: it may lose its CPU within the system call, and would later withdraw a newer
    /// announcement.
    pub(super) fn announce(&self, held: &LockedState, wakes: Wakes) {
        for (word, (new, first)) in self.pending.iter().zip(wakes.levels.words()) {
            let announced = word.load(Ordering::Acquire);
            if announced | new == 0 {
                continue;
            }
            let wanted = |level| held.sleeps(level) && held.core.is_waiting(level);
            let still = ones(announced).filter(|level| wanted(first + level));
            // The lock's holder is the only writer.
            word.store(still.fold(new, |levels, level| levels | 1 << level), Ordering::Release);
        }
    }

    pub(super) fn wake(&self, wakes: Wakes) {
        // The timer first, because a woken level thread may take this CPU until after the deadline
        // that the timer must handle. The timer wakes announced levels too.
        if wakes.timer {
            wake(&self.timer);
        }
        // Also the thread's own level. Its announcement may just have been withdrawn for a thread
        // that is about to sleep again.
        for (word, (own, first)) in self.pending.iter().zip(wakes.levels.words()) {
            let levels = own | word.load(Ordering::Acquire);
            ones(levels).filter_map(|level| self.signals.get((first + level) as usize)).for_each(wake);
        }
    }

    /// Handles followers here, frees the lock, and wakes threads. Returns whether other CPUs have
    /// followers too.
    pub(super) fn hand_back(&self, shared: &Shared, held: PiGuard<'_, LockedState>) -> bool {
        let (wakes, ended) = self.put_back(shared, held);
        self.wake(wakes);
        ended
    }

    /// As [`CpuState::hand_back`] with the wake-ups announced but not done.
    pub(super) fn put_back(&self, shared: &Shared, mut held: PiGuard<'_, LockedState>) -> (Wakes, bool) {
        let last = held.last;
        if held.stopping.is_none() {
            held.core.release_followers(last);
            held.core.compare(last);
            if held.core.take_moved() {
                self.move_threads(shared, &mut held);
            }
        }
        let wakes = held.wakes();
        self.stop_dropped(&mut held);
        let ended = held.core.has_ended();
        self.announce(&held, wakes);
        drop(held);
        (wakes, ended)
    }

    /// Gives threads the priorities of their jobs' new seats.
    #[cold]
    fn move_threads(&self, shared: &Shared, held: &mut LockedState) {
        let others = held.assign_roles();
        let _ = shared.set_priorities(held);
        if others {
            // A sleeping thread may serve another seat now.
            self.wake_all();
        }
    }

    /// Tells the code of dropped running jobs to stop.
    pub(super) fn stop_dropped(&self, held: &mut LockedState) {
        while let Some((slot, number)) = held.core.take_stopped() {
            if let Some(operation) = self.operations.get(slot as usize) {
                operation.stop_before.fetch_max(number.saturating_add(1), Ordering::AcqRel);
            }
        }
    }
}
