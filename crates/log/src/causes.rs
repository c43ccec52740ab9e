//! Finds why jobs were late, from the events of any log. Pure.
//!
//! A late job has a *busy period*, which ends with the job. It begins when the job arrives, if the
//! CPU then has no earlier job that goes first. Otherwise it begins at the last instant at which
//! the CPU had none. The CPU's activity in the busy period is load or a disturbance. *Load* is the
//! work of the System's jobs that go before the late job, each within its WCET, and the late job's
//! own work. Everything else is a *disturbance* with a [`Cause`].
//!
//! - The jobs that went before it follow each other without a disturbance, from their arrivals on.
//!   If it is late even so, it is late *by load*. A System that an analysis accepts has no such
//!   job.
//! - Otherwise the longest disturbance is its main cause; of equal ones the first in [`Cause::ALL`].
//!   A job of a chain should arrive when its predecessor ends without disturbances. The disturbance
//!   that made the predecessor late counts, too.
//!
//! A job that a message released begins when the receiving job that took the message ended. Two disturbances
//! may lie before: those of that receiving job, and [`Cause::LateMessage`].
//!
//! A job has no such busy period if it may run on several CPUs, if its node has components, or if no
//! System gives the order of its jobs. Then only its own time counts, from its arrival to its end,
//! on the CPUs on which it waited and ran. It is late by load if its response without the
//! disturbances exceeds its deadline. Without a System all other tasks of the log are disturbances,
//! under their names.
//!
//! Nothing is guessed. Activity that a log does not have is [`Cause::Unknown`]. [`Causes::finish`]
//! returns `None` if a log does not have the activity of CPUs.

mod chains;
mod found;
mod messages;
mod own_time;
mod rules;
mod supply;
mod timeline;

use std::collections::{BTreeMap, VecDeque};

use takt_model::{Span, TaskId, Time};

use crate::definitions::{Definition, Definitions, ThreadKind};
use crate::event::{CancelCause, Event, JobKey, Sink};
use chains::{Finished, less};
pub use found::{Cause, CpuActivity, CpuInterval, Disturbance, Late, Worst};
use found::{Name, Sum, Tally};
use messages::{Arrivals, MessageDelay};
pub use rules::{Importance, Rules, TaskRule};
use supply::Supply;
use timeline::{Activity, JobRecord, Names, Suspension, Timeline};

/// With more pending jobs it is unknown which late jobs were late by load.
const WAITING_MAX: usize = 4096;
/// The most states to keep of a job without a CPU of its own. Older states are unknown.
const PARTS_MAX: usize = 1024;

/// A [`Sink`] that finds out why jobs were late.
#[derive(Clone, Debug)]
pub struct Causes {
    rules: Rules,
    definitions: Definitions,
    can_be_late: bool,
    /// By stream and CPU.
    cpus: BTreeMap<(u32, u32), Cpu>,
    /// Jobs that are released and have not ended.
    pending: BTreeMap<JobKey, Pending>,
    tallies: BTreeMap<TaskId, Tally>,
    /// The current mode by stream.
    modes: BTreeMap<u32, u32>,
    /// By task, where they are wanted: the jobs with the longest responses.
    worst: Option<BTreeMap<TaskId, Worst>>,
    /// For the pictures of these jobs.
    names: Names,
    /// The cause of a task's last late job that was not late by load.
    last_causes: BTreeMap<TaskId, Cause>,
    /// By task: its last jobs, if others follow them.
    finished: BTreeMap<TaskId, VecDeque<Finished>>,
    /// Messages that have come, and whose jobs are not released yet.
    arrivals: Arrivals,
    supply: Supply,
}

/// A job's priority on its CPU: a level, and the order within the level. Smaller is more important;
/// jobs of a smaller or equal priority go before.
type Priority = (u32, u64);

