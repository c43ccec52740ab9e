//! One node in virtual time: releases, execution, deadlines, and the dispatcher's decisions carried out.

use std::collections::VecDeque;

use takt_log::{CancelCause, Definition, Event, JobKey, Parent, ServerDef, Sink};
use takt_model::{Arrivals, Arriving, Costs, Draw, Exec, NodeId, Span, System, Task, TaskId, Time};
use takt_policy::{self as policy, Decision, Link, ReadyInstance, ServerChange, Times};

use crate::decider::Decider;
use crate::messages::{Message, NodeMessages};
use crate::thefts::StolenTime;
use crate::{BACKLOG_MAX, SimError};

/// A released job.
#[derive(Clone, Copy, Debug)]
struct Released {
    number: u64,
    arrival: Time,
    release: Time,
    deadline: Time,
    /// The origin of its chain instance; its own arrival if it follows no other job. In a network it is a true time:
    /// the clock of a node that begins later than the flow cannot show it.
    origin: Time,
    /// Its miss has been noted.
    missed: bool,
}

/// The job of a task that the dispatcher knows of.
#[derive(Clone, Copy, Debug)]
struct Head {
    job: Released,
    /// Execution left, overheads included, at `since` if it runs.
    remaining: Span,
    /// The CPU on which it runs, and since when.
    running: Option<(u32, Time)>,
}

/// A task and its jobs.
struct SimTask<'a> {
    id: TaskId,
    task: &'a Task,
    /// Relative.
    deadline: Span,
    draw: Draw,
    /// Execution time of every job, where all have the same.
    exec_fixed: Option<Span>,
    /// Jobs from outside; `None` for a chain's successor.
    arrivals: Option<Arrivals<'a>>,
    head: Option<Head>,
    pending: VecDeque<Released>,
    /// How many of `pending`, from the front, have missed.
    pending_missed: usize,
    /// Counts the ended jobs of its predecessors; `None` for a task without any. Boxed, because few tasks have one.
    link: Option<Box<Link>>,
    /// Whether its jobs follow other jobs, in a chain or in a flow.
    has_parent: bool,
    /// Position in the chain.
    hop: u32,
    /// Slots of the tasks that come after this one.
    successors: Vec<u32>,
}

impl SimTask<'_> {
    fn key(&self, number: u64) -> JobKey {
        JobKey { task: self.id, number }
    }

    /// The earliest deadline that an unfinished job of this task has still to meet.
    fn next_deadline(&self) -> Option<Time> {
        let head = self.head.as_ref().map(|head| &head.job).filter(|job| !job.missed);
        head.or_else(|| self.pending.get(self.pending_missed)).map(|job| job.deadline)
    }
}

pub(crate) struct NodeSim<'a, D> {
    system: &'a System,
    stream: u32,
    end: Time,
    dispatcher: D,
    decisions: Vec<Decision>,
    tasks: Vec<SimTask<'a>>,
    /// Next release by slot.
    releases: Times,
    /// Finish of the running job by CPU.
    finishes: Times,
    /// Next deadline to look at by slot; used only if `watch_deadlines`.
    deadlines: Times,
    watch_deadlines: bool,
    report_deadlines: bool,
    slot_on: Vec<u32>,
    /// Mode switches to come.
    modes: VecDeque<Time>,
    mode: u32,
    /// The next mode switch or wake-up of the dispatcher, whichever is earlier.
    next_other: Time,
    /// Slots that may have jobs to release now: successors, later hops and interrupts.
    due_slots: Vec<u32>,
    costs: Option<Costs>,
    thefts: StolenTime,
    released: u64,
    /// The messages of a node in a network.
    messages: Option<Box<NodeMessages>>,
}

