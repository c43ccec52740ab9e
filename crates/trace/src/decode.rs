//! From an event's bytes to what it says, by the descriptions that came with the trace.

use crate::bytes::Endian;
use crate::damage::Damages;
use crate::event::{Comm, Context, KernelEvent, Left, Names, Pid, Thread, Waking, What};
use crate::format::{Field, FieldKind, Format};
use crate::page::{Entry, Page};

/// The descriptions of one trace's events, made ready: an event is decoded by its number, without a search.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    endian: Endian,
    by_id: Vec<Option<Known>>,
    unknown: u16,
    lost: u16,
}

/// An event that has a description.
#[derive(Clone, Debug)]
struct Known {
    name: u16,
    pid: Number,
    /// The flags of the context; of no bytes where the description has none.
    flags: Number,
    recipe: Recipe,
}

/// A number's place.
#[derive(Clone, Copy, Debug)]
struct Number {
    offset: usize,
    size: usize,
}

/// The place of characters.
#[derive(Clone, Copy, Debug)]
struct Text {
    offset: usize,
    size: usize,
    kind: FieldKind,
}

/// Places of a thread's id, name and priority.
#[derive(Clone, Copy, Debug)]
struct ThreadAt {
    pid: Number,
    comm: Text,
    prio: Option<Number>,
}

/// What to read of an event.
#[derive(Clone, Debug)]
enum Recipe {
    Switch { prev: ThreadAt, state: Number, states: States, next: ThreadAt },
    Wake { thread: ThreadAt, cpu: Number, waking: Waking },
    Migrate { pid: Number, from: Number, to: Number },
    Fork { parent: Number, child: Number, comm: Text },
    Exit { pid: Number },
    Rename { pid: Number, comm: Text },
    IrqEnter { number: Number, name: Option<Text> },
    Interrupt { number: Number, made: fn(u32) -> What },
    Timer { expires: Number },
    SyscallEnter { number: Number, args: Number },
    SyscallExit { number: Number, result: Number },
    Other,
}

impl Decoder {
    /// Makes `formats` ready; the names of events go to `names`, and what would be read, but for a field that its description
    /// lacks, to `damages`.
    #[must_use]
    pub(crate) fn new(formats: &[Format], endian: Endian, names: &mut Names, damages: &mut Damages) -> Self {
        let unknown = names.number("(no format)");
        let mut decoder = Decoder { endian, by_id: Vec::new(), unknown, lost: 0 };
        let mut lacks = |event: &str, field: &str| {
            let why = format!("the format of {event} lacks the field {field}: its events are counted, not read");
            damages.at_byte(0, &why);
        };
        for format in formats {
            let Ok(pid) = number(format, "common_pid") else {
                lacks(&format.name, "common_pid");
                continue;
            };
            let recipe = recipe(format).unwrap_or_else(|field| {
                lacks(&format.name, field);
                Recipe::Other
            });
            let id = usize::from(format.id);
            if decoder.by_id.len() <= id {
                decoder.by_id.resize(id + 1, None);
            }
            let flags = number(format, "common_flags").unwrap_or(Number { offset: 0, size: 0 });
            decoder.by_id[id] = Some(Known { name: names.number(&format.name), pid, flags, recipe });
        }
        decoder.lost = names.number("(lost)");
        decoder
    }

    /// What the next entry of `page` says, on its CPU; `Err`: from which byte of the page on it cannot be read, and why. `None` after the last.
    #[inline]
    pub(crate) fn next(
        &self,
        page: &mut Page,
        bytes: &[u8],
        cpu: u32,
    ) -> Option<Result<KernelEvent, (usize, &'static str)>> {
        Some(match page.next(bytes)? {
            Entry::Event { time, payload } => match self.decode(payload) {
                Some((name, pid, context, what)) => Ok(KernelEvent { time, cpu, pid, context, name, what }),
                None => Err((0, "an event is shorter than its format")),
            },
            Entry::Lost(count) => Ok(KernelEvent {
                time: page.time(),
                cpu,
                pid: 0,
                context: Context::Thread,
                name: self.lost,
                what: What::Lost { count },
            }),
            Entry::Broken { offset, why } => Err((offset, why)),
        })
    }

