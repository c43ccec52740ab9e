//! Messages with deadlines through a broker, and without one when it is gone.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;
use takt_dispatch::deadline::wire::{Answer, MESSAGE_MAX, Request, VERSION, WAITING_MAX};
use takt_dispatch::deadline::{DeadlineSender, DeadlineSocket, Route, SendError};
use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_linux::outgoing::Outgoing;
use takt_linux::sched::{self, Class, ClassGuard};
use takt_linux::seqpacket::{Connection, Poll, Received, Sent};
use takt_model::Span;
use takt_run::broker::{Broker, BrokerError, BrokerSpec, BrokerStats};

#[path = "broker/order.rs"]
mod order;

const GO: u8 = 0;
const STOP: u8 = 1;
/// The broker ends as if it was killed: it sends nothing more.
const DIE: u8 = 2;
/// The broker does nothing until it gets another order.
const HOLD: u8 = 3;

struct Running {
    order: Arc<AtomicU8>,
    /// One more than the messages that it had sent when it was held; 0: it is not held.
    held: Arc<AtomicU64>,
    /// How often it has asked for its order.
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<BrokerStats>>,
}

impl Running {
    fn start(spec: BrokerSpec) -> Running {
        let order = Arc::new(AtomicU8::new(GO));
        let [held, asked] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let its = (Arc::clone(&order), Arc::clone(&held), Arc::clone(&asked));
        let mut broker = Broker::bind(spec).unwrap();
        let thread = std::thread::spawn(move || {
            let (order, held, asked) = its;
            broker.serve(&mut |stats| {
                asked.fetch_add(1, Ordering::AcqRel);
                while order.load(Ordering::Acquire) == HOLD {
                    held.store(stats.sent + 1, Ordering::Release);
                    pause(Span::from_ms(1));
                }
                held.store(0, Ordering::Release);
                match order.load(Ordering::Acquire) {
                    // Unwinding drops the broker with all that waits in it.
                    DIE => std::panic::resume_unwind(Box::new("killed")),
                    order => order == STOP,
                }
            })
        });
        Running { order, held, asked, thread: Some(thread) }
    }

    /// Makes the broker stand still. Returns how many messages it has sent.
    fn hold(&self) -> u64 {
        self.order.store(HOLD, Ordering::Release);
        until("the broker stands still", || self.held.load(Ordering::Acquire) > 0);
        self.held.load(Ordering::Acquire) - 1
    }

    /// Lets it go on.
    fn go(&self) {
        self.order.store(GO, Ordering::Release);
        until("the broker goes on", || self.held.load(Ordering::Acquire) == 0);
    }

