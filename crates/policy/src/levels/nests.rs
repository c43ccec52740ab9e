//! Levels whose jobs preempt each other: their started jobs, and the number of seats that they
//! need.
//!
//! A *seat* is a place for threads of one SCHED_FIFO priority. A level whose jobs run to completion
//! has one seat. A level whose jobs preempt each other has as many seats as its jobs nest. A job
//! that preempts the running job starts one seat above it. Seats are numbered like levels, the most
//! important first. If no level is preemptive, seats are levels.
//!
//! The started jobs of a level stand in the order of the level. Each holds the seat of its place.
//! Only the running job changes its rank, because its laxity stays constant while the laxity of the
//! others shrinks. [`Levels::compare`] then moves the running job to its new place.
//!
//! The caller calls it at the instants at which a [`Dispatcher`](crate::Dispatcher) decides: after
//! each event of the CPU and at each [`Levels::next_comparison`]. CPU time counts as the dispatcher
//! knows it: a job has the CPU while no other job goes before it.

use std::collections::BTreeMap;

use takt_model::plan::Order;
use takt_model::{Late, NodeId, Plan, PlanLevel, Span, System, TaskId, Time};

use super::{Levels, State};
use crate::rank::{Phase, Rank};

/// How many jobs of each level are in progress on one CPU at most, each preempted by the next: by
/// plan, by level, that of demoted jobs last. One where jobs run to completion.
///
/// Jobs of one task run one after the other, so at most all tasks of the level on the CPU nest. By
/// release, nothing preempts a started job. By deadline, a task preempts only tasks with a longer
/// relative deadline [Baker 1991]. It also preempts a task with an equal one if its own release
/// jitter lets it arrive earlier.
///
/// After a switch of plans, jobs that started under different levels may meet in one level of the
/// new plan. Then all of its tasks may nest.
#[must_use]
pub fn nesting(system: &System, plans: &[Plan]) -> Vec<Vec<u32>> {
    let preempts = plans.iter().flat_map(|plan| &plan.levels).any(|level| level.preemptive);
    let task = |id: TaskId| system.tasks.get(id.index());
    let cpu = |id: TaskId| task(id).and_then(|task| task.cpus?.lowest()).unwrap_or(0);
    let switches = plans.len() > 1;
    let of_level = |plan: &Plan, number: u32| {
        let level = plan.levels.get(number as usize);
        let nests = |level: &&PlanLevel| level.preemptive && (switches || level.order != Order::Fifo);
        let Some(level) = level.filter(nests) else { return 1 };
        let mut by_cpu: BTreeMap<u32, Vec<(i64, bool)>> = BTreeMap::new();
        for placed in plan.tasks.iter().filter(|placed| placed.level == number) {
            let Some(task) = task(placed.task) else { continue };
            let deadline = (task.deadline.as_ns() as i64).saturating_add(placed.shift_ns);
            let jitters = !task.jitter.is_zero();
            by_cpu.entry(cpu(placed.task)).or_default().push((deadline, jitters));
        }
        let deepest = by_cpu.into_values().map(|mut tasks| {
            if level.order == Order::Laxity || switches {
                return tasks.len() as u32;
            }
            tasks.sort_unstable();
            let equal = tasks.chunk_by(|one, other| one.0 == other.0);
            equal.map(|equal| equal.len().min(1 + equal.iter().filter(|task| task.1).count()) as u32).sum()
        });
        deepest.max().unwrap_or(1)
    };
    let mut demotes: BTreeMap<u32, Vec<TaskId>> = BTreeMap::new();
    for placed in plans.iter().flat_map(|plan| &plan.tasks).filter(|placed| placed.late == Late::Demote) {
        let here = demotes.entry(cpu(placed.task)).or_default();
        if !here.contains(&placed.task) {
            here.push(placed.task);
        }
    }
    let demoted = demotes.values().map(|tasks| tasks.len() as u32).max().filter(|_| preempts).unwrap_or(1);
    let of_plan =
        |plan: &Plan| (0..plan.levels.len() as u32).map(|level| of_level(plan, level)).chain([demoted]).collect();
    plans.iter().map(of_plan).collect()
}

