//! Delays of messages from node to node, through ports of switches that many pairs of nodes share.
//!
//! A [`PortPath`] is a pair of nodes and the ports between them, in order. (b, r) bounds its traffic at
//! the sender's link. Its j-th port delays it by at most D_j, and the ports before by up to the sum
//! of the D_k, k < j. So it reaches port j with the burst b + r x this sum ([`Traffic::delayed`]).
//! *Others* at a port are all other ways, with their bursts there, and the port's own cross
//! traffic. From these [`delay::path`] of the port bounds D_j. In order of arrival the lesser of
//! its two bounds counts. In another order (messages of a way stay in order) the bound by the rest
//! of the link counts. So the D are a fixed point D = F(D) with F monotone, sought from zero
//! upwards. Ways may depend on each other in circles.
//!
//! *Every such fixed point bounds the delays.* Suppose not. A packet that came to a port at instant
//! a is late if it is still there at τ = a + D. Take the late packet with the earliest τ. Packets
//! that come to its port by τ have left other ports by then, each within its D; otherwise its own τ
//! would be earlier. So up to τ all input of the port keeps to the bursts in D's computation. Later
//! input cannot matter. By D = F(D) the packet is gone by τ. Contradiction.
//!
//! With all others bounded, the whole row is bounded by the sum of the D_j and by
//! [`PathDelay::once`], its bursts paid once; the lesser counts.

use super::delay::{self, PathDelay, Port, Traffic};
use super::shares::{Link, OutgoingFlow, Share, Weigh, shares};

/// Rounds of the fixed point before it gives up.
pub const ROUNDS_MAX: u32 = 10_000;

/// A port that ways share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Bits per second.
    pub rate: u64,
    /// Longest wait before it sends, in ns.
    pub latency: u64,
    /// Traffic that comes from elsewhere.
    pub cross: Traffic,
    /// Whether it serves in the order of arrival.
    pub fifo: bool,
}

/// From a node to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortPath {
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// Indices of the ports in a row, none twice.
    pub through: Vec<usize>,
}

/// Traffic of a way as it leaves the sender's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// All of it.
    pub traffic: Traffic,
    /// Bytes of its largest packet.
    pub packet: u64,
}

/// The longest delays of a way's messages, in ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WayDelay {
    /// In the sender's queue and onto its link.
    pub sender: u64,
    /// At each port.
    pub ports: Vec<u64>,
    /// Through all ports, bursts paid once.
    pub once: Option<u64>,
    /// From the sender to the receiver.
    pub total: u64,
}

/// The delay of every way at each of its ports, and in the whole row. `None`: a port gets more than
/// its rate, circles have no fixed point within the limits, or numbers exceed 64 bits.
#[must_use]
pub fn rows(ways: &[PortPath], sent: &[Sent], ports: &[Shared]) -> Option<Vec<(Vec<u64>, PathDelay)>> {
    let mut known: Vec<Vec<u64>> = ways.iter().map(|way| vec![0; way.through.len()]).collect();
    for _ in 0..ROUNDS_MAX {
        let mut next = Vec::with_capacity(ways.len());
        for (i, way) in ways.iter().enumerate() {
            let mut delays = Vec::with_capacity(way.through.len());
            for (j, port) in way.through.iter().enumerate() {
                let ours = arriving(ways, sent, &known, i, j)?;
                let here = [seen(ways, sent, ports, &known, i, *port)?];
                let found = delay::path(ours, sent[i].packet, &here);
                delays.push(if ports[*port].fifo { found.least()? } else { found.once? });
            }
            next.push(delays);
        }
        if next == known {
            let row = |(i, way): (usize, &PortPath)| {
                let here: Option<Vec<Port>> =
                    way.through.iter().map(|port| seen(ways, sent, ports, &known, i, *port)).collect();
                let port_by_port = known[i].iter().try_fold(0u64, |sum, delay| sum.checked_add(*delay))?;
                let once = delay::path(sent[i].traffic, sent[i].packet, &here?).once;
                Some((known[i].clone(), PathDelay { port_by_port: Some(port_by_port), once }))
            };
            return ways.iter().enumerate().map(row).collect();
        }
        known = next;
    }
    None
}

/// A way's traffic as it comes to its j-th port.
fn arriving(ways: &[PortPath], sent: &[Sent], known: &[Vec<u64>], way: usize, j: usize) -> Option<Traffic> {
    debug_assert!(j < ways[way].through.len());
    let before = known[way][..j].iter().try_fold(0u64, |sum, delay| sum.checked_add(*delay))?;
    sent[way].traffic.delayed(before)
}

