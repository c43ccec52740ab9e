//! The CPUs of a manager, as a pure machine: releases, backlogs, chains and late rules around
//! [`takt_policy::Machine`].
//!
//! The machine lives in the times of the plan. [`Core::follow`] carries out all instants up to `now`,
//! each at its own time, however late the caller is. So budgets last as long as the System says, and
//! the order of events is that of a simulation. Only completions come from outside.

use std::collections::VecDeque;

use takt_log::{CancelCause, Event, JobKey, Parent};
use takt_model::draw::{Arrivals, Draw, Releases};
use takt_model::{ComponentId, NodeId, ServerRule, Span, System, Task, TaskId, Time};
use takt_policy::{self as policy, CpuPart, Decision, Link, Machine, ReadyInstance, ServerChange, Times};

use crate::levels::BACKLOG;
use crate::node::NodeMessages;

/// A log event of the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    /// An event.
    Event(Event),
    /// A server has these terms from now on.
    Switched { component: ComponentId, rule: ServerRule, period: Span, budget: Span },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) slot: u32,
    pub(crate) at: Time,
}

/// A change of the components and their servers. It is made beside the running machine, which takes it at its instant.
pub(crate) struct Change {
    pub(crate) at: Time,
    /// What [`CpuPart::with_change`] made.
    pub(crate) part: CpuPart,
    pub(crate) joins: Vec<Join>,
    /// Slots of tasks that leave.
    pub(crate) leaves: Vec<u32>,
}

/// A task that joins. Its slot is the next one.
pub(crate) struct Join {
    pub(crate) id: TaskId,
    /// When its first job arrives.
    first: Time,
    pending: VecDeque<Released>,
}

impl Join {
    pub(crate) fn new(id: TaskId, first: Time) -> Join {
        Join { id, first, pending: VecDeque::with_capacity(BACKLOG as usize) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Released {
    number: u64,
    arrival: Time,
    release: Time,
    /// The origin of its chain instance; its own arrival if it follows no other job.
    origin: Time,
    /// Its deadline has passed.
    missed: bool,
}

struct CoreTask<'a> {
    id: TaskId,
    /// Relative.
    deadline: Span,
    /// Jobs from outside; `None` for a chain's successor, and for existing threads.
    releases: Option<Releases<'a>>,
    /// The number of the next job of existing threads.
    next: u64,
    /// The job that the machine knows of.
    head: Option<Released>,
    /// At most [`BACKLOG`].
    pending: VecDeque<Released>,
    /// How many of them, from the front, have missed.
    pending_missed: usize,
    /// The way in, for a successor.
    link: Option<Link>,
    /// Whether its jobs come after others: those of a chain or of a flow.
    follows: bool,
    /// Position in the chain.
    hop: u32,
    /// Slots of the tasks that come after this one.
    successors: Vec<u32>,
}

impl CoreTask<'_> {
    fn key(&self, number: u64) -> JobKey {
        JobKey { task: self.id, number }
    }

    /// The earliest deadline that a job of this task has still to meet.
    fn next_deadline(&self) -> Option<Time> {
        let head = self.head.as_ref().filter(|job| !job.missed);
        let next = head.or_else(|| self.pending.get(self.pending_missed));
        next.map(|job| job.arrival.saturating_add(self.deadline))
    }

    /// Notes that this deadline has passed. True if it was the head's.
    fn miss(&mut self) -> bool {
        if let Some(head) = self.head.as_mut().filter(|head| !head.missed) {
            head.missed = true;
            return true;
        }
        if let Some(job) = self.pending.get_mut(self.pending_missed) {
            job.missed = true;
            self.pending_missed += 1;
        }
        false
    }
}

/// See the module's documentation. Nothing is allocated after construction.
pub(crate) struct Core<'a> {
    machine: Machine,
    /// The System's components, by the machine's.
    components: Vec<ComponentId>,
    decisions: Vec<Decision>,
    tasks: Vec<CoreTask<'a>>,
    /// Next release by slot.
    releases: Times,
    /// Next deadline to look at by slot, if the machine wants to know.
    deadlines: Times,
    wants_deadlines: bool,
    /// Mode switches to come, the earliest last.
    modes: Vec<Time>,
    mode: u32,
    /// The machine's next wake-up.
    wakeup: Time,
    /// Successors with an instance that may have become due.
    due: Vec<u32>,
    /// Slots whose head ended without completing, since the caller last looked.
    dropped: Vec<u32>,
    /// By CPU of the part: the slot whose job runs there.
    runs: Vec<Option<u32>>,
    change: Option<Box<Change>>,
    /// The last change, for its memory to be freed elsewhere.
    changed: Option<Box<Change>>,
    seed: u64,
    last: Time,
    end: Time,
}

