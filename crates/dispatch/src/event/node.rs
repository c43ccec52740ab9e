//! A node: how a process shares events with others over a network, as plain data; and what is counted of it.

use std::net::SocketAddr;

use takt_linux::clock;
use takt_linux::datagram::BindError;
use takt_model::Span;
use thiserror::Error;

use super::channel::ROOM_BYTES_MAX;
use super::filter::Pattern;
use super::inbox::Stored;
use super::peer::NO_CLOCK;

/// By which clock a node tells when its datagrams leave. Nodes with the same one know how long they were under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC, which processes of one machine share.
    Machine,
    /// CLOCK_TAI, which something else keeps synchronised (PTP) among all nodes that have this number.
    Synchronized(u64),
    /// None in common with anybody.
    Own,
}

impl Clock {
    /// Its number in datagrams; 0 where there is nothing in common.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Clock::Machine => clock::monotonic_id().unwrap_or(NO_CLOCK),
            // Apart from those of machines, in all likelihood.
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

/// What a push does with an event that is to leave for other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// It is sent by whoever pushes, at once. Where the socket has no room it is dropped.
    Direct,
    /// It is sent by whoever pushes, who waits for room in the socket: for the event's time to live and this span at most, and no longer than the channel is connected. Then it is dropped.
    Patient(Span),
    /// It is sent by another thread of the level, in the order of the pushes, and waits in a queue for that.
    Queued {
        /// How many can wait, 1 to 65,536; with the channel's longest payload those of all levels take [`ROOM_BYTES_MAX`](super::ROOM_BYTES_MAX) at most. They are dropped when the channel is disconnected.
        room: usize,
        /// What becomes of one too many.
        full: Full,
    },
}

/// What becomes of one event too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// It is dropped.
    Newest,
    /// It takes the place of the oldest, which is dropped.
    Oldest,
}

impl Sending {
    /// Whether a push may have to wait for the network.
    #[must_use]
    pub const fn may_block(self) -> bool {
        match self {
            Sending::Direct | Sending::Queued { .. } => false,
            Sending::Patient(span) => span.as_ns() > 0,
        }
    }

    /// Whether an event that is pushed here and does not expire may be dropped for want of room. What a node [sends on](Node::forwarding) may be, whatever the policy. So may one whose push waits for room when the channel is
    /// disconnected: nobody waits for the network then, and it is one of [`Pushed::unsent`](super::Pushed::unsent), and of [`Traffic::full`]. (One whose time is over is of no use, and never sent. What is on the way the network may drop
    /// whatever the policy: the peers count that.)
    #[must_use]
    pub const fn may_drop(self) -> bool {
        match self {
            Sending::Direct | Sending::Queued { .. } => true,
            // Then a push waits for as long as it takes, while the channel is connected.
            Sending::Patient(span) => span.as_ns() < Span::MAX.as_ns(),
        }
    }
}

/// What goes between nodes at one level of urgency: a socket and a thread of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    /// Its name, in errors and in what is counted.
    pub name: String,
    /// The address at which it receives, and from which it sends.
    pub at: SocketAddr,
    /// The addresses of the same level of other nodes. Datagrams from other addresses are dropped.
    pub peers: Vec<SocketAddr>,
    /// Which events go to all the peers. Default none: it only receives.
    pub sends: Vec<Pattern>,
    /// The level of the dispatcher's plan as whose threads its own is scheduled, as long as the channel is connected, whatever plan is switched to. Default 0, the most urgent.
    pub level: usize,
    /// The plan's CPU on which its threads run. Default any.
    pub cpu: Option<u32>,
    /// SO_PRIORITY of what it sends, by which queueing disciplines go. The kernel gives those from 0 to 6 to everybody; others take CAP_NET_ADMIN. Default 6.
    pub so_priority: u32,
    /// How a push sends. Default [`Sending::Direct`].
    pub sending: Sending,
    /// Bytes of the socket's buffers, each way, [`ROOM_BYTES_MAX`](super::ROOM_BYTES_MAX) at most; the kernel may give less (net.core.rmem_max, wmem_max). Default 256 KiB.
    pub buffer: usize,
}

impl Level {
    /// That receives here, and has no peers yet.
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

    /// With another peer.
    #[must_use]
    pub fn peer(mut self, at: SocketAddr) -> Level {
        self.peers.push(at);
        self
    }

