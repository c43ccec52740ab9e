//! The file of the key that all nodes share.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use takt_linux::process::effective_user;
use thiserror::Error;

use crate::seal::{Key, KeyError};

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
    /// Somebody else may change it.
    #[error(
        "the key {path} belongs to user {owner}; it must belong to you, to root or to the user who called sudo: \
         chown \"$USER\" {path}",
        path = .path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
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
    /// Reads a key from a file that nobody but its owner may use: this user, root, or who called sudo.
    ///
    /// # Errors
    /// The file cannot be read, others may use it, or it has no key.
    pub fn from_file(path: &Path) -> Result<Key, KeyFileError> {
        let unreadable = |cause| KeyFileError::Unreadable { path: path.to_owned(), cause };
        // To open a pipe may wait.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(KeyFileError::Kind(path.to_owned()));
        }
        let file = File::open(path).map_err(unreadable)?;
        let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        check(path, &file.metadata().map_err(unreadable)?, &[0, effective_user(), sudo.unwrap_or(0)])?;
        let mut text = String::new();
        file.take(KEY_MAX).read_to_string(&mut text).map_err(unreadable)?;
        text.parse().map_err(|cause| KeyFileError::Digits { path: path.to_owned(), cause })
    }
}

/// Whether the open file may be a key, given its possible owners.
fn check(path: &Path, about: &Metadata, owners: &[u32]) -> Result<(), KeyFileError> {
    let (path, mode, owner) = (path.to_owned(), about.mode() & 0o777, about.uid());
    if !about.is_file() || about.len() > KEY_MAX {
        Err(KeyFileError::Kind(path))
    } else if mode & 0o077 != 0 {
        Err(KeyFileError::Mode { path, mode })
    } else if !owners.contains(&owner) {
        Err(KeyFileError::Owner { path, owner })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn a_key_of_somebody_else_is_refused() {
        let path = std::env::temp_dir().join(format!("takt-key-{}", std::process::id()));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        let about = file.metadata().unwrap();
        fs::remove_file(&path).unwrap();
        let owner = about.uid();
        assert!(check(&path, &about, &[owner + 1, owner]).is_ok());
        let refused = check(&path, &about, &[owner + 1]).unwrap_err();
        assert!(refused.to_string().contains(&format!("belongs to user {owner}")), "{refused}");
    }
}
