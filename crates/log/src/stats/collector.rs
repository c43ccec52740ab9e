//! Counts as the events come.

use std::collections::VecDeque;

use takt_model::{NodeId, TaskId, Time};

use super::{ChainStats, CpuStats, Histogram, Stats, TaskStats};
use crate::definitions::{Definition, Definitions, NodeDef, TaskDef};
use crate::event::{CancelCause, Event, JobKey, Sink};
use crate::header::Header;
use crate::kind::{Kind, KindSet};
use crate::reader::{ReadError, Reader};

const NONE: u64 = u64::MAX;
const NO_CHAIN: u32 = u32::MAX;

/// A [`Sink`] that makes [`Stats`]. Memory grows with tasks and with jobs that are open at once, not with jobs.
///
/// Logs with gaps are counted as far as they tell: a job whose release or fate is missing is `censored`.
#[derive(Clone, Debug)]
pub struct Collector {
    definitions: Definitions,
    kinds: KindSet,
    latencies: bool,
    tasks: Vec<TaskState>,
    /// Busy time by CPU: those of node 0, then of node 1, ...
    busy: Vec<u64>,
    /// Responses of `definitions.chains`.
    chains: Vec<Histogram>,
    /// Events lost; `None` where it is not known how many.
    lost: Option<u64>,
}

#[derive(Clone, Debug)]
struct TaskState {
    /// Released and not yet ended, in the order of numbers.
    open: Open,
    /// The number that the next release has at least.
    next: u64,
    /// Relative; `NONE` where unknown.
    deadline: u64,
    missed: u64,
    cancelled: u64,
    /// Dropped at their deadline.
    dropped: u64,
    censored: u64,
    preemptions: u64,
    migrations: u64,
    /// The first of its node's CPUs in `busy`, and how many there are.
    cpus: (u32, u32),
    /// The chain that it ends.
    chain: u32,
    /// The stream it was last seen in.
    stream: u32,
    responses: Histogram,
    latencies: Option<Box<Histogram>>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    number: u64,
    arrival: u64,
    /// Of the chain's instance; `NONE` outside of chains.
    origin: u64,
    /// Since when it has been running on `cpu`; `NONE` while it is not.
    since: u64,
    cpu: u32,
    /// Events were lost since its release.
    doubtful: bool,
}

impl Job {
    /// Stands for no job.
    const ABSENT: Job = Job { number: NONE, arrival: 0, origin: NONE, since: NONE, cpu: 0, doubtful: false };
}

impl Collector {
    /// For events of these definitions from a back end that records these kinds. Numbers that need other kinds
    /// are null.
    #[must_use]
    pub fn new(definitions: &Definitions, kinds: KindSet) -> Self {
        let mut collector = Collector {
            definitions: Definitions::default(),
            kinds,
            latencies: false,
            tasks: Vec::new(),
            busy: Vec::new(),
            chains: Vec::new(),
            lost: Some(0),
        };
        collector.redefine(definitions);
        collector
    }

    /// Whether to measure how long after its nominal arrival a job is released; for live back ends.
    #[must_use]
    pub fn with_release_latency(mut self, on: bool) -> Self {
        self.latencies = on;
        let empty = || Some(Box::default());
        self.tasks.iter_mut().for_each(|task| task.latencies = if on { empty() } else { None });
        self
    }

    /// For the log with this header, release latencies where its back end is live.
    #[must_use]
    pub fn for_log(header: &Header, definitions: &Definitions) -> Self {
        Self::new(definitions, header.kinds).with_release_latency(header.back_end.is_live())
    }

    /// The statistics of all that a reader has left, definitions that come late included.
    ///
    /// # Errors
    /// As the reader's.
    pub fn read<R: std::io::Read>(reader: &mut Reader<R>) -> Result<Stats, ReadError> {
        let mut collector = Collector::for_log(reader.header(), reader.definitions());
        let end = reader.copy_to(&mut collector)?;
        Ok(collector.finish(end))
    }

