//! A private instance of the tracer: made, configured (each setting read back), and removed.
//!
//! An instance is named after its process (id and start time). Its folder stays locked (flock)
//! while the process lives. Either tells a living owner from a dead one; the lock does so across
//! containers too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use takt_model::{Bytes, Span};

use super::error::RecorderError;
use super::options::{BUFFER, Options, Threads};
use super::tracefs::Tracefs;
use crate::guard::{Guard, Guardian, INSTANCE};
use crate::owned::{self, ResourceId};
use crate::process;

/// A tracer instance, removed when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    shown: String,
    folder: PathBuf,
    guardian: Option<Guardian>,
    // Held for its flock, which the kernel drops when the process ends.
    _lock: File,
    tracefs: Tracefs,
    removed: bool,
}

/// Before the owner in an instance's name.
pub(crate) const PREFIX: &str = "takt";

/// How full a buffer is when it wakes the reader, in percent.
const WATERMARK_PERCENT: &str = "25";
/// Rounds of listing a process's threads, because threads may start others meanwhile.
const LISTINGS_MAX: u32 = 8;
/// The kernel takes lists of ids in pieces.
const IDS_PER_WRITE: usize = 100;

impl Instance {
    /// CPUs with a buffer in the instance.
    pub(crate) fn cpus(&self) -> Result<Vec<u32>, RecorderError> {
        let folder = self.path("per_cpu");
        let entries = fs::read_dir(&folder).map_err(|error| RecorderError::file(&folder, &error))?;
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok();
        let mut cpus: Vec<u32> = entries.flatten().filter_map(number).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Starts the guardian, then makes the instance.
    pub(crate) fn create(tracefs: Tracefs, guard: &Guard) -> Result<Instance, RecorderError> {
        let instances = tracefs.instances();
        match fs::metadata(&instances) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RecorderError::NoInstances { path: instances.display().to_string() });
            }
            Err(error) => return Err(RecorderError::file(&instances, &error)),
        }
        let name = ResourceId::next().ok_or(RecorderError::NoIdentity)?;
        let shown = name.to_text(PREFIX);
        let folder = instances.join(&shown);
        let guardian = Guardian::start(guard, [INSTANCE, &shown]);
        let guardian = guardian.map_err(|cause| RecorderError::Guardian { cause })?;
        let made = fs::create_dir(&folder).and_then(|()| {
            let lock = lock(&folder)?;
            lock.ok_or_else(|| io::Error::other("another process holds its lock"))
        });
        let lock = match made {
            Ok(lock) => lock,
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                if let Some(guardian) = guardian {
                    guardian.dismiss();
                }
                return Err(RecorderError::file(&folder, &error));
            }
        };
        Ok(Instance { shown, folder, guardian, _lock: lock, tracefs, removed: false })
    }

    pub(crate) fn name(&self) -> &str {
        &self.shown
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The tracer of this instance.
    pub(crate) fn tracefs(&self) -> &Path {
        self.tracefs.root()
    }

    pub(crate) fn read(&self, file: &str) -> Result<String, RecorderError> {
        let path = self.path(file);
        read_whole(&path).map_err(|error| RecorderError::file(&path, &error))
    }

    /// Configures everything except the switch. Returns the buffer and the events that this kernel
    /// lacks.
    pub(crate) fn configure(&self, options: &Options) -> Result<(Bytes, Vec<String>), RecorderError> {
        self.switch(false)?;
        self.set("trace_clock", "mono", |found| found.contains("[mono]"))?;
        let buffer = self.size_buffer(options.buffer)?;
        // When a buffer is full, old events are overwritten, so the pages show the gap. An instance
        // takes its options from the kernel's own.
        for (option, value) in
            [("overwrite", "1"), ("stacktrace", "0"), ("userstacktrace", "0"), ("pause-on-trace", "0")]
        {
            self.set_if_there(&format!("options/{option}"), value)?;
        }
        self.set_if_there("buffer_percent", WATERMARK_PERCENT)?;
        if let Threads::These { ids, children } = &options.threads {
            self.set_if_there("options/event-fork", if *children { "1" } else { "0" })?;
            self.add_threads(ids)?;
        }
        let mut missing = Vec::new();
        for event in &options.events {
            event.check()?;
            let folder = format!("events/{}", event.path());
            if !self.path(&folder).join("enable").exists() {
                if event.essential {
                    return Err(RecorderError::EventMissing { event: event.path() });
                }
                missing.push(event.path());
                continue;
            }
            if let Some(filter) = &event.filter {
                self.filter(&folder, &event.path(), filter)?;
            }
        }
        for event in options.events.iter().filter(|event| !missing.contains(&event.path())) {
            self.set(&format!("events/{}/enable", event.path()), "1", |found| found.starts_with('1'))?;
        }
        Ok((buffer, missing))
    }

    pub(crate) fn switch(&self, on: bool) -> Result<(), RecorderError> {
        let value = if on { "1" } else { "0" };
        self.set("tracing_on", value, |found| found == value)
    }

    /// Adds threads to record. Ended threads are left out, because the kernel drops them from its
    /// list.
    pub(crate) fn add_threads(&self, ids: &[u32]) -> Result<(), RecorderError> {
        let path = self.path("set_event_pid");
        let opened = OpenOptions::new().append(true).open(&path);
        let mut file = opened.map_err(|error| RecorderError::file(&path, &error))?;
        for some in ids.chunks(IDS_PER_WRITE) {
            let text: String = some.iter().map(|id| format!("{id} ")).collect();
            file.write_all(text.as_bytes()).map_err(|error| RecorderError::file(&path, &error))?;
        }
        let found = self.read("set_event_pid")?;
        let mut found: Vec<u32> = found.lines().filter_map(|line| line.trim().parse().ok()).collect();
        found.sort_unstable();
        match refused(ids, &found, lives) {
            None => Ok(()),
            Some(id) => {
                let cause = format!("the kernel did not take the thread {id}");
                Err(RecorderError::File { path: path.display().to_string(), cause })
            }
        }
    }

    /// Switches off and removes the instance. After an error the instance still exists; the
    /// guardian or the next start removes it.
    pub(crate) fn remove(mut self) -> Result<(), RecorderError> {
        self.removed = true;
        remove(&self.folder).map_err(|error| RecorderError::file(&self.folder, &error))?;
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
        Ok(())
    }

    fn size_buffer(&self, wanted: Option<Bytes>) -> Result<Bytes, RecorderError> {
        let cpus = self.cpus()?.len().max(1) as u64;
        let kib = match wanted {
            Some(bytes) => (bytes.get() / 1024).max(64),
            // An eighth of the free memory.
            None => (BUFFER.get() / 1024).min((memory_available_kib() / 8 / cpus).max(1024)),
        };
        let path = self.path("buffer_size_kb");
        match fs::write(&path, kib.to_string()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                return Err(RecorderError::Memory { kib, cause: error.to_string() });
            }
            Err(error) => return Err(RecorderError::file(&path, &error)),
        }
        let found = self.read("buffer_size_kb")?;
        // The kernel rounds to whole pages, whose heads do not count.
        match found.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()) {
            Some(found) if found >= kib - kib / 64 => Ok(Bytes::new(found * 1024)),
            _ => Err(RecorderError::Memory { kib, cause: format!("the kernel made it {}", found.trim()) }),
        }
    }

    fn filter(&self, folder: &str, event: &str, filter: &str) -> Result<(), RecorderError> {
        let file = format!("{folder}/filter");
        let written = fs::write(self.path(&file), filter);
        let found = self.read(&file).unwrap_or_default();
        if written.is_ok() && found.trim() == filter.trim() {
            return Ok(());
        }
        let cause = match written {
            Err(error) if found.contains("parse_error") => {
                format!("{}; {error}", found.lines().last().unwrap_or_default().trim())
            }
            Err(error) => error.to_string(),
            Ok(()) => format!("it became \"{}\"", found.trim()),
        };
        Err(RecorderError::Filter { event: event.to_owned(), filter: filter.to_owned(), cause })
    }

    fn set_if_there(&self, file: &str, value: &str) -> Result<(), RecorderError> {
        if self.path(file).exists() { self.set(file, value, |found| found == value) } else { Ok(()) }
    }

    fn set(&self, file: &str, value: &str, is_set: impl Fn(&str) -> bool) -> Result<(), RecorderError> {
        let path = self.path(file);
        fs::write(&path, value).map_err(|error| RecorderError::file(&path, &error))?;
        let found = self.read(file)?;
        if is_set(found.trim()) {
            return Ok(());
        }
        let cause = format!("\"{value}\" was written, and \"{}\" stands there", found.trim());
        Err(RecorderError::File { path: path.display().to_string(), cause })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.removed
            && remove(&self.folder).is_ok()
            && let Some(guardian) = self.guardian.take()
        {
            guardian.dismiss();
        }
    }
}

