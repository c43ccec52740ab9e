//! A dispatcher as a program uses it: built from a plan and handlers, started, pushed to, stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;

use takt_linux::memory::{self, Locked};
use takt_linux::sched::SchedError;
use takt_linux::tracing::RecorderError;
use takt_linux::{Class, Epoch, clock, futex, sched};
use takt_log::causes::Late;
use takt_log::{Kind, KindSet, Sink};
use takt_model::{Span, TaskId, Time};

use super::account::{Account, AccountsEnd, KernelAccount, PlanThread};
use super::adaptive::Adaptive;
use super::bound;
use super::build::{Built, Places, build, places, priorities, seats_max};
use super::core::{Counts, LEVELS_MAX, Place};
use super::error::{PushError, StartError};
use super::fact_log::Merger;
use super::live::{CpuState, DeferredWakeups, Handler, Job, Overruns, Shared, Switched};
use super::options::Options;
use super::plan::{Plan, Row};
use super::stopped::{StopError, Stopped};
use crate::gate::{GO_RUN, GRACE, READY_MAX, STACK_BYTES};
use crate::sync::{AtomicU64, PiMutex};

/// The time from the last thread's readiness to time zero. It lets all threads fall asleep before.
const LEAD: Span = Span::from_ms(20);
/// CPUs of one dispatcher: bits of a set.
const CPUS_MAX: usize = 64;

/// The kinds of event that a dispatcher logs by itself. There are no migrations, because its
/// threads stay on their CPUs.
pub const KINDS: KindSet = KindSet::of(&[
    Kind::Release,
    Kind::Start,
    Kind::Preempt,
    Kind::Resume,
    Kind::Migrate,
    Kind::Complete,
    Kind::Miss,
    Kind::Cancel,
    Kind::ModeChange,
    Kind::Gap,
    Kind::Lost,
]);

/// A plan and the handlers of its operations, ready to start.
pub struct Dispatcher {
    plan: Plan,
    handlers: BTreeMap<TaskId, Handler>,
    options: Options,
    adaptive: Option<Adaptive>,
    kernel: Option<Box<dyn KernelAccount>>,
}

impl Dispatcher {
    /// A dispatcher for this plan, with default options.
    #[must_use]
    pub fn new(plan: Plan) -> Dispatcher {
        Dispatcher { plan, handlers: BTreeMap::new(), options: Options::default(), adaptive: None, kernel: None }
    }

    /// Sets the options.
    #[must_use]
    pub fn with(mut self, options: Options) -> Dispatcher {
        self.options = options;
        self
    }

    /// Adds a controller that moves between two of the plan's plans. The modes' times then have no
    /// effect. Default: none.
    #[must_use]
    pub fn adaptive(mut self, law: Adaptive) -> Dispatcher {
        self.adaptive = Some(law);
        self
    }

    /// Adds the kernel's account of the threads. The function `recorded` of the crate `takt-run`
    /// makes the usual one. Default: the dispatcher's own account alone.
    #[must_use]
    pub fn watched_by(mut self, kernel: Box<dyn KernelAccount>) -> Dispatcher {
        self.kernel = Some(kernel);
        self
    }

