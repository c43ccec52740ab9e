//! Guarantees in a child of fork(2) of a process that has used takt before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};

use takt_linux::thread::Tid;
use takt_linux::{PiMutex, clock, memory};
use takt_model::Span;

/// Runs `body` in a child, for at most 20 s. True if the child reached its end.
fn in_child(body: impl FnOnce()) -> bool {
    // SAFETY: the child, a copy of this thread alone, does `body` and ends without going back into the test's program.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: alarm has no preconditions; its signal ends a child that is stuck.
        unsafe { libc::alarm(20) };
        let done = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: _exit has no preconditions, and does not return.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writing, and the number is that of a child that was not waited for.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::Interrupted);
    }
    println!("wait status {status:#x}");
    status == 0
}

/// Whether a thread of this process sleeps in the kernel, by the state in its file.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

#[test]
fn a_child_locks_as_itself() {
    let lock = PiMutex::new(0);
    // From now on this thread knows its id.
    *lock.lock() += 1;
    let contend = || {
        let waits = AtomicI32::new(0);
        std::thread::scope(|scope| {
            let held = lock.lock();
            scope.spawn(|| {
                waits.store(Tid::current().get(), Ordering::Release);
                *lock.lock() += 1;
            });
            // Until the other one is at the lock: it sleeps nowhere else then.
            while !(waits.load(Ordering::Acquire) > 0 && sleeps(waits.load(Ordering::Acquire))) {
                clock::pause(Span::from_ms(1));
            }
            drop(held);
        });
        assert_eq!(*lock.lock(), 2);
    };
    assert!(in_child(contend));
    assert_eq!(*lock.lock(), 1, "the child's is a copy");
    // A child of a child, too.
    assert!(in_child(|| {
        drop(lock.lock());
        assert!(in_child(contend));
    }));
}

#[test]
fn a_child_has_no_locked_memory_but_its_own() {
    let locked = match memory::lock() {
        Ok(locked) => locked,
        Err(error) => return println!("skipped: {error}"),
    };
    assert!(in_child(|| {
        assert_eq!(memory::locked_kib(), Some(0));
        let own = memory::lock().unwrap();
        assert!(memory::locked_kib().is_some_and(|kib| kib > 0));
        drop(own);
        assert_eq!(memory::locked_kib(), Some(0));
        // An inherited guard does nothing.
        let own = memory::lock().unwrap();
        drop(locked);
        assert!(memory::locked_kib().is_some_and(|kib| kib > 0));
        drop(own);
    }));
}
