//! The events of one CPU in the order of time, out of the bundles that a trace has them in.
//!
//! A bundle has up to three *lanes*: its events, and in compact form its switches and its wakings.
//! Each lane is in the order of time, as the recorder took it from the kernel. Bundles of one CPU
//! follow each other, except in damaged traces and in traces of several data sources. So all lanes
//! of a CPU are sorted by their first events when the trace is opened. A lane is begun when the
//! merge has come to its first event. Memory holds one event of each open lane; mostly three lanes
//! are open. A lane that is not in order is decoded as a whole and sorted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::vec;

use takt_model::Time;

use super::event::{self, Described, Name};
use super::wire::{Fields, Part, Value, varint};
use super::{Blob, place};
use crate::damage::Damages;
use crate::decode::StateBits;
use crate::event::{Comm, Context, EventKind, KernelEvent, Names, Pid, Thread, Waking};

#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) first: u64,
    pub(super) part: Part,
    pub(super) blob: u32,
    pub(super) kind: Kind,
    /// Its events are in the order of time.
    pub(super) sorted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// One event that is not in the file: a loss, and the number of lost events.
    Lost(Option<u64>),
    /// Whole events of any kind, in a bundle.
    Events,
    /// `sched_waking` in compact form.
    Wakings,
    /// `sched_switch` in compact form, which says only who runs next.
    Switches,
}

/// State that all CPUs share while events are read.
pub(super) struct Reader<'r, 'a> {
    pub(super) blobs: &'r [Blob<'a>],
    pub(super) comms: &'r BTreeMap<Pid, Comm>,
    pub(super) described: &'r BTreeMap<u32, Described>,
    pub(super) names: &'r mut Names,
    pub(super) damages: &'r mut Damages,
    /// The number of each event's name, by its number in the schema.
    known: Vec<Option<u16>>,
    lost: u16,
}

/// Events with larger numbers are looked up by name.
const KNOWN_MAX: u32 = 1024;

impl<'r, 'a> Reader<'r, 'a> {
    pub(super) fn new(
        blobs: &'r [Blob<'a>],
        comms: &'r BTreeMap<Pid, Comm>,
        described: &'r BTreeMap<u32, Described>,
        names: &'r mut Names,
        damages: &'r mut Damages,
    ) -> Self {
        let lost = names.number("(lost)");
        Reader { blobs, comms, described, names, damages, known: vec![None; KNOWN_MAX as usize], lost }
    }

    fn name(&mut self, name: Name) -> u16 {
        match name {
            Name::OfTrace(name) => self.names.number(&String::from_utf8_lossy(name)),
            Name::OfSchema(kind) => match self.known.get_mut(kind as usize) {
                Some(Some(number)) => *number,
                Some(known) => *known.insert(self.names.number(&event::name_of_kind(kind))),
                None => self.names.number(&event::name_of_kind(kind)),
            },
        }
    }

    fn broken(&mut self, blob: u32, at: usize, why: &str) {
        self.damages.at_byte(place(self.blobs, blob, at), why);
    }
}

pub(super) struct Stream<'r> {
    cpu: u32,
    lanes: &'r [Lane],
    begun: usize,
    /// Lanes that are being read, and places of such as have ended.
    open: Vec<Open<'r>>,
    free: Vec<usize>,
    /// The next event of each, the earliest on top: its time, the lane's place among those of the
    /// CPU, and its place in `open`. At one time the lane that was begun first comes first.
    heads: BinaryHeap<Reverse<(Time, usize, usize)>>,
    running: Option<Thread>,
    pub(super) head: KernelEvent,
}

impl<'r> Stream<'r> {
    pub(super) fn new(cpu: u32, lanes: &'r [Lane]) -> Self {
        let (open, free, heads) = (Vec::new(), Vec::new(), BinaryHeap::new());
        Stream { cpu, lanes, begun: 0, open, free, heads, running: None, head: KernelEvent::NONE }
    }

    /// Puts the next event into `head`; false after the last.
    pub(super) fn advance(&mut self, reader: &mut Reader<'r, '_>) -> bool {
        while let Some(lane) = self.lanes.get(self.begun)
            && self.heads.peek().is_none_or(|Reverse((time, ..))| lane.first <= time.as_ns())
        {
            self.begin(lane, reader);
        }
        let Some(Reverse((_, _, at))) = self.heads.peek().copied() else { return false };
        let open = &mut self.open[at];
        self.head = open.head;
        let kind = open.kind;
        if open.advance(reader) {
            let next = open.head.time;
            if let Some(mut top) = self.heads.peek_mut() {
                top.0.0 = next;
            }
        } else {
            self.heads.pop();
            self.free.push(at);
        }
        self.complete(kind, reader.comms);
        true
    }

