//! The scheduler in a program without the feature `bpf`: there is none, and no value of these types.

use std::convert::Infallible;
use std::sync::Arc;

use takt_model::Span;

use super::types::{CpuCount, Ended, Group, Member, SchedExtError, ServerEvent, Terms, Written};

/// See [`crate::sched_ext`].
#[derive(Debug)]
pub struct Scheduler(Infallible);

/// See [`crate::sched_ext`].
#[derive(Debug)]
pub struct Successor(Infallible);

/// See [`crate::sched_ext`].
#[derive(Debug)]
pub struct Shared(Infallible);

#[allow(missing_docs)]
impl Scheduler {
    /// # Errors
    /// Always.
    pub fn load(
        _: &[(u32, Vec<Terms>)],
        _: &[Vec<(u32, u32)>],
        _: &[Member],
        _: &[Group],
    ) -> Result<Scheduler, SchedExtError> {
        Err(SchedExtError::NotBuilt)
    }

    /// # Errors
    /// Never: there is no scheduler.
    pub fn attach(&mut self) -> Result<(), SchedExtError> {
        match self.0 {}
    }

    /// # Errors
    /// Never: there is no scheduler.
    pub fn successor(&self) -> Result<Successor, SchedExtError> {
        match self.0 {}
    }

    /// # Errors
    /// Never: there is no scheduler.
    pub fn replace(&mut self, successor: Successor) -> Result<Span, SchedExtError> {
        match successor.0 {}
    }

    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        match self.0 {}
    }

    pub fn read(&mut self) {
        match self.0 {}
    }

    pub fn take(&mut self, _: &mut dyn FnMut(ServerEvent)) {
        match self.0 {}
    }

    /// # Errors
    /// Never: there is no scheduler.
    pub fn change(&mut self, _: u32, _: u32, _: Terms) -> Result<(), SchedExtError> {
        match self.0 {}
    }

    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        match self.0 {}
    }

    pub fn detach(&mut self) {
        match self.0 {}
    }
}

#[allow(missing_docs)]
impl Shared {
    /// # Errors
    /// Never: there is no scheduler.
    pub fn join(&self, _: u32) -> Result<(), SchedExtError> {
        match self.0 {}
    }

    pub fn announce_job(&self, _: u32, _: u64, _: u64) {
        match self.0 {}
    }

    pub fn begin(&self, _: u64, _: u64) {
        match self.0 {}
    }

    pub fn end(&self, _: u64) {
        match self.0 {}
    }

    #[must_use]
    pub fn next(&self, _: u32, _: u64) -> u64 {
        match self.0 {}
    }

    #[must_use]
    pub fn written(&self, _: u32) -> Option<Written> {
        match self.0 {}
    }

    #[must_use]
    pub fn count(&self, _: u32) -> CpuCount {
        match self.0 {}
    }
}
