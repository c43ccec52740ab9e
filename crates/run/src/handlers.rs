//! Jobs that a program carries out itself, in place of takt's busy work.
//!
//! A handler runs on the thread of its task, with the task's class and CPU. Table threads and budget
//! managers freeze threads anywhere. So a handler must share no lock with another task's handler. A
//! real-time thread should not allocate or wait in it.
//!
//! ```no_run
//! use takt_run::handlers::Handlers;
//! use takt_run::{RunOptions, Trace, prepare_node};
//! # fn example(system: &takt_run::model::System, network: &takt_run::node::NodeNetwork,
//! #     sink: &mut impl takt_run::log::Sink) -> Result<(), Box<dyn std::error::Error>> {
//! let options = RunOptions { trace: Trace::Never, ..RunOptions::new(takt_model::Span::from_s(10)) };
//! let handlers = Handlers::new().on("put/0", |job| {
//!     let _ = job.send(&job.number.to_le_bytes());
//! });
//! let prepared = prepare_node(system, &options, network)?;
//! prepared.open()?.run_handled(sink, &mut |_| {}, handlers)?;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use takt_linux::Epoch;
use takt_model::Time;

use crate::node::{NodeCounts, NodeLive, Part, Ring};

/// The times of a job. They count from time zero of the run, which is the common start of nodes with flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobTimes {
    /// The nominal arrival. On all hops of a flow it is that of the instance, as this node's clock has it.
    pub arrival: Time,
    /// The release: of a later hop the end of the receiving job that took the message.
    pub release: Time,
    /// The absolute deadline. On a hop of a flow it is the sum of the hop deadlines so far after the arrival.
    pub deadline: Time,
}

/// A job that a program carries out.
#[derive(Debug)]
pub struct LiveJob<'a> {
    /// The number of the job. On all hops of a flow it is that of the instance.
    pub number: u64,
    /// The hop of the flow: 0 is the first node. `None`: the task is no hop of a flow.
    pub hop: Option<u32>,
    /// `None`: the task comes after others in a chain, or the times are lost with the input.
    pub times: Option<JobTimes>,
    /// The bytes of the message that released the job. Empty on the first hop of a flow, and for other
    /// tasks. `None`: they are lost, because so many later messages have come.
    pub input: Option<&'a [u8]>,
    output: &'a mut Vec<u8>,
    room: usize,
    epoch: Epoch,
}

impl LiveJob<'_> {
    /// The time of the run.
    #[must_use]
    pub fn now(&self) -> Time {
        self.epoch.now()
    }

    /// The most bytes that the message of this job takes: the `size` of the flow less 120; 0 on the last
    /// hop.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Puts bytes into the message that the job leaves at its end, behind those of earlier calls.
    ///
    /// # Errors
    /// There is no room for all of them: the message stays as it was.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let free = self.room.saturating_sub(self.output.len());
        if bytes.len() > free {
            return Err(NoRoom { bytes: bytes.len(), free });
        }
        self.output.extend_from_slice(bytes);
        Ok(())
    }
}

/// A message has no room for these bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{bytes} bytes do not fit into the message, which has {free} left; raise the size of the flow")]
pub struct NoRoom {
    /// How many were given.
    pub bytes: usize,
    /// How many fit.
    pub free: usize,
}

/// Carries out jobs.
pub type Handler = Box<dyn FnMut(&mut LiveJob<'_>) + Send>;

/// Ends a run early, and reads the counts of its node while it runs. Clones are of the same run.
#[derive(Clone, Default)]
pub struct RunControl(Arc<ControlState>);

#[derive(Default)]
struct ControlState {
    is_stopped: AtomicBool,
    counts: Mutex<ControlCounts>,
}

/// The counts of a node with flows.
#[derive(Default)]
enum ControlCounts {
    /// The run has not begun, or has no flows.
    #[default]
    Unknown,
    Running(Arc<NodeLive>),
    Ended(NodeCounts),
}

impl RunControl {
    /// For one run.
    #[must_use]
    pub fn new() -> RunControl {
        RunControl::default()
    }

    /// Ends the run in order, within some 10 ms. A handler may call it: it only stores a flag.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
    }

    /// The counts of a node with flows so far. `None`: the run has not begun, or has no flows. It takes a
    /// lock, so no handler calls it.
    #[must_use]
    pub fn counts(&self) -> Option<NodeCounts> {
        match &*self.0.counts.lock().unwrap_or_else(PoisonError::into_inner) {
            ControlCounts::Unknown => None,
            ControlCounts::Running(live) => Some(live.counts.read()),
            ControlCounts::Ended(counts) => Some(*counts),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Acquire)
    }

    /// The run has opened its sockets.
    pub(crate) fn begin(&self, live: &Arc<NodeLive>) {
        *self.0.counts.lock().unwrap_or_else(PoisonError::into_inner) = ControlCounts::Running(live.clone());
    }

    /// The run has ended, and its sockets close.
    pub(crate) fn end(&self) {
        if let Some(counts) = self.counts() {
            *self.0.counts.lock().unwrap_or_else(PoisonError::into_inner) = ControlCounts::Ended(counts);
        }
    }
}

