//! File systems of the kernel (tracefs, debugfs): the mounted ones, or a private mount of our own.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file system that has no device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    name: &'static CStr,
    usual: &'static str,
}

impl Kind {
    /// The usual mount point.
    pub(crate) const fn usual(self) -> &'static str {
        self.usual
    }
}

/// The kernel's tracer.
pub(crate) const TRACEFS: Kind = Kind { name: c"tracefs", usual: "/sys/kernel/tracing" };
/// debugfs: the kernel's debugging files, among them the bookings of its scheduler.
pub(crate) const DEBUGFS: Kind = Kind { name: c"debugfs", usual: "/sys/kernel/debug" };

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mount {
    root: PathBuf,
    // A mount that is attached to no folder. The kernel removes it when this descriptor is closed.
    own: Option<OwnedFd>,
}

impl Mount {
    /// Its mount point, or else a mount of our own.
    pub(crate) fn find(kind: Kind) -> io::Result<Mount> {
        Self::mounted(kind).map_or_else(|| Self::detached(kind), Ok)
    }

    /// Its mount point.
    pub(crate) fn mounted(kind: Kind) -> Option<Mount> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        Some(Mount { root: mounted_at(&mounts, kind)?, own: None })
    }

    /// A mount that is attached to no folder, reached by its descriptor: nothing to undo (Linux 5.2).
    pub(crate) fn detached(kind: Kind) -> io::Result<Mount> {
        const FSOPEN_CLOEXEC: libc::c_uint = 1;
        const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
        const FSMOUNT_CLOEXEC: libc::c_uint = 1;
        // SAFETY: the name is a C string that lives as long as the program.
        let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.name.as_ptr(), FSOPEN_CLOEXEC) })?;
        let null = std::ptr::null::<libc::c_char>();
        // SAFETY: the descriptor is open; this command takes neither key nor value.
        let made =
            unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open; the call passes no memory.
        let mount = owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Mount { root, own: Some(mount) })
    }

    /// Its folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the mount is private to this process.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

/// debugfs, looked for once: a mount of our own stays for as long as the process, and costs milliseconds to make.
pub(crate) fn debugfs() -> Result<&'static Mount, io::ErrorKind> {
    static FOUND: OnceLock<Result<Mount, io::ErrorKind>> = OnceLock::new();
    FOUND.get_or_init(|| Mount::find(DEBUGFS).map_err(|error| error.kind())).as_ref().map_err(|kind| *kind)
}

fn owned(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(descriptor) {
        // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The usual place where it is mounted there, else the first.
fn mounted_at(mounts: &str, kind: Kind) -> Option<PathBuf> {
    let mut places = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, of) = (fields.next()?, fields.next()?, fields.next()?);
        (of.as_bytes() == kind.name.to_bytes()).then(|| PathBuf::from(unescaped(place)))
    });
    let first = places.next()?;
    let usual = Path::new(kind.usual);
    if first == usual || places.any(|place| place == usual) { Some(usual.to_owned()) } else { Some(first) }
}

/// Spaces and the like stand as `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                whole.push(char::from(byte));
                whole.push_str(&part[3..]);
            }
            None => {
                whole.push('\\');
                whole.push_str(part);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_mount_is_preferred_and_names_are_unescaped() {
        let elsewhere = "nodev /sys/kernel/debug/tracing tracefs rw 0 0\n";
        let odd = "nodev /mnt/a\\040b\\x tracefs rw 0 0\n";
        let usual = "proc /proc proc rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mounted_at(&format!("{elsewhere}{usual}"), TRACEFS).unwrap(), Path::new("/sys/kernel/tracing"));
        assert_eq!(mounted_at(&format!("{odd}{elsewhere}"), TRACEFS).unwrap(), Path::new("/mnt/a b\\x"));
        assert_eq!(mounted_at("proc /proc proc rw 0 0\n", TRACEFS), None);
        assert_eq!(mounted_at(usual, DEBUGFS), None);
    }

    #[test]
    fn mounts_of_our_own_show_what_the_kernel_has_and_hang_nowhere() {
        for (kind, part) in [(TRACEFS, "instances"), (DEBUGFS, "sched")] {
            let before = fs::read_to_string("/proc/mounts").unwrap();
            match Mount::detached(kind) {
                Ok(mount) => {
                    assert!(mount.is_own() && mount.root().join(part).is_dir(), "{kind:?}");
                    let attached = fs::read_to_string("/proc/mounts").unwrap();
                    assert!(attached.len() == before.len() && !attached.contains("/proc/self/fd"), "{kind:?}");
                }
                Err(error) => println!("skipped: {kind:?} cannot be mounted here: {error}"),
            }
        }
    }
}
