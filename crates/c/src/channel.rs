//! An event channel: suppliers push events, operations consume them.

use std::ffi::{c_char, c_void};

use takt_model::Span;
use takt_run::event::{
    Bits, Channel, ConnectError, Connected, Delivery, EventError, Filter, Options, Pattern, Subscription, Supplier,
};

use crate::dispatcher::{User, job_of, refused, takt_dispatcher, takt_job};
use crate::plan::takt_plan;
use crate::status::{Wrong, call, free, give, object, object_mut, place, takt_status, text};

/// A channel.
pub struct takt_channel {
    channel: Channel,
    connected: Option<Connected>,
}

/// What an operation waits for.
pub struct takt_subscription(Subscription);

/// Who pushes events of one source.
pub struct takt_supplier(Supplier);

/// Which events are meant: those whose type and source agree with these values in all bits of the masks. A mask of zero means any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct takt_pattern {
    /// The bits of the type that are wanted.
    pub kind: u32,
    /// The bits of the type that count.
    pub kind_mask: u32,
    /// The bits of the source that are wanted.
    pub source: u32,
    /// The bits of the source that count.
    pub source_mask: u32,
}

/// How the patterns of a subscription belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_group {
    /// The first event that one of them means.
    Any = 0,
    /// An event for each of them, in any order.
    All = 1,
    /// An event for each of them, one after the other.
    Sequence = 2,
}

/// An event as a handler is given it; of use during that call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_event {
    /// Its type.
    pub kind: u32,
    /// Its source.
    pub source: u32,
    /// Zero for the first event of its supplier.
    pub number: u64,
    /// When it was pushed.
    pub sent_ns: u64,
    /// After this it is of no use; all ones: never.
    pub expires_ns: u64,
    /// What its supplier said.
    pub payload: *const u8,
    /// How many bytes.
    pub length: usize,
    /// Which pattern of the subscription it is for, from 0.
    pub pattern: usize,
}

/// The code of an operation that consumes events: `count` of them, one for each pattern that took part.
pub type takt_event_handler =
    Option<unsafe extern "C" fn(events: *const takt_event, count: usize, job: *const takt_job, user: *mut c_void)>;

/// What a push came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_pushed {
    /// Consumers whose operation was pushed.
    pub taken: usize,
    /// Consumers that wait for more.
    pub kept: usize,
    /// Consumers whose operation was not pushed, for want of room or time.
    pub rejected: usize,
}

/// A handler is given so many events at most.
const EVENTS_MAX: usize = 64;

/// A channel for payloads of up to `payload_max` bytes (64 KiB at most), groups of up to `events_max` events (64 at most), and a history of so many. Zero: 256 bytes, 8 events, none. A
/// subscription takes room for the groups of up to 64 jobs; that and the history may take 64 MiB together.
///
/// # Safety
/// `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_new(
    payload_max: usize,
    events_max: usize,
    history: usize,
    into: *mut *mut takt_channel,
) -> takt_status {
    call(|| {
        let default = Options::default();
        let or = |value: usize, default: usize| if value > 0 { value } else { default };
        let (payload_max, events_max) = (or(payload_max, default.payload_max), or(events_max, default.events_max));
        // A subscription has room for its group in each job that may wait.
        let events = events_max.saturating_mul(JOBS_MAX).saturating_add(history);
        if payload_max > PAYLOAD_MAX || events_max > EVENTS_MAX || payload_max.saturating_mul(events) > ROOM_MAX {
            let text =
                "64 KiB a payload, 64 events a group, and 64 MiB for the history and the groups of 64 jobs together";
            return Err(Wrong::invalid(format_args!("a channel is for at most {text}")));
        }
        let channel = Channel::new(Options { payload_max, events_max, history });
        // SAFETY: by this function's condition.
        unsafe { give(into, takt_channel { channel, connected: None }) }
    })
}

/// What a channel of C's has room for at most.
const PAYLOAD_MAX: usize = 1 << 16;
const JOBS_MAX: usize = 64;
const ROOM_MAX: usize = 64 << 20;

