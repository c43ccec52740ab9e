//! Hops of flows in the logs of live nodes, beside the bounds of `check`.
//!
//! A time that two clocks give lies in an interval. It is above its bound if the whole interval is. If only a part is,
//! the clocks were not known well enough to tell.

use takt_analysis::CheckReport;
use takt_log::BackEnd;
use takt_log::stats::TaskStats;
use takt_model::flows::{self, Lowered};
use takt_model::{Flow, FlowId, Lateness, NodeId, Span, System, Task};

use crate::axis::short;
use crate::source::Source;

/// A hop of a flow in a live node's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveHop {
    /// The flow.
    pub flow: String,
    /// 0 is the first node.
    pub hop: u32,
    /// The task that carries it out.
    pub task: String,
    /// Its node.
    pub node: String,
    /// The longest response. `None` also if the clocks of the nodes before are not known.
    pub response: Option<Span>,
    /// The bound of the response.
    pub response_bound: Option<Span>,
    /// The largest error of the response, by the clocks.
    pub response_error: Span,
    /// k: the most messages that one receiving job took; `None` on the first hop.
    pub messages: Option<u64>,
    /// The bound of k.
    pub messages_bound: Option<u64>,
    /// The least and the greatest possible value of the longest delay of a message to this hop. `None` also if the
    /// clocks of the two nodes are not known.
    pub delay: Option<(Lateness, Lateness)>,
    /// The longest delay by the system file.
    pub delay_bound: Option<Span>,
    /// Which of these are above their bounds: "response", "messages", "delay".
    pub above: Vec<&'static str>,
    /// Which of these may be above their bounds: the clocks are not known well enough to tell.
    pub undecided: Vec<&'static str>,
    /// Why something is above its bound: disturbances in the logs that `check` does not assume.
    pub disturbances: Vec<String>,
}

/// The hops of a live run whose nodes gave a log. Empty for other logs.
#[must_use]
pub fn live_hops(system: &System, check: &CheckReport, source: &Source) -> Vec<LiveHop> {
    let is_run = matches!(source.back_end, BackEnd::Run | BackEnd::RunBestEffort);
    let Some(lowered) = flows::lower(system).filter(|_| is_run) else { return Vec::new() };
    let run = Run { system, lowered, check, source };
    (0..).map(FlowId).zip(&system.flows).flat_map(|(id, flow)| run.hops(id, flow)).collect()
}

impl LiveHop {
    /// The values above their bounds with the reasons, and the undecided values. `None` if all are within.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let mut told = Vec::new();
        if !self.above.is_empty() {
            let why = match &self.disturbances[..] {
                [] => "nothing that the logs show explains it".to_owned(),
                some => some.join("; "),
            };
            told.push(format!("{} above the bound: {why}", self.above.join(" and ")));
        }
        if !self.undecided.is_empty() {
            told.push(format!(
                "{}: the difference of the clocks is not known well enough to tell whether it is above the bound",
                self.undecided.join(" and ")
            ));
        }
        (!told.is_empty()).then(|| format!("{}: {}", self.task, told.join(". ")))
    }
}

/// Whether a value between `low` and `high` is above its bound: surely, and possibly.
fn exceeds(low: i128, high: i128, bound: Option<Span>) -> (bool, bool) {
    bound.map_or((false, false), |bound| (low > i128::from(bound.as_ns()), high > i128::from(bound.as_ns())))
}

struct Run<'a> {
    system: &'a System,
    lowered: Lowered,
    check: &'a CheckReport,
    source: &'a Source,
}

