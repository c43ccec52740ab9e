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

/// Instances in a row whose state is the same.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// How many. More than one only if all are lost.
    count: u64,
    /// Predecessors whose job has not ended.
    waiting_for: u32,
    shed: bool,
    /// How many of them are shed only for lack of room.
    given_up: u64,
    /// [`Time::MAX`] if it was not kept.
    origin: Time,
}

impl Run {
    /// Whether it will be shed, and no later report changes that.
    fn is_lost(&self) -> bool {
        self.waiting_for == 0 && self.shed
    }
}

/// The links of all predecessors to one successor.
#[derive(Clone, Debug)]
pub struct Link {
    predecessors: u32,
    /// Number of the first open instance.
    first: u64,
    open: u64,
    runs: VecDeque<Run>,
    /// Number of open instances that are not lost.
    live: usize,
    /// The most live instances. For one more the oldest is shed.
    live_max: usize,
}

/// An instance all of whose predecessors have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyInstance {
    /// Its number.
    pub number: u64,
    /// It will not complete: a predecessor did not, or it was given up.
    pub shed: bool,
    /// It was shed for want of room: one predecessor ran ahead of another by more than may be.
    pub given_up: bool,
    /// The earliest nominal arrival among the instance's source jobs. [`Time::MAX`] for a shed
    /// instance whose origin was not kept for lack of room.
    pub origin: Time,
}

impl Link {
    /// For a job with so many predecessors; any number of instances may be open.
    #[must_use]
    pub fn new(predecessors: u32) -> Self {
        Link { predecessors, first: 0, open: 0, runs: VecDeque::new(), live: 0, live_max: usize::MAX }
    }

    /// Like [`Link::new`], but with room for `live_max` instances that can still be released,
    /// and without later allocation. If one predecessor runs ahead of another by more, the oldest
    /// instances are given up.
    ///
    /// Any number of instances that are to be shed may lie between them. So a predecessor with at
    /// most `live_max` waiting jobs loses none, however many jobs it rejects.
    #[must_use]
    pub fn bounded(predecessors: u32, live_max: usize) -> Self {
        // Between any two live ones a run of lost ones, and the one that is being reported.
        let room = live_max.saturating_mul(2).saturating_add(4);
        Link { runs: VecDeque::with_capacity(room), live_max, ..Link::new(predecessors) }
    }

    /// How many instances are open: some but not all predecessors have ended, or those before them are.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Reports the end of job `number` of one predecessor. Each predecessor reports a number once.
    /// Later reports for an instance that was shed for lack of room are ignored.
    pub fn ended(&mut self, number: u64, completed: bool, origin: Time) {
        let Some(ahead) = number.checked_sub(self.first) else {
            debug_assert!(self.live_max < usize::MAX, "instance {number} is already closed");
            return;
        };
        while self.open <= ahead {
            self.open_one();
        }
        let Some(run) = self.find(ahead) else { return };
        if run.is_lost() {
            return;
        }
        run.waiting_for = run.waiting_for.saturating_sub(1);
        run.shed |= !completed;
        run.origin = run.origin.min(origin);
        self.live -= usize::from(run.is_lost());
        self.give_up();
    }

    /// Sheds the oldest instance if there are too many.
    fn give_up(&mut self) {
        if self.live > self.live_max
            && let Some(oldest) = self.runs.iter_mut().find(|run| !run.is_lost())
        {
            // One instance: it is not lost yet.
            (oldest.waiting_for, oldest.shed, oldest.given_up) = (0, true, 1);
            self.live -= 1;
        }
    }

    /// The run of the instance so far behind the first.
    fn find(&mut self, mut ahead: u64) -> Option<&mut Run> {
        if self.runs.len() as u64 == self.open {
            return self.runs.get_mut(ahead as usize);
        }
        let holds = |run: &&mut Run| {
            let found = ahead < run.count;
            ahead = ahead.saturating_sub(run.count);
            found
        };
        self.runs.iter_mut().find(holds)
    }