    /// Takes in definitions that came late or changed. Changed deadlines hold for jobs that end from here on;
    /// laxities are told against the last one. Nothing is ever undefined: the lists are no shorter than before.
    pub fn redefine(&mut self, definitions: &Definitions) {
        let (bases, total) = bases(&definitions.nodes);
        if self.definitions.nodes != definitions.nodes {
            self.move_busy(&bases, total);
        }
        for (i, def) in definitions.tasks.iter().enumerate() {
            let cpus = bases.get(def.node.index()).copied().unwrap_or_default();
            self.place(i, def, cpus);
        }
        self.chains.resize_with(definitions.chains.len(), Histogram::default);
        for (i, chain) in definitions.chains.iter().enumerate() {
            if let Some(state) = self.tasks.get_mut(chain.sink.index()) {
                state.chain = i as u32;
            }
        }
        // A log can bring its definitions one by one: what is known already is not copied again.
        update(&mut self.definitions.nodes, &definitions.nodes);
        update(&mut self.definitions.tasks, &definitions.tasks);
        update(&mut self.definitions.chains, &definitions.chains);
        self.definitions.only = definitions.only;
    }

    /// Task `i`, no more than one behind the last, is this from here on.
    fn place(&mut self, i: usize, def: &TaskDef, cpus: (u32, u32)) {
        let deadline = def.deadline.map_or(NONE, |deadline| deadline.as_ns());
        if i == self.tasks.len() {
            self.tasks.push(TaskState {
                open: Open::default(),
                next: 0,
                deadline,
                missed: 0,
                cancelled: 0,
                dropped: 0,
                censored: 0,
                preemptions: 0,
                migrations: 0,
                cpus,
                chain: NO_CHAIN,
                stream: def.node.0,
                responses: Histogram::default(),
                latencies: self.latencies.then(Box::default),
            });
        }
        let state = &mut self.tasks[i];
        (state.deadline, state.cpus, state.chain) = (deadline, cpus, NO_CHAIN);
    }

    /// Takes in one definition; one whose number leaves a gap is none.
    #[cold]
    fn learn(&mut self, definition: &Definition) {
        match definition {
            // Recordings define thousands of tasks one by one.
            Definition::Task(id, def) => {
                if self.definitions.apply(definition.clone()).is_err() {
                    return;
                }
                let (bases, _) = bases(&self.definitions.nodes);
                self.place(id.index(), def, bases.get(def.node.index()).copied().unwrap_or_default());
                let chain = self.definitions.chains.iter().rposition(|chain| chain.sink == *id);
                self.tasks[id.index()].chain = chain.map_or(NO_CHAIN, |chain| chain as u32);
            }
            Definition::Node(..) | Definition::Chain(..) | Definition::Only(_) => {
                let mut definitions = self.definitions.clone();
                if definitions.apply(definition.clone()).is_ok() {
                    self.redefine(&definitions);
                }
            }
            _ => {}
        }
    }

    /// Rearranges `busy` when nodes were added or have other CPUs now.
    fn move_busy(&mut self, bases: &[(u32, u32)], total: u32) {
        let mut busy = vec![0; total as usize];
        let mut old_base = 0;
        for (node, (base, cpus)) in self.definitions.nodes.iter().zip(bases) {
            let old_cpus = node.cpus.min(super::CPUS_MAX);
            for cpu in 0..old_cpus.min(*cpus) {
                busy[(base + cpu) as usize] = self.busy[(old_base + cpu) as usize];
            }
            old_base += old_cpus;
        }
        self.busy = busy;
    }

