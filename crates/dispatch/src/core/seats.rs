//! Levels whose jobs preempt each other: started jobs are compared, and threads change seats.

use takt_model::Time;

use super::Core;
use crate::fact::{Fact, FactSink, TimedFact};

impl<T: FactSink> Core<T> {
    /// Passes time to `now`. Call it before every other event at `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        if self.nests {
            self.levels.advance(now);
            self.touched |= self.next_comparison.is_some_and(|at| at <= now);
        }
    }

    /// When started jobs must be compared even if nothing happens.
    #[inline]
    pub(crate) fn next_comparison(&self) -> Option<Time> {
        self.next_comparison
    }

    /// Compares started jobs if something happened since the last comparison. Call it before
    /// leaving the lock.
    #[inline]
    pub(crate) fn compare(&mut self, now: Time) {
        if self.touched {
            self.compare_all(now);
        }
    }

    #[inline(never)]
    fn compare_all(&mut self, now: Time) {
        self.touched = false;
        if let Some(seat) = self.levels.compare() {
            self.woken.insert(seat);
        }
        self.tell_moved(now, true);
        self.next_comparison = self.levels.next_comparison(now);
    }

    /// Reports changed seats. `alone` says whether the running job follows from that alone.
    pub(super) fn tell_moved(&mut self, now: Time, alone: bool) {
        let mut moves = std::mem::take(&mut self.moves);
        moves.clear();
        self.levels.take_moved(|slot, seat| moves.push((slot, seat)));
        let next = if moves.is_empty() { 0 } else { self.first_waiting() };
        self.moved |= !moves.is_empty();
        for (left, (slot, seat)) in (0..moves.len()).rev().zip(moves.iter().copied()) {
            let number = self.current(slot).unwrap_or(0);
            let next = (alone && left == 0).then_some(next);
            self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Seat { seat, next } });
        }
        self.moves = moves;
    }

    /// Whether threads must change seats since the last call.
    #[inline]
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether a job was queued since the last call, possibly without waking a thread.
    #[inline]
    pub(crate) fn take_queued(&mut self) -> bool {
        std::mem::take(&mut self.queued)
    }

    /// A job waits at a level, so one of its threads must ask.
    #[inline]
    pub(super) fn call(&mut self, level: u32) {
        if self.nests {
            self.call_nested(level);
        } else {
            self.woken.insert(level);
        }
    }

    fn call_nested(&mut self, level: u32) {
        (self.touched, self.queued) = (true, true);
        if let Some(seat) = self.levels.calls(level) {
            self.woken.insert(seat);
        }
    }

    /// If jobs nest, continues the running job of a slot as a demoted job.
    pub(crate) fn demote(&mut self, slot: u32) {
        self.levels.demote_running(slot);
        self.call_all();
    }

    /// Started jobs left levels that may not be the most important ones.
    #[cold]
    pub(super) fn call_all(&mut self) {
        for level in 0..self.levels.level_count() as u32 {
            self.call_nested(level);
        }
    }
}
