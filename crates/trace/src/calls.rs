//! System calls that end jobs: their numbers, and the events that they wait for.
//!
//! | class | calls | ends a job |
//! |---|---|---|
//! | [`Class::Sleep`] | clock_nanosleep, nanosleep | always, when it is entered |
//! | [`Class::Wait`] | epoll_wait, epoll_pwait, epoll_pwait2, poll, ppoll, select, pselect6, rt_sigtimedwait, rt_sigsuspend, pause | always, when it is entered, unless it asks without waiting (a timeout of zero, where registers tell it) |
//! | [`Class::Take`] | read, readv, pread64, recv, recvfrom, recvmsg, recvmmsg, accept, accept4, mq_timedreceive, msgrcv, io_getevents, io_uring_enter, wait4, waitid | where it blocks; of a descriptor that was blocked on before, reads of eight bytes (timerfd, eventfd) always |
//! | [`Class::Sync`] | futex, futex_waitv, semop, semtimedop | where it blocks, in threads that have none of the others: workers on condition variables |
//! | [`Class::Yield`] | sched_yield | of a SCHED_DEADLINE thread always: it gives up the rest of its budget until the next period |
//!
//! LiME, the Linux model extractor, tells jobs by a blocking call's entry and exit, by suspensions
//! and by yields; here a thread's own calls choose among these.
//!
//! Numbers are those of the kernel's tables (arch/*/**/syscall*.tbl,
//! include/uapi/asm-generic/unistd.h).

use std::collections::BTreeMap;

use crate::event::{EventKind, KernelEvent, Pid, SwitchOutState};

/// A system call's effect on the job of its caller.
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

/// The kind of machine whose numbers of system calls a trace has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Abi {
    /// x86-64.
    X86_64,
    /// arm64, riscv, loongarch64: the numbers of asm-generic.
    Generic,
    /// 32-bit ARM (EABI).
    Arm,
    /// PowerPC, 32 and 64 bits.
    Powerpc,
    /// 32-bit x86.
    I386,
}

impl Abi {
    /// All of them.
    pub const ALL: [Abi; 5] = [Abi::X86_64, Abi::Generic, Abi::Arm, Abi::Powerpc, Abi::I386];

    /// The machine of this program. It is x86-64 if the table has no entry.
    pub const NATIVE: Abi = if cfg!(any(
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "riscv32",
        target_arch = "loongarch64"
    )) {
        Abi::Generic
    } else if cfg!(target_arch = "arm") {
        Abi::Arm
    } else if cfg!(any(target_arch = "powerpc", target_arch = "powerpc64")) {
        Abi::Powerpc
    } else if cfg!(target_arch = "x86") {
        Abi::I386
    } else {
        Abi::X86_64
    };

    /// The entry for a machine, as `uname -m` names it; `None`: unknown.
    #[must_use]
    pub fn of_machine(machine: &str) -> Option<Abi> {
        Some(match machine {
            "x86_64" | "amd64" => Abi::X86_64,
            "aarch64" | "aarch64_be" | "arm64" | "riscv64" | "riscv32" | "loongarch64" => Abi::Generic,
            "i386" | "i486" | "i586" | "i686" | "x86" => Abi::I386,
            machine if machine.starts_with("ppc") || machine.starts_with("powerpc") => Abi::Powerpc,
            // armv7l and its kin; armv8l is a 64-bit kernel's answer to 32-bit programs.
            machine if machine.starts_with("arm") => Abi::Arm,
            _ => return None,
        })
    }

