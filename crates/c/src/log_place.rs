//! The place of a log that a program in C asks for.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::path::{PathBuf, absolute};

use takt_log::{Definitions, Header, Writer};

use crate::status::{CallError, takt_status};

pub(crate) fn unwritten(error: impl Display) -> CallError {
    CallError::new(takt_status::Unwritten, error)
}

pub(crate) type Log = Writer<BufWriter<File>>;

/// Bytes of a log that are written at once; also its head, but for that of a very large plan.
const BUFFER: usize = 1 << 16;

/// The place of a log. An existing file there stays until a dispatcher has started. A refused start
/// leaves nothing behind.
pub(crate) struct LogPlace {
    path: PathBuf,
    file: Option<File>,
    /// Whether nothing was there.
    is_new: bool,
}

impl LogPlace {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &str) -> Result<LogPlace, CallError> {
        LogPlace::open_file(path).map_err(|error| unwritten(format_args!("cannot write {path}: {error}")))
    }

    fn open_file(path: &str) -> io::Result<LogPlace> {
        let (place, mut options) = (absolute(path)?, File::options());
        let new = options.write(true).create_new(true).open(path);
        let is_new = new.is_ok();
        let file = match new {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                options.create_new(false).create(true).truncate(false).open(path)?
            }
            new => new?,
        };
        Ok(LogPlace { path: place, file: Some(file), is_new })
    }

    pub(crate) fn begin(self, header: &Header, definitions: &Definitions) -> Result<Log, CallError> {
        let file = self.take().map_err(unwritten)?;
        Writer::new(file, header, definitions).map_err(unwritten)
    }

    /// It is the log's now.
    fn take(mut self) -> io::Result<BufWriter<File>> {
        self.is_new = false;
        let file = self.file.take().ok_or(ErrorKind::NotFound)?;
        // Devices and pipes have no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(BufWriter::with_capacity(BUFFER, file))
    }
}

impl Drop for LogPlace {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
