//! Partitions of cgroup version 2 (Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files").
//!
//! A cgroup whose `cpuset.cpus.partition` is `root` is a scheduling domain of its own: what SCHED_DEADLINE admits and
//! balances within. (`isolated` would switch balancing off within it, so a cluster of two CPUs could not share work.)
//! The CPUs of a partition leave the root cgroup, which must keep one at least; so where the groups take all CPUs, the
//! first one stays with the root cgroup, whose domain is then just that group.
//!
//! Single threads are moved, so the partitions are *threaded* cgroups right below the root, and the
//! whole process goes to the root cgroup, their resource domain, as long as they are there.

use std::path::{Path, PathBuf};

use super::CpusetError;
use crate::machine::parse_cpu_list;

/// What is done to a cgroup file system; the tests have one of their own.
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

/// Where things are, and what must be undone.
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

fn has_word(text: &str, wanted: &str) -> bool {
    text.split_ascii_whitespace().any(|word| word == wanted)
}

/// What will be done for these groups of CPUs (disjoint; the kernel's numbers). Changes nothing.
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
        note(evacuate(tree, folder, root));
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

fn evacuate(tree: &dyn Tree, folder: &Path, root: &Path) -> Result<(), CpusetError> {
    for tid in tree.read(&folder.join(THREADS))?.split_ascii_whitespace() {
        match tree.write(&root.join(THREADS), tid) {
            // It ended in between.
            Err(_) if !Path::new("/proc").join(tid).exists() => {}
            other => other?,
        }
    }
    Ok(())
}

/// Moves process `pid` back to the cgroup that it came from. Where that is gone, it stays in the root cgroup.
pub(crate) fn go_home(tree: &dyn Tree, home: &Path, pid: u32) {
    if tree.exists(home) {
        let _ = tree.write(&home.join(PROCESSES), &pid.to_string());
    }
}

#[cfg(test)]
#[path = "v2_tests.rs"]
mod tests;
