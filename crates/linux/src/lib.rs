//! All that touches the Linux kernel, and the only clock: scheduling classes, absolute sleeps, locked
//! memory, cpusets, control groups, network devices, signals, and what a killed run left behind.
//!
//! This crate is the only one that may hold `unsafe`. Its whole public interface is safe. Errors
//! name the cause behind an errno and the remedy.

pub mod arrival;
#[cfg(feature = "bpf")]
pub mod bpf;
pub mod ceiling;
pub mod clock;
pub mod cpuset;
pub mod datagram;
mod device;
pub mod doctor;
pub mod eventfd;
pub mod file;
pub mod foreign;
pub mod freeze;
pub mod futex;
pub mod group;
pub mod guardian;
pub mod hold;
pub mod lock;
pub mod machine;
pub mod marking;
pub mod memory;
mod mount;
pub mod net;
mod netlink;
pub mod outgoing;
mod owned;
pub mod process;
pub mod recovery;
pub mod sched;
pub mod sched_ext;
pub mod seqpacket;
pub mod signals;
pub mod tc;
pub mod thread;
pub mod tracing;

mod cgroup;
pub mod guard;
mod limits;
pub mod paused;
mod sysfs;

pub use clock::Epoch;
pub use lock::{PiGuard, PiMutex};
pub use machine::{Machine, machine};
pub use sched::{Class, ClassGuard, Reservation, SchedError};
