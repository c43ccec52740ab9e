//! From what was counted to [`Stats`]: at the end, or interval by interval.

use takt_model::{NodeId, TaskId, Time};

use super::collector::{Collector, Recorded, TaskState, leave};
use super::interrupts::{Cpu, Interrupt};
use super::open::{Censored, NONE};
use super::servers::Server;
use super::{ChainStats, CpuStats, Histogram, InterruptStats, ServerStats, Stats, TaskStats};
use crate::definitions::Definitions;

impl Collector {
    /// The statistics up to `end`, the end of the log, since the last [`Collector::cut`] or the
    /// start.
    #[must_use]
    pub fn finish(mut self, end: Time) -> Stats {
        self.report(end.as_ns(), true)
    }

    /// The statistics from the last cut, or from the start, up to `now`. `now` is not before the
    /// last event and not after the next. Events at `now` or later belong to the next interval.
    ///
    /// Counts of intervals add up to the counts of the whole, except for jobs whose fate is lost. A
    /// job counts as `released` in the interval of its release, and as completed in the interval of
    /// its completion. The intervals between them count it as `carried` and `unfinished`. A miss
    /// belongs to the first interval that ends after the deadline. A distribution covers the jobs
    /// that completed (started, arrived) in the interval. A running job's time counts up to `now`.
    pub fn cut(&mut self, now: Time) -> Stats {
        let now = now.as_ns();
        let stats = self.report(now, false);
        self.from = now;
        self.lost = Some(0);
        self.tasks.iter_mut().for_each(TaskState::reset);
        self.cpus.iter_mut().for_each(|cpu| cpu.reset(now));
        self.interrupts.iter_mut().for_each(Interrupt::reset);
        self.servers.iter_mut().for_each(Server::reset);
        self.messages.reset();
        stats
    }

    /// Everything up to `now`; histograms are taken out.
    fn report(&mut self, now: u64, whole: bool) -> Stats {
        let recorded = self.recorded;
        let duration = now.saturating_sub(self.from);
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for ((state, def), id) in self.tasks.iter_mut().zip(&self.definitions.tasks).zip(0..) {
            let open = state.account(&mut self.cpus, now, whole);
            let deadline = def.deadline.map(|deadline| deadline.as_ns());
            let mut stats = state.stats(recorded, open, deadline, duration);
            let seen = stats.completed + stats.cancelled + stats.rejected + stats.unfinished + stats.censored;
            if seen == 0 && !self.definitions.covers(def.node) {
                continue;
            }
            stats.id = TaskId(id);
            stats.task.clone_from(&def.name);
            stats.node = self.definitions.node_name(def.node);
            stats.period_ns = def.period.map(|period| period.as_ns());
            stats.wcet_ns = def.wcet.map(|wcet| wcet.as_ns());
            tasks.push(stats);
        }
        let about = |sink: TaskId| {
            self.definitions.tasks.get(sink.index()).is_none_or(|task| self.definitions.covers(task.node))
        };
        let chains = (self.definitions.chains.iter().zip(&mut self.chains))
            .map(|(def, responses)| (def, std::mem::take(responses)))
            .filter(|(def, responses)| responses.count() > 0 || about(def.sink))
            .map(|(def, responses)| ChainStats { chain: def.name.clone(), response_ns: responses.summary(), responses })
            .collect();
        let cpus = cpus(&self.definitions, &self.cpus, recorded, now, duration);
        let interrupts = recorded.interrupts.then(|| {
            let defined = self.definitions.interrupts.len();
            if self.interrupts.len() < defined {
                self.interrupts.resize_with(defined, Interrupt::default);
            }
            let all = self.interrupts.iter_mut().enumerate();
            all.filter(|(i, interrupt)| *i < defined || interrupt.count > 0)
                .map(|(i, interrupt)| of_interrupt(&self.definitions, i, interrupt, duration))
                .collect()
        });
        Stats {
            duration_ns: duration,
            tasks,
            chains,
            cpus,
            servers: self.server_stats(duration),
            messages: self.messages.stats(&self.definitions, recorded.transmits),
            interrupts,
            lost_events: self.lost,
            release_latency_waits: self.latencies && !recorded.cpus,
        }
    }

    fn server_stats(&self, duration: u64) -> Vec<ServerStats> {
        let all = self.definitions.servers.iter().zip(&self.servers);
        let shown = all.filter(|(def, _)| self.recorded.payments && self.definitions.covers(def.node));
        let stats = shown.map(|(def, counts)| ServerStats {
            server: def.name.clone(),
            node: self.definitions.node_name(def.node),
            rule: def.rule.clone(),
            period_ns: def.period.map(|period| period.as_ns()),
            budget_ns: def.budget.map(|budget| budget.as_ns()),
            supply_ns: counts.supply,
            utilization: ratio(counts.supply, duration),
            idle_ns: counts.idle,
            paid_ns: counts.paid,
            supply_max_ns: counts.supply_max.filter(|_| def.period.is_some()),
            replenishments: counts.replenishments,
            exhaustions: counts.exhaustions,
            idles: counts.idles,
        });
        stats.collect()
    }
}

