//! The sockets by which a node sends.
//!
//! Messages of a class leave by one socket to all peers, the *line*. Its small buffer bounds the
//! packets in the queue of the device. But the address of a peer may have no answer. Then the kernel
//! keeps packets to that peer for some seconds, and charges them to their socket. The stamps tell:
//! such a packet has not come to the queue of a device when the send ends. Its socket then belongs to
//! the peer alone, until the packet goes on or the kernel gives up. Another socket becomes the line.
//!
//! The sockets have ports of their own and receive nothing. They are not connected, so no answer of
//! a peer that is down ends a send. Nothing here allocates after construction.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use takt_linux::datagram::{Datagrams, Destination, Sent, Stage};
use takt_linux::seqpacket::Poll;
use takt_model::Span;

use super::NodeError;

/// Messages of a socket whose packets have not left at most, for their stamps to be known.
const TAKEN: usize = 1024;
/// Stamps that wait for the table thread at most.
const STAMPS_MAX: usize = 1024;

/// See the module's documentation.
pub(crate) struct Line {
    /// One more than there are peers.
    sockets: Vec<Outlet>,
    /// The number of the line's.
    line: usize,
    /// By peer: where it is, and the number of its own socket while the kernel keeps packets to it.
    peers: Vec<(Destination, Option<usize>)>,
    /// Packets that have left, of which the table thread has not been told yet.
    left: VecDeque<TransmittedMessage>,
}

/// The form of a line's sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineSpec {
    /// The address from which they send.
    pub(crate) from: SocketAddr,
    pub(crate) priority: u32,
    /// Bytes of their send buffers.
    pub(crate) buffer: usize,
    /// The longest datagram, if the buffers are to be as small as they can.
    pub(crate) little: Option<usize>,
}

/// A packet that has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransmittedMessage {
    pub(crate) message: u64,
    pub(crate) bytes: u32,
    /// On CLOCK_REALTIME in nanoseconds.
    pub(crate) at: u64,
}

/// A socket, and what it has sent.
struct Outlet {
    socket: Datagrams,
    /// The messages that the kernel took last, and their bytes, by their number modulo the length.
    taken: Vec<(u64, u32)>,
    /// How many the kernel took.
    count: u32,
    /// The kernel has refused one. It may have counted it.
    refused: bool,
}

impl Outlet {
    fn open(spec: &LineSpec) -> Result<Outlet, NodeError> {
        let socket = Datagrams::bind_to_send(spec.from, spec.priority, spec.buffer)?;
        let refused = |what: &'static str| move |error: std::io::Error| NodeError::Socket(format!("{what}: {error}"));
        if let Some(longest) = spec.little {
            socket.hold_little(longest).map_err(refused("its send buffer cannot be small"))?;
        }
        let what = "the kernel does not stamp leaving datagrams";
        socket.stamp_queueing_and_transmissions().map_err(refused(what))?;
        Ok(Outlet { socket, taken: vec![(0, 0); TAKEN], count: 0, refused: false })
    }

    /// The message of a stamp.
    fn message(&self, number: u32) -> Option<(u64, u32)> {
        let is_last = self.count.wrapping_sub(number) <= TAKEN as u32;
        self.taken.get(number as usize % TAKEN).filter(|_| is_last && !self.refused).copied()
    }
}

impl Line {
    /// Opens the sockets. `peers`: where they are.
    pub(crate) fn open(spec: &LineSpec, peers: impl IntoIterator<Item = SocketAddr>) -> Result<Line, NodeError> {
        let peers: Vec<_> = peers.into_iter().map(|peer| (peer.into(), None)).collect();
        let sockets = (0..=peers.len()).map(|_| Outlet::open(spec)).collect::<Result<_, _>>()?;
        Ok(Line { sockets, line: 0, peers, left: VecDeque::with_capacity(STAMPS_MAX) })
    }

    /// Whether the kernel keeps packets to a peer.
    pub(crate) fn keeps(&self, peer: usize) -> bool {
        self.own_socket(peer).is_some()
    }

    fn own_socket(&self, peer: usize) -> Option<usize> {
        self.peers.get(peer)?.1
    }

