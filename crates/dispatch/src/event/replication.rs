//! A replication service on top of the channel, after [KOKYU II-A]. Values that operations write go
//! to other nodes, or to other operations of this one, at the end of their frame.
//!
//! An operation's deadline is the instant by which its values are to be flushed. A periodic
//! operation of the plan, with the frame's period, does the flush: its handler calls
//! [`Published::flush`]. The flush sends the values whose deadline is not after the flushing job's
//! arrival, the end of a frame. Later values wait for a later flush. A value that replaces a
//! waiting one takes over its deadline.
//!
//! A value written after its job's deadline is late: the next flush sends and counts it. A flush
//! that ends after its own deadline is counted as late too. Give the flush a short deadline.
//!
//! The payload of a flush's event starts with 8 bytes for the publisher's run and 8 bytes for the
//! flush's number. Each value follows with its index (2 bytes), its length (2), its version (8),
//! and its bytes. The version counts the writes. Numbers are big-endian.

use std::sync::Arc;

use takt_linux::{PiMutex, clock};
use takt_model::{Span, Time};
use thiserror::Error;

use super::channel::{Channel, Supplier};
use super::consumers::Pushed;
use super::delivery::Delivery;
use super::error::{EventError, OptionsError};
use crate::Job;

/// Bytes before the first value of an event.
const HEAD: usize = 16;
/// Bytes before each value.
const ROW: usize = 12;
/// Values of one publisher.
const VALUES_MAX: usize = 1 << 16;
/// After this time without a flush of the known run, a replica accepts an earlier run: the
/// publisher's clock was set back.
const SILENCE: Span = Span::from_s(2);

/// Why values are not replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// A value of this size does not fit into an event.
    #[error(
        "value {value} has up to {size} bytes, and an event of this channel has room for {most} (Options::payload_max)"
    )]
    Size {
        /// The value's index.
        value: usize,
        /// The value's size in bytes.
        size: usize,
        /// The room in an event.
        most: usize,
    },
    /// The channel's options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Too many values.
    #[error("{0} values; a publisher has {VALUES_MAX} at most")]
    TooMany(usize),
    /// Even the smallest value does not fit into an event.
    #[error(
        "an event of this channel has room for {0} bytes, and a value needs {least} besides its own \
         (Options::payload_max)",
        least = HEAD + ROW
    )]
    NoRoom(usize),
    /// The index is out of range.
    #[error("there is no value {value}; there are {there}, counted from 0")]
    Unknown {
        /// The index.
        value: usize,
        /// The number of values.
        there: usize,
    },
    /// More bytes than the value can have.
    #[error("value {value} has {length} bytes now, and can have {most}")]
    TooLong {
        /// The value's index.
        value: usize,
        /// The number of bytes.
        length: usize,
        /// The value's size.
        most: usize,
    },
    /// The channel refused the event.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// Counters of a publisher. `written` = `flushed` + `replaced` + waiting values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flushes {
    /// Values written.
    pub written: u64,
    /// Values written after their job's deadline. They missed their flush.
    pub late: u64,
    /// Values replaced before they were first sent.
    pub replaced: u64,
    /// Values sent, each counted once.
    pub flushed: u64,
    /// Values sent again, because no receiver got them or by [`Published::refresh`].
    pub repeated: u64,
    /// Events sent with values.
    pub events: u64,
    /// Events that some consumer or peer did not get for lack of room, as far as the push could
    /// tell.
    pub missed: u64,
    /// Flushes, with values or without.
    pub flushes: u64,
    /// Flushes that ended after the flushing job's deadline.
    pub late_flushes: u64,
}

/// When a value is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendTime {
    /// Not: it has been sent.
    No,
    /// For the first time, by a flush at or after this time of CLOCK_MONOTONIC. The times of a
    /// dispatcher would not do, because the channel may be connected to another one meanwhile.
    At(Time),
    /// Again, by any flush.
    Again,
}

/// A value on the publisher's side.
struct Row {
    bytes: Box<[u8]>,
    length: usize,
    /// The number of writes.
    version: u64,
    due: SendTime,
    /// Whether it had been sent before its last packet.
    was_sent: bool,
}

