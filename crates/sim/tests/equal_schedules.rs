//! Different deciders make the same schedule of systems that are the same by definition. A slow reference tests
//! one of them. So the others are tested too: levels, late rules, sections, omission, modes.

mod common;

use common::random::{self, Dice, seeds};
use common::{by_job, job_of, simulated};
use takt_log::Event;
use takt_model::*;

/// The events of jobs, changed by `mapped`.
fn jobs(events: Vec<(u64, Event)>, mapped: impl Fn(Event) -> Option<Event>) -> Vec<(u64, Event)> {
    let events = events.into_iter().filter(|(_, event)| job_of(event).is_some());
    by_job(events.filter_map(|(at, event)| Some((at, mapped(event)?))).collect())
}

fn assert_equal(seed: u64, test: &str, systems: [&System; 2], [one, other]: [Vec<(u64, Event)>; 2]) {
    let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at));
    let Some(at) = at else { return };
    panic!(
        "TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test equal_schedules {test}\n{}\n{}\nat {at}: {:?}\n\
         and {:?}\nbefore: {:#?}",
        file::write(systems[0]),
        file::write(systems[1]),
        one.get(at),
        other.get(at),
        &one[at.saturating_sub(4)..at],
    );
}

fn goes_by_laxity(system: &System, strategy: StrategyRef) -> bool {
    system.strategy(strategy).levels.iter().any(|level| matches!(level.discipline, Discipline::Laxity))
}

/// Whether some order of a node compares laxities. A dispatcher and servers do so at different instants.
fn compares_laxities(system: &System) -> bool {
    let modes = system.modes.iter().map(|mode| mode.strategy);
    let components = system.components.iter().map(|component| component.strategy);
    let mut all = modes.chain(components).chain([system.nodes[0].strategy]);
    all.any(|strategy| goes_by_laxity(system, strategy))
}

/// A polling server without work takes no time: `Clusters` and `Dispatcher` agree, on any CPUs.
#[test]
fn an_empty_component_changes_nothing() {
    let mut compared = 0;
    for seed in seeds(3_000) {
        let mut dice = Dice::new(seed);
        let mut system = random::one_node(&mut dice, "t");
        if dice.chance(30) {
            system.tasks.iter_mut().for_each(|task| task.preemption = random::preemption(&mut dice, task.wcet));
        }
        let node = system.nodes[0].clone();
        for task in &mut system.tasks {
            let here = |cluster: &CpuSet| task.cpus.is_none_or(|cpus| cpus.is_subset(cluster));
            task.cpus = node.clusters().into_iter().find(here);
        }
        if node.cpus == 1 || compares_laxities(&system) {
            continue;
        }
        let mut served = system.clone();
        let component = Component::new("empty", NodeId(0), ServerRule::Polling);
        served.components.push(Component {
            period: Auto::Value(dice.ns(2, 9)),
            budget: Auto::Value(Span::from_ns(1)),
            server_cpus: if node.clusters().len() > 1 {
                vec![dice.roll(0, u64::from(node.cpus) - 1) as u32]
            } else {
                vec![]
            },
            priority: Some(1),
            ..component
        });
        let strategies = served.modes.iter().map(|mode| mode.strategy).chain([node.strategy]);
        if strategies.into_iter().any(|strategy| !takes_servers(&served, strategy)) {
            continue;
        }
        let duration = dice.roll(30, 120);
        let all = |system: &System| jobs(simulated(system, seed, duration), Some);
        assert_equal(seed, "an_empty", [&system, &served], [all(&system), all(&served)]);
        compared += 1;
    }
    assert!(seeds(3_000).count() < 1_000 || compared > 500, "{compared}");
}

/// Whether a strategy has a level for a server.
fn takes_servers(system: &System, strategy: StrategyRef) -> bool {
    system.strategy(strategy).levels.iter().any(|level| level.filter == Filter::Rest)
}

