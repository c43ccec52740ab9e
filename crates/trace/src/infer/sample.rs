//! Collects the jobs of each task from the events of a log.

use std::collections::VecDeque;

use takt_log::{Definitions, Event, Header, JobKey, Kind, Sink};
use takt_model::{Span, TaskId, Time};

/// The most jobs of a task that are kept, at 48 bytes each. Later jobs are only counted.
pub const JOBS_MAX: usize = 1 << 20;

/// The most tasks. Later tasks of a log are left out.
pub const TASKS_MAX: usize = 1 << 16;

/// The most open jobs of a task. Beyond this, the oldest are forgotten.
const OPEN_MAX: usize = 1 << 12;

/// One job, as far as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobSeen {
    /// Its number.
    pub number: u64,
    /// Its arrival; where only a window is known, the best estimate of it.
    pub arrival: Time,
    /// The width of the window in which the arrival lies; zero where it is known.
    pub window: Span,
    /// When it was released, at or after its arrival.
    pub release: Time,
    /// When it completed.
    pub complete: Option<Time>,
    /// How long it executed.
    pub exec: Option<Span>,
    /// Events were lost between the job before and this one: jobs may be missing there.
    pub gap: bool,
}

/// The sample of a task.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Jobs in the order of their arrivals.
    pub jobs: Vec<JobSeen>,
    /// Releases seen, those that are not kept included.
    pub released: u64,
    /// The longest execution of all jobs, those that are not kept included.
    pub longest: Option<Span>,
    /// CPUs that its jobs started, resumed or completed on, ascending.
    pub cpus: Vec<u32>,
    /// The relative deadline that its missed jobs had.
    pub missed_deadline: Option<Span>,
}

impl Sample {
    /// From releases alone: their moments, each with the width of its window.
    #[must_use]
    pub fn of_releases(releases: &[(Time, Span)]) -> Sample {
        let job = |(number, (at, window)): (usize, &(Time, Span))| JobSeen {
            number: number as u64,
            arrival: *at,
            window: *window,
            release: *at,
            complete: None,
            exec: None,
            gap: false,
        };
        let jobs = releases.iter().enumerate().take(JOBS_MAX).map(job).collect();
        Sample { jobs, released: releases.len() as u64, ..Sample::default() }
    }
}

/// A [`Sink`] that keeps what inference needs of a log's events.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Whether to use the nominal arrivals in the log.
    nominal: bool,
    /// Whether the log has preemptions. If not, a job that starts on another job's CPU counts as
    /// preempting that job.
    preemptions: bool,
    lost: u64,
    tasks: Vec<TaskState>,
    /// By stream and CPU: the jobs that started there and have not completed, the running one last.
    /// Empty if the log has preemptions.
    stacks: Vec<((u32, u32), Vec<JobKey>)>,
}

#[derive(Clone, Debug, Default)]
struct TaskState {
    sample: Sample,
    open: VecDeque<OpenJob>,
    /// The number and the earliest arrival of a job that is about to be released.
    window: Option<(u64, Time)>,
    /// The value of [`Sampler::lost`] at its last release.
    lost: u64,
    /// Whether events of this task are missing since then.
    gap: bool,
}

#[derive(Clone, Copy, Debug)]
struct OpenJob {
    number: u64,
    /// Its place in the sample.
    at: usize,
    arrival: Time,
    executed: u64,
    since: Option<Time>,
    /// Events were lost while it was open.
    doubtful: bool,
}

impl Sampler {
    /// For a log with this header. Only the kinds of event in the header are used, and not its
    /// System. Without `nominal`, arrivals are the moments of release, also where the log tells
    /// nominal ones.
    #[must_use]
    pub fn new(header: &Header, nominal: bool) -> Sampler {
        let preemptions = header.kinds.contains(Kind::Preempt);
        Sampler { nominal, preemptions, lost: 0, tasks: Vec::new(), stacks: Vec::new() }
    }

    /// The samples of the tasks so far, in the order of their definitions, with jobs in the order
    /// of their releases. Tasks without a job may be missing at the end.
    pub fn so_far(&self) -> impl Iterator<Item = &Sample> {
        self.tasks.iter().take(TASKS_MAX).map(|state| &state.sample)
    }

    /// The samples of the tasks of `definitions`.
    #[must_use]
    pub fn finish(self, definitions: &Definitions) -> Vec<Sample> {
        let mut samples: Vec<Sample> = self.tasks.into_iter().map(|state| state.sample).collect();
        samples.truncate(TASKS_MAX);
        samples.resize_with(samples.len().max(definitions.tasks.len()), Sample::default);
        for sample in &mut samples {
            sample.jobs.sort_by_key(|job| (job.arrival, job.number));
        }
        samples
    }

    fn task_state(&mut self, task: TaskId) -> &mut TaskState {
        let at = task.index().min(TASKS_MAX);
        if self.tasks.len() <= at {
            self.tasks.resize_with(at + 1, TaskState::default);
        }
        &mut self.tasks[at]
    }

