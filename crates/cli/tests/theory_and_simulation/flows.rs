//! Flows over networks: what the simulation does stays within what `partial-edf` proves.

use std::collections::BTreeMap;

use super::networks::longest_exchange;
use super::*;
use takt_analysis::TestId;
use takt_log::{DropCause, Event};
use takt_sim::worst::{Found, RUNS_PER_CLIMB, climb};

/// Two or three nodes with tables, local tasks and flows between them, in µs.
pub(super) fn random_network(dice: &mut Dice) -> System {
    let us = |dice: &mut Dice, low: u64, high: u64| Span::from_us(dice.roll(low, high));
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes.clear();
    let drift = dice.pick(&[0, 0, 0, 100, 20_000]);
    let costs = dice.chance(20).then(|| Costs {
        switch: us(dice, 0, 1),
        release: us(dice, 0, 1),
        tick: us(dice, 0, 1),
        tick_period: Span::from_us(37),
        latency: us(dice, 0, 3),
        ..Costs::NONE
    });
    for i in 0..dice.roll(2, 3) {
        let mut node = NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf));
        let table = |dice: &mut Dice| {
            let wcet = us(dice, 1, 4);
            let cost = dice.chance(50).then(|| Span::from_ns(wcet.as_ns() / dice.roll(1, 4)));
            Some(TableTask { period: us(dice, 10, 30), wcet, cost })
        };
        (node.receive, node.send, node.costs) = (table(dice), table(dice), costs);
        system.nodes.push(node);
    }
    let count = system.nodes.len() as u64;
    for i in 0..dice.roll(0, 3) {
        let period = dice.roll(40, 200);
        let wcet = dice.roll(1, period / 5);
        let mut task = Task::periodic(&format!("t{i}"), Span::from_us(period), Span::from_us(wcet));
        task.node = NodeId(dice.roll(0, count - 1) as u32);
        task.deadline = us(dice, period / 2, period);
        (task.offset, task.jitter) = (us(dice, 0, 20), us(dice, 0, 5));
        task.arrival = dice.pick(&[Arrival::Periodic, Arrival::Sporadic]);
        system.tasks.push(task);
    }
    for i in 0..dice.roll(1, 3) {
        let mut path = vec![NodeId(dice.roll(0, count - 1) as u32)];
        for _ in 0..dice.roll(1, 2) {
            let last = path[path.len() - 1];
            path.push(NodeId(((u64::from(last.0) + dice.roll(1, count - 1)) % count) as u32));
        }
        let period = dice.roll(40, 200);
        let hops = path.len() as u64;
        let reply = path.first() != path.last() && dice.chance(30);
        system.flows.push(Flow {
            name: format!("f{i}"),
            reply,
            period: Span::from_us(period),
            wcet: us(dice, 1, period / 10),
            deadline: us(dice, 80 * hops, 250 * (hops + u64::from(reply))),
            send_gap: us(dice, period / 3, period),
            hop_wcet: us(dice, 1, period / 10),
            size: Bytes::default(),
            hop_deadlines: Vec::new(),
            path,
        });
    }
    let least = dice.roll(0, 20);
    system.networks.push(Network::any(Span::from_us(least), us(dice, least, least + 40)));
    if dice.chance(30) {
        system.strategies.push(Strategy {
            name: "np".to_owned(),
            levels: vec![Level { preemptive: false, ..Level::new(Filter::Rest, Discipline::Deadline) }],
        });
        system.nodes[0].strategy = StrategyRef::Own(StrategyId(0));
    }
    system.clock = Clock { drift_ppm: drift, ..Clock::default() };
    if dice.chance(30) {
        system.clock.error = us(dice, 0, 5);
        let period = us(dice, 200, 400);
        system.clock.sync = dice.chance(50).then_some(TableTask { period, wcet: Span::from_us(2), cost: None });
    }
    system
}

/// Lets messages interrupt some nodes of some systems, and gives others a frame.
fn learn_otherwise(dice: &mut Dice, system: &mut System) {
    if dice.chance(40) {
        let all = dice.chance(50);
        for i in 0..system.nodes.len() {
            if all || dice.chance(50) {
                system.nodes[i].arrivals = MessageArrivals::Interrupt { cost: Span::from_us(dice.roll(1, 3)) };
                (system.nodes[i].receive, system.nodes[i].send) = (None, None);
            }
        }
    }
    if dice.chance(10) {
        let node = &mut system.nodes[0];
        if let (Some(receive), Some(send)) = (node.receive, &mut node.send) {
            (node.arrivals, node.strategy) = (MessageArrivals::Cyclic, StrategyRef::Builtin(Builtin::Fifo));
            send.period = receive.period;
        }
    }
}

