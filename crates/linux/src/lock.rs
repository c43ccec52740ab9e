//! A lock with priority inheritance: the holder runs with the priority of the most important
//! waiting thread.
//!
//! std's `Mutex` has no priority inheritance. There, a thread of middle priority can delay a more
//! important thread without bound. A free lock costs one atomic instruction here. The kernel is
//! called only on contention (FUTEX_LOCK_PI, futex(2)).
//!
//! A child of fork(2) may lock a mutex that was free at the fork, and mutexes of its own. The child
//! has none of the parent's other threads. A mutex held during the fork is never freed in the
//! child. A process made by clone(2) or `_Fork` bypasses the C library's fork handlers and must
//! lock no such mutex.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A value that one thread at a time may touch, with priority inheritance. Not reentrant: a thread
/// that locks twice is a bug, and ends the process.
///
/// ```
/// use takt_linux::PiMutex;
/// let counter = PiMutex::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| *counter.lock() += 1));
///     }
/// });
/// assert_eq!(*counter.lock(), 4000);
/// ```
pub struct PiMutex<T: ?Sized> {
    /// Zero, or the id of the thread that holds it; the kernel adds a bit while others wait.
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time, so that what may be sent may be shared through it.
unsafe impl<T: ?Sized + Send> Send for PiMutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for PiMutex<T> {}

/// The value, as long as this lives.
///
/// Not `Send`: the kernel lets only the thread that locked unlock.
#[must_use = "the lock is free again when the guard is dropped"]
pub struct PiGuard<'a, T: ?Sized> {
    lock: &'a PiMutex<T>,
    own_thread: PhantomData<*const ()>,
}

thread_local! {
    static OWN_ID: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread's id, asked for once. A child of fork(2) asks again, because its thread has
/// an id of its own.
#[inline]
fn own_id() -> u32 {
    match OWN_ID.get() {
        0 => ask_own_id(),
        id => id,
    }
}

#[cold]
fn ask_own_id() -> u32 {
    static FORGOTTEN_IN_CHILDREN: OnceLock<bool> = OnceLock::new();
    extern "C" fn forget() {
        OWN_ID.set(0);
    }
    let id = crate::thread::Tid::current().get().unsigned_abs();
    // SAFETY: the handler writes one cell of the child's only thread, and lives as long as the program.
    let registered = || unsafe { libc::pthread_atfork(None, None, Some(forget)) == 0 };
    // If the handler could not be registered, the id is asked for at each lock.
    if *FORGOTTEN_IN_CHILDREN.get_or_init(registered) {
        OWN_ID.set(id);
    }
    id
}

impl<T> PiMutex<T> {
    /// A lock around `value`, free.
    pub const fn new(value: T) -> PiMutex<T> {
        PiMutex { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// The value, from a lock that no other thread can reach.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> PiMutex<T> {
    /// Waits until no other thread holds the lock. There is no poisoning: after a panic the data
    /// stays as the thread left it.
    #[inline]
    pub fn lock(&self) -> PiGuard<'_, T> {
        if self.word.compare_exchange(0, own_id(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
        PiGuard { lock: self, own_thread: PhantomData }
    }

    /// The value, if no other thread holds the lock now.
    #[inline]
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        let free = self.word.compare_exchange(0, own_id(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| PiGuard { lock: self, own_thread: PhantomData })
    }

    #[cold]
    fn lock_contended(&self) {
        loop {
            match self.ask(libc::FUTEX_LOCK_PI) {
                Ok(()) => return,
                // The holder is about to end, or a signal came.
                Err(libc::EAGAIN | libc::EINTR) => {}
                // EDEADLK: this thread holds the lock already. ESRCH: the holder has ended. The
                // lock will never be free.
                Err(_) => std::process::abort(),
            }
        }
    }

    #[cold]
    fn unlock_contended(&self) {
        // Others wait: the kernel hands the lock to the most important of them. It cannot refuse its holder.
        let freed = self.ask(libc::FUTEX_UNLOCK_PI);
        debug_assert!(freed.is_ok(), "a lock was not freed: {freed:?}");
    }

    fn ask(&self, operation: i32) -> Result<(), i32> {
        // SAFETY: the word is a valid aligned u32 during the call. The kernel writes it atomically.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                operation | libc::FUTEX_PRIVATE_FLAG,
                0,
                std::ptr::null::<libc::timespec>(),
            )
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) }
    }
}

impl<T: ?Sized> Drop for PiGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.lock.word;
        if word.compare_exchange(own_id(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.lock.unlock_contended();
        }
    }
}

