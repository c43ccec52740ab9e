//! What the broker costs and gains.
//!
//! `cargo bench -p takt-run --bench broker -- [--seconds N]`
//!
//! 1. Cost: datagrams of 400 bytes to this machine, by plain send(2), through a queue of the sending
//!    thread, and through the broker: packets a second, and CPU time of the sending thread and of the
//!    broker for each.
//! 2. Gain: a link's real-time class of 20 Mbit/s under full load, in a network of the benchmark's
//!    own (needs root). The same bursts go through the broker first in, first out, and by their
//!    deadlines with late ones dropped. A packet is bad if it comes after its deadline, or not.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use takt_dispatch::deadline::{DeadlineSender, DeadlineSocket, Route};
use takt_linux::clock::{monotonic_ns, pause, thread_cpu};
use takt_linux::net::Cable;
use takt_linux::outgoing::Outgoing;
use takt_linux::seqpacket::Poll;
use takt_linux::tc::{self, Device, Plan, Rule};
use takt_linux::{Epoch, clock};
use takt_model::draw::philox2x64;
use takt_model::{Bucket, Bytes, Link, Rate, Span, Time};
use takt_net::{LateRule, Order, Packet, PacketQueue, QueueSpec};
use takt_run::broker::{Broker, BrokerSpec};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seconds = args.iter().position(|arg| arg == "--seconds").and_then(|at| args.get(at + 1)?.parse().ok());
    let seconds: u64 = seconds.unwrap_or(10);
    // Whole batches of the queue.
    cost(seconds * 1250 * BATCH as u64);
    gain(seconds);
}

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("takt-bench-broker-{}", std::process::id()))
}

/// Runs `body` beside a broker; what it returned, and the broker's CPU time.
fn beside<T>(spec: BrokerSpec, body: impl FnOnce() -> T) -> (T, Span) {
    let ends = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ends);
    let mut broker = Broker::bind(spec).expect("a broker");
    let thread = std::thread::spawn(move || {
        let before = thread_cpu();
        broker.serve(&mut |_| asked.load(Ordering::Acquire));
        thread_cpu().saturating_sub(before)
    });
    let result = body();
    ends.store(true, Ordering::Release);
    (result, thread.join().expect("the broker ends"))
}

/// Receives until the socket is silent for a while.
fn drain(receiver: UdpSocket) -> std::thread::JoinHandle<u64> {
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        std::iter::from_fn(|| receiver.recv(&mut bytes).ok()).count() as u64
    })
}

/// Messages that wait in a [`QueuedSender`] before it sends, as many as a node's thread sends at once.
const BATCH: usize = 16;
/// Streams of these messages.
const STREAMS: usize = 8;

/// Sends without a broker, as a node does: a queue in the order of deadlines, in front of a socket with the smallest
/// send buffer.
struct QueuedSender {
    queue: PacketQueue,
    /// The messages in the queue, by the tags of their packets.
    messages: [[u8; PAYLOAD]; BATCH],
    socket: Outgoing,
    room: Poll,
}

impl QueuedSender {
    fn new(udp: UdpSocket) -> QueuedSender {
        let spec = QueueSpec { order: Order::Edf, late: LateRule::Send, packets_max: BATCH, streams: STREAMS };
        let mut queue = PacketQueue::new(spec).expect("a queue");
        queue.reserve(BATCH);
        let socket = Outgoing::new(udp.into()).expect("a UDP socket");
        socket.narrow().expect("a small send buffer");
        let mut room = Poll::with_room(1);
        room.add(socket.as_fd(), false, true);
        QueuedSender { queue, messages: [[0; PAYLOAD]; BATCH], socket, room }
    }

    /// Puts a message into the queue, and sends all when the queue is full.
    fn send(&mut self, bytes: &[u8; PAYLOAD]) {
        let (now, at) = (Time::from_ns(monotonic_ns()), self.queue.len());
        // Each is more urgent than the one before.
        let deadline = now.saturating_add(Span::from_ms(60_000 - at as u64));
        let stream = (at % STREAMS) as u32;
        let packet = Packet { stream, bytes: Bytes::new(PAYLOAD as u64), deadline, tag: at as u64 };
        self.messages[at] = *bytes;
        self.queue.push(now, packet).expect("a place in the queue");
        if self.queue.len() == BATCH {
            self.flush();
        }
    }

