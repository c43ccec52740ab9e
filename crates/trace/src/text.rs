//! The text that a kernel's `trace` file and `trace-cmd report` print, old and new, also within the HTML of systrace.
//!
//! A line: `NAME-PID (TGID) [CPU] FLAGS SECONDS.FRACTION: EVENT: ARGUMENTS`; TGID and FLAGS may be absent. A name may hold anything, blanks and
//! brackets too: the CPU is the first number in brackets behind `-PID`.

use memchr::{memchr, memmem};

use crate::decode::States;
use crate::event::{CPUS_MAX, Comm, Context, Left, Pid, Thread, Waking, What};

/// What a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line<'a> {
    /// An event.
    Event {
        /// When, in nanoseconds of the trace's clock (a clock that counts something else: its count).
        time: u64,
        /// On which CPU.
        cpu: u32,
        /// Which thread ran there.
        pid: Pid,
        /// Whether the thread acted itself, where the trace's flags say so.
        context: Context,
        /// The event's name.
        name: &'a [u8],
        /// What it says.
        what: What,
    },
    /// The kernel lost events of a CPU.
    Lost {
        /// Whose.
        cpu: u32,
        /// How many, where it says so.
        count: Option<u64>,
    },
    /// No event: a comment, a heading, a page around the trace, a line that goes on with the one before.
    Other,
    /// An event by its beginning, which cannot be read: its name where that can, and what is wrong.
    Unreadable(&'static str),
}

/// Reads one line, without its end.
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
    let Some((pid, cpu, rest)) = head(text) else {
        return Line::Other;
    };
    if cpu >= CPUS_MAX {
        return Line::Unreadable("no kernel has a CPU of that number");
    }
    let Some((time, context, rest)) = time(rest) else {
        return Line::Unreadable("no time of the form SECONDS.FRACTION: follows the CPU");
    };
    let rest = rest.trim_ascii_start();
    let end = rest.iter().position(|b| *b == b':' || b.is_ascii_whitespace()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if rest.first() != Some(&b':') {
        // The function tracers print `callee <-caller`.
        return if memmem::find(rest, b"<-").is_some() {
            Line::Event { time, cpu, pid, context, name: b"function", what: What::Other }
        } else {
            Line::Unreadable("no name of an event follows the time")
        };
    }
    match what(name, rest[1..].trim_ascii()) {
        Some(what) => Line::Event { time, cpu, pid, context, name, what },
        None => Line::Unreadable("the event's arguments are not of a known form"),
    }
}

/// The time of a line that has one: whatever is an event, and lines that begin like one.
#[must_use]
pub(crate) fn when(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"#") {
        return None;
    }
    let (_, _, rest) = head(text)?;
    time(rest).map(|(time, _, _)| time)
}

/// `##### CPU 2 buffer started ####`: what came before on that CPU was overwritten. The kernel prints it of none of the CPUs where nothing was, and not of the first.
fn buffer_started(text: &[u8]) -> Option<Line<'static>> {
    let start = text.iter().position(|byte| *byte != b'#')?;
    let rest = text.get(start..)?.strip_prefix(b" CPU ")?;
    let (cpu, rest) = number(rest)?;
    rest.starts_with(b" buffer started").then_some(())?;
    Some(Line::Lost { cpu: u32::try_from(cpu).ok().filter(|cpu| *cpu < CPUS_MAX)?, count: None })
}

/// How many events the kernel had overwritten when it printed its buffers: of `# entries-in-buffer/entries-written: 12/40   #P:2` it is 28.
pub(crate) fn overwritten(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"#")?.trim_ascii_start();
    let (held, rest) = number(rest.strip_prefix(b"entries-in-buffer/entries-written:")?.trim_ascii_start())?;
    let (written, _) = number(rest.strip_prefix(b"/")?)?;
    written.checked_sub(held)
}

/// `CPU:2 [LOST 12 EVENTS]` of the kernel, `CPU:2 [12 EVENTS DROPPED]` and `CPU:2 [EVENTS DROPPED]` of trace-cmd.
fn lost(text: &[u8]) -> Option<Line<'static>> {
    let (cpu, rest) = number(&text[4..])?;
    memmem::find(rest, b"LOST").or_else(|| memmem::find(rest, b"DROPPED"))?;
    let digits = rest.iter().position(u8::is_ascii_digit);
    let count = digits.and_then(|at| number(&rest[at..])).map(|(count, _)| count);
    Some(Line::Lost { cpu: u32::try_from(cpu).ok().filter(|cpu| *cpu < CPUS_MAX)?, count })
}

