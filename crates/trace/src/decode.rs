//! Decodes events from their bytes, by the descriptions of the trace.

use takt_model::Time;

use crate::bytes::Endian;
use crate::damage::Damages;
use crate::event::{Comm, Context, EventKind, KernelEvent, Names, SwitchOutState, Thread, Waking};
use crate::format::{Field, FieldKind, Format};
use crate::page::{Entry, Page};

/// The descriptions of one trace's events, indexed by the events' numbers.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    endian: Endian,
    by_id: Vec<Option<EventLayout>>,
    /// By number: events of the usual layout. The table is small, so it stays in the nearest cache.
    /// Empty if the trace is big-endian.
    fast: Vec<FastEntry>,
    unknown: u16,
    lost: u16,
}

/// An event in the usual layout of 64-bit kernels: its number, flags and thread id take the first
/// eight bytes.
#[derive(Clone, Copy, Debug)]
struct FastEntry {
    kind: FastKind,
    name: u16,
    /// The offset of its own fields. They are read last.
    offset: u16,
}

/// How the fields of an event are read.
#[derive(Clone, Copy, Debug)]
enum FastKind {
    /// As kernels have laid out sched_switch since 2.6.38.
    Switch(StateBits),
    /// As they have laid out wake-ups since 4.2.
    Wake(Waking),
    /// By its [`EventLayout`].
    General,
}

impl FastEntry {
    const NONE: FastEntry = FastEntry { kind: FastKind::General, name: 0, offset: 0 };
}

/// An event that has a description.
#[derive(Clone, Debug)]
struct EventLayout {
    name: u16,
    pid: NumberField,
    /// The flags of the context, where the description has them.
    flags: Option<NumberField>,
    fields: EventFields,
    /// The least length of an event in bytes.
    len_min: usize,
    /// Whether the event itself has the places of its texts.
    is_dynamic: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NumberField {
    offset: usize,
    /// 64 less the number's bits: 0, 32, 48 or 56.
    unused: u32,
}

/// The event's number.
const ID: NumberField = NumberField { offset: 0, unused: 48 };

impl NumberField {
    /// `size` is 1, 2, 4 or 8.
    fn new(offset: usize, size: usize) -> Self {
        NumberField { offset, unused: 64 - 8 * size as u32 }
    }
    fn end(self) -> usize {
        self.offset.saturating_add(8 - self.unused as usize / 8)
    }
}

#[derive(Clone, Copy, Debug)]
struct TextField {
    offset: usize,
    size: usize,
    kind: FieldKind,
}

impl TextField {
    fn is_dynamic(self) -> bool {
        matches!(self.kind, FieldKind::DataLoc | FieldKind::RelLoc)
    }
    /// The first byte after it, or after the number with its place.
    fn end(self) -> usize {
        self.offset.saturating_add(if self.is_dynamic() { self.size.max(4) } else { self.size })
    }
}

/// The fields with a thread's id, name and priority.
#[derive(Clone, Copy, Debug)]
struct ThreadFields {
    pid: NumberField,
    comm: TextField,
    prio: Option<NumberField>,
}

/// The fields that are read of an event.
#[derive(Clone, Debug)]
enum EventFields {
    Switch { prev: ThreadFields, state: NumberField, states: StateBits, next: ThreadFields },
    Wake { thread: ThreadFields, cpu: NumberField, waking: Waking },
    Migrate { pid: NumberField, from: NumberField, to: NumberField },
    Fork { parent: NumberField, child: NumberField, comm: TextField },
    Exit { pid: NumberField },
    Rename { pid: NumberField, comm: TextField },
    IrqEnter { number: NumberField, name: Option<TextField> },
    Interrupt { number: NumberField, make: fn(u32) -> EventKind },
    Timer { expires: NumberField },
    SyscallEnter { number: NumberField, args: [NumberField; 6] },
    SyscallExit { number: NumberField, result: NumberField },
    Other,
}

impl EventFields {
    /// The fast kind and the offset of the fields, if they have the usual layout.
    fn fast_kind(&self) -> Option<(FastKind, u16)> {
        let at = |thread: &ThreadFields, offset: usize| {
            let ThreadFields { pid, comm, prio: Some(prio) } = thread else { return false };
            let numbers = [(pid, 16), (prio, 20)];
            (comm.offset, comm.size, comm.kind) == (offset, 16, FieldKind::Array)
                && numbers
                    .iter()
                    .all(|(number, behind)| **number == NumberField::new(offset.saturating_add(*behind), 4))
        };
        match self {
            EventFields::Switch { prev, state, states, next } => {
                let start = prev.comm.offset;
                let [middle, last] = [24, 32].map(|behind| start.saturating_add(behind));
                let usual = at(prev, start) && *state == NumberField::new(middle, 8) && at(next, last);
                usual.then_some(FastKind::Switch(*states)).zip(u16::try_from(start).ok())
            }
            EventFields::Wake { thread, cpu, waking } => {
                let start = thread.comm.offset;
                let usual = at(thread, start) && *cpu == NumberField::new(start.saturating_add(24), 4);
                usual.then_some(FastKind::Wake(*waking)).zip(u16::try_from(start).ok())
            }
            _ => None,
        }
    }

