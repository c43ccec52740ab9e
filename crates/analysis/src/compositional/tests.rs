//! The analysis against the reference scheduler and against enumeration.

use takt_model::generate::Random;

use super::reference::{misses, ways, worst};
use super::*;
use crate::brute::{Job, Source, cases, jobs};
use crate::verdict::Answer;

/// A random set: (C, T, D, J, B); deadlines up to `stretch` periods.
#[derive(Clone, Debug)]
struct Set {
    tasks: Vec<(u64, u64, u64)>,
    jitter: Vec<u64>,
}

impl Set {
    fn random(random: &mut Random, tasks: u64, period_max: u64, arbitrary: bool) -> Set {
        let tasks: Vec<(u64, u64, u64)> = (0..random.between(1, tasks))
            .map(|_| {
                let t = random.between(2, period_max);
                let c = random.between(1, (t / 2).max(1));
                let d = random.between(c, if arbitrary { 2 * t } else { t });
                (c, t, d)
            })
            .collect();
        let jitter = vec![0; tasks.len()];
        Set { tasks, jitter }
    }

    fn fp(&self) -> Vec<FpTask> {
        let form =
            |(i, (&(c, t, d), &j)): (usize, (&(u64, u64, u64), &u64))| FpTask { c, t, d, j, b: 0, level: i as u32 };
        self.tasks.iter().zip(&self.jitter).enumerate().map(form).collect()
    }

    fn edf(&self) -> Vec<EdfTask> {
        let form = |(&(c, t, d), &j): (&(u64, u64, u64), &u64)| EdfTask { c, t, d: d - j, burst: 0, b: 0 };
        // Jitter: deadlines D - J after the release, and bunched releases.
        self.tasks.iter().zip(&self.jitter).map(form).collect()
    }

    /// Jobs that arrive from these offsets on.
    fn jobs(&self, fp: bool, offsets: &[u64], end: u64, random: &mut Random) -> Vec<Job> {
        let sources: Vec<Source> = self
            .tasks
            .iter()
            .zip(offsets)
            .zip(&self.jitter)
            .enumerate()
            .map(|(i, ((&(c, t, d), &offset), &j))| Source { c, t, d, offset, j, level: fp.then_some(i as u32) })
            .collect();
        jobs(&sources, end, random)
    }
}

fn meets(set: &Set, fp: bool, supply: &Supply) -> Answer {
    if fp { fp::schedulable(&set.fp(), supply) } else { edf::schedulable(&set.edf(), supply) }
}

/// Servers of up to `most` slots.
fn servers(most: u64) -> impl Iterator<Item = (u64, u64)> {
    (1..=most).flat_map(|period| (1..=period).map(move |budget| (period, budget)))
}

