//! The sched_ext scheduler of the folder bpf/: server sets that the kernel itself keeps (feature `bpf`).
//!
//! [`Scheduler::load`] gives the kernel the scheduler, the servers and the places of threads. From
//! [`Scheduler::attach`] on it schedules all ordinary threads of the machine. Threads join servers by
//! [`Shared::join`]. Between the instants of [`Shared::begin`] the servers are in force; before and after them all
//! threads are alike. Dropping the scheduler, or the end of the process, gives the machine its own scheduler back.
//! [`Scheduler::replace`] puts another instance in its place, and budgets carry over.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC.

/// Why this machine has no use for the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// The program was built without the feature `bpf`.
    Feature,
    /// The kernel has no sched_ext.
    Kernel,
    /// Another sched_ext scheduler is at work: its name.
    Busy(String),
    /// The process may not load it.
    Privilege(String),
    /// Its schedulers learn nothing of control groups and their cpu.max.
    Groups,
}

/// The folder that a kernel with sched_ext has.
const FOLDER: &str = "/sys/kernel/sched_ext";

/// All that this program, this kernel and this user lack for a scheduler of their own. `groups`: servers have control
/// groups.
#[must_use]
pub fn lacks(groups: bool) -> Vec<Unavailable> {
    let mut lacks = Vec::new();
    if cfg!(not(feature = "bpf")) {
        lacks.push(Unavailable::Feature);
    }
    if !std::path::Path::new(FOLDER).exists() {
        lacks.push(Unavailable::Kernel);
    } else if let Some(name) = present() {
        lacks.push(Unavailable::Busy(name));
    }
    #[cfg(feature = "bpf")]
    {
        if let Err(error) = crate::bpf::privilege() {
            lacks.push(Unavailable::Privilege(error.to_string()));
        }
        if groups && !lacks.contains(&Unavailable::Kernel) && !imp::tells_of_groups() {
            lacks.push(Unavailable::Groups);
        }
    }
    #[cfg(not(feature = "bpf"))]
    let _ = groups;
    lacks
}

/// The sched_ext scheduler that is at work; `None` if there is none.
#[must_use]
pub fn present() -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(format!("{FOLDER}/{name}")).ok();
    let state = read("state").filter(|state| state.trim() != "disabled")?;
    Some(read("root/ops").unwrap_or(state).trim().to_owned())
}

#[cfg(feature = "bpf")]
#[path = "sched_ext/loaded.rs"]
mod imp;
#[cfg(not(feature = "bpf"))]
#[path = "sched_ext/absent.rs"]
mod imp;

#[cfg(feature = "bpf")]
#[path = "sched_ext/peer.rs"]
mod peer;
mod types;

#[cfg(feature = "bpf")]
pub use peer::Fifo;

pub use imp::{Scheduler, Shared, Successor};
pub use types::{
    BANDWIDTH_PERIOD_MAX, CHANGES_MAX, CPUS_MAX, CpuCount, Ended, Group, LEVELS_MAX, MEMBERS_MAX, Member, Order, Rule,
    SERVERS_MAX, SchedExtError, ServerEvent, ServerNews, TIES_MAX, Terms, Written,
};
