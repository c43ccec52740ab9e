//! Flows over networks: the examples of the paper [HEDF], draws that stand apart, and queues.

use std::collections::BTreeMap;

use takt_log::{CancelCause, Event};
use takt_model::*;
use takt_sim::traffic::{End, Ends, Traffic};
use takt_sim::{SimOptions, simulate, simulate_with};

type Events = Vec<(u32, Time, Event)>;

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn table(period: u64, wcet: u64, cost: Option<u64>) -> Option<TableTask> {
    Some(TableTask { period: us(period), wcet: us(wcet), cost: cost.map(us) })
}

fn flow(name: &str, path: &[u32], period: u64, wcet: u64, hop_wcet: u64, deadlines: &[u64]) -> Flow {
    Flow {
        name: name.to_owned(),
        path: path.iter().map(|node| NodeId(*node)).collect(),
        reply: false,
        period: us(period),
        wcet: us(wcet),
        deadline: us(deadlines.iter().sum()),
        send_gap: us(period),
        hop_wcet: us(hop_wcet),
        size: Bytes::default(),
        hop_deadlines: deadlines.iter().map(|deadline| us(*deadline)).collect(),
    }
}

/// Nodes under EDF without tables.
fn nodes(count: u32) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes = (0..count).map(|i| NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf))).collect();
    system
}

fn events(system: &System, duration: u64, seed: u64) -> Events {
    let mut events = Vec::new();
    simulate(system, &SimOptions { duration: us(duration), seed, node: None }, &mut events)
        .unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    events
}

/// Instants of an event of a task, in µs.
fn instants(system: &System, events: &Events, task: &str, wanted: impl Fn(&Event) -> Option<TaskId>) -> Vec<u64> {
    let lowered = takt_model::flows::lower(system).expect("there are flows");
    let id = lowered.system.task_by_name(task).expect("the task");
    let mine = events.iter().filter(|(_, _, event)| wanted(event) == Some(id));
    mine.map(|(_, at, _)| at.as_ns() / 1_000).collect()
}

fn released(event: &Event) -> Option<TaskId> {
    if let Event::Release { job, .. } = event { Some(job.task) } else { None }
}

fn started(event: &Event) -> Option<TaskId> {
    if let Event::Start { job, .. } = event { Some(job.task) } else { None }
}

/// The most messages of one flow that one receiving job takes: k.
fn most_at_once(events: &Events) -> u64 {
    let mut batches: BTreeMap<(u32, Time, TaskId), u64> = BTreeMap::new();
    for (stream, at, event) in events {
        if let Event::Receive { job, .. } = event {
            *batches.entry((*stream, *at, job.task)).or_default() += 1;
        }
    }
    batches.into_values().max().unwrap_or(0)
}

/// HEDF Fig. 1: messages that arrive at 2, 3, 6 and 8 become jobs at 7, 7, 7 and 13. The third job
/// runs before the fourth although it is due later.
#[test]
fn a_message_is_unknown_until_it_is_received() {
    let mut system = nodes(5);
    system.nodes[0].receive = table(6_000, 1_000, None);
    // A message leaves its node at 1.1 ms.
    for (sender, (name, arrives, wcet, due)) in [
        ("a", 2_000, 1_000, 10_000),
        ("b", 3_000, 1_000, 11_000),
        ("c", 6_000, 3_000, 19_000),
        ("d", 8_000, 1_000, 16_000),
    ]
    .into_iter()
    .enumerate()
    {
        let from = sender as u32 + 1;
        system.nodes[from as usize].send = table(1_000, 100, None);
        system.flows.push(flow(name, &[from, 0], 100_000, 100, wcet, &[1_000, due - 1_000]));
        let delay = Auto::Value((us(arrives - 1_100), us(arrives - 1_100)));
        system.networks.push(Network {
            from: Some(NodeId(from)),
            to: Some(NodeId(0)),
            delay,
            ..Network::any(us(0), us(0))
        });
    }
    let events = events(&system, 20_000, 0);
    let at = |name: &str, which: fn(&Event) -> Option<TaskId>| instants(&system, &events, name, which);
    assert_eq!(["a/1", "b/1", "c/1", "d/1"].map(|name| at(name, released)), [[7_000], [7_000], [7_000], [13_000]]);
    assert_eq!(["a/1", "b/1", "c/1", "d/1"].map(|name| at(name, started)), [[7_000], [8_000], [9_000], [13_000]]);
}

