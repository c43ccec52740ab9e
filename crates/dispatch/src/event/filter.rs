//! Filters: the events that a consumer waits for, single or in groups. A pure state machine follows
//! the events and says when a filter is complete.

use takt_model::{Span, Time};

/// An event without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The type. The program defines its meaning.
    pub kind: u32,
    /// The supplier's number.
    pub source: u32,
    /// The event's number, counted from zero for each supplier.
    pub number: u64,
    /// When the event was pushed. For an event of another node: when the last node sent it. Without
    /// a common clock: when it arrived.
    pub sent: Time,
    /// The deadline by which consumers' handlers should return; [`Time::MAX`] if there is none.
    /// Zero or a past time means that the event was late on its way.
    pub due: Time,
    /// The expiry. A later event is not handled and counts as expired.
    pub expires: Time,
}

/// The span from `now` to a time of an event. [`Time::MAX`] gives [`Span::MAX`].
pub(super) fn until(time: Time, now: Time) -> Span {
    if time == Time::MAX { Span::MAX } else { time.saturating_since(now) }
}

/// A set of 32-bit values: those that equal `value` in all bits of `mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    /// The bits wanted.
    pub value: u32,
    /// The bits to compare; none matches any value.
    pub mask: u32,
}

impl Bits {
    /// Any value.
    pub const ANY: Bits = Bits { value: 0, mask: 0 };

    /// This value alone.
    #[must_use]
    pub const fn exactly(value: u32) -> Bits {
        Bits { value, mask: u32::MAX }
    }

    /// Whether the set contains a value.
    #[must_use]
    pub const fn has(self, value: u32) -> bool {
        (value ^ self.value) & self.mask == 0
    }
}

/// A set of events, by type and source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The types.
    pub kind: Bits,
    /// The sources.
    pub source: Bits,
}

impl Pattern {
    /// Every event.
    pub const ANY: Pattern = Pattern { kind: Bits::ANY, source: Bits::ANY };

    /// Events of one type, of any source.
    #[must_use]
    pub const fn kind(kind: u32) -> Pattern {
        Pattern { kind: Bits::exactly(kind), source: Bits::ANY }
    }

    /// Events of one source, of any type.
    #[must_use]
    pub const fn source(source: u32) -> Pattern {
        Pattern { kind: Bits::ANY, source: Bits::exactly(source) }
    }

    /// The same, of one source.
    #[must_use]
    pub const fn from(self, source: u32) -> Pattern {
        Pattern { source: Bits::exactly(source), ..self }
    }

    /// Whether the event matches.
    #[must_use]
    pub const fn has(&self, head: &Head) -> bool {
        self.kind.has(head.kind) && self.source.has(head.source)
    }
}

/// A condition on events. When it holds, the consumer gets its events, the newest for each
/// [`Filter::One`] that took part. Then it waits again.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::event::{Filter, Pattern};
///
/// let (left, right, abort) = (Pattern::kind(1), Pattern::kind(2), Pattern::kind(9));
/// // Both, in any order, with no abort in between; or nothing from the left for a second.
/// let both = Filter::all([left.into(), right.into()]).without(abort);
/// let filter = Filter::any([both, Filter::Silence { of: left, span: Span::from_s(1) }]);
/// assert_eq!(filter.leaves(), 3);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// One event. While the group waits for others, a newer event replaces this one, unless an
    /// enclosing sequence or negation is complete. If the event expires, the group waits for
    /// another one.
    One(Pattern),
    /// All of these, in any order. One event may satisfy several of them.
    All(Vec<Filter>),
    /// The first of these.
    Any(Vec<Filter>),
    /// These in order. An event satisfies one of them.
    Sequence(Vec<Filter>),
    /// This, without an event of `not` since it began to wait. Such an event makes it begin again.
    Without {
        /// The condition to wait for.
        filter: Box<Filter>,
        /// The events that must not come.
        not: Pattern,
    },
    /// No event that matches `of` for the time `span`.
    Silence {
        /// Which events.
        of: Pattern,
        /// The duration, at least [`TIME_MIN`].
        span: Span,
    },
    /// A time after it began to wait, at least [`TIME_MIN`].
    Timeout(Span),
}

impl From<Pattern> for Filter {
    fn from(pattern: Pattern) -> Filter {
        Filter::One(pattern)
    }
}

