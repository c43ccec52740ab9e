//! The messages of a simulated node: its jobs leave, take and send them.

use std::collections::VecDeque;
use std::rc::Rc;

use takt_log::{DropCause, Event, JobKey, Sink};
use takt_model::{Draw, Span, TableTask, Time, draw::Purpose};
use takt_net::DelayChoice;
use takt_policy::{Interrupt, Interrupts, PartialEdf};

use crate::clock::NodeClock;
use crate::difference::{Reading, Stamp, Stamps, Stepped, Steps};
use crate::traffic::{End, Ends};

/// A message on its way from one node to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// The job that left it.
    pub(crate) job: JobKey,
    /// Its number in the stream of that job's node.
    pub(crate) number: u64,
    /// The lane by which it leaves.
    lane: u32,
    /// The sending node.
    pub(crate) from: u32,
    /// The deadline of its job, on the clock of the sending node without steps.
    pub(crate) due: Time,
    /// The steps of that clock until it was sent. It carries `due` with these.
    stepped: Stepped,
    /// The arrival of its instance of the flow, in true time.
    origin: Time,
    /// The instance of the flow, or of the exchange.
    pub(crate) instance: u64,
    then: MessageEffect,
    /// Of an exchange of clocks: its times so far. Else zeros.
    stamps: Stamps,
    /// Draws of its delay, loss and error.
    pub(crate) draw: Draw,
    /// The end of the interval that its delay takes; `None`: it is drawn.
    end: Option<End>,
}

impl Message {
    /// Its delay on a link with these ends.
    pub(crate) fn delay(&self, (least, most): (Span, Span)) -> DelayChoice {
        match self.end {
            None => DelayChoice::Drawn(self.draw.bits(Purpose::Delay, self.instance)),
            Some(End::Least) => DelayChoice::Exactly(least),
            Some(End::Most) => DelayChoice::Exactly(most),
        }
    }

    /// 64 bits that decide the delay at a port. They are drawn, or belong to the chosen end of the interval.
    pub(crate) fn bits(&self, draw: Draw, purpose: Purpose) -> u64 {
        match self.end {
            None => draw.bits(purpose, self.instance),
            Some(End::Least) => 0,
            Some(End::Most) => u64::MAX,
        }
    }

    /// Notes a time of an exchange of clocks: at this place for a request, or at that one for an answer.
    fn stamp(&mut self, [request, answer]: [usize; 2], now: Stamp) {
        match self.then {
            MessageEffect::Job { .. } => {}
            MessageEffect::Answer { .. } => self.stamps[request] = now,
            MessageEffect::Answered => self.stamps[answer] = now,
        }
    }
}

/// How far the deadline of a message is off on another clock, at most `most`.
fn off(message: &Message, most: Span) -> i128 {
    if most.is_zero() {
        return 0;
    }
    let width = most.checked_mul(2).unwrap_or(Span::ZERO);
    let drawn = message.draw.uniform(Purpose::Error, message.instance, Span::ZERO, width);
    i128::from(drawn.as_ns()) - i128::from(most.as_ns())
}

/// The effect of a message at its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageEffect {
    /// A job of this slot.
    Job {
        /// The slot.
        slot: u32,
    },
    /// An answer by this lane of the receiver, where there is a network for it.
    Answer {
        /// The lane.
        lane: Option<u32>,
    },
    /// It was an answer: an exchange of clocks is complete.
    Answered,
}

/// A way by which messages leave a node.
#[derive(Clone, Debug)]
pub(crate) struct LaneWire {
    /// Index of its lane in the network.
    pub(crate) wire: u32,
    /// The effect of its messages.
    pub(crate) then: MessageEffect,
    /// Draws of its delays.
    pub(crate) draw: Draw,
    /// Delays that the caller chose.
    pub(crate) ends: Option<Rc<Ends>>,
}

