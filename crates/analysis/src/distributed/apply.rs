//! `partial-edf` on a System: what each node and flow is told, in words and figures.

use serde_json::{Map, Value, json};
use takt_model::flows::{hop_deadlines, neighbours};
use takt_model::{
    Auto, Costs, Discipline, Drift, Filter, Flow, MessageArrivals, NetworkId, NodeId, NodeSpec, Preemption,
    Probability, Span, System, TableTask, Task, TaskId,
};

use super::below::{EdfBelowTable, Supply};
use super::exchange::SyncWay;
use super::{
    AnalysedNode, FlowBound, Hop, HopBound, Local, Net, Refusal, Route, Sync, SystemBounds, Transport, analyse_by,
    interrupts, paper, tightest,
};
use crate::apply::of_parts;
use crate::catalogue::TestId;
use crate::edf::qpa::Tick;
use crate::exact::{percent, sum_ppm};
use crate::report::{TaskReport, TestReport};
use crate::scope::{merge_overheads, ns, overheads};
use crate::verdict::{Answer, Verdict};

/// Deadlines of one batch that are shown.
const SHOWN_MAX: usize = 1_000;

/// A System's nodes with tables and flows.
pub(crate) struct Distributed {
    /// The analysed net. Nodes that the test does not cover have no jobs in it.
    pub(crate) net: Net,
    /// By node: why it is not covered.
    refused: Vec<Option<String>>,
    /// By node: whether it has a table or a flow.
    has_messages: Vec<bool>,
    /// By flow: why it is not covered.
    uncovered: Vec<Option<String>>,
    /// By flow: its index in `net`, if it is covered.
    flow_index: Vec<Option<usize>>,
    found: SystemBounds,
    /// By node: whether it passes, with all nodes that flows connect it to.
    proven: Vec<bool>,
}

impl Distributed {
    /// `None` if no node has a table or a flow. The figure `margin_ns` is computed only if `margins`.
    pub(crate) fn new(system: &System, margins: bool) -> Option<Self> {
        Distributed::by(system, margins, &mut |_, below| below.analyse())
    }

    /// [`Distributed::new`] with `supply` in place of [`EdfBelowTable::analyse`]. It gets the index of the node.
    pub(crate) fn by(
        system: &System,
        margins: bool,
        supply: &mut dyn FnMut(usize, &EdfBelowTable) -> Supply,
    ) -> Option<Self> {
        let has_messages: Vec<bool> =
            (0..system.nodes.len()).map(|i| handles_messages(system, NodeId(i as u32))).collect();
        if !has_messages.contains(&true) {
            return None;
        }
        let refused: Vec<Option<String>> = (0..system.nodes.len())
            .map(|i| has_messages[i].then(|| refusal(system, NodeId(i as u32))).flatten())
            .collect();
        let mut net = nodes(system, &refused);
        let (mut uncovered, mut flow_index) = (Vec::new(), Vec::new());
        for flow in &system.flows {
            match route(system, &refused, flow) {
                Ok(route) => {
                    flow_index.push(Some(net.flows.len()));
                    net.flows.push(route);
                    uncovered.push(None);
                }
                Err(why) => {
                    flow_index.push(None);
                    uncovered.push(Some(why));
                }
            }
        }
        let found = analyse_by(&net, margins, supply);
        let mut distributed =
            Distributed { net, refused, has_messages, uncovered, flow_index, found, proven: Vec::new() };
        distributed.proven = distributed.prove(system);
        Some(distributed)
    }

    /// The first flow that is not covered, and why.
    pub(crate) fn first_uncovered(&self) -> Option<(usize, String)> {
        self.uncovered.iter().enumerate().find_map(|(flow, why)| Some((flow, why.clone()?)))
    }

    /// The longest time from the arrival of a node's job of synchronisation until its requests have left, in ns of
    /// true time. `None` where the node is not proven.
    pub(crate) fn sync_request(&self, node: usize) -> Option<u64> {
        self.proven[node].then(|| self.net.sync_request(node, &self.found.flows)).flatten()
    }

    /// The longest time from the arrival of a job of synchronisation until the answer of this node has left, in ns of
    /// true time. The request is in the buffer of the node `asked` after that arrival. `None` where the node is not
    /// proven.
    pub(crate) fn sync_answer(&self, node: usize, asked: u64) -> Option<u64> {
        let leftover = self.found.nodes[node].leftover;
        self.proven[node].then(|| self.net.sync_answer(node, &self.found.flows, leftover, asked)).flatten()
    }

