//! `offsets`: strictly periodic tasks with their offsets on one CPU, exactly, by their schedule.
//!
//! Jobs arrive at offset + k T without jitter and run for their WCET; the schedule is built from 0 on until it repeats.
//!
//! - **It is the worst case.** On one CPU with preemption, let a job's place in the order be fixed
//!   at its arrival (levels first come first served or by deadline). Then no job completes later if
//!   some execute for less: R. Ha, J. W. S. Liu: Validating Timing Constraints in Multiprocessor
//!   and Distributed Real-Time Systems, ICDCS 1994.
//! - **It repeats.** From the largest offset O on arrivals repeat every H = lcm T. If what is left
//!   of each task's jobs is the same at O + k H and at O + (k + 1) H, so is all that follows. (J.
//!   Y.-T. Leung, M. Merrill: A Note on Preemptive Scheduling of Periodic, Real-Time Tasks, IPL
//!   11(3), 1980, for D <= T: the first two such instants suffice.)
//!
//! **Sections that nothing preempts.** A job inside a section keeps the CPU up to the section's
//! end. A job released at the beginning of a section goes first. Then a job that executes for less
//! can delay others. So the schedule can prove a miss only.
//!
//! Exact without sections: the responses are reached, and a miss is one that happens. Ties as
//! everywhere in takt: arrival, then the order of tasks.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use crate::exact::compare_sum;

/// Jobs that the schedule may hold before the test gives up.
pub const JOBS_MAX: u64 = 200_000;

/// A task; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffsetTask<'a> {
    /// C, at least 1.
    pub c: u64,
    /// T, at least 1.
    pub t: u64,
    /// O: the first arrival.
    pub o: u64,
    /// Its level; 0 is the most important.
    pub level: u32,
    /// Added to a job's arrival it makes the key by which jobs of the level go: the (shifted)
    /// deadline, or 0 first come, first served.
    pub key: i64,
    /// Its sections without preemption: first and last execution time of a job.
    pub sections: &'a [(u64, u64)],
}

/// The result of following the schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// It repeats.
    Repeats {
        /// The longest response of each task, and the number of its first job that has it.
        responses: Vec<(u64, u64)>,
        /// From when on it repeats, and after how long.
        cycle: (u64, u64),
    },
    /// It never repeats (U > 1), holds more than [`JOBS_MAX`] jobs before it does, or times exceed 64 bits.
    TooLong,
}

/// A pending job: level, key, arrival, task.
type Rank = (u32, i128, u64, usize);

/// Builds the schedule.
pub fn schedule(tasks: &[OffsetTask]) -> Schedule {
    build(tasks).unwrap_or(Schedule::TooLong)
}

fn build(tasks: &[OffsetTask]) -> Option<Schedule> {
    if compare_sum(tasks.iter().map(|task| (task.c, task.t)), 1).is_none_or(Ordering::is_gt) {
        return None;
    }
    let period = tasks.iter().try_fold(1u64, |lcm, task| lcm.checked_mul(task.t / takt_model::gcd(lcm, task.t)))?;
    let last = tasks.iter().map(|task| task.o).max().unwrap_or(0);
    let mut jobs_left = JOBS_MAX;
    let mut worst = vec![(0, 0); tasks.len()];
    // Arrivals to come; jobs of each task that are not done, by arrival, and what is left of the first.
    let mut arrivals: BinaryHeap<Reverse<(u64, usize)>> =
        tasks.iter().enumerate().map(|(i, task)| Reverse((task.o, i))).collect();
    let mut open: Vec<VecDeque<u64>> = vec![VecDeque::new(); tasks.len()];
    let mut left: Vec<u64> = vec![0; tasks.len()];
    let mut ready: BTreeSet<Rank> = BTreeSet::new();
    let rank = |task: usize, arrival: u64| {
        (tasks[task].level, i128::from(arrival) + i128::from(tasks[task].key), arrival, task)
    };
    // The job that ran last, if it is not done.
    let mut running: Option<Rank> = None;
    let mut now = 0u64;
    let mut boundary = last;
    let mut before: Option<Vec<(usize, u64)>> = None;
    loop {
        // Work left at a boundary, before the arrivals there.
        if now == boundary {
            let state: Vec<(usize, u64)> = open.iter().zip(&left).map(|(open, left)| (open.len(), *left)).collect();
            if before.as_ref() == Some(&state) {
                return Some(Schedule::Repeats { responses: worst, cycle: (boundary - period, period) });
            }
            before = Some(state);
            boundary = boundary.checked_add(period)?;
        }
        while let Some(Reverse((arrival, task))) = arrivals.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            arrivals.pop();
            jobs_left = jobs_left.checked_sub(1)?;
            arrivals.push(Reverse((arrival.checked_add(tasks[task].t)?, task)));
            if open[task].is_empty() {
                left[task] = tasks[task].c;
                ready.insert(rank(task, arrival));
            }
            open[task].push_back(arrival);
        }
        let next = arrivals.peek().map_or(boundary, |Reverse((at, _))| (*at).min(boundary));
        // How much is left of the section in which a job is.
        let inside = |(_, _, _, task): &Rank| {
            let done = tasks[*task].c - left[*task];
            tasks[*task].sections.iter().find(|(from, to)| *from < done && done < *to).map(|(_, to)| to - done)
        };
        let section = running.and_then(|job| Some((job, inside(&job)?)));
        let Some(job) = section.map(|(job, _)| job).or_else(|| ready.first().copied()) else {
            now = next;
            continue;
        };
        let (_, _, arrival, task) = job;
        let end = now.checked_add(left[task])?;
        let next = section.map_or(next, |(_, rest)| next.min(now.saturating_add(rest)));
        if end > next {
            left[task] -= next - now;
            (now, running) = (next, Some(job));
            continue;
        }
        (now, running) = (end, None);
        ready.remove(&job);
        open[task].pop_front();
        if end - arrival > worst[task].0 {
            worst[task] = (end - arrival, (arrival - tasks[task].o) / tasks[task].t);
        }
        left[task] = 0;
        if let Some(arrival) = open[task].front().copied() {
            left[task] = tasks[task].c;
            ready.insert(rank(task, arrival));
        }
    }
}

