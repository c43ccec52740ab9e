//! Networks whose delays follow from links and ports, message by message.

use std::collections::BTreeMap;

use takt_log::{DropCause, Event, JobKey};
use takt_model::*;
use takt_sim::{MESSAGES_MAX, SimError, SimOptions, simulate};

/// A byte takes a microsecond at this rate.
const MEGABYTE: Rate = Rate::from_bps(8_000_000);

fn us(us: u64) -> Span {
    Span::from_us(us)
}

/// Nodes that send and receive once a millisecond, in 1 us, and a network whose delay is not written.
fn system(nodes: u32) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    let table = Some(TableTask { period: us(1_000), wcet: us(1), cost: None });
    let node = |i: u32| {
        let node = NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf));
        NodeSpec { link: Some(Link::at(MEGABYTE)), receive: table, send: table, ..node }
    };
    system.nodes = (0..nodes).map(node).collect();
    system.networks = vec![Network { delay: Auto::Auto, ..Network::any(us(0), us(0)) }];
    system
}

/// A flow from a node to another, once every 100 ms. Its first job takes `wcet` us. Jobs are due after `due` us, each
/// from the one before.
fn flow(name: &str, from: u32, to: u32, wcet: u64, bytes: u64, due: [u64; 2]) -> Flow {
    Flow {
        name: name.to_owned(),
        path: vec![NodeId(from), NodeId(to)],
        reply: false,
        period: us(100_000),
        wcet: us(wcet),
        deadline: us(due[0] + due[1]),
        send_gap: us(1_000),
        hop_wcet: us(1),
        size: Bytes::new(bytes),
        hop_deadlines: due.map(us).to_vec(),
    }
}

fn events(system: &System, duration: u64, seed: u64) -> Vec<(u32, Time, Event)> {
    let mut events = Vec::new();
    simulate(system, &SimOptions { duration: us(duration), seed, node: None }, &mut events)
        .unwrap_or_else(|error| panic!("{error}"));
    events
}

/// The messages of 20 ms, by flow: in us, the instants of send and arrival or drop.
fn course(system: &System) -> String {
    let lowered = takt_model::flows::lower(system).expect("there are flows");
    let name = |job: JobKey| lowered.system.tasks[job.task.index()].name.split('/').next().unwrap_or("").to_owned();
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    for (_, at, event) in &events(system, 20_000, 0) {
        let (job, mark) = match *event {
            Event::Send { job, .. } => (job, " ".to_owned()),
            Event::Arrive { job, .. } => (job, " to ".to_owned()),
            Event::Drop { job, cause, .. } => (job, [" ", cause.name(), " "].concat()),
            _ => continue,
        };
        *words.entry(name(job)).or_default() += &format!("{mark}{}", at.as_ns() / 1_000);
    }
    words.into_iter().map(|(name, word)| format!("{name}{word}")).collect::<Vec<_>>().join(", ")
}

/// At 1 ms two messages are sent, at 2 ms a third. A byte takes 1 us, so the first is on its way until 5 ms.
fn three() -> System {
    let mut system = system(2);
    system.flows = vec![
        flow("big", 0, 1, 10, 4_000, [2_000, 12_000]),
        flow("lax", 0, 1, 10, 300, [6_000, 60_000]),
        flow("urgent", 0, 1, 1_500, 200, [7_000, 9_000]),
    ];
    system
}

#[test]
fn messages_leave_one_after_the_other() {
    assert_eq!(course(&three()), "big 1002 to 5002, lax 1002 to 5302, urgent 2002 to 5502");
}

/// The same on another link of the first node.
fn on(link: Link) -> String {
    let mut system = three();
    system.nodes[0].link = Some(link);
    course(&system)
}

#[test]
fn a_link_sends_what_is_due_first() {
    let edf = Link { edf: true, ..Link::at(MEGABYTE) };
    assert_eq!(on(edf), "big 1002 to 5002, lax 1002 to 5502, urgent 2002 to 5202");
}

/// The message `big` could start in time, and the others behind it only at 5002 us.
#[test]
fn late_messages_are_sent_dropped_or_demoted() {
    let mut system = three();
    // Messages are due when the jobs of the second hop are.
    system.flows[1].hop_deadlines = vec![us(2_500), us(2_000)];
    system.flows[1].deadline = us(4_500);
    let mut by = |late: Late| {
        system.nodes[0].link = Some(Link { late, ..Link::at(MEGABYTE) });
        course(&system)
    };
    assert_eq!(by(Late::Continue), "big 1002 to 5002, lax 1002 to 5302, urgent 2002 to 5502");
    assert_eq!(by(Late::Drop), "big 1002 to 5002, lax 1002 late 5002, urgent 2002 to 5202");
    assert_eq!(by(Late::Demote), "big 1002 to 5002, lax 1002 to 5502, urgent 2002 to 5202");
}