    pub(crate) fn covers(&self, node: NodeId) -> bool {
        self.has_messages[node.index()] && self.refused[node.index()].is_none()
    }

    /// The largest set of nodes that pass by themselves and whose flows are bounded and visit only nodes of the set.
    fn prove(&self, system: &System) -> Vec<bool> {
        let met = |i: usize| matches!(self.found.nodes[i].supply, Supply::Met { .. });
        let mut proven: Vec<bool> = (0..system.nodes.len()).map(|i| self.refused[i].is_none() && met(i)).collect();
        loop {
            let mut changed = false;
            for (flow, place) in system.flows.iter().zip(&self.flow_index) {
                let bounded = place.is_some_and(|at| matches!(self.found.flows[at], FlowBound::Bounded(_)));
                if bounded && flow.hops().all(|node| proven[node.index()]) {
                    continue;
                }
                for node in flow.hops() {
                    changed |= std::mem::replace(&mut proven[node.index()], false);
                }
            }
            if !changed {
                return proven;
            }
        }
    }

    pub(crate) fn node(&self, system: &System, node: NodeId) -> TestReport {
        let i = node.index();
        let (spec, bound) = (&system.nodes[i], self.found.nodes[i]);
        let mut figures = Map::new();
        figures.insert("margin_ns".to_owned(), json!(bound.margin));
        figures.insert("utilization_ppm".to_owned(), json!(sum_ppm(self.loads(i))));
        if spec.receive.is_some() {
            figures.insert("waiting".to_owned(), json!(bound.waiting));
            figures.insert("leftover".to_owned(), json!(bound.leftover));
        }
        let verdict = match bound.supply {
            Supply::Met { .. } if self.proven[i] => match bound.table_late {
                None => Verdict::Schedulable { bounds: Vec::new() },
                Some((response, deadline)) => {
                    let (response, deadline) = (ns(response), ns(deadline));
                    let why = if spec.arrivals == MessageArrivals::Table {
                        format!(
                            "a job of its receiving or sending task may need {response}, and is due a period of \
                             {deadline} after its release; tasks and flows are in time"
                        )
                    } else {
                        format!(
                            "an interrupt may need {response}, and is due {deadline} after its message, as flows \
                             come at the soonest; tasks and flows are in time"
                        )
                    };
                    Verdict::NotProven { why }
                }
            },
            Supply::Met { .. } => Verdict::NotProven { why: self.why_unproven(system, node) },
            Supply::Exceeded { t, demand } => {
                figures.insert("interval_ns".to_owned(), json!(t));
                figures.insert("demand_ns".to_owned(), json!(demand));
                let (t, demand) = (ns(t), ns(demand));
                let why = format!("within {t} its jobs may demand {demand}, and the table leaves less than that");
                Verdict::NotProven { why }
            }
            Supply::Overload => self.overload(i),
            Supply::Undecided => Verdict::NotProven {
                why: "undecided: a limit was reached, times exceed 64-bit nanoseconds, or lateness leaves \
                     nothing of a deadline"
                    .to_owned(),
            },
        };
        if let Supply::Met { horizon } = bound.supply {
            figures.insert("horizon_ns".to_owned(), json!(horizon));
        }
        figures.insert("flows".to_owned(), self.hop_figures(system, node));
        let answer = if self.proven[i] { Answer::Yes } else { Answer::Unknown };
        let tasks = system.tasks_of(node).map(|(id, task)| TaskReport {
            id,
            task: task.name.clone(),
            verdict: answer,
            wcrt: None,
            deadline: task.deadline,
        });
        TestReport { test: TestId::PartialEdf, scope: spec.name.clone(), verdict, tasks: tasks.collect(), figures }
    }

