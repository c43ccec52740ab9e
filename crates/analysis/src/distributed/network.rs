//! `size` for networks: shares of bandwidth and the delays that go with them, of a System.

use serde::Serialize;
use takt_model::flows::{self, SYNC_FRAME};
use takt_model::{Auto, Bucket, Bytes, Cross, Late, Network, NetworkId, NodeId, NodeSpec, PortId, Rate, Span, System};
use thiserror::Error;

use super::apply::Distributed;
use super::delay::{Traffic, bytes, time};
use super::row::{Layout, PortPath, Shared, WayDelay};
use super::shares::{Link, OutgoingFlow, Share, Weigh};
use crate::report::{as_ns, as_ns_or_null};

/// The largest frame of other traffic that shares are reckoned with: of Ethernet, preamble and gap included.
pub const OTHER_FRAME: u64 = 1_538;

/// A node's share of the network.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SizedShare {
    /// Name of the node.
    pub node: String,
    /// Its part of the sum of all rates, for display.
    pub weight: f64,
    /// ρ of its token bucket.
    pub rate_bps: u64,
    /// σ of its token bucket.
    pub burst_bytes: u64,
    /// The longest delay of a message from the sending task onto the link.
    #[serde(rename = "delay_ns", serialize_with = "as_ns")]
    pub delay: Span,
}

/// How long messages take from one node to another, at most.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SizedDelay {
    /// Name of the sending node.
    pub from: String,
    /// Name of the receiving node.
    pub to: String,
    /// In the sender's queue and on its link.
    #[serde(rename = "sender_ns", serialize_with = "as_ns")]
    pub sender: Span,
    /// At each port on the way.
    pub ports: Vec<SizedPort>,
    /// Through all ports, with bursts paid once. The sum of `ports` is a bound too. `delay` uses the lesser.
    #[serde(rename = "once_ns", serialize_with = "as_ns_or_null")]
    pub once: Option<Span>,
    /// From the end of the sending job to the receiver's buffer, at most.
    #[serde(rename = "delay_ns", serialize_with = "as_ns")]
    pub delay: Span,
}

/// A port on the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SizedPort {
    /// Its name.
    pub port: String,
    /// Its delay of messages between the pair.
    #[serde(rename = "delay_ns", serialize_with = "as_ns")]
    pub delay: Span,
}

/// A change of a System's networks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetworkChange {
    /// Another delay, at best and at worst.
    Delay(NetworkId, (Span, Span)),
    /// One more, after the others.
    Add(Network),
    /// The token bucket of a node that had none: its share.
    Bucket(NodeId, Bucket),
}

/// A System with the delays of its network filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct SizedNetwork {
    /// The System.
    pub system: System,
    /// The least total bandwidth, bits/s.
    pub total_rate: u64,
    /// Each node's share of it.
    pub shares: Vec<SizedShare>,
    /// Delays of every pair of nodes with messages.
    pub delays: Vec<SizedDelay>,
    /// The changes in the System.
    pub changes: Vec<NetworkChange>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Why a network was not sized.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NetworkSizeError {
    /// A flow that the analysis does not cover.
    #[error("flow \"{flow}\": {why}")]
    NotCovered {
        /// Its name.
        flow: String,
        /// Why.
        why: String,
    },
    /// Several networks say how messages go between two nodes, and name different ports.
    #[error(
        "messages from \"{from}\" to \"{to}\" go through other ports by one [[network]] than by another; give \
         the pair its own, with from and to"
    )]
    Ambiguous {
        /// Sending node.
        from: String,
        /// Receiving node.
        to: String,
    },
    /// A port gets more than it sends.
    #[error(
        "port \"{port}\" is to send {needs} bit/s, and its rate is {rate} bit/s; lead messages elsewhere, or send less"
    )]
    Overload {
        /// Its name.
        port: String,
        /// Its long-run input rate, bits/s.
        needs: u64,
        /// Its rate, bits/s.
        rate: u64,
    },
    /// A node that sends has no link.
    #[error("node \"{node}\" sends messages and has no link; give it link = {{ rate = \"...\" }}")]
    NoLink {
        /// Its name.
        node: String,
    },
    /// Replies in a class of their own.
    #[error(
        "node \"{node}\" has link.replies, and no bound is known for replies in a bucket of their own; remove it, or \
         write the delays of its messages"
    )]
    Replies {
        /// Its name.
        node: String,
    },
    /// A token bucket that is too small.
    #[error(
        "the token bucket of node \"{node}\" holds its messages back without a bound: they need {rate} bit/s or more, \
         and a burst of {burst}B"
    )]
    Bucket {
        /// Its name.
        node: String,
        /// The long-run rate of its messages, bits/s.
        rate: u64,
        /// The bytes that come while a packet of others is sent.
        burst: u64,
    },
    /// Delays that the file states beyond the bound.
    #[error(
        "actual-delay of network {network} has a delay of {actual}, and links and ports delay its messages by {bound} \
         at most; remove actual-delay, or correct them"
    )]
    Actual {
        /// Its number in the file, from 1.
        network: usize,
        /// The longest that it states.
        actual: Span,
        /// The bound.
        bound: Span,
    },
    /// The file states a least delay beyond the bound.
    #[error(
        "network {network} has a least delay of {least}, and links and ports delay its messages by {bound} at most; \
         lower the least delay, or allow a longer --network-delay"
    )]
    Least {
        /// Its number in the file, from 1.
        network: usize,
        /// The least delay that it states.
        least: Span,
        /// The bound.
        bound: Span,
    },
    /// Nothing is sent.
    #[error("no flow sends a message, so there is nothing to share")]
    NothingSent,
    /// The links are not enough.
    #[error("{what} are not enough for a delay of {wanted}: {why}; allow more, or send less at once")]
    TooSlow {
        /// What is not enough: whole links, or the token buckets of the file too.
        what: &'static str,
        /// The wanted delay.
        wanted: Span,
        /// The result with whole links.
        why: String,
    },
}

