//! Messages with deadlines on a program's sockets.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use takt_dispatch::deadline::wire::MESSAGE_MAX;
use takt_dispatch::deadline::{DEFAULT_PATH, DeadlineSender, DeadlineSocket, Route, SendError};
use takt_linux::{PiMutex, outgoing};
use takt_model::Span;

use crate::status::{CallError, call, object_mut, takt_status};

/// What became of the messages of a socket with deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_sent {
    /// Whether the next message goes through the broker, by its deadline.
    pub through_broker: bool,
    /// Messages given to a broker.
    pub queued: u64,
    /// Messages given straight to the kernel, because there was no broker.
    pub plain: u64,
    /// Messages that a broker gave to the kernel. Brokers report with some delay.
    pub sent: u64,
    /// Messages that a broker dropped because they were late.
    pub late: u64,
    /// Messages that the kernel refused to a broker.
    pub refused: u64,
    /// Datagrams that waited in a broker that ended without sending them.
    pub lost: u64,
}

struct Sockets {
    sender: Option<DeadlineSender>,
    by_descriptor: BTreeMap<c_int, Member>,
}

/// A socket, and its device and inode.
#[derive(Clone)]
struct Member {
    socket: Arc<DeadlineSocket>,
    identity: (u64, u64),
}

static SOCKETS: PiMutex<Sockets> = PiMutex::new(Sockets { sender: None, by_descriptor: BTreeMap::new() });

/// The socket with deadlines that a descriptor is. `None` also if the number was closed since, or given to
/// another socket.
fn socket_of(descriptor: c_int) -> Option<Arc<DeadlineSocket>> {
    let Member { socket, identity } = SOCKETS.lock().by_descriptor.get(&descriptor).cloned()?;
    // SAFETY: the number was a descriptor, so it is not negative. The kernel refuses one that is closed.
    let now = outgoing::identity(unsafe { BorrowedFd::borrow_raw(descriptor) });
    (now == Some(identity)).then_some(socket)
}

/// Gives the messages of a UDP socket, or of a connected TCP socket, a deadline: `ns` after they are
/// sent. May be called again before any of them. Zero ends that: the call waits for what the broker
/// still has, for a second at most. Then all calls of the system work on the socket as before.
///
/// A file that defines TAKT_DEADLINE_SENDS before it includes this header sends them by send(2),
/// sendto(2), sendmsg(2) and, in C, write(2): see the end of this header. Other files call takt_send
/// or takt_sendto.
///
/// TAKT_STATUS_FULL: bytes of a stream still wait after that second, because its peer takes none.
/// They leave when it does. Call this again with zero, and do not send before that.
///
/// The broker (`takt net broker`) sends the messages of all programs in the order of their
/// deadlines. It is looked for at /run/takt-broker, or where the environment variable TAKT_BROKER
/// says. While there is none, messages go straight to the kernel: takt_deadline_counts tells so.
///
/// End it before the descriptor is closed. If its number is given to another socket, that socket has no
/// deadline until this is called. A child of fork(2) uses none of its parent's sockets with
/// deadlines.
#[unsafe(no_mangle)]
pub extern "C" fn takt_deadline(fd: c_int, ns: u64) -> takt_status {
    call(|| {
        let known = socket_of(fd);
        if known.is_none() {
            // The number may have been that of another socket. It leaves without the lock.
            let former = SOCKETS.lock().by_descriptor.remove(&fd);
            drop(former);
        }
        match known {
            None if ns == 0 => {}
            Some(known) if ns == 0 => {
                let bytes = known.leave();
                if bytes > 0 {
                    return Err(CallError::new(
                        takt_status::Full,
                        format_args!(
                            "{bytes} bytes of descriptor {fd} still wait for its peer; call takt_deadline(fd, 0) again"
                        ),
                    ));
                }
                SOCKETS.lock().by_descriptor.remove(&fd);
            }
            Some(known) => known.set_deadline(Span::from_ns(ns)),
            None => {
                if fd < 0 {
                    return Err(CallError::invalid(format_args!("{fd} is no descriptor")));
                }
                let sender = sender()?;
                // SAFETY: the caller's descriptor is open during the call; a number that is none is refused by the
                // kernel.
                let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
                let socket = sender
                    .socket(&descriptor, Span::from_ns(ns))
                    .map_err(|error| CallError::new(takt_status::Invalid, format_args!("descriptor {fd}: {error}")))?;
                if let Some(identity) = outgoing::identity(descriptor) {
                    let member = Member { socket: Arc::new(socket), identity };
                    SOCKETS.lock().by_descriptor.insert(fd, member);
                }
            }
        }
        Ok(())
    })
}