    /// The published test's report on a node. It decides nothing.
    pub(crate) fn paper(&self, system: &System, node: NodeId) -> TestReport {
        let found = paper::node(&self.net, node.index());
        if system.nodes[node.index()].arrivals != MessageArrivals::Table {
            let precondition = "needs a node with a receiving and a sending task".to_owned();
            return TestReport {
                test: TestId::PartialEdfPaper,
                scope: system.nodes[node.index()].name.clone(),
                verdict: Verdict::NotApplicable { precondition },
                tasks: Vec::new(),
                figures: Map::new(),
            };
        }
        let published = "published, not sound, so it decides nothing";
        let why = match (found.passes, found.density_ppm) {
            (Some(true), _) => format!("{published}: its equations hold"),
            (Some(false), Some(density)) => format!("{published}: its density is {}", percent(density)),
            _ => format!("{published}: some message is received after its deadline, or not at all"),
        };
        let covered = system.flows.iter().zip(&self.flow_index).filter(|(_, index)| index.is_some());
        let covered: Vec<&Flow> = covered.map(|(flow, _)| flow).collect();
        let hop = |hop: &paper::PaperHop| {
            // Fits 64 bits but for deadlines of centuries.
            let windows: Vec<Option<i64>> =
                hop.windows.iter().take(SHOWN_MAX).map(|w| i64::try_from(*w).ok()).collect();
            json!({ "flow": covered[hop.flow].name, "hop": hop.hop, "messages": hop.messages,
            "hop_deadlines_ns": windows })
        };
        let mut figures = Map::new();
        figures.insert("density_ppm".to_owned(), json!(found.density_ppm));
        figures.insert("flows".to_owned(), found.hops.iter().map(hop).collect());
        TestReport {
            test: TestId::PartialEdfPaper,
            scope: system.nodes[node.index()].name.clone(),
            verdict: Verdict::NotProven { why },
            tasks: Vec::new(),
            figures,
        }
    }

    pub(crate) fn flows(&self, system: &System) -> Vec<TestReport> {
        system.flows.iter().enumerate().map(|(i, flow)| self.flow(system, i, flow)).collect()
    }

    fn flow(&self, system: &System, i: usize, flow: &Flow) -> TestReport {
        let mut figures = Map::new();
        let bound = self.flow_index[i].map(|at| &self.found.flows[at]);
        let verdict = match (bound, &self.uncovered[i]) {
            (_, Some(why)) => Verdict::NotProven { why: why.clone() },
            (Some(FlowBound::Open(refusal)), _) => Verdict::NotProven { why: refusal_text(system, flow, refusal) },
            (Some(FlowBound::Bounded(bounds)), _) => {
                figures.insert("end_to_end_ns".to_owned(), json!(bounds.last().map(|hop| hop.due.1)));
                figures.insert("binding".to_owned(), self.tightest_hop(system, flow, i, bounds));
                let lossy = flow.legs().find(|(from, to)| lossy(system, *from, *to));
                let unproven = flow.hops().find(|node| !self.proven[node.index()]);
                match (unproven, lossy) {
                    (Some(node), _) => {
                        let name = &system.nodes[node.index()].name;
                        Verdict::NotProven { why: format!("rests on node \"{name}\", which is not proven") }
                    }
                    (None, Some((from, to))) => {
                        let [from, to] = [from, to].map(|node| &system.nodes[node.index()].name);
                        let why = format!(
                            "the network from \"{from}\" to \"{to}\" may lose messages; what arrives is in time"
                        );
                        Verdict::NotProven { why }
                    }
                    (None, None) => Verdict::Schedulable { bounds: Vec::new() },
                }
            }
            (None, None) => Verdict::NotProven { why: "not analysed".to_owned() },
        };
        figures.insert("deadline_ns".to_owned(), json!(flow.deadline.as_ns()));
        TestReport {
            test: TestId::PartialEdf,
            scope: format!("flow/{}", flow.name),
            verdict,
            tasks: Vec::new(),
            figures,
        }
    }

    /// The hop of a flow with the least time between the latest release and the earliest deadline
    /// of its job.
    fn tightest_hop(&self, system: &System, flow: &Flow, i: usize, bounds: &[HopBound]) -> Value {
        let Some(route) = self.flow_index[i].map(|at| &self.net.flows[at]) else { return Value::Null };
        let pairs = route.hops.iter().zip(bounds).enumerate();
        let tightest = pairs.min_by_key(|(_, (hop, bound))| bound.window.saturating_sub(hop.c));
        let Some((h, (hop, bound))) = tightest else { return Value::Null };
        let what = format!(
            "the job of \"{}\" on \"{}\" (hop {h}) alone, from its release, up to {} after the flow's arrival, \
             to its deadline there",
            flow.name,
            system.nodes[hop.node].name,
            ns(bound.release)
        );
        of_parts(what, Some(bound.window), hop.c, bound.window, &[(flow.name.clone(), Some(1), hop.c)])
    }

