//! `partial-edf`: distributed tasks over nodes that run a time table above EDF \[HEDF\].
//!
//! T. Qian, F. Mueller, Y. Xin: Hybrid EDF Packet Scheduling for Real-Time Distributed Systems. A
//! flow is released on the first node of its path. On every node a job processes it and leaves a
//! message. The node's periodic sending task gives the message to the network. The next node's
//! periodic receiving task takes the message and releases a job. Both table tasks are more
//! important than all jobs. Jobs run under EDF. [`paper`] has the paper's own test, which is not
//! sound. The test here is sound.
//!
//! # The model
//! - Table jobs are due at the multiples of their periods on the node's clock (any phase will do
//!   here), and a timer releases them up to Λ later. Their order, and whether they interrupt each
//!   other, is left open. Each is done R after its multiple at the latest, R = Λ + the busy period
//!   of the table ([`below::table_response`]). "Released" below means the multiple. The proof only
//!   uses that a job starts then or later.
//! - A timer releases hop 0 and time synchronisation, too, and local tasks: up to Λ after their
//!   arrivals, from which deadlines count. Later hops are released by the receiving job.
//! - Ordinary threads may take the CPU from all of these: up to Q anywhere in each period P. They
//!   count as the table's ([`below`]), so in R and below EDF deadlines.
//! - Executions are by the clock of their node, so C takes up to C↑.
//! - A message is ready when the job that leaves it completes. Let G = ceil(T' / T_s) T_s. The
//!   sending job x sends a ready message if the last message of the same flow and hop was sent G /
//!   T_s or more jobs before. The gap counts on the grid, so no jitter shortens it. At most one
//!   message of a flow's hop leaves with a job.
//! - The receiving job takes a snapshot at its start ([`batch`]).
//! - Deadlines are absolute, and travel. On hop h (0 is the first node) the job of an instance is
//!   due D_h after the job of hop h - 1 was due. Hop 0 is due D_0 after the flow's arrival a.
//!   ChainBounds to another clock a deadline is off by up to ε. The sum of all D_h is at most D.
//! - If several messages of a flow wait, the message of the earliest instance goes first. The
//!   network may deliver in any order.
//! - EDF goes by these deadlines, also between jobs of one flow. Jobs are preemptive, or run to
//!   completion but for the table.
//! - Clocks drift by ρ ([`Drift`]); all that follows is in true time. X↓, X↑: least and most true
//!   time of a span X on a clock.
//!
//! # Why it holds
//! Let every node pass [`below`] with the jobs derived here, and suppose that some job misses. Take
//! the first miss. Up to then every job met its deadline, so steps 1 to 5 hold, and so does the
//! theorem of [`below`] for the node.
//!
//! 1. *Deadlines.* (They count from arrivals, so Λ does not matter here.) e_h, the true time of hop
//!    h's deadline, lies in [a + lo_h, a + hi_h]: lo_0 = D_0↓, hi_0 = D_0↑. The receiver converts
//!    at some τ, with x = (deadline - now) on the sender's clock. Then e_h - e_(h-1) = (x + err +
//!    D_h) / r - x / r', with |err| <= ε and rates r and r' in [1 - ρ, 1 + ρ]. |x| is at most (1 +
//!    ρ) times the latest τ - a (below; later than any e_(h-1)). So |x / r - x / r'| <= skew = 2 ρ
//!    (τ - a) / (1 - ρ). Hence the step is in [(D_h - ε)↓ - skew, (D_h + ε)↑ + skew]. Y_h = hi_h -
//!    lo_h is 0 for perfect clocks.
//! 2. *Sending.* The message of instance j is ready by e_h(j). If G↑ <= T↓, and messages become
//!    ready in order, it leaves with a job released by a_j + hi_h + T_s↑. Proof: let i <= j be the
//!    last message that did not wait for a gap. Message i left with a job released within T_s↑ of
//!    e_h(i) <= a_i + hi_h. Each later message left G after its predecessor, so j left by a_i +
//!    hi_h + T_s↑ + (j - i) G↑. In any order j leaves with a job released by a_j + hi_h + G↑.
//!    Proof: let m > j be the last later instance that left in this run of messages a gap apart,
//!    with the job released at t. The p messages after it, up to j, became ready after t, the
//!    earliest of them by a_j - (p - 1) T↓ + hi_h. So j leaves by t + p G↑ <= a_j + hi_h + G↑.
//!    (Without such an m all is as above, and T_s <= G.) Messages are in order on hop 0, and on a
//!    hop if they are on the one before, J < G↓ and Y < T↓. The job that sends is done R_s later.
//!    (G↑ > T↓: messages pile up.)
//! 3. *Receiving.* The message is in the buffer δ+ later at most, the first job released after that
//!    T_r↑ later, done R_r later; left-overs add E T_r↑. So hop h + 1 releases its job by e_h +
//!    wait, wait = Y_h + (T_s↑ or G↑) + R_s + δ+ + (1 + E) T_r↑ + R_r. (Eq. 6 has T_r + C_r + δ+
//!    alone.)
//! 4. *Demand.* From release to deadline hop h + 1 has at least D' = (D_(h+1) - ε)↓ - skew - wait;
//!    its deadlines come T↓ apart but for Y_(h+1). So it demands no more than a [`below::Job`] (C',
//!    T↓, D', Y). Hop 0 demands no more than (C, T↓, D_0↓ - Λ↑, 0): its deadlines are T apart and
//!    its release is Λ↑ late. How many messages come at once does not matter: their deadlines
//!    differ. (Eq. 8 counts a batch as if due at once, and a window per receiving job, though
//!    batches of two can overlap.)
//! 5. *Batches* bound E, and the execution of a receiving job: [`batch`], with J = R_s + δ+ - δ-
//!    and H = the latest arrival in the buffer less the sum of all δ-.
//! 6. *End to end.* The last hop is done by a + hi; that is in time if hi <= D↓. ∎
//!
//! *Table tasks.* A table job is due a period after its multiple, and done R after it. So it is in time if R <= T↓ of
//! its task. An interrupt is due as its flows come at the soonest. The proof above holds for longer R, too: then flows
//! and local tasks are in time, and jobs of the table may not be.
//!
//! E and the latest arrivals depend on each other where clocks drift; the least fixed point is
//! found from E = 0. By the same induction over time it bounds what happens.
//!
//! *Time synchronisation.* In the simulation messages of `clock.sync` take turns of the table tasks, too. [`exchange`]
//! bounds how many come at once. These bounds are part of the fixed point.
//!
//! A node may have *interrupts* in place of the table tasks: [`interrupts`].
//!
//! | paper | here |
//! |---|---|
//! | τ_i = (T, C, D) -> (T', C') | [`Route`] `t`, `c` of hop 0, `d`; `gap`, `c` of the others |
//! | D_i / m_i (Eq. 12, 13) | `d` of [`Hop`] |
//! | δ-, δ+ | `delay_min`, `delay_max` of [`Hop`] |
//! | (T_m^r, C_m^r), (T_m^s, C_m^s) | `receive`, `send` of [`AnalysedNode`] |
//! | k_i (Eq. 5) | `messages` of [`HopBound`] |
//! | D'_(i,s) (Eq. 6) | `window` of [`HopBound`] |

