//! The order in which jobs go before each other.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::flows::{self, Lowered, Role};
use takt_model::plan::Order;
use takt_model::{Late, NodeId, Plan, Span, Strategy, System, TaskId};

use crate::header::{BackEnd, Header};
use crate::kind::Kind;

/// Known facts about a log's tasks, and about the log's origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    tasks: BTreeMap<TaskId, TaskRule>,
    /// The tasks whose jobs messages release.
    messages: BTreeMap<TaskId, MessageRule>,
    /// The tasks that leave those messages.
    senders: BTreeSet<TaskId>,
    /// The tasks that others follow.
    followed: BTreeSet<TaskId>,
    back_end: BackEnd,
    known: bool,
}

/// Known facts about a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRule {
    /// The CPU that it is bound to, if it is bound to one.
    pub cpu: Option<u32>,
    /// How long its jobs take at most.
    pub wcet: Option<Span>,
    /// The largest planned delay of a release after the nominal arrival.
    pub jitter: Span,
    /// The tasks that its jobs follow.
    pub after: Vec<TaskId>,
    /// The server of its component and those around it, by their numbers in the log.
    pub servers: Vec<u32>,
    /// Its importance by mode; empty if unknown.
    pub importances: Vec<Importance>,
}

/// Known facts about the messages that release the jobs of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageRule {
    /// The task of the hop before, which leaves them.
    pub(super) from: TaskId,
    /// The latest arrival by plan, relative to that of the flow. It is the sum of the hop's deadline, a period and a
    /// job of the sending task, and the greatest delay of the network, if the file has one.
    pub(super) latest: Span,
    /// The task of this node whose jobs take them.
    pub(super) taken_by: Option<TaskId>,
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
        Rules::new(tasks, BTreeMap::new(), back_end, true)
    }

    /// For a log with this header, of this System, if it has one. The tasks of its flows are among them.
    #[must_use]
    pub fn of(header: &Header, system: Option<&System>) -> Rules {
        let needed: &[Kind] = match header.back_end {
            BackEnd::Sim => &[Kind::Release, Kind::Start, Kind::Preempt, Kind::Resume, Kind::Complete],
            _ => &[Kind::Release, Kind::Start, Kind::Preempt, Kind::Resume, Kind::Complete, Kind::Occupy],
        };
        let known = needed.iter().all(|kind| header.kinds.contains(*kind));
        let lowered = system.and_then(flows::lower);
        let system = lowered.as_ref().map(|lowered| &lowered.system).or(system);
        let tasks = system.map(|system| tasks(system, header.back_end)).unwrap_or_default();
        let messages = lowered.as_ref().map(messages).unwrap_or_default();
        Rules::new(tasks, messages, header.back_end, known)
    }

    fn new(
        tasks: BTreeMap<TaskId, TaskRule>,
        messages: BTreeMap<TaskId, MessageRule>,
        back_end: BackEnd,
        known: bool,
    ) -> Rules {
        let takers = messages.values().filter_map(|rule| rule.taken_by);
        let followed = tasks.values().flat_map(|rule| rule.after.iter().copied()).chain(takers).collect();
        let senders = messages.values().map(|rule| rule.from).collect();
        Rules { tasks, messages, senders, followed, back_end, known }
    }

    /// Whether the log tells what CPUs did.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known
    }

    pub(super) fn task(&self, task: TaskId) -> Option<&TaskRule> {
        self.tasks.get(&task)
    }

    pub(super) fn demotes(&self, task: TaskId, mode: u32) -> bool {
        self.task(task).and_then(|rule| rule.importance(mode)).is_some_and(|importance| importance.demotes)
    }

    pub(super) fn message(&self, task: TaskId) -> Option<MessageRule> {
        self.messages.get(&task).copied()
    }

    /// Whether messages that jobs of this task leave release others.
    pub(super) fn is_sender(&self, task: TaskId) -> bool {
        self.senders.contains(&task)
    }

    pub(super) fn servers(&self, task: TaskId) -> &[u32] {
        self.tasks.get(&task).map_or(&[], |rule| &rule.servers)
    }

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

fn messages(lowered: &Lowered) -> BTreeMap<TaskId, MessageRule> {
    let system = &lowered.system;
    let takes = |id: &TaskId| matches!(lowered.role(*id), Some(Role::Receive | Role::Interrupt));
    let rule = |id: TaskId, node: NodeId| {
        let Some(Role::Hop { flow, hop }) = lowered.role(id) else { return None };
        let from = lowered.task_of(flow, hop.checked_sub(1)?)?;
        let before = system.tasks.get(from.index())?;
        let sending = system.nodes[before.node.index()].send;
        let sending = sending.map_or(Span::ZERO, |send| send.period.saturating_add(send.wcet));
        let delays = system.networks_between(before.node, node).into_iter();
        let delays = delays.filter_map(|network| system.networks[network.index()].delay.given());
        let network = delays.map(|(_, most)| most).max().unwrap_or(Span::ZERO);
        let latest = before.deadline.saturating_add(sending).saturating_add(network);
        let taken_by = system.tasks_of(node).map(|(id, _)| id).find(takes);
        Some((id, MessageRule { from, latest, taken_by }))
    };
    let all = (0..).map(TaskId).zip(&system.tasks);
    all.filter_map(|(id, task)| rule(id, task.node)).collect()
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
