//! [HEDF] Section IV in virtual time: messages of partial-EDF nodes, and the delays of a cluster of
//! eight nodes.
//!
//! - `ki`: how many messages wait at once (Section IV-C), in theory and in simulated System files.
//! - `delays`: Figs. 4 and 5, round trips with and without shares of the bandwidth.
//! - `misses`: Fig. 6, deadline misses under growing load.
//! - `predictability`: what Section I argues of partial-EDF, interrupts and cyclic executives.
//! - `switches`: what Section VI leaves open, delays through several switches.
//! - `live`: the figures on this kernel, beside their simulations.
//! - `cluster` has the nodes and the switch of the figures, `bounds` what is proven of them.

use takt_model::Span;

use super::context::Context;
use super::findings::Findings;
use super::{Experiment, HEDF, LiveForm};
use crate::failure::Failure;

mod batches;
mod bounds;
mod cluster;
mod delays;
mod ki;
mod live;
mod misses;
mod predictability;
mod setups;
mod switches;

/// All times are in seconds.
const fn on_this_kernel(
    (takes, short): (u64, u64),
    longest: u64,
    run: fn(&Context) -> Result<Findings, Failure>,
) -> LiveForm {
    let needs = "root (network namespaces, HTB, SCHED_FIFO), threaded NAPI (Linux 5.12) and two CPUs";
    LiveForm { needs, takes: (Span::from_s(takes), Span::from_s(short)), longest: Span::from_s(longest), run }
}

fn rounded(span: Span) -> String {
    let us = span.as_ns() as f64 / 1e3;
    if us < 1_000.0 { format!("{us:.1} us") } else { format!("{:.2} ms", us / 1e3) }
}

pub(super) const KI: Experiment = Experiment::in_virtual_time(
    &HEDF,
    "hedf-ki",
    "Section IV-C",
    "how many messages wait at once for a receiving task, and how large the tasks of the table must be",
    (Span::from_s(20), Span::from_s(11)),
    ki::reproduce,
)
.or(on_this_kernel((280, 50), 600, live::ki::reproduce));

pub(super) const FIG4: Experiment = Experiment::in_virtual_time(
    &HEDF,
    "hedf-fig4",
    "Fig. 4",
    "round trips of one node of eight with and without shares of the bandwidth, and what a token bucket lets through",
    (Span::from_s(10), Span::from_s(1)),
    delays::one_node,
)
.or(on_this_kernel((170, 20), 600, live::delays::one_node));
pub(super) const FIG5: Experiment = Experiment::in_virtual_time(
    &HEDF,
    "hedf-fig5",
    "Fig. 5",
    "the same for all nodes, and which rate a wanted delay needs",
    (Span::from_s(30), Span::from_s(1)),
    delays::all_nodes,
)
.or(on_this_kernel((70, 10), 600, live::delays::all_nodes));
pub(super) const FIG6: Experiment = Experiment::in_virtual_time(
    &HEDF,
    "hedf-fig6",
    "Fig. 6",
    "deadline misses of messages under growing load, in order of arrival, by deadline, and without late ones",
    (Span::from_s(60), Span::from_s(2)),
    misses::reproduce,
)
.or(on_this_kernel((400, 28), 60, live::misses::reproduce));
pub(super) const PREDICTABILITY: Experiment = Experiment::in_virtual_time(
    &HEDF,
    "hedf-predictability",
    "Sections I and II-A",
    "responses, switches and misses of partial-EDF, interrupts and a cyclic executive on eight nodes",
    (Span::from_s(30), Span::from_s(2)),
    predictability::reproduce,
);
pub(super) const SWITCHES: Experiment = Experiment::in_virtual_time(
    &HEDF,
    "hedf-switches",
    "Section VI",
    "delays through one to six switches, with and without shares of the bandwidth, and their bounds",
    (Span::from_s(30), Span::from_s(1)),
    switches::reproduce,
);
