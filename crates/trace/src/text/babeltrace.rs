//! Lines of babeltrace about the scheduling events of LTTng (and others that write CTF):
//! `[SECONDS.FRACTION] HOST EVENT: { cpu_id = 1 }, { FIELD = VALUE, ... }`; also with times of the
//! day, and with the time since the line before.
//!
//! LTTng counts priorities from the first that is not real-time, and does not say which thread told
//! an event.

use memchr::memmem;

use super::{Args, number};
use crate::decode::StateBits;
use crate::event::{Comm, Context, EventKind, Thread, Waking};

use super::Line;

/// The kernel's first priority that is not real-time.
const ORDINARY: i32 = 100;

pub(super) fn when(text: &[u8]) -> Option<u64> {
    head(text).map(|(time, ..)| time)
}

pub(super) fn line(text: &[u8]) -> Option<Line<'_>> {
    let (time, cpu, name, fields) = head(text)?;
    Some(match what(name, fields) {
        Some((pid, name, what)) => {
            Line::Event { time, unitless: false, cpu, pid, context: Context::Thread, name, what }
        }
        None => Line::Unreadable("the event's fields are not of a known form"),
    })
}

fn head(text: &[u8]) -> Option<(u64, u32, &[u8], &[u8])> {
    let inner = text.strip_prefix(b"[")?;
    let end = memchr::memchr(b']', inner)?;
    let time = time(&inner[..end])?;
    let rest = &inner[end + 1..];
    let colon = memmem::find(rest, b": { cpu_id = ")?;
    let name = rest[..colon].rsplit(|byte| *byte == b' ').next()?;
    let (cpu, fields) = number(&rest[colon + 13..])?;
    Some((time, u32::try_from(cpu).ok().filter(|cpu| *cpu < crate::event::CPUS_MAX)?, name, fields))
}