impl<'a, D: Decider> NodeSim<'a, D> {
    pub(crate) fn new(
        system: &'a System,
        id: NodeId,
        tasks: &[TaskId],
        dispatcher: D,
        seed: u64,
        end: Time,
        record_misses: bool,
    ) -> Self {
        let spec = &system.nodes[id.index()];
        let tasks = sim_tasks(system, tasks, seed);
        let mut modes: Vec<Time> = system.modes.iter().filter(|mode| mode.node == id).map(|mode| mode.at).collect();
        modes.sort_unstable();
        let mut node = NodeSim {
            system,
            stream: id.0,
            end,
            decisions: Vec::with_capacity(dispatcher.decisions_max()),
            releases: Times::never(tasks.len()),
            finishes: Times::never(spec.cpus as usize),
            deadlines: Times::never(tasks.len()),
            watch_deadlines: record_misses || dispatcher.wants_deadlines(),
            report_deadlines: dispatcher.wants_deadlines(),
            dispatcher,
            tasks,
            slot_on: vec![0; spec.cpus as usize],
            modes: modes.into(),
            mode: 0,
            next_other: Time::MAX,
            due_slots: Vec::new(),
            costs: spec.costs,
            thefts: StolenTime::new(&spec.costs.unwrap_or(Costs::NONE)),
            released: 0,
            messages: None,
        };
        node.next_other = node.modes.front().copied().unwrap_or(Time::MAX);
        (0..node.tasks.len() as u32).for_each(|slot| node.schedule_release(slot));
        node.next_other = node.next_other.min(node.dispatcher.next_wakeup(Time::ZERO).unwrap_or(Time::MAX));
        node
    }

    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// Makes it a node of a network. Later hops are released by messages alone.
    pub(crate) fn connect(&mut self, messages: NodeMessages) {
        for slot in 0..self.tasks.len() as u32 {
            let task = &mut self.tasks[slot as usize];
            if let Some(work) = messages.fixed_work(slot) {
                task.exec_fixed = Some(work);
            }
            if let Some(hop) = messages.later_hop(slot) {
                (task.hop, task.has_parent, task.arrivals) = (hop, true, None);
                self.schedule_release(slot);
            } else if messages.is_interrupt(slot) {
                task.arrivals = None;
                self.schedule_release(slot);
            }
        }
        self.messages = Some(Box::new(messages));
    }

    /// A message arrives at `now`. An interrupt is released at this instant.
    pub(crate) fn deliver<S: Sink>(&mut self, message: Message, now: Time, sink: &mut S) {
        if let Some(slot) = self.messages.as_mut().and_then(|messages| messages.arrive(message, now, sink))
            && now < self.end
        {
            self.releases.set(slot, now);
        }
    }

    pub(crate) fn messages(&mut self) -> Option<&mut NodeMessages> {
        self.messages.as_deref_mut()
    }

    /// The instant of the next event, `None` if none is left up to the end of the simulation.
    #[inline]
    pub(crate) fn next_instant(&self) -> Option<Time> {
        let mut next = self.finishes.earliest().0.min(self.releases.earliest().0);
        if self.watch_deadlines {
            next = next.min(self.deadlines.earliest().0);
        }
        next = next.min(self.next_other);
        (next <= self.end).then_some(next)
    }

    /// Handles all events before the instant `before`.
    pub(crate) fn advance<S: Sink>(&mut self, before: Time, sink: &mut S) -> Result<(), SimError> {
        while let Some(now) = self.next_instant().filter(|now| *now < before) {
            self.step(now, sink)?;
        }
        Ok(())
    }

    /// Handles all events of `now`: ends of jobs, misses, releases, mode switches and decisions, in this order. Repeats
    /// them as long as a decision causes another event at `now`.
    #[inline(always)]
    fn step<S: Sink>(&mut self, now: Time, sink: &mut S) -> Result<(), SimError> {
        if self.watch_deadlines && self.only_misses_are_due(now) {
            self.handle_misses(now, sink);
            return Ok(());
        }
        loop {
            self.complete_all(now, sink);
            if self.watch_deadlines {
                self.handle_misses(now, sink);
                self.carry_out_pending(now, sink);
            }
            if now >= self.end {
                self.modes.clear();
                self.next_other = Time::MAX;
                return Ok(());
            }
            self.release_all(now, sink)?;
            if self.next_other <= now && self.modes.front().is_some_and(|at| *at <= now) {
                self.switch_mode(now, sink);
                self.carry_out_pending(now, sink);
            }
            self.dispatcher.dispatch(now, &mut self.decisions);
            self.log_server_events(now, sink);
            let again = self.carry_out(now, sink);
            if !again && self.finishes.earliest().0 > now && self.due_slots.is_empty() {
                break;
            }
        }
        let wakeup = self.dispatcher.next_wakeup(now).unwrap_or(Time::MAX);
        self.next_other = self.modes.front().map_or(wakeup, |mode| wakeup.min(*mode));
        Ok(())
    }

