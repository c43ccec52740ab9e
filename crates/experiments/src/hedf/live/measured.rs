//! The bounds of `takt check` for the costs and delays that live nodes have measured.
//!
//! - Responses: by `check` of the system with these costs and delays.
//! - k: by the theorem of `check` about batches ([`takt_analysis::distributed::batch`]), with the measured lateness of
//!   table jobs. It rests on no deadline. So it bounds k also where no response is proven.

use std::collections::BTreeMap;

use serde_json::Value;
use takt_analysis::distributed::batch::{Receiver, Source};
use takt_analysis::{CheckOptions, CheckReport, check};
use takt_model::flows::lower;
use takt_model::{Auto, Costs, FlowId, Network, NodeId, Span, System};

use super::super::rounded;
use super::ways::{Delays, Ways};

/// The costs that a node has measured.
#[derive(Clone, Copy, Default, Debug)]
struct NodeCosts {
    /// How late a receiving and a sending job began at most.
    receive_late: Span,
    send_late: Span,
    /// The longest of these jobs.
    receive_longest: Span,
    send_longest: Span,
    /// How long the table thread takes to decide which job runs: the 99th percentile, as `takt run` charges it.
    decision: Span,
    /// Receiving jobs that left messages for the next one.
    exhausted: u64,
    /// CPU time that the hypervisor took.
    steal: Span,
}

/// The way of a flow's messages to a hop.
#[derive(Clone, Copy, Debug)]
struct Leg {
    from: NodeId,
    to: NodeId,
    /// The shortest and the longest delay.
    delay: (Span, Span),
    /// How much delays vary, beside a shift.
    varied: Span,
    /// By how much the delays of neighbouring messages of the flow shift at most.
    step: Span,
}

/// A live run of a system.
pub(super) struct Measured<'a> {
    system: &'a System,
    costs: BTreeMap<NodeId, NodeCosts>,
    /// By flow and hop. The first hop that receives is 1. Messages of other flows and hops did not arrive.
    legs: BTreeMap<(usize, u32), Leg>,
}

/// Arrivals of a flow's jobs are no limit: H of [`Source`] is as good as endless.
const NO_AGE: u64 = u64::MAX / 2;

/// Whether a value keeps its bound. `None`: one of them is not known, or the hypervisor took CPU time, which no bound
/// knows of.
pub(super) fn kept<T: Ord>(value: Option<T>, bound: Option<T>, steal: Span) -> Option<bool> {
    let kept = value? <= bound?;
    (kept || steal.is_zero()).then_some(kept)
}

/// A count, or a time in ns, of all flows of a node, by the answer of `takt run --json`.
pub(super) fn count(answer: &Value, key: &str) -> u64 {
    answer["flows"][key].as_u64().unwrap_or(0)
}

/// A figure of a flow's hop, by the answer of its node.
pub(super) fn figure(answer: &Value, flow: &str, hop: u32, key: &str) -> Option<u64> {
    let hops = answer["flows"]["hops"].as_array()?;
    hops.iter().find(|found| found["flow"] == flow && found["hop"] == hop)?[key].as_u64()
}

/// k of a hop: the most messages of the flow that one receiving job took. If no message came, nothing was measured.
pub(super) fn taken(answer: &Value, flow: &str, hop: u32) -> Option<u64> {
    figure(answer, flow, hop, "messages").filter(|most| *most > 0)
}

pub(super) fn number_or_nothing(value: Option<u64>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string())
}

/// k and the longest response, each with its bound, in words.
pub(super) fn beside_bounds(name: &str, k: [Option<u64>; 2], response: [Option<Span>; 2]) -> String {
    let [taken, messages] = k.map(number_or_nothing);
    let [longest, bound] = response.map(|span| span.map_or("nothing".to_owned(), rounded));
    format!("{name}: k {taken} of {messages}, response {longest} of {bound}")
}

