//! The routes between nodes, and the machines on them, built from a System.

use std::collections::BTreeMap;
use std::sync::Arc;

use takt_model::flows::SYNC_FRAME;
use takt_model::{
    ActualDelay, Auto, Bucket, Bytes, Cross, Draw, NodeId, PortId, Probability, Span, System, draw::Purpose,
};
use takt_net::{
    Background, BucketSpec, ClassSpec, CrossPattern, Delays, Egress, EgressSpec, Link, LinkSpec, Order, Port, PortSpec,
    QueueSpec,
};

use crate::network::{LaneProperties, Network, Queue, Route};
use crate::{MESSAGES_MAX, SimError};

/// The link and the ports between two nodes.
struct NodePath {
    /// Least and most delay of the link.
    delay: (Span, Span),
    delays: Delays,
    loss: Probability,
    /// The ports where the delay is `"auto"`; else it is written.
    computed: Option<Vec<PortId>>,
}

/// The routes so far, and the sizes of their machines.
pub(crate) struct Routes<'a> {
    system: &'a System,
    seed: u64,
    pairs: BTreeMap<(NodeId, NodeId), u32>,
    /// By node: its egress.
    egress_of: Vec<Option<u32>>,
    /// By egress: its node, and how many streams it has.
    egresses: Vec<(NodeId, u32)>,
    /// By port of the System: its index in `ports`, if it is on a route.
    port_of: Vec<Option<u32>>,
    /// By port on a route: its id, and how many pairs of nodes it serves.
    ports: Vec<(PortId, u32)>,
    network: Network,
}

impl<'a> Routes<'a> {
    pub(crate) fn new(system: &'a System, seed: u64) -> Self {
        Routes {
            system,
            seed,
            pairs: BTreeMap::new(),
            egress_of: vec![None; system.nodes.len()],
            egresses: Vec::new(),
            port_of: vec![None; system.ports.len()],
            ports: Vec::new(),
            network: Network::default(),
        }
    }

    /// The route between two nodes, if a network, a flow or the link of the sender goes there.
    pub(crate) fn known_route(&mut self, from: NodeId, to: NodeId) -> Result<Option<u32>, SimError> {
        let system = self.system;
        let has_link = system.nodes[from.index()].link.is_some();
        let known = self.pairs.contains_key(&(from, to)) || has_link || !system.networks_between(from, to).is_empty();
        known.then(|| self.route(from, to)).transpose()
    }

    /// The route between two nodes.
    pub(crate) fn route(&mut self, from: NodeId, to: NodeId) -> Result<u32, SimError> {
        if let Some(route) = self.pairs.get(&(from, to)) {
            return Ok(*route);
        }
        let path = path_between(self.system, from, to)?;
        let spec = LinkSpec { delays: path.delays, loss: path.loss, packets_max: MESSAGES_MAX };
        let link = self.network.links.len() as u32;
        self.network.links.push(Link::new(spec)?);
        let mut route = Route { to: to.0, egress: None, ports: Vec::new(), link, delay: path.delay };
        if let Some(through) = path.computed {
            route.egress = Some(self.egress(from)?);
            route.ports = through.into_iter().map(|port| self.port(port)).collect();
        }
        let index = self.network.routes.len() as u32;
        self.network.routes.push(route);
        self.pairs.insert((from, to), index);
        Ok(index)
    }

    /// The egress of a node.
    fn egress(&mut self, node: NodeId) -> Result<u32, SimError> {
        if let Some(egress) = self.egress_of[node.index()] {
            return Ok(egress);
        }
        let spec = &self.system.nodes[node.index()];
        if spec.link.is_none() {
            return Err(SimError::NoLink { node: spec.name.clone() });
        }
        let egress = self.egresses.len() as u32;
        self.egresses.push((node, 0));
        self.egress_of[node.index()] = Some(egress);
        Ok(egress)
    }

    /// Adds a pair of nodes to a port. Returns the index of the port and of the pair there.
    fn port(&mut self, port: PortId) -> (u32, u32) {
        let index = *self.port_of[port.index()].get_or_insert(self.ports.len() as u32);
        if index as usize == self.ports.len() {
            self.ports.push((port, 0));
        }
        let pairs = &mut self.ports[index as usize].1;
        *pairs += 1;
        (index, *pairs - 1)
    }

    /// A lane over the link of a route alone, for messages whose delay is written. They wait for no others.
    fn direct_lane(&mut self, route: u32) -> u32 {
        self.network.lanes.push(LaneProperties { route, queue: None, draws: Vec::new() });
        self.network.lanes.len() as u32 - 1
    }

    /// The lane of messages of `clock.sync` by this route. Like those of a live node they are no replies, and have no
    /// deadline. `name` is that of their draws.
    pub(crate) fn sync_lane(&mut self, route: u32, name: &str) -> u32 {
        self.lane(route, name, SYNC_FRAME, None, false)
    }

