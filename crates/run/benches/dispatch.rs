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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use takt_linux::{Class, ClassGuard, Epoch, PiMutex, futex, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span, Time};
use takt_run::dispatch::{Dispatcher, Limits, Operation, Operations, Queues};

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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn quantile(sorted: &[u64], percent: usize) -> f64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64)
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

/// Hand-overs of a round.
const HAND_OVERS: usize = 500;
/// From one to the next.
const PAUSE: Span = Span::from_us(300);

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
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            match (dispatched(to as u32), bare(&cpus, to)) {
                (Some(mut dispatched), Some(mut bare)) => {
                    dispatched.sort_unstable();
                    bare.sort_unstable();
                    ours.push((quantile(&dispatched, 50), quantile(&dispatched, 99)));
                    theirs.push((quantile(&bare, 50), quantile(&bare, 99)));
                }
                _ => {
                    println!("{name}: skipped: SCHED_FIFO is not permitted here");
                    return;
                }
            }
        }
        let of = |all: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| median(all.iter().map(pick).collect()) / 1e3;
        let ratio = |pick: fn(&(f64, f64)) -> f64| {
            median(ours.iter().zip(&theirs).map(|(ours, theirs)| pick(ours) / pick(theirs)).collect())
        };
        println!(
            "{name:<38} {:>13.2} {:>8.2} {:>13.2} {:>8.2} {:>10.2} {:>6.2}",
            of(&ours, |turn| turn.0),
            of(&ours, |turn| turn.1),
            of(&theirs, |turn| turn.0),
            of(&theirs, |turn| turn.1),
            ratio(|turn| turn.0),
            ratio(|turn| turn.1),
        );
    }
}

/// Who pushes, on the first CPU, below the handler's priority.
fn pusher<R: Send>(cpu: u32, body: impl FnOnce() -> R + Send) -> Option<R> {
    let permitted = || {
        sched::set_affinity(&[cpu]).ok()?;
        ClassGuard::enter(&Class::Fifo { priority: 10 }).ok()
    };
    std::thread::scope(|scope| scope.spawn(|| permitted().map(|_class| body())).join().ok().flatten())
}

fn dispatched(to: u32) -> Option<Vec<u64>> {
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
    let times = pusher(*cpus.first()?, || {
        let mut times = Vec::with_capacity(HAND_OVERS);
        for _ in 0..HAND_OVERS {
            let _ = clock.sleep_until(clock.now().saturating_add(PAUSE));
            seen.store(0, Ordering::Release);
            let before = clock.now();
            let _ = event.push();
            times.push(until_seen(&seen, clock).saturating_since(before).as_ns());
        }
        times
    });
    let _ = dispatching.stop(&mut NullSink);
    times
}

/// When the other side looked at the clock; at most 10 ms are waited for it.
fn until_seen(seen: &AtomicU64, epoch: Epoch) -> Time {
    let patience = epoch.now().saturating_add(Span::from_ms(10));
    loop {
        match seen.load(Ordering::Acquire) {
            0 if epoch.now() < patience => std::hint::spin_loop(),
            0 => return patience,
            at => return Time::from_ns(at),
        }
    }
}

/// The same with nothing but a futex.
fn bare(cpus: &[u32], to: usize) -> Option<Vec<u64>> {
    let (word, stop, seen) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let clock = Epoch::now_is_zero();
    let (first, target) = (*cpus.first()?, *cpus.get(to)?);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if sched::set_affinity(&[target]).is_err() {
                return;
            }
            let Ok(_class) = ClassGuard::enter(&Class::Fifo { priority: 47 }) else { return };
            let mut last = word.load(Ordering::Acquire);
            while !stop.load(Ordering::Acquire) {
                futex::wait(&word, last, clock, clock.now().saturating_add(Span::from_ms(100)));
                let now = word.load(Ordering::Acquire);
                if now != last {
                    last = now;
                    seen.store(clock.now().as_ns(), Ordering::Release);
                }
            }
        });
        takt_linux::clock::pause(Span::from_ms(5));
        let times = pusher(first, || {
            let mut times = Vec::with_capacity(HAND_OVERS);
            for _ in 0..HAND_OVERS {
                let _ = clock.sleep_until(clock.now().saturating_add(PAUSE));
                seen.store(0, Ordering::Release);
                let before = clock.now();
                word.fetch_add(1, Ordering::AcqRel);
                futex::wake_all(&word);
                times.push(until_seen(&seen, clock).saturating_since(before).as_ns());
            }
            times
        });
        stop.store(true, Ordering::Release);
        word.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&word);
        times
    })
}