    /// Begins the next lane, unless it has no sound event.
    fn begin(&mut self, lane: &Lane, reader: &mut Reader<'r, '_>) {
        let order = self.begun;
        self.begun += 1;
        let Some(open) = Open::new(lane, self.cpu, reader) else { return };
        let time = open.head.time;
        let at = match self.free.pop() {
            Some(at) => {
                self.open[at] = open;
                at
            }
            None => {
                self.open.push(open);
                self.open.len() - 1
            }
        };
        self.heads.push(Reverse((time, order, at)));
    }

    /// The thread that ran at an event. The compact form leaves it out.
    #[inline]
    fn complete(&mut self, kind: Kind, comms: &BTreeMap<Pid, Comm>) {
        let event = &mut self.head;
        match (&mut event.what, kind) {
            (EventKind::Switch { prev, next, .. }, Kind::Switches) => {
                // Nobody said who ran: the idle thread, of which no job is known, does no harm.
                *prev = self.running.unwrap_or(IDLE);
                event.pid = prev.pid;
                self.running = Some(*next);
            }
            (EventKind::Switch { next, .. }, _) => self.running = Some(*next),
            (_, Kind::Wakings) => event.pid = self.running.map_or(0, |thread| thread.pid),
            (EventKind::Lost { .. }, _) => self.running = None,
            (EventKind::Rename { pid, comm }, _) => {
                if let Some(running) = self.running.as_mut().filter(|running| running.pid == *pid) {
                    running.comm = *comm;
                }
            }
            _ if self.running.is_none() && event.pid != 0 => {
                self.running = comms.get(&event.pid).map(|comm| Thread { pid: event.pid, comm: *comm, prio: None });
            }
            _ => {}
        }
    }
}

const IDLE: Thread = Thread { pid: 0, comm: Comm::NONE, prio: None };

struct Open<'r> {
    kind: Kind,
    blob: u32,
    bytes: &'r [u8],
    cursor: Cursor<'r>,
    head: KernelEvent,
}

enum Cursor<'r> {
    /// Nothing follows.
    End,
    Events(Fields<'r>),
    Compact(Box<Compact<'r>>),
    Sorted(vec::IntoIter<KernelEvent>),
}

impl<'r> Open<'r> {
    /// Begins a lane; `None` where it has no sound event.
    fn new(lane: &Lane, cpu: u32, reader: &mut Reader<'r, '_>) -> Option<Self> {
        let bytes: &'r [u8] = reader.blobs.get(lane.blob as usize).map_or(&[], |blob| &blob.bytes);
        let head = KernelEvent { cpu, ..KernelEvent::NONE };
        let cursor = match lane.kind {
            Kind::Lost(count) => {
                let (time, name, what) = (Time::from_ns(lane.first), reader.lost, EventKind::Lost { count });
                let head = KernelEvent { time, name, what, ..head };
                return Some(Open { kind: lane.kind, blob: lane.blob, bytes, cursor: Cursor::End, head });
            }
            Kind::Events => Cursor::Events(Fields::new(bytes, lane.part)),
            Kind::Wakings => Cursor::Compact(Box::new(Compact::new(bytes, lane.part, &WAKING, reader))),
            Kind::Switches => Cursor::Compact(Box::new(Compact::new(bytes, lane.part, &SWITCH, reader))),
        };
        let mut open = Open { kind: lane.kind, blob: lane.blob, bytes, cursor, head };
        if !lane.sorted {
            let mut events = Vec::new();
            while open.advance(reader) {
                events.push(open.head);
            }
            events.sort_by_key(|event| event.time);
            open.cursor = Cursor::Sorted(events.into_iter());
        }
        open.advance(reader).then_some(open)
    }

    /// Puts the next event into `head`; false after the last.
    #[inline]
    fn advance(&mut self, reader: &mut Reader<'r, '_>) -> bool {
        match &mut self.cursor {
            Cursor::End => false,
            Cursor::Events(fields) => {
                while let Some(Ok(field)) = fields.next() {
                    let (2, Value::Bytes(part)) = field else { continue };
                    // This damage was reported when the trace was opened.
                    let Ok(head) = event::head(self.bytes, part) else { continue };
                    match event::what(self.bytes, &head, reader.described) {
                        Ok(what) => {
                            let name = reader.name(event::name(self.bytes, &head, reader.described));
                            let (time, pid) = (Time::from_ns(head.time), head.pid.unwrap_or(0));
                            (self.head.time, self.head.pid, self.head.context) = (time, pid, head.context);
                            (self.head.name, self.head.what) = (name, what);
                            return true;
                        }
                        Err(at) => reader.broken(self.blob, at, "an event's fields cannot be read"),
                    }
                }
                false
            }
            Cursor::Compact(compact) => match compact.next(&mut self.head) {
                Some(Ok(())) => true,
                Some(Err(why)) => {
                    reader.broken(self.blob, compact.start, why);
                    self.cursor = Cursor::End;
                    false
                }
                None => false,
            },
            Cursor::Sorted(events) => match events.next() {
                Some(event) => {
                    self.head = event;
                    true
                }
                None => false,
            },
        }
    }
}

/// Fields of the lists of compact events: times as differences, and what the events say.
struct Layout {
    kind: u32,
    time: u32,
    pid: u32,
    prio: u32,
    comm: u32,
    /// The state of the thread that left, or the CPU of the queue for the woken thread.
    other: u32,
    /// Flags of the context.
    flags: Option<u32>,
}

const SWITCH: Layout = Layout { kind: 4, time: 1, pid: 3, prio: 4, comm: 6, other: 2, flags: None };
const WAKING: Layout = Layout { kind: 20, time: 7, pid: 8, prio: 10, comm: 11, other: 9, flags: Some(12) };
/// The names that compact events refer to.
const COMMS: u32 = 5;

/// The field with the times of compact switches, and that of wakings.
pub(super) const TIMES: [(Kind, u32); 2] = [(Kind::Wakings, WAKING.time), (Kind::Switches, SWITCH.time)];

struct Compact<'r> {
    start: usize,
    switches: bool,
    name: u16,
    time: u64,
    times: List<'r>,
    pids: List<'r>,
    prios: List<'r>,
    indices: List<'r>,
    others: List<'r>,
    flags: Option<List<'r>>,
    comms: Vec<Comm>,
}

