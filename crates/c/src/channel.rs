//! An event channel: suppliers push events, operations consume them.

use std::ffi::{CString, c_char, c_void};

use takt_dispatch::event::{
    Bits, Change, Channel, Connected, Delivery, Event, Filter, Keep, LEAVES_MAX, Options, PAYLOAD_MAX, Pattern,
    Quality, Subscription, Supplier, Terms,
};

use crate::dispatcher::{User, job_of, takt_dispatcher, takt_job};
use crate::plan::takt_plan;
use crate::refusal::{not_connected, not_taken};
use crate::status::{CallError, call, free, give, object, object_mut, or_never, place, push, takt_status, text};

/// A channel.
pub struct takt_channel {
    pub(crate) channel: Channel,
    pub(crate) connected: Option<Connected>,
}

/// The events that start an operation's job.
pub struct takt_subscription(pub(crate) Subscription);

/// A source from which threads push events.
pub struct takt_supplier(Supplier);

/// A pattern of events. It matches events whose type and source agree with these values in all bits
/// of the masks. A mask of zero matches any.
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

impl takt_pattern {
    pub(crate) fn pattern(self) -> Pattern {
        let takt_pattern { kind, kind_mask, source, source_mask } = self;
        Pattern { kind: Bits { value: kind, mask: kind_mask }, source: Bits { value: source, mask: source_mask } }
    }
}

/// The type of the event that stands for a timeout or a silence (takt_filter_timeout,
/// takt_filter_silence). No supplier has it, nor the two below.
pub const TAKT_KIND_TIMEOUT: u32 = 0xffff_ffff;
/// The type of the event that a peer of a node is lost: it was silent for too long, ended, or began
/// anew. Its source is the peer's place in its level, its number the level's in the node, both from
/// 0; its payload is the peer's number (8 bytes, big-endian).
pub const TAKT_KIND_PEER_LOST: u32 = 0xffff_fffe;
/// The type of the event that a peer of a node is there, for the first time or again. Source,
/// number and payload as of the former.
pub const TAKT_KIND_PEER_FOUND: u32 = 0xffff_fffd;

const _: () = assert!(
    TAKT_KIND_TIMEOUT == takt_dispatch::event::TIMEOUT
        && TAKT_KIND_PEER_LOST == takt_dispatch::event::PEER_LOST
        && TAKT_KIND_PEER_FOUND == takt_dispatch::event::PEER_FOUND
);

/// How the patterns of a subscription, or the members of a filter, belong together.
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

impl takt_group {
    /// The group of this number, of these.
    pub(crate) fn of(number: u32, members: Vec<Filter>) -> Option<Filter> {
        let is = |group: takt_group| group as u32 == number;
        match () {
            () if is(takt_group::Any) => Some(Filter::any(members)),
            () if is(takt_group::All) => Some(Filter::all(members)),
            () if is(takt_group::Sequence) => Some(Filter::sequence(members)),
            () => None,
        }
    }
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
    /// Its deadline; all ones: it has none of its own.
    pub due_ns: u64,
    /// After this it is of no use; all ones: never.
    pub expires_ns: u64,
    /// The supplier's bytes.
    pub payload: *const u8,
    /// How many bytes.
    pub length: usize,
    /// The pattern of the subscription that the event matches, from 0. For a filter: the index of
    /// the single event, silence or timeout, in the order in which they were given.
    pub pattern: usize,
}

impl takt_event {
    const NONE: takt_event = takt_event {
        kind: 0,
        source: 0,
        number: 0,
        sent_ns: 0,
        due_ns: 0,
        expires_ns: 0,
        payload: std::ptr::null(),
        length: 0,
        pattern: 0,
    };

    fn of(event: &Event<'_>) -> takt_event {
        takt_event {
            kind: event.head.kind,
            source: event.head.source,
            number: event.head.number,
            sent_ns: event.head.sent.as_ns(),
            due_ns: event.head.due.as_ns(),
            expires_ns: event.head.expires.as_ns(),
            payload: event.payload.as_ptr(),
            length: event.payload.len(),
            pattern: event.leaf,
        }
    }
}

/// With what quality of service a subscription has its events, beside its operation's level and
/// deadline. All zeros: as a new subscription.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_quality {
    /// How soon after its push an event should have been handled, in ns; its own deadline holds
    /// where that is earlier. Zero: its own.
    pub deadline_ns: u64,
    /// How long after its push an event is of use here, in ns; its own time to live holds where
    /// that is shorter. Zero: its own.
    pub ttl_ns: u64,
    /// Whether the newest events take the place of those that wait, and wait for the least distance
    /// (the operation has a backlog of 2 or more).
    pub latest: bool,
}

