//! The work of a job: CPU time and accesses to memory.
//!
//! A job works until the CPU time of its thread has advanced by the job's demand, so preemption
//! does not shorten the work. The loop walks through a working set, a cache line a step, and looks
//! at the clocks after at most [`CHUNK_NS`].

use takt_linux::{Epoch, clock};
use takt_model::{Bytes, Span, Time};

/// Longest work between two looks at the clocks, in nanoseconds. A job notices the end at most this
/// late.
const CHUNK_NS: u64 = 20_000;
/// CPU time for calibrating, in nanoseconds.
const CALIBRATION_NS: u64 = 500_000;
/// 64-bit words in a cache line.
const LINE: usize = 8;

/// A task's working set, and the speed at which this CPU walks through it.
#[derive(Clone)]
pub(crate) struct Work {
    set: Vec<u64>,
    position: usize,
    /// Steps per 1024 ns.
    speed: u64,
}

/// The reason why work ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Worked {
    /// The demand is met.
    Done,
    /// The end of the run came first.
    Stopped,
}

impl Work {
    /// A working set of `wss` bytes (at least a cache line), written once so that its pages exist;
    /// `None` without memory.
    pub(crate) fn new(wss: Bytes) -> Option<Work> {
        let words = usize::try_from(wss.get() / 8).ok()?.max(LINE);
        let mut set = Vec::new();
        set.try_reserve_exact(words).ok()?;
        set.resize(words, 1);
        Some(Work { set, position: 0, speed: 1 })
    }

    /// Measures the speed on this thread's CPU.
    pub(crate) fn calibrate(&mut self) {
        let start = clock::thread_cpu();
        let (mut steps, mut batch) = (0u64, 64u64);
        let mut used = 0;
        while used < CALIBRATION_NS {
            self.steps(batch);
            steps += batch;
            batch = (batch * 2).min(4096);
            used = clock::thread_cpu().saturating_sub(start).as_ns();
        }
        self.speed = (steps.saturating_mul(1024) / used.max(1)).max(1);
    }

    /// Continues the walk through the working set.
    #[inline(never)]
    fn steps(&mut self, steps: u64) {
        let mut position = self.position;
        let mut carry = 0u64;
        for _ in 0..steps {
            if position >= self.set.len() {
                position = 0;
            }
            if let Some(word) = self.set.get_mut(position) {
                carry = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(carry).rotate_left(7);
                *word = carry;
            }
            position += LINE;
        }
        self.position = position;
        std::hint::black_box(carry);
    }

    /// Works until the thread's CPU time is `until`, or until the run's time reaches `end`.
    #[inline]
    pub(crate) fn until(&mut self, until: Span, epoch: Epoch, end: impl Fn() -> Time) -> Worked {
        loop {
            let left = until.saturating_sub(clock::thread_cpu()).as_ns();
            if left == 0 {
                return Worked::Done;
            }
            if epoch.now() >= end() {
                return Worked::Stopped;
            }
            // The last chunk is a little short, so the demand is exceeded by at most one look at
            // the clock.
            let chunk = (left - left / 16).min(CHUNK_NS);
            self.steps((chunk.saturating_mul(self.speed) / 1024).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_meets_its_demand_in_cpu_time() {
        let mut work = Work::new(Bytes::new(64 * 1024)).unwrap();
        work.calibrate();
        let epoch = Epoch::now_is_zero();
        let until = clock::thread_cpu().saturating_add(Span::from_ms(2));
        assert_eq!(work.until(until, epoch, || Time::MAX), Worked::Done);
        assert!(clock::thread_cpu() >= until);
    }

    #[test]
    fn work_stops_at_the_end_of_the_run() {
        let mut work = Work::new(Bytes::default()).unwrap();
        assert_eq!(work.until(Span::MAX, Epoch::now_is_zero(), || Time::ZERO), Worked::Stopped);
    }
}
