//! Sentences about a run for the screen and the log.

use takt_model::{Span, Time};

use crate::TaskSummary;

/// The kernel has ended the scheduler.
pub(crate) fn fallen_back(at: Time, why: &str) -> String {
    format!(
        "the kernel ended the sched_ext scheduler about {} after the start: {why}; from then on no budget was \
         kept, and all threads ran on under the kernel's own scheduler",
        Span::from_ns(at.as_ns())
    )
}

/// At most so many tasks are named in a note.
const NAMED_MAX: usize = 6;

/// A note about overruns of reservations, with the tasks that had them.
pub(crate) fn throttled(tasks: &[TaskSummary]) -> Option<String> {
    let overran: Vec<String> = (tasks.iter())
        .filter_map(|task| task.overruns.filter(|jobs| *jobs > 0).map(|jobs| (&task.name, jobs)))
        .map(|(name, jobs)| format!("\"{name}\" {jobs} job{}", if jobs == 1 { "" } else { "s" }))
        .collect();
    if overran.is_empty() {
        return None;
    }
    let named = overran.get(..NAMED_MAX).unwrap_or(&overran).join(", ");
    let more = match overran.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more tasks"),
    };
    Some(format!(
        "jobs used more CPU time than their reservation holds, and the kernel throttles such a job \
         until the reservation's next period: {named}{more}"
    ))
}

/// A note about stamps that contradict the kernel's account.
pub(crate) fn contradicted(tasks: &[TaskSummary]) -> Option<String> {
    let stamps = || tasks.iter().filter_map(|task| task.stamps.as_ref());
    let jobs: u64 = stamps().map(|stamps| stamps.contradicted).sum();
    let completed: u64 = tasks.iter().map(|task| task.completed).sum();
    if jobs > 0 {
        let checked: u64 = stamps().map(|stamps| stamps.checked).sum();
        return Some(format!(
            "{jobs} of {checked} jobs stamped their start or end before the kernel gave their thread a \
             CPU: the figures of these jobs are doubtful"
        ));
    }
    let unseen = completed > 0 && stamps().next().is_some() && stamps().all(|stamps| stamps.checked == 0);
    unseen.then(|| NOTE_NO_EVENTS.to_owned())
}

/// The note for a recording without events.
pub(crate) const NOTE_NO_EVENTS: &str = "the kernel reported no events of the threads of this run, as \
    in a container with process numbers of its own: preemptions, migrations and CPU times are unknown";
