//! Timers: their latency on an idle CPU, and the time they take from a busy thread.

use takt_model::Span;

use super::{Distribution, Periods, ProbeError, ProbeThreads, Shared, between};

const PERIOD: Span = Span::from_ms(1);

/// The lateness of absolute sleeps on all CPUs at once, with instants spread over the period.
pub(super) fn latency(crew: ProbeThreads<'_>, duration: Span) -> Result<Vec<(u32, Distribution)>, ProbeError> {
    let cpus = crew.cpus.len();
    crew.work(cpus, |i, epoch| {
        let cpu = crew.cpu(i, 1);
        let mut seen = Distribution::new();
        let _class = crew.enter(cpu, 0)?;
        let mut periods = Periods::new(epoch, PERIOD, apart(i, cpus), duration);
        while let Some(base) = periods.next(Span::ZERO) {
            seen.record(between(base, epoch.now()));
        }
        Ok((cpu, seen))
    })
}

/// The offset in the period at which the i-th of `of` threads begins.
pub(super) fn apart(i: usize, of: usize) -> Span {
    let (i, of) = (u64::try_from(i).unwrap_or(0), u64::try_from(of).unwrap_or(1).max(1));
    Span::from_ns(PERIOD.as_ns() * i / of)
}

/// How long a less important thread of each CPU is busy, and where in that the timer comes.
const BUSY: Span = Span::from_us(500);
const MIDDLE: Span = Span::from_us(250);

/// From the last clock reading of a busy thread to the first of the more important thread that a
/// timer wakes up: interrupt, wake-up and switch.
pub(super) fn release(crew: ProbeThreads<'_>, duration: Span) -> Result<Distribution, ProbeError> {
    let last: Vec<Shared> = crew.cpus.iter().map(|_| Shared::default()).collect();
    let parts = crew.work(crew.cpus.len() * 2, |i, epoch| {
        let mut seen = Distribution::new();
        let Some(last) = last.get(i / 2) else { return Ok(seen) };
        let wakes = i % 2 == 1;
        let _class = crew.enter(crew.cpu(i, 2), u8::from(!wakes))?;
        let mut periods = Periods::new(epoch, PERIOD, apart(i / 2, crew.cpus.len()), duration);
        if wakes {
            while let Some(base) = periods.next(MIDDLE) {
                let (now, left) = (epoch.now(), last.get());
                // The last stamp of the busy thread lies in this period.
                if left > base && left < now {
                    seen.record(between(left, now));
                }
            }
        } else {
            while let Some(base) = periods.next(Span::ZERO) {
                let end = base.saturating_add(BUSY);
                let mut now = epoch.now();
                while now < end {
                    last.set(now);
                    now = epoch.now();
                }
                last.set(takt_model::Time::ZERO);
            }
        }
        Ok(seen)
    })?;
    Ok(merged(&parts))
}

/// All together.
pub(super) fn merged(parts: &[Distribution]) -> Distribution {
    let mut all = Distribution::new();
    parts.iter().for_each(|part| all.add(part));
    all
}
