//! The time-difference table of a node r [HEDF II-B]. For each peer s it keeps an interval around the
//! offset O = clock_r - clock_s. D_r = D_s + O.
//!
//! **Exchange.** r sends at t1 of its clock, s receives at t2 and answers at t3 of its clock, r
//! receives at t4. Messages do not arrive before they are sent. So when s receives, O >= t1 - t2,
//! and when s answers, O <= t4 - t3. These ends are O' ± d/2, d the round-trip delay; Eq. 10
//! is misprinted. NTP's client computes -O (erratum on the sign).
//!
//! **Drift.** Each clock's rate is within ρ of true time. In a span x of clock r the offset changes
//! by at most 2 ρ x / (1 - ρ). Both ends age by that, counted from t1.
//!
//! **Filter.** The table keeps the last samples of each peer. Their aged intervals all hold the
//! offset, so their intersection does. The sample with the least width gives the middle, by which
//! deadlines of different peers are ordered.
//!
//! **Claims.** Programs may say how exact both clocks are ([`crate::source`]). The last such claim of
//! a peer is one more sample, as long as it agrees with the intersection. Exchanges prove; claims do
//! not: one that contradicts them does not count.
//!
//! **Steps.** Each clock has an epoch, which the node raises when its clock steps. Messages carry
//! it. A new epoch of either clock forgets the samples. So does a sample that contradicts them,
//! which shows a step that nobody reported.

use std::collections::VecDeque;

use takt_model::{Lateness, Span, Time};
use thiserror::Error;

const MILLION: u128 = 1_000_000;
/// Samples of a peer for which there is room from the start, at most.
const SAMPLES_RESERVED: usize = 64;

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeTableSpec {
    /// Number of peers.
    pub peers: usize,
    /// ρ, in parts per million.
    pub drift_ppm: u32,
    /// Samples kept for each peer.
    pub samples_max: usize,
}

impl TimeTableSpec {
    /// Samples kept by default, as NTP keeps.
    pub const SAMPLES_MAX: usize = 8;
}

/// Why a table cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TimeTableError {
    /// Clocks that may stand still.
    #[error("a drift of {0} ppm is out of range; clocks drift by less than 1000000 ppm")]
    Drift(u32),
    /// No sample.
    #[error("samples_max of the time table is zero; give at least 1")]
    Samples,
}

/// The times of a request and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Index of the peer.
    pub peer: usize,
    /// Epoch of the own clock at t1.
    pub own_epoch: u32,
    /// Epoch of the peer's clock, the same at t2 and t3.
    pub peer_epoch: u32,
    /// The request leaves, on the own clock.
    pub t1: Time,
    /// The peer receives it, on its clock.
    pub t2: Time,
    /// The answer leaves, on the peer's clock.
    pub t3: Time,
    /// The answer is here, on the own clock.
    pub t4: Time,
}

/// A claim of programs about two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Index of the peer.
    pub peer: usize,
    /// Epoch of the own clock at `from`.
    pub own_epoch: u32,
    /// Epoch of the peer's clock then.
    pub peer_epoch: u32,
    /// O is at least so much.
    pub low: i64,
    /// And at most.
    pub high: i64,
    /// When that held, on the own clock. Later the ends move apart by the drift.
    pub from: Time,
}

/// The last claim about a peer at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClaimedOffset {
    /// At least.
    pub low: i64,
    /// At most.
    pub high: i64,
    /// Whether exchanges allow it. Otherwise it does not count.
    pub agrees: bool,
}

/// An event of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeTableEvent {
    /// An exchange is complete.
    Exchange(Exchange),
    /// Programs say how exact the clocks are.
    Claim(Claim),
    /// The own clock has stepped: its epoch is one more from now on.
    Stepped,
}

/// The outcome of an event.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeTableDecision {
    /// The sample of this peer counts.
    Accepted(usize),
    /// A clock has stepped: the samples of this peer are forgotten. A new one counts alone.
    Restarted(usize),
    /// The sample of this peer does not count.
    Refused(usize, Refusal),
}

/// Why a sample does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such peer.
    Unknown,
    /// A clock has stepped since.
    Stale,
    /// Times that go back, or an answer before the question.
    Impossible,
}

/// An interval that holds O = clock_r - clock_s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetInterval {
    /// At least.
    pub low: i64,
    /// At most.
    pub high: i64,
    /// The best guess.
    pub middle: i64,
}

