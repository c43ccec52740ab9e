//! Translates the kernel's events into events of a run's threads.

use std::collections::VecDeque;

use takt_log::InterruptKind;
use takt_model::{CpuSet, Span, Time};

use crate::event::{Comm, EventKind, KernelEvent, Pid, SwitchOutState, Thread, Waking};

/// An event of a run's threads, or a loss of such events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunEvent {
    /// When.
    pub at: Time,
    /// The event.
    pub what: RunEventKind,
}

/// See [`RunEvent`]. `lane` is the thread's place in the list of the run's threads, `cpu` a model
/// CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEventKind {
    /// The thread is being woken.
    Woken {
        /// Which one.
        lane: usize,
    },
    /// The thread got a CPU.
    SwitchIn {
        /// Which one.
        lane: usize,
        /// Which CPU.
        cpu: u32,
    },
    /// The thread left its CPU.
    SwitchOut {
        /// Which one.
        lane: usize,
        /// Which CPU.
        cpu: u32,
        /// Why.
        why: SwitchOutReason,
    },
    /// The CPU went from a thread of the run to a thread of another program.
    OtherIn {
        /// Which CPU.
        cpu: u32,
        /// Which thread.
        thread: Thread,
    },
    /// The CPU goes from a thread of another program to a thread of the run, whose event follows.
    OtherOut {
        /// Which CPU.
        cpu: u32,
        /// Which thread.
        thread: Thread,
    },
    /// An interrupt's handler begins or ends while a thread of the run has the CPU.
    Interrupt {
        /// Which CPU.
        cpu: u32,
        /// Hard or soft.
        kind: InterruptKind,
        /// Its number.
        number: u32,
        /// The handler's name; empty where it ends.
        name: Comm,
        /// Whether it begins.
        begins: bool,
    },
    /// A hypervisor took the CPU for so long, within this time before.
    Stolen {
        /// Which CPU.
        cpu: u32,
        /// How long.
        span: Span,
        /// Within how much time before.
        within: Span,
    },
    /// Events were lost from here on. `count` is 0 if their number is unknown.
    LossBegins {
        /// How many.
        count: u64,
    },
    /// Events were lost up to here.
    LossEnds,
}

/// Takes events of the run's threads.
pub trait RunEventSink {
    /// The next event in the order of time. A late one is put behind the last.
    fn run_event(&mut self, event: RunEvent);
}

/// Puts an event behind the last. A late one, before `settled` or the last event, gets the earliest
/// time that is still possible.
pub(super) fn enqueue(queue: &mut VecDeque<RunEvent>, settled: Time, seen: RunEvent) {
    let last = queue.back().map_or(settled, |last| last.at);
    queue.push_back(RunEvent { at: seen.at.max(last), ..seen });
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchOutReason {
    /// It is ready, and another thread has its CPU.
    Taken,
    /// The thread is ready, but the kernel stopped it: its CPU runs no thread that may preempt it.
    Stopped,
    /// It sleeps, as its program says.
    Asleep,
    /// It waits within some work: for a page, a disk.
    Held,
    /// It has ended.
    Ended,
}

/// A thread of a run, and which lane it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Its id.
    pub id: Pid,
    /// Its place in the list of the run's threads.
    pub lane: usize,
    /// Of SCHED_DEADLINE.
    pub reserved: bool,
}

/// Translates the kernel's events into [`RunEvent`]s.
#[derive(Clone, Debug)]
pub struct Translator {
    threads: Vec<Watched>,
    cpus: Vec<u32>,
    /// When the last event of each CPU was, by the kernel's numbers.
    last: Vec<Time>,
}

impl Translator {
    /// For these threads; model CPU i is the i-th of `cpus`.
    #[must_use]
    pub fn new(threads: Vec<Watched>, cpus: &[u32]) -> Translator {
        Translator { threads, cpus: cpus.to_vec(), last: Vec::new() }
    }

