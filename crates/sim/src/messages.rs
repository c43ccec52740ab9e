//! The messages of a simulated node: its jobs leave, take and send them.

use std::collections::VecDeque;
use std::rc::Rc;

use takt_log::{DropCause, Event, JobKey, Sink};
use takt_model::{Draw, Span, TableTask, Time, draw::Purpose};
use takt_net::DelayChoice;
use takt_policy::{Interrupt, Interrupts, PartialEdf};

use crate::clock::NodeClock;
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
    /// The deadline of its job, on the clock of the sending node.
    pub(crate) due: Time,
    /// The arrival of its instance of the flow, in true time.
    origin: Time,
    /// The instance of the flow, or of the exchange.
    pub(crate) instance: u64,
    then: MessageEffect,
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

    /// 64 bits that decide the delay at a port: drawn, or those of the end of the interval that the caller chose.
    pub(crate) fn bits(&self, draw: Draw, purpose: Purpose) -> u64 {
        match self.end {
            None => draw.bits(purpose, self.instance),
            Some(End::Least) => 0,
            Some(End::Most) => u64::MAX,
        }
    }
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
    /// Nothing: it was an answer.
    Nothing,
}

/// A way by which messages leave a node.
#[derive(Clone, Debug)]
pub(crate) struct LaneWire {
    /// Index of its wire in the network.
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
    pub(crate) arrival: Time,
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
    /// How far a deadline is off on another clock, at most.
    pub(crate) error: Span,
    /// Messages that jobs have left so far.
    pub(crate) left: u64,
    /// By slot: the latest nominal arrival of a later hop. Deadlines of a flow keep their order.
    pub(crate) latest: Vec<Time>,
    pub(crate) jobs: VecDeque<HopJob>,
    /// Messages that the sending task has sent, each with its wire.
    pub(crate) outbox: Vec<(u32, Message)>,
}

impl NodeMessages {
    /// A message is in the buffer of the node. The answer is the slot of a job to release at once.
    pub(crate) fn arrive<S: Sink>(&mut self, message: Message, now: Time, sink: &mut S) -> Option<u32> {
        let (job, number) = (message.job, message.number);
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
    pub(crate) fn started(&mut self, slot: u32, number: u64) -> Span {
        let Messages::Table(table) = &mut self.messages else { return Span::ZERO };
        let (taken, cost) = match &self.parts[slot as usize] {
            Part::Receive(task) => (table.start_receiving(), task.cost),
            Part::Send(task) => (table.start_sending(number), task.cost),
            Part::Task | Part::Interrupt | Part::Sync(_) | Part::Hop { .. } => return Span::ZERO,
        };
        cost.and_then(|cost| cost.checked_mul(taken)).unwrap_or(Span::ZERO)
    }

    /// A job has completed. True when jobs of later hops or of interrupts are to be released.
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
                    let origin = self.clock().true_of(origin);
                    self.leave(lane, job, job.number, deadline, origin, now, sink);
                }
            }
            Part::Sync(lanes) => {
                for lane in lanes.clone() {
                    self.leave(lane, job, job.number, deadline, Time::ZERO, now, sink);
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
    fn send<S: Sink>(&mut self, message: Message, now: Time, sink: &mut S) {
        sink.event(self.node, now, &Event::Send { job: message.job, message: message.number });
        self.outbox.push((self.lanes[message.lane as usize].wire, message));
    }

    /// A message has its effect. `by` is the job that received it, and its deadline.
    fn receive<S: Sink>(&mut self, message: Message, by: (JobKey, Time), now: Time, sink: &mut S) {
        sink.event(self.node, now, &Event::Receive { job: message.job, message: message.number });
        match message.then {
            MessageEffect::Job { slot } => self.take(slot, &message, now),
            MessageEffect::Answer { lane: Some(lane) } => {
                self.leave(lane, by.0, message.instance, by.1, Time::ZERO, now, sink);
            }
            MessageEffect::Answer { lane: None } | MessageEffect::Nothing => {}
        }
    }

    fn clock(&self) -> NodeClock {
        self.clocks[self.node as usize]
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
        now: Time,
        sink: &mut S,
    ) {
        let number = self.left;
        self.left += 1;
        let LaneWire { then, draw, ends, .. } = &self.lanes[lane as usize];
        let end = ends.as_deref().map(|ends| ends.of(instance));
        let (then, draw) = (*then, *draw);
        let message = Message { job, number, lane, from: self.node, due, origin, instance, then, draw, end };
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
    /// carried to the clock of this node.
    fn take(&mut self, slot: u32, message: &Message, now: Time) {
        let Part::Hop { before, .. } = self.parts[slot as usize] else { return };
        let own = self.clock();
        let sender = self.clocks[message.from as usize].local(own.true_of(now)).as_ns();
        // From now until the deadline, on the sender's clock.
        let rest = i128::from(message.due.as_ns()) - i128::from(sender);
        let error = self.off(message);
        let due = i128::from(now.as_ns()) + rest + error;
        let arrival = u64::try_from(due - i128::from(before.as_ns())).unwrap_or(0);
        // A job is released at its arrival at the earliest, and deadlines keep the order of the flow.
        let arrival = Time::from_ns(arrival).max(self.latest[slot as usize]).min(now);
        self.latest[slot as usize] = arrival;
        let origin = own.local(message.origin);
        self.jobs.push_back(HopJob { slot, number: message.instance, arrival, origin });
    }

    /// How far the deadline of a message is off here.
    fn off(&self, message: &Message) -> i128 {
        if self.error.is_zero() {
            return 0;
        }
        let width = self.error.checked_mul(2).unwrap_or(Span::ZERO);
        let drawn = message.draw.uniform(Purpose::Error, message.instance, Span::ZERO, width);
        i128::from(drawn.as_ns()) - i128::from(self.error.as_ns())
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
