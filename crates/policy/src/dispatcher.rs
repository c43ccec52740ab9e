//! A node's dispatcher: events in, decisions out.

use takt_model::plan::{Order, PlanError};
use takt_model::{CpuSet, Late, NodeId, NodeSpec, Plan, PlanLevel, Preemption, Span, StrategyRef, System, Task, Time};
use thiserror::Error;

use crate::cluster::Cluster;
use crate::rank::{Phase, Rank, ordered};

mod scope;

/// A job that is its task's next to run. Tasks are called by *slot*: their position among the node's
/// tasks, in file order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The task's slot.
    pub slot: u32,
    /// When it was released.
    pub release: Time,
    /// Its nominal arrival.
    pub arrival: Time,
    /// Its absolute deadline.
    pub deadline: Time,
}

/// An event that the caller reports to the dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A job may run. The slot must hold no other job: jobs of one task go one after the other.
    Ready(Job),
    /// The running job of a slot finished.
    Complete {
        /// The slot.
        slot: u32,
    },
    /// The deadline of the job in a slot has passed. Needed only where
    /// [`Dispatcher::wants_deadlines`].
    Deadline {
        /// The slot.
        slot: u32,
    },
    /// The node switches to another of its plans.
    Mode {
        /// Zero for the node's strategy, k for the node's k-th mode in order of time.
        plan: usize,
    },
}

/// An action that the caller must carry out, in this order.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Omit this job: its slot is empty now (`cancel`).
    Cancel {
        /// The slot.
        slot: u32,
    },
    /// Drop this late job: its slot is empty now, its CPU (if it had one) idle.
    Drop {
        /// The slot.
        slot: u32,
        /// The CPU on which it was running.
        cpu: Option<u32>,
    },
    /// Take the CPU from this job; it waits.
    Preempt {
        /// The slot.
        slot: u32,
        /// The CPU it loses.
        cpu: u32,
    },
    /// Give this job the CPU.
    Run {
        /// The slot.
        slot: u32,
        /// The CPU, idle by now.
        cpu: u32,
        /// Whether it ran before.
        resumed: bool,
        /// The CPU on which it last ran, if it is another one.
        from: Option<u32>,
    },
}

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
        "task \"{task}\" of node \"{node}\" is not bound to one CPU, which the dispatcher wants: \
         give it cpus = [k], or place the system first"
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
         give it one, 1 is the most important"
    )]
    NoServerPriority {
        /// The strategy.
        strategy: String,
        /// The component.
        component: String,
    },
    /// Something beside or in a component that has no definition on several CPUs.
    #[error("{part} cannot run on a node of several CPUs with components: {why}")]
    OnSeveralCpus {
        /// The part.
        part: String,
        /// What to do.
        why: &'static str,
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

/// The rules of a plan for one task.
#[derive(Clone, Copy, Debug)]
struct Rules {
    level: u32,
    order: Order,
    shift_ns: i64,
    preemptive: bool,
    late: Late,
    /// Zero where the level does not break ties by importance.
    importance: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Empty,
    Waiting,
    Running { cpu: u32 },
}

#[derive(Clone, Debug)]
struct Slot {
    rules: Rules,
    state: State,
    cluster: u32,
    cancellable: bool,
    demoted: bool,
    /// The job lost its CPU with its server, inside a section without preemption.
    in_section: bool,
    job: Job,
    /// The CPU on which the job last ran, `None` before its first time.
    last_cpu: Option<u32>,
    /// Since when it runs, if it does.
    since: Time,
    /// CPU time that the job has had before that.
    received: Span,
    wcet: Span,
    /// From which to which CPU time had nothing preempts the job; within the last, to its end.
    sections: Vec<(Span, Span)>,
}

impl Slot {
    /// CPU time had.
    fn had(&self, now: Time) -> Span {
        let stretch = match self.state {
            State::Running { .. } => now.saturating_since(self.since),
            _ => Span::ZERO,
        };
        self.received.saturating_add(stretch)
    }

    /// Whether nothing preempts it: it is within a section, past its start.
    fn is_kept(&self, now: Time) -> bool {
        let had = self.had(now);
        let last = self.sections.last().is_some_and(|(from, _)| *from < had);
        matches!(self.state, State::Running { .. })
            && (last || self.sections.iter().any(|(from, to)| *from < had && had < *to))
    }

    /// The next end of a section before the last, at or after `now`, if it runs on.
    fn section_end(&self, now: Time) -> Option<Time> {
        let State::Running { .. } = self.state else { return None };
        let (_, inner) = self.sections.split_last()?;
        let had = self.had(now);
        let (_, to) = inner.iter().find(|(_, to)| *to >= had)?;
        now.checked_add(to.saturating_sub(had))
    }

    /// Whether its deadline sends it below all levels. A started job of a level that is not
    /// preemptive keeps its level.
    fn is_demoted_late(&self) -> bool {
        let has_started = self.last_cpu.is_some();
        self.rules.late == Late::Demote && (self.demoted || self.rules.preemptive || !has_started)
    }

    /// WCET minus received CPU time, zero past it.
    fn remaining(&self, now: Time) -> Span {
        self.wcet.saturating_sub(self.had(now))
    }
}

/// All slots of a node, with what their plan says; the clusters' view of them.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    /// The CPUs of each slot.
    affinities: Vec<CpuSet>,
    level_count: u32,
    laxity: bool,
    /// Whether some job has sections that nothing preempts.
    sections: bool,
}

