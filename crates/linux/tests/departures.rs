//! The departures of HTB with a pfifo, and of takt's own discipline, packet by packet, beside those of the
//! egress of takt-net.

use std::net::SocketAddr;

use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_linux::net::Cable;
use takt_linux::tc::Discipline;
use takt_model::Span;

use harness::{PRIORITY, Sender, compare};

#[path = "departures/harness.rs"]
mod harness;

/// A socket that gives each datagram to the kernel at once.
struct Direct {
    socket: Datagrams,
    to: Destination,
}

impl Direct {
    fn open(cable: &Cable, to: SocketAddr) -> Direct {
        let from = (cable.left().address(), 0).into();
        let socket = Datagrams::bind(from, PRIORITY, 4 << 20, Span::from_ms(1)).unwrap();
        Direct { socket, to: to.into() }
    }
}

impl Sender for Direct {
    fn send(&mut self, datagram: &[u8]) {
        assert_eq!(self.socket.send([datagram, &[]], &self.to, Span::ZERO), Sent::Yes);
    }

    fn end(self) {}
}

#[test]
fn departures_of_htb_are_those_of_the_machine_packet_by_packet() {
    compare(Discipline::Htb, Direct::open);
}

/// First in, first out as HTB with a pfifo: the same test.
#[cfg(feature = "bpf")]
#[test]
fn departures_of_takts_own_discipline_are_those_of_the_machine_packet_by_packet() {
    compare(Discipline::Own { edf: false, late: takt_model::Late::Continue }, Direct::open);
}
