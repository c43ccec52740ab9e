//! Starts the threads together, watches them, and restores the machine.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use takt_dispatch::gate::GO_WAIT;
use takt_linux::cpuset::{CpusetError, Partitions};
use takt_linux::cpuset::{Recovery, recover};
use takt_linux::machine::Limits;
use takt_linux::memory::LockError;
use takt_linux::signals::StopSignals;
use takt_linux::tracing::{Guard, RecorderError};
use takt_linux::{Class, Epoch, clock, memory, sched};
use takt_log::causes::{Causes, Rules};
use takt_log::stats::Histogram;
use takt_log::{BackEnd, Definition, Definitions, Header, Kind, KindSet, Sink};
use takt_model::draw::{Arrivals, Draw, Releases};
use takt_model::{Bytes, CpuSet, Span, System, Task, TaskId, Time};
use takt_trace::merge::Stamped;

use crate::account::{Account, AccountSummary, watched};
use crate::contract::ServerBackEnd;
use crate::deadline::{self, account::WithServers};
use crate::error::{RunError, grant};
use crate::foreign;
use crate::foreigners::ExistingThreads;
use crate::handle::{RunHandle, Running};
use crate::handlers::{Handlers, TaskHandler};
use crate::kernel::{Kernel, TraceError, buffer, buffer_of};
use crate::lanes::{Guests, Lane, Role, Shared};
use crate::manager::{self, COMPONENTS_MAX, LEASE, Managed, TASKS_MAX};
use crate::mapping::{MappedTask, Mapping};
use crate::node::{Clocks, NodeError, NodeLive, NodePlan, Part, SyncJob};
use crate::record::LaneTask;
use crate::run_notes::{NOTE_NO_EVENTS, contradicted, fallen_back, throttled};
use crate::run_threads::RunThreads;
use crate::served::{self, live::Serving, news};
use crate::work::Work;
use crate::{Prepared, Ready, Recorded, RunSummary, Stamps, TaskSummary, Trace, watching};

/// A callback with the time of the run, for a progress bar.
pub type Progress<'a> = dyn FnMut(Time) + 'a;

/// From the last thread's readiness to time zero, so that all are asleep when it comes.
const LEAD: Span = Span::from_ms(50);
/// The kernel's scheduler tells events of servers at most this late.
const TOLD_LATE: Span = Span::from_ms(50);
/// Interval between two looks of the recorder.
pub(crate) const LOOK: Span = Span::from_ms(10);
// A manager that hangs holds no thread for more than a second. The threads of the run free themselves when the lease
// ends. The recorder frees existing threads at its next look.
const _: () = assert!(LEASE.saturating_add(LOOK).as_ns() < 1_000_000_000);

impl Prepared {
    /// The back end for the log's header: `run`, or `run-best-effort` under SCHED_OTHER.
    #[must_use]
    pub fn back_end(&self) -> BackEnd {
        if self.options.best_effort { BackEnd::RunBestEffort } else { BackEnd::Run }
    }

