//! Operations, and the plan that a strategy makes of them.

use std::ffi::c_char;

use takt_dispatch::{Limits, OperatingMode, Operation, Operations, Overrun, Plan};
use takt_model::{Builtin, Late, NodeId, Span, file};

use crate::status::{CallError, call, copy, free, give, object, object_mut, takt_status, text};

/// When an operation's jobs are released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_arrival {
    /// By a timer, each period.
    Periodic = 0,
    /// By takt_operation_push or an event, never twice within the least distance.
    Sporadic = 1,
    /// When all its predecessors are complete.
    After = 2,
}

impl takt_arrival {
    fn of(number: u32) -> Option<takt_arrival> {
        [takt_arrival::Periodic, takt_arrival::Sporadic, takt_arrival::After]
            .into_iter()
            .find(|arrival| *arrival as u32 == number)
    }
}

/// The rule for an operation's late jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_late {
    /// The rule of the strategy's level.
    Level = 0,
    /// They go on.
    Continue = 1,
    /// They are dropped at their deadlines.
    Drop = 2,
    /// They go on below all levels.
    Demote = 3,
}

impl takt_late {
    /// The rule of this number. The inner `None` leaves the rule to the level.
    fn of(number: u32) -> Option<Option<Late>> {
        let rules = [
            (takt_late::Level, None),
            (takt_late::Continue, Some(Late::Continue)),
            (takt_late::Drop, Some(Late::Drop)),
            (takt_late::Demote, Some(Late::Demote)),
        ];
        rules.into_iter().find(|(late, _)| *late as u32 == number).map(|(_, rule)| rule)
    }
}

/// Whether an operation's jobs are omitted once they can no longer be in time; only of noncritical ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_cancel {
    /// As the set says.
    Set = 0,
    /// Never.
    Never = 1,
    /// Always.
    Always = 2,
}

impl takt_cancel {
    /// The rule of this number. The inner `None` leaves the rule to the set.
    fn of(number: u32) -> Option<Option<bool>> {
        let rules = [(takt_cancel::Set, None), (takt_cancel::Never, Some(false)), (takt_cancel::Always, Some(true))];
        rules.into_iter().find(|(cancel, _)| *cancel as u32 == number).map(|(_, rule)| rule)
    }
}

/// The reaction to a job that executes for longer than its operation's wcet. No handler is ended
/// from outside: it goes on until it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum takt_overrun {
    /// Overruns are not watched.
    Unwatched = 0,
    /// It goes on, and the program is told (takt_dispatcher_next_overrun).
    Continue = 1,
    /// The same, and it is told to stop (takt_job_must_stop). Whenever it returns it is not
    /// complete, and the rest of its chain is shed.
    Stop = 2,
    /// The same as TAKT_OVERRUN_CONTINUE, and it has the priority of demoted jobs until it returns,
    /// below all levels. Another thread takes the next job of its level.
    Demote = 3,
}

impl takt_overrun {
    /// The rule of this number; nothing of one that does not watch.
    fn of(number: u32) -> Option<Option<Overrun>> {
        let rules = [
            (takt_overrun::Unwatched, None),
            (takt_overrun::Continue, Some(Overrun::Continue)),
            (takt_overrun::Stop, Some(Overrun::Stop)),
            (takt_overrun::Demote, Some(Overrun::Demote)),
        ];
        rules.into_iter().find(|(overrun, _)| *overrun as u32 == number).map(|(_, rule)| rule)
    }
}

/// The properties of an operation. Zero is a value for all that may be left out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_operation {
    /// Its name, which no other operation has.
    pub name: *const c_char,
    /// When its jobs are released: a takt_arrival.
    pub arrival: u32,
    /// The period, or the least distance; unused where it comes after others.
    pub period_ns: u64,
    /// When the first job of a periodic one is released.
    pub offset_ns: u64,
    /// The longest that a job executes.
    pub wcet_ns: u64,
    /// By when after its release a job must be complete; zero: the period.
    pub deadline_ns: u64,
    /// Whether it is missed without harm.
    pub noncritical: bool,
    /// Larger is more important. No strategy of takt_plan_new looks at it; the system file of takt_plan_guarded has it.
    pub importance: u32,
    /// For fixed priorities; 1 is the most important, zero: none.
    pub priority: u32,
    /// The plan's CPU that it runs on, from 0.
    pub cpu: u32,
    /// How many of its jobs may wait or run at once; zero: as many as may be where all operations keep their deadlines.
    pub backlog: u32,
    /// The rule for its late jobs: a takt_late.
    pub late: u32,
    /// Whether its jobs are omitted once they can no longer be in time: a takt_cancel.
    pub cancel: u32,
    /// The reaction to its jobs that execute for longer than wcet_ns: a takt_overrun.
    pub overrun: u32,
    /// The names of its predecessors; may be null where there are none.
    pub after: *const *const c_char,
    /// How many there are.
    pub after_count: usize,
}

