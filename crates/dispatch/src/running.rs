//! A dispatcher as a program holds it: built from a plan and handlers, started, pushed to, stopped.

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

use super::account::{Account, KernelAccount, PlanThread, Recorded, Told};
use super::adaptive::Adaptive;
use super::bound;
use super::build::{Built, Places, build, places, priorities, seats_max};
use super::core::{Counts, LEVELS_MAX, Place};
use super::error::{PushError, StartError, StopError};
use super::live::{Handler, Job, Overruns, Owed, Shared, Station, Switched};
use super::plan::{Plan, Row};
use super::told::Merger;
use crate::gate::{GO_RUN, GRACE, READY_MAX, STACK_BYTES};
use crate::sync::{AtomicU64, PiMutex};

/// From the last thread's readiness to time zero, so that all are asleep when it comes.
const LEAD: Span = Span::from_ms(20);
/// CPUs of one dispatcher: bits of a set.
const CPUS_MAX: usize = 64;

/// Which kinds of event a dispatcher tells by itself. Of migrations there are none: its threads keep to their CPUs.
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

/// How a dispatcher runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Run under SCHED_OTHER, without privilege and without any guarantee. Default: no, and a missing privilege is an error.
    pub best_effort: bool,
    /// Timers release no job at or after this. Default: none.
    pub duration: Option<Span>,
    /// Keys the draws of jitter and of distances, for a plan from a System file. Default 0.
    pub seed: u64,
    /// Whether timers draw the arrivals of sporadic operations. Default: no, the program pushes them.
    pub draws_sporadic: bool,
    /// Whether the plan's modes are switched to at their times. Default: no, the program does ([`Dispatching::switch`]).
    pub timed_modes: bool,
    /// Facts that each CPU keeps between two looks at the log ([`Dispatching::drain`]); more are lost and counted. From 2 to 2^24, the
    /// nearest of which holds otherwise. Default 65,536.
    pub records: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            best_effort: false,
            duration: None,
            seed: 0,
            draws_sporadic: false,
            timed_modes: false,
            records: 1 << 16,
        }
    }
}

/// A plan and the code of its operations, ready to start.
pub struct Dispatcher {
    plan: Plan,
    handlers: BTreeMap<TaskId, Handler>,
    options: Options,
    adaptive: Option<Adaptive>,
    kernel: Option<Box<dyn KernelAccount>>,
}

impl Dispatcher {
    /// For this plan, with default options.
    #[must_use]
    pub fn new(plan: Plan) -> Dispatcher {
        Dispatcher { plan, handlers: BTreeMap::new(), options: Options::default(), adaptive: None, kernel: None }
    }

    /// With these options.
    #[must_use]
    pub fn with(mut self, options: Options) -> Dispatcher {
        self.options = options;
        self
    }

    /// With a controller that moves between two of the plan's plans, and no switch at the times of modes. Default: none.
    #[must_use]
    pub fn adaptive(mut self, law: Adaptive) -> Dispatcher {
        self.adaptive = Some(law);
        self
    }

    /// With the kernel's account of its threads, too. The function `recorded` of the crate `takt-run` has
    /// the usual one. Default: the dispatcher's own account alone.
    #[must_use]
    pub fn watched_by(mut self, kernel: Box<dyn KernelAccount>) -> Dispatcher {
        self.kernel = Some(kernel);
        self
    }

    /// Which kinds of event it will tell.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.kernel.as_ref().map_or(KINDS, |kernel| kernel.kinds())
    }

    /// The code of an operation, called once a job. It runs on a real-time thread: it should not wait, and a long one looks at
    /// [`Job::must_stop`]. A panic in it is caught and counted; its next job is called as ever. It may have handles of its own dispatcher, and may even stop it, but does not see
    /// itself end. At the stop it is dropped, with all that it has, unless it has not returned by then.
    ///
    /// # Errors
    /// The plan has no such operation, or it has code already.
    pub fn on(mut self, name: &str, handler: impl FnMut(&Job<'_>) + Send + 'static) -> Result<Dispatcher, StartError> {
        let row = self.plan.rows.iter().find(|row| row.name == name);
        let task = row.ok_or_else(|| StartError::Unknown(name.to_owned()))?.task;
        if self.handlers.insert(task, Box::new(handler)).is_some() {
            return Err(StartError::Doubled(name.to_owned()));
        }
        Ok(self)
    }

    /// The plan that it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Starts all threads, and returns at their time zero. They are SCHED_FIFO, pinned to their CPUs, and end with the value that is returned.
    ///
    /// # Errors
    /// An operation without handler, a controller that does not fit, too few CPUs, a missing privilege, or a refusal of the kernel; nothing runs then.
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
        let Built { shared, lanes, workers } = build(&plan, &places, &mut handlers, &options, adaptive)?;
        let account = Some(Account::new(Merger::new(plan.node.0, lanes), kernel));
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

/// How its threads did not end.
enum End {
    Stuck { operation: String, grace: Span },
    Panicked { thread: String },
}

/// A thread of the dispatcher.
struct Thread {
    name: String,
    handle: JoinHandle<()>,
}

/// A dispatcher that runs. Dropped, it stops.
pub struct Dispatching {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    /// Until the stop.
    account: Option<Account>,
    places: Places,
    /// The kernel's numbers of the plan's CPUs.
    cpus: Vec<u32>,
    plan: Plan,
    warnings: Vec<String>,
    /// So that no page fault delays a job.
    locked: Option<Locked>,
}

/// An operation of a dispatcher that runs, to push jobs of: for any thread, also from within handlers.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    place: Place,
    /// [`Running::number`](super::live::Running), here so that pushes need not look for it.
    operation: u64,
}

