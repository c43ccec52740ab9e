//! One event as bytes, relative to the records before it in its block.
//!
//! A record is a tag, a byte of field lengths, the time since the record before, and up to four
//! fields. Their places follow from the first two bytes. So neither direction needs a loop or a
//! branch per byte.

use takt_model::{Span, TaskId, Time};

use crate::event::{CancelCause, DropCause, Event, JobKey, Parent};
use crate::format::{unzigzag, zigzag};
use crate::kind::Kind;

/// The tag of a drop that says why.
const DROPPED: u8 = 29;
/// The tag of a release that carries a [`Parent`].
pub(crate) const CHAINED: u8 = 30;
/// The tag of a definition; field 1 is the length of the body that follows.
pub(crate) const DEFINITION: u8 = 31;
/// A record without a definition's body is shorter than this; coding looks at this many bytes.
pub(crate) const WINDOW: usize = 64;

/// Bytes of a field by its two-bit code.
const FIELD: [u8; 4] = [0, 1, 3, 8];
/// Bytes of the time by its three-bit code.
const TIME: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];

/// How a number stands in a record: its code, and its bytes.
#[derive(Clone, Copy)]
struct Width {
    code: u8,
    bytes: u8,
}

/// Widths by how many of a number's 64 bits lead as zeros, of a table of bytes by code. A look at a
/// table takes less than comparing with each limit.
const fn widths(table: &[u8]) -> [Width; 65] {
    let mut widths = [Width { code: 0, bytes: 0 }; 65];
    let mut zeros = 0_usize;
    while zeros <= 64 {
        let need = (64 - zeros).div_ceil(8);
        let mut code = 0;
        while (table[code] as usize) < need {
            code += 1;
        }
        widths[zeros] = Width { code: code as u8, bytes: table[code] };
        zeros += 1;
    }
    widths
}
const FIELD_WIDTHS: [Width; 65] = widths(&FIELD);
const TIME_WIDTHS: [Width; 65] = widths(&TIME);

/// The base of a block's relative numbers. Every block starts from zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// Time of the record before.
    pub(crate) time: u64,
    message: u64,
    /// The last job number of the tasks that share a slot (task modulo the number of slots).
    slots: Box<[u64]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A tag that no kind of this version has.
    Unknown(u8),
    /// A value that the field cannot have.
    Malformed,
}

pub(crate) enum Decoded {
    Event(Event),
    /// A definition whose body has this length.
    Definition(u64),
}

impl Context {
    pub(crate) fn new(slots_log2: u8) -> Self {
        Context { time: 0, message: 0, slots: vec![0; 1 << slots_log2].into_boxed_slice() }
    }

    pub(crate) fn reset(&mut self, base: u64) {
        self.time = base;
        self.message = 0;
        self.slots.fill(0);
    }

    #[inline(always)]
    fn put_job(&mut self, job: JobKey) -> (u64, u64) {
        let slot = job.task.0 as usize & self.slots.len().wrapping_sub(1);
        let last = std::mem::replace(&mut self.slots[slot], job.number);
        (job.task.0.into(), zigzag(job.number.wrapping_sub(last) as i64))
    }

    #[inline(always)]
    fn job(&mut self, task: u64, number: u64) -> Result<JobKey, Fault> {
        let slot = task as usize & (self.slots.len() - 1);
        let number = self.slots[slot].wrapping_add(unzigzag(number) as u64);
        self.slots[slot] = number;
        Ok(JobKey { task: TaskId(narrow(task)?), number })
    }

    #[inline]
    fn put_message(&mut self, message: u64) -> u64 {
        zigzag(message.wrapping_sub(std::mem::replace(&mut self.message, message)) as i64)
    }

    #[inline]
    fn message(&mut self, delta: u64) -> u64 {
        self.message = self.message.wrapping_add(unzigzag(delta) as u64);
        self.message
    }

