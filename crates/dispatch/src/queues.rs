//! The queues of one CPU without threads of their own, for a program that has its own loop.

use takt_linux::{Epoch, PiMutex};
use takt_model::{Late, Time};
use takt_policy::PolicyError;

use super::build::{core_to_completion, places};
use super::core::{Core, Counts, End, Upcall};
use super::error::PushError;
use super::fact::{FactSink, TimedFact};
use super::plan::Plan;

/// Keeps no log.
pub(super) struct Silent;

impl FactSink for Silent {
    #[inline]
    fn record(&mut self, _: TimedFact) {}
}

/// The queues of a plan's operations on one CPU. Any thread may push and take jobs. Chains within
/// the CPU are followed. Timers do not exist here, so the program releases all jobs. A job runs to
/// completion within its level, whatever the plan says.
///
/// ```
/// use takt_model::{Builtin, Span};
/// use takt_dispatch::{Limits, Operation, Operations, Queues};
///
/// let ms = Span::from_ms;
/// let operations = Operations::new("loop")
///     .with(Operation::sporadic("long", ms(1)).wcet(ms(1)).deadline(ms(40)))
///     .with(Operation::sporadic("short", ms(1)).wcet(ms(1)).deadline(ms(5)).noncritical());
/// let limits = Limits { critical_utilization_ppm: 2_000_000, ..Limits::default() };
/// let edf = operations.compute(&Builtin::Edf.strategy(), &limits)?;
/// let queues = Queues::new(&edf, 0)?;
/// let (long, short) = (queues.slot("long").unwrap(), queues.slot("short").unwrap());
/// queues.push(long)?;
/// queues.push(short)?;
/// let first = queues.take(0).expect("two wait");
/// assert_eq!(first.slot(), short);
/// queues.end(first);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queues {
    core: PiMutex<Core<Silent>>,
    epoch: Epoch,
    names: Vec<String>,
    /// Whether a level drops or demotes late jobs.
    late_rules: bool,
}

/// A job that was taken, until its end.
#[must_use = "a job that was taken is to be ended"]
#[derive(Debug)]
pub struct Ticket(Upcall);

impl Ticket {
    /// The operation's slot.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.0.slot
    }

    /// The job's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The absolute deadline.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.0.deadline
    }

    /// The time of release.
    #[must_use]
    pub fn release(&self) -> Time {
        self.0.release
    }
}

impl Queues {
    /// The queues of one CPU of a plan. Time zero is now.
    ///
    /// # Errors
    /// The plan's tasks cannot be queued.
    pub fn new(plan: &Plan, cpu: u32) -> Result<Queues, PolicyError> {
        // Followers on other CPUs are ignored.
        let mut places = places(plan);
        places.retain(|_, place| place.cpu == cpu);
        let core = core_to_completion(plan, &places, cpu, Silent)?;
        let names = plan.rows.iter().filter(|row| row.cpu == cpu).map(|row| row.name.clone()).collect();
        let late_rules = plan.rows.iter().any(|row| row.late != Late::Continue);
        Ok(Queues { core: PiMutex::new(core), epoch: Epoch::now_is_zero(), names, late_rules })
    }

