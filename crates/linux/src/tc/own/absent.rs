//! The queueing discipline of a takt without the feature `bpf`: there is none.

use std::io;

use super::super::classifier::Classifier;
use super::super::{Device, NetError, Plan};
use super::{Maps, Reading};

/// A discipline that cannot be.
#[derive(Debug)]
pub(in crate::tc) enum Own {}

impl Own {
    pub(in crate::tc) fn load(_: &Plan) -> Result<Own, NetError> {
        Err(NetError::NotBuilt)
    }

    pub(in crate::tc) fn kind(&self) -> &str {
        match *self {}
    }

    pub(in crate::tc) fn maps(&self) -> Maps {
        match *self {}
    }

    pub(in crate::tc) fn classify(&mut self, _: &Classifier, _: &Device) -> Result<(), NetError> {
        match *self {}
    }

    pub(in crate::tc) fn set(&mut self, _: &Plan) -> io::Result<()> {
        match *self {}
    }

    pub(in crate::tc) fn differs(&self, _: &Plan) -> io::Result<bool> {
        match *self {}
    }

    pub(in crate::tc) fn read(&self) -> io::Result<Reading> {
        match *self {}
    }
}

/// The state of another process's discipline.
pub(in crate::tc) fn read(_: Maps) -> io::Result<Reading> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this takt was built without the feature \"bpf\""))
}
