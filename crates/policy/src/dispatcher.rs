//! A node's dispatcher: events in, decisions out.

use takt_model::{CpuSet, Late, NodeId, NodeSpec, Plan, PlanLevel, Span, System, Task, TaskId, Time};

use crate::cluster::Cluster;
use crate::cpu_slots::{Slots, State};
use crate::decision::{Decision, Event};
use crate::error::PolicyError;
use crate::plans::Plans;
use crate::slot::Job;

mod scope;

/// Decides for one node. See the crate's documentation for the protocol.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    slots: Slots,
    clusters: Vec<Cluster>,
    /// Clusters to which something happened since the last dispatch. Unused if there is only one cluster.
    touched: Vec<u32>,
    quantum: Option<Span>,
    cpus: u32,
}

impl Dispatcher {
    /// A dispatcher for the tasks of `node` that stand in no component, under the node's strategy and
    /// modes.
    ///
    /// # Errors
    /// A strategy that does not fit the tasks, or a task without the placement that the node needs.
    pub fn new(system: &System, node: NodeId) -> Result<Self, PolicyError> {
        let tasks: Vec<TaskId> = system.tasks_of(node).map(|(id, _)| id).collect();
        Dispatcher::of_tasks(system, node, &tasks)
    }

    /// The same for a caller that knows the tasks of `node` already: all of them, in file order. A system of many
    /// nodes is searched only once then.
    ///
    /// # Errors
    /// As [`Dispatcher::new`].
    pub fn of_tasks(system: &System, node: NodeId, tasks: &[TaskId]) -> Result<Self, PolicyError> {
        let spec = &system.nodes[node.index()];
        let own =
            || tasks.iter().map(|id| (*id, &system.tasks[id.index()])).filter(|(_, task)| task.component.is_none());
        let plans = system.strategies_of(node).into_iter().map(|of| Plan::of_tasks(own(), &system.strategy(of)));
        let plans = plans.collect::<Result<_, _>>()?;
        let divided = spec.clusters();
        let mut slots = Vec::new();
        for (id, task) in own() {
            let allowed = task.cpus.unwrap_or(CpuSet::first(spec.cpus)).intersection(&CpuSet::first(spec.cpus));
            let home = divided.iter().position(|cluster| allowed.is_subset(cluster) && !allowed.is_empty());
            let names = || (task.name.clone(), spec.name.clone());
            let Some(home) = home else {
                let (task_name, node) = names();
                return Err(match task.cpus {
                    None => PolicyError::NotPlaced { task: task_name, node },
                    Some(_) => PolicyError::AcrossClusters { task: task_name, node },
                });
            };
            slots.push((home, allowed, id, task));
        }
        Ok(Dispatcher::build(system, spec, plans, &divided, &slots))
    }

    /// A dispatcher for these tasks, each with the index of its part of the CPUs and its affinity there.
    fn build(
        system: &System,
        spec: &NodeSpec,
        plans: Vec<Plan>,
        divided: &[CpuSet],
        tasks: &[(usize, CpuSet, TaskId, &Task)],
    ) -> Self {
        let homes: Vec<_> = tasks.iter().map(|(home, cpus, ..)| (*home, *cpus)).collect();
        let (cpu_sets, cluster_of) = connected(divided, &homes);
        let slots: Vec<_> =
            tasks.iter().zip(cluster_of).map(|((_, cpus, _, task), of)| (of as u32, *cpus, *task)).collect();
        let clusters = cpu_sets.iter().zip(0..).map(|(cpus, cluster)| {
            let members = || slots.iter().filter(|(of, ..)| *of == cluster);
            let restricted = members().any(|(_, allowed, _)| allowed != cpus);
            Cluster::new(*cpus, if members().next().is_some() { slots.len() } else { 0 }, restricted)
        });
        let clusters: Vec<_> = clusters.collect();
        let plans = Plans::new(system, plans, tasks.iter().map(|(_, _, id, _)| *id));
        Dispatcher {
            slots: Slots::new(system, plans, &slots),
            touched: Vec::with_capacity(clusters.len()),
            clusters,
            quantum: spec.laxity_quantum,
            cpus: spec.cpus,
        }
    }

