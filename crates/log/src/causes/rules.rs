//! The order in which jobs go before each other.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::plan::Order;
use takt_model::{Late, NodeId, Plan, Span, Strategy, System, TaskId};

use crate::header::{BackEnd, Header};
use crate::kind::Kind;

/// Known facts about a log's tasks, and about the log's origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    tasks: BTreeMap<TaskId, TaskRule>,
    /// The tasks that others follow.
    followed: BTreeSet<TaskId>,
    back_end: BackEnd,
    /// Whether the log tells what CPUs did.
    known: bool,
}

/// Known facts about a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRule {
    /// The CPU that it is bound to, where that is one.
    pub cpu: Option<u32>,
    /// How long its jobs take at most.
    pub wcet: Option<Span>,
    /// By how much the System itself may release later than the nominal arrival.
    pub jitter: Span,
    /// The tasks that its jobs follow.
    pub after: Vec<TaskId>,
    /// The server of its component and those around it, by their numbers in the log.
    pub servers: Vec<u32>,
    /// By mode: how important it is; empty where that is unknown.
    pub importances: Vec<Importance>,
}

/// How important a task is among those of its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Importance {
    /// Its level, the most important first.
    pub level: u32,
    /// For levels whose jobs preempt each other by deadline or laxity: the shift added to the
    /// task's deadlines. Jobs are taken to run in the order of shifted deadlines. `None`: any job
    /// of the level may go before any other.
    pub shift_ns: Option<i64>,
    /// They preempt each other by laxity: one with a later deadline may rightly run first.
    pub by_laxity: bool,
    /// Whether late jobs that have not started go behind all others.
    pub demotes: bool,
}

impl TaskRule {
    pub(super) fn importance(&self, mode: u32) -> Option<&Importance> {
        self.importances.get(mode as usize).or(self.importances.last())
    }
}

impl Rules {
    /// The rules for these tasks, run by a live back end.
    #[must_use]
    pub fn live(tasks: BTreeMap<TaskId, TaskRule>, best_effort: bool) -> Rules {
        let back_end = if best_effort { BackEnd::RunBestEffort } else { BackEnd::Run };
        Rules::new(tasks, back_end, true)
    }

    /// For a log with this header, of this System, if it has one.
    #[must_use]
    pub fn of(header: &Header, system: Option<&System>) -> Rules {
        let needed: &[Kind] = match header.back_end {
            BackEnd::Sim => &[Kind::Release, Kind::Start, Kind::Preempt, Kind::Resume, Kind::Complete],
            _ => &[Kind::Release, Kind::Start, Kind::Preempt, Kind::Resume, Kind::Complete, Kind::Occupy],
        };
        let known = needed.iter().all(|kind| header.kinds.contains(*kind));
        let tasks = system.map(|system| tasks(system, header.back_end)).unwrap_or_default();
        Rules::new(tasks, header.back_end, known)
    }

    fn new(tasks: BTreeMap<TaskId, TaskRule>, back_end: BackEnd, known: bool) -> Rules {
        let followed = tasks.values().flat_map(|rule| rule.after.iter().copied()).collect();
        Rules { tasks, followed, back_end, known }
    }

    /// Whether the log tells what CPUs did.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known
    }

    pub(super) fn task(&self, task: TaskId) -> Option<&TaskRule> {
        self.tasks.get(&task)
    }

    /// The servers whose budgets the jobs of this task need.
    pub(super) fn servers(&self, task: TaskId) -> &[u32] {
        self.tasks.get(&task).map_or(&[], |rule| &rule.servers)
    }

    /// Whether jobs of others follow those of this task.
    pub(super) fn is_followed(&self, task: TaskId) -> bool {
        self.followed.contains(&task)
    }

    /// Whether there is a System.
    pub(super) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.back_end == BackEnd::Sim
    }

    pub(super) fn is_best_effort(&self) -> bool {
        self.back_end == BackEnd::RunBestEffort
    }
}

fn tasks(system: &System, back_end: BackEnd) -> BTreeMap<TaskId, TaskRule> {
    let mut tasks: BTreeMap<TaskId, TaskRule> = BTreeMap::new();
    for (node, spec) in (0..).map(NodeId).zip(&system.nodes) {
        let has_components = system.components.iter().any(|component| component.node == node);
        for (id, task) in system.tasks_of(node) {
            let bound = match &task.cpus {
                Some(cpus) => cpus.iter().next().filter(|_| cpus.len() == 1),
                None => (spec.cpus == 1).then_some(0),
            };
            // Beside components, the servers decide which job goes first.
            let cpu = bound.filter(|_| !has_components);
            let (wcet, jitter) = (Some(task.wcet), task.jitter);
            let servers = task.component.into_iter().flat_map(|id| system.around(id)).map(|id| id.0).collect();
            let after = task.after.clone();
            tasks.insert(id, TaskRule { cpu, wcet, jitter, after, servers, importances: Vec::new() });
        }
        // Nothing enforces a strategy then.
        if back_end == BackEnd::RunBestEffort {
            continue;
        }
        let mut modes: Vec<_> = system.modes.iter().filter(|mode| mode.node == node).collect();
        modes.sort_by_key(|mode| mode.at);
        let strategies = std::iter::once(spec.strategy).chain(modes.into_iter().map(|mode| mode.strategy));
        let strategies: Vec<Strategy> = strategies.map(|reference| system.strategy(reference)).collect();
        let plans: Result<Vec<Plan>, _> =
            strategies.iter().map(|strategy| Plan::resolve(system, node, strategy)).collect();
        for plan in plans.iter().flatten() {
            for task in &plan.tasks {
                let level = plan.levels.get(task.level as usize);
                let order = level.filter(|level| level.preemptive).map(|level| level.order);
                let nests = matches!(order, Some(Order::Deadline | Order::Laxity));
                if let Some(rule) = tasks.get_mut(&task.task) {
                    rule.importances.push(Importance {
                        level: task.level,
                        shift_ns: nests.then_some(task.shift_ns),
                        by_laxity: order == Some(Order::Laxity),
                        demotes: task.late == Late::Demote,
                    });
                }
            }
        }
    }
    tasks
}
