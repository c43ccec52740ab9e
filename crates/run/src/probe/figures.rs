//! Distributions and misses of a run's messages.

use takt_log::stats::Histogram;

use super::{Message, Verdict};

/// The percentiles that are told: their names, and in parts of a hundred thousand.
pub const PERCENTILES: [(&str, u64); 6] =
    [("50", 50_000), ("90", 90_000), ("99", 99_000), ("99.9", 99_900), ("99.99", 99_990), ("99.999", 99_999)];

/// Times of messages in nanoseconds, and counts of misses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// From the real send to the reply.
    pub round_trip: Histogram,
    /// From the intended send to the reply.
    pub round_trip_intended: Histogram,
    /// The one-way delays at least.
    pub one_way_min: Histogram,
    /// At most.
    pub one_way_max: Histogram,
    /// From the intended send, at most.
    pub one_way_max_intended: Histogram,
    /// From the kernel's stamp of a reply to this program.
    pub wake_up: Histogram,
    /// From the intended send to the real one.
    pub held_up: Histogram,
    /// Replies whose one-way delay is unknown.
    pub one_way_unknown: u64,
    /// Messages with deadlines.
    pub deadlines: u64,
    /// Those whose reply did not come by the deadline.
    pub missed_round_trip: u64,
    /// Messages that arrived after their deadline or never, at least.
    pub missed_one_way_min: u64,
    /// The same at most: it includes the messages whose arrival time is unknown.
    pub missed_one_way_max: u64,
}

impl Figures {
    /// Of these messages. `lost` of them surely did not arrive.
    #[must_use]
    pub fn of<'a>(messages: impl IntoIterator<Item = &'a Message>, lost: u64) -> Figures {
        let mut figures = Figures::default();
        messages.into_iter().for_each(|message| figures.add(message));
        // A lost message counts as unknown above.
        let unknown = figures.missed_one_way_max - figures.missed_one_way_min;
        figures.missed_one_way_min += lost.min(unknown);
        figures
    }

    fn add(&mut self, message: &Message) {
        let since = |start, end: takt_model::Time| end.saturating_since(start).as_ns();
        if let Some(sent) = message.sent {
            self.held_up.record(since(message.intended, sent));
        }
        if let (Some(reply), Some(trip)) = (message.reply, message.round_trip()) {
            self.round_trip.record(trip.as_ns());
            self.round_trip_intended.record(since(message.intended, reply.received));
            if let Some(stamped) = reply.stamped {
                self.wake_up.record(since(stamped, reply.received));
            }
            match (message.one_way(), message.one_way_from(message.intended)) {
                (Some((low, high)), Some((_, intended))) => {
                    self.one_way_min.record(low.as_ns());
                    self.one_way_max.record(high.as_ns());
                    self.one_way_max_intended.record(intended.as_ns());
                }
                _ => self.one_way_unknown += 1,
            }
        }
        self.missed_round_trip += u64::from(message.missed_round_trip() == Some(true));
        if let Some(verdict) = message.verdict() {
            self.deadlines += 1;
            self.missed_one_way_min += u64::from(verdict == Verdict::Missed);
            self.missed_one_way_max += u64::from(verdict != Verdict::InTime);
        }
    }
}

/// The values of [`PERCENTILES`] by nearest rank, rounded up to three digits; `None` without values.
#[must_use]
pub fn percentiles(histogram: &Histogram) -> Option<[u64; PERCENTILES.len()]> {
    let mut values = [0; PERCENTILES.len()];
    for (value, (_, part)) in values.iter_mut().zip(PERCENTILES) {
        let rank = (u128::from(part) * u128::from(histogram.count())).div_ceil(100_000);
        *value = histogram.at_rank(u64::try_from(rank).ok()?)?;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::{Span, Time};

    use super::super::Reply;
    use super::*;

    fn message(intended: u64, sent: Option<u64>, reply: Option<(u64, Option<(u64, u64)>)>, deadline: u64) -> Message {
        let reply = reply.map(|(received, arrived)| Reply {
            received: Time::from_ns(received),
            stamped: None,
            arrived: arrived.map(|(from, to)| (Time::from_ns(from), Time::from_ns(to))),
        });
        let (intended, sent) = (Time::from_ns(intended), sent.map(Time::from_ns));
        Message { number: 0, server: 0, size: 64, intended, sent, deadline: Some(Span::from_ns(deadline)), reply }
    }

    #[test]
    fn misses_count_from_the_intended_send() {
        // Intended at 100 and sent at 150; arrived from 180 to 190, back at 220.
        let at = |deadline| message(100, Some(150), Some((220, Some((180, 190)))), deadline);
        let told =
            [79, 80, 89, 90, 119, 120].map(|deadline| (at(deadline).verdict(), at(deadline).missed_round_trip()));
        let (missed, unknown, in_time) = (Some(Verdict::Missed), Some(Verdict::Unknown), Some(Verdict::InTime));
        let round_trip = [true, true, true, true, true, false].map(Some);
        assert_eq!(told.map(|told| told.0), [missed, unknown, unknown, in_time, in_time, in_time]);
        assert_eq!(told.map(|told| told.1), round_trip);
        assert_eq!(at(1).one_way(), Some((Span::from_ns(30), Span::from_ns(40))));
        assert_eq!(message(100, None, None, 5).verdict(), missed);
        assert_eq!(message(100, Some(100), None, 5).verdict(), unknown);
        assert_eq!(message(100, Some(100), Some((200, None)), 500).verdict(), unknown);
    }

    #[test]
    fn lost_messages_are_missed_and_unknown_ones_may_be() {
        let messages = [
            message(0, Some(0), Some((20, Some((5, 6)))), 10),
            message(0, Some(0), Some((40, Some((30, 31)))), 10),
            message(0, Some(0), None, 10),
            message(0, Some(0), None, 10),
            message(0, None, None, 10),
        ];
        let figures = Figures::of(&messages, 1);
        assert_eq!((figures.missed_one_way_min, figures.missed_one_way_max), (3, 4));
        assert_eq!((figures.missed_round_trip, figures.deadlines, figures.one_way_unknown), (5, 5, 0));
        assert_eq!((figures.round_trip.count(), figures.held_up.count()), (2, 4));
        assert_eq!(Figures::of(&messages, 9).missed_one_way_min, 4);
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_values(values in prop::collection::vec(0_u64..10_000_000, 1..400)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            let mut sorted = values;
            sorted.sort_unstable();
            for (found, (name, part)) in percentiles(&histogram).unwrap().into_iter().zip(PERCENTILES) {
                // The least value that so many parts of all do not exceed.
                let exact = *sorted.iter().find(|value| {
                    let below = sorted.iter().filter(|other| other <= value).count() as u64;
                    below * 100_000 >= part * sorted.len() as u64
                }).unwrap();
                prop_assert!(exact <= found && found <= exact + exact / 1000, "{name}: {exact} {found}");
            }
        }
    }
}
