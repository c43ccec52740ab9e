//! The cyclic executive of a node: a fixed frame with slots for receiving, for waiting jobs and for
//! sending.
//!
//! [HEDF I] names this scheduler as that of its authors' earlier store (RT-DHT, RTCSA 2014). [HEDF V]
//! cites T. Baker, A. Shaw: The Cyclic Executive Model and Ada (1988). From there: a timer starts
//! frames of equal length, and blocks run one after the other without preemption. HEDF says nothing
//! of the slots, so the other rules are ours. F is the frame, R and S are the slots of the two table
//! tasks.
//!
//! | in frame k | runs |
//! |---|---|
//! | [k F, k F + R) | the receiving job |
//! | [k F + R, (k + 1) F - S) | waiting jobs, in the order of their releases |
//! | [(k + 1) F - S, (k + 1) F) | the sending job |
//!
//! - A table job starts at its release, or when the running job ends. The one released first goes
//!   first; in a tie the receiving job.
//! - A waiting job starts in its slot, once the receiving job of the frame has ended, if its longest
//!   execution ends within the slot. Jobs released at once go by arrival, then by their slot number.
//! - The first job that does not fit waits for the next frame, and all behind it. So order is kept.
//! - Nothing is interrupted. A job that runs longer than it should delays what follows.

use takt_model::{Span, Time};

use crate::decision::{Decision, Event};
use crate::rank::{Phase, Rank};
use crate::ready::ReadyQueue;
use crate::slot::Job;

/// The frame of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CyclicSpec {
    /// F: the length of a frame, more than both slots together.
    pub frame: Span,
    /// The number of the receiving task on its node, and R.
    pub receive: (u32, Span),
    /// The number of the sending task on its node, and S.
    pub send: (u32, Span),
    /// For each task of the node, the longest execution of a job with the costs of its start.
    pub needs: Vec<Span>,
}

/// Decides for one node with one CPU, by the protocol of [`crate::Dispatcher`]. Deadlines and modes
/// do not matter to it.
#[derive(Clone, Debug)]
pub struct CyclicExecutive {
    spec: CyclicSpec,
    queue: ReadyQueue<Rank>,
    /// Releases of the receiving and the sending job that wait.
    table: [Option<Time>; 2],
    running: Option<u32>,
    /// Receiving jobs that have ended.
    received: u64,
}

impl CyclicExecutive {
    /// An idle node.
    #[must_use]
    pub fn new(spec: CyclicSpec) -> Self {
        let queue = ReadyQueue::new(spec.needs.len());
        CyclicExecutive { spec, queue, table: [None; 2], running: None, received: 0 }
    }

    /// Decisions that one call of [`CyclicExecutive::dispatch`] makes at most.
    #[must_use]
    pub fn decisions_max(&self) -> usize {
        1
    }

    /// Takes note of what happened.
    pub fn on_event(&mut self, _now: Time, event: &Event) {
        match *event {
            Event::Ready(job) if job.slot == self.spec.receive.0 => self.table[0] = Some(job.release),
            Event::Ready(job) if job.slot == self.spec.send.0 => self.table[1] = Some(job.release),
            Event::Ready(job) => self.queue.push(rank(&job), &()),
            Event::Complete { slot } => {
                self.running = None;
                self.received += u64::from(slot == self.spec.receive.0);
            }
            Event::Deadline { .. } | Event::Mode { .. } => {}
        }
    }

