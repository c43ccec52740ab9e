//! One cluster of CPUs: its waiting and its running jobs, and the choice between them [MCS].
//!
//! The rule: the most important jobs that fit run. A job that keeps running keeps its CPU. Each
//! other job, in order, takes the CPU on which it last ran if that is free. Otherwise it takes the
//! lowest free CPU that it may use. No running job is moved to make room.
//!
//! A job *fits* when this rule gives it and all more important chosen jobs a CPU. Under restricting
//! affinities the choice is repeated until nothing changes: no CPU idles while a waiting job may
//! use it.

use takt_model::{CpuSet, Time};

use crate::cpu_slots::Slots;
use crate::decision::Decision;
use crate::rank::{Phase, Rank};
use crate::ready::ReadyQueue;

/// Waiting and running jobs of a set of CPUs that share them.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// Something happened since the last dispatch. Set by the dispatcher.
    pub(crate) touched: bool,
    /// Every job in `ready` is less important than every running job, so only new arrivals can
    /// preempt. True after each dispatch until ranks change.
    settled: bool,
    /// Whether some task may not use all CPUs of the cluster.
    restricted: bool,
    /// The first CPU.
    base: u32,
    cpu_count: usize,
    idle_count: usize,
    idle: CpuSet,
    ready: ReadyQueue<Rank>,
    /// Jobs that came since the last dispatch: most of them run at once and never see the queue.
    arrived: Vec<Rank>,
    /// The job on each CPU from `base` on, [`Rank::NOBODY`] where none runs.
    running: Vec<Rank>,
    /// The CPU of the least important running job, where that is known.
    least: Option<u32>,
    /// Scratch space of a dispatch: the jobs that shall run, the most important first, with their
    /// CPUs if they run already.
    chosen: Vec<(Rank, Option<u32>)>,
    /// Scratch of a dispatch: what runs, the most important first.
    in_order: Vec<(Rank, u32)>,
    /// Scratch of a dispatch: waiting jobs that do not fit.
    unfit: Vec<Rank>,
}

impl Cluster {
    pub(crate) fn new(cpus: CpuSet, slots: usize, restricted: bool) -> Self {
        let cpu_count = cpus.len() as usize;
        let base = cpus.lowest().unwrap_or(0);
        Cluster {
            touched: false,
            settled: true,
            restricted,
            base,
            cpu_count,
            idle_count: cpu_count,
            idle: cpus,
            ready: ReadyQueue::new(slots),
            arrived: Vec::with_capacity(slots),
            running: vec![Rank::NOBODY; cpus.iter().last().map_or(0, |last| (last - base) as usize + 1)],
            least: None,
            chosen: Vec::with_capacity(cpu_count + 1),
            in_order: Vec::with_capacity(cpu_count),
            unfit: Vec::with_capacity(slots),
        }
    }

    /// Whether a job waits while another runs: only then can the order change with time.
    pub(crate) fn is_contended(&self) -> bool {
        self.idle_count < self.cpu_count && (!self.ready.is_empty() || !self.arrived.is_empty())
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, rank: Rank) {
        self.arrived.push(rank);
    }

    /// Takes the waiting job of `slot` out.
    pub(crate) fn dequeue(&mut self, slot: u32) {
        self.arrived.retain(|rank| rank.slot() != slot);
        self.ready.remove(slot, &());
    }

    /// Gives the job running on `cpu` another rank.
    pub(crate) fn rerank_running(&mut self, rank: Rank, cpu: u32) {
        if let Some(running) = self.running_on(cpu) {
            *running = rank;
        }
        (self.least, self.settled) = (None, false);
    }

    /// The job on `cpu`, which is one of this cluster.
    #[inline]
    fn running_on(&mut self, cpu: u32) -> Option<&mut Rank> {
        self.running.get_mut(cpu.wrapping_sub(self.base) as usize)
    }

    /// Takes the running job off `cpu`, which becomes idle.
    #[inline]
    pub(crate) fn release_cpu(&mut self, cpu: u32) {
        let Some(running) = self.running_on(cpu) else { return };
        *running = Rank::NOBODY;
        if self.least == Some(cpu) {
            self.least = None;
        }
        self.idle.insert(cpu);
        self.idle_count += 1;
    }

    /// Recomputes all ranks from `slots` at `now`, after a switch of plans.
    pub(crate) fn rebuild(&mut self, now: Time, slots: &mut Slots) {
        let (ready, arrived) = (&mut self.ready, &mut self.arrived);
        arrived.iter_mut().for_each(|rank| *rank = slots.rerank(rank.slot(), now));
        ready.drain(|slot| arrived.push(slots.rerank(slot, now)));
        self.refresh_running(now, slots);
    }

