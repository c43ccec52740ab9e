//! A child process that restores the parent's changes if the parent is killed.
//!
//! The guardian holds the read end of a pipe. The parent alone has the write end, and the kernel
//! closes it however the parent dies. A child forked by the parent without exec inherits the write
//! end and may outlive the parent. So the guardian also waits for the end of the parent process
//! itself. Such a child must close the descriptors that it inherited. While somebody has an
//! instance's pages open, the guardian can only switch the instance off; the last close removes it.
//!
//! The guardian has a session of its own, so ctrl-C of a terminal does not reach it. It ignores the
//! stop signals and ends with its parent.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use takt_model::{Span, Time};

use crate::Epoch;
use crate::hold::Journal;
use crate::owned::ResourceId;
use crate::process::Identity;
use crate::tracing::{PREFIX, Tracefs, remove};

/// The process that restores changes after a SIGKILL or an abort of this process. In all other
/// cases this process restores them itself. The next start restores any leftovers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guard {
    /// A child process that runs this program, which must call [`guardian`] first of all.
    ThisProgram,
    /// A child process that runs this other program.
    Program(PathBuf),
    /// No child process: the next start does the work.
    NextStart,
}

/// The guardian's work after the parent's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cleanup {
    /// Remove a trace instance.
    Instance(ResourceId),
    /// Restore the settings of threads.
    Threads(Journal),
}

/// The arguments that make a program a guardian; a name follows.
const INSTANCE: &str = "--takt-trace-guardian";
const THREADS: &str = "--takt-reserve-guardian";
const READY: &[u8] = b"ready";
/// How long a guardian may take to start.
const START_MAX: Span = Span::from_s(10);
/// The longest wait for the parent's end.
const END_MAX: Span = Span::from_s(60);
const LOOK_EVERY: Span = Span::from_ms(10);

impl Cleanup {
    fn parse(argument: &str, name: &str) -> Option<Cleanup> {
        match argument {
            INSTANCE => ResourceId::parse(PREFIX, name).map(Cleanup::Instance),
            THREADS => Journal::parse(name).map(Cleanup::Threads),
            _ => None,
        }
    }

    /// The process to wait for.
    fn owner(&self) -> Identity {
        match self {
            Cleanup::Instance(name) => name.owner,
            Cleanup::Threads(journal) => journal.0.owner,
        }
    }

    fn arguments(&self) -> [String; 2] {
        match self {
            Cleanup::Instance(name) => [INSTANCE.to_owned(), name.to_text(PREFIX)],
            Cleanup::Threads(journal) => [THREADS.to_owned(), journal.to_text()],
        }
    }
}

/// Call this before anything else in every program that records or holds threads with
/// [`Guard::ThisProgram`], with the program's arguments. It returns `true` if this process was
/// started as a guardian and has done its work. The program should end then.
#[must_use]
pub fn guardian(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut arguments = arguments.into_iter().skip(1);
    let Some(first) = arguments.next().filter(|first| first == INSTANCE || first == THREADS) else { return false };
    let name = arguments.next().unwrap_or_default();
    let errand = || Cleanup::parse(first.to_str()?, name.to_str()?);
    if let Some(errand) = errand() {
        watch(&errand);
    }
    true
}

fn watch(errand: &Cleanup) {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: to ignore a signal has no preconditions.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Neither a folder nor a pipe of someone else is held, but for standard error, which is closed to us already.
    let _ = std::env::set_current_dir("/");
    // SAFETY: no descriptor above 2 belongs to anything in this process; it has just begun.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    // SAFETY: the name is a C string of at most 15 characters.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"takt-guardian".as_ptr()) };
    {
        use std::io::Write as _;
        let mut out = io::stdout();
        if out.write_all(READY).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
    until_end_or_dismissal(errand.owner());
    match errand {
        Cleanup::Instance(name) => remove_instance(*name),
        Cleanup::Threads(journal) => {
            until(|| !has_threads(journal.0.owner));
            let _ = journal.recover();
        }
    }
}

/// Until the owner has ended, or has let go of the pipe. Nobody writes into that.
fn until_end_or_dismissal(owner: Identity) {
    let process = libc::pid_t::try_from(owner.pid).ok().and_then(|pid| {
        // SAFETY: pidfd_open passes no memory; a descriptor that it returns is new, and nobody else's.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let opened = libc::c_int::try_from(opened).ok().filter(|opened| *opened >= 0)?;
        // SAFETY: as above.
        Some(unsafe { OwnedFd::from_raw_fd(opened) })
    });
    if !has_threads(owner) {
        return;
    }
    let wait = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // One below zero is not looked at: a kernel before 5.3 has only the pipe.
    let mut polled = [wait(libc::STDIN_FILENO), wait(process.as_ref().map_or(-1, |process| process.as_raw_fd()))];
    // SAFETY: as many valid pollfds as are announced, whose descriptors are open.
    while unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) } < 0
        && crate::clock::errno() == libc::EINTR
    {}
}

/// Switches off at once, and removes when the owner has let go of the pages it held.
fn remove_instance(name: ResourceId) {
    let Ok(tracefs) = Tracefs::find() else { return };
    let folder = tracefs.instances().join(name.to_text(PREFIX));
    if !folder.exists() {
        return;
    }
    let _ = fs::write(folder.join("tracing_on"), "0");
    until(|| !folder.exists() || (!has_threads(name.owner) && remove(&folder).is_ok()));
}

/// Looks again and again, for [`END_MAX`] at most.
fn until(mut is_so: impl FnMut() -> bool) {
    let epoch = Epoch::now_is_zero();
    while !is_so() && epoch.now() < Time::ZERO.saturating_add(END_MAX) {
        crate::clock::pause(LOOK_EVERY);
    }
}

/// Whether a thread of the process still runs: its files are closed when the last one has ended,
/// not when the first has.
fn has_threads(Identity { pid, start }: Identity) -> bool {
    let is_owner = Identity::of(pid).is_some_and(|now| now.start == start);
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let runs = |stat: String| {
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    };
    is_owner && threads.flatten().any(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(runs))
}

/// The parent's side.
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts one and waits until it watches. The error is the cause, in words.
    pub(crate) fn start(guard: &Guard, errand: &Cleanup) -> Result<Option<Guardian>, String> {
        let program = match guard {
            Guard::ThisProgram => PathBuf::from("/proc/self/exe"),
            Guard::Program(program) => program.clone(),
            Guard::NextStart => return Ok(None),
        };
        let mut command = Command::new(program);
        command.arg0("takt").args(errand.arguments());
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
                Err("the program does not act as a guardian (see takt_linux::tracing::guardian)".to_owned())
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
