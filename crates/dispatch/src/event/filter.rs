//! What a consumer waits for: single events by type and source, and groups of them; the state machine that follows the events, and says when it has
//! seen what it waits for. Pure: it is told the time.

use takt_model::{Span, Time};

/// What is known of an event without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Its type; what that means is the program's business.
    pub kind: u32,
    /// Who supplied it.
    pub source: u32,
    /// Zero for the first event of its supplier.
    pub number: u64,
    /// When it was pushed; of another node's event, when the last node sent it, or, without a clock in common, when it came.
    pub sent: Time,
    /// Its deadline: by then the handlers of its consumers should have returned; [`Time::MAX`]: it has none of its own. Zero, or any other time that has passed: it was late on the way.
    pub due: Time,
    /// After this it is of no use: it is not handled any more, and counted as expired.
    pub expires: Time,
}

/// How long it is from `now` to a time of an event; of [`Time::MAX`], which means never, [`Span::MAX`].
pub(super) fn until(time: Time, now: Time) -> Span {
    if time == Time::MAX { Span::MAX } else { time.saturating_since(now) }
}

/// Which values of a 32-bit number are meant: those that agree with `value` in all bits of `mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    /// The bits wanted.
    pub value: u32,
    /// The bits that count; none: any value is meant.
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

    /// Whether a value is meant.
    #[must_use]
    pub const fn has(self, value: u32) -> bool {
        (value ^ self.value) & self.mask == 0
    }
}

/// Which events are meant, each by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Of which types.
    pub kind: Bits,
    /// Of which sources.
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

    /// Whether an event is meant.
    #[must_use]
    pub const fn has(&self, head: &Head) -> bool {
        self.kind.has(head.kind) && self.source.has(head.source)
    }
}

/// What a consumer waits for. When it is there, the consumer is given its events, the newest for each [`Filter::One`] that took part, and waits anew.
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
    /// One event. While its group waits for others a newer one takes its place, unless a sequence or a negation around it is complete; and once it has expired, the group waits for one anew.
    One(Pattern),
    /// All of these, in any order. One event can be what several wait for.
    All(Vec<Filter>),
    /// The first of these.
    Any(Vec<Filter>),
    /// These one after the other; an event counts for one of them.
    Sequence(Vec<Filter>),
    /// This, without an event of `not` since it began to wait: such an event makes it begin anew.
    Without {
        /// What is waited for.
        filter: Box<Filter>,
        /// What must not come.
        not: Pattern,
    },
    /// No event of these for so long.
    Silence {
        /// Which events.
        of: Pattern,
        /// For how long; [`TIME_MIN`] or more.
        span: Span,
    },
    /// So long after it began to wait; [`TIME_MIN`] or more.
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

    /// How many events it keeps at most: its [`Filter::One`], [`Filter::Silence`] and [`Filter::Timeout`].
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

    /// What is wrong with it; nothing where all is right.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        if self.is_deeper(DEPTH_MAX) {
            return Some(format!("its groups are more than {DEPTH_MAX} deep"));
        }
        self.wrong_member()
    }

    /// Whether there are more than so many of its filters within each other.
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

/// The shortest [`Filter::Timeout`] and [`Filter::Silence`]: the channel's thread that waits for them has a priority above all levels, and must sleep.
pub const TIME_MIN: Span = Span::from_us(100);

/// The most events that one filter waits for: bits of a set.
pub const LEAVES_MAX: usize = 64;

/// The most filters within each other, whatever they are: who pushes goes down them on a real-time thread's stack.
pub const DEPTH_MAX: usize = 16;

/// A node of a filter, in a list in which children stand behind their parents.
#[derive(Clone, Copy, Debug)]
struct Node {
    of: Of,
    /// One past its last descendant.
    end: usize,
    /// The first leaf below it; its own number for a leaf.
    leaf: usize,
    done: bool,
    /// When it began to wait.
    since: Time,
    /// Of `Silence`: when the last event came.
    mark: Option<Time>,
    /// Of `Sequence`: the child that it waits for.
    at: usize,
    /// Of `One`: when its event is of no use any more.
    expires: Time,
}

impl Node {
    /// Whether a leaf has what it waits for; then it is among those that took something.
    fn take_if(&self, is: bool, leaves: &mut u64) -> bool {
        *leaves |= u64::from(is) << self.leaf;
        is
    }
}

#[derive(Clone, Copy, Debug)]
enum Of {
    One(Pattern),
    All,
    Any,
    Sequence,
    Without(Pattern),
    Silence(Pattern, Span),
    Timeout(Span),
}