/// Some files of tracefs return only what fits into the first read, so the buffer must be large.
fn read_whole(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 1 << 16];
    let mut length = 0;
    loop {
        if length == bytes.len() {
            bytes.resize(length * 2, 0);
        }
        match file.read(bytes.get_mut(length..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The threads of a process, including threads that start during the listing.
#[must_use]
pub fn threads_of(pid: u32) -> Vec<u32> {
    let mut known: Vec<u32> = Vec::new();
    for _ in 0..LISTINGS_MAX {
        let Ok(folder) = fs::read_dir(format!("/proc/{pid}/task")) else { break };
        let mut found: Vec<u32> =
            folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        found.sort_unstable();
        if found == known {
            break;
        }
        known = found;
    }
    known
}

/// Locks an instance's folder; `None` if another process holds the lock.
pub(crate) fn lock(folder: &Path) -> io::Result<Option<File>> {
    let file = File::open(folder)?;
    Ok(owned::lock(&file)?.then_some(file))
}

/// Attempts to remove an instance that a reader still holds, 10 ms apart.
const REMOVALS_MAX: u32 = 50;

/// Switches the instance off and removes it. An instance that has gone already is a success.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let _ = fs::write(folder.join("tracing_on"), "0");
    let mut last = Ok(());
    for _ in 0..REMOVALS_MAX {
        last = match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        match &last {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => crate::clock::pause(Span::from_ms(10)),
            _ => break,
        }
    }
    last
}

fn memory_available_kib() -> u64 {
    let about = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(u64::MAX)
}

/// The first of `ids` that is missing in `found` (ascending) though its thread lives.
fn refused(ids: &[u32], found: &[u32], lives: impl Fn(u32) -> bool) -> Option<u32> {
    ids.iter().copied().find(|id| found.binary_search(id).is_err() && lives(*id))
}

/// Whether a thread with this id exists and has not ended. A process keeps its id after its first
/// thread has ended.
fn lives(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| process::has_not_ended(&stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_end_while_they_are_added_are_left_out() {
        let lives = |id| id != 4;
        assert_eq!(refused(&[3, 4, 5], &[3, 5], lives), None);
        assert_eq!(refused(&[3, 4, 5], &[3], lives), Some(5));
        assert!(super::lives(std::process::id()) && !super::lives(u32::MAX));
    }
}
