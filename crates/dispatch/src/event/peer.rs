//! The state of another node: the events received from it, and its presence. Pure: the caller
//! passes the time.

use takt_model::{Span, Time};

use super::filter::Head;
use super::wire::{Datagram, less};

/// The most nodes that an event passes.
pub const HOPS_MAX: u8 = 16;
/// How many numbers up to the newest are remembered. Older ones cannot be told from duplicates.
pub const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// The verdict on a sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receipt {
    /// The first time.
    New,
    /// A repetition.
    Duplicate,
    /// Too old to say, or of a former run of its node.
    Old,
}

/// The events of one node on one level.
///
/// ```
/// use takt_dispatch::event::peer::{Receipt, Stream};
///
/// let mut stream = Stream::new(1, 10);
/// let receipts = [10, 12, 12].map(|number| stream.receive(number));
/// assert_eq!(receipts, [Receipt::New, Receipt::New, Receipt::Duplicate]);
/// assert_eq!(stream.receive(11), Receipt::New);
/// stream.expect(15);
/// assert_eq!((stream.received(), stream.lost()), (3, 2));
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    incarnation: u64,
    /// The first number that counts.
    base: u64,
    /// One past the newest number.
    next: u64,
    /// Received numbers from `base` on.
    received: u64,
    /// Received numbers before `base`.
    before: u64,
    /// Bit `number % WINDOW` for the numbers from `next - WINDOW` on.
    seen: [u64; WORDS],
}

impl Stream {
    /// The stream of a node's run. Events before `base` do not count as lost, but may arrive.
    #[must_use]
    pub const fn new(incarnation: u64, base: u64) -> Stream {
        Stream { incarnation, base, next: base, received: 0, before: 0, seen: [0; WORDS] }
    }

    /// The node's run.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether a number is too old to judge.
    const fn is_old(&self, number: u64) -> bool {
        number.saturating_add(WINDOW) < self.next
    }

    /// Records an event.
    pub fn receive(&mut self, number: u64) -> Receipt {
        if self.is_old(number) {
            return Receipt::Old;
        }
        self.expect(number.saturating_add(1));
        let (bit, word) = (1 << (number % 64), self.seen.get_mut((number % WINDOW / 64) as usize));
        let Some(word) = word.filter(|word| **word & bit == 0) else { return Receipt::Duplicate };
        *word |= bit;
        if number < self.base {
            self.before += 1;
        } else {
            self.received += 1;
        }
        Receipt::New
    }

    /// All events before `next` have been sent.
    pub fn expect(&mut self, next: u64) {
        if next <= self.next {
            return;
        }
        if next - self.next >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            for number in self.next..next {
                if let Some(word) = self.seen.get_mut((number % WINDOW / 64) as usize) {
                    *word &= !(1 << (number % 64));
                }
            }
        }
        self.next = next;
    }

    /// Received events, each counted once.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received + self.before
    }

    /// Events sent and not received, so far.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.next - self.base - self.received
    }
}

/// A change of a peer's presence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PresenceChange {
    /// The peer appeared.
    Found,
    /// The peer was silent for too long, or said that it ends.
    Lost,
}

/// A peer's presence and its run. A peer is present if it was heard within the last `lost_after`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Presence {
    lost_after: Span,
    /// When the peer was last heard.
    heard: Time,
    is_there: bool,
    /// The node and its incarnation, once heard.
    known: Option<(u64, u64)>,
}

impl Presence {
    /// The presence of a peer that has not been heard.
    #[must_use]
    pub const fn new(lost_after: Span) -> Presence {
        Presence { lost_after, heard: Time::ZERO, is_there: false, known: None }
    }

    /// Whether the peer counts as present.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.is_there
    }

    /// The node's number, once heard.
    #[must_use]
    pub fn node(&self) -> Option<u64> {
        self.known.map(|(node, _)| node)
    }

    /// Records a datagram of the peer itself, from a run of a node. `ends` marks its last one.
    /// Returns the changes with their nodes. A new run that replaces a present one causes both
    /// changes.
    ///
    /// Datagrams of a former run, and datagrams after a run's last one, change nothing until a
    /// silence has passed.
    pub fn hear(&mut self, node: u64, incarnation: u64, ends: bool, now: Time) -> [Option<(PresenceChange, u64)>; 2] {
        let silent = self.heard.saturating_add(self.lost_after) < now;
        let changes = match self.known {
            Some((known, run))
                if known == node && (run > incarnation || run == incarnation && !self.is_there) && !silent =>
            {
                return [None; 2];
            }
            Some(known) if known == (node, incarnation) && self.is_there => [None; 2],
            Some((known, _)) if self.is_there => {
                [Some((PresenceChange::Lost, known)), Some((PresenceChange::Found, node))]
            }
            _ => [None, Some((PresenceChange::Found, node))],
        };
        (self.known, self.heard, self.is_there) = (Some((node, incarnation)), now, !ends);
        match changes {
            [first, Some((PresenceChange::Found, _))] if ends => [first, None],
            [None, None] if ends => [Some((PresenceChange::Lost, node)), None],
            changes => changes,
        }
    }

    /// Checks for silence at `now`.
    pub fn pass(&mut self, now: Time) -> Option<(PresenceChange, u64)> {
        let silent = self.is_there && self.heard.saturating_add(self.lost_after) < now;
        self.is_there &= !silent;
        silent.then_some((PresenceChange::Lost, self.node().unwrap_or_default()))
    }
}

