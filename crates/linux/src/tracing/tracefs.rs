//! Where the kernel's tracer is.

use std::path::{Path, PathBuf};

use super::error::RecorderError;
use crate::mount::{Mount, TRACEFS};

/// tracefs.
#[derive(Debug)]
pub(crate) struct Tracefs(Mount);

impl Tracefs {
    /// Where it is mounted; where it is not, a mount of our own.
    pub(crate) fn find() -> Result<Tracefs, RecorderError> {
        let found = Mount::find(TRACEFS).map(Tracefs);
        found.map_err(|error| RecorderError::not_mounted(&error))
    }

    /// Where it is mounted.
    pub(crate) fn mounted() -> Option<Tracefs> {
        Mount::mounted(TRACEFS).map(Tracefs)
    }

    /// Its folder.
    pub(crate) fn root(&self) -> &Path {
        self.0.root()
    }

    /// The folder of instances.
    pub(crate) fn instances(&self) -> PathBuf {
        self.root().join("instances")
    }
}
