//! Networks whose delays follow from links and ports: no simulated message takes longer than `takt
//! size --network-delay` computes, and no flow takes longer than `takt check` then proves.

use std::collections::BTreeMap;

use super::flows::{events, observe, random_network, within};
use super::*;
use takt_analysis::distributed::network::{SizedNetwork, assume_delay, size_network};
use takt_analysis::distributed::shares::Weigh;
use takt_log::{Event, JobKey};
use takt_model::flows::{Role, SYNC_FRAME};

const MBIT: u64 = 1_000_000;

/// Shares count the messages of `clock.sync` as they are on the wire, and a simulation sends them so.
#[test]
fn a_message_about_clocks_has_the_size_that_shares_count() {
    // UDP and IPv4, then Ethernet: header, checksum, preamble and gap.
    let headers = 8 + 20 + 14 + 4 + 8 + 12;
    assert_eq!(SYNC_FRAME.get(), takt_net::SYNC_SEALED as u64 + headers);
}

/// A link with another order, late rule, bucket or background traffic than usual in about half of all cases.
pub(super) fn random_link(dice: &mut Dice) -> Link {
    let mbit = dice.pick(&[200, 1_000, 1_000, 10_000]);
    let mut link = Link::at(Rate::from_bps(MBIT * mbit));
    if dice.chance(50) {
        return link;
    }
    link.edf = dice.chance(50);
    link.late = dice.pick(&[Late::Continue, Late::Drop, Late::Demote]);
    link.bucket = dice.chance(40).then(|| Bucket {
        burst: Bytes::new(dice.pick(&[1_500, 2_000, 6_000])),
        rate: Rate::from_bps(MBIT * dice.roll(mbit / 4, mbit)),
    });
    link.background = dice.chance(40).then(|| Background {
        size: Bytes::new(dice.pick(&[84, 1_538, 3_000])),
        rate: dice.chance(50).then(|| Rate::from_bps(MBIT * dice.roll(1, mbit))),
    });
    link
}

/// Nodes and flows as elsewhere, with links, and ports between them in random rows.
fn random_switches(dice: &mut Dice) -> System {
    let mut system = random_network(dice);
    for flow in &mut system.flows {
        flow.size = Bytes::new(dice.pick(&[1, 64, 400, 1_500]));
        let more = dice.roll(1, 4);
        flow.deadline = Span::from_ns(flow.deadline.as_ns() * more);
    }
    for node in &mut system.nodes {
        node.link = Some(random_link(dice));
    }
    for i in 0..dice.roll(1, 3) {
        let rate = dice.pick(&[200, 400, 1_000]);
        let cross = dice.chance(60).then(|| Cross {
            burst: Bytes::new(dice.pick(&[0, 100, 1_538, 4_000, 10_000])),
            rate: Rate::from_bps(MBIT * dice.roll(1, rate * 3 / 4)),
        });
        let latency = if dice.chance(50) { Span::from_us(dice.roll(0, 20)) } else { Span::ZERO };
        let (name, rate) = (format!("p{i}"), Rate::from_bps(MBIT * rate));
        system.ports.push(Port { name, rate, latency, cross, fifo: dice.chance(60) });
    }
    system.networks.clear();
    for from in 0..system.nodes.len() as u32 {
        for to in (0..system.nodes.len() as u32).filter(|to| *to != from) {
            let mut through: Vec<PortId> = (0..system.ports.len() as u32).map(PortId).collect();
            for i in (1..through.len()).rev() {
                through.swap(i, dice.roll(0, i as u64) as usize);
            }
            through.truncate(dice.roll(0, through.len() as u64) as usize);
            // Pairs with the same row of ports have bounds together.
            if let Some(last) = system.networks.last().filter(|_| dice.chance(40)) {
                through = last.through.clone();
            }
            let (from, to) = (Some(NodeId(from)), Some(NodeId(to)));
            let any = Network::any(Span::ZERO, Span::ZERO);
            system.networks.push(Network { from, to, delay: Auto::Auto, through, ..any });
        }
    }
    system
}