/// The part of a task in the traffic of messages.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// None.
    Task,
    /// The receiving task.
    Receive(TableTask),
    /// The sending task.
    Send(TableTask),
    /// Interrupts by messages.
    Interrupt,
    /// Time synchronisation: the lanes of its requests.
    Sync(Vec<u32>),
    /// A hop of a flow.
    Hop {
        /// 0 is the first node.
        hop: u32,
        /// The deadline of the hop before, relative to the flow's arrival.
        before: Span,
        /// From that deadline to the own one.
        share: Span,
        /// Whether the strategy drops its late jobs. Only a node that measures clocks asks.
        drops: bool,
        /// The lane by which its messages leave; `None` on the last hop.
        lane: Option<u32>,
    },
}

/// The messages of a node, by how it learns of them.
pub(crate) enum Messages {
    /// Table tasks take them, above other jobs or in a frame.
    Table(PartialEdf<Message>),
    /// Each interrupts. Jobs of the slot serve the interrupts.
    Interrupts(Interrupts<Message>, u32),
}

/// A job of a later hop, or of an interrupt, to release now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopJob {
    pub(crate) slot: u32,
    pub(crate) number: u64,
    /// On the clock of the node.
    pub(crate) arrival: Time,
    /// The arrival of the flow's instance, in true time. Nothing reads that of an interrupt.
    pub(crate) origin: Time,
}

/// The message buffers and lanes of a node.
pub(crate) struct NodeMessages {
    pub(crate) node: u32,
    /// By slot.
    pub(crate) parts: Vec<Part>,
    pub(crate) lanes: Vec<LaneWire>,
    pub(crate) messages: Messages,
    /// The clocks of all nodes.
    pub(crate) clocks: Rc<[NodeClock]>,
    /// The steps of its own clock.
    pub(crate) steps: Steps,
    /// How it reads times of other nodes.
    pub(crate) reading: Reading,
    /// Messages that jobs have left so far.
    pub(crate) left: u64,
    /// By slot: the latest nominal arrival of a later hop. Deadlines of a flow keep their order.
    pub(crate) latest: Vec<Time>,
    pub(crate) jobs: VecDeque<HopJob>,
    /// Messages that the sending task has sent, each with its lane.
    pub(crate) outbox: Vec<(u32, Message)>,
}

impl NodeMessages {
    /// A message is in the buffer of the node. The answer is the slot of a job to release at once.
    pub(crate) fn arrive<S: Sink>(&mut self, mut message: Message, now: Time, sink: &mut S) -> Option<u32> {
        let (job, number) = (message.job, message.number);
        message.stamp([1, 3], self.steps.until(now).stamp(now));
        sink.event(self.node, now, &Event::Arrive { job, message: number });
        let interrupt = match &mut self.messages {
            Messages::Table(table) => table.arrive(message).map(|()| None),
            Messages::Interrupts(queue, slot) => queue.arrive(message).map(|number| Some((*slot, number))),
        };
        match interrupt {
            Ok(interrupt) => {
                let (slot, number) = interrupt?;
                self.jobs.push_back(HopJob { slot, number, arrival: now, origin: now });
                Some(slot)
            }
            Err(_) => {
                sink.event(self.node, now, &Event::Drop { job, message: number, cause: DropCause::Full });
                None
            }
        }
    }

    /// A job starts. The answer is its work for messages.
    // Not inlined: it would spread the steps of nodes without messages.
    #[inline(never)]
    pub(crate) fn started(&mut self, slot: u32, number: u64) -> Span {
        let Messages::Table(table) = &mut self.messages else { return Span::ZERO };
        let (taken, cost) = match &self.parts[slot as usize] {
            Part::Receive(task) => (table.start_receiving(), task.cost),
            Part::Send(task) => (table.start_sending(number), task.cost),
            Part::Task | Part::Interrupt | Part::Sync(_) | Part::Hop { .. } => return Span::ZERO,
        };
        cost.and_then(|cost| cost.checked_mul(taken)).unwrap_or(Span::ZERO)
    }

