//! An emulated device driver. A reader sends a request, the device works, and its driver's thread
//! is woken as by an interrupt. The driver's thread uses CPU time, and the reader goes on.
//!
//! There is one request at a time, as with a disk without a queue. Both threads wait on futexes,
//! with a timeout, and check for the end.

use std::sync::atomic::{AtomicU32, Ordering};

use takt_linux::{clock, futex};
use takt_model::Span;

use super::{LoadContext, NAP};

/// The connection between a reader and its driver.
#[derive(Debug, Default)]
pub struct Line {
    /// Interrupts raised so far.
    raised: AtomicU32,
    /// Interrupts served so far.
    served: AtomicU32,
    /// The reader sends no more requests.
    closed: AtomicU32,
}

/// Results of a driver's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Driver {
    /// Requests served.
    pub served: u64,
    /// CPU time of the thread.
    pub cpu: Span,
}

/// Serves interrupts of `line` until the end or the reader's last request. Number k costs `cost(k)`
/// of CPU time.
pub fn driver(context: &mut LoadContext, line: &Line, cost: impl Fn(u64) -> Span) -> Driver {
    let before = clock::thread_cpu();
    let mut number = 0u64;
    while !context.over() {
        let raised = line.raised.load(Ordering::Acquire);
        if raised == line.served.load(Ordering::Acquire) {
            if line.closed.load(Ordering::Acquire) != 0 {
                break;
            }
            futex::wait(&line.raised, raised, context.epoch, context.now().saturating_add(NAP).min(context.end()));
            continue;
        }
        if !context.work(cost(number)) {
            break;
        }
        number += 1;
        line.served.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&line.served);
    }
    Driver { served: number, cpu: clock::thread_cpu().saturating_sub(before) }
}

/// Results of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reader {
    /// Requests answered.
    pub read: u64,
    /// From the reader's start to its last answer.
    pub took: Span,
    /// CPU time of the thread.
    pub cpu: Span,
}

/// Sends `requests` one after another. Each takes the device the time `device`, the driver some CPU
/// time, and then this thread the CPU time `own`.
pub fn reader(context: &mut LoadContext, line: &Line, requests: u64, device: Span, own: Span) -> Reader {
    let (from, before) = (context.now(), clock::thread_cpu());
    let (mut read, mut last) = (0, from);
    while read < requests && context.sleep_until(context.now().saturating_add(device)) {
        let wanted = line.raised.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        futex::wake_all(&line.raised);
        if !answered(context, line, wanted) || !context.work(own) {
            break;
        }
        read += 1;
        last = context.now();
    }
    line.closed.store(1, Ordering::Release);
    // The driver waits on this count and checks it after a wake-up.
    futex::wake_all(&line.raised);
    Reader { read, took: last.saturating_since(from), cpu: clock::thread_cpu().saturating_sub(before) }
}

/// Waits until request `wanted` is served; `false` if the end comes first.
fn answered(context: &LoadContext, line: &Line, wanted: u32) -> bool {
    loop {
        let served = line.served.load(Ordering::Acquire);
        if served == wanted {
            return true;
        }
        if context.over() {
            return false;
        }
        futex::wait(&line.served, served, context.epoch, context.now().saturating_add(NAP).min(context.end()));
    }
}