/// The same where all nodes compare their clocks, so that `check` proves most systems:
///
/// - Sending jobs have room for all that waits, and messages of flows do not pile up.
/// - Receiving jobs take all messages, or two to six. In the second case exchanges of clocks need a delay both ways. So
///   it is written for ways that no flow takes, and may be longer than the period of exchanges.
fn random_exchanges(dice: &mut Dice) -> System {
    let mut system = random_switches(dice);
    let period = dice.roll(200, 1_000);
    system.clock.sync = Some(TableTask { period: Span::from_us(period), wcet: Span::from_us(2), cost: None });
    for flow in &mut system.flows {
        flow.send_gap = Span::from_us(dice.roll(1, flow.period.as_ns() / 2_000));
    }
    let limited = dice.chance(60);
    let room = |task: Option<TableTask>, messages: Option<u64>| {
        let cost = |task: TableTask| messages.map(|count| Span::from_ns(task.wcet.as_ns() / count));
        task.map(|task| TableTask { cost: cost(task), ..task })
    };
    for node in &mut system.nodes {
        node.receive = room(node.receive, limited.then(|| dice.roll(2, 6)));
        // At most three flows, and two requests and two answers for each of two neighbours.
        node.send = room(node.send, dice.chance(50).then(|| dice.roll(11, 20)));
    }
    let legs: Vec<(NodeId, NodeId)> = system.flows.iter().flat_map(Flow::legs).collect();
    let without_flows = |network: &&mut Network| network.from.zip(network.to).is_some_and(|leg| !legs.contains(&leg));
    for network in system.networks.iter_mut().filter(without_flows).filter(|_| limited) {
        let most = dice.roll(period / 2, period * 3 / 2);
        let least = dice.pick(&[0, most / 2, most]);
        network.delay = Auto::Value((Span::from_us(least), Span::from_us(most)));
        network.through.clear();
    }
    system
}

/// The System with later deadlines, which leave time for such delays.
fn with_time_for(system: &System, delay: Span) -> System {
    let mut system = system.clone();
    for flow in &mut system.flows {
        let more = 2 * delay.as_ns() * flow.hops().count() as u64;
        flow.deadline = flow.deadline.saturating_add(Span::from_ns(more));
    }
    system
}

/// Delays that networks are sized for, the least first.
const WANTED_US: [u64; 6] = [20, 50, 100, 200, 500, 2_000];

/// The System with the least delays that can be had, of some, and the delay that was wanted.
fn sized(system: &System, weigh: Weigh) -> Option<(Span, SizedNetwork)> {
    let wanted = WANTED_US.map(Span::from_us);
    wanted.into_iter().find_map(|wanted| Some((wanted, size_network(system, weigh, wanted).ok()?)))
}

fn with_shares(system: &System, found: &SizedNetwork) -> System {
    let mut system = system.clone();
    for (node, sized) in system.nodes.iter_mut().zip(&found.system.nodes) {
        node.link = sized.link;
    }
    system
}

/// The token buckets that were found are those of the nodes that send, and give the same delays again.
fn sized_again(found: &SizedNetwork, weigh: Weigh, replay: &str) {
    for share in &found.shares {
        let node = found.system.nodes.iter().find(|node| node.name == share.node);
        let bucket = node.and_then(|node| node.link?.bucket);
        let expected = Bucket { burst: Bytes::new(share.burst_bytes), rate: Rate::from_bps(share.rate_bps) };
        assert_eq!(bucket, Some(expected), "{replay}");
    }
    if found.system.clock.sync.is_some() {
        // The jitter of these messages depends on the delay that is wanted.
        return;
    }
    let longest = found.delays.iter().map(|delay| delay.delay).max().unwrap();
    let again = size_network(&found.system, weigh, longest).unwrap_or_else(|error| panic!("{replay}\n{error}"));
    assert_eq!((&again.shares, &again.delays), (&found.shares, &found.delays), "{replay}");
}

/// The longest delay of messages between two nodes, from the end of the sending task's job to the
/// buffer of the receiver.
fn longest_delays(system: &System, events: &[(u32, Time, Event)]) -> BTreeMap<(String, String), u64> {
    let mut sent: BTreeMap<(JobKey, u64), (u32, Time)> = BTreeMap::new();
    let mut longest = BTreeMap::new();
    for (stream, at, event) in events {
        match *event {
            Event::Send { job, message } => {
                sent.insert((job, message), (*stream, *at));
            }
            Event::Arrive { job, message } => {
                let (from, since) = sent[&(job, message)];
                let name = |node: u32| system.nodes[node as usize].name.clone();
                let most = longest.entry((name(from), name(*stream))).or_default();
                *most = (at.as_ns() - since.as_ns()).max(*most);
            }
            _ => {}
        }
    }
    longest
}