/// A sporadic operation of a plan waits for `count` patterns, which `group` (a takt_group) joins. To be called before the channel is connected.
///
/// # Safety
/// `channel` and `plan` came from calls that make them, `operation` is a string, `patterns` points to `count` of them, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_subscribe(
    channel: *const takt_channel,
    plan: *const takt_plan,
    operation: *const c_char,
    group: u32,
    patterns: *const takt_pattern,
    count: usize,
    into: *mut *mut takt_subscription,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object(channel, "the channel") }?;
        // SAFETY: as above.
        let plan = unsafe { object(plan, "the plan") }?;
        // SAFETY: as above.
        let operation = unsafe { text(operation, "the operation's name") }?;
        if patterns.is_null() || count == 0 || count > EVENTS_MAX {
            return Err(Wrong::invalid(format_args!("a subscription has from 1 to {EVENTS_MAX} patterns")));
        }
        // SAFETY: as above, and the pointer is not null.
        let patterns = unsafe { std::slice::from_raw_parts(patterns, count) };
        let one = |pattern: &takt_pattern| {
            let (kind, source) = (
                Bits { value: pattern.kind, mask: pattern.kind_mask },
                Bits { value: pattern.source, mask: pattern.source_mask },
            );
            Filter::One(Pattern { kind, source })
        };
        let all: Vec<Filter> = patterns.iter().map(one).collect();
        let filter = if group == takt_group::Any as u32 {
            Filter::any(all)
        } else if group == takt_group::All as u32 {
            Filter::all(all)
        } else if group == takt_group::Sequence as u32 {
            Filter::sequence(all)
        } else {
            return Err(Wrong::invalid(format_args!("the subscription of \"{operation}\" has no takt_group")));
        };
        place(into)?;
        let subscription = channel.channel.subscribe(&plan.0, operation, filter).map_err(Wrong::invalid)?;
        // SAFETY: as above.
        unsafe { give(into, takt_subscription(subscription)) }
    })
}

/// Gives an operation that subscribed its handler, which is called with `user`. To be called before the start.
///
/// # Safety
/// `dispatcher` and `subscription` came from calls that make them, `operation` is a string, that of the subscription. `handler` and `user` are as for takt_dispatcher_on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_on_events(
    dispatcher: *mut takt_dispatcher,
    operation: *const c_char,
    subscription: *const takt_subscription,
    handler: takt_event_handler,
    user: *mut c_void,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        // SAFETY: as above.
        let operation = unsafe { text(operation, "the operation's name") }?;
        // SAFETY: as above.
        let subscription = unsafe { object(subscription, "the subscription") }?;
        let handler = handler.ok_or_else(|| Wrong::invalid("the handler is a null pointer"))?;
        let user = User(user);
        let with_events = subscription.0.handler(move |delivery: &Delivery<'_>, job| {
            let none = takt_event {
                kind: 0,
                source: 0,
                number: 0,
                sent_ns: 0,
                expires_ns: 0,
                payload: std::ptr::null(),
                length: 0,
                pattern: 0,
            };
            let (mut events, mut count) = ([none; EVENTS_MAX], 0);
            for (to, event) in events.iter_mut().zip(delivery.events()) {
                *to = takt_event {
                    kind: event.head.kind,
                    source: event.head.source,
                    number: event.head.number,
                    sent_ns: event.head.sent.as_ns(),
                    expires_ns: event.head.expires.as_ns(),
                    payload: event.payload.as_ptr(),
                    length: event.payload.len(),
                    pattern: event.leaf,
                };
                count += 1;
            }
            // SAFETY: as above; events, payloads and the job live during the call.
            unsafe { handler(events.as_ptr(), count, job_of(job), user.get()) }
        });
        dispatcher.handle(operation, with_events)
    })
}

