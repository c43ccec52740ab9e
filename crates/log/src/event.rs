//! The events, as every back end records them.

use takt_model::{Span, TaskId, Time, named};

use crate::definitions::Definition;

/// A job: a task and the number of the job, counted from zero in the order of nominal arrivals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobKey {
    /// The task.
    pub task: TaskId,
    /// Zero for the task's first job.
    pub number: u64,
}

/// The place of a job in its chain. The instance number equals the job number in every task of a
/// chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Parent {
    /// How many links precede this job on the longest way from a source; a source has none and no parent.
    pub hop: u32,
    /// The earliest nominal arrival among the instance's source jobs: end-to-end response counts from it.
    pub origin: Time,
}

named! {
    /// Why a job will not complete. Logs have the numbers.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum CancelCause {
        /// Omitted at its first dispatch: its WCET exceeded the time left (`cancel = true`). Counts as cancelled.
        Omitted = 0 => "omitted",
        /// A predecessor in its chain was cancelled or dropped. Counts as released and cancelled.
        Shed = 1 => "shed",
        /// Dropped at its deadline (`late = "drop"`). Counts as unfinished and missed.
        Late = 2 => "dropped",
        /// Not queued at its arrival, because the most jobs allowed of its task waited or ran already.
        /// Or given up before, because the most jobs allowed waited for one predecessor while another
        /// had run ahead. Counts as released and rejected.
        Rejected = 3 => "rejected",
        /// Its code panicked. Counts as unfinished and missed.
        Failed = 4 => "failed",
    }
}

named! {
    /// Why a message was dropped.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum DropCause {
        /// The back end does not say. In a simulation: how the clock of the sender differs is not known yet.
        Unknown => "unknown",
        /// The network lost it.
        Lost => "lost",
        /// The queue that it came to was full.
        Full => "full",
        /// Its deadline had passed when it could be sent, and its link drops such messages (`late = "drop"`). Or its
        /// safe deadline had passed when it was received, and the strategy drops late jobs.
        Late => "late",
    }
}

