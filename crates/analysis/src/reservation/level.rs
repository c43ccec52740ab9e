//! What stands beside reservations by deadline on one CPU: what ticks cut, what ordinary threads
//! take, and budgets that are overrun.
//!
//! A constant-bandwidth server takes no more than U = Q / T of any interval \[s, d\]: with V = d' -
//! q T / Q (see [`deterministic`](super::deterministic)), V >= a where it first has a deadline d' <=
//! d at a >= s, and V <= d at the end. [`density`](crate::edf::density) adds these shares up, and C
//! / min(D, T) of each task beside them. A server may have any budget with any deadline up to T
//! away: intervals are as short as one likes, so that a constant, taken once, is late for it. Three
//! things do that.
//!
//! **Ticks and interrupts** (c every p) need not be such a constant. A server's budget pays for
//! those that hit it, as it pays for its switches ([`costs`](super::costs)). Those that hit a job
//! beside it are charged to that job: C is cut into pieces of lengths l, each hit by up to floor(l
//! / p) + 1; and each piece but the first follows a release, or a budget that begins or goes on. So
//! each job pays c twice, for its own first piece and for the one that it cuts off another's, and
//! as often as p fits into all that it takes; each budget and each wake-up of a server pays for
//! what it cuts off, with the switch. Then nothing else takes time. Of the cuts that servers make,
//! one budget and one wake-up of each task inside may come on top of what their rates say (`cuts`):
//! those count with B below, where there are jobs to be cut.
//!
//! **Overruns.** Where a kernel finds a used-up budget at a tick only, R later at most, a server
//! may take up to R more with each deadline. Where it pays for it with its next budget, V shows
//! that this is R in all; where it sleeps past its deadline, it may be forgiven: floor(L / T) + 1
//! deadlines lie in an interval of length L, so that it takes no more than L (Q + R) / T + R. Tasks
//! that keep to their declared times and never use up a budget cause none: such servers are spared
//! (`Tree::hold_up`).
//!
//! **Ordinary threads** take as a server of their own, (Q + R) / P of any interval and R; or, where
//! they come before all else, A in each P, wherever in it: no more than floor((L + P - A) / P) A +
//! A <= L A / P + A (P - A) / P + A in an interval of length L.
//!
//! **How late.** Let B be the sum of those constants, and U the sum of all shares, at most 1. Let
//! something with the deadline d be done at f > d, and s the last instant before f at which nothing
//! with a deadline up to d waited. All that runs in \[s, f) has such a deadline and came at s or
//! later, where for a server its V did: a budget that follows a late one begins at the old
//! deadline, which lies after s, or else the old one would have waited at s. So f - s <= (d - s) U +
//! B and *f <= d + B*; and f <= d where d - s >= B / (1 - U), which is the case for each task
//! beside the servers if U + B / D <= 1 for its D. Ordinary threads that come before all else go on
//! after d, with a share A / P of f - s: then f <= d + B P / (P - A). (Cuts of servers matter in
//! intervals that hold such a task, so they are added there; then intervals that hold one are never
//! late.) A server whose budgets come up to B late gives
//! [`Supply::delayed`](crate::compositional::Supply::delayed) by B. For that B <= T: later than
//! that, the kernel begins anew (`replenish_dl_entity`).

use takt_model::Costs;

use crate::scope::{Ordinary, Unit, UnitTask, thefts};

/// How often a demand is looked at anew.
const ROUNDS_MAX: u32 = 10_000;

/// What a tick and an interrupt take of one more piece.
pub(crate) fn cut(costs: Option<Costs>) -> Option<u64> {
    thefts(costs).try_fold(0u64, |all, theft| all.checked_add(theft.c))
}

/// What ordinary threads take once, besides their share of the time.
fn once(unit: &Unit) -> u64 {
    match unit.ordinary {
        None => 0,
        Some(Ordinary::Share { once, .. }) => once,
        Some(Ordinary::Above { amount, period }) => {
            let more = u128::from(amount) * u128::from(period.saturating_sub(amount));
            amount.saturating_add(u64::try_from(more.div_ceil(u128::from(period.max(1)))).unwrap_or(u64::MAX))
        }
    }
}

/// How late budgets may come in a unit, whose servers overrun by as much in all.
pub(crate) fn late(unit: &Unit, overruns: u64) -> u64 {
    let all = overruns.saturating_add(once(unit));
    let Some(Ordinary::Above { amount, period }) = unit.ordinary else { return all };
    let Some(left) = period.checked_sub(amount).filter(|left| *left > 0) else { return u64::MAX };
    let longer = (u128::from(all) * u128::from(period)).div_ceil(u128::from(left));
    u64::try_from(longer).unwrap_or(u64::MAX)
}

/// What a job, or a budget, takes of a unit with constant-bandwidth servers; `None` where it
/// exceeds 64 bits, or is not found.
pub(crate) fn demand(unit: &Unit, task: &UnitTask) -> Option<u64> {
    let cut = cut(unit.costs)?;
    let own = unit.charged(task)?.checked_add(cut)?;
    if task.server {
        return own.checked_add(task.overrun);
    }
    let own = own.checked_add(cut)?;
    let mut all = own;
    for _ in 0..ROUNDS_MAX {
        let next = thefts(unit.costs)
            .try_fold(own, |sum, theft| sum.checked_add((all / theft.t.max(1)).checked_mul(theft.c)?))?;
        if next == all {
            return Some(all);
        }
        all = next;
    }
    None
}

/// Adds what takes a share of a unit with constant-bandwidth servers besides its tasks, and the
/// room that tasks need where something comes late, as (C, D, T).
pub(crate) fn beside(unit: &Unit, all: &mut Vec<(u64, u64, u64)>) -> Option<()> {
    let windows = unit.tasks.iter().zip(all.iter()).filter(|(task, _)| !task.server);
    let shortest = windows.map(|(_, (_, d, t))| *d.min(t)).min();
    let each = cut(unit.costs)?.checked_add(unit.costs.map_or(0, |costs| costs.switch.as_ns()).checked_mul(2)?)?;
    let cuts = unit.tasks.iter().fold(0u64, |all, task| all.saturating_add(task.cuts));
    let late = unit.late.checked_add(cuts.checked_mul(each)?)?;
    if let (Some(d), true) = (shortest, late > 0) {
        all.push((late, d, d));
    }
    match unit.ordinary {
        None => {}
        Some(Ordinary::Share { budget, period, .. }) => all.push((budget, period, period)),
        Some(Ordinary::Above { amount, period }) => all.push((amount, period, period)),
    }
    (unit.late < u64::MAX).then_some(())
}
