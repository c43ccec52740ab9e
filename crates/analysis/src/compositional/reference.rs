//! A slow, obvious local scheduler in unit slots, which runs only in the slots that a server gives.

use crate::brute::Job;

/// Whether a job misses a deadline that lies within the pattern. In each slot that is given, the
/// released, unfinished job with the smallest (key, release, task) runs, of each task only the
/// earliest. Jobs must be sorted by release within a task.
pub(crate) fn misses(given: &[bool], jobs: &[Job], tasks: usize) -> bool {
    let mut left: Vec<u64> = jobs.iter().map(|job| job.c).collect();
    for (now, given) in given.iter().enumerate() {
        let now = now as u64;
        if jobs.iter().zip(&left).any(|(job, left)| *left > 0 && job.deadline <= now) {
            return true;
        }
        if !given {
            continue;
        }
        let mut heads: Vec<Option<usize>> = vec![None; tasks];
        for (i, job) in jobs.iter().enumerate() {
            if left[i] > 0 && job.release <= now && heads[job.task].is_none() {
                heads[job.task] = Some(i);
            }
        }
        let runs = heads.into_iter().flatten().min_by_key(|i| (jobs[*i].key, jobs[*i].release, jobs[*i].task));
        if let Some(i) = runs {
            left[i] -= 1;
        }
    }
    jobs.iter().zip(&left).any(|(job, left)| *left > 0 && job.deadline <= given.len() as u64)
}

/// All ways to give `budget` of `period` slots.
pub(crate) fn ways(period: u64, budget: u64) -> Vec<Vec<bool>> {
    (0u32..1 << period)
        .filter(|mask| u64::from(mask.count_ones()) == budget)
        .map(|mask| (0..period).map(|slot| mask >> slot & 1 == 1).collect())
        .collect()
}

/// The worst pattern of a periodic server. It begins when the server has just given the budget of
/// its first period as early as possible. Every further budget comes as late as possible.
pub(crate) fn worst(period: u64, budget: u64, length: usize) -> Vec<bool> {
    (0..length as u64).map(|slot| slot + budget >= period && (slot + budget) % period >= period - budget).collect()
}
