//! The folder of the state files that let the next start of takt repair what a killed takt left.
//!
//! Scheduling classes, locked memory and bandwidth of takt's own threads end with the process. These
//! changes do not, so a function undoes each at the next start: cpusets
//! ([`crate::cpuset::recover`]), held threads ([`crate::hold::recover`]), shares of devices
//! ([`crate::tc::recover`]) and trace instances ([`crate::tracing::recover`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::process::{Identity, boot_id, effective_user};

/// Why the state could not be read, written or repaired.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RecoveryError {
    /// The folder for state files cannot be used.
    #[error("{path}: {cause}; takt keeps there what it must restore after a kill")]
    Folder {
        /// The folder or file.
        path: String,
        /// What is wrong.
        cause: String,
    },
    /// The state file is not one of takt's.
    #[error("{path} is damaged ({cause}); restore the settings in it by hand, then remove it")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
    /// Repairing failed; the state file stays.
    #[error("the changes of process {pid} could not be undone: {cause}")]
    Undo {
        /// The dead process.
        pid: u32,
        /// The kernel's answer.
        cause: String,
    },
    /// /proc is not there.
    #[error("/proc/self/stat cannot be read, so a killed run could not be told from a running one")]
    NoIdentity,
}

/// What the next start did about the remains of killed processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered<T> {
    /// The remains that were undone.
    pub undone: Vec<T>,
    /// Failures, with reasons.
    pub stuck: Vec<String>,
}

impl<T> Default for Recovered<T> {
    fn default() -> Self {
        Recovered { undone: Vec::new(), stuck: Vec::new() }
    }
}

/// The folder of state files: in /run for root, otherwise in the user's run-time folder.
#[must_use]
pub fn state_folder() -> PathBuf {
    let user = effective_user();
    if user == 0 {
        return PathBuf::from("/run/takt-0");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join(format!("takt-{user}")),
        None => std::env::temp_dir().join(format!("takt-{user}")),
    }
}

/// The folder belongs to this user alone, and is no link: what stands in it is acted upon.
pub(crate) fn make_private(folder: &Path) -> Result<(), RecoveryError> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(unusable(folder, &error)),
        _ => {}
    }
    let about = fs::symlink_metadata(folder).map_err(|error| unusable(folder, &error))?;
    if !about.is_dir() || about.uid() != effective_user() || about.mode() & 0o022 != 0 {
        let cause = "it must be a folder of this user, without write access for others".to_owned();
        return Err(RecoveryError::Folder { path: folder.display().to_string(), cause });
    }
    Ok(())
}

/// Opens a file of the folder for its flock.
pub(crate) fn open_lock(path: &Path) -> Result<File, RecoveryError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
    options.open(path).map_err(|error| unusable(path, &error))
}

/// Writes a state file, whole or not at all.
pub(crate) fn write_state(path: &Path, text: &str) -> Result<(), RecoveryError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| unusable(&new, &error))?;
    fs::rename(&new, path).map_err(|error| unusable(path, &error))
}

/// Reads a state file; `None` where there is none.
pub(crate) fn read_state<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, RecoveryError> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let damaged = |cause| RecoveryError::Damaged { path: path.display().to_string(), cause };
            parse(&text).map(Some).map_err(damaged)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Why a state file is refused whose first line is another one than expected.
pub(crate) const UNKNOWN_VERSION: &str = "a version of takt that this one does not know";

/// The lines of a state file, `KEY VALUE` each, read in their order.
pub(crate) struct Fields<'a> {
    lines: std::str::Lines<'a>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Fields { lines: text.lines() }
    }

    /// The lines after the first one, which names the format and its version.
    pub(crate) fn after(head: &str, text: &'a str) -> Result<Self, String> {
        let mut fields = Fields::new(text);
        if fields.lines.next() == Some(head) { Ok(fields) } else { Err(UNKNOWN_VERSION.to_owned()) }
    }

    /// The value of the next line, which has this key.
    pub(crate) fn take(&mut self, key: &str) -> Result<&'a str, String> {
        let line = self.lines.next().unwrap_or_default();
        let value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' '));
        value.ok_or_else(|| format!("\"{line}\" where \"{key}\" should be"))
    }

    /// As [`take`](Self::take), as a number that fits.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, key: &str) -> Result<T, String> {
        let text = self.take(key)?;
        text.parse().map_err(|_| format!("\"{text}\" is no number, or too large"))
    }

    /// The origin of the change, as [`origin_text`] wrote it: the boot, and the owning process.
    pub(crate) fn origin(&mut self) -> Result<(String, Identity), String> {
        let boot = self.take("boot")?.to_owned();
        Ok((boot, Identity { pid: self.number("pid")?, start: self.number("start")? }))
    }

    /// The lines that are left.
    pub(crate) fn rest(self) -> std::str::Lines<'a> {
        self.lines
    }
}

/// The lines of a state file for the boot and the process that owns the change.
pub(crate) fn origin_text(boot: &str, owner: Identity) -> String {
    format!("boot {boot}\npid {}\nstart {}\n", owner.pid, owner.start)
}

/// Whether that is the running boot. True where the kernel names none.
pub(crate) fn is_this_boot(boot: &str) -> bool {
    boot_id().is_none_or(|now| now == boot)
}

pub(crate) fn unusable(path: &Path, error: &io::Error) -> RecoveryError {
    RecoveryError::Folder { path: path.display().to_string(), cause: error.to_string() }
}
