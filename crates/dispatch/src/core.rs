//! The jobs of one CPU, decided under that CPU's lock. Pure: the caller passes the time, so tests
//! use virtual time.
//!
//! [`Levels`] orders the jobs that may start. This module assigns job numbers, bounds backlogs,
//! follows chains across CPUs, watches deadlines, counts, and reports all facts. Jobs of one
//! operation run one after the other. After construction nothing allocates.
//!
//! Invariant, whenever the lock is free: for each operation, released = completed + cancelled +
//! rejected + dropped + failed + waiting + current. Debug builds check it in each [`Core::settle`].

use std::collections::VecDeque;

use takt_log::CancelCause;
use takt_model::{Arrival, NodeId, Span, System, TaskId, Time};
use takt_policy::{Job, Levels, Link, Passed, PolicyError, Queued, Taken};

use super::error::PushError;
use super::fact::{Fact, FactSink, TimedFact};
use crate::bits::LevelSet;

mod chains;

/// The most jobs by which one of several predecessors may be ahead of another, besides the jobs in
/// their backlogs. Beyond that, the follower's jobs are rejected.
pub(super) const INSTANCES_MAX: usize = 64;

/// The place of an operation: its CPU and its slot there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) slot: u32,
}

/// One job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instance {
    number: u64,
    /// Its nominal arrival.
    arrival: Time,
    /// When it was released.
    release: Time,
    deadline: Time,
    /// The earliest nominal arrival of the source jobs of its chain; its own arrival if it follows
    /// none.
    origin: Time,
    /// Whether its level knows that the deadline has passed.
    passed: bool,
}

/// A job that a level's thread must run to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Upcall {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) arrival: Time,
    pub(crate) release: Time,
    pub(crate) deadline: Time,
}

/// The result of an upcall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The handler returned.
    Completed,
    /// The handler panicked.
    Failed,
}

/// An ended job with followers on other CPUs. Call [`Core::follow`] for each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) completed: bool,
    pub(crate) origin: Time,
}

/// Why a job was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejected {
    /// The backlog is full.
    Full,
    /// The least distance from the arrival before is not over until this time.
    TooEarly(Time),
    /// There is no such operation, or a timer or other jobs release it.
    NotYours,
    /// The operation takes no part in the current mode.
    Absent,
}

impl Rejected {
    /// The error for the program that pushed at `now`.
    pub(crate) fn into_error(self, now: Time) -> PushError {
        match self {
            Rejected::Full => PushError::Full,
            Rejected::TooEarly(earliest) => PushError::TooEarly { wait: earliest.saturating_since(now) },
            Rejected::NotYours => PushError::NotPushed,
            Rejected::Absent => PushError::Absent,
        }
    }
}

/// The outcomes of an operation's jobs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Jobs released: completed + cancelled + rejected + unfinished.
    pub released: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Completed jobs that ended after their deadline.
    pub late: u64,
    /// Jobs omitted, or shed with a predecessor.
    pub cancelled: u64,
    /// Jobs not queued, because too many jobs of the operation waited or ran, or waited for a
    /// predecessor.
    pub rejected: u64,
    /// Jobs dropped at their deadline; counted as unfinished.
    pub dropped: u64,
    /// Jobs whose code panicked, or that were told to stop at an overrun; counted as unfinished.
    pub failed: u64,
    /// Deadlines not met so far: `late`, `cancelled`, `rejected`, `dropped` and `failed` together,
    /// and the jobs that wait or run past their deadlines. In terms of
    /// docs/reference/statistics.md: missed, cancelled and rejected.
    pub unmet: u64,
    /// Jobs that have executed for longer than the wcet, if overruns are watched. Their end does
    /// not matter.
    pub overran: u64,
}

impl Counts {
    /// Jobs that wait or run, and jobs dropped or failed.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.released.saturating_sub(self.completed + self.cancelled + self.rejected)
    }
}

/// The cause of an operation's releases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// A timer.
    Timer,
    /// The program.
    Push,
    /// The ends of the predecessors' jobs.
    Jobs,
}