impl Slots {
    /// Whether ranks of running jobs change with time.
    #[inline]
    pub(crate) fn vary(&self) -> bool {
        self.laxity || self.sections
    }

    pub(crate) fn affinity(&self, slot: u32) -> &CpuSet {
        &self.affinities[slot as usize]
    }

    /// The CPU of `free` that a job takes: its last CPU, else the lowest.
    #[inline]
    pub(crate) fn preferred_cpu(&self, slot: u32, free: &CpuSet) -> Option<u32> {
        self.slots[slot as usize].last_cpu.filter(|cpu| free.contains(*cpu)).or_else(|| free.lowest())
    }

    /// The rank of the job in `slot` at `now`.
    // Always inlined: for a job that has just come little of it is left.
    #[inline(always)]
    pub(crate) fn rerank(&self, slot: u32, now: Time) -> Rank {
        let at = &self.slots[slot as usize];
        if self.sections && (at.in_section || at.is_kept(now)) {
            return Rank::kept(at.job.arrival.as_ns(), slot);
        }
        let rules = &at.rules;
        let level = rules.level + if at.demoted { self.level_count } else { 0 };
        let phase = match at.state {
            State::Running { .. } if !rules.preemptive => Phase::Running,
            _ => Phase::waiting(rules.preemptive, at.last_cpu.is_some()),
        };
        let deadline_ns = at.job.deadline.as_ns() as i64;
        let key = match rules.order {
            Order::Fifo => at.job.release.as_ns() as i64,
            Order::Deadline => deadline_ns.saturating_add(rules.shift_ns),
            Order::Laxity => deadline_ns.saturating_sub(at.remaining(now).as_ns() as i64),
        };
        Rank::new(level, phase, ordered(key), rules.importance, at.job.arrival.as_ns(), slot)
    }

    /// The job that runs with this rank lost its CPU at `now`; its rank as a waiting job.
    #[inline]
    pub(crate) fn stopped(&mut self, rank: Rank, now: Time) -> Rank {
        let at = &mut self.slots[rank.slot() as usize];
        if at.state != State::Waiting {
            at.received += now.saturating_since(at.since);
        }
        at.state = State::Waiting;
        rank.with_phase(Phase::waiting(at.rules.preemptive, true))
    }

    /// The job of `slot` got `cpu` at `now`; its rank as a running job, whether it ran before, and
    /// where, if elsewhere.
    #[inline]
    pub(crate) fn started(&mut self, slot: u32, rank: Rank, cpu: u32, now: Time) -> (Rank, bool, Option<u32>) {
        let at = &mut self.slots[slot as usize];
        let resumed = at.last_cpu.is_some();
        let from = at.last_cpu.filter(|last| *last != cpu);
        at.state = State::Running { cpu };
        at.in_section = false;
        at.since = now;
        at.last_cpu = Some(cpu);
        (if at.rules.preemptive { rank } else { rank.with_phase(Phase::Running) }, resumed, from)
    }

    /// Empties the slot of a noncritical job that has not started and cannot meet its deadline.
    #[inline]
    pub(crate) fn cancel_if_hopeless(&mut self, slot: u32, now: Time, decisions: &mut Vec<Decision>) -> bool {
        let hopeless = self.is_hopeless(slot, now);
        if hopeless {
            self.slots[slot as usize].state = State::Empty;
            decisions.push(Decision::Cancel { slot });
        }
        hopeless
    }

