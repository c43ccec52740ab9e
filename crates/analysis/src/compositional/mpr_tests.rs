//! Against components on supplies as bad as they may be, slot by slot.

use takt_model::generate::Random;

use super::*;
use crate::brute::cases;

/// A job: (task, arrival, release, deadline, execution left).
#[derive(Clone, Copy, Debug)]
struct Job {
    task: usize,
    arrival: u64,
    release: u64,
    deadline: u64,
    left: u64,
}

fn random_set(random: &mut Random, cpus: u32) -> Vec<Sporadic> {
    let count = random.between(1, u64::from(cpus) + 3);
    (0..count)
        .map(|_| {
            let t = random.between(3, 14);
            let c = random.between(1, (t / 2).max(1));
            let d = random.between(c, t);
            let j = random.between(0, 1) * random.between(0, (d - c).min(3));
            Sporadic { c, d, t, j, level: random.between(0, 3) as u32 }
        })
        .collect()
}

/// CPUs given in each slot: Θ in every period, early at first and late from then on, or any way.
fn pattern(random: &mut Random, supply: &Mpr, periods: u64) -> Vec<u32> {
    let (period, cpus) = (supply.period() as usize, supply.cpus());
    let extreme = random.between(0, 2) > 0;
    let turn = random.between(1, 3);
    let mut given = Vec::new();
    for number in 0..periods {
        let mut slots = vec![0u32; period];
        let mut left = supply.budget();
        if extreme {
            let mut order: Vec<usize> = (0..period).collect();
            if number >= turn {
                order.reverse();
            }
            for slot in order {
                let here = left.min(u64::from(cpus));
                slots[slot] = here as u32;
                left -= here;
            }
        }
        while left > 0 {
            let slot = random.between(0, period as u64 - 1) as usize;
            if slots[slot] < cpus {
                slots[slot] += 1;
                left -= 1;
            }
        }
        given.extend(slots);
    }
    given
}

/// Jobs that arrive from some instant on, mostly as densely as they may, and mostly together.
fn jobs(random: &mut Random, tasks: &[Sporadic], end: u64) -> Vec<Job> {
    let mut all = Vec::new();
    let together = random.between(0, end / 3);
    for (task, spec) in tasks.iter().enumerate() {
        let mut arrival = if random.between(0, 2) > 0 { together } else { random.between(0, end / 3) };
        let mut released = 0;
        // Late once and then early: bunched.
        while arrival + spec.d <= end {
            released = (arrival + random.between(0, 1) * random.between(0, spec.j)).max(released);
            all.push(Job { task, arrival, release: released, deadline: arrival + spec.d, left: spec.c });
            arrival += spec.t + random.between(0, 3) / 3 * random.between(0, 4);
        }
    }
    all
}

/// The longest response by task, and whether a deadline is missed.
fn run(mut jobs: Vec<Job>, tasks: &[Sporadic], given: &[u32], by_deadline: bool) -> (Vec<u64>, bool) {
    let (mut worst, mut missed) = (vec![0; tasks.len()], false);
    jobs.sort_by_key(|job| (job.task, job.arrival));
    // Only the earliest job of each task may run.
    let mut heads: Vec<usize> = (0..tasks.len()).map(|task| jobs.partition_point(|job| job.task < task)).collect();
    for (now, cpus) in (0u64..).zip(given) {
        let waiting = |(task, at): (usize, &usize)| {
            let job = jobs.get(*at).filter(|job| job.task == task && job.release <= now)?;
            let key = if by_deadline { job.deadline } else { u64::from(tasks[task].level) };
            Some((key, job.release, task))
        };
        let mut ready: Vec<_> = heads.iter().enumerate().filter_map(waiting).collect();
        ready.sort_unstable();
        for (_, _, task) in ready.into_iter().take(*cpus as usize) {
            let job = &mut jobs[heads[task]];
            job.left -= 1;
            if job.left == 0 {
                heads[task] += 1;
                worst[task] = worst[task].max(now + 1 - job.arrival);
                missed |= now + 1 > job.deadline;
            }
        }
    }
    let end = given.len() as u64;
    missed |= jobs.iter().any(|job| job.left > 0 && job.deadline <= end);
    (worst, missed)
}