pub(crate) mod apply;
pub mod assign;
pub mod batch;
pub mod below;
pub mod delay;
pub mod exchange;
pub mod interrupts;
pub mod network;
pub mod paper;
#[cfg(test)]
mod reference;
pub mod row;
pub mod shares;
pub mod size;
#[cfg(test)]
mod tests;
pub mod transport;

use takt_model::Drift;

use crate::edf::qpa::Tick;
use batch::{Receiver, Source};
use below::{EdfBelowTable, Job, Supply, TableJob};
use exchange::SyncWay;

/// Rounds of the fixed point of left-overs before it gives up.
pub const ROUNDS_MAX: u32 = 1_000;

/// A periodic table task; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transport {
    /// Its period.
    pub t: u64,
    /// Its longest execution, with what switches cost it.
    pub c: u64,
    /// Messages that one job handles at most; `None`: all that wait.
    pub most: Option<u64>,
}

/// A task that stays on its node; times in ns by the node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// C: longest execution, with what switches cost it.
    pub c: u64,
    /// T: least distance of arrivals.
    pub t: u64,
    /// D: relative to the arrival.
    pub d: u64,
    /// Release jitter.
    pub jitter: u64,
    /// The longest section of a job due later that can delay it.
    pub blocked: u64,
}

/// A node; times in ns by its clock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AnalysedNode {
    /// The receiving task.
    pub receive: Option<Transport>,
    /// The sending task.
    pub send: Option<Transport>,
    /// On a node with interrupts: the time of the interrupt of a message, at its arrival and at its send.
    pub interrupt: Option<u64>,
    /// The scheduler's tick and interrupts, if they cost anything.
    pub tick: Option<Tick>,
    /// Time of ordinary threads, anywhere in each of their periods.
    pub ordinary: Option<Tick>,
    /// Λ: how late a timer releases a job at most, after hop 0's arrivals and table tasks'
    /// multiples. The jitter of local tasks includes it.
    pub latency: u64,
    /// Tasks that stay here.
    pub locals: Vec<Local>,
    /// Whether jobs run to completion, but for the table.
    pub to_completion: bool,
}

