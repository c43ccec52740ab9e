//! Errors of reading.

use std::io;

use thiserror::Error;

use crate::format::VERSION;

/// Why a log cannot be read, or not any further.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The input refused.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
    /// Something else, like a System file.
    #[error(
        "this is not a takt log ({hint}); make one with \"takt sim FILE -o LOG\" or \"takt run FILE -o LOG\", or \
         from a recording with \"takt observe FILE -o LOG\""
    )]
    NotALog {
        /// What the input looks like instead.
        hint: &'static str,
    },
    /// The head is damaged, without which the events mean nothing.
    #[error("the log's head is damaged, its events cannot be interpreted: record it again, or take an undamaged copy")]
    Head,
    /// Made by another version.
    #[error("the log has format version {found}, this takt reads version {VERSION}; use the takt that made it")]
    Version {
        /// The log's version.
        found: u64,
    },
    /// A part that this version does not know.
    #[error("the log has {what} at byte {offset}, which this takt does not know; use the version that made the log")]
    Unknown {
        /// What it is.
        what: String,
        /// The offset of its block in the file.
        offset: u64,
    },
    /// A part with a right checksum and wrong contents: a bug of the program that wrote it.
    #[error("the log has a bad {what} in the block at byte {offset}; the program that wrote it is at fault")]
    Malformed {
        /// What it is.
        what: &'static str,
        /// The offset of its block in the file.
        offset: u64,
    },
}
