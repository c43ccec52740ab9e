//! The time-difference table, live: exchanges over UDP between nodes, and for each peer an interval
//! that holds the difference of the clocks ([`takt_net::TimeTable`], [HEDF II-B]).
//!
//! The clock is CLOCK_MONOTONIC, which never steps while a machine is up. A suspended machine's
//! clock stands still: the table sees that as a step, and starts again.
//!
//! - The kernel stamps a request when it goes to the device, and each arrival. Without such a stamp
//!   the time before the send counts, or that after the receive. So the interval holds the true
//!   difference, however long threads wait.
//! - An answer carries the accuracy of the peer's CLOCK_REALTIME, by a program there. Together with
//!   the accuracy here it is a claim about the difference.
//! - A request carries a random number. An answer without it counts for nothing.
//! - With a key ([`TimeSync::sealed`]) all messages are sealed as those of flows are. Stamps of the kernel stand
//!   outside of the sealed bytes: each side takes its own. Without a key, whoever can read the network can
//!   forge answers.

use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::SocketAddr;

use takt_linux::arrival::ArrivalClock;
use takt_linux::clock::{monotonic_id, monotonic_ns, realtime_ns};
use takt_linux::datagram::{BindError, Datagrams, Destination, Sent};
use takt_model::{Span, Time};
use takt_net::source::{ClockReport, SourceKind};
use takt_net::{
    Claim, ClaimedOffset, Exchange, OffsetInterval, SYNC_SEALED, SyncClaim, SyncMessage, SyncRequest, TimeTable,
    TimeTableDecision, TimeTableError, TimeTableEvent, TimeTableSpec,
};
use thiserror::Error;

use crate::clock_source::{ClockSources, SourcePaths};

mod sealed;

use sealed::SyncSeal;
pub use sealed::{SyncDrops, SyncSealSpec};

/// Stamps of leaving datagrams that are read at a time.
const STAMPS: usize = 64;

/// Decisions of one event at most.
const DECISIONS: usize = 4;

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
    /// Where programs that synchronise the clock are asked; `None`: none is.
    pub sources: Option<SourcePaths>,
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
    /// The kernel gives no random numbers, so messages would share nonces.
    #[error("the kernel gives no random numbers, which sealed messages need; wait until the machine has started")]
    Random,
    /// The peers and their numbers.
    #[error("sealed exchanges with {peers} peers need the numbers of as many nodes, not of {numbers}")]
    Numbers {
        /// The peers.
        peers: usize,
        /// The numbers.
        numbers: usize,
    },
}

impl TimeSyncError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        matches!(self, TimeSyncError::Bind(error) if error.is_privilege())
    }
}

/// The knowledge of a peer.
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
    /// The claim of programs here and there about the difference now.
    pub claim: Option<PeerClaim>,
}

/// A claim about the difference of two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerClaim {
    /// The program on this machine.
    pub own: SourceKind,
    /// The program of the peer.
    pub peer: SourceKind,
    /// Its interval. If it agrees with the exchanges, [`PeerStatus::offset`] lies in it.
    pub offset: ClaimedOffset,
}