/// A set of operations.
pub struct takt_operations(Operations);

/// Who runs when.
pub struct takt_plan(pub(crate) Plan);

/// An empty set of operations for so many CPUs, at least one. With `cancel`, noncritical jobs that
/// can no longer be in time are omitted.
///
/// # Safety
/// `name` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operations_new(
    name: *const c_char,
    cpus: u32,
    cancel: bool,
    into: *mut *mut takt_operations,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let name = unsafe { text(name, "the name") }?;
        // SAFETY: by this function's condition.
        unsafe { give(into, takt_operations(Operations::new(name).cpus(cpus.max(1)).cancel(cancel))) }
    })
}

/// Adds an operation. Errors in it are reported when the plan is made.
///
/// # Safety
/// `operations` came from takt_operations_new; `operation` and what it points to can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operations_add(
    operations: *mut takt_operations,
    operation: *const takt_operation,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let operations = unsafe { object_mut(operations, "the operations") }?;
        // SAFETY: as above.
        let wanted = unsafe { object(operation, "the operation") }?;
        // SAFETY: as above.
        let name = unsafe { text(wanted.name, "the operation's name") }?;
        let mut after = Vec::new();
        if wanted.after_count > 0 && wanted.after.is_null() {
            return Err(CallError::invalid(format_args!("the predecessors of \"{name}\" are a null pointer")));
        }
        for at in 0..wanted.after_count {
            // SAFETY: `after` points to `after_count` pointers.
            let predecessor = unsafe { wanted.after.add(at).read() };
            // SAFETY: each is a string.
            after.push(unsafe { text(predecessor, "a predecessor's name") }?);
        }
        let (period, ns) = (Span::from_ns(wanted.period_ns), Span::from_ns);
        let none = |what: &str| CallError::invalid(format_args!("operation \"{name}\" has no {what}"));
        let arrival = takt_arrival::of(wanted.arrival).ok_or_else(|| none("takt_arrival"))?;
        let operation = match arrival {
            takt_arrival::Periodic => Operation::periodic(name, period).offset(ns(wanted.offset_ns)),
            takt_arrival::Sporadic => Operation::sporadic(name, period),
            takt_arrival::After => Operation::after(name, after.clone()),
        };
        if arrival != takt_arrival::After && !after.is_empty() {
            let why = "has predecessors: its arrival is to be TAKT_ARRIVAL_AFTER";
            return Err(CallError::invalid(format_args!("operation \"{name}\" {why}")));
        }
        let mut operation = operation.wcet(ns(wanted.wcet_ns)).importance(wanted.importance);
        operation = operation.on_cpu(wanted.cpu);
        if wanted.backlog > 0 {
            operation = operation.backlog(wanted.backlog);
        }
        if wanted.deadline_ns > 0 {
            operation = operation.deadline(ns(wanted.deadline_ns));
        }
        let late = takt_late::of(wanted.late).ok_or_else(|| none("takt_late"))?;
        let cancel = takt_cancel::of(wanted.cancel).ok_or_else(|| none("takt_cancel"))?;
        let overrun = takt_overrun::of(wanted.overrun).ok_or_else(|| none("takt_overrun"))?;
        operation = Operation { late, cancel, overrun, ..operation };
        if wanted.priority > 0 {
            operation = operation.priority(wanted.priority);
        }
        operations.0.add(if wanted.noncritical { operation.noncritical() } else { operation });
        Ok(())
    })
}

/// Lets an operation take no part at first: until a switch to a mode of which takt_mode_absent does
/// not say the same. A chain takes part as a whole.
///
/// # Safety
/// `operations` came from takt_operations_new, `operation` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operations_absent(
    operations: *mut takt_operations,
    operation: *const c_char,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let operations = unsafe { object_mut(operations, "the operations") }?;
        // SAFETY: as above.
        operations.0.absent.push(unsafe { text(operation, "the operation's name") }?.to_owned());
        Ok(())
    })
}

