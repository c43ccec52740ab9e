use takt_model::generate::Random;

use super::*;
use crate::brute::{self, Source};

fn task(c: u64, d: u64, t: u64) -> EdfTask {
    EdfTask { c, d, t, ..EdfTask::default() }
}

/// Small sets with deadlines up to twice the period.
fn small(random: &mut Random) -> Vec<EdfTask> {
    brute::small(random, |c, t, random| {
        let longest = if random.between(0, 2) == 0 { 2 * t } else { t };
        task(c, random.between(c, longest), t)
    })
}

fn source(task: &EdfTask) -> Source {
    Source { c: task.c, t: task.t, d: task.d, offset: 0, j: 0, level: None }
}

fn load(tasks: &[EdfTask]) -> Option<Ordering> {
    compare_sum(tasks.iter().map(|task| (task.c, task.t)), 1)
}

fn missed(jobs: &[brute::Job], tasks: usize) -> bool {
    jobs.iter().zip(brute::completions(jobs, 1, tasks)).any(|(job, done)| done > job.deadline)
}

#[test]
fn the_verdict_is_the_brute_force_one() {
    let mut random = Random::new(11);
    let mut seen = [0; 3];
    for round in 0..4000 {
        let tasks = small(&mut random);
        let order = load(&tasks);
        // Past an overload everything misses in the end; two hyperperiods and the longest deadline show the rest.
        let end = 2 * brute::hyperperiod(tasks.iter().map(|task| task.t)) + 24;
        let sources: Vec<Source> = tasks.iter().map(source).collect();
        let feasible =
            order != Some(Ordering::Greater) && !missed(&brute::jobs(&sources, end, &mut random), tasks.len());
        let expected = if feasible { Answer::Yes } else { Answer::No };
        assert_eq!(analyse(&tasks, None).answer(), expected, "round {round}: {tasks:?}");
        assert_eq!(schedulable(&tasks), expected, "round {round}: {tasks:?}");
        seen[if order == Some(Ordering::Equal) { 2 } else { usize::from(feasible) }] += 1;
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
}

#[test]
fn proofs_with_jitter_bursts_and_ticks_hold_in_simulation() {
    let mut random = Random::new(12);
    let mut proven = 0;
    for round in 0..4000 {
        let tasks = small(&mut random);
        let end = 3 * brute::hyperperiod(tasks.iter().map(|task| task.t));
        let mut charged = tasks.clone();
        let mut sources: Vec<Source> = tasks.iter().map(source).collect();
        let mut chained = vec![false; tasks.len()];
        for i in 0..tasks.len() {
            sources[i].offset = random.between(0, tasks[i].t);
            sources[i].j = random.between(0, 4);
            chained[i] = random.between(0, 2) == 0;
            if chained[i] {
                charged[i].burst = sources[i].j;
            } else {
                charged[i].d = charged[i].d.saturating_sub(sources[i].j);
            }
        }
        // A tick of one slot in four, as a task that always runs first.
        let tick = (random.between(0, 1) == 0).then_some(Tick { c: 1, t: 4 });
        if tick.is_some() {
            sources.push(Source { c: 1, t: 4, d: 4, offset: random.between(0, 3), j: 0, level: Some(0) });
        }
        // A full CPU with bursts or ticks never idles, and is left undecided only after long.
        let loads = charged.iter().map(|task| (task.c, task.t)).chain(tick.map(|tick| (tick.c, tick.t)));
        if compare_sum(loads, 1) != Some(Ordering::Less) {
            continue;
        }
        if charged.iter().any(|task| task.d == 0) || analyse(&charged, tick).answer() != Answer::Yes {
            continue;
        }
        proven += 1;
        let mut jobs = brute::jobs(&sources, end, &mut random);
        for job in jobs.iter_mut().filter(|job| chained.get(job.task) == Some(&true)) {
            job.deadline = job.release + tasks[job.task].d;
            job.key = job.deadline;
        }
        assert!(!missed(&jobs, sources.len()), "round {round}: {charged:?} {tick:?}");
    }
    assert!(proven > 500, "{proven}");
}

#[test]
fn blocking_counts_once_per_busy_period() {
    let mut tasks = vec![task(2, 4, 10), task(4, 10, 10)];
    tasks[0].b = 2;
    assert_eq!(analyse(&tasks, None).answer(), Answer::Yes);
    tasks[0].b = 3;
    assert_eq!(analyse(&tasks, None), Demand::Exceeded { t: 4, demand: 5 });
}

#[test]
fn a_full_cpu_is_decided() {
    let tasks = [task(1, 2, 2), task(1, 4, 4), task(2, 8, 8)];
    assert!(matches!(analyse(&tasks, None), Demand::Met { .. }));
    // h(3) = 1 + 2, h(4) = 2 + 2: just enough; with D = 2 for the second h(2) = 3.
    assert!(matches!(analyse(&[task(1, 2, 2), task(2, 3, 4)], None), Demand::Met { .. }));
    assert_eq!(analyse(&[task(1, 2, 2), task(2, 2, 4)], None), Demand::Exceeded { t: 2, demand: 3 });
    assert_eq!(analyse(&[task(2, 2, 3), task(2, 3, 3)], None), Demand::Overload);
    assert_eq!(schedulable(&[]), Answer::Yes);
}

#[test]
fn the_fast_way_agrees() {
    let mut yes = 0;
    for round in 0..2000 {
        let set = brute::realistic(round, 0.75 + (round % 25) as f64 / 100.0, 0.1);
        let tasks: Vec<EdfTask> = set.iter().map(|drawn| task(drawn.c, drawn.d, drawn.t)).collect();
        let expected = analyse(&tasks, None).answer();
        assert_ne!(expected, Answer::Unknown);
        assert_eq!(schedulable(&tasks), expected, "round {round}: {tasks:?}");
        yes += usize::from(expected == Answer::Yes);
    }
    assert!((200..1800).contains(&yes), "{yes}");
}

#[test]
fn hours_in_nanoseconds_and_many_tasks_do_not_overflow() {
    let hour = 3_600_000_000_000;
    let many: Vec<EdfTask> = (0..100_000).map(|i| task(hour / 200_000, hour - i, hour + 7 * i)).collect();
    assert_eq!(schedulable(&many), Answer::Yes);
    let year = 100_000_000_000_000_000;
    assert_eq!(schedulable(&[task(year / 2, year, year), task(year / 3, year, year)]), Answer::Yes);
    assert_eq!(schedulable(&[task(year, year, year), task(year, year, year)]), Answer::No);
}

#[test]
fn a_full_cpu_whose_busy_period_never_ends_is_decided() {
    let mut tasks = vec![task(1, 3, 2), task(2, 8, 4)];
    tasks[1].b = 1;
    // U = 1 with blocking: h(t) <= t up to max D + lcm T = 12.
    assert_eq!(analyse(&tasks, None), Demand::Met { horizon: 12 });
    tasks[0].d = 2;
    tasks[1].d = 4;
    assert!(matches!(analyse(&tasks, None), Demand::Exceeded { .. }));
}
