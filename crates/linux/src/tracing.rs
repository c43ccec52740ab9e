//! Records kernel events through a private instance of its tracer. The instance is read as raw
//! pages, and nothing of it stays afterwards.
//!
//! [`Recorder::start`] makes a folder below `instances/` of tracefs. This instance has its own ring
//! buffers, events, filters and clock, so nothing outside of the instance changes. A call of
//! [`Recorder::sweep`] hands over whole pages of the ring buffers, as the kernel wrote them. The
//! texts of [`Descriptions`] tell how to decode the pages (crate `takt-trace`). A [`CpuCount`]
//! counts the lost events of a CPU.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC (the tracer's clock `mono`). Invariants, each held by
//! tests/tracing.rs:
//! - An instance ends with its recorder, however the recorder ends (see [`Guard`]).
//! - No instance of another takt is removed.
//! - Memory in use: the kernel's buffers and one more buffer of a MiB.
//!
//! ```no_run
//! use takt_linux::tracing::{Options, Recorder};
//! use takt_model::Span;
//!
//! let mut recorder = Recorder::start(&Options::default())?;
//! let mut bytes = 0;
//! recorder.sweep(Span::from_ms(100), &mut |_cpu, pages| bytes += pages.len())?;
//! let counts = recorder.finish(&mut |_cpu, pages| bytes += pages.len())?;
//! assert!(counts.iter().all(|cpu| cpu.lost() == 0));
//! # Ok::<(), takt_linux::tracing::RecorderError>(())
//! ```

mod cost;
mod counts;
mod describe;
mod error;
mod events;
mod instance;
mod reader;
pub mod reading;
mod recover;
mod threads;
mod tracefs;

use takt_model::{Bytes, Span, Time};

use crate::clock;
use instance::Instance;
use reader::Reader;

pub use crate::guardian::{Guard, guardian};
pub use cost::{Cost, cost, handover_ns};
pub use counts::CpuCount;
pub use describe::{Descriptions, EventFormat, InterruptName, interrupts, softirqs};
pub use error::RecorderError;
pub use events::{Event, one_of};
pub use instance::threads_of;
pub(crate) use instance::{PREFIX, remove};
pub use recover::{Leftovers, recover};
pub use threads::{ThreadInfo, class_of, threads};
pub(crate) use tracefs::Tracefs;
pub use tracefs::instances;

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The events.
    pub events: Vec<Event>,
    /// The recorded threads: all, or some.
    pub threads: Threads,
    /// Ring buffer of each CPU; `None`: [`BUFFER`], or less if the machine has little memory.
    pub buffer: Option<Bytes>,
    /// The process that removes the instance when this process is killed.
    pub guard: Guard,
}

/// Scheduling and interrupts, of all threads.
impl Default for Options {
    fn default() -> Self {
        let events = [Event::scheduling(), Event::interrupts()].concat();
        Options { events, threads: Threads::All, buffer: None, guard: Guard::ThisProgram }
    }
}

/// Ring buffer of each CPU if [`Options::buffer`] is `None`. At 100 MB/s (1.5 million events per
/// second) this lasts a third of a second, during which the reader may be kept from its CPU.
pub const BUFFER: Bytes = Bytes::new(32 << 20);

/// The threads to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All threads.
    All,
    /// Events that concern these threads. Interrupts are recorded only where they interrupt one of
    /// them.
    These {
        /// Ids of threads (the kernel's pids), not of processes.
        ids: Vec<u32>,
        /// Also record threads and processes started by these threads.
        children: bool,
    },
}

/// A recording in progress. Dropping it ends the recording and removes all of it.
#[derive(Debug)]
pub struct Recorder {
    // Declared before the instance, which cannot be removed while its pages are held.
    reader: Reader,
    instance: Instance,
    descriptions: Descriptions,
    missing: Vec<String>,
    buffer: Bytes,
}

/// The result of one [`Recorder::sweep`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// Bytes of pages.
    pub bytes: u64,
    /// All events recorded before this time (CLOCK_MONOTONIC) have been handed over, except events
    /// that were half written at that moment. `None` if more was waiting than one sweep takes; the
    /// next sweep goes on.
    pub until: Option<Time>,
}

