//! Whatever the rules of the system file accept, the simulator simulates.

use super::flows::random_network;
use super::*;
use takt_analysis::compositional::share_of;
use takt_analysis::place_regardless;
use takt_log::{Event, Sink};

/// Parts of all kinds in one system: levels, placement, costs, modes, components, flows, links and ports.
fn anything(dice: &mut Dice) -> System {
    let mut system = random::system(dice);
    for node in &mut system.nodes {
        node.fit = dice.pick(&[Fit::FirstFit, Fit::BestFit, Fit::WorstFit, Fit::NextFit]);
    }
    if dice.chance(60) {
        components(dice, &mut system);
    }
    if dice.chance(60) {
        flows(dice, &mut system);
    }
    system
}

fn components(dice: &mut Dice, system: &mut System) {
    for i in 0..dice.roll(1, 4) as u32 {
        let parent = (i > 0 && dice.chance(30)).then(|| ComponentId(dice.roll(0, u64::from(i) - 1) as u32));
        let around = parent.map(|parent| &system.components[parent.index()]);
        let node = around.map_or_else(|| NodeId(dice.roll(0, system.nodes.len() as u64 - 1) as u32), |one| one.node);
        let most = around.map_or(system.nodes[node.index()].cpus, |around| around.cpus);
        let mut component = Component::new(&format!("c{i}"), node, dice.pick(&ServerRule::ALL));
        component.parent = parent;
        component.cpus = if dice.chance(40) { dice.roll(1, u64::from(most)) as u32 } else { 1 };
        component.quantum = dice.chance(20).then(|| dice.ns(1, 5));
        component.priority = dice.chance(90).then(|| dice.roll(1, 4) as u32);
        component.strategy = if system.strategies.is_empty() || dice.chance(60) {
            StrategyRef::Builtin(dice.pick(&Builtin::ALL))
        } else {
            StrategyRef::Own(StrategyId(dice.roll(0, system.strategies.len() as u64 - 1) as u32))
        };
        if dice.chance(80) {
            let period = dice.roll(3, 20);
            component.period = Auto::Value(Span::from_ns(period));
            if dice.chance(80) {
                component.budget = Auto::Value(dice.ns(1, period * u64::from(component.cpus)));
            }
        }
        system.components.push(component);
    }
    for at in 0..system.tasks.len() {
        let of_node = |one: &&u32| system.components[**one as usize].node == system.tasks[at].node;
        let all: Vec<u32> = (0..system.components.len() as u32).collect();
        let here: Vec<u32> = all.iter().filter(of_node).copied().collect();
        if !here.is_empty() && dice.chance(60) {
            let task = &mut system.tasks[at];
            (task.component, task.cpus) = (Some(ComponentId(dice.pick(&here))), None);
        }
    }
    for _ in 0..dice.roll(0, 3) {
        let component = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        let period = dice.chance(50).then(|| dice.ns(3, 20));
        let budget = period.map(|period| dice.ns(1, period.as_ns()));
        let server = if period.is_none() || dice.chance(60) { Some(dice.pick(&ServerRule::ALL)) } else { None };
        let at = Time::from_ns(dice.roll(0, 60));
        system.switches.push(ServerSwitch { component, at, server, period, budget });
    }
}

