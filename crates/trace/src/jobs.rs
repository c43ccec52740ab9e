//! Rebuilds the jobs of threads from the kernel's events: releases, starts, preemptions, blocks,
//! completions.
//!
//! A job is the work of a thread between two *boundaries*. The rules, in full:
//!
//! - **Boundaries.** If the thread's system calls are recorded, the calls of the table in
//!   `calls.rs` are boundaries, by their classes. Otherwise (a kernel thread; a trace without
//!   system calls) every sleep is a boundary (`S`, `I`), but no wait within the work (`D`,
//!   stopped). For a SCHED_DEADLINE thread sched_yield is a boundary, too. So is the end of a
//!   thread. A thread that leaves its CPU ready (`R`, `R+`) is at no boundary.
//! - **Completion.** At the entry of a call that always ends a job. If a call ends it by blocking,
//!   when the thread leaves its CPU.
//! - **Release.** When the sleeping thread is woken: at `sched_waking`, or at `sched_wakeup` if the
//!   former is not recorded. The *nominal arrival* is the same moment, with one exception. For a
//!   sleep (clock_nanosleep, nanosleep) with a recorded timer on the trace's clock it is the
//!   timer's expiry, even if the thread slept after that. A wake-up of a thread that has its CPU is
//!   the release only if the thread was on its way to sleep. Otherwise the thread goes on, and
//!   another wake-up ends its next sleep (`jobs/release.rs`).
//! - **Windows.** Some arrivals are only known to lie between two moments: [`Event::Window`] has
//!   the first, the release the last. If a call found its event without blocking, they are the
//!   start of the job before and the entry of the call. The call before had found all earlier
//!   events. After a yield or an unrecorded wake-up they are the last completion and the thread's
//!   next moment on a CPU; with a recorded timer, the timer's expiry.
//! - **Start, resume.** When the thread gets a CPU. After a call that did not block, when it
//!   returns.
//! - **Preempt.** When the thread leaves its CPU ready and does not yield, within a call (`R+`) or
//!   outside (`R`).
//! - **Throttled.** A thread may leave its CPU ready while the CPU goes idle, or to a thread of a
//!   lesser class. Then it was not preempted: the budget of its SCHED_DEADLINE reservation, its
//!   control group, or all real-time threads is used up. Its job blocks and resumes. Without
//!   recorded system calls a yield looks the same. It counts as a used-up budget, so that no
//!   overrun is hidden; [`Rebuilder::unclear_yields`] counts these threads.
//! - **Yield.** A thread that yields without a boundary blocks and wakes at once.
//! - **No job.** The work of a thread before its first boundary in the recording, before its first
//!   boundary after a loss of events, and between its birth and its first boundary.
//! - **Chains.** If the open job of a thread wakes another thread, the released job follows it and
//!   takes its origin. An interrupt in between breaks this. If the task of the released job is in
//!   the open job's own ancestry (an answer), a new chain begins.
//!
//! An id may get another name while its thread has no CPU and without a recorded rename. Then it
//! belongs to another thread from there on, and the end of the first thread was not recorded.
//!
//! Missing events: if the kernel reports a loss, the log has [`Event::Lost`], and open jobs stay
//! open. If a switch does not fit the one before, a switch was not recorded. Some kernels have
//! threads in whose context nothing is recorded. The log then has [`Event::Gap`] for the threads
//! concerned:
//!
//! - A thread should be on a CPU and is not, or leaves another CPU than its own. Its work meanwhile
//!   is unknown, and its open job stays open.
//! - A thread leaves a CPU that it was never given, or enters or leaves a call without a CPU. It
//!   got the CPU at an unknown time since its wake-up. Release and completion of its job are known.
//!   If it returns from a call, the job starts there. If it was asleep until now, an unrecorded
//!   wake-up came before: its next job is released in a window.

mod define;
mod filter;
mod release;
mod thread;

use std::collections::{BTreeMap, BTreeSet};

use takt_log::{Definition, Definitions, Event, InterruptKind, Kind, KindSet, NodeDef, Sink};
use takt_model::{NodeId, Span, Time};

