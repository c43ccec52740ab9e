//! The rules between the values of a System, whether it came from a file or was built by hand. This
//! file has the order of the checks, names, nodes, modes, components and flows. [`tasks`],
//! [`strategies`] and [`network`] have files of their own.

mod arrivals;
mod circles;
mod components;
mod network;
mod strategies;
mod tasks;

use std::collections::BTreeSet;
use std::fmt;

use super::error::Found;
use super::read::name_fault;
use crate::cpus::CpuSet;
use crate::strategy::Builtin;
use crate::system::{
    Auto, Clock, ComponentId, NetworkId, NodeId, Placement, ServerSwitch, StrategyRef, System, TableTask,
};
use crate::time::{Lateness, Span, Time};

/// A part of a System, by its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Part {
    File,
    Node(usize),
    Strategy(usize),
    Level(usize, usize),
    Mode(usize),
    Switch(usize),
    Component(usize),
    Task(usize),
    Flow(usize),
    Port(usize),
    Network(usize),
}

/// The places of parts and keys, for a System that came from a file.
pub(super) trait Places {
    /// The place of the key at a dotted path. The empty path is the part itself; an index selects
    /// an element.
    fn at(&self, part: Part, path: &'static str, index: Option<usize>) -> Option<usize>;
    /// Whether an error of the key has been reported, so that its consequences need no report.
    fn is_bad(&self, part: Part, path: &'static str) -> bool;
}

/// The places of a System that was built by hand: none.
pub(super) struct Nowhere;

impl Places for Nowhere {
    fn at(&self, _: Part, _: &'static str, _: Option<usize>) -> Option<usize> {
        None
    }
    fn is_bad(&self, _: Part, _: &'static str) -> bool {
        false
    }
}

/// Checks whether every index leads somewhere; the other checks rely on it.
pub(super) fn check_indices(system: &System, found: &mut Vec<Found>) {
    let mut check = Check { system, places: &Nowhere, found };
    if system.nodes.is_empty() {
        check.error(Part::File, "", "the system has no node; it needs at least one");
    }
    let node = |id: NodeId| id.index() < system.nodes.len();
    let component = |id: ComponentId| id.index() < system.components.len();
    let strategy = |of: StrategyRef| !matches!(of, StrategyRef::Own(id) if id.index() >= system.strategies.len());
    for (i, of) in system.nodes.iter().enumerate() {
        check.index(Part::Node(i), strategy(of.strategy), "strategy");
    }
    for (i, of) in system.modes.iter().enumerate() {
        check.index(Part::Mode(i), strategy(of.strategy), "strategy");
        check.index(Part::Mode(i), node(of.node), "node");
    }
    for (i, of) in system.switches.iter().enumerate() {
        // Its name would be that of the component.
        if !component(of.component) {
            let message = format!("component of change {} of a server is an index that leads nowhere", i + 1);
            check.error(Part::Switch(i), "component", message);
        }
    }
    for (i, of) in system.components.iter().enumerate() {
        check.index(Part::Component(i), strategy(of.strategy), "strategy");
        check.index(Part::Component(i), node(of.node), "node");
        check.index(Part::Component(i), of.parent.is_none_or(component), "parent");
    }
    for (i, of) in system.tasks.iter().enumerate() {
        check.index(Part::Task(i), node(of.node), "node");
        check.index(Part::Task(i), of.component.is_none_or(component), "component");
        check.index(Part::Task(i), of.after.iter().all(|before| before.index() < system.tasks.len()), "after");
    }
    for (i, of) in system.flows.iter().enumerate() {
        check.index(Part::Flow(i), of.path.iter().all(|id| node(*id)), "path");
    }
    for (i, of) in system.networks.iter().enumerate() {
        check.index(Part::Network(i), of.from.is_none_or(node) && of.to.is_none_or(node), "node");
        check.index(Part::Network(i), of.through.iter().all(|port| port.index() < system.ports.len()), "through");
    }
}

/// Checks a System whose indices are good.
pub(super) fn check(system: &System, places: &dyn Places, found: &mut Vec<Found>) {
    let mut check = Check { system, places, found };
    check.names();
    check.nodes();
    check.arrivals();
    check.strategies();
    check.modes();
    check.components();
    check.switches();
    check.tasks();
    check.chains();
    check.plans();
    check.flows();
    check.ports();
    check.networks();
    check.clock();
}

struct Check<'a> {
    system: &'a System,
    places: &'a dyn Places,
    found: &'a mut Vec<Found>,
}

/// A part as errors name it.
pub(super) struct Owner<'a>(pub(super) &'a System, pub(super) Part);

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = self.0;
        let (noun, name, index) = match self.1 {
            Part::File => return f.write_str("the system"),
            Part::Level(i, j) => return write!(f, "level {} of {}", j + 1, Owner(system, Part::Strategy(i))),
            Part::Node(i) => ("node", system.nodes[i].name.as_str(), i),
            Part::Strategy(i) => ("strategy", system.strategies[i].name.as_str(), i),
            Part::Mode(i) => ("mode", "", i),
            Part::Switch(i) => {
                let component = &system.components[system.switches[i].component.index()].name;
                return write!(f, "the mode of component \"{component}\" at {}", system.switches[i].at);
            }
            Part::Component(i) => ("component", system.components[i].name.as_str(), i),
            Part::Task(i) => ("task", system.tasks[i].name.as_str(), i),
            Part::Flow(i) => ("flow", system.flows[i].name.as_str(), i),
            Part::Port(i) => ("port", system.ports[i].name.as_str(), i),
            Part::Network(i) => ("network", "", i),
        };
        if name.is_empty() { write!(f, "{noun} {}", index + 1) } else { write!(f, "{noun} \"{name}\"") }
    }
}