impl OffsetInterval {
    /// The earliest time of the own clock that `peer`, on the peer's clock, can mean. It is the safe
    /// one for a deadline.
    #[must_use]
    pub fn earliest(&self, peer: Time) -> Time {
        shift(peer, self.low)
    }

    /// The latest time of the own clock that `peer` can mean.
    #[must_use]
    pub fn latest(&self, peer: Time) -> Time {
        shift(peer, self.high)
    }

    /// The likely instant of the own clock: orders deadlines of different peers without a bias.
    #[must_use]
    pub fn likely(&self, peer: Time) -> Time {
        shift(peer, self.middle)
    }

    /// How far its ends are apart.
    #[must_use]
    pub fn width(&self) -> Span {
        Span::from_ns(self.high.abs_diff(self.low))
    }
}

fn shift(at: Time, by: i64) -> Time {
    Time::from_ns(at.as_ns().saturating_add_signed(by))
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// t1 - t2.
    low: i64,
    /// t4 - t3.
    high: i64,
    /// t1.
    from: Time,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    epoch: u32,
    samples: VecDeque<Sample>,
    claim: Option<Sample>,
}

/// The table.
#[derive(Clone, Debug)]
pub struct TimeTable {
    drift_ppm: u32,
    samples_max: usize,
    epoch: u32,
    peers: Vec<Peer>,
}

impl TimeTable {
    /// A table that knows no offset.
    ///
    /// # Errors
    /// If clocks may stand still, or no sample is kept.
    pub fn new(spec: TimeTableSpec) -> Result<Self, TimeTableError> {
        if u128::from(spec.drift_ppm) >= MILLION {
            return Err(TimeTableError::Drift(spec.drift_ppm));
        }
        if spec.samples_max == 0 {
            return Err(TimeTableError::Samples);
        }
        // Exchanges allocate nothing later.
        let samples = || VecDeque::with_capacity(spec.samples_max.min(SAMPLES_RESERVED));
        let peers = (0..spec.peers).map(|_| Peer { samples: samples(), ..Peer::default() }).collect();
        Ok(TimeTable { drift_ppm: spec.drift_ppm, samples_max: spec.samples_max, epoch: 0, peers })
    }

    /// Epoch of the own clock; requests carry it.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Takes an event. `now` is on the own clock. Nothing in the table happens without one.
    pub fn on_event(&mut self, now: Time, event: TimeTableEvent, decisions: &mut Vec<TimeTableDecision>) {
        match event {
            TimeTableEvent::Exchange(exchange) => decisions.push(self.exchange(now, &exchange)),
            TimeTableEvent::Claim(claim) => decisions.push(self.claim(now, &claim)),
            TimeTableEvent::Stepped => {
                self.epoch += 1;
                for (i, peer) in self.peers.iter_mut().enumerate() {
                    peer.claim = None;
                    if !peer.samples.is_empty() {
                        peer.samples.clear();
                        decisions.push(TimeTableDecision::Restarted(i));
                    }
                }
            }
        }
    }

    /// The offset to a peer at `now`, if the peer's clock is in `peer_epoch`. `None`: unknown.
    #[must_use]
    pub fn offset(&self, now: Time, peer: usize, peer_epoch: u32) -> Option<OffsetInterval> {
        let peer = self.peers.get(peer).filter(|peer| peer.epoch == peer_epoch)?;
        let proven = self.interval(now, peer)?;
        Some(self.claimed_of(now, peer, proven).filter(|claimed| claimed.agrees).map_or(proven, |claimed| {
            let (low, high) = (proven.low.max(claimed.low), proven.high.min(claimed.high));
            // The narrower of the two has the likely difference.
            let is_narrower = claimed.high.abs_diff(claimed.low) < proven.width().as_ns();
            let middle = if is_narrower { claimed.low.midpoint(claimed.high) } else { proven.middle };
            OffsetInterval { low, high, middle: middle.max(low).min(high) }
        }))
    }

    /// The last claim about a peer at `now`. `None`: there is none, or no exchange to hold it against.
    #[must_use]
    pub fn claimed(&self, now: Time, peer: usize, peer_epoch: u32) -> Option<ClaimedOffset> {
        let peer = self.peers.get(peer).filter(|peer| peer.epoch == peer_epoch)?;
        self.claimed_of(now, peer, self.interval(now, peer)?)
    }