/// A filter at work.
///
/// Whoever holds it calls [`Correlator::pass_time`] and [`Correlator::expire`] first, whenever it looks: what falls due at an instant comes before the events of that instant.
#[derive(Clone, Debug)]
pub struct Correlator {
    nodes: Vec<Node>,
    leaves: usize,
    /// No event that is kept expires before this.
    soonest: Time,
    /// Where it waits for one event and for nothing else, as most consumers do: for which. Nothing has to be known of it besides.
    alone: Option<Pattern>,
    /// Whether it waits for time.
    timed: bool,
}

/// What an event was for a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// The leaves whose event it is now, by bit: the events that they had before are not wanted any more.
    pub leaves: u64,
    /// Whether that was all that the filter waited for. [`Correlator::collect`] is to be called then.
    pub complete: bool,
}

impl Correlator {
    /// Begins to wait at `now`. The filter must not be [wrong](Filter::wrong).
    #[must_use]
    pub fn new(filter: &Filter, now: Time) -> Correlator {
        let alone = if let Filter::One(pattern) = filter { Some(*pattern) } else { None };
        let mut this = Correlator { nodes: Vec::new(), leaves: 0, soonest: Time::MAX, alone, timed: false };
        this.add(filter);
        this.timed = this.nodes.iter().any(|node| matches!(node.of, Of::Silence(..) | Of::Timeout(_)));
        this.reset(0, now);
        this
    }

    /// Waits anew from `now` on.
    pub fn restart(&mut self, now: Time) {
        self.reset(0, now);
    }

