//! A simulation that a signal ends at once, however long it is. The simulator and a rehearsal do
//! not stop before their end. So the sink unwinds them from an event.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use takt_log::{Definition, Event, Sink};
use takt_model::Time;

use super::Failure;

pub(super) struct Interruptible<'a, S> {
    sink: &'a mut S,
    stopped: &'a dyn Fn() -> bool,
}

struct Stopped;

/// Calls `run` with a sink that passes events on to `sink`. Fails once `stopped` says so.
pub(super) fn interruptible<S: Sink, T>(
    stopped: &dyn Fn() -> bool,
    sink: &mut S,
    run: impl FnOnce(&mut Interruptible<'_, S>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut sink = Interruptible { sink, stopped };
    // Nothing reads the state that the unwinding leaves behind.
    catch_unwind(AssertUnwindSafe(|| run(&mut sink))).unwrap_or_else(|why| match why.downcast::<Stopped>() {
        Ok(_) => Err(Failure::cannot("interrupted")),
        Err(other) => resume_unwind(other),
    })
}

impl<S: Sink> Sink for Interruptible<'_, S> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if (self.stopped)() {
            // `resume_unwind` prints no message, since this is no panic.
            resume_unwind(Box::new(Stopped));
        }
        self.sink.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.sink.define(stream, now, definition);
    }

    fn wants_misses(&self) -> bool {
        self.sink.wants_misses()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use takt_model::Span;

    use super::super::{plan, simulate_plan, variants};
    use super::*;

    #[test]
    fn each_variant_stops_at_the_next_event() {
        for variant in variants() {
            let plan = plan(11, variant).unwrap();
            let mut events: Vec<(u32, Time, Event)> = Vec::new();
            let looks = Cell::new(0);
            let stopped = || looks.replace(looks.get() + 1) == 100;
            let ran = simulate_plan(&plan, variant, Span::from_s(600), 0, &stopped, &mut events);
            assert!(ran.unwrap_err().message.contains("interrupted"), "{}", variant.name());
            assert_eq!((looks.get(), events.len()), (101, 100), "{}", variant.name());
        }
    }
}
