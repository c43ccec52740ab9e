//! Certificates against simulation: an accepted "schedulable", found or forged, has no miss.

#[allow(dead_code, unreachable_pub, reason = "shared with the simulator's own tests")]
#[path = "../../sim/tests/common/random.rs"]
mod random;

use random::{Dice, cases};
use takt_analysis::{Uncertified, certify, size, verify};
use takt_log::{Definitions, stats::Collector};
use takt_model::*;
use takt_sim::{SimOptions, simulate};

fn misses(system: &System) -> u64 {
    let each = |seed: u64| {
        let mut collector = Collector::new(&Definitions::of(system), takt_sim::KINDS);
        let options = SimOptions { duration: Span::from_ns(2_000), seed, node: None };
        let done = simulate(system, &options, &mut collector).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
        let stats = collector.finish(done.end);
        stats.tasks.iter().map(|task| task.missed.expect("a simulation knows its misses")).sum::<u64>()
    };
    (0..3).map(each).sum()
}

/// Fits a random system to the assumptions of analyses, and lightens it until a proof is possible.
fn tame(system: &mut System, dice: &mut Dice) {
    system.modes.clear();
    for task in &mut system.tasks {
        let most = (task.period.as_ns() / 4).max(1);
        task.wcet = Span::from_ns(task.wcet.as_ns().clamp(1, most));
        task.exec = if dice.chance(50) { Exec::Wcet } else { Exec::Uniform { min: Span::ZERO, max: task.wcet } };
        if matches!(task.arrival, Arrival::Pmf(_) | Arrival::Trace(_)) {
            task.arrival = Arrival::Sporadic;
        }
    }
}

#[test]
fn certified_systems_miss_no_deadline_in_simulation() {
    let (mut shown, mut forged, mut kinds) = (0u64, 0u64, std::collections::BTreeSet::new());
    for seed in 0..cases(250) {
        let mut dice = Dice::new(seed);
        let mut system = random::system(&mut dice);
        random::ordinary_threads(&mut dice, &mut system);
        tame(&mut system, &mut dice);
        let Ok(found) = certify(&system) else { continue };
        if !found.schedulable {
            continue;
        }
        shown += 1;
        kinds.extend(found.proofs.iter().map(|unit| unit.proof.kind()));
        // The proof holds for the placement that it names.
        let placed = |system: &System| {
            let mut system = system.clone();
            for place in &found.placement {
                let id = system.task_by_name(&place.task).expect("a task of the system");
                system.tasks[id.index()].cpus = Some(place.cpus.iter().copied().collect());
            }
            system
        };
        assert_eq!(misses(&placed(&system)), 0, "seed {seed}: {system:#?}");
        // The same claims about a worse system: as long as they are accepted they must hold.
        for _ in 0..4 {
            let i = dice.roll(0, system.tasks.len() as u64 - 1) as usize;
            let task = &mut system.tasks[i];
            match dice.roll(0, 3) {
                0 => task.wcet = Span::from_ns(task.wcet.as_ns() + 1),
                3 => task.preemption = Preemption::Until(task.wcet),
                1 => task.deadline = Span::from_ns((task.deadline.as_ns() - 1).max(1)),
                _ => task.jitter = Span::from_ns(task.jitter.as_ns() + 1),
            }
            if matches!(task.exec, Exec::Uniform { .. }) {
                task.exec = Exec::Uniform { min: task.wcet, max: task.wcet };
            }
            let claims = verify::Certificate { system: file::write(&system), ..found.clone() };
            if verify::accept(&system, &claims).is_ok() {
                forged += 1;
                assert_eq!(misses(&placed(&system)), 0, "seed {seed}, forged: {system:#?}");
            }
        }
    }
    assert!(shown > cases(250) / 20 && forged > 0, "{shown} shown, {forged} forged: {kinds:?}");
    assert!(cases(250) < 250 || kinds.contains("levels"), "{kinds:?}");
}

/// Users try the examples first.
#[test]
fn the_examples_are_certified() {
    let expected = [
        ("adaptive", "no"),
        ("avionics", "unknown"),
        ("blocking", "no"),
        ("dhall", "no"),
        ("graham", "unknown"),
        ("multicore-global", "no"),
        ("multicore-partitioned", "yes"),
        ("packing", "yes"),
        ("partitions", "yes"),
        ("pictures", "unknown"),
        ("quickstart", "yes"),
        ("rm-or-edf", "no"),
        ("robot-dm", "yes"),
        ("robot-edf", "yes"),
        (
            "store",
            "not certified: the system has flows, modes, or receiving and sending tasks; certificates of this \
             version hold no proof of that",
        ),
        ("swapped", "no"),
        ("switched", "unknown"),
        ("to-the-end", "yes"),
        ("tour", "unknown"),
        ("turns", "yes"),
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(&folder).expect("there are examples");
    let files =
        files.filter(|file| file.as_ref().is_ok_and(|file| file.path().extension().is_some_and(|end| end == "toml")));
    assert_eq!(files.count(), expected.len());
    for (name, expected) in expected {
        let text = std::fs::read_to_string(folder.join(format!("{name}.toml"))).expect("an example");
        let mut system = file::parse(&text, name).expect("a system");
        let read = |trace: &str| std::fs::read_to_string(folder.join(trace)).map_err(|error| error.to_string());
        file::load_traces(&mut system, read).expect("its traces");
        if matches!(certify(&system), Err(Uncertified::Unsized(_)))
            && let Ok(sized) = size(&system)
        {
            system = sized.system;
        }
        let found = match certify(&system) {
            Ok(certificate) => {
                let text = serde_json::to_string(&certificate).expect("JSON");
                let accepted = verify::verify(&system, &text).expect("what is written is accepted");
                if accepted.schedulable { "yes".to_owned() } else { "no".to_owned() }
            }
            Err(Uncertified::NoProof(why)) => Uncertified::NoProof(why).to_string(),
            Err(_) => "unknown".to_owned(),
        };
        assert_eq!(found, expected, "{name}");
    }
}
