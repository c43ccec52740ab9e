//! The programs of a takt without the feature `bpf`: there are none.

use std::io;
use std::path::Path;

use super::{NetError, Settings, TagCounts};

/// Programs that cannot be.
#[derive(Debug)]
pub(super) enum Programs {}

impl Programs {
    pub(super) fn attach(_: Settings, _: &Path) -> Result<Programs, NetError> {
        Err(NetError::NotBuilt)
    }

    pub(super) fn set(&mut self, _: Settings) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn counts(&self) -> io::Result<TagCounts> {
        match *self {}
    }
}
