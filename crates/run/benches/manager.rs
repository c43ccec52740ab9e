//! What a budget manager costs, beside a bare hand-off between two threads by a futex.
//!
//! `cargo bench -p takt-run --bench manager` prints everything. It needs SCHED_FIFO. Threads are busy for 60 % of the
//! time at most.
//!
//! 1. A bare hand-off: one thread wakes another one of its priority on its CPU, and sleeps.
//! 2. A switch from one busy thread to another by a third above both. A thread is held back in four ways: frozen by
//!    a signal and lowered, as takt does it; frozen alone; by a lower SCHED_FIFO priority; or under SCHED_OTHER. The
//!    time counts from the wake-up of the third to the first instruction of the other. What held threads take while
//!    nothing else runs shows the isolation.
//! 3. `takt run` of components with a quantum of 1 ms and of 10 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use takt_linux::freeze::{Freezer, Lease};
use takt_linux::thread::Tid;
use takt_linux::{Class, ClassGuard, Epoch, SchedError, clock, futex, sched};
use takt_log::stats::{Histogram, Summary};
use takt_model::{Auto, Builtin, Component, ComponentId, NodeId, ServerRule, Span, StrategyRef, System, Task, Time};
use takt_run::{RunOptions, run};

const MANAGER: Class = Class::Fifo { priority: 48 };
const WORKER: Class = Class::Fifo { priority: 47 };
const BELOW: u8 = 1;
const ROUNDS: u64 = 1000;

fn main() {
    let cpu = sched::affinity().first().copied().unwrap_or(0);
    let bare = match bare(cpu) {
        Ok(bare) => bare,
        Err(error) => return println!("skipped: {error}"),
    };
    println!("all on CPU {cpu}; steal {:?}", clock::steal());
    println!("{:34} {:>9} {:>9} {:>7}", "", "p50", "p99", "times");
    line("bare hand-off by a futex", &bare, &bare);
    for hold in [Hold::FrozenBelow, Hold::Frozen, Hold::Below, Hold::Other] {
        match switches(cpu, hold) {
            Ok((latency, deciding, leaked)) => {
                line(&format!("switch, held back {}", hold.name()), &latency, &bare);
                line("  of this in the third thread", &deciding, &bare);
                println!("  held threads took {leaked} % of the time in which nothing else ran");
            }
            Err(error) => println!("{}: {error}", hold.name()),
        }
    }
    for quantum in [1, 10] {
        let system = components(Span::from_ms(quantum));
        let mut events: Vec<(u32, Time, takt_log::Event)> = Vec::new();
        match run(&system, &RunOptions::new(Span::from_s(2)), &mut events) {
            Ok(summary) => {
                let manager = &summary.managers[0];
                println!(
                    "quantum {quantum} ms: {} decisions, {} preemptions, {:.2} % of the CPU, steal {:?}",
                    manager.decisions,
                    manager.preemptions,
                    manager.share_ppm as f64 / 10_000.0,
                    summary.steal
                );
                for (name, of) in [
                    ("  decision", manager.cost),
                    ("  late", manager.late),
                    ("  late replenishments", manager.late_replenishments),
                ] {
                    if let Some(of) = of {
                        line(name, &of, &bare);
                    }
                }
            }
            Err(error) => println!("quantum {quantum} ms: {error}"),
        }
    }
    println!("steal {:?}", clock::steal());
}

fn line(name: &str, of: &Summary<u64>, bare: &Summary<u64>) {
    let us = |ns: u64| ns as f64 / 1000.0;
    println!("{name:34} {:>6.1} us {:>6.1} us {:>7.2}", us(of.p50), us(of.p99), us(of.p50) / us(bare.p50));
}

/// Two threads: one wakes the other every millisecond.
fn bare(cpu: u32) -> Result<Summary<u64>, SchedError> {
    let word = Arc::new(AtomicU32::new(0));
    let sent = Arc::new(AtomicU64::new(0));
    let (other, started) = (word.clone(), sent.clone());
    let epoch = Epoch::now_is_zero();
    let far = epoch.now().saturating_add(Span::from_s(60));
    let receiver = std::thread::spawn(move || {
        sched::set_affinity(&[cpu])?;
        let _class = ClassGuard::enter(&WORKER)?;
        let mut times = Histogram::default();
        for round in 0..ROUNDS as u32 {
            while other.load(Ordering::Acquire) <= round && epoch.now() < far {
                futex::wait(&other, round, epoch, far);
            }
            times.record(clock::monotonic_ns().saturating_sub(started.load(Ordering::Acquire)));
        }
        Ok(times)
    });
    let sender = std::thread::spawn(move || {
        sched::set_affinity(&[cpu])?;
        let _class = ClassGuard::enter(&WORKER)?;
        for _ in 0..ROUNDS {
            clock::pause(Span::from_ms(1));
            sent.store(clock::monotonic_ns(), Ordering::Release);
            word.fetch_add(1, Ordering::AcqRel);
            futex::wake_all(&word);
        }
        Ok(())
    });
    let sent: Result<(), SchedError> = sender.join().expect("no panic");
    sent?;
    let times: Result<Histogram, SchedError> = receiver.join().expect("no panic");
    Ok(times?.summary().expect("rounds"))
}

#[derive(Clone, Copy, PartialEq)]
enum Hold {
    FrozenBelow,
    Frozen,
    Below,
    Other,
}

impl Hold {
    fn name(self) -> &'static str {
        match self {
            Hold::FrozenBelow => "frozen and lowered",
            Hold::Frozen => "frozen alone",
            Hold::Below => "at a lower priority",
            Hold::Other => "under SCHED_OTHER",
        }
    }
}

