//! Random valid Systems with every feature of the file, for property tests.
//!
//! A System is decoded from a list of numbers, each of which makes one choice. Zero is the simplest choice and stands
//! where the list has ended, so that test tools shrink a failing list to a small System.

use std::collections::{BTreeMap, BTreeSet};

use crate::cpus::CpuSet;
use crate::plan::Plan;
use crate::strategy::{Builtin, Discipline, Filter, Late, Level, Split, Strategy};
use crate::system::{
    ActualDelay, Arrival, Auto, Background, Bucket, Clock, ClockStep, Component, ComponentId, Costs, Criticality,
    Cross, Exec, Fit, Flow, Link, MessageArrivals, Mode, Network, NodeId, NodeSpec, Placement, Port, PortId,
    Preemption, ServerRule, ServerSwitch, StrategyId, StrategyRef, System, TableTask, Task, TaskId, Trace,
};
use crate::threads::Threads;
use crate::time::{Lateness, Span, Time};
use crate::units::{Bytes, Probability, Rate};

/// The System that a list of choices stands for; [`crate::file::validate`] accepts it.
pub(crate) fn system_from(choices: &[u64]) -> System {
    Tape { choices: choices.iter() }.system()
}

/// Random valid Systems; about half of the lists make small ones.
pub(crate) fn systems() -> impl proptest::strategy::Strategy<Value = System> {
    use proptest::prelude::{any, prop};
    use proptest::strategy::Strategy as _;
    prop::collection::vec(any::<u64>(), 0..600).prop_map(|choices| system_from(&choices))
}

struct Tape<'a> {
    choices: std::slice::Iter<'a, u64>,
}

