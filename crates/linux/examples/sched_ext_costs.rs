//! Costs of takt's sched_ext scheduler, beside a FIFO scheduler and the kernel's fair class.
//!
//! It also measures how long the machine has no scheduler while another takes over. It counts two servers' budgets:
//! while the scheduler of one is replaced, and while the thread of the other has children. It is for a guest of the
//! lab with one CPU, where an instruction takes 1 ns (.ci/lab-sched-ext-costs).
//! With an argument it also measures the scheduler that this program loads. The answer is JSON.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use takt_linux::process::KillOnDrop;
use takt_linux::sched_ext::{
    Fifo, Member, Order, Rule, SchedExtError, Scheduler, ServerNews, Shared, Successor, Terms,
};
use takt_linux::{Class, ClassGuard, Epoch, clock, process, sched_ext};
use takt_model::{Span, Time};

/// Hand-offs before and during a measurement.
const WARM: u64 = 2_000;
const HOPS: u64 = 20_000;
/// Changes from one scheduler to another.
const TAKEOVERS: usize = 11;
/// The budget of a server whose thread replaces the scheduler, in nanoseconds.
const BUDGET: u64 = 100_000_000;
const BEFORE: u64 = 20_000_000;
/// How often it does.
const REPLACEMENTS: usize = 3;
/// The server of a thread that starts others: budget and period in nanoseconds.
const SHARED_BUDGET: u64 = 20_000_000;
const SHARED_PERIOD: u64 = 100_000_000;
/// How many of its periods are counted.
const PERIODS: usize = 10;

/// Two threads wake each other up in turn, `hops` times. They have two places from the given one on.
fn pair(hops: u64, places: Option<(Arc<Shared>, u32)>) -> [JoinHandle<()>; 2] {
    let turn = Arc::new(AtomicU64::new(0));
    let own = |me: u64| {
        let (turn, places) = (turn.clone(), places.clone());
        let (send, other) = std::sync::mpsc::channel::<Thread>();
        let run = move || {
            if let Some((shared, first)) = places {
                shared.join(first + me as u32).expect("the thread joins");
            }
            let other = other.recv().expect("the other thread");
            loop {
                let now = turn.load(Ordering::Acquire);
                if now >= hops {
                    other.unpark();
                    return;
                }
                if now % 2 == me {
                    turn.store(now + 1, Ordering::Release);
                    other.unpark();
                } else {
                    thread::park();
                }
            }
        };
        (thread::spawn(run), send)
    };
    let ((first, to_first), (second, to_second)) = (own(0), own(1));
    to_second.send(first.thread().clone()).expect("the thread waits");
    to_first.send(second.thread().clone()).expect("the thread waits");
    [first, second]
}

fn wait_for(threads: [JoinHandle<()>; 2]) {
    for thread in threads {
        thread.join().expect("all hand-offs were made");
    }
}

/// Nanoseconds from one hand-off to the next.
fn hop_ns(places: Option<(&Arc<Shared>, u32)>) -> u64 {
    let places = places.map(|(shared, first)| (shared.clone(), first));
    wait_for(pair(WARM, places.clone()));
    let begin = Instant::now();
    wait_for(pair(HOPS, places));
    begin.elapsed().as_nanos() as u64 / HOPS
}

/// The name of the scheduler that this program loads, and nanoseconds from one hand-off to the next under it.
fn peer(program: &OsStr) -> (String, u64) {
    let mut child = Command::new(program).stdout(Stdio::null()).spawn().expect("the program starts");
    let state = || std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default();
    while state().trim() != "enabled" {
        assert!(matches!(child.try_wait(), Ok(None)), "the program has ended without a scheduler");
        thread::sleep(Duration::from_millis(10));
    }
    let name = sched_ext::present().unwrap_or_default();
    let ns = hop_ns(None);
    // SIGINT, at which it gives the machine its own scheduler back.
    process::signal(&mut child, 2);
    child.wait().expect("the program ends");
    (name, ns)
}

/// A place in this server of CPU 0.
fn member(server: u32) -> Member {
    Member {
        cpu: 0,
        server,
        level: 0,
        order: Order::Fifo,
        tie: 0,
        tells: 0,
        pool: 0,
        relative: 1_000_000_000,
        shift: 0,
        release: 0,
        deadline: 0,
    }
}

/// takt's scheduler with two servers, in force from now on. Their budgets are not used up. The first two places are in
/// the first server, the other two in both.
fn takt() -> Result<Scheduler, SchedExtError> {
    let second = 1_000_000_000;
    let terms =
        [1, 2].map(|level| Terms::new(Rule::Deferrable, (second / 1000 * 999, second), (level, Order::Fifo, 0)));
    let scheduler = Scheduler::load(&[(0, terms.to_vec())], &[], &[0, 0, 0, 1].map(member), &[])?;
    let now = Epoch::of_clock().now().as_ns();
    scheduler.shared().begin(now, now + 3_600 * second);
    Ok(scheduler)
}

