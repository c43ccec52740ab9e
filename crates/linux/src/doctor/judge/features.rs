//! What takt can use where a kernel has it. That it is missing spoils nothing; it says which verbs cannot.

use super::super::facts::Facts;
use super::super::{Finding, State};

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

pub(super) fn tracing(machine: Facts<'_>) -> Finding {
    const INSTANCES: &str = "/sys/kernel/tracing/instances";
    const TRACER: &str = "/sys/kernel/tracing/current_tracer";
    if let Some(tracer) = machine.line(TRACER).filter(|tracer| !tracer.is_empty() && *tracer != "nop") {
        return Finding::new(State::Warning, format!("the tracer \"{tracer}\" is on"))
            .shown(&machine, &[TRACER, "/sys/kernel/tracing/tracing_on"])
            .costs("each function or latency that is traced costs time everywhere; how much depends on the tracer")
            .mend(format!("echo nop | sudo tee {TRACER}"))
            .link(&["https://docs.kernel.org/trace/ftrace.html"]);
    }
    if machine.has(INSTANCES) && machine.text(INSTANCES).is_some() {
        let admin = machine.capability(CAP_SYS_ADMIN) == Some(true);
        let found = if admin { "tracefs is there" } else { "tracefs is there, for root" };
        return Finding::new(State::Ok, found);
    }
    let found = match machine.refused(INSTANCES).or(machine.refused("/sys/kernel/tracing/tracing_on")) {
        Some(_) => "tracefs is there, and not for this user: observing needs root",
        None if machine.mounted("tracefs") => "tracefs is mounted, and not for this user: observing needs root",
        None => "tracefs is not mounted: observing is not possible",
    };
    Finding::new(State::Absent, found).mend("sudo mount -t tracefs nodev /sys/kernel/tracing").mend("sudo takt ...")
}

pub(super) fn btf(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/sys/kernel/btf/vmlinux";
    if machine.has(FILE) {
        return Finding::new(State::Ok, "the kernel describes its types").seen(FILE, "there");
    }
    Finding::new(State::Absent, "the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
}

pub(super) fn sched_ext(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/sys/kernel/sched_ext/state";
    match machine.line(FILE) {
        Some("enabled") => {
            let name = machine.line("/sys/kernel/sched_ext/root/ops").unwrap_or("a program");
            Finding::new(State::Ok, format!("{name} schedules the ordinary threads, below all real-time ones"))
                .shown(&machine, &[FILE])
        }
        Some(state) => Finding::new(State::Ok, format!("the kernel can; {state} now")).shown(&machine, &[FILE]),
        None => Finding::new(State::Absent, "the kernel cannot (CONFIG_SCHED_CLASS_EXT, Linux 6.12 and later)"),
    }
}

pub(super) fn cpusets(machine: Facts<'_>) -> Finding {
    match machine.line("takt:no-cpusets") {
        Some("") => Finding::new(State::Ok, "takt can divide the machine"),
        Some(why) => {
            Finding::new(State::Absent, format!("takt cannot divide the machine: {}", why.trim_end_matches('.')))
        }
        None => Finding::new(State::Unknown, "nobody looked"),
    }
}

pub(super) fn traffic_control(machine: Facts<'_>) -> Finding {
    let privilege = match machine.capability(CAP_NET_ADMIN) {
        Some(true) => "",
        _ => "; CAP_NET_ADMIN is missing",
    };
    let built = machine.config("NET_SCH_HTB");
    match (machine.has("/sys/module/sch_htb"), built) {
        (true, _) | (_, Some("y")) => Finding::new(State::Ok, format!("HTB is there{privilege}")),
        (_, Some("m")) => Finding::new(State::Ok, format!("HTB is a module{privilege}")),
        (_, Some(_)) => Finding::new(State::Absent, "the kernel has no HTB (CONFIG_NET_SCH_HTB)"),
        (_, None) => Finding::new(State::Absent, format!("whether the kernel has HTB is not told{privilege}")),
    }
}

pub(super) fn network_namespaces(machine: Facts<'_>) -> Finding {
    if !machine.has("/proc/self/ns/net") {
        return Finding::new(State::Absent, "the kernel has none (CONFIG_NET_NS)");
    }
    match machine.capability(CAP_SYS_ADMIN) {
        Some(true) => Finding::new(State::Ok, "the kernel has them"),
        _ => Finding::new(State::Ok, "the kernel has them, for root"),
    }
}
