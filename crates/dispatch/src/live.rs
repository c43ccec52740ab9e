//! The threads of a dispatcher and their shared state. Each CPU has a lock with priority
//! inheritance around its decisions, a timer thread for releases and deadlines, and threads for
//! each level.
//!
//! Nothing here allocates, and no CPU's lock is held while a handler runs. A thread never holds the
//! locks of two CPUs, except for a switch of plans, which takes them in order. A level's thread
//! asks for a job only when it has the CPU, so the kernel decides which level runs.

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

pub(crate) use cpu_state::{CpuState, DeferredWakeups, LockedState};
pub use job::Job;
pub(crate) use job::{Handler, Running};
pub(crate) use overrun::Reports;
pub use overrun::{Overran, Overruns};
pub use switch::Switched;

mod cpu_state;
mod job;
mod overrun;
mod switch;
mod watch;

/// The state shared by all threads of a dispatcher.
pub(crate) struct Shared {
    /// Unique among the dispatchers of this process.
    pub(crate) number: u64,
    pub(crate) seed: u64,
    /// Whether timers draw the arrivals of sporadic operations; otherwise the program pushes them.
    pub(crate) draws_sporadic: bool,
    /// Timers release no job at or after this time.
    pub(crate) duration: Time,
    pub(crate) epoch: OnceLock<Epoch>,
    /// A futex.
    pub(crate) go: AtomicU32,
    pub(crate) cpu_states: Vec<CpuState>,
    /// SCHED_FIFO priorities by plan and seat (seats of demoted jobs last). Empty if none are
    /// enforced.
    pub(crate) priorities: Vec<Vec<u8>>,
    /// When the first CPU's timer thread switches plans, and to which, in order of time.
    pub(crate) switches: Vec<(Time, usize)>,
    /// The controller. No CPU's lock is held when this lock is taken.
    pub(crate) controller: Option<PiMutex<Controller>>,
    /// Overruns of the wcet, until the program takes them.
    pub(crate) overruns: Reports,
    /// Changes of priority that the kernel refused.
    pub(crate) refused: AtomicU64,
    /// The number of switches so far, and the longest time that a switch held the locks, in ns.
    pub(crate) switched: AtomicU64,
    pub(crate) locked_ns: AtomicU64,
    /// The current plan, for readers that tolerate a short delay.
    pub(crate) holds: AtomicUsize,
    /// Whether all CPUs must stop, whichever thread has their locks.
    pub(crate) stop_asked: AtomicBool,
}

