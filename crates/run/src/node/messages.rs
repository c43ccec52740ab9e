//! The messages of a live node: its jobs leave, take and send them. Pure.
//!
//! It is the live twin of the simulator's module, around the same machine
//! ([`takt_policy::PartialEdf`]). The caller hands it real instants.

use std::collections::VecDeque;
use std::sync::Arc;

use takt_log::{DropCause, Event, JobKey};
use takt_model::{NodeId, Time};
use takt_net::MessageBody;
use takt_policy::{PartialEdf, PartialEdfSpec};

use super::difference::Difference;
use super::payload::Ring;
use super::plan::{NodePlan, Part};

/// A message, in times of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// The job that left it. Its number is that of the instance of the flow.
    pub(crate) job: JobKey,
    /// Its number among those of that job's node.
    pub(crate) number: u64,
    /// The likely deadline of that job: orders messages.
    pub(crate) due: Time,
    /// The earliest that it can be: admits messages. The same but for what is unknown of the clocks.
    pub(crate) due_min: Time,
    /// The arrival of the instance of the flow.
    pub(crate) origin: Time,
    /// Outwards: the lane. Inwards: the slot of the job that it releases.
    pub(crate) place: u32,
}

/// A job of a later hop, to be released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HopJob {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) arrival: Time,
    pub(crate) origin: Time,
}

/// See the module's documentation.
pub(crate) struct NodeMessages {
    /// By slot.
    parts: Vec<Part>,
    table: PartialEdf<Message>,
    /// By slot: the latest nominal arrival of a later hop. Deadlines of a flow keep their order.
    latest: Vec<Time>,
    jobs: VecDeque<HopJob>,
    /// By slot: where handlers read when their jobs were released.
    rings: Vec<Option<Arc<Ring>>>,
    /// Messages that jobs have left so far.
    left: u64,
    /// By slot: messages of the present receiving job, and the most of any.
    taken: Vec<(u64, u64)>,
}

impl NodeMessages {
    /// The messages of a node whose jobs have these slots. Nothing is allocated later as long as at
    /// most `room` messages wait.
    pub(crate) fn new(plan: &NodePlan, slots: &[u32], room: usize) -> NodeMessages {
        let parts: Vec<Part> =
            slots.iter().map(|slot| plan.parts.get(*slot as usize).copied().unwrap_or_default()).collect();
        let mut table = PartialEdf::new(PartialEdfSpec {
            receive_most: plan.receive_most(),
            send_most: plan.send_most(),
            apart: plan.lanes.iter().map(|lane| lane.apart).collect(),
            messages_max: room,
        });
        table.reserve(room);
        NodeMessages {
            table,
            latest: vec![Time::ZERO; parts.len()],
            jobs: VecDeque::with_capacity(room),
            rings: Vec::new(),
            left: 0,
            taken: vec![(0, 0); parts.len()],
            parts,
        }
    }

    /// Handlers read there, by slot, when their jobs were released.
    pub(crate) fn tell_handlers(&mut self, rings: Vec<Option<Arc<Ring>>>) {
        self.rings = rings;
    }

    pub(crate) fn part(&self, slot: u32) -> Part {
        self.parts.get(slot as usize).copied().unwrap_or_default()
    }

    /// The number of a later hop, whose jobs messages release.
    pub(crate) fn later_hop(&self, slot: u32) -> Option<u32> {
        match self.part(slot) {
            Part::Hop { hop, .. } if hop > 0 => Some(hop),
            _ => None,
        }
    }

    /// A message has come. Without room it is dropped.
    pub(crate) fn arrive(&mut self, message: Message, at: Time, tell: &mut impl FnMut(Time, Event)) {
        let (job, number) = (message.job, message.number);
        tell(at, Event::Arrive { job, message: number });
        if self.table.arrive(message).is_err() {
            tell(at, Event::Drop { job, message: number, cause: DropCause::Full });
        }
    }

    /// The receiving job takes what has come.
    pub(crate) fn start_receiving(&mut self) -> u64 {
        self.table.start_receiving()
    }

    /// Sending job `number` starts: its messages, the earliest deadline first, each with its lane.
    pub(crate) fn start_sending(&mut self, number: u64) -> impl Iterator<Item = Message> + '_ {
        self.table.start_sending(number);
        self.table.sent()
    }

    /// A job has completed. Jobs that follow stand in [`NodeMessages::take_job`].
    pub(crate) fn completed(
        &mut self,
        slot: u32,
        (job, due, origin): (JobKey, Time, Time),
        now: Time,
        tell: &mut impl FnMut(Time, Event),
    ) {
        match self.part(slot) {
            Part::Hop { lane: Some(lane), .. } => {
                let message = Message { job, number: self.left, due, due_min: due, origin, place: lane };
                self.left += 1;
                if self.table.make_ready(lane, due, message).is_err() {
                    tell(now, Event::Drop { job, message: message.number, cause: DropCause::Full });
                }
            }
            Part::Receive => self.received(now, tell),
            _ => {}
        }
    }

    fn received(&mut self, now: Time, tell: &mut impl FnMut(Time, Event)) {
        let NodeMessages { parts, table, latest, jobs, rings, taken, .. } = self;
        for message in table.received() {
            let (slot, at) = (message.place, message.place as usize);
            let (Some(Part::Hop { before, share, drops, .. }), Some(latest), Some(taken)) =
                (parts.get(at).copied(), latest.get_mut(at), taken.get_mut(at))
            else {
                continue;
            };
            taken.0 += 1;
            // The strategy drops a job that is late by the likely deadline. By the safe one it is too late
            // to be admitted.
            let [safe, likely] = [message.due_min, message.due].map(|due| due.saturating_add(share));
            if drops && safe <= now && likely > now {
                tell(now, Event::Drop { job: message.job, message: message.number, cause: DropCause::Late });
                continue;
            }
            tell(now, Event::Receive { job: message.job, message: message.number });
            // A job is released at its arrival at the earliest, and deadlines keep the order of the flow.
            let arrival = Time::from_ns(message.due.as_ns().saturating_sub(before.as_ns())).max(*latest).min(now);
            *latest = arrival;
            if let Some(ring) = rings.get(at).and_then(Option::as_ref) {
                ring.release(message.job.number, arrival, now);
            }
            jobs.push_back(HopJob { slot, number: message.job.number, arrival, origin: message.origin.min(arrival) });
        }
        for taken in taken {
            *taken = (0, taken.1.max(taken.0));
        }
    }

    /// A job that messages have made.
    pub(crate) fn take_job(&mut self) -> Option<HopJob> {
        self.jobs.pop_front()
    }

    /// The most messages of this slot's flow that one receiving job took.
    pub(crate) fn most_taken(&self, slot: u32) -> u64 {
        self.taken.get(slot as usize).map_or(0, |taken| taken.1)
    }
}

/// The message in a body that node `from` has sent. `shift` leads from its times to those of this
/// node. `None` if the body contradicts the system.
pub(crate) fn incoming(plan: &NodePlan, from: NodeId, body: &MessageBody, shift: Difference) -> Option<Message> {
    let entry = plan.entries.get(&body.task).filter(|entry| entry.from == from)?;
    // Before time zero nothing has happened.
    let own = |at: Time, shift: i64| Time::from_ns(at.as_ns().saturating_add_signed(shift));
    let (due, origin) = (own(body.due, shift.middle), own(body.origin, shift.middle));
    let due_min = own(body.due, shift.low).min(due);
    let job = JobKey { task: body.task, number: body.job };
    (origin <= due).then_some(Message { job, number: body.message, due, due_min, origin, place: entry.slot })
}