    /// The kinds of event that it will log.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.kernel.as_ref().map_or(KINDS, |kernel| kernel.kinds())
    }

    /// Sets the handler of an operation, called for each job. It runs on a real-time thread, so it
    /// should not wait. A long handler checks [`Job::must_stop`]. A panic is caught and counted,
    /// and the next job runs as usual. The handler may own handles of its own dispatcher. It may
    /// even stop the dispatcher, but then does not see the end. The stop drops the handler and
    /// everything in it, unless the handler has not returned by then.
    ///
    /// # Errors
    /// The plan has no such operation, or the operation has a handler already.
    pub fn on(mut self, name: &str, handler: impl FnMut(&Job<'_>) + Send + 'static) -> Result<Dispatcher, StartError> {
        let row = self.plan.rows.iter().find(|row| row.name == name);
        let task = row.ok_or_else(|| StartError::Unknown(name.to_owned()))?.task;
        if self.handlers.insert(task, Box::new(handler)).is_some() {
            return Err(StartError::Doubled(name.to_owned()));
        }
        Ok(self)
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Starts all threads and returns at their time zero. The threads are SCHED_FIFO and pinned to
    /// their CPUs. They end with the returned value.
    ///
    /// # Errors
    /// An operation has no handler, the controller does not fit, there are too few CPUs, a
    /// privilege is missing, or the kernel refused. Then nothing runs.
    pub fn start(self) -> Result<Dispatching, StartError> {
        let Dispatcher { plan, mut handlers, options, adaptive, kernel } = self;
        if let Some(wrong) = adaptive.as_ref().and_then(|law| law.wrong(&plan)) {
            return Err(StartError::Adaptive(wrong));
        }
        let cpus = sched::affinity();
        let node = plan.system.nodes.get(plan.node.index()).map_or(1, |node| node.cpus as usize);
        if node > cpus.len() {
            return Err(StartError::Cpus { wanted: node, there: cpus.len() });
        }
        let (levels, demoted) = seats_max(&plan);
        for (what, there, most) in
            [("the plan's CPUs", node, CPUS_MAX), ("the priorities of the plan's levels", levels, LEVELS_MAX - demoted)]
        {
            if there > most {
                return Err(StartError::TooMany { what, there, most });
            }
        }
        let places = places(&plan);
        let Built { shared, fact_logs, workers } = build(&plan, &places, &mut handlers, &options, adaptive)?;
        let account = Some(Account::new(Merger::new(plan.node.0, fact_logs), kernel));
        let cpus = cpus.into_iter().take(node).collect();
        let warnings = if options.best_effort { Vec::new() } else { bound::beyond(&plan, bound::bound()) };
        let threads = Vec::new();
        let mut dispatching = Dispatching { shared, threads, account, places, cpus, plan, warnings, locked: None };
        dispatching.hire(workers)?;
        dispatching.locked = dispatching.lock_memory()?;
        dispatching.go()?;
        Ok(dispatching)
    }
}

/// The causes of a bad end.
enum End {
    Stuck { operation: String, grace: Span },
    Panicked { thread: String },
}

struct Thread {
    name: String,
    handle: JoinHandle<()>,
}

/// A running dispatcher. Dropping it stops it.
pub struct Dispatching {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    /// `Some` until the stop.
    account: Option<Account>,
    places: Places,
    /// The kernel's numbers for the plan's CPUs.
    cpus: Vec<u32>,
    plan: Plan,
    warnings: Vec<String>,
    /// Locked memory, so that no page fault delays a job.
    locked: Option<Locked>,
}

/// A handle for pushing jobs of an operation of a running dispatcher, from any thread, also from
/// handlers.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    place: Place,
    /// A copy of [`Running::number`](super::live::Running), so that pushes need not look it up.
    operation: u64,
}

impl Handle {
    pub(super) fn of(shared: Arc<Shared>, place: Place) -> Option<Handle> {
        let cpu_state = shared.cpu_states.get(place.cpu as usize)?;
        let operation = cpu_state.operations.get(place.slot as usize)?.number;
        Some(Handle { shared, place, operation })
    }

    /// Releases a job now and returns its number. Its deadline counts from now. Takes one lock for
    /// a moment, allocates nothing, and never waits for room.
    ///
    /// # Errors
    /// The job was not queued. After [`PushError::Full`] a rejected job is counted and logged. The
    /// least distance of a sporadic operation counts from the last accepted job, so the program may
    /// try again at once.
    pub fn push(&self) -> Result<u64, PushError> {
        self.shared.push(self.place, |_, _| ())
    }

    /// As [`Handle::push`]. `named` gets the job's number and the oldest number that may still run,
    /// before any thread can run the job.
    #[cfg(feature = "tokio")]
    pub(crate) fn push_with(&self, named: impl FnOnce(u64, u64)) -> Result<u64, PushError> {
        self.shared.push(self.place, named)
    }

    /// As [`Handle::push_with`] without wake-ups, which [`Handle::wake_deferred`] does.
    pub(crate) fn push_without_wakeups(
        &self,
        named: impl FnOnce(u64, u64),
        deferred: &mut Option<DeferredWakeups>,
    ) -> Result<u64, PushError> {
        self.shared.push_without_wakeups(self.place, named, deferred)
    }

