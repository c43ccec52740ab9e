//! Messages with deadlines through a broker, and without one when it is gone.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_dispatch::deadline::wire::{Request, VERSION};
use takt_dispatch::deadline::{DeadlineSender, Route, SendError};
use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_linux::seqpacket::{Connection, Received, Sent};
use takt_linux::tc::{self, Device, Plan, Rule};
use takt_model::{Bucket, Bytes, Link, Rate, Span};
use takt_net::Order;
use takt_run::broker::{Broker, BrokerError, BrokerSpec, BrokerStats};

const GO: u8 = 0;
const STOP: u8 = 1;
/// The broker ends as if it was killed: it sends nothing more.
const DIE: u8 = 2;

struct Running {
    order: Arc<AtomicU8>,
    thread: Option<JoinHandle<BrokerStats>>,
}

impl Running {
    fn start(spec: BrokerSpec) -> Running {
        let order = Arc::new(AtomicU8::new(GO));
        let asked = Arc::clone(&order);
        let mut broker = Broker::bind(spec).unwrap();
        let thread = std::thread::spawn(move || {
            broker.serve(&mut |_| match asked.load(Ordering::Acquire) {
                // Unwinding drops the broker with all that waits in it.
                DIE => std::panic::resume_unwind(Box::new("killed")),
                order => order == STOP,
            })
        });
        Running { order, thread: Some(thread) }
    }

    fn stop(mut self) -> BrokerStats {
        self.order.store(STOP, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }

    fn die(mut self) {
        self.order.store(DIE, Ordering::Release);
        assert!(self.thread.take().unwrap().join().is_err());
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("takt-broker-{}-{name}", std::process::id()))
}

/// Waits for something that comes sooner or later; a minute is for a machine that stands still.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        pause(Span::from_ms(1));
    }
    panic!("{what}: not within a minute");
}

