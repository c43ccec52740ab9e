//! One simulation counted: responses, switches, misses, and waits of messages.

use std::collections::BTreeMap;

use takt_log::stats::Histogram;
use takt_log::{Event, JobKey, Sink};
use takt_model::flows::{Role, lower};
use takt_model::{FlowId, Span, System, TaskId, Time};
use takt_sim::{SimOptions, simulate};

use super::ring::{FRAME, NODES};
use crate::failure::Failure;

#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// End-to-end responses, by flow.
    pub(super) flows: Vec<Histogram>,
    /// Responses of the local task, by node.
    pub(super) locals: Vec<Histogram>,
    /// The missed deadlines of flows and local tasks, and all their deadlines.
    pub(super) missed: u64,
    pub(super) due: u64,
    /// Jobs of flows and local tasks that lost the CPU, a second and node.
    pub(super) preemptions: f64,
    /// Times that any job got the CPU, a second and node.
    pub(super) switches: f64,
    /// The switches in each window of a frame's length on each node.
    pub(super) switches_by_window: Histogram,
    /// From a message's arrival at a node to the release of its job.
    pub(super) arrival_to_job: Histogram,
    /// The least distance of two messages of a hop at their node.
    pub(super) send_distance_min: Option<Span>,
}

impl Outcome {
    pub(super) fn miss_percent(&self) -> Option<f64> {
        (self.due > 0).then(|| self.missed as f64 * 100.0 / self.due as f64)
    }
}

/// The 99th percentile less the first; `None` without values.
pub(super) fn p99_minus_p1(of: &Histogram) -> Option<u64> {
    Some(of.percentile(99)?.saturating_sub(of.percentile(1)?))
}

/// The largest less the smallest; `None` without values.
pub(super) fn range(of: &Histogram) -> Option<u64> {
    of.summary().map(|all| all.max - all.min)
}

pub(super) fn run(system: &System, seed: u64, duration: Span) -> Result<Outcome, Failure> {
    let mut counter = Counter::new(system);
    simulate(system, &SimOptions { duration, seed, node: None }, &mut counter)
        .map_err(|error| Failure::trouble(&error))?;
    Ok(counter.finish(duration))
}

/// The role of a task in the measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Local(usize),
    /// A hop before the last.
    Intermediate,
    Last(usize),
    /// A table task or interrupts.
    Table,
}

struct Counter {
    /// By task, with its deadline.
    parts: Vec<(Part, Span)>,
    /// Origins of jobs whose response counts and that have not ended.
    open: BTreeMap<JobKey, Time>,
    /// Arrivals of messages that wait, by the job that left them.
    waiting: BTreeMap<JobKey, Time>,
    /// The last send of each task.
    last_sends: BTreeMap<TaskId, Time>,
    /// By node: the number of the window, and switches in it.
    windows: Vec<(u64, u64)>,
    preemptions: u64,
    switches: u64,
    found: Outcome,
}

impl Counter {
    fn new(system: &System) -> Counter {
        let lowered = lower(system).expect("the system has flows");
        let part = |(i, task): (usize, &takt_model::Task)| {
            let part = match lowered.role(TaskId(i as u32)) {
                None => Part::Local(task.node.index()),
                Some(Role::Hop { flow, hop }) if is_last(system, flow, hop) => Part::Last(flow.index()),
                Some(Role::Hop { .. }) => Part::Intermediate,
                Some(_) => Part::Table,
            };
            (part, task.deadline)
        };
        let flows = vec![Histogram::default(); system.flows.len()];
        let locals = vec![Histogram::default(); system.nodes.len()];
        Counter {
            parts: lowered.system.tasks.iter().enumerate().map(part).collect(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_sends: BTreeMap::new(),
            windows: vec![(0, 0); system.nodes.len()],
            preemptions: 0,
            switches: 0,
            found: Outcome { flows, locals, ..Outcome::default() },
        }
    }

    fn part(&self, job: JobKey) -> (Part, Span) {
        self.parts[job.task.index()]
    }

    fn switched(&mut self, node: u32, now: Time) {
        self.switches += 1;
        let window = now.as_ns() / FRAME.as_ns();
        let (current, count) = &mut self.windows[node as usize];
        // Windows without a switch count as well.
        while *current < window {
            self.found.switches_by_window.record(*count);
            (*current, *count) = (*current + 1, 0);
        }
        *count += 1;
    }

    fn finish(mut self, duration: Span) -> Outcome {
        let end = Time::ZERO + duration;
        for (job, origin) in &self.open {
            let late = end.saturating_since(*origin) >= self.part(*job).1;
            (self.found.due, self.found.missed) =
                (self.found.due + u64::from(late), self.found.missed + u64::from(late));
        }
        let seconds = duration.as_ns() as f64 / 1e9 * f64::from(NODES);
        self.found.preemptions = self.preemptions as f64 / seconds;
        self.found.switches = self.switches as f64 / seconds;
        self.found
    }
}

fn is_last(system: &System, flow: FlowId, hop: u32) -> bool {
    system.flows[flow.index()].hops().count() == hop as usize + 1
}

impl Sink for Counter {
    fn event(&mut self, node: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, parent } if matches!(self.part(job).0, Part::Local(_) | Part::Last(_)) => {
                self.open.insert(job, parent.map_or(arrival, |parent| parent.origin));
            }
            Event::Start { .. } | Event::Resume { .. } => self.switched(node, now),
            Event::Preempt { job, .. } if self.part(job).0 != Part::Table => self.preemptions += 1,
            Event::Complete { job, .. } => {
                let Some(origin) = self.open.remove(&job) else { return };
                let (part, deadline) = self.part(job);
                let response = now.saturating_since(origin);
                self.found.due += 1;
                self.found.missed += u64::from(response > deadline);
                match part {
                    Part::Local(node) => self.found.locals[node].record(response.as_ns()),
                    Part::Last(flow) => self.found.flows[flow].record(response.as_ns()),
                    Part::Intermediate | Part::Table => {}
                }
            }
            Event::Arrive { job, .. } => {
                self.waiting.insert(job, now);
            }
            Event::Receive { job, .. } => {
                if let Some(arrived) = self.waiting.remove(&job) {
                    self.found.arrival_to_job.record(now.saturating_since(arrived).as_ns());
                }
            }
            Event::Send { job, .. } => {
                if let Some(before) = self.last_sends.insert(job.task, now) {
                    let distance = now.saturating_since(before);
                    self.found.send_distance_min =
                        Some(self.found.send_distance_min.map_or(distance, |least| least.min(distance)));
                }
            }
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}
