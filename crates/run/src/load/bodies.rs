//! The simplest loads.

use takt_linux::clock;
use takt_model::{Span, Time};

use super::LoadContext;

/// CPU time of a thread, and the interval of its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuUse {
    /// Start of the interval.
    pub from: Time,
    /// End of the interval.
    pub to: Time,
    /// CPU time used in between.
    pub cpu: Span,
}

impl CpuUse {
    /// The share of the interval with a CPU; zero for an empty interval.
    #[must_use]
    pub fn share(&self) -> f64 {
        let time = self.to.saturating_since(self.from).as_ns();
        if time == 0 { 0.0 } else { self.cpu.as_ns() as f64 / time as f64 }
    }
}

/// Never blocks and uses all its CPU time. Run this under SCHED_DEADLINE, which bounds it, or as an
/// ordinary thread.
pub fn greedy(context: &mut LoadContext) -> CpuUse {
    let (from, before) = (context.now(), clock::thread_cpu());
    while context.work(Span::from_s(1)) {}
    CpuUse { from, to: context.now(), cpu: clock::thread_cpu().saturating_sub(before) }
}

/// A job of [`periodic`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// The planned start.
    pub arrival: Time,
    /// The completion.
    pub completion: Time,
}

/// Uses `demand` of CPU time in each `period` from the start on. A late job delays the next one,
/// and none is left out.
pub fn periodic(context: &mut LoadContext, period: Span, demand: Span) -> Vec<Finished> {
    let most = context.end().as_ns() / period.as_ns().max(1) + 1;
    let mut jobs = Vec::with_capacity(usize::try_from(most).unwrap_or(0).min(JOBS_MAX));
    let mut arrival = Time::ZERO;
    while jobs.len() < JOBS_MAX && context.sleep_until(arrival) && context.work(demand) {
        jobs.push(Finished { arrival, completion: context.now() });
        arrival = arrival.saturating_add(period);
    }
    jobs
}

/// At most so many jobs run.
const JOBS_MAX: usize = 1 << 20;
