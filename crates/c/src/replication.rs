//! Replication: values that operations write go to other nodes when their frame ends.

use takt_dispatch::event::{Published, ROOM_BYTES_MAX, Replica, ReplicationError};

use crate::channel::{EVENTS_MAX, TAKT_KIND_PEER_FOUND, takt_channel, takt_event};
use crate::dispatcher::{job_at, takt_job};
use crate::refusal::not_taken;
use crate::status::{CallError, call, free, give, object, object_mut, or_never, place, push, takt_status};

/// Values that operations of this process write, and others are to know. Its calls may be made by
/// any thread, all but takt_published_free.
pub struct takt_published(Published);

/// Values of a publisher as they are known here. Its calls may be made by any thread, all but takt_replica_free.
pub struct takt_replica {
    replica: Replica,
    values: usize,
}

/// The counters of a publisher. written = flushed + replaced + waiting ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_flushes {
    /// Values written.
    pub written: u64,
    /// Values written after their job's deadline, which missed the flush of that job.
    pub late: u64,
    /// Values that another one followed before they were sent for the first time.
    pub replaced: u64,
    /// Values sent, each counted once.
    pub flushed: u64,
    /// Values sent again: for want of somebody who got them, or by takt_published_refresh.
    pub repeated: u64,
    /// Events that they were sent in.
    pub events: u64,
    /// Events that a consumer or a peer did not get for lack of room, as far as the push could
    /// tell.
    pub missed: u64,
    /// Flushes, with values or without.
    pub flushes: u64,
    /// Flushes that ended after the flushing job's deadline.
    pub late_flushes: u64,
}

/// The counters of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_applied {
    /// Values that it took.
    pub applied: u64,
    /// Values that it had already, or newer ones of, or of a former run.
    pub old: u64,
    /// Events of its publisher's source and type that are none of a flush, or of other values than these.
    pub malformed: u64,
}

/// A value to be read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_known {
    /// Which, from 0: for the caller to say.
    pub value: usize,
    /// The destination, set by the caller. May be null if `size` is zero.
    pub bytes: *mut u8,
    /// How many bytes there is room for: for the caller to say. A longer value is cut.
    pub size: usize,
    /// How many bytes it has.
    pub length: usize,
    /// The number of writes of the value at its publisher, in that run of the publisher. Zero: it
    /// has not come yet.
    pub version: u64,
    /// Its time of arrival, by the clock of the dispatcher that ran the receiving job.
    pub came_ns: u64,
}

/// The most values of a publisher.
const VALUES_MAX: usize = 1 << 16;
/// The most bytes of a value.
const BYTES_MAX: usize = u16::MAX as usize;

/// The sizes of values, which are few enough.
///
/// # Safety
/// `sizes` is null or points to `count` of them.
unsafe fn sizes_of<'a>(kind: u32, sizes: *const usize, count: usize) -> Result<&'a [usize], CallError> {
    if kind >= TAKT_KIND_PEER_FOUND {
        return Err(CallError::invalid(format_args!(
            "events of type {kind} are the channel's own: choose a smaller one"
        )));
    }
    if sizes.is_null() || count == 0 || count > VALUES_MAX {
        return Err(CallError::invalid(format_args!("there are from 1 to {VALUES_MAX} values, with a size each")));
    }
    // SAFETY: by this function's condition, and the pointer is not null.
    let sizes = unsafe { std::slice::from_raw_parts(sizes, count) };
    if let Some((value, size)) = sizes.iter().enumerate().find(|(_, size)| **size > BYTES_MAX) {
        let text = format_args!("value {value} has up to {size} bytes; {BYTES_MAX} are the most");
        return Err(CallError::invalid(text));
    }
    if sizes.iter().sum::<usize>() > ROOM_BYTES_MAX {
        return Err(CallError::invalid("the values have more than 64 MiB together"));
    }
    Ok(sizes)
}

/// `count` values (65,536 and 64 MiB at most), of each of which `sizes` says how many bytes it can
/// have. They go as events of this source and type, which nobody else is to supply. A value that
/// fits into no event of the channel, with 28 bytes besides, is TAKT_STATUS_INVALID.
///
/// # Safety
/// `channel` came from takt_channel_new, `sizes` points to `count` of them, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_new(
    channel: *const takt_channel,
    source: u32,
    kind: u32,
    sizes: *const usize,
    count: usize,
    into: *mut *mut takt_published,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let (channel, sizes) = unsafe { (object(channel, "the channel")?, sizes_of(kind, sizes, count)?) };
        place(into)?;
        let published = Published::new(&channel.channel, source, kind, sizes).map_err(CallError::invalid)?;
        // SAFETY: as above.
        unsafe { give(into, takt_published(published)) }
    })
}

