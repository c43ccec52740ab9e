//! The plans of a node, of which one is in force.

use takt_model::plan::PlanError;
use takt_model::{NodeId, Plan, PlanLevel, System, TaskId};

use crate::slot::Slot;

/// The plans of some tasks of a node, which have these slots.
#[derive(Clone, Debug)]
pub(crate) struct Plans {
    plans: Vec<Plan>,
    current: usize,
    tasks: Vec<SlotTask>,
}

/// The task of a slot, and its importance.
#[derive(Clone, Copy, Debug)]
struct SlotTask {
    task: TaskId,
    importance: u32,
}

impl Plans {
    /// Plans for these tasks, by slot. None is in force before [`Plans::adopt`].
    pub(crate) fn new(system: &System, plans: Vec<Plan>, tasks: impl Iterator<Item = TaskId>) -> Plans {
        let of = |task: TaskId| SlotTask { task, importance: system.tasks[task.index()].importance };
        Plans { plans, current: 0, tasks: tasks.map(of).collect() }
    }

    pub(crate) fn task(&self, slot: u32) -> Option<TaskId> {
        self.tasks.get(slot as usize).map(|of| of.task)
    }

    /// The levels of all of them.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &PlanLevel> {
        self.plans.iter().flat_map(|plan| &plan.levels)
    }

    /// Whether there is a plan of this number.
    pub(crate) fn has(&self, plan: usize) -> bool {
        plan < self.plans.len()
    }

    /// Exchanges all plans with those of another, which are of the same tasks. The one in force holds until
    /// [`Plans::adopt`].
    pub(crate) fn exchange(&mut self, other: &mut Plans) {
        std::mem::swap(&mut self.plans, &mut other.plans);
    }

    /// The number of the plan in force.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// Puts a plan in force and copies its rules into the slots. Returns the plan, or `None` if
    /// there is no such plan. Then nothing changes.
    pub(crate) fn adopt<'a>(&mut self, plan: usize, slots: impl Iterator<Item = &'a mut Slot>) -> Option<&Plan> {
        let adopted = self.plans.get(plan)?;
        self.current = plan;
        for (slot, of) in slots.zip(&self.tasks) {
            // They stand in file order.
            let placed = adopted.tasks.binary_search_by_key(&of.task, |placed| placed.task);
            let placed = placed.ok().and_then(|at| adopted.tasks.get(at));
            let level = placed.and_then(|placed| adopted.levels.get(placed.level as usize));
            if let (Some(placed), Some(level)) = (placed, level) {
                slot.adopt(placed, level, of.importance);
            }
        }
        Some(adopted)
    }
}

/// The plans of the node's strategy and of its modes, in order of time.
pub(crate) fn plans(system: &System, node: NodeId) -> Result<Vec<Plan>, PlanError> {
    let strategies = system.strategies_of(node).into_iter();
    strategies.map(|strategy| Plan::resolve(system, node, &system.strategy(strategy))).collect()
}
