//! One event of the kernel, from a trace of any form.

use std::fmt;

use takt_model::Time;

/// A thread's id, as the kernel's scheduler knows it; 0 is the idle thread of any CPU.
pub type Pid = u32;

/// Kernels number their CPUs below this. An event of a larger number is damage.
pub const CPUS_MAX: u32 = 1 << 16;

/// A thread's name, at most 15 bytes, as the kernel keeps it. Not always UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Comm([u8; 16]);

impl Comm {
    /// No name.
    pub(crate) const NONE: Comm = Comm([0; 16]);

    /// The name in `bytes`, up to the first NUL, cut after 15 bytes.
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self::whole(match bytes.first_chunk() {
            Some(whole) => *whole,
            None => {
                let mut name = [0; 16];
                name[..bytes.len()].copy_from_slice(bytes);
                name
            }
        })
    }
    /// The same of bytes as kernels have it.
    #[inline(always)]
    pub(crate) fn whole(name: [u8; 16]) -> Self {
        // Numbers all the way: a byte written into a name that is read as a whole at once would
        // cost a wait for that byte.
        const TOP: u128 = 0xff << 120;
        const HALF: u128 = u64::MAX as u128;
        let value = u128::from_le_bytes(name) & !TOP;
        let (first, second) = ((value & HALF) as u64, (value >> 64) as u64);
        // The bytes behind the first NUL are no name.
        let (first, second) = match before_nul(first) {
            u64::MAX => (first, second & before_nul(second)),
            kept => (first & kept, 0),
        };
        Comm((u128::from(first) | u128::from(second) << 64).to_le_bytes())
    }
    /// Its bytes, without NUL.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

/// The bytes of `value` before its first zero one, all bits of each set; all of them where there is
/// none.
#[inline(always)]
fn before_nul(value: u64) -> u64 {
    // At the first NUL, the lowest, subtracting 1 borrows: its topmost bit is the lowest bit left.
    let nuls = value.wrapping_sub(u64::from_le_bytes([1; 8])) & !value & u64::from_le_bytes([0x80; 8]);
    match nuls {
        0 => u64::MAX,
        nuls => (nuls & nuls.wrapping_neg()).wrapping_sub(1) >> 7,
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

/// A thread as a scheduling event names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its id.
    pub pid: Pid,
    /// Its name at that moment.
    pub comm: Comm,
    /// The kernel's priority: -1 SCHED_DEADLINE, 0 to 98 real-time (98 - n for SCHED_FIFO n + 1),
    /// 100 to 139 by niceness; `None` where the trace does not say.
    pub prio: Option<i32>,
}

impl Thread {
    /// Whether it is of the ordinary class, which all real-time threads go before.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        self.prio.is_some_and(|prio| prio >= 100)
    }

    /// Whether it is of a real-time class, SCHED_DEADLINE included.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.prio.is_some_and(|prio| prio < 100)
    }

    /// Whether SCHED_DEADLINE threads are more important. The kernel's stop threads, which migrate
    /// others, are more important than those, and show a priority of a lesser class.
    #[must_use]
    pub fn is_below_deadline(&self) -> bool {
        self.prio.is_some_and(|prio| prio >= 0) && !self.comm.bytes().starts_with(b"migration/")
    }
}

/// In which state a thread left its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchOutState {
    /// Ready, and the kernel took the CPU from it while it was in the kernel (`R+`).
    Preempted,
    /// Ready (`R`): it yielded, or the kernel took the CPU from it on the way back to its program.
    Ready,
    /// Not ready: it sleeps or waits. A signal would wake it (`S`), or it is an idle kernel thread
    /// (`I`).
    Blocked,
    /// Not ready within some work: it waits for a disk, a page, a lock of the kernel (`D`), or was
    /// stopped (`T`, `t`).
    Held,
    /// It has ended (`X`, `Z`).
    Ended,
}

/// The stage of a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waking {
    /// `sched_waking`: somebody begins to wake it; on the waker's CPU, always recorded.
    Begins,
    /// `sched_wakeup`: it is in a queue of ready threads.
    Queued,
    /// `sched_wakeup_new`: the same, for a new thread.
    New,
}

