//! The target of answers: standard output or a file, buffered. A reader that left is no error.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use serde::Serialize;
use takt_linux::file::{name, nameless};
use takt_log::WriteError;

use crate::failure::Failure;

/// `-` or a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target(pub(crate) String);

impl Target {
    pub(crate) fn stdout() -> Target {
        Target("-".to_owned())
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.0 == "-"
    }

    pub(crate) fn shown(&self) -> Cow<'_, str> {
        if self.is_stdout() { Cow::Borrowed("standard output") } else { takt_model::file::one_line(&self.0) }
    }

    /// Whether it is the regular file that `path` leads to.
    pub(crate) fn is_file(&self, path: &str) -> bool {
        let device_and_inode = |path: &str| {
            let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
            Some((metadata.dev(), metadata.ino()))
        };
        !self.is_stdout()
            && path != "-"
            && device_and_inode(&self.0).is_some_and(|own| device_and_inode(path) == Some(own))
    }

    /// An error of writing a log here as a failure.
    pub(crate) fn log_failure(&self, error: WriteError) -> Failure {
        match error {
            WriteError::Io(error) => self.check(Err(error)).err().unwrap_or_else(Failure::reader_left),
            other => Failure::trouble(format_args!("{}: {other}", self.shown())),
        }
    }

    /// Opens the target for writing. A file is created or replaced at the first bytes, so a refused
    /// verb leaves the old file.
    pub(crate) fn open(&self) -> Result<Box<dyn Write>, Failure> {
        self.opened(false)
    }

    /// Like [`Target::open`], but the new file appears with all bytes up to the first flush, if the
    /// folder allows this. So a killed recorder leaves the old content or a log.
    pub(crate) fn open_at_once(&self) -> Result<Box<dyn Write>, Failure> {
        self.opened(true)
    }

    fn opened(&self, at_once: bool) -> Result<Box<dyn Write>, Failure> {
        if self.is_stdout() {
            return Ok(Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())));
        }
        match DeferredFile::open(Path::new(&self.0), at_once) {
            Ok(fresh) => Ok(Box::new(fresh)),
            Err(error) => {
                let folder =
                    Path::new(&self.0).parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
                let hint = folder.map_or("", |_| "; its folder does not exist");
                Err(Failure::trouble(format_args!("cannot write {}: {error}{hint}", self.shown())))
            }
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = self.open()?;
        self.check(out.write_all(bytes).and_then(|()| out.flush()))
    }

    pub(crate) fn check(&self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_left()),
            Err(error) => Err(Failure::trouble(format_args!("cannot write {}: {error}", self.shown()))),
        }
    }
}

/// A buffered file that changes at the first write only: on a flush, or with a full buffer. If it is
/// dropped before, the old file stays unchanged, and no new file appears.
struct DeferredFile {
    file: File,
    buffer: Vec<u8>,
    path: PathBuf,
    /// `None` after the first write.
    previous: Option<PreviousFile>,
    /// Whether the first write waits for the first flush.
    at_once: bool,
}

/// The file at the path until the first write.
#[derive(Clone, Copy)]
enum PreviousFile {
    /// Nothing: the new file has no name yet.
    Missing,
    /// The new file, empty: the file system supports no files without a name.
    Created,
    /// An old file, which is overwritten.
    Overwritten,
    /// An old file, which is replaced by a new one.
    Replaced,
}

impl DeferredFile {
    const BUFFER: usize = 1 << 16;

    fn open(path: &Path, at_once: bool) -> io::Result<DeferredFile> {
        let (file, previous) = Self::open_file(path, at_once)?;
        Ok(DeferredFile {
            file,
            buffer: Vec::with_capacity(DeferredFile::BUFFER),
            path: path.to_owned(),
            previous: Some(previous),
            at_once,
        })
    }

    fn open_file(path: &Path, at_once: bool) -> io::Result<(File, PreviousFile)> {
        let missing = fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if missing
            && !path.as_os_str().as_bytes().ends_with(b"/")
            && let Ok(file) = nameless(path.parent().unwrap_or(Path::new("")))
        {
            return Ok((file, PreviousFile::Missing));
        }
        let mut options = File::options();
        options.write(true);
        match options.clone().create_new(true).open(path) {
            Ok(file) => Ok((file, PreviousFile::Created)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let previous = if at_once { PreviousFile::Replaced } else { PreviousFile::Overwritten };
                Ok((options.create(true).open(path)?, previous))
            }
            Err(error) => Err(error),
        }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let result = match self.previous.take() {
            None => self.file.write_all(&self.buffer),
            Some(previous) => self.first_write(previous),
        };
        self.buffer.clear();
        result
    }

    fn first_write(&mut self, previous: PreviousFile) -> io::Result<()> {
        match previous {
            PreviousFile::Missing => {
                self.file.write_all(&self.buffer)?;
                if name(&self.file, &self.path).is_ok() {
                    return Ok(());
                }
                // By now another file has the name.
                self.file = File::options().write(true).create(true).truncate(false).open(&self.path)?;
            }
            PreviousFile::Replaced => {
                if let Some(file) = self.replaced() {
                    self.file = file;
                    return Ok(());
                }
            }
            PreviousFile::Created | PreviousFile::Overwritten => {}
        }
        // Devices and pipes have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(&self.buffer)
    }

