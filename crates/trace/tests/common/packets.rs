//! Writes Perfetto's packets, as far as tests need them: an account of the schema that shares
//! nothing with the reader's.

use std::io::Write as _;

use takt_trace::{Context, EventKind, KernelEvent, SwitchOutState, Thread, Waking};

#[derive(Clone, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
    pub(crate) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }
    pub(crate) fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }
    pub(crate) fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }
    pub(crate) fn packed(self, field: u64, values: impl Iterator<Item = u64>) -> Self {
        let mut list = Message::default();
        values.for_each(|value| list.varint(value));
        if list.0.is_empty() { self } else { self.message(field, &list) }
    }
}

pub(crate) fn message() -> Message {
    Message::default()
}

pub(crate) fn trace(packets: &[Message]) -> Vec<u8> {
    packets.iter().fold(message(), |trace, packet| trace.message(1, packet)).0
}

pub(crate) fn compressed(packets: &[Message]) -> Message {
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&trace(packets)).expect("to memory");
    message().bytes(50, &packer.finish().expect("to memory"))
}

/// How a kernel's number says it.
fn state(left: SwitchOutState) -> u64 {
    match left {
        SwitchOutState::Ready => 0,
        SwitchOutState::Blocked => 1,
        SwitchOutState::Held => 2,
        SwitchOutState::Ended => 16,
        SwitchOutState::Preempted => 256,
    }
}

fn flags(context: Context) -> u64 {
    match context {
        Context::Thread => 1,
        Context::Soft => 0x11,
        Context::Hard => 0x09,
    }
}

fn signed(value: i32) -> u64 {
    i64::from(value).cast_unsigned()
}

fn thread(thread: &Thread, fields: [u64; 3], into: Message) -> Message {
    let [comm, pid, prio] = fields;
    let into = into.bytes(comm, thread.comm.bytes()).number(pid, u64::from(thread.pid));
    thread.prio.map_or(into.clone(), |value| into.number(prio, signed(value)))
}

/// In which form a timer is written: by its own message, by name, or as the trace describes it.
#[derive(Clone, Copy)]
pub(crate) enum TimerForm {
    Typed,
    Named,
    Described,
}

/// The trace's number of described timers.
const DESCRIBED: u64 = 70_001;

pub(crate) fn event(event: &KernelEvent, form: TimerForm) -> Message {
    let number = |field, value: u32| message().number(field, u64::from(value));
    let (field, body) = match &event.what {
        EventKind::Switch { prev, left, next } => {
            let body = thread(prev, [1, 2, 3], message()).number(4, state(*left));
            (4, thread(next, [5, 6, 7], body))
        }
        EventKind::Wake { thread: woken, waking, cpu } => {
            let body = thread(woken, [1, 2, 3], message());
            let body = cpu.map_or(body.clone(), |cpu| body.number(5, u64::from(cpu)));
            let field = match waking {
                Waking::Begins => 20,
                Waking::Queued => 17,
                Waking::New => 114,
            };
            (field, body)
        }
        EventKind::SoftirqEnter { vec } => (24, number(1, *vec)),
        EventKind::SoftirqExit { vec } => (25, number(1, *vec)),
        EventKind::SoftirqRaise { vec } => (26, number(1, *vec)),
        EventKind::IrqEnter { irq, name } => (36, number(1, *irq).bytes(2, name.bytes())),
        EventKind::IrqExit { irq } => (37, number(1, *irq).number(2, 1)),
        EventKind::Rename { pid, comm } => (236, number(1, *pid).bytes(2, b"before").bytes(3, comm.bytes())),
        EventKind::Exit { pid } => (238, message().bytes(1, b"who").number(2, u64::from(*pid)).number(3, 1)),
        EventKind::Fork { parent, child, comm } => {
            let body = message().bytes(1, b"parent").number(2, u64::from(*parent));
            (239, body.bytes(3, comm.bytes()).number(4, u64::from(*child)))
        }
        EventKind::SyscallEnter { number, args } => {
            let body = message().number(1, number.cast_unsigned());
            (329, args.iter().fold(body, |body, arg| body.number(2, *arg)))
        }
        EventKind::SyscallExit { number, result } => {
            (330, message().number(1, number.cast_unsigned()).number(2, result.cast_unsigned()))
        }
        EventKind::Migrate { pid, from, to } => {
            let body = message().bytes(1, b"who").number(2, u64::from(*pid)).number(3, 120);
            (491, body.number(4, u64::from(*from)).number(5, u64::from(*to)))
        }
        EventKind::Timer { expires } => match form {
            TimerForm::Typed => (551, message().number(1, 77).number(3, expires + 50).number(4, *expires)),
            TimerForm::Named => {
                let field = |name: &[u8], value| message().bytes(1, name).number(5, value);
                let body = message().bytes(1, b"hrtimer_start").message(2, &field(b"expires", expires + 50));
                (327, body.message(2, &field(b"softexpires", *expires)))
            }
            TimerForm::Described => (DESCRIBED, message().number(6, expires + 50).number(9, *expires)),
        },
        EventKind::Lost { .. } => panic!("a bundle says it"),
        EventKind::Other => (3, message().bytes(2, b"B|1|draw")),
    };
    let head = message().number(1, event.time.as_ns()).number(2, u64::from(event.pid));
    head.number(5, flags(event.context)).message(field, &body)
}