    /// Does the deferred wake-ups of a push, on a CPU of this dispatcher.
    pub(crate) fn wake_deferred(&self, deferred: DeferredWakeups) {
        self.shared.wake_deferred(deferred);
    }

    /// The current plan, approximately.
    pub(crate) fn holds(&self) -> usize {
        self.shared.holds.load(Ordering::Relaxed)
    }

    /// Whether jobs no longer start.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_stopping(&self) -> bool {
        let cpu_state = self.shared.cpu_states.get(self.place.cpu as usize);
        cpu_state.is_none_or(|cpu_state| cpu_state.held.lock().is_stopping())
    }

    /// The number of the dispatcher, unique in this process.
    pub(crate) fn dispatching(&self) -> u64 {
        self.shared.number
    }

    /// The number of the operation, unique in this process. Its jobs carry the same number.
    pub(crate) fn operation(&self) -> u64 {
        self.operation
    }

    /// The oldest number of a job that waits or runs.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let cpu_state = self.shared.cpu_states.get(self.place.cpu as usize)?;
        Some(cpu_state.held.lock().core.oldest(self.place.slot))
    }
}

impl Dispatching {
    /// Releases the threads at their time zero, and returns then.
    fn go(&mut self) -> Result<(), RecorderError> {
        let threads = self.plan_threads();
        let best_effort = self.is_best_effort();
        if let Some(account) = &mut self.account {
            account.watch(&self.plan, &threads, &self.cpus, best_effort)?;
        }
        let epoch = Epoch::in_future(LEAD);
        if let Some(account) = &mut self.account {
            account.begin(epoch);
        }
        let _ = self.shared.epoch.set(epoch);
        self.shared.go.store(GO_RUN, Ordering::Release);
        futex::wake_all(&self.shared.go);
        // Just after time zero, so that each push has a time of its own.
        while !epoch.sleep_until(Time::from_ns(1)) {}
        Ok(())
    }

    fn plan_threads(&self) -> Vec<PlanThread> {
        let of = |(cpu_state, cpu): (&CpuState, u32)| -> Vec<PlanThread> {
            let thread = |(tid, works)| PlanThread { tid, cpu, works };
            cpu_state.held.lock().tids().map(thread).collect()
        };
        self.shared.cpu_states.iter().zip(0..).flat_map(of).collect()
    }