impl Tape<'_> {
    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.choices.next().copied().unwrap_or(0) % n.max(1)
    }
    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }
    fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Up to `most`, of any number of digits; zero only where asked for.
    fn span(&mut self, zero: bool, most: Span) -> Span {
        let round = self.pick(&[1_000_000, 1, 1_000, 1_000_000_000, 999, 3_600_000_000_000]);
        let ns =
            (self.below(2_000).saturating_mul(round) + self.pick(&[0, 0, 0, 1, 500, 123_456_789])).min(most.as_ns());
        Span::from_ns(if zero { ns } else { ns.max(1) })
    }
    fn time(&mut self, zero: bool) -> Span {
        self.span(zero, Span::FILE_MAX)
    }

    fn name(&mut self, used: &mut BTreeSet<String>, index: usize) -> String {
        let stem = self.pick(&[
            "a",
            "video",
            "\u{b5}-t\u{e4}sk",
            "quo\"te",
            "back\\slash",
            "dot.ted",
            " blank ",
            "#[x]",
            "edf",
            "\u{1f600}",
        ]);
        let name = if index == 0 && stem == "a" { stem.to_owned() } else { format!("{stem}{index}") };
        used.insert(name.clone());
        name
    }

    fn strategy_ref(&mut self, own: usize) -> StrategyRef {
        if own > 0 && self.flip() {
            return StrategyRef::Own(StrategyId(self.index(own) as u32));
        }
        StrategyRef::Builtin(self.pick(&[
            Builtin::Edf,
            Builtin::Rm,
            Builtin::Dm,
            Builtin::Fp,
            Builtin::Mlf,
            Builtin::Muf,
            Builtin::RmsMlf,
            Builtin::Fifo,
        ]))
    }

    fn system(&mut self) -> System {
        let mut used = BTreeSet::new();
        let own = self.index(3);
        let nodes: Vec<NodeSpec> = (0..1 + self.index(3)).map(|i| self.node(i, own, &mut used)).collect();
        let components = self.components(&nodes, own, &mut used);
        let tasks = self.tasks(&nodes, &components, &mut used);
        let strategies = (0..own).map(|i| self.strategy(i, &tasks, &mut used)).collect();
        let mut modes: Vec<Mode> = Vec::new();
        for _ in 0..self.index(3) {
            let (node, at) = (NodeId(self.index(nodes.len()) as u32), Time::ZERO + self.time(true));
            if modes.iter().all(|mode| (mode.node, mode.at) != (node, at)) {
                modes.push(Mode { node, at, strategy: self.strategy_ref(own) });
            }
        }
        let switches = self.switches(&nodes, &components);
        let flows = (0..self.index(3)).map(|i| self.flow(i, nodes.len(), &mut used)).collect();
        let ports: Vec<Port> = (0..self.index(3)).map(|i| self.port(i, &mut used)).collect();
        let networks = self.networks(nodes.len(), ports.len());
        let name = if self.flip() { "system".to_owned() } else { "a # name".to_owned() };
        let clock = Clock {
            drift_ppm: self.pick(&[0, 50, Clock::DRIFT_PPM_MAX]),
            offset: Span::ZERO,
            error: if self.flip() { self.time(true) } else { Span::ZERO },
            sync: self.flip().then(|| TableTask { cost: None, ..self.table_task() }),
        };
        let notes = if self.flip() { Vec::new() } else { vec!["a \"guess\"".to_owned(), "b\\".to_owned()] };
        let mut system = System {
            name,
            nodes,
            strategies,
            modes,
            switches,
            components,
            tasks,
            flows,
            ports,
            networks,
            clock,
            notes,
        };
        take_out_flows(&mut system);
        connect(&mut system);
        // The last draw: so it changes no other.
        if self.flip() {
            system.clock.offset = self.time(true);
        }
        if self.flip() {
            system.nodes[0].clock_steps = self.clock_steps();
        }
        system
    }

    /// A step back, and perhaps one ahead.
    fn clock_steps(&mut self) -> Vec<ClockStep> {
        let at = self.time(false);
        let back = self.span(false, at).as_ns() as i64;
        let mut steps = vec![ClockStep { at: Time::ZERO + at, by: Lateness::from_ns(-back) }];
        if at < Span::FILE_MAX && self.flip() {
            steps.push(ClockStep { at: Time::ZERO + Span::FILE_MAX, by: Lateness::from_ns(1) });
        }
        steps
    }

    fn switches(&mut self, nodes: &[NodeSpec], components: &[Component]) -> Vec<ServerSwitch> {
        let mut switches: Vec<ServerSwitch> = Vec::new();
        for _ in 0..if components.is_empty() { 0 } else { self.index(3) } {
            let component = self.index(components.len());
            let at = Time::ZERO + self.time(true);
            let of = &components[component];
            let around = of.parent.map(|parent| components[parent.index()].cpus);
            let (id, server) = (ComponentId(component as u32), Some(self.rule(&nodes[of.node.index()], around)));
            if switches.iter().all(|switch| (switch.component, switch.at) != (id, at)) {
                switches.push(ServerSwitch { component: id, at, server, period: None, budget: None });
            }
        }
        switches
    }

    fn node(&mut self, i: usize, own: usize, used: &mut BTreeSet<String>) -> NodeSpec {
        let cpus = self.pick(&[1, 2, 4, 3, 64, 65, CpuSet::CPUS_MAX]);
        let name = if i == 0 && self.flip() { "local".to_owned() } else { self.name(used, i) };
        let mut node = NodeSpec::new(&name, cpus, self.strategy_ref(own));
        node.placement = match self.below(3) {
            0 => Placement::Global,
            1 => Placement::Partitioned,
            _ => Placement::Clustered { cpus: 1 + self.below(u64::from(cpus)) as u32 },
        };
        node.fit = self.pick(&[Fit::WorstFit, Fit::FirstFit, Fit::BestFit, Fit::NextFit, Fit::Ilp]);
        node.cancel = self.flip();
        node.laxity_quantum = self.flip().then(|| self.time(false));
        if self.flip() {
            let tick_period = if self.flip() { Costs::TICK_PERIOD_DEFAULT } else { self.time(false) };
            let tick = self.span(true, Span::from_ns(tick_period.as_ns() - 1));
            let interrupt_period = self.time(false);
            let interrupt = self.span(true, Span::from_ns(interrupt_period.as_ns() - 1));
            let latency = self.time(true);
            let ordinary_period = if self.flip() { Costs::ORDINARY_PERIOD_DEFAULT } else { self.time(false) };
            let ordinary = self.span(true, Span::from_ns(ordinary_period.as_ns() - 1));
            let costs = Costs {
                switch: self.time(true),
                migrate: self.time(true),
                release: self.time(true),
                tick,
                tick_period,
                interrupt,
                interrupt_period,
                ordinary,
                ordinary_period,
                latency,
            };
            let fitting = [costs, Costs { ordinary: Span::ZERO, ..costs }];
            let fitting = fitting.into_iter().find(Costs::leaves_time);
            node.costs = Some(fitting.unwrap_or(Costs { ordinary: Span::ZERO, interrupt: Span::ZERO, ..costs }));
        }
        node.link = self.flip().then(|| self.link());
        node.receive = self.flip().then(|| self.table_task());
        node.send = self.flip().then(|| self.table_task());
        if node.receive.is_none() && node.send.is_none() && self.flip() {
            node.arrivals = MessageArrivals::Interrupt { cost: self.time(false) };
        }
        node
    }

    fn link(&mut self) -> Link {
        let rate = Rate::from_bps(self.pick(&[1_000_000_000, 1, 2_500, 3_000_000, u64::MAX]));
        // No message is larger than this.
        let burst = Bytes::new(self.pick(&[1 << 20, 1 << 40]));
        let part = |random: &mut Self| Rate::from_bps(random.pick(&[1, rate.as_bps()]));
        let bucket = |random: &mut Self| random.flip().then(|| Bucket { burst, rate: part(random) });
        Link {
            rate,
            edf: self.flip(),
            late: self.pick(&[Late::Continue, Late::Drop, Late::Demote]),
            bucket: bucket(self),
            replies: bucket(self),
            background: self.flip().then(|| Background {
                size: Bytes::new(self.pick(&[1, 1_538])),
                rate: self.flip().then(|| part(self)),
            }),
        }
    }

    fn table_task(&mut self) -> TableTask {
        let period = self.time(false);
        let wcet = self.span(false, period);
        TableTask { period, wcet, cost: self.flip().then(|| self.span(false, wcet)) }
    }

    fn components(&mut self, nodes: &[NodeSpec], own: usize, used: &mut BTreeSet<String>) -> Vec<Component> {
        let mut components: Vec<Component> = Vec::new();
        for i in 0..self.index(4) {
            // A parent stands before or after its child in the file: `later` is set once all are there.
            let parent = if i > 0 && self.flip() { Some(ComponentId(self.index(i) as u32)) } else { None };
            let node = match parent {
                Some(parent) => components[parent.index()].node,
                None => NodeId(self.index(nodes.len()) as u32),
            };
            let period = self.flip().then(|| self.time(false));
            let most = period.unwrap_or(Span::FILE_MAX);
            let auto = |span: Option<Span>| span.map_or(Auto::Auto, Auto::Value);
            let room = parent.map_or(nodes[node.index()].cpus, |parent| components[parent.index()].cpus);
            let cpus = if self.flip() { 1 } else { 1 + self.below(u64::from(room)) as u32 };
            let budget = Span::from_ns(most.as_ns().saturating_mul(u64::from(cpus)).min(Span::FILE_MAX.as_ns()));
            components.push(Component {
                name: self.name(used, i),
                node,
                parent,
                strategy: self.strategy_ref(own),
                server: self.rule(&nodes[node.index()], parent.map(|parent| components[parent.index()].cpus)),
                period: auto(period),
                budget: if self.flip() { Auto::Value(self.span(false, budget)) } else { Auto::Auto },
                quantum: self.flip().then(|| self.span(false, most)),
                cpus,
                server_cpus: self.server_cpus(&nodes[node.index()], parent, cpus),
                // Strategies by priority need one of every server.
                priority: Some(self.pick(&[1, 2, u32::MAX])),
                threads: None,
            });
        }
        for i in 0..components.len() {
            let is_outer = components.iter().any(|inner| inner.parent == Some(ComponentId(i as u32)));
            if !is_outer && self.flip() {
                let at = i as u32 + 1;
                let each =
                    [Threads::Pid(at), Threads::Cgroup(format!("/g{at}")), Threads::Unit(format!("u{at}.service"))];
                components[i].threads = Some(each[self.index(each.len())].clone());
            }
        }
        components
    }

    /// The rule of a server among others on CPUs of a node, or on so many of a component.
    fn rule(&mut self, node: &NodeSpec, around: Option<u32>) -> ServerRule {
        let cpus = around.or_else(|| node.clusters().iter().map(CpuSet::len).max()).unwrap_or(1);
        let last = if cpus > 1 { ServerRule::ALL.len() - 1 } else { ServerRule::ALL.len() };
        self.pick(&ServerRule::ALL[..last])
    }

    fn server_cpus(&mut self, node: &NodeSpec, parent: Option<ComponentId>, cpus: u32) -> Vec<u32> {
        if parent.is_some() || node.placement == Placement::Global || self.flip() {
            return Vec::new();
        }
        (0..cpus).map(|_| self.below(u64::from(node.cpus)) as u32).collect()
    }

    fn tasks(&mut self, nodes: &[NodeSpec], components: &[Component], used: &mut BTreeSet<String>) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        for i in 0..self.index(6) {
            let component =
                (!components.is_empty() && self.flip()).then(|| ComponentId(self.index(components.len()) as u32));
            let node = match component {
                Some(component) => components[component.index()].node,
                None => NodeId(self.index(nodes.len()) as u32),
            };
            let mut task =
                Task { node, component, ..Task::periodic(&self.name(used, i), self.time(false), self.time(false)) };
            let before: Vec<usize> = (0..i).filter(|j| tasks[*j].node == node).collect();
            if !before.is_empty() && self.flip() {
                let first = self.pick(&before);
                task.period = tasks[first].period;
                task.after = vec![TaskId(first as u32)];
                let others = before.iter().filter(|j| **j != first && tasks[**j].period == task.period);
                task.after.extend(others.take(self.index(3)).map(|j| TaskId(*j as u32)));
            } else {
                task.offset = self.time(true);
                task.jitter = self.time(true);
                task.arrival = match self.below(4) {
                    0 => Arrival::Periodic,
                    1 => Arrival::Sporadic,
                    2 => Arrival::Pmf(self.pmf()),
                    _ => Arrival::Trace(self.trace()),
                };
            }
            task.deadline = if self.flip() { self.time(false) } else { task.period };
            task.blocking = self.time(true);
            task.exec = match self.below(4) {
                0 => Exec::Wcet,
                1 => {
                    let max = self.time(false);
                    Exec::Uniform { min: self.span(false, max), max }
                }
                2 => Exec::Pmf(self.pmf()),
                _ => Exec::Trace(self.trace()),
            };
            let cpus = nodes[node.index()].cpus;
            if self.flip() {
                let mut set: CpuSet = (0..self.index(3)).map(|_| self.below(u64::from(cpus)) as u32).collect();
                set.insert(self.below(u64::from(cpus)) as u32);
                let (of, among) = (&nodes[node.index()], |component: &Component| component.node == node);
                task.cpus = Some(match task.component {
                    Some(_) => CpuSet::first(cpus),
                    None if components.iter().any(among) => self.pick(&of.clusters()),
                    None => set,
                });
            }
            task.criticality = self.pick(&[Criticality::High, Criticality::Low]);
            if task.criticality == Criticality::Low {
                task.cancel = self.pick(&[None, Some(false), Some(true)]);
            }
            task.importance = self.pick(&[0, 1, u32::MAX]);
            task.criticality_stated = task.criticality == Criticality::High && task.importance == 1;
            // Strategies by priority need one of every task.
            task.priority = Some(self.pick(&[1, 2, 99, u32::MAX]));
            task.late = self.pick(&[None, Some(Late::Continue), Some(Late::Drop), Some(Late::Demote)]);
            task.preemption = match self.below(3) {
                0 => Preemption::Anywhere,
                1 => Preemption::Until(self.span(false, task.wcet)),
                _ => {
                    let first = self.span(true, task.wcet);
                    let lengths = [first, task.wcet.saturating_sub(first)];
                    Preemption::Between(lengths.into_iter().filter(|length| !length.is_zero()).collect())
                }
            };
            task.wss = Bytes::new(self.pick(&[0, 1, 1 << 10, 3 << 20, 5 << 30, 1_000, u64::MAX]));
            tasks.push(task);
        }
        // Successors may stand before their predecessors: reversing the list keeps it valid.
        if self.flip() {
            tasks.reverse();
            let last = tasks.len() as u32;
            for before in tasks.iter_mut().flat_map(|task| &mut task.after) {
                before.0 = last - 1 - before.0;
            }
        }
        tasks
    }

    fn trace(&mut self) -> Trace {
        Trace { path: self.pick(&["a.csv", "/tmp/x y.csv", "..\\\"q\".csv"]).to_owned(), ..Trace::default() }
    }

    fn pmf(&mut self) -> Vec<(Span, Probability)> {
        let mut left = Probability::ONE.billionths();
        let mut pmf = Vec::new();
        for _ in 0..self.index(3) {
            let part = self.pick(&[0, 1, 500_000_000, 123_456_789, 100_000_000]).min(left);
            left -= part;
            pmf.push((self.time(false), Probability::from_billionths(part).unwrap_or_default()));
        }
        pmf.push((self.time(false), Probability::from_billionths(left).unwrap_or_default()));
        pmf
    }

    fn strategy(&mut self, i: usize, tasks: &[Task], used: &mut BTreeSet<String>) -> Strategy {
        let mut levels: Vec<Level> = Vec::new();
        for _ in 0..self.index(3) {
            let filter = if !tasks.is_empty() && self.flip() {
                let from = self.index(tasks.len());
                let names = tasks[from..].iter().take(1 + self.index(3)).map(|task| task.name.clone());
                Filter::Named(names.collect())
            } else {
                Filter::Where {
                    criticality: Some(self.pick(&[Criticality::High, Criticality::Low])),
                    importance: self.flip().then(|| self.pick(&[0, 7])),
                    priority: self.flip().then(|| self.pick(&[1, 9])),
                }
            };
            levels.push(self.level(filter, tasks));
        }
        levels.push(self.level(Filter::Rest, tasks));
        // The name of a named strategy is taken.
        Strategy { name: format!("own {}", self.name(used, i)), levels }
    }

    fn level(&mut self, filter: Filter, tasks: &[Task]) -> Level {
        let discipline = match self.below(4) {
            0 => Discipline::Fifo,
            1 => Discipline::Deadline,
            2 => Discipline::Laxity,
            _ => {
                let mut shift = BTreeMap::new();
                for task in tasks.iter().take(self.index(3)) {
                    let ns = self.time(true).as_ns() as i64;
                    shift.insert(task.name.clone(), Lateness::from_ns(if self.flip() { -ns } else { ns }));
                }
                Discipline::Gel { shift }
            }
        };
        Level {
            filter,
            split: self.pick(&[
                Split::None,
                Split::Priority,
                Split::Period,
                Split::Deadline,
                Split::Criticality,
                Split::Importance,
            ]),
            discipline,
            preemptive: !self.flip(),
            late: self.pick(&[Late::Continue, Late::Drop, Late::Demote]),
            importance_ties: self.flip(),
        }
    }

    fn flow(&mut self, i: usize, nodes: usize, used: &mut BTreeSet<String>) -> Flow {
        let mut path = vec![NodeId(self.index(nodes) as u32)];
        for _ in 0..self.index(4) {
            let next = NodeId(self.index(nodes) as u32);
            if path.last() != Some(&next) {
                path.push(next);
            }
        }
        let (period, wcet) = (self.time(false), self.time(false));
        let reply = path.first() != path.last() && self.flip();
        let deadline = if self.flip() { self.time(false) } else { period };
        let hops = path.len() as u64 + u64::from(reply);
        let share = deadline.as_ns() / hops;
        let hop_deadlines =
            if share > 0 && self.flip() { vec![Span::from_ns(share); hops as usize] } else { Vec::new() };
        Flow {
            name: self.name(used, i),
            reply,
            path,
            period,
            wcet,
            deadline,
            send_gap: if self.flip() { self.span(false, period) } else { period },
            hop_wcet: if self.flip() { self.time(false) } else { wcet },
            size: Bytes::new(self.pick(&[400, 0, 1 << 20])),
            hop_deadlines,
        }
    }

    fn port(&mut self, i: usize, used: &mut BTreeSet<String>) -> Port {
        const RATES: [u64; 4] = [1, 1_000, 999_999_999, 10_000_000_000];
        // Cross traffic has a smaller rate than its port.
        let rate = self.index(RATES.len());
        let cross = (rate > 0 && self.flip()).then(|| Cross {
            burst: Bytes::new(self.pick(&[64, 1_538, 64 << 10])),
            rate: Rate::from_bps(RATES[self.index(rate)]),
        });
        Port {
            name: self.name(used, i),
            rate: Rate::from_bps(RATES[rate]),
            latency: if self.flip() { self.time(true) } else { Span::ZERO },
            cross,
            fifo: self.flip(),
        }
    }

    fn actual_delay(&mut self, (min, max): (Span, Span)) -> ActualDelay {
        match self.below(3) {
            0 => ActualDelay::Uniform,
            1 => {
                let mut pmf = self.pmf();
                pmf.iter_mut().for_each(|(delay, _)| *delay = (*delay).clamp(min, max));
                ActualDelay::Pmf(pmf)
            }
            _ => ActualDelay::Trace(self.trace()),
        }
    }

    fn networks(&mut self, nodes: usize, ports: usize) -> Vec<Network> {
        let mut networks: Vec<Network> = Vec::new();
        for _ in 0..self.index(3) {
            let from = self.flip().then(|| NodeId(self.index(nodes) as u32));
            let to = self.flip().then(|| NodeId(self.index(nodes) as u32));
            let delay_max = self.time(true);
            let itself = from.is_some() && from == to;
            if !itself && networks.iter().all(|network| (network.from, network.to) != (from, to)) {
                let delay = (self.span(true, delay_max), delay_max);
                let (delay, actual_delay) = if self.flip() {
                    (Auto::Value(delay), self.actual_delay(delay))
                } else {
                    (Auto::Auto, ActualDelay::Uniform)
                };
                networks.push(Network {
                    from,
                    to,
                    delay,
                    actual_delay,
                    through: (0..ports).filter(|_| self.flip()).map(|port| PortId(port as u32)).collect(),
                    loss: Probability::from_billionths(self.pick(&[0, 1, 10_000_000, 1_000_000_000]))
                        .unwrap_or_default(),
                });
            }
        }
        networks
    }
}

