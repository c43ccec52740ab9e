//! A node: the configuration by which a process shares events over a network, and its counters.

use std::net::SocketAddr;

use takt_linux::clock;
use takt_linux::datagram::BindError;
use takt_model::Span;
use thiserror::Error;

use super::delivery::Stored;
use super::filter::Pattern;
use super::limits::ROOM_BYTES_MAX;
use super::peer::NO_CLOCK;

/// The clock for the sending times of datagrams. Nodes with the same clock can compute how long a
/// datagram took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC, which processes of one machine share.
    Machine,
    /// CLOCK_TAI, kept synchronised by other means (PTP) among all nodes with this number.
    Synchronized(u64),
    /// A clock in common with no other node.
    Own,
}

impl Clock {
    /// The clock's number in datagrams; 0 for a clock of the node's own.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Clock::Machine => clock::monotonic_id().unwrap_or(NO_CLOCK),
            // Very likely different from the numbers of machines.
            Clock::Synchronized(number) => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1),
            Clock::Own => NO_CLOCK,
        }
    }

    /// Its time in ns.
    #[must_use]
    pub fn now(self) -> u64 {
        match self {
            Clock::Machine | Clock::Own => clock::monotonic_ns(),
            Clock::Synchronized(_) => clock::tai_ns(),
        }
    }
}

/// How a push sends an event to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// The pushing thread sends the event at once. If the socket has no room, the event is dropped.
    Direct,
    /// The pushing thread sends the event and waits for room in the socket. It waits at most for
    /// the event's time to live, for this span, and until the channel is disconnected. Then the
    /// event is dropped.
    Patient(Span),
    /// Another thread of the level sends events in the order of their pushes. Until then they wait
    /// in a queue.
    Queued {
        /// The length of the queue, 1 to 65,536. With the channel's longest payload, the queues of
        /// all levels take at most [`ROOM_BYTES_MAX`](super::ROOM_BYTES_MAX). Waiting events are
        /// dropped when the channel is disconnected.
        room: usize,
        /// The event to drop if the queue is full.
        full: Full,
    },
}

/// The event to drop if a queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The new event.
    Newest,
    /// The oldest event in the queue.
    Oldest,
}

impl Sending {
    /// Whether a push may wait for the network.
    #[must_use]
    pub const fn may_block(self) -> bool {
        match self {
            Sending::Direct | Sending::Queued { .. } => false,
            Sending::Patient(span) => span.as_ns() > 0,
        }
    }

    /// Whether a lack of room here may drop an event that was pushed here and does not expire.
    ///
    /// Three cases are not part of the answer:
    /// - Forwarded events ([`Node::forwarding`]) may be dropped under every policy.
    /// - When the channel is disconnected, an event whose push waits for room is dropped.
    ///   [`Pushed::unsent`](super::Pushed::unsent) and [`Traffic::full`] count it.
    /// - Expired events are never sent. The network may drop any event on its way; the peers count
    ///   these.
    #[must_use]
    pub const fn may_drop(self) -> bool {
        match self {
            Sending::Direct | Sending::Queued { .. } => true,
            // Such a push waits without limit while the channel is connected.
            Sending::Patient(span) => span.as_ns() < Span::MAX.as_ns(),
        }
    }
}

/// The traffic between nodes at one level of urgency, with its own socket and threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    /// The level's name, for errors and counters.
    pub name: String,
    /// The local address, for receiving and sending.
    pub at: SocketAddr,
    /// The addresses of the same level of other nodes. Datagrams from other addresses are dropped.
    pub peers: Vec<SocketAddr>,
    /// The events that go to all peers. Default none: the level only receives.
    pub sends: Vec<Pattern>,
    /// The level of the dispatcher's plan whose scheduling the threads share. Switches of plans do
    /// not change it. Default 0, the most urgent.
    pub level: usize,
    /// The plan's CPU for the threads. Default any.
    pub cpu: Option<u32>,
    /// SO_PRIORITY of sent datagrams, for queueing disciplines. Values from 0 to 6 need no
    /// privilege; others need CAP_NET_ADMIN. Default 6.
    pub so_priority: u32,
    /// How a push sends. Default [`Sending::Direct`].
    pub sending: Sending,
    /// Bytes of each of the socket's buffers, at most [`ROOM_BYTES_MAX`](super::ROOM_BYTES_MAX).
    /// The kernel may give less (net.core.rmem_max, wmem_max). Default 256 KiB.
    pub buffer: usize,
}