impl Filter {
    /// All of these, in any order.
    #[must_use]
    pub fn all(filters: impl IntoIterator<Item = Filter>) -> Filter {
        Filter::All(filters.into_iter().collect())
    }

    /// The first of these.
    #[must_use]
    pub fn any(filters: impl IntoIterator<Item = Filter>) -> Filter {
        Filter::Any(filters.into_iter().collect())
    }

    /// These one after the other.
    #[must_use]
    pub fn sequence(filters: impl IntoIterator<Item = Filter>) -> Filter {
        Filter::Sequence(filters.into_iter().collect())
    }

    /// The same, without an event of `not` since it began to wait.
    #[must_use]
    pub fn without(self, not: Pattern) -> Filter {
        Filter::Without { filter: Box::new(self), not }
    }

    /// The most events that it holds: its [`Filter::One`], [`Filter::Silence`] and
    /// [`Filter::Timeout`].
    #[must_use]
    pub fn leaves(&self) -> usize {
        match self {
            Filter::One(_) | Filter::Silence { .. } | Filter::Timeout(_) => 1,
            Filter::All(filters) | Filter::Any(filters) | Filter::Sequence(filters) => {
                filters.iter().map(Filter::leaves).sum()
            }
            Filter::Without { filter, .. } => filter.leaves(),
        }
    }

    /// The fault of the filter, if it has one.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        if self.is_deeper(DEPTH_MAX) {
            return Some(format!("its groups are more than {DEPTH_MAX} deep"));
        }
        self.wrong_member()
    }

    /// Whether filters nest deeper than `most`.
    fn is_deeper(&self, most: usize) -> bool {
        let Some(most) = most.checked_sub(1) else { return true };
        match self {
            Filter::One(_) | Filter::Silence { .. } | Filter::Timeout(_) => false,
            Filter::All(filters) | Filter::Any(filters) | Filter::Sequence(filters) => {
                filters.iter().any(|filter| filter.is_deeper(most))
            }
            Filter::Without { filter, .. } => filter.is_deeper(most),
        }
    }

    fn wrong_member(&self) -> Option<String> {
        match self {
            Filter::One(_) => None,
            Filter::All(filters) | Filter::Any(filters) | Filter::Sequence(filters) => {
                let empty = filters.is_empty().then(|| "a group is to have at least one member".to_owned());
                empty.or_else(|| filters.iter().find_map(Filter::wrong_member))
            }
            Filter::Without { filter, .. } => filter.wrong_member(),
            Filter::Silence { span, .. } => short("a silence", *span),
            Filter::Timeout(span) => short("a timeout", *span),
        }
        .or_else(|| {
            let leaves = self.leaves();
            (leaves > LEAVES_MAX).then(|| format!("it waits for {leaves} events; {LEAVES_MAX} are the most"))
        })
    }
}

fn short(what: &str, span: Span) -> Option<String> {
    (span < TIME_MIN).then(|| format!("the time of {what} is to be {TIME_MIN} or more, and is {span}"))
}

/// The shortest [`Filter::Timeout`] and [`Filter::Silence`]. The timeout thread has a priority
/// above all levels, so it must sleep.
pub const TIME_MIN: Span = Span::from_us(100);

/// The most events of one filter: the bits of a set.
pub const LEAVES_MAX: usize = 64;

/// The deepest nesting of filters. A push descends them on a real-time thread's stack.
pub const DEPTH_MAX: usize = 16;

/// A node of a filter. Nodes form a list with parents before their children.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: NodeKind,
    /// One past its last descendant.
    end: usize,
    /// The first leaf below it, or its own number if it is a leaf.
    leaf: usize,
    done: bool,
    /// When it began to wait.
    since: Time,
    /// For `Silence`: when the last event came.
    mark: Option<Time>,
    /// For `Sequence`: the child that it waits for.
    at: usize,
    /// For `One`: when its event expires.
    expires: Time,
}

impl Node {
    /// Marks a leaf as done if `is`, and adds its bit to `leaves`.
    fn take_if(&self, is: bool, leaves: &mut u64) -> bool {
        *leaves |= u64::from(is) << self.leaf;
        is
    }
}

#[derive(Clone, Copy, Debug)]
enum NodeKind {
    One(Pattern),
    All,
    Any,
    Sequence,
    Without(Pattern),
    Silence(Pattern, Span),
    Timeout(Span),
}

