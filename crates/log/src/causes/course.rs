//! The activity of one CPU over time, and the jobs on which it worked.

use std::collections::{BTreeMap, VecDeque};

use takt_model::{Span, Time};

use super::Place;
use super::found::{Cause, CpuActivity, CpuInterval, Name, Sum};
use crate::definitions::Definitions;
use crate::event::JobKey;

/// Turns that are kept: of a busy period with more of them the older part is unknown.
const TURNS_MAX: usize = 8192;
/// Jobs that are kept: why a job with a busy period of more was late is unknown.
const JOBS_MAX: usize = 4096;
/// Stops of jobs, and times that a hypervisor took, that are kept.
const STOPS_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// Nobody knows.
    Unknown,
    /// A job, and its place then.
    Job(JobKey, Place),
    /// A job beyond its WCET.
    Beyond(JobKey),
    Interrupt(u32),
    /// A thread of takt without a job.
    Takt,
    Idle,
    /// A thread without a job, or several in a row; and its name then, as [`Names`] numbers it.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndedJob {
    pub(super) place: Place,
    /// When it would have come had nothing been disturbed.
    pub(super) due: Time,
    pub(super) begins: Time,
    pub(super) ended: Time,
    /// How long it ran, at most its WCET.
    pub(super) took: Span,
    /// Why it came later than it was due, and by how much.
    pub(super) delayed: Option<(Cause, Span)>,
}

/// A job of the CPU could not run: the kernel did not let it, or it waited for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stop {
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) place: Place,
    pub(super) cause: Cause,
}

#[derive(Clone, Debug)]
pub(super) struct Course {
    /// Since when, what; each until the next.
    turns: VecDeque<(Time, Activity)>,
    /// In the order in which they ended.
    jobs: VecDeque<EndedJob>,
    forgotten: bool,
    /// In the order in which they ended.
    stops: VecDeque<Stop>,
    /// From, to, and how long a hypervisor took of that.
    stolen: VecDeque<(Time, Time, Span)>,
}

impl Course {
    pub(super) fn new(activity: Activity) -> Course {
        Course {
            turns: VecDeque::from([(Time::ZERO, activity)]),
            jobs: VecDeque::new(),
            forgotten: false,
            stops: VecDeque::new(),
            stolen: VecDeque::new(),
        }
    }

