//! The clocks: monotonic time counted from an epoch, CPU time of the calling thread, absolute sleeps.
//!
//! Unit: nanoseconds. CLOCK_MONOTONIC throughout, which is also the clock `mono` of the kernel's tracer.

use std::io;

use takt_model::{Span, Time};

use crate::thread::Tid;

/// Time zero of a run on CLOCK_MONOTONIC. Times of the run are counted from it.
///
/// ```
/// use takt_linux::Epoch;
/// use takt_model::Span;
/// let epoch = Epoch::in_future(Span::from_ms(2));
/// assert_eq!(epoch.now().as_ns(), 0, "time stands at zero before the epoch");
/// while !epoch.sleep_until(takt_model::Time::from_ns(1_000)) {}
/// assert!(epoch.now().as_ns() >= 1_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch {
    zero_ns: u64,
}

impl Epoch {
    /// Time zero is `delay` from now.
    #[must_use]
    pub fn in_future(delay: Span) -> Epoch {
        Epoch { zero_ns: read(libc::CLOCK_MONOTONIC).saturating_add(delay.as_ns()) }
    }

    /// Time zero is now.
    #[must_use]
    pub fn now_is_zero() -> Epoch {
        Self::in_future(Span::ZERO)
    }

    /// Time zero is this time of CLOCK_REALTIME, in nanoseconds since 1970. Later steps of that clock
    /// change nothing. `None` where it has passed, or is more than 2^63 ns ahead.
    #[must_use]
    pub fn at_realtime(at_ns: u64) -> Option<Epoch> {
        let now = read(libc::CLOCK_REALTIME);
        let zero_ns = read(libc::CLOCK_MONOTONIC).checked_add(at_ns.checked_sub(now)?)?;
        (zero_ns < u64::MAX / 2).then_some(Epoch { zero_ns })
    }

    /// The same for a time that has passed. `None` where it has not, or lies before the machine's start.
    #[must_use]
    pub fn since_realtime(at_ns: u64) -> Option<Epoch> {
        let elapsed = read(libc::CLOCK_REALTIME).checked_sub(at_ns)?;
        Some(Epoch { zero_ns: read(libc::CLOCK_MONOTONIC).checked_sub(elapsed)? })
    }

    /// Time zero of the clock itself.
    #[must_use]
    pub const fn of_clock() -> Epoch {
        Epoch { zero_ns: 0 }
    }

    /// The present time of the run; zero until the epoch has come.
    #[inline]
    #[must_use]
    pub fn now(self) -> Time {
        Time::from_ns(read(libc::CLOCK_MONOTONIC).saturating_sub(self.zero_ns))
    }

    /// A time of CLOCK_MONOTONIC as a time of the run; zero for what lies before the epoch.
    #[inline]
    #[must_use]
    pub fn at(self, monotonic: Time) -> Time {
        Time::from_ns(monotonic.as_ns().saturating_sub(self.zero_ns))
    }

    /// A time of the run as a time of CLOCK_MONOTONIC, the inverse of [`Epoch::at`].
    #[inline]
    #[must_use]
    pub fn monotonic(self, time: Time) -> Time {
        Time::from_ns(self.zero_ns.saturating_add(time.as_ns()))
    }

    /// Sleeps until `time`; `false` when a signal cut the sleep short. Never returns `true` early.
    ///
    /// The sleep is absolute, so a late call or a signal shifts nothing.
    #[must_use]
    pub fn sleep_until(self, time: Time) -> bool {
        let at = timespec(self.zero_ns.saturating_add(time.as_ns()));
        // SAFETY: `at` is a valid timespec for the whole call; with TIMER_ABSTIME the last argument may be null.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const at, std::ptr::null_mut())
        };
        result == 0
    }

    /// `time` as an absolute CLOCK_MONOTONIC timespec, for system calls with a timeout.
    pub(crate) fn timespec(self, time: Time) -> libc::timespec {
        timespec(self.zero_ns.saturating_add(time.as_ns()))
    }
}

/// CPU time that the calling thread has used so far, system calls included.
#[inline]
#[must_use]
pub fn thread_cpu() -> Span {
    Span::from_ns(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// CPU time that a thread of this process has used so far; zero where it has ended.
#[inline]
#[must_use]
pub fn cpu_of(thread: Tid) -> Span {
    // The kernel's clock of one thread, by its number (include/linux/posix-timers.h:
    // CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED).
    Span::from_ns(read((!thread.0) << 3 | 6))
}

/// CPU time that a process has used so far, with all its threads; zero where it has ended.
#[must_use]
pub fn cpu_of_process(pid: u32) -> Span {
    // The same numbering, without CPUCLOCK_PERTHREAD_MASK.
    Span::from_ns(read((!pid.cast_signed()) << 3 | 2))
}

/// The period of the kernel's ticks, which is the resolution of its coarse clocks; `None` where the
/// kernel does not tell.
#[must_use]
pub fn tick_period() -> Option<Span> {
    let mut each = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `each` is a valid timespec that the call may write.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut each) };
    let ns =
        u64::try_from(each.tv_sec).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::try_from(each.tv_nsec).ok()?)?;
    (result == 0 && ns > 0).then(|| Span::from_ns(ns))
}

/// Time that the hypervisor took from this machine's CPUs since it booted, over all CPUs, in
/// nanoseconds with the granularity of a clock tick; `None` where /proc/stat does not tell.
#[must_use]
pub fn steal() -> Option<Span> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    // SAFETY: sysconf has no preconditions.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|hz| *hz > 0)?;
    Some(Span::from_ns(steal_ticks(&stat)?.checked_mul(1_000_000_000)? / per_second))
}