/// The outcomes of the sets of events of a subscription. complete = handled + expired + rejected +
/// omitted + replaced + waiting ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_event_counts {
    /// Times that its patterns were there.
    pub complete: u64,
    /// Sets for which the handler was called.
    pub handled: u64,
    /// Handled sets whose handler returned after a deadline of their events.
    pub late: u64,
    /// Sets whose time to live was over when their job ran.
    pub expired: u64,
    /// Sets for which the operation was not pushed.
    pub rejected: u64,
    /// Sets whose job was omitted or dropped.
    pub omitted: u64,
    /// Sets that newer ones replaced.
    pub replaced: u64,
    /// Events that came while it was suspended.
    pub suspended: u64,
}

/// The code of an operation that consumes events: `count` of them, one for each pattern that took part.
pub type takt_event_handler =
    Option<unsafe extern "C" fn(events: *const takt_event, count: usize, job: *const takt_job, user: *mut c_void)>;

/// The outcome of a push.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_pushed {
    /// The event's number: how many its supplier pushed before.
    pub number: u64,
    /// Consumers whose operation was pushed.
    pub taken: usize,
    /// Consumers that wait for more.
    pub kept: usize,
    /// Consumers whose operation was not pushed, for want of room or time.
    pub rejected: usize,
    /// Peers of other nodes that it was sent to, or waits in a queue for.
    pub sent: usize,
    /// Peers that it should have gone to and did not: takt_channel_traffic tells why.
    pub unsent: usize,
}

/// A handler is given so many events at most.
pub(crate) const EVENTS_MAX: usize = LEAVES_MAX;

/// A channel for payloads of up to `payload_max` bytes (64 KiB at most), groups of up to
/// `events_max` events (64 at most), and a history of so many. Zero: 256 bytes, 8 events, none. A
/// subscription takes room for the groups of up to 64 jobs; that and the history may take 64 MiB
/// together, with some 90 bytes of each event's own.
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
        let options = Options { payload_max, events_max, history };
        options.check().map_err(CallError::invalid)?;
        let channel = Channel::new(options);
        // SAFETY: by this function's condition.
        unsafe { give(into, takt_channel { channel, connected: None }) }
    })
}

/// A sporadic operation of a plan waits for `count` patterns, which `group` (a takt_group) joins.
/// To be called before the channel is connected.
///
/// # Safety
/// `channel` and `plan` came from calls that make them, `operation` is a string, `patterns` points
/// to `count` of them, `into` may be written.
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
        let (channel, plan) = unsafe { (object(channel, "the channel")?, object(plan, "the plan")?) };
        // SAFETY: as above.
        let operation = unsafe { text(operation, "the operation's name") }?;
        // SAFETY: as above.
        let filter = unsafe { filter_of(operation, group, patterns, count) }?;
        place(into)?;
        let subscription = channel.channel.subscribe(&plan.0, operation, filter).map_err(CallError::invalid)?;
        // SAFETY: as above.
        unsafe { give(into, takt_subscription(subscription)) }
    })
}

/// The union of the patterns.
///
/// # Safety
/// `patterns` points to `count` of them.
unsafe fn filter_of(
    operation: &str,
    group: u32,
    patterns: *const takt_pattern,
    count: usize,
) -> Result<Filter, CallError> {
    if patterns.is_null() || count == 0 || count > EVENTS_MAX {
        return Err(CallError::invalid(format_args!("a subscription has from 1 to {EVENTS_MAX} patterns")));
    }
    // SAFETY: by this function's condition, and the pointer is not null.
    let patterns = unsafe { std::slice::from_raw_parts(patterns, count) };
    let all = patterns.iter().map(|pattern| Filter::One(pattern.pattern())).collect();
    let none = || CallError::invalid(format_args!("the subscription of \"{operation}\" has no takt_group"));
    takt_group::of(group, all).ok_or_else(none)
}

/// Replaces the patterns and the quality of service from now on (null: the quality of a new
/// subscription). Events that wait for its handler stay. By any thread.
///
/// # Safety
/// `subscription` came from takt_channel_subscribe, `patterns` points to `count` of them, `quality`
/// is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_reconnect(
    subscription: *const takt_subscription,
    group: u32,
    patterns: *const takt_pattern,
    count: usize,
    quality: *const takt_quality,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let subscription = &unsafe { object(subscription, "the subscription") }?.0;
        // SAFETY: as above.
        let filter = unsafe { filter_of(subscription.operation(), group, patterns, count) }?;
        // SAFETY: as above.
        let quality = unsafe { quality_of(filter, quality) };
        subscription.reconnect(quality).map_err(CallError::invalid)
    })
}

