//! Messages from hop to hop: how many one receiving job took, and how long they were in the network.
//!
//! [`Legs`] is a [`Sink`]. It needs the events of sender and receiver: one log of all nodes, or [`crate::Joined`]
//! logs. Delays are differences of two clocks' readings. [`crate::Clocks`] says how far they can be off.

use std::collections::BTreeMap;

use takt_model::{Lateness, Span, TaskId, Time};

use crate::definitions::Definitions;
use crate::event::{DropCause, Event, JobKey, Sink};

/// Messages of a task that are sent and have not arrived, at most; and the other way round. The oldest are left out.
const OPEN_MAX: usize = 1 << 12;

/// By task and number.
type OpenMessages = BTreeMap<TaskId, BTreeMap<u64, Time>>;

/// Counts messages by the task whose jobs left them.
#[derive(Clone, Debug, Default)]
pub struct Legs {
    /// The node of each task.
    nodes: Vec<u32>,
    /// By task.
    batches: BTreeMap<TaskId, Batch>,
    /// By task.
    delays: BTreeMap<TaskId, DelayRange>,
    /// When messages were sent that have not arrived, by task and number.
    sent: OpenMessages,
    /// When messages arrived whose send is not told yet.
    arrived: OpenMessages,
    /// By stream.
    stolen: BTreeMap<u32, Span>,
}

/// Messages that one receiving job took.
#[derive(Clone, Copy, Debug)]
struct Batch {
    at: Time,
    count: u64,
    most: u64,
}

/// The least and the greatest difference of two clocks' readings: arrival - send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayRange {
    /// Messages.
    pub count: u64,
    /// Of the fastest message.
    pub min: Lateness,
    /// Of the slowest message.
    pub max: Lateness,
}

impl Legs {
    /// For events of these definitions.
    #[must_use]
    pub fn new(definitions: &Definitions) -> Legs {
        Legs { nodes: definitions.tasks.iter().map(|task| task.node.0).collect(), ..Legs::default() }
    }

    /// k: the most messages of this task's jobs that one receiving job took. `None`: nothing was received.
    #[must_use]
    pub fn most_taken(&self, task: TaskId) -> Option<u64> {
        self.batches.get(&task).map(|batch| batch.most)
    }

    /// The delays of messages of this task's jobs. `None`: of no message both ends are told.
    #[must_use]
    pub fn delays(&self, task: TaskId) -> Option<DelayRange> {
        self.delays.get(&task).copied()
    }

    /// How long the hypervisor took CPUs of a stream's node.
    #[must_use]
    pub fn stolen(&self, stream: u32) -> Span {
        self.stolen.get(&stream).copied().unwrap_or_default()
    }

    /// The receiving job that ended now took a message.
    fn take(&mut self, task: TaskId, now: Time) {
        let batch = self.batches.entry(task).or_insert(Batch { at: now, count: 0, most: 0 });
        batch.count = if batch.at == now { batch.count + 1 } else { 1 };
        batch.at = now;
        batch.most = batch.most.max(batch.count);
    }

    fn delayed(&mut self, task: TaskId, sent: Time, arrived: Time) {
        let delay = arrived.lateness_to(sent);
        let new = DelayRange { count: 0, min: delay, max: delay };
        let range = self.delays.entry(task).or_insert(new);
        *range = DelayRange { count: range.count + 1, min: range.min.min(delay), max: range.max.max(delay) };
    }

    fn dropped(&mut self, stream: u32, now: Time, job: JobKey, message: u64, cause: DropCause) {
        let is_sender = self.nodes.get(job.task.index()) == Some(&stream);
        if is_sender {
            take_open(&mut self.sent, job.task, message);
        } else if cause == DropCause::Late {
            self.take(job.task, now);
        }
    }
}

fn keep(open: &mut OpenMessages, task: TaskId, message: u64, now: Time) {
    let open = open.entry(task).or_default();
    open.insert(message, now);
    if open.len() > OPEN_MAX {
        open.pop_first();
    }
}

fn take_open(open: &mut OpenMessages, task: TaskId, message: u64) -> Option<Time> {
    open.get_mut(&task)?.remove(&message)
}

impl Sink for Legs {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Send { job, message } => match take_open(&mut self.arrived, job.task, message) {
                Some(arrived) => self.delayed(job.task, now, arrived),
                None => keep(&mut self.sent, job.task, message, now),
            },
            Event::Arrive { job, message } => match take_open(&mut self.sent, job.task, message) {
                Some(sent) => self.delayed(job.task, sent, now),
                None => keep(&mut self.arrived, job.task, message, now),
            },
            Event::Receive { job, .. } => self.take(job.task, now),
            Event::Drop { job, message, cause } => self.dropped(stream, now, job, message, cause),
            Event::Steal { span, .. } => {
                let stolen = self.stolen.entry(stream).or_default();
                *stolen = stolen.saturating_add(span);
            }
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, NodeId, NodeSpec, StrategyRef, System, Task};

    use super::*;

    const TASK: TaskId = TaskId(0);

    fn legs() -> Legs {
        let task = Task::periodic("a", Span::from_ms(9), Span::from_ms(1));
        let mut system = System::local(1, Builtin::Edf, vec![task]);
        system.nodes.push(NodeSpec::new("far", 1, StrategyRef::Builtin(Builtin::Edf)));
        assert_eq!(system.tasks[0].node, NodeId(0));
        Legs::new(&Definitions::of(&system))
    }

    fn job(number: u64) -> JobKey {
        JobKey { task: TASK, number }
    }

    #[test]
    fn messages_that_one_job_took_have_one_time() {
        let mut legs = legs();
        assert_eq!(legs.most_taken(TASK), None);
        let mut message = 0;
        for (at, count) in [(10, 1), (20, 3), (30, 2)] {
            for _ in 0..count {
                legs.event(1, Time::from_ns(at), &Event::Receive { job: job(message), message });
                message += 1;
            }
        }
        assert_eq!(legs.most_taken(TASK), Some(3));
        // A message that came too late was taken, too. One that the sender dropped was not.
        for (stream, at) in [(1, 30), (1, 30), (0, 30)] {
            legs.event(stream, Time::from_ns(at), &Event::Drop { job: job(9), message: 9, cause: DropCause::Late });
        }
        assert_eq!(legs.most_taken(TASK), Some(4));
    }

    #[test]
    fn delays_are_found_in_any_order_of_the_two_ends() {
        let mut legs = legs();
        let send = |message| Event::Send { job: job(message), message };
        let arrive = |message| Event::Arrive { job: job(message), message };
        legs.event(0, Time::from_ns(100), &send(0));
        legs.event(1, Time::from_ns(90), &arrive(1));
        assert_eq!(legs.delays(TASK), None);
        legs.event(1, Time::from_ns(107), &arrive(0));
        // The receiver's clock is behind.
        legs.event(0, Time::from_ns(110), &send(1));
        let (min, max) = (Lateness::from_ns(-20), Lateness::from_ns(7));
        assert_eq!(legs.delays(TASK), Some(DelayRange { count: 2, min, max }));
    }

    #[test]
    fn what_the_hypervisor_took_is_added_up() {
        let mut legs = legs();
        for span in [3, 4].map(Span::from_ns) {
            legs.event(1, Time::from_ns(50), &Event::Steal { cpu: 0, span, within: span });
        }
        assert_eq!((legs.stolen(0), legs.stolen(1)), (Span::ZERO, Span::from_ns(7)));
    }
}