    /// Adds the deadline with the least time to spare to a node's report, with the work due by then
    /// and the table's time.
    pub(crate) fn explain(&self, system: &System, node: NodeId, report: &mut TestReport) {
        let i = node.index();
        let exceeded = match self.found.nodes[i].supply {
            Supply::Exceeded { t, .. } => Some(t),
            Supply::Met { .. } => None,
            _ => return,
        };
        let Some(tightest) = tightest(&self.net, i, &self.found.flows, exceeded) else { return };
        let mut names: Vec<String> = system.tasks_of(node).map(|(_, task)| task.name.clone()).collect();
        for (flow, place) in system.flows.iter().zip(&self.flow_index) {
            let Some(at) = *place else { continue };
            if matches!(self.found.flows[at], FlowBound::Bounded(_)) {
                let here = self.net.flows[at].hops.iter().enumerate().filter(|(_, hop)| hop.node == i);
                names.extend(here.map(|(h, _)| format!("{} (hop {h})", flow.name)));
            }
        }
        names.push("time synchronisation".to_owned());
        let mut parts: Vec<(String, Option<u64>, u64)> =
            names.into_iter().zip(&tightest.jobs).map(|(name, (count, work))| (name, Some(*count), *work)).collect();
        let spec = &system.nodes[i];
        let mut table: Vec<&str> = Vec::new();
        table.extend(spec.receive.iter().map(|_| "receiving"));
        table.extend(spec.send.iter().map(|_| "sending"));
        let station = &self.net.nodes[i];
        table.extend(station.tick.map(|_| "ticks and interrupts"));
        table.extend(station.ordinary.map(|_| "ordinary threads"));
        let more = tightest.table.len().saturating_sub(table.len());
        table.extend(std::iter::repeat_n("interrupts", more));
        let table = table.into_iter().zip(&tightest.table);
        parts.extend(table.map(|(name, (count, work))| (name.to_owned(), Some(*count), *work)));
        parts.push(("blocking".to_owned(), None, tightest.blocking));
        let what = format!(
            "demand due within {} of a common release on \"{}\", and the table's work before it is done",
            ns(tightest.t),
            spec.name
        );
        let value = of_parts(what, Some(tightest.t), tightest.done, tightest.t, &parts);
        report.figures.insert("binding".to_owned(), value);
    }

    /// Hops on a node, as figures.
    fn hop_figures(&self, system: &System, node: NodeId) -> Value {
        let mut hops = Vec::new();
        for (flow, place) in system.flows.iter().zip(&self.flow_index) {
            let Some(at) = *place else { continue };
            for (h, hop) in self.net.flows[at].hops.iter().enumerate().filter(|(_, hop)| hop.node == node.index()) {
                let bound = match &self.found.flows[at] {
                    FlowBound::Bounded(bounds) => bounds.get(h),
                    FlowBound::Open(_) => None,
                };
                hops.push(json!({
                    "flow": flow.name, "hop": h, "deadline_ns": hop.d,
                    "messages": bound.and_then(|bound| bound.messages),
                    "hop_deadlines_ns": bound.map_or(vec![], |bound| vec![bound.window]),
                    "release_ns": bound.map(|bound| bound.release),
                    "due_ns": bound.map(|bound| bound.due.1),
                }));
            }
        }
        Value::Array(hops)
    }

    /// (C, T) of the table, the local tasks and the hops of all covered flows.
    fn loads(&self, node: usize) -> impl Iterator<Item = (u64, u64)> + Clone {
        let hops = self
            .net
            .flows
            .iter()
            .flat_map(move |flow| flow.hops.iter().filter(move |hop| hop.node == node).map(|hop| (hop.c, flow.t)));
        self.local_loads(node).chain(hops).chain(interrupts::loads(&self.net, node))
    }

    /// (C, T) of the table, of ticks and ordinary threads, of time synchronisation and of the local tasks.
    fn local_loads(&self, node: usize) -> impl Iterator<Item = (u64, u64)> + Clone {
        let station = &self.net.nodes[node];
        let table = station.receive.into_iter().chain(station.send).map(|task| (task.c, task.t));
        let taken = station.tick.into_iter().chain(station.ordinary).map(|tick| (tick.c, tick.t));
        let sync = self.net.sync.filter(|_| self.net.neighbours(node) > 0).map(|sync| (sync.c, sync.t));
        table.chain(taken).chain(sync).chain(station.locals.iter().map(|local| (local.c, local.t)))
    }

