//! Systems of every placement: what is proven of them is never seen to fail, and each CPU is proven as if alone.

use takt_analysis::{Answer, CheckOptions, check, place};
use takt_model::generate::Random;
use takt_model::{Arrival, Builtin, Costs, CpuSet, Criticality, Exec, Placement, Span, System, Task, TaskId};

use super::simulated;

fn us(us: u64) -> Span {
    Span::from_us(us)
}

const PERIODS_US: [u64; 8] = [2000, 3000, 4000, 5000, 6000, 8000, 10_000, 12_000];

/// A small system: every placement, the strategies that have tests, jitter, offsets, chains, costs.
fn random_system(random: &mut Random) -> System {
    let strategies =
        [Builtin::Fp, Builtin::Rm, Builtin::Dm, Builtin::Edf, Builtin::Edf, Builtin::Fifo, Builtin::RmsMlf];
    let strategy = strategies[random.between(0, strategies.len() as u64 - 1) as usize];
    let cpus = random.between(1, 3) as u32;
    let count = random.between(1, 3) * u64::from(cpus);
    let rough = random.between(0, 1) == 0;
    let mut tasks: Vec<Task> = Vec::new();
    for i in 0..count as usize {
        let mut t = us(PERIODS_US[random.between(0, 7) as usize]);
        let before = random.between(0, i as u64 * 3) as usize;
        let after = if rough && before < i { vec![TaskId(before as u32)] } else { Vec::new() };
        if let Some(before) = after.first() {
            t = tasks[before.index()].period;
        }
        let c = Span::from_ns(random.between(100_000, t.as_ns() / 3));
        let d = Span::from_ns(random.between((c.as_ns() + t.as_ns()) / 2, t.as_ns()));
        let mut task =
            Task { deadline: d, priority: Some(random.between(1, 4) as u32), ..Task::periodic(&format!("t{i}"), t, c) };
        if rough && after.is_empty() {
            task.offset = Span::from_ns(random.between(0, t.as_ns()));
            task.jitter = Span::from_ns(random.between(0, t.as_ns() / 4) * random.between(0, 1));
            if random.between(0, 3) == 0 {
                task.arrival = Arrival::Sporadic;
            }
        }
        if rough && random.between(0, 1) == 0 {
            task.exec = Exec::Uniform { min: Span::from_ns(1), max: c };
        }
        if random.between(0, 5) == 0 {
            task.criticality = Criticality::Low;
        }
        task.after = after;
        tasks.push(task);
    }
    let mut system = System::local(cpus, strategy, tasks);
    let node = &mut system.nodes[0];
    node.placement = match random.between(0, 3) {
        0 if cpus > 1 => Placement::Clustered { cpus: 2 },
        1 | 2 => Placement::Partitioned,
        _ => Placement::Global,
    };
    if random.between(0, 2) == 0 {
        node.costs = Some(Costs {
            switch: us(random.between(0, 60)),
            migrate: us(random.between(0, 60)),
            release: us(random.between(0, 30)),
            tick: us(random.between(0, 20)),
            tick_period: us(random.between(500, 2000)),
            ..Costs::NONE
        });
    }
    system
}

#[test]
fn proven_placements_miss_no_deadline_in_simulation() {
    let mut random = Random::new(2024);
    let (mut proven, mut bounded, mut chains) = (0, 0, 0);
    for round in 0..3000 {
        let system = random_system(&mut random);
        let report = check(&system, &CheckOptions { all: round % 2 == 0, ..CheckOptions::default() });
        let Ok(placed) = place(&system) else {
            assert_ne!(report.schedulable, Answer::Yes, "round {round}: not placed, yet proven");
            continue;
        };
        let stats = simulated(&placed.system, round, us(120_000).as_ns());
        let shown = || format!("round {round}: {}\n{system:#?}", serde_json::to_string_pretty(&report).unwrap());
        let missed: u64 = stats.tasks.iter().map(|task| task.missed.unwrap_or(0) + task.cancelled).sum();
        if report.schedulable == Answer::Yes {
            proven += 1;
            assert_eq!(missed, 0, "{}", shown());
        }
        for (i, task) in stats.tasks.iter().enumerate() {
            let Some((bound, seen)) = report.bound_of(TaskId(i as u32)).zip(task.response_ns.as_ref()) else {
                continue;
            };
            bounded += 1;
            assert!(seen.max <= bound.as_ns(), "{} > {bound} of {}: {}", seen.max, task.task, shown());
        }
        for chain in &stats.chains {
            let Some((bound, seen)) = report.chain_bound(&chain.chain).zip(chain.response_ns.as_ref()) else {
                continue;
            };
            chains += 1;
            assert!(seen.max <= bound.as_ns(), "{} > {bound} of {}: {}", seen.max, chain.chain, shown());
        }
    }
    assert!(proven > 100 && bounded > 300 && chains > 20, "{proven} {bounded} {chains}");
}

#[test]
fn a_placement_is_proven_bin_by_bin() {
    let mut random = Random::new(99);
    let mut count = 0;
    for round in 0..500 {
        let mut system = random_system(&mut random);
        system.nodes[0].placement = Placement::Partitioned;
        let Ok(placed) = place(&system) else { continue };
        for (before, after) in system.tasks.iter().zip(&placed.system.tasks) {
            let cpus = after.cpus.expect("placed");
            assert_eq!(cpus.len(), 1);
            assert!(before.cpus.is_none_or(|own| cpus.is_subset(&own)));
        }
        // Each CPU alone, as a system of its own where no chain crosses.
        if system.tasks.iter().any(|task| !task.after.is_empty()) {
            continue;
        }
        for cpu in 0..system.nodes[0].cpus {
            let here = CpuSet::from_iter([cpu]);
            let tasks = placed.system.tasks.iter().filter(|task| task.cpus == Some(here));
            let tasks: Vec<Task> = tasks.map(|task| Task { cpus: None, ..task.clone() }).collect();
            let mut alone = System::local(1, Builtin::Edf, tasks);
            alone.nodes[0].costs = system.nodes[0].costs;
            alone.nodes[0].strategy = system.nodes[0].strategy;
            let proven = placed.nodes[0].bins[cpu as usize].unproven.is_none();
            let report = check(&alone, &CheckOptions::default());
            assert_eq!(report.schedulable == Answer::Yes, proven, "round {round} cpu {cpu}");
            count += usize::from(proven);
        }
    }
    assert!(count > 100, "{count}");
}