/// HEDF Fig. 2: with delays of 1 to 3, periods of 3 for sending and 5 for receiving, k is 3.
#[test]
fn three_messages_wait_where_the_paper_says_three() {
    let mut system = nodes(2);
    system.nodes[0].send = table(3_000, 100, None);
    system.nodes[1].receive = table(5_000, 100, None);
    system.flows.push(flow("t", &[0, 1], 3_000, 1_000, 1_000, &[10_000, 11_000]));
    system.networks.push(Network::any(us(1_000), us(3_000)));
    let seen: Vec<u64> = (0..20).map(|seed| most_at_once(&events(&system, 300_000, seed))).collect();
    assert_eq!(seen.iter().max(), Some(&3), "{seen:?}");
}

/// HEDF Section IV-C: k is 3 in a fast network. It is at most 5 with delays of 5.25 ms to 15.89 ms,
/// also on the path over three nodes.
#[test]
fn batches_are_those_of_the_papers_measurements() {
    let mut system = nodes(3);
    for node in &mut system.nodes {
        node.send = table(5_000, 100, None);
        node.receive = table(10_000, 100, None);
    }
    let local = Task { deadline: us(60_000), ..Task::periodic("busy", us(60_000), us(49_000)) };
    system.tasks.push(local);
    // Bursts leave the busy node, and clocks that differ let the phases wander.
    system.clock.drift_ppm = 2_000;
    let put = |path: &[u32], deadlines: &[u64]| Flow {
        send_gap: us(5_000),
        ..flow("put", path, 10_000, 900, 900, deadlines)
    };
    let most = |system: &System| (0..6).map(|seed| most_at_once(&events(system, 6_000_000, seed))).max();
    system.flows = vec![put(&[0, 1], &[100_000, 100_000])];
    system.networks = vec![Network::any(us(100), us(300))];
    assert_eq!(most(&system), Some(3));
    system.networks = vec![Network::any(us(5_250), us(15_890))];
    assert!((4..=5).contains(&most(&system).unwrap_or(0)), "{:?}", most(&system));
    system.flows = vec![put(&[0, 1, 2], &[100_000, 100_000, 100_000])];
    assert!((4..=5).contains(&most(&system).unwrap_or(0)), "{:?}", most(&system));
}

/// Messages of one hop leave at least T' apart on the grid of the sending task.
#[test]
fn messages_leave_a_gap_apart() {
    let mut system = nodes(2);
    system.nodes[0].send = table(3_000, 100, None);
    system.nodes[1].receive = table(5_000, 100, None);
    // Held back by a long job, four jobs of the flow complete in a row.
    let busy = Task { deadline: us(21_000), ..Task::periodic("busy", us(100_000), us(18_000)) };
    system.tasks.push(busy);
    let put = flow("put", &[0, 1], 5_000, 100, 100, &[30_000, 30_000]);
    system.flows.push(Flow { send_gap: us(5_000), ..put });
    system.networks.push(Network::any(us(0), us(0)));
    let sent = instants(&system, &events(&system, 60_000, 0), "put/0", |event| {
        if let Event::Send { job, .. } = event { Some(job.task) } else { None }
    });
    assert!(sent.len() > 6 && sent.windows(2).all(|pair| pair[1] - pair[0] >= 6_000), "{sent:?}");
}