    /// Differences between the run and the System, as sentences for the log's header.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.mapping.notes
    }

    /// The System that runs. Only the levels that takt's dispatcher runs to completion differ from
    /// the given System.
    #[must_use]
    pub fn system(&self) -> &System {
        self.flows().map_or(&self.system, |plan| &plan.original)
    }

    fn flows(&self) -> Option<&Arc<NodePlan>> {
        self.managed.as_ref()?.node.as_ref()
    }

    /// The seed of all draws.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Opens the kernel's recorder if the options ask for it and this user may. Nothing is recorded
    /// yet.
    ///
    /// # Errors
    /// The recorder cannot be opened, and the options require it.
    pub fn open(&self) -> Result<Ready, RunError> {
        let mut ready = Ready { prepared: self.clone(), kernel: None };
        let serves = self.back_end == Some(ServerBackEnd::Deadline);
        let unrecorded = match self.dispatched {
            None if serves => {
                "preemptions, migrations and CPU times of jobs are unknown, and so is all that servers do"
            }
            None if self.managed.is_some() => {
                "preemptions are those by the managers, and CPU times include what other threads took"
            }
            None => "preemptions, migrations and CPU times of jobs are unknown",
            Some(_) => "preemptions are those by other jobs of this run, and CPU times include what other threads took",
        };
        if foreign::is_in(&self.system, self.node) && (self.managed.is_some() || self.served.is_some()) {
            if self.options.trace == Trace::Always {
                return Err(RunError::TraceOfForeign);
            }
            let note = "the kernel is not recorded beside existing threads";
            ready.prepared.mapping.notes.push(format!("{unrecorded}: {note}"));
            return Ok(ready);
        }
        if self.options.trace == Trace::Never {
            if self.dispatched.is_some() || serves || self.managed.is_some() {
                ready.prepared.mapping.notes.push(unrecorded.to_owned());
            }
            return Ok(ready);
        }
        let task = |id: TaskId| self.system.tasks.get(id.index());
        let tasks = || -> Vec<&Task> { self.mapping.tasks.iter().filter_map(|mapped| task(mapped.id)).collect() };
        let buffer = match (&self.dispatched, &self.managed) {
            (Some(plan), _) => buffer(&plan.tasks(), watching::EVENTS_PER_JOB),
            (None, None) => buffer(&tasks(), EVENTS_OF_THREAD),
            (None, Some(managed)) => {
                // Around each decision the CPU goes to the manager, and from it.
                let decisions = manager::records(&self.system, self.node, managed) * managed.parts.len();
                buffer_of(decisions as u64 * 2)
            }
        };
        let guard = if self.options.guardian { Guard::ThisProgram } else { Guard::NextStart };
        match Kernel::open(buffer, guard) {
            Ok(kernel) => {
                ready.kernel = Some(kernel);
                if serves {
                    ready.prepared.mapping.notes.push(COMPUTED.to_owned());
                }
            }
            Err(error) if self.options.trace == Trace::Always => return Err(RunError::Trace(error)),
            Err(error) => {
                let notes = &mut ready.prepared.mapping.notes;
                notes.push(format!("{unrecorded}, for the kernel is not recorded: {error}"));
            }
        }
        Ok(ready)
    }

    /// [`Prepared::open`] and [`Ready::run`].
    ///
    /// # Errors
    /// The errors of both.
    pub fn run(&self, sink: &mut impl Sink, progress: &mut Progress<'_>) -> Result<RunSummary, RunError> {
        self.open()?.run(sink, progress)
    }
}

/// The sources of the events of servers under SCHED_DEADLINE.
const COMPUTED: &str = "the log's charges, idle servers and used-up budgets were seen; its replenishments are \
    computed by the kernel's rule, because the kernel does not tell of them";

/// Kinds of events from the threads' stamps.
const STAMPED: KindSet = KindSet::of(&[Kind::Release, Kind::Start, Kind::Complete, Kind::Miss, Kind::Lost]);
/// Kinds of events with the kernel's account.
const WITNESSED: KindSet = STAMPED
    .with(Kind::Gap)
    .with(Kind::Preempt)
    .with(Kind::Resume)
    .with(Kind::Block)
    .with(Kind::Wake)
    .with(Kind::Migrate)
    .with(Kind::Occupy)
    .with(Kind::Steal);

/// Kinds of events of a run under budget managers, which tell who has the CPU.
const MANAGED: KindSet = KindSet::JOBS.union(KindSet::SERVERS).with(Kind::ModeChange).with(Kind::Lost);
/// The same of a node with flows.
const MESSAGES: KindSet = MANAGED.union(KindSet::MESSAGES).with(Kind::Transmit);

