//! One event for several consumers: they get it in order of importance, regardless of subscription
//! order. No test asserts a duration.

#[path = "common/live.rs"]
mod live;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use live::{alone, check, plan, sporadic, started, until};
use takt_dispatch::event::wire::{Body, Datagram};
use takt_dispatch::event::{Channel, Level, Node, Options, Pattern};
use takt_dispatch::{Dispatcher, Operation, Operations};
use takt_linux::{clock, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span};

/// By rate, a longer distance makes an operation less important. It runs once in a test.
fn once(name: &str, s: u64) -> Operation {
    Operation::sporadic(name, Span::from_s(s)).wcet(Span::from_ms(1))
}

/// Uses the CPU until a condition holds, for at most 20 ms of CPU time. Returns whether it held.
fn busy_until(so: impl Fn() -> bool) -> bool {
    let begin = clock::thread_cpu();
    while clock::thread_cpu().saturating_sub(begin) < Span::from_ms(20) {
        if so() {
            return true;
        }
    }
    so()
}

/// Runs `body` on this CPU.
fn pinned(cpu: u32, body: impl FnOnce() + Send) {
    let body = || {
        sched::set_affinity(&[cpu]).unwrap();
        body();
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

/// Whether a handler saw another handler: no answer yet, no, or yes.
#[derive(Clone, Default)]
struct Received(Arc<AtomicU64>);

impl Received {
    fn set(&self, seen: bool) {
        self.0.store(1 + u64::from(seen), Ordering::Release);
    }

    fn get(&self) -> Option<bool> {
        let seen = self.0.load(Ordering::Acquire);
        (seen > 0).then_some(seen == 2)
    }
}

#[test]
fn a_critical_consumer_is_not_behind_a_noncritical_one_that_subscribed_first() {
    let _alone = alone();
    let operations = Operations::new("fanout")
        .with(once("steer", 100))
        .with(once("show", 200).noncritical())
        .with(once("supply", 300).noncritical());
    let plan = plan(&operations, Builtin::Rm);
    let channel = Channel::new(Options::default());
    let show = channel.subscribe(&plan, "show", Pattern::kind(1)).unwrap();
    let steer = channel.subscribe(&plan, "steer", Pattern::kind(1)).unwrap();
    let supply = channel.subscribe(&plan, "supply", Pattern::kind(2)).unwrap();
    let (ran, seen) = (Received::default(), Received::default());
    let (told, look, result, supplier) = (ran.clone(), ran.clone(), seen.clone(), channel.supplier(8));
    let built = Dispatcher::new(plan)
        .on("steer", steer.handler(move |_, _| told.set(true)))
        .and_then(|built| built.on("show", show.handler(move |_, _| result.set(busy_until(|| look.get().is_some())))))
        .and_then(|built| built.on("supply", supply.handler(move |_, _| assert!(supplier.push(1, b"").is_ok()))));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    assert_eq!(channel.supplier(7).push(2, b"").unwrap().taken, 1);
    until(|| ran.get().is_some() && seen.get().is_some());
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    assert_eq!(seen.get(), Some(true), "the noncritical handler returned before the critical one began");
    [show, steer, supply].iter().for_each(check);
}

/// One level and one thread. If only one of two jobs were queued, it would run first, however
/// urgent the other.
#[test]
fn consumers_of_one_event_run_by_their_deadlines_which_are_their_operations() {
    let _alone = alone();
    let urgent = |name, ms| sporadic(name).deadline(Span::from_ms(ms)).wcet(Span::from_ns(1));
    let operations = Operations::new("deadlines").with(urgent("later", 50_000)).with(urgent("sooner", 5000));
    let plan = plan(&operations, Builtin::Edf);
    let channel = Channel::new(Options::default());
    let later = channel.subscribe(&plan, "later", Pattern::kind(1)).unwrap();
    let sooner = channel.subscribe(&plan, "sooner", Pattern::kind(1)).unwrap();
    let order = Arc::<Mutex<Vec<(String, Span)>>>::default();
    let handler = || {
        let order = order.clone();
        move |_: &takt_dispatch::event::Delivery<'_>, job: &takt_dispatch::Job<'_>| {
            order.lock().unwrap().push((job.name().to_owned(), job.deadline().saturating_since(job.arrival())));
        }
    };
    let built = Dispatcher::new(plan).on("later", later.handler(handler())).unwrap();
    let Some(dispatching) = started(built.on("sooner", sooner.handler(handler())).unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(7);
    // An ordinary thread on the same CPU, which every woken thread preempts at once.
    pinned(sched::affinity()[0], || assert_eq!(supplier.push(1, b"").unwrap().taken, 2));
    until(|| order.lock().unwrap().len() == 2);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    let expected = [("sooner", 5000), ("later", 50_000)].map(|(name, ms)| (name.to_owned(), Span::from_ms(ms)));
    assert_eq!(*order.lock().unwrap(), expected);
}

/// A level between nodes has its place among the consumers. Less important consumers run after its
/// datagram has left.
#[test]
fn an_urgent_level_sends_before_a_less_important_consumer_runs_and_after_a_more_important_one() {
    let _alone = alone();
    let operations = Operations::new("levels")
        .with(once("steer", 100))
        .with(once("send", 150))
        .with(once("show", 200).noncritical());
    let plan = plan(&operations, Builtin::Rm);
    let channel = Channel::new(Options::default());
    let show = channel.subscribe(&plan, "show", Pattern::kind(1)).unwrap();
    let steer = channel.subscribe(&plan, "steer", Pattern::kind(1)).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    let peer = Arc::new(peer);
    let came = |socket: &UdpSocket| {
        // Beats are shorter than any event with this payload.
        let mut bytes = [0; 512];
        std::iter::from_fn(|| socket.recv(&mut bytes).ok()).any(|length| length >= 200)
    };
    let seen: [Received; 2] = Default::default();
    let [of_steer, of_show] = seen.clone();
    let (first, second) = (peer.clone(), peer.clone());
    let built = Dispatcher::new(plan)
        .on("send", |_| ())
        .and_then(|built| built.on("steer", steer.handler(move |_, _| of_steer.set(came(&first)))))
        .and_then(|built| built.on("show", show.handler(move |_, _| of_show.set(busy_until(|| came(&second))))));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let level = Level::new("tracks", "127.0.0.1:0".parse().unwrap()).peer(peer.local_addr().unwrap());
    let node = Node::new(1).with(level.sends(Pattern::kind(1)).level(1));
    let connected = channel.connect_as(&node, &dispatching).unwrap();
    let supplier = channel.supplier(7);
    pinned(sched::affinity()[0], || {
        let pushed = supplier.push(1, &[0; 200]).unwrap();
        assert_eq!((pushed.taken, pushed.sent), (2, 1));
    });
    until(|| seen.iter().all(|seen| seen.get().is_some()));
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    assert_eq!(seen.each_ref().map(Received::get), [Some(false), Some(true)]);
}

/// The policy, the priority and the CPUs of a thread of this process, by the kernel. `name` holds
/// the first letters of its name.
fn thread(name: &str) -> (u32, u32, String) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let named =
        |task: &std::path::PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name));
    let found: Vec<std::path::PathBuf> = tasks.filter(named).collect();
    let [task] = &found[..] else { panic!("{name}: {found:?}") };
    let stat = std::fs::read_to_string(task.join("stat")).unwrap();
    // The fields from the third on, after the name.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    (fields[41 - 3].parse().unwrap(), fields[40 - 3].parse().unwrap(), cpus.trim().to_owned())
}

