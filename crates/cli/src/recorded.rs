//! Where the events of what really happens go: a log where one is wanted, and the statistics.

use std::io::Write;

use takt_log::stats::{Collector, Stats};
use takt_log::{Definition, Definitions, Event, Header, Sink, Writer};
use takt_model::{Span, Time};

use crate::failure::Failure;
use crate::live::Live;
use crate::output::Target;
use crate::verbs::write_failure;

/// Counts, and writes a log where one is wanted. What a crash can take from the log is what happened since the last flush.
pub(crate) struct Recorded<'a> {
    target: Option<&'a Target>,
    writer: Option<Writer<Box<dyn Write>>>,
    numbers: Numbers,
    every: Span,
    /// Up to where the log stands in its file, which is no log before the first event.
    flushed: Option<Time>,
}

/// Who counts.
enum Numbers {
    Own(Box<Collector>),
    /// Others look at them while they grow.
    Shared(Live),
}

impl<'a> Recorded<'a> {
    /// For a log with this head; it is flushed `every` so often, by the log's own time. With `live` others see the numbers meanwhile.
    pub(crate) fn start(
        target: Option<&'a Target>,
        header: &Header,
        definitions: &Definitions,
        every: Span,
        live: Option<Live>,
    ) -> Result<Recorded<'a>, Failure> {
        let writer = match target {
            Some(target) => {
                let writer = Writer::new(target.open()?, header, definitions);
                Some(writer.map_err(|error| write_failure(target, error))?)
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
        Ok(Recorded { target, writer, numbers, every, flushed: None })
    }

    /// Whether the log can no longer be written: nobody reads it any more, or the disk is full.
    pub(crate) fn has_failed(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.error().is_some())
    }

    /// Ends the log, and sums up.
    pub(crate) fn finish(self, end: Time) -> Result<Stats, Failure> {
        if let (Some(writer), Some(target)) = (self.writer, self.target) {
            writer.finish(end).map_err(|error| write_failure(target, error))?;
        }
        Ok(match self.numbers {
            Numbers::Own(collector) => collector.finish(end),
            Numbers::Shared(live) => live.finish(end),
        })
    }
}

impl Sink for Recorded<'_> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if let Some(writer) = &mut self.writer {
            if self.flushed.is_none_or(|flushed| now >= flushed.saturating_add(self.every)) {
                self.flushed = Some(now);
                // An error stays with the writer until it finishes.
                let _ = writer.flush();
            }
            writer.event(stream, now, event);
        }
        match &mut self.numbers {
            Numbers::Own(collector) => collector.event(stream, now, event),
            Numbers::Shared(live) => live.event(stream, now, event),
        }
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        if let Some(writer) = &mut self.writer {
            writer.define(stream, now, definition);
        }
        match &mut self.numbers {
            Numbers::Own(collector) => collector.define(stream, now, definition),
            Numbers::Shared(live) => live.define(stream, now, definition),
        }
    }
}
