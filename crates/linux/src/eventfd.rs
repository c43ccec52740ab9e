//! A descriptor that says to `poll` and `epoll` that something waits in memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// An eventfd(2): readable from [`EventFd::raise`] until [`EventFd::lower`]. Neither waits.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes an eventfd that is not readable yet.
    ///
    /// # Errors
    /// The process has as many descriptors as it may.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: the call passes no memory.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Makes the descriptor readable and wakes every thread that polls it.
    pub fn raise(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open, and eight bytes of `one` can be read. A full sum is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes the descriptor unreadable until the next [`EventFd::raise`].
    pub fn lower(&self) {
        let mut sum = 0u64;
        // SAFETY: the descriptor is open, and eight bytes of `sum` may be written. An unreadable one stays as it is.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut sum).cast(), 8) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_readable_while_it_is_raised() {
        let event = EventFd::new().unwrap();
        let readable = || {
            let mut asked = libc::pollfd { fd: event.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd is passed.
            unsafe { libc::poll(&raw mut asked, 1, 0) == 1 }
        };
        assert!(!readable());
        event.raise();
        event.raise();
        assert!(readable());
        event.lower();
        assert!(!readable());
        event.lower();
        assert!(!readable());
    }
}
