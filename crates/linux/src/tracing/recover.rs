//! Removes instances of killed recorders at the next start.

use std::fs;

use super::error::RecorderError;
use super::instance::{Name, lock, remove};
use super::tracefs::Tracefs;

/// The result of [`recover`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// Instances of dead recorders that were removed.
    pub removed: Vec<String>,
    /// Instances that the kernel refuses to remove, with its reason.
    pub stuck: Vec<(String, String)>,
}

/// Removes the instances of dead recorders. Instances of living recorders and of other programs
/// stay. Call this at every start. Without leftovers it only reads one folder. It does nothing if
/// tracefs is not mounted or not accessible.
#[must_use]
pub fn recover() -> Left {
    Tracefs::mounted().and_then(|tracefs| recover_at(&tracefs).ok()).unwrap_or_default()
}

/// As [`recover`], with the reason why tracefs is not accessible.
pub(crate) fn recover_at(tracefs: &Tracefs) -> Result<Left, RecorderError> {
    let instances = tracefs.instances();
    let listed = match fs::read_dir(&instances) {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && tracefs.root().exists() => {
            return Err(RecorderError::NoInstances { path: instances.display().to_string() });
        }
        Err(error) => return Err(RecorderError::file(&instances, &error)),
    };
    let mut left = Left::default();
    for entry in listed.flatten() {
        let Some(text) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Some(name) = Name::parse(&text) else { continue };
        // A living owner may not have locked the instance yet. An owner in another container is not
        // visible, but holds the lock.
        if name.owner.is_alive() {
            continue;
        }
        let folder = entry.path();
        let Ok(Some(_lock)) = lock(&folder) else { continue };
        match remove(&folder) {
            Ok(()) => left.removed.push(text),
            Err(error) => left.stuck.push((text, error.to_string())),
        }
    }
    Ok(left)
}
