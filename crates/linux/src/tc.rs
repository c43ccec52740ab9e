//! Shares of a network link on this kernel: HTB classes for real-time messages, replies and all
//! other packets, with a BPF filter that classifies. All by netlink, without other programs.
//!
//! [`apply`] saves the former state of the device. Then it installs a [`Plan`] and reads it back. It
//! checks each [`Rule`] by the counters of its class. A drop of [`Applied`] restores the device. After
//! a kill -9 the next start restores it ([`recover`]).
//!
//! **Invariants.** The state file is written before the first change. A device is restored only
//! while takt's tree is at its root, so a later change by another program stays. Its limit of segments
//! is set back in any case. takt refuses a device whose tree it could not restore exactly.
//!
//! ```no_run
//! use takt_linux::tc::{Device, Plan, Rule, apply};
//! use takt_model::{Link, Rate};
//!
//! let device = Device::find("eth0")?.expect("a device");
//! let plan = Plan::new(&Link::at(Rate::from_bps(100_000_000)), &device)?;
//! let applied = apply(&device, &plan, &Rule::usual(false), false)?;
//! applied.restore()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod classifier;
mod features;
mod former;
mod htb;
mod install;
mod own;
mod plan;
mod probes;
mod state;
mod tags;

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use takt_model::Rate;
use thiserror::Error;

pub use crate::device::Device;
pub use classifier::{Match, Rule};
pub use features::features;
pub use htb::Counters;
pub use install::{Applied, apply};
pub use plan::{ClassPlan, Discipline, PACKETS_MAX, Plan, PlanError, RATE_MIN, Role, Shaper};
pub use probes::Check;
pub use tags::{LateDatagrams, PacketDeadline, TagCounts, TagSpec, Tags, deadline, set_deadline};

use crate::device;
use crate::netlink::Netlink;
use crate::recovery::{Recovered, RecoveryError};
use install::refused;
use state::{Lock, State};

/// The reason why shares of a device cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// Only privileged processes may change devices.
    #[error(
        "shares of a network device need the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: run as root (sudo)"
    )]
    Privilege,
    /// Frames for the check could not be sent.
    #[error("device {device} is switched off, so nothing could be checked: ip link set {device} up")]
    Down {
        /// The device.
        device: String,
    },
    /// Another takt.
    #[error("takt process {pid} holds shares of device {device}: end it first, or change its System under --watch")]
    InUse {
        /// The device.
        device: String,
        /// The process.
        pid: u32,
    },
    /// A tree that would be lost.
    #[error("device {device} has a queueing discipline that could not be put back exactly: {why}; {remedy}")]
    Foreign {
        /// The device.
        device: String,
        /// The obstacle.
        why: String,
        /// How to remove it.
        remedy: String,
    },
    /// Nothing to do.
    #[error("device {device} has no shares of takt; takt net show lists devices that have")]
    NotInstalled {
        /// The device.
        device: String,
    },
    /// Shares under another discipline.
    #[error(
        "device {device} has shares of takt under {kind}, and these cannot change to another queueing discipline in \
         place: remove them first (takt net remove --device {device})"
    )]
    OtherDiscipline {
        /// The device.
        device: String,
        /// Its discipline.
        kind: String,
    },
    /// A program cannot stay.
    #[error("takt's own queueing discipline ends with takt, so it cannot be kept: leave the option --keep out")]
    NotKept,
    /// A rule names something that is not there.
    #[error("{cause}")]
    Rule {
        /// The missing thing.
        cause: io::Error,
    },
    /// This kernel lacks a part.
    #[error("{what} cannot be made: {cause}; this kernel may be built without {part}")]
    Missing {
        /// The request.
        what: &'static str,
        /// The missing part.
        part: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel refused a step.
    #[error("{what}: {cause}")]
    Refused {
        /// The step.
        what: &'static str,
        /// Its answer.
        cause: io::Error,
    },
    /// The kernel took something else than was asked.
    #[error(
        "device {device} did not take the classes as they were asked for ({}); its former settings are back",
        differences.join(", ")
    )]
    Differs {
        /// The device.
        device: String,
        /// The differences.
        differences: Vec<String>,
    },
    /// Frames went to another class.
    #[error(
        "the counters of device {device} deny its classes: of {} frames for {what}, class {} counted {}; its former \
         settings are back", check.sent, check.role, check.counted
    )]
    Unverified {
        /// The device.
        device: String,
        /// The rule.
        what: String,
        /// Its check.
        check: Check,
    },
    /// A change failed, and so did the way back.
    #[error("{change}; and the former classes of device {device} could not be put back: {back}")]
    Between {
        /// The device.
        device: String,
        /// Why it could not change.
        change: Box<NetError>,
        /// Why the former classes are not there.
        back: Box<NetError>,
    },
    /// Frames with a deadline were not counted.
    #[error(
        "the counters of device {device} deny its deadlines: of {sent} frames with a deadline, {} came to it and {} \
         left it; its former settings are back", counts.came, counts.left
    )]
    Untagged {
        /// The device.
        device: String,
        /// Frames.
        sent: u64,
        /// Their counts.
        counts: TagCounts,
    },
    /// This takt has no programs for the kernel.
    #[error(
        "this takt was built without programs for the kernel, which --deadlines and --discipline takt need: build it \
         with the feature \"bpf\" (cargo build --release --package takt --features bpf; the build needs clang, \
         libelf-dev and zlib1g-dev)"
    )]
    NotBuilt,
    /// The programs are not in the kernel.
    #[cfg(feature = "bpf")]
    #[error(transparent)]
    Programs(#[from] crate::bpf::BpfError),
    /// The device could not be restored.
    #[error("device {device} has {now} and had {former}: {remedy}")]
    NotAsBefore {
        /// The device.
        device: String,
        /// The present state.
        now: String,
        /// The former state.
        former: String,
        /// What to do.
        remedy: String,
    },
    /// State files.
    #[error(transparent)]
    State(#[from] RecoveryError),
}

/// A restored device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The device.
    pub device: String,
    /// Its queueing discipline now.
    pub discipline: String,
    /// Its limit of segments now.
    pub gso_max_segs: u32,
    /// Whether this is what it had before; `false`: nothing tells what it had.
    pub is_former: bool,
}