/// The job of the second hop waits for a busy task until it is late. Dropped, it leaves no message for the third.
#[test]
fn a_late_job_that_is_dropped_leaves_no_message() {
    let mut system = nodes(3);
    for node in &mut system.nodes {
        (node.receive, node.send) = (table(1_000, 10, None), table(1_000, 10, None));
    }
    system.tasks.push(Task { node: NodeId(1), ..Task::periodic("busy", us(100_000), us(20_000)) });
    system.flows.push(flow("put", &[0, 1, 2], 100_000, 100, 100, &[1_000, 5_000, 50_000]));
    system.networks.push(Network::any(us(0), us(0)));
    system.nodes[1].strategy = StrategyRef::Own(StrategyId(0));
    let by = |late: Late| {
        let busy = Level::new(Filter::Named(vec!["busy".to_owned()]), Discipline::Fifo);
        let levels = vec![busy, Level { late, ..Level::new(Filter::Rest, Discipline::Deadline) }];
        let system = System { strategies: vec![Strategy { name: "mine".to_owned(), levels }], ..system.clone() };
        let events = events(&system, 60_000, 0);
        let dropped = instants(&system, &events, "put/1", |event| match *event {
            Event::Cancel { job, cause: CancelCause::Late } => Some(job.task),
            _ => None,
        });
        let sent = instants(&system, &events, "put/1", |event| match *event {
            Event::Send { job, .. } => Some(job.task),
            _ => None,
        });
        (dropped, sent.len(), instants(&system, &events, "put/2", released).len())
    };
    assert_eq!(by(Late::Continue), (vec![], 1, 1));
    assert_eq!(by(Late::Drop), (vec![6_000], 0, 0));
}

/// A network with replies, synchronisation, drift and losses.
fn store() -> System {
    let mut system = nodes(3);
    for node in &mut system.nodes {
        node.receive = table(2_000, 300, Some(20));
        node.send = table(2_000, 300, Some(20));
    }
    let sync = Some(TableTask { period: us(50_000), wcet: us(100), cost: None });
    system.clock = Clock { drift_ppm: 50, error: us(20), sync, ..Clock::default() };
    let put = flow("put", &[0, 1, 2], 10_000, 300, 300, &[8_000; 4]);
    system.flows.push(Flow { reply: true, ..put });
    let loss = Probability::from_billionths(50_000_000).expect("a probability");
    system.networks.push(Network { loss, ..Network::any(us(100), us(900)) });
    system
}

/// The releases of a flow's jobs, in order.
fn traffic(system: &System, events: &Events, flow: &str) -> Vec<(u64, Event)> {
    let lowered = takt_model::flows::lower(system).expect("there are flows");
    let name = |job: takt_log::JobKey| lowered.system.tasks[job.task.index()].name.clone();
    let prefix = format!("{flow}/");
    let of = |event: &Event| match *event {
        Event::Release { job, .. } => Some(job),
        _ => None,
    };
    let mine = events.iter().filter(|(_, _, event)| of(event).is_some_and(|job| name(job).starts_with(&prefix)));
    mine.map(|(_, at, event)| (at.as_ns(), *event)).collect()
}

#[test]
fn the_same_seed_gives_the_same_events_and_a_new_flow_changes_no_draws() {
    let system = store();
    let first = events(&system, 400_000, 7);
    assert!(first == events(&system, 400_000, 7) && first != events(&system, 400_000, 8));
    // A flow elsewhere: between nodes of its own, which stand first in the file.
    let mut more = system.clone();
    for name in ["x", "y"] {
        let mut node = NodeSpec::new(name, 1, StrategyRef::Builtin(Builtin::Edf));
        (node.receive, node.send) = (table(3_000, 300, None), table(3_000, 300, None));
        more.nodes.insert(0, node);
    }
    more.flows[0].path.iter_mut().for_each(|node| node.0 += 2);
    more.flows.push(flow("other", &[0, 1], 7_000, 300, 300, &[20_000, 20_000]));
    let (before, after) = (traffic(&system, &first, "put"), traffic(&more, &events(&more, 400_000, 7), "put"));
    assert!(before.len() > 100 && before == after);
}

