//! Reasons why a thread gets no reservation, and remedies.

use std::path::{Path, PathBuf};

use takt_linux::SchedError;
use takt_linux::group::GroupError;
use takt_linux::hold::HoldError;
use takt_linux::machine::DomainBandwidth;
use takt_linux::sched::{Class, RUNTIME_MIN_NS, Reservation};
use takt_model::Span;
use thiserror::Error;

use super::request::{Facts, Request, Target};

/// The reason why a thread gets no reservation.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// Too short.
    #[error("a runtime of {runtime} is too short: the kernel takes {} or more", Span::from_ns(RUNTIME_MIN_NS))]
    Runtime {
        /// The requested runtime.
        runtime: Span,
    },
    /// More than can be given.
    #[error(
        "a runtime of {runtime} does not fit into a deadline of {deadline}: the kernel wants runtime <= \
         deadline <= period"
    )]
    RuntimeAboveDeadline {
        /// The requested runtime.
        runtime: Span,
        /// The requested deadline.
        deadline: Span,
    },
    /// A deadline beyond its period.
    #[error(
        "a deadline of {deadline} is later than the period of {period} ends: the kernel wants runtime \
         <= deadline <= period"
    )]
    DeadlineAbovePeriod {
        /// The requested deadline.
        deadline: Span,
        /// The requested period.
        period: Span,
    },
    /// Out of range.
    #[error(
        "a period of {period} is out of range: the kernel takes {min} to {max} (sysctl \
         kernel.sched_deadline_period_min_us and _max_us)"
    )]
    Period {
        /// The requested period.
        period: Span,
        /// The shortest.
        min: Span,
        /// The longest.
        max: Span,
    },
    /// No thread has this id.
    #[error("there is no thread {id}; \"ps -eL\" lists all threads (column LWP)")]
    NoThread {
        /// The requested id.
        id: u32,
    },
    /// Nothing has this name.
    #[error(
        "there is no interrupt and no network device \"{name}\", and no thread irq/... or napi/... of \
         that name; /proc/interrupts lists interrupts (first and last column), /sys/class/net devices; \
         * stands for any characters"
    )]
    NoInterrupt {
        /// The requested name.
        name: String,
    },
    /// Interrupt handlers without a thread of their own.
    #[error("{}", no_thread(interrupts, *forced))]
    NoInterruptThread {
        /// The interrupts: `36 virtio1-req.0`.
        interrupts: Vec<String>,
        /// Whether the kernel gives threads to all interrupts that can have one.
        forced: bool,
    },
    /// A network device without a thread.
    #[error(
        "{device} has no thread: the softirq NET_RX receives its packets, in any thread that it \
         interrupts\ngive the device threads (as root, Linux 5.12, if its driver has NAPI): echo 1 > \
         /sys/class/net/{device}/threaded"
    )]
    NoPacketThread {
        /// The network device.
        device: String,
    },
    /// A softirq, whose threads are bound to their CPUs.
    #[error(
        "{name} is a softirq: it runs in the interrupted thread, or in ksoftirqd/N; the kernel \
         binds ksoftirqd/N to CPU N, so SCHED_DEADLINE refuses the thread\n\
         reserve for a thread that does its work instead: of an interrupt on a kernel with PREEMPT_RT, \
         or of a network device with 1 in /sys/class/net/DEVICE/threaded"
    )]
    Softirq {
        /// Its name.
        name: String,
    },
    /// Another program has reserved for the thread.
    #[error(
        "{name} ({id}) has a reservation already: {}; ask its owner to give it back, or set it with \
         chrt", Class::Deadline(*reservation).describe()
    )]
    Already {
        /// Its name.
        name: String,
        /// Its id.
        id: u32,
        /// The present reservation.
        reservation: Reservation,
    },
    /// No privilege.
    #[error(
        "{class} needs the capability CAP_SYS_NICE\n\
         grant it once: sudo setcap cap_sys_nice+ep \"$(command -v takt)\", or run takt with sudo"
    )]
    Privilege {
        /// The requested class.
        class: String,
    },
    /// The thread may use some CPUs only.
    #[error(
        "{name} ({id}) may use CPUs {} only, and SCHED_DEADLINE wants all of its scheduling domain: {}\n\
         let it run on all of them during the reservation: --all-cpus; or use a control group, which guarantees \
         nothing: --budget cgroup",
        list(cpus),
        list(domain)
    )]
    Affinity {
        /// Its name.
        name: String,
        /// Its id.
        id: u32,
        /// Its CPUs.
        cpus: Vec<u32>,
        /// The CPUs of its domain.
        domain: Vec<u32>,
    },
    /// takt itself, and so its children, may use some CPUs only.
    #[error(
        "{program} would have CPUs {} only, as takt has, and SCHED_DEADLINE wants all of their scheduling domain: {}\n\
         {}; or use a control group, which guarantees nothing: --budget cgroup",
        list(cpus),
        list(domain),
        takt_linux::sched::unconfined()
    )]
    OwnAffinity {
        /// The command.
        program: String,
        /// Its CPUs.
        cpus: Vec<u32>,
        /// The CPUs of the domain.
        domain: Vec<u32>,
    },
    /// A kernel thread bound to its CPU.
    #[error(
        "{name} ({id}) cannot be let on CPUs {}: the kernel has bound it to {}, and so it can have no \
         reservation of its own",
        list(domain),
        list(cpus)
    )]
    Bound {
        /// Its name.
        name: String,
        /// Its id.
        id: u32,
        /// Its CPUs.
        cpus: Vec<u32>,
        /// The CPUs of the domain.
        domain: Vec<u32>,
    },
    /// The domain has too little bandwidth left.
    #[error("{}", admission(request, *threads, room, *largest))]
    Admission {
        /// The request for each thread.
        request: Request,
        /// Number of threads.
        threads: usize,
        /// The bandwidth of the domain.
        room: DomainBandwidth,
        /// The longest runtime that would fit.
        largest: Option<Span>,
    },
    /// No control group with a budget.
    #[error(transparent)]
    Group(GroupError),
    /// Out of range.
    #[error(
        "{runtime} every {period}: a control group takes a runtime no longer than its period, and for \
         ordinary threads 1ms or more in 1s or less"
    )]
    Quota {
        /// The requested runtime.
        runtime: Span,
        /// The requested period.
        period: Span,
    },
    /// No budget of a control group applies to the thread's class.
    #[error("{name} ({id}) has {class}, {}", not_limited(*first))]
    NotLimited {
        /// Its name.
        name: String,
        /// Its id.
        id: u32,
        /// Its class.
        class: String,
        /// Whether the groups are of version 1.
        first: bool,
    },
    /// The thread's group has too little budget.
    #[error("{}", above(name, request, *threads, folder, *left))]
    Above {
        /// Its name and id.
        name: String,
        /// The request.
        request: Request,
        /// Number of threads of the request in this group.
        threads: usize,
        /// Its group.
        folder: PathBuf,
        /// Bandwidth left in the group, in 2^-20 CPUs.
        left: u64,
    },
    /// The kernel refused a request that should have been accepted.
    #[error("{name}: {cause}{hint}")]
    Refused {
        /// The thread or command.
        name: String,
        /// The cause.
        cause: SchedError,
        /// The remedy.
        hint: &'static str,
    },
    /// The thread cannot be held.
    #[error(transparent)]
    Hold(HoldError),
    /// The command does not start.
    #[error("cannot start {program}: {cause}")]
    Start {
        /// Its name.
        program: String,
        /// The kernel's answer.
        cause: String,
    },
}

