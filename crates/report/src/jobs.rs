//! From events to jobs: one record when a job is over. Memory grows with the jobs that are open at one time only.

use std::collections::VecDeque;

use takt_log::{CancelCause, Definition, Event, JobKey};
use takt_model::{Lateness, NodeId, Span, TaskId, Time, named};

use crate::scene::Scene;

/// The log's facts about one job that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// The job.
    pub job: JobKey,
    /// Its nominal arrival; the latest possible one if only a window is known.
    pub arrival: Time,
    /// The earliest possible nominal arrival, if only a window is known.
    pub earliest: Option<Time>,
    /// Its release.
    pub release: Time,
    /// When it first got a CPU; `None` if never, or if that event is missing.
    pub start: Option<Time>,
    /// When it completed.
    pub completion: Option<Time>,
    /// Its absolute deadline, where known.
    pub deadline: Option<Time>,
    /// How it ended.
    pub outcome: Outcome,
}

named! {
    /// How a job ended.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Outcome {
        /// Completed at its deadline or before, or without a known one.
        InTime => "in-time",
        /// Completed after its deadline.
        Late => "late",
        /// Not completed when the log ended, its deadline not reached.
        Unfinished => "unfinished",
        /// Not completed when the log ended, its deadline reached.
        UnfinishedLate => "unfinished-late",
        /// Dropped at its deadline.
        Dropped => "dropped",
        /// Omitted at its first dispatch, for its WCET exceeded the time left.
        Omitted => "omitted",
        /// Shed, for a predecessor in its chain was cancelled.
        Shed => "shed",
        /// Not queued when it arrived, for too many of its task waited or ran.
        Rejected => "rejected",
        /// Its code panicked.
        Failed => "failed",
        /// Events were lost while it was open, and no later event tells its fate.
        Unknown => "unknown",
    }
}

impl JobRecord {
    /// How a job that is still open when the log ends at `end` counts.
    #[must_use]
    pub fn outcome_if_open(&self, end: Time) -> Outcome {
        if self.outcome == Outcome::Unknown {
            Outcome::Unknown
        } else if self.deadline.is_some_and(|deadline| deadline <= end) {
            Outcome::UnfinishedLate
        } else {
            Outcome::Unfinished
        }
    }

    /// Completion minus nominal arrival.
    #[must_use]
    pub fn response(&self) -> Option<Span> {
        self.completion.map(|completion| completion.saturating_since(self.arrival))
    }

    /// Completion minus deadline, negative when early.
    #[must_use]
    pub fn lateness(&self) -> Option<Lateness> {
        Some(self.completion?.lateness_to(self.deadline?))
    }
}

/// Follows the open jobs of every task.
#[derive(Clone, Debug)]
pub struct JobTracker {
    deadlines: Vec<Option<Span>>,
    nodes: Vec<NodeId>,
    open: Vec<VecDeque<JobRecord>>,
    /// The number and the earliest possible arrival of each task's next job.
    windows: Vec<Option<(u64, Time)>>,
}

impl JobTracker {
    /// Knows the tasks of `scene`.
    #[must_use]
    pub fn new(scene: &Scene) -> Self {
        let deadlines: Vec<Option<Span>> = scene.tasks.iter().map(|task| task.deadline).collect();
        let nodes = scene.tasks.iter().map(|task| task.node).collect();
        let open = vec![VecDeque::new(); deadlines.len()];
        JobTracker { open, windows: vec![None; deadlines.len()], deadlines, nodes }
    }

    /// Takes in a late definition. The deadline of a task holds for the jobs that are released from now on.
    pub fn define(&mut self, definition: &Definition) {
        let Definition::Task(id, def) = definition else { return };
        let next = self.deadlines.len();
        match self.deadlines.get_mut(id.index()) {
            Some(deadline) => *deadline = def.deadline,
            None if id.index() == next => {
                self.deadlines.push(def.deadline);
                self.nodes.push(def.node);
                self.open.push(VecDeque::new());
                self.windows.push(None);
            }
            None => {}
        }
    }

    /// Events of this node were lost: its open jobs may be over.
    pub fn lose(&mut self, node: NodeId) {
        let lost = self.open.iter_mut().zip(&self.nodes).filter(|(_, of)| **of == node);
        lost.flat_map(|(open, _)| open).for_each(|record| record.outcome = Outcome::Unknown);
    }