    /// The machines, as they are called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Abi::X86_64 => "x86-64",
            Abi::Generic => "arm64 or riscv",
            Abi::Arm => "arm",
            Abi::Powerpc => "ppc64",
            Abi::I386 => "i386",
        }
    }

    /// All system calls that jobs are told by, so that a recorder can leave the others out.
    #[must_use]
    pub fn calls(self) -> Vec<i64> {
        self.rows().map(|(number, ..)| *number).collect()
    }

    /// The calls below number 403.
    fn table(self) -> &'static [Row] {
        match self {
            Abi::X86_64 => &X86_64,
            Abi::Generic => &GENERIC,
            Abi::Arm => &ARM,
            Abi::Powerpc => &POWERPC,
            Abi::I386 => &I386,
        }
    }

    /// Whether the machine has a call of [`RECENT`].
    fn has_recent(self, number: i64) -> bool {
        number >= 424 || self != Abi::X86_64
    }

    fn rows(self) -> impl Iterator<Item = &'static Row> {
        self.table().iter().chain(RECENT.iter().filter(move |(number, ..)| self.has_recent(*number)))
    }

    #[inline]
    fn row(self, number: i64) -> Option<&'static Row> {
        let table: &'static [Row] = if number < 403 { self.table() } else { &RECENT };
        let row = table.get(table.binary_search_by_key(&number, |(number, ..)| *number).ok()?)?;
        (number < 403 || self.has_recent(number)).then_some(row)
    }

    /// The class of the call with this number and these arguments.
    #[inline]
    pub(crate) fn class(self, number: i64, args: &[u64; 6]) -> Class {
        let Some(&(_, class, asks)) = self.row(number) else { return Class::Other };
        match asks {
            BlockingRule::Waits => class,
            // The timeout is an int: its upper half is whatever the register held.
            BlockingRule::Timeout(k) if args[k] as u32 == 0 => Class::Other,
            BlockingRule::Timeout(_) => class,
            // FUTEX_WAIT 0, LOCK_PI 6, WAIT_BITSET 9, WAIT_REQUEUE_PI 11; waiting for a lock is
            // within a job.
            BlockingRule::Futex if matches!(args[1] & 0x7f, 0 | 9 | 11) => class,
            BlockingRule::Futex => Class::Other,
            // MSG_DONTWAIT
            BlockingRule::Flags(k) if args[k] & 0x40 != 0 => Class::Other,
            BlockingRule::Flags(_) => class,
            BlockingRule::Among(operations) if operations.contains(&args[0]) => class,
            BlockingRule::Among(_) => Class::Other,
        }
    }

    /// Whether a thread may sleep in that call, as far as its number tells.
    fn waits(self, number: i64) -> bool {
        self.row(number).is_some_and(|row| matches!(row.1, Class::Sleep | Class::Wait | Class::Take | Class::Sync))
    }
}

/// Guesses the machine of a trace that does not name it, by the calls in which threads slept.
#[derive(Clone, Debug, Default)]
pub struct AbiGuess {
    /// The call in which each thread is.
    calls: BTreeMap<Pid, i64>,
    /// How often a thread slept in a call of that number.
    slept: BTreeMap<i64, u64>,
    all: u64,
}

impl AbiGuess {
    /// So many calls are enough.
    const ENOUGH: u64 = 10_000;

    /// Takes in an event, in the order of time.
    pub fn event(&mut self, event: &KernelEvent) {
        if self.all >= Self::ENOUGH {
            return;
        }
        match event.what {
            EventKind::SyscallEnter { number, .. } => {
                self.calls.insert(event.pid, number);
            }
            EventKind::SyscallExit { .. } => {
                self.calls.remove(&event.pid);
            }
            EventKind::Switch { prev, left: SwitchOutState::Blocked, .. } => {
                // Once a call: it may sleep several times.
                if let Some(number) = self.calls.remove(&prev.pid) {
                    *self.slept.entry(number).or_default() += 1;
                    self.all += 1;
                }
            }
            _ => {}
        }
    }

    /// In how many calls threads slept.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.all
    }

    /// In how many calls threads slept that are there to sleep in, by the numbers of `abi`.
    #[must_use]
    pub fn fits(&self, abi: Abi) -> u64 {
        self.slept.iter().filter(|(number, _)| abi.waits(**number)).map(|(_, count)| count).sum()
    }

    /// The machines whose numbers fit best. Only [`Abi::NATIVE`] if it is among them, or if no
    /// other fits much better.
    #[must_use]
    pub fn best(&self) -> Vec<Abi> {
        let best = Abi::ALL.map(|abi| self.fits(abi)).into_iter().max().unwrap_or(0);
        if best <= self.fits(Abi::NATIVE).saturating_mul(2) {
            return vec![Abi::NATIVE];
        }
        Abi::ALL.into_iter().filter(|abi| self.fits(*abi) == best).collect()
    }
}

/// A system call: its number, its class, and the argument that tells whether it waits.
type Row = (i64, Class, BlockingRule);