impl Ready {
    /// The System and its mapping.
    #[must_use]
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// The recorded kinds of events. Without the kernel's account there are no preemptions and
    /// migrations, because a thread cannot tell from inside whether another thread or something
    /// else took its CPU.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        if self.prepared.managed.is_some() {
            let managed = if self.prepared.flows().is_some() { MESSAGES } else { MANAGED };
            return if self.kernel.is_some() { managed.union(WITNESSED) } else { managed };
        }
        match (&self.prepared.dispatched, &self.kernel) {
            (Some(_), None) => takt_dispatch::KINDS,
            (Some(_), Some(_)) => watching::RECORDED_KINDS,
            (None, Some(_)) if self.prepared.back_end == Some(ServerBackEnd::Deadline) => {
                WITNESSED.union(KindSet::SERVERS)
            }
            (None, kernel) => {
                let told = if kernel.is_some() { WITNESSED } else { STAMPED };
                if self.prepared.served.is_some() { told.union(KindSet::SERVERS) } else { told }
            }
        }
    }

    /// Runs and hands every event to `sink` in time order; the stream is the node's number. Signals
    /// that would end the process end the run early and in order
    /// ([`takt_linux::signals::StopSignals`]).
    ///
    /// # Errors
    /// A missing privilege or a refusal of the kernel, before anything has run, or a failure of
    /// takt itself. Either way everything is restored.
    pub fn run(self, sink: &mut impl Sink, progress: &mut Progress<'_>) -> Result<RunSummary, RunError> {
        self.run_inner(sink, progress, (None, Handlers::new()))
    }

    /// The same. Jobs of tasks with a handler are carried out by it, on the threads of the run. Messages of
    /// flows carry what handlers put into them.
    ///
    /// # Errors
    /// As [`Ready::run`]; a handler for no task that has a thread of its own.
    pub fn run_handled(
        self,
        sink: &mut impl Sink,
        progress: &mut Progress<'_>,
        handlers: Handlers,
    ) -> Result<RunSummary, RunError> {
        if let (Some(_), Some(task)) = (&self.prepared.dispatched, handlers.first()) {
            return Err(RunError::NoHandled { task: task.clone() });
        }
        self.run_inner(sink, progress, (None, handlers))
    }

    /// The same. Components join the run, change their servers and leave it by `handle`. Only budget managers can.
    /// The kernel is not recorded, because threads join that no recording knows: [`Trace::Never`].
    ///
    /// # Errors
    /// As [`Ready::run`]; another back end, flows, or a recording.
    pub fn run_with(
        self,
        sink: &mut impl Sink,
        progress: &mut Progress<'_>,
        handle: &RunHandle,
    ) -> Result<RunSummary, RunError> {
        let serves = self.prepared.back_end == Some(ServerBackEnd::Manager) && self.prepared.flows().is_none();
        if !serves || self.kernel.is_some() {
            let node = self.prepared.system.nodes.get(self.prepared.node.index());
            return Err(RunError::NotLive { node: node.map_or_else(String::new, |node| node.name.clone()) });
        }
        self.run_inner(sink, progress, (Some(handle), Handlers::new()))
    }

    fn run_inner(
        self,
        sink: &mut impl Sink,
        progress: &mut Progress<'_>,
        program: (Option<&RunHandle>, Handlers),
    ) -> Result<RunSummary, RunError> {
        let system = self.prepared.system.clone();
        let causes = match &self.prepared.dispatched {
            Some(plan) if self.kernel.is_some() => takt_dispatch::causes(plan, false),
            _ => {
                let header = Header::new(String::new(), None, self.prepared.back_end(), self.kinds());
                let told = self.prepared.system();
                Causes::new(Rules::of(&header, Some(told)), &Definitions::of(told))
            }
        };
        let serves = self.prepared.back_end == Some(ServerBackEnd::Deadline) && self.kernel.is_some();
        let node = self.prepared.node;
        let account = serves.then(|| (node.0, deadline::account(&system, node)));
        let mut both = (sink, causes);
        let mut served = WithServers { sink: &mut both, account };
        let mut summary = self.run_into(&mut served, progress, program)?;
        served.finish(summary.end);
        if let Some(late) = both.1.finish(summary.end) {
            for task in &mut summary.tasks {
                let named = system.tasks.iter().position(|other| other.name == task.name);
                let id = named.and_then(|at| u32::try_from(at).ok()).map(TaskId);
                task.late = id.and_then(|id| late.get(&id).cloned());
            }
        }
        Ok(summary)
    }

    fn run_into(
        self,
        sink: &mut impl Sink,
        progress: &mut Progress<'_>,
        (handle, handlers): (Option<&RunHandle>, Handlers),
    ) -> Result<RunSummary, RunError> {
        let Ready { prepared, kernel } = self;
        if let Some(plan) = &prepared.dispatched {
            return prepared.run_dispatched(plan, kernel, sink, progress);
        }
        let mut mapping = prepared.mapping.clone();
        if let Recovery::Repaired { what, .. } = recover()? {
            mapping.notes.push(format!("an earlier run was killed: {what}"));
        }
        let signals = StopSignals::catch();
        let cpus = sched::affinity();
        let partitions = divide(&cpus, &mut mapping)?;
        let control = handlers.control();
        let resources =
            RunResources { signals: &signals, cpus: &cpus, partitions: partitions.as_ref(), handle, handlers };
        let result = prepared.run_divided(resources, mapping, kernel, sink, progress);
        control.end();
        // All threads have ended, unless one is stuck. `Partitions` evacuates a stuck one.
        let restored = match partitions.map(Arc::try_unwrap) {
            Some(Ok(partitions)) => partitions.restore().map_err(RunError::from),
            _ => Ok(()),
        };
        let summary = result?;
        restored?;
        Ok(summary)
    }
}

