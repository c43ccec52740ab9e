//! The faults that keep a set of operations from becoming a plan: all at once, a line each, with
//! the numbers.

use std::fmt;

use takt_linux::sched::FIFO_PRIORITY_MAX;
use takt_model::Span;
use takt_model::file::one_line;
use thiserror::Error;

/// The faults of a set of operations or of a System. Never empty if it comes from this crate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomalies(pub Vec<Anomaly>);

impl Anomalies {
    /// `Err` with the anomalies, or `Ok` with the value if there are none.
    pub(super) fn none_or<T>(anomalies: Vec<Anomaly>, value: T) -> Result<T, Anomalies> {
        if anomalies.is_empty() { Ok(value) } else { Err(Anomalies(anomalies)) }
    }

    /// The anomalies in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Anomaly> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Anomalies {
    type Item = &'a Anomaly;
    type IntoIter = std::slice::Iter<'a, Anomaly>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// One line each, without a newline at the end.
impl fmt::Display for Anomalies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|anomaly| one_line(&anomaly.to_string()).into_owned()).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Anomalies {}

impl Anomalies {
    /// Whether all of them are faults of the input: no machine could run such a System or strategy.
    #[must_use]
    pub fn are_input(&self) -> bool {
        let input = |anomaly: &Anomaly| {
            matches!(
                anomaly,
                Anomaly::System(_) | Anomaly::Empty { .. } | Anomaly::NoLevel { .. } | Anomaly::NoPriority { .. }
            )
        };
        self.0.iter().all(input)
    }
}

