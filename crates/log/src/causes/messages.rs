//! Jobs released by messages: the arrival of the message, and its receiving job.

use std::collections::{BTreeMap, VecDeque};

use takt_model::{Span, TaskId, Time};

use super::Causes;
use super::found::Cause;
use super::rules::MessageRule;
use crate::event::JobKey;

/// Arrivals of messages that are kept for each task that leaves them.
const ARRIVED_MAX: usize = 64;

/// The last arrivals of messages, by the task whose jobs left them: number of the job, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals(BTreeMap<TaskId, VecDeque<(u64, Time)>>);

impl Arrivals {
    pub(super) fn add(&mut self, job: JobKey, now: Time) {
        let kept = self.0.entry(job.task).or_default();
        if kept.len() == ARRIVED_MAX {
            kept.pop_front();
        }
        kept.push_back((job.number, now));
    }

    fn take(&mut self, job: JobKey) -> Option<Time> {
        let kept = self.0.get_mut(&job.task)?;
        let at = kept.iter().position(|(number, _)| *number == job.number)?;
        kept.remove(at).map(|(_, at)| at)
    }
}

/// Why a job that a message released came later than it could have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageDelay {
    /// How long after the latest time by plan its message came.
    pub(super) late_message: Span,
    /// The disturbance of its receiving job meanwhile, with the longest cause.
    pub(super) receiving: Option<(Cause, Span)>,
}

impl MessageDelay {
    /// Both delays, if there are any.
    pub(super) fn delays(&self) -> impl Iterator<Item = (Cause, Span)> + use<> {
        let message = (Cause::LateMessage, self.late_message);
        self.receiving.into_iter().chain((!message.1.is_zero()).then_some(message))
    }

    pub(super) fn total(&self) -> Span {
        self.delays().fold(Span::ZERO, |sum, (_, span)| sum.saturating_add(span))
    }
}

impl Causes {
    /// A message released a job of an instance that arrived at `arrival`.
    pub(super) fn message_delay(&mut self, rule: MessageRule, number: u64, arrival: Time, now: Time) -> MessageDelay {
        let came = self.arrivals.take(JobKey { task: rule.from, number });
        let due = arrival.saturating_add(rule.latest);
        // The receiving job ends at this instant, and releases it.
        let taken = rule.taken_by.and_then(|task| self.finished.get(&task)?.back()).filter(|taken| taken.ended == now);
        let receiving = taken.and_then(|job| {
            let waited = came.map_or(Span::MAX, |came| now.saturating_since(came));
            let delay = job.ended.saturating_since(job.undisturbed).min(waited);
            let cause = job.cause.map(|cause| if cause == Cause::OwnOverrun { Cause::BeyondWcet } else { cause });
            cause.map(|cause| (cause, delay)).filter(|(_, delay)| !delay.is_zero())
        });
        MessageDelay { late_message: came.map_or(Span::ZERO, |came| came.saturating_since(due)), receiving }
    }
}
