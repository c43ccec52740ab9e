//! The text that a kernel's `trace` file and `trace-cmd report` print, old and new, also within the
//! HTML of systrace.

use memchr::{memchr, memmem};

use crate::decode::StateBits;
use crate::event::{CPUS_MAX, Comm, Context, EventKind, Pid, SwitchOutState, Thread, Waking};

mod babeltrace;
mod head;

use head::{Head, Stamp, head};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line<'a> {
    Event {
        /// When, in nanoseconds of the trace's clock (a clock that counts something else: its
        /// count).
        time: u64,
        /// The time is a whole number without a unit: of a clock that counts something else.
        unitless: bool,
        cpu: u32,
        pid: Pid,
        /// Whether the thread acted itself, where the trace's flags say so.
        context: Context,
        name: &'a [u8],
        what: EventKind,
    },
    /// The kernel lost events of a CPU.
    Lost {
        cpu: u32,
        /// How many, where it says so.
        count: Option<u64>,
    },
    /// No event: a comment, a heading, a page around the trace, a line that goes on with the one
    /// before.
    Other,
    /// It begins like an event, and cannot be read: its name, if that can be read, and the fault.
    Unreadable(&'static str),
}

#[must_use]
pub(crate) fn line(text: &[u8]) -> Line<'_> {
    // Within the JavaScript of an old systrace page, each line ends thus.
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let text = text.strip_suffix(b"\\n\\").unwrap_or(text);
    if text.starts_with(b"#") {
        return buffer_started(text).unwrap_or(Line::Other);
    }
    if text.starts_with(b"CPU:") {
        return lost(text).unwrap_or(Line::Other);
    }
    let Head { pid, cpu, context, stamp, rest, of_perf } = match head(text) {
        Ok(head) => head,
        Err(None) => return babeltrace::line(text).unwrap_or(Line::Other),
        Err(Some(why)) => return Line::Unreadable(why),
    };
    let Stamp { value: time, unitless } = stamp;
    let event = |name: &'static [u8]| Line::Event { time, unitless, cpu, pid, context, name, what: EventKind::Other };
    let mut rest = rest.trim_ascii_start();
    if of_perf {
        rest = memchr(b':', rest).map_or(rest, |colon| &rest[colon + 1..]);
    }
    if rest.first().is_some_and(u8::is_ascii_digit) {
        // The tracers wakeup and sched_switch: `PID:PRIO:STATE ==> [CPU] PID:PRIO:STATE NAME`.
        if memmem::find(rest, b"==> [").is_some() {
            return event(b"context_switch");
        }
        if memmem::find(rest, b" + [").is_some() {
            return event(b"wakeup");
        }
    }
    if rest.starts_with(b"<stack trace>") || rest.starts_with(b"<user stack trace>") {
        return event(b"stack");
    }
    let end = rest.iter().position(|b| *b == b':' || b.is_ascii_whitespace()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if rest.first() != Some(&b':') {
        // The function tracers print `callee <-caller`.
        return if memmem::find(rest, b"<-").is_some() {
            event(b"function")
        } else {
            Line::Unreadable("no name of an event follows the time")
        };
    }
    match what(name, rest[1..].trim_ascii()) {
        Some(what) => Line::Event { time, unitless, cpu, pid, context, name, what },
        None => Line::Unreadable("the event's arguments are not of a known form"),
    }
}

/// The time of a line that is an event or begins like one. The second value: it is a whole number
/// without a unit.
#[must_use]
pub(crate) fn when(text: &[u8]) -> Option<(u64, bool)> {
    if text.starts_with(b"#") {
        return None;
    }
    let of_babeltrace = |_| babeltrace::when(text).map(|time| (time, false));
    head(text).map_or_else(of_babeltrace, |head| Some((head.stamp.value, head.stamp.unitless)))
}

/// The tracer that a heading names: of `# tracer: nop` it is `nop`.
pub(crate) fn tracer(line: &[u8]) -> Option<&[u8]> {
    let at = memmem::find(line, b"# tracer:")?;
    let name = line[at + 9..].trim_ascii_start();
    let end = name.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))).unwrap_or(name.len());
    Some(&name[..end])
}

/// Whether a line is of the tracer function_graph: ` 0)   0.123 us    |  }`.
pub(crate) fn is_function_graph(line: &[u8]) -> bool {
    number(line.trim_ascii_start()).is_some_and(|(_, rest)| rest.starts_with(b") ") && rest.contains(&b'|'))
}

