use takt_model::generate::Random;

use super::*;
use crate::brute::{self, cases};
use crate::fp::rta::{self, FpTask};

#[derive(Clone, Debug)]
struct Job {
    task: usize,
    source: u64,
    arrival: u64,
    release: u64,
    /// Remaining execution, at most the WCET.
    left: u64,
    received: u64,
    done: u64,
}

/// Jobs of one task that arrive on the grid, or later, up to `end`.
fn jobs_of(random: &mut Random, index: usize, task: &LevelTask, end: u64, dense: bool) -> Vec<Job> {
    let mut source = if dense { 0 } else { random.between(0, task.t) };
    let (mut jobs, mut arrived, mut released): (Vec<Job>, u64, u64) = (Vec::new(), 0, 0);
    while source < end {
        let late = |random: &mut Random, most: u64| {
            if random.between(0, 1) == 0 { random.between(0, 1) * most } else { random.between(0, most) }
        };
        arrived = arrived.max(source + late(random, task.release_delay));
        released = released.max(arrived + late(random, task.j));
        let exec = if random.between(0, 4) == 0 { random.between(1, task.c) } else { task.c };
        jobs.push(Job { task: index, source, arrival: arrived, release: released, left: exec, received: 0, done: 0 });
        source += task.t + if random.between(0, 7) == 0 { random.between(0, 3) } else { 0 };
    }
    jobs
}

/// Runs the jobs in slots of a nanosecond: at releases and completions, and now and then besides,
/// the job of the smallest rank takes the CPU. Ties fall at random.
fn run(random: &mut Random, set: &Levels, jobs: &mut [Job]) {
    let (mut now, mut running): (u64, Option<usize>) = (0, None);
    let mut finished = true;
    while jobs.iter().any(|job| job.left > 0) {
        if finished || jobs.iter().any(|job| job.release == now) || random.between(0, 15) == 0 {
            let mut best = None;
            let mut seen = vec![false; set.tasks.len()];
            for (i, job) in jobs.iter().enumerate() {
                // Sorted within a task: only the earliest may run.
                if job.left == 0 || job.release > now || std::mem::replace(&mut seen[job.task], true) {
                    continue;
                }
                let task = &set.tasks[job.task];
                let level = set.levels[task.level as usize];
                let deadline = (job.arrival + task.d) as i64;
                let key = match level.order {
                    Order::Fifo => job.release as i64,
                    Order::Deadline => deadline + task.shift,
                    Order::Laxity => deadline - task.wcet.saturating_sub(job.received) as i64,
                    Order::Any => random.between(0, 9) as i64,
                };
                let phase = if level.preemptive || job.received == 0 { 1 } else { 0 };
                let rank = (task.level, phase, key, random.bits());
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, i));
                }
            }
            running = best.map(|(_, i)| i);
        }
        now += 1;
        finished = false;
        if let Some(job) = running.map(|i| &mut jobs[i]) {
            job.left -= 1;
            job.received += 1;
            if job.left == 0 {
                job.done = now;
                (finished, running) = (true, None);
            }
        }
    }
}

fn random_set(random: &mut Random) -> (Vec<Level>, Vec<LevelTask>) {
    let orders = [Order::Fifo, Order::Deadline, Order::Laxity, Order::Laxity, Order::Any];
    let levels: Vec<Level> = (0..2)
        .map(|_| Level { order: orders[random.between(0, 4) as usize], preemptive: random.between(0, 2) > 0 })
        .collect();
    let (count, split) = (random.between(1, 5), random.between(0, 3));
    let plain = random.between(0, 1) == 0;
    let tasks = (0..count)
        .map(|_| {
            let t = random.between(2, 16);
            let c = random.between(1, (t * 2 / count).max(1));
            let odd = |random: &mut Random, most: u64| {
                if plain || random.between(0, 2) > 0 { 0 } else { random.between(0, most) }
            };
            LevelTask {
                c,
                wcet: c,
                t,
                d: random.between(1, 2 * t),
                shift: odd(random, 12) as i64 - odd(random, 12) as i64,
                j: odd(random, 6),
                release_delay: if random.between(0, 2) == 0 { odd(random, 6) } else { 0 },
                b: 0,
                level: u32::from(random.between(0, 3) < split),
            }
        })
        .collect();
    (levels, tasks)
}