impl Check<'_> {
    fn owner(&self, part: Part) -> String {
        Owner(self.system, part).to_string()
    }

    fn error(&mut self, part: Part, path: &'static str, message: impl Into<String>) {
        let at = self.places.at(part, path, None);
        self.found.push(Found { at, message: message.into() });
    }

    fn error_at(&mut self, part: Part, path: &'static str, index: usize, message: String) {
        let at = self.places.at(part, path, Some(index));
        self.found.push(Found { at, message });
    }

    fn bad(&self, part: Part, paths: &[&'static str]) -> bool {
        paths.iter().any(|path| self.places.is_bad(part, path))
    }

    fn index(&mut self, part: Part, good: bool, key: &'static str) {
        if !good {
            let owner = self.owner(part);
            self.error(part, key, format!("{key} of {owner} is an index that leads nowhere"));
        }
    }

    /// The range of a duration. A file's own durations have been checked when they were read.
    fn span(&mut self, part: Part, path: &'static str, span: Span, zero: bool) {
        if self.bad(part, &[path]) {
            return;
        }
        if span > Span::FILE_MAX {
            let (owner, most) = (self.owner(part), Span::FILE_MAX);
            self.error(
                part,
                path,
                format!("{path} {span} of {owner} is too long; the longest is {most} (about three years)"),
            );
        } else if span.is_zero() && !zero {
            let owner = self.owner(part);
            self.error(part, path, format!("{path} of {owner} is zero; it must be above zero"));
        }
    }

    /// `small` of one key must not exceed `large` of another.
    fn at_most(
        &mut self,
        part: Part,
        (small_key, small): (&'static str, Span),
        (large_key, large): (&'static str, Span),
    ) {
        if small > large && !self.bad(part, &[small_key, large_key]) {
            let owner = self.owner(part);
            let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
            let (noun, limit) = (last(small_key), last(large_key));
            let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            let message = format!(
                "{small_key} {small} exceeds {limit} {large} of {owner}; {article} {noun} is at most its {limit}"
            );
            self.error(part, small_key, message);
        }
    }

    fn names(&mut self) {
        let system = self.system;
        fn list<T>(of: &[T], name: impl Fn(&T) -> &str, part: impl Fn(usize) -> Part) -> Vec<(Part, &str)> {
            of.iter().enumerate().map(|(i, item)| (part(i), name(item))).collect()
        }
        if let (Some(fault), false) = (name_fault(&system.name), self.bad(Part::File, &["name"])) {
            self.error(Part::File, "name", format!("name of the system {fault}"));
        }
        for note in &system.notes {
            if let (Some(fault), false) = (name_fault(note), self.bad(Part::File, &["notes"])) {
                self.error(Part::File, "notes", format!("a note {fault}"));
            }
        }
        let groups = [
            ("node", list(&system.nodes, |x| &x.name, Part::Node)),
            ("strategy", list(&system.strategies, |x| &x.name, Part::Strategy)),
            ("component", list(&system.components, |x| &x.name, Part::Component)),
            ("task", list(&system.tasks, |x| &x.name, Part::Task)),
            ("flow", list(&system.flows, |x| &x.name, Part::Flow)),
            ("port", list(&system.ports, |x| &x.name, Part::Port)),
        ];
        for (noun, group) in groups {
            let mut seen = BTreeSet::new();
            for (part, name) in group {
                if self.bad(part, &["name"]) {
                    continue;
                }
                if let Some(fault) = name_fault(name) {
                    self.error(part, "name", format!("name of {} {fault}", self.owner(part)));
                } else if !seen.insert(name) {
                    self.error(part, "name", format!("a second {noun} is called \"{name}\"; give each its own name"));
                } else if noun == "strategy" && Builtin::by_name(name).is_some() {
                    let message =
                        format!("strategy \"{name}\" has the name of one that every file knows; choose another");
                    self.error(part, "name", message);
                } else if noun == "component" && name == "root" {
                    let message =
                        "a component is called \"root\", which stands for the node itself; choose another name";
                    self.error(part, "name", message);
                }
            }
        }
    }

    fn nodes(&mut self) {
        for (i, node) in self.system.nodes.iter().enumerate() {
            let part = Part::Node(i);
            if !(1..=CpuSet::CPUS_MAX).contains(&node.cpus) && !self.bad(part, &["cpus"]) {
                let (owner, most) = (self.owner(part), CpuSet::CPUS_MAX);
                self.error(
                    part,
                    "cpus",
                    format!("cpus {} of {owner} is out of range; a node has 1 to {most}", node.cpus),
                );
            }
            if let Placement::Clustered { cpus } = node.placement
                && (cpus == 0 || cpus > node.cpus)
                && !self.bad(part, &["cpus", "placement", "cluster-cpus"])
            {
                let owner = self.owner(part);
                let message = format!(
                    "cluster-cpus {cpus} of {owner} is out of range; a cluster has 1 to all {} of its CPUs",
                    node.cpus
                );
                self.error(part, "cluster-cpus", message);
            }
            if let Some(quantum) = node.laxity_quantum {
                self.span(part, "laxity-quantum", quantum, false);
            }
            if let Some(costs) = node.costs {
                self.span(part, "costs.switch", costs.switch, true);
                self.span(part, "costs.migrate", costs.migrate, true);
                self.span(part, "costs.release", costs.release, true);
                self.span(part, "costs.tick", costs.tick, true);
                self.span(part, "costs.tick-period", costs.tick_period, false);
                if costs.tick >= costs.tick_period && !self.bad(part, &["costs.tick", "costs.tick-period"]) {
                    let (owner, tick, period) = (self.owner(part), costs.tick, costs.tick_period);
                    let message = format!(
                        "costs.tick {tick} of {owner} leaves nothing of the tick-period {period}; a tick is \
                         shorter than its period"
                    );
                    self.error(part, "costs.tick", message);
                }
                self.span(part, "costs.interrupt", costs.interrupt, true);
                self.span(part, "costs.interrupt-period", costs.interrupt_period, false);
                self.span(part, "costs.ordinary", costs.ordinary, true);
                self.span(part, "costs.ordinary-period", costs.ordinary_period, false);
                self.span(part, "costs.latency", costs.latency, true);
                let without = crate::Costs { ordinary: Span::ZERO, ..costs };
                let shares = ["costs.ordinary", "costs.ordinary-period"];
                if without.leaves_time() && !costs.leaves_time() && !self.bad(part, &shares) {
                    let (owner, ordinary, period) = (self.owner(part), costs.ordinary, costs.ordinary_period);
                    let message = format!(
                        "costs.ordinary {ordinary} of {owner} each {period} leaves no time, ticks and \
                         interrupts counted; ordinary threads take less than all"
                    );
                    self.error(part, "costs.ordinary", message);
                }
                let costs = without;
                let shares = ["costs.tick", "costs.tick-period", "costs.interrupt", "costs.interrupt-period"];
                if costs.tick < costs.tick_period && !costs.leaves_time() && !self.bad(part, &shares) {
                    let (owner, interrupt, period) = (self.owner(part), costs.interrupt, costs.interrupt_period);
                    let message = format!(
                        "costs.interrupt {interrupt} of {owner} each {period} leaves no time, ticks counted; \
                         interrupts take less than all"
                    );
                    self.error(part, "costs.interrupt", message);
                }
            }
            self.link(i);
            if let Some(receive) = node.receive {
                self.table_task(part, ["receive.period", "receive.wcet", "receive.cost"], receive);
            }
            if let Some(send) = node.send {
                self.table_task(part, ["send.period", "send.wcet", "send.cost"], send);
            }
            self.clock_steps(i);
        }
    }

    fn table_task(&mut self, part: Part, [period, wcet, cost]: [&'static str; 3], task: TableTask) {
        self.span(part, period, task.period, false);
        self.span(part, wcet, task.wcet, false);
        self.at_most(part, (wcet, task.wcet), (period, task.period));
        if let Some(each) = task.cost {
            self.span(part, cost, each, false);
            self.at_most(part, (cost, each), (wcet, task.wcet));
        }
    }

    fn clock(&mut self) {
        let clock = self.system.clock;
        if clock.drift_ppm > Clock::DRIFT_PPM_MAX && !self.bad(Part::File, &["clock.drift-ppm"]) {
            let (drift, most) = (clock.drift_ppm, Clock::DRIFT_PPM_MAX);
            let message = format!("clock.drift-ppm {drift} of the system is too large; the largest is {most}");
            self.error(Part::File, "clock.drift-ppm", message);
        }
        self.span(Part::File, "clock.offset", clock.offset, true);
        self.span(Part::File, "clock.error", clock.error, true);
        if let Some(sync) = clock.sync {
            let keys = ["clock.sync.period", "clock.sync.wcet", "clock.sync.cost"];
            self.table_task(Part::File, keys, sync);
            if sync.cost.is_some() {
                self.error(Part::File, keys[2], "clock.sync of the system has a cost per message; it has none");
            }
        }
    }

    /// Steps come one after the other, and leave the clock of the node between zero and the longest time of a file.
    fn clock_steps(&mut self, i: usize) {
        const KEY: &str = "clock-step";
        let (system, part) = (self.system, Part::Node(i));
        let mut before: Option<Span> = None;
        let mut ahead: i128 = 0;
        for (j, step) in system.nodes[i].clock_steps.iter().enumerate() {
            let at = step.at.saturating_since(Time::ZERO);
            self.span(part, KEY, at, false);
            let owner = format!("{KEY} {} of {}", j + 1, self.owner(part));
            let shows = i128::from(at.as_ns()) + ahead;
            let after = shows + i128::from(step.by.as_ns());
            let fault = if before.is_some_and(|before| before >= at) {
                Some(format!("at {at} of {owner} is not after the step before it; order steps by their instants"))
            } else if step.by == Lateness::ZERO {
                Some(format!("by {} of {owner} is zero; a step changes the clock, so remove it", step.by))
            } else if after < 0 {
                let most = Span::from_ns(u64::try_from(shows).unwrap_or_default());
                Some(format!(
                    "by {} of {owner} sets the clock to before zero; at this instant it goes back by at most {most}",
                    step.by
                ))
            } else if after > i128::from(Span::FILE_MAX.as_ns()) {
                let most = Span::FILE_MAX;
                Some(format!("by {} of {owner} sets the clock too far ahead; it shows at most {most}", step.by))
            } else {
                ahead += i128::from(step.by.as_ns());
                None
            };
            before = Some(at);
            if let Some(fault) = fault {
                self.error_at(part, KEY, j, fault);
            }
        }
    }

    fn hop_deadlines(&mut self, i: usize) {
        let (flow, part) = (&self.system.flows[i], Part::Flow(i));
        let key = "hop-deadlines";
        if flow.hop_deadlines.is_empty() || self.bad(part, &[key]) {
            return;
        }
        for span in &flow.hop_deadlines {
            self.span(part, key, *span, false);
        }
        let (hops, given, owner) = (flow.hops().count(), flow.hop_deadlines.len(), self.owner(part));
        if hops != given && !self.bad(part, &["path"]) {
            let reply = if flow.reply { ", the reply included" } else { "" };
            let message =
                format!("{key} of {owner} has {given} entries, and there are {hops} hops{reply}; give each its own");
            self.error(part, key, message);
        }
        let sum = flow.hop_deadlines.iter().try_fold(Span::ZERO, |sum, span| sum.checked_add(*span));
        if sum.is_none_or(|sum| sum > flow.deadline) && !self.bad(part, &["deadline", "period"]) {
            let sum = sum.map_or("more".to_owned(), |sum| sum.to_string());
            let message = format!(
                "{key} of {owner} add up to {sum}, more than its deadline {}; together they are at most that",
                flow.deadline
            );
            self.error(part, key, message);
        }
    }

    fn modes(&mut self) {
        let mut seen = BTreeSet::new();
        for (i, mode) in self.system.modes.iter().enumerate() {
            let part = Part::Mode(i);
            self.span(part, "at", mode.at.saturating_since(Time::ZERO), true);
            if !self.bad(part, &["at", "node"]) && !seen.insert((mode.node, mode.at)) {
                let node = &self.system.nodes[mode.node.index()].name;
                let message = format!(
                    "node \"{node}\" has two modes at {}; a node switches to one strategy at an instant",
                    mode.at
                );
                self.error(part, "at", message);
            }
        }
    }

    /// Changes of servers, each on what the earlier ones left.
    fn switches(&mut self) {
        let system = self.system;
        let mut order: Vec<usize> = (0..system.switches.len()).collect();
        order.sort_by_key(|i| (system.switches[*i].component, system.switches[*i].at));
        let mut before: Option<&ServerSwitch> = None;
        let mut now = None;
        for i in order {
            let (part, switch) = (Part::Switch(i), &system.switches[i]);
            self.span(part, "at", switch.at.saturating_since(Time::ZERO), true);
            if self.bad(part, &["component", "at"]) {
                continue;
            }
            let component = &system.components[switch.component.index()];
            if before.is_none_or(|before| before.component != switch.component) {
                now = Some((component.period.given(), component.budget.given()));
            } else if before.is_some_and(|before| before.at == switch.at) {
                let message = format!(
                    "component \"{}\" has two modes at {}; write what changes at an instant into one",
                    component.name, switch.at
                );
                self.error(part, "at", message);
            }
            before = Some(switch);
            for (key, value) in [("period", switch.period), ("budget", switch.budget)] {
                if let Some(value) = value {
                    self.span(part, key, value, false);
                }
            }
            if let (Some(rule), false) = (switch.server, self.bad(part, &["server"])) {
                self.reclaims(part, switch.component, rule);
            }
            let quantum_bad = self.bad(Part::Component(switch.component.index()), &["quantum"]);
            if let (Some(period), Some(quantum)) = (switch.period, component.quantum)
                && quantum > period
                && !(quantum_bad || self.bad(part, &["period"]))
            {
                let message = format!(
                    "from {} on quantum {quantum} exceeds period {period} of component \"{}\"; \
                     a quantum is at most its period",
                    switch.at, component.name
                );
                self.error(part, "period", message);
            }
            let (period, budget) = now.unwrap_or_default();
            let (period, budget) = (switch.period.or(period), switch.budget.or(budget));
            now = Some((period, budget));
            if let (Some(period), Some(budget)) = (period, budget)
                && (switch.period.is_some() || switch.budget.is_some())
                && component.most(period).is_none_or(|most| budget > most)
                && !self.bad(part, &["period", "budget"])
            {
                let key = if switch.budget.is_some() { "budget" } else { "period" };
                let message = format!(
                    "from {} on budget {budget} exceeds period {period} of component \"{}\"; \
                     a budget is at most its period on each CPU",
                    switch.at, component.name
                );
                self.error(part, key, message);
            }
        }
    }

    fn flows(&mut self) {
        let system = self.system;
        for (i, flow) in system.flows.iter().enumerate() {
            let part = Part::Flow(i);
            for (key, span) in [
                ("period", flow.period),
                ("wcet", flow.wcet),
                ("deadline", flow.deadline),
                ("send-gap", flow.send_gap),
                ("hop-wcet", flow.hop_wcet),
            ] {
                self.span(part, key, span, false);
            }
            self.at_most(part, ("send-gap", flow.send_gap), ("period", flow.period));
            self.hop_deadlines(i);
            if self.bad(part, &["path"]) {
                continue;
            }
            if flow.path.is_empty() {
                let owner = self.owner(part);
                self.error(part, "path", format!("path of {owner} is empty; name at least one node"));
            }
            for (k, pair) in flow.path.windows(2).enumerate() {
                if pair[0] == pair[1] {
                    let (owner, node) = (self.owner(part), &system.nodes[pair[0].index()].name);
                    let message = format!("path of {owner} goes from node \"{node}\" to itself; name it once");
                    self.error_at(part, "path", k + 1, message);
                }
            }
            let ends_at_start = flow.path.first() == flow.path.last();
            if flow.reply && ends_at_start && !flow.path.is_empty() {
                let owner = self.owner(part);
                let message = format!("{owner} ends on the node where it starts, which needs no reply; remove reply");
                self.error(part, "reply", message);
            }
        }
        self.legs();
    }

    /// Something must say how long messages take on each leg of a flow's path, and no two things.
    fn legs(&mut self) {
        let system = self.system;
        if (0..system.networks.len()).any(|i| self.bad(Part::Network(i), &["from", "to", "delay", "through"])) {
            return;
        }
        let mut seen = BTreeSet::new();
        for (i, flow) in system.flows.iter().enumerate() {
            let part = Part::Flow(i);
            if self.bad(part, &["path"]) {
                continue;
            }
            // Messages of clock.sync go both ways.
            let back = |(leg, (from, to))| [(leg, (from, to)), (leg, (to, from))];
            let ways = if system.clock.sync.is_some() { 2 } else { 1 };
            for (leg, (from, to)) in flow.legs().enumerate().flat_map(|leg| back(leg).into_iter().take(ways)) {
                if from == to || !seen.insert((from, to)) {
                    continue;
                }
                let between = system.networks_between(from, to);
                let written = |id: &NetworkId| system.networks[id.index()].delay != Auto::Auto;
                let row = |id: &NetworkId| (!written(id)).then_some(&system.networks[id.index()].through);
                let is_written = !between.is_empty() && between.iter().all(written);
                let [sender, receiver] = [from, to].map(|node| &system.nodes[node.index()].name);
                let forth = flow.legs().any(|pair| pair == (from, to));
                let owner = || self.owner(part) + if forth { "" } else { ", with clock.sync," };
                if between.windows(2).any(|pair| row(&pair[0]) != row(&pair[1])) {
                    let message = format!(
                        "{} goes from \"{sender}\" to \"{receiver}\", where one [[network]] has a delay and \
                         another \"auto\", or other ports; give these two nodes their own, with from and to",
                        owner()
                    );
                    self.error_at(part, "path", leg, message);
                } else if !is_written
                    && system.nodes[from.index()].link.is_none()
                    && !self.bad(Part::Node(from.index()), &["link"])
                {
                    let message = format!(
                        "{} goes from \"{sender}\" to \"{receiver}\", and nothing says how long that takes; add a \
                         [[network]] with a delay, or give node \"{sender}\" link = {{ rate = \"...\" }}",
                        owner()
                    );
                    self.error_at(part, "path", leg, message);
                }
            }
        }
    }
}
