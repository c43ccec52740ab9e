//! Finds the folder of the kernel's tracer.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::RecorderError;
use crate::mount::{Mount, TRACEFS};

/// The folder of all instances. If tracefs is not mounted, takt makes a mount that only this
/// process sees and that ends with the process.
///
/// # Errors
/// The kernel's refusal to mount tracefs.
pub fn instances() -> Result<PathBuf, RecorderError> {
    static FOUND: OnceLock<Tracefs> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.instances());
    }
    let found = Tracefs::find()?;
    Ok(FOUND.get_or_init(|| found).instances())
}

#[derive(Debug)]
pub(crate) struct Tracefs(Mount);

impl Tracefs {
    /// Its mount point, or else a mount of our own.
    pub(crate) fn find() -> Result<Tracefs, RecorderError> {
        let found = Mount::find(TRACEFS).map(Tracefs);
        found.map_err(|error| RecorderError::not_mounted(&error))
    }

    pub(crate) fn mounted() -> Option<Tracefs> {
        Mount::mounted(TRACEFS).map(Tracefs)
    }

    /// Its folder.
    pub(crate) fn root(&self) -> &Path {
        self.0.root()
    }

    pub(crate) fn instances(&self) -> PathBuf {
        self.root().join("instances")
    }
}
