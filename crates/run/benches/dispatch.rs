//! What the dispatcher's queues and its hand-over to a thread cost, beside named peers in the same run.
//!
//! - A job queued and taken again, with the time of both, while 64 or 1024 others wait: beside std's `BinaryHeap` behind the same lock with
//!   two looks at the clock, which knows neither levels, nor backlogs, nor chains, nor counts.
//! - From a push to the handler's first look at the clock, on the same CPU and across CPUs: beside a bare futex, at the same priorities.
//!
//! `cargo bench -p takt-run --bench dispatch -- [--rounds 5]`

use std::collections::BinaryHeap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_linux::{Epoch, PiMutex, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span};
use takt_run::dispatch::{Dispatcher, Limits, Operation, Operations, Queues};

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
        operations.add(Operation::sporadic(&format!("o{at}"), ns(1)).wcet(ns(1)).deadline(deadline));
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
        Operation::sporadic("event", Span::from_us(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).on_cpu(to),
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
