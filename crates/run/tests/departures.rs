//! The departures of messages that wait in user space, first in, first out, in front of HTB. They are those of HTB
//! with a pfifo, packet by packet.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use takt_dispatch::deadline::{DeadlineSender, DeadlineSocket, Route};
use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_linux::sched::{self, Class, ClassGuard};
use takt_linux::tc::Discipline;
use takt_model::Span;
use takt_net::{LateRule, Order};
use takt_run::broker::{Broker, BrokerSpec, BrokerStats};

use harness::{PRIORITY, Sender, compare};

#[path = "../../linux/tests/departures/harness.rs"]
mod harness;

/// Messages take turns at so many sockets. A socket has 64 places in a broker, and all places together are more than
/// the messages of a comparison.
const SOCKETS: usize = 4;
/// The broker reads so many requests before it sends.
const CHUNK: usize = 32;

/// A program whose messages leave by a broker in the order of arrival: `takt net broker --order fifo --late send`.
struct ThroughBroker {
    sockets: Vec<(DeadlineSocket, UdpSocket)>,
    count: usize,
    ends: Arc<AtomicBool>,
    broker: JoinHandle<BrokerStats>,
}

impl ThroughBroker {
    fn open(cable: &Cable, to: SocketAddr) -> ThroughBroker {
        let path = std::env::temp_dir().join(format!("takt-departures-{}", std::process::id()));
        let (order, late, priority) = (Order::Fifo, LateRule::Send, Some(PRIORITY));
        let mut broker = Broker::bind(BrokerSpec { order, late, priority, ..BrokerSpec::new(&path) }).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
        let broker = std::thread::spawn(move || {
            // Between two CPUs the kernel keeps no order of datagrams.
            sched::set_affinity(&sched::affinity()[..1]).unwrap();
            // While another thread has its CPU, messages are late. If the kernel refuses the class, more of them are.
            let _class = ClassGuard::enter(&Class::Fifo { priority: 10 }).ok();
            broker.serve(&mut |_| asked.load(Ordering::Acquire))
        });
        let sender = DeadlineSender::open(&path).unwrap();
        let socket = |_| {
            let udp = UdpSocket::bind((cable.left().address(), 0)).unwrap();
            udp.connect(to).unwrap();
            (sender.socket(&udp, Span::from_s(60)).unwrap(), udp)
        };
        let sockets: Vec<_> = (0..SOCKETS).map(socket).collect();
        let have_joined = || sockets.iter().all(|(socket, _)| socket.route() == Route::Broker);
        // A minute is for a machine that stands still.
        let joined = (0..60_000).any(|_| {
            pause(Span::from_ms(1));
            have_joined()
        });
        assert!(joined, "the sockets join the broker");
        ThroughBroker { sockets, count: 0, ends, broker }
    }
}

impl Sender for ThroughBroker {
    fn send(&mut self, datagram: &[u8]) {
        let (socket, _) = &self.sockets[self.count % SOCKETS];
        assert_eq!(socket.send(datagram).unwrap().route, Route::Broker);
        self.count += 1;
    }

    fn end(self) {
        // Sockets leave when their messages have left.
        drop(self.sockets);
        self.ends.store(true, Ordering::Release);
        let stats = self.broker.join().unwrap();
        assert_eq!((stats.sent, stats.late, stats.refused), (self.count as u64, 0, 0));
        // Messages that wait in the class instead would show nothing of the broker.
        assert!(stats.waiting_max > CHUNK, "{} messages at most waited in user space", stats.waiting_max);
    }
}

#[test]
fn departures_through_a_broker_in_order_of_arrival_are_those_of_htb_packet_by_packet() {
    compare(Discipline::Htb, ThroughBroker::open);
}