/// Values that operations of this process write. Clones share them.
///
/// ```no_run
/// use takt_model::{Builtin, Span};
/// use takt_dispatch::{Dispatcher, Limits, Operation, Operations};
/// use takt_dispatch::event::{Channel, Options, Published};
///
/// const VALUES: u32 = 9;
/// let (frame, ms) = (Span::from_ms(50), Span::from_ms);
/// let operations = Operations::new("mission")
///     .with(Operation::periodic("flush", frame).wcet(ms(1)).deadline(ms(3)))
///     .with(Operation::periodic("steer", frame).wcet(ms(5)));
/// let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default())?;
/// let channel = Channel::new(Options::default());
/// // Two values of 8 bytes each.
/// let values = Published::new(&channel, 1, VALUES, &[8, 8])?;
/// let (written, flushed) = (values.clone(), values.clone());
/// let dispatching = Dispatcher::new(plan)
///     .on("steer", move |job| drop(written.write(0, &7_u64.to_be_bytes(), job)))?
///     // What steer wrote in a frame is sent when the next one begins; it is of use for a frame.
///     .on("flush", move |job| drop(flushed.flush(frame, job)))?
///     .start()?;
/// let connected = channel.connect(&dispatching)?;
/// # drop(connected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Published {
    inner: Arc<Publishing>,
}

struct Publishing {
    supplier: Supplier,
    kind: u32,
    run: u64,
    sizes: Vec<usize>,
    payload_max: usize,
    /// The lock of the values. Writers and flushes hold it for moments.
    rows: PiMutex<Rows>,
    /// The lock of flushes: one at a time.
    packet: PiMutex<Packet>,
}

struct Rows {
    rows: Vec<Row>,
    counts: Flushes,
}

/// An event's payload under construction.
struct Packet {
    /// The number of the flush.
    number: u64,
    bytes: Box<[u8]>,
    end: usize,
    /// The first value of the next packet. It moves on, so that each value gets its turn if room is
    /// short.
    begin: usize,
}

impl Published {
    /// Creates one value for each of `sizes`, its largest size in bytes. The values go out as
    /// events of this source and type. No other supplier may use that pair.
    ///
    /// # Errors
    /// A value does not fit into an event, there are too many values, or the channel's options are
    /// invalid.
    pub fn new(channel: &Channel, source: u32, kind: u32, sizes: &[usize]) -> Result<Published, ReplicationError> {
        channel.options().check()?;
        let payload_max = channel.payload_max();
        let most = payload_max.checked_sub(HEAD + ROW).ok_or(ReplicationError::NoRoom(payload_max))?;
        let most = most.min(usize::from(u16::MAX));
        if sizes.len() > VALUES_MAX {
            return Err(ReplicationError::TooMany(sizes.len()));
        }
        if let Some((value, size)) = sizes.iter().enumerate().find(|(_, size)| **size > most) {
            return Err(ReplicationError::Size { value, size: *size, most });
        }
        let row = |size: &usize| Row {
            bytes: vec![0; *size].into(),
            length: 0,
            version: 0,
            due: SendTime::No,
            was_sent: false,
        };
        let inner = Publishing {
            supplier: channel.supplier(source),
            kind,
            run: clock::realtime_ns(),
            sizes: sizes.to_vec(),
            payload_max,
            rows: PiMutex::new(Rows { rows: sizes.iter().map(row).collect(), counts: Flushes::default() }),
            packet: PiMutex::new(Packet { number: 0, bytes: vec![0; payload_max].into(), end: 0, begin: 0 }),
        };
        Ok(Published { inner: Arc::new(inner) })
    }

    /// The most events of a flush. A consumer of them needs this backlog, with the shortest
    /// possible least distance.
    #[must_use]
    pub fn events_max(&self) -> usize {
        // A value that does not fit behind others leaves less room unused than its own size. So two
        // neighbouring events never fit into one.
        let all: usize = self.inner.sizes.iter().map(|size| size + ROW).sum();
        (2 * all).div_ceil((self.inner.payload_max - HEAD).max(1)).clamp(1, self.inner.sizes.len().max(1))
    }

    /// Writes a value in an operation's job, for the flush at the job's deadline. Returns whether
    /// it is in time.
    ///
    /// # Errors
    /// The index is out of range, or there are too many bytes.
    pub fn write(&self, value: usize, bytes: &[u8], job: &Job<'_>) -> Result<bool, ReplicationError> {
        self.put(value, bytes, job.monotonic(job.deadline()), || job.monotonic(job.now()))
    }