    fn hire(&mut self, workers: usize) -> Result<(), StartError> {
        let (send, ready) = mpsc::channel::<(usize, Result<(), SchedError>)>();
        let priorities = priorities(&self.plan);
        let best_effort = self.is_best_effort();
        let class = |priority: u8| if best_effort { Class::Other } else { Class::Fifo { priority } };
        for (cpu, kernel_cpu) in self.cpus.clone().into_iter().enumerate() {
            let (cpu, name) = (cpu as u32, kernel_cpu.to_string());
            let (shared, sent, index) = (self.shared.clone(), send.clone(), self.threads.len());
            let timer = class(self.plan.timer_priority);
            self.spawn(format!("takt timer {name}"), move || {
                shared.keep_time(cpu, kernel_cpu, timer, |result| drop(sent.send((index, result))));
            })?;
            for worker in 0..workers {
                let role = |cpu_state: &CpuState| cpu_state.held.lock().role(worker);
                let level = self.shared.cpu_states.get(cpu as usize).and_then(role).unwrap_or(0) as usize;
                let levels = priorities.first().map_or(&[][..], |first| first);
                let priority = levels.get(level).or(levels.last()).copied().unwrap_or(1);
                let (shared, sent, index) = (self.shared.clone(), send.clone(), self.threads.len());
                let class = class(priority);
                self.spawn(format!("takt {name} worker {worker}"), move || {
                    shared.serve(cpu, worker, kernel_cpu, class, |result| drop(sent.send((index, result))));
                })?;
            }
        }
        drop(send);
        // The error of the first thread, which needs the highest privilege.
        let mut refused: Option<(usize, SchedError)> = None;
        for _ in 0..self.threads.len() {
            match ready.recv_timeout(READY_MAX) {
                Ok((_, Ok(()))) => {}
                Ok((index, Err(cause))) => {
                    if refused.as_ref().is_none_or(|(first, _)| index < *first) {
                        refused = Some((index, cause));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let cause = "it did not come up within 30s".to_owned();
                    return Err(StartError::Spawn { thread: "a thread of the dispatcher".to_owned(), cause });
                }
            }
        }
        match refused {
            Some((index, cause)) => Err(self.refused(index, cause)),
            None => Ok(()),
        }
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let builder = std::thread::Builder::new().name(name.clone()).stack_size(STACK_BYTES);
        match builder.spawn(body) {
            Ok(handle) => {
                self.threads.push(Thread { name, handle });
                Ok(())
            }
            Err(error) => Err(StartError::Spawn { thread: name, cause: error.to_string() }),
        }
    }

    fn refused(&self, index: usize, cause: SchedError) -> StartError {
        let thread = self.threads.get(index).map_or_else(String::new, |thread| thread.name.clone());
        StartError::of(thread, cause)
    }

    /// Warnings about kernel settings at the start that may keep the threads from their CPUs. They
    /// name operations that may use more of a CPU than the kernel allows real-time threads (RT
    /// throttling, the fair server, a control group's budget).
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Time zero.
    pub(crate) fn epoch(&self) -> Epoch {
        self.shared.epoch()
    }

    /// The kernel's numbers for the plan's CPUs.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Unique among the dispatchers of this process.
    pub(crate) fn number(&self) -> u64 {
        self.shared.number
    }

    /// Whether its threads are ordinary, without guarantees.
    fn is_best_effort(&self) -> bool {
        self.shared.priorities.is_empty()
    }

    /// Locks the process's present memory. Without guarantees, a refusal is ignored.
    pub(crate) fn lock_memory(&self) -> Result<Option<Locked>, StartError> {
        match memory::lock() {
            Ok(locked) => Ok(Some(locked)),
            Err(_) if self.is_best_effort() => Ok(None),
            Err(error) => Err(StartError::Privilege { missing: error.to_string() }),
        }
    }

    pub(crate) fn timer_class(&self) -> Class {
        let priority = self.plan.timer_priority;
        if self.is_best_effort() { Class::Other } else { Class::Fifo { priority } }
    }

    pub(crate) fn level_class(&self, level: usize) -> Class {
        match self.plan.levels.get(level) {
            Some(level) if !self.is_best_effort() => Class::Fifo { priority: level.priority },
            _ => Class::Other,
        }
    }

    /// The time since the start; zero before it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.epoch().now()
    }