    fn numbers_and_texts(&self) -> (Vec<NumberField>, Vec<TextField>) {
        let thread = |at: &ThreadFields| ([at.pid].into_iter().chain(at.prio), at.comm);
        match self {
            EventFields::Switch { prev, state, next, .. } => {
                let ((one, prev), (two, next)) = (thread(prev), thread(next));
                (one.chain(two).chain([*state]).collect(), vec![prev, next])
            }
            EventFields::Wake { thread: woken, cpu, .. } => {
                let (numbers, comm) = thread(woken);
                (numbers.chain([*cpu]).collect(), vec![comm])
            }
            EventFields::Migrate { pid, from, to } => (vec![*pid, *from, *to], Vec::new()),
            EventFields::Fork { parent, child, comm } => (vec![*parent, *child], vec![*comm]),
            EventFields::Exit { pid } => (vec![*pid], Vec::new()),
            EventFields::Rename { pid, comm } => (vec![*pid], vec![*comm]),
            EventFields::IrqEnter { number, name } => (vec![*number], name.iter().copied().collect()),
            EventFields::Interrupt { number, .. } => (vec![*number], Vec::new()),
            EventFields::Timer { expires } => (vec![*expires], Vec::new()),
            EventFields::SyscallEnter { number, args } => (args.iter().copied().chain([*number]).collect(), Vec::new()),
            EventFields::SyscallExit { number, result } => (vec![*number, *result], Vec::new()),
            EventFields::Other => (Vec::new(), Vec::new()),
        }
    }
}

impl Decoder {
    /// Indexes `formats`. The names of events go to `names`. An event that takt reads, and that lacks
    /// a field, goes to `damages`.
    #[must_use]
    pub(crate) fn new(formats: &[Format], endian: Endian, names: &mut Names, damages: &mut Damages) -> Self {
        let unknown = names.number("(no format)");
        let mut decoder = Decoder { endian, by_id: Vec::new(), fast: Vec::new(), unknown, lost: 0 };
        let mut lacks = |event: &str, field: &str| {
            let why = format!("the format of {event} lacks the field {field}: its events are counted, not read");
            damages.at_byte(0, &why);
        };
        for format in formats {
            let Ok(pid) = number(format, "common_pid") else {
                lacks(&format.name, "common_pid");
                continue;
            };
            let fields = event_fields(format).unwrap_or_else(|field| {
                lacks(&format.name, field);
                EventFields::Other
            });
            let id = usize::from(format.id);
            if decoder.by_id.len() <= id {
                decoder.by_id.resize(id + 1, None);
            }
            let flags = number(format, "common_flags").ok();
            let (numbers, texts) = fields.numbers_and_texts();
            let ends = [ID, pid].into_iter().chain(flags).chain(numbers).map(NumberField::end);
            let len_min = ends.chain(texts.iter().map(|text| text.end())).max().unwrap_or(0);
            let has_usual_head = pid == NumberField::new(4, 4) && flags == Some(NumberField::new(2, 1));
            let is_dynamic = texts.iter().any(|text| text.is_dynamic());
            let name = names.number(&format.name);
            if endian == Endian::Little {
                decoder.fast.resize(decoder.by_id.len(), FastEntry::NONE);
                decoder.fast[id] = match fields.fast_kind() {
                    Some((kind, offset)) if has_usual_head => FastEntry { kind, name, offset },
                    _ => FastEntry::NONE,
                };
            }
            decoder.by_id[id] = Some(EventLayout { name, pid, flags, fields, len_min, is_dynamic });
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
        let Some(entry) = self.fast.get(usize::from(id)) else { return self.decode_general(id, payload, big, event) };
        // One length check covers all fields.
        match entry.kind {
            FastKind::Switch(states) => {
                let Some(fields) = fields::<56>(payload, entry.offset) else { return false };
                let (prev, next) = (fixed_thread(fields, 0), fixed_thread(fields, 32));
                let state = u64::from_le_bytes(part(fields, 24));
                event.what = EventKind::Switch { prev, left: states.left(state), next };
            }
            FastKind::Wake(waking) => {
                let Some(fields) = fields::<28>(payload, entry.offset) else { return false };
                let cpu = Some(u32::from_le_bytes(part(fields, 24)));
                event.what = EventKind::Wake { thread: fixed_thread(fields, 0), waking, cpu };
            }
            FastKind::General => return self.decode_general(id, payload, big, event),
        }
        let head = u64::from_le_bytes(part(payload, 0));
        (event.name, event.pid, event.context) =
            (entry.name, (head >> 32) as u32, Context::of_flags(head >> 16 & 0xff));
        true
    }

    /// [`Decoder::decode`] for events of another layout, and for unknown ones.
    #[inline(never)]
    fn decode_general(&self, id: u16, payload: &[u8], big: bool, event: &mut KernelEvent) -> bool {
        let from = Payload { bytes: payload, big };
        let Some(Some(known)) = self.by_id.get(usize::from(id)) else {
            (event.name, event.pid, event.context, event.what) = (self.unknown, 0, Context::Thread, EventKind::Other);
            return true;
        };
        if payload.len() < known.len_min || (known.is_dynamic && !from.dynamic_texts_fit(&known.fields)) {
            return false;
        }
        (event.name, event.pid) = (known.name, from.small(known.pid));
        event.context = known.flags.map_or(Context::Thread, |flags| Context::of_flags(from.number(flags)));
        from.what(&known.fields, &mut event.what);
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

/// A thread whose name, id and priority follow each other.
#[inline(always)]
fn fixed_thread(fields: &[u8], at: usize) -> Thread {
    let (pid, prio) = (u32::from_le_bytes(part(fields, at + 16)), i32::from_le_bytes(part(fields, at + 20)));
    Thread { pid, comm: Comm::whole(part(fields, at)), prio: Some(prio) }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// An event, or a loss of events.
    Event,
    /// From this byte of the page on it cannot be read. The text says why.
    Broken(usize, &'static str),
    /// The page has no more entries.
    End,
}

/// An event's bytes. Reads past their end give zeros, since lengths are checked before.
#[derive(Clone, Copy)]
struct Payload<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl Payload<'_> {
    /// Eight bytes from `offset` on, as a little-endian number.
    #[inline(always)]
    fn eight(self, offset: usize) -> u64 {
        if let Some(eight) = self.bytes.get(offset..).and_then(<[u8]>::first_chunk) {
            return u64::from_le_bytes(*eight);
        }
        // Near the end: the last eight bytes, without those before `offset`.
        match self.bytes.last_chunk() {
            Some(eight) => {
                let before = offset + 8 - self.bytes.len();
                u64::from_le_bytes(*eight).checked_shr(8 * before as u32).unwrap_or(0)
            }
            None => self.few(offset),
        }
    }
    /// [`Payload::eight`] for an event of less than eight bytes.
    #[cold]
    fn few(self, offset: usize) -> u64 {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        rest.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
    }
    /// The number in the topmost of 64 bits.
    #[inline(always)]
    fn top(self, at: NumberField) -> u64 {
        let eight = self.eight(at.offset);
        if self.big { eight.swap_bytes() } else { eight.wrapping_shl(at.unused) }
    }
    #[inline(always)]
    fn number(self, at: NumberField) -> u64 {
        self.top(at).wrapping_shr(at.unused)
    }
    #[inline(always)]
    fn signed(self, at: NumberField) -> i64 {
        self.top(at).cast_signed().wrapping_shr(at.unused)
    }
    /// A number that is never negative and never large: an id, a CPU. -1 (none) is `u32::MAX`.
    #[inline(always)]
    fn small(self, at: NumberField) -> u32 {
        self.number(at) as u32
    }
    #[inline(always)]
    fn comm(self, at: TextField) -> Comm {
        let (offset, size) = if at.is_dynamic() { self.dynamic_range(at) } else { (at.offset, at.size) };
        Comm::new(self.bytes.get(offset..offset + size).unwrap_or_default())
    }
    /// The offset and the size of a text whose place stands in the event.
    #[cold]
    fn dynamic_range(self, at: TextField) -> (usize, usize) {
        let place = self.number(NumberField::new(at.offset, 4));
        let base = if at.kind == FieldKind::DataLoc { 0 } else { at.offset + at.size };
        (base + (place & 0xffff) as usize, (place >> 16) as usize)
    }
    /// Whether texts whose places stand in the event are within it. An interrupt may have no name.
    #[cold]
    fn dynamic_texts_fit(self, fields: &EventFields) -> bool {
        let is_interrupt = matches!(fields, EventFields::IrqEnter { .. });
        let (_, texts) = fields.numbers_and_texts();
        is_interrupt
            || texts.iter().filter(|text| text.is_dynamic()).all(|text| {
                let (offset, size) = self.dynamic_range(*text);
                offset + size <= self.bytes.len()
            })
    }
    #[inline(always)]
    fn thread(self, at: &ThreadFields) -> Thread {
        let prio = at.prio.map(|prio| self.signed(prio) as i32);
        Thread { pid: self.small(at.pid), comm: self.comm(at.comm), prio }
    }
    fn what(self, fields: &EventFields, what: &mut EventKind) {
        *what = match fields {
            EventFields::Switch { prev, state, states, next } => {
                let left = states.left(self.number(*state));
                EventKind::Switch { prev: self.thread(prev), left, next: self.thread(next) }
            }
            EventFields::Wake { thread, cpu, waking } => {
                EventKind::Wake { thread: self.thread(thread), waking: *waking, cpu: Some(self.small(*cpu)) }
            }
            EventFields::Migrate { pid, from: before, to } => {
                EventKind::Migrate { pid: self.small(*pid), from: self.small(*before), to: self.small(*to) }
            }
            EventFields::Fork { parent, child, comm } => {
                EventKind::Fork { parent: self.small(*parent), child: self.small(*child), comm: self.comm(*comm) }
            }
            EventFields::Exit { pid } => EventKind::Exit { pid: self.small(*pid) },
            EventFields::Rename { pid, comm } => EventKind::Rename { pid: self.small(*pid), comm: self.comm(*comm) },
            EventFields::IrqEnter { number, name } => EventKind::IrqEnter {
                irq: self.small(*number),
                name: name.map(|name| self.comm(name)).unwrap_or_default(),
            },
            EventFields::Timer { expires } => EventKind::Timer { expires: self.number(*expires) },
            EventFields::Interrupt { number, make } => make(self.small(*number)),
            EventFields::SyscallEnter { number, args } => {
                EventKind::SyscallEnter { number: self.signed(*number), args: args.map(|arg| self.number(arg)) }
            }
            EventFields::SyscallExit { number, result } => {
                EventKind::SyscallExit { number: self.signed(*number), result: self.signed(*result) }
            }
            EventFields::Other => EventKind::Other,
        };
    }
}

/// The kernel's encoding of the state of a thread that leaves its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StateBits {
    /// The bit for a preempted thread (`+`). 0 if it is unknown.
    preempted: u64,
}

impl StateBits {
    /// The encoding of an unknown kernel, as in text.
    pub(crate) const UNKNOWN: StateBits = StateBits { preempted: 0 };

    /// Reads the format of `sched_switch`: `prev_state & N ? "+" : ""`, where N is a number or,
    /// since Linux 4.14, an expression whose value is the bit after the largest that has a letter.
    fn of(print: &str) -> StateBits {
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
        StateBits { preempted: stated.or_else(lettered).unwrap_or(0) }
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

/// The fields that takt reads of an event. `Err`: the field that is missing.
fn event_fields(format: &Format) -> Result<EventFields, &'static str> {
    let wake = |waking| {
        Ok(EventFields::Wake {
            thread: thread(format, ["pid", "comm", "prio"])?,
            cpu: number(format, "target_cpu")?,
            waking,
        })
    };
    let interrupt = |field: &'static str, make: fn(u32) -> EventKind| {
        Ok(EventFields::Interrupt { number: number(format, field)?, make })
    };
    match format.name.as_str() {
        "sched_switch" => Ok(EventFields::Switch {
            prev: thread(format, ["prev_pid", "prev_comm", "prev_prio"])?,
            state: number(format, "prev_state")?,
            states: StateBits::of(&format.print),
            next: thread(format, ["next_pid", "next_comm", "next_prio"])?,
        }),
        "sched_waking" => wake(Waking::Begins),
        "sched_wakeup" => wake(Waking::Queued),
        "sched_wakeup_new" => wake(Waking::New),
        "sched_migrate_task" => Ok(EventFields::Migrate {
            pid: number(format, "pid")?,
            from: number(format, "orig_cpu")?,
            to: number(format, "dest_cpu")?,
        }),
        "sched_process_fork" => Ok(EventFields::Fork {
            parent: number(format, "parent_pid")?,
            child: number(format, "child_pid")?,
            comm: text(format, "child_comm")?,
        }),
        "sched_process_exit" => Ok(EventFields::Exit { pid: number(format, "pid")? }),
        "task_rename" => Ok(EventFields::Rename { pid: number(format, "pid")?, comm: text(format, "newcomm")? }),
        "irq_handler_entry" => {
            Ok(EventFields::IrqEnter { number: number(format, "irq")?, name: text(format, "name").ok() })
        }
        "hrtimer_start" => Ok(EventFields::Timer { expires: number(format, "softexpires")? }),
        "irq_handler_exit" => interrupt("irq", |irq| EventKind::IrqExit { irq }),
        "softirq_raise" => interrupt("vec", |vec| EventKind::SoftirqRaise { vec }),
        "softirq_entry" => interrupt("vec", |vec| EventKind::SoftirqEnter { vec }),
        "softirq_exit" => interrupt("vec", |vec| EventKind::SoftirqExit { vec }),
        "sys_enter" => {
            let args = format.field("args").filter(|args| matches!(args.size, 24 | 48)).ok_or("args")?;
            let word = args.size / 6;
            let args = std::array::from_fn(|k| NumberField::new(args.offset.saturating_add(k * word), word));
            Ok(EventFields::SyscallEnter { number: number(format, "id")?, args })
        }
        "sys_exit" => Ok(EventFields::SyscallExit { number: number(format, "id")?, result: number(format, "ret")? }),
        _ => Ok(EventFields::Other),
    }
}

fn number(format: &Format, name: &'static str) -> Result<NumberField, &'static str> {
    match format.field(name) {
        Some(&Field { offset, size: size @ (1 | 2 | 4 | 8), kind: FieldKind::Number, .. }) => {
            Ok(NumberField::new(offset, size))
        }
        _ => Err(name),
    }
}

fn text(format: &Format, name: &'static str) -> Result<TextField, &'static str> {
    match format.field(name) {
        Some(&Field { offset, size, kind, .. }) if kind != FieldKind::Number => Ok(TextField { offset, size, kind }),
        _ => Err(name),
    }
}

fn thread(format: &Format, [pid, comm, prio]: [&'static str; 3]) -> Result<ThreadFields, &'static str> {
    Ok(ThreadFields { pid: number(format, pid)?, comm: text(format, comm)?, prio: number(format, prio).ok() })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
