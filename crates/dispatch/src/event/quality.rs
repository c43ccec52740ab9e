//! Of what use events are, and to whom: what a supplier says of an event, and what a consumer asks for.

use takt_model::Span;

use super::filter::{Filter, Head, Pattern};

/// How long an event is of use, counted from its push.
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
    /// By when the handlers of its consumers should have returned. One that has not is counted ([`Counts::late`](super::Counts::late)); the order of jobs goes by the deadlines of
    /// operations alone, which the plan can prove. Default [`Span::MAX`]: none of its own.
    pub deadline: Span,
    /// After which it is of no use to anybody, and is not handled any more. Default [`Span::MAX`]: for ever.
    pub ttl: Span,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { deadline: Span::MAX, ttl: Span::MAX }
    }
}

/// How many sets of events wait for a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Keep {
    /// As many as its operation's backlog has room for. One that finds none, or comes before the operation's least distance is over, is rejected.
    #[default]
    All,
    /// The newest. It takes the place of one that waits ([`Counts::replaced`](super::Counts::replaced)), and one that comes before the least distance is over waits for that. The operation has a backlog of two or more:
    /// for the job that runs, and one that waits.
    Latest,
}

/// What a consumer asks for: its quality of service, together with its operation's level and deadline, which the plan in force decides.
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
    /// What it waits for.
    pub filter: Filter,
    /// How soon after its push an event should have been handled; its own deadline holds where that is earlier ([`Terms::deadline`]). Default [`Span::MAX`]: the event's own.
    pub deadline: Span,
    /// How long after its push an event is of use to this consumer; its own time to live holds where that is shorter. Of a [`Filter::Silence`] or [`Filter::Timeout`] it is for ever. Default [`Span::MAX`]: the event's own.
    pub ttl: Span,
    /// How many sets of events wait for it. Default [`Keep::All`].
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

/// The part of it that holds for events one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    deadline: Span,
    ttl: Span,
    pub(super) keep: Keep,
}

impl Asked {
    pub(super) fn of(quality: &Quality) -> Asked {
        Asked { deadline: quality.deadline, ttl: quality.ttl, keep: quality.keep }
    }

    /// An event as this consumer has it.
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
        let of = |deadline, ttl| Asked { deadline, ttl, keep: Keep::All }.of_event(&head);
        assert_eq!(of(Span::MAX, Span::MAX), head);
        assert_eq!(of(Span::from_ns(60), Span::from_ns(70)), Head { expires: at(170), ..head });
        assert_eq!(of(Span::from_ns(40), Span::MAX), Head { due: at(140), ..head });
    }
}
