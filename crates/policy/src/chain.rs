//! Links of chains: job k of a successor is released when job k of all its predecessors has ended.
//!
//! ```
//! use takt_model::Time;
//! use takt_policy::Link;
//!
//! let mut link = Link::new(2);
//! link.ended(0, true, Time::from_ns(5));
//! assert_eq!(link.take_due(), None);
//! link.ended(0, true, Time::from_ns(3));
//! let due = link.take_due().expect("both predecessors have ended");
//! assert_eq!((due.number, due.shed, due.origin), (0, false, Time::from_ns(3)));
//! ```

use std::collections::VecDeque;

use takt_model::Time;

/// Jobs that end out of order, told by several threads, may be so many ahead.
const SLACK: usize = 16;

/// An instance whose predecessors have not all ended.
#[derive(Clone, Copy, Debug)]
struct Instance {
    waiting_for: u32,
    shed: bool,
    origin: Time,
}

/// The way into one successor.
#[derive(Clone, Debug)]
pub struct Link {
    predecessors: u32,
    /// Number of the first open instance.
    first: u64,
    open: VecDeque<Instance>,
    /// How many instances may be open; the oldest is shed for one more.
    open_max: usize,
}

/// An instance all of whose predecessors have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Its number.
    pub number: u64,
    /// A predecessor did not complete: nor will this job.
    pub shed: bool,
    /// The earliest nominal arrival among the instance's source jobs.
    pub origin: Time,
}

impl Link {
    /// For a job with so many predecessors; any number of instances may be open.
    #[must_use]
    pub fn new(predecessors: u32) -> Self {
        Link { predecessors, first: 0, open: VecDeque::new(), open_max: usize::MAX }
    }

    /// The same with room for `open_max` open instances and no allocation later, where no predecessor tells of a job more than `open_max` beyond
    /// the oldest open instance: where one runs ahead of another by more, the oldest instances are shed.
    #[must_use]
    pub fn bounded(predecessors: u32, open_max: usize) -> Self {
        let room = open_max.saturating_add(SLACK);
        Link { predecessors, first: 0, open: VecDeque::with_capacity(room), open_max }
    }

    /// How many instances are open: some but not all predecessors have ended.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Job `number` of one predecessor has ended; each tells its jobs in order, and whoever calls takes what is due before the next. An
    /// instance that was shed for want of room is over: what is told of it later is ignored.
    pub fn ended(&mut self, number: u64, completed: bool, origin: Time) {
        let Some(at) = number.checked_sub(self.first).map(|at| at as usize) else {
            debug_assert!(self.open_max < usize::MAX, "instance {number} is already closed");
            return;
        };
        while self.open.len() <= at {
            self.open.push_back(Instance { waiting_for: self.predecessors, shed: false, origin: Time::MAX });
        }
        if let Some(instance) = self.open.get_mut(at) {
            instance.waiting_for = instance.waiting_for.saturating_sub(1);
            instance.shed |= !completed;
            instance.origin = instance.origin.min(origin);
        }
        let too_many = self.open.len().saturating_sub(self.open_max);
        for oldest in self.open.iter_mut().take(too_many) {
            (oldest.waiting_for, oldest.shed) = (0, true);
        }
    }

    /// The next instance, if all its predecessors have ended.
    #[must_use]
    pub fn take_due(&mut self) -> Option<Due> {
        let instance = *self.open.front().filter(|instance| instance.waiting_for == 0)?;
        self.open.pop_front();
        let number = self.first;
        self.first += 1;
        Some(Due { number, shed: instance.shed, origin: instance.origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_due_when_the_last_predecessor_ends() {
        let t = Time::from_ns;
        let mut link = Link::new(2);
        link.ended(0, true, t(5));
        link.ended(1, false, t(15));
        assert_eq!(link.take_due(), None);
        link.ended(0, true, t(3));
        assert_eq!(link.take_due(), Some(Due { number: 0, shed: false, origin: t(3) }));
        assert_eq!((link.take_due(), link.open()), (None, 1));
        link.ended(1, true, t(20));
        assert_eq!(link.take_due(), Some(Due { number: 1, shed: true, origin: t(15) }));
    }

    #[test]
    fn a_predecessor_that_runs_ahead_sheds_the_oldest() {
        let t = Time::from_ns;
        let mut link = Link::bounded(2, 2);
        link.ended(0, true, t(1));
        link.ended(1, true, t(2));
        assert_eq!(link.take_due(), None);
        link.ended(2, true, t(3));
        assert_eq!(link.take_due(), Some(Due { number: 0, shed: true, origin: t(1) }));
        assert_eq!(link.take_due(), None);
        link.ended(0, true, t(1));
        link.ended(1, true, t(2));
        assert_eq!(link.take_due(), Some(Due { number: 1, shed: false, origin: t(2) }));
    }
}
