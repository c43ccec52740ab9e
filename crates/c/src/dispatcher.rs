//! A dispatcher: handlers of a plan's operations on SCHED_FIFO threads.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::AsRawFd as _;

use takt_dispatch::{Adaptive, Dispatcher, Dispatching, Handle, Job, KINDS, Options, PushError, StartError, StopError};
use takt_log::{BackEnd, Definitions, Header, NullSink, Writer};
use takt_model::Span;

use crate::log_place::{Log, LogPlace, unwritten};
use crate::plan::takt_plan;
use crate::refusal::refused;
use crate::status::{CallError, call, copy, free, give, object, object_mut, push, takt_status, text};

/// The job that a handler is called for; of use during that call.
pub struct takt_job {
    _private: [u8; 0],
}

/// The code of an operation, called once a job on a real-time thread. It should not wait. `user` is
/// the pointer given with it.
///
/// The handler may call takt_job_must_stop and the other calls for its job. It may call pushes, and
/// all other calls that any thread may make at any time. It may not make calls of its dispatcher,
/// because another thread may be using the dispatcher meanwhile: not takt_dispatcher_stop or _free,
/// nor _switch, _holds, _counts, _operation or _now_ns (takt_job_now_ns gives the same time).
pub type takt_handler = Option<unsafe extern "C" fn(job: *const takt_job, user: *mut c_void)>;

/// The `user` pointer of a handler, used on the dispatcher's threads.
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: by the condition of the call that gives it to a handler, the dispatcher's threads may use it.
unsafe impl Send for User {}

impl User {
    /// By a method, so that a closure takes the whole.
    pub(crate) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// As C sees it.
pub(crate) fn job_of(job: &Job<'_>) -> *const takt_job {
    std::ptr::from_ref(job).cast()
}

/// How a dispatcher runs. All zero is the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_options {
    /// Run without privilege and without any guarantee, as ordinary threads. Without it a missing
    /// privilege is TAKT_STATUS_PRIVILEGE.
    pub best_effort: bool,
    /// Timers release no job at or after this; zero: they go on.
    pub duration_ns: u64,
    /// Facts that each CPU keeps between two calls of takt_dispatcher_drain; more are lost and counted. Zero: 65,536.
    pub records: usize,
}

/// The outcomes of an operation's jobs. released = completed + cancelled + rejected + unfinished.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_counts {
    /// Jobs released.
    pub released: u64,
    /// Jobs that came to their end.
    pub completed: u64,
    /// Jobs that completed after their deadline.
    pub late: u64,
    /// Jobs omitted, or shed with a predecessor.
    pub cancelled: u64,
    /// Jobs not queued, for too many of the operation waited or ran.
    pub rejected: u64,
    /// Jobs that wait, run, were dropped at their deadline, or failed.
    pub unfinished: u64,
    /// Deadlines not met so far. Counts jobs that were not complete by their deadline, even if they
    /// still wait or run. Counts jobs that can no longer meet it: cancelled, rejected, dropped and
    /// failed ones. A monitor should use this count, because `late` counts only completed jobs.
    pub unmet: u64,
    /// Jobs that executed for longer than the operation's wcet, where its takt_overrun watches that.
    pub overran: u64,
}

/// A dispatcher before its start, while it runs, and after its stop.
pub struct takt_dispatcher {
    built: Option<Dispatcher>,
    /// The operations that have a handler.
    handled: Vec<String>,
    /// Whether its start was tried in vain, which has used it up.
    refused: bool,
    pub(crate) running: Option<Dispatching>,
    /// Before the start.
    place: Option<LogPlace>,
    log: Option<Log>,
    /// The operation of the last overrun that was taken.
    overran: CString,
    /// At the end.
    counts: Vec<(String, takt_dispatch::Counts)>,
}

/// An operation of a dispatcher that runs, to push jobs of.
pub struct takt_handle(Handle);

/// A dispatcher for a plan, which it copies.
///
/// # Safety
/// `plan` came from a call that makes plans, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_new(plan: *const takt_plan, into: *mut *mut takt_dispatcher) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let plan = unsafe { object(plan, "the plan") }?;
        let dispatcher = takt_dispatcher {
            built: Some(Dispatcher::new(plan.0.clone())),
            handled: Vec::new(),
            refused: false,
            running: None,
            place: None,
            log: None,
            overran: CString::default(),
            counts: Vec::new(),
        };
        // SAFETY: as above.
        unsafe { give(into, dispatcher) }
    })
}

