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
    numbers: Numbers,
    /// For observed threads only: a recorded run has its own causes.
    causes: Option<Causes>,
    every: Span,
    /// The event before which it was flushed last.
    flushed: Time,
    /// Whether its file has all of it.
    is_flushed: bool,
    limit: Option<Limit>,
}

/// The most that a log takes.
struct Limit {
    bytes: u64,
    written: Rc<Cell<u64>>,
    /// The first event that found no room, nor does any later one.
    reached: Option<Time>,
}

impl Limit {
    /// The least that has room for some threads and their jobs.
    const LEAST: Bytes = Bytes::new(64 << 10);
    /// Most bytes of an event with its block.
    const EVENT: u64 = 256;
}

struct Counted<W> {
    out: W,
    written: Rc<Cell<u64>>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written.set(self.written.get().saturating_add(written as u64));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

enum Numbers {
    Own(Box<Collector>),
    /// Others look at them while they grow.
    Shared(Live),
}

impl<'a> Recorded<'a> {
    /// For a log with this head, which stands in its file at once; it is flushed `every` so often,
    /// by the log's own time. With `live` others see the numbers meanwhile.
    pub(crate) fn start(
        target: Option<&'a Target>,
        header: &Header,
        definitions: &Definitions,
        every: Span,
        live: Option<Live>,
    ) -> Result<Recorded<'a>, Failure> {
        Recorded::limited(target, None, header, definitions, every, live)
    }

    /// The same for a log that takes no more than `limit`.
    pub(crate) fn limited(
        target: Option<&'a Target>,
        limit: Option<Bytes>,
        header: &Header,
        definitions: &Definitions,
        every: Span,
        live: Option<Live>,
    ) -> Result<Recorded<'a>, Failure> {
        if let Some(limit) = limit.filter(|limit| *limit < Limit::LEAST) {
            return Err(Failure::input(format_args!(
                "--limit {limit} has no room for a log; give {} or more",
                Limit::LEAST
            )));
        }
        let written = Rc::new(Cell::new(0));
        let writer = match target {
            Some(target) => {
                let out: Box<dyn Write> = match limit {
                    Some(_) => Box::new(Counted { out: target.open_at_once()?, written: Rc::clone(&written) }),
                    None => target.open_at_once()?,
                };
                let mut writer = Writer::new(out, header, definitions).map_err(|error| target.log_failure(error))?;
                let _ = writer.flush();
                Some(writer)
            }
            None => None,
        };
        let numbers = match live {
            Some(live) => {
                live.begin(header, definitions);
                Numbers::Shared(live)
            }
            None => Numbers::Own(Box::new(Collector::for_log(header, definitions))),
        };
        let limit = limit.map(|limit| Limit { bytes: limit.get(), written, reached: None });
        let observed = header.back_end == BackEnd::Observe;
        let causes = observed.then(|| Causes::new(Rules::of(header, None), definitions));
        Ok(Recorded { target, writer, numbers, causes, every, flushed: Time::ZERO, is_flushed: true, limit })
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

    /// When the log came to its limit; what happened from then on is neither in it nor counted.
    pub(crate) fn full_at(&self) -> Option<Time> {
        self.limit.as_ref()?.reached
    }

    /// Whether there is room for an event, and `more` bytes with it.
    fn has_room(&mut self, now: Time, more: usize) -> bool {
        let (Some(limit), Some(writer)) = (&mut self.limit, &self.writer) else { return true };
        let taken = limit.written.get() + writer.pending() as u64 + more as u64 + Limit::EVENT;
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
        let mut stats = match self.numbers {
            Numbers::Own(collector) => collector.finish(end),
            Numbers::Shared(live) => live.finish(end),
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
        if now >= self.flushed.saturating_add(self.every) {
            self.flushed = now;
            self.flush();
        }
        if let Some(writer) = &mut self.writer {
            self.is_flushed = false;
            writer.event(stream, now, event);
        }
        if let Some(causes) = &mut self.causes {
            causes.event(stream, now, event);
        }
        match &mut self.numbers {
            Numbers::Own(collector) => collector.event(stream, now, event),
            Numbers::Shared(live) => live.event(stream, now, event),
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
        match &mut self.numbers {
            Numbers::Own(collector) => collector.define(stream, now, definition),
            Numbers::Shared(live) => live.define(stream, now, definition),
        }
    }
}
