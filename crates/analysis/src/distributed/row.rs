//! Delays of messages from node to node, through ports of switches that many pairs of nodes share.
//!
//! A [`PortPath`] is a pair of nodes and the ports between them, in order: a *way*. (b, r) bounds its
//! traffic at the sender's link. Its first j ports delay it by at most E_j. So it reaches the next
//! port with the burst b + r E_j ([`Traffic::delayed`]). From the traffic of all ways at all ports
//! follow bounds for *pieces* of rows:
//!
//! - One port. In order of arrival, with the lines on which ways come (below). In another order (messages
//!   of a way stay in order) the bound of [`Port::delay`] by the rest of the link.
//! - Several ports in a row, bursts paid once. If all of the ports serve in order of arrival, the *group*
//!   is all ways that go through them in this order, or the way alone: the lesser bound counts. Else it is
//!   the way alone. (B, R) is the group's traffic at the first of the ports, L its largest packet.
//!
//! E_j is the least sum over all ways to cut the first j ports into pieces. So the E are a fixed point
//! E = F(E) with F monotone, sought from zero upwards. Ways may depend on each other in circles.
//!
//! **One port in order of arrival.** A port delays packets of ways by up to T, in order. Then its line of
//! rate C serves them with the cross traffic. Let α(t) bound what comes in t in all. A packet that came at
//! a is ready by a + T. Let s be the begin of the line's busy period then, and x = a + T - s. Before it
//! goes at most what came to the port in [s - T, a], and the cross traffic of [s, a + T]. So it has left by
//! s + α(x) / C, and its delay is at most T + sup over x of (α(x) / C - x).
//!
//! The line interrupts no packet. A less important one under way before s counts in T. It holds back the cross
//! traffic, too, by T1 <= T. Then this comes in [s - T1, a + T - T1], which is as long. The same holds for groups
//! below. The part of T after the line only adds to the delay.
//!
//! Ways that come from the same port before share its line, of the rate C'. In t it passes on at most C' t + L,
//! where L is the largest packet: all but the first of them were sent in t. So α is the sum over these
//! lines of min(C' t + L, B + R t), of the cross traffic, and of ways that come from their senders [A.
//! Mifdaoui, T. Leydier, Beyond the Accuracy-Complexity Tradeoffs of Compositional Analyses using Network
//! Calculus for Complex Networks, 2017; L. Thomas, J.-Y. Le Boudec, A. Mifdaoui, On Cyclic Dependencies
//! and Regulators in Time-Sensitive Networks, 2019]. Part of the latency T' of that port may come after it has
//! sent, and packets leave at whole ns. So L is larger by C' (T' + 1 ns). α is concave, so the supremum is at 0,
//! or where a minimum changes: at t = (B - L) / (C' - R).
//!
//! **The group in a row of ports.** A(t) are the bytes that came by t, D(t) those that left, A(u-)
//! those that came before u. A port guarantees the rate c after θ if for each t some u <= t has
//! D(t) >= A(u-) + c max(0, t - u - θ). Guarantees in a row add up: their θ, and the least c [J.-Y. Le
//! Boudec, P. Thiran, Network Calculus, 2001, Theorem 1.4.6]. If the group keeps its order and R <= c,
//! each of its packets is through within θ + B / c (Theorem 1.4.2). That many ways with one row are one
//! flow there is in [M. Fidler, Extending the Network Calculus Pay Bursts Only Once Principle to
//! Aggregate Scheduling, 2003].
//!
//! *Order of arrival* [compare Le Boudec, Thiran, Section 6.2]. Let (b', r') bound all other traffic at the port,
//! c = C - r', and θ = T + b' / C. Then the group has the rate c after θ. Proof: if nothing of it waits at
//! t, then u = t. Else let v be the arrival of its first waiting packet. If v > t - θ, then u = v. Else this
//! packet is ready by v + T <= t. Let s be the begin of the line's busy period then. What left in [s, t]
//! was ready since s, and before this packet. So of others at most b' + r' (v + T - s) left. The group sent at
//! least C (t - s) - b' - r' (v + T - s) >= c (t - s - b' / C), as v <= t - θ. Before s all left that came
//! before u = s - T. So D(t) >= A(u-) + c (t - u - θ). As u <= v, D(t) >= A(u-) holds, too.
//!
//! *Another order.* Let s be the begin of the line's busy period at t. Others have sent at most b' + r' T +
//! r' (t - s) since: their packets wander by T before the line. So after its own wait of up to T a way has the
//! rate c after (b' + r' T) / c. In all θ = (C T + b') / c.
//!
//! *Whole packets at whole ns.* A port passes on whole packets, so up to L of what it has sent counts
//! later. So θ is longer by L / c, and by 1 ns.
//!
//! *Every such fixed point bounds the delays.* Suppose not. A packet that came to its first port at
//! instant a is late at τ = a + E_j if it has not left its j-th port by then. Take the earliest τ, and
//! of equal ones the least j. Packets that come to any port by τ have left the ports before within
//! their E; otherwise they were late before τ. So up to τ all input of all ports keeps to the bursts
//! in E's computation. Later input cannot matter. Let i + 1 to j be the last piece in the least sum. The
//! packet left port i by a + E_i. By the piece's bound it has left port j by τ. Contradiction.