impl takt_dispatcher {
    /// Gives a handler to an operation.
    pub(crate) fn handle(
        &mut self,
        operation: &str,
        handler: impl FnMut(&Job<'_>) + Send + 'static,
    ) -> Result<(), CallError> {
        self.can_handle(operation)?;
        if let Some(built) = self.built.take() {
            self.built = Some(built.on(operation, handler).map_err(CallError::invalid)?);
            self.handled.push(operation.to_owned());
        }
        Ok(())
    }

    /// Why something that is done before the start cannot be done.
    fn too_late(&self, why: &str) -> CallError {
        let refused = "the start of this dispatcher was refused, so it cannot start again: make another one of the \
             same plan";
        CallError::invalid(if self.refused { refused } else { why })
    }

    /// While it runs.
    pub(crate) fn runs(&self) -> Result<&Dispatching, CallError> {
        self.running.as_ref().ok_or_else(|| CallError::new(takt_status::Stopped, "the dispatcher does not run"))
    }

    /// Whether an operation can be given a handler.
    pub(crate) fn can_handle(&self, operation: &str) -> Result<(), CallError> {
        let Some(built) = &self.built else {
            return Err(self.too_late("the dispatcher has started: handlers are given before that"));
        };
        if !built.plan().rows.iter().any(|row| row.name == operation) {
            return Err(CallError::invalid(format_args!("the plan has no operation \"{operation}\" to handle")));
        }
        if self.handled.iter().any(|handled| handled == operation) {
            return Err(CallError::invalid(StartError::Doubled(operation.to_owned())));
        }
        Ok(())
    }
}

/// Gives an operation its handler, which is called with `user`. To be called before the start;
/// every operation needs one.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new, `operation` is a string. `handler` does not unwind.
/// Until takt_dispatcher_stop has answered TAKT_STATUS_OK, any of the dispatcher's threads may call
/// it with `user`, one call at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_on(
    dispatcher: *mut takt_dispatcher,
    operation: *const c_char,
    handler: takt_handler,
    user: *mut c_void,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        // SAFETY: as above.
        let operation = unsafe { text(operation, "the operation's name") }?;
        let handler = handler.ok_or_else(|| CallError::invalid("the handler is a null pointer"))?;
        let user = User(user);
        // SAFETY: as above; the job lives during the call.
        dispatcher.handle(operation, move |job| unsafe { handler(job_of(job), user.get()) })
    })
}

/// The longest response of a critical operation under the guard of takt_dispatcher_adaptive. It
/// assumes that the first plan has delayed the other critical operations as much as it may.
/// takt_plan_guarded gives the system file for which `takt check` finds this response. A smaller
/// one, such as the response under the guard's plan alone, can lose critical deadlines.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_response {
    /// The operation's name.
    pub operation: *const c_char,
    /// From its arrival to its completion, at the most.
    pub longest_ns: u64,
}

/// Moves by itself between two plans. It switches to the guard, a mode's plan, while a critical job
/// is in danger. It switches back to the first plan (0) after two windows of a second with idle
/// time.
///
/// A job is in danger when its time to the deadline is no more than the sum of three parts: its
/// operation's response under the guard, 500 us for the switch, and the work that the first plan
/// may leave started in several levels. For an operation without a response, half of the deadline
/// is taken, which promises nothing.
///
/// Call this before the start, for a plan whose modes differ in their strategies alone. The start
/// reports whether the controller fits the plan.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new; `responses` points to `count` of them, or `count` is zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_adaptive(
    dispatcher: *mut takt_dispatcher,
    guard: usize,
    responses: *const takt_response,
    count: usize,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        if count > 0 && responses.is_null() {
            return Err(CallError::invalid("the responses are a null pointer"));
        }
        let mut law = Adaptive::between(0, guard);
        for at in 0..count {
            // SAFETY: `responses` points to `count` of them.
            let takt_response { operation, longest_ns } = unsafe { responses.add(at).read() };
            // SAFETY: by this function's condition.
            law = law
                .response(unsafe { text(operation, "the name of a response's operation") }?, Span::from_ns(longest_ns));
        }
        let built = dispatcher.built.take();
        let too_late = || dispatcher.too_late("the dispatcher has started: its controller is given before");
        let built = built.ok_or_else(too_late)?;
        dispatcher.built = Some(built.adaptive(law));
        Ok(())
    })
}

