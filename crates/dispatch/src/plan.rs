//! The table that a dispatcher follows: level, discipline, SCHED_FIFO priority and static
//! subpriority of each operation.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use takt_model::plan::Order;
use takt_model::{Arrival, Late, NodeId, Span, System, Task, TaskId, Time};

use super::error::ReleaseError;

mod text;

/// The most threads of a level on a CPU.
pub const THREADS_MAX: u32 = 256;

/// The longest backlog.
pub const BACKLOG_MAX: u32 = 65_536;

/// Limits of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The SCHED_FIFO priorities to use, within 1 to 98; a larger number is more important to the
    /// kernel. The default, 1 to 48, stays below the interrupt threads of a PREEMPT_RT kernel (50).
    pub priorities: RangeInclusive<u8>,
    /// The most of each CPU that critical operations may need, in parts per million. Default: all.
    pub critical_utilization_ppm: u32,
    /// The most of each CPU that noncritical operations may need, in parts per million. Default:
    /// `None`, any overload.
    pub noncritical_utilization_ppm: Option<u32>,
    /// The most of each CPU that all operations may need together, in parts per million. Default:
    /// `None`, any overload.
    pub total_utilization_ppm: Option<u32>,
    /// Threads for a level on each CPU, 1 to [`THREADS_MAX`]. With more than one, the level
    /// continues while one of its jobs sleeps. Proofs and simulations of the plan then hold only
    /// for handlers that never sleep, because another job of the level may start meanwhile. A
    /// preemptive level has one thread for each job that nests.
    pub threads: u32,
    /// Whether jobs of a level preempt each other if the strategy says so (`preemptive`, the
    /// default of System files). Such a level takes as many priorities as its jobs nest. Default:
    /// false, within a level each job runs to completion [KOKYU II-B].
    pub preemptive: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            priorities: 1..=48,
            critical_utilization_ppm: 1_000_000,
            noncritical_utilization_ppm: None,
            total_utilization_ppm: None,
            threads: 1,
            preemptive: false,
        }
    }
}

/// The order of execution. Equal Systems and limits give equal plans.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The planned System. Every level of the node runs to completion unless [`Limits::preemptive`]
    /// is set.
    pub system: System,
    /// The planned node.
    pub node: NodeId,
    /// The name of the node's strategy in [`Plan::system`].
    pub strategy: String,
    /// Whether noncritical jobs that can no longer be in time are omitted at their first dispatch.
    pub cancel: bool,
    /// The levels, the most important first.
    pub levels: Vec<PlanLevelRow>,
    /// One row for each task of the node, in file order (its slot).
    pub rows: Vec<Row>,
    /// The plans of the node's modes, in order of time.
    pub modes: Vec<PlanMode>,
    /// SCHED_FIFO priority of each CPU's timer thread, above all levels.
    pub timer_priority: u8,
    /// SCHED_FIFO priority of demoted late jobs, below all levels; `None` if no level demotes.
    pub demoted_priority: Option<u8>,
    /// How many demoted jobs nest. They use that priority and the next ones above it. One if jobs
    /// run to completion.
    pub demoted_nesting: u32,
}

/// A level: a queue, and threads of one priority, on each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanLevelRow {
    /// SCHED_FIFO priority of its threads. If jobs nest, the least important one.
    pub priority: u8,
    /// The most jobs in progress on one CPU, each preempted by the next. The level has as many
    /// priorities: this one and the next ones above it. One if jobs run to completion.
    pub nesting: u32,
    /// Whether its jobs preempt each other.
    pub preemptive: bool,
    /// The order in which its jobs start.
    pub discipline: Order,
    /// The rule for late jobs of operations without their own rule.
    pub late: Late,
    /// Whether importance breaks ties of the discipline, before the nominal arrival does.
    pub importance_ties: bool,
    /// Threads on each CPU.
    pub threads: u32,
}

