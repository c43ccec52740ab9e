//! Runs Systems that the kernel's scheduling classes cannot express, as operations of takt's own
//! dispatcher.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_dispatch::gate::GRACE;
use takt_dispatch::{Dispatcher, Options, Plan, Row, StartError, StopError, Stopped};
use takt_linux::cpuset::{Recovery, recover};
use takt_linux::signals::StopSignals;
use takt_linux::{Class, Epoch, clock};
use takt_log::{Definition, Event, Sink};
use takt_model::draw::Draw;
use takt_model::{Span, Task, Time};

use crate::error::{RunError, grant};
use crate::kernel::Kernel;
use crate::run_notes::NOTE_NO_EVENTS;
use crate::start::{LOOK, Progress, note_of_lost, note_of_steal, notes_of_kernel, records};
use crate::watching::Watching;
use crate::work::{Work, Worked};
use crate::{Prepared, RunSummary, TaskSummary};

/// Passes events up to the end. Work in progress at the end stops a little later.
struct EndFilter<'a, S> {
    sink: &'a mut S,
    end: Time,
}

impl<S: Sink> Sink for EndFilter<'_, S> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match event {
            _ if now <= self.end => self.sink.event(stream, now, event),
            // The job arrived before the end; the timer's thread got its CPU late.
            Event::Release { .. } => self.sink.event(stream, self.end, event),
            _ => {}
        }
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.sink.define(stream, now.min(self.end), definition);
    }

    fn wants_misses(&self) -> bool {
        self.sink.wants_misses()
    }
}

/// CPU time of a task's jobs.
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
        // A job has at most four facts; the CPU with the most facts counts. Threads without a
        // dispatcher write three.
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
        if let Some(law) = &self.adaptive {
            dispatcher = dispatcher.adaptive(law.clone());
        }
        let used: Vec<Arc<Used>> = tasks.iter().map(|_| Arc::default()).collect();
        for (task, used) in tasks.iter().zip(&used) {
            let (used, draw, of) = (used.clone(), Draw::new(self.options.seed, &task.name), (*task).clone());
            let mut work = Work::new(task.wss)
                .ok_or_else(|| RunError::Memory { task: task.name.clone(), bytes: task.wss.get() })?;
            work.calibrate();
            let epoch = Epoch::now_is_zero();
            let handler = move |job: &takt_dispatch::Job<'_>| {
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
        if let Some(kernel) = kernel {
            dispatcher = dispatcher.watched_by(Box::new(Watching::new(kernel)));
        }
        let mut dispatching = dispatcher.start().map_err(refused)?;
        let end = Time::ZERO.saturating_add(self.options.duration);
        let sink = &mut EndFilter { sink, end };
        let mut interrupted = None;
        // A timer thread that gets its CPU late still has arrivals to report.
        while !dispatching.is_over() && dispatching.now() < end.saturating_add(GRACE) && interrupted.is_none() {
            clock::pause(LOOK.min(end.saturating_since(dispatching.now())).max(Span::from_ms(1)));
            dispatching.drain(sink);
            progress(dispatching.now().min(end));
            interrupted = signals.caught();
        }
        let stopped = dispatching.stop(sink).map_err(|error| match error {
            StopError::Stuck { operation, grace, .. } => RunError::Stuck { task: operation, grace },
            StopError::Panicked { thread } => RunError::Panicked { task: thread },
        })?;
        let steal = steal_before.zip(clock::steal()).map(|(before, after)| after.saturating_sub(before));
        notes.extend(note_of_steal(steal));
        notes.extend(note_of_lost(stopped.lost));
        if let Some(recorded) = &stopped.recorded {
            notes.extend(notes_of_kernel(recorded, stopped.unrecorded.as_ref()));
            let silent = recorded.events == 0 && stopped.unrecorded.is_none();
            notes.extend(silent.then(|| NOTE_NO_EVENTS.to_owned()));
        }
        if stopped.switched > 0 {
            notes.push(format!(
                "plans were switched {}; each switch locked all queues, for at most {}",
                if stopped.switched == 1 { "once".to_owned() } else { format!("{} times", stopped.switched) },
                stopped.locked
            ));
        }
        if stopped.refused > 0 {
            notes.push(format!(
                "the kernel refused {} changes of a thread's priority: jobs that ran when a mode began \
                 kept their level",
                stopped.refused
            ));
        }
        Ok(RunSummary {
            node: self.node,
            best_effort: false,
            end: if interrupted.is_some() { stopped.end.min(end) } else { end },
            interrupted,
            notes,
            tasks: summaries(plan, &stopped, &used),
            flows: None,
            managers: Vec::new(),
            foreign: Vec::new(),
            lost: stopped.lost,
            recorded: stopped.recorded,
            steal,
        })
    }
}

fn summaries(plan: &Plan, stopped: &Stopped, used: &[Arc<Used>]) -> Vec<TaskSummary> {
    let rows = plan.rows.iter().zip(&stopped.counts).zip(used).zip(0..);
    rows.map(|(((row, (name, counts)), used), at)| {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let beyond = load(&used.used_ns).saturating_sub(load(&used.demanded_ns));
        TaskSummary {
            name: name.clone(),
            class: places(plan, row, at),
            completed: counts.completed,
            overruns: None,
            throttled: None,
            overhead: Span::from_ns(beyond / counts.completed.max(1)),
            stamps: None,
            late: None,
        }
    })
    .collect()
}

/// A task's class and level, and those under other plans if they differ.
fn places(plan: &Plan, row: &Row, at: usize) -> String {
    let at_first = format!("{} level {}", Class::Fifo { priority: row.priority }.describe(), row.level);
    let mut told: Vec<(&str, (u8, u32))> = vec![(&plan.strategy, (row.priority, row.level))];
    for mode in &plan.modes {
        let Some(row) = mode.rows.get(at) else { continue };
        let (name, place) = (mode.strategy.as_str(), (row.priority, row.level));
        let is_new = told.iter().all(|(before, _)| *before != name);
        let is_other = told.first().is_some_and(|(_, first)| *first != place);
        if is_new && is_other {
            told.push((name, place));
        }
    }
    let later = told.iter().skip(1).map(|(name, (priority, level))| format!("; {name}: {priority} level {level}"));
    std::iter::once(at_first).chain(later).collect()
}

fn refused(error: StartError) -> RunError {
    match error {
        StartError::Privilege { missing } => RunError::Privilege { missing, grant: grant(true) },
        StartError::Refused { thread, cause } => RunError::Refused { task: thread, cause },
        StartError::Trace(cause) => RunError::Trace(cause.into()),
        StartError::Spawn { thread, cause } => RunError::Spawn { task: thread, cause },
        other => RunError::Dispatch(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use takt_log::JobKey;
    use takt_model::TaskId;

    use super::*;

    #[test]
    fn events_after_the_end_are_omitted_except_earlier_arrivals() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let job = |number| JobKey { task: TaskId(0), number };
        let mut told: Vec<(u32, Time, Event)> = Vec::new();
        let mut until = EndFilter { sink: &mut told, end: at(10) };
        let late = Event::Release { job: job(1), arrival: at(9), parent: None };
        until.event(0, at(10), &Event::Complete { job: job(0), cpu: 0 });
        until.event(0, at(11), &late);
        until.event(0, at(11), &Event::Start { job: job(1), cpu: 0 });
        assert_eq!(told, [(0, at(10), Event::Complete { job: job(0), cpu: 0 }), (0, at(10), late)]);
    }
}
