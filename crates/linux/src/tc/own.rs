//! takt's own queueing discipline (bpf/takt_qdisc.bpf.c): real-time packets leave by their deadlines.
//!
//! It stands at the root of a device in the place of HTB, with the same classes. HTB's classes are first in,
//! first out. The class of a packet is in its priority: a program before the discipline writes it there.
//!
//! | class | starts a packet while | without a bucket in the System |
//! |---|---|---|
//! | real-time, reply | the tokens of its bucket are not negative | the line's are not |
//! | background | the line's are not, and those of its limit | the line's are not |
//!
//! Each packet takes tokens of the line. A more important class goes first.

#[cfg(not(feature = "bpf"))]
#[path = "own/absent.rs"]
mod imp;
#[cfg(feature = "bpf")]
#[path = "own/loaded.rs"]
mod imp;

use std::fs;
use std::io;

pub(super) use imp::{Own, read};

use super::htb::{Counters, ROOT};
use super::plan::{Role, Shaper};

/// The priority of real-time packets that carry a deadline.
pub(super) const TAGGED: u32 = ROOT | 0x11;
/// How the names of its kinds begin.
const KIND: &str = "takt_";
/// The type of the operations that BPF programs implement.
const TYPE: &[u8] = b"bpf_struct_ops_Qdisc_ops\0";
/// Where the kernel tells its types.
pub(super) const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Whether a kind of disciplines is one of takt.
pub(super) fn is_own(kind: &str) -> bool {
    kind.starts_with(KIND)
}

/// Whether BPF programs may be queueing disciplines of this kernel.
pub(super) fn is_possible() -> io::Result<bool> {
    Ok(fs::read(TYPES)?.windows(TYPE.len()).any(|window| window == TYPE))
}

/// The kernel's numbers of the maps of a discipline: settings, and the egress with its counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Maps {
    pub(super) settings: u32,
    pub(super) egress: u32,
}

/// The state of a discipline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reading {
    pub(super) line: Shaper,
    pub(super) classes: [ClassReading; 3],
}

/// The state of one of its classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClassReading {
    pub(super) role: Role,
    /// Its limit.
    pub(super) ceiling: Shaper,
    /// Packets that it holds; 0: the plan has no such class.
    pub(super) packets_max: u32,
    pub(super) counters: Counters,
    /// Packets that came.
    pub(super) arrived: u64,
    /// Datagrams dropped because they could not start in time, among those of the counters.
    pub(super) late: u64,
}