/// The place of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The task of [`Plan::system`].
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The model CPU on which it runs.
    pub cpu: u32,
    /// Index of its level.
    pub level: u32,
    /// The order of its level.
    pub order: Order,
    /// The SCHED_FIFO priority of its level.
    pub priority: u8,
    /// Its static place among all operations of its level, 0 the most important. The order is by
    /// importance if the level breaks ties so, then by the order of operations.
    pub subpriority: u32,
    /// A constant that its level adds to its absolute deadlines (discipline `gel`), in nanoseconds;
    /// zero elsewhere.
    pub shift_ns: i64,
    /// The most jobs that may wait or run at once. For a System, the most that can exist while all
    /// jobs keep their deadlines, at most 1024.
    pub backlog: u32,
    /// The most jobs that can exist at once while all keep their deadlines.
    pub(super) backlog_needed: u32,
    /// The rule for its late jobs.
    pub late: Late,
    /// The rule for overruns of its wcet; `None` if they are not watched. A System does not state
    /// this rule.
    pub overrun: Option<Overrun>,
    /// Its period or least distance; for a follower, that of its source.
    pub period: Span,
    /// Whether it releases jobs.
    pub takes_part: bool,
    /// Whether events release it instead of its predecessors' ends ([`Plan::released_by_events`]).
    pub by_events: bool,
}

/// The rule for a job that executes for longer than its operation's wcet. No handler is aborted:
/// the job continues until its handler returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overrun {
    /// It continues as before.
    Continue,
    /// It is told to stop ([`Job::must_stop`](super::Job::must_stop)). When the handler returns,
    /// the job is not complete: it counts as failed, and the rest of its chain is shed.
    Stop,
    /// Its thread gets the priority of demoted jobs, below all levels, until the handler returns.
    /// Another thread takes the next job of its level.
    Demote,
}

/// The node's plan from one of its modes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanMode {
    /// The program's name of the mode; `None` for a System's mode.
    pub name: Option<String>,
    /// The time of the mode; `None` if only the program switches to it.
    pub at: Option<Time>,
    /// The name of the strategy in [`Plan::system`].
    pub strategy: String,
    /// As [`Plan::levels`].
    pub levels: Vec<PlanLevelRow>,
    /// As [`Plan::rows`].
    pub rows: Vec<Row>,
}

impl Plan {
    /// Sets the number of threads of a level of one of the plans (0: of the start, k: of the k-th
    /// mode) on each CPU, limited to 1 to [`THREADS_MAX`]. Then as many of its jobs are in progress
    /// at once, and the kernel runs them one after the other. Preemptive levels and unknown levels
    /// stay unchanged. The remark on proofs at [`Limits::threads`] holds here too.
    #[must_use]
    pub fn with_threads(mut self, plan: usize, level: usize, threads: u32) -> Plan {
        let levels = match plan {
            0 => Some(&mut self.levels),
            mode => self.modes.get_mut(mode - 1).map(|mode| &mut mode.levels),
        };
        if let Some(level) = levels.and_then(|levels| levels.get_mut(level)).filter(|level| !level.preemptive) {
            level.threads = threads.clamp(1, THREADS_MAX);
        }
        self
    }

    /// Sets the most jobs of each operation that may wait or run at once, limited to 1 to
    /// [`BACKLOG_MAX`]. A smaller backlog than before may reject a critical operation's jobs that
    /// would be in time. This is not checked here.
    #[must_use]
    pub fn with_backlog(mut self, backlog: u32) -> Plan {
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        self.each_rows_mut().flatten().for_each(|row| row.backlog = backlog);
        self
    }

    /// Lets events release an operation that comes after others. Its predecessors' handlers push
    /// the events when all else is done ([`event`](crate::event)), and the operation subscribes to
    /// them. Or the program pushes the operation itself.
    ///
    /// Proofs and simulations of the plan keep the order of predecessors. No least distance holds,
    /// because the operation arrives when its predecessors end. The backlog bounds it. An event
    /// that is never pushed releases nothing. An event pushed early in a handler releases the
    /// operation before that handler has returned.
    ///
    /// ```
    /// # use takt_model::{Builtin, Span};
    /// # use takt_dispatch::{Limits, Operation, Operations};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let proxy = Operation::periodic("radar", Span::from_ms(100)).wcet(Span::from_ms(1));
    /// let operations = Operations::new("flight")
    ///     .with(proxy)
    ///     .with(Operation::after("weapons", ["radar"]).wcet(Span::from_ms(3)).deadline(Span::from_ms(90)));
    /// let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?.released_by_events("weapons")?;
    /// assert!(plan.rows[1].by_events && !plan.rows[0].by_events);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such operation, or it has no predecessors.
    pub fn released_by_events(mut self, operation: &str) -> Result<Plan, ReleaseError> {
        let task = self.rows.iter().find(|row| row.name == operation).map(|row| row.task);
        let task = task.ok_or_else(|| ReleaseError::Unknown(operation.to_owned()))?;
        if self.system.tasks.get(task.index()).is_none_or(|task| task.after.is_empty()) {
            return Err(ReleaseError::ComesAfterNone(operation.to_owned()));
        }
        for row in self.each_rows_mut().flatten().filter(|row| row.task == task) {
            row.by_events = true;
        }
        Ok(self)
    }

