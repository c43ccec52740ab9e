//! A node of a system with flows, live [HEDF II-A].
//!
//! The budget manager of the node's CPU is the table thread. Its priority is above the threads of
//! all jobs. It sleeps until absolute instants, and carries out the jobs of the receiving and the
//! sending task itself. The simulator's machines decide: [`takt_policy::Hierarchy`] chooses the next
//! job, and [`takt_policy::PartialEdf`] chooses the messages to take and to send. They get
//! real instants, and table jobs take as long as they really do.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | the parts of the node's tasks, its lanes and peers |
//! | `messages.rs` | the messages of a node; pure |
//! | `key_file.rs` | the file of the key |
//! | `seal.rs` | encrypted and authenticated datagrams; pure |
//! | `difference.rs` | how the clocks of nodes differ; pure |
//! | `table_tasks.rs` | what table jobs do with messages |
//! | `outbox.rs` | messages on their way to the kernel, by deadline and late rule |
//! | `line.rs` | the sockets by which they leave |
//! | `payload.rs` | the bytes that messages carry between handlers; pure |
//! | `error.rs` | why a node cannot run |
//! | `clocks.rs` | the differences of clocks, measured by the job of `clock.sync` or by a thread |

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_linux::datagram::Datagrams;
use takt_log::ClockDef;
use takt_model::{NodeId, Span, Time};
use takt_net::OffsetInterval;
use takt_net::source::ClockReport;

use crate::clock_source::{ClockSources, SourcePaths};

mod clocks;
mod difference;
pub(crate) mod error;
mod key_file;
mod line;
mod messages;
mod outbox;
mod payload;
mod plan;

mod table_tasks;

pub use crate::seal::{Key, KeyError};
pub use error::NodeError;
pub use key_file::KeyFileError;
pub use plan::{NodeNetwork, has_flows};
pub use table_tasks::{CHUNK, ROOM};

pub(crate) use clocks::{Clocks, SyncJob};
use difference::{Difference, KnownDifference, UsedDifferences};
pub(crate) use messages::NodeMessages;
use outbox::NodeOutbox;
use payload::Payloads;
pub(crate) use payload::Ring;
pub(crate) use plan::{NodePlan, Part};
pub(crate) use table_tasks::{TableJob, TableTasks};

/// Numbers that the table thread counts up.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of datagrams and messages at a node.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct NodeCounts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Default)]
        pub(crate) struct Counts { $(pub(crate) $name: AtomicU64,)* }

        impl Counts {
            pub(crate) fn read(&self) -> NodeCounts {
                NodeCounts { $($name: self.$name.load(Ordering::Acquire),)* }
            }
        }
    };
}
counts! {
    /// Messages that the kernel took.
    sent,
    /// Messages that it refused. Messages without a place in the outbox, or still there at the end, count too.
    unsent,
    /// Messages dropped because they could leave only after their deadline (`link.late = "drop"`).
    late,
    /// Messages that came.
    arrived,
    /// Datagrams that are no message of this version, or that contradict the system.
    malformed,
    /// Datagrams of another system or of another run.
    foreign,
    /// Datagrams that nobody with the key made.
    forged,
    /// Datagrams that came again.
    replayed,
    /// Datagrams of a process of their sender that a later one has replaced, by its clock.
    former,
    /// Datagrams that found the socket's buffer full.
    overflowed,
    /// Receiving jobs that left datagrams for the next one, for want of budget.
    exhausted,
    /// Datagrams of the exchange of clocks that are no message of this version, or of an unknown node.
    clock_malformed,
    /// Those of another system or of another run, and answers of nodes that were not asked. Without a key also
    /// those that are malformed.
    clock_foreign,
    /// Those that nobody with the key made.
    clock_forged,
    /// Those that came again.
    clock_replayed,
    /// Those of a process of their sender that a later one has replaced, by its clock.
    clock_former,
    /// How late a receiving job started at most, in nanoseconds.
    receive_late_ns,
    /// How late a sending job started at most, in nanoseconds.
    send_late_ns,
    /// The longest receiving job, in nanoseconds.
    receive_longest_ns,
    /// The longest sending job, in nanoseconds.
    send_longest_ns,
}

/// A node with its sockets.
pub(crate) struct NodeLive {
    pub(crate) plan: NodePlan,
    /// Where it receives.
    pub(crate) socket: Option<Datagrams>,
    /// `None`: it sends no messages.
    pub(crate) outbox: Option<NodeOutbox>,
    pub(crate) counts: Counts,
    /// Of a run with handlers; else empty.
    pub(crate) payloads: Payloads,
    /// The most messages that one receiving job took, by slot of the node.
    pub(crate) taken: Vec<AtomicU64>,
    /// By node.
    differences: Vec<KnownDifference>,
    /// By node: from its times of the run to those of this node.
    used: Vec<UsedDifferences>,
    /// By node: its messages that were dropped because the difference of the clocks was not known.
    untimed: Vec<AtomicU64>,
    /// See [`NodeSummary`].
    other_clocks: AtomicBool,
}

/// Bytes of the receiving socket's buffer.
const BUFFER: usize = 1 << 20;