/// The level of demoted jobs: below all.
const DEMOTED: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Pending {
    stream: u32,
    arrival: Time,
    /// When it would have come without any disturbance. A source comes at its release or at the end
    /// of its jitter. A follower comes when its predecessors would have ended.
    due: Time,
    /// Why it came after `due`, and by how much.
    delayed: Option<(Cause, Span)>,
    /// When it came.
    begins: Time,
    /// The delays before its release, if a message released it.
    message_delay: Option<MessageDelay>,
    missed: bool,
    /// The cause of its lateness is known.
    explained: bool,
    /// It was late before it started, and goes after all others.
    demoted: bool,
    started: bool,
    /// Its CPU time until the present turn.
    ran: Span,
    state: State,
    since: Time,
    /// Its earlier states, for a job without a CPU of its own.
    parts: VecDeque<(Time, Time, State)>,
}

#[derive(Default)]
struct Busy {
    sum: Sum,
    /// When the job would have ended without disturbances; `None` if records are missing.
    undisturbed: Option<Time>,
    /// The longest delay of a more important job by its predecessor, with the cause.
    inherited: Option<(Cause, Span)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Ready. The CPU is known once the job gets it.
    Waits(Option<u32>),
    /// Ready, but a server around it has used up its budget.
    NoBudget,
    Runs(u32),
    /// Off this CPU, blocked or throttled. The next event shows which.
    OffCpu(u32),
    Throttled,
    Blocked,
}

#[derive(Clone, Debug)]
struct Cpu {
    /// Its activity apart from interrupts.
    activity: Activity,
    /// Handlers that have begun and not ended.
    interrupts: Vec<u32>,
    /// When the last turn began.
    since: Time,
    timeline: Timeline,
}

impl Causes {
    /// For a log with these definitions. The `rules` order its jobs.
    #[must_use]
    pub fn new(rules: Rules, definitions: &Definitions) -> Causes {
        let mut causes = Causes {
            rules,
            definitions: definitions.clone(),
            can_be_late: false,
            cpus: BTreeMap::new(),
            pending: BTreeMap::new(),
            tallies: BTreeMap::new(),
            modes: BTreeMap::new(),
            worst: None,
            names: Names::default(),
            last_causes: BTreeMap::new(),
            finished: BTreeMap::new(),
            arrivals: Arrivals::default(),
            supply: Supply::default(),
        };
        causes.update_can_be_late();
        causes
    }

    /// Also keeps, for each task, the activity of the CPU during the job with the longest response,
    /// late or not.
    #[must_use]
    pub fn with_worst(mut self) -> Causes {
        self.worst = Some(BTreeMap::new());
        for (thread, def) in (0..).zip(&self.definitions.threads) {
            self.names.set(thread, &def.name);
        }
        self
    }

    /// The causes of the late jobs that ended since the last cut, for each task with a deadline.
    /// `None` if the log does not have the activity of CPUs.
    #[must_use]
    pub fn cut(&mut self) -> Option<BTreeMap<TaskId, Late>> {
        if !self.rules.is_known() {
            return None;
        }
        let mut tallies = std::mem::take(&mut self.tallies);
        let tasks = (0..).zip(&self.definitions.tasks);
        let timed = tasks.filter(|(_, task)| task.deadline.is_some()).map(|(id, _)| TaskId(id));
        let name = |name: &Name| name.resolve(&self.definitions);
        Some(timed.map(|id| (id, tallies.remove(&id).unwrap_or_default().into_late(name))).collect())
    }

    /// Ends the log at `end`. Returns the causes of late jobs, for each task with a deadline. `None`
    /// if the log does not have the activity of CPUs.
    #[must_use]
    pub fn finish(mut self, end: Time) -> Option<BTreeMap<TaskId, Late>> {
        self.finish_tasks(end)
    }

    /// [`Causes::finish`], with the jobs that [`Causes::with_worst`] keeps.
    #[must_use]
    pub fn finish_with_worst(mut self, end: Time) -> (Option<BTreeMap<TaskId, Late>>, BTreeMap<TaskId, Worst>) {
        let late = self.finish_tasks(end);
        let worst = if late.is_some() || self.rules.is_known() { self.worst.take() } else { None };
        (late, worst.unwrap_or_default())
    }

