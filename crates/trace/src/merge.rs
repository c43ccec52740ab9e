//! Makes one log of two accounts of a run: the stamps of its threads' jobs, and the kernel's
//! events. Pure: no clock, no I/O.
//!
//! [`Translator`] translates the kernel's events into events of the run's threads ([`RunEvent`]).
//! [`Merge`] is the state machine that takes both accounts and writes the log; [`ManagedMerge`] does
//! so for a run under budget managers. The log tells when a job lost its CPU and why, when it got the
//! CPU back, and the user of the CPU meanwhile: another thread ([`Event::Occupy`]), an interrupt, the
//! hypervisor. It has [`Event::Lost`] for lost events and [`Event::Gap`] for missing switches.
//! [`takt_log::causes`] finds in this log why jobs were late.

mod lane;
mod machine;
mod managed;
mod other_threads;
mod run_event;

pub use lane::{Stamped, Worker};
pub use machine::{Merge, Merged, Stamp};
pub use managed::ManagedMerge;
pub(crate) use other_threads::{OtherThreads, interrupt_name};
pub use run_event::{RunEvent, RunEventKind, RunEventSink, SwitchOutReason, Translator, Watched, model_cpu};

#[cfg(doc)]
use takt_log::Event;
