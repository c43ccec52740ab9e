//! The specification, errors and counters of a broker.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};

use takt_linux::outgoing::{Outgoing, OutgoingError};
use takt_model::Rate;
use takt_net::{LateRule, Order, QueueError};
use thiserror::Error;

/// A broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerSpec {
    /// Where it listens.
    pub path: PathBuf,
    /// The order in which messages leave.
    pub order: Order,
    /// The rule for late datagrams. Bytes of streams are always sent.
    pub late: LateRule,
    /// The rate of the line, or of its class. With a rate, a datagram is late if it would finish
    /// after its deadline. Without a rate, it is late when its deadline has passed.
    pub rate: Option<Rate>,
    /// The SO_PRIORITY that sockets get; `None`: they keep theirs.
    pub priority: Option<u32>,
    /// The most sockets at once. Of each, [`takt_dispatch::deadline::wire::WAITING_MAX`] messages wait at most.
    pub sockets: usize,
    /// While that many bytes of packets wait in the kernel, no other message goes there. The
    /// kernel counts their memory: 768 bytes and more each.
    pub unsent: u64,
}

impl BrokerSpec {
    /// A broker in the order of deadlines, that drops late datagrams.
    #[must_use]
    pub fn new(path: &Path) -> BrokerSpec {
        BrokerSpec {
            path: path.to_owned(),
            order: Order::Edf,
            late: LateRule::Drop,
            rate: None,
            priority: None,
            sockets: 1024,
            unsent: 2304,
        }
    }
}

/// Why there is no broker.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The socket file.
    #[error("no broker can listen at {path}: {cause}{}", hint(.cause))]
    Listen {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A limit.
    #[error("the broker's limits: {0}")]
    Limit(#[from] QueueError),
    /// The priority.
    #[error("sockets cannot get priority {priority}: {cause}; above 6 it needs CAP_NET_ADMIN: run as root (sudo)")]
    Priority {
        /// The SO_PRIORITY.
        priority: u32,
        /// The kernel's answer.
        cause: io::Error,
    },
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "; another broker listens there: stop it, or give another path",
        io::ErrorKind::PermissionDenied => "; run as root, or give a path in a folder that you may write",
        io::ErrorKind::NotFound => "; its folder does not exist: make it, or give another path",
        _ => "",
    }
}

/// Counters of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BrokerStats {
    /// Clients that came.
    pub clients: u64,
    /// Clients whose connection was ended because of a request that makes no sense.
    pub malformed: u64,
    /// Sockets that came.
    pub sockets: u64,
    /// Messages that the kernel took.
    pub sent: u64,
    /// Bytes sent, with those of stream messages that the kernel took in part.
    pub bytes: u64,
    /// Datagrams dropped because they were late.
    pub late: u64,
    /// Messages that the kernel refused, or whose client or broker ended before them.
    pub refused: u64,
    /// The most messages that waited at once.
    pub waiting_max: usize,
}

/// Whether this process may give sockets that priority.
pub(super) fn may_set(priority: u32) -> io::Result<()> {
    let socket = Outgoing::new(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.into());
    match socket.and_then(|socket| socket.set_priority(priority)) {
        Ok(()) => Ok(()),
        Err(OutgoingError::Refused { cause, .. }) => Err(cause),
        Err(error) => Err(io::Error::other(error)),
    }
}