use std::collections::BTreeMap;

use super::delay::{Port, SCALE, Traffic, bytes, time};
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

/// A way: a pair of nodes, and the ports from one to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortPath {
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// Indices of the ports, in order, none twice.
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
    /// Through all ports, bursts paid once, by ways with the same row of ports together or by each alone.
    pub once: Option<u64>,
    /// From the sender to the receiver.
    pub total: u64,
}

/// The longest delays of a way's packets in its row of ports, in ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RowDelay {
    /// At each port.
    pub ports: Vec<u64>,
    /// E of each port: from the arrival at the first port until the packet has left it.
    pub until: Vec<u64>,
    /// Through all ports as one piece.
    pub once: Option<u64>,
}

impl RowDelay {
    /// Through all ports.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.until.last().copied().unwrap_or(0)
    }
}

/// The delay of every way at each of its ports, and in the whole row. `None`: a port gets more than
/// its rate, circles have no fixed point within the limits, or numbers exceed 64 bits.
#[must_use]
pub fn rows(ways: &[PortPath], sent: &[Sent], ports: &[Shared]) -> Option<Vec<RowDelay>> {
    let mut users = vec![Vec::new(); ports.len()];
    for (way, path) in ways.iter().enumerate() {
        for (j, port) in path.through.iter().enumerate() {
            users[*port].push((way, j));
        }
    }
    let mut known: Vec<Vec<u64>> = ways.iter().map(|way| vec![0; way.through.len()]).collect();
    for _ in 0..ROUNDS_MAX {
        let arriving = sent.iter().zip(&known).map(|(sent, until)| arriving(sent.traffic, until));
        let arriving: Vec<Vec<Traffic>> = arriving.collect::<Option<_>>()?;
        let round = Round { ways, sent, ports, users: &users, arriving: &arriving };
        let in_order = |(port, shared): (usize, &Shared)| shared.fifo.then(|| round.at_port_in_order(port)).flatten();
        let in_order: Vec<Option<u64>> = ports.iter().enumerate().map(in_order).collect();
        let mut found: Vec<RowDelay> = (0..ways.len()).map(|way| round.row(way, &in_order)).collect::<Option<_>>()?;
        if found.iter().zip(&known).all(|(row, until)| row.until == *until) {
            for (way, row) in found.iter_mut().enumerate() {
                row.once = row.ports.len().checked_sub(1).map_or(Some(0), |last| round.piece(way, 0, last));
            }
            return Some(found);
        }
        known = found.into_iter().map(|row| row.until).collect();
    }
    None
}

/// A way's traffic as it comes to each of its ports. It leaves them within `until`.
fn arriving(sent: Traffic, until: &[u64]) -> Option<Vec<Traffic>> {
    let before = [0].into_iter().chain(until.iter().copied()).take(until.len());
    before.map(|before| sent.delayed(before)).collect()
}

/// A round of the fixed point.
struct Round<'a> {
    ways: &'a [PortPath],
    sent: &'a [Sent],
    ports: &'a [Shared],
    /// By port: the ways through it, and the index of the port in their rows.
    users: &'a [Vec<(usize, usize)>],
    /// By way and index in its row: its traffic there.
    arriving: &'a [Vec<Traffic>],
}

