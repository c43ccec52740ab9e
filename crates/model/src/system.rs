//! The System: what should run, where, by when.
//!
//! Names are resolved to indices here; the file form is [`crate::file`]. A value built by hand is
//! held to the same rules by [`crate::file::validate`].

use std::fmt;
use std::sync::Arc;

use crate::cpus::CpuSet;
use crate::strategy::{Builtin, Late, Strategy};
use crate::time::{Span, Time};
use crate::units::{Bytes, Probability, Rate};

macro_rules! index {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);
        impl $name {
            /// As an index into the System's list.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}
index! {
    /// Position of a node in [`System::nodes`].
    NodeId,
    /// Position of a task in [`System::tasks`], which is the order of the file.
    TaskId,
    /// Position of an own strategy in [`System::strategies`].
    StrategyId,
    /// Position of a component in [`System::components`].
    ComponentId,
    /// Position of a flow in [`System::flows`].
    FlowId,
    /// Position of a port in [`System::ports`].
    PortId,
    /// Position of a network in [`System::networks`].
    NetworkId,
}

/// A whole system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct System {
    /// Its name.
    pub name: String,
    /// The machines; at least one (a file without any has the node "local").
    pub nodes: Vec<NodeSpec>,
    /// Own strategies.
    pub strategies: Vec<Strategy>,
    /// Strategy switches in virtual time.
    pub modes: Vec<Mode>,
    /// Changes of servers in virtual time.
    pub switches: Vec<ServerSwitch>,
    /// Servers with local schedulers.
    pub components: Vec<Component>,
    /// Tasks, in file order, which breaks ties.
    pub tasks: Vec<Task>,
    /// Distributed tasks.
    pub flows: Vec<Flow>,
    /// Output ports of switches.
    pub ports: Vec<Port>,
    /// Links between nodes.
    pub networks: Vec<Network>,
    /// How the nodes' clocks differ.
    pub clock: Clock,
    /// The assumptions of every verdict on this System, in sentences: each verdict repeats them.
    pub notes: Vec<String>,
}

/// A machine (`[[node]]`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Unique name.
    pub name: String,
    /// Number of CPUs, 1 to [`CpuSet::CPUS_MAX`].
    pub cpus: u32,
    /// How its tasks that stand in no component are ordered.
    pub strategy: StrategyRef,
    /// How tasks are bound to CPUs.
    pub placement: Placement,
    /// How a partitioned or clustered node is filled.
    pub fit: Fit,
    /// Whether a noncritical job is omitted at its first dispatch when its WCET exceeds the time left.
    pub cancel: bool,
    /// Grid on which laxities are compared besides releases and completions.
    pub laxity_quantum: Option<Span>,
    /// Overheads, if measured.
    pub costs: Option<Costs>,
    /// Rate of the node's link.
    pub link: Option<Rate>,
    /// The partial-EDF receiving task [HEDF II-A].
    pub receive: Option<TableTask>,
    /// The partial-EDF sending task [HEDF II-A].
    pub send: Option<TableTask>,
}

/// A named strategy or one of the file's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StrategyRef {
    /// One that every file knows.
    Builtin(Builtin),
    /// One of [`System::strategies`].
    Own(StrategyId),
}

/// How tasks are bound to CPUs \[MCS\].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Placement {
    /// Any task on any CPU that its affinity allows.
    Global,
    /// Every task on one CPU.
    Partitioned,
    /// Every task within one cluster of consecutive CPUs; the last cluster may be smaller.
    Clustered {
        /// CPUs in a cluster, at least 1.
        cpus: u32,
    },
}

/// The order in which a partitioner tries bins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Fit {
    /// The first that takes the task.
    FirstFit,
    /// The fullest that takes it.
    BestFit,
    /// The emptiest that takes it.
    #[default]
    WorstFit,
    /// The last one used or a later one.
    NextFit,
    /// Exact, by integer linear programming.
    Ilp,
}

