//! Decodes events from their bytes, by the descriptions of the trace.

use takt_model::Time;

use crate::bytes::Endian;
use crate::damage::Damages;
use crate::event::{Comm, Context, EventKind, KernelEvent, Names, SwitchOutState, Thread, Waking};
use crate::format::{Field, FieldKind, Format};
use crate::page::{Entry, Page};

/// The descriptions of one trace's events, made ready: an event is decoded by its number, without a
/// search.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    endian: Endian,
    by_id: Vec<Option<EventLayout>>,
    /// The usual events, in a small table, so that the data for each event is in the nearest cache.
    /// Empty for the other byte order.
    usual: Vec<Usual>,
    unknown: u16,
    lost: u16,
}

/// An event that 64-bit kernels of either kind describe alike: it begins with its number, flags,
/// and the thread's id in eight bytes.
#[derive(Clone, Copy, Debug)]
struct Usual {
    way: Way,
    name: u16,
    /// The offset of its own fields. They are read last.
    at: u16,
}

/// How its fields are read.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As kernels have laid out sched_switch since 2.6.38.
    Switch(States),
    /// As they have laid out wake-ups since 4.2.
    Wake(Waking),
    /// It is not usual: by its [`EventLayout`].
    Longer,
}

impl Usual {
    const NONE: Usual = Usual { way: Way::Longer, name: 0, at: 0 };
}

/// An event that has a description.
#[derive(Clone, Debug)]
struct EventLayout {
    name: u16,
    pid: Number,
    /// The flags of the context, where the description has them.
    flags: Option<Number>,
    recipe: Recipe,
    /// No event has fewer bytes.
    least: usize,
    /// Whether names stand at places that the event tells.
    located: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Number {
    offset: usize,
    /// How many of 64 bits are not the number's: 0, 32, 48 or 56.
    unused: u32,
}

/// Which event it is stands first in each.
const ID: Number = Number { offset: 0, unused: 48 };

impl Number {
    /// `size` is 1, 2, 4 or 8.
    fn new(offset: usize, size: usize) -> Self {
        Number { offset, unused: 64 - 8 * size as u32 }
    }
    fn end(self) -> usize {
        self.offset.saturating_add(8 - self.unused as usize / 8)
    }
}

#[derive(Clone, Copy, Debug)]
struct Text {
    offset: usize,
    size: usize,
    kind: FieldKind,
}

impl Text {
    fn is_located(self) -> bool {
        matches!(self.kind, FieldKind::Located | FieldKind::LocatedAfter)
    }
    /// The first byte after it, or after what tells its place.
    fn end(self) -> usize {
        self.offset.saturating_add(if self.is_located() { self.size.max(4) } else { self.size })
    }
}

/// Places of a thread's id, name and priority.
#[derive(Clone, Copy, Debug)]
struct ThreadAt {
    pid: Number,
    comm: Text,
    prio: Option<Number>,
}

/// The fields to read of an event.
#[derive(Clone, Debug)]
enum Recipe {
    Switch { prev: ThreadAt, state: Number, states: States, next: ThreadAt },
    Wake { thread: ThreadAt, cpu: Number, waking: Waking },
    Migrate { pid: Number, from: Number, to: Number },
    Fork { parent: Number, child: Number, comm: Text },
    Exit { pid: Number },
    Rename { pid: Number, comm: Text },
    IrqEnter { number: Number, name: Option<Text> },
    Interrupt { number: Number, made: fn(u32) -> EventKind },
    Timer { expires: Number },
    SyscallEnter { number: Number, args: [Number; 6] },
    SyscallExit { number: Number, result: Number },
    Other,
}

impl Recipe {
    /// The shorter way to the same, and where the fields begin, where the places allow it.
    fn shortened(&self) -> Option<(Way, u16)> {
        let at = |thread: &ThreadAt, offset: usize| {
            let ThreadAt { pid, comm, prio: Some(prio) } = thread else { return false };
            let numbers = [(pid, 16), (prio, 20)];
            (comm.offset, comm.size, comm.kind) == (offset, 16, FieldKind::Array)
                && numbers.iter().all(|(number, behind)| **number == Number::new(offset.saturating_add(*behind), 4))
        };
        match self {
            Recipe::Switch { prev, state, states, next } => {
                let start = prev.comm.offset;
                let [middle, last] = [24, 32].map(|behind| start.saturating_add(behind));
                let usual = at(prev, start) && *state == Number::new(middle, 8) && at(next, last);
                usual.then_some(Way::Switch(*states)).zip(u16::try_from(start).ok())
            }
            Recipe::Wake { thread, cpu, waking } => {
                let start = thread.comm.offset;
                let usual = at(thread, start) && *cpu == Number::new(start.saturating_add(24), 4);
                usual.then_some(Way::Wake(*waking)).zip(u16::try_from(start).ok())
            }
            _ => None,
        }
    }