/// A filter with the quality of service that C asks for.
///
/// # Safety
/// `quality` is null or points to one.
pub(crate) unsafe fn quality_of(filter: Filter, quality: *const takt_quality) -> Quality {
    // SAFETY: by this function's condition.
    let asked = unsafe { quality.as_ref() }.copied().unwrap_or_default();
    let keep = if asked.latest { Keep::Latest } else { Keep::All };
    Quality { filter, deadline: or_never(asked.deadline_ns), ttl: or_never(asked.ttl_ns), keep }
}

/// Suspends the subscription until takt_subscription_resume. It ignores events and forgets the
/// events of an incomplete group. By any thread.
///
/// # Safety
/// `subscription` came from takt_channel_subscribe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_suspend(subscription: *const takt_subscription) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        unsafe { object(subscription, "the subscription") }?.0.suspend();
        Ok(())
    })
}

/// It waits again, from now on. By any thread.
///
/// # Safety
/// `subscription` came from takt_channel_subscribe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_resume(subscription: *const takt_subscription) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        unsafe { object(subscription, "the subscription") }?.0.resume();
        Ok(())
    })
}

/// The outcomes of its sets of events so far.
///
/// # Safety
/// `subscription` came from takt_channel_subscribe, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_counts(
    subscription: *const takt_subscription,
    into: *mut takt_event_counts,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let counts = unsafe { object(subscription, "the subscription") }?.0.counts();
        // SAFETY: as above.
        *unsafe { object_mut(into, "the pointer to the counts") }? = takt_event_counts {
            complete: counts.complete,
            handled: counts.handled,
            late: counts.late,
            expired: counts.expired,
            rejected: counts.rejected,
            omitted: counts.omitted,
            replaced: counts.replaced,
            suspended: counts.suspended,
        };
        Ok(())
    })
}

/// Gives an operation that subscribed its handler, which is called with `user`. To be called before the start.
///
/// # Safety
/// `dispatcher` and `subscription` came from calls that make them, `operation` is a string, that of
/// the subscription. `handler` and `user` are as for takt_dispatcher_on.
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
        let handler = handler.ok_or_else(|| CallError::invalid("the handler is a null pointer"))?;
        let own = subscription.0.operation();
        if own != operation {
            let text = format_args!("the subscription is that of \"{own}\", and not of \"{operation}\"");
            return Err(CallError::invalid(text));
        }
        // Before the subscription takes it for given.
        dispatcher.can_handle(operation)?;
        let user = User(user);
        let with_events = subscription.0.handler(move |delivery: &Delivery<'_>, job| {
            let (mut events, mut count) = ([takt_event::NONE; EVENTS_MAX], 0);
            for (to, event) in events.iter_mut().zip(delivery.events()) {
                *to = takt_event::of(&event);
                count += 1;
            }
            // SAFETY: as above; events, payloads and the job live during the call.
            unsafe { handler(events.as_ptr(), count, job_of(job), user.get()) }
        });
        dispatcher.handle(operation, with_events)
    })
}

/// Frees what takt_channel_subscribe gave; a null pointer is no harm. The operation goes on
/// waiting, unless takt_channel_unsubscribe was called.
///
/// # Safety
/// It came from there, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_free(subscription: *mut takt_subscription) {
    // SAFETY: by this function's condition.
    unsafe { free(subscription) }
}

/// The operation waits for nothing any more, and may subscribe anew; also one without a handler,
/// with which the channel cannot be connected. To be called while the channel is not connected. The
/// subscription is to be freed all the same.
///
/// # Safety
/// `channel` came from takt_channel_new, `subscription` from takt_channel_subscribe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_unsubscribe(
    channel: *const takt_channel,
    subscription: *const takt_subscription,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object(channel, "the channel") }?;
        // SAFETY: as above.
        let subscription = unsafe { object(subscription, "the subscription") }?;
        channel.channel.unsubscribe(&subscription.0).map_err(CallError::invalid)
    })
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
        let connected = channel.channel.connect(dispatcher.runs()?);
        channel.connected = Some(connected.map_err(|error| not_connected(&error))?);
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

/// A supplier that pushes events under this number.
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

