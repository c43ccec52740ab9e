//! Exchanges of clocks (`clock.sync`): how late their messages are, and how many of them come at once.
//!
//! Only in the simulation do these messages take turns of the table tasks. A live node asks and answers in its job of
//! synchronisation, by a socket of its own. There the table does less than it is charged, so the claims hold.
//!
//! In the simulation each node has a job of synchronisation every T_y. As it ends, it leaves a request for each
//! neighbour. The receiving job that takes a request leaves the answer as it ends. Let a job of node a arrive at s, and
//! ask node b. The steps are those of the proof in [`super`].
//!
//! - *Request.* It is ready within the response of the job. Requests to b are ready in order. At most one of them
//!   leaves with a sending job, the first that is ready. If T_s↑ <= T_y↓, step 2 holds with G = T_s. So the request is
//!   in the buffer of b by s + A, A = response + T_s↑ + R_s + δ+.
//! - *Taken.* By step 3 the answer is ready by s + B, B = A + (1 + E) T_r↑ + R_r, with E of b. It is not ready before
//!   s + δ-, with δ- of the way to b.
//! - *Answer.* Requests may overtake each other. Answers leave in the order in which they are ready, one with a
//!   sending job. If the job of a request arrives after s, and its answer is ready no later, it arrives by s + B - δ-.
//!   So there are at most v = floor((B - δ-) / T_y↓) of these. Take the run of answers, a sending job apart, up to that
//!   of s. Let c of them belong to jobs that arrived by s. The first answer of the run is ready no later than the
//!   oldest of these, so by s + B - (c - 1) T_y↓. At most c - 1 + v answers leave before that of s. As T_s↑ <= T_y↓,
//!   it leaves with a job released by s + B + T_s↑ (1 + v). It is in the buffer of a by s + A', with
//!   A' = B + T_s↑ (1 + v) + R_s + δ+.
//! - *Number.* A request comes within [s + δ-, s + A], and an answer within [s + the sum of both δ-, s + A']. Let H be
//!   the length of the interval. Jobs arrive T_y↓ apart or more. So n messages of one kind and neighbour come in a
//!   half-open window of length L only if (n - 1) T_y↓ - H < L ([`batch`](super::batch)). An exchange that outlasts T_y
//!   counts several times. H is taken to be T_y↓ at least.
//! - *Sending.* At most two messages for each neighbour leave with a job, however long exchanges last.
//!
//! A' depends on E of b, and E of b on A' of exchanges that b begins. They are part of the least fixed point of
//! [`super`].

use super::batch::Source;
use super::below::EdfBelowTable;
use super::{FixedPoint, FlowBound, Net, Route, jobs};

/// A way of messages of synchronisation, from a node to a neighbour; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncWay {
    /// Index of the node that sends.
    pub from: usize,
    /// Index of the node that receives.
    pub to: usize,
    /// δ- and δ+. `None`: not known.
    pub delay: Option<(u64, u64)>,
}

/// Bounds for the messages of synchronisation, in ns of true time. They hold for proven nodes.
impl Net {
    /// The longest time from the arrival of a node's job of synchronisation to its end: its period, since it is
    /// in time, or the busy period of the node.
    fn sync_response(&self, node: usize, flows: &[FlowBound]) -> Option<u64> {
        let period = self.drift.most(self.sync?.t)?;
        let (jobs, table) = (jobs(self, node, flows)?, self.table(node, flows)?);
        let below = EdfBelowTable::new(&jobs, &table, !self.nodes[node].to_completion);
        let busy = below.busy_period_of_releases(period).and_then(|busy| busy.checked_add(self.latency(node)?));
        Some(busy.map_or(period, |busy| busy.min(period)))
    }

    /// The longest time from when a message of synchronisation is ready until the sending task has sent it, if no
    /// later message is ready before it: T_s↑ + R_s. `None` where the task may send fewer messages than wait, or comes
    /// less often than they do.
    fn sync_sending(&self, node: usize) -> Option<u64> {
        let send = self.nodes[node].send?;
        let leaving = |flow: &Route| flow.hops.iter().rev().skip(1).filter(|hop| hop.node == node).count() as u64;
        let lanes = self.neighbours(node).checked_mul(2)?.checked_add(self.flows.iter().map(leaving).sum())?;
        if send.most.is_some_and(|most| lanes > most) {
            return None;
        }
        let turn =
            self.drift.most(send.t).filter(|turn| self.sync.is_some_and(|sync| *turn <= self.drift.least(sync.t)))?;
        self.response(node, &[])?.checked_add(turn)
    }

