//! Links of chains: job k of a successor is released when job k of all its predecessors has ended.

use std::collections::VecDeque;

use takt_model::Time;

/// An instance whose predecessors have not all ended.
#[derive(Clone, Copy, Debug)]
struct Instance {
    waiting_for: u32,
    shed: bool,
    origin: Time,
}

/// The way into one successor.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    predecessors: u32,
    /// Number of the first open instance.
    first: u64,
    open: VecDeque<Instance>,
}

/// An instance all of whose predecessors have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) number: u64,
    /// A predecessor did not complete: nor will this job.
    pub(crate) shed: bool,
    /// The earliest nominal arrival among the instance's source jobs.
    pub(crate) origin: Time,
}

impl Link {
    pub(crate) fn new(predecessors: u32) -> Self {
        Link { predecessors, first: 0, open: VecDeque::new() }
    }

    /// How many instances are open: some but not all predecessors have ended.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Job `number` of one predecessor has ended.
    pub(crate) fn ended(&mut self, number: u64, completed: bool, origin: Time) {
        let Some(at) = number.checked_sub(self.first).map(|at| at as usize) else {
            debug_assert!(false, "instance {number} is already closed");
            return;
        };
        while self.open.len() <= at {
            self.open.push_back(Instance { waiting_for: self.predecessors, shed: false, origin: Time::MAX });
        }
        let instance = &mut self.open[at];
        instance.waiting_for -= 1;
        instance.shed |= !completed;
        instance.origin = instance.origin.min(origin);
    }

    /// The next instance, if all its predecessors have ended.
    pub(crate) fn take_due(&mut self) -> Option<Due> {
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
}