/// One hop of a flow; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hop {
    /// Index of its node.
    pub node: usize,
    /// C, or C' after the first hop, with what switches cost it.
    pub c: u64,
    /// D_h: its relative deadline, from that of the hop before.
    pub d: u64,
    /// δ-: least delay of the network from the node before; not used on hop 0.
    pub delay_min: u64,
    /// δ+: most delay.
    pub delay_max: u64,
}

/// A flow; times in ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// T: least distance of arrivals.
    pub t: u64,
    /// T': least distance of messages that leave a node.
    pub gap: u64,
    /// D: end to end.
    pub d: u64,
    /// Its hops, at least one.
    pub hops: Vec<Hop>,
}

/// Time synchronisation at every node that flows connect to others; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sync {
    /// Period of a node's exchanges.
    pub t: u64,
    /// Longest execution of the node's job, with what switches cost it.
    pub c: u64,
}

/// A distributed system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Net {
    /// Its nodes.
    pub nodes: Vec<AnalysedNode>,
    /// Its flows.
    pub flows: Vec<Route>,
    /// How clocks drift.
    pub drift: Drift,
    /// ε: the largest error of a deadline that is converted to another clock, in ns.
    pub error: u64,
    /// Time synchronisation.
    pub sync: Option<Sync>,
    /// The ways of its messages, at most one for each pair of neighbours and direction. No message goes elsewhere.
    pub sync_ways: Vec<SyncWay>,
}

/// Bounds of a hop; times in ns of true time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HopBound {
    /// k: messages of the flow that one receiving job takes at most; `None` on hop 0.
    pub messages: Option<u64>,
    /// D': least time from the release of the hop's job to its deadline.
    pub window: u64,
    /// Latest release after the flow's arrival.
    pub release: u64,
    /// lo, hi: bounds of its deadline after the flow's arrival.
    pub due: (u64, u64),
    /// How its messages arrive; `None` on hop 0.
    pub source: Option<Source>,
    /// Whether jobs of the flow become ready here in the order of their arrivals.
    pub ordered: bool,
}

/// Bounds of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowBound {
    /// Its hops. The bounds hold if every node on its path passes.
    Bounded(Vec<HopBound>),
    /// The reason why it has no bound.
    Open(Refusal),
}

/// Why a flow is not bounded. `hop` counts from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The node that a hop leaves from has no sending task.
    NoSend {
        /// The hop that leaves.
        hop: usize,
    },
    /// The node of a hop has no receiving task.
    NoReceive {
        /// The hop.
        hop: usize,
    },
    /// The table of the hop's node never comes to rest.
    Table {
        /// The hop.
        hop: usize,
    },
    /// Messages may leave only every `gap`, and come every `period`: they pile up.
    Gap {
        /// The hop that leaves.
        hop: usize,
        /// Distance on the sender's grid, in true time at most.
        gap: u64,
        /// Distance of the flow's arrivals, in true time at least.
        period: u64,
    },
    /// The sending task of the hop's node handles `most` messages a job, and `wait` may wait.
    Send {
        /// The hop that leaves.
        hop: usize,
        /// Most messages of a job.
        most: u64,
        /// What may wait.
        wait: u64,
    },
    /// Left-overs of the receiving task of the hop's node have no bound.
    Leftover {
        /// The hop.
        hop: usize,
    },
    /// Messages of time synchronisation may take any time on this way, so the left-overs of a node have no bound.
    Exchange {
        /// The node that sends them.
        from: usize,
        /// The node that receives them.
        to: usize,
    },
    /// The deadline of a hop passes before its job can be relied on to be there, or leaves no time to run it.
    Window {
        /// The hop.
        hop: usize,
        /// From its release to its deadline; negative where it is late already.
        window: i128,
    },
    /// The last hop is due after the end-to-end deadline.
    End {
        /// When, at the latest, after the arrival.
        due: u64,
        /// The deadline, in true time at least.
        deadline: u64,
    },
    /// Times exceed 64-bit nanoseconds, or a limit was reached.
    Limit,
}