struct RunResources<'a> {
    signals: &'a StopSignals,
    cpus: &'a [u32],
    partitions: Option<&'a Arc<Partitions>>,
    /// By which components join the run.
    handle: Option<&'a RunHandle>,
    /// Of jobs.
    handlers: Handlers,
}

impl Prepared {
    fn run_divided(
        &self,
        resources: RunResources<'_>,
        mapping: Mapping,
        mut kernel: Option<Kernel>,
        sink: &mut impl Sink,
        progress: &mut Progress<'_>,
    ) -> Result<RunSummary, RunError> {
        let RunResources { signals, cpus, partitions, handle, mut handlers } = resources;
        let (mapped, mut notes) = (mapping.tasks, mapping.notes);
        let tasks: Vec<&Task> = mapped.iter().filter_map(|task| self.system.tasks.get(task.id.index())).collect();
        let live = match self.flows() {
            Some(plan) => Some(Arc::new(NodeLive::open(NodePlan::clone(plan), !handlers.is_empty())?)),
            None => None,
        };
        let control = handlers.control();
        live.iter().for_each(|live| control.begin(live));
        let (_clocks, sync) = live.as_ref().map(Clocks::start).transpose()?.unzip();
        let works = tasks
            .iter()
            .map(|task| {
                let bytes = task.wss.get();
                Work::new(task.wss).ok_or_else(|| RunError::Memory { task: task.name.clone(), bytes })
            })
            .collect::<Result<Vec<_>, _>>()?;
        // Before the threads, so that it ends after them.
        let mut existing_threads = ExistingThreads::adopt(self, cpus)?;
        let mut serving = match &self.served {
            Some(plan) => Some(Serving::open(self, plan, cpus, served::admit)?),
            None => None,
        };
        let found = (live.as_ref(), existing_threads.as_mut());
        let mut shared = self.shared(&mapped, &tasks, found, (cpus, handle.is_some()));
        if let Some(serving) = &serving {
            for (slot, (lane, task)) in shared.lanes.iter_mut().zip(&tasks).enumerate() {
                match self.system.threads_of(task) {
                    Some(_) => lane.role = Role::Served,
                    None => lane.membership = Some(serving.membership(slot)),
                }
            }
        }
        let shared = Arc::new(shared);
        // Managers, and their helpers.
        let beside: Vec<(MappedTask, String)> = self
            .managed
            .iter()
            .flat_map(|managed| {
                let managers = managed.parts.iter().map(|part| (managed.mapped(part), Managed::name(part)));
                managers.chain(managed.helpers(&shared.lanes))
            })
            .collect();
        let names = tasks.iter().map(|task| &task.name).chain(beside.iter().map(|(_, name)| name)).cloned();
        let mut threads = RunThreads::new(shared.clone(), names.collect());
        let mut duties = duties(&tasks, &shared.lanes, (live.as_ref(), sync.flatten()), &mut handlers)?;
        for (((mapped, work), lane), task_handler) in mapped.iter().zip(works).zip(&shared.lanes).zip(&mut duties) {
            if !lane.role.has_thread() {
                threads.skip();
                continue;
            }
            threads.spawn(mapped, kernel_cpus(cpus, &mapped.cpus), (work, task_handler.take()), partitions)?;
        }
        for (mapped, name) in beside {
            let work = Work::new(Bytes::default()).ok_or(RunError::Memory { task: name, bytes: 0 })?;
            threads.spawn(&mapped, kernel_cpus(cpus, &mapped.cpus), (work, None), None)?;
        }
        threads.wait_ready()?;
        if let Some(kernel) = &mut kernel {
            kernel.watch(watched(&shared.lanes), cpus).map_err(TraceError::from)?;
        }
        let _locked = self.lock_memory(&mut notes)?;
        let steal_before = clock::steal();
        let (epoch, begin) = match self.flows() {
            None => (Epoch::in_future(LEAD), Time::ZERO),
            Some(plan) => self.epoch_of(plan)?,
        };
        shared.begin_ns.store(begin.as_ns(), Ordering::Release);
        if begin > Time::ZERO {
            let at = begin.saturating_since(Time::ZERO);
            notes.push(format!(
                "this node came to a run that had begun: its first jobs are those from {at} on, and figures per \
                 time count from the common start"
            ));
        }
        if let Some(kernel) = &mut kernel {
            kernel.begin(epoch);
        }
        if let Some(serving) = &mut serving {
            serving.begin(epoch, shared.duration)?;
        }
        threads.go(epoch);
        let source = serving.as_ref().zip(self.served.as_ref()).map(|(serving, plan)| {
            news::ServerSource::new(serving.scheduler(), self.system.clone(), epoch, plan, cpus)
        });
        let sink = &mut news::WithServerEvents::new(sink, self.node.0, source);
        let open = handle.map(|handle| self.open_to(handle, &shared, cpus));

        let mut account = if self.managed.is_some() {
            Account::managed(sink, self.node.0, &shared, tasks.len(), kernel)
        } else {
            let both = tasks.iter().copied().zip(&shared.lanes);
            let lane_tasks = both.map(|(task, lane)| lane_task(task, lane, &shared)).collect();
            Account::new(sink, self.node.0, cpus, &shared.lanes, lane_tasks, kernel)
        };
        let mut interrupted = None;
        let (mut silent, mut ended, mut returned) = (None, None, None);
        loop {
            shared.served_until(epoch.now().saturating_sub(TOLD_LATE));
            account.look(LOOK, &shared.lanes, shared.end());
            if let Some(existing_threads) = &mut existing_threads {
                existing_threads.rescan(&shared);
            }
            let now = epoch.now();
            progress(now.min(shared.end()));
            if let Some(guests) = &shared.guests {
                guests.tell_costs(account.costs());
            }
            // The scheduler in the kernel learns of the end before it comes.
            let soon = if serving.is_some() { now.saturating_add(Span::from_ms(1)) } else { now };
            if interrupted.is_none() && signals.caught().is_some() {
                interrupted = signals.caught();
                shared.end_ns.fetch_min(soon.as_ns(), Ordering::AcqRel);
            }
            if control.is_stopped() {
                shared.end_ns.fetch_min(soon.as_ns(), Ordering::AcqRel);
            }
            if let Some(serving) = &mut serving
                && let Some(why) = serving.look(now, shared.end()).filter(|_| ended.is_none())
            {
                notes.push(fallen_back(now, &why));
                ended = Some(now);
            }
            if silent.is_none() && self.managed.is_some() {
                silent = manager::silent(&shared, epoch);
                if silent.is_some() {
                    shared.end_ns.fetch_min(now.as_ns(), Ordering::AcqRel);
                    // The manager does not respond. Release the existing threads now.
                    returned = existing_threads.take().map(|held| held.give_back(&shared));
                }
            }
            if threads.all_through() && now >= shared.end() {
                break;
            }
            if now >= shared.end() {
                threads.interrupt();
            }
            if now > shared.end().saturating_add(threads.grace()) {
                return Err(threads.stuck());
            }
        }
        threads.join()?;
        shared.served_until(Time::MAX);
        let returned = returned.or_else(|| existing_threads.map(|held| held.give_back(&shared)));
        let (mut foreign, returned) = returned.unwrap_or_default();
        notes.extend(returned);
        let lasted = shared.end().saturating_since(Time::ZERO);
        let served = serving.as_mut().map(|serving| {
            serving.end();
            serving.summaries(lasted)
        });
        let lost = served.as_ref().map_or(0, |(_, lost)| *lost);
        if let Some(handle) = handle {
            handle.end()?;
        }
        drop(open);
        if let Some(cpu) = silent {
            return Err(RunError::Manager { cpu });
        }
        if partitions.is_none() {
            // Reserved bandwidth comes back within a period. Wait, so that the machine is as
            // before. `Partitions` waits by itself.
            clock::pause(longest_reservation(&mapped));
        }
        let mut account = account.finish(&shared.lanes, shared.end());
        sink.finish(shared.end(), lost);
        let held = serving.as_mut().map(|serving| serving.groups(&sink.balances()));
        let (held, said) = held.unwrap_or_default();
        foreign.extend(held);
        notes.extend(said);
        let steal = steal_before.zip(clock::steal()).map(|(before, after)| after.saturating_sub(before));
        account.lost += lost;
        add_notes(&mut notes, &account, steal);
        let end = shared.end().max(account.last);
        for clock in live.iter().flat_map(|live| live.clocks()) {
            sink.define(self.node.0, end, &Definition::Clock(clock));
        }
        let mut stamped = account.stamped.iter();
        let summary = |(task, lane): (&&Task, &Lane)| summary_of(task, lane, stamped.next());
        let managers = match served {
            Some((managers, _)) => managers,
            None => manager::summaries(&shared.lanes, &account.passes, end.saturating_since(Time::ZERO)),
        };
        let guests = shared.guests.iter().flat_map(Guests::all);
        let guests = guests.map(|(_, guest)| summary_of(&guest.task, &guest.lane, None));
        let tasks: Vec<TaskSummary> = tasks.iter().zip(&shared.lanes).map(summary).chain(guests).collect();
        notes.extend(throttled(&tasks));
        notes.extend(contradicted(&tasks));
        notes.extend(manager::note_of_unbound(&shared.lanes));
        let unseen = account.kernel.as_ref().is_some_and(|kernel| kernel.switches == 0);
        if self.managed.is_some() && unseen && tasks.iter().any(|task| task.completed > 0) {
            notes.push(NOTE_NO_EVENTS.to_owned());
        }
        Ok(RunSummary {
            node: self.node,
            best_effort: self.options.best_effort,
            end,
            interrupted,
            notes,
            tasks,
            managers,
            foreign,
            flows: live.map(|live| live.summary()),
            lost: account.lost,
            recorded: account.kernel.map(|kernel| kernel.recorded()),
            steal,
        })
    }

