//! Files that have content before they have a name, or never have a name.

use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Opens a new file for writing in `folder`, without a name. Until [`name`] names it, the file
/// vanishes when it is closed, however the process ends.
///
/// # Errors
/// The kernel's refusal; also that this file system has no such files (EOPNOTSUPP, EISDIR).
pub fn nameless(folder: &Path) -> io::Result<File> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder)
}

/// Gives a [`nameless`] file its name. The named file then has all content written before.
///
/// # Errors
/// The kernel's refusal: something has this name (EEXIST), there is no /proc, the folder lies in another file system.
pub fn name(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both are C strings that outlive the call.
    let named =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if named == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A file in memory, without a name, that its owner alone may use. It vanishes when it is closed, however the process
/// ends. Meanwhile other processes of the owner open it as /proc/PID/fd/NUMBER.
///
/// # Errors
/// The kernel's refusal.
pub fn in_memory() -> io::Result<File> {
    // SAFETY: the name is a C string that outlives the call.
    let descriptor = unsafe { libc::memfd_create(c"takt".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    // The kernel makes it with all permissions.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_appears_with_its_content() {
        let folder = std::env::temp_dir().join(format!("takt-nameless-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a");
        match nameless(&folder) {
            Ok(mut file) => {
                file.write_all(b"content").unwrap();
                assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
                name(&file, &path).unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"content");
                file.write_all(b", more").unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"content, more");
                assert_eq!(name(&nameless(&folder).unwrap(), &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            }
            Err(error) => println!("skipped: {error}"),
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_in_memory_is_its_owners_and_goes_when_it_is_closed() {
        let mut file = in_memory().unwrap();
        file.write_all(b"content").unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let about = fs::metadata(&path).unwrap();
        assert_eq!((about.is_file(), about.permissions().mode() & 0o777), (true, 0o600));
        // Each reader begins at the start.
        for _ in 0..2 {
            assert_eq!(fs::read(&path).unwrap(), b"content");
        }
        drop(file);
        // Another test may have the number by now.
        assert_ne!(fs::read(&path).ok().as_deref(), Some(&b"content"[..]));
    }
}
