//! A replication service on top of the channel, after [KOKYU II-A]: values that operations write go to other nodes (or to other operations of this one) at the
//! end of a frame, all that were written in it together.
//!
//! An operation's deadline is the instant at which its values are flushed. A value that is written later is late: it goes with the next flush, and is counted.
//! What flushes is an operation of the plan like others, with the period of the frame: its handler calls [`Published::flush`].
//!
//! An event of a flush has the payload: 8 bytes that tell runs of the publisher apart, 8 with the flush's number, then, for each value, its index (2), its length (2),
//! how often it was written (8), and its bytes. Numbers are big-endian.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_linux::{PiMutex, clock};
use takt_model::{Span, Time};
use thiserror::Error;

use super::channel::{Channel, Supplier};
use super::error::EventError;
use super::inbox::Delivery;
use crate::dispatch::Job;

/// Bytes before the first value of an event.
const HEAD: usize = 16;
/// Bytes before each value.
const ROW: usize = 12;
/// Values of one publisher.
const VALUES_MAX: usize = 1 << 16;

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
    /// Too many values.
    #[error("{0} values; a publisher has {VALUES_MAX} at most")]
    TooMany(usize),
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

/// What a publisher has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flushes {
    /// Values written.
    pub written: u64,
    /// Of these, those written after their job's deadline: they missed the flush that they were for.
    pub late: u64,
    /// Of these, those that another one followed before any flush; only that one was sent.
    pub replaced: u64,
    /// Values sent.
    pub flushed: u64,
    /// Events that they were sent in.
    pub events: u64,
    /// Flushes, with values or without.
    pub flushes: u64,
    /// Of these, those that ended after the flushing job's deadline.
    pub late_flushes: u64,
    /// Of `events`, those that a consumer or a peer did not get, for want of room: their values go with the next flush again.
    pub missed: u64,
}

#[derive(Default)]
struct Tally {
    written: AtomicU64,
    late: AtomicU64,
    replaced: AtomicU64,
    flushed: AtomicU64,
    events: AtomicU64,
    flushes: AtomicU64,
    late_flushes: AtomicU64,
    missed: AtomicU64,
}

/// A value, where it is written or where it is read.
struct Value {
    bytes: Box<[u8]>,
    length: usize,
    /// How often it was written; zero: never.
    version: u64,
    /// Where it is written: whether it is to be sent.
    fresh: bool,
    /// Where it is read: when it came.
    came: Time,
}

fn room(size: usize) -> PiMutex<Value> {
    let bytes = vec![0; size].into_boxed_slice();
    PiMutex::new(Value { bytes, length: 0, version: 0, fresh: false, came: Time::ZERO })
}

impl Value {
    fn set(&mut self, bytes: &[u8]) -> bool {
        let Some(to) = self.bytes.get_mut(..bytes.len()) else { return false };
        to.copy_from_slice(bytes);
        self.length = bytes.len();
        true
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Values that operations of this process write. A copy is the same one.
///
/// ```no_run
/// use takt_model::{Builtin, Span};
/// use takt_run::dispatch::{Dispatcher, Limits, Operation, Operations};
/// use takt_run::event::{Channel, Options, Published};
///
/// const VALUES: u32 = 9;
/// let frame = Span::from_ms(50);
/// let operations = Operations::new("mission")
///     .with(Operation::periodic("steer", frame).wcet(Span::from_ms(5)))
///     .with(Operation::periodic("flush", frame).wcet(Span::from_ms(1)));
/// let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?;
/// let channel = Channel::new(Options::default());
/// // Two values of 8 bytes each.
/// let values = Published::new(&channel, 1, VALUES, &[8, 8])?;
/// let (written, flushed) = (values.clone(), values.clone());
/// let dispatching = Dispatcher::new(plan)
///     .on("steer", move |job| drop(written.write(0, &7_u64.to_be_bytes(), job)))?
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
    values: Vec<PiMutex<Value>>,
    packet: PiMutex<Packet>,
    tally: Tally,
}

/// An event's payload while it is put together.
struct Packet {
    /// Of the flush.
    number: u64,
    bytes: Box<[u8]>,
    end: usize,
}

fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::Relaxed);
}

