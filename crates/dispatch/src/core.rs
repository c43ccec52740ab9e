//! The jobs of one CPU, decided under that CPU's lock. Pure: the caller passes the time, so tests
//! use virtual time.
//!
//! [`Levels`] orders the jobs that may start. This module assigns job numbers, bounds backlogs,
//! follows chains across CPUs, watches deadlines, counts, and reports all facts. Jobs of one
//! operation run one after the other. After construction nothing allocates.
//!
//! Invariant, whenever the lock is free: for each operation, released = completed + cancelled +
//! rejected + dropped + failed + waiting + current. Debug builds check it in each [`Core::release_followers`].

use std::collections::VecDeque;

use takt_log::CancelCause;
use takt_model::{Arrival, NodeId, Span, System, TaskId, Time};
use takt_policy::{Job, Levels, NextAction, PolicyError};

use super::fact::{Fact, FactSink, TimedFact};
use crate::bits::LevelSet;

pub(crate) use job::{End, Ended, Place, Rejected, Upcall};
pub use operation::Counts;
use operation::{After, Instance, Operation};

mod backlog;
mod chains;
mod job;
mod operation;
mod seats;
mod switch;

/// The most jobs by which one of several predecessors may be ahead of another, besides the jobs in
/// their backlogs. Beyond that, the follower's jobs are rejected.
pub(super) const INSTANCES_MAX: usize = 64;

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
                let distances = if task.arrival == Arrival::Sporadic { distances(id) } else { Vec::new() };
                let (own, others): (Vec<Place>, Vec<Place>) =
                    followers(id).into_iter().partition(|place| place.cpu == cpu);
                let own = own.into_iter().map(|place| place.slot).collect();
                let ahead = backlogs(&task.after).saturating_add(INSTANCES_MAX);
                let backlog_max = backlog(id).max(1);
                Operation::new(task, distances, levels.plan(), own, !others.is_empty(), backlog_max, ahead)
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
        let dangers = self.dangers.iter().zip(0..);
        dangers.filter_map(|(danger, slot)| Some(self.levels.job(slot)?.arrival.saturating_add((*danger)?))).min()
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

    /// The current plan.
    pub(crate) fn plan(&self) -> usize {
        self.levels.plan()
    }

    pub(crate) fn counts(&self, slot: u32, now: Time) -> Option<Counts> {
        let deadline = self.levels.job(slot).map(|job| job.deadline);
        self.operations.get(slot as usize).map(|operation| operation.counts(deadline, now))
    }

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
            let waiting = || operation.rest.waiting.front().map(|job| job.number);
            operation.current.map(|job| job.number).or_else(waiting).unwrap_or(operation.next)
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
        let present = operation.present();
        if present >= operation.backlog_max {
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
        let job = Instance { number, arrival, release: now, deadline, origin };
        self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Release { arrival, origin } });
        // Behind the waiting jobs, even if the current job has just ended.
        if present > 0 {
            operation.rest.waiting.push_back(job);
            operation.waits += 1;
        } else {
            self.queue(slot, job, now);
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
                self.release_followers(now);
            }
            self.compare(now);
            match self.levels.take(seat, now) {
                Some(NextAction::Run { slot }) => {
                    self.touched |= self.nests;
                    self.fill(now);
                    let number = self.current(slot)?;
                    let Job { arrival, release, deadline, .. } = self.levels.job(slot)?;
                    self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Start { seat } });
                    return Some(Upcall { slot, number, arrival, release, deadline });
                }
                Some(NextAction::Cancel { slot }) => {
                    self.cancel(slot, CancelCause::Omitted, now);
                    self.release_followers(now);
                }
                None if self.freed.is_empty() => return None,
                None => self.fill(now),
            }
        }
    }

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
    /// for an empty slot, unless the slot is about to be filled. Each current job has its slot.
    fn is_whole(&self) -> bool {
        let whole = |(operation, slot): (&Operation, u32)| {
            let Counts { released, completed, cancelled, rejected, dropped, failed, .. } =
                operation.counts(None, Time::ZERO);
            let over = completed + cancelled + rejected + dropped + failed;
            let waits = operation.rest.waiting.len();
            released == over + u64::from(operation.present())
                && waits == operation.waits as usize
                && self.levels.is_taken(slot) == operation.current.is_some()
                && (waits == 0
                    || operation.current.is_some()
                    || self.freed.contains(&slot)
                    || self.overdue.contains(&slot))
        };
        self.there == self.operations.iter().map(Operation::present).sum::<u32>()
            && self.operations.iter().zip(0..).all(whole)
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
