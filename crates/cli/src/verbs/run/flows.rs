//! `takt run` of a node with flows: where its messages go, and how its hops did beside the bounds of
//! `takt check`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::{Value, json};
use takt_analysis::CheckOptions;
use takt_linux::clock;
use takt_log::stats::Stats;
use takt_model::{Costs, FlowId, Lateness, NodeId, Span, System, TableTask, flows};
use takt_net::source::ClockReport;
use takt_run::RunSummary;
use takt_run::node::{Key, NodeCounts, NodeNetwork, has_flows};

use crate::args;
use crate::clock_sources;
use crate::failure::Failure;
use crate::output::note;
use crate::table::{Table, or_dash, time};

/// SO_PRIORITY of messages: the real-time class of `takt net apply`.
const PRIORITY: u32 = 6;
/// The most that a start may be ahead.
const AHEAD_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Where messages go, if the node that is to run has flows.
pub(super) fn network(
    system: &System,
    node: Option<NodeId>,
    options: &args::RunFlows,
) -> Result<Option<NodeNetwork>, Failure> {
    let node = node.or_else(|| (system.nodes.len() == 1).then_some(NodeId(0)));
    let asked =
        options.listen.is_some() || !options.peer.is_empty() || options.key.is_some() || options.start_at.is_some();
    let Some(node) = node.filter(|node| asked || has_flows(system, *node)) else {
        // The library asks which node.
        return Ok(None);
    };
    refuse_peers(system, node, &options.peer)?;
    let key = options.key.as_deref().map(Key::from_file).transpose().map_err(Failure::input)?;
    // Nobody else waits for a node without peers.
    let alone = options.listen.is_none() && options.peer.is_empty();
    let start = options.start_at.unwrap_or_else(|| {
        let start = NodeNetwork::next_start(alone);
        if !alone {
            let (name, at) = (&system.nodes[node.index()].name, start / 1_000_000_000);
            note(format_args!("note: node \"{name}\" starts at {at} (seconds since 1970), as --start-at {at} does"));
        }
        start
    });
    if start.saturating_sub(clock::realtime_ns()) > AHEAD_NS {
        return Err(Failure::input("--start-at: the common start is more than a year ahead; give seconds since 1970"));
    }
    let (listen, peers) = (options.listen, options.peer.clone());
    Ok(Some(NodeNetwork { listen, peers, key, start, priority: PRIORITY, clocks: options.clocks }))
}

/// Refuses addresses of peers that say the same node twice, this node, or no port.
fn refuse_peers(system: &System, node: NodeId, peers: &[(String, SocketAddr)]) -> Result<(), Failure> {
    let own = system.nodes.get(node.index()).map(|node| node.name.as_str());
    for (at, (peer, address)) in peers.iter().enumerate() {
        let refuse = |why: &str| Err(Failure::input(format_args!("--peer {peer}={address}: {why}")));
        if peers.iter().take(at).any(|(other, _)| other == peer) {
            return refuse("the node has an address already; leave one out");
        }
        if own == Some(peer) {
            return refuse("this is the node that runs; its own address is --listen");
        }
        if address.port() == 0 {
            return refuse("port 0 is no address of a peer; give the port of its --listen");
        }
    }
    Ok(())
}

struct Hop {
    task: String,
    flow: String,
    hop: u32,
    deadline: Span,
    /// From one message of the flow to the next, at least.
    gap: Span,
    /// Of the response, by `takt check`.
    bound: Option<Span>,
    max: Option<Span>,
    missed: Option<u64>,
    /// k: the most messages that one receiving job took; `None` on the first hop.
    taken: Option<u64>,
    taken_bound: Option<u64>,
}

impl Hop {
    fn exceeds(&self) -> bool {
        self.is_above(self.bound, self.taken_bound)
    }

