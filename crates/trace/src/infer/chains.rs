//! Which task's jobs are released by which tasks' completions.
//!
//! A log shows moments, no causes. Three conditions together are taken for a cause:
//!
//! - Each release has a completion of its own shortly before it.
//! - The lag between the two is short in comparison with the time between releases ([`LAG_PART`]).
//! - The lag varies far less than the releases ([`VARIATION`]), so that the completions explain
//!   them.
//!
//! The last condition separates tasks with the same period. Releases on a grid of their own need no
//! explanation: an offset may put a completion before each of them. Such a pair is reported as
//! possible, and makes no chain.
//!
//! If links join, the last completion counts. Predecessors are added as long as they explain
//! releases that the others do not. A predecessor that is never the last leaves no trace.

use takt_model::{Span, TaskId};

use super::arrivals::holds_for;
use super::sample::Sample;

/// A lag is at most this part of the mean distance of releases.
const LAG_PART: u64 = 20;
/// Releases vary at least this many times as much as lags.
const VARIATION: u64 = 8;
/// Releases that vary by less than this are not explained by anything.
const VARIES_MIN: u64 = 1_000;
/// Pairs of a completion and a release that a link rests on, at least.
const JOBS_MIN: usize = 10;
/// One release in so many may lack its completion.
const MISSES_PART: usize = 20;
/// Predecessors of a task, at most.
const PREDECESSORS_MAX: usize = 8;

/// A release follows a completion.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// The task whose completions release.
    pub task: TaskId,
    /// How many releases followed right after its completions.
    pub jobs: u64,
    /// The longest of these lags.
    pub lag: Span,
    /// Share of all releases that follow right after a completion of this or another predecessor at
    /// least, at 95 % confidence.
    pub confidence: f64,
}

/// The tasks that a task may follow.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Links {
    /// The tasks that it follows.
    pub after: Vec<Link>,
    /// Tasks that it may follow: their completions come right before its releases, but these lie on
    /// a grid.
    pub maybe: Vec<TaskId>,
}

/// The links of all tasks. `same_node` says which tasks are on one node; links never make a circle.
#[must_use]
pub fn links(samples: &[Sample], same_node: impl Fn(usize, usize) -> bool) -> Vec<Links> {
    let completions: Vec<Vec<u64>> = samples.iter().map(completions).collect();
    let mut all: Vec<Links> = Vec::with_capacity(samples.len());
    for (task, sample) in samples.iter().enumerate() {
        let candidates = (0..samples.len()).filter(|other| *other != task && same_node(*other, task));
        all.push(links_of(sample, candidates.map(|other| (other, completions[other].as_slice()))));
    }
    open_circles(&mut all);
    all
}

fn completions(sample: &Sample) -> Vec<u64> {
    let mut all: Vec<u64> = sample.jobs.iter().filter_map(|job| job.complete).map(|time| time.as_ns()).collect();
    all.sort_unstable();
    all
}

/// How long after another task's completions jobs were released.
struct Candidate {
    task: usize,
    /// For each release the time since the last completion.
    lags: Vec<u64>,
    /// Longer ones are none of a follower.
    limit: u64,
}

impl Candidate {
    /// `None` where releases do not have completions of their own.
    fn of(task: usize, releases: &[u64], completions: &[u64], most: u64) -> Option<Candidate> {
        let enough = |n: usize| {
            n + n / MISSES_PART + 2 >= releases.len() && releases.len() + releases.len() / MISSES_PART + 2 >= n
        };
        if completions.len() < JOBS_MIN || !enough(completions.len()) {
            return None;
        }
        let mut lags = Vec::with_capacity(releases.len());
        let (mut next, mut misses) = (0, 0);
        for release in releases {
            let before = next;
            while completions.get(next).is_some_and(|completion| completion <= release) {
                next += 1;
            }
            if next == before {
                misses += 1;
                lags.push(u64::MAX);
            } else {
                lags.push(release - completions[next - 1]);
            }
            // Two completions at one instant release one job. Two completions between two releases:
            // the first had no follower.
            misses += next.saturating_sub(before + 1);
        }
        if misses > releases.len() / MISSES_PART + 1 {
            return None;
        }
        let limit = quantile(&lags, 5).saturating_mul(8).saturating_add(1_000).min(most);
        Some(Candidate { task, lags, limit })
    }

    fn explains(&self, at: usize) -> bool {
        self.lags[at] <= self.limit
    }
}