    fn put(
        &self,
        value: usize,
        bytes: &[u8],
        deadline: Time,
        now: impl Fn() -> Time,
    ) -> Result<bool, ReplicationError> {
        let mut rows = self.inner.rows.lock();
        let Rows { rows, counts } = &mut *rows;
        let there = rows.len();
        let row = rows.get_mut(value).ok_or(ReplicationError::Unknown { value, there })?;
        let (length, most) = (bytes.len(), row.bytes.len());
        let to = row.bytes.get_mut(..length).ok_or(ReplicationError::TooLong { value, length, most })?;
        to.copy_from_slice(bytes);
        // A flush finds the value from here on.
        let in_time = now() <= deadline;
        row.length = length;
        row.version += 1;
        counts.written += 1;
        counts.late += u64::from(!in_time);
        counts.replaced += u64::from(matches!(row.due, SendTime::At(_)));
        // The value takes over the deadline of a waiting one. Otherwise an operation that writes
        // more often than flushes come would never be sent.
        row.due = match row.due {
            SendTime::At(before) => SendTime::At(before.min(deadline)),
            SendTime::No | SendTime::Again => SendTime::At(deadline),
        };
        Ok(in_time)
    }

    /// Sends all values that are due at this job's arrival, in as few events as possible, with the
    /// time to live `ttl`. Returns the number of values. Use one flushing operation: concurrent
    /// flushes wait for each other. A flush that sends with
    /// [`Sending::Patient`](super::Sending::Patient) waits for the network.
    ///
    /// # Errors
    /// The channel is not connected, or refuses events of that type. The next flush sends the
    /// remaining values.
    pub fn flush(&self, ttl: Span, job: &Job<'_>) -> Result<usize, ReplicationError> {
        let inner = &*self.inner;
        let sent = self.send(job.monotonic(job.arrival()), |bytes| inner.supplier.push_for(inner.kind, bytes, ttl));
        let late = job.now() > job.deadline();
        inner.rows.lock().counts.late_flushes += u64::from(late);
        sent
    }

    fn send(
        &self,
        boundary: Time,
        mut push: impl FnMut(&[u8]) -> Result<Pushed, EventError>,
    ) -> Result<usize, ReplicationError> {
        let mut packet = self.inner.packet.lock();
        packet.number += 1;
        let values = self.inner.sizes.len();
        self.inner.rows.lock().counts.flushes += 1;
        let (mut looked, mut sent) = (0, 0);
        while looked < values {
            let begin = packet.begin;
            let (first, again, step) = self.fill(&mut packet, boundary, begin, values - looked);
            if first + again == 0 {
                break;
            }
            let bytes = packet.bytes.get(..packet.end).unwrap_or_default();
            let pushed = push(bytes);
            let reached = pushed.is_ok_and(|pushed| pushed.taken + pushed.kept + pushed.sent > 0);
            let counts = &mut *self.inner.rows.lock();
            if reached {
                counts.counts.events += 1;
                counts.counts.flushed += first;
                counts.counts.repeated += again;
                counts.counts.missed += u64::from(pushed.is_ok_and(|pushed| pushed.rejected + pushed.unsent > 0));
                sent += first + again;
            } else {
                walk(bytes, |entry| counts.keep(&entry, boundary));
            }
            pushed?;
            looked += step;
            packet.begin = (begin + step) % values;
        }
        Ok(sent as usize)
    }

