//! The thread that reads.

use crate::sched::{Class, ClassGuard};

/// Priority of a promoted reader: the least important of the real-time ones.
const PRIORITY: u8 = 1;

/// Gives the calling thread the least important SCHED_FIFO priority while the returned guard lives.
/// So a machine full of ordinary work does not keep the thread from emptying buffers. The thread
/// uses little CPU time at once, because [`super::Recorder::sweep`] sleeps in between. `None` if
/// the kernel refuses; the thread then keeps its class.
#[must_use]
pub fn promote() -> Option<ClassGuard> {
    ClassGuard::enter(&Class::Fifo { priority: PRIORITY }).ok()
}
