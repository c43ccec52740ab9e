//! Components on several CPUs: the simulator against a slow one, unit by unit, and a schedule by hand.

mod common;

use common::clusters::run;
use common::random::{self, Dice, seeds};
use common::{compare, simulated};
use takt_log::Event;
use takt_model::*;

/// The running tasks and the paying servers of each unit, from the log.
fn units(system: &System, duration: u64) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut units = vec![(Vec::new(), Vec::new()); duration as usize];
    let mut since = vec![None; system.tasks.len()];
    let mut cpus = vec![None; system.nodes[0].cpus as usize];
    for (at, event) in simulated(system, 0, duration) {
        match event {
            Event::Start { job, cpu } | Event::Resume { job, cpu } => {
                since[job.task.index()] = Some(at);
                assert_eq!(cpus[cpu as usize].replace(job), None, "CPU {cpu} is free at {at}");
            }
            Event::Preempt { job, cpu } | Event::Complete { job, cpu } => {
                let from = since[job.task.index()].take().expect("it runs");
                (from..at).for_each(|unit| units[unit as usize].0.push(job.task.index()));
                assert_eq!(cpus[cpu as usize].take(), Some(job), "it has CPU {cpu} at {at}");
            }
            Event::Charge { server, since, amount, .. } => {
                let of = &system.components[server as usize];
                let count = match of.cpus {
                    // `grub` pays less than the time.
                    1 => 1,
                    _ => amount.as_ns() / (at - since.as_ns()),
                };
                for unit in since.as_ns()..at {
                    (0..count).for_each(|_| units[unit as usize].1.push(server as usize));
                }
            }
            _ => {}
        }
    }
    for (task, since) in since.iter().enumerate() {
        let from = since.unwrap_or(duration);
        (from..duration).for_each(|unit| units[unit as usize].0.push(task));
    }
    for (tasks, payers) in &mut units {
        tasks.sort_unstable();
        payers.sort_unstable();
    }
    units
}

fn random_system(dice: &mut Dice) -> System {
    let cpus = dice.roll(2, 4);
    let mut system = System::local(cpus as u32, dice.pick(&Builtin::ALL), Vec::new());
    // Powers of two keep the bandwidths of `grub` exact.
    let exact = dice.chance(40);
    let periods = if exact { vec![4, 8, 16] } else { vec![3, 4, 5, 6, 8, 10, 12] };
    let grid = if dice.chance(25) { dice.roll(2, 3) } else { 0 };
    let only = dice.pick(&[ServerRule::Ptps, ServerRule::Wcps, ServerRule::Crps]);
    let mixed = dice.chance(60);
    for i in 0..dice.roll(1, 5) {
        let mut component = Component::new(&format!("c{i}"), NodeId(0), only);
        component.parent = (i > 0 && dice.chance(35)).then(|| ComponentId(dice.roll(0, i - 1) as u32));
        let most = component.parent.map_or(cpus, |id| u64::from(system.components[id.index()].cpus));
        component.cpus = if dice.chance(40) { 1 } else { dice.roll(1, most) as u32 };
        if mixed {
            component.server = dice.pick(rules(most, exact));
        }
        component.strategy = StrategyRef::Builtin(dice.pick(&Builtin::ALL));
        let period = dice.pick(&periods);
        let budget = dice.ns(1, (period * u64::from(component.cpus)).div_ceil(2));
        (component.period, component.budget) = (Auto::Value(Span::from_ns(period)), Auto::Value(budget));
        component.quantum = (grid > 0 && dice.chance(70)).then(|| Span::from_ns(grid));
        component.priority = Some(dice.roll(1, 3) as u32);
        system.components.push(component);
    }
    for i in 0..dice.roll(2, 8) {
        let period = dice.pick(&periods) * dice.roll(1, 2);
        let mut task = Task::periodic(&format!("t{i}"), Span::from_ns(period), dice.ns(1, period.div_ceil(2)));
        task.offset = dice.ns(0, 5);
        task.priority = Some(dice.roll(1, 3) as u32);
        task.criticality = dice.pick(&[Criticality::High, Criticality::Low]);
        task.deadline = if dice.chance(30) { dice.ns(1, period) } else { task.deadline };
        let place = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        task.component = dice.chance(85).then_some(place);
        system.tasks.push(task);
    }
    for _ in 0..if dice.chance(40) { dice.roll(1, 3) } else { 0 } {
        let component = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        let at = Time::from_ns(dice.roll(0, 40));
        if system.switches.iter().any(|switch| (switch.component, switch.at) == (component, at)) {
            continue;
        }
        let of = &system.components[component.index()];
        let around = of.parent.map_or(cpus, |id| u64::from(system.components[id.index()].cpus));
        let period = dice.pick(&periods);
        let budget = dice.ns(1, (period * u64::from(of.cpus)).div_ceil(2));
        let server = dice.chance(80).then(|| dice.pick(rules(around, exact)));
        let (period, budget) = (Some(Span::from_ns(period)), Some(budget));
        system.switches.push(ServerSwitch { component, at, server, period, budget });
    }
    random::costs_and_comparisons(dice, &mut system);
    system
}

/// The rules of servers that compete for so many CPUs.
fn rules(cpus: u64, exact: bool) -> &'static [ServerRule] {
    if cpus == 1 && exact { &ServerRule::ALL } else { &ServerRule::ALL[..8] }
}

#[test]
fn random_clusters_run_as_the_reference_says() {
    for seed in seeds(2_000) {
        let mut dice = Dice::new(seed);
        let system = random_system(&mut dice);
        let duration = dice.roll(30, 90);
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test clusters");
        compare(&system, &units(&system, duration), &run(&system, duration), &replay);
    }
}

/// Two CPUs. V has two servers of 2 every 6 for three jobs of 2; they go before the node's task.
#[test]
fn a_component_has_a_cpu_for_each_server_that_pays() {
    let mut system = System::local(2, Builtin::Edf, Vec::new());
    let component = Component::new("V", NodeId(0), ServerRule::Ptps);
    let (period, budget) = (Auto::Value(Span::from_ns(6)), Auto::Value(Span::from_ns(4)));
    system.components.push(Component { period, budget, cpus: 2, ..component });
    for name in ["a", "b", "c", "n"] {
        let task = Task::periodic(name, Span::from_ns(12), Span::from_ns(2));
        system.tasks.push(Task { component: (name != "n").then_some(ComponentId(0)), ..task });
    }
    let shown: Vec<String> = units(&system, 9)
        .into_iter()
        .map(|(tasks, payers)| {
            let names: String = tasks.iter().map(|task| system.tasks[*task].name.as_str()).collect();
            format!("{names}{}", "$".repeat(payers.len()))
        })
        .collect();
    assert_eq!(shown, ["ab$$", "ab$$", "n", "n", "", "", "c$$", "c$$", ""]);
}