    /// The longest time from the arrival of a node's job of synchronisation until its requests have left: A - δ+.
    pub(crate) fn sync_request(&self, node: usize, flows: &[FlowBound]) -> Option<u64> {
        self.sync_response(node, flows)?.checked_add(self.sync_sending(node)?)
    }

    /// The longest time in the buffer of a receiving task that leaves messages over so often, by step 3 of the proof.
    pub(super) fn in_buffer(&self, period: u64, leftover: u64, response: u64) -> Option<u64> {
        self.drift.most(period)?.checked_mul(leftover.checked_add(1)?)?.checked_add(response)
    }

    /// The same for messages of synchronisation. `None` where the left-overs of the task may have no bound.
    fn sync_reception(&self, node: usize, leftover: u64) -> Option<u64> {
        let receive = self.nodes[node].receive?;
        let comes = |flow: &Route| flow.hops.iter().skip(1).any(|hop| hop.node == node);
        if receive.most.is_some() && !self.flows.iter().any(comes) {
            return None;
        }
        self.in_buffer(receive.t, leftover, self.response(node, &[])?)
    }

    /// The latest time at which a node has sent an answer that is ready from `least` to `ready`: A' - δ+. Times count
    /// from the arrival of the job that asks.
    fn sync_answered(&self, node: usize, (least, ready): (u64, u64)) -> Option<u64> {
        let turn = self.drift.most(self.nodes[node].send?.t)?;
        let overtaking = ready.saturating_sub(least) / self.drift.least(self.sync?.t).max(1);
        ready.checked_add(self.sync_sending(node)?)?.checked_add(turn.checked_mul(overtaking)?)
    }

    /// The longest time from the arrival of a job of synchronisation until a neighbour has answered: `asked` after that
    /// arrival its request is in the buffer of the neighbour `node`, which has these left-overs.
    ///
    /// In the simulation the receiving task answers. A live node answers in its next job of synchronisation.
    pub(crate) fn sync_answer(&self, node: usize, flows: &[FlowBound], leftover: u64, asked: u64) -> Option<u64> {
        let by_table = self.sync_answered(node, (0, asked.checked_add(self.sync_reception(node, leftover)?)?))?;
        let period = self.drift.most(self.sync?.t)?;
        let by_job = asked.checked_add(self.sync_request(node, flows)?)?.checked_add(period)?;
        Some(by_table.max(by_job))
    }
}

