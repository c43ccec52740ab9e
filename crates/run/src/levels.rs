//! Plans of takt's own dispatcher for a run: as many priorities as its levels need.

use takt_dispatch::{Anomalies, Anomaly, Limits, Plan, bound};
use takt_linux::sched::FIFO_PRIORITY_MAX;

use crate::RunOptions;

/// Largest number of waiting jobs of one task under the dispatcher. Up to this backlog a late task
/// catches up, as in a simulation.
pub const BACKLOG: u32 = 1024;

/// The plan from `compute`, and notes about it.
pub(crate) fn plan(
    options: &RunOptions,
    compute: impl Fn(&Limits) -> Result<(Plan, Vec<Anomaly>), Anomalies>,
) -> Result<(Plan, Vec<String>), Anomalies> {
    // If the levels do not fit below the requested priority, the priority is raised, as without a
    // dispatcher.
    let mut top = options.top_priority;
    let plan = loop {
        let plan = compute(&Limits { priorities: 1..=top, preemptive: true, ..Limits::default() });
        let few = |anomaly: &Anomaly| matches!(anomaly, Anomaly::TooFewPriorities { .. });
        match &plan {
            Err(anomalies) if top < FIFO_PRIORITY_MAX && anomalies.0.iter().any(few) => top += 1,
            _ => break plan,
        }
    };
    let (plan, lateness) = plan?;
    let plan = plan.with_backlog(BACKLOG);
    let mut levels = std::iter::once(&plan.levels).chain(plan.modes.iter().map(|mode| &mode.levels)).flatten();
    let how = if levels.any(|level| level.preemptive) {
        "a level has a SCHED_FIFO thread on each CPU for each depth to which its jobs preempt each other"
    } else {
        "a level has one SCHED_FIFO thread on each CPU, and its jobs run to completion"
    };
    let mut notes = vec![format!("takt's own dispatcher runs strategy \"{}\": {how}", plan.strategy)];
    notes.extend((top > options.top_priority).then(|| note_of_priority(top, options.top_priority)));
    notes.extend(lateness.iter().map(|anomaly| format!("deadlines can be missed: {anomaly}")));
    if !options.best_effort {
        notes.extend(bound::beyond(&plan, bound::bound()));
    }
    Ok((plan, notes))
}

/// The note that the levels do not fit below the requested priority.
pub(crate) fn note_of_priority(top: u8, asked: u8) -> String {
    format!("the levels need more SCHED_FIFO priorities than 1 to {asked}: the most important level has {top}")
}