/// The state of a filter.
///
/// Call [`Correlator::pass_time`] and [`Correlator::expire`] before each use. At one instant,
/// timeouts come before events.
#[derive(Clone, Debug)]
pub struct Correlator {
    nodes: Vec<Node>,
    leaves: usize,
    /// A bound: no kept event expires before this.
    soonest: Time,
    /// The pattern of a filter for single events, the common case. Such a filter needs no other
    /// state.
    alone: Option<Pattern>,
    /// Whether it has timeouts.
    timed: bool,
}

/// The effect of an event on a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilterResult {
    /// The leaves that took this event, by bit. Their earlier events are obsolete.
    pub leaves: u64,
    /// Whether the filter is complete. If so, call [`Correlator::collect`].
    pub complete: bool,
}

impl Correlator {
    /// Begins to wait at `now`. The filter must not be [wrong](Filter::wrong).
    #[must_use]
    pub fn new(filter: &Filter, now: Time) -> Correlator {
        let alone = if let Filter::One(pattern) = filter { Some(*pattern) } else { None };
        let mut this = Correlator { nodes: Vec::new(), leaves: 0, soonest: Time::MAX, alone, timed: false };
        this.add(filter);
        this.timed = this.nodes.iter().any(|node| matches!(node.kind, NodeKind::Silence(..) | NodeKind::Timeout(_)));
        this.reset(0, now);
        this
    }

    /// Waits again from `now` on.
    pub fn restart(&mut self, now: Time) {
        self.reset(0, now);
    }

    fn add(&mut self, filter: &Filter) {
        let (kind, children): (NodeKind, &[Filter]) = match filter {
            Filter::One(pattern) => (NodeKind::One(*pattern), &[]),
            Filter::All(filters) => (NodeKind::All, filters),
            Filter::Any(filters) => (NodeKind::Any, filters),
            Filter::Sequence(filters) => (NodeKind::Sequence, filters),
            Filter::Without { filter, not } => (NodeKind::Without(*not), std::slice::from_ref(filter)),
            Filter::Silence { of, span } => (NodeKind::Silence(*of, *span), &[]),
            Filter::Timeout(span) => (NodeKind::Timeout(*span), &[]),
        };
        let (place, leaf) = (self.nodes.len(), self.leaves);
        self.nodes.push(Node {
            kind,
            end: 0,
            leaf,
            done: false,
            since: Time::ZERO,
            mark: None,
            at: 0,
            expires: Time::MAX,
        });
        if children.is_empty() {
            self.leaves += 1;
        }
        for child in children {
            self.add(child);
        }
        let end = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(place) {
            node.end = end;
        }
    }

    /// Resets a node and all below it.
    fn reset(&mut self, at: usize, now: Time) {
        let end = self.nodes.get(at).map_or(at, |node| node.end);
        for node in self.nodes.iter_mut().take(end).skip(at) {
            (node.done, node.since, node.mark, node.at) = (false, now, None, 0);
        }
    }