impl Recorder {
    /// Starts to record, after it has removed the leftovers of a killed recorder.
    ///
    /// # Errors
    /// The missing part and its remedy; nothing is left behind then.
    pub fn start(options: &Options) -> Result<Recorder, RecorderError> {
        let mut recorder = Self::prepare(options)?;
        recorder.resume()?;
        Ok(recorder)
    }

    /// Does all of [`Recorder::start`] except the last step: recording begins with
    /// [`Recorder::resume`].
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub fn prepare(options: &Options) -> Result<Recorder, RecorderError> {
        let tracefs = tracefs::Tracefs::find()?;
        recover::recover_at(&tracefs)?;
        let instance = Instance::create(tracefs, &options.guard)?;
        let (buffer, missing) = instance.configure(options)?;
        let descriptions = Descriptions::read(&instance, &options.events)?;
        let reader = Reader::open(&instance, descriptions.page_size()?, buffer)?;
        Ok(Recorder { reader, instance, descriptions, missing, buffer })
    }

    /// How to decode its pages.
    #[must_use]
    pub fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    /// Requested events that this kernel lacks: `system/name`.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The instance's name: `takt-`, the process's id and start time, a number.
    #[must_use]
    pub fn name(&self) -> &str {
        self.instance.name()
    }

    /// The ring buffer of each CPU.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.buffer
    }

    /// Adds threads to those whose events are recorded ([`Threads::These`]).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn add_threads(&mut self, ids: &[u32]) -> Result<(), RecorderError> {
        self.instance.add_threads(ids)
    }

    /// Resumes recording.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn resume(&mut self) -> Result<(), RecorderError> {
        self.instance.switch(true)
    }

    /// Stops recording. The recorded events stay for [`Recorder::sweep`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn stop(&mut self) -> Result<(), RecorderError> {
        self.instance.switch(false)
    }

    /// Waits at most `timeout`, then gives all waiting data to `take`: a CPU (the kernel's number)
    /// and one or more whole pages, in the order of writing. The wait is shorter if buffers fill or
    /// a signal comes. The last page of a CPU may be partly filled, as its head says.
    ///
    /// # Errors
    /// The kernel's refusal of a read.
    pub fn sweep(&mut self, timeout: Span, take: &mut dyn FnMut(u32, &[u8])) -> Result<Sweep, RecorderError> {
        self.reader.wait(timeout)?;
        self.reader.sweep(take)
    }

    /// Counts of events read, waiting and lost, by CPU.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn counts(&self) -> Result<Vec<CpuCount>, RecorderError> {
        self.reader.cpus().map(|cpu| counts::read(&self.instance, cpu)).collect()
    }

    /// CPU time spent on reading so far, without the time of `take`.
    #[must_use]
    pub fn reader_cpu(&self) -> Span {
        self.reader.cpu_time()
    }

    /// Stops, gives the rest to `take`, and removes the instance.
    ///
    /// # Errors
    /// The kernel's refusal to stop, to read, or to remove the instance.
    pub fn finish(self, take: &mut dyn FnMut(u32, &[u8])) -> Result<Vec<CpuCount>, RecorderError> {
        Ok(self.finish_timed(take)?.0)
    }

    /// [`Recorder::finish`], with the CPU time that all reading took.
    fn finish_timed(mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<(Vec<CpuCount>, Span), RecorderError> {
        self.stop()?;
        for _ in 0..SWEEPS_MAX {
            let sweep = self.reader.sweep(take)?;
            if sweep.bytes == 0 && sweep.until.is_some() {
                break;
            }
        }
        let counts = self.counts()?;
        let Recorder { reader, instance, .. } = self;
        let cpu_time = reader.cpu_time();
        drop(reader);
        instance.remove()?;
        Ok((counts, cpu_time))
    }
}

/// A stopped recording holds at most its buffers, which one sweep can take, and a page.
const SWEEPS_MAX: u32 = 16;

/// The present time of the tracer's clock.
#[must_use]
pub fn now() -> Time {
    Time::from_ns(clock::monotonic_ns())
}