/// Overheads that `check` and `sim` both charge (docs/explanation/check.md, "Costs").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Added to a job's execution each time it is given a CPU (start or resume).
    pub switch: Span,
    /// Added besides when it resumes on another CPU than it last ran on.
    pub migrate: Span,
    /// Added once per job, for its release.
    pub release: Span,
    /// Stolen from the running job at each scheduler tick.
    pub tick: Span,
    /// Distance of ticks on each CPU; 4 ms (HZ=250) unless the file says otherwise. Above `tick`.
    pub tick_period: Span,
    /// Stolen from the running job by interrupts, all that come together.
    pub interrupt: Span,
    /// The least distance of such interrupts on each CPU; 1 ms unless the file says otherwise. The
    /// shares of `interrupt` and `tick` are below one together.
    pub interrupt_period: Span,
    /// The time that ordinary threads may take from the tasks on each CPU in each
    /// `ordinary_period`, anywhere in it.
    pub ordinary: Span,
    /// Periods of equal length on each CPU, one after the other, wherever the first begins; 1 s
    /// unless the file says otherwise. The share of `ordinary` too is counted in what is below one
    /// together.
    pub ordinary_period: Span,
    /// How late a timer releases a job at most: jitter of every task that follows no other, besides its own.
    pub latency: Span,
}

impl Costs {
    /// The tick distance where a file gives none: HZ=250.
    pub const TICK_PERIOD_DEFAULT: Span = Span::from_ms(4);
    /// The distance of interrupts where a file gives none.
    pub const INTERRUPT_PERIOD_DEFAULT: Span = Span::from_ms(1);
    /// The period of ordinary threads where a file gives none: that of the kernel's fair server.
    pub const ORDINARY_PERIOD_DEFAULT: Span = Span::from_s(1);
    /// Nothing costs anything.
    pub const NONE: Costs = Costs {
        switch: Span::ZERO,
        migrate: Span::ZERO,
        release: Span::ZERO,
        tick: Span::ZERO,
        tick_period: Self::TICK_PERIOD_DEFAULT,
        interrupt: Span::ZERO,
        interrupt_period: Self::INTERRUPT_PERIOD_DEFAULT,
        ordinary: Span::ZERO,
        ordinary_period: Self::ORDINARY_PERIOD_DEFAULT,
        latency: Span::ZERO,
    };

    /// Whether ticks, interrupts and ordinary threads leave some time. Shares that miss all of it
    /// by less than 2^-60 count as all.
    #[must_use]
    pub const fn leaves_time(&self) -> bool {
        const ONE: u128 = 1 << 62;
        /// In 2^-62, rounded up; nothing where it costs nothing.
        const fn share(cost: Span, period: Span) -> u128 {
            let (cost, period) = (cost.as_ns() as u128, period.as_ns() as u128);
            if cost == 0 {
                0
            } else if cost >= period {
                ONE
            } else {
                (cost << 62).div_ceil(period)
            }
        }
        let tick = share(self.tick, self.tick_period);
        tick + share(self.interrupt, self.interrupt_period) + share(self.ordinary, self.ordinary_period) < ONE
    }
}

/// A periodic task of the time table above EDF [HEDF II-A].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableTask {
    /// Its period.
    pub period: Span,
    /// Its worst-case execution time, at most the period.
    pub wcet: Span,
    /// Execution per message, at most the WCET: a job handles as many as fit. `None`: the WCET
    /// suffices for all that can wait.
    pub cost: Option<Span>,
}

/// The differences between the clocks of the nodes, and the cost of knowing them (`clock`) [HEDF
/// II-B]. The default is one perfect clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Every clock's rate differs from that of true time by at most this many parts per million, at most
    /// [`Clock::DRIFT_PPM_MAX`]. All times of a node's own tasks, executions too, are by its own clock.
    pub drift_ppm: u32,
    /// How far an instant that is carried from one node's clock to another's is off at most.
    pub error: Span,
    /// The synchronisation job of every node with flows. It runs once a period and exchanges a
    /// message each way with every node at the other end of its flows.
    pub sync: Option<TableTask>,
}

impl Clock {
    /// The largest drift that a file may state: one tenth.
    pub const DRIFT_PPM_MAX: u32 = 100_000;
}

/// A switch of a node's strategy (`[[mode]]`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mode {
    /// The node.
    pub node: NodeId,
    /// When.
    pub at: Time,
    /// The strategy from then on.
    pub strategy: StrategyRef,
}

/// A change of a component's server while it runs (`[[mode]]` with a `component`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerSwitch {
    /// The component.
    pub component: ComponentId,
    /// When it is asked for. It holds from the end of the server's period on.
    pub at: Time,
    /// The rule from then on. `None`: as before, like the next two.
    pub server: Option<ServerRule>,
    /// The period.
    pub period: Option<Span>,
    /// The budget.
    pub budget: Option<Span>,
}

/// A value or `"auto"`, which `size` fills in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Auto<T> {
    /// To be chosen by `size`.
    Auto,
    /// Given.
    Value(T),
}