/// The status of a write or a flush that failed.
fn not_done(error: ReplicationError) -> takt_status {
    match error {
        ReplicationError::Event(error) => not_taken(error),
        _ => takt_status::Invalid,
    }
}

/// An operation's job writes a value, to be sent by the flush at the job's deadline; `in_time` (may
/// be null) tells whether it is in time for that. From a handler, whether the channel is connected
/// or not. Takes a lock with priority inheritance for a moment, and allocates nothing. No such
/// value, or too many bytes: TAKT_STATUS_INVALID.
///
/// # Safety
/// `published` came from takt_published_new. `bytes` points to `length` bytes (it may be null if
/// that is zero). `job` is the handler's argument. `in_time` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_write(
    published: *const takt_published,
    value: usize,
    bytes: *const u8,
    length: usize,
    job: *const takt_job,
    in_time: *mut bool,
) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition, here and below.
        let Some(published) = (unsafe { published.as_ref() }) else { return takt_status::Invalid };
        // SAFETY: as above.
        let Some(job) = (unsafe { job_at(job) }) else { return takt_status::Invalid };
        let bytes = match length {
            0 => &[],
            _ if bytes.is_null() || length > BYTES_MAX => return takt_status::Invalid,
            // SAFETY: as above, and the pointer is not null.
            _ => unsafe { std::slice::from_raw_parts(bytes, length) },
        };
        match published.0.write(value, bytes, job) {
            Ok(is) => {
                // SAFETY: as above.
                if let Some(into) = unsafe { in_time.as_mut() } {
                    *into = is;
                }
                takt_status::Ok
            }
            Err(error) => not_done(error),
        }
    })
}

/// Sends all values that are due at this job's arrival, in as few events as they fit into; they are
/// of use for `ttl_ns` (zero: for ever). `values` (may be null) tells how many there were. From the
/// handler of one operation, which has the frame's period. Does what takt_supplier_push does for
/// each event. TAKT_STATUS_STOPPED: the channel is not connected; what was not sent goes with the
/// next flush.
///
/// # Safety
/// `published` came from takt_published_new, `job` is what the handler was called with, `values` is
/// null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_flush(
    published: *const takt_published,
    ttl_ns: u64,
    job: *const takt_job,
    values: *mut usize,
) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition, here and below.
        let Some(published) = (unsafe { published.as_ref() }) else { return takt_status::Invalid };
        // SAFETY: as above.
        let Some(job) = (unsafe { job_at(job) }) else { return takt_status::Invalid };
        match published.0.flush(or_never(ttl_ns), job) {
            Ok(sent) => {
                // SAFETY: as above.
                if let Some(into) = unsafe { values.as_mut() } {
                    *into = sent;
                }
                takt_status::Ok
            }
            Err(error) => not_done(error),
        }
    })
}

/// The next flush sends all values that were ever sent again. Use it for a new peer
/// (TAKT_KIND_PEER_FOUND), or for a peer that lost some. From handlers, too.
///
/// # Safety
/// `published` came from takt_published_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_refresh(published: *const takt_published) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition.
        let Some(published) = (unsafe { published.as_ref() }) else { return takt_status::Invalid };
        published.0.refresh();
        takt_status::Ok
    })
}

/// The most events that a flush takes: the backlog that a consumer of them needs, with a least
/// distance of 1 ns. Zero for a null pointer.
///
/// # Safety
/// `published` is null or came from takt_published_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_events_max(published: *const takt_published) -> usize {
    // SAFETY: by this function's condition.
    unsafe { published.as_ref() }.map_or(0, |published| published.0.events_max())
}

/// The counters of writes and flushes so far.
///
/// # Safety
/// `published` came from takt_published_new, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_counts(
    published: *const takt_published,
    into: *mut takt_flushes,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let counts = unsafe { object(published, "the publisher") }?.0.counts();
        // SAFETY: as above.
        *unsafe { object_mut(into, "the pointer to the counts") }? = takt_flushes {
            written: counts.written,
            late: counts.late,
            replaced: counts.replaced,
            flushed: counts.flushed,
            repeated: counts.repeated,
            events: counts.events,
            missed: counts.missed,
            flushes: counts.flushes,
            late_flushes: counts.late_flushes,
        };
        Ok(())
    })
}

