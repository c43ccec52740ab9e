//! The messages of a simulated node: jobs create, send and receive them.

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
    /// The job that created it.
    pub(crate) job: JobKey,
    /// Its number in the stream of that job's node.
    pub(crate) number: u64,
    /// Index of its lane at the sending node.
    lane: u32,
    /// The sending node.
    pub(crate) from: u32,
    /// The deadline of its job, on the clock of the sending node without steps.
    pub(crate) deadline: Time,
    /// The steps of that clock until it was sent. The deadline in the message includes them.
    stepped: Stepped,
    /// The arrival of its instance of the flow, in true time.
    origin: Time,
    /// The instance of the flow, or of the exchange.
    pub(crate) instance: u64,
    effect: MessageEffect,
    /// The times of an exchange of clocks so far. Zeros in other messages.
    stamps: Stamps,
    /// Draws of its delay, loss and error.
    pub(crate) draw: Draw,
    /// The chosen end of the interval of its delay; `None`: its delay is drawn.
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

    /// Sets the time `now` of an exchange of clocks: time number `request` in a request, `answer` in an answer.
    fn stamp(&mut self, [request, answer]: [usize; 2], now: Stamp) {
        match self.effect {
            MessageEffect::Job { .. } => {}
            MessageEffect::Answer { .. } => self.stamps[request] = now,
            MessageEffect::Answered => self.stamps[answer] = now,
        }
    }
}

/// The drawn error of the deadline of a message on another clock, in ns: from -`most` to `most`.
fn deadline_error(message: &Message, most: Span) -> i128 {
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
    /// The receiver answers.
    Answer {
        /// Its lane for the answer; `None` if no network leads back, so there is no answer.
        lane: Option<u32>,
    },
    /// The message is an answer: it completes an exchange of clocks.
    Answered,
}

/// A lane at its sender: messages of one task to one node.
#[derive(Clone, Debug)]
pub(crate) struct SenderLane {
    /// Index of the lane in the network.
    pub(crate) network_lane: u32,
    /// The effect of its messages.
    pub(crate) effect: MessageEffect,
    /// Draws of its delays.
    pub(crate) draw: Draw,
    /// Delays that the caller chose.
    pub(crate) ends: Option<Rc<Ends>>,
}

/// The role of a task in the traffic of messages.
#[derive(Clone, Debug)]
pub(crate) enum TaskRole {
    /// Nothing.
    Local,
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
        /// The time from that deadline to the deadline of this hop.
        share: Span,
        /// Whether the strategy drops its late jobs. Set only on a node that measures clocks.
        drops: bool,
        /// The lane by which its messages leave; `None` on the last hop.
        lane: Option<u32>,
    },
}

/// The message buffers of a node.
pub(crate) enum Messages {
    /// A receiving and a sending task take the messages, above other jobs or in a frame.
    Table(PartialEdf<Message>),
    /// Each message interrupts. Jobs of this slot serve the interrupts.
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
    pub(crate) roles: Vec<TaskRole>,
    pub(crate) lanes: Vec<SenderLane>,
    pub(crate) messages: Messages,
    /// The clocks of all nodes.
    pub(crate) clocks: Rc<[NodeClock]>,
    /// The steps of its own clock.
    pub(crate) steps: Steps,
    /// How it reads times of other nodes.
    pub(crate) reading: Reading,
    /// Messages that jobs have created so far.
    pub(crate) created: u64,
    /// By slot: the latest nominal arrival of a later hop so far. Deadlines of a flow keep their order.
    pub(crate) latest_arrival: Vec<Time>,
    /// Jobs to release now.
    pub(crate) jobs: VecDeque<HopJob>,
    /// Messages that the sending task has sent, each with its lane in the network.
    pub(crate) outbox: Vec<(u32, Message)>,
}

impl NodeMessages {
    /// A message reaches the buffer of the node. Returns the slot of a job to release at once.
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

    /// A job starts. Returns the execution time that it needs for messages.
    // Not inlined: it would spread the steps of nodes without messages.
    #[inline(never)]
    pub(crate) fn started(&mut self, slot: u32, number: u64) -> Span {
        let Messages::Table(table) = &mut self.messages else { return Span::ZERO };
        let (taken, cost) = match &self.roles[slot as usize] {
            TaskRole::Receive(task) => (table.start_receiving(), task.cost),
            TaskRole::Send(task) => (table.start_sending(number), task.cost),
            TaskRole::Local | TaskRole::Interrupt | TaskRole::Sync(_) | TaskRole::Hop { .. } => return Span::ZERO,
        };
        cost.and_then(|cost| cost.checked_mul(taken)).unwrap_or(Span::ZERO)
    }