/// Takes out the flows that visit a node whose strategy has no level for their jobs.
fn take_out_flows(system: &mut System) {
    let mut flows = std::mem::take(&mut system.flows);
    flows.retain(|flow| {
        let job = Task::periodic("", flow.period, flow.wcet);
        let modes = system.modes.iter().filter(|mode| flow.path.contains(&mode.node)).map(|mode| mode.strategy);
        let nodes = flow.path.iter().map(|node| system.nodes[node.index()].strategy);
        nodes.chain(modes).all(|strategy| {
            let strategy = system.strategy(strategy);
            Plan::of_tasks(std::iter::once((TaskId(0), &job)), &strategy).is_ok()
        })
    });
    system.flows = flows;
}

/// Gives each leg of a flow one network, or the link of its sender.
fn connect(system: &mut System) {
    let mut legs: Vec<_> = system.flows.iter().flat_map(Flow::legs).collect();
    // Messages of clock.sync go both ways.
    if system.clock.sync.is_some() {
        legs.extend(legs.clone().into_iter().map(|(from, to)| (to, from)));
    }
    let surplus = |system: &System| {
        legs.iter().find_map(|(from, to)| match system.networks_between(*from, *to)[..] {
            [.., _, last] => Some(last),
            _ => None,
        })
    };
    while let Some(network) = surplus(system) {
        system.networks.remove(network.index());
    }
    for (from, _) in legs {
        system.nodes[from.index()].link.get_or_insert(Link::at(Rate::from_bps(1_000_000)));
    }
}
