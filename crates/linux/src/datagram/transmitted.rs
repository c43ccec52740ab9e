//! Stamps of the packets that have left: the kernel makes one when a packet goes to the device.

use std::io;
use std::os::fd::AsRawFd as _;

use super::{Datagrams, set_option};

/// The kernel's flags of SO_TIMESTAMPING (linux/net_tstamp.h).
const TX_SOFTWARE: u32 = 1 << 1;
const TX_SCHED: u32 = 1 << 8;
const SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
const OPT_TSONLY: u32 = 1 << 11;

/// The kind of a stamp that says where a packet was (SCM_TSTAMP_SCHED).
const SCHED: u32 = 1;

/// A place on the way of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It came to the queue of its device. Before, the kernel may have kept it while it looked for
    /// the address of its neighbour.
    Queued,
    /// It went to the device.
    Left,
}

/// A datagram whose packet has left, or has come to the queue of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmitted {
    /// Counts the datagrams that were sent since [`Datagrams::stamp_transmissions`], from zero.
    pub number: u32,
    /// When, on CLOCK_REALTIME in nanoseconds.
    pub at: u64,
    /// Where it was then.
    pub stage: Stage,
}

impl Datagrams {
    /// Lets the kernel stamp each datagram when its packet goes to the device, for
    /// [`Datagrams::transmitted`]. Some devices give none.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn stamp_transmissions(&self) -> io::Result<()> {
        self.stamp_stages(TX_SOFTWARE)
    }

    /// The same, and a stamp when the packet comes to the queue of its device. Every device has
    /// those.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn stamp_queueing_and_transmissions(&self) -> io::Result<()> {
        self.stamp_stages(TX_SOFTWARE | TX_SCHED)
    }

    fn stamp_stages(&self, stages: u32) -> io::Result<()> {
        let flags = stages | SOFTWARE | OPT_ID | OPT_TSONLY;
        set_option(&self.socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// The next stamp, without waiting.
    #[must_use]
    pub fn transmitted(&self) -> Option<Transmitted> {
        #[repr(align(8))]
        struct Control([u8; 256]);
        let mut control = Control([0; 256]);
        // SAFETY: msghdr is plain data for which zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: `header` names memory that may be written and outlives the call.
        if unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, flags) } < 0 {
            return None;
        }
        let (mut at, mut about) = (None, None);
        // SAFETY: the macros walk over whole control messages, which the kernel has written. A
        // stamp is three timespecs, the software's first. An error is a sock_extended_err.
        unsafe {
            let mut place = libc::CMSG_FIRSTHDR(&raw const header);
            while let Some(message) = place.as_ref() {
                match (message.cmsg_level, message.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                        let time = libc::CMSG_DATA(place).cast::<libc::timespec>().read_unaligned();
                        let seconds = u64::try_from(time.tv_sec).ok();
                        at = seconds.and_then(|s| s.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec as u64));
                    }
                    (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                        let error = libc::CMSG_DATA(place).cast::<libc::sock_extended_err>().read_unaligned();
                        let stage = if error.ee_info == SCHED { Stage::Queued } else { Stage::Left };
                        let is_stamp = error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING;
                        about = is_stamp.then_some((error.ee_data, stage));
                    }
                    _ => {}
                }
                place = libc::CMSG_NXTHDR(&raw const header, place);
            }
        }
        let (number, stage) = about?;
        Some(Transmitted { number, at: at?, stage })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};

    use takt_model::Span;

    use super::super::{Chunk, Sent};
    use super::*;
    use crate::net::Cable;

    #[test]
    fn a_datagram_without_a_neighbour_comes_to_no_device() {
        let cable = match Cable::lay(false) {
            Ok(cable) => cable,
            Err(error) => return println!("skipped: {error}"),
        };
        let send = || {
            let at = SocketAddr::from((cable.left().address(), 0));
            let socket = Datagrams::bind_to_send(at, 0, 1 << 16).unwrap();
            socket.stamp_queueing_and_transmissions().unwrap();
            let nobody = SocketAddr::from((cable.nobody(), 9)).into();
            assert_eq!(socket.send([&[0; 100], &[]], &nobody, Span::ZERO), Sent::Yes);
            assert!(socket.transmitted().is_none() && socket.has_unsent(), "the kernel asks for the address");
            // The kernel knows the other end's address soon.
            let there = SocketAddr::from((cable.right().address(), 9)).into();
            assert_eq!(socket.send([&[0; 100], &[]], &there, Span::ZERO), Sent::Yes);
            let mut stages = Vec::new();
            for _ in 0..10_000 {
                crate::clock::pause(Span::from_ms(1));
                stages.extend(std::iter::from_fn(|| socket.transmitted()).map(|stamp| stamp.stage));
                if stages.len() >= 2 {
                    break;
                }
            }
            assert_eq!(stages, [Stage::Queued, Stage::Left]);
        };
        cable.left().run(send).unwrap();
    }

    #[test]
    fn each_datagram_is_stamped_when_it_leaves() {
        for here in [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let bind = || Datagrams::bind(here, 0, 1 << 16, Span::from_ms(1)).unwrap();
            let (one, two) = (bind(), bind());
            one.stamp_transmissions().unwrap();
            one.stamp().unwrap();
            let before = crate::clock::realtime_ns();
            for number in 0..3 {
                assert_eq!(one.transmitted(), None);
                let to = two.address().unwrap().into();
                assert_eq!(one.send([&[1; 50], &[]], &to, Span::ZERO), Sent::Yes);
                // The loopback device takes a packet before the send ends.
                let left = one.transmitted().unwrap();
                assert_eq!((left.number, left.stage), (number, Stage::Left));
                assert!(left.at >= before && left.at <= crate::clock::realtime_ns());
            }
            one.stamp_queueing_and_transmissions().unwrap();
            let to = two.address().unwrap().into();
            assert_eq!(one.send([&[1; 50], &[]], &to, Span::ZERO), Sent::Yes);
            let stamps = [one.transmitted().unwrap(), one.transmitted().unwrap()];
            assert_eq!(stamps.map(|stamp| stamp.stage), [Stage::Queued, Stage::Left]);
            assert!(stamps[0].number == stamps[1].number && stamps[0].at <= stamps[1].at);
            assert_eq!(one.transmitted(), None);
            // Arrivals at the same socket keep their stamps.
            assert_eq!(two.send([&[2; 50], &[]], &one.address().unwrap().into(), Span::ZERO), Sent::Yes);
            assert!(one.has_datagram());
            let mut chunk = Chunk::new(1, 60);
            assert_eq!(one.receive_chunk(&mut chunk, 1), 1);
            assert!(chunk.datagrams().next().unwrap().stamp.is_some());
        }
    }
}