    fn overload(&self, node: usize) -> Verdict {
        let load = sum_ppm(self.loads(node)).map_or("more".to_owned(), percent);
        Verdict::NotProven {
            why: format!("the table, the tasks and the flows, with what costs them, need {load} of the CPU"),
        }
    }

    /// Why a node whose own jobs fit is not proven.
    fn why_unproven(&self, system: &System, node: NodeId) -> String {
        let visits = |flow: &&Flow| flow.hops().any(|hop| hop == node);
        let unbounded = |flow: &Flow| {
            let at = system.flows.iter().position(|other| other.name == flow.name)?;
            let bounded = self.flow_index[at].is_some_and(|at| matches!(self.found.flows[at], FlowBound::Bounded(_)));
            (!bounded).then(|| format!("rests on flow \"{}\", which has no bound", flow.name))
        };
        if let Some(why) = system.flows.iter().filter(visits).find_map(unbounded) {
            return why;
        }
        let other = system
            .flows
            .iter()
            .filter(visits)
            .flat_map(Flow::hops)
            .find(|hop| *hop != node && !self.proven[hop.index()]);
        let name = other.map_or("another", |hop| system.nodes[hop.index()].name.as_str());
        format!("rests on node \"{name}\", which is not proven")
    }

    /// Why the test says nothing of a node that has a table or a flow.
    pub(crate) fn refused(&self, node: NodeId) -> Option<&str> {
        self.refused[node.index()].as_deref()
    }
}

/// Whether a node has a table or a flow.
fn handles_messages(system: &System, node: NodeId) -> bool {
    let spec = &system.nodes[node.index()];
    spec.receive.is_some() || spec.send.is_some() || system.flows.iter().any(|flow| flow.path.contains(&node))
}

/// Whether a node's jobs run to completion.
///
/// # Errors
/// Why the test does not cover the strategy of the node.
fn runs_to_completion(system: &System, spec: &NodeSpec) -> Result<bool, String> {
    let strategy = system.strategy(spec.strategy);
    match strategy.levels.as_slice() {
        [level] if level.discipline == Discipline::Deadline && matches!(level.filter, Filter::Rest) => {
            Ok(!level.preemptive)
        }
        _ => Err(format!(
            "partial-edf needs one level that goes by deadline and takes all; the strategy is \"{}\"",
            strategy.name
        )),
    }
}

/// Why the test does not cover a node.
fn refusal(system: &System, node: NodeId) -> Option<String> {
    let spec = &system.nodes[node.index()];
    if spec.arrivals == MessageArrivals::Cyclic {
        return Some("partial-edf does not cover arrivals = \"cyclic\": jobs wait for a slot of the frame".to_owned());
    }
    if spec.cpus != 1 {
        return Some(format!("partial-edf needs one CPU, here are {}", spec.cpus));
    }
    if let Err(why) = runs_to_completion(system, spec) {
        return Some(why);
    }
    if system.modes.iter().any(|mode| mode.node == node && mode.strategy != spec.strategy) {
        return Some("partial-edf needs a node that keeps its strategy".to_owned());
    }
    if let Some(component) = system.components.iter().find(|component| component.node == node) {
        return Some(format!("partial-edf needs a node without components: \"{}\"", component.name));
    }
    if !system.clock.offset.is_zero() && system.clock.sync.is_none() {
        return Some(
            "partial-edf needs clock.sync if clocks begin apart (clock.offset): nobody measures them".to_owned(),
        );
    }
    if let Some(stepping) = system.nodes.iter().find(|node| !node.clock_steps.is_empty()) {
        return Some(format!(
            "partial-edf does not cover clocks that step (clock-step of node \"{}\"): messages are dropped or have \
             wrong deadlines after a step",
            stepping.name
        ));
    }
    if spec.arrivals != MessageArrivals::Table && system.clock.sync.is_some() {
        return Some("partial-edf does not cover time synchronisation with arrivals = \"interrupt\"".to_owned());
    }
    if let Some((_, task)) = system.tasks_of(node).find(|(_, task)| task.preemption != Preemption::Anywhere) {
        return Some(format!("partial-edf needs tasks that may be preempted anywhere: \"{}\" has sections", task.name));
    }
    let chained = system.tasks_of(node).find(|(_, task)| !task.after.is_empty());
    chained.map(|(_, task)| format!("partial-edf needs tasks without predecessors: \"{}\"", task.name))
}

