//! The clocks of the kernel's tracer: which of them count time.
//!
//! The kernel's table `trace_clocks` (kernel/trace/trace.c) says which of them count nanoseconds.
//! The clock `uptime` counts hundredths of a second. The clocks of one architecture count cycles. A
//! file of trace-cmd may say how cycles of `x86-tsc` become nanoseconds.

use takt_model::file::one_line;

/// Clocks that count nanoseconds.
const TIME_CLOCKS: [&str; 7] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"];
/// Clocks that count something else.
const COUNTER_CLOCKS: [&str; 6] = ["counter", "uptime", "x86-tsc", "tsc2nsec", "ppc-tb", "s390-tod"];
/// The longest part of a name in a message.
const NAME_MAX: usize = 40;

/// The clock of `local [global] mono`: the name in brackets, or the only name.
pub(crate) fn in_use(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches('\0').trim();
    let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    marked.unwrap_or(text).to_owned()
}

/// Whether the clock of that name counts something else than nanoseconds.
pub(crate) fn is_counter(name: &str) -> bool {
    COUNTER_CLOCKS.contains(&name)
}

/// The warning about a clock that is in neither list.
pub(crate) fn unknown_clock(name: &str) -> Option<String> {
    let is_known = name.is_empty() || TIME_CLOCKS.contains(&name) || COUNTER_CLOCKS.contains(&name);
    (!is_known).then(|| {
        let name: String = one_line(name).chars().take(NAME_MAX).collect();
        format!("takt does not know the clock \"{name}\"; durations are right only if it counts nanoseconds")
    })
}
