//! The threads of a dispatcher, and what they share: per CPU a lock with priority inheritance around what decides for it, a thread that waits for
//! releases and deadlines, and threads for each level.
//!
//! On these paths nothing allocates, and no CPU's lock is held while a program's code runs. A thread never holds the locks of two CPUs, but for
//! a switch of plans, which takes them in order. A level's thread asks for a job only when it has the CPU: the kernel decides which level goes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use takt_linux::thread::Tid;
use takt_linux::{Class, ClassGuard, Epoch, SchedError, futex, sched};
use takt_model::draw::Draw;
use takt_model::{Span, Time};

use super::adaptive::Controller;
use super::core::{End, Place, Upcall};
use super::error::PushError;
use super::source::{Overtaken, Source, release};
use crate::gate::{GO_ABORT, GO_RUN, GO_WAIT, STACK_TOUCHED, wait_for_go};
use crate::sync::{self, AtomicU64, PiGuard, PiMutex};

pub(crate) use job::Handler;
pub use job::Job;
pub(crate) use overrun::Reports;
pub use overrun::{Overran, Overruns};
pub(crate) use station::{Held, Owed, Running, Station};
pub use switch::Switched;

mod job;
mod overrun;
mod station;
mod switch;

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
    /// By plan, by seat (those of demoted jobs last): the SCHED_FIFO priority. Empty where none is enforced.
    pub(crate) priorities: Vec<Vec<u8>>,
    /// When the first CPU's timer switches to which plan, in order of time.
    pub(crate) switches: Vec<(Time, usize)>,
    /// Chooses between two plans. No CPU's lock is held when this one is taken.
    pub(crate) controller: Option<PiMutex<Controller>>,
    /// Jobs that executed for longer than their operation's wcet, until the program takes them.
    pub(crate) overruns: Reports,
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
        let (wakes, ended) = station.put_back(self, held);
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
        if station.hand_back(self, held) {
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
                if held.stopping.is_some() || !station.hand_back(self, held) {
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
                if station.hand_back(self, held) {
                    cpus |= 1 << place.cpu;
                }
            }
        }
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
                let end = held.unwatch(worker, end);
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
                (this.slot, this.number) = (Some(upcall.slot), upcall.number);
            }
            if let Some(watched) = station.operations.get(upcall.slot as usize).and_then(|operation| operation.watched)
            {
                held.watch(worker, upcall, watched, now);
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
            self.look_for_overruns(cpu, station, &mut held, now);
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
            if held.core.nests() {
                // What is left to compare is known only then.
                held.core.settle(now);
                held.core.compare(now);
            }
            // One that has come since it was last looked at is seen to soon, without a loop that never sleeps.
            let danger = held.core.next_danger().map(|danger| danger.max(now.saturating_add(AGAIN)));
            let instants = [
                Some(next),
                Some(controlled),
                held.core.next_deadline(),
                danger,
                held.next_look(),
                held.core.next_comparison(),
            ];
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

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
