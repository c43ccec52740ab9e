//! Messages that wait when receiving jobs start, counted in the events of a simulation.

use std::collections::BTreeMap;

use takt_log::{Event, JobKey, Sink};
use takt_model::flows::{Role, lower};
use takt_model::{Span, System, TaskId, Time};
use takt_sim::{SimOptions, simulate};

use crate::failure::Failure;

#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    /// By flow and receiving hop, from 1: how many receiving jobs took so many of its messages at
    /// once; index 0 is never used.
    pub(super) taken: BTreeMap<(usize, u32), Vec<u64>>,
    /// Messages that a receiving job left in the buffer, of all nodes and jobs.
    pub(super) left_over: u64,
    /// Receiving jobs that left any, by node.
    pub(super) exhausted: Vec<u64>,
    /// The most messages that waited at the start of a receiving job.
    pub(super) waiting_max: u64,
    pub(super) responses: Vec<Span>,
    pub(super) missed: u64,
    pub(super) received: u64,
}

impl Batches {
    /// k: the most messages of a flow that one job on a hop took.
    pub(super) fn most(&self, flow: usize, hop: u32) -> u64 {
        self.taken.get(&(flow, hop)).map_or(0, |counts| counts.len().saturating_sub(1) as u64)
    }
}

pub(super) fn run(system: &System, seed: u64, duration: Span) -> Result<Batches, Failure> {
    let mut counter = Counter::of(system);
    simulate(system, &SimOptions { duration, seed, node: None }, &mut counter)
        .map_err(|error| Failure::trouble(&error))?;
    Ok(counter.finish())
}

#[derive(Clone, Debug, Default)]
struct Buffer {
    waiting: u64,
    /// Messages that waited when the last job started.
    at_start: u64,
    /// The messages that the job took, by the hop that left them.
    batch: BTreeMap<(usize, u32), usize>,
}

struct Counter {
    roles: BTreeMap<TaskId, Role>,
    /// The last hop of each flow.
    last: Vec<u32>,
    buffers: Vec<Buffer>,
    origins: BTreeMap<JobKey, Time>,
    found: Batches,
}

impl Counter {
    fn of(system: &System) -> Counter {
        let lowered = lower(system);
        let roles = lowered.iter().flat_map(|lowered| {
            let ids = (0..lowered.system.tasks.len() as u32).map(TaskId);
            ids.filter_map(|id| Some((id, lowered.role(id)?)))
        });
        Counter {
            roles: roles.collect(),
            last: system.flows.iter().map(|flow| flow.hops().count() as u32 - 1).collect(),
            buffers: vec![Buffer::default(); system.nodes.len()],
            origins: BTreeMap::new(),
            found: Batches {
                exhausted: vec![0; system.nodes.len()],
                responses: vec![Span::ZERO; system.flows.len()],
                ..Batches::default()
            },
        }
    }

    fn hop(&self, job: JobKey) -> Option<(usize, u32)> {
        match self.roles.get(&job.task) {
            Some(Role::Hop { flow, hop }) => Some((flow.index(), *hop)),
            _ => None,
        }
    }

    fn close(&mut self, node: usize) {
        let buffer = &mut self.buffers[node];
        let taken: usize = buffer.batch.values().sum();
        let left = buffer.at_start.saturating_sub(taken as u64);
        self.found.left_over += left;
        self.found.exhausted[node] += u64::from(left > 0);
        for ((flow, hop), count) in std::mem::take(&mut buffer.batch) {
            let counts = self.found.taken.entry((flow, hop + 1)).or_default();
            counts.resize(counts.len().max(count + 1), 0);
            counts[count] += 1;
        }
        buffer.at_start = 0;
    }

    fn finish(mut self) -> Batches {
        (0..self.buffers.len()).for_each(|node| self.close(node));
        self.found
    }
}

impl Sink for Counter {
    fn event(&mut self, node: u32, now: Time, event: &Event) {
        let at = node as usize;
        match *event {
            Event::Arrive { .. } => self.buffers[at].waiting += 1,
            Event::Start { job, .. } if self.roles.get(&job.task) == Some(&Role::Receive) => {
                self.close(at);
                self.buffers[at].at_start = self.buffers[at].waiting;
                self.found.waiting_max = self.found.waiting_max.max(self.buffers[at].waiting);
            }
            Event::Receive { job, .. } => {
                self.buffers[at].waiting = self.buffers[at].waiting.saturating_sub(1);
                self.found.received += 1;
                if let Some(hop) = self.hop(job) {
                    *self.buffers[at].batch.entry(hop).or_default() += 1;
                }
            }
            Event::Release { job, arrival, parent } if self.hop(job).is_some() => {
                self.origins.insert(job, parent.map_or(arrival, |parent| parent.origin));
            }
            Event::Miss { job } if self.hop(job).is_some() => self.found.missed += 1,
            Event::Complete { job, .. } => {
                let Some((flow, hop)) = self.hop(job) else { return };
                let origin = self.origins.remove(&job);
                if let Some(origin) = origin.filter(|_| self.last[flow] == hop) {
                    let response = now.saturating_since(origin);
                    self.found.responses[flow] = self.found.responses[flow].max(response);
                }
            }
            _ => {}
        }
    }
}
