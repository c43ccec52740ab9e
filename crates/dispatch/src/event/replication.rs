//! A replication service on top of the channel, after [KOKYU II-A]: values that operations write go to other nodes (or to other operations of this one) when
//! their frame ends.
//!
//! An operation's deadline is the instant by which its values are to be flushed. What flushes is an operation of the plan like others, periodic with the frame's period: its handler calls
//! [`Published::flush`], which sends the values whose deadline is not after the flushing job's arrival, the end of a frame. Values of jobs that still have time wait for the flush at their own deadline; one that
//! takes the place of one that waits goes when that one should have. A value that is written after its job's deadline is late: it goes with the next flush, and is counted; and so is a flush that ends after its own deadline, which is to be a short one.
//!
//! An event of a flush has the payload: 8 bytes that tell runs of the publisher apart, 8 with the flush's number, then, for each value, its index (2), its length (2),
//! how often it was written (8), and its bytes. Numbers are big-endian.

use std::sync::Arc;

use takt_linux::{PiMutex, clock};
use takt_model::{Span, Time};
use thiserror::Error;

use super::channel::{Channel, Pushed, Supplier};
use super::error::{EventError, OptionsError};
use super::inbox::Delivery;
use crate::Job;

/// Bytes before the first value of an event.
const HEAD: usize = 16;
/// Bytes before each value.
const ROW: usize = 12;
/// Values of one publisher.
const VALUES_MAX: usize = 1 << 16;
/// After so long without a flush of the run that it knows, a replica believes an earlier one: the publisher's clock was set back.
const SILENCE: Span = Span::from_s(2);

/// Why values are not replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// A value of that many bytes, and what is told of it, fit into no event.
    #[error(
        "value {value} has up to {size} bytes, and an event of this channel has room for {most} (Options::payload_max)"
    )]
    Size {
        /// Its index.
        value: usize,
        /// Its size.
        size: usize,
        /// What there is room for.
        most: usize,
    },
    /// The channel cannot have so much room.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Too many values.
    #[error("{0} values; a publisher has {VALUES_MAX} at most")]
    TooMany(usize),
    /// Not even the smallest value fits into an event.
    #[error("an event of this channel has room for {0} bytes, and a value needs {least} besides its own (Options::payload_max)", least = HEAD + ROW)]
    NoRoom(usize),
    /// No such value.
    #[error("there is no value {value}; there are {there}, counted from 0")]
    Unknown {
        /// Which was asked for.
        value: usize,
        /// How many there are.
        there: usize,
    },
    /// More bytes than the value can have.
    #[error("value {value} has {length} bytes now, and can have {most}")]
    TooLong {
        /// Its index.
        value: usize,
        /// How many bytes.
        length: usize,
        /// How many it can have.
        most: usize,
    },
    /// The event was refused.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// What a publisher has counted. `written` = `flushed` + `replaced` + what waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flushes {
    /// Values written.
    pub written: u64,
    /// Of these, those written after their job's deadline: they missed the flush that they were for.
    pub late: u64,
    /// Values that another one followed before they were sent for the first time.
    pub replaced: u64,
    /// Values sent, each counted once.
    pub flushed: u64,
    /// Values sent again: for want of somebody who got them, or by [`Published::refresh`].
    pub repeated: u64,
    /// Events that they were sent in.
    pub events: u64,
    /// Of these, those that a consumer or a peer did not get for want of room, as far as the push could tell.
    pub missed: u64,
    /// Flushes, with values or without.
    pub flushes: u64,
    /// Of these, those that ended after the flushing job's deadline.
    pub late_flushes: u64,
}

/// Whether a value is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// It has been.
    No,
    /// For the first time, by a flush at or after this, of CLOCK_MONOTONIC: the channel may be connected to another dispatcher meanwhile, whose times
    /// are from another zero.
    At(Time),
    /// Again, by any flush.
    Again,
}

/// A value where it is written.
struct Row {
    bytes: Box<[u8]>,
    length: usize,
    /// How often it was written.
    version: u64,
    due: Due,
    /// Whether it had been sent when it was put into an event last.
    was_sent: bool,
}