    /// The order of bytes.
    #[must_use]
    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    /// Which event `payload` is, of which thread and in which context, and what it says; `None` where it is too short for
    /// its own description.
    #[inline]
    #[must_use]
    fn decode(&self, payload: &[u8]) -> Option<(u16, Pid, Context, What)> {
        let id = self.endian.unsigned(payload, 0, 2)? as usize;
        let Some(Some(known)) = self.by_id.get(id) else {
            return Some((self.unknown, 0, Context::Thread, What::Other));
        };
        let event = Payload { bytes: payload, endian: self.endian };
        let pid = event.pid(known.pid)?;
        let context =
            if known.flags.size == 0 { Context::Thread } else { Context::of_flags(event.number(known.flags)?) };
        let what = match &known.recipe {
            Recipe::Switch { prev, state, states, next } => {
                let next = event.thread(next)?;
                let left = states.left(event.number(*state)?, next.pid == 0);
                What::Switch { prev: event.thread(prev)?, left, next }
            }
            Recipe::Wake { thread, cpu, waking } => {
                What::Wake { thread: event.thread(thread)?, waking: *waking, cpu: Some(event.small(*cpu)?) }
            }
            Recipe::Migrate { pid, from, to } => {
                What::Migrate { pid: event.pid(*pid)?, from: event.small(*from)?, to: event.small(*to)? }
            }
            Recipe::Fork { parent, child, comm } => {
                What::Fork { parent: event.pid(*parent)?, child: event.pid(*child)?, comm: event.comm(*comm)? }
            }
            Recipe::Exit { pid } => What::Exit { pid: event.pid(*pid)? },
            Recipe::Rename { pid, comm } => What::Rename { pid: event.pid(*pid)?, comm: event.comm(*comm)? },
            Recipe::IrqEnter { number, name } => {
                let name = name.and_then(|name| event.comm(name)).unwrap_or_default();
                What::IrqEnter { irq: event.small(*number)?, name }
            }
            Recipe::Timer { expires } => What::Timer { expires: event.number(*expires)? },
            Recipe::Interrupt { number, made } => made(event.small(*number)?),
            Recipe::SyscallEnter { number, args } => {
                let mut values = [0; 6];
                let word = args.size / values.len();
                for (k, value) in values.iter_mut().enumerate() {
                    *value = self.endian.unsigned(payload, args.offset + k * word, word)?;
                }
                What::SyscallEnter { number: event.signed(*number)?, args: values }
            }
            Recipe::SyscallExit { number, result } => {
                What::SyscallExit { number: event.signed(*number)?, result: event.signed(*result)? }
            }
            Recipe::Other => What::Other,
        };
        Some((known.name, pid, context, what))
    }
}

/// An event's bytes.
#[derive(Clone, Copy)]
struct Payload<'a> {
    bytes: &'a [u8],
    endian: Endian,
}

impl Payload<'_> {
    #[inline]
    fn number(self, at: Number) -> Option<u64> {
        self.endian.unsigned(self.bytes, at.offset, at.size)
    }
    #[inline]
    fn signed(self, at: Number) -> Option<i64> {
        self.endian.signed(self.bytes, at.offset, at.size)
    }
    /// A number that is never negative and never large: an id, a CPU. -1 (none) is `u32::MAX`.
    #[inline]
    fn small(self, at: Number) -> Option<u32> {
        Some(self.number(at)? as u32)
    }
    #[inline]
    fn pid(self, at: Number) -> Option<Pid> {
        self.small(at)
    }
    #[inline]
    fn comm(self, at: Text) -> Option<Comm> {
        let (offset, size) = match at.kind {
            FieldKind::Located | FieldKind::LocatedAfter => {
                let place = self.endian.u32(self.bytes, at.offset)?;
                let base = if at.kind == FieldKind::Located { 0 } else { at.offset + at.size };
                (base + (place & 0xffff) as usize, (place >> 16) as usize)
            }
            FieldKind::Array | FieldKind::Number => (at.offset, at.size),
        };
        Some(Comm::new(self.bytes.get(offset..offset + size)?))
    }
    #[inline]
    fn thread(self, at: &ThreadAt) -> Option<Thread> {
        let prio = match at.prio {
            Some(prio) => Some(i32::try_from(self.signed(prio)?).ok()?),
            None => None,
        };
        Some(Thread { pid: self.pid(at.pid)?, comm: self.comm(at.comm)?, prio })
    }
}

