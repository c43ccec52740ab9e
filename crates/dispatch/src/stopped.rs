//! The result of a dispatcher.

use takt_linux::tracing::RecorderError;
use takt_log::causes::Late;
use takt_model::{Span, Time};

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
