//! [CSA] Figs. 4 to 7 on a kernel of the lab: its sched_ext scheduler keeps the budgets of domains, in virtual time.

use std::collections::BTreeMap;

use takt_log::stats::Histogram;
use takt_log::{Event, JobKey, Reader, Sink as _};
use takt_model::{Costs, Exec, Span, System, Time, file};

use super::kernel::{CsaRun, Kernel, claim_names};
use super::measure::{Jobs, Responsiveness};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{self, Findings};
use crate::host::LabRuns;

pub(super) const LAB: Kernel = Kernel {
    name: "a kernel of the lab",
    source: findings::LAB,
    // The scheduler keeps no budget below 1 ms, which is the paper's quantum.
    speed: 1,
    has_quantum: false,
    duration: (Span::from_s(20), Span::from_s(3)),
    claims: claim_names!("lab"),
    run: run_in_the_lab,
    difference: "The paper ran a patched Xen on one core. Here a sched_ext scheduler keeps the budgets of threads on a \
                 stock kernel, in a guest in which an instruction takes 1 ns. It decides at any time, and not at \
                 multiples of a quantum.",
};

/// CPU time that the emulation may take: booting, and for each second of a run.
const BOOT: Span = Span::from_s(120);
const EACH: u64 = 30;

fn run_in_the_lab(
    context: &Context,
    systems: &[System],
    here: Span,
    findings: &mut Findings,
) -> Result<Vec<CsaRun>, Failure> {
    let Some(machine) = &context.lab else { return Err(Failure::trouble("the lab was not asked for")) };
    let mut files = Vec::new();
    for (at, system) in systems.iter().enumerate() {
        let name = format!("lab-{at:02}-{}.toml", system.name);
        let text = file::write(system);
        context.write(&name, text.as_bytes())?;
        files.push(context.path(&name).into());
        findings.files.push(name);
    }
    // A scheduler takes some seconds to load.
    let each = here.saturating_add(Span::from_s(6)).checked_mul(EACH * systems.len() as u64);
    let timeout = BOOT.saturating_add(each.unwrap_or(Span::MAX));
    let runs = LabRuns { files, duration: here, seed: context.seed, timeout };
    let Some(logs) = context.unless_stopped((context.host.lab_runs)(machine, &runs))? else {
        return Ok(Vec::new());
    };
    let mut overheads = Overheads::default();
    let runs = systems.iter().zip(&logs).map(|(system, log)| read(system, log, here, &mut overheads));
    let all: Vec<Responsiveness> = runs.collect::<Result<_, _>>()?;
    let costs = overheads.costs();
    if let Some(Costs { switch, interrupt, .. }) = costs {
        findings.notes.push(format!(
            "From the completion of a job to the start of one that had waited, {switch} passed (p50). Interrupts and \
             the thread that wakes the scheduler took {:.2} % of the time of jobs. The simulation with measured costs \
             charges each job, and each time that it gets the CPU, with one such hand-off, and takes that share of \
             the time.",
            interrupt.as_ns() as f64 / Costs::INTERRUPT_PERIOD_DEFAULT.as_ns() as f64 * 100.0
        ));
    }
    let rejected: u64 = all.iter().map(|found| found.rejected).sum();
    if rejected > 0 {
        findings.notes.push(format!("{rejected} jobs found a full backlog, and count as late."));
    }
    Ok(all.into_iter().map(|found| CsaRun { found, costs }).collect())
}

fn read(system: &System, log: &[u8], duration: Span, overheads: &mut Overheads) -> Result<Responsiveness, Failure> {
    let broken = |error: takt_log::ReadError| Failure::trouble(format_args!("a log of the guest: {error}"));
    let mut jobs = Jobs::of(system);
    overheads.begin();
    for record in Reader::new(log).map_err(broken)? {
        let record = record.map_err(broken)?;
        jobs.event(record.stream, record.time, &record.event);
        overheads.add(system, record.time, &record.event);
    }
    Ok(jobs.finish(Time::ZERO + duration))
}

/// The costs of the kernel, measured by events of logs.
#[derive(Default)]
struct Overheads {
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
    /// Another log begins.
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
    fn costs(&self) -> Option<Costs> {
        let hand_off = Span::from_ns(self.hand_offs.summary()?.p50);
        let (taken, period) = (u128::from(self.taken.as_ns().max(1)), Costs::INTERRUPT_PERIOD_DEFAULT);
        let stolen = u128::from(self.taken.saturating_sub(self.needed).as_ns()) * u128::from(period.as_ns()) / taken;
        let interrupt = Span::from_ns(u64::try_from(stolen).unwrap_or(u64::MAX));
        Some(Costs { switch: hand_off, release: hand_off, interrupt, ..Costs::NONE })
    }
}

#[cfg(test)]
mod tests {
    use takt_log::{BackEnd, Definitions, Header, KindSet, Writer};
    use takt_model::generate::Random;
    use takt_model::{Builtin, ServerRule, Task, TaskId};
    use takt_sim::{SimOptions, simulate};

    use super::super::RANGES;
    use super::super::measure::run_system;
    use super::super::workload::synthetic;
    use super::*;

    /// A log gives the responsiveness that a simulation of the file gives.
    #[test]
    fn the_file_and_its_log_are_those_of_the_workload() {
        let domains = synthetic(&mut Random::new(3), 0.7, RANGES[0]).map_err(|error| error.message).unwrap();
        let system = domains.system(ServerRule::Crps, 100);
        let parsed = file::parse(&file::write(&system), "lab.toml").unwrap();
        let duration = Span::from_s(3);
        let header = Header::new(String::new(), Some(1), BackEnd::Sim, KindSet::ALL);
        let mut writer = Writer::new(Vec::new(), &header, &Definitions::of(&parsed)).unwrap();
        simulate(&parsed, &SimOptions { duration, seed: 1, node: None }, &mut writer).unwrap();
        let log = writer.finish(Time::ZERO + duration).unwrap();
        let found = read(&system, &log, duration, &mut Overheads::default()).map_err(|error| error.message).unwrap();
        let wanted = run_system(&system, 1, duration).map_err(|error| error.message).unwrap();
        assert!(!wanted.all().is_empty() && found.all() == wanted.all());
    }

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
