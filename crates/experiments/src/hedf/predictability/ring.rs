//! The systems of the experiment: eight nodes [HEDF IV], each with a local task and some flows over three nodes.

use takt_model::generate::Random;
use takt_model::{
    Builtin, Clock, Costs, Exec, Flow, MessageArrivals, Network, NodeId, NodeSpec, Span, StrategyRef, System,
    TableTask, Task, named,
};

pub(super) const NODES: u32 = 8;
/// The receiving task's period [HEDF IV-C]; also the frame of the cyclic executive.
pub(super) const FRAME: Span = Span::from_ms(10);
/// The sending task's period [HEDF IV-C].
const SEND: Span = Span::from_ms(5);
/// The WCET of both [HEDF IV-C].
const TABLE: Span = Span::from_ms(1);
/// The cost of a message where it is received and where it is sent, the same in all three ways.
pub(super) const MESSAGE: Span = Span::from_us(50);
/// The least distance of messages of a flow, where a sending task keeps them apart.
pub(super) const SEND_GAP: Span = Span::from_ms(10);
pub(super) const SWITCH: Span = Span::from_us(10);
/// The range of network delays in [HEDF Fig. 4], without bandwidth shares.
const DELAY: (Span, Span) = (Span::from_us(140), Span::from_us(1_110));

named! {
    /// How the nodes learn of messages, in the order of all tables.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Kind {
        PartialEdf => "partial-EDF",
        Interrupt => "interrupt",
        Cyclic => "cyclic",
    }
}

impl Kind {
    fn node(self, name: &str) -> NodeSpec {
        let table = |period| Some(TableTask { period, wcet: TABLE, cost: Some(MESSAGE) });
        let costs = Some(Costs { switch: SWITCH, ..Costs::NONE });
        let node = NodeSpec { costs, ..NodeSpec::new(name, 1, StrategyRef::Builtin(Builtin::Edf)) };
        match self {
            Kind::PartialEdf => NodeSpec { receive: table(FRAME), send: table(SEND), ..node },
            Kind::Interrupt => NodeSpec { arrivals: MessageArrivals::Interrupt { cost: MESSAGE }, ..node },
            Kind::Cyclic => NodeSpec {
                arrivals: MessageArrivals::Cyclic,
                strategy: StrategyRef::Builtin(Builtin::Fifo),
                receive: table(FRAME),
                send: table(FRAME),
                ..node
            },
        }
    }
}

/// Whether a flow is urgent: the first of each node.
pub(super) fn is_urgent(flow: usize) -> bool {
    flow < NODES as usize
}

/// Eight nodes with so many flows each. Flows that a lighter load has are in a heavier one too.
pub(super) fn system(kind: Kind, flows: u32, seed: u64) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes = (0..NODES).map(|i| kind.node(&format!("n{i}"))).collect();
    for i in 0..NODES {
        let task = Task::periodic(&format!("local{i}"), Span::from_ms(20), Span::from_ms(4));
        let exec = Exec::Uniform { min: Span::from_ms(2), max: Span::from_ms(4) };
        system.tasks.push(Task { node: NodeId(i), exec, ..task });
    }
    for number in 0..flows {
        for first in 0..NODES {
            let flow = flow(number, first, &mut Random::new(seed ^ (u64::from(number) << 32) ^ u64::from(first)));
            system.flows.push(flow);
        }
    }
    system.networks.push(Network::any(DELAY.0, DELAY.1));
    // Phases wander, as they do between computers.
    system.clock = Clock { drift_ppm: 100, ..Clock::default() };
    system
}

fn flow(number: u32, first: u32, random: &mut Random) -> Flow {
    let step = |random: &mut Random| random.between(1, u64::from(NODES) - 1) as u32;
    let second = (first + step(random)) % NODES;
    let third = (second + step(random)) % NODES;
    let period = Span::from_ms([20, 25, 40, 50][random.between(0, 3) as usize]);
    let urgent = number == 0;
    let deadline = Span::from_ms(if urgent { 100 } else { 200 });
    Flow {
        name: format!("flow{first}-{number}"),
        path: [first, second, third].map(NodeId).to_vec(),
        reply: false,
        period,
        wcet: Span::from_us(500),
        deadline,
        send_gap: SEND_GAP,
        hop_wcet: Span::from_us(500),
        size: takt_model::Bytes::default(),
        hop_deadlines: Vec::new(),
    }
}
