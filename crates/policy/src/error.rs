//! Why a node cannot be dispatched.

use takt_model::plan::PlanError;
use thiserror::Error;

/// Why a node cannot be dispatched.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PolicyError {
    /// A strategy that does not fit the node's tasks, or cannot be executed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A task without CPUs on a divided node.
    #[error(
        "task \"{task}\" has no CPU on the partitioned or clustered node \"{node}\"; place the system first, \
         or give the task cpus"
    )]
    NotPlaced {
        /// The task.
        task: String,
        /// The node.
        node: String,
    },
    /// A task that is not bound to one CPU, where each CPU has threads of its own.
    #[error(
        "task \"{task}\" of node \"{node}\" is not bound to one CPU, and the dispatcher requires this: give it cpus = \
         [k], or place the system first"
    )]
    NotBound {
        /// The task.
        task: String,
        /// The node.
        node: String,
    },
    /// A component whose server has no period or budget yet.
    #[error("component \"{component}\" has no period or no budget yet: takt size fills them in")]
    NotSized {
        /// The component.
        component: String,
    },
    /// A component without the priority that the strategy around it needs.
    #[error(
        "component \"{component}\" has no priority, which strategy \"{strategy}\" needs; \
         give it a priority, 1 is the most important"
    )]
    NoServerPriority {
        /// The strategy.
        strategy: String,
        /// The component.
        component: String,
    },
    /// A component without CPUs on a divided node.
    #[error(
        "component \"{component}\" has no CPU on the partitioned or clustered node \"{node}\"; place the system \
         first, or give the component server-cpus"
    )]
    ServerNotPlaced {
        /// The component.
        component: String,
        /// The node.
        node: String,
    },
    /// A node that the System does not have.
    #[error("there is no node {node}")]
    NoNode {
        /// Its number.
        node: u32,
    },
    /// A task whose affinity crosses the borders of clusters.
    #[error("the cpus of task \"{task}\" lie in several clusters of node \"{node}\"; a task stays within one")]
    AcrossClusters {
        /// The task.
        task: String,
        /// The node.
        node: String,
    },
}
