//! A strategy resolved against the tasks of one node: which level each task stands in.
//!
//! Policies and analyses both start from this value; neither sees the other.

use thiserror::Error;

use crate::strategy::{Discipline, Filter, Late, Level, Split, Strategy};
use crate::system::{NodeId, System, Task, TaskId};

/// A strategy's levels for one node, the most important first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The strategy's name.
    pub name: String,
    /// Levels that hold at least one task.
    pub levels: Vec<PlanLevel>,
    /// Per task of the node, in file order (the *slot* of a task): its level and its constant shift.
    pub tasks: Vec<PlanTask>,
}

/// One level after splitting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanLevel {
    /// Order within the level.
    pub order: Order,
    /// Whether jobs of the level preempt each other.
    pub preemptive: bool,
    /// The late rule of tasks that have none of their own.
    pub late: Late,
    /// Whether late jobs of some task of the level are dropped.
    pub drops: bool,
    /// Whether late jobs of some task of the level are demoted.
    pub demotes: bool,
    /// Whether importance breaks ties first.
    pub importance_ties: bool,
}

impl PlanLevel {
    /// Whether late jobs of all its tasks go on as if they were not.
    #[must_use]
    pub fn continues(&self) -> bool {
        !self.drops && !self.demotes
    }
}

/// The order within a resolved level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// By release.
    Fifo,
    /// By absolute deadline plus [`PlanTask::shift_ns`].
    Deadline,
    /// By deadline minus remaining execution.
    Laxity,
}

/// A task's place in a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanTask {
    /// The task.
    pub task: TaskId,
    /// Index into [`Plan::levels`].
    pub level: u32,
    /// Constant added to the absolute deadline (`gel`), zero elsewhere.
    pub shift_ns: i64,
    /// The rule for its late jobs.
    pub late: Late,
}

/// Why a strategy does not fit a node's tasks.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlanError {
    /// A task that no level takes.
    #[error("strategy \"{strategy}\" has no level for task \"{task}\"; end its levels with one whose tasks = \"rest\"")]
    NoLevel {
        /// The strategy.
        strategy: String,
        /// The task.
        task: String,
        /// Its index.
        id: TaskId,
    },
    /// A task without the priority that a level needs.
    #[error(
        "task \"{task}\" has no priority, which strategy \"{strategy}\" needs; give it a priority, 1 is the most \
         important"
    )]
    NoPriority {
        /// The strategy.
        strategy: String,
        /// The task.
        task: String,
        /// Its index.
        id: TaskId,
    },
}

impl Plan {
    /// Resolves `strategy` for the tasks of `node` that stand in no component.
    ///
    /// # Errors
    /// A task without a level or without a needed priority.
    pub fn resolve(system: &System, node: NodeId, strategy: &Strategy) -> Result<Plan, PlanError> {
        Plan::of_tasks(system.tasks_of(node).filter(|(_, task)| task.component.is_none()), strategy)
    }

