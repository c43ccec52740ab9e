//! Random systems with components.

use takt_model::*;

use super::random::{self, Dice};

/// A node of one CPU with components under all rules, nested, and the simulator's random tasks in them.
pub(super) fn random_system(dice: &mut Dice) -> System {
    on_cpus(dice, 1)
}

/// The same on several CPUs that share tasks: of a global node, or of a partitioned one with wide components.
pub(super) fn shared_system(dice: &mut Dice) -> System {
    let cpus = dice.roll(2, 4) as u32;
    let mut system = on_cpus(dice, cpus);
    if dice.chance(30) {
        system.nodes[0].placement = Placement::Partitioned;
        for component in system.components.iter_mut().filter(|component| component.parent.is_none()) {
            let first = dice.roll(0, u64::from(cpus) - 1) as u32;
            component.server_cpus = (0..component.cpus).map(|at| (first + at) % cpus).collect();
        }
        for task in system.tasks.iter_mut().filter(|task| task.component.is_none()) {
            let cpu = dice.roll(0, u64::from(cpus) - 1) as u32;
            task.cpus = Some(CpuSet::range(cpu, cpu + 1));
        }
    }
    system
}

fn on_cpus(dice: &mut Dice, cpus: u32) -> System {
    let mut system = random::one_node(dice, "t");
    (system.nodes[0].cpus, system.nodes[0].placement, system.nodes[0].costs) = (cpus, Placement::Global, None);
    // The file refuses `grub` on several CPUs.
    let rules = if cpus == 1 { &ServerRule::ALL[..] } else { &ServerRule::ALL[..8] };
    let strategy = |dice: &mut Dice, system: &System| match system.strategies.len() as u64 {
        own if own > 0 && dice.chance(50) => StrategyRef::Own(StrategyId(dice.roll(0, own - 1) as u32)),
        _ => StrategyRef::Builtin(dice.pick(&Builtin::ALL)),
    };
    let grid = if dice.chance(25) { dice.roll(2, 3) } else { 0 };
    for i in 0..dice.roll(1, 4) {
        let mut component = Component::new(&format!("c{i}"), NodeId(0), dice.pick(rules));
        let period = dice.roll(3, 16);
        component.strategy = strategy(dice, &system);
        component.period = Auto::Value(Span::from_ns(period));
        component.budget = Auto::Value(dice.ns(1, period.div_ceil(2)));
        component.quantum = (grid > 0 && dice.chance(70)).then(|| Span::from_ns(grid));
        component.priority = Some(dice.roll(1, 3) as u32);
        component.parent = (i > 0 && dice.chance(35)).then(|| ComponentId(dice.roll(0, i - 1) as u32));
        let around = component.parent.map_or(cpus, |id| system.components[id.index()].cpus);
        if around > 1 && dice.chance(60) {
            component.cpus = dice.roll(2, around.into()) as u32;
            component.budget = Auto::Value(dice.ns(1, (period * u64::from(component.cpus)).div_ceil(2)));
        }
        system.components.push(component);
    }
    let count = system.components.len() as u64;
    let one = Span::from_ns(1);
    for task in &mut system.tasks {
        // A job takes time.
        match &mut task.exec {
            Exec::Uniform { min, .. } => *min = one.max(*min),
            Exec::Pmf(values) => values.iter_mut().for_each(|(value, _)| *value = one.max(*value)),
            Exec::Wcet | Exec::Trace(_) => {}
        }
        task.cpus = None;
        task.component = dice.chance(80).then(|| ComponentId(dice.roll(0, count - 1) as u32));
    }
    for _ in 0..if dice.chance(40) { dice.roll(1, 3) } else { 0 } {
        let (component, at) = (ComponentId(dice.roll(0, count - 1) as u32), Time::from_ns(dice.roll(0, 40)));
        if system.switches.iter().any(|switch| (switch.component, switch.at) == (component, at)) {
            continue;
        }
        let period = dice.roll(3, 16);
        let server = dice.chance(80).then(|| dice.pick(rules));
        let (budget, period) = (Some(dice.ns(1, period.div_ceil(2))), Some(Span::from_ns(period)));
        system.switches.push(ServerSwitch { component, at, server, period, budget });
    }
    system
}