    fn finish_tasks(&mut self, end: Time) -> Option<BTreeMap<TaskId, Late>> {
        if !self.rules.is_known() {
            return None;
        }
        let open: Vec<JobKey> = self.pending.keys().copied().collect();
        for job in open {
            let late = self.deadline(job).zip(self.pending.get(&job));
            if late.is_some_and(|(deadline, pending)| !pending.explained && (pending.missed || deadline <= end)) {
                self.explain(job, end, false);
            }
        }
        self.cut()
    }

    fn update_can_be_late(&mut self) {
        self.can_be_late = self.worst.is_some() || self.definitions.tasks.iter().any(|task| task.deadline.is_some());
        self.can_be_late &= self.rules.is_known();
    }

    fn deadline(&self, job: JobKey) -> Option<Time> {
        let deadline = self.definitions.tasks.get(job.task.index())?.deadline?;
        Some(self.pending.get(&job)?.arrival.saturating_add(deadline))
    }

    fn wcet(&self, task: TaskId) -> Option<Span> {
        self.rules.task(task)?.wcet
    }

    /// A job's priority on its CPU in the current mode.
    fn priority(&self, job: JobKey, pending: &Pending) -> Option<Priority> {
        let mode = self.modes.get(&pending.stream).copied().unwrap_or(0);
        let importance = self.rules.task(job.task)?.importance(mode)?;
        if pending.demoted {
            return Some((DEMOTED, 0));
        }
        let deadline = || self.definitions.tasks.get(job.task.index()).and_then(|task| task.deadline);
        let order = importance.shift_ns.map_or(0, |shift| {
            let deadline = pending.arrival.saturating_add(deadline().unwrap_or(Span::ZERO));
            deadline.as_ns().saturating_add_signed(shift)
        });
        Some((importance.level, order))
    }

    /// The CPU that a task is bound to, if its jobs have priorities.
    fn own_cpu(&self, job: JobKey, stream: u32) -> Option<(u32, u32)> {
        let rule = self.rules.task(job.task)?;
        let mode = self.modes.get(&stream).copied().unwrap_or(0);
        rule.importance(mode)?;
        Some((stream, rule.cpu?))
    }

    fn cpu(&mut self, stream: u32, cpu: u32) -> &mut Cpu {
        let simulated = self.rules.is_simulated();
        self.cpus
            .entry((stream, cpu))
            .or_insert_with(|| Cpu::new(if simulated { Activity::Idle } else { Activity::Unknown }))
    }
}