/// The longest time from the arrival of a job of `clock.sync` until an answer to it is in the buffer of its node.
pub(super) fn longest_exchange(system: &System, events: &[(u32, Time, Event)]) -> u64 {
    let lowered = takt_model::flows::lower(system).expect("there are flows");
    let is = |job: JobKey, role: Role| lowered.role(job.task) == Some(role);
    let mut asked: BTreeMap<JobKey, (u32, Time)> = BTreeMap::new();
    let mut received: BTreeMap<JobKey, (u32, Time)> = BTreeMap::new();
    let mut taken: BTreeMap<(u32, Time), Vec<JobKey>> = BTreeMap::new();
    let mut longest = 0;
    for (stream, at, event) in events {
        let here = (*stream, *at);
        match *event {
            Event::Release { job, arrival, .. } if is(job, Role::Sync) => {
                asked.insert(job, (*stream, arrival));
            }
            Event::Complete { job, .. } if is(job, Role::Receive) => {
                received.insert(job, here);
            }
            Event::Receive { job, .. } if is(job, Role::Sync) => taken.entry(here).or_default().push(job),
            // An answer belongs to the receiving job that took the request.
            Event::Arrive { job, .. } if is(job, Role::Receive) => {
                for request in taken.get(&received[&job]).into_iter().flatten() {
                    let (asker, arrival) = asked[request];
                    if asker == *stream {
                        longest = longest.max(at.as_ns() - arrival.as_ns());
                    }
                }
            }
            _ => {}
        }
    }
    longest
}

/// Whether all nodes are proven, so that jobs of `clock.sync` are in time. Without this, bounds of delays assume it.
fn asks_in_time(system: &System, wanted: Span) -> bool {
    let assumed = || check(&assume_delay(system, wanted), &CheckOptions::default());
    system.clock.sync.is_none() || assumed().schedulable == Answer::Yes
}

/// Counts of what was held against bounds.
#[derive(Default)]
struct Held {
    systems: u64,
    /// Pairs of nodes with messages.
    messages: u64,
    /// Those with half their bound.
    near: u64,
    /// The longest delay of a pair beside its bound.
    tightness: Tightness,
    /// Systems whose flows are proven.
    proven: u64,
    /// Those of them where an exchange of clocks outlasts its period.
    outlast: u64,
}

impl Held {
    /// Simulates the system: no delay exceeds its bound, and no flow what is proven of it.
    fn against(&mut self, system: &System, found: &SizedNetwork, seed: u64, replay: &str) {
        let events = events(system, seed, 4_000);
        let longest = longest_delays(system, &events);
        for delay in &found.delays {
            let Some(seen) = longest.get(&(delay.from.clone(), delay.to.clone())) else { continue };
            let bound = delay.delay.as_ns();
            assert!(
                *seen <= bound,
                "{replay}\n{} to {}: {seen} > {bound}\n{system:#?}\n{found:#?}",
                delay.from,
                delay.to
            );
            (self.messages, self.near) = (self.messages + 1, self.near + u64::from(seen * 2 >= bound));
            self.tightness.note(*seen, bound);
        }
        let report = check(&found.system, &CheckOptions::default());
        if report.schedulable == Answer::Yes {
            let outlasts = |sync: TableTask| longest_exchange(system, &events) > sync.period.as_ns();
            self.outlast += u64::from(system.clock.sync.is_some_and(outlasts));
            within(system, &report, &observe(events), replay);
            self.proven += 1;
        }
    }
}