    fn shared(
        &self,
        mapped: &[MappedTask],
        tasks: &[&Task],
        (live, existing_threads): (Option<&Arc<NodeLive>>, Option<&mut ExistingThreads>),
        (cpus, has_guests): (&[u32], bool),
    ) -> Shared {
        let mut lanes: Vec<Lane> = mapped
            .iter()
            .zip(tasks)
            .map(|(mapped, task)| Lane::new(mapped.id, mapped.class, mapped.yields, records(task.period)))
            .collect();
        for (index, task) in tasks.iter().enumerate() {
            let before = |id| mapped.iter().position(|mapped| mapped.id == id);
            for before in task.after.iter().filter_map(|id| before(*id)) {
                if let Some(lane) = lanes.get_mut(index) {
                    lane.after.push(before);
                }
                if let Some(lane) = lanes.get_mut(before) {
                    lane.before.push(index);
                }
            }
        }
        if let Some(managed) = &self.managed {
            if let Some(existing_threads) = existing_threads {
                existing_threads.take_seats(&mut lanes);
            }
            let records = manager::records(&self.system, self.node, managed);
            managed.add_to(&mut lanes, (self.node, cpus), records, live);
        }
        Shared {
            system: self.system.clone(),
            seed: self.options.seed,
            epoch: OnceLock::new(),
            begin_ns: 0.into(),
            go: GO_WAIT.into(),
            duration: Time::ZERO.saturating_add(self.options.duration),
            end_ns: self.options.duration.as_ns().into(),
            lanes,
            guests: has_guests.then(|| Guests::new(&self.system, COMPONENTS_MAX, TASKS_MAX)),
        }
    }