    /// Writes a record and says how long it is. Always inlined: where the event's kind is known, most goes away.
    #[inline(always)]
    pub(crate) fn encode(&mut self, now: u64, event: &Event, out: &mut [u8; WINDOW]) -> usize {
        let delta = now.wrapping_sub(self.time);
        self.time = now;
        let on_cpu = |(task, number), cpu: u32| [task, number, cpu.into(), 0];
        let mut hop = 0;
        let (tag, fields) = match *event {
            Event::Release { job, arrival, parent } => {
                let (task, number) = self.put_job(job);
                let since = now.wrapping_sub(arrival.as_ns());
                match parent {
                    None => (Kind::Release as u8, [task, number, since, 0]),
                    Some(Parent { hop: link, origin }) => {
                        hop = link;
                        (CHAINED, [task, number, since, arrival.as_ns().wrapping_sub(origin.as_ns())])
                    }
                }
            }
            Event::Start { job, cpu } => (Kind::Start as u8, on_cpu(self.put_job(job), cpu)),
            Event::Preempt { job, cpu } => (Kind::Preempt as u8, on_cpu(self.put_job(job), cpu)),
            Event::Resume { job, cpu } => (Kind::Resume as u8, on_cpu(self.put_job(job), cpu)),
            Event::Block { job, cpu } => (Kind::Block as u8, on_cpu(self.put_job(job), cpu)),
            Event::Complete { job, cpu } => (Kind::Complete as u8, on_cpu(self.put_job(job), cpu)),
            Event::Wake { job } => (Kind::Wake as u8, on_cpu(self.put_job(job), 0)),
            Event::Miss { job } => (Kind::Miss as u8, on_cpu(self.put_job(job), 0)),
            Event::Gap { job } => (Kind::Gap as u8, on_cpu(self.put_job(job), 0)),
            Event::Cancel { job, cause } => (Kind::Cancel as u8, on_cpu(self.put_job(job), cause as u32)),
            Event::Migrate { job, from, to } => {
                let (task, number) = self.put_job(job);
                (Kind::Migrate as u8, [task, number, from.into(), to.into()])
            }
            Event::Replenish { server, budget } => (Kind::Replenish as u8, [server.into(), budget.as_ns(), 0, 0]),
            Event::Exhaust { server } => (Kind::Exhaust as u8, [server.into(), 0, 0, 0]),
            Event::ServerIdle { server } => (Kind::ServerIdle as u8, [server.into(), 0, 0, 0]),
            Event::Charge { server, since, amount, idle } => {
                (Kind::Charge as u8, [server.into(), now.wrapping_sub(since.as_ns()), amount.as_ns(), idle.into()])
            }
            Event::ModeChange { mode } => (Kind::ModeChange as u8, [mode.into(), 0, 0, 0]),
            Event::Send { job, message } | Event::Arrive { job, message } | Event::Receive { job, message } => {
                let (task, number) = self.put_job(job);
                (event.kind() as u8, [task, number, self.put_message(message), 0])
            }
            Event::Drop { job, message, cause } => {
                let (task, number) = self.put_job(job);
                let tag = if cause == DropCause::Unknown { Kind::Drop as u8 } else { DROPPED };
                (tag, [task, number, self.put_message(message), cause as u64])
            }
            Event::Transmit { message, bytes } => {
                (Kind::Transmit as u8, [self.put_message(message), bytes.into(), 0, 0])
            }
            Event::IrqEnter { irq, cpu } => (Kind::IrqEnter as u8, [irq.into(), cpu.into(), 0, 0]),
            Event::IrqExit { irq, cpu } => (Kind::IrqExit as u8, [irq.into(), cpu.into(), 0, 0]),
            Event::Lost { count } => (Kind::Lost as u8, [count, 0, 0, 0]),
            Event::Window { job, earliest } => {
                let (task, number) = self.put_job(job);
                (Kind::Window as u8, [task, number, now.wrapping_sub(earliest.as_ns()), 0])
            }
            Event::Occupy { cpu, thread } => {
                let thread = thread.map_or(0, |thread| u64::from(thread) + 1);
                (Kind::Occupy as u8, [cpu.into(), thread, 0, 0])
            }
            Event::Steal { cpu, span, within } => (Kind::Steal as u8, [cpu.into(), span.as_ns(), within.as_ns(), 0]),
        };
        let mut length = put(tag, delta, fields, out);
        if tag == CHAINED {
            store(out, &mut length, hop.into(), 4);
        }
        length
    }

    /// Writes a definition's record without its body and says how long it is.
    pub(crate) fn encode_definition(&mut self, now: u64, body: usize, out: &mut [u8; WINDOW]) -> usize {
        let delta = now.wrapping_sub(self.time);
        self.time = now;
        put(DEFINITION, delta, [body as u64, 0, 0, 0], out)
    }

