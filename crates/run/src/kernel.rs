//! The kernel's account of a run: a recording of scheduling events of the run's own threads. The
//! ordinary thread that takes their stamps reads the recording too.

use takt_dispatch::Recorded;
use takt_linux::tracing::{Event, Guard, Options, Recorder, RecorderError, Threads, now};
use takt_linux::{Epoch, clock};
use takt_model::{Bytes, Span, Task, Time};
use takt_trace::merge::{RunEvent, RunEventKind, RunEventSink, Translator, Watched, model_cpu};
use takt_trace::{Feed, FormatError};
use thiserror::Error;

/// The reason why the kernel's account cannot be recorded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The recorder's reason.
    #[error(transparent)]
    Recorder(#[from] RecorderError),
    /// An event description that cannot be decoded.
    #[error("takt cannot read this kernel's descriptions of its events: {0}")]
    Format(#[from] FormatError),
}

/// A recording in progress.
pub(crate) struct Kernel {
    /// `None` after a failed read.
    recorder: Option<Recorder>,
    feed: Feed,
    translator: Translator,
    steal: Steal,
    epoch: Option<Epoch>,
    /// All events before this time have been read. They are passed on at the next look, because an
    /// event of that moment may still have been incomplete.
    read: Time,
    /// All events before this time have been passed on.
    given: Time,
    failed: Option<RecorderError>,
}

/// Interval between two readings of the time that a hypervisor took.
const STEAL: Span = Span::from_ms(100);

/// CPU time that a hypervisor took.
#[derive(Default)]
struct Steal {
    cpus: Vec<u32>,
    /// Time of the last reading and the values, by the kernel's CPU.
    last: Option<(Time, Vec<(u32, Span)>)>,
    /// Read and not yet passed on.
    found: Vec<RunEvent>,
}

impl Steal {
    /// Reads the counters if the interval is over.
    fn look(&mut self, now: Time, at_once: bool) {
        if !at_once && self.last.as_ref().is_some_and(|(last, _)| now < last.saturating_add(STEAL)) {
            return;
        }
        let Some(taken) = clock::steal_by_cpu() else { return };
        if let Some((last, before)) = &self.last {
            let within = now.saturating_since(*last);
            for (cpu, span) in taken.iter().filter(|(cpu, _)| self.cpus.contains(cpu)) {
                let before = before.iter().find(|(other, _)| other == cpu).map_or(*span, |(_, span)| *span);
                let (cpu, span) = (model_cpu(&self.cpus, *cpu), span.saturating_sub(before));
                if !span.is_zero() {
                    self.found.push(RunEvent { at: now, what: RunEventKind::Stolen { cpu, span, within } });
                }
            }
        }
        self.last = Some((now, taken));
    }
}

impl Steal {
    /// The run ended at `end`, before the last reading: what was found then lies before the end.
    fn end_at(&mut self, end: Time) {
        for found in self.found.iter_mut().filter(|found| found.at > end) {
            let after = found.at.saturating_since(end);
            found.at = end;
            if let RunEventKind::Stolen { span, within, .. } = &mut found.what {
                *within = within.saturating_sub(after);
                *span = (*span).min(*within);
            }
        }
    }
}

pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) lost: u64,
    /// Switches that the kernel did not report.
    pub(crate) missing: u64,
    /// How often a thread of the run got a CPU.
    pub(crate) switches: u64,
    pub(crate) failed: Option<RecorderError>,
}

impl Outcome {
    /// The part that the run's summary shows.
    pub(crate) fn recorded(&self) -> Recorded {
        Recorded { events: self.events, lost: self.lost, missing: self.missing }
    }
}

impl Kernel {
    /// Makes the instance; nothing is recorded before [`Kernel::watch`].
    pub(crate) fn open(buffer: Bytes, guard: Guard) -> Result<Kernel, TraceError> {
        let mut events = ["sched_switch", "sched_waking"]
            .map(|name| Event { essential: true, ..Event::new("sched", name) })
            .to_vec();
        events.extend(Event::interrupts());
        let threads = Threads::These { ids: Vec::new(), children: false };
        let options = Options { events, threads, buffer: Some(buffer), guard };
        let recorder = Recorder::prepare(&options)?;
        let about = recorder.descriptions();
        let feed = Feed::described(&about.header_page, about.events.iter().map(|event| event.text.as_str()))?;
        Ok(Kernel {
            recorder: Some(recorder),
            feed,
            translator: Translator::new(Vec::new(), &[]),
            steal: Steal::default(),
            epoch: None,
            read: Time::ZERO,
            given: Time::ZERO,
            failed: None,
        })
    }

