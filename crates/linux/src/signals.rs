//! Turns signals that would end the process into a flag, so that a run ends in order and restores
//! its changes.
//!
//! The handler only stores a number. Further signals change nothing, so restoring goes on.
//! Uncatchable signals and [signals of a broken program](StopSignals) leave changes behind; the
//! next start repairs them (see [`crate::recovery`]).

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);
/// One bit per signal sent by a process, not by the kernel. Signal 1 has the lowest bit.
static SENT: AtomicU64 = AtomicU64::new(0);

/// A signal that asks the process to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal(u8);

impl Signal {
    /// Its number; shells report 128 plus it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Its name, as `kill -l` has it: `SIGTERM`, `SIGRTMIN+3`.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = libc::c_int::from(self.0);
        f.write_str(match number {
            libc::SIGHUP => "SIGHUP",
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGUSR1 => "SIGUSR1",
            libc::SIGUSR2 => "SIGUSR2",
            libc::SIGPIPE => "SIGPIPE",
            libc::SIGALRM => "SIGALRM",
            libc::SIGTERM => "SIGTERM",
            libc::SIGXCPU => "SIGXCPU",
            libc::SIGXFSZ => "SIGXFSZ",
            libc::SIGVTALRM => "SIGVTALRM",
            libc::SIGPROF => "SIGPROF",
            libc::SIGIO => "SIGIO",
            libc::SIGPWR => "SIGPWR",
            _ if number >= libc::SIGRTMIN() => return write!(f, "SIGRTMIN+{}", number - libc::SIGRTMIN()),
            _ => return write!(f, "signal {number}"),
        })
    }
}

/// While this lives, signals that would end the process set a flag. Dropping this restores the
/// former actions.
///
/// INT, TERM, HUP and QUIT ask a process to stop. They are caught unless the process ignores them
/// (nohup). Any other signal that ends a process by default (USR1, USR2, ALRM, XCPU of a CPU limit,
/// the real-time signals ...) is caught if its action is the default. SEGV, BUS, FPE, ILL, SYS,
/// TRAP and ABRT are not caught: they mean that the program is broken, and an orderly end can no
/// longer be trusted.
pub struct StopSignals {
    former: Vec<(libc::c_int, libc::sigaction)>,
}

const REQUESTS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// The program is broken.
const BROKEN: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSYS, libc::SIGTRAP, libc::SIGABRT];
/// These cannot be caught, stop or continue the process, or do nothing by default.
const HARMLESS: [libc::c_int; 9] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGWINCH,
];

extern "C" fn note(signal: libc::c_int, about: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    CAUGHT.store(signal, Ordering::Release);
    // SAFETY: the kernel hands over a valid siginfo to a handler with SA_SIGINFO; a null one is not looked at.
    let code = unsafe { about.as_ref() }.map_or(libc::SI_USER, |about| about.si_code);
    // Signals of a terminal come from the kernel, which sends them to all processes concerned.
    if code <= 0 && (1..=64).contains(&signal) {
        SENT.fetch_or(1 << (signal - 1), Ordering::AcqRel);
    }
}

/// Makes a write beyond the limit of a file's size (`ulimit -f`) fail with an error that can be
/// reported, instead of ending the process.
pub fn ignore_file_size() {
    // SAFETY: to ignore a signal has no preconditions.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

impl StopSignals {
    /// Starts to catch signals.
    #[must_use]
    pub fn catch() -> StopSignals {
        CAUGHT.store(0, Ordering::Release);
        SENT.store(0, Ordering::Release);
        // Threads are interrupted and frozen by real-time signals of takt's own.
        crate::thread::install_interrupt();
        crate::freeze::install();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note;
        let mut former = Vec::new();
        // The C library keeps some real-time signals to itself and refuses them.
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| !BROKEN.contains(signal) && !HARMLESS.contains(signal)) {
            // SAFETY: sigaction is plain data for which zero is valid; the pointers are valid for the calls; the
            // handler only stores to atomics, which is async-signal-safe, and lives as long as the program.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0
                    || old.sa_sigaction == libc::SIG_IGN
                    || (old.sa_sigaction != libc::SIG_DFL && !REQUESTS.contains(&signal))
                {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
                libc::sigemptyset(&raw mut action.sa_mask);
                if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0 {
                    former.push((signal, old));
                }
            }
        }
        StopSignals { former }
    }

    /// The last signal caught since [`StopSignals::catch`].
    #[must_use]
    pub fn caught(&self) -> Option<Signal> {
        u8::try_from(CAUGHT.load(Ordering::Acquire)).ok().filter(|number| *number > 0).map(Signal)
    }

    /// The signals that processes have sent since the last call, once each, for forwarding to a
    /// child. Signals of a terminal are not among them, because the terminal has sent them to the
    /// child already.
    #[must_use]
    pub fn sent(&self) -> Vec<Signal> {
        let sent = SENT.swap(0, Ordering::AcqRel);
        (1..=64u8).filter(|number| sent >> (number - 1) & 1 == 1).map(Signal).collect()
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for (signal, action) in &self.former {
            // SAFETY: `action` is what the kernel gave for this signal.
            unsafe { libc::sigaction(*signal, std::ptr::from_ref(action), std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(signal: libc::c_int) -> libc::sighandler_t {
        // SAFETY: sigaction is plain data for which zero is valid; the pointer is valid for writing.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            old.sa_sigaction
        }
    }

    #[test]
    fn signals_set_the_flag_and_restore_their_action() {
        ignore_file_size();
        let signals = StopSignals::catch();
        assert_eq!(signals.caught(), None);
        let ending = [
            (libc::SIGHUP, "SIGHUP"),
            (libc::SIGQUIT, "SIGQUIT"),
            (libc::SIGUSR1, "SIGUSR1"),
            (libc::SIGALRM, "SIGALRM"),
            (libc::SIGXCPU, "SIGXCPU"),
            (libc::SIGRTMIN() + 3, "SIGRTMIN+3"),
            (libc::SIGTERM, "SIGTERM"),
        ];
        for (signal, name) in ending {
            assert_ne!(action(signal), libc::SIG_DFL, "{name} would end the process");
            // SAFETY: raise has no preconditions; the handler above is installed.
            unsafe { libc::raise(signal) };
            assert_eq!(signals.caught().unwrap().to_string(), name, "a further one does not kill either");
        }
        assert_eq!(signals.caught().unwrap().number(), 15);
        let sent: Vec<u8> = signals.sent().into_iter().map(Signal::number).collect();
        let mut numbers: Vec<u8> = ending.iter().map(|(signal, _)| u8::try_from(*signal).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(sent, numbers, "each is to be handed on");
        assert!(signals.sent().is_empty(), "once");
        assert_eq!(action(libc::SIGXFSZ), libc::SIG_IGN, "what is ignored stays so");
        assert_eq!(action(libc::SIGABRT), libc::SIG_DFL);
        assert_eq!(action(libc::SIGTSTP), libc::SIG_DFL, "Ctrl-Z still stops");
        drop(signals);
        for (signal, name) in ending {
            assert_eq!(action(signal), libc::SIG_DFL, "{name}");
        }
    }
}