impl Level {
    /// A level that receives at `at` and has no peers yet.
    #[must_use]
    pub fn new(name: &str, at: SocketAddr) -> Level {
        Level {
            name: name.to_owned(),
            at,
            peers: Vec::new(),
            sends: Vec::new(),
            level: 0,
            cpu: None,
            so_priority: 6,
            sending: Sending::Direct,
            buffer: 1 << 18,
        }
    }

    /// Adds a peer.
    #[must_use]
    pub fn peer(mut self, at: SocketAddr) -> Level {
        self.peers.push(at);
        self
    }

    /// Adds events that go to the peers.
    #[must_use]
    pub fn sends(mut self, pattern: Pattern) -> Level {
        self.sends.push(pattern);
        self
    }

    /// Schedules the threads as this level of the dispatcher's plan.
    #[must_use]
    pub fn level(mut self, level: usize) -> Level {
        self.level = level;
        self
    }

    /// Binds the threads to this CPU of the plan.
    #[must_use]
    pub fn on_cpu(mut self, cpu: u32) -> Level {
        self.cpu = Some(cpu);
        self
    }

    /// Sets SO_PRIORITY.
    #[must_use]
    pub fn so_priority(mut self, priority: u32) -> Level {
        self.so_priority = priority;
        self
    }

    /// Sets how a push sends.
    #[must_use]
    pub fn sending(mut self, sending: Sending) -> Level {
        self.sending = sending;
        self
    }
}

/// A process that shares events with other processes.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::event::{Clock, Level, Node, Pattern};
///
/// let (here, there) = ("10.0.0.1:7000".parse()?, "10.0.0.2:7000".parse()?);
/// let node = Node::new(1)
///     .with(Level::new("critical", here).peer(there).sends(Pattern::kind(1)))
///     .beat(Span::from_ms(20), Span::from_ms(80));
/// assert!(!node.levels[0].sending.may_block() && node.levels[0].sending.may_drop());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number, unique among the nodes.
    pub id: u64,
    /// The clock for sending times. Default [`Clock::Machine`].
    pub clock: Clock,
    /// The period of beats on each level, at least 10 ms. A beat may take twice as long while
    /// datagrams keep coming. Default 100 ms.
    pub beat: Span,
    /// The silence after which a peer counts as lost, at least four beats. Default 400 ms.
    pub lost_after: Span,
    /// The most other nodes whose events a level tracks, 1 to [`NODES_MAX`]. Default 64.
    pub nodes_max: usize,
    /// Whether events from one peer go on to the other peers of the level. Default no: all nodes
    /// are peers of each other.
    pub forwards: bool,
    /// The levels.
    pub levels: Vec<Level>,
}

impl Node {
    /// A node with this number and no levels yet.
    #[must_use]
    pub fn new(id: u64) -> Node {
        Node {
            id,
            clock: Clock::Machine,
            beat: Span::from_ms(100),
            lost_after: Span::from_ms(400),
            nodes_max: 64,
            forwards: false,
            levels: Vec::new(),
        }
    }