fn sender() -> Result<DeadlineSender, CallError> {
    let mut sockets = SOCKETS.lock();
    if let Some(sender) = &sockets.sender {
        return Ok(sender.clone());
    }
    let path = std::env::var_os("TAKT_BROKER").map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from);
    let sender = DeadlineSender::open(&path)
        .map_err(|error| CallError::new(takt_status::Refused, format_args!("no sender can be had: {error}")))?;
    sockets.sender = Some(sender.clone());
    Ok(sender)
}

/// errno values of Linux.
const EAGAIN: i64 = 11;
const EFAULT: i64 = 14;
const EINVAL: i64 = 22;
const EMFILE: c_int = 24;
const EMSGSIZE: i64 = 90;
const EOPNOTSUPP: i64 = 95;
/// Not to wait for room (MSG_DONTWAIT).
const DONTWAIT: c_int = 0x40;
/// No SIGPIPE (MSG_NOSIGNAL): there never is one.
const NOSIGNAL: c_int = 0x4000;

/// Sends a message on a socket that takt_deadline was called for. Returns how many bytes were taken:
/// of a datagram all, of a stream perhaps fewer. Never raises SIGPIPE. A negative value is an errno:
///
/// - -EAGAIN: there is no room, and the socket has O_NONBLOCK or `flags` MSG_DONTWAIT. The descriptor of
///   takt_deadline_room_fd signals room.
/// - -EMSGSIZE: a datagram of more than 65,536 bytes.
/// - -EINVAL: other flags than MSG_DONTWAIT and MSG_NOSIGNAL, a null pointer, or a descriptor without a
///   deadline.
///
/// # Safety
/// `bytes` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_send(fd: c_int, bytes: *const u8, length: usize, flags: c_int) -> i64 {
    // SAFETY: by this function's condition.
    unsafe { send(fd, bytes, length, flags, None) }
}

/// The same to an address: a `struct sockaddr_in` or `sockaddr_in6` of `address_length` bytes.
///
/// # Safety
/// `bytes` points to `length` bytes, `address` to `address_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_sendto(
    fd: c_int,
    bytes: *const u8,
    length: usize,
    flags: c_int,
    address: *const core::ffi::c_void,
    address_length: u32,
) -> i64 {
    if address.is_null() {
        return -EINVAL;
    }
    // SAFETY: by this function's condition, and it is not null.
    let address = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), address_length as usize) };
    match address_of(address) {
        // SAFETY: by this function's condition.
        Some(to) => unsafe { send(fd, bytes, length, flags, Some(to)) },
        None => -EINVAL,
    }
}

/// Sends one message of `count` parts, each a `struct iovec`, to an address or, if that is a null pointer,
/// to the connected peer. The macros of TAKT_DEADLINE_SENDS at the end of this header call it.
///
/// Returns INT64_MIN, and sends nothing, if the descriptor has no deadline. Otherwise it returns what
/// takt_sendto does, with two more errors:
///
/// - -EOPNOTSUPP: the message has control data, so `control_length` is not zero.
/// - -EFAULT: a part, or all of them, is a null pointer.
///
/// # Safety
/// `parts` points to `count` parts, each to its bytes, `address` to `address_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_send_parts(
    fd: c_int,
    parts: *const core::ffi::c_void,
    count: usize,
    control_length: usize,
    flags: c_int,
    address: *const core::ffi::c_void,
    address_length: u32,
) -> i64 {
    let Some(socket) = socket_of(fd) else { return i64::MIN };
    if control_length > 0 {
        return -EOPNOTSUPP;
    }
    let mut to = None;
    if !address.is_null() {
        // SAFETY: by this function's condition, and it is not null.
        to = address_of(unsafe { std::slice::from_raw_parts(address.cast::<u8>(), address_length as usize) });
        if to.is_none() {
            return -EINVAL;
        }
    }
    if parts.is_null() && count > 0 {
        return -EFAULT;
    }
    // SAFETY: by this function's condition, and it is not null unless there are none.
    let parts: &[Part] = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts.cast(), count) } };
    let mut gathered = Vec::new();
    for part in parts {
        // One byte above the limit is enough to know that a datagram is too long.
        let length = part.length.min((MESSAGE_MAX + 1).saturating_sub(gathered.len()));
        if part.bytes.is_null() && length > 0 {
            return -EFAULT;
        }
        // SAFETY: by this function's condition, and it is not null unless it is empty.
        let bytes: &[u8] = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(part.bytes, length) } };
        if count == 1 {
            return send_on(&socket, bytes, flags, to);
        }
        gathered.extend_from_slice(bytes);
    }
    send_on(&socket, &gathered, flags, to)
}

/// A part of a message, as `struct iovec` has it.
#[repr(C)]
struct Part {
    bytes: *const u8,
    length: usize,
}