/// A class as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassStatus {
    /// Its purpose.
    pub role: Role,
    /// Its own rate and burst; 0: it gets what others leave.
    pub assured: Shaper,
    /// Its limit.
    pub ceiling: Shaper,
    /// Its counters.
    pub counters: Counters,
}

/// The shares of a device as the kernel has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The device.
    pub device: String,
    /// The kind of its queueing discipline: htb, or one that begins with `takt_`.
    pub discipline: String,
    /// Bytes a second of the link; 0 without classes.
    pub rate: u64,
    /// Its classes, the most important first; none where this process may not read them.
    pub classes: Vec<ClassStatus>,
    /// The rules that hold; none where the state file is gone.
    pub rules: Vec<Rule>,
    /// The process that restores the device when it ends; `None`: the shares stay.
    pub holder: Option<u32>,
    /// How many segments TCP may hand over as one packet now.
    pub gso_max_segs: u32,
    /// The discipline that comes back; `None` where the state file is gone.
    pub former: Option<String>,
}

impl Shaper {
    /// Its rate in bits.
    #[must_use]
    pub fn bits(&self) -> Rate {
        plan::bits(self.rate)
    }
}

/// The shares of all devices of the calling thread's namespace, or of one.
///
/// # Errors
/// The kernel's refusal.
pub fn show(device: Option<&Device>) -> Result<Vec<Status>, NetError> {
    let failed = |cause| refused("devices cannot be read", cause);
    let mut netlink = Netlink::open().map_err(failed)?;
    let devices = match device {
        Some(device) => vec![device.clone()],
        None => Device::all(&mut netlink).map_err(failed)?,
    };
    let namespace = device::namespace().map_err(failed)?;
    let mut found = Vec::new();
    for device in &devices {
        let state = state::read(namespace, device.index)?;
        found.extend(install::status(&mut netlink, device, state.as_ref(), None).map_err(failed)?);
    }
    Ok(found)
}