    /// Adds a level.
    #[must_use]
    pub fn with(mut self, level: Level) -> Node {
        self.levels.push(level);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Node {
        self.clock = clock;
        self
    }

    /// Sets the period of beats, and the silence after which a peer is lost.
    #[must_use]
    pub fn beat(mut self, beat: Span, lost_after: Span) -> Node {
        (self.beat, self.lost_after) = (beat, lost_after);
        self
    }

    /// Forwards received events to the other peers of the level. The receiving thread forwards and
    /// never waits for room, whatever the level's [`Sending`]. Events without room are dropped and
    /// counted ([`Traffic::full`]).
    #[must_use]
    pub fn forwarding(mut self) -> Node {
        self.forwards = true;
        self
    }

    /// The fault of the node, if it has one.
    pub(super) fn wrong(&self, levels: usize, cpus: u32, payload_max: usize) -> Option<NodeError> {
        if self.beat < BEAT_MIN {
            return Some(NodeError::Beat(self.beat));
        }
        if self.lost_after.as_ns() / BEATS_MIN < self.beat.as_ns() {
            return Some(NodeError::Silence { beat: self.beat, lost_after: self.lost_after });
        }
        if payload_max > super::wire::PAYLOAD_MAX {
            return Some(NodeError::Payload(payload_max));
        }
        if self.nodes_max == 0 {
            return Some(NodeError::Nobody);
        }
        if self.nodes_max > NODES_MAX {
            return Some(NodeError::Nodes(self.nodes_max));
        }
        let of = |level: &Level| {
            let name = || level.name.clone();
            let again = |(at, peer): (usize, &SocketAddr)| level.peers.iter().take(at).any(|other| same(*other, *peer));
            if let Some((_, peer)) = level.peers.iter().enumerate().find(|row| again(*row)) {
                return Some(NodeError::Peer { name: name(), peer: *peer });
            }
            if level.level >= levels {
                return Some(NodeError::Level { name: name(), level: level.level, levels });
            }
            if let Some(cpu) = level.cpu.filter(|cpu| *cpu >= cpus) {
                return Some(NodeError::Cpu { name: name(), cpu, cpus });
            }
            if let Sending::Queued { room, .. } = level.sending
                && !(1..=ROOM_MAX).contains(&room)
            {
                return Some(NodeError::Room { name: name(), room });
            }
            if level.buffer > ROOM_BYTES_MAX {
                return Some(NodeError::Buffer { name: name(), buffer: level.buffer });
            }
            None
        };
        let room = |level: &Level| if let Sending::Queued { room, .. } = level.sending { room } else { 0 };
        let queued = || {
            let events = self.levels.iter().map(room).fold(0, usize::saturating_add);
            let is_much = events.saturating_mul(Stored::bytes(payload_max)) > ROOM_BYTES_MAX;
            is_much.then_some(NodeError::Queues { events, payload_max })
        };
        let same = |level: &Level| self.levels.iter().filter(|other| other.name == level.name).count() > 1;
        let twice = || self.levels.iter().find(|level| same(level)).map(|level| NodeError::Twice(level.name.clone()));
        self.levels.iter().find_map(of).or_else(twice).or_else(queued)
    }
}

/// A shorter period would load the CPU and be finer than the ticks of socket timeouts.
const BEAT_MIN: Span = Span::from_ms(10);
/// One late beat and one lost beat must not make a peer count as lost.
const BEATS_MIN: u64 = 4;
/// The largest [`Node::nodes_max`].
pub const NODES_MAX: usize = 1 << 16;
/// The longest queue of a level.
pub(super) const ROOM_MAX: usize = 1 << 16;

/// Why a node could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The period of beats is too short.
    #[error("a beat every {0} is too often: 10ms is the least")]
    Beat(Span),
    /// The silence is too short: every peer would be lost again and again.
    #[error(
        "a peer with a beat every {beat} cannot count as lost after {lost_after} of silence: choose at least four beats"
    )]
    Silence {
        /// The period of beats.
        beat: Span,
        /// The silence.
        lost_after: Span,
    },
    /// Payloads longer than a datagram holds.
    #[error(
        "events of this channel have up to {0} bytes, and a datagram has room for {most} (Options::payload_max)",
        most = super::wire::PAYLOAD_MAX
    )]
    Payload(usize),
    /// No levels, so nothing could arrive.
    #[error("nodes_max is 0, so that a node could hear of no other: 64 is the default")]
    Nobody,
    /// More nodes than a level can track.
    #[error("a node that keeps {0} others apart; {NODES_MAX} are the most (nodes_max)")]
    Nodes(usize),
    /// The address is already that of another peer.
    #[error("level \"{name}\" has the peer {peer} twice")]
    Peer {
        /// The level's name.
        name: String,
        /// The address.
        peer: SocketAddr,
    },
    /// The plan has no such level.
    #[error("level \"{name}\" is to be scheduled as level {level} of the plan, which has {levels}")]
    Level {
        /// The level's name.
        name: String,
        /// The plan's level that it asks for.
        level: usize,
        /// The plan's number of levels.
        levels: usize,
    },
    /// The plan has no such CPU.
    #[error("level \"{name}\" is to run on CPU {cpu} of the plan, which has {cpus}, counted from 0")]
    Cpu {
        /// The level's name.
        name: String,
        /// The CPU that it asks for.
        cpu: u32,
        /// The plan's number of CPUs.
        cpus: u32,
    },
    /// A queue of length zero, or above the limit.
    #[error("level \"{name}\" has a queue for {room} events; it can be for 1 to {ROOM_MAX}")]
    Room {
        /// The level's name.
        name: String,
        /// The length of the queue.
        room: usize,
    },
    /// Buffers above the limit.
    #[error("level \"{name}\" has buffers of {buffer} bytes; {ROOM_BYTES_MAX} are the most")]
    Buffer {
        /// The level's name.
        name: String,
        /// The size in bytes.
        buffer: usize,
    },
    /// All queues together are above the limit.
    #[error(
        "the queues of all levels are for {events} events of up to {payload_max} bytes, and take more than \
         {ROOM_BYTES_MAX} bytes: less room (Sending::Queued), or shorter payloads (Options::payload_max)"
    )]
    Queues {
        /// The number of events in all queues.
        events: usize,
        /// The longest payload.
        payload_max: usize,
    },
    /// Two levels have the same name.
    #[error("two levels are named \"{0}\"")]
    Twice(String),
    /// The socket could not be opened.
    #[error("level \"{name}\": {cause}")]
    Bind {
        /// The level's name.
        name: String,
        /// The cause.
        cause: BindError,
    },
}

