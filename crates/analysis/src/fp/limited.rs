//! Response times under fixed priorities where jobs have sections that nothing preempts: limited preemption, and none.
//!
//! R. Bril, J. Lukkien, W. Verhaegh: Worst-Case Response Time Analysis of Real-Time Tasks under
//! Fixed-Priority Scheduling with Deferred Preemption, RTS 42, 2009. Without preemption: R. Davis,
//! A. Burns, R. Bril, J. Lukkien: Controller Area Network (CAN) Schedulability Analysis: Refuted,
//! Revisited and Revised, RTS 35, 2007. Time is **whole nanoseconds** (discrete): a blocking
//! section has run for at least 1 ns, and a job released at the start of a section comes first. In
//! dense time F - 1 becomes F, as a supremum.
//!
//! Job q of task i in a busy window, with its last section of length F_i: it starts that section by the least s with
//!
//! ```text
//! s_i(q) = B_i + (q + 1) C_i - F_i + sum over j in hep(i) of (floor((s_i(q) + J_j) / T_j) + 1) C_j
//! R_i    = max over q of s_i(q) + F_i - q T_i + J_i,  for all q with q T_i - J_i in the longest busy window
//! B_i    = max over j less important than i of max(0, Q_j - 1)
//! ```
//!
//! The first job of the window need not have the longest response: the last section of one pushes
//! more important work into the next.
//!
//! **When it is reached.** Let all of hep(i) and i be released at 0, the first jobs as late after
//! their arrivals as J allows, the others as densely as they may. Let the longest section of a less
//! important job, if any, have started 1 ns before. Let job q of i start its last section at s.
//! Then no job of hep(i) is pending, even if released at s. So all work released up to s is done: s
//! is no less than the right side above, hence no less than the least fixed point. This holds for
//! every q, and with any further delay of the job. So a job whose s_i(q) + F_i - q T_i + J_i
//! exceeds D_i misses its deadline, or another has missed one before ([`late`]). F = 1 is
//! [`super::rta`], F = Q = C is no preemption at all.
//!
//! | paper | here |
//! |---|---|
//! | C, T, J | `c`, `t`, `j` of [`LimitedTask`], ns |
//! | F | `last`, from 1 to C |
//! | Q | `section`, the longest section, from F to C |
//! | hep(i) | the other tasks of more important or the same level: a shared level is charged as if all others came first |

use std::cmp::Ordering;

use crate::exact::compare_sum;
use crate::verdict::spend;

/// Terms (one quotient each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 100_000_000;

/// A task whose jobs have sections that nothing preempts; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitedTask {
    /// C: worst-case execution time, at least 1.
    pub c: u64,
    /// T: minimum inter-arrival time, at least 1.
    pub t: u64,
    /// J: a job is released up to this after its nominal arrival.
    pub j: u64,
    /// F: the length of the last section; 1 where the end can be preempted.
    pub last: u64,
    /// Q: the length of the longest section; 1 where all can be preempted.
    pub section: u64,
    /// Its level; 0 is the most important.
    pub level: u32,
}

/// Bounds the response time of `tasks[i]` from its nominal arrival, in ns.
///
/// `None` in these cases: the level and the more important levels are overloaded or leave no time
/// for the blocking; the bound exceeds `u64`; a section is empty or longer than its task's C;
/// [`TERMS_MAX`] is reached.
#[must_use]
pub fn response(tasks: &[LimitedTask], i: usize) -> Option<u64> {
    response_within(tasks, i, &mut { TERMS_MAX })
}