struct Peer {
    to: Destination,
    secret: u64,
    due: Time,
    /// A round has passed since its last request, which has no answer yet.
    waited: bool,
    /// The datagram of its last request, by number, and the clocks before.
    request: Option<(u32, ArrivalClock)>,
    /// When the kernel gave that to the device, at the earliest.
    left: Option<Time>,
    /// The programs of the last claim.
    claim: Option<(SourceKind, SourceKind)>,
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
    /// `None`: messages are not sealed.
    seal: Option<SyncSeal>,
    drops: SyncDrops,
    sources: Option<ClockSources>,
    /// Datagrams that the kernel took. `None`: it may have counted one that it refused.
    sent: Option<u32>,
    /// The clocks before the last wait.
    arrivals: ArrivalClock,
    decisions: Vec<TimeTableDecision>,
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
        // Without it, a machine with several addresses must listen at the one that is asked.
        let _ = socket.answer_as_asked();
        // Without these stamps, the time before a send counts.
        let sent = (!spec.peers.is_empty() && socket.stamp_transmissions().is_ok()).then_some(0);
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
                claim: None,
            };
            // Requests to the peers are spread over the period.
            let shift = Span::from_ns(spec.period.as_ns() / (spec.peers.len() as u64).max(1) * place);
            let to = Destination::from(*address);
            let due = now.saturating_add(shift);
            Peer { to, secret: 0, due, waited: false, request: None, left: None, claim: None, clock: (0, 0), status }
        });
        let peers = peers.collect();
        let clock_id = monotonic_id().unwrap_or_else(random);
        let (table, period) = (TimeTable::new(table)?, spec.period);
        let sources = spec.sources.clone().map(ClockSources::new);
        Ok(TimeSync {
            socket,
            table,
            peers,
            period,
            clock_id,
            clock,
            served: 0,
            seal: None,
            drops: SyncDrops::default(),
            sources,
            sent,
            arrivals: ArrivalClock::start(),
            decisions: Vec::with_capacity(DECISIONS),
        })
    }

    /// Seals all messages, and takes none that is not sealed with the same key in the same run.
    ///
    /// # Errors
    /// There is not one number for each peer, or the kernel gives no random numbers.
    pub fn sealed(mut self, spec: SyncSealSpec) -> Result<TimeSync, TimeSyncError> {
        let (peers, numbers) = (self.peers.len(), spec.peers.len());
        if peers != numbers {
            return Err(TimeSyncError::Numbers { peers, numbers });
        }
        self.seal = Some(SyncSeal::new(spec).ok_or(TimeSyncError::Random)?);
        Ok(self)
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

    /// Datagrams so far that are no such message, or come from nobody who was asked. Those that a key shows to be
    /// malformed, forged or replayed do not count here: see [`TimeSync::drops`].
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.drops.foreign
    }

    /// Datagrams dropped so far, by reason. Without a key all are foreign.
    #[must_use]
    pub fn drops(&self) -> SyncDrops {
        self.drops
    }

    /// The reports of programs on the own CLOCK_REALTIME, at most one of each program.
    #[must_use]
    pub fn sources(&self) -> Vec<ClockReport> {
        self.sources.as_ref().map(ClockSources::reports).unwrap_or_default()
    }

    /// What is known of the peers now, in their order.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        let now = (self.clock)(Time::from_ns(monotonic_ns()));
        let status = |(place, peer): (usize, &Peer)| {
            let claimed = self.table.claimed(now, place, peer.clock.1);
            PeerStatus {
                offset: self.table.offset(now, place, peer.clock.1),
                claim: peer.claim.zip(claimed).map(|((own, peer), offset)| PeerClaim { own, peer, offset }),
                ..peer.status
            }
        };
        self.peers.iter().enumerate().map(status).collect()
    }

    /// The interval of a peer's clock now; `None` also if there is no such peer. It allocates nothing.
    #[must_use]
    pub fn offset(&self, peer: usize) -> Option<OffsetInterval> {
        let epoch = self.peers.get(peer)?.clock.1;
        self.table.offset((self.clock)(Time::from_ns(monotonic_ns())), peer, epoch)
    }

    /// Asks and answers until `end` of CLOCK_MONOTONIC.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let now = Time::from_ns(monotonic_ns());
            if now >= end {
                return;
            }
            if let Some(sources) = &mut self.sources {
                sources.refresh();
            }
            self.arrivals = ArrivalClock::start();
            self.ask(now);
            self.transmitted();
            let next = self.peers.iter().map(|peer| peer.due).min().unwrap_or(Time::MAX).min(end);
            self.socket.await_datagram(next.saturating_since(Time::from_ns(monotonic_ns())));
            self.receive();
        }
    }

    /// One round: receives messages, answers them, and asks each peer that has answered, or has not
    /// for two rounds. It does not wait, asks no program about the clock, and allocates nothing.
    pub fn round(&mut self) {
        self.receive();
        self.arrivals = ArrivalClock::start();
        for peer in &mut self.peers {
            // If both sides have rounds, an answer may come just after the next round.
            let waits = peer.secret != 0 && !peer.waited;
            (peer.waited, peer.due) = (waits, if waits { Time::MAX } else { Time::ZERO });
        }
        self.ask(Time::from_ns(monotonic_ns()));
        self.transmitted();
    }

    fn receive(&mut self) {
        self.transmitted();
        // A longer datagram is cut to a length that no message has.
        let mut bytes = [0; SYNC_SEALED + 1];
        // A flood must not keep requests from leaving.
        for _ in 0..64 {
            let Some((length, from, stamp)) = self.socket.receive_asked(&mut bytes) else { break };
            // The later time is the safe one: an interval of an exchange only grows by it.
            let at = (self.clock)(self.arrivals.arrival(stamp).to);
            let Some(datagram) = bytes.get_mut(..length) else { continue };
            match self.open(datagram) {
                Some((SyncMessage::Request(to), _)) => self.answer(to, &from, at),
                Some((SyncMessage::Answer { to, clock, received, sent, claim }, node)) => {
                    let Some(place) = self.place(node, from.address()) else {
                        self.drops.foreign += 1;
                        continue;
                    };
                    self.take(place, (to, clock, claim), [received, sent, at]);
                }
                None => {}
            }
        }
    }

    /// The message of a datagram, and the node that a key proves to have sent it. `None`: the datagram was counted.
    fn open(&mut self, datagram: &mut [u8]) -> Option<(SyncMessage, Option<u16>)> {
        if let Some(seal) = &mut self.seal {
            return seal.open(datagram, &mut self.drops).map(|(node, message)| (message, Some(node)));
        }
        let message = SyncMessage::read(datagram);
        self.drops.foreign += u64::from(message.is_none());
        message.map(|message| (message, None))
    }

    /// The peer that has sent an answer. A node with the key is known by its number: with the address alone an
    /// attacker could pass the answer of one node off as that of another.
    fn place(&self, node: Option<u16>, from: SocketAddr) -> Option<usize> {
        match (node, &self.seal) {
            (Some(node), Some(seal)) => seal.place(node),
            _ => self.peers.iter().position(|peer| peer.status.address == from),
        }
    }

    fn ask(&mut self, now: Time) {
        let clocks = self.arrivals;
        for peer in self.peers.iter_mut().filter(|peer| peer.due <= now) {
            peer.secret = random();
            (peer.request, peer.left) = (None, None);
            // A late thread skips requests.
            peer.due = peer.due.saturating_add(self.period).max(now);
            let sent = (self.clock)(Time::from_ns(monotonic_ns()));
            let request = SyncMessage::Request(SyncRequest { secret: peer.secret, sent });
            if send(&self.socket, self.seal.as_mut(), &request, &peer.to) {
                peer.status.asked += 1;
                peer.request = self.sent.map(|number| (number, clocks));
                self.sent = self.sent.map(|sent| sent.wrapping_add(1));
            } else {
                self.sent = None;
            }
        }
    }

    /// Takes the kernel's stamps of requests.
    fn transmitted(&mut self) {
        for left in std::iter::from_fn(|| self.socket.transmitted()).take(STAMPS) {
            let of = |peer: &&mut Peer| peer.request.is_some_and(|(number, _)| number == left.number);
            let Some(peer) = self.peers.iter_mut().find(of).filter(|_| self.sent.is_some()) else { continue };
            let Some((_, clocks)) = peer.request.take() else { continue };
            // The earlier time is safe. A stamp that the clocks cannot place counts as the time before the send.
            peer.left = clocks.placed(left.at).map(|left| (self.clock)(left.from));
        }
    }

    fn answer(&mut self, to: SyncRequest, asker: &Destination, received: Time) {
        let claim = self.own_claim();
        let sent = (self.clock)(Time::from_ns(monotonic_ns()));
        let answer = SyncMessage::Answer { to, clock: self.clock_id, received, sent, claim };
        if send(&self.socket, self.seal.as_mut(), &answer, asker) {
            self.served += 1;
            self.sent = self.sent.map(|sent| sent.wrapping_add(1));
        } else {
            self.sent = None;
        }
    }

    /// The own claim about CLOCK_REALTIME now.
    fn own_claim(&self) -> Option<SyncClaim> {
        let (source, bound, error) = self.sources.as_ref()?.bound()?;
        let read = || (self.clock)(Time::from_ns(monotonic_ns())).as_ns();
        let (before, realtime, after) = (read(), realtime_ns(), read());
        // The own clock had a time between these when CLOCK_REALTIME was read.
        let width = Span::from_ns(after.saturating_sub(before));
        let ahead = realtime.cast_signed().checked_sub(after.cast_signed())?;
        Some(SyncClaim { source, timescale: bound.timescale, ahead, error: error.saturating_add(width) })
    }

    fn take(
        &mut self,
        place: usize,
        (to, clock, claim): (SyncRequest, u64, Option<SyncClaim>),
        [received, sent, at]: [Time; 3],
    ) {
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
        // The request left after it was made, and before its answer came.
        let t1 = peer.left.take().map_or(to.sent, |left| left.max(to.sent).min(at));
        let exchange = Exchange {
            peer: place,
            own_epoch: self.table.epoch(),
            peer_epoch: peer.clock.1,
            t1,
            t2: received,
            t3: sent,
            t4: at,
        };
        let now = (self.clock)(Time::from_ns(monotonic_ns()));
        self.table.on_event(now, TimeTableEvent::Exchange(exchange), &mut self.decisions);
        for decision in self.decisions.drain(..) {
            match decision {
                TimeTableDecision::Refused(..) => peer.status.refused += 1,
                decision => {
                    peer.status.answered += 1;
                    peer.status.restarts += u64::from(matches!(decision, TimeTableDecision::Restarted(_)));
                    let trip = at.saturating_since(t1).saturating_sub(sent.saturating_since(received));
                    let shortest = peer.status.round_trip.map_or(trip, |known| known.min(trip));
                    peer.status.round_trip = Some(shortest);
                }
            }
        }
        self.claim(place, claim, t1);
    }

    /// Makes one claim about the difference from those of both machines. `since`: both held then or later.
    fn claim(&mut self, place: usize, theirs: Option<SyncClaim>, since: Time) {
        let Some((own, theirs)) =
            self.own_claim().zip(theirs).filter(|(own, theirs)| own.timescale == theirs.timescale)
        else {
            return;
        };
        let Some(peer) = self.peers.get_mut(place) else { return };
        // own clock = CLOCK_REALTIME here - ahead, and both CLOCK_REALTIME show one time but for errors.
        let apart = theirs.ahead.checked_sub(own.ahead);
        let error = i64::try_from(own.error.saturating_add(theirs.error).as_ns()).ok();
        let Some((low, high)) =
            apart.zip(error).and_then(|(apart, error)| Some((apart.checked_sub(error)?, apart.checked_add(error)?)))
        else {
            return;
        };
        let (own_epoch, peer_epoch) = (self.table.epoch(), peer.clock.1);
        let claim = Claim { peer: place, own_epoch, peer_epoch, low, high, from: since };
        let now = (self.clock)(Time::from_ns(monotonic_ns()));
        self.table.on_event(now, TimeTableEvent::Claim(claim), &mut self.decisions);
        if self.decisions.drain(..).eq([TimeTableDecision::Accepted(place)]) {
            peer.claim = Some((own.source, theirs.source));
        }
    }
}

/// Sends a message, sealed if there is a seal. Returns whether the kernel took it.
fn send(socket: &Datagrams, seal: Option<&mut SyncSeal>, message: &SyncMessage, to: &Destination) -> bool {
    let sent = match seal {
        Some(seal) => seal.seal(message).map(|bytes| socket.send([&bytes, &[]], to, Span::ZERO)),
        None => Some(socket.send([&message.write(), &[]], to, Span::ZERO)),
    };
    sent == Some(Sent::Yes)
}

/// A random number above zero.
pub(crate) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish().max(1)
}
