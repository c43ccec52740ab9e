//! The difference of two logs, job by job.
//!
//! Jobs match by the *name* of their task and their number. So logs of different back ends compare,
//! and so do systems with another order of tasks. Both logs are read side by side in the order of
//! time. Messages match by the job that left them. Memory holds only the jobs that have ended in one
//! log but not in the other, whatever the logs' length. If a log knows a nominal arrival only as a
//! window, releases and responses differ if no instant of the window agrees.

mod messages;
mod servers;
mod side;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;

use serde::Serialize;
use takt_model::{Span, Time};
use thiserror::Error;

use crate::error::ReadError;
use crate::kind::Kind;
use crate::reader::Reader;
use messages::Messages;
use servers::Servers;
use side::{JobView, Side};

pub use messages::MessageDiff;
pub use servers::ServerDiff;

/// How many jobs of both logs may be held: open ones, and ended ones that wait for their counterpart.
pub const WAITING_MAX: usize = 1 << 20;
/// How many of one task wait at most; with many tasks fewer. When more do, the oldest is taken to be missing.
pub const TASK_WAITING_MAX: usize = 1 << 16;

/// Which differences count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiffOptions {
    /// Times that are this far apart are still equal.
    pub tolerance: Span,
}

/// How many differences [`Diff::first`] lists.
const FIRST_MAX: usize = 20;

/// How two logs differ.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Diff {
    /// No difference at all.
    pub same: bool,
    /// What was tolerated.
    pub tolerance_ns: u64,
    /// The left log's end.
    pub left_end_ns: u64,
    /// The right log's end.
    pub right_end_ns: u64,
    /// Sums over all tasks.
    pub total: Counts,
    /// By task, in the order of the left log; what only the right one has comes last.
    pub tasks: Vec<TaskDiff>,
    /// By server, in the order of the left log: those with an event that is compared.
    pub servers: Vec<ServerDiff>,
    /// By task that left messages, in the order of the left log.
    pub messages: Vec<MessageDiff>,
    /// Kinds of event that not both back ends record, so that nothing was compared of them.
    pub not_compared: Vec<&'static str>,
    /// The first differences.
    pub first: Vec<Difference>,
}

/// The differences of one task's jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TaskDiff {
    /// Its name.
    pub task: String,
    /// How many jobs differ, and in what.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How many jobs differ, and in what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Jobs in both logs.
    pub matched: u64,
    /// Jobs that only the left log has.
    pub only_left: u64,
    /// Jobs that only the right log has.
    pub only_right: u64,
    /// Number of matched jobs that differ in anything.
    pub differing: u64,
    /// In their release.
    pub release: u64,
    /// In their start.
    pub start: u64,
    /// In their completion.
    pub completion: u64,
    /// In their response.
    pub response: u64,
    /// In what became of them: completed, late, cancelled, unfinished.
    pub outcome: u64,
    /// Number of matched jobs whose fate is lost in one log.
    pub unknown: u64,
    /// The largest difference of two responses.
    pub response_difference_max_ns: u64,
}

/// One difference of one job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// The task's name.
    pub task: String,
    /// The job's number.
    pub job: u64,
    /// What differs: `only left`, `only right`, `release`, `start`, `completion`, `response`, `outcome`.
    pub what: &'static str,
    /// The left log's value: an instant, or a span for responses.
    pub left_ns: Option<u64>,
    /// The right log's.
    pub right_ns: Option<u64>,
    /// The job's outcome in the left log.
    pub left: Option<&'static str>,
    /// In the right log.
    pub right: Option<&'static str>,
}

/// Why two logs could not be compared.
#[derive(Debug, Error)]
pub enum DiffError {
    /// The left log cannot be read.
    #[error("the first log: {0}")]
    Left(ReadError),
    /// The right log cannot be read.
    #[error("the second log: {0}")]
    Right(ReadError),
    /// The logs are too far apart.
    #[error(
        "more than {WAITING_MAX} jobs are open at once or wait for their counterpart in the other log; \
         are these runs of one System?"
    )]
    Waiting,
}

