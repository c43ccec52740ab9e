//! How nodes share a network's bandwidth [HEDF II-C], and the total that a wanted delay takes.
//!
//! - By messages (Eq. 11, as printed): w_m = (sum over hops that leave m of 1 / T'_i) / (the same
//!   over all nodes). It ignores how long messages are.
//! - By bytes: each hop weighs size_i / T'_i, its bytes per second.
//! - Fair: each of M nodes that send has w = 1 / M, the first strategy of the paper.
//!
//! Node m gets a token bucket of rate floor(w_m R), or its own where the System has one. The bucket
//! delays its messages by [`Bucket::fifo`] in order of arrival, and by [`Bucket::any`] in another
//! order. This includes the burst that the sending task sends at once.
//! [`Layout::least_total`](super::row::Layout::least_total) finds the least R with which no message
//! takes longer than wanted, ports on its way included.

use takt_model::gcd;

use super::delay::{Bucket, Traffic, bytes, time};

/// How nodes are weighed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weigh {
    /// By messages per second (Eq. 11).
    Messages,
    /// By bytes per second.
    Bytes,
    /// All nodes that send alike.
    Fair,
}

/// Messages of a flow that leave a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutgoingFlow {
    /// Index of the node.
    pub node: usize,
    /// Index of the node that they go to.
    pub to: usize,
    /// T': least distance, ns.
    pub gap: u64,
    /// By how much the distance varies, ns.
    pub jitter: u64,
    /// Bytes of a message on the wire.
    pub size: u64,
}

/// A node's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Bits per second.
    pub rate: u64,
    /// Bytes of the largest packet of other classes.
    pub other: u64,
    /// The token bucket of the System; `None`: it is to be found.
    pub bucket: Option<Traffic>,
    /// Whether messages are sent in the order in which they came.
    pub fifo: bool,
}

/// The share of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Index of the node.
    pub node: usize,
    /// w, as a fraction in lowest terms.
    pub weight: (u64, u64),
    /// ρ, bits/s.
    pub rate: u64,
    /// σ, bytes: what comes while another packet is under way, at least a packet.
    pub burst: u64,
    /// The longest delay of a message in the node's queue and onto the link, ns.
    pub delay: u64,
}

/// The weights of `nodes` nodes, in lowest terms; `None` where they do not fit 64 bits, or nothing is sent.
#[must_use]
pub fn weights(outgoing: &[OutgoingFlow], nodes: usize, weigh: Weigh) -> Option<Vec<(u64, u64)>> {
    let mut common = 1u128;
    for hop in outgoing {
        let shared = gcd((common % u128::from(hop.gap)) as u64, hop.gap);
        common = common.checked_mul(u128::from(hop.gap / shared))?;
    }
    let mut sums = vec![0u128; nodes];
    for hop in outgoing {
        let each = match weigh {
            Weigh::Messages | Weigh::Fair => 1,
            Weigh::Bytes => u128::from(hop.size),
        };
        let sum = sums.get_mut(hop.node)?;
        *sum = sum.checked_add((common / u128::from(hop.gap)).checked_mul(each)?)?;
    }
    if weigh == Weigh::Fair {
        sums.iter_mut().for_each(|sum| *sum = (*sum).min(1));
    }
    let total = sums.iter().try_fold(0u128, |total, sum| total.checked_add(*sum)).filter(|total| *total > 0)?;
    let lowest = |sum: u128| {
        let (mut a, mut b) = (sum, total);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Some((u64::try_from(sum / a).ok()?, u64::try_from(total / a).ok()?))
    };
    sums.into_iter().map(lowest).collect()
}

/// The shares of a total of `total` bits/s; `None` where some node's rate is not enough for what it sends.
#[must_use]
pub fn shares(outgoing: &[OutgoingFlow], links: &[Link], weigh: Weigh, total: u64) -> Option<Vec<Share>> {
    let weights = weights(outgoing, links.len(), weigh)?;
    let sends = |node: usize| outgoing.iter().filter(move |hop| hop.node == node);
    let nodes = (0..links.len()).filter(|node| sends(*node).next().is_some());
    nodes
        .map(|node| {
            let (link, (part, whole)) = (links[node], weights[node]);
            let rate = (u128::from(total) * u128::from(part) / u128::from(whole)) as u64;
            let rate = link.bucket.map_or(rate, |bucket| bucket.rate).min(link.rate);
            let mut traffic = Traffic::default();
            for hop in sends(node) {
                traffic = traffic.plus(Traffic::of_messages(hop.size, hop.gap, hop.jitter)?)?;
            }
            let packet = sends(node).map(|hop| hop.size).max()?;
            let burst = match link.bucket {
                Some(bucket) => bucket.burst,
                None => packet.max(bytes(rate, time(link.other, link.rate)?)?),
            };
            let bucket = Bucket { burst, rate, packet, link: link.rate, other: link.other };
            let bound = if link.fifo { Bucket::fifo } else { Bucket::any };
            let delay = sends(node)
                .map(|hop| bound(&bucket, traffic, hop.size))
                .try_fold(0, |most, one| Some(one?.max(most)))?;
            Some(Share { node, weight: (part, whole), rate, burst, delay })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(node: usize, gap_ms: u64, size: u64) -> OutgoingFlow {
        OutgoingFlow { node, to: 1 - node, gap: gap_ms * 1_000_000, jitter: 0, size }
    }

    #[test]
    fn weights_are_those_of_the_paper_or_by_bytes() {
        // Two tasks from node 0 to 1, one back.
        let outgoing = [hop(0, 10, 400), hop(0, 10, 400), hop(1, 10, 1_600)];
        assert_eq!(weights(&outgoing, 3, Weigh::Messages), Some(vec![(2, 3), (1, 3), (0, 1)]));
        assert_eq!(weights(&outgoing, 3, Weigh::Bytes), Some(vec![(1, 3), (2, 3), (0, 1)]));
        assert_eq!(weights(&outgoing, 3, Weigh::Fair), Some(vec![(1, 2), (1, 2), (0, 1)]));
        assert_eq!(weights(&[], 1, Weigh::Bytes), None);
    }
}
