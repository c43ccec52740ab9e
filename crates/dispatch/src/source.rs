//! What a timer releases: an operation's arrivals, at the rates of the plan that holds.

use std::sync::Arc;

use takt_model::draw::{Arrivals, Arriving, Draw, Releases};
use takt_model::{Arrival, Task, Time};

use super::core::Core;
use super::fact::Tell;

/// The arrivals of an operation that follows no other.
///
/// A switch at t leaves arrivals until t as they were. After it an operation that goes on at another rate arrives first when its new period is over since its
/// last arrival, but not before t; one that joins, at its offset after t, which a later switch leaves as it is; one that leaves, never. None arrives before its
/// period is over since its last arrival.
pub(crate) struct Source<'a> {
    slot: u32,
    /// By plan; nothing of one in which it takes no part.
    tasks: &'a [Option<Arc<Task>>],
    plan: usize,
    draw: Draw,
    duration: Time,
    releases: Option<Releases<'a>>,
    /// The number of its next arrival, for what is drawn.
    next: u64,
    last: Option<Time>,
    /// Whether one arrived since it takes part.
    begun: bool,
}

impl<'a> Source<'a> {
    /// Before the start. `None` of an operation that is released by others.
    pub(crate) fn new(slot: u32, tasks: &'a [Option<Arc<Task>>], draw: Draw, duration: Time) -> Option<Source<'a>> {
        if tasks.iter().flatten().next().is_none_or(|task| !task.after.is_empty()) {
            return None;
        }
        let mut source =
            Source { slot, tasks, plan: 0, draw, duration, releases: None, next: 0, last: None, begun: false };
        source.releases = source.task().map(|task| Releases::new(Arrivals::new(task, draw), duration));
        Some(source)
    }

    /// Whether a program may push its jobs.
    pub(crate) fn is_sporadic(&self) -> bool {
        self.tasks.iter().flatten().any(|task| task.arrival == Arrival::Sporadic)
    }

    fn task(&self) -> Option<&'a Task> {
        self.tasks.get(self.plan)?.as_deref()
    }

    /// The next arrival, if the plan stays.
    pub(crate) fn peek(&self) -> Option<Arriving> {
        self.releases.as_ref()?.peek()
    }

    fn advance(&mut self) {
        let Some(releases) = &mut self.releases else { return };
        if let Some(due) = releases.peek() {
            (self.next, self.last, self.begun) = (due.number + 1, Some(due.arrival), true);
        }
        releases.advance();
    }

    /// Another plan holds from `since` on; all arrivals before that are released.
    fn switch(&mut self, plan: usize, since: Time) {
        let before = self.task();
        self.plan = plan;
        let Some(task) = self.task() else {
            (self.releases, self.begun) = (None, false);
            return;
        };
        let first = match (before, self.peek()) {
            (Some(before), _) if before.period == task.period => return,
            (Some(_), _) if self.begun => since,
            // Its offset is not over.
            (Some(_), Some(first)) => first.arrival,
            (Some(_), None) => return,
            (None, _) => since.saturating_add(task.offset),
        };
        let after_last = self.last.map(|last| last.saturating_add(task.period));
        let first = after_last.map_or(first, |earliest| earliest.max(first));
        self.releases = Some(Releases::new(Arrivals::resumed(task, self.draw, self.next, first), self.duration));
    }
}

/// Arrivals that a timer tells in one hold of the lock: after a pause of the machine there may be many.
const ARRIVALS_MAX: u32 = 64;

/// What becomes of an arrival that another one has overtaken already, of an operation of which one job at a time may be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overtaken {
    Queued,
    /// Only the last one is queued, so that a late timer makes no burst.
    PassedOver,
}

/// Releases what is due at `now`, each arrival at the rate of the plan that held then: how many, and when the next is due, which is at once where there was too
/// much for one hold of a lock.
pub(crate) fn release<T: Tell>(
    core: &mut Core<T>,
    sources: &mut [Source<'_>],
    now: Time,
    rule: Overtaken,
) -> (u32, Time) {
    let mut arrivals = 0;
    loop {
        let switch = core.next_switch();
        let mut next = Time::MAX;
        let held_then = |due: &Arriving| switch.is_none_or(|(since, _)| due.arrival <= since);
        for source in sources.iter_mut() {
            while let Some(due) = source.peek().filter(held_then) {
                if due.release > now || arrivals >= ARRIVALS_MAX {
                    next = next.min(due.release);
                    break;
                }
                arrivals += 1;
                source.advance();
                let overtaken = source.peek().filter(held_then).is_some_and(|after| after.release <= now);
                if overtaken && rule == Overtaken::PassedOver && core.skips(source.slot) {
                    core.pass_over(source.slot, due.arrival, now);
                } else {
                    // A job without room is counted and told as rejected.
                    let _ = core.arrive(source.slot, due.arrival, now);
                }
            }
        }
        // Where rates vary there is no jitter: what arrived before the switch is due, and is released but for what was too much at once.
        match switch.filter(|_| next == Time::MAX) {
            Some((since, plan)) => {
                core.take_switch();
                sources.iter_mut().for_each(|source| source.switch(plan, since));
            }
            None => return (arrivals, next),
        }
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
