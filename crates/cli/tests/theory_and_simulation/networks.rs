//! Networks whose delays follow from links and ports: no simulated message takes longer than `takt
//! size --network-delay` computes, and no flow takes longer than `takt check` then proves.

use std::collections::BTreeMap;

use super::flows::{events, observe, random_network, within};
use super::*;
use takt_analysis::distributed::network::{SYNC_FRAME, SizedNetwork, size_network};
use takt_analysis::distributed::shares::Weigh;
use takt_log::{Event, JobKey};

const MBIT: u64 = 1_000_000;

/// The shares count the messages of `clock.sync` as they are on the wire.
#[test]
fn a_message_about_clocks_has_the_size_that_shares_count() {
    // UDP and IPv4, then Ethernet: header, checksum, preamble and gap.
    let headers = 8 + 20 + 14 + 4 + 8 + 12;
    assert_eq!(SYNC_FRAME, takt_net::SYNC_SEALED as u64 + headers);
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
            let (from, to) = (Some(NodeId(from)), Some(NodeId(to)));
            let any = Network::any(Span::ZERO, Span::ZERO);
            system.networks.push(Network { from, to, delay: Auto::Auto, through, ..any });
        }
    }
    system
}

/// The System with the least delays that can be had, of some.
fn sized(system: &System, weigh: Weigh) -> Option<SizedNetwork> {
    [20, 50, 100, 200, 500, 2_000].iter().find_map(|us| size_network(system, weigh, Span::from_us(*us)).ok())
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

#[test]
fn no_message_takes_longer_than_its_network_allows() {
    let (mut systems, mut messages, mut near, mut proven) = (0, 0, 0, 0);
    let mut tightness = Tightness::new();
    for seed in seeds(1_500) {
        let mut dice = Dice::new(seed);
        let system = random_switches(&mut dice);
        let weigh = dice.pick(&[Weigh::Bytes, Weigh::Messages, Weigh::Fair]);
        let Some(found) = sized(&system, weigh) else { continue };
        // With its share or with its whole link a node does not exceed the bound.
        let system = if dice.chance(60) { with_shares(&system, &found) } else { system };
        systems += 1;
        let replay = replay(seed, "no_message_takes");
        sized_again(&found, weigh, &replay);
        let events = events(&system, seed, 4_000);
        let longest = longest_delays(&system, &events);
        for delay in &found.delays {
            let Some(seen) = longest.get(&(delay.from.clone(), delay.to.clone())) else { continue };
            let bound = delay.delay.as_ns();
            assert!(
                *seen <= bound,
                "{replay}\n{} to {}: {seen} > {bound}\n{system:#?}\n{found:#?}",
                delay.from,
                delay.to
            );
            (messages, near) = (messages + 1, near + u64::from(seen * 2 >= bound));
            tightness.note(*seen, bound);
        }
        let report = check(&found.system, &CheckOptions::default());
        if report.schedulable == Answer::Yes {
            within(&system, &report, &observe(events), &replay);
            proven += 1;
        }
    }
    println!("{systems} networks, {messages} pairs of nodes, {near} at half their bound; {proven} systems proven");
    println!("the longest delay seen / bound is {tightness}");
    assert!(cases(1_500) < 1_000 || (systems * 10 > cases(1_500) && near * 100 > messages && proven * 50 > systems));
}
