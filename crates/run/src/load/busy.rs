//! Work for a program's own handlers: uses CPU time on the calling thread.

use takt_linux::{Epoch, clock};
use takt_model::{Bytes, Span, Time};

use crate::work::{Work, Worked};

/// A load that uses CPU time as the jobs of `takt run` do. A copy works by itself with the
/// original's calibration.
#[derive(Clone)]
pub struct Busy {
    work: Work,
    epoch: Epoch,
}

impl Busy {
    /// Calibrates on the calling thread; `None` without memory.
    #[must_use]
    pub fn new() -> Option<Busy> {
        let mut work = Work::new(Bytes::default())?;
        work.calibrate();
        Some(Busy { work, epoch: Epoch::now_is_zero() })
    }

    /// Uses `demand` of the calling thread's CPU time, however often it is preempted. Returns
    /// `false` if `stop`, called every 20 us, ended the work earlier.
    pub fn work(&mut self, demand: Span, stop: impl Fn() -> bool) -> bool {
        let until = clock::thread_cpu().saturating_add(demand);
        let end = || if stop() { Time::ZERO } else { Time::MAX };
        self.work.until(until, self.epoch, end) == Worked::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_the_requested_cpu_time_unless_stopped() {
        let mut busy = Busy::new().unwrap();
        let before = clock::thread_cpu();
        assert!(busy.clone().work(Span::from_ms(1), || false));
        assert!(clock::thread_cpu() >= before.saturating_add(Span::from_ms(1)));
        assert!(!busy.work(Span::MAX, || true));
    }
}