/// Messages of the task `put/0` by instance: from send to arrival, in ns. `None`: lost.
fn under_way(system: &System, seed: u64) -> BTreeMap<u64, Option<u64>> {
    let task = takt_model::flows::lower(system).and_then(|lowered| lowered.system.task_by_name("put/0"));
    let (mut sent, mut found) = (BTreeMap::new(), BTreeMap::new());
    for (_, at, event) in events(system, 400_000, seed) {
        match event {
            Event::Send { job, .. } if Some(job.task) == task => drop(sent.insert(job.number, at)),
            Event::Arrive { job, .. } if Some(job.task) == task => {
                found.insert(job.number, Some((at - sent[&job.number]).as_ns()));
            }
            Event::Drop { job, .. } if Some(job.task) == task => drop(found.insert(job.number, None)),
            _ => {}
        }
    }
    found
}

/// Alone, messages of `put` leave 4.6 ms after their arrivals. With `other` they leave at 6.6 ms, and those of `other`
/// at 4.6 ms. So no message waits for another one, and each takes as long as before.
#[test]
fn a_new_flow_over_the_same_nodes_and_ports_changes_no_draws() {
    let mut system = nodes(2);
    for node in &mut system.nodes {
        (node.receive, node.send) = (table(2_000, 300, None), table(2_000, 300, None));
        node.link = Some(Link::at(Rate::from_bps(1_000_000_000)));
    }
    system.flows.push(flow("put", &[0, 1], 10_000, 2_500, 300, &[8_000, 20_000]));
    let port =
        Port { name: "p".to_owned(), rate: Rate::from_bps(1_000_000_000), latency: us(900), cross: None, fifo: true };
    system.ports.push(port);
    let loss = Probability::from_billionths(200_000_000).expect("a probability");
    let interval = Network { loss, ..Network::any(us(100), us(900)) };
    let computed = Network { delay: Auto::Auto, through: vec![PortId(0)], ..interval.clone() };
    for (network, seed) in
        [interval, computed].into_iter().flat_map(|network| (0..5).map(move |seed| (network.clone(), seed)))
    {
        system.networks = vec![network];
        let mut more = system.clone();
        more.flows.insert(0, flow("other", &[0, 1], 10_000, 1_500, 300, &[3_000, 20_000]));
        let (before, after) = (under_way(&system, seed), under_way(&more, seed));
        assert_eq!(before, after, "seed {seed}, {:?}", system.networks);
        let taken: std::collections::BTreeSet<_> = before.values().flatten().collect();
        assert!(before.len() == 40 && before.values().any(Option::is_none) && taken.len() > 20, "{before:?}");
    }
}

/// How long each message of the task `put/0` was under way.
fn delays(system: &System, traffic: &Traffic) -> Vec<u64> {
    let options = SimOptions { duration: us(400_000), seed: 3, node: None };
    let mut events = Events::new();
    simulate_with(system, &options, traffic, &mut events).expect("it can be simulated");
    let task = takt_model::flows::lower(system).expect("a flow").task_of(FlowId(0), 0).expect("its first hop");
    let (mut sent, mut delays) = (BTreeMap::new(), Vec::new());
    for (_, at, event) in events {
        match event {
            Event::Send { job, message } if job.task == task => drop(sent.insert(message, at)),
            Event::Arrive { job, message } if job.task == task => delays.push((at - sent[&message]).as_ns() / 1_000),
            _ => {}
        }
    }
    delays
}