    /// Waits until it has asked for its order so often. It reads and sends at least once between two of them.
    fn turns(&self, count: u64) {
        let from = self.asked.load(Ordering::Acquire);
        until("the broker takes its turns", || self.asked.load(Ordering::Acquire) >= from + count);
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

/// A broker, and a program that it answers.
fn answering(path: &Path) -> (Running, DeadlineSender) {
    let broker = Running::start(BrokerSpec::new(path));
    let sender = DeadlineSender::open(path).unwrap();
    until("the broker answers", || sender.route() == Route::Broker);
    (broker, sender)
}

/// A socket with deadlines that has joined the broker.
fn joined(sender: &DeadlineSender, socket: &impl AsFd, deadline: Span) -> DeadlineSocket {
    let socket = sender.socket(socket, deadline).unwrap();
    until("the socket joins", || socket.route() == Route::Broker);
    socket
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

/// Reads a stream to its end.
fn read_all(mut peer: TcpStream) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// A client without the library. Its socket 0 joins the broker.
fn client_with(path: &Path, socket: &impl AsFd) -> Connection {
    let client = Connection::connect(path).unwrap();
    assert_eq!(client.send([&Request::Hello { version: VERSION }.head(), b""], None), Sent::Yes);
    assert_eq!(client.send([&Request::Join { socket: 0 }.head(), b""], Some(socket.as_fd())), Sent::Yes);
    client
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
    let (broker, sender) = answering(&path);
    let (receiver, other) = (receiver(), receiver());
    let udp = sender_to(&receiver);
    let socket = joined(&sender, &udp, Span::from_s(60));
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
        // A broker that ends lets go of its sockets first.
        until("the program learns of it", || (sender.route(), socket.route()) == (Route::Plain, Route::Plain));
    }
    let counts = socket.counts();
    assert_eq!((counts.queued, counts.plain, counts.sent, counts.lost), (3, 3, 3, 0));
}

#[test]
fn a_stream_survives_every_end_of_its_broker() {
    // So many bytes go through each broker before it ends.
    const BYTES: usize = 200_000;
    let path = path("stream");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let pattern = |from: usize, to: usize| (from..to).map(|at| (at / 251 + at) as u8).collect::<Vec<u8>>();
    // The length of the stream, as soon as it is known.
    let all = AtomicUsize::new(usize::MAX);
    let (plain, queued) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sender = DeadlineSender::open(&path).unwrap();
    let socket = sender.socket(&tcp, Span::from_ms(5)).unwrap();
    let mut peer = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut at = 0;
            let mut bytes = [0; 4096];
            while at < all.load(Ordering::Acquire) {
                let length = peer.read(&mut bytes).unwrap();
                assert!(length > 0, "the stream ended at {at}");
                assert!(bytes[..length] == pattern(at, at + length), "the stream differs near {at}");
                at += length;
                if at % 7 == 0 {
                    pause(Span::from_us(300));
                }
            }
            assert_eq!(at, all.load(Ordering::Acquire));
            peer
        });
        let ends = scope.spawn(|| {
            for round in 0..6 {
                let broker = Running::start(BrokerSpec::new(&path));
                let before = queued.load(Ordering::Acquire);
                until("the stream goes through it", || queued.load(Ordering::Acquire) >= before + BYTES);
                if round % 2 == 0 {
                    broker.die();
                } else {
                    broker.stop();
                }
            }
        });
        let mut at = 0;
        while at < all.load(Ordering::Acquire) {
            let to = at + 1 + at % 5000;
            if ends.is_finished() {
                // Before these bytes, so that the reader knows it when it has them.
                all.store(to, Ordering::Release);
            }
            let message = pattern(at, to);
            while at < to {
                let sent = socket.send(&message[message.len() - (to - at)..]).unwrap();
                let route = if sent.route == Route::Broker { &queued } else { &plain };
                route.fetch_add(sent.bytes, Ordering::AcqRel);
                at += sent.bytes;
            }
            if at % 3 == 0 {
                pause(Span::from_us(500));
            }
        }
        ends.join().unwrap();
        reader.join().unwrap()
    });
    drop(socket);
    // The last bytes found no broker.
    assert!(plain.into_inner() > 0 && queued.into_inner() >= 6 * BYTES);
    // The stream is the program's own again, in both directions.
    (&tcp).write_all(b"end").unwrap();
    let mut bytes = [0; 3];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"end");
}

/// The most that a program gives a broker of a stream whose bytes do not leave: 1 MiB.
const FULL: u64 = 16;

/// Gives the broker so many messages that some wait there for as long as the peer of a [`connection`] reads nothing.
fn fill(stream: &DeadlineSocket) {
    for _ in 0..FULL {
        assert_eq!(stream.send(&[7; MESSAGE_MAX]).unwrap().route, Route::Broker);
    }
}

/// A TCP connection, and its peer. The kernel holds less than 1 MiB on the way.
fn connection() -> (TcpStream, TcpStream) {
    const BUFFER: usize = 128 * 1024;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SockRef::from(&listener).set_recv_buffer_size(BUFFER).unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    SockRef::from(&tcp).set_send_buffer_size(BUFFER).unwrap();
    (tcp, listener.accept().unwrap().0)
}

#[test]
fn a_socket_that_leaves_keeps_its_bytes_in_order_and_its_number() {
    let (broker, sender) = answering(&path("leaves"));
    let (tcp, peer) = connection();
    let stream = joined(&sender, &tcp, Span::from_s(60));
    fill(&stream);
    let queued = stream.counts().queued;
    // The peer takes nothing: bytes wait, and the program is told.
    assert!(stream.leave() > 0);
    assert_eq!(stream.try_send(b"x", None), Err(SendError::WouldBlock), "no byte overtakes them");
    // Other sockets join and send meanwhile.
    let receiver = receiver();
    for _ in 0..3 {
        let udp = sender_to(&receiver);
        let socket = joined(&sender, &udp, Span::from_s(60));
        assert_eq!(socket.send(b"other").unwrap().route, Route::Broker);
        assert_eq!(received(&receiver), b"other");
        assert_eq!(socket.leave(), 0);
    }
    let reader = read_all(peer);
    until("all bytes have left", || stream.leave() == 0);
    assert_eq!(stream.send(b"x"), Err(SendError::Refused(9)), "it is the program's own");
    (&tcp).write_all(b"end").unwrap();
    drop(stream);
    drop(tcp);
    let bytes = reader.join().unwrap();
    assert_eq!(bytes.len() as u64, queued * 65_536 + 3);
    assert!(bytes.ends_with(b"end") && bytes[..bytes.len() - 3].iter().all(|byte| *byte == 7));
    assert_eq!(broker.stop().malformed, 0);
}