/// Writes all that happens to a log, which `takt stats`, `takt chart` and the others read. To be
/// called before the start; takt_dispatcher_drain writes on. A file that is there stays as it is
/// until the dispatcher has started. TAKT_STATUS_UNWRITTEN: there can be no such file.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new, `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_log(dispatcher: *mut takt_dispatcher, path: *const c_char) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let (dispatcher, path) = unsafe { (object_mut(dispatcher, "the dispatcher")?, text(path, "the path")?) };
        if dispatcher.built.is_none() {
            return Err(dispatcher.too_late("the dispatcher has started: a log is opened before that"));
        }
        // Perhaps the same file, and new.
        dispatcher.place = None;
        dispatcher.place = Some(LogPlace::open(path)?);
        Ok(())
    })
}

/// Starts all threads and returns at their time zero. `options` may be null. A dispatcher can be
/// started only once. After a refused start, make another dispatcher of the same plan.
///
/// A refused start leaves an existing file at the log's path as it was. TAKT_STATUS_UNWRITTEN is
/// the exception: the threads had started when the log could not be begun, and have stopped again.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new; `options` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_start(
    dispatcher: *mut takt_dispatcher,
    options: *const takt_options,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        // SAFETY: as above.
        let wanted = unsafe { options.as_ref() };
        let built = dispatcher.built.take();
        let built = built.ok_or_else(|| dispatcher.too_late("the dispatcher has started before"))?;
        let default = Options::default();
        let options = wanted.map_or(default, |wanted| Options {
            best_effort: wanted.best_effort,
            duration: (wanted.duration_ns > 0).then(|| Span::from_ns(wanted.duration_ns)),
            records: if wanted.records > 0 { wanted.records } else { default.records },
            ..default
        });
        let place = dispatcher.place.take();
        dispatcher.refused = true;
        let back_end = if options.best_effort { BackEnd::RunBestEffort } else { BackEnd::Run };
        let header = Header::new(String::new(), None, back_end, KINDS);
        let definitions = Definitions::of(&built.plan().system);
        if place.is_some() {
            // Whether a log can have such a head at all.
            Writer::new(io::sink(), &header, &definitions).map_err(unwritten)?;
        }
        let running = built.with(options).start().map_err(|error| refused(&error))?;
        // On an error the dispatcher stops again.
        dispatcher.log = place.map(|place| place.begin(&header, &definitions)).transpose()?;
        (dispatcher.running, dispatcher.refused) = (Some(running), false);
        Ok(())
    })
}

/// An operation of a dispatcher that runs, to push jobs of it. It may outlive the dispatcher;
/// pushes answer TAKT_STATUS_STOPPED then.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new, `operation` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_operation(
    dispatcher: *const takt_dispatcher,
    operation: *const c_char,
    into: *mut *mut takt_handle,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let dispatcher = unsafe { object(dispatcher, "the dispatcher") }?;
        // SAFETY: as above.
        let name = unsafe { text(operation, "the operation's name") }?;
        let running = dispatcher.runs()?;
        let handle = running.operation(name);
        let handle = handle.ok_or_else(|| CallError::invalid(format_args!("the plan has no operation \"{name}\"")))?;
        // SAFETY: as above.
        unsafe { give(into, takt_handle(handle)) }
    })
}

/// Releases a job now, by any thread. Takes a lock with priority inheritance for a moment,
/// allocates nothing, never waits for room.
///
/// # Safety
/// `operation` came from takt_dispatcher_operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operation_push(operation: *const takt_handle) -> takt_status {
    // SAFETY: by this function's condition.
    push(|| match unsafe { operation.as_ref() }.map(|operation| operation.0.push()) {
        Some(Ok(_)) => takt_status::Ok,
        Some(Err(PushError::Full)) => takt_status::Full,
        Some(Err(PushError::TooEarly { .. })) => takt_status::TooEarly,
        Some(Err(PushError::Stopped)) => takt_status::Stopped,
        Some(Err(PushError::Absent)) => takt_status::Absent,
        Some(Err(PushError::NotPushed)) | None => takt_status::Invalid,
    })
}

