//! The next job of an operation: from its backlog to the queue of its level.

use takt_model::Time;
use takt_policy::{Job, Queued};

use super::operation::{Current, Instance};
use super::{Core, INSTANCES_MAX};
use crate::fact::FactSink;

impl<T: FactSink> Core<T> {
    /// Makes a job the current one of its operation, whose slot is empty. Puts it into the queue of
    /// its level.
    #[inline]
    pub(super) fn queue(&mut self, slot: u32, job: Instance, now: Time) {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        let Instance { number, arrival, release, deadline, origin } = job;
        operation.current = Some(Current { number, origin });
        match self.levels.ready(now, Job { slot, release, arrival, deadline }) {
            Queued::Level(level) => self.call(level),
            Queued::Dropped => self.drop_job(slot, now),
        }
    }

    /// Queues the next job of each freed slot.
    #[inline]
    pub(super) fn fill(&mut self, now: Time) {
        if !self.freed.is_empty() {
            self.fill_freed(now);
        }
    }

    fn fill_freed(&mut self, now: Time) {
        while let Some(slot) = self.freed.pop() {
            self.fill_slot(slot, now);
        }
    }

    /// Queues the first job of a backlog whose slot is free. If that job is late and dropped, the
    /// slot is free again.
    fn fill_slot(&mut self, slot: u32, now: Time) {
        let Some(operation) = self.operations.get_mut(slot as usize) else { return };
        if operation.current.is_none()
            && let Some(next) = operation.rest.waiting.pop_front()
        {
            operation.waits -= 1;
            self.queue(slot, next, now);
        }
    }

    /// Queues only one job of each freed slot. The rest of an entirely late backlog is left to
    /// [`Core::release_followers`].
    pub(super) fn fill_once(&mut self, now: Time) {
        for left in (0..self.freed.len()).rev() {
            if let Some(slot) = self.freed.pop() {
                self.fill_slot(slot, now);
                // These slots were freed again.
                self.overdue.extend(self.freed.drain(left..));
            }
        }
    }

    /// Continues the work that [`Core::fill_once`] left, a few jobs at a time.
    #[cold]
    pub(super) fn fill_overdue(&mut self, now: Time) {
        for _ in 0..INSTANCES_MAX {
            let Some(slot) = self.overdue.pop() else { return };
            self.fill_slot(slot, now);
            self.overdue.append(&mut self.freed);
        }
    }
}
