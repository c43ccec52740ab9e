//! Filters by hand, and random filters against a reference that evaluates the whole history again
//! for each event.

use proptest::prelude::*;

use super::*;

const MS: fn(u64) -> Time = |ms| Time::ZERO.saturating_add(Span::from_ms(ms));

fn head(kind: u32, source: u32, at: Time) -> Head {
    Head { kind, source, number: 0, sent: at, due: Time::MAX, expires: Time::MAX }
}

fn one(kind: u32) -> Filter {
    Pattern::kind(kind).into()
}

/// Feeds events (ms, kind) and passes time up to `end`. Returns when the filter completed, and its
/// leaves.
fn completions(filter: &Filter, events: &[(u64, u32)], end: u64) -> Vec<(u64, Vec<usize>)> {
    let mut it = Correlator::new(filter, Time::ZERO);
    let mut all = Vec::new();
    let mut collect = |it: &mut Correlator, now: Time| {
        let leaves = it.collect(now);
        all.push((now.as_ns() / 1_000_000, (0..64).filter(|leaf| leaves & 1 << leaf != 0).collect()));
    };
    let pass = |it: &mut Correlator, now: Time, all: &mut dyn FnMut(&mut Correlator, Time)| {
        while let Some(due) = it.next_time().filter(|due| *due <= now) {
            if it.pass_time(due).complete {
                all(it, due);
            }
        }
    };
    for (at, kind) in events {
        pass(&mut it, MS(*at), &mut collect);
        if it.event(&head(*kind, 0, MS(*at)), MS(*at)).complete {
            collect(&mut it, MS(*at));
        }
    }
    pass(&mut it, MS(end), &mut collect);
    all
}

#[test]
fn bits_mean_what_they_mask() {
    let head = |kind, source| head(kind, source, Time::ZERO);
    let pattern = Pattern { kind: Bits { value: 0x0100, mask: 0xff00 }, source: Bits::exactly(7) };
    assert!(pattern.has(&head(0x0142, 7)) && !pattern.has(&head(0x0242, 7)) && !pattern.has(&head(0x0142, 6)));
    assert!(Pattern::ANY.has(&head(u32::MAX, 0)));
    assert!(Pattern::kind(3).from(4).has(&head(3, 4)) && !Pattern::kind(3).from(4).has(&head(3, 5)));
    assert!(Pattern::source(4).has(&head(99, 4)) && !Pattern::source(4).has(&head(99, 5)));
}

#[test]
fn groups_wait_for_all_for_one_or_in_order() {
    let events = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 1), (6, 3)];
    assert_eq!(completions(&one(1), &events, 9), [(1, vec![0]), (2, vec![0]), (5, vec![0])]);
    assert_eq!(completions(&Filter::all([one(1), one(2)]), &events, 9), [(3, vec![0, 1]), (5, vec![0, 1])]);
    assert_eq!(completions(&Filter::any([one(2), one(3)]), &events, 9), [(3, vec![0]), (4, vec![0]), (6, vec![1])]);
    assert_eq!(completions(&Filter::sequence([one(2), one(1)]), &events, 9), [(5, vec![0, 1])]);
    // One event for several members of a group, not of a sequence.
    assert_eq!(completions(&Filter::all([one(1), one(1)]), &events[..1], 9), [(1, vec![0, 1])]);
    assert_eq!(completions(&Filter::sequence([one(1), one(1)]), &events[..2], 9), [(2, vec![0, 1])]);
}

#[test]
fn negation_begins_anew_and_time_is_an_event() {
    let filter = Filter::sequence([one(1), one(2)]).without(Pattern::kind(9));
    assert_eq!(completions(&filter, &[(1, 1), (2, 9), (3, 2), (4, 1), (5, 2)], 9), [(5, vec![0, 1])]);
    let watchdog = Filter::Silence { of: Pattern::kind(1), span: Span::from_ms(10) };
    assert_eq!(completions(&watchdog, &[(4, 1), (8, 2), (25, 1)], 40), [(14, vec![0]), (24, vec![0]), (35, vec![0])]);
    let late = Filter::any([one(1), Filter::Timeout(Span::from_ms(5))]);
    assert_eq!(completions(&late, &[(3, 1), (8, 1)], 14), [(3, vec![0]), (8, vec![1]), (8, vec![0]), (13, vec![1])]);
    // In a sequence a timeout counts from the end of the part before it.
    let then = Filter::sequence([one(1), Filter::Timeout(Span::from_ms(5))]);
    assert_eq!(completions(&then, &[(7, 1), (9, 1)], 30), [(12, vec![0, 1])]);
}