/// The data that each job of an operation touches: two cache lines. With many operations in turn,
/// cache misses are the cost.
#[repr(align(64))]
struct Operation {
    /// The job in its slot of `levels`.
    current: Option<Instance>,
    deadline: Span,
    /// The least distance of pushed jobs, by the current plan.
    distance: Span,
    last_arrival: Option<Time>,
    /// The number of the next job, and so the number of jobs so far.
    next: u64,
    completed: u64,
    late: u64,
    /// Jobs that wait for the slot.
    waits: u32,
    backlog_max: u32,
    after: After,
    /// Whether it takes part in the current plan.
    takes_part: bool,
    /// Whether it has followers on this CPU, and on other CPUs.
    followed: bool,
    followed_elsewhere: bool,
    rest: Box<Rest>,
}

/// The data that few jobs of an operation touch.
struct Rest {
    /// The least distance and the participation, by plan.
    distances: Vec<(Span, bool)>,
    waiting: VecDeque<Instance>,
    /// The chain state of an operation that comes after others.
    link: Option<Link>,
    /// Its followers on this CPU, by slot.
    followers: Vec<u32>,
    cancelled: u64,
    rejected: u64,
    dropped: u64,
    failed: u64,
}

/// The least distance under a plan, and whether the operation takes part in the plan.
fn distance(distances: &[(Span, bool)], plan: usize) -> (Span, bool) {
    distances.get(plan).copied().unwrap_or((Span::ZERO, true))
}

impl Operation {
    /// The number of the arriving job.
    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn counts(&self, now: Time) -> Counts {
        let Rest { cancelled, rejected, dropped, failed, .. } = *self.rest;
        let Operation { next: released, completed, late, .. } = *self;
        let there = self.current.iter().chain(&self.rest.waiting);
        let overdue = there.filter(|job| job.deadline < now).count() as u64;
        let unmet = late + cancelled + rejected + dropped + failed + overdue;
        Counts { released, completed, late, cancelled, rejected, dropped, failed, unmet, overran: 0 }
    }
}

/// The state of one CPU. `T` receives all facts.
pub(crate) struct Core<T> {
    levels: Levels,
    operations: Vec<Operation>,
    /// Seats whose threads must ask for a job, since this was last taken.
    woken: LevelSet,
    /// Whether jobs of a level preempt each other. The next four fields serve only that case. They
    /// say whether a job was queued since this was last taken, and whether started jobs must be
    /// compared again. They also say when to compare in any case, and whether threads must change
    /// seats.
    nests: bool,
    queued: bool,
    touched: bool,
    next_comparison: Option<Time>,
    moved: bool,
    moves: Vec<(u32, u32)>,
    /// Ended jobs whose followers here are still to be handled.
    ended: VecDeque<Ended>,
    /// Slots whose link may have a job due.
    due: VecDeque<u32>,
    /// Ended jobs whose followers on other CPUs are still to be handled.
    remote: VecDeque<Ended>,
    remote_max: usize,
    /// Slots that are free for the next job of their backlog.
    freed: Vec<u32>,
    /// Empty slots whose backlog may hold late jobs after a switch of plans. Taking a job or
    /// settling handles these first.
    overdue: Vec<u32>,
    /// Slots whose running job was dropped and must stop.
    stopped: Vec<(u32, u64)>,
    /// The number of jobs that wait or run, since when there are any, and the busy time before
    /// that.
    there: u32,
    busy_since: Time,
    busy: Span,
    /// The plan under which jobs can be in danger, and the time from arrival to danger, by slot.
    watched: Option<usize>,
    dangers: Vec<Option<Span>>,
    /// Whether rates differ between plans. If so, the switches that the timer has not handled yet,
    /// oldest first.
    varies: bool,
    switches: VecDeque<(Time, usize)>,
    facts: T,
}

/// The most switches kept for a late timer. Beyond that, the newest switch replaces the last.
/// Arrivals until then follow the plan before.
pub(super) const SWITCHES_MAX: usize = 128;

/// The most levels.
pub(crate) const LEVELS_MAX: usize = LevelSet::MAX;