    /// Whether the only events at `now` are misses, which only the log needs. Then the dispatcher is not asked, so the
    /// schedule is the same with a log and without one. A dispatcher that wants deadlines is asked at each of them.
    #[inline]
    fn only_misses_are_due(&self, now: Time) -> bool {
        !self.report_deadlines && self.finishes.earliest().0.min(self.releases.earliest().0).min(self.next_other) > now
    }

    #[inline]
    fn complete_all<S: Sink>(&mut self, now: Time, sink: &mut S) {
        while let (time, cpu) = self.finishes.earliest()
            && time == now
        {
            self.finishes.set(cpu, Time::MAX);
            let slot = self.slot_on[cpu as usize];
            self.dispatcher.on_event(now, &policy::Event::Complete { slot }, &mut self.decisions);
            let task = &mut self.tasks[slot as usize];
            if let Some(Head { job: Released { number, origin, deadline, .. }, .. }) = task.head {
                task.head = None;
                let job = task.key(number);
                sink.event(self.stream, now, &Event::Complete { job, cpu });
                self.job_ended(slot, number, origin, true, now);
                if let Some(messages) = &mut self.messages
                    && messages.completed(slot, (job, deadline, origin), now, sink)
                {
                    self.due_slots.push(slot);
                }
            }
        }
    }

    /// Writes the misses of deadlines at `now` to the log, and reports them to a dispatcher that wants deadlines.
    fn handle_misses<S: Sink>(&mut self, now: Time, sink: &mut S) {
        while let (time, slot) = self.deadlines.earliest()
            && time <= now
        {
            let task = &mut self.tasks[slot as usize];
            match task.next_deadline() {
                Some(deadline) if deadline <= now => {
                    let is_head = task.head.as_ref().is_some_and(|head| !head.job.missed);
                    let number = match &mut task.head {
                        Some(head) if is_head => {
                            head.job.missed = true;
                            head.job.number
                        }
                        _ => {
                            let job = &mut task.pending[task.pending_missed];
                            task.pending_missed += 1;
                            job.missed = true;
                            job.number
                        }
                    };
                    sink.event(self.stream, now, &Event::Miss { job: task.key(number) });
                    if is_head && self.report_deadlines {
                        self.dispatcher.on_event(now, &policy::Event::Deadline { slot }, &mut self.decisions);
                    }
                }
                later => self.deadlines.set(slot, later.unwrap_or(Time::MAX)),
            }
        }
    }

    #[inline]
    fn release_all<S: Sink>(&mut self, now: Time, sink: &mut S) -> Result<(), SimError> {
        while let (time, slot) = self.releases.earliest()
            && time <= now
        {
            let next = self.tasks[slot as usize].arrivals.as_ref().and_then(Arrivals::peek);
            if let Some(Arriving { number, arrival, .. }) = next.copied() {
                let origin = self.messages.as_ref().map_or(arrival, |messages| messages.true_of(arrival));
                self.release(slot, number, arrival, origin, now, sink)?;
            } else {
                // An interrupt: its job waits among the messages.
                self.due_slots.push(slot);
            }
            if let Some(arrivals) = &mut self.tasks[slot as usize].arrivals {
                arrivals.advance();
            }
            self.schedule_release(slot);
        }
        // Jobs released after their deadline may be dropped at once.
        self.carry_out_pending(now, sink);
        if self.due_slots.is_empty() { Ok(()) } else { self.release_successors(now, sink) }
    }

