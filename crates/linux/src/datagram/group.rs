//! Datagrams to groups of receivers (multicast).

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use socket2::{InterfaceIndexOrAddress, SockRef};

use super::{Datagrams, set_option};

/// How datagrams to groups leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSending {
    /// The device, by its number; `None`: the kernel chooses by its routes.
    pub device: Option<u32>,
    /// How many networks they may cross: 1 stays in the own one, 0 on this machine.
    pub ttl: u8,
    /// Whether receivers on this machine get them, too.
    pub loops: bool,
}

/// The number of a device of this network namespace. `None`: there is none of this name.
#[must_use]
pub fn device_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero byte and outlives the call.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (number > 0).then_some(number)
}

impl Datagrams {
    /// Receives the datagrams to a group, through the given device or the kernel's choice. The socket
    /// gets no datagrams to groups that only others have joined.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn join(&self, group: IpAddr, device: Option<u32>) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        match group {
            IpAddr::V4(group) => {
                let device = device
                    .map_or(InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED), InterfaceIndexOrAddress::Index);
                socket.join_multicast_v4_n(&group, &device)?;
                socket.set_multicast_all_v4(false)
            }
            IpAddr::V6(group) => {
                socket.join_multicast_v6(&group, device.unwrap_or(0))?;
                // Linux 4.20.
                let _ = socket.set_multicast_all_v6(false);
                Ok(())
            }
        }
    }

    /// Says how datagrams to groups leave.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_group_sending(&self, how: GroupSending) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        if self.address()?.is_ipv6() {
            socket.set_multicast_hops_v6(how.ttl.into())?;
            socket.set_multicast_loop_v6(how.loops)?;
            return socket.set_multicast_if_v6(how.device.unwrap_or(0));
        }
        socket.set_multicast_ttl_v4(how.ttl.into())?;
        socket.set_multicast_loop_v4(how.loops)?;
        let any = libc::in_addr { s_addr: 0 };
        let imr_ifindex = how.device.unwrap_or(0).cast_signed();
        let device = libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex };
        set_option(&self.socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &device)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};

    use takt_model::Span;

    use super::super::Sent;
    use super::*;
    use crate::net::Cable;

    fn bind(at: IpAddr, port: u16) -> Datagrams {
        Datagrams::bind(SocketAddr::new(at, port), 0, 1 << 16, Span::from_ms(20)).unwrap()
    }

    #[test]
    fn a_group_gets_a_datagram_and_others_do_not() {
        let cable = match Cable::lay(false) {
            Ok(cable) => cable,
            Err(error) => return println!("skipped: {error}"),
        };
        let v4 = |last| IpAddr::from([239, 1, 2, last]);
        let mut groups = vec![(IpAddr::from(Ipv4Addr::UNSPECIFIED), v4(3), v4(4))];
        match cable.with_ipv6() {
            Ok(_) => {
                let group = |last| IpAddr::from([0xff15, 0, 0, 0, 0, 0, 1, last]);
                groups.push((Ipv6Addr::UNSPECIFIED.into(), group(3), group(4)));
            }
            Err(error) => println!("without IPv6: {error}"),
        }
        for (any, group, other) in groups {
            let receive = |group| {
                let receiver = bind(any, 0);
                let device = device_number(cable.right().device());
                assert!(device.is_some() && device_number("no such device").is_none());
                receiver.join(group, device).unwrap();
                receiver
            };
            let [inside, outside] = [group, other].map(|of| cable.right().run(|| receive(of)).unwrap());
            let send = || {
                let sender = bind(any, 0);
                let device = device_number(cable.left().device());
                let loops = bind(any, inside.address().unwrap().port());
                loops.join(group, device).unwrap();
                sender.set_group_sending(GroupSending { device, ttl: 1, loops: false }).unwrap();
                for receiver in [&inside, &outside] {
                    let to = SocketAddr::new(group, receiver.address().unwrap().port());
                    assert_eq!(sender.send([b"x", b""], &to.into(), Span::from_s(1)), Sent::Yes);
                }
                let came = (0..1000).find_map(|_| inside.receive(&mut [0; 8]).unwrap());
                assert!(came.is_some_and(|(length, _)| length == 1), "{group}");
                assert_eq!(loops.receive_now(&mut [0; 8]).unwrap(), None, "{group}: nothing comes back");
                sender.set_group_sending(GroupSending { device, ttl: 1, loops: true }).unwrap();
                let to = SocketAddr::new(group, inside.address().unwrap().port());
                assert_eq!(sender.send([b"y", b""], &to.into(), Span::from_s(1)), Sent::Yes);
                let came = (0..1000).find_map(|_| loops.receive(&mut [0; 8]).unwrap());
                assert!(came.is_some(), "{group}: the own machine gets it");
            };
            cable.left().run(send).unwrap();
            assert_eq!(outside.receive_now(&mut [0; 8]).unwrap(), None, "{group}: it is in another group");
        }
    }
}
