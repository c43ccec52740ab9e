//! Whether the kernel will take a reservation, decided from facts. No system call.
//!
//! The rules are those of `sched_setattr` (kernel/sched/deadline.c: `__checkparam_dl`, `__dl_overflow`; syscalls.c):
//!
//! | rule | where it is broken |
//! |---|---|
//! | 1024 ns <= runtime <= deadline <= period; shortest <= period <= longest (sysctl) | EINVAL |
//! | the thread's CPUs include all of its scheduling domain's | EPERM |
//! | what is booked in the domain, with the new: at most limit x CPUs, in 2^-20 | EBUSY |

use takt_linux::group::Place;
use takt_linux::machine::Limits;
use takt_linux::sched::{Class, RUNTIME_MIN_NS};
use takt_model::Span;

use super::error::ReserveError;
use super::request::{Budget, Facts, Request, Target};

/// A reservation that the kernel will take, as far as can be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The request for each thread.
    pub request: Request,
    /// The threads; none for a command, which has none yet.
    pub threads: Vec<Target>,
    /// The groups that threads, or the command, are in, where they are limited by groups.
    pub places: Vec<Place>,
    /// Facts on which the decision rests.
    pub facts: Facts,
    /// Notes for the user, as sentences.
    pub notes: Vec<String>,
}

impl Plan {
    /// The CPUs that a thread must be allowed to use; `None` if it may already use all of them.
    pub(super) fn widened(&self, target: &Target) -> Option<&[u32]> {
        let domain = self.facts.domain.as_deref().filter(|_| self.request.widen)?;
        (!covers(&target.affinity, domain)).then_some(domain)
    }

    /// Bandwidth left in the domain after this booking, in 2^-20 CPUs; `None` if unknown or
    /// unlimited.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        if self.request.budget == Budget::Group {
            return None;
        }
        let wanted = self.request.reservation().bandwidth().saturating_mul(self.threads.len().max(1) as u64);
        Some(self.facts.room.as_ref()?.left()?.saturating_sub(wanted))
    }
}

/// Decides for threads.
///
/// # Errors
/// The broken rule, its cause and the remedy.
pub fn plan(request: &Request, threads: Vec<Target>, facts: &Facts) -> Result<Plan, ReserveError> {
    within_limits(request, &facts.limits)?;
    privileged(request, facts)?;
    for target in &threads {
        if let Class::Deadline(reservation) = target.class {
            return Err(ReserveError::Already { name: target.name.clone(), id: target.thread.pid, reservation });
        }
        let domain = facts.domain.as_deref().unwrap_or_default();
        if !request.widen && !covers(&target.affinity, domain) {
            return Err(ReserveError::Affinity {
                name: target.name.clone(),
                id: target.thread.pid,
                cpus: target.affinity.clone(),
                domain: domain.to_vec(),
            });
        }
    }
    admit(request, threads.len(), facts)?;
    Ok(Plan { request: *request, threads, places: Vec::new(), facts: facts.clone(), notes: notes(request, facts) })
}

/// Decides for a command, which will have the CPUs `affinity`.
///
/// # Errors
/// As [`plan`].
pub fn plan_command(request: &Request, name: &str, affinity: &[u32], facts: &Facts) -> Result<Plan, ReserveError> {
    within_limits(request, &facts.limits)?;
    privileged(request, facts)?;
    let domain = facts.domain.as_deref().unwrap_or_default();
    if !covers(affinity, domain) {
        return Err(ReserveError::OwnAffinity {
            program: name.to_owned(),
            cpus: affinity.to_vec(),
            domain: domain.to_vec(),
        });
    }
    admit(request, 1, facts)?;
    Ok(Plan {
        request: *request,
        threads: Vec::new(),
        places: Vec::new(),
        facts: facts.clone(),
        notes: notes(request, facts),
    })
}

/// Whether the kernel takes such parameters at all.
///
/// # Errors
/// The broken rule.
pub(super) fn within_limits(request: &Request, limits: &Limits) -> Result<(), ReserveError> {
    let Request { runtime, deadline, period, .. } = *request;
    let (min, max) = (limits.dl_period_min, limits.dl_period_max);
    if runtime < Span::from_ns(RUNTIME_MIN_NS) {
        Err(ReserveError::Runtime { runtime })
    } else if runtime > deadline {
        Err(ReserveError::RuntimeAboveDeadline { runtime, deadline })
    } else if deadline > period {
        Err(ReserveError::DeadlineAbovePeriod { deadline, period })
    } else if period < min || period > max {
        Err(ReserveError::Period { period, min, max })
    } else {
        Ok(())
    }
}

fn privileged(request: &Request, facts: &Facts) -> Result<(), ReserveError> {
    if facts.cap_sys_nice {
        return Ok(());
    }
    Err(ReserveError::Privilege { class: Class::Deadline(request.reservation()).describe() })
}

fn covers(cpus: &[u32], domain: &[u32]) -> bool {
    domain.iter().all(|cpu| cpus.contains(cpu))
}

/// `__dl_overflow`, for all of them at once.
fn admit(request: &Request, threads: usize, facts: &Facts) -> Result<(), ReserveError> {
    let Some(room) = &facts.room else { return Ok(()) };
    let each = request.reservation().bandwidth();
    let wanted = each.saturating_mul(threads as u64);
    match room.left() {
        Some(left) if wanted > left => Err(ReserveError::Admission {
            request: *request,
            threads,
            room: room.clone(),
            largest: largest(request, threads, left),
        }),
        _ => Ok(()),
    }
}

/// The longest admissible runtime in the requested period, in whole microseconds. `None` if it is
/// below the kernel's minimum.
fn largest(request: &Request, threads: usize, left: u64) -> Option<Span> {
    let each = left / (threads.max(1) as u64);
    let ns = (u128::from(each) * u128::from(request.period.as_ns())) >> takt_linux::sched::BW_SHIFT;
    let ns = u64::try_from(ns).ok()? / 1000 * 1000;
    (ns >= RUNTIME_MIN_NS).then(|| Span::from_ns(ns))
}

fn notes(request: &Request, facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(tick) = facts.tick.filter(|tick| request.runtime < *tick) {
        notes.push(format!(
            "a runtime of {} is shorter than the kernel's tick of {tick}: without its high-resolution \
             tick (HRTICK_DL) it stops a thread with a used-up runtime only at a tick",
            request.runtime
        ));
    }
    if facts.room.is_none() {
        let why = match &facts.domain {
            Some(_) => "debugfs can neither be read nor mounted here; that needs root and CAP_SYS_ADMIN",
            None => "the machine is several scheduling domains (cpusets, isolated CPUs), or its CPUs are not alike",
        };
        notes.push(format!("the present reservations are unknown ({why}): the kernel alone decides"));
    }
    notes
}
