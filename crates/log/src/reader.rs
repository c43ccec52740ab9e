//! Reads a JobLog, its streams merged in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::io;
use std::ops::ControlFlow;

use takt_model::Time;

use crate::blocks::{Blocks, Next};
use crate::definitions::{Definition, Definitions};
use crate::error::ReadError;
use crate::event::{Event, Sink};
use crate::format::{
    BlockHead, BlockKind, GROUP_MAX, HeadFault, decode_definition, decode_end, decode_head, unknown_definition,
};
use crate::header::Header;
use crate::record::{Context, Decoded, Fault};

/// An event with its stream and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The stream; in what `sim` and `run` write, the node's number.
    pub stream: u32,
    /// When.
    pub time: Time,
    /// What.
    pub event: Event,
}

/// Reads a log from its start, from a pipe or a file. It is an iterator over the events. The
/// streams are merged in the order of time, and at one instant (within one group of blocks) in the
/// order of stream numbers.
///
/// Memory is bounded: one group of blocks is held at a time. Damaged and missing parts are skipped.
/// The stream that lost events gets an [`Event::Lost`] there, or behind all others if its end is
/// missing. [`Reader::damage`] returns the amount. Errors are final.
pub struct Reader<R> {
    blocks: Blocks<R>,
    header: Header,
    definitions: Definitions,
    revision: u64,
    slots_log2: u8,
    streams: Vec<StreamState>,
    /// Contexts of former cursors, to be used again.
    spare: Vec<Context>,
    cursors: Vec<Cursor>,
    /// Cursors that are not `current`, the least (time, stream) on top; indices into `cursors`.
    heap: BinaryHeap<Reverse<(u64, u32, usize)>>,
    current: Option<usize>,
    /// The least (time, stream) of the heap: where `current` has to give way.
    bound: (u64, u32),
    /// Events that the reader itself adds.
    extra: VecDeque<Record>,
    damage: Damage,
    latest: u64,
    end: Option<Time>,
    done: bool,
}

#[derive(Clone, Copy, Default)]
struct StreamState {
    /// Records so far, lost ones included.
    records: u64,
    /// Time of the last record.
    time: u64,
}

struct Cursor {
    stream: u32,
    /// The offsets in the buffer of its next record and of the end of its payload.
    at: usize,
    stop: usize,
    records: u32,
    /// Events that are missing before it; zero once reported.
    lost: u64,
    /// The offset of its block in the file.
    offset: u64,
    context: Context,
}

/// The missing parts of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Bytes that belong to no good block.
    pub bytes: u64,
    /// How many stretches of the file they make.
    pub places: u64,
    /// The offset of the first one.
    pub first: Option<u64>,
    /// Records (events and definitions) known to be missing; more may be where the end is missing too.
    pub records: u64,
    /// The log does not say where it ends: its writer was interrupted.
    pub no_end: bool,
    /// The writer got the streams one after another instead of side by side: the order is that of time
    /// only within each stream.
    pub unordered: bool,
}

impl Damage {
    /// Whether the log is whole.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Damage { unordered: self.unordered, ..Damage::default() }
    }
}

