//! The queues of one CPU whose levels have threads of their own: the kernel arbitrates between
//! levels. Within a level a job that has started runs to completion [KOKYU II-B], or, where the
//! level is preemptive, until another one goes first ([nests]).
//!
//! It orders jobs exactly as a [`Dispatcher`](crate::Dispatcher) does. A dispatcher assigns the
//! CPUs. Here the thread of a seat asks for a job when it really has the CPU: [`Levels::take`]. So
//! jobs are cancelled at that moment, and not at their arrival. The seats of levels that are not
//! preemptive are these levels.
//!
//! A level that demotes late jobs sends them to one more queue, below all levels. A started job of
//! a level that is not preemptive keeps its thread to its end. So it keeps its level through
//! demotion and through a change of plan, too.

use takt_model::plan::Order;
use takt_model::{CpuSet, Late, NodeId, Plan, System, TaskId, Time};

use crate::error::PolicyError;
use crate::plans::{Plans, plans};
use crate::rank::{Entry, Phase, Rank};
use crate::ready::ReadyQueue;
use crate::slot::{Job, Slot};

use nests::Nests;
pub use nests::nesting;

mod nests;

/// The result of queueing the next job of an operation.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// It waits in this level's queue.
    Level(u32),
    /// Its deadline has passed already, and its level drops late jobs: the slot is empty.
    Dropped,
}

/// The next action of a level's thread.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextAction {
    /// Run the job of this slot to its end, then say so by [`Levels::complete`].
    Run {
        /// The slot.
        slot: u32,
    },
    /// Omit this job (`cancel`), whose slot is empty now, and ask again.
    Cancel {
        /// The slot.
        slot: u32,
    },
}

/// The effect of a passed deadline, or of another plan, on a job.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineEffect {
    /// Nothing.
    Continues,
    /// It waits in this level's queue from now on.
    Moved(u32),
    /// It is dropped, and its slot is empty. The caller stops a running job and reports no
    /// completion of it.
    Dropped {
        /// Whether it had started.
        running: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Empty,
    Waiting { queue: u32 },
    Running,
}

/// A slot whose job waits in the queue of a level, or runs. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct LevelSlot {
    /// The job and its rules.
    of: Slot,
    state: State,
}

const _: () = assert!(size_of::<LevelSlot>() == 64);

impl LevelSlot {
    /// A slot for tests with only the values that break ties.
    #[cfg(test)]
    pub(crate) fn tied(importance: u32, arrival: Time) -> LevelSlot {
        let mut of = Slot::new(takt_model::Span::ZERO, false);
        (of.arrival, of.importance) = (arrival, importance);
        LevelSlot { of, state: State::Empty }
    }

    #[inline]
    fn is_taken(&self) -> bool {
        self.state != State::Empty
    }

    /// Whether its job's deadline has an effect, under the plan in force, and was not reported yet.
    fn is_watched(&self) -> bool {
        self.is_taken() && self.of.late != Late::Continue && !self.of.passed
    }

    /// Its job waits; where it belongs.
    #[inline(always)]
    fn wait(&mut self, demoted: u32) -> Place {
        let queue = if self.of.demoted { demoted } else { self.of.level };
        self.state = State::Waiting { queue };
        Place { queue, key: self.of.key(|| self.of.wcet), in_order: self.of.order == Order::Fifo }
    }
}

/// The place of a waiting job.
#[derive(Clone, Copy)]
struct Place {
    queue: u32,
    key: u64,
    /// Whether it most likely comes after all that wait there.
    in_order: bool,
}

/// The importance of a job among the jobs of its level that have not started, in half the bytes of
/// a [`Rank`]. Four of them fill a cache line, and one machine word decides. The slot has the
/// values that break ties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) key: u64,
    pub(crate) slot: u32,
}

impl Entry for QueueEntry {
    type Key = u64;
    type Ties = [LevelSlot];
    const FILLER: QueueEntry = QueueEntry { key: u64::MAX, slot: u32::MAX };

    #[inline(always)]
    fn key(&self) -> u64 {
        self.key
    }

    #[cold]
    fn breaks_tie(&self, other: &QueueEntry, slots: &[LevelSlot]) -> bool {
        // No job any more: behind all whose key is the same.
        let gone = (u32::MAX, Time::MAX);
        let tie = |slot: u32| {
            (slots.get(slot as usize).map_or(gone, |at| (u32::MAX - at.of.importance, at.of.arrival)), slot)
        };
        tie(self.slot) < tie(other.slot)
    }

