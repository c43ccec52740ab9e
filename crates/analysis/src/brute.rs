//! A slow, obvious scheduler in unit slots, to hold the tests against.

use takt_model::Span;
use takt_model::generate::{Buffer, Drawn, Generator, Random, Spec};

/// How many random sets a test looks at; TAKT_CASES overrides.
pub(crate) fn cases(default: u64) -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Ten tasks with periods from 10 ms to 1 s, the most urgent first. Deadlines take up at least the
/// given part of C to T.
pub(crate) fn realistic(number: u64, utilization: f64, deadline: f64) -> Vec<Drawn> {
    let spec = Spec { deadlines: (deadline, 1.0), grain: Span::from_ns(1), ..Spec::new(10, utilization) };
    let mut set = Buffer::default();
    Generator::new(&spec).unwrap().set(1, number, &mut set).unwrap();
    set.tasks.sort_by_key(|task| (task.d, task.t));
    set.tasks
}

/// Small sets: 1 to 4 tasks of a C and a T up to 12.
pub(crate) fn small<T>(random: &mut Random, task: impl Fn(u64, u64, &mut Random) -> T) -> Vec<T> {
    let periods: [u64; 8] = [2, 3, 4, 5, 6, 8, 10, 12];
    let count = random.between(1, 4);
    let one = |_| {
        let t = periods[random.between(0, 7) as usize];
        let c = random.between(1, t.div_ceil(2));
        task(c, t, random)
    };
    (0..count).map(one).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) task: usize,
    pub(crate) arrival: u64,
    pub(crate) release: u64,
    pub(crate) c: u64,
    pub(crate) deadline: u64,
    /// The smaller runs first: the level under fixed priorities, the deadline under EDF.
    pub(crate) key: u64,
}

/// When each job completes on `cpus` CPUs: in each unit slot the released, unfinished jobs with the smallest
/// (key, release, task) run, of each task only the earliest. Jobs must be sorted by release within a task.
pub(crate) fn completions(jobs: &[Job], cpus: usize, tasks: usize) -> Vec<u64> {
    let mut left: Vec<u64> = jobs.iter().map(|job| job.c).collect();
    let mut done = vec![0; jobs.len()];
    let mut pending = jobs.len();
    let mut now = 0;
    while pending > 0 {
        let mut heads: Vec<Option<usize>> = vec![None; tasks];
        for (i, job) in jobs.iter().enumerate() {
            if left[i] > 0 && job.release <= now && heads[job.task].is_none() {
                heads[job.task] = Some(i);
            }
        }
        let mut ready: Vec<usize> = heads.into_iter().flatten().collect();
        ready.sort_by_key(|i| (jobs[*i].key, jobs[*i].release, jobs[*i].task));
        for i in ready.into_iter().take(cpus) {
            left[i] -= 1;
            if left[i] == 0 {
                done[i] = now + 1;
                pending -= 1;
            }
        }
        now += 1;
    }
    done
}

/// Periodic arrivals of one task: (c, t, d, offset, jitter drawn per job up to this).
pub(crate) struct Source {
    pub(crate) c: u64,
    pub(crate) t: u64,
    pub(crate) d: u64,
    pub(crate) offset: u64,
    pub(crate) j: u64,
    /// `None`: EDF.
    pub(crate) level: Option<u32>,
}

/// All jobs that arrive before `end`.
pub(crate) fn jobs(sources: &[Source], end: u64, random: &mut Random) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (task, source) in sources.iter().enumerate() {
        let (mut arrival, mut last) = (source.offset, 0);
        while arrival < end {
            let release = last.max(arrival + random.between(0, source.j));
            last = release;
            let deadline = arrival + source.d;
            let key = source.level.map_or(deadline, u64::from);
            jobs.push(Job { task, arrival, release, c: source.c, deadline, key });
            arrival += source.t;
        }
    }
    jobs
}

/// The longest response (from the nominal arrival) of each task.
pub(crate) fn responses(jobs: &[Job], cpus: usize, tasks: usize) -> Vec<u64> {
    let mut worst = vec![0; tasks];
    for (job, done) in jobs.iter().zip(completions(jobs, cpus, tasks)) {
        worst[job.task] = worst[job.task].max(done - job.arrival);
    }
    worst
}

/// The least common multiple of small periods.
pub(crate) fn hyperperiod(periods: impl Iterator<Item = u64>) -> u64 {
    periods.fold(1, |lcm, t| lcm / takt_model::gcd(lcm, t) * t)
}
