//! Reads the head of an event's line: thread, CPU, time.
//!
//! A line has one of these forms. TGID and FLAGS may be absent. A name may hold anything, blanks
//! and brackets too: the CPU is the first number in brackets behind `-PID` before which and behind
//! which all the rest fits.
//!
//! | form | printed by |
//! |---|---|
//! | `NAME-PID (TGID) [CPU] FLAGS SECONDS.FRACTION: EVENT: ARGUMENTS` | the kernel, `trace-cmd report` |
//! | `NAME-PID CPUFLAGS TIMEus+: EVENT: ARGUMENTS` | the kernel's option `latency-format`; dumps of ftrace in dmesg, behind a prefix |
//! | `NAME PID CPU FLAGS COUNT INDEX [STAMP] TIMEms (+TIMEms): EVENT: ARGUMENTS` | its option `verbose` besides |
//! | `NAME PID [CPU] SECONDS.FRACTION: SYSTEM:EVENT: ARGUMENTS` | `perf script` |

use memchr::{memchr, memmem};

use super::number;
use crate::event::{CPUS_MAX, Context, Pid};

pub(super) struct Head<'a> {
    pub(super) pid: Pid,
    pub(super) cpu: u32,
    pub(super) context: Context,
    pub(super) stamp: Stamp,
    pub(super) rest: &'a [u8],
    /// The name of the event's system stands before its own.
    pub(super) of_perf: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// Nanoseconds, or whatever the clock counts.
    pub(super) value: u64,
    /// It has no unit.
    pub(super) unitless: bool,
}

const NO_TIME: &str = "no time of the form SECONDS.FRACTION: follows the CPU";
const NO_CPU: &str = "no kernel has a CPU of that number";

/// The head of a line. `Err`: there is none, or it has a fault.
pub(super) fn head(text: &[u8]) -> Result<Head<'_>, Option<&'static str>> {
    let mut fault = None;
    for (before, cpu, rest) in Brackets(text, 0) {
        let Some(pid) = thread_before(before) else { continue };
        match time(rest) {
            Some((stamp, context, rest)) if cpu < CPUS_MAX => {
                return Ok(Head { pid, cpu, context, stamp, rest, of_perf: false });
            }
            found => fault = fault.or(Some(if found.is_some() { NO_CPU } else { NO_TIME })),
        }
    }
    let other = latency(text).or_else(|| verbose(text)).or_else(|| of_perf(text));
    other.filter(|head| head.cpu < CPUS_MAX).ok_or(fault)
}

/// Numbers in brackets: the text before each, the number, and the text after it.
struct Brackets<'a>(&'a [u8], usize);

impl<'a> Iterator for Brackets<'a> {
    type Item = (&'a [u8], u32, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Brackets(text, from) = self;
        while let Some(at) = memchr(b'[', &text[*from..]) {
            let bracket = *from + at;
            *from = bracket + 1;
            let Some((cpu, rest)) = number(&text[*from..]) else { continue };
            if let (Some(rest), Ok(cpu)) = (rest.strip_prefix(b"]"), u32::try_from(cpu)) {
                return Some((&text[..bracket], cpu, rest));
            }
        }
        None
    }
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

/// `NAME-PID   2d..3 4567us+: `, the option `latency-format` of the kernel; `trace-cmd report -l`
/// prints seconds instead. Text before the name, such as the prefix of dmesg, is skipped.
#[cold]
fn latency(text: &[u8]) -> Option<Head<'_>> {
    memchr::memchr_iter(b'-', text).find_map(|dash| {
        let (pid, rest) = number(&text[dash + 1..])?;
        let (cpu, rest) = number(rest.strip_prefix(b" ")?.trim_ascii_start())?;
        let end = rest.iter().position(|b| *b == b' ').filter(|end| (3..=8).contains(end))?;
        let (flags, rest) = rest.split_at(end);
        if !flags.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'#' | b'*')) {
            return None;
        }
        let rest = rest.trim_ascii_start();
        let (value, unitless, rest) = match number(rest)? {
            (us, rest) if rest.starts_with(b"us") => {
                let rest = rest[2..].strip_prefix(b":").or_else(|| rest.get(3..)?.strip_prefix(b":"))?;
                (us.checked_mul(1000)?, false, rest)
            }
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace)?;
                let stamp = stamp(&rest[..end])?;
                (stamp.value, stamp.unitless, &rest[end..])
            }
        };
        let (pid, cpu) = (u32::try_from(pid).ok()?, u32::try_from(cpu).ok()?);
        Some(Head { pid, cpu, context: context_of(flags), stamp: Stamp { value, unitless }, rest, of_perf: false })
    })
}

