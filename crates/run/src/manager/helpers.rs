//! The helper threads of a manager: two for components of existing threads (see `foreign.rs`), and the sender of a
//! node with flows.

use std::sync::atomic::Ordering;

use takt_linux::{Epoch, clock, futex};
use takt_model::{Span, Time};

use super::live::GRAIN;
use crate::budgets::foreign::LOOK;
use crate::budgets::seat::IdleDetectorSlot;
use crate::lanes::{Role, Shared};

/// How many times as long as a look its pause is, at least.
const PAUSE_PER_LOOK: u64 = 20;

fn wake(shared: &Shared, manager: usize) {
    if let Some(manager) = shared.lanes.get(manager) {
        manager.wake();
    }
}

impl IdleDetectorSlot {
    /// Runs whenever no thread of a component on its CPU wants to, and tells the manager.
    pub(crate) fn run(&self, shared: &Shared, epoch: Epoch) {
        let mut last = 0;
        loop {
            let seen = self.idle_detector.word.load(Ordering::Acquire);
            let turn = self.idle_detector.turn();
            let (now, end) = (epoch.now(), shared.end());
            if now >= end {
                return;
            }
            if turn == last {
                futex::wait(&self.idle_detector.word, seen, epoch, end);
                continue;
            }
            last = turn;
            self.idle_detector.note_idle(turn, now);
            wake(shared, self.manager);
        }
    }
}

/// Looks whether existing threads of a manager want the CPU that count as idle. Looking takes a twentieth of the CPU at
/// most, so many threads are looked at less often.
pub(crate) fn look(shared: &Shared, manager: usize, epoch: Epoch) {
    let Some(Role::Manager(seats)) = shared.lanes.get(manager).map(|lane| &lane.role) else { return };
    let lanes = || seats.lanes.iter().filter_map(|lane| shared.lanes.get(*lane));
    let foreign = || lanes().filter_map(|lane| if let Role::Foreign(seat) = &lane.role { Some(seat) } else { None });
    let mut next = Time::ZERO;
    let mut last_took = Span::ZERO;
    while epoch.now() < shared.end() {
        if !epoch.sleep_until(next.min(shared.end())) {
            continue;
        }
        let begun = clock::thread_cpu();
        // All of them: each tells once.
        if foreign().filter(|seat| seat.look(GRAIN)).count() > 0 {
            wake(shared, manager);
        }
        let took = clock::thread_cpu().saturating_sub(begun);
        // A look that the hypervisor or an interrupt held up was not long by itself.
        let pause = LOOK.max(Span::from_ns(took.min(last_took).as_ns() * PAUSE_PER_LOOK));
        last_took = took;
        for seat in foreign() {
            seat.pause_max_ns.fetch_max(pause.as_ns(), Ordering::Relaxed);
        }
        next = epoch.now().saturating_add(pause);
    }
}

/// Sends the messages that a table thread could not send at once.
pub(crate) fn send(shared: &Shared, manager: usize, epoch: Epoch) {
    let Some(Role::Manager(seats)) = shared.lanes.get(manager).map(|lane| &lane.role) else { return };
    if let Some(outbox) = seats.live.as_ref().and_then(|live| live.outbox.as_ref()) {
        outbox.serve(epoch, || shared.end());
    }
}