/// Adds a mode for takt_dispatcher_switch: the same operations at the same rates under this
/// strategy. Errors in it are reported when the plan is made.
///
/// # Safety
/// `operations` came from takt_operations_new, `mode` and `strategy` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operations_mode(
    operations: *mut takt_operations,
    mode: *const c_char,
    strategy: *const c_char,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let (operations, mode) = unsafe { (object_mut(operations, "the operations")?, text(mode, "the mode's name")?) };
        // SAFETY: as above.
        let strategy = builtin(unsafe { text(strategy, "the strategy") }?)?;
        operations.0.modes.push(OperatingMode::new(mode, strategy.strategy()));
        Ok(())
    })
}

/// Lets an operation take no part in a mode.
///
/// # Safety
/// `operations` came from takt_operations_new, `mode` and `operation` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mode_absent(
    operations: *mut takt_operations,
    mode: *const c_char,
    operation: *const c_char,
) -> takt_status {
    // SAFETY: by this function's condition.
    unsafe { in_mode(operations, mode, operation, |mode, operation| mode.absent.push(operation)) }
}

/// Gives an operation another period, or least distance, in a mode. Its successors come as often.
///
/// # Safety
/// `operations` came from takt_operations_new, `mode` and `operation` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mode_period(
    operations: *mut takt_operations,
    mode: *const c_char,
    operation: *const c_char,
    period_ns: u64,
) -> takt_status {
    let period = Span::from_ns(period_ns);
    // SAFETY: by this function's condition.
    unsafe {
        in_mode(operations, mode, operation, |mode, operation| {
            mode.periods.insert(operation, period);
        })
    }
}

/// Changes what a mode says of an operation.
///
/// # Safety
/// `operations` is null or came from takt_operations_new, `mode` and `operation` are null or strings.
unsafe fn in_mode(
    operations: *mut takt_operations,
    mode: *const c_char,
    operation: *const c_char,
    change: impl FnOnce(&mut OperatingMode, String),
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let (operations, name) = unsafe { (object_mut(operations, "the operations")?, text(mode, "the mode's name")?) };
        // SAFETY: as above.
        let operation = unsafe { text(operation, "the operation's name") }?;
        let mode = operations.0.modes.iter_mut().find(|mode| mode.name == name);
        let mode = mode.ok_or_else(|| {
            CallError::invalid(format_args!("there is no mode \"{name}\": takt_operations_mode adds one"))
        })?;
        change(mode, operation.to_owned());
        Ok(())
    })
}

fn builtin(name: &str) -> Result<Builtin, CallError> {
    Builtin::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = Builtin::ALL.iter().map(|builtin| builtin.name()).collect();
        CallError::invalid(format_args!("there is no strategy \"{name}\"; there are: {}", known.join(", ")))
    })
}

/// Frees a set of operations; a null pointer is no harm. Plans made of it stay.
///
/// # Safety
/// It came from takt_operations_new, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_operations_free(operations: *mut takt_operations) {
    // SAFETY: by this function's condition.
    unsafe { free(operations) }
}

/// The plan of a set of operations under a strategy: "rm", "dm", "edf", "mlf", "muf", "rms+mlf",
/// "fifo", as in a system file. Within a level each job runs to completion.
///
/// # Safety
/// `operations` came from takt_operations_new, `strategy` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_new(
    operations: *const takt_operations,
    strategy: *const c_char,
    into: *mut *mut takt_plan,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let operations = unsafe { object(operations, "the operations") }?;
        // SAFETY: as above.
        let strategy = builtin(unsafe { text(strategy, "the strategy") }?)?;
        let plan = operations.0.compute(&strategy.strategy(), &Limits::default());
        let plan = plan.map_err(|anomalies| CallError::new(takt_status::Unplannable, anomalies))?;
        // SAFETY: as above.
        unsafe { give(into, takt_plan(plan)) }
    })
}

/// As takt_plan_new, but jobs of a level preempt each other. A level takes as many priorities then as its jobs nest.
///
/// # Safety
/// As of takt_plan_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_new_preemptive(
    operations: *const takt_operations,
    strategy: *const c_char,
    into: *mut *mut takt_plan,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let operations = unsafe { object(operations, "the operations") }?;
        // SAFETY: as above.
        let strategy = builtin(unsafe { text(strategy, "the strategy") }?)?;
        let plan = operations.0.compute(&strategy.strategy(), &preemptive());
        let plan = plan.map_err(|anomalies| CallError::new(takt_status::Unplannable, anomalies))?;
        // SAFETY: as above.
        unsafe { give(into, takt_plan(plan)) }
    })
}