fn flows(dice: &mut Dice, system: &mut System) {
    let other = random_network(dice);
    let ns = |span: Span| Span::from_ns((span.as_ns() / 1_000).max(1));
    let table =
        |table: TableTask| TableTask { period: ns(table.period), wcet: ns(table.wcet), cost: table.cost.map(ns) };
    while system.nodes.len() < other.nodes.len() {
        let name = format!("n{}", system.nodes.len());
        system.nodes.push(NodeSpec::new(&name, 1, StrategyRef::Builtin(Builtin::Edf)));
    }
    for (at, node) in other.nodes.iter().enumerate() {
        let mine = &mut system.nodes[at];
        mine.name = node.name.clone();
        match dice.roll(0, 9) {
            0..=1 => mine.arrivals = MessageArrivals::Interrupt { cost: dice.ns(1, 2) },
            2 => {
                let slots = TableTask { period: Span::from_ns(20), wcet: Span::from_ns(4), cost: None };
                (mine.arrivals, mine.strategy) = (MessageArrivals::Cyclic, StrategyRef::Builtin(Builtin::Fifo));
                (mine.cpus, mine.placement, mine.cancel) = (1, Placement::Global, false);
                (mine.receive, mine.send) = (Some(slots), Some(slots));
            }
            _ => (mine.receive, mine.send) = (node.receive.map(table), node.send.map(table)),
        }
        if dice.chance(70) {
            let burst = Bytes::new(dice.pick(&[1_500, 3_000]));
            let replies = dice.chance(30).then_some(Bucket { burst, rate: Rate::from_bps(100_000_000) });
            mine.link = Some(Link { replies, ..super::networks::random_link(dice) });
        }
    }
    for flow in other.flows {
        let hop_wcet = ns(flow.hop_wcet);
        system.flows.push(Flow {
            period: ns(flow.period),
            wcet: ns(flow.wcet),
            deadline: ns(flow.deadline),
            send_gap: ns(flow.send_gap),
            hop_wcet,
            size: Bytes::new(dice.pick(&[1, 64, 1_500])),
            ..flow
        });
    }
    for i in 0..dice.roll(0, 2) {
        let rate = Rate::from_bps(1_000_000 * dice.pick(&[1_000, 100_000]));
        let cross = dice.chance(40).then(|| Cross {
            burst: Bytes::new(dice.pick(&[64, 1_538, 10_000])),
            rate: Rate::from_bps(1_000_000 * dice.roll(1, 900)),
        });
        let port = Port { name: format!("p{i}"), rate, latency: dice.ns(0, 5), cross, fifo: dice.chance(50) };
        system.ports.push(port);
    }
    let count = system.nodes.len() as u32;
    for from in (0..count).map(NodeId) {
        for to in (0..count).map(NodeId).filter(|to| *to != from) {
            if dice.chance(20) {
                continue;
            }
            let least = dice.roll(0, 9);
            let through = (0..system.ports.len() as u32).map(PortId).filter(|_| dice.chance(50)).collect();
            let (min, max) = (Span::from_ns(least), dice.ns(least, least + 40));
            let delay = if dice.chance(50) { Auto::Auto } else { Auto::Value((min, max)) };
            let part = |billionths| Probability::from_billionths(billionths).expect("a probability");
            let actual_delay = if delay != Auto::Auto && dice.chance(30) {
                ActualDelay::Pmf(vec![(min, part(250_000_000)), (max, part(750_000_000))])
            } else {
                ActualDelay::Uniform
            };
            let loss = part(dice.pick(&[0, 0, 200_000_000, 1_000_000_000]));
            system.networks.push(Network { from: Some(from), to: Some(to), delay, actual_delay, loss, through });
        }
    }
    let clock = other.clock;
    system.clock = Clock { offset: ns(clock.offset), error: ns(clock.error), sync: clock.sync.map(table), ..clock };
}

#[test]
fn every_valid_system_file_can_be_simulated() {
    let (mut accepted, mut with_flows, mut with_components) = (0, 0, 0);
    for seed in seeds(4_000) {
        let mut system = anything(&mut Dice::new(seed));
        if file::validate(&system).is_err() {
            continue;
        }
        accepted += 1;
        with_flows += u64::from(!system.flows.is_empty());
        with_components += u64::from(!system.components.is_empty());
        let replay = replay(seed, "accepted::");
        // As the verb does: a share for what nobody has sized, and a place for each task and server.
        for id in (0..system.components.len() as u32).map(ComponentId) {
            let (period, budget) = share_of(&system, id);
            let component = &mut system.components[id.index()];
            (component.period, component.budget) = (Auto::Value(period), Auto::Value(budget));
        }
        let placed = place_regardless(&system).unwrap_or_else(|error| panic!("{replay}\n{error}\n{system:#?}"));
        simulated_with_messages(&placed.system, seed, &replay);
    }
    println!("{accepted} systems accepted, {with_flows} with flows, {with_components} with components");
    assert!(cases(4_000) < 4_000 || (accepted > 1_000 && with_flows.min(with_components) > 200), "{accepted}");
}

#[derive(Default)]
struct WithoutMisses(Vec<(u32, Time, Event)>);

impl Sink for WithoutMisses {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.0.event(stream, now, event);
    }
    fn wants_misses(&self) -> bool {
        false
    }
}

/// Whether somebody wants the misses makes no other difference.
fn simulated_with_messages(system: &System, seed: u64, replay: &str) {
    let options = SimOptions { duration: Span::from_ns(300), seed, node: None };
    let (mut events, mut fewer) = (Vec::<(u32, Time, Event)>::new(), WithoutMisses::default());
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{replay}\n{error}\n{system:#?}"));
    simulate(system, &options, &mut fewer).unwrap_or_else(|error| panic!("{replay}\n{error}\n{system:#?}"));
    let is_miss = |event: &(u32, Time, Event)| matches!(event.2, Event::Miss { .. });
    events.retain(|event| !is_miss(event));
    fewer.0.retain(|event| !is_miss(event));
    let differs = events.iter().zip(&fewer.0).position(|(with, without)| with != without);
    let at = differs.unwrap_or(events.len().min(fewer.0.len()));
    assert!(
        events == fewer.0,
        "{replay}\n{:?} with misses, {:?} without\n{}",
        events.get(at),
        fewer.0.get(at),
        file::write(system)
    );
}