/// The started jobs, if jobs of some level preempt each other under some plan.
#[derive(Clone, Debug)]
pub(super) struct Nests {
    /// By level, that of demoted jobs last: the slots of what has started and is not over, the least important first.
    stacks: Vec<Vec<u32>>,
    /// By slot.
    started: Vec<Started>,
    /// CPU time is counted up to here.
    until: Time,
    /// By plan, by level, that of demoted jobs last.
    rows: Vec<Vec<Row>>,
    /// The rows of the plan in force.
    current: Vec<Row>,
    seats: u32,
    /// Whether some plan compares what has started by laxity: then CPU time counts.
    by_laxity: bool,
    quantum: Option<Span>,
    /// Whether started jobs may have other seats than were reported.
    moved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    /// The CPU time that it received until [`Nests::until`].
    executed: Span,
    /// The same when laxities were last compared. Its rank uses this, so the rank stays until the next comparison.
    compared: Span,
    /// The seat that was last reported for it.
    reported: u32,
}

/// The seats of a level.
#[derive(Clone, Copy, Debug)]
struct Row {
    preemptive: bool,
    by_laxity: bool,
    /// The number of its least important seat. Its other seats have the numbers before.
    last_seat: u32,
    /// How many seats it has.
    depth: u32,
}

impl Nests {
    /// `None` if all jobs run to completion. `most`: the largest number of levels of a plan.
    pub(super) fn new(system: &System, node: NodeId, plans: &[Plan], most: usize, slots: usize) -> Option<Nests> {
        let preemptive = |plan: &Plan| plan.levels.iter().any(|level| level.preemptive);
        if !plans.iter().any(preemptive) {
            return None;
        }
        let depths = nesting(system, plans);
        let levels = |depths: &Vec<u32>| depths.iter().rev().skip(1).sum::<u32>();
        let seats = depths.iter().map(levels).max().unwrap_or(0).max(most as u32);
        let demoted = depths.first().and_then(|depths| depths.last()).copied().unwrap_or(1);
        let rows = plans.iter().zip(&depths).map(|(plan, depths)| {
            let mut below = 0;
            let mut rows: Vec<Row> = Vec::with_capacity(most + 1);
            for (level, depth) in plan.levels.iter().zip(depths) {
                below += depth;
                let by_laxity = level.preemptive && level.order == Order::Laxity;
                rows.push(Row { preemptive: level.preemptive, by_laxity, last_seat: below - 1, depth: *depth });
            }
            // Levels that only other plans have; nothing comes to them.
            let none = Row { preemptive: false, by_laxity: false, last_seat: below.saturating_sub(1), depth: 1 };
            rows.resize(most, none);
            let by_laxity = rows.iter().any(|row| row.by_laxity);
            rows.push(Row { preemptive: true, by_laxity, last_seat: seats + demoted - 1, depth: demoted });
            rows
        });
        let rows: Vec<Vec<Row>> = rows.collect();
        Some(Nests {
            stacks: vec![Vec::with_capacity(slots); most + 1],
            started: vec![Started { executed: Span::ZERO, compared: Span::ZERO, reported: 0 }; slots],
            until: Time::ZERO,
            current: rows.first().cloned().unwrap_or_default(),
            by_laxity: rows.iter().flatten().any(|row| row.by_laxity),
            rows,
            seats: seats + demoted,
            quantum: system.nodes.get(node.index()).and_then(|node| node.laxity_quantum),
            moved: false,
        })
    }

    pub(super) fn seat_count(&self) -> usize {
        self.seats as usize
    }

    pub(super) fn level(&self, seat: u32) -> u32 {
        self.current.partition_point(|row| row.last_seat < seat) as u32
    }

    pub(super) fn adopt(&mut self, plan: usize) {
        if let Some(rows) = self.rows.get(plan) {
            self.current.copy_from_slice(rows);
        }
    }

    fn stack(&self, level: u32) -> &[u32] {
        self.stacks.get(level as usize).map_or(&[], Vec::as_slice)
    }

    /// The seat of the job at a place of its level's stack.
    fn seat_at(&self, level: u32, place: usize) -> u32 {
        let row = self.current.get(level as usize);
        row.map_or(0, |row| row.last_seat - (place as u32).min(row.depth - 1))
    }

    /// A job has started at the top of its level.
    pub(super) fn start(&mut self, level: u32, slot: u32) {
        let Some(stack) = self.stacks.get_mut(level as usize) else { return };
        stack.push(slot);
        let seat = self.seat_at(level, self.stack(level).len() - 1);
        if let Some(started) = self.started.get_mut(slot as usize) {
            *started = Started { executed: Span::ZERO, compared: Span::ZERO, reported: seat };
        }
    }

