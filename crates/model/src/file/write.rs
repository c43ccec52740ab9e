//! The canonical text of a System: one form for one value, defaults left out, keys in the order of the grammar.

use std::fmt::Write as _;

use super::grammar::{FITS, LATES, PACKETS_LATE, SPLITS};
use crate::strategy::{Builtin, Discipline, Filter, Late, Level, Split, Strategy};
use crate::system::{
    ActualDelay, Arrival, Auto, Background, Bucket, Clock, ClockStep, Component, Costs, Criticality, Exec, Fit, Flow,
    Link, MessageArrivals, Mode, Network, NodeId, NodeSpec, Placement, Port, Preemption, ServerSwitch, StrategyRef,
    System, TableTask, Task, Trace,
};
use crate::time::Span;
use crate::units::{Bytes, Probability};

/// Writes `system` as the canonical text of a System file.
///
/// The same System always gives the same bytes, and for every System that [`validate`](super::validate) accepts,
/// [`parse`](super::parse) gives it back (values of loaded traces aside: a file holds their paths).
#[must_use]
pub fn write(system: &System) -> String {
    let mut w = Writer { system, out: String::new() };
    w.out.push_str("takt = 1\n");
    w.text("name", &system.name);
    if !system.notes.is_empty() {
        let notes: Vec<String> = system.notes.iter().map(|note| quote(note)).collect();
        w.key("notes", format_args!("[\n    {},\n]", notes.join(",\n    ")));
    }
    w.clock(&system.clock);
    let default = NodeSpec::new("local", 1, StrategyRef::Builtin(Builtin::Edf));
    let only_default = matches!(system.nodes.as_slice(), [node] if *node == default);
    if !only_default {
        system.nodes.iter().for_each(|node| w.node(node));
    }
    for strategy in &system.strategies {
        w.head("strategy");
        w.text("name", &strategy.name);
        let levels: Vec<String> = strategy.levels.iter().map(level).collect();
        w.key("level", format_args!("[\n    {},\n]", levels.join(",\n    ")));
    }
    system.modes.iter().for_each(|mode| w.mode(mode));
    system.switches.iter().for_each(|switch| w.switch(switch));
    system.components.iter().for_each(|component| w.component(component));
    system.tasks.iter().for_each(|task| w.task(task));
    system.flows.iter().for_each(|flow| w.flow(flow));
    system.ports.iter().for_each(|port| w.port(port));
    system.networks.iter().for_each(|network| w.network(network));
    w.out
}

struct Writer<'a> {
    system: &'a System,
    out: String,
}