#[cfg(test)]
mod tests {
    use takt_model::generate::Random;

    use super::*;
    use crate::brute::{self, Source, cases};

    #[test]
    fn offsets_save_what_a_synchronous_release_loses() {
        let task = |c, t, o, level| OffsetTask { c, t, o, level, ..OffsetTask::default() };
        let responses = |tasks: &[OffsetTask]| match schedule(tasks) {
            Schedule::Repeats { responses, cycle } => (responses, cycle),
            Schedule::TooLong => panic!("{tasks:?}"),
        };
        assert_eq!(responses(&[task(2, 4, 0, 0), task(2, 4, 2, 1)]), (vec![(2, 0), (2, 0)], (2, 4)));
        assert_eq!(responses(&[task(2, 4, 0, 0), task(2, 4, 0, 1)]).0, [(2, 0), (4, 0)]);
        // The second job of the second is the first to meet the first.
        assert_eq!(responses(&[task(1, 6, 4, 0), task(2, 3, 0, 1)]).0, [(1, 0), (3, 1)]);
        assert_eq!(responses(&[]), (vec![], (0, 1)));
        assert_eq!(schedule(&[task(3, 4, 0, 0), task(3, 4, 0, 1)]), Schedule::TooLong);
    }

    #[test]
    fn a_section_keeps_the_cpu_once_it_has_begun() {
        let low = |sections| OffsetTask { c: 4, t: 10, o: 0, level: 1, sections, ..OffsetTask::default() };
        let worst = |o, sections| {
            let high = OffsetTask { c: 1, t: 10, o, ..OffsetTask::default() };
            match schedule(&[high, low(sections)]) {
                Schedule::Repeats { responses, .. } => [responses[0].0, responses[1].0],
                Schedule::TooLong => panic!("it repeats"),
            }
        };
        assert_eq!(worst(2, &[]), [1, 5]);
        assert_eq!(worst(2, &[(1, 4)]), [3, 4]);
        assert_eq!(worst(2, &[(1, 3)]), [2, 5]);
        // Released just as the section would begin.
        assert_eq!(worst(2, &[(2, 4)]), [1, 5]);
        assert_eq!(worst(0, &[(0, 4)]), [1, 5]);
    }

    #[test]
    fn it_is_the_schedule_in_slots() {
        let mut random = Random::new(61);
        let mut compared = 0;
        for round in 0..cases(2000) {
            let edf = random.between(0, 1) == 0;
            let count = random.between(1, 4);
            let sources: Vec<Source> = (0..count)
                .map(|level| {
                    let t = [2, 3, 4, 6, 8, 12][random.between(0, 5) as usize];
                    let c = random.between(1, (2 * t / (count + 1)).max(1));
                    let (d, offset) = (random.between(1, 2 * t), random.between(0, 15));
                    Source { c, t, d, offset, j: 0, level: (!edf).then_some(level as u32) }
                })
                .collect();
            let tasks: Vec<OffsetTask> = sources
                .iter()
                .map(|source| OffsetTask {
                    c: source.c,
                    t: source.t,
                    o: source.offset,
                    level: source.level.unwrap_or(0),
                    key: if edf { source.d as i64 } else { 0 },
                    sections: &[],
                })
                .collect();
            let load: u64 = tasks.iter().map(|task| 24 / task.t * task.c).sum();
            let found = schedule(&tasks);
            assert_eq!(found == Schedule::TooLong, load > 24, "round {round}: {tasks:?}");
            let Schedule::Repeats { responses, .. } = found else { continue };
            let jobs = brute::jobs(&sources, 15 + 6 * 24, &mut random);
            let expected = brute::responses(&jobs, 1, tasks.len());
            let responses: Vec<u64> = responses.iter().map(|(response, _)| *response).collect();
            assert_eq!(responses, expected, "round {round}: {tasks:?}");
            compared += 1;
        }
        assert!(compared > 500, "{compared}");
    }
}