    /// A job that had started is over, or goes to another level.
    pub(super) fn leave(&mut self, level: u32, slot: u32) {
        let Some(stack) = self.stacks.get_mut(level as usize) else { return };
        if let Some(place) = stack.iter().position(|other| *other == slot) {
            stack.remove(place);
            self.moved |= place < stack.len();
        }
    }
}

impl Levels {
    /// Seats of all levels, those of demoted jobs last.
    #[must_use]
    pub fn seat_count(&self) -> usize {
        self.nests.as_ref().map_or(self.level_count(), |nests| nests.seat_count())
    }

    /// The seat of a slot's job, if it has started. Otherwise the least important seat of its level.
    #[must_use]
    pub fn seat(&self, slot: u32) -> Option<u32> {
        let level = self.level(slot)?;
        let Some(nests) = &self.nests else { return Some(level) };
        let place = nests.stack(level).iter().position(|other| *other == slot).unwrap_or(0);
        Some(nests.seat_at(level, place))
    }

    /// The seat whose thread is to ask for a job of this level. `None` if no job waits, or if a started one goes
    /// before.
    #[inline]
    #[must_use]
    pub fn calls(&self, level: u32) -> Option<u32> {
        match &self.nests {
            None => self.waits_at(level).then_some(level),
            Some(nests) => self.calls_in(nests, level),
        }
    }

    fn calls_in(&self, nests: &Nests, level: u32) -> Option<u32> {
        let row = nests.current.get(level as usize)?;
        let first = self.first_waiting(level)?;
        let stack = nests.stack(level);
        match stack.last() {
            Some(top) if row.preemptive => {
                let nests_here = (stack.len() as u32) < row.depth && self.rank(first) < self.rank(*top);
                nests_here.then(|| row.last_seat - stack.len() as u32)
            }
            _ => Some(row.last_seat),
        }
    }

    /// The slot of the first job that waits at a level.
    fn first_waiting(&self, level: u32) -> Option<u32> {
        use crate::rank::Entry;
        match self.queues.get(level as usize) {
            Some(queue) => queue.peek(&self.slots).map(Entry::slot),
            None => self.last.peek(&()).map(Entry::slot),
        }
    }

    /// How important the job of a slot is, with its CPU time at the last comparison.
    fn rank(&self, slot: u32) -> Rank {
        let (Some(at), Some(nests)) = (self.slots.get(slot as usize), &self.nests) else { return Rank::NOBODY };
        let started = at.state == State::Running;
        let job = nests.started.get(slot as usize).filter(|_| started);
        let executed = job.map_or(Span::ZERO, |job| job.compared);
        let key = at.of.key(|| at.of.wcet.saturating_sub(executed));
        at.of.rank(0, Phase::waiting(at.of.preemptive, started), key, slot)
    }

    /// The most important level at which a job waits or has started.
    fn first_busy(&self, nests: &Nests) -> Option<u32> {
        (0..nests.stacks.len() as u32).find(|level| !nests.stack(*level).is_empty() || self.waits_at(*level))
    }

    /// The job that has the CPU. `None` if another one is about to start.
    fn executing(&self, nests: &Nests) -> Option<u32> {
        let level = self.first_busy(nests)?;
        let preempted = nests.current.get(level as usize)?.preemptive && self.calls_in(nests, level).is_some();
        nests.stack(level).last().copied().filter(|_| !preempted)
    }

    /// Counts the CPU time of the running job up to `now`. Must be called before any call about what happens at `now`.
    #[inline]
    pub fn advance(&mut self, now: Time) {
        if self.nests.as_ref().is_some_and(|nests| nests.by_laxity) {
            self.count_until(now);
        }
    }

    #[cold]
    fn count_until(&mut self, now: Time) {
        let running = self.nests.as_ref().and_then(|nests| self.executing(nests));
        let Some(nests) = &mut self.nests else { return };
        let stretch = now.saturating_since(nests.until);
        nests.until = nests.until.max(now);
        if let Some(started) = running.and_then(|slot| nests.started.get_mut(slot as usize)) {
            started.executed = started.executed.saturating_add(stretch);
        }
    }

    /// Whether jobs of some level preempt each other: then [`Levels::compare`] must be called.
    #[inline]
    #[must_use]
    pub fn nests(&self) -> bool {
        self.nests.is_some()
    }

    /// Moves the running job to the place of its laxity among the started jobs. Returns the seat
    /// that must then ask for a job.
    pub fn compare(&mut self) -> Option<u32> {
        self.rank_started();
        let level = self.first_busy(self.nests.as_ref()?)?;
        if self.nests.as_ref()?.current.get(level as usize)?.by_laxity {
            self.sort(level);
        }
        self.calls(level)
    }