impl<T: ?Sized> Deref for PiGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock, so that no other touches the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for PiGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and `&mut self` is the only way to the value through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("PiMutex").field(&*value).finish(),
            None => f.write_str("PiMutex(locked)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Barrier, Mutex};

    use takt_model::Span;

    use super::*;
    use crate::{Class, ClassGuard, Epoch, clock, sched};

    #[test]
    fn threads_that_meet_see_each_others_writes() {
        let lock = PiMutex::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut both = lock.lock();
                        both.0 += 1;
                        std::hint::black_box(&mut *both);
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (16_000, 16_000));
    }

    #[test]
    fn a_lock_that_is_held_is_not_to_be_had() {
        let lock = PiMutex::new(1);
        let held = lock.lock();
        assert_eq!(format!("{lock:?}"), "PiMutex(locked)");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        assert_eq!(format!("{lock:?}"), "PiMutex(1)");
    }

    /// On one CPU the least important thread holds the lock, and the most important thread waits
    /// for it. A thread of middle priority works for 60 ms. Returns the thread that finishes first.
    fn first_through(wait: impl Fn(&AtomicBool, &Barrier, bool) + Sync) -> Option<&'static str> {
        let (held, all_there) = (AtomicBool::new(false), Barrier::new(3));
        let order = Mutex::new(Vec::new());
        let cpu = *sched::affinity().first()?;
        let enter = |priority| {
            sched::set_affinity(&[cpu]).ok()?;
            ClassGuard::enter(&Class::Fifo { priority }).ok()
        };
        let permitted = std::thread::scope(|scope| scope.spawn(|| enter(3).is_some()).join().unwrap_or(false));
        if !permitted {
            println!("skipped: SCHED_FIFO is not permitted here");
            return None;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _class = enter(1);
                wait(&held, &all_there, true);
            });
            scope.spawn(|| {
                let _class = enter(3);
                all_there.wait();
                wait(&held, &all_there, false);
                order.lock().unwrap().push("waiting");
            });
            scope.spawn(|| {
                let _class = enter(2);
                all_there.wait();
                // The most important one is at the lock by now: both were woken at once, and it went first.
                let until = clock::thread_cpu().saturating_add(Span::from_ms(60));
                while clock::thread_cpu() < until {
                    std::hint::spin_loop();
                }
                order.lock().unwrap().push("working");
            });
        });
        order.into_inner().ok()?.first().copied()
    }

    /// Holds for 20 ms of CPU time, during which the others come.
    fn hold(held: &AtomicBool, all_there: &Barrier) {
        held.store(true, Ordering::Release);
        all_there.wait();
        let until = clock::thread_cpu().saturating_add(Span::from_ms(20));
        while clock::thread_cpu() < until {
            std::hint::spin_loop();
        }
    }

    fn until_held(held: &AtomicBool) {
        let epoch = Epoch::now_is_zero();
        while !held.load(Ordering::Acquire) {
            let _ = epoch.sleep_until(epoch.now().saturating_add(Span::from_ms(1)));
        }
    }

    #[test]
    fn a_thread_of_middle_priority_does_not_delay_a_waiter() {
        let lock = PiMutex::new(());
        let first = first_through(|held, all_there, holds| {
            if holds {
                let _guard = lock.lock();
                hold(held, all_there);
            } else {
                until_held(held);
                drop(lock.lock());
            }
        });
        assert!(first.is_none_or(|first| first == "waiting"), "{first:?}");
    }

    #[test]
    fn a_lock_without_inheritance_lets_who_is_in_between_go_first() {
        let lock = Mutex::new(());
        let first = first_through(|held, all_there, holds| {
            if holds {
                let _guard = lock.lock().unwrap();
                hold(held, all_there);
            } else {
                until_held(held);
                drop(lock.lock().unwrap());
            }
        });
        assert!(first.is_none_or(|first| first == "working"), "{first:?}");
    }
}
