//! One of two logs: its jobs, each handed over when it has ended.

use std::collections::VecDeque;
use std::io;

use takt_model::{Span, Time};

use super::Matcher;
use crate::error::ReadError;
use crate::event::{CancelCause, Event, JobKey};
use crate::reader::{Reader, Record};

/// A job as one log reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobView {
    pub(super) number: u64,
    /// The nominal arrival: the latest possible, and by how much it can be earlier.
    arrival: u64,
    pub(super) slack: u64,
    pub(super) release: u64,
    pub(super) start: Option<u64>,
    end: End,
    /// A miss was recorded or follows from the deadline.
    missed: bool,
    /// Events were lost since its release.
    doubtful: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Open,
    Completed(u64),
    Cancelled(CancelCause),
    Unfinished,
    Unknown,
}

impl JobView {
    pub(super) fn completion(&self) -> Option<u64> {
        if let End::Completed(at) = self.end { Some(at) } else { None }
    }
    pub(super) fn response(&self) -> Option<u64> {
        self.completion().map(|at| at.saturating_sub(self.arrival))
    }
    pub(super) fn is_unknown(&self) -> bool {
        self.end == End::Unknown
    }
    pub(super) fn became(&self) -> &'static str {
        match (self.end, self.missed) {
            (End::Completed(_), false) => "completed",
            (End::Completed(_), true) => "completed late",
            (End::Cancelled(CancelCause::Late), _) => "dropped late",
            (End::Cancelled(cause), _) => cause.name(),
            (End::Open | End::Unfinished, false) => "unfinished",
            (End::Open | End::Unfinished, true) => "unfinished, late",
            (End::Unknown, _) => "unknown",
        }
    }
}

pub(super) struct Side<'a, R> {
    reader: &'a mut Reader<R>,
    side: usize,
    revision: u64,
    tasks: Vec<SideTask>,
    /// Places of servers in the matcher.
    servers: Vec<usize>,
    /// `None` at the end.
    next: Option<Time>,
}

struct SideTask {
    name: String,
    /// Its place in the matcher.
    at: usize,
    /// Relative, where known.
    deadline: Option<Span>,
    stream: u32,
    /// The least number that the next release may have.
    next: u64,
    /// The job whose nominal arrival is not exact, and the earliest it can be; its release follows.
    window: Option<(u64, u64)>,
    /// In the order of numbers; ended ones wait for those before them.
    open: VecDeque<JobView>,
}

impl<'a, R: io::Read> Side<'a, R> {
    pub(super) fn new(reader: &'a mut Reader<R>, side: usize) -> Self {
        let revision = reader.revision();
        Side { reader, side, revision, tasks: Vec::new(), servers: Vec::new(), next: Some(Time::ZERO) }
    }

    /// How far it has come; `None` at the end.
    pub(super) fn now(&self) -> Option<Time> {
        self.next
    }

    pub(super) fn end(&self) -> Time {
        self.reader.end()
    }

    pub(super) fn learn(&mut self, matcher: &mut Matcher<'_>) {
        let servers = &self.reader.definitions().servers;
        self.servers = servers.iter().map(|def| matcher.servers.index(&def.name)).collect();
        for (i, def) in self.reader.definitions().tasks.iter().enumerate() {
            // A log can bring its definitions one by one: most are known already.
            if self.tasks.get(i).is_some_and(|task| task.name == def.name && task.deadline == def.deadline) {
                continue;
            }
            let (name, at, deadline) = (def.name.clone(), matcher.index(&def.name), def.deadline);
            match self.tasks.get_mut(i) {
                Some(task) => (task.name, task.at, task.deadline) = (name, at, deadline),
                None => {
                    let stream = def.node.0;
                    self.tasks.push(SideTask {
                        name,
                        at,
                        deadline,
                        stream,
                        next: 0,
                        window: None,
                        open: VecDeque::new(),
                    });
                }
            }
        }
    }

    pub(super) fn step(&mut self, matcher: &mut Matcher<'_>) -> Result<(), ReadError> {
        let Some(record) = self.reader.next().transpose()? else {
            self.next = None;
            self.finish(matcher);
            return Ok(());
        };
        if self.reader.revision() != self.revision {
            self.revision = self.reader.revision();
            self.learn(matcher);
        }
        self.next = Some(record.time);
        self.take(matcher, &record);
        Ok(())
    }

