//! Discrete-event simulation: a System in, the events of a JobLog out, in virtual time.
//!
//! Deterministic: the same System and seed give the same events, on every machine. Memory depends on the number
//! of tasks and on how many jobs wait at once, never on how many have run. The dispatch decisions are
//! those of [`takt_policy::Dispatcher`], the same code that a live dispatcher runs.
//!
//! ```
//! use takt_model::{Builtin, Span, System, Task};
//! use takt_sim::{simulate, SimOptions};
//!
//! let ms = Span::from_ms;
//! let system = System::local(1, Builtin::Rm, vec![Task::periodic("a", ms(10), ms(2))]);
//! let mut events = Vec::new();
//! let summary = simulate(&system, &SimOptions { duration: ms(20), ..SimOptions::default() }, &mut events)?;
//! assert_eq!((summary.released, events.len()), (2, 6)); // release, start, complete of two jobs
//! # Ok::<(), takt_sim::SimError>(())
//! ```

mod clock;
mod decider;
mod difference;
mod lanes;
mod messages;
mod network;
mod node;
mod routes;
mod thefts;
pub mod traffic;
mod world;
pub mod worst;

use takt_log::{Kind, KindSet, Sink};
use takt_model::{ActualDelay, Arrival, Auto, Exec, NodeId, Span, System, TaskId, Time, flows};
use takt_net::{EgressError, LinkError, PortError, TimeTableError};
use takt_policy::{Clusters, CyclicExecutive, CyclicSpec, Dispatcher, PolicyError, Times};
use thiserror::Error;

use messages::{Message, NodeMessages};
use node::NodeSim;
use traffic::Traffic;

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Jobs are released in [0, duration) and the simulation stops there; completions at that very instant
    /// count.
    pub duration: Span,
    /// Seed of all randomness.
    pub seed: u64,
    /// Only this node; `None`: all.
    pub node: Option<NodeId>,
}

impl Default for SimOptions {
    /// One second, seed 0, all nodes.
    fn default() -> Self {
        SimOptions { duration: Span::from_s(1), seed: 0, node: None }
    }
}

/// The result of a simulation, besides its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimSummary {
    /// When it stopped.
    pub end: Time,
    /// Jobs released.
    pub released: u64,
}

/// The kinds of events that a simulation records, for the header of its log.
pub const KINDS: KindSet = KindSet::JOBS.with(Kind::ModeChange);

/// The kinds of events that a simulation of `system` records of its jobs, servers and messages.
#[must_use]
pub fn kinds(system: &System) -> KindSet {
    let servers = if system.components.is_empty() { KindSet::EMPTY } else { KindSet::SERVERS };
    let messages = if system.flows.is_empty() { KindSet::EMPTY } else { KindSet::MESSAGES };
    let kinds = KindSet::JOBS.union(servers).union(messages);
    let computed = system.networks.iter().any(|network| network.delay == Auto::Auto);
    if computed && !system.flows.is_empty() { kinds.with(Kind::Transmit) } else { kinds }
}

/// The most jobs of one task that may wait at once. A system that exceeds this stays overloaded.
pub const BACKLOG_MAX: usize = 1 << 20;

/// The most messages in a queue: at a receiving or sending task, in a class of a link, at a port, or on the way to a
/// node. Others are dropped.
pub const MESSAGES_MAX: usize = 1 << 16;

/// Why a simulation cannot begin or go on.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SimError {
    /// A node sends messages whose delay is "auto", and has no link.
    #[error(
        "node \"{node}\" sends messages without a written delay, and has no link; \
         give it link = {{ rate = \"...\" }}, or write the delay"
    )]
    NoLink {
        /// The sending node.
        node: String,
    },
    /// Several networks connect two nodes, and disagree on the ports or on whether the delay is "auto".
    #[error(
        "messages from \"{from}\" to \"{to}\" go through other ports by one [[network]] than by another, or one has a \
         delay and another \"auto\"; give the pair its own, with from and to"
    )]
    Ambiguous {
        /// The sending node.
        from: String,
        /// The receiving node.
        to: String,
    },
    /// A node's link has invalid values.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A port has invalid values.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The delay of a network has invalid values.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The time-difference table of a node has invalid values.
    #[error(transparent)]
    Clocks(#[from] TimeTableError),
    /// The tasks of a node do not fit its strategy or its placement.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A trace has no values: it is empty, or was not loaded.
    #[error("the trace \"{path}\" of {of} holds no values")]
    NoTrace {
        /// Its task, or its network.
        of: String,
        /// The file.
        path: String,
    },
    /// Too many jobs wait.
    #[error(
        "task \"{task}\" has more than {BACKLOG_MAX} jobs waiting at {at}: the system is overloaded; \
         simulate a shorter time, or let its level drop late jobs (late = \"drop\")"
    )]
    Backlog {
        /// The task.
        task: String,
        /// When.
        at: Time,
    },
    /// A duration that the clock cannot hold.
    #[error("a simulation lasts at most {most}, not {duration}", most = Span::FILE_MAX)]
    TooLong {
        /// The requested duration.
        duration: Span,
    },
}

/// Simulates `system` and hands every event to `sink`, stream k being node k.
///
/// # Errors
/// See [`SimError`]. Events before the error are already in the sink.
pub fn simulate<S: Sink>(system: &System, options: &SimOptions, sink: &mut S) -> Result<SimSummary, SimError> {
    simulate_with(system, options, &Traffic::default(), sink)
}

