//! Events that wait for a program's own loop, which learns of them by a file descriptor.

use std::ffi::c_int;
use std::os::fd::AsRawFd as _;

use takt_dispatch::event::{Full, Outlet, OutletEvent, Pattern};
use takt_model::Span;

use crate::channel::{takt_channel, takt_pattern};
use crate::refusal::not_connected;
use crate::status::{CallError, call, free, give, object, object_mut, push, takt_status};

/// A queue of events for an ordinary thread of the program. It holds events that should not be
/// handled on a real-time thread, or answers of handlers.
pub struct takt_outlet {
    outlet: Outlet,
    /// The last one that was taken.
    leaving: OutletEvent,
    descriptor: c_int,
}

/// An event that was taken from an outlet; its payload is of use until the next one is taken.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_taken {
    /// Its type.
    pub kind: u32,
    /// Its source.
    pub source: u32,
    /// Zero for the first event of its supplier.
    pub number: u64,
    /// The time to its deadline, zero once this is over; all ones: it has no deadline of its own.
    pub due_in_ns: u64,
    /// For how long it is still of use; all ones: for ever.
    pub expires_in_ns: u64,
    /// The supplier's bytes.
    pub payload: *const u8,
    /// How many bytes.
    pub length: usize,
}

/// The counters of an outlet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_passed {
    /// Events that were meant.
    pub pushed: u64,
    /// Events that were dropped for lack of room.
    pub full: u64,
}

/// Events that wait, where the caller says no number.
const ROOM: usize = 64;

/// Makes a queue for a thread of the program. It holds events that match one of these patterns and
/// are pushed by any thread of this process. takt_outlet_fd signals waiting events,
/// takt_outlet_next takes them. Call this before the channel is connected.
///
/// `room` is the number of events that can wait (zero: 64; 65,536 at most). If the queue is full,
/// the new event is dropped, or with `drops_oldest` the oldest one. The drop is counted.
///
/// # Safety
/// `channel` came from takt_channel_new; `patterns` points to `count` of them; `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_outlet(
    channel: *const takt_channel,
    patterns: *const takt_pattern,
    count: usize,
    room: usize,
    drops_oldest: bool,
    into: *mut *mut takt_outlet,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object(channel, "the channel") }?;
        if patterns.is_null() || count == 0 || count > PATTERNS_MAX {
            return Err(CallError::invalid(format_args!(
                "an outlet has from 1 to {PATTERNS_MAX} patterns, and here are {count}"
            )));
        }
        // SAFETY: as above, and the pointer is not null.
        let patterns = unsafe { std::slice::from_raw_parts(patterns, count) };
        let patterns: Vec<Pattern> = patterns.iter().map(|pattern| pattern.pattern()).collect();
        let full = if drops_oldest { Full::Oldest } else { Full::Newest };
        let room = if room > 0 { room } else { ROOM };
        let outlet = channel.channel.outlet(&patterns, room, full).map_err(|error| not_connected(&error))?;
        let refused = |error| {
            CallError::new(takt_status::Refused, format_args!("no descriptor can be had for the outlet: {error}"))
        };
        let descriptor = outlet.descriptor().map_err(refused)?.as_raw_fd();
        let leaving = outlet.leaving();
        // SAFETY: as above.
        unsafe { give(into, takt_outlet { outlet, leaving, descriptor }) }
    })
}

/// Patterns of an outlet.
const PATTERNS_MAX: usize = 1024;

/// A descriptor for poll, select or epoll: readable while an event waits, so that a loop calls
/// takt_outlet_next until that says false. It may be readable once in vain. The outlet closes it:
/// it is neither to be closed nor to be read. -1 for a null pointer.
///
/// # Safety
/// `outlet` is null or came from takt_channel_outlet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_outlet_fd(outlet: *const takt_outlet) -> c_int {
    // SAFETY: by this function's condition.
    unsafe { outlet.as_ref() }.map_or(-1, |outlet| outlet.descriptor)
}

/// Takes the oldest event that waits; whether there was one. Never waits. An event whose time is
/// over is taken like any other.
///
/// # Safety
/// `outlet` is null or came from takt_channel_outlet, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_outlet_next(outlet: *mut takt_outlet, into: *mut takt_taken) -> bool {
    let mut was_there = false;
    let _ = push(|| {
        // SAFETY: by this function's condition, here and below.
        let (Some(outlet), Some(into)) = (unsafe { outlet.as_mut() }, unsafe { into.as_mut() }) else {
            return takt_status::Invalid;
        };
        was_there = outlet.outlet.next(&mut outlet.leaving, Span::ZERO);
        if was_there {
            let leaving = &outlet.leaving;
            let head = leaving.head();
            let payload = leaving.payload();
            *into = takt_taken {
                kind: head.kind,
                source: head.source,
                number: head.number,
                due_in_ns: leaving.due().as_ns(),
                expires_in_ns: leaving.remaining().as_ns(),
                payload: payload.as_ptr(),
                length: payload.len(),
            };
        }
        takt_status::Ok
    });
    was_there
}

/// The counters of an outlet.
///
/// # Safety
/// `outlet` came from takt_channel_outlet, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_outlet_counts(outlet: *const takt_outlet, into: *mut takt_passed) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let passed = unsafe { object(outlet, "the outlet") }?.outlet.passed();
        // SAFETY: as above.
        *unsafe { object_mut(into, "the pointer to the counts") }? =
            takt_passed { pushed: passed.pushed, full: passed.full };
        Ok(())
    })
}

/// Frees an outlet and closes its descriptor; a null pointer is no harm. Pushes pass it by from then on.
///
/// # Safety
/// It came from takt_channel_outlet, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_outlet_free(outlet: *mut takt_outlet) {
    // SAFETY: by this function's condition.
    unsafe { free(outlet) }
}