#[test]
fn no_message_takes_longer_than_its_network_allows() {
    let mut held = Held::default();
    for seed in seeds(1_500) {
        let mut dice = Dice::new(seed);
        let system = random_switches(&mut dice);
        let weigh = dice.pick(&[Weigh::Bytes, Weigh::Messages, Weigh::Fair]);
        let Some((wanted, found)) = sized(&system, weigh) else { continue };
        // With its share or with its whole link a node does not exceed the bound.
        let shared = if dice.chance(60) { with_shares(&system, &found) } else { system.clone() };
        held.systems += 1;
        let replay = replay(seed, "no_message_takes");
        sized_again(&found, weigh, &replay);
        if asks_in_time(&system, wanted) {
            held.against(&shared, &found, seed, &replay);
        }
    }
    let Held { systems, messages, near, tightness, proven, .. } = held;
    println!("{systems} networks, {messages} pairs of nodes, {near} at half their bound; {proven} systems proven");
    println!("the longest delay seen / bound is {tightness}");
    assert!(cases(1_500) < 1_000 || (systems * 10 > cases(1_500) && near * 100 > messages && proven * 50 > systems));
}

/// The same where all nodes compare their clocks, and most of the load may be their messages.
#[test]
fn no_exchange_of_clocks_takes_longer_than_its_network_allows() {
    let mut held = Held::default();
    for seed in seeds(1_500) {
        let mut dice = Dice::new(seed);
        let given = random_exchanges(&mut dice);
        let least = WANTED_US.map(Span::from_us).into_iter().find_map(|wanted| {
            let system = with_time_for(&given, wanted);
            let found = size_network(&system, Weigh::Bytes, wanted).ok()?;
            Some((system, wanted, found))
        });
        let Some((system, wanted, found)) = least else { continue };
        held.systems += 1;
        if asks_in_time(&system, wanted) {
            let shared = if dice.chance(60) { with_shares(&system, &found) } else { system };
            held.against(&shared, &found, seed, &replay(seed, "no_exchange_of_clocks"));
        }
    }
    let Held { systems, messages, near, tightness, proven, outlast } = held;
    println!("the longest delay seen / bound is {tightness}");
    println!(
        "{systems} networks, {messages} pairs of nodes, {near} at half their bound; {proven} systems proven, {outlast} \
         of them with exchanges that outlast their period"
    );
    let enough = systems * 10 > cases(1_500) && messages > 0 && proven * 2 > systems && outlast * 20 > proven;
    assert!(cases(1_500) < 1_000 || enough);
}

/// A message of 400 bytes each millisecond needs 3.2 Mbit/s, and exchanges of clocks need 11.2 Mbit/s more.
#[test]
fn a_share_without_the_messages_about_clocks_is_exceeded() {
    let us = Span::from_us;
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    let table = Some(TableTask { period: us(100), wcet: us(5), cost: None });
    let node = |name: &str| {
        let link = Some(Link::at(Rate::from_bps(1_000 * MBIT)));
        let node = NodeSpec::new(name, 1, StrategyRef::Builtin(Builtin::Edf));
        NodeSpec { link, receive: table, send: table, ..node }
    };
    system.nodes = ["a", "b"].map(node).to_vec();
    system.networks = vec![Network { delay: Auto::Auto, ..Network::any(Span::ZERO, Span::ZERO) }];
    system.flows = vec![Flow {
        name: "put".to_owned(),
        path: vec![NodeId(0), NodeId(1)],
        reply: false,
        period: us(1_000),
        wcet: us(10),
        deadline: us(20_000),
        send_gap: us(1_000),
        hop_wcet: us(10),
        size: Bytes::new(400),
        hop_deadlines: Vec::new(),
    }];
    let without = system.clone();
    system.clock.sync = Some(TableTask { period: us(300), wcet: us(2), cost: None });
    // The bound of the delay from "a" to "b" by a share, and the longest delay of the whole traffic with this share.
    let bound_and_seen = |sized: &System| {
        let wanted = us(2_000);
        let found = size_network(sized, Weigh::Bytes, wanted).unwrap_or_else(|error| panic!("{error}"));
        assert!(asks_in_time(sized, wanted));
        let shared = with_shares(&system, &found);
        let longest = longest_delays(&shared, &events(&shared, 0, 20_000));
        (found.delays[0].delay.as_ns(), longest[&("a".to_owned(), "b".to_owned())])
    };
    let (bound, seen) = bound_and_seen(&system);
    assert!(seen <= bound, "{seen} > {bound}");
    let (bound, seen) = bound_and_seen(&without);
    assert!(seen > bound, "{seen} <= {bound}");
}