/// Frees what takt_dispatcher_operation gave; a null pointer is no harm.
///
/// # Safety
/// It came from there, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operation_free(operation: *mut takt_handle) {
    // SAFETY: by this function's condition.
    unsafe { free(operation) }
}

/// The time since the dispatcher's start; zero where it does not run.
///
/// # Safety
/// `dispatcher` is null or came from takt_dispatcher_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_now_ns(dispatcher: *const takt_dispatcher) -> u64 {
    // SAFETY: by this function's condition.
    let running = unsafe { dispatcher.as_ref() }.and_then(|dispatcher| dispatcher.running.as_ref());
    running.map_or(0, |running| running.now().as_ns())
}

/// Switches to another plan: 0 is the plan of the node's strategy, k the plan of its k-th mode. No
/// job or event is lost or repeated. A controller (takt_dispatcher_adaptive) goes on from there. It
/// rests while the plan is neither of its two.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_switch(dispatcher: *const takt_dispatcher, plan: usize) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let dispatcher = unsafe { object(dispatcher, "the dispatcher") }?;
        let running = dispatcher.runs()?;
        let modes = running.plan().modes.len();
        let none =
            || CallError::invalid(format_args!("there is no plan {plan}: this one has {modes} modes, counted from 1"));
        running.switch(plan).map(drop).ok_or_else(none)
    })
}

/// Which plan holds, counted as for takt_dispatcher_switch; zero where the dispatcher does not run.
/// A controller may have changed it since.
///
/// # Safety
/// `dispatcher` is null or came from takt_dispatcher_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_holds(dispatcher: *const takt_dispatcher) -> usize {
    // SAFETY: by this function's condition.
    let running = unsafe { dispatcher.as_ref() }.and_then(|dispatcher| dispatcher.running.as_ref());
    running.map_or(0, Dispatching::holds)
}

/// Warnings about operations that may use more of a CPU than the kernel leaves real-time threads,
/// as it was set at the start. One sentence per line. Copied as takt_plan_text does it. Returns the
/// number of bytes: zero without a warning, on ordinary threads, or if the dispatcher does not run.
///
/// # Safety
/// `dispatcher` is null or came from takt_dispatcher_new; `into` is null, or `size` bytes of it may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_warnings(
    dispatcher: *const takt_dispatcher,
    into: *mut c_char,
    size: usize,
) -> usize {
    let mut length = 0;
    let _ = call(|| {
        // SAFETY: by this function's condition, here and below.
        let dispatcher = unsafe { object(dispatcher, "the dispatcher") }?;
        let text = dispatcher.running.as_ref().map_or_else(String::new, |running| running.warnings().join("\n"));
        // SAFETY: as above.
        length = unsafe { copy(&text, into, size) };
        Ok(())
    });
    length
}

/// Writes the events since the last call to the log, or forgets them if there is no log. Call it
/// often enough that `records` are not exceeded.
///
/// TAKT_STATUS_UNWRITTEN means that the log could not be written (a full disk). The log ends there;
/// the dispatcher goes on. Writing is buffered, so takt_dispatcher_stop may be the first call to
/// report this.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_drain(dispatcher: *mut takt_dispatcher) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        let takt_dispatcher { running: Some(running), log, .. } = dispatcher else {
            return Err(CallError::new(takt_status::Stopped, "the dispatcher does not run"));
        };
        match log {
            Some(log) => {
                running.drain(log);
                log.error().map_or(Ok(()), |error| Err(unwritten(error)))
            }
            None => {
                running.drain(&mut NullSink);
                Ok(())
            }
        }
    })
}