    /// The slot of an operation.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|other| other == name).and_then(|slot| u32::try_from(slot).ok())
    }

    /// Releases a job now and returns its number. Takes one lock, reads the clock once and
    /// allocates nothing.
    ///
    /// # Errors
    /// The job was not queued.
    #[inline]
    pub fn push(&self, slot: u32) -> Result<u64, PushError> {
        let mut core = self.core.lock();
        let now = self.epoch.now();
        let pushed = core.push(slot, now);
        release_followers(&mut core, now);
        pushed.map_err(|rejected| rejected.into_error(now))
    }

    /// Takes the job that a level's thread must run now; `None` if no job waits there. Takes one
    /// lock, reads the clock once and allocates nothing.
    #[inline]
    pub fn take(&self, level: u32) -> Option<Ticket> {
        let mut core = self.core.lock();
        let now = self.epoch.now();
        if self.late_rules {
            core.pass_deadlines(now);
        }
        let upcall = core.next(level, now);
        release_followers(&mut core, now);
        upcall.map(Ticket)
    }

    /// [`Queues::end`] and then [`Queues::take`], as a level's thread does, with one lock and one
    /// reading of the clock.
    #[inline]
    pub fn exchange(&self, ended: Ticket, level: u32) -> Option<Ticket> {
        let mut core = self.core.lock();
        let now = self.epoch.now();
        core.end(ended.0, End::Completed, now);
        // A follower may be the next job to take.
        while core.release_followers(now) {}
        if self.late_rules {
            core.pass_deadlines(now);
        }
        let upcall = core.next(level, now);
        release_followers(&mut core, now);
        upcall.map(Ticket)
    }

    /// Completes a job. Returns whether it was in time.
    #[inline]
    pub fn end(&self, ticket: Ticket) -> bool {
        let mut core = self.core.lock();
        let now = self.epoch.now();
        let in_time = now <= ticket.deadline();
        core.end(ticket.0, End::Completed, now);
        release_followers(&mut core, now);
        in_time
    }

    /// The outcomes of an operation's jobs so far.
    #[must_use]
    pub fn counts(&self, slot: u32) -> Option<Counts> {
        let core = self.core.lock();
        core.counts(slot, self.epoch.now())
    }
}

/// Notifies the followers of ended jobs.
#[inline]
fn release_followers(core: &mut Core<Silent>, now: Time) {
    while core.release_followers(now) {}
    let _ = core.take_woken();
    // The holder of a ticket checks its deadline itself.
    while core.take_stopped().is_some() {}
}

#[cfg(test)]
mod tests {
    use takt_model::Span;

    use super::super::core::INSTANCES_MAX;
    use super::super::{Limits, Operation, Operations};
    use super::*;

    #[test]
    fn a_job_dropped_while_its_ticket_is_out_leaves_no_state() {
        let late = Operation::sporadic("late", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_ns(1));
        let set = Operations::new("drops").with(late.late(Late::Drop));
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let plan = set.compute(&takt_model::Builtin::Edf.strategy(), &limits).unwrap();
        let queues = Queues::new(&plan, 0).unwrap();
        let mut core = queues.core.lock();
        for job in 0..1000 {
            let at = |ns| Time::from_ns(10 * job + ns);
            assert_eq!(core.push(0, at(0)), Ok(job));
            assert_eq!(core.next(0, at(0)).map(|upcall| upcall.number), Some(job));
            core.pass_deadlines(at(1));
            release_followers(&mut core, at(1));
            assert!(core.take_stopped().is_none());
        }
        let counts = core.counts(0, Time::ZERO).unwrap();
        assert_eq!((counts.released, counts.dropped), (1000, 1000));
    }

    /// The other predecessor may never end. So the number of jobs that wait for it is bounded, as
    /// for all waiting jobs.
    #[test]
    fn jobs_that_wait_too_long_for_a_slow_predecessor_are_rejected() {
        let sporadic =
            |name| Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_ms(1));
        let set = Operations::new("join").with(sporadic("a")).with(sporadic("b"));
        let set = set.with(Operation::after("both", ["a", "b"]).wcet(Span::from_ns(1)).deadline(Span::from_ms(1)));
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let queues = Queues::new(&set.compute(&takt_model::Builtin::Edf.strategy(), &limits).unwrap(), 0).unwrap();
        let slot = |name| queues.slot(name).unwrap();
        let run = || {
            while let Some(ticket) = queues.take(0) {
                queues.end(ticket);
            }
        };
        let jobs = 2000;
        for name in ["a", "b"] {
            for job in 0..jobs {
                while queues.push(slot(name)) != Ok(job) {}
                run();
            }
        }
        let Counts { released, completed, cancelled, rejected, .. } = queues.counts(slot("both")).unwrap();
        assert_eq!((released, cancelled, completed + rejected), (jobs, 0, jobs));
        assert!(completed >= INSTANCES_MAX as u64 && rejected > 0, "{completed} completed, {rejected} rejected");
    }
}
