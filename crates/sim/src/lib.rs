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

mod decider;
mod node;
mod thefts;
mod times;

use takt_log::{Kind, KindSet, Sink};
use takt_model::{Arrival, Exec, NodeId, Span, System, Time};
use takt_policy::{Dispatcher, Hierarchy, PolicyError};
use thiserror::Error;

use node::NodeSim;

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

/// The kinds of events that a simulation of `system` records of its jobs and servers.
#[must_use]
pub fn kinds(system: &System) -> KindSet {
    if system.components.is_empty() { KindSet::JOBS } else { KindSet::JOBS.union(KindSet::SERVERS) }
}

/// The most jobs of one task that may wait at once. A system that exceeds this stays overloaded.
pub const BACKLOG_MAX: usize = 1 << 20;

/// Why a simulation cannot begin or go on.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SimError {
    /// A part that this version reads but does not execute.
    #[error(
        "{part} \"{name}\" cannot be simulated by this version; it simulates nodes with tasks, chains and components"
    )]
    Unsupported {
        /// "flow".
        part: &'static str,
        /// Its name.
        name: String,
    },
    /// A node that cannot be dispatched.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A trace whose values nobody has loaded.
    #[error("the trace \"{path}\" of task \"{task}\" holds no values")]
    NoTrace {
        /// The task.
        task: String,
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
/// See [`SimError`]; on an error that comes late the events so far are already in the sink.
pub fn simulate<S: Sink>(system: &System, options: &SimOptions, sink: &mut S) -> Result<SimSummary, SimError> {
    refuse(system, options)?;
    let end = Time::ZERO + options.duration;
    let wanted = |id: &NodeId| options.node.is_none_or(|only| only == *id);
    let mut nodes = (0..system.nodes.len() as u32)
        .map(NodeId)
        .filter(wanted)
        .map(|id| AnyNode::new(system, id, options.seed, end, sink.wants_misses()))
        .collect::<Result<Vec<_>, _>>()?;
    // The node whose next instant is the earliest, the first among equals, goes on until it is another's turn.
    let next = |nodes: &[AnyNode<'_>], but: usize| {
        let instants = nodes.iter().enumerate().filter(|(i, _)| *i != but);
        instants.filter_map(|(i, node)| Some((node.next_instant()?, i))).min()
    };
    while let Some((_, turn)) = next(&nodes, usize::MAX) {
        let before = match next(&nodes, turn) {
            Some((at, other)) if other > turn => at.saturating_add(Span::from_ns(1)),
            Some((at, _)) => at,
            None => Time::MAX,
        };
        nodes[turn].advance(before, sink)?;
    }
    nodes.iter_mut().for_each(|node| node.finish(sink));
    Ok(SimSummary { end, released: nodes.iter().map(AnyNode::released).sum() })
}

/// A node without components, or with some.
enum AnyNode<'a> {
    Plain(Box<NodeSim<'a, Dispatcher>>),
    Served(Box<NodeSim<'a, Hierarchy>>),
}

impl<'a> AnyNode<'a> {
    fn new(system: &'a System, id: NodeId, seed: u64, end: Time, record_misses: bool) -> Result<Self, PolicyError> {
        Ok(if system.components.iter().any(|component| component.node == id) {
            let hierarchy = Hierarchy::new(system, id)?;
            AnyNode::Served(Box::new(NodeSim::new(system, id, hierarchy, seed, end, record_misses)))
        } else {
            AnyNode::Plain(Box::new(NodeSim::new(system, id, Dispatcher::new(system, id)?, seed, end, record_misses)))
        })
    }

    fn next_instant(&self) -> Option<Time> {
        match self {
            AnyNode::Plain(node) => node.next_instant(),
            AnyNode::Served(node) => node.next_instant(),
        }
    }

    fn advance<S: Sink>(&mut self, before: Time, sink: &mut S) -> Result<(), SimError> {
        match self {
            AnyNode::Plain(node) => node.advance(before, sink),
            AnyNode::Served(node) => node.advance(before, sink),
        }
    }

    fn released(&self) -> u64 {
        match self {
            AnyNode::Plain(node) => node.released(),
            AnyNode::Served(node) => node.released(),
        }
    }

    fn finish<S: Sink>(&mut self, sink: &mut S) {
        match self {
            AnyNode::Plain(node) => node.finish(sink),
            AnyNode::Served(node) => node.finish(sink),
        }
    }
}

/// Refuses what cannot be simulated, by name.
fn refuse(system: &System, options: &SimOptions) -> Result<(), SimError> {
    if options.duration > Span::FILE_MAX {
        return Err(SimError::TooLong { duration: options.duration });
    }
    let on = |node: NodeId| options.node.is_none_or(|only| only == node);
    if let Some(flow) = system.flows.iter().find(|flow| flow.path.iter().any(|node| on(*node))) {
        return Err(SimError::Unsupported { part: "flow", name: flow.name.clone() });
    }
    for task in system.tasks.iter().filter(|task| on(task.node)) {
        let traces = [
            if let Exec::Trace(trace) = &task.exec { Some(trace) } else { None },
            if let Arrival::Trace(trace) = &task.arrival { Some(trace) } else { None },
        ];
        if let Some(trace) = traces.into_iter().flatten().find(|trace| trace.values.is_empty()) {
            return Err(SimError::NoTrace { task: task.name.clone(), path: trace.path.clone() });
        }
    }
    Ok(())
}