/// The same from what is left of a limit.
pub(crate) fn response_within(tasks: &[LimitedTask], i: usize, terms_left: &mut u64) -> Option<u64> {
    let this = tasks.get(i)?;
    let fits =
        |task: &LimitedTask| task.c > 0 && task.t > 0 && (1..=task.c).contains(&task.last) && task.section <= task.c;
    if !tasks.iter().all(fits) {
        return None;
    }
    let hep = || tasks.iter().enumerate().filter(|(k, task)| *k != i && task.level <= this.level).map(|(_, task)| task);
    let lower = tasks.iter().filter(|task| task.level > this.level);
    let blocking = lower.map(|task| task.section.max(task.last) - 1).max().unwrap_or(0);
    let count = tasks.len() as u64 + 1;
    // No busy window ends above the full load, nor at the full load with blocking or jitter on top.
    let most =
        if blocking > 0 || hep().chain([this]).any(|task| task.j > 0) { Ordering::Less } else { Ordering::Equal };
    if compare_sum(hep().chain([this]).map(|task| (task.c, task.t)), 1).is_some_and(|load| load > most) {
        return None;
    }
    // The longest busy window of the level.
    let mut length = blocking.checked_add(this.c)?;
    loop {
        spend(terms_left, count)?;
        let next = hep().chain([this]).try_fold(blocking, |sum, task| {
            sum.checked_add(length.checked_add(task.j)?.div_ceil(task.t).checked_mul(task.c)?)
        })?;
        if next <= length {
            break;
        }
        length = next;
    }
    let jobs = length.checked_add(this.j)?.div_ceil(this.t);
    let (mut longest, mut start) = (0, 0u64);
    for q in 0..jobs {
        let own = this.c.checked_mul(q + 1)?.checked_add(blocking)? - this.last;
        // A job starts its last section no earlier than the one before.
        start = start.max(own);
        loop {
            spend(terms_left, count)?;
            let next = hep().try_fold(own, |sum, task| {
                sum.checked_add((start.checked_add(task.j)? / task.t).checked_add(1)?.checked_mul(task.c)?)
            })?;
            if next <= start {
                break;
            }
            start = next;
        }
        let from_window = start.checked_add(this.last)?.checked_add(this.j)?;
        longest = longest.max(from_window.saturating_sub(q.checked_mul(this.t)?));
    }
    Some(longest)
}

/// A job that misses its deadline if all jobs before it are released at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// Its number, from 0 on.
    pub job: u64,
    /// From its nominal arrival to its completion.
    pub response: u64,
    /// Whether that is all, or the response is longer yet.
    pub whole: bool,
}

/// Rounds in which the response of a job that is late already is followed to its end.
const LATE_ROUNDS_MAX: u32 = 1_000;

