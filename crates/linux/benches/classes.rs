//! Delays of small messages on a shared link, in three cases. They are alone, or beside a saturating TCP
//! stream in one queue (HTB with one pfifo), or beside it in a real-time class. One run measures all
//! three, in two network namespaces of its own. Its threads have SCHED_FIFO where they may, and sleep
//! between messages.
//!
//! `cargo bench -p takt-linux --bench classes -- [--messages 2000] [--rounds 3]`

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_linux::clock::{monotonic_ns, pause, steal};
use takt_linux::datagram::{Datagrams, Destination};
use takt_linux::net::Cable;
use takt_linux::sched::{Class, ClassGuard};
use takt_linux::tc::{Applied, Device, Plan, Role, Rule, apply};
use takt_model::{Background, Bucket, Bytes, Link, Rate, Span};

const LINK: Rate = Rate::from_bps(100_000_000);
const SHARE: Rate = Rate::from_bps(20_000_000);
const PORT: u16 = 7000;
/// How long a stream gets to fill its queue.
const WARM_UP: Span = Span::from_ms(500);
const GAP: Span = Span::from_ms(1);
/// The SCHED_FIFO priority of the threads that send and receive messages.
const FIFO: u8 = 10;
/// SO_PRIORITY of messages.
const PRIORITY: u32 = 6;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Idle,
    OneQueue,
    Shared,
}

const MODES: [(Mode, &str); 3] = [
    (Mode::Idle, "no other traffic"),
    (Mode::OneQueue, "TCP beside it, one queue"),
    (Mode::Shared, "TCP beside it, real-time class"),
];

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str, default: usize| {
        let at = arguments.iter().position(|argument| argument == name);
        let given = at.and_then(|at| arguments.get(at + 1)?.parse().ok());
        given.filter(|value| (1..=100_000).contains(value)).unwrap_or(default)
    };
    if let Err(error) = all(value("--messages", 2_000), value("--rounds", 3)) {
        println!("classes: skipped: {error}");
    }
}

fn all(messages: usize, rounds: usize) -> Result<(), Failure> {
    let cable = Cable::lay(false)?;
    println!("{LINK} through HTB on a veth device; {rounds} rounds of {messages} messages, {GAP} apart");
    if let Err(error) = ClassGuard::enter(&Class::Fifo { priority: FIFO }) {
        println!("the threads are ordinary: {error}");
    }
    let before = steal();
    let delays = std::thread::scope(|scope| scope.spawn(|| measure(&cable, messages, rounds)).join());
    let mut delays = delays.map_err(|_| "the measuring thread ended early")??;
    println!("{:<32} {:>10} {:>10} {:>10} {:>10} {:>10}", "messages", "received", "p50", "p99", "p50/idle", "p99/idle");
    let mut idle = None;
    for ((_, name), delays) in MODES.iter().zip(&mut delays) {
        delays.sort_unstable();
        let at = |percent: usize| delays.get((delays.len() * percent / 100).min(delays.len().saturating_sub(1)));
        let (Some(&p50), Some(&p99)) = (at(50), at(99)) else { return Err(format!("{name}: nothing arrived").into()) };
        let (idle50, idle99) = *idle.get_or_insert((p50, p99));
        println!(
            "{name:<32} {:>10} {:>10} {:>10} {:>10.2} {:>10.2}",
            delays.len(),
            Span::from_ns(p50).four_digits().to_string(),
            Span::from_ns(p99).four_digits().to_string(),
            p50 as f64 / idle50 as f64,
            p99 as f64 / idle99 as f64
        );
    }
    if let (Some(before), Some(after)) = (before, steal()) {
        println!("the hypervisor took {} of CPU time meanwhile", after.saturating_sub(before));
    }
    Ok(())
}