    /// Puts due values into a packet, from value `begin` on. Returns the number of first sends, of
    /// repeated sends, and of values examined.
    fn fill(&self, packet: &mut Packet, boundary: Time, begin: usize, most: usize) -> (u64, u64, usize) {
        let head = self.inner.run.to_be_bytes().into_iter().chain(packet.number.to_be_bytes());
        for (to, from) in packet.bytes.iter_mut().zip(head) {
            *to = from;
        }
        packet.end = HEAD;
        let (mut first, mut again) = (0, 0);
        let mut rows = self.inner.rows.lock();
        let values = rows.rows.len();
        for step in 0..most {
            let value = (begin + step) % values;
            let Some(row) = rows.rows.get_mut(value) else { continue };
            let counter = match row.due {
                SendTime::At(due) if due <= boundary => &mut first,
                SendTime::Again => &mut again,
                SendTime::At(_) | SendTime::No => continue,
            };
            let bytes = row.bytes.get(..row.length).unwrap_or_default();
            let entry = Entry { value, version: row.version, bytes };
            let Some(end) = entry.write(&mut packet.bytes, packet.end) else { return (first, again, step) };
            packet.end = end;
            row.was_sent = row.due == SendTime::Again;
            row.due = SendTime::No;
            *counter += 1;
        }
        (first, again, most)
    }

    /// Marks all sent values to be sent again with the next flush, for a peer that is new or has
    /// lost some.
    pub fn refresh(&self) {
        for row in &mut self.inner.rows.lock().rows {
            if row.version > 0 && row.due == SendTime::No {
                row.due = SendTime::Again;
            }
        }
    }

    /// The publisher's counters.
    #[must_use]
    pub fn counts(&self) -> Flushes {
        self.inner.rows.lock().counts
    }
}

impl Rows {
    /// No receiver got the value. It stays to be sent, unless a newer value replaced it.
    fn keep(&mut self, entry: &Entry<'_>, boundary: Time) {
        let Some(row) = self.rows.get_mut(entry.value) else { return };
        if row.version == entry.version {
            row.due = if row.was_sent { SendTime::Again } else { SendTime::At(boundary) };
        } else {
            self.counts.replaced += u64::from(!row.was_sent);
        }
    }
}

/// A value in an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Its index.
    pub value: usize,
    /// The number of writes.
    pub version: u64,
    /// The value's bytes.
    pub bytes: &'a [u8],
}

impl Entry<'_> {
    /// Writes the entry at `at` and returns its end; `None` without room.
    fn write(&self, into: &mut [u8], at: usize) -> Option<usize> {
        let (value, length) = (u16::try_from(self.value).ok()?, u16::try_from(self.bytes.len()).ok()?);
        let end = at + ROW + self.bytes.len();
        let fields = value.to_be_bytes().into_iter().chain(length.to_be_bytes()).chain(self.version.to_be_bytes());
        for (to, from) in into.get_mut(at..end)?.iter_mut().zip(fields.chain(self.bytes.iter().copied())) {
            *to = from;
        }
        Some(end)
    }
}

/// The values in the payload of a flush's event; `None` if the payload is malformed.
pub fn entries(payload: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut all = Vec::new();
    walk(payload, |entry| all.push(entry)).then_some(all)
}

/// Shows the values of a payload in turn. Returns whether the payload is well formed. Values before
/// a fault are shown.
fn walk<'a>(payload: &'a [u8], mut show: impl FnMut(Entry<'a>)) -> bool {
    let Some(mut rest) = payload.get(HEAD..) else { return false };
    while !rest.is_empty() {
        let Some((head, more)) = rest.split_first_chunk::<ROW>() else { return false };
        let [v0, v1, l0, l1, version @ ..] = *head;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let Some((bytes, more)) = more.split_at_checked(length) else { return false };
        let value = usize::from(u16::from_be_bytes([v0, v1]));
        show(Entry { value, version: u64::from_be_bytes(version), bytes });
        rest = more;
    }
    true
}

/// Counters of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Applied {
    /// Values applied.
    pub applied: u64,
    /// Values known already, older than the known ones, or of a former run.
    pub old: u64,
    /// Events of the publisher's source and type that are malformed or hold values of other sizes.
    pub malformed: u64,
}

/// The known state of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaValue<'a> {
    /// The value's bytes.
    pub bytes: &'a [u8],
    /// The number of writes in the publisher's run.
    pub version: u64,
    /// When the value arrived here.
    pub came: Time,
}

/// A local copy of a publisher's values. Clones share it.
#[derive(Clone)]
pub struct Replica {
    source: u32,
    kind: u32,
    values: Arc<PiMutex<Values>>,
}

/// The values of a replica, under its lock.
pub struct Values {
    /// The publisher's run, and when it was last heard, by CLOCK_MONOTONIC.
    run: u64,
    heard: Time,
    copies: Vec<ReplicatedValue>,
    counts: Applied,
}