    /// Sends all messages, each when the socket has room.
    fn flush(&mut self) {
        while !self.queue.is_empty() {
            self.room.wait(None);
            if !self.room.is_ready(0) {
                continue;
            }
            let Some(next) = self.queue.pop(Time::from_ns(monotonic_ns()), |_| {}) else { break };
            let _ = self.socket.send(&self.messages[next.packet.tag as usize], None);
        }
    }
}

fn cost(packets: u64) {
    println!("{packets} datagrams of {PAYLOAD} bytes to this machine");
    let bytes = [0_u8; PAYLOAD];
    let sockets = || {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        udp.connect(receiver.local_addr().expect("an address")).expect("a peer");
        (drain(receiver), udp)
    };
    let timed = |mut send: Box<dyn FnMut() + '_>| {
        let (wall, cpu) = (monotonic_ns(), thread_cpu());
        for _ in 0..packets {
            send();
        }
        (thread_cpu().saturating_sub(cpu).as_ns(), wall)
    };
    let (thread, udp) = sockets();
    let (plain_cpu, from) = timed(Box::new(|| {
        let _ = udp.send(&bytes);
    }));
    let plain_wall = monotonic_ns() - from;
    drop(thread.join());
    let each = |ns: u64| ns as f64 / packets as f64;
    let rate = |wall: u64| packets as f64 * 1e6 / wall as f64;
    println!("  plain send(2): {:.0} thousand a second; {:.0} ns of CPU each", rate(plain_wall), each(plain_cpu));
    let (thread, udp) = sockets();
    let mut queued = QueuedSender::new(udp);
    let (queued_cpu, from) = timed(Box::new(|| queued.send(&bytes)));
    let queued_wall = monotonic_ns() - from;
    drop(thread.join());
    println!(
        "  queue: {:.0} thousand a second, {:.2} times plain; {:.0} ns of CPU each ({:.2} times)",
        rate(queued_wall),
        rate(queued_wall) / rate(plain_wall),
        each(queued_cpu),
        each(queued_cpu) / each(plain_cpu),
    );
    let ((client_cpu, wall), broker_cpu) = beside(BrokerSpec::new(&path()), || {
        let (thread, udp) = sockets();
        let sender = DeadlineSender::open(&path()).expect("a sender");
        let socket = sender.socket(&udp, Span::from_s(60)).expect("a socket");
        while socket.route() == Route::Plain {
            pause(Span::from_ms(1));
        }
        let (cpu, from) = timed(Box::new(|| {
            let _ = socket.send(&bytes);
        }));
        while socket.counts().sent < packets {
            pause(Span::from_us(200));
        }
        let wall = monotonic_ns() - from;
        drop(socket);
        drop(thread.join());
        (cpu, wall)
    });
    let total = each(client_cpu) + each(broker_cpu.as_ns());
    println!(
        "  broker: {:.0} thousand a second, {:.2} times plain; {:.0} ns of CPU each in the program ({:.2} times), \
         {total:.0} with the broker's ({:.2} times)",
        rate(wall),
        rate(wall) / rate(plain_wall),
        each(client_cpu),
        each(client_cpu) / each(plain_cpu),
        total / each(plain_cpu),
    );
}

/// Bytes of a packet's payload, and the time that its frame takes at 20 Mbit/s.
const PAYLOAD: usize = 400;
const FRAME_NS: u64 = (PAYLOAD as u64 + 66) * 8 * 1000 / 20;

fn gain(seconds: u64) {
    println!(
        "a class of 20 Mbit/s under full load for {seconds} s: bursts of 20 to 40 packets, deadlines of 4 to 8 ms"
    );
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("  skipped: {error}"),
    };
    let mut bad = Vec::new();
    for (order, late, name) in [
        (Order::Fifo, LateRule::Send, "first in, first out"),
        (Order::Edf, LateRule::Send, "deadlines, late ones sent"),
        (Order::Edf, LateRule::Drop, "deadlines, late ones dropped"),
    ] {
        let run = || on_line(&cable, spec(order, late), seconds);
        let Some((sent, in_time)) = std::thread::scope(|scope| scope.spawn(run).join().expect("a run")) else { return };
        let share = (sent - in_time) as f64 / sent as f64;
        bad.push(share);
        println!("  {name}: {:.1} % of {sent} bad, {:.2} times first in, first out", share * 100.0, share / bad[0]);
    }
}

