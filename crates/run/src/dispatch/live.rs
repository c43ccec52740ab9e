//! The threads of a dispatcher, and what they share: per CPU a lock with priority inheritance around its [`Core`], a thread that waits for
//! releases and deadlines, and threads for each level.
//!
//! On these paths nothing allocates, and no CPU's lock is held while a program's code runs. A thread never holds the locks of two CPUs, but for
//! a switch of plans, which takes them in order. A level's thread asks for a job only when it has the CPU: the kernel decides which level goes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use takt_linux::thread::Tid;
use takt_linux::{Class, ClassGuard, Epoch, SchedError, futex, sched};
use takt_model::draw::Draw;
use takt_model::{Span, Task, Time};
use takt_policy::Passed;

use super::adaptive::Controller;
use super::core::{Core, End, Place, Upcall};
use super::error::PushError;
use super::source::{Overtaken, Source, release};
use super::told::Teller;
use crate::bits::{LevelSet, ones};
use crate::sync::{self, AtomicU64, PiGuard, PiMutex, Word, rouse};
use crate::threads::{GO_ABORT, GO_RUN, GO_WAIT, STACK_TOUCHED, wait_for_go};

/// What an operation does, once a job.
pub(crate) type Handler = Box<dyn FnMut(&Job<'_>) + Send>;

/// What all threads of a dispatcher share.
pub(crate) struct Shared {
    /// No other dispatcher of this process has it.
    pub(crate) number: u64,
    pub(crate) seed: u64,
    /// Whether timers draw the arrivals of sporadic operations; otherwise the program pushes them.
    pub(crate) draws_sporadic: bool,
    /// No job is released by a timer at or after this.
    pub(crate) duration: Time,
    pub(crate) epoch: OnceLock<Epoch>,
    /// A futex.
    pub(crate) go: AtomicU32,
    pub(crate) stations: Vec<Station>,
    /// By plan, by level (that of demoted jobs last): the SCHED_FIFO priority. Empty where none is enforced.
    pub(crate) priorities: Vec<Vec<u8>>,
    /// When the first CPU's timer switches to which plan, in order of time.
    pub(crate) switches: Vec<(Time, usize)>,
    /// Chooses between two plans. No CPU's lock is held when this one is taken.
    pub(crate) controller: Option<PiMutex<Controller>>,
    /// Changes of a priority that the kernel refused.
    pub(crate) refused: AtomicU64,
    /// Switches of plans so far, and the longest that one had the queues locked, in ns.
    pub(crate) switched: AtomicU64,
    pub(crate) locked_ns: AtomicU64,
    /// The plan in force, for those who need not be exact about when it changes.
    pub(crate) holds: AtomicUsize,
    /// Whether all CPUs are to stop, whoever has their locks.
    pub(crate) stop_asked: AtomicBool,
}

/// One CPU.
pub(crate) struct Station {
    pub(crate) held: PiMutex<Held>,
    /// Held by who tells other CPUs what ended here, and taken before any CPU's lock: they learn it in the order in which it happened, and who
    /// has something to tell lends its priority to a thread that was interrupted while it told what ended before.
    pub(crate) courier: PiMutex<()>,
    /// By level, and for spare threads: a futex, changed when a thread of it is woken.
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
}

/// What a CPU's lock protects.
pub(crate) struct Held {
    pub(crate) core: Core<Teller>,
    /// Threads that sleep, by role.
    idle: Vec<u32>,
    workers: Vec<Worker>,
    /// Who keeps the time.
    timer: Option<Tid>,
    /// By plan, by level: the threads that it shall have.
    threads: Vec<Vec<u32>>,
    changes: Vec<(u32, Passed)>,
    /// Since when nothing is released, started or counted any more.
    stopping: Option<Time>,
    last: Time,
    /// When the timer thread wakes up by itself.
    timer_until: Time,
    /// Whether it is to look before that: who found that out may have lost its CPU before it woke the timer, and then the next one that leaves the lock does it.
    timer_due: bool,
}

/// A thread that runs jobs, to those who switch plans.
#[derive(Clone, Copy)]
struct Worker {
    /// The level that it serves; the one past the last for a spare thread.
    role: u32,
    tid: Option<Tid>,
    /// The SCHED_FIFO priority that it has.
    priority: Option<u8>,
    /// Whose job it runs.
    slot: Option<u32>,
}

impl Held {
    /// `workers` threads: as many for each level as the first of the plans wants, and the others to spare, for a switch of plans can leave started
    /// jobs anywhere, and each level wants its threads besides.
    pub(crate) fn new(core: Core<Teller>, threads: Vec<Vec<u32>>, workers: usize) -> Held {
        let levels = core.level_count() as u32;
        let first = threads.first().map_or(&[][..], Vec::as_slice);
        let roles = (0..levels).zip(first).flat_map(|(level, threads)| std::iter::repeat_n(level, *threads as usize));
        let roles = roles.chain(std::iter::repeat(levels)).take(workers);
        Held {
            idle: vec![0; levels as usize + 1],
            workers: roles.map(|role| Worker { role, tid: None, priority: None, slot: None }).collect(),
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

    fn spare(&self) -> u32 {
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
    fn free(&mut self, worker: usize) -> Option<u32> {
        let this = self.workers.get_mut(worker)?;
        this.slot = None;
        let role = this.role;
        if self.serving(role) <= self.wanted(role) {
            return None;
        }
        let lacking = (0..self.spare()).find(|level| self.serving(*level) < self.wanted(*level));
        let new = lacking.unwrap_or(self.spare());
        self.workers.get_mut(worker)?.role = new;
        Some(role)
    }

    /// Threads that run a job serve the level that it has by the plan in force; the others fill up what the levels lack.
    fn assign_roles(&mut self) {
        let spare = self.spare();
        for at in 0..self.workers.len() {
            let Some(worker) = self.workers.get_mut(at) else { return };
            worker.role = worker.slot.and_then(|slot| self.core.level(slot)).unwrap_or(spare);
        }
        for level in 0..spare {
            while self.serving(level) < self.wanted(level) {
                let free = self.workers.iter_mut().find(|worker| worker.role == spare && worker.slot.is_none());
                let Some(free) = free else { return };
                free.role = level;
            }
        }
    }

    /// The time, which does not go back for who holds the lock.
    fn now(&mut self, epoch: Epoch) -> Time {
        self.last = self.last.max(epoch.now());
        self.last
    }

    /// Whether a thread of a level sleeps, or is about to.
    fn sleeps(&self, level: u32) -> bool {
        self.idle.get(level as usize).is_some_and(|idle| *idle > 0)
    }

    /// Levels that are to be woken, and whether the timer is.
    fn wakes(&mut self) -> Wakes {
        let woken = self.core.take_woken();
        if !woken.is_empty() && !self.timer_due {
            let next = self.core.next_deadline().into_iter().chain(self.core.next_danger()).min();
            self.timer_due = next.is_some_and(|next| next < self.timer_until);
        }
        Wakes { levels: woken.filter(|level| self.sleeps(level)), timer: self.timer_due }
    }
}

/// Whom to wake when the lock is free again.
#[must_use]
#[derive(Clone, Copy)]
struct Wakes {
    levels: LevelSet,
    timer: bool,
}

/// What whoever pushed has still to do, of one CPU: to wake whom it concerns. Announced: the next one that leaves the CPU's lock does it where this one loses its own CPU before.
#[must_use]
pub(crate) struct Owed {
    pub(crate) cpu: u32,
    wakes: Wakes,
    ended: bool,
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
    fn wake_all(&self) {
        self.signals.iter().chain([&self.timer]).for_each(rouse);
    }

    /// All handlers that run are to return.
    fn stop_handlers(&self) {
        for operation in &self.operations {
            operation.stop_before.store(u64::MAX, Ordering::Release);
        }
    }

    /// To be called under the lock, before [`Station::wake`] without it. What was announced is taken back here alone, once no job waits at the level or no thread of
    /// it sleeps: who woke it may have lost its CPU to it within the system call, and must not take back afterwards what somebody else has announced meanwhile.
    fn announce(&self, held: &Held, wakes: Wakes) {
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

    fn wake(&self, wakes: Wakes) {
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
    fn hand_back(&self, held: PiGuard<'_, Held>) -> bool {
        let (wakes, ended) = self.put_back(held);
        self.wake(wakes);
        ended
    }

    /// The same without the wake-ups: they are announced.
    fn put_back(&self, mut held: PiGuard<'_, Held>) -> (Wakes, bool) {
        let last = held.last;
        if held.stopping.is_none() {
            held.core.settle(last);
        }
        let wakes = held.wakes();
        self.stop_dropped(&mut held);
        let ended = held.core.has_ended();
        self.announce(&held, wakes);
        drop(held);
        (wakes, ended)
    }

    /// Jobs of these operations that run were dropped: their code is to notice.
    fn stop_dropped(&self, held: &mut Held) {
        while let Some((slot, number)) = held.core.take_stopped() {
            if let Some(operation) = self.operations.get(slot as usize) {
                operation.stop_before.fetch_max(number.saturating_add(1), Ordering::AcqRel);
            }
        }
    }
}

/// What a switch of plans took. Bounded: under the locks one job of each operation is looked at and queued at most, another one where the new plan drops it, and each thread is
/// given a priority and woken at most once. What else of the backlogs the new plan drops goes afterwards, each CPU by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switched {
    /// Jobs that wait at another level now, or were dropped by the new plan: of an operation one at most, the first. Others behind it that are dropped are in the counts.
    pub moved: usize,
    /// How long the queues of all CPUs were locked.
    pub locked: Span,
    /// Threads whose priority the kernel refused to change: they go on at the one that they had.
    pub refused: usize,
}

impl Shared {
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.get().copied().unwrap_or_else(Epoch::now_is_zero)
    }

    /// A job pushed by the program. `named` is told its number, and the oldest that may still run, before anyone can run it.
    pub(crate) fn push(&self, place: Place, named: impl FnOnce(u64, u64)) -> Result<u64, PushError> {
        let mut owed = None;
        let pushed = self.push_quietly(place, named, &mut owed);
        if let Some(owed) = owed {
            self.pay(owed);
        }
        pushed
    }

    /// The same for one that has more to push before anyone of this CPU is woken.
    pub(crate) fn push_quietly(
        &self,
        place: Place,
        named: impl FnOnce(u64, u64),
        owed: &mut Option<Owed>,
    ) -> Result<u64, PushError> {
        let station = self.stations.get(place.cpu as usize).ok_or(PushError::Stopped)?;
        if self.go.load(Ordering::Acquire) != GO_RUN {
            return Err(PushError::Stopped);
        }
        if self.draws_sporadic {
            return Err(PushError::NotPushed);
        }
        let mut held = station.held.lock();
        if held.stopping.is_some() {
            return Err(PushError::Stopped);
        }
        // Under the lock: of two that push at once the second one comes later, if only by a nanosecond, as its least distance may demand.
        let now = held.now(self.epoch());
        let pushed = held.core.push(place.slot, now);
        if let Ok(number) = pushed {
            named(number, held.core.oldest(place.slot));
        }
        let (wakes, ended) = station.put_back(held);
        let new = Owed { cpu: place.cpu, wakes, ended };
        *owed = Some(match owed.take() {
            Some(owed) => owed.and(new),
            None => new,
        });
        pushed.map_err(|rejected| rejected.told(now))
    }

    /// Does what a push left to do.
    pub(crate) fn pay(&self, owed: Owed) {
        if let Some(station) = self.stations.get(owed.cpu as usize) {
            station.wake(owed.wakes);
        }
        if owed.ended {
            self.settle(1 << owed.cpu);
        }
    }

    /// Frees the lock of a CPU, wakes whom it concerns, and tells those that follow on other CPUs what ended.
    fn leave(&self, cpu: u32, station: &Station, held: PiGuard<'_, Held>) {
        if station.hand_back(held) {
            self.settle(1 << cpu);
        }
    }

    /// Releases and sheds what follows on other CPUs the jobs that ended on these (bits), and what follows those in turn.
    fn settle(&self, mut cpus: u128) {
        while cpus != 0 {
            let cpu = cpus.trailing_zeros();
            let Some(station) = self.stations.get(cpu as usize) else { return };
            let _courier = station.courier.lock();
            let mut held = station.held.lock();
            let Some(ended) = held.core.take_ended() else {
                if held.stopping.is_some() || !station.hand_back(held) {
                    cpus &= cpus - 1;
                }
                continue;
            };
            drop(held);
            let followers = station.operations.get(ended.slot as usize).map_or(&[][..], |ended| &ended.followers);
            for place in followers.iter().filter(|place| place.cpu != cpu) {
                let Some(station) = self.stations.get(place.cpu as usize) else { continue };
                let mut held = station.held.lock();
                if held.stopping.is_some() {
                    continue;
                }
                held.now(self.epoch());
                held.core.follow(place.slot, ended);
                if station.hand_back(held) {
                    cpus |= 1 << place.cpu;
                }
            }
        }
    }

    /// Another plan holds, for all CPUs from one instant on.
    pub(crate) fn switch(&self, plan: usize) -> Switched {
        let mut switched = Switched { moved: 0, locked: Span::ZERO, refused: 0 };
        self.switch_from(0, plan, &mut { Time::ZERO }, &mut switched);
        self.switched.fetch_add(1, Ordering::Relaxed);
        self.locked_ns.fetch_max(switched.locked.as_ns(), Ordering::Relaxed);
        self.settle((1u128 << self.stations.len()) - 1);
        switched
    }

    /// Switches to another plan where the controller wants one; when it is to be asked again at the latest.
    fn control(&self, cpu: u32, station: &Station, epoch: Epoch) -> Time {
        let Some(controller) = &self.controller else { return Time::MAX };
        let (now, danger) = {
            let mut held = station.held.lock();
            (held.now(epoch), held.core.next_danger())
        };
        // Held until the switch is done: what it believes to hold does.
        let mut held = controller.lock();
        let wanted = if danger.is_some_and(|danger| danger <= now) {
            held.endangered(now)
        } else if cpu == 0 && held.window_end() <= now {
            let past = |station: &Station| station.held.lock().core.first_danger().is_some_and(|danger| danger <= now);
            let danger = self.stations.iter().any(past);
            held.window(now, danger, self.stations.iter().map(|station| station.held.lock().core.busy(now)))
        } else {
            None
        };
        if let Some(plan) = wanted {
            self.switch(plan);
        }
        if cpu == 0 { held.window_end() } else { Time::MAX }
    }

    /// Takes the locks of this CPU and of those after it; then, while it holds them, gives each the plan. Without allocation: timers do it.
    fn switch_from(&self, cpu: usize, plan: usize, now: &mut Time, switched: &mut Switched) {
        let Some(station) = self.stations.get(cpu) else { return };
        let mut held = station.held.lock();
        let locked = held.now(self.epoch());
        *now = locked.max(*now);
        self.switch_from(cpu + 1, plan, now, switched);
        self.holds.store(plan, Ordering::Relaxed);
        let held = &mut *held;
        held.last = *now;
        let mut changes = std::mem::take(&mut held.changes);
        switched.moved += held.core.switch(plan, *now, &mut changes);
        held.changes = changes;
        station.stop_dropped(held);
        held.core.settle(*now);
        held.assign_roles();
        switched.refused += self.set_priorities(held);
        // A deadline may count now that did not before, and a thread that sleeps may serve another level. Under the lock: whoever switches may be
        // less important than all of them, and would lose its CPU before.
        station.wake_all();
        switched.locked = switched.locked.max(self.epoch().now().saturating_since(locked));
    }

    /// Each thread has the priority of the level that it serves by the plan in force; how often the kernel refused. Not after the stop: then threads end, and the
    /// kernel may have given the number of one to a thread of somebody else.
    fn set_priorities(&self, held: &mut Held) -> usize {
        let mut refused = 0;
        if held.stopping.is_some() {
            return refused;
        }
        let Some(priorities) = self.priorities.get(held.core.plan()) else { return refused };
        for worker in &mut held.workers {
            let wanted = priorities.get(worker.role as usize).copied();
            let Some((tid, wanted)) = worker.tid.zip(wanted.filter(|wanted| worker.priority != Some(*wanted))) else {
                continue;
            };
            match sched::reprioritize(tid, wanted) {
                Ok(()) => worker.priority = Some(wanted),
                Err(_) => refused += 1,
            }
        }
        self.refused.fetch_add(refused as u64, Ordering::Relaxed);
        refused
    }

    /// Whether a thread has the priority of the level that it serves, where none was refused.
    fn goes_by_plan(&self, held: &Held, worker: usize) -> bool {
        let Some(worker) = held.workers.get(worker) else { return false };
        let wanted = self.priorities.get(held.core.plan()).and_then(|levels| levels.get(worker.role as usize));
        wanted.is_none_or(|wanted| worker.priority == Some(*wanted)) || self.refused.load(Ordering::Relaxed) > 0
    }

    /// No thread takes or releases a job from now on; when that is.
    pub(crate) fn stop(&self) -> Time {
        if self.go.compare_exchange(GO_WAIT, GO_ABORT, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            futex::wake_all(&self.go);
        }
        // Who asks may be less important than all threads here, which give each other the locks as long as there is work: they heed it, whoever has a lock next. So no
        // handler that returns because of it is complete.
        self.stop_asked.store(true, Ordering::Release);
        self.stations.iter().for_each(Station::stop_handlers);
        let stopping = |station: &Station| {
            let mut held = station.held.lock();
            self.heed(&mut held);
            let stopping = held.stopping;
            drop(held);
            // Only now: who was about to sleep has heard of it, or sleeps.
            station.wake_all();
            stopping
        };
        self.stations.iter().filter_map(stopping).max().unwrap_or_default()
    }

    /// Stops a CPU where that was asked for.
    fn heed(&self, held: &mut Held) {
        if held.stopping.is_none() && self.stop_asked.load(Ordering::Acquire) {
            held.stopping = Some(held.now(self.epoch()));
        }
    }

    /// The name of an operation whose handler runs.
    pub(crate) fn running(&self) -> Option<String> {
        let slot = |station: &Station| station.held.lock().workers.iter().find_map(|worker| worker.slot);
        let operation = |station: &Station| station.operations.get(slot(station)? as usize).map(|op| op.name.clone());
        self.stations.iter().find_map(operation)
    }

    /// Drops the handlers, once the threads have ended: what they hold may hold this, as a handle of their own dispatcher does. That of a thread that has not ended stays.
    pub(crate) fn drop_handlers(&self) {
        for operation in self.stations.iter().flat_map(|station| &station.operations) {
            let nothing: Handler = Box::new(|_| ());
            let handler = operation.handler.try_lock().map(|mut handler| std::mem::replace(&mut *handler, nothing));
            // Without the lock, for it runs the program's code.
            drop(handler);
        }
    }

    /// Since when no CPU tells anything older.
    pub(crate) fn floor(&self, cpu: usize) -> Time {
        let epoch = self.epoch();
        self.stations.get(cpu).map_or(Time::MAX, |station| station.held.lock().now(epoch))
    }

    /// A thread of a level, for its whole life.
    pub(crate) fn serve(
        &self,
        cpu: u32,
        worker: usize,
        kernel_cpu: u32,
        class: Class,
        ready: impl FnOnce(Result<(), SchedError>),
    ) {
        let Some(station) = self.stations.get(cpu as usize) else { return };
        // Known before any plan is switched: later it may not get a CPU to say so.
        let register = || {
            if let Some(this) = station.held.lock().workers.get_mut(worker) {
                this.tid = Some(Tid::current());
                this.priority = if let Class::Fifo { priority } = class { Some(priority) } else { None };
            }
        };
        let Some((_class, epoch)) = self.enter(kernel_cpu, &class, register, ready) else { return };
        let mut ran: Option<(Upcall, End)> = None;
        let mut slept: Option<u32> = None;
        loop {
            let mut held = station.held.lock();
            if let Some(idle) = slept.take().and_then(|role| held.idle.get_mut(role as usize)) {
                *idle = idle.saturating_sub(1);
            }
            self.heed(&mut held);
            if held.stopping.is_some() {
                // What ends after the stop, perhaps because of it, is not complete; nor is it what others wait for.
                if let Some(this) = held.workers.get_mut(worker) {
                    this.slot = None;
                }
                return;
            }
            // The end of one job is when the next is looked for.
            let now = held.now(epoch);
            if let Some((upcall, end)) = ran.take() {
                held.core.end(upcall, end, now);
                held.core.settle(now);
                if let Some(before) = held.free(worker) {
                    let _ = self.set_priorities(&mut held);
                    held.core.idle(before, now);
                }
                if held.core.has_ended() {
                    // Those that follow may come before what this thread would take next.
                    self.leave(cpu, station, held);
                    continue;
                }
            }
            let Some(role) = held.role(worker) else { return };
            let next = if role == held.spare() { None } else { held.core.next(role, now) };
            let Some(upcall) = next else {
                let Some(signal) = station.signals.get(role as usize) else { return };
                let seen = signal.load(Ordering::Acquire);
                if let Some(idle) = held.idle.get_mut(role as usize) {
                    *idle += 1;
                }
                self.leave(cpu, station, held);
                sync::wait(signal, seen, epoch, epoch.now().saturating_add(IDLE_MAX));
                slept = Some(role);
                continue;
            };
            debug_assert!(self.goes_by_plan(&held, worker), "a job starts at another priority than its level's");
            if let Some(this) = held.workers.get_mut(worker) {
                this.slot = Some(upcall.slot);
            }
            self.leave(cpu, station, held);
            ran = Some((upcall, self.call(station, upcall, epoch)));
        }
    }

    fn call(&self, station: &Station, upcall: Upcall, epoch: Epoch) -> End {
        let Some(operation) = station.operations.get(upcall.slot as usize) else { return End::Failed };
        let job = Job { operation, upcall, epoch };
        let mut handler = operation.handler.lock();
        if job.must_stop() {
            // Dropped before it began: that is told already.
            return End::Failed;
        }
        // What a panic leaves is the program's: its own state, which only this handler touches.
        match catch_unwind(AssertUnwindSafe(|| handler(&job))) {
            Ok(()) => End::Completed,
            Err(payload) => {
                let said = payload.downcast_ref::<&str>().map(|said| (*said).to_owned());
                let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
                let said = said.unwrap_or_else(|| "a panic without a text".to_owned());
                job.operation.panic.lock().get_or_insert(said);
                // Here, where the panic has allocated and freed already. To drop it could panic again: with what, nobody looks at.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
                End::Failed
            }
        }
    }

    /// The thread that releases jobs and watches deadlines, for its whole life.
    pub(crate) fn keep_time(
        &self,
        cpu: u32,
        kernel_cpu: u32,
        class: Class,
        ready: impl FnOnce(Result<(), SchedError>),
    ) {
        let Some(station) = self.stations.get(cpu as usize) else { return };
        let mut sources: Vec<Source<'_>> = Vec::with_capacity(station.operations.len());
        for (operation, slot) in station.operations.iter().zip(0..) {
            let draw = Draw::new(self.seed, &operation.name);
            let source = Source::new(slot, &operation.tasks, draw, self.duration);
            sources.extend(source.filter(|source| self.draws_sporadic || !source.is_sporadic()));
        }
        let register = || station.held.lock().timer = Some(Tid::current());
        let Some((_class, epoch)) = self.enter(kernel_cpu, &class, register, ready) else { return };
        let mut switches = self.switches.iter().filter(|_| cpu == 0).peekable();
        loop {
            let seen = station.timer.load(Ordering::Acquire);
            while let Some((_, plan)) = switches.next_if(|(at, _)| *at <= epoch.now()) {
                self.switch(*plan);
            }
            let controlled = self.control(cpu, station, epoch);
            let mut held = station.held.lock();
            self.heed(&mut held);
            if held.stopping.is_some() {
                return;
            }
            let now = held.now(epoch);
            held.timer_due = false;
            held.core.pass_deadlines(now);
            let mut next = switches.peek().map_or(Time::MAX, |(at, _)| *at);
            next = next.min(release(&mut held.core, &mut sources, now, Overtaken::PassedOver).1);
            // Not before all arrivals of the run are told, however late this thread got its CPU.
            if now >= self.duration && next >= self.duration {
                held.core.settle(now);
                if held.core.has_ended() {
                    self.leave(cpu, station, held);
                    continue;
                }
                held.stopping = Some(now);
                drop(held);
                station.stop_handlers();
                station.wake_all();
                return;
            }
            // One that has come since it was last looked at is seen to soon, without a loop that never sleeps.
            let danger = held.core.next_danger().map(|danger| danger.max(now.saturating_add(AGAIN)));
            let instants = [Some(next), Some(controlled), held.core.next_deadline(), danger];
            let until = instants.into_iter().flatten().fold(self.duration, Time::min);
            let until = until.min(now.saturating_add(IDLE_MAX));
            held.timer_until = until;
            self.leave(cpu, station, held);
            sync::wait(&station.timer, seen, epoch, until);
        }
    }

    /// Takes CPU and class, says so, and waits for the start; `None` where it does not come to that.
    fn enter(
        &self,
        kernel_cpu: u32,
        class: &Class,
        register: impl FnOnce(),
        ready: impl FnOnce(Result<(), SchedError>),
    ) -> Option<(ClassGuard, Epoch)> {
        let entered = sched::set_affinity(&[kernel_cpu]).and_then(|()| {
            takt_linux::memory::prefault_stack::<STACK_TOUCHED>();
            ClassGuard::enter(class)
        });
        let guard = match entered {
            Ok(guard) => guard,
            Err(error) => {
                ready(Err(error));
                return None;
            }
        };
        register();
        ready(Ok(()));
        let epoch = wait_for_go(&self.go, &self.epoch)?;
        // Before time zero the clock stands still, and what is due then would come too early.
        while !epoch.sleep_until(Time::ZERO) {}
        Some((guard, epoch))
    }
}

/// A thread with nothing to do looks up this often, whoever may have forgotten to wake it.
pub(crate) const IDLE_MAX: Span = Span::from_s(1);

/// From a danger that a timer thread found right after it had asked the controller to when it asks again.
const AGAIN: Span = Span::from_us(50);

/// The job that a handler is called for.
pub struct Job<'a> {
    operation: &'a Running,
    upcall: Upcall,
    epoch: Epoch,
}

impl Job<'_> {
    /// The operation's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.operation.name
    }

    /// Which operation's job it is, of all dispatchers of this process: the same as [`Handle::operation`](super::Handle).
    pub(crate) fn operation(&self) -> u64 {
        self.operation.number
    }

    /// Zero for the operation's first job; jobs that were rejected or cancelled have numbers, too.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.upcall.number
    }

    /// Its nominal arrival, from the dispatcher's start: the timer's instant, or that of the push or of the last predecessor's end.
    #[must_use]
    pub fn arrival(&self) -> Time {
        self.upcall.arrival
    }

    /// When it has to be complete.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.upcall.deadline
    }

    /// The time since the dispatcher's start.
    #[must_use]
    pub fn now(&self) -> Time {
        self.epoch.now()
    }

    /// A time of its dispatcher as one of CLOCK_MONOTONIC, which all dispatchers have in common.
    pub(crate) fn monotonic(&self, time: Time) -> Time {
        self.epoch.monotonic(time)
    }

    /// The time that is left before the deadline; zero after it.
    #[must_use]
    pub fn time_left(&self) -> Span {
        self.deadline().saturating_since(self.now())
    }

    /// Whether it was dropped at its deadline, or the dispatcher stops: a long handler looks here now and then, and returns.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        self.operation.stop_before.load(Ordering::Acquire) > self.number()
    }

    /// Whether its deadline has passed.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.now() > self.deadline()
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
