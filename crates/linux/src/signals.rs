//! SIGINT, SIGTERM and SIGHUP as a flag, so that a run ends in order and restores what it changed.
//!
//! The handler only stores a number. A further signal of these changes nothing: restoring goes on. SIGQUIT stays the
//! emergency exit; what it leaves behind is repaired like after a kill -9 (see [`crate::recovery`]).

use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// A signal that asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`.
    Terminate,
    /// The terminal went away.
    HangUp,
}

impl Signal {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
            Signal::HangUp => "SIGHUP",
        }
    }

    /// Its number; shells report 128 plus it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Signal::Interrupt => 2,
            Signal::Terminate => 15,
            Signal::HangUp => 1,
        }
    }
}

/// While this lives, the three signals set a flag; then their former actions come back.
pub struct StopSignals {
    former: Vec<(libc::c_int, libc::sigaction)>,
}

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Release);
}

impl StopSignals {
    /// Starts to catch. A signal that the process ignores (nohup) stays ignored.
    #[must_use]
    pub fn catch() -> StopSignals {
        CAUGHT.store(0, Ordering::Release);
        let handler: extern "C" fn(libc::c_int) = note;
        let mut former = Vec::with_capacity(SIGNALS.len());
        for signal in SIGNALS {
            // SAFETY: sigaction is plain data for which zero is valid; the pointers are valid for the calls; the
            // handler only stores to an atomic, which is async-signal-safe, and lives as long as the program.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0 || old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigemptyset(&raw mut action.sa_mask);
                if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0 {
                    former.push((signal, old));
                }
            }
        }
        StopSignals { former }
    }

    /// The last signal that came since [`StopSignals::catch`].
    #[must_use]
    pub fn caught(&self) -> Option<Signal> {
        match CAUGHT.load(Ordering::Acquire) {
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGHUP => Some(Signal::HangUp),
            _ => None,
        }
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

    #[test]
    fn signals_set_the_flag_and_restore_their_action() {
        let signals = StopSignals::catch();
        assert_eq!(signals.caught(), None);
        for signal in [libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: raise has no preconditions; the handler above is installed.
            unsafe { libc::raise(signal) };
        }
        assert_eq!(signals.caught(), Some(Signal::Terminate), "a second one does not kill either");
        drop(signals);
        // SAFETY: as in `catch`.
        let now = unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut old);
            old.sa_sigaction
        };
        assert_eq!(now, libc::SIG_DFL);
    }
}
