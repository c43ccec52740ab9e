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

/// A hop on this node.
struct Hop {
    task: String,
    flow: String,
    hop: u32,
    deadline: Span,
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

    /// Whether it exceeds one of these bounds.
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

/// How the hops of a node did.
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
        let mut hops = Vec::new();
        for (at, flow) in system.flows.iter().enumerate() {
            for (hop, _) in (0..).zip(flow.hops()).filter(|(_, node)| *node == summary.node) {
                let Some(id) = lowered.task_of(FlowId(at as u32), hop) else { continue };
                let task = &lowered.system.tasks[id.index()];
                let of = stats.tasks.iter().find(|stats| stats.task == task.name);
                hops.push(Hop {
                    task: task.name.clone(),
                    flow: flow.name.clone(),
                    hop,
                    deadline: task.deadline,
                    bound: report.hop_bound(&flow.name, hop),
                    max: of.and_then(|stats| stats.response_ns).map(|response| Span::from_ns(response.max)),
                    missed: of.and_then(|stats| stats.missed),
                    taken: live.taken.iter().find(|(task, _)| *task == id).map(|(_, most)| *most),
                    taken_bound: report.messages_bound(&flow.name, hop),
                });
            }
        }
        let disturbances = if hops.iter().any(Hop::exceeds) && explains(system, summary, live.counts, &hops) {
            disturbances(system, summary, live.counts)
        } else {
            Vec::new()
        };
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
        let NodeCounts { sent, unsent, late, arrived, malformed, foreign, forged, replayed, overflowed, .. } =
            self.counts;
        let mut text = format!("\n{}", table.render(""));
        let _ = write!(text, "messages: {sent} sent, {arrived} arrived");
        for (count, what) in [
            (unsent, "not sent"),
            (late, "dropped because they were late"),
            (malformed, "malformed datagrams dropped"),
            (foreign, "of other runs or systems dropped"),
            (forged, "forged datagrams dropped"),
            (replayed, "replayed datagrams dropped"),
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
            "overflowed": c.overflowed,
            "exhausted": c.exhausted,
            "receive_late_max_ns": c.receive_late_ns,
            "send_late_max_ns": c.send_late_ns,
            "receive_max_ns": c.receive_longest_ns,
            "send_max_ns": c.send_longest_ns,
            "disturbances": self.disturbances,
            "clocks": self.differences.iter().map(clock).collect::<Vec<_>>(),
            "clocks_unknown": self.untimed.iter().map(untimed).collect::<Vec<_>>(),
            "clock_sources": self.sources.as_deref().map(clock_sources::json),
        })
    }
}

/// Whether the measured lateness explains the exceeded bounds: `takt check` with that lateness has
/// bounds that are kept.
fn explains(system: &System, summary: &RunSummary, counts: NodeCounts, hops: &[Hop]) -> bool {
    let mut measured = system.clone();
    let Some(node) = measured.nodes.get_mut(summary.node.index()) else { return false };
    let over = |task: Option<TableTask>, longest: u64| {
        task.map_or(0, |task| Span::from_ns(longest).saturating_sub(task.wcet).as_ns())
    };
    let late = counts.receive_late_ns.max(counts.send_late_ns);
    let over = over(node.receive, counts.receive_longest_ns).max(over(node.send, counts.send_longest_ns));
    let latency = Span::from_ns(late.saturating_add(over)).saturating_add(summary.steal.unwrap_or_default());
    let costs = node.costs.get_or_insert(Costs::NONE);
    costs.latency = costs.latency.max(latency);
    let report = takt_analysis::check(&measured, &CheckOptions::default());
    let mut exceeding = hops.iter().filter(|hop| hop.exceeds());
    // Without a bound for such lateness, none is exceeded.
    exceeding.all(|hop| !hop.is_above(report.hop_bound(&hop.flow, hop.hop), report.messages_bound(&hop.flow, hop.hop)))
}

/// What the bounds of `check` do not know of.
fn disturbances(system: &System, summary: &RunSummary, counts: NodeCounts) -> Vec<String> {
    let Some(spec) = system.nodes.get(summary.node.index()) else { return Vec::new() };
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
    if let Some(steal) = summary.steal.filter(|steal| !steal.is_zero()) {
        found.push(format!("the hypervisor took {steal} of CPU time"));
    }
    found
}