fn preemptive() -> Limits {
    Limits { preemptive: true, ..Limits::default() }
}

/// The plan of the first node of a system file's text, with its strategy and its modes. Within a
/// level each job runs to completion, whatever the file says.
///
/// # Safety
/// `toml` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_of_system(toml: *const c_char, into: *mut *mut takt_plan) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let toml = unsafe { text(toml, "the system") }?;
        let system = file::parse(toml, "system").map_err(CallError::invalid)?;
        let plan = Plan::compute(&system, NodeId(0), &Limits::default());
        let plan = plan.map_err(|anomalies| CallError::new(takt_status::Unplannable, anomalies))?;
        // SAFETY: by this function's condition.
        unsafe { give(into, takt_plan(plan)) }
    })
}

/// As takt_plan_of_system, but jobs of a level preempt each other where the file says so, as `takt run` has it.
///
/// # Safety
/// As of takt_plan_of_system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_of_system_preemptive(toml: *const c_char, into: *mut *mut takt_plan) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let toml = unsafe { text(toml, "the system") }?;
        let system = file::parse(toml, "system").map_err(CallError::invalid)?;
        let plan = Plan::compute(&system, NodeId(0), &preemptive());
        let plan = plan.map_err(|anomalies| CallError::new(takt_status::Unplannable, anomalies))?;
        // SAFETY: by this function's condition.
        unsafe { give(into, takt_plan(plan)) }
    })
}

/// The number of a mode's plan, from 1, for takt_dispatcher_switch: that of takt_operations_mode of
/// this name. SIZE_MAX where there is none, which a switch refuses.
///
/// # Safety
/// `plan` came from a call that makes plans, `mode` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_mode(plan: *const takt_plan, mode: *const c_char) -> usize {
    let mut number = usize::MAX;
    let _ = call(|| {
        // SAFETY: by this function's condition, here and below.
        let (plan, name) = unsafe { (object(plan, "the plan")?, text(mode, "the mode's name")?) };
        let found = plan.0.mode(name);
        number = found.ok_or_else(|| CallError::invalid(format_args!("the plan has no mode \"{name}\"")))?;
        Ok(())
    });
    number
}

/// A system file for takt_dispatcher_adaptive. `takt check` finds in it the longest response of a
/// critical operation under a guard. It has only the critical operations of that CPU. The others
/// are released as late as the first plan may have delayed them. Copied as takt_plan_text does it.
/// Returns the number of bytes, zero without such a plan or critical operation.
///
/// # Safety
/// `plan` came from a call that makes plans, `operation` is a string; `into` is null, or `size`
/// bytes of it may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_guarded(
    plan: *const takt_plan,
    guard: usize,
    operation: *const c_char,
    into: *mut c_char,
    size: usize,
) -> usize {
    let mut length = 0;
    let _ = call(|| {
        // SAFETY: by this function's condition, here and below.
        let (plan, operation) = unsafe { (object(plan, "the plan")?, text(operation, "the operation's name")?) };
        let guarded = plan.0.guarded(guard, operation);
        let guarded = guarded.ok_or_else(|| {
            CallError::invalid(format_args!("plan {guard} has no critical operation \"{operation}\""))
        })?;
        // SAFETY: as above.
        length = unsafe { copy(&file::write(&guarded), into, size) };
        Ok(())
    });
    length
}

/// Copies the plan's table into `into`, cut to `size` bytes and ended by a zero byte; how many
/// bytes it has without that. `into` may be null: to learn how many. Zero where the plan is a null
/// pointer.
///
/// # Safety
/// `plan` is null or came from a call that makes plans; `into` is null, or `size` bytes of it may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_text(plan: *const takt_plan, into: *mut c_char, size: usize) -> usize {
    let mut length = 0;
    let _ = call(|| {
        // SAFETY: by this function's condition, here and below.
        let plan = unsafe { object(plan, "the plan") }?;
        // SAFETY: as above.
        length = unsafe { copy(&plan.0.to_string(), into, size) };
        Ok(())
    });
    length
}

/// Frees a plan; a null pointer is no harm. Dispatchers and channels made of it stay.
///
/// # Safety
/// It came from a call that makes plans, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_plan_free(plan: *mut takt_plan) {
    // SAFETY: by this function's condition.
    unsafe { free(plan) }
}