impl Round<'_> {
    /// Without `once`. `in_order`: the delay at each port that serves in order of arrival.
    fn row(&self, way: usize, in_order: &[Option<u64>]) -> Option<RowDelay> {
        let through = &self.ways[way].through;
        let mut row = RowDelay::default();
        for (j, port) in through.iter().enumerate() {
            let here = if self.ports[*port].fifo { in_order[*port] } else { self.at_port(way, j, *port) }?;
            let before = |first: usize| if first == 0 { 0 } else { row.until[first - 1] };
            let mut least = before(j).checked_add(here)?;
            for first in 0..j {
                let piece = self.piece(way, first, j).and_then(|piece| piece.checked_add(before(first)));
                least = piece.map_or(least, |piece| piece.min(least));
            }
            row.ports.push(here);
            row.until.push(least);
        }
        Some(row)
    }

    /// At a port that serves in another order, the j-th of the way.
    fn at_port(&self, way: usize, j: usize, port: usize) -> Option<u64> {
        let Shared { rate, latency, cross, .. } = self.ports[port];
        let others = self.users[port].iter().filter(|(other, _)| *other != way);
        let others = others.map(|(other, at)| self.arriving[*other][*at]).try_fold(cross, Traffic::plus)?;
        Port { rate, latency, others }.delay(self.arriving[way][j], self.sent[way].packet)
    }

    /// At a port that serves in order of arrival, for each way.
    fn at_port_in_order(&self, port: usize) -> Option<u64> {
        let Shared { rate, latency, cross, .. } = self.ports[port];
        let (mut all, mut free) = (cross, cross);
        // By port before.
        let mut lines: BTreeMap<usize, Sent> = BTreeMap::new();
        for (way, j) in &self.users[port] {
            let traffic = self.arriving[*way][*j];
            all = all.plus(traffic)?;
            let Some(before) = j.checked_sub(1) else {
                free = free.plus(traffic)?;
                continue;
            };
            let line = lines.entry(self.ways[*way].through[before]).or_default();
            line.traffic = line.traffic.plus(traffic)?;
            line.packet = line.packet.max(self.sent[*way].packet);
        }
        if all.rate > rate || rate == 0 {
            return None;
        }
        let line = |(before, sent): (usize, Sent)| {
            let Shared { rate, latency, .. } = self.ports[before];
            let burst = sent.packet.checked_add(bytes(rate, latency.checked_add(1)?)?)?;
            Some((sent.traffic, Traffic { burst, rate }))
        };
        let lines: Vec<(Traffic, Traffic)> = lines.into_iter().map(line).collect::<Option<_>>()?;
        longest_wait(free, &lines, rate)?.checked_add(latency)
    }

    /// Through the ports `first` to `last` of a way as one piece, bursts paid once, by its group or by the way alone.
    fn piece(&self, way: usize, first: usize, last: usize) -> Option<u64> {
        let row = &self.ways[way].through[first..=last];
        let in_order = row.iter().all(|port| self.ports[*port].fifo);
        let group = in_order.then(|| self.piece_of(way, row, true)).flatten();
        [group, self.piece_of(way, row, false)].into_iter().flatten().min()
    }

    /// Through these ports of a way as one piece, by all ways with this row (`grouped`) or by the way alone.
    fn piece_of(&self, way: usize, row: &[usize], grouped: bool) -> Option<u64> {
        // Whether a way is in the group: the k-th port of the piece is the j-th of its row.
        let together = |k: usize, other: usize, j: usize| {
            let begin = j.checked_sub(k).filter(|_| grouped);
            other == way || begin.is_some_and(|begin| self.ways[other].through[begin..].starts_with(row))
        };
        let (mut group, mut packet) = (Traffic::default(), 0);
        for (other, j) in self.users[row[0]].iter().filter(|(other, j)| together(0, *other, *j)) {
            group = group.plus(self.arriving[*other][*j])?;
            packet = packet.max(self.sent[*other].packet);
        }
        let (mut total, mut least) = (0u64, u64::MAX);
        for (k, port) in row.iter().enumerate() {
            let Shared { rate, latency, cross, fifo } = self.ports[*port];
            let mut others = cross;
            for (other, j) in self.users[*port].iter().filter(|(other, j)| !together(k, *other, *j)) {
                others = others.plus(self.arriving[*other][*j])?;
            }
            let left = rate.checked_sub(others.rate).filter(|left| *left >= group.rate && *left > 0)?;
            let wait = if fifo {
                time(others.burst, rate)?.checked_add(latency)?.checked_add(time(packet, left)?)?
            } else {
                let before = others.burst.checked_add(packet)?.checked_add(bytes(rate, latency)?)?;
                time(before, left)?
            };
            total = total.checked_add(wait)?.checked_add(1)?;
            least = least.min(left);
        }
        total.checked_add(time(group.burst, least)?)
    }
}

