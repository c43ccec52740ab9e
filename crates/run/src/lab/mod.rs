//! The lab's host side: fetches kernels and boots them in QEMU.
//!
//! [`takt_lab`] decides; this module runs programs and moves files. Nothing is installed, and
//! nothing outside the cache's folder changes.

mod boot;
mod cache;
mod error;
mod fetch;
mod programs;

pub use boot::{Boot, Progress, Setup, qemu_version};
pub use cache::{Cache, Kernel};
pub use error::LabError;
pub use fetch::{Fetched, KEYS, Request, fetch};
pub use takt_lab as pure;