impl Sink for Causes {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if self.can_be_late {
            self.process(stream, now, event);
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        // A definition whose number leaves a gap is ignored.
        let _ = self.definitions.apply(definition.clone());
        if let Definition::Thread(thread, def) = definition
            && self.worst.is_some()
        {
            // If it has a CPU now, it got the name within this turn.
            let name = self.names.set(*thread, &def.name);
            for here in self.cpus.values_mut() {
                here.timeline.rename_last(*thread, name);
                if let Activity::Thread(of, current) = &mut here.activity
                    && of == thread
                {
                    *current = name;
                }
            }
        }
        if matches!(definition, Definition::Task(..)) && !self.can_be_late {
            self.update_can_be_late();
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

/// Events of jobs.
impl Causes {
    fn process(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, parent } => {
                let jitter = self.rules.task(job.task).map_or(Span::ZERO, |rule| rule.jitter);
                let message = self.rules.message(job.task).filter(|_| parent.is_some());
                let message_delay = message.map(|rule| self.message_delay(rule, job.number, arrival, now));
                let begins = match (parent, message_delay) {
                    (_, Some(_)) => now,
                    (Some(_), None) => arrival,
                    (None, None) => now.min(arrival.saturating_add(jitter)),
                };
                let (due, delayed) = match (parent, message_delay) {
                    (_, Some(delay)) => (less(begins, delay.total()), delay.delays().max_by_key(|(_, span)| *span)),
                    (Some(parent), None) => self.due_after(job, parent.origin, begins),
                    (None, None) => (begins, None),
                };
                let pending = Pending {
                    stream,
                    arrival,
                    due,
                    delayed,
                    begins,
                    message_delay,
                    missed: false,
                    explained: false,
                    demoted: false,
                    started: false,
                    ran: Span::ZERO,
                    state: self.waiting_state(job),
                    since: if message_delay.is_some() { now } else { arrival },
                    parts: VecDeque::new(),
                };
                self.pending.insert(job, pending);
            }
            Event::Start { job, cpu } => {
                self.forget_earlier_jobs(job);
                self.run(stream, now, job, cpu);
            }
            Event::Resume { job, cpu } => self.run(stream, now, job, cpu),
            Event::Preempt { job, cpu } => self.lose_cpu(stream, now, job, cpu, self.waiting_state(job)),
            Event::Block { job, cpu } => self.lose_cpu(stream, now, job, cpu, State::OffCpu(cpu)),
            Event::Wake { job } => {
                if let Some(State::OffCpu(_)) = self.pending.get(&job).map(|pending| pending.state) {
                    self.change_state(now, job, State::Blocked, self.waiting_state(job));
                }
            }
            Event::Complete { job, cpu } => {
                self.forget_earlier_jobs(job);
                self.end(stream, now, job, None);
                let after = match () {
                    () if self.rules.is_simulated() => Activity::Idle,
                    () if self.rules.has_tasks() => Activity::Takt,
                    () => Activity::Unknown,
                };
                self.leave(stream, now, job, cpu, after);
            }
            Event::Cancel { job, cause } => {
                let on = match self.pending.get(&job).map(|pending| pending.state) {
                    Some(State::Runs(cpu)) => Some(cpu),
                    _ => None,
                };
                self.end(stream, now, job, Some(cause));
                if let Some(cpu) = on {
                    let after = if self.rules.is_simulated() { Activity::Idle } else { Activity::Takt };
                    self.leave(stream, now, job, cpu, after);
                }
            }
            Event::Miss { job } => self.miss(now, job),
            Event::ModeChange { mode } => self.change_mode(stream, now, mode),
            Event::Occupy { cpu, thread } => {
                let activity = match thread {
                    None => Activity::Idle,
                    Some(thread) if self.kind(thread) == ThreadKind::Takt => Activity::Takt,
                    Some(thread) => Activity::Thread(thread, self.names.of(thread)),
                };
                self.set_activity(stream, now, cpu, activity);
            }
            Event::IrqEnter { irq, cpu } => self.interrupt(stream, now, cpu, |all| all.push(irq)),
            Event::IrqExit { irq, cpu } => self.interrupt(stream, now, cpu, |all| {
                if let Some(at) = all.iter().rposition(|other| *other == irq) {
                    all.truncate(at);
                }
            }),
            Event::Steal { cpu, span, within } => {
                let from = Time::from_ns(now.as_ns().saturating_sub(within.as_ns()));
                self.cpu(stream, cpu).timeline.add_stolen(from, now, span);
            }
            Event::Lost { .. } => {
                let cpus: Vec<u32> = self.cpus.keys().filter(|(of, _)| *of == stream).map(|(_, cpu)| *cpu).collect();
                for cpu in cpus {
                    self.interrupt(stream, now, cpu, Vec::clear);
                    self.set_activity(stream, now, cpu, Activity::Unknown);
                }
            }
            Event::Exhaust { server } => self.exhaust_server(now, server),
            Event::ServerIdle { server } => self.server_idle(now, server),
            Event::Replenish { server, .. } => self.replenish(now, server),
            Event::Arrive { job, .. } if self.rules.is_sender(job.task) => self.arrivals.add(job, now),
            Event::Gap { .. }
            | Event::Migrate { .. }
            | Event::Charge { .. }
            | Event::Send { .. }
            | Event::Arrive { .. }
            | Event::Receive { .. }
            | Event::Drop { .. }
            | Event::Transmit { .. }
            | Event::Window { .. } => {}
        }
    }

