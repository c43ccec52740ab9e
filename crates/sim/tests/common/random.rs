//! Small random systems in which everything collides: a few nanoseconds per job, a few CPUs.

use std::collections::BTreeMap;

use takt_model::draw::philox2x64;
use takt_model::*;

/// How many random systems; TAKT_CASES overrides.
pub(crate) fn cases(default: u64) -> u64 {
    variable("TAKT_CASES").unwrap_or(default)
}

/// The seeds of so many random systems, from TAKT_SEED or 0 on.
pub(crate) fn seeds(default: u64) -> std::ops::Range<u64> {
    let first = variable("TAKT_SEED").unwrap_or(0);
    first..first + cases(default)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A seeded source of small numbers.
pub(crate) struct Dice {
    seed: u64,
    count: u64,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice { seed, count: 0 }
    }
    /// Uniform over [low, high].
    pub(crate) fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.count += 1;
        low + philox2x64([self.count, 0], self.seed)[0] % (high - low + 1)
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(1, 100) <= percent
    }
    pub(crate) fn ns(&mut self, low: u64, high: u64) -> Span {
        Span::from_ns(self.roll(low, high))
    }
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(0, of.len() as u64 - 1) as usize].clone()
    }
}

/// A system of one to three nodes, each of which knows nothing of the others.
pub(crate) fn system(dice: &mut Dice) -> System {
    let mut system = one_node(dice, "t");
    for prefix in ["u", "v"] {
        if !dice.chance(20) {
            break;
        }
        let more = one_node(dice, prefix);
        join(&mut system, more);
    }
    if dice.chance(30) {
        system.tasks.iter_mut().for_each(|task| task.preemption = preemption(dice, task.wcet));
    }
    system
}

/// Adds the nodes of another system, with all that is theirs.
fn join(system: &mut System, more: System) {
    let [nodes, tasks, strategies] =
        [system.nodes.len(), system.tasks.len(), system.strategies.len()].map(|count| count as u32);
    let strategy = |of: StrategyRef| match of {
        StrategyRef::Own(id) => StrategyRef::Own(StrategyId(id.0 + strategies)),
        builtin => builtin,
    };
    let node = |id: NodeId| NodeId(id.0 + nodes);
    system.nodes.extend(more.nodes.into_iter().map(|spec| NodeSpec { strategy: strategy(spec.strategy), ..spec }));
    system.strategies.extend(more.strategies);
    let moved = |mode: Mode| Mode { node: node(mode.node), strategy: strategy(mode.strategy), ..mode };
    system.modes.extend(more.modes.into_iter().map(moved));
    system.tasks.extend(more.tasks.into_iter().map(|task| Task {
        node: node(task.node),
        after: task.after.iter().map(|id| TaskId(id.0 + tasks)).collect(),
        ..task
    }));
}

/// A system of one node with up to four CPUs and six tasks, using every feature that the simulator has.
pub(crate) fn one_node(dice: &mut Dice, prefix: &str) -> System {
    let mut system = node_with_empty_jobs(dice, prefix);
    for task in &mut system.tasks {
        match &mut task.exec {
            Exec::Uniform { min, .. } => *min = (*min).max(Span::from_ns(1)),
            Exec::Pmf(values) => values.iter_mut().for_each(|(value, _)| *value = (*value).max(Span::from_ns(1))),
            Exec::Wcet | Exec::Trace(_) => {}
        }
    }
    system
}

/// The same with execution times of 0 too, which the file refuses. The events of these systems are hashed.
pub(crate) fn node_with_empty_jobs(dice: &mut Dice, prefix: &str) -> System {
    let cpus = dice.roll(1, 4) as u32;
    let mut system = System::local(cpus, Builtin::Edf, Vec::new());
    let task_count = dice.roll(1, 6) as usize;
    let own = dice.chance(40);
    system.nodes[0].placement = match dice.roll(0, 3) {
        0 => Placement::Partitioned,
        1 => Placement::Clustered { cpus: dice.roll(1, 3) as u32 },
        _ => Placement::Global,
    };
    for number in 0..task_count {
        let task = task(dice, &system, prefix, number);
        system.tasks.push(task);
    }
    if own {
        let strategies = (0..2).map(|i| own_strategy(dice, &system, i)).collect();
        system.strategies = strategies;
    }
    let reference = |dice: &mut Dice| {
        if own {
            StrategyRef::Own(StrategyId(dice.roll(0, 1) as u32))
        } else {
            StrategyRef::Builtin(dice.pick(&Builtin::ALL))
        }
    };
    system.nodes[0].strategy = reference(dice);
    if dice.chance(30) {
        let at = Time::from_ns(dice.roll(0, 40));
        let strategy = reference(dice);
        system.modes.push(Mode { node: NodeId(0), at, strategy });
        if dice.chance(50) {
            let strategy = reference(dice);
            system.modes.push(Mode { node: NodeId(0), at: at + dice.ns(1, 20), strategy });
        }
    }
    let node = &mut system.nodes[0];
    node.cancel = dice.chance(40);
    node.laxity_quantum = dice.chance(40).then(|| dice.ns(1, 4));
    node.costs = dice.chance(30).then(|| costs(dice));
    system
}

