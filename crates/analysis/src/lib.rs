//! Schedulability tests and partitioning: from a System to verdicts with evidence.
//!
//! [`check`] runs the tests that fit a System, the cheapest first; [`catalogue`] lists them; [`place`]
//! binds the tasks of partitioned and clustered nodes to CPUs. Each test is one module that cites its
//! source, keeps its symbols, and can be called alone on plain slices.
//!
//! Times are whole nanoseconds. No float decides: tests compute in integers and exact rationals, or
//! round to the safe side with the side in the name. Every fixed point has a named iteration limit,
//! and [`Answer::Unknown`] is an answer.
//!
//! A verdict assumes three things. Jobs never run longer than their `wcet`. They arrive no closer
//! than their period. The scheduler is the one that the System names. Offsets are ignored, which is
//! safe. Only the test `offsets` uses them, and its answer holds for these offsets alone.
//!
//! ```
//! use takt_analysis::{Answer, CheckOptions, check};
//! use takt_model::{Builtin, Span, System, Task};
//!
//! let task = |name, t, c| Task::periodic(name, Span::from_ms(t), Span::from_ms(c));
//! let system = System::local(1, Builtin::Rm, vec![task("fast", 4, 1), task("slow", 6, 3)]);
//! let report = check(&system, &CheckOptions::default());
//! assert_eq!(report.schedulable, Answer::Yes);
//! ```

pub mod admit;
mod apply;
#[cfg(test)]
mod brute;
mod carried;
mod catalogue;
pub mod certify;
mod chains;
mod check;
mod components;
pub mod compositional;
pub mod distributed;
pub mod edf;
mod exact;
pub mod fp;
pub mod global;
pub mod linux;
mod memo;
pub mod partition;
mod pmf;
pub mod portfolio;
mod question;
mod recip;
mod report;
pub mod reservation;
mod responses;
mod scope;
pub mod sensitivity;
mod server;
mod server_costs;
mod sizing;
mod verdict;
pub mod verify;
pub mod window;

pub use admit::Admission;
pub use catalogue::{Kind, TestId, TestInfo, catalogue};
pub use certify::{Uncertified, certify};
pub use check::{CheckOptions, check, check_watched, contradictions, equally_critical};
pub use compositional::{SizeError, SizedComponent, SizedSystem};
pub use linux::LinuxMachine;
pub use partition::{Bin, NodePlacement, PlaceError, Placed, place, place_regardless};
pub use report::{CheckReport, FlowReport, Progress, TaskReport, TestReport};
pub use sensitivity::{Sensitivity, sensitivity};
pub use sizing::size;
pub use verdict::{Answer, Bound, Stop, Verdict};