    /// The System with releases as they are here: operations released by events have no
    /// predecessors.
    pub(super) fn as_released(&self) -> Cow<'_, System> {
        if !self.rows.iter().any(|row| row.by_events) {
            return Cow::Borrowed(&self.system);
        }
        let mut system = self.system.clone();
        for row in self.rows.iter().filter(|row| row.by_events) {
            if let Some(task) = system.tasks.get_mut(row.task.index()) {
                (task.after, task.arrival) = (Vec::new(), Arrival::Sporadic);
            }
        }
        Cow::Owned(system)
    }

    /// The plan with releases by predecessors' ends instead of events, because in virtual time no
    /// handler pushes.
    pub(super) fn released_by_ends(&self) -> Cow<'_, Plan> {
        if !self.rows.iter().any(|row| row.by_events) {
            return Cow::Borrowed(self);
        }
        let mut plan = self.clone();
        plan.each_rows_mut().flatten().for_each(|row| row.by_events = false);
        Cow::Owned(plan)
    }

    /// The rows of the start's plan, and of the modes' plans in turn.
    pub(super) fn each_rows(&self) -> impl Iterator<Item = &Vec<Row>> {
        std::iter::once(&self.rows).chain(self.modes.iter().map(|mode| &mode.rows))
    }

    /// As [`Plan::each_rows`], mutable.
    pub(super) fn each_rows_mut(&mut self) -> impl Iterator<Item = &mut Vec<Row>> {
        std::iter::once(&mut self.rows).chain(self.modes.iter_mut().map(|mode| &mut mode.rows))
    }

    /// The levels of the start's plan, and of the modes' plans in turn.
    pub(super) fn each_levels(&self) -> impl Iterator<Item = &Vec<PlanLevelRow>> {
        std::iter::once(&self.levels).chain(self.modes.iter().map(|mode| &mode.levels))
    }

    /// The tasks of its operations.
    pub fn tasks(&self) -> Vec<&Task> {
        self.rows.iter().filter_map(|row| self.system.tasks.get(row.task.index())).collect()
    }

    /// Whether the program pushes the jobs of an operation.
    pub(crate) fn is_pushed(&self, row: &Row) -> bool {
        let task = self.system.tasks.get(row.task.index());
        row.by_events || task.is_some_and(|task| task.arrival == Arrival::Sporadic && task.after.is_empty())
    }

    /// The rows of one of the plans: 0 of the start, k of the k-th mode.
    pub(super) fn rows_in(&self, plan: usize) -> Option<&[Row]> {
        match plan.checked_sub(1) {
            None => Some(&self.rows),
            Some(mode) => Some(&self.modes.get(mode)?.rows),
        }
    }

    /// Whether jobs of a level preempt each other under a plan (0: of the start, k: of the k-th
    /// mode).
    pub(super) fn preempts(&self, plan: usize, level: u32) -> bool {
        let levels = match plan.checked_sub(1) {
            None => Some(&self.levels),
            Some(mode) => self.modes.get(mode).map(|mode| &mode.levels),
        };
        levels.and_then(|levels| levels.get(level as usize)).is_some_and(|level| level.preemptive)
    }

    /// Names the modes, which only the program switches to.
    pub(super) fn name_modes(&mut self, names: impl Iterator<Item = String>) {
        for (mode, name) in self.modes.iter_mut().zip(names) {
            (mode.name, mode.at) = (Some(name), None);
        }
    }

    /// Whether the plans differ in participation or rates.
    pub(super) fn varies(&self) -> bool {
        let parts = |rows: &[Row]| rows.iter().map(|row| (row.period, row.takes_part)).collect::<Vec<_>>();
        let first = parts(&self.rows);
        self.each_rows().any(|rows| rows.iter().any(|row| !row.takes_part) || parts(rows) != first)
    }
}
