//! The tests against the exhaustive search and against each other.

use std::collections::BTreeMap;

use takt_model::generate::Random;

use super::exact::{Reachability, Ties, respond, sporadic};
use super::*;
use crate::brute::{self, Source, cases};

/// States that the judge may look at.
const STATES_MAX: usize = 400_000;

/// A small set: two or three CPUs, up to five tasks, C <= D - J, D <= T.
pub(in crate::global) fn small(random: &mut Random, jitter: bool) -> (Vec<Sporadic>, u32) {
    let m = random.between(2, 3) as u32;
    let count = random.between(u64::from(m) + 1, 5);
    let longest = [0, 0, 0, 12, 8, 6][count as usize];
    let tasks = (0..count)
        .map(|i| {
            let t = random.between(1, longest);
            let d = random.between(1.max(t / 2), t);
            let j = if jitter { random.between(0, (d - 1).min(2)) } else { 0 };
            let heavy = random.between(0, 2) == 0;
            let c = random.between(1, if heavy { d - j } else { (d - j).div_ceil(2) });
            Sporadic { c, d, t, j, level: random.between(0, i) as u32 }
        })
        .collect();
    (tasks, m)
}

/// Every test that may say yes.
fn verdicts(tasks: &[Sporadic], m: u32, rule: Rule) -> Vec<(&'static str, bool)> {
    let mut found = vec![
        ("bcl", bcl::schedulable(tasks, m, rule).is_met()),
        ("bcl-iterative", bcl_iterative::schedulable(tasks, m, rule).is_met()),
        ("rta-global", rta_global::schedulable(tasks, m, rule).is_met()),
    ];
    if rule == Rule::Edf {
        let pairs: Vec<_> = tasks.iter().map(|task| (task.c, (task.d - task.j).min(task.t - task.j))).collect();
        found.push(("gfb", gfb::schedulable(&pairs, m) == crate::Answer::Yes));
        found.push(("bak", bak::schedulable(tasks, m).is_met()));
        found.push(("bar", bar::schedulable(tasks, m).is_met()));
        found.push(("ff-dbf", ff_dbf::schedulable(tasks, m).is_met()));
    } else {
        found.push(("da-lc", da_lc::schedulable(tasks, m).is_met()));
        found.push(("rta-lc", rta_lc::schedulable(tasks, m).is_met()));
    }
    found
}

#[test]
fn no_yes_is_refuted_by_the_search() {
    let (mut random, mut yes, mut refuted, mut open) = (Random::new(1), BTreeMap::new(), 0, 0);
    let count = cases(3_000);
    for case in 0..count {
        let (tasks, m) = small(&mut random, case % 3 == 0);
        for rule in [Rule::Edf, Rule::Fp] {
            let found = verdicts(&tasks, m, rule);
            for (name, met) in &found {
                *yes.entry((rule == Rule::Edf, *name)).or_insert(0u32) += u32::from(*met);
            }
            if !found.iter().any(|(_, met)| *met) && case % 8 > 0 {
                continue;
            }
            match sporadic(&tasks, m, rule, Ties::Any, STATES_MAX) {
                Reachability::Safe { .. } => {}
                Reachability::Undecided => open += 1,
                Reachability::Miss { task, arrivals } => {
                    refuted += 1;
                    let wrong: Vec<_> = found.iter().filter(|(_, met)| *met).collect();
                    assert!(wrong.is_empty(), "{wrong:?}: task {task} misses\n{m} CPUs, {tasks:?}\n{arrivals:?}");
                }
            }
        }
    }
    println!("of {count} sets per rule: {yes:?} (edf, test); {refuted} miss, {open} are too large to tell");
    let seldom = yes.values().any(|yes| *yes < 50);
    assert!(count < 1_000 || !seldom && refuted > 200 && open < 100, "{yes:?} {refuted} {open}");
}

