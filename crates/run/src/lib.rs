//! Live back ends: a System's tasks as real threads of this kernel.
//!
//! The function [`prepare`] maps one node's tasks to scheduling classes and reports what this
//! version cannot run. Then [`Prepared::run`] runs the tasks and hands every event to a [`Sink`] in
//! time order; [`run`] does both. See docs/explanation/run.md for the threads and their stamps, and
//! docs/reference/privilege.md for privileges.
//!
//! Invariants:
//! - A run is bounded in time: every thread checks the clock while it works, and waits with a
//!   timeout.
//! - Nothing on a real-time path allocates, locks or does I/O.
//! - Each thread sets its own class and gives it back.
//! - Every change to the machine is undone on every way out. After a kill -9 the next start of takt
//!   undoes it.
//!
//! ```no_run
//! use takt_log::Event;
//! use takt_model::{Builtin, Span, System, Task, Time};
//!
//! let ms = Span::from_ms;
//! let tasks = vec![Task::periodic("control", ms(10), ms(2)), Task::periodic("video", ms(40), ms(12))];
//! let system = System::local(1, Builtin::Rm, tasks);
//! let mut events: Vec<(u32, Time, Event)> = Vec::new();
//! let summary = takt_run::run(&system, &takt_run::RunOptions::new(ms(200)), &mut events)?;
//! assert_eq!(summary.tasks[0].class, "SCHED_FIFO priority 48");
//! # Ok::<(), takt_run::RunError>(())
//! ```

mod account;
mod backend;
pub mod broker;
mod budgets;
pub mod clock_source;
mod contract;
mod deadline;
mod demand;
mod dispatched;
mod error;
mod foreign;
mod foreigners;
mod handle;
pub mod handlers;
mod kernel;
pub mod lab;
mod lanes;
mod levels;
pub mod load;
mod log_head;
mod manager;
mod mapped;
mod mapping;
mod membership;
pub mod node;
mod prepare;
pub mod probe;
mod record;
pub mod reserve;
mod run_notes;
mod run_threads;
mod seal;
mod served;
mod start;
mod threads;
pub mod time_sync;
mod watching;
mod work;

use takt_log::Sink;
use takt_log::stats::Summary;
use takt_model::{NodeId, Span, System, Time};

/// The crate of [`log::Sink`], which receives events.
pub use takt_log as log;
/// The crate of Systems, strategies and times, and of this crate's own types.
pub use takt_model as model;

pub use backend::contracts;
pub use contract::{Contract, Obstacle, ServerBackEnd};
pub use error::RunError;
pub use handle::{Effect, LiveChange, LiveError, RunHandle};
pub use kernel::TraceError;
pub use levels::BACKLOG;
pub use prepare::{prepare, prepare_adaptive, prepare_node};
pub use start::Progress;
pub use takt_dispatch::Recorded;
pub use takt_linux::signals::Signal;
pub use watching::recorded;

/// The examples of docs/reference/dispatcher.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/dispatcher.md")]
mod manual {}

/// Options of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// The node to run; `None` if the System has only one.
    pub node: Option<NodeId>,
    /// Jobs are released in [0, duration), and the run stops there. At most [`Span::FILE_MAX`].
    pub duration: Span,
    /// Seed of execution times, jitter and distances, as in a simulation.
    pub seed: u64,
    /// Run under SCHED_OTHER: no privilege, no guarantee.
    pub best_effort: bool,
    /// Run even if the tasks use more of the CPUs than the kernel lets real-time threads have.
    pub force: bool,
    /// Reservation of a SCHED_DEADLINE thread beyond its WCET.
    pub margin: Margin,
    /// The greatest SCHED_FIFO priority, 1 to 98: of the most important level, or of the
    /// dispatcher's timer just above. The default, 48, stays below the interrupt threads of a
    /// PREEMPT_RT kernel (50). A strategy with more levels raises it as far as needed, and a note
    /// says so.
    pub top_priority: u8,
    /// Whether the kernel's account of the run is recorded, too.
    pub trace: Trace,
    /// The back end that keeps the budgets of components. `None` chooses the first of [`ServerBackEnd::ALL`] that can.
    pub back_end: Option<ServerBackEnd>,
    /// Whether this program calls [`takt_linux::guardian::guardian`] first of all. Then a child
    /// process removes the recorder if this process is killed, and gives existing threads back what
    /// they had. Otherwise the next start does both.
    pub guardian: bool,
}

