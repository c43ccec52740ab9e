//! Scheduling domains of their own for groups of CPUs, so that SCHED_DEADLINE can be partitioned or clustered.
//!
//! If the cgroup-v1 cpuset controller is mounted, each group of CPUs gets an exclusive set, and the
//! root set does no load balancing. The other CPUs get a set of their own, so that they keep
//! balancing among themselves. Otherwise partitions of cgroup v2 are used (`cpuset/v2.rs`). Both
//! change the whole machine while they are active. The former state is written to a file first (see
//! [`recover`]). Dropping [`Partitions`] restores the former state.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use takt_model::Span;

use crate::cgroup;
use crate::clock::Epoch;
use crate::process::{Identity, boot_id};
use crate::recovery::RecoveryError;
use crate::sysfs::parse_cpu_list;
use crate::thread::Tid;

mod error;
mod state;
mod v2;

use state::{Hierarchy, Lock, State};

pub use error::CpusetError;
pub use state::Recovery;

/// The machine is divided while this lives.
#[derive(Debug)]
pub struct Partitions {
    layout: Layout,
    state: State,
    lock: Lock,
    restored: bool,
}

/// How often, and after which pause, a lock is looked at whose owner is dead.
const UNDOES_MAX: u32 = 500;
const LOOK: Span = Span::from_ms(10);

/// The cpusets of the groups.
#[derive(Debug)]
enum Layout {
    V1 {
        folders: Vec<PathBuf>,
    },
    /// With the cgroup that the process came from.
    V2 {
        plan: v2::Plan,
        home: Option<PathBuf>,
    },
}

impl Partitions {
    /// Gives each group of CPUs (the kernel's numbers; disjoint) a scheduling domain of its own.
    ///
    /// `settle` is the longest period of the SCHED_DEADLINE threads that will run in the groups.
    /// The bandwidth of an ended thread stays booked for up to one period. If the domains were
    /// rebuilt earlier, the kernel would count its return twice, and total_bw would fall below the
    /// reserved bandwidth. So restoring first waits for twice `settle`.
    ///
    /// # Errors
    /// Why not; then nothing has changed.
    pub fn create(groups: &[Vec<u32>], settle: Span) -> Result<Partitions, CpusetError> {
        let mounted = Mounted::find()?;
        let lock = acquired()?;
        let owner = Identity::current().ok_or(CpusetError::State(RecoveryError::NoIdentity))?;
        let state = |root: PathBuf, hierarchy, created| State {
            boot: boot_id().unwrap_or_default(),
            owner,
            root,
            hierarchy,
            settle,
            created,
        };
        match mounted {
            Mounted::V1(root) => {
                let folder = |i: usize| root.join(format!("takt-{}-{i}", owner.pid));
                let folders: Vec<PathBuf> = (0..groups.len()).map(folder).collect();
                let rest = rest_of(&parse_cpu_list(&read(&root.join("cpuset.cpus"))?), groups);
                let rest_folder = (!rest.is_empty()).then(|| root.join(format!("takt-{}-rest", owner.pid)));
                let load_balance = read(&root.join(LOAD_BALANCE))?.trim().to_owned();
                let created = folders.iter().chain(&rest_folder).cloned().collect();
                let state = state(root, Hierarchy::V1 { load_balance }, created);
                lock.write(&state)?;
                // From here on, dropping `partitions` undoes what was done.
                let partitions = Partitions { layout: Layout::V1 { folders }, state, lock, restored: false };
                partitions.make_v1(groups, &rest, rest_folder.as_deref())?;
                Ok(partitions)
            }
            Mounted::V2(root) => {
                let plan = v2::plan(&Kernel, root.clone(), owner.pid, groups)?;
                let created = plan.folders.iter().flatten().cloned().collect();
                let state = state(root, Hierarchy::V2 { enabled: plan.enabled }, created);
                lock.write(&state)?;
                let layout = Layout::V2 { plan: plan.clone(), home: cgroup::v2_folder() };
                let partitions = Partitions { layout, state, lock, restored: false };
                v2::make(&Kernel, &plan, owner.pid, groups)?;
                Ok(partitions)
            }
        }
    }