/// The changes of a peer that a consumer has still to hear. The consumer learns of presence and
/// loss in turn, when it has room. It may miss what came and went meanwhile.
///
/// ```
/// use takt_dispatch::event::peer::{PendingChanges, PresenceChange};
///
/// let mut pending = PendingChanges::default();
/// assert_eq!(pending.next(Some(5)), Some((PresenceChange::Found, 5)));
/// pending.delivered(PresenceChange::Found, 5);
/// // Started again, which it has no room for at first.
/// pending.lost(5);
/// assert_eq!(pending.next(Some(5)), Some((PresenceChange::Lost, 5)));
/// pending.delivered(PresenceChange::Lost, 5);
/// assert_eq!(pending.next(Some(5)), Some((PresenceChange::Found, 5)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PendingChanges {
    /// The node that the consumer believes present.
    known: Option<u64>,
    /// Whether that node was lost since.
    gone: bool,
}

impl PendingChanges {
    /// Records that a node was lost.
    pub fn lost(&mut self, node: u64) {
        self.gone |= self.known == Some(node);
    }

    /// The next change, if `there` is the node now present.
    #[must_use]
    pub fn next(&self, there: Option<u64>) -> Option<(PresenceChange, u64)> {
        match self.known {
            Some(known) if self.gone || there != self.known => Some((PresenceChange::Lost, known)),
            Some(_) => None,
            None => there.map(|there| (PresenceChange::Found, there)),
        }
    }

    /// Records that the consumer was told.
    pub fn delivered(&mut self, change: PresenceChange, node: u64) {
        *self = PendingChanges { known: (change == PresenceChange::Found).then_some(node), gone: false };
    }
}

/// The nodes whose events arrive on one level, directly or forwarded. Their number is bounded.
#[derive(Debug)]
pub struct Origins {
    rows: Vec<Origin>,
    most: usize,
    /// After this silence, a row may be reused, and a node may start anew.
    forgotten_after: Span,
    /// Sums of the streams that have ended.
    ended: Sums,
}

#[derive(Debug)]
struct Origin {
    node: u64,
    heard: Time,
    stream: Stream,
}

/// Counters of [`Origins`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// Received events, each counted once.
    pub received: u64,
    /// Events sent and not received, so far.
    pub lost: u64,
}

impl Origins {
    /// At most this many nodes. A node is forgotten after this silence.
    #[must_use]
    pub fn new(most: usize, forgotten_after: Span) -> Origins {
        Origins { rows: Vec::with_capacity(most), most, forgotten_after, ended: Sums::default() }
    }

    /// The stream of a node's run; `None` if there is no room, or if the run is over.
    ///
    /// A new stream counts from `first`, the number that arrived. A number too old to judge does
    /// not prove that its run continues. If nothing else arrives for long enough, the stream starts
    /// anew at that number.
    pub fn of(&mut self, node: u64, incarnation: u64, first: u64, now: Time) -> Option<&mut Stream> {
        let after = self.forgotten_after;
        let silent = |row: &Origin| row.heard.saturating_add(after) < now;
        let row = Origin { node, heard: now, stream: Stream::new(incarnation, first) };
        let at = match self.rows.iter().position(|row| row.node == node) {
            Some(at) => at,
            None if self.rows.len() < self.most => {
                self.rows.push(row);
                return self.rows.last_mut().map(|row| &mut row.stream);
            }
            None => self.rows.iter().position(silent)?,
        };
        let known = self.rows.get_mut(at)?;
        if known.node == node && incarnation < known.stream.incarnation && !silent(known) {
            return None;
        }
        let old = known.node == node && known.stream.incarnation == incarnation && known.stream.is_old(first);
        if known.node != node || known.stream.incarnation != incarnation || old && silent(known) {
            self.ended = self.ended.and(&known.stream);
            *known = row;
        } else if !old {
            known.heard = now;
        }
        Some(&mut known.stream)
    }

    /// The sums of all streams.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.rows.iter().fold(self.ended, |sums, row| sums.and(&row.stream))
    }
}