/// Whether a run records the kernel's account, which tells when its threads had a CPU. Without the
/// account, preemptions, migrations and CPU times of jobs are unknown. Recording takes root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trace {
    /// No.
    Never,
    /// If this user may; otherwise a note gives the reason.
    #[default]
    WherePossible,
    /// Always; if recording is impossible, nothing runs.
    Always,
}

impl RunOptions {
    /// All options at their defaults, except the duration.
    #[must_use]
    pub fn new(duration: Span) -> Self {
        RunOptions {
            node: None,
            duration,
            seed: 0,
            best_effort: false,
            force: false,
            margin: Margin::default(),
            top_priority: 48,
            trace: Trace::default(),
            back_end: None,
            guardian: false,
        }
    }
}

/// The part of a SCHED_DEADLINE reservation beyond the task's WCET: a share of the WCET, but at
/// least `least`. The margin covers waking, stamping and going to sleep, which the kernel charges
/// to the thread (docs/explanation/run.md has the figures).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Margin {
    /// Share of the WCET, in percent.
    pub percent: u32,
    /// Least.
    pub least: Span,
}

impl Default for Margin {
    /// 5 %, at least 200 us.
    fn default() -> Self {
        Margin { percent: 5, least: Span::from_us(200) }
    }
}

/// A System mapped to this machine, ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) system: std::sync::Arc<System>,
    pub(crate) options: RunOptions,
    pub(crate) node: NodeId,
    pub(crate) mapping: mapping::Mapping,
    /// The plan for takt's dispatcher, if the kernel's classes cannot express the System.
    pub(crate) dispatched: Option<Box<takt_dispatch::Plan>>,
    /// The controller that switches between the strategies of the plan.
    pub(crate) adaptive: Option<takt_dispatch::Adaptive>,
    /// The budget managers of a node with components.
    pub(crate) managed: Option<manager::Managed>,
    /// The servers of a node under sched_ext.
    pub(crate) served: Option<std::sync::Arc<served::ServedPlan>>,
    /// The back end of a node with components.
    pub(crate) back_end: Option<ServerBackEnd>,
}

impl Prepared {
    /// The node that will run.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The plan of takt's dispatcher, if the dispatcher runs the System.
    #[must_use]
    pub fn plan(&self) -> Option<&takt_dispatch::Plan> {
        self.dispatched.as_deref()
    }

    /// The back end of the node's components, if it has any.
    #[must_use]
    pub fn server_back_end(&self) -> Option<ServerBackEnd> {
        self.back_end
    }

    /// The controller that switches between the strategies of [`Prepared::plan`], if any.
    #[must_use]
    pub fn adaptive(&self) -> Option<&takt_dispatch::Adaptive> {
        self.adaptive.as_ref()
    }
}

/// A System ready to run, with the kernel's recorder open if possible.
pub struct Ready {
    pub(crate) prepared: Prepared,
    pub(crate) kernel: Option<kernel::Kernel>,
}

/// The outcome of a run, besides its events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSummary {
    /// The node that ran; also the number of the events' stream.
    pub node: NodeId,
    /// Whether it ran under SCHED_OTHER.
    pub best_effort: bool,
    /// The end of the run: the requested duration, or earlier after a signal.
    pub end: Time,
    /// The signal that ended it early.
    pub interrupted: Option<Signal>,
    /// Differences from the request, and causes of doubtful figures: sentences for the screen and
    /// the log.
    pub notes: Vec<String>,
    /// Per task of the node, in file order.
    pub tasks: Vec<TaskSummary>,
    /// The budget managers of a node with components, by CPU, or the threads that make a sched_ext scheduler
    /// decide;
    /// else none.
    pub managers: Vec<ManagerSummary>,
    /// The components of existing threads; else none.
    pub foreign: Vec<ForeignSummary>,
    /// The messages of a node with flows; `None` of others.
    pub flows: Option<node::NodeSummary>,
    /// Events that found a full buffer. The log has a `Lost` where they would stand.
    pub lost: u64,
    /// The recording of the kernel; `None` if there was none.
    pub recorded: Option<Recorded>,
    /// CPU time that the hypervisor took during the run, over all CPUs; `None` if unknown.
    pub steal: Option<Span>,
}