/// A server with a local scheduler (`[[component]]`) \[CSA\].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// Unique name.
    pub name: String,
    /// The node it lives on.
    pub node: NodeId,
    /// The component around it; `None` is the root.
    pub parent: Option<ComponentId>,
    /// How its tasks and inner components are ordered.
    pub strategy: StrategyRef,
    /// How its budget is kept.
    pub server: ServerRule,
    /// Replenishment period.
    pub period: Auto<Span>,
    /// Budget per period, over all CPUs; at most the period on each.
    pub budget: Auto<Span>,
    /// Granularity of period, budget and decisions.
    pub quantum: Option<Span>,
    /// On how many CPUs it runs at once at most, at least 1.
    pub cpus: u32,
    /// Its servers' priority, where the level around it goes by priority; 1 is the most important.
    pub priority: Option<u32>,
}

impl Component {
    /// A component of the node's root under EDF, on one CPU, everything to be sized.
    #[must_use]
    pub fn new(name: &str, node: NodeId, server: ServerRule) -> Self {
        Component {
            name: name.to_owned(),
            node,
            parent: None,
            strategy: StrategyRef::Builtin(Builtin::Edf),
            server,
            period: Auto::Auto,
            budget: Auto::Auto,
            quantum: None,
            cpus: 1,
            priority: None,
        }
    }

    /// The most budget that it can get in each of these periods: the whole period on each CPU.
    /// `None` on overflow.
    #[must_use]
    pub fn most(&self, period: Span) -> Option<Span> {
        period.as_ns().checked_mul(u64::from(self.cpus)).map(Span::from_ns)
    }
}

/// How a server keeps its budget [CSA III-A, SDD II-A].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServerRule {
    /// Purely time-driven periodic server.
    Ptps,
    /// Work-conserving periodic server.
    Wcps,
    /// Capacity-reclaiming periodic server.
    Crps,
    /// Polling server.
    Polling,
    /// Deferrable server.
    Deferrable,
    /// Sporadic server.
    Sporadic,
    /// Soft constant-bandwidth server.
    Cbs,
    /// Hard constant-bandwidth server.
    CbsHard,
    /// Greedy reclamation of unused bandwidth.
    Grub,
}

impl ServerRule {
    /// All of them.
    pub const ALL: [ServerRule; 9] = [
        ServerRule::Ptps,
        ServerRule::Wcps,
        ServerRule::Crps,
        ServerRule::Polling,
        ServerRule::Deferrable,
        ServerRule::Sporadic,
        ServerRule::Cbs,
        ServerRule::CbsHard,
        ServerRule::Grub,
    ];
    /// The name in a System file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ServerRule::Ptps => "ptps",
            ServerRule::Wcps => "wcps",
            ServerRule::Crps => "crps",
            ServerRule::Polling => "polling",
            ServerRule::Deferrable => "deferrable",
            ServerRule::Sporadic => "sporadic",
            ServerRule::Cbs => "cbs",
            ServerRule::CbsHard => "cbs-hard",
            ServerRule::Grub => "grub",
        }
    }
}

/// The points at which a job of a task may lose its CPU to a more important one, by its received
/// CPU time. A job may be preempted at the start of a section, but not within it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Preemption {
    /// Anywhere.
    #[default]
    Anywhere,
    /// Anywhere but in the last section, of this length: from when less than that is left of its WCET.
    Until(Span),
    /// Only between sections of these lengths, which add up to its WCET.
    Between(Vec<Span>),
}

/// How much a task matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Criticality {
    /// Never cancelled.
    #[default]
    High,
    /// May be cancelled where the node says so.
    Low,
}

/// A task (`[[task]]`). Jobs of one task run in the order of their release, never two at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Unique name.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// The component that it stands in.
    pub component: Option<ComponentId>,
    /// CPUs of the node that it may use; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Period, or minimum inter-arrival time of a sporadic task; of a chain's successor, that of its sources.
    pub period: Span,
    /// Relative to the nominal arrival.
    pub deadline: Span,
    /// Nominal arrival of the first job (zero for a chain's successor).
    pub offset: Span,
    /// A job is released after its nominal arrival by up to this. A job is never released before
    /// an earlier one of the same task.
    pub jitter: Span,
    /// Worst-case execution time, at least 1 ns.
    pub wcet: Span,
    /// The longest section of less important work that can delay it; for analysis.
    pub blocking: Span,
    /// Actual execution times.
    pub exec: Exec,
    /// Actual arrivals.
    pub arrival: Arrival,
    /// Whether it may be cancelled.
    pub criticality: Criticality,
    /// Tie-breaker or level of strategies that use it; larger is more important.
    pub importance: u32,
    /// For fixed priority; 1 is the most important.
    pub priority: Option<u32>,
    /// The rule for its late jobs; `None`: its level's rule.
    pub late: Option<Late>,
    /// Whether its jobs are omitted once they can no longer be in time, if it is of low
    /// criticality; `None`: what its node says.
    pub cancel: Option<bool>,
    /// The points at which its jobs may be preempted.
    pub preemption: Preemption,
    /// Memory that each job touches in a live run.
    pub wss: Bytes,
    /// Job k is released when job k of all of these has completed.
    pub after: Vec<TaskId>,
}

