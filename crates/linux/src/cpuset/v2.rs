//! Partitions of cgroup version 2 (Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files").
//!
//! A cgroup with `root` in `cpuset.cpus.partition` is a scheduling domain of its own.
//! SCHED_DEADLINE admits and balances within such a domain. With `isolated` two CPUs of a cluster
//! could not share work, because it switches off balancing. The CPUs of a partition leave the root
//! cgroup, which must keep at least one CPU. If the groups take all CPUs, the first group stays in
//! the root cgroup, whose domain then has just the CPUs of this group.
//!
//! takt moves single threads, so the partitions are *threaded* cgroups directly below the root.
//! Their resource domain is the root cgroup. So the whole process moves to the root cgroup as long
//! as the partitions exist.

use std::path::{Path, PathBuf};

use super::error::CpusetError;
use crate::cgroup::has_word;
use crate::sysfs::parse_cpu_list;

/// Operations on a cgroup file system. Tests use a fake.
pub(crate) trait Tree {
    fn read(&self, path: &Path) -> Result<String, CpusetError>;
    fn write(&self, path: &Path, text: &str) -> Result<(), CpusetError>;
    fn exists(&self, path: &Path) -> bool;
    fn make(&self, folder: &Path) -> Result<(), CpusetError>;
    fn remove(&self, folder: &Path) -> Result<(), CpusetError>;
}

const CONTROL: &str = "cgroup.subtree_control";
const PARTITION: &str = "cpuset.cpus.partition";
const THREADS: &str = "cgroup.threads";
const PROCESSES: &str = "cgroup.procs";

/// Folders of the partitions, and the state to restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) root: PathBuf,
    /// Per group of CPUs: its cgroup; `None` for the one that stays with the root.
    pub(crate) folders: Vec<Option<PathBuf>>,
    /// Whether the root gave cpusets to its children before.
    pub(crate) enabled: bool,
}

/// The mount point, if what is mounted there is the real root and has cpusets to give.
pub(crate) fn root(tree: &dyn Tree, mount: Option<PathBuf>) -> Result<PathBuf, CpusetError> {
    let mount = mount.ok_or(CpusetError::NoController)?;
    let controllers = tree.read(&mount.join("cgroup.controllers"))?;
    if !has_word(&controllers, "cpuset") {
        return Err(CpusetError::NoController);
    }
    // Only cgroups below the root have a type: a container sees one of those as its root.
    if tree.exists(&mount.join("cgroup.type")) {
        Err(CpusetError::NotRoot(mount.display().to_string()))
    } else {
        Ok(mount)
    }
}

/// Plans partitions for these groups of CPUs (disjoint; the kernel's numbers). Changes nothing.
pub(crate) fn plan(tree: &dyn Tree, root: PathBuf, pid: u32, groups: &[Vec<u32>]) -> Result<Plan, CpusetError> {
    let all = parse_cpu_list(&tree.read(&root.join("cpuset.cpus.effective"))?);
    let taken = |cpu: &u32| groups.iter().any(|group| group.contains(cpu));
    let first_stays = all.iter().all(taken);
    let folder = |i: usize| (i > 0 || !first_stays).then(|| root.join(format!("takt-{pid}-{i}")));
    let folders = (0..groups.len()).map(folder).collect();
    let enabled = has_word(&tree.read(&root.join(CONTROL))?, "cpuset");
    Ok(Plan { root, folders, enabled })
}

/// Makes the partitions and moves process `pid` to the root cgroup.
pub(crate) fn make(tree: &dyn Tree, plan: &Plan, pid: u32, groups: &[Vec<u32>]) -> Result<(), CpusetError> {
    if !plan.enabled {
        tree.write(&plan.root.join(CONTROL), "+cpuset")?;
    }
    tree.write(&plan.root.join(PROCESSES), &pid.to_string())?;
    for (folder, cpus) in plan.folders.iter().zip(groups) {
        let Some(folder) = folder else { continue };
        tree.make(folder)?;
        tree.write(&folder.join("cgroup.type"), "threaded")?;
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        tree.write(&folder.join("cpuset.cpus"), &list.join(","))?;
        let partition = folder.join(PARTITION);
        tree.write(&partition, "root")?;
        // The kernel takes the word and says afterwards whether it holds: "root invalid (why)".
        let became = tree.read(&partition)?;
        if became.trim() != "root" {
            let path = partition.display().to_string();
            return Err(CpusetError::File { path, cause: format!("it became \"{}\"", became.trim()), hint: "" });
        }
    }
    Ok(())
}

/// Moves thread `tid` into group `index`.
pub(crate) fn join(tree: &dyn Tree, plan: &Plan, index: usize, tid: i32) -> Result<(), CpusetError> {
    match plan.folders.get(index) {
        Some(Some(folder)) => tree.write(&folder.join(THREADS), &tid.to_string()),
        _ => Ok(()),
    }
}

/// Undoes [`make`], as far as it came; a second time it does nothing. Tries everything and gives the first failure.
pub(crate) fn undo(tree: &dyn Tree, root: &Path, created: &[PathBuf], enabled: bool) -> Result<(), CpusetError> {
    let mut first = Ok(());
    let mut note = |result: Result<(), CpusetError>| {
        if first.is_ok() {
            first = result;
        }
    };
    for folder in created.iter().filter(|folder| tree.exists(folder)) {
        note(super::evacuate(|| tree.read(&folder.join(THREADS)), |tid| tree.write(&root.join(THREADS), tid)));
        let partition = folder.join(PARTITION);
        // Its CPUs go back before it goes; a cgroup that never got so far has no such word.
        if tree.read(&partition).is_ok_and(|now| now.trim() != "member") {
            note(tree.write(&partition, "member"));
        }
        note(tree.remove(folder));
    }
    if !enabled && tree.read(&root.join(CONTROL)).is_ok_and(|now| has_word(&now, "cpuset")) {
        // Refused where another program has come to use cpusets in between: then they stay.
        let _ = tree.write(&root.join(CONTROL), "-cpuset");
    }
    first
}

/// Moves process `pid` back to its former cgroup. If that no longer exists, the process stays in
/// the root cgroup.
pub(crate) fn go_home(tree: &dyn Tree, home: &Path, pid: u32) {
    if tree.exists(home) {
        let _ = tree.write(&home.join(PROCESSES), &pid.to_string());
    }
}

#[cfg(test)]
#[path = "v2_tests.rs"]
mod tests;