#[test]
fn stronger_tests_accept_all_that_weaker_ones_accept() {
    let (mut random, mut more) = (Random::new(2), BTreeMap::new());
    for _ in 0..20_000 {
        let (tasks, m) = small(&mut random, true);
        for (rule, weak, strong) in [
            (Rule::Edf, "bcl", "bcl-iterative"),
            (Rule::Edf, "bcl-iterative", "rta-global"),
            (Rule::Edf, "gfb", "ff-dbf"),
            (Rule::Fp, "bcl", "bcl-iterative"),
            (Rule::Fp, "bcl-iterative", "rta-global"),
            (Rule::Fp, "rta-global", "rta-lc"),
            (Rule::Fp, "bcl", "da-lc"),
            (Rule::Fp, "da-lc", "rta-lc"),
        ] {
            let found: BTreeMap<_, _> = verdicts(&tasks, m, rule).into_iter().collect();
            assert!(found[strong] || !found[weak], "{weak} alone accepts: {m} CPUs, {rule:?}, {tasks:?}");
            *more.entry((rule == Rule::Edf, strong, weak)).or_insert(0) += u32::from(found[strong] && !found[weak]);
        }
    }
    assert!(more.values().all(|more| *more > 20), "{more:?}");
}

/// The tests that bound response times.
fn bounds(tasks: &[Sporadic], m: u32, rule: Rule) -> Vec<(&'static str, Bounds, bool)> {
    let mut found = vec![
        ("bcl-iterative", bcl_iterative::analyse(tasks, m, rule), bcl_iterative::schedulable(tasks, m, rule).is_met()),
        ("rta-global", rta_global::analyse(tasks, m, rule), rta_global::schedulable(tasks, m, rule).is_met()),
    ];
    if rule == Rule::Fp {
        found.push(("rta-lc", rta_lc::analyse(tasks, m), rta_lc::schedulable(tasks, m).is_met()));
    }
    found
}

#[test]
fn no_response_exceeds_its_bound() {
    let (mut random, mut held, mut reached) = (Random::new(3), 0, 0);
    for case in 0..cases(1_500) {
        let (tasks, m) = small(&mut random, case % 3 == 0);
        for rule in [Rule::Edf, Rule::Fp] {
            for (name, bounds, met) in bounds(&tasks, m, rule) {
                assert_eq!(bounds.load.is_met(), met, "{name} {m} {rule:?} {tasks:?}");
                assert_eq!(met, bounds.responses.iter().all(Option::is_some), "{name} {m} {rule:?} {tasks:?}");
                // Under fixed priorities, what is proven does not depend on the rest.
                let proven: Vec<Sporadic> = tasks
                    .iter()
                    .zip(&bounds.responses)
                    .filter(|(_, bound)| bound.is_some())
                    .map(|(task, _)| *task)
                    .collect();
                let limits: Vec<u64> = bounds.responses.iter().flatten().copied().collect();
                if proven.is_empty() {
                    continue;
                }
                held += 1;
                match respond(&proven, &limits, m, rule, Ties::Any, STATES_MAX) {
                    Reachability::Miss { task, arrivals } => {
                        panic!("{name}: {limits:?} of {task} is exceeded: {m} CPUs, {rule:?}, {proven:?}, {arrivals:?}")
                    }
                    Reachability::Undecided => {}
                    Reachability::Safe { .. } => {
                        let k = case as usize % proven.len();
                        let mut less = limits.clone();
                        less[k] -= 1;
                        let tight = respond(&proven, &less, m, rule, Ties::Any, STATES_MAX);
                        reached += u32::from(matches!(tight, Reachability::Miss { .. }));
                    }
                }
            }
        }
    }
    println!("{held} sets of bounds hold; of {reached} a task reaches its own");
    assert!(cases(1_500) < 1_000 || held > 500 && reached > 200, "{held} {reached}");
}

