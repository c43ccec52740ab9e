//! Where answers go: standard output or a file, buffered; a reader that left is no error.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

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

    /// Opens it for writing; a file is created or replaced.
    pub(crate) fn open(&self) -> Result<Box<dyn Write>, Failure> {
        if self.is_stdout() {
            return Ok(Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())));
        }
        match File::create(Path::new(&self.0)) {
            Ok(file) => Ok(Box::new(BufWriter::with_capacity(1 << 16, file))),
            Err(error) => Err(Failure::trouble(format_args!("cannot write {}: {error}", self.0))),
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
            Err(error) if self.is_stdout() => Err(Failure::trouble(format_args!("cannot write: {error}"))),
            Err(error) => Err(Failure::trouble(format_args!("cannot write {}: {error}", self.0))),
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
    eprintln!("takt: {text}");
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