/// The index of each flow of the System in the net.
pub(super) fn flow_indices(distributed: &Distributed) -> Vec<Option<usize>> {
    distributed.flow_index.clone()
}

/// Costs of the switches and the release of a job on a node.
pub(super) fn fixed_cost(spec: &NodeSpec) -> u64 {
    charged(spec, Span::ZERO)
}

/// C in ns with the costs of a job's switches and release: its own start, and the resumption that it
/// causes.
fn charged(spec: &NodeSpec, c: Span) -> u64 {
    let Some(costs) = spec.costs else { return c.as_ns() };
    let switches = costs.switch.as_ns().saturating_mul(2);
    c.as_ns().saturating_add(costs.release.as_ns()).saturating_add(switches)
}

/// The time of ordinary threads.
fn ordinary(costs: Costs) -> Tick {
    Tick { c: costs.ordinary.as_ns(), t: costs.ordinary_period.as_ns().max(1) }
}

/// The nodes, without flows.
fn nodes(system: &System, refused: &[Option<String>]) -> Net {
    let station = |(i, spec): (usize, &NodeSpec)| {
        if refused[i].is_some() {
            return AnalysedNode::default();
        }
        let transport = |task: TableTask| Transport {
            t: task.period.as_ns(),
            c: charged(spec, task.wcet),
            most: task.cost.map(|cost| task.wcet.as_ns() / cost.as_ns().max(1)),
        };
        let local = |(id, task): (TaskId, &Task)| Local {
            c: charged(spec, task.wcet),
            t: task.period.as_ns(),
            d: task.deadline.as_ns(),
            jitter: system.release_jitter(id).as_ns(),
            blocked: task.blocking.as_ns(),
        };
        AnalysedNode {
            receive: spec.receive.map(transport),
            send: spec.send.map(transport),
            interrupt: match spec.arrivals {
                MessageArrivals::Interrupt { cost } => Some(charged(spec, cost)),
                MessageArrivals::Table | MessageArrivals::Cyclic => None,
            },
            tick: overheads(spec.costs).reduce(merge_overheads),
            ordinary: spec.costs.filter(|costs| !costs.ordinary.is_zero()).map(ordinary),
            latency: spec.costs.map_or(0, |costs| costs.latency.as_ns()),
            locals: system.tasks_of(NodeId(i as u32)).map(local).collect(),
            to_completion: runs_to_completion(system, spec).unwrap_or(false),
        }
    };
    // Every node's job of synchronisation is charged what costs most.
    let sync = system.clock.sync.map(|sync| {
        let c = system.nodes.iter().map(|spec| charged(spec, sync.wcet)).max().unwrap_or_default();
        Sync { t: sync.period.as_ns(), c }
    });
    let nodes = system.nodes.iter().enumerate().map(station).collect();
    let (drift, error) = (Drift(system.clock.drift_ppm), system.clock.error.as_ns());
    Net { nodes, flows: Vec::new(), drift, error, sync, sync_ways: sync_ways(system) }
}

/// The ways of messages of `clock.sync`. Without a network they take the link of their sender, if it has one.
fn sync_ways(system: &System) -> Vec<SyncWay> {
    if system.clock.sync.is_none() {
        return Vec::new();
    }
    let goes = |(from, to): &(NodeId, NodeId)| {
        system.nodes[from.index()].link.is_some() || !system.networks_between(*from, *to).is_empty()
    };
    let way = |(from, to): (NodeId, NodeId)| {
        let delay = link(system, from, to).ok();
        SyncWay { from: from.index(), to: to.index(), delay }
    };
    neighbours(system).into_iter().filter(goes).map(way).collect()
}