    /// With events that go to the peers.
    #[must_use]
    pub fn sends(mut self, pattern: Pattern) -> Level {
        self.sends.push(pattern);
        self
    }

    /// Scheduled as this level of the dispatcher's plan.
    #[must_use]
    pub fn level(mut self, level: usize) -> Level {
        self.level = level;
        self
    }

    /// On this CPU of the plan's.
    #[must_use]
    pub fn on_cpu(mut self, cpu: u32) -> Level {
        self.cpu = Some(cpu);
        self
    }

    /// With this SO_PRIORITY.
    #[must_use]
    pub fn so_priority(mut self, priority: u32) -> Level {
        self.so_priority = priority;
        self
    }

    /// Sending so.
    #[must_use]
    pub fn sending(mut self, sending: Sending) -> Level {
        self.sending = sending;
        self
    }
}

/// A process among others that share events.
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
    /// Its number, which no other node has.
    pub id: u64,
    /// By which clock it tells times. Default [`Clock::Machine`].
    pub clock: Clock,
    /// How often it tells its peers that it is there, on each level; at least 10 ms. It may take twice as long where something else comes all the time. Default 100 ms.
    pub beat: Span,
    /// After how long a silence a peer is lost; at least four beats. Default 400 ms.
    pub lost_after: Span,
    /// Of how many other nodes a level keeps apart whose events have come, 1 to [`NODES_MAX`]. Default 64.
    pub nodes_max: usize,
    /// Whether events that come from one peer go on to the others of the level. Default no: all are peers of each other.
    pub forwards: bool,
    /// What goes where.
    pub levels: Vec<Level>,
}

impl Node {
    /// With this number, and no levels yet.
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

    /// With another level.
    #[must_use]
    pub fn with(mut self, level: Level) -> Node {
        self.levels.push(level);
        self
    }

    /// Telling times by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Node {
        self.clock = clock;
        self
    }

    /// Telling its peers so often that it is there, and taking them for lost after so long a silence.
    #[must_use]
    pub fn beat(mut self, beat: Span, lost_after: Span) -> Node {
        (self.beat, self.lost_after) = (beat, lost_after);
        self
    }

    /// Sending on what comes, to the other peers of the level. The thread that receives does it, and waits for no room, whatever the level's [`Sending`]: what finds none is dropped and
    /// counted ([`Traffic::full`]).
    #[must_use]
    pub fn forwarding(mut self) -> Node {
        self.forwards = true;
        self
    }

    /// What is wrong with it.
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

/// More often would be a load of its own, and finer than the ticks by which sockets wait.
const BEAT_MIN: Span = Span::from_ms(10);
/// One that is late by a beat and one that is lost do not make a lost peer.
const BEATS_MIN: u64 = 4;
/// Other nodes that a level can keep apart ([`Node::nodes_max`]).
pub const NODES_MAX: usize = 1 << 16;
/// Events that can wait at a level.
pub(super) const ROOM_MAX: usize = 1 << 16;

/// Why a node could not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// It would do nothing else.
    #[error("a node that tells its peers every {0} that it is there: 10ms is the least")]
    Beat(Span),
    /// Every peer would be lost again and again.
    #[error(
        "a peer that is told of every {beat} cannot be lost after {lost_after} of silence: that is to be four beats at least"
    )]
    Silence {
        /// How often it tells.
        beat: Span,
        /// After what it is lost.
        lost_after: Span,
    },
    /// Longer payloads than a datagram takes.
    #[error("events of this channel have up to {0} bytes, and a datagram has room for {most} (Options::payload_max)", most = super::wire::PAYLOAD_MAX)]
    Payload(usize),
    /// Nothing could come.
    #[error("a node that hears of no others (nodes_max = 0): 64 is the default")]
    Nobody,
    /// More than are kept apart.
    #[error("a node that keeps {0} others apart; {NODES_MAX} are the most (nodes_max)")]
    Nodes(usize),
    /// An address that is a peer's already.
    #[error("level \"{name}\" has the peer {peer} twice")]
    Peer {
        /// Its name.
        name: String,
        /// The address.
        peer: SocketAddr,
    },
    /// The plan has no such level.
    #[error("level \"{name}\" is to be scheduled as level {level} of the plan, which has {levels}")]
    Level {
        /// Its name.
        name: String,
        /// Which it wants.
        level: usize,
        /// How many there are.
        levels: usize,
    },
    /// The plan has no such CPU.
    #[error("level \"{name}\" is to run on CPU {cpu} of the plan, which has {cpus}, counted from 0")]
    Cpu {
        /// Its name.
        name: String,
        /// Which it wants.
        cpu: u32,
        /// How many there are.
        cpus: u32,
    },
    /// A queue for nothing, or for too much.
    #[error("level \"{name}\" has a queue for {room} events; it can be for 1 to {ROOM_MAX}")]
    Room {
        /// Its name.
        name: String,
        /// For how many.
        room: usize,
    },
    /// Buffers for too much.
    #[error("level \"{name}\" has buffers of {buffer} bytes; {ROOM_BYTES_MAX} are the most")]
    Buffer {
        /// Its name.
        name: String,
        /// Of how many bytes.
        buffer: usize,
    },
    /// Queues that take too much together.
    #[error(
        "the queues of all levels are for {events} events of up to {payload_max} bytes, and take more than {ROOM_BYTES_MAX} bytes: less room (Sending::Queued), or shorter payloads (Options::payload_max)"
    )]
    Queues {
        /// For how many events they are.
        events: usize,
        /// How long these can be.
        payload_max: usize,
    },
    /// Two levels with one name.
    #[error("two levels are named \"{0}\"")]
    Twice(String),
    /// No socket.
    #[error("level \"{name}\": {cause}")]
    Bind {
        /// Which level.
        name: String,
        /// Why.
        cause: BindError,
    },
}