/// Both orders, on servers between what is too little and a CPU for each.
#[test]
fn no_component_misses_under_any_supply_where_a_test_says_yes() {
    let mut random = Random::new(17);
    let (mut proven, mut tight) = ([0; 2], [0; 2]);
    for round in 0..cases(4_000) {
        let cpus = random.between(1, 3) as u32;
        let tasks = random_set(&mut random, cpus);
        let period = random.between(1, 6);
        for by_deadline in [true, false] {
            // The least budget that it accepts, and one less.
            let accepts = |budget: u64| {
                let supply = Mpr::new(period, budget, cpus).expect("a server");
                if by_deadline { edf(&tasks, &supply).is_met() } else { fp(&tasks, &supply).load.is_met() }
            };
            let most = period * u64::from(cpus);
            let Some(least) = (1..=most).find(|budget| accepts(*budget)) else { continue };
            assert!((least..=most).all(accepts), "round {round}: more is not enough: {tasks:?} on {cpus} in {period}");
            let supply = Mpr::new(period, least, cpus).expect("a server");
            let bounds = if by_deadline { None } else { Some(fp(&tasks, &supply).responses) };
            for _ in 0..20 {
                let given = pattern(&mut random, &supply, 60 / period + 4);
                let all = jobs(&mut random, &tasks, given.len() as u64);
                let (worst, missed) = run(all, &tasks, &given, by_deadline);
                assert!(!missed, "round {round}: {tasks:?} on {supply:?}, by deadline: {by_deadline}, {given:?}");
                for (seen, bound) in worst.iter().zip(bounds.iter().flatten()) {
                    assert!(
                        bound.is_some_and(|bound| *seen <= bound),
                        "round {round}: {seen} > {bound:?}: {tasks:?} on {supply:?}"
                    );
                    tight[0] += u32::from(*bound == Some(*seen));
                    tight[1] += 1;
                }
            }
            proven[usize::from(by_deadline)] += 1;
        }
    }
    // It is worth something: it accepts many, and some bounds are reached.
    assert!(proven.iter().all(|count| *count > cases(4_000) / 10), "{proven:?}");
    assert!(tight[0] * 20 > tight[1], "{tight:?}");
}

/// The condition at every x up to far beyond the horizon.
#[test]
fn the_way_down_covers_every_point() {
    let mut random = Random::new(18);
    let mut counts = [0u64; 2];
    for round in 0..cases(3_000) {
        let cpus = random.between(1, 3) as u32;
        let tasks = random_set(&mut random, cpus);
        let period = random.between(1, 6);
        let supply = Mpr::new(period, random.between(1, period * u64::from(cpus)), cpus).expect("a server");
        let found = edf(&tasks, &supply);
        let Ok(slots) = ready(&tasks) else { continue };
        let mut scratch = vec![0; slots.len()];
        let holds = |work: u128, room: Option<i128>| i128::try_from(work).unwrap() < room.unwrap();
        let mut each = |k: usize| {
            let slot = slots[k];
            let wait = slot.window - slot.c + 1;
            let others = slots.iter().enumerate().filter(|(i, _)| *i != k);
            let alone: u128 = others.map(|(_, other)| u128::from(other.workload_due(slot.window).min(wait))).sum();
            holds(alone, room(&slots, k, slot.window, &supply))
                || (slot.window..1_000)
                    .all(|x| holds(demand(&slots, k, cpus, x, &mut scratch), room(&slots, k, x, &supply)))
        };
        let expected = (0..slots.len()).all(&mut each);
        if found == Load::Full {
            continue;
        }
        assert_eq!(found.is_met(), expected, "round {round}: {tasks:?} on {supply:?}: {found:?}");
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|count| *count > cases(3_000) / 30), "{counts:?}");
}