    fn places(&self) -> (Vec<Number>, Vec<Text>) {
        let thread = |at: &ThreadAt| ([at.pid].into_iter().chain(at.prio), at.comm);
        match self {
            Recipe::Switch { prev, state, next, .. } => {
                let ((one, prev), (two, next)) = (thread(prev), thread(next));
                (one.chain(two).chain([*state]).collect(), vec![prev, next])
            }
            Recipe::Wake { thread: woken, cpu, .. } => {
                let (numbers, comm) = thread(woken);
                (numbers.chain([*cpu]).collect(), vec![comm])
            }
            Recipe::Migrate { pid, from, to } => (vec![*pid, *from, *to], Vec::new()),
            Recipe::Fork { parent, child, comm } => (vec![*parent, *child], vec![*comm]),
            Recipe::Exit { pid } => (vec![*pid], Vec::new()),
            Recipe::Rename { pid, comm } => (vec![*pid], vec![*comm]),
            Recipe::IrqEnter { number, name } => (vec![*number], name.iter().copied().collect()),
            Recipe::Interrupt { number, .. } => (vec![*number], Vec::new()),
            Recipe::Timer { expires } => (vec![*expires], Vec::new()),
            Recipe::SyscallEnter { number, args } => (args.iter().copied().chain([*number]).collect(), Vec::new()),
            Recipe::SyscallExit { number, result } => (vec![*number, *result], Vec::new()),
            Recipe::Other => (Vec::new(), Vec::new()),
        }
    }
}

impl Decoder {
    /// Makes `formats` ready; the names of events go to `names`, and what would be read, but for a
    /// field that its description lacks, to `damages`.
    #[must_use]
    pub(crate) fn new(formats: &[Format], endian: Endian, names: &mut Names, damages: &mut Damages) -> Self {
        let unknown = names.number("(no format)");
        let mut decoder = Decoder { endian, by_id: Vec::new(), usual: Vec::new(), unknown, lost: 0 };
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
            let flags = number(format, "common_flags").ok();
            let (numbers, texts) = recipe.places();
            let ends = [ID, pid].into_iter().chain(flags).chain(numbers).map(Number::end);
            let least = ends.chain(texts.iter().map(|text| text.end())).max().unwrap_or(0);
            let usual_head = pid == Number::new(4, 4) && flags == Some(Number::new(2, 1));
            let located = texts.iter().any(|text| text.is_located());
            let name = names.number(&format.name);
            if endian == Endian::Little {
                decoder.usual.resize(decoder.by_id.len(), Usual::NONE);
                decoder.usual[id] = match recipe.shortened() {
                    Some((way, at)) if usual_head => Usual { way, name, at },
                    _ => Usual::NONE,
                };
            }
            decoder.by_id[id] = Some(EventLayout { name, pid, flags, recipe, least, located });
        }
        decoder.lost = names.number("(lost)");
        decoder
    }