impl Run<'_> {
    fn stats(&self, task: &Task) -> Option<&TaskStats> {
        let node = self.node(task.node);
        self.source.stats.tasks.iter().find(|stats| stats.task == task.name && stats.node == node)
    }

    fn node(&self, node: NodeId) -> &str {
        self.system.nodes.get(node.index()).map_or("", |node| &node.name)
    }

    fn hops(&self, id: FlowId, flow: &Flow) -> Vec<LiveHop> {
        let mut found = Vec::new();
        let mut before: Option<NodeId> = None;
        // The error of the response; `None` from the first unknown clock on.
        let mut error = Some(Span::ZERO);
        let mut exceeded_before: Option<String> = None;
        for (hop, node) in (0..).zip(flow.hops()) {
            let from = before.replace(node);
            let clocks = from.map(|from| self.clocks(from, node));
            if let Some(clocks) = clocks {
                error = error.zip(clocks).map(|(error, clocks)| error.saturating_add(uncertainty(clocks)));
            }
            let Some(mut live_hop) = self.hop(id, flow, hop, (node, error)) else { continue };
            if let Some((from, clocks)) = from.zip(clocks) {
                self.add_network_delay(&mut live_hop, id, hop, (from, node), clocks);
            }
            live_hop.compare_with_bounds();
            if !live_hop.above.is_empty() {
                live_hop.disturbances = self.disturbances(&live_hop, from, node);
                live_hop.disturbances.extend(exceeded_before.iter().map(|task| format!("{task} was above its bound")));
            }
            exceeded_before = live_hop.above.contains(&"response").then(|| live_hop.task.clone());
            found.push(live_hop);
        }
        found
    }

    /// The least and the greatest time by which the clock of `to` was ahead of that of `from`.
    fn clocks(&self, from: NodeId, to: NodeId) -> Option<(Lateness, Lateness)> {
        if from == to {
            Some((Lateness::default(), Lateness::default()))
        } else {
            self.source.clocks.difference(from, to)
        }
    }

    /// `None` without a log of the node.
    fn hop(&self, id: FlowId, flow: &Flow, hop: u32, (node, error): (NodeId, Option<Span>)) -> Option<LiveHop> {
        let task = self.lowered.system.tasks.get(self.lowered.task_of(id, hop)?.index())?;
        let stats = self.stats(task).filter(|stats| stats.released > 0)?;
        let response = stats.response_ns.map(|response| Span::from_ns(response.max)).filter(|_| error.is_some());
        Some(LiveHop {
            flow: flow.name.clone(),
            hop,
            task: task.name.clone(),
            node: self.node(node).to_owned(),
            response,
            response_bound: self.check.hop_bound(&flow.name, hop),
            response_error: error.unwrap_or_default(),
            messages: None,
            messages_bound: self.check.messages_bound(&flow.name, hop),
            delay: None,
            delay_bound: None,
            above: Vec::new(),
            undecided: Vec::new(),
            disturbances: Vec::new(),
        })
    }

    /// Adds the messages to the hop, and their delays.
    fn add_network_delay(
        &self,
        live_hop: &mut LiveHop,
        flow: FlowId,
        hop: u32,
        (from, to): (NodeId, NodeId),
        clocks: Option<(Lateness, Lateness)>,
    ) {
        let Some(sender) = hop.checked_sub(1).and_then(|before| self.lowered.task_of(flow, before)) else { return };
        live_hop.messages = self.source.legs.most_taken(sender);
        live_hop.delay_bound = self.delay_bound(from, to);
        live_hop.delay = self.source.legs.delays(sender).zip(clocks).map(|(delays, (low, high))| {
            let less = |ahead: Lateness| Lateness::from_ns(delays.max.as_ns().saturating_sub(ahead.as_ns()));
            (less(high), less(low))
        });
    }

    fn delay_bound(&self, from: NodeId, to: NodeId) -> Option<Span> {
        let networks = self.system.networks_between(from, to);
        let delays = networks.iter().map(|id| Some(self.system.networks.get(id.index())?.delay.given()?.1));
        delays.collect::<Option<Vec<Span>>>()?.into_iter().max()
    }

    /// Disturbances of the node, of the node before and of messages between them that `check` does not assume.
    fn disturbances(&self, live_hop: &LiveHop, from: Option<NodeId>, node: NodeId) -> Vec<String> {
        let mut found = Vec::new();
        if let (true, Some((least, _)), Some(bound), Some(from)) =
            (live_hop.above.contains(&"delay"), live_hop.delay, live_hop.delay_bound, from)
        {
            let took = short(Span::from_ns(least.as_ns().unsigned_abs()));
            let (from, bound) = (self.node(from), short(bound));
            found.push(format!("a message from {from} took {took} or more, and the file says at most {bound}"));
        }
        // A late sending job delays this hop, and not the hop before.
        let before = from.filter(|from| *from != node);
        let sending = before.map(|before| (before, flows::Role::Send));
        let tables = sending.into_iter().chain([(node, flows::Role::Receive), (node, flows::Role::Send)]);
        found.extend(tables.flat_map(|(node, role)| self.table_disturbances(node, role)));
        found.extend(self.largest_overrun(node));
        let stolen = before.into_iter().chain([node]).map(|node| self.source.legs.stolen(node.0)).max();
        if let Some(stolen) = stolen.filter(|stolen| !stolen.is_zero()) {
            found.push(format!("the hypervisor took {} of CPU time", short(stolen)));
        }
        if self.source.stats.lost_events != Some(0) {
            found.push("events are missing in the logs".to_owned());
        }
        if self.source.back_end == BackEnd::RunBestEffort {
            found.push("the run was best effort, so other threads could delay its threads".to_owned());
        }
        found
    }

    /// Late and long jobs of a table task.
    fn table_disturbances(&self, node: NodeId, role: flows::Role) -> Vec<String> {
        let Some(spec) = self.system.nodes.get(node.index()) else { return Vec::new() };
        let (word, table, other) = match role {
            flows::Role::Send => ("sending", spec.send, spec.receive),
            _ => ("receiving", spec.receive, spec.send),
        };
        let Some(table) = table else { return Vec::new() };
        let tasks = self.lowered.system.tasks.iter().skip(self.lowered.first).zip(&self.lowered.roles);
        let mut of_node = tasks.filter(|(task, is)| **is == role && task.node == node);
        let Some(stats) = of_node.find_map(|(task, _)| self.stats(task)) else { return Vec::new() };
        let mut found = Vec::new();
        // A table job waits for a job of the other table task, and `check` knows it.
        let latency = spec.costs.map_or(Span::ZERO, |costs| costs.latency);
        let longest_wait = latency.saturating_add(other.map_or(Span::ZERO, |other| other.wcet));
        let late = stats.start_latency_ns.map(|late| Span::from_ns(late.max)).filter(|late| *late > longest_wait);
        found.extend(late.map(|late| format!("a {word} job of {} began {} late", stats.node, short(late))));
        let long = stats.execution_ns.map(|took| Span::from_ns(took.max)).filter(|took| *took > table.wcet);
        found.extend(long.map(|took| {
            format!("a {word} job of {} took {}, and its wcet is {}", stats.node, short(took), short(table.wcet))
        }));
        found
    }

    /// The largest overrun of the node's tasks, other than table tasks.
    fn largest_overrun(&self, node: NodeId) -> Option<String> {
        let tasks = self.lowered.system.tasks.iter().enumerate().filter(|(_, task)| task.node == node);
        let is_table = |at: usize| {
            let role = at.checked_sub(self.lowered.first).and_then(|at| self.lowered.roles.get(at));
            matches!(role, Some(flows::Role::Receive | flows::Role::Send))
        };
        let executions = tasks.filter(|(at, _)| !is_table(*at)).filter_map(|(_, task)| {
            let took = Span::from_ns(self.stats(task)?.execution_ns?.max);
            Some((took.checked_sub(task.wcet).filter(|more| !more.is_zero())?, took, task))
        });
        let (_, took, task) = executions.max_by_key(|(more, ..)| *more)?;
        Some(format!("a job of {} took {}, and its wcet is {}", task.name, short(took), short(task.wcet)))
    }
}

/// The length of the interval in which two clocks' difference lies.
fn uncertainty((low, high): (Lateness, Lateness)) -> Span {
    Span::from_ns(high.as_ns().abs_diff(low.as_ns()))
}

impl LiveHop {
    fn compare_with_bounds(&mut self) {
        let response = self.response.map(|response| {
            let (response, error) = (i128::from(response.as_ns()), i128::from(self.response_error.as_ns()));
            exceeds(response - error, response + error, self.response_bound)
        });
        let messages = self.messages.zip(self.messages_bound).map(|(messages, bound)| messages > bound);
        let delay =
            self.delay.map(|(low, high)| exceeds(i128::from(low.as_ns()), i128::from(high.as_ns()), self.delay_bound));
        let all = [("response", response), ("messages", messages.map(|is| (is, is))), ("delay", delay)];
        for (what, (surely, possibly)) in all.into_iter().filter_map(|(what, found)| Some((what, found?))) {
            if surely {
                self.above.push(what);
            } else if possibly {
                self.undecided.push(what);
            }
        }
    }
}
