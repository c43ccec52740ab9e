//! The contract between `run` and the back ends that keep the budgets of components.
//!
//! A back end fills in a [`Contract`] before anything runs. The contract lists what the back end enforces of a node. It
//! also lists each obstacle with its reason and remedy. With an obstacle the back end refuses, and nothing runs.

use std::fmt;

use takt_model::{CpuSet, NodeId, System};

use crate::mapping;

/// A back end that keeps the budgets of components.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerBackEnd {
    /// A budget manager on each CPU, or on one of CPUs that share tasks (docs/explanation/budget-manager.md).
    Manager,
    /// SCHED_DEADLINE: a thread for each component.
    Deadline,
    /// A sched_ext scheduler, which the kernel runs (docs/explanation/sched-ext.md).
    SchedExt,
}

impl ServerBackEnd {
    /// In the order in which a run without a choice asks them. The manager is first: it enforces all rules, with
    /// the finest grain.
    pub const ALL: [ServerBackEnd; 3] = [ServerBackEnd::Manager, ServerBackEnd::Deadline, ServerBackEnd::SchedExt];

    /// As `--backend` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ServerBackEnd::Manager => "manager",
            ServerBackEnd::Deadline => "deadline",
            ServerBackEnd::SchedExt => "sched-ext",
        }
    }
}

/// The answer of a back end for a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contract {
    /// The back end.
    pub back_end: ServerBackEnd,
    /// The budgets that it enforces, with their granularity: sentences for the screen and the log.
    pub enforces: Vec<String>,
    /// The parts that it cannot enforce. If there are none, it runs the node.
    pub cannot: Vec<Obstacle>,
}

/// A part that a back end cannot enforce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// The part of the System or of the machine.
    pub part: String,
    /// The reason.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.part, self.why, self.remedy)
    }
}

/// The remedy for a component with servers on several CPUs.
pub(crate) const ONE_CPU: &str = "use --backend manager, or give it one CPU (cpus = 1)";
/// The remedy for CPUs that share tasks or components.
pub(crate) const PLACE_THEM: &str =
    "place them: placement = \"partitioned\", cpus for each task, server-cpus for each component";

impl Obstacle {
    /// CPUs of a node share tasks or components, and the back end wants each for itself: the reason.
    pub(crate) fn of_shared_cpus(system: &System, node: NodeId, shared: &CpuSet, why: &str) -> Obstacle {
        let mut of_node = system.components.iter().filter(|component| component.node == node);
        if let Some(wide) = of_node.find(|component| component.cpus > 1) {
            let has = format!("it has servers on {} CPUs, and {why}", wide.cpus);
            let name = format!("component \"{}\"", wide.name);
            return Obstacle::new(name, has, format!("use --backend manager, or {PLACE_THEM}"));
        }
        let name = system.nodes.get(node.index()).map_or("", |node| &node.name);
        let part = format!("node \"{name}\"");
        let shares = format!("CPUs {} share tasks or components, and {why}", mapping::list(shared));
        Obstacle::new(part, shares, format!("use --backend manager, or {PLACE_THEM}"))
    }

    pub(crate) fn new(part: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
        Obstacle { part: part.into(), why: why.into(), remedy: remedy.into() }
    }
}
