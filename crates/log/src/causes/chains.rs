//! When jobs that follow others would have come, had nothing been disturbed.

use std::collections::VecDeque;

use takt_model::{Span, Time};

use super::found::Cause;
use super::{Busy, Causes};
use crate::event::JobKey;

/// Jobs of a task that are kept for their followers.
const FINISHED_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    number: u64,
    pub(super) ended: Time,
    /// When it would have ended.
    pub(super) undisturbed: Time,
    /// The longest disturbance, if it ended later.
    pub(super) cause: Option<Cause>,
}

impl Causes {
    /// Keeps when a job would have ended, if others follow it. A job has the same number as those
    /// that it follows.
    pub(super) fn keep_finished(&mut self, job: JobKey, now: Time) {
        if !self.rules.is_followed(job.task) {
            return;
        }
        let Some(pending) = self.pending.get(&job) else { return };
        let (delayed, delay) = (pending.delayed, pending.begins.saturating_since(pending.due));
        let (sum, undisturbed, inherited) = match self.own_cpu(job, pending.stream) {
            Some(cpu) => {
                let Busy { sum, undisturbed, inherited } = self.in_busy_period(job, cpu, now, true);
                (sum, undisturbed, inherited)
            }
            None => {
                let sum = self.in_own_time(job, now);
                let undisturbed = less(now, sum.disturbance.total());
                (sum, Some(undisturbed), None)
            }
        };
        let Some(undisturbed) = undisturbed.map(|end| less(end.min(now), delay)) else { return };
        let here = sum.disturbance.most().map(|cause| (cause, sum.disturbance.of(cause)));
        let longest = [here, inherited, delayed].into_iter().flatten().max_by_key(|(_, span)| *span);
        let cause = longest.filter(|_| undisturbed < now).map(|(cause, _)| cause);
        let kept = self.finished.entry(job.task).or_default();
        if kept.len() == FINISHED_MAX {
            kept.pop_front();
        }
        kept.push_back(Finished { number: job.number, ended: now, undisturbed, cause });
    }

    /// Returns when the job would have arrived after its predecessors, and the longest delay among
    /// them, with its cause. Without records this is the origin of the chain.
    pub(super) fn due_after(&self, job: JobKey, origin: Time, begins: Time) -> (Time, Option<(Cause, Span)>) {
        let after = self.rules.task(job.task).map_or(&[][..], |rule| &rule.after);
        let finished = |of: &VecDeque<Finished>| of.iter().rev().find(|one| one.number == job.number).copied();
        let (mut due, mut last) = (origin, None::<Finished>);
        for one in after.iter().filter_map(|task| self.finished.get(task).and_then(finished)) {
            due = due.max(one.undisturbed);
            last = last.filter(|last| last.ended > one.ended).or(Some(one));
        }
        let due = due.min(begins);
        let delay = begins.saturating_since(due);
        let cause = last.and_then(|last| last.cause).filter(|_| !delay.is_zero());
        (due, cause.map(|cause| (cause, delay)))
    }
}

pub(super) fn less(time: Time, span: Span) -> Time {
    Time::from_ns(time.as_ns().saturating_sub(span.as_ns()))
}