use crate::calls::{Abi, Class};
use crate::event::{CPUS_MAX, Comm, Context, EventKind, KernelEvent, Pid, SwitchOutState, Thread as KernelThread};
use crate::merge::OtherThreads;
use define::task_def;
pub use filter::{Filter, is_like};
use thread::{Call, Place, Stage, Thread, Threads};

/// The number of threads with jobs that are tasks of their own. A later thread takes over the task
/// of an ended thread of its name, if there is any. So memory stays bounded for recordings of any
/// length.
pub const TASKS_OWN: usize = 1 << 12;
/// The most tasks. When all are taken, a thread takes over the task of any ended thread. If none
/// has ended, the log has no jobs of the new thread.
pub const TASKS_MAX: usize = 1 << 15;
/// The only node of a recording, and its only stream.
const NODE: NodeId = NodeId(0);
const STREAM: u32 = 0;

/// The kinds of event of rebuilt jobs. [`kinds`] selects those that a recording can have.
pub const KINDS: KindSet = KindSet::of(&[
    Kind::Release,
    Kind::Window,
    Kind::Start,
    Kind::Preempt,
    Kind::Resume,
    Kind::Block,
    Kind::Wake,
    Kind::Complete,
    Kind::Migrate,
    Kind::IrqEnter,
    Kind::IrqExit,
    Kind::Lost,
    Kind::Gap,
    Kind::Occupy,
]);

/// The kinds of event of a recording with these events of the kernel. It has jobs if switches are
/// recorded. Beside jobs it has interrupts if both kinds of handlers are recorded, because they take
/// CPU time from jobs. Without jobs one kind is enough.
#[must_use]
pub fn kinds<'a>(events: impl IntoIterator<Item = &'a str>) -> KindSet {
    let events: BTreeSet<&str> = events.into_iter().collect();
    let has = |names: &[&str]| names.iter().all(|name| events.contains(name));
    let mut kinds = KINDS;
    let (hard, soft) = (has(&["irq_handler_entry", "irq_handler_exit"]), has(&["softirq_entry", "softirq_exit"]));
    if !((hard && soft) || ((hard || soft) && !has(&["sched_switch"]))) {
        kinds = kinds.without(Kind::IrqEnter).without(Kind::IrqExit);
    }
    if !has(&["sched_switch"]) {
        kinds = kinds.intersection(KindSet::of(&[Kind::IrqEnter, Kind::IrqExit, Kind::Lost]));
    }
    kinds
}

/// Parameters of a thread, known from elsewhere than its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservationParams {
    /// Its SCHED_DEADLINE period.
    pub period: Option<Span>,
    /// Its SCHED_DEADLINE relative deadline.
    pub deadline: Option<Span>,
    /// Its SCHED_DEADLINE runtime.
    pub runtime: Option<Span>,
}

/// How jobs are told apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The machine whose numbers of system calls the trace has.
    pub abi: Abi,
    /// Whether the trace's clock is CLOCK_MONOTONIC, so that the times of timers are of use.
    pub monotonic: bool,
    /// Take every sleep as a boundary, whatever the thread calls.
    pub suspensions: bool,
    /// Which threads.
    pub filter: Filter,
    /// Known parameters of threads.
    pub known: BTreeMap<Pid, ReservationParams>,
    /// How many CPUs there are; more are added as they appear.
    pub cpus: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            abi: Abi::NATIVE,
            monotonic: false,
            suspensions: false,
            filter: Filter::default(),
            known: BTreeMap::new(),
            cpus: 1,
        }
    }
}