/// One event. Its meaning is the kernel's; what is not listed is [`EventKind::Other`], which is counted
/// alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A CPU goes from one thread to another.
    Switch {
        /// Which thread ran.
        prev: Thread,
        /// How it left.
        left: SwitchOutState,
        /// Which one runs now.
        next: Thread,
    },
    /// A thread is woken.
    Wake {
        /// Which one.
        thread: Thread,
        /// How far that is.
        waking: Waking,
        /// The CPU on whose queue it will be, where the trace says so.
        cpu: Option<u32>,
    },
    /// A thread goes to another CPU's queue.
    Migrate {
        /// Which one.
        pid: Pid,
        /// From which CPU.
        from: u32,
        /// To which.
        to: u32,
    },
    /// A thread begins.
    Fork {
        /// Who made it.
        parent: Pid,
        /// Its id.
        child: Pid,
        /// Its name.
        comm: Comm,
    },
    /// A thread ends.
    Exit {
        /// Which one.
        pid: Pid,
    },
    /// A thread has a new name.
    Rename {
        /// Which one.
        pid: Pid,
        /// The name.
        comm: Comm,
    },
    /// An interrupt's handler begins.
    IrqEnter {
        /// The interrupt's number.
        irq: u32,
        /// The handler's name, as it was registered; may be empty.
        name: Comm,
    },
    /// An interrupt's handler has ended.
    IrqExit {
        /// The interrupt's number.
        irq: u32,
    },
    /// A soft interrupt is asked for.
    SoftirqRaise {
        /// 0 HI, 1 TIMER, 2 NET_TX, 3 NET_RX, 4 BLOCK, 5 IRQ_POLL, 6 TASKLET, 7 SCHED, 8 HRTIMER, 9
        /// RCU.
        vec: u32,
    },
    /// A soft interrupt's handler begins.
    SoftirqEnter {
        /// As at [`EventKind::SoftirqRaise`].
        vec: u32,
    },
    /// A soft interrupt's handler has ended.
    SoftirqExit {
        /// As at [`EventKind::SoftirqRaise`].
        vec: u32,
    },
    /// A high-resolution timer is set.
    Timer {
        /// When it shall go off at the earliest, in nanoseconds of the timer's clock, which is most
        /// often CLOCK_MONOTONIC.
        expires: u64,
    },
    /// The running thread enters a system call.
    SyscallEnter {
        /// Its number on the traced machine.
        number: i64,
        /// Its arguments, as registers.
        args: [u64; 6],
    },
    /// The running thread leaves a system call.
    SyscallExit {
        /// Its number on the traced machine.
        number: i64,
        /// Its result; negative: an errno.
        result: i64,
    },
    /// Events of this CPU were lost before this time: how many, where the kernel says so.
    Lost {
        /// How many.
        count: Option<u64>,
    },
    /// An event that takt does not read.
    Other,
}

/// In which context a CPU was when it told an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Context {
    /// The running thread's own.
    #[default]
    Thread,
    /// A soft interrupt's handler.
    Soft,
    /// An interrupt's handler, or one that nothing can mask.
    Hard,
}

impl Context {
    /// From the flags that each event begins with (`common_flags`: 0x08 hard, 0x10 soft, 0x40 NMI).
    #[inline]
    #[must_use]
    pub(crate) fn of_flags(flags: u64) -> Self {
        if flags & 0x48 != 0 {
            Context::Hard
        } else if flags & 0x10 != 0 {
            Context::Soft
        } else {
            Context::Thread
        }
    }
}

/// One event of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelEvent {
    /// When, on the trace's clock.
    pub time: Time,
    /// On which CPU.
    pub cpu: u32,
    /// Which thread was running there.
    pub pid: Pid,
    /// Whether it acted itself, or was interrupted.
    pub context: Context,
    /// Which event of [`Names`].
    pub name: u16,
    /// What it says.
    pub what: EventKind,
}

impl KernelEvent {
    /// Before one is read.
    pub(crate) const NONE: KernelEvent =
        KernelEvent { time: Time::ZERO, cpu: 0, pid: 0, context: Context::Thread, name: 0, what: EventKind::Other };
}

/// The names of a trace's events, each once; a number stands for each.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<String>,
    index: std::collections::BTreeMap<String, u16>,
}

impl Names {
    /// The number of `name`, a new one where it is new. After 65,535 names all others are the last.
    pub fn number(&mut self, name: &str) -> u16 {
        if let Some(&number) = self.index.get(name) {
            return number;
        }
        let Ok(number) = u16::try_from(self.names.len()) else { return u16::MAX };
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), number);
        number
    }
    /// The name with that number; empty where there is none.
    #[must_use]
    pub fn name(&self, number: u16) -> &str {
        self.names.get(usize::from(number)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_nul_and_after_fifteen_bytes() {
        for (bytes, name) in [
            (&b"ab\0cd\0\0\0\0\0\0\0\0\0\0\0"[..], &b"ab"[..]),
            (b"\0xxxxxxxxxxxxxxx", b""),
            (b"0123456789abcdef", b"0123456789abcde"),
            (b"0123456789abcdefghij", b"0123456789abcde"),
            (b"\x80\x81\xff\0\x01\0\0\0\0\0\0\0\0\0\0\0", b"\x80\x81\xff"),
            (b"short", b"short"),
            (b"", b""),
            (b"a\0b", b"a"),
        ] {
            assert_eq!(Comm::new(bytes).bytes(), name, "{bytes:?}");
        }
    }
}
