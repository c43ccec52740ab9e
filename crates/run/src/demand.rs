//! The demand of tasks for CPUs and memory. Refuses a demand that would starve the machine.

use takt_linux::Class;
use takt_linux::machine::Limits;
use takt_model::{Arrival, Exec, Probability, Span, System, Task};

use crate::error::RunError;
use crate::mapped::{MappedTask, list};

/// Mean distance of jobs per task of the system, or the period if it is shorter. A chain's
/// successor has the mean distance of its rarest predecessor.
pub(crate) fn intervals(system: &System) -> Vec<Span> {
    let mut intervals: Vec<Span> = system.tasks.iter().map(own_interval).collect();
    // A chain has at most as many tasks as the system.
    for _ in &system.tasks {
        let mut settled = true;
        for (index, task) in system.tasks.iter().enumerate() {
            let rarest = task.after.iter().filter_map(|id| intervals.get(id.index())).max().copied();
            if let (Some(rarest), Some(own)) = (rarest, intervals.get_mut(index)) {
                settled &= *own == rarest;
                *own = rarest;
            }
        }
        if settled {
            break;
        }
    }
    intervals
}

fn own_interval(task: &Task) -> Span {
    let mean_ns = match &task.arrival {
        Arrival::Periodic | Arrival::Sporadic => return task.period,
        Arrival::Pmf(pmf) => {
            let weigh = |(value, probability): &(Span, Probability)| {
                u128::from(value.as_ns()) * u128::from(probability.billionths())
            };
            pmf.iter().map(weigh).sum::<u128>() / u128::from(Probability::ONE.billionths())
        }
        Arrival::Trace(trace) => match (trace.values.first(), trace.values.last(), trace.values.len()) {
            (Some(first), Some(last), jobs @ 2..) => {
                u128::from(last.saturating_sub(*first).as_ns()) / (jobs as u128 - 1)
            }
            _ => return task.period,
        },
    };
    task.period.min(Span::from_ns(u64::try_from(mean_ns).unwrap_or(u64::MAX)))
}

/// Least cost of a job, whatever its wcet: to wake, to stamp and to go to sleep. Without this, jobs
/// that arrive faster than a thread can wake would spin at SCHED_FIFO.
const JOB_LEAST: Span = Span::from_us(10);

/// Parts per million of one CPU, rounded up, by the longest execution that the file allows.
pub(crate) fn load_ppm(task: &Task, interval: Span) -> u64 {
    let longest = match &task.exec {
        Exec::Wcet => task.wcet,
        Exec::Uniform { max, .. } => task.wcet.max(*max),
        Exec::Pmf(pmf) => pmf.iter().map(|(value, _)| *value).fold(task.wcet, Ord::max),
        Exec::Trace(trace) => trace.values.iter().copied().fold(task.wcet, Ord::max),
    };
    let ppm = (u128::from(longest.max(JOB_LEAST).as_ns()) * 1_000_000).div_ceil(u128::from(interval.as_ns().max(1)));
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

/// The largest share for real-time threads, in percent, even if the kernel sets no limit.
const RT_PERCENT_MAX: u64 = 95;

/// The share of a CPU that real-time threads may have, in percent.
pub(crate) fn allowed_percent(limits: &Limits) -> u64 {
    limits.rt_percent().min(RT_PERCENT_MAX)
}

/// Checks that tasks bound to a set of CPUs use at most the share of real-time threads. For
/// SCHED_DEADLINE the kernel checks this itself, unless its limit is off.
pub(crate) fn refuse_overload(system: &System, tasks: &[MappedTask], limits: &Limits) -> Result<(), RunError> {
    let counted = |task: &MappedTask| !matches!(task.class, Class::Deadline(_)) || limits.rt_runtime_us < 0;
    let allowed = allowed_percent(limits);
    let intervals = intervals(system);
    for cpus in tasks.iter().filter(|task| counted(task)).map(|task| task.cpus) {
        let bound = tasks.iter().filter(|task| counted(task) && task.cpus.is_subset(&cpus));
        let load = |task: &MappedTask| {
            let (task, interval) = system.tasks.get(task.id.index()).zip(intervals.get(task.id.index()))?;
            Some(load_ppm(task, *interval))
        };
        let used: u64 = bound.filter_map(load).fold(0, u64::saturating_add);
        let count = u64::from(cpus.len()).max(1);
        if used > allowed * 10_000 * count {
            let used = used.div_ceil(10_000 * count);
            return Err(RunError::Overload { cpus: list(&cpus), used, allowed });
        }
    }
    Ok(())
}

/// Working sets are touched and locked. Beyond three quarters of the available memory the kernel
/// would have to kill processes.
pub(crate) fn refuse_working_sets(
    system: &System,
    tasks: &[MappedTask],
    available: Option<u64>,
) -> Result<(), RunError> {
    let sets = tasks.iter().filter_map(|task| system.tasks.get(task.id.index())).map(|task| task.wss.get());
    let bytes = sets.fold(0u64, u64::saturating_add);
    match available.map(|available| available / 4 * 3) {
        Some(most) if bytes > most => Err(RunError::WorkingSets { bytes, most }),
        _ => Ok(()),
    }
}