impl FixedPoint<'_> {
    /// The sources of messages of synchronisation at a node. `None`: an exchange of the node has no bound.
    pub(super) fn exchanges(&self, node: usize, flows: &[FlowBound]) -> Option<Vec<Source>> {
        let net = self.net;
        let Some(sync) = net.sync else { return Some(Vec::new()) };
        let period = net.drift.least(sync.t).max(1);
        let source = |latest: u64, soonest: u64| {
            let jitter = latest.saturating_sub(soonest).max(period);
            Source { gap: period, gap_jitter: jitter, period, period_jitter: jitter }
        };
        let own = net.sync_request(node, flows);
        let mut sources = Vec::new();
        for back in net.sync_ways.iter().filter(|back| back.to == node && net.nodes[back.from].send.is_some()) {
            let peer = back.from;
            let (least, most) = back.delay?;
            let asked = net.sync_request(peer, flows)?.checked_add(most)?;
            sources.push(source(asked, least));
            let way = net.sync_ways.iter().find(|way| (way.from, way.to) == (node, peer));
            // Without a sending task here, or a receiving task there, no answer comes.
            let answers = net.nodes[node].send.is_some() && net.nodes[peer].receive.is_some();
            let Some(way) = way.filter(|_| answers) else { continue };
            let (least_there, most_there) = way.delay?;
            let asked = own?.checked_add(most_there)?;
            let ready = asked.checked_add(self.reception(0, peer).ok()?)?;
            let answered = net.sync_answered(peer, (least_there, ready))?.checked_add(most)?;
            sources.push(source(answered, least_there.saturating_add(least)));
        }
        Some(sources)
    }

    /// A way on which messages of synchronisation have no bound, so that the left-overs of this node have none. It is a
    /// way of the node itself, or of a node whose left-overs have no bound for the same reason.
    pub(super) fn unbounded_way(&self, node: usize) -> Option<SyncWay> {
        let net = self.net;
        let takes_any_time = |way: &SyncWay| {
            net.nodes[way.from].send.is_some() && (way.delay.is_none() || net.sync_sending(way.from).is_none())
        };
        let (mut near, mut seen) = (vec![node], 0);
        while let Some(here) = near.get(seen).copied() {
            seen += 1;
            for way in net.sync_ways.iter().filter(|way| way.from == here || way.to == here) {
                if takes_any_time(way) {
                    return Some(*way);
                }
                let other = if way.from == here { way.to } else { way.from };
                if self.unbounded[other] && !near.contains(&other) {
                    near.push(other);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AnalysedNode, Hop, Refusal, Sync, Transport, analyse};
    use super::*;

    /// A flow from node 0 to node 1, which compare their clocks every 100. Receiving jobs take up to `most` messages.
    fn two(delay: (u64, u64), most: Option<u64>) -> Net {
        let table = |most| Some(Transport { t: 10, c: 1, most });
        let station = AnalysedNode { receive: table(most), send: table(None), ..AnalysedNode::default() };
        let hop = |node| Hop { node, c: 1, d: 1_000, delay_min: delay.0, delay_max: delay.1 };
        let flow = Route { t: 1_000, gap: 1_000, d: 2_000, hops: vec![hop(0), hop(1)] };
        let sync_ways = [(0, 1), (1, 0)].map(|(from, to)| SyncWay { from, to, delay: Some(delay) }).to_vec();
        let nodes = vec![station.clone(), station];
        Net { nodes, flows: vec![flow], sync: Some(Sync { t: 100, c: 1 }), sync_ways, ..Net::default() }
    }

    /// The most requests, and the most answers, that come to node 1 at once.
    fn at_once(net: &Net) -> Option<Vec<u64>> {
        let mut ways = FixedPoint::new(net);
        let flows = ways.bound_flows();
        ways.exchanges(1, &flows)?.iter().map(|source| source.arrivals(1)).collect()
    }

    #[test]
    fn exchanges_that_outlast_their_period_count_several_times() {
        // A = 4 + 10 + 2 + 250 = 266 from node 0. From node 1 A = 267, B = 279, v = 2, A' = 279 + 30 + 2 + 250 = 561.
        assert_eq!(at_once(&two((0, 250), None)), Some(vec![3, 6]));
        // What takes 250 always comes evenly.
        assert_eq!(at_once(&two((250, 250), None)), Some(vec![2, 2]));
        assert_eq!(at_once(&two((0, 20), None)), Some(vec![2, 2]));
        // Four of them fit a job, and one comes from the flow.
        let leftover = |delay| {
            let found = analyse(&two(delay, Some(4)), false);
            assert!(found.schedulable(), "{found:?}");
            found.nodes[1].leftover
        };
        assert_eq!(leftover((250, 250)), 1);
        // Ten messages at once.
        assert!(leftover((0, 250)) >= 2, "{}", leftover((0, 250)));
    }

    #[test]
    fn exchanges_without_a_bound_leave_flows_without_one() {
        let mut net = two((0, 20), Some(4));
        net.sync_ways[1].delay = None;
        let open = FlowBound::Open(Refusal::Exchange { from: 1, to: 0 });
        assert_eq!(analyse(&net, false).flows, [open]);
        // Nothing is left over where a job takes all.
        let all = Net { sync_ways: net.sync_ways, ..two((0, 20), None) };
        let found = analyse(&all, false);
        assert!(found.schedulable() && found.nodes[1].waiting.is_none(), "{found:?}");
        // Requests of node 1 pile up where it sends less often than it asks.
        let mut slow = two((0, 20), Some(4));
        slow.nodes[1].send = Some(Transport { t: 101, c: 1, most: None });
        assert_eq!(analyse(&slow, false).flows, [FlowBound::Open(Refusal::Exchange { from: 1, to: 0 })]);
    }
}