const TRACK: u32 = 1;
const MAP: u32 = 2;
const FLOOD: usize = 40;

/// Forty events of a less important kind wait for the receiving threads. Then an important event
/// comes. Returns the number of events handled before it, with a level for each kind or one for
/// both.
fn flood(strategy: Builtin, levels: usize) -> Option<usize> {
    let operations = Operations::new("flood")
        .with(sporadic("hold"))
        .with(sporadic("track").backlog(50))
        .with(sporadic("map").backlog(50).noncritical());
    let plan = plan(&operations, strategy);
    let channel = Channel::new(Options::default());
    let order = Arc::<Mutex<Vec<u32>>>::default();
    let subscriptions = [("track", TRACK), ("map", MAP)]
        .map(|(name, kind)| channel.subscribe(&plan, name, Pattern::kind(kind)).unwrap());
    let [track, map] = subscriptions.each_ref().map(|subscription| {
        let order = order.clone();
        subscription.handler(move |delivery, _| order.lock().unwrap().push(delivery.first().head.kind))
    });
    let free = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let peers: Vec<UdpSocket> = (0..levels).map(|_| free()).collect();
    let there: Vec<SocketAddr> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
    // The first level receives tracks, the last one maps.
    let (first, last) = (peers[0].try_clone().unwrap(), peers[levels - 1].try_clone().unwrap());
    // The kernel chooses the node's ports.
    let here = Arc::<OnceLock<[SocketAddr; 2]>>::default();
    let chosen = here.clone();
    let send = move |socket: &UdpSocket, to: SocketAddr, kind: u32, sequence: usize| {
        let body = Body::Event { kind, source: 7, number: sequence as u64, payload: b"" };
        let (remaining, due, sequence) = (Span::MAX, Span::MAX, sequence as u64);
        let datagram = Datagram { hops: 0, node: 5, incarnation: 1, sequence, clock: 0, sent: 0, remaining, due, body };
        let mut bytes = [0; 256];
        let length = datagram.write(&mut bytes).unwrap();
        socket.send_to(&bytes[..length], to).unwrap();
    };
    // At least as important as the receiving threads, on their CPU. They run when this handler
    // returns.
    let hold = move |_: &takt_dispatch::Job<'_>| {
        let [to_first, to_last] = *chosen.get().unwrap();
        (0..FLOOD).for_each(|number| send(&last, to_last, MAP, number));
        send(&first, to_first, TRACK, FLOOD);
    };
    let built = Dispatcher::new(plan).on("hold", hold).and_then(|built| built.on("track", track));
    let dispatching = started(built.and_then(|built| built.on("map", map)).unwrap())?;
    let level = |at: usize| {
        let name = ["tracks", "rest"][at];
        Level::new(name, ([127, 0, 0, 1], 0).into()).peer(there[at]).level(at).on_cpu(0)
    };
    let node = (0..levels).fold(Node::new(1), |node, at| node.with(level(at)));
    let connected = channel.connect_as(&node, &dispatching).unwrap();
    let traffic = connected.traffic();
    here.set([0, levels - 1].map(|level| traffic[level].at.unwrap())).unwrap();
    for (at, name) in ["takt from track", "takt from rest"].into_iter().enumerate().take(levels) {
        let priority = u32::from(dispatching.plan().levels[at].priority);
        assert_eq!(thread(name), (1, priority, sched::affinity()[0].to_string()), "{name}");
    }
    dispatching.operation("hold").unwrap().push().unwrap();
    until(|| order.lock().unwrap().len() == FLOOD + 1);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    order.lock().unwrap().iter().position(|kind| *kind == TRACK)
}

#[test]
fn a_flood_of_a_less_urgent_level_does_not_delay_an_urgent_one() {
    let _alone = alone();
    // One queue from the socket on: a priority inversion.
    let Some(last) = flood(Builtin::Fifo, 1) else { return };
    assert_eq!(last, FLOOD);
    assert_eq!(flood(Builtin::Muf, 2), Some(0));
}
