//! `partial-edf-paper`: the test of \[HEDF\] as printed, for comparison. **It is not sound**, and decides nothing.
//!
//! T. Qian, F. Mueller, Y. Xin: Hybrid EDF Packet Scheduling for Real-Time Distributed Systems,
//! Sections II-A and III-B. Per node m:
//!
//! - k_i = 1 + floor(T_r / T'_i + (δ+ - δ-) / T'_i)  (Eq. 5)
//! - D'_(i,s) = s T'_i + D_i - (T_r + C_r + δ+), 0 <= s < k_i  (Eq. 6)
//! - ρ_m = sum of C / min(T, D) over local tasks and flows that start here, + C_r / T_r + C_s / T_s  (Eq. 7)
//! - ρ'_m = sum over flows received here, over s, of C'_i / min(T_r, D'_(i,s))  (Eq. 8)
//! - ρ_m + ρ'_m <= 1  (Eq. 9)
//!
//! On a path of m_i nodes D_i becomes D_i / m_i in Eq. 7 and 2 D_i / m_i in Eq. 6 (Eq. 12, 13, and
//! the text below them); a reply counts as one more node. No clocks, no costs: the paper has none
//! there.
//!
//! Where it errs: Eq. 7 counts the table by C / T, though it comes before all jobs; Eq. 6 forgets
//! the wait for the sending task; Eq. 5 is one too high at integer ratios, and too low where a
//! receiving job takes what arrives until its end, or leaves messages over.

use std::cmp::Ordering;

use super::{Net, Route};
use crate::exact::{compare_sum, sum_ppm};

/// Messages of one batch that Eq. 8 may add up.
pub const MESSAGES_MAX: u64 = 100_000;

/// A hop as the paper sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaperHop {
    /// Index of the flow, and of the hop in it, from 1: hop 0 is no receiver.
    pub flow: usize,
    /// See `flow`.
    pub hop: usize,
    /// k (Eq. 5).
    pub messages: u64,
    /// D' for s = 0 .. k - 1 (Eq. 6), rounded down to ns; negative where messages cannot be in time.
    pub windows: Vec<i128>,
}

/// A node as the paper sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaperNode {
    /// Whether ρ + ρ' <= 1 (Eq. 9); `None` where that is not defined (no receiving task, D' not
    /// positive) or a limit was reached.
    pub passes: Option<bool>,
    /// ρ + ρ' in parts per million, to the nearest, where it is defined.
    pub density_ppm: Option<u64>,
    /// The hops that end here.
    pub hops: Vec<PaperHop>,
}

/// Eq. 5: messages that wait at most when a receiving job of period `receive` starts; all in ns.
/// `None` for T' = 0 or above `u64`.
///
/// ```
/// use takt_analysis::distributed::paper::messages;
///
/// assert_eq!(messages(5, 3, 1, 3), Some(3)); // Fig. 2
/// assert_eq!(messages(10_000_000, 5_000_000, 0, 100_000), Some(3)); // Section IV-C
/// assert_eq!(messages(10_000_000, 5_000_000, 5_250_000, 15_890_000), Some(5));
/// ```
#[must_use]
pub fn messages(receive: u64, gap: u64, delay_min: u64, delay_max: u64) -> Option<u64> {
    let varies = delay_max.checked_sub(delay_min)?;
    receive.checked_add(varies)?.checked_div(gap)?.checked_add(1)
}

/// Eq. 6 for one message, as a fraction of ns: (numerator, m).
fn window(flow: &Route, hop: usize, receive: (u64, u64), s: u64) -> Option<(i128, u64)> {
    let m = flow.hops.len() as u64;
    let (t, c) = receive;
    let wait = u128::from(t) + u128::from(c) + u128::from(flow.hops[hop].delay_max);
    let numerator = i128::from(s)
        .checked_mul(i128::from(flow.gap))?
        .checked_sub(i128::try_from(wait).ok()?)?
        .checked_mul(i128::from(m))?
        .checked_add(2 * i128::from(flow.d))?;
    Some((numerator, m))
}

/// The whole test of a node.
#[must_use]
pub fn node(net: &Net, node: usize) -> PaperNode {
    let station = &net.nodes[node];
    let mut densities: Option<Vec<(u64, u64)>> = Some(Vec::new());
    let add = |terms: &mut Option<Vec<(u64, u64)>>, term: Option<(u64, u64)>| {
        *terms = terms.take().zip(term.filter(|(_, d)| *d > 0)).map(|(mut terms, term)| {
            terms.push(term);
            terms
        });
    };
    for local in &station.locals {
        add(&mut densities, Some((local.c, local.t.min(local.d))));
    }
    for table in [station.receive, station.send].into_iter().flatten() {
        add(&mut densities, Some((table.c, table.t)));
    }
    let mut hops = Vec::new();
    for (index, flow) in net.flows.iter().enumerate() {
        let m = flow.hops.len() as u64;
        if flow.hops.first().is_some_and(|hop| hop.node == node) {
            // C / min(T, D / m) = C m / min(m T, D)
            let term = flow.hops[0].c.checked_mul(m).zip(flow.t.checked_mul(m).map(|t| t.min(flow.d)));
            add(&mut densities, term);
        }
        for (h, hop) in flow.hops.iter().enumerate().skip(1).filter(|(_, hop)| hop.node == node) {
            let batch = station.receive.and_then(|task| messages(task.t, flow.gap, hop.delay_min, hop.delay_max));
            let Some((receive, k)) = station.receive.zip(batch).filter(|(_, k)| *k <= MESSAGES_MAX) else {
                add(&mut densities, None);
                continue;
            };
            let mut windows = Vec::new();
            for s in 0..k {
                let Some((numerator, m)) = window(flow, h, (receive.t, receive.c), s) else {
                    add(&mut densities, None);
                    break;
                };
                windows.push(numerator.div_euclid(i128::from(m)));
                // C' / min(T_r, n / m) = C' m / min(m T_r, n)
                let least = receive.t.checked_mul(m).map(|t| i128::from(t).min(numerator));
                let term = hop.c.checked_mul(m).zip(least.and_then(|least| u64::try_from(least).ok()));
                add(&mut densities, term);
            }
            hops.push(PaperHop { flow: index, hop: h, messages: k, windows });
        }
    }
    let terms = densities.filter(|terms| terms.iter().all(|(c, _)| *c <= u64::MAX / 2));
    let compared = terms.as_ref().and_then(|terms| compare_sum(terms.iter().copied(), 1));
    let density_ppm = terms.and_then(|terms| sum_ppm(terms.iter().copied()));
    PaperNode { passes: compared.map(|order| order != Ordering::Greater), density_ppm, hops }
}