    /// Resolves `strategy` for these tasks, in file order, such as the tasks of one component.
    ///
    /// # Errors
    /// As [`resolve`](Plan::resolve).
    pub fn of_tasks<'a>(
        tasks: impl Iterator<Item = (TaskId, &'a Task)>,
        strategy: &Strategy,
    ) -> Result<Plan, PlanError> {
        let mut placed = Vec::new();
        for (id, task) in tasks {
            let level = strategy.levels.iter().position(|level| takes(&level.filter, task));
            let level = level.ok_or_else(|| PlanError::NoLevel {
                strategy: strategy.name.clone(),
                task: task.name.clone(),
                id,
            })?;
            let split = split_key(strategy, &strategy.levels[level], task, id)?;
            placed.push((id, task, level, split));
        }
        let mut keys: Vec<(usize, u64)> = placed.iter().map(|(_, _, level, split)| (*level, *split)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut levels: Vec<PlanLevel> =
            keys.iter().map(|(level, _)| resolve_level(&strategy.levels[*level])).collect();
        let tasks: Vec<PlanTask> = placed
            .into_iter()
            .map(|(id, task, level, split)| PlanTask {
                task: id,
                level: keys.binary_search(&(level, split)).unwrap_or(0) as u32,
                shift_ns: shift_ns(&strategy.levels[level].discipline, task),
                late: task.late.unwrap_or(strategy.levels[level].late),
            })
            .collect();
        for task in &tasks {
            let level = &mut levels[task.level as usize];
            level.drops |= task.late == Late::Drop;
            level.demotes |= task.late == Late::Demote;
        }
        Ok(Plan { name: strategy.name.clone(), levels, tasks })
    }
}

fn takes(filter: &Filter, task: &Task) -> bool {
    match filter {
        Filter::Rest => true,
        Filter::Named(names) => names.contains(&task.name),
        Filter::Where { criticality, importance, priority } => {
            criticality.is_none_or(|wanted| task.criticality == wanted)
                && importance.is_none_or(|wanted| task.importance == wanted)
                && priority.is_none_or(|wanted| task.priority == Some(wanted))
        }
    }
}

/// A number that sorts the sub-levels of a split level, the most important first.
fn split_key(strategy: &Strategy, level: &Level, task: &Task, id: TaskId) -> Result<u64, PlanError> {
    Ok(match level.split {
        Split::None => 0,
        Split::Priority => u64::from(task.priority.ok_or_else(|| PlanError::NoPriority {
            strategy: strategy.name.clone(),
            task: task.name.clone(),
            id,
        })?),
        Split::Period => task.period.as_ns(),
        Split::Deadline => task.deadline.as_ns(),
        Split::Criticality => task.criticality as u64,
        Split::Importance => u64::from(u32::MAX - task.importance),
    })
}

fn resolve_level(level: &Level) -> PlanLevel {
    let order = match level.discipline {
        Discipline::Fifo => Order::Fifo,
        Discipline::Deadline | Discipline::Gel { .. } => Order::Deadline,
        Discipline::Laxity => Order::Laxity,
    };
    let (preemptive, late, importance_ties) = (level.preemptive, level.late, level.importance_ties);
    PlanLevel { order, preemptive, late, drops: false, demotes: false, importance_ties }
}

fn shift_ns(discipline: &Discipline, task: &Task) -> i64 {
    match discipline {
        Discipline::Gel { shift } => shift.get(&task.name).map_or(0, |shift| shift.as_ns()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builtin, Criticality, Span};

    fn levels(builtin: Builtin, tasks: Vec<Task>) -> Vec<u32> {
        let system = System::local(1, builtin, tasks);
        let plan = Plan::resolve(&system, NodeId(0), &builtin.strategy()).unwrap();
        plan.tasks.iter().map(|task| task.level).collect()
    }
    fn task(period_ms: u64) -> Task {
        Task::periodic("t", Span::from_ms(period_ms), Span::from_ms(1))
    }
    fn low(period_ms: u64) -> Task {
        Task { criticality: Criticality::Low, ..task(period_ms) }
    }

    #[test]
    fn named_strategies_make_the_levels_of_the_design() {
        assert_eq!(levels(Builtin::Rm, vec![task(20), task(10), task(20)]), [1, 0, 1]);
        assert_eq!(levels(Builtin::Edf, vec![task(20), task(10)]), [0, 0]);
        assert_eq!(levels(Builtin::Muf, vec![low(10), task(20)]), [1, 0]);
        assert_eq!(levels(Builtin::RmsMlf, vec![low(5), task(20), task(10), low(40)]), [2, 1, 0, 2]);
        let fp = |period, priority| Task { priority: Some(priority), ..task(period) };
        assert_eq!(levels(Builtin::Fp, vec![fp(10, 7), fp(20, 1)]), [1, 0]);
    }

    #[test]
    fn a_tasks_own_rule_for_late_jobs_goes_before_its_levels() {
        let task = |name: &str, late| Task { late, ..Task::periodic(name, Span::from_ms(10), Span::from_ms(1)) };
        let tasks = vec![task("a", None), task("b", Some(Late::Continue)), task("c", Some(Late::Demote))];
        let system = System::local(1, Builtin::Edf, tasks);
        let resolved = |late| {
            let mut strategy = Builtin::Edf.strategy();
            strategy.levels[0].late = late;
            let plan = Plan::resolve(&system, NodeId(0), &strategy).unwrap();
            let level = plan.levels[0];
            (plan.tasks.iter().map(|task| task.late).collect::<Vec<_>>(), level.late, level.drops, level.demotes)
        };
        let (drop, demote) = (Late::Drop, Late::Demote);
        assert_eq!(resolved(drop), (vec![drop, Late::Continue, demote], drop, true, true));
        assert_eq!(
            resolved(Late::Continue),
            (vec![Late::Continue, Late::Continue, demote], Late::Continue, false, true)
        );
        assert_eq!(resolved(demote), (vec![demote, Late::Continue, demote], demote, false, true));
    }

    #[test]
    fn tasks_that_do_not_fit_the_plan_are_named() {
        let system = System::local(1, Builtin::Fp, vec![task(10)]);
        let error = Plan::resolve(&system, NodeId(0), &Builtin::Fp.strategy()).unwrap_err();
        assert!(error.to_string().starts_with("task \"t\" has no priority"));
    }
}
