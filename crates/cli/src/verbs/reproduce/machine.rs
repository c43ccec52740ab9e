//! What this machine is, as far as it decides how an experiment turns out.

use std::fs;

use takt_linux::machine::Machine;

/// "1.52" tasks ran or wanted to, on average over a minute, before the experiment began.
pub(super) fn load() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next().map(str::to_owned)
}

/// The machine in a sentence.
pub(super) fn this(machine: &Machine, load: Option<&str>) -> String {
    let preemption = machine.preemption.as_deref().map_or(String::new(), |model| format!(", preemption {model}"));
    let tick = machine.tick.map_or(String::new(), |tick| format!(", ticks of {tick}"));
    let load = load.map_or(String::new(), |load| format!("; the load average was {load} when it began"));
    format!("Linux {}, {} CPUs{preemption}{tick}{load}.", machine.kernel, machine.cpus_online.len())
}
