//! Reasons why a run did not take place or did not end well.

use takt_linux::foreign::ForeignError;
use takt_linux::hold::HoldError;
use takt_linux::recovery::RecoveryError;
use takt_linux::tracing::RecorderError;
use takt_linux::{SchedError, cpuset::CpusetError};
use takt_model::Span;
use takt_model::plan::PlanError;
use takt_policy::PolicyError;
use thiserror::Error;

use crate::kernel::TraceError;
use crate::node::error::NodeError;

/// The reason why a run did not take place or did not end well.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RunError {
    /// Several nodes and none chosen.
    #[error("the system has several nodes, and one machine runs one of them: choose with --node ({nodes})")]
    WhichNode {
        /// Their names.
        nodes: String,
    },
    /// A node number that the System does not have.
    #[error("the system has no node number {0}")]
    NoNode(u32),
    /// Components can join only a run under budget managers.
    #[error(
        "components join and leave only a run under budget managers, and node \"{node}\" has none, or has flows; \
         leave out --admit, or run a node with components under --backend manager"
    )]
    NotLive {
        /// The node.
        node: String,
    },
    /// A handler that nothing calls.
    #[error(
        "no thread of this run carries out task \"{task}\", so its handler has no jobs; name a task of the node \
         (hop 1 of flow f is f/1), and no table task or task of the dispatcher"
    )]
    NoHandled {
        /// The task.
        task: String,
    },
    /// Nothing to do.
    #[error("node \"{node}\" has no task to run")]
    NoTasks {
        /// The node.
        node: String,
    },
    /// The kernel did not take the sched_ext scheduler.
    #[error("{cause}; use --backend manager")]
    NoScheduler {
        /// What it said.
        cause: String,
    },
    /// Too long for the clock.
    #[error("a run lasts more than 0ns and at most {most}, not {duration}", most = Span::FILE_MAX)]
    Duration {
        /// The requested duration.
        duration: Span,
    },
    /// A priority out of range.
    #[error("the most important SCHED_FIFO priority is 1 to 98, not {0}; 99 is the kernel's own")]
    TopPriority(u8),
    /// A part that this version reads but does not run.
    #[error("this version cannot run {part} \"{name}\": {why}; it runs the tasks and chains of one node")]
    Unsupported {
        /// Kind of part.
        part: &'static str,
        /// Its name.
        name: String,
        /// What about it.
        why: String,
    },
    /// The kernel's scheduling classes cannot express this part. Best effort runs it, because it
    /// enforces nothing.
    #[error(
        "{part} \"{name}\" cannot be run under the kernel's scheduling classes: {why}; simulate it, or \
         run it without a guarantee: --best-effort"
    )]
    Unenforceable {
        /// Kind of part.
        part: &'static str,
        /// Its name.
        name: String,
        /// What about it.
        why: String,
    },
    /// Neither the kernel's scheduling classes nor takt's dispatcher can express this part.
    #[error("{why}; takt's own dispatcher cannot run it either:\n{anomalies}")]
    Undispatchable {
        /// Why the kernel cannot.
        why: String,
        /// The dispatcher's objections, one per line.
        anomalies: String,
        /// Whether nothing could run it.
        input: bool,
    },
    /// takt's dispatcher was requested and cannot express this part.
    #[error("takt's own dispatcher cannot run it:\n{anomalies}")]
    Unplanned {
        /// The dispatcher's objections, one per line.
        anomalies: String,
    },
    /// A controller that does not fit.
    #[error("the adaptive controller does not fit: {0}")]
    Adaptive(String),
    /// The dispatcher did not start.
    #[error("the dispatcher did not start: {0}")]
    Dispatch(String),
    /// The strategy does not fit the tasks.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Servers or tasks that no machine can schedule as they are.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No back end that was asked can enforce all of a node with components.
    #[error("{refusals}")]
    BackEnd {
        /// The node.
        node: String,
        /// What each cannot, with reason and remedy, a line for each.
        refusals: String,
    },
    /// A back end for components was chosen for a node without any.
    #[error(
        "back end \"{back_end}\" keeps the budgets of components, and node \"{node}\" has no component; leave out \
         --backend"
    )]
    NoComponents {
        /// The back end.
        back_end: &'static str,
        /// The node.
        node: String,
    },
    /// A manager that shows no life.
    #[error(
        "the budget manager of CPU {cpu} gave no sign of life for almost 1 s; its threads were freed under SCHED_OTHER"
    )]
    Manager {
        /// The CPU in the model.
        cpu: u32,
    },
    /// Existing threads that cannot be held.
    #[error("{0}")]
    Foreign(#[from] HoldError),
    /// The kernel is not recorded beside existing threads.
    #[error(
        "--trace does not go with existing threads (threads of a component): no recording knows them; leave it out"
    )]
    TraceOfForeign,
    /// A node with flows.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Not placed yet.
    #[error(
        "task \"{task}\" is not placed: a {placement} node wants cpus = [..] within one cluster in \
         every task; write it, or let `takt size` place them"
    )]
    Unplaced {
        /// The task.
        task: String,
        /// The node's placement.
        placement: &'static str,
    },
    /// A trace without loaded values.
    #[error("the trace \"{path}\" of task \"{task}\" holds no values")]
    NoTrace {
        /// The task.
        task: String,
        /// The file.
        path: String,
    },
    /// Fewer CPUs than the node has.
    #[error("node \"{node}\" has {wanted} CPUs and this process may use {there}; {remedy}, or lower cpus")]
    Cpus {
        /// The node.
        node: String,
        /// CPUs of the node.
        wanted: u32,
        /// CPUs that this process may use.
        there: usize,
        /// How to get as many.
        remedy: String,
    },
    /// More levels than SCHED_FIFO has priorities.
    #[error(
        "strategy \"{strategy}\" makes {levels} levels of these tasks, and SCHED_FIFO has {most} \
         priorities for them; give tasks the same priority, period or deadline, by which it divides them, or run fewer"
    )]
    Levels {
        /// The strategy.
        strategy: String,
        /// Levels of the strategy.
        levels: usize,
        /// Available priorities.
        most: u8,
    },
    /// A task that no SCHED_DEADLINE reservation can hold.
    #[error("task \"{task}\" cannot run under SCHED_DEADLINE: {why}")]
    Deadline {
        /// The task.
        task: String,
        /// The broken rule of the kernel.
        why: String,
    },
    /// It would starve the machine.
    #[error(
        "the tasks of CPUs {cpus} use {used} % of them, and real-time threads may have {allowed} %: the \
         rest of the machine would starve; lower the load, or insist with --force"
    )]
    Overload {
        /// Model CPUs.
        cpus: String,
        /// Percent of those CPUs, rounded up.
        used: u64,
        /// Percent.
        allowed: u64,
    },
    /// Missing privilege.
    #[error("{missing}\n{grant}")]
    Privilege {
        /// The refused class and the missing privilege.
        missing: String,
        /// The command that grants it.
        grant: String,
    },
    /// The kernel refused a class or an affinity, for another cause than privilege.
    #[error("task \"{task}\": {cause}")]
    Refused {
        /// The task.
        task: String,
        /// The cause.
        cause: SchedError,
    },
    /// The machine could not be divided or put back.
    #[error("{0}")]
    Cpusets(#[from] CpusetError),
    /// An earlier run's leftovers could not be repaired.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The kernel cannot be recorded, and should be.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Working sets that would push everything else out of memory.
    #[error(
        "the working sets (wss) of the tasks are {bytes} bytes together, and {most} bytes can be locked \
         without starving the machine of memory; lower wss"
    )]
    WorkingSets {
        /// Bytes of all working sets.
        bytes: u64,
        /// The most that a run may take.
        most: u64,
    },
    /// No memory for a working set.
    #[error("task \"{task}\": no memory for a working set of {bytes} bytes")]
    Memory {
        /// The task.
        task: String,
        /// Bytes of the working set.
        bytes: u64,
    },
    /// No thread.
    #[error("task \"{task}\": no thread could be started: {cause}")]
    Spawn {
        /// The task.
        task: String,
        /// The system's answer.
        cause: String,
    },
    /// A thread that ended by a bug of takt.
    #[error("the thread of task \"{task}\" panicked; its class is restored; this is a bug of takt")]
    Panicked {
        /// The task.
        task: String,
    },
    /// A thread that did not come to an end.
    #[error("the thread of task \"{task}\" did not end {grace} after the run; end this process to end it")]
    Stuck {
        /// The task.
        task: String,
        /// How long takt waited.
        grace: Span,
    },
}

