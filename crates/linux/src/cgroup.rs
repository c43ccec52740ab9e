//! Where the control groups of this machine and of this process are.

use std::fs;
use std::path::PathBuf;

/// Mount point of the version-1 hierarchy of `controller`.
pub(crate) fn v1_mount(controller: &str) -> Option<PathBuf> {
    mount_of(&fs::read_to_string("/proc/self/mountinfo").ok()?, controller)
}

/// The folder of this process's version-1 cgroup of `controller`.
pub(crate) fn v1_folder(controller: &str) -> Option<PathBuf> {
    let path = group_of(&fs::read_to_string("/proc/self/cgroup").ok()?, controller)?;
    Some(v1_mount(controller)?.join(path.trim_start_matches('/'))).map(|folder| folder.components().collect())
}

/// Mount point of the version-2 hierarchy.
pub(crate) fn v2_mount() -> Option<PathBuf> {
    v2_mount_of(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// The folder of this process's version-2 cgroup.
pub(crate) fn v2_folder() -> Option<PathBuf> {
    let path = v2_group("self")?;
    Some(v2_mount()?.join(path.trim_start_matches('/')).components().collect())
}

/// The path of a process's version-2 cgroup, below the mount. `process`: its name in /proc.
pub(crate) fn v2_group(process: &str) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    v2_group_of(&groups).map(str::to_owned)
}

/// In /proc/PID/cgroup: the path of the version-2 cgroup.
pub(crate) fn v2_group_of(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

fn v2_mount_of(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        (filesystem.split(' ').next()? == "cgroup2" && root == "/").then(|| PathBuf::from(point))
    })
}

/// In mountinfo: the mount point is field 5; after " - " come type, source and super options. A mount that shows only a
/// part of the hierarchy (field 4 is not "/") does not count.
fn mount_of(mountinfo: &str, controller: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut filesystem = filesystem.split(' ');
        let is_v1 = filesystem.next()? == "cgroup";
        let has = filesystem.nth(1)?.split(',').any(|option| option == controller);
        (is_v1 && has && root == "/").then(|| PathBuf::from(point))
    })
}

/// In /proc/self/cgroup: `number:controller,controller:path`.
pub(crate) fn group_of(cgroup: &str, controller: &str) -> Option<String> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let has = fields.next()?.split(',').any(|name| name == controller);
        let path = fields.next()?;
        has.then(|| path.to_owned())
    })
}

/// Whether a list of words has this one.
pub(crate) fn has_word(text: &str, wanted: &str) -> bool {
    text.split_ascii_whitespace().any(|word| word == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_groups_are_found() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      33 30 0:29 /part /mnt/cpuset rw - cgroup cgroup rw,cpuset\n\
                      32 30 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_of(mounts, "cpuset"), Some(PathBuf::from("/sys/fs/cgroup/cpuset")));
        assert_eq!(mount_of(mounts, "cpu"), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(mount_of(mounts, "memory"), None);
        assert_eq!(v2_mount_of(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let groups = "4:memory:/a:b\n3:cpuset:/\n1:cpu,cpuacct:/x\n0::/\n";
        assert_eq!(group_of(groups, "cpu").as_deref(), Some("/x"));
        assert_eq!(group_of(groups, "memory").as_deref(), Some("/a:b"));
    }
}