impl<'a> Writer<'a> {
    fn head(&mut self, name: &str) {
        let _ = write!(self.out, "\n[[{name}]]\n");
    }
    fn key(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.out, "{key} = {value}");
    }
    fn spans(&mut self, key: &str, spans: &[Span]) {
        let spans: Vec<String> = spans.iter().map(|span| format!("\"{span}\"")).collect();
        self.key(key, format_args!("[{}]", spans.join(", ")));
    }
    fn text(&mut self, key: &str, value: &str) {
        self.key(key, quote(value));
    }
    fn span(&mut self, key: &str, span: Span) {
        self.key(key, format_args!("\"{span}\""));
    }
    fn span_unless(&mut self, key: &str, span: Span, default: Span) {
        if span != default {
            self.span(key, span);
        }
    }
    fn strategy(&mut self, strategy: StrategyRef) {
        self.text("strategy", self.system.strategy_name(strategy));
    }
    fn node_of(&mut self, node: NodeId) {
        if self.system.nodes.len() > 1 {
            self.text("node", self.node_name(node));
        }
    }
    fn node_name(&self, node: NodeId) -> &'a str {
        &self.system.nodes[node.index()].name
    }

    fn node(&mut self, node: &NodeSpec) {
        self.head("node");
        self.text("name", &node.name);
        if node.cpus != 1 {
            self.key("cpus", node.cpus);
        }
        if node.strategy != StrategyRef::Builtin(Builtin::Edf) {
            self.strategy(node.strategy);
        }
        match node.placement {
            Placement::Global => {}
            Placement::Partitioned => self.text("placement", "partitioned"),
            Placement::Clustered { cpus } => {
                self.text("placement", "clustered");
                self.key("cluster-cpus", cpus);
            }
        }
        if node.fit != Fit::default() {
            self.text("fit", FITS[node.fit as usize]);
        }
        if node.cancel {
            self.key("cancel", true);
        }
        if let Some(quantum) = node.laxity_quantum {
            self.span("laxity-quantum", quantum);
        }
        if let Some(costs) = node.costs {
            let parts = [
                ("switch", costs.switch, Span::ZERO),
                ("migrate", costs.migrate, Span::ZERO),
                ("release", costs.release, Span::ZERO),
                ("tick", costs.tick, Span::ZERO),
                ("tick-period", costs.tick_period, Costs::TICK_PERIOD_DEFAULT),
                ("interrupt", costs.interrupt, Span::ZERO),
                ("interrupt-period", costs.interrupt_period, Costs::INTERRUPT_PERIOD_DEFAULT),
                ("ordinary", costs.ordinary, Span::ZERO),
                ("ordinary-period", costs.ordinary_period, Costs::ORDINARY_PERIOD_DEFAULT),
                ("latency", costs.latency, Span::ZERO),
            ];
            let parts = parts.iter().filter(|(_, span, default)| span != default);
            let parts: Vec<String> = parts.map(|(key, span, _)| format!("{key} = \"{span}\"")).collect();
            self.key("costs", inline(&parts));
        }
        if let Some(of) = &node.link {
            self.key("link", link(of));
        }
        match node.arrivals {
            MessageArrivals::Table => {}
            MessageArrivals::Interrupt { cost } => {
                self.text("arrivals", "interrupt");
                self.span("interrupt", cost);
            }
            MessageArrivals::Cyclic => self.text("arrivals", "cyclic"),
        }
        for (key, task) in [("receive", node.receive), ("send", node.send)] {
            if let Some(task) = task {
                self.key(key, table_task(&task));
            }
        }
        if !node.clock_steps.is_empty() {
            let step = |step: &ClockStep| inline(&[format!("at = \"{}\"", step.at), format!("by = \"{}\"", step.by)]);
            let steps: Vec<String> = node.clock_steps.iter().map(step).collect();
            self.key("clock-step", format_args!("[{}]", steps.join(", ")));
        }
    }

    fn clock(&mut self, clock: &Clock) {
        if *clock == Clock::default() {
            return;
        }
        let drift = (clock.drift_ppm != 0).then(|| format!("drift-ppm = {}", clock.drift_ppm));
        let offset = (!clock.offset.is_zero()).then(|| format!("offset = \"{}\"", clock.offset));
        let error = (!clock.error.is_zero()).then(|| format!("error = \"{}\"", clock.error));
        let sync = clock.sync.map(|sync| format!("sync = {}", table_task(&sync)));
        self.key("clock", inline(&[drift, offset, error, sync].into_iter().flatten().collect::<Vec<_>>()));
    }

    fn mode(&mut self, mode: &Mode) {
        self.head("mode");
        self.node_of(mode.node);
        self.key("at", format_args!("\"{}\"", mode.at));
        self.strategy(mode.strategy);
    }

    fn switch(&mut self, switch: &ServerSwitch) {
        self.head("mode");
        self.key("at", format_args!("\"{}\"", switch.at));
        self.text("component", &self.system.components[switch.component.index()].name);
        if let Some(rule) = switch.server {
            self.text("server", rule.name());
        }
        for (key, value) in [("period", switch.period), ("budget", switch.budget)] {
            if let Some(value) = value {
                self.key(key, format_args!("\"{value}\""));
            }
        }
    }

    fn component(&mut self, component: &Component) {
        self.head("component");
        self.text("name", &component.name);
        self.node_of(component.node);
        if let Some(parent) = component.parent {
            self.text("parent", &self.system.components[parent.index()].name);
        }
        if component.strategy != StrategyRef::Builtin(Builtin::Edf) {
            self.strategy(component.strategy);
        }
        self.text("server", component.server.name());
        for (key, value) in [("period", component.period), ("budget", component.budget)] {
            match value {
                // Left out it would mean the same; said, a reader sees what is still to be sized.
                Auto::Auto => self.text(key, "auto"),
                Auto::Value(span) => self.span(key, span),
            }
        }
        if let Some(quantum) = component.quantum {
            self.span("quantum", quantum);
        }
        if component.cpus != 1 {
            self.key("cpus", component.cpus);
        }
        if !component.server_cpus.is_empty() {
            self.key("server-cpus", cpu_list(component.server_cpus.iter().copied()));
        }
        if let Some(priority) = component.priority {
            self.key("priority", priority);
        }
        if let Some(threads) = &component.threads {
            self.text("threads", &threads.to_string());
        }
    }

    fn task(&mut self, task: &Task) {
        self.head("task");
        self.text("name", &task.name);
        self.node_of(task.node);
        if let Some(component) = task.component {
            self.text("component", &self.system.components[component.index()].name);
        }
        if let Some(cpus) = &task.cpus {
            self.key("cpus", cpu_list(cpus.iter()));
        }
        if task.after.is_empty() {
            self.span("period", task.period);
        } else {
            let names: Vec<String> = task.after.iter().map(|id| quote(&self.system.tasks[id.index()].name)).collect();
            self.key("after", format_args!("[{}]", names.join(", ")));
        }
        self.span_unless("deadline", task.deadline, task.period);
        self.span_unless("offset", task.offset, Span::ZERO);
        self.span_unless("jitter", task.jitter, Span::ZERO);
        self.span("wcet", task.wcet);
        self.span_unless("blocking", task.blocking, Span::ZERO);
        match &task.preemption {
            Preemption::Anywhere => {}
            Preemption::Until(last) => self.span("final-section", *last),
            Preemption::Between(lengths) => self.spans("sections", lengths),
        }
        match &task.exec {
            Exec::Wcet => {}
            Exec::Uniform { min, max } => self.key("exec", inline(&[format!("uniform = [\"{min}\", \"{max}\"]")])),
            Exec::Pmf(values) => self.key("exec", inline(&[pmf(values)])),
            Exec::Trace(trace) => self.key("exec", inline(&[traced(trace)])),
        }
        match &task.arrival {
            Arrival::Periodic => {}
            Arrival::Sporadic => self.text("arrival", "sporadic"),
            Arrival::Pmf(values) => self.key("arrival", inline(&[pmf(values)])),
            Arrival::Trace(trace) => self.key("arrival", inline(&[traced(trace)])),
        }
        if task.criticality_stated || task.criticality != Criticality::default() {
            self.key("criticality", format_args!("\"{}\"", task.criticality));
        }
        if task.importance != 0 {
            self.key("importance", task.importance);
        }
        if let Some(priority) = task.priority {
            self.key("priority", priority);
        }
        if let Some(late) = task.late {
            self.key("late", format_args!("\"{}\"", LATES[late as usize]));
        }
        if let Some(cancel) = task.cancel {
            self.key("cancel", cancel);
        }
        if task.wss != Bytes::default() {
            self.key("wss", format_args!("\"{}\"", task.wss));
        }
    }

    fn flow(&mut self, flow: &Flow) {
        self.head("flow");
        self.text("name", &flow.name);
        let path: Vec<String> = flow.path.iter().map(|node| quote(self.node_name(*node))).collect();
        self.key("path", format_args!("[{}]", path.join(", ")));
        if flow.reply {
            self.key("reply", true);
        }
        self.span("period", flow.period);
        self.span("wcet", flow.wcet);
        self.span_unless("deadline", flow.deadline, flow.period);
        self.span_unless("send-gap", flow.send_gap, flow.period);
        self.span_unless("hop-wcet", flow.hop_wcet, flow.wcet);
        self.key("size", format_args!("\"{}\"", flow.size));
        if !flow.hop_deadlines.is_empty() {
            self.spans("hop-deadlines", &flow.hop_deadlines);
        }
    }

    fn network(&mut self, network: &Network) {
        self.head("network");
        if let Some(from) = network.from {
            self.text("from", self.node_name(from));
        }
        if let Some(to) = network.to {
            self.text("to", self.node_name(to));
        }
        match network.delay {
            Auto::Auto => self.text("delay", "auto"),
            Auto::Value((min, max)) => self.spans("delay", &[min, max]),
        }
        match &network.actual_delay {
            ActualDelay::Uniform => {}
            ActualDelay::Pmf(values) => self.key("actual-delay", inline(&[pmf(values)])),
            ActualDelay::Trace(trace) => self.key("actual-delay", inline(&[traced(trace)])),
        }
        if network.loss != Probability::default() {
            self.key("loss", network.loss);
        }
        if !network.through.is_empty() {
            let ports = network.through.iter().map(|port| quote(&self.system.ports[port.index()].name));
            self.key("through", format_args!("[{}]", ports.collect::<Vec<_>>().join(", ")));
        }
    }

    fn port(&mut self, port: &Port) {
        self.head("port");
        self.text("name", &port.name);
        self.key("rate", format_args!("\"{}\"", port.rate));
        self.span_unless("latency", port.latency, Span::ZERO);
        if let Some(cross) = port.cross {
            let parts = [format!("burst = \"{}\"", cross.burst), format!("rate = \"{}\"", cross.rate)];
            self.key("cross", inline(&parts));
        }
        if !port.fifo {
            self.text("order", "any");
        }
    }
}