    /// Reads the next entry of `page`, of this `cpu`, into `event`. `event` changes only if the
    /// entry is an event.
    #[inline]
    pub(crate) fn next(&self, page: &mut Page, bytes: &[u8], cpu: u32, event: &mut KernelEvent) -> Step {
        match page.next(bytes) {
            Some(Entry::Event { time, payload }) => {
                (event.time, event.cpu) = (time, cpu);
                if self.decode(payload, self.endian == Endian::Big, event) {
                    Step::Event
                } else {
                    Step::Broken(0, "an event is shorter than its format")
                }
            }
            Some(Entry::Lost(count)) => {
                let (time, name, what) = (page.time(), self.lost, EventKind::Lost { count });
                *event = KernelEvent { time, cpu, pid: 0, context: Context::Thread, name, what };
                Step::Event
            }
            Some(Entry::Broken { offset, why }) => Step::Broken(offset, why),
            None => Step::End,
        }
    }

    /// Reads events of `page` into `events`, from the first on; they have the page's CPU already.
    /// It stops at an unusual length and at an event shorter than its format, which
    /// [`Decoder::next`] reads. Returns the number of events. `time_of` takes the page's times.
    #[inline]
    pub(crate) fn run(
        &self,
        page: &mut Page,
        bytes: &[u8],
        events: &mut [KernelEvent],
        mut time_of: impl FnMut(u64) -> Time,
    ) -> usize {
        let mut count = 0;
        page.run(bytes, |time, payload| {
            let Some(event) = events.get_mut(count) else { return false };
            if !self.decode(payload, false, event) {
                return false;
            }
            event.time = time_of(time);
            count += 1;
            true
        });
        count
    }

    #[must_use]
    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    /// Reads `payload` into `event`: its name, thread, context and fields. Returns false if the
    /// payload is too short for its description. One length check covers all fields at fixed
    /// places. `event` is written field by field in place, since a copy would wait for these
    /// fields. `big` is a constant parameter, so that a loop over one byte order does not test it.
    #[inline(always)]
    #[must_use]
    fn decode(&self, payload: &[u8], big: bool, event: &mut KernelEvent) -> bool {
        let Some(id) = payload.first_chunk() else { return false };
        let id = if big { u16::from_be_bytes(*id) } else { u16::from_le_bytes(*id) };
        let Some(usual) = self.usual.get(usize::from(id)) else { return self.longer(id, payload, big, event) };
        // One length check covers all fields.
        match usual.way {
            Way::Switch(states) => {
                let Some(fields) = fields::<56>(payload, usual.at) else { return false };
                let (prev, next) = (usual_thread(fields, 0), usual_thread(fields, 32));
                let state = u64::from_le_bytes(part(fields, 24));
                event.what = EventKind::Switch { prev, left: states.left(state), next };
            }
            Way::Wake(waking) => {
                let Some(fields) = fields::<28>(payload, usual.at) else { return false };
                let cpu = Some(u32::from_le_bytes(part(fields, 24)));
                event.what = EventKind::Wake { thread: usual_thread(fields, 0), waking, cpu };
            }
            Way::Longer => return self.longer(id, payload, big, event),
        }
        let head = u64::from_le_bytes(part(payload, 0));
        (event.name, event.pid, event.context) =
            (usual.name, (head >> 32) as u32, Context::of_flags(head >> 16 & 0xff));
        true
    }

    /// The same of an event that is not usual, or unknown.
    #[inline(never)]
    fn longer(&self, id: u16, payload: &[u8], big: bool, event: &mut KernelEvent) -> bool {
        let from = Payload { bytes: payload, big };
        let Some(Some(known)) = self.by_id.get(usize::from(id)) else {
            (event.name, event.pid, event.context, event.what) = (self.unknown, 0, Context::Thread, EventKind::Other);
            return true;
        };
        if payload.len() < known.least || (known.located && !from.holds(&known.recipe)) {
            return false;
        }
        (event.name, event.pid) = (known.name, from.small(known.pid));
        event.context = known.flags.map_or(Context::Thread, |flags| Context::of_flags(from.number(flags)));
        from.what(&known.recipe, &mut event.what);
        true
    }
}

/// The fields of `payload` from `at` on.
#[inline(always)]
fn fields<const N: usize>(payload: &[u8], at: u16) -> Option<&[u8; N]> {
    payload.get(usize::from(at)..usize::from(at) + N)?.first_chunk()
}

