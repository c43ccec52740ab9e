//! The cluster of [HEDF IV] on this kernel: eight nodes in network namespaces at one bridge, each
//! with a thread that is client and server. It sends the messages of the simulation with the same
//! seed, over UDP.
//!
//! - `node`: the thread of a node.
//! - `wire`: the bytes of a message.
//! - `misses`, `delays`: Figs. 4 to 6, measured and beside their simulations. Delays have bounds (`bounded`).
//! - `ki`: Section IV-C, by `nodes` under `takt run --node` and a `relay` between them. Their logs tell the delays
//!   (`ways`), and `measured` has the bounds for these and for the measured costs.
//! - `requests`: its last set-up, four flows from each node.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::clock::pause;
use takt_linux::datagram::Datagrams;
use takt_linux::net::{Bridge, End};
use takt_linux::sched::Class;
use takt_linux::tc::{self, Applied, Device, Plan, Rule, apply};
use takt_linux::{Epoch, net};
use takt_model::{Link, Span, Time};
use takt_net::QueueSpec;

use super::cluster::Cluster;
use super::setups::NODES;
use crate::context::Context;
use crate::failure::Failure;

mod bounded;
pub(super) mod delays;
pub(super) mod ki;
mod measured;
pub(super) mod misses;
mod node;
mod nodes;
mod relay;
mod requests;
mod ways;
mod wire;

use node::{ClientRecord, Node, NodeReport};

/// A port for requests, one for replies, and one for other traffic.
const PORTS: [u16; 3] = [7000, 7001, 7002];
/// The SO_PRIORITY of requests and replies. The usual rules of the classes go by these.
const PRIORITIES: [u32; 2] = [6, 5];
/// Threads start within this time.
const LEAD: Span = Span::from_ms(200);
/// How often nodes that do not hear each other try again, every [`LOOK`].
const MEETINGS_MAX: u32 = 500;
/// The priority of the kernel threads that take packets in: above nodes, as interrupt threads are.
const DRIVERS: u8 = 95;
/// How often a stop is looked for.
const LOOK: Span = Span::from_ms(20);

/// Eight nodes at a bridge. Dropping it removes them.
pub(super) struct Lab {
    /// Classes of devices, by node. They go before the devices.
    shares: Vec<Applied>,
    bridge: Bridge,
}

pub(super) struct Run<'a> {
    /// Clients and their messages, in the simulation's time.
    pub(super) cluster: &'a Cluster,
    pub(super) seed: u64,
    /// Frames of the simulation's [0, `duration`) are sent.
    pub(super) duration: Span,
    /// How many times slower than the simulation the nodes are.
    pub(super) slowness: u64,
    /// The nodes' own order of messages before the kernel; `None`: each goes to the kernel at once.
    pub(super) queue: Option<QueueSpec>,
    /// After the last frame, for answers.
    pub(super) drain: Span,
    /// Whether the first node also sends other traffic as fast as it can.
    pub(super) background: bool,
}

#[derive(Default)]
pub(super) struct Outcome {
    pub(super) messages: Vec<ClientRecord>,
    pub(super) blocked: u64,
    /// How late a frame was made at most, if it waited for no other.
    pub(super) sender_late: Span,
    /// Datagrams that found a socket full, or that the kernel refused.
    pub(super) lost: u64,
    /// Late messages that were dropped before the kernel.
    pub(super) dropped: u64,
    /// Packets of other traffic.
    pub(super) background: u64,
    pub(super) stopped: bool,
}

impl Lab {
    pub(super) fn build() -> Result<Lab, Failure> {
        // A killed process leaves files about its classes. The kernel has removed all else.
        let _ = tc::recover();
        Ok(Lab { shares: Vec::new(), bridge: bridge(NODES)? })
    }

    /// Gives all nodes' devices the classes of a link; `None`: takes them away.
    pub(super) fn share(&mut self, link: Option<&Link>, rules: &[Rule]) -> Result<(), Failure> {
        self.shares.clear();
        let Some(link) = link else { return Ok(()) };
        for node in self.bridge.nodes() {
            let applied = at(node, || classes(node.device(), link, rules))?;
            self.shares.push(applied);
        }
        Ok(())
    }

    pub(super) fn share_ports(&mut self, link: &Link) -> Result<(), Failure> {
        // The bridge forwards without SO_PRIORITY.
        let of = tc::Match::ToPort(PORTS[0], PORTS[0]);
        let rules = [Rule { of, role: tc::Role::RealTime }];
        for port in self.bridge.ports() {
            self.shares.push(at(port, || classes(port.device(), link, &rules))?);
        }
        Ok(())
    }

    pub(super) fn dropped(&mut self) -> u64 {
        let each = self.shares.iter_mut().filter_map(|applied| applied.status().ok());
        each.flat_map(|status| status.classes).map(|class| class.counters.dropped).sum()
    }