/// One event of one stream. Times stand beside it, see [`Sink::event`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A job became ready to run.
    Release {
        /// The job.
        job: JobKey,
        /// Its nominal arrival, at or before the release; its deadline counts from here.
        arrival: Time,
        /// Its place in a chain; `None` for a job that follows no other.
        parent: Option<Parent>,
    },
    /// A job got a CPU for the first time.
    Start {
        /// The job.
        job: JobKey,
        /// The CPU.
        cpu: u32,
    },
    /// A running job with work left lost its CPU to another job.
    Preempt {
        /// The job that lost.
        job: JobKey,
        /// The CPU it lost.
        cpu: u32,
    },
    /// A preempted, blocked or throttled job got a CPU again.
    Resume {
        /// The job.
        job: JobKey,
        /// The CPU.
        cpu: u32,
    },
    /// A running job gave its CPU up and waits for something other than a CPU.
    Block {
        /// The job.
        job: JobKey,
        /// The CPU it left.
        cpu: u32,
    },
    /// A blocked job wants a CPU again.
    Wake {
        /// The job.
        job: JobKey,
    },
    /// A job finished.
    Complete {
        /// The job.
        job: JobKey,
        /// The CPU it finished on.
        cpu: u32,
    },
    /// A job's absolute deadline passed before it completed; stamped at the deadline, or at the
    /// release where that comes later (jitter beyond the deadline).
    Miss {
        /// The job.
        job: JobKey,
    },
    /// A job will not complete.
    Cancel {
        /// The job.
        job: JobKey,
        /// Why.
        cause: CancelCause,
    },
    /// A job resumed on another CPU than it last ran on; precedes its `Resume`.
    Migrate {
        /// The job.
        job: JobKey,
        /// The CPU it ran on before.
        from: u32,
        /// The CPU it runs on now.
        to: u32,
    },
    /// A server's budget was replenished.
    Replenish {
        /// The server (definition index).
        server: u32,
        /// The budget it now has.
        budget: Span,
    },
    /// A server's budget ran out.
    Exhaust {
        /// The server.
        server: u32,
    },
    /// A server has nothing to run.
    ServerIdle {
        /// The server.
        server: u32,
    },
    /// A server has paid, for itself or for another component that borrowed its time. A `grub` server
    /// pays less than the time that has passed.
    Charge {
        /// The server.
        server: u32,
        /// The server paid from this instant until now.
        since: Time,
        /// The budget that the server lost.
        amount: Span,
        /// None of its jobs ran: it was idle, or lent the CPU.
        idle: bool,
    },
    /// The node's strategy changed.
    ModeChange {
        /// The mode from here on: 0 is the node's own strategy, k its k-th mode definition.
        mode: u32,
    },
    /// A job sent a message.
    Send {
        /// The job.
        job: JobKey,
        /// The message's number within the stream.
        message: u64,
    },
    /// A message reached the node.
    Arrive {
        /// The sending job.
        job: JobKey,
        /// The message.
        message: u64,
    },
    /// A message was taken by its receiver.
    Receive {
        /// The sending job.
        job: JobKey,
        /// The message.
        message: u64,
    },
    /// A message was dropped.
    Drop {
        /// The sending job.
        job: JobKey,
        /// The message.
        message: u64,
        /// Why.
        cause: DropCause,
    },
    /// The first bit of a message left on the link of its node.
    Transmit {
        /// The message's number within the stream.
        message: u64,
        /// Its size in bytes.
        bytes: u32,
    },
    /// The handler of an interrupt or of a softirq began.
    IrqEnter {
        /// Which (definition index, [`crate::Definitions::interrupts`]).
        irq: u32,
        /// The CPU.
        cpu: u32,
    },
    /// The handler of an interrupt or of a softirq ended.
    IrqExit {
        /// Which (definition index, [`crate::Definitions::interrupts`]).
        irq: u32,
        /// The CPU.
        cpu: u32,
    },
    /// The back end lost events since the one before in this stream.
    Lost {
        /// How many, zero where that is unknown.
        count: u64,
    },
    /// The nominal arrival of a job lies between `earliest` and the arrival of its `Release`, which
    /// is the latest possible one. Precedes that `Release`, which is the job's next event.
    Window {
        /// The job.
        job: JobKey,
        /// The earliest possible nominal arrival.
        earliest: Time,
    },
    /// Events of this job's task are missing since its last event. No other task is affected. If
    /// the job is open, its state and its CPU times are unknown. Later jobs of the task may be
    /// missing.
    Gap {
        /// The task's last job that was told.
        job: JobKey,
    },
    /// A CPU went to something other than a job of this log: a thread, or nothing. This ends when a
    /// job gets the CPU. If a job gets the CPU at the same instant, this names the last holder
    /// before the job.
    Occupy {
        /// The CPU.
        cpu: u32,
        /// Which thread (definition index, [`crate::Definitions::threads`]); `None`: the CPU is idle.
        thread: Option<u32>,
    },
    /// The hypervisor took a CPU for some time. When exactly is unknown.
    Steal {
        /// The CPU.
        cpu: u32,
        /// How long.
        span: Span,
        /// It did so within this time before the event.
        within: Span,
    },
}

/// Takes events in the order of each stream. Streams are numbered from zero; a simulator or a live
/// run has one per node, with the number of the node.
///
/// An implementation keeps an I/O error for its `finish`, so that the producer stays free of them.
pub trait Sink {
    /// Records `event` of `stream` at `now`, which is not before the stream's last one.
    fn event(&mut self, stream: u32, now: Time, event: &Event);

    /// Adds or changes a definition, from here on in `stream`; `now` is as for events. Definitions that hold from
    /// the start are given when a sink is made. Sinks that look at no definitions do nothing.
    fn define(&mut self, _stream: u32, _now: Time, _definition: &Definition) {}

    /// No event of `stream` before `now` will follow. Sinks that wait for nothing do nothing.
    fn reached(&mut self, _stream: u32, _now: Time) {}

    /// Whether the producer must raise [`Event::Miss`]. Sinks that find misses by themselves say no,
    /// which spares a simulator a timer per job.
    fn wants_misses(&self) -> bool {
        true
    }
}

/// Forgets everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    #[inline]
    fn event(&mut self, _stream: u32, _now: Time, _event: &Event) {}
}

impl<S: Sink + ?Sized> Sink for &mut S {
    #[inline]
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        (**self).event(stream, now, event);
    }
    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        (**self).define(stream, now, definition);
    }
    fn wants_misses(&self) -> bool {
        (**self).wants_misses()
    }
}

/// Both of two sinks get every event.
impl<A: Sink, B: Sink> Sink for (A, B) {
    #[inline]
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.0.event(stream, now, event);
        self.1.event(stream, now, event);
    }
    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.0.define(stream, now, definition);
        self.1.define(stream, now, definition);
    }
    fn wants_misses(&self) -> bool {
        self.0.wants_misses() || self.1.wants_misses()
    }
}

/// In memory, for tests and small runs.
impl Sink for Vec<(u32, Time, Event)> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.push((stream, now, *event));
    }
}
