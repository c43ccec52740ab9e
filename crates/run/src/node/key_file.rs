//! The file of the key that all nodes share.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::seal::{Key, KeyError};

/// The most bytes of a key file that are read.
const KEY_MAX: u64 = 4096;

/// Why a file gives no key.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("the key {} cannot be read: {cause}{}", .path.display(), make(.path, .cause))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// No file, or one that is too long.
    #[error("the key {} is no file of 64 hexadecimal digits", .0.display())]
    Kind(PathBuf),
    /// Others may use it.
    #[error(
        "the key {path} has mode {mode:03o}, so others may use it; give it to its owner alone: chmod 600 {path}",
        path = .path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Not the digits of a key.
    #[error("{}: {cause}", .path.display())]
    Digits {
        /// The file.
        path: PathBuf,
        /// What a key is.
        cause: KeyError,
    },
}

/// How to make a file that is not there.
fn make(path: &Path, cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::NotFound => format!("; make it: (umask 077; openssl rand -hex 32 > {})", path.display()),
        _ => String::new(),
    }
}

impl Key {
    /// Reads a key from a file that nobody but its owner may use.
    ///
    /// # Errors
    /// The file cannot be read, others may use it, or it has no key.
    pub fn from_file(path: &Path) -> Result<Key, KeyFileError> {
        let unreadable = |cause| KeyFileError::Unreadable { path: path.to_owned(), cause };
        let about = fs::metadata(path).map_err(unreadable)?;
        if !about.is_file() || about.len() > KEY_MAX {
            return Err(KeyFileError::Kind(path.to_owned()));
        }
        let mode = about.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Mode { path: path.to_owned(), mode });
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        text.parse().map_err(|cause| KeyFileError::Digits { path: path.to_owned(), cause })
    }
}
