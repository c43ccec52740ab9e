//! Runs of what the kernel's scheduling classes cannot express: the tasks' work as operations of takt's own dispatcher.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_linux::recovery::{Recovery, recover};
use takt_linux::sched::FIFO_PRIORITY_MAX;
use takt_linux::signals::StopSignals;
use takt_linux::{Class, Epoch, clock};
use takt_log::Sink;
use takt_model::draw::Draw;
use takt_model::{NodeId, Span, System, Task, Time};

use crate::dispatch::{
    Anomaly, Dispatcher, Dispatching, Evidence, Evident, LEAD, Limits, Options, Plan, StartError, StopError, Stopped,
};
use crate::error::{RunError, grant};
use crate::kernel::{self, Kernel, Outcome};
use crate::start::{GRACE, LOOK, Progress, TOLD_NOTHING, note_of_lost, note_of_steal, notes_of_kernel, records};
use crate::work::{Work, Worked};
use crate::{Prepared, Recorded, RunOptions, RunSummary, TaskSummary};

/// Jobs of one task that may wait: as `sim` does, a late task catches up.
const BACKLOG: u32 = 1024;

/// The plan of a node that asks for what the kernel does not have (`why`), and what is to be said of it.
pub(crate) fn plan(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    why: &RunError,
) -> Result<(Plan, Vec<String>), RunError> {
    // More levels than fit below the priority asked for raise it, as without a dispatcher.
    let mut top = options.top_priority;
    let plan = loop {
        let plan = Plan::compute_regardless(system, node, &Limits { priorities: 1..=top, ..Limits::default() });
        let few = |anomaly: &Anomaly| matches!(anomaly, Anomaly::TooFewPriorities { .. });
        match &plan {
            Err(anomalies) if top < FIFO_PRIORITY_MAX && anomalies.0.iter().any(few) => top += 1,
            _ => break plan,
        }
    };
    let (plan, lateness) =
        plan.map_err(|anomalies| RunError::Undispatchable { why: why.to_string(), anomalies: anomalies.to_string() })?;
    let plan = plan.with_backlog(BACKLOG);
    let mut notes = vec![format!(
        "takt's own dispatcher runs it: one SCHED_FIFO thread a level on each CPU, and within a level jobs run to completion (strategy \"{}\")",
        plan.strategy
    )];
    notes.extend(lateness.iter().map(|anomaly| format!("deadlines can be missed: {anomaly}")));
    Ok((plan, notes))
}

/// What a task's handler leaves behind.
#[derive(Default)]
struct Used {
    demanded_ns: AtomicU64,
    used_ns: AtomicU64,
}

impl Prepared {
    /// Runs the plan; as [`crate::Ready::run`].
    pub(crate) fn run_dispatched(
        &self,
        plan: &Plan,
        kernel: Option<Kernel>,
        sink: &mut impl Sink,
        progress: &mut Progress<'_>,
    ) -> Result<RunSummary, RunError> {
        let mut notes = self.mapping.notes.clone();
        if let Recovery::Repaired { what, .. } = recover()? {
            notes.push(format!("an earlier run was killed: {what}"));
        }
        let signals = StopSignals::catch();
        let tasks: Vec<&Task> = plan.rows.iter().filter_map(|row| self.system.tasks.get(row.task.index())).collect();
        // Four facts a job at most, and of the CPU with the most; the runs of threads write three.
        let of_cpu = |cpu: u32| {
            let rows = plan.rows.iter().filter(|row| row.cpu == cpu);
            let tasks = rows.filter_map(|row| self.system.tasks.get(row.task.index()));
            tasks.map(|task| records(task.period).saturating_mul(4) / 3).fold(0, usize::saturating_add)
        };
        let records = plan.rows.iter().map(|row| of_cpu(row.cpu)).max().unwrap_or(0);
        let options = Options {
            duration: Some(self.options.duration),
            seed: self.options.seed,
            draws_sporadic: true,
            timed_modes: true,
            records,
            ..Options::default()
        };
        let mut dispatcher = Dispatcher::new(plan.clone()).with(options);
        let used: Vec<Arc<Used>> = tasks.iter().map(|_| Arc::default()).collect();
        for (task, used) in tasks.iter().zip(&used) {
            let (used, draw, of) = (used.clone(), Draw::new(self.options.seed, &task.name), (*task).clone());
            let mut work = Work::new(task.wss)
                .ok_or_else(|| RunError::Memory { task: task.name.clone(), bytes: task.wss.get() })?;
            work.calibrate();
            let epoch = Epoch::now_is_zero();
            let handler = move |job: &crate::dispatch::Job<'_>| {
                let before = clock::thread_cpu();
                let demand = draw.exec(&of, job.number());
                let end = || if job.must_stop() { Time::ZERO } else { Time::MAX };
                if work.until(before.saturating_add(demand), epoch, end) == Worked::Stopped {
                    return;
                }
                let took = clock::thread_cpu().saturating_sub(before);
                used.demanded_ns.fetch_add(demand.as_ns(), Ordering::Relaxed);
                used.used_ns.fetch_add(took.as_ns(), Ordering::Relaxed);
            };
            dispatcher = dispatcher.on(&task.name, handler).map_err(refused)?;
        }
        let steal_before = clock::steal();
        let dispatching = dispatcher.ready().map_err(refused)?;
        let mut account = Account::new(plan, &dispatching, kernel)?;
        let epoch = Epoch::in_future(LEAD);
        account.begin(epoch);
        dispatching.go(epoch);
        let mut dispatching = dispatching;
        let end = Time::ZERO.saturating_add(self.options.duration);
        let mut interrupted = None;
        // A timer thread that gets its CPU late has arrivals to tell still.
        while !dispatching.is_over() && dispatching.now() < end.saturating_add(GRACE) && interrupted.is_none() {
            let pause = LOOK.min(end.saturating_since(dispatching.now())).max(Span::from_ms(1));
            account.look(pause, &mut dispatching, sink);
            progress(dispatching.now().min(end));
            interrupted = signals.caught();
        }
        let told = account.finish(dispatching, sink).map_err(|error| match error {
            StopError::Stuck { operation, grace } => RunError::Stuck { task: operation, grace },
            StopError::Panicked { thread } => RunError::Panicked { task: thread },
        })?;
        let Told { stopped, kernel, evident } = told;
        let steal = steal_before.zip(clock::steal()).map(|(before, after)| after.saturating_sub(before));
        notes.extend(note_of_steal(steal));
        notes.extend(note_of_lost(stopped.lost));
        notes.extend(kernel.iter().flat_map(notes_of_kernel));
        if kernel.as_ref().is_some_and(|kernel| kernel.events == 0) {
            notes.push(TOLD_NOTHING.to_owned());
        }
        if stopped.refused > 0 {
            notes.push(format!(
                "the kernel refused {} changes of a thread's priority: jobs that ran when a mode began kept their level",
                stopped.refused
            ));
        }
        let last = evident.as_ref().map_or(Time::ZERO, |evident| evident.last);
        Ok(RunSummary {
            node: self.node,
            best_effort: false,
            end: stopped.end.max(last).max(if interrupted.is_some() { Time::ZERO } else { end }),
            interrupted,
            notes,
            tasks: summaries(plan, &stopped, &used, evident),
            lost: stopped.lost,
            recorded: kernel.map(|kernel| Recorded {
                events: kernel.events,
                lost: kernel.lost,
                missing: kernel.missing,
            }),
            steal,
        })
    }
}

