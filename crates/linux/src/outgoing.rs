//! A program's UDP or TCP socket for the sender of its messages: the amount that the kernel still
//! holds, and a send that never waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, SockRef, Type};
use thiserror::Error;

use crate::datagram::Destination;

/// How a socket carries bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// UDP: whole datagrams.
    Datagram,
    /// TCP: a stream of bytes.
    Stream,
}

/// Why a descriptor cannot send messages with deadlines.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutgoingError {
    /// Not an internet socket.
    #[error("the descriptor is no UDP or TCP socket; give one of AF_INET or AF_INET6")]
    Kind,
    /// A stream without a peer.
    #[error("the TCP socket is not connected: {0}; connect it first")]
    Unconnected(io::Error),
    /// The kernel refused an option.
    #[error("the kernel refused {what} of the socket: {cause}")]
    Refused {
        /// The option.
        what: &'static str,
        /// What it answered.
        cause: io::Error,
    },
}

/// The result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The kernel took that many bytes: of a datagram all, of a stream perhaps fewer.
    Taken(usize),
    /// There is no room.
    Full,
    /// The kernel refused, with this errno.
    Refused(i32),
}

/// Options of a socket before [`Outgoing::narrow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedOptions {
    /// SO_SNDBUF of a datagram socket, TCP_NOTSENT_LOWAT of a stream.
    value: u32,
    priority: u32,
}

/// Device and inode of an open file, which only descriptors of the same file have. `None`: the
/// descriptor is not open.
#[must_use]
pub fn identity(descriptor: BorrowedFd<'_>) -> Option<(u64, u64)> {
    // SAFETY: stat is plain data for which zero is valid.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `about` may be written. The kernel refuses a number that is no descriptor.
    let told = unsafe { libc::fstat(descriptor.as_raw_fd(), &raw mut about) } == 0;
    // Some machines have other types here.
    #[allow(clippy::unnecessary_cast)]
    let identity = (about.st_dev as u64, about.st_ino as u64);
    told.then_some(identity)
}

/// The socket. It shares its options with the program's descriptor.
#[derive(Debug)]
pub struct Outgoing {
    socket: OwnedFd,
    transport: Transport,
}

impl Outgoing {
    /// Takes a descriptor of a socket.
    ///
    /// # Errors
    /// It is no UDP or TCP socket, or an unconnected TCP socket.
    pub fn new(socket: OwnedFd) -> Result<Outgoing, OutgoingError> {
        let kind = SockRef::from(&socket);
        let domain = kind.domain().map_err(|_| OutgoingError::Kind)?;
        if domain != Domain::IPV4 && domain != Domain::IPV6 {
            return Err(OutgoingError::Kind);
        }
        let transport = match (kind.r#type(), kind.protocol()) {
            (Ok(Type::DGRAM), Ok(Some(Protocol::UDP))) => Transport::Datagram,
            (Ok(Type::STREAM), Ok(Some(Protocol::TCP))) => {
                kind.peer_addr().map_err(OutgoingError::Unconnected)?;
                Transport::Stream
            }
            _ => return Err(OutgoingError::Kind),
        };
        Ok(Outgoing { socket, transport })
    }

