//! The folder of the state files that let the next start of takt repair what a killed takt left.
//!
//! Scheduling classes, locked memory and bandwidth of takt's own threads end with the process. These
//! changes do not, so a function undoes each at the next start: cpusets
//! ([`crate::cpuset::recover`]), held threads ([`crate::hold::recover`]) and trace instances
//! ([`crate::tracing::recover`]).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::process::effective_user;

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
    #[error("{path} is damaged ({cause}); look at it, restore by hand what it names, and remove it")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
    /// Repairing failed; the state file stays.
    #[error("what process {pid} left behind could not be undone: {cause}")]
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

pub(crate) fn unusable(path: &Path, error: &io::Error) -> RecoveryError {
    RecoveryError::Folder { path: path.display().to_string(), cause: error.to_string() }
}