/// Bounds of a node; times in ns of true time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeBound {
    /// Demand against supply; of the flows that are bounded.
    pub supply: Supply,
    /// The most by which every job could be blocked in addition. `None` if a job may miss, or if it was not asked for.
    pub margin: Option<u64>,
    /// The most messages that wait when a receiving job starts, of all sources. `None`: no bound.
    pub waiting: Option<u64>,
    /// E: jobs of the receiving task that a message may wait for in addition, because of left-overs.
    pub leftover: u64,
    /// R and the shortest deadline of a table task, if R is longer. No flow depends on it.
    pub table_late: Option<(u64, u64)>,
}

/// Bounds of a distributed system, by [`analyse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemBounds {
    /// In the order of the nodes.
    pub nodes: Vec<NodeBound>,
    /// In the order of the flows.
    pub flows: Vec<FlowBound>,
}

impl SystemBounds {
    /// Whether every deadline is met: of local tasks, of table tasks and end to end.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.nodes.iter().all(|node| matches!(node.supply, Supply::Met { .. }) && node.table_late.is_none())
            && self.flows.iter().all(|flow| matches!(flow, FlowBound::Bounded(_)))
    }

    /// The least margin of its nodes, in ns; `None` if some deadline may be missed, or there is no job.
    #[must_use]
    pub fn margin(&self) -> Option<u64> {
        if !self.schedulable() {
            return None;
        }
        self.nodes.iter().filter_map(|node| node.margin).min()
    }
}

/// Analyses a whole system; also the margins of its nodes if `margins`.
#[must_use]
pub fn analyse(net: &Net, margins: bool) -> SystemBounds {
    analyse_by(net, margins, &mut |_, below| below.analyse())
}

/// [`analyse`] with `supply` in place of [`EdfBelowTable::analyse`]. It gets the index of the node.
pub(crate) fn analyse_by(
    net: &Net,
    margins: bool,
    supply: &mut dyn FnMut(usize, &EdfBelowTable) -> Supply,
) -> SystemBounds {
    let mut fixed_point = FixedPoint::new(net);
    let flows = fixed_point.bound_flows();
    let nodes = (0..net.nodes.len())
        .map(|node| {
            let jobs = jobs(net, node, &flows);
            let station = &net.nodes[node];
            let Some((jobs, table)) = jobs.zip(net.table(node, &flows)) else {
                let undecided = Supply::Undecided;
                return NodeBound { supply: undecided, margin: None, waiting: None, leftover: 0, table_late: None };
            };
            let below = EdfBelowTable::new(&jobs, &table, !station.to_completion);
            let supply = supply(node, &below);
            let margin = if margins { below.margin() } else { None };
            let leftover = fixed_point.leftover[node];
            let response_and_deadline = fixed_point.response[node].zip(net.table_deadline(node));
            let table_late = response_and_deadline.filter(|(response, deadline)| response > deadline);
            NodeBound { supply, margin, waiting: fixed_point.waiting(node, &flows), leftover, table_late }
        })
        .collect();
    SystemBounds { nodes, flows }
}

impl Net {
    /// The table of a node in true time, with the tick, ordinary threads and the interrupts of these
    /// flows; `None` where a period is shorter than a nanosecond.
    fn table(&self, node: usize, flows: &[FlowBound]) -> Option<Vec<TableJob>> {
        let (station, drift) = (&self.nodes[node], self.drift);
        let latency = self.latency(node)?;
        let job = |c: u64, t: u64, late: u64| Some(TableJob { c: drift.most(c)?, t: drift.least(t), late });
        let mut table = Vec::new();
        for task in [station.receive, station.send].into_iter().flatten() {
            table.push(job(task.c, task.t, latency)?);
        }
        if let Some(tick) = station.tick {
            table.push(job(tick.c, tick.t, 0)?);
        }
        if let Some(ordinary) = station.ordinary {
            let taken = job(ordinary.c, ordinary.t, 0)?;
            table.push(TableJob { late: taken.t.saturating_sub(taken.c), ..taken });
        }
        table.extend(interrupts::load(self, node, flows)?);
        Some(table).filter(|table| table.iter().all(|task| task.t > 0))
    }

