//! Progress on a terminal, silence in a pipe.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use takt_log::{Definition, Event, Sink};
use takt_model::{Span, Time};

/// Whether anybody watches: standard error is a terminal.
pub(crate) fn watched() -> bool {
    std::io::stderr().is_terminal()
}

/// A bar over `steps` steps of work called `what`; hidden where nobody watches.
pub(crate) fn bar(what: &str, steps: u64) -> ProgressBar {
    if !watched() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% ({eta} left)");
    let bar = ProgressBar::new(steps).with_message(what.to_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A sign of life while something takes its time, with how long it has taken; hidden where nobody watches.
pub(crate) fn spinner(what: String) -> ProgressBar {
    if !watched() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// Events between two looks at the bar: rare enough to cost nothing.
const EVENTS_BETWEEN: u32 = 1 << 16;

pub(crate) struct ProgressSink<S> {
    inner: S,
    bar: ProgressBar,
    since: u32,
}

impl<S> ProgressSink<S> {
    pub(crate) fn new(inner: S, duration: Span) -> ProgressSink<S> {
        ProgressSink { inner, bar: bar("simulating", duration.as_ns()), since: 0 }
    }

    pub(crate) fn finish(self) -> S {
        self.bar.finish_and_clear();
        self.inner
    }
}

impl<S: Sink> Sink for ProgressSink<S> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.since += 1;
        if self.since == EVENTS_BETWEEN {
            self.since = 0;
            self.bar.set_position(now.as_ns());
        }
        self.inner.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.inner.define(stream, now, definition);
    }

    fn wants_misses(&self) -> bool {
        self.inner.wants_misses()
    }
}