/// Costs of everything but ordinary threads.
fn costs(dice: &mut Dice) -> Costs {
    Costs {
        switch: dice.ns(0, 2),
        migrate: dice.ns(0, 2),
        release: dice.ns(0, 1),
        tick: dice.ns(0, 2),
        tick_period: dice.ns(3, 9),
        interrupt: dice.ns(0, 1),
        interrupt_period: dice.ns(4, 9),
        ordinary: Span::ZERO,
        ordinary_period: Costs::ORDINARY_PERIOD_DEFAULT,
        latency: if dice.chance(50) { dice.ns(1, 3) } else { Span::ZERO },
    }
}

/// Gives a system with components costs, and the instants at which laxities are compared. Releases stay strictly
/// periodic.
pub(crate) fn costs_and_comparisons(dice: &mut Dice, system: &mut System) {
    if dice.chance(40) {
        system.nodes[0].costs = Some(Costs { latency: Span::ZERO, ..costs(dice) });
        ordinary_threads(dice, system);
    }
    // A server may act at an instant that changes no account: when a bandwidth ends, for new terms, or on a grid.
    // The references know no such instants, so there every unit is a comparison.
    let acts_quietly = |one: &Component| one.quantum.is_some() || one.server == ServerRule::Grub;
    let quiet = system.components.iter().any(acts_quietly) || !system.switches.is_empty();
    let one = Some(Span::from_ns(1));
    let some = [None, one, Some(Span::from_ns(2)), Some(Span::from_ns(3))];
    system.nodes[0].laxity_quantum = if quiet { one } else { dice.pick(&some) };
}

/// Lets ordinary threads take some of the CPUs of every other system.
pub(crate) fn ordinary_threads(dice: &mut Dice, system: &mut System) {
    for node in &mut system.nodes {
        if dice.chance(50) {
            continue;
        }
        let costs = node.costs.unwrap_or(Costs::NONE);
        let costs = Costs { ordinary: dice.ns(1, 5), ordinary_period: dice.ns(12, 90), ..costs };
        node.costs = if costs.leaves_time() { Some(costs) } else { node.costs };
    }
}

fn task(dice: &mut Dice, system: &System, prefix: &str, number: usize) -> Task {
    let mut task = Task::periodic(&format!("{prefix}{number}"), dice.ns(3, 14), dice.ns(1, 6));
    task.deadline = dice.ns(1, 16);
    task.criticality = dice.pick(&[Criticality::High, Criticality::Low]);
    task.importance = dice.roll(0, 2) as u32;
    task.priority = Some(dice.roll(1, 3) as u32);
    task.exec = match dice.roll(0, 4) {
        0 => Exec::Uniform { min: dice.ns(0, 2), max: task.wcet + dice.ns(2, 3) },
        1 => Exec::Pmf(vec![(dice.ns(0, 3), percent(30)), (dice.ns(1, 7), percent(70))]),
        2 => Exec::Trace(trace(&[3, 1, 4])),
        _ => Exec::Wcet,
    };
    if number > 0 && dice.chance(30) {
        let first = dice.roll(0, number as u64 - 1) as usize;
        task.after = vec![TaskId(first as u32)];
        task.period = system.tasks[first].period;
        let second = dice.roll(0, number as u64 - 1) as usize;
        if second != first && system.tasks[second].period == task.period {
            task.after.push(TaskId(second as u32));
        }
    } else {
        task.offset = dice.ns(0, 6);
        task.jitter = if dice.chance(40) { dice.ns(0, 9) } else { Span::ZERO };
        task.arrival = match dice.roll(0, 5) {
            0 => Arrival::Sporadic,
            1 => Arrival::Pmf(vec![(dice.ns(1, 8), percent(50)), (dice.ns(4, 20), percent(50))]),
            2 => Arrival::Trace(trace(&[0, 1, 9, 22])),
            _ => Arrival::Periodic,
        };
    }
    task.cpus = affinity(dice, &system.nodes[0]);
    task.late = if dice.chance(25) { Some(dice.pick(&[Late::Continue, Late::Drop, Late::Demote])) } else { None };
    if task.criticality == Criticality::Low && dice.chance(30) {
        task.cancel = Some(dice.chance(50));
    }
    task
}