impl Shared {
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.get().copied().unwrap_or_else(Epoch::now_is_zero)
    }

    /// Pushes a job for the program. `named` gets its number and the oldest number that may still
    /// run, before any thread can run the job.
    pub(crate) fn push(&self, place: Place, named: impl FnOnce(u64, u64)) -> Result<u64, PushError> {
        let mut deferred = None;
        let pushed = self.push_without_wakeups(place, named, &mut deferred);
        if let Some(deferred) = deferred {
            self.wake_deferred(deferred);
        }
        pushed
    }

    /// As [`Shared::push`] without the wake-ups, for callers that push more on this CPU first.
    pub(crate) fn push_without_wakeups(
        &self,
        place: Place,
        named: impl FnOnce(u64, u64),
        deferred: &mut Option<DeferredWakeups>,
    ) -> Result<u64, PushError> {
        let cpu_state = self.cpu_states.get(place.cpu as usize).ok_or(PushError::Stopped)?;
        if self.go.load(Ordering::Acquire) != GO_RUN {
            return Err(PushError::Stopped);
        }
        if self.draws_sporadic {
            return Err(PushError::NotPushed);
        }
        let mut held = cpu_state.held.lock();
        if held.stopping.is_some() {
            return Err(PushError::Stopped);
        }
        // Under the lock, so that concurrent pushes have increasing times, at least a nanosecond
        // apart.
        let now = held.now(self.epoch());
        let pushed = held.core.push(place.slot, now);
        if let Ok(number) = pushed {
            named(number, held.core.oldest(place.slot));
        }
        let (wakes, ended) = cpu_state.put_back(self, held);
        let new = DeferredWakeups { cpu: place.cpu, wakes, ended };
        *deferred = Some(match deferred.take() {
            Some(deferred) => deferred.and(new),
            None => new,
        });
        pushed.map_err(|rejected| rejected.into_error(now))
    }

    /// Does the deferred wake-ups of a push.
    pub(crate) fn wake_deferred(&self, deferred: DeferredWakeups) {
        if let Some(cpu_state) = self.cpu_states.get(deferred.cpu as usize) {
            cpu_state.wake(deferred.wakes);
        }
        if deferred.ended {
            self.release_followers(1 << deferred.cpu);
        }
    }

    /// Frees the lock of a CPU, wakes threads, and notifies followers on other CPUs.
    fn leave(&self, cpu: u32, cpu_state: &CpuState, held: PiGuard<'_, LockedState>) {
        if cpu_state.hand_back(self, held) {
            self.release_followers(1 << cpu);
        }
    }

    /// Releases and sheds followers on other CPUs of jobs that ended on these CPUs (bits), and then
    /// their followers in turn.
    fn release_followers(&self, mut cpus: u128) {
        while cpus != 0 {
            let cpu = cpus.trailing_zeros();
            let Some(cpu_state) = self.cpu_states.get(cpu as usize) else { return };
            let _courier = cpu_state.courier.lock();
            let mut held = cpu_state.held.lock();
            let Some(ended) = held.core.take_ended() else {
                if held.stopping.is_some() || !cpu_state.hand_back(self, held) {
                    cpus &= cpus - 1;
                }
                continue;
            };
            drop(held);
            let followers = cpu_state.operations.get(ended.slot as usize).map_or(&[][..], |ended| &ended.followers);
            for place in followers.iter().filter(|place| place.cpu != cpu) {
                let Some(cpu_state) = self.cpu_states.get(place.cpu as usize) else { continue };
                let mut held = cpu_state.held.lock();
                if held.stopping.is_some() {
                    continue;
                }
                held.now(self.epoch());
                held.core.follow(place.slot, ended);
                if cpu_state.hand_back(self, held) {
                    cpus |= 1 << place.cpu;
                }
            }
        }
    }

    /// Stops taking and releasing jobs. Returns the time of the stop.
    pub(crate) fn stop(&self) -> Time {
        if self.go.compare_exchange(GO_WAIT, GO_ABORT, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            futex::wake_all(&self.go);
        }
        // The caller may be less important than all threads here, which pass the locks among each
        // other while there is work. The next holder of a lock obeys this flag. So no handler that
        // returns because of the stop counts as complete.
        self.stop_asked.store(true, Ordering::Release);
        self.cpu_states.iter().for_each(CpuState::stop_handlers);
        let stopping = |cpu_state: &CpuState| {
            let mut held = cpu_state.held.lock();
            self.heed(&mut held);
            let stopping = held.stopping;
            drop(held);
            // After the flag, so that a thread about to sleep sees it or is woken.
            cpu_state.wake_all();
            stopping
        };
        self.cpu_states.iter().filter_map(stopping).max().unwrap_or_default()
    }

    /// Stops a CPU if that was requested.
    fn heed(&self, held: &mut LockedState) {
        if held.stopping.is_none() && self.stop_asked.load(Ordering::Acquire) {
            held.stopping = Some(held.now(self.epoch()));
        }
    }

    /// The name of an operation whose handler is running.
    pub(crate) fn running(&self) -> Option<String> {
        let slot = |cpu_state: &CpuState| cpu_state.held.lock().workers.iter().find_map(|worker| worker.slot);
        let operation =
            |cpu_state: &CpuState| cpu_state.operations.get(slot(cpu_state)? as usize).map(|op| op.name.clone());
        self.cpu_states.iter().find_map(operation)
    }

    /// Drops the handlers after the threads have ended. A handler may hold a handle of its own
    /// dispatcher, and so this state. The handler of a thread that has not ended stays.
    pub(crate) fn drop_handlers(&self) {
        for operation in self.cpu_states.iter().flat_map(|cpu_state| &cpu_state.operations) {
            let nothing: Handler = Box::new(|_| ());
            let handler = operation.handler.try_lock().map(|mut handler| std::mem::replace(&mut *handler, nothing));
            // Outside the lock, because it runs the program's code.
            drop(handler);
        }
    }

    /// The time before which no CPU reports further facts.
    pub(crate) fn floor(&self, cpu: usize) -> Time {
        let epoch = self.epoch();
        self.cpu_states.get(cpu).map_or(Time::MAX, |cpu_state| cpu_state.held.lock().now(epoch))
    }

    /// The body of a level's thread.
    pub(crate) fn serve(
        &self,
        cpu: u32,
        worker: usize,
        kernel_cpu: u32,
        class: Class,
        ready: impl FnOnce(Result<(), SchedError>),
    ) {
        let Some(cpu_state) = self.cpu_states.get(cpu as usize) else { return };
        // Registered before any switch of plans, because the thread may not get a CPU later.
        let register = || {
            if let Some(this) = cpu_state.held.lock().workers.get_mut(worker) {
                this.tid = Some(Tid::current());
                this.priority = if let Class::Fifo { priority } = class { Some(priority) } else { None };
            }
        };
        let Some((_class, epoch)) = self.enter(kernel_cpu, &class, register, ready) else { return };
        let mut ran: Option<(Upcall, End)> = None;
        let mut slept: Option<u32> = None;
        loop {
            let mut held = cpu_state.held.lock();
            if let Some(idle) = slept.take().and_then(|role| held.idle.get_mut(role as usize)) {
                *idle = idle.saturating_sub(1);
            }
            self.heed(&mut held);
            if held.stopping.is_some() {
                // A job that ends after the stop, perhaps because of it, is not complete. Its
                // followers are not released.
                if let Some(this) = held.workers.get_mut(worker) {
                    this.slot = None;
                }
                return;
            }
            // One reading of the clock ends a job and looks for the next.
            let now = held.now(epoch);
            if let Some((upcall, end)) = ran.take() {
                let end = held.unwatch(worker, end);
                held.core.end(upcall, end, now);
                held.core.release_followers(now);
                if let Some(before) = held.free(worker) {
                    let _ = self.set_priorities(&mut held);
                    held.core.idle(before, now);
                }
                if held.core.has_ended() {
                    // The followers may go before the job that this thread would take next.
                    self.leave(cpu, cpu_state, held);
                    continue;
                }
            }
            let Some(role) = held.role(worker) else { return };
            let next = if role == held.spare() { None } else { held.core.next(role, now) };
            let Some(upcall) = next else {
                let Some(signal) = cpu_state.signals.get(role as usize) else { return };
                let seen = signal.load(Ordering::Acquire);
                if let Some(idle) = held.idle.get_mut(role as usize) {
                    *idle += 1;
                }
                self.leave(cpu, cpu_state, held);
                sync::wait(signal, seen, epoch, epoch.now().saturating_add(IDLE_MAX));
                slept = Some(role);
                continue;
            };
            debug_assert!(self.goes_by_plan(&held, worker), "a job starts at another priority than its level's");
            if let Some(this) = held.workers.get_mut(worker) {
                (this.slot, this.number) = (Some(upcall.slot), upcall.number);
            }
            if let Some(watched) =
                cpu_state.operations.get(upcall.slot as usize).and_then(|operation| operation.watched)
            {
                held.watch(worker, upcall, watched, now);
            }
            self.leave(cpu, cpu_state, held);
            ran = Some((upcall, self.call(cpu_state, upcall, epoch)));
        }
    }

    fn call(&self, cpu_state: &CpuState, upcall: Upcall, epoch: Epoch) -> End {
        let Some(operation) = cpu_state.operations.get(upcall.slot as usize) else { return End::Failed };
        let job = Job { operation, upcall, epoch };
        let mut handler = operation.handler.lock();
        if job.must_stop() {
            // The job was dropped before it began, which is reported already.
            return End::Failed;
        }
        // After a panic, the state of the handler is the program's business. Nothing else uses it.
        match catch_unwind(AssertUnwindSafe(|| handler(&job))) {
            Ok(()) => End::Completed,
            Err(payload) => {
                let said = payload.downcast_ref::<&str>().map(|said| (*said).to_owned());
                let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
                let said = said.unwrap_or_else(|| "a panic without a text".to_owned());
                job.operation.panic.lock().get_or_insert(said);
                // On this thread, where the panic has allocated and freed already. Dropping the
                // payload may panic again; that second payload is leaked.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
                End::Failed
            }
        }
    }

    /// The body of the timer thread, which releases jobs and watches deadlines.
    pub(crate) fn keep_time(
        &self,
        cpu: u32,
        kernel_cpu: u32,
        class: Class,
        ready: impl FnOnce(Result<(), SchedError>),
    ) {
        let Some(cpu_state) = self.cpu_states.get(cpu as usize) else { return };
        let mut sources: Vec<Source<'_>> = Vec::with_capacity(cpu_state.operations.len());
        for (operation, slot) in cpu_state.operations.iter().zip(0..) {
            let draw = Draw::new(self.seed, &operation.name);
            let source = Source::new(slot, &operation.tasks, draw, self.duration);
            sources.extend(source.filter(|source| self.draws_sporadic || !source.is_sporadic()));
        }
        let register = || cpu_state.held.lock().timer = Some(Tid::current());
        let Some((_class, epoch)) = self.enter(kernel_cpu, &class, register, ready) else { return };
        let mut switches = self.switches.iter().filter(|_| cpu == 0).peekable();
        loop {
            let seen = cpu_state.timer.load(Ordering::Acquire);
            while let Some((_, plan)) = switches.next_if(|(at, _)| *at <= epoch.now()) {
                self.switch(*plan);
            }
            let controlled = self.control(cpu, cpu_state, epoch);
            let mut held = cpu_state.held.lock();
            self.heed(&mut held);
            if held.stopping.is_some() {
                return;
            }
            let now = held.now(epoch);
            held.timer_due = false;
            held.core.pass_deadlines(now);
            self.look_for_overruns(cpu, cpu_state, &mut held, now);
            let mut next = switches.peek().map_or(Time::MAX, |(at, _)| *at);
            next = next.min(release(&mut held.core, &mut sources, now, Overtaken::PassedOver).1);
            // Not before all arrivals of the run are reported, however late this thread got its
            // CPU.
            if now >= self.duration && next >= self.duration {
                held.core.release_followers(now);
                if held.core.has_ended() {
                    self.leave(cpu, cpu_state, held);
                    continue;
                }
                held.stopping = Some(now);
                drop(held);
                cpu_state.stop_handlers();
                cpu_state.wake_all();
                return;
            }
            if held.core.nests() {
                // The rest to compare is known only after settling.
                held.core.release_followers(now);
                held.core.compare(now);
            }
            // A danger that came since the last look is handled soon, without a busy loop.
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
            self.leave(cpu, cpu_state, held);
            sync::wait(&cpu_state.timer, seen, epoch, until);
        }
    }

    /// Takes CPU and class, reports that, and waits for the start. `None` if the start is aborted.
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
        // Before time zero the clock stands still, so jobs would be released too early.
        while !epoch.sleep_until(Time::ZERO) {}
        Some((guard, epoch))
    }
}

/// A sleeping thread wakes up this often, in case a wake-up was lost.
pub(crate) const IDLE_MAX: Span = Span::from_s(1);

/// The pause of a timer thread between two questions to the controller about the same danger.
const AGAIN: Span = Span::from_us(50);

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