/// One node of one CPU with components, using all that the file has for tasks.
fn one_cpu(dice: &mut Dice) -> System {
    let mut system = random::one_node(dice, "t");
    system.nodes[0].cpus = 1;
    // Nothing delays the task that takes a CPU for itself.
    system.nodes[0].costs = system.nodes[0].costs.map(|costs| Costs { latency: Span::ZERO, ..costs });
    system.nodes[0].placement = Placement::Global;
    let lends = dice.chance(50);
    let rules: &[ServerRule] = if lends { &ServerRule::ALL[..8] } else { &ServerRule::ALL[3..8] };
    let grid = if lends || dice.chance(70) { 0 } else { dice.roll(2, 3) };
    for i in 0..dice.roll(1, 4) {
        let mut component = Component::new(&format!("c{i}"), NodeId(0), dice.pick(rules));
        component.parent = (i > 0 && dice.chance(35)).then(|| ComponentId(dice.roll(0, i - 1) as u32));
        component.strategy = match system.strategies.len() {
            0 => StrategyRef::Builtin(dice.pick(&Builtin::ALL)),
            _ => StrategyRef::Own(StrategyId(dice.roll(0, 1) as u32)),
        };
        let period = dice.roll(3, 12);
        (component.period, component.budget) =
            (Auto::Value(Span::from_ns(period)), Auto::Value(dice.ns(1, period.div_ceil(2))));
        component.quantum = (grid > 0 && dice.chance(70)).then(|| Span::from_ns(grid));
        component.priority = Some(dice.roll(1, 3) as u32);
        system.components.push(component);
    }
    for task in &mut system.tasks {
        let place = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        (task.cpus, task.component) = (None, dice.chance(75).then_some(place));
        if dice.chance(30) {
            task.preemption = random::preemption(dice, task.wcet);
        }
    }
    for _ in 0..if dice.chance(30) { dice.roll(1, 2) } else { 0 } {
        let component = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        let (at, period) = (Time::from_ns(dice.roll(0, 40)), dice.roll(3, 12));
        if system.switches.iter().all(|switch| switch.component != component) {
            let (server, period, budget) = (Some(dice.pick(rules)), Some(Span::from_ns(period)), Some(dice.ns(1, 3)));
            system.switches.push(ServerSwitch { component, at, server, period, budget });
        }
    }
    system
}

/// The system on two CPUs, with a task that has one of them for itself.
fn beside_a_hog(system: &System) -> System {
    let mut wide = system.clone();
    wide.nodes[0].cpus = 2;
    let hog = Task::periodic("hog", Span::from_ms(1), Span::from_ms(1));
    wide.tasks.push(Task { late: Some(Late::Continue), priority: Some(1), ..hog });
    let mut first = |strategy: StrategyRef| {
        let mut own = system.strategy(strategy);
        own.name = format!("with-hog{}", wide.strategies.len());
        let level = own.levels[0].clone();
        let filter = Filter::Named(vec!["hog".to_owned()]);
        own.levels
            .insert(0, Level { filter, discipline: Discipline::Fifo, split: Split::None, preemptive: true, ..level });
        wide.strategies.push(own);
        StrategyRef::Own(StrategyId(wide.strategies.len() as u32 - 1))
    };
    wide.nodes[0].strategy = first(system.nodes[0].strategy);
    let modes: Vec<StrategyRef> = system.modes.iter().map(|mode| first(mode.strategy)).collect();
    wide.modes.iter_mut().zip(modes).for_each(|(mode, strategy)| mode.strategy = strategy);
    wide
}

/// Virtual clusters with one CPU left are a hierarchy.
#[test]
fn a_cpu_that_is_taken_does_not_count() {
    for seed in seeds(3_000) {
        let mut dice = Dice::new(seed);
        let system = one_cpu(&mut dice);
        if compares_laxities(&system) {
            continue;
        }
        let wide = beside_a_hog(&system);
        let hog = TaskId(system.tasks.len() as u32);
        let duration = dice.roll(30, 120);
        let one = jobs(simulated(&system, seed, duration), Some);
        let two = jobs(simulated(&wide, seed, duration), |event| {
            let first = |job: takt_log::JobKey| (job.task != hog).then_some(job);
            Some(match event {
                Event::Start { job, .. } => Event::Start { job: first(job)?, cpu: 0 },
                Event::Resume { job, .. } => Event::Resume { job: first(job)?, cpu: 0 },
                Event::Preempt { job, .. } => Event::Preempt { job: first(job)?, cpu: 0 },
                Event::Complete { job, .. } => Event::Complete { job: first(job)?, cpu: 0 },
                other => {
                    first(job_of(&other)?)?;
                    other
                }
            })
        });
        assert_equal(seed, "a_cpu_that", [&system, &wide], [one, two]);
    }
}

/// The nodes as one partitioned node with a CPU for each.
fn merged(nodes: &[System]) -> System {
    let mut all = nodes[0].clone();
    all.nodes[0].cpus = nodes.len() as u32;
    all.nodes[0].placement = Placement::Partitioned;
    (all.tasks, all.components, all.switches) = (Vec::new(), Vec::new(), Vec::new());
    for (cpu, node) in (0..).zip(nodes) {
        let (tasks, components) = (all.tasks.len() as u32, all.components.len() as u32);
        let inner = |id: ComponentId| ComponentId(id.0 + components);
        all.switches.extend(
            node.switches.iter().map(|switch| ServerSwitch { component: inner(switch.component), ..switch.clone() }),
        );
        for task in &node.tasks {
            let after = task.after.iter().map(|id| TaskId(id.0 + tasks)).collect();
            let cpus = task.component.is_none().then(|| CpuSet::range(cpu, cpu + 1));
            all.tasks.push(Task { after, component: task.component.map(inner), cpus, ..task.clone() });
        }
        for component in &node.components {
            let server_cpus = if component.parent.is_none() { vec![cpu] } else { Vec::new() };
            let name = format!("{}-{cpu}", component.name);
            let parent = component.parent.map(inner);
            all.components.push(Component { parent, server_cpus, name, ..component.clone() });
        }
    }
    all
}

