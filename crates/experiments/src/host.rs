//! Services of the command for the experiments: its recorder and its progress bars.

use indicatif::ProgressBar;
use takt_log::stats::Stats;

use crate::failure::Failure;

/// Functions of the command.
#[derive(Clone, Copy)]
pub struct Host {
    /// Records the kernel in a thread of its own. Events after the return are recorded.
    pub record: fn(Request) -> Result<Box<dyn Recorder>, Failure>,
    /// A bar over so many steps of work of this name; hidden where nobody watches.
    pub bar: fn(&str, u64) -> ProgressBar,
}

/// The kinds of events to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The processes, and threads of the kernel.
    pub pids: Vec<u32>,
    /// Whether each sleep ends a job, whatever the thread calls.
    pub suspensions: bool,
    /// The log's path.
    pub output: String,
}

/// A recording that goes on. Dropped, it is ended.
pub trait Recorder {
    /// Ends the recording. Returns the numbers of all threads, and the events that were lost or not readable.
    ///
    /// # Errors
    ///
    /// The recorder failed meanwhile, or its log could not be written.
    fn finish(self: Box<Self>) -> Result<(Stats, Vec<String>), Failure>;
}
