//! A CPU as the threads of a dispatcher share it: what its lock protects, and who is woken when it is free again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use takt_linux::Epoch;
use takt_linux::thread::Tid;
use takt_model::{Span, Task, Time};
use takt_policy::Passed;

use super::overrun::Watch;
use super::{Handler, Shared};
use crate::bits::{LevelSet, ones};
use crate::core::{Core, Counts, Place};
use crate::operation::Overrun;
use crate::sync::{AtomicU64, PiGuard, PiMutex, Word, rouse};
use crate::told::Teller;

/// One CPU.
pub(crate) struct Station {
    pub(crate) held: PiMutex<Held>,
    /// Held by who tells other CPUs what ended here, and taken before any CPU's lock: they learn it in the order in which it happened, and who
    /// has something to tell lends its priority to a thread that was interrupted while it told what ended before.
    pub(crate) courier: PiMutex<()>,
    /// By seat, and for spare threads: a futex, changed when a thread of it is woken.
    pub(crate) signals: Vec<Word>,
    /// The timer thread's futex.
    pub(crate) timer: Word,
    /// Levels whose threads are to be woken and perhaps have not been: who decided so may have lost its CPU in between, and then the next one
    /// that leaves the lock does it.
    pub(crate) pending: [AtomicU64; 2],
    pub(crate) operations: Vec<Running>,
}

/// An operation, as the threads that run it see it.
pub(crate) struct Running {
    /// By plan; nothing of one in which it takes no part.
    pub(crate) tasks: Vec<Option<Arc<Task>>>,
    pub(crate) name: String,
    /// No other operation of a dispatcher of this process has it.
    pub(crate) number: u64,
    pub(crate) followers: Vec<Place>,
    pub(crate) handler: PiMutex<Handler>,
    /// What its handler's first panic said.
    pub(crate) panic: PiMutex<Option<String>>,
    /// Jobs before this number shall stop: they were dropped.
    pub(crate) stop_before: AtomicU64,
    /// What becomes of jobs that execute for longer than this wcet, where that is watched.
    pub(crate) watched: Option<(Overrun, Span)>,
    /// How many have, and the number after the last of them.
    pub(crate) overran: AtomicU64,
    pub(crate) overran_before: AtomicU64,
}

/// What a CPU's lock protects.
pub(crate) struct Held {
    pub(crate) core: Core<Teller>,
    /// Threads that sleep, by role.
    pub(super) idle: Vec<u32>,
    pub(super) workers: Vec<Worker>,
    /// By worker: what is watched of the job that it runs.
    pub(super) watches: Vec<Option<Watch>>,
    /// Who keeps the time.
    pub(super) timer: Option<Tid>,
    /// By plan, by seat: the threads that it shall have.
    threads: Vec<Vec<u32>>,
    pub(super) changes: Vec<(u32, Passed)>,
    /// Since when nothing is released, started or counted any more.
    pub(super) stopping: Option<Time>,
    pub(super) last: Time,
    /// When the timer thread wakes up by itself.
    pub(super) timer_until: Time,
    /// Whether it is to look before that: who found that out may have lost its CPU before it woke the timer, and then the next one that leaves the lock does it.
    pub(super) timer_due: bool,
}

/// A thread that runs jobs, to those who switch plans.
#[derive(Clone, Copy)]
pub(super) struct Worker {
    /// The seat that it serves; the one past the last for a spare thread.
    pub(super) role: u32,
    pub(super) tid: Option<Tid>,
    /// The SCHED_FIFO priority that it has.
    pub(super) priority: Option<u8>,
    /// Whose job it runs, and that job's number.
    pub(super) slot: Option<u32>,
    pub(super) number: u64,
}

