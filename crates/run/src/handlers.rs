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
use std::sync::Arc;

use crate::node::{NodeLive, Ring};

/// A job that a program carries out.
#[derive(Debug)]
pub struct LiveJob<'a> {
    /// The number of the job. On all hops of a flow it is that of the instance.
    pub number: u64,
    /// The bytes of the message that released the job. Empty on the first hop of a flow, and for other
    /// tasks. `None`: they are lost, because so many later messages have come.
    pub input: Option<&'a [u8]>,
    output: &'a mut Vec<u8>,
    room: usize,
}

impl<'a> LiveJob<'a> {
    pub(crate) fn new(number: u64, input: Option<&'a [u8]>, output: &'a mut Vec<u8>, room: usize) -> LiveJob<'a> {
        output.clear();
        LiveJob { number, input, output, room }
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

/// Handlers by task. Tasks without one do busy work.
#[derive(Default)]
pub struct Handlers(BTreeMap<String, Handler>);

impl Handlers {
    /// None.
    #[must_use]
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// The jobs of a task are carried out by `handler`. Hop 1 of flow `put` is the task `put/1`.
    #[must_use]
    pub fn on(mut self, task: &str, handler: impl FnMut(&mut LiveJob<'_>) + Send + 'static) -> Handlers {
        self.0.insert(task.to_owned(), Box::new(handler));
        self
    }

    /// The handler of a task; once.
    pub(crate) fn take(&mut self, task: &str) -> Option<Handler> {
        self.0.remove(task)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A task of those that are left.
    pub(crate) fn first(&self) -> Option<&String> {
        self.0.keys().next()
    }
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A handler on the thread of its task.
pub(crate) struct Duty {
    handler: Handler,
    /// The node with its messages, and the slot of the task.
    node: Option<(Arc<NodeLive>, u32)>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Duty {
    /// For a task without messages.
    pub(crate) fn new(handler: Handler) -> Duty {
        Duty { handler, node: None, input: Vec::new(), output: Vec::new() }
    }

    /// For a task with messages.
    pub(crate) fn of_flow(handler: Handler, live: &Arc<NodeLive>, slot: u32) -> Duty {
        let buffer = |ring: Option<&Ring>| Vec::with_capacity(ring.map_or(0, Ring::room));
        let (input, output) = (buffer(live.payloads.input(slot)), buffer(live.payloads.output(slot)));
        Duty { handler, node: Some((live.clone(), slot)), input, output }
    }

    /// Carries out a job.
    pub(crate) fn run(&mut self, number: u64) {
        let payloads = self.node.as_ref().map(|(live, slot)| (&live.payloads, *slot));
        let input = payloads.and_then(|(payloads, slot)| payloads.input(slot));
        let output = payloads.and_then(|(payloads, slot)| payloads.output(slot));
        let found = input.is_none_or(|ring| ring.read(number, &mut self.input));
        let room = output.map_or(0, Ring::room);
        let bytes = found.then_some(self.input.as_slice());
        (self.handler)(&mut LiveJob::new(number, bytes, &mut self.output, room));
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
        let mut output = vec![1, 2, 3];
        let mut job = LiveJob::new(7, None, &mut output, 4);
        assert_eq!((job.room(), job.send(b"abc")), (4, Ok(())));
        assert_eq!(job.send(b"de"), Err(NoRoom { bytes: 2, free: 1 }));
        assert_eq!(job.send(b"d"), Ok(()));
        assert_eq!(output, b"abcd");
    }

    #[test]
    fn a_handler_is_taken_once() {
        let mut handlers = Handlers::new().on("a", |_| {}).on("b", |_| {});
        assert_eq!(format!("{handlers:?}"), "{\"a\", \"b\"}");
        assert!(handlers.take("a").is_some() && handlers.take("a").is_none());
        assert_eq!(handlers.first().map(String::as_str), Some("b"));
        assert!(!handlers.is_empty());
    }
}