    /// Starts a job at `now`, if the CPU is idle and one may start.
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        if self.running.is_some() {
            return;
        }
        let Some(slot) = self.take_table().or_else(|| self.take_waiting(now)) else { return };
        self.running = Some(slot);
        decisions.push(Decision::Run { slot, cpu: 0, resumed: false, from: None });
    }

    /// When to ask again, if nothing happens before. The slot of the first waiting job begins then.
    #[must_use]
    pub fn next_wakeup(&self, now: Time) -> Option<Time> {
        let first = self.queue.peek(&()).filter(|_| self.running.is_none())?;
        let start = self.job_slot_start(now);
        if now < start {
            return Some(start);
        }
        // Before the end of the receiving job, that end is the next event.
        let too_long = self.has_received(now) && !self.fits(first, now);
        too_long.then(|| start.saturating_add(self.spec.frame))
    }

    fn take_table(&mut self) -> Option<u32> {
        let [receive, send] = self.table;
        let receives = receive.is_some_and(|receive| send.is_none_or(|send| receive <= send));
        let (at, slot) = if receives { (0, self.spec.receive.0) } else { (1, self.spec.send.0) };
        self.table[at].take().map(|_| slot)
    }

    fn take_waiting(&mut self, now: Time) -> Option<u32> {
        let first = self.queue.peek(&())?;
        if now < self.job_slot_start(now) || !self.has_received(now) || !self.fits(first, now) {
            return None;
        }
        self.queue.pop(&()).map(|rank| rank.slot())
    }

    /// The number of the frame of `now`.
    fn frame(&self, now: Time) -> u64 {
        now.as_ns() / self.spec.frame.as_ns().max(1)
    }

    /// The start of the waiting jobs' slot in the frame of `now`.
    fn job_slot_start(&self, now: Time) -> Time {
        let start = Time::from_ns(self.frame(now).saturating_mul(self.spec.frame.as_ns()));
        start.saturating_add(self.spec.receive.1)
    }

    /// Whether the receiving job of the frame of `now` has ended.
    fn has_received(&self, now: Time) -> bool {
        self.received > self.frame(now)
    }

    /// Whether a job that starts at `now` ends within its slot.
    fn fits(&self, job: &Rank, now: Time) -> bool {
        let both = self.spec.receive.1.saturating_add(self.spec.send.1);
        let end = self.job_slot_start(now).saturating_add(self.spec.frame.saturating_sub(both));
        let need = self.spec.needs.get(job.slot() as usize).copied().unwrap_or(Span::ZERO);
        now.saturating_add(need) <= end
    }
}