/// Whether two addresses denote the same sender. An IPv4 address may be written as IPv6, and IPv6
/// addresses have parts that do not identify the sender.
pub(super) fn same(one: SocketAddr, other: SocketAddr) -> bool {
    let scope = |address: SocketAddr| match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let (ours, theirs) = (scope(one), scope(other));
    let hosts = one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port();
    hosts && (ours == theirs || ours == 0 || theirs == 0)
}

/// Counters of a level between nodes.
///
/// Each received datagram is a beat or counts as one of `events`, `duplicates`, `old`, `loops`,
/// `strangers` and `malformed`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// The level's name.
    pub name: String,
    /// The local address, with the port that the kernel chose for port 0; `None` if the kernel does
    /// not tell.
    pub at: Option<SocketAddr>,
    /// Datagrams with events that the kernel accepted, one for each peer.
    pub sent: u64,
    /// Datagrams with events that were dropped here because the socket or the queue was full. They
    /// include datagrams that waited for room when the channel was disconnected.
    pub full: u64,
    /// Datagrams that the kernel refused to send for another cause.
    pub refused: u64,
    /// Datagrams with events that expired before they were sent.
    pub stale: u64,
    /// Received events, each counted once.
    pub events: u64,
    /// Received events that had expired. No consumer got them.
    pub late: u64,
    /// Received events without a common clock. Their time on the way did not count.
    pub unsynchronized: u64,
    /// Received events that, by the common clock, arrived before they were sent.
    pub skewed: u64,
    /// Received events that were forwarded to another peer.
    pub forwarded: u64,
    /// Events that peers sent and that did not arrive: dropped, or still on the way.
    pub lost: u64,
    /// Events received again.
    pub duplicates: u64,
    /// Events too old to compare, events of a former run of their node, and events of nodes above
    /// [`Node::nodes_max`].
    pub old: u64,
    /// Datagrams of this node itself, or forwarded by more than 16 nodes.
    pub loops: u64,
    /// Datagrams from senders that are not peers of the level.
    pub strangers: u64,
    /// Datagrams that are not in the node's format.
    pub malformed: u64,
    /// Datagrams that the full socket dropped; `None` if the kernel does not tell.
    pub overflowed: Option<u32>,
    /// The level's peers, in their order.
    pub peers: Vec<Peer>,
}