/// Values that operations of this process write. A copy is the same one.
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
    /// Of the values, which are few and short: writers and flushes are in it for moments.
    rows: PiMutex<Rows>,
    /// Of the flush: one at a time.
    packet: PiMutex<Packet>,
}

struct Rows {
    rows: Vec<Row>,
    counts: Flushes,
}

/// An event's payload while it is put together.
struct Packet {
    /// Of the flush.
    number: u64,
    bytes: Box<[u8]>,
    end: usize,
    /// Where the next flush begins: so that, should there be room for some events only, each value has its turn.
    begin: usize,
}

impl Published {
    /// One value for each of `sizes`, the most bytes that it can have. They go as events of this source and type, which nobody else is to supply.
    ///
    /// # Errors
    /// A value that fits into no event, or too many; or the channel's options are too much.
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
        let row =
            |size: &usize| Row { bytes: vec![0; *size].into(), length: 0, version: 0, due: Due::No, was_sent: false };
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

    /// The most events that a flush takes: the backlog that a consumer of them needs, its least distance being as short as can be.
    #[must_use]
    pub fn events_max(&self) -> usize {
        // A value that does not fit behind others leaves less room unused than it takes itself: no two neighbouring events fit into one.
        let all: usize = self.inner.sizes.iter().map(|size| size + ROW).sum();
        (2 * all).div_ceil((self.inner.payload_max - HEAD).max(1)).clamp(1, self.inner.sizes.len().max(1))
    }

    /// An operation's job writes a value, to be sent by the flush at the job's deadline. Whether it is in time for that.
    ///
    /// # Errors
    /// There is no such value, or it cannot have so many bytes.
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
        // From here on a flush finds it.
        let in_time = now() <= deadline;
        row.length = length;
        row.version += 1;
        counts.written += 1;
        counts.late += u64::from(!in_time);
        counts.replaced += u64::from(matches!(row.due, Due::At(_)));
        // In the place of one that waits it goes when that one should have: or an operation that writes more often than flushes come would never be heard.
        row.due = match row.due {
            Due::At(before) => Due::At(before.min(deadline)),
            Due::No | Due::Again => Due::At(deadline),
        };
        Ok(in_time)
    }

    /// Sends all values that are due at this job's arrival, in as few events as they fit into; they are of use for `ttl`. How many there were. For one operation: two that flush at a
    /// time wait for each other, and one that sends with [`Sending::Patient`](super::Sending::Patient) waits for the network.
    ///
    /// # Errors
    /// The channel is not connected, or does not take events of that type. Values that were not sent go with the next flush.
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

    /// Puts values that are due into a packet, this one first: how many for the first time and how many again, and how many were looked at.
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
                Due::At(due) if due <= boundary => &mut first,
                Due::Again => &mut again,
                Due::At(_) | Due::No => continue,
            };
            let bytes = row.bytes.get(..row.length).unwrap_or_default();
            let entry = Entry { value, version: row.version, bytes };
            let Some(end) = entry.write(&mut packet.bytes, packet.end) else { return (first, again, step) };
            packet.end = end;
            row.was_sent = row.due == Due::Again;
            row.due = Due::No;
            *counter += 1;
        }
        (first, again, most)
    }

    /// All values that were ever sent go with the next flush again: for a peer that is new, or that lost some.
    pub fn refresh(&self) {
        for row in &mut self.inner.rows.lock().rows {
            if row.version > 0 && row.due == Due::No {
                row.due = Due::Again;
            }
        }
    }

    /// What was written and sent.
    #[must_use]
    pub fn counts(&self) -> Flushes {
        self.inner.rows.lock().counts
    }
}

