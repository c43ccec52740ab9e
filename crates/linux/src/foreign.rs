//! Existing threads of a control group (version 2): their ids, states and CPU time, and a switch to freeze them all.
//!
//! The kernel freezes a group with all threads in it, later ones included. A frozen thread uses no CPU time. If the
//! kernel cannot restart a system call, it may return EINTR when the group goes on, as after SIGSTOP and SIGCONT.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use takt_model::{Span, Threads};
use thiserror::Error;

use crate::process::{Identity, parent_of};
use crate::sched::Class;
use crate::{cgroup, sched};

/// The reason why existing threads cannot be held.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// Version 2 of control groups is not mounted.
    #[error(
        "threads \"{threads}\": cgroup v2 is not mounted, and only it freezes threads; as root: mkdir -p \
         /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"
    )]
    NoHierarchy {
        /// As the System names them.
        threads: Threads,
    },
    /// No such process.
    #[error("threads \"{threads}\": there is no such process; \"ps -e\" lists them")]
    NoProcess {
        /// As the System names them.
        threads: Threads,
    },
    /// The number of a thread within a process.
    #[error("threads \"{threads}\": that is a thread of process {process}; name the process, or move it to a cgroup")]
    OfProcess {
        /// As the System names them.
        threads: Threads,
        /// The process.
        process: u32,
    },
    /// A thread of the kernel's own.
    #[error("threads \"{threads}\": this is a kernel thread, and kernel threads cannot be frozen")]
    OfKernel {
        /// As the System names them.
        threads: Threads,
    },
    /// No such group.
    #[error("threads \"{threads}\": there is no group {}; {remedy}", path.display())]
    NoGroup {
        /// As the System names them.
        threads: Threads,
        /// Where it would be.
        path: PathBuf,
        /// What to do.
        remedy: &'static str,
    },
    /// Several groups have the name of the unit.
    #[error("threads \"{threads}\": several groups have that name: {groups}; name one as \"cgroup:/...\"")]
    Several {
        /// As the System names them.
        threads: Threads,
        /// Their folders.
        groups: String,
    },
    /// The calling process would freeze itself.
    #[error(
        "threads \"{threads}\": takt itself is among them, and would freeze itself; start it in another group, as with \
         systemd-run --scope"
    )]
    Own {
        /// As the System names them.
        threads: Threads,
    },
    /// Threads of two components.
    #[error(
        "threads \"{threads}\": they are also among the threads \"{other}\" of another component, and a thread belongs \
         to one; name groups apart from each other"
    )]
    Shared {
        /// As the System names them.
        threads: Threads,
        /// Those of the other component.
        other: Threads,
    },
    /// Somebody froze them.
    #[error(
        "threads \"{threads}\": {path} is frozen already; thaw it first: echo 0 > {path}/cgroup.freeze",
        path = path.display()
    )]
    Frozen {
        /// As the System names them.
        threads: Threads,
        /// The group.
        path: PathBuf,
    },
    /// The kernel does not schedule the group as one.
    #[error(
        "threads \"{threads}\": {path} has no cpu.max, and schedulers learn only of groups with the controller cpu; as \
         root: echo +cpu > {around}/cgroup.subtree_control",
        path = path.display(),
        around = path.parent().unwrap_or(path).display()
    )]
    NoController {
        /// As the System names them.
        threads: Threads,
        /// The group.
        path: PathBuf,
    },
    /// A thread that no server of sched_ext can hold.
    #[error("threads \"{threads}\": thread {id} {why}")]
    Apart {
        /// As the System names them.
        threads: Threads,
        /// The thread.
        id: u32,
        /// The reason and the remedy.
        why: String,
    },
    /// The kernel refused an operation.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: String,
    },
}

/// Where threads are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignGroup {
    /// The folder of their group, or of the group below which one is made for the process.
    pub folder: PathBuf,
    /// The process that gets a group of its own.
    pub process: Option<Identity>,
}

/// The switch of a group.
const FREEZE: &str = "cgroup.freeze";
/// Its limit.
pub(crate) const MAX: &str = "cpu.max";
/// At most so many groups are looked at.
pub(crate) const GROUPS_MAX: usize = 100_000;

