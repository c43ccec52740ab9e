//! Exact partitioning against all assignments.
#![cfg(feature = "ilp")]

use takt_analysis::{PlaceError, place};
use takt_model::generate::Random;
use takt_model::{Builtin, CpuSet, Fit, Placement, Span, System, Task};

fn cases(default: u64) -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// A node of up to four CPUs or clusters of two, tasks that fill it, some of them bound or with few CPUs.
fn system(random: &mut Random) -> System {
    let cpus = random.between(2, 4) as u32;
    let count = random.between(3, 6) as usize;
    let strategy = [Builtin::Edf, Builtin::Rm, Builtin::Dm, Builtin::Mlf][random.between(0, 3) as usize];
    let tasks = (0..count)
        .map(|i| {
            let period = [4, 5, 6, 8, 10, 12][random.between(0, 5) as usize];
            let share = period * u64::from(cpus) / count as u64;
            let wcet = random.between((share / 2).max(1), (share + 2).min(period));
            let mut task = Task::periodic(&format!("t{i}"), Span::from_ns(period), Span::from_ns(wcet));
            task.deadline = Span::from_ns(random.between(period.min(wcet + 2), period));
            if random.between(0, 5) == 0 {
                task.cpus = Some(CpuSet::range(0, random.between(1, u64::from(cpus)) as u32));
            }
            task
        })
        .collect();
    let mut system = System::local(cpus, strategy, tasks);
    system.nodes[0].placement = Placement::Partitioned;
    if cpus == 4 && strategy == Builtin::Edf && random.between(0, 1) == 0 {
        system.nodes[0].placement = Placement::Clustered { cpus: 2 };
    }
    system.nodes[0].fit = Fit::Ilp;
    system
}

/// Whether some assignment passes, all of them tried with every task bound by hand.
fn any_passes(system: &System) -> bool {
    let clusters = system.nodes[0].clusters();
    let bins = clusters.len();
    let all = bins.pow(system.tasks.len() as u32);
    (0..all).any(|number| {
        let mut bound = system.clone();
        let mut rest = number;
        for task in &mut bound.tasks {
            let here = clusters[rest % bins];
            rest /= bins;
            let cpus = task.cpus.map_or(here, |own| own.intersection(&here));
            if cpus.is_empty() {
                return false;
            }
            task.cpus = Some(cpus);
        }
        // With all bound, placing does no more than test each bin.
        let placed = place(&bound).expect("nothing is left to place");
        placed.nodes[0].bins.iter().all(|bin| bin.unproven.is_none())
    })
}

#[test]
fn a_partition_is_found_wherever_there_is_one() {
    let (mut found, mut beyond, mut none) = (0, 0, 0);
    for seed in 0..cases(400) {
        let system = system(&mut Random::new(seed));
        let there_is = any_passes(&system);
        match place(&system) {
            Ok(placed) => {
                let bound_badly = placed.nodes[0].bins.iter().any(|bin| bin.unproven.is_some());
                assert_eq!(there_is, !bound_badly, "seed {seed}\n{system:#?}");
                found += 1;
                let fits = [Fit::WorstFit, Fit::FirstFit, Fit::BestFit].map(|fit| {
                    let mut system = system.clone();
                    system.nodes[0].fit = fit;
                    place(&system).is_ok()
                });
                beyond += u32::from(fits == [false; 3]);
            }
            Err(PlaceError::NoPartition { tasks, .. }) => {
                assert!(!there_is, "seed {seed}: a partition was overlooked\n{system:#?}");
                // The blamed alone have none, and each is needed for that.
                let mut blamed = system.clone();
                let clusters = system.nodes[0].clusters();
                let by_hand =
                    |task: &Task| task.cpus.is_some_and(|cpus| clusters.iter().any(|bin| cpus.is_subset(bin)));
                blamed.tasks.retain(|task| tasks.contains(&task.name) || by_hand(task));
                assert!(!any_passes(&blamed), "seed {seed}: {tasks:?} can be placed\n{system:#?}");
                none += 1;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(
        cases(400) < 400 || (found > 100 && beyond > 3 && none > 50),
        "{found} found, {beyond} by the program alone, {none} none"
    );
}

#[test]
fn a_partition_that_no_fit_heuristic_finds_is_found() {
    // 5 + 5, 4 + 3 + 3: every fit begins with 5, 5 apart.
    let sizes = [5, 5, 4, 3, 3];
    let tasks =
        sizes.iter().enumerate().map(|(i, c)| Task::periodic(&format!("t{i}"), Span::from_ms(10), Span::from_ms(*c)));
    let mut system = System::local(2, Builtin::Edf, tasks.collect());
    system.nodes[0].placement = Placement::Partitioned;
    system.nodes[0].fit = Fit::Ilp;
    let placed = place(&system).unwrap();
    assert!(placed.nodes[0].bins.iter().all(|bin| bin.utilization_ppm == Some(1_000_000)));
    system.tasks.push(Task::periodic("more", Span::from_ms(1000), Span::from_ms(1)));
    let error = place(&system).unwrap_err().to_string();
    assert!(error.contains("no partition passes") && error.contains("more"), "{error}");
}

#[test]
fn many_tasks_end_within_the_limits() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let tasks = (0..14).map(|i| {
            let period = random.between(10_000, 1_000_000);
            Task::periodic(
                &format!("t{i}"),
                Span::from_us(period),
                Span::from_us(period * random.between(120, 270) / 1000),
            )
        });
        let mut system = System::local(3, Builtin::Rm, tasks.collect());
        system.nodes[0].placement = Placement::Partitioned;
        system.nodes[0].fit = Fit::Ilp;
        match place(&system) {
            Ok(placed) => assert!(placed.nodes[0].bins.iter().all(|bin| bin.unproven.is_none())),
            Err(PlaceError::NoPartition { .. } | PlaceError::Undecided { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
