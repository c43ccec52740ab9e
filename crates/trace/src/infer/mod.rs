//! Infers a System from a log: periods, execution times and chains of tasks, with the evidence for
//! each.
//!
//! It ignores the System in the log's header, and the parameters in its definitions. It uses the
//! names and nodes in the definitions, the rules of servers, and deadlines that a recorder took from
//! the kernel's scheduling class.
//!
//! | statement | method | where |
//! |---|---|---|
//! | period, offset, jitter | the narrowest strip `o + kT <= a_k <= o + kT + J` that holds all arrivals: a linear programme, solved exactly on the convex hull; of the periods with nearly the least J the simplest number | `grid` |
//! | periodic or not | do deviations from the grid add up, as those of a sporadic task or a relative sleep do; do they wander; do they reach a period? | `arrivals` |
//! | bursts | a period that leaves a part of itself free of arrivals each time; groups of jobs each of which lies on a grid | `bursts` |
//! | sporadic: least distance, arrival curve | the shortest and longest times in which 2, 3, ... jobs arrived | `arrivals` |
//! | execution: maximum, mean, PMF | jobs seen from release to completion; a bounded number of values, rounded up | `exec` |
//! | chains | releases that completions explain | `chains` |
//! | flows, table tasks, networks | releases that received messages explain | `flows` |
//! | components | what servers got and paid while jobs ran | `servers` |
//!
//! **Bounds.** The period is wrong by at most `(J + J') / N` after N periods, where J is the jitter
//! seen and J' the true one; [`Grid::period_min`] and [`Grid::period_max`] suppose J' <= 2J. All
//! arrivals seen lie on the grid. If later arrivals are like these, at least the share
//! [`Arrivals::confidence`] of them does, at 95 % confidence. The same holds for execution times
//! and their maximum, which is **no worst case**, and for distances and their minimum. All of this
//! gets tighter with more jobs.
//!
//! **Unknown** is the answer in three cases:
//!
//! - Fewer than four distances are known.
//! - Distances differ, and there are fewer than 20.
//! - There are fewer than 300 distances, and deviations could be jitter or steps that add up.
//!
//! A task may keep to a grid only part of the time: more than one period in fifty has no job, and
//! neither a late job nor a lost event is the reason. Such a task counts as sporadic. A sporadic
//! task with equal distances so far looks like a periodic task; arrivals alone cannot tell them
//! apart.
//!
//! ```
//! use takt_trace::infer::{Inferred, Kind};
//! use takt_model::{Span, Time};
//!
//! // Every 10 ms, up to 2 ms late.
//! let late = |k: u64| k * 791_933 % 2_000_000;
//! let releases = (0..200).map(|k| (Time::from_ns(5_000_000 + k * 10_000_000 + late(k)), Span::ZERO)).collect();
//! let inferred = Inferred::of_releases(vec![("camera".to_owned(), releases)]);
//! let arrivals = &inferred.tasks[0].arrivals;
//! let grid = arrivals.grid.unwrap();
//! assert_eq!(arrivals.kind, Kind::Periodic);
//! assert_eq!(grid.period, Span::from_ms(10));
//! assert!(grid.jitter > Span::from_us(1900) && grid.jitter <= Span::from_us(2100));
//! ```

mod arrivals;
mod bursts;
mod chains;
mod components;
mod exec;
mod flows;
mod grid;
mod releases;
mod sample;
mod servers;
#[cfg(test)]
mod servers_tests;
mod system;
#[cfg(test)]
mod tests;
mod traffic;
mod walk;

pub use arrivals::{Arrivals, CurveStep, Grid, Kind, holds_for};
pub use bursts::Bursts;
pub use chains::{Link, Links, links};
pub use exec::Execution;
pub use flows::{InferredFlow, InferredNetwork, MessageSampler, Tables, Traffic};
pub use releases::{ReleasesError, parse_releases};
pub use sample::{JOBS_MAX, JobSeen, Sample, Sampler, TASKS_MAX};
pub use servers::{InferredComponent, PeriodSource, SERVERS_MAX, ServerPeriod, ServerSampler};
pub use system::{SystemOptions, Written};

use std::collections::BTreeMap;

use takt_log::{BackEnd, Definitions, Header, NodeDef, ThreadClass};
use takt_model::{NodeId, Span, TaskId, Time, named};

pub(crate) const POINTS_MAX: usize = 16;