/// A value on the replica's side.
struct ReplicatedValue {
    bytes: Box<[u8]>,
    length: usize,
    /// The version in the known run; zero if there is none yet.
    version: u64,
    known: Option<(u64, Time)>,
}

impl Replica {
    /// A replica of the publisher with this source, type and sizes.
    #[must_use]
    pub fn new(source: u32, kind: u32, sizes: &[usize]) -> Replica {
        let copy = |size: &usize| ReplicatedValue { bytes: vec![0; *size].into(), length: 0, version: 0, known: None };
        let copies = sizes.iter().map(copy).collect();
        let values = Values { run: 0, heard: Time::ZERO, copies, counts: Applied::default() };
        Replica { source, kind, values: Arc::new(PiMutex::new(values)) }
    }

    /// Applies the values of a flush's event and ignores other events. Call it from the handler of
    /// the subscribed operation.
    pub fn apply(&self, delivery: &Delivery<'_>, job: &Job<'_>) {
        for event in delivery.events() {
            self.take(event.head.source, event.head.kind, event.payload, job);
        }
    }

    /// As [`Replica::apply`] for one event without a delivery. It ignores events of other sources
    /// or types.
    pub fn take(&self, source: u32, kind: u32, payload: &[u8], job: &Job<'_>) {
        let now = job.now();
        self.take_at(source, kind, payload, now, job.monotonic(now));
    }

    /// As [`Replica::take`] outside a job. `came` becomes [`ReplicaValue::came`]. `heard` is the time by
    /// CLOCK_MONOTONIC, or by another clock that all connections share. It measures the publisher's
    /// silence.
    pub fn take_at(&self, source: u32, kind: u32, payload: &[u8], came: Time, heard: Time) {
        if (source, kind) == (self.source, self.kind) {
            self.values.lock().take(payload, came, heard);
        }
    }

    /// Reads the values, all as of the same event.
    ///
    /// The call holds the replica's lock with priority inheritance, so keep it brief. Using the
    /// same replica inside would deadlock.
    pub fn view<R>(&self, look: impl FnOnce(&Values) -> R) -> R {
        look(&self.values.lock())
    }

    /// The replica's counters.
    #[must_use]
    pub fn counts(&self) -> Applied {
        self.values.lock().counts
    }
}

impl Values {
    /// A value, if one has arrived.
    #[must_use]
    pub fn get(&self, value: usize) -> Option<ReplicaValue<'_>> {
        let copy = self.copies.get(value)?;
        let (version, came) = copy.known?;
        Some(ReplicaValue { bytes: copy.bytes.get(..copy.length)?, version, came })
    }

    /// `came` is by the reader's clock, `heard` by CLOCK_MONOTONIC.
    fn take(&mut self, payload: &[u8], came: Time, heard: Time) {
        let fits =
            |entry: &Entry<'_>| self.copies.get(entry.value).is_some_and(|copy| entry.bytes.len() <= copy.bytes.len());
        let (mut all_fit, mut values) = (true, 0);
        let whole = walk(payload, |entry| {
            all_fit &= fits(&entry);
            values += 1;
        });
        if !whole || !all_fit || values == 0 {
            self.counts.malformed += 1;
            return;
        }
        let run = payload.first_chunk::<8>().map_or(0, |run| u64::from_be_bytes(*run));
        if run < self.run && self.heard.saturating_add(SILENCE) >= heard {
            self.counts.old += values;
            return;
        }
        self.heard = heard;
        if run != self.run {
            // A new run of the publisher counts from one again.
            self.run = run;
            self.copies.iter_mut().for_each(|copy| copy.version = 0);
        }
        walk(payload, |entry| {
            let Some(copy) = self.copies.get_mut(entry.value).filter(|copy| entry.version > copy.version) else {
                self.counts.old += 1;
                return;
            };
            if let Some(to) = copy.bytes.get_mut(..entry.bytes.len()) {
                to.copy_from_slice(entry.bytes);
            }
            copy.length = entry.bytes.len();
            (copy.version, copy.known) = (entry.version, Some((entry.version, came)));
            self.counts.applied += 1;
        });
    }
}

#[cfg(test)]
#[path = "replication_tests.rs"]
mod tests;