#[derive(Default)]
pub(super) struct Hop {
    /// From the arrival of the flow to a release.
    release: u64,
    /// From the arrival of the flow to a completion.
    complete: u64,
    /// Messages that one receiving job takes.
    messages: u64,
}

pub(super) struct Observed {
    hops: BTreeMap<TaskId, Hop>,
    lost: u64,
    missed: Vec<TaskId>,
}

pub(super) fn events(system: &System, seed: u64, duration: u64) -> Vec<(u32, Time, Event)> {
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let options = SimOptions { duration: Span::from_us(duration), seed, node: None };
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    events
}

pub(super) fn observe(events: Vec<(u32, Time, Event)>) -> Observed {
    let mut hops: BTreeMap<TaskId, Hop> = BTreeMap::new();
    let mut origins: BTreeMap<takt_log::JobKey, Time> = BTreeMap::new();
    let mut batches: BTreeMap<(u32, Time, TaskId), u64> = BTreeMap::new();
    let (mut missed, mut lost) = (Vec::new(), 0);
    for (stream, at, event) in events {
        match event {
            Event::Release { job, arrival, parent } => {
                let origin = parent.map_or(arrival, |parent| parent.origin);
                origins.insert(job, origin);
                let hop = hops.entry(job.task).or_default();
                hop.release = hop.release.max(at.as_ns() - origin.as_ns());
            }
            Event::Complete { job, .. } => {
                let hop = hops.entry(job.task).or_default();
                hop.complete = hop.complete.max(at.as_ns() - origins[&job].as_ns());
            }
            Event::Receive { job, .. } => *batches.entry((stream, at, job.task)).or_default() += 1,
            Event::Drop { .. } => lost += 1,
            Event::Miss { job } => missed.push(job.task),
            _ => {}
        }
    }
    for ((_, _, task), count) in batches {
        let hop = hops.entry(task).or_default();
        hop.messages = hop.messages.max(count);
    }
    Observed { hops, lost, missed }
}

/// Whether what is observed stays within a report that proves the whole system. Flows that are proven, and
/// those that come to half their bound.
pub(super) fn within(system: &System, report: &CheckReport, observed: &Observed, replay: &str) -> (u64, u64) {
    let of = |scope: &str| {
        let mut tests = report.tests.iter().filter(|test| test.test == TestId::PartialEdf);
        tests.find(|test| test.scope == scope && test.verdict.answer() == Answer::Yes)
    };
    let Observed { hops, lost, missed } = observed;
    let lowered = takt_model::flows::lower(system).expect("there are flows");
    let missed = missed.first().map(|id| &lowered.system.tasks[id.index()].name);
    assert!(missed.is_none(), "{replay}\n{missed:?} misses\n{system:#?}");
    assert_eq!(*lost, 0, "{replay}\n{system:#?}");
    let (mut proven, mut reached) = (0, 0);
    for (i, flow) in system.flows.iter().enumerate() {
        let Some(bound) = of(&format!("flow/{}", flow.name)) else { continue };
        let bound = bound.figures["end_to_end_ns"].as_u64().expect("a bound");
        let task = |hop: usize| lowered.task_of(FlowId(i as u32), hop as u32).expect("a hop");
        let count = flow.hops().count();
        let seen = hops.get(&task(count - 1)).map_or(0, |hop| hop.complete);
        assert!(seen <= bound, "{replay}\nflow {}: {seen} > {bound}\n{system:#?}", flow.name);
        (proven, reached) = (proven + 1, reached + u64::from(seen * 2 >= bound));
        for (hop, node) in flow.hops().enumerate() {
            let node = of(&system.nodes[node.index()].name).expect("a node that passes");
            let told = node.figures["flows"].as_array().expect("hops").iter();
            let mut mine = told.filter(|told| told["flow"] == flow.name.as_str() && told["hop"] == hop);
            let told = mine.next().expect("the hop");
            let seen = hops.get(&task(hop)).map_or(0, |hop| hop.release);
            let most = told["release_ns"].as_u64().expect("a release");
            assert!(seen <= most, "{replay}\n{} hop {hop}: released after {seen} > {most}\n{system:#?}", flow.name);
            if let Some(k) = told["messages"].as_u64() {
                let seen = hops.get(&task(hop - 1)).map_or(0, |hop| hop.messages);
                assert!(seen <= k, "{replay}\n{} hop {hop}: {seen} messages > {k}\n{system:#?}", flow.name);
            }
        }
    }
    (proven, reached)
}

