//! What the dispatcher's queues and its hand-over to a thread cost, beside named peers in the same run.
//!
//! - A job ends, the next one is taken and another one is queued, with the time of both, while 64 or 1024 wait: beside std's `BinaryHeap` behind the same lock with
//!   two looks at the clock, which knows neither levels, nor backlogs, nor chains, nor counts. Both are given the same operations in the same order, whose deadlines
//!   are spread over about the time for which a job waits, so that what comes goes anywhere among what waits. Under muf it is the queue of one of its levels, which is
//!   by laxity. The median of batches of cycles.
//! - A switch of plans under load: how long all queues are locked, and the whole call, beside the bare system calls that give as many threads their new
//!   priorities.
//! - From a push to the handler's first look at the clock, on the same CPU and across CPUs: beside a bare futex, at the same priorities.
//!
//! `cargo bench -p takt-run --bench dispatch -- [--rounds 5]`

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use takt_linux::thread::Tid;
use takt_linux::{Class, ClassGuard, Epoch, PiMutex, futex, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span, Strategy, Time};
use takt_run::dispatch::{Dispatcher, Limits, OperatingMode, Operation, Operations, Queues};

use common::{Hands, bare, hand_overs, in_turns, median, row};

mod common;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = match (arguments.next().as_deref(), arguments.next().map(|value| value.parse())) {
        (None, _) => 5,
        (Some("--rounds"), Some(Ok(rounds))) if rounds > 0 => rounds,
        _ => {
            eprintln!("--rounds N, above zero, is all there is");
            return ExitCode::from(2);
        }
    };
    queues(rounds);
    println!();
    hand_over(rounds);
    println!();
    switch(rounds);
    ExitCode::SUCCESS
}

/// So many of one operation are timed at once: a look at the clock costs as much as a queue.
const BATCH: u32 = 64;
const BATCHES: u32 = 2000;

/// Median nanoseconds of `once`, over batches.
fn time(mut once: impl FnMut()) -> f64 {
    let epoch = Epoch::now_is_zero();
    let mut each: Vec<f64> = Vec::with_capacity(BATCHES as usize);
    for _ in 0..BATCHES {
        let before = epoch.now();
        for _ in 0..BATCH {
            once();
        }
        each.push(epoch.now().saturating_since(before).as_ns() as f64 / f64::from(BATCH));
    }
    median(each)
}

/// How long a cycle takes, about: the deadlines of those that wait are spread over as many of them as it takes until a job has its turn.
const CYCLE_NS: u64 = 100;

/// The relative deadlines of so many operations that wait, and of as many that are to come.
fn deadlines(waiting: u32) -> Vec<Span> {
    let all = u64::from(2 * waiting);
    // The multiplier is prime and above all: each place once, without order.
    (0..all).map(|at| Span::from_ns(1 + CYCLE_NS * (at * 7919 % all))).collect()
}

fn operations(deadlines: &[Span]) -> Operations {
    let ns = Span::from_ns;
    let mut operations = Operations::new("queue");
    for (at, deadline) in deadlines.iter().enumerate() {
        operations.add(Operation::sporadic(&format!("o{at}"), ns(1)).wcet(ns(1)).deadline(*deadline).backlog(1));
    }
    operations
}

fn queues(rounds: usize) {
    println!("a job ends, one taken, one queued, {rounds} rounds  waiting     takt ns  BinaryHeap ns    ratio");
    for (name, strategy) in [
        ("fifo", Builtin::Fifo.strategy()),
        ("deadline", Builtin::Edf.strategy()),
        ("laxity", Builtin::Mlf.strategy()),
        ("muf", Builtin::Muf.strategy()),
    ] {
        for waiting in [64, 1024] {
            match beside_heap(&strategy, &deadlines(waiting), rounds) {
                Ok((ours, theirs, ratio)) => {
                    println!("{name:<38} {waiting:>12} {ours:>11.0} {theirs:>14.0} {ratio:>8.2}");
                }
                Err(wrong) => println!("{name}: {wrong}"),
            }
        }
    }
}

/// Half of the operations wait, the others come, the first that was taken first: medians in ns of takt and of the heap, and of the rounds' ratios.
fn beside_heap(strategy: &Strategy, deadlines: &[Span], rounds: usize) -> Result<(f64, f64, f64), String> {
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = operations(deadlines).compute(strategy, &limits).map_err(|anomalies| anomalies.to_string())?;
    let queues = Queues::new(&plan, 0).map_err(|error| error.to_string())?;
    let half = deadlines.len() as u32 / 2;
    let (mut idle, mut their_idle): (VecDeque<u32>, VecDeque<u32>) =
        ((half..2 * half).collect(), (half..2 * half).collect());
    let epoch = Epoch::now_is_zero();
    let key =
        |slot: u32, now: Time| Reverse(now.saturating_add(deadlines.get(slot as usize).copied().unwrap_or(Span::ZERO)));
    let heap = PiMutex::new(BinaryHeap::with_capacity(deadlines.len()));
    for slot in 0..half {
        let _ = queues.push(slot);
        heap.lock().push((key(slot, epoch.now()), slot));
    }
    let mut runs = queues.take(0);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(time(|| {
            let (Some(ended), Some(comes)) = (runs.take(), idle.pop_front()) else { return };
            idle.push_back(ended.slot());
            runs = queues.exchange(ended, 0);
            let _ = black_box(queues.push(comes));
        }));
        theirs.push(time(|| {
            let taken = {
                let mut heap = heap.lock();
                black_box(epoch.now());
                black_box(heap.pop())
            };
            let (Some((_, ended)), Some(comes)) = (taken, their_idle.pop_front()) else { return };
            their_idle.push_back(ended);
            let mut heap = heap.lock();
            heap.push((key(comes, epoch.now()), comes));
        }));
    }
    // Neither is to have run dry: then it measured nothing.
    if runs.is_none() || heap.lock().len() != half as usize {
        return Err("a queue ran dry".to_owned());
    }
    let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
    Ok((median(ours), median(theirs), ratio))
}

