//! Where the kernel's tracer is: tracefs as it is mounted, or a mount of our own that nobody else sees.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use super::error::RecorderError;

/// tracefs.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    // A mount that hangs nowhere; the kernel undoes it when this is closed.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Where it is mounted; where it is not, a mount of our own.
    pub(crate) fn find() -> Result<Tracefs, RecorderError> {
        match Self::mounted() {
            Some(tracefs) => Ok(tracefs),
            None => Self::detached().map_err(|error| RecorderError::NotMounted { cause: error.to_string() }),
        }
    }

    /// Where it is mounted.
    pub(crate) fn mounted() -> Option<Tracefs> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        Some(Tracefs { root: mounted_at(&mounts)?, _mount: None })
    }

    /// A mount that is attached to no folder, reached by its descriptor: nothing to undo (Linux 5.2).
    pub(crate) fn detached() -> io::Result<Tracefs> {
        const FSOPEN_CLOEXEC: libc::c_uint = 1;
        const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
        const FSMOUNT_CLOEXEC: libc::c_uint = 1;
        let kind = CString::from(c"tracefs");
        // SAFETY: `kind` is a C string that outlives the call.
        let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
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
        Ok(Tracefs { root, _mount: Some(mount) })
    }

    /// Its folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of instances.
    pub(crate) fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }
}

fn owned(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(descriptor) {
        // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The usual place where it is mounted there, else the first.
fn mounted_at(mounts: &str) -> Option<PathBuf> {
    let mut places = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "tracefs").then(|| PathBuf::from(unescaped(place)))
    });
    let first = places.next()?;
    let usual = Path::new("/sys/kernel/tracing");
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
        let debugfs = "nodev /sys/kernel/debug/tracing tracefs rw 0 0\n";
        let odd = "nodev /mnt/a\\040b\\x tracefs rw 0 0\n";
        let usual = "proc /proc proc rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mounted_at(&format!("{debugfs}{usual}")).unwrap(), Path::new("/sys/kernel/tracing"));
        assert_eq!(mounted_at(&format!("{odd}{debugfs}")).unwrap(), Path::new("/mnt/a b\\x"));
        assert_eq!(mounted_at("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn a_mount_of_our_own_shows_the_same_tracer() {
        match Tracefs::detached() {
            Ok(tracefs) => {
                assert!(tracefs.instances().is_dir());
                let attached = fs::read_to_string("/proc/mounts").unwrap();
                assert!(!attached.contains("/proc/self/fd"), "it hangs nowhere");
            }
            Err(error) => println!("skipped: tracefs cannot be mounted here: {error}"),
        }
    }
}