impl ReserveError {
    /// The exit status of the command line: 2 bad input, 3 this machine cannot, 4 a failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            ReserveError::Runtime { .. }
            | ReserveError::RuntimeAboveDeadline { .. }
            | ReserveError::DeadlineAbovePeriod { .. }
            | ReserveError::Period { .. }
            | ReserveError::NoThread { .. }
            | ReserveError::NoInterrupt { .. }
            | ReserveError::Start { .. }
            | ReserveError::Quota { .. }
            | ReserveError::Group(GroupError::Gone { .. })
            | ReserveError::Hold(HoldError::Gone { .. }) => 2,
            ReserveError::Hold(HoldError::Group(_)) => 3,
            ReserveError::Hold(_) => 4,
            _ => 3,
        }
    }

    /// Whether only SCHED_DEADLINE refuses the thread, so that a control group might still limit
    /// it. This holds if the thread may not use all CPUs of its domain, or if the domain has no
    /// bandwidth left. It does not hold for wrong parameters, a missing privilege or an ended
    /// thread.
    #[must_use]
    pub fn is_of_deadline_class(&self) -> bool {
        match self {
            ReserveError::Affinity { .. }
            | ReserveError::OwnAffinity { .. }
            | ReserveError::Bound { .. }
            | ReserveError::Admission { .. } => true,
            ReserveError::Refused { cause, .. } => {
                matches!(cause, SchedError::Affinity { .. } | SchedError::Admission { .. } | SchedError::Missing { .. })
            }
            _ => false,
        }
    }

    pub(super) fn refused(name: &str, cause: SchedError, facts: &Facts) -> ReserveError {
        let hint = match &cause {
            SchedError::Admission { .. } if facts.room.is_some() => {
                "\nit should have fitted: another program reserved first, or the bandwidth of an ended \
                 thread is not back yet (it comes back within its period)"
            }
            SchedError::Affinity { .. } if facts.domain.is_none() => {
                "\nthe machine is divided into several scheduling domains; the thread must be within \
                 one of them, and may use all of it"
            }
            _ => "",
        };
        ReserveError::Refused { name: name.to_owned(), cause, hint }
    }

    /// A list of interrupts (`36 virtio1-req.0`), cut to a few.
    pub(super) fn few(interrupts: &[String]) -> String {
        let of =
            |text: &String| text.split_once(' ').map_or(text.clone(), |(number, name)| format!("{number} ({name})"));
        let mut names: Vec<String> = interrupts.iter().take(NAMES_MAX).map(of).collect();
        if let Some(more) = interrupts.len().checked_sub(NAMES_MAX).filter(|more| *more > 0) {
            names.push(format!("{more} more"));
        }
        match names.len() {
            0 => String::new(),
            1 => format!("interrupt {}", names.join(", ")),
            _ => format!("interrupts {}", names.join(", ")),
        }
    }

    pub(super) fn bound(target: &Target, domain: &[u32]) -> ReserveError {
        ReserveError::Bound {
            name: target.name.clone(),
            id: target.thread.pid,
            cpus: target.affinity.clone(),
            domain: domain.to_vec(),
        }
    }
}