/// Actual execution times of a task's jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Exec {
    /// Always the WCET.
    #[default]
    Wcet,
    /// Uniform over whole nanoseconds, both ends included.
    Uniform {
        /// Shortest.
        min: Span,
        /// Longest.
        max: Span,
    },
    /// One of these with its probability; the probabilities sum to one.
    Pmf(Vec<(Span, Probability)>),
    /// Job k takes value k modulo the number of values.
    Trace(Trace),
}

/// Actual arrivals of a task's jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Arrival {
    /// offset + k * period.
    #[default]
    Periodic,
    /// The first at the offset, the others at distances drawn uniformly from [period, 2 period].
    Sporadic,
    /// The first at the offset, the others at distances drawn from these; the probabilities sum to one.
    Pmf(Vec<(Span, Probability)>),
    /// Nominal arrivals at offset + value k, ascending; none after the last. Loading counts instants from the first,
    /// whose value is then zero.
    Trace(Trace),
}

/// A file of durations: one a line, `#` starts a comment, a number without a unit is nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The path as the System file gives it.
    pub path: String,
    /// The values; empty until loaded (the model itself opens no file).
    pub values: Arc<[Span]>,
}

/// A distributed task (`[[flow]]`) \[HEDF\].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Unique name.
    pub name: String,
    /// The nodes it visits, at least one.
    pub path: Vec<NodeId>,
    /// Whether the last node answers the first.
    pub reply: bool,
    /// T: inter-arrival time on the first node.
    pub period: Span,
    /// C: execution on the first node.
    pub wcet: Span,
    /// D: end to end.
    pub deadline: Span,
    /// T': minimum inter-transmission time, at most the period; default the period.
    pub send_gap: Span,
    /// C': execution on each further node; default the wcet.
    pub hop_wcet: Span,
    /// Size of a message.
    pub size: Bytes,
    /// Relative deadlines of its hops, the first node's first, each from the hop before; empty:
    /// even shares of `deadline`.
    pub hop_deadlines: Vec<Span>,
}

impl Flow {
    /// Its hops: the nodes that run a job of it, in order; with a reply the first node once more.
    pub fn hops(&self) -> impl Iterator<Item = NodeId> + '_ {
        let back = self.path.first().filter(|_| self.reply);
        self.path.iter().chain(back).copied()
    }
}

/// An output port of a switch (`[[port]]`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Unique name.
    pub name: String,
    /// Rate of its line.
    pub rate: Rate,
    /// The longest wait before it sends: for processing, for a less important packet, and on its
    /// line.
    pub latency: Span,
    /// Traffic of others than the flows, as it arrives there.
    pub cross: Option<Cross>,
    /// Whether it serves in the order of arrival; otherwise only messages from one node to another keep their order.
    pub fifo: bool,
}

/// Traffic bounded by (σ, ρ): in any time t at most `burst` + `rate` t.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cross {
    /// σ.
    pub burst: Bytes,
    /// ρ.
    pub rate: Rate,
}

/// Delay and loss between nodes (`[[network]]`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Sending node; `None`: every one.
    pub from: Option<NodeId>,
    /// Receiving node; `None`: every one.
    pub to: Option<NodeId>,
    /// Delay at best and at worst, from the end of the sending job to the receiver's buffer.
    pub delay: Auto<(Span, Span)>,
    /// Probability that a message is lost.
    pub loss: Probability,
    /// Ports in a row, after the sender's link.
    pub through: Vec<PortId>,
}

impl Network {
    /// All pairs of nodes, with that delay at best and at worst, no loss, and no ports.
    #[must_use]
    pub const fn any(delay_min: Span, delay_max: Span) -> Self {
        let (delay, loss) = (Auto::Value((delay_min, delay_max)), Probability::NONE);
        Network { from: None, to: None, delay, loss, through: Vec::new() }
    }
}

