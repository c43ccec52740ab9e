//! The JobLog: what happened, as a stream of events; its statistics and differences.

pub mod event;

pub use event::{CancelCause, Event, JobKey, NullSink, Parent, Sink};
