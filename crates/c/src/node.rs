//! A node: a channel shares events with those of other processes and machines, by UDP datagrams.

use std::ffi::c_char;
use std::net::SocketAddr;

use takt_dispatch::event::{Clock, Full, Level, NODES_MAX, Node, ROOM_BYTES_MAX, Sending, Traffic};
use takt_model::Span;

use crate::channel::{takt_channel, takt_pattern};
use crate::dispatcher::takt_dispatcher;
use crate::refusal::not_connected;
use crate::status::{CallError, call, free, give, object, object_mut, or_never, takt_status, text};

/// By which clock a node tells when its events leave. Nodes with the same one know how long events
/// were under way, which counts against their time to live and their deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_clock {
    /// CLOCK_MONOTONIC, which processes of one machine share.
    Machine = 0,
    /// CLOCK_TAI, which something else keeps synchronized (PTP) among all nodes that have the same clock_number.
    Synchronized = 1,
    /// None in common with anybody.
    Own = 2,
}

/// How a push sends an event to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_sending {
    /// The pushing thread sends it at once. It is dropped if the socket has no room.
    Direct = 0,
    /// The pushing thread sends it and waits for room in the socket, at most for the event's time
    /// to live and patience_ns. Then it is dropped.
    Patient = 1,
    /// Another thread of the level sends it from a queue. A new event is dropped if the queue is
    /// full.
    QueuedNewest = 2,
    /// The same, but a new event replaces the oldest one if the queue is full.
    QueuedOldest = 3,
}

impl takt_sending {
    /// The policy of this number.
    fn of(number: u32, patience_ns: u64, room: usize) -> Option<Sending> {
        let is = |sending: takt_sending| sending as u32 == number;
        let room = if room > 0 { room } else { ROOM };
        match () {
            () if is(takt_sending::Direct) => Some(Sending::Direct),
            () if is(takt_sending::Patient) => Some(Sending::Patient(or_never(patience_ns))),
            () if is(takt_sending::QueuedNewest) => Some(Sending::Queued { room, full: Full::Newest }),
            () if is(takt_sending::QueuedOldest) => Some(Sending::Queued { room, full: Full::Oldest }),
            () => None,
        }
    }
}

/// Options of a node. All zeros: the default.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_node_options {
    /// By which clock it tells times: a takt_clock.
    pub clock: u32,
    /// For TAKT_CLOCK_SYNCHRONIZED: the number of the clock. Unused otherwise.
    pub clock_number: u64,
    /// The period of its signs of life to peers, on each level: 10 ms or more. Zero: 100 ms.
    pub beat_ns: u64,
    /// After how long a silence a peer is lost: four beats or more. Zero: four beats.
    pub lost_after_ns: u64,
    /// The most other nodes whose received events a level tracks, 65,536 at most. Zero: 64.
    pub nodes_max: usize,
    /// Whether events from one peer go on to the others of the level. Without room they are then
    /// dropped, whatever the level's takt_sending.
    pub forwards: bool,
}

/// The traffic between nodes at one level of urgency, with its own socket and thread. Zero is a
/// value for all but `name` and `at`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_level {
    /// Its name, which no other level of the node has.
    pub name: *const c_char,
    /// The address for receiving and sending: "10.0.0.1:7000" or "[fe80::1%2]:7000". Port 0: the
    /// kernel chooses a port, and takt_traffic reports it.
    pub at: *const c_char,
    /// The addresses of the same level of other nodes (1,024 at most). Datagrams from other
    /// addresses are dropped. May be null where there are none.
    pub peers: *const *const c_char,
    /// How many there are.
    pub peer_count: usize,
    /// The patterns of the events that go to all peers (1,024 at most). May be null for a level
    /// that only receives.
    pub sends: *const takt_pattern,
    /// How many there are.
    pub send_count: usize,
    /// The level of the dispatcher's plan as whose threads its own is scheduled; 0 is the most urgent.
    pub level: usize,
    /// Whether its threads run on `cpu` alone.
    pub pinned: bool,
    /// The plan's CPU, from 0; unused where it is not pinned.
    pub cpu: u32,
    /// Whether it sends with SO_PRIORITY 0; then so_priority is unused.
    pub unprioritized: bool,
    /// SO_PRIORITY of its packets, for queueing disciplines. More than 6 needs CAP_NET_ADMIN. Zero:
    /// 6.
    pub so_priority: u32,
    /// How a push sends: a takt_sending.
    pub sending: u32,
    /// For TAKT_SENDING_PATIENT: the longest wait of a push for room. Zero: as long as it takes.
    pub patience_ns: u64,
    /// For TAKT_SENDING_QUEUED_*: how many events can wait, 65,536 at most. Zero: 64.
    pub room: usize,
    /// Bytes of the socket's buffers, each way, 64 MiB at most. Zero: 256 KiB.
    pub buffer: usize,
}

