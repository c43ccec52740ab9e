//! A thread's place in the scheduler in the kernel.

use std::sync::Arc;

use takt_linux::sched_ext::{SchedExtError, Shared};
use takt_linux::{Epoch, SchedError};
use takt_model::Time;

/// A thread's way to its place.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    shared: Arc<Shared>,
    member: u32,
}

impl Membership {
    pub(crate) fn new(shared: Arc<Shared>, member: u32) -> Membership {
        Membership { shared, member }
    }

    /// The calling thread takes its place.
    pub(crate) fn join(&self) -> Result<(), SchedError> {
        let refused =
            |error: SchedExtError| SchedError::Other { class: "a server".to_owned(), cause: error.to_string() };
        self.shared.join(self.member).map_err(refused)
    }

    /// The release and the deadline of the job that the thread awaits or begins.
    pub(crate) fn announce_job(&self, epoch: Epoch, release: Time, deadline: Time) {
        self.shared.announce_job(self.member, epoch.monotonic(release).as_ns(), epoch.monotonic(deadline).as_ns());
    }
}