    /// Λ of a node in true time.
    fn latency(&self, node: usize) -> Option<u64> {
        self.drift.most(self.nodes[node].latency)
    }

    /// R of a node, with the interrupts of these flows.
    fn response(&self, node: usize, flows: &[FlowBound]) -> Option<u64> {
        // No timer releases an interrupt.
        let latency = if self.nodes[node].interrupt.is_some() { 0 } else { self.latency(node)? };
        below::table_response(&self.table(node, flows)?)?.checked_add(latency)
    }

    /// The shortest deadline of a table task of a node in true time: the least period of these tasks, or where
    /// messages interrupt, of the flows there.
    fn table_deadline(&self, node: usize) -> Option<u64> {
        let station = &self.nodes[node];
        let tasks = [station.receive, station.send].into_iter().flatten().map(|task| task.t);
        // Only interrupts go by the periods of flows.
        let interrupts = if station.interrupt.is_some() { self.flows.as_slice() } else { &[] };
        let flows = interrupts.iter().filter(|flow| flow.hops.iter().any(|hop| hop.node == node)).map(|flow| flow.t);
        tasks.chain(flows).min().map(|period| self.drift.least(period))
    }

    /// The nodes that a node has flows from or to.
    fn neighbours(&self, node: usize) -> u64 {
        let mut near: Vec<usize> = Vec::new();
        for pair in self.flows.iter().flat_map(|flow| flow.hops.windows(2)) {
            let (from, to) = (pair[0].node, pair[1].node);
            near.extend([(from, to), (to, from)].iter().filter(|(here, _)| *here == node).map(|(_, there)| *there));
        }
        near.sort_unstable();
        near.dedup();
        near.len() as u64
    }

    /// The most messages of time synchronisation that become ready for a sending job of a node within a window. In each
    /// period there are a request and an answer for each neighbour.
    fn sync_messages(&self, node: usize, window: u64) -> Option<u64> {
        let Some(sync) = self.sync else { return Some(0) };
        let period = self.drift.least(sync.t).max(1);
        window.div_ceil(period).checked_add(1)?.checked_mul(self.neighbours(node).checked_mul(2)?)
    }
}

/// The least fixed point of left-overs, latest arrivals and responses of interrupts.
struct FixedPoint<'a> {
    net: &'a Net,
    /// R of each node's table.
    response: Vec<Option<u64>>,
    /// E of each node.
    leftover: Vec<u64>,
    /// Whether E has no bound.
    unbounded: Vec<bool>,
}

impl<'a> FixedPoint<'a> {
    fn new(net: &'a Net) -> Self {
        let response = (0..net.nodes.len()).map(|node| net.response(node, &[])).collect();
        FixedPoint { net, response, leftover: vec![0; net.nodes.len()], unbounded: vec![false; net.nodes.len()] }
    }

    /// Iterates until nothing changes, and returns the bounds of all flows.
    fn bound_flows(&mut self) -> Vec<FlowBound> {
        for _ in 0..ROUNDS_MAX {
            let bound = |flow: &Route| self.bound_hops(flow).map_or_else(FlowBound::Open, FlowBound::Bounded);
            let flows: Vec<FlowBound> = self.net.flows.iter().map(bound).collect();
            let mut changed = false;
            for node in 0..self.net.nodes.len() {
                changed |= self.raise_response(node, &flows);
                if self.net.nodes[node].receive.is_none_or(|receive| receive.most.is_none()) || self.unbounded[node] {
                    continue;
                }
                match self.leftover_bound(node, &flows) {
                    Some(wait) if wait <= self.leftover[node] => {}
                    Some(wait) => (self.leftover[node], changed) = (wait, true),
                    None => (self.unbounded[node], changed) = (true, true),
                }
            }
            if !changed {
                return flows;
            }
        }
        self.net.flows.iter().map(|_| FlowBound::Open(Refusal::Limit)).collect()
    }

