//! Counts as the events come.

use takt_model::{NodeId, Time};

use super::interrupts::{Cpu, Interrupt};
use super::messages::{Messages, Step};
use super::open::{Censored, Job, NONE, Open};
use super::servers::{Server, ServerStep};
use super::{Histogram, Stats};
use crate::definitions::{Definition, Definitions, NodeDef, TaskDef};
use crate::error::ReadError;
use crate::event::{CancelCause, Event, JobKey, Sink};
use crate::header::Header;
use crate::kind::{Kind, KindSet};
use crate::reader::Reader;

pub(super) const NO_CHAIN: u32 = u32::MAX;

/// A [`Sink`] that makes [`Stats`]. Memory grows with tasks and with jobs that are open at once, not with jobs.
///
/// Logs with gaps are counted as far as they tell: a job whose release or fate is missing is `censored`.
#[derive(Clone, Debug)]
pub struct Collector {
    pub(super) definitions: Definitions,
    pub(super) recorded: Recorded,
    pub(super) latencies: bool,
    pub(super) tasks: Vec<TaskState>,
    /// By CPU: those of node 0, then of node 1, ...
    pub(super) cpus: Vec<Cpu>,
    /// By number.
    pub(super) interrupts: Vec<Interrupt>,
    /// Of `definitions.servers`.
    pub(super) servers: Vec<Server>,
    pub(super) messages: Messages,
    /// Responses of `definitions.chains`.
    pub(super) chains: Vec<Histogram>,
    /// Events lost; `None` where it is not known how many.
    pub(super) lost: Option<u64>,
    /// The start of the interval that is being counted, see [`Collector::cut`].
    pub(super) from: u64,
}

/// The facts that a back end's kinds of event tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    /// The fates of jobs.
    pub(super) fates: bool,
    /// When jobs held CPUs.
    pub(super) cpus: bool,
    pub(super) starts: bool,
    pub(super) releases: bool,
    pub(super) interrupts: bool,
    pub(super) preemptions: bool,
    pub(super) migrations: bool,
    /// Payments of servers.
    pub(super) payments: bool,
    /// Messages that leave on links.
    pub(super) transmits: bool,
    /// Whether what [`Collector::brief`] leaves out is wanted.
    pub(super) details: bool,
}