/// What describes [`TimerForm::Described`].
pub(crate) fn descriptor() -> Message {
    let field = |name: &[u8], number| message().bytes(1, name).number(3, number);
    let described = message().bytes(1, b"hrtimer_start").message(2, &field(b"expires", 6));
    message().number(1, DESCRIBED).message(2, &described.message(2, &field(b"softexpires", 9)))
}

pub(crate) fn compact(events: &[&KernelEvent]) -> Message {
    let mut names: Vec<&[u8]> = Vec::new();
    let mut indices = Vec::new();
    for event in events {
        let (EventKind::Switch { next: thread, .. } | EventKind::Wake { thread, .. }) = &event.what else {
            panic!("{event:?}")
        };
        let known = names.iter().position(|name| *name == thread.comm.bytes());
        indices.push(known.unwrap_or(names.len()) as u64);
        if known.is_none() {
            names.push(thread.comm.bytes());
        }
    }
    let of = |switches: bool| {
        let of = move |event: &&KernelEvent| matches!(event.what, EventKind::Switch { .. }) == switches;
        events.iter().zip(&indices).filter(move |(event, _)| of(event)).map(|(event, index)| (*event, *index))
    };
    let times = |switches| {
        let mut before = 0_u64;
        of(switches).map(move |(event, _)| {
            let after = event.time.as_ns().wrapping_sub(before);
            before = event.time.as_ns();
            after
        })
    };
    let threads = |switches| {
        of(switches).map(|(event, _)| match &event.what {
            EventKind::Switch { next: thread, .. } | EventKind::Wake { thread, .. } => *thread,
            other => panic!("{other:?}"),
        })
    };
    let prio = |thread: Thread| signed(thread.prio.expect("compact events have one"));
    let states = of(true).map(|(event, _)| match event.what {
        EventKind::Switch { left, .. } => state(left),
        _ => unreachable!("a switch"),
    });
    let targets = of(false).map(|(event, _)| match event.what {
        EventKind::Wake { cpu, .. } => u64::from(cpu.expect("compact events have one")),
        _ => unreachable!("a waking"),
    });
    let message = names.iter().fold(message(), |message, name| message.bytes(5, name));
    let message = message.packed(1, times(true)).packed(2, states);
    let message = message.packed(3, threads(true).map(|thread| u64::from(thread.pid)));
    let message = message.packed(4, threads(true).map(prio)).packed(6, of(true).map(|(_, index)| index));
    let message = message.packed(7, times(false)).packed(8, threads(false).map(|thread| u64::from(thread.pid)));
    let message = message.packed(9, targets).packed(10, threads(false).map(prio));
    let message = message.packed(11, of(false).map(|(_, index)| index));
    message.packed(12, of(false).map(|(event, _)| flags(event.context)))
}