impl RunError {
    /// The exit status of the command line: 2 bad input, 3 this machine or this version cannot, 4 a failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::WhichNode { .. }
            | RunError::NoNode(_)
            | RunError::NoTasks { .. }
            | RunError::NoHandled { .. }
            | RunError::Duration { .. }
            | RunError::TopPriority(_)
            | RunError::Unplaced { .. }
            | RunError::Adaptive(_)
            | RunError::NoComponents { .. }
            | RunError::Undispatchable { input: true, .. }
            | RunError::NoTrace { .. } => 2,
            RunError::Plan(_) | RunError::Policy(_) => 2,
            RunError::Node(error) => {
                if error.is_input() {
                    2
                } else {
                    3
                }
            }
            RunError::Foreign(error) => match error {
                HoldError::Foreign(
                    ForeignError::NoHierarchy { .. }
                    | ForeignError::File { .. }
                    | ForeignError::NoController { .. }
                    | ForeignError::Apart { .. },
                ) => 3,
                HoldError::State(_) | HoldError::Guardian { .. } => 4,
                HoldError::Foreign(_) | HoldError::Gone { .. } | HoldError::Reserved { .. } => 2,
                _ => 3,
            },
            RunError::Trace(TraceError::Recorder(
                RecorderError::File { .. } | RecorderError::Read { .. } | RecorderError::Memory { .. },
            )) => 4,
            RunError::Trace(_) => 3,
            RunError::NotLive { .. }
            | RunError::TraceOfForeign
            | RunError::Unsupported { .. }
            | RunError::Unenforceable { .. }
            | RunError::Undispatchable { .. }
            | RunError::Unplanned { .. }
            | RunError::Dispatch(_)
            | RunError::BackEnd { .. }
            | RunError::NoScheduler { .. }
            | RunError::Cpus { .. }
            | RunError::Levels { .. }
            | RunError::Deadline { .. }
            | RunError::Overload { .. }
            | RunError::WorkingSets { .. }
            | RunError::Privilege { .. }
            | RunError::Refused { .. }
            | RunError::Cpusets(CpusetError::InUse(_)) => 3,
            RunError::Cpusets(_)
            | RunError::Recovery(_)
            | RunError::Memory { .. }
            | RunError::Manager { .. }
            | RunError::Spawn { .. }
            | RunError::Panicked { .. }
            | RunError::Stuck { .. } => 4,
        }
    }

    pub(crate) fn refused(task: &str, cause: SchedError) -> RunError {
        match cause {
            SchedError::Privilege { ref class, .. } => {
                RunError::Privilege { grant: grant(class.starts_with("SCHED_FIFO")), missing: cause.to_string() }
            }
            cause => RunError::Refused { task: task.to_owned(), cause },
        }
    }
}

