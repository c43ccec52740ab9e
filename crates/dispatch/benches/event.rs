//! The time from a supplier's push to the first reading of the clock in a consumer's handler,
//! compared with named peers in the same run.
//!
//! - Within a process, on the same CPU and across CPUs. The first peer is a bare futex between two
//!   threads at the same priorities, without data. The second peer also passes the same bytes
//!   through a queue behind a lock of the same kind, the least work that carries an event.
//! - Between two network namespaces. The first peer sends as many bytes through a plain UDP socket
//!   to a waiting thread. takt has one more hand-over, from the receiving thread to the handler's.
//!   So the second peer adds a hand-over by a bare futex.
//!
//! `cargo bench -p takt-dispatch --bench event -- [--rounds 15]`

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use takt_dispatch::event::{Channel, Level, Node, Options, Pattern, wire};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations};
use takt_linux::net::{Cable, End};
use takt_linux::{Class, ClassGuard, Epoch, PiMutex, clock, futex, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span};

use hands::{Hands, Rounds, bare, by_futex, hand_overs, in_turns, row, waiter};
use rounds::rounds;

#[path = "common/hands.rs"]
mod hands;
#[path = "common/rounds.rs"]
mod rounds;

const TRACK: u32 = 1;
const PAYLOAD: [u8; 64] = [7; 64];

fn main() -> ExitCode {
    let Some(rounds) = rounds(15) else { return ExitCode::from(2) };
    let cpus = sched::affinity();
    let targets: Vec<(&str, usize)> =
        [("same CPU", 0), ("across CPUs", 1)].into_iter().filter(|(_, to)| *to < cpus.len()).collect();
    println!(
        "64 bytes to a handler, {rounds} rounds       takt p50 us   p99 us  futex p50 us   p99 us  ratio p50    p99"
    );
    for (name, to) in &targets {
        print_result(name, in_turns(rounds, || within(*to as u32), || bare(&cpus, *to)));
        let name = format!("{name}, futex with a queue");
        print_result(&name, in_turns(rounds, || within(*to as u32), || carried(&cpus, *to)));
    }
    println!();
    println!("64 bytes to another namespace             takt p50 us   p99 us    UDP p50 us   p99 us  ratio p50    p99");
    for (name, to) in &targets {
        let cable = match Cable::lay(false) {
            Ok(cable) => cable,
            Err(error) => {
                println!("{name}: skipped: {error}");
                continue;
            }
        };
        for (peer, hands_over) in [("", false), (", UDP with a futex", true)] {
            let name = format!("{name}{peer}");
            print_result(
                &name,
                in_turns(rounds, || between(&cable, *to as u32), || plain(&cable, &cpus, *to, hands_over)),
            );
        }
    }
    ExitCode::SUCCESS
}

fn print_result(name: &str, rounds: Option<(Rounds, Rounds)>) {
    match rounds {
        Some(rounds) => row(name, &rounds),
        None => println!("{name}: skipped: SCHED_FIFO, a thread or a socket was refused"),
    }
}

/// A futex, with the bytes in a queue behind a lock.
fn carried(cpus: &[u32], to: usize) -> Option<Hands> {
    let queue = PiMutex::new(VecDeque::with_capacity(8));
    let mut taken = [0; PAYLOAD.len()];
    let put = || queue.lock().push_back(black_box(PAYLOAD));
    let take = || {
        if let Some(payload) = queue.lock().pop_front() {
            taken = payload;
        }
        black_box(&taken);
    };
    by_futex(cpus, to, put, take)
}

/// A channel with one consumer, which records the time of its call.
fn consumer(to: u32, clock: Epoch, seen: &Arc<AtomicU64>) -> Option<(Channel, Dispatching)> {
    let event = Operation::sporadic("event", Span::from_us(1))
        .wcet(Span::from_ns(1))
        .deadline(Span::from_s(1))
        .backlog(1)
        .on_cpu(to);
    let plan = Operations::new("events").cpus(to + 1).with(event);
    let plan = plan.compute(&Builtin::Edf.strategy(), &Limits::default()).ok()?;
    let channel = Channel::new(Options::default());
    let subscription = channel.subscribe(&plan, "event", Pattern::kind(TRACK)).ok()?;
    let seen = seen.clone();
    let handler = subscription.handler(move |_, _| seen.store(clock.now().as_ns(), Ordering::Release));
    Some((channel, Dispatcher::new(plan).on("event", handler).ok()?.start().ok()?))
}

