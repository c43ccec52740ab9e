//! Nodes that each message interrupts, in place of a receiving and a sending task [HEDF II-A, "global-EDF"].
//!
//! A message takes I above all jobs when it arrives, and again when the job that leaves it is done.
//! Messages are served one after the other, in any order. The paper has no test for this node. Here
//! interrupts are jobs of the table ([`TableJob`]), and the proof of [`super`] holds with these
//! changes:
//!
//! - *Load.* The flow's arrivals at its first node are T apart. Let the message of the instance that
//!   arrives at a come to the buffer within [a + l, a + h]. In a half-open window of length u come at
//!   most ceil((u + h - l) / T) messages. So they ask for no more than a table job (I, T) that is up
//!   to L = h - l late. The same holds of sending: jobs end within [a + l, a + hi], where hi is the
//!   latest deadline of the hop (step 1).
//! - *Response.* An interrupt is served within R, the busy period of this table. No timer is involved,
//!   so Λ plays no part.
//! - *Sending* (step 2). The message leaves by a + hi + R. Nothing keeps messages apart, so the next
//!   node counts them by T alone (`gap` of 1 ns), and takes them to be out of order.
//! - *Receiving* (step 3). The job is released R after the message reached the buffer. There are no
//!   left-overs.
//!
//! L depends on R of the nodes before, and R on L. The least fixed point is found upwards, as with
//! left-overs. This is the holistic analysis of K. Tindell, J. Clark (1994), with EDF below.

use super::below::TableJob;
use super::{FlowBound, Net, least_transit};

/// The interrupts of a node as jobs of its table. Each bounded flow and hop there has an entry for
/// messages that arrive, and one for messages that leave. `None`: times exceed 64-bit nanoseconds.
pub(super) fn load(net: &Net, node: usize, flows: &[FlowBound]) -> Option<Vec<TableJob>> {
    let Some(cost) = net.nodes[node].interrupt else { return Some(Vec::new()) };
    let c = net.drift.most(cost)?;
    let mut jobs = Vec::new();
    for (flow, bound) in net.flows.iter().zip(flows) {
        let FlowBound::Bounded(bounds) = bound else { continue };
        let here = flow.hops.iter().zip(bounds).enumerate().filter(|(_, (hop, _))| hop.node == node);
        for (h, (_, bound)) in here {
            jobs.extend(bound.source.map(|source| TableJob { c, t: source.period, late: source.period_jitter }));
            if h + 1 < flow.hops.len() {
                let late = bound.due.1.saturating_sub(least_transit(flow, h));
                jobs.push(TableJob { c, t: net.drift.least(flow.t).max(1), late });
            }
        }
    }
    Some(jobs)
}

/// (C, T) of the interrupts of a node, of all flows.
pub(super) fn loads(net: &Net, node: usize) -> impl Iterator<Item = (u64, u64)> + Clone {
    let cost = net.nodes[node].interrupt;
    let of_flow = move |flow: &'_ super::Route| {
        let ends = flow.hops.iter().enumerate().filter(|(_, hop)| hop.node == node);
        let count: u64 = ends.map(|(h, _)| u64::from(h > 0) + u64::from(h + 1 < flow.hops.len())).sum();
        cost.filter(|_| count > 0).map(|cost| (cost.saturating_mul(count), flow.t))
    };
    net.flows.iter().filter_map(of_flow)
}

#[cfg(test)]
mod tests {
    use super::super::{AnalysedNode, Hop, Refusal, Route, SystemBounds, analyse};
    use super::*;

    /// A flow over two nodes that messages interrupt for 2 each, with delays from 0 to 5.
    fn two(t: u64, d: u64) -> Net {
        let station = AnalysedNode { interrupt: Some(2), ..AnalysedNode::default() };
        let hop = |node, delay_max| Hop { node, c: 1, d, delay_min: 0, delay_max };
        let flow = Route { t, gap: t, d: 2 * d, hops: vec![hop(0, 0), hop(1, 5)] };
        Net { nodes: vec![station.clone(), station], flows: vec![flow], ..Net::default() }
    }

    #[test]
    fn a_message_takes_two_interrupts_on_its_way() {
        // Sent by 40 + 2, in the buffer by 47, released by 49; due at 80.
        let found = analyse(&two(100, 40), false);
        let FlowBound::Bounded(bounds) = &found.flows[0] else { panic!("{:?}", found.flows) };
        assert_eq!((bounds[1].release, bounds[1].window, bounds[1].due), (49, 31, (80, 80)));
        assert!(found.schedulable() && bounds[1].messages.is_none());
    }

    #[test]
    fn messages_whose_way_varies_come_in_bursts() {
        // Five jobs of the first node may end at once: their interrupts take 10, in which no more end.
        // So a message arrives up to 55 late, and seven interrupts of 2 follow each other there.
        let net = two(10, 40);
        let SystemBounds { nodes, flows } = analyse(&net, false);
        assert_eq!(net.response(0, &flows), Some(10));
        assert_eq!(net.response(1, &flows), Some(14));
        let FlowBound::Bounded(bounds) = &flows[0] else { panic!("{flows:?}") };
        assert_eq!(bounds[1].release, 40 + 10 + 5 + 14);
        // An interrupt is due when the next one may come, 10 later.
        assert_eq!([nodes[0].table_late, nodes[1].table_late], [None, Some((14, 10))]);
    }

    #[test]
    fn interrupts_that_need_more_than_the_cpu_bound_nothing() {
        let found = analyse(&two(1, 40), false);
        assert!(matches!(found.flows[0], FlowBound::Open(Refusal::Table { .. })), "{:?}", found.flows);
        assert!(!found.schedulable());
    }
}
