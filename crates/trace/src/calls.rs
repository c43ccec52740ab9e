//! System calls that end jobs: which they are, by their numbers, and what they wait for.
//!
//! | class | calls | ends a job |
//! |---|---|---|
//! | [`Class::Sleep`] | clock_nanosleep, nanosleep | always, when it is entered |
//! | [`Class::Wait`] | epoll_wait, epoll_pwait, epoll_pwait2, poll, ppoll, select, pselect6, rt_sigtimedwait, rt_sigsuspend, pause | always, when it is entered, unless it asks without waiting (a timeout of zero, where registers tell it) |
//! | [`Class::Take`] | read, readv, pread64, recvfrom, recvmsg, recvmmsg, accept, accept4, mq_timedreceive, msgrcv, io_getevents, io_uring_enter, wait4, waitid | where it blocks; of a descriptor that was blocked on before, reads of eight bytes (timerfd, eventfd) always |
//! | [`Class::Sync`] | futex, futex_waitv, semop, semtimedop | where it blocks, in threads that have none of the others: workers on condition variables |
//! | [`Class::Yield`] | sched_yield | of a SCHED_DEADLINE thread always: it gives up the rest of its budget until the next period |
//!
//! LiME, the Linux model extractor, tells jobs by a blocking call's entry and exit, by suspensions and by yields; here a thread's own calls
//! choose among these.

/// What a system call does to the job of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Sleep,
    Wait,
    Take,
    Sync,
    Yield,
    /// It goes on with the call that a signal interrupted.
    Restart,
    /// Anything else: it may block within a job.
    Other,
}

/// Whose numbers of system calls a trace has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abi {
    /// x86-64.
    X86_64,
    /// arm64, riscv64, loongarch64: the numbers of asm-generic.
    Generic,
}

impl Abi {
    /// The one that this program was built for; x86-64 where it is neither.
    pub const NATIVE: Abi = if cfg!(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))
    {
        Abi::Generic
    } else {
        Abi::X86_64
    };

    /// All system calls that jobs are told by, so that a recorder can leave the others out.
    #[must_use]
    pub fn calls(self) -> Vec<i64> {
        self.table().iter().map(|(number, ..)| *number).collect()
    }

    fn table(self) -> &'static [(i64, Class, Asks)] {
        match self {
            Abi::X86_64 => &X86_64,
            Abi::Generic => &GENERIC,
        }
    }

    /// What the call with that number and those arguments is.
    #[inline]
    pub(crate) fn class(self, number: i64, args: &[u64; 6]) -> Class {
        let table = self.table();
        let Ok(at) = table.binary_search_by_key(&number, |(number, ..)| *number) else { return Class::Other };
        let (_, class, asks) = table[at];
        match asks {
            Asks::Waits => class,
            // The timeout is an int: its upper half is whatever the register held.
            Asks::Timeout(k) if args[k] as u32 == 0 => Class::Other,
            Asks::Timeout(_) => class,
            // FUTEX_WAIT 0, LOCK_PI 6, WAIT_BITSET 9, WAIT_REQUEUE_PI 11; waiting for a lock is within a job.
            Asks::Futex if matches!(args[1] & 0x7f, 0 | 9 | 11) => class,
            Asks::Futex => Class::Other,
            // MSG_DONTWAIT
            Asks::Flags(k) if args[k] & 0x40 != 0 => Class::Other,
            Asks::Flags(_) => class,
        }
    }
}

/// How the arguments tell whether a call waits.
#[derive(Clone, Copy, Debug)]
enum Asks {
    /// They do not.
    Waits,
    /// A timeout in milliseconds; zero asks without waiting.
    Timeout(usize),
    /// The operation of a futex.
    Futex,
    /// Flags of a socket call.
    Flags(usize),
}

/// Stands for the arguments of a call where a trace has none: as if it waits, where arguments would tell, and reads no timer.
pub(crate) const ARGS_UNKNOWN: [u64; 6] = [1, 0, 1, 1, 1, 1];

