//! The slots of a node's tasks, where jobs run on the CPUs of clusters.

use takt_model::plan::Order;
use takt_model::{CpuSet, Late, Preemption, Span, System, Task, Time};

use crate::decision::Decision;
use crate::plans::Plans;
use crate::rank::{Phase, Rank};
use crate::slot::{Job, Slot};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Empty,
    Waiting,
    Running { cpu: u32 },
}

/// A slot whose job runs on one of several CPUs, and resumes after preemptions. Two cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct CpuSlot {
    /// The job and its rules.
    pub(crate) of: Slot,
    pub(crate) state: State,
    pub(crate) cluster: u32,
    /// The job lost its CPU with its server, inside a section without preemption.
    pub(crate) in_section: bool,
    /// The CPU on which the job last ran, `None` before its first time.
    pub(crate) last_cpu: Option<u32>,
    /// Since when it runs, if it does.
    since: Time,
    /// CPU time that the job received before `since`.
    received: Span,
    /// Sections in which nothing preempts the job, from one received CPU time to another. The last one reaches to the
    /// job's end.
    sections: Vec<(Span, Span)>,
}

const _: () = assert!(size_of::<CpuSlot>() == 128);

impl CpuSlot {
    /// The empty slot of a task in this cluster.
    fn new(system: &System, task: &Task, cluster: u32) -> CpuSlot {
        CpuSlot {
            of: Slot::of_task(system, task),
            state: State::Empty,
            cluster,
            in_section: false,
            last_cpu: None,
            since: Time::ZERO,
            received: Span::ZERO,
            sections: task.sections(),
        }
    }

    /// Takes a job that is ready at `now`. Returns false if the job is dropped at once.
    #[inline(always)]
    pub(crate) fn accept(&mut self, job: &Job, now: Time) -> bool {
        (self.last_cpu, self.in_section, self.received) = (None, false, Span::ZERO);
        let accepted = self.of.accept(job, now);
        if accepted {
            self.state = State::Waiting;
        }
        accepted
    }

    /// Whether its job has had a CPU.
    pub(crate) fn has_started(&self) -> bool {
        self.last_cpu.is_some()
    }

    /// CPU time that the job has received until `now`.
    fn executed(&self, now: Time) -> Span {
        let stretch = match self.state {
            State::Running { .. } => now.saturating_since(self.since),
            _ => Span::ZERO,
        };
        self.received.saturating_add(stretch)
    }

    /// Whether nothing preempts it: it is within a section, past its start.
    fn in_nonpreemptive_section(&self, now: Time) -> bool {
        let executed = self.executed(now);
        let last = self.sections.last().is_some_and(|(from, _)| *from < executed);
        matches!(self.state, State::Running { .. })
            && (last || self.sections.iter().any(|(from, to)| *from < executed && executed < *to))
    }

    /// The next end of a section before the last, at or after `now`, if it runs on.
    pub(crate) fn section_end(&self, now: Time) -> Option<Time> {
        let State::Running { .. } = self.state else { return None };
        let (_, inner) = self.sections.split_last()?;
        let executed = self.executed(now);
        let (_, to) = inner.iter().find(|(_, to)| *to >= executed)?;
        now.checked_add(to.saturating_sub(executed))
    }

    /// WCET minus received CPU time, zero past it.
    fn remaining(&self, now: Time) -> Span {
        self.of.wcet.saturating_sub(self.executed(now))
    }
}

/// All slots of a node under its plans, as its clusters use them.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(crate) slots: Vec<CpuSlot>,
    affinities: Vec<CpuSet>,
    pub(crate) plans: Plans,
    level_count: u32,
    pub(crate) laxity: bool,
    /// Whether some job has sections that nothing preempts.
    pub(crate) sections: bool,
}

