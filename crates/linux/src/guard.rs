//! The parent's side of a guardian: a child process that restores this process's changes if this
//! process is killed ([`crate::guardian`]).

use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use takt_model::{Span, Time};

use crate::Epoch;

/// The process that restores changes after a SIGKILL or an abort of this process. In all other
/// cases this process restores them itself. The next start restores any leftovers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guard {
    /// A child process that runs this program, which must call [`guardian`](crate::guardian::guardian) first of all.
    ThisProgram,
    /// A child process that runs this other program.
    Program(PathBuf),
    /// No child process: the next start does the work.
    NextStart,
}

/// The argument that makes a program the guardian of a trace instance; its name follows.
pub(crate) const INSTANCE: &str = "--takt-trace-guardian";
/// The argument that makes a program the guardian of held threads; their journal's name follows.
pub(crate) const THREADS: &str = "--takt-reserve-guardian";
/// A guardian's answer when it watches.
pub(crate) const READY: &[u8] = b"ready";
/// How long a guardian may take to start.
const START_MAX: Span = Span::from_s(10);

/// A guardian, as its parent sees it.
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts one and waits until it watches. The arguments are [`INSTANCE`] or [`THREADS`], and the
    /// name of the instance or journal. The error is the cause, in words.
    pub(crate) fn start(guard: &Guard, arguments: [&str; 2]) -> Result<Option<Guardian>, String> {
        let program = match guard {
            Guard::ThisProgram => PathBuf::from("/proc/self/exe"),
            Guard::Program(program) => program.clone(),
            Guard::NextStart => return Ok(None),
        };
        let mut command = Command::new(program);
        command.arg0("takt").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: setsid is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let child = command.spawn().map_err(|error| error.to_string())?;
        let mut guardian = Guardian { child };
        match guardian.is_ready() {
            Ok(true) => Ok(Some(guardian)),
            Ok(false) => {
                guardian.dismiss();
                Err("the program does not act as a guardian (see takt_linux::guardian::guardian)".to_owned())
            }
            Err(error) => {
                guardian.dismiss();
                Err(error.to_string())
            }
        }
    }

    fn is_ready(&mut self) -> io::Result<bool> {
        let Some(mut out) = self.child.stdout.take() else { return Ok(false) };
        let mut polled = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::c_int::try_from(START_MAX.as_ns() / 1_000_000).unwrap_or(libc::c_int::MAX);
        // SAFETY: one valid pollfd, whose descriptor is open.
        if unsafe { libc::poll(&raw mut polled, 1, timeout) } <= 0 {
            return Err(io::Error::other("it does not answer"));
        }
        let mut answer = [0; READY.len()];
        out.read_exact(&mut answer).map_or_else(|_| Ok(false), |()| Ok(answer == READY))
    }

    /// Nothing is left to do: it ends.
    pub(crate) fn dismiss(mut self) {
        drop(self.child.stdin.take());
        // A program that does not know what a guardian is may do anything but end. It is our child, not yet waited for,
        // so its number is its own.
        let epoch = Epoch::now_is_zero();
        while epoch.now() < Time::ZERO.saturating_add(Span::from_s(2)) {
            match self.child.try_wait() {
                Ok(None) => crate::clock::pause(Span::from_ms(1)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
