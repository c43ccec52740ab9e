//! The time-difference table, live: exchanges over UDP between nodes, and for each peer an interval
//! that holds the difference of the clocks ([`takt_net::TimeTable`], [HEDF II-B]).
//!
//! The clock is CLOCK_MONOTONIC, which never steps while a machine is up. A suspended machine's
//! clock stands still: the table sees that as a step, and starts again.
//!
//! - A request is stamped before its send, and an arrival by the kernel, or after the receive where
//!   there is no stamp. So the interval holds the true difference, however long threads wait.
//! - A request carries a random number. An answer without it counts for nothing. Whoever can read
//!   the network can forge answers: they are not authenticated.

use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::SocketAddr;

use takt_linux::arrival::ArrivalClock;
use takt_linux::clock::{monotonic_id, monotonic_ns};
use takt_linux::datagram::{BindError, Datagrams, Destination, Sent};
use takt_model::{Span, Time};
use takt_net::{
    Exchange, OffsetInterval, SYNC_LENGTH, SyncMessage, SyncRequest, TimeTable, TimeTableDecision, TimeTableError,
    TimeTableEvent, TimeTableSpec,
};
use thiserror::Error;

/// A node's part in the exchanges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeSyncSpec {
    /// The local address, for answers and for requests.
    pub listen: SocketAddr,
    /// The peers that it asks.
    pub peers: Vec<SocketAddr>,
    /// The time between two requests to one peer, above zero.
    pub period: Span,
    /// Every clock's rate is within so many parts per million of true time.
    pub drift_ppm: u32,
    /// SO_PRIORITY of its messages.
    pub priority: u32,
}

/// Why there are no exchanges.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TimeSyncError {
    /// The socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The kernel stamps no arrivals.
    #[error("the kernel does not stamp arriving datagrams (SO_TIMESTAMPNS): {0}")]
    Stamp(io::Error),
    /// The table.
    #[error(transparent)]
    Table(#[from] TimeTableError),
    /// IPv4 and IPv6.
    #[error("peer {peer} cannot be asked from {listen}: one is IPv4, the other IPv6; listen at an address of its kind")]
    Family {
        /// The peer.
        peer: SocketAddr,
        /// The address of the socket.
        listen: SocketAddr,
    },
    /// No time between requests.
    #[error("the period of the exchanges is zero; give at least 1ms")]
    Period,
}

/// What a node knows of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Its address.
    pub address: SocketAddr,
    /// The interval of own clock - peer's clock now; `None`: not known, so no one-way figure is.
    pub offset: Option<OffsetInterval>,
    /// The shortest round trip.
    pub round_trip: Option<Span>,
    /// Requests sent.
    pub asked: u64,
    /// Answers that counted.
    pub answered: u64,
    /// Answers that did not count: after the next request, with a false number, or with impossible
    /// times.
    pub refused: u64,
    /// How often its clock, or the own one, had stepped.
    pub restarts: u64,
}

struct Peer {
    to: Destination,
    secret: u64,
    due: Time,
    /// Identity and number of its present clock.
    clock: (u64, u32),
    status: PeerStatus,
}

/// Which clock, given CLOCK_MONOTONIC.
type ClockOf = Box<dyn Fn(Time) -> Time + Send>;

/// The exchanges of a node.
pub struct TimeSync {
    socket: Datagrams,
    table: TimeTable,
    peers: Vec<Peer>,
    period: Span,
    clock_id: u64,
    clock: ClockOf,
    /// Requests of others that were answered.
    served: u64,
    /// Datagrams that are no such message, or come from nobody who was asked.
    foreign: u64,
}

impl TimeSync {
    /// Opens the socket.
    ///
    /// # Errors
    /// The socket, or a value out of range.
    pub fn bind(spec: &TimeSyncSpec) -> Result<TimeSync, TimeSyncError> {
        Self::with_clock(spec, Box::new(|time| time))
    }

    /// The same with a clock that differs from CLOCK_MONOTONIC, for tests: a function of it.
    ///
    /// # Errors
    /// As [`TimeSync::bind`].
    pub fn with_clock(spec: &TimeSyncSpec, clock: ClockOf) -> Result<TimeSync, TimeSyncError> {
        if spec.period.is_zero() {
            return Err(TimeSyncError::Period);
        }
        if let Some(peer) = spec.peers.iter().find(|peer| peer.is_ipv4() != spec.listen.is_ipv4()) {
            return Err(TimeSyncError::Family { peer: *peer, listen: spec.listen });
        }
        let table = TimeTableSpec {
            peers: spec.peers.len(),
            drift_ppm: spec.drift_ppm,
            samples_max: TimeTableSpec::SAMPLES_MAX,
        };
        let socket = Datagrams::bind(spec.listen, spec.priority, 1 << 18, Span::from_ms(1))?;
        socket.stamp().map_err(TimeSyncError::Stamp)?;
        let now = Time::from_ns(monotonic_ns());
        let peers = spec.peers.iter().zip(0_u64..).map(|(address, place)| {
            let status = PeerStatus {
                address: *address,
                offset: None,
                round_trip: None,
                asked: 0,
                answered: 0,
                refused: 0,
                restarts: 0,
            };
            // Requests to the peers are spread over the period.
            let shift = Span::from_ns(spec.period.as_ns() / (spec.peers.len() as u64).max(1) * place);
            let to = Destination::from(*address);
            Peer { to, secret: 0, due: now.saturating_add(shift), clock: (0, 0), status }
        });
        let peers = peers.collect();
        let clock_id = monotonic_id().unwrap_or_else(random);
        let (table, period) = (TimeTable::new(table)?, spec.period);
        Ok(TimeSync { socket, table, peers, period, clock_id, clock, served: 0, foreign: 0 })
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.address()
    }

