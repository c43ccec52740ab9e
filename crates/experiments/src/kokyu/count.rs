//! Counts outcomes of jobs and deadlines from the events of a run. docs/reference/statistics.md
//! defines the outcomes:
//!
//! - An omitted job is cancelled and not missed, even if its deadline passed while it waited.
//! - A job is missed if it was dropped at its deadline or if its code failed.
//! - A job without room in the backlog is rejected.
//! - A shed leg was never requested.

use std::collections::{BTreeMap, BTreeSet};

use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Criticality, Span, System, Time};

use super::{FRAME, LEGS};

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Class {
    pub(super) enqueued: u64,
    pub(super) made: u64,
    pub(super) missed: u64,
    pub(super) cancelled: u64,
    pub(super) rejected: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Leg {
    pub(super) requested: u64,
    /// Legs complete by their own deadlines, which count from their own releases.
    pub(super) made: u64,
    /// Legs complete by the end of the frame in which their chain began.
    pub(super) by_frame: u64,
    pub(super) cancelled: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Outcome {
    pub(super) critical: Class,
    pub(super) noncritical: Class,
    pub(super) legs: [Leg; LEGS],
}

impl Outcome {
    /// Legs of all positions that were complete by the ends of their frames.
    pub(super) fn by_frame(&self) -> u64 {
        self.legs.iter().map(|leg| leg.by_frame).sum()
    }
}

/// Critical jobs that were not complete by their deadlines.
pub(super) type Lost = BTreeSet<JobKey>;

/// The region in which a job counts, if any.
type RegionOf<'a> = Box<dyn Fn(JobKey) -> Option<usize> + 'a>;

pub(super) struct Counter<'a> {
    pub(super) system: &'a System,
    /// By region. A run that is one region has one.
    pub(super) outcomes: Vec<Outcome>,
    pub(super) lost: Vec<Lost>,
    region_of: RegionOf<'a>,
    /// By task: the position in its chain.
    positions: Vec<Option<usize>>,
    /// Jobs that missed their deadlines and are not over.
    missed: BTreeSet<JobKey>,
    /// Legs that are not over, and the ends of their frames.
    frames: BTreeMap<JobKey, Time>,
    frame: Span,
}

impl<'a> Counter<'a> {
    pub(super) fn new(system: &'a System) -> Counter<'a> {
        Counter::by_region(system, 1, |_| Some(0))
    }

    pub(super) fn by_region(
        system: &'a System,
        regions: usize,
        region_of: impl Fn(JobKey) -> Option<usize> + 'a,
    ) -> Counter<'a> {
        let position = |name: &str| name.strip_prefix("leg-")?.parse::<usize>().ok()?.checked_sub(1);
        // The period of the first leg, if there is one. It differs from [`FRAME`] in a window of
        // this kernel.
        let first = system.task_by_name("leg-1").and_then(|task| system.tasks.get(task.index()));
        Counter {
            system,
            outcomes: vec![Outcome::default(); regions],
            lost: vec![Lost::new(); regions],
            region_of: Box::new(region_of),
            positions: system.tasks.iter().map(|task| position(&task.name)).collect(),
            missed: BTreeSet::new(),
            frames: BTreeMap::new(),
            frame: first.map_or(FRAME, |task| task.period),
        }
    }

    /// The outcome of the first region. For runs that are one region.
    pub(super) fn outcome(&self) -> Outcome {
        self.outcomes.first().copied().unwrap_or_default()
    }

    fn of(&mut self, job: JobKey) -> Option<&mut Outcome> {
        self.outcomes.get_mut((self.region_of)(job)?)
    }

    fn is_low(&self, job: JobKey) -> bool {
        let task = self.system.tasks.get(job.task.index());
        task.is_some_and(|task| task.criticality == Criticality::Low)
    }

    fn class(&mut self, job: JobKey) -> Option<&mut Class> {
        let is_low = self.is_low(job);
        self.of(job).map(|outcome| if is_low { &mut outcome.noncritical } else { &mut outcome.critical })
    }

    /// Records that a requested critical job is not complete by its deadline.
    fn lose(&mut self, job: JobKey) {
        if let Some(lost) = (self.region_of)(job).filter(|_| !self.is_low(job)).and_then(|at| self.lost.get_mut(at)) {
            lost.insert(job);
        }
    }

    fn leg(&mut self, job: JobKey) -> Option<&mut Leg> {
        let position = (*self.positions.get(job.task.index())?)?;
        self.of(job)?.legs.get_mut(position)
    }

    fn released(&mut self, job: JobKey, chain: Time) {
        if let Some(class) = self.class(job) {
            class.enqueued += 1;
        }
        let end = chain.saturating_add(self.frame);
        if let Some(leg) = self.leg(job) {
            leg.requested += 1;
            self.frames.insert(job, end);
        }
    }

    fn completed(&mut self, job: JobKey, now: Time) {
        let in_time = !self.missed.remove(&job);
        if let Some(class) = self.class(job) {
            class.made += u64::from(in_time);
        }
        let in_frame = self.frames.remove(&job).is_some_and(|end| now <= end);
        if let Some(leg) = self.leg(job) {
            (leg.made, leg.by_frame) = (leg.made + u64::from(in_time), leg.by_frame + u64::from(in_frame));
        }
    }

    fn cancelled(&mut self, job: JobKey, cause: CancelCause) {
        let was_missed = u64::from(self.missed.remove(&job));
        if cause != CancelCause::Shed {
            self.lose(job);
        }
        self.frames.remove(&job);
        if let Some(leg) = self.leg(job) {
            leg.requested = leg.requested.saturating_sub(u64::from(cause == CancelCause::Shed));
            leg.cancelled += u64::from(cause == CancelCause::Omitted);
        }
        let Some(class) = self.class(job) else { return };
        class.missed -= was_missed;
        match cause {
            // A shed job was never requested. (The log may lack its release.)
            CancelCause::Shed => class.enqueued = class.enqueued.saturating_sub(1),
            CancelCause::Omitted => class.cancelled += 1,
            CancelCause::Rejected => class.rejected += 1,
            CancelCause::Late | CancelCause::Failed => class.missed += 1,
        }
    }
}

impl Sink for Counter<'_> {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, parent } => {
                self.released(job, parent.map_or(arrival, |parent| parent.origin));
            }
            Event::Miss { job } => {
                if let Some(class) = self.class(job) {
                    class.missed += 1;
                    self.missed.insert(job);
                }
                self.lose(job);
            }
            Event::Complete { job, .. } => self.completed(job, now),
            Event::Cancel { job, cause } => self.cancelled(job, cause),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use takt_log::Parent;
    use takt_model::Builtin;

    use super::super::{Variant, plan};
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO.saturating_add(Span::from_ms(ms))
    }

    /// The outcome of these events in region 3, which has three legs.
    fn counted(events: impl Fn(&dyn Fn(&str, u64) -> JobKey) -> Vec<(u64, Event)>) -> Outcome {
        counted_and_lost(events).0
    }

    fn counted_and_lost(
        events: impl Fn(&dyn Fn(&str, u64) -> JobKey) -> Vec<(u64, Event)>,
    ) -> (Outcome, Vec<(String, u64)>) {
        let plan = plan(3, Variant { strategy: Some(Builtin::Muf), cancel: true }).unwrap();
        let job = |name: &str, number| JobKey { task: plan.system.task_by_name(name).unwrap(), number };
        let mut counter = Counter::new(&plan.system);
        for (ms, event) in events(&job) {
            counter.event(0, at(ms), &event);
        }
        assert!(counter.frames.len() <= 1, "what is over is forgotten");
        let name = |job: &JobKey| (plan.system.tasks[job.task.index()].name.clone(), job.number);
        (counter.outcome(), counter.lost[0].iter().map(name).collect())
    }

    fn release(job: JobKey, ms: u64) -> (u64, Event) {
        (ms, Event::Release { job, arrival: at(ms), parent: None })
    }

    #[test]
    fn a_job_omitted_after_its_deadline_counts_as_cancelled_only() {
        let outcome = counted(|job| {
            let [late, omitted, timely] = [0, 1, 2].map(|number| job("leg-1", number));
            let cause = CancelCause::Omitted;
            vec![
                release(late, 4),
                (54, Event::Miss { job: late }),
                release(omitted, 54),
                (60, Event::Complete { job: late, cpu: 0 }),
                // It waited past its deadline. The simulator reports both, the miss and the
                // omission.
                (104, Event::Miss { job: omitted }),
                release(timely, 104),
                (105, Event::Cancel { job: omitted, cause }),
                (150, Event::Cancel { job: timely, cause }),
            ]
        });
        let expected = Class { enqueued: 3, missed: 1, cancelled: 2, ..Class::default() };
        assert_eq!((outcome.noncritical, outcome.critical), (expected, Class::default()));
        assert_eq!(outcome.legs[0], Leg { requested: 3, cancelled: 2, ..Leg::default() });
    }

    #[test]
    fn other_ends_count_as_the_design_says() {
        let outcome = counted(|job| {
            let cancel = |job, cause| Event::Cancel { job, cause };
            let jobs: Vec<JobKey> = (0..5).map(|number| job("display", number)).collect();
            let mut events: Vec<(u64, Event)> = jobs.iter().map(|job| release(*job, 0)).collect();
            events.push((10, cancel(jobs[0], CancelCause::Rejected)));
            // Jobs dropped at their deadlines, with a reported miss and without.
            events.push((50, Event::Miss { job: jobs[1] }));
            events.push((50, cancel(jobs[1], CancelCause::Late)));
            events.push((50, cancel(jobs[2], CancelCause::Late)));
            events.push((51, cancel(jobs[3], CancelCause::Failed)));
            events.push((52, cancel(jobs[4], CancelCause::Shed)));
            events.push(release(job("air-data", 0), 60));
            events.push((61, Event::Complete { job: job("air-data", 0), cpu: 0 }));
            events
        });
        assert_eq!(outcome.noncritical, Class { enqueued: 4, missed: 3, rejected: 1, ..Class::default() });
        assert_eq!(outcome.critical, Class { enqueued: 1, made: 1, ..Class::default() });
    }

    #[test]
    fn critical_jobs_are_lost_by_name() {
        let (outcome, lost) = counted_and_lost(|job| {
            let jobs: Vec<JobKey> = (0..4).map(|number| job("air-data", number)).collect();
            let mut events: Vec<(u64, Event)> = jobs.iter().map(|job| release(*job, 0)).collect();
            events.push((18, Event::Complete { job: jobs[0], cpu: 0 }));
            events.push((19, Event::Miss { job: jobs[1] }));
            events.push((20, Event::Complete { job: jobs[1], cpu: 0 }));
            events.push((20, Event::Cancel { job: jobs[2], cause: CancelCause::Rejected }));
            events.push((20, Event::Cancel { job: jobs[3], cause: CancelCause::Failed }));
            events.push(release(job("display", 0), 0));
            events.push((51, Event::Miss { job: job("display", 0) }));
            events
        });
        assert_eq!(outcome.critical, Class { enqueued: 4, made: 1, missed: 2, rejected: 1, ..Class::default() });
        assert_eq!(lost, [1, 2, 3].map(|number| ("air-data".to_owned(), number)));
    }

    #[test]
    fn a_leg_can_meet_its_own_deadline_and_not_the_frames() {
        let outcome = counted(|job| {
            let parent = Some(Parent { hop: 1, origin: at(4) });
            let [first, second, third] = ["leg-1", "leg-2", "leg-3"].map(|name| job(name, 0));
            let after = |job, ms| (ms, Event::Release { job, arrival: at(ms), parent });
            vec![
                release(first, 4),
                (20, Event::Complete { job: first, cpu: 0 }),
                after(second, 20),
                (54, Event::Complete { job: second, cpu: 0 }),
                after(third, 54),
                (55, Event::Complete { job: third, cpu: 0 }),
                // A job that is only requested.
                release(job("leg-1", 1), 54),
                after(job("leg-2", 1), 60),
                (60, Event::Cancel { job: job("leg-2", 1), cause: CancelCause::Shed }),
            ]
        });
        let all = |requested, made, by_frame| Leg { requested, made, by_frame, cancelled: 0 };
        assert_eq!(outcome.legs[..3], [all(2, 1, 1), all(1, 1, 1), all(1, 1, 0)]);
        assert_eq!(outcome.by_frame(), 2);
        assert_eq!(outcome.noncritical, Class { enqueued: 4, made: 3, ..Class::default() });
    }
}
