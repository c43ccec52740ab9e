//! The simulator refutes no proof of the global tests: per test, not only for their combined
//! verdict.

use takt_analysis::Answer;
use takt_model::*;

use super::random::{Dice, seeds};
use super::{checked, replay, simulated};

/// Tests of several CPUs.
const GLOBAL: &[&str] = &[
    "gfb",
    "bak",
    "bcl",
    "bcl-iterative",
    "da-lc",
    "rta-global",
    "rta-lc",
    "bar",
    "ff-dbf",
    "exact",
    "tardiness-da",
    "tardiness-cva",
];

/// Two to four CPUs, one to three tasks more, short periods; sometimes jitter, costs, a chain.
fn system(dice: &mut Dice) -> System {
    let cpus = dice.roll(2, 4);
    let count = cpus + dice.roll(0, 3);
    let costly = dice.chance(25);
    let scale = if costly { dice.roll(2, 12) } else { dice.roll(1, 2) };
    let jittery = dice.chance(30);
    let tasks: Vec<Task> = (0..count)
        .map(|i| {
            let period = dice.roll(3, 16) * scale;
            let heavy = if dice.chance(35) { 1 } else { 3 };
            let wcet = dice.roll(1, (period / heavy / scale).max(1));
            let jitter = if jittery { dice.roll(0, (period - wcet) / 4) } else { 0 };
            Task {
                deadline: dice.ns((wcet + jitter).max(period / 2), period),
                jitter: Span::from_ns(jitter),
                offset: dice.ns(0, period),
                arrival: dice.pick(&[Arrival::Periodic, Arrival::Periodic, Arrival::Sporadic]),
                exec: dice.pick(&[Exec::Wcet, Exec::Uniform { min: Span::ZERO, max: Span::from_ns(wcet) }]),
                priority: Some(dice.roll(1, i + 1) as u32),
                ..Task::periodic(&format!("t{i}"), Span::from_ns(period), Span::from_ns(wcet))
            }
        })
        .collect();
    let strategy = dice.pick(&[Builtin::Edf, Builtin::Edf, Builtin::Fp, Builtin::Dm, Builtin::Rm, Builtin::Fifo]);
    let mut system = System::local(cpus as u32, strategy, tasks);
    if dice.chance(25) {
        let (first, rest) = system.tasks.split_at_mut(1);
        rest[0].after = vec![TaskId(0)];
        rest[0].period = first[0].period;
        if dice.chance(50) {
            // As where the file says nothing, or later.
            first[0].deadline = first[0].period;
            rest[0].deadline = Span::from_ns(first[0].period.as_ns() * dice.roll(2, 4) / 2);
        } else {
            rest[0].deadline = rest[0].deadline.min(first[0].period);
            first[0].deadline = Span::from_ns(first[0].deadline.as_ns() / 2).max(first[0].wcet);
        }
        rest[0].offset = Span::ZERO;
        rest[0].arrival = Arrival::Periodic;
    }
    system.nodes[0].costs = costly.then(|| Costs {
        switch: dice.ns(0, 1),
        migrate: dice.ns(0, 1),
        release: dice.ns(0, 1),
        tick: dice.ns(0, 1),
        tick_period: dice.ns(8, 40),
        ordinary: dice.ns(0, 2),
        ordinary_period: dice.ns(40, 90),
        ..Costs::NONE
    });
    system
}

#[test]
fn no_global_yes_is_refuted_by_a_simulation() {
    let mut proved = vec![0u32; GLOBAL.len()];
    let (mut bounded, range) = (0u32, seeds(4_000));
    let many = range.end - range.start >= 1_000;
    for seed in range {
        let system = system(&mut Dice::new(seed));
        let report = checked(&system);
        let tests = || report.tests.iter().filter(|test| GLOBAL.contains(&test.test.name()));
        if !tests().any(|test| test.verdict.answer() == Answer::Yes || test.tasks.iter().any(|t| t.wcrt.is_some())) {
            continue;
        }
        let stats = simulated(&system, seed, 1_000);
        let missed: Vec<u64> = stats.tasks.iter().map(|task| task.missed.unwrap_or(0)).collect();
        for test in tests() {
            let name = test.test.name();
            let replay = replay(seed, "no_global_yes");
            let grid = test.figures.contains_key("grid_ns");
            let longest = system.tasks.iter().all(|task| task.exec == Exec::Wcet);
            // The offsets are below 200, and what the schedule does within two hyperperiods it does.
            let length = system.hyperperiod().map_or(u64::MAX, |all| 2 * all.as_ns() + 200);
            if name == "exact" && test.verdict.answer() == Answer::No && !grid && longest && length < 50_000 {
                let missed = simulated(&system, seed, length).tasks.iter().filter_map(|task| task.missed).sum::<u64>();
                assert!(missed > 0, "{replay}\n{name} sees a miss\n{system:#?}");
            }
            if test.verdict.answer() == Answer::Yes {
                let place = GLOBAL.iter().position(|known| *known == name).expect("filtered");
                proved[place] += 1;
                assert_eq!(missed.iter().sum::<u64>(), 0, "{replay}\n{name} proves what misses\n{system:#?}");
            }
            for task in &test.tasks {
                let stats = &stats.tasks[task.id.index()];
                assert!(task.verdict != Answer::Yes || stats.missed == Some(0), "{replay}\n{name}: {}", task.task);
                if let (Some(bound), Some(observed)) = (task.wcrt, &stats.response_ns) {
                    bounded += 1;
                    let (bound, observed) = (bound.as_ns(), observed.max);
                    assert!(
                        observed <= bound,
                        "{replay}\n{name}: {} took {observed}, bound {bound}\n{system:#?}",
                        task.task
                    );
                }
            }
        }
    }
    let seldom: Vec<_> =
        GLOBAL.iter().zip(&proved).filter(|(name, count)| **count < 50 && !name.starts_with("tardiness")).collect();
    assert!(!many || (seldom.is_empty() && bounded > 500), "hardly put to the test: {seldom:?}; {bounded} bounds");
}