    /// Reads a record at the window's start; its length and itself. The record's time is in `self.time`.
    /// The caller checks that the length does not exceed what there is.
    #[inline(always)]
    pub(crate) fn decode(&mut self, window: &[u8; WINDOW]) -> Result<(usize, Decoded), Fault> {
        let (tag, lengths) = (window[0] & 31, window[1]);
        let mut at = 2;
        let now = self.time.wrapping_add(load(window, &mut at, TIME[usize::from(window[0] >> 5)]));
        let f1 = load(window, &mut at, FIELD[usize::from(lengths & 3)]);
        let f2 = load(window, &mut at, FIELD[usize::from(lengths >> 2 & 3)]);
        let f3 = load(window, &mut at, FIELD[usize::from(lengths >> 4 & 3)]);
        let f4 = load(window, &mut at, FIELD[usize::from(lengths >> 6)]);
        self.time = now;
        let fields = match tag {
            0..=4 | 6 | 8 | 14..=17 | 22 | 25 => 3,
            9 | 26 | DROPPED | CHAINED => 4,
            5 | 7 | 10 | 18..=20 | 23 | 24 => 2,
            11..=13 | 21 | DEFINITION => 1,
            _ => return Err(Fault::Unknown(tag)),
        };
        if fields < 4 && lengths >> (2 * fields) != 0 {
            return Err(Fault::Malformed);
        }
        let event = match tag {
            0 => {
                let arrival = Time::from_ns(now.wrapping_sub(f3));
                Event::Release { job: self.job(f1, f2)?, arrival, parent: None }
            }
            1 => Event::Start { job: self.job(f1, f2)?, cpu: narrow(f3)? },
            2 => Event::Preempt { job: self.job(f1, f2)?, cpu: narrow(f3)? },
            3 => Event::Resume { job: self.job(f1, f2)?, cpu: narrow(f3)? },
            4 => Event::Block { job: self.job(f1, f2)?, cpu: narrow(f3)? },
            5 => Event::Wake { job: self.job(f1, f2)? },
            6 => Event::Complete { job: self.job(f1, f2)?, cpu: narrow(f3)? },
            7 => Event::Miss { job: self.job(f1, f2)? },
            8 => Event::Cancel { job: self.job(f1, f2)?, cause: cause(f3)? },
            9 => Event::Migrate { job: self.job(f1, f2)?, from: narrow(f3)?, to: narrow(f4)? },
            10 => Event::Replenish { server: narrow(f1)?, budget: Span::from_ns(f2) },
            11 => Event::Exhaust { server: narrow(f1)? },
            12 => Event::ServerIdle { server: narrow(f1)? },
            13 => Event::ModeChange { mode: narrow(f1)? },
            14 => Event::Send { job: self.job(f1, f2)?, message: self.message(f3) },
            15 => Event::Arrive { job: self.job(f1, f2)?, message: self.message(f3) },
            16 => Event::Receive { job: self.job(f1, f2)?, message: self.message(f3) },
            17 => Event::Drop { job: self.job(f1, f2)?, message: self.message(f3), cause: DropCause::Unknown },
            18 => Event::Transmit { message: self.message(f1), bytes: narrow(f2)? },
            19 => Event::IrqEnter { irq: narrow(f1)?, cpu: narrow(f2)? },
            20 => Event::IrqExit { irq: narrow(f1)?, cpu: narrow(f2)? },
            21 => Event::Lost { count: f1 },
            22 => Event::Window { job: self.job(f1, f2)?, earliest: Time::from_ns(now.wrapping_sub(f3)) },
            23 => Event::Gap { job: self.job(f1, f2)? },
            24..=26 | DROPPED => self.decode_apart(tag, f1, f2, f3, f4)?,
            DEFINITION => return Ok((at, Decoded::Definition(f1))),
            _ => {
                let hop = load(window, &mut at, 4) as u32;
                let arrival = now.wrapping_sub(f3);
                let parent = Parent { hop, origin: Time::from_ns(arrival.wrapping_sub(f4)) };
                Event::Release { job: self.job(f1, f2)?, arrival: Time::from_ns(arrival), parent: Some(parent) }
            }
        };
        Ok((at, Decoded::Event(event)))
    }

    /// Events of kinds that logs of jobs alone do not have, from their fields. Not inlined: so they take no room among
    /// the others, once for each way of reading.
    #[inline(never)]
    fn decode_apart(&mut self, tag: u8, f1: u64, f2: u64, f3: u64, f4: u64) -> Result<Event, Fault> {
        Ok(match tag {
            24 => Event::Occupy { cpu: narrow(f1)?, thread: f2.checked_sub(1).map(narrow).transpose()? },
            25 => Event::Steal { cpu: narrow(f1)?, span: Span::from_ns(f2), within: Span::from_ns(f3) },
            26 => Event::Charge {
                server: narrow(f1)?,
                since: Time::from_ns(self.time.wrapping_sub(f2)),
                amount: Span::from_ns(f3),
                idle: flag(f4)?,
            },
            _ => Event::Drop { job: self.job(f1, f2)?, message: self.message(f3), cause: drop_cause(f4)? },
        })
    }

