//! The job of a flow that a handler carries out.

use std::ffi::c_void;

use takt_run::handlers::LiveJob;

use crate::status::{push, takt_status};

/// A job of a flow that a handler is called for; of use during that call.
pub struct takt_flow_job {
    _private: [u8; 0],
}

/// Carries out the jobs of a flow at a node. It is called once for each job, on the real-time thread of
/// the hop. `user` is the pointer given with it.
///
/// The job ends when the handler returns. The thread may be frozen anywhere: the handler must share no
/// lock with another handler. It should not allocate, wait or unwind.
///
/// It may call takt_flow_job_* and takt_flow_node_end. The other takt_flow_node_* take locks, allocate,
/// or wait for the handler itself.
pub type takt_flow_handler = Option<unsafe extern "C" fn(job: *mut takt_flow_job, user: *mut c_void)>;

/// As C sees it.
pub(crate) fn job_of(job: &mut LiveJob<'_>) -> *mut takt_flow_job {
    std::ptr::from_mut(job).cast()
}

/// The value of `of` for a handler's job; none of a null pointer.
///
/// # Safety
/// `job` is null, or what a handler was called with, during that call.
unsafe fn of_job<R>(job: *const takt_flow_job, of: impl FnOnce(&LiveJob<'_>) -> R) -> Option<R> {
    // SAFETY: it is null, or `job_of` made it of a job that lives during the handler's call.
    unsafe { job.cast::<LiveJob<'_>>().as_ref() }.map(of)
}

/// The number of the job. On all hops of a flow it is that of the instance, from 0.
///
/// # Safety
/// `job` is what a handler was called with, during that call (of a null pointer all is zero); so for the calls below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_number(job: *const takt_flow_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.number) }.unwrap_or_default()
}

/// The hop of the flow: 0 is its first node. UINT32_MAX: the task is no hop of a flow.
///
/// # Safety
/// As takt_flow_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_hop(job: *const takt_flow_job) -> u32 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.hop.unwrap_or(u32::MAX)) }.unwrap_or_default()
}

/// The nominal arrival of the job, in ns since the common start of the nodes. On all hops of a flow it
/// is that of the instance. UINT64_MAX: unknown, as takt_flow_job_input says.
///
/// # Safety
/// As takt_flow_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_arrival_ns(job: *const takt_flow_job) -> u64 {
    let arrival = |job: &LiveJob<'_>| job.times.map_or(u64::MAX, |times| times.arrival.as_ns());
    // SAFETY: by this function's condition.
    unsafe { of_job(job, arrival) }.unwrap_or_default()
}

/// The release of the job, in ns since the common start: of a later hop the end of the receiving job
/// that took its message. UINT64_MAX: unknown, as takt_flow_job_input says.
///
/// # Safety
/// As takt_flow_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_release_ns(job: *const takt_flow_job) -> u64 {
    let release = |job: &LiveJob<'_>| job.times.map_or(u64::MAX, |times| times.release.as_ns());
    // SAFETY: by this function's condition.
    unsafe { of_job(job, release) }.unwrap_or_default()
}

/// The absolute deadline of the job, in ns since the common start. UINT64_MAX: unknown, as
/// takt_flow_job_input says.
///
/// # Safety
/// As takt_flow_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_deadline_ns(job: *const takt_flow_job) -> u64 {
    let deadline = |job: &LiveJob<'_>| job.times.map_or(u64::MAX, |times| times.deadline.as_ns());
    // SAFETY: by this function's condition.
    unsafe { of_job(job, deadline) }.unwrap_or_default()
}

/// The time now, in ns since the common start.
///
/// # Safety
/// As takt_flow_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_now_ns(job: *const takt_flow_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.now().as_ns()) }.unwrap_or_default()
}

/// The bytes that the job of the hop before has sent; `length` gets how many. They stay until the handler
/// returns. On the first hop there are none.
///
/// A null pointer, and a length of zero: they are lost, because 64 later messages have come. The times of
/// the job are then unknown, too. `length` may be null.
///
/// # Safety
/// As takt_flow_job_number; `length` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_input(job: *const takt_flow_job, length: *mut usize) -> *const u8 {
    let of = |job: &LiveJob<'_>| job.input.map_or((std::ptr::null(), 0), |input| (input.as_ptr(), input.len()));
    // SAFETY: by this function's condition, here and below.
    let (input, bytes) = unsafe { of_job(job, of) }.unwrap_or((std::ptr::null(), 0));
    // SAFETY: as above.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = bytes;
    }
    input
}

/// The most bytes that the message of this job takes: the `size` of the flow less 120. Zero on the last
/// hop.
///
/// # Safety
/// As takt_flow_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_room(job: *const takt_flow_job) -> usize {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.room()) }.unwrap_or_default()
}

/// Puts bytes into the message that the job leaves at its end, behind those of earlier calls.
/// TAKT_STATUS_FULL: there is no room for all of them, and the message stays as it was. Like a push it
/// leaves no text and allocates nothing.
///
/// # Safety
/// As takt_flow_job_number; `bytes` points to `length` bytes, or `length` is zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_job_send(
    job: *mut takt_flow_job,
    bytes: *const c_void,
    length: usize,
) -> takt_status {
    push(|| {
        // SAFETY: by this function's condition; nobody else uses the job during the handler's call.
        let Some(job) = (unsafe { job.cast::<LiveJob<'_>>().as_mut() }) else { return takt_status::Invalid };
        if bytes.is_null() && length > 0 {
            return takt_status::Invalid;
        }
        // More than any message takes, also where no slice could have that many.
        if length > job.room() {
            return takt_status::Full;
        }
        // SAFETY: by this function's condition, and it is not null unless it is empty.
        let bytes = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) } };
        match job.send(bytes) {
            Ok(()) => takt_status::Ok,
            Err(_) => takt_status::Full,
        }
    })
}
