//! A task alone in a reservation: its longest response and the most jobs that can be pending, from C and P.
//!
//! | \[SDD\] | here |
//! |---|---|
//! | (Q, T) | [`Reservation`]: `budget`, `period` |
//! | C, the longest time to serve a job | [`Demand::c`] |
//! | P, the least time between two arrivals | [`Demand::p`] |
//! | N_c, the most jobs that may be pending | the answer of [`pending`] |
//! | Eq. 1: Q / T >= C / P | [`keeps_up`], exact |
//! | Eq. 2: (T - Q) / P < N_c | [`published_pending`], not sound |
//!
//! **What the server does.** A constant-bandwidth server (L. Abeni, G. Buttazzo 1998; \[SDD II-A\])
//! has a budget q and a deadline d. Executing lowers q. At q = 0 the deadline moves to d + T and q
//! is Q again, at once (soft) or not before the old d (hard). Let a job arrive at t and find the
//! server idle. If q < (d - t) Q / T, q and d stay. Otherwise q = Q and d = t + T: a *reset*. The
//! level above runs servers by deadline, and is not overloaded. So the rest of a budget can always
//! be executed by its deadline.
//!
//! **Response.** Let V = d - q T / Q. A reset sets V = t, and happens only if V <= t (if q T = (d -
//! t) Q exactly, both rules agree). Executing x adds x T / Q. Nothing else changes V. Let the last
//! reset before a job starts be at s, with the arrival of a job; jobs before that one are done. Let
//! w be the work that has arrived since, up to and including the job. It is executed out of ceil(w
//! / Q) budgets in a row. The last has the deadline s + ceil(w / Q) T. If w does not use up the
//! last budget, the rest could still be executed by this deadline, since no scheduler here knows
//! when the work ends. So w is done by
//!
//! s + ceil(w / Q) T - (ceil(w / Q) Q - w) = s + g⁻¹(w),
//!
//! which is [`Supply::aligned`] from s on, for the hard and the soft server alike. As g⁻¹ is
//! subadditive, a job that finds V > t but an idle server does no worse than the same job in a
//! window without the pause. So the k-th job of the window responds within
//!
//! R = max over k of g⁻¹(k C + B) + J - (k - 1) P   from its nominal arrival,
//!
//! and the search ends with the first k whose jobs are done when the next arrives, or after Q /
//! gcd(C, Q) jobs, when everything repeats at best.
//!
//! **Reservations of another kind** only give Q somewhere in each [i T, (i + 1) T): they are
//! time-driven, or lose an unused budget in time. They may leave a gap of 2 (T - Q):
//! [`Supply::prm`], g⁻¹(w) + T - Q from any instant. ERRATA of \[SDD\]: (Q, T) = (50, 100), P = 20,
//! C = 10 satisfies Eq. 2 for N_c = 3; an arrival may find 5 pending.
//!
//! **Eq. 2 is not enough for a constant-bandwidth server either**: it forgets that jobs take time.
//! (Q, T) = (5, 10), P = 6, C = 3, N_c = 1 satisfies both equations. Another server (5, 10) runs
//! first. The job of 0 is served from 5 to 8. The job of 6 finds it pending, and is lost.
//!
//! ```
//! use takt_analysis::reservation::deterministic::{Demand, Reservation, pending, published_pending, response};
//!
//! let (cbs, task) = (Reservation::cbs(100, 50).unwrap(), Demand { c: 10, p: 20, j: 0, b: 0 });
//! assert_eq!(response(&task, &cbs).unwrap().from_arrival, 60);
//! assert_eq!(pending(&task, &cbs), Some(3));
//! let periodic = Reservation::periodic(100, 50).unwrap();
//! // The sixth arrives when the first may start at the earliest: Eq. 2 promises 3.
//! assert_eq!(pending(&task, &periodic), Some(6));
//! assert!(published_pending(100, 50, 20, 3));
//! ```
//!
//! [`Supply::aligned`]: crate::compositional::Supply::aligned
//! [`Supply::prm`]: crate::compositional::Supply::prm

use takt_model::gcd;

use crate::fp::rta::Response;
pub use crate::server::Reservation;
use crate::verdict::spend;

/// Most jobs analysed one by one. Beyond it, an upper bound in closed form is used.
pub const JOBS_MAX: u64 = 1_000_000;

/// A task that is served alone; any unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// C: the longest execution of a job, at least 1.
    pub c: u64,
    /// P: the least time between two nominal arrivals, at least 1.
    pub p: u64,
    /// J: a job is released up to this after its nominal arrival.
    pub j: u64,
    /// B: the longest that something else holds the task up, once in a busy window.
    pub b: u64,
}

/// \[SDD Eq. 1\]: Q / T >= C / P. Necessary where jobs may really be as long and as frequent, for any N_c.
#[must_use]
pub fn keeps_up(demand: &Demand, reservation: &Reservation) -> bool {
    wide(reservation.budget(), demand.p) >= wide(demand.c, reservation.period())
}

