//! Shared parts of benchmarks of hand-overs: quantiles, the pushing thread, and the bare futex for
//! comparison.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use takt_linux::{Class, ClassGuard, Epoch, futex, sched};
use takt_model::{Span, Time};

use super::rounds::median;

fn quantile(sorted: &[u64], percent: usize) -> f64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64)
}

/// Hand-overs in each round.
const HAND_OVERS: usize = 500;
/// The pause between two hand-overs.
const PAUSE: Span = Span::from_us(300);

/// Runs the pushing thread on the first CPU, below the handler's priority.
pub(crate) fn pusher<R: Send>(cpu: u32, body: impl FnOnce() -> R + Send) -> Option<R> {
    let permitted = || {
        sched::set_affinity(&[cpu]).ok()?;
        ClassGuard::enter(&Class::Fifo { priority: 10 }).ok()
    };
    std::thread::scope(|scope| scope.spawn(|| permitted().map(|_class| body())).join().ok().flatten())
}

/// The results of hand-overs.
pub(crate) struct Hands {
    /// In ns.
    times: Vec<u64>,
    /// Hand-overs without an answer within [`PATIENCE`].
    missed: usize,
}

/// Measures [`HAND_OVERS`] hand-overs: from before `push`, on this CPU, to the time that the other
/// side wrote into `seen`.
pub(crate) fn hand_overs(cpu: u32, clock: Epoch, seen: &AtomicU64, mut push: impl FnMut() + Send) -> Option<Hands> {
    pusher(cpu, move || {
        let mut hands = Hands { times: Vec::with_capacity(HAND_OVERS), missed: 0 };
        for _ in 0..HAND_OVERS {
            let _ = clock.sleep_until(clock.now().saturating_add(PAUSE));
            seen.store(0, Ordering::Release);
            let before = clock.now();
            push();
            match until_seen(seen, clock, PATIENCE) {
                Some(at) => hands.times.push(at.saturating_since(before).as_ns()),
                None => {
                    hands.missed += 1;
                    // A late answer must not count for the next hand-over.
                    let _ = until_seen(seen, clock, GIVEN_UP);
                }
            }
        }
        hands
    })
}

/// p50 and p99 of each round in ns, and the number of missed hand-overs.
#[derive(Default)]
pub(crate) struct Rounds {
    quantiles: Vec<(f64, f64)>,
    missed: usize,
}

impl Rounds {
    fn add(&mut self, mut hands: Hands) {
        hands.times.sort_unstable();
        self.quantiles.push((quantile(&hands.times, 50), quantile(&hands.times, 99)));
        self.missed += hands.missed;
    }
}

/// Runs both in turns; `None` if the kernel refused something.
pub(crate) fn in_turns(
    rounds: usize,
    ours: impl Fn() -> Option<Hands>,
    theirs: impl Fn() -> Option<Hands>,
) -> Option<(Rounds, Rounds)> {
    let mut all = (Rounds::default(), Rounds::default());
    for _ in 0..rounds {
        all.0.add(ours()?);
        all.1.add(theirs()?);
    }
    Some(all)
}

/// A row of a table: the medians over rounds in microseconds, and the medians of the rounds'
/// ratios.
pub(crate) fn row(name: &str, (ours, theirs): &(Rounds, Rounds)) {
    let all = ours.quantiles.len() * HAND_OVERS;
    if ours.missed.max(theirs.missed) * 100 > all {
        println!(
            "{name}: not measured: of {all} each, {} and {} took longer than {PATIENCE}",
            ours.missed, theirs.missed
        );
        return;
    }
    let of = |rounds: &Rounds, pick: fn(&(f64, f64)) -> f64| median(rounds.quantiles.iter().map(pick).collect()) / 1e3;
    let ratio = |pick: fn(&(f64, f64)) -> f64| {
        let pairs = ours.quantiles.iter().zip(&theirs.quantiles);
        median(pairs.map(|(ours, theirs)| pick(ours) / pick(theirs)).collect())
    };
    let missed = match (ours.missed, theirs.missed) {
        (0, 0) => String::new(),
        (ours, theirs) => format!("  (without {ours} and {theirs} beyond {PATIENCE})"),
    };
    println!(
        "{name:<38} {:>13.2} {:>8.2} {:>13.2} {:>8.2} {:>10.2} {:>6.2}{missed}",
        of(ours, |turn| turn.0),
        of(ours, |turn| turn.1),
        of(theirs, |turn| turn.0),
        of(theirs, |turn| turn.1),
        ratio(|turn| turn.0),
        ratio(|turn| turn.1),
    );
}

/// A longer time means that the machine paused.
const PATIENCE: Span = Span::from_ms(10);
/// After this time the hand-over is lost.
const GIVEN_UP: Span = Span::from_ms(500);

/// When the other side read the clock, if it did within `patience`.
fn until_seen(seen: &AtomicU64, epoch: Epoch, patience: Span) -> Option<Time> {
    let until = epoch.now().saturating_add(patience);
    loop {
        match seen.load(Ordering::Acquire) {
            0 if epoch.now() < until => std::hint::spin_loop(),
            0 => return None,
            at => return Some(Time::from_ns(at)),
        }
    }
}

/// A thread that waits for a futex, takes the data, and then reads the clock.
pub(crate) fn waiter(
    cpu: u32,
    word: &AtomicU32,
    stop: &AtomicBool,
    clock: Epoch,
    seen: &AtomicU64,
    mut take: impl FnMut(),
) {
    if sched::set_affinity(&[cpu]).is_err() {
        return;
    }
    let Ok(_class) = ClassGuard::enter(&Class::Fifo { priority: 47 }) else { return };
    let mut last = word.load(Ordering::Acquire);
    while !stop.load(Ordering::Acquire) {
        futex::wait(word, last, clock, clock.now().saturating_add(Span::from_ms(100)));
        let now = word.load(Ordering::Acquire);
        if now != last {
            last = now;
            take();
            seen.store(clock.now().as_ns(), Ordering::Release);
        }
    }
}

/// A futex without data.
pub(crate) fn bare(cpus: &[u32], to: usize) -> Option<Hands> {
    by_futex(cpus, to, || (), || ())
}

/// A futex, with data left for the other side before.
pub(crate) fn by_futex(
    cpus: &[u32],
    to: usize,
    put: impl Fn() + Send + Sync,
    take: impl FnMut() + Send,
) -> Option<Hands> {
    let (word, stop, seen) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let clock = Epoch::now_is_zero();
    let (first, target) = (*cpus.first()?, *cpus.get(to)?);
    std::thread::scope(|scope| {
        scope.spawn(|| waiter(target, &word, &stop, clock, &seen, take));
        takt_linux::clock::pause(Span::from_ms(5));
        let times = hand_overs(first, clock, &seen, || {
            put();
            word.fetch_add(1, Ordering::AcqRel);
            futex::wake_all(&word);
        });
        stop.store(true, Ordering::Release);
        word.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&word);
        times
    })
}
