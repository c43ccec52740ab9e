use takt_model::generate::Random;

use super::*;
use crate::brute::{self, Source};
use crate::fp::{hyperbolic, ll_bound};
use crate::verdict::Answer;

fn task(c: u64, t: u64, d: u64) -> FpTask {
    FpTask { c, t, d, ..FpTask::default() }
}

fn distinct(mut tasks: Vec<FpTask>) -> Vec<FpTask> {
    for (level, task) in tasks.iter_mut().enumerate() {
        task.level = level as u32;
    }
    tasks
}

fn bounds(tasks: &[FpTask]) -> Vec<Option<u64>> {
    let mut analysis = Analysis::default();
    (0..tasks.len()).map(|i| Some(analysis.response(tasks, i)?.from_arrival)).collect()
}

/// Small sets with constrained deadlines.
fn small(random: &mut Random) -> Vec<FpTask> {
    distinct(brute::small(random, |c, t, random| task(c, t, random.between(c, t))))
}

fn sources(tasks: &[FpTask]) -> Vec<Source> {
    tasks
        .iter()
        .map(|task| Source { c: task.c, t: task.t, d: task.d, offset: 0, j: 0, level: Some(task.level) })
        .collect()
}

#[test]
fn the_textbook_example() {
    // Audsley et al. 1993 and many textbooks: (C, T) = (3, 7), (3, 12), (5, 20).
    let tasks = distinct(vec![task(3, 7, 7), task(3, 12, 12), task(5, 20, 20)]);
    assert_eq!(bounds(&tasks), [Some(3), Some(6), Some(20)]);
    assert_eq!(schedulable(&tasks), Answer::Yes);
}

#[test]
fn arbitrary_deadlines_look_at_every_job_of_the_busy_period() {
    // Lehoczky 1990: C = (26, 62), T = (70, 100): responses 114, 102, 116, 104, 118, 106, 94.
    let tasks = distinct(vec![task(26, 70, 70), task(62, 100, 118)]);
    assert_eq!(bounds(&tasks), [Some(26), Some(118)]);
    assert_eq!(schedulable(&tasks), Answer::Yes);
    let tighter = distinct(vec![task(26, 70, 70), task(62, 100, 117)]);
    assert_eq!(schedulable(&tighter), Answer::No);
}

#[test]
fn jitter_and_blocking_delay() {
    let mut tasks = distinct(vec![task(2, 10, 10), task(3, 20, 20)]);
    tasks[0].j = 4;
    tasks[1].b = 5;
    // w = 3 + 5 + ceil((w + 4) / 10) 2: 10 -> 8 + 2 * 2 = 12 -> 12.
    assert_eq!(bounds(&tasks), [Some(6), Some(12)]);
    let own = Analysis::default().response(&tasks, 0).unwrap();
    assert_eq!(own.from_release, 2, "the own jitter counts only from the arrival");
}

#[test]
fn overload_has_no_bound() {
    assert_eq!(bounds(&distinct(vec![task(3, 4, 4), task(2, 6, 6)])), [Some(3), None]);
    // A full CPU still has one.
    assert_eq!(bounds(&distinct(vec![task(2, 4, 4), task(3, 6, 6)])), [Some(2), Some(7)]);
}

#[test]
fn the_verdict_is_the_brute_force_one_and_bounds_are_reached() {
    let mut random = Random::new(1);
    let mut seen = [0; 2];
    for round in 0..3000 {
        let tasks = small(&mut random);
        let end = brute::hyperperiod(tasks.iter().map(|task| task.t));
        let jobs = brute::jobs(&sources(&tasks), end, &mut random);
        let observed = brute::responses(&jobs, 1, tasks.len());
        let meets = observed.iter().zip(&tasks).all(|(r, task)| *r <= task.d);
        let expected = if meets { Answer::Yes } else { Answer::No };
        assert_eq!(schedulable(&tasks), expected, "round {round}: {tasks:?}");
        assert_eq!(exact_only(&tasks), expected, "round {round}: {tasks:?}");
        seen[usize::from(meets)] += 1;
        for (bound, observed) in bounds(&tasks).into_iter().zip(&observed) {
            // For U <= 1 the synchronous busy period lies within the hyperperiod.
            if let Some(bound) = bound {
                assert_eq!(bound, *observed, "round {round}: {tasks:?}");
            }
        }
    }
    assert!(seen[0] > 300 && seen[1] > 300, "{seen:?}");
}