    pub(super) fn run(&self, context: &Context, run: &Run<'_>) -> Result<Outcome, Failure> {
        let stop = AtomicBool::new(false);
        let reports: Mutex<Vec<Result<NodeReport, Failure>>> = Mutex::default();
        let epoch = Epoch::in_future(LEAD);
        let last = Time::ZERO.saturating_add(run.slow(run.duration));
        let end = last.saturating_add(run.drain);
        let nodes = self.bridge.nodes();
        let mut other = 0;
        std::thread::scope(|scope| {
            for (number, end_of_cable) in nodes.iter().enumerate() {
                let (stop, reports) = (&stop, &reports);
                scope.spawn(move || {
                    let report =
                        Node::open(nodes, number, end_of_cable, run, (epoch, last, end)).map(|node| node.run(stop));
                    reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(report);
                });
            }
            let background = run.background.then(|| {
                let stop = &stop;
                scope.spawn(move || node::background([&nodes[0], &nodes[1]], epoch, last, stop))
            });
            while epoch.now() < end && !stop.load(Ordering::Relaxed) {
                pause(LOOK);
                stop.store(context.stopped(), Ordering::Relaxed);
            }
            other = background.and_then(|thread| thread.join().ok()).unwrap_or(0);
        });
        let reports = reports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let reports: Vec<NodeReport> = reports.into_iter().collect::<Result<_, _>>()?;
        let mut outcome = Outcome { background: other, stopped: stop.into_inner(), ..Outcome::default() };
        let mut replies = Vec::new();
        for report in reports {
            outcome.messages.extend(report.messages);
            outcome.blocked += report.blocked;
            outcome.sender_late = outcome.sender_late.max(report.late);
            outcome.lost += report.lost;
            outcome.dropped += report.dropped;
            replies.extend(report.held);
        }
        // The time for which the server's device held the answer.
        replies.sort_unstable_by_key(|(of, _)| *of);
        for told in &mut outcome.messages {
            let of = replies.binary_search_by_key(&(told.client, told.number), |(of, _)| *of);
            let held = of.ok().map(|at| replies[at].1);
            told.held = told.held.zip(held).map(|(own, reply)| own.saturating_add(reply));
        }
        Ok(outcome)
    }
}

impl Run<'_> {
    /// A span of the simulation on this machine.
    fn slow(&self, span: Span) -> Span {
        span.checked_mul(self.slowness).unwrap_or(Span::MAX)
    }
}

/// Gives a device of the thread's namespace the classes of a link.
fn classes(device: &str, link: &Link, rules: &[Rule]) -> Result<Applied, Failure> {
    let device = Device::find(device).map_err(Failure::trouble)?;
    let device = device.ok_or_else(|| Failure::trouble("a node has lost its device"))?;
    let plan = Plan::new(link, &device).map_err(Failure::trouble)?;
    apply(&device, &plan, rules, false).map_err(|error| match error {
        tc::NetError::Privilege | tc::NetError::Missing { .. } => Failure::cannot(error),
        error => Failure::trouble(error),
    })
}

/// Nodes at a bridge whose packets precede the threads of nodes.
fn bridge(nodes: usize) -> Result<Bridge, Failure> {
    let bridge = Bridge::build(nodes).map_err(|error| refused(&error))?;
    bridge.schedule_drivers(&Class::Fifo { priority: DRIVERS }).map_err(Failure::cannot)?;
    meet(bridge.nodes())?;
    Ok(bridge)
}

/// Waits until each node hears each other. The kernel takes up to a second to switch ports on, and
/// learns addresses.
fn meet(nodes: &[End]) -> Result<(), Failure> {
    let address = |node: &End| SocketAddr::from((node.address(), PORTS[0]));
    let bind = |node: &End| {
        at(node, || Datagrams::bind(address(node), 0, 1 << 16, Span::from_ms(1)).map_err(Failure::trouble))
    };
    let sockets = nodes.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let mut heard = BTreeSet::new();
    for _ in 0..MEETINGS_MAX {
        for (from, socket) in sockets.iter().enumerate() {
            let others = nodes.iter().enumerate().filter(|(to, _)| *to != from);
            for (_, node) in others {
                // The next turn sends it again.
                let _ = socket.send([b"hello", b""], &address(node).into(), Span::ZERO);
            }
        }
        pause(LOOK);
        for (to, socket) in sockets.iter().enumerate() {
            while let Ok(Some((_, from))) = socket.receive_now(&mut [0; 16]) {
                heard.insert((from, to));
            }
        }
        if heard.len() == nodes.len() * (nodes.len() - 1) {
            return Ok(());
        }
    }
    Err(Failure::trouble("the nodes do not hear each other within 10 s: other programs take both CPUs; try again"))
}

fn at<T: Send>(node: &End, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    node.run(work).map_err(Failure::trouble)?
}

fn refused(error: &net::NetError) -> Failure {
    match error {
        net::NetError::Privilege | net::NetError::Missing { .. } => Failure::cannot(error),
        _ => Failure::trouble(error),
    }
}
