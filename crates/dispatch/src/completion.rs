//! Strategies as a dispatcher runs them: levels run to completion, or have a name of their own.

use takt_model::strategy::Discipline;
use takt_model::{Builtin, Level, Strategy, StrategyId, StrategyRef, System};

/// The suffix for the name of a strategy whose levels were preemptive.
pub const TO_COMPLETION: &str = ", run to completion";

/// The strategy with levels that run to completion. Its name changes, unless the strategy was
/// already so.
pub(super) fn run_to_completion(strategy: &Strategy) -> Strategy {
    let own = strategy.levels.iter().all(|level| !level.preemptive) && Builtin::by_name(&strategy.name).is_none();
    let name = if own { strategy.name.clone() } else { format!("{}{TO_COMPLETION}", strategy.name) };
    let levels = strategy.levels.iter().map(|level| Level { preemptive: false, ..level.clone() });
    Strategy { name, levels: levels.collect() }
}

/// The System whose jobs run to completion within their levels, as in a plan without
/// [`Limits::preemptive`](super::Limits::preemptive). Nodes and modes with preemptive levels get another strategy. Other
/// strategies stay.
#[must_use]
pub fn to_completion(system: &System) -> System {
    let mut planned = system.clone();
    let completing = |planned: &mut System, reference: StrategyRef| {
        let strategy = system.strategy(reference);
        let nests = |level: &Level| level.preemptive && level.discipline != Discipline::Fifo;
        if strategy.levels.iter().any(nests) { enter(planned, run_to_completion(&strategy)) } else { reference }
    };
    for at in 0..planned.nodes.len() {
        let chosen = planned.nodes.get(at).map(|node| node.strategy);
        let chosen = chosen.map(|reference| completing(&mut planned, reference));
        if let Some((node, strategy)) = planned.nodes.get_mut(at).zip(chosen) {
            node.strategy = strategy;
        }
    }
    for at in 0..planned.modes.len() {
        let chosen = planned.modes.get(at).map(|mode| mode.strategy);
        let chosen = chosen.map(|reference| completing(&mut planned, reference));
        if let Some((mode, strategy)) = planned.modes.get_mut(at).zip(chosen) {
            mode.strategy = strategy;
        }
    }
    planned
}

/// The strategy under a name other than those of the built-in ones.
pub(super) fn own(strategy: Strategy) -> Strategy {
    match Builtin::by_name(&strategy.name) {
        Some(builtin) => Strategy { name: format!("{}, preemptive", builtin.name()), ..strategy },
        None => strategy,
    }
}

/// The name of a strategy without that suffix, for texts.
pub(super) fn plain(strategy: &Strategy) -> &str {
    let name = strategy.name.strip_suffix(TO_COMPLETION).unwrap_or(&strategy.name);
    name.strip_suffix(", preemptive").unwrap_or(name)
}

/// Finds a strategy of the System that is equal to this one. Otherwise adds this one under a free
/// name.
pub(super) fn enter(system: &mut System, mut strategy: Strategy) -> StrategyRef {
    let name = strategy.name.clone();
    let mut count = 1;
    let at = loop {
        match system.strategies.iter().position(|other| other.name == strategy.name) {
            Some(at) if system.strategies.get(at) == Some(&strategy) => break at,
            Some(_) => {
                count += 1;
                strategy.name = format!("{name} {count}");
            }
            None => {
                system.strategies.push(strategy);
                break system.strategies.len() - 1;
            }
        }
    };
    StrategyRef::Own(StrategyId(u32::try_from(at).unwrap_or(u32::MAX)))
}
