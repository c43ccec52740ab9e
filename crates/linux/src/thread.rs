//! Threads of this process: identity, the CPU they run on, interrupting a sleep.

use std::sync::OnceLock;

/// A kernel thread id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub(crate) libc::pid_t);

impl Tid {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Tid {
        // SAFETY: gettid has no preconditions and cannot fail.
        Tid(unsafe { libc::gettid() })
    }

    /// A thread by the number that it reported; `None` for an impossible number.
    #[must_use]
    pub const fn of_this_process(number: i32) -> Option<Tid> {
        if number > 0 { Some(Tid(number)) } else { None }
    }

    /// The number, for files under /proc.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// The kernel's number of the calling thread's CPU; `None` if the kernel does not reveal it.
#[inline]
#[must_use]
pub fn current_cpu() -> Option<u32> {
    // SAFETY: sched_getcpu has no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Yields to threads of the same priority. Under SCHED_FIFO this thread goes to the end of its
/// queue.
pub fn yield_now() {
    // SAFETY: sched_yield has no preconditions and always succeeds on Linux.
    unsafe { libc::sched_yield() };
}

/// A system call with almost no work, and with no shortcut in the C library. It measures the cost
/// of entering and leaving the kernel.
pub(crate) fn empty_system_call() {
    // SAFETY: getppid has no preconditions and cannot fail.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Interrupts the system call in which a thread of this process sleeps. Nothing else in takt uses
/// the signal, and its handler does nothing. A thread that is awake does not notice it, so callers
/// repeat until the thread answers. They pause in between: signals without a pause queue up faster
/// than the thread handles them, and the thread makes no progress.
///
/// An ended thread is safe: the kernel looks for the id within this process only.
pub fn interrupt(thread: Tid) {
    install_interrupt();
    if thread.0 <= 0 {
        return;
    }
    // SAFETY: tgkill with this process's own id reaches only threads of this process; no memory is passed.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.0, interrupt_signal()) };
}

fn interrupt_signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// Installs a handler that does nothing for the signal of [`interrupt`].
pub(crate) fn install_interrupt() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    extern "C" fn nothing(_signal: libc::c_int) {}
    INSTALLED.get_or_init(|| {
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: sigaction is plain data for which zero is valid; the handler is async-signal-safe (it is empty)
        // and lives as long as the program. No SA_RESTART, so that sleeps return EINTR.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(interrupt_signal(), &raw const action, std::ptr::null_mut());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;
    use std::sync::mpsc;
    use takt_model::{Span, Time};

    #[test]
    fn an_interrupt_ends_a_sleep() {
        let (send, receive) = mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            let epoch = Epoch::now_is_zero();
            send.send(Tid::current()).unwrap();
            epoch.sleep_until(Time::from_ns(600_000_000_000))
        });
        let tid = receive.recv().unwrap();
        while !sleeper.is_finished() {
            interrupt(tid);
            crate::clock::pause(Span::from_ms(1));
        }
        assert!(!sleeper.join().unwrap(), "the sleep says that it was cut short");
    }
}