    fn kind(&self, thread: u32) -> ThreadKind {
        self.definitions.threads.get(thread as usize).map_or(ThreadKind::Unknown, |def| def.kind)
    }

    /// A job gets a CPU.
    fn run(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32) {
        let Some(pending) = self.pending.get_mut(&job) else {
            // The job on this CPU is unknown.
            return self.set_activity(stream, now, cpu, Activity::Unknown);
        };
        pending.started = true;
        let was = match pending.state {
            // The job did not report that it waits, so the kernel stopped it.
            State::OffCpu(_) => State::Throttled,
            State::Waits(_) => State::Waits(Some(cpu)),
            other => other,
        };
        self.change_state(now, job, was, State::Runs(cpu));
        self.set_activity(stream, now, cpu, Activity::Job(job, (0, 0)));
    }

    fn lose_cpu(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32, state: State) {
        if let Some(was) = self.pending.get(&job).map(|pending| pending.state) {
            self.change_state(now, job, was, state);
        }
        let after = if self.rules.is_simulated() { Activity::Idle } else { Activity::Unknown };
        self.leave(stream, now, job, cpu, after);
    }

    /// The CPU does `after` from now on, if it had this job.
    fn leave(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32, after: Activity) {
        if matches!(self.cpu(stream, cpu).activity, Activity::Job(on, _) if on == job) {
            self.set_activity(stream, now, cpu, after);
        }
    }

    /// Ends a job's state `was`, and begins its state `is`.
    fn change_state(&mut self, now: Time, job: JobKey, was: State, is: State) {
        let Some(pending) = self.pending.get_mut(&job) else { return };
        let stream = pending.stream;
        let part = (pending.since.min(now), now, was);
        (pending.state, pending.since) = (is, now);
        let Some((_, cpu)) = self.own_cpu(job, stream) else {
            let timed = self.definitions.tasks.get(job.task.index()).is_some_and(|task| task.deadline.is_some());
            if let Some(pending) = self.pending.get_mut(&job).filter(|_| timed && part.0 < part.1) {
                if pending.parts.len() == PARTS_MAX {
                    pending.parts.pop_front();
                }
                pending.parts.push_back(part);
            }
            return;
        };
        let cause = match was {
            State::Throttled => Cause::Throttled,
            State::Blocked => Cause::Blocked,
            _ => return,
        };
        let Some(priority) = self.pending.get(&job).and_then(|pending| self.priority(job, pending)) else { return };
        let (from, to, _) = part;
        self.cpu(stream, cpu).timeline.add_suspension(Suspension { from, to, priority, cause });
    }

    fn interrupt(&mut self, stream: u32, now: Time, cpu: u32, change: impl FnOnce(&mut Vec<u32>)) {
        self.account_turn(stream, now, cpu);
        let here = self.cpu(stream, cpu);
        change(&mut here.interrupts);
        let activity = here.interrupts.last().map_or(here.activity, |irq| Activity::Interrupt(*irq));
        here.timeline.begin_turn(now, activity);
    }

    /// Adds the time since the last call to the CPU's job, and records its overrun.
    fn account_turn(&mut self, stream: u32, now: Time, cpu: u32) {
        let here = self.cpu(stream, cpu);
        let now = now.max(here.since);
        let (activity, since, interrupted) = (here.activity, here.since, !here.interrupts.is_empty());
        here.since = now;
        let Activity::Job(job, _) = activity else { return };
        if interrupted {
            return;
        }
        let wcet = self.wcet(job.task).unwrap_or(Span::MAX);
        let Some(pending) = self.pending.get_mut(&job) else { return };
        let within = wcet.saturating_sub(pending.ran);
        pending.ran = pending.ran.saturating_add(now.saturating_since(since));
        if pending.ran > wcet {
            self.cpu(stream, cpu).timeline.begin_turn(since.saturating_add(within), Activity::Overrun(job));
        }
    }