    fn is_above(&self, response: Option<Span>, messages: Option<u64>) -> bool {
        let above =
            |value: Option<u64>, bound: Option<u64>| value.zip(bound).is_some_and(|(value, bound)| value > bound);
        above(self.max.map(Span::as_ns), response.map(Span::as_ns)) || above(self.taken, messages)
    }

    /// What is left below the bound, or below the deadline where none is proven.
    fn slack(&self) -> Option<Lateness> {
        let left = i128::from(self.bound.unwrap_or(self.deadline).as_ns()) - i128::from(self.max?.as_ns());
        i64::try_from(left).ok().map(Lateness::from_ns)
    }
}

pub(super) struct Account {
    hops: Vec<Hop>,
    counts: NodeCounts,
    /// Why bounds were exceeded. None: nothing that was measured explains it.
    disturbances: Vec<String>,
    /// Peers, and how far the own clock is ahead of theirs.
    differences: Vec<(String, i64)>,
    /// Peers whose clock was not known when messages came, and how many of these were dropped.
    untimed: Vec<(String, u64)>,
    /// Reports on CLOCK_REALTIME, if nodes trust it.
    sources: Option<Vec<ClockReport>>,
}

impl Account {
    /// `None` for a node without flows.
    pub(super) fn new(system: &System, stats: &Stats, summary: &RunSummary) -> Option<Account> {
        let live = summary.flows.as_ref()?;
        let lowered = flows::lower(system)?;
        let report = takt_analysis::check(system, &CheckOptions::default());
        let sources = live.sources.as_deref();
        let is_timed = !live.other_clocks || sources.is_none_or(clock_sources::is_known);
        let mut hops = Vec::new();
        for (at, flow) in system.flows.iter().enumerate() {
            for (hop, _) in (0..).zip(flow.hops()).filter(|(_, node)| *node == summary.node) {
                let Some(id) = lowered.task_of(FlowId(at as u32), hop) else { continue };
                let task = &lowered.system.tasks[id.index()];
                let of = stats.tasks.iter().find(|stats| stats.task == task.name);
                // Without a known clock only a flow that started here has times.
                let of = of.filter(|_| is_timed || flow.path.first() == Some(&summary.node));
                hops.push(Hop {
                    task: task.name.clone(),
                    flow: flow.name.clone(),
                    hop,
                    deadline: task.deadline,
                    gap: flow.send_gap,
                    bound: report.hop_bound(&flow.name, hop),
                    max: of.and_then(|stats| stats.response_ns).map(|response| Span::from_ns(response.max)),
                    missed: of.and_then(|stats| stats.missed),
                    taken: live.taken.iter().find(|(task, _)| *task == id).map(|(_, most)| *most),
                    taken_bound: report.messages_bound(&flow.name, hop),
                });
            }
        }
        let (node, steal) = (summary.node, summary.steal.unwrap_or_default());
        let disturbances = Measured { node, counts: live.counts, steal }.causes(system, &hops);
        let name = |node: NodeId| system.nodes.get(node.index()).map_or_else(String::new, |node| node.name.clone());
        let differences = live.differences.iter().map(|(node, ns)| (name(*node), *ns)).collect();
        let untimed = live.untimed.iter().map(|(node, count)| (name(*node), *count)).collect();
        let (counts, sources) = (live.counts, live.sources.clone());
        Some(Account { hops, counts, disturbances, differences, untimed, sources })
    }

