//! Writes a JobLog.

use std::io;

use takt_model::Time;
use thiserror::Error;

use crate::definitions::{Definition, Definitions};
use crate::event::{Event, Sink};
use crate::format::{
    BLOCK_HEAD, BLOCK_MAX, BlockHead, BlockKind, DEFINITION_MAX, HEAD_MAX, MAGIC, SLOTS_LOG2, STREAMS_MAX,
    encode_definition, encode_end, encode_head,
};
use crate::header::Header;
use crate::record::{Context, WINDOW};

/// A group of blocks is written once it has this many bytes per stream, and the time moves on.
const BLOCK_AIM: usize = 64 << 10;
/// So many streams add to a group's size; with more, blocks become smaller.
const GROUP_STREAMS_MAX: usize = 16;
/// A group is written at this size even if the time stands still.
const GROUP_FULL: usize = 16 << 20;
const UINT_MAX: usize = 10;
/// A stream's first buffer.
const BUFFER_FIRST: usize = 4 << 10;

/// Writes events as a log: a [`Sink`].
///
/// Events collect in one buffer per stream. At about 64 KiB for each open stream, or 1 MiB in all,
/// the buffers are written together, between two instants. So a reader can merge the streams with
/// bounded memory. Once the buffers have grown to that size, no event allocates. Give events of
/// different streams in the order of time. Otherwise the log is still whole, but a reader's merged
/// order is only as good.
///
/// The same events give the same bytes. An error is kept for [`Writer::finish`]. Later events are
/// dropped, so the log ends whole before the error.
pub struct Writer<W> {
    out: W,
    /// By number; not open until the stream's first record.
    streams: Vec<Stream>,
    buffered: usize,
    /// A group is written when `buffered` comes to this.
    aim: usize,
    slots_log2: u8,
    failed: Option<WriteError>,
}

#[derive(Default)]
struct Stream {
    /// Its length is what may be used; at least [`WINDOW`] beyond `used` whenever a record is
    /// written. Empty until the stream is open.
    buffer: Vec<u8>,
    used: usize,
    records: u32,
    before: u64,
    /// The time from which the buffer's first record counts.
    base: u64,
    context: Context,
}

impl Stream {
    fn new(slots_log2: u8) -> Self {
        Stream { buffer: vec![0; BUFFER_FIRST], context: Context::new(slots_log2), ..Stream::default() }
    }
    fn is_open(&self) -> bool {
        !self.buffer.is_empty()
    }
    /// Writes the event's record and says how long it is; `None` where the buffer has no room.
    #[inline(always)]
    fn put(&mut self, now: u64, event: &Event) -> Option<usize> {
        let window = self.buffer.get_mut(self.used..)?.first_chunk_mut()?;
        let length = self.context.encode(now, event, window);
        // A buffer has no more than `BLOCK_MAX` bytes, and each record some of them: neither comes near its limit.
        self.used = self.used.wrapping_add(length);
        self.records = self.records.wrapping_add(1);
        Some(length)
    }
}

