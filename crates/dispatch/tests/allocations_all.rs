//! No thread of a dispatcher or a channel allocates after the start: workers, timers, pushes,
//! handlers' frames, switches, threads between nodes, flushes of values and replicas. This test is
//! alone in its program, because it counts all allocations of the process.

use std::alloc::System;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use takt_dispatch::event::{
    Channel, Connected, Filter, Full, Level, Node, Options, Pattern, Published, Replica, Sending,
};
use takt_dispatch::{Dispatcher, Dispatching, Limits, OperatingMode, Operation, Operations};
use takt_linux::Epoch;
use takt_model::{Builtin, Span, Time};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const VALUES: u32 = 9;

/// Four addresses of the loopback device that belong to this process alone, by its number.
fn addresses() -> [SocketAddr; 4] {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    [27_180, 27_181, 27_182, 27_183].map(|port| ([127, 1 + (b & 127), c, d], port).into())
}

/// Waits until the thread that waits for this test sleeps. It allocates before that.
fn wait_for_the_harness() {
    let main = format!("/proc/self/task/{}/stat", std::process::id());
    let sleeps = || {
        let stat = std::fs::read_to_string(&main).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    };
    let is_this = takt_linux::thread::Tid::current().get().unsigned_abs() == std::process::id();
    while !is_this && !sleeps() {
        takt_linux::clock::pause(Span::from_ms(1));
    }
}

/// Two levels. The first sends directly, the second by `second`.
fn node(id: u64, here: [SocketAddr; 2], there: [SocketAddr; 2], second: Sending) -> Node {
    let level = |at: usize, name, kind| Level::new(name, here[at]).peer(there[at]).sends(Pattern::kind(kind));
    Node::new(id)
        .with(level(0, "direct", VALUES))
        .with(level(1, "second", 1).sending(second))
        .beat(Span::from_ms(10), Span::from_s(30))
}

/// Another node in this process, whose operation applies values.
fn peer(node: &Node) -> ((Connected, Dispatching), Replica) {
    let operation = Operation::sporadic("apply", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1));
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = Operations::new("peer").with(operation.backlog(8)).compute(&Builtin::Muf.strategy(), &limits).unwrap();
    let channel = Channel::new(Options::default());
    let apply = channel.subscribe(&plan, "apply", Pattern::kind(VALUES)).unwrap();
    let replica = Replica::new(9, VALUES, &[8, 200]);
    let taker = replica.clone();
    let handler = apply.handler(move |delivery, job| taker.apply(delivery, job));
    let options = takt_dispatch::Options { best_effort: true, ..takt_dispatch::Options::default() };
    let dispatching = Dispatcher::new(plan).with(options).on("apply", handler).unwrap().start().unwrap();
    ((channel.connect_as(node, &dispatching).unwrap(), dispatching), replica)
}

#[test]
fn nothing_allocates_while_it_runs() {
    runs_without_allocation(false);
    runs_without_allocation(true);
}