    fn open_one(&mut self) {
        self.give_up();
        if self.runs.len() > self.live_max.saturating_mul(2).saturating_add(2) {
            self.merge_lost();
        }
        let run = Run { count: 1, waiting_for: self.predecessors, shed: false, given_up: 0, origin: Time::MAX };
        self.runs.push_back(run);
        self.open += 1;
        self.live += 1;
    }

    /// Merges adjacent runs of lost jobs.
    fn merge_lost(&mut self) {
        let mut kept = 0_usize;
        for at in 0..self.runs.len() {
            let Some(run) = self.runs.get(at).copied() else { return };
            let last = kept.checked_sub(1).and_then(|last| self.runs.get_mut(last));
            if let Some(last) = last.filter(|last| last.is_lost() && run.is_lost()) {
                (last.count, last.origin) = (last.count + run.count, Time::MAX);
                last.given_up += run.given_up;
            } else {
                if let Some(place) = self.runs.get_mut(kept) {
                    *place = run;
                }
                kept += 1;
            }
        }
        self.runs.truncate(kept);
    }

    /// The next instance, if all its predecessors have ended.
    #[must_use]
    pub fn take_due(&mut self) -> Option<ReadyInstance> {
        let run = self.runs.front_mut().filter(|run| run.waiting_for == 0)?;
        // The instances of a merged run are indistinguishable, so report as given up as many as
        // were merged.
        let given_up = run.given_up > 0;
        run.given_up -= u64::from(given_up);
        let due = ReadyInstance { number: self.first, shed: run.shed, given_up, origin: run.origin };
        run.count -= 1;
        if run.count == 0 {
            self.runs.pop_front();
        }
        self.live -= usize::from(!due.shed);
        self.first += 1;
        self.open -= 1;
        Some(due)
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
        assert_eq!(link.take_due(), Some(ReadyInstance { number: 0, shed: false, given_up: false, origin: t(3) }));
        assert_eq!((link.take_due(), link.open()), (None, 1));
        link.ended(1, true, t(20));
        assert_eq!(link.take_due(), Some(ReadyInstance { number: 1, shed: true, given_up: false, origin: t(15) }));
    }

    #[test]
    fn rejected_jobs_end_before_those_that_wait_and_cost_no_room() {
        let t = Time::from_ns;
        let mut link = Link::bounded(1, 3);
        let room = link.runs.capacity();
        // Jobs 0, 4 and 800 wait; the others were rejected.
        for number in (0..1000).filter(|number| ![0, 4, 800].contains(number)) {
            link.ended(number, false, t(number));
            assert_eq!(link.take_due(), None);
        }
        for (done, next) in [(0, 4), (4, 800), (800, 1000)] {
            link.ended(done, true, t(done));
            assert_eq!(
                link.take_due(),
                Some(ReadyInstance { number: done, shed: false, given_up: false, origin: t(done) })
            );
            for number in done + 1..next {
                let due = link.take_due().unwrap();
                assert_eq!((due.number, due.shed, due.given_up), (number, true, false));
            }
            assert_eq!(link.take_due(), None);
        }
        assert_eq!((link.open(), link.runs.capacity()), (0, room));
    }

    #[test]
    fn for_a_predecessor_that_runs_ahead_the_oldest_is_given_up() {
        let t = Time::from_ns;
        let mut link = Link::bounded(2, 2);
        link.ended(0, true, t(1));
        link.ended(1, true, t(2));
        assert_eq!(link.take_due(), None);
        link.ended(2, true, t(3));
        assert_eq!(link.take_due(), Some(ReadyInstance { number: 0, shed: true, given_up: true, origin: t(1) }));
        assert_eq!(link.take_due(), None);
        link.ended(0, true, t(1));
        link.ended(1, true, t(2));
        assert_eq!(link.take_due(), Some(ReadyInstance { number: 1, shed: false, given_up: false, origin: t(2) }));
    }
}