    fn add(&mut self, filter: &Filter) {
        let (of, children): (Of, &[Filter]) = match filter {
            Filter::One(pattern) => (Of::One(*pattern), &[]),
            Filter::All(filters) => (Of::All, filters),
            Filter::Any(filters) => (Of::Any, filters),
            Filter::Sequence(filters) => (Of::Sequence, filters),
            Filter::Without { filter, not } => (Of::Without(*not), std::slice::from_ref(filter)),
            Filter::Silence { of, span } => (Of::Silence(*of, *span), &[]),
            Filter::Timeout(span) => (Of::Timeout(*span), &[]),
        };
        let (place, leaf) = (self.nodes.len(), self.leaves);
        self.nodes.push(Node {
            of,
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

    /// A node and all below it wait anew.
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
        match &node.of {
            Of::One(_) => None,
            Of::Silence(_, span) => node.mark.unwrap_or(node.since).checked_add(*span),
            Of::Timeout(span) => node.since.checked_add(*span),
            Of::Sequence => self.next_of(self.child(at, node.at)?),
            Of::All | Of::Any | Of::Without(_) => self.children(at).filter_map(|child| self.next_of(child)).min(),
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

    /// What falls due up to `now`. To be called before the events of `now`, and until it is not complete.
    pub fn pass_time(&mut self, now: Time) -> Taken {
        let mut taken = Taken::default();
        while !taken.complete {
            let Some(due) = self.next_time().filter(|due| *due <= now) else { break };
            if self.expire(due) {
                // Another time may be due before that.
                continue;
            }
            taken.complete = self.time(0, due, &mut taken.leaves);
        }
        taken
    }

    /// Whether [`Correlator::pass_time`] or [`Correlator::expire`] may have something to do now.
    #[inline]
    #[must_use]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.soonest < now || self.next_time().is_some_and(|due| due <= now)
    }

    /// Takes back what has expired before `now` of the events that are kept for a group: their places wait anew, a sequence is at the first of them again. Whether there was any; then
    /// something may be [due](Correlator::next_time) that was not. Otherwise one event that is lost would make every later set of its group expire, for its fresh part waits for the next one's.
    #[inline]
    pub fn expire(&mut self, now: Time) -> bool {
        self.soonest < now && self.expire_kept(now)
    }

    fn expire_kept(&mut self, now: Time) -> bool {
        let kept = |node: &&Node| node.done && matches!(node.of, Of::One(_));
        let over = self.nodes.iter().filter(kept).any(|node| node.expires < now);
        if over {
            self.take_back(0, now);
        }
        self.soonest = self.nodes.iter().filter(kept).map(|node| node.expires).min().unwrap_or(Time::MAX);
        over
    }

    /// The same for what is below a node; whether that is done still.
    fn take_back(&mut self, at: usize, now: Time) -> bool {
        let Some(node) = self.nodes.get(at).copied() else { return false };
        let done = match node.of {
            Of::One(_) => node.done && node.expires >= now,
            Of::Silence(..) | Of::Timeout(_) => node.done,
            Of::Without(_) => self.take_back(at + 1, now) && node.done,
            Of::All | Of::Any => self.each(at, |this, child| this.take_back(child, now)) && node.done,
            Of::Sequence => self.go_back(at, now) && node.done,
        };
        if let Some(node) = self.nodes.get_mut(at) {
            node.done = done;
        }
        done
    }

    /// A sequence waits for the first of its children that is not done any more, and for those after it anew; whether there is none.
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
    pub fn event(&mut self, head: &Head, now: Time) -> Taken {
        if let Some(pattern) = self.alone {
            let complete = pattern.has(head);
            return Taken { leaves: u64::from(complete), complete };
        }
        self.event_of_group(head, now)
    }

    fn event_of_group(&mut self, head: &Head, now: Time) -> Taken {
        let mut taken = Taken::default();
        taken.complete = self.offer(0, head, now, &mut taken.leaves);
        taken
    }

    /// The leaves whose events complete the filter, by bit; waits anew from `now` on. To be called once, where [`Taken::complete`] says so.
    #[inline]
    pub fn collect(&mut self, now: Time) -> u64 {
        if self.alone.is_some() { 1 } else { self.collect_group(now) }
    }

    fn collect_group(&mut self, now: Time) -> u64 {
        let held = self.held_by(0);
        self.reset(0, now);
        held
    }

    /// The same for what fell due then, and is seen `now`: waits anew from then on, so that what repeats keeps its distance; where the next time has passed
    /// as well, from now on. However much was missed, it completes once.
    pub fn collect_due(&mut self, due: Time, now: Time) -> u64 {
        let held = self.collect(due);
        if self.next_time().is_some_and(|next| next <= now) {
            self.reset(0, now);
        }
        held
    }

    /// The leaves of what is done below a node.
    fn held_by(&self, at: usize) -> u64 {
        let Some(node) = self.nodes.get(at) else { return 0 };
        match &node.of {
            Of::One(_) | Of::Silence(..) | Of::Timeout(_) => u64::from(node.done) << node.leaf,
            // Of those that were first, not what others have so far.
            Of::Any => {
                let done = |child: &usize| self.nodes.get(*child).is_some_and(|node| node.done);
                self.children(at).filter(done).fold(0, |held, child| held | self.held_by(child))
            }
            _ => self.children(at).fold(0, |held, child| held | self.held_by(child)),
        }
    }

    /// An instant that a node named has come; whether it is done.
    fn time(&mut self, at: usize, now: Time, leaves: &mut u64) -> bool {
        let Some(node) = self.nodes.get(at).copied() else { return false };
        if node.done {
            return true;
        }
        let done = match node.of {
            Of::One(_) => false,
            Of::Silence(_, span) => {
                node.take_if(node.mark.unwrap_or(node.since).checked_add(span) <= Some(now), leaves)
            }
            Of::Timeout(span) => node.take_if(node.since.checked_add(span) <= Some(now), leaves),
            Of::Without(_) => self.time(at + 1, now, leaves),
            Of::Sequence => self.advance(at, now, |this, child| this.time(child, now, leaves)),
            Of::All | Of::Any => self.each(at, |this, child| this.time(child, now, leaves)),
        };
        self.set_done(at, done)
    }

    /// An event for a node; whether it is done.
    fn offer(&mut self, at: usize, head: &Head, now: Time, leaves: &mut u64) -> bool {
        let Some(node) = self.nodes.get(at).copied() else { return false };
        let done = match node.of {
            Of::One(pattern) => {
                let is = node.take_if(pattern.has(head), leaves);
                if let Some(node) = self.nodes.get_mut(at).filter(|_| is) {
                    node.expires = head.expires;
                    self.soonest = self.soonest.min(head.expires);
                }
                node.done | is
            }
            Of::Silence(pattern, _) => {
                if let Some(node) = self.nodes.get_mut(at).filter(|node| !node.done && pattern.has(head)) {
                    node.mark = Some(now);
                }
                node.done
            }
            Of::Timeout(_) => node.done,
            Of::Without(_) | Of::Sequence if node.done => true,
            Of::Without(not) => {
                if not.has(head) {
                    self.reset(at, now);
                    return false;
                }
                self.offer(at + 1, head, now, leaves)
            }
            Of::Sequence => self.advance(at, now, |this, child| this.offer(child, head, now, leaves)),
            Of::All | Of::Any => self.each(at, |this, child| this.offer(child, head, now, leaves)),
        };
        self.set_done(at, done)
    }

    fn set_done(&mut self, at: usize, done: bool) -> bool {
        if let Some(node) = self.nodes.get_mut(at) {
            node.done |= done;
        }
        done
    }

    /// Asks all children of a group; whether all or, of `Any`, one is done.
    fn each(&mut self, at: usize, mut ask: impl FnMut(&mut Self, usize) -> bool) -> bool {
        let Some((any, end)) = self.nodes.get(at).map(|node| (matches!(node.of, Of::Any), node.end)) else {
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

    /// Asks the child that a sequence waits for; whether that was the last.
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