#[test]
fn a_broker_that_ends_in_order_loses_no_datagram_and_doubles_no_byte() {
    const PACE: Span = Span::from_us(200);
    let (broker, sender) = answering(&path("order"));
    // Bytes that cannot leave keep the broker for a second after its end.
    let (tcp, peer) = connection();
    let stream = joined(&sender, &tcp, Span::from_s(60));
    fill(&stream);
    let streamed = stream.counts().queued * 65_536;
    let receiver = receiver();
    let udp = sender_to(&receiver);
    let socket = joined(&sender, &udp, Span::from_s(60));
    let came = Arc::new(AtomicUsize::new(0));
    let reader = std::thread::spawn({
        let came = Arc::clone(&came);
        move || {
            // An empty datagram is the last one.
            while !received(&receiver).is_empty() {
                came.fetch_add(1, Ordering::AcqRel);
            }
        }
    });
    let mut sent = 0;
    let send = |sent: &mut usize| {
        socket.send(b"datagram").unwrap();
        *sent += 1;
        // Its buffer holds more than these, and the kernel drops what it does not hold.
        until("the reader follows", || sent.saturating_sub(came.load(Ordering::Acquire)) < 100);
        pause(PACE);
    };
    (0..100).for_each(|_| send(&mut sent));
    let stopping = std::thread::spawn(|| broker.stop());
    while !stopping.is_finished() {
        send(&mut sent);
    }
    let stats = stopping.join().unwrap();
    (0..100).for_each(|_| send(&mut sent));
    let counts = socket.counts();
    drop(socket);
    let told = format!("all of {sent} datagrams come: {counts:?}, {stats:?}");
    until(&told, || came.load(Ordering::Acquire) >= sent);
    udp.send(b"").unwrap();
    reader.join().unwrap();
    assert_eq!(came.load(Ordering::Acquire), sent, "{counts:?}, {stats:?}");
    assert_eq!((counts.lost, counts.queued + counts.plain), (0, sent as u64));
    let reader = read_all(peer);
    until("all bytes have left", || stream.leave() == 0);
    drop(stream);
    drop(tcp);
    assert_eq!(reader.join().unwrap().len() as u64, streamed);
}