/// Least and most delay between two nodes: the hull of what the networks between them say. The
/// error says why there is none.
fn link(system: &System, from: NodeId, to: NodeId) -> Result<(u64, u64), String> {
    let name = |node: NodeId| &system.nodes[node.index()].name;
    let (mut least, mut most) = (u64::MAX, 0);
    for network in system.networks_between(from, to) {
        let Auto::Value((min, max)) = system.networks[network.index()].delay else {
            return Err(format!(
                "the delay from \"{}\" to \"{}\" is \"auto\"; takt size --network-delay finds it",
                name(from),
                name(to)
            ));
        };
        (least, most) = (least.min(min.as_ns()), most.max(max.as_ns()));
    }
    if least > most {
        let (from, to) = (name(from), name(to));
        return Err(format!(
            "no [[network]] says how long a message takes from \"{from}\" to \"{to}\"; \
             takt size --network-delay finds it"
        ));
    }
    Ok((least, most))
}

/// Whether messages between two nodes may be lost.
fn lossy(system: &System, from: NodeId, to: NodeId) -> bool {
    let loses = |network: &NetworkId| system.networks[network.index()].loss != Probability::NONE;
    system.networks_between(from, to).iter().any(loses)
}

/// A flow as the analysis takes it.
fn route(system: &System, refused: &[Option<String>], flow: &Flow) -> Result<Route, String> {
    if let Some(node) = flow.hops().find(|node| refused[node.index()].is_some()) {
        return Err(format!("visits node \"{}\", which is not covered", system.nodes[node.index()].name));
    }
    let mut hops: Vec<Hop> = Vec::new();
    let mut before: Option<NodeId> = None;
    for node in flow.hops() {
        let spec = &system.nodes[node.index()];
        let wcet = if before.is_some() { flow.hop_wcet } else { flow.wcet };
        let (delay_min, delay_max) = match before {
            None => (0, 0),
            Some(from) => link(system, from, node)?,
        };
        hops.push(Hop { node: node.index(), c: charged(spec, wcet), d: 0, delay_min, delay_max });
        before = Some(node);
    }
    for (hop, share) in hops.iter_mut().zip(hop_deadlines(flow, system.clock)) {
        hop.d = share.as_ns();
    }
    Ok(Route { t: flow.period.as_ns(), gap: flow.send_gap.as_ns(), d: flow.deadline.as_ns(), hops })
}

/// Why a flow is not bounded.
fn refusal_text(system: &System, flow: &Flow, refusal: &Refusal) -> String {
    let node = |hop: usize| flow.hops().nth(hop).map_or("?", |node| system.nodes[node.index()].name.as_str());
    match *refusal {
        Refusal::NoSend { hop } => format!("node \"{}\" sends its messages and has no sending task", node(hop)),
        Refusal::NoReceive { hop } => format!("node \"{}\" receives its messages and has no receiving task", node(hop)),
        Refusal::Table { hop } => format!("the table of node \"{}\" needs more than its CPU", node(hop)),
        Refusal::Gap { hop, gap, period } => format!(
            "its messages pile up on node \"{}\": they come every {}, and may leave every {} (send-gap in \
             periods of the sending task{})",
            node(hop),
            ns(period),
            ns(gap),
            if system.clock.drift_ppm > 0 { ", with drift" } else { "" }
        ),
        Refusal::Send { hop, most, wait } => {
            format!("the sending task of node \"{}\" handles {most} messages a job, and {wait} may wait", node(hop))
        }
        Refusal::Leftover { hop } => format!("node \"{}\" receives fewer messages than may arrive", node(hop)),
        Refusal::Exchange { from, to } => {
            let [from, to] = [from, to].map(|node| &system.nodes[node].name);
            format!(
                "exchanges of clocks (clock.sync) have no bound from \"{from}\" to \"{to}\": write the delay of that \
                 [[network]], and let the sending task of \"{from}\" come at least as often as clock.sync, with room \
                 for every message"
            )
        }
        Refusal::Window { hop, window } if window <= 0 => format!(
            "on node \"{}\" (hop {hop}) it may arrive {} after its deadline there",
            node(hop),
            ns(u64::try_from(-window).unwrap_or(u64::MAX))
        ),
        Refusal::Window { hop, window } => format!(
            "on node \"{}\" (hop {hop}) {} may be left for its job, which needs more",
            node(hop),
            ns(u64::try_from(window).unwrap_or(u64::MAX))
        ),
        Refusal::End { due, deadline } => {
            format!("its last hop is due up to {} after its arrival; its deadline is {}", ns(due), ns(deadline))
        }
        Refusal::Limit => "undecided: a limit was reached, or times exceed 64-bit nanoseconds".to_owned(),
    }
}
