//! Costs of a kernel that runs domains, measured by the events of its runs.

use std::collections::BTreeMap;

use takt_log::stats::Histogram;
use takt_log::{Event, JobKey, Sink};
use takt_model::{Costs, Exec, Span, System, Time};

use super::measure::Jobs;

/// Sees the events of a run, for its jobs and for the costs.
pub(super) struct Watch<'a> {
    pub(super) jobs: Jobs,
    system: &'a System,
    overheads: &'a mut Overheads,
}

impl<'a> Watch<'a> {
    /// Another run begins.
    pub(super) fn of(system: &'a System, overheads: &'a mut Overheads) -> Watch<'a> {
        overheads.begin();
        Watch { jobs: Jobs::of(system), system, overheads }
    }
}

impl Sink for Watch<'_> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.jobs.event(stream, now, event);
        self.overheads.add(self.system, now, event);
    }

    fn wants_misses(&self) -> bool {
        self.jobs.wants_misses()
    }
}

/// A sentence about what the simulation with these costs charges. `who` takes the share of the time.
pub(super) fn charged(costs: &Costs, who: &str) -> String {
    format!(
        "From the completion of a job to the start of one that had waited, {} passed (p50). {who} took {:.2} % of the \
         time of jobs. The simulation with measured costs charges each job, and each time that it gets the CPU, with \
         one such hand-off, and takes that share of the time.",
        costs.switch,
        costs.interrupt.as_ns() as f64 / Costs::INTERRUPT_PERIOD_DEFAULT.as_ns() as f64 * 100.0
    )
}

/// The costs of the kernel, measured by events of its runs.
#[derive(Default)]
pub(super) struct Overheads {
    /// The arrivals of jobs that have not started.
    waiting: BTreeMap<JobKey, Time>,
    /// The last completion, if no server got or used up a budget since.
    completed: Option<Time>,
    /// The job that started last, and when, if nothing else happened since.
    started: Option<(JobKey, Time)>,
    /// From a completion to the start of a job that had waited, in ns.
    hand_offs: Histogram,
    /// The time that uninterrupted jobs took, and the sum of their WCETs.
    taken: Span,
    needed: Span,
}

impl Overheads {
    fn begin(&mut self) {
        self.waiting.clear();
        (self.completed, self.started) = (None, None);
    }

    fn add(&mut self, system: &System, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, .. } => {
                self.waiting.insert(job, arrival);
                self.started = None;
            }
            Event::Start { job, .. } => {
                let arrival = self.waiting.remove(&job).unwrap_or(now);
                if let Some(completed) = self.completed.take().filter(|completed| arrival <= *completed) {
                    self.hand_offs.record(now.saturating_since(completed).as_ns());
                }
                self.started = Some((job, now));
            }
            Event::Complete { job, .. } => {
                let task = &system.tasks[job.task.index()];
                let alone = self.started.take().filter(|(started, _)| *started == job && task.exec == Exec::Wcet);
                if let Some((_, started)) = alone {
                    self.taken = self.taken.saturating_add(now.saturating_since(started));
                    self.needed = self.needed.saturating_add(task.wcet);
                }
                self.completed = Some(now);
            }
            // Servers pay while a job runs, and become idle when one completes.
            Event::Charge { .. } | Event::ServerIdle { .. } => {}
            _ => (self.completed, self.started) = (None, None),
        }
    }

    /// Costs for a simulation that charges them. `None` if no job had to wait for another one.
    pub(super) fn costs(&self) -> Option<Costs> {
        let hand_off = Span::from_ns(self.hand_offs.summary()?.p50);
        let (taken, period) = (u128::from(self.taken.as_ns().max(1)), Costs::INTERRUPT_PERIOD_DEFAULT);
        let stolen = u128::from(self.taken.saturating_sub(self.needed).as_ns()) * u128::from(period.as_ns()) / taken;
        let interrupt = Span::from_ns(u64::try_from(stolen).unwrap_or(u64::MAX));
        Some(Costs { switch: hand_off, release: hand_off, interrupt, ..Costs::NONE })
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, Task, TaskId};

    use super::*;

    /// A hand-off counts only if the next job waited for the CPU. A job counts only if no other event came meanwhile.
    #[test]
    fn costs_are_those_between_jobs_and_beside_them() {
        let ms = Span::from_ms;
        let tasks = [("a", 50), ("b", 20)].map(|(name, wcet)| Task::periodic(name, ms(100), ms(wcet))).to_vec();
        let system = System::local(1, Builtin::Rm, tasks);
        let job = |task, number| JobKey { task: TaskId(task), number };
        let release = |job| Event::Release { job, arrival: Time::ZERO, parent: None };
        let start = |job| Event::Start { job, cpu: 0 };
        let complete = |job| Event::Complete { job, cpu: 0 };
        let [a, b, late, last] = [job(0, 0), job(1, 0), job(0, 1), job(1, 1)];
        let costs = |events: &[(u64, Event)]| {
            let mut overheads = Overheads::default();
            events.iter().for_each(|(us, event)| overheads.add(&system, Time::ZERO + Span::from_us(*us), event));
            overheads.costs()
        };
        // The first two jobs took 70.4 ms, and their WCETs are 70 ms. The second one started 11 us after the first.
        let all = [
            (0, release(a)),
            (0, release(b)),
            (0, start(a)),
            (50_300, complete(a)),
            (50_305, Event::ServerIdle { server: 0 }),
            (50_311, start(b)),
            (60_000, Event::Charge { server: 1, since: Time::ZERO, amount: ms(10), idle: false }),
            (70_411, complete(b)),
            // The next one waits for a budget, not for the CPU, and is then preempted.
            (70_411, release(late)),
            (70_411, release(last)),
            (90_000, Event::Replenish { server: 0, budget: ms(60) }),
            (90_020, start(late)),
            (120_000, start(last)),
            (140_000, complete(last)),
            (190_000, complete(late)),
        ];
        let hand_off = Span::from_us(11);
        let wanted = |taken_us: u64| {
            let interrupt = Span::from_ns(400 * 1_000_000 / taken_us);
            Some(Costs { switch: hand_off, release: hand_off, interrupt, ..Costs::NONE })
        };
        assert_eq!(costs(&all[..8]), wanted(70_400));
        assert_eq!(costs(&all), wanted(90_400), "of the last two jobs one ran alone, for 20 ms");
        assert_eq!(costs(&all[..4]), None, "no job waited for another one");
    }
}