#[test]
fn a_peer_that_does_not_answer_arp_delays_nobody_else() {
    let path = path("silent");
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let body = || {
        cable.right().enter().unwrap();
        let receiver = UdpSocket::bind((cable.right().address(), 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        cable.left().enter().unwrap();
        let broker = Running::start(BrokerSpec { late: takt_net::LateRule::Send, ..BrokerSpec::new(&path) });
        let sender = DeadlineSender::open(&path).unwrap();
        until("the broker answers", || sender.route() == Route::Broker);
        let silent = UdpSocket::bind((cable.left().address(), 0)).unwrap();
        silent.connect((cable.nobody(), 9)).unwrap();
        let silent = joined(&sender, &silent, Span::ZERO);
        for _ in 0..WAITING_MAX {
            silent.send(&[0; 400]).unwrap();
        }
        let udp = UdpSocket::bind((cable.left().address(), 0)).unwrap();
        udp.connect(receiver.local_addr().unwrap()).unwrap();
        let socket = joined(&sender, &udp, Span::from_s(60));
        for number in 0..20 {
            socket.send(&[number; 400]).unwrap();
            assert_eq!(received(&receiver), [number; 400]);
        }
        let counts = silent.counts();
        assert!(counts.sent < WAITING_MAX as u64 / 2, "those to the silent peer wait: {counts:?}");
        drop((silent, socket, sender));
        broker.stop();
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

#[test]
fn a_client_that_the_broker_ends_sends_the_rest_of_its_streams_itself() {
    let path = path("ended-by-the-broker");
    let broker = Running::start(BrokerSpec::new(&path));
    let (tcp, mut peer) = connection();
    let outgoing = Outgoing::new(tcp.try_clone().unwrap().into()).unwrap();
    let base = outgoing.taken().unwrap();
    let client = client_with(&path, &tcp);
    // More messages than a socket may have there.
    let bytes = vec![7; MESSAGE_MAX];
    let send = Request::Send { socket: 0, deadline: takt_model::Time::MAX, to: None, bytes: &bytes }.head();
    until("the broker ends the connection", || client.send([&send, &bytes], None) == Sent::Closed);
    until("its end is told", || matches!(client.receive(&mut [0; 64]), Received::Closed));
    let taken = (outgoing.taken().unwrap() - base) as usize;
    // From here on the bytes are the program's.
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    peer.read_exact(&mut vec![0; taken]).unwrap();
    (&tcp).write_all(b"end").unwrap();
    pause(Span::from_ms(200));
    drop((tcp, outgoing));
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"end");
    assert_eq!(broker.stop().malformed, 1);
}

#[test]
fn a_peer_that_reads_nothing_delays_nobody_else() {
    let (broker, sender) = answering(&path("blocked"));
    let (tcp, peer) = connection();
    let stream = joined(&sender, &tcp, Span::ZERO);
    fill(&stream);
    // Small messages as well: the broker takes no more of it, by bytes or by messages.
    until("the socket is full", || stream.try_send(&[0], None) == Err(SendError::WouldBlock));
    let receiver = receiver();
    let udp = sender_to(&receiver);
    let socket = joined(&sender, &udp, Span::from_s(60));
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
fn a_program_that_does_not_wait_polls_for_room() {
    let (broker, sender) = answering(&path("room"));
    let (tcp, mut peer) = connection();
    tcp.set_nonblocking(true).unwrap();
    let stream = joined(&sender, &tcp, Span::from_s(60));
    let has_room = |wait: Span| {
        let mut poll = Poll::default();
        poll.add(stream.room().unwrap(), true, false);
        poll.wait(Some(wait));
        poll.is_ready(0)
    };
    let mut sent = 0;
    // Whether a message was taken.
    let mut is_taken = || match stream.send(&[7; MESSAGE_MAX]) {
        Ok(taken) => {
            sent += taken.bytes;
            true
        }
        Err(error) => {
            assert_eq!(error, SendError::WouldBlock);
            false
        }
    };
    assert!(has_room(Span::ZERO), "no message was refused");
    // The peer reads nothing: sooner or later there is no room, and none comes.
    until("the broker is full", || !is_taken() && !has_room(Span::from_ms(20)));
    // It reads on: the broker tells of every eighth message.
    let (mut some, mut read) = (vec![0; MESSAGE_MAX], 0);
    peer.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
    until("room in the broker is told", || {
        read += peer.read(&mut some).unwrap_or(0);
        has_room(Span::ZERO) && is_taken()
    });
    peer.set_read_timeout(None).unwrap();
    until("the broker is full again", || !is_taken() && !has_room(Span::from_ms(20)));
    broker.die();
    until("the end of the broker is told", || has_room(Span::from_ms(1)));
    // Bytes that the broker left keep the stream full.
    until("the kernel is full", || !is_taken() && !has_room(Span::from_ms(20)));
    let reader = read_all(peer);
    until("room in the kernel is told", || has_room(Span::from_ms(1)) && is_taken());
    until("all bytes have left", || stream.leave() == 0);
    assert!(has_room(Span::ZERO), "a socket that has left never waits");
    drop(stream);
    drop(tcp);
    assert_eq!(read + reader.join().unwrap().len(), sent);
}

/// The descriptors of this process for the same socket.
fn descriptors(socket: &impl AsRawFd) -> usize {
    let of = |descriptor: PathBuf| std::fs::read_link(descriptor).ok();
    let own = of(format!("/proc/self/fd/{}", socket.as_raw_fd()).into());
    assert!(own.is_some());
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| entry.as_ref().is_ok_and(|entry| of(entry.path()) == own)).count()
}

#[test]
fn a_socket_that_has_left_is_closed_by_its_program_alone() {
    let body = || {
        sched::set_affinity(&sched::affinity()[..1]).unwrap();
        let sender = DeadlineSender::open(&path("nobody")).unwrap();
        let (tcp, _peer) = connection();
        tcp.set_nonblocking(true).unwrap();
        let stream = sender.socket(&tcp, Span::from_s(60)).unwrap();
        let has_room = || {
            let mut poll = Poll::default();
            poll.add(stream.room().unwrap(), true, false);
            poll.wait(Some(Span::from_ms(20)));
            poll.is_ready(0)
        };
        // The peer reads nothing. The thread that watches the sockets polls for room in the kernel.
        until("the kernel is full", || stream.send(&[7; MESSAGE_MAX]) == Err(SendError::WouldBlock) && !has_room());
        assert_eq!(descriptors(&tcp), 2, "its own, and that of the sender");
        // From now on that thread runs only while this one sleeps.
        let _fifo = match ClassGuard::enter(&Class::Fifo { priority: 10 }) {
            Ok(fifo) => fifo,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_eq!(stream.leave(), 0);
        until("it has left", || stream.try_send(b"x", None) == Err(SendError::Refused(9)));
        assert_eq!(descriptors(&tcp), 1);
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

#[test]
fn the_broker_closes_the_sockets_of_a_program_that_has_ended() {
    let path = path("closes");
    let broker = Running::start(BrokerSpec::new(&path));
    // With all sent, and with messages that cannot leave.
    for messages in [1, 32] {
        let (tcp, mut peer) = connection();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let client = Connection::connect(&path).unwrap();
        assert_eq!(client.send([&Request::Hello { version: VERSION }.head(), b""], None), Sent::Yes);
        assert_eq!(client.send([&Request::Join { socket: 0 }.head(), b""], Some(tcp.as_fd())), Sent::Yes);
        let bytes = vec![7; MESSAGE_MAX];
        let send = Request::Send { socket: 0, deadline: takt_model::Time::MAX, to: None, bytes: &bytes }.head();
        for _ in 0..messages {
            until("there is room", || client.send([&send, &bytes], None) == Sent::Yes);
        }
        drop((client, tcp));
        // Up to the end of the stream.
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).unwrap();
        assert!(!rest.is_empty() && rest.len() <= messages * MESSAGE_MAX);
    }
    broker.stop();
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
    for (what, requests) in [
        ("no hello", vec![(&join[..], Some(udp.as_fd()))]),
        ("another version", vec![(&Request::Hello { version: 99 }.head()[..], None), (&join[..], Some(udp.as_fd()))]),
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
    // A descriptor that does not come, or that cannot send, is refused. The client goes on.
    let client = Connection::connect(&path).unwrap();
    assert_eq!(client.send([&hello, b""], None), Sent::Yes);
    for (number, descriptor, errno) in [(1, None, 24), (2, Some(pipe.as_fd()), 88)] {
        let join = Request::Join { socket: number }.head();
        assert_eq!(client.send([&join, b""], descriptor), Sent::Yes);
        let mut bytes = [0; 64];
        until("it is refused", || match client.receive(&mut bytes) {
            Received::Message(length, _) => {
                Answer::read(&bytes[..length]) == Some(Answer::Refused { socket: number, errno })
            }
            _ => false,
        });
    }
    until("the broker answers", || sender.route() == Route::Broker);
    let socket = joined(&sender, &udp, Span::from_s(60));
    assert_eq!(socket.send(b"still here").unwrap().route, Route::Broker);
    assert_eq!(received(&receiver), b"still here");
    // The kernel cuts a message that is longer than a request. The broker does not read it.
    assert_eq!(broker.stop().malformed, 5);
}

#[test]
fn messages_of_a_program_that_has_ended_are_sent() {
    let path = path("ended");
    let broker = Running::start(BrokerSpec::new(&path));
    let receiver = receiver();
    let udp = sender_to(&receiver);
    {
        let client = client_with(&path, &udp);
        let send = Request::Send { socket: 0, deadline: takt_model::Time::MAX, to: None, bytes: b"" }.head();
        assert_eq!(client.send([&send, b"last words"], None), Sent::Yes);
    }
    drop(udp);
    assert_eq!(received(&receiver), b"last words");
    broker.stop();
}

/// The broker waits until there is room for its last answers: otherwise the client would count what was sent as lost.
#[test]
fn a_client_that_reads_late_is_told_what_was_sent() {
    let path = path("reads-late");
    let broker = Running::start(BrokerSpec::new(&path));
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // A broker that cannot answer reads no more requests.
    receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let udp = sender_to(&receiver);
    let client = client_with(&path, &udp);
    let hello = Request::Hello { version: VERSION }.head();
    let send = Request::Send { socket: 0, deadline: takt_model::Time::MAX, to: None, bytes: b"x" }.head();
    let mut sent = 0;
    while sent < 100_000 {
        assert_eq!(client.send([&send, b"x"], None), Sent::Yes);
        sent += 1;
        if receiver.recv(&mut [0; 8]).is_err() {
            break;
        }
    }
    let stopping = std::thread::spawn(|| broker.stop());
    until("the broker takes no more requests", || client.send([&hello, b""], None) == Sent::Closed);
    let (mut bytes, mut last) = ([0; 64], None);
    until("the broker ends", || {
        loop {
            match client.receive(&mut bytes) {
                Received::Message(length, _) => last = Answer::read(&bytes[..length]),
                Received::Nothing => return false,
                Received::Closed => return true,
            }
        }
    });
    let Some(Answer::Counts { counts, has_left: true, .. }) = last else { panic!("{last:?} after {sent}") };
    assert_eq!((counts.sent, stopping.join().unwrap().sent), (sent, sent));
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