    /// What happened up to `end`, which is how far the log reaches.
    #[must_use]
    pub fn finish(mut self, end: Time) -> Stats {
        let end = end.as_ns();
        let knows = |kinds: &[Kind]| kinds.iter().all(|kind| self.kinds.contains(*kind));
        let knows_fates = knows(&[Kind::Release, Kind::Complete]);
        let knows_cpus = knows(&[Kind::Start, Kind::Preempt, Kind::Resume, Kind::Complete]);
        let (preemptions, migrations) = (knows(&[Kind::Preempt]), knows(&[Kind::Migrate]));
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (state, def) in self.tasks.iter_mut().zip(&self.definitions.tasks) {
            let mut open = 0;
            for job in state.open.iter() {
                leave(&mut self.busy, state.cpus, job, end);
                if job.doubtful {
                    state.censored += 1;
                    continue;
                }
                open += 1;
                state.missed += u64::from(job.arrival.saturating_add(state.deadline) <= end);
            }
            let deadline = def.deadline.map(|deadline| deadline.as_ns());
            let responses = std::mem::take(&mut state.responses);
            let latencies = state.latencies.take();
            let seen = responses.count() + state.cancelled + state.dropped + open + state.censored;
            if seen == 0 && !self.definitions.covers(def.node) {
                continue;
            }
            tasks.push(TaskStats {
                task: def.name.clone(),
                node: self.definitions.node_name(def.node),
                released: responses.count() + state.cancelled + state.dropped + open,
                completed: responses.count(),
                missed: (knows_fates && deadline.is_some()).then_some(state.missed),
                cancelled: state.cancelled,
                unfinished: state.dropped + open,
                censored: state.censored,
                deadline_ns: deadline,
                response_ns: responses.summary(),
                laxity_ns: deadline.and_then(|deadline| responses.laxities(deadline)),
                preemptions: preemptions.then_some(state.preemptions),
                migrations: migrations.then_some(state.migrations),
                release_latency_ns: latencies.as_ref().map(|latencies| latencies.summary()),
                responses,
                release_latencies: latencies.map(|latencies| *latencies),
            });
        }
        let about = |sink: TaskId| {
            self.definitions.tasks.get(sink.index()).is_none_or(|task| self.definitions.covers(task.node))
        };
        let chains = self
            .definitions
            .chains
            .iter()
            .zip(self.chains)
            .filter(|(def, responses)| responses.count() > 0 || about(def.sink))
            .map(|(def, responses)| ChainStats {
                chain: def.name.clone(),
                response_ns: responses.summary(),
                responses,
            });
        let mut cpus = Vec::with_capacity(self.busy.len());
        let mut busy = self.busy.iter();
        for (i, node) in self.definitions.nodes.iter().enumerate() {
            for (cpu, busy) in (0..node.cpus.min(super::CPUS_MAX)).zip(busy.by_ref()) {
                let node = self.definitions.node_name(NodeId(i as u32));
                if *busy == 0 && !self.definitions.covers(NodeId(i as u32)) {
                    continue;
                }
                cpus.push(CpuStats { node, cpu, busy_ns: knows_cpus.then_some(*busy) });
            }
        }
        Stats { duration_ns: end, tasks, chains: chains.collect(), cpus, lost_events: self.lost }
    }

    /// Events of the stream are missing: its open jobs may have ended unseen, and nobody knows since when they
    /// have been running.
    #[cold]
    fn lose(&mut self, stream: u32, count: u64) {
        self.lost = if count == 0 { None } else { self.lost.and_then(|lost| lost.checked_add(count)) };
        for task in self.tasks.iter_mut().filter(|task| task.stream == stream) {
            for job in task.open.iter_mut() {
                (job.doubtful, job.since) = (true, NONE);
            }
        }
    }
}

impl Sink for Collector {
    /// Always inlined: where the event's kind is known, one direct call is left.
    #[inline(always)]
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        let now = now.as_ns();
        match *event {
            Event::Release { job, arrival, parent } => {
                let origin = parent.map_or(NONE, |parent| parent.origin.as_ns());
                self.release(stream, now, job, arrival.as_ns(), origin);
            }
            Event::Start { job, cpu } | Event::Resume { job, cpu } => self.run(now, job, cpu),
            Event::Preempt { job, .. } => self.stop(now, job, 1),
            Event::Block { job, .. } => self.stop(now, job, 0),
            Event::Migrate { job, .. } => {
                if let Some(task) = self.tasks.get_mut(job.task.index()) {
                    task.migrations += 1;
                }
            }
            Event::Complete { job, .. } => self.complete(now, job),
            Event::Cancel { job, cause } => self.cancel(now, job, cause),
            Event::Lost { count } => self.lose(stream, count),
            _ => {}
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        self.learn(definition);
    }

