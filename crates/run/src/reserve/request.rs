//! A request for threads, and the facts of the machine that decide about it.

use takt_linux::hold::Deadline;
use takt_linux::machine::{self, DomainBandwidth, Limits};
use takt_linux::process::{CAP_SYS_NICE, Identity, has_capability};
use takt_linux::sched::{Class, Reservation};
use takt_linux::tracing::ThreadInfo;
use takt_model::Span;

/// The kind of reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Budget {
    /// SCHED_DEADLINE: guarantees the runtime in every period.
    #[default]
    Deadline,
    /// A control group: limits CPU time in every period, and goes before other ordinary threads. It
    /// guarantees nothing.
    Group,
}

impl Budget {
    /// The name on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Budget::Deadline => "deadline",
            Budget::Group => "cgroup",
        }
    }
}

/// The request for each thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// CPU time per period.
    pub runtime: Span,
    /// Relative deadline.
    pub deadline: Span,
    /// The period.
    pub period: Span,
    /// Whether the thread may use bandwidth that others leave (GRUB).
    pub reclaim: bool,
    /// Whether the thread's CPUs may be widened to its scheduling domain, as SCHED_DEADLINE
    /// requires.
    pub widen: bool,
    /// The kind of reservation.
    pub budget: Budget,
}

impl Request {
    /// A request with the period as deadline.
    #[must_use]
    pub fn new(runtime: Span, period: Span) -> Request {
        Request { runtime, deadline: period, period, reclaim: false, widen: false, budget: Budget::Deadline }
    }

    /// The request as a reservation of the kernel.
    #[must_use]
    pub fn reservation(&self) -> Reservation {
        Reservation { runtime: self.runtime, deadline: self.deadline, period: self.period }
    }

    pub(super) fn held(&self) -> Deadline {
        Deadline { reservation: self.reservation(), reclaim: self.reclaim }
    }

    /// The share of a CPU, for display.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.runtime.as_ns() as f64 / self.period.as_ns().max(1) as f64
    }
}

/// A thread to reserve for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its id and start time.
    pub thread: Identity,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Whether it is a kernel thread.
    pub of_kernel: bool,
    /// Its class.
    pub class: Class,
    /// CPUs that it may use.
    pub affinity: Vec<u32>,
}

impl Target {
    /// A thread that runs now; `None` if it has ended.
    pub(super) fn of(thread: &ThreadInfo) -> Option<Target> {
        Some(Target {
            thread: Identity::of(thread.id)?,
            process: thread.process,
            name: thread.name.clone(),
            of_kernel: thread.of_kernel,
            class: thread.class,
            affinity: thread.affinity.clone(),
        })
    }

    /// A child that this process is about to start. It inherits the class of this process.
    pub(super) fn own(name: &str, id: u32) -> Target {
        Target {
            thread: Identity { pid: id, start: 0 },
            process: id,
            name: name.to_owned(),
            of_kernel: false,
            class: takt_linux::sched::current(),
            affinity: takt_linux::sched::affinity(),
        }
    }
}

/// Facts about this machine that decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The kernel's limits.
    pub limits: Limits,
    /// CAP_SYS_NICE.
    pub cap_sys_nice: bool,
    /// The CPUs of the only scheduling domain; `None` where there are several.
    pub domain: Option<Vec<u32>>,
    /// Bandwidth of the domain, if the kernel reveals it.
    pub room: Option<DomainBandwidth>,
    /// The period of the kernel's ticks.
    pub tick: Option<Span>,
}

impl Facts {
    /// Reads the facts of this machine.
    #[must_use]
    pub fn gather() -> Facts {
        Facts {
            limits: Limits::read(),
            cap_sys_nice: has_capability(CAP_SYS_NICE),
            domain: machine::one_domain(),
            room: machine::room(),
            tick: takt_linux::clock::tick_period(),
        }
    }
}
