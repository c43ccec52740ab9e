//! Followers of ended jobs: they are notified here and on other CPUs, and released or shed.

use takt_log::CancelCause;
use takt_model::Time;
use takt_policy::ReadyInstance;

use super::{Core, Ended, INSTANCES_MAX};
use crate::fact::{Fact, FactSink, TimedFact};

impl<T: FactSink> Core<T> {
    /// Whether [`Core::take_ended`] has a job, or will have after [`Core::release_followers`].
    pub(crate) fn has_ended(&self) -> bool {
        !self.remote.is_empty() || !self.due.is_empty() || !self.overdue.is_empty()
    }

    /// Takes an ended job with followers on other CPUs.
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        self.remote.pop_front()
    }

    /// Records an ended job for its followers here and on other CPUs.
    #[inline]
    pub(super) fn follow_up(&mut self, slot: u32, number: u64, completed: bool, origin: Time) {
        let Some(operation) = self.operations.get(slot as usize) else { return };
        let ended = Ended { slot, number, completed, origin };
        if operation.followed {
            self.ended.push_back(ended);
        }
        if operation.followed_elsewhere {
            self.remote.push_back(ended);
        }
    }

    /// Releases or sheds the followers on this CPU. Call it before leaving the lock. Some work may
    /// remain for the next call: other CPUs must be notified first, or there is too much to shed or
    /// drop at once. Returns whether the next call may come at once.
    #[inline]
    pub(crate) fn release_followers(&mut self, now: Time) -> bool {
        debug_assert!(self.is_whole(), "a job is counted twice, or not at all");
        // The common case.
        let nothing = self.ended.is_empty() && self.due.is_empty() && self.overdue.is_empty();
        !nothing && self.release_all_followers(now)
    }

    #[inline(never)]
    fn release_all_followers(&mut self, now: Time) -> bool {
        if !self.overdue.is_empty() {
            self.fill_overdue(now);
        }
        let mut shed = 0;
        loop {
            // One job may cause many to be shed. The followers of each are handled before the next.
            let crowded = self.ended.len() >= self.operations.len();
            let full = crowded || self.remote.len() >= self.remote_max || shed >= INSTANCES_MAX;
            let slot = if full { None } else { self.due.front().copied() };
            if let Some(slot) = slot {
                match self.take_due(slot) {
                    Some(due) => {
                        shed += 1;
                        self.release_or_shed(slot, due, now);
                    }
                    None => drop(self.due.pop_front()),
                }
            } else if let Some(ended) = self.ended.pop_front() {
                let count =
                    self.operations.get(ended.slot as usize).map_or(0, |operation| operation.rest.followers.len());
                for at in 0..count {
                    let operation = self.operations.get(ended.slot as usize);
                    if let Some(slot) = operation.and_then(|operation| operation.rest.followers.get(at)).copied() {
                        self.follow(slot, ended);
                    }
                }
            } else {
                return !self.overdue.is_empty() || (!self.due.is_empty() && self.remote.len() < self.remote_max);
            }
        }
    }

    /// Records the end of a predecessor's job of the operation in `slot`. [`Core::release_followers`] releases
    /// or sheds the job that waited for it.
    pub(crate) fn follow(&mut self, slot: u32, ended: Ended) {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        if let Some(link) = &mut operation.rest.link {
            link.ended(ended.number, ended.completed, ended.origin);
            if !self.due.contains(&slot) {
                self.due.push_back(slot);
            }
        }
    }

    fn take_due(&mut self, slot: u32) -> Option<ReadyInstance> {
        self.operations.get_mut(slot as usize)?.rest.link.as_mut()?.take_due()
    }

    fn release_or_shed(&mut self, slot: u32, due: ReadyInstance, now: Time) {
        if !due.shed {
            // A job without room is counted and reported as rejected.
            let released = self.release(slot, now, due.origin, now);
            debug_assert!(released.is_err() || released == Ok(due.number), "links tell every number once");
            return;
        }
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        let number = operation.number();
        // The link was full, so the job is rejected. Its predecessors may well have completed.
        let cause = if due.given_up { CancelCause::Rejected } else { CancelCause::Shed };
        operation.rest.rejected += u64::from(due.given_up);
        operation.rest.cancelled += u64::from(!due.given_up);
        debug_assert_eq!(number, due.number, "links tell every number once");
        // The origin of an abandoned instance is unknown.
        let origin = if due.origin == Time::MAX { now } else { due.origin };
        self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Release { arrival: now, origin } });
        self.facts.record(TimedFact { at: now, slot, number, fact: Fact::Cancel(cause) });
        self.follow_up(slot, number, false, origin);
    }
}