/// A thread that is always busy.
struct Worker {
    freezer: Arc<Freezer>,
    tid: AtomicI32,
    /// It notes its next instruction.
    armed: AtomicBool,
    first: AtomicU64,
    stop: AtomicBool,
}

impl Worker {
    fn tid(&self) -> Tid {
        Tid::of_this_process(self.tid.load(Ordering::Acquire)).expect("it runs")
    }

    fn hold(&self, how: Hold) {
        match how {
            Hold::FrozenBelow => {
                self.freezer.freeze(self.tid());
                sched::reprioritize(self.tid(), BELOW).expect("as before");
            }
            Hold::Frozen => self.freezer.freeze(self.tid()),
            Hold::Below => sched::reprioritize(self.tid(), BELOW).expect("as before"),
            Hold::Other => sched::reclass(self.tid(), &Class::Other).expect("as before"),
        }
    }

    fn free(&self, how: Hold) {
        match how {
            Hold::FrozenBelow => {
                sched::reclass(self.tid(), &WORKER).expect("as before");
                self.freezer.free();
            }
            Hold::Frozen => self.freezer.free(),
            Hold::Below | Hold::Other => sched::reclass(self.tid(), &WORKER).expect("as before"),
        }
    }
}

/// The latency of switches, the part of it in the third thread, and what held threads took, in percent.
fn switches(cpu: u32, how: Hold) -> Result<(Summary<u64>, Summary<u64>, u64), SchedError> {
    let lease = Arc::new(Lease::default());
    let epoch = Epoch::now_is_zero();
    lease.renew(epoch, epoch.now().saturating_add(Span::from_s(60)));
    let workers: Vec<Arc<Worker>> = (0..2)
        .map(|_| {
            Arc::new(Worker {
                freezer: Freezer::new(lease.clone()),
                tid: AtomicI32::new(0),
                armed: false.into(),
                first: AtomicU64::new(0),
                stop: false.into(),
            })
        })
        .collect();
    let handles: Vec<_> = workers
        .iter()
        .map(|worker| {
            let worker = worker.clone();
            std::thread::spawn(move || {
                let _ = sched::set_affinity(&[cpu]);
                let _obedience = worker.freezer.obey();
                worker.tid.store(Tid::current().get(), Ordering::Release);
                while !worker.stop.load(Ordering::Acquire) {
                    if worker.armed.load(Ordering::Acquire) {
                        worker.first.store(clock::monotonic_ns(), Ordering::Release);
                        worker.armed.store(false, Ordering::Release);
                    }
                }
            })
        })
        .collect();
    while workers.iter().any(|worker| worker.tid.load(Ordering::Acquire) == 0) {
        clock::pause(Span::from_ms(1));
    }
    let own = workers.clone();
    let manager = std::thread::spawn(move || {
        sched::set_affinity(&[cpu])?;
        let _class = ClassGuard::enter(&MANAGER)?;
        let [a, b] = &own[..] else { unreachable!("two workers") };
        // A thread that is frozen alone keeps the class of workers.
        for worker in &own {
            if how == Hold::Frozen {
                sched::reclass(worker.tid(), &WORKER).expect("allowed to this thread as well");
            }
            worker.hold(how);
        }
        let (mut latency, mut deciding) = (Histogram::default(), Histogram::default());
        let (mut idle, mut leaked) = (Span::ZERO, Span::ZERO);
        let used = || clock::cpu_of(a.tid()).saturating_add(clock::cpu_of(b.tid()));
        let sleep = |at: Time| while !epoch.sleep_until(at) {};
        let begin = epoch.now().saturating_add(Span::from_ms(2));
        for round in 0..ROUNDS {
            let at = |us: u64| begin.saturating_add(Span::from_us(1000 * round + us));
            sleep(at(0));
            a.free(how);
            sleep(at(300));
            let woken = clock::monotonic_ns();
            b.armed.store(true, Ordering::Release);
            a.hold(how);
            b.free(how);
            deciding.record(clock::monotonic_ns() - woken);
            sleep(at(600));
            latency.record(b.first.load(Ordering::Acquire).saturating_sub(woken));
            b.hold(how);
            // The signal's handler is part of the switch.
            sleep(at(650));
            let (since, before) = (epoch.now(), used());
            sleep(at(950));
            idle = idle.saturating_add(epoch.now().saturating_since(since));
            leaked = leaked.saturating_add(used().saturating_sub(before));
        }
        for worker in &own {
            worker.stop.store(true, Ordering::Release);
            worker.free(how);
            let _ = sched::reclass(worker.tid(), &Class::Other);
        }
        let percent = leaked.as_ns() * 100 / idle.as_ns().max(1);
        Ok((latency.summary().expect("rounds"), deciding.summary().expect("rounds"), percent))
    });
    let result = manager.join().expect("no panic");
    for worker in &workers {
        worker.stop.store(true, Ordering::Release);
        worker.freezer.free();
    }
    handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
    result
}

/// Three components whose servers decide at multiples of `quantum`, and use 60 % of the CPU.
fn components(quantum: Span) -> System {
    let times = |factor: u64| Span::from_ns(quantum.as_ns() * factor);
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    for at in 0..3 {
        let mut component = Component::new(&format!("c{at}"), NodeId(0), ServerRule::Deferrable);
        (component.period, component.budget) = (Auto::Value(times(10)), Auto::Value(times(2)));
        (component.quantum, component.strategy) = (Some(quantum), StrategyRef::Builtin(Builtin::Rm));
        system.components.push(component);
        // More work than the budget, so that every budget is used up.
        let task = Task::periodic(&format!("t{at}"), times(20), times(5));
        system.tasks.push(Task { component: Some(ComponentId(at)), ..task });
    }
    system
}
