//! What a manager shares with the threads of its tasks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use takt_linux::freeze::{Freezer, Lease};
use takt_model::{NodeId, Time};

use super::board::Report;
use super::core::Change;
use super::foreign::IdleDetector;
use crate::node::NodeLive;

/// What a task's thread and its manager share. Numbers of jobs count from one here; zero is none.
pub(crate) struct Seat {
    pub(crate) manager: usize,
    pub(crate) freezer: Arc<Freezer>,
    /// The frozen thread has the least priority. Only the manager uses this.
    pub(crate) is_lowered: AtomicBool,
    /// Counts jobs given; a futex.
    pub(crate) word: AtomicU32,
    pub(crate) given: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    /// The thread is to end.
    pub(crate) leaves: AtomicBool,
    started: AtomicU64,
    started_at: AtomicU64,
    completed: AtomicU64,
    completed_at: AtomicU64,
}

impl Seat {
    pub(crate) fn new(manager: usize, lease: Arc<Lease>) -> Seat {
        Seat {
            manager,
            freezer: Freezer::new(lease),
            is_lowered: AtomicBool::new(false),
            word: AtomicU32::new(0),
            given: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            leaves: AtomicBool::new(false),
            started: AtomicU64::new(0),
            started_at: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            completed_at: AtomicU64::new(0),
        }
    }

    /// The thread has begun job `given`.
    pub(crate) fn start(&self, given: u64, at: Time) {
        self.started_at.store(at.as_ns(), Ordering::Relaxed);
        self.started.store(given, Ordering::Release);
    }

    /// The thread has completed job `given`.
    pub(crate) fn complete(&self, given: u64, at: Time) {
        self.completed_at.store(at.as_ns(), Ordering::Relaxed);
        self.completed.store(given, Ordering::Release);
    }

    pub(crate) fn report(&self, number: u64) -> Report {
        let of = |word: &AtomicU64, at: &AtomicU64| {
            (word.load(Ordering::Acquire) == number + 1).then(|| Time::from_ns(at.load(Ordering::Relaxed)))
        };
        Report { started: of(&self.started, &self.started_at), completed: of(&self.completed, &self.completed_at) }
    }

    /// Whether the thread is to leave job `given` as it is.
    pub(crate) fn is_abandoned(&self, given: u64) -> bool {
        self.abandoned.load(Ordering::Relaxed) == given
    }
}

/// A manager: its CPU in the model, and the lanes of its tasks by slot.
pub(crate) struct Manager {
    pub(crate) node: NodeId,
    pub(crate) cpu: u32,
    /// The CPUs that it decides for, in the model and by the kernel's numbers. Its own is the first.
    pub(crate) cpus: Vec<(u32, u32)>,
    /// How often the kernel refused to bind a thread to one of them.
    pub(crate) unbound: AtomicU64,
    pub(crate) lanes: Vec<usize>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) preemptions: AtomicU64,
    /// A change of its components. The manager never waits for it.
    pub(crate) posted: Mutex<ChangeRequest>,
    /// The messages of a node with flows.
    pub(crate) live: Option<Arc<NodeLive>>,
    /// The lane of its idle detector, if it has components of existing threads.
    pub(crate) idle_detector: Option<usize>,
}

/// The idle detector of a manager, whose lane is `manager`.
pub(crate) struct IdleDetectorSlot {
    pub(crate) manager: usize,
    pub(crate) idle_detector: IdleDetector,
}

/// A change of components on its way from the thread that asks to the manager.
#[derive(Default)]
pub(crate) enum ChangeRequest {
    #[default]
    Nothing,
    Requested(Box<Change>),
    /// Its instant has passed. Nothing has changed.
    TooLate(Box<Change>),
    Applied(Box<Change>),
}

impl ChangeRequest {
    /// Takes the requested change. Leaves an answer in place.
    pub(crate) fn take_requested(&mut self) -> Option<Box<Change>> {
        match std::mem::take(self) {
            ChangeRequest::Requested(change) => Some(change),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The answer: whether the change was made, and its memory. What is asked for stays.
    pub(crate) fn take_answer(&mut self) -> Option<(bool, Box<Change>)> {
        match std::mem::take(self) {
            ChangeRequest::Applied(change) => Some((true, change)),
            ChangeRequest::TooLate(change) => Some((false, change)),
            other => {
                *self = other;
                None
            }
        }
    }
}
