//! Measures what the kernel and the machine take: how late timers are, pauses, and what a switch, a
//! move to another CPU, a release and a tick cost.
//!
//! Real-time threads, bounded in time: each sleeps in every period, and no CPU is kept busy for
//! more than 60 % of one. Nothing outlives the threads: their class and their CPUs end with them.

mod gaps;
mod switches;
mod timers;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use takt_model::{Bytes, Span, Time};
use thiserror::Error;

use super::Distribution;
use crate::clock::{self, Epoch};
use crate::process::{CAP_SYS_NICE, has_capability, rtprio_limit};
use crate::sched::{self, Class, ClassGuard, SchedError};

pub use gaps::{Gaps, Pause};

/// The SCHED_FIFO priority of the probe's threads, where it is allowed.
pub const PRIORITY: u8 = 80;
/// Longest that pauses are watched for.
pub const WATCH_MAX: Span = Span::from_s(10);
/// Longest that each of the costs is measured for.
pub const COST_MAX: Span = Span::from_s(2);
/// A working set larger than this counts as this: walking through it would keep a CPU busy.
pub const WORKING_SET_MAX: Bytes = Bytes::new(1 << 20);
/// Longest probe of timers.
pub const DURATION_MAX: Span = Span::from_s(3600);

/// The measurements to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeOptions {
    /// For how long timers are watched, up to [`DURATION_MAX`]; pauses as long, up to
    /// [`WATCH_MAX`]; each of the costs half as long, up to [`COST_MAX`].
    pub duration: Span,
    /// The memory that a job must fetch again after a change of CPU.
    pub working_set: Bytes,
}

/// A measurement, or the reason why there is none.
pub type Measured = Result<Distribution, String>;

/// All that the probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The options of this probe.
    pub options: ProbeOptions,
    /// The SCHED_FIFO priority of its threads.
    pub priority: u8,
    /// How late each CPU's timer woke a thread, while the CPU had nothing else of takt's to do.
    pub latency: Vec<(u32, Distribution)>,
    /// Pauses of threads that nothing should have stopped.
    pub gaps: Gaps,
    /// From a thread that gives up its CPU to the next one of the same process, less a system call.
    pub switch: Measured,
    /// Additional cost of a job that goes on with its working set on another CPU.
    pub migrate: Measured,
    /// The same with a working set of one cache line.
    pub migrate_small: Measured,
    /// From the last instruction of a busy thread to the first of the thread that a timer wakes up,
    /// less the median switch.
    pub release: Measured,
    /// Time that a tick takes from a busy thread.
    pub tick: Measured,
    /// Distance of ticks.
    pub tick_period: Option<Span>,
    /// From one look at the clock to the next, at least.
    pub clock: Span,
    /// How much time the hypervisor said it took from all CPUs meanwhile.
    pub steal: Option<Span>,
}

impl Probe {
    /// How late timers were, on any CPU.
    #[must_use]
    pub fn latency_of_all(&self) -> Distribution {
        let mut all = Distribution::new();
        self.latency.iter().for_each(|(_, of)| all.add(of));
        all
    }
}

/// Measures timers, pauses, switches, moves and releases. The caller should lock the memory of the
/// process first, so that page faults do not count ([`crate::memory::lock`]).
///
/// # Errors
/// Nothing can be measured if SCHED_FIFO is refused or if threads cannot be started.
pub fn probe(options: &ProbeOptions) -> Result<Probe, ProbeError> {
    let cpus = sched::affinity();
    let allowed = if has_capability(CAP_SYS_NICE) { u64::from(PRIORITY) } else { rtprio_limit() };
    // Two levels are needed. If none is allowed, the kernel's refusal names the cause.
    let priority = u8::try_from(allowed.clamp(2, u64::from(PRIORITY))).unwrap_or(PRIORITY);
    let crew = ProbeThreads { cpus: &cpus, priority };
    let duration = options.duration.min(DURATION_MAX);
    let half = Span::from_ns(duration.as_ns() / 2).min(COST_MAX);
    let steal = clock::steal();
    let latency = timers::latency(crew, duration)?;
    let gaps = gaps::watch(crew, duration.min(WATCH_MAX))?;
    let switch = switches::switch(crew, half)?;
    let released = timers::release(crew, half)?;
    let migrate = |bytes: Bytes| -> Result<Measured, ProbeError> {
        if cpus.len() < 2 {
            return Ok(Err("this process may use one CPU only".to_owned()));
        }
        Ok(filled(switches::migrate(crew, half, bytes)?, "no thread changed its CPU in time"))
    };
    let (migrate, migrate_small) = (migrate(options.working_set)?, migrate(Bytes::new(64))?);
    let steal = steal.and_then(|before| clock::steal()?.checked_sub(before));
    let release = match switch.quantile(500) {
        Some(median) => filled(released.less(median), "no timer came while the CPU was busy"),
        None => Err("it cannot be told apart from a switch, which was not measured".to_owned()),
    };
    let (clock, tick) = (gaps.clock, gaps.tick.clone());
    let (switch, tick_period) = (filled(switch, "the two threads did not meet"), clock::tick_period());
    let options = ProbeOptions { duration, ..*options };
    Ok(Probe {
        options,
        priority,
        latency,
        gaps,
        switch,
        migrate,
        migrate_small,
        release,
        tick,
        tick_period,
        clock,
        steal,
    })
}