#[test]
fn newer_events_take_the_place_of_older_ones_until_their_group_is_complete() {
    let mut it = Correlator::new(&Filter::all([one(1), one(2), one(3)]), Time::ZERO);
    let mut take = |kind| it.event(&head(kind, 0, MS(1)), MS(1));
    assert_eq!(take(1), FilterResult { leaves: 1, complete: false });
    assert_eq!(take(1), FilterResult { leaves: 1, complete: false });
    assert_eq!(take(2), FilterResult { leaves: 2, complete: false });
    assert_eq!(take(7), FilterResult { leaves: 0, complete: false });
    assert_eq!(take(3), FilterResult { leaves: 4, complete: true });
    let mut it = Correlator::new(&Filter::all([Filter::sequence([one(1), one(2)]), one(3)]), Time::ZERO);
    let leaves = [1, 2, 1, 2, 3].map(|kind| it.event(&head(kind, 0, MS(1)), MS(1)).leaves);
    assert_eq!(leaves, [1, 2, 0, 0, 4], "a complete sequence keeps its events");
}

#[test]
fn invalid_filters_are_refused_with_a_reason() {
    let wrong = |filter: Filter| filter.wrong().unwrap();
    assert_eq!(wrong(Filter::all([])), "a group is to have at least one member");
    assert_eq!(wrong(Filter::sequence([one(1), Filter::any([])])), "a group is to have at least one member");
    assert_eq!(wrong(Filter::Timeout(Span::ZERO)), "the time of a timeout is to be 100us or more, and is 0ns");
    let silence = Filter::Silence { of: Pattern::ANY, span: Span::from_ns(99_999) };
    let short = "the time of a silence is to be 100us or more, and is 99.999us";
    assert_eq!(wrong(Filter::any([one(1), silence])), short);
    assert_eq!(Filter::Timeout(TIME_MIN).wrong(), None);
    assert_eq!(wrong(Filter::all((0..65).map(one))), "it waits for 65 events; 64 are the most");
    assert_eq!(Filter::all((0..64).map(one)).wrong(), None);
    let nested = |groups| (0..groups).fold(one(1), |filter, _| filter.without(Pattern::kind(2)));
    assert_eq!(nested(DEPTH_MAX - 1).wrong(), None);
    assert_eq!(wrong(nested(DEPTH_MAX)), "its groups are more than 16 deep");
}

/// An instant of a history. At equal times, timeouts come before events, and events keep their
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Instant {
    at: Time,
    /// Zero for a timeout, otherwise the event's number plus one.
    event: usize,
}

/// When a filter that begins to wait right after `from` completes, by the whole history.
fn complete(filter: &Filter, story: &[(Time, u32)], from: Instant, end: Time) -> Option<Instant> {
    let instants =
        || story.iter().enumerate().map(|(number, (at, kind))| (Instant { at: *at, event: number + 1 }, *kind));
    let after = || instants().filter(move |(instant, _)| *instant > from);
    let has = |pattern: &Pattern, kind: u32| pattern.has(&head(kind, 0, Time::ZERO));
    match filter {
        Filter::One(pattern) => after().find(|(_, kind)| has(pattern, *kind)).map(|(instant, _)| instant),
        Filter::All(filters) => {
            let all: Option<Vec<Instant>> = filters.iter().map(|one| complete(one, story, from, end)).collect();
            all?.into_iter().max()
        }
        Filter::Any(filters) => filters.iter().filter_map(|one| complete(one, story, from, end)).min(),
        Filter::Sequence(filters) => filters.iter().try_fold(from, |from, one| complete(one, story, from, end)),
        Filter::Without { filter, not } => {
            let done = complete(filter, story, from, end);
            let broken = after().find(|(_, kind)| has(not, *kind)).map(|(instant, _)| instant);
            match (done, broken) {
                (Some(done), Some(broken)) if broken <= done => {
                    complete(&filter.clone().without(*not), story, broken, end)
                }
                (None, Some(broken)) => complete(&filter.clone().without(*not), story, broken, end),
                (done, _) => done,
            }
        }
        Filter::Silence { of, span } => {
            let mut since = from.at;
            for (instant, _) in after().filter(|(_, kind)| has(of, *kind)) {
                if since + *span <= instant.at {
                    break;
                }
                since = instant.at;
            }
            Some(Instant { at: since + *span, event: 0 }).filter(|due| due.at <= end)
        }
        Filter::Timeout(span) => Some(Instant { at: from.at + *span, event: 0 }).filter(|due| due.at <= end),
    }
}