/// A future process among others that share events: takt_channel_connect_as connects as this node.
pub struct takt_node(Node);

/// Counters of a level since the channel was connected.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_traffic {
    /// Datagrams with events that the kernel has taken, one for each peer.
    pub sent: u64,
    /// Datagrams with events that were dropped here, for want of room in the socket or the queue.
    pub full: u64,
    /// Datagrams with events that the kernel refused to send for another cause.
    pub refused: u64,
    /// Datagrams with events that did not leave because their time was over.
    pub stale: u64,
    /// Events that came, each counted once.
    pub events: u64,
    /// Received events whose time was over on arrival. No consumer got them.
    pub late: u64,
    /// Received events without a common clock. Their time under way did not count against their
    /// time.
    pub unsynchronized: u64,
    /// Received events that, by the common clock, came before they were sent.
    pub skewed: u64,
    /// Received events that went on to another peer.
    pub forwarded: u64,
    /// Events that peers sent and that have not come: dropped there, on the way or here, or still under way.
    pub lost: u64,
    /// Events that came again.
    pub duplicates: u64,
    /// Events so old that nobody knows whether they came before, of a former run of their node, or
    /// of one node too many (nodes_max).
    pub old: u64,
    /// This node's own events, and events that had gone through more than 16 nodes.
    pub loops: u64,
    /// Datagrams from others than the level's peers.
    pub strangers: u64,
    /// Datagrams that are none of a node.
    pub malformed: u64,
    /// Datagrams that found no room in the socket; all ones where the kernel does not tell.
    pub overflowed: u64,
    /// The port at which it receives; zero where the kernel does not tell.
    pub port: u16,
    /// How many peers it has.
    pub peers: usize,
}

/// Known facts about a peer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_peer {
    /// Its node's number, once it was heard.
    pub node: u64,
    /// Whether it was.
    pub heard: bool,
    /// Whether it is there, as far as is known.
    pub is_there: bool,
}

/// The most peers, and the most patterns, of a level.
const PEERS_MAX: usize = 1024;
/// Events that wait at a level where nothing else is said.
const ROOM: usize = 64;

/// A node of this number, which no other node has, without levels. `options` may be null.
///
/// # Safety
/// `options` is null or can be read, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_node_new(
    id: u64,
    options: *const takt_node_options,
    into: *mut *mut takt_node,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let asked = unsafe { options.as_ref() }.copied().unwrap_or_default();
        let default = Node::new(id);
        let is = |clock: takt_clock| clock as u32 == asked.clock;
        let clock = match () {
            () if is(takt_clock::Machine) => Clock::Machine,
            () if is(takt_clock::Synchronized) => Clock::Synchronized(asked.clock_number),
            () if is(takt_clock::Own) => Clock::Own,
            () => return Err(CallError::invalid("the node has no takt_clock")),
        };
        if asked.nodes_max > NODES_MAX {
            let text = format_args!("a level keeps at most {NODES_MAX} nodes apart, and not {}", asked.nodes_max);
            return Err(CallError::invalid(text));
        }
        let or = |ns: u64, default: Span| if ns > 0 { Span::from_ns(ns) } else { default };
        let beat = or(asked.beat_ns, default.beat);
        let lost_after = or(asked.lost_after_ns, Span::from_ns(beat.as_ns().saturating_mul(4)));
        let nodes_max = if asked.nodes_max > 0 { asked.nodes_max } else { default.nodes_max };
        let node = Node { clock, beat, lost_after, nodes_max, forwards: asked.forwards, ..default };
        // SAFETY: by this function's condition.
        unsafe { give(into, takt_node(node)) }
    })
}

