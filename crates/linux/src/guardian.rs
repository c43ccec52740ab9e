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
use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use takt_model::{Span, Time};

use crate::Epoch;
use crate::guard::{INSTANCE, READY, THREADS};
use crate::hold::Journal;
use crate::owned::ResourceId;
use crate::process::{self, Identity};
use crate::sched::{self, Class, FIFO_PRIORITY_MAX};
use crate::tracing::{PREFIX, Tracefs, remove};

/// The guardian's work after the parent's end.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Cleanup {
    /// Remove a trace instance.
    Instance(ResourceId),
    /// Restore the settings of threads.
    Threads(Journal),
}

/// The longest wait for the parent's end.
const END_MAX: Span = Span::from_s(60);
const LOOK_EVERY: Span = Span::from_ms(10);
const LOOK_FOR_KILL: Span = Span::from_ms(100);

impl Cleanup {
    fn parse(argument: &str, name: &str) -> Option<Cleanup> {
        match argument {
            INSTANCE => ResourceId::parse(PREFIX, name).map(Cleanup::Instance),
            THREADS => Journal::parse(name).map(Cleanup::Threads),
            _ => None,
        }
    }
}

/// Call this before anything else in every program that records or holds threads with
/// [`Guard::ThisProgram`](crate::guard::Guard::ThisProgram), with the program's arguments. It returns `true`
/// if this process was started as a guardian and has done its work. The program should end then.
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
    if matches!(errand, Cleanup::Threads(_)) {
        // The threads may be real-time threads that spin. Without the privilege they are not.
        let _ = sched::set_of(0, &(&Class::Fifo { priority: FIFO_PRIORITY_MAX }).into());
    }
    match errand {
        Cleanup::Instance(name) => {
            until_end_or_dismissal(name.owner, None);
            remove_instance(*name);
        }
        Cleanup::Threads(journal) => {
            until_end_or_dismissal(journal.0.owner, Some(LOOK_FOR_KILL));
            until(|| {
                hurry(journal.0.owner);
                !has_threads(journal.0.owner)
            });
            let _ = journal.recover();
        }
    }
}

/// Until the owner has ended, or has let go of the pipe. Nobody writes into that. Each `look` it checks whether the
/// owner was killed and cannot end.
fn until_end_or_dismissal(owner: Identity, look: Option<Span>) {
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
    let timeout = look.map_or(-1, |look| libc::c_int::try_from(look.as_ns() / 1_000_000).unwrap_or(libc::c_int::MAX));
    loop {
        // SAFETY: as many valid pollfds as are announced, whose descriptors are open.
        match unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) } {
            0 => hurry(owner),
            ready if ready < 0 && crate::clock::errno() == libc::EINTR => {}
            _ => return,
        }
    }
}

/// Lets a process that was killed end at once. Real-time threads that nobody holds back any more may keep its less
/// important ones from the CPU, and the kernel reports no end until all have ended.
fn hurry(owner: Identity) {
    let was_killed = |thread: &fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
        let pending = pending.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
        pending.is_some_and(|signals| signals & 1 << (libc::SIGKILL - 1) != 0)
    };
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", owner.pid)) else { return };
    for thread in threads.flatten().filter(was_killed) {
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok());
        // The first thread may have ended before the others.
        if let Some(id) = id.filter(|_| Identity::of(owner.pid) == Some(owner)) {
            let _ = sched::set_of(id, &(&Class::Fifo { priority: FIFO_PRIORITY_MAX }).into());
        }
    }
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
fn has_threads(owner: Identity) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", owner.pid)) else { return false };
    let runs = |thread: DirEntry| {
        fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| process::has_not_ended(&stat))
    };
    Identity::of(owner.pid) == Some(owner) && threads.flatten().any(runs)
}