    /// Updates the ranks of the started jobs to the CPU time that they have received.
    fn rank_started(&mut self) {
        let Some(nests) = self.nests.as_mut().filter(|nests| nests.by_laxity) else { return };
        for slot in nests.stacks.iter().flatten() {
            if let Some(started) = nests.started.get_mut(*slot as usize) {
                started.compared = started.executed;
            }
        }
    }

    /// Puts what has started at a level into its order.
    fn sort(&mut self, level: u32) {
        let Some(stack) = self.nests.as_mut().and_then(|nests| nests.stacks.get_mut(level as usize)) else { return };
        let mut stack = std::mem::take(stack);
        let mut moved = false;
        for at in 1..stack.len() {
            let mut place = at;
            while place > 0 {
                let (Some(one), Some(other)) = (stack.get(place - 1).copied(), stack.get(place).copied()) else {
                    break;
                };
                if self.rank(other) < self.rank(one) {
                    break;
                }
                stack.swap(place - 1, place);
                (place, moved) = (place - 1, true);
            }
        }
        if let Some(nests) = &mut self.nests {
            nests.moved |= moved;
            if let Some(place) = nests.stacks.get_mut(level as usize) {
                *place = stack;
            }
        }
    }

    /// The running job of a slot goes on among demoted ones, where jobs of some level preempt each other.
    pub fn demote_running(&mut self, slot: u32) {
        let running = self.slots.get_mut(slot as usize).filter(|at| at.state == State::Running && !at.of.demoted);
        if let Some(at) = running.filter(|_| self.nests.is_some()) {
            at.of.demoted = true;
            let from = at.of.level;
            self.demote_started(slot, from);
        }
    }

    /// A started job of a preemptive level goes on among demoted ones.
    pub(super) fn demote_started(&mut self, slot: u32, from: u32) {
        let demoted = self.demoted();
        self.rank_started();
        if let Some(nests) = &mut self.nests {
            nests.leave(from, slot);
            nests.moved = true;
            if let Some(stack) = nests.stacks.get_mut(demoted as usize) {
                stack.push(slot);
            }
        }
        self.sort(demoted);
    }

    /// Moves the started jobs to their levels in the current plan.
    pub(super) fn restack(&mut self) {
        self.rank_started();
        let Some(nests) = &mut self.nests else { return };
        nests.adopt(self.plans.current());
        nests.moved = true;
        nests.stacks.iter_mut().for_each(Vec::clear);
        for slot in 0..self.slots.len() as u32 {
            let started = self.slots.get(slot as usize).is_some_and(|at| at.state == State::Running);
            let level = self.level(slot).filter(|_| started);
            let nests = self.nests.as_mut();
            if let Some(stack) = nests.zip(level).and_then(|(nests, level)| nests.stacks.get_mut(level as usize)) {
                stack.push(slot);
            }
        }
        for level in 0..=self.demoted() {
            self.sort(level);
        }
    }

    /// Reports the new seat of each started job whose seat has changed.
    pub fn take_moved(&mut self, mut each: impl FnMut(u32, u32)) {
        let Some(nests) = self.nests.as_mut().filter(|nests| nests.moved) else { return };
        nests.moved = false;
        for level in 0..nests.stacks.len() as u32 {
            for place in 0..nests.stack(level).len() {
                let seat = nests.seat_at(level, place);
                let Some(slot) = nests.stack(level).get(place).copied() else { continue };
                if let Some(started) = nests.started.get_mut(slot as usize).filter(|started| started.reported != seat) {
                    started.reported = seat;
                    each(slot, seat);
                }
            }
        }
    }

    /// When laxities must be compared next if nothing happens: at the next multiple of the node's laxity quantum, while
    /// jobs compete by laxity.
    #[must_use]
    pub fn next_comparison(&self, now: Time) -> Option<Time> {
        let nests = self.nests.as_ref().filter(|nests| nests.by_laxity)?;
        let quantum = nests.quantum?.as_ns().max(1);
        let level = self.first_busy(nests)?;
        let row = nests.current.get(level as usize)?;
        let stack = nests.stack(level);
        let contended = row.by_laxity && (stack.len() > 1 || (!stack.is_empty() && self.waits_at(level)));
        let next = (now.as_ns() / quantum).checked_add(1)?.checked_mul(quantum)?;
        contended.then_some(Time::from_ns(next))
    }
}
