//! The TOS byte of what a socket sends: six bits of DSCP, by which switches and routers order packets,
//! and two bits of ECN. SO_PRIORITY is for this machine alone.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use takt_model::Span;

/// Marks all that the socket sends from now on: IP_TOS, or IPV6_TCLASS. Its SO_PRIORITY stays. The
/// kernel keeps the two lowest bits (ECN) of a TCP connection for itself.
///
/// # Errors
/// The kernel's refusal.
pub fn set_tos(socket: &impl AsFd, tos: u8) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let priority = socket.priority()?;
    if socket.domain()? == Domain::IPV6 {
        socket.set_tclass_v6(tos.into())?;
    }
    // Of an IPv6 socket it is for peers with IPv4.
    socket.set_tos_v4(tos.into())?;
    // IP_TOS replaces SO_PRIORITY by a value that follows from it.
    socket.set_priority(priority)
}

/// The TOS byte of what the socket sends.
///
/// # Errors
/// The kernel's refusal.
pub fn tos(socket: &impl AsFd) -> io::Result<u8> {
    let socket = SockRef::from(socket);
    let tos = if socket.domain()? == Domain::IPV6 { socket.tclass_v6()? } else { socket.tos_v4()? };
    u8::try_from(tos).map_err(io::Error::other)
}

/// A TCP connection whose packets are marked from the first one on. It waits at most `wait`.
///
/// # Errors
/// The kernel's refusal, or nobody answers.
pub fn connect(to: SocketAddr, tos: Option<u8>, wait: Span) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(tos) = tos {
        set_tos(&socket, tos)?;
    }
    socket.connect_timeout(&to.into(), Duration::from_nanos(wait.as_ns()))?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn the_byte_is_set_and_the_priority_stays() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let socket = UdpSocket::bind(at).unwrap();
            SockRef::from(&socket).set_priority(5).unwrap();
            for byte in [0, 0xb8, 0xff] {
                set_tos(&socket, byte).unwrap();
                assert_eq!((tos(&socket).unwrap(), SockRef::from(&socket).priority().unwrap()), (byte, 5), "{at}");
            }
        }
    }

    #[test]
    fn connections_are_marked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        for (asked, has) in [(None, 0), (Some(0xb8), 0xb8)] {
            let stream = connect(to, asked, Span::from_s(20)).unwrap();
            assert_eq!(tos(&stream).unwrap(), has);
            drop(stream);
            let (mut accepted, _) = listener.accept().unwrap();
            assert_eq!(accepted.read(&mut [0; 1]).unwrap(), 0);
        }
        drop(listener);
        assert!(connect(to, Some(8), Span::from_s(20)).is_err());
    }
}
