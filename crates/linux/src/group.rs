//! Control groups with a budget of CPU time: finds a thread's group, and makes one below it for a
//! while.
//!
//! A budget of a control group is a **limit**, not a guarantee. Threads in the group get at most
//! the budget in each period, and then wait for the next period. Their share before that limit
//! depends on their class, and for ordinary threads on the group's weight, which is set to the
//! maximum.
//!
//! | | cgroup v1 | cgroup v2 |
//! |---|---|---|
//! | ordinary threads, at most | `cpu.cfs_quota_us` in `cpu.cfs_period_us` | `cpu.max` |
//! | ordinary threads, before others | `cpu.shares` | `cpu.weight` |
//! | SCHED_FIFO and SCHED_RR, at most, on each CPU | `cpu.rt_runtime_us` in `cpu.rt_period_us` | no limit |
//! | a thread is moved | `tasks` | `cgroup.threads`; the group is a *threaded* one |
//!
//! The limit of SCHED_FIFO and SCHED_RR needs CONFIG_RT_GROUP_SCHED.
//!
//! The group is made below the thread's present group. So limits of the present group still apply
//! to the thread, and its memory and other resources are accounted there as before. Threads started
//! by a member are in the group too.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use takt_model::Span;
use thiserror::Error;

use crate::cgroup::{self, has_word};
use crate::sched::BW_SHIFT;

/// The reason why a thread gets no budget.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The thread has ended.
    #[error("thread {id} has ended")]
    Gone {
        /// Its id.
        id: u32,
    },
    /// No hierarchy that controls CPU time.
    #[error("no control groups with CPU time are mounted: neither cgroup v1's controller \"cpu\" nor cgroup v2")]
    NoController,
    /// A container sees a part of the groups only.
    #[error("thread {id} is in a control group that cannot be seen from here ({path})")]
    Outside {
        /// The thread.
        id: u32,
        /// The path, as the kernel reports it.
        path: String,
    },
    /// Version 2: the groups above do not pass the CPU controller on.
    #[error("the control group {} has no CPU time to share out: \"cpu\" is not in its cgroup.controllers; as \
         root, for each group above it from the top: echo +cpu > GROUP/cgroup.subtree_control", folder.display())]
    NotEnabled {
        /// Its folder.
        folder: PathBuf,
    },
    /// The kernel refused a file operation.
    #[error("{}: {cause}{hint}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's answer.
        cause: String,
        /// The likely cause, with a separator.
        hint: &'static str,
    },
}

/// Version of control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Each controller has a hierarchy of its own.
    V1,
    /// All controllers share a hierarchy.
    V2,
}

/// CPU time per period, in microseconds as in the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// CPU time.
    pub runtime_us: u64,
    /// The period.
    pub period_us: u64,
}

impl Share {
    /// In 2^-20 CPUs, rounded as the kernel does (`to_ratio`).
    #[must_use]
    pub fn bandwidth(&self) -> u64 {
        let share = (u128::from(self.runtime_us) << BW_SHIFT) / u128::from(self.period_us.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Budget for SCHED_FIFO and SCHED_RR in a group (cgroup v1 with CONFIG_RT_GROUP_SCHED).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealTime {
    /// The whole budget, subgroups included, in 2^-20 CPUs; `None` is no limit.
    pub limit: Option<u64>,
    /// The part that subgroups have.
    pub taken: u64,
}

/// The group that a thread is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its folder.
    pub folder: PathBuf,
    /// The version of its hierarchy.
    pub version: Version,
    /// The smallest limit of the group and its ancestors, in 2^-20 CPUs; `None` is no limit.
    pub quota: Option<u64>,
    /// Budgets for real-time threads; `None` where this kernel has none in groups.
    pub real_time: Option<RealTime>,
}

/// The limit to set for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The share.
    pub share: Share,
    /// True for SCHED_FIFO and SCHED_RR, false for ordinary classes.
    pub real_time: bool,
}

/// How often a group used up its budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttled {
    /// Periods in which a member ran.
    pub periods: u64,
    /// Periods in which the group was throttled.
    pub throttled: u64,
    /// Throttled time, over all CPUs.
    pub time: Span,
}

/// Operations on the file system of control groups. Tests use a fake.
pub(crate) trait Files {
    fn read(&self, path: &Path) -> io::Result<String>;
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    fn exists(&self, path: &Path) -> bool;
    fn folders(&self, path: &Path) -> Vec<String>;
    fn make(&self, folder: &Path) -> io::Result<()>;
    fn remove(&self, folder: &Path) -> io::Result<()>;
}

/// The kernel's file system.
pub(crate) struct Kernel;

impl Files for Kernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // Never makes a file.
        OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    fn folders(&self, path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
    fn make(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }
    fn remove(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir(folder)
    }
}

