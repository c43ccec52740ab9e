//! Why the lab could not do what was asked.

use std::io;
use std::path::PathBuf;

use takt_lab::initrd::EntryError;
use takt_lab::kernel::KernelError;
use takt_model::Span;
use thiserror::Error;

/// A refusal or a failure of the lab.
#[derive(Debug, Error)]
pub enum LabError {
    /// A program is not installed.
    #[error("the program {program} is missing; on Debian: apt-get install {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package with it.
        package: &'static str,
    },
    /// A program ended with an error.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program.
        program: &'static str,
        /// Its last lines on standard error.
        said: String,
    },
    /// The archive of packages did not answer, or refused.
    #[error(
        "packages cannot be fetched: {said}\ncheck the network, --mirror and --suite; or give a kernel of your own: \
         --kernel PATH"
    )]
    Network {
        /// The last lines of apt.
        said: String,
    },
    /// No archive of Debian is known here.
    #[error("the lists of apt's sources name no archive of Debian; give one: --mirror URL")]
    NoMirror,
    /// The key ring that signs Debian's archive is not here.
    #[error("{0} is missing, so packages cannot be checked; on Debian: apt-get install debian-archive-keyring")]
    NoKeys(&'static str),
    /// The archive has no such kernel.
    #[error("the suite {suite} has no kernel {wanted}; it has {known}")]
    NoKernel {
        /// The suite.
        suite: String,
        /// The release or flavour.
        wanted: String,
        /// Some that it has.
        known: String,
    },
    /// A kernel without functions for BPF programs.
    #[error(
        "the kernel {kernel} is of no use for BPF schedulers: {reason}\ntake another one (--kernel NAME, --suite \
         SUITE), or keep it for other experiments: --any"
    )]
    Unsuitable {
        /// The kernel.
        kernel: String,
        /// The functions that are missing.
        reason: String,
    },
    /// A file is no kernel, or cannot be opened.
    #[error("{path}: {error}")]
    Kernel {
        /// The file.
        path: PathBuf,
        /// Why.
        error: KernelError,
    },
    /// Its BTF is missing or damaged.
    #[error("{0}: its kernel has no readable BTF; take one that is built with CONFIG_DEBUG_INFO_BTF")]
    NoBtf(PathBuf),
    /// Nothing in the cache by that name.
    #[error("{folder} has no {wanted}; fetch it first: takt lab fetch{option}")]
    NotCached {
        /// The cache.
        folder: PathBuf,
        /// The kernel, or a program.
        wanted: String,
        /// What to add to the command.
        option: String,
    },
    /// A cached file has changed.
    #[error("{0} does not have the checksum of the fetched file; remove its folder and fetch it again")]
    Changed(PathBuf),
    /// The kernel has no such module.
    #[error("the kernel {kernel} has no module {module} below {folder}")]
    NoModule {
        /// The kernel.
        kernel: String,
        /// The module.
        module: String,
        /// Where its modules are.
        folder: PathBuf,
    },
    /// A file cannot go into the guest.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The guest took too long.
    #[error(
        "the guest has not ended after {limit} {clock}; give more time (--timeout), or look at its console (--console)"
    )]
    Time {
        /// The time that it had.
        limit: Span,
        /// By which clock.
        clock: &'static str,
    },
    /// The guest wrote too much.
    #[error("the guest wrote more than {0} bytes; write less, or run fewer experiments a boot")]
    Bound(u64),
    /// The user ended it.
    #[error("interrupted by {0}; the guest was ended")]
    Interrupted(String),
}

impl LabError {
    /// The exit status (docs/reference/exit-status.md).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::Entry(_) | LabError::Kernel { .. } | LabError::NoModule { .. } => 2,
            LabError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => 2,
            LabError::Missing { .. }
            | LabError::Network { .. }
            | LabError::NoMirror
            | LabError::NoKeys(_)
            | LabError::NoKernel { .. }
            | LabError::Unsuitable { .. }
            | LabError::NoBtf(_)
            | LabError::NotCached { .. } => 3,
            LabError::Failed { .. }
            | LabError::Changed(_)
            | LabError::Io { .. }
            | LabError::Time { .. }
            | LabError::Bound(_)
            | LabError::Interrupted(_) => 4,
        }
    }

    /// Puts the file's name to an error.
    pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |error| LabError::Io { path, error }
    }
}
