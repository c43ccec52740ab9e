//! The guarantee of each server rule to the tasks in its component, and its load on the tasks
//! beside it.
//!
//! All rows assume that the level above keeps the server's promise. A server with work from the
//! start of its period on gets its Θ by the end of the period. The scope of that level proves this,
//! with the server as a task (C, T, D) = (Θ, Π, Π).
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
//! **WCPS and CRPS keep the guarantee of PTPS** \[CSA Lemma 2\]. Let b(t) be the budgets left at t
//! under PTPS, and b'(t) those under WCPS. The claim is b' <= b at all times. PTPS uses the budget
//! of the most important server H that has budget.
//!
//! - If b'_H > 0, H is also the most important server with budget under WCPS. So WCPS uses the
//!   budget of H at the same rate.
//! - If b'_H = 0, b'_H cannot exceed b_H.
//!
//! PTPS has used up every budget by the end of its period, so WCPS has too. A server that has work
//! loses budget only while it runs, since only an idle server pays for another. So a server that
//! has work in all of a period gets Θ in it. CRPS uses budgets at the very times of PTPS, and runs
//! a server that has work in the time of its own budget. This holds for any fixed order of the
//! servers' jobs, by priority or by deadline.
//!
//! On m CPUs, PTPS uses the budgets of the first m servers with budget. The servers with budget
//! under WCPS are among those with budget under PTPS. So each of the m that has budget under WCPS
//! is among the first m there too, and WCPS uses its budget. A task beside the servers counts as
//! its job, with what is left of it. If WCPS is ahead by a job, PTPS has not completed the job
//! before it. The job ahead is no more important than this one.
//!
//! **Sporadic server.** A budget that is used at once comes back at once, Π later. A budget that is
//! used in parts comes back in parts. Let work arrive at t0 with all the budget used. The budget
//! that had been activated until t0 + x - Π is back by t0 + x. At most Π - x of the Θ was used in
//! the rest of the time until t0. So at least x - (Π - Θ) is back by t0 + x.
//!
//! - *Fixed priorities.* Budget that is back waits for at most Π - Θ of more important work, since
//!   the server's job of Θ meets its deadline Π. So at least x - 2 (Π - Θ) has been given by t0 +
//!   x, up to Θ, and the same in every Π after it. This is PRM.
//! - *EDF.* Each part has its own deadline, Π after it came back. So at least x - Π - (Π - Θ) has
//!   been given, which is the polled supply. An example: in (10, 2), two parts of 1 come back at 5
//!   and 10. In a window from 1 they may be given at 14 and at 19. So 1 is given by 19, where PRM
//!   says 2.
//!
//! This assumes two things. The return of a budget counts from the instant at which its server
//! becomes active. Parts are not merged to an earlier return.

use takt_model::ServerRule;

use super::Start;

/// How the level above orders the server among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OuterOrder {
    /// Fixed priorities, on one CPU.
    Fixed,
    /// Deadlines, on one CPU.
    Deadline,
    /// Deadlines or fixed priorities, on several CPUs.
    Global,
    /// Anything else.
    Other,
}

/// The guarantee of a server rule to its component.
///
/// # Errors
/// Why it guarantees nothing there.
pub fn guaranteed(rule: ServerRule, above: OuterOrder) -> Result<Start, &'static str> {
    use ServerRule as R;
    match (rule, above) {
        (_, OuterOrder::Other) => Err("the order above it is neither fixed priorities nor edf"),
        (R::Ptps | R::Wcps | R::Crps, _) => Ok(Start::Anywhere),
        (R::Polling, _) => Ok(Start::Polled),
        (_, OuterOrder::Global) => Err("on several CPUs only \"ptps\", \"wcps\", \"crps\" and \"polling\" are covered"),
        (R::Deferrable, OuterOrder::Fixed) => Ok(Start::Anywhere),
        (R::Deferrable, _) => {
            Err("under edf a deferrable server may ask for its whole budget right before its deadline")
        }
        (R::Sporadic, OuterOrder::Fixed) => Ok(Start::Anywhere),
        (R::Sporadic, _) => Ok(Start::Polled),
        (R::CbsHard, OuterOrder::Deadline) => Ok(Start::Anywhere),
        (R::CbsHard, _) => Err("a constant-bandwidth server needs edf above it"),
        (R::Cbs | R::Grub, _) => {
            Err("a soft constant-bandwidth server works ahead and postpones its deadline, so it guarantees no \
                 supply; use \"cbs-hard\"")
        }
    }
}

/// Whether it is known what a server takes from the tasks beside it.
///
/// # Errors
/// Why it is not.
pub fn takes(rule: ServerRule, above: OuterOrder) -> Result<(), &'static str> {
    match (rule, above) {
        (ServerRule::Cbs, OuterOrder::Deadline) => Ok(()),
        (ServerRule::Cbs, OuterOrder::Fixed | OuterOrder::Global) => {
            Err("a constant-bandwidth server needs edf above it")
        }
        _ => guaranteed(rule, above).map(|_| ()),
    }
}

/// Whether its budgets come at the multiples of its period and are given by the next one. Then
/// releases can be aligned with them.
#[must_use]
pub const fn on_time(rule: ServerRule) -> bool {
    matches!(rule, ServerRule::Ptps | ServerRule::Wcps | ServerRule::Crps)
}

/// Whether each budget is bounded (EDP) by a deadline that is earlier than Π and that the analysis
/// above it proves.
#[must_use]
pub const fn bounded(rule: ServerRule) -> bool {
    on_time(rule) || matches!(rule, ServerRule::Polling | ServerRule::Deferrable)
}

/// Whether it gives at most Θ in Π in the long run, whatever is idle beside it.
#[must_use]
pub const fn capped(rule: ServerRule) -> bool {
    !matches!(rule, ServerRule::Crps | ServerRule::Cbs | ServerRule::Grub)
}