    /// Recomputes the ranks of running jobs: their laxity does not shrink while that of others
    /// does, and sections begin and end.
    fn refresh_running(&mut self, now: Time, slots: &mut Slots) {
        for rank in self.running.iter_mut().filter(|rank| **rank != Rank::NOBODY) {
            *rank = slots.rerank(rank.slot(), now);
        }
        (self.least, self.settled) = (None, false);
    }

    /// The least important running job and its CPU.
    #[inline]
    fn least_important(&mut self) -> Option<(u32, Rank)> {
        let cpu = self.least.or_else(|| {
            let last = self.running.iter().enumerate().max_by(|a, b| a.1.cmp(b.1));
            last.map(|(at, _)| at as u32 + self.base)
        })?;
        self.least = Some(cpu);
        self.running_on(cpu).map(|rank| (cpu, *rank))
    }

    /// Chooses what runs from `now` on and says what changes, if something happened since the last time.
    #[inline(always)]
    pub(crate) fn dispatch_touched(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        if std::mem::take(&mut self.touched) && !self.dispatch_one(now, slots, decisions) {
            self.dispatch_any(now, slots, decisions);
        }
    }

    /// The fast path for at most one start: one job arrived, or one left. Returns false and changes
    /// nothing if several jobs may start.
    #[inline(always)]
    fn dispatch_one(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) -> bool {
        if self.restricted || !self.settled || slots.vary() {
            return false;
        }
        match *self.arrived.as_slice() {
            [] => {
                let Some(first) = self.ready.peek(&()).copied() else { return true };
                if self.idle_count != 1 || slots.is_hopeless(first.slot(), now) {
                    return false;
                }
                self.ready.pop(&());
                self.run(first, now, slots, decisions);
            }
            [came] => {
                if self.idle_count > 0 && !self.ready.is_empty() || slots.is_hopeless(came.slot(), now) {
                    return false;
                }
                self.arrived.clear();
                if self.idle_count == 0 {
                    match self.least_important() {
                        Some((cpu, least)) if came < least => self.preempt(least, cpu, now, slots, decisions),
                        _ => {
                            self.ready.push(came, &());
                            return true;
                        }
                    }
                }
                self.run(came, now, slots, decisions);
            }
            _ => return false,
        }
        true
    }

    #[inline(never)]
    fn dispatch_any(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        if slots.vary() {
            self.refresh_running(now, slots);
        }
        if self.restricted {
            self.dispatch_restricted(now, slots, decisions);
        } else {
            self.choose(now, slots, decisions);
        }
    }

    fn dispatch_restricted(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        while let Some(rank) = self.arrived.pop() {
            self.ready.push(rank, &());
        }
        // The CPU that a waiting job gets affects which other jobs fit, so choose until nothing
        // changes. Each round settles at least one more of the most important jobs.
        let rounds_max = self.cpu_count - self.idle_count + self.ready.len() + 1;
        for _ in 0..rounds_max {
            let before = decisions.len();
            self.choose_restricted(now, slots, decisions);
            self.run_chosen(now, slots, decisions);
            if decisions.len() == before {
                break;
            }
        }
    }

    /// Gives chosen jobs that do not run yet a CPU.
    fn run_chosen(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        for at in 0..self.chosen.len() {
            let (rank, cpu) = self.chosen[at];
            if cpu.is_none() {
                self.run(rank, now, slots, decisions);
            }
        }
    }

    /// Takes the most important waiting job if it is more important than `bar`.
    fn pop_waiting(&mut self, bar: Option<&Rank>) -> Option<Rank> {
        let (first, is_arrived) = match (self.arrived.last(), self.ready.peek(&())) {
            (Some(a), Some(q)) if a < q => (a, true),
            (Some(a), None) => (a, true),
            (_, Some(q)) => (q, false),
            (None, None) => return None,
        };
        if bar.is_some_and(|bar| bar <= first) {
            return None;
        }
        if is_arrived { self.arrived.pop() } else { self.ready.pop(&()) }
    }

    /// Any job may use any CPU: makes the first `cpu_count` jobs run.
    fn choose(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        self.chosen.clear();
        if self.arrived.len() > 1 {
            // The most important last, where it is popped.
            self.arrived.sort_unstable_by(|a, b| b.cmp(a));
        }
        loop {
            let full = self.chosen.len() >= self.idle_count;
            if full && self.settled && self.arrived.is_empty() {
                break;
            }
            let least = if full { self.least_important() } else { None };
            if full && least.is_none() {
                break;
            }
            let Some(first) = self.pop_waiting(least.as_ref().map(|(_, rank)| rank)) else { break };
            if slots.cancel_if_hopeless(first.slot(), now, decisions) {
                continue;
            }
            if let Some((cpu, rank)) = least {
                self.preempt(rank, cpu, now, slots, decisions);
            }
            self.chosen.push((first, None));
        }
        while let Some(rank) = self.arrived.pop() {
            self.ready.push(rank, &());
        }
        self.settled = true;
        self.run_chosen(now, slots, decisions);
    }

