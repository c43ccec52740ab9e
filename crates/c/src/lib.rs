//! takt for C: the core calls of a dispatcher and of an event channel ([`takt_run::dispatch`], [`takt_run::event`]) behind a C header,
//! `crates/c/include/takt.h`, which cbindgen makes of this crate.
//!
//! Objects are opaque and made and freed by calls. Nothing of Rust unwinds into C: a panic is [`takt_status::Panic`]. A call that answers no status
//! answers as if there were nothing, and leaves the text; one that only reads a number (a time, a job's, which plan holds) ends the process; to free is to free
//! what can be. Types and functions have the names that C sees.
#![allow(non_camel_case_types)]

mod channel;
mod dispatcher;
mod filter;
mod node;
mod outlet;
mod plan;
mod replication;
mod status;

pub use channel::*;
pub use dispatcher::*;
pub use filter::*;
pub use node::*;
pub use outlet::*;
pub use plan::*;
pub use replication::*;
pub use status::*;
