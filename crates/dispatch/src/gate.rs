//! The start of threads: all wait until the last is ready, then begin at one time zero.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use takt_linux::{Epoch, futex};
use takt_model::Span;

/// Value of a gate's futex: the threads still wait.
pub const GO_WAIT: u32 = 0;
/// Value of a gate's futex: the threads run.
pub const GO_RUN: u32 = 1;
/// Value of a gate's futex: the threads end at once.
pub const GO_ABORT: u32 = 2;

/// How long after the end a thread may take to end. A thread looks at the clock every 20 us of its
/// CPU time, and a handler as often as it likes.
pub const GRACE: Span = Span::from_s(5);
/// How long a thread may take to get its CPUs and its class.
pub const READY_MAX: Duration = Duration::from_secs(30);
/// Bytes of a thread's stack.
pub const STACK_BYTES: usize = 256 * 1024;
/// Bytes of a stack that the thread touches before time zero.
pub const STACK_TOUCHED: usize = 64 * 1024;

/// Sleeps until all threads are ready, and returns time zero. `None` if the start was aborted.
pub fn wait_for_go(go: &AtomicU32, epoch: &OnceLock<Epoch>) -> Option<Epoch> {
    let patience = Epoch::now_is_zero();
    loop {
        match go.load(Ordering::Acquire) {
            GO_WAIT => futex::wait(go, GO_WAIT, patience, patience.now().saturating_add(Span::from_s(1))),
            GO_RUN => return epoch.get().copied(),
            _ => return None,
        }
    }
}