    /// The next instant at which [`Correlator::pass_time`] has something to do.
    #[inline]
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        if self.timed { self.next_of(0) } else { None }
    }

    fn next_of(&self, at: usize) -> Option<Time> {
        let node = self.nodes.get(at)?;
        if node.done {
            return None;
        }
        match &node.kind {
            NodeKind::One(_) => None,
            NodeKind::Silence(_, span) => node.mark.unwrap_or(node.since).checked_add(*span),
            NodeKind::Timeout(span) => node.since.checked_add(*span),
            NodeKind::Sequence => self.next_of(self.child(at, node.at)?),
            NodeKind::All | NodeKind::Any | NodeKind::Without(_) => {
                self.children(at).filter_map(|child| self.next_of(child)).min()
            }
        }
    }

    fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        let end = self.nodes.get(at).map_or(0, |node| node.end);
        let first = (at + 1 < end).then_some(at + 1);
        std::iter::successors(first, move |child| {
            self.nodes.get(*child).map(|node| node.end).filter(|next| *next < end)
        })
    }

    fn child(&self, at: usize, number: usize) -> Option<usize> {
        self.children(at).nth(number)
    }

    /// Handles timeouts up to `now`. Call it before the events of `now`, until it is not complete.
    pub fn pass_time(&mut self, now: Time) -> FilterResult {
        let mut taken = FilterResult::default();
        while !taken.complete {
            let Some(due) = self.next_time().filter(|due| *due <= now) else { break };
            if self.expire(due) {
                // A timeout may now be due earlier.
                continue;
            }
            taken.complete = self.time(0, due, &mut taken.leaves);
        }
        taken
    }

    /// Whether [`Correlator::pass_time`] or [`Correlator::expire`] may have an effect now.
    #[inline]
    #[must_use]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.soonest < now || self.next_time().is_some_and(|due| due <= now)
    }

    /// Removes kept events of a group that expired before `now`. Their leaves wait again, and a
    /// sequence returns to the first of them. Returns whether there were any. If so, a
    /// [timeout](Correlator::next_time) may be due earlier. Without this, one lost event would make
    /// all later sets of its group expire, because each fresh part waits for the next set's other
    /// part.
    #[inline]
    pub fn expire(&mut self, now: Time) -> bool {
        self.soonest < now && self.expire_kept(now)
    }

    fn expire_kept(&mut self, now: Time) -> bool {
        let kept = |node: &&Node| node.done && matches!(node.kind, NodeKind::One(_));
        let over = self.nodes.iter().filter(kept).any(|node| node.expires < now);
        if over {
            self.take_back(0, now);
        }
        self.soonest = self.nodes.iter().filter(kept).map(|node| node.expires).min().unwrap_or(Time::MAX);
        over
    }

    /// Removes expired events below a node. Returns whether the node is still done.
    fn take_back(&mut self, at: usize, now: Time) -> bool {
        let Some(node) = self.nodes.get(at).copied() else { return false };
        let done = match node.kind {
            NodeKind::One(_) => node.done && node.expires >= now,
            NodeKind::Silence(..) | NodeKind::Timeout(_) => node.done,
            NodeKind::Without(_) => self.take_back(at + 1, now) && node.done,
            NodeKind::All | NodeKind::Any => self.each(at, |this, child| this.take_back(child, now)) && node.done,
            NodeKind::Sequence => self.go_back(at, now) && node.done,
        };
        if let Some(node) = self.nodes.get_mut(at) {
            node.done = done;
        }
        done
    }

    /// Returns a sequence to its first child that is no longer done, and resets the later children.
    /// Returns whether all are still done.
    fn go_back(&mut self, at: usize, now: Time) -> bool {
        let Some((end, reached)) = self.nodes.get(at).map(|node| (node.end, node.at)) else { return false };
        let (mut child, mut number) = (at + 1, 0);
        while child < end && number <= reached {
            let next = self.nodes.get(child).map_or(end, |node| node.end);
            if !self.take_back(child, now) {
                if number < reached {
                    let later = self.nodes.iter_mut().take(end).skip(next);
                    later.for_each(|node| (node.done, node.since, node.mark, node.at) = (false, now, None, 0));
                    if let Some(node) = self.nodes.get_mut(at) {
                        node.at = number;
                    }
                }
                return false;
            }
            (child, number) = (next, number + 1);
        }
        true
    }

    /// An event at `now`.
    #[inline]
    pub fn event(&mut self, head: &Head, now: Time) -> FilterResult {
        if let Some(pattern) = self.alone {
            let complete = pattern.has(head);
            return FilterResult { leaves: u64::from(complete), complete };
        }
        self.event_of_group(head, now)
    }

    fn event_of_group(&mut self, head: &Head, now: Time) -> FilterResult {
        let mut taken = FilterResult::default();
        taken.complete = self.offer(0, head, now, &mut taken.leaves);
        taken
    }

    /// The leaves whose events complete the filter, by bit. It waits again from `now` on. Call it
    /// once after [`FilterResult::complete`].
    #[inline]
    pub fn collect(&mut self, now: Time) -> u64 {
        if self.alone.is_some() { 1 } else { self.collect_group(now) }
    }

    fn collect_group(&mut self, now: Time) -> u64 {
        let held = self.held_by(0);
        self.reset(0, now);
        held
    }

    /// As [`Correlator::collect`], for a timeout that was due at `due` and is handled at `now`. The
    /// filter waits again from `due` on, so that repetitions keep their distance. If the next time
    /// has passed too, the filter waits from `now` on, so that it completes once.
    pub fn collect_due(&mut self, due: Time, now: Time) -> u64 {
        let held = self.collect(due);
        if self.next_time().is_some_and(|next| next <= now) {
            self.reset(0, now);
        }
        held
    }

    /// The leaves that are done below a node.
    fn held_by(&self, at: usize) -> u64 {
        let Some(node) = self.nodes.get(at) else { return 0 };
        match &node.kind {
            NodeKind::One(_) | NodeKind::Silence(..) | NodeKind::Timeout(_) => u64::from(node.done) << node.leaf,
            // Only of the children that are done, not of partial ones.
            NodeKind::Any => {
                let done = |child: &usize| self.nodes.get(*child).is_some_and(|node| node.done);
                self.children(at).filter(done).fold(0, |held, child| held | self.held_by(child))
            }
            _ => self.children(at).fold(0, |held, child| held | self.held_by(child)),
        }
    }

    /// A timeout at `now`. Returns whether the node is done.
    fn time(&mut self, at: usize, now: Time, leaves: &mut u64) -> bool {
        let Some(node) = self.nodes.get(at).copied() else { return false };
        if node.done {
            return true;
        }
        let done = match node.kind {
            NodeKind::One(_) => false,
            NodeKind::Silence(_, span) => {
                node.take_if(node.mark.unwrap_or(node.since).checked_add(span) <= Some(now), leaves)
            }
            NodeKind::Timeout(span) => node.take_if(node.since.checked_add(span) <= Some(now), leaves),
            NodeKind::Without(_) => self.time(at + 1, now, leaves),
            NodeKind::Sequence => self.advance(at, now, |this, child| this.time(child, now, leaves)),
            NodeKind::All | NodeKind::Any => self.each(at, |this, child| this.time(child, now, leaves)),
        };
        self.set_done(at, done)
    }

    /// Offers an event to a node. Returns whether the node is done.
    fn offer(&mut self, at: usize, head: &Head, now: Time, leaves: &mut u64) -> bool {
        let Some(node) = self.nodes.get(at).copied() else { return false };
        let done = match node.kind {
            NodeKind::One(pattern) => {
                let is = node.take_if(pattern.has(head), leaves);
                if let Some(node) = self.nodes.get_mut(at).filter(|_| is) {
                    node.expires = head.expires;
                    self.soonest = self.soonest.min(head.expires);
                }
                node.done | is
            }
            NodeKind::Silence(pattern, _) => {
                if let Some(node) = self.nodes.get_mut(at).filter(|node| !node.done && pattern.has(head)) {
                    node.mark = Some(now);
                }
                node.done
            }
            NodeKind::Timeout(_) => node.done,
            NodeKind::Without(_) | NodeKind::Sequence if node.done => true,
            NodeKind::Without(not) => {
                if not.has(head) {
                    self.reset(at, now);
                    return false;
                }
                self.offer(at + 1, head, now, leaves)
            }
            NodeKind::Sequence => self.advance(at, now, |this, child| this.offer(child, head, now, leaves)),
            NodeKind::All | NodeKind::Any => self.each(at, |this, child| this.offer(child, head, now, leaves)),
        };
        self.set_done(at, done)
    }

    fn set_done(&mut self, at: usize, done: bool) -> bool {
        if let Some(node) = self.nodes.get_mut(at) {
            node.done |= done;
        }
        done
    }

    /// Asks all children of a group. Returns whether the group is done: one child for `Any`, else
    /// all.
    fn each(&mut self, at: usize, mut ask: impl FnMut(&mut Self, usize) -> bool) -> bool {
        let Some((any, end)) = self.nodes.get(at).map(|node| (matches!(node.kind, NodeKind::Any), node.end)) else {
            return false;
        };
        let (mut child, mut all, mut one) = (at + 1, true, false);
        while child < end {
            let done = ask(self, child);
            (all, one) = (all & done, one | done);
            child = self.nodes.get(child).map_or(end, |node| node.end);
        }
        if any { one } else { all }
    }

    /// Asks the child that a sequence waits for. Returns whether the sequence is done.
    fn advance(&mut self, at: usize, now: Time, mut ask: impl FnMut(&mut Self, usize) -> bool) -> bool {
        let Some(child) = self.nodes.get(at).and_then(|node| self.child(at, node.at)) else { return true };
        if !ask(self, child) {
            return false;
        }
        let number = self.nodes.get(at).map_or(0, |node| node.at + 1);
        if let Some(node) = self.nodes.get_mut(at) {
            node.at = number;
        }
        match self.child(at, number) {
            None => true,
            Some(next) => {
                self.reset(next, now);
                false
            }
        }
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