impl ForeignGroup {
    /// Finds the threads. Nothing is changed.
    ///
    /// # Errors
    /// They are not there, or must not be frozen.
    pub fn find(threads: &Threads) -> Result<ForeignGroup, ForeignError> {
        let of = || threads.clone();
        let mount = cgroup::v2_mount().ok_or_else(|| ForeignError::NoHierarchy { threads: of() })?;
        let found = match threads {
            Threads::Pid(pid) => return Self::of_process(threads, *pid, &mount),
            Threads::Cgroup(path) => {
                let folder = mount.join(path.trim_start_matches('/'));
                let remedy = "/proc/PID/cgroup has the group of a process behind \"0::\"";
                if !folder.join(FREEZE).exists() {
                    return Err(ForeignError::NoGroup { threads: of(), path: folder, remedy });
                }
                folder
            }
            Threads::Unit(name) => match unit(&mount, name).as_slice() {
                [one] => one.clone(),
                [] => {
                    let remedy = "start the unit first; \"systemctl status\" shows the groups of units";
                    return Err(ForeignError::NoGroup { threads: of(), path: PathBuf::from(name), remedy });
                }
                several => {
                    let groups: Vec<String> = several.iter().map(|folder| folder.display().to_string()).collect();
                    return Err(ForeignError::Several { threads: of(), groups: groups.join(", ") });
                }
            },
        };
        if cgroup::v2_folder().is_none_or(|own| own.starts_with(&found)) {
            return Err(ForeignError::Own { threads: of() });
        }
        if is_frozen(&found) {
            return Err(ForeignError::Frozen { threads: of(), path: found });
        }
        Ok(ForeignGroup { folder: found, process: None })
    }

    /// Whether a thread may be in both.
    #[must_use]
    pub fn overlaps(&self, other: &ForeignGroup) -> bool {
        let is_below = |one: &ForeignGroup, around: &ForeignGroup| one.folder.starts_with(&around.folder);
        match (&self.process, &other.process) {
            // A process is held with those that it has started.
            (Some(one), Some(two)) => {
                one == two
                    || (self.folder == other.folder && (is_within(one.pid, two.pid) || is_within(two.pid, one.pid)))
            }
            (Some(_), None) => is_below(self, other),
            (None, Some(_)) => is_below(other, self),
            (None, None) => is_below(self, other) || is_below(other, self),
        }
    }

    fn of_process(threads: &Threads, pid: u32, mount: &Path) -> Result<ForeignGroup, ForeignError> {
        let of = || threads.clone();
        let gone = || ForeignError::NoProcess { threads: of() };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| gone())?;
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
        let process = field("Tgid:").ok_or_else(gone)?;
        if process != pid {
            return Err(ForeignError::OfProcess { threads: of(), process });
        }
        if pid == std::process::id() {
            return Err(ForeignError::Own { threads: of() });
        }
        // A kernel thread has no memory of its own.
        if !status.lines().any(|line| line.starts_with("VmSize:")) {
            return Err(ForeignError::OfKernel { threads: of() });
        }
        let identity = Identity::of(pid).filter(Identity::is_alive).ok_or_else(gone)?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|_| gone())?;
        let path = cgroup::v2_group_of(&groups).unwrap_or("/");
        let folder: PathBuf = mount.join(path.trim_start_matches('/')).components().collect();
        if path.split('/').any(|part| part == "..") || !folder.exists() {
            let remedy = "it is outside of this container; run takt beside it";
            return Err(ForeignError::NoGroup { threads: of(), path: folder, remedy });
        }
        if is_frozen(&folder) {
            return Err(ForeignError::Frozen { threads: of(), path: folder });
        }
        Ok(ForeignGroup { folder, process: Some(identity) })
    }
}

/// The folders of groups that have a unit's name.
fn unit(mount: &Path, name: &str) -> Vec<PathBuf> {
    let is_named = |folder: &PathBuf| folder != mount && folder.file_name().is_some_and(|own| own == name);
    let mut found: Vec<PathBuf> = groups(mount.to_owned()).take(GROUPS_MAX).filter(is_named).collect();
    found.sort();
    found
}

/// The folders of a group and of all groups below it.
pub(crate) fn groups(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    let mut waiting = vec![folder];
    std::iter::from_fn(move || {
        let folder = waiting.pop()?;
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(below.map(|entry| entry.path()));
        Some(folder)
    })
}