    /// Misses follow from completions.
    fn wants_misses(&self) -> bool {
        false
    }
}

impl Collector {
    #[inline(always)]
    fn release(&mut self, stream: u32, now: u64, job: JobKey, arrival: u64, origin: u64) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        let number = job.number;
        // No job has the number `NONE`: half a million years of jobs a microsecond apart come before it.
        if number < task.next || number == NONE {
            return;
        }
        (task.next, task.stream) = (number.saturating_add(1), stream);
        // Of a job whose thread was busy, the nominal release is recorded, which is no measurement.
        if let Some(latencies) = &mut task.latencies
            && origin == NONE
            && task.open.iter().next().is_none()
        {
            latencies.record_apart(now.saturating_sub(arrival));
        }
        task.open.push(Job { number, arrival, origin, since: NONE, cpu: 0, doubtful: false });
    }

    fn run(&mut self, now: u64, job: JobKey, cpu: u32) {
        if let Some(job) = self.tasks.get_mut(job.task.index()).and_then(|task| task.find(job)) {
            // An event of a doubtful job proves that it is still open.
            (job.since, job.cpu, job.doubtful) = (now, cpu, false);
        }
    }

    fn stop(&mut self, now: u64, job: JobKey, preemptions: u64) {
        if let Some(task) = self.tasks.get_mut(job.task.index()) {
            task.preemptions += preemptions;
            task.leave(&mut self.busy, job, now);
        }
    }

    #[inline(always)]
    fn complete(&mut self, now: u64, job: JobKey) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        let number = job.number;
        // Nearly always the first: then it is read where it stands.
        if task.open.first.number == number && number != NONE {
            let job = task.open.first;
            task.open.drop_first();
            task.completed(now, &job, &mut self.busy, &mut self.chains);
        } else {
            self.complete_later(now, job);
        }
    }

    #[cold]
    fn complete_later(&mut self, now: u64, job: JobKey) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        if let Some(job) = task.take_later(job.number) {
            task.completed(now, &job, &mut self.busy, &mut self.chains);
        }
    }

    fn cancel(&mut self, now: u64, job: JobKey, cause: CancelCause) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        let Some(job) = task.take(job.number) else { return };
        leave(&mut self.busy, task.cpus, &job, now);
        if cause == CancelCause::Late {
            task.dropped += 1;
            task.missed += 1;
        } else {
            task.cancelled += 1;
        }
    }
}

impl TaskState {
    /// Counts a job that has completed and is no longer among the open ones.
    #[inline(always)]
    fn completed(&mut self, now: u64, job: &Job, busy: &mut [u64], chains: &mut [Histogram]) {
        leave(busy, self.cpus, job, now);
        let response = now.saturating_sub(job.arrival);
        self.missed += u64::from(response > self.deadline);
        self.responses.record(response);
        if job.origin != NONE
            && let Some(chain) = chains.get_mut(self.chain as usize)
        {
            chain.record_apart(now.saturating_sub(job.origin));
        }
    }

    #[inline]
    fn find(&mut self, job: JobKey) -> Option<&mut Job> {
        self.open.find(job.number)
    }

    /// The job loses its CPU.
    #[inline]
    fn leave(&mut self, busy: &mut [u64], job: JobKey, now: u64) {
        let cpus = self.cpus;
        if let Some(job) = self.find(job) {
            leave(busy, cpus, job, now);
            job.since = NONE;
        }
    }

    /// Takes out a job that ends. One that was never released is censored; so are earlier ones that lost events
    /// may have ended, for jobs of a task end in order.
    #[inline]
    fn take(&mut self, number: u64) -> Option<Job> {
        let first = self.open.first;
        if first.number == number && number != NONE {
            self.open.drop_first();
            return Some(first);
        }
        self.take_later(number)
    }

