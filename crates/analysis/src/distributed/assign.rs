//! How a flow's end-to-end deadline is shared among its hops.

use super::{Net, Route};

/// What the relative deadlines of a flow's hops may add up to, so that its last hop is due in time whatever clocks do.
///
/// Its last deadline is at most `(sum of D_h)↑ + (m - 1) (ε↑ + skew)` after the arrival, and a nanosecond a hop for rounding, where `skew` is that of
/// D, for no job that is in time is released later than that; see the proof of the [module](super).
#[must_use]
pub fn room(net: &Net, flow: &Route) -> u64 {
    let hops = flow.hops.len() as u64;
    let errors = |each: u64| flow.d.saturating_sub(each.saturating_mul(hops.saturating_sub(1)));
    if net.drift.0 == 0 {
        return errors(net.error);
    }
    let (Some(error), Some(skew)) = (net.drift.most(net.error), net.drift.skew(flow.d)) else { return 0 };
    let shared = errors(error.saturating_add(skew)).saturating_sub(flow.d - net.drift.least(flow.d));
    net.drift.within(shared.saturating_sub(3 * hops))
}

/// Even shares [HEDF Eq. 12, 13]; what does not divide goes to the last.
#[must_use]
pub fn even(room: u64, hops: usize) -> Vec<u64> {
    let hops_u64 = hops as u64;
    let share = room.checked_div(hops_u64).unwrap_or(0);
    let mut shares = vec![share; hops];
    if let Some(last) = shares.last_mut() {
        *last = room - share * (hops_u64 - 1);
    }
    shares
}