/// Whether the group or one around it is frozen, or about to be.
fn is_frozen(folder: &Path) -> bool {
    let frozen = |group: &Path| fs::read_to_string(group.join(FREEZE)).is_ok_and(|text| text.trim() == "1");
    folder.ancestors().any(frozen)
}

/// The group of a process, as a path below the mount.
pub(crate) fn group_of(process: u32) -> Option<String> {
    cgroup::v2_group(&process.to_string())
}

/// Whether a process was started by another, or by one that it has started.
fn is_within(process: u32, ancestor: u32) -> bool {
    std::iter::successors(parent_of(process), |parent| parent_of(*parent)).any(|parent| parent == ancestor)
}

/// The descendants of a process in the group `home`. Descendants in `ours` are left out, but their children are not.
/// The calling process and its own children are left out.
pub(crate) fn started_by(process: u32, home: &str, ours: &str) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| *id != std::process::id())
        .filter_map(|id| Some((id, parent_of(id)?)))
        .collect();
    let (mut family, mut at_home, mut next) = (vec![process], Vec::new(), 0);
    while let Some(parent) = family.get(next).copied() {
        next += 1;
        for (id, _) in all.iter().filter(|(_, of)| *of == parent) {
            match group_of(*id) {
                Some(group) if !family.contains(id) && (group == home || group == ours) => {
                    family.push(*id);
                    at_home.extend((group == home).then_some(*id));
                }
                _ => {}
            }
        }
    }
    at_home
}

/// The threads in a group and in those below it, ascending.
#[must_use]
pub fn members(folder: &Path) -> Vec<u32> {
    let mut ids = Vec::new();
    for group in groups(folder.to_owned()) {
        let text = fs::read_to_string(group.join("cgroup.threads")).unwrap_or_default();
        ids.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()).filter(|id| *id > 0));
    }
    ids.sort_unstable();
    ids
}

/// Why no server of sched_ext on this CPU (the kernel's number) can hold a thread; `None` if one can, or if the thread
/// has ended.
#[must_use]
pub fn apart(id: u32, cpu: u32) -> Option<String> {
    let class = sched::of_thread(id)?.class;
    if !matches!(class, Class::Other | Class::Ext) {
        let class = class.describe();
        return Some(format!("is under {class}, above all threads of sched_ext; make it ordinary: chrt -o -p 0 {id}"));
    }
    let cpus = sched::affinity_of(id);
    let excludes = !cpus.is_empty() && !cpus.contains(&cpu);
    excludes.then(|| format!("may not use CPU {cpu}, which has its server; let it: taskset -p -c {cpu} {id}"))
}

/// The kernel's number of a group that schedulers learn of.
///
/// # Errors
/// The group has not the controller cpu, or is gone.
pub fn number_of(threads: &Threads, folder: &Path) -> Result<u64, ForeignError> {
    if !folder.join(MAX).exists() {
        return Err(ForeignError::NoController { threads: threads.clone(), path: folder.to_owned() });
    }
    let failed = |error: std::io::Error| ForeignError::File { path: folder.to_owned(), cause: error.to_string() };
    Ok(fs::metadata(folder).map_err(failed)?.ino())
}

/// Lets a group go on, whoever froze it.
pub(crate) fn thaw(folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join(FREEZE), "0")
}

/// The switch of a group, and its meter. Their use allocates nothing.
#[derive(Debug)]
pub struct ForeignControl {
    freeze: File,
    stat: File,
}

impl ForeignControl {
    /// Opens them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open(folder: &Path) -> Result<ForeignControl, ForeignError> {
        let failed =
            |path: &Path, error: std::io::Error| ForeignError::File { path: path.to_owned(), cause: error.to_string() };
        let (freeze, stat) = (folder.join(FREEZE), folder.join("cpu.stat"));
        Ok(ForeignControl {
            freeze: OpenOptions::new().write(true).open(&freeze).map_err(|error| failed(&freeze, error))?,
            stat: File::open(&stat).map_err(|error| failed(&stat, error))?,
        })
    }

    /// Freezes all threads of the group. A thread of a less important priority on the caller's CPU gets to no further
    /// instruction in user mode. `false`: the kernel refused, so the group has gone.
    pub fn freeze(&self) -> bool {
        self.freeze.write_at(b"1", 0).is_ok()
    }

    /// Lets them go on.
    pub fn thaw(&self) -> bool {
        self.freeze.write_at(b"0", 0).is_ok()
    }

    /// CPU time of the group's present and former threads, in whole microseconds. `None`: the group
    /// has gone.
    #[must_use]
    pub fn used(&self) -> Option<Span> {
        let mut text = [0; 64];
        let length = self.stat.read_at(&mut text, 0).ok()?;
        usage(text.get(..length)?)
    }
}