    /// Raises R of a node with interrupts to what these flows cause. Returns whether it has changed.
    fn raise_response(&mut self, node: usize, flows: &[FlowBound]) -> bool {
        let (net, Some(before)) = (self.net, self.response[node]) else { return false };
        if net.nodes[node].interrupt.is_none() {
            return false;
        }
        // A flow that lost its bound loads nothing any more. R stays, so that this ends.
        let raised = net.response(node, flows).map(|now| now.max(before));
        let changed = raised != Some(before);
        self.response[node] = raised;
        changed
    }

    /// E of a node.
    fn leftover_bound(&self, node: usize, flows: &[FlowBound]) -> Option<u64> {
        let receiver = receiver(self.net, node, self.response[node]?)?;
        let mut sources: Vec<Source> = sources(self.net, node, flows).collect();
        sources.extend(self.exchanges(node, flows)?);
        receiver.wait(&sources)
    }

    /// Most messages that wait at the receiving task of a node.
    fn waiting(&self, node: usize, flows: &[FlowBound]) -> Option<u64> {
        let receiver = Receiver { most: None, ..receiver(self.net, node, self.net.response(node, flows)?)? };
        let window = receiver.window(self.leftover[node].checked_add(1)?)?;
        let mut sources = sources(self.net, node, flows).chain(self.exchanges(node, flows)?);
        sources.try_fold(0u64, |sum, source| sum.checked_add(source.arrivals(window)?))
    }

    /// Steps 1 to 4 of the module's proof, hop by hop.
    fn bound_hops(&self, flow: &Route) -> Result<Vec<HopBound>, Refusal> {
        let (net, drift) = (self.net, self.net.drift);
        let limit = || Refusal::Limit;
        let mut bounds: Vec<HopBound> = Vec::with_capacity(flow.hops.len());
        for (index, hop) in flow.hops.iter().enumerate() {
            let (release, window, due, source) = match bounds.last() {
                None => {
                    let due = (drift.least(hop.d), drift.most(hop.d).ok_or_else(limit)?);
                    let release = net.latency(hop.node).ok_or_else(limit)?;
                    (release, i128::from(due.0) - i128::from(release), due, None)
                }
                Some(before) => {
                    let left = self.latest_departure(flow, index - 1, before)?;
                    let buffered = left.checked_add(hop.delay_max).ok_or_else(limit)?;
                    let late = self.reception(index, hop.node)?;
                    let release = buffered.checked_add(late).ok_or_else(limit)?;
                    let skew = drift.skew(release).ok_or_else(limit)?;
                    let longest = hop.d.checked_add(net.error).and_then(|d| drift.most(d)).ok_or_else(limit)?;
                    let high =
                        before.due.1.checked_add(longest).and_then(|due| due.checked_add(skew)).ok_or_else(limit)?;
                    let shortest = i128::from(drift.least(hop.d.saturating_sub(net.error))) - i128::from(skew);
                    // `release` counts from the arrival and the latest deadline before: their difference is the wait.
                    let wait = i128::from(release) - i128::from(before.due.0);
                    let low = u64::try_from(i128::from(before.due.0) + shortest)
                        .map_err(|_| Refusal::Window { hop: index, window: shortest - wait })?;
                    let source = Source {
                        gap: self.send_gap(flow, index - 1).map(|(least, _)| least).ok_or_else(limit)?,
                        gap_jitter: self.transit_jitter(flow, index).ok_or_else(limit)?,
                        period: drift.least(flow.t).max(1),
                        period_jitter: buffered - least_transit(flow, index).min(buffered),
                    };
                    (release, shortest - wait, (low, high), Some(source))
                }
            };
            if window < i128::from(drift.most(hop.c).ok_or_else(limit)?) || window <= 0 {
                return Err(Refusal::Window { hop: index, window });
            }
            let in_order = |source: Source| source.gap_jitter < source.gap && due.1 - due.0 < drift.least(flow.t);
            let ordered = bounds.last().is_none_or(|before| before.ordered) && source.is_none_or(in_order);
            let messages = match (source, self.response[hop.node]) {
                (Some(source), Some(response)) if net.nodes[hop.node].receive.is_some() => {
                    let receiver = receiver(net, hop.node, response).ok_or_else(limit)?;
                    Some(receiver.messages(&source, self.leftover[hop.node]).ok_or_else(limit)?)
                }
                _ => None,
            };
            // Positive and below some 64-bit deadline.
            bounds.push(HopBound { messages, window: window as u64, release, due, source, ordered });
        }
        let (due, deadline) = (bounds.last().map_or(0, |hop| hop.due.1), drift.least(flow.d));
        if due > deadline { Err(Refusal::End { due, deadline }) } else { Ok(bounds) }
    }