impl TaskState {
    /// Counts what open jobs have come to, and says how many there are.
    fn account(&mut self, cpus: &mut [Cpu], now: u64, whole: bool) -> u64 {
        let (mut open, mut censored) = (0, Censored::default());
        for job in self.open.iter_mut() {
            self.busy = self.busy.saturating_add(leave(cpus, self.cpus, job, now));
            if job.since != NONE {
                job.since = now;
                if job.cpu < self.cpus.1
                    && let Some(cpu) = cpus.get((self.cpus.0 + job.cpu) as usize)
                {
                    job.covered = cpu.covered(now);
                }
            }
            if job.doubtful && whole {
                censored.count(job);
                continue;
            }
            open += 1;
            let deadline = job.arrival.saturating_add(self.deadline);
            // At a cut, a job can still complete at its deadline, in time.
            if !(job.missed || job.doubtful) && (deadline < now || deadline == now && whole) {
                job.missed = true;
                self.missed += 1;
            }
        }
        self.censor(censored);
        open
    }

    /// The numbers; histograms go over into them. Names are left to the caller.
    fn stats(&mut self, recorded: Recorded, open: u64, deadline: Option<u64>, duration: u64) -> TaskStats {
        let take = |histogram: &mut Histogram, known: bool| {
            let taken = std::mem::take(histogram);
            if known { taken } else { Histogram::default() }
        };
        let responses = take(&mut self.responses, true);
        let executions = take(&mut self.executions, recorded.cpus);
        let net_executions = take(&mut self.net_executions, recorded.cpus && recorded.interrupts);
        let inter_arrivals = take(&mut self.inter_arrivals, recorded.releases);
        let start_latencies = take(&mut self.start_latencies, recorded.starts);
        let latencies = self.latencies.as_mut().map(|latencies| std::mem::take(&mut **latencies));
        let over = responses.count() + self.cancelled + self.rejected + self.dropped;
        TaskStats {
            id: TaskId(0),
            task: String::new(),
            node: String::new(),
            released: (over + open).saturating_sub(self.carried),
            carried: self.carried,
            completed: responses.count(),
            missed: (recorded.fates && deadline.is_some()).then_some(self.missed),
            cancelled: self.cancelled,
            rejected: self.rejected,
            unfinished: self.dropped + open,
            censored: self.censored,
            uncertain: self.uncertain,
            period_ns: None,
            deadline_ns: deadline,
            wcet_ns: None,
            response_ns: responses.summary(),
            laxity_ns: deadline.and_then(|deadline| responses.laxities(deadline)),
            execution_ns: executions.summary(),
            execution_without_interrupts_ns: net_executions.summary(),
            inter_arrival_ns: inter_arrivals.summary(),
            start_latency_ns: start_latencies.summary(),
            busy_ns: recorded.cpus.then_some(self.busy),
            utilization: recorded.cpus.then(|| ratio(self.busy, duration)).flatten(),
            preemptions: (recorded.preemptions && !self.holes).then_some(self.preemptions),
            migrations: (recorded.migrations && !self.holes).then_some(self.migrations),
            release_latency_ns: latencies.as_ref().map(Histogram::summary),
            late: None,
            responses,
            executions,
            net_executions,
            inter_arrivals,
            start_latencies,
            release_latencies: latencies,
        }
    }

    fn reset(&mut self) {
        (self.missed, self.cancelled, self.dropped, self.censored) = (0, 0, 0, 0);
        self.rejected = 0;
        (self.uncertain, self.preemptions, self.migrations, self.busy) = (0, 0, 0, 0);
        (self.carried, self.holes) = (0, false);
        for job in self.open.iter_mut() {
            job.carried = true;
            self.carried += 1;
        }
    }
}

fn cpus(definitions: &Definitions, all: &[Cpu], recorded: Recorded, now: u64, duration: u64) -> Vec<CpuStats> {
    let mut cpus = Vec::with_capacity(all.len());
    let mut all = all.iter();
    let kernel_cpu = |node, cpu| {
        let defs = &definitions.cpus;
        defs.iter().find(|def| (def.node, def.cpu) == (node, cpu)).map(|def| def.kernel_cpu)
    };
    for (i, node) in definitions.nodes.iter().enumerate() {
        let node_id = NodeId(i as u32);
        for (cpu, state) in (0..node.cpus.min(super::CPUS_MAX)).zip(all.by_ref()) {
            let (interrupts, stolen) = state.interrupts(now);
            if state.busy == 0 && interrupts == 0 && !definitions.covers(node_id) {
                continue;
            }
            // Count the interrupts that ran within jobs once.
            let used = state.busy.saturating_add(interrupts.saturating_sub(stolen));
            cpus.push(CpuStats {
                node: definitions.node_name(node_id),
                cpu,
                kernel_cpu: kernel_cpu(node_id, cpu),
                busy_ns: recorded.cpus.then_some(state.busy),
                interrupts_ns: recorded.interrupts.then_some(interrupts),
                used_ns: recorded.cpus.then_some(used),
                utilization: recorded.cpus.then(|| ratio(used, duration)).flatten(),
            });
        }
    }
    cpus
}

fn of_interrupt(definitions: &Definitions, i: usize, interrupt: &mut Interrupt, duration: u64) -> InterruptStats {
    let def = definitions.interrupts.get(i);
    let inter_arrivals = std::mem::take(&mut interrupt.inter_arrivals);
    let executions = std::mem::take(&mut interrupt.executions);
    let totals = std::mem::take(&mut interrupt.totals);
    InterruptStats {
        interrupt: definitions.interrupt_name(i as u32),
        node: def.map(|def| definitions.node_name(def.node)),
        kind: def.map(|def| def.kind.name()),
        count: interrupt.count,
        inter_arrival_ns: inter_arrivals.summary(),
        execution_ns: executions.summary(),
        execution_with_nested_ns: totals.summary(),
        busy_ns: interrupt.busy,
        utilization: ratio(interrupt.busy, duration),
        inter_arrivals,
        executions,
        totals,
    }
}

/// `None` of no time.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