fn receiver() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn sender_to(receiver: &UdpSocket) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(receiver.local_addr().unwrap()).unwrap();
    socket
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let length = socket.recv(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn datagrams_go_through_the_broker_and_their_fate_is_told() {
    let path = path("datagrams");
    let broker = Running::start(BrokerSpec::new(&path));
    let sender = DeadlineSender::open(&path).unwrap();
    until("the broker answers", || sender.route() == Route::Broker);
    let (receiver, other) = (receiver(), receiver());
    let udp = sender_to(&receiver);
    let socket = sender.socket(&udp, Span::from_s(60)).unwrap();
    for length in [0_usize, 1, 400, 1472, 9000, 60_000] {
        let sent = socket.send(&vec![7; length]).unwrap();
        assert_eq!((sent.bytes, sent.route), (length, Route::Broker));
        assert_eq!(received(&receiver), vec![7; length]);
    }
    socket.send_to(b"elsewhere", other.local_addr().unwrap()).unwrap();
    assert_eq!(received(&other), b"elsewhere");
    // A deadline that is over when the message could be sent.
    socket.set_deadline(Span::ZERO);
    socket.send(b"late").unwrap();
    until("the late message is reported", || socket.counts().late == 1);
    let counts = socket.counts();
    assert_eq!((counts.queued, counts.sent, counts.plain, counts.lost), (8, 7, 0, 0));
    assert_eq!(socket.send(&vec![0; 65_537]), Err(SendError::TooLong(65_537)));
    // The socket still receives, and sends by itself once it has left.
    receiver.send_to(b"back", udp.local_addr().unwrap()).unwrap();
    assert_eq!(received(&udp), b"back");
    drop(socket);
    udp.send(b"plain").unwrap();
    assert_eq!(received(&receiver), b"plain");
    let stats = broker.stop();
    assert_eq!((stats.clients, stats.sockets, stats.sent, stats.late, stats.malformed), (1, 1, 7, 1, 0));
    assert!(!path.exists());
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
    let link = |bps| Link {
        bucket: Some(Bucket { burst: Bytes::new(1600), rate: Rate::from_bps(bps) }),
        ..Link::at(Rate::from_bps(100_000_000))
    };
    let body = || {
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
        let spec = BrokerSpec { order, priority: Some(6), ..BrokerSpec::new(&path) };
        let broker = Running::start(spec);
        let sender = DeadlineSender::open(&path).unwrap();
        let udp = UdpSocket::bind((cable.left().address(), 0)).unwrap();
        udp.connect(receiver.local_addr().unwrap()).unwrap();
        until("the broker answers", || sender.route() == Route::Broker);
        // Each socket has one message waiting: a stream of messages keeps its own order.
        let sockets: Vec<_> = (0..MESSAGES)
            .map(|tag| {
                let udp = UdpSocket::bind((cable.left().address(), 0)).unwrap();
                udp.connect(receiver.local_addr().unwrap()).unwrap();
                // Deadlines in another order: 7 and 40 have no common factor.
                let rank = u64::from(tag) * 7 % u64::from(MESSAGES);
                (sender.socket(&udp, Span::from_s(1000 + 100 * rank)).unwrap(), udp)
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

#[test]
fn a_program_falls_back_to_plain_sends_and_joins_the_next_broker() {
    let path = path("fallback");
    let sender = DeadlineSender::open(&path).unwrap();
    let receiver = receiver();
    let udp = sender_to(&receiver);
    let socket = sender.socket(&udp, Span::from_s(60)).unwrap();
    for round in 0..3 {
        assert_eq!((sender.route(), socket.send(b"plain").unwrap().route), (Route::Plain, Route::Plain));
        assert_eq!(received(&receiver), b"plain");
        let broker = Running::start(BrokerSpec::new(&path));
        until("the socket joins", || socket.route() == Route::Broker);
        assert_eq!(socket.send(b"queued").unwrap().route, Route::Broker);
        assert_eq!(received(&receiver), b"queued");
        until("it is reported", || socket.counts().sent == round + 1);
        if round == 1 {
            broker.stop();
        } else {
            broker.die();
        }
        until("the program learns of it", || socket.route() == Route::Plain);
    }
    let counts = socket.counts();
    assert_eq!((counts.queued, counts.plain, counts.sent, counts.lost), (3, 3, 3, 0));
}

#[test]
fn a_stream_survives_every_end_of_its_broker() {
    const BYTES: usize = 3_000_000;
    let path = path("stream");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let pattern: Vec<u8> = (0..BYTES).map(|at| (at / 251 + at) as u8).collect();
    let expected = pattern.clone();
    let reader = std::thread::spawn(move || {
        let mut at = 0;
        let mut bytes = [0; 4096];
        while at < BYTES {
            let length = peer.read(&mut bytes).unwrap();
            assert!(length > 0, "the stream ended at {at}");
            assert!(bytes[..length] == expected[at..at + length], "the stream differs near {at}");
            at += length;
            if at % 7 == 0 {
                pause(Span::from_us(300));
            }
        }
        assert_eq!(at, BYTES);
        peer
    });
    let sender = DeadlineSender::open(&path).unwrap();
    let socket = sender.socket(&tcp, Span::from_ms(5)).unwrap();
    let ends = std::thread::spawn({
        let path = path.clone();
        move || {
            for round in 0..6 {
                let broker = Running::start(BrokerSpec::new(&path));
                pause(Span::from_ms(150));
                if round % 2 == 0 {
                    broker.die();
                } else {
                    broker.stop();
                }
            }
        }
    });
    let (mut at, mut routes) = (0, [0, 0]);
    while at < BYTES {
        let sent = socket.send(&pattern[at..BYTES.min(at + 1 + at % 5000)]).unwrap();
        routes[usize::from(sent.route == Route::Broker)] += 1;
        at += sent.bytes;
        if at % 3 == 0 {
            pause(Span::from_us(500));
        }
    }
    ends.join().unwrap();
    drop(socket);
    let mut peer = reader.join().unwrap();
    assert!(routes[0] > 0 && routes[1] > 0, "plain and broker: {routes:?}");
    // The stream is the program's own again, in both directions.
    (&tcp).write_all(b"end").unwrap();
    let mut bytes = [0; 3];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"end");
}

#[test]
fn a_peer_that_reads_nothing_delays_nobody_else() {
    let path = path("blocked");
    let broker = Running::start(BrokerSpec::new(&path));
    let sender = DeadlineSender::open(&path).unwrap();
    until("the broker answers", || sender.route() == Route::Broker);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let stream = sender.socket(&tcp, Span::ZERO).unwrap();
    let mut refused = None;
    for _ in 0..100_000 {
        match stream.try_send(&[0; 65_536], None) {
            Ok(_) => pause(Span::from_us(100)),
            Err(error) => {
                refused = Some(error);
                // The broker may still be at work: only what stays full is full.
                pause(Span::from_ms(20));
                if stream.try_send(&[0; 65_536], None).is_err() {
                    break;
                }
            }
        }
    }
    assert_eq!(refused, Some(SendError::WouldBlock));
    let receiver = receiver();
    let udp = sender_to(&receiver);
    let socket = sender.socket(&udp, Span::from_s(60)).unwrap();
    socket.send(b"passes").unwrap();
    assert_eq!(received(&receiver), b"passes");
    // The peer goes away: the stream ends with an error, and the broker with its time.
    drop(peer);
    drop(socket);
    drop(stream);
    drop(sender);
    let stats = broker.stop();
    assert!(stats.sent > 0 && stats.malformed == 0, "{stats:?}");
}

#[test]
fn requests_without_sense_end_their_client_alone() {
    let path = path("malformed");
    let broker = Running::start(BrokerSpec::new(&path));
    let sender = DeadlineSender::open(&path).unwrap();
    let receiver = receiver();
    let udp = sender_to(&receiver);
    let hello = Request::Hello { version: VERSION }.head();
    let join = Request::Join { socket: 0 }.head();
    let send = Request::Send { socket: 3, deadline: takt_model::Time::ZERO, to: None, bytes: b"x" }.head();
    let (pipe, _end) = std::io::pipe().unwrap();
    use std::os::fd::AsFd as _;
    for (what, requests) in [
        ("no hello", vec![(&join[..], Some(udp.as_fd()))]),
        ("another version", vec![(&Request::Hello { version: 99 }.head()[..], None), (&join[..], Some(udp.as_fd()))]),
        ("no descriptor", vec![(&hello[..], None), (&join[..], None)]),
        ("no socket", vec![(&hello[..], None), (&join[..], Some(pipe.as_fd()))]),
        ("twice", vec![(&hello[..], None), (&join[..], Some(udp.as_fd())), (&join[..], Some(udp.as_fd()))]),
        ("an unknown socket", vec![(&hello[..], None), (&send[..], None)]),
        ("rubbish", vec![(&[0xFF; 64][..], None)]),
        ("too long", vec![(&[0xED; 100_000][..], None)]),
    ] {
        let client = Connection::connect(&path).unwrap();
        for (bytes, descriptor) in requests {
            assert_eq!(client.send([bytes, b""], descriptor), Sent::Yes, "{what}");
        }
        let mut bytes = [0; 64];
        until(what, || matches!(client.receive(&mut bytes), Received::Closed));
    }
    until("the broker answers", || sender.route() == Route::Broker);
    let socket = sender.socket(&udp, Span::from_s(60)).unwrap();
    assert_eq!(socket.send(b"still here").unwrap().route, Route::Broker);
    assert_eq!(received(&receiver), b"still here");
    // The kernel cuts a message that is longer than a request. The broker does not read it.
    assert_eq!(broker.stop().malformed, 7);
}

#[test]
fn messages_of_a_program_that_has_ended_are_sent() {
    let path = path("ended");
    let broker = Running::start(BrokerSpec::new(&path));
    let receiver = receiver();
    let udp = sender_to(&receiver);
    {
        use std::os::fd::AsFd as _;
        let client = Connection::connect(&path).unwrap();
        let send = Request::Send { socket: 0, deadline: takt_model::Time::MAX, to: None, bytes: b"" }.head();
        for (parts, descriptor) in [
            ([&Request::Hello { version: VERSION }.head()[..], b""], None),
            ([&Request::Join { socket: 0 }.head()[..], b""], Some(udp.as_fd())),
            ([&send[..], b"last words"], None),
        ] {
            assert_eq!(client.send(parts, descriptor), Sent::Yes);
        }
    }
    drop(udp);
    assert_eq!(received(&receiver), b"last words");
    broker.stop();
}

#[test]
fn a_broker_that_cannot_listen_says_why() {
    let path = path("listen");
    let broker = Running::start(BrokerSpec::new(&path));
    let refused = |path: &Path| match Broker::bind(BrokerSpec::new(path)) {
        Err(error @ BrokerError::Listen { .. }) => error.to_string(),
        _ => panic!("it listens"),
    };
    assert!(refused(&path).ends_with("another broker listens there: stop it, or give another path"));
    let nowhere = path.join("x");
    assert!(refused(&nowhere).contains("Not a directory"), "{}", refused(&nowhere));
    assert!(
        refused(Path::new("/no/such/folder/x")).ends_with("its folder does not exist: make it, or give another path")
    );
    broker.stop();
}