    #[cold]
    fn take_later(&mut self, number: u64) -> Option<Job> {
        if let Some((job, doubtful)) = self.open.take_later(number) {
            self.censored += doubtful;
            return Some(job);
        }
        // A second end of one job is no second job.
        if number >= self.next {
            self.next = number.saturating_add(1);
            self.censored += 1;
        }
        None
    }
}

/// The open jobs of a task in the order of numbers. Most tasks have one at a time: the first stands apart, at hand.
#[derive(Clone, Debug)]
struct Open {
    /// Its number is `NONE` where there is no job.
    first: Job,
    later: VecDeque<Job>,
}

impl Default for Open {
    fn default() -> Self {
        Open { first: Job::ABSENT, later: VecDeque::new() }
    }
}

impl Open {
    /// Adds the job with the largest number so far.
    #[inline]
    fn push(&mut self, job: Job) {
        if self.first.number == NONE {
            self.first = job;
        } else {
            self.later.push_back(job);
        }
    }

    /// Takes out the first job.
    #[inline]
    fn drop_first(&mut self) {
        // Asked first: most often none waits, and then no job is moved.
        if self.later.is_empty() {
            self.first.number = NONE;
        } else {
            self.first = self.later.pop_front().unwrap_or(Job::ABSENT);
        }
    }

    #[inline]
    fn find(&mut self, number: u64) -> Option<&mut Job> {
        if self.first.number == number && number != NONE { Some(&mut self.first) } else { self.find_later(number) }
    }

    #[inline(never)]
    fn find_later(&mut self, number: u64) -> Option<&mut Job> {
        let at = self.later.binary_search_by_key(&number, |job| job.number).ok()?;
        self.later.get_mut(at)
    }

    /// Takes out a job other than the first, with all doubtful ones before it; says how many these were.
    fn take_later(&mut self, number: u64) -> Option<(Job, u64)> {
        let at = self.later.binary_search_by_key(&number, |job| job.number).ok()?;
        let job = self.later.remove(at)?;
        let before = self.len();
        self.later.retain(|job| !(job.doubtful && job.number < number));
        if self.first.doubtful && self.first.number < number {
            self.drop_first();
        }
        Some((job, (before - self.len()) as u64))
    }

    fn len(&self) -> usize {
        usize::from(self.first.number != NONE) + self.later.len()
    }

    fn iter(&self) -> impl Iterator<Item = &Job> {
        Some(&self.first).filter(|job| job.number != NONE).into_iter().chain(&self.later)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        Some(&mut self.first).filter(|job| job.number != NONE).into_iter().chain(&mut self.later)
    }
}

/// Makes `mine` equal to `other`, which is no shorter.
fn update<T: Clone + PartialEq>(mine: &mut Vec<T>, other: &[T]) {
    for (mine, other) in mine.iter_mut().zip(other).filter(|(mine, other)| mine != other) {
        mine.clone_from(other);
    }
    let known = mine.len();
    mine.extend(other.iter().skip(known).cloned());
}

/// For each node, where its CPUs start among all, and how many they are; how many all are.
fn bases(nodes: &[NodeDef]) -> (Vec<(u32, u32)>, u32) {
    let mut total = 0u32;
    let each = nodes.iter().map(|node| {
        let cpus = node.cpus.min(super::CPUS_MAX);
        let base = total;
        total = total.saturating_add(cpus);
        (base, cpus)
    });
    (each.collect(), total)
}

/// Counts the time since a job got its CPU.
#[inline]
fn leave(busy: &mut [u64], (base, cpus): (u32, u32), job: &Job, now: u64) {
    if job.since != NONE
        && job.cpu < cpus
        && let Some(busy) = busy.get_mut((base + job.cpu) as usize)
    {
        *busy = busy.saturating_add(now.saturating_sub(job.since));
    }
}
