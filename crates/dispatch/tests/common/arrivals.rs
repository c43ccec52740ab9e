//! The arrivals of an operation across switches of modes, by a rule for single operations.

use takt_model::{Span, Time};

/// The arrivals of an operation that a timer releases, in nanoseconds. `periods` holds its period
/// by plan; `None` if it takes no part.
pub(crate) fn expected(periods: &[Option<Span>], offset: Span, switches: &[(Time, usize)], end: Time) -> Vec<u64> {
    let period = |plan: usize| periods[plan].map(Span::as_ns);
    let (mut plan, mut last, mut next) = (0, None, period(0).map(|_| offset.as_ns()));
    // Whether it has arrived since it takes part.
    let mut begun = false;
    let mut arrivals = Vec::new();
    for (at, to) in switches.iter().copied().chain([(end, usize::MAX)]) {
        while let Some(arrival) = next.filter(|next| *next <= at.as_ns() && *next < end.as_ns()) {
            arrivals.push(arrival);
            (last, begun) = (Some(arrival), true);
            next = period(plan).map(|period| arrival + period);
        }
        if to == usize::MAX {
            break;
        }
        let earliest = |period: u64| last.map_or(0, |last| last + period);
        next = match (period(plan), period(to)) {
            (_, None) => None,
            (Some(before), Some(after)) if before == after => next,
            (Some(_), Some(after)) if begun => Some(earliest(after).max(at.as_ns())),
            (Some(_), Some(after)) => next.map(|next| next.max(earliest(after))),
            (None, Some(after)) => Some(earliest(after).max(at.as_ns() + offset.as_ns())),
        };
        begun &= period(to).is_some();
        plan = to;
    }
    arrivals
}