/// A bucket of 50 bytes a millisecond. `big` empties it at 1002 us. At 5002 us it has 200 bytes, and `lax` takes 300.
/// So the next message may start 2 ms later.
#[test]
fn a_bucket_holds_messages_back() {
    let bucket = Some(Bucket { burst: Bytes::new(4_000), rate: Rate::from_bps(400_000) });
    assert_eq!(on(Link { bucket, ..Link::at(MEGABYTE) }), "big 1002 to 5002, lax 1002 to 5302, urgent 2002 to 7202");
}

/// Packets of background traffic start at 0, 400 and 800 us, and `big` waits for the third; a slow source may send
/// two of them at first.
#[test]
fn background_traffic_delays_by_one_packet() {
    let by = |rate: Option<u64>| {
        let background = Background { size: Bytes::new(400), rate: rate.map(Rate::from_bps) };
        on(Link { background: Some(background), ..Link::at(MEGABYTE) })
    };
    assert_eq!(by(None), "big 1002 to 5200, lax 1002 to 5500, urgent 2002 to 5700");
    assert_eq!(by(Some(8_000)), "big 1002 to 5002, lax 1002 to 5302, urgent 2002 to 5502");
}

/// A reply that is due first goes first, but with a bucket of their own replies go after other messages.
#[test]
fn replies_go_after_other_messages() {
    let mut system = three();
    system.flows.remove(0);
    system.flows[0].size = Bytes::new(3_000);
    let ask = flow("ask", 1, 0, 10, 1, [1_500, 1_000]);
    let reply = Flow { reply: true, hop_deadlines: [1_500, 1_000, 1_000].map(us).to_vec(), deadline: us(3_500), ..ask };
    system.flows.push(reply);
    let mut by = |replies: Option<Bucket>| {
        system.nodes[0].link = Some(Link { edf: true, replies, ..Link::at(MEGABYTE) });
        course(&system)
    };
    assert_eq!(by(None), "ask 1002 to 1003 3002 to 4003, lax 1002 to 4002, urgent 2002 to 4203");
    let bucket = Bucket { burst: Bytes::new(1), rate: MEGABYTE };
    assert_eq!(by(Some(bucket)), "ask 1002 to 1003 3002 to 4203, lax 1002 to 4002, urgent 2002 to 4202");
}

/// The first bit of each message is told with its size.
#[test]
fn transmissions_are_told() {
    let system = three();
    let sent = events(&system, 20_000, 0).into_iter().filter_map(|(stream, at, event)| match event {
        Event::Transmit { message, bytes } => Some((stream, at.as_ns() / 1_000, message, bytes)),
        _ => None,
    });
    assert_eq!(sent.collect::<Vec<_>>(), [(0, 1_002, 0, 4_000), (0, 5_002, 1, 300), (0, 5_302, 2, 200)]);
    assert!(takt_sim::kinds(&system).contains(takt_log::Kind::Transmit));
}

/// A byte takes 1 us on the link and again at each port.
#[test]
fn ports_store_and_forward() {
    let mut system = three();
    let port = |name: &str| Port { name: name.into(), rate: MEGABYTE, latency: us(0), cross: None, fifo: true };
    system.ports = vec![port("first"), port("second")];
    system.networks[0].through = vec![PortId(0), PortId(1)];
    assert_eq!(course(&system), "big 1002 to 13002, lax 1002 to 13302, urgent 2002 to 13502");
    // Two nodes meet at a port.
    system.nodes.push(NodeSpec { name: "n2".into(), ..system.nodes[1].clone() });
    system.networks[0].through.pop();
    system.flows = vec![flow("here", 0, 1, 10, 500, [5_000, 9_000]), flow("there", 2, 1, 10, 600, [5_000, 9_000])];
    assert_eq!(course(&system), "here 1002 to 2002, there 1002 to 2602");
}

