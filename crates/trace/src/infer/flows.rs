//! Flows, table tasks and networks, from the messages of a log.
//!
//! A receiving job releases one job for each message, when it completes. That job has the number of
//! the job that sent the message. So messages show which task follows which on another node, which
//! tasks receive and send, and how long the network takes.

use std::collections::{BTreeMap, BTreeSet};

use takt_log::{Definitions, Event, JobKey, Sink};
use takt_model::{Bytes, NodeId, Span, TaskId, Time};

use super::Inferred;

/// Messages on their way, and open jobs, that are remembered at most; of more, some are forgotten.
const OPEN_MAX: usize = 1 << 16;

/// A flow as its messages tell it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferredFlow {
    /// Its name: what the names of its hops have in common, or that of its first hop.
    pub name: String,
    /// The tasks of its hops, in their order: places in [`Inferred::tasks`].
    pub hops: Vec<TaskId>,
    /// Instances that came to their end.
    pub instances: u64,
    /// The shortest time between two messages of one hop.
    pub send_gap: Option<Span>,
    /// The longest time from the arrival of an instance to its completion on the last hop.
    pub longest: Option<Span>,
    /// The largest message that left on a link. `None` where the log does not tell of links.
    pub size: Option<Bytes>,
}

/// What the network between two nodes was seen to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InferredNetwork {
    /// The sending node.
    pub from: NodeId,
    /// The receiving node.
    pub to: NodeId,
    /// The shortest and longest time from send to arrival.
    pub delay: (Span, Span),
    /// Messages that arrived.
    pub messages: u64,
}

/// Receiving, sending and synchronising tasks of a node: places in [`Inferred::tasks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tables {
    /// Its jobs take messages.
    pub receive: Option<TaskId>,
    /// Its jobs give messages to the network.
    pub send: Option<TaskId>,
    /// Its messages release no job elsewhere.
    pub sync: Option<TaskId>,
}

/// Flows of a log, and all that carries them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Flows over several nodes.
    pub flows: Vec<InferredFlow>,
    /// By pair of nodes.
    pub networks: Vec<InferredNetwork>,
    /// By node with table tasks.
    pub tables: BTreeMap<NodeId, Tables>,
}

/// A [`Sink`] that keeps what a log tells of messages.
#[derive(Clone, Debug, Default)]
pub struct MessageSampler {
    /// By task and number: when and from which stream it was sent.
    open: BTreeMap<(TaskId, u64), (Time, u32)>,
    streams: BTreeMap<u32, Stream>,
    /// How often a message of the first task released a job of the second.
    links: BTreeMap<(TaskId, TaskId), u64>,
    networks: BTreeMap<(u32, u32), InferredNetwork>,
    /// Messages that have not left on their links, by stream and number: their task.
    leaving: BTreeMap<(u32, u64), TaskId>,
    /// By task that leaves messages: the largest that left on a link, in bytes.
    sizes: BTreeMap<TaskId, u32>,
    /// By task that leaves messages: when the last one was sent, and the least distance.
    sent: BTreeMap<TaskId, (Time, Option<Span>)>,
    /// Arrivals of instances whose jobs are open.
    origins: BTreeMap<JobKey, Time>,
    /// By task: completions, and the longest time from the arrival of the instance.
    ends: BTreeMap<TaskId, (u64, Span)>,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    /// The task whose job completed last.
    completed: Option<TaskId>,
    receive: Option<TaskId>,
    send: Option<TaskId>,
    /// The instant of what was taken.
    at: Time,
    taken: Vec<JobKey>,
}

impl MessageSampler {
    /// Whether the log told of a message that was sent.
    #[must_use]
    pub fn saw_messages(&self) -> bool {
        !self.sent.is_empty()
    }

