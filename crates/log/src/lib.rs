//! The JobLog: what happened, as a stream of events; its statistics and differences.

mod blocks;
mod definitions;
pub mod diff;
pub mod event;
mod format;
mod header;
mod kind;
mod reader;
mod record;
pub mod stats;
mod writer;

pub use definitions::{
    ChainDef, ClockDef, CpuDef, Definition, Definitions, GapError, ModeDef, NodeDef, ServerDef, TaskDef, chain_name,
};
pub use event::{CancelCause, Event, JobKey, NullSink, Parent, Sink};
pub use format::{BLOCK_MAX, DEFINITION_MAX, HEAD_MAX, MAGIC, STREAMS_MAX, VERSION};
pub use header::{BackEnd, Header};
pub use kind::{Kind, KindSet};
pub use reader::{Damage, ReadError, Reader, Record};
pub use writer::{WriteError, Writer};
