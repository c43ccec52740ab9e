//! The kernel recorded by a thread of its own, beside what is measured meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use takt_linux::clock;
use takt_log::stats::Stats;
use takt_model::Span;

use super::live::{Recording, record};
use crate::args;
use crate::failure::Failure;
use crate::live::Live;

/// A recording that goes on. Dropped, it is ended.
pub(in crate::verbs) struct Beside {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(Stats, Recording), Failure>>>,
}

impl Beside {
    /// Records; what happens from the return on is recorded. With `live` others see the numbers meanwhile.
    pub(in crate::verbs) fn start(options: args::Observe, live: Option<Live>) -> Result<Beside, Failure> {
        let (begun, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (told, stop) = (Arc::clone(&begun), Arc::clone(&over));
        let work = move || {
            record(&options, live, &|| {
                // Asked for the first time right after recording began.
                told.store(true, Ordering::Release);
                stop.load(Ordering::Acquire).then(String::new)
            })
        };
        let thread = std::thread::Builder::new().name("takt-recorder".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| Failure::trouble(format_args!("cannot start a thread to record: {error}")))?;
        let mut beside = Beside { over, thread: Some(thread) };
        while !begun.load(Ordering::Acquire) && !beside.has_ended() {
            clock::pause(Span::from_ms(2));
        }
        if beside.has_ended() {
            // It could not begin, or not go on: the reason.
            beside.end()?;
        }
        Ok(beside)
    }

    pub(in crate::verbs) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(in crate::verbs) fn finish(mut self) -> Result<(Stats, Recording), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(Stats, Recording), Failure> {
        self.over.store(true, Ordering::Release);
        let joined = self.thread.take().map(JoinHandle::join);
        let panicked = || Failure::trouble("the thread that records ended by a panic; this is a bug of takt");
        joined.and_then(Result::ok).unwrap_or_else(|| Err(panicked()))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.end();
        }
    }
}