    fn make_v1(&self, groups: &[Vec<u32>], rest: &[u32], rest_folder: Option<&Path>) -> Result<(), CpusetError> {
        let Layout::V1 { folders } = &self.layout else { return Ok(()) };
        let memory = read(&self.state.root.join("cpuset.mems"))?;
        for (folder, cpus) in folders.iter().zip(groups) {
            make(folder, cpus, &memory)?;
            write(&folder.join("cpuset.cpu_exclusive"), "1", "; another cpuset holds some of these CPUs")?;
        }
        if let Some(folder) = rest_folder {
            make(folder, rest, &memory)?;
        }
        write(&self.state.root.join(LOAD_BALANCE), "0", "")
    }

    /// Moves the calling thread into group `index`.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn join(&self, index: usize) -> Result<(), CpusetError> {
        self.admit(index, Tid::current().get())
    }

    /// Moves another thread into group `index`: one of this process or, where the machine is
    /// divided by cgroup v1's cpusets, any that the kernel lets move. It goes back to the root set
    /// at the end.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn admit(&self, index: usize, tid: i32) -> Result<(), CpusetError> {
        match &self.layout {
            Layout::V1 { folders } => folders.get(index).map_or(Ok(()), |folder| admit_v1(&folder.join("tasks"), tid)),
            Layout::V2 { plan, .. } => v2::join(&Kernel, plan, index, tid),
        }
    }

    /// Undoes everything; what could not be undone, the next start tries again.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn restore(mut self) -> Result<(), CpusetError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), CpusetError> {
        if self.restored {
            return Ok(());
        }
        self.restored = true;
        let undone = undo(&self.state);
        if let Layout::V2 { home: Some(home), .. } = &self.layout {
            v2::go_home(&Kernel, home, self.state.owner.pid);
        }
        if undone.is_ok() {
            self.lock.forget();
        }
        undone
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        // If this fails, the state file stays and the next start repairs the machine.
        let _ = self.undo();
    }
}

/// Undoes the changes of cpusets that a killed takt left. To be called at every start; costs one look at a
/// folder where there is nothing to do.
///
/// # Errors
/// The state folder or file, or what the kernel refused.
pub fn recover() -> Result<Recovery, RecoveryError> {
    if !state::is_left() {
        return Ok(Recovery::Nothing);
    }
    match Lock::acquire()? {
        Ok(lock) => lock.repair(|state| undo(state).map_err(|error| error.to_string())),
        Err(pid) => Ok(Recovery::InUse { pid }),
    }
}

/// The lock, after what a killed takt left is undone. Another start may do that at this moment: it is waited for.
fn acquired() -> Result<Lock, CpusetError> {
    let mut looks = 0;
    loop {
        recover()?;
        let pid = match Lock::acquire()? {
            Ok(lock) => return Ok(lock),
            Err(pid) => pid,
        };
        // No owner is named, or a dead one.
        let undoes = pid == 0 || !Path::new(&format!("/proc/{pid}")).exists();
        if !undoes || looks == UNDOES_MAX {
            return Err(CpusetError::InUse(pid));
        }
        looks += 1;
        crate::clock::pause(LOOK);
    }
}

/// The obstacle to dividing this machine, found without trying.
#[must_use]
pub fn obstacle() -> Option<CpusetError> {
    let writable = |path: PathBuf| {
        fs::OpenOptions::new().write(true).open(&path).map(drop).map_err(|error| failed(&path, &error, ""))
    };
    Mounted::find()
        .and_then(|mounted| match mounted {
            Mounted::V1(root) => writable(root.join(LOAD_BALANCE)),
            Mounted::V2(root) => writable(root.join("cgroup.subtree_control")),
        })
        .err()
}

/// The root of the hierarchy that has the cpusets.
enum Mounted {
    V1(PathBuf),
    V2(PathBuf),
}