impl Handle {
    pub(super) fn of(shared: Arc<Shared>, place: Place) -> Option<Handle> {
        let station = shared.stations.get(place.cpu as usize)?;
        let operation = station.operations.get(place.slot as usize)?.number;
        Some(Handle { shared, place, operation })
    }

    /// Releases a job now; its number. Its deadline counts from here. Takes one lock for a moment, allocates nothing, never waits for room.
    ///
    /// # Errors
    /// Why the job was not queued. Where it was for room ([`PushError::Full`]), a rejected job is counted and told, and the least distance of a sporadic
    /// operation counts from the last job that found room: one may try again at once.
    pub fn push(&self) -> Result<u64, PushError> {
        self.shared.push(self.place, |_, _| ())
    }

    /// The same; `named` is told the job's number, and the oldest that may still run, before anyone can run it.
    #[cfg(feature = "tokio")]
    pub(crate) fn push_with(&self, named: impl FnOnce(u64, u64)) -> Result<u64, PushError> {
        self.shared.push(self.place, named)
    }

    /// The same, but nobody is woken before [`Handle::pay`].
    pub(crate) fn push_quietly(&self, named: impl FnOnce(u64, u64), owed: &mut Option<Owed>) -> Result<u64, PushError> {
        self.shared.push_quietly(self.place, named, owed)
    }

    /// Wakes whom a push concerns, on a CPU of this dispatcher.
    pub(crate) fn pay(&self, owed: Owed) {
        self.shared.pay(owed);
    }

    /// Which plan holds about now.
    pub(crate) fn holds(&self) -> usize {
        self.shared.holds.load(Ordering::Relaxed)
    }

    /// Whether no job starts any more.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_stopping(&self) -> bool {
        let station = self.shared.stations.get(self.place.cpu as usize);
        station.is_none_or(|station| station.held.lock().is_stopping())
    }

    /// Which dispatcher's operation it is: another number for each of this process.
    pub(crate) fn dispatching(&self) -> u64 {
        self.shared.number
    }

    /// Which operation it is, of all dispatchers of this process. Its jobs know the same number.
    pub(crate) fn operation(&self) -> u64 {
        self.operation
    }

    /// No job with a number before this one waits or runs.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let station = self.shared.stations.get(self.place.cpu as usize)?;
        Some(station.held.lock().core.oldest(self.place.slot))
    }
}

/// How a dispatcher ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// When, since its start.
    pub end: Time,
    /// What became of the jobs, by operation in the order of the plan.
    pub counts: Vec<(String, Counts)>,
    /// Facts that found a full buffer: the log has a `Lost` where they would stand.
    pub lost: u64,
    /// What the first panic of an operation's handler said, by operation; how often they panicked stands in the counts.
    pub panics: Vec<(String, String)>,
    /// Switches of plans: those of the program, of modes' times and of a controller.
    pub switched: u64,
    /// The longest that one of them had the queues of all CPUs locked.
    pub locked: Span,
    /// Changes of a thread's priority at a switch of plans that the kernel refused.
    pub refused: u64,
    /// How the recording of the kernel went; `None` where there was none ([`Dispatcher::watched_by`]).
    pub recorded: Option<Recorded>,
    /// Why the kernel could not be recorded any more from some moment on.
    pub unrecorded: Option<RecorderError>,
    /// Why jobs were late, by operation in the order of the plan; `None` where the kernel was not recorded.
    pub late: Option<Vec<Late>>,
}

