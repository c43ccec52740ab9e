//! The helper threads of a manager: two for components of existing threads (see `foreign.rs`), and the sender of a
//! node with flows.

use std::sync::atomic::Ordering;

use takt_linux::{Epoch, futex};
use takt_model::Time;

use super::foreign::LOOK;
use super::live::GRAIN;
use super::seat::SentrySeat;
use crate::lanes::{Lane, Role, Shared};

/// Wakes a manager.
fn wake(shared: &Shared, manager: usize) {
    if let Some(manager) = shared.lanes.get(manager) {
        manager.wake();
    }
}

impl SentrySeat {
    /// Runs whenever no thread of a component on its CPU wants to, and tells the manager.
    pub(crate) fn run(&self, shared: &Shared, epoch: Epoch) {
        let mut last = 0;
        loop {
            let seen = self.sentry.word.load(Ordering::Acquire);
            let turn = self.sentry.turn();
            let (now, end) = (epoch.now(), shared.end());
            if now >= end {
                return;
            }
            if turn == last {
                futex::wait(&self.sentry.word, seen, epoch, end);
                continue;
            }
            last = turn;
            self.sentry.tell(turn, now);
            wake(shared, self.manager);
        }
    }
}

/// Looks whether existing threads of a manager want the CPU that count as idle.
pub(crate) fn look(shared: &Shared, manager: usize, epoch: Epoch) {
    let Some(Role::Manager(seats)) = shared.lanes.get(manager).map(|lane| &lane.role) else { return };
    let lanes = || seats.lanes.iter().filter_map(|lane| shared.lanes.get(*lane));
    let mut next = Time::ZERO;
    while epoch.now() < shared.end() {
        if !epoch.sleep_until(next.min(shared.end())) {
            continue;
        }
        let awake = |lane: &Lane| matches!(&lane.role, Role::Foreign(seat) if seat.look(GRAIN));
        // All of them: each tells once.
        if lanes().filter(|lane| awake(lane)).count() > 0 {
            wake(shared, manager);
        }
        next = epoch.now().saturating_add(LOOK);
    }
}

/// Sends the messages that a table thread could not send at once.
pub(crate) fn send(shared: &Shared, manager: usize, epoch: Epoch) {
    let Some(Role::Manager(seats)) = shared.lanes.get(manager).map(|lane| &lane.role) else { return };
    if let Some(outbox) = seats.live.as_ref().and_then(|live| live.outbox.as_ref()) {
        outbox.serve(epoch, || shared.end());
    }
}
