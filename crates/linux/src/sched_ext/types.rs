//! Input and events of the sched_ext scheduler.

use std::io;

use thiserror::Error;

/// The most servers of one CPU, tasks beside servers included (TAKT_SERVERS_MAX).
pub const SERVERS_MAX: usize = 16;
/// Changes of one server that may wait in the scheduler (TAKT_CHANGES_MAX).
pub const CHANGES_MAX: usize = 4;
/// The kernel's numbers of CPUs that may have servers are below this (CPUS_MAX).
pub const CPUS_MAX: u32 = 64;
/// The most places of threads (MEMBERS_MAX).
pub const MEMBERS_MAX: usize = 1024;
/// The most components with servers on several CPUs (POOLS_MAX).
#[cfg(feature = "bpf")]
pub(super) const POOLS_MAX: usize = CPUS_MAX as usize * SERVERS_MAX / 2;
/// The most threads in the queue of one server whose ties have an order.
pub const TIES_MAX: usize = 32;
/// Levels are below this.
pub const LEVELS_MAX: u32 = 256;
/// Budget and period of a bandwidth server are below this, in nanoseconds.
pub const BANDWIDTH_PERIOD_MAX: u64 = 1 << 32;

/// How a server keeps its budget. The numbers are those of bpf/servers.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Rule {
    /// Purely time-driven periodic server.
    Ptps = 0,
    /// Work-conserving periodic server.
    Wcps = 1,
    /// Capacity-reclaiming periodic server.
    Crps = 2,
    /// Polling server.
    Polling = 3,
    /// Deferrable server.
    Deferrable = 4,
    /// Soft constant-bandwidth server.
    Cbs = 5,
    /// Hard constant-bandwidth server.
    CbsHard = 6,
    /// No server: a task beside servers.
    Task = 7,
}

/// How servers of a level, or threads of a server, are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Order {
    /// By release.
    Fifo = 0,
    /// By absolute deadline.
    Deadline = 1,
    /// Of threads only: they take turns.
    Shared = 2,
}

/// The terms of a server. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Terms {
    /// Its budget in each period.
    pub budget: u64,
    /// Its period.
    pub period: u64,
    /// Added to its deadline where the order goes by deadlines.
    pub shift: i64,
    /// They hold from the end of the first period that ends then or later.
    pub at: u64,
    /// Its rule.
    pub rule: Rule,
    /// The smallest level goes first.
    pub level: u32,
    /// The order within the level.
    pub order: Order,
    pub(super) version: u32,
    /// The server around it plus one, or 0. It stands before this one.
    pub(super) outer: u32,
    /// Its pool plus one, or 0.
    pub(super) pool: u32,
}

impl Terms {
    /// The first terms of a server: budget and period, and its level, order and shift.
    #[must_use]
    pub const fn new(rule: Rule, (budget, period): (u64, u64), (level, order, shift): (u32, Order, i64)) -> Terms {
        Terms { budget, period, shift, at: 0, rule, level, order, version: 1, outer: 0, pool: 0 }
    }

    /// The same in another server, by its number on the CPU. `None`: in none.
    #[must_use]
    pub const fn within(self, outer: Option<u32>) -> Terms {
        let outer = match outer {
            Some(outer) => outer + 1,
            None => 0,
        };
        Terms { outer, ..self }
    }

    /// The same of a server whose component has servers on several CPUs. `None`: it has one server.
    #[must_use]
    pub const fn pooled(self, pool: Option<u32>) -> Terms {
        let pool = match pool {
            Some(pool) => pool + 1,
            None => 0,
        };
        Terms { pool, ..self }
    }

    /// The number of the server around it.
    #[must_use]
    pub const fn outer(self) -> Option<u32> {
        self.outer.checked_sub(1)
    }

    /// The same, asked for at this instant.
    #[must_use]
    pub const fn from(self, at: u64) -> Terms {
        Terms { at, ..self }
    }
}

/// A thread's place: its server, and where it stands in the server's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Member {
    /// The kernel's number of the CPU. Of a component with servers on several CPUs: that of its first server.
    pub cpu: u32,
    /// The server by its number on the CPU.
    pub server: u32,
    /// The smallest level goes first.
    pub level: u32,
    /// The order within the level.
    pub order: Order,
    /// The smaller goes first among equals; below [`TIES_MAX`].
    pub tie: u32,
    /// 1 if the thread tells each job ([`crate::sched_ext::Shared::announce_job`]). If not, a job is released when
    /// the thread wakes up.
    pub tells: u32,
    /// Its pool plus one, or 0: the component has servers on several CPUs, and the thread moves between these.
    pub pool: u64,
    /// The relative deadline, in nanoseconds.
    pub relative: u64,
    /// Added to the deadline, in nanoseconds.
    pub shift: i64,
    /// Told later.
    pub release: u64,
    /// Told later.
    pub deadline: u64,
}

/// A change of a server that the kernel tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerNews {
    /// It has this budget (ns).
    Replenished {
        /// The budget.
        budget: u64,
    },
    /// Its budget is used up.
    Exhausted,
    /// None of its component's threads wants a CPU any more.
    Idle,
    /// It has paid.
    Paid {
        /// Since then.
        since: u64,
        /// So much (ns).
        amount: u64,
        /// None of its threads had the CPU.
        idle: bool,
    },
    /// It has other terms from now on: rule, budget and period.
    Switched {
        /// The number of the [`Rule`].
        rule: u32,
        /// ns.
        budget: u64,
        /// ns.
        period: u64,
    },
}

/// What happened to a server, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerEvent {
    /// When.
    pub at: u64,
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// The server's number on it.
    pub server: u32,
    /// What.
    pub news: ServerNews,
}

/// A control group whose threads, and those of the groups below it, have the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// The kernel's number of the group: the inode of its folder.
    pub number: u64,
    /// The place. Each place has at most one group.
    pub member: u32,
}

/// What was written last to the cpu.max of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// How often it was written.
    pub count: u64,
    /// Microseconds.
    pub period_us: u64,
    /// Microseconds; `None` for "max".
    pub quota_us: Option<u64>,
}

/// How a CPU fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuCount {
    /// Decisions.
    pub decisions: u64,
    /// How often a thread of a server lost the CPU though it wanted it.
    pub preemptions: u64,
    /// Events that found the buffer full.
    pub lost: u64,
}

/// The kernel has ended the scheduler: by its watchdog, or after an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The kernel's number of the kind of end.
    pub kind: u32,
    /// The kernel's words.
    pub reason: String,
    /// What it adds.
    pub message: String,
}

/// Why there is no scheduler.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SchedExtError {
    /// The program was built without it.
    #[error("this takt was built without the feature \"bpf\", which has the sched_ext scheduler")]
    NotBuilt,
    /// The kernel refuses the scheduler.
    #[cfg(feature = "bpf")]
    #[error(transparent)]
    Bpf(#[from] crate::bpf::BpfError),
    /// Something is not as the program expects.
    #[error("the sched_ext scheduler cannot be used: {what}: {cause}")]
    Broken {
        /// The step.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
}