fn bounds(set: &Levels) -> Vec<Option<Response>> {
    let mut bounds = Vec::new();
    // A full CPU with wandering releases never idles: the limit ends that soon here.
    let mut analysis = Analysis { terms_left: 100_000, ..Analysis::default() };
    analysis.responses(set, &mut bounds);
    bounds
}

#[test]
fn no_order_exceeds_its_bound() {
    let mut random = Random::new(31);
    let (mut bounded, mut reached) = ([0; 4], [0; 4]);
    for round in 0..cases(4000) {
        let (levels, tasks) = random_set(&mut random);
        let overhead =
            (random.between(0, 3) == 0).then(|| Overhead { c: 1, t: random.between(4, 9), release_delay: 0, level: 0 });
        let bounds = bounds(&Levels { levels: &levels, tasks: &tasks, overheads: overhead.as_slice() });
        if bounds.iter().all(Option::is_none) {
            continue;
        }
        // A overhead is a task above all.
        let mut everything = tasks.clone();
        everything.iter_mut().for_each(|task| task.level += 1);
        everything.extend(overhead.map(|overhead| LevelTask {
            c: overhead.c,
            wcet: overhead.c,
            t: overhead.t,
            ..LevelTask::default()
        }));
        let above = [&[Level { order: Order::Fifo, preemptive: true }], levels.as_slice()].concat();
        let set = Levels { levels: &above, tasks: &everything, overheads: &[] };
        let mut worst = vec![0; tasks.len()];
        for dense in [true, false, false] {
            let mut jobs = Vec::new();
            for (i, task) in everything.iter().enumerate() {
                jobs.extend(jobs_of(&mut random, i, task, 150, dense));
            }
            run(&mut random, &set, &mut jobs);
            for job in &jobs {
                let Some(bound) = bounds.get(job.task).copied().flatten() else { continue };
                let (arrival, source) = (job.done - job.arrival, job.done - job.source);
                let say = || format!("round {round}: {job:?} {bound:?}\n{levels:?}\n{tasks:#?}");
                assert!(arrival <= bound.from_arrival, "{arrival} after the arrival, {}", say());
                assert!(source <= bound.from_source, "{source} after the source, {}", say());
                worst[job.task] = worst[job.task].max(arrival);
            }
        }
        for (i, bound) in bounds.iter().enumerate().filter_map(|(i, bound)| Some((i, (*bound)?))) {
            let order = levels[tasks[i].level as usize].order as usize;
            bounded[order] += 1;
            reached[order] += usize::from(bound.from_arrival == worst[i]);
        }
    }
    // Two schedules of three rounds reach many bounds: they are not far away.
    assert!(bounded.iter().all(|count| *count > 200), "{bounded:?}");
    assert!(
        reached.iter().zip(&bounded).all(|(reached, bounded)| reached * 4 > *bounded),
        "{reached:?} of {bounded:?}"
    );
}

/// The longest response of task `i` over all its phases, with all others released together and as
/// densely as they may. In a tie its own job is the last, or the first.
fn exhausted(set: &Levels, i: usize, end: u64, last: bool) -> u64 {
    let mut longest = 0;
    for phase in 0..set.tasks[i].t {
        let mut jobs = Vec::new();
        for (k, task) in set.tasks.iter().enumerate() {
            let mut arrival = if k == i { phase } else { 0 };
            while arrival < end {
                let key = u64::from(task.level) * 1_000_000 + 2 * arrival + u64::from((k == i) == last);
                jobs.push(brute::Job { task: k, arrival, release: arrival, c: task.c, deadline: 0, key });
                arrival += task.t;
            }
        }
        longest = longest.max(brute::responses(&jobs, 1, set.tasks.len())[i]);
    }
    longest
}

