//! What each server rule guarantees to the tasks in its component, and what it takes from the tasks beside it.
//!
//! All of it supposes that the level above keeps the server's promise: a server that has work from
//! the start of its period on gets its Θ by the end of the period. The scope of that level proves
//! it, with the server as a task (C, T, D) = (Θ, Π, Π).
//!
//! | rule | to its own tasks | to others | reason |
//! |---|---|---|---|
//! | `ptps` | PRM | a periodic task | it is one: it uses its budget, busy or idle |
//! | `wcps`, `crps` | PRM | a periodic task | below |
//! | `polling` | polled | at most a periodic task | what it gives up in a period it has found no use for; then it waits for the next period |
//! | `deferrable` | PRM, under fixed priorities | a task with release jitter Π - Θ | it keeps its budget until it has work: one budget may come late and the next at once (J. Strosnider, J. Lehoczky, L. Sha 1995; G. Bernat, A. Burns 1999). Under EDF it may ask for all of its budget right before its deadline: refused |
//! | `sporadic` | fixed priorities: PRM; EDF: polled | a sporadic task | below |
//! | `cbs-hard` | PRM, under EDF | Θ / Π of any interval | its deadline is never more than Π away when it has budget, and its budget is never more than (Θ / Π) (d - t) when it wakes and keeps its deadline d (L. Abeni, G. Buttazzo 1998) |
//! | `cbs`, `grub` | nothing in any interval | Θ / Π of any interval | it works ahead and postpones its deadline: what arrives later waits for as long. |
//!
//! To one task alone `cbs` and `cbs-hard` give more than either:
//! [`reservation::deterministic`](crate::reservation::deterministic).
//!
//! **WCPS and CRPS keep what PTPS keeps** \[CSA Lemma 2\]. Let b(t) be the budgets left under PTPS
//! at t and b'(t) those under WCPS. Then b' <= b at all times: PTPS uses the budget of the most
//! important server H that has one; if b'_H > 0, H is the most important one with budget under
//! WCPS, too, and WCPS uses its budget at the same rate; if b'_H = 0 there is nothing to exceed. As
//! PTPS has used up every budget by the end of its period, so has WCPS. And a server that has work
//! loses budget only while it runs: only an idle one is charged for another. So Θ of every period
//! goes to a server that has work in all of it. CRPS uses budgets at the very times of PTPS, and
//! runs a server that has work in the time of its own budget. This holds on one CPU for any fixed
//! order of the servers' jobs: by priority or by deadline.
//!
//! **Sporadic server.** A budget used at once comes back at once Π later; used in parts it comes
//! back in parts. Let work arrive at t0 with all the budget used. What had been activated until t0 +
//! x - Π is back by t0 + x; of the Θ at most Π - x was used in the rest of the time until t0; so at
//! least x - (Π - Θ) is back by t0 + x. Under fixed priorities whatever is back waits for at most Π -
//! Θ of more important work, as the server's job of Θ meets its deadline Π: at least x - 2 (Π - Θ)
//! has been given by t0 + x, up to Θ, and so on in every Π: PRM. Under EDF each part has its own
//! deadline Π after it came back: at least x - Π - (Π - Θ), which is the polled supply. (Two parts
//! of 1 in (10, 2) that come back at 5 and 10, in a window from 1, may be given at 14 and at 19: 1
//! by 19, where PRM says 2.) It supposes that a budget's return is counted from the instant at
//! which its server becomes active, and that parts are not merged to an earlier return.

use takt_model::{ComponentId, ServerRule, TaskId};

use super::{Mpr, Start, Supply};
use crate::reservation::Pmf;
use crate::reservation::deterministic::Reservation;

/// How the level above orders the server among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Above {
    /// Fixed priorities, on one CPU.
    Fixed,
    /// Deadlines, on one CPU.
    Deadline,
    /// Deadlines or fixed priorities, on several CPUs.
    Global,
    /// Anything else.
    Other,
}