/// The first job of `tasks[i]` that responds later than `d` where all of its level and above are
/// released at once, after `blocking` of a section.
///
/// `None` where there is none in the busy window, or past the work limit.
pub fn late(tasks: &[LimitedTask], i: usize, blocking: u64, d: u64, terms_left: &mut u64) -> Option<Late> {
    let this = tasks.get(i)?;
    let hep = || tasks.iter().enumerate().filter(|(k, task)| *k != i && task.level <= this.level).map(|(_, task)| task);
    let count = tasks.len() as u64 + 1;
    let mut start = 0u64;
    for job in 0u64.. {
        let own = this.c.checked_mul(job + 1)?.checked_add(blocking)?;
        let arrival = this.t.checked_mul(job)?;
        let response = |start: u64| Some(start.checked_add(this.last)?.checked_add(this.j)?.saturating_sub(arrival));
        start = start.max(own.checked_sub(this.last)?);
        let mut rounds = LATE_ROUNDS_MAX;
        let whole = loop {
            let late = response(start)? > d;
            if late && rounds == 0 {
                break false;
            }
            rounds -= u32::from(late);
            spend(terms_left, count)?;
            let next = hep().try_fold(own - this.last, |sum, task| {
                sum.checked_add((start.checked_add(task.j)? / task.t).checked_add(1)?.checked_mul(task.c)?)
            })?;
            if next <= start {
                break true;
            }
            start = next;
        };
        let response = response(start)?;
        if response > d {
            return Some(Late { job, response, whole });
        }
        // Whether the busy window ends before the next job.
        let next_job = arrival.checked_add(this.t)?.saturating_sub(this.j);
        let mut end = start.checked_add(this.last)?;
        while end <= next_job {
            spend(terms_left, count)?;
            let next = hep().try_fold(own, |sum, task| {
                sum.checked_add(end.checked_add(task.j)?.div_ceil(task.t).checked_mul(task.c)?)
            })?;
            if next <= end {
                return None;
            }
            end = next;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use takt_model::generate::Random;

    use super::*;
    use crate::brute::cases;
    use crate::fp::rta::{Analysis, FpTask};

    /// The longest responses where jobs arrive at random; a job in a section keeps the CPU. A job
    /// runs a section of `section` at its start, if it is long enough, and one of `last` at its
    /// end.
    fn observed(tasks: &[LimitedTask], random: &mut Random, end: u64) -> Vec<u64> {
        struct Job {
            task: usize,
            arrival: u64,
            release: u64,
            left: u64,
        }
        let mut jobs: Vec<Job> = Vec::new();
        for (task, spec) in tasks.iter().enumerate() {
            let (mut arrival, mut released) = (random.between(0, spec.t), 0);
            while arrival < end {
                released = released.max(arrival + random.between(0, spec.j));
                jobs.push(Job { task, arrival, release: released, left: spec.c });
                arrival += spec.t + random.between(0, 1) * random.between(0, 1) * random.between(0, 2);
            }
        }
        let mut worst = vec![0; tasks.len()];
        let (mut now, mut kept) = (0, None);
        while !jobs.is_empty() {
            let first = |job: &Job| (tasks[job.task].level, job.arrival, job.task);
            let next = kept.or_else(|| {
                let ready = jobs.iter().enumerate().filter(|(_, job)| job.release <= now);
                ready.min_by_key(|(_, job)| first(job)).map(|(i, _)| i)
            });
            now += 1;
            kept = None;
            let Some(i) = next else { continue };
            let job = &mut jobs[i];
            job.left -= 1;
            let spec = &tasks[job.task];
            let done = spec.c - job.left;
            let in_first = spec.section + spec.last <= spec.c && done < spec.section;
            if job.left == 0 {
                worst[job.task] = worst[job.task].max(now - job.arrival);
                jobs.swap_remove(i);
            } else if job.left < spec.last || in_first {
                kept = Some(i);
            }
        }
        worst
    }

    fn random_set(random: &mut Random) -> Vec<LimitedTask> {
        let count = random.between(1, 4);
        (0..count as u32)
            .map(|level| {
                let t = random.between(4, 24);
                let c = random.between(1, (2 * t / (count + 1)).max(1));
                let last = random.between(1, c);
                let j = random.between(0, 1) * random.between(0, t / 2);
                LimitedTask { c, t, j, last, section: random.between(1, c), level }
            })
            .collect()
    }

    #[test]
    fn no_job_exceeds_its_bound() {
        let mut random = Random::new(71);
        let (mut bounded, mut reached) = (0, 0);
        for round in 0..cases(2000) {
            let tasks = random_set(&mut random);
            let load: f64 = tasks.iter().map(|task| task.c as f64 / task.t as f64).sum();
            if load > 0.99 {
                continue;
            }
            let mut worst = vec![0; tasks.len()];
            for _ in 0..3 {
                for (worst, seen) in worst.iter_mut().zip(observed(&tasks, &mut random, 200)) {
                    *worst = seen.max(*worst);
                }
            }
            for (i, seen) in worst.into_iter().enumerate() {
                let bound = response(&tasks, i).expect("U < 1");
                assert!(seen <= bound, "round {round}: task {i} of {tasks:?}: {seen} > {bound}");
                bounded += 1;
                reached += u64::from(seen == bound);
            }
        }
        assert!(bounded > 1000 && reached * 3 > bounded, "{reached} of {bounded}");
    }

    #[test]
    fn without_sections_it_is_the_classical_analysis() {
        let mut random = Random::new(72);
        for round in 0..cases(2000) {
            let mut tasks = random_set(&mut random);
            tasks.iter_mut().for_each(|task| (task.last, task.section) = (1, 1));
            let load: f64 = tasks.iter().map(|task| task.c as f64 / task.t as f64).sum();
            if load > 0.99 {
                continue;
            }
            let classical: Vec<FpTask> = tasks
                .iter()
                .map(|task| FpTask { c: task.c, t: task.t, j: task.j, level: task.level, ..FpTask::default() })
                .collect();
            for i in 0..tasks.len() {
                let expected = Analysis::default().response(&classical, i).map(|response| response.from_arrival);
                assert_eq!(response(&tasks, i), expected, "round {round}: task {i} of {tasks:?}");
            }
        }
    }

    #[test]
    fn the_first_job_need_not_be_the_worst() {
        // Davis et al. 2007, Table 2, with messages of 1 ms and ns for units: without preemption the second job of the
        // last one responds latest.
        let ms = 1_000_000;
        let task = |c: u64, t: u64, level| LimitedTask { c, t, j: 0, last: c, section: c, level };
        let tasks = [task(ms, 5 * ms / 2, 0), task(ms, 7 * ms / 2, 1), task(ms, 7 * ms / 2, 2)];
        assert_eq!(response(&tasks, 2), Some(7 * ms / 2));
        let overload = [task(3, 4, 0), task(2, 6, 1)];
        assert_eq!(response(&overload, 1), None);
        assert_eq!(response(&[LimitedTask { last: 0, ..task(3, 4, 0) }], 0), None, "no such section");
    }
}