    /// Begins a turn of the CPU.
    fn set_activity(&mut self, stream: u32, now: Time, cpu: u32, activity: Activity) {
        self.account_turn(stream, now, cpu);
        let activity = match activity {
            Activity::Job(job, _) => {
                let priority = self.pending.get(&job).and_then(|pending| self.priority(job, pending));
                Activity::Job(job, priority.unwrap_or((0, 0)))
            }
            other => other,
        };
        let here = self.cpu(stream, cpu);
        here.activity = activity;
        // A CPU switches threads outside of handlers only. So a handler without an end is over.
        here.interrupts.clear();
        let now = now.max(here.since);
        let switched_from = here.timeline.empty_last_turn(now);
        here.timeline.begin_turn(now, activity);
        if let Some(last) = switched_from.filter(|_| matches!(activity, Activity::Job(..) | Activity::Takt)) {
            self.relabel_previous_holder(stream, cpu, last);
        }
    }

    /// Corrects the turn before a job got the CPU from `last`. `run` does not record switches among
    /// other threads, so their start times are unknown.
    fn relabel_previous_holder(&mut self, stream: u32, cpu: u32, last: Activity) {
        if !self.rules.has_tasks() || self.rules.is_simulated() {
            return;
        }
        let delays = |kind| self.rules.is_best_effort() || kind != ThreadKind::Ordinary;
        let Some(first) = self.cpus.get(&(stream, cpu)).and_then(|cpu| cpu.timeline.before_last()) else { return };
        let relabel = match (first, last) {
            // The CPU was idle when the job's thread woke.
            (Activity::Thread(..), Activity::Idle) => true,
            // Ordinary threads cannot have delayed real-time threads.
            (Activity::Idle, Activity::Thread(last, _)) => delays(self.kind(last)),
            (Activity::Thread(first, _), Activity::Thread(last, _)) => {
                !delays(self.kind(first)) && delays(self.kind(last))
            }
            _ => false,
        };
        if relabel {
            self.cpu(stream, cpu).timeline.relabel_before_last(last);
        }
    }

    fn miss(&mut self, now: Time, job: JobKey) {
        let Some(pending) = self.pending.get_mut(&job) else { return };
        pending.missed = true;
        let (started, stream) = (pending.started, pending.stream);
        let mode = self.modes.get(&stream).copied().unwrap_or(0);
        if self.rules.demotes(job.task, mode) && !started {
            self.demote(now, job);
        }
    }

    /// Demotes a late job. From now on all other work rightly goes before it, so the time until now
    /// explains its lateness.
    fn demote(&mut self, now: Time, job: JobKey) {
        self.explain(job, now, false);
        if let Some(pending) = self.pending.get_mut(&job) {
            (pending.explained, pending.demoted) = (true, true);
        }
    }

    /// Removes earlier jobs of the task. Jobs of a task end in order, so the log lacks their ends.
    fn forget_earlier_jobs(&mut self, job: JobKey) {
        let first = JobKey { number: 0, ..job };
        while let Some(stale) = self.pending.range(first..job).next().map(|(stale, _)| *stale) {
            self.pending.remove(&stale);
        }
    }

