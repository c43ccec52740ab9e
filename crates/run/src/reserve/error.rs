//! Why a thread gets no reservation: what, where, and what to do.

use takt_linux::SchedError;
use takt_linux::hold::HoldError;
use takt_linux::machine::Room;
use takt_linux::sched::{Class, RUNTIME_MIN_NS, Reservation};
use takt_model::Span;
use thiserror::Error;

use super::{Facts, Target, Wish};

/// Why a thread gets no reservation.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// Too short.
    #[error("a runtime of {runtime} is too short: the kernel takes {} or more", Span::from_ns(RUNTIME_MIN_NS))]
    Runtime {
        /// As asked for.
        runtime: Span,
    },
    /// More than can be given.
    #[error(
        "a runtime of {runtime} does not fit into a deadline of {deadline}: the kernel wants runtime <= deadline <= period"
    )]
    RuntimeAboveDeadline {
        /// As asked for.
        runtime: Span,
        /// As asked for.
        deadline: Span,
    },
    /// A deadline beyond its period.
    #[error(
        "a deadline of {deadline} is later than the period of {period} ends: the kernel wants runtime <= deadline <= period"
    )]
    DeadlineAbovePeriod {
        /// As asked for.
        deadline: Span,
        /// As asked for.
        period: Span,
    },
    /// Out of range.
    #[error(
        "a period of {period} is out of range: the kernel takes {min} to {max} (sysctl kernel.sched_deadline_period_min_us and _max_us)"
    )]
    Period {
        /// As asked for.
        period: Span,
        /// The shortest.
        min: Span,
        /// The longest.
        max: Span,
    },
    /// Nobody has that id.
    #[error("there is no thread {id}; \"ps -eL\" lists those there are (column LWP)")]
    NoThread {
        /// As asked for.
        id: u32,
    },
    /// Reserved by someone else.
    #[error(
        "{name} ({id}) has a reservation already: {}; ask who set it to give it back, or set it with chrt", Class::Deadline(*reservation).describe()
    )]
    Already {
        /// Its name.
        name: String,
        /// Its id.
        id: u32,
        /// What it has.
        reservation: Reservation,
    },
    /// No privilege.
    #[error(
        "{class} needs the capability CAP_SYS_NICE\ngrant it once: sudo setcap cap_sys_nice+ep \"$(command -v takt)\", or run takt with sudo"
    )]
    Privilege {
        /// What was asked for.
        class: String,
    },
    /// A thread of some CPUs only.
    #[error(
        "{name} ({id}) may use CPUs {} only, and SCHED_DEADLINE wants all of its scheduling domain: {}\nlet it run on all of them while it is reserved for: --all-cpus",
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
        /// Those of its domain.
        domain: Vec<u32>,
    },
    /// takt itself, and so what it starts.
    #[error(
        "{program} would have CPUs {} only, as takt has, and SCHED_DEADLINE wants all of their scheduling domain: {}\nstart takt without taskset and outside of cpusets",
        list(cpus),
        list(domain)
    )]
    OwnAffinity {
        /// The command.
        program: String,
        /// Its CPUs.
        cpus: Vec<u32>,
        /// Those of its domain.
        domain: Vec<u32>,
    },
    /// A kernel thread that belongs to its CPU.
    #[error(
        "{name} ({id}) cannot be let on CPUs {}: the kernel has bound it to {}, and so it can have no reservation of its own",
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
        /// Those of its domain.
        domain: Vec<u32>,
    },
    /// More than is left.
    #[error("{}", admission(wish, *threads, room, *largest))]
    Admission {
        /// What each thread is to have.
        wish: Wish,
        /// How many.
        threads: usize,
        /// What there is.
        room: Room,
        /// What would fit.
        largest: Option<Span>,
    },
    /// The kernel refused what should have been taken.
    #[error("{name}: {cause}{hint}")]
    Refused {
        /// Whom.
        name: String,
        /// Why.
        cause: SchedError,
        /// What to do.
        hint: &'static str,
    },
    /// It cannot be held.
    #[error(transparent)]
    Hold(HoldError),
    /// The command does not start.
    #[error("cannot start {program}: {cause}")]
    Start {
        /// Its name.
        program: String,
        /// What the kernel says.
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
            | ReserveError::Start { .. }
            | ReserveError::Hold(HoldError::Gone { .. }) => 2,
            ReserveError::Hold(_) => 4,
            _ => 3,
        }
    }

    pub(super) fn refused(name: &str, cause: SchedError, facts: &Facts) -> ReserveError {
        let hint = match &cause {
            SchedError::Admission { .. } if facts.room.is_some() => {
                "\nit should have fitted: somebody was quicker, or what a thread that has just ended had is not back yet (it comes back within its period)"
            }
            SchedError::Affinity { .. } if facts.domain.is_none() => {
                "\nthe machine is divided into several scheduling domains; the thread must be within one of them, and may use all of it"
            }
            _ => "",
        };
        ReserveError::Refused { name: name.to_owned(), cause, hint }
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

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Of a CPU; what is left rounded down, the rest up.
fn percent(bandwidth: u64, up: bool) -> String {
    let tenths = u128::from(bandwidth) * 1000;
    let tenths = if up { tenths.div_ceil(1 << 20) } else { tenths >> 20 };
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn admission(wish: &Wish, threads: usize, room: &Room, largest: Option<Span>) -> String {
    let Wish { runtime, period, .. } = wish;
    let each = wish.reservation().bandwidth();
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
        "{what}, and only {} are left: of {cpus}, SCHED_DEADLINE may have {} together, of which {} are booked by threads and {} by the kernel's servers for ordinary threads\n{fits}, until other reservations end",
        percent(room.left().unwrap_or(u64::MAX), false),
        percent(room.limit.unwrap_or(u64::MAX), true),
        percent(room.booked.saturating_sub(room.servers), true),
        percent(room.servers, true),
    )
}