impl Sums {
    fn and(self, stream: &Stream) -> Sums {
        // Saturates, because a peer can send any number.
        Sums {
            received: self.received.saturating_add(stream.received()),
            lost: self.lost.saturating_add(stream.lost()),
        }
    }
}

/// The number of a clock that is in common with no other node.
pub(super) const NO_CLOCK: u64 = 0;

/// The times of an event on arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrivalTimes {
    /// Remaining time to live; [`Span::MAX`] if the event does not expire.
    pub remaining: Span,
    /// Time until the deadline; [`Span::MAX`] if there is none.
    pub due: Span,
    /// Time on the way; `None` without a common clock.
    pub transit: Option<Span>,
    /// By the common clock, the event arrived before it was sent.
    pub skewed: bool,
}

impl ArrivalTimes {
    /// The times of an event in a datagram. Clock 0 is the sender's own. `now` is the time of the
    /// receiver's clock `own`, in ns.
    #[must_use]
    pub fn of(datagram: &Datagram<'_>, own: u64, now: u64) -> ArrivalTimes {
        if datagram.clock != own || own == NO_CLOCK {
            return ArrivalTimes { remaining: datagram.remaining, due: datagram.due, transit: None, skewed: false };
        }
        let transit = Span::from_ns(now.saturating_sub(datagram.sent));
        let left = datagram.after(transit);
        ArrivalTimes { remaining: left.remaining, due: left.due, transit: Some(transit), skewed: datagram.sent > now }
    }

    /// The times after a wait.
    #[must_use]
    pub fn after(self, waited: Span) -> ArrivalTimes {
        ArrivalTimes { remaining: less(self.remaining, waited), due: less(self.due, waited), ..self }
    }