/// The delays of messages in each mode, at the left end of the cable.
fn measure(cable: &Cable, messages: usize, rounds: usize) -> Result<[Vec<u64>; 3], Failure> {
    cable.left().enter()?;
    let device = Device::find(cable.left().device())?.ok_or("no device")?;
    let link = Link {
        bucket: Some(Bucket { burst: Bytes::new(4_000), rate: SHARE }),
        background: Some(Background { size: Bytes::new(4_000), rate: None }),
        ..Link::at(LINK)
    };
    let plan = Plan::new(&link, &device)?;
    let class = [Rule { of: takt_linux::tc::Match::Priority(PRIORITY), role: Role::RealTime }];
    let mut applied = apply(&device, &plan, &class, false)?;
    let mut delays = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for ((mode, _), delays) in MODES.iter().zip(&mut delays) {
            let rules: &[Rule] = if *mode == Mode::OneQueue { &[] } else { &class };
            applied.change(&plan, rules)?;
            delays.extend(one(cable, *mode, messages, &mut applied)?);
        }
    }
    applied.restore()?;
    Ok(delays)
}

fn one(cable: &Cable, mode: Mode, messages: usize, applied: &mut Applied) -> Result<Vec<u64>, Failure> {
    let (ready, go) = std::sync::mpsc::channel();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(cable, messages, ready));
        let listener = go.recv().map_err(|_| "the receiver ended early")?;
        let sink = scope.spawn(move || swallow(&listener, mode));
        let stream = scope.spawn(|| if mode == Mode::Idle { Ok(()) } else { stream(cable, &over) });
        if mode != Mode::Idle {
            pause(WARM_UP);
        }
        let promoted = ClassGuard::enter(&Class::Fifo { priority: FIFO });
        let sent = send(cable, messages);
        drop(promoted);
        over.store(true, Ordering::Relaxed);
        let delays = receiver.join().map_err(|_| "the receiver ended early")?;
        stream.join().map_err(|_| "the stream ended early")??;
        sink.join().map_err(|_| "the sink ended early")??;
        sent?;
        // The next mode begins with empty queues.
        while applied.status()?.classes.iter().any(|class| class.counters.waiting > 0) {
            pause(GAP);
        }
        delays
    })
}

/// Sends messages that carry the instant of their sending.
fn send(cable: &Cable, messages: usize) -> Result<(), Failure> {
    let socket = Datagrams::bind((cable.left().address(), 0).into(), PRIORITY, 1 << 16, GAP)?;
    let to = Destination::from(std::net::SocketAddr::from((cable.right().address(), PORT)));
    for _ in 0..messages {
        pause(GAP);
        let _ = socket.send([&monotonic_ns().to_ne_bytes(), b""], &to, Span::ZERO);
    }
    // A message without an instant ends the measurement.
    for _ in 0..3 {
        pause(Span::from_ms(50));
        let _ = socket.send([b"end", b""], &to, Span::from_ms(100));
    }
    Ok(())
}

/// The delays of messages that arrive at the right end.
fn receive(cable: &Cable, messages: usize, ready: std::sync::mpsc::Sender<TcpListener>) -> Result<Vec<u64>, Failure> {
    cable.right().enter()?;
    let socket = UdpSocket::bind((cable.right().address(), PORT))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    ready.send(TcpListener::bind((cable.right().address(), PORT))?)?;
    let _promoted = ClassGuard::enter(&Class::Fifo { priority: FIFO });
    let mut delays = Vec::with_capacity(messages);
    let mut bytes = [0; 16];
    while let Ok(length) = socket.recv(&mut bytes) {
        let now = monotonic_ns();
        let Ok(sent) = <[u8; 8]>::try_from(&bytes[..length]) else { break };
        delays.push(now.saturating_sub(u64::from_ne_bytes(sent)));
    }
    Ok(delays)
}

/// Fills the link until `over`.
fn stream(cable: &Cable, over: &AtomicBool) -> Result<(), Failure> {
    cable.left().enter()?;
    let mut stream = TcpStream::connect((cable.right().address(), PORT))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let block = vec![0; 64 << 10];
    while !over.load(Ordering::Relaxed) {
        let _ = stream.write(&block);
    }
    stream.shutdown(Shutdown::Both)?;
    Ok(())
}

/// Reads the stream to its end.
fn swallow(listener: &TcpListener, mode: Mode) -> Result<(), Failure> {
    if mode == Mode::Idle {
        return Ok(());
    }
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut block = vec![0; 64 << 10];
    while stream.read(&mut block).is_ok_and(|length| length > 0) {}
    Ok(())
}