    /// Whether the kernel takes a datagram to a peer to which it keeps none.
    pub(crate) fn has_room(&self) -> bool {
        self.sockets.get(self.line).is_some_and(|line| line.socket.has_room())
    }

    /// Sends a datagram without waiting.
    pub(crate) fn send(&mut self, peer: usize, message: u64, datagram: &[u8]) -> Sent {
        let own = self.own_socket(peer);
        let at = own.unwrap_or(self.line);
        let (Some((to, _)), Some(outlet)) = (self.peers.get(peer), self.sockets.get_mut(at)) else {
            return Sent::Refused;
        };
        let sent = outlet.socket.send([datagram, &[]], to, Span::ZERO);
        if sent != Sent::Yes {
            outlet.refused = true;
            return sent;
        }
        let bytes = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        if let Some(place) = outlet.taken.get_mut(outlet.count as usize % TAKEN) {
            *place = (message, bytes);
        }
        outlet.count = outlet.count.wrapping_add(1);
        if own.is_some() {
            self.look_at(at);
        } else if self.read_stamps(at).1 == 0 && self.has_unsent(at) {
            self.keep(peer);
        }
        sent
    }

    /// The line's socket becomes the peer's.
    fn keep(&mut self, peer: usize) {
        let own = self.line;
        let Some(place) = self.peers.get_mut(peer) else { return };
        place.1 = Some(own);
        let is_free = |at: &usize| self.peers.iter().all(|(_, own)| *own != Some(*at));
        self.line = (0..self.sockets.len()).find(is_free).unwrap_or(own);
    }

    fn has_unsent(&self, at: usize) -> bool {
        self.sockets.get(at).is_some_and(|outlet| outlet.socket.has_unsent())
    }

    /// Reads all stamps. Finds out to which peers the kernel keeps no packets any more. Returns how
    /// many stamps came.
    pub(crate) fn look(&mut self) -> usize {
        // Also of sockets that were a peer's: their last packets may leave later.
        (0..self.sockets.len()).map(|at| self.look_at(at)).sum()
    }

    /// Reads the stamps of a socket. Its peer gives it back if the kernel keeps no packets to that peer.
    fn look_at(&mut self, at: usize) -> usize {
        let (read, queued) = self.read_stamps(at);
        let keeps = queued == 0 && self.has_unsent(at);
        if let Some((_, own)) = self.peers.iter_mut().find(|(_, own)| !keeps && *own == Some(at)) {
            *own = None;
        }
        read
    }

    /// Reads the stamps of a socket: how many came, and how many say that its last packet came to the
    /// queue of a device. If the kernel may have counted a refused one, any packet is the last.
    fn read_stamps(&mut self, at: usize) -> (usize, usize) {
        let Line { sockets, left, .. } = self;
        let Some(outlet) = sockets.get(at) else { return (0, 0) };
        let (mut read, mut queued) = (0, 0);
        for stamp in std::iter::from_fn(|| outlet.socket.transmitted()).take(2 * STAMPS_MAX) {
            read += 1;
            let is_last = outlet.refused || stamp.number == outlet.count.wrapping_sub(1);
            queued += usize::from(stamp.stage == Stage::Queued && is_last);
            let Some((message, bytes)) = outlet.message(stamp.number).filter(|_| stamp.stage == Stage::Left) else {
                continue;
            };
            // If there are too many, the first ones are lost.
            if left.len() == STAMPS_MAX {
                left.pop_front();
            }
            left.push_back(TransmittedMessage { message, bytes, at: stamp.at });
        }
        (read, queued)
    }

    /// The next packet that has left by the stamps.
    pub(crate) fn left(&mut self) -> Option<TransmittedMessage> {
        self.left.pop_front()
    }

    /// Adds the sockets whose stamps may be waited for, and with `for_room` the line with its room.
    pub(crate) fn watch(&self, poll: &mut Poll, for_room: bool) {
        if let Some(line) = self.sockets.get(self.line).filter(|_| for_room) {
            poll.add(line.socket.as_fd(), false, true);
        }
        for own in self.peers.iter().filter_map(|(_, own)| self.sockets.get((*own)?)) {
            poll.add(own.socket.as_fd(), false, false);
        }
    }
}
