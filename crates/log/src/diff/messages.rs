//! Messages in two logs: when they were sent, arrived, were received, and which were dropped.
//!
//! Messages match by their job, and by their order among the messages of that job. Their own numbers do not count:
//! another message of the node shifts them.

use std::collections::BTreeMap;

use serde::Serialize;
use takt_model::{Span, Time};

use crate::event::{DropCause, Event, JobKey};
use crate::kind::Kind;

/// The most messages of one task on their way, and the most events of one kind without a counterpart yet. Beyond that,
/// the oldest counts as missing.
const MESSAGES_WAITING_MAX: usize = 1 << 14;

/// The kinds of event that are compared.
pub(super) const KINDS: [Kind; 4] = [Kind::Send, Kind::Arrive, Kind::Receive, Kind::Drop];

/// The differences of the messages that one task's jobs left.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MessageDiff {
    /// The task's name.
    pub task: String,
    /// Events of messages in both logs.
    pub matched: u64,
    /// Those that only the left log has.
    pub only_left: u64,
    /// Those that only the right log has.
    pub only_right: u64,
    /// Matched messages that were sent at different times.
    pub send: u64,
    /// Those that arrived at different times.
    pub arrive: u64,
    /// Those that were received at different times.
    pub receive: u64,
    /// Those that were dropped at different times, or for different reasons.
    pub drop: u64,
    /// The largest difference of two matched times, in ns.
    pub difference_max_ns: u64,
}

impl MessageDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.only_left + self.only_right + self.send + self.arrive + self.receive + self.drop == 0
    }

    fn only(&mut self, side: usize, count: u64) {
        *(if side == 0 { &mut self.only_left } else { &mut self.only_right }) += count;
    }
}

/// A message: the number of its job, and its place among those of that job.
type Key = (u64, u64);

#[derive(Default)]
struct Way {
    /// Messages on their way, by their numbers.
    open: BTreeMap<u64, Key>,
    counts: BTreeMap<u64, u64>,
}

impl Way {
    /// The key of a message, which is new where it is first heard of.
    fn key(&mut self, job: u64, message: u64, ends: bool) -> Key {
        let known = if ends { self.open.remove(&message) } else { self.open.get(&message).copied() };
        known.filter(|(of, _)| *of == job).unwrap_or_else(|| {
            let count = self.counts.entry(job).or_default();
            let key = (job, *count);
            *count += 1;
            if !ends {
                self.open.insert(message, key);
            }
            if self.open.len() > MESSAGES_WAITING_MAX {
                self.open.pop_first();
            }
            if self.counts.len() > MESSAGES_WAITING_MAX {
                self.counts.pop_first();
            }
            key
        })
    }
}

/// An event without its counterpart yet: its side, its time, and the cause of a drop.
type Waiting = (usize, Time, Option<DropCause>);

#[derive(Default)]
struct Matching {
    found: MessageDiff,
    ways: [Way; 2],
    /// By kind.
    pending: [BTreeMap<Key, Waiting>; KINDS.len()],
}

pub(super) struct Messages {
    tolerance: Span,
    /// By kind: whether both logs record it.
    compares: [bool; KINDS.len()],
    /// By the place of the task.
    tasks: BTreeMap<usize, Matching>,
}

impl Messages {
    pub(super) fn new(tolerance: Span, compares: [bool; KINDS.len()]) -> Messages {
        Messages { tolerance, compares, tasks: BTreeMap::new() }
    }

    /// Takes an event of a side. `place` gives the place of a task by its number in that log.
    pub(super) fn take(&mut self, side: usize, now: Time, event: &Event, place: impl Fn(JobKey) -> Option<usize>) {
        let (kind, job, message, cause) = match *event {
            Event::Send { job, message } => (0, job, message, None),
            Event::Arrive { job, message } => (1, job, message, None),
            Event::Receive { job, message } => (2, job, message, None),
            Event::Drop { job, message, cause } => (3, job, message, Some(cause)),
            _ => return,
        };
        let Some(task) = place(job) else { return };
        let of = self.tasks.entry(task).or_default();
        let key = of.ways[side].key(job.number, message, kind >= 2);
        if !self.compares[kind] {
            return;
        }
        let pending = &mut of.pending[kind];
        let Some((_, other, because)) = pending.get(&key).copied().filter(|(from, ..)| *from != side) else {
            pending.insert(key, (side, now, cause));
            if pending.len() > MESSAGES_WAITING_MAX
                && let Some((_, (side, ..))) = pending.pop_first()
            {
                of.found.only(side, 1);
            }
            return;
        };
        pending.remove(&key);
        let apart = now.saturating_since(other).max(other.saturating_since(now));
        let found = &mut of.found;
        found.matched += 1;
        found.difference_max_ns = found.difference_max_ns.max(apart.as_ns());
        if apart > self.tolerance || because != cause {
            *[&mut found.send, &mut found.arrive, &mut found.receive, &mut found.drop][kind] += 1;
        }
    }

    /// The differences of each task with any message, in the order of the left log. `name` gives a task's name by its
    /// place. The shorter log ends at `end`. An event shortly before the end may have its counterpart behind it.
    pub(super) fn finish(self, end: Time, name: impl Fn(usize) -> String) -> Vec<MessageDiff> {
        let tolerance = self.tolerance;
        let whole = |(task, mut of): (usize, Matching)| {
            for (side, at, _) in of.pending.iter().flat_map(BTreeMap::values) {
                of.found.only(*side, u64::from(at.saturating_add(tolerance) < end));
            }
            MessageDiff { task: name(task), ..of.found }
        };
        let found = self.tasks.into_iter().map(whole);
        found.filter(|found| found.matched + found.only_left + found.only_right > 0).collect()
    }
}