impl Mounted {
    fn find() -> Result<Mounted, CpusetError> {
        let Some(root) = cgroup::v1_mount("cpuset") else {
            return v2::root(&Kernel, cgroup::v2_mount()).map(Mounted::V2);
        };
        let own = cgroup::v1_folder("cpuset").ok_or(CpusetError::NoController)?;
        if own == root { Ok(Mounted::V1(root)) } else { Err(CpusetError::NotRoot(own.display().to_string())) }
    }
}

/// The cgroup file system of the running kernel.
struct Kernel;

impl v2::Tree for Kernel {
    fn read(&self, path: &Path) -> Result<String, CpusetError> {
        read(path)
    }
    fn write(&self, path: &Path, text: &str) -> Result<(), CpusetError> {
        write(path, text, "")
    }
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    fn make(&self, folder: &Path) -> Result<(), CpusetError> {
        fs::create_dir(folder).map_err(|error| failed(folder, &error, ""))
    }
    fn remove(&self, folder: &Path) -> Result<(), CpusetError> {
        remove(folder)
    }
}

fn make(folder: &Path, cpus: &[u32], memory: &str) -> Result<(), CpusetError> {
    fs::create_dir(folder).map_err(|error| failed(folder, &error, ""))?;
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    write(&folder.join("cpuset.cpus"), &list.join(","), "; another cpuset holds some of these CPUs exclusively")?;
    write(&folder.join("cpuset.mems"), memory.trim(), "")
}

const LOAD_BALANCE: &str = "cpuset.sched_load_balance";

/// Puts the machine back as `state` says it was. Done twice it does nothing the second time.
fn undo(state: &State) -> Result<(), CpusetError> {
    // A sleep on each CPU must not move the caller for good; where no thread can be had, one CPU's
    // sleep is better than none.
    let period = state.settle.min(SETTLE_MAX);
    match std::thread::Builder::new().spawn(move || await_bandwidth(period)) {
        Ok(settling) => drop(settling.join()),
        Err(_) => await_bandwidth(period),
    }
    match &state.hierarchy {
        Hierarchy::V1 { load_balance } => undo_v1(state, load_balance),
        Hierarchy::V2 { enabled } => v2::undo(&Kernel, &state.root, &state.created, *enabled),
    }
}

/// Until the bandwidth of ended threads, of periods up to `period`, is booked no more.
///
/// The exit of a thread may wait for one more budget, and its zero-lag time is at most a period
/// later. Then a timer on the thread's last CPU takes the bandwidth back. If a hypervisor or more
/// important work holds this CPU, the timer is served late, in time order. So the caller sleeps
/// once more on each CPU: the bandwidth timer is served before the end of this sleep.
fn await_bandwidth(period: Span) {
    let epoch = Epoch::now_is_zero();
    let wait = |span: Span| {
        let end = epoch.now().saturating_add(span);
        // A signal may cut a sleep short, not the waiting.
        while !epoch.sleep_until(end) && epoch.now() < end {}
    };
    wait(period.saturating_add(period).saturating_add(Span::from_ms(10)));
    for cpu in crate::sched::affinity() {
        if crate::sched::set_affinity(&[cpu]).is_ok() {
            wait(Span::from_us(50));
        }
    }
}

fn undo_v1(state: &State, load_balance: &str) -> Result<(), CpusetError> {
    let mut first = Ok(());
    let mut note = |result: Result<(), CpusetError>| {
        if first.is_ok() {
            first = result;
        }
    };
    for folder in state.created.iter().filter(|folder| folder.exists()) {
        note(evacuate(|| read(&folder.join("tasks")), |tid| write(&state.root.join("tasks"), tid, "")));
    }
    let balance = state.root.join(LOAD_BALANCE);
    if read(&balance).is_ok_and(|now| now.trim() != load_balance) {
        note(write(&balance, load_balance, ""));
    }
    for folder in state.created.iter().filter(|folder| folder.exists()) {
        // The kernel finishes with a removed set some time later, and rebuilds the domains then if the set balanced
        // load. The bandwidth of SCHED_DEADLINE threads that ended shortly before would come back twice. So the
        // domains are rebuilt now.
        note(write(&folder.join(LOAD_BALANCE), "0", ""));
        note(remove(folder));
    }
    first
}