    /// Records the CPU's activity from `at` on. `at` is not before the previous call's.
    pub(super) fn turn(&mut self, at: Time, activity: Activity) {
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

    /// The CPU's recorded activity if it began exactly at `at`.
    pub(super) fn last_of_no_time(&self, at: Time) -> Option<Activity> {
        self.turns.back().filter(|(since, _)| *since == at).map(|(_, activity)| *activity)
    }

    pub(super) fn before_last(&self) -> Option<Activity> {
        self.turns.iter().nth_back(1).map(|(_, activity)| *activity)
    }

    /// The last turn but one was of another kind than was thought.
    pub(super) fn relabel_before_last(&mut self, activity: Activity) {
        if let Some(last) = self.turns.len().checked_sub(2).and_then(|at| self.turns.get_mut(at)) {
            last.1 = activity;
        }
    }

    /// The thread of the last turn has another name.
    pub(super) fn rename_last(&mut self, thread: u32, name: u32) {
        if let Some((_, Activity::Thread(last, of))) = self.turns.back_mut()
            && *last == thread
        {
            *of = name;
        }
    }

    pub(super) fn ended(&mut self, job: EndedJob) {
        self.forgotten |= push(&mut self.jobs, JOBS_MAX, job);
    }

    pub(super) fn stop(&mut self, stop: Stop) {
        push(&mut self.stops, STOPS_MAX, stop);
    }

    pub(super) fn steal(&mut self, from: Time, to: Time, span: Span) {
        push(&mut self.stolen, STOPS_MAX, (from, to, span));
    }

    /// Since when some job that goes before one at `place` has always been there, up to `since`.
    /// `None` where too much is forgotten.
    pub(super) fn busy_since(&self, place: Place, mut since: Time) -> Option<Time> {
        for job in self.jobs.iter().rev() {
            if job.ended <= since {
                return Some(since);
            }
            if job.place <= place {
                since = since.min(job.begins);
            }
        }
        (!self.forgotten).then_some(since)
    }

    /// The end of `this` if the CPU had served the System alone. The busy period of `this` began at
    /// `since`. Ended jobs and the unfinished jobs in `ahead` go before it.
    pub(super) fn undisturbed(&self, this: EndedJob, ahead: &[EndedJob], mut since: Time) -> Time {
        let mut before: Vec<(Time, Span)>;
        loop {
            let recent = self.jobs.iter().rev().take_while(|job| job.ended > since);
            let all = recent.chain(ahead).filter(|job| job.place <= this.place && job.begins >= since);
            before = all.map(|job| (job.due, job.took)).collect();
            before.sort_unstable();
            // A follower may have been due before the period. Then an earlier period counts, too.
            let first = before.first().map(|(due, _)| *due).filter(|due| *due < since);
            let Some(earlier) = first.and_then(|due| self.busy_since(this.place, due)) else { break };
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

    /// Returns the longest delay of jobs that ran before `place` since then, and of jobs in `ahead`.
    pub(super) fn longest_delay(&self, place: Place, ahead: &[EndedJob], since: Time) -> Option<(Cause, Span)> {
        let recent = self.jobs.iter().rev().take_while(|job| job.ended > since);
        let before = recent.chain(ahead).filter(|job| job.place <= place && job.begins >= since);
        before.filter_map(|job| job.delayed).max_by_key(|(cause, span)| (*span, std::cmp::Reverse(*cause)))
    }

    /// The turns between two times, the last first; `None` for what is forgotten.
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

    /// How long a hypervisor took between two times, at most.
    fn stolen(&self, (from, to): (Time, Time)) -> Span {
        let recent = self.stolen.iter().rev().take_while(|(_, end, _)| *end > from);
        let overlap =
            |(since, end, span): &(Time, Time, Span)| (*span).min((*end).min(to).saturating_since((*since).max(from)));
        recent.map(overlap).fold(Span::ZERO, Span::saturating_add)
    }

    /// The disturbances of a job at this place in its busy period.
    pub(super) fn disturbances(
        &self,
        job: JobKey,
        (place, by_laxity): (Place, bool),
        period: (Time, Time),
        off: Option<Stop>,
        names: impl Fn(JobKey) -> Option<Name>,
        sum: &mut Sum,
    ) {
        let (from, to) = period;
        let recent = self.stops.iter().rev().take_while(|stop| stop.to > from);
        let stops: Vec<Stop> =
            recent.copied().chain(off).filter(|stop| stop.place <= place && stop.from < to).collect();
        for (from, to, activity) in self.between(period) {
            match activity {
                Some(Activity::Job(other, of)) if of <= place || (by_laxity && of.0 == place.0) => {
                    if let Some(name) = names(other) {
                        sum.task(name, to.saturating_since(from));
                    }
                    continue;
                }
                Some(Activity::Beyond(other)) => {
                    let cause = if other.task == job.task { Cause::OwnOverrun } else { Cause::BeyondWcet };
                    sum.add(cause, to.saturating_since(from));
                    continue;
                }
                _ => {}
            }
            // No work that goes before the job, while such work was there: some of it could not run.
            let mut left = to.saturating_since(from);
            for stop in &stops {
                let stopped = stop.to.min(to).saturating_since(stop.from.max(from)).min(left);
                sum.add(stop.cause, stopped);
                left = left.saturating_sub(stopped);
            }
            match activity {
                Some(Activity::Job(..)) => sum.add(Cause::LessImportant, left),
                Some(Activity::Interrupt(_)) => sum.add(Cause::Interrupts, left),
                Some(Activity::Takt) => sum.add(Cause::Dispatching, left),
                Some(Activity::Idle) => sum.add(Cause::Idle, left),
                Some(Activity::Thread(thread, _)) => sum.other(Name::Thread(thread), left),
                Some(Activity::Unknown | Activity::Beyond(_)) | None => sum.add(Cause::Unknown, left),
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
                Some(Activity::Beyond(other)) if other.task == job.task => sum.add(Cause::OwnOverrun, span),
                Some(Activity::Beyond(_)) => sum.add(Cause::BeyondWcet, span),
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
                    Some(Activity::Beyond(other)) if other == job => CpuActivity::Overrun,
                    Some(Activity::Job(other, _) | Activity::Beyond(other)) => {
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

/// Behind all others; whether the first is forgotten for it.
fn push<T>(queue: &mut VecDeque<T>, most: usize, one: T) -> bool {
    let full = queue.len() == most;
    if full {
        queue.pop_front();
    }
    queue.push_back(one);
    full
}