/// Deadlines up to three periods: no response exceeds its bound, in schedules of random arrivals.
#[test]
fn long_deadlines_are_bounded_under_edf() {
    let (mut random, mut proven, mut long, mut most) = (Random::new(31), 0, 0, 0);
    for case in 0..cases(4_000) {
        let (mut tasks, m) = small(&mut random, case % 3 == 0);
        let analyse = |tasks: &[Sporadic]| rta_global::analyse_long(tasks, m, &mut Terms::new(rta_global::TERMS_MAX));
        assert_eq!(analyse(&tasks), rta_global::analyse(&tasks, m, Rule::Edf), "{m} {tasks:?}");
        for task in &mut tasks {
            task.d = random.between(task.d, 3 * task.t);
        }
        let bounds = analyse(&tasks);
        let limits: Vec<u64> = bounds.responses.iter().flatten().copied().collect();
        assert_eq!(bounds.load.is_met(), limits.len() == tasks.len(), "{m} {tasks:?}");
        if limits.is_empty() {
            continue;
        }
        proven += 1;
        long += u32::from(tasks.iter().any(|task| task.d > task.t));
        for _ in 0..20 {
            let sources: Vec<Source> = (tasks.iter())
                .map(|task| {
                    let offset = random.between(0, 3) * random.between(0, task.t) / 3;
                    Source { c: task.c, t: task.t, d: task.d, offset, j: task.j, level: None }
                })
                .collect();
            let jobs = brute::jobs(&sources, 60, &mut random);
            let found = brute::responses(&jobs, m as usize, tasks.len());
            let over = found.iter().zip(&limits).any(|(found, limit)| found > limit);
            assert!(!over, "{found:?} above {limits:?}: {m} CPUs, {tasks:?}, {jobs:?}");
            most += u32::from(found.iter().zip(&limits).any(|(found, limit)| found == limit));
        }
    }
    println!("{proven} proven, {long} of them with long deadlines; {most} schedules reach a bound");
    assert!(cases(4_000) < 1_000 || long > 500 && most > 1_000, "{proven} {long} {most}");
}

#[test]
fn the_search_knows_dhalls_effect() {
    let light = Sporadic { c: 2, d: 10, t: 10, ..Sporadic::default() };
    let heavy = Sporadic { c: 10, d: 11, t: 11, ..Sporadic::default() };
    let tasks = [light, light, heavy];
    let Reachability::Miss { task: 2, arrivals } = sporadic(&tasks, 2, Rule::Edf, Ties::Takt, STATES_MAX) else {
        panic!("the heavy task comes too late")
    };
    assert_eq!(arrivals, vec![(0, 0), (0, 1), (0, 2)]);
    assert!(matches!(sporadic(&tasks[1..], 2, Rule::Edf, Ties::Takt, STATES_MAX), Reachability::Safe { .. }));
    // A tie that takt breaks by the order of tasks, and another rule need not.
    let tied = [Sporadic { c: 3, d: 4, t: 4, ..light }, Sporadic { c: 1, d: 4, t: 8, ..light }];
    assert!(matches!(sporadic(&tied, 1, Rule::Edf, Ties::Takt, STATES_MAX), Reachability::Safe { .. }));
    assert_eq!(sporadic(&tied, 1, Rule::Edf, Ties::Any, 1), Reachability::Undecided);
}

#[test]
fn no_time_overflows() {
    let long = TIME_MAX;
    let tasks = vec![Sporadic { c: long / 2, d: long, t: long, ..Sporadic::default() }; 7];
    let some = [Sporadic { c: 1, d: 1_000, t: 1_000, ..Sporadic::default() }];
    let tasks = [&tasks[..], &some[..]].concat();
    for m in [1, 2, 3, 5, 1_000_000, u32::MAX] {
        for rule in [Rule::Edf, Rule::Fp] {
            let met = verdicts(&tasks, m, rule).iter().any(|(_, met)| *met);
            assert!(!met || m >= 5, "{m}");
        }
    }
    let unfit = [Sporadic { c: 1, d: 8, t: 7, ..Sporadic::default() }; 3];
    assert_eq!(bcl::schedulable(&unfit, 2, Rule::Edf), Load::Unfit { task: 0 });
    assert_eq!(bak::schedulable(&[Sporadic::default(); 3], 2), Load::Unfit { task: 0 });
    let hopeless = [Sporadic { c: 5, d: 6, t: 7, j: 2, level: 0 }; 3];
    assert_eq!(bcl::schedulable(&hopeless, 2, Rule::Edf), Load::TooLong { task: 0 });
}

