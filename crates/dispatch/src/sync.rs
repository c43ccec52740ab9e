//! The synchronisation of the dispatcher's threads: locks with priority inheritance and futexes. In
//! this crate's unit tests a model checker replaces them and chooses the next thread at each
//! operation (live_model.rs). Its timeouts never come, so a lost wake-up is a deadlock. Tests of
//! real threads are in tests/.

#[cfg(not(test))]
pub(crate) use real::*;
#[cfg(test)]
pub(crate) use shuttled::*;

use std::sync::atomic::Ordering;

/// Wakes the threads that sleep here or are about to.
pub(crate) fn wake(signal: &Futex) {
    signal.fetch_add(1, Ordering::AcqRel);
    wake_all(signal);
}

#[cfg(not(test))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32 as Futex, AtomicU64};

    pub(crate) use takt_linux::futex::{wait, wake_all};
    pub(crate) use takt_linux::{PiGuard, PiMutex};
}

#[cfg(test)]
mod shuttled {
    use std::sync::atomic::Ordering;
    use std::sync::{PoisonError, TryLockError};

    pub(crate) use shuttle::sync::atomic::{AtomicU32 as Futex, AtomicU64};
    use shuttle::sync::{Condvar, Mutex, MutexGuard};
    use takt_linux::Epoch;
    use takt_model::Time;

    pub(crate) struct PiMutex<T>(Mutex<T>);
    pub(crate) type PiGuard<'a, T> = MutexGuard<'a, T>;

    impl<T> PiMutex<T> {
        pub(crate) fn new(value: T) -> Self {
            PiMutex(Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> PiGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
        pub(crate) fn try_lock(&self) -> Option<PiGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    shuttle::lazy_static! {
        /// All futexes share one queue, so a thread woken for another futex checks again.
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn wait(word: &Futex, expected: u32, _: Epoch, _: Time) {
        let mut asleep = SLEEPERS.0.lock().unwrap_or_else(PoisonError::into_inner);
        while word.load(Ordering::Acquire) == expected {
            asleep = SLEEPERS.1.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn wake_all(_: &Futex) {
        let _asleep = SLEEPERS.0.lock().unwrap_or_else(PoisonError::into_inner);
        SLEEPERS.1.notify_all();
    }
}
