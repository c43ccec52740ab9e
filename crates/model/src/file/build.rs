//! From fields to a System: names become indices. An error is reported and the value is replaced by
//! a harmless one, so that the checks can go on and report the rest.

use std::collections::{BTreeMap, BTreeSet};

use super::check::Part;
use super::error::Found;
use super::grammar::{BUILTINS, DISCIPLINES, FITS};
use super::read::{Fields, Val};
use super::source::Source;
use super::suggest::hint;
use super::values::{
    actual_delay, arrival, clock, clock_steps, criticality, exec, ints, is_switch, late, link, owner, pair, port, rule,
    size, spans, table_task,
};
use crate::cpus::CpuSet;
use crate::strategy::{Builtin, Discipline, Filter, Level, Split, Strategy};
use crate::system::{
    Arrival, Auto, Component, ComponentId, Costs, Exec, Fit, Flow, MessageArrivals, Mode, Network, NodeId, NodeSpec,
    Placement, PortId, Preemption, ServerRule, ServerSwitch, StrategyId, StrategyRef, System, Task, TaskId,
};
use crate::threads::Threads;
use crate::time::{Lateness, Span, Time};
use crate::units::Probability;

/// How many dangling names get a suggestion: finding the nearest name costs a walk over all of them.
const SUGGESTIONS_MAX: usize = 32;

/// A System as far as its file is good, and where everything stands.
pub(super) struct Built {
    pub(super) system: System,
    pub(super) source: Source,
}

/// Builds the System that `file` describes.
pub(super) fn build(file: Fields, found: &mut Vec<Found>) -> Built {
    let names = |key: &str| -> BTreeMap<String, u32> {
        let mut names = BTreeMap::new();
        for (i, fields) in file.tables(key).enumerate() {
            if let Some(name) = fields.text("name") {
                // The first of a name counts; the check reports the others.
                names.entry(name.to_owned()).or_insert(i as u32);
            }
        }
        names
    };
    let (nodes, strategies, components, tasks) = (names("node"), names("strategy"), names("component"), names("task"));
    let ports = names("port");
    let mut builder = Builder {
        file: &file,
        nodes: Names { noun: "node", by_name: nodes, none: "the file has no [[node]]: leave node out" },
        strategies: Names { noun: "strategy", by_name: strategies, none: "" },
        components: Names { noun: "component", by_name: components, none: "the file has no [[component]]" },
        tasks: Names { noun: "task", by_name: tasks, none: "the file has no [[task]]" },
        ports: Names { noun: "port", by_name: ports, none: "the file has no [[port]]" },
        suggestions_left: SUGGESTIONS_MAX,
        dangling: BTreeSet::new(),
        found,
    };
    let system = builder.system();
    let dangling = builder.dangling;
    Built { system, source: Source { file, dangling } }
}

struct Names {
    noun: &'static str,
    by_name: BTreeMap<String, u32>,
    /// The text for an empty list of candidates.
    none: &'static str,
}

struct Builder<'a> {
    file: &'a Fields,
    nodes: Names,
    strategies: Names,
    components: Names,
    tasks: Names,
    ports: Names,
    suggestions_left: usize,
    dangling: BTreeSet<(Part, &'static str)>,
    found: &'a mut Vec<Found>,
}

/// Which names a reference may use.
#[derive(Clone, Copy)]
enum NameKind {
    Node,
    Component,
    Task,
    Strategy,
    Port,
}