/// With levels that are preemptive or run to completion.
fn runs_without_allocation(preemptive: bool) {
    let (ms, us) = (Span::from_ms, Span::from_us);
    let far = Span::from_s(1);
    let operations = Operations::new("all")
        .cancel(true)
        .with(Operation::periodic("fast", ms(1)).wcet(us(10)))
        .with(Operation::periodic("slow", ms(5)).wcet(ms(2)).noncritical())
        .with(Operation::periodic("brief", ms(1)).wcet(us(10)).deadline(us(500)).noncritical())
        .with(Operation::after("end", ["slow", "leg"]).wcet(us(10)).noncritical())
        .with(Operation::after("leg", ["slow"]).wcet(us(10)).noncritical())
        // Usually too late by the time of its first dispatch.
        .with(Operation::periodic("hopeless", ms(3)).wcet(us(10)).deadline(us(11)).noncritical())
        .with(Operation::sporadic("one", ms(1)).wcet(us(10)).deadline(far).backlog(4))
        .with(Operation::sporadic("two", ms(1)).wcet(us(10)).deadline(far).backlog(4))
        .with(Operation::periodic("flush", ms(5)).wcet(us(10)))
        .mode(OperatingMode::new("other", Builtin::Muf.strategy()).every("fast", ms(2)));
    let limits = Limits { preemptive, ..Limits::default() };
    let plan = operations.compute(&Builtin::RmsMlf.strategy(), &limits).unwrap_or_else(|no| panic!("{no}"));
    let channel = Channel::new(Options { history: 3, ..Options::default() });
    let one = channel.subscribe(&plan, "one", Pattern::kind(1)).unwrap();
    let group = Filter::all([Pattern::kind(1).into(), Filter::Timeout(ms(2))]);
    let two = channel.subscribe(&plan, "two", group).unwrap();
    let options = takt_dispatch::Options { best_effort: true, ..takt_dispatch::Options::default() };
    let supplier = channel.supplier(1);
    let values = Published::new(&channel, 9, VALUES, &[8, 200]).unwrap();
    let (written, flushed) = (values.clone(), values.clone());
    let mut built = Dispatcher::new(plan).with(options);
    // A supplier within a handler.
    built = built
        .on("fast", move |job| {
            let _ = supplier.push(1, b"payload");
            written.write(0, &job.number().to_be_bytes(), job).unwrap();
        })
        .unwrap()
        .on("flush", move |job| {
            // It fails until the channel is connected.
            let _ = flushed.flush(far, job);
        })
        .unwrap();
    // Counts brief jobs that begin while a slow job works.
    let (works, nested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (slow, brief, found) = (works.clone(), works, nested.clone());
    let work = move |_: &takt_dispatch::Job<'_>| {
        slow.store(true, Ordering::Release);
        let clock = Epoch::now_is_zero();
        while clock.now() < Time::ZERO + ms(2) {
            std::hint::spin_loop();
        }
        slow.store(false, Ordering::Release);
    };
    let look = move |_: &takt_dispatch::Job<'_>| {
        found.fetch_add(u64::from(brief.load(Ordering::Acquire)), Ordering::Relaxed);
    };
    built = built.on("slow", work).unwrap().on("brief", look).unwrap();
    for name in ["end", "leg", "hopeless"] {
        built = built.on(name, |_| ()).unwrap();
    }
    built = built.on("one", one.handler(|_, _| ())).unwrap().on("two", two.handler(|_, _| ())).unwrap();
    let dispatching = built.start().unwrap();
    let [one_here, two_here, one_there, two_there] = addresses();
    let (here, there) = ([one_here, two_here], [one_there, two_there]);
    let queued = Sending::Queued { room: 8, full: Full::Oldest };
    let connected = channel.connect_as(&node(1, here, there, queued), &dispatching).unwrap();
    let (peer, applied) = peer(&node(2, there, here, Sending::Direct));
    let completed = || dispatching.counts().iter().map(|(_, counts)| counts.completed).sum::<u64>();
    // The threads between nodes have allocated everything once they have sent and received.
    let begun = |connected: &Connected| connected.traffic().iter().all(|level| level.peers[0].is_there);
    let sends = || connected.traffic().iter().all(|level| level.sent > 0);
    for _ in 0..1000 {
        if begun(&connected) && begun(&peer.0) && sends() && applied.counts().applied > 0 {
            break;
        }
        takt_linux::clock::pause(ms(15));
    }
    wait_for_the_harness();
    let before = completed();
    let so_far = || {
        let [one, two] = [&one, &two].map(|subscription| subscription.counts().handled);
        [one, two, applied.counts().applied]
    };
    let begin = so_far();
    let region = Region::new(ALLOCATOR);
    let mut locked = Span::ZERO;
    // Twenty switches, or more on a busy machine.
    for round in 0..1000 {
        takt_linux::clock::pause(ms(15));
        locked = locked.max(dispatching.switch(round % 2).unwrap().locked);
        if round >= 20
            && so_far().iter().zip(&begin).all(|(now, begin)| *now > begin + 20)
            && (nested.load(Ordering::Relaxed) > 0 || !preemptive)
        {
            break;
        }
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations, change.deallocations), (0, 0, 0), "{change:?}");
    // The region also counts other threads' allocations.
    let region = Region::new(ALLOCATOR);
    std::thread::spawn(|| drop(vec![1u8; 100])).join().unwrap();
    assert!(region.change().allocations > 0);
    let end = so_far();
    assert!(end.iter().zip(&begin).all(|(end, begin)| *end > begin + 20), "{begin:?} {end:?} {locked}");
    // The counts of all jobs and of datagrams cannot be read without allocation.
    let sent = || connected.traffic().iter().map(|level| level.sent).collect::<Vec<u64>>();
    for _ in 0..1000 {
        if completed() > before + 100 && sent().iter().all(|sent| *sent > 20) {
            break;
        }
        takt_linux::clock::pause(ms(15));
    }
    assert!(completed() > before + 100 && sent().iter().all(|sent| *sent > 20), "{:?}", sent());
    assert_eq!(nested.load(Ordering::Relaxed) > 0, preemptive);
    drop((peer, connected));
    dispatching.stop(&mut takt_log::NullSink).unwrap();
}
