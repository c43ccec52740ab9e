//! Why a machine cannot be divided.

use thiserror::Error;

use crate::recovery::RecoveryError;

/// Why this machine cannot be divided now.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CpusetError {
    /// No cpuset controller, of neither version.
    #[error("no cpuset controller is mounted, neither cgroup v1's nor cgroup v2's")]
    NoController,
    /// Only a part of the machine is seen from here, as in a container.
    #[error("this process stands in the cpuset {0}, and only the root cpuset can be divided")]
    NotRoot(String),
    /// Another run has divided the machine.
    #[error("another takt (process {0}) divides this machine's CPUs now")]
    InUse(u32),
    /// A file of the cpuset file system refused.
    #[error("{path}: {cause}{hint}")]
    File {
        /// The file or folder.
        path: String,
        /// The kernel's answer.
        cause: String,
        /// The likely cause, with a separator.
        hint: &'static str,
    },
    /// The state of the machine could not be written down first.
    #[error(transparent)]
    State(#[from] RecoveryError),
}
