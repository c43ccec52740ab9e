//! Simulates domains and counts the responsiveness of each job: its response time by its deadline.

use std::collections::VecDeque;

use takt_log::{Event, Sink};
use takt_model::{ServerRule, Span, System, Time};
use takt_sim::{SimOptions, simulate};

use super::workload::Domains;
use crate::failure::Failure;

/// The paper draws longer responses at this value.
pub(super) const CLIP: f64 = 3.0;

#[derive(Clone, Debug, Default)]
pub(super) struct Responsiveness {
    /// By domain, in no order. A job counts as [`CLIP`] if its deadline had passed unmet at the
    /// end.
    pub(super) domains: Vec<Vec<f64>>,
    /// Jobs that found a full backlog, counted as [`CLIP`]. Only kernels have any.
    pub(super) rejected: u64,
    /// Events that a full buffer did not take. Only kernels have any.
    pub(super) lost: u64,
}

impl Responsiveness {
    pub(super) fn add(&mut self, other: Responsiveness) {
        self.rejected += other.rejected;
        self.lost += other.lost;
        self.domains.resize(self.domains.len().max(other.domains.len()), Vec::new());
        for (own, more) in self.domains.iter_mut().zip(other.domains) {
            own.extend(more);
        }
    }

    pub(super) fn all(&self) -> Vec<f64> {
        self.domains.concat()
    }

    pub(super) fn last(&self) -> &[f64] {
        self.domains.last().map_or(&[], Vec::as_slice)
    }
}

/// The share of jobs that missed their deadline; `None` without jobs.
pub(super) fn miss_ratio(jobs: &[f64]) -> Option<f64> {
    let late = jobs.iter().filter(|ratio| **ratio > 1.0).count();
    (!jobs.is_empty()).then(|| late as f64 / jobs.len() as f64)
}

/// Runs `domains` under one rule; see [`Domains::system`] for `etf`.
pub(super) fn run(
    domains: &Domains,
    rule: ServerRule,
    etf: u64,
    seed: u64,
    duration: Span,
) -> Result<Responsiveness, Failure> {
    run_system(&domains.system(rule, etf), seed, duration)
}

pub(super) fn run_system(system: &System, seed: u64, duration: Span) -> Result<Responsiveness, Failure> {
    let mut jobs = Jobs::of(system);
    simulate(system, &SimOptions { duration, seed, node: None }, &mut jobs)
        .map_err(|error| Failure::trouble(&error))?;
    Ok(jobs.finish(Time::ZERO + duration))
}

pub(super) struct Jobs {
    /// By task: domain, deadline in ns, and arrivals of jobs that are not complete.
    tasks: Vec<(usize, f64, VecDeque<Time>)>,
    found: Responsiveness,
}

impl Jobs {
    pub(super) fn of(system: &System) -> Jobs {
        let task = |task: &takt_model::Task| {
            (task.component.map_or(0, |id| id.index()), task.deadline.as_ns() as f64, VecDeque::new())
        };
        Jobs {
            tasks: system.tasks.iter().map(task).collect(),
            found: Responsiveness { domains: vec![Vec::new(); system.components.len()], ..Responsiveness::default() },
        }
    }

    pub(super) fn finish(mut self, end: Time) -> Responsiveness {
        for (domain, deadline, open) in &self.tasks {
            let late = open.iter().filter(|arrival| end.saturating_since(**arrival).as_ns() as f64 >= *deadline);
            self.found.domains[*domain].extend(late.map(|_| CLIP));
        }
        self.found
    }
}

impl Sink for Jobs {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, .. } => self.tasks[job.task.index()].2.push_back(arrival),
            Event::Complete { job, .. } => {
                let (domain, deadline, open) = &mut self.tasks[job.task.index()];
                if let Some(arrival) = open.pop_front() {
                    let ratio = now.saturating_since(arrival).as_ns() as f64 / *deadline;
                    self.found.domains[*domain].push(ratio.min(CLIP));
                }
            }
            Event::Cancel { job, .. } => {
                let (domain, _, open) = &mut self.tasks[job.task.index()];
                if open.pop_back().is_some() {
                    self.found.domains[*domain].push(CLIP);
                    self.found.rejected += 1;
                }
            }
            Event::Lost { count } => self.found.lost += count,
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}