impl Slots {
    /// Empty slots for these tasks, each with its cluster and its affinity there.
    pub(crate) fn new(system: &System, plans: Plans, tasks: &[(u32, CpuSet, &Task)]) -> Slots {
        let empty = |(cluster, _, task): &(u32, CpuSet, &Task)| CpuSlot::new(system, task, *cluster);
        let mut slots = Slots {
            slots: tasks.iter().map(empty).collect(),
            affinities: tasks.iter().map(|(_, affinity, _)| *affinity).collect(),
            plans,
            level_count: 0,
            laxity: false,
            sections: tasks.iter().any(|(_, _, task)| task.preemption != Preemption::Anywhere),
        };
        slots.adopt(0);
        slots
    }

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
        if self.sections && (at.in_section || at.in_nonpreemptive_section(now)) {
            return Rank::kept(at.of.arrival.as_ns(), slot);
        }
        let below = if at.of.demoted { self.level_count } else { 0 };
        let phase = match at.state {
            State::Running { .. } if !at.of.preemptive => Phase::Running,
            _ => Phase::waiting(at.of.preemptive, at.has_started()),
        };
        at.of.rank(below, phase, at.of.key(|| at.remaining(now)), slot)
    }

    /// The job that runs with this rank lost its CPU at `now`; its rank as a waiting job.
    #[inline]
    pub(crate) fn stopped(&mut self, rank: Rank, now: Time) -> Rank {
        let at = &mut self.slots[rank.slot() as usize];
        if at.state != State::Waiting {
            at.received += now.saturating_since(at.since);
        }
        at.state = State::Waiting;
        rank.with_phase(Phase::waiting(at.of.preemptive, true))
    }

    /// The running job loses its CPU with its server. A section without preemption goes on later.
    pub(crate) fn withdrawn(&mut self, rank: Rank, now: Time) -> Rank {
        let in_section = self.sections && self.slots[rank.slot() as usize].in_nonpreemptive_section(now);
        let stopped = self.stopped(rank, now);
        self.slots[rank.slot() as usize].in_section = in_section;
        if in_section { self.rerank(rank.slot(), now) } else { stopped }
    }

    /// The job of `slot` got `cpu` at `now`; its rank as a running job, whether it ran before, and
    /// where, if elsewhere.
    #[inline]
    pub(crate) fn started(&mut self, slot: u32, rank: Rank, cpu: u32, now: Time) -> (Rank, bool, Option<u32>) {
        let at = &mut self.slots[slot as usize];
        let resumed = at.has_started();
        let from = at.last_cpu.filter(|last| *last != cpu);
        at.state = State::Running { cpu };
        at.in_section = false;
        at.since = now;
        at.last_cpu = Some(cpu);
        (if at.of.preemptive { rank } else { rank.with_phase(Phase::Running) }, resumed, from)
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
        !at.has_started() && at.of.is_hopeless(now)
    }

    /// The CPU on which a slot's job runs.
    pub(crate) fn cpu(&self, slot: u32) -> Option<u32> {
        match self.slots[slot as usize].state {
            State::Running { cpu } => Some(cpu),
            State::Empty | State::Waiting => None,
        }
    }

    /// Applies the late rule to the job of a slot, if there is one, whose deadline has passed. Returns what changes.
    /// The caller drops the job.
    pub(crate) fn expire(&mut self, slot: u32) -> Late {
        let job = self.slots.get_mut(slot as usize).filter(|at| at.state != State::Empty);
        job.map_or(Late::Continue, |at| at.of.expire(at.has_started()))
    }

    /// Whether [`Slots::expire`] would change anything.
    pub(crate) fn acts_on_deadline(&self, slot: u32) -> bool {
        let job = self.slots.get(slot as usize).filter(|at| at.state != State::Empty);
        job.is_some_and(|at| at.of.late_effect(at.has_started()) != Late::Continue)
    }

    /// Empties a slot whose job is late. Returns the CPU that it leaves.
    pub(crate) fn drop_job(&mut self, slot: u32, decisions: &mut Vec<Decision>) -> Option<u32> {
        let cpu = self.cpu(slot);
        self.slots[slot as usize].state = State::Empty;
        decisions.push(Decision::Drop { slot, cpu });
        cpu
    }

    /// Switches to another plan, and drops the late jobs that its rules drop. Returns whether there is such a plan.
    pub(crate) fn switch(&mut self, plan: usize, now: Time, decisions: &mut Vec<Decision>) -> bool {
        if !self.adopt(plan) {
            debug_assert!(false, "no plan {plan}");
            return false;
        }
        for slot in 0..self.slots.len() as u32 {
            let at = &mut self.slots[slot as usize];
            if at.state != State::Empty && !at.of.keep_in_switch(at.has_started(), now) {
                self.drop_job(slot, decisions);
            }
        }
        true
    }

    /// The next end of a section after `now`, of the running jobs in `which` slots. Such a job may have to yield then,
    /// though nothing happens.
    pub(crate) fn next_section(&self, now: Time, which: impl Fn(&CpuSlot) -> bool) -> Option<Time> {
        if !self.sections {
            return None;
        }
        // From 1 ns later on. A job that runs on has received 1 ns more by then.
        let after = now.checked_add(Span::from_ns(1))?;
        self.slots.iter().filter(|at| which(at)).filter_map(|at| at.section_end(after)).min()
    }

    /// Puts a plan in force. Returns whether there is such a plan.
    fn adopt(&mut self, plan: usize) -> bool {
        let Some(plan) = self.plans.adopt(plan, self.slots.iter_mut().map(|at| &mut at.of)) else { return false };
        self.level_count = plan.levels.len() as u32;
        self.laxity = plan.levels.iter().any(|level| level.order == Order::Laxity);
        true
    }
}
