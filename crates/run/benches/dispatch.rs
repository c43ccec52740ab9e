//! What the dispatcher's queues and its hand-over to a thread cost, beside named peers in the same run.
//!
//! - A job queued and taken again, with the time of both, while 64 or 1024 others wait: beside std's `BinaryHeap` behind the same lock with
//!   two looks at the clock, which knows neither levels, nor backlogs, nor chains, nor counts.
//! - A switch of plans under load: how long all queues are locked, and the whole call, beside the bare system calls that give as many threads their new
//!   priorities.
//! - From a push to the handler's first look at the clock, on the same CPU and across CPUs: beside a bare futex, at the same priorities.
//!
//! `cargo bench -p takt-run --bench dispatch -- [--rounds 5]`

use std::collections::BinaryHeap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use takt_linux::thread::Tid;
use takt_linux::{Class, ClassGuard, Epoch, PiMutex, futex, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span};
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
fn time(mut once: impl FnMut(u32)) -> f64 {
    let epoch = Epoch::now_is_zero();
    let mut each: Vec<f64> = Vec::with_capacity(BATCHES as usize);
    for batch in 0..BATCHES {
        let before = epoch.now();
        for at in 0..BATCH {
            once(batch * BATCH + at);
        }
        each.push(epoch.now().saturating_since(before).as_ns() as f64 / f64::from(BATCH));
    }
    median(each)
}

/// Operations of as many deadlines as there are of them.
fn operations(count: u32) -> Operations {
    let ns = Span::from_ns;
    let mut operations = Operations::new("queue");
    for at in 0..u64::from(count) {
        // Deadlines without order, all in the far future, so that none passes meanwhile.
        let deadline = Span::from_s(1000).saturating_add(Span::from_us(at * 7919 % 104_729));
        operations.add(Operation::sporadic(&format!("o{at}"), ns(1)).wcet(ns(1)).deadline(deadline).backlog(1));
    }
    operations
}

fn queues(rounds: usize) {
    println!("a job queued and taken, {rounds} rounds          waiting     takt ns  BinaryHeap ns    ratio");
    for (name, strategy) in [
        ("fifo", Builtin::Fifo.strategy()),
        ("deadline", Builtin::Edf.strategy()),
        ("laxity", Builtin::Mlf.strategy()),
        ("muf", Builtin::Muf.strategy()),
    ] {
        for waiting in [64, 1024] {
            let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
            let plan = match operations(waiting + 1).compute(&strategy, &limits) {
                Ok(plan) => plan,
                Err(anomalies) => {
                    println!("{name}: {anomalies}");
                    return;
                }
            };
            let Ok(queues) = Queues::new(&plan, 0) else { return };
            for slot in 0..waiting {
                let _ = queues.push(slot);
            }
            let heap: PiMutex<BinaryHeap<(std::cmp::Reverse<u64>, u32)>> =
                PiMutex::new(BinaryHeap::with_capacity(2048));
            let epoch = Epoch::now_is_zero();
            for slot in 0..waiting {
                heap.lock().push((std::cmp::Reverse(u64::from(slot) * 7919 % 104_729), slot));
            }
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            // A thread runs one of them: it ends, the next is taken, and one like it is queued again.
            let _ = queues.push(waiting);
            let mut runs = queues.take(0);
            for _ in 0..rounds {
                ours.push(time(|_| {
                    let Some(ended) = runs.take() else { return };
                    let slot = ended.slot();
                    runs = queues.exchange(ended, 0);
                    let _ = black_box(queues.push(slot));
                }));
                theirs.push(time(|at| {
                    {
                        let mut heap = heap.lock();
                        black_box(epoch.now());
                        heap.push((std::cmp::Reverse(u64::from(at) * 7919 % 104_729), at));
                    }
                    let mut heap = heap.lock();
                    black_box(epoch.now());
                    black_box(heap.pop());
                }));
            }
            let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
            let (ours, theirs) = (median(ours), median(theirs));
            println!("{name:<38} {waiting:>12} {ours:>11.0} {theirs:>14.0} {ratio:>8.2}");
        }
    }
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