impl Dispatching {
    /// Lets the threads run from their time zero on, and returns then.
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
        // A push before time zero would have no time of its own.
        while !epoch.sleep_until(Time::from_ns(1)) {}
        Ok(())
    }

    fn plan_threads(&self) -> Vec<PlanThread> {
        let of = |(station, cpu): (&Station, u32)| -> Vec<PlanThread> {
            let thread = |(tid, works)| PlanThread { tid, cpu, works };
            station.held.lock().tids().map(thread).collect()
        };
        self.shared.stations.iter().zip(0..).flat_map(of).collect()
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
                let role = |station: &Station| station.held.lock().role(worker);
                let level = self.shared.stations.get(cpu as usize).and_then(role).unwrap_or(0) as usize;
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
        // Of several, that of the first thread: no other one wants a greater priority.
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

    /// What may keep its threads from their CPUs though nothing else is more important, as the kernel was set at the start: sentences. Operations that may use more of a CPU
    /// than the kernel leaves real-time threads (RT throttling, its fair server, a control group's budget).
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The plan that it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its time zero.
    pub(crate) fn epoch(&self) -> Epoch {
        self.shared.epoch()
    }

    /// The kernel's numbers of the plan's CPUs.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// No other dispatcher of this process has it.
    pub(crate) fn number(&self) -> u64 {
        self.shared.number
    }

    /// Whether its threads are ordinary ones, and nothing is guaranteed.
    fn is_best_effort(&self) -> bool {
        self.shared.priorities.is_empty()
    }

    /// Locks what memory there is now. Nothing where it is refused and nothing is guaranteed.
    pub(crate) fn lock_memory(&self) -> Result<Option<Locked>, StartError> {
        match memory::lock() {
            Ok(locked) => Ok(Some(locked)),
            Err(_) if self.is_best_effort() => Ok(None),
            Err(error) => Err(StartError::Privilege { missing: error.to_string() }),
        }
    }

    /// The class of its timer threads.
    pub(crate) fn timer_class(&self) -> Class {
        let priority = self.plan.timer_priority;
        if self.is_best_effort() { Class::Other } else { Class::Fifo { priority } }
    }

    /// The class of the threads of a level of its plan.
    pub(crate) fn level_class(&self, level: usize) -> Class {
        match self.plan.levels.get(level) {
            Some(level) if !self.is_best_effort() => Class::Fifo { priority: level.priority },
            _ => Class::Other,
        }
    }

    /// The time since its start; zero until then.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.epoch().now()
    }

    /// An operation to push jobs of; `None` where the plan has none of that name.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<Handle> {
        let row = self.plan.rows.iter().find(|row| row.name == name)?;
        Handle::of(self.shared.clone(), *self.places.get(&row.task)?)
    }

    /// Another plan holds on all CPUs from one instant on: 0 is that of the node's strategy, k that of its k-th mode. Jobs that wait are
    /// ordered by it, none is lost or told twice; jobs that run go on, at the level that it gives them. A controller goes on from there: a plan that is neither of its two puts
    /// it to rest until one of them holds again, and from calm it may bring the guard at once.
    ///
    /// `None` where there is no such plan.
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

    /// Which plan holds: 0 is that of the node's strategy, k that of its k-th mode. A controller, or a mode's time, may have changed it since.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.shared.stations.first().map_or(0, |station| station.held.lock().core.plan())
    }

    /// Whether its [`Options::duration`] has passed on all CPUs and every arrival in it is told: only [`Dispatching::stop`] is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.stations.iter().all(|station| station.held.lock().is_stopping())
    }

    /// What became of the jobs so far, by operation in the order of the plan.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let of = |row: &Row| {
            let place = self.places.get(&row.task)?;
            let station = self.shared.stations.get(place.cpu as usize)?;
            let counts = station.held.lock().counts(place.slot, self.shared.epoch())?;
            let overran = station.operations.get(place.slot as usize)?.overran.load(Ordering::Relaxed);
            Some((row.name.clone(), Counts { overran, ..counts }))
        };
        self.plan.rows.iter().filter_map(of).collect()
    }

    /// Jobs that execute for longer than their operation's wcet, as it happens, where [`Operation::overrun`](super::Operation::overrun) says what becomes of them.
    #[must_use]
    pub fn overruns(&self) -> Overruns {
        Overruns { shared: self.shared.clone() }
    }

    /// What the first panic of an operation's handler said, by operation: nothing of those that have not panicked.
    #[must_use]
    pub fn panics(&self) -> Vec<(String, String)> {
        let operations = self.shared.stations.iter().flat_map(|station| &station.operations);
        operations.filter_map(|operation| Some((operation.name.clone(), operation.panic.lock().clone()?))).collect()
    }

    /// Tells `sink` what has happened since the last time; the stream is the number of the plan's node. To be called often
    /// enough that [`Options::records`] are not exceeded, from a thread that is in no hurry.
    pub fn drain(&mut self, sink: &mut (impl Sink + ?Sized)) {
        let shared = &self.shared;
        if let Some(account) = &mut self.account {
            account.drain(|cpu| shared.floor(cpu), sink);
        }
    }

    /// Stops: no job starts any more, those that run may return (5 s at most), jobs that wait are unfinished. `sink` is told the rest. Handlers are dropped then.
    ///
    /// # Errors
    /// A handler that does not return; its thread is left behind, and the handler with what it has stays. So does one that stops its own dispatcher: for that one nobody waits.
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
            let Told { lost, last, kernel } = account.finish(end, sink);
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
                // That a handler runs on is the worse news.
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