    /// The common time zero of the nodes, and when this one begins. A node that starts late, or again,
    /// leaves out the jobs before.
    fn epoch_of(&self, plan: &NodePlan) -> Result<(Epoch, Time), NodeError> {
        if let Some(epoch) = Epoch::at_realtime(plan.network.start) {
            return Ok((epoch, Time::ZERO));
        }
        let epoch = Epoch::since_realtime(plan.network.start).ok_or(NodeError::Booted)?;
        let begin = epoch.now().saturating_add(LEAD);
        if begin >= Time::ZERO.saturating_add(self.options.duration) {
            return Err(NodeError::Over);
        }
        if manager::has_components(&plan.original, plan.node) {
            return Err(NodeError::Started);
        }
        Ok((epoch, begin))
    }

    /// Opens the run to changes by its handle. It closes when the answer is dropped.
    fn open_to(&self, handle: &RunHandle, shared: &Arc<Shared>, cpus: &[u32]) -> Open {
        let class = match &self.managed {
            Some(managed) if !self.options.best_effort => Class::Fifo { priority: managed.top - 1 },
            _ => Class::Other,
        };
        let limits = (!self.options.best_effort && !self.options.force).then(Limits::read);
        let parts = self.managed.iter().flat_map(|managed| managed.parts.iter()).cloned().collect();
        handle.begin(Running::new(shared.clone(), self.node, cpus, class, limits, parts));
        Open { shared: shared.clone(), handle: handle.clone() }
    }