#[test]
fn shared_levels_offsets_and_jitter_stay_below_the_bound() {
    let mut random = Random::new(2);
    for round in 0..2000 {
        let mut tasks = small(&mut random);
        for task in &mut tasks {
            task.level = random.between(0, 2) as u32;
            task.j = random.between(0, task.t / 2);
        }
        let mut sources = sources(&tasks);
        for (source, task) in sources.iter_mut().zip(&tasks) {
            source.offset = random.between(0, task.t);
            source.j = task.j;
        }
        let end = 3 * brute::hyperperiod(tasks.iter().map(|task| task.t));
        let jobs = brute::jobs(&sources, end, &mut random);
        let observed = brute::responses(&jobs, 1, tasks.len());
        // A full CPU with jitter never idles: the limit ends that soon here.
        let mut analysis = Analysis { terms_left: 20_000 };
        for (i, observed) in observed.iter().enumerate() {
            let bound = analysis.response(&tasks, i).map(|response| response.from_arrival);
            assert!(bound.is_none_or(|bound| bound >= *observed), "round {round}: {tasks:?} {bound:?} {observed}");
        }
    }
}

/// Real-world sizes, as the fast way sees them.
fn realistic(number: u64, utilization: f64, deadline: f64) -> Vec<FpTask> {
    let set = brute::realistic(number, utilization, deadline);
    distinct(set.iter().map(|drawn| task(drawn.c, drawn.t, drawn.d)).collect())
}

#[test]
fn the_fast_ways_agree_with_the_bounds() {
    for round in 0..3000 {
        let tasks = realistic(round, 0.7 + (round % 30) as f64 / 100.0, 0.7);
        let meets = bounds(&tasks).iter().zip(&tasks).all(|(r, task)| r.is_some_and(|r| r <= task.d));
        let expected = if meets { Answer::Yes } else { Answer::No };
        assert_eq!((schedulable(&tasks), exact_only(&tasks)), (expected, expected), "round {round}");
    }
}

#[test]
fn each_bound_accepts_what_the_one_before_accepts() {
    let mut counts = [0; 3];
    for round in 0..3000 {
        let tasks = realistic(round, 0.6 + (round % 40) as f64 / 100.0, 1.0);
        let pairs: Vec<(u64, u64)> = tasks.iter().map(|task| (task.c, task.t)).collect();
        let yes = [ll_bound::schedulable(&pairs), hyperbolic::schedulable(&pairs), schedulable(&tasks)]
            .map(|answer| answer == Answer::Yes);
        assert!(yes.is_sorted(), "round {round}: {yes:?}");
        for (count, yes) in counts.iter_mut().zip(yes) {
            *count += usize::from(yes);
        }
    }
    assert!(counts[0] < counts[1] && counts[1] < counts[2], "{counts:?}");
}

#[test]
fn hours_in_nanoseconds_and_many_tasks_do_not_overflow() {
    let hour = 3_600_000_000_000;
    let long = distinct((1..=50).map(|i| task(hour / 100, hour * i, hour * i)).collect());
    assert!(bounds(&long).iter().all(Option::is_some));
    assert_eq!(schedulable(&long), Answer::Yes);
    let year = 100_000_000_000_000_000;
    let longest = distinct(vec![task(1, 2, 2), task(year / 3, year, year)]);
    assert_eq!(bounds(&longest), [Some(1), Some(66_666_666_666_666_666)]);
}

#[test]
fn the_limit_is_an_answer() {
    let many = distinct(vec![task(10_000, 3_600_000_000_000, 3_600_000_000_000); 100_000]);
    let mut analysis = Analysis { terms_left: 1000 };
    assert_eq!(analysis.response(&many, 99_999), None);
    assert_eq!(Analysis::default().response(&many, 99_999).unwrap().from_arrival, 1_000_000_000);
}