/// A partitioned node is as many nodes of one CPU.
#[test]
fn a_partitioned_node_is_several_nodes() {
    let mut compared = 0;
    for seed in seeds(2_000) {
        let mut dice = Dice::new(seed);
        let first = one_cpu(&mut dice);
        let mut nodes = vec![first.clone()];
        for i in 0..dice.roll(1, 2) {
            let mut other = one_cpu(&mut dice);
            (other.nodes, other.strategies, other.modes) =
                (first.nodes.clone(), first.strategies.clone(), first.modes.clone());
            for component in &mut other.components {
                component.strategy = first.nodes[0].strategy;
            }
            other.tasks.iter_mut().for_each(|task| task.name.push_str(&format!("-{i}")));
            nodes.push(other);
        }
        let all = merged(&nodes);
        // Levels that name tasks know only those of the first node.
        let invalid = nodes.iter().any(|node| file::validate(node).is_err()) || file::validate(&all).is_err();
        if invalid {
            continue;
        }
        compared += 1;
        let duration = dice.roll(30, 120);
        let mut apart: Vec<(u64, Event)> = Vec::new();
        let mut before = 0;
        for (cpu, node) in (0..).zip(&nodes) {
            let events = jobs(simulated(node, seed, duration), |event| Some(moved(event, before, cpu)));
            apart.extend(events);
            before += node.tasks.len() as u32;
        }
        let one = jobs(simulated(&all, seed, duration), Some);
        assert_equal(seed, "a_partitioned", [&all, &nodes[0]], [one, by_job(apart)]);
    }
    assert!(seeds(2_000).count() < 1_000 || compared > 100, "{compared}");
}

/// Nobody compares laxities when a job is released behind another one of its task. A comparison at 4 would let `short`
/// go before `long`. The node has no component, then one on its only CPU, then one on the first of two CPUs.
#[test]
fn a_job_behind_another_one_of_its_task_compares_no_laxities() {
    let task = |name: &str, [period, wcet, deadline]: [u64; 3]| {
        let task = Task::periodic(name, Span::from_ns(period), Span::from_ns(wcet));
        Task { deadline: Span::from_ns(deadline), ..task }
    };
    let tasks = vec![task("long", [100, 10, 15]), task("short", [100, 1, 8]), task("often", [4, 1, 50])];
    let plain = System::local(1, Builtin::Mlf, tasks);
    let mut one = plain.clone();
    let (period, budget) = (Auto::Value(Span::from_ns(100)), Auto::Value(Span::from_ns(1)));
    one.components.push(Component { period, budget, ..Component::new("empty", NodeId(0), ServerRule::Polling) });
    let mut part = merged(std::slice::from_ref(&one));
    part.nodes[0].cpus = 2;
    let [plain, one, part] = [plain, one, part].map(|system| jobs(simulated(&system, 0, 12), Some));
    let starts = |(at, event): &(u64, Event)| match event {
        Event::Start { job, .. } => Some((*at, job.task)),
        _ => None,
    };
    let started: Vec<(u64, TaskId)> = plain.iter().filter_map(starts).collect();
    assert_eq!(started, [(0, TaskId(0)), (10, TaskId(1)), (11, TaskId(2))]);
    assert_eq!(one, plain);
    assert_eq!(part, plain);
}

/// The event of a task so many places later, on another CPU.
fn moved(event: Event, by: u32, cpu: u32) -> Event {
    let later = |job: takt_log::JobKey| takt_log::JobKey { task: TaskId(job.task.0 + by), ..job };
    match event {
        Event::Release { job, arrival, parent } => Event::Release { job: later(job), arrival, parent },
        Event::Start { job, .. } => Event::Start { job: later(job), cpu },
        Event::Resume { job, .. } => Event::Resume { job: later(job), cpu },
        Event::Preempt { job, .. } => Event::Preempt { job: later(job), cpu },
        Event::Complete { job, .. } => Event::Complete { job: later(job), cpu },
        Event::Miss { job } => Event::Miss { job: later(job) },
        Event::Cancel { job, cause } => Event::Cancel { job: later(job), cause },
        other => other,
    }
}
