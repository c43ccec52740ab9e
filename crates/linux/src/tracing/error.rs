//! Reasons why a recording cannot be made, and remedies.

use std::io;
use std::path::Path;

use thiserror::Error;

use crate::process;

/// The reason why recording cannot start or go on.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// No tracefs is mounted, and none can be.
    #[error("the kernel's tracer is out of reach: tracefs is not mounted, and cannot be ({cause}); {remedy}")]
    NotMounted {
        /// The kernel's answer.
        cause: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Not root.
    #[error("{path}: recording what the kernel does needs root (user 0, or CAP_DAC_OVERRIDE); run takt with sudo")]
    Privilege {
        /// The refused file.
        path: String,
    },
    /// The kernel's lockdown.
    #[error(
        "{path}: the kernel is locked down (confidentiality), and then nobody may trace it; boot without \
         lockdown=confidentiality"
    )]
    Lockdown {
        /// The refused file.
        path: String,
    },
    /// tracefs, but without instances.
    #[error("{path} is not there: this kernel has no trace instances (CONFIG_TRACING, Linux 3.10 or later)")]
    NoInstances {
        /// The folder.
        path: String,
    },
    /// An event without which a recording is useless.
    #[error("this kernel does not have the event {event}, without which takt cannot tell what ran when")]
    EventMissing {
        /// `system/name`.
        event: String,
    },
    /// An event's filter was refused.
    #[error("the kernel refuses the filter \"{filter}\" of the event {event}: {cause}")]
    Filter {
        /// `system/name`.
        event: String,
        /// The filter.
        filter: String,
        /// The kernel's answer.
        cause: String,
    },
    /// No memory for buffers.
    #[error("{kib} KiB of ring buffer for each CPU cannot be had ({cause}); ask for less")]
    Memory {
        /// The requested size for each CPU.
        kib: u64,
        /// The kernel's answer.
        cause: String,
    },
    /// A setting was refused or had no effect.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        cause: String,
    },
    /// The child process that cleans up after a kill.
    #[error("the guardian, which ends the recording if takt is killed, cannot be started: {cause}")]
    Guardian {
        /// The cause.
        cause: String,
    },
    /// The kernel's pages could not be read.
    #[error("the pages of CPU {cpu} cannot be read: {cause}")]
    Read {
        /// The kernel's number.
        cpu: u32,
        /// The kernel's answer.
        cause: String,
    },
    /// A description by the kernel has an unexpected form.
    #[error("{path} is not understood: {cause}")]
    Description {
        /// The file.
        path: String,
        /// The difference.
        cause: String,
    },
    /// /proc does not identify the calling process.
    #[error("/proc/self/stat cannot be read, so a killed recorder could not be told from a running one")]
    NoIdentity,
}

impl RecorderError {
    /// The error for an errno of mounting our own tracefs.
    pub(crate) fn not_mounted(error: &io::Error) -> RecorderError {
        let remedy = match error.raw_os_error() {
            Some(libc::EPERM) if process::effective_user() != 0 => {
                return RecorderError::Privilege { path: "/sys/kernel/tracing".to_owned() };
            }
            Some(libc::EPERM) => {
                "CAP_SYS_ADMIN is missing, as in a container: run takt outside of the container, or in a container \
                 that may mount (docker run --privileged)"
            }
            Some(libc::ENODEV) => "boot a kernel with CONFIG_FTRACE and CONFIG_EVENT_TRACING",
            _ => "as root: mount -t tracefs nodev /sys/kernel/tracing",
        };
        RecorderError::NotMounted { cause: error.to_string(), remedy }
    }

    /// The error for an errno of a file of tracefs.
    pub(crate) fn file(path: &Path, error: &io::Error) -> RecorderError {
        let shown = path.display().to_string();
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) if locked_down() => RecorderError::Lockdown { path: shown },
            Some(libc::EACCES | libc::EPERM) if process::effective_user() != 0 => {
                RecorderError::Privilege { path: shown }
            }
            _ => RecorderError::File { path: shown, cause: error.to_string() },
        }
    }
}

fn locked_down() -> bool {
    let state = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    state.contains("[confidentiality]")
}
