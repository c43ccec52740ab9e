//! Records the kernel while an experiment runs in other threads of this process, with the code
//! behind `takt observe`.

use std::fs::File;
use std::io::BufReader;

use takt_log::stats::{Collector, Histogram, Stats, TaskStats};
use takt_log::{Event, JobKey, ReadError, Reader, Sink};
use takt_model::{Span, Time};
use takt_report::{Gantt, GanttBuilder, GanttOptions, Scene};

use super::context::Context;
use crate::failure::Failure;
use crate::host::{Recorder, Request};

pub(super) struct Recording {
    path: String,
    recorder: Box<dyn Recorder>,
}

pub(super) struct Recorded {
    pub(super) path: String,
    /// Statistics of all threads, by names with thread ids: `takt task-1-4711`.
    pub(super) stats: Stats,
    /// A text for each kind of event that was lost or not readable.
    pub(super) defects: Vec<String>,
}

impl Recording {
    /// Records the threads of this process, and threads that start later, into a file of the
    /// experiment's folder. Events after the return are recorded.
    pub(super) fn start(context: &Context, file: &str) -> Result<Recording, Failure> {
        Self::of(context, file, None, false)
    }

    /// Like [`Recording::start`], with a thread of the kernel besides.
    pub(super) fn with(context: &Context, file: &str, driver: Option<u32>) -> Result<Recording, Failure> {
        Self::of(context, file, driver, false)
    }

    /// Like [`Recording::start`], for threads that end each job with a sleep. Any system call that
    /// sleeps ends a job, even a wait on a futex. A futex may be a lock within a job.
    pub(super) fn of_sleepers(context: &Context, file: &str) -> Result<Recording, Failure> {
        Self::of(context, file, None, true)
    }

    fn of(context: &Context, file: &str, driver: Option<u32>, suspensions: bool) -> Result<Recording, Failure> {
        let path = context.path(file);
        let pids = [std::process::id()].into_iter().chain(driver).collect();
        let recorder = (context.host.record)(Request { pids, suspensions, output: path.clone() })?;
        Ok(Recording { path, recorder })
    }

    pub(super) fn finish(self) -> Result<Recorded, Failure> {
        let (stats, defects) = self.recorder.finish()?;
        Ok(Recorded { path: self.path, stats, defects })
    }
}

impl Recorded {
    /// Reads the log once more, without the start-up of the threads. A thread's statistics begin
    /// with the job after its first pause of at least `pause`.
    pub(super) fn after_startup(&self, pause: Span) -> Result<Stats, Failure> {
        let failed = |error| unreadable(&self.path, &error);
        let mut log = open(&self.path)?;
        let mut first_jobs = FirstJobs { pause, ..FirstJobs::default() };
        log.copy_to(&mut first_jobs).map_err(failed)?;
        let mut log = open(&self.path)?;
        let mut after =
            AfterStartup { collector: Collector::for_log(log.header(), log.definitions()), first: first_jobs.first };
        let end = log.copy_to(&mut after).map_err(failed)?;
        Ok(after.collector.finish(end))
    }

    /// How long the thread with this name ran each time without a break.
    pub(super) fn run_lengths(&self, name: &str) -> Result<Histogram, Failure> {
        let mut log = open(&self.path)?;
        let mut all = RunLengths { tasks: Vec::new() };
        log.copy_to(&mut all).map_err(|error| unreadable(&self.path, &error))?;
        Ok(all
            .tasks
            .into_iter()
            .find(|(task, ..)| is_thread(task, name))
            .map(|(.., lengths)| lengths)
            .unwrap_or_default())
    }

    /// The schedule of the threads with these names, between these times of the log.
    pub(super) fn gantt(&self, names: &[&str], from: Time, to: Time) -> Result<Gantt, Failure> {
        let mut log = open(&self.path)?;
        let named = |task: &&TaskStats| names.iter().any(|name| is_thread(&task.task, name));
        let tasks = self.stats.tasks.iter().filter(named).map(|task| task.task.clone()).collect();
        let window = takt_report::Window::Range { from, to };
        let options = GanttOptions { tasks, ..GanttOptions::new(window) };
        let scene = Scene::of_log("", log.definitions(), log.header().kinds);
        let mut builder = GanttBuilder::new(scene, options);
        let end = log.copy_to(&mut builder).map_err(|error| unreadable(&self.path, &error))?;
        Ok(builder.finish(end))
    }
}