/// Anywhere, up to a last section, or between some.
pub(crate) fn preemption(dice: &mut Dice, wcet: Span) -> Preemption {
    let (one, wcet) = (Span::from_ns(1), wcet.as_ns());
    match dice.roll(0, 3) {
        0 => Preemption::Until(Span::from_ns(dice.roll(1, wcet))),
        1 if wcet > 1 => {
            let first = dice.roll(1, wcet - 1);
            Preemption::Between(vec![Span::from_ns(first), Span::from_ns(wcet - first)])
        }
        2 if wcet > 2 => Preemption::Between(vec![one, Span::from_ns(wcet - 2), one]),
        _ => Preemption::Anywhere,
    }
}

/// An affinity that the node's placement allows.
fn affinity(dice: &mut Dice, node: &NodeSpec) -> Option<CpuSet> {
    let home = dice.pick(&node.clusters());
    let divided = node.clusters().len() > 1;
    if !divided && dice.chance(60) {
        return None;
    }
    let some: CpuSet = home.iter().filter(|_| dice.chance(60)).collect();
    Some(if some.is_empty() { home } else { some })
}

fn own_strategy(dice: &mut Dice, system: &System, number: usize) -> Strategy {
    let mut levels: Vec<Level> = (0..dice.roll(0, 2))
        .map(|_| {
            let filter = match dice.roll(0, 2) {
                0 => Filter::Named(system.tasks.iter().map(|t| t.name.clone()).filter(|_| dice.chance(40)).collect()),
                1 => Filter::Where { criticality: Some(Criticality::High), importance: None, priority: None },
                _ => Filter::Where { criticality: None, importance: Some(1), priority: None },
            };
            level(dice, system, filter)
        })
        .collect();
    levels.push(level(dice, system, Filter::Rest));
    Strategy { name: format!("own{number}"), levels }
}

/// A strategy of two or three preemptive levels, which take tasks and servers by their values.
pub(crate) fn levels_by_value(dice: &mut Dice, name: &str) -> Strategy {
    let level = |dice: &mut Dice, filter: Filter| {
        let discipline = dice.pick(&[Discipline::Fifo, Discipline::Deadline, Discipline::Laxity]);
        let split = dice.pick(&[
            Split::None,
            Split::None,
            Split::Priority,
            Split::Period,
            Split::Deadline,
            Split::Criticality,
            Split::Importance,
        ]);
        Level { split, ..Level::new(filter, discipline) }
    };
    let mut levels = Vec::new();
    for _ in 0..dice.roll(1, 2) {
        let (mut criticality, mut importance, mut priority) = (None, None, None);
        match dice.roll(0, 2) {
            0 => criticality = Some(dice.pick(&[Criticality::High, Criticality::Low])),
            1 => importance = Some(dice.roll(0, 1) as u32),
            _ => priority = Some(dice.roll(1, 3) as u32),
        }
        levels.push(level(dice, Filter::Where { criticality, importance, priority }));
    }
    levels.push(level(dice, Filter::Rest));
    Strategy { name: name.to_owned(), levels }
}

fn level(dice: &mut Dice, system: &System, filter: Filter) -> Level {
    let discipline = match dice.roll(0, 3) {
        0 => Discipline::Fifo,
        1 => Discipline::Deadline,
        2 => Discipline::Laxity,
        _ => {
            let shift = |dice: &mut Dice| Lateness::from_ns(dice.roll(0, 10) as i64 - 5);
            let shift: BTreeMap<_, _> = system.tasks.iter().map(|task| (task.name.clone(), shift(dice))).collect();
            Discipline::Gel { shift }
        }
    };
    Level {
        filter,
        discipline,
        split: dice.pick(&[
            Split::None,
            Split::None,
            Split::None,
            Split::Priority,
            Split::Period,
            Split::Deadline,
            Split::Criticality,
            Split::Importance,
        ]),
        preemptive: dice.chance(60),
        late: dice.pick(&[Late::Continue, Late::Continue, Late::Drop, Late::Demote]),
        importance_ties: dice.chance(30),
    }
}

fn percent(percent: u32) -> Probability {
    Probability::from_billionths(percent * 10_000_000).unwrap()
}

fn trace(values: &[u64]) -> takt_model::Trace {
    takt_model::Trace { path: "trace.csv".into(), values: values.iter().map(|ns| Span::from_ns(*ns)).collect() }
}
