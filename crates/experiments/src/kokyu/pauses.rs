//! Detects pauses of the machine. A thread that is more important than all measured ones wakes up
//! at even distances and records when it was late.
//!
//! A hypervisor takes a virtual machine's CPU away for up to 140 ms at a time. Only a clock shows
//! this to a program inside. Jobs of that time are late under any strategy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use takt_linux::Epoch;
use takt_linux::sched::{Class, ClassGuard, SchedError, set_affinity};
use takt_model::{Span, Time};

use crate::failure::Failure;

/// More important than a dispatcher's timers, and less than the interrupt threads of PREEMPT_RT.
const PRIORITY: u8 = 49;
/// The distance of two wake-ups.
const STEP: Span = Span::from_ms(1);
/// The least lateness of a pause. Timers of an idle machine are late by a tenth of it.
const LATE: Span = Span::from_us(500);
/// The most pauses of one watch. Further ones are not reported.
const PAUSES_MAX: usize = 4096;

pub(super) type Pause = (Time, Time);

/// A watch on a CPU, until it is stopped or dropped.
pub(super) struct Watch {
    epoch: Epoch,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Pause>, SchedError>>>,
}

impl Watch {
    pub(super) fn start(cpu: u32) -> Result<Watch, Failure> {
        let (epoch, over) = (Epoch::now_is_zero(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&over);
        let (ready, is_ready) = channel();
        let body = move || {
            set_affinity(&[cpu])?;
            let _class = ClassGuard::enter(&Class::Fifo { priority: PRIORITY })?;
            let _ = ready.send(());
            Ok(watch(epoch, &told))
        };
        let thread = std::thread::Builder::new().name("takt pauses".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::trouble(format_args!("cannot start a thread: {error}")))?;
        let watch = Watch { epoch, over, thread: Some(thread) };
        // The caller waits, because the watched threads could leave the watch no CPU before it has
        // its class.
        match is_ready.recv() {
            Ok(()) => Ok(watch),
            Err(_) => Err(watch.stop().err().unwrap_or_else(|| Failure::trouble("a watch ended at once"))),
        }
    }

    /// The time of the watch's clock. Pauses are in this time.
    pub(super) fn now(&self) -> Time {
        self.epoch.now()
    }

    pub(super) fn stop(mut self) -> Result<Vec<Pause>, Failure> {
        self.over.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(pauses))) => Ok(pauses),
            Some(Ok(Err(refused))) => Err(Failure::cannot(refused)),
            _ => Err(Failure::trouble("a thread ended by a panic; this is a bug of takt")),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(epoch: Epoch, over: &AtomicBool) -> Vec<Pause> {
    let mut pauses = Vec::with_capacity(PAUSES_MAX);
    let mut next = epoch.now();
    while !over.load(Ordering::Acquire) {
        next = next.saturating_add(STEP);
        while !epoch.sleep_until(next) {}
        let now = epoch.now();
        if now.saturating_since(next) > LATE {
            if pauses.len() < PAUSES_MAX {
                pauses.push((next, now));
            }
            next = now;
        }
    }
    pauses
}

/// Whether the machine paused at any time from `from` to `to`.
pub(super) fn paused(pauses: &[Pause], from: Time, to: Time) -> bool {
    pauses.iter().any(|(begin, end)| *begin <= to && *end >= from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_concerns_what_it_overlaps() {
        let at = Time::from_ns;
        let pauses = [(at(10), at(20)), (at(40), at(41))];
        assert!(paused(&pauses, at(0), at(10)) && paused(&pauses, at(15), at(16)) && paused(&pauses, at(20), at(30)));
        assert!(!paused(&pauses, at(21), at(39)) && !paused(&pauses, at(42), at(99)) && !paused(&[], at(0), at(99)));
    }
}