/// One line, empty where the log is whole.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(first) = self.first {
            let places = match self.places {
                1 => format!("at byte {first}"),
                n => format!("in {n} places, the first at byte {first}"),
            };
            parts.push(format!("{} bytes belong to no whole block, {places}", self.bytes));
        }
        if self.records > 0 {
            parts.push(format!("{} records are lost", self.records));
        }
        if self.no_end {
            parts.push("no end is recorded (interrupted?), so the last event is taken for it".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

impl<R: io::Read> Reader<R> {
    /// Reads a log's head.
    ///
    /// # Errors
    /// The input refuses, is no log, or a log with a damaged head or of another version.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut blocks = Blocks::new(input);
        blocks.magic()?;
        let offset = blocks.offset();
        let head = match blocks.peek()? {
            Next::Good(head) if head.kind == BlockKind::Head as u8 => head,
            _ => return Err(ReadError::Head),
        };
        let payload = blocks.take(&head);
        let (header, definitions, slots_log2) = match decode_head(blocks.bytes(payload)) {
            Ok(parts) => parts,
            Err(HeadFault::Version(found)) => return Err(ReadError::Version { found }),
            Err(HeadFault::Unknown(what)) => return Err(ReadError::Unknown { what, offset }),
            Err(HeadFault::Malformed(what)) => return Err(ReadError::Malformed { what, offset }),
        };
        Ok(Reader {
            blocks,
            header,
            definitions,
            revision: 0,
            slots_log2,
            streams: Vec::new(),
            spare: Vec::new(),
            cursors: Vec::new(),
            heap: BinaryHeap::new(),
            current: None,
            bound: (u64::MAX, u32::MAX),
            extra: VecDeque::new(),
            damage: Damage::default(),
            latest: 0,
            end: None,
            done: false,
        })
    }

    /// The header of the log.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The definitions that hold at the last event that was read.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// How often [`Reader::definitions`] changed since the start.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The time that the log reaches. It is the recorded end once the end has been read. Before
    /// that, and for a log without an end ([`Damage::no_end`]), it is the latest time of an event
    /// read.
    pub fn end(&self) -> Time {
        self.end.unwrap_or(Time::from_ns(self.latest))
    }

    /// The missing parts found so far. Final once the iterator has ended.
    pub fn damage(&self) -> Damage {
        let found = self.blocks.skipped();
        Damage { bytes: found.bytes, places: found.places, first: found.first, ..self.damage }
    }

    /// Gives all events and late definitions that are left to `sink` and returns the log's end.
    ///
    /// # Errors
    /// As the iterator's.
    pub fn copy_to(&mut self, sink: &mut impl Sink) -> Result<Time, ReadError> {
        let copied = self.pump(&mut ForwardAll(sink));
        copied.inspect_err(|_| self.stop())?;
        Ok(self.end())
    }

    /// Gives events and late definitions to `sink` until `more`, asked after each event, says no; whether the end came
    /// first. For logs that are still being written.
    ///
    /// # Errors
    /// As the iterator's.
    pub fn copy_while<S: Sink>(&mut self, sink: &mut S, more: impl FnMut(&mut S) -> bool) -> Result<bool, ReadError> {
        let broken = self.pump(&mut ForwardWhile(sink, more));
        Ok(broken.inspect_err(|_| self.stop())?.is_none())
    }

    /// After an error nothing more comes.
    #[cold]
    fn stop(&mut self) {
        self.current = None;
        self.heap.clear();
        self.extra.clear();
        self.done = true;
    }

    /// Hands events to `to` until it breaks; `None` at the end.
    #[inline(always)]
    fn pump<T: RecordVisitor>(&mut self, to: &mut T) -> Result<Option<T::Break>, ReadError> {
        loop {
            while let Some(current) = self.current {
                let cursor = &mut self.cursors[current];
                let window = self.blocks.window(cursor.at);
                let passed = cursor.context.time;
                let time = cursor.context.peek(window);
                if cursor.records == 0 || cursor.lost > 0 || (time, cursor.stream) > self.bound {
                    if let Some(record) = self.turn(current)?
                        && let ControlFlow::Break(value) = to.event(record.stream, record.time, &record.event)
                    {
                        return Ok(Some(value));
                    }
                    continue;
                }
                match cursor.context.decode(window) {
                    Ok((length, Decoded::Event(event))) if time >= passed && length <= cursor.stop - cursor.at => {
                        cursor.at += length;
                        cursor.records -= 1;
                        self.latest = self.latest.max(time);
                        if let ControlFlow::Break(value) = to.event(cursor.stream, Time::from_ns(time), &event) {
                            return Ok(Some(value));
                        }
                    }
                    Ok((length, Decoded::Definition(body))) if time >= passed => {
                        let stream = cursor.stream;
                        let definition = self.define(current, length, body)?;
                        self.latest = self.latest.max(time);
                        to.define(stream, Time::from_ns(time), &definition);
                    }
                    Ok((_, Decoded::Definition(_))) => return Err(cursor.malformed("definition")),
                    Ok(_) => return Err(cursor.malformed("record")),
                    Err(fault) => return Err(cursor.fault(fault)),
                }
            }
            if let Some(record) = self.extra.pop_front() {
                if let ControlFlow::Break(value) = to.event(record.stream, record.time, &record.event) {
                    return Ok(Some(value));
                }
                continue;
            }
            if self.done {
                return Ok(None);
            }
            self.load_group()?;
        }
    }

    /// Handles the case that the current cursor has no next event: an end, a loss, or another
    /// cursor's turn.
    #[inline(never)]
    fn turn(&mut self, current: usize) -> Result<Option<Record>, ReadError> {
        let cursor = &mut self.cursors[current];
        if cursor.lost > 0 {
            let (stream, time) = (cursor.stream, Time::from_ns(cursor.context.time));
            let count = std::mem::take(&mut cursor.lost);
            self.latest = self.latest.max(time.as_ns());
            return Ok(Some(Record { stream, time, event: Event::Lost { count } }));
        }
        if cursor.records == 0 {
            if cursor.at != cursor.stop {
                return Err(cursor.malformed("number of records"));
            }
            self.streams[cursor.stream as usize].time = cursor.context.time;
        } else {
            let time = cursor.context.peek(self.blocks.window(cursor.at));
            if let Some(mut top) = self.heap.peek_mut() {
                let Reverse((_, _, next)) = std::mem::replace(&mut *top, Reverse((time, cursor.stream, current)));
                self.current = Some(next);
            }
            self.bind();
            return Ok(None);
        }
        self.pick();
        Ok(None)
    }

    fn pick(&mut self) {
        self.current = self.heap.pop().map(|Reverse((_, _, cursor))| cursor);
        self.bind();
    }

    fn bind(&mut self) {
        self.bound = self.heap.peek().map_or((u64::MAX, u32::MAX), |Reverse((time, stream, _))| (*time, *stream));
    }

    #[cold]
    fn define(&mut self, current: usize, length: usize, body: u64) -> Result<Definition, ReadError> {
        let cursor = &mut self.cursors[current];
        let stop = (length as u64).saturating_add(body).saturating_add(cursor.at as u64);
        if stop > cursor.stop as u64 {
            return Err(cursor.malformed("definition"));
        }
        let body = cursor.at + length..stop as usize;
        cursor.at = body.end;
        cursor.records -= 1;
        let body = self.blocks.bytes(body);
        if let Some(kind) = unknown_definition(body) {
            let what = format!("a definition of type {kind}");
            return Err(ReadError::Unknown { what, offset: cursor.offset });
        }
        let definition = decode_definition(body).ok_or(cursor.malformed("definition"))?;
        self.definitions.apply(definition.clone()).map_err(|_| cursor.malformed("number of a definition"))?;
        self.revision += 1;
        Ok(definition)
    }

    /// Reads the blocks that belong together and makes a cursor for each.
    fn load_group(&mut self) -> Result<(), ReadError> {
        self.spare.extend(self.cursors.drain(..).map(|cursor| cursor.context));
        self.blocks.compact();
        let (mut kept, mut left) = (0, u16::MAX);
        loop {
            let first = self.cursors.is_empty();
            let offset = self.blocks.offset();
            let head = match self.blocks.peek()? {
                Next::Good(head) => head,
                Next::Bad if first => {
                    self.blocks.skip()?;
                    continue;
                }
                Next::Bad => break,
                Next::End => {
                    if first {
                        self.done = true;
                        self.damage.no_end = true;
                    }
                    break;
                }
            };
            let last = self.cursors.last().map(|cursor| cursor.stream);
            let events = head.kind == BlockKind::Events as u8;
            let same_group = events && head.left < left && last < Some(head.stream) && kept < GROUP_MAX;
            if !first && !same_group {
                break;
            }
            if head.kind == BlockKind::End as u8 {
                self.read_end(&head, offset)?;
                break;
            }
            if !events {
                let what = match head.kind {
                    0 => "a second head (are these several logs in one file?)".to_owned(),
                    kind => format!("a block of kind {kind}"),
                };
                return Err(ReadError::Unknown { what, offset });
            }
            self.open(&head, offset)?;
            (kept, left) = (kept + head.length as usize + (8 << self.slots_log2), head.left);
            if left == 0 {
                break;
            }
        }
        for (i, cursor) in self.cursors.iter().enumerate() {
            let time = if cursor.lost > 0 || cursor.records == 0 {
                cursor.context.time
            } else {
                cursor.context.peek(self.blocks.window(cursor.at))
            };
            self.damage.unordered |= time < self.latest;
            self.heap.push(Reverse((time, cursor.stream, i)));
        }
        self.pick();
        Ok(())
    }

    /// Makes a cursor of an events block, unless it repeats what was read before.
    fn open(&mut self, head: &BlockHead, offset: u64) -> Result<(), ReadError> {
        let at = head.stream as usize;
        if self.streams.len() <= at {
            self.streams.resize(at + 1, StreamState::default());
        }
        let state = &mut self.streams[at];
        if head.first < state.records {
            self.blocks.discard(head);
            return Ok(());
        }
        if head.base < state.time {
            return Err(ReadError::Malformed { what: "time", offset });
        }
        let lost = head.first - state.records;
        self.damage.records = self.damage.records.saturating_add(lost);
        let total = head.first.checked_add(head.records.into());
        state.records = total.ok_or(ReadError::Malformed { what: "number of records", offset })?;
        let mut context = self.spare.pop().unwrap_or_else(|| Context::new(self.slots_log2));
        context.reset(head.base);
        let range = self.blocks.take(head);
        let (stream, records) = (head.stream, head.records);
        self.cursors.push(Cursor { stream, at: range.start, stop: range.end, records, lost, offset, context });
        Ok(())
    }

    /// The end block: how far the log reaches, and what is missing at its end.
    fn read_end(&mut self, head: &BlockHead, offset: u64) -> Result<(), ReadError> {
        let range = self.blocks.take(head);
        let end = decode_end(self.blocks.bytes(range));
        let (end, totals) = end.ok_or(ReadError::Malformed { what: "end", offset })?;
        let end = Time::from_ns(end.max(self.latest));
        self.end = Some(end);
        for (stream, total) in totals {
            let known = self.streams.get(stream as usize).map_or(0, |state| state.records);
            if total > known {
                self.damage.records = self.damage.records.saturating_add(total - known);
                self.extra.push_back(Record { stream, time: end, event: Event::Lost { count: total - known } });
            }
        }
        self.blocks.discard_rest()?;
        self.done = true;
        Ok(())
    }
}

/// Receives the records from [`Reader::pump`].
trait RecordVisitor {
    type Break;
    fn event(&mut self, stream: u32, time: Time, event: &Event) -> ControlFlow<Self::Break>;
    fn define(&mut self, stream: u32, time: Time, definition: &Definition);
}

struct SingleRecord;

impl RecordVisitor for SingleRecord {
    type Break = Record;
    #[inline(always)]
    fn event(&mut self, stream: u32, time: Time, event: &Event) -> ControlFlow<Record> {
        ControlFlow::Break(Record { stream, time, event: *event })
    }
    fn define(&mut self, _: u32, _: Time, _: &Definition) {}
}

/// Takes everything for a sink.
struct ForwardAll<'a, S>(&'a mut S);

