//! Datagram sockets (UDP) for messages with deadlines: a priority for sent packets, a bound on
//! every wait, and a count of dropped packets.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, Type};
use takt_model::Span;
use thiserror::Error;

mod asked;
mod chunk;
mod group;
mod transmitted;

pub use chunk::{Chunk, ReceivedDatagram};
pub use group::{GroupSending, device_number};
pub use transmitted::{Stage, Transmitted};

/// Why there is no socket.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The kernel refused the address.
    #[error("datagrams to {at} cannot be received: {cause}{}", remedy(cause))]
    Address {
        /// The address.
        at: SocketAddr,
        /// What it answered.
        cause: io::Error,
    },
    /// The kernel refused a socket that sends only.
    #[error("datagrams from {at} cannot be sent: {cause}")]
    Sending {
        /// The address.
        at: SocketAddr,
        /// What it answered.
        cause: io::Error,
    },
    /// Only privileged processes may set this priority.
    #[error(
        "datagrams from {at} cannot have the priority {priority}: {cause}; those from 0 to 6 are for everybody, \
         others need CAP_NET_ADMIN"
    )]
    Priority {
        /// The address of the socket.
        at: SocketAddr,
        /// The requested priority.
        priority: u32,
        /// What it answered.
        cause: io::Error,
    },
}

impl BindError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        let (BindError::Address { cause, .. } | BindError::Sending { cause, .. } | BindError::Priority { cause, .. }) =
            self;
        cause.kind() == io::ErrorKind::PermissionDenied
    }
}

/// The remedy where the kernel refused an address. It begins with a semicolon. Empty: there is none.
#[must_use]
pub fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there: end it, or give another port",
        io::ErrorKind::AddrNotAvailable => "; give an address of this machine",
        io::ErrorKind::PermissionDenied => "; give a port from 1024 on, or run as root (sudo)",
        _ => "",
    }
}

/// The result of sending a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The kernel took the datagram. Queues of devices and the network may still drop it.
    Yes,
    /// The socket had no room for it.
    Full,
    /// The kernel refused it for another cause: no way to the address, a device that is down, or
    /// more bytes than the network takes.
    Refused,
}

/// An address to send to.
#[derive(Clone, Debug)]
pub struct Destination {
    at: SocketAddr,
    raw: SockAddr,
    /// The own address that datagrams come from; `None`: the kernel chooses.
    from: Option<IpAddr>,
}

impl From<SocketAddr> for Destination {
    fn from(at: SocketAddr) -> Destination {
        Destination { at, raw: at.into(), from: None }
    }
}

impl Destination {
    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn raw(&self) -> &SockAddr {
        &self.raw
    }
}

/// A bound socket, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
}