    // Not inlined: it holds two more copies of a release, and tasks without chains never need it.
    #[inline(never)]
    fn release_successors<S: Sink>(&mut self, now: Time, sink: &mut S) -> Result<(), SimError> {
        while let Some(slot) = self.due_slots.pop() {
            while let Some(job) = self.messages.as_mut().and_then(|messages| messages.jobs.pop_front()) {
                self.release(job.slot, job.number, job.arrival, job.origin, now, sink)?;
            }
            while let Some(due) = self.tasks[slot as usize].link.as_deref_mut().and_then(Link::take_due) {
                self.release_successor(slot, due, now, sink)?;
            }
            let task = &self.tasks[slot as usize];
            if task.link.as_ref().is_some_and(|link| link.open() > BACKLOG_MAX as u64) {
                return Err(SimError::Backlog { task: task.task.name.clone(), at: now });
            }
            self.carry_out_pending(now, sink);
        }
        Ok(())
    }

    /// Schedules the next release of a task that follows no other, if it lies before the end.
    #[inline(always)]
    fn schedule_release(&mut self, slot: u32) {
        let next = self.tasks[slot as usize].arrivals.as_ref().and_then(Arrivals::peek);
        let release = next.map_or(Time::MAX, |job| job.release);
        self.releases.set(slot, if release < self.end { release } else { Time::MAX });
    }

    #[inline(always)]
    fn release<S: Sink>(
        &mut self,
        slot: u32,
        number: u64,
        arrival: Time,
        origin: Time,
        now: Time,
        sink: &mut S,
    ) -> Result<(), SimError> {
        self.released += 1;
        let task = &mut self.tasks[slot as usize];
        let parent = task.has_parent.then_some(Parent { hop: task.hop, origin });
        sink.event(self.stream, now, &Event::Release { job: task.key(number), arrival, parent });
        let deadline = arrival.saturating_add(task.deadline);
        let mut job = Released { number, arrival, release: now, deadline, origin, missed: false };
        if self.watch_deadlines {
            if deadline <= now {
                job.missed = true;
                sink.event(self.stream, now, &Event::Miss { job: task.key(number) });
            } else if self.deadlines.is_never(slot) {
                self.deadlines.set(slot, deadline);
            }
        }
        if task.head.is_none() {
            self.make_head(slot, &job, now);
        } else {
            task.pending_missed += usize::from(job.missed);
            task.pending.push_back(job);
            if task.pending.len() > BACKLOG_MAX {
                return Err(SimError::Backlog { task: task.task.name.clone(), at: now });
            }
        }
        Ok(())
    }

    fn release_successor<S: Sink>(
        &mut self,
        slot: u32,
        due: ReadyInstance,
        now: Time,
        sink: &mut S,
    ) -> Result<(), SimError> {
        if !due.shed {
            return self.release(slot, due.number, now, due.origin, now, sink);
        }
        self.released += 1;
        let task = &self.tasks[slot as usize];
        let job = task.key(due.number);
        let parent = Some(Parent { hop: task.hop, origin: due.origin });
        sink.event(self.stream, now, &Event::Release { job, arrival: now, parent });
        sink.event(self.stream, now, &Event::Cancel { job, cause: CancelCause::Shed });
        self.notify_successors(slot, due.number, false, due.origin);
        Ok(())
    }

    /// Hands a job to the dispatcher.
    #[inline(always)]
    fn make_head(&mut self, slot: u32, job: &Released, now: Time) {
        let task = &mut self.tasks[slot as usize];
        let exec = task.exec_fixed.unwrap_or_else(|| task.draw.exec(task.task, job.number));
        let overhead = self.costs.map_or(Span::ZERO, |costs| costs.release);
        task.head = Some(Head { job: *job, remaining: exec + overhead, running: None });
        let ready = policy::Job { slot, release: job.release, arrival: job.arrival, deadline: job.deadline };
        self.dispatcher.on_event(now, &policy::Event::Ready(ready), &mut self.decisions);
    }

    /// The job of a slot has ended: starts the next pending job of the task and notifies its successors.
    #[inline(always)]
    fn job_ended(&mut self, slot: u32, number: u64, origin: Time, completed: bool, now: Time) {
        let task = &self.tasks[slot as usize];
        if !task.pending.is_empty() || !task.successors.is_empty() {
            self.start_next(slot, number, origin, completed, now);
        }
    }