/// Compares what two readers have left.
///
/// # Errors
/// A log cannot be read, or the logs are so far apart that more than [`WAITING_MAX`] jobs would have to be held.
pub fn diff<L: io::Read, R: io::Read>(
    left: &mut Reader<L>,
    right: &mut Reader<R>,
    options: &DiffOptions,
) -> Result<Diff, DiffError> {
    let kinds = (left.header().kinds, right.header().kinds);
    let comparable = |kind| kinds.0.contains(kind) && kinds.1.contains(kind);
    // How live back ends split payments differs from run to run.
    let simulated = !left.header().back_end.is_live() && !right.header().back_end.is_live();
    let of_servers = |kind| comparable(kind) && (simulated || matches!(kind, Kind::Replenish | Kind::Exhaust));
    let mut matcher = Matcher {
        options,
        compare_starts: comparable(Kind::Start),
        servers: Servers::new(options.tolerance, servers::KINDS.map(of_servers)),
        messages: Messages::new(options.tolerance, messages::KINDS.map(comparable)),
        names: BTreeMap::new(),
        tasks: Vec::new(),
        first: Vec::new(),
        waiting: 0,
    };
    let (mut left, mut right) = (Side::new(left, 0), Side::new(right, 1));
    left.learn(&mut matcher);
    right.learn(&mut matcher);
    // The log that is behind goes on.
    loop {
        let on_left = match (left.now(), right.now()) {
            (None, None) => break,
            (Some(left), Some(right)) => left <= right,
            (left, _) => left.is_some(),
        };
        if on_left {
            left.step(&mut matcher).map_err(DiffError::Left)?;
        } else {
            right.step(&mut matcher).map_err(DiffError::Right)?;
        }
        if matcher.waiting > WAITING_MAX {
            return Err(DiffError::Waiting);
        }
    }
    let not_compared = [Kind::Release, Kind::Start, Kind::Complete, Kind::Cancel];
    let not_compared = not_compared.into_iter().filter(|kind| !comparable(*kind)).map(Kind::name).collect();
    let ends = (left.end(), right.end());
    let mut diff = matcher.finish(ends.0.min(ends.1));
    (diff.left_end_ns, diff.right_end_ns, diff.not_compared) = (ends.0.as_ns(), ends.1.as_ns(), not_compared);
    Ok(diff)
}

/// Pairs the jobs of both sides, each side's coming in the order of their numbers.
struct Matcher<'a> {
    options: &'a DiffOptions,
    compare_starts: bool,
    servers: Servers,
    messages: Messages,
    names: BTreeMap<String, usize>,
    tasks: Vec<Matching>,
    first: Vec<Difference>,
    /// Jobs that are held.
    waiting: usize,
}

struct Matching {
    name: String,
    counts: Counts,
    /// Jobs that the other side has not come to yet; on one side at most.
    pending: [VecDeque<JobView>; 2],
}