/// How a kernel writes the state in which a thread left: which bit says that it was preempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct States {
    /// The bit of `+`, and of all above; 0 where it is not known.
    preempted: u64,
}

impl States {
    /// Numbers of a kernel that is not known, as in text.
    pub(crate) const UNKNOWN: States = States { preempted: 0 };

    /// Reads the format of `sched_switch`: `prev_state & N ? "+" : ""`, where N is a number or, since Linux 4.14, an
    /// expression whose value is the bit after the largest that has a letter.
    fn of(print: &str) -> States {
        let flag = |text: &str| -> Option<u64> {
            let text = text.trim();
            match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            }
        };
        let plus = print.split("? \"+\"").next().filter(|before| before.len() < print.len());
        let stated = plus.and_then(|before| before.rsplit('&').next()).and_then(flag);
        let lettered = || {
            let flags = print.split('{').skip(1).filter_map(|rest| flag(rest.split(',').next()?));
            flags.max().filter(|largest| *largest < 1 << 62).map(|largest| largest << 1)
        };
        States { preempted: stated.or_else(lettered).unwrap_or(0) }
    }

    /// What the number `state` means. A thread that left its CPU idle was not preempted, whatever it says.
    pub(crate) fn left(self, state: u64, idle_next: bool) -> Left {
        const ENDED: u64 = 0x10 | 0x20;
        // Uninterruptible, stopped, traced; the kernel prints idle kernel threads, which are uninterruptible too, by a
        // bit of their own.
        const HELD: u64 = 0x2 | 0x4 | 0x8;
        if state == 0 {
            return Left::Ready;
        }
        let sleeps = state & 0xff != 0;
        let preempted = if self.preempted == 0 { state > 0xff && !sleeps } else { state & self.preempted != 0 };
        if preempted && !idle_next {
            Left::Preempted
        } else if state & ENDED != 0 && state & 0xf == 0 {
            Left::Ended
        } else if state & HELD != 0 && state & 1 == 0 {
            Left::Held
        } else {
            Left::Blocked
        }
    }
}

/// How the events that takt reads are read; `Err`: the field that is missing.
fn recipe(format: &Format) -> Result<Recipe, &'static str> {
    let wake = |waking| {
        Ok(Recipe::Wake {
            thread: thread(format, ["pid", "comm", "prio"])?,
            cpu: number(format, "target_cpu")?,
            waking,
        })
    };
    let interrupt =
        |field: &'static str, made: fn(u32) -> What| Ok(Recipe::Interrupt { number: number(format, field)?, made });
    match format.name.as_str() {
        "sched_switch" => Ok(Recipe::Switch {
            prev: thread(format, ["prev_pid", "prev_comm", "prev_prio"])?,
            state: number(format, "prev_state")?,
            states: States::of(&format.print),
            next: thread(format, ["next_pid", "next_comm", "next_prio"])?,
        }),
        "sched_waking" => wake(Waking::Begins),
        "sched_wakeup" => wake(Waking::Queued),
        "sched_wakeup_new" => wake(Waking::New),
        "sched_migrate_task" => Ok(Recipe::Migrate {
            pid: number(format, "pid")?,
            from: number(format, "orig_cpu")?,
            to: number(format, "dest_cpu")?,
        }),
        "sched_process_fork" => Ok(Recipe::Fork {
            parent: number(format, "parent_pid")?,
            child: number(format, "child_pid")?,
            comm: text(format, "child_comm")?,
        }),
        "sched_process_exit" => Ok(Recipe::Exit { pid: number(format, "pid")? }),
        "task_rename" => Ok(Recipe::Rename { pid: number(format, "pid")?, comm: text(format, "newcomm")? }),
        "irq_handler_entry" => Ok(Recipe::IrqEnter { number: number(format, "irq")?, name: text(format, "name").ok() }),
        "hrtimer_start" => Ok(Recipe::Timer { expires: number(format, "softexpires")? }),
        "irq_handler_exit" => interrupt("irq", |irq| What::IrqExit { irq }),
        "softirq_raise" => interrupt("vec", |vec| What::SoftirqRaise { vec }),
        "softirq_entry" => interrupt("vec", |vec| What::SoftirqEnter { vec }),
        "softirq_exit" => interrupt("vec", |vec| What::SoftirqExit { vec }),
        "sys_enter" => {
            let args = format.field("args").filter(|args| matches!(args.size, 24 | 48)).ok_or("args")?;
            let args = Number { offset: args.offset, size: args.size };
            Ok(Recipe::SyscallEnter { number: number(format, "id")?, args })
        }
        "sys_exit" => Ok(Recipe::SyscallExit { number: number(format, "id")?, result: number(format, "ret")? }),
        _ => Ok(Recipe::Other),
    }
}