    /// The time of the record at the window's start, without reading the rest of it.
    #[inline(always)]
    pub(crate) fn peek(&self, window: &[u8; WINDOW]) -> u64 {
        self.time.wrapping_add(load(window, &mut 2, TIME[usize::from(window[0] >> 5)]))
    }
}

fn cause(number: u64) -> Result<CancelCause, Fault> {
    CancelCause::ALL.into_iter().find(|cause| *cause as u64 == number).ok_or(Fault::Malformed)
}

fn drop_cause(number: u64) -> Result<DropCause, Fault> {
    // A drop of unknown cause has a tag of its own.
    let known = DropCause::ALL.iter().skip(1).copied();
    known.into_iter().find(|cause| *cause as u64 == number).ok_or(Fault::Malformed)
}

#[inline(always)]
fn narrow(value: u64) -> Result<u32, Fault> {
    u32::try_from(value).map_err(|_| Fault::Malformed)
}

#[inline(always)]
fn flag(value: u64) -> Result<bool, Fault> {
    if value <= 1 { Ok(value == 1) } else { Err(Fault::Malformed) }
}

/// The low `bytes` (0 to 8) of the eight at `at`, which moves on.
#[inline(always)]
fn load(window: &[u8; WINDOW], at: &mut usize, bytes: u8) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&window[*at..*at + 8]);
    *at += usize::from(bytes);
    // Two shifts, for one by 64 is not a shift.
    let half = 4 * (8 - u32::from(bytes));
    u64::from_le_bytes(word) << half << half >> half >> half
}

#[inline(always)]
fn store(out: &mut [u8; WINDOW], at: &mut usize, value: u64, bytes: u8) {
    out[*at..*at + 8].copy_from_slice(&value.to_le_bytes());
    *at += usize::from(bytes);
}

/// Writes a record without the extra fields of a chained release. If each field has at most one
/// byte, as in most records, all go out as one number. This choice depends on the fields alone, and
/// so do the bytes.
#[inline(always)]
fn put(tag: u8, delta: u64, fields: [u64; 4], out: &mut [u8; WINDOW]) -> usize {
    const { assert!(FIELD[1] == 1, "a value below 256 has one byte") };
    let [one, two, three, four] = fields;
    if one | two | three | four > 0xff {
        // Passed as four values, so that fields of the usual kind stay in registers.
        return put_wide(out, tag, delta, one, two, three, four);
    }
    let time = TIME_WIDTHS[delta.leading_zeros() as usize];
    let (mut bytes, mut codes, mut body) = (0, 0, 0);
    for (i, field) in fields.into_iter().enumerate() {
        let some = u8::from(field != 0);
        body |= field << (8 * bytes);
        codes |= some << (2 * i);
        bytes += some;
    }
    let at = 2 + usize::from(time.bytes);
    out[0] = tag | time.code << 5;
    out[1] = codes;
    out[2..10].copy_from_slice(&delta.to_le_bytes());
    out[at..at + 8].copy_from_slice(&body.to_le_bytes());
    at + usize::from(bytes)
}

/// The same of fields of any width.
#[inline(never)]
fn put_wide(out: &mut [u8; WINDOW], tag: u8, delta: u64, one: u64, two: u64, three: u64, four: u64) -> usize {
    let fields = [one, two, three, four];
    let time = TIME_WIDTHS[delta.leading_zeros() as usize];
    let (mut at, mut codes, mut places) = (2 + usize::from(time.bytes), 0, [0; 4]);
    for i in 0..4 {
        let width = FIELD_WIDTHS[fields[i].leading_zeros() as usize];
        places[i] = at;
        codes |= width.code << (2 * i);
        at += usize::from(width.bytes);
    }
    // No record is longer; said once, it holds for each place.
    assert!(at <= WINDOW - 8, "a record fits its window");
    out[0] = tag | time.code << 5;
    out[1] = codes;
    out[2..10].copy_from_slice(&delta.to_le_bytes());
    for i in 0..4 {
        out[places[i]..places[i] + 8].copy_from_slice(&fields[i].to_le_bytes());
    }
    at
}