    /// The head of the event for consumers, if it arrived at `now`.
    pub(super) fn head(&self, kind: u32, source: u32, number: u64, now: Time) -> Head {
        let sent = now.saturating_sub(self.transit.unwrap_or(Span::ZERO));
        // An unlimited span gives an unlimited time.
        let (due, expires) = (now.saturating_add(self.due), now.saturating_add(self.remaining));
        Head { kind, source, number, sent, due, expires }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::wire::Body;
    use super::*;

    proptest! {
        /// The reference is a set of all numbers so far.
        #[test]
        fn a_stream_agrees_with_one_that_remembers_all(
            base in 0_u64..2000,
            steps in prop::collection::vec((0_i64..6, 0_u64..2400, any::<bool>()), 1..200),
        ) {
            let mut stream = Stream::new(7, base);
            let mut all = BTreeSet::new();
            let mut next = base;
            for (back, far, beat) in steps {
                // Around the newest number, and sometimes far from it.
                let back = back as u64;
                let number =
                    if back == 0 { (next + far).saturating_sub(1200) } else { (next + 3).saturating_sub(back) };
                if beat {
                    stream.expect(number);
                    next = next.max(number);
                    continue;
                }
                let expected = if number + WINDOW < next {
                    Receipt::Old
                } else if all.insert(number) {
                    Receipt::New
                } else {
                    Receipt::Duplicate
                };
                next = if expected == Receipt::Old { next } else { next.max(number + 1) };
                prop_assert_eq!(stream.receive(number), expected);
                prop_assert_eq!(stream.received(), all.len() as u64);
                prop_assert_eq!(stream.lost(), next - base - all.range(base..).count() as u64);
            }
        }
    }

    #[test]
    fn a_peer_is_there_until_it_has_been_silent_for_too_long() {
        let at = |ms: u64| Time::ZERO + Span::from_ms(ms);
        let mut presence = Presence::new(Span::from_ms(30));
        let (found, lost) =
            (|node| [None, Some((PresenceChange::Found, node))], |node| Some((PresenceChange::Lost, node)));
        assert_eq!(presence.pass(at(1000)), None, "nobody was there");
        assert_eq!(presence.hear(5, 1, false, at(1000)), found(5));
        assert_eq!(presence.hear(5, 1, false, at(1020)), [None; 2]);
        assert_eq!(presence.pass(at(1050)), None, "exactly as long as it may");
        assert_eq!(presence.pass(at(1051)), lost(5));
        assert_eq!(presence.pass(at(1052)), None, "once");
        assert_eq!(presence.hear(5, 1, false, at(1060)), found(5));
        assert_eq!(presence.hear(5, 1, true, at(1061)), [lost(5), None], "its last word");
        assert_eq!(presence.hear(5, 1, false, at(1062)), [None; 2], "what it sent before comes late");
        assert_eq!(presence.hear(5, 2, false, at(1063)), found(5), "it began anew");
        assert_eq!(presence.hear(5, 1, true, at(1064)), [None; 2], "the last word of its former run comes late");
        assert_eq!(
            presence.hear(5, 3, false, at(1065)),
            [lost(5), Some((PresenceChange::Found, 5))],
            "nobody saw it go"
        );
        assert_eq!(
            presence.hear(6, 1, false, at(1066)),
            [lost(5), Some((PresenceChange::Found, 6))],
            "another in its place"
        );
        assert_eq!(presence.hear(6, 0, false, at(1090)), [None; 2], "its clock was set back");
        assert_eq!(presence.pass(at(1097)), lost(6));
        assert_eq!(presence.hear(6, 0, false, at(1098)), found(6), "after a silence that is its new run");
        assert_eq!(presence.hear(6, 1, true, at(1099)), [lost(6), None], "a run of which nothing is left");
    }

    #[test]
    fn runs_of_a_node_are_told_apart_and_room_is_bounded() {
        let at = |ms: u64| Time::ZERO + Span::from_ms(ms);
        let mut origins = Origins::new(2, Span::from_ms(100));
        let mut see = |node, incarnation, number, ms| {
            origins.of(node, incarnation, number, at(ms)).map(|stream| stream.receive(number))
        };
        assert_eq!(see(1, 5, 100, 0), Some(Receipt::New));
        assert_eq!(see(1, 6, 3, 1), Some(Receipt::New), "it began anew");
        assert_eq!(see(1, 5, 101, 2), None, "what its former run sent comes late");
        assert_eq!(see(1, 6, 3, 3), Some(Receipt::Duplicate));
        assert_eq!(
            see(1, 4, 0, 104),
            Some(Receipt::New),
            "its clock was set back: after a silence, that is its new run"
        );
        assert_eq!(see(2, 1, 0, 104), Some(Receipt::New));
        assert_eq!(see(3, 1, 0, 105), None, "no room");
        assert_eq!(see(3, 1, 0, 205), Some(Receipt::New), "that of a silent one");
        // For every number that a peer may send.
        assert_eq!(see(3, 1, u64::MAX - 1, 206), Some(Receipt::New));
        assert_eq!([see(3, 2, 0, 207), see(3, 2, u64::MAX - 1, 208)], [Some(Receipt::New); 2]);
        assert_eq!(see(3, 3, 0, 209), Some(Receipt::New));
        assert_eq!(origins.sums().lost, u64::MAX);
    }

    #[test]
    fn a_number_far_too_great_silences_a_node_for_a_while_only() {
        let at = |ms: u64| Time::ZERO + Span::from_ms(ms);
        let mut origins = Origins::new(2, Span::from_ms(100));
        let mut see = |number, ms| origins.of(1, 5, number, at(ms)).map(|stream| stream.receive(number));
        assert_eq!([see(4, 0), see(u64::MAX - 1, 1)], [Some(Receipt::New); 2]);
        assert_eq!([see(5, 50), see(6, 101)], [Some(Receipt::Old); 2], "what is too old keeps no run alive");
        assert_eq!([see(7, 102), see(7, 103), see(8, 104)], [Receipt::New, Receipt::Duplicate, Receipt::New].map(Some));
    }

    #[test]
    fn time_left_counts_the_way_only_where_both_ends_have_one_clock() {
        let ms = Span::from_ms;
        let (ns, body) = (Span::from_ns, Body::Beat);
        let of = |(remaining, due), clock, sent| Datagram {
            hops: 0,
            node: 1,
            incarnation: 1,
            sequence: 0,
            clock,
            sent,
            remaining,
            due,
            body,
        };
        let left = |clock, sent, now| ArrivalTimes::of(&of((ns(50), ns(35)), clock, sent), 1, now);
        let told =
            |remaining, due, transit, skewed| ArrivalTimes { remaining: ns(remaining), due: ns(due), transit, skewed };
        assert_eq!(left(1, 100, 130), told(20, 5, Some(ns(30)), false));
        assert_eq!(left(1, 100, 140), told(10, 0, Some(ns(40)), false));
        assert_eq!(left(1, 100, 151).remaining, Span::ZERO);
        assert_eq!(left(1, 100, 90), told(50, 35, Some(Span::ZERO), true));
        let own = ArrivalTimes::of(&of((ns(50), ns(35)), NO_CLOCK, 100), NO_CLOCK, 990);
        assert_eq!(own, left(2, 100, 990), "two without a clock have none in common");
        assert_eq!(left(2, 100, 990), told(50, 35, None, false));
        assert_eq!(left(2, 100, 990).after(ns(40)), told(10, 0, None, false));
        let forever = ArrivalTimes::of(&of((Span::MAX, Span::MAX), 1, 0), 1, ms(5).as_ns());
        assert_eq!((forever.remaining, forever.due), (Span::MAX, Span::MAX));
        let head = left(1, 100, 130).head(1, 2, 3, Time::from_ns(1000));
        let times = [head.sent, head.due, head.expires].map(Time::as_ns);
        assert_eq!(times, [970, 1005, 1020]);
    }
}
