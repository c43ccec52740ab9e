//! The System: what should run, where, by when.
//!
//! Names are resolved to indices here; the file form is [`crate::file`]. A value built by hand is
//! held to the same rules by [`crate::file::validate`].

use crate::cpus::CpuSet;
pub use crate::criticality::Criticality;
pub use crate::ids::*;
use crate::strategy::{Builtin, Late, Strategy};
pub use crate::task::{Arrival, Exec, Preemption, Task, Trace};
use crate::threads::Threads;
use crate::time::{Lateness, Span, Time};
use crate::units::{Bytes, Probability, Rate};

pub use derived::gcd;

mod derived;

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
    /// Its network link.
    pub link: Option<Link>,
    /// How it learns of messages.
    pub arrivals: MessageArrivals,
    /// The partial-EDF receiving task [HEDF II-A].
    pub receive: Option<TableTask>,
    /// The partial-EDF sending task [HEDF II-A].
    pub send: Option<TableTask>,
    /// Steps of its clock, in ascending order. Only a simulation makes them.
    pub clock_steps: Vec<ClockStep>,
}

/// How a node learns of messages [HEDF I, II-A].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MessageArrivals {
    /// Its receiving and its sending task run periodically above all jobs (partial EDF).
    #[default]
    Table,
    /// Each message interrupts the running job.
    Interrupt {
        /// Time of a message above all jobs, when it arrives and when it is sent.
        cost: Span,
    },
    /// A cyclic executive: slots for receiving, for jobs and for sending in a fixed frame. The frame
    /// is the period of the receiving and the sending task, and their WCETs are their slots.
    Cyclic,
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
    /// How far the clocks of two nodes are apart at the start at most. A node begins when its clock shows
    /// zero. A simulation draws when.
    pub offset: Span,
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

/// A step of a node's clock (`clock-step` of a node). It changes the times in the messages of the node. Releases,
/// executions and modes go by the clock without its steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockStep {
    /// When, on the clock of the node without its steps. Above zero.
    pub at: Time,
    /// By how much. Not zero; negative: back.
    pub by: Lateness,
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

impl<T> Auto<T> {
    /// The value that is given.
    #[must_use]
    pub fn given(self) -> Option<T> {
        if let Auto::Value(value) = self { Some(value) } else { None }
    }
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
    /// A CPU for each of its servers, on a partitioned or clustered node: this CPU or its cluster serves it. Empty:
    /// not placed yet, or elsewhere.
    pub server_cpus: Vec<u32>,
    /// Its servers' priority, where the level around it goes by priority; 1 is the most important.
    pub priority: Option<u32>,
    /// Existing threads that a live run puts into it, instead of threads for its tasks.
    pub threads: Option<Threads>,
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
            server_cpus: Vec::new(),
            priority: None,
            threads: None,
        }
    }

    /// The budgets of its servers, one for each of its CPUs. They are even, but the first ones get what
    /// does not divide. They are whole quanta if period and budget are.
    #[must_use]
    pub fn shares(&self, period: Span, budget: Span) -> Vec<Span> {
        let quantum = self.quantum.map_or(1, Span::as_ns).max(1);
        let is_whole = |span: Span| span.as_ns().is_multiple_of(quantum);
        let quantum = if is_whole(period) && is_whole(budget) { quantum } else { 1 };
        let (quanta, cpus) = (budget.as_ns() / quantum, u64::from(self.cpus.max(1)));
        (0..cpus).map(|at| Span::from_ns((quanta / cpus + u64::from(at < quanta % cpus)) * quantum)).collect()
    }

    /// The most budget that it can get in each of these periods: the whole period on each CPU.
    /// `None` on overflow.
    #[must_use]
    pub fn most(&self, period: Span) -> Option<Span> {
        period.as_ns().checked_mul(u64::from(self.cpus)).map(Span::from_ns)
    }
}

named! {
    /// How a server keeps its budget [CSA III-A, SDD II-A].
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum ServerRule {
        /// Purely time-driven periodic server.
        Ptps => "ptps",
        /// Work-conserving periodic server.
        Wcps => "wcps",
        /// Capacity-reclaiming periodic server.
        Crps => "crps",
        /// Polling server.
        Polling => "polling",
        /// Deferrable server.
        Deferrable => "deferrable",
        /// Sporadic server.
        Sporadic => "sporadic",
        /// Soft constant-bandwidth server.
        Cbs => "cbs",
        /// Hard constant-bandwidth server.
        CbsHard => "cbs-hard",
        /// Greedy reclamation of unused bandwidth.
        Grub => "grub",
    }
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

    /// From where to where its messages go, in order.
    pub fn legs(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        self.hops().zip(self.hops().skip(1))
    }
}