/// Makes jobs of events. Memory grows with threads, not with events.
#[derive(Debug)]
pub struct Rebuilder {
    options: Options,
    /// The time of the first event: the log's zero.
    zero: Time,
    /// The time of the last event, since `zero`.
    now: Time,
    node: NodeDef,
    /// CPUs below this are in `node`, and there was an event: none before the first.
    cpus_met: u32,
    threads: Threads,
    /// Which thread runs on each CPU, where that is known.
    current: Vec<Option<Pid>>,
    tasks: u32,
    chains: u32,
    /// Numbers of interrupts in the log, by kind and number.
    interrupts: BTreeMap<(InterruptKind, u32), Option<u32>>,
    /// How many of them are told.
    interrupts_told: u32,
    /// Every thread is told, and no list of them kept.
    all: bool,
    /// Some task has a deadline, so that jobs can be late: what else has the CPUs is told.
    other_threads: Option<OtherThreads>,
    /// Threads that took over a task.
    heirs: u64,
    /// Threads without jobs, for there are too many.
    untold: u64,
    /// Times at which a thread was not where the events before had left it.
    gaps: u64,
    /// System calls are recorded.
    calls_seen: bool,
    unclear_yields: BTreeSet<Pid>,
}

impl Rebuilder {
    /// For a trace of which this is known.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let timed = options.known.values().any(|known| known.deadline.is_some());
        let other_threads = timed.then(|| OtherThreads::new(STREAM));
        let node = NodeDef { name: "local".to_owned(), cpus: options.cpus.max(1), strategy: "kernel".to_owned() };
        Rebuilder {
            all: options.filter.is_empty(),
            options,
            zero: Time::ZERO,
            now: Time::ZERO,
            node,
            cpus_met: 0,
            threads: Threads::default(),
            current: Vec::new(),
            tasks: 0,
            chains: 0,
            interrupts: BTreeMap::new(),
            interrupts_told: 0,
            other_threads,
            heirs: 0,
            untold: 0,
            gaps: 0,
            calls_seen: false,
            unclear_yields: BTreeSet::new(),
        }
    }

    /// The definitions before the first event. Tasks follow as they appear.
    #[must_use]
    pub fn definitions(&self) -> Definitions {
        Definitions { nodes: vec![self.node.clone()], ..Definitions::default() }
    }

    /// How far the events reach, on the log's clock.
    #[must_use]
    pub fn end(&self) -> Time {
        self.now
    }

    /// How many threads took over the task of one that had ended ([`TASKS_OWN`]).
    #[must_use]
    pub fn heirs(&self) -> u64 {
        self.heirs
    }

    /// How many threads had jobs that are not told, for [`TASKS_MAX`] had tasks at that time.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// How often a switch must have been made that nobody recorded, within a job ([`Event::Gap`]).
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// How many SCHED_DEADLINE threads yielded or used up their budgets, and nobody knows which,
    /// for the trace has no system calls.
    #[must_use]
    pub fn unclear_yields(&self) -> usize {
        if self.calls_seen { 0 } else { self.unclear_yields.len() }
    }

    /// SCHED_DEADLINE threads that are told and of whose parameters nothing is known.
    #[must_use]
    pub fn unknown_reservations(&self) -> Vec<Pid> {
        let asks =
            self.threads.tasks().filter(|(pid, thread)| thread.is_deadline() && !self.options.known.contains_key(pid));
        asks.map(|(pid, _)| pid).collect()
    }

    /// Tells these threads, too, and what they fork. They are among those that the filter names.
    pub fn admit(&mut self, pids: impl IntoIterator<Item = Pid>) {
        if !self.all {
            self.options.filter.pids.extend(pids);
        }
    }

    /// Takes in what has become known of a thread.
    pub fn know(&mut self, pid: Pid, known: ReservationParams, sink: &mut impl Sink) {
        self.options.known.insert(pid, known);
        if known.deadline.is_some() && self.other_threads.is_none() {
            self.other_threads = Some(OtherThreads::new(STREAM));
        }
        if let Some(thread) = self.threads.get_mut(pid)
            && let Some(task) = thread.task
        {
            let def = task_def(thread, Some(&known));
            sink.define(STREAM, self.now, &Definition::Task(task, def));
        }
    }

    /// Takes the next event; what follows from it goes to `sink`. Events come in the order of time.
    #[inline(always)]
    pub fn event(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        if event.cpu >= self.cpus_met {
            self.meet_cpu(event, sink);
        }
        self.now = Time::from_ns(event.time.as_ns().saturating_sub(self.zero.as_ns())).max(self.now);
        match &event.what {
            EventKind::Switch { prev, left, next } => self.switch(event.cpu, prev, *left, next, sink),
            EventKind::Wake { thread, waking, .. } => self.wake(event, thread, *waking, sink),
            _ => self.other(event, sink),
        }
    }

    /// Takes an event that is neither a switch nor a wake-up. Apart from those, which most are:
    /// they stand where events follow each other then, instead of being called.
    #[inline(never)]
    fn other(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        match &event.what {
            EventKind::SyscallEnter { number, args } => self.enter(event, *number, args, sink),
            EventKind::SyscallExit { .. } => self.exit(event, sink),
            EventKind::Timer { expires } => self.timer(event, *expires),
            EventKind::IrqEnter { irq, name } => {
                if let Some(irq) = self.interrupt(InterruptKind::Hard, *irq, name, sink) {
                    sink.event(STREAM, self.now, &Event::IrqEnter { irq, cpu: event.cpu });
                }
            }
            EventKind::IrqExit { irq } => {
                if let Some(irq) = self.interrupt(InterruptKind::Hard, *irq, &Comm::default(), sink) {
                    sink.event(STREAM, self.now, &Event::IrqExit { irq, cpu: event.cpu });
                }
            }
            EventKind::SoftirqEnter { vec } => {
                if let Some(irq) = self.interrupt(InterruptKind::Soft, *vec, &Comm::default(), sink) {
                    sink.event(STREAM, self.now, &Event::IrqEnter { irq, cpu: event.cpu });
                }
            }
            EventKind::SoftirqExit { vec } => {
                if let Some(irq) = self.interrupt(InterruptKind::Soft, *vec, &Comm::default(), sink) {
                    sink.event(STREAM, self.now, &Event::IrqExit { irq, cpu: event.cpu });
                }
            }
            EventKind::Fork { parent, child, comm } => self.fork(*parent, *child, *comm),
            EventKind::Rename { pid, comm } => {
                if let Some(slot) = self.threads.slot(*pid) {
                    self.rename(slot, *comm, sink);
                }
            }
            EventKind::Lost { count } => self.lose(count.unwrap_or(0), sink),
            // A thread's end shows when it leaves its CPU for the last time.
            EventKind::Exit { .. } | EventKind::Migrate { .. } | EventKind::SoftirqRaise { .. } | EventKind::Other => {}
            EventKind::Switch { .. } | EventKind::Wake { .. } => {}
        }
    }

    /// The event is the first one, or of a CPU that is not known.
    #[cold]
    #[inline(never)]
    fn meet_cpu(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        if self.cpus_met == 0 {
            self.zero = event.time;
        }
        self.now = Time::from_ns(event.time.as_ns().saturating_sub(self.zero.as_ns())).max(self.now);
        if (self.node.cpus..takt_model::CpuSet::CPUS_MAX).contains(&event.cpu) {
            self.node.cpus = event.cpu + 1;
            sink.define(STREAM, self.now, &Definition::Node(NODE, self.node.clone()));
        }
        self.cpus_met = self.node.cpus;
    }

    #[inline(always)]
    fn switch(
        &mut self,
        cpu: u32,
        prev: &KernelThread,
        left: SwitchOutState,
        next: &KernelThread,
        sink: &mut impl Sink,
    ) {
        let current = match self.current.get_mut(cpu as usize) {
            Some(current) => current.replace(next.pid),
            None => self.first_on(cpu, next.pid),
        };
        if let Some(current) = current
            && current != prev.pid
        {
            self.lose_events_of(current, sink);
        }
        if prev.pid != 0 {
            self.leave(cpu, prev, left, next, sink);
        }
        if next.pid != 0 {
            self.arrive(cpu, next, sink);
        }
        if self.other_threads.is_some() {
            self.occupy(cpu, next, sink);
        }
    }

    /// The CPU goes to nobody, or to a thread that has no job.
    #[cold]
    #[inline(never)]
    fn occupy(&mut self, cpu: u32, next: &KernelThread, sink: &mut impl Sink) {
        let works = next.pid != 0
            && self.threads.get_mut(next.pid).is_some_and(|thread| matches!(thread.stage, Stage::Started));
        if let Some(other_threads) = self.other_threads.as_mut().filter(|_| !works) {
            other_threads.got(cpu, next).iter().for_each(|line| line.write_to(STREAM, self.now, sink));
        }
    }

    /// `pid` is the first known thread on the CPU. Returns the thread before it, if the CPU had
    /// been met.
    #[cold]
    fn first_on(&mut self, cpu: u32, pid: Pid) -> Option<Pid> {
        let at = cpu as usize;
        if cpu < CPUS_MAX && self.current.len() <= at {
            self.current.resize(at + 1, None);
        }
        self.current.get_mut(at)?.replace(pid)
    }

    /// A thread should be on a CPU and is not: some of its events are missing.
    #[cold]
    fn lose_events_of(&mut self, pid: Pid, sink: &mut impl Sink) {
        if let Some(thread) = self.threads.get_mut(pid) {
            thread.forget();
            if thread.next > 0 {
                self.gaps += 1;
                sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
            }
        }
    }

    /// A thread leaves a CPU without a recorded switch to it. It got the CPU after its wake-up.
    #[cold]
    fn got_cpu_unseen(&mut self, slot: usize, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        if let (Place::Asleep, Stage::Between { since }) = (thread.place, thread.stage) {
            self.release_unwoken(slot, since, sink);
        }
        let thread = self.threads.at(slot);
        if let Stage::Released | Stage::Started = thread.stage {
            thread.stage = Stage::Started;
            self.gaps += 1;
            sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
        }
    }

    /// The thread of an event, new if its id is unknown, and its slot.
    #[inline(always)]
    fn meet(&mut self, seen: &KernelThread, sink: &mut impl Sink) -> (usize, &mut Thread) {
        let mut slot = self.threads.meet(seen);
        if self.threads.at(slot).comm != seen.comm {
            slot = self.meet_by_other_name(slot, seen, sink);
        }
        let thread = self.threads.at(slot);
        if let Some(prio) = seen.prio {
            thread.prio = prio;
        }
        (slot, thread)
    }

    /// A thread's id has another name. A thread on its CPU may have renamed itself. Without a CPU
    /// it cannot: the id most likely belongs to a new thread, and the end of the old one was not
    /// recorded.
    #[cold]
    fn meet_by_other_name(&mut self, slot: usize, seen: &KernelThread, sink: &mut impl Sink) -> usize {
        let thread = self.threads.at(slot);
        if thread.task.is_none() || thread.place == Place::Running || thread.comm == Comm::NONE {
            self.rename(slot, seen.comm, sink);
            return slot;
        }
        if let Stage::Released | Stage::Started = thread.stage {
            self.gaps += 1;
            sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
        }
        self.threads.remove(seen.pid);
        self.options.known.remove(&seen.pid);
        self.threads.meet(seen)
    }

    #[inline(always)]
    fn leave(
        &mut self,
        cpu: u32,
        prev: &KernelThread,
        left: SwitchOutState,
        next: &KernelThread,
        sink: &mut impl Sink,
    ) {
        let now = self.now;
        let suspensions = self.options.suspensions;
        let (slot, mut thread) = self.meet(prev, sink);
        if matches!(thread.place, Place::Ready | Place::Asleep) {
            self.got_cpu_unseen(slot, sink);
            thread = self.threads.at(slot);
        }
        let open = thread.stage == Stage::Started;
        let job = thread.job;
        let mut unclear = false;
        match left {
            SwitchOutState::Ready if thread.yields() => {
                thread.place = Place::Ready;
                if open {
                    sink.event(STREAM, now, &Event::Block { job, cpu });
                    if !thread.is_deadline() {
                        sink.event(STREAM, now, &Event::Wake { job });
                    }
                }
            }
            // On its way back to the program the kernel takes the CPU by an ordinary call of the
            // scheduler: most threads that are preempted leave like that.
            SwitchOutState::Preempted | SwitchOutState::Ready => {
                thread.place = Place::Ready;
                let throttled = thread.is_throttled(next);
                if open && throttled {
                    sink.event(STREAM, now, &Event::Block { job, cpu });
                } else if open {
                    sink.event(STREAM, now, &Event::Preempt { job, cpu });
                }
                unclear = throttled && left == SwitchOutState::Ready && thread.is_deadline();
            }
            SwitchOutState::Blocked | SwitchOutState::Held => {
                let boundary = left == SwitchOutState::Blocked && thread.blocks_at_boundary(suspensions);
                thread.place = Place::Asleep;
                if open && boundary {
                    sink.event(STREAM, now, &Event::Complete { job, cpu });
                    thread.stage = Stage::Between { since: now };
                } else if open {
                    sink.event(STREAM, now, &Event::Block { job, cpu });
                } else if thread.stage == Stage::Partial && boundary {
                    thread.stage = Stage::Between { since: now };
                }
            }
            SwitchOutState::Ended => {
                if open {
                    sink.event(STREAM, now, &Event::Complete { job, cpu });
                }
                self.bury(prev.pid);
                return;
            }
        }
        let woken = thread.woken.is_some();
        if unclear && !self.calls_seen {
            self.unclear_yields.insert(prev.pid);
        }
        if woken {
            self.leave_woken(slot, sink);
        }
    }

    /// A thread has ended: its id will be another one's.
    fn bury(&mut self, pid: Pid) {
        self.threads.remove(pid);
        self.options.known.remove(&pid);
        self.options.filter.pids.remove(&pid);
    }

    #[inline(always)]
    fn arrive(&mut self, cpu: u32, next: &KernelThread, sink: &mut impl Sink) {
        let now = self.now;
        let (slot, mut thread) = self.meet(next, sink);
        if thread.place != Place::Ready || thread.yielded {
            self.arrive_unready(slot, next.pid, sink);
            thread = self.threads.at(slot);
            thread.woken = None;
        }
        thread.place = Place::Running;
        let job = thread.job;
        match thread.stage {
            Stage::Released => {
                sink.event(STREAM, now, &Event::Start { job, cpu });
                (thread.stage, thread.started) = (Stage::Started, now);
            }
            Stage::Started => {
                if thread.cpu != cpu {
                    sink.event(STREAM, now, &Event::Migrate { job, from: thread.cpu, to: cpu });
                }
                sink.event(STREAM, now, &Event::Resume { job, cpu });
            }
            Stage::Partial | Stage::Between { .. } => {}
        }
        thread.cpu = cpu;
    }

    /// A thread gets a CPU, and was not known to want one, or yielded before.
    #[cold]
    fn arrive_unready(&mut self, slot: usize, pid: Pid, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        match (thread.place, thread.stage) {
            // Nobody recorded that it was woken, or a yield's end is not told.
            (Place::Asleep, Stage::Between { since }) => self.release_unwoken(slot, since, sink),
            (Place::Ready, Stage::Between { since }) if thread.yielded => {
                self.release(slot, self.now, Some(since), sink);
            }
            (Place::Asleep, Stage::Started) => sink.event(STREAM, self.now, &Event::Wake { job: thread.job }),
            // It left another CPU, and nobody said so.
            (Place::Running, _) => self.lose_events_of(pid, sink),
            _ => {}
        }
    }

    fn enter(&mut self, event: &KernelEvent, number: i64, args: &[u64; 6], sink: &mut impl Sink) {
        if event.pid == 0 || self.options.suspensions {
            return;
        }
        let now = self.now;
        let thread = self.threads.get_or_add(event.pid);
        if thread.found_on(event.cpu) {
            self.gaps += 1;
            sink.event(STREAM, now, &Event::Gap { job: thread.job });
        }
        let mut class = self.options.abi.class(number, args);
        if class == Class::Restart {
            class = thread.call.map_or(thread.last_class, |call| call.class);
        }
        (thread.calls_seen, self.calls_seen) = (true, true);
        thread.last_class = class;
        (thread.timer, thread.woken) = (None, None);
        // timerfd and eventfd are read in eights.
        let reads = (class == Class::Take && args[2] == 8).then_some(args[0]);
        let always = match class {
            Class::Sleep | Class::Wait => true,
            Class::Yield => thread.is_deadline(),
            Class::Take => reads.is_some() && reads == thread.reads,
            Class::Sync | Class::Restart | Class::Other => false,
        };
        thread.call = Some(Call { class, reads, entered: now });
        thread.waits |= matches!(class, Class::Sleep | Class::Wait);
        if !always {
            return;
        }
        thread.yielded = class == Class::Yield;
        match thread.stage {
            Stage::Started => {
                sink.event(STREAM, now, &Event::Complete { job: thread.job, cpu: event.cpu });
                thread.stage = Stage::Between { since: now };
            }
            Stage::Partial => thread.stage = Stage::Between { since: now },
            Stage::Between { .. } | Stage::Released => {}
        }
    }

    fn exit(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        if event.pid == 0 || self.options.suspensions {
            return;
        }
        let Some(slot) = self.threads.slot(event.pid) else { return };
        let thread = self.threads.at(slot);
        let (call, woken) = (thread.call.take(), thread.woken.take());
        thread.calls_seen = true;
        let slept = thread.place == Place::Asleep;
        if let (Stage::Between { .. }, Some(woken)) = (thread.stage, woken) {
            self.release_woken(slot, woken, sink);
        } else if let Stage::Between { since } = thread.stage
            && (slept || call.is_some())
        {
            // A sleep that did not block: the arrival is its time, which had passed. Another call
            // that did not block: its event came at some time since the job before began.
            let (arrival, earliest) = match (call, thread.timer.take()) {
                (Some(Call { class: Class::Sleep, .. }), Some(timer)) => (timer, None),
                // It did block, and nobody recorded how it came back.
                _ if slept => (self.now, Some(since)),
                (Some(Call { class: Class::Sleep, .. }), None) => (self.now, None),
                (Some(Call { class: Class::Yield, .. }) | None, _) => (self.now, Some(since)),
                (Some(call), _) => (call.entered, Some(thread.started)),
            };
            self.release(slot, arrival, earliest, sink);
        }
        let thread = self.threads.at(slot);
        if thread.found_on(event.cpu) {
            self.gaps += 1;
            sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
        }
        if thread.stage == Stage::Released {
            (thread.stage, thread.started) = (Stage::Started, self.now);
            sink.event(STREAM, self.now, &Event::Start { job: thread.job, cpu: event.cpu });
        }
    }

    /// A sleeping thread sets the timer that wakes it.
    fn timer(&mut self, event: &KernelEvent, expires: u64) {
        if !self.options.monotonic || event.context != Context::Thread {
            return;
        }
        let zero = self.zero;
        if let Some(thread) = self.threads.get_mut(event.pid)
            && thread.call.is_some_and(|call| call.class == Class::Sleep)
            && thread.timer.is_none()
        {
            thread.timer = Some(Time::from_ns(expires.saturating_sub(zero.as_ns())));
        }
    }

    fn fork(&mut self, parent: Pid, child: Pid, comm: Comm) {
        // The number may have been another thread's.
        self.bury(child);
        if self.options.filter.pids.contains(&parent) {
            self.options.filter.pids.insert(child);
        }
        let slot = self.threads.meet(&KernelThread { pid: child, comm, prio: None });
        self.threads.at(slot).place = Place::Ready;
    }

    #[cold]
    fn rename(&mut self, slot: usize, comm: Comm, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        thread.comm = comm;
        thread.passed_over = false;
        if let Some(task) = thread.task {
            let def = task_def(thread, self.options.known.get(&thread.pid));
            self.threads.name(task, slot);
            sink.define(STREAM, self.now, &Definition::Task(task, def));
        }
        let pid = self.threads.at(slot).pid;
        if let Some(other_threads) = &mut self.other_threads {
            other_threads.renamed(pid, comm).iter().for_each(|line| line.write_to(STREAM, self.now, sink));
        }
    }

    /// Events are missing: nobody knows what became of any open job.
    #[cold]
    fn lose(&mut self, count: u64, sink: &mut impl Sink) {
        for thread in self.threads.iter_mut() {
            thread.forget();
        }
        self.current.fill(None);
        sink.event(STREAM, self.now, &Event::Lost { count });
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