/// One CPU: no more is accepted than the exact test of PRM accepts.
#[test]
fn on_one_cpu_it_accepts_only_what_the_periodic_resource_serves() {
    let mut random = Random::new(19);
    let (mut both, mut more) = (0, 0);
    for round in 0..cases(3_000) {
        let tasks = random_set(&mut random, 1);
        let period = random.between(1, 6);
        let budget = random.between(1, period);
        let supply = crate::compositional::Supply::prm(period, budget).expect("a server");
        let one: Vec<_> = (tasks.iter())
            .map(|task| crate::edf::qpa::EdfTask { c: task.c, t: task.t, d: task.d - task.j, burst: 0, b: 0 })
            .collect();
        let exact = crate::compositional::edf::schedulable(&one, &supply);
        if edf(&tasks, &Mpr::new(period, budget, 1).expect("a server")).is_met() {
            assert_ne!(exact, crate::Answer::No, "round {round}: {tasks:?} on {supply:?}");
            both += 1;
        } else if exact == crate::Answer::Yes {
            more += 1;
        }
    }
    assert!(both > more && both > 0, "{both} of {}", both + more);
}

/// Each bound of fixed priorities is the least x at which (*) holds, with every choice of the m' -
/// 1 tasks that bring work in.
#[test]
fn a_bound_is_the_first_point_whoever_brings_work_in() {
    let mut random = Random::new(20);
    let mut bounded = 0;
    for round in 0..cases(1_000) {
        let cpus = random.between(1, 3) as u32;
        let tasks = random_set(&mut random, cpus);
        let period = random.between(1, 6);
        let budget = random.between(period, period * u64::from(cpus));
        let supply = Mpr::new(period, budget, cpus).expect("a server");
        let bounds = fp(&tasks, &supply).responses;
        let Ok(mut slots) = ready(&tasks) else { continue };
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by_key(|k| tasks[*k].level);
        for k in order {
            let this = slots[k];
            let holds = |x: u64, bring: u32| {
                let wait = (x + 1).saturating_sub(this.c);
                let work = |(i, other): (usize, &Slot)| match other.level.cmp(&this.level) {
                    std::cmp::Ordering::Greater => 0,
                    _ if i == k => 0,
                    std::cmp::Ordering::Equal => other.workload(x).min(wait),
                    _ if bring & (1 << i) != 0 => other.workload_nc(x).max(other.workload_ci(x)).min(wait),
                    _ => other.workload_nc(x).min(wait),
                };
                let sum: u64 = slots.iter().enumerate().map(work).sum();
                i128::from(sum) < room(&slots, k, x, &supply).unwrap()
            };
            let few = |bring: &u32| bring.count_ones() < cpus;
            let first = (1..=this.window).find(|x| (0..1 << tasks.len()).filter(few).all(|bring| holds(*x, bring)));
            let Some(bound) = bounds[k] else { break };
            assert_eq!(first.map(|x| x + this.j), Some(bound), "round {round}: task {k} of {tasks:?} on {supply:?}");
            bounded += 1;
            slots[k].slack = slots[k].d - bound;
        }
    }
    assert!(bounded >= cases(1_000) / 4, "{bounded}");
}

#[test]
fn uncovered_tasks_are_reported() {
    let supply = Mpr::new(5, 8, 2).expect("a server");
    let late = Sporadic { c: 1, d: 9, t: 8, ..Sporadic::default() };
    assert_eq!(edf(&[late], &supply), Load::Unfit { task: 0 });
    assert_eq!(fp(&[Sporadic { d: 8, c: 9, ..late }], &supply).load, Load::TooLong { task: 0 });
    // As much load as budget: nothing is left for the carry-in.
    let half = Sporadic { c: 4, d: 5, t: 5, ..Sporadic::default() };
    assert!(!edf(&[half, half, half], &supply).is_met());
}