    /// The longest time from the arrival of a message in the buffer of a hop's node to the release of
    /// its job.
    fn reception(&self, hop: usize, node: usize) -> Result<u64, Refusal> {
        let net = self.net;
        let response = self.response[node].ok_or(Refusal::Table { hop })?;
        if net.nodes[node].interrupt.is_some() {
            return Ok(response);
        }
        let receive = net.nodes[node].receive.ok_or(Refusal::NoReceive { hop })?;
        if self.unbounded[node] {
            let refusal = |way: SyncWay| Refusal::Exchange { from: way.from, to: way.to };
            return Err(self.unbounded_way(node).map_or(Refusal::Leftover { hop }, refusal));
        }
        net.in_buffer(receive.t, self.leftover[node], response).ok_or(Refusal::Limit)
    }

    /// The latest instant, after the arrival, at which a hop's message has left.
    fn latest_departure(&self, flow: &Route, hop: usize, bound: &HopBound) -> Result<u64, Refusal> {
        let net = self.net;
        let node = flow.hops[hop].node;
        if net.nodes[node].interrupt.is_some() {
            let response = self.response[node].ok_or(Refusal::Table { hop })?;
            return bound.due.1.checked_add(response).ok_or(Refusal::Limit);
        }
        let send = net.nodes[node].send.ok_or(Refusal::NoSend { hop })?;
        let response = self.response[node].ok_or(Refusal::Table { hop })?;
        let (_, gap) = self.send_gap(flow, hop).ok_or(Refusal::Limit)?;
        let period = net.drift.least(flow.t);
        if gap > period {
            return Err(Refusal::Gap { hop, gap, period });
        }
        if let Some(most) = send.most {
            let leaving = |flow: &Route| {
                flow.hops.split_last().map_or(0, |(_, but)| but.iter().filter(|hop| hop.node == node).count())
            };
            let turn = net.drift.most(send.t).and_then(|turn| turn.checked_add(response)).ok_or(Refusal::Limit)?;
            let sync = net.sync_messages(node, turn).ok_or(Refusal::Limit)?;
            let wait = sync.saturating_add(net.flows.iter().map(leaving).sum::<usize>() as u64);
            if wait > most {
                return Err(Refusal::Send { hop, most, wait });
            }
        }
        let turn = if bound.ordered { net.drift.most(send.t).ok_or(Refusal::Limit)? } else { gap };
        bound.due.1.checked_add(turn).and_then(|at| at.checked_add(response)).ok_or(Refusal::Limit)
    }

    /// G: the least and the most true time between the grid points of two messages that leave a hop. 1 ns if each
    /// message leaves at once.
    fn send_gap(&self, flow: &Route, hop: usize) -> Option<(u64, u64)> {
        let node = &self.net.nodes[flow.hops[hop].node];
        if node.interrupt.is_some() {
            // Nothing keeps messages apart.
            return Some((1, 1));
        }
        let send = node.send?;
        let gap = flow.gap.div_ceil(send.t).max(1).checked_mul(send.t)?;
        Some((self.net.drift.least(gap).max(1), self.net.drift.most(gap)?))
    }

    /// J: how much the time from the sender's grid to the buffer of a hop's node varies.
    fn transit_jitter(&self, flow: &Route, hop: usize) -> Option<u64> {
        let (before, here) = (&flow.hops[hop - 1], &flow.hops[hop]);
        self.response[before.node]?.checked_add(here.delay_max)?.checked_sub(here.delay_min)
    }
}

/// The least time from the arrival of an instance to the arrival of its message at a hop: the least delays of the
/// network.
fn least_transit(flow: &Route, hop: usize) -> u64 {
    flow.hops[1..=hop].iter().fold(0u64, |sum, hop| sum.saturating_add(hop.delay_min))
}