/// Adds a level. Whether it fits the dispatcher's plan takt_channel_connect_as tells.
///
/// # Safety
/// `node` came from takt_node_new; `level` can be read, its strings are strings, and its pointers
/// point to as many as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_node_add(node: *mut takt_node, level: *const takt_level) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let (node, level) = unsafe { (object_mut(node, "the node")?, level_of(object(level, "the level")?)?) };
        node.0.levels.push(level);
        Ok(())
    })
}

/// A level of C's.
///
/// # Safety
/// Its strings are null or strings, and its pointers are null or point to as many as it says.
unsafe fn level_of(level: &takt_level) -> Result<Level, CallError> {
    // SAFETY: by this function's condition, here and below.
    let name = unsafe { text(level.name, "the level's name") }?;
    let many = |count: usize, is_null: bool, what: &str| match count {
        0 => Ok(()),
        _ if is_null => Err(CallError::invalid(format_args!("the {what} of level \"{name}\" are a null pointer"))),
        _ if count > PEERS_MAX => {
            Err(CallError::invalid(format_args!("level \"{name}\" has {count} {what}; {PEERS_MAX} are the most")))
        }
        _ => Ok(()),
    };
    many(level.peer_count, level.peers.is_null(), "peers")?;
    many(level.send_count, level.sends.is_null(), "patterns")?;
    // SAFETY: as above.
    let mut made = Level::new(name, unsafe { address(name, level.at) }?);
    for at in 0..level.peer_count {
        // SAFETY: as above; there are so many.
        made.peers.push(unsafe { address(name, level.peers.add(at).read()) }?);
    }
    for at in 0..level.send_count {
        // SAFETY: as above; there are so many.
        made.sends.push(unsafe { level.sends.add(at).read() }.pattern());
    }
    let sending = takt_sending::of(level.sending, level.patience_ns, level.room);
    made.sending = sending.ok_or_else(|| CallError::invalid(format_args!("level \"{name}\" has no takt_sending")))?;
    made.level = level.level;
    made.cpu = level.pinned.then_some(level.cpu);
    made.so_priority = match level.so_priority {
        _ if level.unprioritized => 0,
        0 => made.so_priority,
        priority => priority,
    };
    if level.buffer > ROOM_BYTES_MAX {
        return Err(CallError::invalid(format_args!("the buffers of level \"{name}\" have more than 64 MiB")));
    }
    made.buffer = if level.buffer > 0 { level.buffer } else { made.buffer };
    Ok(made)
}

/// An address of a level.
///
/// # Safety
/// `at` is null or a string.
unsafe fn address(level: &str, at: *const c_char) -> Result<SocketAddr, CallError> {
    // SAFETY: by this function's condition.
    let at = unsafe { text(at, &format!("an address of level \"{level}\"")) }?;
    at.parse().map_err(|_| {
        let text = "is no address with a port, such as 10.0.0.1:7000 or [fe80::1%2]:7000";
        CallError::invalid(format_args!("level \"{level}\": \"{at}\" {text}"))
    })
}

/// Frees a node; a null pointer is no harm. A channel that is connected as it stays so.
///
/// # Safety
/// It came from takt_node_new, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_node_free(node: *mut takt_node) {
    // SAFETY: by this function's condition.
    unsafe { free(node) }
}

/// Whether a push may have to wait for the network, at a level with this takt_sending and
/// patience_ns; so it may where the number is none of a takt_sending.
#[unsafe(no_mangle)]
pub extern "C" fn takt_sending_may_block(sending: u32, patience_ns: u64) -> bool {
    takt_sending::of(sending, patience_ns, ROOM).is_none_or(Sending::may_block)
}

