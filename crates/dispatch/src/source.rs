//! The arrivals of an operation that a timer releases, at the rates of the current plan.

use std::sync::Arc;

use takt_model::draw::{Arrivals, Arriving, Draw, Releases};
use takt_model::{Arrival, Task, Time};

use super::core::Core;
use super::fact::FactSink;

/// The arrivals of an operation without predecessors.
///
/// The effect of a switch at t. Arrivals until t stay.
/// - An operation with another rate arrives next when its new period since its last arrival is
///   over, but not before t.
/// - An operation that joins arrives at its offset after t. A later switch does not change this
///   arrival.
/// - An operation that leaves never arrives.
///
/// No operation arrives before its period since its last arrival is over.
pub(crate) struct Source<'a> {
    slot: u32,
    /// By plan; `None` for a plan in which it takes no part.
    tasks: &'a [Option<Arc<Task>>],
    plan: usize,
    draw: Draw,
    duration: Time,
    releases: Option<Releases<'a>>,
    /// The number of its next arrival, for random draws.
    next: u64,
    last: Option<Time>,
    /// Whether it has arrived since it takes part.
    begun: bool,
}

impl<'a> Source<'a> {
    /// The arrivals before the start. `None` for an operation that others release.
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

    /// Records a switch at `since`. All earlier arrivals have been released.
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

/// The most arrivals within one hold of the lock. After a pause of the machine there may be many.
const ARRIVALS_MAX: u32 = 64;

/// The fate of an arrival overtaken by the next one, for an operation with at most one job at a
/// time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overtaken {
    Queued,
    /// Only the last one is queued, so that a late timer causes no burst.
    PassedOver,
}

/// Releases the arrivals due at `now`, each at the rate of its plan. Returns their number and the
/// time of the next arrival. The next time is `now` if there were too many for one hold of the
/// lock.
pub(crate) fn release<T: FactSink>(
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
                    // A job without room is counted and logged as rejected.
                    let _ = core.arrive(source.slot, due.arrival, now);
                }
            }
        }
        // With varying rates there is no jitter. All arrivals before the switch are due, and
        // released unless there were too many at once.
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
