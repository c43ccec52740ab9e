//! What the threads of a run and its recorder share.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use takt_dispatch::ring::Ring;
use takt_linux::{Class, Epoch};
use takt_model::{System, TaskId, Time};

use crate::manager::seat::{Manager, Seat};

/// State shared by the threads of a run and its recorder.
pub(crate) struct Shared {
    pub(crate) system: Arc<System>,
    pub(crate) seed: u64,
    /// Time zero; set before `go`.
    pub(crate) epoch: OnceLock<Epoch>,
    /// A futex of [`takt_dispatch::gate`].
    pub(crate) go: AtomicU32,
    /// Jobs are released before this.
    pub(crate) duration: Time,
    /// When the run ends, in nanoseconds: the duration, or earlier when a signal came.
    pub(crate) end_ns: AtomicU64,
    pub(crate) lanes: Vec<Lane>,
}

/// The source of a thread's job releases.
pub(crate) enum Role {
    /// The thread itself, or its predecessors in a chain.
    Own,
    /// The manager of its CPU.
    Managed(Seat),
    /// It has no jobs. It is a manager.
    Manager(Box<Manager>),
    /// The manager itself carries the jobs out: there is no thread.
    Table,
}

/// One thread's side of [`Shared`].
pub(crate) struct Lane {
    pub(crate) task: TaskId,
    pub(crate) role: Role,
    pub(crate) class: Class,
    pub(crate) yields: bool,
    /// The predecessors' lanes; job k waits for their job k.
    pub(crate) after: Vec<usize>,
    /// The successors' lanes.
    pub(crate) before: Vec<usize>,
    pub(crate) ring: Ring,
    /// Lower bound of the stamps of later records of this lane (nanoseconds).
    pub(crate) floor: AtomicU64,
    /// Jobs completed.
    pub(crate) completed: AtomicU64,
    /// Counts completions of predecessors; a futex.
    pub(crate) signal: AtomicU32,
    pub(crate) tid: AtomicI32,
    pub(crate) done: AtomicBool,
    pub(crate) overruns: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) throttles_known: AtomicBool,
    pub(crate) demanded_ns: AtomicU64,
    pub(crate) used_ns: AtomicU64,
}

impl Lane {
    pub(crate) fn new(task: TaskId, class: Class, yields: bool, records: usize) -> Lane {
        Lane {
            task,
            role: Role::Own,
            class,
            yields,
            after: Vec::new(),
            before: Vec::new(),
            ring: Ring::new(records),
            floor: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            signal: AtomicU32::new(0),
            tid: AtomicI32::new(0),
            done: AtomicBool::new(false),
            overruns: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            throttles_known: AtomicBool::new(false),
            demanded_ns: AtomicU64::new(0),
            used_ns: AtomicU64::new(0),
        }
    }
}

impl Shared {
    pub(crate) fn end(&self) -> Time {
        Time::from_ns(self.end_ns.load(Ordering::Acquire))
    }
}

/// A stamped fact, as it travels through a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) at: Time,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    /// The nominal arrival of a release, or the CPU (the kernel's number) of a start or completion.
    pub(crate) value: u64,
}

/// In the order in which records of one instant are emitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Complete,
    Release,
    Start,
}

impl Record {
    pub(crate) fn to_words(self) -> [u64; 4] {
        [self.at.as_ns(), self.kind as u64, self.number, self.value]
    }

    pub(crate) fn from_words([at, kind, number, value]: [u64; 4]) -> Record {
        let kind = match kind {
            0 => Kind::Complete,
            1 => Kind::Release,
            _ => Kind::Start,
        };
        Record { at: Time::from_ns(at), kind, number, value }
    }
}