    /// Real-time threads must not wait for a page. Without the privilege only a best-effort run
    /// goes on.
    fn lock_memory(&self, notes: &mut Vec<String>) -> Result<Option<memory::Locked>, RunError> {
        match memory::lock() {
            Ok(locked) => Ok(Some(locked)),
            Err(error) if self.options.best_effort => {
                notes.push(format!("{error}; page faults may delay jobs"));
                Ok(None)
            }
            Err(error @ (LockError::Limit { .. } | LockError::Other(_))) => {
                let fifo = self.mapping.tasks.iter().all(|task| matches!(task.class, Class::Fifo { .. }));
                Err(RunError::Privilege { missing: error.to_string(), grant: grant(fifo) })
            }
        }
    }
}

/// Finds for each task who carries out its jobs: a program's handler, the exchanges of clocks, or busy
/// work.
fn duties(
    tasks: &[&Task],
    lanes: &[Lane],
    (live, mut sync): (Option<&Arc<NodeLive>>, Option<SyncJob>),
    handlers: &mut Handlers,
) -> Result<Vec<Option<TaskHandler>>, RunError> {
    let mut duties = Vec::new();
    for ((slot, task), lane) in (0..).zip(tasks).zip(lanes) {
        let is_sync = live.is_some_and(|live| live.plan.parts.get(slot as usize) == Some(&Part::Sync));
        let sync = if is_sync { sync.take() } else { None };
        let is_free = lane.role.has_thread() && sync.is_none();
        let handler = if is_free { handlers.take(&task.name) } else { None };
        duties.push(match (handler, live, sync) {
            (Some(handler), Some(live), _) => Some(TaskHandler::of_flow(handler, live, slot)),
            (Some(handler), None, _) => Some(TaskHandler::new(handler)),
            (None, _, Some(sync)) => Some(TaskHandler::new(Box::new(move |_| sync.run()))),
            (None, ..) => None,
        });
    }
    handlers.first().map_or(Ok(duties), |task| Err(RunError::NoHandled { task: task.clone() }))
}

/// A run that its handle changes.
struct Open {
    shared: Arc<Shared>,
    handle: RunHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.shared.epoch.get().is_none_or(|epoch| epoch.now() < self.shared.end()) {
            self.shared.end_ns.store(0, Ordering::Release);
        }
        let _ = self.handle.end();
    }
}

fn lane_task<'a>(task: &'a Task, lane: &Lane, shared: &Shared) -> LaneTask<'a> {
    let draw = Draw::new(shared.seed, &task.name);
    let is_source = task.after.is_empty() && lane.role.has_thread();
    let releases = is_source.then(|| Releases::new(Arrivals::new(task, draw), shared.duration));
    LaneTask { deadline: task.deadline, releases }
}

/// Makes the scheduling domains, or notes the substitute.
fn divide(cpus: &[u32], mapping: &mut Mapping) -> Result<Option<Arc<Partitions>>, RunError> {
    if mapping.domains.is_empty() {
        return Ok(None);
    }
    let groups: Vec<Vec<u32>> = mapping.domains.iter().map(|domain| kernel_cpus(cpus, domain)).collect();
    match Partitions::create(&groups, longest_reservation(&mapping.tasks)) {
        Ok(partitions) => Ok(Some(Arc::new(partitions))),
        Err(error @ (CpusetError::InUse(_) | CpusetError::State(_))) => Err(error.into()),
        Err(error) if mapping.is_strict => Err(error.into()),
        Err(error) => {
            mapping.go_global(cpus.len(), &error.to_string());
            Ok(None)
        }
    }
}