    /// A job completed, or was cancelled for this cause.
    fn end(&mut self, stream: u32, now: Time, job: JobKey, cancelled: Option<CancelCause>) {
        let Some(state) = self.pending.get(&job).map(|pending| pending.state) else { return };
        if let State::Runs(cpu) | State::OffCpu(cpu) = state {
            self.account_turn(stream, now, cpu);
        }
        self.change_state(now, job, state, state);
        let late = self.deadline(job).is_some_and(|deadline| now > deadline);
        let Some(pending) = self.pending.get(&job) else { return };
        // A demoted job was explained when it was demoted.
        let late = (late || pending.missed) && !pending.explained;
        match cancelled {
            Some(CancelCause::Late) if !pending.explained => self.explain(job, now, false),
            None | Some(CancelCause::Failed) if late => self.explain(job, now, true),
            // Jobs that were not started count as cancelled, and not as late.
            _ => {}
        }
        if cancelled.is_none() {
            self.keep_worst(job, now);
            self.keep_finished(job, now);
        }
        let priority = self.pending.get(&job).and_then(|pending| self.priority(job, pending));
        let own = self.own_cpu(job, stream);
        let wcet = self.wcet(job.task).unwrap_or(Span::MAX);
        let Some(pending) = self.pending.remove(&job) else { return };
        if let (Some((stream, cpu)), Some(priority), true) = (own, priority, pending.started) {
            let Pending { due, delayed, begins, ran, .. } = pending;
            let ran = JobRecord { priority, due, begins, ended: now, took: ran.min(wcet), delayed };
            self.cpu(stream, cpu).timeline.add_job(ran);
        }
    }

    /// Switches to another mode. Jobs get the priorities of that mode. If it demotes, late jobs that
    /// have not started are demoted. If it does not, demoted jobs are no longer so.
    fn change_mode(&mut self, stream: u32, now: Time, mode: u32) {
        let is_demoted = |(job, pending): &(&JobKey, &Pending)| {
            pending.stream == stream
                && pending.missed
                && !pending.explained
                && !pending.started
                && self.rules.demotes(job.task, mode)
        };
        let demoted: Vec<JobKey> = self.pending.iter().filter(is_demoted).map(|(job, _)| *job).collect();
        for job in demoted {
            self.demote(now, job);
        }
        for (job, pending) in &mut self.pending {
            if pending.stream == stream && !self.rules.demotes(job.task, mode) {
                pending.demoted = false;
            }
        }
        self.modes.insert(stream, mode);
        // The jobs that have CPUs get their new priorities.
        let running: Vec<(u32, Activity)> = self
            .cpus
            .iter()
            .filter(|((of, _), _)| *of == stream)
            .map(|((_, cpu), here)| (*cpu, here.activity))
            .collect();
        for (cpu, activity) in running {
            self.set_activity(stream, now, cpu, activity);
        }
    }
}

/// The causes of lateness.
impl Causes {
    /// Finds the causes of a late job. It `ended` now, or was cancelled, or is unfinished.
    fn explain(&mut self, job: JobKey, now: Time, ended: bool) {
        let Some(pending) = self.pending.get(&job) else { return };
        let stream = pending.stream;
        let Some(deadline) = self.deadline(job) else { return };
        let own = self.own_cpu(job, stream);
        let message_delay = pending.message_delay.unwrap_or_default();
        let (sum, by_load, inherited) = match own {
            Some(cpu) => {
                let Busy { mut sum, undisturbed, inherited } = self.in_busy_period(job, cpu, now, ended);
                message_delay.delays().for_each(|(cause, span)| sum.add(cause, span));
                // By laxity, jobs with later deadlines may rightly go first. `undisturbed` lacks them.
                let nothing = sum.disturbance.total().is_zero() && inherited.is_none();
                let undisturbed = undisturbed.map(|end| less(end, message_delay.total()));
                (sum, undisturbed.map(|end| end > deadline || nothing), inherited)
            }
            None => {
                let mut sum = self.in_own_time(job, now);
                message_delay.delays().for_each(|(cause, span)| sum.add(cause, span));
                // An unfinished job will end later than now.
                let (late, disturbed) = (now.saturating_since(deadline), sum.disturbance.total());
                (sum, Some(late > disturbed || (!ended && late == disturbed)), None)
            }
        };
        let tally = self.tallies.entry(job.task).or_default();
        match by_load {
            Some(true) => {
                tally.by_load(&sum);
                self.last_causes.remove(&job.task);
            }
            Some(false) => drop(self.last_causes.insert(job.task, tally.disturbed(&sum, inherited))),
            None => tally.unknown(),
        }
    }

