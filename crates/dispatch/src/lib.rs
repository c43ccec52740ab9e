//! A dispatcher in a program: operations (callbacks) on ordinary SCHED_FIFO threads, after [KOKYU
//! II-B].
//!
//! [`Operations`] say what should run, how often and how long. A [`Strategy`](takt_model::Strategy)
//! gives the order. [`Operations::compute`] makes a [`Plan`] of both, or reports all faults
//! ([`Anomalies`]). A plan gives each operation a level and a static place in it. Each level has a
//! discipline and a SCHED_FIFO priority. Between levels the kernel preempts. Within a level jobs
//! run to completion, in the order of its discipline, or preempt each other
//! ([`Limits::preemptive`]).
//!
//! A plan holds an equivalent [`System`](takt_model::System), preemption included. `takt check`
//! proves it and `takt sim` simulates it. A System file makes a plan as well ([`Plan::compute`]).
//! The existence of a plan does not prove that all deadlines are met: `compute` only looks for
//! witnesses against it. `check` gives the proof.
//!
//! Units: times are [`Span`](takt_model::Span)s in nanoseconds, shares of a CPU are millionths
//! (`ppm`). Plans are pure: no clock, no I/O, no thread.
//!
//! ```
//! use takt_model::{Builtin, Span};
//! use takt_dispatch::{Limits, Operation, Operations};
//!
//! let ms = Span::from_ms;
//! let operations = Operations::new("flight")
//!     .with(Operation::periodic("control", ms(25)).wcet(ms(5)))
//!     .with(Operation::sporadic("alarm", ms(50)).wcet(ms(1)).deadline(ms(10)))
//!     .with(Operation::periodic("route", ms(50)).wcet(ms(20)).noncritical())
//!     .with(Operation::after("display", ["route"]).wcet(ms(4)).noncritical());
//! let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?;
//! assert_eq!(
//!     plan.to_string(),
//!     "\
//! strategy muf, run to completion; SCHED_FIFO: timers 48
//! level  discipline  priority  subpriority  operation  period  wcet  deadline  criticality
//!     0  laxity            47            0  control      25ms   5ms      25ms  high
//!     0  laxity            47            1  alarm      >=50ms   1ms      10ms  high
//!     1  laxity            46            0  route        50ms  20ms      50ms  low
//!     1  laxity            46            1  display      50ms   4ms      50ms  low
//! "
//! );
//! // With one level for all, "route" may just have started when "alarm" comes.
//! let anomalies = operations.compute(&Builtin::Edf.strategy(), &Limits::default()).unwrap_err();
//! assert_eq!(
//!     anomalies.to_string(),
//!     "critical operation \"alarm\" can wait 19.999999ms for \"route\", which runs to completion in the \
//!      same level of strategy \"edf\": with its wcet 1ms that exceeds its deadline 10ms; \
//!      separate their levels or CPUs, or split \"route\""
//! );
//! # Ok::<(), takt_dispatch::Anomalies>(())
//! ```

mod account;
mod adaptive;
mod anomaly;
mod bits;
pub mod bound;
mod bounds;
#[cfg(feature = "tokio")]
pub mod bridge;
mod build;
mod completion;
mod compute;
mod core;
pub mod deadline;
mod error;
pub mod event;
mod fact;
mod fact_log;
pub mod gate;
mod graph;
mod live;
#[cfg(test)]
pub(crate) mod live_model;
mod mode;
mod operation;
mod options;
mod plan;
mod queues;
mod rate;
mod rehearse;
pub mod ring;
mod running;
mod source;
mod stopped;
mod sync;

/// The crate of [`log::Sink`], which receives events.
pub use takt_log as log;
/// The crate of Systems, strategies and times.
pub use takt_model as model;

pub use self::core::Counts;
pub use account::{KernelAccount, KernelEnd, OwnAccount, PlanThread, Recorded, causes};
pub use adaptive::{Adaptive, notes_of_guard};
pub use anomaly::{Anomalies, Anomaly};
pub use completion::{TO_COMPLETION, to_completion};
pub use error::{PushError, ReleaseError, StartError};
pub(crate) use live::{DeferredWakeups, IDLE_MAX};
pub use live::{Job, Overran, Overruns, Switched};
pub use mode::OperatingMode;
pub use operation::{Arrives, Operation, Operations};
pub use options::Options;
pub use plan::{BACKLOG_MAX, Limits, Overrun, Plan, PlanLevelRow, PlanMode, Row, THREADS_MAX};
pub use queues::{Queues, Ticket};
pub use running::{Dispatcher, Dispatching, Handle, KINDS};
pub use stopped::{StopError, Stopped};
pub use takt_log::causes::{Cause, Disturbance, Late};

/// The examples of the lesson and the how-to guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial/program-rust.md")]
#[doc = include_str!("../../../docs/how-to/bound-a-queue.md")]
mod lessons {}
