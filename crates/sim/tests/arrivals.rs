//! Three ways in which nodes learn of messages, against a slow, obvious simulator in steps of a nanosecond.

mod common;

use common::messages::{Recorded, are_written, slow};
use common::random::{Dice, cases, seeds};
use takt_log::Event;
use takt_model::*;
use takt_sim::{SimOptions, simulate};

/// Two or three nodes of any kind with flows between them and tasks beside them, in ns.
fn network(dice: &mut Dice) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes.clear();
    let kind = dice.roll(0, 3);
    for i in 0..dice.roll(2, 3) {
        let mut node = NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf));
        node.arrivals = match if kind < 3 { kind } else { dice.roll(0, 2) } {
            0 => MessageArrivals::Table,
            1 => MessageArrivals::Interrupt { cost: dice.ns(1, 3) },
            _ => MessageArrivals::Cyclic,
        };
        let frame = dice.roll(12, 20);
        let table = |dice: &mut Dice, period: u64| {
            let wcet = dice.roll(1, 3);
            let cost = dice.chance(50).then(|| Span::from_ns(dice.roll(1, wcet)));
            Some(TableTask { period: Span::from_ns(period), wcet: Span::from_ns(wcet), cost })
        };
        match node.arrivals {
            MessageArrivals::Table => {
                let periods = (dice.roll(4, 12), dice.roll(4, 12));
                (node.receive, node.send) = (table(dice, periods.0), table(dice, periods.1));
            }
            MessageArrivals::Interrupt { .. } => {}
            MessageArrivals::Cyclic => {
                (node.receive, node.send) = (table(dice, frame), table(dice, frame));
                node.strategy = StrategyRef::Builtin(Builtin::Fifo);
            }
        }
        system.nodes.push(node);
    }
    if dice.chance(40) {
        let to_completion = Level { preemptive: false, ..Level::new(Filter::Rest, Discipline::Deadline) };
        system.strategies.push(Strategy { name: "np".to_owned(), levels: vec![to_completion] });
        for node in system.nodes.iter_mut().filter(|node| node.arrivals != MessageArrivals::Cyclic) {
            if dice.chance(70) {
                node.strategy = StrategyRef::Own(StrategyId(0));
            }
        }
    }
    let count = system.nodes.len() as u64;
    for i in 0..dice.roll(0, 2) {
        let mut task = Task::periodic(&format!("t{i}"), dice.ns(15, 40), dice.ns(1, 6));
        (task.node, task.offset) = (NodeId(dice.roll(0, count - 1) as u32), dice.ns(0, 10));
        task.deadline = dice.ns(5, 40);
        system.tasks.push(task);
    }
    for i in 0..dice.roll(1, 3) {
        let mut path = vec![NodeId(dice.roll(0, count - 1) as u32)];
        for _ in 0..dice.roll(1, 2) {
            let last = path[path.len() - 1];
            path.push(NodeId(((u64::from(last.0) + dice.roll(1, count - 1)) % count) as u32));
        }
        let reply = path.first() != path.last() && dice.chance(40);
        let hop_deadlines: Vec<Span> = (0..path.len() + usize::from(reply)).map(|_| dice.ns(5, 40)).collect();
        system.flows.push(Flow {
            name: format!("f{i}"),
            reply,
            period: dice.ns(15, 50),
            wcet: dice.ns(1, 4),
            deadline: hop_deadlines.iter().fold(Span::ZERO, |sum, span| sum.saturating_add(*span)),
            send_gap: dice.ns(1, 15),
            hop_wcet: dice.ns(1, 4),
            size: Bytes::default(),
            hop_deadlines,
            path,
        });
    }
    let delay = dice.ns(0, 6);
    system.networks.push(Network::any(delay, delay));
    system
}

fn fast(system: &System, end: u64) -> Vec<Recorded> {
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let options = SimOptions { duration: Span::from_ns(end), seed: 0, node: None };
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    let told = events.into_iter().filter_map(|(node, at, event)| {
        let (what, job) = match event {
            Event::Release { job, .. } => ("release", job),
            Event::Start { job, .. } => ("start", job),
            Event::Preempt { job, .. } => ("preempt", job),
            Event::Resume { job, .. } => ("resume", job),
            Event::Complete { job, .. } => ("complete", job),
            Event::Arrive { job, .. } => ("arrive", job),
            Event::Receive { job, .. } => ("receive", job),
            Event::Send { job, .. } => ("send", job),
            Event::Drop { .. } => panic!("nothing is dropped"),
            _ => return None,
        };
        Some((at.as_ns(), node, what, job.task.0, job.number))
    });
    told.filter(|(at, ..)| *at < end).collect()
}

#[test]
fn all_three_kinds_of_nodes_run_as_the_slow_reference_says() {
    let mut received = [0; 3];
    for seed in seeds(400) {
        let system = network(&mut Dice::new(seed));
        let text = takt_model::file::write(&system);
        assert!(takt_model::file::parse(&text, "a.toml").is_ok() && are_written(&system), "{text}");
        let (mut ours, mut theirs) = (fast(&system, 250), slow(&system, 250));
        // Each node's events in their order, also those of one instant.
        ours.sort_by_key(|(_, node, ..)| *node);
        theirs.sort_by_key(|(_, node, ..)| *node);
        if ours != theirs {
            let at = ours.iter().zip(&theirs).position(|(one, other)| one != other).unwrap_or(0);
            let near = |told: &[Recorded]| told[at.saturating_sub(6)..(at + 4).min(told.len())].to_vec();
            panic!(
                "TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test arrivals\n{system:#?}\nsimulator: \
                 {:#?}\nreference: {:#?}",
                near(&ours),
                near(&theirs)
            );
        }
        for (_, node, what, ..) in ours {
            let kind = match system.nodes[node as usize].arrivals {
                MessageArrivals::Table => 0,
                MessageArrivals::Interrupt { .. } => 1,
                MessageArrivals::Cyclic => 2,
            };
            received[kind] += u64::from(what == "receive");
        }
    }
    let few = received.iter().any(|count| *count < 100);
    assert!(cases(400) < 400 || !few, "too few messages: {received:?}");
}

/// A coarse clock may have shown the instant of an arrival before it came.
#[test]
fn interrupts_of_drifting_nodes_keep_the_order_of_streams() {
    for seed in 0..40 {
        let mut system = network(&mut Dice::new(seed));
        for node in &mut system.nodes {
            node.strategy = StrategyRef::Builtin(Builtin::Edf);
            node.arrivals = MessageArrivals::Interrupt { cost: Span::from_ns(1) };
            (node.receive, node.send) = (None, None);
        }
        system.clock.drift_ppm = 50_000;
        let mut events: Vec<(u32, Time, Event)> = Vec::new();
        let options = SimOptions { duration: Span::from_ns(2_000), seed, node: None };
        simulate(&system, &options, &mut events).expect("it can be simulated");
        let mut last = [Time::ZERO; 3];
        for (stream, at, event) in events {
            assert!(at >= last[stream as usize], "seed {seed}: {event:?} at {at}");
            last[stream as usize] = at;
        }
    }
}
