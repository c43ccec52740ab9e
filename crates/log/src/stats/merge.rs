//! Statistics of several runs of one System, with confidence intervals.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use thiserror::Error;

use super::messages::add_messages;
use super::report::ratio;
use super::{CpuStats, Histogram, InterruptStats, ServerStats, Stats, TaskStats};

/// Collects the statistics of independent runs (replications with different seeds) of one System.
#[derive(Clone, Debug, Default)]
pub struct Replications {
    runs: u64,
    sum: Option<Stats>,
    samples: Vec<TaskSamples>,
}

/// One sample per run.
#[derive(Clone, Debug, Default)]
struct TaskSamples {
    response_means: Vec<f64>,
    miss_ratios: Vec<f64>,
}

/// Several runs as one. Serialises to what `sim --runs` prints: the keys of [`Stats`] (durations and counts
/// summed, distributions pooled), `runs`, and `confidence` per task.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Merged {
    /// How many.
    pub runs: u64,
    /// All of them together.
    #[serde(flatten)]
    pub stats: Stats,
    /// Per task, in the order of `stats.tasks`.
    pub confidence: Vec<TaskConfidence>,
}

/// 95 % confidence intervals of one task.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TaskConfidence {
    /// Its name.
    pub task: String,
    /// The mean response of a run, over the runs in which a job completed. Null with less than two.
    pub response_mean_ns: Option<TimeInterval>,
    /// The part of a run's released jobs that missed, over the runs that released any. Null with less than
    /// two, or where misses are unknown.
    pub miss_ratio: Option<Interval>,
}

/// mean ± t(0.975, n - 1) * s / sqrt(n), where n samples have that mean and the standard deviation s.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// The mean of the runs' values.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How many runs it rests on.
    pub samples: u64,
}

/// An [`Interval`] of times in whole nanoseconds: the ends rounded outwards, the mean down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TimeInterval {
    /// The mean of the runs' values.
    pub mean: i64,
    /// The lower end; negative where few runs differ much.
    pub low: i64,
    /// The upper end.
    pub high: i64,
    /// How many runs it rests on.
    pub samples: u64,
}

impl From<Interval> for TimeInterval {
    fn from(Interval { mean, low, high, samples }: Interval) -> Self {
        TimeInterval { mean: mean.floor() as i64, low: low.floor() as i64, high: high.ceil() as i64, samples }
    }
}

/// Statistics of different Systems.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("these runs are not of one System: {what} differ; merge runs that differ in their seed alone")]
pub struct MergeError {
    /// `tasks`, `chains`, `CPUs`, `servers` or `interrupts`.
    pub what: &'static str,
}

impl Replications {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a run.
    ///
    /// # Errors
    /// Its tasks, chains or CPUs are others than those of the runs before; nothing is added then.
    pub fn add(&mut self, run: &Stats) -> Result<(), MergeError> {
        match &mut self.sum {
            Some(sum) => {
                same("tasks", &sum.tasks, &run.tasks, |a, b| (&a.task, &a.node) == (&b.task, &b.node))?;
                same("chains", &sum.chains, &run.chains, |a, b| a.chain == b.chain)?;
                same("CPUs", &sum.cpus, &run.cpus, |a, b| (&a.node, a.cpu) == (&b.node, b.cpu))?;
                same("servers", &sum.servers, &run.servers, |a, b| (&a.server, &a.node) == (&b.server, &b.node))?;
                let interrupts = |stats: &Stats| stats.interrupts.as_ref().map_or(0, Vec::len);
                if interrupts(sum) != interrupts(run) {
                    return Err(MergeError { what: "interrupts" });
                }
                add_stats(sum, run);
            }
            None => {
                self.samples = vec![TaskSamples::default(); run.tasks.len()];
                self.sum = Some(run.clone());
            }
        }
        self.runs += 1;
        for (samples, task) in self.samples.iter_mut().zip(&run.tasks) {
            if task.completed > 0 {
                samples.response_means.push(task.responses.sum() as f64 / task.completed as f64);
            }
            if let (Some(missed), 1..) = (task.missed, task.released) {
                samples.miss_ratios.push(missed as f64 / task.released as f64);
            }
        }
        Ok(())
    }

    /// All runs as one; `None` without a run.
    #[must_use]
    pub fn finish(self) -> Option<Merged> {
        let stats = self.sum?;
        let confidence = stats.tasks.iter().zip(&self.samples).map(|(task, samples)| TaskConfidence {
            task: task.task.clone(),
            response_mean_ns: interval(&samples.response_means).map(TimeInterval::from),
            miss_ratio: task.missed.and_then(|_| interval(&samples.miss_ratios)),
        });
        let confidence = confidence.collect();
        Some(Merged { runs: self.runs, stats, confidence })
    }
}

fn same<T>(what: &'static str, a: &[T], b: &[T], equal: impl Fn(&T, &T) -> bool) -> Result<(), MergeError> {
    if a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)) { Ok(()) } else { Err(MergeError { what }) }
}

fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a?.checked_add(b?)
}