impl Rows {
    /// Nobody got a value: it is to be sent still, unless another one has taken its place.
    fn keep(&mut self, entry: &Entry<'_>, boundary: Time) {
        let Some(row) = self.rows.get_mut(entry.value) else { return };
        if row.version == entry.version {
            row.due = if row.was_sent { Due::Again } else { Due::At(boundary) };
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
    /// How often it was written.
    pub version: u64,
    /// It.
    pub bytes: &'a [u8],
}

impl Entry<'_> {
    /// Writes it there; where it ends. `None` where there is no room.
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

/// The values in the payload of a flush's event, if it is one whole.
pub fn entries(payload: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut all = Vec::new();
    walk(payload, |entry| all.push(entry)).then_some(all)
}

/// Shows the values of a payload in turn; whether it is one whole. What is wrong is only seen when it comes.
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

/// What a replica has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Applied {
    /// Values that it took.
    pub applied: u64,
    /// Values that it had already, or newer ones of, or of a former run.
    pub old: u64,
    /// Events of its publisher's source and type that are none of a flush, or of other values than these.
    pub malformed: u64,
}

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<'a> {
    /// It.
    pub bytes: &'a [u8],
    /// How often it was written where it comes from, in that run.
    pub version: u64,
    /// When it came here.
    pub came: Time,
}

/// Values of a publisher as they are known here. A copy is the same one.
#[derive(Clone)]
pub struct Replica {
    source: u32,
    kind: u32,
    values: Arc<PiMutex<Values>>,
}

/// The values of a replica while nobody changes them.
pub struct Values {
    /// Of the publisher, and when something of it came, by CLOCK_MONOTONIC.
    run: u64,
    heard: Time,
    copies: Vec<Kept>,
    counts: Applied,
}

/// A value where it is read.
struct Kept {
    bytes: Box<[u8]>,
    length: usize,
    /// In the run that is known; zero: not yet.
    version: u64,
    known: Option<(u64, Time)>,
}

impl Replica {
    /// Of the publisher with this source, type and sizes.
    #[must_use]
    pub fn new(source: u32, kind: u32, sizes: &[usize]) -> Replica {
        let copy = |size: &usize| Kept { bytes: vec![0; *size].into(), length: 0, version: 0, known: None };
        let copies = sizes.iter().map(copy).collect();
        let values = Values { run: 0, heard: Time::ZERO, copies, counts: Applied::default() };
        Replica { source, kind, values: Arc::new(PiMutex::new(values)) }
    }

    /// Takes the values of a flush's event, and leaves other events: from the handler of the operation that subscribed to them.
    pub fn apply(&self, delivery: &Delivery<'_>, job: &Job<'_>) {
        for event in delivery.events() {
            self.take(event.head.source, event.head.kind, event.payload, job);
        }
    }

    /// The same of one event, where there is no delivery: if it is of the publisher's source and type.
    pub fn take(&self, source: u32, kind: u32, payload: &[u8], job: &Job<'_>) {
        let now = job.now();
        self.take_at(source, kind, payload, now, job.monotonic(now));
    }

    /// The same outside of a job: `came` is what [`Known::came`] will say, and `heard` the time by CLOCK_MONOTONIC, or by another clock that goes on whatever is connected, for the publisher's
    /// silences.
    pub fn take_at(&self, source: u32, kind: u32, payload: &[u8], came: Time, heard: Time) {
        if (source, kind) == (self.source, self.kind) {
            self.values.lock().take(payload, came, heard);
        }
    }

    /// Looks at values, all as they were after the same event.
    ///
    /// It holds the replica's lock with priority inheritance meanwhile: it should be brief, and must not use the same replica, which would wait for itself.
    pub fn view<R>(&self, look: impl FnOnce(&Values) -> R) -> R {
        look(&self.values.lock())
    }

    /// What it took.
    #[must_use]
    pub fn counts(&self) -> Applied {
        self.values.lock().counts
    }
}

impl Values {
    /// A value, if it has come.
    #[must_use]
    pub fn get(&self, value: usize) -> Option<Known<'_>> {
        let copy = self.copies.get(value)?;
        let (version, came) = copy.known?;
        Some(Known { bytes: copy.bytes.get(..copy.length)?, version, came })
    }

    /// `came` is by the clock of who reads it, `heard` by CLOCK_MONOTONIC.
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
            // The publisher began anew, and counts from one again.
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