    /// Returns a job that must be over by this event, because a later job of its task has a CPU.
    /// The event of its end was lost. Call this until it returns `None`, before taking in the
    /// event.
    pub fn overtaken(&mut self, event: &Event) -> Option<JobRecord> {
        let (Event::Start { job, .. }
        | Event::Resume { job, .. }
        | Event::Preempt { job, .. }
        | Event::Block { job, .. }
        | Event::Complete { job, .. }) = event
        else {
            return None;
        };
        let open = self.open.get_mut(job.task.index())?;
        // Jobs of one task go one after the other.
        let over = |record: &JobRecord| record.outcome == Outcome::Unknown && record.job.number < job.number;
        open.iter().position(over).and_then(|at| open.remove(at))
    }

    /// Takes an event; gives back the job that it ended. A job whose release is missing in the log is left out.
    pub fn event(&mut self, now: Time, event: &Event) -> Option<JobRecord> {
        match *event {
            Event::Window { job, earliest } => {
                *self.windows.get_mut(job.task.index())? = Some((job.number, earliest));
                None
            }
            Event::Release { job, arrival, .. } => {
                let window = self.windows.get_mut(job.task.index())?.take();
                let earliest = window.filter(|(number, at)| *number == job.number && *at < arrival);
                let deadline = self.deadlines.get(job.task.index())?.map(|deadline| arrival.saturating_add(deadline));
                self.open.get_mut(job.task.index())?.push_back(JobRecord {
                    job,
                    arrival,
                    earliest: earliest.map(|(_, at)| at),
                    release: now,
                    start: None,
                    completion: None,
                    deadline,
                    outcome: Outcome::Unfinished,
                });
                None
            }
            Event::Start { job, .. } => {
                let record = self.still_open(job)?;
                record.start = Some(now);
                None
            }
            Event::Resume { job, .. } | Event::Preempt { job, .. } | Event::Block { job, .. } => {
                self.still_open(job)?;
                None
            }
            Event::Complete { job, .. } => {
                let mut record = self.take(job)?;
                record.completion = Some(now);
                record.outcome = if record.deadline.is_some_and(|deadline| now > deadline) {
                    Outcome::Late
                } else {
                    Outcome::InTime
                };
                Some(record)
            }
            Event::Cancel { job, cause } => {
                let mut record = self.take(job)?;
                record.outcome = match cause {
                    CancelCause::Omitted => Outcome::Omitted,
                    CancelCause::Shed => Outcome::Shed,
                    CancelCause::Late => Outcome::Dropped,
                    CancelCause::Rejected => Outcome::Rejected,
                    CancelCause::Failed => Outcome::Failed,
                };
                Some(record)
            }
            Event::Gap { job } => {
                self.open.get_mut(job.task.index())?.iter_mut().for_each(|record| record.outcome = Outcome::Unknown);
                None
            }
            _ => None,
        }
    }

    /// The first released job of `task`, which is the running one.
    #[must_use]
    pub fn first(&self, task: TaskId) -> Option<&JobRecord> {
        self.open.get(task.index())?.front()
    }

    /// Jobs that are still open when the log ends at `end`, by task and number.
    pub fn finish(self, end: Time) -> impl Iterator<Item = JobRecord> {
        self.open.into_iter().flatten().map(move |record| JobRecord { outcome: record.outcome_if_open(end), ..record })
    }

    /// The job of an event that proves that the job is not over.
    fn still_open(&mut self, job: JobKey) -> Option<&mut JobRecord> {
        let at = self.position(job)?;
        let record = self.open.get_mut(job.task.index())?.get_mut(at)?;
        record.outcome = Outcome::Unfinished;
        Some(record)
    }

    fn position(&self, job: JobKey) -> Option<usize> {
        // Nearly always the first.
        self.open.get(job.task.index())?.iter().position(|record| record.job.number == job.number)
    }

    fn take(&mut self, job: JobKey) -> Option<JobRecord> {
        let at = self.position(job)?;
        self.open.get_mut(job.task.index())?.remove(at)
    }
}
