//! The clock differences that a node knows. It converts times of other nodes by them.

use takt_model::{Span, Time};
use takt_net::{Exchange, OffsetInterval, TimeTable, TimeTableDecision, TimeTableError, TimeTableEvent, TimeTableSpec};

/// The times of an exchange so far, t1 to t4, each on the clock of its node.
pub(crate) type Stamps = [Time; 4];

/// How a node reads times of other nodes.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// It knows the clocks, but for an error of at most this, which is drawn.
    Drawn(Span),
    /// As times of its own: it believes that all clocks show the same.
    Trusting,
    /// By the table that its exchanges fill.
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
    pub(crate) fn exchange(&mut self, node: u32, [t1, t2, t3, t4]: Stamps, now: Time) {
        let Ok(peer) = self.peers.binary_search(&node) else { return };
        // No clock steps in a simulation, so no epoch changes.
        let exchange = Exchange { peer, own_epoch: self.table.epoch(), peer_epoch: 0, t1, t2, t3, t4 };
        self.table.on_event(now, TimeTableEvent::Exchange(exchange), &mut self.decisions);
        self.decisions.clear();
    }

    /// The interval of own clock - clock of this node; `None` before its first answer.
    pub(crate) fn offset(&self, node: u32, now: Time) -> Option<OffsetInterval> {
        self.table.offset(now, self.peers.binary_search(&node).ok()?, 0)
    }
}