impl Matcher<'_> {
    fn index(&mut self, name: &str) -> usize {
        if let Some(at) = self.names.get(name) {
            return *at;
        }
        self.names.insert(name.to_owned(), self.tasks.len());
        let pending = [VecDeque::new(), VecDeque::new()];
        self.tasks.push(Matching { name: name.to_owned(), counts: Counts::default(), pending });
        self.tasks.len() - 1
    }

    /// A job of one side has ended, after all of its task with smaller numbers.
    fn offer(&mut self, side: usize, task: usize, job: JobView) {
        while let Some(other) = self.tasks[task].pending[1 - side].front().copied() {
            if other.number > job.number {
                break;
            }
            self.tasks[task].pending[1 - side].pop_front();
            self.waiting -= 1;
            if other.number == job.number {
                let (left, right) = if side == 0 { (&job, &other) } else { (&other, &job) };
                self.compare(task, left, right);
                return;
            }
            self.only(1 - side, task, &other);
        }
        // Later reports of the other side have larger numbers than its last one.
        if self.tasks[task].pending[1 - side].is_empty() {
            let waiting_max = (WAITING_MAX / 2 / self.tasks.len()).clamp(16, TASK_WAITING_MAX);
            let pending = &mut self.tasks[task].pending[side];
            pending.push_back(job);
            if pending.len() <= waiting_max {
                self.waiting += 1;
            } else if let Some(oldest) = pending.pop_front() {
                self.only(side, task, &oldest);
            }
        } else {
            self.only(side, task, &job);
        }
    }

    fn only(&mut self, side: usize, task: usize, job: &JobView) {
        let counts = &mut self.tasks[task].counts;
        *(if side == 0 { &mut counts.only_left } else { &mut counts.only_right }) += 1;
        let at = |wanted| (side == wanted).then_some(job.release);
        let became = |wanted| (side == wanted).then_some(job.became());
        let what = if side == 0 { "only left" } else { "only right" };
        self.note(task, job.number, what, (at(0), at(1)), (became(0), became(1)));
    }

    fn compare(&mut self, task: usize, left: &JobView, right: &JobView) {
        let counts = &mut self.tasks[task].counts;
        counts.matched += 1;
        let mut found = Vec::new();
        let tolerance = self.options.tolerance.as_ns();
        // A time that lies in a window agrees with all in it: a release is told as the latest, a response as the least.
        let mut times = |what, a: Option<u64>, b: Option<u64>, (less, more): (u64, u64), counter: &mut u64| {
            if let (Some(a), Some(b)) = (a, b)
                && (a.saturating_sub(b) > tolerance.saturating_add(less)
                    || b.saturating_sub(a) > tolerance.saturating_add(more))
            {
                *counter += 1;
                found.push((what, Some(a), Some(b)));
            }
        };
        let slack = (left.slack, right.slack);
        times("release", Some(left.release), Some(right.release), slack, &mut counts.release);
        if self.compare_starts {
            times("start", left.start, right.start, (0, 0), &mut counts.start);
        }
        times("completion", left.completion(), right.completion(), (0, 0), &mut counts.completion);
        times("response", left.response(), right.response(), (right.slack, left.slack), &mut counts.response);
        if let (Some(a), Some(b)) = (left.response(), right.response()) {
            counts.response_difference_max_ns = counts.response_difference_max_ns.max(a.abs_diff(b));
        }
        if left.is_unknown() || right.is_unknown() {
            counts.unknown += 1;
        } else if left.became() != right.became() {
            counts.outcome += 1;
            found.push(("outcome", left.completion(), right.completion()));
        }
        counts.differing += u64::from(!found.is_empty());
        for (what, a, b) in found {
            self.note(task, left.number, what, (a, b), (Some(left.became()), Some(right.became())));
        }
    }

    fn note(
        &mut self,
        task: usize,
        job: u64,
        what: &'static str,
        (left_ns, right_ns): (Option<u64>, Option<u64>),
        (left, right): (Option<&'static str>, Option<&'static str>),
    ) {
        if self.first.len() < FIRST_MAX {
            let task = self.tasks[task].name.clone();
            self.first.push(Difference { task, job, what, left_ns, right_ns, left, right });
        }
    }

    fn finish(mut self, end: Time) -> Diff {
        for task in 0..self.tasks.len() {
            for side in 0..2 {
                for job in std::mem::take(&mut self.tasks[task].pending[side]) {
                    self.only(side, task, &job);
                }
            }
        }
        let messages = self.messages.finish(end, |task| self.tasks[task].name.clone());
        let mut total = Counts::default();
        let tasks: Vec<_> =
            self.tasks.into_iter().map(|task| TaskDiff { task: task.name, counts: task.counts }).collect();
        tasks.iter().for_each(|task| total.add(&task.counts));
        let servers = self.servers.finish(end);
        Diff {
            same: total.only_left + total.only_right + total.differing + total.unknown == 0
                && servers.iter().all(ServerDiff::is_same)
                && messages.iter().all(MessageDiff::is_same),
            tolerance_ns: self.options.tolerance.as_ns(),
            left_end_ns: 0,
            right_end_ns: 0,
            total,
            tasks,
            servers,
            messages,
            not_compared: Vec::new(),
            first: self.first,
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.matched += other.matched;
        self.only_left += other.only_left;
        self.only_right += other.only_right;
        self.differing += other.differing;
        self.release += other.release;
        self.start += other.start;
        self.completion += other.completion;
        self.response += other.response;
        self.outcome += other.outcome;
        self.unknown += other.unknown;
        self.response_difference_max_ns = self.response_difference_max_ns.max(other.response_difference_max_ns);
    }
}
