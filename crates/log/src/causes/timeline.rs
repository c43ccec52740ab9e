//! The activity of one CPU over time, and the jobs on which it worked.

use std::collections::{BTreeMap, VecDeque};

use takt_model::{Span, Time};

use super::Priority;
use super::found::{Cause, CpuActivity, CpuInterval, Name, Sum};
use crate::definitions::Definitions;
use crate::event::JobKey;

/// The most turns to keep. The activity before them is unknown.
const TURNS_MAX: usize = 8192;
/// The most ended jobs to keep. The causes of a job are unknown if its busy period has more.
const JOBS_MAX: usize = 4096;
/// The most suspensions of jobs to keep, and the most times that a hypervisor took.
const SUSPENSIONS_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    Unknown,
    /// A job, and its priority at that time.
    Job(JobKey, Priority),
    /// A job beyond its WCET.
    Overrun(JobKey),
    Interrupt(u32),
    /// A thread of takt without a job.
    Takt,
    Idle,
    /// A thread without a job, or several in a row, and the number of its name at that time in [`Names`].
    Thread(u32, u32),
}

/// Names that threads have had. A thread gets another one by exec.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    texts: Vec<String>,
    numbers: BTreeMap<String, u32>,
    of_thread: BTreeMap<u32, u32>,
}

impl Names {
    /// The number of a thread's present name.
    pub(super) fn of(&self, thread: u32) -> u32 {
        self.of_thread.get(&thread).copied().unwrap_or(u32::MAX)
    }

    /// Names a thread. Returns the name's number.
    pub(super) fn set(&mut self, thread: u32, name: &str) -> u32 {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
                self.texts.push(name.to_owned());
                self.numbers.insert(name.to_owned(), number);
                number
            }
        };
        self.of_thread.insert(thread, number);
        number
    }

    fn text(&self, number: u32) -> Option<&String> {
        self.texts.get(number as usize)
    }
}

/// A job that had the CPU, or that the CPU still has to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct JobRecord {
    pub(super) priority: Priority,
    /// When it would have come without any disturbance.
    pub(super) due: Time,
    pub(super) begins: Time,
    pub(super) ended: Time,
    /// How long it ran, at most its WCET.
    pub(super) took: Span,
    /// Why it came after `due`, and by how much.
    pub(super) delayed: Option<(Cause, Span)>,
}

/// A time in which a job of the CPU could not run: throttled by the kernel, or blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Suspension {
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) priority: Priority,
    pub(super) cause: Cause,
}

#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// The start and the activity of each turn. A turn lasts until the next.
    turns: VecDeque<(Time, Activity)>,
    /// In the order in which they ended.
    jobs: VecDeque<JobRecord>,
    /// Whether older jobs were removed.
    forgotten: bool,
    /// In the order in which they ended.
    suspensions: VecDeque<Suspension>,
    /// Intervals from and to a time, with the time that a hypervisor took in each.
    stolen: VecDeque<(Time, Time, Span)>,
}

impl Timeline {
    pub(super) fn new(activity: Activity) -> Timeline {
        Timeline {
            turns: VecDeque::from([(Time::ZERO, activity)]),
            jobs: VecDeque::new(),
            forgotten: false,
            suspensions: VecDeque::new(),
            stolen: VecDeque::new(),
        }
    }

    /// Records the CPU's activity from `at` on. `at` is not before the previous call's.
    pub(super) fn begin_turn(&mut self, at: Time, activity: Activity) {
        if let Some(last) = self.turns.back_mut() {
            if last.1 == activity {
                return;
            }
            if last.0 == at {
                last.1 = activity;
                return;
            }
        }
        push(&mut self.turns, TURNS_MAX, (at, activity));
    }

    /// The activity of the last turn, if this turn began at `at` and so is empty.
    pub(super) fn empty_last_turn(&self, at: Time) -> Option<Activity> {
        self.turns.back().filter(|(since, _)| *since == at).map(|(_, activity)| *activity)
    }

    pub(super) fn before_last(&self) -> Option<Activity> {
        self.turns.iter().nth_back(1).map(|(_, activity)| *activity)
    }

    /// Corrects the activity of the last turn but one.
    pub(super) fn relabel_before_last(&mut self, activity: Activity) {
        if let Some(last) = self.turns.len().checked_sub(2).and_then(|at| self.turns.get_mut(at)) {
            last.1 = activity;
        }
    }

    /// Changes the name in the last turn, if it is of this thread.
    pub(super) fn rename_last(&mut self, thread: u32, name: u32) {
        if let Some((_, Activity::Thread(last, of))) = self.turns.back_mut()
            && *last == thread
        {
            *of = name;
        }
    }