/// How often is looked for threads of a set that is to go.
const EVACUATIONS_MAX: u32 = 100;

/// Moves all threads of a set to the root set. A thread may fork before it is moved, so this looks
/// again until none is left.
fn evacuate(
    threads: impl Fn() -> Result<String, CpusetError>,
    to_root: impl Fn(&str) -> Result<(), CpusetError>,
) -> Result<(), CpusetError> {
    for _ in 0..EVACUATIONS_MAX {
        let left = threads()?;
        if left.trim().is_empty() {
            break;
        }
        for tid in left.split_ascii_whitespace() {
            match to_root(tid) {
                // It ended in between.
                Err(_) if !Path::new("/proc").join(tid).exists() => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// The kernel's longest SCHED_DEADLINE period, rounded up.
const SETTLE_MAX: Span = Span::from_ms(4200);

fn remove(folder: &Path) -> Result<(), CpusetError> {
    crate::group::remove_folder(folder).map_err(|error| failed(folder, &error, ""))
}

fn rest_of(all: &[u32], groups: &[Vec<u32>]) -> Vec<u32> {
    all.iter().copied().filter(|cpu| !groups.iter().any(|group| group.contains(cpu))).collect()
}

fn read(path: &Path) -> Result<String, CpusetError> {
    fs::read_to_string(path).map_err(|error| failed(path, &error, ""))
}

/// How often a thread that cannot be moved yet is tried again, 20 ms apart.
const ADMIT_TRIES_MAX: u32 = 25;

/// A thread of the kernel's that was made but has not run yet cannot be moved (EINVAL); soon it has.
fn admit_v1(tasks: &Path, tid: i32) -> Result<(), CpusetError> {
    let tid = tid.to_string();
    for _ in 1..ADMIT_TRIES_MAX {
        match fs::write(tasks, &tid) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => crate::clock::pause(Span::from_ms(20)),
            other => return other.map_err(|error| failed(tasks, &error, "")),
        }
    }
    write(tasks, &tid, "")
}

fn write(path: &Path, text: &str, hint: &'static str) -> Result<(), CpusetError> {
    fs::write(path, text).map_err(|error| failed(path, &error, hint))
}

fn failed(path: &Path, error: &io::Error, hint: &'static str) -> CpusetError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; only root may divide the machine",
        _ => hint,
    };
    CpusetError::File { path: path.display().to_string(), cause: error.to_string(), hint }
}

/// Whether cpusets divide the machine's CPUs into several scheduling domains, as far as the root sets tell.
pub(crate) fn is_divided() -> bool {
    let v1 = cgroup::v1_mount("cpuset").and_then(|root| read(&root.join(LOAD_BALANCE)).ok());
    // The CPUs of partitions leave the root cgroup.
    let v2 = || {
        let left = read(&cgroup::v2_mount()?.join("cpuset.cpus.effective")).ok()?;
        let online = read(Path::new("/sys/devices/system/cpu/online")).ok()?;
        Some(left.trim() != online.trim())
    };
    v1.map_or_else(|| v2().unwrap_or(false), |balance| balance.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_other_cpus_are_those_of_no_group() {
        assert_eq!(rest_of(&[0, 1, 2, 3], &[vec![1], vec![3]]), [0, 2]);
        assert!(rest_of(&[0, 1], &[vec![0], vec![1]]).is_empty());
    }

    #[test]
    fn children_of_threads_that_were_not_moved_yet_are_moved_too() {
        let there = RefCell::new(vec![1]);
        let list = || Ok(there.borrow().iter().map(|tid| format!("{tid}\n")).collect());
        let to_root = |moved: &str| {
            let mut there = there.borrow_mut();
            let tid: u32 = moved.parse().unwrap();
            // The first ones fork just before.
            there.extend((tid < 8).then_some(2 * tid));
            there.retain(|other| *other != tid);
            Ok(())
        };
        assert_eq!((evacuate(list, to_root).ok(), there.into_inner()), (Some(()), Vec::new()));
    }
}
