//! This process: identity, capabilities, resource limits.

use std::ffi::CString;
use std::fs;
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use takt_model::{Span, Time};

use crate::clock::{self, Epoch};
use crate::hold::Deadline;
use crate::sched::{self, Attributes, Class, SchedError};
use crate::signals::Signal;

/// CAP_NET_ADMIN: network devices and their queueing disciplines.
pub const CAP_NET_ADMIN: u32 = 12;
/// CAP_NET_RAW: packets of one's own making.
pub const CAP_NET_RAW: u32 = 13;
/// CAP_IPC_LOCK: memory may be locked past the limit.
pub const CAP_IPC_LOCK: u32 = 14;
/// CAP_SYS_ADMIN: namespaces, mounts.
pub const CAP_SYS_ADMIN: u32 = 21;
/// CAP_SYS_NICE: scheduling classes and affinities of any kind.
pub const CAP_SYS_NICE: u32 = 23;
/// CAP_BPF: BPF programs.
pub const CAP_BPF: u32 = 39;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks after boot.
    pub start: u64,
}

impl Identity {
    /// The calling process; `None` where /proc does not tell.
    #[must_use]
    pub fn current() -> Option<Identity> {
        Self::of(std::process::id())
    }

    /// The process that has the number `pid` now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Identity { pid, start: start_ticks(&stat)? })
    }

    /// Whether the process is still there, dead but unburied ones excepted.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        start_ticks(&stat) == Some(self.start) && !matches!(state, Some('Z' | 'X') | None)
    }
}

/// Field 22; the name in parentheses may hold anything.
fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// This boot of the kernel.
#[must_use]
pub fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// The effective user.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process may make files in a folder.
pub(crate) fn may_write(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    let asked = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) };
    if asked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the calling thread has the capability with this number in effect.
#[must_use]
pub fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status).is_some_and(|set| number < 64 && set >> number & 1 == 1)
}

fn effective(status: &str) -> Option<u64> {
    u64::from_str_radix(status.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim(), 16).ok()
}

/// The soft limit RLIMIT_MEMLOCK in bytes; `u64::MAX` is none.
#[must_use]
pub fn memlock_limit() -> u64 {
    limit(libc::RLIMIT_MEMLOCK)
}

/// The soft limit RLIMIT_RTPRIO: the most important SCHED_FIFO priority without CAP_SYS_NICE.
#[must_use]
pub fn rtprio_limit() -> u64 {
    limit(libc::RLIMIT_RTPRIO)
}

/// Asks a child process to end (SIGTERM), unless it has ended already.
pub fn terminate(child: &mut Child) {
    send(child, libc::SIGTERM);
}

/// How often is looked whether a child that was told to end has.
const LOOK: Span = Span::from_ms(20);

/// Asks a child process to end (SIGTERM), and kills it after `patience`. Returns its status if
/// known. Calls `meanwhile` between checks.
pub fn end(child: &mut Child, patience: Span, meanwhile: &mut dyn FnMut(&mut Child)) -> Option<ExitStatus> {
    terminate(child);
    let epoch = Epoch::now_is_zero();
    while epoch.now() < Time::ZERO.saturating_add(patience) {
        match child.try_wait() {
            Ok(None) => {}
            other => return other.ok().flatten(),
        }
        meanwhile(child);
        clock::pause(LOOK);
    }
    let _ = child.kill();
    child.wait().ok()
}

/// Sends a child process a signal, unless it has ended already.
pub fn signal(child: &mut Child, signal: Signal) {
    send(child, libc::c_int::from(signal.number()));
}

fn send(child: &mut Child, number: libc::c_int) {
    if matches!(child.try_wait(), Ok(None))
        && let Ok(pid) = libc::pid_t::try_from(child.id())
        && pid > 0
    {
        // SAFETY: kill passes no memory. The child has not been waited for, so the number is still its own.
        unsafe { libc::kill(pid, number) };
    }
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}

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
                        _ if crate::clock::errno() == libc::EINTR => {}
                        _ => return Err(io::Error::from_raw_os_error(crate::clock::errno())),
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
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let me = Identity::current().unwrap();
        assert!(me.is_alive());
        assert!(!Identity { start: me.start + 1, ..me }.is_alive(), "a later process with the same number");
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7";
        assert_eq!(start_ticks(stat), Some(12345));
    }

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

    #[test]
    fn capabilities_are_bits_of_the_effective_set() {
        assert_eq!(effective("CapPrm:\t0\nCapEff:\t0000000000800000\n"), Some(1 << CAP_SYS_NICE));
    }
}
