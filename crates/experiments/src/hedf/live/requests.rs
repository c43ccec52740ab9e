//! [HEDF IV-C] on this kernel, the last set-up: four flows from each of eight nodes over two more, and
//! receiving tasks of 1 ms.

use serde_json::Value;
use takt_analysis::{CheckOptions, CheckReport, check};
use takt_linux::net::Bridge;
use takt_model::{NodeId, Span, System};

use super::super::batches::{self, Batches};
use super::super::ki::LEAST_BUSY;
use super::super::rounded;
use super::super::setups::{FLOWS, NODES, busy, parse};
use super::measured::{Measured, beside_bounds, count, figure, kept, taken};
use super::nodes::{LIVE_LEAST, NodesRan, NodesRun, RunNode};
use super::relay::{Delay, Relayed};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, LIVE, Row, SIMULATED};

pub(super) const NAME: &str = "four flows from each node";
const FILE: &str = "requests.toml";
/// Execution per message, as in the simulation: a receiving job takes five.
const COST: &str = "200us";
/// The WCET of a flow's jobs in the simulation and here: two CPUs have no time for eight nodes with the former.
const JOBS: [&str; 2] = ["wcet = \"1ms\"\ndeadline", "wcet = \"100us\"\ndeadline"];
/// The receiving tasks have this period. A relay between neighbours shifts messages by up to this, and back.
const PERIOD: Span = Span::from_ms(10);
/// The shift of a message against the one before, in us: between the first two nodes, and the more between the next.
/// So the phases of all neighbours change against each other.
const STEP: (u64, u64) = (100, 10);
/// Shorter runs do not tell of messages that wait for the next job.
const TELLS: Span = Span::from_s(5);

pub(super) struct Requests {
    nodes: Vec<NodeCounts>,
    /// The longest from the arrival of a flow to the end of its last job, of all flows, and its bound.
    pub(super) response: Option<Span>,
    pub(super) response_bound: Option<Span>,
    /// Whether `check` has that bound also without the measured costs and delays.
    is_proven: bool,
    pub(super) delay: Option<(Span, Span)>,
    /// CPU time that the hypervisor took.
    steal: Span,
    /// All relays together.
    pub(super) relayed: Relayed,
    sent: u64,
    arrived: u64,
    duration: Span,
}

/// The counts of a node, simulated and live.
struct NodeCounts {
    /// The most messages of one flow that a receiving job took.
    taken: (u64, Option<u64>),
    /// Whether all flows keep their bounds of k for the measured costs and delays, and the largest bound.
    kept: Option<bool>,
    bound: Option<u64>,
    /// The flow and the hop that exceeds its bound, in words, with what was measured.
    beyond: Option<String>,
    /// Receiving jobs that left messages for the next one.
    exhausted: (u64, u64),
}

fn text() -> String {
    busy("requests", COST).replace(JOBS[0], JOBS[1])
}

/// Flows go on to the next nodes. Messages to the first of them go over a relay.
fn nodes() -> Vec<RunNode> {
    let peers = |number: usize| {
        let next = |ahead: usize| ((number + ahead) % NODES, (ahead == 1).then_some(number));
        (1..=FLOWS).map(next).collect()
    };
    let node =
        |number: usize| RunNode { number, first_cpu: number.is_multiple_of(2), peers: peers(number), logs: true };
    (0..NODES).map(node).collect()
}

fn relays() -> Vec<(usize, Delay)> {
    let step = |number: usize| Span::from_us(STEP.0 + STEP.1 * number as u64);
    (0..NODES).map(|number| ((number + 1) % NODES, Delay::shifting((PERIOD, step(number))))).collect()
}

/// `None` if a signal ended the experiment.
pub(super) fn run(
    context: &Context,
    bridge: &Bridge,
    duration: Span,
    findings: &mut Findings,
) -> Result<Option<Requests>, Failure> {
    let system = parse(&text(), FILE)?;
    let run = NodesRun { file: FILE, text: text(), nodes: nodes(), relays: relays(), duration };
    let Some(ran) = run.run(context, bridge, findings)? else { return Ok(None) };
    let simulated = batches::run(&system, context.seed, LEAST_BUSY)?;
    Ok(Some(requests(&system, &simulated, &ran, duration)))
}