/// Files of releases are read as if they began at this time. So the grid of a task may begin before
/// its first release. It is a power of ten, so that simple numbers stay simple.
const RELEASES_BEGIN: Span = Span::from_ns(1_000_000_000_000_000_000);

named! {
    /// The source of a deadline.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum DeadlineSource {
        /// The thread's scheduling class has it (SCHED_DEADLINE).
        Class => "class",
        /// Jobs missed it.
        Misses => "misses",
    }
}

/// One task, as far as it can be told.
#[derive(Clone, PartialEq, Debug)]
pub struct InferredTask {
    /// Its name in the log.
    pub name: String,
    /// Its number in the log. `None` without a log.
    pub log_id: Option<TaskId>,
    /// Its node.
    pub node: NodeId,
    /// The component that it stands in: a place in [`Inferred::components`].
    pub component: Option<usize>,
    /// Components that it may stand in, if the log does not tell them apart.
    pub maybe_in: Vec<usize>,
    /// Releases seen.
    pub jobs: u64,
    /// How they arrive.
    pub arrivals: Arrivals,
    /// How much later than its nominal arrival a job may be released: deviations from the grid, and
    /// releases after told arrivals.
    pub jitter: Span,
    /// Live runs only: the longest time from the arrival of a job to its first action. It includes
    /// CPU time of others, so it is no jitter.
    pub latency: Option<Span>,
    /// How long jobs execute, where that was seen.
    pub exec: Option<Execution>,
    /// The relative deadline, where it is known.
    pub deadline: Option<(Span, DeadlineSource)>,
    /// The tasks that its jobs follow.
    pub links: Links,
    /// CPUs that it was seen on.
    pub cpus: Vec<u32>,
    /// The scheduling class that its thread was seen in.
    pub class: Option<ThreadClass>,
    /// How often events were lost between two of its jobs.
    pub gaps: u64,
}

impl InferredTask {
    /// The period: of the grid, or else the least distance seen; of an aperiodic task the mean one.
    #[must_use]
    pub fn period(&self) -> Option<Span> {
        let arrivals = &self.arrivals;
        match (arrivals.kind, arrivals.grid) {
            (_, Some(grid)) => Some(grid.period),
            (Kind::Aperiodic, None) => arrivals.mean,
            _ => arrivals.curve.first().map(|two| two.min),
        }
        .filter(|period| !period.is_zero())
    }

    /// When its first job arrives.
    #[must_use]
    pub fn offset(&self) -> Time {
        self.arrivals.grid.map_or(self.arrivals.first, |grid| grid.first)
    }
}

/// The result of inference from a log, or from files of releases.
#[derive(Clone, PartialEq, Debug)]
pub struct Inferred {
    /// Machines.
    pub nodes: Vec<NodeDef>,
    /// Tasks that released a job, in the order of the log.
    pub tasks: Vec<InferredTask>,
    /// Flows and what carries them; nothing without messages ([`Inferred::with_messages`]).
    pub traffic: Traffic,
    /// Components in the order of the log; nothing without servers ([`Inferred::with_servers`]).
    pub components: Vec<InferredComponent>,
}

impl Inferred {
    /// From the samples of a log that a [`Sampler`] took. The header is used for the back end only.
    #[must_use]
    pub fn of_log(samples: &[Sample], header: &Header, definitions: &Definitions) -> Inferred {
        let defs = &definitions.tasks;
        let same_node = |a: usize, b: usize| defs.get(a).zip(defs.get(b)).is_some_and(|(a, b)| a.node == b.node);
        let found = links(samples, same_node);
        // The places of the remaining tasks. Tasks without a release are left out.
        let mut place = vec![None; samples.len()];
        let mut tasks = Vec::new();
        for (i, (sample, def)) in samples.iter().zip(defs).enumerate() {
            if sample.jobs.is_empty() {
                continue;
            }
            place[i] = Some(tasks.len());
            let mut task = task(def.name.clone(), sample, found[i].clone());
            (task.log_id, task.node) = (Some(TaskId(i as u32)), def.node);
            let best_effort = header.back_end == BackEnd::RunBestEffort;
            task.class = def.class.or(best_effort.then_some(ThreadClass::Other));
            let late = sample.jobs.iter().map(|job| job.release.saturating_since(job.arrival)).max();
            match header.back_end {
                // In-process stamps come when the thread has got its CPU.
                BackEnd::Run | BackEnd::RunBestEffort => task.latency = late,
                _ => task.jitter = task.jitter.saturating_add(late.unwrap_or_default()),
            }
            let class = def.deadline.filter(|_| header.back_end == BackEnd::Observe);
            let class = class.map(|deadline| (deadline, DeadlineSource::Class));
            task.deadline = class.or(sample.missed_deadline.map(|deadline| (deadline, DeadlineSource::Misses)));
            tasks.push(task);
        }
        for task in &mut tasks {
            let id = |id: takt_model::TaskId| place[id.index()].map(|at| takt_model::TaskId(at as u32));
            task.links.after.retain_mut(|link| id(link.task).map(|at| link.task = at).is_some());
            task.links.maybe = task.links.maybe.iter().filter_map(|task| id(*task)).collect();
        }
        Inferred { nodes: definitions.nodes.clone(), tasks, traffic: Traffic::default(), components: Vec::new() }
    }

