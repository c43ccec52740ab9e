//! Freezes a thread of this process between two of its instructions, by a signal.
//!
//! The signal's handler waits on a futex until the thread is freed. So a frozen thread uses no CPU
//! time, in whatever class it is, and no privilege is needed. The signal reaches a thread before its
//! next instruction in user mode. A system call that the thread is in goes on.
//!
//! A frozen thread does not depend on the life of the thread that froze it. The freezing thread
//! renews a [`Lease`]. When the lease ends, frozen threads go on by themselves, under SCHED_OTHER.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use takt_model::Time;

use crate::clock::{Epoch, monotonic_ns};
use crate::thread::Tid;
use crate::{Class, futex, sched};

/// Until when frozen threads wait, at most: an instant of CLOCK_MONOTONIC, renewed by whoever freezes them.
#[derive(Debug, Default)]
pub struct Lease(AtomicU64);

impl Lease {
    /// Frozen threads wait until `time` of the run at most, unless it is renewed.
    pub fn renew(&self, epoch: Epoch, time: Time) {
        self.0.store(epoch.monotonic(time).as_ns(), Ordering::Release);
    }

    /// Whether it has ended. It has not begun before the first [`Lease::renew`].
    #[must_use]
    pub fn is_over(&self) -> bool {
        let until = self.0.load(Ordering::Acquire);
        until != 0 && until <= monotonic_ns()
    }
}

/// Freezes one thread.
#[derive(Debug)]
pub struct Freezer {
    /// A futex.
    word: AtomicU32,
    /// A signal is on its way.
    signalled: AtomicBool,
    lease: Arc<Lease>,
}

const FREE: u32 = 0;
const FROZEN: u32 = 1;

thread_local! {
    /// The freezer that this thread obeys.
    static MINE: Cell<*const Freezer> = const { Cell::new(ptr::null()) };
}

impl Freezer {
    /// One for a thread that is free.
    #[must_use]
    pub fn new(lease: Arc<Lease>) -> Arc<Freezer> {
        Arc::new(Freezer { word: FREE.into(), signalled: false.into(), lease })
    }

    /// From now on it freezes the calling thread, until the answer is dropped.
    pub fn obey(self: &Arc<Self>) -> FreezeGuard {
        install();
        MINE.set(Arc::as_ptr(self));
        FreezeGuard { _freezer: self.clone(), own_thread: PhantomData }
    }

    /// Freezes `thread`, which obeys. If the caller's priority is above the thread's on the same CPU, the thread
    /// does not get to its next instruction. On another CPU it goes on until the kernel's interrupt reaches that CPU.
    pub fn freeze(&self, thread: Tid) {
        self.word.store(FROZEN, Ordering::SeqCst);
        // SeqCst here and in the handler. They may run on two CPUs, and one of them must see the store of the other.
        if !self.signalled.swap(true, Ordering::SeqCst) && thread.0 > 0 {
            // SAFETY: tgkill with this process's own id reaches only threads of this process; no memory is passed.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.0, signal()) };
        }
    }

    /// Lets the thread go on.
    pub fn free(&self) {
        if self.word.swap(FREE, Ordering::AcqRel) == FROZEN {
            futex::wake_all(&self.word);
        }
    }

    /// The handler's part. Async-signal-safe: atomics and system calls.
    fn wait(&self) {
        self.signalled.swap(false, Ordering::SeqCst);
        while self.word.load(Ordering::SeqCst) == FROZEN {
            if self.lease.is_over() {
                let _ = sched::set_of(0, &(&Class::Other).into());
                return;
            }
            let until = match self.lease.0.load(Ordering::Acquire) {
                0 => u64::MAX,
                until => until,
            };
            let until = Time::from_ns(until);
            futex::wait(&self.word, FROZEN, Epoch::of_clock(), until);
        }
    }
}

/// The calling thread obeys a [`Freezer`] while this lives. Not `Send`.
#[derive(Debug)]
#[must_use = "the thread obeys until this is dropped"]
pub struct FreezeGuard {
    /// The handler reads it.
    _freezer: Arc<Freezer>,
    own_thread: PhantomData<*const ()>,
}