impl Published {
    /// One value for each of `sizes`, the most bytes that it can have. They go as events of this source and type.
    ///
    /// # Errors
    /// A value that fits into no event, or too many.
    pub fn new(channel: &Channel, source: u32, kind: u32, sizes: &[usize]) -> Result<Published, ReplicationError> {
        let payload_max = channel.payload_max();
        let most = payload_max.saturating_sub(HEAD + ROW).min(usize::from(u16::MAX));
        if sizes.len() > VALUES_MAX {
            return Err(ReplicationError::TooMany(sizes.len()));
        }
        if let Some((value, size)) = sizes.iter().enumerate().find(|(_, size)| **size > most) {
            return Err(ReplicationError::Size { value, size: *size, most });
        }
        let inner = Publishing {
            supplier: channel.supplier(source),
            kind,
            run: clock::realtime_ns(),
            values: sizes.iter().copied().map(room).collect(),
            packet: PiMutex::new(Packet { number: 0, bytes: vec![0; payload_max].into_boxed_slice(), end: 0 }),
            tally: Tally::default(),
        };
        Ok(Published { inner: Arc::new(inner) })
    }

    /// An operation's job writes a value, which goes with the next flush; whether it is in time for the job's deadline.
    ///
    /// # Errors
    /// There is no such value, or it cannot have so many bytes.
    pub fn write(&self, value: usize, bytes: &[u8], job: &Job<'_>) -> Result<bool, ReplicationError> {
        let in_time = job.now() <= job.deadline();
        self.put(value, bytes)?;
        if !in_time {
            count(&self.inner.tally.late);
        }
        Ok(in_time)
    }

    fn put(&self, value: usize, bytes: &[u8]) -> Result<(), ReplicationError> {
        let inner = &*self.inner;
        let there = inner.values.len();
        let mut row = inner.values.get(value).ok_or(ReplicationError::Unknown { value, there })?.lock();
        if !row.set(bytes) {
            let (length, most) = (bytes.len(), row.bytes.len());
            return Err(ReplicationError::TooLong { value, length, most });
        }
        row.version += 1;
        count(&inner.tally.written);
        if std::mem::replace(&mut row.fresh, true) {
            count(&inner.tally.replaced);
        }
        Ok(())
    }

    /// Sends all values that were written since the last flush, in as few events as they fit into; they are of use for `ttl`. How many there were.
    ///
    /// # Errors
    /// The channel is not connected, or does not take events of that type. Values that were not sent go with the next flush.
    pub fn flush(&self, ttl: Span, job: &Job<'_>) -> Result<usize, ReplicationError> {
        let sent = self.send(ttl);
        if job.now() > job.deadline() {
            count(&self.inner.tally.late_flushes);
        }
        sent
    }

    fn send(&self, ttl: Span) -> Result<usize, ReplicationError> {
        let inner = &*self.inner;
        let mut packet = inner.packet.lock();
        packet.number += 1;
        count(&inner.tally.flushes);
        let (mut next, mut sent) = (0, 0);
        while next < inner.values.len() {
            let values;
            (values, next) = self.fill(&mut packet, next);
            if values == 0 {
                continue;
            }
            let bytes = packet.bytes.get(..packet.end).unwrap_or_default();
            let pushed = inner.supplier.push_for(inner.kind, bytes, ttl);
            if pushed.is_err() || pushed.is_ok_and(|pushed| pushed.rejected + pushed.unsent > 0) {
                walk(bytes, |entry| self.again(entry.value));
            }
            let pushed = pushed?;
            count(&inner.tally.events);
            if pushed.rejected + pushed.unsent > 0 {
                count(&inner.tally.missed);
            }
            inner.tally.flushed.fetch_add(values as u64, Ordering::Relaxed);
            sent += values;
        }
        Ok(sent)
    }

    /// Puts values that are to be sent into a packet, from this one on: how many, and the first that was not looked at.
    fn fill(&self, packet: &mut Packet, from: usize) -> (usize, usize) {
        let head = self.inner.run.to_be_bytes().into_iter().chain(packet.number.to_be_bytes());
        for (to, from) in packet.bytes.iter_mut().zip(head) {
            *to = from;
        }
        packet.end = HEAD;
        let mut values = 0;
        for (value, row) in self.inner.values.iter().enumerate().skip(from) {
            let mut row = row.lock();
            if !row.fresh {
                continue;
            }
            let entry = Entry { value, version: row.version, bytes: row.get() };
            let Some(end) = entry.write(&mut packet.bytes, packet.end) else { return (values, value) };
            packet.end = end;
            row.fresh = false;
            values += 1;
        }
        (values, self.inner.values.len())
    }

    fn again(&self, value: usize) {
        if let Some(row) = self.inner.values.get(value) {
            let mut row = row.lock();
            row.fresh = row.version > 0;
        }
    }

    /// All values that were ever written go with the next flush: for a peer that is new, or that lost some.
    pub fn refresh(&self) {
        (0..self.inner.values.len()).for_each(|value| self.again(value));
    }

