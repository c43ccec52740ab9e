//! Sizes a reservation from the jobs that were seen of a thread, or tells why there is none. Pure.
//!
//! For the wanted probability p, takt seeks the least reservation, in hundredths of its period. In
//! the long run at least the share p of the jobs is done within the deadline
//! ([`takt_analysis::reservation::stochastic`]). Execution times are distributed as seen, each with
//! a margin. Arrivals lie on the inferred grid.
//!
//! **Period of the reservation.** Jobs arrive every P, released up to J later. So at least P - J
//! lie between two releases, and D - J between a release and its deadline. Let T = (P - J) / m, m
//! the least whole number with T <= D - J. Then each job finds at least one whole period of the
//! reservation by its deadline, and m periods between two releases. The analysis counts in these
//! periods.
//!
//! **J** is the usual lateness: deviations from the grid without outliers, and what 19 of 20
//! releases came after their timers. Later releases are counted and told: no reservation helps
//! against a timer that is late.
//!
//! **Dependent executions.** The model assumes independent executions. If a test rejects
//! independence, the reservation is sized for the longest execution seen, in any order.
//!
//! **Enough jobs.** n jobs suffice for the share p only if 0.05^(1/n) >= p. Then at least the share
//! p of later jobs needs no more than the longest job seen, at 95 % confidence (Wilks).

use takt_analysis::reservation::costs::Charge;
use takt_analysis::reservation::independence::Independence;
use takt_analysis::reservation::{Pmf, Requirements, ReserveError, Reserved, reserve};
use takt_model::{Probability, Span, Time};
use takt_trace::infer::{InferredTask, Kind, holds_for};

