//! The simulator against the slow, obvious one: the same events, job by job.

mod common;

use common::random::{self, Dice, seeds};
use common::{by_job, reference::reference, streams};
use takt_model::*;

fn compare(system: &System, seed: u64, duration: u64, replay: &str) {
    let events = streams(system, seed, duration);
    for node in (0..system.nodes.len()).map(|node| NodeId(node as u32)) {
        let own = events.iter().filter(|(of, ..)| *of == node).map(|(_, at, event)| (*at, *event)).collect();
        let (fast, slow) = (by_job(own), by_job(reference(system, node, seed, duration)));
        if fast == slow {
            continue;
        }
        if std::env::var("TAKT_DEBUG").is_ok() {
            println!("FAST\n{}SLOW\n{}", lines(&fast), lines(&slow));
        }
        let at = fast.iter().zip(&slow).position(|(a, b)| a != b).unwrap_or(fast.len().min(slow.len()));
        let around = at.saturating_sub(8);
        panic!(
            "{replay}\n{system:?}\nnode {}: first difference at event {at}\nsimulator:\n{}reference:\n{}",
            node.0,
            lines(&fast[around..fast.len().min(at + 3)]),
            lines(&slow[around..slow.len().min(at + 3)])
        );
    }
}

fn lines(events: &[(u64, takt_log::Event)]) -> String {
    events.iter().map(|(at, event)| format!("  {at} {event:?}\n")).collect()
}

#[test]
fn random_systems_run_as_the_reference_says() {
    for seed in seeds(10_000) {
        let mut dice = Dice::new(seed);
        let mut system = random::system(&mut dice);
        random::ordinary_threads(&mut dice, &mut system);
        let duration = dice.roll(20, 70);
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test against_reference");
        compare(&system, seed, duration, &replay);
    }
}

/// All systems of three tasks with periods 2 to 4 and executions 1 to 2, each named strategy, one and two CPUs,
/// whole hyperperiods.
#[test]
fn every_small_world_runs_as_the_reference_says() {
    let shapes: Vec<(u64, u64)> = (2..=4).flat_map(|period| (1..=2).map(move |wcet| (period, wcet))).collect();
    for (a, b, c) in all_triples(&shapes) {
        let tasks: Vec<Task> = [a, b, c]
            .iter()
            .zip(["a", "b", "c"])
            .enumerate()
            .map(|(i, ((period, wcet), name))| Task {
                priority: Some(1 + i as u32 / 2),
                criticality: if i == 1 { Criticality::Low } else { Criticality::High },
                ..Task::periodic(name, Span::from_ns(*period), Span::from_ns(*wcet))
            })
            .collect();
        for (strategy, cpus) in Builtin::ALL.into_iter().flat_map(|strategy| [(strategy, 1), (strategy, 2)]) {
            compare(&System::local(cpus, strategy, tasks.clone()), 0, 24, "every_small_world");
        }
    }
}

fn all_triples<T: Copy>(of: &[T]) -> impl Iterator<Item = (T, T, T)> + '_ {
    of.iter().flat_map(move |a| of.iter().flat_map(move |b| of.iter().map(move |c| (*a, *b, *c))))
}
