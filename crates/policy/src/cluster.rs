//! One cluster of CPUs: its waiting and its running jobs, and the choice between them [MCS].
//!
//! The rule: the most important jobs that fit run. One that keeps running keeps its CPU; the others,
//! in order, take the CPU they last ran on if it is free, else the lowest free one that they may use; nobody
//! is shifted. A job *fits* when it and all more important chosen jobs get a CPU by that rule. Where
//! affinities restrict, the choice is repeated until nothing changes: no CPU idles that a waiting job may use.

use takt_model::{CpuSet, Time};

use crate::dispatcher::{Decision, Slots};
use crate::rank::{Phase, Rank};
use crate::ready::ReadyQueue;

#[derive(Clone, Copy, Debug)]
struct Running {
    rank: Rank,
    cpu: u32,
}

/// Waiting and running jobs of a set of CPUs that share them.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    cpu_count: usize,
    idle: CpuSet,
    ready: ReadyQueue,
    /// Jobs that came since the last dispatch: most of them run at once and never see the queue.
    arrived: Vec<Rank>,
    /// In no order.
    running: Vec<Running>,
    /// Position in `running` by CPU, stale for idle CPUs.
    place: Vec<u32>,
    /// Position of the least important of `running`, where that is known.
    least: Option<usize>,
    /// Every job in `ready` is less important than every running one: only those that arrived can preempt. So it is
    /// after each dispatch, until ranks change.
    settled: bool,
    /// Whether some task may not use all CPUs of the cluster.
    restricted: bool,
    /// Scratch of a dispatch: jobs that shall run, the most important first; the CPU of those that do.
    chosen: Vec<(Rank, Option<u32>)>,
    /// Scratch of a dispatch: waiting jobs that do not fit.
    unfit: Vec<Rank>,
}

impl Cluster {
    pub(crate) fn new(cpus: CpuSet, slots: usize, restricted: bool) -> Self {
        let cpu_count = cpus.len() as usize;
        Cluster {
            cpu_count,
            idle: cpus,
            ready: ReadyQueue::new(slots),
            arrived: Vec::with_capacity(slots),
            running: Vec::with_capacity(cpu_count + 1),
            place: vec![0; cpus.iter().last().map_or(0, |last| last as usize + 1)],
            least: None,
            settled: true,
            restricted,
            chosen: Vec::with_capacity(cpu_count + 1),
            unfit: Vec::with_capacity(slots),
        }
    }

    /// Whether a job waits while another runs: only then can the order change with time.
    pub(crate) fn is_contended(&self) -> bool {
        !self.running.is_empty() && (!self.ready.is_empty() || !self.arrived.is_empty())
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, rank: Rank) {
        self.arrived.push(rank);
    }

    /// Takes the waiting job of `slot` out.
    pub(crate) fn dequeue(&mut self, slot: u32) {
        self.arrived.retain(|rank| rank.slot() != slot);
        self.ready.remove(slot);
    }

    /// Takes the running job off `cpu`, which becomes idle.
    #[inline]
    pub(crate) fn release_cpu(&mut self, cpu: u32) {
        if let Some(at) = self.place_of(cpu) {
            self.take_running(at);
        }
    }

    /// Gives the job running on `cpu` another rank.
    pub(crate) fn rerank_running(&mut self, rank: Rank, cpu: u32) {
        if let Some(at) = self.place_of(cpu) {
            self.running[at].rank = rank;
        }
        (self.least, self.settled) = (None, false);
    }

    /// Where the job of `cpu` stands in `running`.
    #[inline]
    fn place_of(&self, cpu: u32) -> Option<usize> {
        let at = *self.place.get(cpu as usize)? as usize;
        self.running.get(at).filter(|job| job.cpu == cpu).map(|_| at)
    }

    /// Takes a job out of `running`, and keeps in mind which is the least important of the others.
    #[inline]
    fn take_running(&mut self, at: usize) -> Running {
        let gone = self.running.swap_remove(at);
        if let Some(moved) = self.running.get(at) {
            self.place[moved.cpu as usize] = at as u32;
        }
        self.least = match self.least {
            Some(least) if least == at => None,
            Some(least) if least == self.running.len() => Some(at),
            least => least,
        };
        self.idle.insert(gone.cpu);
        gone
    }

    /// Makes the order anew from the ranks of `slots` at `now` (mode switch).
    pub(crate) fn rebuild(&mut self, now: Time, slots: &mut Slots) {
        let (ready, arrived) = (&mut self.ready, &mut self.arrived);
        arrived.iter_mut().for_each(|rank| *rank = slots.rerank(rank.slot(), now));
        ready.drain(|slot| arrived.push(slots.rerank(slot, now)));
        self.refresh_running(now, slots);
    }

    /// Recomputes the ranks of running jobs: their laxity does not shrink while that of others does.
    fn refresh_running(&mut self, now: Time, slots: &mut Slots) {
        for job in &mut self.running {
            job.rank = slots.rerank(job.rank.slot(), now);
        }
        (self.least, self.settled) = (None, false);
    }

    /// The least important running job.
    #[inline]
    fn least_important(&mut self) -> Option<(usize, Rank)> {
        if self.least.is_none() {
            let ranked = self.running.iter().enumerate();
            self.least = ranked.max_by(|a, b| a.1.rank.cmp(&b.1.rank)).map(|(at, _)| at);
        }
        let at = self.least?;
        self.running.get(at).map(|job| (at, job.rank))
    }

