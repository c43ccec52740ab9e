//! A dispatcher for the tasks of one scope. The scope has its CPU only while its server gives it.

use takt_model::{CpuSet, NodeId, Plan, System, TaskId, Time};

use super::Dispatcher;
use crate::cluster::Cluster;
use crate::cpu_slots::{Slots, State};
use crate::decision::Decision;
use crate::rank::Rank;

impl Dispatcher {
    /// A dispatcher for `tasks` on CPU 0 under `plans`, which list these tasks in this order.
    pub(crate) fn of_scope(system: &System, node: NodeId, tasks: &[TaskId], plans: Vec<Plan>) -> Self {
        let cpu = CpuSet::first(1);
        let slots: Vec<_> = tasks.iter().map(|id| (0, cpu, *id, &system.tasks[id.index()])).collect();
        Dispatcher::build(system, &system.nodes[node.index()], plans, &[cpu], &slots)
    }

    /// The rank of the job that would run if the scope had the CPU.
    pub(crate) fn head(&self, now: Time) -> Option<Rank> {
        self.clusters.iter().filter_map(|cluster| cluster.head(now, &self.slots)).min()
    }

    /// Takes the CPU from the scope: its running job waits.
    pub(crate) fn withdraw(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        for cluster in &mut self.clusters {
            cluster.withdraw(now, &mut self.slots, decisions);
        }
    }

    /// Decides who runs from `now` on, the scope having the CPU.
    pub(crate) fn dispatch_in_scope(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        for cluster in 0..self.clusters.len() {
            self.touch(cluster as u32);
        }
        self.dispatch(now, decisions);
    }

    /// When a running job may have to yield, though nothing happens: at the end of a section.
    pub(crate) fn next_section(&self, now: Time) -> Option<Time> {
        self.slots.next_section(now, |_| true)
    }

    /// See [`Slots::acts_on_deadline`].
    pub(crate) fn acts_on_deadline(&self, slot: u32) -> bool {
        self.slots.acts_on_deadline(slot)
    }

    pub(crate) fn holds_job(&self, slot: u32) -> bool {
        self.slots.slots[slot as usize].state != State::Empty
    }

    /// Runs the job of `slot` instead of any other, the scope having the CPU.
    pub(crate) fn run_only(&mut self, slot: u32, now: Time, decisions: &mut Vec<Decision>) {
        let at = &self.slots.slots[slot as usize];
        if at.state == State::Waiting {
            let cluster = &mut self.clusters[at.cluster as usize];
            cluster.dequeue(slot);
            cluster.withdraw(now, &mut self.slots, decisions);
            cluster.run(self.slots.rerank(slot, now), now, &mut self.slots, decisions);
        }
    }

    /// Whether the job of `slot` has not started and cannot meet its deadline.
    pub(crate) fn is_hopeless(&self, slot: u32, now: Time) -> bool {
        self.slots.is_hopeless(slot, now)
    }

    /// Omits the waiting job of `slot`, which is hopeless.
    pub(crate) fn omit(&mut self, slot: u32, now: Time, decisions: &mut Vec<Decision>) {
        let cluster = self.slots.slots[slot as usize].cluster;
        self.clusters[cluster as usize].dequeue(slot);
        self.slots.cancel_if_hopeless(slot, now, decisions);
    }

    /// Takes the job of `slot` away, wherever it is.
    pub(crate) fn remove(&mut self, slot: u32, decisions: &mut Vec<Decision>) {
        if self.holds_job(slot) {
            self.drop_job(slot, decisions);
        }
    }

    /// Takes the plans of a dispatcher for the same tasks among other servers. Jobs stay.
    pub(crate) fn take_plans(&mut self, other: &mut Dispatcher, now: Time, decisions: &mut Vec<Decision>) {
        self.slots.plans.exchange(&mut other.slots.plans);
        self.on_mode(self.slots.plans.current(), now, decisions);
    }

    /// Whether ranks of running jobs change with time.
    pub(crate) fn ranks_vary(&self) -> bool {
        self.slots.vary()
    }

    pub(crate) fn has_sections(&self) -> bool {
        self.slots.sections
    }

    pub(crate) fn goes_by_laxity(&self) -> bool {
        self.slots.laxity
    }
}

impl Cluster {
    /// See [`Dispatcher::head`].
    fn head(&self, now: Time, slots: &Slots) -> Option<Rank> {
        let running = self.running().map(|(rank, _)| if slots.vary() { slots.rerank(rank.slot(), now) } else { rank });
        self.waiting().chain(running).min()
    }

    /// See [`Dispatcher::withdraw`].
    fn withdraw(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        loop {
            let first = self.running().next();
            let Some((rank, cpu)) = first else { break };
            // Its laxity stays as it is now.
            let rank = if slots.vary() { slots.rerank(rank.slot(), now) } else { rank };
            let rank = slots.withdrawn(rank, now);
            self.stop(rank, cpu);
            decisions.push(Decision::Preempt { slot: rank.slot(), cpu });
        }
    }
}