    /// A job has completed. Its origin is in true time. True when jobs of later hops or of interrupts are to be
    /// released.
    #[inline(never)]
    pub(crate) fn completed<S: Sink>(
        &mut self,
        slot: u32,
        (job, deadline, origin): (JobKey, Time, Time),
        now: Time,
        sink: &mut S,
    ) -> bool {
        match &self.parts[slot as usize] {
            Part::Task => {}
            Part::Hop { lane, .. } => {
                if let Some(lane) = *lane {
                    self.leave(lane, job, job.number, deadline, origin, Stamps::default(), now, sink);
                }
            }
            Part::Sync(lanes) => {
                for lane in lanes.clone() {
                    self.leave(lane, job, job.number, deadline, Time::ZERO, Stamps::default(), now, sink);
                }
            }
            Part::Send(_) => {
                let Messages::Table(table) = &mut self.messages else { return false };
                let sent: Vec<Message> = table.sent().collect();
                sent.into_iter().for_each(|message| self.send(message, now, sink));
            }
            Part::Receive(_) => {
                let Messages::Table(table) = &mut self.messages else { return false };
                let taken: Vec<Message> = table.received().collect();
                taken.into_iter().for_each(|message| self.receive(message, (job, deadline), now, sink));
            }
            Part::Interrupt => {
                let Messages::Interrupts(queue, _) = &mut self.messages else { return false };
                match queue.served() {
                    Some(Interrupt::Received(message)) => self.receive(message, (job, deadline), now, sink),
                    Some(Interrupt::Sent(message)) => self.send(message, now, sink),
                    None => {}
                }
            }
        }
        !self.jobs.is_empty()
    }

    /// A message goes to its link.
    fn send<S: Sink>(&mut self, mut message: Message, now: Time, sink: &mut S) {
        message.stepped = self.steps.until(now);
        message.stamp([0, 2], message.stepped.stamp(now));
        sink.event(self.node, now, &Event::Send { job: message.job, message: message.number });
        self.outbox.push((self.lanes[message.lane as usize].wire, message));
    }

    /// A message has its effect. `by` is the job that received it, and its deadline.
    fn receive<S: Sink>(&mut self, message: Message, by: (JobKey, Time), now: Time, sink: &mut S) {
        let (job, number) = (message.job, message.number);
        if let MessageEffect::Job { slot } = message.then
            && let Err(cause) = self.take(slot, &message, now)
        {
            return sink.event(self.node, now, &Event::Drop { job, message: number, cause });
        }
        sink.event(self.node, now, &Event::Receive { job, message: number });
        match message.then {
            MessageEffect::Answer { lane: Some(lane) } => {
                self.leave(lane, by.0, message.instance, by.1, Time::ZERO, message.stamps, now, sink);
            }
            MessageEffect::Answered => {
                let now = self.steps.until(now).stamp(now);
                if let Reading::Measured(known) = &mut self.reading {
                    known.exchange(message.from, message.stamps, now);
                }
            }
            MessageEffect::Job { .. } | MessageEffect::Answer { lane: None } => {}
        }
    }

    fn clock(&self) -> NodeClock {
        self.clocks[self.node as usize]
    }

    /// The true time at which the clock of the node shows `local`.
    pub(crate) fn true_of(&self, local: Time) -> Time {
        self.clock().true_of(local)
    }

    /// A job leaves a message for the sending task, or for an interrupt.
    #[expect(clippy::too_many_arguments, reason = "the parts of a message")]
    fn leave<S: Sink>(
        &mut self,
        lane: u32,
        job: JobKey,
        instance: u64,
        due: Time,
        origin: Time,
        stamps: Stamps,
        now: Time,
        sink: &mut S,
    ) {
        let number = self.left;
        self.left += 1;
        let LaneWire { then, draw, ends, .. } = &self.lanes[lane as usize];
        let end = ends.as_deref().map(|ends| ends.of(instance));
        let (then, draw) = (*then, *draw);
        let (from, stepped) = (self.node, Stepped::default());
        let message = Message { job, number, lane, from, due, stepped, origin, instance, then, stamps, draw, end };
        let left = match &mut self.messages {
            Messages::Table(table) => table.make_ready(lane, due, message),
            Messages::Interrupts(queue, slot) => queue.leave(message).map(|number| {
                self.jobs.push_back(HopJob { slot: *slot, number, arrival: now, origin: now });
            }),
        };
        if left.is_err() {
            sink.event(self.node, now, &Event::Drop { job, message: number, cause: DropCause::Full });
        }
    }