    /// How it carries bytes.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Makes the kernel's send buffer as small as possible, so that takt decides the order.
    /// A datagram socket gets the smallest SO_SNDBUF. A stream reports room only when all bytes have
    /// left (TCP_NOTSENT_LOWAT = 1).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn narrow(&self) -> Result<SavedOptions, OutgoingError> {
        let refused = |what| move |cause| OutgoingError::Refused { what, cause };
        let socket = SockRef::from(&self.socket);
        let priority = socket.priority().map_err(refused("SO_PRIORITY"))?;
        let value = match self.transport {
            Transport::Datagram => {
                let former = socket.send_buffer_size().map_err(refused("SO_SNDBUF"))?;
                socket.set_send_buffer_size(0).map_err(refused("SO_SNDBUF"))?;
                // The kernel doubles what it is asked for.
                u32::try_from(former / 2).unwrap_or(u32::MAX)
            }
            Transport::Stream => {
                let former = socket.tcp_notsent_lowat().map_err(refused("TCP_NOTSENT_LOWAT"))?;
                socket.set_tcp_notsent_lowat(1).map_err(refused("TCP_NOTSENT_LOWAT"))?;
                former
            }
        };
        Ok(SavedOptions { value, priority })
    }

    /// Gives back the options from before [`Outgoing::narrow`].
    pub fn restore(&self, former: SavedOptions) {
        let socket = SockRef::from(&self.socket);
        let _ = match self.transport {
            Transport::Datagram => socket.set_send_buffer_size(former.value as usize),
            Transport::Stream => socket.set_tcp_notsent_lowat(former.value),
        };
        let _ = socket.set_priority(former.priority);
    }

    /// Sets the SO_PRIORITY of what is sent. Values above 6 need CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_priority(&self, priority: u32) -> Result<(), OutgoingError> {
        let refused = |cause| OutgoingError::Refused { what: "SO_PRIORITY", cause };
        SockRef::from(&self.socket).set_priority(priority).map_err(refused)
    }

    /// Memory of the packets that the kernel took and that have not left this machine: at least 768
    /// bytes each. Bytes of a stream that TCP holds back do not count, because they wait for the
    /// peer and not for the line.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        let memory = match self.transport {
            Transport::Datagram => self.ask(libc::TIOCOUTQ),
            Transport::Stream => self.memory_of_segments(),
        };
        memory.unwrap_or(0)
    }

    /// The same for a stream, whose TIOCOUTQ also counts bytes that the peer has not confirmed
    /// (SO_MEMINFO, Linux 4.12).
    fn memory_of_segments(&self) -> Option<u64> {
        let mut info = [0_u32; 9];
        let mut size = size_of_val(&info) as libc::socklen_t;
        // SAFETY: `info` has `size` bytes that the call may write, and both outlive it.
        let result = unsafe {
            let into = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, into, &raw mut size)
        };
        // Zero if the kernel tells fewer values.
        info.get(libc::SK_MEMINFO_WMEM_ALLOC as usize).filter(|_| result == 0).map(|bytes| u64::from(*bytes))
    }

    fn ask(&self, what: libc::c_ulong) -> Option<u64> {
        let mut value: libc::c_int = 0;
        // SAFETY: the descriptor is open, and these requests write one int.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), what as _, &raw mut value) };
        if result == 0 { u64::try_from(value).ok() } else { None }
    }

    /// Bytes that the kernel has taken of a stream since an instant that stays the same for this
    /// connection; only differences mean something. `None` for datagrams, and if the kernel does
    /// not tell.
    #[must_use]
    pub fn taken(&self) -> Option<u64> {
        if self.transport == Transport::Datagram {
            return None;
        }
        // Bytes are confirmed meanwhile, but not for ever.
        for _ in 0..1000 {
            let confirmed = self.confirmed()?;
            let on_their_way = self.ask(libc::TIOCOUTQ)?;
            if self.confirmed()? == confirmed {
                return confirmed.checked_add(on_their_way);
            }
        }
        None
    }

    /// Bytes that the peer has confirmed (tcpi_bytes_acked, Linux 4.1).
    fn confirmed(&self) -> Option<u64> {
        /// Where it lies in tcp_info (linux/tcp.h).
        const BYTES_ACKED: usize = 120;
        let mut info = [0_u8; BYTES_ACKED + 8];
        let mut size = info.len() as libc::socklen_t;
        // SAFETY: `info` has `size` bytes that the call may write, and both outlive it.
        let result = unsafe {
            let into = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut size)
        };
        let bytes = info.get(BYTES_ACKED..).and_then(|bytes| bytes.try_into().ok());
        bytes.filter(|_| result == 0 && size as usize == info.len()).map(u64::from_ne_bytes)
    }

    /// Whether the program's own sends on this socket do not wait (O_NONBLOCK).
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        SockRef::from(&self.socket).nonblocking().unwrap_or(false)
    }

    /// Sends without waiting; a datagram to `to` or to the connected peer.
    pub fn send(&self, bytes: &[u8], to: Option<&Destination>) -> Outcome {
        let socket = SockRef::from(&self.socket);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let mut has_grown = false;
        loop {
            let sent = match to {
                Some(to) => socket.send_to_with_flags(bytes, to.raw(), flags),
                None => socket.send_with_flags(bytes, flags),
            };
            let Err(error) = sent else { return Outcome::Taken(sent.unwrap_or(0)) };
            match error.raw_os_error().unwrap_or(0) {
                libc::EINTR => {}
                // A datagram of many fragments does not fit into the smallest buffer.
                libc::ENOBUFS if self.transport == Transport::Datagram && !has_grown => {
                    has_grown = true;
                    let _ = socket.set_send_buffer_size(bytes.len().saturating_mul(2));
                }
                libc::EAGAIN | libc::ENOBUFS => return Outcome::Full,
                other => return Outcome::Refused(other),
            }
        }
    }
}