    #[inline(never)]
    fn start_next(&mut self, slot: u32, number: u64, origin: Time, completed: bool, now: Time) {
        let task = &mut self.tasks[slot as usize];
        if let Some(next) = task.pending.pop_front() {
            task.pending_missed = task.pending_missed.saturating_sub(1);
            self.make_head(slot, &next, now);
        }
        self.notify_successors(slot, number, completed, origin);
    }

    fn notify_successors(&mut self, slot: u32, number: u64, completed: bool, origin: Time) {
        for at in 0..self.tasks[slot as usize].successors.len() {
            let successor = self.tasks[slot as usize].successors[at];
            if let Some(link) = &mut self.tasks[successor as usize].link {
                link.ended(number, completed, origin);
                self.due_slots.push(successor);
            }
        }
    }

    #[inline(never)]
    fn switch_mode<S: Sink>(&mut self, now: Time, sink: &mut S) {
        while self.modes.front().is_some_and(|at| *at <= now) {
            self.modes.pop_front();
            self.mode += 1;
            sink.event(self.stream, now, &Event::ModeChange { mode: self.mode });
            self.dispatcher.on_event(now, &policy::Event::Mode { plan: self.mode as usize }, &mut self.decisions);
        }
    }

    /// Carries the decisions out. True when a slot became empty, so that there is more to decide.
    #[inline(always)]
    fn carry_out<S: Sink>(&mut self, now: Time, sink: &mut S) -> bool {
        let mut emptied = false;
        let mut at = 0;
        // Dropping a job can make its late successor in line drop at once, which appends.
        while let Some(decision) = self.decisions.get(at).copied() {
            at += 1;
            match decision {
                Decision::Run { slot, cpu, resumed, from } => self.run(slot, cpu, resumed, from, now, sink),
                other => emptied |= self.revoke(other, now, sink),
            }
        }
        self.decisions.clear();
        emptied
    }

    /// [`NodeSim::carry_out`] for the usual case of no decision.
    #[inline]
    fn carry_out_pending<S: Sink>(&mut self, now: Time, sink: &mut S) {
        if !self.decisions.is_empty() {
            self.carry_out_outlined(now, sink);
        }
    }

    #[inline(never)]
    fn carry_out_outlined<S: Sink>(&mut self, now: Time, sink: &mut S) {
        self.carry_out(now, sink);
    }

    /// Carries out a decision by which a job loses its CPU or its slot. True when the slot became empty.
    #[inline(always)]
    fn revoke<S: Sink>(&mut self, decision: Decision, now: Time, sink: &mut S) -> bool {
        match decision {
            Decision::Run { .. } => return false,
            Decision::Preempt { slot, cpu } => {
                self.preempt(slot, cpu, now, sink);
                return false;
            }
            Decision::Cancel { slot } => self.abandon(slot, CancelCause::Omitted, now, sink),
            Decision::Drop { slot, cpu } => {
                if let Some(cpu) = cpu {
                    self.finishes.set(cpu, Time::MAX);
                }
                self.abandon(slot, CancelCause::Late, now, sink);
            }
        }
        true
    }

    #[inline(always)]
    fn log_server_events<S: Sink>(&mut self, now: Time, sink: &mut S) {
        let (stream, system) = (self.stream, self.system);
        self.dispatcher.take_server_events(|event| {
            let server = event.component.index() as u32;
            if let ServerChange::Switched { rule, period, budget } = event.change {
                let component = &system.components[event.component.index()];
                let def = ServerDef {
                    name: component.name.clone(),
                    node: component.node,
                    rule: rule.name().to_owned(),
                    period: Some(period),
                    budget: Some(budget),
                };
                return sink.define(stream, now, &Definition::Server(server, def));
            }
            let event = match event.change {
                ServerChange::Replenished(budget) => Event::Replenish { server, budget },
                ServerChange::Exhausted => Event::Exhaust { server },
                ServerChange::Idle => Event::ServerIdle { server },
                ServerChange::Paid { since, amount, idle } => Event::Charge { server, since, amount, idle },
                ServerChange::Switched { .. } => return,
            };
            sink.event(stream, now, &event);
        });
    }

