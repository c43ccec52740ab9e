//! How a flow's end-to-end deadline is shared among its hops.
//!
//! The *need* of a hop is its wait and its execution. The wait lasts from the deadline of the hop
//! before to the release of the job (step 3 of the [module](super)'s proof). The *slack* is the
//! end-to-end deadline minus the needs of all hops.
//!
//! | choice | D_h |
//! |---|---|
//! | [`Choice::Even`] | room / m [HEDF, Eq. 12, 13] |
//! | [`Choice::Proportional`] | room x need_h / (sum of needs) |
//! | [`Choice::EqualSlack`] | need_h + slack / m |
//! | [`Choice::EqualFlexibility`] | need_h + slack x c_h / (sum of c) |
//! | [`Choice::EffectiveDeadline`] | need_h, and all slack to the first hop: every deadline as late as the hops after it allow |
//! | [`Choice::Search`] | the best of these, then moved between hops while the least margin of the nodes grows |
//!
//! B. Kao, H. Garcia-Molina: Deadline Assignment in a Distributed Soft Real-Time System, TPDS
//! 8(12), 1997 (their serial tasks, with needs for execution times). With negative slack all rules
//! fall back to proportional shares, and the flow cannot be proven.

use takt_model::flows::room;
use takt_model::named;

use super::below::{EdfBelowTable, Supply};
use super::{FlowBound, Net, Route, SystemBounds, analyse};

/// Analyses that a search may make.
pub const ANALYSES_MAX: u32 = 1_500;

named! {
    /// How deadlines are shared.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Choice {
        /// Even shares.
        Even => "even",
        /// In proportion to what hops need.
        Proportional => "proportional",
        /// The needs of the hops, and even shares of the rest.
        EqualSlack => "equal-slack",
        /// The needs of the hops, and the rest in proportion to execution.
        EqualFlexibility => "equal-flexibility",
        /// As late as the hops after allow.
        EffectiveDeadline => "effective-deadline",
        /// A search for the largest margin.
        Search => "search",
    }
}

impl Choice {
    /// The choice of that name, if there is one.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Choice> {
        Choice::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

/// Even shares; what does not divide goes to the last.
#[must_use]
pub fn even(room: u64, hops: usize) -> Vec<u64> {
    by_weight(room, &vec![1; hops])
}

/// Shares by weight, rounded down; what is left goes to the last. All weights zero: even shares.
fn by_weight(room: u64, weights: &[u64]) -> Vec<u64> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if total == 0 {
        return if weights.is_empty() { Vec::new() } else { even(room, weights.len()) };
    }
    let share = |weight: &u64| (u128::from(room) * u128::from(*weight) / total) as u64;
    let mut shares: Vec<u64> = weights.iter().map(share).collect();
    let given: u64 = shares.iter().sum();
    if let Some(last) = shares.last_mut() {
        *last += room - given;
    }
    shares
}

/// The need of each hop of each flow. `None`: no deadlines help the flow, for example without a
/// receiving task.
#[must_use]
pub fn needs(net: &Net) -> Vec<Option<Vec<u64>>> {
    // Deadlines are so long that no wait exceeds them. Skews are then those of the longest times that
    // can still be in time.
    let mut easy = net.clone();
    for flow in &mut easy.flows {
        let wide = flow.d.saturating_mul(4);
        flow.d = wide.saturating_mul(8 * flow.hops.len() as u64);
        flow.hops.iter_mut().for_each(|hop| hop.d = wide);
    }
    let found = analyse(&easy, false);
    let flow = |(flow, bound): (&Route, &FlowBound)| match bound {
        FlowBound::Open(_) => None,
        FlowBound::Bounded(bounds) => {
            let need =
                |(hop, bound): (&super::Hop, &super::HopBound)| (hop.d - bound.window.min(hop.d)).saturating_add(hop.c);
            Some(flow.hops.iter().zip(bounds).map(need).collect())
        }
    };
    easy.flows.iter().zip(&found.flows).map(flow).collect()
}

/// Sets the deadlines of all hops of the flows that `chosen` picks.
pub fn assign(net: &mut Net, choice: Choice, chosen: &[bool]) {
    let needs = needs(net);
    if choice == Choice::Search {
        search(net, chosen, &needs);
    } else {
        apply(net, choice, chosen, &needs);
    }
}

fn apply(net: &mut Net, choice: Choice, chosen: &[bool], needs: &[Option<Vec<u64>>]) {
    for index in (0..net.flows.len()).filter(|index| chosen.get(*index) == Some(&true)) {
        let flow = &mut net.flows[index];
        let room = room(flow.d, flow.hops.len() as u64, net.error, net.drift);
        let shares = shares(room, flow, choice, needs[index].as_deref());
        flow.hops.iter_mut().zip(shares).for_each(|(hop, share)| hop.d = share);
    }
}