/// [`simulate`] with first arrivals of flows and delays of their messages that the caller chooses.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with<S: Sink>(
    system: &System,
    options: &SimOptions,
    traffic: &Traffic,
    sink: &mut S,
) -> Result<SimSummary, SimError> {
    check_input(system, options)?;
    if let Some(lowered) = flows::lower(system) {
        return world::simulate(lowered, options, traffic, sink);
    }
    let end = Time::ZERO + options.duration;
    let wanted = |id: &NodeId| options.node.is_none_or(|only| only == *id);
    let tasks = by_node(system);
    let mut nodes = (0..system.nodes.len() as u32)
        .map(NodeId)
        .filter(wanted)
        .map(|id| AnyNode::new(system, id, &tasks[id.index()], options.seed, end, sink.wants_misses()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut calendar = Times::never(nodes.len());
    let next = |node: &AnyNode<'_>| node.next_instant().unwrap_or(Time::MAX);
    (0..).zip(&nodes).for_each(|(at, node)| calendar.set(at, next(node)));
    // The node with the earliest event runs until another node has an earlier one. In a tie the lower index goes first.
    while let (at, turn) = calendar.earliest()
        && at <= end
    {
        calendar.set(turn, Time::MAX);
        let (before, other) = calendar.earliest();
        let before = if other > turn { before.saturating_add(Span::from_ns(1)) } else { before };
        let node = &mut nodes[turn as usize];
        node.advance(before, sink)?;
        calendar.set(turn, next(node));
    }
    nodes.iter_mut().for_each(|node| node.finish(sink));
    Ok(SimSummary { end, released: nodes.iter().map(AnyNode::released).sum() })
}

/// A node without components, with some, or with a frame.
enum AnyNode<'a> {
    Plain(Box<NodeSim<'a, Dispatcher>>),
    Served(Box<NodeSim<'a, Clusters>>),
    Cyclic(Box<NodeSim<'a, CyclicExecutive>>),
}

/// Evaluates an expression for the node, whichever decider it has.
macro_rules! each {
    ($any:expr, $node:ident => $answer:expr) => {
        match $any {
            AnyNode::Plain($node) => $answer,
            AnyNode::Served($node) => $answer,
            AnyNode::Cyclic($node) => $answer,
        }
    };
}

impl<'a> AnyNode<'a> {
    fn new(
        system: &'a System,
        id: NodeId,
        tasks: &[TaskId],
        seed: u64,
        end: Time,
        record_misses: bool,
    ) -> Result<Self, PolicyError> {
        let has_components = system.components.iter().any(|component| component.node == id);
        Ok(if has_components {
            let clusters = Clusters::new(system, id)?;
            AnyNode::Served(Box::new(NodeSim::new(system, id, tasks, clusters, seed, end, record_misses)))
        } else {
            let dispatcher = Dispatcher::of_tasks(system, id, tasks)?;
            AnyNode::Plain(Box::new(NodeSim::new(system, id, tasks, dispatcher, seed, end, record_misses)))
        })
    }

    /// A node that runs jobs in a frame.
    fn cyclic(
        system: &'a System,
        id: NodeId,
        tasks: &[TaskId],
        spec: CyclicSpec,
        seed: u64,
        end: Time,
        record_misses: bool,
    ) -> Self {
        let executive = CyclicExecutive::new(spec);
        AnyNode::Cyclic(Box::new(NodeSim::new(system, id, tasks, executive, seed, end, record_misses)))
    }

    fn connect(&mut self, messages: NodeMessages) {
        each!(self, node => node.connect(messages));
    }

    fn deliver<S: Sink>(&mut self, message: Message, now: Time, sink: &mut S) {
        each!(self, node => node.deliver(message, now, sink));
    }

    fn messages(&mut self) -> Option<&mut NodeMessages> {
        each!(self, node => node.messages())
    }

    fn next_instant(&self) -> Option<Time> {
        each!(self, node => node.next_instant())
    }

    fn advance<S: Sink>(&mut self, before: Time, sink: &mut S) -> Result<(), SimError> {
        each!(self, node => node.advance(before, sink))
    }

    fn released(&self) -> u64 {
        each!(self, node => node.released())
    }

    fn finish<S: Sink>(&mut self, sink: &mut S) {
        each!(self, node => node.finish(sink));
    }
}

/// The tasks of each node, in file order.
fn by_node(system: &System) -> Vec<Vec<TaskId>> {
    let mut tasks = vec![Vec::new(); system.nodes.len()];
    (0..).zip(&system.tasks).for_each(|(id, task)| tasks[task.node.index()].push(TaskId(id)));
    tasks
}

/// Checks that the duration fits and that all traces are loaded.
fn check_input(system: &System, options: &SimOptions) -> Result<(), SimError> {
    if options.duration > Span::FILE_MAX {
        return Err(SimError::TooLong { duration: options.duration });
    }
    let on = |node: NodeId| options.node.is_none_or(|only| only == node);
    for task in system.tasks.iter().filter(|task| on(task.node)) {
        let traces = [
            if let Exec::Trace(trace) = &task.exec { Some(trace) } else { None },
            if let Arrival::Trace(trace) = &task.arrival { Some(trace) } else { None },
        ];
        if let Some(trace) = traces.into_iter().flatten().find(|trace| trace.values.is_empty()) {
            return Err(SimError::NoTrace { of: format!("task \"{}\"", task.name), path: trace.path.clone() });
        }
    }
    for (number, network) in (1..).zip(&system.networks) {
        if let ActualDelay::Trace(trace) = &network.actual_delay
            && trace.values.is_empty()
        {
            return Err(SimError::NoTrace { of: format!("network {number}"), path: trace.path.clone() });
        }
    }
    Ok(())
}
