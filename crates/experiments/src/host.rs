//! Services that the command gives to the experiments: its recorder and its progress bars.

use std::path::PathBuf;

use indicatif::ProgressBar;
use takt_log::stats::Stats;
use takt_model::Span;
use takt_run::lab::pure::machine::Devices;

use crate::failure::Failure;

/// Functions that the command provides.
#[derive(Clone, Copy)]
pub struct Host {
    /// Records the kernel in a thread of its own. Events after the return are recorded.
    pub record: fn(Request) -> Result<Box<dyn Recorder>, Failure>,
    /// Runs a script on a kernel of the lab.
    pub lab: fn(&LabMachine, &LabRequest) -> Result<LabOutput, Failure>,
    /// Runs Systems on a kernel of the lab, in one boot, under its sched_ext scheduler. Returns their logs.
    pub lab_runs: fn(&LabMachine, &LabRuns) -> Result<Logs, Failure>,
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

/// The kernel and the program of a guest, as for `takt lab run`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabMachine {
    /// A flavour, a fetched release, or the path of a bzImage.
    pub kernel: String,
    /// The folder of fetched kernels. `None`: the usual one.
    pub cache: Option<PathBuf>,
    /// The static takt of the guest. `None`: this program.
    pub binary: Option<PathBuf>,
}

/// A script for a guest with one CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabRequest {
    /// Its devices. Disks are tolerant ones.
    pub devices: Devices,
    /// Its network cards.
    pub cards: u32,
    /// Kernel modules, each with its parameters.
    pub modules: &'static [(&'static str, &'static [&'static str])],
    /// The size of the IDE disk. 0: none.
    pub disk_mib: u32,
    /// The size of the virtio disk. 0: none.
    pub virtio_disk_mib: u32,
    /// The script, for sh. It may write a log to [`LAB_LOG`].
    pub script: String,
    /// The CPU time that the emulation may take.
    pub timeout: Span,
}

/// The log that a script may write.
pub const LAB_LOG: &str = "/lab/00/log.takt";

/// The results of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabOutput {
    /// Its standard output.
    pub text: String,
    /// The log that it wrote.
    pub log: Option<Vec<u8>>,
}

/// A log of each System, as bytes.
pub type Logs = Vec<Vec<u8>>;

/// Systems for a guest with one CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabRuns {
    /// Their files.
    pub files: Vec<PathBuf>,
    /// How long each runs.
    pub duration: Span,
    /// The seed of each run.
    pub seed: u64,
    /// The CPU time that the emulation may take.
    pub timeout: Span,
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
