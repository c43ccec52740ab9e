//! The kernel's limits on real-time work.

use takt_model::Span;

use crate::sysfs::number;

/// The kernel's limits on real-time work. If /proc lacks a value, the kernel's default stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `sched_rt_runtime_us`; -1: no limit, and SCHED_DEADLINE admits everything. Default 950000.
    pub rt_runtime_us: i64,
    /// `sched_rt_period_us`; default 1000000.
    pub rt_period_us: u64,
    /// Shortest SCHED_DEADLINE period; default 100 us.
    pub dl_period_min: Span,
    /// Longest SCHED_DEADLINE period; default 4.194304 s.
    pub dl_period_max: Span,
}

impl Limits {
    /// Reads them.
    #[must_use]
    pub fn read() -> Limits {
        Limits {
            rt_runtime_us: number("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or(950_000),
            rt_period_us: number("/proc/sys/kernel/sched_rt_period_us").unwrap_or(1_000_000),
            dl_period_min: Span::from_us(number("/proc/sys/kernel/sched_deadline_period_min_us").unwrap_or(100)),
            dl_period_max: Span::from_us(number("/proc/sys/kernel/sched_deadline_period_max_us").unwrap_or(1 << 22)),
        }
    }

    /// The share of each CPU for real-time threads, in percent, rounded down.
    #[must_use]
    pub fn rt_percent(&self) -> u64 {
        match u64::try_from(self.rt_runtime_us) {
            Ok(runtime) => (runtime.saturating_mul(100) / self.rt_period_us.max(1)).min(100),
            Err(_) => 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_real_time_threads_is_in_percent() {
        let limits = Limits { rt_runtime_us: 950_000, rt_period_us: 1_000_000, ..Limits::read() };
        assert_eq!((limits.rt_percent(), Limits { rt_runtime_us: -1, ..limits }.rt_percent()), (95, 100));
    }
}
