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

use takt_model::named;

use crate::event::{EventKind, KernelEvent, Pid, SwitchOutState};

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

named! {
    /// The kind of machine whose numbers of system calls a trace has.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Abi {
        /// x86-64.
        X86_64 => "x86-64",
        /// arm64, riscv, loongarch64: the numbers of asm-generic.
        Generic => "arm64 or riscv",
        /// 32-bit ARM (EABI).
        Arm => "arm",
        /// PowerPC, 32 and 64 bits.
        Powerpc => "ppc64",
        /// 32-bit x86.
        I386 => "i386",
    }
}

impl Abi {
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

    /// All system calls that jobs are told by, so that a recorder can leave the others out.
    #[must_use]
    pub fn calls(self) -> Vec<i64> {
        self.rows().map(|(number, _)| number).collect()
    }

    /// The calls that the machine has, in the order of numbers.
    fn rows(self) -> impl Iterator<Item = (i64, &'static Row)> {
        (0..NUMBERS as i64).filter_map(move |number| Some((number, self.row(number)?)))
    }

    #[inline]
    fn row(self, number: i64) -> Option<&'static Row> {
        let row = ROWS[self as usize].get(usize::try_from(number).ok()?)?;
        CALLS.get(usize::from(*row))
    }

    #[inline]
    pub(crate) fn class(self, number: i64, args: &[u64; 6]) -> Class {
        let Some(&(class, asks, _)) = self.row(number) else { return Class::Other };
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
        self.row(number).is_some_and(|row| matches!(row.0, Class::Sleep | Class::Wait | Class::Take | Class::Sync))
    }
}

