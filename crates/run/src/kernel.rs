//! The kernel's account of a run: a recording of its scheduler's events, of the run's own threads alone, read by the ordinary
//! thread that also takes their stamps.

use takt_linux::Epoch;
use takt_linux::tracing::{Event, Guard, Options, Recorder, RecorderError, Threads, now};
use takt_model::{Bytes, Span, Task, Time};
use takt_trace::{Feed, FormatError, KernelEvent, Left, Thread, Waking};
use thiserror::Error;

use crate::Recorded;
use crate::record::model_cpu;
use crate::witness::{Onlooker, Seen, What, Why};

/// Why the kernel's account is not to be had.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The recorder's reason.
    #[error(transparent)]
    Recorder(#[from] RecorderError),
    /// What cannot be decoded.
    #[error("this kernel describes its events in an unknown way: {0}")]
    Format(#[from] FormatError),
}

/// A recording that goes on.
pub(crate) struct Kernel {
    /// `None` once it could not be read any more.
    recorder: Option<Recorder>,
    feed: Feed,
    threads: Vec<Watched>,
    cpus: Vec<u32>,
    epoch: Option<Epoch>,
    /// All that was recorded before this time has been read: given out at the next look, for an event of that very moment may still have been in the making.
    read: Time,
    /// All that happened before this time has been given out.
    given: Time,
    /// When the last event of each CPU was, by the kernel's numbers.
    last: Vec<Time>,
    failed: Option<TraceError>,
}

/// A thread of the run, and which lane it is.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) id: u32,
    pub(crate) lane: usize,
    /// Of SCHED_DEADLINE.
    pub(crate) reserved: bool,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) lost: u64,
    /// Switches that were kept back.
    pub(crate) missing: u64,
    pub(crate) failed: Option<TraceError>,
}

impl Outcome {
    /// For those who asked for it.
    pub(crate) fn recorded(&self) -> Recorded {
        Recorded { events: self.events, lost: self.lost, missing: self.missing }
    }
}

impl Kernel {
    /// Makes the instance; nothing is recorded before [`Kernel::watch`].
    pub(crate) fn open(tasks: &[&Task], events_per_job: u64, guard: Guard) -> Result<Kernel, TraceError> {
        let events =
            ["sched_switch", "sched_waking"].map(|name| Event { essential: true, ..Event::new("sched", name) });
        let threads = Threads::These { ids: Vec::new(), children: false };
        let options = Options { events: events.to_vec(), threads, buffer: Some(buffer(tasks, events_per_job)), guard };
        let recorder = Recorder::prepare(&options)?;
        let about = recorder.descriptions();
        let feed = Feed::described(&about.header_page, about.events.iter().map(|event| event.text.as_str()))?;
        Ok(Kernel {
            recorder: Some(recorder),
            feed,
            threads: Vec::new(),
            cpus: Vec::new(),
            epoch: None,
            read: Time::ZERO,
            given: Time::ZERO,
            last: Vec::new(),
            failed: None,
        })
    }

    /// Records these threads from here on; model CPU i is the i-th of `cpus`.
    pub(crate) fn watch(&mut self, threads: Vec<Watched>, cpus: &[u32]) -> Result<(), TraceError> {
        let ids: Vec<u32> = threads.iter().map(|thread| thread.id).collect();
        if let Some(recorder) = &mut self.recorder {
            recorder.add_threads(&ids)?;
            recorder.resume()?;
        }
        (self.threads, self.cpus, self.read) = (threads, cpus.to_vec(), now());
        self.given = self.read;
        Ok(())
    }

    /// When time zero is.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    /// Waits for at most `timeout`, and tells the witness what has happened; up to when that is all, on the run's clock.
    pub(crate) fn look(&mut self, timeout: Span, witness: &mut impl Onlooker) -> Time {
        let Some(epoch) = self.epoch else { return Time::ZERO };
        let Some(recorder) = &mut self.recorder else {
            takt_linux::clock::pause(timeout);
            return epoch.at(now());
        };
        let feed = &mut self.feed;
        match recorder.sweep(timeout, &mut |cpu, pages| feed.pages(cpu, pages)) {
            Ok(sweep) => {
                let until = self.read;
                // A sweep that did not get to the end says nothing of the time.
                self.read = sweep.until.unwrap_or(self.read);
                self.give(until, witness);
                epoch.at(until)
            }
            Err(error) => {
                self.fail(error.into(), witness);
                epoch.at(self.given)
            }
        }
    }