    /// How many tasks it schedules.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.slots.len()
    }

    /// The most decisions that an event and a dispatch make where affinities do not restrict within a cluster:
    /// with that capacity a caller's buffer does not grow. (Where they do, a job may lose and regain a CPU
    /// several times in one dispatch.)
    #[must_use]
    pub fn decisions_max(&self) -> usize {
        2 * self.slot_count() + 2 * self.cpus as usize
    }

    /// Whether it must be told when a deadline passes: some plan drops or demotes late jobs.
    #[must_use]
    pub fn wants_deadlines(&self) -> bool {
        !self.slots.plans.levels().all(PlanLevel::continues)
    }

    /// Takes note of an event. Appends immediate decisions (drops) to `decisions`; the others come
    /// from [`Dispatcher::dispatch`]. Ignores events that contradict its state (and aborts a debug
    /// build).
    // Always inlined: where the event's kind is known, its own code alone is left.
    #[inline(always)]
    pub fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        match *event {
            Event::Ready(job) => self.on_ready(now, job, decisions),
            Event::Complete { slot } => self.on_complete(slot),
            Event::Deadline { slot } => self.on_deadline(slot, now, decisions),
            Event::Mode { plan } => self.on_mode(plan, now, decisions),
        }
    }

    /// Decides who runs from `now` on, after all events of the instant.
    // Always inlined: it is hardly more than the call of the touched cluster.
    #[inline(always)]
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        if self.slots.laxity {
            self.touch_at_laxity_quantum(now);
        }
        if self.slots.sections {
            self.touch_at_section_ends(now);
        }
        if let [only] = self.clusters.as_mut_slice() {
            only.dispatch_touched(now, &mut self.slots, decisions);
        }
        while let Some(cluster) = self.touched.pop() {
            self.clusters[cluster as usize].dispatch_touched(now, &mut self.slots, decisions);
        }
    }

    /// Lets every cluster decide anew at the multiples of the laxity quantum.
    fn touch_at_laxity_quantum(&mut self, now: Time) {
        if self.quantum.is_some_and(|quantum| now.as_ns().is_multiple_of(quantum.as_ns().max(1))) {
            for cluster in 0..self.clusters.len() {
                self.touch(cluster as u32);
            }
        }
    }

    /// Lets the cluster of a running job between two sections decide anew.
    #[inline(never)]
    fn touch_at_section_ends(&mut self, now: Time) {
        for slot in 0..self.slots.slots.len() {
            let at = &self.slots.slots[slot];
            if at.section_end(now) == Some(now) {
                self.touch(at.cluster);
            }
        }
    }

    /// The next instant at which it must dispatch without an event. While jobs compete by laxity,
    /// this is the next point of the laxity quantum's grid after `now`. While jobs wait, it may be
    /// the end of a running job's section.
    #[inline]
    #[must_use]
    pub fn next_wakeup(&self, now: Time) -> Option<Time> {
        let quantum = self.next_comparison(now);
        if !self.slots.sections {
            return quantum;
        }
        let section = self.slots.next_section(now, |at| self.clusters[at.cluster as usize].is_contended());
        quantum.into_iter().chain(section).min()
    }

    #[inline]
    fn next_comparison(&self, now: Time) -> Option<Time> {
        let quantum = self.quantum.filter(|_| self.slots.laxity)?.as_ns().max(1);
        let contended = self.clusters.iter().any(Cluster::is_contended);
        let next = (now.as_ns() / quantum).checked_add(1)?.checked_mul(quantum)?;
        contended.then_some(Time::from_ns(next))
    }

    #[inline]
    fn touch(&mut self, cluster: u32) {
        let several = self.clusters.len() > 1;
        let home = &mut self.clusters[cluster as usize];
        if several && !home.touched {
            self.touched.push(cluster);
        }
        home.touched = true;
    }

    #[inline(always)]
    fn on_ready(&mut self, now: Time, job: Job, decisions: &mut Vec<Decision>) {
        let Some(at) = self.slots.slots.get_mut(job.slot as usize) else {
            debug_assert!(false, "no slot {}", job.slot);
            return;
        };
        if at.state != State::Empty {
            debug_assert!(false, "slot {} already holds a job", job.slot);
            return;
        }
        let (accepted, cluster) = (at.accept(&job, now), at.cluster);
        if !accepted {
            decisions.push(Decision::Drop { slot: job.slot, cpu: None });
            self.touch(cluster);
            return;
        }
        let rank = self.slots.rerank(job.slot, now);
        self.clusters[cluster as usize].enqueue(rank);
        self.touch(cluster);
    }

    #[inline]
    fn on_complete(&mut self, slot: u32) {
        let Some(at) = self.slots.slots.get_mut(slot as usize) else {
            debug_assert!(false, "no slot {slot}");
            return;
        };
        let State::Running { cpu, .. } = at.state else {
            debug_assert!(false, "slot {slot} completes without running");
            return;
        };
        at.state = State::Empty;
        let cluster = at.cluster;
        self.clusters[cluster as usize].release_cpu(cpu);
        self.touch(cluster);
    }

    fn on_deadline(&mut self, slot: u32, now: Time, decisions: &mut Vec<Decision>) {
        match self.slots.expire(slot) {
            Late::Continue => {}
            Late::Drop => self.drop_job(slot, decisions),
            Late::Demote => {
                let (new, cluster) = (self.slots.rerank(slot, now), self.slots.slots[slot as usize].cluster);
                let home = &mut self.clusters[cluster as usize];
                match self.slots.cpu(slot) {
                    Some(cpu) => home.rerank_running(new, cpu),
                    None => {
                        home.dequeue(slot);
                        home.enqueue(new);
                    }
                }
                self.touch(cluster);
            }
        }
    }

    /// Empties a slot that holds a job, wherever the job is.
    fn drop_job(&mut self, slot: u32, decisions: &mut Vec<Decision>) {
        let cpu = self.slots.drop_job(slot, decisions);
        self.leave(slot, cpu);
    }

    /// Takes a dropped job off its CPU, or out of its queue.
    fn leave(&mut self, slot: u32, cpu: Option<u32>) {
        let cluster = self.slots.slots[slot as usize].cluster;
        let home = &mut self.clusters[cluster as usize];
        match cpu {
            Some(cpu) => home.release_cpu(cpu),
            None => home.dequeue(slot),
        }
        self.touch(cluster);
    }

    fn on_mode(&mut self, plan: usize, now: Time, decisions: &mut Vec<Decision>) {
        let from = decisions.len();
        if !self.slots.switch(plan, now, decisions) {
            return;
        }
        for decision in &decisions[from..] {
            if let Decision::Drop { slot, cpu } = *decision {
                self.leave(slot, cpu);
            }
        }
        for cluster in 0..self.clusters.len() {
            self.clusters[cluster].rebuild(now, &mut self.slots);
            self.touch(cluster as u32);
        }
    }
}

/// Divides clusters further where affinities leave groups of CPUs with no task in common, which
/// changes no decision. Returns the CPU sets and each task's index among them.
fn connected(divided: &[CpuSet], tasks: &[(usize, CpuSet)]) -> (Vec<CpuSet>, Vec<usize>) {
    let mut sets: Vec<CpuSet> = Vec::new();
    for (home, cpus) in divided.iter().enumerate() {
        let mut groups: Vec<CpuSet> = Vec::new();
        for (_, allowed) in tasks.iter().filter(|(of, _)| *of == home) {
            let (touching, apart): (Vec<CpuSet>, Vec<CpuSet>) =
                groups.into_iter().partition(|group| !group.intersection(allowed).is_empty());
            groups = apart;
            groups.push(touching.iter().fold(*allowed, |all, group| all.union(group)));
        }
        groups.sort_by_key(CpuSet::lowest);
        debug_assert!(groups.iter().all(|group| group.is_subset(cpus)));
        sets.extend(groups);
    }
    let cluster_of =
        tasks.iter().map(|(_, allowed)| sets.iter().position(|set| allowed.is_subset(set)).unwrap_or(0)).collect();
    (sets, cluster_of)
}