/// `##### CPU 2 buffer started ####`: earlier events of this CPU were overwritten. The kernel
/// prints it for no CPU without losses, and not for the first CPU.
fn buffer_started(text: &[u8]) -> Option<Line<'static>> {
    let start = text.iter().position(|byte| *byte != b'#')?;
    let rest = text.get(start..)?.strip_prefix(b" CPU ")?;
    let (cpu, rest) = number(rest)?;
    rest.starts_with(b" buffer started").then_some(())?;
    Some(Line::Lost { cpu: u32::try_from(cpu).ok().filter(|cpu| *cpu < CPUS_MAX)?, count: None })
}

/// The numbers of events in a heading: the following ones, and all written ones. They are 12 and 40
/// in `# entries-in-buffer/entries-written: 12/40   #P:2`, and 66 and 70 in a latency tracer's
/// `# latency: 46 us, #66/70, CPU#0 | (...)`.
pub(crate) fn entries(line: &[u8]) -> Option<(u64, u64)> {
    let rest = line.strip_prefix(b"#")?.trim_ascii_start();
    let rest = match rest.strip_prefix(b"entries-in-buffer/entries-written:") {
        Some(rest) => rest.trim_ascii_start(),
        None => {
            let latency = rest.strip_prefix(b"latency:")?;
            latency.get(memmem::find(latency, b", #")? + 3..)?
        }
    };
    let (held, rest) = number(rest)?;
    let (written, _) = number(rest.strip_prefix(b"/")?)?;
    Some((held, written))
}

/// `CPU:2 [LOST 12 EVENTS]` of the kernel, `CPU:2 [12 EVENTS DROPPED]` and `CPU:2 [EVENTS DROPPED]`
/// of trace-cmd.
fn lost(text: &[u8]) -> Option<Line<'static>> {
    let (cpu, rest) = number(&text[4..])?;
    memmem::find(rest, b"LOST").or_else(|| memmem::find(rest, b"DROPPED"))?;
    let digits = rest.iter().position(u8::is_ascii_digit);
    let count = digits.and_then(|at| number(&rest[at..])).map(|(count, _)| count);
    Some(Line::Lost { cpu: u32::try_from(cpu).ok().filter(|cpu| *cpu < CPUS_MAX)?, count })
}

#[inline]
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    /// So many digits always fit.
    const SAFE: usize = 19;
    let mut value = 0_u64;
    let mut at = 0;
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        value = if at < SAFE {
            value.wrapping_mul(10).wrapping_add(u64::from(digit))
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))?
        };
        at += 1;
    }
    (at > 0).then(|| (value, &text[at..]))
}

fn signed(text: &[u8]) -> Option<(i64, &[u8])> {
    match text.strip_prefix(b"-") {
        Some(rest) => number(rest).and_then(|(value, rest)| Some((0_i64.checked_sub_unsigned(value)?, rest))),
        None => number(text).and_then(|(value, rest)| Some((i64::try_from(value).ok()?, rest))),
    }
}

/// The place of `key`. Most often it is the first place of its first letter, which is faster than
/// the preparation of a search.
fn find(text: &[u8], key: &[u8]) -> Option<usize> {
    let (&first, _) = key.split_first()?;
    let mut from = 0;
    loop {
        let at = from + memchr(first, text.get(from..)?)?;
        if text[at..].starts_with(key) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[derive(Clone, Copy)]
struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// Goes behind the next `key`.
    #[inline]
    fn behind(&mut self, key: &[u8]) -> Option<()> {
        // Most keys stand right here.
        self.0 = match self.0.strip_prefix(key) {
            Some(rest) => rest,
            None => &self.0[find(self.0, key)? + key.len()..],
        };
        Some(())
    }
    /// The text before the next `key`. Goes behind the key.
    fn before(&mut self, key: &[u8]) -> Option<&'a [u8]> {
        let at = find(self.0, key)?;
        let text = &self.0[..at];
        self.0 = &self.0[at + key.len()..];
        Some(text)
    }
    /// The text before `key` and a number, and the number. Goes behind the number. A name may hold
    /// `key` itself: there the text after the number does not fit.
    fn name_before(&mut self, key: &[u8], fits: impl Fn(&[u8]) -> bool) -> Option<(Comm, u32)> {
        let mut from = 0;
        loop {
            let at = from + find(self.0.get(from..)?, key)?;
            if let Some((value, rest)) = number(&self.0[at + key.len()..])
                && fits(rest)
            {
                let name = Comm::new(&self.0[..at]);
                self.0 = rest;
                return u32::try_from(value).ok().map(|value| (name, value));
            }
            from = at + 1;
        }
    }
    fn number(&mut self) -> Option<u64> {
        let (value, rest) = number(self.0)?;
        self.0 = rest;
        Some(value)
    }
    fn signed(&mut self) -> Option<i64> {
        let (value, rest) = signed(self.0)?;
        self.0 = rest;
        Some(value)
    }
    fn small(&mut self) -> Option<u32> {
        self.number().and_then(|value| u32::try_from(value).ok())
    }
    fn prio(&mut self) -> Option<i32> {
        self.signed().and_then(|value| i32::try_from(value).ok())
    }
    fn hex(&mut self) -> Option<u64> {
        let text = self.0.strip_prefix(b"0x").unwrap_or(self.0);
        let end = text.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(text.len());
        let value = u64::from_str_radix(std::str::from_utf8(&text[..end]).ok()?, 16).ok()?;
        self.0 = &text[end..];
        Some(value)
    }
}