impl<T: FactSink> Core<T> {
    /// The operations of `cpu` under these plans. For a task, `distances` gives the least distance
    /// and the participation by plan, `followers` the places of its followers, and `backlog` the
    /// most jobs at once.
    pub(crate) fn new(
        (system, node, cpu): (&System, NodeId, u32),
        plans: Vec<takt_model::Plan>,
        distances: impl Fn(TaskId) -> Vec<(Span, bool)>,
        followers: impl Fn(TaskId) -> Vec<Place>,
        backlog: impl Fn(TaskId) -> u32,
        facts: T,
    ) -> Result<Self, PolicyError> {
        let levels = Levels::with_plans(system, node, cpu, plans)?;
        let slots = 0..levels.slot_count() as u32;
        let tasks = slots.filter_map(|slot| levels.task(slot));
        let backlogs = |after: &[TaskId]| after.iter().map(|before| backlog(*before) as usize).max().unwrap_or(0);
        let operations: Vec<Operation> = tasks
            .filter_map(|id| Some((id, system.tasks.get(id.index())?)))
            .map(|(id, task)| {
                let followers = followers(id);
                let sporadic = task.arrival == Arrival::Sporadic;
                let backlog_max = backlog(id).max(1);
                let distances = if sporadic { distances(id) } else { Vec::new() };
                let own: Vec<u32> = followers.iter().filter(|place| place.cpu == cpu).map(|place| place.slot).collect();
                let (least, takes_part) = distance(&distances, levels.plan());
                let several = task.after.len() as u32;
                let ahead = backlogs(&task.after).saturating_add(INSTANCES_MAX);
                Operation {
                    current: None,
                    deadline: task.deadline,
                    distance: least,
                    last_arrival: None,
                    next: 0,
                    completed: 0,
                    late: 0,
                    waits: 0,
                    backlog_max,
                    after: match several {
                        0 if sporadic => After::Push,
                        0 => After::Timer,
                        _ => After::Jobs,
                    },
                    takes_part,
                    followed: !own.is_empty(),
                    followed_elsewhere: followers.iter().any(|place| place.cpu != cpu),
                    rest: Box::new(Rest {
                        distances,
                        waiting: VecDeque::with_capacity(backlog_max as usize),
                        link: (several > 0).then(|| Link::bounded(several, ahead)),
                        followers: own,
                        cancelled: 0,
                        rejected: 0,
                        dropped: 0,
                        failed: 0,
                    }),
                }
            })
            .collect();
        let count = operations.len();
        // A pause or a switch of plans may drop all waiting jobs within one hold of the lock.
        let jobs: usize = operations.iter().map(|operation| operation.backlog_max as usize).sum();
        let nests = levels.nests();
        Ok(Core {
            levels,
            operations,
            woken: LevelSet::default(),
            nests,
            queued: false,
            touched: false,
            next_comparison: None,
            moved: false,
            moves: Vec::with_capacity(count),
            ended: VecDeque::with_capacity(4 * count + INSTANCES_MAX + jobs),
            due: VecDeque::with_capacity(count + 1),
            remote: VecDeque::with_capacity(4 * count + INSTANCES_MAX + jobs),
            remote_max: count + INSTANCES_MAX / 2,
            freed: Vec::with_capacity(count + 1),
            overdue: Vec::with_capacity(count + 1),
            stopped: Vec::with_capacity(count + 1),
            there: 0,
            busy_since: Time::ZERO,
            busy: Span::ZERO,
            watched: None,
            varies: false,
            switches: VecDeque::new(),
            dangers: Vec::new(),
            facts,
        })
    }

    /// Watches for danger: under this plan, a job is in danger this long after its arrival, by
    /// slot.
    pub(crate) fn watch(&mut self, plan: usize, dangers: Vec<Option<Span>>) {
        (self.watched, self.dangers) = (Some(plan), dangers);
    }

    /// The earliest time of danger of a present job, if the watched plan is the current one. It may
    /// have passed.
    #[inline]
    pub(crate) fn next_danger(&self) -> Option<Time> {
        if self.watched == Some(self.plan()) { self.first_danger() } else { None }
    }

    /// As [`Core::next_danger`], under any current plan.
    pub(crate) fn first_danger(&self) -> Option<Time> {
        let dangers = self.operations.iter().zip(&self.dangers);
        dangers.filter_map(|(operation, danger)| Some(operation.current?.arrival.saturating_add((*danger)?))).min()
    }

    /// How long there have been waiting or running jobs.
    pub(crate) fn busy(&self, now: Time) -> Span {
        let present = if self.there > 0 { now.saturating_since(self.busy_since) } else { Span::ZERO };
        self.busy.saturating_add(present)
    }

    fn gone(&mut self, now: Time) {
        self.there = self.there.saturating_sub(1);
        if self.there == 0 {
            self.busy = self.busy.saturating_add(now.saturating_since(self.busy_since));
        }
    }

    /// Seats of all levels, including those of demoted jobs.
    pub(crate) fn seat_count(&self) -> usize {
        self.levels.seat_count()
    }

