//! Costs of a switch between threads on one CPU, and of a move of a thread to another CPU.

use std::sync::atomic::{AtomicU64, Ordering};

use takt_model::{Bytes, Span};

use super::timers::{apart, merged};
use super::{Distribution, Periods, ProbeError, ProbeThreads, Shared, between};
use crate::sched;
use crate::thread::{empty_system_call, yield_now};

/// Rounds in which two threads hand a CPU to each other for [`BUSY`].
const PERIOD: Span = Span::from_ms(1);
const BUSY: Span = Span::from_us(400);
/// Every so many switches a system call follows. The shortest of these calls is subtracted from all
/// switches.
const CALL_EACH: u32 = 16;

/// State shared by two threads of one CPU.
#[derive(Default)]
struct Pair {
    /// The yielding thread counts this up and stores the time.
    turn: AtomicU64,
    at: Shared,
}

/// From one thread's sched_yield to the other thread's continuation, minus the shortest system
/// call.
pub(super) fn switch(crew: ProbeThreads<'_>, duration: Span) -> Result<Distribution, ProbeError> {
    let pairs: Vec<Pair> = crew.cpus.iter().map(|_| Pair::default()).collect();
    let parts = crew.work(crew.cpus.len() * 2, |i, epoch| {
        let mut seen = Distribution::new();
        let mut call = Span::MAX;
        let Some(pair) = pairs.get(i / 2) else { return Ok((seen, call)) };
        let _class = crew.enter(crew.cpu(i, 2), 0)?;
        let mut periods = Periods::new(epoch, PERIOD, apart(i / 2, crew.cpus.len()), duration);
        while let Some(base) = periods.next(Span::ZERO) {
            let end = base.saturating_add(BUSY);
            let (mut now, mut calls) = (epoch.now(), 0u32);
            while now < end {
                let own = pair.turn.fetch_add(1, Ordering::Relaxed) + 1;
                pair.at.set(epoch.now());
                yield_now();
                now = epoch.now();
                // Another thread of the pair yielded to this one, and did so once.
                if pair.turn.load(Ordering::Relaxed) == own + 1 {
                    seen.record(between(pair.at.get(), now));
                }
                calls += 1;
                if calls.is_multiple_of(CALL_EACH) {
                    let before = epoch.now();
                    empty_system_call();
                    call = call.min(between(before, epoch.now()));
                }
            }
        }
        Ok((seen, call))
    })?;
    let parts: Vec<Distribution> = parts.iter().map(|(seen, call)| seen.less(*call)).collect();
    Ok(merged(&parts))
}

/// In each round a thread moves once. Less important busy threads on all CPUs keep the CPUs from
/// sleeping.
const ROUND: Span = Span::from_ms(2);
const AWAKE: Span = Span::from_ms(1);
const LEAD: Span = Span::from_us(100);

/// The cost of a move to another CPU for a thread with a working set. The time of the move and of
/// one walk over the set there, minus the median of the same without a move.
pub(super) fn migrate(crew: ProbeThreads<'_>, duration: Span, bytes: Bytes) -> Result<Distribution, ProbeError> {
    let cpus = crew.cpus.len();
    let parts = crew.work(cpus + 1, |i, epoch| {
        let (mut moved, mut stayed) = (Distribution::new(), Distribution::new());
        if i < cpus {
            let _class = crew.enter(crew.cpu(i, 1), 1)?;
            let mut periods = Periods::new(epoch, ROUND, Span::ZERO, duration);
            while let Some(base) = periods.next(Span::ZERO) {
                while epoch.now() < base.saturating_add(AWAKE) {}
            }
            return Ok(moved);
        }
        let mut set = WorkingSet::new(bytes);
        let _class = crew.enter(crew.cpu(0, 1), 0)?;
        let mut periods = Periods::new(epoch, ROUND, Span::ZERO, duration);
        let mut here = 0;
        while periods.next(LEAD).is_some() {
            let there = (here + 1) % cpus;
            set.walk();
            set.walk();
            let before = epoch.now();
            sched::set_affinity(&[crew.cpu(here, 1)])?;
            set.walk();
            stayed.record(between(before, epoch.now()));
            let before = epoch.now();
            sched::set_affinity(&[crew.cpu(there, 1)])?;
            set.walk();
            moved.record(between(before, epoch.now()));
            here = there;
        }
        Ok(stayed.quantile(500).map_or_else(Distribution::new, |median| moved.less(median)))
    })?;
    Ok(merged(&parts))
}

/// 64-bit words in a cache line.
const LINE: usize = 8;

/// Memory that is read and written, a word of each cache line.
struct WorkingSet(Vec<u64>);

impl WorkingSet {
    fn new(bytes: Bytes) -> WorkingSet {
        let words = usize::try_from(bytes.get().min(super::WORKING_SET_MAX.get()) / 8).unwrap_or(LINE).max(LINE);
        WorkingSet(vec![1; words])
    }

    #[inline(never)]
    fn walk(&mut self) {
        let mut carry = 0u64;
        for word in self.0.iter_mut().step_by(LINE) {
            carry = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(carry);
            *word = carry;
        }
        std::hint::black_box(carry);
    }
}