    /// What was written and sent.
    #[must_use]
    pub fn counts(&self) -> Flushes {
        let (load, tally) = (|tally: &AtomicU64| tally.load(Ordering::Relaxed), &self.inner.tally);
        Flushes {
            written: load(&tally.written),
            late: load(&tally.late),
            replaced: load(&tally.replaced),
            flushed: load(&tally.flushed),
            events: load(&tally.events),
            flushes: load(&tally.flushes),
            late_flushes: load(&tally.late_flushes),
            missed: load(&tally.missed),
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
    /// Values that it had already, or newer ones of.
    pub old: u64,
    /// Events that are none of a flush, or of other values than these.
    pub malformed: u64,
}

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// How many bytes it has.
    pub length: usize,
    /// How often it was written where it comes from.
    pub version: u64,
    /// When it came here.
    pub came: Time,
}

/// Values of a publisher as they are known here. A copy is the same one.
#[derive(Clone)]
pub struct Replica {
    inner: Arc<Replicating>,
}

struct Replicating {
    /// Of the publisher.
    run: PiMutex<u64>,
    values: Vec<PiMutex<Value>>,
    applied: AtomicU64,
    old: AtomicU64,
    malformed: AtomicU64,
}

impl Replica {
    /// Of a publisher with these sizes.
    #[must_use]
    pub fn new(sizes: &[usize]) -> Replica {
        let inner = Replicating {
            run: PiMutex::new(0),
            values: sizes.iter().copied().map(room).collect(),
            applied: AtomicU64::new(0),
            old: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        };
        Replica { inner: Arc::new(inner) }
    }

    /// Takes the values of a flush's event: from the handler of the operation that subscribed to them.
    pub fn apply(&self, delivery: &Delivery<'_>, job: &Job<'_>) {
        for event in delivery.events() {
            self.take(event.payload, job.now());
        }
    }

    fn take(&self, payload: &[u8], now: Time) {
        let inner = &*self.inner;
        let fits = |entry: &Entry<'_>| {
            inner.values.get(entry.value).is_some_and(|row| entry.bytes.len() <= row.lock().bytes.len())
        };
        let mut all_fit = true;
        if !walk(payload, |entry| all_fit &= fits(&entry)) || !all_fit {
            return count(&inner.malformed);
        }
        let run = payload.first_chunk::<8>().map_or(0, |run| u64::from_be_bytes(*run));
        let mut known = inner.run.lock();
        if run > *known {
            // The publisher began anew, and counts from one again.
            *known = run;
            inner.values.iter().for_each(|row| row.lock().version = 0);
        }
        let former = run < *known;
        walk(payload, |entry| {
            let Some(mut row) = inner.values.get(entry.value).map(PiMutex::lock) else { return };
            if former || entry.version <= row.version {
                return count(&inner.old);
            }
            row.set(entry.bytes);
            (row.version, row.came) = (entry.version, now);
            count(&inner.applied);
        });
    }

    /// Copies a value into `into`, as many bytes as it has and there is room for. `None`: it has not come yet, or there is none of that index.
    #[must_use]
    pub fn read(&self, value: usize, into: &mut [u8]) -> Option<Known> {
        let row = self.inner.values.get(value)?.lock();
        for (to, from) in into.iter_mut().zip(row.get()) {
            *to = *from;
        }
        let known = Known { length: row.length, version: row.version, came: row.came };
        (known.version > 0).then_some(known)
    }

    /// What it took.
    #[must_use]
    pub fn counts(&self) -> Applied {
        let load = |tally: &AtomicU64| tally.load(Ordering::Relaxed);
        let inner = &*self.inner;
        Applied { applied: load(&inner.applied), old: load(&inner.old), malformed: load(&inner.malformed) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Options;

    fn published(payload_max: usize, sizes: &[usize]) -> Published {
        let channel = Channel::new(Options { payload_max, ..Options::default() });
        Published::new(&channel, 1, 9, sizes).unwrap()
    }

    /// The payloads of a flush, as they would be sent.
    fn flush(published: &Published) -> Vec<Vec<u8>> {
        let (mut packet, mut next, mut all) = (published.inner.packet.lock(), 0, Vec::new());
        packet.number += 1;
        while next < published.inner.values.len() {
            let values;
            (values, next) = published.fill(&mut packet, next);
            if values > 0 {
                all.push(packet.bytes[..packet.end].to_vec());
            }
        }
        all
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, Vec<u8>),
        Flush { lost: bool },
        Refresh,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..6_usize, prop::collection::vec(any::<u8>(), 0..=20))
            .prop_map(|(value, bytes)| Step::Write(value, bytes));
        let flush = prop::bool::weighted(0.2).prop_map(|lost| Step::Flush { lost });
        prop::collection::vec(prop_oneof![6 => write, 3 => flush, 1 => Just(Step::Refresh)], 1..60)
    }