fn within(to: u32) -> Option<Hands> {
    let (seen, clock) = (Arc::new(AtomicU64::new(0)), Epoch::now_is_zero());
    let (channel, dispatching) = consumer(to, clock, &seen)?;
    let connected = channel.connect(&dispatching).ok()?;
    let supplier = channel.supplier(7);
    let push = || {
        let _ = supplier.push(TRACK, &PAYLOAD);
    };
    let times = hand_overs(*sched::affinity().first()?, clock, &seen, push);
    drop(connected);
    let _ = dispatching.stop(&mut NullSink);
    times
}

fn address(end: &End, port: u16) -> SocketAddr {
    SocketAddr::from((end.address(), port))
}

/// Calls `make` in the network namespace of an end.
fn there<R: Send>(end: &End, make: impl FnOnce() -> Option<R> + Send) -> Option<R> {
    end.run(make).ok().flatten()
}

fn between(cable: &Cable, to: u32) -> Option<Hands> {
    let (left, right) = (address(cable.left(), 7000), address(cable.right(), 7000));
    let (seen, clock) = (Arc::new(AtomicU64::new(0)), Epoch::now_is_zero());
    let (receiver, dispatching) = consumer(to, clock, &seen)?;
    let node = Node::new(2).with(Level::new("events", right).peer(left).on_cpu(to));
    let receives = there(cable.right(), || receiver.connect_as(&node, &dispatching).ok())?;
    // The sender's own channel is separate and has no consumers.
    let (sender, idle) = (Channel::new(Options::default()), consumer(0, clock, &Arc::default())?.1);
    let node = Node::new(1).with(Level::new("events", left).peer(right).sends(Pattern::kind(TRACK)).on_cpu(0));
    let sends = there(cable.left(), || sender.connect_as(&node, &idle).ok())?;
    let supplier = sender.supplier(7);
    let push = || {
        let _ = supplier.push(TRACK, &PAYLOAD);
    };
    let times = hand_overs(*sched::affinity().first()?, clock, &seen, push);
    drop((sends, receives));
    let _ = (dispatching.stop(&mut NullSink), idle.stop(&mut NullSink));
    times
}

/// A plain socket to a thread, or to a thread that wakes another one. The last thread reads the
/// clock.
fn plain(cable: &Cable, cpus: &[u32], to: usize, hands_over: bool) -> Option<Hands> {
    let (first, target) = (*cpus.first()?, *cpus.get(to)?);
    let bytes = [0_u8; PAYLOAD.len() + wire::HEAD];
    let socket = |end: &End| there(end, || UdpSocket::bind(address(end, 7001)).ok());
    let (sender, receiver) = (socket(cable.left())?, socket(cable.right())?);
    receiver.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
    let (stop, seen, clock) = (AtomicBool::new(false), AtomicU64::new(0), Epoch::now_is_zero());
    let word = AtomicU32::new(0);
    std::thread::scope(|scope| {
        if hands_over {
            scope.spawn(|| waiter(target, &word, &stop, clock, &seen, || ()));
        }
        scope.spawn(|| {
            if sched::set_affinity(&[target]).is_err() {
                return;
            }
            let Ok(_class) = ClassGuard::enter(&Class::Fifo { priority: 47 }) else { return };
            let mut into = [0_u8; 2048];
            while !stop.load(Ordering::Acquire) {
                if receiver.recv(&mut into).is_err() {
                    continue;
                }
                if hands_over {
                    word.fetch_add(1, Ordering::AcqRel);
                    futex::wake_all(&word);
                } else {
                    seen.store(clock.now().as_ns(), Ordering::Release);
                }
            }
        });
        clock::pause(Span::from_ms(5));
        let push = || {
            let _ = sender.send_to(&bytes, address(cable.right(), 7001));
        };
        let times = hand_overs(first, clock, &seen, push);
        stop.store(true, Ordering::Release);
        times
    })
}