/// `None`: takt reads this event, but not its arguments.
fn what(name: &[u8], text: &[u8]) -> Option<EventKind> {
    let mut args = Args(text);
    let at = &mut args;
    // trace-cmd marks what it could not read; the event is counted.
    if text.starts_with(b"[FAILED TO PARSE]") {
        return Some(EventKind::Other);
    }
    Some(match name {
        b"sched_switch" => return switch(text),
        b"sched_waking" => return wake(text, Waking::Begins),
        b"sched_wakeup" => return wake(text, Waking::Queued),
        b"sched_wakeup_new" => return wake(text, Waking::New),
        b"sched_migrate_task" => {
            let (_, pid) = at.name_before(b" pid=", is_priority)?;
            at.behind(b" orig_cpu=")?;
            let from = at.small()?;
            at.behind(b" dest_cpu=")?;
            EventKind::Migrate { pid, from, to: at.small()? }
        }
        b"sched_process_fork" => {
            let (_, parent) = at.name_before(b" pid=", |rest| rest.starts_with(b" child_comm="))?;
            at.behind(b" child_comm=")?;
            let (comm, child) = at.name_before(b" child_pid=", |rest| !rest.starts_with(b" child_pid="))?;
            EventKind::Fork { parent, child, comm }
        }
        b"sched_process_exit" => {
            let (_, pid) = at.name_before(b" pid=", is_priority)?;
            EventKind::Exit { pid }
        }
        b"task_rename" => {
            at.behind(b"pid=")?;
            let pid = at.small()?;
            at.behind(b" newcomm=")?;
            EventKind::Rename { pid, comm: Comm::new(at.before(b" oom_score_adj=")?) }
        }
        b"irq_handler_entry" | b"irq_handler_exit" => {
            at.behind(b"irq=")?;
            let irq = at.small()?;
            if name == b"irq_handler_exit" {
                return Some(EventKind::IrqExit { irq });
            }
            let handler = at.behind(b" name=").map_or(&b""[..], |()| at.0);
            EventKind::IrqEnter { irq, name: Comm::new(handler) }
        }
        b"softirq_raise" | b"softirq_entry" | b"softirq_exit" => {
            at.behind(b"vec=")?;
            let vec = at.small()?;
            match name {
                b"softirq_raise" => EventKind::SoftirqRaise { vec },
                b"softirq_entry" => EventKind::SoftirqEnter { vec },
                _ => EventKind::SoftirqExit { vec },
            }
        }
        b"hrtimer_start" => {
            at.behind(b" softexpires=")?;
            EventKind::Timer { expires: at.number()? }
        }
        b"sys_enter" => {
            at.behind(b"NR ")?;
            let number = at.signed()?;
            at.behind(b"(")?;
            let mut values = [0; 6];
            for (k, value) in values.iter_mut().enumerate() {
                if k > 0 {
                    at.behind(b", ")?;
                }
                *value = at.hex()?;
            }
            EventKind::SyscallEnter { number, args: values }
        }
        b"sys_exit" => {
            at.behind(b"NR ")?;
            let number = at.signed()?;
            at.behind(b" = ")?;
            EventKind::SyscallExit { number, result: at.signed()? }
        }
        _ => EventKind::Other,
    })
}