impl std::fmt::Debug for RunControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunControl").field("is_stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}

/// Handlers by task. Tasks without one do busy work.
#[derive(Default)]
pub struct Handlers {
    by_task: BTreeMap<String, Handler>,
    control: RunControl,
}

impl Handlers {
    /// None.
    #[must_use]
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// The jobs of a task are carried out by `handler`. Hop 1 of flow `put` is the task `put/1`.
    #[must_use]
    pub fn on(mut self, task: &str, handler: impl FnMut(&mut LiveJob<'_>) + Send + 'static) -> Handlers {
        self.by_task.insert(task.to_owned(), Box::new(handler));
        self
    }

    /// The run ends early if `control` says so.
    #[must_use]
    pub fn with_control(mut self, control: &RunControl) -> Handlers {
        self.control = control.clone();
        self
    }

    pub(crate) fn control(&self) -> RunControl {
        self.control.clone()
    }

    /// The handler of a task; once.
    pub(crate) fn take(&mut self, task: &str) -> Option<Handler> {
        self.by_task.remove(task)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_task.is_empty()
    }

    /// A task of those that are left.
    pub(crate) fn first(&self) -> Option<&String> {
        self.by_task.keys().next()
    }
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_task.keys()).finish()
    }
}

/// A handler on the thread of its task.
pub(crate) struct TaskHandler {
    handler: Handler,
    /// The node with its messages, and the slot of the task.
    node: Option<(Arc<NodeLive>, u32)>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl TaskHandler {
    /// For a task without messages.
    pub(crate) fn new(handler: Handler) -> TaskHandler {
        TaskHandler { handler, node: None, input: Vec::new(), output: Vec::new() }
    }

    /// For a task with messages.
    pub(crate) fn of_flow(handler: Handler, live: &Arc<NodeLive>, slot: u32) -> TaskHandler {
        let buffer = |ring: Option<&Ring>| Vec::with_capacity(ring.map_or(0, Ring::room));
        let input = buffer(live.payloads.input(slot).map(Arc::as_ref));
        let output = buffer(live.payloads.output(slot));
        TaskHandler { handler, node: Some((live.clone(), slot)), input, output }
    }

    /// The hop of the flow, for a hop of a flow.
    pub(crate) fn hop(&self) -> Option<u32> {
        let (live, slot) = self.node.as_ref()?;
        match live.plan.parts.get(*slot as usize) {
            Some(Part::Hop { hop, .. }) => Some(*hop),
            _ => None,
        }
    }

    /// The nominal arrival and the release of a job that a message has released.
    pub(crate) fn released(&self, number: u64) -> Option<(Time, Time)> {
        let (live, slot) = self.node.as_ref()?;
        live.payloads.input(*slot)?.released(number)
    }

    /// Carries out a job.
    pub(crate) fn run(&mut self, number: u64, times: Option<JobTimes>, epoch: Epoch) {
        let hop = self.hop();
        let payloads = self.node.as_ref().map(|(live, slot)| (&live.payloads, *slot));
        let input = payloads.and_then(|(payloads, slot)| payloads.input(slot));
        let output = payloads.and_then(|(payloads, slot)| payloads.output(slot));
        let found = input.is_none_or(|ring| ring.read(number, &mut self.input));
        let room = output.map_or(0, Ring::room);
        // Another message may have come since the times were read.
        let times = times.filter(|_| found);
        let input = found.then_some(self.input.as_slice());
        self.output.clear();
        (self.handler)(&mut LiveJob { number, hop, times, input, output: &mut self.output, room, epoch });
        if let Some(ring) = output {
            ring.write(number, &self.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_room_of_its_flow() {
        let mut output = Vec::new();
        let epoch = Epoch::now_is_zero();
        let mut job =
            LiveJob { number: 7, hop: Some(0), times: None, input: None, output: &mut output, room: 4, epoch };
        assert_eq!((job.room(), job.send(b"abc")), (4, Ok(())));
        assert_eq!(job.send(b"de"), Err(NoRoom { bytes: 2, free: 1 }));
        assert_eq!(job.send(b"d"), Ok(()));
        assert_eq!(output, b"abcd");
    }

    #[test]
    fn a_handler_is_taken_once() {
        let control = RunControl::new();
        let mut handlers = Handlers::new().on("a", |_| {}).on("b", |_| {}).with_control(&control);
        assert_eq!(format!("{handlers:?}"), "{\"a\", \"b\"}");
        assert!(handlers.take("a").is_some() && handlers.take("a").is_none());
        assert_eq!(handlers.first().map(String::as_str), Some("b"));
        assert!(!handlers.is_empty() && !handlers.control().is_stopped());
        control.stop();
        assert!(handlers.control().is_stopped() && control.counts().is_none());
    }
}