    /// The threads are through: tells the witness the rest, and removes the instance.
    pub(crate) fn finish(mut self, witness: &mut impl Onlooker) -> Outcome {
        let mut outcome = Outcome { events: 0, lost: 0, missing: 0, failed: None };
        if let Some(recorder) = self.recorder.take() {
            let feed = &mut self.feed;
            match recorder.finish(&mut |cpu, pages| feed.pages(cpu, pages)) {
                Ok(counts) => {
                    outcome.events = counts.iter().map(|cpu| cpu.read).sum();
                    outcome.lost = counts.iter().map(takt_linux::tracing::CpuCount::lost).sum();
                    self.give(Time::MAX, witness);
                }
                Err(error) => self.fail(error.into(), witness),
            }
        }
        outcome.failed = self.failed;
        outcome
    }

    /// From here on nothing is known.
    fn fail(&mut self, error: TraceError, witness: &mut impl Onlooker) {
        self.give(self.read, witness);
        if let Some(epoch) = self.epoch {
            witness.see(Seen { at: epoch.at(self.given), what: What::Blind { count: 0 } });
        }
        (self.recorder, self.failed) = (None, Some(error));
    }

    /// Tells what happened before `until`.
    fn give(&mut self, until: Time, witness: &mut impl Onlooker) {
        let Some(epoch) = self.epoch else { return };
        let (threads, cpus, last, given) = (&mut self.threads, &self.cpus, &mut self.last, self.given);
        let mut seen = Vec::new();
        self.feed.until(Some(until), |event| see(event, threads, cpus, last, given, &mut seen));
        // Gaps begin before the event that tells of them.
        seen.sort_by_key(|seen| seen.at);
        for one in seen {
            witness.see(Seen { at: epoch.at(one.at), what: one.what });
        }
        self.given = until.max(self.given);
    }
}

/// What an event tells of the run's threads.
fn see(
    event: &KernelEvent,
    threads: &mut Vec<Watched>,
    cpus: &[u32],
    last: &mut Vec<Time>,
    given: Time,
    seen: &mut Vec<Seen>,
) {
    let lane = |threads: &[Watched], id: u32| threads.iter().find(|thread| thread.id == id).copied();
    let at = event.time;
    match event.what {
        takt_trace::What::Switch { prev, left, next } => {
            let cpu = model_cpu(cpus, event.cpu);
            let from = lane(threads, prev.pid);
            let ours = from.is_some();
            if let Some(thread) = from {
                let why = why(&thread, left, &next);
                seen.push(Seen { at, what: What::Out { lane: thread.lane, cpu, why } });
                if why == Why::Ended {
                    // Another thread may get its number.
                    threads.retain(|thread| thread.id != prev.pid);
                }
            }
            let what = match lane(threads, next.pid) {
                Some(thread) => {
                    if !ours {
                        seen.push(Seen { at, what: What::Gave { cpu, thread: prev } });
                    }
                    What::In { lane: thread.lane, cpu }
                }
                None => What::Other { cpu, thread: next },
            };
            seen.push(Seen { at, what });
        }
        takt_trace::What::Wake { thread, waking: Waking::Begins, .. } => {
            if let Some(thread) = lane(threads, thread.pid) {
                seen.push(Seen { at, what: What::Woken { lane: thread.lane } });
            }
        }
        takt_trace::What::Lost { count } => {
            let before = last.get(event.cpu as usize).copied().unwrap_or_default();
            seen.push(Seen { at: before.max(given).min(at), what: What::Blind { count: count.unwrap_or(0) } });
            seen.push(Seen { at, what: What::Sighted });
        }
        _ => {}
    }
    if let Some(last) = last.get_mut(event.cpu as usize) {
        *last = at;
    } else if event.cpu < takt_model::CpuSet::CPUS_MAX {
        last.resize(event.cpu as usize, Time::ZERO);
        last.push(at);
    }
}

/// Why a thread left its CPU. What is ready when it leaves did not want to: its program never yields while it works.
fn why(thread: &Watched, left: Left, next: &Thread) -> Why {
    match left {
        Left::Preempted | Left::Ready => {
            if next.pid == 0 || (thread.reserved && next.is_below_deadline()) {
                Why::Stopped
            } else {
                Why::Taken
            }
        }
        Left::Blocked => Why::Asleep,
        Left::Held => Why::Held,
        Left::Ended => Why::Ended,
    }
}

/// Holds what the threads' jobs make the kernel record in four seconds, in case ordinary threads get no CPU that long: so many events a job, each less than 80 bytes.
fn buffer(tasks: &[&Task], events_per_job: u64) -> Bytes {
    let jobs = tasks.iter().map(|task| 4_000_000_000 / task.period.as_ns().max(1)).fold(0, u64::saturating_add);
    Bytes::new(jobs.saturating_mul(events_per_job * 80).clamp(1 << 20, takt_linux::tracing::BUFFER.get()))
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
