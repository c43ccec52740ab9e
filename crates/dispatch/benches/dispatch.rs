//! The cost of a running dispatcher, compared with named peers in the same run. The benchmark
//! `queues` measures its queues alone.
//!
//! - A job ends, the next is taken, and its handler queues another, while 64 or 1024 wait. This
//!   includes the facts for the log, which is drained meanwhile, the announcements to other
//!   threads, and the call of the handler. The peer is the heap of the benchmark `queues`, which
//!   does none of that.
//! - A switch of plans by a more important thread, on a CPU with more than twice its capacity of
//!   load. The figures are the time that all queues are locked, and the whole call. The peers are
//!   bare system calls that set the priorities of as many threads.
//! - From a push to the handler's first reading of the clock, on the same CPU and across CPUs. The
//!   peer is a bare futex at the same priorities.
//!
//! It fails if a plan cannot be computed, if a queue held an unexpected number of jobs, or if half
//! of the switches moved no job. Measurements that this machine does not permit are skipped.
//!
//! `cargo bench -p takt-dispatch --bench dispatch -- [--rounds 5]`

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use takt_dispatch::{
    Dispatcher, Dispatching, Handle, Job, Limits, OperatingMode, Operation, Operations, Options, Plan, PushError,
    Switched,
};
use takt_linux::thread::Tid;
use takt_linux::{Class, ClassGuard, Epoch, PiMutex, SchedError, clock, futex, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span, Time};

use hands::{Hands, bare, hand_overs, in_turns, pusher, row};
use heap::{BATCH, BATCHES, Heap, Rounds, Waiting, table, time};
use rounds::{median, rounds};

#[path = "common/hands.rs"]
mod hands;
#[path = "common/heap.rs"]
mod heap;
#[path = "common/rounds.rs"]
mod rounds;