    fn claimed_of(&self, now: Time, peer: &Peer, proven: OffsetInterval) -> Option<ClaimedOffset> {
        let (low, high) = peer.claim.as_ref()?.aged(now, self.drift_ppm)?;
        Some(ClaimedOffset { low, high, agrees: low <= proven.high && high >= proven.low })
    }

    fn claim(&mut self, now: Time, claim: &Claim) -> TimeTableDecision {
        let at = claim.peer;
        let Some(peer) = self.peers.get_mut(at) else { return TimeTableDecision::Refused(at, Refusal::Unknown) };
        if claim.own_epoch != self.epoch || claim.peer_epoch != peer.epoch {
            return TimeTableDecision::Refused(at, Refusal::Stale);
        }
        if claim.low > claim.high || claim.from > now {
            return TimeTableDecision::Refused(at, Refusal::Impossible);
        }
        peer.claim = Some(Sample { low: claim.low, high: claim.high, from: claim.from });
        TimeTableDecision::Accepted(at)
    }

    fn exchange(&mut self, now: Time, exchange: &Exchange) -> TimeTableDecision {
        let (drift_ppm, samples_max) = (self.drift_ppm, self.samples_max);
        let at = exchange.peer;
        let Some(peer) = self.peers.get(at) else { return TimeTableDecision::Refused(at, Refusal::Unknown) };
        if exchange.own_epoch != self.epoch || exchange.peer_epoch < peer.epoch {
            return TimeTableDecision::Refused(at, Refusal::Stale);
        }
        let Some(sample) = Sample::of(exchange, now) else {
            return TimeTableDecision::Refused(at, Refusal::Impossible);
        };
        let Some((low, high)) = sample.aged(now, drift_ppm).filter(|(low, high)| low <= high) else {
            return TimeTableDecision::Refused(at, Refusal::Impossible);
        };
        let contradicted = self.interval(now, peer).is_some_and(|known| high < known.low || low > known.high);
        let has_stepped = exchange.peer_epoch > peer.epoch;
        let restart = contradicted || (has_stepped && !peer.samples.is_empty());
        let Some(peer) = self.peers.get_mut(at) else { return TimeTableDecision::Refused(at, Refusal::Unknown) };
        peer.epoch = exchange.peer_epoch;
        if restart {
            peer.samples.clear();
        }
        if restart || has_stepped {
            peer.claim = None;
        }
        if peer.samples.len() >= samples_max {
            peer.samples.pop_front();
        }
        peer.samples.push_back(sample);
        if restart { TimeTableDecision::Restarted(at) } else { TimeTableDecision::Accepted(at) }
    }

    fn interval(&self, now: Time, peer: &Peer) -> Option<OffsetInterval> {
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        let mut best: Option<(i64, i64)> = None;
        for sample in &peer.samples {
            let (one, other) = sample.aged(now, self.drift_ppm)?;
            (low, high) = (low.max(one), high.min(other));
            if best.is_none_or(|(from, to)| other.abs_diff(one) < to.abs_diff(from)) {
                best = Some((one, other));
            }
        }
        let middle = best.map(|(from, to)| from.midpoint(to))?;
        // Samples do not contradict each other: the order is right.
        Some(OffsetInterval { low, high, middle: middle.max(low).min(high) })
    }
}

impl Sample {
    fn of(exchange: &Exchange, now: Time) -> Option<Self> {
        let Exchange { t1, t2, t3, t4, .. } = *exchange;
        if t1 > t4 || t2 > t3 || t4 > now {
            return None;
        }
        Some(Sample { low: difference(t1, t2)?, high: difference(t4, t3)?, from: t1 })
    }

    /// Its interval at `now`; `None` beyond 64 bits.
    fn aged(&self, now: Time, drift_ppm: u32) -> Option<(i64, i64)> {
        let drift = u128::from(drift_ppm);
        let span = u128::from(now.saturating_since(self.from).as_ns());
        let age = (span * 2 * drift).div_ceil(MILLION.checked_sub(drift).filter(|slowest| *slowest > 0)?);
        let age = i64::try_from(age).ok()?;
        Some((self.low.checked_sub(age)?, self.high.checked_add(age)?))
    }
}

/// `one` - `other`; `None` beyond 64 bits.
fn difference(one: Time, other: Time) -> Option<i64> {
    let lateness = one.lateness_to(other);
    (lateness != Lateness::from_ns(i64::MAX) && lateness != Lateness::from_ns(i64::MIN)).then_some(lateness.as_ns())
}

#[cfg(test)]
#[path = "time_table_tests.rs"]
mod tests;