    proptest! {
        /// Beside a table of what was written before the last flush that came.
        #[test]
        fn a_replica_has_what_was_written_before_the_last_flush_that_came(steps in steps()) {
            let sizes = [20; 6];
            let (published, replica) = (published(80, &sizes), Replica::new(&sizes));
            let (mut written, mut known) = (vec![None; 6], vec![None; 6]);
            let mut pending = [false; 6];
            for step in steps {
                match step {
                    Step::Write(value, bytes) => {
                        published.put(value, &bytes).unwrap();
                        written[value] = Some(bytes);
                        pending[value] = true;
                    }
                    Step::Refresh => {
                        published.refresh();
                        (0..6).for_each(|value| pending[value] = written[value].is_some());
                    }
                    Step::Flush { lost } => {
                        let events = flush(&published);
                        prop_assert!(events.iter().all(|event| event.len() <= 80));
                        for event in events.iter().filter(|_| !lost) {
                            replica.take(event, Time::ZERO);
                            // It does no harm twice.
                            replica.take(event, Time::ZERO);
                        }
                        for value in 0..6 {
                            if std::mem::take(&mut pending[value]) && !lost {
                                known[value].clone_from(&written[value]);
                            }
                        }
                    }
                }
                for (value, known) in known.iter().enumerate() {
                    let mut bytes = [0; 20];
                    let read = replica.read(value, &mut bytes).map(|read| bytes[..read.length].to_vec());
                    prop_assert_eq!(&read, known);
                }
            }
            let counts = replica.counts();
            prop_assert!(counts.malformed == 0 && counts.old >= counts.applied);
        }
    }

    #[test]
    fn a_publisher_that_begins_anew_is_believed_and_its_former_run_is_not() {
        let (sizes, mut bytes) = ([4], [0; 4]);
        let (first, replica) = (published(64, &sizes), Replica::new(&sizes));
        (0..5).for_each(|_| first.put(0, b"old").unwrap());
        let former = flush(&first);
        replica.take(&former[0], Time::ZERO);
        let second = published(64, &sizes);
        second.put(0, b"new").unwrap();
        replica.take(&flush(&second)[0], Time::ZERO);
        assert_eq!(replica.read(0, &mut bytes).unwrap().version, 1);
        replica.take(&former[0], Time::ZERO);
        assert_eq!((&bytes[..3], replica.counts()), (&b"new"[..], Applied { applied: 2, old: 1, malformed: 0 }));
    }

    #[test]
    fn what_is_no_flush_of_these_values_is_not_taken_in_part() {
        let (sizes, replica) = ([4, 4], Replica::new(&[4]));
        let published = published(64, &sizes);
        published.put(0, b"a").unwrap();
        published.put(1, b"b").unwrap();
        let payload = flush(&published).remove(0);
        replica.take(&payload, Time::ZERO);
        (0..payload.len()).for_each(|length| replica.take(&payload[..length], Time::ZERO));
        // Cut after its head it is a flush without values, and after the first value one of that alone.
        let whole = (0..payload.len()).filter(|length| entries(&payload[..*length]).is_some()).count();
        assert_eq!(whole, 2);
        let counts = Applied { applied: 1, old: 0, malformed: payload.len() as u64 - 1 };
        assert_eq!(replica.counts(), counts);
    }

    #[test]
    fn what_cannot_be_replicated_is_refused() {
        let channel = Channel::new(Options { payload_max: 30, ..Options::default() });
        let refused = |sizes: &[usize]| Published::new(&channel, 1, 9, sizes).err().map(|error| error.to_string());
        assert_eq!(refused(&[2]), None);
        assert_eq!(
            refused(&[0, 3]).unwrap(),
            "value 1 has up to 3 bytes, and an event of this channel has room for 2 (Options::payload_max)"
        );
        assert_eq!(refused(&vec![0; VALUES_MAX + 1]).unwrap(), "65537 values; a publisher has 65536 at most");
        let published = published(64, &[4]);
        assert_eq!(published.put(1, b"").unwrap_err().to_string(), "there is no value 1; there are 1, counted from 0");
        assert_eq!(published.put(0, b"12345").unwrap_err().to_string(), "value 0 has 5 bytes now, and can have 4");
        published.put(0, b"1234").unwrap();
        assert_eq!(published.send(Span::MAX), Err(ReplicationError::Event(EventError::NotConnected)));
        assert_eq!(flush(&published).len(), 1, "it is still to be sent");
    }
}