    /// A job has completed. `origin` is in true time. Returns whether there are jobs of later hops or of interrupts to
    /// release.
    #[inline(never)]
    pub(crate) fn completed<S: Sink>(
        &mut self,
        slot: u32,
        (job, deadline, origin): (JobKey, Time, Time),
        now: Time,
        sink: &mut S,
    ) -> bool {
        match &self.roles[slot as usize] {
            TaskRole::Local => {}
            TaskRole::Hop { lane, .. } => {
                if let Some(lane) = *lane {
                    self.post(lane, job, job.number, deadline, origin, Stamps::default(), now, sink);
                }
            }
            TaskRole::Sync(lanes) => {
                for lane in lanes.clone() {
                    self.post(lane, job, job.number, deadline, Time::ZERO, Stamps::default(), now, sink);
                }
            }
            TaskRole::Send(_) => {
                let Messages::Table(table) = &mut self.messages else { return false };
                let sent: Vec<Message> = table.sent().collect();
                sent.into_iter().for_each(|message| self.send(message, now, sink));
            }
            TaskRole::Receive(_) => {
                let Messages::Table(table) = &mut self.messages else { return false };
                let taken: Vec<Message> = table.received().collect();
                taken.into_iter().for_each(|message| self.receive(message, (job, deadline), now, sink));
            }
            TaskRole::Interrupt => {
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

    /// Sends a message to the network.
    fn send<S: Sink>(&mut self, mut message: Message, now: Time, sink: &mut S) {
        message.stepped = self.steps.until(now);
        message.stamp([0, 2], message.stepped.stamp(now));
        sink.event(self.node, now, &Event::Send { job: message.job, message: message.number });
        self.outbox.push((self.lanes[message.lane as usize].network_lane, message));
    }

    /// Applies the effect of a message. `by` is the job that received it, and its deadline.
    fn receive<S: Sink>(&mut self, message: Message, by: (JobKey, Time), now: Time, sink: &mut S) {
        let (job, number) = (message.job, message.number);
        if let MessageEffect::Job { slot } = message.effect
            && let Err(cause) = self.take(slot, &message, now)
        {
            return sink.event(self.node, now, &Event::Drop { job, message: number, cause });
        }
        sink.event(self.node, now, &Event::Receive { job, message: number });
        match message.effect {
            MessageEffect::Answer { lane: Some(lane) } => {
                self.post(lane, by.0, message.instance, by.1, Time::ZERO, message.stamps, now, sink);
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

    /// Creates a message of `job` for the sending task, or for an interrupt.
    #[expect(clippy::too_many_arguments, reason = "the parts of a message")]
    fn post<S: Sink>(
        &mut self,
        lane: u32,
        job: JobKey,
        instance: u64,
        deadline: Time,
        origin: Time,
        stamps: Stamps,
        now: Time,
        sink: &mut S,
    ) {
        let number = self.created;
        self.created += 1;
        let SenderLane { effect, draw, ends, .. } = &self.lanes[lane as usize];
        let message = Message {
            job,
            number,
            lane,
            from: self.node,
            deadline,
            stepped: Stepped::default(),
            origin,
            instance,
            effect: *effect,
            stamps,
            draw: *draw,
            end: ends.as_deref().map(|ends| ends.of(instance)),
        };
        let accepted = match &mut self.messages {
            Messages::Table(table) => table.make_ready(lane, deadline, message),
            Messages::Interrupts(queue, slot) => queue.leave(message).map(|number| {
                self.jobs.push_back(HopJob { slot: *slot, number, arrival: now, origin: now });
            }),
        };
        if accepted.is_err() {
            sink.event(self.node, now, &Event::Drop { job, message: number, cause: DropCause::Full });
        }
    }

    /// Makes a job of a message. Its deadline counts from that of the hop before, converted to the clock of this node.
    ///
    /// # Errors
    /// Why there is no job: it is late by the safe deadline, or the sender's clock is not known.
    fn take(&mut self, slot: u32, message: &Message, now: Time) -> Result<(), DropCause> {
        let TaskRole::Hop { before, share, drops, .. } = self.roles[slot as usize] else { return Ok(()) };
        let (safe, due) = self.own_deadline(message, now).ok_or(DropCause::Unknown)?;
        // The dispatcher drops a job that is late by the likely deadline. Here only the safe deadline has passed.
        let is_late = |due: i128| due + i128::from(share.as_ns()) <= i128::from(now.as_ns());
        if drops && is_late(safe) && !is_late(due) {
            return Err(DropCause::Late);
        }
        let arrival = u64::try_from(due - i128::from(before.as_ns())).unwrap_or(0);
        // A job is released at its arrival at the earliest, and deadlines keep the order of the flow.
        let arrival = Time::from_ns(arrival).max(self.latest_arrival[slot as usize]).min(now);
        self.latest_arrival[slot as usize] = arrival;
        self.jobs.push_back(HopJob { slot, number: message.instance, arrival, origin: message.origin });
        Ok(())
    }

    /// The deadline of a message on the own clock without steps, in nanoseconds: the safe one and the likely one.
    /// `None`: the difference to the clock of the sender is not known.
    fn own_deadline(&self, message: &Message, now: Time) -> Option<(i128, i128)> {
        let due = i128::from(message.deadline.as_ns());
        let own = self.steps.until(now);
        // From a difference of both clocks to that of the clocks without steps.
        let steps = i128::from(message.stepped.offset_ns) - i128::from(own.offset_ns);
        match &self.reading {
            // No clock steps.
            Reading::Drawn(error) => {
                let due = due + self.true_offset(message.from, now) + deadline_error(message, *error);
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
        match self.roles[slot as usize] {
            TaskRole::Hop { hop, .. } if hop > 0 => Some(hop),
            _ => None,
        }
    }

    /// Whether its jobs are those of interrupts, which messages alone release.
    pub(crate) fn is_interrupt(&self, slot: u32) -> bool {
        matches!(self.roles[slot as usize], TaskRole::Interrupt)
    }

    /// The execution time of a table job without messages.
    pub(crate) fn fixed_work(&self, slot: u32) -> Option<Span> {
        match &self.roles[slot as usize] {
            TaskRole::Receive(task) | TaskRole::Send(task) => Some(task.cost.map_or(task.wcet, |_| Span::ZERO)),
            _ => None,
        }
    }
}