/// One fault. Its text says what, where, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Anomaly {
    /// There is nothing to plan.
    #[error("{of} has no operation to dispatch; add at least one")]
    Empty {
        /// The set or the node.
        of: String,
    },
    /// A name is invalid.
    #[error("the name of {of} {fault}")]
    Name {
        /// The set, or the operation by its position.
        of: String,
        /// The fault, and what to do.
        fault: &'static str,
    },
    /// Two operations of one name.
    #[error("a second operation is called \"{name}\"; give each its own name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A value out of its range.
    #[error("{key} {given} of {of} is out of range; {right}")]
    Value {
        /// The set or the operation.
        of: String,
        /// The key of the value.
        key: &'static str,
        /// The value given.
        given: String,
        /// The valid values.
        right: String,
    },
    /// An operation comes after others and names none.
    #[error(
        "operation \"{operation}\" arrives after others and names none; name its predecessors, or give it a \
         period or a distance"
    )]
    NoPredecessor {
        /// The operation.
        operation: String,
    },
    /// An operation comes after others and has an arrival of its own.
    #[error(
        "operation \"{operation}\" comes after others and has a period or a distance of its own; keep one of the two"
    )]
    TwoArrivals {
        /// The operation.
        operation: String,
    },
    /// A predecessor is named twice.
    #[error("operation \"{operation}\" comes after \"{predecessor}\" twice; once is enough")]
    Twice {
        /// The operation.
        operation: String,
        /// The predecessor.
        predecessor: String,
    },
    /// A predecessor does not exist.
    #[error(
        "operation \"{operation}\" comes after \"{predecessor}\", which does not exist; add it, or correct the name"
    )]
    Unresolved {
        /// The operation.
        operation: String,
        /// The missing predecessor.
        predecessor: String,
    },
    /// Operations wait for each other.
    #[error(
        "operations wait for each other in a circle: {}; one of them must not come after the others",
        circle(names)
    )]
    Cycle {
        /// The whole circle once. Each name comes after the name that it waits for; the first waits
        /// for the last.
        names: Vec<String>,
    },
    /// Predecessors have different periods.
    #[error(
        "operation \"{operation}\" comes after \"{first}\" with period {first_period} and \"{other}\" with \
         period {other_period}; they must have one period"
    )]
    Periods {
        /// The operation.
        operation: String,
        /// Its first predecessor.
        first: String,
        /// Its period.
        first_period: Span,
        /// Another predecessor.
        other: String,
        /// Its period.
        other_period: Span,
    },
    /// A fault within one of the set's modes.
    #[error("in mode \"{mode}\": {anomaly}")]
    InMode {
        /// Its name.
        mode: String,
        /// The fault.
        anomaly: Box<Anomaly>,
    },
    /// Two modes have the same name.
    #[error("a second mode is called \"{mode}\"; give each its own name")]
    DuplicateMode {
        /// The name.
        mode: String,
    },
    /// A mode names an operation that does not exist.
    #[error("{mode} speaks of operation \"{operation}\", which does not exist; add it, or correct the name")]
    UnknownInMode {
        /// The mode, or the start.
        mode: String,
        /// The missing operation.
        operation: String,
    },
    /// Only a part of a chain takes part in a mode.
    #[error(
        "{mode} leaves out \"{absent}\" and not \"{present}\", of the same chain; a chain takes part as a \
         whole or not at all"
    )]
    TornChain {
        /// The mode, or the start.
        mode: String,
        /// The operation that is left out.
        absent: String,
        /// The neighbour in the chain that is not left out.
        present: String,
    },
    /// A mode gives a period to an operation without a period of its own.
    #[error(
        "mode \"{mode}\" gives a period to operation \"{operation}\", which comes after others; give the period to \
         those"
    )]
    RateOfFollower {
        /// The mode.
        mode: String,
        /// The operation.
        operation: String,
    },
    /// An operation waits for several operations that a mode moves apart.
    #[error(
        "operation \"{operation}\" waits for \"{first}\" and \"{other}\", which have different offsets and \
         change with a mode: a switch between them would pair what does not belong together; give them the same offset"
    )]
    PartedJoin {
        /// The operation.
        operation: String,
        /// One of the sources of its chains.
        first: String,
        /// Another source.
        other: String,
    },
    /// No level takes the operation.
    #[error(
        "strategy \"{strategy}\" has no level for operation \"{operation}\"; end its levels with one that \
         takes the rest"
    )]
    NoLevel {
        /// The strategy.
        strategy: String,
        /// The operation.
        operation: String,
    },
    /// An operation lacks the priority that its level needs.
    #[error(
        "operation \"{operation}\" has no priority, which strategy \"{strategy}\" needs; give it a priority, 1 is the \
         most important"
    )]
    NoPriority {
        /// The strategy.
        strategy: String,
        /// The operation.
        operation: String,
    },
    /// SCHED_FIFO does not have these priorities, or takt may not use them.
    #[error(
        "SCHED_FIFO priorities {least} to {most} are out of range; 1 to {max} can be used, 99 is the kernel's own",
        max = FIFO_PRIORITY_MAX
    )]
    Priorities {
        /// The least important.
        least: u8,
        /// The most important.
        most: u8,
    },
    /// There are more levels than priorities.
    #[error(
        "strategy \"{strategy}\" needs {needed} SCHED_FIFO priorities ({levels} for levels{}, 1 for timers{}), \
         and there are {there}; allow more (98 at most), {}",
        if *nests { ", as deep as jobs preempt each other" } else { "" },
        match demoted { 0 => String::new(), demoted => format!(", {demoted} for demoted jobs") },
        if *nests {
            "or let jobs of a level run to completion: preemptive = false, which takt size --run-to-completion \
             FILE -o FILE writes"
        } else {
            "or choose a strategy with fewer levels"
        }
    )]
    TooFewPriorities {
        /// The strategy with the most levels.
        strategy: String,
        /// The number of priorities for its levels.
        levels: usize,
        /// The number of priorities for demoted jobs.
        demoted: usize,
        /// Whether jobs of a level preempt each other.
        nests: bool,
        /// The number of priorities needed.
        needed: usize,
        /// The number of priorities available.
        there: usize,
    },
    /// Critical operations overload a CPU.
    #[error(
        "critical operations need {} of CPU {cpu}, and may have {}; lower their rates or wcets, move some to \
         another CPU, or call fewer critical",
        percent(*used_ppm), percent(u64::from(*bound_ppm))
    )]
    CriticalUtilization {
        /// The CPU.
        cpu: u32,
        /// Their demand in millionths of it, rounded up.
        used_ppm: u64,
        /// Their limit in millionths of it.
        bound_ppm: u32,
    },
    /// Noncritical operations overload a CPU.
    #[error(
        "noncritical operations need {} of CPU {cpu}, and may have {}; lower their rates or wcets, move some \
         to another CPU, or allow overload",
        percent(*used_ppm), percent(u64::from(*bound_ppm))
    )]
    NoncriticalUtilization {
        /// The CPU.
        cpu: u32,
        /// Their demand in millionths of it, rounded up.
        used_ppm: u64,
        /// Their limit in millionths of it.
        bound_ppm: u32,
    },
    /// All operations together overload a CPU.
    #[error(
        "operations need {} of CPU {cpu}, critical ones {} of it, and may have {}; lower their rates or wcets, \
         move some to another CPU, or allow overload",
        percent(*used_ppm), percent(*critical_ppm), percent(u64::from(*bound_ppm))
    )]
    TotalUtilization {
        /// The CPU.
        cpu: u32,
        /// Their demand in millionths of it, rounded up.
        used_ppm: u64,
        /// The critical part of the demand, rounded up.
        critical_ppm: u64,
        /// Their limit in millionths of it.
        bound_ppm: u32,
    },
    /// An operation is late even if it runs alone.
    #[error(
        "wcet {wcet} of operation \"{operation}\" exceeds its deadline {deadline}; shorten it, or give it more time"
    )]
    WcetAboveDeadline {
        /// The operation.
        operation: String,
        /// Its execution time.
        wcet: Span,
        /// Its relative deadline.
        deadline: Span,
    },
    /// A critical operation can be late because another job of its level has started before.
    #[error(
        "critical operation \"{operation}\" can wait {blocking} for \"{by}\", which runs to completion in the \
         same level of strategy \"{strategy}\": with its wcet {wcet} that exceeds its deadline {deadline}; \
         separate their levels or CPUs, or split \"{by}\""
    )]
    Blocking {
        /// The critical operation.
        operation: String,
        /// The operation that blocks it.
        by: String,
        /// The strategy that puts both into one level.
        strategy: String,
        /// The longest blocking.
        blocking: Span,
        /// The critical operation's own execution time.
        wcet: Span,
        /// Its relative deadline.
        deadline: Span,
    },
    /// A job of a critical operation can be rejected although none is late.
    #[error(
        "critical operation \"{operation}\" may have {needed} jobs at once though none is late, and its backlog \
         is {backlog}: the next job would be rejected; give it a backlog of {needed}, or none, or an earlier \
         deadline (also to the operations before it)"
    )]
    Backlog {
        /// The operation.
        operation: String,
        /// The backlog.
        backlog: u32,
        /// The number of jobs that can wait or run at once.
        needed: u32,
    },
    /// The System does not have this node.
    #[error("the system has no node number {0}")]
    NoNode(u32),
    /// A task of a System may run on several CPUs.
    #[error(
        "task \"{operation}\" is bound to no single CPU of node \"{node}\", and a dispatcher queues by CPU; \
         write cpus = [..] with one CPU, or placement = \"partitioned\" for the node, under which takt chooses"
    )]
    Unplaced {
        /// The task.
        operation: String,
        /// The node.
        node: String,
    },
    /// The dispatcher does not support a part of a System.
    #[error("{part} \"{name}\" cannot be dispatched by this version: {why}")]
    Unsupported {
        /// The kind of part.
        part: &'static str,
        /// Its name.
        name: String,
        /// The reason, and what to do.
        why: &'static str,
    },
    /// The System breaks a rule of System files.
    #[error("{0}")]
    System(String),
}

