//! Quality of service: the terms of an event, and the demands of a consumer.

use takt_model::Span;

use super::filter::{Filter, Head, Pattern};

/// How long an event is useful, counted from its push.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::event::Terms;
///
/// let terms = Terms { deadline: Span::from_ms(5), ttl: Span::from_ms(40) };
/// assert_eq!(Terms::default().ttl, Span::MAX);
/// assert_ne!(terms, Terms::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The time by which its handlers should have returned. Later ones are counted
    /// ([`Counts::late`](super::Counts::late)). The order of jobs depends only on the operations'
    /// deadlines, which the plan proves. Default [`Span::MAX`]: no deadline.
    pub deadline: Span,
    /// The time to live. After it, the event is not handled. Default [`Span::MAX`]: no expiry.
    pub ttl: Span,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { deadline: Span::MAX, ttl: Span::MAX }
    }
}

/// How many sets of events may wait for a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Keep {
    /// As many as the operation's backlog holds. A set is rejected if the backlog is full or the
    /// operation's least distance is not over.
    #[default]
    All,
    /// Only the newest. It replaces a waiting set ([`Counts::replaced`](super::Counts::replaced)).
    /// If the least distance is not over, it waits. The operation needs a backlog of two or more:
    /// one running job and one waiting job.
    Latest,
}

/// A consumer's quality of service. Level and deadline come from its operation in the current plan.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::event::{Filter, Keep, Pattern, Quality};
///
/// let any = Quality::from(Pattern::ANY);
/// let fresh = Quality { ttl: Span::from_ms(20), keep: Keep::Latest, ..any.clone() };
/// assert_eq!((any.keep, any.filter == fresh.filter), (Keep::All, true));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quality {
    /// The events that it waits for.
    pub filter: Filter,
    /// The time from an event's push by which the event should be handled. The event's own deadline
    /// holds if it is earlier ([`Terms::deadline`]). Default [`Span::MAX`]: the event's own.
    pub deadline: Span,
    /// The time from an event's push for which the event is useful to this consumer. The event's
    /// own time to live holds if it is shorter. A [`Filter::Silence`] or [`Filter::Timeout`] never
    /// expires. Default [`Span::MAX`]: the event's own.
    pub ttl: Span,
    /// How many sets of events may wait. Default [`Keep::All`].
    pub keep: Keep,
}

impl From<Filter> for Quality {
    fn from(filter: Filter) -> Quality {
        Quality { filter, deadline: Span::MAX, ttl: Span::MAX, keep: Keep::All }
    }
}

impl From<Pattern> for Quality {
    fn from(pattern: Pattern) -> Quality {
        Filter::from(pattern).into()
    }
}

/// The demands on single events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Demands {
    deadline: Span,
    ttl: Span,
    pub(super) keep: Keep,
}

impl Demands {
    pub(super) fn of(quality: &Quality) -> Demands {
        Demands { deadline: quality.deadline, ttl: quality.ttl, keep: quality.keep }
    }

    /// The event's head with the consumer's demands applied.
    pub(super) fn of_event(&self, head: &Head) -> Head {
        let (due, expires) = (head.sent.saturating_add(self.deadline), head.sent.saturating_add(self.ttl));
        Head { due: head.due.min(due), expires: head.expires.min(expires), ..*head }
    }
}

#[cfg(test)]
mod tests {
    use takt_model::Time;

    use super::*;

    #[test]
    fn the_stricter_of_both_holds() {
        let at = Time::from_ns;
        let head = Head { kind: 1, source: 1, number: 0, sent: at(100), due: at(150), expires: Time::MAX };
        let of = |deadline, ttl| Demands { deadline, ttl, keep: Keep::All }.of_event(&head);
        assert_eq!(of(Span::MAX, Span::MAX), head);
        assert_eq!(of(Span::from_ns(60), Span::from_ns(70)), Head { expires: at(170), ..head });
        assert_eq!(of(Span::from_ns(40), Span::MAX), Head { due: at(140), ..head });
    }
}