    /// Whether [`Slots::cancel_if_hopeless`] would.
    #[inline]
    pub(crate) fn is_hopeless(&self, slot: u32, now: Time) -> bool {
        let at = &self.slots[slot as usize];
        at.cancellable && at.last_cpu.is_none() && at.wcet > at.job.deadline.saturating_since(now)
    }
}

/// Decides for one node. See the crate's documentation for the protocol.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    slots: Slots,
    clusters: Vec<Cluster>,
    /// Clusters that something happened to since the last dispatch, where there are several.
    touched: Vec<u32>,
    plans: Vec<Plan>,
    importance: Vec<u32>,
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
        let spec = &system.nodes[node.index()];
        let plans = plans(system, node)?;
        let divided = spec.clusters();
        let mut slots = Vec::new();
        for (_, task) in system.tasks_of(node).filter(|(_, task)| task.component.is_none()) {
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
            slots.push((home, allowed, task));
        }
        Ok(Dispatcher::build(system, spec, plans, &divided, &slots))
    }

    /// A dispatcher for these tasks, each with the index of its part of the CPUs and its affinity there.
    fn build(
        system: &System,
        spec: &NodeSpec,
        plans: Vec<Plan>,
        divided: &[CpuSet],
        slots: &[(usize, CpuSet, &Task)],
    ) -> Self {
        let (cpu_sets, cluster_of) =
            connected(divided, &slots.iter().map(|(home, cpus, _)| (*home, *cpus)).collect::<Vec<_>>());
        let slot_count = slots.len();
        let clusters = cpu_sets
            .iter()
            .enumerate()
            .map(|(cluster, cpus)| {
                let members = || slots.iter().zip(&cluster_of).filter(|(_, of)| **of == cluster);
                let restricted = members().any(|((_, allowed, _), _)| allowed != cpus);
                Cluster::new(*cpus, if members().next().is_some() { slot_count } else { 0 }, restricted)
            })
            .collect::<Vec<_>>();
        let importance = slots.iter().map(|(_, _, task)| task.importance).collect();
        let empty = |((_, _, task), cluster): (&(usize, CpuSet, &Task), &usize)| Slot {
            rules: Rules {
                level: 0,
                order: Order::Fifo,
                shift_ns: 0,
                preemptive: true,
                late: Late::Continue,
                importance: 0,
            },
            state: State::Empty,
            job: Job { slot: 0, release: Time::ZERO, arrival: Time::ZERO, deadline: Time::ZERO },
            cluster: *cluster as u32,
            cancellable: system.may_cancel(task),
            demoted: false,
            in_section: false,
            last_cpu: None,
            since: Time::ZERO,
            received: Span::ZERO,
            wcet: task.wcet,
            sections: task.sections(),
        };
        let mut dispatcher = Dispatcher {
            slots: Slots {
                slots: slots.iter().zip(&cluster_of).map(empty).collect(),
                affinities: slots.iter().map(|(_, affinity, _)| *affinity).collect(),
                level_count: 0,
                laxity: false,
                sections: slots.iter().any(|(_, _, task)| task.preemption != Preemption::Anywhere),
            },
            touched: Vec::with_capacity(clusters.len()),
            clusters,
            plans,
            importance,
            quantum: spec.laxity_quantum,
            cpus: spec.cpus,
        };
        dispatcher.adopt(0);
        dispatcher
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
        !self.plans.iter().flat_map(|plan| &plan.levels).all(PlanLevel::continues)
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
            self.keep_laxity_quantum(now);
        }
        if self.slots.sections {
            self.keep_section_ends(now);
        }
        if let [only] = self.clusters.as_mut_slice() {
            only.dispatch_touched(now, &mut self.slots, decisions);
        }
        while let Some(cluster) = self.touched.pop() {
            self.clusters[cluster as usize].dispatch_touched(now, &mut self.slots, decisions);
        }
    }

    /// At each point of the laxity quantum's grid every cluster decides anew.
    fn keep_laxity_quantum(&mut self, now: Time) {
        if self.quantum.is_some_and(|quantum| now.as_ns().is_multiple_of(quantum.as_ns().max(1))) {
            for cluster in 0..self.clusters.len() {
                self.touch(cluster as u32);
            }
        }
    }

    /// Lets the cluster of a running job between two sections decide anew.
    #[inline(never)]
    fn keep_section_ends(&mut self, now: Time) {
        for slot in 0..self.slots.slots.len() {
            let at = &self.slots.slots[slot];
            if at.section_end(now) == Some(now) {
                self.touch(at.cluster);
            }
        }
    }

    /// The next end of a section after `now` at which a waiting job may take a CPU.
    fn next_section_end(&self, now: Time) -> Option<Time> {
        let after = now.checked_add(Span::from_ns(1))?;
        let waited = |at: &&Slot| self.clusters[at.cluster as usize].is_contended();
        // From 1 ns later on; a job that runs on has had as much more.
        let end = |at: &Slot| at.section_end(after);
        self.slots.slots.iter().filter(waited).filter_map(end).min()
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
        let section = self.next_section_end(now);
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
        at.job = job;
        at.last_cpu = None;
        at.in_section = false;
        at.received = Span::ZERO;
        let late = job.deadline <= now;
        if late && at.rules.late == Late::Drop {
            let cluster = at.cluster;
            decisions.push(Decision::Drop { slot: job.slot, cpu: None });
            self.touch(cluster);
            return;
        }
        at.demoted = late && at.rules.late == Late::Demote;
        at.state = State::Waiting;
        let cluster = at.cluster;
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
        let Some(at) = self.slots.slots.get_mut(slot as usize) else { return };
        if at.state == State::Empty || at.demoted {
            return;
        }
        match at.rules.late {
            Late::Continue => {}
            Late::Drop => self.drop_job(slot, decisions),
            Late::Demote if !at.is_demoted_late() => {}
            Late::Demote => {
                at.demoted = true;
                let (state, cluster) = (at.state, at.cluster);
                let new = self.slots.rerank(slot, now);
                let home = &mut self.clusters[cluster as usize];
                match state {
                    State::Running { cpu, .. } => home.rerank_running(new, cpu),
                    _ => {
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
        let at = &mut self.slots.slots[slot as usize];
        let home = &mut self.clusters[at.cluster as usize];
        let cpu = match at.state {
            State::Running { cpu, .. } => {
                home.release_cpu(cpu);
                Some(cpu)
            }
            _ => {
                home.dequeue(slot);
                None
            }
        };
        at.state = State::Empty;
        let cluster = at.cluster;
        decisions.push(Decision::Drop { slot, cpu });
        self.touch(cluster);
    }

    fn on_mode(&mut self, plan: usize, now: Time, decisions: &mut Vec<Decision>) {
        if plan >= self.plans.len() {
            debug_assert!(false, "no plan {plan}");
            return;
        }
        self.adopt(plan);
        for slot in 0..self.slot_count() as u32 {
            let at = &mut self.slots.slots[slot as usize];
            let late = at.state != State::Empty && at.job.deadline <= now;
            at.demoted = late && at.is_demoted_late();
            if late && at.rules.late == Late::Drop {
                self.drop_job(slot, decisions);
            }
        }
        for cluster in 0..self.clusters.len() {
            self.clusters[cluster].rebuild(now, &mut self.slots);
            self.touch(cluster as u32);
        }
    }

    /// Copies what a plan says into the slots.
    fn adopt(&mut self, plan: usize) {
        let plan = &self.plans[plan];
        self.slots.level_count = plan.levels.len() as u32;
        self.slots.laxity = plan.levels.iter().any(|level| level.order == Order::Laxity);
        for ((slot, task), importance) in self.slots.slots.iter_mut().zip(&plan.tasks).zip(&self.importance) {
            let level = plan.levels[task.level as usize];
            slot.rules = Rules {
                level: task.level,
                order: level.order,
                shift_ns: task.shift_ns,
                preemptive: level.preemptive,
                late: task.late,
                importance: if level.importance_ties { *importance } else { 0 },
            };
        }
    }
}

/// The plans of the node's [`strategies`].
pub(crate) fn plans(system: &System, node: NodeId) -> Result<Vec<Plan>, PlanError> {
    let strategies = strategies(system, node);
    strategies.into_iter().map(|strategy| Plan::resolve(system, node, &system.strategy(strategy))).collect()
}

/// The node's strategy, then those of its modes in order of time.
pub(crate) fn strategies(system: &System, node: NodeId) -> Vec<StrategyRef> {
    let mut modes: Vec<_> = system.modes.iter().filter(|mode| mode.node == node).collect();
    modes.sort_by_key(|mode| mode.at);
    std::iter::once(system.nodes[node.index()].strategy).chain(modes.iter().map(|mode| mode.strategy)).collect()
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