/// Frees a publisher; a null pointer is no harm.
///
/// # Safety
/// It came from takt_published_new, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_published_free(published: *mut takt_published) {
    // SAFETY: by this function's condition.
    unsafe { free(published) }
}

/// Makes a replica of the publisher with this source, type and sizes.
///
/// # Safety
/// `sizes` points to `count` of them, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_replica_new(
    source: u32,
    kind: u32,
    sizes: *const usize,
    count: usize,
    into: *mut *mut takt_replica,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let sizes = unsafe { sizes_of(kind, sizes, count) }?;
        place(into)?;
        let replica = Replica::new(source, kind, sizes);
        // SAFETY: as above.
        unsafe { give(into, takt_replica { replica, values: sizes.len() }) }
    })
}

/// Takes the values of a flush's events, and leaves other events: from the handler that was called
/// with them. Takes a lock with priority inheritance for moments, and allocates nothing.
///
/// # Safety
/// `replica` came from takt_replica_new; `events`, `count` and `job` are what the handler was called with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_replica_apply(
    replica: *const takt_replica,
    events: *const takt_event,
    count: usize,
    job: *const takt_job,
) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition, here and below.
        let Some(replica) = (unsafe { replica.as_ref() }) else { return takt_status::Invalid };
        // SAFETY: as above.
        let Some(job) = (unsafe { job_at(job) }) else { return takt_status::Invalid };
        if events.is_null() || count > EVENTS_MAX {
            return takt_status::Invalid;
        }
        // SAFETY: as above, and the pointer is not null.
        for event in unsafe { std::slice::from_raw_parts(events, count) } {
            let payload = match event.payload.is_null() {
                true => &[],
                // SAFETY: as above: the handler was given so many bytes.
                false => unsafe { std::slice::from_raw_parts(event.payload, event.length) },
            };
            replica.replica.take(event.source, event.kind, payload, job);
        }
        takt_status::Ok
    })
}

/// Reads `count` values (65,536 at most), all as they were after the same event. A flush may come
/// in several events. Each element names its value and its destination. From handlers, too: it
/// takes a lock with priority inheritance for the time of the copies, and allocates nothing.
///
/// An element with an unknown value or without a destination makes the call TAKT_STATUS_INVALID,
/// and nothing is read.
///
/// # Safety
/// `replica` came from takt_replica_new; `values` points to `count` of them, and of each `size`
/// bytes may be written at `bytes`, which no other one has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_replica_read(
    replica: *const takt_replica,
    values: *mut takt_known,
    count: usize,
) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition, here and below.
        let Some(replica) = (unsafe { replica.as_ref() }) else { return takt_status::Invalid };
        if values.is_null() || count > VALUES_MAX {
            return takt_status::Invalid;
        }
        // SAFETY: as above, and the pointer is not null.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
        let can_be = |at: &takt_known| at.value < replica.values && (at.size == 0 || !at.bytes.is_null());
        if !values.iter().all(can_be) {
            return takt_status::Invalid;
        }
        replica.replica.view(|known| {
            for into in values {
                (into.length, into.version, into.came_ns) = (0, 0, 0);
                let Some(value) = known.get(into.value) else { continue };
                (into.length, into.version, into.came_ns) = (value.bytes.len(), value.version, value.came.as_ns());
                let length = into.size.min(value.bytes.len());
                if length > 0 {
                    // SAFETY: as above: `size` bytes may be written there, and the replica's are another memory.
                    unsafe { std::ptr::copy_nonoverlapping(value.bytes.as_ptr(), into.bytes, length) };
                }
            }
        });
        takt_status::Ok
    })
}

/// The counters of applied events so far.
///
/// # Safety
/// `replica` came from takt_replica_new, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_replica_counts(replica: *const takt_replica, into: *mut takt_applied) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let counts = unsafe { object(replica, "the replica") }?.replica.counts();
        // SAFETY: as above.
        *unsafe { object_mut(into, "the pointer to the counts") }? =
            takt_applied { applied: counts.applied, old: counts.old, malformed: counts.malformed };
        Ok(())
    })
}

/// Frees a replica; a null pointer is no harm.
///
/// # Safety
/// It came from takt_replica_new, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_replica_free(replica: *mut takt_replica) {
    // SAFETY: by this function's condition.
    unsafe { free(replica) }
}