/// `1700000000.123456789` or `15:42:01.123456789`, in nanoseconds.
fn time(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = text.split_at(memchr::memchr(b'.', text)?);
    let (nanoseconds, []) = number(&fraction[1..])? else { return None };
    (fraction.len() == 10).then_some(())?;
    let mut seconds = 0_u64;
    for part in whole.split(|byte| *byte == b':') {
        let (value, []) = number(part)? else { return None };
        seconds = seconds.checked_mul(60)?.checked_add(value)?;
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// The thread, if the line has it, the kernel's name of the event, and its content.
fn what<'a>(name: &'a [u8], fields: &[u8]) -> Option<(u32, &'a [u8], EventKind)> {
    let mut args = Args(fields);
    let at = &mut args;
    let softirq = |at: &mut Args, made: fn(u32) -> EventKind| {
        at.behind(b"vec = ")?;
        at.small().map(made)
    };
    Some(match name {
        b"sched_switch" => {
            let prev = thread(at, [b"prev_comm = \"", b"\", prev_tid = ", b", prev_prio = "])?;
            at.behind(b", prev_state = ")?;
            // A number, or a name and the number: `( "TASK_RUNNING" : container = 0 )`.
            let state = at.before(b", next_comm = \"")?;
            let digit = state.iter().position(u8::is_ascii_digit)?;
            let (state, _) = number(&state[digit..])?;
            let next = thread(at, [b"", b"\", next_tid = ", b", next_prio = "])?;
            (prev.pid, name, EventKind::Switch { prev, left: StateBits::UNKNOWN.left(state), next })
        }
        b"sched_waking" | b"sched_wakeup" | b"sched_wakeup_new" => {
            let waking = match name {
                b"sched_waking" => Waking::Begins,
                b"sched_wakeup" => Waking::Queued,
                _ => Waking::New,
            };
            let thread = thread(at, [b"comm = \"", b"\", tid = ", b", prio = "])?;
            let cpu = at.behind(b"target_cpu = ").and_then(|()| at.small());
            (0, name, EventKind::Wake { thread, waking, cpu })
        }
        b"irq_handler_entry" => {
            at.behind(b"irq = ")?;
            let irq = at.small()?;
            let handler = at.behind(b"name = \"").and_then(|()| at.before(b"\"")).unwrap_or_default();
            (0, name, EventKind::IrqEnter { irq, name: Comm::new(handler) })
        }
        b"irq_handler_exit" => {
            at.behind(b"irq = ")?;
            (0, name, EventKind::IrqExit { irq: at.small()? })
        }
        b"irq_softirq_raise" => (0, b"softirq_raise", softirq(at, |vec| EventKind::SoftirqRaise { vec })?),
        b"irq_softirq_entry" => (0, b"softirq_entry", softirq(at, |vec| EventKind::SoftirqEnter { vec })?),
        b"irq_softirq_exit" => (0, b"softirq_exit", softirq(at, |vec| EventKind::SoftirqExit { vec })?),
        _ => (0, name, EventKind::Other),
    })
}

/// A name, an id and a priority, each behind its key.
fn thread(at: &mut Args, [comm, tid, prio]: [&[u8]; 3]) -> Option<Thread> {
    if !comm.is_empty() {
        at.behind(comm)?;
    }
    let comm = Comm::new(at.before(tid)?);
    let pid = at.small()?;
    at.behind(prio)?;
    let prio = at.prio()?.checked_add(ORDINARY)?;
    Some(Thread { pid, comm, prio: Some(prio) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SwitchOutState;

    #[test]
    fn scheduling_events_of_lttng() {
        let thread = |pid, comm: &str, prio| Thread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(prio) };
        let switch = |state: &str| {
            format!(
                "[1700000000.000000500] (+0.000000123) host sched_switch: {{ cpu_id = 2 }}, {{ prev_comm = \"a, \
                 b\", prev_tid = 7, prev_prio = -51, prev_state = {state}, next_comm = \"swapper/2\", next_tid \
                 = 0, next_prio = 20 }}"
            )
        };
        for (state, left) in [
            ("1", SwitchOutState::Blocked),
            ("( \"TASK_INTERRUPTIBLE\" : container = 1 )", SwitchOutState::Blocked),
            ("0", SwitchOutState::Ready),
        ] {
            let text = switch(state);
            let expected = EventKind::Switch { prev: thread(7, "a, b", 49), left, next: thread(0, "swapper/2", 120) };
            let Some(Line::Event { time, cpu, pid, name, what, .. }) = line(text.as_bytes()) else { panic!("{text}") };
            assert_eq!((time, cpu, pid, name, what), (1_700_000_000_000_000_500, 2, 7, &b"sched_switch"[..], expected));
        }
        for (rest, name, expected) in [
            (
                "sched_waking: { cpu_id = 0 }, { comm = \"x\", tid = 9, prio = 20, target_cpu = 3 }",
                "sched_waking",
                EventKind::Wake { thread: thread(9, "x", 120), waking: Waking::Begins, cpu: Some(3) },
            ),
            (
                "irq_handler_entry: { cpu_id = 0 }, { irq = 24, name = \"eth0\" }",
                "irq_handler_entry",
                EventKind::IrqEnter { irq: 24, name: Comm::new(b"eth0") },
            ),
            ("irq_softirq_exit: { cpu_id = 0 }, { vec = 3 }", "softirq_exit", EventKind::SoftirqExit { vec: 3 }),
            ("power_cpu_idle: { cpu_id = 0 }, { state = 1 }", "power_cpu_idle", EventKind::Other),
        ] {
            let text = format!("[15:42:01.000000001] {rest}");
            let Some(Line::Event { time, name: found, what, .. }) = line(text.as_bytes()) else { panic!("{text}") };
            assert_eq!((time, found, what), (56_521_000_000_001, name.as_bytes(), expected), "{text}");
        }
        assert!(matches!(line(b"[1.000000001] sched_switch: { cpu_id = 0 }, { }"), Some(Line::Unreadable(_))));
        for text in [
            "[1.0] x: { cpu_id = 0 }",
            "[   12.000000] a: b",
            "[1.000000001] x: { cpu = 0 }",
            "[x.000000001] x: { cpu_id = 0 }",
        ] {
            assert!(line(text.as_bytes()).is_none() && when(text.as_bytes()).is_none(), "{text}");
        }
    }
}
