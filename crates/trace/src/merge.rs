//! Two accounts of one run made one log: what its threads say of their jobs, and what the kernel saw of the threads. Pure; no clock, no I/O.
//!
//! [`Eye`] reads the kernel's events and says what they mean for the run's threads: [`Seen`]. Two kinds of run know their jobs in two ways:
//!
//! - [`ByTask`]: each task has a thread of its own, which stamps what it does.
//! - [`ByLevel`]: a dispatcher says which job begins and ends on which CPU; the thread is the one that the kernel has there then.
//!
//! Both tell the same log of it: when a job lost its CPU and why, when it got it back, and what had the CPU instead ([`Event::Occupy`], interrupts, a hypervisor's
//! time). Where the kernel lost events, or made a switch that it did not tell, the log says so ([`Event::Lost`], [`Event::Gap`]). Why jobs were
//! late follows from the log ([`takt_log::causes`]).

mod by_level;
mod by_task;
mod seen;
mod strangers;

pub use by_level::{ByLevel, Worker};
pub use by_task::{ByTask, Merged, Stamp, Stamped};
pub use seen::{Eye, Onlooker, Seen, SeenWhat, Watched, Why, model_cpu};
pub(crate) use strangers::Strangers;

#[cfg(doc)]
use takt_log::Event;