fn requests(system: &System, simulated: &Batches, ran: &NodesRan, duration: Span) -> Requests {
    let measured = Measured::new(system, (0..).map(NodeId).zip(&ran.answers), &ran.ways, |_, _| None);
    let node = |(number, answer): (usize, &Value)| {
        let hops = hops_to(system, number);
        let bounds = hops.iter().map(|(flow, hop)| measured.messages(*flow, *hop));
        let live = |(flow, hop): (usize, u32)| taken(answer, &system.flows[flow].name, hop);
        let keeps = |(flow, hop): (usize, u32)| kept(live((flow, hop)), measured.messages(flow, hop), measured.steal());
        let beyond = hops.iter().find(|hop| keeps(**hop) != Some(true));
        NodeCounts {
            taken: (
                hops.iter().map(|(flow, hop)| simulated.most(*flow, *hop)).max().unwrap_or(0),
                hops.iter().filter_map(|hop| live(*hop)).max(),
            ),
            kept: crate::findings::all(hops.iter().map(|hop| keeps(*hop))),
            bound: bounds.collect::<Option<Vec<_>>>().and_then(|bounds| bounds.into_iter().max()),
            beyond: beyond.map(|(flow, hop)| {
                format!("{}/{hop}: {}", system.flows[*flow].name, measured.disturbance(*flow, *hop))
            }),
            exhausted: (simulated.exhausted[number], count(answer, "exhausted")),
        }
    };
    let sum = |key: &str| ran.answers.iter().map(|answer| count(answer, key)).sum::<u64>();
    let delays: Vec<(Span, Span)> = (0..NODES)
        .flat_map(|number| hops_to(system, number))
        .filter_map(|(flow, hop)| measured.delay(flow, hop))
        .collect();
    let least = delays.iter().map(|delay| delay.0).min();
    Requests {
        nodes: ran.answers.iter().enumerate().map(node).collect(),
        response: response(system, &ran.answers),
        response_bound: longest(system, &measured.checked()),
        is_proven: longest(system, &check(system, &CheckOptions::default())).is_some(),
        delay: least.zip(delays.iter().map(|delay| delay.1).max()),
        steal: measured.steal(),
        relayed: together(&ran.relayed),
        sent: sum("sent"),
        arrived: sum("arrived"),
        duration,
    }
}

/// The flows and their hops that a node receives.
fn hops_to(system: &System, number: usize) -> Vec<(usize, u32)> {
    let of_flow = |(at, flow): (usize, &takt_model::Flow)| {
        let hops = (0..).zip(flow.hops().map(NodeId::index).collect::<Vec<_>>()).skip(1);
        hops.filter(|(_, node)| *node == number).map(|(hop, _)| (at, hop)).collect::<Vec<_>>()
    };
    system.flows.iter().enumerate().flat_map(of_flow).collect()
}

/// The longest response of all flows that have one.
fn response(system: &System, answers: &[Value]) -> Option<Span> {
    let of_flow = |flow: &takt_model::Flow| {
        let (hop, node) = (0..).zip(flow.hops()).last()?;
        figure(answers.get(node.index())?, &flow.name, hop, "response_max_ns").map(Span::from_ns)
    };
    system.flows.iter().filter_map(of_flow).max()
}

/// The largest bound of all flows, if all have one.
fn longest(system: &System, report: &CheckReport) -> Option<Span> {
    let bound = |flow: &takt_model::Flow| report.hop_bound(&flow.name, flow.hops().count() as u32 - 1);
    let bounds = system.flows.iter().map(bound).collect::<Option<Vec<_>>>()?;
    bounds.into_iter().max()
}

fn together(all: &[Relayed]) -> Relayed {
    let passed = all.iter().map(|one| one.passed).sum();
    let errors: u64 = all.iter().map(|one| one.late_mean.as_ns().saturating_mul(one.passed)).sum();
    Relayed {
        passed,
        least: all.iter().map(|one| one.least).min().unwrap_or_default(),
        most: all.iter().map(|one| one.most).max().unwrap_or_default(),
        late: all.iter().map(|one| one.late).max().unwrap_or_default(),
        late_mean: Span::from_ns(errors / passed.max(1)),
        lost: all.iter().map(|one| one.lost).sum(),
        refused: all.iter().map(|one| one.refused).sum(),
    }
}

/// Receiving jobs of a node.
fn jobs(duration: Span) -> u64 {
    duration.as_ns() / PERIOD.as_ns()
}

