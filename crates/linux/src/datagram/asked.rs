//! Answers from the address that was asked, of a socket bound to all addresses of a machine
//! (IP_PKTINFO, IPV6_PKTINFO). Otherwise the kernel would choose by its routes.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

use super::{Datagrams, Destination, set_option};

#[repr(align(8))]
struct Control([u8; 64]);

impl Datagrams {
    /// Lets the kernel tell the own address of each datagram, for [`Datagrams::receive_asked`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn answer_as_asked(&self) -> io::Result<()> {
        let (level, name) = match self.address()?.is_ipv4() {
            true => (libc::IPPROTO_IP, libc::IP_PKTINFO),
            false => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        };
        set_option(&self.socket, level, name, &1_i32)
    }

    /// Receives without waiting: length, where an answer goes, and the stamp as
    /// [`Datagrams::await_stamped`] has it. The answer comes from the address that was asked.
    pub fn receive_asked(&self, into: &mut [u8]) -> Option<(usize, Destination, Option<u64>)> {
        self.stamped(into, libc::MSG_DONTWAIT)
    }

    /// The same, after the wait given to [`Datagrams::bind`] at most.
    pub fn await_asked(&self, into: &mut [u8]) -> Option<(usize, Destination, Option<u64>)> {
        self.stamped(into, 0)
    }

    /// Sends from an own address.
    pub(super) fn send_from(
        &self,
        parts: &[IoSlice<'_>],
        to: &Destination,
        from: IpAddr,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let mut control = Control([0; 64]);
        // SAFETY: msghdr is plain data for which zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = to.raw.as_ptr().cast_mut().cast();
        header.msg_namelen = to.raw.len();
        header.msg_iov = parts.as_ptr().cast_mut().cast();
        header.msg_iovlen = parts.len() as _;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        // SAFETY: `control` has room for one message of either kind, which is aligned to its header. An
        // IoSlice has the layout of an iovec. All that `header` names outlives the call, which only reads.
        let sent = unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            let size = match from {
                IpAddr::V4(from) => {
                    let ipi_spec_dst = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
                    let any = libc::in_addr { s_addr: 0 };
                    let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr: any };
                    ((*message).cmsg_level, (*message).cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
                    libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().write_unaligned(info);
                    size_of_val(&info) as libc::c_uint
                }
                IpAddr::V6(from) => {
                    let ipi6_addr = libc::in6_addr { s6_addr: from.octets() };
                    let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                    ((*message).cmsg_level, (*message).cmsg_type) = (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
                    libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().write_unaligned(info);
                    size_of_val(&info) as libc::c_uint
                }
            };
            (*message).cmsg_len = libc::CMSG_LEN(size) as _;
            header.msg_controllen = libc::CMSG_SPACE(size) as _;
            libc::sendmsg(self.socket.as_raw_fd(), &raw const header, flags)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// The own address in a control message, from which answers may come. A group (multicast) cannot
/// answer: of IPv4 the kernel tells an address of the interface instead.
///
/// # Safety
/// `data` is that of the message, which the kernel has written.
pub(super) unsafe fn address(message: &libc::cmsghdr, data: *const u8) -> Option<IpAddr> {
    let address = match (message.cmsg_level, message.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: this message has an in_pktinfo.
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            IpAddr::V4(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: this message has an in6_pktinfo.
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))
        }
        _ => return None,
    };
    (!address.is_unspecified() && !address.is_multicast()).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use takt_model::Span;

    use super::super::Sent;
    use super::*;

    fn ask(server: &Datagrams, client: &UdpSocket, at: IpAddr) -> SocketAddr {
        client.send_to(b"who", (at, server.address().unwrap().port())).unwrap();
        let mut bytes = [0; 8];
        let (length, asker, stamp) = (0..1000).find_map(|_| server.await_asked(&mut bytes)).unwrap();
        assert_eq!((&bytes[..length], asker.address()), (&b"who"[..], client.local_addr().unwrap()));
        assert!(stamp.is_some());
        assert_eq!(server.send([b"i", b"t"], &asker, Span::ZERO), Sent::Yes);
        let (length, from) = client.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"it");
        from
    }

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let server = |at: IpAddr| {
            let server = Datagrams::bind(SocketAddr::new(at, 0), 0, 1 << 16, Span::from_ms(20)).unwrap();
            server.stamp().unwrap();
            server.answer_as_asked().unwrap();
            server
        };
        let v4 = server(Ipv4Addr::UNSPECIFIED.into());
        // The asker's own address leads the kernel to 127.0.0.1.
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for asked in ["127.0.0.1", "127.0.0.2", "127.1.2.3"] {
            let asked: IpAddr = asked.parse().unwrap();
            assert_eq!(ask(&v4, &client, asked), SocketAddr::new(asked, v4.address().unwrap().port()));
        }
        let v6 = server(Ipv6Addr::UNSPECIFIED.into());
        let client = UdpSocket::bind("[::1]:0").unwrap();
        let here = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert_eq!(ask(&v6, &client, here).ip(), here);
        // Without a wildcard it is no other.
        let one = server("127.0.0.3".parse().unwrap());
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(ask(&one, &client, "127.0.0.3".parse().unwrap()), one.address().unwrap());
    }
}