#[test]
fn no_flow_exceeds_what_is_proven_of_it() {
    let (mut proven, mut reached, mut interrupted, mut rounds) = (0, 0, 0, 0);
    for seed in seeds(1_500) {
        let mut dice = Dice::new(seed);
        let mut system = random_network(&mut dice);
        learn_otherwise(&mut dice, &mut system);
        let report = check(&system, &CheckOptions::default());
        rounds += 1;
        let is = |kind: fn(&MessageArrivals) -> bool| system.nodes.iter().any(|node| kind(&node.arrivals));
        if is(|kind| *kind == MessageArrivals::Cyclic) {
            assert_ne!(report.schedulable, Answer::Yes, "{}\n{system:#?}", replay(seed, "no_flow_exceeds"));
        }
        let interrupts = is(|kind| matches!(kind, MessageArrivals::Interrupt { .. }));
        if report.schedulable == Answer::Yes {
            let observed = observe(events(&system, seed, 4_000));
            let (of, near) = within(&system, &report, &observed, &replay(seed, "no_flow_exceeds"));
            (proven, reached) = (proven + of, reached + near);
            interrupted += if interrupts { of } else { 0 };
        }
    }
    println!(
        "{proven} flows proven in {rounds} systems, {interrupted} of them where messages interrupt; {reached} come to \
         half their bound"
    );
    assert!(cases(1_500) < 1_000 || (proven * 4 > rounds && interrupted * 20 > rounds), "{proven} of {rounds}");
}

/// Clocks that begin apart and are measured. `error` covers what the table leaves: half the difference of the two
/// delays of an exchange, and the drift. A request may wait until its receiver begins. A message may wait as well, and
/// its job then arrives up to `offset` late.
fn random_apart(dice: &mut Dice) -> System {
    let mut system = random_network(dice);
    for flow in &mut system.flows {
        flow.deadline = Span::from_ns(flow.deadline.as_ns() * dice.roll(1, 3));
    }
    let Auto::Value((least, most)) = system.networks[0].delay else { panic!("a written delay") };
    // Below the deadlines of first hops and the periods of flows.
    let offset = Span::from_us(dice.roll(1, 30));
    let left = (most.max(offset).as_ns() - least.as_ns()).div_ceil(2);
    // In 4 ms two clocks move apart by less than 1 us.
    let drift = Span::from_us(2);
    let error = Span::from_ns(left).saturating_add(drift).max(offset);
    let sync = TableTask { period: Span::from_us(dice.roll(200, 400)), wcet: Span::from_us(2), cost: None };
    system.clock = Clock { drift_ppm: dice.pick(&[0, 100]), offset, error, sync: Some(sync) };
    system
}

/// Responses count from the arrival of the flow at its first node. Until the first answer of a peer its messages are
/// dropped, which `check` does not cover.
#[test]
fn no_flow_between_clocks_that_begin_apart_exceeds_what_is_proven_of_it() {
    let (mut proven, mut carried, mut unknown, mut rounds) = (0, 0, 0, 0);
    for seed in seeds(1_000) {
        let system = random_apart(&mut Dice::new(seed));
        let report = check(&system, &CheckOptions::default());
        rounds += 1;
        if report.schedulable != Answer::Yes {
            continue;
        }
        let replay = replay(seed, "no_flow_between_clocks");
        let is_unknown = |event: &Event| matches!(event, Event::Drop { cause: DropCause::Unknown, .. });
        let (dropped, known): (Vec<_>, Vec<_>) =
            events(&system, seed, 4_000).into_iter().partition(|(_, _, event)| is_unknown(event));
        unknown += dropped.len();
        for (_, at, event) in &known {
            let Event::Release { arrival, parent: Some(parent), .. } = *event else { continue };
            let off = arrival.lateness_to(parent.origin).as_ns().unsigned_abs();
            let most = u64::from(parent.hop) * (system.clock.error.as_ns() + 1_000);
            assert!(off <= most, "{replay}\nhop {} at {at}: off by {off} > {most}\n{system:#?}", parent.hop);
            carried += 1;
        }
        proven += within(&system, &report, &observe(known), &replay).0;
    }
    println!(
        "{proven} flows proven in {rounds} systems; {carried} deadlines carried, {unknown} messages dropped before"
    );
    assert!(cases(1_000) < 1_000 || (proven * 20 > rounds && carried > 1_000 && unknown > 50), "{proven} of {rounds}");
}