/// Makes CPU 0 decide when a budget ends or comes, and after 1 ms at the latest, as the waking thread of a run does.
fn wake(shared: &Arc<Shared>, is_over: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (shared, is_over) = (shared.clone(), is_over.clone());
    thread::spawn(move || {
        let _class = ClassGuard::enter(&Class::Fifo { priority: 50 }).expect("root may");
        let clock = Epoch::of_clock();
        let mut woken = Time::MAX;
        while !is_over.load(Ordering::Acquire) {
            let now = clock.now();
            let (next, latest) = (Time::from_ns(shared.next(0, now.as_ns())), now.saturating_add(Span::from_ms(1)));
            let soonest = now.saturating_add(Span::from_us(50));
            let until = if next == woken { latest } else { next.min(latest).max(soonest) };
            if clock.sleep_until(until) && next <= until {
                woken = next;
            }
        }
    })
}

/// The payment of a server in each period, and the CPU times of the children of its thread, in nanoseconds.
struct Forked {
    paid: Vec<u64>,
    used: Vec<u64>,
}

/// A thread of a server starts a process and two threads, which want the CPU all the time. None of them joins.
fn fork() -> Result<Forked, SchedExtError> {
    let terms = Terms::new(Rule::Deferrable, (SHARED_BUDGET, SHARED_PERIOD), (0, Order::Fifo, 0));
    let place = Member { order: Order::Shared, ..member(0) };
    let mut scheduler = Scheduler::load(&[(0, vec![terms])], &[], &[place], &[])?;
    scheduler.attach()?;
    let (shared, is_over) = (scheduler.shared(), Arc::new(AtomicBool::new(false)));
    let waker = wake(&shared, &is_over);
    let (own, must_end) = (shared.clone(), is_over.clone());
    let run = move || -> Result<Vec<u64>, SchedExtError> {
        own.join(0)?;
        let spin = || {
            let must_end = must_end.clone();
            thread::spawn(move || {
                while !must_end.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                clock::thread_cpu().as_ns()
            })
        };
        let process = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh starts");
        let process = KillOnDrop(process);
        let threads = [spin(), spin()];
        let mut used: Vec<u64> = threads.into_iter().map(|thread| thread.join().expect("the thread ends")).collect();
        used.push(clock::cpu_of_process(process.0.id()).as_ns());
        Ok(used)
    };
    let now = Epoch::of_clock().now().as_ns();
    shared.begin(now, now + 1000 * SHARED_PERIOD);
    let thread = thread::spawn(run);
    // Half a period after a budget came. It is used up by then.
    thread::sleep(Duration::from_nanos(PERIODS as u64 * SHARED_PERIOD + SHARED_PERIOD / 2));
    is_over.store(true, Ordering::Release);
    shared.end(Epoch::of_clock().now().as_ns());
    let used = thread.join().expect("the thread ends")?;
    waker.join().expect("the thread ends");
    let mut paid: Vec<u64> = Vec::new();
    scheduler.take(&mut |event| match event.news {
        ServerNews::Replenished { .. } => paid.push(0),
        ServerNews::Paid { amount, .. } => {
            if let Some(last) = paid.last_mut() {
                *last += amount;
            }
        }
        ServerNews::Exhausted | ServerNews::Idle | ServerNews::Switched { .. } => {}
    });
    Ok(Forked { paid, used })
}

/// Events of a server before and after its terms changed, and the gaps of replacements, in nanoseconds.
#[derive(Default)]
struct Carried {
    switched: usize,
    budgets: [u64; 2],
    exhausted: [u64; 2],
    paid: [u64; 2],
    gaps: Vec<u64>,
}

impl Carried {
    /// As JSON.
    fn told(&self) -> String {
        format!(
            "{{\"replace_ns\":{},\"replace_max_ns\":{},\"switched\":{},\"budgets\":{:?},\"exhausted\":{:?},\
             \"paid_ns\":{:?}}}",
            self.gaps[REPLACEMENTS / 2],
            self.gaps[REPLACEMENTS - 1],
            self.switched,
            self.budgets,
            self.exhausted,
            self.paid,
        )
    }
}