/// The longest response of each task on `m` CPUs under priority points, unit by unit: random arrivals, dense or not.
fn observed(tasks: &[tardiness_cva::Gel], m: u32, random: &mut Random, units: u64) -> Vec<u64> {
    struct Job {
        task: usize,
        arrival: u64,
        left: u64,
    }
    let dense = random.between(0, 3);
    let mut next: Vec<u64> = tasks.iter().map(|task| if dense == 0 { 0 } else { random.between(0, task.t) }).collect();
    let (mut jobs, mut longest): (Vec<Job>, Vec<u64>) = (Vec::new(), vec![0; tasks.len()]);
    for now in 0..units {
        for (i, task) in tasks.iter().enumerate() {
            if next[i] <= now {
                jobs.push(Job { task: i, arrival: now, left: task.c });
                // Sometimes a pause, after which several start together.
                let pause = if dense == 2 && random.between(0, 9) == 0 { task.t } else { 0 };
                next[i] = now + task.t + random.between(0, pause);
            }
        }
        // The earliest job of each task, for jobs stand in the order of arrival.
        let mut heads: Vec<usize> =
            (0..jobs.len()).filter(|i| jobs[..*i].iter().all(|job| job.task != jobs[*i].task)).collect();
        heads.sort_by_key(|i| (jobs[*i].arrival as i64 + tasks[jobs[*i].task].y, jobs[*i].task));
        for i in heads.into_iter().take(m as usize) {
            jobs[i].left -= 1;
            if jobs[i].left == 0 {
                longest[jobs[i].task] = longest[jobs[i].task].max(now + 1 - jobs[i].arrival);
            }
        }
        jobs.retain(|job| job.left > 0);
        for job in &jobs {
            longest[job.task] = longest[job.task].max(now + 1 - job.arrival);
        }
    }
    longest
}

#[test]
fn no_response_exceeds_its_tardiness_bound() {
    use tardiness_cva::{Gel, Tardiness};
    let (mut random, mut bounded, mut tardy, mut close) = (Random::new(8), 0, 0, 0u32);
    for case in 0..cases(3_000) {
        let m = random.between(2, 4) as u32;
        let count = u64::from(m) + random.between(1, 3);
        let mut room = m as f64;
        let tasks: Vec<Gel> = (0..count)
            .map(|i| {
                let t = random.between(2, 14);
                let fair = room / (count - i) as f64 * 1.5;
                let c = ((t as f64 * fair.min(room)) as u64).clamp(1, t);
                room -= c as f64 / t as f64;
                let y = if case % 2 == 0 { t as i64 } else { random.between(0, 2 * t) as i64 - (t / 2) as i64 };
                Gel { c, t, y }
            })
            .collect();
        let cva = tardiness_cva::analyse(&tasks, m);
        let pairs: Vec<_> = tasks.iter().map(|task| (task.c, task.t)).collect();
        let over = crate::exact::compare_sum(pairs.iter().copied(), m.into()) == Some(std::cmp::Ordering::Greater);
        assert_eq!(over, cva == Tardiness::Overload, "{tasks:?}");
        let Tardiness::Bounded(cva) = cva else { continue };
        let mut bounds = vec![("cva", cva)];
        if case % 2 == 0 {
            let Tardiness::Bounded(da) = tardiness_da::analyse(&pairs, m) else { panic!("{tasks:?}") };
            bounds.push(("da", da));
        }
        bounded += 1;
        let seen = observed(&tasks, m, &mut random, 300);
        tardy += u32::from(seen.iter().zip(&tasks).any(|(seen, task)| *seen as i64 > task.y));
        for (name, bounds) in bounds {
            for (k, (seen, bound)) in seen.iter().zip(&bounds).enumerate() {
                assert!(seen <= bound, "{name}: {k} took {seen}, bound {bound}: {m} CPUs, {tasks:?}");
                close += u32::from(seen + 1 >= *bound);
            }
        }
    }
    println!("{bounded} sets, {tardy} tardy, {close} responses within one unit of a bound");
    assert!(cases(3_000) < 1_000 || bounded > 1_000 && tardy > 200, "{bounded} {tardy}");
}