fn link(link: &Link) -> String {
    let bucket = |key: &str, bucket: Option<Bucket>| {
        let Bucket { burst, rate } = bucket?;
        Some(format!("{key} = {{ burst = \"{burst}\", rate = \"{rate}\" }}"))
    };
    let background = link.background.map(|Background { size, rate }| {
        let rate = rate.map(|rate| format!("rate = \"{rate}\""));
        let parts = [Some(format!("size = \"{size}\"")), rate];
        format!("background = {}", inline(&parts.into_iter().flatten().collect::<Vec<_>>()))
    });
    let parts = [
        Some(format!("rate = \"{}\"", link.rate)),
        link.edf.then(|| "order = \"edf\"".to_owned()),
        (link.late != Late::Continue).then(|| format!("late = \"{}\"", PACKETS_LATE[link.late as usize])),
        bucket("bucket", link.bucket),
        bucket("replies", link.replies),
        background,
    ];
    inline(&parts.into_iter().flatten().collect::<Vec<_>>())
}

fn table_task(task: &TableTask) -> String {
    let cost = task.cost.map(|cost| format!("cost = \"{cost}\""));
    let parts = [format!("period = \"{}\"", task.period), format!("wcet = \"{}\"", task.wcet)];
    inline(&parts.into_iter().chain(cost).collect::<Vec<_>>())
}