#[test]
fn messages_take_the_delays_that_the_file_says() {
    let mut system = nodes(2);
    for node in &mut system.nodes {
        (node.receive, node.send) = (table(2_000, 300, None), table(2_000, 300, None));
    }
    system.flows.push(flow("put", &[0, 1], 4_000, 300, 300, &[8_000; 2]));
    let part = |billionths| Probability::from_billionths(billionths).expect("a probability");
    let pmf = vec![(us(200), part(750_000_000)), (us(700), part(250_000_000))];
    let network = Network::any(us(100), us(900));
    let drawn = Traffic::drawn(&system);

    system.networks = vec![Network { actual_delay: ActualDelay::Pmf(pmf), ..network.clone() }];
    let seen = delays(&system, &drawn);
    let short = seen.iter().filter(|delay| **delay == 200).count();
    assert!(seen.iter().all(|delay| [200, 700].contains(delay)), "{seen:?}");
    assert!(seen.len() > 90 && (60..90).contains(&(short * 100 / seen.len())), "{short} of {}", seen.len());
    // An adversary takes the ends of the interval, which bounds what the file says.
    for (end, expected) in [(End::Least, 100), (End::Most, 900)] {
        let traffic = Traffic { ends: vec![vec![Some(Ends::all(end))]], ..drawn.clone() };
        assert!(delays(&system, &traffic).iter().all(|delay| *delay == expected));
    }

    let values = [us(500), us(150), us(900)].into();
    let trace = Trace { path: "delays.csv".to_owned(), values };
    system.networks = vec![Network { actual_delay: ActualDelay::Trace(trace), ..network.clone() }];
    assert_eq!(delays(&system, &drawn)[..5], [500, 150, 900, 500, 150]);
    let trace = Trace { path: "delays.csv".to_owned(), ..Trace::default() };
    system.networks = vec![Network { actual_delay: ActualDelay::Trace(trace), ..network }];
    let options = SimOptions { duration: us(1_000), seed: 0, node: None };
    let error = simulate(&system, &options, &mut Events::new()).unwrap_err().to_string();
    assert_eq!(error, "the trace \"delays.csv\" of network 1 holds no values");
}

#[test]
fn messages_are_sent_received_or_dropped_and_streams_keep_their_order() {
    let events = events(&store(), 1_000_000, 1);
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|(_, _, event)| wanted(event)).count();
    let sent = count(|event| matches!(event, Event::Send { .. }));
    let arrived = count(|event| matches!(event, Event::Arrive { .. }));
    let received = count(|event| matches!(event, Event::Receive { .. }));
    let dropped = count(|event| matches!(event, Event::Drop { .. }));
    assert!(sent > 300 && dropped > 5 && received > 250, "{sent} {arrived} {received} {dropped}");
    assert!(sent >= arrived + dropped && sent - arrived - dropped < 10 && arrived - received < 10);
    let mut last = [Time::ZERO; 3];
    for (stream, at, _) in &events {
        assert!(*at >= last[*stream as usize]);
        last[*stream as usize] = *at;
    }
}

/// Servers report payments at the end. A slow clock shows the reading of the end before the end.
#[test]
fn final_charges_of_servers_follow_the_last_arrival() {
    const TINY: &str = r#"
takt = 1
[[node]]
name = "a"
arrivals = "interrupt"
interrupt = "1ns"
[[node]]
name = "b"
arrivals = "interrupt"
interrupt = "1ns"
[[component]]
name = "c"
node = "b"
server = "ptps"
period = "10ns"
budget = "9ns"
[[task]]
name = "t"
component = "c"
period = "20ns"
wcet = "15ns"
[[network]]
delay = ["3ns", "9ns"]
[[flow]]
name = "f"
path = ["a", "b"]
period = "7ns"
wcet = "1ns"
deadline = "100ns"
size = "100B"
[clock]
drift-ppm = 100000
"#;
    let system = file::parse(TINY, "tiny.toml").expect("a sound file");
    // With the seed 10 a message arrives at the end of 118 ns.
    for (seed, ns) in (0..20).flat_map(|seed| (100..130).map(move |ns| (seed, ns))) {
        let mut events = Events::new();
        let options = SimOptions { duration: Span::from_ns(ns), seed, node: None };
        simulate(&system, &options, &mut events).expect("it can be simulated");
        let mut last = [Time::ZERO; 2];
        for (stream, at, event) in events {
            assert!(at >= last[stream as usize], "seed {seed}, {ns} ns: {event:?} at {at}");
            last[stream as usize] = at;
        }
    }
}