/// What a server rule guarantees to its component.
///
/// # Errors
/// Why it guarantees nothing there.
pub fn guaranteed(rule: ServerRule, above: Above) -> Result<Start, &'static str> {
    use ServerRule as R;
    match (rule, above) {
        (_, Above::Other) => Err("the order above it is neither fixed priorities nor edf"),
        (R::Ptps, _) => Ok(Start::Anywhere),
        (R::Polling, _) => Ok(Start::Polled),
        (_, Above::Global) => Err("on several CPUs only \"ptps\" and \"polling\" are covered"),
        (R::Wcps | R::Crps, _) => Ok(Start::Anywhere),
        (R::Deferrable, Above::Fixed) => Ok(Start::Anywhere),
        (R::Deferrable, _) => {
            Err("under edf a deferrable server may ask for its whole budget right before its deadline")
        }
        (R::Sporadic, Above::Fixed) => Ok(Start::Anywhere),
        (R::Sporadic, _) => Ok(Start::Polled),
        (R::CbsHard, Above::Deadline) => Ok(Start::Anywhere),
        (R::CbsHard, _) => Err("a constant-bandwidth server needs edf above it"),
        (R::Cbs | R::Grub, _) => {
            Err("a soft constant-bandwidth server works ahead and postpones its deadline, so that it guarantees no \
             supply; use \"cbs-hard\"")
        }
    }
}

/// Whether what a server takes from what stands beside it is known.
///
/// # Errors
/// Why it is not.
pub fn takes(rule: ServerRule, above: Above) -> Result<(), &'static str> {
    match (rule, above) {
        (ServerRule::Cbs, Above::Deadline) => Ok(()),
        (ServerRule::Cbs, Above::Fixed | Above::Global) => Err("a constant-bandwidth server needs edf above it"),
        _ => guaranteed(rule, above).map(|_| ()),
    }
}

/// Whether its budgets come at the multiples of its period and are given by the next one, so that
/// releases can be aligned with them.
#[must_use]
pub const fn on_time(rule: ServerRule) -> bool {
    matches!(rule, ServerRule::Ptps | ServerRule::Wcps | ServerRule::Crps)
}

/// Whether a deadline for the budget that is earlier than Π, as the analysis above it proves, bounds each budget (EDP).
#[must_use]
pub const fn bounded(rule: ServerRule) -> bool {
    on_time(rule) || matches!(rule, ServerRule::Polling | ServerRule::Deferrable)
}

/// Whether it gives at most Θ in Π in the long run, whatever is idle beside it.
#[must_use]
pub const fn capped(rule: ServerRule) -> bool {
    !matches!(rule, ServerRule::Crps | ServerRule::Cbs | ServerRule::Grub)
}

/// What a unit's tasks run in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Served {
    /// The component.
    pub(crate) component: ComponentId,
    /// Its supply; otherwise why there is none.
    pub(crate) supply: Result<Supply, String>,
    /// Π and Θ, where they are given.
    pub(crate) interface: Option<(u64, u64)>,
    /// "prm", "polled" or "aligned".
    pub(crate) form: &'static str,
    /// How much later than it arrives work may be noticed.
    pub(crate) late: u64,
    /// What of each budget costs take.
    pub(crate) loss: u64,
    /// Whether it gives no more than Θ in Π.
    pub(crate) capped: bool,
    /// The tasks that stand for the servers in the level above: one for each CPU.
    pub(crate) servers: Vec<TaskId>,
    /// Where it runs on several CPUs: their supply, or why there is none. Then `supply` is none.
    pub(crate) wide: Option<Result<Mpr, String>>,
    /// Whether a response of that task bounds each budget.
    pub(crate) bounded: bool,
    /// What a task alone in it can count on; otherwise why nothing more than the supply.
    pub(crate) reservation: Result<Reservation, String>,
    /// Actual execution times and times between arrivals of a task alone in it, in ns, where the file has any.
    pub(crate) random: Option<(Pmf, Pmf)>,
}

impl Served {
    /// Whether there is a supply, on one CPU or several.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn given(&self) -> Result<(), String> {
        match &self.wide {
            Some(wide) => wide.as_ref().map(|_| ()).map_err(String::clone),
            None => self.supply.as_ref().map(|_| ()).map_err(String::clone),
        }
    }

    /// The task that stands for the server of a component on one CPU.
    pub(crate) fn server(&self) -> Option<TaskId> {
        self.servers.first().copied().filter(|_| self.wide.is_none())
    }
}