    /// Reports the payments of servers up to the end.
    pub(crate) fn finish<S: Sink>(&mut self, sink: &mut S) {
        self.dispatcher.finish(self.end);
        self.log_server_events(self.end, sink);
    }

    fn preempt<S: Sink>(&mut self, slot: u32, cpu: u32, now: Time, sink: &mut S) {
        self.finishes.set(cpu, Time::MAX);
        let task = &mut self.tasks[slot as usize];
        let id = task.id;
        let Some(head) = &mut task.head else { return };
        if let Some((_, since)) = head.running.take() {
            head.remaining = head.remaining.saturating_sub(self.thefts.work(since, now));
        }
        let job = JobKey { task: id, number: head.job.number };
        sink.event(self.stream, now, &Event::Preempt { job, cpu });
    }

    #[inline(always)]
    fn run<S: Sink>(&mut self, slot: u32, cpu: u32, resumed: bool, from: Option<u32>, now: Time, sink: &mut S) {
        let task = &mut self.tasks[slot as usize];
        let id = task.id;
        let Some(head) = &mut task.head else { return };
        let job = JobKey { task: id, number: head.job.number };
        if let Some(costs) = &self.costs {
            head.remaining += costs.switch;
            if from.is_some() {
                head.remaining += costs.migrate;
            }
        }
        if let Some(from) = from {
            sink.event(self.stream, now, &Event::Migrate { job, from, to: cpu });
        }
        let event = if resumed { Event::Resume { job, cpu } } else { Event::Start { job, cpu } };
        sink.event(self.stream, now, &event);
        if let Some(messages) = &mut self.messages
            && !resumed
        {
            head.remaining += messages.started(slot, head.job.number);
        }
        head.running = Some((cpu, now));
        self.slot_on[cpu as usize] = slot;
        self.finishes.set(cpu, self.thefts.finish(now, head.remaining));
    }

    fn abandon<S: Sink>(&mut self, slot: u32, cause: CancelCause, now: Time, sink: &mut S) {
        let task = &mut self.tasks[slot as usize];
        if let Some(head) = task.head.take() {
            sink.event(self.stream, now, &Event::Cancel { job: task.key(head.job.number), cause });
            self.job_ended(slot, head.job.number, head.job.origin, false, now);
        }
    }
}

/// The tasks of a node, by slot.
fn sim_tasks<'a>(system: &'a System, tasks: &[TaskId], seed: u64) -> Vec<SimTask<'a>> {
    let members: Vec<(TaskId, &Task)> = tasks.iter().map(|id| (*id, &system.tasks[id.index()])).collect();
    let mut tasks: Vec<SimTask<'_>> = members
        .iter()
        .map(|(id, task)| {
            let draw = Draw::new(seed, &task.name);
            let is_successor = !task.after.is_empty();
            SimTask {
                id: *id,
                task,
                deadline: task.deadline,
                draw,
                exec_fixed: (task.exec == Exec::Wcet).then_some(task.wcet),
                arrivals: (!is_successor).then(|| Arrivals::with_jitter(task, system.release_jitter(*id), draw)),
                head: None,
                pending: VecDeque::new(),
                pending_missed: 0,
                link: is_successor.then(|| Box::new(Link::new(task.after.len() as u32))),
                has_parent: is_successor,
                hop: 0,
                successors: Vec::new(),
            }
        })
        .collect();
    let slot_of = |id: &TaskId| members.iter().position(|(member, _)| member == id);
    for (slot, (_, task)) in members.iter().enumerate() {
        for before in task.after.iter().filter_map(slot_of) {
            tasks[before].successors.push(slot as u32);
        }
    }
    // Chains have no cycles, so as many rounds as there are tasks settle the longest way to each.
    for _ in 0..tasks.len() {
        let mut settled = true;
        for before in 0..tasks.len() {
            let hop = tasks[before].hop + 1;
            for at in 0..tasks[before].successors.len() {
                let successor = tasks[before].successors[at] as usize;
                if tasks[successor].hop < hop {
                    tasks[successor].hop = hop;
                    settled = false;
                }
            }
        }
        if settled {
            break;
        }
    }
    tasks
}