/// Reads a socket address of C.
fn address_of(bytes: &[u8]) -> Option<SocketAddr> {
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// # Safety
/// `bytes` is null or points to `length` bytes.
unsafe fn send(fd: c_int, bytes: *const u8, length: usize, flags: c_int, to: Option<SocketAddr>) -> i64 {
    if bytes.is_null() && length > 0 {
        return -EINVAL;
    }
    let Some(socket) = socket_of(fd) else { return -EINVAL };
    // SAFETY: by this function's condition, and it is not null unless it is empty.
    let bytes = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes, length) } };
    send_on(&socket, bytes, flags, to)
}

/// Sends a message, or answers a negative errno.
fn send_on(socket: &DeadlineSocket, bytes: &[u8], flags: c_int, to: Option<SocketAddr>) -> i64 {
    if flags & !(DONTWAIT | NOSIGNAL) != 0 {
        return -EINVAL;
    }
    let sent = match to {
        _ if flags & DONTWAIT != 0 => socket.try_send(bytes, to),
        Some(to) => socket.send_to(bytes, to),
        None => socket.send(bytes),
    };
    match sent {
        Ok(sent) => i64::try_from(sent.bytes).unwrap_or(i64::MAX),
        Err(SendError::WouldBlock) => -EAGAIN,
        Err(SendError::Refused(errno)) => -i64::from(errno),
        Err(_) => -EMSGSIZE,
    }
}

/// A descriptor for poll(2) or epoll(7) with POLLIN: it is readable until a send fails with EAGAIN, and
/// again when there is room for that message. POLLOUT of the socket itself tells nothing of the room in
/// the broker. A send may still fail with EAGAIN, if another thread takes the room first: poll again.
///
/// Each call answers the same one. Do not read from it, and do not close it: takt_deadline with zero
/// does. A negative value is an errno: -EINVAL for a descriptor without a deadline, -EMFILE if the
/// process has as many open files as it may.
#[unsafe(no_mangle)]
pub extern "C" fn takt_deadline_room_fd(fd: c_int) -> c_int {
    let Some(socket) = socket_of(fd) else { return -(EINVAL as c_int) };
    match socket.room() {
        Ok(room) => room.as_raw_fd(),
        Err(error) => -error.raw_os_error().unwrap_or(EMFILE),
    }
}

/// The counts of a socket with deadlines.
///
/// # Safety
/// `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_deadline_counts(fd: c_int, into: *mut takt_sent) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let into = unsafe { object_mut(into, "the place for the counts") }?;
        let without = || CallError::invalid(format_args!("descriptor {fd} has no deadline; call takt_deadline first"));
        let socket = socket_of(fd).ok_or_else(without)?;
        let counts = socket.counts();
        *into = takt_sent {
            through_broker: socket.route() == Route::Broker,
            queued: counts.queued,
            plain: counts.plain,
            sent: counts.sent,
            late: counts.late,
            refused: counts.refused,
            lost: counts.lost,
        };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_socket_with_the_number_of_a_closed_one_sends_to_its_own_peer() {
        let [first_peer, peer] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let connected = |peer: &UdpSocket| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(peer.local_addr().unwrap()).unwrap();
            socket
        };
        let first = connected(&first_peer);
        let fd = first.as_raw_fd();
        // SAFETY: the array has that length.
        let send = || unsafe { takt_send(fd, [7].as_ptr(), 1, 0) };
        assert_eq!((takt_deadline(fd, 1_000_000), send()), (takt_status::Ok, 1));
        drop(first);
        // Another test may open files meanwhile.
        let mut others = Vec::new();
        let second = loop {
            let socket = connected(&peer);
            if socket.as_raw_fd() == fd {
                break socket;
            }
            others.push(socket);
            assert!(others.len() < 100, "the number is not given again");
        };
        assert_eq!((send(), takt_deadline_room_fd(fd)), (-EINVAL, -(EINVAL as c_int)));
        assert_eq!((takt_deadline(fd, 1_000_000), send()), (takt_status::Ok, 1));
        peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        assert_eq!(peer.recv(&mut [0; 2]).unwrap(), 1);
        assert_eq!(takt_deadline(fd, 0), takt_status::Ok);
        drop(second);
        assert_eq!(takt_deadline(fd, 0), takt_status::Ok);
    }

    #[test]
    fn addresses_of_c_are_read() {
        let mut four = [0; 16];
        four[..2].copy_from_slice(&2_u16.to_ne_bytes());
        four[2..8].copy_from_slice(&[0x1F, 0x90, 10, 0, 0, 7]);
        assert_eq!(address_of(&four), Some("10.0.0.7:8080".parse().unwrap()));
        let mut six = [0; 28];
        six[..2].copy_from_slice(&10_u16.to_ne_bytes());
        six[2..4].copy_from_slice(&[0, 80]);
        six[23] = 1;
        six[24..].copy_from_slice(&3_u32.to_ne_bytes());
        assert_eq!(address_of(&six), Some("[::1%3]:80".parse().unwrap()));
        assert_eq!((address_of(&six[..20]), address_of(&[0; 16]), address_of(&[])), (None, None, None));
    }
}