    /// Replaces the old file by a new file of the same owner and rights, with these first bytes.
    /// `None`: the old file must be overwritten, since it has other names or is no regular file.
    fn replaced(&self) -> Option<File> {
        let about = self.file.metadata().ok().filter(|about| about.is_file() && about.nlink() == 1)?;
        let path = fs::canonicalize(&self.path).ok()?;
        let mut file = nameless(path.parent()?).ok()?;
        fchown(&file, Some(about.uid()), Some(about.gid())).ok()?;
        file.set_permissions(about.permissions()).ok()?;
        file.write_all(&self.buffer).ok()?;
        // Only a named file can be renamed, so the new file gets a temporary name.
        let mut temporary = path.file_name()?.to_owned();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(temporary);
        name(&file, &temporary).ok()?;
        if fs::rename(&temporary, &path).is_err() {
            let _ = fs::remove_file(&temporary);
            return None;
        }
        Some(file)
    }
}

impl Write for DeferredFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.at_once && self.previous.is_some() {
            self.buffer.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        if self.buffer.len() + bytes.len() > DeferredFile::BUFFER {
            self.write_buffer()?;
        }
        if bytes.len() > DeferredFile::BUFFER {
            self.file.write_all(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()?;
        self.file.flush()
    }
}

impl Drop for DeferredFile {
    fn drop(&mut self) {
        match self.previous {
            None => {
                let _ = self.write_buffer();
            }
            Some(PreviousFile::Created) => {
                let _ = fs::remove_file(&self.path);
            }
            Some(PreviousFile::Missing | PreviousFile::Overwritten | PreviousFile::Replaced) => {}
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

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::trouble(format_args!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

/// The answer in JSON of a verb that writes files and has nothing else to say.
pub(crate) fn print_files(files: &[impl Serialize]) -> Result<(), Failure> {
    print_json(&serde_json::json!({ "files": files }))
}

/// A line for people, on standard error.
pub(crate) fn note(text: impl std::fmt::Display) {
    complain(&format!("takt: {text}"));
}

/// Lines for people, on standard error. Names in a bad file may hold control characters; the
/// terminal must not obey them. If standard error is closed, the exit status still tells.
pub(crate) fn complain(text: &str) {
    let text = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Refuses to write JSON and something else to standard output.
pub(crate) fn only_one(json: bool, to_stdout: bool, what: &str) -> Result<(), Failure> {
    match json && to_stdout {
        true => Err(Failure::input(format_args!("--json and the {what} both want standard output; give -o FILE"))),
        false => Ok(()),
    }
}

/// A word for the shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+:@%,=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn target(path: &Path) -> Target {
        Target(path.to_string_lossy().into_owned())
    }

    /// At any time the path holds no file or the old file, and later a file that begins with the
    /// head.
    #[test]
    fn a_file_that_is_there_at_once_is_never_without_its_head() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        if nameless(folder.path()).is_err() {
            return println!("skipped: this file system has no files without a name");
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut looks = (0_u64, 0_u64);
                while !over.load(Ordering::Relaxed) {
                    match fs::read(&path) {
                        Ok(bytes) if bytes.starts_with(b"head") && bytes.contains(&b'!') => looks.1 += 1,
                        Ok(bytes) => assert_eq!(bytes, b"old", "neither the old one nor the new one"),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                    }
                    looks.0 += 1;
                }
                looks
            });
            for round in 0..400 {
                // An old one comes by a rename as well.
                let (gone, old) = (folder.path().join("gone"), folder.path().join("old"));
                if round % 2 == 0 {
                    fs::write(&old, "old").unwrap();
                    fs::rename(&old, &path).unwrap();
                } else if path.exists() {
                    fs::rename(&path, &gone).unwrap();
                }
                let mut out = target(&path).open_at_once().unwrap();
                // However long it is.
                let long = vec![b'.'; if round % 3 == 0 { 3 * DeferredFile::BUFFER } else { 3 }];
                let head = [b"head", long.as_slice(), b"!"].concat();
                out.write_all(b"head").and_then(|()| out.write_all(&long)).unwrap();
                out.write_all(b"!").and_then(|()| out.flush()).unwrap();
                assert_eq!(fs::read(&path).unwrap(), head);
                out.write_all(b", more").unwrap();
                drop(out);
                assert_eq!(fs::read(&path).unwrap(), [&head[..], b", more"].concat());
            }
            over.store(true, Ordering::Relaxed);
            let (all, new) = looks.join().unwrap();
            println!("{all} looks, {new} at a new one");
        });
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["gone", "log"], "nothing else stays");
    }

    #[test]
    fn a_replacement_keeps_the_permissions_and_links_of_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, other] = ["log", "link", "other"].map(|name| folder.path().join(name));
        let write = |path: &Path, text: &str| {
            let mut out = target(path).open_at_once().unwrap();
            out.write_all(text.as_bytes()).unwrap();
        };
        let write_and_flush = |path: &Path, text: &str| {
            let mut out = target(path).open_at_once().unwrap();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap();
        };
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("log", &link).unwrap();
        write_and_flush(&link, "a");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((text(&path).as_str(), fs::metadata(&path).unwrap().mode() & 0o777), ("a", 0o640));
        // A file of two names keeps both.
        fs::hard_link(&path, &other).unwrap();
        write_and_flush(&path, "b");
        assert_eq!((text(&path).as_str(), text(&other).as_str()), ("b", "b"));
        // Without a flush the file is never begun.
        write(&path, "c");
        assert_eq!(text(&path), "b");
        let missing = folder.path().join("missing");
        write(&missing, "c");
        assert!(!missing.exists());
    }
}
