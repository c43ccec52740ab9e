//! Makes one log of two accounts of a run: the stamps of its threads' jobs, and the kernel's events.
//! Pure: no clock, no I/O.
//!
//! [`Eye`] reads the kernel's events and says what they mean for the run's threads: [`Seen`].
//! [`Merge`] is the state machine that takes both accounts and writes the log: when a job lost its
//! CPU and why, when it got the CPU back, and what had the CPU meanwhile ([`Event::Occupy`],
//! interrupts, time that the hypervisor took). Where the kernel lost events or left out a switch,
//! the log says so ([`Event::Lost`], [`Event::Gap`]). [`takt_log::causes`] finds in this log why
//! jobs were late.

mod lane;
mod machine;
mod seen;
mod strangers;

pub use lane::{Stamped, Worker};
pub use machine::{Merge, Merged, Stamp};
pub use seen::{Eye, Onlooker, Seen, SeenWhat, Watched, Why, model_cpu};
pub(crate) use strangers::Strangers;

#[cfg(doc)]
use takt_log::Event;
