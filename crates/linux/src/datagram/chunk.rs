//! Receives several datagrams by one system call (recvmmsg), into memory that was made before.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;

use super::Datagrams;

/// Bytes for the kernel's stamps of an arrival, with their headers.
const CONTROL: usize = 128;

/// Room for the control messages of a datagram.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Memory for the datagrams of one call.
pub struct Chunk {
    bytes: Vec<u8>,
    /// Bytes of each place.
    each: usize,
    lengths: Vec<u32>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    /// Pointers into the other fields, written anew before each call.
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    came: usize,
}

/// A datagram that came.
#[derive(Debug)]
pub struct ReceivedDatagram<'a> {
    /// Its bytes. A longer datagram is cut to the size of a place.
    pub bytes: &'a mut [u8],
    /// Its sender; `None`: of another family than IPv4 and IPv6.
    pub from: Option<SocketAddr>,
    /// The kernel's stamp of the arrival on CLOCK_REALTIME in nanoseconds, if there is one.
    pub stamp: Option<u64>,
}

impl Chunk {
    /// Room for `count` datagrams, at least one, of `each` bytes.
    #[must_use]
    pub fn new(count: usize, each: usize) -> Chunk {
        let count = count.max(1);
        // SAFETY: these structures are plain data for which zero is valid.
        let (name, part, header) = unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        Chunk {
            bytes: vec![0; count * each],
            each,
            lengths: vec![0; count],
            names: vec![name; count],
            controls: vec![Control([0; CONTROL]); count],
            parts: vec![part; count],
            headers: vec![header; count],
            came: 0,
        }
    }

    /// How many datagrams fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.headers.len()
    }

    /// The datagrams of the last call, in order.
    pub fn datagrams(&mut self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        let bytes = self.bytes.chunks_exact_mut(self.each.max(1));
        let about = self.lengths.iter().zip(&self.names).zip(&self.headers).take(self.came);
        bytes.zip(about).filter_map(|(bytes, ((length, name), header))| {
            let bytes = bytes.get_mut(..*length as usize)?;
            Some(ReceivedDatagram { bytes, from: address(name), stamp: stamp(&header.msg_hdr) })
        })
    }
}

impl Datagrams {
    /// Receives up to `most` datagrams that are there, without waiting, and at most as many as fit.
    /// The answer is their number.
    pub fn receive_chunk(&self, into: &mut Chunk, most: usize) -> usize {
        let count = most.min(into.room());
        for (at, header) in into.headers.iter_mut().enumerate().take(count) {
            let part = &mut into.parts[at];
            part.iov_base = into.bytes[at * into.each..].as_mut_ptr().cast();
            part.iov_len = into.each;
            let to = &mut header.msg_hdr;
            to.msg_name = (&raw mut into.names[at]).cast();
            to.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            to.msg_iov = part;
            to.msg_iovlen = 1;
            to.msg_control = into.controls[at].0.as_mut_ptr().cast();
            to.msg_controllen = CONTROL as _;
            to.msg_flags = 0;
        }
        let (fd, headers) = (self.socket.as_raw_fd(), into.headers.as_mut_ptr());
        // SAFETY: the first `count` headers name memory of `into` that may be written and outlives the call. There is
        // no timeout.
        let came =
            unsafe { libc::recvmmsg(fd, headers, count as libc::c_uint, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
        into.came = usize::try_from(came).unwrap_or(0).min(count);
        for (length, header) in into.lengths.iter_mut().zip(&into.headers).take(into.came) {
            *length = header.msg_len.min(into.each as u32);
        }
        into.came
    }
}

/// The kernel's stamp among the control messages of a datagram.
fn stamp(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the macros walk over whole control messages, which the kernel has written into memory that lives as long
    // as the chunk; a stamp is a timespec.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = at.as_ref() {
            if message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_TIMESTAMPNS {
                let time = libc::CMSG_DATA(at).cast::<libc::timespec>().read_unaligned();
                let seconds = u64::try_from(time.tv_sec).ok()?;
                return seconds.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec as u64);
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    None
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = std::ptr::from_ref(name);
    match libc::c_int::from(
        // SAFETY: every value of sockaddr_storage has a family.
        unsafe { (*name).ss_family },
    ) {
        libc::AF_INET => {
            // SAFETY: the storage is large enough and aligned for an address of its family.
            let at = unsafe { &*name.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(at.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let at = unsafe { &*name.cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::from((Ipv6Addr::from(at.sin6_addr.s6_addr), u16::from_be(at.sin6_port))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use takt_model::Span;

    use super::*;

    #[test]
    fn a_chunk_holds_the_datagrams_in_order_with_sender_and_stamp() {
        for here in [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let wait = Span::from_ms(1);
            let bind = || Datagrams::bind(here, 0, 1 << 16, wait).unwrap();
            let (one, two) = (bind(), bind());
            two.stamp().unwrap();
            let before = crate::clock::realtime_ns();
            for number in 0..5_u8 {
                let to = two.address().unwrap().into();
                assert_eq!(one.send([&[number; 20], &[]], &to, Span::ZERO), super::super::Sent::Yes);
            }
            // The loopback device delivers before a send ends.
            let mut chunk = Chunk::new(3, 16);
            let mut came = Vec::new();
            for (most, wanted) in [(8, 3), (1, 1), (3, 1), (3, 0)] {
                assert_eq!(two.receive_chunk(&mut chunk, most), wanted);
                for datagram in chunk.datagrams() {
                    assert_eq!(datagram.from, Some(one.address().unwrap()));
                    let stamp = datagram.stamp.unwrap();
                    assert!(stamp >= before && stamp <= crate::clock::realtime_ns(), "{before} {stamp}");
                    came.push(datagram.bytes.to_vec());
                }
            }
            assert_eq!(came, (0..5).map(|number| vec![number; 16]).collect::<Vec<_>>());
        }
    }
}