/// The state of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub at: SocketAddr,
    /// Its node's number, once it was heard.
    pub node: Option<u64>,
    /// Whether it counts as present.
    pub is_there: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_node_that_cannot_be_is_refused_with_what_to_do() {
        let said = |node: &Node| node.wrong(2, 1, 256).map(|wrong| wrong.to_string()).unwrap_or_default();
        let (ms, node) = (Span::from_ms, Node::new(1));
        assert_eq!(said(&node), "");
        assert_eq!(said(&node.clone().beat(Span::ZERO, ms(5))), "a beat every 0ns is too often: 10ms is the least");
        assert_eq!(
            said(&node.clone().beat(ms(10), ms(39))),
            "a peer with a beat every 10ms cannot count as lost after 39ms of silence: choose at least four beats"
        );
        let level = Level::new("a", here(1));
        assert_eq!(
            said(&node.clone().with(level.clone().level(2))),
            "level \"a\" is to be scheduled as level 2 of the plan, which has 2"
        );
        assert_eq!(
            said(&node.clone().with(level.clone().on_cpu(1))),
            "level \"a\" is to run on CPU 1 of the plan, which has 1, counted from 0"
        );
        assert_eq!(said(&node.clone().with(level.clone()).with(level.clone())), "two levels are named \"a\"");
        let none = Sending::Queued { room: 0, full: Full::Oldest };
        assert_eq!(
            said(&node.clone().with(level.sending(none))),
            "level \"a\" has a queue for 0 events; it can be for 1 to 65536"
        );
        let level = Level::new("a", here(1));
        let large = Level { buffer: i32::MAX as usize + 1, ..level.clone() };
        assert_eq!(
            said(&node.clone().with(large)),
            "level \"a\" has buffers of 2147483648 bytes; 67108864 are the most"
        );
        assert_eq!(said(&node.clone().with(Level { buffer: 64 << 20, ..level.clone() })), "");
        assert_eq!(
            said(&Node { nodes_max: usize::MAX, ..node.clone() }),
            "a node that keeps 18446744073709551615 others apart; 65536 are the most (nodes_max)"
        );
        assert_eq!(said(&Node { nodes_max: 65_536, ..node.clone() }), "");
        let queue = level.sending(Sending::Queued { room: 65_536, full: Full::Oldest });
        assert_eq!(said(&node.clone().with(queue.clone())), "");
        assert_eq!(
            node.clone().with(queue).wrong(2, 1, 1024).map(|wrong| wrong.to_string()).unwrap_or_default(),
            "the queues of all levels are for 65536 events of up to 1024 bytes, and take more than 67108864 \
             bytes: less room (Sending::Queued), or shorter payloads (Options::payload_max)"
        );
        assert!(node.wrong(2, 1, 70_000).is_some());
    }

    #[test]
    fn policies_tell_what_they_may_do() {
        let all = [
            Sending::Direct,
            Sending::Patient(Span::ZERO),
            Sending::Patient(Span::from_ms(1)),
            Sending::Patient(Span::MAX),
            Sending::Queued { room: 1, full: Full::Newest },
        ];
        assert_eq!(all.map(Sending::may_block), [false, false, true, true, false]);
        assert_eq!(all.map(Sending::may_drop), [true, true, true, false, true]);
    }

    #[test]
    fn a_host_is_known_by_its_address_however_it_is_written() {
        let of = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(same(of("10.0.0.2:7"), of("[::ffff:10.0.0.2]:7")) && same(of("[fe80::1%2]:7"), of("[fe80::1]:7")));
        assert!(!same(of("[fe80::1%2]:7"), of("[fe80::1%3]:7")) && !same(of("10.0.0.2:7"), of("10.0.0.2:8")));
        let level = Level::new("a", here(1)).peer(of("10.0.0.2:7")).peer(of("[::ffff:10.0.0.2]:7"));
        let wrong = Node::new(1).with(level).wrong(1, 1, 256).unwrap();
        assert_eq!(wrong.to_string(), "level \"a\" has the peer [::ffff:10.0.0.2]:7 twice");
        assert!(Node { nodes_max: 0, ..Node::new(1) }.wrong(1, 1, 256).is_some());
    }

    #[test]
    fn clocks_in_common_have_one_number() {
        assert_eq!(Clock::Synchronized(3).number(), Clock::Synchronized(3).number());
        assert_ne!(Clock::Synchronized(3).number(), Clock::Synchronized(4).number());
        assert_ne!(Clock::Synchronized(0).number(), NO_CLOCK);
        assert_eq!(Clock::Own.number(), NO_CLOCK);
    }
}