fn main() -> ExitCode {
    let Some(rounds) = rounds(5) else { return ExitCode::from(2) };
    if let Err(why) = permitted() {
        println!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let queued = table("a job ends, one taken, its handler queues one", rounds, |of| running_beside_heap(of, rounds));
    println!();
    hand_over(rounds);
    println!();
    let switched = switch(rounds);
    if queued && switched { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a dispatcher's threads and a more important thread may run here.
fn permitted() -> Result<(), String> {
    let operations = Operations::new("trial").with(Operation::sporadic("none", Span::from_s(1)).wcet(Span::from_ns(1)));
    let plan = operations.compute(&Builtin::Edf.strategy(), &Limits::default()).map_err(text)?;
    let trial = Dispatcher::new(plan).on("none", |_| ()).map_err(text)?.start().map_err(text)?;
    trial.stop(&mut NullSink).map_err(text)?;
    let important = || more_important().map(drop).map_err(text);
    std::thread::scope(|scope| scope.spawn(important).join()).unwrap_or_else(|_| Err("a thread panicked".to_owned()))
}

fn text(what: impl ToString) -> String {
    what.to_string()
}

/// Batches between two sleeps of the handlers, which let the log be drained without loss on one CPU
/// too.
const IN_A_ROW: usize = 16;

/// The operation that arrives after this one.
fn other(of: &Waiting, slot: u32) -> u32 {
    (slot + of.half()) % (2 * of.half())
}

/// Takes one job and adds its successor.
fn cycle(heap: &Heap<'_>, of: &Waiting) {
    if let Some((_, ended)) = heap.take() {
        heap.push(other(of, ended));
    }
}

/// A running dispatcher and the heap, at the same priority and on the same CPU.
fn running_beside_heap(of: &Waiting, rounds: usize) -> Result<Rounds, String> {
    let refused = || "SCHED_FIFO or a CPU was refused";
    let cpu = *sched::affinity().first().ok_or_else(refused)?;
    let heap = Heap::new(of);
    let mut turns = Rounds::default();
    for _ in 0..rounds {
        turns.ours.push(running(of)?);
        turns.theirs.push(pusher(cpu, || time(|| cycle(&heap, of))).ok_or_else(refused)?);
    }
    if !heap.is_whole() {
        return Err(text("the heap ran dry"));
    }
    Ok(turns)
}

/// The state shared by pushing handlers. Only one of them runs at a time.
struct Cycles {
    handles: OnceLock<Vec<Handle>>,
    jobs: AtomicU64,
    rejected: AtomicU64,
    /// Times of batches, in ns.
    times: PiMutex<Vec<u64>>,
    since: AtomicU64,
    /// How often the log was to be drained, and the last of these requests served.
    asked: AtomicU64,
    drained: AtomicU64,
}

impl Cycles {
    fn new() -> Cycles {
        let times = PiMutex::new(Vec::with_capacity(2 * BATCHES as usize));
        let [jobs, rejected, since, asked, drained] = [(); 5].map(|()| AtomicU64::new(0));
        Cycles { handles: OnceLock::new(), jobs, rejected, times, since, asked, drained }
    }

    /// A job of a handler, which pushes another operation.
    #[inline]
    fn job(&self, job: &Job<'_>, comes: u32) {
        let handles = loop {
            match self.handles.get() {
                Some(handles) => break handles,
                // Not before all initial jobs wait.
                None => clock::pause(Span::from_us(100)),
            }
        };
        if !matches!(handles.get(comes as usize).map(Handle::push), Some(Ok(_) | Err(PushError::Stopped))) {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        // There is no other writer.
        let jobs = self.jobs.load(Ordering::Relaxed) + 1;
        self.jobs.store(jobs, Ordering::Relaxed);
        if jobs.is_multiple_of(u64::from(BATCH)) {
            self.batch(job);
        }
    }

    #[cold]
    fn batch(&self, job: &Job<'_>) {
        let now = job.now().as_ns();
        let mut times = self.times.lock();
        times.push(now - self.since.load(Ordering::Relaxed));
        if times.len().is_multiple_of(IN_A_ROW) {
            let asked = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
            while self.drained.load(Ordering::Acquire) < asked && !job.must_stop() {
                clock::pause(Span::from_us(50));
            }
        }
        self.since.store(job.now().as_ns(), Ordering::Relaxed);
    }

    fn enough(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) > u64::from(BATCH) * u64::from(BATCHES)
    }
}

/// Median nanoseconds of a job of a dispatcher whose handlers push the next operation.
fn running(of: &Waiting) -> Result<f64, String> {
    let cycles = Arc::new(Cycles::new());
    let mut built = Dispatcher::new(of.plan.clone()).with(Options { records: 1 << 14, ..Options::default() });
    for slot in 0..2 * of.half() {
        let (cycles, comes) = (cycles.clone(), other(of, slot));
        built = built.on(&format!("o{slot}"), move |job| cycles.job(job, comes)).map_err(text)?;
    }
    let mut dispatching = built.start().map_err(text)?;
    let operation = |slot| dispatching.operation(&format!("o{slot}"));
    let handles: Vec<Handle> = (0..2 * of.half()).filter_map(operation).collect();
    let rejected = handles.iter().take(of.half() as usize).filter(|handle| handle.push().is_err()).count();
    cycles.rejected.store(rejected as u64, Ordering::Relaxed);
    let _ = cycles.handles.set(handles);
    let patience = Epoch::now_is_zero();
    while !cycles.enough() && patience.now() < Time::ZERO.saturating_add(Span::from_s(30)) {
        let asked = cycles.asked.load(Ordering::Acquire);
        dispatching.drain(&mut NullSink);
        cycles.drained.store(asked, Ordering::Release);
        let _ = patience.sleep_until(patience.now().saturating_add(Span::from_us(100)));
    }
    settle(dispatching, of, &cycles)
}

/// The result of a dispatcher that has run long enough, if it lost no facts.
fn settle(dispatching: Dispatching, of: &Waiting, cycles: &Cycles) -> Result<f64, String> {
    let stopped = dispatching.stop(&mut NullSink).map_err(text)?;
    let there: u64 = stopped.counts.iter().map(|(_, counts)| counts.released - counts.completed).sum();
    let rejected = cycles.rejected.load(Ordering::Relaxed);
    let half = u64::from(of.half());
    // A job ran when it was stopped, and may have pushed before.
    if !cycles.enough() || stopped.lost > 0 || rejected > 0 || !(half..=half + 1).contains(&there) {
        let jobs = cycles.jobs.load(Ordering::Relaxed);
        return Err(format!(
            "{jobs} jobs, {} facts lost, {rejected} pushes rejected, {there} of {half} jobs there",
            stopped.lost
        ));
    }
    // The first batch began with the start.
    let times = cycles.times.lock();
    Ok(median(times.iter().skip(1).map(|ns| *ns as f64 / f64::from(BATCH)).collect()))
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
    let handler = move |_: &takt_dispatch::Job<'_>| writer.store(clock.now().as_ns(), Ordering::Release);
    let dispatching = Dispatcher::new(plan).on("event", handler).ok()?.start().ok()?;
    let event = dispatching.operation("event")?;
    let push = || {
        let _ = event.push();
    };
    let times = hand_overs(*cpus.first()?, clock, &seen, push);
    let _ = dispatching.stop(&mut NullSink);
    times
}

/// Switches in each round.
const SWITCHES: usize = 200;
/// More important than all threads of a dispatcher.
const SWITCHER: u8 = 80;

/// Switches between a plan with a level for each rate and one with a level for each criticality, in
/// which every other operation takes no part. Returns whether jobs were moved.
fn switch(rounds: usize) -> bool {
    println!(
        "a switch of plans, {rounds} rounds      operations  locked p50 us   p99 us  call p50 us   p99 us  \
         bare calls p50 us  moved least  p50"
    );
    let mut whole = true;
    for count in [8u64, 64] {
        match switched(rounds, count) {
            Ok(([locked, call, bare], moved)) => {
                println!(
                    "{:<38} {count:>8} {:>13.1} {:>8.1} {:>12.1} {:>8.1} {:>18.1} {:>12} {:>4}",
                    "rm to muf and back", locked.0, locked.1, call.0, call.1, bare.0, moved.0, moved.1
                );
                if moved.1 == 0 {
                    println!("{count} operations: half of the switches found no job to move");
                    whole = false;
                }
            }
            Err(what) => {
                println!("{count} operations: {what}");
                whole = false;
            }
        }
    }
    whole
}

/// p50 and p99 in us: queues locked, the whole call, the priorities alone. Then the number of moved
/// jobs: least and p50.
type Switches = ([(f64, f64); 3], (usize, usize));

fn switched(rounds: usize, count: u64) -> Result<Switches, String> {
    let refused = || "SCHED_FIFO or a thread was refused";
    let mut operations = Operations::new("switch");
    let mut other = OperatingMode::new("other", Builtin::Muf.strategy());
    for at in 0..count {
        let name = format!("o{at}");
        operations.add(Operation::periodic(&name, Span::from_ms(5 + at % 8)).wcet(Span::from_us(20)).backlog(4));
        other = if at % 2 == 1 { other.without(&name) } else { other };
    }
    let plan = operations.mode(other).compute(&Builtin::Rm.strategy(), &Limits::default()).map_err(text)?;
    let threads = plan.levels.len();
    let (mut locked, mut call, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (switched, took) in overloaded(&plan, count)? {
            locked.push(switched.locked.as_ns());
            call.push(took.as_ns());
            moved.push(switched.moved);
        }
        // All real-time threads of a CPU have 95 % of it.
        clock::pause(Span::from_ms(200));
    }
    let bare = reprioritized(threads).ok_or_else(refused)?;
    moved.sort_unstable();
    let moved = (moved.first().copied().unwrap_or(0), moved.get(moved.len() / 2).copied().unwrap_or(0));
    let quantiles = [locked, call, bare].map(|mut times| {
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).map_or(f64::NAN, |ns| *ns as f64 / 1e3);
        (at(50), at(99))
    });
    Ok((quantiles, moved))
}

/// The switches of a round with the duration of each call, once the backlogs are full.
fn overloaded(plan: &Plan, count: u64) -> Result<Vec<(Switched, Span)>, String> {
    // Each operation's share of 20 ms in about 8 ms: two and a half times the CPU's capacity, and
    // above it with half of the operations too.
    let takes = Span::from_ns(20_000_000 / count);
    let mut built = Dispatcher::new(plan.clone());
    for at in 0..count {
        let handler = move |job: &Job<'_>| {
            let until = job.now().saturating_add(takes);
            while job.now() < until && !job.must_stop() {}
        };
        built = built.on(&format!("o{at}"), handler).map_err(text)?;
    }
    let dispatching = built.start().map_err(text)?;
    // The stop also comes from a thread more important than the load. An ordinary thread gets a
    // lock only when no thread of the dispatcher wants it.
    let measured = || {
        let important = more_important();
        let switches = important.as_ref().map_or_else(|refused| Err(text(refused)), |_| in_overload(&dispatching));
        let _ = dispatching.stop(&mut NullSink);
        switches
    };
    let measured = std::thread::scope(|scope| scope.spawn(measured).join().ok());
    measured.unwrap_or_else(|| Err(text("a thread panicked")))
}

/// More important than the dispatcher's threads, and on another CPU if there is one.
fn more_important() -> Result<ClassGuard, SchedError> {
    sched::set_affinity(&[sched::affinity().last().copied().unwrap_or(0)])?;
    ClassGuard::enter(&Class::Fifo { priority: SWITCHER })
}

fn in_overload(dispatching: &Dispatching) -> Result<Vec<(Switched, Span)>, String> {
    let clock = Epoch::now_is_zero();
    // Half of the operations have arrivals without room.
    let full = || {
        let counts = dispatching.counts();
        counts.iter().filter(|(_, counts)| counts.rejected > 0).count() * 2 >= counts.len()
    };
    while !full() {
        if clock.now() > Time::ZERO.saturating_add(Span::from_s(2)) {
            return Err(text("the backlogs were not full after 2 s"));
        }
        let _ = clock.sleep_until(clock.now().saturating_add(Span::from_ms(5)));
    }
    let mut switches = Vec::with_capacity(SWITCHES);
    for at in 0..SWITCHES {
        let before = clock.now();
        let switched = dispatching.switch((at + 1) % 2).ok_or_else(|| text("there is no such plan"))?;
        switches.push((switched, clock.now().saturating_since(before)));
        let _ = clock.sleep_until(clock.now().saturating_add(Span::from_us(700)));
    }
    Ok(switches)
}

/// The time to change the priority of this many sleeping threads by the bare system call, in ns.
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