/// Why a log could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output refused.
    #[error("cannot write the log: {0}")]
    Io(#[from] io::Error),
    /// Events of one stream came out of order.
    #[error("an event of stream {stream} at {now} came after one at {last}; events of a stream come in order of time")]
    Order {
        /// The stream.
        stream: u32,
        /// The event's time.
        now: Time,
        /// The time of the event before.
        last: Time,
    },
    /// A stream's number is too large.
    #[error("stream {stream} is beyond the {STREAMS_MAX} that a log can have")]
    Stream {
        /// The stream.
        stream: u32,
    },
    /// The System or a definition is too long.
    #[error("{what} takes {bytes} bytes in the log; at most {max} are allowed")]
    TooLong {
        /// The name of the part that is too long.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

impl<W: io::Write> Writer<W> {
    /// Starts a log: writes its head.
    ///
    /// # Errors
    /// The output refuses, or System and definitions are longer than [`HEAD_MAX`].
    pub fn new(mut out: W, header: &Header, definitions: &Definitions) -> Result<Self, WriteError> {
        let slots_log2 = slots_log2(definitions);
        let head = encode_head(header, definitions, slots_log2);
        if head.len() > HEAD_MAX {
            return Err(WriteError::TooLong {
                what: "the head (System and definitions)",
                bytes: head.len(),
                max: HEAD_MAX,
            });
        }
        out.write_all(&MAGIC)?;
        write_block(&mut out, BlockKind::Head, &head, Place::default())?;
        Ok(Writer { out, streams: Vec::new(), buffered: 0, aim: BLOCK_AIM, slots_log2, failed: None })
    }

    /// Writes what is buffered, so that a reader of an unfinished log sees all events so far. A live
    /// recorder calls this now and then: what a crash loses is what came after.
    ///
    /// # Errors
    /// The first error of this log; after one, nothing more is written.
    pub fn flush(&mut self) -> Result<(), &WriteError> {
        self.write_group();
        if self.failed.is_none()
            && let Err(error) = self.out.flush()
        {
            self.fail(error.into());
        }
        self.failed.as_ref().map_or(Ok(()), Err)
    }

    /// By how many bytes the output grows at most, if the log is finished now.
    #[must_use]
    pub fn pending(&self) -> usize {
        // A head for each stream's block and for the end's, which holds the time and, for each
        // stream, its number and its records.
        self.buffered + self.streams.len() * (BLOCK_HEAD + 2 * UINT_MAX) + BLOCK_HEAD + UINT_MAX
    }

    /// The first error, if there was one; [`Writer::finish`] will return it.
    pub fn error(&self) -> Option<&WriteError> {
        self.failed.as_ref()
    }

    /// Ends the log: `end` is how far it reaches, at least the time of its last event.
    ///
    /// # Errors
    /// The first error of this log.
    pub fn finish(mut self, end: Time) -> Result<W, WriteError> {
        self.write_group();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let latest = self.streams.iter().map(|state| state.context.time).max();
        let end = end.as_ns().max(latest.unwrap_or(0));
        let totals = self.streams.iter().enumerate().map(|(i, state)| (i as u32, state.before));
        write_block(&mut self.out, BlockKind::End, &encode_end(end, totals), Place { base: end, ..Place::default() })?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: io::Write> Sink for Writer<W> {
    #[inline(always)]
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        let now = now.as_ns();
        if self.buffered < self.aim
            && let Some(state) = self.streams.get_mut(stream as usize)
            && state.records > 0
            && state.context.time <= now
            && let Some(length) = state.put(now, event)
        {
            // No more than all buffers have.
            self.buffered = self.buffered.wrapping_add(length);
        } else {
            self.put_prepared(stream, now, *event);
        }
    }

    /// An error is kept for [`Writer::finish`].
    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        let mut body = Vec::new();
        encode_definition(definition, &mut body);
        if body.len() > DEFINITION_MAX {
            self.fail(WriteError::TooLong { what: "a definition", bytes: body.len(), max: DEFINITION_MAX });
            return;
        }
        let now = now.as_ns();
        if let Some(state) = self.prepare(stream, now, body.len()) {
            let window = state.buffer[state.used..].first_chunk_mut().expect("room was made");
            let head = state.context.encode_definition(now, body.len(), window);
            state.buffer[state.used + head..][..body.len()].copy_from_slice(&body);
            let length = head + body.len();
            state.used += length;
            state.records += 1;
            self.buffered += length;
        }
    }
}

impl<W: io::Write> Writer<W> {
    /// Writes an event that needs some preparation first. Takes the event by value, so that the
    /// fast path need not keep it in memory.
    #[cold]
    #[inline(never)]
    fn put_prepared(&mut self, stream: u32, now: u64, event: Event) {
        if let Some(length) = self.prepare(stream, now, 0).and_then(|state| state.put(now, &event)) {
            self.buffered += length;
        }
    }

    /// The stream, with room for a record and `body` more bytes: writes a group that is due, checks
    /// the order, opens the stream, grows its buffer. `None` after an error.
    fn prepare(&mut self, stream: u32, now: u64, body: usize) -> Option<&mut Stream> {
        if self.failed.is_some() {
            return None;
        }
        if stream >= STREAMS_MAX {
            self.fail(WriteError::Stream { stream });
            return None;
        }
        let at = stream as usize;
        if self.streams.len() <= at {
            self.streams.resize_with(at + 1, Stream::default);
        }
        let last = self.streams[at].context.time;
        if now < last {
            self.fail(WriteError::Order { stream, now: Time::from_ns(now), last: Time::from_ns(last) });
            return None;
        }
        if !self.streams[at].is_open() {
            self.streams[at] = Stream::new(self.slots_log2);
            let open = self.streams.iter().filter(|state| state.is_open()).count();
            self.aim = BLOCK_AIM * open.min(GROUP_STREAMS_MAX);
        }
        let due = self.buffered >= self.aim && self.streams.iter().all(|state| state.context.time < now);
        let state = &self.streams[at];
        let need = state.used + body + WINDOW;
        let full = need > BLOCK_MAX || self.buffered >= GROUP_FULL;
        let fits = state.records > 0 && need <= state.buffer.len();
        if due || full && !fits {
            self.write_group();
        }
        let state = self.streams.get_mut(at)?;
        if state.records == 0 {
            state.base = now;
            state.context.reset(now);
        }
        let need = state.used + body + WINDOW;
        if need > state.buffer.len() {
            state.buffer.resize(need.max(2 * state.buffer.len()).min(BLOCK_MAX), 0);
        }
        Some(state)
    }

    /// Keeps the first error. The streams go, so that nothing more is taken.
    fn fail(&mut self, error: WriteError) {
        self.failed.get_or_insert(error);
        self.streams.clear();
        self.buffered = 0;
    }

    /// Writes all buffers as one group of blocks, in the order of their streams.
    fn write_group(&mut self) {
        let mut left = self.streams.iter().filter(|state| state.records > 0).count();
        let mut failure = None;
        for (stream, state) in self.streams.iter_mut().enumerate() {
            if state.records == 0 {
                continue;
            }
            left -= 1;
            let place = Place {
                left: left as u16,
                stream: stream as u32,
                records: state.records,
                first: state.before,
                base: state.base,
            };
            if let Err(error) = write_block(&mut self.out, BlockKind::Events, &state.buffer[..state.used], place) {
                failure = Some(error);
                break;
            }
            state.before += u64::from(state.records);
            state.records = 0;
            state.used = 0;
        }
        self.buffered = 0;
        if let Some(error) = failure {
            self.fail(error.into());
        }
    }
}

/// The part of a block's head that does not follow from its payload.
#[derive(Clone, Copy, Default)]
struct Place {
    left: u16,
    stream: u32,
    records: u32,
    first: u64,
    base: u64,
}

fn write_block(out: &mut impl io::Write, kind: BlockKind, payload: &[u8], place: Place) -> io::Result<()> {
    let head = BlockHead {
        kind: kind as u8,
        left: place.left,
        stream: place.stream,
        length: payload.len() as u32,
        records: place.records,
        first: place.first,
        base: place.base,
        payload_crc: crc32fast::hash(payload),
    };
    out.write_all(&head.encode())?;
    out.write_all(payload)
}

/// Enough slots to give tasks of one node, which are neighbours in the file, one each.
fn slots_log2(definitions: &Definitions) -> u8 {
    let mut counts = vec![0usize; definitions.nodes.len()];
    for task in &definitions.tasks {
        if let Some(count) = counts.get_mut(task.node.index()) {
            *count += 1;
        }
    }
    let most = counts.into_iter().max().unwrap_or(0).max(1);
    (most.next_power_of_two().trailing_zeros() as u8).clamp(*SLOTS_LOG2.start(), *SLOTS_LOG2.end())
}
