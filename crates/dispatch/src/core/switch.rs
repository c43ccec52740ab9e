//! Passed deadlines, and switches of plans.

use takt_model::Time;
use takt_policy::DeadlineEffect;

use super::operation::distance;
use super::{Core, SWITCHES_MAX};
use crate::fact::{Fact, FactSink, TimedFact};

impl<T: FactSink> Core<T> {
    /// Rates or participation differ between plans, so timers must learn of switches.
    pub(crate) fn vary(&mut self) {
        self.varies = true;
        self.switches.reserve_exact(SWITCHES_MAX);
    }

    /// The first switch that the timer has not handled: its time and its plan.
    pub(crate) fn next_switch(&self) -> Option<(Time, usize)> {
        self.switches.front().copied()
    }

    /// Removes the first switch, which the timer has handled.
    pub(crate) fn take_switch(&mut self) {
        self.switches.pop_front();
    }

    /// The time of the next deadline, for [`Core::pass_deadlines`].
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.levels.next_deadline()
    }

    /// Drops and demotes the jobs whose deadline has passed.
    pub(crate) fn pass_deadlines(&mut self, now: Time) {
        for slot in 0..self.slot_count() as u32 {
            let passed = self.levels.deadline(slot, now);
            self.take_note(slot, passed, now);
        }
        self.fill(now);
    }

    fn take_note(&mut self, slot: u32, passed: DeadlineEffect, now: Time) {
        match passed {
            DeadlineEffect::Continues => {}
            DeadlineEffect::Moved(_) if self.nests => self.call_all(),
            DeadlineEffect::Moved(level) => self.woken.insert(level),
            DeadlineEffect::Dropped { running } => {
                if running {
                    self.stopped.push((slot, self.current(slot).unwrap_or(0)));
                    if self.nests {
                        // The dropped job's code may continue for a while, so another thread needs
                        // its seat.
                        self.moved = true;
                        self.call_all();
                    }
                }
                self.drop_job(slot, now);
            }
        }
    }

    /// Switches to another plan. Returns how many waiting jobs changed level or were dropped. An
    /// unknown plan changes nothing.
    pub(crate) fn switch(&mut self, plan: usize, now: Time, changes: &mut Vec<(u32, DeadlineEffect)>) -> usize {
        changes.clear();
        let before = self.levels.plan();
        let (levels, operations) = (&mut self.levels, &self.operations);
        let room = operations.len();
        let there = levels.switch(plan, now, |slot, passed| {
            if changes.len() < room {
                changes.push((slot, passed));
            }
        });
        if !there {
            return 0;
        }
        for operation in &mut self.operations {
            (operation.distance, operation.takes_part) = distance(&operation.rest.distances, plan);
        }
        for (slot, passed) in changes.iter() {
            self.take_note(*slot, *passed, now);
        }
        if self.varies && before != plan {
            if self.switches.len() == SWITCHES_MAX {
                self.switches.pop_back();
            }
            self.switches.push_back((now, plan));
        }
        self.touched |= self.nests;
        self.tell_moved(now, false);
        // After the drops, because the running job then follows from the rest.
        let next = self.first_waiting();
        self.facts.record(TimedFact { at: now, slot: 0, number: 0, fact: Fact::Mode { plan: plan as u32, next } });
        self.fill_once(now);
        changes.len()
    }
}