/// The argument that tells whether a call waits.
#[derive(Clone, Copy, Debug)]
enum BlockingRule {
    /// None.
    Waits,
    /// A timeout in milliseconds; zero asks without waiting.
    Timeout(usize),
    /// The operation of a futex.
    Futex,
    /// Flags of a socket call.
    Flags(usize),
    /// One number stands for many calls. The first argument tells the call: these wait.
    Among(&'static [u64]),
}

/// Stands for the arguments of a call where a trace has none: as if it waits, where arguments would
/// tell, and reads no timer.
pub(crate) const ARGS_UNKNOWN: [u64; 6] = [1, 0, 1, 1, 1, 1];

/// In the order of numbers.
const X86_64: [Row; 32] = [
    (0, Class::Take, BlockingRule::Waits),        // read
    (7, Class::Wait, BlockingRule::Timeout(2)),   // poll
    (17, Class::Take, BlockingRule::Waits),       // pread64
    (19, Class::Take, BlockingRule::Waits),       // readv
    (23, Class::Wait, BlockingRule::Waits),       // select
    (24, Class::Yield, BlockingRule::Waits),      // sched_yield
    (34, Class::Wait, BlockingRule::Waits),       // pause
    (35, Class::Sleep, BlockingRule::Waits),      // nanosleep
    (43, Class::Take, BlockingRule::Waits),       // accept
    (45, Class::Take, BlockingRule::Flags(3)),    // recvfrom
    (47, Class::Take, BlockingRule::Flags(2)),    // recvmsg
    (61, Class::Take, BlockingRule::Waits),       // wait4
    (65, Class::Sync, BlockingRule::Waits),       // semop
    (70, Class::Take, BlockingRule::Waits),       // msgrcv
    (128, Class::Wait, BlockingRule::Waits),      // rt_sigtimedwait
    (130, Class::Wait, BlockingRule::Waits),      // rt_sigsuspend
    (202, Class::Sync, BlockingRule::Futex),      // futex
    (208, Class::Take, BlockingRule::Waits),      // io_getevents
    (219, Class::Restart, BlockingRule::Waits),   // restart_syscall
    (220, Class::Sync, BlockingRule::Waits),      // semtimedop
    (230, Class::Sleep, BlockingRule::Waits),     // clock_nanosleep
    (232, Class::Wait, BlockingRule::Timeout(3)), // epoll_wait
    (243, Class::Take, BlockingRule::Waits),      // mq_timedreceive
    (247, Class::Take, BlockingRule::Waits),      // waitid
    (270, Class::Wait, BlockingRule::Waits),      // pselect6
    (271, Class::Wait, BlockingRule::Waits),      // ppoll
    (281, Class::Wait, BlockingRule::Timeout(3)), // epoll_pwait
    (288, Class::Take, BlockingRule::Waits),      // accept4
    (295, Class::Take, BlockingRule::Waits),      // preadv
    (299, Class::Take, BlockingRule::Flags(3)),   // recvmmsg
    (327, Class::Take, BlockingRule::Waits),      // preadv2
    (333, Class::Take, BlockingRule::Waits),      // io_pgetevents
];

/// In the order of numbers.
const GENERIC: [Row; 28] = [
    (4, Class::Take, BlockingRule::Waits),       // io_getevents
    (22, Class::Wait, BlockingRule::Timeout(3)), // epoll_pwait
    (63, Class::Take, BlockingRule::Waits),      // read
    (65, Class::Take, BlockingRule::Waits),      // readv
    (67, Class::Take, BlockingRule::Waits),      // pread64
    (69, Class::Take, BlockingRule::Waits),      // preadv
    (72, Class::Wait, BlockingRule::Waits),      // pselect6
    (73, Class::Wait, BlockingRule::Waits),      // ppoll
    (95, Class::Take, BlockingRule::Waits),      // waitid
    (98, Class::Sync, BlockingRule::Futex),      // futex
    (101, Class::Sleep, BlockingRule::Waits),    // nanosleep
    (115, Class::Sleep, BlockingRule::Waits),    // clock_nanosleep
    (124, Class::Yield, BlockingRule::Waits),    // sched_yield
    (128, Class::Restart, BlockingRule::Waits),  // restart_syscall
    (133, Class::Wait, BlockingRule::Waits),     // rt_sigsuspend
    (137, Class::Wait, BlockingRule::Waits),     // rt_sigtimedwait
    (183, Class::Take, BlockingRule::Waits),     // mq_timedreceive
    (188, Class::Take, BlockingRule::Waits),     // msgrcv
    (192, Class::Sync, BlockingRule::Waits),     // semtimedop
    (193, Class::Sync, BlockingRule::Waits),     // semop
    (202, Class::Take, BlockingRule::Waits),     // accept
    (207, Class::Take, BlockingRule::Flags(3)),  // recvfrom
    (212, Class::Take, BlockingRule::Flags(2)),  // recvmsg
    (242, Class::Take, BlockingRule::Waits),     // accept4
    (243, Class::Take, BlockingRule::Flags(3)),  // recvmmsg
    (260, Class::Take, BlockingRule::Waits),     // wait4
    (286, Class::Take, BlockingRule::Waits),     // preadv2
    (292, Class::Take, BlockingRule::Waits),     // io_pgetevents
];

/// In the order of numbers.
const ARM: [Row; 34] = [
    (0, Class::Restart, BlockingRule::Waits),     // restart_syscall
    (3, Class::Take, BlockingRule::Waits),        // read
    (29, Class::Wait, BlockingRule::Waits),       // pause
    (72, Class::Wait, BlockingRule::Waits),       // sigsuspend
    (114, Class::Take, BlockingRule::Waits),      // wait4
    (142, Class::Wait, BlockingRule::Waits),      // _newselect
    (145, Class::Take, BlockingRule::Waits),      // readv
    (158, Class::Yield, BlockingRule::Waits),     // sched_yield
    (162, Class::Sleep, BlockingRule::Waits),     // nanosleep
    (168, Class::Wait, BlockingRule::Timeout(2)), // poll
    (177, Class::Wait, BlockingRule::Waits),      // rt_sigtimedwait
    (179, Class::Wait, BlockingRule::Waits),      // rt_sigsuspend
    (180, Class::Take, BlockingRule::Waits),      // pread64
    (240, Class::Sync, BlockingRule::Futex),      // futex
    (245, Class::Take, BlockingRule::Waits),      // io_getevents
    (252, Class::Wait, BlockingRule::Timeout(3)), // epoll_wait
    (265, Class::Sleep, BlockingRule::Waits),     // clock_nanosleep
    (277, Class::Take, BlockingRule::Waits),      // mq_timedreceive
    (280, Class::Take, BlockingRule::Waits),      // waitid
    (285, Class::Take, BlockingRule::Waits),      // accept
    (291, Class::Take, BlockingRule::Flags(3)),   // recv
    (292, Class::Take, BlockingRule::Flags(3)),   // recvfrom
    (297, Class::Take, BlockingRule::Flags(2)),   // recvmsg
    (298, Class::Sync, BlockingRule::Waits),      // semop
    (302, Class::Take, BlockingRule::Waits),      // msgrcv
    (312, Class::Sync, BlockingRule::Waits),      // semtimedop
    (335, Class::Wait, BlockingRule::Waits),      // pselect6
    (336, Class::Wait, BlockingRule::Waits),      // ppoll
    (346, Class::Wait, BlockingRule::Timeout(3)), // epoll_pwait
    (361, Class::Take, BlockingRule::Waits),      // preadv
    (365, Class::Take, BlockingRule::Flags(3)),   // recvmmsg
    (366, Class::Take, BlockingRule::Waits),      // accept4
    (392, Class::Take, BlockingRule::Waits),      // preadv2
    (399, Class::Take, BlockingRule::Waits),      // io_pgetevents
];

/// In the order of numbers.
const POWERPC: [Row; 37] = [
    (0, Class::Restart, BlockingRule::Waits), // restart_syscall
    (3, Class::Take, BlockingRule::Waits),    // read
    (7, Class::Take, BlockingRule::Waits),    // waitpid
    (29, Class::Wait, BlockingRule::Waits),   // pause
    (72, Class::Wait, BlockingRule::Waits),   // sigsuspend
    (82, Class::Wait, BlockingRule::Waits),   // select
    // socketcall: accept, recv, recvfrom, recvmsg, accept4, recvmmsg.
    (102, Class::Take, BlockingRule::Among(&[5, 10, 12, 17, 18, 19])),
    (114, Class::Take, BlockingRule::Waits),        // wait4
    (117, Class::Take, BlockingRule::Among(&[12])), // ipc: msgrcv
    (142, Class::Wait, BlockingRule::Waits),        // _newselect
    (145, Class::Take, BlockingRule::Waits),        // readv
    (158, Class::Yield, BlockingRule::Waits),       // sched_yield
    (162, Class::Sleep, BlockingRule::Waits),       // nanosleep
    (167, Class::Wait, BlockingRule::Timeout(2)),   // poll
    (176, Class::Wait, BlockingRule::Waits),        // rt_sigtimedwait
    (178, Class::Wait, BlockingRule::Waits),        // rt_sigsuspend
    (179, Class::Take, BlockingRule::Waits),        // pread64
    (221, Class::Sync, BlockingRule::Futex),        // futex
    (229, Class::Take, BlockingRule::Waits),        // io_getevents
    (238, Class::Wait, BlockingRule::Timeout(3)),   // epoll_wait
    (248, Class::Sleep, BlockingRule::Waits),       // clock_nanosleep
    (265, Class::Take, BlockingRule::Waits),        // mq_timedreceive
    (272, Class::Take, BlockingRule::Waits),        // waitid
    (280, Class::Wait, BlockingRule::Waits),        // pselect6
    (281, Class::Wait, BlockingRule::Waits),        // ppoll
    (303, Class::Wait, BlockingRule::Timeout(3)),   // epoll_pwait
    (320, Class::Take, BlockingRule::Waits),        // preadv
    (330, Class::Take, BlockingRule::Waits),        // accept
    (336, Class::Take, BlockingRule::Flags(3)),     // recv
    (337, Class::Take, BlockingRule::Flags(3)),     // recvfrom
    (342, Class::Take, BlockingRule::Flags(2)),     // recvmsg
    (343, Class::Take, BlockingRule::Flags(3)),     // recvmmsg
    (344, Class::Take, BlockingRule::Waits),        // accept4
    (380, Class::Take, BlockingRule::Waits),        // preadv2
    (388, Class::Take, BlockingRule::Waits),        // io_pgetevents
    (392, Class::Sync, BlockingRule::Waits),        // semtimedop
    (401, Class::Take, BlockingRule::Waits),        // msgrcv
];

/// In the order of numbers.
const I386: [Row; 34] = [
    (0, Class::Restart, BlockingRule::Waits), // restart_syscall
    (3, Class::Take, BlockingRule::Waits),    // read
    (7, Class::Take, BlockingRule::Waits),    // waitpid
    (29, Class::Wait, BlockingRule::Waits),   // pause
    (72, Class::Wait, BlockingRule::Waits),   // sigsuspend
    (82, Class::Wait, BlockingRule::Waits),   // select
    // socketcall: accept, recv, recvfrom, recvmsg, accept4, recvmmsg.
    (102, Class::Take, BlockingRule::Among(&[5, 10, 12, 17, 18, 19])),
    (114, Class::Take, BlockingRule::Waits),        // wait4
    (117, Class::Take, BlockingRule::Among(&[12])), // ipc: msgrcv
    (142, Class::Wait, BlockingRule::Waits),        // _newselect
    (145, Class::Take, BlockingRule::Waits),        // readv
    (158, Class::Yield, BlockingRule::Waits),       // sched_yield
    (162, Class::Sleep, BlockingRule::Waits),       // nanosleep
    (168, Class::Wait, BlockingRule::Timeout(2)),   // poll
    (177, Class::Wait, BlockingRule::Waits),        // rt_sigtimedwait
    (179, Class::Wait, BlockingRule::Waits),        // rt_sigsuspend
    (180, Class::Take, BlockingRule::Waits),        // pread64
    (240, Class::Sync, BlockingRule::Futex),        // futex
    (247, Class::Take, BlockingRule::Waits),        // io_getevents
    (256, Class::Wait, BlockingRule::Timeout(3)),   // epoll_wait
    (267, Class::Sleep, BlockingRule::Waits),       // clock_nanosleep
    (280, Class::Take, BlockingRule::Waits),        // mq_timedreceive
    (284, Class::Take, BlockingRule::Waits),        // waitid
    (308, Class::Wait, BlockingRule::Waits),        // pselect6
    (309, Class::Wait, BlockingRule::Waits),        // ppoll
    (319, Class::Wait, BlockingRule::Timeout(3)),   // epoll_pwait
    (333, Class::Take, BlockingRule::Waits),        // preadv
    (337, Class::Take, BlockingRule::Flags(3)),     // recvmmsg
    (364, Class::Take, BlockingRule::Waits),        // accept4
    (371, Class::Take, BlockingRule::Flags(3)),     // recvfrom
    (372, Class::Take, BlockingRule::Flags(2)),     // recvmsg
    (378, Class::Take, BlockingRule::Waits),        // preadv2
    (385, Class::Take, BlockingRule::Waits),        // io_pgetevents
    (401, Class::Take, BlockingRule::Waits),        // msgrcv
];

/// Calls from number 403 on have one number on all machines. Those below 424 take times of 64 bits,
/// and x86-64 does not have them. In the order of numbers.
const RECENT: [Row; 13] = [
    (407, Class::Sleep, BlockingRule::Waits),   // clock_nanosleep_time64
    (413, Class::Wait, BlockingRule::Waits),    // pselect6_time64
    (414, Class::Wait, BlockingRule::Waits),    // ppoll_time64
    (416, Class::Take, BlockingRule::Waits),    // io_pgetevents_time64
    (417, Class::Take, BlockingRule::Flags(3)), // recvmmsg_time64
    (419, Class::Take, BlockingRule::Waits),    // mq_timedreceive_time64
    (420, Class::Sync, BlockingRule::Waits),    // semtimedop_time64
    (421, Class::Wait, BlockingRule::Waits),    // rt_sigtimedwait_time64
    (422, Class::Sync, BlockingRule::Futex),    // futex_time64
    (426, Class::Take, BlockingRule::Waits),    // io_uring_enter
    (441, Class::Wait, BlockingRule::Waits),    // epoll_pwait2
    (449, Class::Sync, BlockingRule::Waits),    // futex_waitv
    (455, Class::Sync, BlockingRule::Waits),    // futex_wait
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Comm, Thread};