/// The thread and the CPU, and what follows them.
fn head(text: &[u8]) -> Option<(Pid, u32, &[u8])> {
    let mut from = 0;
    while let Some(at) = memchr(b'[', &text[from..]) {
        let bracket = from + at;
        from = bracket + 1;
        let Some((cpu, rest)) = number(&text[from..]) else { continue };
        let (Some(rest), Ok(cpu)) = (rest.strip_prefix(b"]"), u32::try_from(cpu)) else { continue };
        let Some(pid) = thread_before(&text[..bracket]) else { continue };
        return Some((pid, cpu, rest));
    }
    None
}

/// `NAME-PID`, `NAME-PID (TGID)`, `NAME-PID (-----)`.
fn thread_before(text: &[u8]) -> Option<Pid> {
    let mut text = text.trim_ascii_end();
    if let Some(inner) = text.strip_suffix(b")") {
        text = inner[..memchr::memrchr(b'(', inner)?].trim_ascii_end();
    }
    let dash = memchr::memrchr(b'-', text)?;
    match number(&text[dash + 1..])? {
        (pid, []) => u32::try_from(pid).ok(),
        _ => None,
    }
}

/// `d..2 12.345678:`: nanoseconds, the context that the flags tell, and what follows.
fn time(text: &[u8]) -> Option<(u64, Context, &[u8])> {
    let mut text = text.trim_ascii_start();
    let mut context = Context::Thread;
    // One word of flags at the most; the latency tracers' format has none of this.
    for _ in 0..2 {
        let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        if let Some(stamp) = stamp(&text[..end]) {
            return Some((stamp, context, &text[end..]));
        }
        context = context_of(&text[..end]);
        text = text[end..].trim_ascii_start();
    }
    None
}

/// The third of the flags: `h` and `H` in an interrupt, `s` in a soft one, `z` and `Z` in one that nothing masks.
fn context_of(flags: &[u8]) -> Context {
    match flags.get(2) {
        Some(b'h' | b'H' | b'z' | b'Z') => Context::Hard,
        Some(b's') => Context::Soft,
        _ => Context::Thread,
    }
}