fn add_stats(sum: &mut Stats, run: &Stats) {
    sum.duration_ns = sum.duration_ns.saturating_add(run.duration_ns);
    sum.lost_events = both(sum.lost_events, run.lost_events);
    for (task, run) in sum.tasks.iter_mut().zip(&run.tasks) {
        add_task(task, run, sum.duration_ns);
    }
    for (sum, run) in sum.chains.iter_mut().zip(&run.chains) {
        sum.responses.merge(&run.responses);
        sum.response_ns = sum.responses.summary();
    }
    for (cpu, run) in sum.cpus.iter_mut().zip(&run.cpus) {
        add_cpu(cpu, run, sum.duration_ns);
    }
    for (server, run) in sum.servers.iter_mut().zip(&run.servers) {
        add_server(server, run, sum.duration_ns);
    }
    add_messages(&mut sum.messages, &run.messages);
    for (interrupt, run) in sum.interrupts.iter_mut().flatten().zip(run.interrupts.iter().flatten()) {
        add_interrupt(interrupt, run, sum.duration_ns);
    }
}

fn add_task(sum: &mut TaskStats, run: &TaskStats, duration: u64) {
    sum.released += run.released;
    sum.completed += run.completed;
    sum.missed = both(sum.missed, run.missed);
    sum.cancelled += run.cancelled;
    sum.rejected += run.rejected;
    sum.unfinished += run.unfinished;
    sum.censored += run.censored;
    sum.uncertain += run.uncertain;
    sum.preemptions = both(sum.preemptions, run.preemptions);
    sum.migrations = both(sum.migrations, run.migrations);
    sum.busy_ns = both(sum.busy_ns, run.busy_ns);
    sum.utilization = sum.busy_ns.and_then(|busy| ratio(busy, duration));
    for (sum, run) in
        [(&mut sum.period_ns, run.period_ns), (&mut sum.deadline_ns, run.deadline_ns), (&mut sum.wcet_ns, run.wcet_ns)]
    {
        *sum = sum.filter(|value| Some(*value) == run);
    }
    let merged = |sum: &mut Histogram, run: &Histogram| {
        sum.merge(run);
        sum.summary()
    };
    sum.response_ns = merged(&mut sum.responses, &run.responses);
    sum.laxity_ns = sum.deadline_ns.and_then(|deadline| sum.responses.laxities(deadline));
    sum.execution_ns = merged(&mut sum.executions, &run.executions);
    sum.execution_without_interrupts_ns = merged(&mut sum.net_executions, &run.net_executions);
    sum.inter_arrival_ns = merged(&mut sum.inter_arrivals, &run.inter_arrivals);
    sum.start_latency_ns = merged(&mut sum.start_latencies, &run.start_latencies);
    if let (Some(sum), Some(run)) = (&mut sum.release_latencies, &run.release_latencies) {
        sum.merge(run);
    }
    sum.release_latency_ns = sum.release_latencies.as_ref().map(|latencies| latencies.summary());
}

fn add_cpu(sum: &mut CpuStats, run: &CpuStats, duration: u64) {
    sum.busy_ns = both(sum.busy_ns, run.busy_ns);
    sum.interrupts_ns = both(sum.interrupts_ns, run.interrupts_ns);
    sum.used_ns = both(sum.used_ns, run.used_ns);
    sum.utilization = sum.used_ns.and_then(|used| ratio(used, duration));
}

fn add_server(sum: &mut ServerStats, run: &ServerStats, duration: u64) {
    sum.supply_ns = sum.supply_ns.saturating_add(run.supply_ns);
    sum.utilization = ratio(sum.supply_ns, duration);
    sum.idle_ns = sum.idle_ns.saturating_add(run.idle_ns);
    sum.paid_ns = sum.paid_ns.saturating_add(run.paid_ns);
    sum.supply_max_ns = sum.supply_max_ns.zip(run.supply_max_ns).map(|(a, b)| a.max(b));
    sum.replenishments += run.replenishments;
    sum.exhaustions += run.exhaustions;
    sum.idles += run.idles;
}

fn add_interrupt(sum: &mut InterruptStats, run: &InterruptStats, duration: u64) {
    sum.count += run.count;
    sum.busy_ns = sum.busy_ns.saturating_add(run.busy_ns);
    sum.utilization = ratio(sum.busy_ns, duration);
    sum.inter_arrivals.merge(&run.inter_arrivals);
    sum.executions.merge(&run.executions);
    sum.totals.merge(&run.totals);
    sum.inter_arrival_ns = sum.inter_arrivals.summary();
    sum.execution_ns = sum.executions.summary();
    sum.execution_with_nested_ns = sum.totals.summary();
}

/// `None` for less than two samples.
fn interval(samples: &[f64]) -> Option<Interval> {
    let n = samples.len() as f64;
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let mean = samples.iter().sum::<f64>() / n;
    let variance = samples.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
    let half = student.inverse_cdf(0.975) * (variance / n).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half, samples: samples.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // t(0.975, 4) = 2.776445 (any table); mean 3, s = sqrt(2.5).
        let found = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let half = 2.776_445 * (2.5f64 / 5.0).sqrt();
        assert!((found.mean - 3.0).abs() < 1e-12 && found.samples == 5);
        assert!((found.high - 3.0 - half).abs() < 1e-5 && (3.0 - found.low - half).abs() < 1e-5, "{found:?}");
        assert_eq!((interval(&[]), interval(&[1.0])), (None, None));
        let same = interval(&[7.0; 3]).unwrap();
        assert_eq!((same.low, same.high), (7.0, 7.0));
    }
}