/// Jobs go by release, then arrival, then slot.
fn rank(job: &Job) -> Rank {
    Rank::new(0, Phase::Fresh, job.release.as_ns(), 0, job.arrival.as_ns(), job.slot)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    /// A job of a test: slot, release, execution.
    type TestJob = (u32, u64, u64);
    const RECEIVE: u32 = 0;
    const SEND: u32 = 1;

    /// The table's jobs of `frames` frames, each late by up to what `late` says, and the others.
    #[derive(Clone, Debug)]
    struct World {
        frame: u64,
        receive: u64,
        send: u64,
        /// By slot.
        needs: Vec<u64>,
        /// In the order of release, and of slots in a tie.
        jobs: Vec<TestJob>,
    }

    impl World {
        fn new(frame: u64, (receive, send): (u64, u64), late: &[u64], more: &[(u32, u64, u64)], needs: &[u64]) -> Self {
            let table = late.iter().enumerate().flat_map(|(k, late)| {
                let start = k as u64 * frame;
                // Every fourth table job runs longer than its slot.
                let over = if late % 4 == 3 { frame } else { 0 };
                [(RECEIVE, start + late, receive + over), (SEND, start + frame - send + late / 2, send)]
            });
            let mut jobs: Vec<TestJob> = table.chain(more.iter().copied()).collect();
            jobs.sort_by_key(|(slot, release, _)| (*release, *slot));
            let needs = [receive, send].iter().chain(needs).copied().collect();
            World { frame, receive, send, needs, jobs }
        }

        fn spec(&self) -> CyclicSpec {
            CyclicSpec {
                frame: Span::from_ns(self.frame),
                receive: (RECEIVE, Span::from_ns(self.receive)),
                send: (SEND, Span::from_ns(self.send)),
                needs: self.needs.iter().map(|need| Span::from_ns(*need)).collect(),
            }
        }

        /// Starts of jobs up to `end`, by the machine. It is asked at its wake-ups and at events only.
        fn run(&self, end: u64) -> Vec<(u64, u32)> {
            let mut executive = CyclicExecutive::new(self.spec());
            let mut pending: Vec<VecDeque<TestJob>> = vec![VecDeque::new(); self.needs.len()];
            let mut held = vec![false; self.needs.len()];
            let (mut starts, mut finish, mut wakeup) = (Vec::new(), None, Some(at(0)));
            for now in 0..end {
                let mut happened = wakeup.is_some_and(|wakeup| wakeup <= at(now));
                if let Some((when, slot)) = finish
                    && when == now
                {
                    executive.on_event(at(now), &Event::Complete { slot });
                    pending[slot as usize].pop_front();
                    (finish, held[slot as usize], happened) = (None, false, true);
                }
                for job in self.jobs.iter().filter(|(_, release, _)| *release == now) {
                    pending[job.0 as usize].push_back(*job);
                }
                for (slot, held) in held.iter_mut().enumerate() {
                    if let (Some((_, release, _)), false) = (pending[slot].front(), *held) {
                        let release = at(*release);
                        let job = Job { slot: slot as u32, release, arrival: release, deadline: release };
                        executive.on_event(at(now), &Event::Ready(job));
                        (*held, happened) = (true, true);
                    }
                }
                if !happened {
                    continue;
                }
                let mut decisions = Vec::new();
                executive.dispatch(at(now), &mut decisions);
                if let Some(Decision::Run { slot, .. }) = decisions.first() {
                    starts.push((now, *slot));
                    let (_, _, exec) = pending[*slot as usize][0];
                    finish = Some((now + exec, *slot));
                }
                wakeup = executive.next_wakeup(at(now));
                assert!(wakeup.is_none_or(|wakeup| wakeup > at(now)));
            }
            starts
        }

        /// The same, slowly: at each instant the rules are applied to a list of all jobs.
        fn reference(&self, end: u64) -> Vec<(u64, u32)> {
            let mut waiting: Vec<TestJob> = self.jobs.clone();
            let (mut starts, mut received) = (Vec::new(), 0);
            let mut busy: Option<(u64, u32)> = None;
            for now in 0..end {
                if busy.is_some_and(|(until, _)| until <= now) {
                    received += u64::from(busy.is_some_and(|(_, slot)| slot == RECEIVE));
                    busy = None;
                }
                if busy.is_some() {
                    continue;
                }
                let released = |(_, release, _): &TestJob| *release <= now;
                let is_table = |job: &TestJob| job.0 < 2;
                let first = |of: &dyn Fn(&TestJob) -> bool| {
                    (0..waiting.len()).filter(|i| released(&waiting[*i]) && of(&waiting[*i])).min_by_key(|i| {
                        let (slot, release, _) = waiting[*i];
                        (release, slot, *i)
                    })
                };
                let phase = now % self.frame;
                let may = |i: &usize| {
                    let need = self.needs[waiting[*i].0 as usize];
                    phase >= self.receive && phase + need + self.send <= self.frame && received > now / self.frame
                };
                let chosen = first(&is_table).or_else(|| first(&|job| !is_table(job)).filter(may));
                if let Some(i) = chosen {
                    let (slot, _, exec) = waiting.remove(i);
                    starts.push((now, slot));
                    busy = Some((now + exec, slot));
                }
            }
            starts
        }
    }

    #[test]
    fn jobs_run_in_order_between_the_slots_and_wait_where_they_do_not_fit() {
        // Slots [1, 8) of a frame of 10. Task 3 is short, and waits behind task 2 all the same.
        let world = World::new(10, (1, 2), &[0; 3], &[(2, 0, 4), (3, 2, 1), (2, 3, 4), (3, 4, 1)], &[4, 1]);
        let starts = world.run(30);
        let jobs: Vec<(u64, u32)> = starts.iter().copied().filter(|(_, slot)| *slot > SEND).collect();
        assert_eq!(jobs, [(1, 2), (5, 3), (11, 2), (15, 3)]);
        let table: Vec<u64> = starts.iter().filter(|(_, slot)| *slot <= SEND).map(|(at, _)| *at).collect();
        assert_eq!(table, [0, 8, 10, 18, 20, 28]);
    }

    #[test]
    fn a_job_that_runs_over_delays_what_follows() {
        let world = World::new(10, (1, 2), &[0; 3], &[(2, 0, 12)], &[4]);
        assert_eq!(world.run(21), [(0, 0), (1, 2), (13, 1), (15, 0), (18, 1), (20, 0)]);
    }

    proptest! {
        #[test]
        fn it_starts_jobs_as_the_slow_reference_does(
            frame in 6u64..16,
            slots in (1u64..3, 1u64..3),
            late in proptest::collection::vec(prop_oneof![3 => Just(0u64), 1 => 0u64..6], 8),
            more in proptest::collection::vec((2u32..5, 0u64..100, 1u64..7), 0..20),
            needs in proptest::collection::vec(1u64..5, 3),
        ) {
            let mut more = more;
            more.sort_unstable();
            // Most jobs keep to what they need; some run over.
            for (slot, release, exec) in &mut more {
                let need = needs[*slot as usize - 2];
                if *release % 5 > 0 { *exec = (*exec).min(need) }
            }
            let world = World::new(frame, slots, &late, &more, &needs);
            prop_assert_eq!(world.run(200), world.reference(200));
        }
    }
}
