//! Numbers of a log: per task, chain and CPU, as docs/reference/statistics.md defines them.
//!
//! [`Collector`] is a [`crate::Sink`]: it counts while a back end runs or a log is read. [`Replications`] merges the
//! statistics of several runs.
//!
//! ```
//! use takt_log::{stats::Collector, Definitions, Event, JobKey, KindSet, Sink};
//! use takt_model::{Builtin, Span, System, Task, TaskId, Time};
//!
//! let task = Task::periodic("video", Span::from_ms(40), Span::from_ms(12));
//! let definitions = Definitions::of(&System::local(1, Builtin::Edf, vec![task]));
//! let mut collector = Collector::new(&definitions, KindSet::JOBS);
//! let job = JobKey { task: TaskId(0), number: 0 };
//! collector.event(0, Time::ZERO, &Event::Release { job, arrival: Time::ZERO, parent: None });
//! collector.event(0, Time::ZERO, &Event::Start { job, cpu: 0 });
//! collector.event(0, Time::from_ns(12_000_000), &Event::Complete { job, cpu: 0 });
//! let stats = collector.finish(Time::from_ns(80_000_000));
//! assert_eq!(stats.tasks[0].response_ns.unwrap().max, 12_000_000);
//! assert_eq!(stats.cpus[0].busy_ns, Some(12_000_000));
//! ```

mod collector;
mod histogram;
mod interrupts;
mod merge;
mod messages;
mod open;
mod quantity;
mod report;
mod servers;

use std::collections::BTreeMap;

use serde::Serialize;
use takt_model::{CpuSet, TaskId};

use crate::causes::Late;

pub use collector::Collector;
pub use histogram::{Bucket, Histogram, Summary};
pub use merge::{Interval, MergeError, Merged, Replications, TaskConfidence, TimeInterval};
pub use quantity::{Distribution, Point, Quantity};

/// CPUs of a node beyond these are not counted (a System has no more).
const CPUS_MAX: u32 = CpuSet::CPUS_MAX;
/// Interrupts without a definition are counted below this number.
const INTERRUPTS_MAX: usize = 4096;

/// The statistics of a log. Serialises to the JSON that `sim`, `run` and `stats` print.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Stats {
    /// How far the log reaches; of an interval ([`Collector::cut`]), how long it is.
    pub duration_ns: u64,
    /// By task, in the order of the System.
    pub tasks: Vec<TaskStats>,
    /// By chain.
    pub chains: Vec<ChainStats>,
    /// By CPU.
    pub cpus: Vec<CpuStats>,
    /// By server; absent where there are none, or their payments are not recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerStats>,
    /// By task that left messages; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageStats>,
    /// By interrupt and softirq; null where they are not recorded.
    pub interrupts: Option<Vec<InterruptStats>>,
    /// How many events the log is known to have lost; null where it lost some without knowing how many.
    pub lost_events: Option<u64>,
    /// Whether [`TaskStats::release_latency_ns`] holds the time behind more important tasks:
    /// without the kernel's account a release is stamped by its thread, once that runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub release_latency_waits: bool,
}