fn above(name: &str, request: &Request, threads: usize, folder: &Path, left: u64) -> String {
    let Request { runtime, period, .. } = request;
    let wanted = percent(request.reservation().bandwidth().saturating_mul(threads as u64), true);
    let (who, each, whose) = match threads {
        1 => (name.to_owned(), "", "its"),
        many => (format!("{many} threads"), " each", "their"),
    };
    let (folder, left) = (folder.display(), percent(left, false));
    format!(
        "{who} cannot be given {runtime} every {period}{each}, {wanted} of a CPU: {whose} control group \
         {folder} has {left} left"
    )
}

fn not_limited(first: bool) -> &'static str {
    if first {
        "which no control group of this kernel limits (built without CONFIG_RT_GROUP_SCHED)\n\
         reserve for it by SCHED_DEADLINE: leave out --budget"
    } else {
        "which no control group of version 2 limits: cpu.max is for ordinary threads\n\
         reserve for it by SCHED_DEADLINE: leave out --budget"
    }
}

/// At most so many names are listed.
const NAMES_MAX: usize = 4;

fn no_thread(interrupts: &[String], forced: bool) -> String {
    let told = ReserveError::few(interrupts);
    let (what, these) = match interrupts.len() {
        1 => (
            "has no thread: its handler runs in any interrupted thread, so nothing can be reserved for it",
            "this one is excepted by its driver",
        ),
        _ => (
            "have no threads: their handlers run in any thread that they interrupt, so nothing can be \
             reserved for them",
            "these are excepted by their drivers",
        ),
    };
    let what = format!("{told} {what}");
    if forced {
        return format!(
            "{what}\nthis kernel gives threads to all interrupts that can have them; {these} (IRQF_NO_THREAD)"
        );
    }
    format!(
        "{what}\nthreads for interrupts: \"threadirqs\" on the kernel's command line, or a kernel with \
         PREEMPT_RT; for packets of a network device: echo 1 > /sys/class/net/DEVICE/threaded, and then --irq DEVICE"
    )
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A percentage of a CPU. Round the remaining bandwidth down, and all else up.
fn percent(bandwidth: u64, up: bool) -> String {
    let tenths = u128::from(bandwidth) * 1000;
    let tenths = if up { tenths.div_ceil(1 << 20) } else { tenths >> 20 };
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn admission(request: &Request, threads: usize, room: &DomainBandwidth, largest: Option<Span>) -> String {
    let Request { runtime, period, .. } = request;
    let each = request.reservation().bandwidth();
    let wanted = percent(each.saturating_mul(threads as u64), true);
    let what = if threads == 1 {
        format!("{runtime} every {period} is {wanted} of a CPU")
    } else {
        format!("{runtime} every {period} for each of {threads} threads is {wanted} of a CPU")
    };
    let cpus = match room.cpus.len() {
        1 => "one CPU".to_owned(),
        count => format!("{count} CPUs"),
    };
    let fits = match largest {
        Some(largest) => format!("at most --runtime {largest} fits into this period"),
        None => "nothing fits".to_owned(),
    };
    format!(
        "{what}, and only {} are left: of {cpus}, SCHED_DEADLINE may have {} together, of which {} are \
         booked by threads and {} by the kernel's servers for ordinary threads\n\
         {fits}, until other reservations end; a control group can limit without guaranteeing anything: \
         --budget cgroup",
        percent(room.left().unwrap_or(u64::MAX), false),
        percent(room.limit.unwrap_or(u64::MAX), true),
        percent(room.booked.saturating_sub(room.servers), true),
        percent(room.servers, true),
    )
}
