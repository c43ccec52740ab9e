//! Errors of releasing, starting and pushing.

use takt_linux::SchedError;
use takt_linux::tracing::RecorderError;
use takt_model::Span;
use takt_policy::PolicyError;
use thiserror::Error;

/// Why events cannot release an operation of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReleaseError {
    /// The plan has no operation of this name.
    #[error("the plan has no operation \"{0}\" that events could release")]
    Unknown(String),
    /// A timer or the program releases the operation.
    #[error("operation \"{0}\" comes after no other; make it sporadic, and events release it")]
    ComesAfterNone(String),
}

/// Why a dispatcher did not start.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StartError {
    /// A handler names an operation that the plan does not have.
    #[error("the plan has no operation \"{0}\" to handle")]
    Unknown(String),
    /// An operation has two handlers.
    #[error("operation \"{0}\" has a handler already: one function is called for each of its jobs")]
    Doubled(String),
    /// An operation has no handler.
    #[error("operation \"{0}\" has no handler: give it one with on(\"{0}\", ..) before the start")]
    NoHandler(String),
    /// The plan's tasks cannot be queued.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The plan has more CPUs or levels than this version supports.
    #[error("{what} number {there}; a dispatcher has at most {most}")]
    TooMany {
        /// The kind of thing.
        what: &'static str,
        /// The plan's number.
        there: usize,
        /// The limit.
        most: usize,
    },
    /// The controller does not fit the plan.
    #[error("the adaptive controller: {0}")]
    Adaptive(String),
    /// The machine has fewer CPUs than the plan.
    #[error("the plan has {wanted} CPUs and this process may use {there}")]
    Cpus {
        /// The plan's number.
        wanted: usize,
        /// The machine's number.
        there: usize,
    },
    /// A privilege is missing. There is no fallback to SCHED_OTHER.
    #[error(
        "{missing}\ngrant it: sudo setcap cap_sys_nice,cap_ipc_lock+ep PROGRAM, or raise the limits, as root: \
         ulimit -r 98; ulimit -l unlimited; or choose Options::best_effort, which guarantees nothing"
    )]
    Privilege {
        /// The refused action and the missing privilege.
        missing: String,
    },
    /// The kernel refused a class or a CPU for a cause other than privilege.
    #[error("{thread}: {cause}")]
    Refused {
        /// The thread.
        thread: String,
        /// The cause.
        cause: SchedError,
    },
    /// The kernel cannot be recorded.
    #[error("the kernel is not recorded: {0}")]
    Trace(#[from] RecorderError),
    /// A thread could not start.
    #[error("{thread} could not be started: {cause}")]
    Spawn {
        /// The thread.
        thread: String,
        /// The cause.
        cause: String,
    },
}

impl StartError {
    /// The error for a thread whose class or CPU was refused.
    pub(crate) fn of(thread: String, cause: SchedError) -> StartError {
        match cause {
            SchedError::Privilege { .. } => StartError::Privilege { missing: cause.to_string() },
            cause => StartError::Refused { thread, cause },
        }
    }
}

/// Why a job was not queued. Only [`PushError::Full`] counts as released and rejected; otherwise no
/// job existed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PushError {
    /// The backlog is full.
    #[error("the operation's backlog is full")]
    Full,
    /// The least distance from the push before is not over.
    #[error("the operation's least distance from its last arrival ends in {wait}")]
    TooEarly {
        /// The remaining time.
        wait: Span,
    },
    /// A timer or its predecessors release the operation, not the program.
    #[error("the operation is released by a timer or by the end of others, not by a push")]
    NotPushed,
    /// The operation takes no part in the current mode.
    #[error("the operation takes no part in the mode that holds")]
    Absent,
    /// The dispatcher is not running.
    #[error("the dispatcher has not started, or was stopped")]
    Stopped,
}
