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
mod course;
mod found;
mod messages;
mod own_time;
mod rules;
mod supply;

use std::collections::{BTreeMap, VecDeque};

use takt_model::{Span, TaskId, Time};

use crate::definitions::{Definition, Definitions, ThreadKind};
use crate::event::{CancelCause, Event, JobKey, Sink};
use chains::{Finished, less};
use course::{Activity, Course, EndedJob, Names, Stop};
pub use found::{Cause, CpuActivity, CpuInterval, Disturbance, Late, Worst};
use found::{Name, Sum, Tally};
use messages::{Arrivals, MessageDelay};
pub use rules::{Importance, Rules, TaskRule};
use supply::Supply;

/// With more jobs of a CPU waiting, it is not computed which of them were late by load.
const WAITING_MAX: usize = 4096;
/// The most parts of a job's course to keep, for a job without a CPU of its own. The older parts of
/// a longer course are unknown.
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
    /// By stream: which mode holds.
    modes: BTreeMap<u32, u32>,
    /// By task, where they are wanted: the jobs with the longest responses.
    worst: Option<BTreeMap<TaskId, Worst>>,
    /// For the pictures of these jobs.
    names: Names,
    /// The cause of a task's last late job that was not late by load.
    before: BTreeMap<TaskId, Cause>,
    /// By task: its last jobs, if others follow them.
    finished: BTreeMap<TaskId, VecDeque<Finished>>,
    /// Messages that have come, and whose jobs are not released yet.
    arrivals: Arrivals,
    supply: Supply,
}

/// The order of a job on its CPU: a level, the most important first, and an order within it.
/// Smaller or equal places go before.
type Place = (u32, u64);

/// The level of demoted jobs: below all.
const DEMOTED: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Pending {
    stream: u32,
    arrival: Time,
    /// When it would have come had nothing been disturbed: a source's at its release or when its
    /// jitter is over, a follower's when its predecessors would have ended.
    due: Time,
    /// Why it came later than that, and by how much.
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
    /// How long it had CPUs, until the last turn.
    ran: Span,
    state: State,
    since: Time,
    /// Its earlier states, for a job without a CPU of its own.
    parts: VecDeque<(Time, Time, State)>,
}

#[derive(Default)]
struct Busy {
    sum: Sum,
    /// When the job would have ended without disturbances; `None` where too much is forgotten.
    undisturbed: Option<Time>,
    /// Why a job that went before it followed its predecessor late, and by how much.
    elsewhere: Option<(Cause, Span)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Wants a CPU; while that lasts nobody knows which.
    Waits(Option<u32>),
    /// Waits, and its server has used up its budget, or a server around that.
    NoBudget,
    Runs(u32),
    /// Left a CPU and wants none, or may not have one: which of the two the next event tells.
    Off(u32),
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
    course: Course,
}