/// A port as a way sees it.
fn seen(
    ways: &[PortPath],
    sent: &[Sent],
    ports: &[Shared],
    known: &[Vec<u64>],
    way: usize,
    port: usize,
) -> Option<Port> {
    let Shared { rate, latency, cross, .. } = ports[port];
    let mut others = cross;
    for (i, other) in ways.iter().enumerate().filter(|(i, _)| *i != way) {
        if let Some(j) = other.through.iter().position(|at| *at == port) {
            others = others.plus(arriving(ways, sent, known, i, j)?)?;
        }
    }
    Some(Port { rate, latency, others })
}

/// The parts of a network.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The output of each node.
    pub leaving: &'a [OutgoingFlow],
    /// The nodes' links.
    pub links: &'a [Link],
    /// The pairs that send; every leaving message's is there.
    pub ways: &'a [PortPath],
    /// The ports.
    pub ports: &'a [Shared],
}

impl Layout<'_> {
    /// The delay of every way where nodes have these shares; `None` as for [`rows`].
    #[must_use]
    pub fn delays(&self, shares: &[Share]) -> Option<Vec<WayDelay>> {
        let senders = self.ways.iter().map(|way| shares.iter().find(|share| share.node == way.from));
        let senders: Vec<u64> = senders.map(|share| share.map(|share| share.delay)).collect::<Option<_>>()?;
        let mut sent = vec![Sent::default(); self.ways.len()];
        for ((way, sent), sender) in self.ways.iter().zip(&mut sent).zip(&senders) {
            for hop in self.leaving.iter().filter(|hop| (hop.node, hop.to) == (way.from, way.to)) {
                let traffic = Traffic::of_messages(hop.size, hop.gap, hop.jitter)?.delayed(*sender)?;
                sent.traffic = sent.traffic.plus(traffic)?;
                sent.packet = sent.packet.max(hop.size);
            }
        }
        let rows = rows(self.ways, &sent, self.ports)?;
        let whole = |(sender, (ports, row)): (u64, (Vec<u64>, PathDelay))| {
            let total = sender.checked_add(row.least()?)?;
            Some(WayDelay { sender, ports, once: row.once, total })
        };
        senders.into_iter().zip(rows).map(whole).collect()
    }

    /// A port that gets more than its rate in the long run, and what.
    #[must_use]
    pub fn overload(&self) -> Option<(usize, u64)> {
        self.ports.iter().enumerate().find_map(|(at, port)| {
            let ways = || self.ways.iter().filter(|way| way.through.contains(&at));
            let comes = |hop: &&OutgoingFlow| ways().any(|way| (hop.node, hop.to) == (way.from, way.to));
            let rates = self.leaving.iter().filter(comes);
            let rates = rates.map(|hop| Traffic::of_messages(hop.size, hop.gap, 0).map_or(u64::MAX, |sent| sent.rate));
            let needs = rates.fold(port.cross.rate, u64::saturating_add);
            (needs > port.rate && ways().next().is_some()).then_some((at, needs))
        })
    }

    /// The delays where every node has its whole link.
    #[must_use]
    pub fn whole(&self, weigh: Weigh) -> Option<Vec<WayDelay>> {
        self.delays(&shares(self.leaving, self.links, weigh, u64::MAX)?)
    }

    /// The shares of the least total with which no message takes longer than `wanted` ns from node
    /// to node, and what they take; `None` where whole links are not enough.
    #[must_use]
    pub fn least_total(&self, weigh: Weigh, wanted: u64) -> Option<(u64, Vec<Share>, Vec<WayDelay>)> {
        // A larger share never delays more, neither at the sender nor, as bursts are then less, at a port.
        let enough = |total: u64| {
            let shares = shares(self.leaving, self.links, weigh, total)?;
            // Most attempts fail here already.
            let delays = shares.iter().all(|share| share.delay <= wanted).then(|| self.delays(&shares))??;
            delays.iter().all(|way| way.total <= wanted).then_some((total, shares, delays))
        };
        let (mut least, mut most) = (1u64, u64::MAX);
        enough(most)?;
        while least < most {
            let middle = least.midpoint(most);
            if enough(middle).is_some() { most = middle } else { least = middle + 1 }
        }
        enough(most)
    }
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