    pub(super) fn add_job(&mut self, job: JobRecord) {
        self.forgotten |= push(&mut self.jobs, JOBS_MAX, job);
    }

    pub(super) fn add_suspension(&mut self, suspension: Suspension) {
        push(&mut self.suspensions, SUSPENSIONS_MAX, suspension);
    }

    pub(super) fn add_stolen(&mut self, from: Time, to: Time, span: Span) {
        push(&mut self.stolen, SUSPENSIONS_MAX, (from, to, span));
    }

    /// The start of the time up to `since` in which a job of `priority` or a more important one was
    /// always pending. `None` if records are missing.
    pub(super) fn busy_since(&self, priority: Priority, mut since: Time) -> Option<Time> {
        for job in self.jobs.iter().rev() {
            if job.ended <= since {
                return Some(since);
            }
            if job.priority <= priority {
                since = since.min(job.begins);
            }
        }
        (!self.forgotten).then_some(since)
    }

    /// The end of `this` if the CPU had served the System alone. The busy period of `this` began at
    /// `since`. Ended jobs and the unfinished jobs in `ahead` go before it.
    pub(super) fn undisturbed(&self, this: JobRecord, ahead: &[JobRecord], mut since: Time) -> Time {
        let mut before: Vec<(Time, Span)>;
        loop {
            let recent = self.jobs.iter().rev().take_while(|job| job.ended > since);
            let all = recent.chain(ahead).filter(|job| job.priority <= this.priority && job.begins >= since);
            before = all.map(|job| (job.due, job.took)).collect();
            before.sort_unstable();
            // A follower may have been due before the period. Then an earlier period counts, too.
            let first = before.first().map(|(due, _)| *due).filter(|due| *due < since);
            let Some(earlier) = first.and_then(|due| self.busy_since(this.priority, due)) else { break };
            since = earlier;
        }
        let mut busy = since;
        let mut rest = before.as_slice();
        while let Some(((due, took), after)) = rest.split_first().filter(|((due, _), _)| *due <= this.due) {
            busy = busy.max(*due).saturating_add(*took);
            rest = after;
        }
        // A job that arrives before the end goes before it too.
        let mut until = busy.max(this.due).saturating_add(this.took);
        while let Some(((_, took), after)) = rest.split_first().filter(|((due, _), _)| *due < until) {
            until = until.saturating_add(*took);
            rest = after;
        }
        until
    }

    /// Returns the longest delay of jobs that ran before `priority` since then, and of jobs in `ahead`.
    pub(super) fn longest_delay(&self, priority: Priority, ahead: &[JobRecord], since: Time) -> Option<(Cause, Span)> {
        let recent = self.jobs.iter().rev().take_while(|job| job.ended > since);
        let before = recent.chain(ahead).filter(|job| job.priority <= priority && job.begins >= since);
        before.filter_map(|job| job.delayed).max_by_key(|(cause, span)| (*span, std::cmp::Reverse(*cause)))
    }