#[test]
fn tardiness_by_hand() {
    use tardiness_cva::{Gel, Tardiness};
    // Three tasks (2, 3) on two CPUs: ceil(U) - 1 = 1. x = (2 - 2) / 2: DA bounds the tardiness by C = 2.
    let pairs = [(2, 3); 3];
    assert_eq!(tardiness_da::analyse(&pairs, 2), Tardiness::Bounded(vec![5; 3]));
    // s = x 2/3 + 2 with x = (s - 2) / 2: s = 2, so x = 0 too; less 3 from every Y: S = 6, s = 11, x = 5.
    let gel = [Gel { c: 2, t: 3, y: 3 }; 3];
    assert_eq!(tardiness_cva::analyse(&gel, 2), Tardiness::Bounded(vec![5; 3]));
    assert_eq!(tardiness_da::analyse(&[(2, 3), (2, 3), (3, 3)], 2), Tardiness::Overload);
    assert_eq!(tardiness_da::analyse(&[(4, 3)], 2), Tardiness::Overload);
    assert_eq!(tardiness_da::analyse(&[(2, 3), (3, 3)], 2), Tardiness::Bounded(vec![2, 3]));
}

#[test]
fn the_periodic_schedule_is_the_one_of_unit_slots() {
    use crate::brute::{completions, hyperperiod, jobs};
    use exact::{Schedule, periodic};
    let (mut random, mut met, mut missed) = (Random::new(9), 0, 0);
    for case in 0..cases(4_000) {
        let (tasks, m) = small(&mut random, false);
        let synchronous = case % 2 == 0;
        let offsets: Vec<u64> =
            tasks.iter().map(|task| if synchronous { 0 } else { random.between(0, 2 * task.t) }).collect();
        for rule in [Rule::Edf, Rule::Fp] {
            let source = |(task, offset): (&Sporadic, &u64)| Source {
                c: task.c,
                t: task.t,
                d: task.d,
                offset: *offset,
                j: 0,
                level: (rule == Rule::Fp).then_some(task.level),
            };
            let sources: Vec<Source> = tasks.iter().zip(&offsets).map(source).collect();
            let end = 24 + 3 * hyperperiod(tasks.iter().map(|task| task.t));
            let jobs = jobs(&sources, end.min(4_000), &mut random);
            let done = completions(&jobs, m as usize, tasks.len());
            let late = jobs.iter().zip(&done).filter(|(job, done)| **done > job.deadline).map(|(job, _)| job);
            let first = late.map(|job| job.deadline).min();
            match periodic(&tasks, &offsets, m, rule, 100_000) {
                Schedule::Met { .. } => {
                    assert_eq!(first, None, "{m} CPUs, {rule:?}, {tasks:?} {offsets:?}");
                    met += 1;
                }
                Schedule::Missed { task, arrival } => {
                    let deadline = arrival + tasks[task].d;
                    assert_eq!(first, Some(deadline), "{m} CPUs, {rule:?}, {tasks:?} {offsets:?}");
                    missed += 1;
                    // A set that misses from some offsets misses in the search too.
                    if missed % 16 == 0 {
                        let reach = sporadic(&tasks, m, rule, Ties::Takt, STATES_MAX);
                        assert!(matches!(reach, Reachability::Miss { .. }), "{tasks:?} {offsets:?}");
                    }
                }
                Schedule::Undecided => panic!("{tasks:?} {offsets:?}"),
            }
        }
    }
    assert!(met > 500 && missed > 100, "{met} {missed}");
    let long = [Sporadic { c: 1, d: TIME_MAX, t: TIME_MAX, ..Sporadic::default() }; 2];
    assert_eq!(periodic(&long, &[TIME_MAX, 0], 1, Rule::Edf, 9), Schedule::Met { repeats: TIME_MAX });
    assert_eq!(periodic(&[], &[], 1, Rule::Edf, 9), Schedule::Met { repeats: 0 });
}

/// A set of any size and any times, with jitter and ties: mostly near what the tests just accept.
fn any_size(random: &mut Random) -> (Vec<Sporadic>, u32) {
    let m = random.between(2, 6) as u32;
    let n = random.between(u64::from(m) + 1, 18);
    // Few ns, seconds (32 bits), more than that, and years.
    let (low, high) =
        [(2, 12), (10_000_000, 1_000_000_000), (1 << 29, 1 << 33), (1 << 52, TIME_MAX)][random.between(0, 3) as usize];
    let load = random.between(30, 80) * u64::from(m);
    let constrained = random.between(0, 1) == 0;
    let one = |random: &mut Random| {
        let t = random.log_between(low, high);
        let d = if constrained { random.between(t - t / 4, t) } else { t };
        let j = if random.between(0, 3) == 0 { random.between(0, d / 8) } else { 0 };
        let most = (u128::from(t) * u128::from(load) / 50 / u128::from(n)) as u64;
        Sporadic { c: random.between(1, most.clamp(1, d - j)), d, t, j, ..Sporadic::default() }
    };
    ((0..n).map(|_| one(random)).collect(), m)
}