/// Whether two addresses are one host's, for who receives and who sends: IPv4 may be written as IPv6, and IPv6 has more to it than says who sends.
pub(super) fn same(one: SocketAddr, other: SocketAddr) -> bool {
    let scope = |address: SocketAddr| match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let (ours, theirs) = (scope(one), scope(other));
    let hosts = one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port();
    hosts && (ours == theirs || ours == 0 || theirs == 0)
}

/// What a level between nodes has counted.
///
/// A datagram that came is one of `events`, `duplicates`, `old`, `loops`, `strangers` and `malformed`, or a peer's beat.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// The level's name.
    pub name: String,
    /// Where it receives, with the port that the kernel chose where it was to (`None` where it does not tell).
    pub at: Option<SocketAddr>,
    /// Datagrams with events that the kernel has taken, one for each peer.
    pub sent: u64,
    /// Datagrams with events that were dropped here, for want of room in the socket or the queue; and those that waited for room in the socket when the channel was disconnected.
    pub full: u64,
    /// That the kernel refused to send for another cause.
    pub refused: u64,
    /// Datagrams with events that did not leave because their time was over.
    pub stale: u64,
    /// Events that came, each counted once.
    pub events: u64,
    /// Of these, those whose time was over when they came; nobody was given them.
    pub late: u64,
    /// Of these, those that came without a clock in common: what they spent under way did not count against their time.
    pub unsynchronized: u64,
    /// Of these, those that came before they were sent, says the clock in common.
    pub skewed: u64,
    /// Of these, those that went on to another peer.
    pub forwarded: u64,
    /// Events that peers sent and that have not come: dropped there, on the way or here, or still under way.
    pub lost: u64,
    /// Events that came again.
    pub duplicates: u64,
    /// Events so old that nobody knows whether they came before, of a former run of their node, or of one node too many ([`Node::nodes_max`]).
    pub old: u64,
    /// What was this node's own, or had gone through more than 16 nodes.
    pub loops: u64,
    /// Datagrams from others than the level's peers.
    pub strangers: u64,
    /// Datagrams that are none of a node.
    pub malformed: u64,
    /// Datagrams that found no room in the socket; `None` where the kernel does not tell.
    pub overflowed: Option<u32>,
    /// The level's peers, in their order.
    pub peers: Vec<Peer>,
}

/// What is known of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub at: SocketAddr,
    /// Its node's number, once it was heard.
    pub node: Option<u64>,
    /// Whether it is there, as far as is known.
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
        assert_eq!(
            said(&node.clone().beat(Span::ZERO, ms(5))),
            "a node that tells its peers every 0ns that it is there: 10ms is the least"
        );
        assert_eq!(
            said(&node.clone().beat(ms(10), ms(39))),
            "a peer that is told of every 10ms cannot be lost after 39ms of silence: that is to be four beats at least"
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
            "the queues of all levels are for 65536 events of up to 1024 bytes, and take more than 67108864 bytes: less room (Sending::Queued), or shorter payloads (Options::payload_max)"
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
