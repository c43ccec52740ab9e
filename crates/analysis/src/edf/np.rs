//! `np-edf`: EDF on one CPU where a job, once started, runs to its end.
//!
//! K. Jeffay, D. Stanat, C. Martel: On Non-Preemptive Scheduling of Periodic and Sporadic Tasks,
//! RTSS 1991, Theorem 4.1 (D = T); for any deadlines L. George, N. Rivierre, M. Spuri: Preemptive
//! and Non-Preemptive Real-Time Uni-Processor Scheduling, INRIA RR-2966, 1996, Theorem 7. Sporadic
//! tasks are schedulable if and only if U <= 1 and for all t
//!
//! h(t) + max { C_j - 1 : D_j > t } <= t
//!
//! with h as in [`super::qpa`]. Time is whole nanoseconds: a job that blocks has started at least one before the others
//! arrive. (In dense time it is C_j, the supremum.)
//!
//! Necessary, too: let j start 1 ns before all tasks with D <= t arrive together. The deadline of j
//! lies at or after t, and up to t the CPU has h(t) + C_j - 1 to do. This pattern needs arrivals at
//! any distance, so a no is a proof for sporadic tasks, not for fixed offsets.
//!
//! Between two deadlines D_j the blocking is constant, so there h(t) is searched as in QPA.

use super::qpa::{Demand, EdfTask, TERMS_MAX, Tick, decided_by_load, horizon, scan};
use crate::verdict::stopped;

/// Work that keeps the CPU once it has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocker {
    /// From its arrival to its deadline: it blocks deadlines that are closer.
    pub d: u64,
    /// Most of its work that can be left: C - 1, or C if the costs of the node take CPU time
    /// besides jobs.
    pub rest: u64,
}

/// Whether EDF without preemption keeps all deadlines of `tasks`, which `blockers` hold up (the
/// same tasks, most often).
pub fn analyse(tasks: &[EdfTask], blockers: &[Blocker], tick: Option<Tick>) -> Demand {
    analyse_within(tasks, blockers, tick, &mut { TERMS_MAX })
}

/// The same from what is left of a limit.
pub(crate) fn analyse_within(
    tasks: &[EdfTask],
    blockers: &[Blocker],
    tick: Option<Tick>,
    terms_left: &mut u64,
) -> Demand {
    if let Some(decided) = decided_by_load(tasks, tick) {
        return decided;
    }
    let horizon = match horizon(tasks, tick, terms_left) {
        Ok(horizon) => horizon,
        Err(stop) => return Demand::Undecided(stop),
    };
    let mut by_deadline: Vec<Blocker> = blockers.to_vec();
    by_deadline.sort_unstable_by_key(|blocker| blocker.d);
    let longest = by_deadline.last().map_or(0, |blocker| blocker.d);
    let horizon = horizon.max(longest);
    // From the largest t down: first where nothing blocks.
    let (mut until, mut rest) = (horizon.saturating_add(1), 0);
    loop {
        let from = by_deadline.last().map_or(0, |blocker| blocker.d);
        match scan(tasks, tick, rest, from, until, terms_left) {
            None => return Demand::Undecided(stopped(*terms_left)),
            Some(Some((t, demand))) => return Demand::Exceeded { t, demand },
            Some(None) => {}
        }
        let Some(blocker) = by_deadline.pop() else { return Demand::Met { horizon } };
        (until, rest) = (blocker.d, rest.max(blocker.rest));
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use takt_model::generate::Random;

    use super::*;
    use crate::brute::cases;
    use crate::exact::compare_sum;
    use crate::verdict::Answer;

    fn blockers(tasks: &[EdfTask]) -> Vec<Blocker> {
        tasks.iter().map(|task| Blocker { d: task.d, rest: task.c - 1 }).collect()
    }

    fn verdict(tasks: &[EdfTask]) -> Answer {
        analyse(tasks, &blockers(tasks), None).answer()
    }

    /// Whether a deadline is missed where each task arrives at its offset and then every period.
    fn misses(tasks: &[EdfTask], offsets: &[u64], end: u64) -> bool {
        let mut jobs: Vec<(u64, u64, u64)> = Vec::new();
        for (task, offset) in tasks.iter().zip(offsets) {
            let arrivals = (*offset..end).step_by(task.t as usize);
            jobs.extend(arrivals.map(|arrival| (arrival, arrival + task.d, task.c)));
        }
        let mut now = 0;
        while !jobs.is_empty() {
            let ready = jobs.iter().enumerate().filter(|(_, job)| job.0 <= now).min_by_key(|(_, job)| (job.1, job.0));
            match ready.map(|(i, _)| i) {
                None => now += 1,
                Some(i) => {
                    let (_, deadline, c) = jobs.swap_remove(i);
                    now += c;
                    if now > deadline {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Every offset of every task: Jeffay et al. show that a set that can miss does so for some offsets.
    fn can_miss(tasks: &[EdfTask], end: u64) -> bool {
        let mut offsets = vec![0; tasks.len()];
        loop {
            if misses(tasks, &offsets, end) {
                return true;
            }
            let Some(i) = (0..tasks.len()).find(|i| offsets[*i] + 1 < tasks[*i].t) else { return false };
            offsets[i] += 1;
            offsets[..i].fill(0);
        }
    }

    #[test]
    fn a_long_job_blocks() {
        let task = |c, d, t| EdfTask { c, d, t, ..EdfTask::default() };
        // The long job may have started: its other 29 and the 5 that wait.
        assert_eq!(verdict(&[task(5, 34, 50), task(30, 100, 100)]), Answer::Yes);
        let tight = [task(5, 33, 50), task(30, 100, 100)];
        assert_eq!(analyse(&tight, &blockers(&tight), None), Demand::Exceeded { t: 33, demand: 34 });
        assert_eq!(verdict(&[task(3, 4, 4), task(2, 6, 6)]), Answer::No);
        assert_eq!(verdict(&[]), Answer::Yes);
    }

    #[test]
    fn the_verdict_is_that_of_all_offsets() {
        let mut random = Random::new(51);
        let mut seen = [0; 2];
        for round in 0..cases(800) {
            let count = random.between(1, 3);
            let one = |_| {
                let t = [3, 4, 6, 8, 12][random.between(0, 4) as usize];
                let c = random.between(1, (2 * t / (count + 1)).max(1));
                EdfTask { c, t, d: random.between(c, 2 * t), ..EdfTask::default() }
            };
            let tasks: Vec<EdfTask> = (0..count).map(one).collect();
            if compare_sum(tasks.iter().map(|task| (task.c, task.t)), 1) == Some(Ordering::Greater) {
                assert_eq!(verdict(&tasks), Answer::No);
                continue;
            }
            let missed = can_miss(&tasks, 60);
            let expected = if missed { Answer::No } else { Answer::Yes };
            assert_eq!(verdict(&tasks), expected, "round {round}: {tasks:?}");
            seen[usize::from(missed)] += 1;
        }
        assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    }
}