impl Recorded {
    fn of(kinds: KindSet) -> Self {
        let recorded = |all: &[Kind]| all.iter().all(|kind| kinds.contains(*kind));
        Recorded {
            fates: recorded(&[Kind::Release, Kind::Complete]),
            cpus: recorded(&[Kind::Start, Kind::Preempt, Kind::Resume, Kind::Complete]),
            starts: recorded(&[Kind::Release, Kind::Start]),
            releases: recorded(&[Kind::Release]),
            interrupts: recorded(&[Kind::IrqEnter, Kind::IrqExit]),
            preemptions: recorded(&[Kind::Preempt]),
            migrations: recorded(&[Kind::Migrate]),
            payments: recorded(&[Kind::Charge]),
            transmits: recorded(&[Kind::Send, Kind::Transmit]),
            details: true,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct TaskState {
    /// Released and not yet ended, in the order of numbers.
    pub(super) open: Open,
    /// The number that the next release has at least.
    next: u64,
    /// Relative; `NONE` where unknown.
    pub(super) deadline: u64,
    pub(super) missed: u64,
    pub(super) cancelled: u64,
    /// Not queued when they arrived.
    pub(super) rejected: u64,
    /// Dropped at their deadline, or failed.
    pub(super) dropped: u64,
    pub(super) censored: u64,
    /// Open at the end of the interval before, and not censored since.
    pub(super) carried: u64,
    /// Released with an arrival that is not exact.
    pub(super) uncertain: u64,
    pub(super) preemptions: u64,
    pub(super) migrations: u64,
    /// Events were lost while a job of it was open: nobody knows how often that was preempted.
    pub(super) holes: bool,
    /// How long its jobs that are over or not running held CPUs.
    pub(super) busy: u64,
    /// The first of its node's CPUs in `cpus`, and how many there are.
    pub(super) cpus: (u32, u32),
    /// The chain that it ends.
    chain: u32,
    /// The stream it was last seen in.
    pub(super) stream: u32,
    /// The nominal arrival of job `next - 1`; `NONE` where it is not exact or unknown.
    last: u64,
    /// The job whose arrival is not exact, which is the next to be released.
    window: u64,
    pub(super) responses: Histogram,
    pub(super) executions: Histogram,
    pub(super) net_executions: Histogram,
    pub(super) inter_arrivals: Histogram,
    pub(super) start_latencies: Histogram,
    pub(super) latencies: Option<Box<Histogram>>,
}

impl Collector {
    /// For events of these definitions from a back end that records these kinds. Numbers that need other kinds
    /// are null.
    #[must_use]
    pub fn new(definitions: &Definitions, kinds: KindSet) -> Self {
        let mut collector = Collector {
            definitions: Definitions::default(),
            recorded: Recorded::of(kinds),
            latencies: false,
            tasks: Vec::new(),
            cpus: Vec::new(),
            interrupts: Vec::new(),
            servers: Vec::new(),
            messages: Messages::default(),
            chains: Vec::new(),
            lost: Some(0),
            from: 0,
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

    /// Leaves out executions, inter-arrivals and start latencies, which are then null. For callers
    /// that count millions of jobs and need only misses and responses.
    #[must_use]
    pub fn brief(mut self) -> Self {
        self.recorded.details = false;
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
            self.move_cpus(&bases, total);
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
        // A log can bring its definitions in several parts, so copy only new ones.
        update(&mut self.definitions.nodes, &definitions.nodes);
        update(&mut self.definitions.cpus, &definitions.cpus);
        update(&mut self.definitions.tasks, &definitions.tasks);
        update(&mut self.definitions.chains, &definitions.chains);
        update(&mut self.definitions.interrupts, &definitions.interrupts);
        update(&mut self.definitions.servers, &definitions.servers);
        self.servers.resize_with(definitions.servers.len(), Server::default);
        self.definitions.only = definitions.only;
    }

    /// Task `i`, no more than one behind the last, is this from here on.
    fn place(&mut self, i: usize, def: &TaskDef, cpus: (u32, u32)) {
        let deadline = def.deadline.map_or(NONE, |deadline| deadline.as_ns());
        if i == self.tasks.len() {
            self.tasks.push(TaskState::new(def.node.0, self.latencies));
        }
        let state = &mut self.tasks[i];
        (state.deadline, state.cpus, state.chain) = (deadline, cpus, NO_CHAIN);
    }

    /// Takes in one definition. Ignores a definition whose number leaves a gap.
    #[cold]
    fn learn(&mut self, definition: &Definition) {
        match definition {
            // Recordings define thousands of tasks one by one.
            Definition::Task(id, def) => {
                if self.definitions.apply(definition.clone()).is_err() {
                    return;
                }
                let (bases, _) = bases(&self.definitions.nodes);
                let chain = match self.tasks.get(id.index()) {
                    Some(known) => known.chain,
                    None => {
                        let before = self.definitions.chains.iter().rposition(|chain| chain.sink == *id);
                        before.map_or(NO_CHAIN, |chain| chain as u32)
                    }
                };
                self.place(id.index(), def, bases.get(def.node.index()).copied().unwrap_or_default());
                self.tasks[id.index()].chain = chain;
            }
            // And as many chains; the last one that ends in a task is the task's.
            Definition::Chain(id, def)
                if self.definitions.chains.get(*id as usize).is_none_or(|known| known.sink == def.sink) =>
            {
                let is_new = *id as usize == self.definitions.chains.len();
                if self.definitions.apply(definition.clone()).is_err() || !is_new {
                    return;
                }
                self.chains.push(Histogram::default());
                if let Some(state) = self.tasks.get_mut(def.sink.index()) {
                    state.chain = *id;
                }
            }
            // A gap leaves them as they are.
            Definition::Interrupt(..) | Definition::Server(..) => {
                self.definitions.apply(definition.clone()).unwrap_or_default();
                self.servers.resize_with(self.definitions.servers.len(), Server::default);
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

    /// Rearranges `cpus` when nodes were added or have other CPUs now.
    fn move_cpus(&mut self, bases: &[(u32, u32)], total: u32) {
        let mut cpus = vec![Cpu::IDLE; total as usize];
        let mut old_base = 0;
        for (node, (base, count)) in self.definitions.nodes.iter().zip(bases) {
            let old_count = node.cpus.min(super::CPUS_MAX);
            for cpu in 0..old_count.min(*count) {
                std::mem::swap(&mut cpus[(base + cpu) as usize], &mut self.cpus[(old_base + cpu) as usize]);
            }
            old_base += old_count;
        }
        self.cpus = cpus;
    }

    fn message(&mut self, now: u64, job: JobKey, message: u64, step: Step) {
        if let Some(task) = self.tasks.get(job.task.index()) {
            let stream = self.recorded.transmits.then_some(task.stream);
            self.messages.step(now, job.task.index(), stream, message, step);
        }
    }

    /// Events of the stream are missing: its open jobs may have ended unseen, and nobody knows since when they
    /// have been running, nor what interrupts them.
    #[cold]
    fn lose(&mut self, stream: u32, count: u64) {
        self.lost = if count == 0 { None } else { self.lost.and_then(|lost| lost.checked_add(count)) };
        self.tasks.iter_mut().filter(|task| task.stream == stream).for_each(TaskState::lose);
        self.messages.lose();
        if let Some((base, cpus)) = bases(&self.definitions.nodes).0.get(stream as usize) {
            self.cpus.iter_mut().skip(*base as usize).take(*cpus as usize).for_each(Cpu::lose);
        }
        for (i, interrupt) in self.interrupts.iter_mut().enumerate() {
            if self.definitions.interrupts.get(i).is_none_or(|def| def.node == NodeId(stream)) {
                interrupt.lose();
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
            Event::Start { job, cpu } => self.run(now, job, cpu, true),
            Event::Resume { job, cpu } => self.run(now, job, cpu, false),
            Event::Preempt { job, .. } => self.stop(now, job, 1),
            Event::Block { job, .. } => self.stop(now, job, 0),
            Event::Migrate { job, .. } => {
                if let Some(task) = self.tasks.get_mut(job.task.index()) {
                    task.migrations += 1;
                }
            }
            Event::Complete { job, .. } => self.complete(now, job),
            Event::Cancel { job, cause } => self.cancel(now, job, cause),
            Event::Window { job, .. } => {
                if let Some(task) = self.tasks.get_mut(job.task.index()) {
                    task.window = job.number;
                }
            }
            // Nothing is counted if the back end records only the interrupts of some threads.
            Event::IrqEnter { irq, cpu } if self.recorded.interrupts => self.interrupt(stream, now, irq, cpu, true),
            Event::IrqExit { irq, cpu } if self.recorded.interrupts => self.interrupt(stream, now, irq, cpu, false),
            Event::Replenish { server, .. } => self.server(now, server, ServerStep::Replenish),
            Event::Exhaust { server } => self.server(now, server, ServerStep::Exhaust),
            Event::ServerIdle { server } => self.server(now, server, ServerStep::Idle),
            Event::Charge { server, since, amount, idle } => {
                self.server(now, server, ServerStep::Charge { since, amount, idle });
            }
            Event::Send { job, message, .. } => self.message(now, job, message, Step::Send),
            Event::Receive { job, message, .. } => self.message(now, job, message, Step::Receive),
            Event::Drop { job, message, cause } => self.message(now, job, message, Step::Drop(cause)),
            Event::Transmit { message, bytes } => self.messages.transmit(stream, now, message, bytes),
            Event::Lost { count } => self.lose(stream, count),
            Event::Gap { job } => {
                if let Some(task) = self.tasks.get_mut(job.task.index()) {
                    task.lose();
                }
            }
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
        if self.recorded.details {
            task.arrive(number, arrival);
        }
        (task.next, task.stream) = (number.saturating_add(1), stream);
        // The recorded release of a job whose thread was busy is nominal, not measured.
        if let Some(latencies) = &mut task.latencies
            && origin == NONE
            && task.open.is_empty()
        {
            latencies.record_apart(now.saturating_sub(arrival));
        }
        task.open.push(Job::new(number, arrival, origin));
    }

    fn run(&mut self, now: u64, job: JobKey, cpu: u32, start: bool) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        let (base, cpus) = task.cpus;
        let Some(job) = task.open.find(job.number) else { return };
        // An event of a doubtful job proves that it is still open.
        (job.since, job.cpu, job.doubtful) = (now, cpu, false);
        if self.recorded.details && start && !job.started && !job.gap {
            task.start_latencies.record_apart(now.saturating_sub(job.arrival));
        }
        job.started = true;
        if cpu < cpus
            && let Some(cpu) = self.cpus.get((base + cpu) as usize)
        {
            job.covered = cpu.covered(now);
        } else {
            job.unwatched = true;
        }
    }

    fn stop(&mut self, now: u64, job: JobKey, preemptions: u64) {
        if let Some(task) = self.tasks.get_mut(job.task.index()) {
            task.preemptions += preemptions;
            if let Some(job) = task.open.find(job.number) {
                task.busy = task.busy.saturating_add(leave(&mut self.cpus, task.cpus, job, now));
                job.since = NONE;
            }
        }
    }

    #[inline(always)]
    fn complete(&mut self, now: u64, job: JobKey) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        let number = job.number;
        // Nearly always the first: then it is read where it stands.
        if task.open.first.number == number && number != NONE {
            let mut job = task.open.first;
            task.open.drop_first();
            task.completed(now, &mut job, self.recorded, &mut self.cpus, &mut self.chains);
        } else {
            self.complete_later(now, job);
        }
    }

    #[cold]
    fn complete_later(&mut self, now: u64, job: JobKey) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        if let Some(mut job) = task.take_later(job.number) {
            task.completed(now, &mut job, self.recorded, &mut self.cpus, &mut self.chains);
        }
    }

    fn cancel(&mut self, now: u64, job: JobKey, cause: CancelCause) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        let Some(mut job) = task.take(job.number) else { return };
        task.busy = task.busy.saturating_add(leave(&mut self.cpus, task.cpus, &mut job, now));
        match cause {
            CancelCause::Late | CancelCause::Failed => {
                task.dropped += 1;
                task.missed += u64::from(!job.missed);
            }
            CancelCause::Rejected => task.rejected += 1,
            CancelCause::Omitted | CancelCause::Shed => task.cancelled += 1,
        }
    }

    /// Takes no event: the address of one would keep all events in memory, also those of jobs.
    #[inline(never)]
    fn server(&mut self, now: u64, server: u32, step: ServerStep) {
        let at = server as usize;
        let (Some(counts), Some(def)) = (self.servers.get_mut(at), self.definitions.servers.get(at)) else { return };
        match step {
            ServerStep::Replenish => counts.replenishments += 1,
            ServerStep::Exhaust => counts.exhaustions += 1,
            ServerStep::Idle => counts.idles += 1,
            ServerStep::Charge { since, amount, idle } => {
                let period = def.period.map(|period| period.as_ns());
                counts.charge(since.as_ns(), now, amount.as_ns(), idle, period);
            }
        }
    }

    /// A handler begins or ends.
    #[inline(never)]
    fn interrupt(&mut self, stream: u32, now: u64, irq: u32, cpu: u32, enter: bool) {
        let at = irq as usize;
        if at >= self.interrupts.len() {
            // Without a definition, numbers are taken as far as a machine may have them.
            if at >= self.definitions.interrupts.len().max(super::INTERRUPTS_MAX) {
                return;
            }
            self.interrupts.resize_with(at + 1, Interrupt::default);
        }
        let node = self.definitions.interrupts.get(at).map_or(stream as usize, |def| def.node.index());
        let nodes = &self.definitions.nodes;
        let counted = |node: &NodeDef| node.cpus.min(super::CPUS_MAX);
        let Some(base) = nodes.get(..node).map(|before| before.iter().map(counted).sum::<u32>()) else { return };
        if nodes.get(node).is_none_or(|node| cpu >= counted(node)) {
            return;
        }
        let interrupt = &mut self.interrupts[at];
        let Some(cpu) = self.cpus.get_mut((base + cpu) as usize) else { return };
        if enter { cpu.enter(now, irq, interrupt) } else { cpu.exit(now, irq, interrupt) }
    }
}

impl TaskState {
    fn new(stream: u32, latencies: bool) -> Self {
        TaskState {
            open: Open::default(),
            next: 0,
            deadline: NONE,
            missed: 0,
            cancelled: 0,
            rejected: 0,
            dropped: 0,
            censored: 0,
            carried: 0,
            uncertain: 0,
            preemptions: 0,
            migrations: 0,
            holes: false,
            busy: 0,
            cpus: (0, 0),
            chain: NO_CHAIN,
            stream,
            last: NONE,
            window: NONE,
            responses: Histogram::default(),
            executions: Histogram::default(),
            net_executions: Histogram::default(),
            inter_arrivals: Histogram::default(),
            start_latencies: Histogram::default(),
            latencies: latencies.then(Box::default),
        }
    }

    /// Events of it are missing: its open jobs may have ended unseen, and nobody knows since when
    /// they have been running.
    #[cold]
    fn lose(&mut self) {
        (self.last, self.window) = (NONE, NONE);
        self.holes |= !self.open.is_empty();
        for job in self.open.iter_mut() {
            (job.doubtful, job.gap, job.since) = (true, true, NONE);
        }
    }

    /// Counts how far apart two arrivals are, of jobs that follow each other and where both are exact.
    #[inline]
    fn arrive(&mut self, number: u64, arrival: u64) {
        let exact = self.window != number || number == NONE;
        if exact && self.last != NONE && number == self.next {
            self.inter_arrivals.record_apart(arrival.saturating_sub(self.last));
        }
        self.uncertain += u64::from(!exact);
        self.last = if exact { arrival } else { NONE };
        self.window = NONE;
    }

    /// Counts a job that has completed and is no longer among the open ones.
    #[inline(always)]
    fn completed(&mut self, now: u64, job: &mut Job, recorded: Recorded, cpus: &mut [Cpu], chains: &mut [Histogram]) {
        self.busy = self.busy.saturating_add(leave(cpus, self.cpus, job, now));
        let response = now.saturating_sub(job.arrival);
        self.missed += u64::from(response > self.deadline && !job.missed);
        self.responses.record(response);
        if recorded.details {
            self.measure(job, recorded);
        }
        if job.origin != NONE
            && let Some(chain) = chains.get_mut(self.chain as usize)
        {
            chain.record_apart(now.saturating_sub(job.origin));
        }
    }

    #[inline]
    fn measure(&mut self, job: &Job, recorded: Recorded) {
        if recorded.cpus && job.started && !job.gap {
            self.executions.record_apart(job.ran);
            if recorded.interrupts && !job.unwatched {
                self.net_executions.record_apart(job.ran.saturating_sub(job.stolen));
            }
        }
    }

    /// Takes out a job that ends. A job that was never released is censored. So are earlier jobs
    /// whose ends may be among the lost events, because jobs of a task end in order.
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
        if let Some((job, censored)) = self.open.take_later(number) {
            self.censor(censored);
            return Some(job);
        }
        // A second end of one job is no second job.
        if number >= self.next {
            self.next = number.saturating_add(1);
            self.last = NONE;
            self.censored += 1;
        }
        None
    }

    pub(super) fn censor(&mut self, censored: Censored) {
        self.censored += censored.jobs;
        self.carried -= censored.carried;
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

/// Counts the time since a job got its CPU, and says how long it is.
#[inline]
pub(super) fn leave(all: &mut [Cpu], (base, cpus): (u32, u32), job: &mut Job, now: u64) -> u64 {
    if job.since == NONE {
        return 0;
    }
    let ran = now.saturating_sub(job.since);
    job.ran = job.ran.saturating_add(ran);
    if job.cpu < cpus
        && let Some(cpu) = all.get_mut((base + job.cpu) as usize)
    {
        cpu.leave(job, now);
    }
    ran
}
