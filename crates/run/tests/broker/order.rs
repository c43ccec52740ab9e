//! The order in which messages leave a line that is too slow for them.

use std::ops::Range;

use socket2::{Domain, Protocol, Socket, Type};
use takt_linux::tc::{self, Device, Plan, Rule};
use takt_model::{Bucket, Bytes, Link, Rate};
use takt_net::Order;

use super::*;

/// A link with that rate for messages with deadlines.
fn link(bps: u64) -> Link {
    Link {
        bucket: Some(Bucket { burst: Bytes::new(1600), rate: Rate::from_bps(bps) }),
        ..Link::at(Rate::from_bps(100_000_000))
    }
}

/// The tags of datagrams in the order in which they leave a line. All of them wait when the line
/// becomes fast: those that had left before, or were with the kernel, are not among them.
fn order_on_the_line(order: Order) -> Option<Vec<u8>> {
    const MESSAGES: u8 = 40;
    let path = path(&format!("line-{order:?}"));
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let body = || {
        // Between two CPUs the kernel keeps no order of datagrams. Threads inherit this.
        sched::set_affinity(&sched::affinity()[..1]).unwrap();
        cable.right().enter().unwrap();
        let receiver = UdpSocket::bind((cable.right().address(), 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        cable.left().enter().unwrap();
        let device = Device::find(cable.left().device()).unwrap().unwrap();
        // A datagram takes half a second.
        let slow = Plan::new(&link(8_000), &device).unwrap();
        let mut shares = match tc::apply(&device, &slow, &Rule::usual(false), false) {
            Ok(shares) => shares,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        // Packets move slowly, but they move.
        let rate = Some(Rate::from_bps(8_000));
        let spec = BrokerSpec { order, rate, priority: Some(6), ..BrokerSpec::new(&path) };
        let broker = Running::start(spec);
        let sender = DeadlineSender::open(&path).unwrap();
        until("the broker answers", || sender.route() == Route::Broker);
        // Each socket has one message waiting: a stream of messages keeps its own order.
        let sockets: Vec<_> = (0..MESSAGES)
            .map(|tag| {
                let udp = UdpSocket::bind((cable.left().address(), 0)).unwrap();
                udp.connect(receiver.local_addr().unwrap()).unwrap();
                // Deadlines in another order: 7 and 40 have no common factor.
                let rank = u64::from(tag) * 7 % u64::from(MESSAGES);
                (joined(&sender, &udp, Span::from_s(1000 + 100 * rank)), udp)
            })
            .collect();
        for (tag, (socket, _)) in (0..).zip(&sockets) {
            let sent = socket.send(&[&[tag][..], &[0; 499]].concat()).unwrap();
            assert_eq!(sent.route, Route::Broker);
        }
        let fast = Plan::new(&link(10_000_000), &device).unwrap();
        // What the kernel has taken by now was sent or waits there.
        pause(Span::from_ms(300));
        let taken: u64 = sockets.iter().map(|(socket, _)| socket.counts().sent).sum();
        shares.change(&fast, &Rule::usual(false)).unwrap();
        let tags = (0..MESSAGES).map(|_| received(&receiver)[0]).collect::<Vec<u8>>();
        drop(sockets);
        broker.stop();
        assert!(taken < 10, "the kernel took {taken} datagrams of a slow line");
        Some(tags)
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn a_line_gets_messages_in_the_order_of_their_deadlines() {
    let Some(tags) = order_on_the_line(Order::Edf) else { return };
    // Some messages left before the others came: two fit into the burst, and the kernel held two
    // more. A slow sender adds one in each half second.
    let ranks: Vec<u32> = tags.iter().map(|tag| u32::from(*tag) * 7 % 40).collect();
    let first = (0..ranks.len()).find(|at| ranks[*at..].is_sorted()).unwrap();
    assert!(first <= 12, "{ranks:?}");
    let Some(tags) = order_on_the_line(Order::Fifo) else { return };
    assert!(tags.is_sorted(), "{tags:?}");
}

/// A socket for all IPv4 packets from the cable, in the order of their arrival.
fn packets() -> Socket {
    const IPV4: u16 = 0x0800;
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(i32::from(IPV4.to_be())))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// The first byte that a TCP packet over IPv4 carries. `None`: it carries none, or is no such packet.
fn first_byte(packet: &[u8]) -> Option<u8> {
    const TCP: u8 = 6;
    let head = usize::from(packet.first()? & 15) * 4;
    let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let bytes = packet.get(..length)?.get(head..).filter(|_| packet.get(9) == Some(&TCP))?;
    let head = usize::from(bytes.get(12)? >> 4) * 4;
    bytes.get(head).copied()
}

/// Streams that share a class wait in the broker and not in the queue of the class. So a message that comes later
/// overtakes all others with later deadlines.
#[test]
fn messages_of_streams_leave_a_line_in_the_order_of_their_deadlines() {
    /// Streams with a message before the broker is held, and after. The broker reads so many requests of a client
    /// before it sends.
    const EACH: u8 = 32;
    let path = path("streams-on-a-line");
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let rank = |tag: u8| u64::from(tag) * 7 % u64::from(2 * EACH);
    let body = || {
        // Between two CPUs the kernel keeps no order of packets. Threads inherit this.
        sched::set_affinity(&sched::affinity()[..1]).unwrap();
        cable.left().enter().unwrap();
        let listener = cable.right().run(|| TcpListener::bind((cable.right().address(), 0)).unwrap()).unwrap();
        let connect = |_| {
            let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (tcp, listener.accept().unwrap().0)
        };
        let connections: Vec<(TcpStream, TcpStream)> = (0..2 * EACH).map(connect).collect();
        let device = Device::find(cable.left().device()).unwrap().unwrap();
        // A message takes more than half a second.
        let slow = Plan::new(&link(8_000), &device).unwrap();
        let mut shares = match tc::apply(&device, &slow, &Rule::usual(false), false) {
            Ok(shares) => shares,
            Err(error) => return println!("skipped: {error}"),
        };
        let line = cable.right().run(packets).unwrap();
        let rate = Some(Rate::from_bps(8_000));
        let broker = Running::start(BrokerSpec { rate, priority: Some(6), ..BrokerSpec::new(&path) });
        let sender = DeadlineSender::open(&path).unwrap();
        until("the broker answers", || sender.route() == Route::Broker);
        // Each stream has one message: a stream keeps its own order. Deadlines have another order than the sends.
        let deadline = |tag| Span::from_s(1000 + 100 * rank(tag));
        let join = (0..).zip(&connections).map(|(tag, (tcp, _))| joined(&sender, tcp, deadline(tag)));
        let sockets: Vec<DeadlineSocket> = join.collect();
        let send = |tags: Range<u8>| {
            for tag in tags {
                let sent = sockets[usize::from(tag)].send(&[&[tag][..], &[0; 499]].concat()).unwrap();
                assert_eq!((sent.bytes, sent.route), (500, Route::Broker));
            }
        };
        broker.hold();
        send(0..EACH);
        broker.go();
        // Enough turns to send all, eight in each.
        broker.turns(6);
        let taken = broker.hold() as usize;
        send(EACH..2 * EACH);
        let fast = Plan::new(&link(10_000_000), &device).unwrap();
        shares.change(&fast, &Rule::usual(false)).unwrap();
        broker.go();
        let (mut tags, mut packet) = (Vec::new(), [0; 2000]);
        while tags.len() < usize::from(2 * EACH) {
            let length = (&line).read(&mut packet).unwrap();
            match first_byte(&packet[..length]) {
                // TCP may repeat a segment.
                Some(tag) if !tags.contains(&tag) => tags.push(tag),
                _ => {}
            }
        }
        drop(sockets);
        broker.stop();
        assert!(taken < usize::from(EACH), "the kernel took all of them, and kept them from the broker");
        // The first `taken` messages left in the order of the first half. All others follow by deadline.
        let mut expected: Vec<u8> = (0..EACH).collect();
        expected.sort_by_key(|tag| rank(*tag));
        expected.extend(EACH..2 * EACH);
        expected[taken..].sort_by_key(|tag| rank(*tag));
        assert_eq!(tags, expected, "{taken} had left before the last came");
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}
