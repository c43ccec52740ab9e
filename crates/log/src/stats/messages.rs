//! Messages: what became of them, and how long they took from sender to receiver and to the link.

use std::collections::BTreeMap;

use takt_model::TaskId;

use super::{DropCounts, Histogram, MessageStats};
use crate::definitions::Definitions;
use crate::event::DropCause;

/// Messages of one task that are on their way, at most. Of more, the time of the oldest is not counted.
const OPEN_MAX: usize = 1 << 16;

/// The messages of all tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    /// By task; empty until the first message.
    tasks: Vec<TaskMessages>,
    /// Messages that have not left on their links, by stream and number: the task, and when they were sent.
    leaving: BTreeMap<(u32, u64), (usize, u64)>,
}

#[derive(Clone, Debug, Default)]
struct TaskMessages {
    sent: u64,
    received: u64,
    dropped_by: DropCounts,
    bytes: u64,
    /// From send to the first bit on the link.
    link_waits: Histogram,
    /// From send to receive.
    transits: Histogram,
    /// When each message on its way was sent, by its number.
    open: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Send,
    Receive,
    Drop(DropCause),
}

impl DropCounts {
    fn count(&mut self, cause: DropCause) -> &mut u64 {
        match cause {
            DropCause::Unknown => &mut self.unknown,
            DropCause::Lost => &mut self.lost,
            DropCause::Full => &mut self.full,
            DropCause::Late => &mut self.late,
        }
    }

    fn add(&mut self, other: DropCounts) {
        self.lost += other.lost;
        self.full += other.full;
        self.late += other.late;
        self.unknown += other.unknown;
    }

    fn sum(self) -> u64 {
        self.lost + self.full + self.late + self.unknown
    }
}

impl TaskMessages {
    fn step(&mut self, now: u64, message: u64, step: Step) {
        match step {
            Step::Send => {
                self.sent += 1;
                self.open.insert(message, now);
                if self.open.len() > OPEN_MAX {
                    self.open.pop_first();
                }
            }
            Step::Receive => {
                self.received += 1;
                if let Some(sent) = self.open.remove(&message) {
                    self.transits.record_apart(now.saturating_sub(sent));
                }
            }
            Step::Drop(cause) => {
                *self.dropped_by.count(cause) += 1;
                self.open.remove(&message);
            }
        }
    }

    fn reset(&mut self) {
        (self.sent, self.received, self.bytes, self.dropped_by) = (0, 0, 0, DropCounts::default());
    }
}

impl Messages {
    /// A step of a message of this task. The stream is `None` if messages that leave are not recorded.
    #[inline(never)]
    pub(super) fn step(&mut self, now: u64, task: usize, stream: Option<u32>, message: u64, step: Step) {
        if task >= self.tasks.len() {
            self.tasks.resize_with(task + 1, TaskMessages::default);
        }
        self.tasks[task].step(now, message, step);
        if let Some(stream) = stream {
            let leaving = (stream, message);
            match step {
                Step::Send => drop(self.leaving.insert(leaving, (task, now))),
                Step::Receive => {}
                Step::Drop(_) => drop(self.leaving.remove(&leaving)),
            }
            if self.leaving.len() > OPEN_MAX {
                self.leaving.pop_first();
            }
        }
    }

    /// The first bit of a message of a stream left on the link.
    #[inline(never)]
    pub(super) fn transmit(&mut self, stream: u32, now: u64, message: u64, bytes: u32) {
        if let Some((task, sent)) = self.leaving.remove(&(stream, message)) {
            let messages = &mut self.tasks[task];
            messages.bytes = messages.bytes.saturating_add(bytes.into());
            messages.link_waits.record_apart(now.saturating_sub(sent));
        }
    }

    /// Events are missing: messages on their way may have been received or dropped unseen.
    pub(super) fn lose(&mut self) {
        self.tasks.iter_mut().for_each(|messages| messages.open.clear());
        self.leaving.clear();
    }

    pub(super) fn reset(&mut self) {
        self.tasks.iter_mut().for_each(TaskMessages::reset);
    }

    /// The statistics of tasks that left messages; histograms are taken out. `transmits`: messages that leave are
    /// recorded.
    pub(super) fn stats(&mut self, definitions: &Definitions, transmits: bool) -> Vec<MessageStats> {
        let hops = if self.tasks.is_empty() { Vec::new() } else { definitions.hops() };
        let mut stats = Vec::new();
        for (i, messages) in self.tasks.iter_mut().enumerate() {
            if messages.sent + messages.received + messages.dropped_by.sum() == 0 {
                continue;
            }
            let Some(def) = definitions.tasks.get(i) else { continue };
            let hop = hops.get(i).copied().flatten();
            let transits = std::mem::take(&mut messages.transits);
            let link_waits = std::mem::take(&mut messages.link_waits);
            stats.push(MessageStats {
                id: TaskId(i as u32),
                flow: hop.map(|(chain, _)| definitions.chains[chain].name.clone()),
                hop: hop.map(|(_, hop)| hop),
                task: def.name.clone(),
                node: definitions.node_name(def.node),
                sent: messages.sent,
                received: messages.received,
                dropped: messages.dropped_by.sum(),
                dropped_by: messages.dropped_by,
                bytes: transmits.then_some(messages.bytes),
                link_wait_ns: link_waits.summary(),
                link_waits,
                transit_ns: transits.summary(),
                transits,
            });
        }
        stats
    }
}

/// Adds the messages of a run. Runs need not have messages of the same tasks.
pub(super) fn add_messages(sum: &mut Vec<MessageStats>, run: &[MessageStats]) {
    for run in run {
        match sum.iter_mut().find(|sum| sum.id == run.id) {
            Some(sum) => {
                sum.sent += run.sent;
                sum.received += run.received;
                sum.dropped += run.dropped;
                sum.dropped_by.add(run.dropped_by);
                sum.transits.merge(&run.transits);
                sum.transit_ns = sum.transits.summary();
                sum.bytes = sum.bytes.zip(run.bytes).map(|(sum, run)| sum.saturating_add(run));
                sum.link_waits.merge(&run.link_waits);
                sum.link_wait_ns = sum.link_waits.summary();
            }
            None => sum.push(run.clone()),
        }
    }
    sum.sort_by_key(|stats| stats.id);
}