impl NodeSpec {
    /// A node of `cpus` CPUs under `strategy`, global, without costs.
    #[must_use]
    pub fn new(name: &str, cpus: u32, strategy: StrategyRef) -> Self {
        NodeSpec {
            name: name.to_owned(),
            cpus,
            strategy,
            placement: Placement::Global,
            fit: Fit::WorstFit,
            cancel: false,
            laxity_quantum: None,
            costs: None,
            link: None,
            receive: None,
            send: None,
        }
    }

    /// The clusters that its placement divides it into, in the order of their CPUs.
    #[must_use]
    pub fn clusters(&self) -> Vec<CpuSet> {
        let size = match self.placement {
            Placement::Global => self.cpus,
            Placement::Partitioned => 1,
            Placement::Clustered { cpus } => cpus,
        }
        .clamp(1, self.cpus.max(1));
        (0..self.cpus).step_by(size as usize).map(|first| CpuSet::range(first, (first + size).min(self.cpus))).collect()
    }
}

impl Task {
    /// A periodic task with an implicit deadline on the first node, everything else at its default.
    #[must_use]
    pub fn periodic(name: &str, period: Span, wcet: Span) -> Self {
        Task {
            name: name.to_owned(),
            node: NodeId(0),
            component: None,
            cpus: None,
            period,
            deadline: period,
            offset: Span::ZERO,
            jitter: Span::ZERO,
            wcet,
            blocking: Span::ZERO,
            exec: Exec::Wcet,
            arrival: Arrival::Periodic,
            criticality: Criticality::High,
            importance: 0,
            priority: None,
            late: None,
            cancel: None,
            preemption: Preemption::Anywhere,
            wss: Bytes::default(),
            after: Vec::new(),
        }
    }

    /// The sections of its jobs that nothing preempts, in order. Each is a range of received CPU
    /// time, and none is empty. If the sections do not add up to the WCET, the last one takes the
    /// difference.
    #[must_use]
    pub fn sections(&self) -> Vec<(Span, Span)> {
        match &self.preemption {
            Preemption::Anywhere => Vec::new(),
            Preemption::Until(last) => vec![(self.wcet.saturating_sub(*last), self.wcet)],
            Preemption::Between(lengths) => {
                let mut sections = Vec::with_capacity(lengths.len());
                let mut from = Span::ZERO;
                for (at, length) in lengths.iter().enumerate() {
                    let to = from.saturating_add(*length).min(self.wcet);
                    let to = if at + 1 == lengths.len() { self.wcet } else { to };
                    if from < to {
                        sections.push((from, to));
                    }
                    from = to;
                }
                sections
            }
        }
    }
}

impl System {
    /// A system of one node "local" with these tasks.
    #[must_use]
    pub fn local(cpus: u32, strategy: Builtin, tasks: Vec<Task>) -> Self {
        System {
            name: "system".to_owned(),
            nodes: vec![NodeSpec::new("local", cpus, StrategyRef::Builtin(strategy))],
            strategies: Vec::new(),
            modes: Vec::new(),
            switches: Vec::new(),
            components: Vec::new(),
            tasks,
            flows: Vec::new(),
            ports: Vec::new(),
            networks: Vec::new(),
            clock: Clock::default(),
            notes: Vec::new(),
        }
    }

    /// How late a job of the task may be released: its jitter, and where a timer releases it, the latency of its node.
    ///
    /// # Panics
    /// If the System has no such task.
    #[must_use]
    pub fn release_jitter(&self, id: TaskId) -> Span {
        let task = &self.tasks[id.index()];
        let costs = self.nodes.get(task.node.index()).and_then(|node| node.costs);
        let latency = costs.filter(|_| task.after.is_empty()).map_or(Span::ZERO, |costs| costs.latency);
        task.jitter.saturating_add(latency)
    }

    /// Whether jobs of a task of this System may be omitted: it is of low criticality, and the task
    /// says so, or its node where it does not.
    #[must_use]
    pub fn may_cancel(&self, task: &Task) -> bool {
        let of_node = || self.nodes.get(task.node.index()).is_some_and(|node| node.cancel);
        task.criticality == Criticality::Low && task.cancel.unwrap_or_else(of_node)
    }