/// The most names of a circle that are listed.
const SPELLED_MAX: usize = 8;

/// `"a" -> "b" -> "a"`; for a long circle the first names and their number.
fn circle(names: &[String]) -> String {
    let quoted = |name: &String| format!("\"{name}\" -> ");
    let mut text: String = names.iter().take(SPELLED_MAX).map(quoted).collect();
    let long = names.len() > SPELLED_MAX;
    text.push_str(if long { "... -> " } else { "" });
    text.push_str(&names.first().map_or(String::new(), |name| format!("\"{name}\"")));
    text.push_str(&if long { format!(" ({} in all)", names.len()) } else { String::new() });
    text
}

/// Millionths as percent, exactly.
fn percent(ppm: u64) -> String {
    let (whole, rest) = (ppm / 10_000, ppm % 10_000);
    let decimals = format!(".{rest:04}");
    let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
    format!("{whole}{decimals} %")
}

impl Anomaly {
    /// Whether the anomaly only says that deadlines can be missed. Such a plan can still run.
    #[must_use]
    pub fn is_lateness(&self) -> bool {
        match self {
            Anomaly::CriticalUtilization { .. }
            | Anomaly::NoncriticalUtilization { .. }
            | Anomaly::TotalUtilization { .. }
            | Anomaly::WcetAboveDeadline { .. }
            | Anomaly::Backlog { .. }
            | Anomaly::Blocking { .. } => true,
            Anomaly::InMode { anomaly, .. } => anomaly.is_lateness(),
            _ => false,
        }
    }
}
