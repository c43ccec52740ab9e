//! Waiting on a word of memory, without a lock that a preempted thread could hold.

use std::sync::atomic::AtomicU32;

use takt_model::Time;

use crate::clock::Epoch;

/// Sleeps while `word` holds `expected`, at most until `until`. Returns at a wake-up, at the timeout, at a signal,
/// or at once where the word holds something else: the caller looks again.
pub fn wait(word: &AtomicU32, expected: u32, epoch: Epoch, until: Time) {
    let timeout = epoch.timespec(until);
    // SAFETY: `word` is a valid aligned u32 for the whole call and the kernel only reads it; `timeout` is a valid
    // timespec, absolute on CLOCK_MONOTONIC for FUTEX_WAIT_BITSET.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &raw const timeout,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

/// Wakes every thread that waits on `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: `word` is a valid aligned u32; waking touches no memory.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
    }
}
