//! This process: identity, capabilities, resource limits.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};

use takt_model::{Span, Time};

use crate::clock::{self, Epoch};

/// CAP_NET_ADMIN: network devices and their queueing disciplines.
pub const CAP_NET_ADMIN: u32 = 12;
/// CAP_NET_RAW: packets of one's own making.
pub const CAP_NET_RAW: u32 = 13;
/// CAP_IPC_LOCK: memory may be locked past the limit.
pub const CAP_IPC_LOCK: u32 = 14;
/// CAP_SYS_ADMIN: namespaces, mounts.
pub const CAP_SYS_ADMIN: u32 = 21;
/// CAP_SYS_NICE: scheduling classes and affinities of any kind.
pub const CAP_SYS_NICE: u32 = 23;
/// CAP_PERFMON: BPF programs that look into the kernel.
pub const CAP_PERFMON: u32 = 38;
/// CAP_BPF: BPF programs.
pub const CAP_BPF: u32 = 39;

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
        start_ticks(&stat) == Some(self.start) && has_not_ended(&stat)
    }
}

/// The process that started this one.
#[must_use]
pub fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Field 3, the state of a process or thread.
pub(crate) fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether the thread of this /proc/PID/stat has not ended. A zombie has.
pub(crate) fn has_not_ended(stat: &str) -> bool {
    !matches!(state(stat), Some('Z' | 'X') | None)
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

/// Whether this process may make files in a folder.
pub(crate) fn may_write(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    let asked = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) };
    if asked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the calling thread has the capability with this number in effect.
#[must_use]
pub fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
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

/// A child process; killed and waited for when dropped.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks a child process to end (SIGTERM), unless it has ended already.
pub fn terminate(child: &mut Child) {
    send(child, libc::SIGTERM);
}

/// How often is looked whether a child that was told to end has.
const LOOK: Span = Span::from_ms(20);

/// Asks a child process to end (SIGTERM), and kills it after `patience`. Returns its status if
/// known. Calls `meanwhile` between checks.
pub fn end(child: &mut Child, patience: Span, meanwhile: &mut dyn FnMut(&mut Child)) -> Option<ExitStatus> {
    terminate(child);
    let epoch = Epoch::now_is_zero();
    while epoch.now() < Time::ZERO.saturating_add(patience) {
        match child.try_wait() {
            Ok(None) => {}
            other => return other.ok().flatten(),
        }
        meanwhile(child);
        clock::pause(LOOK);
    }
    let _ = child.kill();
    child.wait().ok()
}

/// Random bytes that nobody can guess; `None` where the kernel gives none.
#[must_use]
pub fn random<const BYTES: usize>() -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    // SAFETY: `bytes` has `BYTES` bytes that the call may write.
    let given = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), BYTES, 0) };
    (usize::try_from(given) == Ok(BYTES)).then_some(bytes)
}

/// Sends a child process a signal, unless it has ended already.
pub fn signal(child: &mut Child, number: u8) {
    send(child, libc::c_int::from(number));
}

fn send(child: &mut Child, number: libc::c_int) {
    if matches!(child.try_wait(), Ok(None))
        && let Ok(pid) = libc::pid_t::try_from(child.id())
        && pid > 0
    {
        // SAFETY: kill passes no memory. The child has not been waited for, so the number is still its own.
        unsafe { libc::kill(pid, number) };
    }
}

/// Lets this process open as many files as its hard limit RLIMIT_NOFILE allows. Its soft limit is
/// 1024 on most systems, for programs that use select(2).
pub fn allow_most_files() {
    let now = limits(libc::RLIMIT_NOFILE);
    let most = libc::rlimit { rlim_cur: now.rlim_max, ..now };
    if now.rlim_cur < now.rlim_max {
        // SAFETY: `most` is valid for reading.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most) };
    }
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    limits(resource).rlim_cur
}

/// The soft and the hard limit.
fn limits(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limits` is valid for writing.
    unsafe { libc::getrlimit(resource, &raw mut limits) };
    limits
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
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }

    #[test]
    fn capabilities_are_bits_of_the_effective_set() {
        assert_eq!(effective("CapPrm:\t0\nCapEff:\t0000000000800000\n"), Some(1 << CAP_SYS_NICE));
    }
}