fn number(format: &Format, name: &'static str) -> Result<Number, &'static str> {
    match format.field(name) {
        Some(&Field { offset, size: size @ (1 | 2 | 4 | 8), kind: FieldKind::Number, .. }) => {
            Ok(Number { offset, size })
        }
        _ => Err(name),
    }
}

fn text(format: &Format, name: &'static str) -> Result<Text, &'static str> {
    match format.field(name) {
        Some(&Field { offset, size, kind, .. }) if kind != FieldKind::Number => Ok(Text { offset, size, kind }),
        _ => Err(name),
    }
}

fn thread(format: &Format, [pid, comm, prio]: [&'static str; 3]) -> Result<ThreadAt, &'static str> {
    Ok(ThreadAt { pid: number(format, pid)?, comm: text(format, comm)?, prio: number(format, prio).ok() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_of_preemption_is_read_from_what_the_kernel_prints() {
        let of_3_10 = r#"REC->prev_state & (1024-1) ? __print_flags(REC->prev_state & (1024-1), "|", { 1, "S"} , { 512, "P" }) : "R", REC->prev_state & 1024 ? "+" : """#;
        let of_4_4 =
            r#"REC->prev_state & (4096-1) ? f({ 1, "S"} , { 1024, "N" }) : "R", REC->prev_state & 4096 ? "+" : """#;
        let of_6_18 = r#"(REC->prev_state & (((0x1 | 0x40) + 1) << 1)) ? f({ 0x00000001, "S" }, { 0x00000080, "I" }) : "R", REC->prev_state & (((0x00000000 | 0x00000040) + 1) << 1) ? "+" : """#;
        for (print, bit) in [(of_3_10, 1024), (of_4_4, 4096), (of_6_18, 256), ("", 0)] {
            assert_eq!(States::of(print).preempted, bit, "{print}");
        }
    }

    #[test]
    fn states_mean_what_kernels_mean_by_them() {
        let new = States { preempted: 256 };
        let old = States { preempted: 4096 };
        for (states, number, idle_next, left) in [
            (new, 0, false, Left::Ready),
            (new, 256, false, Left::Preempted),
            (new, 256, true, Left::Blocked),
            (new, 1, false, Left::Blocked),
            (new, 2, false, Left::Held),
            (new, 4, false, Left::Held),
            (new, 0x80, false, Left::Blocked),
            (new, 0x10, false, Left::Ended),
            (new, 0x20, false, Left::Ended),
            (old, 4096, false, Left::Preempted),
            (old, 1025, false, Left::Blocked),
            (old, 256, true, Left::Blocked),
            (States::UNKNOWN, 1024, false, Left::Preempted),
            (States::UNKNOWN, 256, true, Left::Blocked),
            (States::UNKNOWN, 258, false, Left::Held),
        ] {
            assert_eq!(states.left(number, idle_next), left, "{states:?} {number} {idle_next}");
        }
    }
}