/// Delays of up to one and a half periods of `clock.sync`. So several exchanges of a pair of nodes are under way at
/// once, and their messages may come together.
fn random_long_exchanges(dice: &mut Dice) -> System {
    let mut system = random_network(dice);
    let period = dice.roll(60, 200);
    let most = period * 3 / 2;
    let least = dice.pick(&[0, most / 2, most]);
    system.networks[0].delay = Auto::Value((Span::from_us(least), Span::from_us(most)));
    for flow in &mut system.flows {
        let hops = flow.hops().count() as u64;
        flow.deadline = flow.deadline.saturating_add(Span::from_us(2 * most * hops));
    }
    system.clock.sync = Some(TableTask { period: Span::from_us(period), wcet: Span::from_us(2), cost: None });
    system
}

#[test]
fn no_flow_beside_exchanges_that_outlast_their_period_exceeds_what_is_proven_of_it() {
    let (mut proven, mut outlast, mut rounds) = (0, 0, 0);
    for seed in seeds(1_000) {
        let system = random_long_exchanges(&mut Dice::new(seed));
        let report = check(&system, &CheckOptions::default());
        rounds += 1;
        if report.schedulable != Answer::Yes {
            continue;
        }
        let events = events(&system, seed, 4_000);
        let outlasts = |sync: TableTask| longest_exchange(&system, &events) > sync.period.as_ns();
        // Only tasks that take a limited number of messages leave any over.
        let limited = system.nodes.iter().any(|node| node.receive.is_some_and(|receive| receive.cost.is_some()));
        outlast += u64::from(limited && system.clock.sync.is_some_and(outlasts));
        proven += within(&system, &report, &observe(events), &replay(seed, "no_flow_beside_exchanges")).0;
    }
    println!(
        "{proven} flows proven in {rounds} systems; in {outlast} of these systems exchanges outlast their period, and \
         receiving tasks take a limited number of messages"
    );
    assert!(cases(1_000) < 1_000 || (proven > 0 && outlast > 0), "{proven}, {outlast} of {rounds}");
}

/// The system with the least deadlines of its flows, in 64ths of those given, that are proven.
/// Deadlines decide the bounds: EDF uses what it is given.
fn tightened(system: &System) -> (System, CheckReport) {
    let scaled = |part: u64| {
        let mut system = system.clone();
        for flow in &mut system.flows {
            flow.deadline = Span::from_ns((flow.deadline.as_ns() * part / 64).max(1));
        }
        let report = check(&system, &CheckOptions::default());
        (system, report)
    };
    let (mut no, mut yes) = (0, 64);
    while no + 1 < yes {
        let middle = (no + yes) / 2;
        if scaled(middle).1.schedulable == Answer::Yes { yes = middle } else { no = middle }
    }
    scaled(yes)
}

fn search(system: &System, seed: u64) -> Found {
    let options = SimOptions { duration: Span::from_us(2_000), seed, node: None };
    let one = |start| climb(system, &options, start, RUNS_PER_CLIMB).unwrap_or_else(|error| panic!("{error}"));
    let mut found = one(0);
    (1..4).for_each(|start| found.merge(one(start)));
    found
}

/// How tight bounds of flows are: a search for the worst never exceeds them, and comes close.
/// docs/reference/tests/partial-edf.md has the figures, and the command.
#[test]
fn a_search_for_the_worst_stays_within_the_bounds_and_comes_close() {
    let mut shares: Vec<f64> = Vec::new();
    let mut reached = 0;
    for seed in seeds(60) {
        let system = random_network(&mut Dice::new(seed));
        if check(&system, &CheckOptions::default()).schedulable != Answer::Yes {
            continue;
        }
        let replay = replay(seed, "a_search_for_the_worst");
        let (system, report) = tightened(&system);
        let found = search(&system, seed);
        if let Some((count, traffic)) = &found.missed {
            let traffic = traffic.text(&system);
            panic!("{replay}\n{count} deadlines missed, all are proven; --delays {traffic}\n{system:#?}");
        }
        for (flow, case) in report.flows.iter().zip(&found.flows) {
            let (Some(bound), Some(case)) = (flow.end_to_end, case) else { continue };
            let traffic = case.traffic.text(&system);
            let (seen, name) = (case.response, &flow.flow);
            assert!(seen <= bound, "{replay}\nflow {name}: {seen} > {bound}; --delays {traffic}\n{system:#?}");
            shares.push(seen.as_ns() as f64 / bound.as_ns() as f64);
            reached += u64::from(seen == bound);
        }
    }
    shares.sort_by(f64::total_cmp);
    let (count, median) = (shares.len(), shares.get(shares.len() / 2).copied().unwrap_or_default());
    println!("{count} flows: {reached} reach their bound; observed / bound is {median:.3} in the median");
    assert!(cases(60) < 60 || (count > 20 && median > 0.3), "{count} flows, {median}");
}
