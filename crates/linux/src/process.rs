//! This process: identity, capabilities, resource limits.

use std::fs;

/// CAP_IPC_LOCK: memory may be locked past the limit.
pub const CAP_IPC_LOCK: u32 = 14;
/// CAP_SYS_NICE: scheduling classes and affinities of any kind.
pub const CAP_SYS_NICE: u32 = 23;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks after boot.
    pub start: u64,
}

impl Identity {
    /// The calling process; `None` where /proc does not tell.
    #[must_use]
    pub fn current() -> Option<Identity> {
        Self::of(std::process::id())
    }

    /// The process that has the number `pid` now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Identity { pid, start: start_ticks(&stat)? })
    }

    /// Whether the process is still there, dead but unburied ones excepted.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        start_ticks(&stat) == Some(self.start) && !matches!(state, Some('Z' | 'X') | None)
    }
}

/// Field 22; the name in parentheses may hold anything.
fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// This boot of the kernel.
#[must_use]
pub fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// The effective user.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the calling thread has the capability with this number in effect.
#[must_use]
pub fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status).is_some_and(|set| number < 64 && set >> number & 1 == 1)
}

fn effective(status: &str) -> Option<u64> {
    u64::from_str_radix(status.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim(), 16).ok()
}

/// The soft limit RLIMIT_MEMLOCK in bytes; `u64::MAX` is none.
#[must_use]
pub fn memlock_limit() -> u64 {
    limit(libc::RLIMIT_MEMLOCK)
}

/// The soft limit RLIMIT_RTPRIO: the most important SCHED_FIFO priority without CAP_SYS_NICE.
#[must_use]
pub fn rtprio_limit() -> u64 {
    limit(libc::RLIMIT_RTPRIO)
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let me = Identity::current().unwrap();
        assert!(me.is_alive());
        assert!(!Identity { start: me.start + 1, ..me }.is_alive(), "a later process with the same number");
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7";
        assert_eq!(start_ticks(stat), Some(12345));
    }

    #[test]
    fn capabilities_are_bits_of_the_effective_set() {
        assert_eq!(effective("CapPrm:\t0\nCapEff:\t0000000000800000\n"), Some(1 << CAP_SYS_NICE));
    }
}