    /// Records these threads from here on; model CPU i is the i-th of `cpus`.
    pub(crate) fn watch(&mut self, threads: Vec<Watched>, cpus: &[u32]) -> Result<(), RecorderError> {
        let ids: Vec<u32> = threads.iter().map(|thread| thread.id).collect();
        if let Some(recorder) = &mut self.recorder {
            recorder.add_threads(&ids)?;
            recorder.resume()?;
        }
        self.translator = Translator::new(threads, cpus);
        self.steal.cpus = cpus.to_vec();
        self.read = now();
        self.given = self.read;
        self.steal.look(self.read, true);
        Ok(())
    }

    /// Sets time zero.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    /// Waits for at most `timeout`, and passes new events to the sink. Returns the time up to
    /// which the events are complete, on the run's clock.
    pub(crate) fn look(&mut self, timeout: Span, sink: &mut impl RunEventSink) -> Time {
        let Some(epoch) = self.epoch else { return Time::ZERO };
        let Some(recorder) = &mut self.recorder else {
            takt_linux::clock::pause(timeout);
            return epoch.at(now());
        };
        let feed = &mut self.feed;
        match recorder.sweep(timeout, &mut |cpu, pages| feed.pages(cpu, pages)) {
            Ok(sweep) => {
                let until = self.read;
                self.steal.look(now(), false);
                // An incomplete sweep gives no such time.
                self.read = sweep.until.unwrap_or(self.read);
                self.give(until, sink);
                epoch.at(until)
            }
            Err(error) => {
                self.fail(error, sink);
                epoch.at(self.given)
            }
        }
    }

    /// Ends the recording after all threads have ended: passes on the rest, and removes the
    /// instance. The run ended at `end`.
    pub(crate) fn finish(mut self, end: Time, sink: &mut impl RunEventSink) -> Outcome {
        let mut outcome = Outcome { events: 0, lost: 0, missing: 0, switches: 0, failed: None };
        if let Some(recorder) = self.recorder.take() {
            let feed = &mut self.feed;
            self.steal.look(now(), true);
            if let Some(epoch) = self.epoch {
                self.steal.end_at(epoch.monotonic(end));
            }
            match recorder.finish(&mut |cpu, pages| feed.pages(cpu, pages)) {
                Ok(counts) => {
                    outcome.events = counts.iter().map(|cpu| cpu.read).sum();
                    outcome.lost = counts.iter().map(takt_linux::tracing::CpuCount::lost).sum();
                    self.give(Time::MAX, sink);
                }
                Err(error) => self.fail(error, sink),
            }
        }
        outcome.failed = self.failed;
        outcome
    }

    /// Marks the account as unknown from here on.
    fn fail(&mut self, error: RecorderError, sink: &mut impl RunEventSink) {
        self.give(self.read, sink);
        if let Some(epoch) = self.epoch {
            sink.run_event(RunEvent { at: epoch.at(self.given), what: RunEventKind::LossBegins { count: 0 } });
        }
        (self.recorder, self.failed) = (None, Some(error));
    }

    /// Passes on the events before `until`.
    fn give(&mut self, until: Time, sink: &mut impl RunEventSink) {
        let Some(epoch) = self.epoch else { return };
        let (translator, given) = (&mut self.translator, self.given);
        let mut seen = Vec::new();
        self.feed.until(Some(until), |event| translator.translate(event, given, &mut seen));
        seen.extend(self.steal.found.extract_if(.., |found| found.at < until));
        // A gap begins before the event that reveals the gap.
        seen.sort_by_key(|seen| seen.at);
        for one in seen {
            sink.run_event(RunEvent { at: epoch.at(one.at), what: one.what });
        }
        self.given = until.max(self.given);
    }
}

/// Buffer for the events of four seconds, in case ordinary threads get no CPU that long. Each job
/// causes `events_per_job` events.
pub(crate) fn buffer(tasks: &[&Task], events_per_job: u64) -> Bytes {
    let jobs = tasks.iter().map(|task| 4_000_000_000 / task.period.as_ns().max(1)).fold(0, u64::saturating_add);
    buffer_of(jobs.saturating_mul(events_per_job))
}

/// Buffer for so many events of less than 80 bytes.
pub(crate) fn buffer_of(events: u64) -> Bytes {
    Bytes::new(events.saturating_mul(80).clamp(1 << 20, takt_linux::tracing::BUFFER.get()))
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