pub(super) fn open(path: &str) -> Result<Reader<BufReader<File>>, Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::trouble(format_args!("cannot read {}: {error}", takt_model::file::one_line(path))))?;
    Reader::new(BufReader::with_capacity(1 << 16, file)).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, error: &ReadError) -> Failure {
    Failure::trouble(format_args!("{}: {error}", takt_model::file::one_line(path)))
}

struct RunLengths {
    /// By task: its name, the start of its present run, and the lengths of its ended runs.
    tasks: Vec<(String, Option<Time>, Histogram)>,
}

impl Sink for RunLengths {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        let Some(job) = job_of(event) else { return };
        let Some((_, since, lengths)) = self.tasks.get_mut(job.task.index()) else { return };
        match event {
            Event::Start { .. } | Event::Resume { .. } => *since = Some(now),
            Event::Preempt { .. } | Event::Block { .. } | Event::Complete { .. } => {
                if let Some(since) = since.take() {
                    lengths.record(now.saturating_since(since).as_ns());
                }
            }
            _ => {}
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &takt_log::Definition) {
        if let takt_log::Definition::Task(id, task) = definition {
            if self.tasks.len() <= id.index() {
                self.tasks.resize_with(id.index() + 1, || (String::new(), None, Histogram::default()));
            }
            self.tasks[id.index()].0.clone_from(&task.name);
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

pub(super) fn thread_stats<'a>(stats: &'a Stats, name: &str) -> Option<&'a TaskStats> {
    stats.tasks.iter().find(|task| is_thread(&task.task, name))
}

/// Whether `task` is `name` with a thread's id.
fn is_thread(task: &str, name: &str) -> bool {
    let (comm, pid) = task.rsplit_once('-').unwrap_or((task, ""));
    comm == comm_of(name) && !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())
}

/// A thread's name as the kernel keeps it.
fn comm_of(name: &str) -> &str {
    let end = (0..=name.len().min(15)).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0)).unwrap_or(name)
}

fn job_of(event: &Event) -> Option<JobKey> {
    match event {
        Event::Release { job, .. }
        | Event::Start { job, .. }
        | Event::Preempt { job, .. }
        | Event::Resume { job, .. }
        | Event::Block { job, .. }
        | Event::Wake { job }
        | Event::Complete { job, .. }
        | Event::Miss { job }
        | Event::Migrate { job, .. }
        | Event::Window { job, .. } => Some(*job),
        _ => None,
    }
}

/// Finds the first job of each task after the start-up.
#[derive(Default)]
struct FirstJobs {
    pause: Span,
    /// By task: the arrival of the last job, and the number of jobs so far.
    seen: Vec<(Time, u64)>,
    /// By task: its first job after the pause.
    first: Vec<u64>,
}

impl Sink for FirstJobs {
    fn event(&mut self, _stream: u32, _now: Time, event: &Event) {
        let Event::Release { job, arrival, .. } = event else { return };
        let task = job.task.index();
        if self.seen.len() <= task {
            self.seen.resize(task + 1, (Time::ZERO, 0));
            self.first.resize(task + 1, 0);
        }
        let (last, count) = self.seen[task];
        if count > 0 && count <= STARTUP_JOBS_MAX && arrival.saturating_since(last) >= self.pause {
            self.first[task] = job.number;
        }
        self.seen[task] = (*arrival, count + 1);
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

/// The most jobs of a task before the pause that ends its start-up.
const STARTUP_JOBS_MAX: u64 = 3;

/// Counts the jobs of each task from a given number on.
struct AfterStartup {
    collector: Collector,
    /// The first number that counts, by task.
    first: Vec<u64>,
}

impl Sink for AfterStartup {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        let early = |job: JobKey| self.first.get(job.task.index()).is_some_and(|first| job.number < *first);
        if !job_of(event).is_some_and(early) {
            self.collector.event(stream, now, event);
        }
    }

    fn define(&mut self, stream: u32, now: Time, definition: &takt_log::Definition) {
        self.collector.define(stream, now, definition);
    }

    fn wants_misses(&self) -> bool {
        self.collector.wants_misses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_known_by_the_names_that_the_kernel_keeps() {
        assert!(is_thread("takt task-1-4711", "takt task-1"));
        assert!(!is_thread("takt task-1-4711", "takt task"));
        assert!(!is_thread("takt task-1-4711", "takt task") && !is_thread("takt task-x", "takt task"));
        assert!(is_thread("takt-emulated-d-12", "takt-emulated-driver"));
        assert_eq!(comm_of("ééééééééé"), "ééééééé");
    }
}