    /// Affinities restrict: walks all jobs in order and chooses each that fits.
    fn choose_restricted(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        self.chosen.clear();
        self.unfit.clear();
        self.in_order.clear();
        let cpus = (self.base..).zip(&self.running).filter(|(_, rank)| **rank != Rank::NOBODY);
        self.in_order.extend(cpus.map(|(cpu, rank)| (*rank, cpu)));
        self.in_order.sort_unstable();
        let mut next_running = 0;
        while self.chosen.len() < self.cpu_count {
            let running = self.in_order.get(next_running).copied();
            let waiting = self.ready.peek(&()).copied();
            match (running, waiting) {
                (Some((rank, cpu)), other) if other.is_none_or(|other| rank < other) => {
                    next_running += 1;
                    self.chosen.push((rank, Some(cpu)));
                    if !self.all_fit(slots) {
                        self.chosen.pop();
                    }
                }
                (_, Some(rank)) => {
                    self.ready.pop(&());
                    self.chosen.push((rank, None));
                    if !self.all_fit(slots) {
                        self.chosen.pop();
                        self.unfit.push(rank);
                    } else if slots.cancel_if_hopeless(rank.slot(), now, decisions) {
                        self.chosen.pop();
                    }
                }
                (_, None) => break,
            }
        }
        for at in 0..self.in_order.len() {
            let (rank, cpu) = self.in_order[at];
            if !self.chosen.iter().any(|(chosen, _)| *chosen == rank) {
                self.preempt(rank, cpu, now, slots, decisions);
            }
        }
        while let Some(rank) = self.unfit.pop() {
            self.ready.push(rank, &());
        }
    }

    /// Whether every chosen job gets a CPU by the rule.
    fn all_fit(&self, slots: &Slots) -> bool {
        let mut used: CpuSet = self.chosen.iter().filter_map(|(_, cpu)| *cpu).collect();
        self.chosen.iter().filter(|(_, cpu)| cpu.is_none()).all(|(rank, _)| {
            let free = slots.affinity(rank.slot()).difference(&used);
            slots.preferred_cpu(rank.slot(), &free).is_some_and(|cpu| used.insert(cpu))
        })
    }

    /// The running jobs and their CPUs.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Rank, u32)> + '_ {
        self.running.iter().copied().zip(self.base..).filter(|(rank, _)| *rank != Rank::NOBODY)
    }

    /// The first waiting job, and all jobs since the last dispatch.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Rank> + '_ {
        self.arrived.iter().chain(self.ready.peek(&())).copied()
    }

    /// Stops the job on `cpu`, which waits from now on with this rank.
    pub(crate) fn stop(&mut self, rank: Rank, cpu: u32) {
        self.release_cpu(cpu);
        self.ready.push(rank, &());
    }

    /// Takes the CPU from a running job, which waits from now on.
    #[inline]
    fn preempt(&mut self, rank: Rank, cpu: u32, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        self.release_cpu(cpu);
        self.ready.push(slots.stopped(rank, now), &());
        decisions.push(Decision::Preempt { slot: rank.slot(), cpu });
    }

    /// Gives a job that waits nowhere any more an idle CPU.
    #[inline(always)]
    pub(crate) fn run(&mut self, rank: Rank, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        let slot = rank.slot();
        let found = if self.restricted {
            slots.preferred_cpu(slot, &slots.affinity(slot).intersection(&self.idle))
        } else {
            slots.preferred_cpu(slot, &self.idle)
        };
        let Some(cpu) = found else {
            debug_assert!(false, "a chosen job has no CPU");
            self.ready.push(rank, &());
            return;
        };
        self.idle.remove(cpu);
        self.idle_count -= 1;
        let (rank, resumed, from) = slots.started(slot, rank, cpu, now);
        if let Some(least) = self.least
            && self.running_on(least).is_some_and(|least| *least < rank)
        {
            self.least = Some(cpu);
        }
        if let Some(running) = self.running_on(cpu) {
            *running = rank;
        }
        decisions.push(Decision::Run { slot, cpu, resumed, from });
    }
}

impl Phase {
    /// The phase of a job that has (not) started in a level that is (not) preemptive.
    #[inline]
    pub(crate) fn waiting(preemptive: bool, started: bool) -> Phase {
        if started && !preemptive { Phase::Started } else { Phase::Fresh }
    }
}