fn filled(of: Distribution, why: &str) -> Measured {
    if of.count() == 0 { Err(why.to_owned()) } else { Ok(of) }
}

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No real-time class.
    #[error(transparent)]
    Sched(#[from] SchedError),
    /// No thread.
    #[error("a thread of the probe could not be made: {0}")]
    Thread(#[from] io::Error),
}

/// Between the making of threads and their first period, so that all are there.
const LEAD: Span = Span::from_ms(20);

/// The CPUs and the priority of the probe's threads.
#[derive(Clone, Copy)]
struct ProbeThreads<'a> {
    cpus: &'a [u32],
    priority: u8,
}

impl ProbeThreads<'_> {
    /// Binds the calling thread and makes it a real-time one, `less` levels below the probe's priority.
    fn enter(&self, cpu: u32, less: u8) -> Result<ClassGuard, SchedError> {
        sched::set_affinity(&[cpu])?;
        ClassGuard::enter(&Class::Fifo { priority: self.priority.saturating_sub(less).max(1) })
    }

    /// So many threads, each doing its part of the work; their results in order.
    fn work<T: Send>(
        &self,
        threads: usize,
        part: impl Fn(usize, Epoch) -> Result<T, SchedError> + Sync,
    ) -> Result<Vec<T>, ProbeError> {
        let epoch = Epoch::in_future(LEAD);
        let part = &part;
        thread::scope(|scope| {
            let spawn = |i| thread::Builder::new().spawn_scoped(scope, move || part(i, epoch));
            let handles: io::Result<Vec<_>> = (0..threads).map(spawn).collect();
            let join = |handle: thread::ScopedJoinHandle<'_, Result<T, SchedError>>| match handle.join() {
                Ok(result) => result.map_err(ProbeError::from),
                Err(_) => Err(ProbeError::Thread(io::Error::other("it panicked"))),
            };
            handles?.into_iter().map(join).collect()
        })
    }

    /// The CPU of a thread, where each CPU has `each` of them.
    fn cpu(&self, thread: usize, each: usize) -> u32 {
        self.cpus.get(thread / each).copied().unwrap_or(0)
    }
}

/// Periods that a thread sleeps through and works in.
struct Periods {
    epoch: Epoch,
    period: u64,
    offset: u64,
    next: u64,
    end: u64,
}

impl Periods {
    fn new(epoch: Epoch, period: Span, offset: Span, duration: Span) -> Periods {
        let (period, offset) = (period.as_ns(), offset.as_ns());
        Periods { epoch, period, offset, next: 0, end: (duration.as_ns() / period).max(1) }
    }

    /// Sleeps until `inside` after the start of the next period, and returns that start. `None`
    /// after the last period. A period whose time has passed already is skipped, so each returned
    /// period had a sleep.
    fn next(&mut self, inside: Span) -> Option<Time> {
        let now = self.epoch.now().as_ns();
        let first = now.saturating_sub(self.offset + inside.as_ns()).checked_div(self.period)?;
        let late = now > self.offset + inside.as_ns();
        self.next = self.next.max(if late { first + 1 } else { 0 });
        if self.next >= self.end {
            return None;
        }
        let base = Time::from_ns(self.next * self.period + self.offset);
        self.next += 1;
        let at = base.saturating_add(inside);
        while !self.epoch.sleep_until(at) {}
        Some(base)
    }
}

/// A time that threads of one CPU share, in nanoseconds.
#[derive(Default)]
struct Shared(AtomicU64);

impl Shared {
    fn set(&self, time: Time) {
        self.0.store(time.as_ns(), Ordering::Relaxed);
    }

    fn get(&self) -> Time {
        Time::from_ns(self.0.load(Ordering::Relaxed))
    }
}

/// From `earlier` to `later`; zero where that is the other way round.
fn between(earlier: Time, later: Time) -> Span {
    Span::from_ns(later.as_ns().saturating_sub(earlier.as_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_probe_measures_or_says_what_is_missing() {
        let options = ProbeOptions { duration: Span::from_ms(60), working_set: Bytes::new(16 * 1024) };
        match probe(&options) {
            Ok(probe) => {
                assert_eq!(probe.latency.len(), sched::affinity().len());
                assert!(probe.latency_of_all().count() > 0);
                assert!(probe.clock > Span::ZERO);
                assert_eq!(sched::current(), Class::Other, "the caller is as it was");
                println!(
                    "{:?} {:?}",
                    probe.switch.map(|of| of.quantile(500)),
                    probe.release.map(|of| of.quantile(500))
                );
            }
            Err(ProbeError::Sched(error)) => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn periods_are_slept_through_even_by_who_is_late() {
        // A pause of the machine may last beyond the end.
        let all_came = (0..100).any(|_| {
            let epoch = Epoch::now_is_zero();
            let mut periods = Periods::new(epoch, Span::from_ms(2), Span::ZERO, Span::from_ms(10));
            let Some(first) = periods.next(Span::from_us(500)) else { return false };
            let busy = first.saturating_add(Span::from_ms(3));
            while epoch.now() < busy {}
            let Some(next) = periods.next(Span::from_us(500)) else { return false };
            assert!(next >= first.saturating_add(Span::from_ms(4)), "{first} {next}");
            assert!(epoch.now() >= next.saturating_add(Span::from_us(500)));
            while periods.next(Span::ZERO).is_some() {}
            assert!(epoch.now() >= Time::from_ns(8_000_000));
            true
        });
        assert!(all_came);
    }
}