    #[test]
    fn tables_are_in_order() {
        for abi in Abi::ALL {
            assert!(abi.calls().is_sorted_by(|a, b| a < b), "{abi:?}");
        }
    }

    #[test]
    fn calls_without_arguments_are_of_their_class() {
        for abi in Abi::ALL {
            for (number, class, asks) in abi.rows() {
                if matches!(asks, BlockingRule::Among(_)) {
                    continue;
                }
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
        assert_eq!(Abi::I386.class(102, &[10, 0, 0, 0, 0, 0]), Class::Take, "socketcall that is recv");
        assert_eq!(Abi::I386.class(102, &[9, 0, 0, 0, 0, 0]), Class::Other, "socketcall that is send");
    }

    /// The calls of each machine in which a thread sleeps are recognized, but where they are those
    /// of others, too.
    #[test]
    fn numbers_tell_the_machine() {
        let thread = |pid| Thread { pid, comm: Comm::NONE, prio: None };
        let of = |numbers: &[i64]| {
            let mut guess = AbiGuess::default();
            for (pid, number) in (1..).zip(numbers) {
                let event = |what| KernelEvent { pid, what, ..KernelEvent::NONE };
                guess.event(&event(EventKind::SyscallEnter { number: *number, args: [0; 6] }));
                guess.event(&event(EventKind::Switch {
                    prev: thread(pid),
                    left: SwitchOutState::Blocked,
                    next: thread(0),
                }));
            }
            guess.best()
        };
        assert_eq!(of(&[]), [Abi::NATIVE]);
        assert_eq!(of(&[1, 1, 1]), [Abi::NATIVE], "nothing fits");
        if Abi::NATIVE == Abi::X86_64 {
            assert_eq!(of(&[230, 232, 202, 0]), [Abi::X86_64]);
            assert_eq!(of(&[115, 22, 98, 63]), [Abi::Generic]);
            assert_eq!(of(&[265, 252, 240, 3]), [Abi::Arm]);
            assert_eq!(of(&[248, 238, 221, 3]), [Abi::Powerpc]);
            assert_eq!(of(&[267, 256, 240, 3]), [Abi::I386]);
            assert_eq!(of(&[162, 3]), [Abi::Arm, Abi::Powerpc, Abi::I386]);
        }
    }

    #[test]
    fn machines_by_their_names() {
        for (machine, abi) in [
            ("x86_64", Some(Abi::X86_64)),
            ("aarch64", Some(Abi::Generic)),
            ("riscv64", Some(Abi::Generic)),
            ("armv7l", Some(Abi::Arm)),
            ("ppc64le", Some(Abi::Powerpc)),
            ("i686", Some(Abi::I386)),
            ("s390x", None),
            ("", None),
        ] {
            assert_eq!(Abi::of_machine(machine), abi, "{machine}");
        }
    }
}
