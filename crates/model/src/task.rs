//! A task: when its jobs arrive, how long they execute, and by when they are due.

use std::sync::Arc;

use crate::cpus::CpuSet;
use crate::criticality::Criticality;
use crate::ids::{ComponentId, NodeId, TaskId};
use crate::strategy::Late;
use crate::time::Span;
use crate::units::{Bytes, Probability};

/// The points at which a job of a task may lose its CPU to a more important one, by its received
/// CPU time. A job may be preempted at the start of a section, but not within it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Preemption {
    /// Anywhere.
    #[default]
    Anywhere,
    /// Anywhere but in the last section, of this length: from when less than that is left of its WCET.
    Until(Span),
    /// Only between sections of these lengths, which add up to its WCET.
    Between(Vec<Span>),
}

/// A task (`[[task]]`). Jobs of one task run in the order of their release, never two at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Unique name.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// The component that it stands in.
    pub component: Option<ComponentId>,
    /// CPUs of the node that it may use; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Period, or minimum inter-arrival time of a sporadic task; of a chain's successor, that of its sources.
    pub period: Span,
    /// Relative to the nominal arrival.
    pub deadline: Span,
    /// Nominal arrival of the first job (zero for a chain's successor).
    pub offset: Span,
    /// A job is released after its nominal arrival by up to this. A job is never released before
    /// an earlier one of the same task.
    pub jitter: Span,
    /// Worst-case execution time, at least 1 ns.
    pub wcet: Span,
    /// The longest section of less important work that can delay it; for analysis.
    pub blocking: Span,
    /// Actual execution times.
    pub exec: Exec,
    /// Actual arrivals.
    pub arrival: Arrival,
    /// Whether it may be cancelled.
    pub criticality: Criticality,
    /// Whether the file states that its criticality is high, which is the default as well.
    pub criticality_stated: bool,
    /// Tie-breaker or level of strategies that use it; larger is more important.
    pub importance: u32,
    /// For fixed priority; 1 is the most important.
    pub priority: Option<u32>,
    /// The rule for its late jobs; `None`: its level's rule.
    pub late: Option<Late>,
    /// Whether its jobs are omitted once they can no longer be in time, if it is of low
    /// criticality; `None`: what its node says.
    pub cancel: Option<bool>,
    /// The points at which its jobs may be preempted.
    pub preemption: Preemption,
    /// Memory that each job touches in a live run.
    pub wss: Bytes,
    /// Job k is released when job k of all of these has completed.
    pub after: Vec<TaskId>,
}

/// Actual execution times of a task's jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Exec {
    /// Always the WCET.
    #[default]
    Wcet,
    /// Uniform over whole nanoseconds, both ends included.
    Uniform {
        /// Shortest.
        min: Span,
        /// Longest.
        max: Span,
    },
    /// One of these with its probability; the probabilities sum to one.
    Pmf(Vec<(Span, Probability)>),
    /// Job k takes value k modulo the number of values.
    Trace(Trace),
}

/// Actual arrivals of a task's jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Arrival {
    /// offset + k * period.
    #[default]
    Periodic,
    /// The first at the offset, the others at distances drawn uniformly from [period, 2 period].
    Sporadic,
    /// The first at the offset, the others at distances drawn from these; the probabilities sum to one.
    Pmf(Vec<(Span, Probability)>),
    /// Nominal arrivals at offset + value k, ascending; none after the last. Loading counts instants from the first,
    /// whose value is then zero.
    Trace(Trace),
}

/// A file of durations: one a line, `#` starts a comment, a number without a unit is nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The path as the System file gives it.
    pub path: String,
    /// The values; empty until loaded (the model itself opens no file).
    pub values: Arc<[Span]>,
}

impl Task {
    /// A periodic task with an implicit deadline on the first node, everything else at its default.
    #[must_use]
    pub fn periodic(name: &str, period: Span, wcet: Span) -> Self {
        Task {
            name: name.to_owned(),
            node: NodeId(0),
            component: None,
            cpus: None,
            period,
            deadline: period,
            offset: Span::ZERO,
            jitter: Span::ZERO,
            wcet,
            blocking: Span::ZERO,
            exec: Exec::Wcet,
            arrival: Arrival::Periodic,
            criticality: Criticality::High,
            criticality_stated: false,
            importance: 0,
            priority: None,
            late: None,
            cancel: None,
            preemption: Preemption::Anywhere,
            wss: Bytes::default(),
            after: Vec::new(),
        }
    }

    /// The sections of its jobs that nothing preempts, in order. Each is a range of received CPU
    /// time, and none is empty. If the sections do not add up to the WCET, the last one takes the
    /// difference.
    #[must_use]
    pub fn sections(&self) -> Vec<(Span, Span)> {
        match &self.preemption {
            Preemption::Anywhere => Vec::new(),
            Preemption::Until(last) => vec![(self.wcet.saturating_sub(*last), self.wcet)],
            Preemption::Between(lengths) => {
                let mut sections = Vec::with_capacity(lengths.len());
                let mut from = Span::ZERO;
                for (at, length) in lengths.iter().enumerate() {
                    let to = from.saturating_add(*length).min(self.wcet);
                    let to = if at + 1 == lengths.len() { self.wcet } else { to };
                    if from < to {
                        sections.push((from, to));
                    }
                    from = to;
                }
                sections
            }
        }
    }
}