fn stamp(word: &[u8]) -> Option<u64> {
    let word = word.strip_suffix(b":")?;
    let (whole, rest) = number(word)?;
    let Some(fraction) = rest.strip_prefix(b".") else {
        return rest.is_empty().then_some(whole);
    };
    const UNITS: [u64; 9] = [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let unit = UNITS.get(fraction.len().checked_sub(1)?)?;
    let (part, []) = number(fraction)? else { return None };
    whole.checked_mul(1_000_000_000)?.checked_add(part * unit)
}

/// The number that `text` begins with, and what follows it.
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

/// A number with a sign.
fn signed(text: &[u8]) -> Option<(i64, &[u8])> {
    match text.strip_prefix(b"-") {
        Some(rest) => number(rest).and_then(|(value, rest)| Some((0_i64.checked_sub_unsigned(value)?, rest))),
        None => number(text).and_then(|(value, rest)| Some((i64::try_from(value).ok()?, rest))),
    }
}

/// Where `key` stands: most often at the first place where its first letter does, sooner found than a search is prepared.
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

/// Arguments, from the left to the right.
#[derive(Clone, Copy)]
struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// Goes behind the next `key`.
    fn behind(&mut self, key: &[u8]) -> Option<()> {
        let at = find(self.0, key)?;
        self.0 = &self.0[at + key.len()..];
        Some(())
    }
    /// What stands before the next `key`; goes behind it.
    fn before(&mut self, key: &[u8]) -> Option<&'a [u8]> {
        let at = find(self.0, key)?;
        let text = &self.0[..at];
        self.0 = &self.0[at + key.len()..];
        Some(text)
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

/// `None`: an event that takt reads, with arguments that it does not know.
fn what(name: &[u8], text: &[u8]) -> Option<What> {
    let mut args = Args(text);
    let at = &mut args;
    // trace-cmd marks what it could not read; the event is counted.
    if text.starts_with(b"[FAILED TO PARSE]") {
        return Some(What::Other);
    }
    Some(match name {
        b"sched_switch" => return switch(text),
        b"sched_waking" => return wake(text, Waking::Begins),
        b"sched_wakeup" => return wake(text, Waking::Queued),
        b"sched_wakeup_new" => return wake(text, Waking::New),
        b"sched_migrate_task" => {
            at.behind(b" pid=")?;
            let pid = at.small()?;
            at.behind(b" orig_cpu=")?;
            let from = at.small()?;
            at.behind(b" dest_cpu=")?;
            What::Migrate { pid, from, to: at.small()? }
        }
        b"sched_process_fork" => {
            at.behind(b" pid=")?;
            let parent = at.small()?;
            at.behind(b" child_comm=")?;
            let comm = Comm::new(at.before(b" child_pid=")?);
            What::Fork { parent, child: at.small()?, comm }
        }
        b"sched_process_exit" => {
            at.behind(b" pid=")?;
            What::Exit { pid: at.small()? }
        }
        b"task_rename" => {
            at.behind(b"pid=")?;
            let pid = at.small()?;
            at.behind(b" newcomm=")?;
            What::Rename { pid, comm: Comm::new(at.before(b" oom_score_adj=")?) }
        }
        b"irq_handler_entry" | b"irq_handler_exit" => {
            at.behind(b"irq=")?;
            let irq = at.small()?;
            if name == b"irq_handler_exit" {
                return Some(What::IrqExit { irq });
            }
            let handler = at.behind(b" name=").map_or(&b""[..], |()| at.0);
            What::IrqEnter { irq, name: Comm::new(handler) }
        }
        b"softirq_raise" | b"softirq_entry" | b"softirq_exit" => {
            at.behind(b"vec=")?;
            let vec = at.small()?;
            match name {
                b"softirq_raise" => What::SoftirqRaise { vec },
                b"softirq_entry" => What::SoftirqEnter { vec },
                _ => What::SoftirqExit { vec },
            }
        }
        b"hrtimer_start" => {
            at.behind(b" softexpires=")?;
            What::Timer { expires: at.number()? }
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
            What::SyscallEnter { number, args: values }
        }
        b"sys_exit" => {
            at.behind(b"NR ")?;
            let number = at.signed()?;
            at.behind(b" = ")?;
            What::SyscallExit { number, result: at.signed()? }
        }
        _ => What::Other,
    })
}

/// `prev_comm=A prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=B next_pid=2 next_prio=120`, the arrow missing in
/// some; or `A:1 [120] S ==> B:2 [120]`.
fn switch(text: &[u8]) -> Option<What> {
    let mut args = Args(text);
    let at = &mut args;
    let (prev, state, next);
    if text.starts_with(b"prev_comm=") {
        at.behind(b"prev_comm=")?;
        let comm = Comm::new(at.before(b" prev_pid=")?);
        let pid = at.small()?;
        at.behind(b" prev_prio=")?;
        prev = Thread { pid, comm, prio: Some(at.prio()?) };
        at.behind(b" prev_state=")?;
        state = at.before(b" ")?;
        at.behind(b"next_comm=")?;
        let comm = Comm::new(at.before(b" next_pid=")?);
        let pid = at.small()?;
        at.behind(b" next_prio=")?;
        next = Thread { pid, comm, prio: Some(at.prio()?) };
    } else {
        let left = at.before(b" ==> ")?;
        let space = memchr::memrchr(b' ', left)?;
        state = &left[space + 1..];
        prev = short(left[..space].trim_ascii_end())?;
        next = short(at.0)?;
    }
    Some(What::Switch { prev, left: left(state)?, next })
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
fn left(state: &[u8]) -> Option<Left> {
    if let Some((value, [])) = number(state) {
        return Some(States::UNKNOWN.left(value));
    }
    Some(match state {
        b"R" => Left::Ready,
        b"R+" | b"+" => Left::Preempted,
        b"X" | b"Z" | b"x" | b"X|Z" | b"Z|X" => Left::Ended,
        _ if state.first()?.is_ascii_alphabetic() => {
            // `S+`, `D|W+`: on its way to sleep, but still ready, for it was preempted before it got there.
            if state.ends_with(b"+") {
                Left::Preempted
            } else if matches!(state[0], b'D' | b'T' | b't') {
                Left::Held
            } else {
                Left::Blocked
            }
        }
        _ => return None,
    })
}

/// `comm=A pid=1 prio=120 target_cpu=003`, older ones with `success=1`; or `A:1 [120] success=1 CPU:003`.
fn wake(text: &[u8], waking: Waking) -> Option<What> {
    let mut args = Args(text);
    let at = &mut args;
    if text.starts_with(b"comm=") {
        at.behind(b"comm=")?;
        let comm = Comm::new(at.before(b" pid=")?);
        let pid = at.small()?;
        at.behind(b" prio=")?;
        let thread = Thread { pid, comm, prio: Some(at.prio()?) };
        at.behind(b" target_cpu=")?;
        return Some(What::Wake { thread, waking, cpu: Some(at.small()?) });
    }
    let bracket = memchr::memrchr(b']', text)?;
    let thread = short(&text[..=bracket])?;
    let cpu = at.behind(b"CPU:").and_then(|()| at.small());
    Some(What::Wake { thread, waking, cpu })
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
