//! Reads one event of the kernel in Perfetto's form.
//!
//! Numbers of messages and fields are those of the published schema (perfetto/protos:
//! ftrace/ftrace_event.proto and the files of each subsystem), which never gives a number twice.

use std::collections::BTreeMap;

use super::wire::{Fields, Part, Value, varint};
use crate::calls;
use crate::decode::StateBits;
use crate::event::{Comm, Context, EventKind, Pid, Thread, Waking};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) time: u64,
    pub(super) pid: Option<Pid>,
    pub(super) context: Context,
    /// The kind of event, and its content; 0: unknown.
    pub(super) kind: u32,
    body: Part,
}

/// Reads an event's head; the byte where it is broken otherwise.
#[inline]
pub(super) fn head(bytes: &[u8], part: Part) -> Result<Head, usize> {
    let mut head = Head { time: 0, pid: None, context: Context::Thread, kind: 0, body: Part::default() };
    let mut timed = false;
    let mut fields = Fields::new(bytes, part);
    while let Some(field) = fields.next() {
        match field.map_err(|broken| broken.at)? {
            (1, Value::Number(time)) => (head.time, timed) = (time, true),
            (2, Value::Number(pid)) => head.pid = Some(pid as u32),
            (5, Value::Number(flags)) => head.context = Context::of_flags(flags),
            (kind, Value::Bytes(body)) if head.kind == 0 => (head.kind, head.body) = (kind, body),
            _ => {}
        }
    }
    if timed { Ok(head) } else { Err(part.start) }
}

const GENERIC: u32 = 327;

/// An event that is described in the trace itself, for the schema does not know it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Described {
    name: String,
    /// The field that says when a timer is to go off.
    expires: Option<u32>,
}

impl Described {
    /// Reads a `DescriptorProto`: its name, and names and numbers of its fields.
    pub(super) fn new(bytes: &[u8], part: Part) -> Self {
        let mut described = Described::default();
        let mut fields = Fields::new(bytes, part);
        while let Some(Ok(field)) = fields.next() {
            match field {
                (1, Value::Bytes(name)) => described.name = String::from_utf8_lossy(name.of(bytes)).into_owned(),
                (2, Value::Bytes(field)) => {
                    let args = Args::read(bytes, field).unwrap_or_else(|_| Args::new(bytes));
                    if args.text(1) == b"softexpires" {
                        described.expires = u32::try_from(args.number(3)).ok();
                    }
                }
                _ => {}
            }
        }
        described
    }
}