/// In the order of numbers.
const X86_64: [(i64, Class, Asks); 36] = [
    (0, Class::Take, Asks::Waits),        // read
    (7, Class::Wait, Asks::Timeout(2)),   // poll
    (17, Class::Take, Asks::Waits),       // pread64
    (19, Class::Take, Asks::Waits),       // readv
    (23, Class::Wait, Asks::Waits),       // select
    (24, Class::Yield, Asks::Waits),      // sched_yield
    (34, Class::Wait, Asks::Waits),       // pause
    (35, Class::Sleep, Asks::Waits),      // nanosleep
    (43, Class::Take, Asks::Waits),       // accept
    (45, Class::Take, Asks::Flags(3)),    // recvfrom
    (47, Class::Take, Asks::Flags(2)),    // recvmsg
    (61, Class::Take, Asks::Waits),       // wait4
    (65, Class::Sync, Asks::Waits),       // semop
    (70, Class::Take, Asks::Waits),       // msgrcv
    (128, Class::Wait, Asks::Waits),      // rt_sigtimedwait
    (130, Class::Wait, Asks::Waits),      // rt_sigsuspend
    (202, Class::Sync, Asks::Futex),      // futex
    (208, Class::Take, Asks::Waits),      // io_getevents
    (219, Class::Restart, Asks::Waits),   // restart_syscall
    (220, Class::Sync, Asks::Waits),      // semtimedop
    (230, Class::Sleep, Asks::Waits),     // clock_nanosleep
    (232, Class::Wait, Asks::Timeout(3)), // epoll_wait
    (243, Class::Take, Asks::Waits),      // mq_timedreceive
    (247, Class::Take, Asks::Waits),      // waitid
    (270, Class::Wait, Asks::Waits),      // pselect6
    (271, Class::Wait, Asks::Waits),      // ppoll
    (281, Class::Wait, Asks::Timeout(3)), // epoll_pwait
    (288, Class::Take, Asks::Waits),      // accept4
    (295, Class::Take, Asks::Waits),      // preadv
    (299, Class::Take, Asks::Flags(3)),   // recvmmsg
    (327, Class::Take, Asks::Waits),      // preadv2
    (333, Class::Take, Asks::Waits),      // io_pgetevents
    (426, Class::Take, Asks::Waits),      // io_uring_enter
    (441, Class::Wait, Asks::Waits),      // epoll_pwait2
    (449, Class::Sync, Asks::Waits),      // futex_waitv
    (455, Class::Sync, Asks::Waits),      // futex_wait
];

/// In the order of numbers.
const GENERIC: [(i64, Class, Asks); 32] = [
    (4, Class::Take, Asks::Waits),       // io_getevents
    (22, Class::Wait, Asks::Timeout(3)), // epoll_pwait
    (63, Class::Take, Asks::Waits),      // read
    (65, Class::Take, Asks::Waits),      // readv
    (67, Class::Take, Asks::Waits),      // pread64
    (69, Class::Take, Asks::Waits),      // preadv
    (72, Class::Wait, Asks::Waits),      // pselect6
    (73, Class::Wait, Asks::Waits),      // ppoll
    (95, Class::Take, Asks::Waits),      // waitid
    (98, Class::Sync, Asks::Futex),      // futex
    (101, Class::Sleep, Asks::Waits),    // nanosleep
    (115, Class::Sleep, Asks::Waits),    // clock_nanosleep
    (124, Class::Yield, Asks::Waits),    // sched_yield
    (128, Class::Restart, Asks::Waits),  // restart_syscall
    (133, Class::Wait, Asks::Waits),     // rt_sigsuspend
    (137, Class::Wait, Asks::Waits),     // rt_sigtimedwait
    (183, Class::Take, Asks::Waits),     // mq_timedreceive
    (188, Class::Take, Asks::Waits),     // msgrcv
    (192, Class::Sync, Asks::Waits),     // semtimedop
    (193, Class::Sync, Asks::Waits),     // semop
    (202, Class::Take, Asks::Waits),     // accept
    (207, Class::Take, Asks::Flags(3)),  // recvfrom
    (212, Class::Take, Asks::Flags(2)),  // recvmsg
    (242, Class::Take, Asks::Waits),     // accept4
    (243, Class::Take, Asks::Flags(3)),  // recvmmsg
    (260, Class::Take, Asks::Waits),     // wait4
    (286, Class::Take, Asks::Waits),     // preadv2
    (292, Class::Take, Asks::Waits),     // io_pgetevents
    (426, Class::Take, Asks::Waits),     // io_uring_enter
    (441, Class::Wait, Asks::Waits),     // epoll_pwait2
    (449, Class::Sync, Asks::Waits),     // futex_waitv
    (455, Class::Sync, Asks::Waits),     // futex_wait
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order() {
        for abi in [Abi::X86_64, Abi::Generic] {
            assert!(abi.calls().is_sorted_by(|a, b| a < b), "{abi:?}");
        }
    }

    #[test]
    fn calls_without_arguments_are_of_their_class() {
        for abi in [Abi::X86_64, Abi::Generic] {
            for (number, class, _) in abi.table() {
                assert_eq!(abi.class(*number, &ARGS_UNKNOWN), *class, "{abi:?} {number}");
            }
        }
    }

    #[test]
    fn arguments_tell_whether_a_call_waits() {
        let class = |number, args| Abi::X86_64.class(number, &args);
        assert_eq!(class(230, [1, 1, 0, 0, 0, 0]), Class::Sleep);
        assert_eq!(class(232, [3, 0, 8, 0xffff_ffff, 0, 0]), Class::Wait, "epoll_wait for ever");
        assert_eq!(class(232, [3, 0, 8, 0, 0, 0]), Class::Other, "epoll_wait that only asks");
        assert_eq!(class(202, [0, 128, 0, 0, 0, 0]), Class::Sync, "FUTEX_WAIT_PRIVATE");
        assert_eq!(class(202, [0, 129, 0, 0, 0, 0]), Class::Other, "FUTEX_WAKE_PRIVATE");
        assert_eq!(class(45, [3, 0, 8, 0x40, 0, 0]), Class::Other, "recvfrom with MSG_DONTWAIT");
        assert_eq!(class(1, [0; 6]), Class::Other, "write");
        assert_eq!(Abi::Generic.class(115, &[1, 1, 0, 0, 0, 0]), Class::Sleep);
    }
}