    /// The task of a slot.
    pub(crate) fn task(&self, slot: u32) -> Option<TaskId> {
        self.levels.task(slot)
    }

    /// The seat of a slot's started job.
    pub(crate) fn seat(&self, slot: u32) -> Option<u32> {
        self.levels.seat(slot)
    }

    /// Whether jobs of a level preempt each other.
    pub(crate) fn nests(&self) -> bool {
        self.nests
    }

    /// The number of the current job in a slot, if there is one.
    pub(crate) fn current(&self, slot: u32) -> Option<u64> {
        self.operations.get(slot as usize)?.current.map(|job| job.number)
    }

    /// Passes time to `now`. Call it before every other event at `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        if self.nests {
            self.levels.advance(now);
            self.touched |= self.next_comparison.is_some_and(|at| at <= now);
        }
    }

    /// When started jobs must be compared even if nothing happens.
    #[inline]
    pub(crate) fn next_comparison(&self) -> Option<Time> {
        self.next_comparison
    }

    /// Compares started jobs if something happened since the last comparison. Call it before
    /// leaving the lock.
    #[inline]
    pub(crate) fn compare(&mut self, now: Time) {
        if self.touched {
            self.compare_all(now);
        }
    }

    #[inline(never)]
    fn compare_all(&mut self, now: Time) {
        self.touched = false;
        if let Some(seat) = self.levels.compare() {
            self.woken.insert(seat);
        }
        self.tell_moved(now, true);
        self.next_comparison = self.levels.next_comparison(now);
    }

    /// Reports changed seats. `alone` says whether the running job follows from that alone.
    fn tell_moved(&mut self, now: Time, alone: bool) {
        let mut moves = std::mem::take(&mut self.moves);
        moves.clear();
        self.levels.take_moved(|slot, seat| moves.push((slot, seat)));
        let next = if moves.is_empty() { 0 } else { self.first_waiting() };
        self.moved |= !moves.is_empty();
        for (left, (slot, seat)) in (0..moves.len()).rev().zip(moves.iter().copied()) {
            let number = self.current(slot).unwrap_or(0);
            let next = (alone && left == 0).then_some(next);
            self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Seat { seat, next } });
        }
        self.moves = moves;
    }

    /// Whether threads must change seats since the last call.
    #[inline]
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether a job was queued since the last call, possibly without waking a thread.
    #[inline]
    pub(crate) fn take_queued(&mut self) -> bool {
        std::mem::take(&mut self.queued)
    }

    /// A job waits at a level, so one of its threads must ask.
    #[inline]
    fn call(&mut self, level: u32) {
        if self.nests {
            self.call_nested(level);
        } else {
            self.woken.insert(level);
        }
    }

    fn call_nested(&mut self, level: u32) {
        (self.touched, self.queued) = (true, true);
        if let Some(seat) = self.levels.calls(level) {
            self.woken.insert(seat);
        }
    }

    /// If jobs nest, continues the running job of a slot as a demoted job.
    pub(crate) fn demote(&mut self, slot: u32) {
        self.levels.demote_running(slot);
        self.call_all();
    }

    /// Started jobs left levels that may not be the most important ones.
    #[cold]
    fn call_all(&mut self) {
        for level in 0..self.levels.level_count() as u32 {
            self.call_nested(level);
        }
    }

    /// The current plan.
    pub(crate) fn plan(&self) -> usize {
        self.levels.plan()
    }

    pub(crate) fn counts(&self, slot: u32, now: Time) -> Option<Counts> {
        self.operations.get(slot as usize).map(|operation| operation.counts(now))
    }

    /// Whether a job waits for a seat.
    pub(crate) fn is_waiting(&self, seat: u32) -> bool {
        self.levels.is_waiting(seat)
    }

    /// Seats whose threads must ask for a job, since the last call. A sleeping thread of each must
    /// be woken.
    pub(crate) fn take_woken(&mut self) -> LevelSet {
        std::mem::take(&mut self.woken)
    }

    /// How many operations there are.
    pub(crate) fn slot_count(&self) -> usize {
        self.operations.len()
    }

    /// The slot and number of a job dropped while it ran, which must stop.
    pub(crate) fn take_stopped(&mut self) -> Option<(u32, u64)> {
        self.stopped.pop()
    }

    /// Pushes a job for the program.
    pub(crate) fn push(&mut self, slot: u32, now: Time) -> Result<u64, Rejected> {
        let operation = self.operations.get(slot as usize);
        let operation = operation.filter(|operation| operation.after == After::Push).ok_or(Rejected::NotYours)?;
        if !operation.takes_part {
            return Err(Rejected::Absent);
        }
        let earliest = operation.last_arrival.map(|last| last.saturating_add(operation.distance));
        if let Some(earliest) = earliest.filter(|earliest| *earliest > now) {
            return Err(Rejected::TooEarly(earliest));
        }
        self.arrive(slot, now, now)
    }

    /// The oldest number of an operation's job that waits or runs.
    pub(crate) fn oldest(&self, slot: u32) -> u64 {
        let operation = self.operations.get(slot as usize);
        operation.map_or(0, |operation| {
            let first = operation.current.as_ref().or_else(|| operation.rest.waiting.front());
            first.map_or(operation.next, |job| job.number)
        })
    }

    /// Releases a job with this nominal arrival. Returns its number.
    pub(crate) fn arrive(&mut self, slot: u32, arrival: Time, now: Time) -> Result<u64, Rejected> {
        self.release(slot, arrival, arrival, now)
    }

    /// Whether overtaken arrivals are skipped. They are if only one job at a time may exist.
    pub(crate) fn skips(&self, slot: u32) -> bool {
        self.operations.get(slot as usize).is_some_and(|operation| operation.backlog_max == 1)
    }

    /// Records an arrival that is not queued, because its timer was so late that the next arrival
    /// is due.
    pub(crate) fn pass_over(&mut self, slot: u32, arrival: Time, now: Time) {
        self.reject(slot, arrival, arrival, now);
    }

    #[inline]
    fn release(&mut self, slot: u32, arrival: Time, origin: Time, now: Time) -> Result<u64, Rejected> {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return Err(Rejected::NotYours) };
        let there = operation.waits + u32::from(operation.current.is_some());
        if there >= operation.backlog_max {
            self.reject(slot, arrival, origin, now);
            return Err(Rejected::Full);
        }
        let number = operation.number();
        operation.last_arrival = Some(arrival);
        self.there += 1;
        if self.there == 1 {
            self.busy_since = now;
        }
        let deadline = arrival.saturating_add(operation.deadline);
        let job = Instance { number, arrival, release: now, deadline, origin, passed: false };
        self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Release { arrival, origin } });
        // Behind the waiting jobs, even if the current job has just ended.
        if there > 0 {
            operation.rest.waiting.push_back(job);
            operation.waits += 1;
        } else {
            operation.current = Some(job);
            self.queue(slot, now);
            self.fill(now);
        }
        Ok(number)
    }

    #[cold]
    fn reject(&mut self, slot: u32, arrival: Time, origin: Time, now: Time) {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        let number = operation.number();
        operation.rest.rejected += 1;
        self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Release { arrival, origin } });
        self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Cancel(CancelCause::Rejected) });
        self.follow_up(slot, number, false, origin);
    }

    /// Puts the current job of an operation into the queue of its level.
    #[inline]
    fn queue(&mut self, slot: u32, now: Time) {
        let Some(operation) = self.operations.get(slot as usize) else { return };
        let Some(Instance { arrival, release, deadline, .. }) = operation.current else { return };
        match self.levels.ready(now, Job { slot, release, arrival, deadline }) {
            Queued::Level(level) => self.call(level),
            Queued::Dropped => self.drop_job(slot, now),
        }
    }

    /// Queues the next job of each freed slot.
    #[inline]
    fn fill(&mut self, now: Time) {
        if !self.freed.is_empty() {
            self.fill_freed(now);
        }
    }

    fn fill_freed(&mut self, now: Time) {
        while let Some(slot) = self.freed.pop() {
            self.fill_slot(slot, now);
        }
    }

    /// Queues the first job of a backlog whose slot is free. If that job is late and dropped, the
    /// slot is free again.
    fn fill_slot(&mut self, slot: u32, now: Time) {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        if operation.current.is_none()
            && let Some(next) = operation.rest.waiting.pop_front()
        {
            operation.waits -= 1;
            operation.current = Some(next);
            self.queue(slot, now);
        }
    }

    /// Queues only one job of each freed slot. The rest of an entirely late backlog is left to
    /// [`Core::settle`].
    fn fill_once(&mut self, now: Time) {
        for left in (0..self.freed.len()).rev() {
            if let Some(slot) = self.freed.pop() {
                self.fill_slot(slot, now);
                // These slots were freed again.
                self.overdue.extend(self.freed.drain(left..));
            }
        }
    }

    /// Continues the work that [`Core::fill_once`] left, a few jobs at a time.
    #[cold]
    fn fill_overdue(&mut self, now: Time) {
        for _ in 0..INSTANCES_MAX {
            let Some(slot) = self.overdue.pop() else { return };
            self.fill_slot(slot, now);
            self.overdue.append(&mut self.freed);
        }
    }

    /// The job that a free thread of `seat` must run; `None` if no job waits there.
    // Inlined with its callees. Otherwise the returned upcall passes through memory, written in
    // parts and read as a whole, and the processor stalls on that.
    #[inline(always)]
    pub(crate) fn next(&mut self, seat: u32, now: Time) -> Option<Upcall> {
        let upcall = self.try_next(seat, now);
        if upcall.is_none() {
            self.idle(seat, now);
        }
        upcall
    }

    /// Records that a thread of `seat` has nothing to do.
    pub(crate) fn idle(&mut self, seat: u32, now: Time) {
        let next = self.first_waiting();
        self.facts.record(TimedFact { at: now, slot: 0, number: 0, fact: Fact::Idle { seat, next } });
    }

    /// The most important seat with a waiting job; [`LEVELS_MAX`] if there is none.
    fn first_waiting(&self) -> u32 {
        let mut levels = 0..self.levels.level_count() as u32;
        levels.find_map(|level| self.levels.calls(level)).unwrap_or(LEVELS_MAX as u32)
    }

    #[inline(always)]
    fn try_next(&mut self, seat: u32, now: Time) -> Option<Upcall> {
        loop {
            while !self.overdue.is_empty() {
                self.settle(now);
            }
            self.compare(now);
            match self.levels.take(seat, now) {
                Some(Taken::Run { slot }) => {
                    self.touched |= self.nests;
                    self.fill(now);
                    let job = self.operations.get(slot as usize)?.current.as_ref()?;
                    let Instance { number, arrival, release, deadline, .. } = *job;
                    self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Start { seat } });
                    return Some(Upcall { slot, number, arrival, release, deadline });
                }
                Some(Taken::Cancel { slot }) => {
                    self.cancel(slot, CancelCause::Omitted, now);
                    self.settle(now);
                }
                None if self.freed.is_empty() => return None,
                None => self.fill(now),
            }
        }
    }

    /// An upcall ended.
    #[inline]
    pub(crate) fn end(&mut self, upcall: Upcall, end: End, now: Time) {
        let Upcall { slot, number, deadline, .. } = upcall;
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        let current = operation.current.as_ref().filter(|current| current.number == number);
        // `None` if the job was dropped at its deadline while it ran.
        let Some(origin) = current.map(|current| current.origin) else { return };
        operation.current = None;
        let is_last = operation.waits == 0;
        let completed = end == End::Completed;
        if completed {
            operation.completed += 1;
            operation.late += u64::from(now > deadline);
        } else {
            operation.rest.failed += 1;
        }
        self.levels.complete(slot);
        self.touched |= self.nests;
        self.gone(now);
        let fact = if completed { Fact::Complete } else { Fact::Cancel(CancelCause::Failed) };
        self.facts.record(TimedFact { at: now, slot, number, fact });
        self.follow_up(slot, number, completed, origin);
        if !is_last {
            self.freed.push(slot);
        }
        self.fill(now);
    }

    /// Cancels the job of a slot: it will not start, or not continue.
    fn cancel(&mut self, slot: u32, cause: CancelCause, now: Time) {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        let Some(job) = operation.current.take() else { return };
        match cause {
            CancelCause::Late => operation.rest.dropped += 1,
            _ => operation.rest.cancelled += 1,
        }
        self.touched |= self.nests;
        self.gone(now);
        self.facts.record(TimedFact { at: now, slot, number: job.number, fact: Fact::Cancel(cause) });
        self.follow_up(slot, job.number, false, job.origin);
        self.freed.push(slot);
    }

    #[cold]
    fn drop_job(&mut self, slot: u32, now: Time) {
        self.cancel(slot, CancelCause::Late, now);
    }

    /// Checks the module's invariant by counting the existing jobs. Also checks that no job waits
    /// for an empty slot, unless the slot is about to be filled.
    fn is_whole(&self) -> bool {
        let there = |operation: &Operation| operation.waits + u32::from(operation.current.is_some());
        let whole = |(operation, slot): (&Operation, u32)| {
            let Counts { released, completed, cancelled, rejected, dropped, failed, .. } = operation.counts(Time::ZERO);
            let over = completed + cancelled + rejected + dropped + failed;
            let waits = operation.rest.waiting.len();
            released == over + u64::from(there(operation))
                && waits == operation.waits as usize
                && (waits == 0
                    || operation.current.is_some()
                    || self.freed.contains(&slot)
                    || self.overdue.contains(&slot))
        };
        self.there == self.operations.iter().map(there).sum::<u32>() && self.operations.iter().zip(0..).all(whole)
    }

    /// Rates or participation differ between plans, so timers must learn of switches.
    pub(crate) fn vary(&mut self) {
        self.varies = true;
        self.switches.reserve_exact(SWITCHES_MAX);
    }

    /// The first switch that the timer has not handled: its time and its plan.
    pub(crate) fn next_switch(&self) -> Option<(Time, usize)> {
        self.switches.front().copied()
    }

    /// Removes the first switch, which the timer has handled.
    pub(crate) fn take_switch(&mut self) {
        self.switches.pop_front();
    }

    /// The time of the next deadline, for [`Core::pass_deadlines`].
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        if self.levels.wants_deadlines() { self.next_wanted_deadline() } else { None }
    }

    fn next_wanted_deadline(&self) -> Option<Time> {
        let jobs = self.operations.iter().zip(0..).filter(|(_, slot)| self.levels.wants_deadline(*slot));
        jobs.filter_map(|(operation, _)| operation.current.filter(|job| !job.passed).map(|job| job.deadline)).min()
    }

    /// Drops and demotes the jobs whose deadline has passed.
    pub(crate) fn pass_deadlines(&mut self, now: Time) {
        for slot in 0..self.operations.len() as u32 {
            let current = self.operations.get(slot as usize).and_then(|operation| operation.current);
            let Some(job) = current.filter(|job| job.deadline <= now && !job.passed) else { continue };
            if !self.levels.wants_deadline(slot) {
                continue;
            }
            let passed = self.levels.deadline(slot);
            if let Some(job) = self.operations.get_mut(slot as usize).and_then(|operation| operation.current.as_mut()) {
                job.passed = true;
            }
            self.take_note(slot, job.number, passed, now);
        }
        self.fill(now);
    }

    fn take_note(&mut self, slot: u32, number: u64, passed: Passed, now: Time) {
        match passed {
            Passed::Continues => {}
            Passed::Moved(_) if self.nests => self.call_all(),
            Passed::Moved(level) => self.woken.insert(level),
            Passed::Dropped { running } => {
                if running {
                    self.stopped.push((slot, number));
                    if self.nests {
                        // The dropped job's code may continue for a while, so another thread needs
                        // its seat.
                        self.moved = true;
                        self.call_all();
                    }
                }
                self.drop_job(slot, now);
            }
        }
    }

    /// Switches to another plan. Returns how many waiting jobs changed level or were dropped. An
    /// unknown plan changes nothing.
    pub(crate) fn switch(&mut self, plan: usize, now: Time, changes: &mut Vec<(u32, Passed)>) -> usize {
        changes.clear();
        let before = self.levels.plan();
        let (levels, operations) = (&mut self.levels, &self.operations);
        let room = operations.len();
        let there = levels.switch(plan, now, |slot, passed| {
            if changes.len() < room {
                changes.push((slot, passed));
            }
        });
        if !there {
            return 0;
        }
        for operation in &mut self.operations {
            (operation.distance, operation.takes_part) = distance(&operation.rest.distances, plan);
        }
        for (slot, passed) in changes.iter() {
            let number =
                self.operations.get(*slot as usize).and_then(|operation| operation.current).map(|job| job.number);
            self.take_note(*slot, number.unwrap_or(0), *passed, now);
        }
        if self.varies && before != plan {
            if self.switches.len() == SWITCHES_MAX {
                self.switches.pop_back();
            }
            self.switches.push_back((now, plan));
        }
        self.touched |= self.nests;
        self.tell_moved(now, false);
        // After the drops, because the running job then follows from the rest.
        let next = self.first_waiting();
        self.facts.record(TimedFact { at: now, slot: 0, number: 0, fact: Fact::Mode { plan: plan as u32, next } });
        self.fill_once(now);
        changes.len()
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
