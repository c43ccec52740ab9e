//! The JobLog: what happened, as a stream of events; its statistics and differences.
//!
//! Back ends give events to a [`Sink`]: a [`Writer`] makes a log of them, a [`stats::Collector`]
//! numbers, a pair of sinks both; [`causes::Causes`] says why jobs were late. A [`Reader`] gives
//! the events back, the streams merged in the order of time; [`diff::diff`] compares two logs.
//! docs/reference/joblog.md describes the bytes, docs/reference/statistics.md the numbers.
//!
//! Times are nanoseconds since the start of the run. Tests in `tests/it` hold each invariant:
//!
//! - The same events give the same bytes.
//! - A reader returns the written events.
//! - Damage costs the blocks that it hits, and is reported.
//! - No input makes a reader panic, or take memory out of proportion.
//!
//! ```
//! use takt_log::{BackEnd, Definitions, Event, Header, JobKey, KindSet, Reader, Sink, Writer};
//! use takt_model::{Builtin, Span, System, Task, TaskId, Time};
//!
//! let system = System::local(1, Builtin::Edf, vec![Task::periodic("video", Span::from_ms(40), Span::from_ms(12))]);
//! let header = Header::new(String::new(), Some(1), BackEnd::Sim, KindSet::JOBS);
//! let mut writer = Writer::new(Vec::new(), &header, &Definitions::of(&system))?;
//! let job = JobKey { task: TaskId(0), number: 0 };
//! writer.event(0, Time::ZERO, &Event::Release { job, arrival: Time::ZERO, parent: None });
//! let log = writer.finish(Time::from_ns(1_000_000))?;
//!
//! let mut reader = Reader::new(&log[..])?;
//! for record in reader.by_ref() {
//!     assert_eq!(record?.time, Time::ZERO);
//! }
//! assert_eq!(reader.end(), Time::from_ns(1_000_000));
//! assert!(reader.damage().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
pub mod causes;
mod definitions;
pub mod diff;
mod error;
pub mod event;
mod format;
mod header;
mod joined;
mod kind;
pub mod legs;
mod reader;
mod record;
pub mod stats;
mod writer;

pub use definitions::{
    ChainDef, ClockDef, Clocks, CpuDef, Definition, Definitions, GapError, InterruptDef, InterruptKind, ModeDef,
    NodeDef, ServerDef, TaskDef, ThreadClass, ThreadDef, ThreadKind, chain_name,
};
pub use error::ReadError;
pub use event::{CancelCause, DropCause, Event, JobKey, NullSink, Parent, Sink};
pub use format::{BLOCK_MAX, DEFINITION_MAX, HEAD_MAX, MAGIC, STREAMS_MAX, VERSION};
pub use header::{BackEnd, Header};
pub use joined::{JoinError, Joined};
pub use kind::{Kind, KindSet};
pub use reader::{Damage, Reader, Record};
pub use writer::{WriteError, Writer};