impl Builder<'_> {
    fn system(&mut self) -> System {
        let file = self.file;
        let mut nodes: Vec<NodeSpec> = file.tables("node").enumerate().map(|(i, f)| self.node(i, f)).collect();
        if nodes.is_empty() {
            nodes.push(NodeSpec::new("local", 1, StrategyRef::Builtin(Builtin::Edf)));
            self.nodes.by_name.entry("local".to_owned()).or_insert(0);
        }
        let strategies = file.tables("strategy").enumerate().map(|(i, f)| self.strategy(i, f)).collect();
        let components: Vec<Component> =
            file.tables("component").enumerate().map(|(i, f)| self.component(i, f, nodes.len())).collect();
        let (mut modes, mut switches) = (Vec::new(), Vec::new());
        for (i, f) in file.tables("mode").enumerate() {
            let owner = owner(f, i);
            if is_switch(f) {
                switches.extend(self.switch((switches.len(), &owner), f, &nodes, &components));
            } else {
                modes.push(self.mode((modes.len(), &owner), f, nodes.len()));
            }
        }
        let mut tasks: Vec<Task> =
            file.tables("task").enumerate().map(|(i, f)| self.task(i, f, nodes.len(), &components)).collect();
        self.inherit_periods(&mut tasks);
        let flows = file.tables("flow").enumerate().map(|(i, f)| self.flow(i, f)).collect();
        let ports = file.tables("port").map(port).collect();
        let networks = file.tables("network").enumerate().map(|(i, f)| self.network(i, f)).collect();
        let name = file.text("name").unwrap_or("system").to_owned();
        let clock = file.table("clock").map(clock).unwrap_or_default();
        let text = |(note, _): &(Val, usize)| if let Val::Text(note) = note { Some(note.clone()) } else { None };
        let notes = file.list("notes").iter().filter_map(text).collect();
        System { name, nodes, strategies, modes, switches, components, tasks, flows, ports, networks, clock, notes }
    }

    fn names(&self, of: NameKind) -> &Names {
        match of {
            NameKind::Node => &self.nodes,
            NameKind::Component => &self.components,
            NameKind::Task => &self.tasks,
            NameKind::Strategy => &self.strategies,
            NameKind::Port => &self.ports,
        }
    }

    /// The index behind a name; a miss is reported and remembered.
    fn resolve(
        &mut self,
        of: NameKind,
        name: &str,
        part: Part,
        key: &'static str,
        owner: &str,
        at: usize,
    ) -> Option<u32> {
        if let Some(id) = self.names(of).by_name.get(name) {
            return Some(*id);
        }
        self.dangling.insert((part, key));
        let names = self.names(of);
        let suggest = self.suggestions_left > 0;
        let mut candidates: Vec<&str> =
            if suggest { names.by_name.keys().map(String::as_str).collect() } else { vec![] };
        candidates.sort_unstable();
        let hint = if let NameKind::Strategy = of {
            let all = candidates.iter().copied().chain(BUILTINS);
            hint(name, all, || format!("named ones are {}; others want a [[strategy]]", BUILTINS.join(", ")))
        } else {
            let known =
                if matches!(of, NameKind::Node) && self.file.field("node").is_none() { 0 } else { names.by_name.len() };
            hint(name, candidates.iter().copied(), || match known {
                0 => names.none.to_owned(),
                1..=8 if suggest => format!("there is \"{}\"", candidates.join("\", \"")),
                _ => String::new(),
            })
        };
        let noun = names.noun;
        let message = match key {
            "tasks" | "shift" => format!("{owner} names the task \"{name}\", which does not exist{hint}"),
            _ => format!("{key} \"{name}\" of {owner} is no {noun} of the file{hint}"),
        };
        self.suggestions_left = self.suggestions_left.saturating_sub(1);
        self.found.push(Found { at: Some(at), message });
        None
    }

    fn strategy_ref(&mut self, fields: &Fields, part: Part, owner: &str) -> StrategyRef {
        let name = fields.text("strategy").unwrap_or("edf");
        if let Some(builtin) = Builtin::by_name(name) {
            return StrategyRef::Builtin(builtin);
        }
        let at = fields.field("strategy").map_or(fields.at, |field| field.at);
        match self.resolve(NameKind::Strategy, name, part, "strategy", owner, at) {
            Some(id) => StrategyRef::Own(StrategyId(id)),
            None => StrategyRef::Builtin(Builtin::Edf),
        }
    }

    /// The node that a part names, or the only one.
    fn node_ref(&mut self, fields: &Fields, part: Part, owner: &str, nodes: usize, else_of: Option<NodeId>) -> NodeId {
        if let Some(name) = fields.text("node") {
            let at = fields.field("node").map_or(fields.at, |field| field.at);
            return NodeId(self.resolve(NameKind::Node, name, part, "node", owner, at).unwrap_or(0));
        }
        if let Some(node) = else_of {
            return node;
        }
        if nodes > 1 && !fields.is_bad("node") {
            self.dangling.insert((part, "node"));
            let names: Vec<&str> = self.file.tables("node").filter_map(|node| node.text("name")).take(4).collect();
            let more = if nodes > names.len() { ", ..." } else { "" };
            let message = format!(
                "{owner} names no node, and the file has {nodes} ({}{more}); give it node = \"...\"",
                names.join(", ")
            );
            self.found.push(Found { at: Some(fields.at), message });
        }
        NodeId(0)
    }

    fn node(&mut self, i: usize, f: &Fields) -> NodeSpec {
        let owner = owner(f, i);
        let placement = match f.text("placement") {
            Some("partitioned") => Placement::Partitioned,
            Some("clustered") => Placement::Clustered { cpus: f.int("cluster-cpus").unwrap_or(1) },
            _ => Placement::Global,
        };
        let clustered = matches!(placement, Placement::Clustered { .. });
        if clustered && f.field("cluster-cpus").is_none() {
            let at = f.field("placement").map(|field| field.at);
            let message =
                format!("{owner} is clustered but does not say how many CPUs a cluster has; add cluster-cpus");
            self.found.push(Found { at, message });
        }
        if let (false, Some(field)) = (clustered || f.is_bad("placement"), f.field("cluster-cpus")) {
            let message = format!("cluster-cpus of {owner} needs placement = \"clustered\"; remove it or say so");
            self.found.push(Found { at: Some(field.at), message });
        }
        let fit = f.text("fit").and_then(|word| FITS.iter().position(|fit| *fit == word));
        let fits = [Fit::FirstFit, Fit::BestFit, Fit::WorstFit, Fit::NextFit, Fit::Ilp];
        NodeSpec {
            name: f.text("name").unwrap_or_default().to_owned(),
            cpus: f.int("cpus").unwrap_or(1),
            strategy: self.strategy_ref(f, Part::Node(i), &owner),
            placement,
            fit: fit.map_or(Fit::default(), |fit| fits[fit]),
            cancel: f.bool("cancel").unwrap_or(false),
            laxity_quantum: f.span("laxity-quantum"),
            costs: f.table("costs").map(|costs| Costs {
                switch: costs.span("switch").unwrap_or_default(),
                migrate: costs.span("migrate").unwrap_or_default(),
                release: costs.span("release").unwrap_or_default(),
                tick: costs.span("tick").unwrap_or_default(),
                tick_period: costs.span("tick-period").unwrap_or(Costs::TICK_PERIOD_DEFAULT),
                interrupt: costs.span("interrupt").unwrap_or_default(),
                interrupt_period: costs.span("interrupt-period").unwrap_or(Costs::INTERRUPT_PERIOD_DEFAULT),
                ordinary: costs.span("ordinary").unwrap_or_default(),
                ordinary_period: costs.span("ordinary-period").unwrap_or(Costs::ORDINARY_PERIOD_DEFAULT),
                latency: costs.span("latency").unwrap_or_default(),
            }),
            link: f.table("link").map(link),
            arrivals: self.arrivals(f, &owner),
            receive: f.table("receive").and_then(table_task),
            send: f.table("send").and_then(table_task),
            clock_steps: clock_steps(f),
        }
    }

    /// How a node learns of messages. `interrupt` goes with `arrivals = "interrupt"` and nothing else.
    fn arrivals(&mut self, f: &Fields, owner: &str) -> MessageArrivals {
        let interrupts = f.text("arrivals") == Some("interrupt");
        let (at, cost) = (f.field("arrivals").map(|field| field.at), f.field("interrupt"));
        if interrupts && cost.is_none() && !f.is_bad("interrupt") {
            let message = format!("{owner} has arrivals = \"interrupt\" and no cost of a message; add interrupt");
            self.found.push(Found { at, message });
        }
        if let (false, Some(field)) = (interrupts || f.is_bad("arrivals"), cost) {
            let message = format!("interrupt of {owner} needs arrivals = \"interrupt\"; remove it or say so");
            self.found.push(Found { at: Some(field.at), message });
        }
        match f.text("arrivals") {
            Some("interrupt") => {
                // The stand-in for a missing cost makes no error of its own.
                MessageArrivals::Interrupt { cost: f.span("interrupt").unwrap_or(Span::from_ns(1)) }
            }
            Some("cyclic") => MessageArrivals::Cyclic,
            _ => MessageArrivals::Table,
        }
    }

    fn strategy(&mut self, i: usize, f: &Fields) -> Strategy {
        let owner = owner(f, i);
        let levels = f.tables("level").enumerate();
        let levels =
            levels.map(|(j, level)| self.level(Part::Level(i, j), level, &format!("level {} of {owner}", j + 1)));
        Strategy { name: f.text("name").unwrap_or_default().to_owned(), levels: levels.collect() }
    }

    fn level(&mut self, part: Part, f: &Fields, owner: &str) -> Level {
        let filter = match f.value("tasks") {
            Some(Val::List(names)) => {
                let mut all = Vec::with_capacity(names.len());
                for (name, at) in names {
                    let Val::Text(name) = name else { continue };
                    self.resolve(NameKind::Task, name, part, "tasks", owner, *at);
                    all.push(name.clone());
                }
                Filter::Named(all)
            }
            Some(Val::Table(wanted)) => Filter::Where {
                criticality: wanted.text("criticality").map(criticality),
                importance: wanted.int("importance"),
                priority: wanted.int("priority"),
            },
            _ => Filter::Rest,
        };
        let mut shift = BTreeMap::new();
        if let Some(Val::Map(map)) = f.value("shift") {
            for (name, value, at) in map {
                self.resolve(NameKind::Task, name, part, "shift", owner, *at);
                let value = match value {
                    Val::Shift(value) => *value,
                    _ => Lateness::ZERO,
                };
                shift.insert(name.clone(), value);
            }
        }
        let discipline = match f.text("discipline").and_then(|word| DISCIPLINES.iter().position(|d| *d == word)) {
            None | Some(0) => Discipline::Fifo,
            Some(1) => Discipline::Deadline,
            Some(2) => Discipline::Laxity,
            Some(_) => Discipline::Gel { shift },
        };
        let is_gel = matches!(discipline, Discipline::Gel { .. });
        if let (false, Some(field), Some(name)) = (is_gel, f.field("shift"), f.text("discipline")) {
            let message = format!("shift of {owner} means nothing to the discipline \"{name}\"; it belongs to \"gel\"");
            self.found.push(Found { at: Some(field.at), message });
        }
        Level {
            filter,
            split: match f.text("split") {
                Some("priority") => Split::Priority,
                Some("period") => Split::Period,
                Some("deadline") => Split::Deadline,
                Some("criticality") => Split::Criticality,
                Some("importance") => Split::Importance,
                _ => Split::None,
            },
            discipline,
            preemptive: f.bool("preemptive").unwrap_or(true),
            late: f.text("late").map(late).unwrap_or_default(),
            importance_ties: f.text("ties") == Some("importance"),
        }
    }

    fn mode(&mut self, (i, owner): (usize, &str), f: &Fields, nodes: usize) -> Mode {
        if let Some((key, field)) = ["server", "period", "budget"].iter().find_map(|key| Some((key, f.field(key)?))) {
            let message = format!("{owner} has a {key} but no component; name the component whose server changes");
            self.found.push(Found { at: Some(field.at), message });
        }
        Mode {
            node: self.node_ref(f, Part::Mode(i), owner, nodes, None),
            at: Time::ZERO.saturating_add(f.span("at").unwrap_or_default()),
            strategy: self.strategy_ref(f, Part::Mode(i), owner),
        }
    }

    /// `None` in a file without components.
    fn switch(
        &mut self,
        (i, owner): (usize, &str),
        f: &Fields,
        nodes: &[NodeSpec],
        components: &[Component],
    ) -> Option<ServerSwitch> {
        let part = Part::Switch(i);
        let at = f.field("component").map_or(f.at, |field| field.at);
        let name = f.text("component").unwrap_or_default();
        let component = self.resolve(NameKind::Component, name, part, "component", owner, at);
        let node = component.and_then(|id| nodes.get(components.get(id as usize)?.node.index()));
        if let (Some(field), Some(node)) = (f.field("node"), node)
            && f.text("node").is_some_and(|name| name != node.name)
        {
            let message = format!("component \"{name}\" lives on node \"{}\"; leave the node out", node.name);
            self.found.push(Found { at: Some(field.at), message });
        }
        if f.valid && ["server", "period", "budget"].iter().all(|key| f.field(key).is_none()) {
            let message =
                format!("{owner} changes nothing of component \"{name}\"; give it a server, period or budget");
            self.found.push(Found { at: Some(f.at), message });
        }
        (!components.is_empty()).then(|| ServerSwitch {
            component: ComponentId(component.unwrap_or(0)),
            at: Time::ZERO.saturating_add(f.span("at").unwrap_or_default()),
            server: f.text("server").and_then(rule),
            period: f.span("period"),
            budget: f.span("budget"),
        })
    }

    fn component(&mut self, i: usize, f: &Fields, nodes: usize) -> Component {
        let owner = owner(f, i);
        let part = Part::Component(i);
        let auto = |key: &str| f.span(key).map_or(Auto::Auto, Auto::Value);
        let parent = f.text("parent").filter(|parent| *parent != "root");
        let parent_at = f.field("parent").map_or(f.at, |field| field.at);
        Component {
            name: f.text("name").unwrap_or_default().to_owned(),
            node: self.node_ref(f, part, &owner, nodes, None),
            parent: parent.and_then(|parent| {
                self.resolve(NameKind::Component, parent, part, "parent", &owner, parent_at).map(ComponentId)
            }),
            strategy: self.strategy_ref(f, part, &owner),
            server: f.text("server").and_then(rule).unwrap_or(ServerRule::Ptps),
            period: auto("period"),
            budget: auto("budget"),
            quantum: f.span("quantum"),
            cpus: f.int("cpus").unwrap_or(1),
            server_cpus: ints(f, "server-cpus"),
            priority: f.int("priority"),
            threads: self.threads(f, &owner),
        }
    }

    fn threads(&mut self, f: &Fields, owner: &str) -> Option<Threads> {
        let (text, field) = (f.text("threads")?, f.field("threads")?);
        Threads::parse(text)
            .map_err(|why| {
                let message = format!("threads \"{text}\" of {owner}: {why}");
                self.found.push(Found { at: Some(field.at), message });
            })
            .ok()
    }

    fn task(&mut self, i: usize, f: &Fields, nodes: usize, components: &[Component]) -> Task {
        let owner = owner(f, i);
        let part = Part::Task(i);
        let component = f.text("component").and_then(|name| {
            let at = f.field("component").map_or(f.at, |field| field.at);
            self.resolve(NameKind::Component, name, part, "component", &owner, at).map(ComponentId)
        });
        let inherited = match component {
            Some(id) => Some(components[id.index()].node),
            None => (f.field("component").is_some()).then_some(NodeId(0)),
        };
        let node = self.node_ref(f, part, &owner, nodes, inherited);
        let mut after = Vec::new();
        for (name, at) in f.list("after") {
            let Val::Text(name) = name else { continue };
            after.extend(self.resolve(NameKind::Task, name, part, "after", &owner, *at).map(TaskId));
        }
        let period = f.span("period").unwrap_or(Span::from_ns(1));
        Task {
            name: f.text("name").unwrap_or_default().to_owned(),
            node,
            component,
            cpus: f.field("cpus").map(|_| self.cpus(f, &owner)),
            period,
            // A successor's period is not known yet; `inherit_periods` sets both.
            deadline: f.span("deadline").unwrap_or(period),
            offset: f.span("offset").unwrap_or_default(),
            jitter: f.span("jitter").unwrap_or_default(),
            wcet: f.span("wcet").unwrap_or(Span::from_ns(1)),
            blocking: f.span("blocking").unwrap_or_default(),
            exec: f.table("exec").map_or(Exec::Wcet, exec),
            arrival: match f.value("arrival") {
                Some(Val::Text(word)) if word == "sporadic" => Arrival::Sporadic,
                Some(Val::Table(fields)) => arrival(fields),
                _ => Arrival::Periodic,
            },
            criticality: f.text("criticality").map(criticality).unwrap_or_default(),
            criticality_stated: f.text("criticality") == Some("high"),
            importance: f.int("importance").unwrap_or(0),
            priority: f.int("priority"),
            late: f.text("late").map(late),
            cancel: f.bool("cancel"),
            preemption: self.preemption(f, &owner),
            wss: size(f, "wss"),
            after,
        }
    }

    fn preemption(&mut self, f: &Fields, owner: &str) -> Preemption {
        match (f.span("final-section"), f.field("sections")) {
            (Some(_), Some(field)) => {
                let message = format!(
                    "{owner} has a final-section and sections; the last section is the final one: keep one key"
                );
                self.found.push(Found { at: Some(field.at), message });
                Preemption::Anywhere
            }
            (Some(last), None) => Preemption::Until(last),
            (None, Some(_)) => Preemption::Between(spans(f, "sections")),
            (None, None) => Preemption::Anywhere,
        }
    }

    fn cpus(&mut self, f: &Fields, owner: &str) -> CpuSet {
        let mut cpus = CpuSet::EMPTY;
        for (value, at) in f.list("cpus") {
            let Val::Int(cpu) = value else { continue };
            if cpus.contains(*cpu) {
                let message = format!("cpus of {owner} names CPU {cpu} twice; once is enough");
                self.found.push(Found { at: Some(*at), message });
            }
            cpus.insert(*cpu);
        }
        cpus
    }

    /// Gives every successor the period of its sources, in the order of the chains; tasks in a
    /// cycle keep what they have.
    fn inherit_periods(&mut self, tasks: &mut [Task]) {
        let mut successors: Vec<Vec<u32>> = vec![Vec::new(); tasks.len()];
        let mut waiting: Vec<usize> = vec![0; tasks.len()];
        for (i, task) in tasks.iter().enumerate() {
            waiting[i] = task.after.len();
            for before in &task.after {
                successors[before.index()].push(i as u32);
            }
        }
        let has_deadline: Vec<bool> = self.file.tables("task").map(|f| f.field("deadline").is_some()).collect();
        let mut ready: Vec<usize> = (0..tasks.len()).filter(|i| waiting[*i] == 0).collect();
        while let Some(i) = ready.pop() {
            if let Some(first) = tasks[i].after.first() {
                tasks[i].period = tasks[first.index()].period;
                if !has_deadline[i] {
                    tasks[i].deadline = tasks[i].period;
                }
            }
            for next in std::mem::take(&mut successors[i]) {
                let next = next as usize;
                waiting[next] -= 1;
                if waiting[next] == 0 {
                    ready.push(next);
                }
            }
        }
    }

    fn flow(&mut self, i: usize, f: &Fields) -> Flow {
        let owner = owner(f, i);
        let mut path = Vec::new();
        for (name, at) in f.list("path") {
            let Val::Text(name) = name else { continue };
            path.extend(self.resolve(NameKind::Node, name, Part::Flow(i), "path", &owner, *at).map(NodeId));
        }
        let (period, wcet) = (f.span("period").unwrap_or(Span::from_ns(1)), f.span("wcet").unwrap_or(Span::from_ns(1)));
        Flow {
            name: f.text("name").unwrap_or_default().to_owned(),
            path,
            reply: f.bool("reply").unwrap_or(false),
            period,
            wcet,
            deadline: f.span("deadline").unwrap_or(period),
            send_gap: f.span("send-gap").unwrap_or(period),
            hop_wcet: f.span("hop-wcet").unwrap_or(wcet),
            size: size(f, "size"),
            hop_deadlines: spans(f, "hop-deadlines"),
        }
    }

    fn network(&mut self, i: usize, f: &Fields) -> Network {
        let owner = owner(f, i);
        let mut end = |key: &'static str| {
            let name = f.text(key)?;
            let at = f.field(key).map_or(f.at, |field| field.at);
            self.resolve(NameKind::Node, name, Part::Network(i), key, &owner, at).map(NodeId)
        };
        let (from, to) = (end("from"), end("to"));
        let delay = match f.text("delay") {
            Some(_) => Auto::Auto,
            None => Auto::Value(pair(f, "delay").unwrap_or_default()),
        };
        let mut through = Vec::new();
        for (name, at) in f.list("through") {
            let Val::Text(name) = name else { continue };
            through.extend(self.resolve(NameKind::Port, name, Part::Network(i), "through", &owner, *at).map(PortId));
        }
        let loss = match f.value("loss") {
            Some(Val::Probability(loss)) => *loss,
            _ => Probability::default(),
        };
        let actual_delay = f.table("actual-delay").map(actual_delay).unwrap_or_default();
        Network { from, to, delay, actual_delay, loss, through }
    }
}