impl NodeLive {
    /// Opens the sockets. With handlers there is room for what messages carry.
    pub(crate) fn open(plan: NodePlan, has_handlers: bool) -> Result<NodeLive, NodeError> {
        let socket = match plan.network.listen {
            Some(listen) => {
                let socket = Datagrams::bind(listen, plan.network.priority, BUFFER, Span::from_ms(1))?;
                let refused =
                    |error| NodeError::Socket(format!("the kernel does not stamp arriving datagrams: {error}"));
                socket.stamp().map_err(refused)?;
                Some(socket)
            }
            None => None,
        };
        let outbox = NodeOutbox::open(&plan)?;
        let taken = plan.tasks.iter().map(|_| AtomicU64::new(0)).collect();
        let differences = plan.original.nodes.iter().map(|_| KnownDifference::default()).collect();
        let used = plan.original.nodes.iter().map(|_| UsedDifferences::default()).collect();
        let untimed = plan.original.nodes.iter().map(|_| AtomicU64::new(0)).collect();
        let payloads = if has_handlers { Payloads::new(&plan) } else { Payloads::default() };
        let (counts, other_clocks) = (Counts::default(), AtomicBool::new(false));
        Ok(NodeLive { plan, socket, outbox, counts, payloads, taken, differences, used, untimed, other_clocks })
    }

    /// Whether messages of these slots may have to wait, so that a thread must send them later.
    pub(crate) fn sends_later(&self, slots: &[u32]) -> bool {
        self.outbox.as_ref().is_some_and(NodeOutbox::waits) && self.plan.sends(slots)
    }

    /// The measured difference: this node's CLOCK_MONOTONIC - that of another.
    pub(crate) fn difference(&self, node: NodeId) -> Option<Difference> {
        self.differences.get(node.index())?.get()
    }

    /// Messages of a node were read with this difference of the times of the run.
    pub(crate) fn used_difference(&self, from: NodeId, difference: Difference) {
        if let Some(used) = self.used.get(from.index()) {
            used.add(difference);
        }
    }

    /// How the clocks of nodes differed whose messages came, after the run. Nodes without a known difference are left
    /// out.
    pub(crate) fn clocks(&self) -> Vec<ClockDef> {
        let known = (0..).zip(&self.used).filter_map(|(stream, used)| Some((stream, used.get()?)));
        let clock = |(stream, (offset_min, offset_max))| ClockDef { stream, from: Time::ZERO, offset_min, offset_max };
        known.map(clock).collect()
    }

    fn set_difference(&self, node: NodeId, offset: Option<OffsetInterval>) {
        if let Some(known) = self.differences.get(node.index()) {
            known.set(offset);
        }
    }

    /// Reports on CLOCK_REALTIME, if this node trusts it. `None`: it need not.
    fn sources(&self) -> Option<Vec<ClockReport>> {
        let trusts = self.socket.is_some() && self.plan.network.clocks.is_none();
        trusts.then(|| {
            let mut sources = ClockSources::new(SourcePaths::default());
            sources.refresh();
            sources.reports()
        })
    }

    /// The outcome, after the run.
    pub(crate) fn summary(&self) -> NodeSummary {
        let hops = self.plan.parts.iter().zip(&self.plan.tasks).zip(&self.taken);
        let later = hops.filter(|((part, _), _)| matches!(part, Part::Hop { hop, .. } if *hop > 0));
        let nodes = (0_u32..).map(NodeId).zip(&self.differences);
        let untimed = self.untimed.iter().map(|count| count.load(Ordering::Acquire));
        let untimed = (0_u32..).map(NodeId).zip(untimed);
        NodeSummary {
            sources: self.sources(),
            other_clocks: self.other_clocks.load(Ordering::Acquire),
            counts: self.counts.read(),
            differences: nodes.filter_map(|(node, _)| Some((node, self.difference(node)?.middle))).collect(),
            untimed: untimed.filter(|(_, count)| *count > 0).collect(),
            taken: later.map(|((_, task), most)| (*task, most.load(Ordering::Acquire))).collect(),
        }
    }
}

/// The outcome of a node with flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSummary {
    /// Reports on CLOCK_REALTIME, which all nodes trust without measured differences. `None`: the
    /// differences are measured, or the node has no messages.
    pub sources: Option<Vec<ClockReport>>,
    /// Whether messages came from machines with another CLOCK_MONOTONIC than this one. Not told where
    /// differences are measured.
    pub other_clocks: bool,
    /// Counts of datagrams and messages.
    pub counts: NodeCounts,
    /// The most messages that one receiving job took (k), by task of a later hop.
    pub taken: Vec<(takt_model::TaskId, u64)>,
    /// The measured differences at the end: this node's clock - that of a peer, in nanoseconds.
    pub differences: Vec<(NodeId, i64)>,
    /// Nodes whose clock's difference was not known when messages of them came, and how many of these
    /// were dropped. Only where differences are measured.
    pub untimed: Vec<(NodeId, u64)>,
}

/// How late something is.
fn lateness(now: Time, planned: Time) -> u64 {
    now.saturating_since(planned).as_ns()
}

#[cfg(test)]
mod tests;