/// The pairs of nodes between which flows' messages go, in the order in which flows name them.
fn pairs(system: &System) -> Vec<(NodeId, NodeId)> {
    let mut pairs = Vec::new();
    for pair in system.flows.iter().flat_map(|flow| flow.legs()) {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs
}

/// The System with `delays` as the longest delays of each pair, and the changes. A network for
/// several pairs gets the longest of their delays. Its best-case delay stays.
fn with_delays(system: &System, delays: &[((NodeId, NodeId), Span)]) -> (System, Vec<NetworkChange>) {
    let mut longest: Vec<Option<Span>> = vec![None; system.networks.len()];
    let mut added = Vec::new();
    for ((from, to), delay) in delays {
        let networks = system.networks_between(*from, *to);
        if networks.is_empty() {
            let any = Network::any(Span::ZERO, *delay);
            added.push(Network { from: Some(*from), to: Some(*to), ..any });
        }
        for network in networks {
            let longest = &mut longest[network.index()];
            *longest = (*longest).max(Some(*delay));
        }
    }
    let mut changed = system.clone();
    let mut changes = Vec::new();
    for (i, (network, longest)) in changed.networks.iter_mut().zip(longest).enumerate() {
        let Some(most) = longest else { continue };
        let least = network.delay.given().map_or(Span::ZERO, |(least, _)| least.min(most));
        network.delay = Auto::Value((least, most));
        changes.push(NetworkChange::Delay(NetworkId(i as u32), (least, most)));
    }
    changed.networks.extend(added.iter().cloned());
    changes.extend(added.into_iter().map(NetworkChange::Add));
    (changed, changes)
}

/// The System where every message takes up to `wanted`, which [`size_network`] then keeps: with it
/// deadlines and tables can be sized first.
#[must_use]
pub fn assume_delay(system: &System, wanted: Span) -> System {
    let delays: Vec<_> = pairs(system).into_iter().map(|pair| (pair, wanted)).collect();
    with_delays(system, &delays).0
}

/// The ports between two nodes, in order. An error if several networks name different ones.
fn ports_between(system: &System, (from, to): (NodeId, NodeId)) -> Result<&[PortId], NetworkSizeError> {
    let networks = system.networks_between(from, to);
    let mut rows = networks.iter().map(|network| system.networks[network.index()].through.as_slice());
    let first = rows.next().unwrap_or_default();
    if rows.all(|row| row == first) {
        return Ok(first);
    }
    let [from, to] = [from, to].map(|node| system.nodes[node.index()].name.clone());
    Err(NetworkSizeError::Ambiguous { from, to })
}

/// The longest time of a request of `clock.sync` from a node to another, in ns. `None` means no bound. On the path of
/// a flow the request takes no longer than the flow's messages. On other paths it leaves the link of a node with flows
/// within `wanted`. The file may have the delay of the rest, or of the whole path from a node without flows.
fn request_delay(system: &System, ways: &[(NodeId, NodeId)], way: (NodeId, NodeId), wanted: Span) -> Option<u64> {
    if ways.contains(&way) {
        return Some(wanted.as_ns());
    }
    let networks = system.networks_between(way.0, way.1);
    if networks.is_empty() {
        ways.iter().find(|(from, _)| *from == way.0)?;
    }
    let longest = networks.iter().try_fold(0, |longest, network| {
        let network = &system.networks[network.index()];
        match network.delay {
            Auto::Value((_, most)) if network.through.is_empty() => Some(most.as_ns().max(longest)),
            _ => None,
        }
    });
    longest?.checked_add(wanted.as_ns())
}

/// The messages of `clock.sync`: each node asks its neighbours once a period, and answers them. A message leaves
/// within its jitter after the arrival of the job that asks. Without a bound for the node or for the delay of the
/// request, two assumptions hold: a job sends within its period, and its answer takes two more periods.
fn sync_messages(system: &System, distributed: &Distributed, wanted: Span) -> Vec<OutgoingFlow> {
    let Some(sync) = system.clock.sync else { return Vec::new() };
    let (drift, period) = (distributed.net.drift, sync.period.as_ns());
    let (gap, longest) = (drift.least(period).max(1), drift.most(period).unwrap_or(u64::MAX));
    let ways = pairs(system);
    let requests: Vec<_> = (0..system.nodes.len()).map(|node| distributed.sync_request(node)).collect();
    let both = |(from, to): (NodeId, NodeId)| {
        let (node, peer) = (from.index(), to.index());
        let answer = || {
            let asked = requests[peer]?.checked_add(request_delay(system, &ways, (to, from), wanted)?)?;
            distributed.sync_answer(node, asked)
        };
        [(requests[node], 1), (answer(), 3)].map(|(jitter, periods)| {
            let jitter = jitter.unwrap_or(longest.saturating_mul(periods));
            OutgoingFlow { node, to: peer, gap, jitter, size: SYNC_FRAME.get() }
        })
    };
    flows::neighbours(system).into_iter().flat_map(both).collect()
}

/// The traffic from the sending tasks to the network, and the messages of `clock.sync` of the same nodes. Nodes
/// that send no message of a flow get no share.
fn outgoing(system: &System, distributed: &Distributed, wanted: Span) -> Result<Vec<OutgoingFlow>, NetworkSizeError> {
    let net = &distributed.net;
    let mut outgoing = Vec::new();
    for (flow, route) in system.flows.iter().zip(&net.flows) {
        for pair in route.hops.windows(2) {
            let (node, to) = (pair[0].node, pair[1].node);
            // On the sender's grid, from which jobs of the table wander by their response.
            let not = |why: &str| NetworkSizeError::NotCovered { flow: flow.name.clone(), why: why.to_owned() };
            let send = net.nodes[node].send.ok_or_else(|| not("a node that sends it has no sending task"))?;
            let grid = route.gap.div_ceil(send.t).checked_mul(send.t);
            let jitter = net.response(node, &[]);
            let (Some(grid), Some(jitter)) = (grid, jitter) else { return Err(not("a table needs more than its CPU")) };
            let gap = net.drift.least(grid).max(1);
            outgoing.push(OutgoingFlow { node, to, gap, jitter, size: flow.size.get().max(1) });
        }
    }
    let senders: Vec<usize> = outgoing.iter().map(|hop| hop.node).collect();
    outgoing.extend(sync_messages(system, distributed, wanted).into_iter().filter(|hop| senders.contains(&hop.node)));
    if outgoing.is_empty() { Err(NetworkSizeError::NothingSent) } else { Ok(outgoing) }
}

/// The least total bandwidth, in bits/s, with each node's share and the System with the resulting
/// token buckets and delays. No message of a flow then takes longer than `wanted` from its sending task to the
/// receiver, ports on its way included.
///
/// # Errors
/// If flows are not covered, a sending node has no link, or links and ports are too slow.
pub fn size_network(system: &System, weigh: Weigh, wanted: Span) -> Result<SizedNetwork, NetworkSizeError> {
    let distributed = Distributed::new(&assume_delay(system, wanted), false).ok_or(NetworkSizeError::NothingSent)?;
    if let Some((flow, why)) = distributed.first_uncovered() {
        return Err(NetworkSizeError::NotCovered { flow: system.flows[flow].name.clone(), why });
    }
    let outgoing = outgoing(system, &distributed, wanted)?;
    let sends = |node: usize| outgoing.iter().any(|hop| hop.node == node);
    if let Some(node) = (0..system.nodes.len()).find(|node| sends(*node) && system.nodes[*node].link.is_none()) {
        return Err(NetworkSizeError::NoLink { node: system.nodes[node].name.clone() });
    }
    let links: Vec<Link> = system.nodes.iter().map(link).collect();
    for (node, spec) in system.nodes.iter().enumerate().filter(|(node, _)| sends(*node)) {
        if spec.link.is_some_and(|link| link.replies.is_some()) {
            return Err(NetworkSizeError::Replies { node: spec.name.clone() });
        }
        check_bucket(&spec.name, links[node], outgoing.iter().filter(|hop| hop.node == node))?;
    }
    let pairs = pairs(system);
    let way = |pair: &(NodeId, NodeId)| {
        let through = ports_between(system, *pair)?.iter().map(|port| port.index()).collect();
        Ok(PortPath { from: pair.0.index(), to: pair.1.index(), through })
    };
    let ways: Vec<PortPath> = pairs.iter().map(way).collect::<Result<_, NetworkSizeError>>()?;
    let port = |port: &takt_model::Port| Shared {
        rate: port.rate.as_bps(),
        latency: port.latency.as_ns(),
        cross: port.cross.map_or(Traffic::default(), traffic),
        fifo: port.fifo,
    };
    let mut ports: Vec<Shared> = system.ports.iter().map(port).collect();
    // Where no flow goes, messages of clock.sync come to a port as other traffic does.
    for hop in sync_messages(system, &distributed, wanted) {
        let pair = (NodeId(hop.node as u32), NodeId(hop.to as u32));
        let own = if pairs.contains(&pair) { &[][..] } else { ports_between(system, pair)? };
        let sent = Traffic::of_messages(hop.size, hop.gap, hop.jitter.saturating_add(hop.gap));
        for port in own {
            let cross = &mut ports[port.index()].cross;
            *cross = sent.and_then(|sent| cross.plus(sent)).unwrap_or(Traffic { burst: u64::MAX, rate: u64::MAX });
        }
    }
    let layout = Layout { outgoing: &outgoing, links: &links, ways: &ways, ports: &ports };
    if let Some((port, needs)) = layout.overload() {
        let (name, rate) = (system.ports[port].name.clone(), ports[port].rate);
        return Err(NetworkSizeError::Overload { port: name, needs, rate });
    }
    let found = layout.least_total(weigh, wanted.as_ns());
    let (total_rate, shares, delays) = found.ok_or_else(|| too_slow(system, &layout, weigh, wanted))?;
    let rates: u64 = shares.iter().map(|share| share.rate).sum();
    let total_rate = if links.iter().any(|link| link.bucket.is_some()) { rates } else { total_rate };
    let longest: Vec<_> = pairs.iter().zip(&delays).map(|(pair, way)| (*pair, Span::from_ns(way.total))).collect();
    let (mut changed, mut changes) = with_delays(system, &longest);
    for share in &shares {
        let Some(link) = changed.nodes[share.node].link.as_mut().filter(|link| link.bucket.is_none()) else { continue };
        let bucket = Bucket { burst: Bytes::new(share.burst), rate: Rate::from_bps(share.rate) };
        link.bucket = Some(bucket);
        changes.push(NetworkChange::Bucket(NodeId(share.node as u32), bucket));
    }
    for (number, (given, network)) in (1..).zip(system.networks.iter().zip(&changed.networks)) {
        if let (Auto::Value((least, _)), Auto::Value((_, bound))) = (given.delay, network.delay)
            && least > bound
        {
            return Err(NetworkSizeError::Least { network: number, least, bound });
        }
    }
    for (number, network) in (1..).zip(&changed.networks) {
        if let (Auto::Value((_, bound)), Some(actual)) = (network.delay, network.actual_delay.longest())
            && actual > bound
        {
            return Err(NetworkSizeError::Actual { network: number, actual, bound });
        }
    }
    let sized = pairs.iter().zip(&ways).zip(&delays);
    let sized = sized.map(|((pair, way), delay)| sized_delay(system, *pair, way, delay));
    let mut notes = Vec::new();
    if ways.iter().any(|way| way.through.is_empty()) {
        notes.push(
            "without ports the delays end at the end of the sender's link: name the ports of switches in \
             through = [...] of [[network]]"
                .to_owned(),
        );
    }
    Ok(SizedNetwork {
        total_rate,
        shares: shares.iter().map(|share| sized_share(system, share, rates)).collect(),
        delays: sized.collect(),
        system: changed,
        changes,
        notes,
    })
}

/// A node's link. Background traffic delays its messages by one packet.
fn link(spec: &NodeSpec) -> Link {
    let Some(link) = spec.link else { return Link { rate: 1, other: OTHER_FRAME, bucket: None, fifo: true } };
    Link {
        rate: link.rate.as_bps(),
        other: link.background.map_or(0, |background| background.size.get()).max(OTHER_FRAME),
        bucket: link.bucket.map(|bucket| Traffic { burst: bucket.burst.get(), rate: bucket.rate.as_bps() }),
        // Demoted messages go after others.
        fifo: !link.edf && link.late != Late::Demote,
    }
}

/// Checks that the token bucket of a node bounds the delay of what the node sends.
fn check_bucket<'a>(
    node: &str,
    link: Link,
    mut outgoing: impl Iterator<Item = &'a OutgoingFlow>,
) -> Result<(), NetworkSizeError> {
    let Some(bucket) = link.bucket else { return Ok(()) };
    let rate = outgoing
        .try_fold(u64::from(!link.fifo), |sum, hop| sum.checked_add(Traffic::of_messages(hop.size, hop.gap, 0)?.rate));
    let burst = time(link.other, link.rate).and_then(|other| bytes(bucket.rate, other));
    let (rate, burst) = (rate.unwrap_or(u64::MAX), burst.unwrap_or(u64::MAX));
    if rate > bucket.rate || burst > bucket.burst {
        return Err(NetworkSizeError::Bucket { node: node.to_owned(), rate, burst });
    }
    Ok(())
}