impl AsFd for Outgoing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn only_udp_and_connected_tcp_can_send() {
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(matches!(Outgoing::new(pipe.into()), Err(OutgoingError::Kind)));
        let unix = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(matches!(Outgoing::new(unix.into()), Err(OutgoingError::Kind)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(matches!(Outgoing::new(listener.into()), Err(OutgoingError::Unconnected(_))));
    }

    #[test]
    fn a_datagram_socket_is_narrowed_and_gets_its_options_back() {
        let (socket, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let before = (SockRef::from(&socket).send_buffer_size().unwrap(), SockRef::from(&socket).priority().unwrap());
        let outgoing = Outgoing::new(socket.try_clone().unwrap().into()).unwrap();
        assert_eq!((outgoing.transport(), outgoing.taken()), (Transport::Datagram, None));
        let former = outgoing.narrow().unwrap();
        outgoing.set_priority(6).unwrap();
        assert!(SockRef::from(&socket).send_buffer_size().unwrap() < before.0);
        let to = Destination::from(other.local_addr().unwrap());
        assert_eq!(outgoing.send(b"seven b", Some(&to)), Outcome::Taken(7));
        // Many fragments: the buffer grows.
        assert_eq!(outgoing.send(&[1; 60_000], Some(&to)), Outcome::Taken(60_000));
        assert_eq!(outgoing.send(b"nowhere", None), Outcome::Refused(libc::EDESTADDRREQ));
        let mut bytes = [0; 65_536];
        assert_eq!((other.recv(&mut bytes).unwrap(), other.recv(&mut bytes).unwrap()), (7, 60_000));
        outgoing.restore(former);
        let after = (SockRef::from(&socket).send_buffer_size().unwrap(), SockRef::from(&socket).priority().unwrap());
        assert_eq!(after, before);
    }

    #[test]
    fn bytes_that_the_kernel_took_of_a_stream_are_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let outgoing = Outgoing::new(stream.try_clone().unwrap().into()).unwrap();
        let former = outgoing.narrow().unwrap();
        let base = outgoing.taken().unwrap();
        stream.write_all(&[0; 1000]).unwrap();
        assert_eq!(outgoing.taken().unwrap() - base, 1000);
        // The peer reads nothing: at last there is no room.
        let mut more = 0;
        while let Outcome::Taken(bytes) = outgoing.send(&[0; 65_536], None) {
            more += bytes as u64;
        }
        assert_eq!(outgoing.taken().unwrap() - base, 1000 + more);
        let mut left = 1000 + more;
        while left > 0 {
            left -= peer.read(&mut [0; 65_536]).unwrap() as u64;
        }
        assert_eq!(outgoing.taken().unwrap() - base, 1000 + more, "what is confirmed changes nothing");
        outgoing.restore(former);
        drop(peer);
    }
}
