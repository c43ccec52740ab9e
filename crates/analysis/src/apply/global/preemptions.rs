//! The number of releases that can preempt a job, for all tasks of a node at once. It is the sum of
//! floor((y - x_j) / T_j) + 1 over the tasks j with y >= x_j.
//!
//! Tasks with the same x and T, and jobs with the same y, are counted once. Few pairs are left,
//! since periods and deadlines repeat in large systems. Above [`PAIRS_MAX`] pairs the sum of the
//! unrounded quotients is the bound: N + y sum(1 / T_j) - sum(x_j / T_j), from sums along the order
//! of x. It is at most 1 too large per task.

/// Limit on pairs of different tasks and jobs: above it, sums bound the quotients.
pub(super) const PAIRS_MAX: usize = 50_000_000;

/// 1 / T in 2^-48, rounded up.
const RATE_BITS: u32 = 48;

/// A task: its first release hits jobs that reach `from`, another one each `t` further. In ns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PreemptingTask {
    /// It hits jobs with no smaller key.
    pub(super) key: i128,
    pub(super) from: i128,
    pub(super) t: u64,
}

/// A job that reaches `until`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Job {
    pub(super) key: i128,
    pub(super) until: i128,
}

impl PreemptingTask {
    /// How often it hits; `None` where that does not fit.
    pub(super) fn times(&self, job: &Job) -> Option<u64> {
        match job.until - self.from {
            _ if self.key > job.key => Some(0),
            room if room < 0 => Some(0),
            room => (u64::try_from(room).ok()? / self.t).checked_add(1),
        }
    }
}

/// For each job, how often it can be hit, or more than that where the pairs are more than `pairs_max`.
pub(super) fn count(hits: &[PreemptingTask], jobs: &[Job], pairs_max: usize) -> Option<Vec<u64>> {
    let mut sorted = hits.to_vec();
    sorted.sort_unstable();
    let mut groups: Vec<(PreemptingTask, u64)> = Vec::new();
    for hit in sorted {
        match groups.last_mut() {
            Some((last, count)) if *last == hit => *count += 1,
            _ => groups.push((hit, 1)),
        }
    }
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_unstable_by_key(|j| jobs[*j]);
    let different = 1 + order.windows(2).filter(|pair| jobs[pair[0]] != jobs[pair[1]]).count();
    let exact = groups.len().checked_mul(different).is_some_and(|pairs| pairs <= pairs_max);
    let mut counts = vec![0; jobs.len()];
    // The groups that hit, and of these: their number, and the sums of 1 / T and from / T.
    let (mut hitting, mut number, mut rate, mut start, mut latest) = (0, 0i128, 0i128, 0i128, i128::MIN);
    let mut last: Option<(Job, u64)> = None;
    for j in order {
        let job = jobs[j];
        if let Some((before, count)) = last
            && before == job
        {
            counts[j] = count;
            continue;
        }
        while let Some((hit, count)) = groups.get(hitting).filter(|(hit, _)| hit.key <= job.key) {
            let each = i128::from(*count).checked_mul((1 << RATE_BITS) / i128::from(hit.t) + 1)?;
            number += i128::from(*count);
            rate = rate.checked_add(each)?;
            start = start.checked_add(hit.from.checked_mul(each)?)?;
            latest = latest.max(hit.from);
            hitting += 1;
        }
        counts[j] = if exact {
            let each = |(hit, count): &(PreemptingTask, u64)| hit.times(&job)?.checked_mul(*count);
            groups[..hitting].iter().try_fold(0u64, |sum, group| sum.checked_add(each(group)?))?
        } else if hitting == 0 {
            0
        } else {
            // No room is negative, so that rates rounded up add to the sum.
            let rooms = job.until.max(latest).checked_mul(rate)?.checked_sub(start)?;
            u64::try_from(number + (rooms >> RATE_BITS)).ok()?
        };
        last = Some((job, counts[j]));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use takt_model::generate::Random;

    use super::*;

    #[test]
    fn groups_are_exact_and_sums_bound_them() {
        let mut random = Random::new(5);
        for case in 0..500 {
            let by_level = random.between(0, 1) == 0;
            let spread = [3, 1000][random.between(0, 1) as usize];
            let n = random.between(1, 30);
            let mut one = |range: u64| i128::from(random.between(0, range));
            let hits: Vec<PreemptingTask> = (0..n)
                .map(|_| {
                    let (from, t) = (one(spread) - 5, one(spread) as u64 + 1);
                    PreemptingTask { key: if by_level { one(4) } else { from }, from, t }
                })
                .collect();
            let jobs: Vec<Job> = (0..n)
                .map(|_| {
                    let until = one(spread);
                    Job { key: if by_level { one(4) - 1 } else { until }, until }
                })
                .collect();
            let plain = |job: &Job| hits.iter().map(|hit| hit.times(job).unwrap()).sum::<u64>();
            let wanted: Vec<u64> = jobs.iter().map(plain).collect();
            assert_eq!(count(&hits, &jobs, PAIRS_MAX), Some(wanted.clone()), "case {case}: {hits:?} {jobs:?}");
            let bounds = count(&hits, &jobs, 0).unwrap();
            for ((bound, wanted), job) in bounds.iter().zip(&wanted).zip(&jobs) {
                assert!(bound >= wanted, "case {case}: {hits:?} {job:?}");
                let all_begun = hits.iter().all(|hit| hit.from <= job.until || hit.key > job.key);
                assert!(!all_begun || *bound <= wanted + n, "case {case}: {bound} for {wanted}: {hits:?} {job:?}");
            }
        }
    }

    #[test]
    fn a_hundred_thousand_different_tasks_take_no_time() {
        let hit =
            |i: i128| PreemptingTask { key: 1_000_000_000 - i, from: 1_000_000_000 - i, t: 1_000_000_000 + i as u64 };
        let hits: Vec<PreemptingTask> = (0..100_000).map(hit).collect();
        let jobs: Vec<Job> = hits.iter().map(|hit| Job { key: hit.key + 1, until: hit.from + 1 }).collect();
        let counts = count(&hits, &jobs, PAIRS_MAX).unwrap();
        // Each release hits the jobs in reach once; the unrounded quotients add up to 5 at most.
        let wrong =
            counts.iter().zip((1..=100_000u64).rev()).find(|(count, exact)| !(*exact..=exact + 6).contains(count));
        assert_eq!(wrong, None);
    }
}