    /// Whether a node may omit jobs of low criticality: its own setting, or a task's, allows it.
    #[must_use]
    pub fn cancels(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|node| node.cancel)
            || self.tasks_of(node).any(|(_, task)| task.cancel == Some(true))
    }

    /// The modes of a node in order of time. The k-th, from 1, starts the node's plan k.
    #[must_use]
    pub fn modes_of(&self, node: NodeId) -> Vec<&Mode> {
        let mut modes: Vec<&Mode> = self.modes.iter().filter(|mode| mode.node == node).collect();
        modes.sort_by_key(|mode| mode.at);
        modes
    }

    /// The strategies of a node's plans: its own, then those of its modes in order of time. Empty if
    /// there is no such node.
    #[must_use]
    pub fn strategies_of(&self, node: NodeId) -> Vec<StrategyRef> {
        let own = self.nodes.get(node.index()).map(|node| node.strategy);
        own.into_iter().chain(self.modes_of(node).into_iter().map(|mode| mode.strategy)).collect()
    }

    /// The tasks of a node in file order.
    pub fn tasks_of(&self, node: NodeId) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks
            .iter()
            .enumerate()
            .filter(move |(_, task)| task.node == node)
            .map(|(i, task)| (TaskId(i as u32), task))
    }

    /// The node of that name.
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(|i| NodeId(i as u32))
    }

    /// The task of that name.
    #[must_use]
    pub fn task_by_name(&self, name: &str) -> Option<TaskId> {
        self.tasks.iter().position(|task| task.name == name).map(|i| TaskId(i as u32))
    }

    /// The strategy behind a reference: a named one is built, an own one cloned.
    #[must_use]
    pub fn strategy(&self, reference: StrategyRef) -> Strategy {
        match reference {
            StrategyRef::Builtin(builtin) => builtin.strategy(),
            StrategyRef::Own(id) => self.strategies[id.index()].clone(),
        }
    }

    /// The name of a strategy as the file writes it.
    #[must_use]
    pub fn strategy_name(&self, reference: StrategyRef) -> &str {
        match reference {
            StrategyRef::Builtin(builtin) => builtin.name(),
            StrategyRef::Own(id) => &self.strategies[id.index()].name,
        }
    }

    /// The least common multiple of all task periods, `None` where it exceeds `u64` or there is no task.
    #[must_use]
    pub fn hyperperiod(&self) -> Option<Span> {
        let mut lcm: Option<u64> = None;
        for period in
            self.tasks.iter().map(|task| task.period.as_ns()).chain(self.flows.iter().map(|f| f.period.as_ns()))
        {
            let so_far = lcm.unwrap_or(1);
            lcm = Some(so_far.checked_mul(period / gcd(so_far, period).max(1))?);
        }
        lcm.map(Span::from_ns)
    }

    /// How long `sim` and `run` go where nothing is said: two hyperperiods, at most 10 s.
    #[must_use]
    pub fn default_duration(&self) -> Span {
        let most = Span::from_s(10);
        self.hyperperiod().and_then(|h| h.checked_mul(2)).map_or(most, |two| two.min(most))
    }

    /// Tasks that end a chain: they come after others and nothing comes after them.
    pub fn chain_sinks(&self) -> impl Iterator<Item = TaskId> {
        let inner: std::collections::BTreeSet<TaskId> =
            self.tasks.iter().flat_map(|task| task.after.iter().copied()).collect();
        self.tasks
            .iter()
            .enumerate()
            .map(|(i, task)| (TaskId(i as u32), task))
            .filter(move |(id, task)| !task.after.is_empty() && !inner.contains(id))
            .map(|(id, _)| id)
    }
}

/// The greatest common divisor; `gcd(a, 0) = a`.
#[must_use]
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Criticality::High => "high",
            Criticality::Low => "low",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_cover_the_node_in_order() {
        let mut node = NodeSpec::new("n", 5, StrategyRef::Builtin(Builtin::Edf));
        assert_eq!(node.clusters(), [CpuSet::first(5)]);
        node.placement = Placement::Clustered { cpus: 2 };
        assert_eq!(node.clusters(), [CpuSet::range(0, 2), CpuSet::range(2, 4), CpuSet::range(4, 5)]);
        node.placement = Placement::Partitioned;
        assert_eq!(node.clusters().len(), 5);
    }

    #[test]
    fn the_default_duration_is_two_hyperperiods_capped() {
        let task = |ms| Task::periodic("t", Span::from_ms(ms), Span::from_ms(1));
        assert_eq!(System::local(1, Builtin::Rm, vec![task(4), task(6)]).default_duration(), Span::from_ms(24));
        assert_eq!(System::local(1, Builtin::Rm, vec![task(9973), task(9967)]).default_duration(), Span::from_s(10));
    }
}