impl Drop for FreezeGuard {
    fn drop(&mut self) {
        MINE.set(ptr::null());
    }
}

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 6
}

/// Installs the handler, once.
pub(crate) fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    extern "C" fn obey(_signal: libc::c_int) {
        // SAFETY: errno's place is valid in every thread. What the handler does must not show in it.
        let errno = unsafe { *libc::__errno_location() };
        let mine = MINE.get();
        // SAFETY: the pointer is null or that of a freezer that an `FreezeGuard` of this very thread keeps alive.
        if let Some(freezer) = unsafe { mine.as_ref() } {
            freezer.wait();
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    INSTALLED.get_or_init(|| {
        let handler: extern "C" fn(libc::c_int) = obey;
        // SAFETY: sigaction is plain data for which zero is valid; the handler is async-signal-safe and lives as long
        // as the program. SA_RESTART: a frozen thread's system call goes on where it can.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal(), &raw const action, ptr::null_mut());
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use takt_model::Span;

    use super::*;
    use crate::clock;

    /// A thread that counts until it is told to stop, its freezer and its counter.
    struct Counting {
        freezer: Arc<Freezer>,
        lease: Arc<Lease>,
        count: Arc<AtomicU64>,
        stop: Arc<AtomicBool>,
        tid: Tid,
        handle: std::thread::JoinHandle<()>,
    }

    fn counting() -> Counting {
        let lease = Arc::new(Lease::default());
        let freezer = Freezer::new(lease.clone());
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (send, receive) = mpsc::channel();
        let (own, counter, stopped) = (freezer.clone(), count.clone(), stop.clone());
        let handle = std::thread::spawn(move || {
            let _obedience = own.obey();
            send.send(Tid::current()).unwrap();
            while !stopped.load(Ordering::Acquire) {
                counter.fetch_add(1, Ordering::AcqRel);
            }
        });
        Counting { freezer, lease, count, stop, tid: receive.recv().unwrap(), handle }
    }

    impl Counting {
        /// Waits until it has counted on.
        fn counts(&self) {
            let before = self.count.load(Ordering::Acquire);
            while self.count.load(Ordering::Acquire) == before {
                clock::pause(Span::from_us(100));
            }
        }

        /// Waits until it counts no more: two looks in a row see one value, while its CPU time stands.
        fn stands(&self) {
            loop {
                let before = (clock::cpu_of(self.tid), self.count.load(Ordering::Acquire));
                clock::pause(Span::from_ms(5));
                if before == (clock::cpu_of(self.tid), self.count.load(Ordering::Acquire)) {
                    return;
                }
            }
        }

        fn end(self) {
            self.stop.store(true, Ordering::Release);
            self.handle.join().unwrap();
        }
    }

    #[test]
    fn a_frozen_thread_does_nothing_until_it_is_freed() {
        let thread = counting();
        thread.lease.renew(Epoch::now_is_zero(), Time::from_ns(600_000_000_000));
        for _ in 0..20 {
            thread.counts();
            thread.freezer.freeze(thread.tid);
            thread.stands();
            thread.freezer.free();
        }
        // The last word counts, also if the handler of a former signal is just at work.
        for _ in 0..20 {
            (0..200).for_each(|_| {
                thread.freezer.free();
                thread.freezer.freeze(thread.tid);
            });
            thread.stands();
            thread.freezer.free();
            thread.counts();
        }
        // Changes of mind before the thread notices.
        for _ in 0..1000 {
            thread.freezer.freeze(thread.tid);
            thread.freezer.free();
        }
        thread.counts();
        thread.end();
    }

    #[test]
    fn a_frozen_thread_goes_on_when_the_lease_is_over() {
        let thread = counting();
        let epoch = Epoch::now_is_zero();
        thread.lease.renew(epoch, Time::from_ns(50_000_000));
        assert!(!Lease::default().is_over());
        thread.freezer.freeze(thread.tid);
        while !thread.lease.is_over() {
            clock::pause(Span::from_ms(1));
        }
        thread.counts();
        thread.end();
    }
}