    /// The busy period of a job on the CPU that its task is bound to.
    fn in_busy_period(&mut self, job: JobKey, (stream, cpu): (u32, u32), now: Time, ended: bool) -> Busy {
        self.account_turn(stream, now, cpu);
        self.cpu(stream, cpu);
        let Some(pending) = self.pending.get(&job) else { return Busy::default() };
        let Some(priority) = self.priority(job, pending) else { return Busy::default() };
        let wcet = self.wcet(job.task).unwrap_or(Span::MAX);
        // The execution time of an unfinished job is unknown.
        let took = if ended { pending.ran.min(wcet) } else { wcet };
        if self.pending.len() > WAITING_MAX {
            return Busy::default();
        }
        // The work ahead of an unfinished job: all more important jobs, its own predecessors, and
        // the jobs that have started.
        // A job's own release jitter is no disturbance.
        let mut since = pending.begins;
        let mut ahead = Vec::new();
        for (other, waiting) in &self.pending {
            let of =
                self.priority(*other, waiting).filter(|_| self.own_cpu(*other, waiting.stream) == Some((stream, cpu)));
            let Some(of) = of.filter(|_| *other != job && !waiting.demoted) else { continue };
            let before = other.task == job.task && other.number < job.number;
            if of < priority || (of == priority && (before || waiting.started)) {
                since = since.min(waiting.begins);
                if !ended {
                    let took = self.wcet(other.task).unwrap_or(Span::MAX);
                    let Pending { due, begins, delayed, .. } = *waiting;
                    ahead.push(JobRecord { priority: of, due, begins, ended: now, took, delayed });
                }
            }
        }
        let (due, begins) = (pending.begins, pending.begins);
        let this = JobRecord { priority, due, begins, ended: now, took, delayed: None };
        let unfinished = match (pending.state, pending.since) {
            (State::OffCpu(_), from) => Some(Suspension { from, to: now, priority, cause: Cause::Throttled }),
            _ => None,
        };
        let mode = self.modes.get(&stream).copied().unwrap_or(0);
        let by_laxity =
            self.rules.task(job.task).and_then(|rule| rule.importance(mode)).is_some_and(|found| found.by_laxity);
        let Some(here) = self.cpus.get(&(stream, cpu)) else { return Busy::default() };
        let since = here.timeline.busy_since(priority, since);
        let mut sum = Sum::default();
        let names = |other: JobKey| (other.task != job.task).then_some(Name::Task(other.task));
        here.timeline.disturbances(
            job,
            (priority, by_laxity),
            (since.unwrap_or(this.due), now),
            unfinished,
            names,
            &mut sum,
        );
        let inherited = since.and_then(|since| here.timeline.longest_delay(priority, &ahead, since));
        let undisturbed = since.map(|since| here.timeline.undisturbed(this, &ahead, since));
        Busy { sum, undisturbed, inherited }
    }

    /// Keeps the activity of a job's CPU, if no job of its task had a longer response.
    fn keep_worst(&mut self, job: JobKey, now: Time) {
        let Some(worst) = &self.worst else { return };
        let Some(pending) = self.pending.get(&job) else { return };
        let response = now.saturating_since(pending.arrival);
        if worst.get(&job.task).is_some_and(|worst| worst.response() >= response) {
            return;
        }
        let (arrival, stream) = (pending.arrival, pending.stream);
        let cpu = match pending.state {
            State::Runs(cpu) | State::OffCpu(cpu) => cpu,
            _ => return,
        };
        let deadline = self.deadline(job);
        let Some(here) = self.cpus.get(&(stream, cpu)) else { return };
        let turns = here.timeline.turns(arrival, now, (&self.definitions, &self.names), job);
        let found = Worst { number: job.number, cpu, arrival, deadline, ended: now, turns };
        if let Some(worst) = &mut self.worst {
            worst.insert(job.task, found);
        }
    }
}

impl Cpu {
    fn new(activity: Activity) -> Cpu {
        Cpu { activity, interrupts: Vec::new(), since: Time::ZERO, timeline: Timeline::new(activity) }
    }
}

#[cfg(test)]
mod tests;