/// Frees what takt_channel_subscribe gave; a null pointer is no harm. The operation goes on waiting.
///
/// # Safety
/// It came from there, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_free(subscription: *mut takt_subscription) {
    // SAFETY: by this function's condition.
    unsafe { free(subscription) }
}

/// Delivers from now on to the operations of a dispatcher that runs, until takt_channel_disconnect.
///
/// # Safety
/// `channel` and `dispatcher` came from calls that make them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_connect(
    channel: *mut takt_channel,
    dispatcher: *const takt_dispatcher,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object_mut(channel, "the channel") }?;
        // SAFETY: as above.
        let dispatcher = unsafe { object(dispatcher, "the dispatcher") }?;
        let running = dispatcher.running.as_ref();
        let running = running.ok_or_else(|| Wrong::new(takt_status::Stopped, "the dispatcher does not run"))?;
        let connected = channel.channel.connect(running).map_err(|error| match &error {
            ConnectError::Thread(cause) => refused(cause),
            _ => Wrong::invalid(error),
        });
        channel.connected = Some(connected?);
        Ok(())
    })
}

/// Delivers no more. To be called before the dispatcher stops; a channel that is not connected is no harm.
///
/// # Safety
/// `channel` came from takt_channel_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_disconnect(channel: *mut takt_channel) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        unsafe { object_mut(channel, "the channel") }?.connected = None;
        Ok(())
    })
}

/// Disconnects and frees a channel; a null pointer is no harm. Pushes of its suppliers answer TAKT_STATUS_STOPPED then.
///
/// # Safety
/// It came from takt_channel_new, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_free(channel: *mut takt_channel) {
    // SAFETY: by this function's condition.
    unsafe { free(channel) }
}

/// Who pushes events under this number.
///
/// # Safety
/// `channel` came from takt_channel_new, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_supplier(
    channel: *const takt_channel,
    source: u32,
    into: *mut *mut takt_supplier,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object(channel, "the channel") }?;
        // SAFETY: as above.
        unsafe { give(into, takt_supplier(channel.channel.supplier(source))) }
    })
}

/// Pushes an event, by any thread, which is of no use after `ttl_ns` (zero: it does not expire). Takes locks with priority inheritance for moments and copies the payload, allocates nothing, and never waits for room. `pushed` may be null.
/// A payload that is too long, or a type of the channel's own (the three largest), is TAKT_STATUS_INVALID.
///
/// # Safety
/// `supplier` came from takt_channel_supplier, `payload` points to `length` bytes (it may be null where that is zero), `pushed` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_supplier_push(
    supplier: *const takt_supplier,
    kind: u32,
    payload: *const u8,
    length: usize,
    ttl_ns: u64,
    pushed: *mut takt_pushed,
) -> takt_status {
    // SAFETY: by this function's condition, here and below.
    let Some(supplier) = (unsafe { supplier.as_ref() }) else { return takt_status::Invalid };
    let bytes = match length {
        0 => &[],
        _ if payload.is_null() || length > PAYLOAD_MAX => return takt_status::Invalid,
        // SAFETY: as above, and the pointer is not null.
        _ => unsafe { std::slice::from_raw_parts(payload, length) },
    };
    let ttl = if ttl_ns == 0 { Span::MAX } else { Span::from_ns(ttl_ns) };
    match supplier.0.push_for(kind, bytes, ttl) {
        Ok(done) => {
            // SAFETY: as above.
            if let Some(into) = unsafe { pushed.as_mut() } {
                *into = takt_pushed { taken: done.taken, kept: done.kept, rejected: done.rejected };
            }
            takt_status::Ok
        }
        Err(EventError::NotConnected) => takt_status::Stopped,
        Err(EventError::TooLong { .. } | EventError::Reserved(_)) => takt_status::Invalid,
    }
}

/// Frees what takt_channel_supplier gave; a null pointer is no harm.
///
/// # Safety
/// It came from there, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_supplier_free(supplier: *mut takt_supplier) {
    // SAFETY: by this function's condition.
    unsafe { free(supplier) }
}