/// \[SDD Eq. 2\] as published: (T - Q) / P < N_c. **Not sound**: see the module. For reproduction alone.
///
/// `budget` is at most `period`, `p` at least 1; all in one unit.
#[must_use]
pub fn published_pending(period: u64, budget: u64, p: u64, most: u64) -> bool {
    u128::from(period.saturating_sub(budget)) < wide(p, most)
}

/// Bounds the response of every job. For B = 0 the bound is reached. Then jobs of C come at
/// distances of P, the first is released J late, and the level above gives every budget as late as
/// it may.
///
/// `None` where the reservation does not keep up ([`keeps_up`]), so that responses grow without
/// end, or where a bound exceeds `u64`.
#[must_use]
pub fn response(demand: &Demand, reservation: &Reservation) -> Option<Response> {
    response_within(demand, reservation, &mut { JOBS_MAX })
}

/// The same from what is left of a limit of jobs.
pub(crate) fn response_within(demand: &Demand, reservation: &Reservation, jobs_left: &mut u64) -> Option<Response> {
    if !keeps_up(demand, reservation) {
        return None;
    }
    let supply = reservation.supply();
    let repeats = bunch(demand)?.checked_add(reservation.budget() / gcd(demand.c, reservation.budget()))?;
    let (mut from_arrival, mut from_release) = (0u64, 0u64);
    for k in 1..=repeats {
        if spend(jobs_left, 1).is_none() {
            let bound = ceiling(demand, reservation)?;
            let early = bound.checked_add(demand.j)?;
            return Some(Response { from_arrival: early, from_release: early });
        }
        let done = i128::from(supply.time_for(demand.c.checked_mul(k)?.checked_add(demand.b)?)?);
        let arrival = i128::from(k - 1) * i128::from(demand.p) - i128::from(demand.j);
        from_arrival = from_arrival.max(u64::try_from(done - arrival).ok()?);
        from_release = from_release.max(u64::try_from(done - arrival.max(0)).ok()?);
        if done <= arrival + i128::from(demand.p) {
            return Some(Response { from_arrival, from_release });
        }
    }
    Some(Response { from_arrival, from_release })
}

/// Jobs that jitter may release at one instant, besides the periodic ones.
fn bunch(demand: &Demand) -> Option<u64> {
    (demand.j / demand.p).checked_add(1)
}

/// No less than any g⁻¹(k C + B) - (k - 1) P, where the reservation keeps up.
///
/// Let x = w - (ceil(w / Q) - 1) Q, at least 1. Then g⁻¹(w) = w T / Q + (T - Q) (1 - x / Q) <= w T
/// / Q + T - Q, and k C T / Q <= C T / Q + (k - 1) P.
fn ceiling(demand: &Demand, reservation: &Reservation) -> Option<u64> {
    let own = u128::from(demand.c) + u128::from(demand.b);
    let spread = own.checked_mul(u128::from(reservation.period()))?.div_ceil(u128::from(reservation.budget()));
    u64::try_from(spread).ok()?.checked_add(reservation.gap())
}

/// Most jobs released and not complete at one instant. A job released at the instant counts; a job
/// that completes at it does not. A queue of this size loses no job.
///
/// `None` as for [`response`].
#[must_use]
pub fn pending(demand: &Demand, reservation: &Reservation) -> Option<u64> {
    pending_within(demand, reservation, &mut { JOBS_MAX }, || response(demand, reservation))
}

/// The same from what is left of a limit of jobs. Past the limit `response` gives a bound.
pub(crate) fn pending_within(
    demand: &Demand,
    reservation: &Reservation,
    jobs_left: &mut u64,
    response: impl FnOnce() -> Option<Response>,
) -> Option<u64> {
    if !keeps_up(demand, reservation) {
        return None;
    }
    let supply = reservation.supply();
    // From here on another T brings another Q.
    let steady = supply.time_for(demand.b)?.max(reservation.delay()) / demand.p + 1;
    let repeats = reservation.period() / gcd(demand.p, reservation.period());
    let repeats = repeats.checked_add(bunch(demand)?)?.checked_add(steady)?;
    let mut most = 0;
    for n in 1..=repeats {
        if spend(jobs_left, 1).is_none() {
            // A job released longer ago than a response is done.
            let response = response()?.from_release;
            return Some(response.checked_add(demand.j)?.div_ceil(demand.p));
        }
        let released = u64::try_from((i128::from(n - 1) * i128::from(demand.p) - i128::from(demand.j)).max(0)).ok()?;
        let done = supply.sbf(released).saturating_sub(demand.b) / demand.c;
        most = most.max(n - done.min(n - 1));
        if n > 1 && done >= n - 1 {
            return Some(most);
        }
    }
    Some(most)
}

fn wide(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}