impl Place {
    /// The group of a thread.
    ///
    /// # Errors
    /// There is no such group, or it has no CPU time to share out.
    pub fn of(thread: u32) -> Result<Place, GroupError> {
        let (version, folder) = folder_of(thread)?;
        Place::at(&Kernel, version, folder)
    }

    fn at(files: &dyn Files, version: Version, folder: PathBuf) -> Result<Place, GroupError> {
        if version == Version::V2 {
            let controllers = files.read(&folder.join("cgroup.controllers")).unwrap_or_default();
            if !has_word(&controllers, "cpu") {
                return Err(GroupError::NotEnabled { folder });
            }
        }
        let quota = folder.ancestors().map_while(|group| quota(files, version, group)).flatten().min();
        let real_time = real_time(files, version, &folder);
        Ok(Place { folder, version, quota, real_time })
    }
}

/// The limit of one group: `None` if the folder is no group or the topmost, `Some(None)` without a
/// limit.
fn quota(files: &dyn Files, version: Version, group: &Path) -> Option<Option<u64>> {
    let (runtime, period) = match version {
        Version::V1 => {
            let read = |name: &str| files.read(&group.join(name)).ok();
            (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)
        }
        Version::V2 => {
            let text = files.read(&group.join("cpu.max")).ok()?;
            let (runtime, period) = text.trim().split_once(' ')?;
            (runtime.to_owned(), period.to_owned())
        }
    };
    Some(share(&runtime, &period))
}

/// In 2^-20 CPUs; -1 and `max` are no limit.
fn share(runtime: &str, period: &str) -> Option<u64> {
    Some(Share { runtime_us: runtime.trim().parse().ok()?, period_us: period.trim().parse().ok()? }.bandwidth())
}

fn real_time(files: &dyn Files, version: Version, group: &Path) -> Option<RealTime> {
    let of = |group: &Path| {
        let read = |name: &str| files.read(&group.join(name)).ok();
        Some(share(&read("cpu.rt_runtime_us")?, &read("cpu.rt_period_us")?))
    };
    let limit = of(group).filter(|_| version == Version::V1)?;
    let below = files.folders(group);
    let taken = below.iter().filter_map(|name| of(&group.join(name)).flatten()).fold(0, u64::saturating_add);
    Some(RealTime { limit, taken })
}

/// Prefers version 1 if it has the controller.
fn folder_of(thread: u32) -> Result<(Version, PathBuf), GroupError> {
    let text = fs::read_to_string(format!("/proc/{thread}/cgroup")).map_err(|_| GroupError::Gone { id: thread })?;
    let first = cgroup::v1_mount("cpu").and_then(|mount| Some((mount, cgroup::group_of(&text, "cpu")?)));
    let (version, mount, path) = match first {
        Some((mount, path)) => (Version::V1, mount, path),
        None => {
            let path = cgroup::v2_group_of(&text).map(str::to_owned);
            let second = cgroup::v2_mount().zip(path).ok_or(GroupError::NoController)?;
            (Version::V2, second.0, second.1)
        }
    };
    // `..`: the group lies outside of the cgroup namespace. `(deleted)`: the group has been
    // removed.
    if path.split('/').any(|part| part == "..") || path.ends_with(" (deleted)") {
        return Err(GroupError::Outside { id: thread, path });
    }
    Ok((version, mount.join(path.trim_start_matches('/')).components().collect()))
}

/// A group made by takt, below another group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// The thread's former group.
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) version: Version,
    /// Version 2: whether the folder passed CPU time on before.
    pub(crate) enabled: bool,
}

const CONTROL: &str = "cgroup.subtree_control";
const PREFIX: &str = "takt-";
/// The largest weight that the kernel takes.
const SHARES_MAX: &str = "262144";
const WEIGHT_MAX: &str = "10000";
/// Threads may start others while they are moved away, so the search repeats up to so many times.
const ROUNDS_MAX: u32 = 50;
/// A thread that has just ended may hold its group for a moment.
const REMOVE_TRIES_MAX: u32 = 50;

/// `takt-`, digits and hyphens: a name that takt gives.
pub(crate) fn is_ours(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX);
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
}

impl Group {
    pub(crate) fn new(place: &Place, number: &str) -> Group {
        Group::at(&Kernel, place, number)
    }