/// The longest wait in order of arrival at a line of this rate, in ns. Traffic of `lines` keeps to both of their
/// bounds. All together has at most the rate.
fn longest_wait(free: Traffic, lines: &[(Traffic, Traffic)], rate: u64) -> Option<u64> {
    // At t = `bytes` / `per`, all amounts times `per`.
    let at = |bytes: u64, per: u64| {
        let amount = |bound: Traffic| {
            let later = u128::from(bound.rate).checked_mul(u128::from(bytes))?;
            u128::from(bound.burst).checked_mul(u128::from(per))?.checked_add(later)
        };
        let mut comes = amount(free)?;
        for (traffic, line) in lines {
            comes = comes.checked_add(amount(*traffic)?.min(amount(*line)?))?;
        }
        let waits = comes.saturating_sub(u128::from(rate).checked_mul(u128::from(bytes))?);
        let scaled = waits.checked_mul(SCALE)?.div_ceil(u128::from(rate).checked_mul(u128::from(per))?);
        u64::try_from(scaled).ok()
    };
    let mut longest = at(0, 1)?;
    for (traffic, line) in lines {
        let (bytes, per) = (traffic.burst.saturating_sub(line.burst), line.rate.saturating_sub(traffic.rate));
        if bytes > 0 && per > 0 {
            longest = longest.max(at(bytes, per)?);
        }
    }
    Some(longest)
}

/// The parts of a network.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The messages that the nodes send.
    pub outgoing: &'a [OutgoingFlow],
    /// The nodes' links.
    pub links: &'a [Link],
    /// The pairs that send. They include that of every outgoing message.
    pub ways: &'a [PortPath],
    /// The ports.
    pub ports: &'a [Shared],
}

impl Layout<'_> {
    /// The delay of every way if nodes have these shares. `None` as for [`rows`], or if a sender has no share.
    #[must_use]
    pub fn delays(&self, shares: &[Share]) -> Option<Vec<WayDelay>> {
        let senders = self.ways.iter().map(|way| shares.iter().find(|share| share.node == way.from));
        let senders: Vec<u64> = senders.map(|share| share.map(|share| share.delay)).collect::<Option<_>>()?;
        let mut sent = vec![Sent::default(); self.ways.len()];
        for ((way, sent), sender) in self.ways.iter().zip(&mut sent).zip(&senders) {
            for hop in self.outgoing.iter().filter(|hop| (hop.node, hop.to) == (way.from, way.to)) {
                let traffic = Traffic::of_messages(hop.size, hop.gap, hop.jitter)?.delayed(*sender)?;
                sent.traffic = sent.traffic.plus(traffic)?;
                sent.packet = sent.packet.max(hop.size);
            }
        }
        let rows = rows(self.ways, &sent, self.ports)?;
        let whole = |(sender, row): (u64, RowDelay)| {
            let total = sender.checked_add(row.total())?;
            Some(WayDelay { sender, ports: row.ports, once: row.once, total })
        };
        senders.into_iter().zip(rows).map(whole).collect()
    }

    /// The index of a port that gets more than its rate in the long run, and what it gets, in bits/s.
    #[must_use]
    pub fn overload(&self) -> Option<(usize, u64)> {
        self.ports.iter().enumerate().find_map(|(at, port)| {
            let ways = || self.ways.iter().filter(|way| way.through.contains(&at));
            let comes = |hop: &&OutgoingFlow| ways().any(|way| (hop.node, hop.to) == (way.from, way.to));
            let rates = self.outgoing.iter().filter(comes);
            let rates = rates.map(|hop| Traffic::of_messages(hop.size, hop.gap, 0).map_or(u64::MAX, |sent| sent.rate));
            let needs = rates.fold(port.cross.rate, u64::saturating_add);
            (needs > port.rate && ways().next().is_some()).then_some((at, needs))
        })
    }

    /// The delays where every node has its whole link.
    #[must_use]
    pub fn whole(&self, weigh: Weigh) -> Option<Vec<WayDelay>> {
        self.delays(&shares(self.outgoing, self.links, weigh, u64::MAX)?)
    }

    /// The least total in bits/s with which no message takes longer than `wanted` ns from node to node, with its shares
    /// and delays. `None` if whole links are not enough.
    #[must_use]
    pub fn least_total(&self, weigh: Weigh, wanted: u64) -> Option<(u64, Vec<Share>, Vec<WayDelay>)> {
        // A larger share never delays more, neither at the sender nor, as bursts are then less, at a port.
        let enough = |total: u64| {
            let shares = shares(self.outgoing, self.links, weigh, total)?;
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
