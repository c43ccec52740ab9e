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
use thread::{Call, JobState, RunState, Thread, Threads};

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
    let has_jobs = has(&["sched_switch"]);
    let (hard, soft) = (has(&["irq_handler_entry", "irq_handler_exit"]), has(&["softirq_entry", "softirq_exit"]));
    let has_interrupts = if has_jobs { hard && soft } else { hard || soft };
    if !has_interrupts {
        kinds = kinds.without(Kind::IrqEnter).without(Kind::IrqExit);
    }
    if !has_jobs {
        kinds = kinds.intersection(KindSet::of(&[Kind::IrqEnter, Kind::IrqExit, Kind::Lost]));
    }
    kinds
}

/// The SCHED_DEADLINE parameters of a thread. Its events do not have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservationParams {
    /// Its SCHED_DEADLINE period.
    pub period: Option<Span>,
    /// Its SCHED_DEADLINE relative deadline.
    pub deadline: Option<Span>,
    /// Its SCHED_DEADLINE runtime.
    pub runtime: Option<Span>,
}

/// How jobs are rebuilt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The machine whose numbers of system calls the trace has.
    pub abi: Abi,
    /// Whether the trace's clock is CLOCK_MONOTONIC, so that the times of timers are of use.
    pub monotonic: bool,
    /// Take every sleep as a boundary, whatever the thread calls.
    pub suspensions: bool,
    /// The threads and interrupts that the log has.
    pub filter: Filter,
    /// The known SCHED_DEADLINE parameters of threads.
    pub reservations: BTreeMap<Pid, ReservationParams>,
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
            reservations: BTreeMap::new(),
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
    /// CPUs below this number are in `node`. Zero before the first event.
    cpus_known: u32,
    threads: Threads,
    /// By CPU: the thread that runs on it, if known.
    current: Vec<Option<Pid>>,
    tasks: u32,
    chains: u32,
    /// By kind and kernel number: the interrupt's number in the log. `None`: the filter excludes it.
    interrupts: BTreeMap<(InterruptKind, u32), Option<u32>>,
    /// How many interrupts the log defines.
    interrupts_defined: u32,
    /// The filter is empty: the log has every thread.
    all: bool,
    /// Logs the other threads that have CPUs. `None` while no task has a deadline: no job can be late.
    other_threads: Option<OtherThreads>,
    /// Threads without jobs in the log, because all tasks were taken.
    threads_left_out: u64,
    /// Missing switches within jobs.
    gaps: u64,
    /// System calls are recorded.
    calls_seen: bool,
    unclear_yields: BTreeSet<Pid>,
}

