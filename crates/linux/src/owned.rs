//! Names and locks of things that outlive their process: trace instances and journals.
//!
//! Such a thing is named after its owner (process id and start time), so the next start finds the
//! things of dead owners. Its lock (flock) ends with the process that holds it, however that ends.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::Identity;

/// The owner of a thing, and which of its things it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResourceId {
    pub(crate) owner: Identity,
    pub(crate) number: u32,
}

impl ResourceId {
    /// The next thing of this process; `None` where /proc does not tell who that is.
    pub(crate) fn next() -> Option<ResourceId> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let owner = Identity::current()?;
        Some(ResourceId { owner, number: NUMBER.fetch_add(1, Ordering::Relaxed) })
    }

    /// `PREFIX-PID-START-NUMBER`, and nothing else.
    pub(crate) fn parse(prefix: &str, text: &str) -> Option<ResourceId> {
        let mut parts = text.strip_prefix(prefix)?.strip_prefix('-')?.split('-');
        let (pid, start, number) = (parts.next()?, parts.next()?, parts.next()?);
        let owner = Identity { pid: pid.parse().ok()?, start: start.parse().ok()? };
        let owned = ResourceId { owner, number: number.parse().ok()? };
        (parts.next().is_none() && owned.to_text(prefix) == text).then_some(owned)
    }

    pub(crate) fn to_text(self, prefix: &str) -> String {
        format!("{prefix}-{}-{}-{}", self.owner.pid, self.owner.start, self.number)
    }
}

/// The things in a folder whose owners are dead. A living owner may not have locked its thing yet.
pub(crate) fn left(folder: &Path, prefix: &str) -> io::Result<Vec<ResourceId>> {
    let names = fs::read_dir(folder)?.flatten();
    let named = names.filter_map(|entry| ResourceId::parse(prefix, entry.file_name().to_str()?));
    Ok(named.filter(|owned| !owned.owner.is_alive()).collect())
}

/// Locks a file or folder until it is closed. `false`: another process holds the lock.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open for the whole call; flock passes no memory.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EWOULDBLOCK) { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_takt_gives_are_takts() {
        let owned = ResourceId { owner: Identity { pid: 12, start: 3400 }, number: 5 };
        for prefix in ["takt", "reserve"] {
            let text = format!("{prefix}-12-3400-5");
            assert_eq!((owned.to_text(prefix), ResourceId::parse(prefix, &text)), (text, Some(owned)));
            let rests = ["", "-", "-1", "-1-2", "-1-2-3-4", "-01-2-3", "-1-2-x", "-+1-2-3", "-1-2-../x", "s.state"];
            for other in rests.map(|rest| format!("{prefix}{rest}")) {
                assert_eq!(ResourceId::parse(prefix, &other), None, "{other}");
            }
            assert_eq!(ResourceId::parse(prefix, "other-1-2-3"), None);
        }
    }
}
