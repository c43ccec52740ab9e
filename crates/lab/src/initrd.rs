//! The guest's file system: a newc archive (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Entries are sorted by path. Inode numbers count from 1, and all times are zero. So the same
//! entries give the same bytes, in whatever order they were added.

use std::collections::BTreeMap;

use thiserror::Error;

/// The longest path, with its closing NUL: the kernel ignores longer ones (PATH_MAX).
pub const PATH_MAX: usize = 4_096;
/// The largest file: its size has eight hexadecimal digits.
pub const FILE_MAX: u64 = u32::MAX as u64;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An entry that an archive cannot hold.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EntryError {
    /// The path is empty, absolute, too long, or has an empty part, `.`, `..` or NUL.
    #[error("\"{0}\" is no path in an initrd; write a relative path without \".\" and \"..\"")]
    Path(String),
    /// Two entries have this path, or one path leads through a file.
    #[error("\"{0}\" is in the initrd twice; give each file its own name")]
    Twice(String),
    /// The file is larger than [`FILE_MAX`].
    #[error("\"{path}\" has {bytes} bytes; a file of an initrd has at most {FILE_MAX} (FILE_MAX)")]
    Size {
        /// The path.
        path: String,
        /// Its size.
        bytes: u64,
    },
}

struct Entry {
    mode: u32,
    bytes: Vec<u8>,
}

/// The entries of an archive.
#[derive(Default)]
pub struct Initrd {
    entries: BTreeMap<String, Entry>,
}

impl Initrd {
    /// Adds a file, and the folders on its path.
    ///
    /// # Errors
    /// See [`EntryError`].
    pub fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Result<(), EntryError> {
        self.add(path, FILE, bytes.into())
    }

    /// Adds a file that can be executed.
    ///
    /// # Errors
    /// See [`EntryError`].
    pub fn program(&mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Result<(), EntryError> {
        self.add(path, PROGRAM, bytes.into())
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// See [`EntryError`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), EntryError> {
        self.add(path, LINK, target.into())
    }

    /// Adds a folder. It may be there already.
    ///
    /// # Errors
    /// See [`EntryError`].
    pub fn folder(&mut self, path: &str) -> Result<(), EntryError> {
        match self.entries.get(path) {
            Some(entry) if entry.mode == FOLDER => Ok(()),
            _ => self.add(path, FOLDER, Vec::new()),
        }
    }

    fn add(&mut self, path: &str, mode: u32, bytes: Vec<u8>) -> Result<(), EntryError> {
        let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if path.len() + 1 > PATH_MAX || !path.split('/').all(is_name) {
            return Err(EntryError::Path(path.to_owned()));
        }
        if bytes.len() as u64 > FILE_MAX {
            return Err(EntryError::Size { path: path.to_owned(), bytes: bytes.len() as u64 });
        }
        if self.entries.contains_key(path) {
            return Err(EntryError::Twice(path.to_owned()));
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent)?;
        }
        self.entries.insert(path.to_owned(), Entry { mode, bytes });
        Ok(())
    }

    /// The archive.
    #[must_use]
    pub fn archive(&self) -> Vec<u8> {
        let size: usize = self.entries.iter().map(|(path, entry)| 120 + path.len() + entry.bytes.len()).sum();
        let mut archive = Vec::with_capacity(size + 128);
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            write_entry(&mut archive, number, path, entry);
        }
        write_entry(&mut archive, 0, "TRAILER!!!", &Entry { mode: 0, bytes: Vec::new() });
        archive
    }
}

fn write_entry(archive: &mut Vec<u8>, number: u32, path: &str, entry: &Entry) {
    let links = if entry.mode == FOLDER { 2 } else { 1 };
    let (size, name) = (entry.bytes.len() as u32, path.len() as u32 + 1);
    archive.extend_from_slice(b"070701");
    // inode, mode, user, group, links, time, size, device and its minor, node and its minor, name, checksum
    for field in [number, entry.mode, 0, 0, links, 0, size, 0, 0, 0, 0, name, 0] {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(path.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(&entry.bytes);
    pad(archive);
}

/// Names and files end at multiples of four bytes.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(order: [usize; 3]) -> Vec<u8> {
        let mut initrd = Initrd::default();
        for step in order {
            match step {
                0 => initrd.program("bin/busybox", *b"\x7fELF").unwrap(),
                1 => initrd.link("bin/sh", "busybox").unwrap(),
                _ => initrd.file("lab/00/command", *b"true\0").unwrap(),
            }
        }
        initrd.archive()
    }

    #[test]
    fn the_order_of_additions_changes_no_byte() {
        assert_eq!(example([0, 1, 2]), example([2, 1, 0]));
        assert_eq!(example([0, 1, 2]), example([1, 2, 0]));
    }

    /// A first entry, byte by byte as cpio -H newc writes it.
    #[test]
    fn an_entry_has_the_bytes_of_newc() {
        let mut initrd = Initrd::default();
        initrd.file("a", *b"hello").unwrap();
        let header = "070701000000010000\
                      81a4000000000000000000000001000000000000000500000000000000000000000000000000\
                      0000000200000000";
        let archive = initrd.archive();
        let (entry, trailer) = archive.split_at(120);
        assert_eq!(&entry[..110], header.as_bytes());
        assert_eq!(&entry[110..], b"a\0hello\0\0\0");
        assert!(trailer.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(archive.len() % 4, 0);
    }

    #[test]
    fn bad_paths_and_double_entries_are_refused() {
        let mut initrd = Initrd::default();
        for path in ["", "/init", "a//b", "a/../b", ".", "a\0b"] {
            assert_eq!(initrd.file(path, []), Err(EntryError::Path(path.to_owned())));
        }
        initrd.file("a", []).unwrap();
        assert_eq!(initrd.file("a", []), Err(EntryError::Twice("a".to_owned())));
        assert_eq!(initrd.file("a/b", []), Err(EntryError::Twice("a".to_owned())));
        initrd.folder("b").unwrap();
        initrd.folder("b").unwrap();
    }
}
