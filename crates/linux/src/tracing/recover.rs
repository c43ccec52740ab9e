//! Removes instances of killed recorders at the next start.

use super::error::RecorderError;
use super::instance::{PREFIX, lock, remove};
use super::tracefs::Tracefs;
use crate::owned;
use crate::recovery::Recovered;

/// Removes the instances of dead recorders. Instances of living recorders and of other programs
/// stay. Call this at every start. Without leftovers it only reads one folder. It does nothing if
/// tracefs is not mounted or not accessible. Returns the names of the removed instances.
#[must_use]
pub fn recover() -> Recovered<String> {
    Tracefs::mounted().and_then(|tracefs| recover_at(&tracefs).ok()).unwrap_or_default()
}

/// As [`recover`], with the reason why tracefs is not accessible.
pub(crate) fn recover_at(tracefs: &Tracefs) -> Result<Recovered<String>, RecorderError> {
    let instances = tracefs.instances();
    let names = match owned::left(&instances, PREFIX) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && tracefs.root().exists() => {
            return Err(RecorderError::NoInstances { path: instances.display().to_string() });
        }
        Err(error) => return Err(RecorderError::file(&instances, &error)),
    };
    let mut left = Recovered::default();
    for name in names.into_iter().map(|name| name.to_text(PREFIX)) {
        let folder = instances.join(&name);
        // An owner in another container is not visible, but it holds the lock.
        let Ok(Some(_lock)) = lock(&folder) else { continue };
        match remove(&folder) {
            Ok(()) => left.undone.push(name),
            Err(error) => {
                left.stuck.push(format!("the trace instance {name} of a killed recording cannot be removed: {error}"))
            }
        }
    }
    Ok(left)
}
