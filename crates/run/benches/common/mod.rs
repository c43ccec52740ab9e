//! What benchmarks of hand-overs have in common: quantiles, who pushes, and the bare futex beside which they stand.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use takt_linux::{Class, ClassGuard, Epoch, futex, sched};
use takt_model::{Span, Time};

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn quantile(sorted: &[u64], percent: usize) -> f64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64)
}

/// Hand-overs of a round.
pub(crate) const HAND_OVERS: usize = 500;
/// From one to the next.
pub(crate) const PAUSE: Span = Span::from_us(300);

/// Who pushes, on the first CPU, below the handler's priority.
pub(crate) fn pusher<R: Send>(cpu: u32, body: impl FnOnce() -> R + Send) -> Option<R> {
    let permitted = || {
        sched::set_affinity(&[cpu]).ok()?;
        ClassGuard::enter(&Class::Fifo { priority: 10 }).ok()
    };
    std::thread::scope(|scope| scope.spawn(|| permitted().map(|_class| body())).join().ok().flatten())
}

/// How long each of [`HAND_OVERS`] took, in ns: from before `push`, on this CPU, to what the other side wrote into `seen`.
pub(crate) fn hand_overs(cpu: u32, clock: Epoch, seen: &AtomicU64, mut push: impl FnMut() + Send) -> Option<Vec<u64>> {
    pusher(cpu, move || {
        let mut times = Vec::with_capacity(HAND_OVERS);
        for _ in 0..HAND_OVERS {
            let _ = clock.sleep_until(clock.now().saturating_add(PAUSE));
            seen.store(0, Ordering::Release);
            let before = clock.now();
            push();
            times.push(until_seen(seen, clock).saturating_since(before).as_ns());
        }
        times
    })
}

/// p50 and p99 of each round, in ns; `None` where a round was not permitted.
pub(crate) type Rounds = Vec<(f64, f64)>;

/// Runs both in turns.
pub(crate) fn in_turns(
    rounds: usize,
    ours: impl Fn() -> Option<Vec<u64>>,
    theirs: impl Fn() -> Option<Vec<u64>>,
) -> Option<(Rounds, Rounds)> {
    let quantiles = |mut times: Vec<u64>| {
        times.sort_unstable();
        (quantile(&times, 50), quantile(&times, 99))
    };
    (0..rounds).map(|_| Some((quantiles(ours()?), quantiles(theirs()?)))).collect()
}

/// A row of a table: the medians over rounds in microseconds, and the medians of the rounds' ratios.
pub(crate) fn row(name: &str, (ours, theirs): &(Rounds, Rounds)) {
    let of = |all: &Rounds, pick: fn(&(f64, f64)) -> f64| median(all.iter().map(pick).collect()) / 1e3;
    let ratio = |pick: fn(&(f64, f64)) -> f64| {
        median(ours.iter().zip(theirs).map(|(ours, theirs)| pick(ours) / pick(theirs)).collect())
    };
    println!(
        "{name:<38} {:>13.2} {:>8.2} {:>13.2} {:>8.2} {:>10.2} {:>6.2}",
        of(ours, |turn| turn.0),
        of(ours, |turn| turn.1),
        of(theirs, |turn| turn.0),
        of(theirs, |turn| turn.1),
        ratio(|turn| turn.0),
        ratio(|turn| turn.1),
    );
}

/// When the other side looked at the clock; at most 10 ms are waited for it.
pub(crate) fn until_seen(seen: &AtomicU64, epoch: Epoch) -> Time {
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
pub(crate) fn bare(cpus: &[u32], to: usize) -> Option<Vec<u64>> {
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
        let times = hand_overs(first, clock, &seen, || {
            word.fetch_add(1, Ordering::AcqRel);
            futex::wake_all(&word);
        });
        stop.store(true, Ordering::Release);
        word.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&word);
        times
    })
}