/// Takes what there is to take of a run, and tells it.
enum Account {
    Told,
    /// With what the kernel saw.
    Both {
        kernel: Box<Kernel>,
        evidence: Box<Evidence>,
    },
}

/// What came of it.
struct Told {
    stopped: Stopped,
    kernel: Option<Outcome>,
    evident: Option<Evident>,
}

impl Account {
    fn new(plan: &Plan, dispatching: &Dispatching, kernel: Option<Kernel>) -> Result<Account, RunError> {
        let Some(mut kernel) = kernel else { return Ok(Account::Told) };
        let (tids, lanes): (Vec<_>, Vec<_>) = dispatching.threads().into_iter().unzip();
        let ids = tids.iter().zip(0..).filter_map(|(tid, lane)| Some((u32::try_from(tid.get()).ok()?, lane)));
        let watched = ids.map(|(id, lane)| kernel::Watched { id, lane, reserved: false }).collect();
        kernel.watch(watched, dispatching.cpus())?;
        Ok(Account::Both { kernel: Box::new(kernel), evidence: Box::new(Evidence::new(plan, lanes)) })
    }

    fn begin(&mut self, epoch: Epoch) {
        if let Account::Both { kernel, .. } = self {
            kernel.begin(epoch);
        }
    }

    /// Waits for at most `timeout`, and tells what is certain.
    fn look(&mut self, timeout: Span, dispatching: &mut Dispatching, sink: &mut impl Sink) {
        match self {
            Account::Told => {
                clock::pause(timeout);
                dispatching.drain(sink);
            }
            Account::Both { kernel, evidence } => {
                let seen = kernel.look(timeout, &mut **evidence);
                let told = dispatching.drain_until(&mut **evidence);
                evidence.advance(seen.min(told), sink);
            }
        }
    }

    fn finish(self, dispatching: Dispatching, sink: &mut impl Sink) -> Result<Told, StopError> {
        match self {
            Account::Told => Ok(Told { stopped: dispatching.stop(sink)?, kernel: None, evident: None }),
            Account::Both { kernel, mut evidence } => {
                // What is known is told also where a thread is stuck.
                let stopped = dispatching.stop(&mut *evidence);
                let outcome = kernel.finish(&mut *evidence);
                let evident = evidence.finish(stopped.as_ref().map_or(Time::MAX, |stopped| stopped.end), sink);
                let stopped = stopped?;
                let outcome = Outcome { missing: evident.missing, ..outcome };
                Ok(Told { stopped, kernel: Some(outcome), evident: Some(evident) })
            }
        }
    }
}

fn summaries(plan: &Plan, stopped: &Stopped, used: &[Arc<Used>], evident: Option<Evident>) -> Vec<TaskSummary> {
    let rows = plan.rows.iter().zip(&stopped.counts).zip(used);
    rows.map(|((row, (name, counts)), used)| {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let beyond = load(&used.used_ns).saturating_sub(load(&used.demanded_ns));
        TaskSummary {
            name: name.clone(),
            class: format!("{} level {}", Class::Fifo { priority: row.priority }.describe(), row.level),
            completed: counts.completed,
            overruns: None,
            throttled: None,
            overhead: Span::from_ns(beyond / counts.completed.max(1)),
            stamps: None,
            late: evident.as_ref().map(|evident| evident.late.get(&row.task).cloned().unwrap_or_default()),
        }
    })
    .collect()
}

fn refused(error: StartError) -> RunError {
    match error {
        StartError::Privilege { missing } => RunError::Privilege { missing, grant: grant(true) },
        StartError::Refused { thread, cause } => RunError::Refused { task: thread, cause },
        StartError::Spawn { thread, cause } => RunError::Spawn { task: thread, cause },
        other => RunError::Dispatch(other.to_string()),
    }
}