/// The outcomes of an operation's jobs: so far, or in the end.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new, `operation` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_counts(
    dispatcher: *const takt_dispatcher,
    operation: *const c_char,
    into: *mut takt_counts,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let dispatcher = unsafe { object(dispatcher, "the dispatcher") }?;
        // SAFETY: as above.
        let name = unsafe { text(operation, "the operation's name") }?;
        // SAFETY: as above.
        let into = unsafe { object_mut(into, "the pointer to the counts") }?;
        let now = dispatcher.running.as_ref().map(Dispatching::counts);
        let all = now.as_ref().unwrap_or(&dispatcher.counts);
        let found = all.iter().find(|(operation, _)| operation == name);
        let (_, counts) = found.ok_or_else(|| {
            CallError::invalid(format_args!(
                "nothing is counted of an operation \"{name}\": there is none, or nothing ran"
            ))
        })?;
        *into = takt_counts {
            released: counts.released,
            completed: counts.completed,
            late: counts.late,
            cancelled: counts.cancelled,
            rejected: counts.rejected,
            unfinished: counts.unfinished(),
            unmet: counts.unmet,
            overran: counts.overran,
        };
        Ok(())
    })
}

/// A job that executed for longer than its operation's wcet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_overran {
    /// Its operation; of use until the next one is taken.
    pub operation: *const c_char,
    /// Its number among those of its operation, from 0.
    pub job: u64,
    /// When that was found, since the dispatcher's start: while the job ran.
    pub at_ns: u64,
}

/// A descriptor for poll, select or epoll. It is readable while an overrun waits; the loop then
/// calls takt_dispatcher_next_overrun until that returns false. It may be readable once in vain. Do
/// not close or read it: the dispatcher closes it at its stop or free. -1 if the dispatcher does
/// not run, or no descriptor can be had.
///
/// # Safety
/// `dispatcher` is null or came from takt_dispatcher_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_overrun_fd(dispatcher: *const takt_dispatcher) -> c_int {
    // SAFETY: by this function's condition.
    let running = unsafe { dispatcher.as_ref() }.and_then(|dispatcher| dispatcher.running.as_ref());
    running.and_then(|running| Some(running.overruns().descriptor().ok()?.as_raw_fd())).unwrap_or(-1)
}

/// Takes the oldest waiting overrun of the operations with a watched wcet. Returns whether there
/// was one. Never waits. At most 256 wait: takt_counts counts them all.
///
/// # Safety
/// `dispatcher` is null or came from takt_dispatcher_new, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_next_overrun(
    dispatcher: *mut takt_dispatcher,
    into: *mut takt_overran,
) -> bool {
    let mut was_there = false;
    let _ = push(|| {
        // SAFETY: by this function's condition, here and below.
        let (Some(dispatcher), Some(into)) = (unsafe { dispatcher.as_mut() }, unsafe { into.as_mut() }) else {
            return takt_status::Invalid;
        };
        let overran = dispatcher.running.as_ref().and_then(|running| running.overruns().next(Span::ZERO));
        let Some(overran) = overran else { return takt_status::Ok };
        // A name of a system file's may hold a zero byte.
        let name: Vec<u8> = overran.operation.bytes().filter(|byte| *byte != 0).collect();
        dispatcher.overran = CString::new(name).unwrap_or_default();
        *into = takt_overran { operation: dispatcher.overran.as_ptr(), job: overran.job, at_ns: overran.at.as_ns() };
        was_there = true;
        takt_status::Ok
    });
    was_there
}

/// Stops the dispatcher. No job starts any more; running jobs may return (5 s at most). Do not call
/// it from a handler.
///
/// The log is then complete, unless it could not be written, which is TAKT_STATUS_UNWRITTEN. After
/// TAKT_STATUS_OK and TAKT_STATUS_UNWRITTEN no handler runs any more. After TAKT_STATUS_TROUBLE (or
/// _PANIC) a handler may still run, and its data must stay. If the log failed too, this status is
/// returned, and takt_last_error reports both.
///
/// # Safety
/// `dispatcher` came from takt_dispatcher_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_stop(dispatcher: *mut takt_dispatcher) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        dispatcher.stop()
    })
}