#[test]
fn first_come_first_served_reaches_its_bound() {
    let mut random = Random::new(32);
    let mut shared = 0;
    for round in 0..cases(1000) {
        let count = random.between(1, 4);
        let one = |random: &mut Random| {
            let t = [2, 3, 4, 5, 6, 8, 10, 12][random.between(0, 7) as usize];
            let c = random.between(1, (2 * t / count).max(1));
            LevelTask { c, wcet: c, t, level: random.between(0, 1) as u32, ..LevelTask::default() }
        };
        let tasks: Vec<LevelTask> = (0..count).map(|_| one(&mut random)).collect();
        let levels = [Level { order: Order::Fifo, preemptive: random.between(0, 1) == 0 }; 2];
        let set = Levels { levels: &levels, tasks: &tasks, overheads: &[] };
        let end = brute::hyperperiod(tasks.iter().map(|task| task.t));
        for (i, bound) in bounds(&set).iter().enumerate().filter_map(|(i, bound)| Some((i, (*bound)?))) {
            assert_eq!(bound.from_arrival, exhausted(&set, i, end, true), "round {round}: task {i} of {tasks:?}");
            assert_eq!(bound.from_source, bound.from_arrival);
            let first = exhausted(&set, i, end, false);
            assert!(first + 1 >= bound.from_arrival, "round {round}: task {i} of {tasks:?}: {first}");
            shared += u32::from(tasks.iter().filter(|task| task.level == tasks[i].level).count() > 1);
        }
    }
    assert!(shared > 300, "{shared}");
}

#[test]
fn distinct_levels_are_the_classical_analysis() {
    let mut random = Random::new(33);
    for round in 0..cases(3000) {
        let count = random.between(1, 5);
        let tasks: Vec<LevelTask> = (0..count)
            .map(|level| {
                let t = random.between(10, 100);
                let c = random.between(1, t * 3 / (2 * count) + 1);
                let (j, b) = (random.between(0, t), random.between(0, 9));
                LevelTask { c, wcet: c, t, j, b, level: level as u32, ..LevelTask::default() }
            })
            .collect();
        let levels = vec![Level { order: Order::Laxity, preemptive: false }; tasks.len()];
        let classical: Vec<FpTask> = tasks
            .iter()
            .map(|task| FpTask { c: task.c, t: task.t, d: 0, j: task.j, b: task.b, level: task.level })
            .collect();
        let bounds = bounds(&Levels { levels: &levels, tasks: &tasks, overheads: &[] });
        for (i, bound) in bounds.iter().enumerate().filter_map(|(i, bound)| Some((i, (*bound)?))) {
            let expected = rta::Analysis::default().response(&classical, i).expect("a bound exists");
            assert_eq!(bound.from_arrival, expected.from_arrival, "round {round}: task {i} of {tasks:?}");
        }
    }
}

#[test]
fn a_shared_level_costs_each_job_of_the_others_once() {
    let task = |c, t| LevelTask { c, wcet: c, t, ..LevelTask::default() };
    let tasks = [task(2, 10), task(3, 10), task(4, 20)];
    let level = |order| [Level { order, preemptive: true }];
    let of = |order| {
        let all = bounds(&Levels { levels: &level(order), tasks: &tasks, overheads: &[] });
        all.into_iter().map(|bound| bound.map(|bound| bound.from_arrival)).collect::<Vec<_>>()
    };
    assert_eq!(of(Order::Fifo), [Some(9); 3]);
    assert_eq!(of(Order::Any), [Some(9), Some(9), Some(9)]);
    let denser = [task(2, 5), task(3, 9), task(1, 20)];
    let fifo = bounds(&Levels { levels: &level(Order::Fifo), tasks: &denser, overheads: &[] });
    let any = bounds(&Levels { levels: &level(Order::Any), tasks: &denser, overheads: &[] });
    let pairs: Vec<(u64, u64)> =
        fifo.iter().zip(&any).map(|(a, b)| (a.unwrap().from_arrival, b.unwrap().from_arrival)).collect();
    assert_eq!(pairs, [(6, 6), (6, 8), (6, 8)]);
}