/// `N` bytes of `fields`, which has them.
#[inline(always)]
fn part<const N: usize>(fields: &[u8], at: usize) -> [u8; N] {
    fields.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// A name, an id and a priority, one behind the other.
#[inline(always)]
fn usual_thread(fields: &[u8], at: usize) -> Thread {
    let (pid, prio) = (u32::from_le_bytes(part(fields, at + 16)), i32::from_le_bytes(part(fields, at + 20)));
    Thread { pid, comm: Comm::whole(part(fields, at)), prio: Some(prio) }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It is an event, or a loss of some.
    Event,
    /// From that byte of the page on it cannot be read, and why.
    Broken(usize, &'static str),
    /// There are no more.
    End,
}

/// An event's bytes. Reads past their end give zeros, since lengths are checked before.
#[derive(Clone, Copy)]
struct Payload<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl Payload<'_> {
    /// Eight bytes from `offset` on, the first one lowest.
    #[inline(always)]
    fn eight(self, offset: usize) -> u64 {
        if let Some(eight) = self.bytes.get(offset..).and_then(<[u8]>::first_chunk) {
            return u64::from_le_bytes(*eight);
        }
        // At the end: the last eight bytes, of which those before are shifted out.
        match self.bytes.last_chunk() {
            Some(eight) => {
                let before = offset + 8 - self.bytes.len();
                u64::from_le_bytes(*eight).checked_shr(8 * before as u32).unwrap_or(0)
            }
            None => self.few(offset),
        }
    }
    /// The same, of an event of less than eight bytes.
    #[cold]
    fn few(self, offset: usize) -> u64 {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        rest.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
    }
    /// The number in the topmost of 64 bits.
    #[inline(always)]
    fn top(self, at: Number) -> u64 {
        let eight = self.eight(at.offset);
        if self.big { eight.swap_bytes() } else { eight.wrapping_shl(at.unused) }
    }
    #[inline(always)]
    fn number(self, at: Number) -> u64 {
        self.top(at).wrapping_shr(at.unused)
    }
    #[inline(always)]
    fn signed(self, at: Number) -> i64 {
        self.top(at).cast_signed().wrapping_shr(at.unused)
    }
    /// A number that is never negative and never large: an id, a CPU. -1 (none) is `u32::MAX`.
    #[inline(always)]
    fn small(self, at: Number) -> u32 {
        self.number(at) as u32
    }
    #[inline(always)]
    fn comm(self, at: Text) -> Comm {
        let (offset, size) = if at.is_located() { self.located(at) } else { (at.offset, at.size) };
        Comm::new(self.bytes.get(offset..offset + size).unwrap_or_default())
    }
    /// The place of a text, which the event tells: offset and size.
    #[cold]
    fn located(self, at: Text) -> (usize, usize) {
        let place = self.number(Number::new(at.offset, 4));
        let base = if at.kind == FieldKind::Located { 0 } else { at.offset + at.size };
        (base + (place & 0xffff) as usize, (place >> 16) as usize)
    }
    /// Whether names at told places are within the event. An interrupt may have no name.
    #[cold]
    fn holds(self, recipe: &Recipe) -> bool {
        let is_interrupt = matches!(recipe, Recipe::IrqEnter { .. });
        let (_, texts) = recipe.places();
        is_interrupt
            || texts.iter().filter(|text| text.is_located()).all(|text| {
                let (offset, size) = self.located(*text);
                offset + size <= self.bytes.len()
            })
    }
    #[inline(always)]
    fn thread(self, at: &ThreadAt) -> Thread {
        let prio = at.prio.map(|prio| self.signed(prio) as i32);
        Thread { pid: self.small(at.pid), comm: self.comm(at.comm), prio }
    }
    fn what(self, recipe: &Recipe, what: &mut EventKind) {
        *what = match recipe {
            Recipe::Switch { prev, state, states, next } => {
                let left = states.left(self.number(*state));
                EventKind::Switch { prev: self.thread(prev), left, next: self.thread(next) }
            }
            Recipe::Wake { thread, cpu, waking } => {
                EventKind::Wake { thread: self.thread(thread), waking: *waking, cpu: Some(self.small(*cpu)) }
            }
            Recipe::Migrate { pid, from: before, to } => {
                EventKind::Migrate { pid: self.small(*pid), from: self.small(*before), to: self.small(*to) }
            }
            Recipe::Fork { parent, child, comm } => {
                EventKind::Fork { parent: self.small(*parent), child: self.small(*child), comm: self.comm(*comm) }
            }
            Recipe::Exit { pid } => EventKind::Exit { pid: self.small(*pid) },
            Recipe::Rename { pid, comm } => EventKind::Rename { pid: self.small(*pid), comm: self.comm(*comm) },
            Recipe::IrqEnter { number, name } => EventKind::IrqEnter {
                irq: self.small(*number),
                name: name.map(|name| self.comm(name)).unwrap_or_default(),
            },
            Recipe::Timer { expires } => EventKind::Timer { expires: self.number(*expires) },
            Recipe::Interrupt { number, made } => made(self.small(*number)),
            Recipe::SyscallEnter { number, args } => {
                EventKind::SyscallEnter { number: self.signed(*number), args: args.map(|arg| self.number(arg)) }
            }
            Recipe::SyscallExit { number, result } => {
                EventKind::SyscallExit { number: self.signed(*number), result: self.signed(*result) }
            }
            Recipe::Other => EventKind::Other,
        };
    }
}

/// How a kernel writes the state of a leaving thread: the bit of a preempted thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct States {
    /// The bit of `+`, and of all above; 0 where it is not known.
    preempted: u64,
}

