//! Records kernel events through a private instance of its tracer. The instance is read as raw
//! pages, and nothing of it stays afterwards.
//!
//! [`Recorder::start`] makes a folder below `instances/` of tracefs. This instance has its own ring
//! buffers, events, filters and clock, so nothing outside of the instance changes. A call of
//! [`Recorder::sweep`] hands over whole pages of the ring buffers, as the kernel wrote them. The
//! texts of [`Descriptions`] tell how to decode the pages (crate `takt-trace`). A [`CpuCount`]
//! counts the lost events of a CPU.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC (the tracer's clock `mono`). Invariants, each held by
//! tests/tracing.rs:
//! - An instance ends with its recorder, however the recorder ends (see [`Guard`]).
//! - No instance of another takt is removed.
//! - Memory in use: the kernel's buffers and one more buffer of a MiB.
//!
//! ```no_run
//! use takt_linux::tracing::{Options, Recorder};
//! use takt_model::Span;
//!
//! let mut recorder = Recorder::start(&Options::default())?;
//! let mut bytes = 0;
//! recorder.sweep(Span::from_ms(100), &mut |_cpu, pages| bytes += pages.len())?;
//! let counts = recorder.finish(&mut |_cpu, pages| bytes += pages.len())?;
//! assert!(counts.iter().all(|cpu| cpu.lost() == 0));
//! # Ok::<(), takt_linux::tracing::RecorderError>(())
//! ```

mod cost;
mod counts;
mod describe;
mod error;
mod events;
mod instance;
mod options;
mod reader;
pub mod reading;
mod recorder;
mod recover;
mod threads;
mod tracefs;

use takt_model::Time;

use crate::clock;

pub use crate::guard::Guard;
pub use cost::{Cost, cost, handover_ns};
pub use counts::CpuCount;
pub use describe::{Descriptions, EventFormat, InterruptName, interrupts, softirqs};
pub use error::RecorderError;
pub use events::{Event, one_of};
pub use instance::threads_of;
pub(crate) use instance::{PREFIX, remove};
pub use options::{BUFFER, Options, Threads};
pub use reader::ReadResult;
pub use recorder::Recorder;
pub use recover::recover;
pub use threads::{ThreadInfo, class_of, threads};
pub(crate) use tracefs::Tracefs;
pub use tracefs::instances;

/// The present time of the tracer's clock.
#[must_use]
pub fn now() -> Time {
    Time::from_ns(clock::monotonic_ns())
}