    pub(super) fn text(&self) -> String {
        let heads = ["hop", "deadline", "bound", "max", "slack", "missed", "k", "k bound"];
        let mut table = Table::new(&heads);
        for hop in &self.hops {
            table.row(vec![
                hop.task.clone(),
                time(hop.deadline),
                or_dash(hop.bound.map(time)),
                or_dash(hop.max.map(time)),
                or_dash(hop.slack().map(Lateness::four_digits_down)),
                or_dash(hop.missed),
                or_dash(hop.taken),
                or_dash(hop.taken_bound),
            ]);
        }
        let NodeCounts {
            sent, unsent, late, arrived, malformed, foreign, forged, replayed, former, overflowed, ..
        } = self.counts;
        let mut text = format!("\n{}", table.render(""));
        let _ = write!(text, "messages: {sent} sent, {arrived} arrived");
        for (count, what) in [
            (unsent, "not sent"),
            (late, "dropped because they were late"),
            (malformed, "malformed datagrams dropped"),
            (foreign, "datagrams of other runs or systems dropped"),
            (forged, "forged datagrams dropped"),
            (replayed, "replayed datagrams dropped"),
            (former, "datagrams of former processes dropped"),
            (overflowed, "lost in a full socket"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text.push('\n');
        if arrived == 0 && self.hops.iter().any(|hop| hop.hop > 0) {
            text.push_str("no message arrived: does each node run, with the same file, key and --start-at?\n");
        }
        if former > 0 {
            text.push_str(
                "former processes: was the clock of a node set back before it started again? start it again when its \
                 clock has passed its former start, or start this node again\n",
            );
        }
        let c = &self.counts;
        let span = |ns: u64| time(Span::from_ns(ns));
        let _ = writeln!(
            text,
            "table: receiving jobs started at most {} late and took at most {}, sending jobs {} and {}",
            span(c.receive_late_ns),
            span(c.receive_longest_ns),
            span(c.send_late_ns),
            span(c.send_longest_ns),
        );
        for (node, ns) in &self.differences {
            let _ = writeln!(text, "clocks: this one - that of \"{node}\" is {}", Lateness::from_ns(*ns));
        }
        if let Some(drops) = self.clock_drops() {
            let _ = writeln!(text, "clocks: dropped {drops}");
        }
        for (node, count) in &self.untimed {
            let _ = writeln!(
                text,
                "clocks: {count} messages of \"{node}\" were dropped, because it was not known how its clock differs: \
                 does it run with --clocks, at the same port, and does UDP pass there?"
            );
        }
        if let Some(sources) = &self.sources {
            let _ = writeln!(text, "{}", clock_sources::sentence(sources));
        }
        for hop in self.hops.iter().filter(|hop| hop.exceeds()) {
            let why = if self.disturbances.is_empty() {
                "no disturbance that was seen explains it: is the network slower than the file says, or do the clocks \
                 differ?"
                    .to_owned()
            } else {
                self.disturbances.join("; ")
            };
            let _ = writeln!(text, "{} exceeded a bound of takt check: {why}", hop.task);
        }
        text
    }

    /// The datagrams of the exchange of clocks that were dropped; `None`: there were none.
    fn clock_drops(&self) -> Option<String> {
        let c = &self.counts;
        let drops = [
            (c.clock_malformed, "malformed datagrams"),
            (c.clock_foreign, "of other runs or systems"),
            (c.clock_forged, "forged datagrams"),
            (c.clock_replayed, "replayed datagrams"),
            (c.clock_former, "of former processes"),
        ];
        let told = drops.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    pub(super) fn json(&self) -> Value {
        let hop = |hop: &Hop| {
            json!({
                "flow": hop.flow,
                "hop": hop.hop,
                "task": hop.task,
                "deadline_ns": hop.deadline.as_ns(),
                "bound_ns": hop.bound.map(Span::as_ns),
                "response_max_ns": hop.max.map(Span::as_ns),
                "slack_ns": hop.slack().map(Lateness::as_ns),
                "missed": hop.missed,
                "messages": hop.taken,
                "messages_bound": hop.taken_bound,
                "exceeds": hop.exceeds(),
            })
        };
        let clock = |(node, ns): &(String, i64)| json!({ "node": node, "offset_ns": ns });
        let untimed = |(node, count): &(String, u64)| json!({ "node": node, "dropped": count });
        let c = &self.counts;
        json!({
            "hops": self.hops.iter().map(hop).collect::<Vec<_>>(),
            "sent": c.sent,
            "unsent": c.unsent,
            "late": c.late,
            "arrived": c.arrived,
            "malformed": c.malformed,
            "foreign": c.foreign,
            "forged": c.forged,
            "replayed": c.replayed,
            "former": c.former,
            "overflowed": c.overflowed,
            "exhausted": c.exhausted,
            "receive_late_max_ns": c.receive_late_ns,
            "send_late_max_ns": c.send_late_ns,
            "receive_max_ns": c.receive_longest_ns,
            "send_max_ns": c.send_longest_ns,
            "disturbances": self.disturbances,
            "clocks": self.differences.iter().map(clock).collect::<Vec<_>>(),
            "clock_datagrams": {
                "malformed": c.clock_malformed,
                "foreign": c.clock_foreign,
                "forged": c.clock_forged,
                "replayed": c.clock_replayed,
                "former": c.clock_former,
            },
            "clocks_unknown": self.untimed.iter().map(untimed).collect::<Vec<_>>(),
            "clock_sources": self.sources.as_deref().map(clock_sources::json),
        })
    }
}

struct Measured {
    node: NodeId,
    counts: NodeCounts,
    steal: Span,
}

/// The lateness leaves no bound.
const UNBOUNDED: &str = "with this takt check has no bound of the response";

impl Measured {
    fn causes(&self, system: &System, hops: &[Hop]) -> Vec<String> {
        if !hops.iter().any(Hop::exceeds) {
            return Vec::new();
        }
        match self.explains(system, hops) {
            Some(true) => self.disturbances(system),
            Some(false) => Vec::new(),
            None => self.disturbances(system).into_iter().chain([UNBOUNDED.to_owned()]).collect(),
        }
    }

    /// Whether the measured lateness explains the exceeded bounds: `takt check` with that lateness has
    /// bounds that are kept. In a batch there is one more message for each gap of the lateness. `None`: a
    /// response has no bound with that lateness.
    fn explains(&self, system: &System, hops: &[Hop]) -> Option<bool> {
        let mut measured = system.clone();
        let Some(node) = measured.nodes.get_mut(self.node.index()) else { return Some(false) };
        let over = |task: Option<TableTask>, longest: u64| {
            task.map_or(0, |task| Span::from_ns(longest).saturating_sub(task.wcet).as_ns())
        };
        let late = self.counts.receive_late_ns.max(self.counts.send_late_ns);
        let over = over(node.receive, self.counts.receive_longest_ns).max(over(node.send, self.counts.send_longest_ns));
        let latency = Span::from_ns(late.saturating_add(over)).saturating_add(self.steal);
        let costs = node.costs.get_or_insert(Costs::NONE);
        costs.latency = costs.latency.max(latency);
        let report = takt_analysis::check(&measured, &CheckOptions::default());
        let mut is_bounded = true;
        for hop in hops.iter().filter(|hop| hop.exceeds()) {
            let more = latency.as_ns().div_ceil(hop.gap.as_ns().max(1));
            let messages = hop.taken_bound.map(|bound| bound.saturating_add(more));
            let response = report.hop_bound(&hop.flow, hop.hop);
            if hop.is_above(response, messages.max(report.messages_bound(&hop.flow, hop.hop))) {
                return Some(false);
            }
            is_bounded &= response.is_some() || !hop.is_above(hop.bound, None);
        }
        is_bounded.then_some(true)
    }

    /// What the bounds of `check` do not know of.
    fn disturbances(&self, system: &System) -> Vec<String> {
        let Measured { counts, .. } = self;
        let Some(spec) = system.nodes.get(self.node.index()) else { return Vec::new() };
        let latency = spec.costs.map_or(Span::ZERO, |costs| costs.latency);
        let mut found = Vec::new();
        let span = |ns: u64| time(Span::from_ns(ns));
        let tables = [
            ("receiving", spec.receive, counts.receive_late_ns, counts.receive_longest_ns),
            ("sending", spec.send, counts.send_late_ns, counts.send_longest_ns),
        ];
        for (name, task, late, longest) in tables {
            let Some(task) = task else { continue };
            if late > latency.as_ns() {
                found.push(format!("the table thread began a {name} job {} late", span(late)));
            }
            if longest > task.wcet.as_ns() {
                found.push(format!("a {name} job took {}, and its wcet is {}", span(longest), task.wcet));
            }
        }
        if counts.exhausted > 0 {
            found.push(format!("{} receiving jobs left messages for the next one", counts.exhausted));
        }
        if !self.steal.is_zero() {
            found.push(format!("the hypervisor took {} of CPU time", self.steal));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow from one node to another, every 10 ms.
    fn system() -> System {
        let node = |name: &str| {
            format!(
                "[[node]]\nname = \"{name}\"\nreceive = {{ period = \"10ms\", wcet = \"1ms\" }}\n\
                 send = {{ period = \"10ms\", wcet = \"1ms\" }}\n"
            )
        };
        let text = format!(
            "takt = 1\nname = \"two\"\n{}{}[[flow]]\nname = \"put\"\npath = [\"n0\", \"n1\"]\nperiod = \"50ms\"\n\
             send-gap = \"10ms\"\nwcet = \"1ms\"\ndeadline = \"200ms\"\nsize = \"120B\"\n\
             [[network]]\ndelay = [\"0us\", \"5ms\"]\n",
            node("n0"),
            node("n1")
        );
        takt_model::file::parse(&text, "two.toml").unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The causes at the second node for a response and a batch, by how late the table thread began.
    fn causes(late: Span, max: Span, taken: u64) -> Vec<String> {
        let system = system();
        let report = takt_analysis::check(&system, &CheckOptions::default());
        let bound = report.hop_bound("put", 1);
        assert!(bound.is_some(), "the flow is proven");
        let (task, flow) = ("put/1".to_owned(), "put".to_owned());
        let deadline = Span::from_ms(100);
        let hop = Hop {
            task,
            flow,
            hop: 1,
            deadline,
            gap: Span::from_ms(10),
            bound,
            max: Some(max),
            missed: Some(0),
            taken: Some(taken),
            taken_bound: Some(3),
        };
        let counts = NodeCounts { receive_late_ns: late.as_ns(), ..NodeCounts::default() };
        Measured { node: NodeId(1), counts, steal: Span::ZERO }.causes(&system, &[hop])
    }

    #[test]
    fn lateness_explains_only_what_it_can() {
        let (short, ms) = (Span::from_ns(1), Span::from_ms);
        // No bound is exceeded.
        assert!(causes(ms(15), short, 3).is_empty());
        // In 15 ms two more messages come, whatever check says then.
        let late = "the table thread began a receiving job";
        for taken in [4, 5] {
            let told = causes(ms(15), short, taken);
            assert!(told.len() == 1 && told[0].starts_with(late), "{taken}: {told:?}");
        }
        assert!(causes(ms(15), short, 50).is_empty());
        // A response far beyond the bound of a slightly late thread.
        assert!(causes(Span::from_us(1), Span::from_s(10), 3).is_empty());
        // With a second of lateness nothing is proven.
        let told = causes(Span::from_s(1), Span::from_s(10), 3);
        assert!(told.len() == 2 && told[0].starts_with(late) && told[1] == UNBOUNDED, "{told:?}");
    }

    #[test]
    fn all_that_check_does_not_know_of_is_told() {
        let counts = NodeCounts {
            send_late_ns: 2_000_000,
            send_longest_ns: 3_000_000,
            receive_longest_ns: 999_999,
            exhausted: 4,
            ..NodeCounts::default()
        };
        let told = Measured { node: NodeId(0), counts, steal: Span::from_ms(7) }.disturbances(&system());
        let starts = ["the table thread began a sending", "a sending job took", "4 receiving jobs", "the hypervisor"];
        assert_eq!(told.len(), starts.len(), "{told:?}");
        assert!(told.iter().zip(starts).all(|(told, start)| told.starts_with(start)), "{told:?}");
    }
}