/// The first line is `usage_usec NUMBER`.
fn usage(text: &[u8]) -> Option<Span> {
    let digits = text.strip_prefix(b"usage_usec ")?.iter().take_while(|byte| byte.is_ascii_digit());
    let us = digits.fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(Span::from_us(us))
}

/// A thread, to be asked whether it wants to run.
#[derive(Debug)]
pub struct WatchedThread(File);

impl WatchedThread {
    /// `None`: it has ended.
    ///
    /// # Errors
    /// The kernel's refusal: too many files are open.
    pub fn open(id: u32) -> io::Result<Option<WatchedThread>> {
        // A thread's own entry exists beside those of processes, though no list has it.
        match File::open(format!("/proc/{id}/task/{id}/stat")) {
            Ok(file) => Ok(Some(WatchedThread(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it runs or waits for a CPU. Allocates nothing.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        let mut text = [0; 256];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        text.get(..length).is_some_and(|text| state(text) == Some(b'R'))
    }
}

/// The letter behind the name in parentheses, which may hold anything of at most 64 bytes.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_and_the_state_are_read() {
        assert_eq!(usage(b"usage_usec 1378184372\nuser_usec 12"), Some(Span::from_us(1_378_184_372)));
        assert_eq!(usage(b"usage_usec "), Some(Span::ZERO));
        assert_eq!(usage(b"nr_periods 3\n"), None);
        assert_eq!(state(b"7 (a) R) S 1 7"), Some(b'S'));
        assert_eq!(state(b"7 (a)"), None);
        let me = WatchedThread::open(u32::try_from(crate::thread::Tid::current().get()).unwrap()).unwrap().unwrap();
        assert!(me.is_runnable());
    }

    #[test]
    fn groups_overlap_if_a_thread_may_be_in_both() {
        let group = |path: &str, process: Option<Identity>| ForeignGroup { folder: PathBuf::from(path), process };
        let [me, parent] =
            [std::process::id(), std::os::unix::process::parent_id()].map(|id| Identity::of(id).unwrap());
        let whole = group("/c/app", None);
        for (other, overlaps) in [
            (group("/c/app", None), true),
            (group("/c/app/inner", None), true),
            (group("/c", None), true),
            (group("/c/apple", None), false),
            (group("/c/app/inner", Some(me)), true),
            (group("/c", Some(me)), false),
        ] {
            assert_eq!((whole.overlaps(&other), other.overlaps(&whole)), (overlaps, overlaps), "{other:?}");
        }
        let process = group("/c", Some(me));
        assert!(process.overlaps(&group("/c", Some(me))));
        // The parent is held with its children in the same group.
        assert!(process.overlaps(&group("/c", Some(parent))) && group("/c", Some(parent)).overlaps(&process));
        assert!(!process.overlaps(&group("/c/other", Some(parent))));
    }

    #[test]
    fn missing_threads_and_unfreezable_threads_are_refused() {
        let of = |text: &str| ForeignGroup::find(&Threads::parse(text).unwrap()).unwrap_err();
        let own = of(&format!("pid:{}", std::process::id()));
        if matches!(own, ForeignError::NoHierarchy { .. }) {
            return println!("skipped: {own}");
        }
        assert!(matches!(own, ForeignError::Own { .. }), "{own}");
        assert!(matches!(of("pid:4194304"), ForeignError::NoProcess { .. }));
        assert!(matches!(of("cgroup:/no/such/group"), ForeignError::NoGroup { .. }));
        assert!(matches!(of("unit:no-such-unit-of-takt.service"), ForeignError::NoGroup { .. }));
        let (tell, told) = std::sync::mpsc::channel();
        let (_keep, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(crate::thread::Tid::current().get()).unwrap();
            let _ = wait.recv();
        });
        let thread = of(&format!("pid:{}", told.recv().unwrap()));
        assert!(matches!(thread, ForeignError::OfProcess { process, .. } if process == std::process::id()), "{thread}");
        drop(_keep);
        other.join().unwrap();
    }
}
