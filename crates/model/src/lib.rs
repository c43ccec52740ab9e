//! The model of a system: time, the System and its file, strategies, imports.
//!
//! Everything here is pure: no clock, no file, no thread. Times are integers in nanoseconds.

#[macro_use]
mod names;

pub mod admission;
mod chain;
pub mod cpus;
mod criticality;
pub mod draw;
mod drift;
pub mod file;
pub mod flows;
pub mod generate;
mod ids;
pub mod import;
pub mod plan;
pub mod strategy;
pub mod system;
mod task;
#[cfg(test)]
mod testing;
mod threads;
pub mod time;
pub mod units;

pub use chain::chain_name;
pub use cpus::CpuSet;
pub use draw::{Arrivals, Arriving, Draw};
pub use drift::Drift;
pub use plan::{Plan, PlanLevel};
pub use strategy::{Builtin, Discipline, Filter, Late, Level, Split, Strategy};
pub use system::*;
pub use threads::Threads;
pub use time::{Lateness, Span, Time};
pub use units::{Bytes, Probability, Rate};