/// The outcomes of a task's jobs.
/// `released = completed + cancelled + rejected + unfinished - carried`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TaskStats {
    /// Its number.
    #[serde(skip)]
    pub id: TaskId,
    /// Its name.
    pub task: String,
    /// Its node's name.
    pub node: String,
    /// Jobs released whose fate is known.
    pub released: u64,
    /// Jobs that were open when the interval began; zero of a whole log.
    #[serde(skip_serializing_if = "is_zero")]
    pub carried: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Completed after the absolute deadline, or unfinished with it at or before the end; cancelled jobs are
    /// none. Null where the deadline or completions are unknown.
    pub missed: Option<u64>,
    /// Omitted, or shed with a predecessor.
    pub cancelled: u64,
    /// Not queued when they arrived, for too many of the task waited or ran.
    #[serde(skip_serializing_if = "is_zero")]
    pub rejected: u64,
    /// Open at the end, dropped at the deadline, or failed.
    pub unfinished: u64,
    /// Jobs of which lost events hide the release or the fate; in none of the other counts.
    pub censored: u64,
    /// Jobs released whose nominal arrival is only known to lie in a window; the latest possible one counts.
    pub uncertain: u64,
    /// The period or minimum inter-arrival time that it is known to have.
    pub period_ns: Option<u64>,
    /// The relative deadline, null where unknown.
    pub deadline_ns: Option<u64>,
    /// The worst-case execution time, or budget, that it is known to have.
    pub wcet_ns: Option<u64>,
    /// Completion minus nominal arrival.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub response_ns: Option<Summary<u64>>,
    /// Absolute deadline minus completion, negative when late.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub laxity_ns: Option<Summary<i64>>,
    /// How long completed jobs held CPUs.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub execution_ns: Option<Summary<u64>>,
    /// The same without the time in which interrupts and softirqs ran on these CPUs.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub execution_without_interrupts_ns: Option<Summary<u64>>,
    /// Between the nominal arrivals of jobs that follow each other, both exact.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub inter_arrival_ns: Option<Summary<u64>>,
    /// Start minus nominal arrival, of jobs that started.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub start_latency_ns: Option<Summary<u64>>,
    /// How long its jobs held CPUs, including jobs that did not complete. Null if the log does not
    /// record this.
    pub busy_ns: Option<u64>,
    /// `busy_ns` by duration: 1 is a whole CPU. Null where unknown, and of no time.
    pub utilization: Option<f64>,
    /// How often a running job with work left lost its CPU to another; null where not recorded, or
    /// where events were lost while a job was open.
    pub preemptions: Option<u64>,
    /// How often a job resumed on another CPU; null likewise.
    pub migrations: Option<u64>,
    /// Recorded release minus nominal arrival, of jobs that follow no other; only of live back ends.
    #[serde(serialize_with = "histogram::or_nulls_inside", skip_serializing_if = "Option::is_none")]
    pub release_latency_ns: Option<Option<Summary<u64>>>,
    /// Why its late jobs were late; null where the log does not tell. Only where somebody asked: [`Stats::explain`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Option<Late>>,
    /// All responses, for charts.
    #[serde(skip)]
    pub responses: Histogram,
    /// All executions; empty where they are unknown, like the next three.
    #[serde(skip)]
    pub executions: Histogram,
    /// All executions without interrupts.
    #[serde(skip)]
    pub net_executions: Histogram,
    /// All distances of nominal arrivals.
    #[serde(skip)]
    pub inter_arrivals: Histogram,
    /// All start latencies.
    #[serde(skip)]
    pub start_latencies: Histogram,
    /// All release latencies, for charts; where they are measured.
    #[serde(skip)]
    pub release_latencies: Option<Histogram>,
}

/// A chain's end-to-end responses.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChainStats {
    /// Its name.
    pub chain: String,
    /// The sink's completion minus the earliest nominal arrival of the instance's source jobs.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub response_ns: Option<Summary<u64>>,
    /// All responses, for charts.
    #[serde(skip)]
    pub responses: Histogram,
}

/// How busy a CPU was.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CpuStats {
    /// Its node's name.
    pub node: String,
    /// Its number.
    pub cpu: u32,
    /// The kernel's number of it, where the log tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cpu: Option<u32>,
    /// How long jobs held it; null where the back end does not record when jobs get and lose CPUs.
    pub busy_ns: Option<u64>,
    /// How long interrupts and softirqs ran on it; null where they are not recorded.
    pub interrupts_ns: Option<u64>,
    /// How long a job held it or an interrupt ran on it, or both; null where jobs' times are unknown.
    pub used_ns: Option<u64>,
    /// `used_ns` by duration. Null where unknown, and of no time.
    pub utilization: Option<f64>,
}

/// The payments of a server.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServerStats {
    /// Its component's name.
    pub server: String,
    /// Its node's name.
    pub node: String,
    /// Its rule.
    pub rule: String,
    /// Its period, null where unknown.
    pub period_ns: Option<u64>,
    /// Its budget, null where unknown.
    pub budget_ns: Option<u64>,
    /// How long it paid.
    pub supply_ns: u64,
    /// `supply_ns` by duration: 1 is a whole CPU. Null of no time.
    pub utilization: Option<f64>,
    /// How long it paid while none of its jobs ran: it was idle, or lent the CPU.
    pub idle_ns: u64,
    /// What its budget lost. Less than `supply_ns` under `grub`.
    pub paid_ns: u64,
    /// The longest supply in any interval as long as the period. Null where unknown.
    pub supply_max_ns: Option<u64>,
    /// How often its budget rose.
    pub replenishments: u64,
    /// How often its budget was used up.
    pub exhaustions: u64,
    /// How often it ran out of work.
    pub idles: u64,
}