    fn at(files: &dyn Files, place: &Place, number: &str) -> Group {
        let control = files.read(&place.folder.join(CONTROL)).unwrap_or_default();
        Group {
            folder: place.folder.clone(),
            name: format!("{PREFIX}{number}"),
            version: place.version,
            enabled: place.version == Version::V1 || has_word(&control, "cpu"),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn threads(&self) -> &'static str {
        match self.version {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.threads",
        }
    }

    pub(crate) fn make(&self, files: &dyn Files, thread: u32, limit: &Limit) -> Result<(), GroupError> {
        let ours = self.path();
        let Share { runtime_us, period_us } = limit.share;
        let set = |name: &str, text: &str| {
            let path = ours.join(name);
            files.write(&path, text).map_err(|error| failed(&path, &error, hint(name, &error)))
        };
        if !self.enabled {
            let path = self.folder.join(CONTROL);
            files.write(&path, "+cpu").map_err(|error| failed(&path, &error, hint(CONTROL, &error)))?;
        }
        files.make(&ours).map_err(|error| failed(&ours, &error, hint("", &error)))?;
        match (self.version, limit.real_time) {
            (Version::V1, false) => {
                set("cpu.cfs_period_us", &period_us.to_string())?;
                set("cpu.cfs_quota_us", &runtime_us.to_string())?;
                set("cpu.shares", SHARES_MAX)?;
            }
            (Version::V1, true) => {
                set("cpu.rt_period_us", &period_us.to_string())?;
                set("cpu.rt_runtime_us", &runtime_us.to_string())?;
            }
            (Version::V2, _) => {
                set("cgroup.type", "threaded")?;
                set("cpu.max", &format!("{runtime_us} {period_us}"))?;
                set("cpu.weight", WEIGHT_MAX)?;
            }
        }
        set(self.threads(), &thread.to_string())
    }

    /// Moves all members back and removes the group. A second call does nothing. The error is the
    /// cause, in words.
    pub(crate) fn undo(&self, files: &dyn Files) -> Result<(), String> {
        let ours = self.path();
        if files.exists(&ours) {
            self.evacuate(files, &ours)?;
            remove(files, &ours).map_err(|error| format!("{} cannot be removed: {error}", ours.display()))?;
        }
        let control = self.folder.join(CONTROL);
        let others = || files.folders(&self.folder).iter().any(|name| is_ours(name));
        if !self.enabled && files.read(&control).is_ok_and(|now| has_word(&now, "cpu")) && !others() {
            // Refused if others need the controller by now; then it stays on.
            let _ = files.write(&control, "-cpu");
        }
        Ok(())
    }

    fn evacuate(&self, files: &dyn Files, ours: &Path) -> Result<(), String> {
        let home = self.folder.join(self.threads());
        for _ in 0..ROUNDS_MAX {
            let inside = files.read(&ours.join(self.threads())).unwrap_or_default();
            if inside.trim().is_empty() {
                return Ok(());
            }
            for id in inside.split_ascii_whitespace() {
                match files.write(&home, id) {
                    // The thread has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(format!("thread {id} cannot be moved to {}: {error}", home.display())),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }
}

/// How often the group used up its budget so far. Counts ordinary threads only.
pub(crate) fn throttled(folder: &Path) -> Option<Throttled> {
    parse_throttled(&fs::read_to_string(folder.join("cpu.stat")).ok()?)
}

fn parse_throttled(text: &str) -> Option<Throttled> {
    let number = |key: &str| {
        let mut words = text.lines().map(|line| line.split_ascii_whitespace());
        words.find_map(|mut words| (words.next() == Some(key)).then(|| words.next()?.parse::<u64>().ok())?)
    };
    let time = match number("throttled_time") {
        Some(ns) => Span::from_ns(ns),
        None => Span::from_us(number("throttled_usec")?),
    };
    Some(Throttled { periods: number("nr_periods")?, throttled: number("nr_throttled")?, time })
}

/// The folder of the thread's present group; `None` if the thread has ended or the group is
/// unknown.
pub(crate) fn now_in(thread: u32) -> Option<PathBuf> {
    folder_of(thread).ok().map(|(_, folder)| folder)
}

/// Removes the folder of an empty group.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    remove(&Kernel, folder)
}

fn remove(files: &dyn Files, folder: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..REMOVE_TRIES_MAX {
        match files.remove(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Err(error),
            Ok(()) => return Ok(()),
        }
        crate::clock::pause(Span::from_ms(10));
    }
    last
}

fn hint(file: &str, error: &io::Error) -> &'static str {
    match (file, error.raw_os_error()) {
        (_, Some(libc::EACCES | libc::EPERM | libc::EROFS)) => {
            "; only root, or who the group was delegated to, may make groups in it"
        }
        ("tasks" | "cgroup.threads", Some(libc::EINVAL)) => {
            "; the kernel moves no threads that it has bound to a CPU, and no SCHED_FIFO thread to a group without a \
             real-time budget"
        }
        ("cpu.rt_runtime_us", Some(libc::EINVAL)) => "; the groups above have not that much left for real-time threads",
        ("cpu.cfs_quota_us", Some(libc::EINVAL)) => "; a group above is limited to less",
        (CONTROL, Some(libc::EBUSY | libc::EOPNOTSUPP)) => {
            "; a group with both processes and other groups below it cannot"
        }
        _ => "",
    }
}

fn failed(path: &Path, error: &io::Error, hint: &'static str) -> GroupError {
    GroupError::File { path: path.to_owned(), cause: error.to_string(), hint }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
