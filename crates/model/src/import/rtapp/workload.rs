//! A workload as its file gives it, and the keys that rt-app knows.

use crate::cpus::CpuSet;

/// All threads of a file.
pub(super) struct Workload {
    pub(super) threads: Vec<Thread>,
}

pub(super) struct Thread {
    pub(super) name: String,
    /// `tasks.<name>`.
    pub(super) path: String,
    pub(super) at: usize,
    pub(super) instances: u32,
    pub(super) delay_ns: u64,
    pub(super) sched: Sched,
    pub(super) cpus: Option<CpuSet>,
    pub(super) phases: Vec<Phase>,
    /// How often all phases are run, `None` for ever.
    pub(super) loops: Option<u64>,
}

/// A phase object, or the thread's own events.
pub(super) struct Phase {
    pub(super) path: String,
    pub(super) loops: Option<u64>,
    pub(super) events: Vec<Event>,
}

/// An event that a thread performs.
pub(super) struct Event {
    pub(super) at: usize,
    pub(super) path: String,
    pub(super) action: Action,
}

/// The effect of an event, as far as takt has a counterpart.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// `run` and `runtime`: nanoseconds of execution.
    Run(u64),
    /// `sleep`: nanoseconds.
    Sleep(u64),
    /// `timer`: nanoseconds between its expiries.
    Timer { period_ns: u64, name: String, absolute: bool },
    /// `mem`: bytes written.
    Mem(u64),
    /// `yield`.
    Yield,
    /// Waits for another thread.
    Block,
    /// Anything else; a warning has been given.
    Other,
}

/// Scheduling classes, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    Deadline,
    Fifo,
    Other,
    Idle,
}

/// A thread's scheduling parameters.
pub(super) struct Sched {
    pub(super) class: Class,
    /// The kernel's priority, 1 to 99, for FIFO and RR.
    pub(super) priority: u32,
    /// Runtime, deadline and period in nanoseconds, for DEADLINE.
    pub(super) reservation: Option<(u64, u64, u64)>,
}

pub(super) const POLICIES: [(&str, Class); 6] = [
    ("SCHED_OTHER", Class::Other),
    ("SCHED_BATCH", Class::Other),
    ("SCHED_IDLE", Class::Idle),
    ("SCHED_RR", Class::Fifo),
    ("SCHED_FIFO", Class::Fifo),
    ("SCHED_DEADLINE", Class::Deadline),
];
/// In rt-app's order; a key is the event that it starts with.
pub(super) const EVENTS: [&str; 20] = [
    "lock", "unlock", "wait", "signal", "broad", "sync", "sleep", "runtime", "run", "timer", "suspend", "resume",
    "memrun", "mem", "iorun", "yield", "barrier", "fork", "sem_post", "sem_wait",
];
/// Keys that a thread and its phases may have.
pub(super) const SHARED: [&str; 11] = [
    "loop",
    "policy",
    "priority",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "cpus",
    "nodes_membind",
    "util_min",
    "util_max",
    "taskgroup",
];
/// Keys that only a thread may have; the last two are old names of dl-period and dl-deadline.
pub(super) const THREAD_ONLY: [&str; 5] = ["instance", "delay", "phases", "period", "deadline"];

/// The event of a key: the first event name that the key starts with, with rt-app's distinctions.
pub(super) fn event_of(key: &str) -> Option<&'static str> {
    // "runtime" stands before "run" and "memrun" before "mem" in rt-app's own table.
    EVENTS.iter().copied().find(|event| key.starts_with(event))
}