/// Guesses the machine of a trace that does not name it, by the calls in which threads slept.
#[derive(Clone, Debug, Default)]
pub struct AbiGuess {
    /// The call in which each thread is.
    calls: BTreeMap<Pid, i64>,
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

/// A system call: its class, the argument that tells whether it waits, and its numbers.
type Row = (Class, BlockingRule, [i64; Abi::ALL.len()]);

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

/// The calls, each with its number on x86-64, asm-generic, ARM, PowerPC and 32-bit x86, in the order
/// of [`Abi`]; -1: the machine does not have it. From number 403 on all machines have the same
/// numbers. Those below 424 take times of 64 bits, and x86-64 does not have them.
static CALLS: [Row; 51] = [
    (Class::Sleep, BlockingRule::Waits, [35, 101, 162, 162, 162]), // nanosleep
    (Class::Sleep, BlockingRule::Waits, [230, 115, 265, 248, 267]), // clock_nanosleep
    (Class::Sleep, BlockingRule::Waits, [-1, 407, 407, 407, 407]), // clock_nanosleep_time64
    (Class::Wait, BlockingRule::Timeout(2), [7, -1, 168, 167, 168]), // poll
    (Class::Wait, BlockingRule::Waits, [23, -1, -1, 82, 82]),      // select
    (Class::Wait, BlockingRule::Waits, [34, -1, 29, 29, 29]),      // pause
    (Class::Wait, BlockingRule::Waits, [128, 137, 177, 176, 177]), // rt_sigtimedwait
    (Class::Wait, BlockingRule::Waits, [130, 133, 179, 178, 179]), // rt_sigsuspend
    (Class::Wait, BlockingRule::Timeout(3), [232, -1, 252, 238, 256]), // epoll_wait
    (Class::Wait, BlockingRule::Waits, [270, 72, 335, 280, 308]),  // pselect6
    (Class::Wait, BlockingRule::Waits, [271, 73, 336, 281, 309]),  // ppoll
    (Class::Wait, BlockingRule::Timeout(3), [281, 22, 346, 303, 319]), // epoll_pwait
    (Class::Wait, BlockingRule::Waits, [-1, -1, 72, 72, 72]),      // sigsuspend
    (Class::Wait, BlockingRule::Waits, [-1, -1, 142, 142, 142]),   // _newselect
    (Class::Wait, BlockingRule::Waits, [-1, 413, 413, 413, 413]),  // pselect6_time64
    (Class::Wait, BlockingRule::Waits, [-1, 414, 414, 414, 414]),  // ppoll_time64
    (Class::Wait, BlockingRule::Waits, [-1, 421, 421, 421, 421]),  // rt_sigtimedwait_time64
    (Class::Wait, BlockingRule::Waits, [441, 441, 441, 441, 441]), // epoll_pwait2
    (Class::Take, BlockingRule::Waits, [0, 63, 3, 3, 3]),          // read
    (Class::Take, BlockingRule::Waits, [17, 67, 180, 179, 180]),   // pread64
    (Class::Take, BlockingRule::Waits, [19, 65, 145, 145, 145]),   // readv
    (Class::Take, BlockingRule::Waits, [43, 202, 285, 330, -1]),   // accept
    (Class::Take, BlockingRule::Flags(3), [45, 207, 292, 337, 371]), // recvfrom
    (Class::Take, BlockingRule::Flags(2), [47, 212, 297, 342, 372]), // recvmsg
    (Class::Take, BlockingRule::Waits, [61, 260, 114, 114, 114]),  // wait4
    (Class::Take, BlockingRule::Waits, [70, 188, 302, 401, 401]),  // msgrcv
    (Class::Take, BlockingRule::Waits, [208, 4, 245, 229, 247]),   // io_getevents
    (Class::Take, BlockingRule::Waits, [243, 183, 277, 265, 280]), // mq_timedreceive
    (Class::Take, BlockingRule::Waits, [247, 95, 280, 272, 284]),  // waitid
    (Class::Take, BlockingRule::Waits, [288, 242, 366, 344, 364]), // accept4
    (Class::Take, BlockingRule::Waits, [295, 69, 361, 320, 333]),  // preadv
    (Class::Take, BlockingRule::Flags(3), [299, 243, 365, 343, 337]), // recvmmsg
    (Class::Take, BlockingRule::Waits, [327, 286, 392, 380, 378]), // preadv2
    (Class::Take, BlockingRule::Waits, [333, 292, 399, 388, 385]), // io_pgetevents
    (Class::Take, BlockingRule::Flags(3), [-1, -1, 291, 336, -1]), // recv
    (Class::Take, BlockingRule::Waits, [-1, -1, -1, 7, 7]),        // waitpid
    // socketcall: accept, recv, recvfrom, recvmsg, accept4, recvmmsg
    (Class::Take, BlockingRule::Among(&[5, 10, 12, 17, 18, 19]), [-1, -1, -1, 102, 102]),
    (Class::Take, BlockingRule::Among(&[12]), [-1, -1, -1, 117, 117]), // ipc: msgrcv
    (Class::Take, BlockingRule::Waits, [-1, 416, 416, 416, 416]),      // io_pgetevents_time64
    (Class::Take, BlockingRule::Flags(3), [-1, 417, 417, 417, 417]),   // recvmmsg_time64
    (Class::Take, BlockingRule::Waits, [-1, 419, 419, 419, 419]),      // mq_timedreceive_time64
    (Class::Take, BlockingRule::Waits, [426, 426, 426, 426, 426]),     // io_uring_enter
    (Class::Sync, BlockingRule::Waits, [65, 193, 298, -1, -1]),        // semop
    (Class::Sync, BlockingRule::Futex, [202, 98, 240, 221, 240]),      // futex
    (Class::Sync, BlockingRule::Waits, [220, 192, 312, 392, -1]),      // semtimedop
    (Class::Sync, BlockingRule::Waits, [-1, 420, 420, 420, 420]),      // semtimedop_time64
    (Class::Sync, BlockingRule::Futex, [-1, 422, 422, 422, 422]),      // futex_time64
    (Class::Sync, BlockingRule::Waits, [449, 449, 449, 449, 449]),     // futex_waitv
    (Class::Sync, BlockingRule::Waits, [455, 455, 455, 455, 455]),     // futex_wait
    (Class::Yield, BlockingRule::Waits, [24, 124, 158, 158, 158]),     // sched_yield
    (Class::Restart, BlockingRule::Waits, [219, 128, 0, 0, 0]),        // restart_syscall
];

/// Where each number stands in [`CALLS`], by machine; [`NO_ROW`]: nowhere.
static ROWS: [[u8; NUMBERS]; Abi::ALL.len()] = {
    let mut rows = [[NO_ROW; NUMBERS]; Abi::ALL.len()];
    let mut row = 0;
    while row < CALLS.len() {
        let mut abi = 0;
        while abi < rows.len() {
            let number = CALLS[row].2[abi];
            if number >= 0 {
                rows[abi][number as usize] = row as u8;
            }
            abi += 1;
        }
        row += 1;
    }
    rows
};

/// More than the largest number of a call.
const NUMBERS: usize = 456;
const NO_ROW: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Comm, Thread};

    #[test]
    fn no_two_calls_have_one_number() {
        for (k, abi) in Abi::ALL.into_iter().enumerate() {
            assert_eq!(abi.calls().len(), CALLS.iter().filter(|row| row.2[k] >= 0).count(), "{abi:?}");
        }
    }

    #[test]
    fn calls_without_arguments_are_of_their_class() {
        for abi in Abi::ALL {
            for (number, (class, asks, _)) in abi.rows() {
                if matches!(asks, BlockingRule::Among(_)) {
                    continue;
                }
                assert_eq!(abi.class(number, &ARGS_UNKNOWN), *class, "{abi:?} {number}");
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