    #[inline]
    fn slot(&self) -> u32 {
        self.slot
    }

    fn gone(self) -> QueueEntry {
        QueueEntry { slot: u32::MAX, ..self }
    }
}

/// The jobs of one CPU's operations, by level. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Levels {
    slots: Vec<LevelSlot>,
    /// One per level of the plan with the most.
    queues: Vec<ReadyQueue<QueueEntry>>,
    /// Below them all: jobs that were demoted, by the level that they had first.
    last: ReadyQueue<Rank>,
    plans: Plans,
    /// Whether a slot's level drops or demotes late jobs.
    late_rules: bool,
    /// Nothing where all jobs run to completion.
    nests: Option<Box<Nests>>,
}

impl Levels {
    /// The queues of `cpu` for the tasks of `node` that stand in no component and are bound to it,
    /// under the node's strategy and modes. Slots count these tasks in file order, levels and plans
    /// are numbered as the node's.
    ///
    /// # Errors
    /// A strategy that does not fit the tasks, or a task that is bound to no CPU, or to several.
    pub fn new(system: &System, node: NodeId, cpu: u32) -> Result<Levels, PolicyError> {
        Levels::with_plans(system, node, cpu, plans(system, node)?)
    }

    /// The same under these plans, the first of which holds at first: for modes in which tasks have
    /// other periods than in the System.
    ///
    /// # Errors
    /// A task that is bound to no CPU, or to several.
    pub fn with_plans(system: &System, node: NodeId, cpu: u32, plans: Vec<Plan>) -> Result<Levels, PolicyError> {
        let spec = system.nodes.get(node.index()).ok_or(PolicyError::NoNode { node: node.0 })?;
        let all = CpuSet::first(spec.cpus);
        let (mut slots, mut tasks) = (Vec::new(), Vec::new());
        for (id, task) in system.tasks_of(node).filter(|(_, task)| task.component.is_none()) {
            let allowed = task.cpus.unwrap_or(all).intersection(&all);
            if allowed.len() != 1 {
                return Err(PolicyError::NotBound { task: task.name.clone(), node: spec.name.clone() });
            }
            if allowed.lowest() != Some(cpu) {
                continue;
            }
            tasks.push(id);
            slots.push(LevelSlot { of: Slot::of_task(system, task), state: State::Empty });
        }
        let most = plans.iter().map(|plan| plan.levels.len()).max().unwrap_or(0);
        let is_fifo =
            |plan: &Plan, level: usize| plan.levels.get(level).is_some_and(|level| level.order == Order::Fifo);
        let queue = |level| match plans.iter().any(|plan| is_fifo(plan, level)) {
            true => ReadyQueue::with_row(slots.len()),
            false => ReadyQueue::new(slots.len()),
        };
        let (queues, last) = ((0..most).map(queue).collect(), ReadyQueue::new(slots.len()));
        let nests = Nests::new(system, node, &plans, most, slots.len()).map(Box::new);
        let plans = Plans::new(system, plans, tasks.into_iter());
        let mut levels = Levels { slots, queues, last, plans, late_rules: false, nests };
        levels.adopt(0);
        Ok(levels)
    }

    /// How many operations it queues jobs of.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Levels of the plan with the most, and one for demoted jobs: what a thread can be needed for.
    #[must_use]
    pub fn level_count(&self) -> usize {
        self.queues.len() + 1
    }

    /// The task of a slot.
    #[must_use]
    pub fn task(&self, slot: u32) -> Option<TaskId> {
        self.plans.task(slot)
    }

    /// The level of a slot's job, or of its next one: the plan's in force, or that of demoted jobs.
    /// A thread that runs a job of another level than its own, for the plan has changed meanwhile,
    /// should go by this one.
    #[must_use]
    pub fn level(&self, slot: u32) -> Option<u32> {
        let at = self.slots.get(slot as usize)?;
        Some(if at.of.demoted && at.is_taken() { self.demoted() } else { at.of.level })
    }

    /// Which plan is in force: 0 is that of the node's strategy, k that of its k-th mode in order of time.
    #[must_use]
    pub fn plan(&self) -> usize {
        self.plans.current()
    }

