//! Filters: what an operation waits for beyond one group of patterns.

use std::ffi::c_char;

use takt_dispatch::event::Filter;
use takt_model::Span;

use crate::channel::{EVENTS_MAX, quality_of, takt_channel, takt_group, takt_pattern, takt_quality, takt_subscription};
use crate::plan::takt_plan;
use crate::status::{CallError, call, free, give, object, place, takt_status, text};

/// A condition on events: one event, or a group of filters. It waits for at most 64 events, and is
/// at most 16 filters deep. A group copies its filters, which stay the caller's.
pub struct takt_filter(Filter);

/// Hands a filter to C, unless it is wrong.
///
/// # Safety
/// `into` is null or may be written.
unsafe fn made(filter: Filter, into: *mut *mut takt_filter) -> Result<(), CallError> {
    // Now, and not when it is used: nobody is to copy a filter that is too deep.
    if let Some(wrong) = filter.wrong() {
        return Err(CallError::invalid(format_args!("the filter: {wrong}")));
    }
    // SAFETY: by this function's condition.
    unsafe { give(into, takt_filter(filter)) }
}

/// One event.
///
/// # Safety
/// `pattern` can be read, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_filter_one(pattern: *const takt_pattern, into: *mut *mut takt_filter) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let pattern = unsafe { object(pattern, "the pattern") }?;
        // SAFETY: as above.
        unsafe { made(Filter::One(pattern.pattern()), into) }
    })
}

/// `count` filters (64 at most), which `group` (a takt_group) joins.
///
/// # Safety
/// `members` points to `count` filters that came from calls that make them, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_filter_group(
    group: u32,
    members: *const *const takt_filter,
    count: usize,
    into: *mut *mut takt_filter,
) -> takt_status {
    call(|| {
        if members.is_null() || count == 0 || count > EVENTS_MAX {
            return Err(CallError::invalid(format_args!("a group has from 1 to {EVENTS_MAX} members")));
        }
        // SAFETY: by this function's condition, here and below, and the pointer is not null.
        let members = unsafe { std::slice::from_raw_parts(members, count) };
        // SAFETY: as above.
        let member = |member: &*const takt_filter| unsafe { object(*member, "a member of the group") };
        let members = members.iter().map(|at| Ok(member(at)?.0.clone())).collect::<Result<Vec<Filter>, CallError>>()?;
        let filter = takt_group::of(group, members).ok_or_else(|| CallError::invalid("the group has no takt_group"))?;
        // SAFETY: as above.
        unsafe { made(filter, into) }
    })
}

/// A filter that is complete without an event of `unless` since it began to wait. Such an event
/// makes it begin anew.
///
/// # Safety
/// `filter` came from a call that makes filters, `unless` can be read, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_filter_without(
    filter: *const takt_filter,
    unless: *const takt_pattern,
    into: *mut *mut takt_filter,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let filter = unsafe { object(filter, "the filter") }?;
        // SAFETY: as above.
        let unless = unsafe { object(unless, "the pattern of what must not come") }?;
        // SAFETY: as above.
        unsafe { made(filter.0.clone().without(unless.pattern()), into) }
    })
}

/// No event that `of` means for `span_ns`, which is 100 us or more. It comes as an event of the type TAKT_KIND_TIMEOUT.
///
/// # Safety
/// `of` can be read, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_filter_silence(
    of: *const takt_pattern,
    span_ns: u64,
    into: *mut *mut takt_filter,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let of = unsafe { object(of, "the pattern") }?.pattern();
        // SAFETY: as above.
        unsafe { made(Filter::Silence { of, span: Span::from_ns(span_ns) }, into) }
    })
}

/// `span_ns` after it began to wait, which is 100 us or more. It comes as an event of the type TAKT_KIND_TIMEOUT.
///
/// # Safety
/// `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_filter_timeout(span_ns: u64, into: *mut *mut takt_filter) -> takt_status {
    // SAFETY: by this function's condition.
    call(|| unsafe { made(Filter::Timeout(Span::from_ns(span_ns)), into) })
}

/// Frees a filter; a null pointer is no harm. Filters and subscriptions made of it stay.
///
/// # Safety
/// It came from a call that makes filters, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_filter_free(filter: *mut takt_filter) {
    // SAFETY: by this function's condition.
    unsafe { free(filter) }
}

/// As takt_channel_subscribe, with a filter and a quality of service; that may be null.
///
/// # Safety
/// `channel`, `plan` and `filter` came from calls that make them, `operation` is a string,
/// `quality` is null or points to one, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_channel_subscribe_filter(
    channel: *const takt_channel,
    plan: *const takt_plan,
    operation: *const c_char,
    filter: *const takt_filter,
    quality: *const takt_quality,
    into: *mut *mut takt_subscription,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let (channel, plan) = unsafe { (object(channel, "the channel")?, object(plan, "the plan")?) };
        // SAFETY: as above.
        let (operation, filter) = unsafe { (text(operation, "the operation's name")?, object(filter, "the filter")?) };
        // SAFETY: as above.
        let quality = unsafe { quality_of(filter.0.clone(), quality) };
        place(into)?;
        let subscription = channel.channel.subscribe(&plan.0, operation, quality).map_err(CallError::invalid)?;
        // SAFETY: as above.
        unsafe { give(into, takt_subscription(subscription)) }
    })
}

/// As takt_subscription_reconnect, with a filter. By any thread.
///
/// # Safety
/// `subscription` and `filter` came from calls that make them, `quality` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_subscription_reconnect_filter(
    subscription: *const takt_subscription,
    filter: *const takt_filter,
    quality: *const takt_quality,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let subscription = unsafe { object(subscription, "the subscription") }?;
        // SAFETY: as above.
        let filter = unsafe { object(filter, "the filter") }?;
        // SAFETY: as above.
        let quality = unsafe { quality_of(filter.0.clone(), quality) };
        subscription.0.reconnect(quality).map_err(CallError::invalid)
    })
}
