//! Where answers go: standard output or a file, buffered; a reader that left is no error.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::Failure;

/// `-` or a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target(pub(crate) String);

impl Target {
    /// Standard output.
    pub(crate) fn stdout() -> Target {
        Target("-".to_owned())
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.0 == "-"
    }

    /// How it is called in messages.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        if self.is_stdout() { Cow::Borrowed("standard output") } else { takt_model::file::one_line(&self.0) }
    }

    /// Whether it is the regular file that `path` leads to.
    pub(crate) fn is_file(&self, path: &str) -> bool {
        let place = |path: &str| {
            let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
            Some((metadata.dev(), metadata.ino()))
        };
        !self.is_stdout() && path != "-" && place(&self.0).is_some_and(|own| place(path) == Some(own))
    }

    /// Opens it for writing; a file is created, or replaced when the first bytes come: a verb that is refused leaves what was
    /// there.
    pub(crate) fn open(&self) -> Result<Box<dyn Write>, Failure> {
        if self.is_stdout() {
            return Ok(Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())));
        }
        match Fresh::open(Path::new(&self.0)) {
            Ok(fresh) => Ok(Box::new(fresh)),
            Err(error) => {
                let folder =
                    Path::new(&self.0).parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
                let hint = folder.map_or("", |_| "; its folder does not exist");
                Err(Failure::trouble(format_args!("cannot write {}: {error}{hint}", self.shown())))
            }
        }
    }

    /// Writes all of `bytes`.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = self.open()?;
        self.check(out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// Turns an error of writing into a failure.
    pub(crate) fn check(&self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_left()),
            Err(error) => Err(Failure::trouble(format_args!("cannot write {}: {error}", self.shown()))),
        }
    }
}

/// A buffered file whose old content goes when the first bytes are written to it: on a flush, or when the buffer is full.
/// Dropped before, it leaves the old file as it was, and no new one.
struct Fresh {
    file: File,
    buffer: Vec<u8>,
    /// The path, where the file is new and nothing has been written yet.
    unused: Option<PathBuf>,
    started: bool,
}

impl Fresh {
    const BUFFER: usize = 1 << 16;

    fn open(path: &Path) -> io::Result<Fresh> {
        let mut options = File::options();
        options.write(true);
        let (file, unused) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, Some(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.create(true).open(path)?, None),
            Err(error) => return Err(error),
        };
        Ok(Fresh { file, buffer: Vec::with_capacity(Fresh::BUFFER), unused, started: false })
    }

    fn drain(&mut self) -> io::Result<()> {
        if !self.started {
            (self.started, self.unused) = (true, None);
            // Devices and pipes have no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
        }
        let result = self.file.write_all(&self.buffer);
        self.buffer.clear();
        result
    }
}

impl Write for Fresh {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > Fresh::BUFFER {
            self.drain()?;
        }
        if bytes.len() > Fresh::BUFFER {
            self.file.write_all(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()?;
        self.file.flush()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if self.started {
            let _ = self.drain();
        } else if let Some(path) = &self.unused {
            let _ = fs::remove_file(path);
        }
    }
}

/// Prints an answer on standard output. A reader that left does not change the answer.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match Target::stdout().write(text.as_bytes()) {
        Err(failure) if failure.message.is_empty() => Ok(()),
        other => other,
    }
}

/// Prints an answer as one JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::trouble(format_args!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

/// A line for people, on standard error.
pub(crate) fn note(text: impl std::fmt::Display) {
    complain(&format!("takt: {text}"));
}

/// Lines for people, on standard error. Names of a bad file may hold anything; a terminal shall not obey them. Where
/// nobody can be told, the exit status still says it.
pub(crate) fn complain(text: &str) {
    let text = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Columns of the terminal on standard output; 100 where it is none.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))).unwrap_or(100)
}

/// Columns of standard output where it is a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    io::stdout().is_terminal().then(width)
}

/// Whether to colour standard output: on a terminal, unless NO_COLOR is set.
pub(crate) fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
