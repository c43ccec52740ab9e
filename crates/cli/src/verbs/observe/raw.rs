//! `--raw`: what the kernel says, as a trace.dat.

use std::fs::File;

use takt_linux::tracing::{Recorder, threads};
use takt_trace::{DatHead, DatWriteError, DatWriter, Endian};

use crate::args;
use crate::failure::Failure;
use crate::input;

/// The file, where one is wanted. It can be read after each write, too.
pub(super) struct Raw {
    path: String,
    writer: Option<DatWriter<File>>,
    full: bool,
    failed: Option<DatWriteError>,
}

impl Raw {
    pub(super) fn open(options: &args::Observe, recorder: &Recorder) -> Result<Raw, Failure> {
        let path = options.raw.clone().unwrap_or_default();
        let mut raw = Raw { path, writer: None, full: false, failed: None };
        if options.raw.is_none() {
            return Ok(raw);
        }
        let about = recorder.descriptions();
        let threads = threads();
        let cpus = recorder.counts().map_err(|error| Failure::trouble(&error))?;
        let page = about.page_size().map_err(|error| Failure::cannot(&error))?;
        let head = DatHead {
            endian: Endian::NATIVE,
            word: size_of::<usize>() as u8,
            page: page as u32,
            header_page: &about.header_page,
            header_event: &about.header_event,
            own: about.own.iter().map(|event| event.text.as_str()).collect(),
            events: about.events.iter().map(|event| (event.system.as_str(), event.text.as_str())).collect(),
            threads: threads.iter().map(|thread| (thread.id, thread.name.as_str())).collect(),
            clock: &about.clock,
            cpus: cpus.iter().map(|count| count.cpu + 1).max().unwrap_or(1),
        };
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&raw.path);
        let file = file.map_err(|error| Failure::trouble(format_args!("cannot write {}: {error}", raw.shown())))?;
        let writer = DatWriter::new(file, &head, options.raw_limit.get());
        raw.writer = Some(writer.map_err(|error| raw.failure(&error))?);
        Ok(raw)
    }

    /// Adds pages; an error waits for [`Raw::finish`].
    pub(super) fn pages(&mut self, cpu: u32, pages: &[u8]) {
        if self.full || self.failed.is_some() {
            return;
        }
        match self.writer.as_mut().map(|writer| writer.pages(cpu, pages)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => self.full = true,
            Some(Err(error)) => self.failed = Some(error),
        }
    }

    pub(super) fn finish(mut self) -> Result<Option<String>, Failure> {
        if let Some(error) = &self.failed {
            return Err(self.failure(error));
        }
        let Some(writer) = self.writer.take() else { return Ok(None) };
        let (file, end) = writer.finish().map_err(|error| self.failure(&error))?;
        file.set_len(end).map_err(|error| self.failure(&error.into()))?;
        let shown = self.shown();
        Ok(self
            .full
            .then(|| format!("{shown} reached --raw-limit: only the log and the statistics have the later events")))
    }

    fn shown(&self) -> String {
        input::shown(&self.path).into_owned()
    }

    fn failure(&self, error: &DatWriteError) -> Failure {
        Failure::trouble(format_args!("cannot write {}: {error}", self.shown()))
    }
}