impl States {
    /// Numbers of a kernel that is not known, as in text.
    pub(crate) const UNKNOWN: States = States { preempted: 0 };

    /// Reads the format of `sched_switch`: `prev_state & N ? "+" : ""`, where N is a number or,
    /// since Linux 4.14, an expression whose value is the bit after the largest that has a letter.
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

    /// The meaning of the number `state`. A ready thread that leaves its CPU idle has used up its
    /// budget.
    pub(crate) fn left(self, state: u64) -> SwitchOutState {
        const ENDED: u64 = 0x10 | 0x20;
        // Uninterruptible, stopped, traced; the kernel prints idle kernel threads, which are
        // uninterruptible too, by a bit of their own.
        const HELD: u64 = 0x2 | 0x4 | 0x8;
        if state == 0 {
            return SwitchOutState::Ready;
        }
        let sleeps = state & 0xff != 0;
        let preempted = if self.preempted == 0 { state > 0xff && !sleeps } else { state & self.preempted != 0 };
        if preempted {
            SwitchOutState::Preempted
        } else if state & ENDED != 0 && state & 0xf == 0 {
            SwitchOutState::Ended
        } else if state & HELD != 0 && state & 1 == 0 {
            SwitchOutState::Held
        } else {
            SwitchOutState::Blocked
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
    let interrupt = |field: &'static str, made: fn(u32) -> EventKind| {
        Ok(Recipe::Interrupt { number: number(format, field)?, made })
    };
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
        "irq_handler_exit" => interrupt("irq", |irq| EventKind::IrqExit { irq }),
        "softirq_raise" => interrupt("vec", |vec| EventKind::SoftirqRaise { vec }),
        "softirq_entry" => interrupt("vec", |vec| EventKind::SoftirqEnter { vec }),
        "softirq_exit" => interrupt("vec", |vec| EventKind::SoftirqExit { vec }),
        "sys_enter" => {
            let args = format.field("args").filter(|args| matches!(args.size, 24 | 48)).ok_or("args")?;
            let word = args.size / 6;
            let args = std::array::from_fn(|k| Number::new(args.offset.saturating_add(k * word), word));
            Ok(Recipe::SyscallEnter { number: number(format, "id")?, args })
        }
        "sys_exit" => Ok(Recipe::SyscallExit { number: number(format, "id")?, result: number(format, "ret")? }),
        _ => Ok(Recipe::Other),
    }
}

fn number(format: &Format, name: &'static str) -> Result<Number, &'static str> {
    match format.field(name) {
        Some(&Field { offset, size: size @ (1 | 2 | 4 | 8), kind: FieldKind::Number, .. }) => {
            Ok(Number::new(offset, size))
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
#[path = "decode_tests.rs"]
mod tests;
