//! A recording in progress.

use takt_model::{Bytes, Span};

use super::counts::{self, CpuCount};
use super::describe::Descriptions;
use super::error::RecorderError;
use super::instance::Instance;
use super::options::Options;
use super::reader::{ReadResult, Reader};
use super::recover;
use super::tracefs::Tracefs;

/// A recording in progress. Dropping it ends the recording and removes all of it.
#[derive(Debug)]
pub struct Recorder {
    // Declared before the instance, which cannot be removed while its pages are held.
    pub(super) reader: Reader,
    instance: Instance,
    descriptions: Descriptions,
    missing: Vec<String>,
    buffer: Bytes,
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
        let tracefs = Tracefs::find()?;
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

    /// Adds threads to those whose events are recorded ([`Threads::These`](super::Threads::These)).
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
    pub fn sweep(&mut self, timeout: Span, take: &mut dyn FnMut(u32, &[u8])) -> Result<ReadResult, RecorderError> {
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
    pub(super) fn finish_timed(
        mut self,
        take: &mut dyn FnMut(u32, &[u8]),
    ) -> Result<(Vec<CpuCount>, Span), RecorderError> {
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
