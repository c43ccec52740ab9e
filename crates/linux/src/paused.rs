//! A child process that waits before it becomes its program.

use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use crate::clock;
use crate::hold::Deadline;
use crate::sched::{self, Attributes, Class, SchedError};

/// A child process that already has its id but has not yet executed its program. An observer can
/// attach before the program starts. Dropping this ends the child without running the program.
#[derive(Debug)]
pub struct PausedChild {
    id: u32,
    go: Option<PipeWriter>,
    spawning: Option<JoinHandle<io::Result<Child>>>,
}

/// Why a child that is to have a reservation was not started.
#[derive(Debug, thiserror::Error)]
pub enum ReservedError {
    /// The kernel refused the reservation.
    #[error(transparent)]
    Class(SchedError),
    /// The kernel refused the child.
    #[error(transparent)]
    Start(io::Error),
}

impl PausedChild {
    /// Starts the child.
    ///
    /// # Errors
    /// The kernel's refusal. [`PausedChild::release`] reports a missing program.
    pub fn spawn(command: Command) -> io::Result<PausedChild> {
        Self::start(command, None).map(|(held, _)| held)
    }

    /// Starts the child under SCHED_DEADLINE. The child sets its own class before it waits, so no
    /// bandwidth leaks, however the child ends.
    ///
    /// # Errors
    /// As [`PausedChild::spawn`], or why there is no such reservation.
    pub fn reserved(command: Command, deadline: Deadline) -> Result<PausedChild, ReservedError> {
        let (held, refused) = Self::start(command, Some(deadline.attributes())).map_err(ReservedError::Start)?;
        if refused == 0 {
            return Ok(held);
        }
        drop(held);
        Err(ReservedError::Class(sched::explained(&Class::Deadline(deadline.reservation), refused)))
    }

    /// With the errno of the refusal of its class, zero where it has it.
    fn start(mut command: Command, class: Option<Attributes>) -> io::Result<(PausedChild, i32)> {
        let (mut told, tell) = io::pipe()?;
        let (wait, go) = io::pipe()?;
        let (tell_fd, wait_fd, go_fd) = (tell.as_raw_fd(), wait.as_raw_fd(), go.as_raw_fd());
        let hold = move || {
            // SAFETY: all calls are async-signal-safe. The descriptors are the child's copies, open since
            // before the fork. The buffers are valid for as many bytes as are announced.
            unsafe {
                // Its own write end would keep it waiting after its parent's death.
                libc::close(go_fd);
                let refused = class.map_or(0, |class| sched::set_of(0, &class).err().unwrap_or(0));
                let about = [libc::getpid(), refused];
                let mut byte = 0u8;
                if libc::write(tell_fd, about.as_ptr().cast(), size_of_val(&about)) != size_of_val(&about) as isize {
                    return Err(io::Error::from_raw_os_error(libc::EPIPE));
                }
                loop {
                    match libc::read(wait_fd, (&raw mut byte).cast(), 1) {
                        1 => return Ok(()),
                        0 => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                        _ if clock::errno() == libc::EINTR => {}
                        _ => return Err(io::Error::from_raw_os_error(clock::errno())),
                    }
                }
            }
        };
        // SAFETY: what `hold` calls is async-signal-safe, and it allocates nothing.
        unsafe { command.pre_exec(hold) };
        // The call returns when the child has become its program, so it gets a thread of its own.
        let spawning = std::thread::Builder::new().name("takt-spawn".to_owned()).spawn(move || {
            let child = command.spawn();
            drop((tell, wait));
            child
        })?;
        let mut held = PausedChild { id: 0, go: Some(go), spawning: Some(spawning) };
        let (mut id, mut refused) = ([0; size_of::<libc::pid_t>()], [0; size_of::<i32>()]);
        match told.read_exact(&mut id).and_then(|()| told.read_exact(&mut refused)) {
            Ok(()) => held.id = u32::try_from(libc::pid_t::from_ne_bytes(id)).unwrap_or(0),
            // It was not even forked; the thread knows why.
            Err(error) => return Err(held.join().err().unwrap_or(error)),
        }
        Ok((held, i32::from_ne_bytes(refused)))
    }

    /// Its process id, which is also its first thread's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Lets it become its program.
    ///
    /// # Errors
    /// The program is not there, or may not be run.
    pub fn release(mut self) -> io::Result<Child> {
        if let Some(mut go) = self.go.take() {
            // If the child was killed in the meantime, `join` reports it.
            let _ = go.write_all(&[1]);
        }
        self.join()
    }

    fn join(&mut self) -> io::Result<Child> {
        let spawned = self.spawning.take().and_then(|spawning| spawning.join().ok());
        spawned.unwrap_or_else(|| Err(io::Error::other("the thread that starts it has ended")))
    }
}

impl Drop for PausedChild {
    fn drop(&mut self) {
        drop(self.go.take());
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::process::Identity;

    #[test]
    fn a_held_child_becomes_its_program_when_it_is_let_go() {
        let name = |id: u32| fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 7"]);
        let held = PausedChild::spawn(command).unwrap();
        let id = held.id();
        assert!(Identity::of(id).unwrap().is_alive() && !name(id).contains("(sh)"), "not yet");
        let mut child = held.release().unwrap();
        assert_eq!(child.id(), id);
        assert_eq!(child.wait().unwrap().code(), Some(7));

        let dropped = PausedChild::spawn(Command::new("/bin/sh")).unwrap();
        let dropped_id = dropped.id();
        drop(dropped);
        assert!(Identity::of(dropped_id).is_none_or(|dropped| !dropped.is_alive()));
        let missing = PausedChild::spawn(Command::new("/no/such/program")).unwrap().release();
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