impl takt_dispatcher {
    fn stop(&mut self) -> Result<(), CallError> {
        let running = self.running.take();
        let running = running.ok_or_else(|| CallError::new(takt_status::Stopped, "the dispatcher does not run"))?;
        // If a thread of the dispatcher panicked, these are the last known counts.
        self.counts = running.counts();
        let now = running.now();
        let mut log = self.log.take();
        let stopped = match &mut log {
            Some(log) => running.stop(log),
            None => running.stop(&mut NullSink),
        };
        let text = stopped.as_ref().err().map_or_else(String::new, StopError::to_string);
        let (status, stopped) = match stopped {
            Ok(stopped) => (takt_status::Ok, Some(stopped)),
            Err(StopError::Stuck { stopped, .. }) => (takt_status::Trouble, Some(*stopped)),
            Err(StopError::Panicked { .. }) => (takt_status::Panic, None),
        };
        let end = stopped.as_ref().map_or(now, |stopped| stopped.end);
        if let Some(stopped) = stopped {
            self.counts = stopped.counts;
        }
        let written = log.map_or(Ok(()), |log| log.finish(end).map(drop)).map_err(unwritten);
        match (status, written) {
            (takt_status::Ok, written) => written,
            (status, Ok(())) => Err(CallError::new(status, text)),
            (status, Err(log)) => Err(CallError::new(status, format_args!("{text}; {}", log.text))),
        }
    }
}

/// Stops a dispatcher if it runs, as takt_dispatcher_stop, and frees it; a null pointer is no harm.
/// Whether a handler runs on only takt_dispatcher_stop tells.
///
/// # Safety
/// It came from takt_dispatcher_new, and is not used any more, nor is a channel connected to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_dispatcher_free(dispatcher: *mut takt_dispatcher) {
    let _ = call(|| {
        // SAFETY: by this function's condition.
        let dispatcher = unsafe { object_mut(dispatcher, "the dispatcher") }?;
        if dispatcher.running.is_some() { dispatcher.stop() } else { Ok(()) }
    });
    // SAFETY: as above.
    unsafe { free(dispatcher) }
}

/// The value of `of` for a handler's job.
///
/// # Safety
/// `job` is null, or what a handler was called with, during that call.
unsafe fn of_job<R: Default>(job: *const takt_job, of: impl FnOnce(&Job<'_>) -> R) -> R {
    // SAFETY: by this function's condition.
    unsafe { job_at(job) }.map(of).unwrap_or_default()
}

/// A handler's job; none of a null pointer.
///
/// # Safety
/// `job` is null, or the handler's argument. The result is used only during the handler's call.
pub(crate) unsafe fn job_at<'a>(job: *const takt_job) -> Option<&'a Job<'a>> {
    // SAFETY: it is null, or `job_of` made it of a job that lives during the handler's call.
    unsafe { job.cast::<Job<'a>>().as_ref() }
}

/// The job's number among those of its operation, from 0.
///
/// # Safety
/// `job` is what a handler was called with, during that call (of a null pointer all is zero); so for the calls below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_number(job: *const takt_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.number()) }
}

/// When the job was released.
///
/// # Safety
/// As takt_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_arrival_ns(job: *const takt_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.arrival().as_ns()) }
}

/// By when it must be complete.
///
/// # Safety
/// As takt_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_deadline_ns(job: *const takt_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.deadline().as_ns()) }
}

/// The time since the dispatcher's start, as takt_dispatcher_now_ns.
///
/// # Safety
/// As takt_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_now_ns(job: *const takt_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.now().as_ns()) }
}

/// How long it is until the deadline; zero once it is over.
///
/// # Safety
/// As takt_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_time_left_ns(job: *const takt_job) -> u64 {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.time_left().as_ns()) }
}

/// Whether the job has executed for longer than its operation's wcet, where its takt_overrun watches that.
///
/// # Safety
/// As takt_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_has_overrun(job: *const takt_job) -> bool {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.has_overrun()) }
}

/// Whether the job is to return at once. This is so if it was dropped at its deadline, if it has
/// overrun a wcet that stops it, or if the dispatcher stops. A long handler should ask from time to
/// time.
///
/// # Safety
/// As takt_job_number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_job_must_stop(job: *const takt_job) -> bool {
    // SAFETY: by this function's condition.
    unsafe { of_job(job, |job| job.must_stop()) }
}
