//! Checks of links, ports and networks.

use std::collections::BTreeSet;

use super::{Check, Part};
use crate::flows::{self, SYNC_FRAME};
use crate::system::{ActualDelay, Auto, Bucket, Flow, Network, NodeId};
use crate::units::{Bytes, Rate};

/// The least frame of Ethernet. Cross traffic comes in whole frames.
const FRAME_LEAST: Bytes = Bytes::new(64);

impl Check<'_> {
    pub(super) fn ports(&mut self) {
        for (i, port) in self.system.ports.iter().enumerate() {
            self.span(Part::Port(i), "latency", port.latency, true);
            for (key, rate) in [("rate", Some(port.rate)), ("cross.rate", port.cross.map(|cross| cross.rate))] {
                if rate.is_some_and(|rate| rate.as_bps() == 0) && !self.bad(Part::Port(i), &[key]) {
                    let owner = self.owner(Part::Port(i));
                    self.error(Part::Port(i), key, format!("{key} of {owner} is zero; it must be above zero"));
                }
            }
            let small = port.cross.map(|cross| cross.burst).filter(|burst| *burst < FRAME_LEAST);
            if let (Some(burst), false) = (small, self.bad(Part::Port(i), &["cross.burst"])) {
                let owner = self.owner(Part::Port(i));
                let message = format!(
                    "cross.burst {burst} of {owner} is less than a frame of Ethernet, which has at least \
                     {FRAME_LEAST}; give at least that"
                );
                self.error(Part::Port(i), "cross.burst", message);
            }
            let Some(cross) = port.cross.filter(|cross| cross.rate >= port.rate) else { continue };
            if !self.bad(Part::Port(i), &["rate", "cross", "cross.rate"]) {
                let (owner, rate) = (self.owner(Part::Port(i)), port.rate);
                let message = format!(
                    "cross.rate {} of {owner} leaves nothing of its rate {rate} for flows; cross traffic has a \
                     smaller rate than its port",
                    cross.rate
                );
                self.error(Part::Port(i), "cross.rate", message);
            }
        }
    }

    fn through(&mut self, i: usize) {
        let (system, part) = (self.system, Part::Network(i));
        if self.bad(part, &["through"]) {
            return;
        }
        let mut seen = BTreeSet::new();
        for (k, port) in system.networks[i].through.iter().enumerate() {
            if !seen.insert(port) {
                let (owner, port) = (self.owner(part), &system.ports[port.index()].name);
                let message = format!("through of {owner} names port \"{port}\" twice; a message passes a port once");
                self.error_at(part, "through", k, message);
            }
        }
    }

    pub(super) fn networks(&mut self) {
        let system = self.system;
        let mut seen = BTreeSet::new();
        let name = |node: Option<NodeId>| match node {
            Some(node) => format!("\"{}\"", system.nodes[node.index()].name),
            None => "every node".to_owned(),
        };
        for (i, network) in system.networks.iter().enumerate() {
            let part = Part::Network(i);
            self.through(i);
            let (min, max) = network.delay.given().unwrap_or_default();
            self.span(part, "delay", min, true);
            self.span(part, "delay", max, true);
            if min > max && !self.bad(part, &["delay"]) {
                let owner = self.owner(part);
                let message =
                    format!("delay of {owner} is {min} at best and {max} at worst; write the shorter delay first");
                self.error(part, "delay", message);
            }
            self.actual_delay(part, network);
            if self.bad(part, &["from", "to"]) {
                continue;
            }
            let (from, to) = (name(network.from), name(network.to));
            if network.from.is_some() && network.from == network.to {
                self.error(
                    part,
                    "to",
                    format!("network goes from node {from} to itself; messages within a node take no network"),
                );
            }
            if !seen.insert((network.from, network.to)) {
                self.error(part, "", format!("a second network goes from {from} to {to}; keep one"));
            }
        }
    }

    /// Checks the delays that a network's messages really have.
    fn actual_delay(&mut self, part: Part, network: &Network) {
        match &network.actual_delay {
            ActualDelay::Uniform => return,
            ActualDelay::Pmf(pmf) => self.pmf(part, "actual-delay.pmf", pmf, true),
            ActualDelay::Trace(trace) => self.trace(part, "actual-delay.trace", trace),
        }
        let owner = self.owner(part);
        let Auto::Value((min, max)) = network.delay else {
            let message = format!(
                "actual-delay of {owner} cannot stand beside delay = \"auto\", which follows from links and ports; \
                 keep one of them"
            );
            return self.error(part, "actual-delay", message);
        };
        let ActualDelay::Pmf(pmf) = &network.actual_delay else { return };
        let outside = pmf.iter().map(|(delay, _)| *delay).find(|delay| *delay < min || *delay > max);
        if let (Some(delay), false) = (outside, self.bad(part, &["delay", "actual-delay.pmf"])) {
            let message = format!(
                "actual-delay.pmf of {owner} has {delay}, which is outside its delay from {min} to {max}; widen delay, \
                 which bounds all messages"
            );
            self.error(part, "actual-delay.pmf", message);
        }
    }

    pub(super) fn link(&mut self, node: usize) {
        let (system, part) = (self.system, Part::Node(node));
        let Some(link) = system.nodes[node].link else { return };
        let owner = self.owner(part);
        if link.rate.as_bps() == 0 && !self.bad(part, &["link.rate"]) {
            self.error(part, "link.rate", format!("link.rate of {owner} is zero; a rate is above zero"));
        }
        if let Some(background) = link.background {
            if background.size.get() == 0 && !self.bad(part, &["link.background.size"]) {
                let message = format!("link.background.size of {owner} is zero; a packet has at least 1B");
                self.error(part, "link.background.size", message);
            }
            self.share(part, "link.background.rate", background.rate, link.rate);
        }
        let keys = ["link.bucket.burst", "link.bucket.rate"];
        self.bucket(node, link.bucket, keys, |reply| !reply || link.replies.is_none());
        self.bucket(node, link.replies, ["link.replies.burst", "link.replies.rate"], |reply| reply);
    }

    /// A rate that is a part of the link's.
    fn share(&mut self, part: Part, key: &'static str, rate: Option<Rate>, whole: Rate) {
        let Some(rate) = rate.filter(|rate| rate.as_bps() == 0 || *rate > whole) else { return };
        if !self.bad(part, &[key, "link.rate"]) {
            let owner = self.owner(part);
            let message =
                format!("{key} {rate} of {owner} is not from 1bit to its link.rate {whole}; give it at most that");
            self.error(part, key, message);
        }
    }

    /// Checks a bucket of a node's link for the messages that are replies, or are not.
    fn bucket(
        &mut self,
        node: usize,
        bucket: Option<Bucket>,
        [burst, rate]: [&'static str; 2],
        takes: impl Fn(bool) -> bool,
    ) {
        let (system, part) = (self.system, Part::Node(node));
        let (Some(bucket), Some(link)) = (bucket, system.nodes[node].link) else { return };
        self.share(part, rate, Some(bucket.rate), link.rate);
        if bucket.burst.get() == 0 && !self.bad(part, &[burst]) {
            let owner = self.owner(part);
            return self.error(part, burst, format!("{burst} of {owner} is zero; a message takes at least 1B"));
        }
        let sent = |flow: &&Flow| {
            let hops = flow.hops().count();
            let mut legs = flow.hops().take(hops.saturating_sub(1)).enumerate();
            legs.any(|(hop, from)| from.index() == node && takes(flow.reply && hop + 2 == hops))
        };
        let largest = system.flows.iter().filter(sent).max_by_key(|flow| flow.size);
        if let Some(flow) = largest.filter(|flow| flow.size > bucket.burst)
            && !self.bad(part, &[burst])
        {
            let message = format!(
                "{burst} {} of {} is smaller than a message of flow \"{}\", which has {}; give at least that",
                bucket.burst,
                self.owner(part),
                flow.name,
                flow.size
            );
            self.error(part, burst, message);
        } else if system.clock.sync.is_some()
            && takes(false)
            && bucket.burst < SYNC_FRAME
            && flows::neighbours(system).iter().any(|(from, _)| from.index() == node)
            && !self.bad(part, &[burst])
        {
            let message = format!(
                "{burst} {} of {} is smaller than a message of clock.sync, which has {SYNC_FRAME}; give at least that",
                bucket.burst,
                self.owner(part)
            );
            self.error(part, burst, message);
        }
    }
}
