//! A component of existing threads, as its manager and its two helpers see it.
//!
//! | thread | priority | job |
//! |---|---|---|
//! | look | as the manager | each millisecond or less often: do threads that count as idle want the CPU? |
//! | idle detector | below the threads of all components | runs only when no thread of a component wants the CPU, and says so |

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use takt_linux::foreign::{ForeignControl, WatchedThread};
use takt_model::{Span, Time};

use super::board::Report;
use super::turn::{Switch, Turns};

/// How often threads that count as idle are looked at, if looking takes no more than a twentieth of this. So long they
/// may run without being noticed.
pub(crate) const LOOK: Span = Span::from_ms(1);

/// The seat of existing threads: a task without a thread of takt's own.
pub(crate) struct ForeignSeat {
    pub(crate) control: Arc<ForeignControl>,
    /// Threads that the look asks. The owner of the run changes them.
    pub(crate) watched: Mutex<Vec<WatchedThread>>,
    /// The manager counts them as idle: the look is to notice when they are not.
    idle: AtomicBool,
    /// CPU time up to which they owe nothing.
    free_until_ns: AtomicU64,
    /// The look has noticed that they want the CPU.
    awake: AtomicBool,
    /// The longest pause between two looks.
    pub(crate) pause_max_ns: AtomicU64,
    /// For the summary, written at the end.
    pub(crate) paid_ns: AtomicU64,
    pub(crate) owed_max_ns: AtomicU64,
}

impl ForeignSeat {
    pub(crate) fn new(control: Arc<ForeignControl>, watched: Vec<WatchedThread>) -> ForeignSeat {
        ForeignSeat {
            control,
            watched: watched.into(),
            idle: false.into(),
            free_until_ns: 0.into(),
            // The plan decides from the start on.
            awake: true.into(),
            pause_max_ns: 0.into(),
            paid_ns: 0.into(),
            owed_max_ns: 0.into(),
        }
    }

    /// Whether the threads want the CPU, though they count as idle. Told once.
    pub(crate) fn look(&self, grain: Span) -> bool {
        if !self.idle.load(Ordering::Acquire) || self.awake.load(Ordering::Acquire) {
            return false;
        }
        let used = self.control.used().unwrap_or_default().as_ns();
        let owes = used.saturating_sub(self.free_until_ns.load(Ordering::Acquire)) >= grain.as_ns();
        let wants = || {
            let Ok(watched) = self.watched.try_lock() else { return false };
            watched.iter().any(WatchedThread::is_runnable)
        };
        let awake = owes || wants();
        if awake {
            self.awake.store(true, Ordering::Release);
        }
        awake
    }
}

/// Says when no thread of a component wants the CPU.
#[derive(Default)]
pub(crate) struct IdleDetector {
    /// A futex: counts the turns that it is to watch.
    pub(crate) word: AtomicU32,
    /// The turn to watch.
    turn: AtomicU64,
    /// The turn in which it ran last, and when.
    slept: AtomicU64,
    slept_at: AtomicU64,
}

impl IdleDetector {
    /// Watches a turn. The caller wakes it.
    fn watch(&self, turn: u64) {
        self.turn.store(turn, Ordering::Release);
        self.word.fetch_add(1, Ordering::AcqRel);
    }

    /// The turn that it is to watch.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// It runs, so nobody else wants to.
    pub(crate) fn note_idle(&self, turn: u64, now: Time) {
        self.slept_at.store(now.as_ns(), Ordering::Relaxed);
        self.slept.store(turn, Ordering::Release);
    }

    fn slept(&self, turn: u64) -> Option<Time> {
        (self.slept.load(Ordering::Acquire) == turn).then(|| Time::from_ns(self.slept_at.load(Ordering::Relaxed)))
    }
}

impl Switch for ForeignSeat {
    fn freeze(&self) {
        self.control.freeze();
    }
    fn thaw(&self) {
        self.control.thaw();
    }
    fn used(&self) -> Span {
        self.control.used().unwrap_or_default()
    }
}

/// A seat in the hands of its manager.
pub(crate) struct ManagedSeat<'a> {
    pub(crate) slot: u32,
    seat: &'a ForeignSeat,
    idle_detector: &'a IdleDetector,
    turns: Turns,
    /// The number of the turn, among those of all seats of the manager.
    turn: u64,
    /// When its job was given the CPU first.
    begun: Time,
}

impl<'a> ManagedSeat<'a> {
    pub(crate) fn new(
        slot: u32,
        seat: &'a ForeignSeat,
        idle_detector: &'a IdleDetector,
        grain: Span,
    ) -> ManagedSeat<'a> {
        ManagedSeat { slot, seat, idle_detector, turns: Turns::new(seat.used(), grain), turn: 0, begun: Time::ZERO }
    }

    /// Whether the threads have begun to want the CPU. Told once.
    pub(crate) fn take_arrival(&mut self) -> bool {
        let arrived = self.turns.is_idle() && self.seat.awake.swap(false, Ordering::AcqRel);
        if arrived {
            self.seat.idle.store(false, Ordering::Release);
            self.turns.wake();
        }
        arrived
    }

    /// The job has the CPU for the first time.
    pub(crate) fn give(&mut self, turn: u64, now: Time) {
        self.begun = now;
        self.begin(turn, now);
    }

    /// The job has the CPU, and its threads run or pay.
    pub(crate) fn begin(&mut self, turn: u64, now: Time) {
        self.turn = turn;
        self.turns.begin(now, self.seat);
    }

    pub(crate) fn watch(&self) {
        self.idle_detector.watch(self.turn);
    }

    pub(crate) fn runs(&self) -> bool {
        self.turns.runs()
    }

    /// See [`Turns::run_if_paid`].
    pub(crate) fn run_if_paid(&mut self, now: Time) -> bool {
        self.turns.run_if_paid(now, self.seat)
    }

    pub(crate) fn due(&self) -> Time {
        self.turns.due()
    }

    pub(crate) fn end(&mut self, now: Time) {
        self.turns.end(now, self.seat);
    }

    pub(crate) fn freeze_waiting(&mut self) {
        self.turns.freeze_waiting(self.seat);
    }

    /// The job completes when the idle detector ran in its turn.
    pub(crate) fn report(&mut self) -> Report {
        let started = Some(self.begun);
        let Some(at) = self.idle_detector.slept(self.turn).filter(|_| self.turns.runs()) else {
            return Report { started, completed: None };
        };
        self.turns.sleep(at, self.seat);
        self.seat.free_until_ns.store(self.turns.free_until().as_ns(), Ordering::Release);
        self.seat.idle.store(true, Ordering::Release);
        Report { started, completed: Some(at) }
    }

    /// Nobody looks after the threads any more.
    pub(crate) fn close(&mut self, now: Time) {
        self.seat.idle.store(false, Ordering::Release);
        self.turns.close(now, self.seat);
        self.seat.paid_ns.store(self.turns.paid().as_ns(), Ordering::Release);
        self.seat.owed_max_ns.store(self.turns.owed_max().as_ns(), Ordering::Release);
    }
}