    fn send(&mut self, stream: u32, now: Time, job: JobKey, message: u64) {
        let of = self.streams.entry(stream).or_default();
        of.send = of.completed.or(of.send);
        let (last, least) = self.sent.entry(job.task).or_insert((now, None));
        let apart = now.saturating_since(*last);
        if !apart.is_zero() {
            *least = Some(least.map_or(apart, |least| least.min(apart)));
        }
        *last = now;
        self.open.insert((job.task, message), (now, stream));
        if self.open.len() > OPEN_MAX {
            self.open.pop_first();
        }
        self.leaving.insert((stream, message), job.task);
        if self.leaving.len() > OPEN_MAX {
            self.leaving.pop_first();
        }
    }

    fn transmit(&mut self, stream: u32, message: u64, bytes: u32) {
        if let Some(task) = self.leaving.remove(&(stream, message)) {
            let most = self.sizes.entry(task).or_default();
            *most = bytes.max(*most);
        }
    }

    fn arrive(&mut self, stream: u32, now: Time, job: JobKey, message: u64) {
        let Some((sent, from)) = self.open.remove(&(job.task, message)) else { return };
        let delay = now.saturating_since(sent);
        let new = InferredNetwork { from: NodeId(from), to: NodeId(stream), delay: (delay, delay), messages: 0 };
        let network = self.networks.entry((from, stream)).or_insert(new);
        network.delay = (network.delay.0.min(delay), network.delay.1.max(delay));
        network.messages += 1;
    }

    fn receive(&mut self, stream: u32, now: Time, job: JobKey) {
        let of = self.streams.entry(stream).or_default();
        of.receive = of.completed.or(of.receive);
        if of.at != now {
            (of.at, of.taken) = (now, Vec::new());
        }
        of.taken.push(job);
    }

    fn release(&mut self, stream: u32, now: Time, job: JobKey, origin: Time) {
        self.origins.insert(job, origin);
        if self.origins.len() > OPEN_MAX {
            self.origins.pop_first();
        }
        let Some(of) = self.streams.get_mut(&stream).filter(|of| of.at == now) else { return };
        if let Some(at) = of.taken.iter().position(|sent| sent.number == job.number && sent.task != job.task) {
            let sender = of.taken.remove(at).task;
            *self.links.entry((sender, job.task)).or_default() += 1;
        }
    }

    fn complete(&mut self, stream: u32, now: Time, job: JobKey) {
        self.streams.entry(stream).or_default().completed = Some(job.task);
        if let Some(origin) = self.origins.remove(&job) {
            let (count, longest) = self.ends.entry(job.task).or_default();
            *count += 1;
            *longest = (*longest).max(now.saturating_since(origin));
        }
    }

    /// The task that most of a task's messages release.
    fn followers(&self) -> BTreeMap<TaskId, TaskId> {
        let mut best: BTreeMap<TaskId, (u64, TaskId)> = BTreeMap::new();
        for ((from, to), count) in &self.links {
            let known = best.entry(*from).or_insert((*count, *to));
            if *count > known.0 {
                *known = (*count, *to);
            }
        }
        best.into_iter().map(|(from, (_, to))| (from, to)).collect()
    }

    /// The flows among the tasks of `definitions`, by the numbers of the log.
    fn chains(&self) -> Vec<Vec<TaskId>> {
        let followers = self.followers();
        let later: BTreeSet<TaskId> = followers.values().copied().collect();
        let mut chains = Vec::new();
        for first in followers.keys().filter(|task| !later.contains(task)) {
            let mut chain = vec![*first];
            while let Some(next) =
                chain.last().and_then(|last| followers.get(last)).filter(|next| !chain.contains(next))
            {
                chain.push(*next);
            }
            chains.push(chain);
        }
        chains
    }
}

impl Sink for MessageSampler {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Send { job, message, .. } => self.send(stream, now, job, message),
            Event::Arrive { job, message, .. } => self.arrive(stream, now, job, message),
            Event::Receive { job, .. } => self.receive(stream, now, job),
            Event::Drop { job, message, .. } => drop(self.open.remove(&(job.task, message))),
            Event::Release { job, arrival, parent } => {
                self.release(stream, now, job, parent.map_or(arrival, |parent| parent.origin));
            }
            Event::Complete { job, .. } => self.complete(stream, now, job),
            Event::Cancel { job, .. } => drop(self.origins.remove(&job)),
            Event::Transmit { message, bytes } => self.transmit(stream, message, bytes),
            Event::Lost { .. } => {
                self.open.clear();
                self.leaving.clear();
                self.origins.clear();
            }
            _ => {}
        }
    }
}

