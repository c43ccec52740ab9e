use takt_model::generate::Random;

use super::*;
use crate::brute::{self, Job, cases};
use crate::edf::qpa;
use crate::exact::compare_sum;
use crate::verdict::Answer;

fn task(c: u64, d: u64, t: u64) -> EdfTask {
    EdfTask { c, d, t, ..EdfTask::default() }
}

fn responses(tasks: &[EdfTask]) -> Vec<Option<u64>> {
    Analysis::default().responses(tasks, None).collect()
}

/// Small sets with deadlines up to twice the period.
fn small(random: &mut Random) -> Vec<EdfTask> {
    brute::small(random, |c, t, random| {
        let longest = if random.between(0, 2) == 0 { 2 * t } else { t };
        task(c, random.between(1, longest), t)
    })
}

/// The longest response of task `i` where the others are released together and as densely as they may, over all phases
/// of `i`; ties go against it.
fn exhausted(tasks: &[EdfTask], i: usize, end: u64) -> u64 {
    let mut longest = 0;
    for phase in 0..tasks[i].t {
        let mut jobs = Vec::new();
        for (k, task) in tasks.iter().enumerate() {
            let mut arrival = if k == i { phase } else { 0 };
            while arrival < end {
                let deadline = arrival + task.d;
                let key = 2 * deadline + u64::from(k == i);
                jobs.push(Job { task: k, arrival, release: arrival, c: task.c, deadline, key });
                arrival += task.t;
            }
        }
        longest = longest.max(brute::responses(&jobs, 1, tasks.len())[i]);
    }
    longest
}

#[test]
fn a_textbook_set() {
    // Released together: 1, 3; the second one at 3 finds the first's deadline 8 before its own.
    assert_eq!(responses(&[task(2, 4, 4), task(2, 6, 6)]), [Some(2), Some(4)]);
    // A full CPU.
    assert_eq!(responses(&[task(1, 2, 2), task(2, 4, 4)]), [Some(2), Some(4)]);
    assert_eq!(responses(&[task(3, 4, 4), task(2, 6, 6)]), [None, None], "overload");
}

#[test]
fn every_bound_is_reached_and_none_exceeded() {
    let mut random = Random::new(21);
    let (mut bounded, mut late) = (0, 0);
    for round in 0..cases(1500) {
        let tasks = small(&mut random);
        let end = brute::hyperperiod(tasks.iter().map(|task| task.t));
        let bounds = responses(&tasks);
        let overload = compare_sum(tasks.iter().map(|task| (task.c, task.t)), 1) == Some(std::cmp::Ordering::Greater);
        assert_eq!(bounds.iter().all(Option::is_none), overload, "round {round}: {tasks:?}");
        if overload {
            continue;
        }
        for (i, bound) in bounds.into_iter().enumerate() {
            assert_eq!(bound, Some(exhausted(&tasks, i, end)), "round {round}: task {i} of {tasks:?}");
            bounded += 1;
            late += usize::from(bound > Some(tasks[i].d));
        }
    }
    assert!(bounded > 1000 && late > 200, "{bounded} {late}");
}

#[test]
fn the_verdict_is_that_of_the_demand() {
    let mut yes = 0;
    for round in 0..cases(2000) {
        let set = brute::realistic(round, 0.75 + (round % 25) as f64 / 100.0, 0.1);
        let tasks: Vec<EdfTask> = set.iter().map(|drawn| task(drawn.c, drawn.d, drawn.t)).collect();
        let meets = responses(&tasks).iter().zip(&tasks).all(|(r, task)| r.expect("U < 1") <= task.d);
        let demand: Vec<qpa::EdfTask> =
            tasks.iter().map(|t| qpa::EdfTask { c: t.c, t: t.t, d: t.d, ..qpa::EdfTask::default() }).collect();
        assert_eq!(meets, qpa::schedulable(&demand) == Answer::Yes, "round {round}: {tasks:?}");
        yes += u64::from(meets);
    }
    assert!(yes > cases(2000) / 10 && yes < cases(2000) * 9 / 10, "{yes}");
}

#[test]
fn hours_in_nanoseconds_and_many_tasks_do_not_overflow() {
    let hour = 3_600_000_000_000;
    let long: Vec<EdfTask> = (1..=50).map(|i| task(hour / 100, hour * i, hour * i)).collect();
    assert!(responses(&long).iter().all(Option::is_some));
    let year = 100_000_000_000_000_000;
    let longest = responses(&[task(1, 2, 2), task(year / 3, year, year)]);
    assert_eq!(longest[1], Some(66_666_666_666_666_666));
    let many: Vec<EdfTask> = (0..20_000).map(|i| task(hour / 40_000, hour - i, hour + 7 * i)).collect();
    assert_eq!(responses(&many).len(), 20_000, "the limit is an answer");
}