/// Others fill half of the port, in frames of 1538 bytes, and a message waits for them.
#[test]
fn cross_traffic_delays_within_its_bound() {
    let mut system = three();
    let cross = Cross { burst: Bytes::new(3_076), rate: Rate::from_bps(4_000_000) };
    let port = Port { name: "p".into(), rate: MEGABYTE, latency: us(100), cross: Some(cross), fifo: true };
    system.ports = vec![port];
    system.networks[0].through = vec![PortId(0)];
    let mut longest = 0;
    for seed in 0..50 {
        let (mut sent, mut found) = (BTreeMap::new(), Vec::new());
        for (_, at, event) in events(&system, 40_000, seed) {
            match event {
                Event::Send { job, .. } => drop(sent.insert(job, at)),
                Event::Arrive { job, .. } => found.push((at - sent[&job]).as_ns() / 1_000),
                _ => {}
            }
        }
        longest = found.into_iter().max().map_or(longest, |most| most.max(longest));
    }
    // Without others 8.1 ms and a latency; with them (4.5 + 3.1) ms and half of that time more.
    assert!(longest > 9_500 && longest < 16_000, "{longest}");
}

/// A flow that shares no machine with others keeps its delays when others are added.
#[test]
fn a_flow_elsewhere_changes_no_draws() {
    let mut system = three();
    let cross = Cross { burst: Bytes::new(3_076), rate: Rate::from_bps(4_000_000) };
    system.ports = vec![Port { name: "p".into(), rate: MEGABYTE, latency: us(900), cross: Some(cross), fifo: false }];
    system.networks[0] = Network { to: Some(NodeId(1)), through: vec![PortId(0)], ..system.networks[0].clone() };
    system.networks[0].loss = Probability::from_billionths(200_000_000).unwrap();
    let mut more = system.clone();
    more.nodes.extend(["x", "y"].map(|name| NodeSpec { name: name.into(), ..system.nodes[1].clone() }));
    more.networks.push(Network { to: Some(NodeId(3)), through: vec![PortId(1)], ..system.networks[0].clone() });
    more.ports.insert(0, Port { name: "q".into(), ..system.ports[0].clone() });
    more.networks.iter_mut().for_each(|network| network.through[0].0 = 1 - network.through[0].0);
    more.flows.push(flow("other", 2, 3, 10, 700, [5_000, 9_000]));
    let of = |system: &System, seed| {
        let all = events(system, 300_000, seed).into_iter().filter(|(stream, ..)| *stream < 2);
        // Tasks have other numbers.
        all.map(|(stream, at, event)| (stream, at, event.kind())).collect::<Vec<_>>()
    };
    for seed in 0..20 {
        assert!(of(&system, seed) == of(&more, seed), "{seed}");
    }
    assert!(of(&system, 1) != of(&system, 2));
}

/// Both nodes compare their clocks once. The first one also sends a message of 400 bytes that is due after so many us.
fn exchanges(due: u64) -> System {
    let mut system = system(2);
    system.flows = vec![flow("put", 0, 1, 10, 400, [due, 9_000])];
    system.clock.sync = Some(TableTask { period: us(100_000), wcet: us(1), cost: None });
    system
}

/// The same on another link of the first node.
fn exchanges_on(due: u64, link: Link) -> String {
    let mut system = exchanges(due);
    system.nodes[0].link = Some(link);
    course(&system)
}

/// Messages of `clock.sync` have 210 bytes. At 1 ms nodes send requests, at 2 ms answers. The sending task sends the
/// message of the job that is due first before others.
#[test]
fn exchanges_of_clocks_take_their_time_on_the_link() {
    let put_first = "n0 1002 to 1612 2002 to 2212, n1 1002 to 1212 2002 to 2212, put 1002 to 1402";
    let put_last = "n0 1002 to 1212 2002 to 2212, n1 1002 to 1212 2002 to 2212, put 1002 to 1612";
    assert_eq!(course(&exchanges(5_000)), put_first);
    assert_eq!(course(&exchanges(200_000)), put_last);
    // They have no deadline on the link, so they leave after messages with one.
    let edf = Link { edf: true, ..Link::at(MEGABYTE) };
    assert_eq!(exchanges_on(200_000, edf), put_first);
    // Without a network they go over links alone.
    let mut alone = exchanges(5_000);
    alone.networks.clear();
    assert_eq!(course(&alone), put_first);
}