/// The longest period of the SCHED_DEADLINE threads; zero without any.
fn longest_reservation(tasks: &[MappedTask]) -> Span {
    let period =
        |task: &MappedTask| if let Class::Deadline(reserved) = task.class { Some(reserved.period) } else { None };
    tasks.iter().filter_map(period).max().unwrap_or(Span::ZERO)
}

fn add_notes(notes: &mut Vec<String>, account: &AccountSummary, steal: Option<Span>) {
    notes.extend(note_of_lost(account.lost));
    notes.extend(account.kernel.iter().flat_map(|kernel| notes_of_kernel(&kernel.recorded(), kernel.failed.as_ref())));
    notes.extend(note_of_steal(steal));
}

/// Notes about gaps in the kernel's account.
pub(crate) fn notes_of_kernel(kernel: &Recorded, failed: Option<&RecorderError>) -> Vec<String> {
    let mut notes = Vec::new();
    if kernel.lost > 0 {
        let lost = kernel.lost;
        notes.push(format!(
            "the kernel lost {lost} events: preemptions and CPU times of the jobs that were open then are unknown"
        ));
    }
    if kernel.missing > 0 {
        notes.push(format!(
            "the kernel did not report {} switches of this run's threads: a job that began with such a \
             switch starts at the stamp of its thread; preemptions and CPU times of jobs with such a \
             switch are unknown",
            kernel.missing
        ));
    }
    if let Some(error) = failed {
        notes.push(format!("preemptions, migrations and CPU times are unknown from some time on: {error}"));
    }
    notes
}

/// A note about records that found a full buffer, if any.
pub(crate) fn note_of_lost(lost: u64) -> Option<String> {
    (lost > 0).then(|| format!("{lost} records were lost in a full buffer: the figures are incomplete"))
}

/// A note of the CPU time that a hypervisor took, if any.
pub(crate) fn note_of_steal(steal: Option<Span>) -> Option<String> {
    let steal = steal.filter(|steal| !steal.is_zero())?;
    Some(format!("the hypervisor took {steal} of CPU time during the run: the figures include this time"))
}

/// Kernel events of one job: a wake-up and two switches of its thread, and two more switches if it
/// preempts.
const EVENTS_OF_THREAD: u64 = 5;

/// Buffers hold a thread's records of four seconds, in case ordinary threads get no CPU that long.
pub(crate) fn records(period: Span) -> usize {
    let jobs = 4_000_000_000 / period.as_ns().max(1);
    usize::try_from(jobs.saturating_mul(3)).unwrap_or(usize::MAX).clamp(1024, 65_536)
}

fn kernel_cpus(cpus: &[u32], set: &CpuSet) -> Vec<u32> {
    set.iter().filter_map(|cpu| cpus.get(cpu as usize).copied()).collect()
}

fn summary_of(task: &Task, lane: &Lane, stamped: Option<&Stamped>) -> TaskSummary {
    let completed = lane.completed.load(Ordering::Acquire);
    let beyond = lane.used_ns.load(Ordering::Acquire).saturating_sub(lane.demanded_ns.load(Ordering::Acquire));
    let deadline = matches!(lane.class, Class::Deadline(_));
    let throttles = lane.throttles_known.load(Ordering::Acquire);
    TaskSummary {
        name: task.name.clone(),
        class: lane.class.describe(),
        completed,
        overruns: deadline.then(|| lane.overruns.load(Ordering::Acquire)),
        throttled: (deadline && throttles).then(|| lane.throttled.load(Ordering::Acquire)),
        overhead: Span::from_ns(beyond / completed.max(1)),
        stamps: stamped.map(|stamped| Stamps {
            checked: stamped.checked,
            contradicted: stamped.contradicted,
            start: Histogram::summary(&stamped.start),
            complete: Histogram::summary(&stamped.complete),
            release_latency: Histogram::summary(&stamped.release),
        }),
        late: None,
    }
}