/// How a budget manager did, or a sched_ext scheduler with the thread that makes it decide. Times in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerSummary {
    /// Its CPU in the model.
    pub cpu: u32,
    /// The CPUs whose jobs it schedules.
    pub cpus: Vec<u32>,
    /// The class that it ran under.
    pub class: String,
    /// How often it decided.
    pub decisions: u64,
    /// How often it took the CPU from a job that was not complete.
    pub preemptions: u64,
    /// From its wake-up to the end of its decision, with threads woken and frozen. `None` under sched_ext.
    pub cost: Option<Summary<u64>>,
    /// From an instant of the plan to its wake-up. This is the granularity of budgets.
    pub late: Option<Summary<u64>>,
    /// The same where a budget came back at that instant.
    pub late_replenishments: Option<Summary<u64>>,
    /// Its CPU time and that of its helper threads, switches included as far as the kernel charges them.
    pub used: Span,
    /// Its share of its CPU, in parts per million.
    pub share_ppm: u64,
}

/// How the existing threads of a component did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignSummary {
    /// The component.
    pub component: String,
    /// Its threads, as the System names them.
    pub threads: String,
    /// The most threads that it had at a time.
    pub count: usize,
    /// Their CPU time during the run, as the kernel counts it.
    pub used: Span,
    /// How long the component had the CPU by the plan, payments included.
    pub turns: Span,
    /// The most CPU time that they owed at a time.
    pub owed_max: Span,
}

/// Comparison of a task's stamps with the kernel's account, which tells when the thread had a CPU.
/// Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamps {
    /// Completed jobs with stamps of start and completion that the kernel's account confirms or
    /// denies.
    pub checked: u64,
    /// Jobs among these with a stamp before the time at which the kernel gave their thread a CPU.
    pub contradicted: u64,
    /// From the kernel's start in the log to the thread's stamp, for jobs whose thread was woken.
    pub start: Option<Summary<u64>>,
    /// From the stamp of a completion until the thread left its CPU, if it left before its next
    /// job.
    pub complete: Option<Summary<u64>>,
    /// From the nominal arrival to the stamp of the woken thread. This is the release latency
    /// without the kernel's account.
    pub release_latency: Option<Summary<u64>>,
}

/// The outcome of one task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSummary {
    /// Its name.
    pub name: String,
    /// The class that it ran under, with parameters.
    pub class: String,
    /// Jobs that completed.
    pub completed: u64,
    /// Jobs that used more CPU time than their SCHED_DEADLINE reservation holds: the kernel
    /// throttles them, at a tick, until the reservation's next period. `None` for other classes.
    pub overruns: Option<u64>,
    /// How often the kernel throttled the thread. `None` for other classes, and before Linux 7.0.
    pub throttled: Option<u64>,
    /// Mean CPU time per completed job beyond the job's demand: waking, stamping, going to sleep.
    pub overhead: Span,
    /// The checked stamps; `None` without a recording of the kernel.
    pub stamps: Option<Stamps>,
    /// Causes of late jobs; `None` without a recording of the kernel.
    pub late: Option<takt_log::causes::Late>,
}

/// Runs the tasks of one node as threads of this kernel and hands every event to `sink`; the stream
/// is the node's number.
///
/// # Errors
/// Unsupported parts, an unsuitable machine, or a missing privilege. Nothing has run then, and
/// nothing stays changed.
pub fn run(system: &System, options: &RunOptions, sink: &mut impl Sink) -> Result<RunSummary, RunError> {
    prepare(system, options)?.run(sink, &mut |_| {})
}