    /// Chooses what runs from `now` on and says what changes.
    pub(crate) fn dispatch(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        if self.ready.is_empty() && self.arrived.is_empty() {
            return;
        }
        if self.restricted || slots.has_laxity() || !self.dispatch_one(now, slots, decisions) {
            self.dispatch_any(now, slots, decisions);
        }
    }

    /// The short way where at most one job can start, as nearly always: one came, or one left. False, with nothing
    /// done, where it may be more.
    #[inline(always)]
    fn dispatch_one(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) -> bool {
        let idle = self.cpu_count - self.running.len();
        let first = match (self.arrived.as_slice(), self.ready.peek(), idle) {
            (&[came], None, 1..) | (&[came], _, 0) => came,
            ([], Some(waiting), 1) => *waiting,
            _ => return false,
        };
        if !self.settled || slots.is_hopeless(first.slot(), now) {
            return false;
        }
        if self.arrived.pop().is_none() {
            self.ready.pop();
        } else if idle == 0 {
            match self.least_important() {
                Some((at, least)) if first < least => {
                    let job = self.take_running(at);
                    self.preempt(job, now, slots, decisions);
                }
                _ => {
                    self.ready.push(first);
                    return true;
                }
            }
        }
        self.run(first, now, slots, decisions);
        true
    }

    fn dispatch_any(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        if slots.has_laxity() {
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
            self.ready.push(rank);
        }
        // Where a waiting job gets its CPU decides what else fits, so choose until nothing changes. Each
        // round settles at least one more of the most important jobs.
        let rounds_max = self.running.len() + self.ready.len() + 1;
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
        let (first, is_arrived) = match (self.arrived.last(), self.ready.peek()) {
            (Some(a), Some(q)) if a < q => (a, true),
            (Some(a), None) => (a, true),
            (_, Some(q)) => (q, false),
            (None, None) => return None,
        };
        if bar.is_some_and(|bar| bar <= first) {
            return None;
        }
        if is_arrived { self.arrived.pop() } else { self.ready.pop() }
    }

    /// Any job may use any CPU: makes the first `cpu_count` jobs run.
    fn choose(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        self.chosen.clear();
        if self.arrived.len() > 1 {
            // The most important last, where it is popped.
            self.arrived.sort_unstable_by(|a, b| b.cmp(a));
        }
        loop {
            let full = self.running.len() + self.chosen.len() >= self.cpu_count;
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
            if let Some((at, _)) = least {
                let job = self.take_running(at);
                self.preempt(job, now, slots, decisions);
            }
            self.chosen.push((first, None));
        }
        while let Some(rank) = self.arrived.pop() {
            self.ready.push(rank);
        }
        self.settled = true;
        self.run_chosen(now, slots, decisions);
    }

    /// Affinities restrict: walks all jobs in order and chooses each that fits.
    fn choose_restricted(&mut self, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        self.chosen.clear();
        self.unfit.clear();
        self.running.sort_unstable_by_key(|job| job.rank);
        self.least = None;
        let mut next_running = 0;
        while self.chosen.len() < self.cpu_count {
            let running = self.running.get(next_running).copied();
            let waiting = self.ready.peek().copied();
            match (running, waiting) {
                (Some(job), other) if other.is_none_or(|other| job.rank < other) => {
                    next_running += 1;
                    self.chosen.push((job.rank, Some(job.cpu)));
                    if !self.all_fit(slots) {
                        self.chosen.pop();
                    }
                }
                (_, Some(rank)) => {
                    self.ready.pop();
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
        let mut at = 0;
        while let Some(job) = self.running.get(at).copied() {
            if self.chosen.iter().any(|(rank, _)| *rank == job.rank) {
                at += 1;
            } else {
                self.running.remove(at);
                self.idle.insert(job.cpu);
                self.preempt(job, now, slots, decisions);
            }
        }
        for (at, job) in self.running.iter().enumerate() {
            self.place[job.cpu as usize] = at as u32;
        }
        while let Some(rank) = self.unfit.pop() {
            self.ready.push(rank);
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

    #[inline]
    fn preempt(&mut self, job: Running, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        let slot = job.rank.slot();
        self.ready.push(slots.stopped(job.rank, now));
        decisions.push(Decision::Preempt { slot, cpu: job.cpu });
    }

    #[inline(always)]
    fn run(&mut self, rank: Rank, now: Time, slots: &mut Slots, decisions: &mut Vec<Decision>) {
        let slot = rank.slot();
        let found = if self.restricted {
            slots.preferred_cpu(slot, &slots.affinity(slot).intersection(&self.idle))
        } else {
            slots.preferred_cpu(slot, &self.idle)
        };
        let Some(cpu) = found else {
            debug_assert!(false, "a chosen job has no CPU");
            self.ready.push(rank);
            return;
        };
        self.idle.remove(cpu);
        let (rank, resumed, from) = slots.started(slot, rank, cpu, now);
        self.note_running(Running { rank, cpu });
        decisions.push(Decision::Run { slot, cpu, resumed, from });
    }
}

impl Cluster {
    #[inline]
    fn note_running(&mut self, job: Running) {
        if self.least.and_then(|at| self.running.get(at)).is_some_and(|least| least.rank < job.rank) {
            self.least = Some(self.running.len());
        }
        self.place[job.cpu as usize] = self.running.len() as u32;
        self.running.push(job);
    }
}

impl Phase {
    /// The phase of a job that has (not) started in a level that is (not) preemptive.
    #[inline]
    pub(crate) fn waiting(preemptive: bool, started: bool) -> Phase {
        if started && !preemptive { Phase::Started } else { Phase::Fresh }
    }
}