/// A bucket of 50 bytes a millisecond. `put` empties it at 1002 us. At 1402 us it has 20 bytes, and the request takes
/// 210. So the answer may start at 5202 us. The bucket of replies would let it pass.
#[test]
fn exchanges_of_clocks_go_through_the_bucket_of_messages() {
    let bucket = Some(Bucket { burst: Bytes::new(400), rate: Rate::from_bps(400_000) });
    let replies = Some(Bucket { burst: Bytes::new(400), rate: MEGABYTE });
    let link = Link { bucket, replies, ..Link::at(MEGABYTE) };
    let held = "n0 1002 to 1612 2002 to 5412, n1 1002 to 1212 2002 to 2212, put 1002 to 1402";
    assert_eq!(exchanges_on(5_000, link), held);
}

/// A port only on the way from the first node to the second. The request is there at 2012 us, after a receiving job.
#[test]
fn exchanges_of_clocks_go_through_ports() {
    let mut system = exchanges(5_000);
    system.ports = vec![Port { name: "p".into(), rate: MEGABYTE, latency: us(0), cross: None, fifo: true }];
    let back = Network { from: Some(NodeId(1)), ..system.networks[0].clone() };
    system.networks[0] = Network { from: Some(NodeId(0)), through: vec![PortId(0)], ..back.clone() };
    system.networks.push(back);
    let seen = "n0 1002 2002 to 2012 to 2422, n1 1002 to 1212 3002 to 3212, put 1002 to 1802";
    assert_eq!(course(&system), seen);
}

/// A link of a byte a second keeps the messages that its queue holds; more are dropped, at once.
#[test]
fn a_queue_holds_so_many_and_drops_the_rest() {
    let mut system = system(2);
    system.nodes[0].link = Some(Link::at(Rate::from_bps(8)));
    let table = Some(TableTask { period: us(10), wcet: us(1), cost: None });
    system.nodes[0].send = table;
    let often = flow("often", 0, 1, 1, 2, [5, 5]);
    system.flows = vec![Flow { period: us(10), send_gap: us(10), ..often }];
    let events = events(&system, 700_000, 0);
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|(_, _, event)| wanted(event)).count();
    let sent = count(|event| matches!(event, Event::Send { .. }));
    let dropped = count(|event| matches!(event, Event::Drop { cause: DropCause::Full, .. }));
    // One is on the line.
    assert_eq!((sent - dropped, count(|event| matches!(event, Event::Arrive { .. }))), (MESSAGES_MAX + 1, 0));
    assert!(dropped > 1_000);
}

/// The other places where messages wait hold as many. The next ones are dropped there, each with an event.
#[test]
fn every_place_where_messages_wait_has_its_limit() {
    type Change = fn(&mut System);
    // The node that tells, and the messages that the place does not count.
    let places: [(&str, u32, u64, Change); 5] = [
        ("to be received", 1, 0, |system| system.nodes[1].receive = None),
        ("to be sent", 0, 0, |system| system.nodes[0].send = None),
        ("on the way", 0, 0, |system| system.networks = vec![Network::any(us(1_000_000), us(1_000_000))]),
        // One is on the line.
        ("at a port", 0, 1, |system| {
            let (rate, latency) = (Rate::from_bps(8), us(0));
            system.ports = vec![Port { name: "p".into(), rate, latency, cross: None, fifo: true }];
            system.networks[0].through = vec![PortId(0)];
        }),
        ("to interrupt", 1, 0, |system| {
            (system.nodes[1].receive, system.nodes[1].send) = (None, None);
            system.nodes[1].arrivals = MessageArrivals::Interrupt { cost: us(1_000_000) };
        }),
    ];
    for (place, stream, beside, change) in places {
        let mut system = system(2);
        system.nodes[0].send = Some(TableTask { period: us(10), wcet: us(1), cost: None });
        system.flows = vec![Flow { period: us(10), send_gap: us(10), ..flow("often", 0, 1, 1, 2, [5, 5]) }];
        change(&mut system);
        let dropped = events(&system, 700_000, 0).into_iter().filter_map(|(stream, _, event)| match event {
            Event::Drop { message, cause, .. } => Some((stream, message, cause)),
            _ => None,
        });
        let dropped: Vec<_> = dropped.collect();
        let first = MESSAGES_MAX as u64 + beside;
        let all: Vec<_> = (first..).take(dropped.len()).map(|message| (stream, message, DropCause::Full)).collect();
        assert!(dropped.len() > 1_000 && dropped == all, "{place}: {} of {:?}", dropped.len(), dropped.first());
    }
}

#[test]
fn a_sender_needs_a_link() {
    let mut system = three();
    system.nodes[0].link = None;
    let error = simulate(&system, &SimOptions::default(), &mut Vec::new()).expect_err("no link");
    assert_eq!(error, SimError::NoLink { node: "n0".into() });
}
