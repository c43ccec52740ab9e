//! Locks memory, so that the real-time path has no page faults.

use std::io;
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use crate::process::{CAP_IPC_LOCK, has_capability, memlock_limit};

/// All present memory of the process is locked while at least one such guard lives. A child of
/// fork(2) does not inherit the lock, and inherited guards do nothing there. The child locks for
/// itself.
#[derive(Debug)]
pub struct Locked {
    process: u32,
}

/// The guards of this process: the kernel's lock is one for all of them.
struct Guards {
    count: usize,
    /// Memory was locked before the first guard, so it stays locked.
    keep: bool,
    /// The process of the guards. In a child of fork(2) they count for nobody.
    process: u32,
}

static GUARDS: Mutex<Guards> = Mutex::new(Guards { count: 0, keep: false, process: 0 });

/// Why memory could not be locked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LockError {
    /// RLIMIT_MEMLOCK is too small and CAP_IPC_LOCK is missing.
    #[error(
        "memory cannot be locked: the limit RLIMIT_MEMLOCK is {limit_bytes} bytes and the capability \
         CAP_IPC_LOCK is missing"
    )]
    Limit {
        /// The soft limit.
        limit_bytes: u64,
    },
    /// Something else.
    #[error("memory cannot be locked: {0}")]
    Other(String),
}

/// Locks all memory that the process has now, until the last guard is dropped.
///
/// Later allocations are not locked. So the limit must cover the real-time threads only, not the
/// recorder's buffers. Allocate first, then lock. To lock new memory, call this again while a guard
/// lives.
///
/// # Errors
/// The limit, or the kernel's refusal.
pub fn lock() -> Result<Locked, LockError> {
    let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if guards.process != process {
        *guards = Guards { count: 0, keep: false, process };
    }
    if guards.count == 0 {
        guards.keep = locked_kib().is_some_and(|kib| kib > 0);
    }
    // SAFETY: mlockall passes no memory; it only makes pages resident.
    if unsafe { libc::mlockall(libc::MCL_CURRENT) } == 0 {
        guards.count += 1;
        return Ok(Locked { process });
    }
    let error = io::Error::last_os_error();
    // A failed mlockall may have locked a part.
    guards.unlock();
    Err(match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN) if !has_capability(CAP_IPC_LOCK) => {
            LockError::Limit { limit_bytes: memlock_limit() }
        }
        _ => LockError::Other(error.to_string()),
    })
}

impl Guards {
    /// Unlocks all memory, unless another guard lives.
    fn unlock(&self) {
        if self.count == 0 && !self.keep {
            // SAFETY: munlockall passes no memory.
            unsafe { libc::munlockall() };
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
        guards.count = guards.count.saturating_sub(1);
        guards.unlock();
    }
}

/// The locked memory of this process, from /proc/self/status.
#[must_use]
pub fn locked_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmLck:"))?.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Memory that can be had without swapping, in bytes (MemAvailable); `None` where /proc/meminfo does not tell.
#[must_use]
pub fn available() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Touches `BYTES` of the calling thread's stack, so that no page fault comes later.
#[inline(never)]
pub fn prefault_stack<const BYTES: usize>() {
    let mut pages = [0u8; BYTES];
    for byte in pages.iter_mut().step_by(4096) {
        *byte = 1;
    }
    std::hint::black_box(&pages);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available_in("MemFree: 1 kB\nMemAvailable:   23324964 kB\n"), Some(23_884_763_136));
        assert_eq!(available_in("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn a_lock_goes_with_its_last_guard() {
        match (lock(), lock()) {
            (Ok(first), Ok(second)) => {
                drop(first);
                assert!(locked_kib().is_some_and(|kib| kib > 0));
                drop(second);
                assert_eq!(locked_kib(), Some(0));
            }
            (Err(error), _) | (_, Err(error)) => println!("skipped: {error}"),
        }
    }
}
