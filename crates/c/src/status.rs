//! The status of a call, and its text for a failure.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use takt_model::Span;

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_status {
    /// Success.
    Ok = 0,
    /// A null pointer, a name that nothing has, a value out of its range, or a call that comes too early or too late.
    Invalid = 1,
    /// The operations are no plan under that strategy; all that is wrong is told.
    Unplannable = 2,
    /// A privilege is missing; what to grant is told.
    Privilege = 3,
    /// The kernel refused something else.
    Refused = 4,
    /// A push: as many jobs as the operation's backlog allows wait or run. takt_deadline: bytes still wait.
    Full = 5,
    /// A push: the operation's least distance is not over.
    TooEarly = 6,
    /// A push: the dispatcher, or the channel, is not there any more, or not yet.
    Stopped = 7,
    /// A handler does not return: what it uses is to stay.
    Trouble = 8,
    /// A defect of takt.
    Panic = 9,
    /// A push: the operation takes no part in the mode that holds.
    Absent = 10,
    /// The log could not be written, or not to its end.
    Unwritten = 11,
}

/// Why a call failed.
pub(crate) struct CallError {
    pub(crate) status: takt_status,
    pub(crate) text: String,
}

impl CallError {
    pub(crate) fn new(status: takt_status, text: impl Display) -> CallError {
        CallError { status, text: text.to_string() }
    }

    pub(crate) fn invalid(text: impl Display) -> CallError {
        CallError::new(takt_status::Invalid, text)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs the body of a call. Keeps its text of a failure for `takt_last_error`, and stops panics.
pub(crate) fn call(body: impl FnOnce() -> Result<(), CallError>) -> takt_status {
    let wrong = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return takt_status::Ok,
        Ok(Err(wrong)) => wrong,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            CallError::new(takt_status::Panic, format_args!("a defect of takt: {text}"))
        }
    };
    let text: Vec<u8> = wrong.text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    LAST.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    wrong.status
}

/// The same for a push, which leaves no text: that would be an allocation.
pub(crate) fn push(body: impl FnOnce() -> takt_status) -> takt_status {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(takt_status::Panic)
}

/// The text of this thread's last failed call: the error, its place, and the remedy. It stays until
/// another call fails. Pushes are for real-time threads and leave no text: use takt_status_text for
/// their status.
#[unsafe(no_mangle)]
pub extern "C" fn takt_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// The version of takt, such as "0.1.0"; it lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn takt_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The meaning of a status, in a few words; for any number.
#[unsafe(no_mangle)]
pub extern "C" fn takt_status_text(status: u32) -> *const c_char {
    let known = |known: takt_status| known as u32 == status;
    let text = match () {
        () if known(takt_status::Ok) => c"done",
        () if known(takt_status::Invalid) => {
            c"a null pointer, an unknown name, a value out of its range, or a call at the wrong time"
        }
        () if known(takt_status::Unplannable) => c"the operations are no plan under that strategy",
        () if known(takt_status::Privilege) => c"a privilege is missing",
        () if known(takt_status::Refused) => c"the kernel refused",
        () if known(takt_status::Full) => c"the operation's backlog is full",
        () if known(takt_status::TooEarly) => c"the operation's least distance is not over",
        () if known(takt_status::Stopped) => c"the dispatcher or the channel is not there",
        () if known(takt_status::Trouble) => c"a handler does not return",
        () if known(takt_status::Panic) => c"a defect of takt",
        () if known(takt_status::Absent) => c"the operation takes no part in the mode that holds",
        () if known(takt_status::Unwritten) => c"the log could not be written",
        () => c"no status of takt",
    };
    text.as_ptr()
}

/// A string of C's.
///
/// # Safety
/// `text` is null, or ends with a zero byte and lives as long as what is returned.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, CallError> {
    if text.is_null() {
        return Err(CallError::invalid(format_args!("{what} is a null pointer")));
    }
    // SAFETY: it is not null, so that by this function's condition it ends with a zero byte.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| CallError::invalid(format_args!("{what} is not UTF-8")))
}

/// The value behind a pointer of C's.
///
/// # Safety
/// `pointer` is null, or points to a value that nobody changes while what is returned lives.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, CallError> {
    // SAFETY: by this function's condition.
    unsafe { pointer.as_ref() }.ok_or_else(|| CallError::invalid(format_args!("{what} is a null pointer")))
}

/// The same, to change it.
///
/// # Safety
/// `pointer` is null, or points to a value that nobody else uses while what is returned lives.
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, CallError> {
    // SAFETY: by this function's condition.
    unsafe { pointer.as_mut() }.ok_or_else(|| CallError::invalid(format_args!("{what} is a null pointer")))
}

/// Hands a new object to C.
///
/// # Safety
/// `into` is null or may be written.
pub(crate) unsafe fn give<T>(into: *mut *mut T, value: T) -> Result<(), CallError> {
    place(into)?;
    // SAFETY: it is not null, so that by this function's condition it may be written.
    unsafe { into.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Whether there is a place for a new object: to be asked before anything is done for it.
pub(crate) fn place<T>(into: *mut *mut T) -> Result<(), CallError> {
    if into.is_null() { Err(CallError::invalid("the pointer to the new object is null")) } else { Ok(()) }
}

/// Takes an object back from C and frees it.
///
/// # Safety
/// `object` is null or came from [`give`] and is not used any more.
pub(crate) unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // A destructor that panics ends with its object.
        // SAFETY: by this function's condition it is a box that nobody else has.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(object) })));
    }
}

/// A duration from C, where zero means no end.
pub(crate) fn or_never(ns: u64) -> Span {
    if ns == 0 { Span::MAX } else { Span::from_ns(ns) }
}

/// Copies a text to C, cut to fit and ended by a zero byte; how many bytes it has without that.
///
/// # Safety
/// `into` is null, or `size` bytes of it may be written.
pub(crate) unsafe fn copy(text: &str, into: *mut c_char, size: usize) -> usize {
    let most = text.len().min(size.saturating_sub(1));
    // Not within a character.
    let length = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    if !into.is_null() && size > 0 {
        // SAFETY: by this function's condition `length + 1 <= size` bytes may be written, and Rust's text is
        // other memory.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), into, length);
            into.add(length).write(0);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_and_its_text_stays() {
        std::panic::set_hook(Box::new(|_| {}));
        let statuses = [call(|| panic!("of this test")), call(|| std::panic::panic_any(1)), push(|| panic!())];
        let _ = std::panic::take_hook();
        assert_eq!(statuses, [takt_status::Panic; 3]);
        // SAFETY: it ends with a zero byte, and this thread makes no call meanwhile.
        let said = unsafe { CStr::from_ptr(takt_last_error()) };
        assert_eq!(said, c"a defect of takt: no reason given", "a push leaves no text");
        // SAFETY: each is a literal.
        let of = |status: takt_status| unsafe { CStr::from_ptr(takt_status_text(status as u32)) };
        assert_eq!(
            (of(takt_status::Panic), of(takt_status::Unwritten)),
            (c"a defect of takt", c"the log could not be written")
        );
    }
}