pub(super) fn strategy_keys(strategy: &Strategy) -> String {
    let levels: String = strategy.levels.iter().map(|one| format!("    {},\n", level(one))).collect();
    format!("name = {}\nlevel = [\n{levels}]\n", quote(&strategy.name))
}

fn level(level: &Level) -> String {
    let mut parts = Vec::new();
    let tasks = match &level.filter {
        Filter::Rest => quote("rest"),
        Filter::Named(names) => format!("[{}]", names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")),
        Filter::Where { criticality, importance, priority } => {
            let criticality = criticality.map(|value| format!("criticality = \"{value}\""));
            let importance = importance.map(|value| format!("importance = {value}"));
            let priority = priority.map(|value| format!("priority = {value}"));
            inline(&[criticality, importance, priority].into_iter().flatten().collect::<Vec<_>>())
        }
    };
    parts.push(format!("tasks = {tasks}"));
    if level.split != Split::None {
        parts.push(format!("split = \"{}\"", SPLITS[level.split as usize]));
    }
    parts.push(format!("discipline = \"{}\"", level.discipline.name()));
    if let Discipline::Gel { shift } = &level.discipline
        && !shift.is_empty()
    {
        let shifts: Vec<String> = shift.iter().map(|(name, value)| format!("{} = \"{value}\"", key(name))).collect();
        parts.push(format!("shift = {}", inline(&shifts)));
    }
    if !level.preemptive {
        parts.push("preemptive = false".to_owned());
    }
    if level.late != Late::Continue {
        parts.push(format!("late = \"{}\"", LATES[level.late as usize]));
    }
    if level.importance_ties {
        parts.push("ties = \"importance\"".to_owned());
    }
    inline(&parts)
}

/// An inline table of `key = value` parts.
fn inline(parts: &[String]) -> String {
    if parts.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", parts.join(", ")) }
}

fn traced(trace: &Trace) -> String {
    format!("trace = {}", quote(&trace.path))
}

fn pmf(values: &[(Span, Probability)]) -> String {
    let values: Vec<String> = values.iter().map(|(span, p)| format!("[\"{span}\", {p}]")).collect();
    format!("pmf = [{}]", values.join(", "))
}

fn cpu_list(cpus: impl Iterator<Item = u32>) -> String {
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    format!("[{}]", cpus.join(", "))
}

/// A key: bare where TOML allows it.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
    if bare { name.to_owned() } else { quote(name) }
}

/// A TOML basic string.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
