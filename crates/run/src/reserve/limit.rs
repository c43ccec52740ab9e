//! Decides from facts whether a control group can limit a thread as requested.
//!
//! | rule | by |
//! |---|---|
//! | ordinary classes: 1 ms <= quota, 1 ms <= period <= 1 s (kernel/sched/core.c: `tg_set_cfs_bandwidth`) | EINVAL |
//! | ... and no group above has a smaller limit (v1: EINVAL; v2 takes the smallest) | unmet request |
//! | SCHED_FIFO, SCHED_RR: subgroups within the group's budget (rt.c: `tg_rt_schedulable`), v1 only | EINVAL |

use takt_linux::group::{GroupError, Limit, Place, Share, Version};
use takt_linux::sched::Class;
use takt_model::Span;

use super::decide::Plan;
use super::error::ReserveError;
use super::request::{Budget, Facts, Request, Target};

/// Bounds of quota and period for ordinary threads.
const SHORTEST: Span = Span::from_ms(1);
const LONGEST: Span = Span::from_s(1);

/// The same share of a CPU, in the form that a group takes for ordinary threads. If one period's
/// runtime is too short, several periods are joined.
#[must_use]
pub fn as_limit(request: &Request) -> Request {
    let periods = SHORTEST.as_ns().div_ceil(request.runtime.as_ns().max(1)).max(1);
    let [runtime, deadline, period] = [request.runtime, request.deadline, request.period]
        .map(|span| Span::from_ns(span.as_ns().saturating_mul(periods)));
    Request { runtime, deadline, period, budget: Budget::Group, ..*request }
}

/// Whether a budget for real-time threads applies to the class.
pub(super) fn is_real_time(class: &Class) -> bool {
    matches!(class, Class::Fifo { .. } | Class::RoundRobin { .. })
}

/// In whole microseconds. The runtime is rounded up and the period down.
fn share(request: &Request) -> Share {
    Share { runtime_us: request.runtime.as_ns().div_ceil(1000), period_us: request.period.as_ns() / 1000 }
}

/// The limit of a thread's group.
pub(super) fn of(request: &Request, target: &Target) -> Limit {
    Limit { share: share(request), real_time: is_real_time(&target.class) }
}

/// Decides for threads, each with its group. Without `places` the present groups are read.
///
/// # Errors
/// The broken rule, its cause and the remedy.
pub fn plan_limit(
    request: &Request,
    threads: Vec<Target>,
    places: Option<Vec<Result<Place, GroupError>>>,
    facts: &Facts,
) -> Result<Plan, ReserveError> {
    let look = || threads.iter().map(|target| Place::of(target.thread.pid)).collect();
    let places: Vec<Place> =
        places.unwrap_or_else(look).into_iter().collect::<Result<_, _>>().map_err(ReserveError::Group)?;
    let mut notes = Vec::new();
    for (target, place) in threads.iter().zip(&places) {
        let same = threads
            .iter()
            .zip(&places)
            .filter(|(other, there)| is_real_time(&other.class) && there.folder == place.folder);
        fits(request, target, place, same.count())?;
        for sentence in sentences(request, target, facts) {
            if !notes.contains(&sentence) {
                notes.push(sentence);
            }
        }
    }
    Ok(Plan { request: *request, threads, places, facts: facts.clone(), notes })
}

/// Decides for a command, which will be in this process's group.
///
/// # Errors
/// As [`plan_limit`].
pub fn plan_command_limit(request: &Request, name: &str, facts: &Facts) -> Result<Plan, ReserveError> {
    let own = Target::own(name, std::process::id());
    let plan = plan_limit(request, vec![own], None, facts)?;
    Ok(Plan { threads: Vec::new(), ..plan })
}

fn fits(request: &Request, target: &Target, place: &Place, real_time_threads: usize) -> Result<(), ReserveError> {
    let Request { runtime, period, .. } = *request;
    let (name, id) = (target.name.clone(), target.thread.pid);
    if let Class::Deadline(reservation) = target.class {
        return Err(ReserveError::Already { name, id, reservation });
    }
    let real_time = is_real_time(&target.class);
    if runtime > period || (!real_time && (runtime < SHORTEST || period > LONGEST)) {
        return Err(ReserveError::Quota { runtime, period });
    }
    let (left, threads) = match &place.real_time {
        _ if !real_time => (place.quota, 1),
        Some(of) => (of.limit.map(|limit| limit.saturating_sub(of.taken)), real_time_threads),
        None => {
            let first = place.version == Version::V1;
            return Err(ReserveError::NotLimited { name, id, class: target.class.describe(), first });
        }
    };
    let wanted = share(request).bandwidth().saturating_mul(threads as u64);
    match left.filter(|left| wanted > *left) {
        Some(left) => {
            let (name, folder) = (format!("{name} ({id})"), place.folder.clone());
            Err(ReserveError::Above { name, request: *request, threads, folder, left })
        }
        None => Ok(()),
    }
}

fn sentences(request: &Request, target: &Target, facts: &Facts) -> Vec<String> {
    let mut all = vec![if is_real_time(&target.class) {
        "a control group is a limit, here on each CPU by itself, and no guarantee: until it is used up, \
         class and priority alone decide which thread runs"
            .to_owned()
    } else {
        "a control group is a limit and a preference, and no guarantee: real-time threads go first, and \
         ordinary ones of the same group and of other groups get their shares, too"
            .to_owned()
    }];
    if let Some(tick) = facts.tick.filter(|tick| request.runtime < *tick) {
        all.push(format!(
            "a runtime of {} is shorter than the kernel's tick of {tick}: a thread with a used-up \
             runtime is stopped only at a tick",
            request.runtime
        ));
    }
    all
}