fn receiver(net: &Net, node: usize, response: u64) -> Option<Receiver> {
    let receive = net.nodes[node].receive?;
    let period = net.drift.most(receive.t)?;
    Some(Receiver { period, late: response.checked_sub(net.drift.most(receive.c)?)?, most: receive.most })
}

/// How the messages of bounded flows arrive at a node.
fn sources<'a>(net: &'a Net, node: usize, flows: &'a [FlowBound]) -> impl Iterator<Item = Source> + 'a {
    let hops = net.flows.iter().zip(flows).flat_map(|(flow, bound)| match bound {
        FlowBound::Bounded(bounds) => flow.hops.iter().zip(bounds).collect::<Vec<_>>(),
        FlowBound::Open(_) => Vec::new(),
    });
    hops.filter(move |(hop, _)| hop.node == node).filter_map(|(_, bound)| bound.source)
}

/// The deadline of a node with the least time to spare. Times are in ns of true time, from the start of a busy window.
pub(crate) struct TightestDeadline {
    /// t: the deadline.
    pub(crate) t: u64,
    /// When the work that is due by t is done. More than t: too late.
    pub(crate) done: u64,
    /// Per local task, hop and synchronisation: the number of jobs that are due by t, and their work.
    pub(crate) jobs: Vec<(u64, u64)>,
    /// The same for table jobs before `done`.
    pub(crate) table: Vec<(u64, u64)>,
    /// Blocking, once per busy window.
    pub(crate) blocking: u64,
}

/// Looks for the tightest deadline of a node, or takes `t`. `None` if there is no deadline, or a limit was reached.
pub(crate) fn tightest(net: &Net, node: usize, flows: &[FlowBound], t: Option<u64>) -> Option<TightestDeadline> {
    let (jobs, table) = (jobs(net, node, flows)?, net.table(node, flows)?);
    let below = EdfBelowTable::new(&jobs, &table, !net.nodes[node].to_completion);
    let (t, done) = match t {
        Some(t) => (t, below.done(t, &mut { below::TERMS_MAX })?),
        None => below.tightest()?,
    };
    let count = |job: &Job| if job.d > t { 0 } else { (t - job.d).saturating_add(job.release_delay) / job.t + 1 };
    let of_table = |job: &TableJob| {
        let count = done.saturating_add(job.late).div_ceil(job.t);
        (count, count.saturating_mul(job.c))
    };
    let each: Vec<(u64, u64)> = jobs.iter().map(|job| (count(job), count(job).saturating_mul(job.c))).collect();
    let table: Vec<(u64, u64)> = table.iter().map(of_table).collect();
    Some(TightestDeadline { t, done, jobs: each, table, blocking: below.blocking(t)? })
}

/// The EDF jobs of a node; `None` if release jitter or latency uses up a deadline.
fn jobs(net: &Net, node: usize, flows: &[FlowBound]) -> Option<Vec<Job>> {
    let drift = net.drift;
    let mut jobs = Vec::new();
    for local in &net.nodes[node].locals {
        let d = drift.least(local.d).checked_sub(drift.most(local.jitter)?).filter(|d| *d > 0)?;
        let (c, t, blocked) = (drift.most(local.c)?, drift.least(local.t).max(1), drift.most(local.blocked)?);
        jobs.push(Job { c, t, d, release_delay: 0, blocked, span: drift.most(local.d)? });
    }
    for (flow, bound) in net.flows.iter().zip(flows) {
        let FlowBound::Bounded(bounds) = bound else { continue };
        for (hop, bound) in flow.hops.iter().zip(bounds).filter(|(hop, _)| hop.node == node) {
            // On hop 0 a deadline moves with its release, so deadlines are as far apart as releases.
            let release_delay = if bound.source.is_some() { bound.due.1 - bound.due.0 } else { 0 };
            let (d, span) = (bound.window, bound.due.1);
            let c = drift.most(hop.c)?;
            jobs.push(Job { c, t: drift.least(flow.t).max(1), d, release_delay, blocked: 0, span });
        }
    }
    if let Some(sync) = net.sync.filter(|_| net.neighbours(node) > 0) {
        let t = drift.least(sync.t).max(1);
        let d = t.checked_sub(net.latency(node)?).filter(|d| *d > 0)?;
        jobs.push(Job { c: drift.most(sync.c)?, t, d, release_delay: 0, blocked: 0, span: drift.most(sync.t)? });
    }
    Some(jobs)
}