use super::phase::Phase;
use crate::table::time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guarantee {
    /// The share of jobs that are to be done by their deadlines.
    pub(super) probability: Probability,
    /// After the arrival; `None`: the period that is found.
    pub(super) deadline: Option<Span>,
    /// Added to each execution; `None`: 5 % of the longest, at least 200 us, as `takt run` does.
    pub(super) margin: Option<Span>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sized {
    /// The thread's period.
    pub(super) period: Span,
    pub(super) deadline: Span,
    /// The usual lateness of releases.
    pub(super) jitter: Span,
    /// Releases that were later than usual.
    pub(super) late: u64,
    /// The lateness of the latest release.
    pub(super) latest: Span,
    /// Jobs whose execution was seen.
    pub(super) jobs: u64,
    pub(super) exec: (Span, Span, Span),
    pub(super) margin: Span,
    pub(super) reserved: Reserved,
    pub(super) independence: Independence,
    /// Whether it is sized for the longest execution seen: on request, or because executions depend
    /// on one another.
    pub(super) longest: bool,
    /// If executions are independent, at least this share of later jobs needs no more than the longest seen.
    pub(super) confidence: f64,
}

/// The number of jobs that suffice for a share of later jobs (see the head of this file). A share of
/// one counts as 99 %.
pub(super) fn jobs_for(probability: Probability) -> usize {
    let share = if probability == Probability::ONE { 0.99 } else { share_of(probability) };
    let mut enough = (0.05f64.ln() / share.ln()).ceil().clamp(JOBS_MIN, JOBS_MAX) as usize;
    // Rounding may leave one too few.
    while enough < JOBS_MAX as usize && holds_for(enough as u64, 0) < share {
        enough += 1;
    }
    enough
}

/// The test of independence needs so many jobs.
const JOBS_MIN: f64 = 60.0;
const JOBS_MAX: f64 = 1e6;
/// Releases later than this share of all releases are reported separately.
const USUAL_SHARE: f64 = 0.95;

fn share_of(probability: Probability) -> f64 {
    f64::from(probability.billionths()) / 1e9
}

/// Sizes a reservation.
///
/// # Errors
/// Why there is none, and what to do: sentences.
pub(super) fn judge(name: &str, phase: &Phase, want: &Guarantee) -> Result<Sized, String> {
    let Some(task) = &phase.task else {
        return Err(format!(
            "{name} did not release a job in {}: it slept, or it was late all the time and never did{}",
            time(phase.duration),
            other_threads(phase)
        ));
    };
    let executions: Vec<u64> = phase.jobs.iter().filter_map(|job| job.exec).map(Span::as_ns).collect();
    let (Kind::Periodic, Some(grid), Some(exec)) = (task.arrivals.kind, task.arrivals.grid, &task.exec) else {
        return Err(format!(
            "{name} is not periodic, as far as {} jobs in {} tell ({}: {}){}; a thread that is always late does \
             not show its period: give --runtime and --period",
            phase.jobs.len(),
            time(phase.duration),
            task.arrivals.kind.name(),
            task.arrivals.why,
            other_threads(phase)
        ));
    };
    let enough = jobs_for(want.probability);
    if executions.len() < enough {
        return Err(format!(
            "{} jobs of {name} were seen, and it takes {enough} to size for the share {} of them; look longer: \
             --observe {}",
            executions.len(),
            want.probability,
            Span::from_ns(
                grid.period
                    .as_ns()
                    .saturating_mul(enough as u64 * 21 / 20)
                    .div_ceil(1_000_000_000)
                    .saturating_mul(1_000_000_000)
            )
        ));
    }
    let (jitter, late, latest) = lateness(task, phase);
    let deadline = want.deadline.unwrap_or(grid.period);
    let time_left = deadline.saturating_sub(jitter);
    let arrival_gap = grid.period.saturating_sub(jitter);
    if jitter > Span::from_ns(grid.period.as_ns() / 4) || time_left.is_zero() {
        return Err(format!(
            "{name} comes every {}, but usually up to {} late, which leaves too little of its deadline of {}; \
             find the cause of the lateness (\"takt doctor\"), or give --runtime and --period",
            grid.period,
            time(jitter),
            time(deadline)
        ));
    }
    let parts = arrival_gap.as_ns().div_ceil(time_left.as_ns().max(1)).max(1);
    let period = Span::from_ns((arrival_gap.as_ns() / parts / 1000 * 1000).max(1000));
    let quantum = Span::from_ns((period.as_ns() / 100 / 1000 * 1000).max(1000));
    let margin = want.margin.unwrap_or_else(|| Span::from_us(200).max(Span::from_ns(exec.max.as_ns() / 20)));
    let independence = independence_of(&executions, quantum);
    let longest = want.probability == Probability::ONE || independence.is_doubtful();
    let probability = if longest { Probability::ONE } else { want.probability };
    let reserved = size(&executions, arrival_gap, time_left, period, quantum, margin, probability)
        .map_err(|error| format!("{name}: {error}"))?;
    Ok(Sized {
        period: grid.period,
        deadline,
        jitter,
        late,
        latest,
        jobs: executions.len() as u64,
        exec: (exec.min, exec.mean, exec.max),
        margin,
        reserved,
        independence,
        longest,
        confidence: holds_for(executions.len() as u64, 0),
    })
}

fn size(
    executions: &[u64],
    arrival_gap: Span,
    time_left: Span,
    period: Span,
    quantum: Span,
    margin: Span,
    probability: Probability,
) -> Result<Reserved, String> {
    let exec = Pmf::of_samples(executions).ok_or("no execution was seen")?;
    let arrivals = Pmf::certain(arrival_gap.as_ns());
    let charge = Charge { job: margin, budget: Span::ZERO };
    let wanted = Requirements {
        exec: &exec,
        arrivals: &arrivals,
        period,
        deadline: time_left,
        probability,
        pending: None,
        quantum,
        charge,
    };
    reserve(&wanted).map_err(|error| match error {
        ReserveError::NotEnough { .. } => format!("{error}; it needs more than a CPU gives, or a later --deadline"),
        error => error.to_string(),
    })
}

/// Whether executions depend on each other. The model counts them in whole quanta.
fn independence_of(executions: &[u64], quantum: Span) -> Independence {
    let quanta: Vec<u64> = executions.iter().map(|exec| exec.div_ceil(quantum.as_ns().max(1))).collect();
    Independence::of(&quanta)
}

/// The usual lateness of releases after the grid, how many were later, and the largest.
fn lateness(task: &InferredTask, phase: &Phase) -> (Span, u64, Span) {
    let mut late = Vec::with_capacity(phase.jobs.len());
    let mut previous_end: Option<Time> = None;
    for job in &phase.jobs {
        // A job that waits for its predecessor does not count: a reservation prevents this.
        if previous_end.is_some_and(|end| end <= job.arrival) {
            late.push(job.release.saturating_since(job.arrival));
        }
        previous_end = job.complete;
    }
    late.sort_unstable();
    let usual =
        late.get(((late.len() as f64 * USUAL_SHARE).ceil() as usize).saturating_sub(1)).copied().unwrap_or_default();
    let latest = late.last().copied().unwrap_or_default();
    let grid = task.arrivals.grid.map_or(Span::ZERO, |grid| grid.typical_jitter);
    let jitter = grid.saturating_add(usual);
    (jitter, late.iter().filter(|late| **late > jitter).count() as u64, latest)
}

fn other_threads(phase: &Phase) -> String {
    let names: Vec<String> =
        phase.others.iter().take(8).map(|(name, period)| format!("{name} every {period}")).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; periodic beside it are {} (--pid NUMBER)", names.join(", "))
    }
}