    /// A handle for pushing jobs of an operation; `None` if the plan has no such operation.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<Handle> {
        let row = self.plan.rows.iter().find(|row| row.name == name)?;
        Handle::of(self.shared.clone(), *self.places.get(&row.task)?)
    }

    /// Switches all CPUs to another plan at one instant: 0 is that of the node's strategy, k that
    /// of its k-th mode. Waiting jobs are reordered, and none is lost or logged twice. Running jobs
    /// continue at the level that the new plan gives them. A controller continues too. It rests
    /// while a plan other than its two holds. From calm it may switch to the guard at once.
    ///
    /// `None` if there is no such plan.
    pub fn switch(&self, plan: usize) -> Option<Switched> {
        if plan > self.plan.modes.len() {
            return None;
        }
        let mut controller = self.shared.controller.as_ref().map(PiMutex::lock);
        if let Some(controller) = &mut controller {
            controller.set(plan);
        }
        Some(self.shared.switch(plan))
    }

    /// The current plan: 0 is that of the node's strategy, k that of its k-th mode. A controller or
    /// a mode's time may have changed it since.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.shared.cpu_states.first().map_or(0, |cpu_state| cpu_state.held.lock().core.plan())
    }

    /// Whether [`Options::duration`] has passed on all CPUs, with every arrival logged. Then only
    /// [`Dispatching::stop`] remains to be called.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.cpu_states.iter().all(|cpu_state| cpu_state.held.lock().is_stopping())
    }

    /// The outcomes of the jobs so far, by operation in the order of the plan.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let of = |row: &Row| {
            let place = self.places.get(&row.task)?;
            let cpu_state = self.shared.cpu_states.get(place.cpu as usize)?;
            let counts = cpu_state.held.lock().counts(place.slot, self.shared.epoch())?;
            let overran = cpu_state.operations.get(place.slot as usize)?.overran.load(Ordering::Relaxed);
            Some((row.name.clone(), Counts { overran, ..counts }))
        };
        self.plan.rows.iter().filter_map(of).collect()
    }

    /// Reports of jobs that execute for longer than their operation's wcet, as they happen.
    /// [`Operation::overrun`](super::Operation::overrun) turns the watch on.
    #[must_use]
    pub fn overruns(&self) -> Overruns {
        Overruns { shared: self.shared.clone() }
    }

    /// The message of the first panic of each operation's handler that has panicked.
    #[must_use]
    pub fn panics(&self) -> Vec<(String, String)> {
        let operations = self.shared.cpu_states.iter().flat_map(|cpu_state| &cpu_state.operations);
        operations.filter_map(|operation| Some((operation.name.clone(), operation.panic.lock().clone()?))).collect()
    }

    /// Writes the log since the last call to `sink`. The stream is the number of the plan's node.
    /// Call it often enough for [`Options::records`], from a thread without deadlines.
    pub fn drain(&mut self, sink: &mut (impl Sink + ?Sized)) {
        let shared = &self.shared;
        if let Some(account) = &mut self.account {
            account.drain(|cpu| shared.floor(cpu), sink);
        }
    }

    /// Stops: no further job starts, running handlers may return (within 5 s), and waiting jobs
    /// stay unfinished. `sink` gets the rest of the log. Then the handlers are dropped.
    ///
    /// # Errors
    /// A handler does not return. Its thread and the handler are left behind. A handler that stops
    /// its own dispatcher is left behind too, without waiting.
    pub fn stop(mut self, sink: &mut (impl Sink + ?Sized)) -> Result<Stopped, StopError> {
        let end = self.shared.stop();
        let ended = self.end_threads();
        let counts = self.counts();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut stopped = Stopped {
            end,
            counts,
            lost: 0,
            panics: self.panics(),
            switched: load(&self.shared.switched),
            locked: Span::from_ns(load(&self.shared.locked_ns)),
            refused: load(&self.shared.refused),
            recorded: None,
            unrecorded: None,
            late: None,
        };
        if let Some(account) = self.account.take() {
            let AccountsEnd { lost, last, kernel } = account.finish(end, sink);
            (stopped.lost, stopped.end) = (lost, end.max(last));
            let of = |late: BTreeMap<TaskId, Late>| {
                let row = |row: &Row| late.get(&row.task).cloned().unwrap_or_default();
                self.plan.rows.iter().map(row).collect()
            };
            if let Some(kernel) = kernel {
                stopped.recorded = Some(kernel.recorded);
                stopped.unrecorded = kernel.failed;
                stopped.late = kernel.late.map(of);
            }
        }
        match ended {
            Ok(()) => Ok(stopped),
            Err(End::Panicked { thread }) => Err(StopError::Panicked { thread }),
            Err(End::Stuck { operation, grace }) => {
                Err(StopError::Stuck { operation, grace, stopped: Box::new(stopped) })
            }
        }
    }

    fn end_threads(&mut self) -> Result<(), End> {
        let epoch = Epoch::now_is_zero();
        let mut result = Ok(());
        for Thread { name, handle } in self.threads.drain(..) {
            // A handler that stops its own dispatcher would wait for itself.
            let own = handle.thread().id() == std::thread::current().id();
            let grace = if own { Span::ZERO } else { GRACE };
            while !handle.is_finished() && epoch.now() < Time::ZERO.saturating_add(grace) {
                clock::pause(Span::from_ms(1));
            }
            if !handle.is_finished() {
                result = Err(End::Stuck { operation: self.shared.running().unwrap_or(name), grace });
            } else if handle.join().is_err() && result.is_ok() {
                // A running handler is the more important error.
                result = Err(End::Panicked { thread: name });
            }
        }
        self.shared.drop_handlers();
        result
    }
}

impl Drop for Dispatching {
    fn drop(&mut self) {
        self.shared.stop();
        let _ = self.end_threads();
    }
}