/// `NAME PID CPU FLAGS COUNT INDEX [STAMP] 1234.567ms (+0.012ms): `, the options `latency-format`
/// and `verbose` of the kernel; where its clock counts something else than time, `1234 (+12): `.
#[cold]
fn verbose(text: &[u8]) -> Option<Head<'_>> {
    let plus = memmem::find(text, b" (+")?;
    let (left, right) = text.split_at(plus);
    let rest = right.get(memmem::find(right, b"): ")? + 3..)?;
    let mut words = left.rsplit(|b| *b == b' ').filter(|word| !word.is_empty());
    let time = words.next()?;
    words.next().filter(|stamp| stamp.starts_with(b"[") && stamp.ends_with(b"]"))?;
    let [_index, _count, flags, cpu, pid] = [words.next()?, words.next()?, words.next()?, words.next()?, words.next()?];
    let whole = |word| number(word).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value);
    let stamp = match time.strip_suffix(b"ms") {
        Some(ms) => {
            let (ms, rest) = number(ms)?;
            let us = whole(rest.strip_prefix(b".")?).filter(|us| *us < 1000)?;
            Stamp { value: ms.checked_mul(1_000_000)?.checked_add(us * 1000)?, unitless: false }
        }
        None => Stamp { value: whole(time)?, unitless: true },
    };
    let (pid, cpu) = (u32::try_from(whole(pid)?).ok()?, u32::try_from(whole(cpu)?).ok()?);
    Some(Head { pid, cpu, context: Context::of_flags(whole(flags)?), stamp, rest, of_perf: false })
}

/// `NAME PID [CPU] SECONDS.FRACTION: SYSTEM:EVENT: `, also `NAME PID/TID`.
#[cold]
fn of_perf(text: &[u8]) -> Option<Head<'_>> {
    Brackets(text, 0).find_map(|(before, cpu, rest)| {
        let before = before.trim_ascii_end();
        let id = &before[before.iter().rposition(|b| matches!(b, b' ' | b'/'))? + 1..];
        let (pid, []) = number(id)? else { return None };
        let rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace)?;
        let stamp = stamp(&rest[..end]).filter(|stamp| !stamp.unitless)?;
        let rest = rest[end..].trim_ascii_start();
        let word = &rest[..rest.iter().position(u8::is_ascii_whitespace)?];
        let names = word.strip_suffix(b":")?;
        names.contains(&b':').then_some(())?;
        let pid = u32::try_from(pid).ok()?;
        Some(Head { pid, cpu, context: Context::Thread, stamp, rest, of_perf: true })
    })
}

/// `d..2 12.345678:`: the time, the context that the flags tell, and what follows.
fn time(text: &[u8]) -> Option<(Stamp, Context, &[u8])> {
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

/// The third of the flags: `h` and `H` in an interrupt, `s` in a softirq, `z` and `Z` in an NMI.
fn context_of(flags: &[u8]) -> Context {
    match flags.get(2) {
        Some(b'h' | b'H' | b'z' | b'Z') => Context::Hard,
        Some(b's') => Context::Soft,
        _ => Context::Thread,
    }
}

fn stamp(word: &[u8]) -> Option<Stamp> {
    let word = word.strip_suffix(b":")?;
    let (whole, rest) = number(word)?;
    let Some(fraction) = rest.strip_prefix(b".") else {
        return rest.is_empty().then_some(Stamp { value: whole, unitless: true });
    };
    const UNITS: [u64; 9] = [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let unit = UNITS.get(fraction.len().checked_sub(1)?)?;
    let (part, []) = number(fraction)? else { return None };
    let value = whole.checked_mul(1_000_000_000)?.checked_add(part * unit)?;
    Some(Stamp { value, unitless: false })
}