    /// The lane of messages of this size by this route. `name` is that of their draws. A message releases a job that is
    /// due `allowance` after its sender. `None`: it has no deadline.
    pub(crate) fn lane(&mut self, route: u32, name: &str, bytes: Bytes, allowance: Option<Span>, reply: bool) -> u32 {
        let Route { egress, ports, .. } = &self.network.routes[route as usize];
        let Some(egress) = *egress else { return self.direct_lane(route) };
        let port = |(port, _): &(u32, u32)| &self.system.ports[self.ports[*port as usize].0.index()].name;
        let draws = ports.iter().map(|at| Draw::new(self.seed, &format!("{name} at {}", port(at)))).collect();
        let (node, streams) = &mut self.egresses[egress as usize];
        let has_replies = self.system.nodes[node.index()].link.is_some_and(|link| link.replies.is_some());
        let queue = Queue {
            class: usize::from(reply && has_replies),
            stream: *streams,
            bytes: bytes.max(Bytes::new(1)),
            allowance,
        };
        *streams += 1;
        self.network.lanes.push(LaneProperties { route, queue: Some(queue), draws });
        self.network.lanes.len() as u32 - 1
    }

    /// All machines.
    pub(crate) fn build(mut self) -> Result<Network, SimError> {
        for (node, streams) in &self.egresses {
            if let Some(link) = &self.system.nodes[node.index()].link {
                self.network.egresses.push(Egress::new(egress_spec(link, *streams))?);
            }
        }
        for (port, pairs) in &self.ports {
            let port = &self.system.ports[port.index()];
            let draw = Draw::new(self.seed, &port.name);
            // Some phase of the others' bursts, one or the other pattern.
            let pattern = [CrossPattern::Steady, CrossPattern::Bursts][(draw.bits(Purpose::Cross, 0) >> 63) as usize];
            let offset = draw.uniform(Purpose::Cross, 1, Span::ZERO, port.cross.map_or(Span::ZERO, refill_time));
            let spec = PortSpec { packets_max: MESSAGES_MAX, ..PortSpec::of(port, *pairs as usize, pattern, offset) };
            self.network.ports.push(Port::new(spec)?);
        }
        Ok(self.network)
    }
}

/// The classes of a link, the most important first: messages, replies where the link has them apart,
/// and background traffic.
fn egress_spec(link: &takt_model::Link, streams: u32) -> EgressSpec {
    let order = if link.edf { Order::Edf } else { Order::Fifo };
    let queue = QueueSpec { order, late: link.late.into(), packets_max: MESSAGES_MAX, streams: streams as usize };
    let held = |class: ClassSpec, bucket: Option<Bucket>| match bucket {
        None => class,
        Some(Bucket { burst, rate }) => {
            ClassSpec { bucket: Some(BucketSpec { rate, burst }), packet_max: burst, ..class }
        }
    };
    let messages = ClassSpec { queue, ..ClassSpec::fifo() };
    let mut classes = vec![held(messages.clone(), link.bucket)];
    classes.extend(link.replies.map(|bucket| held(messages, Some(bucket))));
    classes.extend(link.background.map(|takt_model::Background { size, rate }| {
        let bucket = rate.map(|rate| Bucket { burst: size, rate });
        ClassSpec { background: Some(Background::always(size)), ..held(ClassSpec::fifo(), bucket) }
    }));
    EgressSpec { rate: link.rate, classes }
}

/// The path between two nodes. With several networks, delays are uniform over their widest
/// interval. Without a network, the sender's link reaches the receiver directly.
fn path_between(system: &System, from: NodeId, to: NodeId) -> Result<NodePath, SimError> {
    let mut path: Option<NodePath> = None;
    for network in system.networks_between(from, to) {
        let network = &system.networks[network.index()];
        let (delay, computed) = match network.delay {
            Auto::Auto => ((Span::ZERO, Span::ZERO), Some(network.through.clone())),
            Auto::Value(delay) => (delay, None),
        };
        path = Some(match path {
            None => {
                let delays = match &network.actual_delay {
                    ActualDelay::Uniform => Delays::Uniform { min: delay.0, max: delay.1 },
                    ActualDelay::Pmf(pmf) => Delays::Pmf(pmf.clone()),
                    ActualDelay::Trace(trace) => Delays::Trace(Arc::clone(&trace.values)),
                };
                NodePath { delay, delays, loss: network.loss, computed }
            }
            Some(wider) if wider.computed == computed => {
                let (min, max) = (wider.delay.0.min(delay.0), wider.delay.1.max(delay.1));
                let loss = wider.loss.max(network.loss);
                NodePath { delay: (min, max), delays: Delays::Uniform { min, max }, loss, computed }
            }
            Some(_) => {
                let [from, to] = [from, to].map(|node| system.nodes[node.index()].name.clone());
                return Err(SimError::Ambiguous { from, to });
            }
        });
    }
    Ok(path.unwrap_or_else(|| NodePath {
        delay: (Span::ZERO, Span::ZERO),
        delays: Delays::Uniform { min: Span::ZERO, max: Span::ZERO },
        loss: Probability::NONE,
        computed: Some(Vec::new()),
    }))
}

/// The time in which cross traffic at its rate brings another burst, in ns rounded down.
fn refill_time(cross: Cross) -> Span {
    let ns = u128::from(cross.burst.get()) * 8_000_000_000 / u128::from(cross.rate.as_bps().max(1));
    Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX)).min(Span::FILE_MAX)
}