impl Rebuilder {
    /// A rebuilder with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let timed = options.reservations.values().any(|known| known.deadline.is_some());
        let other_threads = timed.then(|| OtherThreads::new(STREAM));
        let node = NodeDef { name: "local".to_owned(), cpus: options.cpus.max(1), strategy: "kernel".to_owned() };
        Rebuilder {
            all: options.filter.is_empty(),
            options,
            zero: Time::ZERO,
            now: Time::ZERO,
            node,
            cpus_known: 0,
            threads: Threads::default(),
            current: Vec::new(),
            tasks: 0,
            chains: 0,
            interrupts: BTreeMap::new(),
            interrupts_defined: 0,
            other_threads,
            threads_left_out: 0,
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

    /// How many threads have no jobs in the log, because [`TASKS_MAX`] threads had tasks.
    #[must_use]
    pub fn threads_left_out(&self) -> u64 {
        self.threads_left_out
    }

    /// How many switches within jobs are missing from the events ([`Event::Gap`]).
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// How many SCHED_DEADLINE threads yielded or used up their budgets. A trace without system
    /// calls does not say which of the two.
    #[must_use]
    pub fn unclear_yields(&self) -> usize {
        if self.calls_seen { 0 } else { self.unclear_yields.len() }
    }

    /// The SCHED_DEADLINE threads in the log whose parameters are unknown.
    #[must_use]
    pub fn unknown_reservations(&self) -> Vec<Pid> {
        let known = &self.options.reservations;
        let unknown = self.threads.tasks().filter(|(pid, thread)| thread.is_deadline() && !known.contains_key(pid));
        unknown.map(|(pid, _)| pid).collect()
    }

    /// Adds these threads, and those that they fork, to the filter.
    pub fn add_pids(&mut self, pids: impl IntoIterator<Item = Pid>) {
        if !self.all {
            self.options.filter.pids.extend(pids);
        }
    }

    /// Sets the parameters of a thread, and defines its task again.
    pub fn set_reservation(&mut self, pid: Pid, params: ReservationParams, sink: &mut impl Sink) {
        self.options.reservations.insert(pid, params);
        if params.deadline.is_some() && self.other_threads.is_none() {
            self.other_threads = Some(OtherThreads::new(STREAM));
        }
        if let Some(thread) = self.threads.get_mut(pid)
            && let Some(task) = thread.task
        {
            let def = task_def(thread, Some(&params));
            sink.define(STREAM, self.now, &Definition::Task(task, def));
        }
    }

    /// Takes the next event, in the order of time. The resulting events of the log go to `sink`.
    #[inline(always)]
    pub fn event(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        if event.cpu >= self.cpus_known {
            self.add_cpu(event, sink);
        }
        self.now = Time::from_ns(event.time.as_ns().saturating_sub(self.zero.as_ns())).max(self.now);
        match &event.what {
            EventKind::Switch { prev, left, next } => self.switch(event.cpu, prev, *left, next, sink),
            EventKind::Wake { thread, waking, .. } => self.wake(event, thread, *waking, sink),
            _ => self.other_event(event, sink),
        }
    }

    /// Takes an event that is neither a switch nor a wake-up. It is a function of its own, so that
    /// the two frequent kinds are inlined into the loop over events.
    #[inline(never)]
    fn other_event(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        match &event.what {
            EventKind::SyscallEnter { number, args } => self.enter_call(event, *number, args, sink),
            EventKind::SyscallExit { .. } => self.exit_call(event, sink),
            EventKind::Timer { expires } => self.timer(event, *expires),
            EventKind::IrqEnter { irq, name } => self.irq_enter(event.cpu, InterruptKind::Hard, *irq, name, sink),
            EventKind::IrqExit { irq } => self.irq_exit(event.cpu, InterruptKind::Hard, *irq, sink),
            EventKind::SoftirqEnter { vec } => {
                self.irq_enter(event.cpu, InterruptKind::Soft, *vec, &Comm::NONE, sink);
            }
            EventKind::SoftirqExit { vec } => self.irq_exit(event.cpu, InterruptKind::Soft, *vec, sink),
            EventKind::Fork { parent, child, comm } => self.fork(*parent, *child, *comm),
            EventKind::Rename { pid, comm } => {
                if let Some(slot) = self.threads.slot(*pid) {
                    self.rename(slot, *comm, sink);
                }
            }
            EventKind::Lost { count } => self.events_lost(count.unwrap_or(0), sink),
            // A thread's end shows when it leaves its CPU for the last time.
            EventKind::Exit { .. } | EventKind::Migrate { .. } | EventKind::SoftirqRaise { .. } | EventKind::Other => {}
            EventKind::Switch { .. } | EventKind::Wake { .. } => {}
        }
    }

    fn irq_enter(&mut self, cpu: u32, kind: InterruptKind, number: u32, name: &Comm, sink: &mut impl Sink) {
        if let Some(irq) = self.interrupt(kind, number, name, sink) {
            sink.event(STREAM, self.now, &Event::IrqEnter { irq, cpu });
        }
    }

    fn irq_exit(&mut self, cpu: u32, kind: InterruptKind, number: u32, sink: &mut impl Sink) {
        if let Some(irq) = self.interrupt(kind, number, &Comm::NONE, sink) {
            sink.event(STREAM, self.now, &Event::IrqExit { irq, cpu });
        }
    }

    /// The event is the first one, or the first of its CPU.
    #[cold]
    #[inline(never)]
    fn add_cpu(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        if self.cpus_known == 0 {
            self.zero = event.time;
        }
        self.now = Time::from_ns(event.time.as_ns().saturating_sub(self.zero.as_ns())).max(self.now);
        if (self.node.cpus..takt_model::CpuSet::CPUS_MAX).contains(&event.cpu) {
            self.node.cpus = event.cpu + 1;
            sink.define(STREAM, self.now, &Definition::Node(NODE, self.node.clone()));
        }
        self.cpus_known = self.node.cpus;
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
            self.switch_out_missing(current, sink);
        }
        if prev.pid != 0 {
            self.switch_out(cpu, prev, left, next, sink);
        }
        if next.pid != 0 {
            self.switch_in(cpu, next, sink);
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
            && self.threads.get_mut(next.pid).is_some_and(|thread| matches!(thread.job_state, JobState::Started));
        if let Some(other_threads) = self.other_threads.as_mut().filter(|_| !works) {
            other_threads.switched_in(cpu, next).iter().for_each(|line| line.write_to(STREAM, self.now, sink));
        }
    }

    /// `pid` is the first known thread on the CPU. Returns the thread before it, if there was any.
    #[cold]
    fn first_on(&mut self, cpu: u32, pid: Pid) -> Option<Pid> {
        let at = cpu as usize;
        if cpu < CPUS_MAX && self.current.len() <= at {
            self.current.resize(at + 1, None);
        }
        self.current.get_mut(at)?.replace(pid)
    }

    /// A thread should be on a CPU and is not: the switch from it is missing.
    #[cold]
    fn switch_out_missing(&mut self, pid: Pid, sink: &mut impl Sink) {
        if let Some(thread) = self.threads.get_mut(pid) {
            thread.forget();
            if thread.next_number > 0 {
                self.gaps += 1;
                sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
            }
        }
    }

    /// A thread leaves a CPU, and the switch to it is missing. It got the CPU after its wake-up.
    #[cold]
    fn switch_in_missing(&mut self, slot: usize, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        if let (RunState::Asleep, JobState::Between { since }) = (thread.run_state, thread.job_state) {
            self.release_unwoken(slot, since, sink);
        }
        let thread = self.threads.at(slot);
        if let JobState::Released | JobState::Started = thread.job_state {
            thread.job_state = JobState::Started;
            self.gaps += 1;
            sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
        }
    }

    /// The thread of an event and its slot. Adds a thread with an unknown id.
    #[inline(always)]
    fn thread_of(&mut self, seen: &KernelThread, sink: &mut impl Sink) -> (usize, &mut Thread) {
        let mut slot = self.threads.slot_or_add(seen);
        if self.threads.at(slot).comm != seen.comm {
            slot = self.thread_of_other_name(slot, seen, sink);
        }
        let thread = self.threads.at(slot);
        if let Some(prio) = seen.prio {
            thread.prio = prio;
        }
        (slot, thread)
    }

    /// An event has another name for a thread's id. A thread on its CPU may have renamed itself. Without a CPU
    /// it cannot: the id most likely belongs to a new thread, and the end of the old one was not
    /// recorded.
    #[cold]
    fn thread_of_other_name(&mut self, slot: usize, seen: &KernelThread, sink: &mut impl Sink) -> usize {
        let thread = self.threads.at(slot);
        if thread.task.is_none() || thread.run_state == RunState::Running || thread.comm == Comm::NONE {
            self.rename(slot, seen.comm, sink);
            return slot;
        }
        if let JobState::Released | JobState::Started = thread.job_state {
            self.gaps += 1;
            sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
        }
        self.threads.remove(seen.pid);
        self.options.reservations.remove(&seen.pid);
        self.threads.slot_or_add(seen)
    }

    #[inline(always)]
    fn switch_out(
        &mut self,
        cpu: u32,
        prev: &KernelThread,
        left: SwitchOutState,
        next: &KernelThread,
        sink: &mut impl Sink,
    ) {
        let now = self.now;
        let suspensions = self.options.suspensions;
        let (slot, mut thread) = self.thread_of(prev, sink);
        if matches!(thread.run_state, RunState::Ready | RunState::Asleep) {
            self.switch_in_missing(slot, sink);
            thread = self.threads.at(slot);
        }
        let open = thread.job_state == JobState::Started;
        let job = thread.job;
        let mut unclear = false;
        match left {
            SwitchOutState::Ready if thread.yields() => {
                thread.run_state = RunState::Ready;
                if open {
                    sink.event(STREAM, now, &Event::Block { job, cpu });
                    if !thread.is_deadline() {
                        sink.event(STREAM, now, &Event::Wake { job });
                    }
                }
            }
            // The kernel preempts most threads by an ordinary call of the scheduler, on the way
            // back to the program. So they leave as `Ready`.
            SwitchOutState::Preempted | SwitchOutState::Ready => {
                thread.run_state = RunState::Ready;
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
                thread.run_state = RunState::Asleep;
                if open && boundary {
                    sink.event(STREAM, now, &Event::Complete { job, cpu });
                    thread.job_state = JobState::Between { since: now };
                } else if open {
                    sink.event(STREAM, now, &Event::Block { job, cpu });
                } else if thread.job_state == JobState::Partial && boundary {
                    thread.job_state = JobState::Between { since: now };
                }
            }
            SwitchOutState::Ended => {
                if open {
                    sink.event(STREAM, now, &Event::Complete { job, cpu });
                }
                self.remove_thread(prev.pid);
                return;
            }
        }
        let woken = thread.woken.is_some();
        if unclear && !self.calls_seen {
            self.unclear_yields.insert(prev.pid);
        }
        if woken {
            self.switch_out_woken(slot, sink);
        }
    }

    /// A thread has ended. Another thread may get its id.
    fn remove_thread(&mut self, pid: Pid) {
        self.threads.remove(pid);
        self.options.reservations.remove(&pid);
        self.options.filter.pids.remove(&pid);
    }

    #[inline(always)]
    fn switch_in(&mut self, cpu: u32, next: &KernelThread, sink: &mut impl Sink) {
        let now = self.now;
        let (slot, mut thread) = self.thread_of(next, sink);
        if thread.run_state != RunState::Ready || thread.yielded {
            self.switch_in_unready(slot, next.pid, sink);
            thread = self.threads.at(slot);
            thread.woken = None;
        }
        thread.run_state = RunState::Running;
        let job = thread.job;
        match thread.job_state {
            JobState::Released => {
                sink.event(STREAM, now, &Event::Start { job, cpu });
                (thread.job_state, thread.started) = (JobState::Started, now);
            }
            JobState::Started => {
                if thread.cpu != cpu {
                    sink.event(STREAM, now, &Event::Migrate { job, from: thread.cpu, to: cpu });
                }
                sink.event(STREAM, now, &Event::Resume { job, cpu });
            }
            JobState::Partial | JobState::Between { .. } => {}
        }
        thread.cpu = cpu;
    }

    /// A thread gets a CPU although it was not ready by its events, or it yielded before.
    #[cold]
    fn switch_in_unready(&mut self, slot: usize, pid: Pid, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        match (thread.run_state, thread.job_state) {
            // Its wake-up is missing. The end of a yield has no event.
            (RunState::Asleep, JobState::Between { since }) => self.release_unwoken(slot, since, sink),
            (RunState::Ready, JobState::Between { since }) if thread.yielded => {
                self.release(slot, self.now, Some(since), sink);
            }
            (RunState::Asleep, JobState::Started) => sink.event(STREAM, self.now, &Event::Wake { job: thread.job }),
            // The switch from its other CPU is missing.
            (RunState::Running, _) => self.switch_out_missing(pid, sink),
            _ => {}
        }
    }

    fn enter_call(&mut self, event: &KernelEvent, number: i64, args: &[u64; 6], sink: &mut impl Sink) {
        if event.pid == 0 || self.options.suspensions {
            return;
        }
        let now = self.now;
        let thread = self.threads.get_or_add(event.pid);
        if thread.mark_running(event.cpu) {
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
        // A read of a timerfd or an eventfd has eight bytes.
        let read_fd = (class == Class::Take && args[2] == 8).then_some(args[0]);
        let always = match class {
            Class::Sleep | Class::Wait => true,
            Class::Yield => thread.is_deadline(),
            Class::Take => read_fd.is_some() && read_fd == thread.blocked_read_fd,
            Class::Sync | Class::Restart | Class::Other => false,
        };
        thread.call = Some(Call { class, read_fd, entered: now });
        thread.waits_for_events |= matches!(class, Class::Sleep | Class::Wait);
        if !always {
            return;
        }
        thread.yielded = class == Class::Yield;
        match thread.job_state {
            JobState::Started => {
                sink.event(STREAM, now, &Event::Complete { job: thread.job, cpu: event.cpu });
                thread.job_state = JobState::Between { since: now };
            }
            JobState::Partial => thread.job_state = JobState::Between { since: now },
            JobState::Between { .. } | JobState::Released => {}
        }
    }

    fn exit_call(&mut self, event: &KernelEvent, sink: &mut impl Sink) {
        if event.pid == 0 || self.options.suspensions {
            return;
        }
        let Some(slot) = self.threads.slot(event.pid) else { return };
        let thread = self.threads.at(slot);
        let (call, woken) = (thread.call.take(), thread.woken.take());
        thread.calls_seen = true;
        let slept = thread.run_state == RunState::Asleep;
        if let (JobState::Between { .. }, Some(woken)) = (thread.job_state, woken) {
            self.release_woken(slot, woken, sink);
        } else if let JobState::Between { since } = thread.job_state
            && (slept || call.is_some())
        {
            // A sleep that did not block: the arrival is its time, which had passed. Another call
            // that did not block: its event came at some time since the job before began.
            let (arrival, earliest) = match (call, thread.timer.take()) {
                (Some(Call { class: Class::Sleep, .. }), Some(timer)) => (timer, None),
                // It did block, and its wake-up is missing.
                _ if slept => (self.now, Some(since)),
                (Some(Call { class: Class::Sleep, .. }), None) => (self.now, None),
                (Some(Call { class: Class::Yield, .. }) | None, _) => (self.now, Some(since)),
                (Some(call), _) => (call.entered, Some(thread.started)),
            };
            self.release(slot, arrival, earliest, sink);
        }
        let thread = self.threads.at(slot);
        if thread.mark_running(event.cpu) {
            self.gaps += 1;
            sink.event(STREAM, self.now, &Event::Gap { job: thread.job });
        }
        if thread.job_state == JobState::Released {
            (thread.job_state, thread.started) = (JobState::Started, self.now);
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
        self.remove_thread(child);
        if self.options.filter.pids.contains(&parent) {
            self.options.filter.pids.insert(child);
        }
        let slot = self.threads.slot_or_add(&KernelThread { pid: child, comm, prio: None });
        self.threads.at(slot).run_state = RunState::Ready;
    }

    #[cold]
    fn rename(&mut self, slot: usize, comm: Comm, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        thread.comm = comm;
        thread.ignored = false;
        if let Some(task) = thread.task {
            let def = task_def(thread, self.options.reservations.get(&thread.pid));
            self.threads.set_task_name(task, slot);
            sink.define(STREAM, self.now, &Definition::Task(task, def));
        }
        let pid = self.threads.at(slot).pid;
        if let Some(other_threads) = &mut self.other_threads {
            other_threads.renamed(pid, comm).iter().for_each(|line| line.write_to(STREAM, self.now, sink));
        }
    }

    /// Events are missing: the state of every open job is unknown.
    #[cold]
    fn events_lost(&mut self, count: u64, sink: &mut impl Sink) {
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