fn traffic(cross: Cross) -> Traffic {
    Traffic { burst: cross.burst.get(), rate: cross.rate.as_bps() }
}

/// A share for display. `rates` is the sum of all shares in bits/s.
fn sized_share(system: &System, share: &Share, rates: u64) -> SizedShare {
    SizedShare {
        node: system.nodes[share.node].name.clone(),
        weight: share.rate as f64 / rates.max(1) as f64,
        rate_bps: share.rate,
        burst_bytes: share.burst,
        delay: Span::from_ns(share.delay),
    }
}

fn sized_delay(system: &System, (from, to): (NodeId, NodeId), way: &PortPath, delay: &WayDelay) -> SizedDelay {
    let [from, to] = [from, to].map(|node| system.nodes[node.index()].name.clone());
    let port = |(port, delay): (&usize, &u64)| SizedPort {
        port: system.ports[*port].name.clone(),
        delay: Span::from_ns(*delay),
    };
    SizedDelay {
        from,
        to,
        sender: Span::from_ns(delay.sender),
        ports: way.through.iter().zip(&delay.ports).map(port).collect(),
        once: delay.once.filter(|_| !way.through.is_empty()).map(Span::from_ns),
        delay: Span::from_ns(delay.total),
    }
}

/// The delays with whole links, for the error.
fn too_slow(system: &System, layout: &Layout, weigh: Weigh, wanted: Span) -> NetworkSizeError {
    let slowest = layout.whole(weigh).and_then(|delays| {
        let longest = layout.ways.iter().zip(delays).max_by_key(|(_, delay)| delay.total);
        longest.map(|(way, delay)| {
            let [from, to] = [way.from, way.to].map(|node| &system.nodes[node].name);
            let total = Span::from_ns(delay.total);
            format!("from \"{from}\" to \"{to}\" messages may take {total}")
        })
    });
    let why = slowest.unwrap_or_else(|| "some node or port gets more than it sends, or no bound was found".to_owned());
    let buckets = layout.links.iter().any(|link| link.bucket.is_some());
    let what = if buckets { "whole links and the token buckets of the file" } else { "whole links" };
    NetworkSizeError::TooSlow { what, wanted, why }
}