/// Messages that were dropped, by [`crate::DropCause`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DropCounts {
    /// The network lost them.
    pub lost: u64,
    /// They came to a full queue.
    pub full: u64,
    /// Their deadlines had passed when they could be sent.
    pub late: u64,
    /// The log does not say why, or how the clock of the sender differed was not known.
    pub unknown: u64,
}

/// The messages that the jobs of a task left: of a flow's hop, or of time synchronisation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MessageStats {
    /// The task's number.
    #[serde(skip)]
    pub id: TaskId,
    /// The flow; null for messages of time synchronisation.
    pub flow: Option<String>,
    /// The hop that they leave, 0 is the first; null likewise.
    pub hop: Option<u32>,
    /// The task.
    pub task: String,
    /// Its node's name.
    pub node: String,
    /// Messages that the sending task gave to the network.
    pub sent: u64,
    /// Messages that the receiver's receiving task took.
    pub received: u64,
    /// Messages dropped on the way, or by a queue.
    pub dropped: u64,
    /// The same by cause.
    pub dropped_by: DropCounts,
    /// Bytes that left on the link of the node; absent where the log does not tell of links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// From send to the first bit on that link; absent where no message left on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_wait_ns: Option<Summary<u64>>,
    /// All of these times.
    #[serde(skip)]
    pub link_waits: Histogram,
    /// From send to receive, of messages whose send and receive are both in the log.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub transit_ns: Option<Summary<u64>>,
    /// All of these times.
    #[serde(skip)]
    pub transits: Histogram,
}

/// The statistics of an interrupt or softirq.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct InterruptStats {
    /// Its name.
    pub interrupt: String,
    /// Its node's name; null where it is not defined.
    pub node: Option<String>,
    /// `hard` or `soft`; null where it is not defined.
    pub kind: Option<&'static str>,
    /// How often its handler began.
    pub count: u64,
    /// Between the beginnings of handlers that follow each other, on whichever CPUs.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub inter_arrival_ns: Option<Summary<u64>>,
    /// The handler's run time, without the time of handlers nested in it.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub execution_ns: Option<Summary<u64>>,
    /// From the handler's beginning to its end.
    #[serde(serialize_with = "histogram::or_nulls")]
    pub execution_with_nested_ns: Option<Summary<u64>>,
    /// The sum of all executions, without nested ones.
    pub busy_ns: u64,
    /// `busy_ns` by duration: 1 is a whole CPU. Null of no time.
    pub utilization: Option<f64>,
    /// All distances.
    #[serde(skip)]
    pub inter_arrivals: Histogram,
    /// All executions.
    #[serde(skip)]
    pub executions: Histogram,
    /// All executions with nested ones.
    #[serde(skip)]
    pub totals: Histogram,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Stats {
    /// How many jobs missed, of the tasks where that is known.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.tasks.iter().filter_map(|task| task.missed).sum()
    }

    /// Takes in why jobs were late, as [`crate::causes::Causes::finish`] or
    /// [`crate::causes::Causes::cut`] found it.
    pub fn explain(&mut self, found: Option<&BTreeMap<TaskId, Late>>) {
        for task in &mut self.tasks {
            task.late = Some(found.and_then(|found| found.get(&task.id).cloned()));
        }
    }

    /// How many jobs were rejected: none of them was done, in time or late.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.tasks.iter().map(|task| task.rejected).sum()
    }

    /// How many messages of flows were dropped or lost. Their instances do not end, so no job of theirs is late.
    #[must_use]
    pub fn undelivered(&self) -> u64 {
        self.messages.iter().filter(|messages| messages.flow.is_some()).map(|messages| messages.dropped).sum()
    }
}