/// A node's network link. All but its rate counts only where delays are [`Auto::Auto`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its rate.
    pub rate: Rate,
    /// Whether the earliest deadline goes first; otherwise what came first.
    pub edf: bool,
    /// The rule for a message that could start only after its deadline. [`Late::Continue`]: it is sent.
    pub late: Late,
    /// Token bucket of messages; `None`: they may take the whole link.
    pub bucket: Option<Bucket>,
    /// Token bucket of replies, which then go after other messages.
    pub replies: Option<Bucket>,
    /// Other traffic of the node.
    pub background: Option<Background>,
}

impl Link {
    /// A link of that rate, in order of arrival, for messages of flows alone.
    #[must_use]
    pub const fn at(rate: Rate) -> Self {
        Link { rate, edf: false, late: Late::Continue, bucket: None, replies: None, background: None }
    }
}

/// A token bucket as HTB keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// σ: the most tokens.
    pub burst: Bytes,
    /// ρ.
    pub rate: Rate,
}

/// Traffic of a node beside its flows, which always waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Background {
    /// Size of its packets.
    pub size: Bytes,
    /// Its rate in the long run; `None`: the rate left by the messages.
    pub rate: Option<Rate>,
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

/// The delays of a network's messages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ActualDelay {
    /// Uniform over the whole nanoseconds of the network's delay, both ends included.
    #[default]
    Uniform,
    /// One of these with its probability; the probabilities sum to one.
    Pmf(Vec<(Span, Probability)>),
    /// Message k from one hop of a flow to the next takes value k modulo the number of values.
    Trace(Trace),
}

impl ActualDelay {
    /// The longest delay that it states; `None` if it is uniform within the network's delay, or not loaded.
    #[must_use]
    pub fn longest(&self) -> Option<Span> {
        match self {
            ActualDelay::Uniform => None,
            ActualDelay::Pmf(values) => values.iter().map(|(span, _)| *span).max(),
            ActualDelay::Trace(trace) => trace.values.iter().copied().max(),
        }
    }
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
    /// The delays of messages in a simulation, within `delay`.
    pub actual_delay: ActualDelay,
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
        Network { from: None, to: None, delay, actual_delay: ActualDelay::Uniform, loss, through: Vec::new() }
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
            arrivals: MessageArrivals::Table,
            receive: None,
            send: None,
            clock_steps: Vec::new(),
        }
    }

    /// The time that a frame of a cyclic node has for jobs. `None` for other nodes, and where both
    /// slots leave nothing or there is no frame.
    #[must_use]
    pub fn job_slot(&self) -> Option<Span> {
        let (receive, send) = (self.receive?, self.send?);
        let room = receive.period.checked_sub(receive.wcet.checked_add(send.wcet)?)?;
        (self.arrivals == MessageArrivals::Cyclic && receive.period == send.period && !room.is_zero()).then_some(room)
    }

    /// The time that its costs add to a job that starts once and is never preempted.
    #[must_use]
    pub fn start_cost(&self) -> Span {
        self.costs.map_or(Span::ZERO, |costs| costs.release.saturating_add(costs.switch))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_component_share_its_budget() {
        let with = |cpus, quantum: Option<u64>| Component {
            cpus,
            quantum: quantum.map(Span::from_ns),
            ..Component::new("c", NodeId(0), ServerRule::Ptps)
        };
        let shares = |component: Component, period, budget| -> Vec<u64> {
            component.shares(Span::from_ns(period), Span::from_ns(budget)).iter().map(|share| share.as_ns()).collect()
        };
        assert_eq!(shares(with(3, None), 9, 8), [3, 3, 2]);
        assert_eq!(shares(with(3, None), 9, 1), [1, 0, 0]);
        assert_eq!(shares(with(3, None), 9, 6), [2, 2, 2]);
        assert_eq!(shares(with(1, None), 9, 7), [7]);
        assert_eq!(shares(with(2, Some(4)), 16, 12), [8, 4]);
        assert_eq!(shares(with(2, Some(4)), 15, 12), [6, 6], "the period is not whole quanta");
    }

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
        // Servers, table tasks and time synchronisation have periods, too.
        let mut system = System::local(1, Builtin::Rm, vec![task(4)]);
        let mut server = Component::new("c", NodeId(0), ServerRule::Ptps);
        system.components.push(server.clone());
        assert_eq!(system.default_duration(), Span::from_ms(8));
        server.period = Auto::Value(Span::from_ms(3));
        system.components.push(server);
        assert_eq!(system.default_duration(), Span::from_ms(24));
        let table = TableTask { period: Span::from_ms(5), wcet: Span::from_ms(1), cost: None };
        system.nodes[0].receive = Some(table);
        assert_eq!(system.default_duration(), Span::from_ms(120));
        system.clock.sync = Some(TableTask { period: Span::from_ms(7), ..table });
        assert_eq!(system.default_duration(), Span::from_ms(840));
    }
}