impl<'r> Compact<'r> {
    fn new(bytes: &'r [u8], part: Part, layout: &Layout, reader: &mut Reader<'r, '_>) -> Self {
        let list = |field| List::new(bytes, part, field);
        let mut comms = Vec::new();
        let mut fields = Fields::new(bytes, part);
        while let Some(Ok(field)) = fields.next() {
            if let (COMMS, Value::Bytes(name)) = field {
                comms.push(Comm::new(name.of(bytes)));
            }
        }
        Compact {
            start: part.start,
            switches: layout.flags.is_none(),
            name: reader.name(Name::OfSchema(layout.kind)),
            time: 0,
            times: list(layout.time),
            pids: list(layout.pid),
            prios: list(layout.prio),
            indices: list(layout.comm),
            others: list(layout.other),
            flags: layout.flags.map(list),
            comms,
        }
    }

    #[inline]
    fn next(&mut self, event: &mut KernelEvent) -> Option<Result<(), &'static str>> {
        let after = self.times.next();
        let (pid, prio) = (self.pids.next(), self.prios.next());
        let (index, other) = (self.indices.next(), self.others.next());
        let (Some(after), Some(pid), Some(prio), Some(index), Some(other)) = (after, pid, prio, index, other) else {
            let over = (after, pid, prio, index, other) == (None, None, None, None, None);
            return if over { None } else { Some(Err("lists of compact events are not of one length")) };
        };
        let Some(comm) = usize::try_from(index).ok().and_then(|index| self.comms.get(index)) else {
            return Some(Err("a compact event refers to a name that is not there"));
        };
        self.time = self.time.wrapping_add(after);
        let thread = Thread { pid: pid as u32, comm: *comm, prio: Some(prio as i32) };
        (event.time, event.name, event.context) = (Time::from_ns(self.time), self.name, Context::Thread);
        if self.switches {
            let left = StateBits::UNKNOWN.left(other);
            event.what = EventKind::Switch { prev: IDLE, left, next: thread };
        } else {
            if let Some(flags) = self.flags.as_mut().and_then(List::next) {
                event.context = Context::of_flags(flags);
            }
            event.what = EventKind::Wake { thread, waking: Waking::Begins, cpu: Some(other as u32) };
        }
        Some(Ok(()))
    }
}

/// The numbers of a field of a message, packed or as single fields.
#[derive(Clone, Copy)]
pub(super) struct List<'r> {
    bytes: &'r [u8],
    fields: Fields<'r>,
    field: u32,
    at: usize,
    end: usize,
}

impl<'r> List<'r> {
    pub(super) fn new(bytes: &'r [u8], part: Part, field: u32) -> Self {
        List { bytes, fields: Fields::new(bytes, part), field, at: 0, end: 0 }
    }

    /// The next number. A list that is broken ends there.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.at >= self.end {
            return self.turn();
        }
        let value = varint(&self.bytes[..self.end], &mut self.at);
        if value.is_none() {
            (self.at, self.fields) = (self.end, Fields::new(&[], Part::default()));
        }
        value
    }

    /// The first number of the next run of them.
    fn turn(&mut self) -> Option<u64> {
        while let Some(Ok((field, value))) = self.fields.next() {
            match value {
                Value::Number(value) if field == self.field => return Some(value),
                Value::Bytes(run) if field == self.field && run.start < run.end => {
                    (self.at, self.end) = (run.start, run.end);
                    return self.next();
                }
                _ => {}
            }
        }
        None
    }
}
