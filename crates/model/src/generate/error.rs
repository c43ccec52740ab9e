//! Limits of generated sets, and why nothing can be generated.

use thiserror::Error;

use crate::time::Span;

/// The most vectors that UUniFast discards for one set.
pub const DISCARDS_MAX: u32 = 10_000;
/// The most tasks in a set.
pub const TASKS_MAX: usize = 10_000;

/// The reason why nothing can be generated.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum GenerateError {
    /// No task, or too many.
    #[error("{tasks} tasks: a set has 1 to {TASKS_MAX}")]
    Tasks {
        /// How many.
        tasks: usize,
    },
    /// The number of limits is neither 1 nor the number of tasks.
    #[error("{limits} limits for {tasks} tasks: give one for all, or one for each")]
    Limits {
        /// How many limits.
        limits: usize,
        /// How many tasks.
        tasks: usize,
    },
    /// A pair of limits violates 0 <= least <= most <= 1.
    #[error("a task's utilization from {least} to {most}: limits lie between 0 and 1, the least before the most")]
    Limit {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// randfixedsum cannot take limits that differ.
    #[error("randfixedsum takes one limit for all tasks; cfs takes one for each")]
    LimitsDiffer,
    /// A utilisation that the limits do not allow.
    #[error("utilization {utilization}: {}", allowed(.least, .most))]
    Utilization {
        /// What was asked for.
        utilization: f64,
        /// The sum of the least.
        least: f64,
        /// The sum of the most.
        most: f64,
    },
    /// No period is possible.
    #[error("no period is possible: no multiple of the grain {grain} fits --periods, --range and --hyperperiod")]
    Periods {
        /// Periods are multiples of this.
        grain: Span,
    },
    /// Factors violate 0 <= from <= to <= 1000.
    #[error("deadline factors from {from} to {to}: they lie between 0 and 1000, the smaller one first")]
    Deadlines {
        /// The smallest factor.
        from: f64,
        /// The largest.
        to: f64,
    },
    /// UUniFast found no vector within the limits.
    #[error(
        "set {number}: uunifast-discard drew {DISCARDS_MAX} vectors of utilizations, none within the limits; \
         randfixedsum and cfs discard none"
    )]
    Discarded {
        /// The set.
        number: u64,
    },
    /// Tasks of one grain each exceed the utilisation.
    #[error(
        "set {number}: its tasks exceed utilization {utilization} with a wcet of {grain} each, which is the grain; \
         take a finer grain, longer periods or fewer tasks"
    )]
    Grain {
        /// The set.
        number: u64,
        /// What was asked for.
        utilization: f64,
        /// The grain.
        grain: Span,
    },
    /// No CPU, or more than a node may have.
    #[error("{cpus} CPUs: a node has 1 to {}", crate::CpuSet::CPUS_MAX)]
    Cpus {
        /// How many.
        cpus: u32,
    },
    /// The first runnable alone exceeds the utilisation.
    #[error("utilization {utilization} is too little for a single runnable; ask for more")]
    NoTask {
        /// What was asked for.
        utilization: f64,
    },
}

fn allowed(least: &f64, most: &f64) -> String {
    if *least > 0.0 {
        format!("the limits of the tasks leave {least} to {most}")
    } else {
        format!("it must be above 0 and at most {most} here")
    }
}