impl Requests {
    pub(super) fn table(&self) -> Comparison {
        let value = |value: Option<u64>| value.map(|value| value as f64);
        let share = |count: u64, duration: Span| Some(count as f64 * 1e4 / jobs(duration).max(1) as f64);
        let row = |(number, node): (usize, &NodeCounts)| {
            let (simulated, live) = node.exhausted;
            Row {
                name: number.to_string(),
                values: vec![
                    vec![Some(node.taken.0 as f64), None, share(simulated, LEAST_BUSY)],
                    vec![value(node.taken.1), value(node.bound), share(live, self.duration)],
                ],
            }
        };
        Comparison::new(
            "Eight nodes with four flows each on this kernel",
            "Section IV-C",
            "k, and the receiving jobs of 10,000 that left messages",
            0,
        )
        .with(
            "node",
            ["k", "proven", "jobs that left messages"],
            [SIMULATED, LIVE],
            self.nodes.iter().enumerate().map(row),
        )
    }

    /// A claim that very short runs do not tell.
    pub(super) fn claim(&self, findings: &mut Findings) {
        if self.duration < TELLS {
            return;
        }
        let left: Vec<u64> = self.nodes.iter().map(|node| node.exhausted.1).filter(|left| *left > 0).collect();
        let (sum, all) = (left.iter().sum::<u64>(), jobs(self.duration) * NODES as u64);
        findings.claim(
            "live_a_receiving_task_of_1ms_is_too_short",
            "On this kernel, with four flows from each node, a receiving task of 1 ms cannot always take all messages",
            format!("{sum} of {all} receiving jobs left messages for the next one, on {} of {NODES} nodes", left.len()),
            if sum > 0 { Some(true) } else { (self.duration >= LIVE_LEAST).then_some(false) },
        );
    }

    /// Whether k of each node keeps its bound. The same of the longest response, where `check` has a bound without the
    /// measured costs and delays.
    pub(super) fn keeps(&self) -> Vec<Option<bool>> {
        let mut all: Vec<Option<bool>> = self.nodes.iter().map(|node| node.kept).collect();
        if self.is_proven {
            all.push(kept(self.response, self.response_bound, self.steal));
        }
        all
    }

    /// The largest k and response with their bounds, and what was measured where they are exceeded.
    pub(super) fn describe(&self) -> String {
        let taken = self.nodes.iter().filter_map(|node| node.taken.1).max();
        let bound = self.nodes.iter().map(|node| node.bound).collect::<Option<Vec<_>>>();
        let bound = bound.and_then(|bounds| bounds.into_iter().max());
        let mut text = beside_bounds(NAME, [taken, bound], [self.response, self.response_bound]);
        if let Some(beyond) = self.nodes.iter().find_map(|node| node.beyond.as_ref()) {
            text.push_str(&format!(" ({beyond})"));
        }
        text
    }

    pub(super) fn note(&self) -> String {
        let Relayed { late, lost, refused, .. } = self.relayed;
        format!(
            "{NAME}: {} messages sent and {} arrived at nodes. Relays held each {} longer than meant at most, lost \
             {lost} and could not send {refused}.",
            self.sent,
            self.arrived,
            rounded(late)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_its_way() {
        let system = parse(&text(), FILE).map_err(|failure| failure.message).unwrap();
        assert!(system.flows.iter().all(|flow| flow.wcet == Span::from_us(100) && flow.hop_wcet == flow.wcet));
        assert!(system.nodes.iter().all(|node| node.receive.is_some_and(|task| task.wcet == Span::from_ms(1))));
        let (nodes, relays) = (nodes(), relays());
        for (from, to) in system.flows.iter().flat_map(takt_model::Flow::legs) {
            let (from, to) = (from.index(), to.index());
            let peer = nodes[from].peers.iter().find(|(peer, _)| *peer == to);
            let over = peer.expect("an address").1.map(|relay| relays[relay].0);
            assert_eq!(over, (to == (from + 1) % NODES).then_some(to));
        }
    }

    #[test]
    fn relays_are_told_of_together() {
        let us = Span::from_us;
        let of = |passed, [least, most, late, late_mean]: [u64; 4], lost| {
            let (least, most, late, late_mean) = (us(least), us(most), us(late), us(late_mean));
            Relayed { passed, least, most, late, late_mean, lost, refused: 2 * lost }
        };
        let (one, other) = (of(3, [1, 9, 5, 2], 1), of(1, [2, 7, 8, 6], 1));
        let all = together(&[one, other]);
        assert_eq!((all.passed, all.least, all.most, all.late), (4, us(1), us(9), us(8)));
        assert_eq!((all.late_mean, all.lost, all.refused), (us(3), 2, 4));
    }
}