fn spec(order: Order, late: LateRule) -> BrokerSpec {
    let rate = Some(Rate::from_bps(20_000_000));
    BrokerSpec { order, late, rate, priority: Some(6), ..BrokerSpec::new(&path()) }
}

/// Packets that were sent, and those that came in time.
fn on_line(cable: &Cable, spec: BrokerSpec, seconds: u64) -> Option<(u64, u64)> {
    cable.right().enter().ok()?;
    let receiver = UdpSocket::bind((cable.right().address(), 0)).ok()?;
    receiver.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let to = receiver.local_addr().ok()?;
    cable.left().enter().ok()?;
    let device = Device::find(cable.left().device()).ok()??;
    let share = Bucket { burst: Bytes::new(3000), rate: Rate::from_bps(20_000_000) };
    let link = Link { bucket: Some(share), ..Link::at(Rate::from_bps(100_000_000)) };
    let plan = Plan::new(&link, &device).ok()?;
    let shares = match tc::apply(&device, &plan, &Rule::usual(false), false) {
        Ok(shares) => shares,
        Err(error) => {
            println!("  skipped: {error}");
            return None;
        }
    };
    let in_time = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&in_time);
    let reads = std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while receiver.recv(&mut bytes).is_ok() {
            let deadline = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            counted.fetch_add(u64::from(monotonic_ns() <= deadline), Ordering::Relaxed);
        }
    });
    let path = spec.path.clone();
    let (sent, _) = beside(spec, || {
        let sender = DeadlineSender::open(&path).expect("a sender");
        let sockets: Vec<(UdpSocket, DeadlineSocket)> = (0..8)
            .map(|_| {
                let udp = UdpSocket::bind((cable.left().address(), 0)).expect("a socket");
                udp.connect(to).expect("a peer");
                let socket = sender.socket(&udp, Span::from_ms(4)).expect("a socket");
                (udp, socket)
            })
            .collect();
        while sockets.iter().any(|(_, socket)| socket.route() == Route::Plain) {
            pause(Span::from_ms(1));
        }
        let sent = bursts(&sockets, seconds);
        let done = |socket: &DeadlineSocket| {
            let counts = socket.counts();
            counts.sent + counts.late + counts.refused == counts.queued
        };
        // A queue that has grown is sent to its end.
        let until = monotonic_ns() + 20_000_000_000;
        while monotonic_ns() < until && !sockets.iter().all(|(_, socket)| done(socket)) {
            pause(Span::from_ms(10));
        }
        sent
    });
    drop(reads.join());
    drop(shares);
    Some((sent, in_time.load(Ordering::Relaxed)))
}

/// Sends bursts at the rate of the class; each takes as long as its packets on the line.
fn bursts(sockets: &[(UdpSocket, DeadlineSocket)], seconds: u64) -> u64 {
    let epoch = Epoch::now_is_zero();
    let (mut at, mut sent) = (Time::ZERO, 0);
    let end = Time::ZERO.saturating_add(Span::from_s(seconds));
    for burst in 0_u64.. {
        if at >= end {
            break;
        }
        let _ = epoch.sleep_until(at);
        let packets = 20 + philox2x64([burst, 1], 7)[0] % 21;
        for packet in 0..packets {
            let [which, wide] = philox2x64([burst, 100 + packet], 7);
            let deadline = 4_000_000 + wide % 4_000_000;
            let Some((_, socket)) = sockets.get((which % 8) as usize) else { continue };
            socket.set_deadline(Span::from_ns(deadline));
            let mut bytes = [0; PAYLOAD];
            if let Some(place) = bytes.first_chunk_mut() {
                *place = (clock::monotonic_ns() + deadline).to_le_bytes();
            }
            sent += u64::from(socket.send(&bytes).is_ok());
        }
        at = at.saturating_add(Span::from_ns(packets * FRAME_NS));
    }
    sent
}