/// `prev_comm=A prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=B next_pid=2 next_prio=120`,
/// the arrow missing in some; or `A:1 [120] S ==> B:2 [120]`.
fn switch(text: &[u8]) -> Option<EventKind> {
    let mut args = Args(text);
    let at = &mut args;
    let (prev, state, next);
    if text.starts_with(b"prev_comm=") {
        at.behind(b"prev_comm=")?;
        let (comm, pid) = at.name_before(b" prev_pid=", |rest| rest.starts_with(b" prev_prio="))?;
        at.behind(b" prev_prio=")?;
        prev = Thread { pid, comm, prio: Some(at.prio()?) };
        at.behind(b" prev_state=")?;
        state = at.before(b" ")?;
        at.behind(b"next_comm=")?;
        let (comm, pid) = at.name_before(b" next_pid=", |rest| rest.starts_with(b" next_prio="))?;
        at.behind(b" next_prio=")?;
        next = Thread { pid, comm, prio: Some(at.prio()?) };
    } else {
        // A name may hold the arrow, too.
        (prev, state, next) = memmem::find_iter(text, b" ==> ").find_map(|arrow| {
            let left = &text[..arrow];
            let space = memchr::memrchr(b' ', left)?;
            let prev = short(left[..space].trim_ascii_end())?;
            Some((prev, &left[space + 1..], short(&text[arrow + 5..])?))
        })?;
    }
    Some(EventKind::Switch { prev, left: left(state)?, next })
}

/// `NAME:PID [PRIO]`.
fn short(text: &[u8]) -> Option<Thread> {
    let text = text.strip_suffix(b"]")?;
    let bracket = memchr::memrchr(b'[', text)?;
    let (prio, []) = signed(&text[bracket + 1..])? else { return None };
    let text = text[..bracket].trim_ascii_end();
    let colon = memchr::memrchr(b':', text)?;
    let (pid, []) = number(&text[colon + 1..])? else { return None };
    Some(Thread {
        pid: u32::try_from(pid).ok()?,
        comm: Comm::new(&text[..colon]),
        prio: Some(i32::try_from(prio).ok()?),
    })
}

/// Letters as the kernel prints them, or a number.
fn left(state: &[u8]) -> Option<SwitchOutState> {
    if let Some((value, [])) = number(state) {
        return Some(StateBits::UNKNOWN.left(value));
    }
    Some(match state {
        b"R" => SwitchOutState::Ready,
        b"R+" | b"+" => SwitchOutState::Preempted,
        b"X" | b"Z" | b"x" | b"X|Z" | b"Z|X" => SwitchOutState::Ended,
        _ if state.first()?.is_ascii_alphabetic() => {
            // `S+`, `D|W+`: on its way to sleep, but still ready, for it was preempted before it
            // got there.
            if state.ends_with(b"+") {
                SwitchOutState::Preempted
            } else if matches!(state[0], b'D' | b'T' | b't') {
                SwitchOutState::Held
            } else {
                SwitchOutState::Blocked
            }
        }
        _ => return None,
    })
}

/// Whether a priority follows a thread's id, and no other id after it: what looks like both may be
/// within its name.
fn is_priority(text: &[u8]) -> bool {
    let prio = text.strip_prefix(b" prio=").and_then(signed);
    prio.is_some_and(|(_, rest)| !rest.starts_with(b" pid="))
}

/// `comm=A pid=1 prio=120 target_cpu=003`, older ones with `success=1`; or `A:1 [120] success=1
/// CPU:003`.
fn wake(text: &[u8], waking: Waking) -> Option<EventKind> {
    let mut args = Args(text);
    let at = &mut args;
    if text.starts_with(b"comm=") {
        at.behind(b"comm=")?;
        let (comm, pid) = at.name_before(b" pid=", is_priority)?;
        at.behind(b" prio=")?;
        let thread = Thread { pid, comm, prio: Some(at.prio()?) };
        at.behind(b" target_cpu=")?;
        return Some(EventKind::Wake { thread, waking, cpu: Some(at.small()?) });
    }
    let bracket = memchr::memrchr(b']', text)?;
    let thread = short(&text[..=bracket])?;
    let cpu = at.behind(b"CPU:").and_then(|()| at.small());
    Some(EventKind::Wake { thread, waking, cpu })
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