/// The same of each CPU, by the kernel's number.
#[must_use]
pub fn steal_by_cpu() -> Option<Vec<(u32, Span)>> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    // SAFETY: sysconf has no preconditions.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|hz| *hz > 0)?;
    let span = |ticks: u64| Some(Span::from_ns(ticks.checked_mul(1_000_000_000)? / per_second));
    Some(steal_ticks_by_cpu(&stat).filter_map(|(cpu, ticks)| Some((cpu, span(ticks)?))).collect())
}

/// Field 8 of the lines of CPUs.
fn steal_ticks_by_cpu(stat: &str) -> impl Iterator<Item = (u32, u64)> + '_ {
    stat.lines().filter_map(|line| {
        // The line of all CPUs has no number.
        let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
        Some((cpu.parse().ok()?, fields.split_ascii_whitespace().nth(7)?.parse().ok()?))
    })
}

/// Field 8 of the first line.
fn steal_ticks(stat: &str) -> Option<u64> {
    stat.lines().find(|line| line.starts_with("cpu "))?.split_ascii_whitespace().nth(8)?.parse().ok()
}

/// Waits, off the CPU, for about `span`; a signal may cut it short.
pub fn pause(span: Span) {
    let _ = Epoch::now_is_zero().sleep_until(Time::ZERO.saturating_add(span));
}

/// CLOCK_MONOTONIC, in nanoseconds.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CLOCK_TAI, in nanoseconds: what PTP synchronises between machines, without leap seconds once its offset is set.
#[inline]
#[must_use]
pub fn tai_ns() -> u64 {
    read(libc::CLOCK_TAI)
}

/// CLOCK_REALTIME, in nanoseconds since 1970. It may be set back.
#[must_use]
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// A number that is equal in all processes that share a CLOCK_MONOTONIC, and very likely different
/// in others. It is made from the boot and the time namespace. `None` if the kernel reveals
/// neither, as without /proc.
#[must_use]
pub fn monotonic_id() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A kernel without time namespaces has only one.
    let space = std::fs::read_link("/proc/self/ns/time").map(|link| link.to_string_lossy().into_owned());
    id_of(&boot, &space.unwrap_or_default())
}

/// The uuid's halves and the namespace's inode.
fn id_of(boot: &str, space: &str) -> Option<u64> {
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?;
    let inode = space.trim_start_matches("time:[").trim_end_matches(']').parse::<u64>().unwrap_or(0);
    Some((boot as u64 ^ (boot >> 64) as u64).wrapping_add(inode)).filter(|id| *id != 0)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is valid for writing. All clocks that this file passes exist since Linux 3.10,
    // except those of threads and processes that have ended. If the call fails, `at` stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    (at.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(at.tv_nsec as u64)
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// The last OS error's number.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_sleeps_are_never_short() {
        let epoch = Epoch::now_is_zero();
        let until = Time::from_ns(2_000_000);
        while !epoch.sleep_until(until) {}
        assert!(epoch.now() >= until);
        let before = thread_cpu();
        let mut spun = 0u64;
        while thread_cpu() == before {
            spun += 1;
        }
        assert!(spun < u64::MAX && thread_cpu() > before);
    }

    #[test]
    fn an_epoch_can_be_an_instant_of_the_day() {
        let epoch = Epoch::at_realtime(realtime_ns() + 3_600_000_000_000).unwrap();
        assert_eq!(epoch.now(), Time::ZERO);
        let ahead = epoch.monotonic(Time::ZERO).as_ns() - monotonic_ns();
        assert!(ahead <= 3_600_000_000_000, "{ahead}");
        assert_eq!(Epoch::at_realtime(realtime_ns() - 1), None);
        assert_eq!(Epoch::at_realtime(u64::MAX), None);
        let past = Epoch::since_realtime(realtime_ns() - 1_000_000).unwrap();
        assert!(past.now() >= Time::from_ns(1_000_000), "{:?}", past.now());
        assert_eq!(Epoch::since_realtime(realtime_ns() + 1_000_000_000), None);
        assert_eq!(Epoch::since_realtime(0), None, "before the start of the machine");
    }

    #[test]
    fn processes_that_share_a_clock_have_its_number() {
        let boot = "00000000-0000-0001-0000-000000000002\n";
        assert_eq!(id_of(boot, ""), Some(3));
        assert_eq!(id_of(boot, "time:[4026531834]"), Some(4_026_531_837));
        assert_eq!(id_of("no uuid", ""), None);
        assert!(monotonic_id().is_none() || monotonic_id() == monotonic_id());
        assert!(tai_ns() >= realtime_ns().saturating_sub(1_000_000_000) && realtime_ns() > 0);
    }

    #[test]
    fn steal_is_the_eighth_field() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        // HZ of 100 to 1000, and what was configured where that is told.
        assert!(tick_period().is_none_or(|tick| tick >= Span::from_us(500) && tick <= Span::from_ms(50)));
        assert_eq!(steal_ticks(stat), Some(80));
        assert_eq!(steal_ticks("cpu 1 2 3"), None);
        let stat = format!("{stat}cpu12 1 1 1 1 1 1 1 9 1 1\ncpux 1\n");
        assert_eq!(steal_ticks_by_cpu(&stat.replace("cpu  ", "cpu ")).collect::<Vec<_>>(), [(0, 8), (12, 9)]);
    }
}