impl Causes {
    /// For a log with these definitions; `rules` say who goes before whom.
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
            before: BTreeMap::new(),
            finished: BTreeMap::new(),
            arrivals: Arrivals::default(),
            supply: Supply::default(),
        };
        causes.look_for_deadlines();
        causes
    }

    /// Keeps of each task what its CPU did during the job with the longest response, late or not.
    #[must_use]
    pub fn with_worst(mut self) -> Causes {
        self.worst = Some(BTreeMap::new());
        for (thread, def) in (0..).zip(&self.definitions.threads) {
            self.names.set(thread, &def.name);
        }
        self
    }

    /// The causes of the late jobs that ended since the last cut, of each task with a deadline.
    /// `None` if the log does not tell what CPUs did.
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

    /// The log ends at `end`: of each task with a deadline what its late jobs were late for, by
    /// task. `None` where the log does not tell what CPUs did.
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

    fn look_for_deadlines(&mut self) {
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

    /// A job's place among those of its CPU, by the mode that holds.
    fn place(&self, job: JobKey, pending: &Pending) -> Option<Place> {
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

    /// The CPU that a task is bound to, where its jobs have places.
    fn own_cpu(&self, job: JobKey, stream: u32) -> Option<(u32, u32)> {
        let rule = self.rules.task(job.task)?;
        let mode = self.modes.get(&stream).copied().unwrap_or(0);
        rule.importance(mode)?;
        Some((stream, rule.cpu?))
    }

    fn demotes(&self, task: TaskId, mode: u32) -> bool {
        self.rules.task(task).and_then(|rule| rule.importance(mode)).is_some_and(|importance| importance.demotes)
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
            self.heard(stream, now, event);
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        // One whose number leaves a gap is none.
        let _ = self.definitions.apply(definition.clone());
        if let Definition::Thread(thread, def) = definition
            && self.worst.is_some()
        {
            // If it has a CPU now, it got the name within this turn.
            let name = self.names.set(*thread, &def.name);
            for here in self.cpus.values_mut() {
                here.course.rename_last(*thread, name);
                if let Activity::Thread(of, current) = &mut here.activity
                    && of == thread
                {
                    *current = name;
                }
            }
        }
        if matches!(definition, Definition::Task(..)) && !self.can_be_late {
            self.look_for_deadlines();
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

/// Events of jobs.
impl Causes {
    fn heard(&mut self, stream: u32, now: Time, event: &Event) {
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
                    (_, Some(way)) => (less(begins, way.total()), way.delays().max_by_key(|(_, span)| *span)),
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
                    state: self.waiting(job),
                    since: if message_delay.is_some() { now } else { arrival },
                    parts: VecDeque::new(),
                };
                self.pending.insert(job, pending);
            }
            Event::Start { job, cpu } => {
                self.forget_before(job);
                self.run(stream, now, job, cpu);
            }
            Event::Resume { job, cpu } => self.run(stream, now, job, cpu),
            Event::Preempt { job, cpu } => self.stop(stream, now, job, cpu, self.waiting(job)),
            Event::Block { job, cpu } => self.stop(stream, now, job, cpu, State::Off(cpu)),
            Event::Wake { job } => {
                if let Some(State::Off(_)) = self.pending.get(&job).map(|pending| pending.state) {
                    self.become_state(now, job, State::Blocked, self.waiting(job));
                }
            }
            Event::Complete { job, cpu } => {
                self.forget_before(job);
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
            Event::ModeChange { mode } => self.adopt(stream, now, mode),
            Event::Occupy { cpu, thread } => {
                let activity = match thread {
                    None => Activity::Idle,
                    Some(thread) if self.kind(thread) == ThreadKind::Takt => Activity::Takt,
                    Some(thread) => Activity::Thread(thread, self.names.of(thread)),
                };
                self.hold(stream, now, cpu, activity);
            }
            Event::IrqEnter { irq, cpu } => self.interrupt(stream, now, cpu, |all| all.push(irq)),
            Event::IrqExit { irq, cpu } => self.interrupt(stream, now, cpu, |all| {
                if let Some(at) = all.iter().rposition(|other| *other == irq) {
                    all.truncate(at);
                }
            }),
            Event::Steal { cpu, span, within } => {
                let from = Time::from_ns(now.as_ns().saturating_sub(within.as_ns()));
                self.cpu(stream, cpu).course.steal(from, now, span);
            }
            Event::Lost { .. } => {
                let cpus: Vec<u32> = self.cpus.keys().filter(|(of, _)| *of == stream).map(|(_, cpu)| *cpu).collect();
                for cpu in cpus {
                    self.interrupt(stream, now, cpu, Vec::clear);
                    self.hold(stream, now, cpu, Activity::Unknown);
                }
            }
            Event::Exhaust { server } => self.use_up(now, server),
            Event::ServerIdle { server } => self.server_idle(now, server),
            Event::Replenish { server, .. } => self.replenish(now, server),
            Event::Arrive { job, .. } if self.rules.is_sender(job.task) => self.arrivals.came(job, now),
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
            return self.hold(stream, now, cpu, Activity::Unknown);
        };
        pending.started = true;
        let was = match pending.state {
            // The job did not report that it waits, so the kernel stopped it.
            State::Off(_) => State::Throttled,
            State::Waits(_) => State::Waits(Some(cpu)),
            other => other,
        };
        self.become_state(now, job, was, State::Runs(cpu));
        self.hold(stream, now, cpu, Activity::Job(job, (0, 0)));
    }

    fn stop(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32, state: State) {
        if let Some(was) = self.pending.get(&job).map(|pending| pending.state) {
            self.become_state(now, job, was, state);
        }
        let after = if self.rules.is_simulated() { Activity::Idle } else { Activity::Unknown };
        self.leave(stream, now, job, cpu, after);
    }

    /// A job has a CPU no more, if it had it.
    fn leave(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32, after: Activity) {
        if matches!(self.cpu(stream, cpu).activity, Activity::Job(on, _) if on == job) {
            self.hold(stream, now, cpu, after);
        }
    }

    /// A job did this until now, and does that from now on.
    fn become_state(&mut self, now: Time, job: JobKey, was: State, is: State) {
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
        let Some(place) = self.pending.get(&job).and_then(|pending| self.place(job, pending)) else { return };
        let (from, to, _) = part;
        self.cpu(stream, cpu).course.stop(Stop { from, to, place, cause });
    }

    fn interrupt(&mut self, stream: u32, now: Time, cpu: u32, change: impl FnOnce(&mut Vec<u32>)) {
        self.settle_turn(stream, now, cpu);
        let here = self.cpu(stream, cpu);
        change(&mut here.interrupts);
        let activity = here.interrupts.last().map_or(here.activity, |irq| Activity::Interrupt(*irq));
        here.course.turn(now, activity);
    }

    /// The turn before `now` is over: what its job did beyond its WCET is told.
    fn settle_turn(&mut self, stream: u32, now: Time, cpu: u32) {
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
            self.cpu(stream, cpu).course.turn(since.saturating_add(within), Activity::Beyond(job));
        }
    }

    /// The CPU does this from now on.
    fn hold(&mut self, stream: u32, now: Time, cpu: u32, activity: Activity) {
        self.settle_turn(stream, now, cpu);
        let activity = match activity {
            Activity::Job(job, _) => {
                let place = self.pending.get(&job).and_then(|pending| self.place(job, pending));
                Activity::Job(job, place.unwrap_or((0, 0)))
            }
            other => other,
        };
        let here = self.cpu(stream, cpu);
        here.activity = activity;
        // No CPU goes to another thread within a handler: one whose end is missing is over.
        here.interrupts.clear();
        let now = now.max(here.since);
        let had = here.course.last_of_no_time(now);
        here.course.turn(now, activity);
        if let Some(last) = had.filter(|_| matches!(activity, Activity::Job(..) | Activity::Takt)) {
            self.had_it_last(stream, cpu, last);
        }
    }

    /// The holder of the CPU just before a job got it. `run` does not record switches among other
    /// threads, so their start times are unknown.
    fn had_it_last(&mut self, stream: u32, cpu: u32, last: Activity) {
        if !self.rules.has_tasks() || self.rules.is_simulated() {
            return;
        }
        let delays = |kind| self.rules.is_best_effort() || kind != ThreadKind::Ordinary;
        let Some(first) = self.cpus.get(&(stream, cpu)).and_then(|cpu| cpu.course.before_last()) else { return };
        let relabel = match (first, last) {
            // After somebody's moment: nobody wanted it when the thread woke.
            (Activity::Thread(..), Activity::Idle) => true,
            // Ordinary threads cannot have kept it from real-time threads.
            (Activity::Idle, Activity::Thread(last, _)) => delays(self.kind(last)),
            (Activity::Thread(first, _), Activity::Thread(last, _)) => {
                !delays(self.kind(first)) && delays(self.kind(last))
            }
            _ => false,
        };
        if relabel {
            self.cpu(stream, cpu).course.relabel_before_last(last);
        }
    }

    fn miss(&mut self, now: Time, job: JobKey) {
        let Some(pending) = self.pending.get_mut(&job) else { return };
        pending.missed = true;
        let (started, stream) = (pending.started, pending.stream);
        let mode = self.modes.get(&stream).copied().unwrap_or(0);
        if self.demotes(job.task, mode) && !started {
            self.demote(now, job);
        }
    }

    /// Demotes a late job. Work that goes before it from now on does so by the plan, so its
    /// lateness is explained by the time until now.
    fn demote(&mut self, now: Time, job: JobKey) {
        self.explain(job, now, false);
        if let Some(pending) = self.pending.get_mut(&job) {
            (pending.explained, pending.demoted) = (true, true);
        }
    }

    /// Jobs of a task end in turn: what was before this one and is still here ended untold.
    fn forget_before(&mut self, job: JobKey) {
        let first = JobKey { number: 0, ..job };
        while let Some(stale) = self.pending.range(first..job).next().map(|(stale, _)| *stale) {
            self.pending.remove(&stale);
        }
    }

    /// A job completed, or was cancelled for this cause.
    fn end(&mut self, stream: u32, now: Time, job: JobKey, cancelled: Option<CancelCause>) {
        let Some(state) = self.pending.get(&job).map(|pending| pending.state) else { return };
        if let State::Runs(cpu) | State::Off(cpu) = state {
            self.settle_turn(stream, now, cpu);
        }
        self.become_state(now, job, state, state);
        let late = self.deadline(job).is_some_and(|deadline| now > deadline);
        let Some(pending) = self.pending.get(&job) else { return };
        // A demoted one was explained when that happened.
        let late = (late || pending.missed) && !pending.explained;
        match cancelled {
            Some(CancelCause::Late) if !pending.explained => self.explain(job, now, false),
            None | Some(CancelCause::Failed) if late => self.explain(job, now, true),
            // Jobs that never began, or were not to begin any more, count as cancelled.
            _ => {}
        }
        if cancelled.is_none() {
            self.keep_worst(job, now);
            self.keep_finished(job, now);
        }
        let place = self.pending.get(&job).and_then(|pending| self.place(job, pending));
        let own = self.own_cpu(job, stream);
        let wcet = self.wcet(job.task).unwrap_or(Span::MAX);
        let Some(pending) = self.pending.remove(&job) else { return };
        if let (Some((stream, cpu)), Some(place), true) = (own, place, pending.started) {
            let Pending { due, delayed, begins, ran, .. } = pending;
            let ran = EndedJob { place, due, begins, ended: now, took: ran.min(wcet), delayed };
            self.cpu(stream, cpu).course.ended(ran);
        }
    }

    /// Switches to another mode. Jobs get the places of that mode. If it demotes, late jobs that
    /// have not started are demoted. If it does not, demoted jobs are no longer so.
    fn adopt(&mut self, stream: u32, now: Time, mode: u32) {
        let fall = |(job, pending): &(&JobKey, &Pending)| {
            pending.stream == stream
                && pending.missed
                && !pending.explained
                && !pending.started
                && self.demotes(job.task, mode)
        };
        let fall: Vec<JobKey> = self.pending.iter().filter(fall).map(|(job, _)| *job).collect();
        for job in fall {
            self.demote(now, job);
        }
        let back = |(job, pending): &(&JobKey, &Pending)| {
            pending.stream == stream && pending.demoted && !self.demotes(job.task, mode)
        };
        let back: Vec<JobKey> = self.pending.iter().filter(back).map(|(job, _)| *job).collect();
        for job in back {
            if let Some(pending) = self.pending.get_mut(&job) {
                pending.demoted = false;
            }
        }
        self.modes.insert(stream, mode);
        // The jobs that have CPUs get their new places.
        let running: Vec<(u32, Activity)> = self
            .cpus
            .iter()
            .filter(|((of, _), _)| *of == stream)
            .map(|((_, cpu), here)| (*cpu, here.activity))
            .collect();
        for (cpu, activity) in running {
            self.hold(stream, now, cpu, activity);
        }
    }
}

/// The causes of lateness.
impl Causes {
    /// A job was late and ended now, or it was dropped at its deadline, or is not over at the end of the log.
    fn explain(&mut self, job: JobKey, now: Time, ended: bool) {
        let Some(pending) = self.pending.get(&job) else { return };
        let stream = pending.stream;
        let Some(deadline) = self.deadline(job) else { return };
        let own = self.own_cpu(job, stream);
        let way = pending.message_delay.unwrap_or_default();
        let (sum, by_load, elsewhere) = match own {
            Some(cpu) => {
                let Busy { mut sum, undisturbed, elsewhere } = self.in_busy_period(job, cpu, now, ended);
                way.delays().for_each(|(cause, span)| sum.add(cause, span));
                // By laxity, jobs with later deadlines may rightly go first. They are in no such end.
                let nothing = sum.disturbance.total().is_zero() && elsewhere.is_none();
                let undisturbed = undisturbed.map(|end| less(end, way.total()));
                (sum, undisturbed.map(|end| end > deadline || nothing), elsewhere)
            }
            None => {
                let mut sum = self.in_own_time(job, now);
                way.delays().for_each(|(cause, span)| sum.add(cause, span));
                // One that has not ended will end later than now.
                let (late, disturbed) = (now.saturating_since(deadline), sum.disturbance.total());
                (sum, Some(late > disturbed || (!ended && late == disturbed)), None)
            }
        };
        let tally = self.tallies.entry(job.task).or_default();
        match by_load {
            Some(true) => {
                tally.by_load(&sum);
                self.before.remove(&job.task);
            }
            Some(false) => drop(self.before.insert(job.task, tally.disturbed(&sum, elsewhere))),
            None => tally.unknown(),
        }
    }

    /// On the CPU that its task is bound to.
    fn in_busy_period(&mut self, job: JobKey, (stream, cpu): (u32, u32), now: Time, ended: bool) -> Busy {
        self.settle_turn(stream, now, cpu);
        self.cpu(stream, cpu);
        let Some(pending) = self.pending.get(&job) else { return Busy::default() };
        let Some(place) = self.place(job, pending) else { return Busy::default() };
        let wcet = self.wcet(job.task).unwrap_or(Span::MAX);
        // How long it would have taken, had it come to its end, nobody knows.
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
                self.place(*other, waiting).filter(|_| self.own_cpu(*other, waiting.stream) == Some((stream, cpu)));
            let Some(of) = of.filter(|_| *other != job && !waiting.demoted) else { continue };
            let before = other.task == job.task && other.number < job.number;
            if of < place || (of == place && (before || waiting.started)) {
                since = since.min(waiting.begins);
                if !ended {
                    let took = self.wcet(other.task).unwrap_or(Span::MAX);
                    let Pending { due, begins, delayed, .. } = *waiting;
                    ahead.push(EndedJob { place: of, due, begins, ended: now, took, delayed });
                }
            }
        }
        let (due, begins) = (pending.begins, pending.begins);
        let this = EndedJob { place, due, begins, ended: now, took, delayed: None };
        let off = match (pending.state, pending.since) {
            (State::Off(_), from) => Some(Stop { from, to: now, place, cause: Cause::Throttled }),
            _ => None,
        };
        let mode = self.modes.get(&stream).copied().unwrap_or(0);
        let by_laxity =
            self.rules.task(job.task).and_then(|rule| rule.importance(mode)).is_some_and(|found| found.by_laxity);
        let Some(here) = self.cpus.get(&(stream, cpu)) else { return Busy::default() };
        let since = here.course.busy_since(place, since);
        let mut sum = Sum::default();
        let names = |other: JobKey| (other.task != job.task).then_some(Name::Task(other.task));
        here.course.disturbances(job, (place, by_laxity), (since.unwrap_or(this.due), now), off, names, &mut sum);
        let elsewhere = since.and_then(|since| here.course.longest_delay(place, &ahead, since));
        let undisturbed = since.map(|since| here.course.undisturbed(this, &ahead, since));
        Busy { sum, undisturbed, elsewhere }
    }

    /// Keeps what the CPU of a job did, if no job of its task had a longer response.
    fn keep_worst(&mut self, job: JobKey, now: Time) {
        let Some(worst) = &self.worst else { return };
        let Some(pending) = self.pending.get(&job) else { return };
        let response = now.saturating_since(pending.arrival);
        if worst.get(&job.task).is_some_and(|worst| worst.response() >= response) {
            return;
        }
        let (arrival, stream) = (pending.arrival, pending.stream);
        let cpu = match pending.state {
            State::Runs(cpu) | State::Off(cpu) => cpu,
            _ => return,
        };
        let deadline = self.deadline(job);
        let Some(here) = self.cpus.get(&(stream, cpu)) else { return };
        let turns = here.course.turns(arrival, now, (&self.definitions, &self.names), job);
        let found = Worst { number: job.number, cpu, arrival, deadline, ended: now, turns };
        if let Some(worst) = &mut self.worst {
            worst.insert(job.task, found);
        }
    }
}

impl Cpu {
    fn new(activity: Activity) -> Cpu {
        Cpu { activity, interrupts: Vec::new(), since: Time::ZERO, course: Course::new(activity) }
    }
}

#[cfg(test)]
mod tests;
