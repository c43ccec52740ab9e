//! The end of a dispatcher.

use takt_linux::tracing::RecorderError;
use takt_log::causes::Late;
use takt_model::{Span, Time};
use thiserror::Error;

use super::account::Recorded;
use super::core::Counts;

/// The result of a stopped dispatcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// The time of the stop, since the start.
    pub end: Time,
    /// The outcomes of the jobs, by operation in the order of the plan.
    pub counts: Vec<(String, Counts)>,
    /// Facts lost to a full buffer. The log has a `Lost` at each place.
    pub lost: u64,
    /// The message of the first panic of an operation's handler, by operation. The counts hold the
    /// number of panics.
    pub panics: Vec<(String, String)>,
    /// The number of switches by the program, by modes' times, and by a controller.
    pub switched: u64,
    /// The longest time that a switch locked the queues of all CPUs.
    pub locked: Span,
    /// Changes of a thread's priority that the kernel refused at a switch of plans.
    pub refused: u64,
    /// The recording of the kernel; `None` without [`Dispatcher::watched_by`](super::Dispatcher::watched_by).
    pub recorded: Option<Recorded>,
    /// Why recording the kernel failed from some time on.
    pub unrecorded: Option<RecorderError>,
    /// Why jobs were late, by operation in the order of the plan; `None` if the kernel was not
    /// recorded.
    pub late: Option<Vec<Late>>,
}

/// Why a dispatcher did not end well.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StopError {
    /// A handler does not return.
    #[error(
        "operation \"{operation}\" has not returned for {grace} since the stop; its thread goes on: let long \
         handlers look at must_stop()"
    )]
    Stuck {
        /// The outcomes of the jobs until then; the log has them too.
        stopped: Box<Stopped>,
        /// The operation of the handler.
        operation: String,
        /// The time that the handler had.
        grace: Span,
    },
    /// A bug: a thread of the dispatcher itself panicked.
    #[error("{thread} of the dispatcher panicked: a bug in takt")]
    Panicked {
        /// The thread.
        thread: String,
    },
}
