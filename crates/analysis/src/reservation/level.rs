//! Work beside reservations by deadline on one CPU: cuts by ticks, ordinary threads, and overrun
//! budgets.
//!
//! A constant-bandwidth server takes no more than U = Q / T of any interval \[s, d\]: let V = d' -
//! q T / Q (see [`deterministic`](super::deterministic)). V >= a when it first has a deadline d' <=
//! d at a >= s, and V <= d at the end. [`density`](crate::edf::density) adds these shares up, and C
//! / min(D, T) of each task beside them. A server may have any budget with any deadline up to T
//! away: intervals are arbitrarily short, so a constant amount makes it late. Three causes add such
//! a constant.
//!
//! **Ticks and interrupts** (c every p) need not be such a constant. A server's budget pays for
//! hits on the server, as it pays for its switches ([`costs`](super::costs)). A job beside the
//! server pays for its own hits. C is cut into pieces of lengths l, each hit by up to
//! floor(l / p) + 1. Each piece but the first follows a release, or a budget that begins or goes on. So each job
//! pays c twice: for its own first piece, and for the piece that it cuts off another job. It also
//! pays c as often as p fits into its whole time. Each budget and each wake-up of a server pays for
//! the piece that it cuts off, with the switch. Then nothing else takes time. Servers may make more
//! cuts than their rates say: one budget, and one wake-up of each task inside (`cuts`). These count
//! with B below, if there are jobs to cut.
//!
//! **Overruns.** A kernel may find a used-up budget at a tick only, R later at most. Then a server
//! may take up to R more with each deadline. If its next budget pays for the overrun, V shows that
//! this is R in all. If it sleeps past its deadline, the overrun may be forgiven. In an interval of
//! length L lie floor(L / T) + 1 deadlines, so it takes no more than L (Q + R) / T + R. Tasks that
//! keep to their declared times and never use up a budget cause none: such servers are spared
//! (`Tree::find_overruns`).
//!
//! **Ordinary threads** take, as a server of their own, (Q + R) / P of any interval and R. If they
//! come before all else, they take A anywhere in each P. In an interval of length L this is no more
//! than floor((L + P - A) / P) A + A <= L A / P + A (P - A) / P + A.
//!
//! **How late.** Let B be the sum of these constants, and U the sum of all shares, at most 1. Let a
//! job or budget with the deadline d be done at f > d. Let s be the last instant before f without
//! waiting work due by d. All work in \[s, f) is due by d and came at s or later. (For a server its
//! V did: a budget after a late budget begins at the old deadline. The old deadline lies after s,
//! or else the late budget would have waited at s.) So f - s <= (d - s) U + B and *f <= d + B*. If
//! d - s >= B / (1 - U), then f <= d. Each task beside the servers has this distance if U + B / D
//! <= 1 for its D. Ordinary threads that come before all else go on after d, with a share A / P of
//! f - s: then f <= d + B P / (P - A). (Cuts of servers matter in intervals with such a task, so
//! they are added there. Then intervals with such a task are never late.) A server whose budgets
//! come up to B late gives [`Supply::delayed`](crate::compositional::Supply::delayed) by B. This
//! needs B <= T: after more than T, the kernel begins anew (`replenish_dl_entity`).

use crate::scope::{Ordinary, Unit, UnitTask, cost_of_cut, overheads};

/// How often a demand is looked at anew.
const ROUNDS_MAX: u32 = 10_000;

/// The time that ordinary threads take once besides their share, in ns.
fn ordinary_burst(unit: &Unit) -> u64 {
    match unit.ordinary {
        None => 0,
        Some(Ordinary::Share { burst, .. }) => burst,
        Some(Ordinary::Above { amount, period }) => {
            let more = u128::from(amount) * u128::from(period.saturating_sub(amount));
            amount.saturating_add(u64::try_from(more.div_ceil(u128::from(period.max(1)))).unwrap_or(u64::MAX))
        }
    }
}

/// The longest lateness of budgets in a unit, in ns, where `overruns` is the sum of the overruns of its servers.
pub(crate) fn budget_lateness(unit: &Unit, overruns: u64) -> u64 {
    let all = overruns.saturating_add(ordinary_burst(unit));
    let Some(Ordinary::Above { amount, period }) = unit.ordinary else { return all };
    let Some(left) = period.checked_sub(amount).filter(|left| *left > 0) else { return u64::MAX };
    let longer = (u128::from(all) * u128::from(period)).div_ceil(u128::from(left));
    u64::try_from(longer).unwrap_or(u64::MAX)
}

/// C of a task, or the budget of a server, with all costs that it pays, in a unit with constant-bandwidth servers.
/// `None` if it exceeds 64 bits or [`ROUNDS_MAX`] is reached.
pub(crate) fn demand(unit: &Unit, task: &UnitTask) -> Option<u64> {
    let cut = cost_of_cut(unit.costs)?;
    let own = unit.charged(task)?.checked_add(cut)?;
    if task.server {
        return own.checked_add(task.overrun);
    }
    let own = own.checked_add(cut)?;
    let mut all = own;
    for _ in 0..ROUNDS_MAX {
        let next = overheads(unit.costs)
            .try_fold(own, |sum, overhead| sum.checked_add((all / overhead.t.max(1)).checked_mul(overhead.c)?))?;
        if next == all {
            return Some(all);
        }
        all = next;
    }
    None
}

/// Adds the other loads of a unit with constant-bandwidth servers to those of its tasks, as (C, D, T). These are
/// ordinary threads, and the work that may come late before the shortest deadline of a task. `None` above 64 bits, or
/// if the lateness has no bound.
pub(crate) fn add_other_loads(unit: &Unit, all: &mut Vec<(u64, u64, u64)>) -> Option<()> {
    let windows = unit.tasks.iter().zip(all.iter()).filter(|(task, _)| !task.server);
    let shortest = windows.map(|(_, (_, d, t))| *d.min(t)).min();
    let switches = unit.costs.map_or(0, |costs| costs.switch.as_ns()).checked_mul(2)?;
    let each = cost_of_cut(unit.costs)?.checked_add(switches)?;
    let cuts = unit.tasks.iter().fold(0u64, |all, task| all.saturating_add(task.cuts));
    let late = unit.budget_lateness.checked_add(cuts.checked_mul(each)?)?;
    if let (Some(d), true) = (shortest, late > 0) {
        all.push((late, d, d));
    }
    match unit.ordinary {
        None => {}
        Some(Ordinary::Share { budget, period, .. }) => all.push((budget, period, period)),
        Some(Ordinary::Above { amount, period }) => all.push((amount, period, period)),
    }
    (unit.budget_lateness < u64::MAX).then_some(())
}