impl NodeCosts {
    /// By the answer of `takt run --json`.
    fn of(answer: &Value) -> NodeCosts {
        let flows = |key: &str| count(answer, key);
        let managers = answer["managers"].as_array().into_iter().flatten();
        let decisions = managers.filter_map(|manager| manager["cost_ns"]["p99"].as_u64());
        NodeCosts {
            receive_late: Span::from_ns(flows("receive_late_max_ns")),
            send_late: Span::from_ns(flows("send_late_max_ns")),
            receive_longest: Span::from_ns(flows("receive_max_ns")),
            send_longest: Span::from_ns(flows("send_max_ns")),
            decision: Span::from_ns(decisions.max().unwrap_or(0)),
            exhausted: flows("exhausted"),
            steal: Span::from_ns(answer["steal_ns"].as_u64().unwrap_or(0)),
        }
    }
}

impl<'a> Measured<'a> {
    /// By the answers and the logs of nodes. `shifted` says how much the delays to a hop vary beside a shift, and by
    /// how much neighbours shift; `None` where they do not.
    pub(super) fn new<'v>(
        system: &'a System,
        answers: impl IntoIterator<Item = (NodeId, &'v Value)>,
        ways: &Ways,
        shifted: impl Fn(u32, &Delays) -> Option<(Span, Span)>,
    ) -> Measured<'a> {
        let costs = answers.into_iter().map(|(node, answer)| (node, NodeCosts::of(answer))).collect();
        let mut measured = Measured { system, costs, legs: BTreeMap::new() };
        let Some(lowered) = lower(system) else { return measured };
        for (at, flow) in system.flows.iter().enumerate() {
            for (hop, (from, to)) in (1..).zip(flow.legs()) {
                let task = lowered.task_of(FlowId(at as u32), hop - 1);
                let Some(delays) = task.and_then(|task| ways.delays(task, (from, to))) else { continue };
                let Some(delay) = delays.range() else { continue };
                let all = (delay.1.saturating_sub(delay.0), Span::ZERO);
                let (varied, step) = shifted(hop, &delays).unwrap_or(all);
                measured.legs.insert((at, hop), Leg { from, to, delay, varied, step });
            }
        }
        measured
    }

    /// CPU time that the hypervisor took from the machine.
    pub(super) fn steal(&self) -> Span {
        self.costs.values().map(|costs| costs.steal).max().unwrap_or_default()
    }

    /// The most messages of a flow that one receiving job takes before a hop. `None`: nothing is known of the way, or
    /// messages that receiving jobs leave have no bound.
    pub(super) fn messages(&self, flow: usize, hop: u32) -> Option<u64> {
        let leg = self.legs.get(&(flow, hop))?;
        let (receive, costs) = (self.system.nodes.get(leg.to.index())?.receive?, self.costs.get(&leg.to)?);
        let most = receive.cost.map(|cost| receive.wcet.as_ns() / cost.as_ns().max(1));
        let receiver = Receiver { period: receive.period.as_ns(), late: costs.receive_late.as_ns(), most };
        // Without a limit in messages a job leaves some only if its time is up. That was counted.
        let wait = if most.is_some() { receiver.wait(&self.sources(leg.to)?)? } else { costs.exhausted };
        receiver.messages(&self.source(flow, leg)?, wait)
    }

    /// The shortest and the longest delay of a flow's messages to a hop.
    pub(super) fn delay(&self, flow: usize, hop: u32) -> Option<(Span, Span)> {
        self.legs.get(&(flow, hop)).map(|leg| leg.delay)
    }

    /// All messages that come to a node.
    fn sources(&self, node: NodeId) -> Option<Vec<Source>> {
        let legs = self.legs.iter().filter(|(_, leg)| leg.to == node);
        legs.map(|((flow, _), leg)| self.source(*flow, leg)).collect()
    }

    /// Messages leave within sending jobs, the gap of the grid apart, less what the way shifts them.
    fn source(&self, flow: usize, leg: &Leg) -> Option<Source> {
        let (flow, send) = (self.system.flows.get(flow)?, self.system.nodes.get(leg.from.index())?.send?);
        let costs = self.costs.get(&leg.from)?;
        let turn = send.period.as_ns().max(1);
        let gap = flow.send_gap.as_ns().div_ceil(turn).max(1).checked_mul(turn)?;
        let sent = costs.send_late.saturating_add(costs.send_longest);
        Some(Source {
            gap: gap.saturating_sub(leg.step.as_ns()).max(1),
            gap_jitter: sent.saturating_add(leg.varied).as_ns(),
            period: flow.period.as_ns().max(1),
            period_jitter: NO_AGE,
        })
    }

    /// The answer of `check` with the measured costs and delays.
    pub(super) fn checked(&self) -> CheckReport {
        check(&self.with_costs(), &CheckOptions::default())
    }

    fn with_costs(&self) -> System {
        let mut system = self.system.clone();
        for (node, measured) in &self.costs {
            let Some(spec) = system.nodes.get_mut(node.index()) else { continue };
            for (task, longest) in
                [(&mut spec.receive, measured.receive_longest), (&mut spec.send, measured.send_longest)]
            {
                // With a cost for each message the WCET is what a job may take.
                if let Some(task) = task.as_mut().filter(|task| task.cost.is_none()) {
                    task.wcet = task.wcet.max(longest).min(task.period);
                }
            }
            let costs = spec.costs.get_or_insert(Costs::NONE);
            let twice = measured.decision.saturating_add(measured.decision);
            costs.latency = costs.latency.max(measured.receive_late).max(measured.send_late);
            (costs.release, costs.switch) = (costs.release.max(twice), costs.switch.max(twice));
        }
        system.networks = self.networks();
        system
    }

    /// The measured delays between nodes.
    fn networks(&self) -> Vec<Network> {
        let mut pairs: BTreeMap<(NodeId, NodeId), (Span, Span)> = BTreeMap::new();
        for leg in self.legs.values() {
            let known = pairs.entry((leg.from, leg.to)).or_insert(leg.delay);
            *known = (known.0.min(leg.delay.0), known.1.max(leg.delay.1));
        }
        let network = |((from, to), (least, most)): ((NodeId, NodeId), (Span, Span))| Network {
            from: Some(from),
            to: Some(to),
            delay: Auto::Value((least, most)),
            ..Network::any(least, most)
        };
        pairs.into_iter().map(network).collect()
    }

    /// The costs and delays of a hop as measured, in words.
    pub(super) fn disturbance(&self, flow: usize, hop: u32) -> String {
        let Some(leg) = self.legs.get(&(flow, hop)) else { return "no message came".to_owned() };
        let costs = |node: NodeId| self.costs.get(&node).copied().unwrap_or_default();
        let (sender, receiver) = (costs(leg.from), costs(leg.to));
        let mut text = format!(
            "sending jobs began up to {} late and took up to {}, receiving jobs began up to {} late, messages took {} \
             to {}, and a decision of the table thread took {}",
            rounded(sender.send_late),
            rounded(sender.send_longest),
            rounded(receiver.receive_late),
            rounded(leg.delay.0),
            rounded(leg.delay.1),
            rounded(sender.decision.max(receiver.decision))
        );
        if receiver.exhausted > 0 {
            text.push_str(&format!("; {} receiving jobs left messages for the next one", receiver.exhausted));
        }
        let steal = sender.steal.max(receiver.steal);
        if !steal.is_zero() {
            text.push_str(&format!("; the hypervisor took {} of CPU time", rounded(steal)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::setups::{Setup, busy, parse};
    use super::super::ki::set_ups;
    use super::*;

    fn system(text: &str) -> System {
        parse(text, "measured.toml").map_err(|failure| failure.message).unwrap()
    }

    /// The first set-up of the paper, with the local task that fits a CPU.
    fn near() -> System {
        let [Setup { text, .. }, ..] = set_ups();
        system(&text)
    }

    fn leg(most: u64, varied: u64, step: u64) -> Leg {
        let us = Span::from_us;
        Leg { from: NodeId(0), to: NodeId(1), delay: (us(100), us(most)), varied: us(varied), step: us(step) }
    }

    fn measured(system: &System, costs: NodeCosts, leg: Leg) -> Measured<'_> {
        let costs = [(NodeId(0), costs), (NodeId(1), costs)].into();
        Measured { system, costs, legs: [((0, 1), leg)].into() }
    }

    fn late(ms: u64) -> NodeCosts {
        NodeCosts { receive_late: Span::from_ms(ms), ..NodeCosts::default() }
    }

    #[test]
    fn lateness_and_delays_bound_k() {
        let near = near();
        let of = |costs: NodeCosts, leg: Leg| measured(&near, costs, leg).messages(0, 1);
        // 10 ms of a receiving period hold two gaps of 5 ms, and three if anything varies.
        assert_eq!([of(late(0), leg(100, 0, 0)), of(late(0), leg(200, 100, 0))], [Some(2), Some(3)]);
        assert_eq!([of(late(5), leg(200, 0, 0)), of(late(6), leg(200, 0, 0))], [Some(3), Some(4)]);
        // A shift brings messages closer together.
        assert_eq!(of(late(0), leg(10_000, 0, 100)), Some(3));
        // A receiving job that takes nothing leaves all to the next.
        assert_eq!(of(NodeCosts { exhausted: 1, ..late(0) }, leg(100, 0, 0)), Some(4));
        assert_eq!(measured(&near, late(0), leg(100, 0, 0)).messages(0, 2), None);
    }

    #[test]
    fn the_bound_of_the_file_is_no_less() {
        // With all that the file allows, and nothing beyond.
        let costs = NodeCosts { send_longest: Span::from_us(200), ..NodeCosts::default() };
        for (setup, most) in set_ups().iter().take(2).zip([3, 5]) {
            let system = system(&setup.text);
            let (least, longest) = system.networks[0].delay.given().expect("a delay");
            let varied = longest.saturating_sub(least);
            let leg = Leg { from: NodeId(0), to: NodeId(1), delay: (least, longest), varied, step: Span::ZERO };
            let found = measured(&system, costs, leg).messages(0, 1);
            let report = check(&system, &CheckOptions::default());
            assert!(found <= report.messages_bound("put", 1) && found == Some(most), "{found:?}");
        }
    }

    #[test]
    fn responses_are_checked_with_what_was_measured() {
        let near = near();
        let bound = |costs: NodeCosts, leg: Leg| measured(&near, costs, leg).checked().hop_bound("put", 1);
        assert!(bound(late(0), leg(170, 70, 0)).is_some());
        // Deadlines of 50 ms a hop leave no time for messages that take as long, or for a table thread as late.
        assert_eq!([bound(late(0), leg(60_000, 0, 0)), bound(late(60), leg(170, 70, 0))], [None, None]);
    }

    #[test]
    fn messages_that_many_leave_have_a_bound() {
        let busy = system(&busy("busy", "200us"));
        let costs = (0..8).map(|node| (NodeId(node), late(0))).collect();
        let mut legs = BTreeMap::new();
        for (at, flow) in busy.flows.iter().enumerate() {
            for (hop, (from, to)) in (1..).zip(flow.legs()) {
                legs.insert((at, hop), Leg { from, to, ..leg(200, 100, 0) });
            }
        }
        // Eight messages of eight flows come to a node within 10 ms, and a receiving job takes five. One that waits for
        // the job after next meets the next of its flow, which comes 20 ms later.
        let of = Measured { system: &busy, costs, legs };
        assert_eq!(of.messages(0, 1), Some(2));
        assert!(of.disturbance(0, 1).starts_with("sending jobs began up to 0.0 us late"));
    }

    #[test]
    fn costs_are_those_of_the_answer() {
        let answer = json!({
            "steal_ns": 7,
            "managers": [{ "cost_ns": { "p99": 3 } }, { "cost_ns": null }],
            "flows": {
                "receive_late_max_ns": 1, "send_late_max_ns": 2, "receive_max_ns": 4, "send_max_ns": 5, "exhausted": 6,
            },
        });
        let costs = NodeCosts::of(&answer);
        assert_eq!([costs.receive_late, costs.send_late, costs.decision].map(Span::as_ns), [1, 2, 3]);
        assert_eq!([costs.receive_longest, costs.send_longest, costs.steal].map(Span::as_ns), [4, 5, 7]);
        assert_eq!((costs.exhausted, NodeCosts::of(&json!({})).steal), (6, Span::ZERO));
    }
}