impl<S: Sink> RecordVisitor for ForwardAll<'_, S> {
    type Break = std::convert::Infallible;
    #[inline(always)]
    fn event(&mut self, stream: u32, time: Time, event: &Event) -> ControlFlow<Self::Break> {
        self.0.event(stream, time, event);
        ControlFlow::Continue(())
    }
    fn define(&mut self, stream: u32, time: Time, definition: &Definition) {
        self.0.define(stream, time, definition);
    }
}

/// Takes everything for a sink as long as wanted.
struct ForwardWhile<'a, S, F>(&'a mut S, F);

impl<S: Sink, F: FnMut(&mut S) -> bool> RecordVisitor for ForwardWhile<'_, S, F> {
    type Break = ();
    #[inline(always)]
    fn event(&mut self, stream: u32, time: Time, event: &Event) -> ControlFlow<()> {
        self.0.event(stream, time, event);
        if (self.1)(self.0) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
    fn define(&mut self, stream: u32, time: Time, definition: &Definition) {
        self.0.define(stream, time, definition);
    }
}

impl<R: io::Read> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.pump(&mut SingleRecord) {
            Ok(record) => record.map(Ok),
            Err(error) => {
                self.stop();
                Some(Err(error))
            }
        }
    }
}

impl Cursor {
    #[cold]
    fn malformed(&self, what: &'static str) -> ReadError {
        ReadError::Malformed { what, offset: self.offset }
    }

    #[cold]
    fn fault(&self, fault: Fault) -> ReadError {
        match fault {
            Fault::Unknown(tag) if self.at < self.stop => {
                ReadError::Unknown { what: format!("a record of kind {tag}"), offset: self.offset }
            }
            _ => self.malformed("record"),
        }
    }
}
