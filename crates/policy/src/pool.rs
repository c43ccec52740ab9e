//! The jobs of a scope that runs on several CPUs at once. The caller chooses which of them run, and where.

use takt_model::plan::Order;
use takt_model::{CpuSet, Late, NodeId, Plan, PlanLevel, System, Task, TaskId, Time};

use crate::cpu_slots::{Slots, State};
use crate::decision::Decision;
use crate::plans::Plans;
use crate::rank::Rank;
use crate::slot::Job;

/// Jobs by slot, which is the position of the task among those of the scope.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    slots: Slots,
    /// How many jobs each slot has had.
    numbers: Vec<u64>,
}

impl Pool {
    /// Empty slots for `tasks` under `plans`, which list these tasks in this order.
    pub(crate) fn new(system: &System, node: NodeId, tasks: &[TaskId], plans: Vec<Plan>) -> Self {
        let cpus = CpuSet::first(system.nodes[node.index()].cpus);
        let of: Vec<(u32, CpuSet, &Task)> = tasks.iter().map(|id| (0, cpus, &system.tasks[id.index()])).collect();
        let plans = Plans::new(system, plans, tasks.iter().copied());
        Pool { slots: Slots::new(system, plans, &of), numbers: vec![0; tasks.len()] }
    }

    /// See [`crate::Dispatcher::wants_deadlines`].
    pub(crate) fn wants_deadlines(&self) -> bool {
        !self.slots.plans.levels().all(PlanLevel::continues)
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.slots.len()
    }

    /// How many jobs a slot has had.
    pub(crate) fn number(&self, slot: u32) -> u64 {
        self.numbers[slot as usize]
    }

    /// A job comes. A late one may be dropped at once.
    pub(crate) fn ready(&mut self, now: Time, job: Job, decisions: &mut Vec<Decision>) {
        self.numbers[job.slot as usize] += 1;
        if !self.slots.slots[job.slot as usize].accept(&job, now) {
            decisions.push(Decision::Drop { slot: job.slot, cpu: None });
        }
    }

    /// The running job of a slot is done. Returns its CPU.
    pub(crate) fn complete(&mut self, slot: u32) -> Option<u32> {
        let cpu = self.cpu(slot);
        self.slots.slots[slot as usize].state = State::Empty;
        cpu
    }

    /// See [`Slots::acts_on_deadline`].
    pub(crate) fn acts_on_deadline(&self, slot: u32) -> bool {
        self.slots.acts_on_deadline(slot)
    }

    /// The deadline of a slot's job has passed. Returns the CPU that the job leaves.
    pub(crate) fn deadline(&mut self, slot: u32, decisions: &mut Vec<Decision>) -> Option<u32> {
        if self.slots.expire(slot) == Late::Drop { self.slots.drop_job(slot, decisions) } else { None }
    }

    /// See [`Slots::switch`].
    pub(crate) fn switch(&mut self, plan: usize, now: Time, decisions: &mut Vec<Decision>) -> bool {
        self.slots.switch(plan, now, decisions)
    }

    pub(crate) fn rank(&self, slot: u32, now: Time) -> Option<Rank> {
        (self.slots.slots[slot as usize].state != State::Empty).then(|| self.slots.rerank(slot, now))
    }

    /// The CPU on which a slot's job runs.
    pub(crate) fn cpu(&self, slot: u32) -> Option<u32> {
        self.slots.cpu(slot)
    }

    /// The CPU on which a slot's job has run last.
    pub(crate) fn last_cpu(&self, slot: u32) -> Option<u32> {
        self.slots.slots[slot as usize].last_cpu
    }

    /// See [`Slots::cancel_if_hopeless`].
    pub(crate) fn cancel_if_hopeless(&mut self, slot: u32, now: Time, decisions: &mut Vec<Decision>) -> bool {
        self.slots.cancel_if_hopeless(slot, now, decisions)
    }

    /// A running job loses its CPU. A section without preemption goes on later.
    pub(crate) fn stop(&mut self, slot: u32, now: Time) {
        let rank = self.slots.rerank(slot, now);
        self.slots.withdrawn(rank, now);
    }

    /// A waiting job gets a CPU. Returns whether it ran before, and where, if elsewhere.
    pub(crate) fn start(&mut self, slot: u32, cpu: u32, now: Time) -> (bool, Option<u32>) {
        let rank = self.slots.rerank(slot, now);
        let (_, resumed, from) = self.slots.started(slot, rank, cpu, now);
        (resumed, from)
    }

    /// When a running job may have to yield, though nothing happens: at the end of a section.
    pub(crate) fn next_section(&self, now: Time) -> Option<Time> {
        self.slots.next_section(now, |_| true)
    }

    pub(crate) fn goes_by_laxity(&self) -> bool {
        self.slots.laxity
    }

    /// Whether some level of some plan goes by laxity.
    pub(crate) fn may_go_by_laxity(&self) -> bool {
        self.slots.plans.levels().any(|level| level.order == Order::Laxity)
    }

    pub(crate) fn has_sections(&self) -> bool {
        self.slots.sections
    }

    /// Whether ranks change with time, or as jobs get and lose CPUs.
    pub(crate) fn ranks_vary(&self) -> bool {
        let varies = |level: &PlanLevel| !level.preemptive || level.order == Order::Laxity;
        self.slots.sections || self.slots.plans.levels().any(varies)
    }
}