    /// The places of tasks by their numbers in the log.
    fn places(&self) -> BTreeMap<TaskId, usize> {
        self.tasks.iter().enumerate().filter_map(|(at, task)| Some((task.log_id?, at))).collect()
    }

    /// From releases alone, by name. Time zero is the first release of all, or the nominal arrival
    /// that comes before it.
    #[must_use]
    pub fn of_releases(files: Vec<(String, Vec<(Time, Span)>)>) -> Inferred {
        let first = files.iter().filter_map(|(_, releases)| releases.first()).map(|(at, _)| *at).min();
        let first = first.unwrap_or_default();
        let tasks = files.into_iter().map(|(name, mut releases)| {
            let begin = Time::ZERO.saturating_add(RELEASES_BEGIN);
            releases.iter_mut().for_each(|(at, _)| *at = begin.saturating_add(at.saturating_since(first)));
            task(name, &Sample::of_releases(&releases), Links::default())
        });
        let mut tasks: Vec<InferredTask> = tasks.collect();
        let zero = tasks.iter().filter(|task| task.jobs > 0).map(InferredTask::offset).min().unwrap_or_default();
        for Arrivals { first, grid, .. } in tasks.iter_mut().map(|task| &mut task.arrivals) {
            let since_zero = |at: Time| Time::ZERO.saturating_add(at.saturating_since(zero));
            *first = since_zero(*first);
            *grid = grid.map(|grid| Grid { first: since_zero(grid.first), ..grid });
        }
        let node = NodeDef { name: "local".to_owned(), cpus: 1, strategy: String::new() };
        Inferred { nodes: vec![node], tasks, traffic: Traffic::default(), components: Vec::new() }
    }

    /// These tasks alone, and the components around them; links to others go.
    ///
    /// # Errors
    /// The first name that no task has.
    pub fn keep(&mut self, names: &[String]) -> Result<(), String> {
        if let Some(unknown) = names.iter().find(|name| !self.tasks.iter().any(|task| task.name == **name)) {
            return Err(unknown.clone());
        }
        let mut place = vec![None; self.tasks.len()];
        let mut next = 0u32;
        for (i, task) in self.tasks.iter().enumerate() {
            if names.contains(&task.name) {
                place[i] = Some(takt_model::TaskId(next));
                next += 1;
            }
        }
        self.keep_components(|at| place[at].is_some());
        let mut at = 0;
        self.tasks.retain(|_| {
            at += 1;
            place[at - 1].is_some()
        });
        for task in &mut self.tasks {
            task.links.after.retain_mut(|link| place[link.task.index()].map(|id| link.task = id).is_some());
            task.links.maybe = task.links.maybe.iter().filter_map(|id| place[id.index()]).collect();
        }
        self.traffic.move_tasks(|id| place[id.index()]);
        Ok(())
    }
}

fn task(name: String, sample: &Sample, links: Links) -> InferredTask {
    let arrivals = Arrivals::of(sample);
    InferredTask {
        name,
        log_id: None,
        node: NodeId(0),
        component: None,
        maybe_in: Vec::new(),
        jobs: sample.released,
        jitter: arrivals.grid.map_or(Span::ZERO, |grid| grid.jitter),
        latency: None,
        exec: Execution::of(sample, POINTS_MAX),
        deadline: None,
        links,
        cpus: sample.cpus.clone(),
        class: None,
        gaps: sample.jobs.iter().skip(1).filter(|job| job.gap).count() as u64,
        arrivals,
    }
}