    /// Appends the events of the run's threads that follow from an event. All from before `given`
    /// were appended earlier.
    pub fn translate(&mut self, event: &KernelEvent, given: Time, seen: &mut Vec<RunEvent>) {
        let at = event.time;
        match event.what {
            EventKind::Switch { prev, left, next } => self.switch(event, &prev, left, next, seen),
            EventKind::Wake { thread, waking: Waking::Begins, .. } => {
                if let Some(thread) = self.lane(thread.pid) {
                    seen.push(RunEvent { at, what: RunEventKind::Woken { lane: thread.lane } });
                }
            }
            EventKind::IrqEnter { irq, name } => self.interrupt(event, InterruptKind::Hard, irq, name, true, seen),
            EventKind::IrqExit { irq } => self.interrupt(event, InterruptKind::Hard, irq, Comm::NONE, false, seen),
            EventKind::SoftirqEnter { vec } => self.interrupt(event, InterruptKind::Soft, vec, Comm::NONE, true, seen),
            EventKind::SoftirqExit { vec } => self.interrupt(event, InterruptKind::Soft, vec, Comm::NONE, false, seen),
            EventKind::Lost { count } => {
                let before = self.last.get(event.cpu as usize).copied().unwrap_or_default();
                let begins = RunEventKind::LossBegins { count: count.unwrap_or(0) };
                seen.push(RunEvent { at: before.max(given).min(at), what: begins });
                seen.push(RunEvent { at, what: RunEventKind::LossEnds });
            }
            _ => {}
        }
        if let Some(last) = self.last.get_mut(event.cpu as usize) {
            *last = at;
        } else if event.cpu < CpuSet::CPUS_MAX {
            self.last.resize(event.cpu as usize, Time::ZERO);
            self.last.push(at);
        }
    }

    fn lane(&self, id: Pid) -> Option<Watched> {
        self.threads.iter().find(|thread| thread.id == id).copied()
    }

    fn switch(
        &mut self,
        event: &KernelEvent,
        prev: &Thread,
        left: SwitchOutState,
        next: Thread,
        seen: &mut Vec<RunEvent>,
    ) {
        let at = event.time;
        let cpu = model_cpu(&self.cpus, event.cpu);
        let from = self.lane(prev.pid);
        let ours = from.is_some();
        if let Some(thread) = from {
            let why = why(&thread, prev, left, &next);
            seen.push(RunEvent { at, what: RunEventKind::SwitchOut { lane: thread.lane, cpu, why } });
            if why == SwitchOutReason::Ended {
                // Another thread may get its number.
                self.threads.retain(|thread| thread.id != prev.pid);
            }
        }
        let what = match self.lane(next.pid) {
            Some(thread) => {
                if !ours {
                    seen.push(RunEvent { at, what: RunEventKind::OtherOut { cpu, thread: *prev } });
                }
                RunEventKind::SwitchIn { lane: thread.lane, cpu }
            }
            None => RunEventKind::OtherIn { cpu, thread: next },
        };
        seen.push(RunEvent { at, what });
    }

    fn interrupt(
        &self,
        event: &KernelEvent,
        kind: InterruptKind,
        number: u32,
        name: Comm,
        begins: bool,
        seen: &mut Vec<RunEvent>,
    ) {
        if self.lane(event.pid).is_none() {
            return;
        }
        let cpu = model_cpu(&self.cpus, event.cpu);
        seen.push(RunEvent { at: event.time, what: RunEventKind::Interrupt { cpu, kind, number, name, begins } });
    }
}

/// The model's number of a CPU of the kernel's.
#[must_use]
pub fn model_cpu(cpus: &[u32], kernel: u32) -> u32 {
    let position = cpus.iter().position(|cpu| *cpu == kernel);
    position.and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(0)
}

/// Why a thread left its CPU. A ready thread was forced to leave: its program never yields while it
/// works.
fn why(thread: &Watched, prev: &Thread, left: SwitchOutState, next: &Thread) -> SwitchOutReason {
    match left {
        SwitchOutState::Preempted | SwitchOutState::Ready => {
            let throttled = prev.is_real_time() && next.is_ordinary();
            if next.pid == 0 || throttled || (thread.reserved && next.is_below_deadline()) {
                SwitchOutReason::Stopped
            } else {
                SwitchOutReason::Taken
            }
        }
        SwitchOutState::Blocked => SwitchOutReason::Asleep,
        SwitchOutState::Held => SwitchOutReason::Held,
        SwitchOutState::Ended => SwitchOutReason::Ended,
    }
}

#[cfg(test)]
#[path = "run_event_tests.rs"]
mod tests;