/// Pushes an event, by any thread. Its handlers should have returned after `deadline_ns` (zero: it
/// has no deadline of its own). It is of no use after `ttl_ns` (zero: it does not expire).
///
/// The push copies the payload and allocates nothing. It takes locks with priority inheritance for
/// moments. It waits for room only at a node's level with TAKT_SENDING_PATIENT.
///
/// `pushed` may be null. A payload that is too long is TAKT_STATUS_INVALID, and so is a type of the
/// channel's own (the three largest).
///
/// # Safety
/// `supplier` came from takt_channel_supplier, `payload` points to `length` bytes (it may be null
/// where that is zero), `pushed` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_supplier_push(
    supplier: *const takt_supplier,
    kind: u32,
    payload: *const u8,
    length: usize,
    deadline_ns: u64,
    ttl_ns: u64,
    pushed: *mut takt_pushed,
) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition, here and below.
        let Some(supplier) = (unsafe { supplier.as_ref() }) else { return takt_status::Invalid };
        let bytes = match length {
            0 => &[],
            _ if payload.is_null() || length > PAYLOAD_MAX => return takt_status::Invalid,
            // SAFETY: as above, and the pointer is not null.
            _ => unsafe { std::slice::from_raw_parts(payload, length) },
        };
        let terms = Terms { deadline: or_never(deadline_ns), ttl: or_never(ttl_ns) };
        match supplier.0.push_on(kind, bytes, terms) {
            Ok(done) => {
                // SAFETY: as above.
                if let Some(into) = unsafe { pushed.as_mut() } {
                    *into = takt_pushed {
                        number: done.number,
                        taken: done.taken,
                        kept: done.kept,
                        rejected: done.rejected,
                        sent: done.sent,
                        unsent: done.unsent,
                    };
                }
                takt_status::Ok
            }
            Err(error) => not_taken(error),
        }
    })
}

/// Is shown an event of a channel's history, which is of use during that call. `user` is what was given with it.
pub type takt_event_viewer = Option<unsafe extern "C" fn(event: *const takt_event, user: *mut c_void)>;

/// Shows the remembered events that match the pattern and have not expired, the oldest first, on
/// the calling thread. They are a copy from the time of the call. Suppliers wait while the copy is
/// made, so handlers should not call this. A channel that was connected to another dispatcher since
/// has forgotten the events before.
///
/// # Safety
/// `channel` came from takt_channel_new, `pattern` can be read. `show` does not unwind, and may be
/// called with `user` meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_history(
    channel: *const takt_channel,
    pattern: *const takt_pattern,
    show: takt_event_viewer,
    user: *mut c_void,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let channel = unsafe { object(channel, "the channel") }?;
        // SAFETY: as above.
        let pattern = unsafe { object(pattern, "the pattern") }?.pattern();
        let show = show.ok_or_else(|| CallError::invalid("the function that shows the events is a null pointer"))?;
        channel.channel.history(pattern, |event| {
            let event = takt_event::of(event);
            // SAFETY: as above; the event lives during the call.
            unsafe { show(&event, user) }
        });
        Ok(())
    })
}

/// A change of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_change {
    /// It is new.
    Subscribed = 0,
    /// Events pass it by.
    Suspended = 1,
    /// It waits again.
    Resumed = 2,
    /// It waits for something else, or with another quality of service.
    Reconnected = 3,
    /// It is one no more.
    Unsubscribed = 4,
}

impl takt_change {
    fn of(change: Change) -> takt_change {
        match change {
            Change::Subscribed => takt_change::Subscribed,
            Change::Suspended => takt_change::Suspended,
            Change::Resumed => takt_change::Resumed,
            Change::Reconnected => takt_change::Reconnected,
            Change::Unsubscribed => takt_change::Unsubscribed,
        }
    }
}

/// Is told that the subscription of an operation changed: a takt_change. The name is of use during that call.
pub type takt_observer = Option<unsafe extern "C" fn(operation: *const c_char, change: u32, user: *mut c_void)>;

/// The `user` pointer of an observer. Every thread that changes a subscription uses it.
struct Watched(*mut c_void);

// SAFETY: by the condition of takt_channel_observe, any thread may use it, and several at a time.
unsafe impl Send for Watched {}

// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    /// By a method, so that a closure takes the whole.
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Reports every change of a subscription to `observer` from now on. The calling thread of the
/// change reports it before its call returns.
///
/// # Safety
/// `channel` came from takt_channel_new. `observer` does not unwind. Any thread that changes a
/// subscription may call it with `user`, several at a time, until the channel and all objects made
/// of it are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_observe(
    channel: *const takt_channel,
    observer: takt_observer,
    user: *mut c_void,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let channel = unsafe { object(channel, "the channel") }?;
        let observer = observer.ok_or_else(|| CallError::invalid("the observer is a null pointer"))?;
        let user = Watched(user);
        channel.channel.observe(move |operation, change| {
            // A name of a system file's may hold a zero byte.
            let name: Vec<u8> = operation.bytes().filter(|byte| *byte != 0).collect();
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: by this function's condition; the name lives during the call.
            unsafe { observer(name.as_ptr(), takt_change::of(change) as u32, user.get()) }
        });
        Ok(())
    })
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