impl<'a> Core<'a> {
    /// The machine of a part of `node`. Jobs are released before `end`, and it stops there. The part is one that was
    /// just made: a clone has no room to spare, and would allocate.
    ///
    /// `later_hop` tells the hop of the jobs that messages release, by slot.
    pub(crate) fn new(
        system: &'a System,
        node: NodeId,
        part: CpuPart,
        (seed, end): (u64, Time),
        later_hop: impl Fn(u32) -> Option<u32>,
    ) -> Core<'a> {
        let of_node: Vec<(TaskId, &Task)> = system.tasks_of(node).collect();
        let members: Vec<(TaskId, &Task)> =
            part.slots.iter().filter_map(|slot| of_node.get(*slot as usize)).copied().collect();
        let mut tasks = core_tasks(system, &members, seed, end);
        for (slot, task) in (0..).zip(&mut tasks) {
            if let Some(hop) = later_hop(slot) {
                (task.releases, task.follows, task.hop) = (None, true, hop);
            }
        }
        let mut modes: Vec<Time> = system.modes.iter().filter(|mode| mode.node == node).map(|mode| mode.at).collect();
        modes.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
        let count = tasks.len();
        let mut core = Core {
            // A dropped job may be followed by one that is dropped at once.
            decisions: Vec::with_capacity(2 * part.machine.decisions_max()),
            wants_deadlines: part.machine.wants_deadlines(),
            machine: part.machine,
            components: part.components,
            releases: Times::never(count),
            deadlines: Times::never(count),
            modes,
            mode: 0,
            wakeup: Time::ZERO,
            due: Vec::with_capacity(count * (count + 1)),
            dropped: Vec::with_capacity(count * (BACKLOG as usize + 1)),
            runs: vec![None; part.cpus.len()],
            change: None,
            changed: None,
            seed,
            last: Time::ZERO,
            end,
            tasks,
        };
        (0..count as u32).for_each(|slot| core.arm_release(slot));
        core
    }

    /// Leaves out the jobs that are released before `from`: the node comes to a run that has begun.
    /// Their numbers count. Before the first [`Core::follow`].
    pub(crate) fn begin_at(&mut self, from: Time) {
        for slot in 0..self.tasks.len() as u32 {
            let releases = self.tasks.get_mut(slot as usize).and_then(|task| task.releases.as_mut());
            if let Some(releases) = releases {
                releases.begin_at(from);
            }
            self.arm_release(slot);
        }
        for mode in &mut self.modes {
            *mode = from.max(*mode);
        }
        (self.wakeup, self.last) = (from, from);
    }

    /// Makes room for so many components and tasks to join. Before the start. None join CPUs that share tasks.
    pub(crate) fn make_room(&mut self, servers: usize, tasks: usize) {
        let Some(hierarchy) = self.machine.hierarchy() else { return };
        hierarchy.make_room(servers, tasks);
        let count = self.tasks.len() + tasks;
        self.components.reserve(servers);
        self.tasks.reserve(tasks);
        (self.releases, self.deadlines) = (Times::never(count), Times::never(count));
        (0..self.tasks.len() as u32).for_each(|slot| self.arm_release(slot));
        self.due.reserve(count * (count + 1));
        self.dropped.reserve(count * (BACKLOG as usize + 1));
        self.decisions.reserve(4 * (count + servers + 1));
    }

    /// Takes a change whose instant is to come; `task` tells of tasks that join. Gives it back if its instant has
    /// passed or another change waits.
    pub(crate) fn announce(
        &mut self,
        mut change: Box<Change>,
        task: impl Fn(TaskId) -> Option<&'a Task>,
    ) -> Result<(), Box<Change>> {
        let known = change.joins.iter().all(|join| task(join.id).is_some());
        if change.at <= self.last || self.change.is_some() || !known {
            return Err(change);
        }
        for join in &mut change.joins {
            let Some(task) = task(join.id) else { continue };
            let arrivals = Arrivals::resumed(task, Draw::new(self.seed, &task.name), 0, join.first);
            self.tasks.push(CoreTask {
                id: join.id,
                deadline: task.deadline,
                releases: Some(Releases::new(arrivals, self.end)),
                next: 0,
                head: None,
                pending: std::mem::take(&mut join.pending),
                pending_missed: 0,
                follows: false,
                link: None,
                hop: 0,
                successors: Vec::new(),
            });
            self.arm_release(self.tasks.len() as u32 - 1);
        }
        self.change = Some(change);
        Ok(())
    }

    /// The change that was made, and is no longer needed.
    pub(crate) fn take_changed(&mut self) -> Option<Box<Change>> {
        self.changed.take()
    }

    fn make_change(&mut self, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        let Some(mut change) = self.change.take_if(|change| change.at <= at) else { return };
        if let (Some(hierarchy), Some(next)) = (self.machine.hierarchy(), change.part.machine.hierarchy()) {
            hierarchy.adopt(next, at, &mut self.decisions);
        }
        std::mem::swap(&mut self.components, &mut change.part.components);
        self.wants_deadlines |= self.machine.wants_deadlines();
        self.carry_out(at, tell);
        for slot in &change.leaves {
            self.leave(*slot, at, tell);
        }
        self.changed = Some(change);
    }

    /// Ends the jobs of a task, and releases no more.
    fn leave(&mut self, slot: u32, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        let Some(task) = self.tasks.get_mut(slot as usize) else { return };
        (task.releases, task.link) = (None, None);
        while let Some(job) = task.pending.pop_front() {
            tell(at, Fact::Event(Event::Cancel { job: task.key(job.number), cause: CancelCause::Omitted }));
        }
        task.pending_missed = 0;
        self.releases.set(slot, Time::MAX);
        self.deadlines.set(slot, Time::MAX);
        let head = task.head.take().map(|job| task.key(job.number));
        if let Some(job) = head {
            if let Some(hierarchy) = self.machine.hierarchy() {
                hierarchy.remove(at, slot, &mut self.decisions);
            }
            self.decisions.retain(|decision| !matches!(decision, Decision::Drop { slot: of, .. } if *of == slot));
            self.stop(slot);
            self.dropped.push(slot);
            tell(at, Fact::Event(Event::Cancel { job, cause: CancelCause::Omitted }));
        }
        self.carry_out(at, tell);
    }

    /// The slot and the number of the job that has this CPU of the part.
    pub(crate) fn runs(&self, cpu: usize) -> Option<(u32, u64)> {
        let slot = (*self.runs.get(cpu)?)?;
        self.head(slot).map(|number| (slot, number))
    }

    /// No CPU has the job of this slot any more.
    fn stop(&mut self, slot: u32) {
        self.runs.iter_mut().filter(|runs| **runs == Some(slot)).for_each(|runs| *runs = None);
    }

    /// The number of the job that the machine knows of.
    pub(crate) fn head(&self, slot: u32) -> Option<u64> {
        self.tasks.get(slot as usize)?.head.map(|job| job.number)
    }

    /// When the job that the machine knows of was released.
    pub(crate) fn released(&self, slot: u32) -> Option<Time> {
        self.tasks.get(slot as usize)?.head.map(|job| job.release)
    }

    pub(crate) fn key(&self, slot: u32, number: u64) -> JobKey {
        JobKey { task: self.tasks.get(slot as usize).map_or(TaskId(u32::MAX), |task| task.id), number }
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.tasks.len()
    }

    /// A slot whose job ended without completing.
    pub(crate) fn take_dropped(&mut self) -> Option<u32> {
        self.dropped.pop()
    }

    /// The end comes earlier.
    pub(crate) fn end_at(&mut self, end: Time) {
        self.end = self.end.min(end);
    }

    /// The next instant at which something happens by itself; [`Time::MAX`] for never.
    pub(crate) fn next_instant(&self) -> Time {
        let next = self.releases.earliest().0.min(self.deadlines.earliest().0).min(self.wakeup);
        let next = self.modes.last().map_or(next, |mode| next.min(*mode));
        let next = self.change.as_ref().map_or(next, |change| next.min(change.at));
        if next < self.end { next } else { Time::MAX }
    }

    /// Carries out all instants up to `now`. `done` are running jobs that have completed. The call empties it.
    ///
    /// A late caller may report a completion after the plan took the CPU from the job. Then the job
    /// completes just before that instant. Several jobs complete together, with the first of them: the next
    /// decision may take the CPU from another one. So the machine never sees a job complete that does not run. The
    /// error is at most the caller's lateness.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        done: &mut Vec<Completion>,
        mut messages: Option<&mut NodeMessages>,
        tell: &mut impl FnMut(Time, Fact),
    ) {
        loop {
            let next = self.next_instant();
            let first = done.iter().map(|done| done.at).min();
            let at = first.map_or(next, |first| first.min(next)).max(self.last);
            if at > now.max(self.last) || (first.is_none() && next == Time::MAX) {
                return;
            }
            self.last = at;
            self.step(at, done, messages.as_deref_mut(), tell);
        }
    }

    /// Existing threads want the CPU: their next job arrives. All instants up to `now` have been carried out.
    pub(crate) fn arrive(&mut self, slot: u32, now: Time, tell: &mut impl FnMut(Time, Fact)) {
        let at = now.max(self.last);
        let Some(task) = self.tasks.get_mut(slot as usize).filter(|task| task.head.is_none()) else { return };
        if at >= self.end {
            return;
        }
        let number = task.next;
        task.next += 1;
        self.last = at;
        self.release(slot, Released { number, arrival: at, release: at, origin: at, missed: false }, at, tell);
        self.step(at, &mut Vec::new(), None, tell);
    }

    /// Drops the jobs whose deadline is the end, and reports the payments of servers up to it.
    pub(crate) fn finish(&mut self, tell: &mut impl FnMut(Time, Fact)) {
        let end = self.end.max(self.last);
        self.step(end, &mut Vec::new(), None, tell);
        self.machine.finish(end);
        self.report_servers(end, tell);
    }

    /// Everything that happens at `at`, in the order of the simulator, until quiet.
    fn step(
        &mut self,
        at: Time,
        done: &mut Vec<Completion>,
        mut messages: Option<&mut NodeMessages>,
        tell: &mut impl FnMut(Time, Fact),
    ) {
        loop {
            for job in done.drain(..) {
                self.complete(job.slot, at, messages.as_deref_mut(), tell);
            }
            self.carry_out(at, tell);
            self.pass_deadlines(at, tell);
            if at >= self.end {
                return;
            }
            self.make_change(at, tell);
            self.release_hops(at, messages.as_deref_mut(), tell);
            self.release_all(at, tell);
            self.switch_modes(at, tell);
            self.machine.dispatch(at, &mut self.decisions);
            self.report_servers(at, tell);
            if !self.carry_out(at, tell) && self.due.is_empty() {
                break;
            }
        }
        self.wakeup = self.machine.next_wakeup().unwrap_or(Time::MAX);
    }

    /// Tells the machine of an event.
    fn report(&mut self, at: Time, event: &policy::Event) {
        self.machine.on_event(at, event, &mut self.decisions);
    }

    fn complete(
        &mut self,
        slot: u32,
        at: Time,
        messages: Option<&mut NodeMessages>,
        tell: &mut impl FnMut(Time, Fact),
    ) {
        let Some(task) = self.tasks.get_mut(slot as usize) else { return };
        let Some(job) = task.head.take() else { return };
        let (key, due) = (task.key(job.number), job.arrival.saturating_add(task.deadline));
        self.stop(slot);
        self.report(at, &policy::Event::Complete { slot });
        self.job_ended(slot, &job, true, at);
        if let Some(messages) = messages {
            messages.completed(slot, (key, due, job.origin), at, &mut |at, event| tell(at, Fact::Event(event)));
        }
    }

    /// Releases the jobs of messages that a receiving job has taken.
    fn release_hops(&mut self, at: Time, messages: Option<&mut NodeMessages>, tell: &mut impl FnMut(Time, Fact)) {
        let Some(messages) = messages else { return };
        while let Some(job) = messages.take_job() {
            let (number, arrival, origin) = (job.number, job.arrival, job.origin);
            let released = Released { number, arrival, release: at, origin, missed: false };
            self.release(job.slot, released, at, tell);
        }
        self.carry_out(at, tell);
    }

    fn pass_deadlines(&mut self, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        while let (time, slot) = self.deadlines.earliest()
            && time <= at
        {
            let Some(task) = self.tasks.get_mut(slot as usize) else { return };
            match task.next_deadline() {
                Some(deadline) if deadline <= at => {
                    if task.miss() {
                        self.report(at, &policy::Event::Deadline { slot });
                    }
                }
                later => self.deadlines.set(slot, later.unwrap_or(Time::MAX)),
            }
            self.carry_out(at, tell);
        }
    }

    fn release_all(&mut self, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        while let (time, slot) = self.releases.earliest()
            && time <= at
        {
            let releases = self.tasks.get_mut(slot as usize).and_then(|task| task.releases.as_mut());
            if let Some(job) = releases.and_then(|releases| releases.next_if(|_| true)) {
                let (number, arrival) = (job.number, job.arrival);
                let released = Released { number, arrival, release: job.release, origin: arrival, missed: false };
                self.release(slot, released, at, tell);
            }
            self.arm_release(slot);
        }
        self.carry_out(at, tell);
        while let Some(slot) = self.due.pop() {
            while let Some(due) = self.take_due(slot) {
                self.release_successor(slot, due, at, tell);
            }
            self.carry_out(at, tell);
        }
    }

    fn take_due(&mut self, slot: u32) -> Option<ReadyInstance> {
        self.tasks.get_mut(slot as usize)?.link.as_mut()?.take_due()
    }

    /// Arms the next release of a task whose jobs come from outside.
    fn arm_release(&mut self, slot: u32) {
        let releases = self.tasks.get(slot as usize).and_then(|task| task.releases.as_ref());
        let next = releases.and_then(Releases::peek).map_or(Time::MAX, |job| job.release);
        self.releases.set(slot, next);
    }

    fn release(&mut self, slot: u32, mut job: Released, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        let Some(task) = self.tasks.get_mut(slot as usize) else { return };
        let deadline = job.arrival.saturating_add(task.deadline);
        job.missed = deadline <= at;
        if self.wants_deadlines && !job.missed && self.deadlines.is_never(slot) {
            self.deadlines.set(slot, deadline);
        }
        let parent = task.follows.then_some(Parent { hop: task.hop, origin: job.origin });
        let key = task.key(job.number);
        tell(at, Fact::Event(Event::Release { job: key, arrival: job.arrival, parent }));
        if task.head.is_none() {
            self.make_head(slot, job, at);
        } else if task.pending.len() < BACKLOG as usize {
            task.pending_missed += usize::from(job.missed);
            task.pending.push_back(job);
        } else {
            tell(at, Fact::Event(Event::Cancel { job: key, cause: CancelCause::Rejected }));
            self.notify_successors(slot, &job, false);
        }
    }

    fn release_successor(&mut self, slot: u32, due: ReadyInstance, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        let job = Released { number: due.number, arrival: at, release: at, origin: due.origin.min(at), missed: false };
        if !due.shed {
            return self.release(slot, job, at, tell);
        }
        let Some(task) = self.tasks.get(slot as usize) else { return };
        let (key, parent) = (task.key(job.number), Some(Parent { hop: task.hop, origin: job.origin }));
        tell(at, Fact::Event(Event::Release { job: key, arrival: at, parent }));
        let cause = if due.given_up { CancelCause::Rejected } else { CancelCause::Shed };
        tell(at, Fact::Event(Event::Cancel { job: key, cause }));
        self.notify_successors(slot, &job, false);
    }

    /// Hands a job to the machine.
    fn make_head(&mut self, slot: u32, job: Released, at: Time) {
        let Some(task) = self.tasks.get_mut(slot as usize) else { return };
        task.head = Some(job);
        let deadline = job.arrival.saturating_add(task.deadline);
        let ready = policy::Job { slot, release: job.release, arrival: job.arrival, deadline };
        self.report(at, &policy::Event::Ready(ready));
    }

    /// After the job of a slot has gone: the next one moves up, and successors learn of it.
    fn job_ended(&mut self, slot: u32, job: &Released, completed: bool, at: Time) {
        let Some(task) = self.tasks.get_mut(slot as usize) else { return };
        if let Some(next) = task.pending.pop_front() {
            task.pending_missed = task.pending_missed.saturating_sub(1);
            self.make_head(slot, next, at);
        }
        self.notify_successors(slot, job, completed);
    }

    fn notify_successors(&mut self, slot: u32, job: &Released, completed: bool) {
        let count = self.tasks.get(slot as usize).map_or(0, |task| task.successors.len());
        for at in 0..count {
            let successor = self.tasks.get(slot as usize).and_then(|task| task.successors.get(at)).copied();
            let Some(successor) = successor else { continue };
            if let Some(link) = self.tasks.get_mut(successor as usize).and_then(|task| task.link.as_mut()) {
                link.ended(job.number, completed, job.origin);
                self.due.push(successor);
            }
        }
    }

    fn switch_modes(&mut self, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        while self.modes.pop_if(|mode| *mode <= at).is_some() {
            self.mode += 1;
            tell(at, Fact::Event(Event::ModeChange { mode: self.mode }));
            self.report(at, &policy::Event::Mode { plan: self.mode as usize });
            self.carry_out(at, tell);
        }
    }

    /// Carries the decisions out. True when a slot became empty, so that there is more to decide.
    fn carry_out(&mut self, at: Time, tell: &mut impl FnMut(Time, Fact)) -> bool {
        let (mut emptied, mut next) = (false, 0);
        // A job that moves up may be dropped at once, which appends.
        while let Some(decision) = self.decisions.get(next).copied() {
            next += 1;
            match decision {
                Decision::Run { slot, cpu, .. } => {
                    if let Some(runs) = self.runs.get_mut(cpu as usize) {
                        *runs = Some(slot);
                    }
                }
                Decision::Preempt { slot, .. } => self.stop(slot),
                Decision::Cancel { slot } => {
                    self.cancel(slot, CancelCause::Omitted, at, tell);
                    emptied = true;
                }
                Decision::Drop { slot, .. } => {
                    self.cancel(slot, CancelCause::Late, at, tell);
                    emptied = true;
                }
            }
        }
        self.decisions.clear();
        emptied
    }

    fn cancel(&mut self, slot: u32, cause: CancelCause, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        self.stop(slot);
        let Some(task) = self.tasks.get_mut(slot as usize) else { return };
        let Some(job) = task.head.take() else { return };
        tell(at, Fact::Event(Event::Cancel { job: task.key(job.number), cause }));
        if self.dropped.last() != Some(&slot) {
            self.dropped.push(slot);
        }
        self.job_ended(slot, &job, false, at);
    }

    fn report_servers(&mut self, at: Time, tell: &mut impl FnMut(Time, Fact)) {
        let components = &self.components;
        self.machine.take_events(|event| {
            let Some(component) = components.get(event.component.index()).copied() else { return };
            let server = component.0;
            let event = match event.change {
                ServerChange::Replenished(budget) => Event::Replenish { server, budget },
                ServerChange::Exhausted => Event::Exhaust { server },
                ServerChange::Idle => Event::ServerIdle { server },
                ServerChange::Paid { since, amount, idle } => Event::Charge { server, since, amount, idle },
                ServerChange::Switched { rule, period, budget } => {
                    return tell(at, Fact::Switched { component, rule, period, budget });
                }
            };
            tell(at, Fact::Event(event));
        });
    }
}