/// A thread of a server replaces the scheduler again and again, in one budget. Then it uses up the rest of this budget.
/// Before the first replacement it asks for half of the budget from the next period on. `pool`: the place of the thread
/// is in a pool, though of one server.
fn carry(pool: bool) -> Result<Carried, SchedExtError> {
    let period = 10 * BUDGET;
    let with =
        |budget| Terms::new(Rule::Deferrable, (budget, period), (0, Order::Fifo, 0)).pooled(Some(0).filter(|_| pool));
    let pools = if pool { vec![vec![(0, 0)]] } else { Vec::new() };
    let place = Member { pool: u64::from(pool), ..member(0) };
    let mut scheduler = Scheduler::load(&[(0, vec![with(BUDGET)])], &pools, &[place], &[])?;
    scheduler.attach()?;
    let successors: Result<Vec<Successor>, SchedExtError> = (0..REPLACEMENTS).map(|_| scheduler.successor()).collect();
    let successors = successors?;
    let (shared, is_over) = (scheduler.shared(), Arc::new(AtomicBool::new(false)));
    let waker = wake(&shared, &is_over);
    let (own, must_end) = (shared.clone(), is_over.clone());
    let now = Epoch::of_clock().now().as_ns();
    let mut half = Some(with(BUDGET / 2).from(now + period / 2));
    let run = move || -> Result<(Scheduler, Vec<u64>), SchedExtError> {
        own.join(0)?;
        let mut gaps = Vec::new();
        for successor in successors {
            let begin = clock::thread_cpu();
            while clock::thread_cpu().saturating_sub(begin).as_ns() < BEFORE {}
            if let Some(half) = half.take() {
                scheduler.change(0, 0, half)?;
            }
            gaps.push(scheduler.replace(successor)?.as_ns());
        }
        while !must_end.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        Ok((scheduler, gaps))
    };
    shared.begin(now, now + 1000 * period);
    let thread = thread::spawn(run);
    // This thread is in no server, so it runs again when the first budget is used up. Half a period after the second
    // budget came, that is used up too.
    thread::sleep(Duration::from_nanos(period + period / 2));
    is_over.store(true, Ordering::Release);
    shared.end(Epoch::of_clock().now().as_ns());
    let (mut scheduler, gaps) = thread.join().expect("the thread ends")?;
    waker.join().expect("the thread ends");
    let mut carried = Carried { gaps, ..Carried::default() };
    scheduler.take(&mut |event| {
        let part = carried.switched.min(1);
        match event.news {
            ServerNews::Replenished { .. } => carried.budgets[part] += 1,
            ServerNews::Exhausted => carried.exhausted[part] += 1,
            ServerNews::Paid { amount, .. } => carried.paid[part] += amount,
            ServerNews::Switched { .. } => carried.switched += 1,
            ServerNews::Idle => {}
        }
    });
    carried.gaps.sort_unstable();
    Ok(carried)
}

fn main() -> Result<(), SchedExtError> {
    let fair = hop_ns(None);
    let mut fifo = Fifo::load()?;
    fifo.attach()?;
    let in_fifo = hop_ns(None);
    fifo.detach();
    let peer = std::env::args_os().nth(1).map_or_else(
        || "null".to_owned(),
        |program| {
            let (name, ns) = peer(&program);
            format!("{{\"name\":\"{name}\",\"ns\":{ns}}}")
        },
    );
    let begin = Instant::now();
    let mut own = takt()?;
    let load = begin.elapsed().as_nanos();
    own.attach()?;
    let mut served = Vec::new();
    let shared = own.shared();
    for first in [None, Some(0), Some(2)] {
        let before = shared.count(0).decisions;
        let ns = hop_ns(first.map(|first| (&shared, first)));
        served.push((ns, (shared.count(0).decisions - before) * 100 / (WARM + HOPS)));
    }
    own.take(&mut |_| {});
    own.detach();
    // The machine has work while schedulers change. All of it gets done.
    let mut gaps = Vec::new();
    for _ in 0..TAKEOVERS {
        let work = pair(WARM, None);
        fifo.attach()?;
        let begin = Instant::now();
        fifo.detach();
        own.attach()?;
        gaps.push(begin.elapsed().as_nanos() as u64);
        own.detach();
        wait_for(work);
    }
    let threads = std::fs::read_dir("/proc").map_or(0, |all| {
        let number = |name: &std::ffi::OsStr| name.to_string_lossy().parse::<u32>().is_ok();
        all.flatten().filter(|entry| number(&entry.file_name())).count()
    });
    gaps.sort_unstable();
    let (carried, in_pool) = (carry(false)?, carry(true)?);
    let forked = fork()?;
    println!(
        "{{\"fair_ns\":{fair},\"fifo_ns\":{in_fifo},\"peer\":{peer},\
         \"rest_ns\":{},\"one_server_ns\":{},\"two_servers_ns\":{},\
         \"decisions_per_100_hops\":[{},{},{}],\"takeover_ns\":{},\"takeover_max_ns\":{},\"load_ns\":{load},\
         \"processes\":{threads},\"budget_ns\":{BUDGET},\"carried\":{},\"carried_in_pool\":{},\
         \"shared_budget_ns\":{SHARED_BUDGET},\"shared_periods\":{PERIODS},\
         \"shared_paid_ns\":{:?},\"children_used_ns\":{:?}}}",
        served[0].0,
        served[1].0,
        served[2].0,
        served[0].1,
        served[1].1,
        served[2].1,
        gaps[TAKEOVERS / 2],
        gaps[TAKEOVERS - 1],
        carried.told(),
        in_pool.told(),
        forked.paid,
        forked.used,
    );
    Ok(())
}