fn shares(room: u64, flow: &Route, choice: Choice, needs: Option<&[u64]>) -> Vec<u64> {
    let hops = flow.hops.len();
    let Some(needs) = needs else { return even(room, hops) };
    let needed = needs.iter().fold(0u64, |sum, need| sum.saturating_add(*need));
    let plus = |extra: Vec<u64>| needs.iter().zip(extra).map(|(need, extra)| need + extra).collect();
    match (choice, room.checked_sub(needed)) {
        (Choice::Even, _) => even(room, hops),
        (Choice::Proportional | Choice::Search, _) | (_, None) => by_weight(room, needs),
        (Choice::EqualSlack, Some(slack)) => plus(even(slack, hops)),
        (Choice::EqualFlexibility, Some(slack)) => {
            plus(by_weight(slack, &flow.hops.iter().map(|hop| hop.c).collect::<Vec<_>>()))
        }
        (Choice::EffectiveDeadline, Some(slack)) => {
            plus((0..hops).map(|hop| if hop == 0 { slack } else { 0 }).collect())
        }
    }
}

/// How good deadlines are: flows without a bound, then the least signed margin of the nodes, then
/// the sum of margins; more is better.
type Score = (i64, i128, i128);

fn score(net: &Net, found: &SystemBounds) -> Score {
    let open = found.flows.iter().filter(|flow| matches!(flow, FlowBound::Open(_))).count() as i64;
    let margins: Vec<i128> = (0..net.nodes.len()).filter_map(|node| signed_margin(net, node, found)).collect();
    (-open, margins.iter().copied().min().unwrap_or(0), margins.iter().sum())
}

/// [`EdfBelowTable::margin`] in ns, or minus the excess of the demand at worst. `None` if there is nothing to run.
fn signed_margin(net: &Net, node: usize, found: &SystemBounds) -> Option<i128> {
    let (Some(jobs), Some(table)) = (super::jobs(net, node, &found.flows), net.table(node, &found.flows)) else {
        return Some(i128::MIN / 1_000);
    };
    if jobs.is_empty() {
        return None;
    }
    let below = EdfBelowTable::new(&jobs, &table, !net.nodes[node].to_completion);
    if let Some(margin) = below.margin() {
        return Some(i128::from(margin));
    }
    let fits = |omitted_demand: u64| matches!(EdfBelowTable { omitted_demand, ..below }.analyse(), Supply::Met { .. });
    let mut most = 1u64;
    while !fits(most) {
        most = match most.checked_mul(2) {
            Some(next) if next < 1 << 50 => next,
            _ => return Some(i128::MIN / 1_000),
        };
    }
    let mut least = most / 2;
    while least < most {
        let middle = least.midpoint(most);
        if fits(middle) { most = middle } else { least = middle + 1 }
    }
    Some(-i128::from(most))
}

/// The best of the other choices, then moves between two hops of a flow, of ever smaller steps, while the score grows.
fn search(net: &mut Net, chosen: &[bool], needs: &[Option<Vec<u64>>]) {
    let mut left = ANALYSES_MAX;
    let mut rate = |net: &Net| {
        left = left.checked_sub(1)?;
        Some(score(net, &analyse(net, false)))
    };
    let mut best: Option<(Score, Net)> = None;
    for choice in Choice::ALL.into_iter().filter(|choice| *choice != Choice::Search) {
        let mut tried = net.clone();
        apply(&mut tried, choice, chosen, needs);
        let Some(found) = rate(&tried) else { break };
        if best.as_ref().is_none_or(|(score, _)| found > *score) {
            best = Some((found, tried));
        }
    }
    let Some((mut score, mut at)) = best else { return };
    let mut part = 4;
    'steps: while part <= 1024 {
        let mut better = false;
        for flow in (0..at.flows.len()).filter(|flow| chosen.get(*flow) == Some(&true)) {
            let hops = at.flows[flow].hops.len();
            for (from, to) in (0..hops).flat_map(|from| (0..hops).map(move |to| (from, to))).filter(|(a, b)| a != b) {
                let step = (at.flows[flow].d / part).max(1);
                let Some(less) = at.flows[flow].hops[from].d.checked_sub(step).filter(|d| *d > 0) else { continue };
                let mut tried = at.clone();
                tried.flows[flow].hops[from].d = less;
                tried.flows[flow].hops[to].d += step;
                let Some(found) = rate(&tried) else { break 'steps };
                if found > score {
                    (score, at, better) = (found, tried, true);
                }
            }
        }
        if !better {
            part *= 2;
        }
    }
    *net = at;
}