/// Groups of groups of these leaves.
fn groups_of(leaf: impl Strategy<Value = Filter> + 'static) -> impl Strategy<Value = Filter> {
    leaf.prop_recursive(3, 12, 3, |inner| {
        let group = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            group.clone().prop_map(Filter::All),
            group.clone().prop_map(Filter::Any),
            group.prop_map(Filter::Sequence),
            (inner, 0u32..4).prop_map(|(filter, kind)| filter.without(Pattern::kind(kind))),
        ]
    })
}

fn filters() -> impl Strategy<Value = Filter> {
    groups_of(prop_oneof![
        4 => timeless_leaf(),
        1 => (0u32..4, 1u64..20)
            .prop_map(|(kind, ms)| Filter::Silence { of: Pattern::kind(kind), span: Span::from_ms(ms) }),
        1 => (1u64..20).prop_map(|ms| Filter::Timeout(Span::from_ms(ms))),
    ])
}

fn timeless_leaf() -> impl Strategy<Value = Filter> {
    (0u32..4).prop_map(one)
}

proptest! {
    #[test]
    fn filters_complete_when_the_whole_story_says(
        filter in filters(),
        steps in prop::collection::vec((0u64..6, 0u32..5), 0..40),
    ) {
        prop_assert_eq!(filter.wrong(), None);
        let mut ms = 0;
        let events: Vec<(u64, u32)> = steps.iter().map(|(step, kind)| { ms += step; (ms, *kind) }).collect();
        let story: Vec<(Time, u32)> = events.iter().map(|(at, kind)| (MS(*at), *kind)).collect();
        let end = ms + 30;
        let mut expected = Vec::new();
        let mut from = Instant { at: Time::ZERO, event: 0 };
        while let Some(done) = complete(&filter, &story, from, MS(end)) {
            expected.push(done.at.as_ns() / 1_000_000);
            from = done;
        }
        let found: Vec<u64> = completions(&filter, &events, end).into_iter().map(|(at, _)| at).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_repeating_timeout_keeps_its_phase_and_completes_once_after_a_pause() {
    let ms = |ms| Time::ZERO + Span::from_ms(ms);
    let mut timeout = Correlator::new(&Filter::Timeout(Span::from_ms(10)), Time::ZERO);
    let mut completed = Vec::new();
    // Looked at in time, a little late, and after a long pause.
    for now in [10, 24, 30, 95, 100, 105] {
        while timeout.next_time().is_some_and(|due| due <= ms(now)) {
            let due = timeout.next_time().unwrap();
            assert!(timeout.pass_time(due).complete);
            assert_eq!(timeout.collect_due(due, ms(now)), 1);
            completed.push((now, due));
        }
    }
    assert_eq!(completed, [(10, ms(10)), (24, ms(20)), (30, ms(30)), (95, ms(40)), (105, ms(105))]);
    assert_eq!(timeout.next_time(), Some(ms(115)));
}

/// Kind, arrival and time to live, in ms.
type Short = (u32, u64, u64);

/// Feeds events that expire. Returns when the filter completed. No complete set contains an expired
/// event.
fn completions_of_short(filter: &Filter, events: &[Short]) -> Vec<u64> {
    let mut it = Correlator::new(filter, Time::ZERO);
    let (mut kept, mut all) = ([0; 64], Vec::new());
    for (kind, at, ttl) in events {
        let now = MS(*at);
        it.expire(now);
        let taken = it.event(&Head { expires: MS(at + ttl), ..head(*kind, 0, now) }, now);
        (0..64).filter(|leaf| taken.leaves & 1 << leaf != 0).for_each(|leaf| kept[leaf] = at + ttl);
        if taken.complete {
            let held = it.collect(now);
            assert!((0..64).filter(|leaf| held & 1 << leaf != 0).all(|leaf| kept[leaf] >= *at), "{kept:?} at {at}");
            all.push(*at);
        }
    }
    all
}

#[test]
fn one_lost_event_does_not_make_every_later_set_expire() {
    let both = Filter::all([one(1), one(2)]);
    // Pairs each 100 ms, with a time to live of 40 ms. The first event of the second pair is lost.
    let pairs: Vec<Short> = [(1, 0, 40), (2, 1, 40), (2, 101, 40)]
        .into_iter()
        .chain((2..6).flat_map(|pair| [(1, 100 * pair, 40), (2, 100 * pair + 1, 40)]))
        .collect();
    assert_eq!(completions_of_short(&both, &pairs), [1, 201, 301, 401, 501]);
    // An event is still valid at its expiry.
    assert_eq!(completions_of_short(&both, &[(1, 0, 40), (2, 40, 0)]), [40]);
    assert_eq!(completions_of_short(&both, &[(1, 0, 40), (2, 41, 0), (1, 41, 0)]), [41]);
}

#[test]
fn a_sequence_is_at_the_place_of_what_expired_again() {
    let three = Filter::sequence([one(1), one(2), one(3)]);
    // The second event is invalid without the first, which came before it.
    assert!(completions_of_short(&three, &[(1, 0, 40), (2, 30, 90), (3, 41, 90)]).is_empty());
    let events = [(1, 0, 40), (2, 30, 90), (1, 50, 90), (3, 60, 90), (2, 70, 90), (3, 80, 90)];
    assert_eq!(completions_of_short(&three, &events), [80]);
    let events = [(1, 0, 90), (2, 30, 5), (3, 41, 90), (2, 42, 90), (3, 43, 90)];
    assert_eq!(completions_of_short(&three, &events), [43], "the first is kept");
    // Only one part of a member expires; the other is kept.
    let nested = Filter::sequence([Filter::all([one(1), one(2)]), one(3)]);
    assert_eq!(completions_of_short(&nested, &[(1, 0, 10), (2, 1, 90), (3, 20, 90), (1, 21, 90), (3, 22, 9)]), [22]);
    // A complete part can be negated again.
    let without = Filter::all([one(1).without(Pattern::kind(9)), one(2)]);
    assert_eq!(completions_of_short(&without, &[(1, 0, 10), (9, 1, 9), (2, 2, 9)]), [2]);
    assert_eq!(completions_of_short(&without, &[(1, 0, 10), (1, 11, 9), (9, 30, 9), (2, 31, 9), (1, 32, 9)]), [32]);
}

#[test]
fn an_expired_event_can_bring_the_next_timeout_forward() {
    let early = Filter::any([one(1), Filter::Timeout(Span::from_ms(5))]);
    let mut it = Correlator::new(&Filter::all([early, one(2)]), Time::ZERO);
    let event = |it: &mut Correlator, kind, at: u64, ttl: u64| {
        it.event(&Head { expires: MS(at + ttl), ..head(kind, 0, MS(at)) }, MS(at))
    };
    assert_eq!(event(&mut it, 1, 1, 2), FilterResult { leaves: 1, complete: false });
    assert_eq!(it.next_time(), None, "one of the two is there");
    assert!(!it.expire(MS(3)) && it.expire(MS(4)) && !it.expire(MS(4)));
    assert_eq!(it.next_time(), Some(MS(5)));
    assert_eq!(it.pass_time(MS(6)), FilterResult { leaves: 2, complete: false });
    assert_eq!(event(&mut it, 2, 7, 9), FilterResult { leaves: 4, complete: true });
    assert_eq!(it.collect(MS(7)), 6);
}

/// The state of a filter without timeouts, in the simplest form. A sequence holds the members
/// reached so far.
#[derive(Clone, Debug)]
enum Reached {
    None,
    Until(u64),
    Parts(Vec<Reached>),
}

impl Reached {
    fn of(filter: &Filter) -> Reached {
        match filter {
            Filter::All(filters) | Filter::Any(filters) => Reached::Parts(filters.iter().map(Reached::of).collect()),
            Filter::Sequence(_) => Reached::Parts(Vec::new()),
            Filter::Without { filter, .. } => Reached::of(filter),
            _ => Reached::None,
        }
    }

    fn is_done(&self, filter: &Filter) -> bool {
        let zip = |parts: &'_ [Reached], filters: &'_ [Filter]| -> Vec<bool> {
            parts.iter().zip(filters).map(|(part, filter)| part.is_done(filter)).collect()
        };
        match (self, filter) {
            (Reached::Parts(parts), Filter::Any(filters)) => zip(parts, filters).contains(&true),
            (Reached::Parts(parts), Filter::All(filters) | Filter::Sequence(filters)) => {
                parts.len() == filters.len() && !zip(parts, filters).contains(&false)
            }
            (_, Filter::Without { filter, .. }) => self.is_done(filter),
            (kept, _) => matches!(kept, Reached::Until(_)),
        }
    }

    fn without_expired(&self, filter: &Filter, now: u64) -> Reached {
        match (self, filter) {
            (Reached::Until(expires), _) if *expires < now => Reached::None,
            (_, Filter::Without { filter, .. }) => self.without_expired(filter, now),
            (Reached::Parts(parts), Filter::All(filters) | Filter::Any(filters) | Filter::Sequence(filters)) => {
                let mut parts: Vec<Reached> =
                    parts.iter().zip(filters).map(|(part, filter)| part.without_expired(filter, now)).collect();
                let undone = parts.iter().zip(filters).position(|(part, filter)| !part.is_done(filter));
                if let (Filter::Sequence(_), Some(first)) = (filter, undone) {
                    parts.truncate(first + 1);
                }
                Reached::Parts(parts)
            }
            (kept, _) => kept.clone(),
        }
    }

    fn with(&self, filter: &Filter, kind: u32, expires: u64) -> Reached {
        let has = |pattern: &Pattern| pattern.has(&head(kind, 0, Time::ZERO));
        match (self, filter) {
            (_, Filter::One(pattern)) if has(pattern) => Reached::Until(expires),
            (_, Filter::Without { .. } | Filter::Sequence(_)) if self.is_done(filter) => self.clone(),
            (_, Filter::Without { filter, not }) if has(not) => Reached::of(filter),
            (_, Filter::Without { filter, .. }) => self.with(filter, kind, expires),
            (Reached::Parts(parts), Filter::All(filters) | Filter::Any(filters)) => Reached::Parts(
                parts.iter().zip(filters).map(|(part, filter)| part.with(filter, kind, expires)).collect(),
            ),
            (Reached::Parts(parts), Filter::Sequence(filters)) => {
                let mut parts = parts.clone();
                if parts.last().is_none_or(|last| last.is_done(&filters[parts.len() - 1])) {
                    parts.push(Reached::of(&filters[parts.len()]));
                }
                let at = parts.len() - 1;
                parts[at] = parts[at].with(&filters[at], kind, expires);
                Reached::Parts(parts)
            }
            (kept, _) => kept.clone(),
        }
    }
}

proptest! {
    #[test]
    fn only_expired_events_are_withdrawn_from_a_group(
        filter in groups_of(timeless_leaf()),
        steps in prop::collection::vec((0u32..5, 0u64..6, 0u64..20), 0..60),
    ) {
        let mut at = 0;
        let events: Vec<Short> = steps.iter().map(|(kind, step, ttl)| { at += step; (*kind, at, *ttl) }).collect();
        let (mut kept, mut expected) = (Reached::of(&filter), Vec::new());
        for (kind, at, ttl) in &events {
            kept = kept.without_expired(&filter, *at).with(&filter, *kind, at + ttl);
            if kept.is_done(&filter) {
                expected.push(*at);
                kept = Reached::of(&filter);
            }
        }
        prop_assert_eq!(completions_of_short(&filter, &events), expected);
    }
}
