//! Sinks of live events: the statistics and, if wanted, a log.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use takt_log::causes::{Causes, Rules};
use takt_log::stats::{Collector, Stats};
use takt_log::{BackEnd, Definition, Definitions, Event, Header, Sink, Writer};
use takt_model::{Bytes, Span, Time};

use crate::failure::Failure;
use crate::live::Live;
use crate::output::Target;

/// Counts events, and writes a log if wanted. The head is written at once, so a log of a killed
/// writer can be read. A crash loses at most the events since the last flush.
pub(crate) struct Recorded<'a> {
    target: Option<&'a Target>,
    writer: Option<Writer<Box<dyn Write>>>,
    stats: StatsSink,
    /// For observed threads only: a recorded run has its own causes.
    causes: Option<Causes>,
    flush_period: Span,
    /// The time of the event before which the log was flushed last.
    last_flush: Time,
    /// Whether the file has the whole log.
    is_flushed: bool,
    limit: Option<Limit>,
}

/// A log's limit.
struct Limit {
    bytes: u64,
    written: Rc<Cell<u64>>,
    /// The time of the first event without room. No later event is recorded.
    reached: Option<Time>,
}

impl Limit {
    /// Room for some threads and their jobs.
    const MIN: Bytes = Bytes::new(64 << 10);
    /// Most bytes of an event with its block.
    const EVENT_MAX: u64 = 256;
}

struct CountingWriter<W> {
    out: W,
    written: Rc<Cell<u64>>,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written.set(self.written.get().saturating_add(written as u64));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

enum StatsSink {
    Own(Box<Collector>),
    /// Others read the statistics while they grow.
    Shared(Live),
}

impl<'a> Recorded<'a> {
    /// For a log with this head, which is written at once. The log is flushed once in `flush_period`
    /// of its own time. With `live` others can read the statistics meanwhile.
    pub(crate) fn start(
        target: Option<&'a Target>,
        header: &Header,
        definitions: &Definitions,
        flush_period: Span,
        live: Option<Live>,
    ) -> Result<Recorded<'a>, Failure> {
        Recorded::start_limited(target, None, header, definitions, flush_period, live)
    }

    /// Like [`Recorded::start`], for a log that takes no more than `limit`.
    pub(crate) fn start_limited(
        target: Option<&'a Target>,
        limit: Option<Bytes>,
        header: &Header,
        definitions: &Definitions,
        flush_period: Span,
        live: Option<Live>,
    ) -> Result<Recorded<'a>, Failure> {
        if let Some(limit) = limit.filter(|limit| *limit < Limit::MIN) {
            return Err(Failure::input(format_args!(
                "--limit {limit} has no room for a log; give {} or more",
                Limit::MIN
            )));
        }
        let written = Rc::new(Cell::new(0));
        let writer = match target {
            Some(target) => {
                let out: Box<dyn Write> = match limit {
                    Some(_) => Box::new(CountingWriter { out: target.open_at_once()?, written: Rc::clone(&written) }),
                    None => target.open_at_once()?,
                };
                let mut writer = Writer::new(out, header, definitions).map_err(|error| target.log_failure(error))?;
                let _ = writer.flush();
                Some(writer)
            }
            None => None,
        };
        let stats = match live {
            Some(live) => {
                live.begin(header, definitions);
                StatsSink::Shared(live)
            }
            None => StatsSink::Own(Box::new(Collector::for_log(header, definitions))),
        };
        let limit = limit.map(|limit| Limit { bytes: limit.get(), written, reached: None });
        let observed = header.back_end == BackEnd::Observe;
        let causes = observed.then(|| Causes::new(Rules::of(header, None), definitions));
        Ok(Recorded { target, writer, stats, causes, flush_period, last_flush: Time::ZERO, is_flushed: true, limit })
    }

    /// Writes the buffered events, for times without new events.
    pub(crate) fn flush(&mut self) {
        if self.is_flushed {
            return;
        }
        self.is_flushed = true;
        if let Some(writer) = &mut self.writer {
            // An error stays with the writer until it finishes.
            let _ = writer.flush();
        }
    }

    /// When the log reached its limit. Later events are neither recorded nor counted.
    pub(crate) fn full_at(&self) -> Option<Time> {
        self.limit.as_ref()?.reached
    }

    /// Whether there is room for an event, and `more` bytes with it.
    fn has_room(&mut self, now: Time, more: usize) -> bool {
        let (Some(limit), Some(writer)) = (&mut self.limit, &self.writer) else { return true };
        let taken = limit.written.get() + writer.pending() as u64 + more as u64 + Limit::EVENT_MAX;
        if limit.reached.is_none() && taken > limit.bytes {
            limit.reached = Some(now);
        }
        limit.reached.is_none()
    }

    /// Whether the log can no longer be written: nobody reads it any more, or the disk is full.
    pub(crate) fn has_failed(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.error().is_some())
    }

    pub(crate) fn finish(self, end: Time) -> Result<Stats, Failure> {
        let end = self.full_at().unwrap_or(end);
        if let (Some(writer), Some(target)) = (self.writer, self.target) {
            writer.finish(end).map_err(|error| target.log_failure(error))?;
        }
        let mut stats = match self.stats {
            StatsSink::Own(collector) => collector.finish(end),
            StatsSink::Shared(live) => live.finish(end),
        };
        if let Some(causes) = self.causes {
            stats.explain(causes.finish(end).as_ref());
        }
        Ok(stats)
    }
}

impl Sink for Recorded<'_> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if !self.has_room(now, 0) {
            return;
        }
        if now >= self.last_flush.saturating_add(self.flush_period) {
            self.last_flush = now;
            self.flush();
        }
        if let Some(writer) = &mut self.writer {
            self.is_flushed = false;
            writer.event(stream, now, event);
        }
        if let Some(causes) = &mut self.causes {
            causes.event(stream, now, event);
        }
        match &mut self.stats {
            StatsSink::Own(collector) => collector.event(stream, now, event),
            StatsSink::Shared(live) => live.event(stream, now, event),
        }
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        if self.limit.is_some() && !self.has_room(now, definition.encoded_len()) {
            return;
        }
        if let Some(writer) = &mut self.writer {
            self.is_flushed = false;
            writer.define(stream, now, definition);
        }
        if let Some(causes) = &mut self.causes {
            causes.define(stream, now, definition);
        }
        match &mut self.stats {
            StatsSink::Own(collector) => collector.define(stream, now, definition),
            StatsSink::Shared(live) => live.define(stream, now, definition),
        }
    }
}