    /// The first deadline that [`Levels::deadline`] must be called for, under the plan in force.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let watched = self.late_rules.then(|| self.slots.iter().filter(|at| at.is_watched()));
        watched?.map(|at| at.of.deadline).min()
    }

    /// Whether a job waits for this seat.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self, seat: u32) -> bool {
        match &self.nests {
            None => self.waits_at(seat),
            Some(nests) => self.calls(nests.level(seat)) == Some(seat),
        }
    }

    /// Whether a job waits in this level's queue.
    #[inline]
    fn waits_at(&self, level: u32) -> bool {
        match self.queues.get(level as usize) {
            Some(queue) => !queue.is_empty(),
            None => level == self.demoted() && !self.last.is_empty(),
        }
    }

    /// Whether a slot holds a job.
    #[must_use]
    pub fn is_taken(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(LevelSlot::is_taken)
    }

    /// The job of a slot, if it holds one.
    #[inline]
    #[must_use]
    pub fn job(&self, slot: u32) -> Option<Job> {
        let Slot { release, arrival, deadline, .. } = self.slots.get(slot as usize).filter(|at| at.is_taken())?.of;
        Some(Job { slot, release, arrival, deadline })
    }

    /// A job may run. Its slot must hold no other: jobs of one operation go one after the other.
    #[inline]
    pub fn ready(&mut self, now: Time, job: Job) -> Queued {
        let demoted = self.demoted();
        let Some(at) = self.slots.get_mut(job.slot as usize).filter(|at| !at.is_taken()) else {
            debug_assert!(false, "slot {} is not there, or holds a job", job.slot);
            return Queued::Dropped;
        };
        if !at.of.accept(&job, now) {
            return Queued::Dropped;
        }
        let place = at.wait(demoted);
        self.put(job.slot, place);
        Queued::Level(place.queue)
    }

    /// The action at `now` for the thread of `seat`, which has the CPU and nothing to do. `None`
    /// without a waiting job.
    #[inline]
    pub fn take(&mut self, seat: u32, now: Time) -> Option<NextAction> {
        if self.nests.is_some() {
            return self.take_nested(seat, now);
        }
        self.take_first(seat, now)
    }

    // Not inlined: the usual way, without nesting, stays short.
    #[inline(never)]
    fn take_nested(&mut self, seat: u32, now: Time) -> Option<NextAction> {
        let level = self.nests.as_ref()?.level(seat);
        if self.calls(level) != Some(seat) {
            return None;
        }
        let taken = self.take_first(level, now);
        if let (Some(NextAction::Run { slot }), Some(nests)) = (taken, &mut self.nests) {
            nests.start(level, slot);
        }
        taken
    }

    #[inline(always)]
    fn take_first(&mut self, level: u32, now: Time) -> Option<NextAction> {
        let slot = match self.queues.get_mut(level as usize) {
            Some(queue) => queue.pop_before_push(&self.slots)?.slot(),
            None => self.take_demoted(level)?,
        };
        let at = self.slots.get_mut(slot as usize)?;
        if at.of.is_hopeless(now) {
            at.state = State::Empty;
            return Some(NextAction::Cancel { slot });
        }
        at.state = State::Running;
        Some(NextAction::Run { slot })
    }

    /// The running job of a slot came to its end.
    #[inline]
    pub fn complete(&mut self, slot: u32) {
        self.leave_nest(slot);
        match self.slots.get_mut(slot as usize) {
            Some(at) if at.state == State::Running => at.state = State::Empty,
            _ => debug_assert!(false, "slot {slot} completes without running"),
        }
    }

    /// A job that has started is over.
    #[inline]
    fn leave_nest(&mut self, slot: u32) {
        if self.nests.is_some() {
            self.leave_its_nest(slot);
        }
    }

    #[inline(never)]
    fn leave_its_nest(&mut self, slot: u32) {
        if let Some(level) = self.level(slot)
            && let Some(nests) = &mut self.nests
        {
            nests.leave(level, slot);
        }
    }

    /// Applies the late rule to the job in a slot if its deadline has passed by `now`, once for
    /// each job.
    pub fn deadline(&mut self, slot: u32, now: Time) -> DeadlineEffect {
        let demoted = self.demoted();
        let is_due = |at: &&mut LevelSlot| at.is_watched() && at.of.deadline <= now;
        let Some(at) = self.slots.get_mut(slot as usize).filter(is_due) else { return DeadlineEffect::Continues };
        at.of.passed = true;
        let (state, level) = (at.state, at.of.level);
        match (at.of.expire(state == State::Running), state) {
            (Late::Continue, _) | (_, State::Empty) => DeadlineEffect::Continues,
            (Late::Drop, _) => {
                match state {
                    State::Waiting { queue } => self.unqueue(queue, slot),
                    _ => self.leave_nest(slot),
                }
                if let Some(at) = self.slots.get_mut(slot as usize) {
                    at.state = State::Empty;
                }
                DeadlineEffect::Dropped { running: state == State::Running }
            }
            (Late::Demote, State::Waiting { queue }) => {
                self.unqueue(queue, slot);
                self.enqueue(slot);
                DeadlineEffect::Moved(demoted)
            }
            (Late::Demote, State::Running) => {
                self.demote_started(slot, level);
                DeadlineEffect::Moved(demoted)
            }
        }
    }

    /// Switches to another plan from `now` on. The new plan orders waiting jobs, and late jobs are
    /// treated by its levels' rules. Reports to `each` every job that is dropped or whose queue
    /// changes. Takes O(n log n) steps for n slots and allocates nothing.
    ///
    /// Returns whether there is such a plan; otherwise nothing changes.
    pub fn switch(&mut self, plan: usize, now: Time, mut each: impl FnMut(u32, DeadlineEffect)) -> bool {
        if !self.plans.has(plan) {
            return false;
        }
        for queue in &mut self.queues {
            queue.drain(|_| {});
        }
        self.last.drain(|_| {});
        // Only now: it changes by what they were ordered.
        self.adopt(plan);
        for slot in 0..self.slots.len() as u32 {
            let Some(at) = self.slots.get_mut(slot as usize).filter(|at| at.is_taken()) else { continue };
            let (before, started) = (at.state, at.state == State::Running);
            if !at.of.keep_in_switch(started, now) {
                at.state = State::Empty;
                each(slot, DeadlineEffect::Dropped { running: started });
                continue;
            }
            if let State::Waiting { queue: from } = before {
                let to = self.enqueue(slot);
                if to != from {
                    each(slot, DeadlineEffect::Moved(to));
                }
            }
        }
        self.restack();
        true
    }

    /// The queue of demoted jobs.
    #[inline]
    fn demoted(&self) -> u32 {
        self.queues.len() as u32
    }

    #[cold]
    fn take_demoted(&mut self, level: u32) -> Option<u32> {
        let rank = if level == self.demoted() { self.last.pop(&()) } else { None };
        rank.map(|rank| rank.slot())
    }

    fn unqueue(&mut self, queue: u32, slot: u32) {
        match self.queues.get_mut(queue as usize) {
            Some(queue) => queue.remove(slot, &self.slots),
            None => self.last.remove(slot, &()),
        };
    }

    /// Puts the job of a slot into its queue. Returns the queue.
    fn enqueue(&mut self, slot: u32) -> u32 {
        let demoted = self.demoted();
        let Some(at) = self.slots.get_mut(slot as usize) else { return demoted };
        let place = at.wait(demoted);
        self.put(slot, place);
        place.queue
    }

    #[inline(always)]
    fn put(&mut self, slot: u32, Place { queue, key, in_order }: Place) {
        match self.queues.get_mut(queue as usize) {
            Some(queue) if in_order => queue.append(QueueEntry { key, slot }, &self.slots),
            Some(queue) => queue.push(QueueEntry { key, slot }, &self.slots),
            None => self.put_demoted(slot, key),
        }
    }

    /// Among those of all levels that were demoted.
    #[cold]
    fn put_demoted(&mut self, slot: u32, key: u64) {
        let Some(at) = self.slots.get(slot as usize) else { return };
        self.last.push(at.of.rank(0, Phase::Fresh, key, slot), &());
    }

    /// Puts a plan in force.
    fn adopt(&mut self, plan: usize) {
        self.plans.adopt(plan, self.slots.iter_mut().map(|at| &mut at.of));
        self.late_rules = self.slots.iter().any(|at| at.of.late != Late::Continue);
    }
}