pub(super) fn name<'a>(bytes: &'a [u8], head: &Head, described: &'a BTreeMap<u32, Described>) -> Name<'a> {
    if head.kind == GENERIC {
        let args = Args::read(bytes, head.body).unwrap_or_else(|_| Args::new(bytes));
        return Name::OfTrace(args.text(1));
    }
    match described.get(&head.kind) {
        Some(described) => Name::OfTrace(described.name.as_bytes()),
        None => Name::OfSchema(head.kind),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name<'a> {
    /// It stands in the trace.
    OfTrace(&'a [u8]),
    /// The schema numbers it: [`name_of_kind`].
    OfSchema(u32),
}

/// Events that have their number from the schema and are read, or are frequent.
#[must_use]
pub(super) fn name_of_kind(kind: u32) -> String {
    let name = match kind {
        0 => "(nothing)",
        3 => "print",
        4 => "sched_switch",
        11 => "cpu_frequency",
        12 => "cpu_frequency_limits",
        13 => "cpu_idle",
        14 => "clock_enable",
        15 => "clock_disable",
        16 => "clock_set_rate",
        17 => "sched_wakeup",
        18 => "sched_blocked_reason",
        19 => "sched_cpu_hotplug",
        20 => "sched_waking",
        21 => "ipi_entry",
        22 => "ipi_exit",
        23 => "ipi_raise",
        24 => "softirq_entry",
        25 => "softirq_exit",
        26 => "softirq_raise",
        36 => "irq_handler_entry",
        37 => "irq_handler_exit",
        50 => "binder_transaction",
        51 => "binder_transaction_received",
        56 => "workqueue_activate_work",
        57 => "workqueue_execute_end",
        58 => "workqueue_execute_start",
        59 => "workqueue_queue_work",
        80 => "tracing_mark_write",
        113 => "suspend_resume",
        114 => "sched_wakeup_new",
        235 => "task_newtask",
        236 => "task_rename",
        237 => "sched_process_exec",
        238 => "sched_process_exit",
        239 => "sched_process_fork",
        240 => "sched_process_free",
        241 => "sched_process_hang",
        242 => "sched_process_wait",
        313 => "rss_stat",
        324 => "signal_deliver",
        325 => "signal_generate",
        326 => "oom_score_adj_update",
        329 => "sys_enter",
        330 => "sys_exit",
        332 => "gpu_frequency",
        353 => "sched_pi_setprio",
        491 => "sched_migrate_task",
        551 => "hrtimer_start",
        552 => "hrtimer_cancel",
        553 => "hrtimer_expire_entry",
        554 => "hrtimer_expire_exit",
        555 => "timer_start",
        556 => "timer_cancel",
        557 => "timer_expire_entry",
        558 => "timer_expire_exit",
        559 => "local_timer_entry",
        560 => "local_timer_exit",
        _ => return format!("(Perfetto's event {kind})"),
    };
    name.to_owned()
}

/// The content of an event, or the byte of damage.
#[inline]
pub(super) fn what(bytes: &[u8], head: &Head, described: &BTreeMap<u32, Described>) -> Result<EventKind, usize> {
    let args = || Args::read(bytes, head.body);
    let wake = |waking| {
        let args = args()?;
        let cpu = args.has(5).then(|| args.small(5));
        Ok(EventKind::Wake { thread: args.thread(2, 1, 3), waking, cpu })
    };
    Ok(match head.kind {
        4 => {
            let args = args()?;
            let next = args.thread(6, 5, 7);
            let left = StateBits::UNKNOWN.left(args.number(4));
            EventKind::Switch { prev: args.thread(2, 1, 3), left, next }
        }
        20 => return wake(Waking::Begins),
        17 => return wake(Waking::Queued),
        114 => return wake(Waking::New),
        24 => EventKind::SoftirqEnter { vec: args()?.small(1) },
        25 => EventKind::SoftirqExit { vec: args()?.small(1) },
        26 => EventKind::SoftirqRaise { vec: args()?.small(1) },
        36 => {
            let args = args()?;
            EventKind::IrqEnter { irq: args.small(1), name: args.comm(2) }
        }
        37 => EventKind::IrqExit { irq: args()?.small(1) },
        236 => {
            let args = args()?;
            EventKind::Rename { pid: args.small(1), comm: args.comm(3) }
        }
        238 => EventKind::Exit { pid: args()?.small(2) },
        239 => {
            let args = args()?;
            EventKind::Fork { parent: args.small(2), child: args.small(4), comm: args.comm(3) }
        }
        329 => enter(bytes, head.body)?,
        330 => {
            let args = args()?;
            EventKind::SyscallExit { number: args.signed(1), result: args.signed(2) }
        }
        491 => {
            let args = args()?;
            EventKind::Migrate { pid: args.small(2), from: args.small(4), to: args.small(5) }
        }
        551 => EventKind::Timer { expires: args()?.number(4) },
        GENERIC => generic(bytes, head.body)?,
        other => match described.get(&other) {
            Some(Described { name, expires: Some(field) }) if name == "hrtimer_start" => {
                number_of(bytes, head.body, *field)?.map_or(EventKind::Other, |expires| EventKind::Timer { expires })
            }
            _ => EventKind::Other,
        },
    })
}

/// `sys_enter`; its arguments are recorded only where that is asked for.
fn enter(bytes: &[u8], body: Part) -> Result<EventKind, usize> {
    let (mut number, mut args, mut count) = (0, calls::ARGS_UNKNOWN, 0);
    let mut put = |value: u64| {
        if count == 0 {
            args = [0; 6];
        }
        if let Some(arg) = args.get_mut(count) {
            *arg = value;
        }
        count += 1;
    };
    let mut fields = Fields::new(bytes, body);
    while let Some(field) = fields.next() {
        match field.map_err(|broken| broken.at)? {
            (1, Value::Number(value)) => number = value.cast_signed(),
            (2, Value::Number(value)) => put(value),
            (2, Value::Bytes(list)) => {
                let mut at = list.start;
                while at < list.end {
                    put(varint(&bytes[..list.end], &mut at).ok_or(at)?);
                }
            }
            _ => {}
        }
    }
    Ok(EventKind::SyscallEnter { number, args })
}

/// An event with its name and its fields' names.
fn generic(bytes: &[u8], body: Part) -> Result<EventKind, usize> {
    let mut fields = Fields::new(bytes, body);
    let (mut timer, mut expires) = (false, None);
    while let Some(field) = fields.next() {
        match field.map_err(|broken| broken.at)? {
            (1, Value::Bytes(name)) => timer = name.of(bytes) == b"hrtimer_start",
            (2, Value::Bytes(field)) if timer => {
                let args = Args::read(bytes, field)?;
                if args.text(1) == b"softexpires" {
                    expires = Some(if args.has(5) { args.number(5) } else { args.number(4) });
                }
            }
            _ => {}
        }
    }
    Ok(expires.map_or(EventKind::Other, |expires| EventKind::Timer { expires }))
}

/// The number in this field of a message, if the message has the field.
fn number_of(bytes: &[u8], body: Part, wanted: u32) -> Result<Option<u64>, usize> {
    let mut fields = Fields::new(bytes, body);
    let mut found = None;
    while let Some(field) = fields.next() {
        match field.map_err(|broken| broken.at)? {
            (number, Value::Number(value)) if number == wanted => found = Some(value),
            _ => {}
        }
    }
    Ok(found)
}

/// The first nine fields of a message. A field that is absent is zero, and a text that is absent is
/// empty.
pub(super) struct Args<'a> {
    bytes: &'a [u8],
    seen: u16,
    numbers: [u64; ARGS],
    texts: [Part; ARGS],
}

const ARGS: usize = 10;

impl<'a> Args<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Args { bytes, seen: 0, numbers: [0; ARGS], texts: [Part::default(); ARGS] }
    }

    /// Reads a message; the byte where it is broken otherwise.
    #[inline]
    pub(super) fn read(bytes: &'a [u8], part: Part) -> Result<Self, usize> {
        let mut args = Args::new(bytes);
        let mut fields = Fields::new(bytes, part);
        while let Some(field) = fields.next() {
            let (number, value) = field.map_err(|broken| broken.at)?;
            let at = number as usize;
            match value {
                Value::Number(value) if at < ARGS => {
                    args.numbers[at] = value;
                    args.seen |= 1 << at;
                }
                Value::Bytes(text) if at < ARGS => args.texts[at] = text,
                _ => {}
            }
        }
        Ok(args)
    }

    #[inline]
    pub(super) fn has(&self, field: usize) -> bool {
        self.seen & (1 << field) != 0
    }
    #[inline]
    pub(super) fn number(&self, field: usize) -> u64 {
        self.numbers[field]
    }
    /// A number that is never negative and never large: an id, a CPU. -1 (none) is `u32::MAX`.
    #[inline]
    pub(super) fn small(&self, field: usize) -> u32 {
        self.numbers[field] as u32
    }
    #[inline]
    fn signed(&self, field: usize) -> i64 {
        self.numbers[field].cast_signed()
    }
    #[inline]
    pub(super) fn text(&self, field: usize) -> &'a [u8] {
        self.texts[field].of(self.bytes)
    }
    #[inline]
    pub(super) fn part(&self, field: usize) -> Part {
        self.texts[field]
    }
    #[inline]
    pub(super) fn comm(&self, field: usize) -> Comm {
        Comm::new(self.text(field))
    }
    #[inline]
    fn thread(&self, pid: usize, comm: usize, prio: usize) -> Thread {
        let prio = self.has(prio).then(|| self.numbers[prio] as i32);
        Thread { pid: self.small(pid), comm: self.comm(comm), prio }
    }
}