fn hand_over(rounds: usize) {
    let cpus = sched::affinity();
    println!(
        "from a push to the handler, {rounds} rounds    takt p50 us   p99 us  futex p50 us   p99 us  ratio p50    p99"
    );
    for (name, to) in [("same CPU", 0), ("across CPUs", 1)] {
        if cpus.len() <= to {
            println!("{name}: skipped: this process may use one CPU");
            continue;
        }
        match in_turns(rounds, || dispatched(to as u32), || bare(&cpus, to)) {
            Some(rounds) => row(name, &rounds),
            None => println!("{name}: skipped: SCHED_FIFO, a thread or a socket was refused"),
        }
    }
}

fn dispatched(to: u32) -> Option<Hands> {
    let cpus = sched::affinity();
    let operations = Operations::new("hand-over").cpus(to + 1).with(
        Operation::sporadic("event", Span::from_us(1))
            .wcet(Span::from_ns(1))
            .deadline(Span::from_s(1))
            .backlog(1)
            .on_cpu(to),
    );
    let plan = operations.compute(&Builtin::Edf.strategy(), &Limits::default()).ok()?;
    let (seen, clock) = (Arc::new(AtomicU64::new(0)), Epoch::now_is_zero());
    let writer = seen.clone();
    let handler = move |_: &takt_run::dispatch::Job<'_>| writer.store(clock.now().as_ns(), Ordering::Release);
    let dispatching = Dispatcher::new(plan).on("event", handler).ok()?.start().ok()?;
    let event = dispatching.operation("event")?;
    let push = || {
        let _ = event.push();
    };
    let times = hand_overs(*cpus.first()?, clock, &seen, push);
    let _ = dispatching.stop(&mut NullSink);
    times
}

/// Switches of a round.
const SWITCHES: usize = 200;

/// Between a plan with one level a rate and one with a level a criticality, in which every other operation takes no part.
fn switch(rounds: usize) {
    println!(
        "a switch of plans, {rounds} rounds      operations  locked p50 us   p99 us  call p50 us   p99 us  bare calls p50 us"
    );
    for count in [8u64, 64] {
        match switched(rounds, count) {
            Some([locked, call, bare]) => println!(
                "{:<38} {count:>8} {:>13.1} {:>8.1} {:>12.1} {:>8.1} {:>18.1}",
                "rm to muf and back", locked.0, locked.1, call.0, call.1, bare.0
            ),
            None => println!("{count} operations: skipped: SCHED_FIFO or a thread was refused"),
        }
    }
}

/// p50 and p99 in us: queues locked, the whole call, the priorities alone.
fn switched(rounds: usize, count: u64) -> Option<[(f64, f64); 3]> {
    let mut operations = Operations::new("switch");
    let mut other = OperatingMode::new("other", Builtin::Muf.strategy());
    for at in 0..count {
        let name = format!("o{at}");
        operations.add(Operation::periodic(&name, Span::from_ms(5 + at % 8)).wcet(Span::from_us(20)).backlog(4));
        other = if at % 2 == 1 { other.without(&name) } else { other };
    }
    let plan = operations.mode(other).compute(&Builtin::Rm.strategy(), &Limits::default()).ok()?;
    let threads = plan.levels.len();
    let mut built = Dispatcher::new(plan);
    for at in 0..count {
        built = built
            .on(&format!("o{at}"), |job| while job.now() < job.arrival().saturating_add(Span::from_us(20)) {})
            .ok()?;
    }
    let dispatching = built.start().ok()?;
    let clock = Epoch::now_is_zero();
    let (mut locked, mut call, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..rounds * SWITCHES {
        let before = clock.now();
        let switched = dispatching.switch((at + 1) % 2)?;
        call.push(clock.now().saturating_since(before).as_ns());
        locked.push(switched.locked.as_ns());
        let _ = clock.sleep_until(clock.now().saturating_add(Span::from_us(700)));
    }
    let _ = dispatching.stop(&mut NullSink);
    bare.extend(reprioritized(threads)?);
    Some([locked, call, bare].map(|mut times| {
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).map_or(f64::NAN, |ns| *ns as f64 / 1e3);
        (at(50), at(99))
    }))
}

/// What it takes to give so many sleeping threads another priority, by the bare system call, in ns.
fn reprioritized(threads: usize) -> Option<Vec<u64>> {
    let over = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (send, tids) = std::sync::mpsc::channel();
        for _ in 0..threads {
            let (send, over) = (send.clone(), &over);
            scope.spawn(move || {
                let class = ClassGuard::enter(&Class::Fifo { priority: 10 });
                let _ = send.send(class.is_ok().then(Tid::current));
                while over.load(Ordering::Acquire) == 0 {
                    let clock = Epoch::now_is_zero();
                    futex::wait(over, 0, clock, clock.now().saturating_add(Span::from_s(1)));
                }
            });
        }
        let tids: Option<Vec<Tid>> = (0..threads).map(|_| tids.recv().ok().flatten()).collect();
        let clock = Epoch::now_is_zero();
        let times = tids.map(|tids| {
            let once = |round: usize| {
                let before = clock.now();
                for tid in &tids {
                    let _ = sched::reprioritize(*tid, 10 + (round % 2) as u8);
                }
                clock.now().saturating_since(before).as_ns()
            };
            (0..SWITCHES).map(once).collect()
        });
        over.store(1, Ordering::Release);
        futex::wake_all(&over);
        times
    })
}