    /// The receiving task, or an interrupt, makes a job of a message. Its deadline counts from that of the hop before,
    /// carried to the clock of this node. On an error there is no job.
    fn take(&mut self, slot: u32, message: &Message, now: Time) -> Result<(), DropCause> {
        let Part::Hop { before, share, drops, .. } = self.parts[slot as usize] else { return Ok(()) };
        let (safe, due) = self.own_deadline(message, now).ok_or(DropCause::Unknown)?;
        // The strategy drops a job that is late by the likely deadline. By the safe one it is too late to be admitted.
        let is_late = |due: i128| due + i128::from(share.as_ns()) <= i128::from(now.as_ns());
        if drops && is_late(safe) && !is_late(due) {
            return Err(DropCause::Late);
        }
        let arrival = u64::try_from(due - i128::from(before.as_ns())).unwrap_or(0);
        // A job is released at its arrival at the earliest, and deadlines keep the order of the flow.
        let arrival = Time::from_ns(arrival).max(self.latest[slot as usize]).min(now);
        self.latest[slot as usize] = arrival;
        self.jobs.push_back(HopJob { slot, number: message.instance, arrival, origin: message.origin });
        Ok(())
    }

    /// The deadline of a message on the own clock without steps, in nanoseconds: the safe one and the likely one.
    /// `None`: it is not known how the clock of its sender differs.
    fn own_deadline(&self, message: &Message, now: Time) -> Option<(i128, i128)> {
        let due = i128::from(message.due.as_ns());
        let own = self.steps.until(now);
        // From a difference of both clocks to that of the clocks without steps.
        let steps = i128::from(message.stepped.by) - i128::from(own.by);
        match &self.reading {
            // No clock steps.
            Reading::Drawn(error) => {
                let due = due + self.true_offset(message.from, now) + off(message, *error);
                Some((due, due))
            }
            Reading::Trusting => Some((due + steps, due + steps)),
            Reading::Measured(known) => {
                let offset = known.offset(message.from, message.stepped.epoch, own.stamp(now))?;
                let [low, middle, high] =
                    [offset.low, offset.middle, offset.high].map(|offset| i128::from(offset) + steps);
                // Clocks show whole nanoseconds.
                debug_assert!(
                    (low - 2..=high + 2).contains(&self.true_offset(message.from, now)),
                    "{offset:?} does not hold the difference to node {}",
                    message.from
                );
                Some((due + low, due + middle))
            }
        }
    }

    /// The own clock - that of another node, both without steps, when the own one shows `now`.
    fn true_offset(&self, other: u32, now: Time) -> i128 {
        let other = self.clocks[other as usize].local(self.clock().true_of(now));
        i128::from(now.as_ns()) - i128::from(other.as_ns())
    }

    /// The number of a later hop, whose jobs messages release.
    pub(crate) fn later_hop(&self, slot: u32) -> Option<u32> {
        match self.parts[slot as usize] {
            Part::Hop { hop, .. } if hop > 0 => Some(hop),
            _ => None,
        }
    }

    /// Whether its jobs are those of interrupts, which messages alone release.
    pub(crate) fn is_interrupt(&self, slot: u32) -> bool {
        matches!(self.parts[slot as usize], Part::Interrupt)
    }

    /// The execution time of a table job without messages.
    pub(crate) fn fixed_work(&self, slot: u32) -> Option<Span> {
        match &self.parts[slot as usize] {
            Part::Receive(task) | Part::Send(task) => Some(task.cost.map_or(task.wcet, |_| Span::ZERO)),
            _ => None,
        }
    }
}
