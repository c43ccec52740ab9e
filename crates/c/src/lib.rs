//! takt for C: the core calls of a dispatcher and of an event channel ([`takt_dispatch`],
//! [`takt_dispatch::event`]) behind a C header, `crates/c/include/takt.h`, which cbindgen makes of this
//! crate.
//!
//! Objects are opaque, and calls make and free them. Types and functions have their C names.
//!
//! No Rust panic unwinds into C: a panic is [`takt_status::Panic`]. A call without a status answers
//! as if there were nothing, and leaves the text. A call that only reads a number (a time, a job's
//! number, the current plan) ends the process. A call to free frees as much as it can.
#![allow(non_camel_case_types)]

mod channel;
mod deadline;
mod dispatcher;
mod filter;
mod log_place;
mod node;
mod outlet;
mod plan;
mod refusal;
mod replication;
mod status;

pub use channel::*;
pub use deadline::*;
pub use dispatcher::*;
pub use filter::*;
pub use node::*;
pub use outlet::*;
pub use plan::*;
pub use replication::*;
pub use status::*;
