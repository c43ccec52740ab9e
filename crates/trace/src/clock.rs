//! The clocks of the kernel's tracer: which of them count time.
//!
//! The kernel's table `trace_clocks` (kernel/trace/trace.c) says which of them count nanoseconds.
//! The clock `uptime` counts hundredths of a second. The clocks of one architecture count cycles. A
//! file of trace-cmd may say how cycles of `x86-tsc` become nanoseconds.

use takt_model::file::one_line;

/// They count nanoseconds.
const OF_TIME: [&str; 7] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"];
/// They count something else.
const OF_COUNTS: [&str; 6] = ["counter", "uptime", "x86-tsc", "tsc2nsec", "ppc-tb", "s390-tod"];
/// So much of a name is repeated.
const NAME_MAX: usize = 40;

/// The clock of `local [global] mono`: the name in brackets, or the only name.
pub(crate) fn in_use(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches('\0').trim();
    let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    marked.unwrap_or(text).to_owned()
}

/// Whether the clock of that name counts something else than nanoseconds.
pub(crate) fn counts(name: &str) -> bool {
    OF_COUNTS.contains(&name)
}

/// The doubt about a clock that is not known to count time or something else.
pub(crate) fn doubt(name: &str) -> Option<String> {
    let is_known = name.is_empty() || OF_TIME.contains(&name) || OF_COUNTS.contains(&name);
    (!is_known).then(|| {
        let name: String = one_line(name).chars().take(NAME_MAX).collect();
        format!("takt does not know the clock \"{name}\"; durations are right only if it counts nanoseconds")
    })
}