/// The tasks of a part, by slot.
fn core_tasks<'a>(system: &System, members: &[(TaskId, &'a Task)], seed: u64, end: Time) -> Vec<CoreTask<'a>> {
    let is_foreign = |task: &Task| system.threads_of(task).is_some();
    let slot_of = |id: &TaskId| members.iter().position(|(member, _)| member == id);
    let of = |(id, task): &(TaskId, &'a Task)| {
        let before = task.after.len();
        let arrivals = || Arrivals::new(task, Draw::new(seed, &task.name));
        CoreTask {
            id: *id,
            deadline: task.deadline,
            releases: (before == 0 && !is_foreign(task)).then(|| Releases::new(arrivals(), end)),
            next: 0,
            head: None,
            pending: VecDeque::with_capacity(BACKLOG as usize),
            pending_missed: 0,
            follows: before > 0,
            link: (before > 0).then(|| Link::bounded(before as u32, BACKLOG as usize)),
            hop: 0,
            successors: Vec::new(),
        }
    };
    let mut tasks: Vec<CoreTask<'a>> = members.iter().map(of).collect();
    for (slot, (_, task)) in (0..).zip(members) {
        for before in task.after.iter().filter_map(slot_of) {
            tasks[before].successors.push(slot);
        }
    }
    // Chains have no cycles, so as many rounds as there are tasks settle the longest way to each.
    for _ in 0..tasks.len() {
        for before in 0..tasks.len() {
            let hop = tasks[before].hop + 1;
            for successor in tasks[before].successors.clone() {
                let after = &mut tasks[successor as usize];
                after.hop = after.hop.max(hop);
            }
        }
    }
    tasks
}