/// Whether `rta-global` proves a set under EDF, by the letter of its formulas; `None` where their
/// iteration takes too long.
fn rta_by_the_letter(tasks: &[Sporadic], m: u32) -> Option<bool> {
    let mut slack = vec![0; tasks.len()];
    for _ in 0..1000 {
        let (mut all, mut grew) = (true, false);
        for (k, task) in tasks.iter().enumerate() {
            let window = task.d - task.j;
            let waits = |r: u64| {
                let work = |(i, other): (usize, &Sporadic)| {
                    let (c, t) = (other.c, other.t);
                    let x = r + other.d - c - slack[i];
                    let any = x / t * c + c.min(x % t);
                    let due = window / t * c + c.min((window % t).saturating_sub(slack[i]));
                    u128::from(any.min(due).min(r - task.c + 1))
                };
                let others = tasks.iter().enumerate().filter(|(i, _)| *i != k);
                (others.map(work).sum::<u128>() / u128::from(m)) as u64
            };
            let mut r = task.c;
            let mut rounds = 0;
            while r <= window {
                let next = task.c + waits(r);
                if next == r {
                    break;
                }
                rounds += 1;
                if rounds > 2000 {
                    return None;
                }
                r = next;
            }
            if r > window {
                all = false;
            } else if window - r > slack[k] {
                (slack[k], grew) = (window - r, true);
            }
        }
        if all || !grew {
            return Some(all);
        }
    }
    None
}

/// A verdict found in the fast order is that of all rounds in the paper's order, for sets of every size.
#[test]
fn the_verdict_does_not_depend_on_the_order_of_rounds() {
    let (mut random, mut found) = (Random::new(23), BTreeMap::<_, [u32; 2]>::new());
    for case in 0..cases(300).min(50_000) {
        let (tasks, m) = any_size(&mut random);
        for (name, bounds, fast) in [
            (
                "bcl-iterative",
                bcl_iterative::analyse(&tasks, m, Rule::Edf),
                bcl_iterative::schedulable(&tasks, m, Rule::Edf),
            ),
            ("rta-global", rta_global::analyse(&tasks, m, Rule::Edf), rta_global::schedulable(&tasks, m, Rule::Edf)),
        ] {
            if let Load::Undecided(_) = bounds.load {
                continue;
            }
            assert_eq!(bounds.load.is_met(), fast.is_met(), "case {case}, {name} on {m}: {tasks:?}");
            found.entry(name).or_default()[usize::from(fast.is_met())] += 1;
        }
        if let Some(met) = rta_by_the_letter(&tasks, m) {
            assert_eq!(met, rta_global::schedulable(&tasks, m, Rule::Edf).is_met(), "case {case} on {m}: {tasks:?}");
            found.entry("by the letter").or_default()[usize::from(met)] += 1;
        }
    }
    assert!(found.values().flatten().all(|count| *count > 20), "{found:?}");
}

/// 10^5 tasks on four CPUs: quadratic tests stop at their limits, and a day is not lost.
#[test]
fn too_much_work_is_an_answer() {
    let task = |i: u64| Sporadic { c: 20_000, d: 1_000_000_000 + i, t: 1_000_000_000 + i, level: i as u32, j: 0 };
    let tasks: Vec<Sporadic> = (0..100_000).map(task).collect();
    assert_eq!(bak::schedulable(&tasks, 4), Load::Undecided(Limit::Terms(bak::TERMS_MAX)));
    assert_eq!(bcl::schedulable(&tasks, 4, Rule::Edf), Load::Undecided(Limit::Terms(bcl::TERMS_MAX)));
    assert_eq!(da_lc::schedulable(&tasks, 4), Load::Undecided(Limit::Terms(da_lc::TERMS_MAX)));
}