#[test]
fn a_no_is_a_miss_in_the_worst_pattern() {
    let mut random = Random::new(1);
    let mut counts = [0; 2];
    for _ in 0..cases(600) {
        let arbitrary = random.between(0, 1) == 1;
        let set = Set::random(&mut random, 3, 9, arbitrary);
        for (period, budget) in servers(5) {
            let supply = Supply::prm(period, budget).unwrap();
            for fp in [true, false] {
                let load: f64 = set.tasks.iter().map(|(c, t, _)| *c as f64 / *t as f64).sum();
                // Right at the load a miss may take for ever to show.
                if (load - budget as f64 / period as f64).abs() < 0.02 {
                    continue;
                }
                let answer = meets(&set, fp, &supply);
                let pattern = worst(period, budget, 600);
                let all = set.jobs(fp, &vec![0; set.tasks.len()], 600, &mut random);
                let missed = misses(&pattern, &all, set.tasks.len());
                assert_eq!(answer == Answer::Yes, !missed, "{set:?} on ({period}, {budget}), fp: {fp}: {answer:?}");
                counts[usize::from(missed)] += 1;
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}

#[test]
fn a_yes_holds_in_every_pattern_and_from_every_offset() {
    let mut random = Random::new(2);
    let mut tried = 0u64;
    for _ in 0..4_000 {
        let mut set = Set::random(&mut random, 3, 7, false);
        let jittery = random.between(0, 2) == 0;
        for (jitter, (_, t, d)) in set.jitter.iter_mut().zip(&set.tasks) {
            *jitter = if jittery { random.between(0, (d - 1).min(*t)) } else { 0 };
        }
        let period = random.between(1, 5);
        let budget = random.between(1, period);
        let supply = Supply::prm(period, budget).unwrap();
        let ways = ways(period, budget);
        for fp in [true, false] {
            if !fp && jittery {
                continue;
            }
            if meets(&set, fp, &supply) != Answer::Yes {
                continue;
            }
            for _ in 0..40 {
                // Any pattern, or one that is early and then late for ever, as is worst.
                let pattern: Vec<bool> = match random.between(0, 1) {
                    0 => (0..60 / period)
                        .flat_map(|_| ways[random.between(0, ways.len() as u64 - 1) as usize].clone())
                        .collect(),
                    _ => {
                        let switch = random.between(0, 20);
                        let early: Vec<bool> = (0..period).map(|slot| slot < budget).collect();
                        let late: Vec<bool> = early.iter().rev().copied().collect();
                        (0..60 / period).flat_map(|k| if k < switch { early.clone() } else { late.clone() }).collect()
                    }
                };
                let offsets: Vec<u64> = set.tasks.iter().map(|(_, t, _)| random.between(0, 2 * t)).collect();
                let all = set.jobs(fp, &offsets, pattern.len() as u64, &mut random);
                assert!(
                    !misses(&pattern, &all, set.tasks.len()),
                    "{set:?} on ({period}, {budget}), fp: {fp}: {pattern:?} {offsets:?}"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
}

/// Compares the bounds without iteration with those of the iteration.
#[test]
fn bounds_without_iteration_equal_those_of_the_iteration() {
    let mut random = Random::new(7);
    let (mut known, mut yes, mut unknown) = (0u64, 0u64, 0u64);
    for _ in 0..cases(4_000) {
        let mut set = Set::random(&mut random, 4, 60, true).fp();
        for task in &mut set {
            task.level = random.between(0, 3) as u32;
            task.c = random.between(1, (task.t / 4).max(1));
            task.j = if random.between(0, 2) == 0 { random.between(0, task.t + 1) } else { 0 };
            task.b = random.between(0, 4).saturating_sub(2);
        }
        let period = random.between(1, 6);
        let budget = random.between(1, period);
        let start = [Start::Anywhere, Start::Polled, Start::Aligned][random.between(0, 2) as usize];
        let wait = Some(random.between(0, period)).filter(|wait| wait % 2 == 0);
        let guarantee = Guarantee { start, delay: random.between(0, 2), wait };
        let supply = guarantee.supply(period, budget).unwrap();
        let exact = |i: usize| fp::response(&set, i, &supply, &mut { fp::TERMS_MAX });
        for (i, bound) in fp::at_once(&set, &supply).into_iter().enumerate() {
            unknown += u64::from(bound.is_none());
            let Some(bound) = bound else { continue };
            assert_eq!(Some(bound), exact(i), "{set:?}, {guarantee:?}, ({period}, {budget}): task {i}");
            known += 1;
        }
        let all = (0..set.len()).all(|i| exact(i).is_some_and(|bound| bound.from_arrival <= set[i].d));
        assert_eq!(fp::schedulable(&set, &supply) == Answer::Yes, all, "{set:?}, {guarantee:?}, ({period}, {budget})");
        yes += u64::from(all);
    }
    assert!(known > 300 && yes > 100 && unknown > 300, "{known} {yes} {unknown}");
}

/// Every set of two tasks with T <= 6 and D >= T - 1 on every server with Π <= 3, in every pattern
/// of twelve slots, from every offset.
#[test]
fn the_smallest_worlds_are_exhausted() {
    let mut random = Random::new(0);
    let tasks: Vec<(u64, u64, u64)> =
        (2..=6).flat_map(|t| (t - 1..=t).flat_map(move |d| (1..=d.min(2)).map(move |c| (c, t, d)))).collect();
    let (mut proven, mut sims) = (0u64, 0u64);
    for (i, a) in tasks.iter().enumerate() {
        for b in &tasks[i..] {
            let set = Set { tasks: vec![*a, *b], jitter: vec![0; 2] };
            for (period, budget) in servers(3).filter(|(period, budget)| period > budget) {
                let supply = Supply::prm(period, budget).unwrap();
                for fp in [true, false] {
                    if meets(&set, fp, &supply) != Answer::Yes {
                        continue;
                    }
                    proven += 1;
                    let ways = ways(period, budget);
                    let periods = 12 / period;
                    for code in 0..(ways.len() as u64).pow(periods as u32) {
                        let digit = |k: u64| (code / (ways.len() as u64).pow(k as u32) % ways.len() as u64) as usize;
                        let pattern: Vec<bool> = (0..periods).flat_map(|k| ways[digit(k)].clone()).collect();
                        for offset in 0..a.1 * b.1 {
                            let all = set.jobs(fp, &[offset % a.1, offset / a.1], 12, &mut random);
                            assert!(
                                !misses(&pattern, &all, 2),
                                "{set:?} on ({period}, {budget}): {pattern:?} {offset}"
                            );
                            sims += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(proven > 20 && sims > 5_000, "{proven} {sims}");
}

/// Releases on multiples of the server's period, periodic for ever.
#[test]
fn an_aligned_yes_holds_where_releases_are_aligned() {
    let mut random = Random::new(3);
    let (mut gained, mut tried) = (0, 0);
    for _ in 0..3_000 {
        let period = random.between(2, 5);
        let budget = random.between(1, period - 1);
        let mut set = Set::random(&mut random, 3, 4, false);
        for (c, t, d) in &mut set.tasks {
            (*t, *d) = (*t * period, *d * period - random.between(0, period - 1));
            *c = random.between(1, *d);
        }
        let ways = ways(period, budget);
        let (aligned, prm) = (Supply::aligned(period, budget).unwrap(), Supply::prm(period, budget).unwrap());
        for fp in [true, false] {
            if meets(&set, fp, &aligned) != Answer::Yes {
                assert_ne!(meets(&set, fp, &prm), Answer::Yes, "PRM gives less: {set:?}");
                continue;
            }
            gained += u64::from(meets(&set, fp, &prm) != Answer::Yes);
            for round in 0..20 {
                let late: Vec<bool> = (0..period).map(|slot| slot >= period - budget).collect();
                let pattern: Vec<bool> = (0..80 / period)
                    .flat_map(|_| {
                        let way = random.between(0, ways.len() as u64 - 1) as usize;
                        if round < 10 { late.clone() } else { ways[way].clone() }
                    })
                    .collect();
                let offsets: Vec<u64> =
                    set.tasks.iter().map(|(_, t, _)| random.between(0, t / period) * period).collect();
                let all = set.jobs(fp, &offsets, pattern.len() as u64, &mut random);
                assert!(!misses(&pattern, &all, set.tasks.len()), "{set:?} on ({period}, {budget}), fp: {fp}");
                tried += 1;
            }
        }
    }
    assert!(gained > 50 && tried > 2_000, "{gained} {tried}");
}

/// Where the periods do not divide, the aligned form overstates: ERRATA's example.
#[test]
fn the_aligned_form_is_unsafe_elsewhere() {
    let (aligned, prm) = (Supply::aligned(3, 1).unwrap(), Supply::prm(3, 1).unwrap());
    assert_eq!((aligned.sbf(4), prm.sbf(4)), (1, 0));
    // A task of period 4: released at 4, where the server (3, 1) has given the budget of [3, 6) and
    // gives the next one at 8.
    let late = [false, false, true, true, false, false, false, false, true, false, false, true];
    let job = Job { task: 0, arrival: 4, release: 4, c: 1, deadline: 8, key: 0 };
    assert!(misses(&late, &[job], 1));
}

#[test]
fn the_least_budget_is_the_least() {
    let mut random = Random::new(4);
    let mut found = 0;
    for _ in 0..4_000 {
        let arbitrary = random.between(0, 2) == 0;
        let set = Set::random(&mut random, 3, 12, arbitrary);
        let period = random.between(1, 10);
        let start = [Start::Anywhere, Start::Polled, Start::Aligned][random.between(0, 2) as usize];
        let delay = if random.between(0, 3) == 0 { random.between(0, 2) } else { 0 };
        // Aligned budgets that come early are met by releases on their grid alone.
        let wait = Some(random.between(0, period)).filter(|wait| wait % 2 == 0 && start != Start::Aligned);
        let guarantee = Guarantee { start, delay, wait };
        let (fp, edf) = (set.fp(), set.edf());
        for workload in [Workload::Fp(&fp), Workload::Edf(&edf)] {
            let scanned =
                (1..=period).find(|budget| workload.meets(&guarantee.supply(period, *budget).unwrap()) == Answer::Yes);
            let least = workload.least_budget(guarantee, period).unwrap();
            assert_eq!(least, scanned, "{workload:?}, {guarantee:?}, {period}");
            found += usize::from(least.is_some());
        }
    }
    assert!(found > 500, "{found}");
}

/// The least bandwidth over all periods up to a far one, of equal ones the largest period.
fn scanned(search: &Search, far: u64) -> Option<Interface> {
    let mut best: Option<Interface> = None;
    for period in (1..=far).filter(|period| period % search.quantum == 0) {
        let aligned = search.aligned > 0 && search.aligned.is_multiple_of(period);
        let guarantee =
            if aligned { Guarantee { start: Start::Aligned, delay: 0, wait: None } } else { search.guarantee };
        let charge = (search.charge)(period).unwrap();
        let least = (1..=period / search.quantum).map(|k| k * search.quantum).find(|budget| {
            budget
                .checked_sub(charge)
                .and_then(|budget| guarantee.supply(period, budget))
                .is_some_and(|supply| search.workload.meets(&supply) == Answer::Yes)
        });
        let Some(budget) = least else { continue };
        if best.is_none_or(|best| budget * best.period <= best.budget * period) {
            best = Some(Interface { period, budget });
        }
    }
    best
}

#[test]
fn the_best_interface_is_the_best() {
    let mut random = Random::new(5);
    let (mut full, mut beyond, mut none) = (0, 0, 0);
    for _ in 0..600 {
        let arbitrary = random.between(0, 4) == 0;
        let set = Set::random(&mut random, 3, 8, arbitrary);
        let (fp, edf) = (set.fp(), set.edf());
        let longest = set.tasks.iter().map(|(_, _, d)| *d).max().unwrap();
        for workload in [Workload::Fp(&fp), Workload::Edf(&edf)] {
            let quantum = [1, 1, 2][random.between(0, 2) as usize];
            let start = [Start::Anywhere, Start::Anywhere, Start::Polled][random.between(0, 2) as usize];
            let cost = [0, 0, 1][random.between(0, 2) as usize];
            let charge = move |_: u64| Some(cost);
            let gcd = set.tasks.iter().fold(0, |gcd, (_, t, _)| takt_model::gcd(gcd, *t));
            let aligned = if random.between(0, 1) == 0 { gcd } else { 0 };
            let guarantee = Guarantee { start, delay: 0, wait: None };
            let search = Search { workload, quantum, guarantee, aligned, charge: &charge };
            let found = best(&search).unwrap();
            let expected = scanned(&search, 60);
            none += usize::from(found.is_none());
            if let Some(Interface { period, budget }) = found
                && period == budget
                && start == Start::Anywhere
            {
                // If only the full CPU serves, the scan takes the largest period that it knows.
                assert!(expected.is_some_and(|full| full.period == full.budget), "{search:?}: {expected:?}");
                assert!(
                    period == longest.div_ceil(quantum) * quantum || aligned.is_multiple_of(period),
                    "{search:?}: {period}"
                );
                full += 1;
                continue;
            }
            assert_eq!(found, expected, "{search:?}");
            beyond += usize::from(found.is_some_and(|found| found.period > longest));
        }
    }
    assert!(full > 20 && beyond > 2 && none > 20, "{full} {beyond} {none}");
}

#[test]
fn the_papers_cap_is_false_for_edf() {
    let tasks: Vec<EdfTask> =
        [(3, 1), (4, 1), (5, 1)].map(|(t, c)| EdfTask { c, t, d: t, ..EdfTask::default() }).to_vec();
    let charge = |_: u64| Some(0);
    let search =
        Search { workload: Workload::Edf(&tasks), quantum: 1, guarantee: Guarantee::PRM, aligned: 0, charge: &charge };
    assert_eq!(best(&search), Ok(Some(Interface { period: 6, budget: 5 })));
}

#[test]
fn a_search_without_a_result_names_its_limit() {
    let found = |d: u64, cost: Option<u64>| {
        let tasks = [EdfTask { c: 1, t: d, d, ..EdfTask::default() }];
        let (workload, charge) = (Workload::Edf(&tasks), |_: u64| cost);
        best(&Search { workload, quantum: 2, guarantee: Guarantee::PRM, aligned: 0, charge: &charge })
    };
    assert_eq!(found(10, None), Err(Limit::Costs));
    assert_eq!(found(u64::MAX, Some(0)), Err(Limit::Analysis(Stop::Time)));
    let text = |limit| SizeError::Limit { component: "a".to_owned(), limit }.to_string();
    assert_eq!(
        text(Limit::Periods),
        "component \"a\": undecided: the limit of 4000000 periods was reached; give it a coarser quantum, or a period"
    );
    assert_eq!(
        text(Limit::Analysis(Stop::Terms)),
        "component \"a\": undecided: the work limit was reached; give it a coarser quantum, or a period and a budget"
    );
}
