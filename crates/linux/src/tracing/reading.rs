//! The thread that reads.

use crate::sched::{Class, ClassGuard};

/// Priority of a promoted reader: the least important of the real-time ones.
const PRIORITY: u8 = 1;

/// Makes the calling thread more important than ordinary ones, while what is returned lives: the
/// least important SCHED_FIFO priority, so that a machine full of ordinary work does not keep it
/// from emptying buffers. It takes little of a CPU at a time, for [`super::Recorder::sweep`] sleeps
/// between. `None` where the kernel refuses: it remains as it was.
#[must_use]
pub fn promote() -> Option<ClassGuard> {
    ClassGuard::enter(&Class::Fifo { priority: PRIORITY }).ok()
}