    /// Requests of others that were answered so far.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Datagrams so far that are no such message, or come from nobody who was asked.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// What is known of the peers now, in their order.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        let now = (self.clock)(Time::from_ns(monotonic_ns()));
        let status = |(place, peer): (usize, &Peer)| PeerStatus {
            offset: self.table.offset(now, place, peer.clock.1),
            ..peer.status
        };
        self.peers.iter().enumerate().map(status).collect()
    }

    /// Asks and answers until `end` of CLOCK_MONOTONIC.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let now = Time::from_ns(monotonic_ns());
            if now >= end {
                return;
            }
            self.ask(now);
            let next = self.peers.iter().map(|peer| peer.due).min().unwrap_or(Time::MAX).min(end);
            let arrivals = ArrivalClock::start();
            self.socket.await_datagram(next.saturating_since(Time::from_ns(monotonic_ns())));
            let mut bytes = [0; SYNC_LENGTH + 1];
            // A flood must not keep requests from leaving.
            for _ in 0..64 {
                let Some((length, from, stamp)) = self.socket.receive_stamped(&mut bytes) else { break };
                // The later time is the safe one: an interval of an exchange only grows by it.
                let at = (self.clock)(arrivals.arrival(stamp).to);
                match bytes.get(..length).and_then(SyncMessage::read) {
                    Some(SyncMessage::Request(to)) => self.answer(to, from, at),
                    Some(SyncMessage::Answer { to, clock, received, sent }) => {
                        self.take(from, to, clock, [received, sent, at]);
                    }
                    None => self.foreign += 1,
                }
            }
        }
    }

    fn ask(&mut self, now: Time) {
        for peer in self.peers.iter_mut().filter(|peer| peer.due <= now) {
            peer.secret = random();
            // A late thread skips requests.
            peer.due = peer.due.saturating_add(self.period).max(now);
            let sent = (self.clock)(Time::from_ns(monotonic_ns()));
            let request = SyncMessage::Request(SyncRequest { secret: peer.secret, sent });
            if self.socket.send([&request.write(), &[]], &peer.to, Span::ZERO) == Sent::Yes {
                peer.status.asked += 1;
            }
        }
    }

    fn answer(&mut self, to: SyncRequest, from: SocketAddr, received: Time) {
        let sent = (self.clock)(Time::from_ns(monotonic_ns()));
        let answer = SyncMessage::Answer { to, clock: self.clock_id, received, sent };
        if self.socket.send([&answer.write(), &[]], &from.into(), Span::ZERO) == Sent::Yes {
            self.served += 1;
        }
    }

    fn take(&mut self, from: SocketAddr, to: SyncRequest, clock: u64, [received, sent, at]: [Time; 3]) {
        let Some(place) = self.peers.iter().position(|peer| peer.status.address == from) else {
            self.foreign += 1;
            return;
        };
        let Some(peer) = self.peers.get_mut(place) else { return };
        if to.secret != peer.secret || peer.secret == 0 {
            peer.status.refused += 1;
            return;
        }
        // Each request has one answer.
        peer.secret = 0;
        if peer.clock.0 != clock {
            peer.clock = (clock, peer.clock.1 + 1);
        }
        let exchange = Exchange {
            peer: place,
            own_epoch: self.table.epoch(),
            peer_epoch: peer.clock.1,
            t1: to.sent,
            t2: received,
            t3: sent,
            t4: at,
        };
        let now = (self.clock)(Time::from_ns(monotonic_ns()));
        let mut decisions = Vec::new();
        self.table.on_event(now, TimeTableEvent::Exchange(exchange), &mut decisions);
        for decision in decisions {
            match decision {
                TimeTableDecision::Refused(..) => peer.status.refused += 1,
                decision => {
                    peer.status.answered += 1;
                    peer.status.restarts += u64::from(matches!(decision, TimeTableDecision::Restarted(_)));
                    let trip = at.saturating_since(to.sent).saturating_sub(sent.saturating_since(received));
                    let shortest = peer.status.round_trip.map_or(trip, |known| known.min(trip));
                    peer.status.round_trip = Some(shortest);
                }
            }
        }
    }
}

/// A random number above zero.
pub(crate) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish().max(1)
}