impl Datagrams {
    /// Binds a socket to `at`. It sends with SO_PRIORITY `priority`, which queueing disciplines
    /// read. The kernel is asked for buffers of `buffer` bytes each way; it doubles that number and
    /// has limits (socket(7)). A receive waits at most `wait`, in steps of the kernel's ticks.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn bind(at: SocketAddr, priority: u32, buffer: usize, wait: Span) -> Result<Datagrams, BindError> {
        let refused = |cause| BindError::Address { at, cause };
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP)).map_err(refused)?;
        socket.set_priority(priority).map_err(|cause| BindError::Priority { at, priority, cause })?;
        socket.set_recv_buffer_size(buffer).map_err(refused)?;
        socket.set_send_buffer_size(buffer).map_err(refused)?;
        // A timeout of zero would mean no timeout.
        let wait = Duration::from_nanos(wait.as_ns().max(1_000));
        socket.set_read_timeout(Some(wait)).map_err(refused)?;
        socket.bind(&at.into()).map_err(refused)?;
        Ok(Datagrams { socket: socket.into() })
    }

    /// A socket that sends from the address `at`, from a port that the kernel chooses. It receives nothing: what
    /// comes to its port is dropped. `priority` and `buffer` are as for [`Datagrams::bind`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn bind_to_send(mut at: SocketAddr, priority: u32, buffer: usize) -> Result<Datagrams, BindError> {
        /// A filter of one step that takes no byte of any datagram.
        const NOTHING: SockFilter = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
        at.set_port(0);
        let refused = |cause| BindError::Sending { at, cause };
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP)).map_err(refused)?;
        socket.set_priority(priority).map_err(|cause| BindError::Priority { at, priority, cause })?;
        socket.set_send_buffer_size(buffer).map_err(refused)?;
        socket.attach_filter(&[NOTHING]).map_err(refused)?;
        socket.bind(&at.into()).map_err(refused)?;
        Ok(Datagrams { socket: socket.into() })
    }

    /// The SO_PRIORITY of sent datagrams, as the kernel has it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn priority(&self) -> io::Result<u32> {
        SockRef::from(&self.socket).priority()
    }

    /// The socket's address, with the port that the kernel chose for port zero.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends one datagram of these parts, waiting for room in the socket for `wait` at most; zero: not at all.
    pub fn send(&self, parts: [&[u8]; 2], to: &Destination, wait: Span) -> Sent {
        let parts = parts.map(IoSlice::new);
        let until = crate::clock::monotonic_ns().saturating_add(wait.as_ns());
        loop {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let sent = match to.from {
                None => SockRef::from(&self.socket).send_to_vectored_with_flags(&parts, &to.raw, flags),
                Some(from) => self.send_from(&parts, to, from, flags),
            };
            let Err(error) = sent else { return Sent::Yes };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(cause @ (libc::EAGAIN | libc::ENOBUFS)) => {
                    let left = until.saturating_sub(crate::clock::monotonic_ns());
                    if left == 0 {
                        return Sent::Full;
                    }
                    // If only memory is missing (ENOBUFS), poll would report room at once. So sleep
                    // instead.
                    if cause == libc::ENOBUFS {
                        crate::clock::pause(Span::from_ms(1).min(Span::from_ns(left)));
                    } else {
                        self.await_room(Span::from_ns(left));
                    }
                }
                _ => return Sent::Refused,
            }
        }
    }

    /// Gives the socket a small send buffer. The kernel then takes the next datagram when at most 2 KiB or so of
    /// earlier ones wait. With a `longest` above that the limit is `longest`, so that such a datagram fits.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn hold_little(&self, longest: usize) -> io::Result<()> {
        SockRef::from(&self.socket).set_send_buffer_size(longest)
    }

    /// Whether the kernel still has datagrams of this socket: in the queue of a device, or because it looks for the
    /// address of their neighbour.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        let mut value: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the request writes one int.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut value) };
        result == 0 && value > 0
    }

    /// Whether the kernel takes a datagram now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.poll(libc::POLLOUT, Span::ZERO)
    }

    /// Sleeps until the socket has room, or about `wait`.
    pub fn await_room(&self, wait: Span) {
        self.poll(libc::POLLOUT, wait);
    }

    /// Receives a datagram: its length and its sender. A longer datagram is cut to the size of
    /// `into`. `None` after the wait given to [`Datagrams::bind`], or at a signal.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(into) {
            Ok(came) => Ok(Some(came)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Receives without waiting.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn receive_now(&self, into: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        // SAFETY: initialised bytes may be seen as `MaybeUninit`. The call writes whole bytes, so they stay
        // initialised.
        let into = unsafe { &mut *(std::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) };
        match SockRef::from(&self.socket).recv_from_with_flags(into, libc::MSG_DONTWAIT) {
            Ok((length, from)) => Ok(from.as_socket().map(|from| (length, from))),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Lets the kernel stamp each datagram at its arrival, for [`Datagrams::await_stamped`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn stamp(&self) -> io::Result<()> {
        set_option(&self.socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)
    }

    /// Receives after the wait given to [`Datagrams::bind`] at most: length, sender, and the
    /// kernel's stamp of the arrival on CLOCK_REALTIME in nanoseconds, where it gave one. A longer
    /// datagram is cut.
    pub fn await_stamped(&self, into: &mut [u8]) -> Option<(usize, SocketAddr, Option<u64>)> {
        self.stamped(into, 0).map(|(length, from, stamp)| (length, from.at, stamp))
    }

    /// Length, sender and stamp of a datagram. With [`Datagrams::answer_as_asked`] the sender is where
    /// an answer goes, from the address that was asked.
    fn stamped(&self, into: &mut [u8], flags: libc::c_int) -> Option<(usize, Destination, Option<u64>)> {
        #[repr(align(8))]
        struct Control([u8; 128]);
        let mut control = Control([0; 128]);
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let (mut stamp, mut asked) = (None, None);
        let mut received = |storage: *mut libc::sockaddr_storage, size: *mut libc::socklen_t| {
            // SAFETY: msghdr is plain data for which zero is valid.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            header.msg_name = storage.cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len() as _;
            // SAFETY: `header` names memory that may be written and outlives the call.
            let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, flags) };
            let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
            // SAFETY: `size` may be written. The macros walk over whole control messages, which the kernel has
            // written; a stamp is a timespec.
            unsafe {
                size.write(header.msg_namelen);
                let mut at = libc::CMSG_FIRSTHDR(&raw const header);
                while let Some(message) = at.as_ref() {
                    if message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_TIMESTAMPNS {
                        let time = libc::CMSG_DATA(at).cast::<libc::timespec>().read_unaligned();
                        let seconds = u64::try_from(time.tv_sec).ok();
                        stamp = seconds.and_then(|s| s.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec as u64));
                    }
                    asked = asked::address(message, libc::CMSG_DATA(at)).or(asked);
                    at = libc::CMSG_NXTHDR(&raw const header, at);
                }
            }
            Ok(length)
        };
        // SAFETY: the closure writes an address of the kernel's and its length, or returns an error.
        let (length, from) = unsafe { SockAddr::try_init(|storage, size| received(storage.cast(), size)) }.ok()?;
        let at = from.as_socket()?;
        Some((length, Destination { at, raw: from, from: asked }, stamp))
    }

    /// Waits until a datagram is there or `wait` is over.
    pub fn await_datagram(&self, wait: Span) {
        self.poll(libc::POLLIN, wait);
    }

    /// Whether a datagram is there.
    #[must_use]
    pub fn has_datagram(&self) -> bool {
        self.poll(libc::POLLIN, Span::ZERO)
    }

    /// Whether one of the events is there. Waits for it, for a signal, or until `wait` is over.
    fn poll(&self, events: libc::c_short, wait: Span) -> bool {
        let mut asked = libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 };
        let (ns, second) = (wait.as_ns(), 1_000_000_000);
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(ns / second).unwrap_or(libc::time_t::MAX),
            tv_nsec: (ns % second) as libc::c_long,
        };
        // SAFETY: `asked` is one pollfd and `timeout` a timespec, both valid during the call. There is no signal mask.
        let ready = unsafe { libc::ppoll(&raw mut asked, 1, &raw const timeout, std::ptr::null()) };
        ready > 0 && asked.revents & events != 0
    }

    /// Datagrams dropped since the socket was made, because it had no room; `None` before Linux
    /// 4.12.
    #[must_use]
    pub fn dropped(&self) -> Option<u32> {
        /// The index of the drop counter in SO_MEMINFO.
        const DROPS: usize = 8;
        let mut values = [0_u32; DROPS + 1];
        let mut size = size_of_val(&values) as libc::socklen_t;
        // SAFETY: `values` has `size` bytes that the call may write, and both outlive it.
        let result = unsafe {
            let into = values.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, into, &raw mut size)
        };
        (result == 0 && size as usize == size_of_val(&values)).then(|| values.last().copied()).flatten()
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option of a socket that neither std nor socket2 has.
pub(crate) fn set_option<T: Copy>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (value, size) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the value outlives the call and has the given size.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Cable;

    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn datagrams_come_from_where_they_were_sent_and_waits_end() {
        let wait = Span::from_ms(20);
        let (one, two) = (Datagrams::bind(HERE, 6, 4096, wait).unwrap(), Datagrams::bind(HERE, 0, 4096, wait).unwrap());
        let mut bytes = [0; 16];
        assert_eq!(two.receive(&mut bytes).unwrap(), None);
        assert_eq!(one.send([b"no", b"rth"], &two.address().unwrap().into(), Span::ZERO), Sent::Yes);
        let came = (0..100).find_map(|_| two.receive(&mut bytes).unwrap());
        assert_eq!(came, Some((5, one.address().unwrap())));
        assert_eq!(&bytes[..5], b"north");
        assert_eq!(two.receive_now(&mut bytes).unwrap(), None);
        assert_eq!(one.send([b"west", b""], &two.address().unwrap().into(), Span::ZERO), Sent::Yes);
        let came = (0..1000).find_map(|_| {
            crate::clock::pause(Span::from_ms(1));
            two.receive_now(&mut bytes).unwrap()
        });
        assert_eq!((came, &bytes[..4]), (Some((4, one.address().unwrap())), &b"west"[..]));
        let nowhere = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9));
        assert_eq!(one.send([b"x", b""], &nowhere.into(), Span::ZERO), Sent::Refused, "another family");
        let taken = Datagrams::bind(two.address().unwrap(), 0, 4096, wait).unwrap_err();
        assert!(taken.to_string().contains("cannot be received: Address already in use (os error 98); "), "{taken}");
    }

    #[test]
    fn the_receiver_counts_datagrams_without_room() {
        let wait = Span::from_ms(20);
        let (one, two) = (Datagrams::bind(HERE, 0, 1 << 20, wait).unwrap(), Datagrams::bind(HERE, 0, 1, wait).unwrap());
        let to = two.address().unwrap().into();
        let sent = (0..100).filter(|_| one.send([&[0; 512], &[]], &to, Span::ZERO) == Sent::Yes).count() as u32;
        let mut came = 0;
        while two.receive(&mut [0; 512]).unwrap().is_some() {
            came += 1;
        }
        assert!(came < sent && came > 0, "{came} of {sent}");
        assert_eq!(two.dropped(), Some(sent - came));
    }

    #[test]
    fn a_full_socket_is_told_and_waited_for() {
        let cable = match Cable::lay(false) {
            Ok(cable) => cable,
            Err(error) => return println!("skipped: {error}"),
        };
        let send = || {
            let at = SocketAddr::from((cable.left().address(), 0));
            let socket = Datagrams::bind(at, 0, 1, Span::from_ms(20)).unwrap();
            // No neighbour has this address. The kernel holds packets for it while it asks, for
            // some seconds.
            let nobody: Destination = SocketAddr::from((cable.nobody(), 9)).into();
            let all: Vec<Sent> = (0..10).map(|_| socket.send([&[0; 1024], &[]], &nobody, Span::ZERO)).collect();
            let waited = socket.send([&[0; 1024], &[]], &nobody, Span::from_s(60));
            (all, waited)
        };
        let (all, waited) = cable.left().run(send).unwrap();
        assert_eq!((all.first(), all.last()), (Some(&Sent::Yes), Some(&Sent::Full)));
        assert_ne!(waited, Sent::Full, "the kernel gave up on them, and there was room");
    }

    #[test]
    fn a_small_buffer_takes_the_longest_datagram() {
        let cable = match Cable::lay(false) {
            Ok(cable) => cable,
            Err(error) => return println!("skipped: {error}"),
        };
        let send = || {
            let to: Destination = SocketAddr::from((cable.right().address(), 9)).into();
            // Longer ones leave as fragments, each with memory of its own.
            for length in [400, 1472, 6_000, 20_000, 65_507] {
                let at = SocketAddr::from((cable.left().address(), 0));
                let socket = Datagrams::bind(at, 0, 1 << 20, Span::from_ms(1)).unwrap();
                socket.hold_little(length).unwrap();
                for _ in 0..5 {
                    socket.await_room(Span::from_s(10));
                    assert!(socket.has_room());
                    assert_eq!(socket.send([&vec![0; length], &[]], &to, Span::ZERO), Sent::Yes, "{length}");
                }
            }
        };
        cable.left().run(send).unwrap();
    }

    #[test]
    fn a_socket_that_sends_only_receives_nothing() {
        let wait = Span::from_ms(20);
        for here in [HERE, SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0))] {
            let receiver = Datagrams::bind(here, 0, 4096, wait).unwrap();
            let to = receiver.address().unwrap();
            // It has the address of the receiver, and not its port.
            let sender = Datagrams::bind_to_send(to, 6, 4096).unwrap();
            let own = sender.address().unwrap();
            assert_eq!((own.ip(), sender.priority().unwrap()), (to.ip(), 6));
            assert_eq!(sender.send([b"x", b""], &to.into(), Span::ZERO), Sent::Yes);
            let came = (0..100).find_map(|_| receiver.receive(&mut [0; 8]).unwrap());
            assert_eq!(came, Some((1, own)));
            assert!(!sender.has_unsent());
            assert_eq!(receiver.send([b"y", b""], &own.into(), Span::ZERO), Sent::Yes);
            // The loopback device delivers before a send ends.
            assert!(!sender.has_datagram());
        }
    }

    #[test]
    fn sent_datagrams_have_the_requested_priority() {
        let bind = |priority| {
            let at = SocketAddr::from(([127, 0, 0, 1], 0));
            Datagrams::bind(at, priority, 1 << 16, Span::from_ms(1))
        };
        for priority in 0..=6 {
            assert_eq!(bind(priority).unwrap().priority().unwrap(), priority);
        }
        // A larger value needs CAP_NET_ADMIN.
        match bind(7) {
            Ok(socket) => assert_eq!(socket.priority().unwrap(), 7),
            Err(error) => assert!(matches!(error, BindError::Priority { priority: 7, .. }), "{error}"),
        }
    }
}
