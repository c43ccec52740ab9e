//! The clock of a node: local time = (true time - its start) x (1 + rate), in whole nanoseconds.
//! Before its start it shows zero.

use takt_log::{Event, Sink};
use takt_model::{Clock, Draw, Span, Time, draw::Purpose};

const BILLION: i64 = 1_000_000_000;

/// A clock that goes from its start on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeClock {
    /// Nanoseconds that it shows in a true second.
    per_second: u64,
    /// The true instant from which on it goes.
    start: Time,
}

impl NodeClock {
    /// A clock with a rate that is drawn from within the drift, and a start from within the offset.
    pub(crate) fn draw(spec: Clock, draw: Draw) -> Self {
        let most = i64::from(spec.drift_ppm) * 1_000;
        let width = 2 * most as u128 + 1;
        let above_least = ((u128::from(draw.bits(Purpose::Rate, 0)) * width) >> 64) as i64;
        let start = Time::ZERO + draw.uniform(Purpose::Offset, 0, Span::ZERO, spec.offset);
        NodeClock { per_second: (BILLION - most + above_least) as u64, start }
    }

    fn is_perfect(self) -> bool {
        self.per_second == BILLION as u64 && self.start == Time::ZERO
    }

    /// Whether it goes at a true instant.
    pub(crate) fn has_started(self, at: Time) -> bool {
        self.start <= at
    }

    /// Its reading at a true instant.
    pub(crate) fn local(self, at: Time) -> Time {
        if self.is_perfect() || at == Time::MAX {
            return at;
        }
        Time::ZERO + scale(at.saturating_since(self.start), self.per_second, BILLION as u64, 0)
    }

    /// The first true instant from its start on with a reading of at least `local`.
    pub(crate) fn true_of(self, local: Time) -> Time {
        if self.is_perfect() || local == Time::MAX {
            return local;
        }
        let since_start = local.saturating_since(Time::ZERO);
        self.start.saturating_add(scale(since_start, BILLION as u64, self.per_second, self.per_second - 1))
    }
}

fn scale(span: Span, by: u64, over: u64, round: u64) -> Span {
    let scaled = (u128::from(span.as_ns()) * u128::from(by) + u128::from(round)) / u128::from(over);
    Span::from_ns(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Converts the events of a node from local to true time. `only` names the single node to report.
pub(crate) struct TrueTime<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) clock: NodeClock,
    /// The true instant at which the events happen. A coarse clock may have shown theirs before.
    pub(crate) not_before: Time,
    pub(crate) only: Option<u32>,
}

impl<S: Sink> Sink for TrueTime<'_, S> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if self.only.is_some_and(|only| only != stream) {
            return;
        }
        let clock = self.clock;
        if clock.is_perfect() {
            return self.sink.event(stream, now, event);
        }
        let event = match *event {
            // The origin of a parent is a true time already.
            Event::Release { job, arrival, parent } => Event::Release { job, arrival: clock.true_of(arrival), parent },
            Event::Charge { server, since, amount, idle } => {
                Event::Charge { server, since: clock.true_of(since), amount, idle }
            }
            other => other,
        };
        self.sink.event(stream, clock.true_of(now).max(self.not_before), &event);
    }

    fn wants_misses(&self) -> bool {
        self.sink.wants_misses()
    }
}

/// Gives the events of a node a true time. The clock of the node may be too coarse to tell that a
/// message arrives after it was sent. `only` names the single node to report.
pub(crate) struct At<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) at: Time,
    pub(crate) only: Option<u32>,
}

impl<S: Sink> Sink for At<'_, S> {
    fn event(&mut self, stream: u32, _now: Time, event: &Event) {
        if self.only.is_none_or(|only| only == stream) {
            self.sink.event(stream, self.at, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_stays_within_its_drift_and_turns_back_exactly() {
        for (seed, offset) in (0..100).map(|seed| (seed, Span::from_us(seed % 2))) {
            let clock = NodeClock::draw(Clock { drift_ppm: 100, offset, ..Clock::default() }, Draw::new(seed, "n"));
            assert!(clock.start <= Time::ZERO + offset && clock.local(clock.start) == Time::ZERO);
            let second = clock.local(clock.start + Span::from_s(1)).as_ns();
            assert!((999_900_000..=1_000_100_000).contains(&second), "{second}");
            for local in [0, 1, 999, 1_000_003, 77_777_777_777] {
                let at = clock.true_of(Time::from_ns(local));
                assert!(
                    clock.local(at).as_ns() >= local
                        && (at == clock.start || { clock.local(Time::from_ns(at.as_ns() - 1)).as_ns() < local })
                );
            }
        }
    }
}