    /// The turns between two times, the last first; `None` for the time before all kept turns.
    fn between(&self, (from, to): (Time, Time)) -> impl Iterator<Item = (Time, Time, Option<Activity>)> + '_ {
        let mut until = to;
        let kept = self.turns.iter().rev().map_while(move |(since, activity)| {
            if until <= from {
                return None;
            }
            let turn = ((*since).max(from), until, Some(*activity));
            until = until.min(*since).max(from);
            Some(turn)
        });
        let first = self.turns.front().map_or(to, |(since, _)| *since);
        let forgotten = (first > from).then(|| (from, first.min(to), None));
        kept.filter(|(from, to, _)| from < to).chain(forgotten)
    }

    /// The most time that a hypervisor took between two times.
    fn stolen(&self, (from, to): (Time, Time)) -> Span {
        let recent = self.stolen.iter().rev().take_while(|(_, end, _)| *end > from);
        let overlap =
            |(since, end, span): &(Time, Time, Span)| (*span).min((*end).min(to).saturating_since((*since).max(from)));
        recent.map(overlap).fold(Span::ZERO, Span::saturating_add)
    }

    /// The disturbances of a job of this priority in its busy period.
    pub(super) fn disturbances(
        &self,
        job: JobKey,
        (priority, by_laxity): (Priority, bool),
        period: (Time, Time),
        unfinished: Option<Suspension>,
        names: impl Fn(JobKey) -> Option<Name>,
        sum: &mut Sum,
    ) {
        let (from, to) = period;
        let recent = self.suspensions.iter().rev().take_while(|suspension| suspension.to > from);
        let suspensions: Vec<Suspension> = recent
            .copied()
            .chain(unfinished)
            .filter(|suspension| suspension.priority <= priority && suspension.from < to)
            .collect();
        for (from, to, activity) in self.between(period) {
            match activity {
                Some(Activity::Job(other, of)) if of <= priority || (by_laxity && of.0 == priority.0) => {
                    if let Some(name) = names(other) {
                        sum.task(name, to.saturating_since(from));
                    }
                    continue;
                }
                Some(Activity::Overrun(other)) => {
                    let cause = if other.task == job.task { Cause::OwnOverrun } else { Cause::BeyondWcet };
                    sum.add(cause, to.saturating_since(from));
                    continue;
                }
                _ => {}
            }
            // The CPU did not run the more important work that was pending. Some of it was suspended.
            let mut left = to.saturating_since(from);
            for suspension in &suspensions {
                let stopped = suspension.to.min(to).saturating_since(suspension.from.max(from)).min(left);
                sum.add(suspension.cause, stopped);
                left = left.saturating_sub(stopped);
            }
            match activity {
                Some(Activity::Job(..)) => sum.add(Cause::LessImportant, left),
                Some(Activity::Interrupt(_)) => sum.add(Cause::Interrupts, left),
                Some(Activity::Takt) => sum.add(Cause::Dispatching, left),
                Some(Activity::Idle) => sum.add(Cause::Idle, left),
                Some(Activity::Thread(thread, _)) => sum.other(Name::Thread(thread), left),
                Some(Activity::Unknown | Activity::Overrun(_)) | None => sum.add(Cause::Unknown, left),
            }
        }
        sum.disturbance.give_to_hypervisor(self.stolen(period));
    }

    /// The disturbances of a job that waited for this CPU, or had it, between two times.
    /// `inherited` is the cause of an earlier late job of its task.
    pub(super) fn own_time(
        &self,
        job: JobKey,
        part: (Time, Time),
        has_tasks: bool,
        inherited: Option<Cause>,
        sum: &mut Sum,
    ) {
        for (from, to, activity) in self.between(part) {
            let span = to.saturating_since(from);
            match activity {
                Some(Activity::Job(other, _)) if other == job => {}
                Some(Activity::Job(other, _)) if other.task == job.task => {
                    if let Some(cause) = inherited {
                        sum.add(cause, span);
                    }
                }
                Some(Activity::Job(other, _)) if has_tasks => sum.task(Name::Task(other.task), span),
                Some(Activity::Job(other, _)) => sum.other(Name::Task(other.task), span),
                Some(Activity::Overrun(other)) if other.task == job.task => sum.add(Cause::OwnOverrun, span),
                Some(Activity::Overrun(_)) => sum.add(Cause::BeyondWcet, span),
                Some(Activity::Interrupt(_)) => sum.add(Cause::Interrupts, span),
                Some(Activity::Takt) => sum.add(Cause::Dispatching, span),
                Some(Activity::Idle) => sum.add(Cause::Idle, span),
                Some(Activity::Thread(thread, _)) => sum.other(Name::Thread(thread), span),
                Some(Activity::Unknown) | None => sum.add(Cause::Unknown, span),
            }
        }
        sum.disturbance.give_to_hypervisor(self.stolen(part));
    }

    pub(super) fn turns(
        &self,
        from: Time,
        to: Time,
        (definitions, names): (&Definitions, &Names),
        job: JobKey,
    ) -> Vec<CpuInterval> {
        let mut turns: Vec<CpuInterval> = self
            .between((from, to))
            .map(|(from, to, activity)| {
                let what = match activity {
                    Some(Activity::Job(other, _)) if other == job => CpuActivity::Itself,
                    Some(Activity::Overrun(other)) if other == job => CpuActivity::Overrun,
                    Some(Activity::Job(other, _) | Activity::Overrun(other)) => {
                        CpuActivity::Task(definitions.task_name(other.task))
                    }
                    Some(Activity::Interrupt(irq)) => CpuActivity::Interrupt(definitions.interrupt_name(irq)),
                    Some(Activity::Takt) => CpuActivity::Takt,
                    Some(Activity::Idle) => CpuActivity::Idle,
                    Some(Activity::Thread(thread, name)) => {
                        let name = names.text(name).cloned();
                        CpuActivity::Thread(name.unwrap_or_else(|| definitions.thread_name(thread)))
                    }
                    Some(Activity::Unknown) | None => CpuActivity::Unknown,
                };
                CpuInterval { from, to, what }
            })
            .collect();
        turns.reverse();
        turns
    }
}

/// Appends to a queue of at most `most` values. Returns whether the first one was removed for it.
fn push<T>(queue: &mut VecDeque<T>, most: usize, one: T) -> bool {
    let full = queue.len() == most;
    if full {
        queue.pop_front();
    }
    queue.push_back(one);
    full
}