    fn take(&mut self, matcher: &mut Matcher<'_>, record: &Record) {
        let now = record.time.as_ns();
        let place = |server: u32| self.servers.get(server as usize).copied();
        matcher.servers.take(self.side, record.time, &record.event, place);
        let place = |job: JobKey| self.tasks.get(job.task.index()).map(|task| task.at);
        matcher.messages.take(self.side, record.time, &record.event, place);
        match record.event {
            Event::Release { job: JobKey { task, number }, arrival, .. } => {
                let Some(task) = self.tasks.get_mut(task.index()).filter(|task| number >= task.next) else { return };
                (task.next, task.stream) = (number.saturating_add(1), record.stream);
                let (arrival, window) = (arrival.as_ns(), task.window.take());
                let slack =
                    window.filter(|window| window.0 == number).map_or(0, |window| arrival.saturating_sub(window.1));
                task.open.push_back(JobView {
                    number,
                    arrival,
                    slack,
                    release: now,
                    start: None,
                    end: End::Open,
                    missed: false,
                    doubtful: false,
                });
                matcher.waiting += 1;
            }
            Event::Window { job, earliest } => {
                if let Some(task) = self.tasks.get_mut(job.task.index()) {
                    task.window = Some((job.number, earliest.as_ns()));
                }
            }
            Event::Start { job, .. } => self.change(job, |view| view.start = Some(now)),
            Event::Miss { job } => self.change(job, |view| view.missed = true),
            Event::Complete { job, .. } => {
                self.change(job, |view| view.end = End::Completed(now));
                self.hand_over(matcher, job);
            }
            Event::Cancel { job, cause } => {
                self.change(job, |view| view.end = End::Cancelled(cause));
                self.hand_over(matcher, job);
            }
            Event::Gap { job } => {
                if let Some(task) = self.tasks.get_mut(job.task.index()) {
                    task.open.iter_mut().for_each(|view| view.doubtful = true);
                }
            }
            Event::Lost { .. } => {
                for task in self.tasks.iter_mut().filter(|task| task.stream == record.stream) {
                    task.open.iter_mut().for_each(|view| view.doubtful = true);
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, job: JobKey, change: impl FnOnce(&mut JobView)) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        if let Ok(at) = task.open.binary_search_by_key(&job.number, |view| view.number)
            && let Some(view) = task.open.get_mut(at)
            && view.end == End::Open
        {
            change(view);
        }
    }

    /// Gives the matcher what has ended, in the order of numbers. Jobs that lost events hide are taken to have
    /// ended when a later one of their task does, for jobs of a task end in order.
    fn hand_over(&mut self, matcher: &mut Matcher<'_>, job: JobKey) {
        let Some(task) = self.tasks.get_mut(job.task.index()) else { return };
        while let Some(view) = task.open.front_mut() {
            if view.end == End::Open {
                if !view.doubtful || view.number >= job.number {
                    break;
                }
                view.end = End::Unknown;
            }
            task.hand_front(matcher, self.side, None);
        }
    }

    fn finish(&mut self, matcher: &mut Matcher<'_>) {
        let end = self.reader.end().as_ns();
        for task in &mut self.tasks {
            while let Some(view) = task.open.front_mut() {
                if view.end == End::Open {
                    view.end = if view.doubtful { End::Unknown } else { End::Unfinished };
                }
                task.hand_front(matcher, self.side, Some(end));
            }
        }
    }
}

impl SideTask {
    fn hand_front(&mut self, matcher: &mut Matcher<'_>, side: usize, log_end: Option<u64>) {
        let Some(mut view) = self.open.pop_front() else { return };
        matcher.waiting -= 1;
        let deadline = self.deadline.map(|deadline| view.arrival.saturating_add(deadline.as_ns()));
        if let (Some(deadline), Some(at)) = (deadline, view.completion()) {
            view.missed = at > deadline;
        } else if let (Some(deadline), End::Unfinished, Some(end)) = (deadline, view.end, log_end) {
            view.missed = deadline <= end;
        }
        matcher.offer(side, self.at, view);
    }
}