fn links_of<'a>(sample: &Sample, others: impl Iterator<Item = (usize, &'a [u64])>) -> Links {
    let releases: Vec<u64> = sample.jobs.iter().map(|job| job.arrival.as_ns()).collect();
    let (Some(first), Some(last)) = (releases.first(), releases.last()) else { return Links::default() };
    if releases.len() < JOBS_MIN {
        return Links::default();
    }
    let most = (last - first) / releases.len() as u64 / LAG_PART;
    let mut candidates: Vec<Candidate> =
        others.filter_map(|(task, completions)| Candidate::of(task, &releases, completions, most)).collect();
    let mut chosen: Vec<(Candidate, u64)> = Vec::new();
    let mut open: Vec<usize> = (0..releases.len()).collect();
    let enough = releases.len() - releases.len() / MISSES_PART;
    while releases.len() - open.len() < enough && chosen.len() < PREDECESSORS_MAX {
        // The task that explains most of the rest; among equals the task with the shorter lags.
        let score = |candidate: &Candidate| {
            let lags = open.iter().filter(|at| candidate.explains(**at)).map(|at| candidate.lags[*at]);
            let (n, sum) = lags.fold((0u64, 0u128), |(n, sum), lag| (n + 1, sum + u128::from(lag)));
            (n, std::cmp::Reverse(sum / u128::from(n.max(1))), std::cmp::Reverse(candidate.task))
        };
        let Some(best) = (0..candidates.len()).max_by_key(|i| score(&candidates[*i])) else { break };
        let best = candidates.swap_remove(best);
        let before = open.len();
        open.retain(|at| !best.explains(*at));
        // A task that explains a few by chance is no predecessor.
        if (before - open.len()) * MISSES_PART < releases.len() {
            break;
        }
        chosen.push((best, (before - open.len()) as u64));
    }
    if releases.len() - open.len() < enough {
        return Links::default();
    }
    let lags: Vec<u64> = (0..releases.len())
        .filter_map(|at| chosen.iter().map(|(by, _)| by.lags[at]).min())
        .filter(|lag| *lag <= most)
        .collect();
    let distances: Vec<u64> = releases.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let varies = spread(&distances);
    if varies < VARIES_MIN.max(spread(&lags).saturating_mul(VARIATION)) {
        // Nothing to explain: a grid that begins where the others' work ends.
        let maybe = chosen.iter().filter(|(by, _)| by.limit <= 100_000);
        return Links { after: Vec::new(), maybe: maybe.map(|(by, _)| TaskId(by.task as u32)).collect() };
    }
    let confidence = holds_for(releases.len() as u64, open.len() as u64);
    let mut after: Vec<Link> = chosen
        .iter()
        .map(|(by, jobs)| {
            let lag = (0..releases.len()).filter(|at| by.explains(*at)).map(|at| by.lags[at]).max().unwrap_or(0);
            Link { task: TaskId(by.task as u32), jobs: *jobs, lag: Span::from_ns(lag), confidence }
        })
        .collect();
    after.sort_by_key(|link| link.task);
    Links { after, maybe: Vec::new() }
}

fn quantile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    let at = values.len().saturating_sub(1) * percent / 100;
    *sorted.select_nth_unstable(at).1
}

/// From the 5th to the 95th percentile.
fn spread(values: &[u64]) -> u64 {
    if values.is_empty() { 0 } else { quantile(values, 95) - quantile(values, 5) }
}

/// Takes the weakest link out of each circle.
fn open_circles(all: &mut [Links]) {
    while let Some(circle) = circle(all) {
        let weakest = circle.iter().copied().min_by_key(|(task, place)| all[*task].after[*place].jobs);
        let Some((task, place)) = weakest else { return };
        let link = all[task].after.remove(place);
        all[task].maybe.push(link.task);
    }
}

/// The links of one circle, if there is any: each as a task and the place in its list.
fn circle(all: &[Links]) -> Option<Vec<(usize, usize)>> {
    // 0: not seen, 1: on the way, 2: done.
    let mut state = vec![0u8; all.len()];
    for start in 0..all.len() {
        let mut path: Vec<(usize, usize)> = Vec::new();
        if state[start] == 0 {
            state[start] = 1;
            path.push((start, 0));
        }
        while let Some((task, place)) = path.last_mut() {
            match all[*task].after.get(*place).map(|link| link.task.index()) {
                None => {
                    state[*task] = 2;
                    path.pop();
                    if let Some((_, place)) = path.last_mut() {
                        *place += 1;
                    }
                }
                Some(next) if state[next] == 1 => {
                    let from = path.iter().position(|(task, _)| *task == next)?;
                    return Some(path.split_off(from));
                }
                Some(next) if state[next] == 0 => {
                    state[next] = 1;
                    path.push((next, 0));
                }
                Some(_) => *place += 1,
            }
        }
    }
    None
}