/// The commands that grant the privilege. SCHED_FIFO only needs the limit; SCHED_DEADLINE needs the
/// capability.
pub(crate) fn grant(limit_is_enough: bool) -> String {
    let by_limit = if limit_is_enough {
        "or raise the limits, as root: ulimit -r 98; ulimit -l unlimited  (lasting: \"@realtime - \
         rtprio 98\" and \"@realtime - memlock unlimited\" in /etc/security/limits.conf)\n"
    } else {
        ""
    };
    format!(
        "grant it once: sudo setcap cap_sys_nice,cap_ipc_lock+ep \"$(command -v takt)\"\n\
         {by_limit}or run without a guarantee, under SCHED_OTHER: takt run --best-effort"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_privilege_comes_with_its_commands() {
        let refused = SchedError::Privilege {
            class: "SCHED_FIFO priority 48".into(),
            missing: "the capability CAP_SYS_NICE is missing and the limit RLIMIT_RTPRIO is 0, not 48".into(),
        };
        let error = RunError::refused("t", refused);
        assert_eq!(error.exit_code(), 3);
        assert_eq!(
            error.to_string(),
            "SCHED_FIFO priority 48 was refused: the capability CAP_SYS_NICE is missing and the limit \
             RLIMIT_RTPRIO is 0, not 48\n\
             grant it once: sudo setcap cap_sys_nice,cap_ipc_lock+ep \"$(command -v takt)\"\n\
             or raise the limits, as root: ulimit -r 98; ulimit -l unlimited  (lasting: \"@realtime - \
             rtprio 98\" and \"@realtime - memlock unlimited\" in /etc/security/limits.conf)\n\
             or run without a guarantee, under SCHED_OTHER: takt run --best-effort"
        );
        assert!(!grant(false).contains("ulimit"), "no limit gives SCHED_DEADLINE");
    }
}