impl Held {
    /// `workers` threads: as many for each level as the first of the plans wants, and the others to spare, for a switch of plans can leave started
    /// jobs anywhere, and each level wants its threads besides.
    pub(crate) fn new(core: Core<Teller>, threads: Vec<Vec<u32>>, workers: usize) -> Held {
        let levels = core.seat_count() as u32;
        let first = threads.first().map_or(&[][..], Vec::as_slice);
        let roles = (0..levels).zip(first).flat_map(|(level, threads)| std::iter::repeat_n(level, *threads as usize));
        let roles = roles.chain(std::iter::repeat(levels)).take(workers);
        Held {
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

    /// Whether nothing is released, started or counted any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Its threads, once they have started, and which of them run jobs.
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

    /// How many threads a level shall have under the plan in force.
    fn wanted(&self, level: u32) -> usize {
        let levels = self.threads.get(self.core.plan());
        levels.and_then(|levels| levels.get(level as usize)).map_or(1, |threads| *threads as usize)
    }

    /// A worker has no job any more: where its level has enough threads without it, it serves one that lacks them, or is to spare. Returns its
    /// level before, if that changed.
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

    /// Threads that run a job have its seat; the others fill up what the seats lack, and change no more than that takes.
    /// Whether one of the others has another role.
    pub(super) fn assign_roles(&mut self) -> bool {
        let spare = self.spare();
        for (worker, watch) in self.workers.iter_mut().zip(&self.watches) {
            let Some(slot) = worker.slot else { continue };
            let nests = self.core.nests();
            let is_demoted = !nests && watch.as_ref().is_some_and(Watch::is_demoted);
            // Where jobs nest, one whose job was dropped gives its seat to another thread.
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

    /// The time, which does not go back for who holds the lock.
    pub(super) fn now(&mut self, epoch: Epoch) -> Time {
        self.last = self.last.max(epoch.now());
        self.core.advance(self.last);
        self.last
    }

    /// What became of an operation's jobs, so far or until the stop.
    pub(crate) fn counts(&mut self, slot: u32, epoch: Epoch) -> Option<Counts> {
        let now = self.stopping.unwrap_or_else(|| self.now(epoch));
        self.core.counts(slot, now)
    }

    /// Whether a thread of a level sleeps, or is about to.
    fn sleeps(&self, level: u32) -> bool {
        self.idle.get(level as usize).is_some_and(|idle| *idle > 0)
    }

    /// Levels that are to be woken, and whether the timer is.
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

/// Whom to wake when the lock is free again.
#[must_use]
#[derive(Clone, Copy)]
pub(super) struct Wakes {
    pub(super) levels: LevelSet,
    pub(super) timer: bool,
}

/// What whoever pushed has still to do, of one CPU: to wake whom it concerns. Announced: the next one that leaves the CPU's lock does it where this one loses its own CPU before.
#[must_use]
pub(crate) struct Owed {
    pub(crate) cpu: u32,
    pub(super) wakes: Wakes,
    pub(super) ended: bool,
}

impl Owed {
    /// Of the same CPU.
    pub(crate) fn and(self, other: Owed) -> Owed {
        let levels = self.wakes.levels.union(other.wakes.levels);
        let timer = self.wakes.timer || other.wakes.timer;
        Owed { wakes: Wakes { levels, timer }, ended: self.ended || other.ended, ..self }
    }
}

impl Station {
    /// Wakes every thread of this CPU that sleeps.
    pub(super) fn wake_all(&self) {
        self.signals.iter().chain([&self.timer]).for_each(rouse);
    }

    /// All handlers that run are to return.
    pub(super) fn stop_handlers(&self) {
        for operation in &self.operations {
            operation.stop_before.store(u64::MAX, Ordering::Release);
        }
    }

    /// To be called under the lock, before [`Station::wake`] without it. What was announced is taken back here alone, once no job waits at the level or no thread of
    /// it sleeps: who woke it may have lost its CPU to it within the system call, and must not take back afterwards what somebody else has announced meanwhile.
    pub(super) fn announce(&self, held: &Held, wakes: Wakes) {
        for (word, (new, first)) in self.pending.iter().zip(wakes.levels.words()) {
            let announced = word.load(Ordering::Acquire);
            if announced | new == 0 {
                continue;
            }
            let wanted = |level| held.sleeps(level) && held.core.is_waiting(level);
            let still = ones(announced).filter(|level| wanted(first + level));
            // Nobody else writes: whoever does has the lock.
            word.store(still.fold(new, |levels, level| levels | 1 << level), Ordering::Release);
        }
    }

    pub(super) fn wake(&self, wakes: Wakes) {
        // First: a thread of a level may take this one's CPU until the deadline that the timer is to see to. The timer wakes what is announced.
        if wakes.timer {
            rouse(&self.timer);
        }
        // One's own, too: what was announced may just have been taken back, for a thread that is about to sleep again.
        for (word, (own, first)) in self.pending.iter().zip(wakes.levels.words()) {
            let levels = own | word.load(Ordering::Acquire);
            ones(levels).filter_map(|level| self.signals.get((first + level) as usize)).for_each(rouse);
        }
    }

    /// Follows up what ended, frees the lock, and wakes whom it concerns; whether what ended concerns other CPUs, too.
    pub(super) fn hand_back(&self, shared: &Shared, held: PiGuard<'_, Held>) -> bool {
        let (wakes, ended) = self.put_back(shared, held);
        self.wake(wakes);
        ended
    }

    /// The same without the wake-ups: they are announced.
    pub(super) fn put_back(&self, shared: &Shared, mut held: PiGuard<'_, Held>) -> (Wakes, bool) {
        let last = held.last;
        if held.stopping.is_none() {
            held.core.settle(last);
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

    /// Started jobs have other seats, and their threads the priorities of these.
    #[cold]
    fn move_threads(&self, shared: &Shared, held: &mut Held) {
        let others = held.assign_roles();
        let _ = shared.set_priorities(held);
        if others {
            // Who sleeps may serve another seat.
            self.wake_all();
        }
    }

    /// Jobs of these operations that run were dropped: their code is to notice.
    pub(super) fn stop_dropped(&self, held: &mut Held) {
        while let Some((slot, number)) = held.core.take_stopped() {
            if let Some(operation) = self.operations.get(slot as usize) {
                operation.stop_before.fetch_max(number.saturating_add(1), Ordering::AcqRel);
            }
        }
    }
}