/// Takes the shares of a device away and restores it.
///
/// # Errors
/// There are none, a running takt holds them, or the kernel's refusal.
pub fn remove(device: &Device) -> Result<Restored, NetError> {
    install::privilege()?;
    let failed = |cause| refused("devices cannot be read", cause);
    let lock = Lock::acquire()?;
    let mut netlink = Netlink::open().map_err(failed)?;
    let missing = || NetError::NotInstalled { device: device.name.clone() };
    let restored = match state::read(device::namespace().map_err(failed)?, device.index)? {
        Some(state) if !state.kept && state.owner.is_alive() => {
            return Err(NetError::InUse { device: device.name.clone(), pid: state.owner.pid });
        }
        Some(state) => {
            let restored = install::restore(&lock, &mut netlink, &state)?;
            lock.forget(&state);
            restored
        }
        None if former::Tree::read(&mut netlink, device.index).map_err(failed)?.is_ours() => {
            former::Tree::remove(&mut netlink, device.index).map_err(failed)?;
            let now = former::Tree::read(&mut netlink, device.index).map_err(failed)?;
            let (discipline, gso_max_segs) = (now.name(), device.gso_max_segs);
            Some(Restored { device: device.name.clone(), discipline, gso_max_segs, is_former: false })
        }
        None => None,
    };
    restored.ok_or_else(missing)
}

/// Reads the text of a state file and writes it again.
///
/// # Errors
/// The line that cannot be parsed.
pub fn rewritten_state(text: &str) -> Result<String, String> {
    State::from_text(text).map(|state| state.to_text())
}

/// Restores devices whose takt was killed, also those of other network namespaces. To be called at
/// every start: one look at a folder where there is nothing to do. Returns the devices that have what they had before.
#[must_use]
pub fn recover() -> Recovered<Restored> {
    let mut all = Recovered::default();
    for (namespace, device) in state::all() {
        let left = |state: &State| state.is_left() || !state.is_of_this_boot();
        match state::read(namespace, device) {
            Ok(Some(state)) if left(&state) => match recover_one(namespace, device) {
                Ok(restored) => all.undone.extend(restored),
                Err(error) => all.stuck.push(error.to_string()),
            },
            Ok(_) => {}
            Err(error) => all.stuck.push(error.to_string()),
        }
    }
    all
}

fn recover_one(namespace: u64, device: u32) -> Result<Option<Restored>, NetError> {
    let lock = Lock::acquire()?;
    // Somebody else may have been faster.
    let Some(state) = state::read(namespace, device)? else { return Ok(None) };
    if !state.is_of_this_boot() {
        lock.forget(&state);
        return Ok(None);
    }
    if !state.is_left() {
        return Ok(None);
    }
    install::privilege()?;
    let restored = in_namespace(namespace, || {
        let mut netlink = Netlink::open().map_err(|cause| refused("no netlink socket", cause))?;
        install::restore(&lock, &mut netlink, &state)
    });
    let restored = match restored {
        Ok(restored) => restored?,
        // A namespace to which nothing leads is gone, and its devices with it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(refused("the device's network namespace cannot be entered", error)),
    };
    lock.forget(&state);
    Ok(restored)
}

/// Does something in the network namespace with this number. The error is `NotFound` if no thread,
/// no descriptor and no mount leads there.
fn in_namespace<T: Send>(number: u64, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|about| about.ino() == number);
    if is_it(Path::new("/proc/thread-self/ns/net")) {
        return Ok(work());
    }
    let mut found = Err(io::ErrorKind::NotFound.into());
    for path in ways_to_namespaces().filter(|path| is_it(path)) {
        match fs::File::open(path) {
            // What led there may lead elsewhere meanwhile, or have ended.
            Ok(file) if file.metadata().is_ok_and(|about| about.ino() == number) => {
                found = Ok(file);
                break;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(libc::ESRCH) => {
                found = Err(error);
            }
            _ => {}
        }
    }
    let space = found?;
    // A thread's namespace is its own: this one ends, and the process stays where it is.
    let enter = move || {
        // SAFETY: the descriptor is open; the call passes no memory.
        match unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } {
            0 => Ok(work()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    std::thread::scope(|scope| scope.spawn(enter).join().unwrap_or_else(|_| Err(io::Error::other("a thread ended"))))
}

/// Paths that lead to network namespaces: mounts, threads, open files.
fn ways_to_namespaces() -> impl Iterator<Item = PathBuf> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = |line: &str| line.contains(" - nsfs ").then(|| line.split(' ').nth(4).map(PathBuf::from))?;
    let mounted: Vec<PathBuf> = mounts.lines().filter_map(mounted).collect();
    let processes = move || entries(PathBuf::from("/proc"));
    let of_threads = processes().flat_map(move |process| entries(process.join("task"))).map(|task| task.join("ns/net"));
    let is_namespace = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"net:["))
    };
    let open = processes().flat_map(move |process| entries(process.join("fd"))).filter(is_namespace);
    mounted.into_iter().chain(of_threads).chain(open)
}