/// Whether such a level may drop an event that is pushed here and does not expire, for lack of
/// room. True also if the number is no takt_sending. If a push waits for room while the channel is
/// disconnected, its event is dropped at any level.
#[unsafe(no_mangle)]
pub extern "C" fn takt_sending_may_drop(sending: u32, patience_ns: u64) -> bool {
    takt_sending::of(sending, patience_ns, ROOM).is_none_or(Sending::may_drop)
}

/// As takt_channel_connect, and shares events with other nodes. A node that cannot be is
/// TAKT_STATUS_INVALID; a socket that is refused is TAKT_STATUS_REFUSED, or TAKT_STATUS_PRIVILEGE.
/// Queues of all levels together may take 64 MiB.
///
/// # Safety
/// `channel`, `node` and `dispatcher` came from calls that make them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_connect_as(
    channel: *mut takt_channel,
    node: *const takt_node,
    dispatcher: *const takt_dispatcher,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object_mut(channel, "the channel") }?;
        // SAFETY: as above.
        let node = &unsafe { object(node, "the node") }?.0;
        // SAFETY: as above.
        let dispatcher = unsafe { object(dispatcher, "the dispatcher") }?;
        let connected = channel.channel.connect_as(node, dispatcher.runs()?);
        channel.connected = Some(connected.map_err(|error| not_connected(&error))?);
        Ok(())
    })
}

/// The counters of a level so far. TAKT_STATUS_STOPPED while the channel is not connected.
///
/// # Safety
/// `channel` came from takt_channel_new, `level` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_traffic(
    channel: *const takt_channel,
    level: *const c_char,
    into: *mut takt_traffic,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let traffic = unsafe { traffic_of(channel, level) }?;
        // SAFETY: as above.
        *unsafe { object_mut(into, "the pointer to the traffic") }? = takt_traffic {
            sent: traffic.sent,
            full: traffic.full,
            refused: traffic.refused,
            stale: traffic.stale,
            events: traffic.events,
            late: traffic.late,
            unsynchronized: traffic.unsynchronized,
            skewed: traffic.skewed,
            forwarded: traffic.forwarded,
            lost: traffic.lost,
            duplicates: traffic.duplicates,
            old: traffic.old,
            loops: traffic.loops,
            strangers: traffic.strangers,
            malformed: traffic.malformed,
            overflowed: traffic.overflowed.map_or(u64::MAX, u64::from),
            port: traffic.at.map_or(0, |at| at.port()),
            peers: traffic.peers.len(),
        };
        Ok(())
    })
}

/// The counters of a level of a connected channel.
///
/// # Safety
/// `channel` is null or came from takt_channel_new, `level` is null or a string.
unsafe fn traffic_of(channel: *const takt_channel, level: *const c_char) -> Result<Traffic, CallError> {
    // SAFETY: by this function's condition, here and below.
    let (channel, name) = unsafe { (object(channel, "the channel")?, text(level, "the level's name")?) };
    let connected = channel.connected.as_ref();
    let connected = connected.ok_or_else(|| CallError::new(takt_status::Stopped, "the channel is not connected"))?;
    let found = connected.traffic().into_iter().find(|traffic| traffic.name == name);
    found.ok_or_else(|| CallError::invalid(format_args!("the channel's node has no level \"{name}\"")))
}

/// The known facts about a level's peer, counted from 0 in the order of takt_level.
/// TAKT_STATUS_STOPPED while the channel is not connected.
///
/// # Safety
/// `channel` came from takt_channel_new, `level` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_peer(
    channel: *const takt_channel,
    level: *const c_char,
    peer: usize,
    into: *mut takt_peer,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let traffic = unsafe { traffic_of(channel, level) }?;
        let (name, there) = (&traffic.name, traffic.peers.len());
        let none = || {
            CallError::invalid(format_args!("level \"{name}\" has no peer {peer}; there are {there}, counted from 0"))
        };
        let known = traffic.peers.get(peer).ok_or_else(none)?;
        // SAFETY: as above.
        *unsafe { object_mut(into, "the pointer to the peer") }? =
            takt_peer { node: known.node.unwrap_or_default(), heard: known.node.is_some(), is_there: known.is_there };
        Ok(())
    })
}