/// At 31 ns many events meet. `a` sends its third message, and `b` receives the first one while the second arrives. The
/// budget of `s` ends with its job, and comes again. A job of `d` preempts another one. The network goes before nodes,
/// but for what a node sends at this instant.
#[test]
fn simultaneous_events_keep_their_order() {
    const ALL: &str = r#"
takt = 1
[[node]]
name = "a"
send = { period = "10ns", wcet = "1ns" }
link = { rate = "8Gbit" }
[[node]]
name = "b"
receive = { period = "10ns", wcet = "1ns" }
[[node]]
name = "c"
[[node]]
name = "d"
[[mode]]
node = "b"
at = "31ns"
strategy = "rm"
[[component]]
name = "s"
node = "c"
server = "deferrable"
period = "31ns"
budget = "20ns"
[[task]]
name = "late"
node = "b"
offset = "1ns"
period = "1us"
deadline = "30ns"
wcet = "28ns"
[[task]]
name = "new"
node = "b"
offset = "31ns"
period = "500ns"
wcet = "5ns"
[[task]]
name = "x"
component = "s"
offset = "11ns"
period = "100ns"
wcet = "20ns"
[[task]]
name = "y"
component = "s"
offset = "31ns"
period = "100ns"
wcet = "2ns"
[[task]]
name = "low"
node = "d"
offset = "5ns"
period = "1us"
wcet = "50ns"
[[task]]
name = "high"
node = "d"
offset = "31ns"
period = "300ns"
wcet = "5ns"
[[flow]]
name = "f"
path = ["a", "b"]
period = "10ns"
wcet = "1ns"
deadline = "200ns"
size = "10B"
"#;
    let system = file::parse(ALL, "all.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let mut events = Events::new();
    let options = SimOptions { duration: Span::from_ns(40), seed: 0, node: None };
    simulate(&system, &options, &mut events).expect("it can be simulated");
    let lowered = takt_model::flows::lower(&system).expect("there is a flow").system;
    let line = |(stream, _, event): &(u32, Time, Event)| {
        let job = match *event {
            Event::Release { job, .. }
            | Event::Start { job, .. }
            | Event::Preempt { job, .. }
            | Event::Complete { job, .. }
            | Event::Miss { job }
            | Event::Send { job, .. }
            | Event::Arrive { job, .. }
            | Event::Receive { job, .. } => format!(" {} {}", lowered.tasks[job.task.index()].name, job.number),
            _ => String::new(),
        };
        format!("{}: {}{job}", lowered.nodes[*stream as usize].name, event.kind().name())
    };
    let told: Vec<String> = events.iter().filter(|(_, at, _)| at.as_ns() == 31).map(line).collect();
    assert_eq!(
        told,
        [
            "b: arrive f/0 1",
            "a: complete a/send 3",
            "a: send f/0 2",
            "a: start f/0 3",
            "a: transmit",
            "b: complete b/receive 3",
            "b: receive f/0 0",
            "b: miss late 0",
            "b: release new 0",
            "b: release f/1 0",
            "b: mode change",
            "b: start f/1 0",
            "c: complete x 0",
            "c: release y 0",
            "c: charge",
            "c: exhaust",
            "c: replenish",
            "c: start y 0",
            "d: release high 0",
            "d: preempt low 0",
            "d: start high 0",
        ]
    );
}

#[test]
fn one_node_alone_is_told_as_in_the_whole() {
    let system = store();
    let all: Events = events(&system, 200_000, 3).into_iter().filter(|(stream, ..)| *stream == 1).collect();
    let mut one = Vec::new();
    let options = SimOptions { duration: us(200_000), seed: 3, node: Some(NodeId(1)) };
    simulate(&system, &options, &mut one).expect("it can be simulated");
    assert!(!all.is_empty() && all == one);
}

#[test]
fn a_missing_link_and_networks_that_do_not_agree_are_errors() {
    let mut system = store();
    system.networks.clear();
    let simulated = |system: &System| simulate(system, &SimOptions::default(), &mut Vec::new()).expect_err("an error");
    let no_link = "node \"n0\" sends messages without a written delay, and has no link";
    assert!(simulated(&system).to_string().contains(no_link));
    system.networks.push(Network { delay: Auto::Auto, ..Network::any(us(0), us(0)) });
    assert!(simulated(&system).to_string().contains(no_link));
    // One way is written and the other follows from links.
    system.networks[0].from = Some(NodeId(0));
    system.networks.push(Network { to: Some(NodeId(1)), ..Network::any(us(0), us(0)) });
    assert!(simulated(&system).to_string().contains("messages from \"n0\" to \"n1\" go through other ports"));
}