impl Inferred {
    /// Adds what messages tell. `definitions` are those of the log of which this was inferred.
    #[must_use]
    pub fn with_messages(mut self, seen: &MessageSampler, definitions: &Definitions) -> Inferred {
        let places = self.places();
        let place = |task: TaskId| places.get(&task).map(|at| TaskId(*at as u32));
        let chains = seen.chains();
        let in_flows: BTreeSet<TaskId> = chains.iter().flatten().copied().collect();
        let flows = chains.into_iter().filter_map(|chain| {
            let hops: Option<Vec<TaskId>> = chain.iter().map(|task| place(*task)).collect();
            let ends = chain.last().and_then(|last| seen.ends.get(last));
            let gaps = chain.iter().filter_map(|task| seen.sent.get(task)?.1);
            let name = |task: &TaskId| definitions.task_name(*task);
            Some(InferredFlow {
                name: common_name(&chain.iter().map(name).collect::<Vec<_>>()),
                hops: hops?,
                instances: ends.map_or(0, |(count, _)| *count),
                send_gap: gaps.min(),
                longest: ends.map(|(_, longest)| *longest),
                size: chain.iter().filter_map(|task| seen.sizes.get(task)).max().map(|size| Bytes::new((*size).into())),
            })
        });
        let flows: Vec<InferredFlow> = flows.collect();
        let mut tables: BTreeMap<NodeId, Tables> = BTreeMap::new();
        for (stream, of) in seen.streams.iter().filter(|(_, of)| of.receive.or(of.send).is_some()) {
            let (receive, send) = (of.receive.and_then(place), of.send.and_then(place));
            tables.insert(NodeId(*stream), Tables { receive, send, sync: None });
        }
        let of_table: BTreeSet<TaskId> = seen.streams.values().flat_map(|of| [of.receive, of.send]).flatten().collect();
        for task in seen.sent.keys().filter(|task| !in_flows.contains(task) && !of_table.contains(task)) {
            if let (Some(def), Some(at)) = (definitions.tasks.get(task.index()), place(*task)) {
                tables.entry(def.node).or_default().sync = Some(at);
            }
        }
        self.traffic = Traffic { flows, networks: seen.networks.values().copied().collect(), tables };
        self
    }
}

impl Traffic {
    /// Gives tasks new places. A flow of which a task is gone goes.
    pub(super) fn move_tasks(&mut self, place: impl Fn(TaskId) -> Option<TaskId>) {
        self.flows.retain_mut(|flow| {
            let hops: Option<Vec<TaskId>> = flow.hops.iter().map(|hop| place(*hop)).collect();
            hops.map(|hops| flow.hops = hops).is_some()
        });
        for tables in self.tables.values_mut() {
            for task in [&mut tables.receive, &mut tables.send, &mut tables.sync] {
                *task = task.and_then(&place);
            }
        }
        if self.flows.is_empty() {
            *self = Traffic::default();
        }
    }

    /// The tasks that a System does not name as its own: hops, and those that carry messages.
    pub(super) fn tasks(&self) -> BTreeSet<TaskId> {
        let tables = self.tables.values().flat_map(|tables| [tables.receive, tables.send, tables.sync]);
        self.flows.iter().flat_map(|flow| flow.hops.iter().copied()).chain(tables.flatten()).collect()
    }
}

/// `put` of `put/0`, `put/1`; the first name where they are not so.
fn common_name(names: &[String]) -> String {
    let stem = |name: &String| name.rsplit_once('/').map(|(stem, _)| stem.to_owned());
    let first = names.first().and_then(stem);
    let same = names.iter().all(|name| stem(name) == first);
    first.filter(|_| same).or_else(|| names.first().cloned()).unwrap_or_default()
}
