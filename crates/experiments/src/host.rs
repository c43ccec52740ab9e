//! Services that the command gives to the experiments: its recorder and its progress bars.

use indicatif::ProgressBar;
use takt_log::stats::Stats;

use crate::failure::Failure;

/// Functions that the command provides.
#[derive(Clone, Copy)]
pub struct Host {
    /// Records the kernel in a thread of its own. Events after the return are recorded.
    pub record: fn(Request) -> Result<Box<dyn Recorder>, Failure>,
    /// A progress bar with a name and a number of steps. It is hidden if stderr is no terminal.
    pub bar: fn(&str, u64) -> ProgressBar,
}

/// The kinds of events to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The recorded processes and kernel threads.
    pub pids: Vec<u32>,
    /// Whether each sleep ends a job, whatever system call it is.
    pub suspensions: bool,
    /// The log's path.
    pub output: String,
}

/// A recording in progress. Dropping it ends it.
pub trait Recorder {
    /// Ends the recording. Returns the statistics of all threads, and a text for each kind of event
    /// that was lost or not readable.
    ///
    /// # Errors
    ///
    /// The recorder failed meanwhile, or its log could not be written.
    fn finish(self: Box<Self>) -> Result<(Stats, Vec<String>), Failure>;
}
