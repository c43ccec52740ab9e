//! The clock differences that a node knows, and the steps of its own clock. They convert times of other nodes.

use takt_model::{ClockStep, Span, Time};
use takt_net::{Exchange, OffsetInterval, TimeTable, TimeTableDecision, TimeTableError, TimeTableEvent, TimeTableSpec};

/// A time in a message: what the clock of its node showed, steps included, and how often that clock had stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    at: Time,
    epoch: u32,
}

/// The times of an exchange so far, t1 to t4, each on the clock of its node.
pub(crate) type Stamps = [Stamp; 4];

/// The steps of a clock until some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stepped {
    /// How far it is ahead of the same clock without steps.
    pub(crate) offset_ns: i64,
    /// How often it has stepped.
    pub(crate) epoch: u32,
}

impl Stepped {
    /// The reading of the clock when it would show `now` without steps.
    pub(crate) fn stamp(self, now: Time) -> Stamp {
        Stamp { at: Time::from_ns(now.as_ns().saturating_add_signed(self.offset_ns)), epoch: self.epoch }
    }
}

/// The steps of a node's clock, by time of that clock without steps. A node runs by the latter.
#[derive(Clone, Debug)]
pub(crate) struct Steps(Vec<(Time, Stepped)>);

impl Steps {
    /// From the steps of a clock, in ascending order of time.
    pub(crate) fn new(steps: &[ClockStep]) -> Self {
        let mut so_far = Stepped::default();
        let mut after = Vec::with_capacity(steps.len());
        for step in steps {
            let offset_ns = so_far.offset_ns.saturating_add(step.by.as_ns());
            so_far = Stepped { offset_ns, epoch: so_far.epoch + 1 };
            after.push((step.at, so_far));
        }
        Steps(after)
    }

    /// The sum of the steps up to `now`, a step at `now` included.
    pub(crate) fn until(&self, now: Time) -> Stepped {
        let passed = self.0.partition_point(|(at, _)| *at <= now);
        passed.checked_sub(1).map_or_else(Stepped::default, |last| self.0[last].1)
    }
}

/// How a node reads times of other nodes.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// It knows the differences of the clocks up to an error of at most this. The error is drawn.
    Drawn(Span),
    /// It takes them for times of its own clock.
    Trusting,
    /// It converts them by a table that its exchanges fill.
    Measured(Measured),
}

/// The time-difference table of a node.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    table: TimeTable,
    /// The nodes that it asks, in ascending order: the peers of the table.
    peers: Vec<u32>,
    decisions: Vec<TimeTableDecision>,
}

impl Measured {
    /// A table that knows nothing yet of these nodes, in ascending order.
    pub(crate) fn new(peers: Vec<u32>, drift_ppm: u32) -> Result<Self, TimeTableError> {
        let samples_max = TimeTableSpec::SAMPLES_MAX;
        let table = TimeTable::new(TimeTableSpec { peers: peers.len(), drift_ppm, samples_max })?;
        Ok(Measured { table, peers, decisions: Vec::new() })
    }

    /// A node has answered. `now` is on the own clock.
    pub(crate) fn exchange(&mut self, node: u32, [t1, t2, t3, t4]: Stamps, now: Stamp) {
        let Ok(peer) = self.peers.binary_search(&node) else { return };
        // The table learns of own steps when it is next needed. Until then it gives no interval.
        while self.table.epoch() < now.epoch {
            self.table.on_event(now.at, TimeTableEvent::Stepped, &mut self.decisions);
        }
        // An exchange needs one epoch of the peer. The table refuses one that began before an own step.
        if t2.epoch == t3.epoch {
            let (own_epoch, peer_epoch) = (t1.epoch, t2.epoch);
            let [t1, t2, t3, t4] = [t1, t2, t3, t4].map(|stamp| stamp.at);
            let exchange = Exchange { peer, own_epoch, peer_epoch, t1, t2, t3, t4 };
            self.table.on_event(now.at, TimeTableEvent::Exchange(exchange), &mut self.decisions);
        }
        self.decisions.clear();
    }

    /// The interval of own clock - clock of this node, when the latter had stepped `epoch` times. `None` before the
    /// first answer, and from a step of either clock to the next one.
    pub(crate) fn offset(&self, node: u32, epoch: u32, now: Stamp) -> Option<OffsetInterval> {
        if self.table.epoch() != now.epoch {
            return None;
        }
        self.table.offset(now.at, self.peers.binary_search(&node).ok()?, epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::Lateness;

    #[test]
    fn steps_add_up_from_their_instants_on() {
        let step = |at, by| ClockStep { at: Time::from_ns(at), by: Lateness::from_ns(by) };
        let steps = Steps::new(&[step(10, -4), step(20, 7)]);
        let stamps = [0, 9, 10, 19, 20, 30].map(|now| steps.until(Time::from_ns(now)).stamp(Time::from_ns(now)));
        let shown = stamps.map(|stamp| (stamp.at.as_ns(), stamp.epoch));
        assert_eq!(shown, [(0, 0), (9, 0), (6, 1), (15, 1), (23, 2), (33, 2)]);
    }

    /// Exchanges before a step of the peer, across it, across an own step, and after both.
    #[test]
    fn an_exchange_across_a_step_tells_nothing() {
        let stamp = |at, epoch| Stamp { at: Time::from_ns(at), epoch };
        let mut table = Measured::new(vec![3], 0).expect("a sound table");
        table.exchange(3, [stamp(10, 0), stamp(110, 0), stamp(110, 0), stamp(30, 0)], stamp(30, 0));
        let known = |table: &Measured, epoch, now| table.offset(3, epoch, now).map(|offset| (offset.low, offset.high));
        assert_eq!(known(&table, 0, stamp(30, 0)), Some((-100, -80)));
        assert_eq!((known(&table, 1, stamp(30, 0)), known(&table, 0, stamp(90, 1))), (None, None));
        table.exchange(3, [stamp(40, 0), stamp(140, 0), stamp(540, 1), stamp(60, 0)], stamp(60, 0));
        assert_eq!(known(&table, 0, stamp(60, 0)), Some((-100, -80)));
        table.exchange(3, [stamp(70, 0), stamp(570, 1), stamp(570, 1), stamp(390, 1)], stamp(390, 1));
        assert_eq!((known(&table, 0, stamp(390, 1)), known(&table, 1, stamp(390, 1))), (None, None));
        table.exchange(3, [stamp(400, 1), stamp(600, 1), stamp(600, 1), stamp(420, 1)], stamp(420, 1));
        assert_eq!((known(&table, 0, stamp(420, 1)), known(&table, 1, stamp(420, 1))), (None, Some((-200, -180))));
        assert_eq!(known(&table, 1, stamp(1_420, 2)), None);
    }
}
