//! Why a dispatcher did not start or did not end well, and why a job was not queued.

use takt_linux::SchedError;
use takt_linux::tracing::RecorderError;
use takt_model::Span;
use takt_policy::PolicyError;
use thiserror::Error;

use super::running::Stopped;

/// Why events cannot release an operation of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReleaseError {
    /// There is none of this name.
    #[error("the plan has no operation \"{0}\" that events could release")]
    Unknown(String),
    /// A timer or the program releases it.
    #[error("operation \"{0}\" comes after no other; make it sporadic, and events release it")]
    ComesAfterNone(String),
}

/// Why a dispatcher did not start.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StartError {
    /// A handler for an operation that the plan does not have.
    #[error("the plan has no operation \"{0}\" to handle")]
    Unknown(String),
    /// A second handler for an operation.
    #[error("operation \"{0}\" has a handler already: one function is called for each of its jobs")]
    Doubled(String),
    /// An operation without a handler.
    #[error("operation \"{0}\" has no handler: give it one with on(\"{0}\", ..) before the start")]
    NoHandler(String),
    /// The plan's tasks cannot be queued.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// More CPUs or levels than this version keeps.
    #[error("{what} number {there}; a dispatcher has at most {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many the plan has.
        there: usize,
        /// How many there can be.
        most: usize,
    },
    /// A controller that does not fit the plan.
    #[error("the adaptive controller: {0}")]
    Adaptive(String),
    /// Fewer CPUs than the plan has.
    #[error("the plan has {wanted} CPUs and this process may use {there}")]
    Cpus {
        /// What it has.
        wanted: usize,
        /// What is there.
        there: usize,
    },
    /// Missing privilege. It never falls back to SCHED_OTHER by itself.
    #[error(
        "{missing}\ngrant it: sudo setcap cap_sys_nice,cap_ipc_lock+ep PROGRAM, or raise the limits, as root: ulimit -r 98; ulimit -l unlimited; or choose Options::best_effort, which guarantees nothing"
    )]
    Privilege {
        /// What was refused and what is missing.
        missing: String,
    },
    /// The kernel refused a class or a CPU, for another cause than privilege.
    #[error("{thread}: {cause}")]
    Refused {
        /// Which thread.
        thread: String,
        /// The cause.
        cause: SchedError,
    },
    /// The kernel's account was to be recorded, and cannot be.
    #[error("the kernel is not recorded: {0}")]
    Trace(#[from] RecorderError),
    /// A thread could not be had.
    #[error("{thread} could not be started: {cause}")]
    Spawn {
        /// Which thread.
        thread: String,
        /// The cause.
        cause: String,
    },
}

impl StartError {
    /// Of a thread whose class or CPU was refused.
    pub(crate) fn of(thread: String, cause: SchedError) -> StartError {
        match cause {
            SchedError::Privilege { .. } => StartError::Privilege { missing: cause.to_string() },
            cause => StartError::Refused { thread, cause },
        }
    }
}

/// Why a dispatcher did not end well.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StopError {
    /// A handler does not return.
    #[error(
        "operation \"{operation}\" has not returned for {grace} since the stop; its thread goes on: let long handlers look at must_stop()"
    )]
    Stuck {
        /// What became of the jobs until then; the log has it, too.
        stopped: Box<Stopped>,
        /// Whose handler.
        operation: String,
        /// How long it had.
        grace: Span,
    },
    /// A bug: a thread of the dispatcher itself ended by a panic.
    #[error("{thread} of the dispatcher panicked: a bug in takt")]
    Panicked {
        /// Which thread.
        thread: String,
    },
}

/// Why a job was not queued. Only [`PushError::Full`] counts, as released and rejected: otherwise there was no job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PushError {
    /// As many jobs as its backlog allows wait or run.
    #[error("the operation's backlog is full")]
    Full,
    /// The least distance from the push before is not over.
    #[error("the operation's least distance from its last arrival is over in {wait} only")]
    TooEarly {
        /// How long it still takes.
        wait: Span,
    },
    /// It is released by a timer or by its predecessors, not by the program.
    #[error("the operation is released by a timer or by the end of others, not by a push")]
    NotPushed,
    /// It takes no part in the mode that holds.
    #[error("the operation takes no part in the mode that holds")]
    Absent,
    /// The dispatcher does not run.
    #[error("the dispatcher has not started, or was stopped")]
    Stopped,
}