    fn release(&mut self, now: Time, job: JobKey, arrival: Time) {
        let (lost, nominal) = (self.lost, self.nominal);
        let state = self.task_state(job.task);
        let earliest = state.window.take().filter(|(number, _)| *number == job.number).map(|(_, earliest)| earliest);
        let arrival = if nominal { arrival.min(now) } else { now };
        state.sample.released += 1;
        let at = state.sample.jobs.len();
        if at < JOBS_MAX {
            state.sample.jobs.push(JobSeen {
                number: job.number,
                arrival,
                window: earliest.map_or(Span::ZERO, |earliest| arrival.saturating_since(earliest)),
                release: now,
                complete: None,
                exec: None,
                gap: state.lost != lost || state.gap,
            });
        }
        (state.lost, state.gap) = (lost, false);
        if state.open.len() == OPEN_MAX {
            state.open.pop_front();
        }
        state.open.push_back(OpenJob { number: job.number, at, arrival, executed: 0, since: None, doubtful: false });
    }

    fn gets_cpu(&mut self, now: Time, job: JobKey, cpu: u32) {
        let state = self.task_state(job.task);
        if let Err(place) = state.sample.cpus.binary_search(&cpu) {
            state.sample.cpus.insert(place, cpu);
        }
        if let Some(open) = state.open(job.number) {
            open.since = Some(now);
        }
    }

    fn loses_cpu(&mut self, now: Time, job: JobKey) {
        if let Some(open) = self.task_state(job.task).open(job.number) {
            open.executed += open.since.take().map_or(0, |since| now.saturating_since(since).as_ns());
        }
    }

    fn complete(&mut self, now: Time, job: JobKey) {
        self.loses_cpu(now, job);
        let state = self.task_state(job.task);
        let Some(place) = state.open.iter().position(|open| open.number == job.number) else { return };
        let Some(open) = state.open.remove(place) else { return };
        let exec = Some(Span::from_ns(open.executed)).filter(|span| !open.doubtful && !span.is_zero());
        state.sample.longest = state.sample.longest.max(exec);
        if let Some(seen) = state.sample.jobs.get_mut(open.at) {
            (seen.complete, seen.exec) = (Some(now), exec);
        }
    }

    /// A job gets a CPU in a log without preemptions. It preempts the last job there.
    fn preempt_on(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32) {
        let place = self.stack(stream, cpu);
        if let Some(before) = self.stacks[place].1.last().copied() {
            self.loses_cpu(now, before);
        }
        self.stacks[place].1.push(job);
    }

    /// A job ended in a log without preemptions. The job that it preempted continues.
    fn resume_preempted(&mut self, now: Time, job: JobKey) {
        for place in 0..self.stacks.len() {
            let stack = &mut self.stacks[place].1;
            let Some(at) = stack.iter().rposition(|running| *running == job) else { continue };
            let was_running = at + 1 == stack.len();
            stack.remove(at);
            if let Some(next) = stack.last().copied().filter(|_| was_running)
                && let Some(open) = self.task_state(next.task).open(next.number)
            {
                open.since = Some(now);
            }
            return;
        }
    }

    fn stack(&mut self, stream: u32, cpu: u32) -> usize {
        let key = (stream, cpu);
        self.stacks.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
            self.stacks.push((key, Vec::new()));
            self.stacks.len() - 1
        })
    }
}

impl OpenJob {
    /// Events of this job are missing.
    fn mark_doubtful(&mut self) {
        (self.doubtful, self.since) = (true, None);
    }
}

impl TaskState {
    fn open(&mut self, number: u64) -> Option<&mut OpenJob> {
        self.open.iter_mut().find(|open| open.number == number)
    }
}

impl Sink for Sampler {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Window { job, earliest } => self.task_state(job.task).window = Some((job.number, earliest)),
            Event::Release { job, arrival, .. } => self.release(now, job, arrival),
            Event::Start { job, cpu } => {
                if !self.preemptions {
                    self.preempt_on(stream, now, job, cpu);
                }
                self.gets_cpu(now, job, cpu);
            }
            Event::Resume { job, cpu } => self.gets_cpu(now, job, cpu),
            Event::Preempt { job, .. } | Event::Block { job, .. } => self.loses_cpu(now, job),
            Event::Complete { job, .. } => {
                self.complete(now, job);
                if !self.preemptions {
                    self.resume_preempted(now, job);
                }
            }
            Event::Miss { job } => {
                let state = self.task_state(job.task);
                // A miss at the release came after the deadline and does not show it.
                let open = state.open.iter().find(|open| open.number == job.number).map(|open| (open.arrival, open.at));
                if let Some((arrival, at)) = open
                    && state.sample.jobs.get(at).is_some_and(|seen| seen.release < now)
                {
                    let deadline = now.saturating_since(arrival);
                    let known = state.sample.missed_deadline.get_or_insert(deadline);
                    *known = (*known).min(deadline);
                }
            }
            Event::Cancel { job, .. } => {
                self.task_state(job.task).open.retain(|open| open.number != job.number);
                if !self.preemptions {
                    self.resume_preempted(now, job);
                }
            }
            Event::Gap { job } => {
                let state = self.task_state(job.task);
                state.gap = true;
                state.open.iter_mut().for_each(OpenJob::mark_doubtful);
            }
            Event::Lost { .. } => {
                self.lost += 1;
                for state in &mut self.tasks {
                    state.open.iter_mut().for_each(OpenJob::mark_doubtful);
                }
                self.stacks.clear();
            }
            _ => {}
        }
    }

    /// A miss tells the deadline that a log otherwise only defines.
    fn wants_misses(&self) -> bool {
        true
    }
}
